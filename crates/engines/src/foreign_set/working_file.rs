//! A file that is restored: it grows under a working name beside its own, which it gets when all of it is right.

use std::fs::{File, OpenOptions};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fullbore_core::io::LockableFile;
use fullbore_core::{Error, Result};
use uuid::Uuid;

/// A working name is this and a UUID.
const WORKING: &str = ".restoring-";

/// The file under its working name. A restore that fails leaves no file: a drop removes it. A file that was renamed does
/// not have this name any more.
pub struct WorkingFile {
    file: LockableFile,
    path: PathBuf,
}

impl WorkingFile {
    /// Makes a file of this length, all of it zero, that becomes `target`.
    ///
    /// # Errors
    /// `target` exists and `replace` is not given, or the file cannot be made.
    pub fn create(target: &Path, length: u64, replace: bool) -> Result<Self> {
        if !replace && target.symlink_metadata().is_ok() {
            let hint = "name another directory, or add --replace";
            return Err(Error::refused(target.display().to_string(), "exists", hint));
        }
        let path = target.with_file_name(format!("{WORKING}{}", Uuid::new_v4()));
        let failed = |e| Error::io("make", path.display().to_string(), e);
        // Only for its owner, as other backups.
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let made = Self { file: LockableFile::from(file.map_err(failed)?), path: path.clone() };
        let _ = made.file.try_lock(); // Some file systems have no locks: then leftovers stay.
        made.file.set_len(length).map_err(failed)?;
        Ok(made)
    }

    /// Its working name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes its bytes durable.
    ///
    /// # Errors
    /// It cannot be synced.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|e| Error::io("sync", self.path.display().to_string(), e))
    }
}

impl Deref for WorkingFile {
    type Target = LockableFile;

    fn deref(&self) -> &LockableFile {
        &self.file
    }
}

impl Drop for WorkingFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // The error that ends the restore is the one to tell.
    }
}

/// Removes what killed restores have left: files with working names that no run holds.
pub fn remove_leftovers(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(WORKING));
        // Opening a pipe would wait for its other end.
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let is_ours = is_file && id.is_some_and(|id| Uuid::parse_str(id).is_ok());
        let file = is_ours.then(|| File::open(entry.path()).ok()).flatten().map(LockableFile::from);
        if file.is_some_and(|file| file.try_lock().is_ok()) {
            let _ = std::fs::remove_file(entry.path()); // It costs space, and nothing else.
        }
    }
}
