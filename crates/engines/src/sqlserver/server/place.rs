//! The places of backup files. SQL Server writes and reads them itself, so they are places of its host.

use fullbore_core::{Error, Result};

/// The most files of a media set.
pub const FILES_MAX: usize = 64;
/// The longest URL that BACKUP TO URL takes, in characters.
const URL_MAX: usize = 259;
/// The longest path, in characters.
const PATH_MAX: usize = 259;
/// The most files of a backup of RDS.
const RDS_FILES_MAX: usize = 10;

const FORMS: &str = "write server:PATH (a file on the server's host), s3://… or https://… (an object), or nul:";

/// Where a backup file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// `server:PATH`: a file on the host of the server.
    Disk(String),
    /// `s3://…` or `https://…`: an object that the server writes.
    Url(String),
    /// `nul:`: nowhere.
    Nul,
}

impl Place {
    /// Parses a place.
    ///
    /// # Errors
    /// It is not a place of the server.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::usage(shown(text), why, FORMS);
        if text.chars().any(char::is_control) {
            return Err(wrong("the name has control characters"));
        }
        if text == "nul:" {
            return Ok(Self::Nul);
        }
        if text.starts_with("s3://") || text.starts_with("https://") {
            let (_, rest) = text.split_once("://").unwrap_or(("", text));
            // Also behind the host: the secret of an account may hold a `/`, and then the host only seems to end there.
            if text.contains('@') {
                let hint = "make a CREDENTIAL on the server instead; the name of an object must have no `@`";
                return Err(Error::usage("the URL", "it contains `@`, and so perhaps an account", hint));
            }
            if rest.contains(['?', '#']) {
                let hint = "put a signature into a CREDENTIAL";
                return Err(Error::usage("the URL", "it contains `?` or `#`", hint));
            }
            return match () {
                () if text.chars().count() > URL_MAX => Err(wrong("BACKUP TO URL takes at most 259 characters")),
                () if !rest.contains('/') || rest.ends_with('/') => Err(wrong("a URL names one object, not a folder")),
                () => Ok(Self::Url(text.to_owned())),
            };
        }
        let Some(path) = text.strip_prefix("server:") else {
            let why = "is not a place of the server; SQL Server writes its backup files itself";
            return Err(wrong(why));
        };
        let is_absolute = path.starts_with(['/', '\\']) || is_drive(path);
        match () {
            () if path.chars().count() > PATH_MAX => Err(wrong("the path has more than 259 characters")),
            () if !is_absolute => Err(wrong("the path must be absolute, as /backup/shop.bak or D:\\backup\\shop.bak")),
            () => Ok(Self::Disk(path.to_owned())),
        }
    }

    /// Whether it is a directory, in which fullbore chooses the names.
    fn is_directory(&self) -> bool {
        matches!(self, Self::Disk(path) if path.ends_with(['/', '\\']))
    }

    /// As the command line spells it.
    pub fn shown(&self) -> String {
        match self {
            Self::Disk(path) => format!("server:{path}"),
            Self::Url(url) => url.clone(),
            Self::Nul => "nul:".to_owned(),
        }
    }
}

/// The files of a backup: each place is one, or fullbore makes `stripes` names in directories, in turns. `stem` is the
/// beginning of such names.
///
/// # Errors
/// A place twice, too many files, or a number of stripes that the places do not allow.
pub fn files(to: &[String], stripes: Option<usize>, stem: &str) -> Result<Vec<Place>> {
    let places = to.iter().map(|text| Place::parse(text)).collect::<Result<Vec<_>>>()?;
    let count = stripes.unwrap_or(places.len());
    if !(1..=FILES_MAX).contains(&count) {
        return Err(Error::usage("--stripes", format!("{count} files: SQL Server takes 1 to 64"), ""));
    }
    if count != places.len() && !places.iter().all(Place::is_directory) {
        let hint = "give as many --to as stripes, or directories that end in / or \\";
        return Err(Error::usage("--stripes", format!("{count} stripes for {} places", places.len()), hint));
    }
    let named = |at: usize, place: &Place| match place {
        Place::Disk(path) if place.is_directory() => Place::Disk(format!("{path}{stem}-{}of{count}.bak", at + 1)),
        other => other.clone(),
    };
    let files: Vec<Place> = places.iter().cycle().take(count).enumerate().map(|(at, place)| named(at, place)).collect();
    for (at, file) in files.iter().enumerate() {
        if *file != Place::Nul && files.iter().take(at).any(|other| other == file) {
            return Err(Error::usage(file.shown(), "is given twice", "name each file once"));
        }
        let too_long = matches!(file, Place::Disk(path) if path.chars().count() > PATH_MAX);
        if too_long {
            return Err(Error::usage(file.shown(), "the path has more than 259 characters", "use a shorter directory"));
        }
    }
    let is_nul = |place: &&Place| **place == Place::Nul;
    if files.iter().any(|file| is_nul(&file)) && !files.iter().all(|file| is_nul(&file)) {
        return Err(Error::usage("nul:", "is given beside other places", "a part of the backup would be lost"));
    }
    Ok(files)
}

/// The object of a backup or restore of RDS as an ARN, from `s3://BUCKET/KEY`; and the number of files.
///
/// # Errors
/// It is not one object of S3, or there are too many files.
pub fn arn(places: &[String], stripes: Option<usize>) -> Result<(String, usize)> {
    let [place] = places else {
        let hint = "give one: s3://BUCKET/KEY, with * in KEY for several files";
        return Err(Error::usage("RDS", "takes one place", hint));
    };
    let files = stripes.unwrap_or(1);
    let object = place.strip_prefix("s3://").and_then(|rest| rest.split_once('/')).filter(|(bucket, key)| {
        let of_bucket = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
        (3..=63).contains(&bucket.len()) && bucket.chars().all(of_bucket) && !key.is_empty() && !key.ends_with('/')
    });
    let Some((bucket, key)) = object.filter(|_| !place.chars().any(char::is_control) && place.len() <= 1024) else {
        return Err(Error::usage(shown(place), "is not an object of S3", "write s3://BUCKET/KEY"));
    };
    match (files, key.matches('*').count()) {
        (0 | RDS_FILES_MAX.., _) if files != RDS_FILES_MAX => {
            Err(Error::usage("--stripes", format!("{files} files: RDS takes 1 to 10"), ""))
        }
        (1, 0) | (2.., 1) => Ok((format!("arn:aws:s3:::{bucket}/{key}"), files)),
        (1, _) => Err(Error::usage(shown(place), "has a * for one file", "add --stripes, or remove the *")),
        (..) => Err(Error::usage(shown(place), "several files need one * in the name", "write s3://BUCKET/shop-*.bak")),
    }
}

/// `D:\…`
fn is_drive(path: &str) -> bool {
    let mut letters = path.chars();
    let drive = letters.next().is_some_and(|letter| letter.is_ascii_alphabetic());
    drive && letters.next() == Some(':') && matches!(letters.next(), Some('\\' | '/'))
}

/// A place in a message: it may hold anything.
fn shown(text: &str) -> String {
    // A URL that is no place may hold an account in any form.
    if let Some((scheme, _)) = text.split_once("://").filter(|(_, rest)| rest.contains('@')) {
        let letters = scheme.chars().filter(char::is_ascii_alphanumeric);
        return format!("{}://…", letters.take(20).collect::<String>());
    }
    let letters = text.chars().map(|letter| if letter.is_control() { '_' } else { letter });
    crate::without_password(&letters.take(300).collect::<String>())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn texts(places: &[&str]) -> Vec<String> {
        places.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_objects_and_nothing_are_places_of_the_server() {
        let parse = |text: &str| Place::parse(text).unwrap();
        assert_eq!(parse("server:/backup/shop.bak"), Place::Disk("/backup/shop.bak".into()));
        assert_eq!(parse(r"server:D:\backup\shop.bak"), Place::Disk(r"D:\backup\shop.bak".into()));
        assert_eq!(parse(r"server:\\nas\backup\shop.bak"), Place::Disk(r"\\nas\backup\shop.bak".into()));
        assert_eq!(parse("s3://h:9000/b/k.bak"), Place::Url("s3://h:9000/b/k.bak".into()));
        assert_eq!(parse("nul:"), Place::Nul);
        let long = format!("server:/{}", "x".repeat(259));
        let wrong = [
            "/backup/shop.bak",
            "file:///x",
            "-",
            "server:",
            "server:shop.bak",
            "server:D:shop.bak",
            "server:/a\nb",
            "s3://h/b/",
            "s3://h",
            "https://u:s3cret@h/b/k",
            "https://h/b/k?sig=s3cret",
            "https://u:s3cret/s3cret@h/b/k",
            "https://u:1/s3cret@h/b/k",
            "https://u:s3cret?s3cret@h/b/k",
            "s3://u:s3cret#s3cret@h/b/k",
            "s3://u:s3cret@h",
            "https://u:s3cret/@h/\n",
            "HTTPS://u:s3cret/s3cret@h/b/k",
            "http://u:s3cret/?s3cret@h/b/k",
            &long,
        ];
        for wrong in wrong {
            let error = Place::parse(wrong).unwrap_err();
            assert_eq!(error.exit_kind().exit_code(), 2, "{wrong}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_directory_gets_as_many_names_as_there_are_stripes() {
        let made = files(&texts(&["server:/a/", r"server:D:\b\"]), Some(3), "shop-full").unwrap();
        let shown: Vec<String> = made.iter().map(Place::shown).collect();
        assert_eq!(
            shown,
            ["server:/a/shop-full-1of3.bak", r"server:D:\b\shop-full-2of3.bak", "server:/a/shop-full-3of3.bak"]
        );
        assert_eq!(files(&texts(&["nul:", "nul:"]), None, "x").unwrap().len(), 2);
        for (to, stripes) in [
            (vec!["server:/a.bak"], Some(2)),
            (vec!["server:/a.bak", "server:/a.bak"], None),
            (vec!["server:/a.bak", "nul:"], None),
            (vec!["server:/a/"], Some(65)),
            (vec!["server:/a/"], Some(0)),
            (vec![], None),
        ] {
            assert!(files(&texts(&to), stripes, "x").is_err(), "{to:?} {stripes:?}");
        }
    }

    #[test]
    fn an_object_of_rds_is_an_arn() {
        let one = |place: &str, stripes| arn(&texts(&[place]), stripes);
        assert_eq!(one("s3://bkt/a/shop.bak", None).unwrap(), ("arn:aws:s3:::bkt/a/shop.bak".into(), 1));
        assert_eq!(one("s3://bkt/shop-*.bak", Some(10)).unwrap(), ("arn:aws:s3:::bkt/shop-*.bak".into(), 10));
        for (place, stripes) in [
            ("s3://bkt/shop.bak", Some(2)),
            ("s3://bkt/shop-*.bak", None),
            ("s3://bkt/shop-*.bak", Some(11)),
            ("s3://bkt/shop-*.bak", Some(0)),
            ("s3://bkt/", None),
            ("s3://h:9000/k", None),
            ("server:/a.bak", None),
            ("s3://bkt/a\n", None),
        ] {
            assert!(one(place, stripes).is_err(), "{place} {stripes:?}");
        }
        assert!(arn(&texts(&["s3://bkt/a", "s3://bkt/b"]), None).is_err());
    }
}
