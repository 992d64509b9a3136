//! A block: 64 bytes of header, then tag, prefix (digest and runs) and payload.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Flaw, broken, require};
use crate::checksum::crc32c;

/// Bytes in a block's header.
pub const BLOCK_HEADER: usize = 64;
/// Bytes of the tag in front of an encrypted body.
pub const TAG: usize = 16;
/// Bytes of the plain digest at the start of the prefix.
pub const DIGEST: usize = 16;
/// Bytes of one run.
pub const RUN: usize = 16;
/// Header, tag and prefix of a block whose payload is aligned for direct I/O.
pub const PADDED_HEAD: usize = 4096;

const MAGIC: [u8; 4] = *b"fbBK";
const VERSION: u8 = 0;

/// Runs that fit in front of an aligned payload, with a cipher or without.
pub fn padded_run_capacity(tag: usize) -> usize {
    (PADDED_HEAD - BLOCK_HEADER - tag - DIGEST) / RUN
}

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockKind {
    /// Bytes of a stream.
    Data = 1,
    /// Entries of a page map.
    Map = 2,
    /// Entries of the blocks before it.
    Index = 3,
    /// A part of the manifest.
    Manifest = 4,
    /// The last block: where the index and the manifest are.
    Trailer = 5,
}

impl BlockKind {
    fn from_code(code: u8) -> Result<Self, Flaw> {
        match code {
            1 => Ok(BlockKind::Data),
            2 => Ok(BlockKind::Map),
            3 => Ok(BlockKind::Index),
            4 => Ok(BlockKind::Manifest),
            5 => Ok(BlockKind::Trailer),
            _ => Err(broken(format!("unknown kind of block {code}"))),
        }
    }
}

/// The header of a block, as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// What the block holds.
    pub kind: BlockKind,
    /// How the payload is packed ([`crate::codec::CodecId`] as a number).
    pub codec: u8,
    /// How the body is encrypted ([`crate::cipher::CipherId`] as a number).
    pub cipher: u8,
    /// Stream of a DATA or MAP block, else 0.
    pub stream: u32,
    /// Phase of the restore.
    pub layer: u16,
    /// The family that the block is in.
    pub family: u16,
    /// Unique in the set, below [`SEQUENCES`]; the nonce of the cipher.
    pub sequence: u64,
    /// First 8 bytes of the media-set id.
    pub set_tag: [u8; 8],
    /// Runs in the prefix.
    pub run_count: u32,
    /// Bytes of digest, runs and padding.
    pub prefix_length: u32,
    /// Bytes of payload as stored.
    pub payload_length: u32,
    /// Bytes of payload when unpacked.
    pub plain_length: u32,
    /// Number of a DATA block among those of all ordered streams, from 1; else 0.
    pub order: u32,
    /// CRC32C of the body as stored.
    pub body_crc: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Fixed {
    magic: [u8; 4],
    version: u8,
    kind: u8,
    codec: u8,
    cipher: u8,
    stream_low: U16,
    layer: U16,
    family: U16,
    stream_high: U16,
    sequence: U64,
    set_tag: [u8; 8],
    run_count: U32,
    prefix_length: U32,
    payload_length: U32,
    plain_length: U32,
    body_length: U32,
    order: U32,
    body_crc: U32,
    header_crc: U32,
}
const _: () = assert!(size_of::<Fixed>() == BLOCK_HEADER);
/// Bytes of the header that a cipher authenticates: all that is known before the body is sealed.
const ASSOCIATED: usize = 52;

/// The number of sequence numbers: an index entry has six bytes for one.
pub(super) const SEQUENCES: u64 = 1 << 48;

/// The low and the high half of a stream's number. They are apart: the first media had numbers of 16 bits and zeros in
/// the place of the high half.
pub(super) fn halves(stream: u32) -> (u16, u16) {
    (stream as u16, (stream >> 16) as u16)
}

/// The number of a stream from its halves.
pub(super) fn joined(low: U16, high: U16) -> u32 {
    u32::from(high.get()) << 16 | u32::from(low.get())
}

impl BlockHeader {
    /// Bytes of tag in this block's body.
    pub fn tag_length(&self) -> usize {
        if self.cipher == 0 { 0 } else { TAG }
    }

    /// Bytes after the header.
    pub fn body_length(&self) -> usize {
        self.tag_length() + self.prefix_length as usize + self.payload_length as usize
    }

    /// Header and body in bytes.
    pub fn block_length(&self) -> usize {
        BLOCK_HEADER + self.body_length()
    }

    /// The header's bytes, checksum included.
    pub fn encode(&self) -> [u8; BLOCK_HEADER] {
        let (stream_low, stream_high) = halves(self.stream);
        let mut fixed = Fixed {
            magic: MAGIC,
            version: VERSION,
            kind: self.kind as u8,
            codec: self.codec,
            cipher: self.cipher,
            stream_low: U16::new(stream_low),
            layer: U16::new(self.layer),
            family: U16::new(self.family),
            stream_high: U16::new(stream_high),
            sequence: U64::new(self.sequence),
            set_tag: self.set_tag,
            run_count: U32::new(self.run_count),
            prefix_length: U32::new(self.prefix_length),
            payload_length: U32::new(self.payload_length),
            plain_length: U32::new(self.plain_length),
            body_length: U32::new(self.body_length() as u32),
            order: U32::new(self.order),
            body_crc: U32::new(self.body_crc),
            header_crc: U32::new(0),
        };
        fixed.header_crc = U32::new(crc32c(&fixed.as_bytes()[..BLOCK_HEADER - 4]));
        zerocopy::transmute!(fixed)
    }

    /// The bytes that the cipher authenticates with the body: the header without its checksums.
    pub fn associated_data(&self) -> [u8; ASSOCIATED] {
        let mut data = [0; ASSOCIATED];
        data.copy_from_slice(&self.encode()[..ASSOCIATED]);
        data
    }

    /// Reads and checks a header; `transfer_size` is the longest block of the set.
    pub fn decode(bytes: &[u8], transfer_size: u32) -> Result<Self, Flaw> {
        let fixed = Fixed::read_from_prefix(bytes).map_err(|_| broken("block header cut off"))?.0;
        require(fixed.magic == MAGIC, "no block here (magic)")?;
        require(fixed.version == VERSION, "block version unknown")?;
        require(crc32c(&bytes[..BLOCK_HEADER - 4]) == fixed.header_crc.get(), "block header checksum does not match")?;
        let header = Self {
            kind: BlockKind::from_code(fixed.kind)?,
            codec: fixed.codec,
            cipher: fixed.cipher,
            stream: joined(fixed.stream_low, fixed.stream_high),
            layer: fixed.layer.get(),
            family: fixed.family.get(),
            sequence: fixed.sequence.get(),
            set_tag: fixed.set_tag,
            run_count: fixed.run_count.get(),
            prefix_length: fixed.prefix_length.get(),
            payload_length: fixed.payload_length.get(),
            plain_length: fixed.plain_length.get(),
            order: fixed.order.get(),
            body_crc: fixed.body_crc.get(),
        };
        header.check_lengths(transfer_size, fixed.body_length.get())?;
        header.check_meaning()?;
        Ok(header)
    }

    fn check_lengths(&self, transfer_size: u32, body_length: u32) -> Result<(), Flaw> {
        let most = transfer_size as usize - BLOCK_HEADER;
        for length in [self.prefix_length, self.payload_length, self.plain_length] {
            require(length as usize <= most, "a length in a block is out of bounds")?;
        }
        require(
            self.body_length() <= most && self.body_length() == body_length as usize,
            "block length out of bounds",
        )?;
        let runs = DIGEST as u64 + u64::from(self.run_count) * RUN as u64;
        require(runs <= u64::from(self.prefix_length), "more runs than the prefix holds")?;
        require(self.codec != 0 || self.plain_length == self.payload_length, "an unpacked block with two lengths")
    }

    fn check_meaning(&self) -> Result<(), Flaw> {
        let of_stream = matches!(self.kind, BlockKind::Data | BlockKind::Map);
        require(self.sequence < SEQUENCES, "the number of a block is out of bounds")?;
        require(
            of_stream == (self.stream != 0),
            "a block with data or a map names no stream, or another block names one",
        )?;
        let data = self.kind == BlockKind::Data;
        require(data || self.order == 0, "a block without data has an order number")?;
        let runs_fit = match self.kind {
            BlockKind::Data => self.run_count >= 1 && (self.order == 0 || self.run_count == 1),
            BlockKind::Map => self.run_count == 1,
            BlockKind::Index | BlockKind::Manifest | BlockKind::Trailer => self.run_count == 0,
        };
        require(runs_fit, "a block of this kind cannot have so many runs")?;
        require(self.kind != BlockKind::Trailer || self.codec == 0, "a trailer is never packed")
    }
}

/// What a run says about its range of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunKind {
    /// The next bytes of the payload belong there.
    Data,
    /// Zeros.
    Zero,
    /// The entries of this MAP block describe it.
    Mapped,
}

/// A range of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Bytes from the start of the stream.
    pub offset: u64,
    /// Bytes, at least 1.
    pub length: u32,
    /// What is there.
    pub kind: RunKind,
}

impl Run {
    /// The first byte after it.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    fn encode(&self) -> [u8; RUN] {
        let mut bytes = [0; RUN];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RUN]) -> Result<Self, Flaw> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let kind = match word(12) {
            0 => RunKind::Data,
            1 => RunKind::Zero,
            2 => RunKind::Mapped,
            kind => return Err(broken(format!("unknown kind of run {kind}"))),
        };
        let run = Self { offset: u64::from(word(0)) | u64::from(word(4)) << 32, length: word(8), kind };
        require(run.length > 0, "an empty run")?;
        require(run.offset <= 1 << 62, "a run starts out of bounds")?;
        Ok(run)
    }
}

/// The parts of an opened (decrypted) body.
pub struct BlockBody<'a> {
    /// XXH3-128 of the unpacked payload.
    pub digest: [u8; DIGEST],
    /// The runs, checked against each other and the block's kind.
    pub runs: Vec<Run>,
    /// The payload, still packed.
    pub payload: &'a [u8],
}

impl<'a> BlockBody<'a> {
    /// Writes digest, runs and padding into `prefix`, whose length is the header's `prefix_length`.
    pub fn encode_prefix(digest: [u8; DIGEST], runs: &[Run], prefix: &mut [u8]) {
        prefix[..DIGEST].copy_from_slice(&digest);
        let (table, padding) = prefix[DIGEST..].split_at_mut(runs.len() * RUN);
        for (run, bytes) in runs.iter().zip(table.chunks_exact_mut(RUN)) {
            bytes.copy_from_slice(&run.encode());
        }
        padding.fill(0);
    }

    /// Reads prefix and payload (without the tag) of a block.
    pub fn decode(header: &BlockHeader, opened: &'a [u8]) -> Result<Self, Flaw> {
        let (prefix, payload) =
            opened.split_at_checked(header.prefix_length as usize).ok_or_else(|| broken("block body cut off"))?;
        require(payload.len() == header.payload_length as usize, "block body of the wrong length")?;
        let (digest, rest) = prefix.split_first_chunk::<DIGEST>().ok_or_else(|| broken("block prefix cut off"))?;
        let (table, padding) =
            rest.split_at_checked(header.run_count as usize * RUN).ok_or_else(|| broken("run table cut off"))?;
        require(padding.iter().all(|&b| b == 0), "padding of a block is not zero")?;
        let (entries, _) = table.as_chunks::<RUN>();
        let runs = entries.iter().map(Run::decode).collect::<Result<Vec<_>, _>>()?;
        check_runs(header, &runs)?;
        Ok(Self { digest: *digest, runs, payload })
    }
}

fn check_runs(header: &BlockHeader, runs: &[Run]) -> Result<(), Flaw> {
    let ascending = runs.windows(2).all(|pair| pair[0].end() <= pair[1].offset);
    require(ascending, "runs of a block overlap or do not ascend")?;
    match header.kind {
        BlockKind::Data => {
            require(runs.iter().all(|run| run.kind != RunKind::Mapped), "a map run in a data block")?;
            let data: u64 = runs.iter().filter(|run| run.kind == RunKind::Data).map(|run| u64::from(run.length)).sum();
            require(data == u64::from(header.plain_length), "the runs of a block do not add up to its data")
        }
        BlockKind::Map => {
            require(runs.iter().all(|run| run.kind == RunKind::Mapped), "a map block without its range")?;
            require(
                header.plain_length.is_multiple_of(16) && header.plain_length > 0,
                "a map block without whole entries",
            )
        }
        BlockKind::Index | BlockKind::Manifest | BlockKind::Trailer => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::every_flipped_bit_is_refused;
    use super::*;

    fn sample() -> BlockHeader {
        BlockHeader {
            kind: BlockKind::Data,
            codec: 1,
            cipher: 0,
            stream: 1,
            layer: 0,
            family: 3,
            sequence: 99,
            set_tag: *b"abcdefgh",
            run_count: 2,
            prefix_length: 48,
            payload_length: 1000,
            plain_length: 8192,
            order: 0,
            body_crc: 5,
        }
    }

    #[test]
    fn a_block_header_comes_back_as_it_was_written() {
        assert_eq!(BlockHeader::decode(&sample().encode(), 1 << 20), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_of_a_block_header_is_noticed() {
        let bytes = sample().encode().to_vec();
        every_flipped_bit_is_refused(bytes, |bytes| BlockHeader::decode(bytes, 1 << 20).is_err());
    }

    #[test]
    fn a_block_longer_than_a_transfer_is_refused() {
        let header = BlockHeader { payload_length: 1 << 16, ..sample() };
        assert!(BlockHeader::decode(&header.encode(), 1 << 16).is_err());
        assert!(BlockHeader::decode(&header.encode(), 1 << 17).is_ok());
    }

    #[test]
    fn runs_that_overlap_are_refused() {
        let header = sample();
        let runs = [(0, 4096), (4095, 4096)].map(|(offset, length)| Run { offset, length, kind: RunKind::Data });
        let mut body = vec![0; 1048];
        BlockBody::encode_prefix([0; 16], &runs, &mut body[..48]);
        assert!(BlockBody::decode(&header, &body).is_err());
    }

    #[test]
    fn runs_come_back_as_they_were_written() {
        let runs = [
            Run { offset: 4096, length: 8192, kind: RunKind::Data },
            Run { offset: 1 << 40, length: u32::MAX, kind: RunKind::Zero },
        ];
        let mut body = vec![7; 1048];
        BlockBody::encode_prefix([9; 16], &runs, &mut body[..48]);
        let decoded = BlockBody::decode(&sample(), &body).unwrap();
        assert_eq!((decoded.digest, &decoded.runs[..], decoded.payload.len()), ([9; 16], &runs[..], 1000));
    }
}
