//! A directory for one run that only its user can enter. What a killed run has left is removed by the next run.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::LockableFile;
use crate::{Error, Result};

/// The file that is locked while the directory is in use.
const LOCK: &str = "lock";

/// A directory with a short name. A drop removes it.
#[derive(Debug)]
pub struct PrivateDirectory {
    path: PathBuf,
    /// Locked for as long as it is open.
    _lock: LockableFile,
}

impl PrivateDirectory {
    /// Makes `fullbore-PURPOSE-…` in `within`, and removes those that killed runs of this user have left there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(within: &Path, purpose: &str) -> Result<Self> {
        let begin = format!("fullbore-{purpose}-");
        let id = uuid::Uuid::new_v4().simple().to_string();
        let path = within.join(format!("{begin}{}-{}", std::process::id(), id.get(..8).unwrap_or_default()));
        let failed = |error| Error::io("make", path.display().to_string(), error);
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let lock = LockableFile::from(File::create_new(path.join(LOCK)).map_err(failed)?);
        // No other run knows this file. Where there are no locks, nothing is swept either.
        let _ = lock.try_lock();
        if let Ok(own) = lock.metadata() {
            sweep(within, &begin, own.uid(), &path);
        }
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path); // The next run tries again.
    }
}

/// Removes the directories of runs that do not live any more. Nothing here is worth an error.
fn sweep(within: &Path, begin: &str, user: u32, own: &Path) {
    for entry in fs::read_dir(within).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(begin)) && path != own;
        let is_own = || path.symlink_metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        if !ours || !is_own() {
            continue;
        }
        // A directory without the file has just been made by another run.
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        if LockableFile::from(lock).try_lock().is_ok() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_new_directory_removes_what_a_killed_run_left_and_nothing_else() {
        let within = tempfile::tempdir().unwrap();
        let live = PrivateDirectory::new(within.path(), "start").unwrap();
        let left = within.path().join("fullbore-start-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), b"").unwrap();
        let other = within.path().join("fullbore-starting");
        fs::create_dir(&other).unwrap();
        fs::write(other.join(LOCK), b"").unwrap();
        let next = PrivateDirectory::new(within.path(), "start").unwrap();
        assert!(!left.exists() && other.exists() && live.path().exists());
        let gone = next.path().to_owned();
        drop(next);
        assert!(!gone.exists() && live.path().exists());
    }
}
