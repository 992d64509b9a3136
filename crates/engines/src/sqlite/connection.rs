//! The SQLite connection that holds the snapshot. It locks and rolls back a hot journal; it writes nothing else.

use std::cell::RefCell;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::io::directory_of;
use fullbore_core::{Error, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use super::open_files::{RawFile, beside};
use super::wal_index::{COPIED_AT, INDEX_HEADER_SIZE, IndexHeader};

/// How long SQLite waits for a lock before we look whether the job was cancelled.
const LOCK_SLICE: Duration = Duration::from_millis(50);

/// Bytes that SQLite needs beside a database in WAL mode to read it: one piece of a wal-index.
const ROOM_BESIDE: u64 = 32 << 10;

/// A connection that never changes the database and never checkpoints it.
///
/// The last connection to close checkpoints the log and removes it. This is switched off here, with one exception: an
/// empty log that this connection created itself. The application may not have the permission to open a log of the
/// backup user, and an empty log has nothing to checkpoint.
pub(super) struct QuietConnection {
    connection: Connection,
    log: PathBuf,
    log_was_there: bool,
    /// Why SQLite cannot parse the schema, if the connection continues without it.
    unreadable_schema: RefCell<Option<String>>,
}

impl QuietConnection {
    /// Connects to the existing database at `path`, which must be absolute.
    pub fn open(path: &Path) -> Result<Self> {
        let log = beside(path, "-wal");
        let log_was_there = log.exists();
        // Read-write, because SQLite must be able to roll back a hot journal and to take part in the wal-index;
        // where this user may not write, SQLite falls back to reading by itself.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(|error| explain(path, error))?;
        let quiet = Self { connection, log, log_was_there, unreadable_schema: RefCell::default() };
        quiet.set_up().map_err(|error| explain(path, error))?;
        Ok(quiet)
    }

    fn set_up(&self) -> rusqlite::Result<()> {
        self.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        self.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        self.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        self.pragma_update(None, "query_only", true)?;
        self.busy_timeout(LOCK_SLICE)
    }

    /// As [`begin`](Self::begin). With `continue_after_error` it also begins if SQLite cannot parse the schema; then
    /// [`unreadable_schema`](Self::unreadable_schema) tells why.
    pub fn begin_despite(&self, continue_after_error: bool, path: &Path, patience: &Patience) -> Result<()> {
        let begun = self.begin(path, patience);
        if !continue_after_error {
            return begun;
        }
        let why = self.unreadable_schema.take();
        self.do_without_schema(path)?;
        if why.is_some() && begun.is_err() {
            self.begin(path, patience)?;
            self.unreadable_schema.replace(why);
            return Ok(());
        }
        begun
    }

    /// From now on a schema that SQLite cannot parse is not an error.
    pub fn do_without_schema(&self, path: &Path) -> Result<()> {
        // This connection is defensive and query-only: it still cannot write the schema.
        let done = self.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true);
        done.map(drop).map_err(|error| explain(path, error))
    }

    /// Why SQLite cannot parse the schema.
    pub fn unreadable_schema(&self) -> Option<String> {
        self.unreadable_schema.borrow().clone()
    }

    /// Starts a read transaction, and really reads, so that its locks are taken.
    pub fn begin(&self, path: &Path, patience: &Patience) -> Result<()> {
        self.insist(path, patience, || {
            self.end()?;
            self.prepare_cached("BEGIN")?.execute([])?;
            self.prepare_cached("SELECT count(*) FROM sqlite_schema")?.query_row([], |_| Ok(()))
        })
    }

    /// Starts a transaction that keeps other writers out and lets readers in. It writes nothing.
    pub fn begin_alone(&self, path: &Path, patience: &Patience) -> Result<()> {
        let begun = self.insist(path, patience, || {
            self.end()?;
            // SQLite refuses the transaction of a writer otherwise.
            self.pragma_update(None, "query_only", false)?;
            self.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            self.pragma_update(None, "query_only", true)?;
            self.prepare_cached("SELECT count(*) FROM sqlite_schema")?.query_row([], |_| Ok(()))
        });
        begun.map_err(|error| error.noting("fullbore waits for the transactions of writers, to keep them out"))
    }

    /// Tries until there is an answer, a permanent error, or the timeout.
    fn insist<T>(&self, path: &Path, patience: &Patience, attempt: impl Fn() -> rusqlite::Result<T>) -> Result<T> {
        loop {
            match attempt() {
                Ok(answer) => return Ok(answer),
                Err(error) if may_pass(&error) && patience.is_left()? => {}
                Err(error) => {
                    self.unreadable_schema.replace(schema_error(&error));
                    return Err(explain(path, error));
                }
            }
        }
    }

    /// Ends the transaction, if there is one, and with it all locks on the database's content.
    pub fn end(&self) -> rusqlite::Result<()> {
        if self.is_autocommit() { Ok(()) } else { self.prepare_cached("ROLLBACK")?.execute([]).map(drop) }
    }

    /// Starts a read transaction in WAL mode and learns where in the log it ends. If the wal-index header is the same
    /// before and after, no commit came in between. If writers are too fast for that in `attempts` attempts, it takes
    /// the end of the log just after the start: see [`Mark::exact`].
    pub fn begin_at_mark(&self, path: &Path, index: &RawFile, attempts: u32, patience: &Patience) -> Result<Mark> {
        for _ in 0..attempts {
            // BEGIN alone takes no lock: only the first read, of page 1, is between the two looks.
            self.begin_anew(path)?;
            let before = read_index(index)?;
            self.read_first_page(path, patience)?;
            if let Some(header) = read_index(index)?.filter(|header| before.as_ref() == Some(header)) {
                return Ok(Mark { holds_log: holds_log(index, &header)?, header, exact: true });
            }
        }
        self.begin_anew(path)?;
        self.read_first_page(path, patience)?;
        loop {
            if let Some(header) = read_index(index)? {
                return Ok(Mark { holds_log: holds_log(index, &header)?, header, exact: false });
            }
            if !patience.is_left()? {
                return Err(Error::refused(
                    index.name(),
                    "it has no valid header",
                    "an application died while it changed this file; the next application that opens the database \
                     repairs it",
                ));
            }
        }
    }

    fn begin_anew(&self, path: &Path) -> Result<()> {
        let begin = || self.end().and_then(|()| self.prepare_cached("BEGIN")?.execute([]));
        begin().map(drop).map_err(|error| explain(path, error))
    }

    fn read_first_page(&self, path: &Path, patience: &Patience) -> Result<()> {
        self.insist(path, patience, || {
            self.prepare_cached("SELECT 1 FROM sqlite_schema LIMIT 1")?.query([])?.next().map(drop)
        })
    }
}

/// Where in the log a snapshot ends.
pub(super) struct Mark {
    /// The wal-index header at that moment.
    pub header: IndexHeader,
    /// True when the transaction sees exactly this. Otherwise the mark is a later commit, which the transaction
    /// preserves as well. A checkpoint copies no frame behind the transaction's own read mark, so none behind this
    /// mark. The log is not restarted while a read mark above 0 is held. With slot 0 it is not restarted while it has
    /// frames that were not copied, and no frame can be copied while slot 0 is held.
    pub exact: bool,
    /// True when a read mark above 0 is surely held. Otherwise all frames may be in the database file, and a writer may
    /// restart the log at any time.
    pub holds_log: bool,
}

/// True when a transaction that has just begun holds the log up to this mark. The number of copied frames never becomes
/// smaller in one log. If it is below the mark now, it was below the mark when the transaction began.
fn holds_log(index: &RawFile, mark: &IndexHeader) -> Result<bool> {
    let mut copied = [0; 4];
    let got = index.read_at(COPIED_AT, &mut copied).map_err(|error| index.read_error(COPIED_AT, 4, error))?;
    let same_log = read_index(index)?.is_some_and(|now| now.salts == mark.salts);
    Ok(got == copied.len() && same_log && u32::from_ne_bytes(copied) < mark.max_frame)
}

impl Deref for QuietConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for QuietConnection {
    fn drop(&mut self) {
        let ours_and_empty = !self.log_was_there && fs::metadata(&self.log).is_ok_and(|log| log.len() == 0);
        if ours_and_empty {
            // After a failure an empty log remains, as documented for a log that existed before.
            let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        }
    }
}

/// The wal-index header now; `None` while a writer is changing it.
pub(super) fn read_index(index: &RawFile) -> Result<Option<IndexHeader>> {
    let mut bytes = [0; INDEX_HEADER_SIZE];
    let got = index.read_at(0, &mut bytes).map_err(|error| index.read_error(0, bytes.len(), error))?;
    Ok(IndexHeader::parse(&bytes[..got]).ok())
}

/// How long to try for a lock.
pub(super) struct Patience {
    deadline: Instant,
    halt: Option<Halt>,
}

impl Patience {
    /// Until `timeout` from now, or until the job is stopped.
    pub fn new(timeout: Duration, halt: Option<Halt>) -> Self {
        let now = Instant::now();
        Self { deadline: now.checked_add(timeout).unwrap_or(now), halt }
    }

    fn is_left(&self) -> Result<bool> {
        if let Some(halt) = &self.halt {
            halt.check()?;
        }
        Ok(Instant::now() < self.deadline)
    }
}

/// True for an error that may not occur at the next try.
fn may_pass(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed)
    )
}

/// The warning of a backup that continues without the schema.
pub(super) fn schema_warning(path: &Path, why: &str) -> String {
    format!(
        "{}: SQLite {} cannot read its schema ({why}): the pages are stored as they are; after a restore, only an \
         SQLite that can read the schema opens the database",
        path.display(),
        rusqlite::version()
    )
}

/// SQLite's message about a schema that it cannot parse.
fn schema_error(error: &rusqlite::Error) -> Option<String> {
    let text = error.to_string();
    text.starts_with("malformed database schema").then_some(text)
}

/// SQLite's error as ours: the database, the cause and the next step.
pub(super) fn explain(path: &Path, error: rusqlite::Error) -> Error {
    let name = path.display().to_string();
    let text = error.to_string();
    let extended = error.sqlite_error().map_or(0, |error| error.extended_code);
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => not_a_database(&name),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::refused(
            name,
            "another process holds a lock on it that keeps readers out",
            "a commit takes longer than --lock-timeout, or an application uses PRAGMA locking_mode=EXCLUSIVE: raise \
             the timeout, or stop the application",
        ),
        Some(ErrorCode::ReadOnly) if extended == ffi::SQLITE_READONLY_ROLLBACK => Error::refused(
            name,
            "a writer crashed and left a hot journal, and this user may not write the database to roll it back",
            "run fullbore as a user with write permission, or open the database once with the application",
        ),
        Some(ErrorCode::DatabaseCorrupt) if schema_error(&error).is_some() => Error::refused(
            name,
            format!("SQLite {} cannot read its schema: {text}", rusqlite::version()),
            "if a newer SQLite did not write the schema, repair it; `backup --continue-after-error` stores the pages \
             as they are",
        ),
        Some(ErrorCode::DatabaseCorrupt) => Error::refused(
            name,
            format!("SQLite finds it malformed: {text}"),
            "run `PRAGMA integrity_check`; `sqlite3 FILE .recover` saves the readable rows",
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::DiskFull)
            if let Some(full) = full_disk(path) =>
        {
            Error::refused(
                name,
                format!("SQLite reports: {text}; {full}"),
                "free space there: in WAL mode, even a reader needs the files ending in -wal and -shm beside the \
                 database",
            )
        }
        Some(ErrorCode::DiskFull) => Error::refused(
            name,
            format!("SQLite reports: {text}"),
            "free space beside the database, or raise the quota",
        ),
        Some(ErrorCode::CannotOpen) => Error::refused(
            name,
            format!("SQLite cannot open it or one of its side files: {text}"),
            "in WAL mode the user of the backup needs write permission for the directory and for the files ending in \
             -wal and -shm",
        ),
        _ if text.contains("unsupported file format") => {
            unsupported_format(&name, "SQLite calls its schema format unsupported")
        }
        _ => Error::refused(name, format!("SQLite reports: {text}"), ""),
    }
}

/// The cause for the message, if the file system of the database is full.
fn full_disk(path: &Path) -> Option<String> {
    let folder = directory_of(path);
    let disk = rustix::fs::statvfs(folder).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let shown = folder.display();
    if free < ROOM_BESIDE {
        return Some(format!("the disk is full: {free} bytes are free in {shown}"));
    }
    (disk.f_files > 0 && disk.f_favail == 0).then(|| format!("the disk is full: no more files fit into {shown}"))
}

/// The refusal of a file without SQLite's magic.
pub(super) fn not_a_database(name: &str) -> Error {
    Error::refused(
        name,
        "this is not an SQLite database: the file does not begin with \"SQLite format 3\", or its header is invalid",
        "a database encrypted by SQLCipher or SEE looks the same; only an application with the key can copy it",
    )
}

/// The refusal of a format newer than this library.
pub(super) fn unsupported_format(name: &str, what: &str) -> Error {
    Error::refused(
        name,
        format!("{what}; this fullbore supports the formats of SQLite {}", rusqlite::version()),
        "use a newer fullbore",
    )
}
