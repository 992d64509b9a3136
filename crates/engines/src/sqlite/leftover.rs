//! Temporary files of killed restores beside a target. A running restore holds a lock on its file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fullbore_core::io::LockableFile;
use fullbore_core::{Error, Result};
use rustix::fs::OFlags;

use super::open_files::{beside, io_error};

/// All files that killed restores to `target` left behind, by name.
pub(super) fn of(target: &Path) -> Result<Vec<PathBuf>> {
    let mut found = named(target, |_| true)?;
    found.retain(|path| !is_being_written(path));
    Ok(found)
}

/// The leftover with the most data, locked: another restore can continue it. It is never empty: an empty file may
/// belong to a run that has just begun and has not locked it yet.
///
/// # Errors
/// A running restore writes to one of them, or it cannot be opened.
pub(super) fn take_over(target: &Path) -> Result<Option<(PathBuf, LockableFile)>> {
    // Longer names belong to temporary side files of such a file.
    let is_id = |id: &[u8]| !id.is_empty() && id.iter().all(u8::is_ascii_hexdigit);
    let mut candidates = named(target, is_id)?;
    candidates.retain(|path| is_ours(path));
    let held = |path: &PathBuf| fs::symlink_metadata(path).map_or(0, |metadata| metadata.blocks());
    candidates.sort_by_key(|path| std::cmp::Reverse(held(path)));
    for path in candidates {
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path) {
            Ok(file) => LockableFile::from(file),
            Err(error) if error.kind() == ErrorKind::NotFound => continue, // It was complete and got its final name.
            Err(error) => return Err(io_error("open the file of a killed restore", &path, error)),
        };
        lock(&path, &file)?;
        if !is_still(&path, &file) {
            continue; // Another run has completed it and given it its final name.
        }
        return Ok(Some((path, file)));
    }
    Ok(None)
}

/// A running restore locks its temporary file, immediately after it begins.
fn is_being_written(path: &Path) -> bool {
    let is_locked = || {
        File::open(path)
            .map(LockableFile::from)
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    };
    let is_new = || fs::metadata(path).map_or(true, |metadata| metadata.len() == 0);
    is_locked()
        || is_new() && {
            thread::sleep(Duration::from_millis(50));
            is_locked() || !path.exists()
        }
}

/// A regular, non-empty file of this user with one name: no other user can write to the checked bytes.
fn is_ours(path: &Path) -> bool {
    let ours = |metadata: fs::Metadata| {
        let mine = metadata.uid() == rustix::process::geteuid().as_raw();
        mine && metadata.is_file() && metadata.nlink() == 1 && metadata.len() > 0
    };
    fs::symlink_metadata(path).is_ok_and(ours)
}

/// Locks the file of a killed restore: its own lock ended with the process.
fn lock(path: &Path, file: &LockableFile) -> Result<()> {
    for _ in 0..100 {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            // Another run that checks whether this is a leftover holds the lock for a moment.
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            Err(TryLockError::Error(error)) => {
                return Err(io_error("lock the file of a killed restore", path, error));
            }
        }
    }
    Err(Error::refused(
        path.display().to_string(),
        "a running restore to the same target writes to it",
        "wait until the other restore ends, or end it; then run this command again",
    ))
}

/// True if the name still leads to this file.
fn is_still(path: &Path, file: &File) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let same = |now: fs::Metadata| io::Result::Ok(identity(now) == identity(file.metadata()?));
    fs::symlink_metadata(path).and_then(same).unwrap_or(false)
}

/// Names of the target's temporary files whose last part `fits`; sorted.
fn named(target: &Path, fits: impl Fn(&[u8]) -> bool) -> Result<Vec<PathBuf>> {
    let folder = target.parent().unwrap_or(Path::new("/"));
    let start = beside(Path::new(target.file_name().unwrap_or_default()), ".restoring-");
    let entries = fs::read_dir(folder).map_err(|e| io_error("list", folder, e))?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().as_bytes().strip_prefix(start.as_os_str().as_bytes()).is_some_and(&fits))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    Ok(found)
}
