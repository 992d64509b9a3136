//! The head of MariaDB's redo log, with its checksum put right or not, and on its way into a restored directory.

use fullbore_core::checksum::crc32c;
use fullbore_engines::mariadb::redo::header::{Checkpoint, HEADER, Header};
use fullbore_engines::mariadb::redo::ring::Ring;
use fullbore_engines::mariadb::redo::write::LinearLog;

/// One input.
pub fn run(input: &[u8]) {
    let Some((&choice, head)) = input.split_first() else { return };
    let mut head = head.to_vec();
    if choice & 1 == 1 && head.len() >= HEADER {
        let sum = crc32c(&head[..508]);
        head[508..512].copy_from_slice(&sum.to_be_bytes());
    }
    let Ok(header) = Header::parse(&head) else { return };
    let block = &head[HEADER..];
    let checkpoint = Checkpoint::newest(&head, header.first_lsn).ok().or(Checkpoint::parse(block, header.first_lsn));
    let checkpoint = checkpoint.unwrap_or(Checkpoint { lsn: header.first_lsn, end_lsn: header.first_lsn });
    assert!(header.first_lsn <= checkpoint.lsn && checkpoint.lsn <= checkpoint.end_lsn);
    let log = LinearLog::new(&header, checkpoint, "10.11.18");
    let again = Header::parse(log.head()).expect("what is written is read");
    assert_eq!((again.first_lsn, again.encrypted), (checkpoint.lsn, header.encrypted));
    assert_eq!(Checkpoint::newest(log.head(), again.first_lsn), Ok(checkpoint));
    let size = log.size(checkpoint.end_lsn, 4 << 20);
    if let Some(ring) = Ring::new(again.first_lsn, size) {
        assert_eq!(ring.offset(checkpoint.end_lsn), log.offset(checkpoint.end_lsn));
    }
}
