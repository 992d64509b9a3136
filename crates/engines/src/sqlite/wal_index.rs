//! The header of the wal-index, the `-shm` file (sqlite.org, "WAL-mode File Format", §2.1): it has the current end of
//! the log. Two copies of 48 bytes in the byte order of the host.

use super::header::Malformed;
use super::wal::checksum;

/// Offset in bytes, after both copies, of the number of frames that were copied into the database (`nBackfill`, §2.2).
pub const COPIED_AT: u64 = 96;
/// Offset in bytes of the number of frames that a checkpoint has begun to copy (`nBackfillAttempted`, §2.2). SQLite
/// changes it before the first of them is copied, and `nBackfill` after the last.
pub const BEGUN_AT: u64 = 128;

/// Bytes that hold both copies.
pub const INDEX_HEADER_SIZE: usize = 96;
const COPY: usize = 48;
/// The only known version.
const VERSION: u32 = 3_007_000;

/// The state of the log at one moment: the view of a read transaction that starts now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexHeader {
    /// Counts every change of this header.
    pub change: u32,
    /// Bytes per page; may be 0 while the log is empty.
    pub page_size: u32,
    /// The last committed frame, counted from 1; 0 when the log is empty.
    pub max_frame: u32,
    /// Size of the database in pages after that frame.
    pub pages: u32,
    /// Running checksum of the log up to that frame. A restart of the log does not change it before the next commit.
    pub frame_checksum: (u32, u32),
    /// The log's salts, in the byte order of the log file.
    pub salts: [u8; 8],
}

impl IndexHeader {
    /// Reads both copies. If the copies differ or a checksum is wrong, a writer is changing them: try again.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; INDEX_HEADER_SIZE] = bytes
            .first_chunk()
            .ok_or_else(|| Malformed(format!("{} bytes are too few for a wal-index header", bytes.len())))?;
        let (first, second) = bytes.split_at(COPY);
        if first != second {
            return Err(Malformed("the two copies of the wal-index header differ".into()));
        }
        if native(first, 0) != VERSION {
            return Err(Malformed(format!("wal-index version {} is unknown", native(first, 0))));
        }
        if first[12] == 0 {
            return Err(Malformed("the wal-index is not initialised".into()));
        }
        if checksum(cfg!(target_endian = "big"), (0, 0), &first[..40]) != (native(first, 40), native(first, 44)) {
            return Err(Malformed("the checksum of the wal-index header is wrong".into()));
        }
        let size = u16::from_ne_bytes([first[14], first[15]]);
        let page_size = (u32::from(size) & 0xfe00) | ((u32::from(size) & 1) << 16);
        // A log that was empty when its index was made has no page size yet.
        if !page_size.is_power_of_two() && (page_size, native(first, 16)) != (0, 0) {
            return Err(Malformed(format!("page size {size} in the wal-index is not a page size")));
        }
        let mut salts = [0; 8];
        salts.copy_from_slice(&first[32..40]);
        Ok(Self {
            change: native(first, 8),
            page_size,
            max_frame: native(first, 16),
            pages: native(first, 20),
            frame_checksum: (native(first, 24), native(first, 28)),
            salts,
        })
    }
}

impl IndexHeader {
    /// The checksum of the last committed frame; if the log is empty, of the log before its restart. `None` if there
    /// was no frame since the wal-index was made.
    pub fn last_sums(&self) -> Option<(u32, u32)> {
        Some(self.frame_checksum).filter(|&sums| sums != (0, 0))
    }
}

fn native(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_ne_bytes(*four))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut copy = [0u8; COPY];
        copy[..4].copy_from_slice(&VERSION.to_ne_bytes());
        copy[12] = 1;
        copy[14..16].copy_from_slice(&4096u16.to_ne_bytes());
        copy[16..20].copy_from_slice(&77u32.to_ne_bytes());
        let sums = checksum(cfg!(target_endian = "big"), (0, 0), &copy[..40]);
        copy[40..44].copy_from_slice(&sums.0.to_ne_bytes());
        copy[44..].copy_from_slice(&sums.1.to_ne_bytes());
        let bytes = [copy, copy].concat();
        assert_eq!(IndexHeader::parse(&bytes).unwrap().max_frame, 77);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(IndexHeader::parse(&flipped).is_err(), "bit {bit} went unnoticed");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(half in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            let _ = IndexHeader::parse(&half.repeat(2));
        }
    }
}
