//! LZ4: the fastest; one raw LZ4 block without frame or size, as `lz4.block` of Python reads it when it is told
//! the uncompressed size.
//!
//! The C library keeps its 16 KiB table on the stack (it is built without LZ4_HEAPMODE), so the crate's safe calls
//! allocate nothing and a reused context would only save clearing those 16 KiB per block.

use ::lz4::block::{compress_to_buffer, decompress_to_buffer};

use super::{CodecId, Decode, DecodeError, Encode};
use crate::error::Result;

/// Has no state of its own.
pub(super) struct Lz4;

impl Encode for Lz4 {
    fn encode(&mut self, plain: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        // The length is within LZ4's limit (`super::LARGEST`), so the only failure left is: it does not fit.
        Ok(compress_to_buffer(plain, None, false, out).ok())
    }
}

impl Decode for Lz4 {
    fn decode(&mut self, stored: &[u8], plain: &mut [u8]) -> Result<usize, DecodeError> {
        let invalid = DecodeError::Invalid { codec: CodecId::Lz4, why: "not a whole LZ4 block of this length" };
        let Ok(length) = i32::try_from(plain.len()) else { return Err(invalid) };
        decompress_to_buffer(stored, Some(length), plain).map_err(|_| invalid)
    }
}
