//! The digest of a family: BLAKE3 of its header and of the index entries of all its blocks.

use zerocopy::IntoBytes;

use super::index::IndexEntry;
use crate::checksum;

/// Its memory does not grow with the family.
pub struct FamilyDigest(checksum::FamilyDigest);

impl FamilyDigest {
    /// Begins with the header's bytes.
    pub fn new(header: &[u8]) -> Self {
        let mut digest = checksum::FamilyDigest::new();
        digest.update(header);
        Self(digest)
    }

    /// Adds the next block of the family.
    pub fn add(&mut self, entry: &IndexEntry) {
        self.0.update(entry.without_span().as_bytes());
    }

    /// The digest of everything so far.
    pub fn value(&self) -> [u8; 32] {
        self.0.finish()
    }
}
