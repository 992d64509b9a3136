//! The names of a family's file during a backup: after a kill at any instant, every whole set is still whole.
//!
//! ```text
//! written          NAME.new-SETID      and, with --init, the old set as NAME
//! moved away       NAME.new-SETID      NAME.old-OLDSETID
//! published        NAME                NAME.old-OLDSETID
//! retired          NAME
//! ```
//! Both files are locked (flock) from start to end. So a later run can tell the files of a running backup from those of
//! a killed one.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::io::{LockableFile, rename_noreplace, sync_directory};

/// Longest file name on Linux's file systems, less `.new-` or `.old-` and a UUID.
const NAME_MAX: usize = 255 - 41;
/// The id for an old set whose header could not be read.
const UNKNOWN_SET: &str = "00000000-0000-0000-0000-000000000000";

/// What happens between the last write and the end, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Cutting the file to its length.
    Trim,
    /// fsync of the file.
    SyncFile,
    /// fsync of the directory: the working name.
    SyncWorkingName,
    /// NAME → NAME.old-OLDSETID (`--init`).
    MoveOldAway,
    /// fsync of the directory after that.
    SyncOldName,
    /// NAME.new-SETID → NAME.
    Publish,
    /// fsync of the directory after that.
    SyncName,
    /// Removal of NAME.old-OLDSETID.
    RemoveOld,
    /// fsync of the directory after that.
    SyncRemoval,
}

impl Step {
    /// All steps in order.
    pub const ALL: [Step; 9] = [
        Step::Trim,
        Step::SyncFile,
        Step::SyncWorkingName,
        Step::MoveOldAway,
        Step::SyncOldName,
        Step::Publish,
        Step::SyncName,
        Step::RemoveOld,
        Step::SyncRemoval,
    ];
}

/// How a test lets a step fail.
#[cfg(any(test, feature = "testkit"))]
#[derive(Debug)]
pub enum StepFault {
    /// The process dies before the step.
    Kill,
    /// The step fails.
    Error(io::Error),
}

/// Asked before each step; `None` lets it happen.
#[cfg(any(test, feature = "testkit"))]
pub type StepHook = Box<dyn FnMut(Step) -> Option<StepFault> + Send>;

/// True for a hyphenated UUID: nothing else may become part of a file name.
pub(super) fn is_set_id(text: &str) -> bool {
    text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()
}

/// The name that renames act on: links behind `name` are followed, even if a killed backup left nothing there.
pub fn real_name(name: &Path) -> PathBuf {
    const MOST_LINKS: usize = 40; // As many as Linux follows.
    let mut real = name.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&real) else { break };
        real = real.parent().unwrap_or(Path::new("")).join(target);
    }
    real
}

/// A family's final name in its parts.
pub(super) struct Names {
    pub directory: PathBuf,
    pub file_name: OsString,
}

impl Names {
    pub fn new(name: &Path) -> Result<Self> {
        let shown = || name.display().to_string();
        let file_name =
            name.file_name().ok_or_else(|| Error::usage(shown(), "does not name a file", "add a file name"))?;
        if file_name.len() > NAME_MAX {
            let hint = format!("use at most {NAME_MAX} bytes: during the backup, fullbore adds .new- and the set's id");
            return Err(Error::usage(shown(), format!("the file name has {} bytes", file_name.len()), hint));
        }
        let directory = match name.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        Ok(Self { directory, file_name: file_name.to_owned() })
    }

    pub fn name(&self) -> PathBuf {
        self.directory.join(&self.file_name)
    }

    fn working(&self, kind: &str, set_id: &str) -> Result<PathBuf> {
        if !is_set_id(set_id) {
            return Err(Error::usage(format!("set id `{set_id}`"), "is not a hyphenated UUID", ""));
        }
        let mut file_name = self.file_name.clone();
        file_name.push::<&OsStr>(format!("{kind}{set_id}").as_ref());
        Ok(self.directory.join(file_name))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Written,
    MovedAway,
    Published,
    Retired,
    Abandoned,
    Dead,
}

/// What `--init` replaces.
struct Replaced {
    old: PathBuf,
    inode: (u64, u64),
    /// Held for its lock.
    _lock: LockableFile,
}

/// The commit of one family.
pub(super) struct Commit {
    names: Names,
    pub new: PathBuf,
    /// Device and inode of the new file, once it exists.
    pub inode: Option<(u64, u64)>,
    replaced: Option<Replaced>,
    made_directories: Vec<PathBuf>,
    progress: Progress,
    #[cfg(any(test, feature = "testkit"))]
    hook: Option<StepHook>,
}

impl Commit {
    /// Checks everything that can be checked before the first write, and locks what will be replaced.
    pub fn prepare(path: &Path, options: &mut super::Options) -> Result<Self> {
        let mut names = Names::new(path)?;
        let made_directories =
            if names.directory.is_dir() { Vec::new() } else { make_directory(&names.directory, options.mkdir)? };
        if fs::symlink_metadata(names.name()).is_ok_and(|metadata| metadata.is_symlink()) {
            // A rename would replace the link, not its target.
            let real = fs::canonicalize(names.name());
            names = Names::new(
                &real.map_err(|error| Error::io("follow the symbolic link", path.display().to_string(), error))?,
            )?;
        }
        let replaced = match fs::symlink_metadata(names.name()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::io("look at", path.display().to_string(), error)),
            Ok(metadata) => Some(Self::replace(path, &names, &metadata, options)?),
        };
        Ok(Self {
            new: names.working(".new-", &options.set_id)?,
            names,
            inode: None,
            replaced,
            made_directories,
            progress: Progress::Written,
            #[cfg(any(test, feature = "testkit"))]
            hook: options.hook.take(),
        })
    }

    fn replace(path: &Path, names: &Names, metadata: &fs::Metadata, options: &super::Options) -> Result<Replaced> {
        let shown = path.display().to_string();
        if metadata.is_dir() {
            return Err(Error::usage(
                shown,
                "is a directory",
                "end it with `/` so that fullbore makes names in it, or name a file",
            ));
        }
        if !metadata.is_file() {
            return Err(Error::refused(
                shown,
                "is not a regular file, and a backup would replace it with one",
                "use nul: or - instead",
            ));
        }
        if !options.init {
            return Err(exists(path));
        }
        let lock = File::open(names.name()).map_err(|error| Error::io("open", &shown, error))?;
        let lock = LockableFile::from(lock);
        if matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            let hint = "wait until the other run of fullbore has ended";
            return Err(Error::refused(shown, "a running backup holds this file", hint));
        }
        let old = names.working(".old-", options.old_set_id.as_deref().unwrap_or(UNKNOWN_SET))?;
        if fs::symlink_metadata(&old).is_ok() {
            let hint = "first finish or remove the leftovers of an earlier run";
            return Err(Error::refused(old.display().to_string(), "is in the way: the old set gets this name", hint));
        }
        Ok(Replaced { old, inode: (metadata.dev(), metadata.ino()), _lock: lock })
    }

    pub fn directory(&self) -> &Path {
        &self.names.directory
    }

    /// Where a test lets a step fail.
    pub fn step(&mut self, step: Step) -> Result<()> {
        #[cfg(any(test, feature = "testkit"))]
        if let Some(fault) = self.hook.as_mut().and_then(|hook| hook(step)) {
            let shown = self.new.display().to_string();
            return Err(match fault {
                StepFault::Error(error) => Error::io(format!("do step {step:?} of"), shown, error),
                StepFault::Kill => {
                    self.progress = Progress::Dead;
                    Error::io(format!("do step {step:?} of"), shown, io::Error::other("killed by the fault plan"))
                }
            });
        }
        let _ = step;
        if self.progress == Progress::Dead { Err(Error::Halted) } else { Ok(()) }
    }

    /// Makes the working name durable, and the directories made for it.
    pub fn sync_name(&mut self) -> Result<()> {
        self.step(Step::SyncWorkingName)?;
        self.made_directories.iter().filter_map(|made| made.parent()).try_for_each(sync_directory)?;
        sync_directory(&self.names.directory)
    }

    pub fn publish(&mut self) -> Result<()> {
        if self.progress == Progress::Written && self.replaced.is_some() {
            self.move_old_away()?;
        }
        if !matches!(self.progress, Progress::Written | Progress::MovedAway) {
            return Err(super::out_of_order(
                &self.names.name().display().to_string(),
                "published twice or after its end",
            ));
        }
        self.step(Step::Publish)?;
        let name = self.names.name();
        rename_noreplace(&self.new, &name).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(&name),
            _ => Error::io(format!("rename {} to", self.new.display()), name.display().to_string(), error),
        })?;
        self.progress = Progress::Published;
        self.step(Step::SyncName)?;
        sync_directory(&self.names.directory)
    }

    fn move_old_away(&mut self) -> Result<()> {
        self.step(Step::MoveOldAway)?;
        let name = self.names.name();
        let Some(replaced) = &self.replaced else { return Ok(()) };
        if inode_of(&name) != Some(replaced.inode) {
            let hint = "another program works on the same name; nothing was changed";
            return Err(Error::refused(
                name.display().to_string(),
                "is no longer the file that --init was to replace",
                hint,
            ));
        }
        rename_noreplace(&name, &replaced.old).map_err(|error| {
            Error::io(format!("rename {} to", name.display()), replaced.old.display().to_string(), error)
        })?;
        self.progress = Progress::MovedAway;
        self.step(Step::SyncOldName)?;
        sync_directory(&self.names.directory)
    }

    pub fn retire(&mut self) -> Result<()> {
        if self.progress != Progress::Published {
            return Err(super::out_of_order(
                &self.names.name().display().to_string(),
                "retired before it was published",
            ));
        }
        if let Some(old) = self.replaced.as_ref().map(|replaced| replaced.old.clone()) {
            self.step(Step::RemoveOld)?;
            match fs::remove_file(&old) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", old.display().to_string(), error));
                }
                _ => {}
            }
            self.step(Step::SyncRemoval)?;
            sync_directory(&self.names.directory)?;
        }
        self.progress = Progress::Retired;
        Ok(())
    }

    /// Takes everything back, as far as it can. It touches a file with the final name only if it is ours.
    pub fn abandon(&mut self) {
        if matches!(self.progress, Progress::Retired | Progress::Abandoned | Progress::Dead) {
            return;
        }
        self.remove_new();
        let name = self.names.name();
        let ours = self.inode.is_some() && inode_of(&name) == self.inode;
        let moved_away = self.replaced.as_ref().filter(|_| self.progress != Progress::Written);
        // The next run finds what fails here as a leftover.
        let _ = match moved_away {
            // One rename gives the old set its name again, and removes the new one.
            Some(replaced) if ours => fs::rename(&replaced.old, &name),
            Some(replaced) => rename_noreplace(&replaced.old, &name),
            None if ours => fs::remove_file(&name),
            None => Ok(()),
        };
        self.progress = Progress::Abandoned;
        for directory in self.made_directories.iter().rev() {
            let _ = fs::remove_dir(directory); // Stays if another program has put a file there.
        }
        let _ = sync_directory(&self.names.directory);
    }

    fn remove_new(&self) {
        if self.inode.is_some() && inode_of(&self.new) == self.inode {
            let _ = fs::remove_file(&self.new);
        }
    }

    #[cfg(any(test, feature = "testkit"))]
    pub fn die(&mut self) {
        self.progress = Progress::Dead;
    }

    pub fn is_dead(&self) -> bool {
        self.progress == Progress::Dead
    }
}

/// Locks a file that was just created. False when another run took it for a leftover and removed it before the lock.
///
/// # Errors
/// Another process holds it for longer than a look takes.
pub(super) fn lock_new(file: &LockableFile, path: &Path, inode: (u64, u64)) -> Result<bool> {
    for _ in 0..100 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            // On a file system without locks, a leftover looks like a running job; writing is possible.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(inode_of(path) == Some(inode)),
        }
    }
    Err(Error::refused(path.display().to_string(), "is held by another process", "see who has it open: fuser -v"))
}

fn inode_of(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

fn exists(path: &Path) -> Error {
    Error::refused(
        path.display().to_string(),
        "exists already",
        "choose another name, or give --init to replace the set in it",
    )
}

/// Refuses a directory that is not there and may not be made. Writes nothing: a dry run asks, too.
///
/// # Errors
/// It is no directory, or does not exist and `mkdir` does not allow to make it.
pub fn check_directory(directory: &Path, mkdir: bool) -> Result<()> {
    let shown = || directory.display().to_string();
    if directory.is_dir() {
        return Ok(());
    }
    if directory.exists() {
        return Err(Error::usage(shown(), "is not a directory", "name a file in a directory"));
    }
    if !mkdir {
        let hint = "a missing directory may be a disk that is not mounted; add --mkdir to make it";
        return Err(Error::usage(shown(), "this directory does not exist", hint));
    }
    Ok(())
}

/// Makes a directory, if `allowed`. Returns the directories made, outermost first: their names are not durable yet.
///
/// # Errors
/// Those of [`check_directory`], and those of the system.
pub fn make_directory(directory: &Path, allowed: bool) -> Result<Vec<PathBuf>> {
    check_directory(directory, allowed)?;
    let shown = directory.display().to_string();
    let missing = directory.ancestors().take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists());
    let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    missing.reverse();
    fs::create_dir_all(directory).map_err(|error| Error::io("make the directory", shown, error))?;
    Ok(missing)
}
