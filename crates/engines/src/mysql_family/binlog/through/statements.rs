//! The events of a log as statements for a running server, as `mysqlbinlog` prints them: `BINLOG` for rows, and each other
//! statement with the settings of its session. A transaction is committed as a whole, or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fullbore_core::{Error, Result};

use super::batch::{Batch, is_rows, table_of};
use super::guard::{Guard, Verdict};
use super::target::{Target, Trouble};
use super::{groups, values};
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::end::{Piece, Place};
use crate::mysql_family::binlog::event::{Body, CRC, HEADER, Header, format_in, kind};
use crate::mysql_family::binlog::gtid::GtidSet;
use crate::mysql_family::binlog::payload;
use crate::mysql_family::binlog::statement::{Kind, Statement};
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::server_defaults::ServerDefaults;
use crate::mysql_family::system_zone::SystemZone;

/// The longest event that is taken into memory, in bytes, whatever the server takes.
const EVENT_MAX: u64 = 256 << 20;
/// What a server says of an object that exists already, or does not: a database, a table or view, a routine, a trigger, an
/// event; of MariaDB also a sequence, a view. A set may hold definitions of a moment after its rows.
pub(super) const MADE_ALREADY: [u32; 11] = [1007, 1008, 1050, 1051, 1304, 1305, 1359, 1360, 1537, 4091, 4092];
/// Of an event that does not exist.
const NO_EVENT: u32 = 1539;
/// Makes another connection to the server.
pub type Connect = Arc<dyn Fn() -> Result<Connection>>;

/// Applies events through a connection.
pub struct Statements {
    pub(super) main: Target,
    /// MariaDB: the session of an XA transaction that is not prepared yet. Its session can do nothing else afterwards, and
    /// temporary tables belong to the main one.
    pub(super) of_xa: Option<Target>,
    pub(super) connect: Connect,
    pub(super) dialect: Dialect,
    /// The GTIDs that the server had; `None` if transactions get new ones.
    pub(super) executed: Option<GtidSet>,
    /// The server writes a binary log.
    logs: bool,
    /// What must not be applied.
    guard: Guard,
    /// Statements that set something for the next statement.
    ahead: Vec<String>,
    batch: Batch,
    /// The file of the current event, and where the current group begins in it.
    pub(super) file: String,
    pub(super) at: u64,
    /// A transaction is open.
    pub(super) open: bool,
    /// The log has the end of the XA transaction that is open.
    pub(super) ended: bool,
    /// The current group has no statement yet.
    pub(super) empty: bool,
    /// The current group has changed something.
    pub(super) changed: bool,
    /// The threads of the source with temporary tables, which are in the main session.
    temporary: Vec<(u32, String)>,
    /// The tables of MariaDB whose rows the log had as rows, in lower case, without their databases.
    tables_of_rows: BTreeSet<String>,
    /// A table that the current group has created, with rows that may fail.
    pub(super) half: Option<Statement>,
    /// The XA transactions that are prepared. MariaDB: each with the session that has prepared it. A session that ends gives
    /// its transaction away before InnoDB can find it: an XA COMMIT of another session would then succeed without effect.
    pub prepared: BTreeMap<String, Option<Target>>,
    /// MySQL: the XA transactions without a change that are not committed yet. Of them, the target takes the GTIDs only.
    pub(super) hollow: BTreeSet<String>,
    /// The GTID and the place of the current group, for errors.
    pub(super) group: String,
    /// The GTID of the current group, as the target takes it.
    pub(super) next: String,
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
    pub fn begin(connect: Connect, dialect: Dialect, guard: Guard) -> Result<Self> {
        let mut connection = connect()?;
        let executed = executed(&mut connection, dialect)?;
        let logs = connection.query("SELECT @@GLOBAL.log_bin")?.single() == Some("1");
        Ok(Self {
            main: groups::session(connection, dialect)?,
            of_xa: None,
            connect,
            dialect,
            executed,
            logs,
            guard,
            ahead: Vec::new(),
            batch: Batch::default(),
            file: String::new(),
            at: 0,
            open: false,
            ended: false,
            empty: false,
            changed: false,
            temporary: Vec::new(),
            tables_of_rows: BTreeSet::new(),
            half: None,
            prepared: BTreeMap::new(),
            hollow: BTreeSet::new(),
            group: String::new(),
            next: String::new(),
            renamed: 0,
            spare: Vec::new(),
        })
    }

    /// Whether transactions keep their GTIDs.
    pub fn keeps_gtids(&self) -> bool {
        self.executed.is_some()
    }

    /// What was left out.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The server's name.
    pub fn server(&self) -> String {
        self.main.name().to_owned()
    }

    pub(super) fn target(&mut self) -> &mut Target {
        self.of_xa.as_mut().unwrap_or(&mut self.main)
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
        format_in(head).map_or(Ok(()), |format| self.describe(format))
    }

    /// The log of another server follows. What came before ended at a place in the log of the first one.
    pub fn leave_server(&mut self, end: &Place) {
        self.file.clear();
        self.guard.leave_server(&end.file, end.offset);
    }

    /// The system time zone and the settings of the server whose log follows.
    pub fn enter_source(&mut self, zone: Option<&SystemZone>, defaults: &ServerDefaults) {
        self.main.enter_source(zone, defaults);
    }

    fn describe(&mut self, format: &[u8]) -> Result<()> {
        self.main.describe(format).map_err(|failure| self.failed(failure))
    }

    /// Memory for an event, which must not be too long.
    ///
    /// # Errors
    /// It is.
    pub fn buffer(&mut self, header: &Header) -> Result<Vec<u8>> {
        let longest = (self.main.longest() as u64).min(EVENT_MAX);
        if u64::from(header.size) > longest {
            let why = format!(
                "an event of the log has {} bytes, but its max_allowed_packet allows {longest} in a statement",
                header.size
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
    /// The server refuses it. [`give_up`](Self::give_up) follows.
    pub fn event(&mut self, at: u64, header: &Header, body: &Body, event: Vec<u8>) -> Result<()> {
        if let Body::Group(group) = body {
            self.at = at;
            self.begin_group(group.gtid.as_ref(), header, &event)?;
        } else {
            self.apply(header, &event)?;
        }
        self.spare = event;
        Ok(())
    }

    fn apply(&mut self, header: &Header, event: &[u8]) -> Result<()> {
        let body = event.get(HEADER..event.len().saturating_sub(CRC)).unwrap_or_default();
        match header.kind {
            kind::FORMAT => self.describe(event),
            kind::QUERY => {
                let statement = Statement::parse(self.dialect, header, body).map_err(|why| self.odd(why))?;
                self.query(&statement)
            }
            kind::XID => self.end_transaction(b"COMMIT"),
            kind::TABLE_MAP => {
                let (schema, table) =
                    table_of(event).ok_or_else(|| self.odd("a description of a table is too short"))?;
                let applies = self.guard.takes_rows(&schema, &table, (&self.file, self.at));
                let applies = applies.map_err(|why| self.odd(&why))?;
                if applies {
                    if self.dialect == Dialect::MariaDb {
                        self.tables_of_rows.insert(table.to_lowercase());
                    }
                    self.target().demand_ends(schema, table).map_err(|trouble| self.trouble(trouble))?;
                }
                self.batch.map(event, applies).map_err(|why| self.odd(why))
            }
            kind if is_rows(kind) => {
                self.batch.rows(event).map_err(|why| self.odd(why))?;
                if self.batch.is_full() { self.send_rows() } else { Ok(()) }
            }
            kind::INTVAR | kind::RAND => {
                let set = values::number(header.kind, body).ok_or_else(|| self.odd("a value has an unknown form"))?;
                self.ahead.push(set);
                Ok(())
            }
            kind::USER_VAR => {
                let set = values::variable(body, &self.main.settings).map_err(|why| self.odd(&why))?;
                self.ahead.push(set);
                Ok(())
            }
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
            kind::MARIADB_COMPRESSED_QUERY => Err(self.odd("a statement in it is compressed (log_bin_compress)")),
            other => Err(self.odd(&format!("an event of type {other} cannot be applied through a connection"))),
        }
    }

    fn query(&mut self, statement: &Statement) -> Result<()> {
        self.send_rows()?;
        let kind = Kind::of(&statement.text);
        match kind {
            Kind::Commit | Kind::Rollback => return self.end_transaction(&statement.text),
            Kind::Begin | Kind::Savepoint => {
                self.open = true;
                return self.run(&statement.of_savepoint());
            }
            Kind::Distributed => return self.distributed(&statement.text),
            // Not every account may do it, and it changes nothing that a table holds.
            Kind::Idle if statement.shown().starts_with("FLUSH") => return Ok(()),
            Kind::Account | Kind::Definition | Kind::Event | Kind::Idle | Kind::Rows => {}
        }
        match self.guard.judge(kind, statement, (&self.file, self.at)).map_err(|why| self.odd(&why))? {
            Verdict::Apply => {}
            Verdict::LeaveOut => {
                self.ahead.clear();
                return Ok(());
            }
            Verdict::Replace(database) => {
                self.give_gtid_back()?;
                self.run(format!("DROP DATABASE IF EXISTS {database}").as_bytes())?;
                self.take_gtid()?;
            }
        }
        if self.of_xa.is_some() && self.temporary.iter().any(|(thread, _)| *thread == statement.thread) {
            return Err(self.odd("an XA transaction has statements, and its session has temporary tables"));
        }
        if kind == Kind::Idle && statement.shown().starts_with("CREATE") {
            self.temporary.extend(statement.temporary_tables().into_iter().map(|name| (statement.thread, name)));
        } else if kind == Kind::Idle && statement.shown().starts_with("DROP") {
            for name in statement.temporary_tables() {
                let place = self.temporary.iter().position(|known| *known == (statement.thread, name.clone()));
                place.map(|place| self.temporary.swap_remove(place));
            }
        }
        if kind == Kind::Rows && changes_portion(&statement.text, &self.tables_of_rows) {
            return Err(self.odd(
                "it changes a part of a period (FOR PORTION OF) of a table whose rows the log had as rows before: MariaDB would give \
                 the remaining parts wrong times",
            ));
        }
        let in_its_set = statement.in_its_set(kind, self.dialect, self.open);
        self.target().prepare(&in_its_set).map_err(|trouble| self.trouble(trouble))?;
        for set in std::mem::take(&mut self.ahead) {
            self.run(set.as_bytes())?;
        }
        self.run_one(kind, statement)
    }

    /// Runs a statement that is no part of how transactions begin and end.
    fn run_one(&mut self, kind: Kind, statement: &Statement) -> Result<()> {
        let commits = kind == Kind::Definition && self.dialect == Dialect::MariaDb && self.open;
        let opens = statement.keeps_open();
        // Without a binary log, a MySQL server commits this CREATE TABLE before its rows, and with the GTID of both.
        let apart = opens && !self.logs;
        if apart {
            self.give_gtid_back()?;
        }
        self.open |= opens;
        (self.empty, self.changed) = (false, true);
        let text = match apart {
            true => statement.runnable(),
            false => statement.by_its_account(kind).map_err(|why| self.odd(why))?,
        };
        let made = match self.target().run(&text) {
            Err(Failure::Server(error))
                if (MADE_ALREADY.contains(&error.code) || error.code == NO_EVENT)
                    && kind != Kind::Rows
                    && self.guard.is_before_the_end_of_the_set(&self.file, self.at) =>
            {
                // The set has what the log makes later. The GTID was given back with the error.
                self.target().leave_wide_names().map_err(|failure| self.failed(failure))?;
                if !apart {
                    self.take_gtid()?;
                }
                self.empty = true;
                false
            }
            Err(Failure::Server(error)) if statement.error != 0 && error.code == u32::from(statement.error) => false,
            done => done.map(|()| true).map_err(|failure| self.failed(failure))?,
        };
        self.target().leave_wide_names().map_err(|failure| self.failed(failure))?;
        if apart {
            self.take_gtid()?;
        }
        // The account may not be among those that were restored.
        if made
            && kind == Kind::Account
            && self.dialect == Dialect::MariaDb
            && let Some(admin) = statement.admin_of_role()
            && let Err(Failure::Fault(error)) = self.target().run(&admin)
        {
            return Err(error);
        }
        if commits || opens && (apart || !made) {
            // CREATE TABLE … SELECT: no transaction is open any more for the rows that follow.
            self.half = made.then(|| statement.clone());
            self.run(b"START TRANSACTION")?;
        }
        Ok(())
    }

    fn end_transaction(&mut self, statement: &[u8]) -> Result<()> {
        self.send_rows()?;
        self.run(statement)?;
        self.open = false;
        Ok(())
    }

    pub(super) fn send_rows(&mut self) -> Result<()> {
        let Some(statement) = self.batch.statement() else { return Ok(()) };
        (self.empty, self.changed) = (false, true);
        self.target().send(statement).map_err(|failure| self.failed(failure))
    }

    pub(super) fn run(&mut self, statement: &[u8]) -> Result<()> {
        self.empty = false;
        self.target().run(statement).map_err(|failure| self.failed(failure))
    }

    fn trouble(&self, trouble: Trouble) -> Error {
        match trouble {
            Trouble::Server(error) => self.failed(Failure::Server(error)),
            Trouble::Odd(why) => self.odd(&why),
            Trouble::Fault(error) => error,
        }
    }

    pub(super) fn failed(&self, failure: Failure) -> Error {
        let Failure::Server(error) = failure else { return failure.into() };
        // A statement about an account has a hash, and one about rows has values.
        let told = error.with_names_only();
        let why = format!("it refuses the transaction at {} of the log: {told}", self.group);
        let hint = "nothing of this transaction was applied, and everything before it was; look why the target differs from \
                    the source";
        Error::refused(self.server(), why, hint)
    }

    pub(super) fn odd(&self, why: &str) -> Error {
        let hint = "nothing of this transaction was applied; restore a physical full into a directory, whose server applies \
                    its log itself";
        Error::refused(format!("the transaction at {} of the log", self.group), why, hint)
    }
}

/// Whether a statement changes a part of a period of one of these tables. See
/// [`history::close`](crate::mysql_family::logical_set::load::history::close).
fn changes_portion(text: &[u8], tables: &BTreeSet<String>) -> bool {
    let text = String::from_utf8_lossy(text).to_lowercase();
    text.contains("portion") && tables.iter().any(|table| text.contains(table))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_period_is_changed_only_where_the_log_had_no_rows_of_the_table() {
        let tables = BTreeSet::from(["stay".to_owned()]);
        let deletes = b"DELETE FROM Stay FOR PORTION OF p FROM '2020-01-01' TO '2020-02-01'";
        assert!(changes_portion(deletes, &tables) && !changes_portion(deletes, &BTreeSet::new()));
        assert!(!changes_portion(b"DELETE FROM stay", &tables));
    }
}
