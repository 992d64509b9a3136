//! Restores a database file safely: it is written beside the target and gets the target's name only when complete.
//!
//! [`prepare`] checks that the target is free. The caller writes the temporary file and has it checked. Then it
//! publishes or drops the [`Restorer`]. After a kill between any two steps, the old or the new database is whole under
//! the name. SQLite would apply a stale `-wal` or `-journal` to any file with this name, so these files
//! must not exist.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fullbore_core::io::{LockableFile, directory_of};
use fullbore_core::{Error, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{CWD, RenameFlags};

use super::connection::{explain, not_a_database};
use super::header::{HEADER_SIZE, MAGIC};
use super::leftover;
use super::open_files::{Claim, RawFile, beside, io_error};
use crate::engine::{Over, Restorer};

/// The side files beside a database that is in use, or was in use at a crash.
pub(super) const SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-journal"];
/// How long to wait for the old database's lock: long enough for a commit that is under way.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// The last completed step of publishing a restored file; a test can stop after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The restored file is durable under its temporary name.
    Synced,
    /// The old database is locked exclusively (only when it is replaced).
    Locked,
    /// Its log has been copied into it and emptied (only when it is replaced).
    Checkpointed,
    /// One of its side files has been removed (only when it is replaced).
    SideFileRemoved,
    /// The removal is durable (only when it is replaced).
    RemovalSynced,
    /// The restored file has the target's name.
    Renamed,
    /// The name is durable.
    RenameSynced,
}

impl Step {
    /// All steps in order.
    pub const ALL: [Step; 7] = [
        Step::Synced,
        Step::Locked,
        Step::Checkpointed,
        Step::SideFileRemoved,
        Step::RemovalSynced,
        Step::Renamed,
        Step::RenameSynced,
    ];
}

/// Called after each step; an error stops the publication there.
pub type Hook<'a> = &'a dyn Fn(Step) -> Result<()>;

/// A restore into one target that has been found possible.
#[derive(Debug)]
pub struct Restore {
    target: PathBuf,
    temporary: PathBuf,
    replace: bool,
    leftovers: Vec<PathBuf>,
    /// Held by a running restore, not by a killed one.
    lock: Option<LockableFile>,
    /// If it is not published, it stays for another restore.
    keep: bool,
}

/// Checks whether a database can be restored to `target`. Writes nothing. Where a database may be replaced, the target
/// is an SQLite database, or neither it nor a side file exists.
///
/// # Errors
/// The target exists, or a file beside it that SQLite would apply.
pub fn prepare(target: &Path, over: Over) -> Result<Restore> {
    let target = resolve(target)?;
    match over {
        Over::Database if target.exists() => {
            let claim = Claim::take(&target)?;
            let opened = claim.open_database(OpenOptions::new().read(true))?;
            must_be_a_database(&target, &opened)?;
        }
        Over::Database | Over::Nothing => must_be_new(&target)?,
        Over::State => refuse_side_files(&target)?,
    }
    let leftovers = leftover::of(&target)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let temporary = beside(&target, &format!(".restoring-{:x}{:x}", since.as_nanos(), std::process::id()));
    let replace = over == Over::Database;
    Ok(Restore { target, temporary, replace, leftovers, lock: None, keep: false })
}

/// Refuses side files of `target`: SQLite would apply them to any file with its name.
///
/// # Errors
/// A side file exists.
pub fn refuse_side_files(target: &Path) -> Result<()> {
    match SIDE_FILES.iter().map(|suffix| beside(target, suffix)).find(|side| side.symlink_metadata().is_ok()) {
        None => Ok(()),
        Some(side) => Err(Error::refused(
            target.display().to_string(),
            format!("`{}`, which belongs to it, exists", side.display()),
            "SQLite would apply it to the restored database: move it away, then restore again",
        )),
    }
}

impl Restorer for Restore {
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
        if let Some(taken_over) = &self.lock {
            return taken_over.set_len(0).map_err(|e| io_error("empty", &self.temporary, e));
        }
        self.lock = Some(make_locked(&self.temporary)?);
        Ok(())
    }

    fn take_over(&mut self) -> Result<bool> {
        let Some((path, file)) = leftover::take_over(&self.target)? else { return Ok(false) };
        let belongs = |other: &PathBuf| other.as_os_str().as_bytes().starts_with(path.as_os_str().as_bytes());
        self.leftovers.retain(|other| !belongs(other));
        (self.temporary, self.lock, self.keep) = (path, Some(file), true);
        Ok(true)
    }

    fn keep(&mut self) {
        self.keep = true;
    }

    fn publish(self: Box<Self>) -> Result<Vec<String>> {
        self.publish_with(&|_| Ok(()))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_file(&self.temporary); // It may not have been written, or it has the target's name.
        }
    }
}

impl Restore {
    /// As [`Restorer::publish`], with a hook after each step.
    ///
    /// # Errors
    /// Also the errors of the hook.
    pub fn publish_with(&self, hook: Hook<'_>) -> Result<Vec<String>> {
        let restored =
            OpenOptions::new().write(true).open(&self.temporary).map_err(|e| io_error("open", &self.temporary, e))?;
        let mut warnings = Vec::new();
        if self.replace && self.target.exists() {
            self.publish_over(&restored, hook, &mut warnings)?;
        } else {
            self.publish_new(&restored, hook)?;
        }
        Ok(warnings)
    }

    fn publish_new(&self, restored: &File, hook: Hook<'_>) -> Result<()> {
        restored.sync_all().map_err(|e| io_error("sync", &self.temporary, e))?;
        hook(Step::Synced)?;
        must_be_new(&self.target)?;
        rename_new(&self.temporary, &self.target)?;
        hook(Step::Renamed)?;
        sync_folder(&self.target)?;
        hook(Step::RenameSynced)
    }

    fn publish_over(&self, restored: &File, hook: Hook<'_>, warnings: &mut Vec<String>) -> Result<()> {
        // The claim and its descriptor are declared before the connection, to be closed after it.
        let claim = Claim::take(&self.target)?;
        let old = claim.open_database(OpenOptions::new().read(true).write(true))?;
        must_be_a_database(&self.target, &old)?;
        // Before SQLite opens it: the connection of a second restore would make side files beside the result of the
        // first. A file system without locks cannot detect this.
        if matches!(old.file().try_lock(), Err(fs::TryLockError::WouldBlock)) {
            return Err(Error::refused(
                self.target.display().to_string(),
                "another restore is replacing it now",
                "wait until the other restore ends, then check whether you still need this one",
            ));
        }
        must_still_be(&self.target, &old)?;
        self.take_over_owner(restored, &old.metadata()?, warnings);
        restored.sync_all().map_err(|e| io_error("sync", &self.temporary, e))?;
        hook(Step::Synced)?;
        let lock = ExclusiveLock::take(&self.target)?;
        hook(Step::Locked)?;
        must_still_be(&self.target, &old)?;
        lock.empty_the_log()?;
        old.file().sync_all().map_err(|e| io_error("sync", &self.target, e))?;
        hook(Step::Checkpointed)?;
        must_still_be(&self.target, &old)?;
        self.remove_side_files(hook)?;
        must_still_be(&self.target, &old)?;
        fs::rename(&self.temporary, &self.target)
            .map_err(|e| io_error("rename the restored file to", &self.target, e))?;
        hook(Step::Renamed)?;
        sync_folder(&self.target)?;
        hook(Step::RenameSynced)?;
        // A program that opened the old file while we held the lock would continue with it, and in WAL mode write its
        // log beside the new file. Without a header the old file is not a database any more. If it has a second name
        // (a hard link), that is a copy of the user: it stays.
        if old.metadata()?.nlink() == 0 {
            old.file().write_all_at(&[0; HEADER_SIZE], 0).map_err(|e| io_error("retire the old", &self.target, e))?;
        }
        Ok(())
    }

    fn remove_side_files(&self, hook: Hook<'_>) -> Result<()> {
        for suffix in SIDE_FILES {
            let file = beside(&self.target, suffix);
            match fs::remove_file(&file) {
                Ok(()) => hook(Step::SideFileRemoved)?,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(io_error("remove", &file, error)),
            }
        }
        sync_folder(&self.target)?;
        hook(Step::RemovalSynced)
    }

    /// The application must be able to open the new file as it did the old one.
    fn take_over_owner(&self, restored: &File, old: &fs::Metadata, warnings: &mut Vec<String>) {
        let owner = std::os::unix::fs::fchown(restored, Some(old.uid()), Some(old.gid()));
        let mode = restored.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777));
        if let Err(error) = owner.and(mode) {
            let target = self.target.display();
            warnings.push(format!("{target} did not get the old file's owner and permissions: {error}"));
        }
    }
}

/// The old database, locked against all reads and writes.
struct ExclusiveLock {
    connection: Connection,
    path: PathBuf,
}

impl ExclusiveLock {
    fn take(path: &Path) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let lock = || {
            let connection = Connection::open_with_flags(path, flags)?;
            // Closing must not look for a log: by then the name belongs to the new database.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            connection.busy_timeout(LOCK_WAIT)?;
            // Before the first access: in WAL mode this asks for the file's exclusive lock. Every other connection,
            // even an idle one, prevents it.
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            connection.execute_batch("BEGIN EXCLUSIVE; COMMIT")?;
            Ok(connection)
        };
        let connection = lock().map_err(|error: rusqlite::Error| match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::refused(
                path.display().to_string(),
                "the database to replace is in use",
                "stop the applications that have it open, then restore again",
            ),
            _ => explain(path, error),
        })?;
        Ok(Self { connection, path: path.to_owned() })
    }

    /// Copies the log into the database and truncates it; nothing to do in rollback mode.
    fn empty_the_log(&self) -> Result<()> {
        let busy: i64 = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
            .map_err(|error| explain(&self.path, error))?;
        let log = beside(&self.path, "-wal");
        let left = fs::metadata(&log).map_or(0, |metadata| metadata.len());
        if busy != 0 || left != 0 {
            return Err(Error::refused(
                self.path.display().to_string(),
                format!("its log could not be emptied: {left} bytes remain in {}", log.display()),
                "stop the applications that have it open, then restore again",
            ));
        }
        Ok(())
    }
}

/// The target with its links resolved; its directory has to exist.
fn resolve(target: &Path) -> Result<PathBuf> {
    let name = target.file_name().ok_or_else(|| {
        Error::usage(
            target.display().to_string(),
            "this is not the name of a file",
            "write sqlite:PATH with a file name at the end",
        )
    })?;
    match fs::symlink_metadata(target) {
        Ok(_) => {
            let real = fs::canonicalize(target).map_err(|e| io_error("follow the link", target, e))?;
            let metadata = fs::metadata(&real).map_err(|e| io_error("look at", &real, e))?;
            if !metadata.is_file() {
                let why = if metadata.is_dir() { "this is a directory" } else { "this is not a regular file" };
                return Err(Error::refused(target.display().to_string(), why, "name a file in it, or another path"));
            }
            Ok(real)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = directory_of(target);
            let found = fs::canonicalize(folder);
            let folder = found.map_err(|e| io_error("find the directory", folder, e).on_named_thing())?;
            Ok(folder.join(name))
        }
        Err(error) => Err(io_error("look at", target, error)),
    }
}

fn must_be_new(target: &Path) -> Result<()> {
    let names = [target.to_owned()].into_iter().chain(SIDE_FILES.iter().map(|suffix| beside(target, suffix)));
    for name in names {
        // Not exists(): a dangling link, or a file without permission to stat, is in the way too.
        if !matches!(fs::symlink_metadata(&name), Err(error) if error.kind() == ErrorKind::NotFound) {
            return Err(Error::refused(
                target.display().to_string(),
                if name == target {
                    "exists already".to_owned()
                } else {
                    format!("`{}`, which belongs to it, exists", name.display())
                },
                if target.exists() {
                    "restore to another name, or add --replace"
                } else {
                    "its database is gone, and the file may hold the last changes: move it away, then restore again"
                },
            ));
        }
    }
    Ok(())
}

/// The lock is on the opened file. Another file that has taken its name since is not locked and must not be replaced.
fn must_still_be(target: &Path, locked: &RawFile) -> Result<()> {
    let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    let now = fs::metadata(target).map_err(|e| io_error("look at", target, e))?;
    if identity(&now) == identity(&locked.metadata()?) {
        return Ok(());
    }
    Err(Error::refused(
        target.display().to_string(),
        "another file took its name while fullbore locked the old database",
        "find the program that replaces the database, then restore again",
    ))
}

/// Replacing is for databases: a mistyped target must not cost a file of another kind.
fn must_be_a_database(target: &Path, opened: &RawFile) -> Result<()> {
    let mut start = [0; MAGIC.len()];
    let got = opened.read_at(0, &mut start).map_err(|error| opened.read_error(0, start.len(), error))?;
    // An empty file is an SQLite database without tables.
    if got == 0 || start == *MAGIC {
        return Ok(());
    }
    // Another restore that has just replaced this file has overwritten its header.
    must_still_be(target, opened)?;
    Err(not_a_database(&opened.name()))
}

/// Renames without replacing anything; by a hard link if the file system has no such rename.
fn rename_new(from: &Path, to: &Path) -> Result<()> {
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::AlreadyExists => Error::refused(
            to.display().to_string(),
            "another program created it during the restore",
            "restore to another name, or add --replace",
        ),
        _ => io_error("rename the restored file to", to, error),
    };
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
            fs::hard_link(from, to).map_err(failed)?;
            fs::remove_file(from).map_err(|e| io_error("remove", from, e))
        }
        Err(error) => Err(failed(error.into())),
    }
}

/// Makes a file that only its owner may read. A running restore holds its lock, a killed one does not.
fn make_locked(path: &Path) -> Result<LockableFile> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let made = LockableFile::from(made.map_err(|e| io_error("create", path, e))?);
    // Another run that looks for leftovers holds the lock for an instant.
    let locked = || !matches!(made.try_lock(), Err(fs::TryLockError::WouldBlock));
    let _ = (0..100).any(|_| {
        locked() || {
            std::thread::sleep(Duration::from_millis(1));
            false
        }
    });
    Ok(made)
}

fn sync_folder(file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| io_error("sync the directory", folder, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_another_restore_has_just_replaced_is_not_called_a_file_of_another_kind() {
        let folder = tempfile::tempdir().unwrap();
        let (target, restored) = (folder.path().join("copy.db"), folder.path().join("restored.db"));
        fs::write(&target, MAGIC).unwrap();
        fs::write(&restored, MAGIC).unwrap();
        let claim = Claim::take(&target).unwrap();
        let old = claim.open_database(OpenOptions::new().read(true).write(true)).unwrap();
        must_be_a_database(&target, &old).unwrap();
        old.file().write_all_at(&[0; HEADER_SIZE], 0).unwrap();
        assert!(must_be_a_database(&target, &old).unwrap_err().to_string().contains("not an SQLite database"));
        fs::rename(&restored, &target).unwrap();
        let error = must_be_a_database(&target, &old).unwrap_err().to_string();
        assert!(error.contains("another file took its name"), "{error}");
    }
}
