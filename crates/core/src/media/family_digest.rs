//! The digest of a family: BLAKE3 of its header and of the index entries of all its blocks.

use zerocopy::IntoBytes;

use super::index::IndexEntry;

/// Grows with the family; holds nothing in proportion to it.
pub struct FamilyDigest(blake3::Hasher);

impl FamilyDigest {
    /// Begins with the header's bytes.
    pub fn new(header: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(header);
        Self(hasher)
    }

    /// Adds the next block of the family.
    pub fn add(&mut self, entry: &IndexEntry) {
        self.0.update(entry.without_span().as_bytes());
    }

    /// The digest of everything so far.
    pub fn value(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}
