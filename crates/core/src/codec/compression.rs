//! `--compression`: what the user writes, with its bounds.

use std::fmt;
use std::str::FromStr;

use super::CodecId;
use crate::error::{Error, Result};

/// `none`, `lz4`, `zstd[:LEVEL]` or `gzip[:LEVEL]`. The default is `lz4`; without a level `zstd` and `gzip` mean
/// their level 1, because this tool is made to keep up with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Store as it is.
    None,
    /// LZ4, without levels: for a better ratio, use zstd.
    #[default]
    Lz4,
    /// Zstandard.
    Zstd(ZstdLevel),
    /// gzip.
    Gzip(GzipLevel),
}

/// −3…−1 or 1…19. At −3 lz4 is already as fast with the same ratio, so nothing below; levels above 19 are made for
/// windows larger than a block; 0 would be zstd's own name for 3 and is refused as a likely mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ZstdLevel(i32);

impl ZstdLevel {
    /// The level, when it is within its bounds.
    pub fn new(level: i32) -> Option<Self> {
        matches!(level, -3..=-1 | 1..=19).then_some(Self(level))
    }

    /// The level, as the library counts.
    pub fn get(self) -> i32 {
        self.0
    }
}

/// 1…12, as libdeflate counts: 9 is about zlib's 9, 10 to 12 search longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GzipLevel(i32);

impl GzipLevel {
    /// The level, when it is within its bounds.
    pub fn new(level: i32) -> Option<Self> {
        matches!(level, 1..=12).then_some(Self(level))
    }

    /// The level, as libdeflate counts.
    pub fn get(self) -> i32 {
        self.0
    }
}

impl Compression {
    /// The level, for information on media; 0 for codecs without levels.
    pub fn level(self) -> i8 {
        match self {
            Compression::None | Compression::Lz4 => 0,
            // Both are bounded far inside i8.
            Compression::Zstd(level) => level.get() as i8,
            Compression::Gzip(level) => level.get() as i8,
        }
    }

    /// The codec of blocks that got smaller.
    pub fn codec(self) -> CodecId {
        match self {
            Compression::None => CodecId::None,
            Compression::Lz4 => CodecId::Lz4,
            Compression::Zstd(_) => CodecId::Zstd,
            Compression::Gzip(_) => CodecId::Gzip,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None | Compression::Lz4 => write!(f, "{}", self.codec()),
            Compression::Zstd(ZstdLevel(level)) | Compression::Gzip(GzipLevel(level)) => {
                write!(f, "{}:{level}", self.codec())
            }
        }
    }
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        match (name, level) {
            ("none", None) => Ok(Compression::None),
            ("lz4", None) => Ok(Compression::Lz4),
            ("zstd", _) => leveled(text, level, ZstdLevel::new, "-3 to -1 or 1 to 19").map(Compression::Zstd),
            ("gzip", _) => leveled(text, level, GzipLevel::new, "1 to 12").map(Compression::Gzip),
            ("none" | "lz4", Some(_)) => Err(refuse(text, format!("{name} has no levels"), format!("write {name}"))),
            _ => Err(refuse(text, "there is no such codec", "none, lz4, zstd[:LEVEL] or gzip[:LEVEL]")),
        }
    }
}

/// The level after the colon, or 1 when there is none.
fn leveled<L>(text: &str, level: Option<&str>, new: fn(i32) -> Option<L>, bounds: &str) -> Result<L> {
    let plain_number = |text: &str| text.parse().ok().filter(|_| !text.starts_with('+'));
    level.map_or(Some(1), plain_number).and_then(new).ok_or_else(|| {
        let why = format!("`{}` is not a level of this codec", level.unwrap_or_default());
        refuse(text, why, format!("a whole number, {bounds}"))
    })
}

fn refuse(text: &str, why: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::usage(format!("--compression {text}"), why, hint)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_shown_value_parses_again() {
        for text in ["none", "lz4", "zstd:1", "zstd:-3", "zstd:19", "gzip:1", "gzip:12"] {
            assert_eq!(text.parse::<Compression>().unwrap().to_string(), text);
        }
        assert_eq!("zstd".parse::<Compression>().unwrap().to_string(), "zstd:1");
        assert_eq!("gzip".parse::<Compression>().unwrap().to_string(), "gzip:1");
        assert_eq!(Compression::default().to_string(), "lz4");
    }

    #[test]
    fn a_wrong_value_is_a_usage_error_that_says_what_to_write() {
        for (text, says) in [
            ("", "none, lz4"),
            ("brotli", "none, lz4"),
            ("LZ4", "none, lz4"),
            ("lz4:1", "write lz4"),
            ("none:", "write none"),
            ("zstd:", "1 to 19"),
            ("zstd:0", "1 to 19"),
            ("zstd:20", "1 to 19"),
            ("zstd:-4", "1 to 19"),
            ("zstd:+3", "1 to 19"),
            ("zstd:1:2", "1 to 19"),
            ("zstd:99999999999999999999", "1 to 19"),
            ("gzip:0", "1 to 12"),
            ("gzip:13", "1 to 12"),
            ("gzip: 1", "1 to 12"),
        ] {
            let error = text.parse::<Compression>().unwrap_err();
            assert_eq!(error.exit_kind().exit_code(), 2, "{text}");
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_to_itself_or_is_refused(text in "(none|lz4|zstd|gzip|[a-z]{0,5})(:-?[0-9]{0,3})?") {
            if let Ok(compression) = text.parse::<Compression>() {
                let shown = compression.to_string();
                prop_assert_eq!(shown.parse::<Compression>().unwrap(), compression);
                let is_zero = text.contains(":0") || text.contains(":-0");
                prop_assert!(shown.starts_with(&text) || is_zero, "{} {}", text, shown);
            }
        }
    }
}
