//! An object on its way into a file: it grows under a working name, and gets its own name when all of it is there.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_core::io::{rename_together, sync_directory};
use fullbore_core::unpack::Target;
use fullbore_core::{Error, Result};

use super::position::StoredPart;
use crate::foreign_set::working_file::{WorkingFile, remove_leftovers};

/// The file that an object is written to.
pub struct ObjectFile {
    path: PathBuf,
    file: WorkingFile,
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
        remove_leftovers(directory_of(path));
        let bytes = parts.last().map_or(0, |part| part.at.saturating_add(part.bytes));
        let file = WorkingFile::create(path, bytes, replace)?;
        let parts = parts.iter().map(|part| (part.stream, (part.at, part.bytes))).collect();
        Ok(Self { path: path.to_owned(), file, parts, replace })
    }

    /// Makes it durable, and gives it its name.
    ///
    /// # Errors
    /// It cannot be synced or renamed.
    pub fn publish(self) -> Result<()> {
        self.file.sync()?;
        rename_together(&[(self.file.path().to_owned(), self.path.clone())], self.replace)?;
        sync_directory(directory_of(&self.path))
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

impl Target for ObjectFile {
    fn discards(&self) -> bool {
        false
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        // A piece that does not count has no part.
        let Some((at, length)) = self.parts.get(&stream) else { return Ok(()) };
        let count = length.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let failed = |e| Error::io("write", self.file.path().display().to_string(), e);
        self.file.write_all_at(bytes.get(..count).unwrap_or_default(), at + offset).map_err(failed)
    }

    fn zero(&self, _stream: u32, _offset: u64, _length: u64) -> Result<()> {
        Ok(()) // The file is new: it is zero.
    }
}
