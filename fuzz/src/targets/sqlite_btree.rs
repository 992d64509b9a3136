//! SQLite's b-tree pages: whatever a page says, it refers to no more pages than it has room for, and a schema that refers to itself in a circle ends.

use fullbore_engines::sqlite::btree::{references, roots};
use fullbore_engines::sqlite::header::{DatabaseHeader, HEADER_SIZE, MAGIC};

const PAGE: usize = 512;

/// One input.
pub fn run(input: &[u8]) {
    let Some((&number, page)) = input.split_first() else { return };
    if page.len() >= PAGE {
        let mut found = 0;
        references(number.into(), page, page.len(), |_| found += 1);
        assert!(found <= page.len() + 1, "each cell has a number of two bytes, and refers to two pages at most");
    }
    let mut bytes = [0; HEADER_SIZE];
    bytes[..16].copy_from_slice(MAGIC);
    bytes[16..18].copy_from_slice(&(PAGE as u16).to_be_bytes());
    bytes[18..24].copy_from_slice(&[1, 1, number % 32, 64, 32, 32]);
    let header = DatabaseHeader::parse(&bytes).expect("a good header");
    let pages = page.len().div_ceil(PAGE) as u32;
    let mut reads = 0;
    let found = roots(&header, pages, |page_number, buffer: &mut [u8]| {
        reads += 1;
        assert!(reads <= 1 << 16, "more reads than a schema has pages");
        assert!((1..=pages).contains(&page_number));
        buffer.fill(0);
        let bytes = page.chunks(PAGE).nth(page_number as usize - 1).unwrap_or_default();
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok::<(), ()>(())
    });
    if let Ok(found) = found {
        assert!(found.is_sorted() && found.contains(&1));
    }
}
