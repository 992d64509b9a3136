//! Engines whose database is one file.

use std::path::{Path, PathBuf};

use fullbore_core::Result;
use fullbore_core::io::LockableFile;

/// Databases that are one file of this machine each.
pub trait FileEngine: Sync {
    /// Checks whether a database can be restored to `target`. Writes nothing.
    ///
    /// # Errors
    /// The target exists and may not be replaced, or a file beside it would change the restored database.
    fn prepare(&self, target: &Path, over: Over) -> Result<Box<dyn FileRestore>>;

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

/// A restore into one target that has been found possible.
pub trait FileRestore: Send + Sync {
    /// The target with its links resolved.
    fn target(&self) -> &Path;

    /// The file that the database is restored to: a new name beside the target, on the same file system.
    fn temporary(&self) -> &Path;

    /// Temporary files of earlier restores to this target that were killed. They may be deleted.
    fn leftovers(&self) -> &[PathBuf];

    /// Takes over the largest temporary file of an interrupted restore to this target. It becomes the temporary file,
    /// and stays locked while the returned file lives. `None` if there is no such file.
    ///
    /// # Errors
    /// A running restore writes to one of them, or it cannot be opened.
    fn take_over(&mut self) -> Result<Option<LockableFile>>;

    /// Gives the restored file the target's name, durably. Returns warnings. After an error the caller abandons.
    ///
    /// # Errors
    /// The target is in use, was created meanwhile, or cannot be written. Then it does not change.
    fn publish(&self) -> Result<Vec<String>>;

    /// Removes the temporary file. The target does not change.
    fn abandon(&self);
}
