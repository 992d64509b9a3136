//! What a set says of its object, in its manifest and in its record.

use std::collections::{BTreeMap, BTreeSet};

use fullbore_core::media::ManifestStream;
use fullbore_core::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Bytes of a key, at most: as in S3.
pub const KEY_MAX: usize = 1024;

/// Families of a media set of another program, at most.
const FAMILIES_MAX: u16 = 64;

/// An object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectFacts {
    /// Its key.
    pub key: String,
    /// Its length.
    pub bytes: u64,
    /// Its ETag, without quotes.
    pub etag: String,
    /// When its upload was completed, in microseconds since 1970: of two objects with one key, the later one counts.
    pub completed_at: i64,
    /// The type that the client gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Names and values of the client's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// What is known of a backup file of another program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<ObjectMedia>,
}

/// A backup file of another program: one family of its media set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectMedia {
    /// What it is, such as `SQL Server backup`.
    pub kind: String,
    /// The identity of its media set; empty if it could not be read.
    pub media_set: String,
    /// The number of this family, from 1; 0 if it could not be read.
    pub family: u16,
    /// How many families the media set has.
    pub families: u16,
    /// The backup sets on it, as far as its beginning tells.
    pub sets: Vec<String>,
    /// When and how it was checked.
    pub checked: String,
    /// The number of damaged places, and the first of them.
    pub damaged_places: u64,
    /// The first damaged places.
    pub damage: Vec<String>,
    /// Bytes that a check protects, and bytes that none protects.
    pub protected_bytes: u64,
    /// Bytes that no check protects.
    pub unprotected_bytes: u64,
    /// What was counted, and what to look at.
    pub facts: Vec<String>,
}

impl ObjectMedia {
    /// What it is, for lists and messages.
    pub fn title(&self) -> String {
        let of = match (self.family, self.families) {
            (0, _) => String::new(),
            (family, families) => format!(", family {family} of {families} of media set {}", self.media_set),
        };
        let damaged = if self.damaged_places > 0 { ", damaged" } else { "" };
        format!("{}{of}{damaged}", self.kind)
    }

    /// The families of its media set that none of `all` is.
    pub fn missing<'a>(&self, all: impl IntoIterator<Item = &'a Self>) -> Vec<u16> {
        let same = |other: &&Self| other.media_set == self.media_set && other.families == self.families;
        let there: BTreeSet<u16> = all.into_iter().filter(same).map(|other| other.family).collect();
        (1..=self.families.min(FAMILIES_MAX))
            .filter(|family| *family != self.family && !there.contains(family))
            .collect()
    }
}

impl ObjectFacts {
    /// From the position of a set. `None` if the set holds no object, or one that cannot be.
    pub fn of(position: &Value) -> Option<Self> {
        let facts: Self = serde_json::from_value(position.clone()).ok()?;
        ((1..=KEY_MAX).contains(&facts.key.len()) && facts.bytes < 1 << 62).then_some(facts)
    }
}

/// A part of an object: a stream, and where its bytes are in the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPart {
    /// The stream.
    pub stream: u32,
    /// Where it begins in the object.
    pub at: u64,
    /// Its length.
    pub bytes: u64,
}

/// The parts of a set, in the order of the object.
///
/// # Errors
/// They are not those of an object.
pub fn parts(streams: &[ManifestStream]) -> Result<Vec<StoredPart>> {
    let wrong = |name: &str| {
        let why = format!("its manifest is not that of an object: it has a stream `{}`", name.escape_debug());
        Error::incomplete("backup set", why, "use another set")
    };
    let mut numbered = Vec::new();
    for stream in streams.iter().filter(|stream| !stream.name.is_empty()) {
        let number = stream.name.strip_prefix(PART).and_then(|number| number.parse::<u16>().ok());
        let number = number.filter(|number| part_name(*number) == stream.name);
        numbered.push((number.ok_or_else(|| wrong(&stream.name))?, stream));
    }
    numbered.sort_by_key(|(number, _)| *number);
    let mut at: u64 = 0;
    let parts = numbered.into_iter().map(|(_, stream)| {
        let part = StoredPart { stream: stream.id, at, bytes: stream.size };
        at = at.saturating_add(stream.size);
        part
    });
    Ok(parts.collect())
}

const PART: &str = "part/";

/// The name of the stream with this part.
pub(super) fn part_name(number: u16) -> String {
    format!("{PART}{number:05}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_media_set_lacks_the_families_that_no_object_is() {
        let family = |media_set: &str, family, families| ObjectMedia {
            media_set: media_set.to_owned(),
            family,
            families,
            ..ObjectMedia::default()
        };
        let first = family("a", 1, 3);
        let others = [family("a", 3, 3), family("b", 2, 3), family("a", 2, 2), first.clone()];
        assert_eq!(first.missing(&others), [2]);
        assert_eq!(first.missing(&[family("a", 2, 3), family("a", 3, 3)]), Vec::<u16>::new());
    }

    #[test]
    fn parts_are_in_the_order_of_their_numbers_and_other_streams_are_refused() {
        let stream = |id, name: &str, size| ManifestStream {
            id,
            name: name.into(),
            layer: 0,
            unit: 4096,
            map_window: 0,
            size,
            ordered: false,
            identity: String::new(),
            base: None,
            detail: None,
        };
        let found = parts(&[stream(9, "part/00002", 5), stream(3, "", 0), stream(4, "part/00001", 7)]).unwrap();
        assert_eq!(found, [StoredPart { stream: 4, at: 0, bytes: 7 }, StoredPart { stream: 9, at: 7, bytes: 5 }]);
        for name in ["part/1", "part/000001", "part/", "part/70000", "file/1", "part/0000a"] {
            assert!(parts(&[stream(1, name, 1)]).is_err(), "{name}");
        }
    }
}
