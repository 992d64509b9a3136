//! The header of SQLite's wal-index.

use fullbore_engines::sqlite::wal::checksum;
use fullbore_engines::sqlite::wal_index::{INDEX_HEADER_SIZE, IndexHeader};

/// One input.
pub fn run(input: &[u8]) {
    let _ = IndexHeader::parse(input);
    let mut bytes = input.to_vec();
    bytes.resize(INDEX_HEADER_SIZE, 0);
    let sums = checksum(cfg!(target_endian = "big"), (0, 0), &bytes[..40]);
    bytes[40..44].copy_from_slice(&sums.0.to_ne_bytes());
    bytes[44..48].copy_from_slice(&sums.1.to_ne_bytes());
    bytes.copy_within(..48, 48);
    if let Ok(header) = IndexHeader::parse(&bytes) {
        let size = header.page_size;
        let empty = size == 0 && header.max_frame == 0;
        assert!(empty || (size.is_power_of_two() && (512..=65536).contains(&size)), "page size {size}");
    }
}
