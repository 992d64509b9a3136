//! gzip: one standard member that any `zcat` reads, made and read by libdeflate, or made by ISA-L on the low levels
//! when the feature `isal` is on (x86-64).

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use super::{CodecId, Decode, DecodeError, Encode, GzipLevel};
use crate::error::Result;

/// Bytes of libdeflate's decompressor, which also reads what ISA-L made: 15 to 20 % faster than ISA-L's own.
pub(super) const DECODER_MEMORY: usize = 12 << 10;

/// The first four bytes of every member that we make: magic, deflate, no optional fields.
const HEADER: [u8; 4] = [0x1f, 0x8b, 8, 0];

/// Header of 10 bytes, an empty deflate block of 2, CRC-32 and length of 4 each.
const SMALLEST_MEMBER: usize = 20;

pub(super) enum Encoder {
    Libdeflate(Compressor),
    #[cfg(all(feature = "isal", target_arch = "x86_64"))]
    Isal(isal::CompressionLevel),
}

impl Encoder {
    pub(super) fn new(level: GzipLevel) -> Self {
        #[cfg(all(feature = "isal", target_arch = "x86_64"))]
        if let Some(level) = isal_level(level) {
            return Encoder::Isal(level);
        }
        Self::libdeflate(level)
    }

    /// The encoder that every machine has, on every level.
    pub(super) fn libdeflate(level: GzipLevel) -> Self {
        let level = CompressionLvl::new(level.get()).unwrap_or_default(); // Its bounds are those of `GzipLevel`.
        Encoder::Libdeflate(Compressor::new(level))
    }
}

impl Encode for Encoder {
    fn encode(&mut self, plain: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        match self {
            // Its only failure: it does not fit.
            Encoder::Libdeflate(compressor) => Ok(compressor.gzip_compress(plain, out).ok()),
            #[cfg(all(feature = "isal", target_arch = "x86_64"))]
            Encoder::Isal(level) => isal_encode(*level, plain, out),
        }
    }
}

/// ISA-L's level for ours: it has 1 and 3 (and 0, with a ratio not worth having). From 4 on it is libdeflate.
#[cfg(all(feature = "isal", target_arch = "x86_64"))]
fn isal_level(level: GzipLevel) -> Option<isal::CompressionLevel> {
    match level.get() {
        1 => Some(isal::CompressionLevel::One),
        2 | 3 => Some(isal::CompressionLevel::Three),
        _ => None,
    }
}

#[cfg(all(feature = "isal", target_arch = "x86_64"))]
fn isal_encode(level: isal::CompressionLevel, plain: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
    use isal::{CompCode, error::Error};

    // The crate makes its context for each call (a zeroed level buffer of some 300 KiB); to keep it would need
    // `unsafe`.
    match isal::compress_into(plain, out, level, isal::Codec::Gzip) {
        Ok(length) => Ok(Some(length)),
        Err(Error::CompressionError(CompCode::StatelessOverflow)) => Ok(None),
        Err(error) => Err(crate::Error::refused("ISA-L", error.to_string(), "use --compression zstd or gzip:4")),
    }
}

pub(super) struct Decoder {
    context: Decompressor,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self { context: Decompressor::new() }
    }
}

impl Decode for Decoder {
    fn decode(&mut self, stored: &[u8], plain: &mut [u8]) -> Result<usize, DecodeError> {
        let invalid = |why| DecodeError::Invalid { codec: CodecId::Gzip, why };
        if stored.len() < SMALLEST_MEMBER || !stored.starts_with(&HEADER) {
            return Err(invalid("not a gzip member as fullbore writes it"));
        }
        // libdeflate stops at the end of the member. A member's last four bytes are its length: bytes after the member
        // would be in their place.
        let length = stored.last_chunk().map_or(0, |last| u32::from_le_bytes(*last));
        if length as usize != plain.len() {
            return Err(DecodeError::Length { codec: CodecId::Gzip, found: length as usize, expected: plain.len() });
        }
        self.context.gzip_decompress(stored, plain).map_err(|error| match error {
            DecompressionError::BadData => invalid("bad data or checksum"),
            DecompressionError::InsufficientSpace => invalid("longer than it says"),
        })
    }
}

/// Bytes of the context that `level` uses: the sizes of libdeflate 1.26's structures (198, 653 and 8,801 KiB on
/// 64-bit machines), or of ISA-L's level buffer (276 and 340 KiB; its 80 KiB of stream are on the stack).
pub(super) fn encoder_memory(level: GzipLevel) -> usize {
    #[cfg(all(feature = "isal", target_arch = "x86_64"))]
    if let Some(level) = isal_level(level) {
        return if level == isal::CompressionLevel::One { 280 << 10 } else { 344 << 10 };
    }
    match level.get() {
        1 => 200 << 10,
        2..=9 => 656 << 10,
        _ => 8804 << 10, // 10 to 12 find the shortest path through all matches of a block.
    }
}
