//! The folder of a test restore for its database. It is locked while its run lives, or while a server lives that the
//! run has started. By this lock the next test restore recognises the folders of killed runs, and removes them.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use fullbore_core::io::LockableFile;
use fullbore_core::{Error, Result};
use rustix::io::FdFlags;
use uuid::Uuid;

use crate::report::Report;

/// The beginning of the names of these folders; an id follows.
const BEGINS: &str = "fullbore-restored-";

/// A folder in the scratch place; dropping it removes it with everything in it.
pub(super) struct Scratch {
    folder: PathBuf,
    /// `None` if the file system cannot lock directories: then the folder never counts as a leftover.
    _lock: Option<LockableFile>,
}

impl Scratch {
    /// Removes the leftovers of killed runs in `place`, then makes a folder there.
    ///
    /// # Errors
    /// The place does not exist, or cannot be written to.
    pub(super) fn make(place: &Path, report: &mut Report) -> Result<Self> {
        remove_leftovers(place, report);
        loop {
            let folder = place.join(format!("{BEGINS}{}", Uuid::new_v4()));
            let made = fs::DirBuilder::new().mode(0o700).create(&folder);
            made.map_err(|e| Error::io("make", folder.display().to_string(), e).on_named_thing())?;
            match locked(&folder) {
                Ok(Lock::Had(lock)) => return Ok(Self { folder, _lock: Some(lock) }),
                Ok(Lock::Impossible) => return Ok(Self { folder, _lock: None }),
                // Another run saw it before it was locked, and removes it as a leftover.
                Ok(Lock::Held | Lock::Gone) => {}
                Err(error) => return Err(Error::io("lock", folder.display().to_string(), error)),
            }
        }
    }

    /// The folder.
    pub(super) fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder); // The verdict counts.
    }
}

/// The result of locking a folder.
enum Lock {
    Had(LockableFile),
    Held,
    /// The name does not lead to it any more.
    Gone,
    /// The file system cannot lock directories.
    Impossible,
}

/// Locks a folder, if it still has that name. A server that the run starts inherits the lock: the run counts as killed
/// only when both have ended.
fn locked(folder: &Path) -> io::Result<Lock> {
    let directory = match File::open(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Lock::Gone),
        opened => LockableFile::from(opened?),
    };
    match directory.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Lock::Held),
        Err(TryLockError::Error(_)) => return Ok(Lock::Impossible),
    }
    let identity = |stat: fs::Metadata| (stat.dev(), stat.ino());
    if fs::symlink_metadata(folder).map(identity).ok() != Some(identity(directory.metadata()?)) {
        return Ok(Lock::Gone);
    }
    rustix::io::fcntl_setfd(&directory, FdFlags::empty())?;
    Ok(Lock::Had(directory))
}

/// Removes the leftovers of killed runs in `place`, with a note. A folder that cannot be removed is a warning: it takes
/// space that this run may need.
fn remove_leftovers(place: &Path, report: &mut Report) {
    for folder in folders_in(place) {
        let shown = folder.display();
        match locked(&folder) {
            Ok(Lock::Had(_lock)) => match fs::remove_dir_all(&folder) {
                Ok(()) => report.notes.push(format!("removed the leftover of a killed restore-test: {shown}")),
                Err(error) => report
                    .warnings
                    .push(format!("cannot remove {shown}, the leftover of a killed restore-test: {error}")),
            },
            Ok(Lock::Held | Lock::Gone | Lock::Impossible) => {}
            Err(error) => report.warnings.push(format!("cannot examine {shown}, of a restore-test: {error}")),
        }
    }
}

/// The folders of this user with such a name, sorted. Links, files and folders of other users are left alone.
fn folders_in(place: &Path) -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| {
        let id = path.file_name().and_then(|name| name.as_bytes().strip_prefix(BEGINS.as_bytes()));
        let id = id.and_then(|id| std::str::from_utf8(id).ok()).and_then(|id| Uuid::parse_str(id).ok());
        let stat = fs::symlink_metadata(path);
        let ours = stat.is_ok_and(|stat| stat.is_dir() && stat.uid() == rustix::process::geteuid().as_raw());
        ours && id.is_some()
    };
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_ours).collect();
    folders.sort();
    folders
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(place: &Path) -> Vec<String> {
        let entries = fs::read_dir(place).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A folder as a killed run leaves it.
    fn leftover(place: &Path) -> PathBuf {
        let folder = place.join(format!("{BEGINS}{}", Uuid::new_v4()));
        fs::create_dir_all(folder.join("restored/app")).unwrap();
        fs::write(folder.join("restored/app/item.ibd"), "pages").unwrap();
        folder
    }

    #[test]
    fn a_folder_is_removed_when_its_run_is_dead_and_not_before() {
        let place = tempfile::tempdir().unwrap();
        let mut report = Report::default();
        let first = Scratch::make(place.path(), &mut report).unwrap();
        fs::write(first.path().join("restored.db"), "pages").unwrap();
        let dead = leftover(place.path());
        let second = Scratch::make(place.path(), &mut report).unwrap();
        assert!(first.path().join("restored.db").exists() && !dead.exists());
        assert!(report.notes.len() == 1 && report.notes[0].contains(&dead.display().to_string()), "{:?}", report.notes);
        assert_eq!(report.warnings, Vec::<String>::new());
        drop((first, second));
        assert_eq!(names(place.path()), Vec::<String>::new());
    }

    #[test]
    fn a_folder_stays_while_a_server_that_its_run_has_started_lives() {
        let place = tempfile::tempdir().unwrap();
        let mut report = Report::default();
        let scratch = Scratch::make(place.path(), &mut report).unwrap();
        let folder = scratch.path().to_owned();
        let mut server = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // The run is killed: its own lock ends, and the folder stays.
        let Scratch { _lock: lock, .. } = &mut *std::mem::ManuallyDrop::new(scratch);
        lock.take().unwrap().die();
        drop(Scratch::make(place.path(), &mut report).unwrap());
        assert!(folder.exists() && report.notes.is_empty(), "{:?}", report.notes);
        server.kill().unwrap();
        server.wait().unwrap();
        // Children of other tests in this process may have inherited the lock too, for as long as they live.
        fullbore_test_servers::wait_until("it is removed", || {
            drop(Scratch::make(place.path(), &mut report).unwrap());
            !folder.exists()
        });
        assert_eq!(report.notes.len(), 1, "{:?}", report.notes);
    }

    #[test]
    fn a_file_that_resembles_a_leftover_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let id = Uuid::new_v4();
        fs::create_dir(place.path().join("mine")).unwrap();
        fs::write(place.path().join("mine/app.db"), "pages").unwrap();
        std::os::unix::fs::symlink(place.path().join("mine"), place.path().join(format!("{BEGINS}{id}"))).unwrap();
        fs::write(place.path().join(format!("{BEGINS}{}", Uuid::new_v4())), "a file").unwrap();
        for name in ["fullbore-restored-", "fullbore-restored-x", "fullbore-restored", "app.db.restoring-x"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        let before = names(place.path());
        let mut report = Report::default();
        drop(Scratch::make(place.path(), &mut report).unwrap());
        assert_eq!(names(place.path()), before);
        assert_eq!(names(&place.path().join("mine")), ["app.db"]);
        assert!(report.notes.is_empty() && report.warnings.is_empty());
    }
}
