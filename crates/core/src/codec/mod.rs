//! Codecs: how the plain bytes of one block become fewer, and themselves again.
//!
//! A new codec is a file here, a number in [`CodecId`] that is never given to another, a line in
//! [`Encoder::new`] and [`Decoder::decode`], and a run of `testkit::codec_conforms`.
//!
//! A block holds the plainest form that other tools can read:
//!
//! | number | codec | stored bytes | public description |
//! |---|---|---|---|
//! | 0 | none | the plain bytes | – |
//! | 1 | lz4 | one raw LZ4 block, no frame, no size in front | LZ4 block format, `lz4_Block_format.md` |
//! | 2 | zstd | one Zstandard frame without dictionary | RFC 8878 |
//! | 3 | gzip | one gzip member without optional header fields | RFC 1952, RFC 1951 |

mod compression;
mod gzip;
mod lz4;
mod none;
mod zstd;

pub use compression::{Compression, GzipLevel, ZstdLevel};

use crate::error::{Error, Result};

/// The most plain or stored bytes of one call: 1 GiB, far above any transfer size and below every library's own limit.
pub const LARGEST: usize = 1 << 30;

/// The number of a codec on media. Numbers are never used again for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CodecId {
    /// Stored as it is.
    None = 0,
    /// One raw LZ4 block.
    Lz4 = 1,
    /// One Zstandard frame.
    Zstd = 2,
    /// One gzip member.
    Gzip = 3,
}

impl CodecId {
    /// All codecs, in the order of their numbers.
    pub const ALL: [CodecId; 4] = [CodecId::None, CodecId::Lz4, CodecId::Zstd, CodecId::Gzip];

    /// The codec with this number on media, if this version knows it.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.number() == number)
    }

    /// The number on media.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name that a user writes.
    pub fn name(self) -> &'static str {
        match self {
            CodecId::None => "none",
            CodecId::Lz4 => "lz4",
            CodecId::Zstd => "zstd",
            CodecId::Gzip => "gzip",
        }
    }
}

impl std::fmt::Display for CodecId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why stored bytes do not become the plain bytes that they claim to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not what this codec writes.
    #[error("its {codec} data cannot be unpacked: {why}")]
    Invalid {
        /// The codec that was asked.
        codec: CodecId,
        /// What it found.
        why: &'static str,
    },
    /// The bytes unpack, but to another length.
    #[error("its {codec} data unpack to {found} bytes instead of {expected}")]
    Length {
        /// The codec that was asked.
        codec: CodecId,
        /// Bytes found.
        found: usize,
        /// Bytes that the block's header names.
        expected: usize,
    },
    /// More bytes than [`LARGEST`].
    #[error("its {codec} data are larger than any block ({bytes} bytes)")]
    TooLarge {
        /// The codec that was asked.
        codec: CodecId,
        /// Bytes asked for.
        bytes: usize,
    },
}

/// What a codec does in one direction; one file of this module each.
trait Encode: Send {
    /// As [`Encoder::encode`], but may also return a length that is not smaller.
    fn encode(&mut self, plain: &[u8], out: &mut [u8]) -> Result<Option<usize>>;
}

/// What a codec does in the other direction.
trait Decode: Send {
    /// Writes at most `plain.len()` bytes and says how many.
    fn decode(&mut self, stored: &[u8], plain: &mut [u8]) -> Result<usize, DecodeError>;
}

/// A worker's context for one [`Compression`]: made once, used for every block.
pub struct Encoder {
    compression: Compression,
    codec: Box<dyn Encode>,
}

impl Encoder {
    /// Takes the context's memory (all of it, except that zstd sizes its tables by the largest block so far; see
    /// [`memory`]).
    pub fn new(compression: Compression) -> Result<Self> {
        let codec: Box<dyn Encode> = match compression {
            Compression::None => Box::new(none::None),
            Compression::Lz4 => Box::new(lz4::Lz4),
            Compression::Zstd(level) => Box::new(zstd::Encoder::new(level)?),
            Compression::Gzip(level) => Box::new(gzip::Encoder::new(level)),
        };
        Ok(Self { compression, codec })
    }

    /// What the block's header says when [`encode`](Self::encode) has returned a length.
    pub fn id(&self) -> CodecId {
        self.compression.codec()
    }

    /// Packs `plain` into the start of `out` and says how many bytes it took.
    ///
    /// `None` when the result does not get smaller than `plain` or does not fit into `out`, which may have any
    /// length: the block is then stored with [`CodecId::None`]. `out` holds nothing of value in that case.
    /// Nothing is ever written past `out`. More than [`LARGEST`] plain bytes are an error.
    pub fn encode(&mut self, plain: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        if plain.len() > LARGEST {
            return Err(Error::usage(
                "block",
                format!("{} bytes in one block", plain.len()),
                format!("at most {LARGEST}"),
            ));
        }
        if plain.is_empty() || out.is_empty() {
            return Ok(None);
        }
        let room = out.len().min(2 * LARGEST - 1);
        let length = self.codec.encode(plain, &mut out[..room])?;
        Ok(length.filter(|&length| length < plain.len()))
    }
}

/// A worker's context for unpacking blocks of any codec.
pub struct Decoder {
    zstd: zstd::Decoder,
    gzip: gzip::Decoder,
}

impl Decoder {
    /// Takes all memory that decoding needs.
    pub fn new() -> Result<Self> {
        Ok(Self { zstd: zstd::Decoder::new()?, gzip: gzip::Decoder::new() })
    }

    /// Unpacks `stored` so that it fills `plain` exactly; anything else is an error, after which `plain` holds
    /// nothing of value.
    ///
    /// Allocates nothing, whatever `stored` says about itself, and writes nothing outside `plain`. The bytes are
    /// not proved right by this: checksums do that.
    pub fn decode(&mut self, codec: CodecId, stored: &[u8], plain: &mut [u8]) -> Result<(), DecodeError> {
        let bytes = stored.len().max(plain.len());
        if bytes > LARGEST {
            return Err(DecodeError::TooLarge { codec, bytes });
        }
        let context: &mut dyn Decode = match codec {
            CodecId::None => &mut none::None,
            CodecId::Lz4 => &mut lz4::Lz4,
            CodecId::Zstd => &mut self.zstd,
            CodecId::Gzip => &mut self.gzip,
        };
        let expected = plain.len();
        let found = context.decode(stored, plain)?;
        if found == expected { Ok(()) } else { Err(DecodeError::Length { codec, found, expected }) }
    }
}

/// Bytes of context for one worker: an [`Encoder`] and a [`Decoder`] for blocks of up to `transfer_size` plain bytes,
/// stack not counted.
///
/// For zstd the library is asked (a context is made, asked and dropped);
/// for the others the figures are those of the linked library versions, rounded up to whole KiB.
pub fn memory(compression: Compression, transfer_size: usize) -> usize {
    let encoder = match compression {
        Compression::None | Compression::Lz4 => 0,
        Compression::Zstd(level) => zstd::encoder_memory(level, transfer_size.min(LARGEST)),
        Compression::Gzip(level) => gzip::encoder_memory(level),
    };
    encoder + zstd::decoder_memory() + gzip::DECODER_MEMORY
}

#[cfg(test)]
mod tests;
