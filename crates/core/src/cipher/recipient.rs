//! Recipients: X25519 key pairs for which a set's data key is wrapped, so that any one of them opens the set.

use std::fmt;

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use zeroize::Zeroizing;

use super::aes_gcm::{self, TAG_LENGTH};
use super::{DataKey, fill_random, hkdf_sha256};
use crate::error::{Error, Result};

/// The most recipients of one media set.
pub const MAX_RECIPIENTS: usize = 64;

/// What names a key pair: the first 16 bytes of the BLAKE3 of its public key; shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub [u8; 16]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// The half of a key pair that wraps: 32 bytes of X25519 (RFC 7748).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// From the 32 bytes of RFC 7748.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of RFC 7748.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its name.
    pub fn id(&self) -> KeyId {
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::hash(&self.0).as_bytes()[..16]);
        KeyId(id)
    }
}

/// The half of a key pair that unwraps; wiped from memory when dropped.
pub struct SecretKey {
    secret: Zeroizing<[u8; 32]>,
    public: PublicKey,
}

impl SecretKey {
    /// A new one from the system's randomness.
    pub fn random() -> Result<Self> {
        let mut secret = Zeroizing::new([0; 32]);
        fill_random(&mut secret[..])?;
        Self::new(secret)
    }

    /// From the 32 bytes of RFC 7748.
    pub(super) fn new(secret: Zeroizing<[u8; 32]>) -> Result<Self> {
        let public = private_key(&secret).and_then(|key| {
            let public = key.compute_public_key().map_err(|_| refused())?;
            public.as_ref().try_into().map(PublicKey).map_err(|_| refused())
        })?;
        Ok(Self { secret, public })
    }

    /// The other half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The name of the pair.
    pub fn id(&self) -> KeyId {
        self.public.id()
    }

    pub(super) fn bytes(&self) -> &Zeroizing<[u8; 32]> {
        &self.secret
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({}, secret)", self.id())
    }
}

fn private_key(secret: &[u8; 32]) -> Result<PrivateKey> {
    PrivateKey::from_private_key(&X25519, secret).map_err(|_| refused())
}

fn refused() -> Error {
    Error::refused("X25519", "the key is not accepted", "make a new one with `fullbore key new`")
}

/// X25519, then HKDF to the key that wraps. Refuses public keys that give an all-zero secret.
fn wrapping_key(
    mine: &[u8; 32],
    theirs: &PublicKey,
    ephemeral: &PublicKey,
    recipient: &PublicKey,
    set_id: &[u8; 16],
) -> Result<Zeroizing<[u8; 32]>> {
    let salt = [*ephemeral.bytes(), *recipient.bytes()].concat();
    agree(&private_key(mine)?, UnparsedPublicKey::new(&X25519, theirs.bytes()), refused(), |shared| {
        Ok(hkdf_sha256(&salt, shared, &[b"fullbore 0 wrap", set_id]))
    })
}

/// A data key, wrapped for one recipient: 128 bytes on media.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKey {
    /// Whose it is.
    pub key_id: KeyId,
    ephemeral: PublicKey,
    wrapped: [u8; 32],
    tag: [u8; TAG_LENGTH],
}

/// A record of 128 bytes is not a wrapped key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reserved bytes of a wrapped key are not zero")]
pub struct BadRecord;

impl WrappedKey {
    /// Bytes of one record.
    pub const LENGTH: usize = 128;

    /// The record as it is on media.
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..16].copy_from_slice(&self.key_id.0);
        bytes[16..48].copy_from_slice(self.ephemeral.bytes());
        bytes[48..80].copy_from_slice(&self.wrapped);
        bytes[80..96].copy_from_slice(&self.tag);
        bytes
    }

    /// Takes a record from media. Only its form is checked; [`unwrap`] authenticates it.
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Result<Self, BadRecord> {
        if bytes[96..].iter().any(|&byte| byte != 0) {
            return Err(BadRecord);
        }
        Ok(Self {
            key_id: KeyId(piece(bytes, 0)),
            ephemeral: PublicKey(piece(bytes, 16)),
            wrapped: piece(bytes, 48),
            tag: piece(bytes, 80),
        })
    }

    fn wrap(recipient: &PublicKey, data_key: &DataKey, set_id: &[u8; 16]) -> Result<Self> {
        let ephemeral = SecretKey::random()?;
        let key_id = recipient.id();
        let key = wrapping_key(&ephemeral.secret, recipient, ephemeral.public(), recipient, set_id)?;
        let mut wrapped = Zeroizing::new(*data_key.bytes());
        let aad = associated_data(key_id, set_id);
        // The key was made for this one sealing, so its nonce may be zero.
        let tag = aes_gcm::seal(&aes_gcm::gcm_key(&key), [0; 12], &aad, &mut wrapped[..])?;
        Ok(Self { key_id, ephemeral: ephemeral.public, wrapped: *wrapped, tag })
    }

    fn unwrap(&self, key: &SecretKey, set_id: &[u8; 16]) -> Option<DataKey> {
        let wrapping = wrapping_key(&key.secret, &self.ephemeral, &self.ephemeral, key.public(), set_id).ok()?;
        let mut data_key = Zeroizing::new(self.wrapped);
        let aad = associated_data(self.key_id, set_id);
        aes_gcm::open_in_place(&aes_gcm::gcm_key(&wrapping), [0; 12], &aad, &self.tag, &mut data_key[..]).ok()?;
        Some(DataKey(data_key))
    }
}

fn associated_data(key_id: KeyId, set_id: &[u8; 16]) -> [u8; 32] {
    let mut data = [0; 32];
    data[..16].copy_from_slice(&key_id.0);
    data[16..].copy_from_slice(set_id);
    data
}

/// The `N` bytes at `at`, which are there.
fn piece<const N: usize>(bytes: &[u8; WrappedKey::LENGTH], at: usize) -> [u8; N] {
    let mut piece = [0; N];
    piece.copy_from_slice(&bytes[at..at + N]);
    piece
}

/// Wraps `data_key` for each of 1 to [`MAX_RECIPIENTS`] different recipients, in their order.
pub fn wrap_for(recipients: &[PublicKey], data_key: &DataKey, set_id: &[u8; 16]) -> Result<Vec<WrappedKey>> {
    let hint = "name each public key once; a recovery key has to be a different pair";
    if recipients.is_empty() || recipients.len() > MAX_RECIPIENTS {
        let why = format!("{} recipients; 1 to {MAX_RECIPIENTS} are possible", recipients.len());
        return Err(Error::usage("--encrypt-to", why, hint));
    }
    for (index, recipient) in recipients.iter().enumerate() {
        if recipients[..index].contains(recipient) {
            return Err(Error::usage("--encrypt-to", format!("key {} is named twice", recipient.id()), hint));
        }
    }
    recipients.iter().map(|recipient| WrappedKey::wrap(recipient, data_key, set_id)).collect()
}

/// Why a set's data key does not come out of its records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnwrapError {
    /// The set was not encrypted to this key.
    #[error("it is encrypted to {}, and the key given is {given}", list(.recipients))]
    NotForThisKey {
        /// The key given.
        given: KeyId,
        /// The keys that open the set.
        recipients: Vec<KeyId>,
    },
    /// There is a record for this key, but it was changed or belongs to another set.
    #[error("its wrapped data key for {given} does not authenticate: it was changed or belongs to another media set")]
    Damaged {
        /// The key given.
        given: KeyId,
    },
}

impl UnwrapError {
    /// As an error of this crate, for the family on `device` whose records begin at byte `offset`.
    pub fn at(self, device: &str, offset: u64) -> Error {
        match self {
            UnwrapError::NotForThisKey { .. } => {
                Error::refused(device, self.to_string(), "give the key file of one of these ids with --key")
            }
            UnwrapError::Damaged { .. } => Error::damaged(device, offset, self.to_string()),
        }
    }
}

fn list(ids: &[KeyId]) -> String {
    if ids.is_empty() {
        return "no key at all".to_owned();
    }
    ids.iter().map(KeyId::to_string).collect::<Vec<_>>().join(", ")
}

/// The data key of set `set_id`, from the record that is for `key`.
pub fn unwrap(records: &[WrappedKey], key: &SecretKey, set_id: &[u8; 16]) -> Result<DataKey, UnwrapError> {
    let given = key.id();
    let mut mine = records.iter().filter(|record| record.key_id == given).peekable();
    if mine.peek().is_none() {
        let recipients = records.iter().map(|record| record.key_id).collect();
        return Err(UnwrapError::NotForThisKey { given, recipients });
    }
    mine.find_map(|record| record.unwrap(key, set_id)).ok_or(UnwrapError::Damaged { given })
}
