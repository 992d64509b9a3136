//! The session of a running server that takes a log.

use std::collections::HashMap;

use fullbore_core::{Error, Result};

use super::batch::binlog_statement;
use super::settings::{Names, Settings};
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::event::{HEADER, IN_USE, seal};
use crate::mysql_family::binlog::statement::Statement;
use crate::mysql_family::connection::{Connection, Failure, ServerError};
use crate::mysql_family::logical::names::literal;
use crate::mysql_family::server_defaults::ServerDefaults;
use crate::mysql_family::system_zone::{SYSTEM, SystemZone, ZoneOfSource};
use crate::mysql_family::version::{ENDS_LATER, series};

/// Statements whose answers are not read yet.
const AHEAD: usize = 4;
/// Where the body of that event has the version of its server, and how long it is.
const VERSION: (usize, usize) = (2, 50);
/// The offset of the time of the server's start in the body of the first event of a file.
const CREATED: usize = 52;
/// ER_BAD_DB_ERROR.
const NO_DATABASE: u32 = 1049;
const COM_INIT_DB: u8 = 2;

/// Why a step failed.
#[derive(Debug)]
pub enum Trouble {
    /// The server refuses; the connection is still good.
    Server(ServerError),
    /// An event or a statement cannot be applied.
    Odd(String),
    /// The connection is lost.
    Fault(Error),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Server(error) => Self::Server(error),
            Failure::Fault(error) => Self::Fault(error),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Fault(error)
    }
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Odd(why)
    }
}

/// The session.
pub struct Target {
    connection: Connection,
    dialect: Dialect,
    /// The longest event that fits into a packet, in bytes.
    longest: usize,
    /// The event that describes the format of the others, as the server has it.
    format: Vec<u8>,
    /// Current rows of system-versioned tables end in 2106 here.
    ends_later: bool,
    /// In the log, they end in 2038.
    ends_differ: bool,
    /// Which tables are system-versioned, as far as they were asked for since the last statement.
    versioned: HashMap<(String, String), bool>,
    /// The settings of statements.
    pub settings: Settings,
    /// The system time zone of the source.
    pub zone: ZoneOfSource,
    /// The default database, if it is known.
    database: Option<Vec<u8>>,
    awaited: usize,
}

impl Target {
    /// Asks whether the account may apply a log of `source`, and what a statement may be like.
    ///
    /// # Errors
    /// It may not, or the server is lost.
    pub fn begin(mut connection: Connection, [source, dialect]: [Dialect; 2], foreign: Option<Names>) -> Result<Self> {
        // The privilege is checked before the text.
        match connection.query("BINLOG ''") {
            Err(Failure::Server(error)) if error.is_denied() => {
                let privilege = if dialect == Dialect::MySql { "REPLICATION_APPLIER" } else { "BINLOG REPLAY" };
                let hint = format!("GRANT {privilege} ON *.* TO …");
                return Err(Error::refused(
                    connection.name(),
                    format!("the account may not apply a log: {error}"),
                    hint,
                ));
            }
            Err(Failure::Fault(error)) => return Err(error),
            _ => {}
        }
        if dialect == Dialect::MariaDb
            && connection.query("SELECT @@GLOBAL.slave_run_triggers_for_rbr")?.single() == Some("ENFORCE")
        {
            let why = "it runs triggers for the rows of a log (slave_run_triggers_for_rbr = ENFORCE), which have what the triggers of \
                       the source did";
            let hint = "SET GLOBAL slave_run_triggers_for_rbr = NO until the end";
            return Err(Error::refused(connection.name(), why, hint));
        }
        // The server would repeat the text of a whole batch in its log, for each event of the batch.
        let annotates = match dialect {
            Dialect::MySql => "binlog_rows_query_log_events",
            Dialect::MariaDb => "binlog_annotate_row_events",
        };
        connection.query_if_allowed(&format!("SET SESSION {annotates} = 0"))?;
        // What the source took, the target takes.
        for setting in ["innodb_strict_mode = 0", "restrict_fk_on_non_standard_key = 0"] {
            connection.set_if_taken(setting)?;
        }
        let packet = connection.query("SELECT @@max_allowed_packet")?;
        let packet: usize = packet.single().and_then(|text| text.parse().ok()).unwrap_or(1 << 20);
        let settings = Settings::begin(&mut connection, [source, dialect], foreign)?;
        let longest = (packet / 4 * 3).saturating_sub(4096);
        let greeting = connection.greeting();
        let ends_later = greeting.is_mariadb() && series(greeting.own_version()) >= ENDS_LATER;
        Ok(Self {
            connection,
            dialect,
            longest,
            format: Vec::new(),
            ends_later,
            ends_differ: false,
            versioned: HashMap::new(),
            settings,
            zone: ZoneOfSource::default(),
            database: None,
            awaited: 0,
        })
    }

    /// The system time zone and the settings of the server whose log follows.
    pub fn enter_source(&mut self, zone: Option<&SystemZone>, defaults: &ServerDefaults) {
        self.zone.become_that(zone);
        self.settings.enter_source(defaults);
    }

    /// The longest event that it takes, in bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The server's name.
    pub fn name(&self) -> &str {
        self.connection.name()
    }

    /// Sends a statement. Its answer is read later.
    ///
    /// # Errors
    /// An earlier statement was refused.
    pub fn send(&mut self, statement: String) -> Result<(), Failure> {
        while self.awaited >= AHEAD {
            self.answer()?;
        }
        self.connection.send_ahead(&[statement])?;
        self.awaited += 1;
        Ok(())
    }

    fn answer(&mut self) -> Result<(), Failure> {
        self.awaited -= 1;
        self.connection.answer().map(drop)
    }

    /// Reads all answers.
    ///
    /// # Errors
    /// A statement was refused.
    pub fn settle(&mut self) -> Result<(), Failure> {
        while self.awaited > 0 {
            self.answer()?;
        }
        Ok(())
    }

    /// Runs a statement.
    ///
    /// # Errors
    /// It was refused, or an earlier one.
    pub fn run(&mut self, statement: &[u8]) -> Result<(), Failure> {
        self.settle()?;
        self.connection.run_bytes(statement)
    }

    /// Runs a statement, and says how many rows it has changed.
    ///
    /// # Errors
    /// It was refused, or an earlier one.
    pub fn change(&mut self, statement: &[u8]) -> Result<u64, Failure> {
        self.settle()?;
        Ok(self.connection.change(statement)?.rows)
    }

    /// Sends the event that describes the format of those that follow, if the server does not have it.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn describe(&mut self, event: &[u8]) -> Result<(), Failure> {
        let mut event = event.to_vec();
        if let Some(flags) = event.get_mut(17) {
            *flags &= !(IN_USE as u8);
        }
        // Time and place say nothing about the format.
        event.iter_mut().take(4).for_each(|byte| *byte = 0);
        event.iter_mut().skip(13).take(4).for_each(|byte| *byte = 0);
        // Nor when the server was started: a replica would drop temporary tables then.
        event.iter_mut().skip(HEADER + CREATED).take(4).for_each(|byte| *byte = 0);
        seal(&mut event);
        if event == self.format {
            return Ok(());
        }
        self.run(binlog_statement(&event).as_bytes())?;
        if self.dialect == Dialect::MySql {
            // The statement has left it undetermined, as for a replica.
            self.connection.query_if_allowed("SET @@SESSION.gtid_next = 'AUTOMATIC'")?;
        }
        let version = event.get(HEADER + VERSION.0..HEADER + VERSION.0 + VERSION.1).unwrap_or_default();
        let version = String::from_utf8_lossy(version);
        self.ends_differ = self.ends_later && version.contains("MariaDB") && series(&version) < ENDS_LATER;
        self.format = event;
        Ok(())
    }

    /// Refuses rows of a system-versioned table if current rows end in another year here than in the log: the server would take
    /// them for earlier versions. A replica converts them.
    ///
    /// # Errors
    /// It is such a table.
    pub fn demand_ends(&mut self, schema: String, table: String) -> Result<(), Trouble> {
        if !self.ends_differ {
            return Ok(());
        }
        let shown = format!("{schema}.{table}");
        let asked = format!(
            "SELECT 1 FROM information_schema.tables WHERE table_type = 'SYSTEM VERSIONED' AND table_schema = {} AND table_name = {}",
            literal(&schema),
            literal(&table)
        );
        let key = (schema, table);
        if !self.versioned.contains_key(&key) {
            self.settle()?;
            let found = !self.connection.query(&asked)?.rows.is_empty();
            self.versioned.insert(key.clone(), found);
        }
        match self.versioned.get(&key) {
            Some(true) => Err(Trouble::Odd(format!(
                "{shown} is system-versioned. Its current rows end in 2038 in the log of a MariaDB before 11.5, and in 2106 in the target"
            ))),
            _ => Ok(()),
        }
    }

    /// The event that [`describe`](Self::describe) has sent last.
    pub fn format(&self) -> &[u8] {
        &self.format
    }

    /// Gives the session what the statement's session had: its default database and its settings.
    ///
    /// # Errors
    /// The server refuses, or does not have a setting. In another database, names would mean other tables.
    pub fn prepare(&mut self, statement: &Statement) -> Result<(), Trouble> {
        self.settle()?;
        self.versioned.clear();
        self.choose(statement)?;
        if statement.uses_system_zone() {
            let name = self.zone.name(&mut self.connection)?.to_owned();
            if name != SYSTEM && statement.names_system_zone() {
                let why = format!(
                    "it computes with the zone 'SYSTEM', which is {name} at the source, and another one in the target"
                );
                return Err(Trouble::Odd(why));
            }
            if name != SYSTEM
                && let Some(time) = self.zone.repeated_in(&statement.text)
            {
                let why = format!(
                    "the local time {time} in it means two moments in the system time zone of the source ({name})"
                );
                return Err(Trouble::Odd(why));
            }
            self.settings.system_zone = format!("'{name}'");
        }
        if let Some(set) = self.settings.change(statement)? {
            self.run(set.as_bytes())?;
        }
        Ok(())
    }

    /// Gives the session names in which the settings that follow can be written, behind a statement of a session in UTF-16.
    ///
    /// # Errors
    /// The server refuses.
    pub fn leave_wide_names(&mut self) -> Result<(), Failure> {
        if self.settings.are_wide() {
            self.run(b"SET NAMES binary")?;
            self.settings.forget();
        }
        Ok(())
    }

    fn choose(&mut self, statement: &Statement) -> Result<(), Trouble> {
        let schema = &statement.schema;
        if statement.detached {
            // The database itself comes or goes. ALTER DATABASE without a name means this one.
            self.database = None;
        }
        if self.database.is_some() && statement.asks_for_no_database() {
            return Err(Trouble::Odd(
                "it asks for the default database (DATABASE()), and its session had none".to_owned(),
            ));
        }
        if schema.is_empty() || self.database.as_ref() == Some(schema) {
            return Ok(());
        }
        if !schema.is_ascii() {
            // Names are sent in the character set of the session.
            self.run(b"SET NAMES utf8mb4")?;
            self.settings.forget();
        }
        match self.connection.command(COM_INIT_DB, schema) {
            Err(Failure::Server(error)) if error.code == NO_DATABASE && statement.detached => Ok(()),
            Err(Failure::Server(error)) => {
                let why = "a statement ran in a database that the target does not let it use";
                Err(Trouble::Odd(format!("{why}: {}: {}", statement.shown(), error.with_names_only())))
            }
            Err(Failure::Fault(error)) => Err(error.into()),
            Ok(()) => {
                self.database = (!statement.detached).then(|| schema.clone());
                Ok(())
            }
        }
    }

    /// Ends the session.
    pub fn quit(self) {
        self.connection.quit();
    }
}
