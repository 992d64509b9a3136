//! A directory of a server's files that is not complete yet: it has a working name, or a mark.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::io::{LockableFile, directory_of, free_space, sync_directory};
use fullbore_core::{Error, Result};

use fullbore_core::units::show_bytes;

/// The directory for the files of a server: beside the target, on the same file system. It gets the name of the target
/// in the end. If a file system is mounted at the target, it cannot be renamed: then this is the target itself, and the
/// mark of [`fullbore_engines::DirectoryEngine::begin`] keeps servers from it. Dropping it before it is published
/// removes it.
pub(super) struct Unfinished<'a> {
    target: &'a Path,
    path: PathBuf,
    published: bool,
    /// If it is not published, it stays for another restore.
    keep: bool,
    /// Held by a running restore, not by a killed one. `None` in place: that cannot be resumed.
    _lock: Option<LockableFile>,
}

impl<'a> Unfinished<'a> {
    /// For `size` bytes of files; `target` is empty or missing.
    pub fn make(target: &'a Path, mkdir: bool, size: u64) -> Result<Self> {
        must_be_empty(target)?;
        let parent = directory_of(target);
        if mkdir {
            fs::create_dir_all(parent).map_err(|e| Error::io("make", parent.display().to_string(), e))?;
        }
        let in_place = is_mount_point(target);
        let free = free_space(if in_place { target } else { parent })?;
        must_have_room(target, size, free)?;
        if in_place {
            return Ok(Self { target, path: target.to_owned(), published: false, keep: false, _lock: None });
        }
        let mut working = name_of(target)?.to_owned();
        working.push(format!("{WORKING}{}", uuid::Uuid::new_v4()));
        let path = parent.join(working);
        fs::create_dir(&path).map_err(|e| Error::io("make", path.display().to_string(), e))?;
        let lock = File::open(&path).ok().map(LockableFile::from).filter(|directory| directory.try_lock().is_ok());
        Ok(Self { target, path, published: false, keep: false, _lock: lock })
    }

    /// The largest leftover of interrupted restores to this target; `None` if there is no leftover.
    ///
    /// # Errors
    /// A running restore writes to it, or there is too little space for the rest.
    pub fn take_over(target: &'a Path, size: u64) -> Result<Option<Self>> {
        must_be_empty(target)?;
        if is_mount_point(target) {
            return Ok(None);
        }
        let parent = directory_of(target);
        let mut left = left_beside(parent, name_of(target)?);
        left.sort_by_key(|(held, _)| std::cmp::Reverse(*held));
        for (held, path) in left {
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
            let free = free_space(parent)?.saturating_add(held);
            must_have_room(target, size, free)?;
            return Ok(Some(Self { target, path, published: false, keep: true, _lock: Some(lock) }));
        }
        Ok(None)
    }

    /// From now on it stays for another restore, if that can continue it.
    pub fn keep(mut self) -> Self {
        self.keep = !self.is_in_place();
        self
    }

    /// The directory for the files.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it the name of the target, durably, in place of an empty directory. `then` is called as soon as it has the
    /// name.
    pub fn publish(mut self, then: impl FnOnce()) -> Result<()> {
        if !self.is_in_place() {
            fs::rename(&self.path, self.target)
                .map_err(|error| Error::io("give its name to", self.target.display().to_string(), error))?;
        }
        // It has its name and is whole, even if the sync fails.
        self.published = true;
        then();
        sync_directory(if self.is_in_place() { self.target } else { directory_of(self.target) })
    }

    /// True if a file system is mounted at the target.
    fn is_in_place(&self) -> bool {
        self.path == self.target
    }

    /// Gives the name of the target to `part` of it, durably, and removes the rest.
    pub fn publish_part(mut self, part: &str) -> Result<()> {
        let failed = |e| Error::io("give its name to", self.target.display().to_string(), e);
        let kept = self.path.join(part);
        if !self.is_in_place() {
            fs::rename(kept, self.target).map_err(failed)?;
            return sync_directory(directory_of(self.target)); // Drop removes the rest.
        }
        let entries = |path: &Path| fs::read_dir(path).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
        for entry in entries(&self.path).map_err(failed)?.iter().filter(|entry| entry.path() != kept) {
            fs::remove_dir_all(entry.path()).map_err(failed)?;
        }
        for entry in entries(&kept).map_err(failed)? {
            fs::rename(entry.path(), self.target.join(entry.file_name())).map_err(failed)?;
        }
        fs::remove_dir(&kept).map_err(failed)?;
        self.published = true;
        sync_directory(self.target)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.published || self.keep {
            return;
        }
        // Remains have a working name or the mark: no server starts on them.
        if !self.is_in_place() {
            let _ = fs::remove_dir_all(&self.path);
            return;
        }
        let mut entries: Vec<_> = fs::read_dir(&self.path).into_iter().flatten().flatten().collect();
        // The mark is removed last: after a kill in between, servers still refuse the remains.
        entries.sort_by_key(|entry| fullbore_engines::is_mark(&entry.file_name()));
        for entry in entries {
            let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let _ = if directory { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
        }
    }
}

/// The middle part of a working name, after the name of the target.
const WORKING: &str = ".restoring-";

fn name_of(target: &Path) -> Result<&OsStr> {
    target.file_name().ok_or_else(|| {
        Error::usage(format!("--into dir:{}", target.display()), "has no name", "name a new directory in it")
    })
}

/// Directories of this user with working names of that target that are not empty, and their sizes. The empty directory
/// of a run that has just begun may not be locked yet.
fn left_beside(parent: &Path, name: &OsStr) -> Vec<(u64, PathBuf)> {
    let start = [name.as_bytes(), WORKING.as_bytes()].concat();
    let is_left = |path: &PathBuf| {
        let rest = path.file_name().and_then(|name| name.as_bytes().strip_prefix(&start[..]));
        let id = rest.and_then(|rest| std::str::from_utf8(rest).ok());
        let stat = fs::symlink_metadata(path);
        let ours = stat.is_ok_and(|stat| stat.is_dir() && stat.uid() == rustix::process::geteuid().as_raw());
        ours && id.is_some_and(|id| uuid::Uuid::parse_str(id).is_ok())
    };
    let paths = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_left);
    let begun = |path: &PathBuf| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    paths.filter(begun).map(|path| (held_by(&path), path)).collect()
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

fn must_have_room(target: &Path, size: u64, free: u64) -> Result<()> {
    if free >= size {
        return Ok(());
    }
    Err(Error::refused(
        target.display().to_string(),
        format!("the files need {} there, but {} are free", show_bytes(size), show_bytes(free)),
        "free space there, or name another target with --into",
    ))
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
