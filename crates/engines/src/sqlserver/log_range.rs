//! MSTL: a part of one log file, which is one of its virtual log files.

use super::fields::{Fields, Parsed, Wrong};

/// The part of the log that an MSTL block describes. Offsets and lengths are in bytes of the log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRange {
    /// Where it begins; 0 if the block has no log.
    pub begin: u64,
    /// Where it ends.
    pub end: u64,
    /// Id of the log file in the database.
    pub file: u32,
    /// Sequence number of the virtual log file; 0 if it was never used.
    pub sequence: u32,
    /// Length of the virtual log file.
    pub length: u64,
    /// Where the virtual log file begins.
    pub start: u64,
}

impl LogRange {
    /// From the block.
    ///
    /// # Errors
    /// The block is too short, or it ends before it begins.
    pub fn decode(block: &[u8]) -> Parsed<Self> {
        let fields = Fields(block);
        // The entry of the virtual log file is where an address says, and begins with its sequence number.
        let entry = usize::from(fields.u16(0x52)?);
        let range = Self {
            begin: fields.u64(0x3c)?,
            end: fields.u64(0x44)?,
            file: fields.u32(0x4c)?,
            sequence: fields.u32(entry)?,
            length: fields.u64(entry + 4)?,
            start: fields.u64(entry + 12)?,
        };
        if range.end < range.begin {
            return Err(Wrong { at: 0x44, what: "a part of the log ends before it begins" });
        }
        Ok(range)
    }
}
