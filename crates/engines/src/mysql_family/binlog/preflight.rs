//! What is asked of a server before its log is read.

use std::time::Instant;

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::end::{End, Place, server_of};
use crate::Options;
use crate::engine::FAIL_OVER_FROM;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::credentials::Credentials;
use crate::mysql_family::logical_set::server::Login;
use crate::mysql_family::server_defaults::ServerDefaults;
use crate::mysql_family::system_zone::SystemZone;
use crate::mysql_family::url::ServerAddress;

/// The lowest id that is drawn for a session: real servers have small ids.
const LOWEST_ID: u32 = 0xF000_0000;

/// A server with a binary log.
pub struct Server {
    address: ServerAddress,
    credentials: std::sync::Arc<Credentials>,
    halt: Option<Halt>,
    /// MySQL or MariaDB.
    pub dialect: Dialect,
    /// Whose log it is: MySQL's `server_uuid`, or MariaDB's id and base name.
    pub identity: String,
    /// The server's version.
    pub version: String,
    /// The server's data directory.
    pub datadir: String,
    /// Its system time zone.
    pub system_zone: Option<SystemZone>,
    /// Its settings that statements depend on.
    pub defaults: ServerDefaults,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// The id and the UUID of our sessions: of no real replica, which the server would push out.
    pub server_id: u32,
    /// The UUID.
    pub uuid: Uuid,
    /// It may continue the log of another server: `--fail-over-from`.
    may_fail_over: bool,
}

impl Server {
    /// Connects, and checks that the server has a log that can be followed.
    ///
    /// # Errors
    /// The server cannot be reached, or has no usable binary log.
    pub fn open(dialect: Dialect, url: &str, options: &Options) -> Result<(Self, Connection)> {
        let login = Login::of(url, &options.given, options.halt.clone())?;
        // A URL of a follower or a session begins with the engine's name.
        debug_assert_eq!(login.address.dialect, dialect);
        let (server, connection) = Self::of(&login)?;
        Ok((Self { may_fail_over: options.given.text(&FAIL_OVER_FROM).is_some(), ..server }, connection))
    }

    /// The same with a login.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of(login: &Login) -> Result<(Self, Connection)> {
        let Login { address, credentials, halt } = login.clone();
        let mut connection = Connection::open_patient(&address, &credentials, halt.clone())?;
        let uuid = Uuid::new_v4();
        let random = uuid.as_u128() as u32;
        let mut server = Self {
            dialect: address.dialect,
            address,
            credentials,
            halt,
            identity: String::new(),
            version: String::new(),
            datadir: String::new(),
            system_zone: None,
            defaults: ServerDefaults::default(),
            warnings: Vec::new(),
            server_id: LOWEST_ID | random >> 4,
            uuid,
            may_fail_over: false,
        };
        server.ask(&mut connection)?;
        Ok((server, connection))
    }

    /// Another connection, ready for a dump of the log.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn connect(&self) -> Result<Connection> {
        let mut connection = Connection::open_patient(&self.address, &self.credentials, self.halt.clone())?;
        // `rpl_semi_sync_…` is never set: the server would wait for answers of this program.
        connection.query(&match self.dialect {
            Dialect::MySql => format!(
                "SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32', @replica_uuid = '{0}', \
                 @slave_uuid = '{0}'",
                self.uuid
            ),
            Dialect::MariaDb => "SET @master_binlog_checksum = 'CRC32', @mariadb_slave_capability = 4".to_owned(),
        })?;
        Ok(connection)
    }

    /// Whether a set ends in the log of another server, which this server may continue.
    pub fn fails_over_from(&self, base: &End) -> bool {
        self.may_fail_over && base.server != self.identity
    }

    /// The server's name, for errors.
    pub fn name(&self) -> String {
        self.address.name()
    }

    fn ask(&mut self, connection: &mut Connection) -> Result<()> {
        let identity = match self.dialect {
            Dialect::MySql => "@@server_uuid",
            Dialect::MariaDb => "@@log_bin_basename",
        };
        let asked = format!("SELECT @@version, @@log_bin, @@binlog_format, @@server_id, @@datadir, {identity}");
        let answer = connection.query(&asked)?;
        let value = |column| answer.value(0, column).unwrap_or_default().to_owned();
        self.version = value(0);
        self.datadir = value(4);
        self.system_zone = Some(SystemZone::ask(connection)?);
        self.defaults = ServerDefaults::ask(connection)?;
        if value(1) != "1" {
            let why = "the server writes no binary log (log_bin = OFF)";
            let hint = "start it with --log-bin and take a full; or take differentials";
            return Err(Error::refused(self.name(), why, hint));
        }
        let statements = value(2).eq_ignore_ascii_case("STATEMENT");
        self.warnings.extend(statements.then(|| {
            "binlog_format is STATEMENT: a restore runs statements again, and some give other rows then; set it to ROW"
                .to_owned()
        }));
        self.identity = match self.dialect {
            Dialect::MySql => value(5),
            Dialect::MariaDb => {
                let path = value(5);
                let base = path.rsplit('/').next().unwrap_or_default();
                server_of(value(3).parse().unwrap_or(0), &format!("{base}.000001"))
            }
        };
        if let Some(Status { filters: Some(filters), .. }) = status(connection)? {
            let why = format!("its binary log leaves out databases ({filters})");
            let hint = "remove binlog_do_db and binlog_ignore_db: a restore from such a log lacks their changes";
            return Err(Error::refused(self.name(), why, hint));
        }
        Ok(())
    }
}

/// The end of the server's log now.
pub struct Status {
    /// The current file.
    pub file: String,
    /// Its length.
    pub offset: u64,
    /// The databases that are left out, if any are.
    pub filters: Option<String>,
}

/// Asks for the end of the log; `None` if the account may not ask.
///
/// # Errors
/// The connection is lost.
pub fn status(connection: &mut Connection) -> Result<Option<Status>> {
    // Since MySQL 8.4 the old words are gone.
    for words in ["SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"] {
        match connection.query(words) {
            Ok(answer) => {
                let text = |column| answer.value(0, column).unwrap_or_default();
                let filters: Vec<String> = [("binlog_do_db", text(2)), ("binlog_ignore_db", text(3))]
                    .iter()
                    .filter(|(_, value)| !value.is_empty())
                    .map(|(name, value)| format!("{name} = {value}"))
                    .collect();
                let filters = (!filters.is_empty()).then(|| filters.join(", "));
                let offset = text(1).parse().unwrap_or(0);
                return Ok(Some(Status { file: text(0).to_owned(), offset, filters }));
            }
            Err(Failure::Server(_)) => {}
            Err(Failure::Fault(error)) => return Err(error),
        }
    }
    Ok(None)
}

/// The server's clock at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// What it showed, in microseconds since 1970.
    pub now: i64,
    /// When it was asked.
    asked: Instant,
    /// By how much it is ahead of the clock of this host, in microseconds.
    pub ahead: i64,
}

impl Clock {
    /// Asks the server.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn ask(connection: &mut Connection) -> Result<Self> {
        let answer = connection.query("SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)")?;
        let now: Option<i64> = answer.single().and_then(|text| text.parse().ok());
        let now = now.ok_or_else(|| connection.broken("it does not tell the time"))?;
        Ok(Self { now, asked: Instant::now(), ahead: now.saturating_sub(jiff::Timestamp::now().as_microsecond()) })
    }

    /// What it shows now, in microseconds since 1970, if nobody has set it.
    pub fn current(&self) -> i64 {
        self.now.saturating_add(i64::try_from(self.asked.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}

/// Whether the log has more than `place`; unknown places count as more.
pub fn is_beyond(status: &Status, place: &Place) -> bool {
    (status.file.as_str(), status.offset) != (place.file.as_str(), place.offset)
}
