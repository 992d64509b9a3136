//! Compressed backups of SQL Server: a hostile container ends in an error, or in a stream that is not longer than its
//! records allow. With checksums put right or not.

use fullbore_engines::compressed::xpress::{BLOCK_MAX, Decoder};
use fullbore_engines::compressed::{Block, Container, MAGIC, checksum};

/// Where the first record is, and the length of a record's head.
const FIRST: usize = 0x1E0;
const HEAD: usize = 24;

/// One input.
pub fn run(input: &[u8]) {
    let Some((&choice, container)) = input.split_first() else { return };
    let mut container = container.to_vec();
    if choice & 1 != 0 {
        put_right(&mut container);
    }
    let Ok(mut reader) = Container::open(&container[..], "x.bak") else { return };
    let (mut block, mut decoder) = (Block::default(), Decoder::default());
    while let Ok(true) = reader.next(&mut block) {
        if block.is_packed() && block.unpack(&mut decoder, "x.bak").is_err() {
            return;
        }
        assert!((1..=BLOCK_MAX).contains(&block.plain().len()));
    }
}

/// The magic and the layout, and the checksums of the data records that follow each other from the first.
fn put_right(container: &mut [u8]) {
    if container.len() < FIRST {
        return;
    }
    container[..8].copy_from_slice(MAGIC);
    container[8..16].copy_from_slice(&[2, 0, 0, 0, 3, 0, 0, 0]);
    let mut at = FIRST;
    while let Some(record) = container.get_mut(at..).filter(|record| record.len() > HEAD + 4 && record[0] == 0x21) {
        let length = usize::from(u16::from_le_bytes([record[2], record[3]]));
        let Some(payload) = record.get(HEAD + 4..HEAD + 4 + length) else { return };
        let sum = checksum(payload);
        record[HEAD..HEAD + 4].copy_from_slice(&sum.to_le_bytes());
        at += HEAD + 4 + length;
    }
}
