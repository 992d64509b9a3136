//! The media format: a family, byte by byte. The specification is `docs/MEDIA_FORMAT.md`.
//!
//! Everything here is pure: bytes in, checked values out. Readers trust nothing: length, magic, version,
//! checksum, then the fields, each against its bound.

mod block;
mod engine_value;
mod family_digest;
mod footer;
mod header;
mod index;
mod log_range;
mod manifest;
mod paths;
mod trailer;

pub use block::{
    BLOCK_HEADER, BlockBody, BlockHeader, BlockKind, DIGEST, PADDED_HEAD, RUN, Run, RunKind, TAG, padded_run_capacity,
};
pub use engine_value::EngineValue;
pub use family_digest::FamilyDigest;
pub use footer::{Commit, FOOTER, Footer};
pub use header::{
    FAMILY_MAGIC, FamilyHeader, HEADER_MAX, HEADER_MIN, Label, MAX_FAMILIES, MAX_HEADER_STREAMS, SetHeader, SetKind,
    StreamRecord, WINDOW_BYTES_MAX, WINDOW_MAX,
};
pub use index::{ENTRY, IndexEntry, MAX_INDEX_ENTRIES, index_capacity};
pub use log_range::{LogPosition, LogRange, LogSpan};
pub use manifest::{
    Changes, Manifest, ManifestFamily, ManifestMap, ManifestStream, Position, STREAMS_MAX, pack_manifest,
    unpack_manifest,
};
pub(crate) use manifest::{join_manifest, joined_length};
pub(crate) use paths::check_path;
pub use trailer::{BlockReference, MAX_MANIFEST_PARTS, Trailer};

/// The version of the format that this program writes, and the newest it reads. It reads all older ones.
pub const FORMAT_VERSION: u16 = 1;

/// Why bytes are not what the format says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Not a fullbore family at all.
    #[error("is not a backup file: fullbore does not know how it begins")]
    NotMedia,
    /// Written by a newer program.
    #[error("media format version {0}: made by a newer fullbore; this one reads up to version {FORMAT_VERSION}")]
    Newer(u16),
    /// A checksum, bound or rule is broken.
    #[error("{0}")]
    Broken(String),
}

/// A [`Flaw::Broken`] from a text.
pub(crate) fn broken(what: impl Into<String>) -> Flaw {
    Flaw::Broken(what.into())
}

/// Checks a rule of the format.
pub(crate) fn require(rule: bool, what: &str) -> Result<(), Flaw> {
    if rule { Ok(()) } else { Err(broken(what)) }
}

/// Adds numbers from media: a sum that does not fit into a number becomes the largest number.
pub fn total(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// `value` rounded up to a multiple of `unit` (a power of two or not, at least 1).
pub fn round_up(value: u64, unit: u64) -> u64 {
    value.div_ceil(unit) * unit
}

/// Length of a family whose TRAILER block ends at `end_of_trailer`.
pub fn family_length(end_of_trailer: u64, block_size: u32) -> u64 {
    round_up(end_of_trailer + FOOTER as u64, u64::from(block_size))
}

/// Flips each bit of `bytes`, one at a time, and back.
#[cfg(test)]
fn every_flipped_bit_is_refused(mut bytes: Vec<u8>, is_refused: impl Fn(&[u8]) -> bool) {
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(is_refused(&bytes), "bit {bit} went unnoticed");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}
