//! AES-256-GCM over blocks: the nonce is the block's number in the set, so no two blocks may share one.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::DataKey;
use crate::error::{Error, Result};

/// Bytes that authenticate one block.
pub const TAG_LENGTH: usize = 16;

const BLOCK_KEY: &[u8] = b"fullbore 0 block";

/// Bytes do not authenticate. The cause cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it does not authenticate: the bytes were changed, belong to another place or set, or the key is wrong")]
pub struct OpenError;

/// Seals the blocks of one media set; each worker makes its own.
pub struct Sealer(LessSafeKey);

impl Sealer {
    /// For the data key of a set.
    pub fn new(key: &DataKey) -> Self {
        Self(gcm_key(&key.derive(BLOCK_KEY)))
    }

    /// Encrypts `bytes` where they are and returns the tag that authenticates them together with `aad`.
    ///
    /// **One `sequence` is used for one sealing only under one data key**, over all kinds of blocks: the same
    /// number twice gives away both plain texts and the power to forge.
    pub fn seal_in_place(&self, sequence: u64, aad: &[u8], bytes: &mut [u8]) -> Result<[u8; TAG_LENGTH]> {
        seal(&self.0, nonce(sequence), aad, bytes)
    }
}

/// Opens the blocks of one media set; each worker makes its own.
pub struct Opener(LessSafeKey);

impl Opener {
    /// For the data key of a set.
    pub fn new(key: &DataKey) -> Self {
        Self(gcm_key(&key.derive(BLOCK_KEY)))
    }

    /// Decrypts `input` into `output`, which has the same length. After an error `output` is zero: no byte gets out
    /// without authentication.
    pub fn open(
        &self,
        sequence: u64,
        aad: &[u8],
        tag: &[u8; TAG_LENGTH],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), OpenError> {
        let opened = self.0.open_separate_gather(
            Nonce::assume_unique_for_key(nonce(sequence)),
            Aad::from(aad),
            input,
            tag,
            output,
        );
        opened.map_err(|_| {
            output.fill(0);
            OpenError
        })
    }

    /// The same where the bytes are.
    pub fn open_in_place(
        &self,
        sequence: u64,
        aad: &[u8],
        tag: &[u8; TAG_LENGTH],
        bytes: &mut [u8],
    ) -> Result<(), OpenError> {
        open_in_place(&self.0, nonce(sequence), aad, tag, bytes)
    }
}

/// Four zero bytes and the number, little-endian.
fn nonce(sequence: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&sequence.to_le_bytes());
    nonce
}

pub(super) fn gcm_key(key: &[u8; 32]) -> LessSafeKey {
    match UnboundKey::new(&AES_256_GCM, key) {
        Ok(key) => LessSafeKey::new(key),
        Err(_) => unreachable!("the key has the 32 bytes that AES-256 takes"),
    }
}

pub(super) fn seal(key: &LessSafeKey, nonce: [u8; 12], aad: &[u8], bytes: &mut [u8]) -> Result<[u8; TAG_LENGTH]> {
    let nonce = Nonce::assume_unique_for_key(nonce);
    let sealed = key.seal_in_place_separate_tag(nonce, Aad::from(aad), bytes);
    let tag = sealed.map_err(|_| Error::refused("encryption", "AES-256-GCM takes at most 64 GiB at once", ""))?;
    let mut copy = [0; TAG_LENGTH];
    copy.copy_from_slice(tag.as_ref()); // GCM's tag has 16 bytes.
    Ok(copy)
}

pub(super) fn open_in_place(
    key: &LessSafeKey,
    nonce: [u8; 12],
    aad: &[u8],
    tag: &[u8; TAG_LENGTH],
    bytes: &mut [u8],
) -> Result<(), OpenError> {
    let nonce = Nonce::assume_unique_for_key(nonce);
    if key.open_in_place_separate_tag(nonce, Aad::from(aad), tag, bytes).is_ok() {
        return Ok(());
    }
    bytes.fill(0);
    Err(OpenError)
}
