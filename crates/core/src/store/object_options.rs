//! How a store is to keep families: encryption, storage class, tags and Object Lock.
//!
//! Public sources: Amazon S3 API Reference (CreateMultipartUpload, HeadObject), Amazon S3 User Guide (Object Lock,
//! tags).

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::error::{Error, Result};

/// The most tags of an object, and the most characters of a key and of a value.
const TAGS_MOST: usize = 10;
const TAG_KEY_MOST: usize = 128;
const TAG_VALUE_MOST: usize = 256;
/// The longest name of a storage class that is taken.
const CLASS_MOST: usize = 64;
/// Classes whose objects cannot be read until they are restored, which takes hours.
const FROZEN: [&str; 2] = ["GLACIER", "DEEP_ARCHIVE"];
/// The fewest and the most parts that a store may be said to take.
const PARTS: std::ops::RangeInclusive<u64> = 10..=10_000;

/// What is asked of a store for every family. Claims are small objects beside them, and are not locked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectOptions {
    /// Encryption by the store.
    pub encryption: Option<Encryption>,
    /// A storage class by its name.
    pub storage_class: Option<String>,
    /// Tags, key and value.
    pub tags: Vec<(String, String)>,
    /// Object Lock.
    pub lock: Option<ObjectLock>,
    /// The most parts of an object, if its host does not tell.
    pub max_parts: Option<u64>,
    /// How long the store may be away while families are written or read; fullbore retries parts and ranges for that
    /// long.
    pub outage: Duration,
}

/// Encryption by the store, with keys that the store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encryption {
    /// `AES256`, `aws:kms` or `aws:kms:dsse`.
    pub algorithm: &'static str,
    /// The key in the store's key service; without it, the account's own key.
    pub key: Option<String>,
}

/// Until when an object can be neither deleted nor replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectLock {
    /// Who may still lift it.
    pub mode: LockMode,
    /// Whole seconds.
    pub until: Timestamp,
}

/// Who may lift a lock before its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LockMode {
    /// Accounts with a permission for it.
    #[default]
    Governance,
    /// No account.
    Compliance,
}

impl ObjectOptions {
    /// Checks the options together.
    ///
    /// # Errors
    /// More tags than S3 takes, a tag twice, a number of parts that no store has.
    pub fn checked(self) -> Result<Self> {
        let wrong = |why: String| Err(Error::usage("--tag", why, "leave some out"));
        if self.tags.len() > TAGS_MOST {
            return wrong(format!("{} tags are too many: an object has at most {TAGS_MOST}", self.tags.len()));
        }
        for (at, (key, _)) in self.tags.iter().enumerate() {
            if self.tags[..at].iter().any(|(other, _)| other == key) {
                return wrong(format!("`{key}` is given twice"));
            }
        }
        match self.max_parts {
            Some(parts) if !PARTS.contains(&parts) => Err(Error::usage(
                "--max-parts",
                format!("{parts} is not between {} and {}", PARTS.start(), PARTS.end()),
                "give the most parts that the store takes in one upload",
            )),
            _ => Ok(self),
        }
    }
}

impl Encryption {
    /// From `AES256`, `aws:kms`, `aws:kms:KEY-ID`, `aws:kms:dsse` or `aws:kms:dsse:KEY-ID`.
    ///
    /// # Errors
    /// Any other text. For a key of the customer, the error has the reason.
    pub fn parse(flag: &str, text: &str) -> Result<Self> {
        let hint = "write AES256, aws:kms or aws:kms:KEY-ID";
        if text.to_ascii_lowercase().starts_with("sse-c") {
            return Err(Error::usage(
                flag,
                "a key of your own would be sent to the store with every request, also in every restore",
                "use --encrypt-to: it encrypts before anything leaves this machine",
            ));
        }
        let (algorithm, key) = match text {
            "AES256" => ("AES256", None),
            _ => match text.strip_prefix("aws:kms") {
                Some("") => ("aws:kms", None),
                Some(":dsse") => ("aws:kms:dsse", None),
                Some(rest) => match (rest.strip_prefix(":dsse:"), rest.strip_prefix(':')) {
                    (Some(key), _) => ("aws:kms:dsse", Some(key)),
                    (None, Some(key)) => ("aws:kms", Some(key)),
                    (None, None) => return Err(Error::usage(flag, format!("`{text}` is not known"), hint)),
                },
                None => return Err(Error::usage(flag, format!("`{text}` is not known"), hint)),
            },
        };
        if key.is_some_and(|key| key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(Error::usage(flag, format!("`{text}` names no key"), hint));
        }
        Ok(Self { algorithm, key: key.map(str::to_owned) })
    }
}

/// A storage class from its name.
///
/// # Errors
/// A text that is not a name, or a class whose objects cannot be read at once.
pub fn storage_class(flag: &str, text: &str) -> Result<String> {
    let is_name =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    if text.is_empty() || text.len() > CLASS_MOST || !is_name(text) {
        return Err(Error::usage(flag, format!("`{text}` is not a storage class"), "write it as S3 does: STANDARD_IA"));
    }
    if FROZEN.contains(&text) {
        return Err(Error::usage(
            flag,
            format!(
                "fullbore could not `list` or `verify` objects of `{text}`: the store must first restore them for hours"
            ),
            "use GLACIER_IR, or a lifecycle rule that moves old backups there",
        ));
    }
    Ok(text.to_owned())
}

/// A tag from `key=value`.
///
/// # Errors
/// A text that is not a tag, or is beyond S3's limits.
pub fn tag(flag: &str, text: &str) -> Result<(String, String)> {
    let wrong = |why: &str| Err(Error::usage(flag, format!("`{text}` {why}"), "write key=value: team=payments"));
    let Some((key, value)) = text.split_once('=') else { return wrong("is not a tag") };
    if key.is_empty() || key.chars().count() > TAG_KEY_MOST || value.chars().count() > TAG_VALUE_MOST {
        return wrong("has no key, a key of more than 128 characters, or a value of more than 256");
    }
    if key.to_ascii_lowercase().starts_with("aws:") {
        return wrong("begins with `aws:`, which is reserved for the store");
    }
    let is_taken = |letter: char| letter.is_alphanumeric() || " +-=._:/@".contains(letter);
    if !text.chars().all(is_taken) {
        return wrong("has a character that S3 refuses in a tag; use letters, digits, spaces and + - = . _ : / @");
    }
    Ok((key.to_owned(), value.to_owned()))
}

impl LockMode {
    /// From `governance` or `compliance`.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(flag: &str, text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "governance" => Ok(Self::Governance),
            "compliance" => Ok(Self::Compliance),
            _ => Err(Error::usage(
                flag,
                format!("`{text}` is not a mode of Object Lock"),
                "write governance or compliance",
            )),
        }
    }
}

/// As S3 spells it.
impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Governance => "GOVERNANCE",
            Self::Compliance => "COMPLIANCE",
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn encryption_is_of_the_store_with_or_without_the_name_of_a_key() {
        let parsed = |text: &str| Encryption::parse("--sse", text).map(|sse| (sse.algorithm, sse.key));
        assert_eq!(parsed("AES256").unwrap(), ("AES256", None));
        assert_eq!(parsed("aws:kms").unwrap(), ("aws:kms", None));
        assert_eq!(parsed("aws:kms:arn:aws:kms:x:1:key/a").unwrap(), ("aws:kms", Some("arn:aws:kms:x:1:key/a".into())));
        assert_eq!(parsed("aws:kms:dsse:k").unwrap(), ("aws:kms:dsse", Some("k".into())));
        for text in ["", "aes256", "aws:kms:", "aws:kmsx", "aws:kms:a b", "aws:kms:a\r\nb"] {
            assert!(parsed(text).unwrap_err().to_string().contains("--sse"), "{text}");
        }
        assert!(parsed("SSE-C").unwrap_err().to_string().contains("--encrypt-to"));
    }

    #[test]
    fn a_class_that_cannot_be_read_at_once_is_refused() {
        assert_eq!(storage_class("--storage-class", "STANDARD_IA").unwrap(), "STANDARD_IA");
        for text in ["DEEP_ARCHIVE", "GLACIER", "standard", "", "A B", &"A".repeat(65)] {
            assert!(storage_class("--storage-class", text).is_err(), "{text}");
        }
    }

    #[test]
    fn tags_have_the_bounds_of_s3() {
        assert_eq!(tag("--tag", "team=a=b").unwrap(), ("team".into(), "a=b".into()));
        assert_eq!(tag("--tag", &format!("{}={}", "ü".repeat(128), "v".repeat(256))).unwrap().0.chars().count(), 128);
        for text in [
            "",
            "=",
            "=v",
            "k",
            "aws:x=1",
            "a\n=b",
            &format!("{}=", "k".repeat(129)),
            &format!("k={}", "v".repeat(257)),
        ] {
            assert!(tag("--tag", text).is_err(), "{text}");
        }
        let tags = |count: usize| (0..count).map(|at| (at.to_string(), String::new())).collect::<Vec<_>>();
        assert!(ObjectOptions { tags: tags(10), ..ObjectOptions::default() }.checked().is_ok());
        assert!(ObjectOptions { tags: tags(11), ..ObjectOptions::default() }.checked().is_err());
        let twice = vec![("a".to_owned(), String::new()); 2];
        assert!(ObjectOptions { tags: twice, ..ObjectOptions::default() }.checked().is_err());
    }
}
