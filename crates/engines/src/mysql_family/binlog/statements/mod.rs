//! The events of a log as statements for a running server, as `mysqlbinlog` prints them: `BINLOG` for rows, and each other
//! statement with the settings of its session. A transaction is committed as a whole, or not at all.

pub(super) mod rows;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fullbore_core::{Error, Result};

use super::end::Piece;
use super::event::{Body, CRC, HEADER, Header, group, is_part_of_an_alter, kind, take};
use super::gtid::{Gtid, GtidSet};
use super::payload;
use super::statement::{COLLATION_DATABASE, Kind, Statement};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical::names::literal;
use rows::Rows;

/// The longest event that is taken into memory, in bytes, whatever the server takes.
const EVENT_MAX: u64 = 256 << 20;
/// ER_BAD_DB_ERROR.
const NO_DATABASE: u32 = 1049;
const COM_INIT_DB: u8 = 2;
/// XAER_NOTA.
const UNKNOWN_XID: u32 = 1397;
/// How long a server may need to take a prepared transaction from a session that has ended.
const DETACHED: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(20);
/// Flag of an event: the statement runs without its default database (CREATE DATABASE, DROP DATABASE).
const SUPPRESS_USE: u16 = 0x8;
/// The value of a variable: its type, the number of its collation, and its bytes.
type Value<'a> = (u8, u32, &'a [u8]);
/// Makes another connection to the server.
type Connect = Box<dyn Fn() -> Result<Connection>>;

/// Applies events through a connection.
pub(super) struct Statements {
    connection: Connection,
    connect: Connect,
    dialect: Dialect,
    /// The longest event that the server takes.
    longest: u64,
    /// The GTIDs that the server had; `None` if transactions get new ones.
    executed: Option<GtidSet>,
    /// Whether statements about accounts are applied.
    with_accounts: bool,
    /// The settings that the session has.
    settings: HashMap<&'static str, String>,
    database: Option<Vec<u8>>,
    /// Statements that set something for the next statement.
    ahead: Vec<String>,
    rows: Rows,
    /// The file of the current event, and the first event that the server has.
    file: String,
    format: Vec<u8>,
    /// A transaction is open.
    open: bool,
    /// The log has the end of the XA transaction that is open.
    ended: bool,
    /// The current group has no statement yet.
    empty: bool,
    /// The GTID and the place of the current group, for errors.
    group: String,
    /// How many statements about accounts were left out.
    pub accounts_left_out: u64,
    /// How many groups got a new GTID.
    pub renamed: u64,
    /// Memory for the next event.
    spare: Vec<u8>,
}

impl Statements {
    /// Asks the server what it takes.
    ///
    /// # Errors
    /// It refuses `BINLOG`.
    pub fn begin(connect: Connect, dialect: Dialect, with_accounts: bool) -> Result<Self> {
        let mut connection = connect()?;
        // The privilege is checked before the text.
        if let Err(Failure::Server(error)) = connection.query("BINLOG ''")
            && error.is_denied()
        {
            let privilege = if dialect == Dialect::MySql { "REPLICATION_APPLIER" } else { "BINLOG REPLAY" };
            let hint = format!("GRANT {privilege} ON *.* TO …; or restore into a directory, with --into dir:PATH");
            return Err(Error::refused(connection.name(), format!("the account may not apply a log: {error}"), hint));
        }
        let packet = connection.query("SELECT @@max_allowed_packet")?;
        let packet: u64 = packet.single().and_then(|text| text.parse().ok()).unwrap_or(1 << 20);
        let executed = executed(&mut connection, dialect)?;
        let settings = restricted(&mut connection, dialect)?;
        connection.query("SET NAMES binary")?;
        Ok(Self {
            connection,
            connect,
            dialect,
            longest: (packet / 4 * 3).saturating_sub(1024).min(EVENT_MAX),
            executed,
            with_accounts,
            settings,
            database: None,
            ahead: Vec::new(),
            rows: Rows::default(),
            file: String::new(),
            format: Vec::new(),
            open: false,
            ended: false,
            empty: false,
            group: String::new(),
            accounts_left_out: 0,
            renamed: 0,
            spare: Vec::new(),
        })
    }

    /// Whether transactions keep their GTIDs.
    pub fn keeps_gtids(&self) -> bool {
        self.executed.is_some()
    }

    /// The server's name.
    pub fn server(&self) -> String {
        self.connection.name().to_owned()
    }

    /// The next event is of this piece. `head` has the file's first events.
    ///
    /// # Errors
    /// The server refuses the format.
    pub fn enter(&mut self, piece: &Piece, head: &[u8]) -> Result<()> {
        if self.file == piece.file {
            return Ok(());
        }
        self.file.clone_from(&piece.file);
        let size = head.get(9..13).and_then(|size| size.first_chunk()).map(|size| u32::from_le_bytes(*size) as usize);
        match size.and_then(|size| head.get(..size)).filter(|event| event.get(4) == Some(&kind::FORMAT)) {
            Some(format) => self.take_format(format),
            None => Ok(()),
        }
    }

    /// Memory for an event, which must not be too long.
    ///
    /// # Errors
    /// It is.
    pub fn buffer(&mut self, header: &Header) -> Result<Vec<u8>> {
        if u64::from(header.size) > self.longest {
            let why = format!(
                "an event of the log has {} bytes, but its max_allowed_packet allows {} in a statement",
                header.size, self.longest
            );
            return Err(Error::refused(self.server(), why, "raise max_allowed_packet on the target, up to 1 GiB"));
        }
        let mut spare = std::mem::take(&mut self.spare);
        spare.clear();
        Ok(spare)
    }

    /// Applies an event, which begins at `at` in its file. `event` has all of its bytes.
    ///
    /// # Errors
    /// The server refuses it; then the transaction is rolled back.
    pub fn event(&mut self, at: u64, header: &Header, body: &Body, event: Vec<u8>) -> Result<()> {
        if let Body::Group(group) = body {
            self.begin_group(at, group.gtid.as_ref(), header, &event)?;
        } else {
            self.apply(header, &event)?;
        }
        self.spare = event;
        Ok(())
    }

    fn apply(&mut self, header: &Header, event: &[u8]) -> Result<()> {
        let body = event.get(HEADER..event.len().saturating_sub(CRC)).unwrap_or_default();
        match header.kind {
            kind::FORMAT => self.take_format(event),
            kind::QUERY => {
                let statement = Statement::parse(header.timestamp, body).map_err(|why| self.odd(why))?;
                self.query(header, &statement)
            }
            kind::XID => self.end_transaction("COMMIT"),
            kind::TABLE_MAP => self.rows.map(event).map_err(|why| self.odd(why)),
            kind if rows::is_rows(kind) => {
                let full = self.rows.add(event).map_err(|why| self.odd(why))?;
                if full { self.send_rows() } else { Ok(()) }
            }
            kind::INTVAR | kind::RAND => {
                let set = query_ahead(header.kind, body).ok_or_else(|| self.odd("a value has an unknown form"))?;
                self.ahead.push(set);
                Ok(())
            }
            kind::USER_VAR => self.user_variable(body),
            kind::XA_PREPARE => self.xa_prepare(body),
            kind::PAYLOAD => {
                let inner = payload::events(body).map_err(|why| self.odd(why))?;
                let mut rest = &inner[..];
                while !rest.is_empty() {
                    let (header, event) =
                        payload::next_event(&mut rest).ok_or_else(|| self.odd("a compressed transaction is cut"))?;
                    self.apply(&header, &event)?;
                }
                Ok(())
            }
            // Marks of files and groups, texts for people, and what a group of servers writes for itself.
            kind::STOP | kind::ROTATE | kind::PREVIOUS_GTIDS | kind::ROWS_QUERY | kind::MARIADB_ANNOTATE => Ok(()),
            kind::MARIADB_CHECKPOINT | kind::MARIADB_GTID_LIST | kind::MARIADB_ENCRYPTION | 36 | 37 => Ok(()),
            other => Err(self.odd(&format!("an event of type {other} cannot be applied through a connection"))),
        }
    }

    /// The first event of a file says the form of all others.
    fn take_format(&mut self, event: &[u8]) -> Result<()> {
        if self.format == event {
            return Ok(());
        }
        self.run(rows::statement(event).as_bytes())?;
        if self.dialect == Dialect::MySql {
            // The statement has left it undetermined, as for a replica.
            self.connection.query_if_allowed("SET @@SESSION.gtid_next = 'AUTOMATIC'")?;
        }
        self.format = event.to_vec();
        Ok(())
    }

    fn begin_group(&mut self, at: u64, gtid: Option<&Gtid>, header: &Header, event: &[u8]) -> Result<()> {
        self.end_group()?;
        let shown = gtid.map(|gtid| format!(" (GTID {gtid})")).unwrap_or_default();
        self.group = format!("{}:{at}{shown}", self.file);
        if let Some(executed) = &self.executed {
            let next = match gtid {
                Some(gtid @ Gtid::MySql { uuid, tag, number }) if !executed.has(uuid, tag, *number) => gtid.to_string(),
                other => {
                    self.renamed += u64::from(other.is_some());
                    "AUTOMATIC".to_owned()
                }
            };
            self.run(format!("SET @@SESSION.gtid_next = '{next}'").as_bytes())?;
        }
        self.empty = true;
        if header.kind == kind::MARIADB_GTID {
            let body = event.get(HEADER..).unwrap_or_default();
            if is_part_of_an_alter(body.get(..body.len().saturating_sub(CRC)).unwrap_or_default()) {
                return Err(self.odd("an ALTER TABLE is logged in two parts (binlog_alter_two_phase)"));
            }
            let flags = body.get(12).copied().unwrap_or(group::STANDALONE);
            if flags & group::PREPARED_XA != 0 {
                let skip = if flags & group::COMMIT_ID != 0 { 13 + 8 } else { 13 };
                let id = body.get(skip..).and_then(mariadb_xid).ok_or_else(|| self.odd("an XA id is too short"))?;
                self.run(format!("XA START {id}").as_bytes())?;
                self.open = true;
            } else if flags & group::STANDALONE == 0 {
                self.run(b"START TRANSACTION")?;
                self.open = true;
            }
        }
        Ok(())
    }

    /// A group must be complete when the next one begins.
    fn end_group(&mut self) -> Result<()> {
        self.send_rows()?;
        if self.open {
            return Err(self.odd("a transaction has no end"));
        }
        if self.empty && self.executed.is_some() {
            // Nothing of it was applied: the GTID is taken all the same.
            self.run(b"BEGIN")?;
            self.run(b"COMMIT")?;
        }
        self.empty = false;
        Ok(())
    }

    /// A set ends between groups.
    ///
    /// # Errors
    /// It ends within one, or the server refuses.
    pub fn end_of_set(&mut self) -> Result<()> {
        self.end_group()?;
        if self.executed.is_some() {
            self.run(b"SET @@SESSION.gtid_next = 'AUTOMATIC'")?;
        }
        Ok(())
    }

    fn query(&mut self, header: &Header, statement: &Statement) -> Result<()> {
        self.send_rows()?;
        match Kind::of(&statement.text) {
            Kind::Commit | Kind::Rollback => {
                let text = String::from_utf8_lossy(&statement.text).into_owned();
                return self.end_transaction(&text);
            }
            Kind::Begin | Kind::Savepoint => {
                self.open = true;
                return self.run(&statement.text);
            }
            Kind::Distributed => {
                let text = statement.text.to_ascii_uppercase();
                self.open |= text.starts_with(b"XA START");
                self.ended |= text.starts_with(b"XA END");
                return self.distributed(&statement.text);
            }
            Kind::Account if !self.with_accounts => {
                self.accounts_left_out += 1;
                return Ok(());
            }
            // Not every account may do it, and it changes nothing that a table holds.
            Kind::Idle if statement.shown().starts_with("FLUSH") => return Ok(()),
            Kind::Account | Kind::Definition | Kind::Event | Kind::Idle | Kind::Rows => {}
        }
        self.prepare(header, statement)?;
        for statement in std::mem::take(&mut self.ahead) {
            self.run(statement.as_bytes())?;
        }
        // MySQL's CREATE TABLE … SELECT: the rows follow before the group ends, and the text opens a transaction.
        self.open |= statement.keeps_open();
        self.run(&statement.text)
    }

    /// Gives the session what the statement's session had.
    fn prepare(&mut self, header: &Header, statement: &Statement) -> Result<()> {
        let mut settings = statement.settings.clone();
        if settings.iter().all(|(name, _)| *name != COLLATION_DATABASE) {
            settings.push((COLLATION_DATABASE, "DEFAULT".into()));
        }
        if self.settings.contains_key("pseudo_thread_id") {
            settings.push(("pseudo_thread_id", statement.thread.to_string()));
        }
        let mut new = Vec::new();
        for (name, value) in settings {
            if self.settings.get(name) == Some(&value) {
                continue;
            }
            // MariaDB knows a character set by its name, or by the number of its default collation only.
            let shown = match self.dialect {
                Dialect::MariaDb if name == "character_set_client" => self.collation(&value)?.0,
                _ => value.clone(),
            };
            new.push(format!("@@SESSION.{name} = {shown}"));
            self.settings.insert(name, value);
        }
        if !new.is_empty() {
            self.run(format!("SET {}", new.join(", ")).as_bytes())?;
        }
        let database = (header.flags & SUPPRESS_USE == 0 && !statement.schema.is_empty()).then_some(&statement.schema);
        if let Some(database) = database.filter(|database| self.database.as_ref() != Some(*database)) {
            match self.connection.command(COM_INIT_DB, database) {
                // The statement may name its tables with their database.
                Err(Failure::Server(error)) if error.code == NO_DATABASE => self.database = None,
                done => {
                    done.map_err(|failure| self.failed(failure))?;
                    self.database = Some(database.clone());
                }
            }
        }
        if database.is_none() {
            // The statement may drop the database of the session.
            self.database = None;
        }
        Ok(())
    }

    fn end_transaction(&mut self, statement: &str) -> Result<()> {
        self.send_rows()?;
        self.run(statement.as_bytes())?;
        self.open = false;
        Ok(())
    }

    /// The end of the first half of an XA transaction.
    fn xa_prepare(&mut self, body: &[u8]) -> Result<()> {
        self.send_rows()?;
        let parsed = || {
            let mut rest = body;
            let [one_phase] = *take::<1>(&mut rest)?;
            Some((one_phase != 0, xid(&mut rest)?))
        };
        let (one_phase, id) = parsed().ok_or_else(|| self.odd("an XA id is too short"))?;
        if !std::mem::take(&mut self.ended) {
            self.run(format!("XA END {id}").as_bytes())?;
        }
        let statement = if one_phase { format!("XA COMMIT {id} ONE PHASE") } else { format!("XA PREPARE {id}") };
        self.run(statement.as_bytes())?;
        self.open = false;
        if self.dialect == Dialect::MariaDb && !one_phase { self.reconnect() } else { Ok(()) }
    }

    /// MariaDB's session can do nothing else while it has a prepared transaction, which stays when the session ends.
    fn reconnect(&mut self) -> Result<()> {
        let mut connection = (self.connect)()?;
        self.settings = restricted(&mut connection, self.dialect)?;
        self.settings.remove("character_set_client");
        connection.query("SET NAMES binary")?;
        std::mem::replace(&mut self.connection, connection).quit();
        self.database = None;
        let format = std::mem::take(&mut self.format);
        self.take_format(&format)
    }

    /// Runs an XA statement. The server may need a moment to take a prepared transaction from a session that has ended.
    fn distributed(&mut self, statement: &[u8]) -> Result<()> {
        let until = Instant::now() + DETACHED;
        self.empty = false;
        loop {
            match self.connection.run_bytes(statement) {
                Err(Failure::Server(error)) if error.code == UNKNOWN_XID && Instant::now() < until => {
                    std::thread::sleep(TICK);
                }
                done => return done.map_err(|failure| self.failed(failure)),
            }
        }
    }

    /// The value of a user's variable for the next statement: a text, a number, or NULL.
    fn user_variable(&mut self, body: &[u8]) -> Result<()> {
        let mut rest = body;
        let parsed = || -> Option<(String, Option<Value<'_>>)> {
            let rest = &mut rest;
            let length = u32::from_le_bytes(*take::<4>(rest)?) as usize;
            let (name, after) = rest.split_at_checked(length)?;
            *rest = after;
            let name = String::from_utf8(name.to_vec()).ok()?;
            if let [1] = *take::<1>(rest)? {
                return Some((name, None));
            }
            let [kind] = *take::<1>(rest)?;
            let collation = u32::from_le_bytes(*take::<4>(rest)?);
            let length = u32::from_le_bytes(*take::<4>(rest)?) as usize;
            Some((name, Some((kind, collation, rest.get(..length)?))))
        };
        let mut parsed = parsed;
        let (name, value) = parsed().ok_or_else(|| self.odd("a variable has an unknown form"))?;
        let value = match value {
            None => "NULL".to_owned(),
            Some((0, collation, bytes)) => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let (set, collation) = self.collation(&collation.to_string())?;
                format!("_{set} X'{hex}' COLLATE {collation}")
            }
            Some((1, _, bytes)) if bytes.len() == 8 => {
                let bits = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                format!("{:e}", f64::from_bits(bits))
            }
            Some((2, _, bytes)) if bytes.len() == 8 => {
                bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes)).to_string()
            }
            Some(_) => return Err(self.odd("a decimal variable of a statement cannot be applied through a connection")),
        };
        self.ahead.push(format!("SET @`{}` := {value}", name.replace('`', "``")));
        Ok(())
    }

    /// The names of a character set and of its collation with this number.
    fn collation(&mut self, number: &str) -> Result<(String, String)> {
        // MariaDB from 10.10 on has numbers of newer collations here only.
        let newer = "SELECT character_set_name, full_collation_name FROM \
                     information_schema.collation_character_set_applicability WHERE id";
        let all = "SELECT character_set_name, collation_name FROM information_schema.collations WHERE id";
        let asked = if self.dialect == Dialect::MariaDb { [newer, all] } else { [all, all] };
        for asked in asked {
            if let Ok(names) = self.connection.query(&format!("{asked} = {number}"))
                && let (Some(set), Some(collation)) = (names.value(0, 0), names.value(0, 1))
            {
                return Ok((set.to_owned(), collation.to_owned()));
            }
        }
        Err(self.odd(&format!("the target does not know collation {number}")))
    }

    fn send_rows(&mut self) -> Result<()> {
        match self.rows.statement().map_err(|why| self.odd(why))? {
            Some(statement) => self.run(&statement),
            None => Ok(()),
        }
    }

    fn run(&mut self, statement: &[u8]) -> Result<()> {
        self.empty = false;
        self.connection.run_bytes(statement).map_err(|failure| self.failed(failure))
    }

    fn failed(&self, failure: Failure) -> Error {
        let Failure::Server(error) = failure else { return failure.into() };
        let why = format!("it refuses the transaction at {} of the log: {error}", self.group);
        let hint = "nothing of this transaction was applied, and everything before it was; look why the target differs from \
                    the source";
        Error::refused(self.server(), why, hint)
    }

    fn odd(&self, why: &str) -> Error {
        let hint = "nothing of this transaction was applied; restore a physical full into a directory, whose server applies \
                    its log itself";
        Error::refused(format!("the transaction at {} of the log", self.group), why, hint)
    }
}

/// The GTIDs of a server, if the account may set those of transactions.
fn executed(connection: &mut Connection, dialect: Dialect) -> Result<Option<GtidSet>> {
    if dialect == Dialect::MariaDb {
        return Ok(None);
    }
    let answer = connection.query("SELECT @@GLOBAL.gtid_mode, @@GLOBAL.gtid_executed")?;
    let executed = answer.value(0, 1).and_then(GtidSet::parse);
    let on = answer.value(0, 0).is_some_and(|mode| mode == "ON");
    let allowed = on && connection.query_if_allowed("SET @@SESSION.gtid_next = 'AUTOMATIC'")?.is_some();
    Ok(executed.filter(|_| allowed))
}

/// The settings that only some accounts may change, as they are: they are set only where they differ.
fn restricted(connection: &mut Connection, dialect: Dialect) -> Result<HashMap<&'static str, String>> {
    let mut settings = HashMap::new();
    if connection.query_if_allowed("SET @@SESSION.pseudo_thread_id = 1")?.is_some() {
        settings.insert("pseudo_thread_id", "1".to_owned());
    }
    if dialect == Dialect::MariaDb {
        return Ok(settings);
    }
    for name in ["explicit_defaults_for_timestamp", "sql_require_primary_key", "default_table_encryption"] {
        // Some of them are younger than others.
        if let Ok(answer) = connection.query(&format!("SELECT @@SESSION.{name}"))
            && let Some(value) = answer.single()
        {
            settings.insert(name, value.to_owned());
        }
    }
    if let Ok(answer) = connection.query("SELECT @@SESSION.default_collation_for_utf8mb4")
        && let Some(name) = answer.single()
    {
        let asked = format!("SELECT id FROM information_schema.collations WHERE collation_name = {}", literal(name));
        let id = connection.query(&asked)?;
        settings.extend(id.single().map(|id| ("default_collation_for_utf8mb4", id.to_owned())));
    }
    Ok(settings)
}

/// What an event sets for the next statement.
fn query_ahead(kind: u8, body: &[u8]) -> Option<String> {
    let mut rest = body;
    if kind == kind::RAND {
        let one = u64::from_le_bytes(*take::<8>(&mut rest)?);
        let two = u64::from_le_bytes(*take::<8>(&mut rest)?);
        return Some(format!("SET @@RAND_SEED1 = {one}, @@RAND_SEED2 = {two}"));
    }
    let [which] = *take::<1>(&mut rest)?;
    let value = u64::from_le_bytes(*take::<8>(&mut rest)?);
    let name = match which {
        1 => "LAST_INSERT_ID",
        2 => "INSERT_ID",
        _ => return None,
    };
    Some(format!("SET {name} = {value}"))
}

/// An XA id with its lengths in 32 bits each, as in a statement.
fn xid(bytes: &mut &[u8]) -> Option<String> {
    let mut number = || take::<4>(bytes).map(|number| u32::from_le_bytes(*number));
    let (format, first, second) = (number()?, number()? as usize, number()? as usize);
    shown_xid(format, first, second, bytes)
}

/// MariaDB's at the end of a GTID event: its lengths in one byte each.
fn mariadb_xid(mut bytes: &[u8]) -> Option<String> {
    let format = u32::from_le_bytes(*take::<4>(&mut bytes)?);
    let [first, second] = *take::<2>(&mut bytes)?;
    shown_xid(format, first.into(), second.into(), bytes)
}

fn shown_xid(format: u32, first: usize, second: usize, bytes: &[u8]) -> Option<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (first, rest) = bytes.split_at_checked(first)?;
    Some(format!("X'{}',X'{}',{format}", hex(first), hex(rest.get(..second)?)))
}
