//! The place of an LSN in the file: the arithmetic of the ring. Payload bytes count one to one; there are no log
//! blocks.

/// Bytes of the file before its payload: header and two checkpoints, one block each.
pub const PAYLOAD_AT: u64 = 12288;
/// The least and the greatest size of the file that a server can be given, in bytes.
pub const FILE_SIZE_MIN: u64 = 1 << 20;
/// The greatest size, in bytes: far above the limit of any server (512 GiB), and far below an overflow of sums.
pub const FILE_SIZE_MAX: u64 = 1 << 46;
/// The least LSN: the first byte of payload in the first file of a server.
pub const LSN_MIN: u64 = PAYLOAD_AT;
/// The greatest LSN that is believed.
pub const LSN_MAX: u64 = 1 << 62;

/// The ring of one file: it changes when the server makes itself another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    first_lsn: u64,
    file_size: u64,
}

impl Ring {
    /// For a file of `file_size` bytes whose payload began with `first_lsn`; `None` if that is impossible.
    pub fn new(first_lsn: u64, file_size: u64) -> Option<Self> {
        let possible = (FILE_SIZE_MIN..=FILE_SIZE_MAX).contains(&file_size) && (LSN_MIN..=LSN_MAX).contains(&first_lsn);
        possible.then_some(Self { first_lsn, file_size })
    }

    /// The LSN of the first byte of payload on the first lap.
    pub fn first_lsn(&self) -> u64 {
        self.first_lsn
    }

    /// Bytes of payload that the file holds.
    pub fn capacity(&self) -> u64 {
        self.file_size - PAYLOAD_AT
    }

    /// The place of the byte at `lsn` in the file. `lsn` is at least [`first_lsn`](Self::first_lsn).
    pub fn offset(&self, lsn: u64) -> u64 {
        PAYLOAD_AT + lsn.saturating_sub(self.first_lsn) % self.capacity()
    }

    /// The byte that ends a mini-transaction at `lsn`: it changes with each lap, so that the rest of the lap before
    /// does not look like the log.
    pub fn sequence(&self, lsn: u64) -> u8 {
        u8::from((lsn.saturating_sub(self.first_lsn) / self.capacity()).is_multiple_of(2))
    }

    /// How many bytes from `lsn` on are contiguous in the file, at most `length`.
    pub fn contiguous(&self, lsn: u64, length: u64) -> u64 {
        length.min(self.file_size - self.offset(lsn))
    }

    /// The greatest LSN up to `lsn` that begins a block of `block` bytes in the file, the unit of the server's writes.
    pub fn round_down(&self, lsn: u64, block: u64) -> u64 {
        lsn - (self.offset(lsn) % block.max(1)).min(lsn - self.first_lsn.min(lsn))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_lap_ends_with_1_and_the_second_with_0() {
        let ring = Ring::new(12288, 4 << 20).unwrap();
        let capacity = ring.capacity();
        assert_eq!((ring.offset(12288), ring.sequence(12288)), (12288, 1));
        assert_eq!((ring.offset(12287 + capacity), ring.sequence(12287 + capacity)), ((4 << 20) - 1, 1));
        assert_eq!((ring.offset(12288 + capacity), ring.sequence(12288 + capacity)), (12288, 0));
        assert_eq!(ring.sequence(12288 + 2 * capacity), 1);
    }

    #[test]
    fn sizes_and_lsns_that_cannot_be_are_refused() {
        for (first, size) in [(0, 4 << 20), (12287, 4 << 20), (12288, 4096), (12288, u64::MAX), (u64::MAX, 4 << 20)] {
            assert_eq!(Ring::new(first, size), None, "{first} {size}");
        }
    }

    proptest! {
        #[test]
        fn every_lsn_stands_inside_the_payload_and_blocks_are_found(
            first in LSN_MIN..1 << 50, size in FILE_SIZE_MIN..1 << 40, distance in 0_u64..1 << 50,
            length in 1_u64..1 << 30,
        ) {
            let ring = Ring::new(first, size).unwrap();
            let lsn = first + distance;
            prop_assert!((PAYLOAD_AT..size).contains(&ring.offset(lsn)));
            let contiguous = ring.contiguous(lsn, length);
            prop_assert!(contiguous >= 1 && contiguous <= length);
            prop_assert_eq!(ring.offset(lsn + contiguous - 1), ring.offset(lsn) + contiguous - 1);
            let rounded = ring.round_down(lsn, 4096);
            prop_assert!(rounded <= lsn && lsn - rounded < 4096);
            prop_assert!(rounded >= first && (rounded == first || ring.offset(rounded).is_multiple_of(4096)));
        }
    }
}
