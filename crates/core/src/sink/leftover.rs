//! Files that a killed backup left beside a family's name: found here; the caller decides what becomes of them.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::commit::{Names, is_set_id, real_name};
use crate::error::{Error, Result};
use crate::io::{LockableFile, rename_noreplace, sync_directory};

/// What a working name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftoverKind {
    /// `NAME.new-SETID`: written, whole or not, but not published.
    New,
    /// `NAME.old-SETID`: whole; moved away for a successor.
    Old,
}

/// A file with a working name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Where it is.
    pub path: PathBuf,
    /// The final name that it was or is to have, links followed.
    pub name: PathBuf,
    /// What its name means.
    pub kind: LeftoverKind,
    /// The set's id according to the name; the header knows better.
    pub set_id: String,
    /// A running backup holds it: it is not a leftover.
    pub running: bool,
    /// Its lock was free: no process holds it. Neither is true where a file system has no locks.
    pub dead: bool,
}

/// All files with working names of the family `name`, in the order of their names; none when the directory is missing.
/// Those of a link are beside the target of the link.
pub fn leftovers(name: &Path) -> Result<Vec<Leftover>> {
    let names = Names::new(&real_name(name))?;
    let all = leftovers_in(&names.directory)?;
    Ok(all.into_iter().filter(|leftover| leftover.name.file_name() == Some(&names.file_name)).collect())
}

/// All files with working names in a directory, in the order of their names; none when it is missing.
pub fn leftovers_in(directory: &Path) -> Result<Vec<Leftover>> {
    let failed = |error| Error::io("list", directory.display().to_string(), error);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let file_name = path.file_name().unwrap_or_default().as_bytes();
        let Some((name, kind, set_id)) = understood(file_name) else { continue };
        let name = directory.join(OsStr::from_bytes(name));
        // A shared lock, so that two runs that look at once do not take each other for a backup.
        let lock = File::open(&path).map(|file| LockableFile::from(file).try_lock_shared());
        let running = matches!(lock, Ok(Err(TryLockError::WouldBlock)));
        found.push(Leftover { name, kind, set_id, running, dead: matches!(lock, Ok(Ok(()))), path });
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The final name, the kind and the set's id in a working name.
fn understood(file_name: &[u8]) -> Option<(&[u8], LeftoverKind, String)> {
    const ID: usize = 36;
    let (front, id) = file_name.split_at_checked(file_name.len().checked_sub(ID)?)?;
    let id = std::str::from_utf8(id).ok().filter(|id| is_set_id(id))?;
    let new = front.strip_suffix(b".new-").map(|name| (name, LeftoverKind::New));
    let (name, kind) = new.or_else(|| front.strip_suffix(b".old-").map(|name| (name, LeftoverKind::Old)))?;
    (!name.is_empty()).then(|| (name, kind, id.to_owned()))
}

/// How long to wait for a lock, in steps of 10 ms: a process that only looks holds it for an instant.
const LOOKS: usize = 100;

impl Leftover {
    /// Removes the file, durably, if `same` is still true under the lock. True when this call did it: another run may
    /// have been faster.
    ///
    /// # Errors
    /// Refuses when a running backup holds it, also one that has begun since it was found.
    pub fn remove(&self, same: impl Fn(&Path) -> bool) -> Result<bool> {
        let Some(_lock) = self.lock()? else { return Ok(false) };
        Ok(same(&self.path) && self.changed("remove", fs::remove_file(&self.path))?)
    }

    /// Gives the file the family's final name, durably: finishes a publication, or takes one back. As for
    /// [`Leftover::remove`], only if `same` is still true; true when this call did it.
    ///
    /// # Errors
    /// When the name is taken, or a running backup holds the file.
    pub fn rename_to(&self, name: &Path, same: impl Fn(&Path) -> bool) -> Result<bool> {
        let Some(_lock) = self.lock()? else { return Ok(false) };
        Ok(same(&self.path) && self.changed("rename", rename_noreplace(&self.path, name))?)
    }

    /// Held while the name changes: a backup that starts now finds the file locked. `None` when the name no longer
    /// leads to the file: another run has settled it.
    fn lock(&self) -> Result<Option<LockableFile>> {
        let failed = |error| Error::io("open", self.path.display().to_string(), error);
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => LockableFile::from(other.map_err(failed)?),
        };
        let opened = file.metadata().map_err(failed)?;
        let still_there =
            || fs::metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == (opened.dev(), opened.ino()));
        for _ in 0..LOOKS {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) if still_there() => thread::sleep(Duration::from_millis(10)),
                Err(TryLockError::WouldBlock) => return Ok(None),
                // A file system without locks has no way to tell; the caller has asked for it.
                Ok(()) | Err(TryLockError::Error(_)) => return Ok(still_there().then_some(file)),
            }
        }
        let hint = "wait until the other run of fullbore has ended";
        Err(Error::refused(self.path.display().to_string(), "a running backup holds this file", hint))
    }

    fn changed(&self, action: &str, result: io::Result<()>) -> Result<bool> {
        match result {
            // Without locks another run can still be faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other.map_err(|error| Error::io(action, self.path.display().to_string(), error))?,
        }
        self.path.parent().map_or(Ok(()), sync_directory)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ID: &str = "0192f0c1-2b3a-7c4d-8e5f-001122334455";

    #[test]
    fn only_working_names_of_this_family_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("a.bore");
        for file in ["a.bore", "a.bore.new-x", "b.bore.new-", "a.bore.new", "a.bore.older-"] {
            fs::write(directory.path().join(file), "").unwrap();
        }
        for file in [
            format!("a.bore.new-{ID}"),
            format!("a.bore.old-{ID}"),
            format!("b.bore.new-{ID}"),
            format!("a.bore.new-{ID}x"),
        ] {
            fs::write(directory.path().join(file), "").unwrap();
        }
        let found = leftovers(&name).unwrap();
        assert_eq!(
            found.iter().map(|leftover| leftover.kind).collect::<Vec<_>>(),
            [LeftoverKind::New, LeftoverKind::Old]
        );
        assert!(found.iter().all(|leftover| leftover.set_id == ID && !leftover.running && leftover.dead));
        assert!(found.iter().all(|leftover| leftover.name == name));
        assert_eq!(leftovers_in(directory.path()).unwrap().len(), 3, "those of every family");
        let linked = tempfile::tempdir().unwrap();
        let link = linked.path().join("x.bore");
        std::os::unix::fs::symlink(&name, &link).unwrap();
        assert_eq!(leftovers(&link).unwrap(), found);
        fs::remove_file(&name).unwrap();
        assert_eq!(leftovers(&link).unwrap(), found, "a link that leads nowhere for now");
        assert_eq!(leftovers(&directory.path().join("gone/a.bore")).unwrap(), []);
    }

    #[test]
    fn a_leftover_can_be_removed_or_published_but_not_while_a_backup_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("a.bore");
        let path = directory.path().join(format!("a.bore.old-{ID}"));
        let holder = LockableFile::from(File::create(&path).unwrap());
        holder.try_lock().unwrap();
        let leftover = leftovers(&name).unwrap().remove(0);
        assert!(leftover.running);
        assert!(leftover.remove(|_| true).unwrap_err().to_string().contains("running backup"));
        drop(holder);
        assert!(!leftover.rename_to(&name, |_| false).unwrap() && path.exists(), "it is another file by now");
        assert!(leftover.rename_to(&name, |_| true).unwrap());
        assert!(name.exists() && leftovers(&name).unwrap().is_empty());
        fs::write(&path, "").unwrap();
        assert!(leftover.rename_to(&name, |_| true).is_err(), "a taken name is not overwritten");
        // Somebody else looks at it for a moment.
        let holder = LockableFile::from(File::open(&path).unwrap());
        holder.try_lock_shared().unwrap();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(holder);
        });
        assert!(leftover.remove(|_| true).unwrap());
        other.join().unwrap();
        assert!(!path.exists());
        assert!(!leftover.remove(|_| true).unwrap(), "another run was faster");
        assert!(!leftover.rename_to(&directory.path().join("b.bore"), |_| true).unwrap());
    }
}
