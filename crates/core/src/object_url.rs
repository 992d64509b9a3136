//! What names an object: a service, a bucket in it and a key. `s3://bucket/key`, `az://container/key`,
//! `gs://bucket/key`.
//!
//! Public sources: Amazon S3 User Guide (bucket naming rules, object keys), Azure REST reference (Naming and
//! Referencing Containers, Blobs, and Metadata), Google Cloud Storage documentation (bucket and object naming).

use std::borrow::Cow;
use std::fmt;

/// The longest key of an object, in bytes, without `.claim`.
const KEY_MAX: usize = 1024 - 6;
/// The most parts of a key that Azure takes.
const AZURE_PARTS_MOST: usize = 254;
/// Marks of a URL that carries its own permission.
const SIGNATURES: [&str; 4] = ["sig=", "x-amz-signature=", "x-goog-signature=", "signature="];

/// A service that keeps objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Service {
    /// Any store that speaks S3.
    S3,
    /// Azure Blob Storage; a bucket is called a container there, and an object a blob.
    Azure,
    /// Google Cloud Storage.
    Google,
}

impl Service {
    /// What its URLs begin with.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Azure => "az",
            Self::Google => "gs",
        }
    }

    /// The service of a scheme in small letters.
    pub(crate) fn of_scheme(scheme: &str) -> Option<Self> {
        [Self::S3, Self::Azure, Self::Google].into_iter().find(|service| service.scheme() == scheme)
    }

    /// The variables that hold its keys.
    fn credentials(self) -> &'static str {
        match self {
            Self::S3 => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            Self::Azure => "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
            Self::Google => "GOOGLE_APPLICATION_CREDENTIALS",
        }
    }
}

/// A bucket, and the service that it is in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketName {
    /// The service.
    pub service: Service,
    /// Its name there.
    pub name: String,
}

/// As its URL begins: `s3://bucket`.
impl fmt::Display for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.service.scheme(), self.name)
    }
}

/// A bucket that speaks S3.
impl From<&str> for BucketName {
    fn from(name: &str) -> Self {
        Self { service: Service::S3, name: name.to_owned() }
    }
}

impl From<&Self> for BucketName {
    fn from(name: &Self) -> Self {
        name.clone()
    }
}

/// Bucket and key in a URL of that service, or what is wrong with the URL. A key is taken as it is written: `%`, `?`
/// and `#` are ordinary characters. An empty key, or one with a `/` at its end, is a prefix.
pub(crate) fn parsed(text: &str, service: Service) -> Result<(BucketName, String), String> {
    let scheme = service.scheme();
    let rest = text[scheme.len() + 1..].strip_prefix("//");
    let rest = rest.ok_or_else(|| format!("write two slashes after `{scheme}:`: {scheme}://bucket/key"))?;
    let (name, key) = rest.split_once('/').unwrap_or((rest, ""));
    if name.contains('@') {
        return Err(format!("do not put keys into a URL: fullbore reads them from {}", service.credentials()));
    }
    if matches!(without_signature(text), Cow::Owned(_)) {
        return Err(format!("do not put a signature into a URL: fullbore reads keys from {}", service.credentials()));
    }
    check_bucket(name, service)?;
    check_key(key)?;
    if service == Service::Azure {
        check_blob(key)?;
    }
    Ok((BucketName { service, name: name.to_owned() }, key.to_owned()))
}

fn check_bucket(name: &str, service: Service) -> Result<(), String> {
    let (others, of_others) = match service {
        Service::S3 => (".-", "digits, dots and hyphens"),
        Service::Azure => ("-", "digits and single hyphens"),
        Service::Google => (".-_", "digits, dots, hyphens and underscores"),
    };
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || others.contains(letter);
    let well_placed =
        service != Service::Azure || !(name.starts_with('-') || name.ends_with('-') || name.contains("--"));
    if (3..=63).contains(&name.len()) && name.chars().all(allowed) && well_placed {
        return Ok(());
    }
    let bucket = if service == Service::Azure { "container" } else { "bucket" };
    Err(format!("the name of a {bucket} has 3 to 63 lower-case letters, {of_others}"))
}

fn check_key(key: &str) -> Result<(), String> {
    if key.len() > KEY_MAX {
        return Err(format!("the key is longer than {KEY_MAX} bytes"));
    }
    let parts = key.strip_suffix('/').unwrap_or(key);
    let odd = |part: &str| part.is_empty() || part == "." || part == "..";
    if !parts.is_empty() && parts.split('/').any(odd) || key == "/" {
        return Err("a part of a key cannot be empty, `.` or `..`".to_owned());
    }
    if key.chars().any(char::is_control) {
        return Err("a key cannot have control characters".to_owned());
    }
    Ok(())
}

/// Refuses keys that Azure would change.
fn check_blob(key: &str) -> Result<(), String> {
    if key.contains('\\') {
        return Err("Azure reads `\\` in the name of a blob as `/`".to_owned());
    }
    if key.split('/').any(|part| part.ends_with('.')) {
        return Err("Azure does not allow a part of a blob name to end in a dot".to_owned());
    }
    if key.split('/').count() > AZURE_PARTS_MOST {
        return Err(format!("the name of a blob has at most {AZURE_PARTS_MOST} parts"));
    }
    Ok(())
}

/// Why a URL that looks right is refused.
pub(crate) fn why_not(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    let (scheme, rest) = lower.split_once("://")?;
    let host = rest.split('/').next().unwrap_or_default();
    let of_azure = [".blob.", ".dfs."].iter().any(|part| host.contains(part)) && host.contains(".core.");
    match scheme {
        "azure" | "abfs" | "abfss" | "adl" | "wasb" | "wasbs" => {
            Some("write az://CONTAINER/KEY for a blob of Azure, and name the account in AZURE_STORAGE_ACCOUNT_NAME")
        }
        "https" | "http" if of_azure => Some(
            "is the address of a blob: write az://CONTAINER/KEY, and name the account in AZURE_STORAGE_ACCOUNT_NAME",
        ),
        "gcs" => Some("write gs://BUCKET/KEY for an object of Google Cloud Storage"),
        "https" | "http" if host == "storage.googleapis.com" || host == "storage.cloud.google.com" => {
            Some("is the address of an object: write gs://BUCKET/KEY")
        }
        _ => None,
    }
}

/// A URL as it may be shown: a reader of its signature has all the rights that the signature gives.
pub(crate) fn without_signature(url: &str) -> Cow<'_, str> {
    let Some((before, query)) = url.split_once('?') else { return Cow::Borrowed(url) };
    let lower = query.to_ascii_lowercase();
    let signed = url.contains("://") && SIGNATURES.iter().any(|mark| lower.contains(mark));
    if signed { Cow::Owned(format!("{before}?***")) } else { Cow::Borrowed(url) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_service_has_names_of_its_own() {
        let taken = |text: &str, service| parsed(text, service).map(|(bucket, key)| format!("{bucket} {key}"));
        assert_eq!(taken("s3://a.b-c/k", Service::S3).unwrap(), "s3://a.b-c k");
        assert_eq!(taken("az://a-b-c/k/l", Service::Azure).unwrap(), "az://a-b-c k/l");
        assert_eq!(taken("gs://a_b.c/", Service::Google).unwrap(), "gs://a_b.c ");
        for (text, service, why) in [
            ("az://a.bc/k", Service::Azure, "container"),
            ("az://a--b/k", Service::Azure, "single hyphens"),
            ("az://-ab/k", Service::Azure, "container"),
            ("az://abc/a\\b", Service::Azure, "as `/`"),
            ("az://abc/a./b", Service::Azure, "to end in a dot"),
            ("az://abc/b.", Service::Azure, "to end in a dot"),
            ("az://user@abc/b", Service::Azure, "AZURE_STORAGE_ACCOUNT_NAME"),
            ("az://abc/b?sv=1&sig=x", Service::Azure, "do not put a signature"),
            ("gs://Abc/b", Service::Google, "underscores"),
            ("gs://user@abc/b", Service::Google, "GOOGLE_APPLICATION_CREDENTIALS"),
            ("s3://a_b/k", Service::S3, "hyphens"),
        ] {
            let error = parsed(text, service).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn other_spellings_are_refused_with_the_one_that_is_taken() {
        for (text, hint) in [
            ("azure://c/k", "az://"),
            ("ABFSS://c@a.dfs.core.windows.net/k", "az://"),
            ("https://a.blob.core.windows.net/c/k", "az://"),
            ("gcs://b/k", "gs://"),
            ("https://storage.googleapis.com/b/k", "gs://"),
        ] {
            assert!(why_not(text).unwrap().contains(hint), "{text}");
        }
        assert_eq!(why_not("https://example.com/k"), None);
    }

    #[test]
    fn a_signature_is_never_shown() {
        for url in [
            "https://a.blob.core.windows.net/c/k?sv=2023&SIG=sekret%3D",
            "az://c/k?sig=sekret",
            "https://storage.googleapis.com/b/k?X-Goog-Signature=sekret",
        ] {
            assert!(!without_signature(url).contains("sekret"), "{url}");
            let error = crate::device::Device::parse(url).unwrap_err().to_string();
            assert!(!error.contains("sekret"), "{error}");
        }
        assert_eq!(without_signature("/mnt/a?sig=b"), "/mnt/a?sig=b");
    }
}
