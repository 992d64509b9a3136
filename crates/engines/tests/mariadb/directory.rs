//! A hot copy in a plain directory: what a restore makes of it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fullbore_core::checksum::is_zero;
use fullbore_core::{Error, Result};
use fullbore_engines::mariadb::hot_copy::{CopiedFile, CopyTarget, FileHead, FileNumber};

pub struct Directory {
    root: PathBuf,
    open: Mutex<HashMap<FileNumber, Arc<File>>>,
}

impl Directory {
    pub fn new(root: &Path) -> Self {
        fs::create_dir_all(root).unwrap();
        Self { root: root.to_owned(), open: Mutex::default() }
    }

    fn part(&self, number: FileNumber) -> PathBuf {
        self.root.join(format!("{}.part", number.0))
    }

    fn io(&self, error: std::io::Error) -> Error {
        Error::io("write to", self.root.display().to_string(), error)
    }
}

impl CopyTarget for Directory {
    fn begin(&self, file: &FileHead) -> Result<()> {
        let opened = File::create_new(self.part(file.number)).map_err(|error| self.io(error))?;
        let before = self.open.lock().unwrap().insert(file.number, Arc::new(opened));
        assert!(before.is_none(), "a number is given once");
        Ok(())
    }

    fn write(&self, file: FileNumber, offset: u64, bytes: &[u8]) -> Result<()> {
        let opened = Arc::clone(&self.open.lock().unwrap()[&file]);
        for (index, block) in bytes.chunks(4096).enumerate() {
            // Holes stay holes.
            if !is_zero(block) {
                opened.write_all_at(block, offset + index as u64 * 4096).map_err(|error| self.io(error))?;
            }
        }
        Ok(())
    }

    fn discard(&self, file: FileNumber) -> Result<()> {
        assert!(self.open.lock().unwrap().remove(&file).is_some(), "only a file that has begun is discarded, and once");
        fs::remove_file(self.part(file)).map_err(|error| self.io(error))
    }

    fn finish(&self, files: &[CopiedFile]) -> Result<()> {
        let mut open = self.open.lock().unwrap();
        for file in files {
            open.remove(&file.number).expect("every file of the list has begun").set_len(file.size).unwrap();
            let name = self.root.join(&file.name);
            // The copy stands in the data directory: what said that it was elsewhere is not wanted.
            if file.name.ends_with(".isl") {
                fs::remove_file(self.part(file.number)).unwrap();
                continue;
            }
            fs::create_dir_all(name.parent().unwrap()).unwrap();
            assert!(!name.exists(), "{} twice", file.name);
            fs::rename(self.part(file.number), name).unwrap();
        }
        assert!(open.is_empty(), "what is in no list was discarded: {:?}", open.keys());
        Ok(())
    }
}

/// Takes everything and keeps nothing, for measuring.
pub struct Nothing;

impl CopyTarget for Nothing {
    fn begin(&self, _: &FileHead) -> Result<()> {
        Ok(())
    }

    fn write(&self, _: FileNumber, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _: FileNumber) -> Result<()> {
        Ok(())
    }

    fn finish(&self, _: &[CopiedFile]) -> Result<()> {
        Ok(())
    }
}
