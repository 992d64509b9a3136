//! The tables that a clone leaves out, stored beside it as SQL text (`--include-other-engines`).
//!
//! They have no transactions, so they are locked for reading. The lock begins before the end of PAGE_COPY is
//! acknowledged, that is before the consistent moment of the clone, and ends when they have been read after the clone.
//! So they do not change in between, and one position in the binary log is right for everything in the set.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::source::{Extent, Stream};
use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};
use serde_json::{Value, json};

use crate::Options;
use crate::mysql_family::Dialect;
use crate::mysql_family::account::Grants;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::credentials::Credentials;
use crate::mysql_family::logical::FOLDER;
use crate::mysql_family::logical::dump::{self, Account, TableDump};
use crate::mysql_family::logical::tables::{self, Table};
use crate::mysql_family::url::ServerAddress;

/// The server's answer to `LOCK TABLES` after `lock_wait_timeout`: ER_LOCK_WAIT_TIMEOUT.
const LOCK_WAIT_TIMEOUT: u32 = 1205;
/// A table was dropped: ER_NO_SUCH_TABLE.
const NO_SUCH_TABLE: u32 = 1146;
/// How often to list the tables again if they change between the listing and the lock.
const ATTEMPTS: usize = 5;
/// The unit of a text: it has no pages.
pub const UNIT: u32 = 4096;
/// Their layer: they are read when the clone has ended.
const LAYER: u16 = 2;
/// How many tables are named in a message.
const NAMED_MAX: usize = 10;

/// Tables of other engines: listed, locked, read.
pub struct OtherEngines {
    lock_timeout: Duration,
    server: String,
    state: Mutex<State>,
}

struct State {
    /// Holds the lock and reads the locked tables. Another connection could wait for ever behind an ALTER TABLE, which
    /// waits for this lock.
    connection: Connection,
    /// For tables without rows, which have no lock: the locking connection cannot query them.
    second: Connection,
    /// The tables to read, the last first.
    left: Vec<Table>,
    all: Vec<Table>,
    dump: Option<(u32, TableDump)>,
    texts: Vec<Text>,
    /// When the lock was asked for, while it is held.
    since: Option<Instant>,
    blocked: Duration,
    warnings: Vec<String>,
}

/// A table's text, once it is written.
struct Text {
    stream: u32,
    path: String,
    table: Table,
    account: Account,
}

impl OtherEngines {
    /// Connects, takes the lock once and releases it at once: so a missing privilege or a foreign lock is an error
    /// before the backup begins.
    ///
    /// # Errors
    /// A privilege is missing, a table cannot be locked within the time, or the server refuses.
    pub fn open(
        address: &ServerAddress,
        credentials: &Credentials,
        grants: &Grants,
        server: &str,
        options: &Options,
    ) -> Result<Self> {
        let connect = || -> Result<Connection> {
            let mut connection = Connection::open(address, credentials, options.halt.clone())?;
            for statement in dump::session(Dialect::MySql) {
                connection.query(&statement)?;
            }
            Ok(connection)
        };
        let (mut connection, second) = (connect()?, connect()?);
        // The server waits in whole seconds, and for each table anew; the connection limits the whole wait.
        let lock_timeout = options.lock_timeout.max(Duration::from_secs(1));
        connection.query(&format!("SET SESSION lock_wait_timeout = {}", lock_timeout.as_secs().min(31_536_000)))?;
        let state = State {
            connection,
            second,
            left: Vec::new(),
            all: Vec::new(),
            dump: None,
            texts: Vec::new(),
            since: None,
            blocked: Duration::ZERO,
            warnings: Vec::new(),
        };
        let others = Self { lock_timeout, server: server.to_owned(), state: Mutex::new(state) };
        demand_privileges(&address.name(), grants, &tables::list(&mut others.state().connection)?)?;
        others.lock()?;
        others.unlock()?;
        Ok(others)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks all of them, as they are now, against writing. Nothing if there are none.
    ///
    /// # Errors
    /// A session holds a lock for longer than `--lock-timeout`, or a table cannot be opened.
    pub fn lock(&self) -> Result<()> {
        let mut guard = self.state();
        let state = &mut *guard;
        for _ in 0..ATTEMPTS {
            let listed = tables::list(&mut state.connection)?;
            let begun = Instant::now();
            let locked = lock(&mut state.connection, &listed, self.lock_timeout);
            if let Err(Failure::Server(error)) = &locked
                && error.code == NO_SUCH_TABLE
            {
                state.blocked += begun.elapsed();
                continue;
            }
            if let Err(failure) = locked {
                state.blocked += begun.elapsed();
                return Err(self.refused(failure, &listed));
            }
            // Locked tables do not change; a table that was created in the meantime is not locked.
            if tables::list(&mut state.connection)? == listed {
                state.since = (!listed.is_empty()).then_some(begun);
                state.left = listed.iter().rev().cloned().collect();
                state.all = listed;
                return Ok(());
            }
            state.connection.query("UNLOCK TABLES")?;
            state.blocked += begun.elapsed();
        }
        Err(Error::refused(
            state.connection.name(),
            "tables of other engines than InnoDB are created and dropped too fast to lock them",
            "try again when no session creates or drops such tables",
        ))
    }

    fn refused(&self, failure: Failure, listed: &[Table]) -> Error {
        let Failure::Server(error) = failure else { return failure.into() };
        if error.code != LOCK_WAIT_TIMEOUT {
            return error.into_error();
        }
        let tables = named(listed);
        Error::refused(
            &error.server,
            format!(
                "its tables of other engines than InnoDB ({tables}) could not be locked within {} s: a session writes \
                 to them or holds a lock",
                self.lock_timeout.as_secs()
            ),
            "find the session in performance_schema.metadata_locks, or wait longer with --lock-timeout",
        )
    }

    /// Lets writers continue.
    pub fn unlock(&self) -> Result<()> {
        let mut state = self.state();
        let created = match state.since {
            Some(_) => {
                tables::list(&mut state.connection)?.into_iter().filter(|table| !state.all.contains(table)).collect()
            }
            None => Vec::new(),
        };
        state.connection.query("UNLOCK TABLES")?;
        if let Some(since) = state.since.take() {
            state.blocked += since.elapsed();
        }
        if !created.is_empty() {
            let names = named(&created);
            state.warnings.push(format!(
                "empty after a restore: tables of other engines than InnoDB, created while the others were read: \
                 {} ({names})",
                created.len()
            ));
        }
        Ok(())
    }

    /// Keeps the locking connection alive, unless it is busy reading.
    pub fn keep_alive(&self) -> Result<()> {
        let Ok(mut state) = self.state.try_lock() else { return Ok(()) };
        if state.since.is_some() && state.dump.is_none() {
            state.connection.query("DO 1")?;
        }
        Ok(())
    }

    /// Fills the start of `buffer` with the next text; `None` after the last. `number` gives each text its stream.
    pub fn next(&self, mut number: impl FnMut() -> Result<u32>, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let mut guard = self.state();
        let state = &mut *guard;
        let room = buffer.len() / UNIT as usize * UNIT as usize;
        loop {
            let (stream, mut dump) = match state.dump.take() {
                Some(begun) => begun,
                None => {
                    let Some(table) = state.left.pop() else { return Ok(None) };
                    let Some(dump) = self.begin(state, table)? else { continue };
                    (number()?, dump)
                }
            };
            let offset = dump.account().bytes;
            let connection = if dump.table().has_rows() { &mut state.connection } else { &mut state.second };
            let length = dump.fill(connection, &mut buffer[..room])?;
            if length == room {
                state.dump = Some((stream, dump));
            } else {
                let (table, account) = (dump.table().clone(), dump.account());
                let path = format!("{FOLDER}/{}", table.path(state.texts.len()));
                state.texts.push(Text { stream, path, table, account });
            }
            // Nothing is left of a text that ended with a buffer.
            if length > 0 {
                return Ok(Some(Extent { stream, layer: LAYER, offset, length: length as u32 }));
            }
        }
    }

    /// Begins a text. `None` for a table without rows of its own that the server cannot describe, such as a MERGE table
    /// whose tables were dropped: it was unusable before the backup too.
    fn begin(&self, state: &mut State, table: Table) -> Result<Option<TableDump>> {
        if table.has_rows() {
            return TableDump::begin(&mut state.connection, table, &self.server).map(Some);
        }
        match TableDump::begin(&mut state.second, table.clone(), &self.server) {
            Err(error @ Error::Refused { .. }) if state.second.query("DO 1").is_ok() => {
                state
                    .warnings
                    .push(format!("{} ({}) is not stored: {error}", table.shown(), table.engine).replace('\n', " "));
                Ok(None)
            }
            begun => begun.map(Some),
        }
    }

    /// The texts as streams.
    pub fn streams(&self) -> Vec<Stream> {
        let state = self.state();
        let stream =
            |text: &Text| Stream { id: text.stream, name: text.path.clone(), unit: UNIT, size: text.account.bytes };
        state.texts.iter().map(stream).collect()
    }

    /// The detail of a text for the manifest.
    pub fn detail(&self, stream: u32) -> Option<Value> {
        let state = self.state();
        let Text { table, account, .. } =
            &state.texts[state.texts.binary_search_by_key(&stream, |text| text.stream).ok()?];
        Some(json!({ "other_engine": {
            "schema": table.schema, "table": table.name, "engine": table.engine, "rows": account.rows,
            "triggers": account.triggers, "longest_statement": account.longest,
        }}))
    }

    /// How long writers to these tables could have been kept waiting.
    pub fn blocked(&self) -> Duration {
        let state = self.state();
        state.blocked + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// How many tables were stored.
    pub fn count(&self) -> usize {
        self.state().texts.len()
    }

    /// What the user should know about these tables.
    pub fn warnings(&self) -> Vec<String> {
        self.state().warnings.clone()
    }
}

/// `LOCK TABLES … READ`, which waits for writers and not for readers. Tables without rows of their own need no lock,
/// and cannot be locked if the tables that they refer to are missing.
fn lock(connection: &mut Connection, listed: &[Table], timeout: Duration) -> Result<(), Failure> {
    let tables: Vec<String> =
        listed.iter().filter(|table| table.has_rows()).map(|table| format!("{} READ", table.quoted())).collect();
    if tables.is_empty() {
        return Ok(());
    }
    connection.set_silence(timeout + Duration::from_secs(5));
    connection.query(&format!("LOCK TABLES {}", tables.join(", ")))?;
    connection.set_silence(Duration::from_secs(600));
    // `keep_alive` queries it every few seconds. If this machine disappears, the server soon releases the lock.
    connection.query("SET SESSION wait_timeout = 60")?;
    Ok(())
}

/// Names all missing privileges in one error, before the backup begins.
fn demand_privileges(server: &str, grants: &Grants, listed: &[Table]) -> Result<()> {
    let mut missing = Vec::new();
    if !grants.globally("SELECT") {
        // Without it the account does not see such tables at all.
        missing.push("SELECT ON *.*".to_owned());
    }
    for privilege in ["LOCK TABLES", "TRIGGER"] {
        let lacking = listed.iter().find(|table| !grants.on(&table.schema, privilege));
        missing.extend(lacking.map(|table| format!("{privilege} ON `{}`.*", table.schema)));
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::refused(
        server,
        format!("the account lacks privileges for --include-other-engines: {}", missing.join(", ")),
        "GRANT SELECT, LOCK TABLES, TRIGGER ON *.* TO this account",
    ))
}

/// The first tables, for a message.
fn named(tables: &[Table]) -> String {
    first_of(tables.iter().map(Table::shown), NAMED_MAX)
}
