//! Positions in SQL Server's log.

use std::fmt;

/// A log sequence number: the sequence number of a virtual log file, a log block in it, and a record in this block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lsn {
    /// Sequence number of the virtual log file.
    pub file: u32,
    /// Offset of the log block in this file, in units of 512 bytes.
    pub block: u32,
    /// Number of the record in the block.
    pub slot: u16,
}

impl Lsn {
    /// The length on media, in bytes.
    pub const SIZE: usize = 10;

    /// From media: three little-endian numbers.
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j] = bytes;
        Self {
            file: u32::from_le_bytes([a, b, c, d]),
            block: u32::from_le_bytes([e, f, g, h]),
            slot: u16::from_le_bytes([i, j]),
        }
    }

    /// As on media.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let ([a, b, c, d], [e, f, g, h], [i, j]) =
            (self.file.to_le_bytes(), self.block.to_le_bytes(), self.slot.to_le_bytes());
        [a, b, c, d, e, f, g, h, i, j]
    }

    /// True if the field is empty.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// As SQL Server prints it: one decimal number with ten digits for the block and five for the slot.
impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = u128::from(self.file) * 1_000_000_000_000_000 + u128::from(self.block) * 100_000;
        write!(f, "{}", number + u128::from(self.slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lsn_prints_as_sql_server_prints_it_and_sorts_by_its_parts() {
        let lsn = Lsn { file: 34, block: 184, slot: 37 };
        assert_eq!(lsn.to_string(), "34000000018400037");
        assert_eq!(Lsn::default().to_string(), "0");
        let last = Lsn { file: u32::MAX, block: u32::MAX, slot: u16::MAX };
        assert_eq!(last.to_string(), "4294967295429496729565535");
        assert_eq!(Lsn::from_bytes(lsn.to_bytes()), lsn);
        assert!(Lsn { file: 33, block: 9000, slot: 1 } < lsn);
    }
}
