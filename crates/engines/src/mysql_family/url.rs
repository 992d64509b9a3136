//! `mysql://user@host:port/?option=value` and `mariadb://…`: the address of a server, never with a password.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::{Error, Result};

use super::Dialect;
use crate::engine::server_url::{URL_MAX, decoded, host_and_port};
use crate::engine::{Identity, Stems};

/// The port of MySQL and MariaDB if the URL names none.
pub const DEFAULT_PORT: u16 = 3306;

/// The greatest `read-timeout`, in seconds.
const READ_TIMEOUT_MAX: u64 = 86_400;

const FORM: &str = "write mysql://USER@HOST:PORT/?ssl-mode=required, or mysql://USER@/?socket=PATH";
const BAD_HOST: &str = "the host is not a name or an address; write an IPv6 address in brackets";
const PASSWORD_HINT: &str = "remove it from the URL, because `ps` and the shell's history show it; use \
                             --password-file, FULLBORE_PASSWORD or ~/.my.cnf";

/// How the server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Over TCP.
    Tcp {
        /// Name or address, an IPv6 address without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// Over a Unix socket on this machine.
    Socket(PathBuf),
}

/// The required level of TLS: MySQL's own `--ssl-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// Never.
    Disabled,
    /// If the server has it; never on a Unix socket. Protects against listeners only.
    #[default]
    Preferred,
    /// Always, but the identity of the server is not checked.
    Required,
    /// Always, and the certificate is signed by `ssl-ca`.
    VerifyCa,
    /// The same, and the certificate has the host's name.
    VerifyIdentity,
}

impl TlsMode {
    const ALL: [(&'static str, TlsMode); 5] = [
        ("disabled", TlsMode::Disabled),
        ("preferred", TlsMode::Preferred),
        ("required", TlsMode::Required),
        ("verify-ca", TlsMode::VerifyCa),
        ("verify-identity", TlsMode::VerifyIdentity),
    ];
}

impl fmt::Display for TlsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, mode)| mode == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// The options of the URL for TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsOptions {
    /// `ssl-mode`
    pub mode: TlsMode,
    /// `ssl-ca`: a PEM file with the certificate of the authority.
    pub authority: Option<PathBuf>,
    /// `get-server-public-key`: without TLS, trust the RSA key that the server sends.
    pub accept_server_key: bool,
}

/// A server, as a URL names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// The scheme.
    pub dialect: Dialect,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// The account, if the URL names it.
    pub user: Option<String>,
    /// The one database that is meant, if the URL names it.
    pub database: Option<String>,
    /// TLS.
    pub tls: TlsOptions,
    /// `datadir` (MariaDB): where its files are on this machine.
    pub datadir: Option<PathBuf>,
    /// `read-timeout`: how long the server may be silent, in every operation.
    pub read_timeout: Option<Duration>,
}

impl ServerAddress {
    /// Parses a URL. Errors never repeat a part that could be a password.
    pub fn parse(url: &str) -> Result<Self> {
        let named = url.split_once("://").and_then(|(scheme, rest)| Some((Dialect::named(scheme)?, rest)));
        let Some((dialect, rest)) = named else {
            return Err(Error::usage("the database's URL", "it is not the URL of a MySQL or MariaDB server", FORM));
        };
        if url.len() > URL_MAX || rest.contains('#') || rest.chars().any(char::is_control) {
            return Err(wrong("it is too long, or contains `#` or control characters"));
        }
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = before.split_once('/').unwrap_or((before, ""));
        // The last @: a password may contain one, and must not appear as a host in an error.
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err(Error::usage("the database's URL", "it contains a password", PASSWORD_HINT));
        }
        if path.contains('/') {
            return Err(wrong("after the host only `/` and the name of a database may follow"));
        }
        let database = Some(decoded(path, "the database")?).filter(|name| !name.is_empty());
        let user = user.map(|user| decoded(user, "the user")).transpose()?.filter(|user| !user.is_empty());
        let (host, port) = host_and_port(place, BAD_HOST, wrong)?;
        let host = Some(host).filter(|host| !host.is_empty());
        let tcp = Endpoint::Tcp { host: host.unwrap_or("localhost").to_owned(), port: port.unwrap_or(DEFAULT_PORT) };
        let tls = TlsOptions::default();
        let mut address = Self { dialect, endpoint: tcp, user, database, tls, datadir: None, read_timeout: None };
        // The end of a password with a `?` looks like options: an error of `mysql://u:12?34=5@h` repeats nothing.
        let repeatable = !query.contains('@');
        for option in query.split('&').filter(|option| !option.is_empty()) {
            address.set(option, host.is_some() || port.is_some(), repeatable)?;
        }
        let verifies = matches!(address.tls.mode, TlsMode::VerifyCa | TlsMode::VerifyIdentity);
        if address.tls.authority.is_some() && !verifies {
            let hint = "add ssl-mode=verify-ca or ssl-mode=verify-identity";
            return Err(Error::usage("ssl-ca", "it has no effect with this ssl-mode", hint));
        }
        Ok(address)
    }

    fn set(&mut self, option: &str, has_host: bool, repeatable: bool) -> Result<()> {
        let Some((name, value)) = option.split_once('=') else {
            return Err(wrong("an option has no `=` and no value"));
        };
        let value = || decoded(value, name);
        match name {
            "ssl-mode" => {
                let value = value()?;
                let known = TlsMode::ALL.iter().find(|(name, _)| *name == value);
                let names = TlsMode::ALL.map(|(name, _)| name).join(", ");
                // In a malformed URL the value may be anything, so it is not repeated.
                let unknown = || Error::usage(name, "its value is not a mode", format!("known modes: {names}"));
                self.tls.mode = known.ok_or_else(unknown)?.1;
            }
            "ssl-ca" => self.tls.authority = Some(absolute(name, &value()?)?),
            "get-server-public-key" => {
                self.tls.accept_server_key = match value()?.as_str() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(Error::usage(name, "its value is neither true nor false", FORM)),
                }
            }
            "socket" if has_host => {
                let hint = format!("leave the host out: {}://USER@/?socket=PATH", self.dialect.name());
                return Err(Error::usage("socket", "a socket is on this machine and has no host", hint));
            }
            "socket" => self.endpoint = Endpoint::Socket(absolute(name, &value()?)?),
            "datadir" if self.dialect == Dialect::MariaDb => self.datadir = Some(absolute(name, &value()?)?),
            "read-timeout" => {
                let seconds = value()?.parse().ok().filter(|seconds| (1..=READ_TIMEOUT_MAX).contains(seconds));
                let unknown = || Error::usage(name, "its value is not a number of seconds from 1 to 86400", FORM);
                self.read_timeout = Some(Duration::from_secs(seconds.ok_or_else(unknown)?));
            }
            "password" | "passwd" | "pwd" => {
                return Err(Error::usage("the database's URL", "it contains a password", PASSWORD_HINT));
            }
            _ => {
                let datadir = if self.dialect == Dialect::MariaDb { ", datadir" } else { "" };
                let own = crate::named(self.dialect.name()).map_or_else(String::new, crate::engine::option_names);
                let known = format!(
                    "known options: ssl-mode, ssl-ca, get-server-public-key, read-timeout, socket{datadir}, {own}"
                );
                let why = match repeatable && name.chars().all(|c| matches!(c, 'a'..='z' | '-' | '_')) {
                    true => format!("`{}` is not an option", name.chars().take(40).collect::<String>()),
                    false => "it contains an unknown option".to_owned(),
                };
                return Err(Error::usage("the database's URL", why, known));
            }
        }
        Ok(())
    }

    /// The server's name for people: `mysql://host:3306`, or the socket's path.
    pub fn name(&self) -> String {
        let scheme = self.dialect.name();
        match &self.endpoint {
            Endpoint::Tcp { host, port } if host.contains(':') => format!("{scheme}://[{host}]:{port}"),
            Endpoint::Tcp { host, port } => format!("{scheme}://{host}:{port}"),
            Endpoint::Socket(path) => format!("{scheme}:{}", path.display()),
        }
    }
}

fn wrong(why: &str) -> Error {
    Error::usage("the database's URL", why, FORM)
}

fn absolute(name: &str, value: &str) -> Result<PathBuf> {
    if value.starts_with('/') {
        return Ok(PathBuf::from(value));
    }
    Err(Error::usage(name, "it must be an absolute path", format!("write {name}=/path/to/it")))
}

/// The name of the server in `url`, without account and options: each account sees the same server. One database of it
/// is another database than the server, with its own chain.
pub fn server_identity(url: &str) -> Identity {
    let rest = url.split_once(':').map_or(url, |(_, rest)| rest);
    let server = rest.strip_prefix("//").unwrap_or(rest);
    let (place, query) = server.split_once('?').unwrap_or((server, ""));
    let (place, database) = place.split_once('/').unwrap_or((place, ""));
    let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
    let socket = query.split('&').find_map(|option| option.strip_prefix("socket="));
    // A server on this machine, by its socket.
    let name = if host.is_empty() { socket.unwrap_or("localhost") } else { host };
    let name = if database.is_empty() { name.to_owned() } else { format!("{name}/{database}") };
    Identity { written: name.clone(), name, files: Vec::new() }
}

/// How the names of a server's families begin: its host and port, or its socket, in letters that every file system
/// takes.
pub fn server_stems(engine: &str, name: &str) -> Stems {
    let earlier = name.replace(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.', "-");
    Stems::new(earlier, &format!("{engine}-"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.into(), port }
    }

    #[test]
    fn host_port_user_and_options_are_understood() {
        let address =
            ServerAddress::parse("mysql://backup@db1.example:3307/?ssl-mode=verify-ca&ssl-ca=/etc/ca.pem").unwrap();
        assert_eq!(address.endpoint, tcp("db1.example", 3307));
        assert_eq!(address.user.as_deref(), Some("backup"));
        assert_eq!((address.tls.mode, address.dialect), (TlsMode::VerifyCa, Dialect::MySql));
        assert_eq!(address.tls.authority, Some("/etc/ca.pem".into()));
        assert_eq!(ServerAddress::parse("mysql://").unwrap().endpoint, tcp("localhost", 3306));
        assert_eq!(ServerAddress::parse("mysql://u@[::1]:3308").unwrap().endpoint, tcp("::1", 3308));
        let escaped =
            ServerAddress::parse("mariadb://b%40x@/?socket=/run/my%20sql.sock&datadir=/var/lib/mysql").unwrap();
        assert_eq!(escaped.endpoint, Endpoint::Socket("/run/my sql.sock".into()));
        assert_eq!((escaped.user.as_deref(), escaped.datadir), (Some("b@x"), Some("/var/lib/mysql".into())));
        let patient = ServerAddress::parse("mysql://u@h/?read-timeout=90").unwrap();
        assert_eq!(patient.read_timeout, Some(Duration::from_secs(90)));
        for wrong in ["0", "-1", "86401", "ten", ""] {
            let error = ServerAddress::parse(&format!("mysql://u@h/?read-timeout={wrong}")).unwrap_err().to_string();
            assert!(error.contains("read-timeout") && error.contains("seconds"), "{error}");
        }
    }

    #[test]
    fn a_password_is_refused_with_a_hint_and_never_repeated() {
        let urls =
            ["mysql://u:s3cret@h/", "mysql://u:s3c@ret@h", "mysql://u@h/?password=s3cret", "mariadb://:s3cret@h"];
        for url in urls {
            let error = ServerAddress::parse(url).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains("--password-file") && !text.contains("s3c"), "{text}");
            assert_eq!(error.exit_kind().exit_code(), 2);
        }
    }

    #[test]
    fn a_refused_value_appears_in_no_message() {
        let url = "mysql://u@h/?ssl-mode=requiredmysql://u:a-long-and-good-password@h";
        let error = ServerAddress::parse(url).unwrap_err().to_string();
        assert!(error.contains("ssl-mode") && !error.contains("password"), "{error}");
    }

    #[test]
    fn a_password_with_a_question_mark_appears_in_no_message() {
        for url in ["mysql://u:12?s3c=5@h/", "mysql://u:12?s3c@h/?x=1", "mysql://u:12?x=%s3c@h", "mysql://h?s3c%=1@x"] {
            let error = ServerAddress::parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3c"), "{error}");
        }
        let foreign = ServerAddress::parse("mysql://h?:ÄÖÜÄÖÜÄÖÜÄÖÜÄÖÜÄÖÜÄÖÜ@=").unwrap_err().to_string();
        assert!(!foreign.contains('Ä'), "{foreign}");
        let mistyped = ServerAddress::parse("mysql://u@h/?ssl_mode=required").unwrap_err().to_string();
        assert!(mistyped.contains("`ssl_mode`"), "{mistyped}");
    }

    #[test]
    fn a_url_without_a_server_is_a_usage_error() {
        for url in [
            "mysql:db",
            "postgres://h",
            "mysql://h:0",
            "mysql://h:70000",
            "mysql://h:x",
            "mysql://[::1",
            "mysql://[x]/",
            "mysql://[::1]x",
            "mysql://h/shop/item",
            "mysql://h/?ssl-mode=maybe",
            "mysql://h/?ssl-ca=ca.pem",
            "mysql://h/?x",
            "mysql://h/?ssl-ca=/ca.pem",
            "mysql://h/?ssl-mode=required&ssl-ca=/ca.pem",
            "mysql://h/?colour=red",
            "mysql://h/?socket=/s",
            "mysql://h/?datadir=/d",
            "mysql://u%4@h",
            "mysql://u%00@h",
            "mysql://h#x",
            "mysql://h\n/",
            "mysql://a b/",
        ] {
            let error = ServerAddress::parse(url).map(drop).unwrap_err();
            assert_eq!(error.exit_kind().exit_code(), 2, "{url}");
        }
        assert!(ServerAddress::parse(&format!("mysql://{}", "h".repeat(5000))).is_err());
    }
}
