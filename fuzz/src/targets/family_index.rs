//! Index entries: any bytes are entries or none.

use fullbore_core::media::{ENTRY, IndexEntry, MAX_INDEX_ENTRIES};

/// One input.
pub fn run(input: &[u8]) {
    let whole = !input.is_empty() && input.len().is_multiple_of(ENTRY) && input.len() / ENTRY <= MAX_INDEX_ENTRIES;
    match IndexEntry::decode_all(input) {
        Ok(entries) => {
            assert!(whole && entries.len() == input.len() / ENTRY);
            assert!(entries.iter().all(|entry| entry.without_span().span.get() == 0));
        }
        Err(_) => assert!(!whole),
    }
}
