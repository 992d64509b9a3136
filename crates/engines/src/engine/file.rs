//! Engines whose database is one file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_core::Result;

use super::{Compared, ForeignTables, Foreseen, Restorer};
use crate::Options;

/// Databases that are one file of this machine each.
pub trait FileEngine: Sync {
    /// Checks whether a database can be restored to `target`. Writes nothing.
    ///
    /// # Errors
    /// The target exists and may not be replaced, or a file beside it would change the restored database.
    fn prepare(&self, target: &Path, over: Over) -> Result<Box<dyn Restorer>>;

    /// Refuses files beside `target` that the engine would apply to any file with that name.
    ///
    /// # Errors
    /// It names such a file.
    fn refuse_side_files(&self, target: &Path) -> Result<()>;

    /// A file beside `file` that shows that an application has opened it.
    fn sign_of_use(&self, file: &Path) -> Option<PathBuf>;

    /// Lets the engine check a file that no process has open. Returns the problems; empty for a sound database.
    ///
    /// # Errors
    /// The file cannot be read.
    fn check(&self, file: &Path, depth: Depth) -> Result<Vec<String>>;

    /// Opens the tables of a restored file that no process has open. `database` and `sets` are for messages.
    ///
    /// # Errors
    /// The file is not a database, or cannot be read.
    fn tables(&self, file: &Path, database: &str, sets: Vec<String>) -> Result<Box<dyn ForeignTables>>;

    /// Holds the log of the database that `url` names, until the result is dropped: what is committed now and later is not
    /// removed from it. `alone` keeps writers out, too. Readers continue, and this process can back up the log.
    ///
    /// # Errors
    /// The database cannot be opened, or a writer does not end in time.
    fn hold(&self, url: &str, options: &Options, alone: bool) -> Result<Box<dyn Held>>;

    /// Reads rows of the database that `url` names for at most this time, and forgets them.
    ///
    /// # Errors
    /// The database cannot be read.
    fn foresee(&self, url: &str, options: &Options, most: Duration) -> Result<Foreseen>;
}

/// A database whose log is held, perhaps without writers, until this is dropped.
pub trait Held: Send {
    /// Compares its rows with those of `file`, which no process has open; if asked, the definitions too.
    ///
    /// # Errors
    /// A table differs, or cannot be read.
    fn compare(&self, file: &Path, definitions: bool) -> Result<Compared>;
}

/// What a restore may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Nothing: the target must not exist.
    Nothing,
    /// A database of the engine (`--replace`).
    Database,
    /// The state of a restore in steps. The caller removes it before the restored database gets its name.
    State,
}

/// How thorough a check of a restored database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Each page, for itself.
    Quick,
    /// Everything that the engine can check.
    Full,
}
