//! The account for a server: its name and its password, which is never shown and is wiped after use.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use fullbore_core::io::{home, refuse_files_of_others};
use fullbore_core::{Error, Result};
use zeroize::{Zeroize, Zeroizing};

use super::url::ServerAddress;
use crate::engine::{check_password, password_file};

/// The longest user name that fits into the login; servers allow 32 (MySQL) or 128 (MariaDB) characters.
const USER_MAX: usize = 250;
/// The longest option file.
const OPTION_FILE_MAX: u64 = 1 << 20;

/// An account and its password.
#[derive(Clone)]
pub struct Credentials {
    user: String,
    password: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Where a password may come from, in this order: the file, the environment, the option file.
#[derive(Default)]
pub struct PasswordSources {
    /// `--password-file`: its content, without one line end.
    pub file: Option<PathBuf>,
    /// `FULLBORE_PASSWORD`.
    pub environment: Option<Zeroizing<String>>,
    /// `~/.my.cnf`: `user` and `password` in its group `[client]` or `[fullbore]`.
    pub option_file: Option<PathBuf>,
    /// The account if neither URL nor option file names one: the system's user.
    pub system_user: Option<String>,
}

impl PasswordSources {
    /// The sources of this process, and `--password-file`.
    pub fn of_this_process(file: Option<PathBuf>) -> Self {
        Self {
            file,
            environment: std::env::var("FULLBORE_PASSWORD").ok().map(Zeroizing::new),
            option_file: home().map(|home| home.join(".my.cnf")),
            system_user: std::env::var("USER").ok(),
        }
    }
}

impl Credentials {
    /// An account with this password.
    pub fn new(user: &str, password: &[u8]) -> Result<Self> {
        if user.len() > USER_MAX || user.contains('\0') {
            return Err(Error::usage("the user", "the name is too long for every server, or contains a zero byte", ""));
        }
        check_password(password)?;
        Ok(Self { user: user.to_owned(), password: Zeroizing::new(password.to_vec()) })
    }

    /// Finds account and password for `address`.
    pub fn find(address: &ServerAddress, sources: &PasswordSources) -> Result<Self> {
        let options = match &sources.option_file {
            Some(path) => OptionFile::read(path)?,
            None => OptionFile::default(),
        };
        let user = address.user.clone().or(options.user.clone()).or(sources.system_user.clone());
        let Some(user) = user else {
            return Err(Error::usage(address.name(), "the account is missing", "write mysql://USER@HOST"));
        };
        if let Some(path) = &sources.file {
            return Self::new(&user, &password_file(path)?);
        }
        let given = sources.environment.as_ref().or(options.password.as_ref());
        Self::new(&user, given.map_or(&[][..], |text| text.as_bytes()))
    }

    /// The account's name.
    pub fn user(&self) -> &str {
        &self.user
    }

    pub(crate) fn password(&self) -> &[u8] {
        &self.password
    }
}

/// User and password from an option file of the MySQL programs ("Using Option Files" in MySQL's manual).
#[derive(Default)]
struct OptionFile {
    user: Option<String>,
    password: Option<Zeroizing<String>>,
}

impl OptionFile {
    /// Reads it; empty if the file does not exist. A file that other users may change is refused: MySQL's programs
    /// ignore a world-writable one.
    fn read(path: &Path) -> Result<Self> {
        let thing = || path.display().to_string();
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Error::io("open", thing(), error)),
        };
        let metadata = file.metadata().map_err(|error| Error::io("look at", thing(), error))?;
        refuse_files_of_others(path)?;
        if metadata.len() > OPTION_FILE_MAX {
            return Err(Error::usage(thing(), "it is too long for an option file", ""));
        }
        let mut text = Zeroizing::new(Vec::with_capacity(metadata.len() as usize));
        let read = (&mut file).take(OPTION_FILE_MAX).read_to_end(&mut text);
        read.map_err(|error| Error::io("read", thing(), error))?;
        Ok(Self::parse(&Zeroizing::new(String::from_utf8_lossy(&text).into_owned())))
    }

    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let mut ours = false;
        for line in text.lines().map(str::trim) {
            if let Some(group) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                ours = matches!(group.trim(), "client" | "client-server" | "client-mariadb" | "fullbore");
            } else if let Some((name, value)) = line.split_once('=').filter(|_| ours && !line.starts_with(['#', ';'])) {
                match name.trim() {
                    "user" => found.user = Some(unquote(value)),
                    "password" => found.password = Some(Zeroizing::new(unquote(value))),
                    _ => {}
                }
            }
        }
        found
    }
}

/// The value without blanks and quotes around it, and with its escapes resolved. A comment may follow an unquoted
/// value.
fn unquote(value: &str) -> String {
    let value = value.trim();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let mut inner = match quote.and_then(|quote| value[1..].rfind(quote).map(|end| &value[1..=end])) {
        Some(inner) => inner.to_owned(),
        None => value.split(" #").next().unwrap_or(value).trim_end().to_owned(),
    };
    if inner.contains('\\') {
        let plain = unescape(&inner);
        inner.zeroize();
        inner = plain;
    }
    inner
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            plain.push(letter);
            continue;
        }
        match letters.next() {
            Some('b') => plain.push('\u{8}'),
            Some('t') => plain.push('\t'),
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('s') => plain.push(' '),
            Some(quoted @ ('\\' | '"' | '\'')) => plain.push(quoted),
            Some(other) => plain.extend(['\\', other]),
            None => plain.push('\\'),
        }
    }
    plain
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn address(url: &str) -> ServerAddress {
        ServerAddress::parse(url).unwrap()
    }

    #[test]
    fn the_file_comes_before_the_environment_and_that_before_the_option_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, options) = (folder.path().join("password"), folder.path().join("my.cnf"));
        fs::write(&file, "from file \r\n").unwrap();
        fs::write(&options, "[mysqld]\npassword=no\n[client]\nuser = cnf\npassword = \"from # cnf\" # x\n").unwrap();
        let mut sources = PasswordSources {
            file: Some(file),
            environment: Some(Zeroizing::new("from environment".into())),
            option_file: Some(options),
            system_user: Some("me".into()),
        };
        let find = |sources: &PasswordSources, url: &str| Credentials::find(&address(url), sources).unwrap();
        assert_eq!(find(&sources, "mysql://u@h").password(), b"from file ");
        sources.file = None;
        assert_eq!(find(&sources, "mysql://u@h").password(), b"from environment");
        sources.environment = None;
        assert_eq!(find(&sources, "mysql://u@h").password(), b"from # cnf");
        assert_eq!((find(&sources, "mysql://h").user(), find(&sources, "mysql://u@h").user()), ("cnf", "u"));
        sources.option_file = Some(folder.path().join("absent"));
        assert_eq!((find(&sources, "mysql://h").user(), find(&sources, "mysql://h").password()), ("me", &b""[..]));
    }

    #[test]
    fn no_password_is_shown() {
        let credentials = Credentials::new("backup", b"s3cret").unwrap();
        let text = format!("{credentials:?} {credentials:#?}");
        assert!(text.contains("backup") && !text.contains("s3cret"), "{text}");
        let error = Credentials::new("backup", &[b'x'; 2000]).unwrap_err().to_string();
        assert!(!error.contains("xx"), "{error}");
    }

    #[test]
    fn an_option_file_that_everybody_may_write_and_a_file_of_two_lines_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "one\ntwo\n").unwrap();
        assert!(password_file(&path).unwrap_err().to_string().contains("more than one line"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(OptionFile::read(&path).err().unwrap().to_string().contains("everybody"));
        assert!(password_file(&folder.path().join("absent")).is_err());
    }

    #[test]
    fn quotes_and_escapes_are_those_of_the_mysql_programs() {
        for (written, meant) in [
            ("plain", "plain"),
            ("'a b'", "a b"),
            ("\"it's\"", "it's"),
            (r"a\sb\\c", r"a b\c"),
            ("x # comment", "x"),
            ("a#b", "a#b"),
            ("\"open", "\"open"),
            ("\"", "\""),
            ("", ""),
            (r"\q", r"\q"),
        ] {
            assert_eq!(unquote(written), meant, "{written}");
        }
    }
}
