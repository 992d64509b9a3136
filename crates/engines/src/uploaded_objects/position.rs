//! What a set says of its object, in its manifest and in its record.

use std::collections::BTreeMap;

use fullbore_core::media::ManifestStream;
use fullbore_core::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Bytes of a key, at most: as in S3.
pub const KEY_MAX: usize = 1024;

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
    pub media: Option<Value>,
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
