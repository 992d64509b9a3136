//! The records of a repository: small files or objects, each whole or not there.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use fullbore_core::device::{Destination, Device};
use fullbore_core::io::{rename_noreplace, sync_directory};
use fullbore_core::store::{Bucket, Stores};
use fullbore_core::{Error, Result};
use uuid::Uuid;

/// Most bytes of a record.
pub(super) const RECORD_MAX: u64 = 1 << 20;
/// The folder of all records.
const FOLDER: &str = ".fullbore";
/// The name and the bytes of a file that keeps disk space for a prune, which writes before it can remove files.
const RESERVE: (&str, usize) = ("reserve", 256 << 10);
/// Marks the name of a record until it is whole.
const UNFINISHED: &str = ".unfinished-";

/// Where the records are.
#[derive(Clone)]
pub struct Records {
    root: Root,
}

#[derive(Clone)]
enum Root {
    Folder(PathBuf),
    Store { bucket: Arc<Bucket>, prefix: String },
}

/// One name in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The last part of its name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// When it was written, in microseconds since 1970, by the store's clock.
    pub modified: i64,
}

impl Records {
    /// The records of the repository with this first place.
    ///
    /// # Errors
    /// The place is neither a directory nor a prefix, or its store cannot be reached as it is configured.
    pub fn of(place: &Device, stores: &Stores) -> Result<Self> {
        let root = match place.place() {
            Destination::Directory(path) => Root::Folder(path.join(FOLDER)),
            Destination::Prefix { bucket, prefix } => {
                Root::Store { bucket: stores.bucket(bucket)?, prefix: format!("{prefix}{FOLDER}/") }
            }
            Destination::File(_) | Destination::Object { .. } | Destination::Null | Destination::Pipe => {
                let why = "is not a place for a repository";
                return Err(Error::usage(place.to_string(), why, "name directories or prefixes, which end in /"));
            }
        };
        Ok(Self { root })
    }

    /// How messages name a record.
    pub fn shown(&self, name: &str) -> String {
        match &self.root {
            Root::Folder(folder) => folder.join(name).display().to_string(),
            Root::Store { bucket, prefix } => bucket.url(&format!("{prefix}{name}")),
        }
    }

    /// Writes a record that must not exist yet; false if it exists.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        match &self.root {
            Root::Store { bucket, prefix } => bucket.put_new(&format!("{prefix}{name}"), bytes.to_vec()),
            Root::Folder(folder) => put_file(&folder.join(name), bytes, |from, to| match rename_noreplace(from, to) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
                done => done.map(|()| true),
            }),
        }
    }

    /// Writes a record, and replaces an existing one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        match &self.root {
            Root::Store { bucket, prefix } => bucket.put(&format!("{prefix}{name}"), bytes.to_vec()),
            Root::Folder(folder) => {
                put_file(&folder.join(name), bytes, |from, to| fs::rename(from, to).map(|()| true)).map(drop)
            }
        }
    }

    /// The same, even if the job is stopped.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_at_last(&self, name: &str, bytes: &[u8]) -> Result<()> {
        match &self.root {
            Root::Store { bucket, prefix } => bucket.put_at_last(&format!("{prefix}{name}"), bytes.to_vec()),
            Root::Folder(_) => self.write(name, bytes),
        }
    }

    /// A record; `None` if it does not exist.
    ///
    /// # Errors
    /// It cannot be read, or is larger than any record.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match &self.root {
            Root::Store { bucket, prefix } => {
                Ok(bucket.read_small(&format!("{prefix}{name}"), RECORD_MAX)?.map(|bytes| bytes.to_vec()))
            }
            Root::Folder(folder) => read_file(&folder.join(name)),
        }
    }

    /// Many records, in the order of their names.
    ///
    /// # Errors
    /// The store does not answer. An error about one record is in the result of that record.
    pub fn read_many(&self, names: &[String]) -> Result<Vec<Result<Option<Vec<u8>>>>> {
        match &self.root {
            Root::Store { bucket, prefix } => {
                let keys: Vec<String> = names.iter().map(|name| format!("{prefix}{name}")).collect();
                let read = bucket.read_many(&keys, RECORD_MAX)?;
                Ok(read.into_iter().map(|found| Ok(found?.map(|bytes| bytes.to_vec()))).collect())
            }
            Root::Folder(folder) => Ok(names.iter().map(|name| read_file(&folder.join(name))).collect()),
        }
    }

    /// The ids in the names of the records below `folder`.
    ///
    /// # Errors
    /// As for [`list`](Self::list).
    pub fn ids(&self, folder: &str) -> Result<Vec<Uuid>> {
        let listed = self.list(folder)?;
        Ok(listed.iter().filter_map(|entry| Uuid::try_parse(entry.name.strip_suffix(".json")?).ok()).collect())
    }

    /// The records below `folder` (`sets/`), in no order.
    ///
    /// # Errors
    /// They cannot be listed. A folder that is not there is empty.
    pub fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        match &self.root {
            Root::Store { bucket, prefix } => list_prefix(bucket, &format!("{prefix}{folder}")),
            Root::Folder(root) if !root.is_dir() => Ok(Vec::new()),
            Root::Folder(root) => match list_folder(&root.join(folder)) {
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(Vec::new()),
                listed => listed,
            },
        }
    }

    /// Removes records that still have a working name and were last written before `before`, in microseconds since
    /// 1970. Stores have no working names.
    ///
    /// # Errors
    /// The folder of the records cannot be read, or one of these files cannot be removed.
    pub fn remove_unfinished(&self, before: i64) -> Result<()> {
        let Root::Folder(root) = &self.root else { return Ok(()) };
        let failed = |e| Error::io("list", root.display().to_string(), e);
        let mut folders = vec![root.clone()];
        for entry in fs::read_dir(root).map_err(failed)? {
            folders.extend(Some(entry.map_err(failed)?.path()).filter(|path| path.is_dir()));
        }
        for folder in folders {
            let old = files_in(&folder)?.into_iter();
            let old = old.filter(|entry| entry.name.contains(UNFINISHED) && entry.modified < before);
            old.map(|entry| folder.join(entry.name)).try_for_each(|path| remove_file(&path))?;
        }
        Ok(())
    }

    /// When a record was written, in microseconds since 1970 by the store's clock; `None` if it does not exist.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn modified(&self, name: &str) -> Result<Option<i64>> {
        match &self.root {
            Root::Store { bucket, prefix } => {
                // List the folder: there are no objects below the name of a record.
                let (folder, last) = name.rsplit_once('/').map_or(("", name), |(folder, last)| (folder, last));
                let listed = list_prefix(bucket, &format!("{prefix}{folder}"))?;
                Ok(listed.into_iter().find(|entry| entry.name == last).map(|entry| entry.modified))
            }
            Root::Folder(folder) => Ok(fs::metadata(folder.join(name)).ok().map(|metadata| modified(&metadata))),
        }
    }

    /// Keeps some disk space for a prune, if none is kept yet. A store does not need it. A full disk is not an error
    /// here: the next write reports it.
    pub fn keep_reserve(&self) {
        let (name, bytes) = RESERVE;
        let Root::Folder(folder) = &self.root else { return };
        if folder.join(name).exists() || !folder.is_dir() {
            return;
        }
        // Not zeros: some file systems allocate no space for zeros.
        let mut noise = vec![0; bytes];
        fastrand::fill(&mut noise);
        let _ = self.create(name, &noise);
    }

    /// Frees that space. If it cannot be removed, the next write fails.
    pub fn free_reserve(&self) {
        if let Root::Folder(folder) = &self.root {
            let _ = remove_file(&folder.join(RESERVE.0));
        }
    }

    /// Removes a record; does nothing if it does not exist.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, name: &str) -> Result<()> {
        match &self.root {
            Root::Store { bucket, prefix } => bucket.remove(&format!("{prefix}{name}")),
            Root::Folder(folder) => remove_file(&folder.join(name)),
        }
    }
}

/// The files or objects in a place of a repository, in no order, without unfinished ones.
///
/// # Errors
/// It cannot be listed: a disk that is not mounted is not an empty place.
pub fn list_place(place: &Device, stores: &Stores) -> Result<Vec<Entry>> {
    match place.place() {
        Destination::Prefix { bucket, prefix } => list_prefix(&*stores.bucket(bucket)?, prefix),
        Destination::Directory(path) => list_folder(path),
        Destination::File(_) | Destination::Object { .. } | Destination::Null | Destination::Pipe => Ok(Vec::new()),
    }
}

fn list_prefix(bucket: &Bucket, prefix: &str) -> Result<Vec<Entry>> {
    let entry = |listed: fullbore_core::store::Listed| Entry {
        name: listed.key.rsplit('/').next().unwrap_or_default().to_owned(),
        size: listed.size,
        modified: listed.modified,
    };
    Ok(bucket.list(prefix)?.into_iter().map(entry).collect())
}

fn list_folder(folder: &Path) -> Result<Vec<Entry>> {
    Ok(files_in(folder)?.into_iter().filter(|entry| !entry.name.contains(UNFINISHED)).collect())
}

/// Every file in a folder.
fn files_in(folder: &Path) -> Result<Vec<Entry>> {
    let failed = |e| Error::io("list", folder.display().to_string(), e);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), fs::metadata(entry.path())) else { continue };
        if !metadata.is_file() {
            continue;
        }
        found.push(Entry { name, size: metadata.len(), modified: modified(&metadata) });
    }
    Ok(found)
}

/// When a file was written, in microseconds since 1970.
pub(super) fn modified(metadata: &fs::Metadata) -> i64 {
    let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// Writes a file under another name, lets `publish` rename it, and returns the result of `publish`.
fn put_file(path: &Path, bytes: &[u8], publish: impl Fn(&Path, &Path) -> std::io::Result<bool>) -> Result<bool> {
    let shown = || path.display().to_string();
    let folder = path.parent().unwrap_or(path);
    let made = fs::DirBuilder::new().recursive(true).mode(0o750).create(folder);
    made.map_err(|e| Error::io("make", folder.display().to_string(), e))?;
    let mut working = path.as_os_str().to_owned();
    working.push(format!("{UNFINISHED}{}", Uuid::new_v4()));
    let working = PathBuf::from(working);
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&working)?;
        file.write_all(bytes).and_then(|()| file.sync_all())?;
        publish(&working, path)
    };
    let done = write();
    if !matches!(done, Ok(true)) {
        let _ = fs::remove_file(&working); // The error of the write counts.
    }
    let done = done.map_err(|e| Error::io("write", shown(), e))?;
    sync_directory(folder)?;
    Ok(done)
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>> {
    let failed = |e| Error::io("read", path.display().to_string(), e);
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(RECORD_MAX + 1).read_to_end(&mut bytes)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
        Ok(length) if length as u64 > RECORD_MAX => {
            let why = format!("is larger than any record, {RECORD_MAX} bytes");
            Err(Error::incomplete(
                path.display().to_string(),
                why,
                "fullbore did not write this file: look at it, and remove it",
            ))
        }
        Ok(_) => Ok(Some(bytes)),
    }
}

/// Removes a file, durably; does nothing if it does not exist.
pub fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Ok(()) => sync_directory(path.parent().unwrap_or(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("remove", path.display().to_string(), error)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn records(folder: &Path) -> Records {
        Records::of(&Device::parse(&format!("{}/", folder.display())).unwrap(), &Stores::default()).unwrap()
    }

    #[test]
    fn one_of_two_creators_of_a_record_wins() {
        let folder = tempfile::tempdir().unwrap();
        let records = records(folder.path());
        assert!(records.create("decisions/a.json", b"one").unwrap());
        assert!(!records.create("decisions/a.json", b"two").unwrap());
        assert_eq!(records.read("decisions/a.json").unwrap().unwrap(), b"one");
        records.write("decisions/a.json", b"three").unwrap();
        assert_eq!(records.read("decisions/a.json").unwrap().unwrap(), b"three");
        let listed = records.list("decisions/").unwrap();
        assert!(listed.len() == 1 && listed[0].name == "a.json" && listed[0].size == 5, "{listed:?}");
        records.remove("decisions/a.json").unwrap();
        records.remove("decisions/a.json").unwrap();
        assert!(records.read("decisions/a.json").unwrap().is_none() && records.list("sets/").unwrap().is_empty());
    }

    #[test]
    fn room_is_kept_once_and_given_free() {
        let folder = tempfile::tempdir().unwrap();
        let records = records(folder.path());
        records.keep_reserve();
        assert!(records.list("").unwrap().is_empty(), "without records there is no repository");
        records.write("x.json", b"{}").unwrap();
        for _ in 0..2 {
            records.keep_reserve();
            assert_eq!(fs::metadata(folder.path().join(".fullbore/reserve")).unwrap().len(), RESERVE.1 as u64);
        }
        for _ in 0..2 {
            records.free_reserve();
            assert!(!folder.path().join(".fullbore/reserve").exists());
        }
    }

    #[test]
    fn a_record_above_its_limit_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let records = records(folder.path());
        records.write("x.json", &vec![b' '; RECORD_MAX as usize + 1]).unwrap();
        assert!(records.read("x.json").unwrap_err().to_string().contains("larger than any record"));
    }
}
