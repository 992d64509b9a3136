//! Restores of the engine in memory: a copy is one file.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use fullbore_core::io::LockableFile;
use fullbore_core::{Error, Result};
use fullbore_engines::Restorer;
use fullbore_engines::engine::{Depth, Over};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::log_engine::{LogEngineUnderTest, apply_two_sets};
use crate::memory::{Memory, MemoryFile};
use crate::restorer::{Full, RestorerUnderTest};

struct FileRestore {
    target: PathBuf,
    temporary: PathBuf,
    leftovers: Vec<PathBuf>,
    replace: bool,
    keep: bool,
    lock: Option<LockableFile>,
}

fn refused(target: &Path, why: &str) -> Error {
    Error::refused(target.display().to_string(), why, "name another target")
}

/// Files of earlier restores that no restore holds the lock of. With `held`, the others too.
fn left(target: &Path, held: bool) -> Vec<PathBuf> {
    let start = format!("{}.restoring-", target.file_name().unwrap().to_str().unwrap());
    let entries = fs::read_dir(target.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
    let ours = entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with(&start));
    let is_free = |path: &PathBuf| LockableFile::from(File::open(path).unwrap()).try_lock().is_ok();
    ours.map(|entry| entry.path()).filter(|path| held || is_free(path)).collect()
}

impl FileRestore {
    fn prepare(target: &Path, over: Over) -> Result<Self> {
        match (target.exists(), over) {
            (true, Over::Nothing) => return Err(refused(target, "exists")),
            (true, Over::Database) if MemoryFile::read(target).is_err() => {
                return Err(refused(target, "is not a database"));
            }
            _ => {}
        }
        let mut temporary = target.as_os_str().to_owned();
        temporary.push(format!(".restoring-{:x}", fastrand::u64(..)));
        let (replace, leftovers) = (over == Over::Database, left(target, false));
        let temporary = temporary.into();
        Ok(Self { target: target.to_owned(), temporary, leftovers, replace, keep: false, lock: None })
    }
}

impl Restorer for FileRestore {
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
        let failed = |error| Error::io("make", self.temporary.display().to_string(), error);
        if let Some(taken_over) = &self.lock {
            return taken_over.set_len(0).map_err(failed);
        }
        let made = OpenOptions::new().write(true).create_new(true).open(&self.temporary).map_err(failed)?;
        let made = LockableFile::from(made);
        made.try_lock().unwrap();
        self.lock = Some(made);
        Ok(())
    }

    fn take_over(&mut self) -> Result<bool> {
        let Some(path) = left(&self.target, true).pop() else { return Ok(false) };
        let file = LockableFile::from(OpenOptions::new().write(true).open(&path).unwrap());
        file.try_lock().map_err(|_| refused(&path, "a running restore writes to it"))?;
        self.leftovers.retain(|other| *other != path);
        (self.temporary, self.lock, self.keep) = (path, Some(file), true);
        Ok(true)
    }

    fn keep(&mut self) {
        self.keep = true;
    }

    fn publish(self: Box<Self>) -> Result<Vec<String>> {
        let failed = |error| Error::io("rename", self.temporary.display().to_string(), error);
        if self.replace {
            fs::rename(&self.temporary, &self.target).map_err(failed)?;
        } else {
            // A link does not replace a file that was made meanwhile.
            fs::hard_link(&self.temporary, &self.target).map_err(failed)?;
            fs::remove_file(&self.temporary).map_err(failed)?;
        }
        Ok(Vec::new())
    }
}

impl Drop for FileRestore {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_file(&self.temporary); // It has the target's name, or was not made.
        }
    }
}

impl RestorerUnderTest for Memory {
    fn prepare(&self, target: &Path, over: Over) -> Result<Box<dyn Restorer>> {
        Ok(Box::new(FileRestore::prepare(target, over)?))
    }

    fn replaces(&self) -> bool {
        true
    }

    fn commit(&mut self) {
        LogEngineUnderTest::commit(self);
    }

    fn content(&mut self) -> String {
        LogEngineUnderTest::content(self)
    }

    fn content_of(&self, restored: &Path) -> Option<String> {
        let stored = MemoryFile::read(restored).ok().filter(MemoryFile::is_sound)?;
        Some(format!("{:?}", stored.values))
    }

    fn full(&mut self) -> Full {
        let copy = NamedTempFile::new().unwrap();
        let position = LogEngineUnderTest::full(self, copy.path());
        let files = [(String::new(), fs::read(copy.path()).unwrap())].into();
        Full { files, position }
    }

    fn check(&self, restored: &Path, depth: Depth) -> Vec<String> {
        match MemoryFile::read(restored) {
            Err(error) => vec![error.to_string()],
            Ok(stored) if depth == Depth::Full && !stored.is_sound() => vec!["the sum is wrong".into()],
            Ok(_) => Vec::new(),
        }
    }

    fn damage(&self, restored: &Path, found_by: Depth) -> bool {
        let mut stored = MemoryFile::read(restored).unwrap();
        stored.sum ^= 1;
        let bytes = stored.bytes();
        fs::write(restored, if found_by == Depth::Full { &bytes[..] } else { &bytes[1..] }).unwrap();
        true
    }

    fn apply_logs(&mut self, restored: &Path, position: &Value) -> Option<String> {
        Some(apply_two_sets(self, restored, position))
    }
}
