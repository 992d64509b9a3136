//! An object on its way into a file: it grows under a working name, and gets its own name when all of it is there.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_core::io::{LockableFile, rename_together, sync_directory};
use fullbore_core::unpack::Target;
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::position::StoredPart;

/// A working name is this and a UUID.
const WORKING: &str = ".restoring-";

/// The file that an object is written to.
pub struct ObjectFile {
    path: PathBuf,
    temporary: PathBuf,
    file: LockableFile,
    /// Where each stream begins, and its length.
    parts: HashMap<u32, (u64, u64)>,
    replace: bool,
}

impl ObjectFile {
    /// Makes the file under a working name beside `path`.
    ///
    /// # Errors
    /// The file exists and `replace` is not given, or it cannot be made.
    pub fn create(path: &Path, parts: &[StoredPart], replace: bool) -> Result<Self> {
        if !replace && path.symlink_metadata().is_ok() {
            let hint = "name another directory, or add --replace";
            return Err(Error::refused(path.display().to_string(), "exists", hint));
        }
        let temporary = path.with_file_name(format!("{WORKING}{}", Uuid::new_v4()));
        let failed = |e| Error::io("make", temporary.display().to_string(), e);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&temporary).map_err(failed)?;
        let file = LockableFile::from(file);
        let _ = file.try_lock(); // Some file systems have no locks: then leftovers stay.
        let bytes = parts.last().map_or(0, |part| part.at.saturating_add(part.bytes));
        file.set_len(bytes).map_err(failed)?;
        let parts = parts.iter().map(|part| (part.stream, (part.at, part.bytes))).collect();
        Ok(Self { path: path.to_owned(), temporary, file, parts, replace })
    }

    /// Makes it durable, and gives it its name.
    ///
    /// # Errors
    /// It cannot be synced or renamed.
    pub fn publish(self) -> Result<()> {
        self.file.sync_all().map_err(|e| Error::io("sync", self.temporary.display().to_string(), e))?;
        rename_together(&[(self.temporary.clone(), self.path.clone())], self.replace)?;
        sync_directory(self.path.parent().unwrap_or(Path::new(".")))
    }
}

impl Drop for ObjectFile {
    /// A restore that fails leaves no file. A published file does not have this name any more.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.temporary); // The error that ends the restore is the one to tell.
    }
}

impl Target for ObjectFile {
    fn discards(&self) -> bool {
        false
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        // A piece that does not count has no part.
        let Some((at, length)) = self.parts.get(&stream) else { return Ok(()) };
        let count = length.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let failed = |e| Error::io("write", self.temporary.display().to_string(), e);
        self.file.write_all_at(bytes.get(..count).unwrap_or_default(), at + offset).map_err(failed)
    }

    fn zero(&self, _stream: u32, _offset: u64, _length: u64) -> Result<()> {
        Ok(()) // The file is new: it is zero.
    }
}
