//! Encryption: one random data key per media set, blocks sealed with AES-256-GCM, the data key wrapped for each
//! recipient. Byte by byte in `docs/media-format-encryption.md`.
//!
//! From the data key come two keys that never meet: one seals blocks ([`Sealer`], [`Opener`]), one authenticates
//! the footer ([`FooterKey`]). Secrets are wiped from memory and appear in no `Debug`, `Display` or error.

mod aes_gcm;
mod key_file;
mod recipient;
mod sidecar;
#[cfg(test)]
mod tests;

pub use aes_gcm::{OpenError, Opener, Sealer, TAG_LENGTH};
pub use key_file::KeyFile;
pub(crate) use key_file::LARGEST_FILE as LARGEST_KEY_FILE;
pub use recipient::{
    BadRecord, KeyId, MAX_RECIPIENTS, PublicKey, SecretKey, UnwrapError, WrappedKey, unwrap, wrap_for,
};
pub(crate) use sidecar::LARGEST as LARGEST_SIDECAR;
pub use sidecar::{BadSidecar, Sidecar};

use aws_lc_rs::{hkdf, hmac, rand};
use zeroize::Zeroizing;

use crate::error::{Error, Result};

/// The number of a cipher on media. Numbers are never used again for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CipherId {
    /// Readable by anyone.
    None = 0,
    /// AES-256-GCM with a tag of 16 bytes.
    Aes256Gcm = 1,
}

impl CipherId {
    /// The cipher with this number on media, if this version knows it.
    pub fn from_number(number: u8) -> Option<Self> {
        [CipherId::None, CipherId::Aes256Gcm].into_iter().find(|cipher| cipher.number() == number)
    }

    /// The number on media.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            CipherId::None => "none",
            CipherId::Aes256Gcm => "aes-256-gcm",
        }
    }
}

/// The secret of one media set: 32 random bytes, made anew for every attempt, wiped when dropped.
#[derive(Clone)]
pub struct DataKey(Zeroizing<[u8; 32]>);

impl DataKey {
    /// A new one from the system's randomness.
    pub fn random() -> Result<Self> {
        let mut key = Zeroizing::new([0; 32]);
        fill_random(&mut key[..])?;
        Ok(Self(key))
    }

    fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// HKDF-SHA256 without salt: a key for one purpose.
    fn derive(&self, purpose: &[u8]) -> Zeroizing<[u8; 32]> {
        hkdf_sha256(&[], self.bytes(), &[purpose])
    }
}

impl std::fmt::Debug for DataKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DataKey(secret)")
    }
}

/// The key of the message authentication code in a family's footer.
pub struct FooterKey(hmac::Key);

impl FooterKey {
    /// Derived from the data key.
    pub fn new(key: &DataKey) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &key.derive(b"fullbore 0 footer")[..]))
    }

    /// HMAC-SHA256 over `bytes`.
    pub fn mac(&self, bytes: &[u8]) -> [u8; 32] {
        let mut mac = [0; 32];
        mac.copy_from_slice(hmac::sign(&self.0, bytes).as_ref()); // SHA-256 has 32 bytes.
        mac
    }

    /// True when `mac` is that of `bytes`; takes the same time wherever they differ.
    #[must_use]
    pub fn verify_mac(&self, bytes: &[u8], mac: &[u8; 32]) -> bool {
        hmac::verify(&self.0, bytes, mac).is_ok()
    }
}

/// HKDF-SHA256 (RFC 5869) to 32 bytes; `info` is the concatenation of its pieces.
fn hkdf_sha256(salt: &[u8], secret: &[u8], info: &[&[u8]]) -> Zeroizing<[u8; 32]> {
    let mut key = Zeroizing::new([0; 32]);
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let expanded = extracted.expand(info, hkdf::HKDF_SHA256).and_then(|okm| okm.fill(&mut key[..]));
    assert!(expanded.is_ok(), "HKDF gives up to 8160 bytes, and 32 were asked");
    key
}

/// Fills `bytes` from the system's randomness.
fn fill_random(bytes: &mut [u8]) -> Result<()> {
    rand::fill(bytes).map_err(|_| Error::refused("randomness", "the system gives none", "look at /dev/urandom"))
}
