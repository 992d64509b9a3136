//! One run per database: a lock that two runs of fullbore on the same database share.

use std::fs::{OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_core::io::LockableFile;
use fullbore_core::{Error, Result};
use rustix::fs::Access;

use fullbore_core::conduct::Conduct;

/// Held while a job works on a database; released when dropped, also by a kill.
pub(super) struct Exclusive {
    _file: LockableFile,
}

/// Takes the lock of `database`, or refuses; with `wait`, waits for the other run.
pub(super) fn take(database: &str, identity: &str, wait: bool, conduct: &Conduct) -> Result<Exclusive> {
    let path = directory()?.join(format!("{:016x}.lock", fingerprint(identity)));
    // Never removed: a run that waits for a removed file and a run that makes a new one would hold two locks. The files
    // are empty, one for each database that was ever backed up. They disappear with /run when the machine restarts.
    let failed = |e| Error::io("open the lock file", path.display().to_string(), e);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    let file = LockableFile::from(file);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Exclusive { _file: file }),
            Err(TryLockError::WouldBlock) if wait => {
                conduct.check()?;
                std::thread::sleep(Duration::from_millis(200));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Error::refused(
                    database,
                    "another run of fullbore is backing it up",
                    "wait until the other run has ended, or add --wait. A follower ends by `fullbore cancel`",
                ));
            }
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
    }
}

/// A directory of this user, so that no other user can hold the locks.
fn directory() -> Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // `/run/fullbore` is of the package (tmpfiles.d): from systemd 258 on, `/run/lock` is root's alone. Not /tmp first: a
    // systemd unit with PrivateTmp has its own /tmp, and would not see the lock of a manual run.
    let shared = ["/run/fullbore", "/run/lock"].map(PathBuf::from);
    let places: Vec<PathBuf> = runtime.into_iter().chain(shared).filter(|path| path.is_dir()).collect();
    let writable = places.iter().find(|path| rustix::fs::access(path.as_path(), Access::WRITE_OK).is_ok());
    let place = writable.or(places.first()).cloned().unwrap_or_else(std::env::temp_dir);
    let path = place.join(format!("fullbore-{user}"));
    match std::fs::DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => Ok(path),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            must_be_ours(&path, user)?;
            Ok(path)
        }
        Err(e) => Err(Error::io("make the directory of locks", path.display().to_string(), e)),
    }
}

/// Refuses a directory of another user: it could hold our locks, or links to our files.
fn must_be_ours(path: &Path, user: u32) -> Result<()> {
    let shown = path.display().to_string();
    let metadata = std::fs::symlink_metadata(path).map_err(|e| Error::io("look at", &shown, e))?;
    if metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Error::refused(shown, "should be a directory of this user, for its locks", "remove it, or set XDG_RUNTIME_DIR"))
}

fn fingerprint(identity: &str) -> u64 {
    // FNV-1a: only a short name for a file; two databases that share one merely wait for each other.
    identity.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
