//! Checks the pages of a backup during verification: finds pages that were damaged before the backup.

use std::collections::HashMap;

use fullbore_core::Result;
use fullbore_core::media::ManifestStream;
use fullbore_core::units::counted;
use fullbore_core::unpack::Target;
use serde_json::{Value, json};

use super::damage;
use super::page::PageFormat;
use super::suspects::{Judge, Suspect, Suspects};
use crate::engine::{PageCheck, PageEngine};
use crate::mysql_family::Dialect;

/// How many damaged pages are named.
const NAMED_MAX: usize = 10;
/// The field for the flags of the tablespace in the detail of a stream.
const FLAGS: &str = "fsp_flags";

/// The detail of a stream ([`fullbore_core::source::Source::detail`]) whose pages can be verified.
pub fn detail(fsp_flags: u32) -> Value {
    json!({ FLAGS: fsp_flags })
}

/// The flags in a stream's [`detail`].
fn flags_of(stream: &ManifestStream) -> Option<u32> {
    u32::try_from(stream.detail.as_ref()?.value().get(FLAGS)?.as_u64()?).ok()
}

/// The format of the pages of a stream, if it has a [`detail`].
pub fn format_of(dialect: Dialect, stream: &ManifestStream) -> Option<PageFormat> {
    PageFormat::from_flags(flags_of(stream)?, dialect).ok()
}

/// InnoDB's pages, as the servers of that dialect write them.
pub struct InnodbPages(pub Dialect);

impl PageEngine for InnodbPages {
    fn check(&self, streams: &[ManifestStream]) -> Box<dyn PageCheck> {
        Box::new(PageVerifier::new(self.0, streams))
    }

    fn page_size(&self, stream: &ManifestStream) -> Option<u32> {
        format_of(self.0, stream).map(|format| format.physical_size())
    }

    fn damaged_at_source(&self, position: &Value) -> Option<String> {
        damage::read(position)
    }
}

/// Looks at every page that it is given.
pub struct PageVerifier {
    tablespaces: HashMap<u32, Tablespace>,
    suspects: Suspects,
}

struct Tablespace {
    name: String,
    size: u64,
    judge: Judge,
}

impl PageVerifier {
    /// For streams with a [`detail`]; other streams are not checked.
    pub fn new(dialect: Dialect, streams: &[ManifestStream]) -> Self {
        let tablespace = |stream: &ManifestStream| {
            let judge = Judge::new(dialect, flags_of(stream)?, &stream.identity)?;
            Some((stream.id, Tablespace { name: stream.name.clone(), size: stream.size, judge }))
        };
        Self { tablespaces: streams.iter().filter_map(tablespace).collect(), suspects: Suspects::default() }
    }
}

impl Target for PageVerifier {
    fn discards(&self) -> bool {
        false
    }

    fn checks_maps(&self) -> bool {
        true
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        if let Some(tablespace) = self.tablespaces.get(&stream) {
            self.suspects.look(stream, &tablespace.judge, tablespace.size, offset, bytes);
        }
        Ok(())
    }

    fn zero(&self, stream: u32, offset: u64, length: u64) -> Result<()> {
        if let Some(tablespace) = self.tablespaces.get(&stream) {
            self.suspects.zero(stream, &tablespace.judge, offset, length);
        }
        Ok(())
    }
}

impl PageCheck for PageVerifier {
    fn damaged(&self) -> Vec<String> {
        let (left, more) = self.suspects.left();
        let name = |stream: &u32| self.tablespaces.get(stream).map_or("", |tablespace| tablespace.name.as_str());
        let sentence = |suspect: &Suspect| {
            let (page, file, why) = (suspect.page, name(&suspect.stream), &suspect.why);
            format!("page {page} of `{file}` was damaged already when it was backed up: {why}")
        };
        let mut said: Vec<String> = left.iter().take(NAMED_MAX).map(sentence).collect();
        let rest = left.len().saturating_sub(NAMED_MAX);
        if rest > 0 {
            let more = if more { "at least " } else { "" };
            let pages = counted(rest as u64, "more page");
            said.push(format!("and {more}{pages} with damage from before the backup"));
        }
        said
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mysql_family::innodb::fixtures;

    fn stream(id: u32, flags: u32, size: u64, identity: &str) -> ManifestStream {
        ManifestStream {
            id,
            name: format!("shop/{id}.ibd"),
            layer: 0,
            unit: 16384,
            map_window: 0,
            size,
            ordered: false,
            identity: identity.into(),
            base: None,
            detail: Some(detail(flags).into()),
        }
    }

    const PAGE: usize = 4096;

    /// Five pages of a real server, of which three are empty, and the flags of their tablespace.
    fn tablespace() -> (Vec<u8>, u32) {
        let fixture = fixtures::ALL.iter().find(|fixture| fixture.name == "mysql-crc32-plain").unwrap();
        let mut pages = fixture.bytes[..PAGE].to_vec();
        pages.resize(4 * PAGE, 0);
        pages.extend(&fixture.bytes[PAGE..]);
        let flags = u32::from_be_bytes(*pages[54..].first_chunk().unwrap());
        (pages, flags)
    }

    #[test]
    fn a_damaged_page_is_named_unless_it_comes_again_whole() {
        let (pages, flags) = tablespace();
        let verifier = PageVerifier::new(Dialect::MySql, &[stream(7, flags, pages.len() as u64, "space:9")]);
        verifier.write(7, 0, &pages).unwrap();
        assert_eq!(verifier.damaged(), Vec::<String>::new());
        let mut torn = pages.clone();
        torn[4 * PAGE + 900] ^= 1;
        torn[100] ^= 1;
        verifier.write(7, 0, &torn).unwrap();
        let said = verifier.damaged();
        assert!(said.len() == 2 && said[1].contains("page 4 of `shop/7.ibd`"), "{said:?}");
        // A part of a page cannot be checked; a whole page can, and zeros can.
        verifier.write(7, 1024, &pages[1024..2048]).unwrap();
        assert_eq!(verifier.damaged().len(), 2);
        verifier.write(7, 0, &pages[..PAGE]).unwrap();
        assert_eq!(verifier.damaged().len(), 1);
        verifier.zero(7, 4 * PAGE as u64, PAGE as u64).unwrap();
        assert_eq!(verifier.damaged(), Vec::<String>::new());
    }

    #[test]
    fn pages_beyond_the_end_or_of_unknown_tablespaces_are_not_judged() {
        let (pages, flags) = tablespace();
        let mut bad = pages.clone();
        bad[900] ^= 1;
        let streams = [stream(1, flags, PAGE as u64 - 1, "space:9"), stream(2, flags, 1 << 30, "space:0:ibdata2")];
        let verifier = PageVerifier::new(Dialect::MySql, &streams);
        verifier.write(1, 0, &bad[..PAGE]).unwrap();
        verifier.write(2, 50 * PAGE as u64, &pages).unwrap();
        verifier.write(3, 0, &bad).unwrap();
        assert_eq!(verifier.damaged(), Vec::<String>::new());
        let many = PageVerifier::new(Dialect::MySql, &[stream(1, flags, 1 << 30, "space:9")]);
        many.write(1, 0, &[7; PAGE * 15]).unwrap();
        assert!(many.damaged().len() == 11 && many.damaged()[10].contains("and 5 more"));
    }
}
