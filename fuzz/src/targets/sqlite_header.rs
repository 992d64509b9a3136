//! The header of an SQLite database.

use fullbore_engines::sqlite::header::{DatabaseHeader, HEADER_SIZE, MAGIC};

/// One input.
pub fn run(input: &[u8]) {
    let _ = DatabaseHeader::parse(input);
    let mut bytes = input.to_vec();
    bytes.resize(bytes.len().max(HEADER_SIZE), 0);
    bytes[..16].copy_from_slice(MAGIC);
    bytes[21..24].copy_from_slice(&[64, 32, 32]);
    if let Ok(header) = DatabaseHeader::parse(&bytes) {
        assert!(header.page_size.is_power_of_two() && (512..=65536).contains(&header.page_size));
        assert!(header.usable() >= 480 && header.usable() <= header.page_size);
        for page in [0, 1, 2, 3, header.lock_page(), header.freelist_trunk, u32::MAX - 1, u32::MAX] {
            let _ = header.is_pointer_map(page);
        }
    }
}
