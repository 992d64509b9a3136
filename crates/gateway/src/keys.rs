//! Access keys and their rights, from a file that only this user may read.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use fullbore_core::io::{is_credential, read_small, refuse_files_of_others};
use fullbore_core::{Error, Result};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::path::S3Path;
use s3s::{S3Result, s3_error};
use serde::Deserialize;

/// Bytes of the longest file of keys.
const FILE_MAX: usize = 1 << 20;
/// A shorter secret can be guessed.
const SECRET_MIN: usize = 16;

/// Something that a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Upload objects.
    Write,
    /// Download objects.
    Read,
    /// See the names, the lengths and the times of objects.
    List,
    /// Delete objects.
    Delete,
}

/// A key as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenKey {
    id: String,
    secret: String,
    rights: Vec<Right>,
    /// The buckets that it is for; without any, for all.
    #[serde(default)]
    buckets: Vec<String>,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKeys {
    key: Vec<WrittenKey>,
}

/// A key.
struct Key {
    secret: SecretKey,
    rights: Vec<Right>,
    buckets: Vec<String>,
}

/// The keys of a gateway, by their ids. A clone is the same keys.
#[derive(Clone)]
pub struct Keys(std::sync::Arc<HashMap<String, Key>>);

impl Keys {
    /// Reads a file of keys.
    ///
    /// # Errors
    /// It cannot be read, others may read or change it, or a key in it cannot be used.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        refuse_files_of_others(path)?;
        let read = read_small(path, FILE_MAX + 1);
        let (bytes, metadata) = read.map_err(|e| Error::io("read", &name, e).on_named_thing())?;
        let mode = metadata.permissions().mode();
        if mode & 0o077 != 0 && !is_credential(path) {
            let why = format!("it holds secrets, and others than its owner may use it (mode {:04o})", mode & 0o7777);
            return Err(Error::refused(&name, why, format!("chmod 600 '{name}'")));
        }
        let text = std::str::from_utf8(&bytes).ok().filter(|text| text.len() <= FILE_MAX);
        Self::parse(&name, text.unwrap_or("\0"))
    }

    /// Keys from the text of a file with this name.
    ///
    /// # Errors
    /// A key cannot be used.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let hint = "write [[key]] with id, secret, rights and, if it is not for all, buckets: docs/verbs/gateway.md";
        // The message of the parser would show the line, and with it a secret.
        let written: WrittenKeys = toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |span| text.get(..span.start).unwrap_or("").matches('\n').count() + 1);
            // A message about a value shows the value, and that may be the secret.
            let said = e.message().lines().next().unwrap_or_default();
            let of_names = said.starts_with("unknown field") || said.starts_with("missing field");
            let what = if of_names { said } else { "cannot be read: a value is missing or of another kind" }.to_owned();
            Error::usage(format!("{name}, line {line}"), what, hint)
        })?;
        let mut keys = HashMap::new();
        for key in written.key {
            let wrong = |why: &str| Err(Error::usage(format!("{name}: key `{}`", key.id.escape_debug()), why, hint));
            let is_plain = |text: &str| !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric());
            if !is_plain(&key.id) {
                return wrong("the id may have ASCII letters and digits only");
            }
            if key.secret.len() < SECRET_MIN {
                return wrong("its secret has less than 16 letters, and could be guessed");
            }
            if !is_plain(&key.secret) {
                return wrong("the secret may have ASCII letters and digits only: SQL Server accepts nothing else");
            }
            if key.rights.is_empty() {
                return wrong("it has no rights");
            }
            let (id, secret) = (key.id, SecretKey::from(key.secret));
            let made = Key { secret, rights: key.rights, buckets: key.buckets };
            if keys.insert(id.clone(), made).is_some() {
                return Err(Error::usage(format!("{name}: key `{id}`"), "is there twice", hint));
            }
        }
        Ok(Self(std::sync::Arc::new(keys)))
    }

    /// True if key `id` may use a bucket.
    pub(crate) fn may_use(&self, id: &str, bucket: &str) -> bool {
        let all = |key: &Key| key.buckets.is_empty() || key.buckets.iter().any(|name| name == bucket);
        self.0.get(id).is_some_and(all)
    }
}

#[async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        match self.0.get(access_key) {
            Some(key) => Ok(key.secret.clone()),
            None => Err(s3_error!(InvalidAccessKeyId, "this gateway has no key with this id")),
        }
    }
}

/// The right for each request that this gateway answers.
fn right_for(operation: &str) -> Option<&'static [Right]> {
    Some(match operation {
        "CreateMultipartUpload"
        | "UploadPart"
        | "CompleteMultipartUpload"
        | "AbortMultipartUpload"
        | "PutObject"
        | "ListParts"
        | "ListMultipartUploads" => &[Right::Write],
        "GetObject" => &[Right::Read],
        "HeadObject" => &[Right::Read, Right::List],
        "ListObjects" | "ListObjectsV2" => &[Right::List],
        "DeleteObject" | "DeleteObjects" => &[Right::Delete],
        // They tell no more than the name that was asked for.
        "HeadBucket" | "GetBucketLocation" | "ListBuckets" => &[Right::Write, Right::Read, Right::List, Right::Delete],
        // The answer is always that they are not done here.
        "CopyObject" | "UploadPartCopy" => &[Right::Write],
        _ => return None,
    })
}

/// True once a client has signed a request of its connection with a key.
#[derive(Clone, Default)]
pub(crate) struct HasSigned(pub std::sync::Arc<AtomicBool>);

#[async_trait]
impl S3Access for Keys {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        // Its signature is right: the client has a key.
        if let (true, Some(known)) = (cx.credentials().is_some(), cx.extensions_mut().get::<HasSigned>()) {
            known.0.store(true, Ordering::Release);
        }
        let operation = cx.s3_op().name();
        let Some(needed) = right_for(operation) else {
            return Err(s3_error!(NotImplemented, "{operation} is not done by this gateway"));
        };
        let Some(credentials) = cx.credentials() else {
            return Err(s3_error!(AccessDenied, "sign the request: this gateway answers no anonymous ones"));
        };
        let id = &credentials.access_key;
        let has_right = self.0.get(id).is_some_and(|key| needed.iter().any(|right| key.rights.contains(right)));
        if !has_right {
            return Err(s3_error!(AccessDenied, "key {id} has no right to {operation}"));
        }
        let bucket = match cx.s3_path() {
            S3Path::Root => return Ok(()),
            S3Path::Bucket { bucket } | S3Path::Object { bucket, .. } => bucket,
        };
        match self.may_use(id, bucket) {
            true => Ok(()),
            false => Err(s3_error!(AccessDenied, "key {id} is not for this bucket")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_cannot_be_used_is_refused_by_name_and_no_message_has_its_secret() {
        let one = |id: &str, secret: &str, more: &str| {
            Keys::parse("keys.toml", &format!("[[key]]\nid = \"{id}\"\nsecret = \"{secret}\"\n{more}\n"))
        };
        let secret = "0123456789abcdef";
        assert!(one("SQL1", secret, "rights = [\"write\"]").unwrap().may_use("SQL1", "any"));
        let bad = [
            one("SQL:1", secret, "rights = [\"write\"]"),
            one("SQL1", "short", "rights = [\"write\"]"),
            one("SQL1", "0123456789abcde:", "rights = [\"write\"]"),
            one("SQL1", secret, "rights = []"),
            one("SQL1", secret, "rights = [\"own\"]"),
            one("SQL1", secret, &format!("rights = \"{secret}\"")),
            one("SQL1", secret, "rights = [\"write\"]\nright = 1"),
            one(
                "SQL1",
                secret,
                &format!("rights = [\"read\"]\n[[key]]\nid = \"SQL1\"\nsecret = \"{secret}\"\nrights = [\"read\"]"),
            ),
        ];
        for refused in bad {
            let text = refused.err().unwrap().to_string();
            assert!(text.contains("keys.toml") && !text.contains(secret) && !text.contains("short\""), "{text}");
        }
    }

    #[test]
    fn a_key_for_one_bucket_uses_no_other() {
        let text = "[[key]]\nid = \"A\"\nsecret = \"0123456789abcdef\"\nrights = [\"read\"]\nbuckets = [\"nightly\"]\n";
        let keys = Keys::parse("k", text).unwrap();
        assert!(keys.may_use("A", "nightly") && !keys.may_use("A", "other") && !keys.may_use("B", "nightly"));
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.toml");
        std::fs::write(&path, "[[key]]\nid = \"A\"\nsecret = \"0123456789abcdef\"\nrights = [\"read\"]\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Keys::read(&path).err().unwrap().to_string().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Keys::read(&path).is_ok());
    }
}
