//! Migrations: what a running server holds goes into another running server, while the source is written to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_core::meter::{Progress, Stage};
use fullbore_core::pool::Pool;

use crate::Options;
use crate::engine::{Loaded, LogReplay, SetEnd};

/// An engine whose servers can be migrated.
pub trait MigrationEngine: Sync {
    /// Connects to both servers, and checks everything that can be known before the first row.
    ///
    /// # Errors
    /// A server cannot be reached or refuses, the target holds something already, or the source cannot be followed.
    fn begin(&self, order: MigrationOrder) -> Result<Box<dyn Migration>>;

    /// Ends a migration that was interrupted: the source is what it was before the cut-over, and the target holds no state.
    /// What was moved stays. Gives what the user should know.
    ///
    /// # Errors
    /// A server cannot be reached, or the target holds no such migration.
    fn abort(&self, order: MigrationOrder) -> Result<Vec<String>>;

    /// Whether the source has a log that is applied to the target after the full. Without one, a cut-over keeps writers out
    /// from before the full on, and a migration has one database of the target.
    fn follows(&self) -> bool {
        true
    }

    /// The same out of the sets of a repository; `None` for an engine whose log sets no running server takes.
    fn out_of_sets(&self) -> Option<&dyn RefreshEngine> {
        None
    }
}

/// An engine whose sets go from a repository into a running server, step by step.
pub trait RefreshEngine: Sync {
    /// How far a target is that gets sets of a repository.
    ///
    /// # Errors
    /// It cannot be reached, or holds another migration.
    fn refreshed(&self, order: &RefreshOrder<'_>) -> Result<Refreshed>;

    /// Prepares to apply log sets to a target that remembers how far it is. With a base, its rows are loaded first.
    ///
    /// # Errors
    /// The target cannot be reached, cannot take the log, or holds something else.
    fn refresh(&self, order: &RefreshOrder<'_>, base: Option<&RefreshBase<'_>>) -> Result<Box<dyn LogReplay>>;

    /// Prepares the cut-over of such a target: the source of the order is `database` in the repository. The caller brings
    /// the last log sets into the target; [`Migration::full`] and [`Migration::follow`] have nothing to do.
    ///
    /// # Errors
    /// A server cannot be reached or refuses, or the target does not hold sets of this source.
    fn cut_over(&self, order: MigrationOrder, database: &str) -> Result<Box<dyn Migration>>;

    /// The target becomes an ordinary server, and keeps what it has. Gives what the user should know.
    ///
    /// # Errors
    /// It cannot be reached, or holds no such migration.
    fn end_refresh(&self, order: &RefreshOrder<'_>) -> Result<Vec<String>>;
}

/// A target that gets the sets of a database in a repository.
#[derive(Clone, Copy)]
pub struct RefreshOrder<'a> {
    /// The URL of the target.
    pub url: &'a str,
    /// How it is reached.
    pub options: &'a Options,
    /// The database, as the repository names it.
    pub database: &'a str,
    /// The engine of the sets.
    pub engine: &'a str,
}

/// The full whose rows are loaded into such a target.
#[derive(Clone, Copy)]
pub struct RefreshBase<'a> {
    /// The version of the server that was backed up.
    pub engine_version: &'a str,
    /// Its position.
    pub position: &'a serde_json::Value,
    /// Its catalogs: the name of a stream, and its bytes.
    pub catalogs: &'a [(String, Vec<u8>)],
    /// When it was finished, in microseconds since 1970.
    pub finished: i64,
    /// It is encrypted.
    pub encrypted: bool,
    /// What the target holds of another migration counts for nothing.
    pub replace: bool,
}

/// How far such a target is.
#[derive(Debug, Clone, PartialEq)]
pub enum Refreshed {
    /// It holds nothing of this migration.
    Nothing,
    /// The full was not loaded to its end.
    Begun,
    /// Everything up to here is there. True: the full was encrypted.
    UpTo(SetEnd, bool),
}

/// What is migrated, and how.
#[derive(Clone)]
pub struct MigrationOrder {
    /// The URL of the source.
    pub source: String,
    /// Its options. `readers` is the number of connections to each server.
    pub source_options: Options,
    /// The URL of the target.
    pub target: String,
    /// Its options.
    pub target_options: Options,
    /// Databases of the source; empty: all of them.
    pub databases: Vec<String>,
    /// What the target holds under these names may be dropped.
    pub replace: bool,
    /// Continues an interrupted migration.
    pub resume: bool,
    /// After the full, the log of the source is applied to the target.
    pub follow: bool,
    /// In the end, the source becomes read-only.
    pub cut_over: bool,
    /// The cut-over compares definitions, besides rows.
    pub compares_definitions: bool,
    /// Only looks: changes nothing.
    pub dry_run: bool,
    /// The full is a copy of the source's files, in place of its rows.
    pub physical: bool,
}

/// What the full uses.
pub struct Flow<'a> {
    /// The buffers between both servers.
    pub pool: &'a Arc<Pool>,
    /// Where bytes and times are shown.
    pub progress: &'a Progress,
    /// Ends all waiting.
    pub halt: &'a Halt,
}

/// What a migration will do, before the first row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationPlan {
    /// Source and target, with their versions.
    pub servers: [String; 2],
    /// Tables of the source.
    pub tables: u64,
    /// Bytes of their rows on disk, as the source estimates them.
    pub bytes: u64,
    /// The full is in the target already: only the log is applied.
    pub is_full_done: bool,
    /// Writers of the source are kept out since then: it has no log that is applied later.
    pub frozen_since: Option<Instant>,
    /// The tables as the target will have them, if they are made from those of another kind of database.
    pub definitions: Vec<Definition>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// Facts that need no action.
    pub notes: Vec<String>,
}

/// A table of the source, and its statement for the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Definition {
    /// Its name.
    pub table: String,
    /// Its rows.
    pub rows: u64,
    /// Bytes of its values, about as text.
    pub bytes: u64,
    /// CREATE TABLE.
    pub create: String,
}

/// What a look at the source says about a migration.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Foreseen {
    /// Bytes of rows, as text, that were read and forgotten.
    pub read_bytes: u64,
    /// How long that took.
    pub read: Duration,
    /// These are all rows.
    pub is_all: bool,
    /// Bytes that the source has added to its log meanwhile.
    pub log_bytes: u64,
}

/// A full that is in the target.
#[derive(Debug, Default)]
pub struct Moved {
    /// What was loaded.
    pub loaded: Loaded,
    /// Bytes of its rows, as text.
    pub bytes: u64,
    /// Where the time went.
    pub stages: Vec<Stage>,
    /// How long writers of the source could have waited.
    pub writers_blocked: Duration,
}

/// How far the target is.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Standing {
    /// Everything that the source has logged until this step is in the target.
    pub at_end: bool,
    /// The age of the newest change that is in the target; zero at the end of the log. None while it is unknown.
    pub lag: Option<Duration>,
    /// A transaction is being applied. It may be large: nothing says how long the rest of it takes.
    pub is_inside: bool,
    /// Bytes of the log that are not in the target yet.
    pub behind_bytes: u64,
    /// Bytes of the log that were applied so far.
    pub applied_bytes: u64,
    /// Transactions that were applied so far.
    pub transactions: u64,
}

/// Source and target, compared row by row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compared {
    /// Tables.
    pub tables: u64,
    /// Their rows.
    pub rows: u64,
}

/// A migration that is under way. The source is never left read-only, except after [`end`](Self::end).
pub trait Migration: Send {
    /// What it will do.
    fn plan(&self) -> MigrationPlan;

    /// Reads rows of the source for at most this time, and forgets them. Nothing is moved, and the snapshot is given up.
    ///
    /// # Errors
    /// The source refuses or is lost.
    fn foresee(&mut self, flow: &Flow<'_>, most: Duration) -> Result<Foreseen>;

    /// Moves the full: rows go from the source into the target without a stop between them. `tell` gives what the user should
    /// know at once.
    ///
    /// # Errors
    /// A server refuses or is lost.
    fn full(&mut self, flow: &Flow<'_>, tell: &dyn Fn(&str)) -> Result<Moved>;

    /// Applies the log for a moment, and says how far the target is.
    ///
    /// # Errors
    /// The log cannot be read, or the target does not take a change.
    fn follow(&mut self) -> Result<Standing>;

    /// From now on, the log of the source keeps what the last log set needs. Servers keep it anyway.
    ///
    /// # Errors
    /// The source refuses.
    fn hold_log(&mut self) -> Result<()> {
        Ok(())
    }

    /// Makes the source read-only.
    ///
    /// # Errors
    /// It refuses, or a lock is not free in time. The source is as it was.
    fn freeze(&mut self) -> Result<()>;

    /// Compares the rows of both servers while the source is read-only, and if asked the definitions of all objects.
    ///
    /// # Errors
    /// A table or an object differs, or cannot be read.
    fn compare(&mut self, definitions: bool) -> Result<Compared>;

    /// Ends the migration: the target is an ordinary server. Gives what the user should know, such as the way back.
    ///
    /// # Errors
    /// The target refuses.
    fn end(&mut self) -> Result<Loaded>;

    /// After an error: makes the source writable again, if it is read-only because of [`freeze`](Self::freeze). Gives what
    /// the user should know: what the servers hold now.
    fn give_up(&mut self) -> Vec<String>;
}
