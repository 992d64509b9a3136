//! Events of a log, applied through a connection to a running server: rows as BINLOG statements, definitions as the
//! statements that they were. `docs/decisions/0025-migration.md` gives the reasons.
//!
//! Changes of rows of many source transactions become one transaction of the target. It ends where [`Applier::commit`] is
//! called, which is only between groups.

use std::collections::HashMap;

use fullbore_core::{Error, Result};

use super::event::{CRC, HEADER, Header, IN_USE, group, is_part_of_an_alter, kind, seal, table_id};
use super::statement::{Kind, Statement};
use super::statements::rows;
use super::{foreign, payload};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure};

/// Events of one BINLOG statement together, in bytes. A larger event is a statement of its own.
const BATCH: usize = 256 << 10;
/// Statements whose answers are not read yet.
const AHEAD: usize = 4;
/// The offset of the flags in an event of rows: after the header and the number of the table.
const FLAGS: usize = HEADER + 6;
/// The offset of the time of the server's start in the body of the first event of a file.
const CREATED: usize = 52;
/// Flag of an event of rows: the last one of its statement.
const STATEMENT_END: u8 = 1;
/// Flag of an event that a server may ignore if it does not know it.
const IGNORABLE: u16 = 0x80;
/// ER_SYNTAX_ERROR of the BINLOG statement, and ER_PARSE_ERROR: an empty BINLOG statement was understood.
const EMPTY: [u32; 2] = [1149, 1064];
/// ER_NET_PACKET_TOO_LARGE.
const TOO_LONG: u32 = 1153;

/// Types of events that only this file needs.
mod more {
    pub const INCIDENT: u8 = 26;
    /// Events of rows: version 1, version 2, and updates of parts of JSON values.
    pub const ROWS: [u8; 7] = [23, 24, 25, 30, 31, 32, 39];
    /// Those of version 1, which MySQL does not take.
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
    connection: Connection,
    source: Dialect,
    target: Dialect,
    takes: Takes,
    /// The longest event that fits into a packet of the target, in bytes.
    longest: usize,
    /// MariaDB: the names of character sets, by the numbers of their collations.
    character_sets: HashMap<u16, String>,
    /// The event that describes the format of the others, as the target has it.
    format: Vec<u8>,
    group: Group,
    /// The tables of the statement that is under way: their events, and whether they are applied.
    maps: Vec<(u64, Vec<u8>, bool)>,
    /// The statement of these tables has ended.
    maps_ended: bool,
    batch: Vec<u8>,
    /// Where the last event of rows begins in the batch.
    last_rows: Option<usize>,
    in_transaction: bool,
    awaited: usize,
    /// Bytes of rows since the last commit.
    pending: u64,
}

impl Applier {
    /// Applies events of a log of `source` through `connection`, which is logged in to a server of `target`.
    ///
    /// # Errors
    /// The account may not, or the server is lost.
    pub fn new(mut connection: Connection, source: Dialect, target: Dialect, takes: Takes) -> Result<Self> {
        match connection.query("BINLOG ''") {
            Err(Failure::Server(error)) if EMPTY.contains(&error.code) => {}
            Err(Failure::Server(error)) => {
                let privilege = if target == Dialect::MySql { "BINLOG_ADMIN" } else { "BINLOG REPLAY" };
                let why = format!("the account may not apply changes of a log: {error}");
                return Err(Error::refused(connection.name(), why, format!("GRANT {privilege} ON *.* TO …")));
            }
            Err(Failure::Fault(error)) => return Err(error),
            Ok(_) => {}
        }
        connection.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
        let packet = connection.query("SELECT @@max_allowed_packet")?;
        let packet: usize = packet.single().and_then(|text| text.parse().ok()).unwrap_or(1 << 20);
        let character_sets = if target == Dialect::MariaDb { character_sets(&mut connection)? } else { HashMap::new() };
        Ok(Self {
            character_sets,
            connection,
            source,
            target,
            takes,
            longest: (packet / 4 * 3).saturating_sub(4096),
            format: Vec::new(),
            group: Group::default(),
            maps: Vec::new(),
            maps_ended: false,
            batch: Vec::new(),
            last_rows: None,
            in_transaction: false,
            awaited: 0,
            pending: 0,
        })
    }

    /// The longest event that it takes, in bytes.
    pub fn longest(&self) -> usize {
        self.longest
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
        (self.source, self.target) == (Dialect::MariaDb, Dialect::MySql)
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
            kind::TABLE_MAP => self.map(event).map(|()| Passed::Inside),
            kind if more::FIRST_ROWS.contains(&kind) && self.is_foreign() => {
                let mut rows = foreign::rows(event).ok_or_else(|| self.broken("an event of rows is too short"))?;
                seal(&mut rows);
                self.rows(&rows).map(|()| Passed::Inside)
            }
            kind if more::ROWS.contains(&kind) => self.rows(event).map(|()| Passed::Inside),
            kind::PAYLOAD => self.payload(body),
            kind if more::NOTHING.contains(&kind) || kind == self::kind::MARIADB_ENCRYPTION => Ok(Passed::Inside),
            kind if more::LOAD.contains(&kind) => Err(self.by_statement("LOAD DATA")),
            kind if more::COMPRESSED.contains(&kind) => {
                let hint = "SET GLOBAL log_bin_compress = OFF on the source, and begin again";
                Err(self.refused("its events are compressed (log_bin_compress)", hint))
            }
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
        let statement = Statement::parse(header.timestamp, body).map_err(|why| self.broken(why))?;
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
                self.run(&statement.text)?;
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
            Kind::Definition => Passed::Definition(Box::new(statement), ends),
            kind => Passed::PassedOver(kind, ends),
        })
    }

    /// Runs a statement that changes a definition. It commits what came before it, so the caller commits first.
    ///
    /// # Errors
    /// The target refuses it.
    pub fn define(&mut self, statement: &Statement) -> Result<()> {
        self.settle()?;
        self.in_transaction = false;
        // Before the settings: they change the character set of what this session sends.
        self.choose_database(statement)?;
        self.run(statement.settings(self.source == self.target, &self.character_sets).as_bytes())?;
        let done = self.connection.run_bytes(&statement.runnable());
        let what = || format!("the statement {}", statement.shown());
        match done {
            Ok(()) => {}
            Err(Failure::Server(error)) if statement.error != 0 && error.code == u32::from(statement.error) => {}
            Err(Failure::Server(error)) => {
                let why = format!("the target refuses {}: {}", what(), error.without_values());
                let hint = "another session may have changed the target, or it is another version or vendor";
                return Err(self.refused(&why, hint));
            }
            Err(Failure::Fault(error)) => return Err(error),
        }
        self.run(b"SET SESSION timestamp = DEFAULT, SESSION foreign_key_checks = 1, SESSION unique_checks = 1, SESSION time_zone = '+00:00'")?;
        self.run(b"SET NAMES utf8mb4")
    }

    /// Makes the default database of a statement that of the session. In another one, its names would mean other tables.
    fn choose_database(&mut self, statement: &Statement) -> Result<()> {
        if statement.schema.is_empty() {
            return Ok(());
        }
        let name = String::from_utf8_lossy(&statement.schema).replace('`', "``");
        match self.connection.query(&format!("USE `{name}`")) {
            Ok(_) => Ok(()),
            // A statement that creates or drops its own default database needs none.
            Err(Failure::Server(_)) if statement.is_about_a_database() => Ok(()),
            Err(Failure::Server(error)) => {
                let why = format!(
                    "the statement {} ran in a database that the target does not let it use: {}",
                    statement.shown(),
                    error.without_values()
                );
                Err(self
                    .refused(&why, "migrate this database too, or begin again with --replace after such statements"))
            }
            Err(Failure::Fault(error)) => Err(error),
        }
    }

    /// Sends the event that describes the format of those that follow, if the target does not have it.
    fn describe(&mut self, event: &[u8]) -> Result<()> {
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
        self.flush()?;
        self.settle()?;
        self.run(rows::statement(&event).as_bytes())?;
        if self.target == Dialect::MySql {
            // The statement has left it undetermined, as for a replica.
            self.run(b"SET SESSION gtid_next = 'AUTOMATIC'")?;
        }
        self.format = event;
        Ok(())
    }

    fn map(&mut self, event: &[u8]) -> Result<()> {
        if std::mem::take(&mut self.maps_ended) {
            self.maps.clear();
        }
        let parsed = (|| {
            let table = table_id(event)?;
            let mut rest = event.get(HEADER + 8..)?;
            let mut name = || {
                let (length, after) = rest.split_first()?;
                let (name, after) = after.split_at_checked(usize::from(*length))?;
                rest = after.get(1..)?;
                Some(String::from_utf8_lossy(name).into_owned())
            };
            Some((table, name()?, name()?))
        })();
        let (table, schema, name) = parsed.ok_or_else(|| self.broken("a TABLE_MAP event is too short"))?;
        let takes = (self.takes)(&schema, &name);
        if takes {
            self.batch.extend_from_slice(event);
        }
        self.maps.push((table, event.to_vec(), takes));
        Ok(())
    }

    fn rows(&mut self, event: &[u8]) -> Result<()> {
        let (Some(table), Some(flags)) = (table_id(event), event.get(FLAGS)) else {
            return Err(self.broken("an event of rows is too short"));
        };
        let ends = flags & STATEMENT_END != 0;
        // Without a number of a table, it only ends the statement.
        let known = self.maps.iter().find(|(known, ..)| *known == table);
        let takes = known.is_some_and(|(.., takes)| *takes);
        if known.is_none() && table != 0x00ff_ffff {
            return Err(self.broken("an event of rows is for a table that no event has named"));
        }
        if takes {
            self.pending += event.len() as u64;
            self.group.rows = true;
            self.last_rows = Some(self.batch.len());
            self.batch.extend_from_slice(event);
        } else if ends {
            self.end_statement();
        }
        self.maps_ended |= ends;
        if self.batch.len() >= BATCH {
            self.flush()?;
            if !ends {
                // The next statement needs its tables again.
                self.maps.iter().filter(|(.., takes)| *takes).for_each(|(_, map, _)| self.batch.extend_from_slice(map));
            }
        }
        Ok(())
    }

    /// Marks the last event of rows in the batch as the last one of its statement.
    fn end_statement(&mut self) {
        let Some(event) = self.last_rows.and_then(|at| self.batch.get_mut(at..)) else { return };
        let size = event.get(9..13).and_then(|bytes| bytes.first_chunk()).map_or(0, |size| u32::from_le_bytes(*size));
        let Some(event) = event.get_mut(..size as usize) else { return };
        if let Some(flags) = event.get_mut(FLAGS).filter(|flags| **flags & STATEMENT_END == 0) {
            *flags |= STATEMENT_END;
            seal(event);
        }
    }

    /// Sends the batch.
    fn flush(&mut self) -> Result<()> {
        if self.last_rows.is_none() {
            // Tables without rows.
            self.batch.clear();
            return Ok(());
        }
        self.end_statement();
        self.last_rows = None;
        self.begin()?;
        if self.batch.len() > self.longest {
            let hint = format!("raise max_allowed_packet on the target: {} bytes come together", self.batch.len());
            return Err(self.refused("a row is longer than a packet of the target", &hint));
        }
        let statement = rows::statement(&self.batch);
        self.batch.clear();
        self.send(statement)
    }

    fn begin(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.in_transaction, true) {
            return Ok(());
        }
        self.send("BEGIN".to_owned())
    }

    fn send(&mut self, statement: String) -> Result<()> {
        while self.awaited >= AHEAD {
            self.answer()?;
        }
        self.connection.send_ahead(&[statement])?;
        self.awaited += 1;
        Ok(())
    }

    fn answer(&mut self) -> Result<()> {
        self.awaited -= 1;
        match self.connection.answer() {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.unfit(failure)),
        }
    }

    /// Reads all answers.
    fn settle(&mut self) -> Result<()> {
        while self.awaited > 0 {
            self.answer()?;
        }
        Ok(())
    }

    fn run(&mut self, statement: &[u8]) -> Result<()> {
        self.settle()?;
        self.connection.run_bytes(statement).map_err(|failure| self.unfit(failure))
    }

    /// Ends the transaction of the target with another statement in it, such as a note of the place. Only between groups.
    ///
    /// # Errors
    /// The target refuses a change: nothing of the transaction stays.
    pub fn commit(&mut self, last: Option<String>) -> Result<()> {
        self.flush()?;
        if let Some(last) = last {
            self.begin()?;
            self.send(last)?;
        }
        if self.in_transaction {
            self.send("COMMIT".to_owned())?;
        }
        self.settle()?;
        self.in_transaction = false;
        self.pending = 0;
        Ok(())
    }

    /// Forgets everything since the last commit.
    ///
    /// # Errors
    /// The target is lost.
    pub fn roll_back(&mut self) -> Result<()> {
        self.settle()?;
        self.batch.clear();
        self.last_rows = None;
        self.maps.clear();
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

    /// The error of a target that does not take a change.
    fn unfit(&self, failure: Failure) -> Error {
        match failure {
            Failure::Server(error) => {
                let hint = match error.code {
                    TOO_LONG => "raise max_allowed_packet on the target: a row is longer",
                    1114 | 1021 | 3 | 28 => "free space on the target, then continue with --resume",
                    1205 | 1213 => "another session holds rows of the target: end it, then continue with --resume",
                    _ => "another session may have written to the target: begin again with --replace",
                };
                self.refused(&format!("the target does not take a change: {}", error.without_values()), hint)
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
        Error::refused(format!("the log on its way to {}", self.connection.name()), why, hint)
    }
}

/// The names of character sets, by the numbers of their collations. Earlier versions have no such list, and need none.
fn character_sets(connection: &mut Connection) -> Result<HashMap<u16, String>> {
    let asked =
        "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability WHERE id > 0";
    let answer = match connection.query(asked) {
        Ok(answer) => answer,
        Err(Failure::Server(_)) => return Ok(HashMap::new()),
        Err(Failure::Fault(error)) => return Err(error),
    };
    let is_word = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let pair = |row: Vec<Option<String>>| match <[_; 2]>::try_from(row) {
        Ok([Some(number), Some(name)]) => Some((number.parse().ok()?, name)).filter(|(_, name)| is_word(name)),
        _ => None,
    };
    Ok(answer.rows.into_iter().filter_map(pair).collect())
}
