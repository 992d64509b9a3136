//! A restore into a directory that a server starts on: until it is complete it has a working name, or a mark.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::io::{LockableFile, directory_of, sync_directory};
use fullbore_core::{Error, Result};

use super::Restorer;

/// The middle part of a working name, after the name of the target.
const WORKING: &str = ".restoring-";

/// The directory for the files of a server: beside the target, on the same file system. It gets the name of the target
/// in the end. If a file system is mounted at the target, it cannot be renamed: then this is the target itself, and the
/// mark of [`DirectoryEngine::begin`](super::DirectoryEngine::begin) keeps servers from it.
#[derive(Debug)]
pub struct DirectoryRestore {
    target: PathBuf,
    temporary: PathBuf,
    leftovers: Vec<PathBuf>,
    /// Dropping it removes what is there.
    made: bool,
    /// If it is not published, it stays for another restore.
    keep: bool,
    /// Held by a running restore, not by a killed one. `None` in place: that cannot be resumed.
    lock: Option<LockableFile>,
}

impl DirectoryRestore {
    /// Checks whether files can be restored to `target`, which is empty or missing. Writes nothing.
    ///
    /// # Errors
    /// The target is not empty, not a directory, or has no name.
    pub fn prepare(target: &Path) -> Result<Self> {
        must_be_empty(target)?;
        let (mut temporary, mut leftovers) = (target.to_owned(), Vec::new());
        if !is_mount_point(target) {
            let (parent, name) = (directory_of(target), name_of(target)?);
            let mut working = name.to_owned();
            working.push(format!("{WORKING}{}", uuid::Uuid::new_v4()));
            temporary = parent.join(working);
            leftovers = left_beside(parent, name);
            leftovers.retain(|path| !is_locked(path));
        }
        Ok(Self { target: target.to_owned(), temporary, leftovers, made: false, keep: false, lock: None })
    }

    /// True if a file system is mounted at the target.
    pub fn is_in_place(&self) -> bool {
        self.temporary == self.target
    }

    /// Bytes of disk under the files that are there now.
    pub fn held_bytes(&self) -> u64 {
        held_by(&self.temporary)
    }

    /// As [`Restorer::publish`]. `then` is called as soon as the directory has its name, also if the sync fails.
    ///
    /// # Errors
    /// The directory cannot be renamed or synced.
    pub fn publish_then(mut self, then: impl FnOnce()) -> Result<()> {
        if !self.is_in_place() {
            fs::rename(&self.temporary, &self.target).map_err(|error| self.unnamed(error))?;
        }
        // It has its name and is whole, even if the sync fails.
        self.keep = true;
        then();
        sync_directory(if self.is_in_place() { self.target.as_path() } else { directory_of(&self.target) })
    }

    /// Gives the name of the target to `part` of it, durably, and removes the rest.
    ///
    /// # Errors
    /// It cannot be renamed or synced.
    pub fn publish_part(mut self, part: &str) -> Result<()> {
        let kept = self.temporary.join(part);
        if !self.is_in_place() {
            fs::rename(kept, &self.target).map_err(|error| self.unnamed(error))?;
            return sync_directory(directory_of(&self.target)); // Drop removes the rest.
        }
        let entries = |path: &Path| fs::read_dir(path).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
        let failed = |error| self.unnamed(error);
        for entry in entries(&self.temporary).map_err(failed)?.iter().filter(|entry| entry.path() != kept) {
            fs::remove_dir_all(entry.path()).map_err(failed)?;
        }
        for entry in entries(&kept).map_err(failed)? {
            fs::rename(entry.path(), self.target.join(entry.file_name())).map_err(failed)?;
        }
        fs::remove_dir(&kept).map_err(failed)?;
        self.keep = true;
        sync_directory(&self.target)
    }

    fn unnamed(&self, error: std::io::Error) -> Error {
        Error::io("give its name to", self.target.display().to_string(), error)
    }
}

impl Restorer for DirectoryRestore {
    fn target(&self) -> &Path {
        &self.target
    }

    fn temporary(&self) -> &Path {
        &self.temporary
    }

    fn leftovers(&self) -> &[PathBuf] {
        &self.leftovers
    }

    fn make(&mut self) -> Result<()> {
        self.made = true;
        if self.is_in_place() {
            return Ok(());
        }
        if self.lock.is_some() {
            empty(&self.temporary);
            return Ok(());
        }
        let path = &self.temporary;
        fs::create_dir(path).map_err(|e| Error::io("make", path.display().to_string(), e).on_named_thing())?;
        let directory = File::open(path).ok().map(LockableFile::from);
        self.lock = directory.filter(|directory| directory.try_lock().is_ok());
        Ok(())
    }

    fn take_over(&mut self) -> Result<bool> {
        if self.is_in_place() {
            return Ok(false);
        }
        let mut left = left_beside(directory_of(&self.target), name_of(&self.target)?);
        left.sort_by_cached_key(|path| std::cmp::Reverse(held_by(path)));
        for path in left {
            let failed = |e| Error::io("lock the leftover of a killed restore,", path.display().to_string(), e);
            let lock = LockableFile::from(File::open(&path).map_err(failed)?);
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(is_running(&path)),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            let identity = |stat: fs::Metadata| (stat.dev(), stat.ino());
            let now = fs::symlink_metadata(&path).map(identity).ok();
            if now != lock.metadata().map(identity).ok() {
                continue; // It was completed meanwhile, and has its final name.
            }
            self.leftovers.retain(|other| *other != path);
            (self.temporary, self.lock, self.made, self.keep) = (path, Some(lock), true, true);
            return Ok(true);
        }
        Ok(false)
    }

    fn keep(&mut self) {
        self.keep = !self.is_in_place();
    }

    fn publish(self: Box<Self>) -> Result<Vec<String>> {
        self.publish_then(|| ()).map(|()| Vec::new())
    }
}

impl Drop for DirectoryRestore {
    fn drop(&mut self) {
        if self.keep || !self.made {
            return;
        }
        // Remains have a working name or the mark: no server starts on them.
        if self.is_in_place() {
            empty(&self.temporary);
        } else {
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

/// Removes as much as possible of what is in a directory. The mark is removed last: after a kill in between, servers
/// still refuse the remains.
fn empty(directory: &Path) {
    let mut entries: Vec<_> = fs::read_dir(directory).into_iter().flatten().flatten().collect();
    entries.sort_by_key(|entry| crate::is_mark(&entry.file_name()));
    for entry in entries {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let _ = if is_directory { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
    }
}

fn name_of(target: &Path) -> Result<&OsStr> {
    target.file_name().ok_or_else(|| {
        Error::usage(format!("--into dir:{}", target.display()), "has no name", "name a new directory in it")
    })
}

/// Directories of this user with working names of that target that are not empty, by name. The empty directory of a run
/// that has just begun may not be locked yet.
fn left_beside(parent: &Path, name: &OsStr) -> Vec<PathBuf> {
    let start = [name.as_bytes(), WORKING.as_bytes()].concat();
    let is_left = |path: &PathBuf| {
        let rest = path.file_name().and_then(|name| name.as_bytes().strip_prefix(&start[..]));
        let id = rest.and_then(|rest| std::str::from_utf8(rest).ok());
        let stat = fs::symlink_metadata(path);
        let ours = stat.is_ok_and(|stat| stat.is_dir() && stat.uid() == rustix::process::geteuid().as_raw());
        ours && id.is_some_and(|id| uuid::Uuid::parse_str(id).is_ok())
    };
    let begun = |path: &PathBuf| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    let paths = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut left: Vec<PathBuf> = paths.filter(is_left).filter(begun).collect();
    left.sort();
    left
}

/// True if a running restore writes to it.
fn is_locked(path: &Path) -> bool {
    let locked = |file: LockableFile| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    File::open(path).map(LockableFile::from).is_ok_and(locked)
}

/// Bytes of disk under all files of a directory.
fn held_by(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let held = entries.filter_map(|entry| entry.metadata().ok().map(|stat| (entry.path(), stat)));
    held.map(|(path, stat)| if stat.is_dir() { held_by(&path) } else { stat.blocks() * 512 }).sum()
}

fn is_running(path: &Path) -> Error {
    Error::refused(
        path.display().to_string(),
        "a running restore to the same target writes it",
        "wait until the other restore has ended, or end it; then run this again",
    )
}

fn must_be_empty(target: &Path) -> Result<()> {
    let taken = |why: &str| {
        let hint = "name an empty or missing directory: the files of a server are not mixed with others";
        Err(Error::refused(target.display().to_string(), why, hint))
    };
    match fs::read_dir(target).map(|mut entries| entries.next().is_some()) {
        Ok(true) => taken("is not empty"),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(Error::io("read", target.display().to_string(), error))
        }
        Err(_) if target.symlink_metadata().is_ok() => taken("is not a directory"),
        Ok(false) | Err(_) => Ok(()),
    }
}

/// True if another file system is mounted there. A bind mount of the same one is not noticed: then the rename fails.
fn is_mount_point(target: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|stat| stat.dev());
    matches!((device(target), device(&target.join(".."))), (Ok(mine), Ok(above)) if mine != above)
}
