//! The server of a logical backup or of a load: its facts, and the settings of a connection.

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};

use crate::GivenOptions;
use crate::mysql_family::Dialect;
use crate::mysql_family::account::Grants;
use crate::mysql_family::connection::{Connection, Failure, Fetched, take_value};
use crate::mysql_family::credentials::{Credentials, PasswordSources};
use crate::mysql_family::logical::dump;
use crate::mysql_family::server_options::PASSWORD_FILE;
use crate::mysql_family::url::ServerAddress;
use crate::mysql_family::version::{is_at_least, series};

/// The longest row of a description, in bytes.
const DESCRIPTION_MAX: usize = 15 << 20;

/// How a server is reached.
#[derive(Clone)]
pub struct Login {
    /// Where.
    pub address: ServerAddress,
    /// As whom.
    pub credentials: std::sync::Arc<Credentials>,
    /// Ends all waiting.
    pub halt: Option<Halt>,
}

impl Login {
    /// From a URL and the options.
    ///
    /// # Errors
    /// The URL is wrong, or the password cannot be read.
    pub fn of(url: &str, given: &GivenOptions, halt: Option<Halt>) -> Result<Self> {
        let address = ServerAddress::parse(url)?;
        let sources = PasswordSources::of_this_process(given.file(&PASSWORD_FILE).map(Into::into));
        let credentials = std::sync::Arc::new(Credentials::find(&address, &sources)?);
        Ok(Self { address, credentials, halt })
    }

    /// A connection that asks for names and definitions: all texts are UTF-8.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn ask(&self) -> Result<Connection> {
        let mut connection = self.read()?;
        connection.query("SET NAMES utf8mb4")?;
        Ok(connection)
    }

    /// A connection that reads rows: values come as they are stored.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn read(&self) -> Result<Connection> {
        let mut connection = Connection::open_patient(&self.address, &self.credentials, self.halt.clone())?;
        demand_vendor(&connection, self.address.dialect)?;
        for statement in dump::session(self.address.dialect) {
            connection.query(&statement)?;
        }
        connection.query("SET SESSION net_write_timeout = 3600, net_read_timeout = 3600")?;
        Ok(connection)
    }
}

/// The server is one of this vendor.
///
/// # Errors
/// It is a server of the other vendor.
pub fn demand_vendor(connection: &Connection, dialect: Dialect) -> Result<()> {
    let greeting = connection.greeting();
    let found = if greeting.is_mariadb() { Dialect::MariaDb } else { Dialect::MySql };
    if found == dialect {
        return Ok(());
    }
    let why = format!("the server is a {} server ({})", found.title(), greeting.own_version());
    Err(Error::usage(connection.name(), why, format!("write {}://…", found.name())))
}

/// The facts about a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// MySQL or MariaDB.
    pub dialect: Dialect,
    /// As it names itself.
    pub version: String,
    /// Major and minor number.
    pub series: (u16, u16),
    /// Where it runs.
    pub hostname: String,
    /// Its number in replication.
    pub server_id: u64,
    /// Its UUID; MariaDB has none.
    pub server_uuid: String,
    /// How it compares names.
    pub lower_case_table_names: u8,
    /// Whether it writes a binary log.
    pub binary_log: bool,
    /// The longest packet, in bytes.
    pub max_allowed_packet: u64,
    /// The privileges of the account.
    pub grants: Grants,
}

/// A server that tells names apart by their case must not apply the log of a server that does not: a statement that names
/// `Shop` would not find `shop`. `of_source`: `lower_case_table_names` there.
///
/// # Errors
/// The server does.
pub fn demand_case(connection: &mut Connection, of_source: u64) -> Result<()> {
    if of_source == 0 || connection.query("SELECT @@lower_case_table_names")?.single() != Some("0") {
        return Ok(());
    }
    let why =
        format!("it tells names apart by their case, and the source does not (lower_case_table_names = {of_source})");
    let hint = "apply the log to a server with lower_case_table_names = 1, or move the rows without the log";
    Err(Error::refused(connection.name(), why, hint))
}

impl Facts {
    /// Asks the server.
    ///
    /// # Errors
    /// It refuses, or it is a server of the other vendor.
    pub fn ask(connection: &mut Connection, dialect: Dialect) -> Result<Self> {
        demand_vendor(connection, dialect)?;
        let version = connection.greeting().own_version().to_owned();
        let uuid = if dialect == Dialect::MySql { "@@server_uuid" } else { "''" };
        let answer = connection.query(&format!(
            "SELECT @@hostname, @@server_id, {uuid}, @@lower_case_table_names, @@log_bin, @@max_allowed_packet"
        ))?;
        let text = |column| answer.value(0, column).unwrap_or_default().to_owned();
        let number = |column| answer.value(0, column).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        Ok(Self {
            dialect,
            series: series(&version),
            version,
            hostname: text(0),
            server_id: number(1),
            server_uuid: text(2),
            lower_case_table_names: u8::try_from(number(3)).unwrap_or(0),
            binary_log: number(4) == 1,
            max_allowed_packet: number(5),
            grants: Grants::ask(connection)?,
        })
    }

    /// Whether its version is this one or a later one.
    pub fn is_at_least(&self, version: [u16; 3]) -> bool {
        is_at_least(&self.version, version)
    }

    /// The server with its version, for people.
    pub fn named(&self) -> String {
        format!("{} {}", self.dialect.title(), self.version.trim_end_matches("-MariaDB"))
    }

    /// Whether the account may see every database. A partial revoke takes some away.
    pub fn sees_everything(&self) -> bool {
        let everywhere = ["ALL PRIVILEGES", "SELECT"].iter().any(|privilege| self.grants.globally(privilege));
        everywhere && !self.grants.0.iter().any(|grant| grant.starts_with("REVOKE "))
    }

    /// The privilege that the account lacks to see the routines of all accounts, if it lacks one.
    pub fn lacks_for_routines(&self) -> Option<&'static str> {
        let globally = |privilege: &&str| self.grants.globally(privilege);
        let sees_all = match self.dialect {
            Dialect::MySql => ["SHOW_ROUTINE", "SELECT", "ALL PRIVILEGES"].iter().any(globally),
            Dialect::MariaDb => self.allows("mysql", "SELECT") || globally(&"SHOW CREATE ROUTINE"),
        };
        let privilege = if self.dialect == Dialect::MySql { "SHOW_ROUTINE" } else { "SHOW CREATE ROUTINE" };
        (!sees_all).then_some(privilege)
    }

    /// Whether the account has a privilege on a database.
    pub fn allows(&self, schema: &str, privilege: &str) -> bool {
        self.grants.on(schema, privilege)
    }
}

/// A row of texts; `None` is NULL.
pub type Texts = Vec<Option<Vec<u8>>>;

/// Calls `each` for each row of the next answer. No row is kept.
///
/// # Errors
/// The server refuses, a row is too long, or the error of `each`.
pub fn each_row(
    connection: &mut Connection,
    mut each: impl FnMut(&[Option<&[u8]>]) -> Result<()>,
) -> Result<(), Failure> {
    let mut rows = connection.rows(DESCRIPTION_MAX as u64)?;
    let mut row = Vec::new();
    loop {
        match rows.fetch(connection, &mut row, DESCRIPTION_MAX)? {
            Fetched::End => return Ok(()),
            Fetched::Long => return Err(connection.broken("it sent a description of more than 15 MiB").into()),
            Fetched::Row => {
                let mut rest = &row[..];
                let values: Option<Vec<Option<&[u8]>>> = (0..rows.columns()).map(|_| take_value(&mut rest)).collect();
                let values = values.ok_or_else(|| connection.broken("it sent an invalid row"))?;
                each(&values)?;
            }
        }
    }
}

/// The first row of the next answer.
///
/// # Errors
/// The server refuses.
pub fn first_row(connection: &mut Connection) -> Result<Option<Texts>, Failure> {
    let mut first = None;
    each_row(connection, |row| {
        if first.is_none() {
            first = Some(row.iter().map(|value| value.map(<[u8]>::to_vec)).collect());
        }
        Ok(())
    })?;
    Ok(first)
}
