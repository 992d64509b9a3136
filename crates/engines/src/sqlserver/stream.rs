//! The header of a stream, which carries the bytes that belong to a block (MTF 1.00a: stream header).

use super::fields::{Fields, Parsed, Wrong, xor_of_words};

/// The length of the header, in bytes.
pub const STREAM_HEADER: usize = 22;
/// Streams begin at multiples of so many bytes.
pub const STREAM_ALIGNMENT: u64 = 4;
/// Media attribute: a stream of the kind CSUM follows, with the checksum of this stream.
const HAS_CHECKSUM: u16 = 0x100;

/// The header of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamHeader {
    /// The kind, such as `MQDA`.
    pub id: [u8; 4],
    /// Media attributes.
    pub attributes: u16,
    /// Bytes after this header.
    pub length: u64,
    /// True if its bytes are encrypted or compressed by MTF's own methods. SQL Server does not use them.
    pub is_encoded: bool,
}

impl StreamHeader {
    /// From media. Checks the checksum first.
    ///
    /// # Errors
    /// The checksum does not match.
    pub fn decode(bytes: &[u8; STREAM_HEADER]) -> Parsed<Self> {
        let fields = Fields(bytes);
        if xor_of_words(&bytes[..20]) != fields.u16(20)? {
            return Err(Wrong { at: 20, what: "the checksum of a stream header does not match" });
        }
        Ok(Self {
            id: fields.bytes(0)?,
            attributes: fields.u16(6)?,
            length: fields.u64(8)?,
            is_encoded: fields.u16(16)? != 0 || fields.u16(18)? != 0,
        })
    }

    /// True if a checksum of its bytes follows (WITH CHECKSUM).
    pub fn has_checksum(&self) -> bool {
        self.attributes & HAS_CHECKSUM != 0
    }

    /// As on media, with its checksum.
    #[cfg(any(test, feature = "testkit"))]
    pub fn encode(&self) -> [u8; STREAM_HEADER] {
        let mut bytes = [0; STREAM_HEADER];
        bytes[..4].copy_from_slice(&self.id);
        bytes[6..8].copy_from_slice(&self.attributes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        let sum = xor_of_words(&bytes[..20]);
        bytes[20..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}
