//! Zstandard: the best ratio for its time; one standard frame with its content size, without dictionary and without
//! its own checksum (the block has one).

use ::zstd::zstd_safe::{CCtx, CParameter, DCtx, ErrorCode, find_frame_compressed_size, get_error_name};

use super::{CodecId, Decode, DecodeError, Encode, ZstdLevel};
use crate::error::{Error, Result};

/// `ZSTD_error_dstSize_tooSmall` of `zstd_errors.h`, whose numbers are fixed; the library returns it negated.
const OUTPUT_TOO_SMALL: ErrorCode = (70 as ErrorCode).wrapping_neg();

pub(super) struct Encoder {
    context: CCtx<'static>,
}

impl Encoder {
    pub(super) fn new(level: ZstdLevel) -> Result<Self> {
        let mut context = CCtx::try_create().ok_or_else(no_memory)?;
        context.set_parameter(CParameter::CompressionLevel(level.get())).map_err(failed)?;
        Ok(Self { context })
    }
}

impl Encode for Encoder {
    fn encode(&mut self, plain: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        match self.context.compress2(out, plain) {
            Ok(length) => Ok(Some(length)),
            Err(OUTPUT_TOO_SMALL) => Ok(None),
            Err(code) => Err(failed(code)),
        }
    }
}

pub(super) struct Decoder {
    context: DCtx<'static>,
}

impl Decoder {
    pub(super) fn new() -> Result<Self> {
        Ok(Self { context: DCtx::try_create().ok_or_else(no_memory)? })
    }
}

impl Decode for Decoder {
    fn decode(&mut self, stored: &[u8], plain: &mut [u8]) -> Result<usize, DecodeError> {
        let invalid = |why| DecodeError::Invalid { codec: CodecId::Zstd, why };
        // The library would take several frames, or frames to be skipped, as readily as one.
        if find_frame_compressed_size(stored).map_err(|code| invalid(get_error_name(code)))? != stored.len() {
            return Err(invalid("something follows the frame"));
        }
        self.context.decompress(plain, stored).map_err(|code| invalid(get_error_name(code)))
    }
}

/// Asks the library: a context for `level` that has begun a block of `transfer_size` bytes.
pub(super) fn encoder_memory(level: ZstdLevel, transfer_size: usize) -> usize {
    let Ok(mut encoder) = Encoder::new(level) else { return usize::MAX };
    // Room for the frame header only: the library sizes its tables for the whole input, then gives up at its
    // first block, so that almost none of these zeros is ever touched.
    let plain = vec![0; transfer_size];
    let mut out = [0; 32];
    let _ = encoder.encode(&plain, &mut out); // Too small, as meant; the context has its full size now.
    encoder.context.sizeof()
}

pub(super) fn decoder_memory() -> usize {
    DCtx::try_create().map_or(usize::MAX, |context| context.sizeof())
}

fn no_memory() -> Error {
    Error::refused("memory", "a zstd context cannot be allocated", "lower --workers or the level of --compression")
}

fn failed(code: ErrorCode) -> Error {
    Error::refused("zstd", get_error_name(code), "lower --workers or the level of --compression")
}
