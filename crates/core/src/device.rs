//! What a user writes after `--to` and `--from`: the name of a media family's device.

use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::io::real_path;
use crate::object_url;

pub use crate::object_url::{BucketName, Service};

const KNOWN: &str = "a device is /path/file.bore, a directory ending in `/`, file:///path, s3://bucket/key, \
s3://bucket/prefix/ (az:// and gs:// likewise), nul: or - (a pipe); write ./NAME for a file whose name has a colon";

/// A device, as written and as understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    text: String,
    place: Destination,
}

/// Where a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// One file.
    File(PathBuf),
    /// A directory, in which names are made from `--name-template` or found.
    Directory(PathBuf),
    /// One object in a store.
    Object {
        /// Its bucket.
        bucket: BucketName,
        /// Its key, not empty, without a `/` at its end.
        key: String,
    },
    /// A prefix of keys in a store, in which names are made or found as in a directory.
    Prefix {
        /// Its bucket.
        bucket: BucketName,
        /// Empty, or ending in `/`.
        prefix: String,
    },
    /// `nul:`: everything is taken and forgotten.
    Null,
    /// `-`: standard output or input.
    Pipe,
}

/// What makes two devices the same. Equal only if a write to one would be seen in the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// The path without symbolic links, `.` and `..`.
    Path(PathBuf),
    /// Bucket and key, at the endpoint that the environment names.
    Object(BucketName, String),
    /// The only pipe a process has.
    Pipe,
}

impl Device {
    /// Understands what a user wrote.
    ///
    /// # Errors
    /// A usage error that names the known forms, for an empty text, an unknown scheme or a malformed URL.
    pub fn parse(text: &str) -> Result<Self> {
        let place = match text {
            "" => return Err(refuse(text, "the name of a device is empty")),
            "-" => Destination::Pipe,
            _ => match scheme(text) {
                None => place_of(PathBuf::from(text)),
                Some("nul") if text.len() == "nul:".len() => Destination::Null,
                Some("nul") => return Err(refuse(text, "nul: has no path")),
                Some("file") => place_of(path_of_url(text)?),
                Some(scheme) => match Service::of_scheme(scheme) {
                    Some(service) => place_in_store(text, service)?,
                    None => return Err(refuse(text, object_url::why_not(text).unwrap_or("unknown scheme"))),
                },
            },
        };
        if let Destination::File(path) | Destination::Directory(path) = &place
            && path.as_os_str().as_bytes().contains(&0)
        {
            return Err(refuse(text, "a path cannot contain a zero byte"));
        }
        Ok(Self { text: text.to_owned(), place })
    }

    /// The file or object `name` in this device, if it is a directory or a prefix; `None` otherwise.
    pub fn join(&self, name: &str) -> Option<Self> {
        match &self.place {
            Destination::Directory(directory) => Some(Self::file(directory.join(name))),
            Destination::Prefix { bucket, prefix } => Some(Self::object(bucket, &format!("{prefix}{name}"))),
            Destination::File(_) | Destination::Object { .. } | Destination::Null | Destination::Pipe => None,
        }
    }

    /// The device that is an object.
    pub fn object(bucket: impl Into<BucketName>, key: &str) -> Self {
        let bucket = bucket.into();
        let text = format!("{bucket}/{key}");
        Self { text, place: Destination::Object { bucket, key: key.to_owned() } }
    }

    /// The device that is the file at `path`.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { text: path.display().to_string(), place: Destination::File(path) }
    }

    /// The file or object that was shown as `text`. The path of a file never begins like the URL of an object, whose
    /// two slashes a path does not have.
    pub fn shown_as(text: &str) -> Self {
        match Self::parse(text) {
            Ok(device) if matches!(device.place, Destination::Object { .. }) => device,
            _ => Self::file(text),
        }
    }

    /// Where it is.
    pub fn place(&self) -> &Destination {
        &self.place
    }

    /// True if families get their own names there: a directory or a prefix.
    pub fn holds_many(&self) -> bool {
        matches!(self.place, Destination::Directory(_) | Destination::Prefix { .. })
    }

    /// True for an object, and for a prefix of objects.
    pub fn is_in_store(&self) -> bool {
        matches!(self.place, Destination::Object { .. } | Destination::Prefix { .. })
    }

    /// The path of a file or a directory.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Destination::File(path) | Destination::Directory(path) => Some(path),
            Destination::Object { .. } | Destination::Prefix { .. } | Destination::Null | Destination::Pipe => None,
        }
    }

    /// Tells it from other devices: two with equal identities would overwrite each other. `None` for `nul:`, which may
    /// be given any number of times. The device need not exist.
    pub fn identity(&self) -> Option<Identity> {
        match &self.place {
            Destination::File(path) | Destination::Directory(path) => {
                Some(Identity::Path(real_path(path).unwrap_or_else(|_| path.to_owned())))
            }
            Destination::Object { bucket, key: name } | Destination::Prefix { bucket, prefix: name } => {
                Some(Identity::Object(bucket.clone(), name.clone()))
            }
            Destination::Null => None,
            Destination::Pipe => Some(Identity::Pipe),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

/// What the user wrote.
impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

fn refuse(text: &str, why: &str) -> Error {
    let shown = object_url::without_signature(&without_password(text)).into_owned();
    Error::usage(format!("device `{shown}`"), why, KNOWN)
}

/// A URL as it may be shown: its password is `***`. Paths and `file:` URLs have no password and stay as they are.
pub fn without_password(url: &str) -> String {
    without_password_unless(url, |_| false)
}

/// The same, where a path follows each scheme that `is_local` accepts too.
pub fn without_password_unless(url: &str, is_local: impl Fn(&str) -> bool) -> String {
    const LOCAL: [&str; 3] = ["file", "dir", "nul"];
    let hidden = || {
        let (scheme, rest) = url.split_once(':')?;
        let well_formed = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter));
        let with_host = rest.starts_with("//") && !rest.starts_with("///");
        let local = LOCAL.iter().any(|local| scheme.eq_ignore_ascii_case(local)) || is_local(scheme);
        if !well_formed || !with_host && local {
            return None;
        }
        // The last `@`: a password may hold one without an escape. This hides too much rather than too little.
        let (user_and_password, place) = rest.rsplit_once('@')?;
        let slashes = if user_and_password.starts_with("//") { "//" } else { "" };
        let (user, _) = user_and_password[slashes.len()..].split_once(':')?;
        Some(format!("{scheme}:{slashes}{user}:***@{place}"))
    };
    without_secret_options(hidden().unwrap_or_else(|| url.to_owned()))
}

/// Values of options with a name that tells of a secret are `***`: fullbore takes none there, but people write them.
fn without_secret_options(url: String) -> String {
    const SECRET: [&str; 3] = ["pass", "secret", "token"];
    let Some((place, options)) = url.split_once('?').filter(|(place, _)| place.contains("://")) else { return url };
    let masked = options.split('&').map(|option| match option.split_once('=') {
        Some((name, _)) if SECRET.iter().any(|word| name.to_ascii_lowercase().contains(word)) => format!("{name}=***"),
        _ => option.to_owned(),
    });
    format!("{place}?{}", masked.collect::<Vec<_>>().join("&"))
}

/// The scheme in lower case, if there is one. Before `://` any text is a scheme. Before a lone colon, only a scheme of
/// this program or of SQL Server is: `app-10:30.bore` is a good name for a file.
fn scheme(text: &str) -> Option<&'static str> {
    const WORDS: [&str; 13] = [
        "nul", "file", "s3", "null", "stdin", "stdout", "sqlite", "dir", "mysql", "mariadb", "postgres", "disk", "url",
    ];
    let (before, after) = text.split_once(':')?;
    let known = WORDS.iter().find(|word| before.eq_ignore_ascii_case(word)).copied();
    let known = known.or_else(|| {
        // Too short to be reserved before a lone colon.
        let service = [Service::Azure, Service::Google].into_iter().map(Service::scheme);
        service.into_iter().find(|scheme| before.eq_ignore_ascii_case(scheme) && after.starts_with("//"))
    });
    let well_formed = before.starts_with(|first: char| first.is_ascii_alphabetic())
        && before.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter));
    match known {
        None if well_formed && after.starts_with("//") => Some("unknown"),
        known => known,
    }
}

/// The path in `file:///path` or `file:/path` (RFC 8089), percent-decoded.
fn path_of_url(text: &str) -> Result<PathBuf> {
    let rest = &text["file:".len()..];
    let path = match rest.strip_prefix("//") {
        Some(with_host) => {
            let slash = with_host.find('/').unwrap_or(with_host.len());
            let (host, path) = with_host.split_at(slash);
            if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
                let host = host.rsplit('@').next().unwrap_or_default();
                return Err(refuse(text, &format!("`{host}` is in the place of the host name; write three slashes")));
            }
            path
        }
        None => rest,
    };
    if !path.starts_with('/') {
        return Err(refuse(text, "the path of a file URL begins with `/`"));
    }
    if path.contains(['?', '#']) {
        return Err(refuse(text, "write `?` and `#` in a file URL as %3F and %23"));
    }
    let bytes = percent_decoded(path).ok_or_else(|| refuse(text, "write two hexadecimal digits after `%` in a URL"))?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

/// Bucket and key in the URL of an object.
fn place_in_store(text: &str, service: Service) -> Result<Destination> {
    let (bucket, key) = object_url::parsed(text, service).map_err(|why| refuse(text, &why))?;
    Ok(if key.is_empty() || key.ends_with('/') {
        Destination::Prefix { bucket, prefix: key }
    } else {
        Destination::Object { bucket, key }
    })
}

/// The bytes of a text with `%XX` in it; nothing if a `%` has no two hexadecimal digits after it.
pub fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let has_digits = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    text.split('%').skip(1).all(has_digits).then(|| percent_encoding::percent_decode_str(text).collect())
}

/// A path that can only mean a directory is one, whether it exists or not.
fn place_of(path: PathBuf) -> Destination {
    let bytes = path.as_os_str().as_bytes();
    let last = bytes.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if matches!(last, b"" | b"." | b"..") { Destination::Directory(path) } else { Destination::File(path) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    fn place(text: &str) -> Destination {
        Device::parse(text).unwrap().place
    }

    #[test]
    fn every_form_of_the_manual_is_understood() {
        assert_eq!(place("/mnt/a/x.bore"), Destination::File("/mnt/a/x.bore".into()));
        assert_eq!(place("x.bore"), Destination::File("x.bore".into()));
        assert_eq!(place("app-2026-11-21T10:30.bore"), Destination::File("app-2026-11-21T10:30.bore".into()));
        assert_eq!(place("./s3:x"), Destination::File("./s3:x".into()));
        assert_eq!(place("file:///mnt/a%20b/%C3%A9.bore"), Destination::File("/mnt/a b/é.bore".into()));
        assert_eq!(place("FILE://localhost/x"), Destination::File("/x".into()));
        assert_eq!(place("file:///mnt/a/"), Destination::Directory("/mnt/a/".into()));
        for directory in ["/mnt/a/", "a/", ".", "..", "a/..", "/"] {
            assert_eq!(place(directory), Destination::Directory(directory.into()));
        }
        let object = |key: &str| Destination::Object { bucket: "bucket".into(), key: key.into() };
        let at = |service: Service| BucketName { service, name: "bucket".into() };
        assert_eq!(
            place("az://bucket/a/b.bore"),
            Destination::Object { bucket: at(Service::Azure), key: "a/b.bore".into() }
        );
        assert_eq!(place("GS://bucket/a/"), Destination::Prefix { bucket: at(Service::Google), prefix: "a/".into() });
        assert_eq!(Device::parse("gs://bucket/").unwrap().join("b").unwrap().to_string(), "gs://bucket/b");
        assert_eq!(
            (place("az:x"), place("gs:x")),
            (Destination::File("az:x".into()), Destination::File("gs:x".into()))
        );
        let prefix = |prefix: &str| Destination::Prefix { bucket: "bucket".into(), prefix: prefix.into() };
        assert_eq!(place("s3://bucket/a/b.bore"), object("a/b.bore"));
        assert_eq!(place("S3://bucket/a%20b?c#d"), object("a%20b?c#d"));
        assert_eq!((place("s3://bucket"), place("s3://bucket/")), (prefix(""), prefix("")));
        assert_eq!(place("s3://bucket/a/"), prefix("a/"));
        assert_eq!(Device::parse("s3://bucket/a/").unwrap().join("b").unwrap().to_string(), "s3://bucket/a/b");
        assert_eq!(place("nul:"), Destination::Null);
        assert_eq!(place("NUL:"), Destination::Null);
        assert_eq!(place("-"), Destination::Pipe);
    }

    #[test]
    fn a_wrong_device_is_a_usage_error_that_names_the_known_forms() {
        let wrong = [
            "",
            "foo://x",
            "s3:/bucket/key",
            "s3:///key",
            "s3://Bucket/key",
            "s3://bu/key",
            "s3://bucket//key",
            "s3://bucket//",
            "s3://bucket/a/../b",
            "s3://bucket/a//b/",
            "s3://bucket/a\nb",
            "s3://key@bucket/a",
            "nul:x",
            "null:",
            "sqlite:/x",
            "file://host/x",
            "file:x",
            "file:",
            "file://",
            "file:///a%zz",
            "file:///a%2",
            "file:///a%00",
            "file:///a?b",
            "a\0b",
            "http://a/b",
            "S3:x",
        ];
        for text in wrong {
            let error = Device::parse(text).unwrap_err();
            assert_eq!(error.exit_kind().exit_code(), 2, "{text}");
            let message = error.to_string();
            assert!(message.contains("nul:") && message.contains("file:///path"), "{message}");
        }
        assert!(Device::parse("foo://x").unwrap_err().to_string().contains("foo"));
    }

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("s3://AK:sekret@b/x", "s3://AK:***@b/x"),
            ("mysql://u:se/kr@et@h/x", "mysql://u:***@h/x"),
            ("postgres:u:sekret@h", "postgres:u:***@h"),
            ("mysql://:sekret@h", "mysql://:***@h"),
            ("s3://AK@b/x", "s3://AK@b/x"),
            ("mysql://h:3306/x", "mysql://h:3306/x"),
            ("file:///a:b@c", "file:///a:b@c"),
            ("/mnt/a:b@c", "/mnt/a:b@c"),
            ("dir:/a:b@c", "dir:/a:b@c"),
            ("data:/a:b@c", "data:/a:***@c"),
        ] {
            assert_eq!(without_password(url), shown);
        }
        let options = without_password("mysql://u@h/?password=s3cret&ssl-mode=required&SecretKey=x");
        assert_eq!(options, "mysql://u@h/?password=***&ssl-mode=required&SecretKey=***");
        assert_eq!(without_password_unless("data:/a:b@c", |scheme| scheme == "data"), "data:/a:b@c");
        assert_eq!(without_password_unless("data://a:b@c", |scheme| scheme == "data"), "data://a:***@c");
        for url in ["s3://AK:sekret@b/x", "foo://u:sekret@h", "file://u:sekret@h/x"] {
            assert!(!Device::parse(url).unwrap_err().to_string().contains("sekret"));
        }
    }

    #[test]
    fn a_device_is_shown_as_it_was_written() {
        for text in ["file:///mnt/a%20b", "NUL:", "-", "./a/../b"] {
            assert_eq!(Device::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Device::parse("/a/").unwrap().join("b").unwrap().to_string(), "/a/b");
    }

    #[test]
    fn the_same_file_by_two_names_has_one_identity() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        symlink("real", root.join("link")).unwrap();
        std::fs::write(root.join("real/file"), "").unwrap();
        symlink("real/file", root.join("alias")).unwrap();
        let identity = |name: &str| Device::file(root.join(name)).identity().unwrap();
        assert_eq!(identity("real/new"), identity("link/new"));
        assert_eq!(identity("real/new"), identity("link/./gone/../new"));
        assert_eq!(identity("real/file"), identity("alias"));
        assert_eq!(identity("new"), identity("link/../new"), "`..` after a link is the target's parent");
        assert_ne!(identity("real/new"), identity("new"));
        let url = Device::parse(&format!("file://{}/real/new", root.display())).unwrap();
        assert_eq!(url.identity().unwrap(), identity("real/new"));
        assert_eq!(Device::parse("nul:").unwrap().identity(), None);
        assert_eq!(Device::parse("-").unwrap().identity(), Some(Identity::Pipe));
        let object = |url: &str| Device::parse(url).unwrap().identity();
        assert_eq!(object("s3://one/a"), object("S3://one/a"));
        assert_ne!(object("s3://one/a"), object("gs://one/a"), "buckets of one name in two services");
    }
}
