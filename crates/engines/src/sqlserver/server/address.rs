//! `mssql://USER@HOST:PORT/DATABASE?option=value`: a database of a SQL Server, never with a password.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use fullbore_core::{Error, Result};
use zeroize::Zeroizing;

use super::browser::{BROWSER_PORT, INSTANCE_MAX};
use crate::engine::server_url::{URL_MAX, decoded, host_and_port};
use crate::engine::{check_password, password_file};

/// The port of SQL Server if the URL names none.
pub const DEFAULT_PORT: u16 = 1433;
/// The longest name of a login or database in SQL Server (`sysname`), in UTF-16 units.
pub const NAME_MAX: usize = 128;

const FORM: &str = "write mssql://USER@HOST:PORT/DATABASE";
const BAD_HOST: &str = "the host is not a name or an address; write an IPv6 address in brackets, a port as HOST:PORT, and a \
                        named instance as /DATABASE?instance=NAME";
const PASSWORD_HINT: &str =
    "remove it from the URL, because `ps` and the shell's history show it; use --password-file or FULLBORE_PASSWORD";

/// How the connection is encrypted: the words of SQL Server's own programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encrypt {
    /// Always, after the first packet.
    #[default]
    Mandatory,
    /// Always, before the first packet (TDS 8.0; SQL Server 2022).
    Strict,
    /// Never. Only to this machine.
    Never,
}

/// A database of a server, as a URL names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Name or address, an IPv6 address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The login.
    pub user: String,
    /// The database.
    pub database: String,
    /// `encrypt`.
    pub encrypt: Encrypt,
    /// `trust-server-certificate`: the certificate is not checked.
    pub trusts_any: bool,
    /// `certificate-authority`: a file with its certificate (.pem, .crt or .der).
    pub authority: Option<PathBuf>,
    /// `instance`: its port is asked for.
    pub instance: Option<String>,
    /// `browser-port`: the UDP port of SQL Server Browser.
    pub browser_port: u16,
    /// `kms-key`: the key that RDS encrypts the backup with.
    pub kms_key: Option<String>,
    /// `rds-task`: follow this task of RDS, and start none.
    pub rds_task: Option<i64>,
}

impl Address {
    /// Parses a URL. Errors never repeat a part that could be a password.
    ///
    /// # Errors
    /// It is not the URL of a database of SQL Server.
    pub fn parse(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("mssql://").ok_or_else(|| wrong("it does not begin with mssql://"))?;
        if url.len() > URL_MAX || rest.contains('#') || rest.chars().any(char::is_control) {
            return Err(wrong("it is too long, or contains `#` or control characters"));
        }
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = before.split_once('/').unwrap_or((before, ""));
        // The last @: a password may contain one, and must not appear as a host in an error.
        let (user, place) = authority.rsplit_once('@').ok_or_else(|| wrong("the login is missing"))?;
        if user.contains(':') {
            return Err(Error::usage("the database's URL", "it contains a password", PASSWORD_HINT));
        }
        let (host, port) = host_and_port(place, BAD_HOST, wrong)?;
        if host.is_empty() {
            return Err(wrong(BAD_HOST));
        }
        let mut address = Self {
            host: host.to_owned(),
            port: port.unwrap_or(DEFAULT_PORT),
            user: name(user, "the login")?,
            database: name(path.trim_end_matches('/'), "the database")?,
            encrypt: Encrypt::default(),
            trusts_any: false,
            authority: None,
            kms_key: None,
            rds_task: None,
            instance: None,
            browser_port: BROWSER_PORT,
        };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            address.set(option)?;
        }
        if address.instance.is_some() && port.is_some() {
            let why = "the URL has a port, and the port says which instance it is";
            return Err(Error::usage("instance", why, "leave out one of them"));
        }
        if address.instance.is_none() && address.browser_port != BROWSER_PORT {
            return Err(Error::usage("browser-port", "is for instance=NAME", "leave it out"));
        }
        if address.encrypt == Encrypt::Never && !address.is_on_this_machine() {
            let why = "the network could read the password";
            return Err(Error::usage("encrypt=never", why, "use it only with 127.0.0.1, ::1 or localhost"));
        }
        if address.encrypt == Encrypt::Strict && address.trusts_any {
            let why = "encrypt=strict always checks the certificate";
            return Err(Error::usage(
                "trust-server-certificate",
                why,
                "name its authority: certificate-authority=FILE",
            ));
        }
        if address.trusts_any && address.authority.is_some() {
            let why = "with trust-server-certificate=true no certificate is checked, and an authority has no effect";
            return Err(Error::usage("certificate-authority", why, "leave out one of them"));
        }
        Ok(address)
    }

    fn set(&mut self, option: &str) -> Result<()> {
        let (name, value) = option.split_once('=').ok_or_else(|| wrong("an option has no `=` and no value"))?;
        let value = decoded(value, name)?;
        match name {
            "encrypt" => {
                self.encrypt = match value.as_str() {
                    "mandatory" => Encrypt::Mandatory,
                    "strict" => Encrypt::Strict,
                    "never" => Encrypt::Never,
                    _ => return Err(Error::usage(name, "its value is not mandatory, strict or never", FORM)),
                }
            }
            "trust-server-certificate" => {
                self.trusts_any = match value.as_str() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(Error::usage(name, "its value is neither true nor false", FORM)),
                }
            }
            "certificate-authority" if value.starts_with('/') => self.authority = Some(PathBuf::from(value)),
            "certificate-authority" => {
                return Err(Error::usage(name, "it must be an absolute path", format!("write {name}=/path/to/ca.pem")));
            }
            "rds-task" => {
                let task = value.parse().ok().filter(|task| *task > 0);
                self.rds_task = Some(task.ok_or_else(|| wrong("rds-task is not the number of a task"))?);
            }
            "instance" if is_instance(&value) => self.instance = Some(value),
            "instance" => {
                return Err(Error::usage(name, "it is not the name of an instance", "write instance=SQLEXPRESS"));
            }
            "browser-port" => {
                let port = value.parse().ok().filter(|port| *port != 0);
                self.browser_port = port.ok_or_else(|| wrong("browser-port is not a number from 1 to 65535"))?;
            }
            "kms-key" => self.kms_key = Some(value).filter(|key| !key.is_empty()),
            "password" | "pwd" => {
                return Err(Error::usage("the database's URL", "it contains a password", PASSWORD_HINT));
            }
            _ => {
                let known = "known options: encrypt, trust-server-certificate, certificate-authority, instance, \
                             browser-port, kms-key, rds-task, rds, password-file";
                return Err(Error::usage("the database's URL", "it contains an unknown option", known));
            }
        }
        Ok(())
    }

    fn is_on_this_machine(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    }

    /// The server's name for people.
    pub fn name(&self) -> String {
        match self.host.contains(':') {
            true => format!("mssql://[{}]:{}", self.host, self.port),
            false => format!("mssql://{}:{}", self.host, self.port),
        }
    }
}

/// The name of the database in `url`, without account and options. An instance is a part of the server's name.
pub fn identity(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let place = before.rsplit_once('@').map_or(before, |(_, place)| place).trim_end_matches('/');
    let instance = query.split('&').find_map(|option| option.strip_prefix("instance="));
    match (instance, place.split_once('/')) {
        (Some(instance), Some((host, database))) => format!("{host}\\{instance}/{database}"),
        _ => place.to_owned(),
    }
}

/// True for a name that an instance of SQL Server may have.
fn is_instance(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_$#".contains(letter);
    (1..=INSTANCE_MAX).contains(&name.len()) && name.chars().all(plain)
}

/// The password of the login: `--password-file`, else `FULLBORE_PASSWORD`.
///
/// # Errors
/// The file cannot be read, or there is no password.
pub fn password(file: Option<&Path>, environment: Option<Zeroizing<String>>) -> Result<Zeroizing<String>> {
    let text = match file {
        Some(path) => {
            let bytes = password_file(path)?;
            let text = std::str::from_utf8(&bytes).map(str::to_owned).map(Zeroizing::new);
            let thing = path.display().to_string();
            text.map_err(|_| Error::usage(thing, "the password is not UTF-8 text", "save the file as UTF-8"))?
        }
        None => environment.ok_or_else(|| {
            let hint = "use --password-file FILE or the environment variable FULLBORE_PASSWORD";
            Error::usage("the password", "is not known", hint)
        })?,
    };
    check_password(text.as_bytes())?;
    Ok(text)
}

fn wrong(why: &str) -> Error {
    Error::usage("the database's URL", why, FORM)
}

/// A name with at most 128 characters, decoded.
fn name(text: &str, what: &str) -> Result<String> {
    let text = decoded(text, what)?;
    if text.is_empty() || text.encode_utf16().count() > NAME_MAX || text.chars().any(char::is_control) {
        return Err(Error::usage(what, "its name is missing, or has more than 128 or strange characters", FORM));
    }
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn host_port_login_database_and_options_are_understood() {
        let address = Address::parse("mssql://sa@db1.example:1434/shop%20a?trust-server-certificate=true").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("db1.example", 1434));
        assert_eq!((address.user.as_str(), address.database.as_str()), ("sa", "shop a"));
        assert!(address.trusts_any && address.encrypt == Encrypt::Mandatory);
        let plain = Address::parse("mssql://CORP%5Cbackup@[::1]/shop/?encrypt=never").unwrap();
        assert_eq!(
            (plain.port, plain.user.as_str(), plain.name()),
            (1433, "CORP\\backup", "mssql://[::1]:1433".into())
        );
        assert_eq!(identity("mssql://sa@db1:1433/shop?rds=true"), "db1:1433/shop");
        let named = Address::parse("mssql://sa@db1/shop?instance=SQLEXPRESS").unwrap();
        assert_eq!((named.instance.as_deref(), named.browser_port), (Some("SQLEXPRESS"), 1434));
        assert_eq!(identity("mssql://sa@db1/shop?encrypt=strict&instance=B"), "db1\\B/shop");
        let ca = Address::parse("mssql://sa@h/shop?encrypt=strict&certificate-authority=/etc/ca.pem").unwrap();
        assert_eq!(ca.authority, Some("/etc/ca.pem".into()));
    }

    #[test]
    fn a_password_is_refused_with_a_hint_and_never_repeated() {
        for url in [
            "mssql://sa:s3cret@h/shop",
            "mssql://sa:s3c@ret@h/shop",
            "mssql://sa@h/shop?password=s3cret",
            "mssql://sa:12?s3c=5@h/shop",
        ] {
            let error = Address::parse(url).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(!text.contains("s3c"), "{text}");
            assert_eq!(error.exit_kind().exit_code(), 2);
        }
        assert!(Address::parse("mssql://sa:x@h/shop").unwrap_err().to_string().contains("--password-file"));
    }

    #[test]
    fn a_url_without_a_database_of_a_server_is_a_usage_error() {
        for url in [
            "mssql:shop",
            "mysql://sa@h/shop",
            "mssql://h/shop",
            "mssql://sa@h",
            "mssql://sa@h/",
            "mssql://@h/shop",
            "mssql://sa@/shop",
            "mssql://sa@h:0/shop",
            "mssql://sa@h:70000/shop",
            "mssql://sa@h\\i/shop",
            "mssql://sa@[::1/shop",
            "mssql://sa@[x]/shop",
            "mssql://sa@[::1]x/shop",
            "mssql://sa@h/shop#x",
            "mssql://sa@h/shop\n",
            "mssql://sa@h/sh%00op",
            "mssql://sa@h/sh%op",
            "mssql://sa@h/shop?x",
            "mssql://sa@h/shop?colour=red",
            "mssql://sa@h/shop?rds-task=0",
            "mssql://sa@h/shop?rds-task=x",
            "mssql://sa@h/shop?instance=",
            "mssql://sa@h/shop?instance=a;b",
            "mssql://sa@h:1433/shop?instance=A",
            "mssql://sa@h/shop?browser-port=5",
            "mssql://sa@h/shop?instance=A&browser-port=0",
            "mssql://sa@h/shop?encrypt=maybe",
            "mssql://sa@h/shop?encrypt=never",
            "mssql://sa@h/shop?certificate-authority=ca.pem",
            "mssql://sa@h/shop?encrypt=strict&trust-server-certificate=true",
            "mssql://sa@h/shop?trust-server-certificate=true&certificate-authority=/ca.pem",
            "mssql://sa@h/shop?certificate-authority=/ca.pem&trust-server-certificate=true&encrypt=mandatory",
            "mssql://sa@127.0.0.1/shop?certificate-authority=/ca.pem&trust-server-certificate=true&encrypt=never",
            "mssql://sa@h/shop?certificate-authority=/ca.pem&trust-server-certificate=true&encrypt=strict",
        ] {
            assert_eq!(Address::parse(url).map(drop).unwrap_err().exit_kind().exit_code(), 2, "{url}");
        }
        assert!(Address::parse(&format!("mssql://sa@h/{}", "d".repeat(129))).is_err());
    }

    #[test]
    fn the_password_file_comes_before_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "from file\n").unwrap();
        let environment = || Some(Zeroizing::new("from environment".to_owned()));
        assert_eq!(*password(Some(&file), environment()).unwrap(), "from file");
        assert_eq!(*password(None, environment()).unwrap(), "from environment");
        assert!(password(None, None).unwrap_err().to_string().contains("--password-file"));
        std::fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(password(Some(&file), None).is_err());
    }
}
