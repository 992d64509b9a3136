//! A restore into one target, of any engine: the database gets its name only when it is whole.

use std::path::{Path, PathBuf};

use fullbore_core::Result;

/// A restore into one target that has been found possible. The database grows under a working name beside the target,
/// on the same file system. Dropping the restorer before [`publish`](Self::publish) removes it, and the target does
/// not change.
pub trait Restorer: Send + Sync {
    /// The target with its links resolved.
    fn target(&self) -> &Path;

    /// The file or directory that the database is restored to. It may be the target itself only where the target is an
    /// empty directory that cannot be renamed.
    fn temporary(&self) -> &Path;

    /// Temporary files or directories of earlier restores to this target that were killed. They may be deleted.
    fn leftovers(&self) -> &[PathBuf];

    /// Makes the temporary file or directory, which stays locked while this restorer lives. A leftover that was taken
    /// over is emptied.
    ///
    /// # Errors
    /// It cannot be made.
    fn make(&mut self) -> Result<()>;

    /// Takes over the largest leftover of an interrupted restore to this target, and locks it. From now on the leftover
    /// is the temporary file or directory, and it stays as after [`keep`](Self::keep). False if there is no leftover.
    ///
    /// # Errors
    /// A running restore writes to one of them, or it cannot be opened.
    fn take_over(&mut self) -> Result<bool>;

    /// From now on a restorer that is dropped leaves the temporary file or directory for another restore.
    fn keep(&mut self);

    /// Gives the restored database the target's name, durably. Returns warnings.
    ///
    /// # Errors
    /// The target is in use, was created meanwhile, or cannot be written. Then it does not change.
    fn publish(self: Box<Self>) -> Result<Vec<String>>;
}
