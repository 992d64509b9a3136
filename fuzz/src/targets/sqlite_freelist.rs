//! SQLite's free-list: a list that lies frees nothing, and none makes the walk panic or run for ever.

use fullbore_engines::sqlite::freelist::{FreePages, Trunk};
use fullbore_engines::sqlite::header::{DatabaseHeader, HEADER_SIZE, MAGIC};

const PAGE: usize = 512;

/// One input.
pub fn run(input: &[u8]) {
    let _ = Trunk::parse(input, input.len() / 2);
    let Some((&[trunk, count, pages, reserved], list)) = input.split_first_chunk::<4>() else { return };
    let mut bytes = [0; HEADER_SIZE];
    bytes[..16].copy_from_slice(MAGIC);
    bytes[16..18].copy_from_slice(&(PAGE as u16).to_be_bytes());
    bytes[18..24].copy_from_slice(&[1, 1, reserved % 32, 64, 32, 32]);
    (bytes[35], bytes[39]) = (trunk, count);
    let header = DatabaseHeader::parse(&bytes).expect("a good header");
    let pages = u32::from(pages) + 1;
    let mut reads = 0;
    let walked = FreePages::walk(&header, pages, &[], |page, buffer: &mut [u8]| {
        reads += 1;
        assert!(reads <= 2 * 256, "more reads than there can be trunks");
        assert!((2..=pages).contains(&page));
        buffer.fill(0);
        // Page after page of the list; numbers are one byte, for others are refused at once.
        let start = (page as usize - 2) * 16;
        for (slot, byte) in buffer.chunks_exact_mut(4).zip(list.get(start..).unwrap_or_default()) {
            slot[3] = *byte;
        }
        Ok::<(), ()>(())
    });
    if let Ok(free) = walked {
        assert!(free.count() < u64::from(pages));
        assert!(!free.contains(0) && !free.contains(1) && !free.contains(pages + 1));
    }
}
