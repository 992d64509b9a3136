//! Index entries: the place of each block of a family, and its checksums.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{BLOCK_HEADER, BlockHeader, DIGEST, Run, TAG, halves, joined};
use super::{Flaw, broken, require};

/// Bytes of one entry.
pub const ENTRY: usize = 48;
/// Most entries in one INDEX block.
pub const MAX_INDEX_ENTRIES: usize = 4096;

/// How many entries an INDEX block of a set with this transfer size holds.
pub fn index_capacity(transfer_size: u32) -> usize {
    ((transfer_size as usize - BLOCK_HEADER - TAG - DIGEST) / ENTRY).min(MAX_INDEX_ENTRIES)
}

/// One block of a family.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct IndexEntry {
    /// Where the block starts in the family.
    pub offset: U64,
    /// Header and body in bytes.
    pub length: U32,
    /// [`super::BlockKind`] as a number.
    pub kind: u8,
    /// Codec number.
    pub codec: u8,
    stream_low: U16,
    /// Six bytes of the block's sequence number, and the high half of the stream's.
    numbers: [u8; 8],
    /// Offset of the first run, or 0.
    pub first: U64,
    /// End of the last run minus `first`, or 0.
    pub span: U64,
    /// CRC32C of the block header.
    pub header_crc: U32,
    /// CRC32C of the body.
    pub body_crc: U32,
}
const _: () = assert!(size_of::<IndexEntry>() == ENTRY);
/// Bytes of a sequence number in an entry: it is below `SEQUENCES`.
const SEQUENCE: usize = 6;

impl IndexEntry {
    /// The entry of the block at `offset` whose header has these bytes.
    pub fn of(header: &BlockHeader, header_bytes: &[u8; BLOCK_HEADER], offset: u64, span: (u64, u64)) -> Self {
        let crc = &header_bytes[BLOCK_HEADER - 4..];
        let (stream_low, stream_high) = halves(header.stream);
        let mut numbers = header.sequence.to_le_bytes();
        numbers[SEQUENCE..].copy_from_slice(&stream_high.to_le_bytes());
        Self {
            offset: U64::new(offset),
            length: U32::new(header.block_length() as u32),
            kind: header.kind as u8,
            codec: header.codec,
            stream_low: U16::new(stream_low),
            numbers,
            first: U64::new(span.0),
            span: U64::new(span.1),
            header_crc: U32::new(u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]])),
            body_crc: U32::new(header.body_crc),
        }
    }

    /// The block's stream, or 0.
    pub fn stream(&self) -> u32 {
        let [.., low, high] = self.numbers;
        joined(self.stream_low, U16::from_bytes([low, high]))
    }

    /// The block's sequence number.
    pub fn sequence(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..SEQUENCE].copy_from_slice(&self.numbers[..SEQUENCE]);
        u64::from_le_bytes(bytes)
    }

    /// The entry without the fields that only the runs tell. The family digest covers this, and no more is known of an
    /// encrypted block without opening it.
    pub fn without_span(self) -> Self {
        Self { first: U64::ZERO, span: U64::ZERO, ..self }
    }

    /// First offset and span of ascending runs.
    pub fn span_of(runs: &[Run]) -> (u64, u64) {
        match (runs.first(), runs.last()) {
            (Some(first), Some(last)) => (first.offset, last.end() - first.offset),
            _ => (0, 0),
        }
    }

    /// The entries in the payload of an INDEX block.
    pub fn decode_all(payload: &[u8]) -> Result<&[IndexEntry], Flaw> {
        require(
            !payload.is_empty() && payload.len() <= MAX_INDEX_ENTRIES * ENTRY,
            "index block without entries, or with too many",
        )?;
        <[IndexEntry]>::ref_from_bytes(payload).map_err(|_| broken("index block without whole entries"))
    }
}
