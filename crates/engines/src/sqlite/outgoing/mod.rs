//! An SQLite database that moves: one snapshot, its definitions, and its rows for a server of another engine; or a held log,
//! while its last log sets go into another file.
//!
//! [`schema`] reads the definitions, [`statement`] the parts of them that only the text of a statement has. [`held`]
//! compares it with its copy.

mod held;
pub mod schema;
pub mod statement;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use rusqlite::types::ValueRef;

use super::connection::{Patience, QuietConnection, explain};
use super::engine::path_of;
use super::open_files::Claim;
use super::probe::{self, locate};
use crate::Options;
use schema::{Schema, Table};

/// After so many rows, a reader looks whether the job was stopped.
const LOOK_EVERY: u64 = 256;

/// The row of a value, for messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowName {
    /// Its rowid; a table WITHOUT ROWID has none.
    pub rowid: Option<i64>,
    /// Its number, in the order in which rows are read.
    pub number: u64,
}

impl std::fmt::Display for RowName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rowid {
            Some(rowid) => write!(f, "the row with rowid {rowid}"),
            None => write!(f, "row {} in the order of its key", self.number),
        }
    }
}

/// An open snapshot. The connection is dropped before the claim.
pub struct Outgoing {
    connection: QuietConnection,
    path: PathBuf,
    halt: Option<Halt>,
    /// Writers are kept out since then.
    pub locked_since: Option<Instant>,
    /// What the user should know.
    pub warnings: Vec<String>,
    claim: Arc<Claim>,
}

impl Outgoing {
    /// Opens the database of a URL, and takes the snapshot. `alone`: no other process writes to it until this is dropped. This
    /// process can back up its log meanwhile: the log keeps everything from the snapshot on.
    ///
    /// # Errors
    /// The file is not a database, cannot be read, or a lock is not free in time.
    pub fn open(url: &str, options: &Options, alone: bool) -> Result<Self> {
        let path = locate(path_of(url)?)?;
        let claim = Claim::take_or_join(&path)?;
        claim.share();
        let warnings = probe::look(&claim)?;
        let connection = QuietConnection::open(&path)?;
        let patience = Patience::new(options.lock_timeout, options.halt.clone());
        let mut locked_since = None;
        match alone {
            true => {
                connection.begin_alone(&path, &patience)?;
                locked_since = Some(Instant::now());
            }
            false => connection.begin(&path, &patience)?,
        }
        Ok(Self { connection, path, halt: options.halt.clone(), locked_since, warnings, claim })
    }

    /// The file, with links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The definitions.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn schema(&self) -> Result<Schema> {
        Schema::read(&self.connection).map_err(|error| explain(&self.path, error))
    }

    /// How many foreign keys of the rows of a table have no parent row.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn orphans(&self, table: &Table) -> Result<u64> {
        let counted = || {
            self.connection.query_row("SELECT count(*) FROM pragma_foreign_key_check(?1)", [&table.name], |row| {
                row.get::<_, i64>(0)
            })
        };
        match counted() {
            Ok(count) => Ok(count.unsigned_abs()),
            // "foreign key mismatch": the parent has no such key. Such a key is left out anyway.
            Err(rusqlite::Error::SqliteFailure(_, Some(text))) if text.contains("foreign key mismatch") => Ok(0),
            Err(error) => Err(explain(&self.path, error)),
        }
    }

    /// The value of a literal of SQL; `None` if it is not one.
    pub fn literal(&self, text: &str) -> Option<rusqlite::types::Value> {
        if !statement::is_literal(text) {
            return None;
        }
        self.connection.query_row(&format!("SELECT {text}"), [], |row| row.get(0)).ok()
    }

    /// Reads all rows of a table, in the order in which they are stored.
    ///
    /// # Errors
    /// The database cannot be read, the job is stopped, or the error of `each`.
    pub fn rows(&self, table: &Table, mut each: impl FnMut(RowName, &[ValueRef<'_>]) -> Result<()>) -> Result<()> {
        let failed = |error| explain(&self.path, error);
        let mut statement = self.connection.prepare(&table.query()).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        let (mut number, count) = (0, table.columns.len());
        while let Some(row) = rows.next().map_err(failed)? {
            number += 1;
            if let Some(halt) = self.halt.as_ref().filter(|_| number % LOOK_EVERY == 0) {
                halt.check()?;
            }
            let rowid = row.get(0).map_err(failed)?;
            let values = (1..=count).map(|at| row.get_ref(at)).collect::<rusqlite::Result<Vec<_>>>();
            each(RowName { rowid, number }, &values.map_err(failed)?)?;
        }
        Ok(())
    }
}

/// As an identifier of SQLite.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
