//! The only place where this process opens database files without SQLite.
//!
//! POSIX drops all of a process's locks on a file when *any* descriptor of it is closed (sqlite.org, "How To Corrupt An
//! SQLite Database File", §2.2). So code that needs raw descriptors first takes a [`Claim`] on the database and opens
//! files through it. The claim closes them when it is dropped: after the SQLite connection. A database that this
//! process has open already, through fullbore or otherwise, cannot be claimed.

use std::collections::HashMap;
use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use fullbore_core::io::LockableFile;
use fullbore_core::{Error, Result};
use rustix::fs::OFlags;

/// A file, independent of its name: device and inode.
type Identity = (u64, u64);

/// The databases that are claimed, and the claims that others may use.
static CLAIMED: LazyLock<Mutex<HashMap<Identity, Weak<Claim>>>> = LazyLock::new(Mutex::default);

fn claimed() -> std::sync::MutexGuard<'static, HashMap<Identity, Weak<Claim>>> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// The sole right of this process to open the files of one database. Must outlive the SQLite connection: declare it
/// before the connection, or as a later field.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    identity: Identity,
    /// Every descriptor opened so far, so that none is closed before the claim.
    files: Mutex<Vec<Arc<RawFile>>>,
}

impl Claim {
    /// Claims the database at `path` (resolved, existing) without opening it.
    pub fn take(path: &Path) -> Result<Self> {
        let identity =
            fs::metadata(path).map(|metadata| identity(&metadata)).map_err(|e| io_error("look at", path, e))?;
        let refused = || {
            Error::refused(
                path.display().to_string(),
                "this process has the database open already, and closing a second descriptor would drop its locks",
                "close it first, or run fullbore in a separate process",
            )
        };
        let mut claimed = claimed();
        if claimed.contains_key(&identity) || is_open_here(identity) {
            return Err(refused());
        }
        claimed.insert(identity, Weak::new());
        Ok(Self { path: path.to_owned(), identity, files: Mutex::default() })
    }

    /// The same; or the claim of this database that is shared now.
    pub fn take_or_join(path: &Path) -> Result<Arc<Self>> {
        let found = fs::metadata(path).map(|metadata| identity(&metadata)).map_err(|e| io_error("look at", path, e))?;
        let shared = claimed().get(&found).and_then(Weak::upgrade);
        shared.map_or_else(|| Self::take(path).map(Arc::new), Ok)
    }

    /// Lets others of this process use this claim: its descriptors stay open until the last of them drops it.
    pub fn share(self: &Arc<Self>) {
        claimed().insert(self.identity, Arc::downgrade(self));
    }

    /// The claimed database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the database file itself. Refused if its name now leads to another file.
    pub fn open_database(&self, options: &OpenOptions) -> Result<Arc<RawFile>> {
        // NONBLOCK: a pipe put in the file's place must not hang the job.
        let raw = self.keep(RawFile::open(&self.path, options, OFlags::NONBLOCK)?);
        if identity(&raw.metadata()?) != self.identity {
            return Err(Error::refused(
                raw.name(),
                "another file took its name while fullbore opened it",
                "wait for the program that replaces the database to end, then try again",
            ));
        }
        Ok(raw)
    }

    /// Opens the database file for direct reads, if the file system has them.
    pub fn open_direct(&self) -> Option<Arc<RawFile>> {
        let raw = self.keep(RawFile::open(&self.path, OpenOptions::new().read(true), OFlags::DIRECT).ok()?);
        raw.metadata().is_ok_and(|metadata| identity(&metadata) == self.identity).then_some(raw)
    }

    /// Opens one of its side files for reading: `-wal`, `-shm`.
    pub fn open_beside(&self, suffix: &str) -> Result<Arc<RawFile>> {
        let path = beside(&self.path, suffix);
        Ok(self.keep(RawFile::open(&path, OpenOptions::new().read(true), OFlags::NONBLOCK)?))
    }

    fn keep(&self, raw: RawFile) -> Arc<RawFile> {
        let raw = Arc::new(raw);
        self.files.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&raw));
        raw
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Close first: after the claim ends, another claim may take locks that a later close would drop.
        self.files.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        claimed().remove(&self.identity);
    }
}

/// A file opened past SQLite, for positional reads; knows its name for errors.
#[derive(Debug)]
pub(super) struct RawFile {
    path: PathBuf,
    file: LockableFile,
}

impl RawFile {
    fn open(path: &Path, options: &OpenOptions, flags: OFlags) -> Result<Self> {
        let file =
            options.clone().custom_flags(flags.bits() as i32).open(path).map_err(|e| io_error("open", path, e))?;
        Ok(Self { path: path.to_owned(), file: file.into() })
    }

    /// Its name, for messages.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Its current state in the file system.
    pub fn metadata(&self) -> Result<Metadata> {
        self.file.metadata().map_err(|e| io_error("look at", &self.path, e))
    }

    /// Fills `buffer` from `offset` as far as the file goes; gives the number of bytes.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// One read, as it comes: for direct I/O, where a second read may not be aligned.
    pub fn read_once(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    /// An error of reading this file at `offset`.
    pub fn read_error(&self, offset: u64, length: usize, source: io::Error) -> Error {
        Error::io(format!("read {length} bytes at offset {offset} of"), self.name(), source)
    }

    /// The descriptor itself.
    pub fn file(&self) -> &LockableFile {
        &self.file
    }
}

/// `path` with `suffix` at the end of its name: how SQLite names its side files.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub(super) fn io_error(action: &str, path: &Path, source: io::Error) -> Error {
    Error::io(action, path.display().to_string(), source)
}

/// True when a descriptor of this process leads to the file. Looks through /proc, so that nothing is opened.
fn is_open_here(wanted: Identity) -> bool {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return false };
    entries.flatten().any(|entry| fs::metadata(entry.path()).is_ok_and(|metadata| identity(&metadata) == wanted))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_this_process_has_open_cannot_be_claimed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        fs::write(&path, b"x").unwrap();
        let open = fs::File::open(&path).unwrap();
        assert!(Claim::take(&path).unwrap_err().to_string().contains("open already"));
        drop(open);
        let first = Claim::take(&path).unwrap();
        let link = folder.path().join("b.db");
        fs::hard_link(&path, &link).unwrap();
        assert!(Claim::take(&link).is_err(), "another name is no way round");
        drop(first);
        let first = Claim::take_or_join(&link).unwrap();
        assert!(Claim::take_or_join(&path).is_err(), "it is not shared");
        first.share();
        let second = Claim::take_or_join(&path).unwrap();
        drop(first);
        assert!(Claim::take(&path).is_err());
        drop(second);
        assert!(Claim::take(&path).is_ok());
    }
}
