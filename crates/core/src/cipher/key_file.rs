//! Key files: one key pair, or its public half alone, as text that survives mail, paper and typing.
//!
//! ```text
//! # comments, blank lines
//! FULLBORE-SECRET-KEY-1 <48 characters of base64: 32 key bytes, CRC-32C of label and key bytes, little-endian>
//! FULLBORE-PUBLIC-KEY-1 <the same form>
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::recipient::{KeyId, PublicKey, SecretKey};
use crate::checksum::Crc32c;
use crate::error::{Error, Result};

const SECRET_LABEL: &str = "FULLBORE-SECRET-KEY-1";
const PUBLIC_LABEL: &str = "FULLBORE-PUBLIC-KEY-1";
/// Labels of later versions begin so.
const SECRET_FAMILY: &str = "FULLBORE-SECRET-KEY-";
const PUBLIC_FAMILY: &str = "FULLBORE-PUBLIC-KEY-";

/// Bytes after a label: the key and its checksum.
const PAYLOAD: usize = 36;
/// The same in base64, which needs no padding here.
const ENCODED: usize = PAYLOAD / 3 * 4;
/// The most bytes of a key file, comments included.
pub(crate) const LARGEST_FILE: usize = 16 << 10;

/// A key pair or a public key, from a file or new.
pub struct KeyFile {
    name: String,
    secret: Option<SecretKey>,
    public: PublicKey,
}

impl std::fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.secret.is_some() { "secret" } else { "public" };
        write!(f, "KeyFile({}, {kind}, {})", self.name, self.id())
    }
}

impl KeyFile {
    /// A new key pair.
    pub fn generate() -> Result<Self> {
        let secret = SecretKey::random()?;
        Ok(Self { name: "new key".into(), public: secret.public().clone(), secret: Some(secret) })
    }

    /// The public half: for `--encrypt-to`, which takes either kind of file.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The secret half: for `--key`, which needs a secret file.
    pub fn secret(&self) -> Result<&SecretKey> {
        let why = || format!("it holds only the public half of key {}, which cannot open a backup", self.id());
        let hint = "give --key the file with the FULLBORE-SECRET-KEY line";
        self.secret.as_ref().ok_or_else(|| Error::refused(&self.name, why(), hint))
    }

    /// As [`secret`](Self::secret), for keeping.
    pub fn into_secret(self) -> Result<SecretKey> {
        self.secret()?;
        self.secret.ok_or(Error::Halted) // Checked in the line before.
    }

    /// The name of the key pair.
    pub fn id(&self) -> KeyId {
        self.public.id()
    }

    /// True when it opens something.
    pub fn has_secret(&self) -> bool {
        self.secret.is_some()
    }

    /// The text of a file with everything there is.
    pub(crate) fn to_text(&self) -> Zeroizing<String> {
        let Some(secret) = &self.secret else { return Zeroizing::new(self.to_public_text()) };
        let mut text = Zeroizing::new(String::with_capacity(1024)); // Never grows: growing leaves a copy behind.
        text.push_str(
            "# fullbore secret key: opens every backup that was encrypted to it. Without it they are lost.\n",
        );
        text.push_str("# Keep it off the machines that are backed up, and a copy of it offline.\n");
        self.describe(&mut text);
        push_key(&mut text, SECRET_LABEL, secret.bytes());
        push_key(&mut text, PUBLIC_LABEL, self.public.bytes());
        text
    }

    /// The text of a file with the public half alone.
    pub(crate) fn to_public_text(&self) -> String {
        let mut text =
            String::from("# fullbore public key: backups are encrypted to it (--encrypt-to); it cannot open them.\n");
        self.describe(&mut text);
        push_key(&mut text, PUBLIC_LABEL, self.public.bytes());
        text
    }

    fn describe(&self, text: &mut String) {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        text.push_str(&format!("# created: {now}\n# key id: {}\n", self.id()));
    }

    /// The content of a key file; `name` is for messages, which never quote the content.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self> {
        let refused =
            |why: String| Error::refused(name, why, "a key file is made by `fullbore key new`; copy it whole");
        if bytes.len() > LARGEST_FILE {
            return Err(refused(format!("it is not a key file: more than {LARGEST_FILE} bytes")));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| refused("it is not a key file: not a text".into()))?;
        let (mut secret, mut public) = (None, None);
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |why: &str| refused(format!("line {}: {why}", index + 1));
            let (label, encoded) = line.split_once([' ', '\t']).unwrap_or((line, ""));
            let slot = match label {
                SECRET_LABEL => &mut secret,
                PUBLIC_LABEL => &mut public,
                _ if label.starts_with(SECRET_FAMILY) || label.starts_with(PUBLIC_FAMILY) => {
                    return Err(at("a kind of key that this version does not know"));
                }
                _ => return Err(at("neither a comment nor a key")),
            };
            let key = decode(label, encoded.trim()).map_err(at)?;
            if slot.replace(key).is_some() {
                return Err(at("a second key of the same kind"));
            }
        }
        let secret = secret.map(SecretKey::new).transpose()?;
        let named = public.map(|public| PublicKey::new(*public));
        let public = match (&secret, named) {
            (Some(secret), Some(named)) if *secret.public() != named => {
                return Err(refused("its public key is not that of its secret key".into()));
            }
            (Some(secret), _) => secret.public().clone(),
            (None, Some(named)) => named,
            (None, None) => return Err(refused("there is no key in it".into())),
        };
        Ok(Self { name: name.to_owned(), secret, public })
    }
}

fn checksum(label: &str, key: &[u8]) -> [u8; 4] {
    let mut crc = Crc32c::new();
    crc.update(label.as_bytes());
    crc.update(key);
    crc.finish().to_le_bytes()
}

fn push_key(text: &mut String, label: &str, key: &[u8; 32]) {
    let mut payload = Zeroizing::new([0; PAYLOAD]);
    payload[..32].copy_from_slice(key);
    payload[32..].copy_from_slice(&checksum(label, key));
    let encoded = Zeroizing::new(STANDARD.encode(&payload[..]));
    text.push_str(label);
    text.push(' ');
    text.push_str(&encoded);
    text.push('\n');
}

fn decode(label: &str, encoded: &str) -> Result<Zeroizing<[u8; 32]>, &'static str> {
    if encoded.len() != ENCODED {
        return Err("a key has exactly 48 characters");
    }
    let mut payload = Zeroizing::new([0; PAYLOAD]);
    // The library's error quotes characters of the key: it is dropped.
    let length = STANDARD.decode_slice(encoded, &mut payload[..]).map_err(|_| "a character that a key cannot have")?;
    let mut key = Zeroizing::new([0; 32]);
    key.copy_from_slice(&payload[..32]);
    if length != PAYLOAD || payload[32..] != checksum(label, &key[..]) {
        return Err("the checksum does not fit: the key was mistyped or changed");
    }
    Ok(key)
}
