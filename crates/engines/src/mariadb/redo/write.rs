//! The redo log of the restored directory: everything from the checkpoint on, from its first byte, without a wrap.
//!
//! The server's own crash recovery does the rest; there is no step of preparation. If the size differs from the
//! server's configuration, the server makes another file after recovery.

use super::header::{CHECKPOINTS_AT, Checkpoint, HEAD, Header};
use super::ring::PAYLOAD_AT;

/// The restored file has at least this many bytes, the smallest size in a server's configuration.
const SIZE_MIN: u64 = 4 << 20;
/// Room after the payload: recovery writes to the log too, before its first checkpoint. A server keeps a fifth of a
/// large log free, which is a quarter of its content, and more of a small log.
const ROOM_PART: u64 = 4;
const ROOM_MIN: u64 = 2 << 20;
/// More room is of no use.
const ROOM_MAX: u64 = 64 << 20;
/// Its size is a multiple of this.
const BLOCK: u64 = 4096;

/// The restored file's plan: known as soon as the copy begins, except for its size.
#[derive(Debug, Clone)]
pub struct LinearLog {
    checkpoint: Checkpoint,
    head: Vec<u8>,
}

impl LinearLog {
    /// Of a log with this header, from `checkpoint` on, made by a server of `version`.
    pub fn new(header: &Header, checkpoint: Checkpoint, version: &str) -> Self {
        let mut head = vec![0; HEAD];
        let first = header.restored(checkpoint.lsn, version);
        head[..first.len()].copy_from_slice(&first);
        let place = CHECKPOINTS_AT[0] as usize;
        let block = checkpoint.to_bytes();
        head[place..place + block.len()].copy_from_slice(&block);
        Self { checkpoint, head }
    }

    /// Everything before the payload: [`HEAD`] bytes.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The place of the byte at `lsn` in the restored file. `lsn` is at least the checkpoint's.
    pub fn offset(&self, lsn: u64) -> u64 {
        PAYLOAD_AT + lsn.saturating_sub(self.checkpoint.lsn)
    }

    /// Bytes of the restored file that ends with `end_lsn`. The rest of it, at least one byte, is zero: that ends the
    /// log. It gets the source's size if the log fits with some room, so that the server keeps this size.
    pub fn size(&self, end_lsn: u64, source_size: u64) -> u64 {
        let room = (end_lsn.saturating_sub(self.checkpoint.lsn) / ROOM_PART).clamp(ROOM_MIN, ROOM_MAX);
        (self.offset(end_lsn) + 1 + room).next_multiple_of(BLOCK).max(SIZE_MIN).max(source_size)
    }
}

/// The byte that ends a mini-transaction in the restored file: there is one lap only.
pub const SEQUENCE: u8 = 1;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::framing::{parse, seal};
    use super::super::ring::Ring;
    use super::*;

    #[test]
    fn a_log_of_any_lap_is_read_back_from_its_first_byte() {
        let ring = Ring::new(12288, 4 << 20).unwrap();
        let source = Header::parse(&Header::made(12288, false)).unwrap();
        for lap in 0..4 {
            let start = 12288 + ring.capacity() * lap + 1000;
            let checkpoint = Checkpoint { lsn: start, end_lsn: start + 18 };
            let log = LinearLog::new(&source, checkpoint, "10.11.18");
            let header = Header::parse(log.head()).unwrap();
            assert_eq!(Checkpoint::newest(log.head(), header.first_lsn), Ok(checkpoint));
            let size = log.size(start + 100, 4 << 20);
            let linear = Ring::new(header.first_lsn, size).unwrap();
            assert_eq!((linear.offset(start + 18), log.offset(start + 18)), (12288 + 18, 12288 + 18));
            let records = [0x33, 1, 2, 3];
            let mut sealed = seal(&records, start, &ring, None);
            assert_eq!(parse(&sealed, start, &linear, false).is_ok(), lap % 2 == 0);
            sealed[records.len()] = SEQUENCE;
            assert!(parse(&sealed, start, &linear, false).is_ok());
        }
    }

    #[test]
    fn the_size_leaves_room_for_recovery_and_is_the_sources_if_that_is_enough() {
        let source = Header::parse(&Header::made(12288, false)).unwrap();
        let log = LinearLog::new(&source, Checkpoint { lsn: 20_000, end_lsn: 20_000 }, "10.11.18");
        assert_eq!(log.size(20_100, 64 << 20), 64 << 20);
        assert_eq!(log.size(20_100, 1 << 20), 4 << 20);
        let full = 20_000 + (64 << 20) - PAYLOAD_AT;
        let (three_quarters, payload) = (20_000 + (48 << 20), (64 << 20) - PAYLOAD_AT);
        assert_eq!(log.size(three_quarters, 64 << 20), 64 << 20);
        assert_eq!(log.size(full, 64 << 20), ((64 << 20) + payload / 4 + 1).next_multiple_of(4096));
        let long = 20_000 + (10 << 30);
        assert_eq!(log.size(long, 64 << 20), (PAYLOAD_AT + (10 << 30) + (64 << 20) + 1).next_multiple_of(4096));
    }
}
