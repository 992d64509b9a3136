//! Events of a log, applied through a connection to a running server: rows as BINLOG statements, definitions as the
//! statements that they were. `docs/decisions/0025-migration.md` gives the reasons.
//!
//! Changes of rows of many source transactions become one transaction of the target. It ends where [`Applier::commit`] is
//! called, which is only between groups.

use fullbore_core::{Error, Result};

use super::batch::{Batch, is_rows, table_of};
use super::settings::Names;
use super::statements::MADE_ALREADY;
use super::target::{Target, Trouble};
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::event::{CRC, HEADER, Header, group, is_part_of_an_alter, kind, seal};
use crate::mysql_family::binlog::statement::{Kind, Statement};
use crate::mysql_family::binlog::{foreign, payload};
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical_set::load::session_names;
use crate::mysql_family::server_defaults::ServerDefaults;
use crate::mysql_family::system_zone::SystemZone;

/// Flag of an event that a server may ignore if it does not know it.
const IGNORABLE: u16 = 0x80;
/// ER_NET_PACKET_TOO_LARGE.
const TOO_LONG: u32 = 1153;

/// Types of events that only this file needs.
mod more {
    pub const INCIDENT: u8 = 26;
    /// Events of rows of version 1, which MySQL does not take.
    pub const FIRST_ROWS: std::ops::RangeInclusive<u8> = 23..=25;
    /// LOAD DATA as a statement.
    pub const LOAD: [u8; 2] = [17, 18];
    /// MariaDB, compressed: `log_bin_compress`.
    pub const COMPRESSED: std::ops::RangeInclusive<u8> = 165..=171;
    /// STOP, ROTATE, INTVAR, RAND, USER_VAR, heartbeats, ROWS_QUERY, PREVIOUS_GTIDS, TRANSACTION_CONTEXT, VIEW_CHANGE; of
    /// MariaDB: ANNOTATE_ROWS, checkpoints, GTID_LIST, START_ENCRYPTION.
    pub const NOTHING: [u8; 14] = [3, 4, 5, 13, 14, 27, 28, 29, 35, 36, 37, 160, 161, 163];
}

/// What an event meant.
#[derive(Debug, PartialEq, Eq)]
pub enum Passed {
    /// Nothing that the caller has to do.
    Inside,
    /// A group has ended.
    End,
    /// A statement that changes a definition: the caller runs it with [`Applier::define`]. True: the group ends with it.
    Definition(Box<Statement>, bool),
    /// A statement that is not applied. True: the group ends with it.
    PassedOver(Kind, bool),
}

/// Which tables are applied, by database and name.
pub type Takes = Box<dyn Fn(&str, &str) -> bool + Send>;

/// A group that is under way.
#[derive(Debug, Default, Clone, Copy)]
struct Group {
    open: bool,
    /// Ends only with XID or COMMIT.
    transaction: bool,
    /// Rows of it were applied.
    rows: bool,
}

/// Applies events.
pub struct Applier {
    target: Target,
    /// Source and target.
    dialects: [Dialect; 2],
    takes: Takes,
    group: Group,
    batch: Batch,
    in_transaction: bool,
    /// Bytes of rows since the last commit.
    pending: u64,
}

impl Applier {
    /// Applies events of a log of the first vendor through `connection`, which is logged in to a server of the second.
    /// `foreign`: the names of collations of another vendor.
    ///
    /// # Errors
    /// The account may not, or the server is lost.
    pub fn new(
        mut connection: Connection,
        dialects: [Dialect; 2],
        foreign: Option<Names>,
        takes: Takes,
    ) -> Result<Self> {
        connection.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
        // A log of MySQL 5.7 does not say what it was. An account without SUPER may not set it there.
        connection.query_if_allowed("SET SESSION explicit_defaults_for_timestamp = DEFAULT")?;
        let target = Target::begin(connection, dialects, foreign)?;
        let (group, batch) = (Group::default(), Batch::default());
        Ok(Self { target, dialects, takes, group, batch, in_transaction: false, pending: 0 })
    }

    /// The system time zone and the settings of the server whose log follows.
    pub fn enter_source(&mut self, zone: Option<&SystemZone>, defaults: &ServerDefaults) {
        self.target.enter_source(zone, defaults);
    }

    /// The longest event that it takes, in bytes.
    pub fn longest(&self) -> usize {
        self.target.longest()
    }

    /// Bytes of rows since the last commit.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Whether a group has begun and not ended.
    pub fn is_inside(&self) -> bool {
        self.group.open
    }

    /// Whether rows of the group that is under way were applied.
    pub fn has_rows_in_group(&self) -> bool {
        self.group.rows
    }

    /// MySQL takes events of MariaDB in its own form only. MariaDB takes those of MySQL.
    fn is_foreign(&self) -> bool {
        self.dialects == [Dialect::MariaDb, Dialect::MySql]
    }

    /// Takes an event: all of its bytes, with its checksum, which the caller has checked.
    ///
    /// # Errors
    /// The target refuses it, or it cannot be applied through a connection.
    pub fn take(&mut self, event: &[u8]) -> Result<Passed> {
        let header = event.first_chunk().and_then(Header::parse).ok_or_else(|| self.broken("it is too short"))?;
        let body = event.len().checked_sub(CRC).and_then(|end| event.get(HEADER..end));
        let body = body.ok_or_else(|| self.broken("it is too short"))?;
        match header.kind {
            kind::FORMAT if self.is_foreign() => self.describe(&foreign::format()).map(|()| Passed::Inside),
            kind::FORMAT => self.describe(event).map(|()| Passed::Inside),
            kind::GTID | kind::ANONYMOUS_GTID | kind::TAGGED_GTID => {
                self.group = Group { open: true, ..Group::default() };
                Ok(Passed::Inside)
            }
            kind::MARIADB_GTID => {
                // After number and domain: bit 0 says that it is one statement.
                let alone = body.get(12).is_some_and(|flags| flags & group::STANDALONE != 0);
                if is_part_of_an_alter(body) {
                    let hint = "SET GLOBAL binlog_alter_two_phase = OFF on the source, and begin again with --replace";
                    return Err(self.refused("it has an ALTER TABLE in two parts (binlog_alter_two_phase)", hint));
                }
                self.group = Group { open: true, transaction: !alone, rows: false };
                Ok(Passed::Inside)
            }
            kind::QUERY => self.query(&header, body),
            kind::XID => Ok(self.end()),
            kind::TABLE_MAP => {
                let table = table_of(event).filter(|(schema, table)| (self.takes)(schema, table));
                let applies = table.is_some();
                if let Some((schema, table)) = table {
                    self.target.demand_ends(schema, table).map_err(|trouble| self.trouble(trouble))?;
                }
                self.batch.map(event, applies).map_err(|why| self.broken(why))?;
                Ok(Passed::Inside)
            }
            kind if more::FIRST_ROWS.contains(&kind) && self.is_foreign() => {
                let mut rows = foreign::rows(event).ok_or_else(|| self.broken("an event of rows is too short"))?;
                seal(&mut rows);
                self.rows(&rows).map(|()| Passed::Inside)
            }
            kind::PAYLOAD => self.payload(body),
            kind if more::NOTHING.contains(&kind) || kind == self::kind::MARIADB_ENCRYPTION => Ok(Passed::Inside),
            kind if more::LOAD.contains(&kind) => Err(self.by_statement("LOAD DATA")),
            kind if more::COMPRESSED.contains(&kind) => {
                let hint = "SET GLOBAL log_bin_compress = OFF on the source, and begin again";
                Err(self.refused("its events are compressed (log_bin_compress)", hint))
            }
            kind if is_rows(kind) => self.rows(event).map(|()| Passed::Inside),
            kind::XA_PREPARE => Err(self.distributed()),
            more::INCIDENT => {
                Err(self.refused("it has an incident: changes may be missing in it", "begin again with a new full"))
            }
            _ if header.flags & IGNORABLE != 0 => Ok(Passed::Inside),
            kind => Err(self.broken(&format!("it has the unknown type {kind}"))),
        }
    }

    fn end(&mut self) -> Passed {
        self.group = Group::default();
        Passed::End
    }

    fn query(&mut self, header: &Header, body: &[u8]) -> Result<Passed> {
        let statement = Statement::parse(self.dialects[0], header, body).map_err(|why| self.broken(why))?;
        let kind = Kind::of(&statement.text);
        match kind {
            Kind::Begin => {
                self.group = Group { open: true, transaction: true, rows: false };
                return Ok(Passed::Inside);
            }
            Kind::Commit => return Ok(self.end()),
            Kind::Rollback => {
                let hint = "tables without transactions take part: use InnoDB, and begin again";
                return Err(self.refused("it has a transaction that was rolled back in part", hint));
            }
            Kind::Savepoint => {
                self.flush()?;
                self.begin()?;
                self.run(&statement.of_savepoint())?;
                return Ok(Passed::Inside);
            }
            Kind::Distributed => return Err(self.distributed()),
            Kind::Rows => return Err(self.by_statement(&statement.shown())),
            Kind::Definition | Kind::Event | Kind::Account | Kind::Idle => {}
        }
        let ends = !self.group.transaction && !statement.keeps_open();
        if ends {
            self.group = Group::default();
        } else {
            self.group = Group { open: true, transaction: true, rows: self.group.rows };
        }
        Ok(match kind {
            Kind::Definition if statement.exchanges_rows() => {
                let why = format!("the statement {} exchanges the rows of two tables", statement.shown());
                return Err(self.refused(&why, "begin again with --replace after such statements"));
            }
            Kind::Definition => {
                // MariaDB: a definition within a transaction is CREATE TABLE … AS SELECT.
                let is_of_rows = self.dialects[0] == Dialect::MariaDb && !ends;
                Passed::Definition(
                    Box::new(statement.in_its_set(kind, self.dialects[0], is_of_rows).into_owned()),
                    ends,
                )
            }
            kind => Passed::PassedOver(kind, ends),
        })
    }

    /// Runs a statement that changes a definition, with `more` behind it. It commits what came before it, so the caller
    /// commits first. `known`: the target may have the change already.
    ///
    /// # Errors
    /// The target refuses it.
    pub fn define(&mut self, statement: &Statement, more: Option<&str>, known: bool) -> Result<()> {
        self.in_transaction = false;
        self.target.prepare(statement).map_err(|trouble| self.trouble(trouble))?;
        let text = self.target.settings.with_near_collations(statement.runnable().to_vec());
        let text = [&text, more.unwrap_or_default().as_bytes()].concat();
        match self.target.run(&text) {
            Ok(()) => {}
            Err(Failure::Server(error)) if statement.error != 0 && error.code == u32::from(statement.error) => {}
            Err(Failure::Server(error)) if known && MADE_ALREADY.contains(&error.code) => {}
            Err(Failure::Server(error)) => {
                let what = format!("the statement {}", statement.shown());
                let why = format!("the target refuses {what}: {}", error.with_names_only());
                let hint = "another session may have changed the target, or it is another version or vendor";
                return Err(self.refused(&why, hint));
            }
            Err(Failure::Fault(error)) => return Err(error),
        }
        // The place is written in this session, too.
        for statement in session_names() {
            self.run(statement.as_bytes())?;
        }
        self.target.settings.forget();
        self.run(b"SET SESSION timestamp = DEFAULT")
    }

    /// Sends the event that describes the format of those that follow.
    fn describe(&mut self, event: &[u8]) -> Result<()> {
        self.flush()?;
        self.target.describe(event).map_err(|failure| self.unfit(failure))
    }

    fn rows(&mut self, event: &[u8]) -> Result<()> {
        if self.batch.rows(event).map_err(|why| self.broken(why))? {
            self.pending += event.len() as u64;
            self.group.rows = true;
        }
        if self.batch.is_full() { self.flush() } else { Ok(()) }
    }

    /// Sends the batch.
    fn flush(&mut self) -> Result<()> {
        let bytes = self.batch.bytes();
        let Some(statement) = self.batch.statement() else { return Ok(()) };
        if bytes > self.target.longest() {
            let hint = format!("raise max_allowed_packet on the target: {bytes} bytes come together");
            return Err(self.refused("a row is longer than a packet of the target", &hint));
        }
        self.begin()?;
        self.send(statement)
    }

    fn begin(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.in_transaction, true) {
            return Ok(());
        }
        self.send("BEGIN".to_owned())
    }

    fn send(&mut self, statement: String) -> Result<()> {
        self.target.send(statement).map_err(|failure| self.unfit(failure))
    }

    fn run(&mut self, statement: &[u8]) -> Result<()> {
        self.target.run(statement).map_err(|failure| self.unfit(failure))
    }

    /// Ends the transaction of the target with a note of the place in it. Only between groups.
    ///
    /// # Errors
    /// The target refuses a change, or another migration has written the place: nothing of the transaction stays.
    pub fn commit(&mut self, note: Option<String>) -> Result<()> {
        self.flush()?;
        if let Some(note) = note {
            self.begin()?;
            let changed = self.target.change(note.as_bytes()).map_err(|failure| self.unfit(failure))?;
            if changed != 1 {
                self.roll_back()?;
                let hint = "let one of them run to its end: fullbore_migrate.state of the target has the place";
                return Err(self.refused("another migration has applied a part of this log to the target", hint));
            }
        }
        if self.in_transaction {
            self.run(b"COMMIT")?;
        }
        self.in_transaction = false;
        self.pending = 0;
        Ok(())
    }

    /// Forgets everything since the last commit.
    ///
    /// # Errors
    /// The target is lost.
    pub fn roll_back(&mut self) -> Result<()> {
        self.batch.clear();
        self.group = Group::default();
        self.pending = 0;
        self.in_transaction = false;
        self.run(b"ROLLBACK")
    }

    /// The events of a compressed transaction.
    fn payload(&mut self, body: &[u8]) -> Result<Passed> {
        let events = payload::events(body).map_err(|why| self.broken(why))?;
        let (mut rest, mut last) = (&events[..], Passed::Inside);
        while !rest.is_empty() {
            let (_, event) = payload::next_event(&mut rest).ok_or_else(|| self.broken("a compressed event is cut"))?;
            last = self.take(&event)?;
        }
        Ok(last)
    }

    fn trouble(&self, trouble: Trouble) -> Error {
        match trouble {
            Trouble::Server(error) => self.unfit(Failure::Server(error)),
            Trouble::Odd(why) => {
                let hint = "migrate all databases that it needs, or begin again with --replace after such statements";
                self.refused(&why, hint)
            }
            Trouble::Fault(error) => error,
        }
    }

    /// The error of a target that does not take a change.
    fn unfit(&self, failure: Failure) -> Error {
        match failure {
            Failure::Server(error) => {
                let hint = match error.code {
                    TOO_LONG => "raise max_allowed_packet on the target: a row is longer",
                    1114 | 1021 | 3 | 28 => "free space on the target, then continue with --resume",
                    1290 | 1836 => {
                        "make the target writable (SET GLOBAL super_read_only = OFF, read_only = OFF), then continue with --resume"
                    }
                    // ER_UNKNOWN_ERROR: MariaDB does not know the type.
                    1105 if self.dialects == [Dialect::MySql, Dialect::MariaDb] => {
                        "perhaps the log made a JSON column, which MariaDB does not take out of a log of MySQL: change it to LONGTEXT, \
                         and begin again with --replace"
                    }
                    1205 | 1213 => "another session holds rows of the target: end it, then continue with --resume",
                    _ => "another session may have written to the target: begin again with --replace",
                };
                self.refused(&format!("the target does not take a change: {}", error.with_names_only()), hint)
            }
            Failure::Fault(error) => error,
        }
    }

    fn distributed(&self) -> Error {
        self.refused("it has an XA transaction", "end XA transactions of the source, and begin again")
    }

    fn by_statement(&self, shown: &str) -> Error {
        let why = format!("it has the statement {shown} and not the rows that it changed");
        self.refused(&why, "a session has binlog_format other than ROW: set it to ROW, and begin again")
    }

    fn broken(&self, why: &str) -> Error {
        self.refused(&format!("an event cannot be applied: {why}"), "look at it with mysqlbinlog or mariadb-binlog")
    }

    fn refused(&self, why: &str, hint: &str) -> Error {
        Error::refused(format!("the log on its way to {}", self.target.name()), why, hint)
    }
}
