//! No compression: blocks are stored as they are.

use super::{CodecId, Decode, DecodeError, Encode};
use crate::error::Result;

/// Has no state.
pub(super) struct None;

impl Encode for None {
    fn encode(&mut self, _plain: &[u8], _out: &mut [u8]) -> Result<Option<usize>> {
        Ok(Option::None) // Never smaller: the caller stores the plain bytes without a copy through here.
    }
}

impl Decode for None {
    fn decode(&mut self, stored: &[u8], plain: &mut [u8]) -> Result<usize, DecodeError> {
        if stored.len() > plain.len() {
            return Err(DecodeError::Length { codec: CodecId::None, found: stored.len(), expected: plain.len() });
        }
        plain[..stored.len()].copy_from_slice(stored);
        Ok(stored.len())
    }
}
