//! A hot copy in a plain directory, like the result of a restore.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fullbore_core::checksum::is_zero;
use fullbore_core::io::Memory;
use fullbore_core::{Error, Result};
use fullbore_engines::mariadb::hot_copy::{CopiedFile, FileNumber, HotCopy, LOG, Options, Outcome, Places, Statements};

/// Takes the files of a copy.
pub trait Target: Sync {
    /// Bytes of a file. Called by several threads, in any order, each byte at most once; bytes that never come are
    /// zero.
    fn write(&self, file: FileNumber, offset: u64, bytes: &[u8]) -> Result<()>;

    /// The copy is complete, and these are its files. Not called when the copy fails.
    fn finish(&self, files: &[CopiedFile]);
}

/// Copies into `target`, with this many readers.
pub fn copy_into(
    target: &dyn Target,
    mut stages: impl Statements + Send + 'static,
    monitor: impl Statements + Send + 'static,
    readers: usize,
    options: &Options,
) -> Result<(Outcome, u64)> {
    let places = Places::ask(&mut stages)?;
    let halt = options.halt.clone();
    let copy = HotCopy::start(Box::new(stages), Box::new(monitor), places, options.clone())?;
    std::thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| halt.watch(read_all(&copy, target)));
        }
    });
    halt.finish()?;
    let outcome = copy.outcome()?;
    target.finish(&outcome.files);
    Ok((outcome.clone(), copy.bytes()))
}

fn read_all(copy: &HotCopy, target: &dyn Target) -> Result<()> {
    let mut reader = copy.reader()?;
    // As in the pipeline: a whole buffer, less the head of a block.
    let mut buffer = Memory::new((1 << 20) - 4096)?;
    while let Some(piece) = reader.next(&mut buffer)? {
        assert!(piece.length > 0 && piece.offset % 4096 == 0, "{piece:?}");
        target.write(piece.file, piece.offset, &buffer[..piece.length])?;
    }
    Ok(())
}

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

    fn open(&self, number: FileNumber) -> Arc<File> {
        let mut open = self.open.lock().unwrap();
        let made = || Arc::new(File::create_new(self.part(number)).unwrap());
        Arc::clone(open.entry(number).or_insert_with(made))
    }

    fn io(&self, error: std::io::Error) -> Error {
        Error::io("write to", self.root.display().to_string(), error)
    }
}

impl Target for Directory {
    fn write(&self, file: FileNumber, offset: u64, bytes: &[u8]) -> Result<()> {
        let opened = self.open(file);
        for (index, block) in bytes.chunks(4096).enumerate() {
            // Holes stay holes.
            if !is_zero(block) {
                opened.write_all_at(block, offset + index as u64 * 4096).map_err(|error| self.io(error))?;
            }
        }
        Ok(())
    }

    fn finish(&self, files: &[CopiedFile]) {
        for file in files {
            self.open(file.number).set_len(file.size).unwrap();
            self.open.lock().unwrap().remove(&file.number);
            let name = self.root.join(&file.name);
            // The copy is in the data directory, so the links to other places must not be in it.
            if file.name.ends_with(".isl") {
                fs::remove_file(self.part(file.number)).unwrap();
                continue;
            }
            fs::create_dir_all(name.parent().unwrap()).unwrap();
            assert!(!name.exists(), "{} twice", file.name);
            fs::rename(self.part(file.number), name).unwrap();
        }
        // Files that went, or were copied again.
        for (number, _) in self.open.lock().unwrap().drain() {
            fs::remove_file(self.part(number)).unwrap();
        }
    }
}

/// Only files of large tables have more bytes than this.
const FAR: u64 = 16 << 20;

/// A directory; does something once, when a large table is being read: one reader has read the tables before it then.
pub struct Meanwhile<'a> {
    directory: Directory,
    act: Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

impl<'a> Meanwhile<'a> {
    pub fn new(to: &Path, act: impl FnOnce() + Send + 'a) -> Self {
        Self { directory: Directory::new(to), act: Mutex::new(Some(Box::new(act))) }
    }

    pub fn has_acted(&self) -> bool {
        self.act.lock().unwrap().is_none()
    }
}

impl Target for Meanwhile<'_> {
    fn write(&self, file: FileNumber, offset: u64, bytes: &[u8]) -> Result<()> {
        if file != LOG && offset >= FAR {
            let act = self.act.lock().unwrap().take();
            act.into_iter().for_each(|act| act());
        }
        self.directory.write(file, offset, bytes)
    }

    fn finish(&self, files: &[CopiedFile]) {
        self.directory.finish(files);
    }
}

/// Takes everything and keeps nothing, for measuring.
pub struct Nothing;

impl Target for Nothing {
    fn write(&self, _: FileNumber, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn finish(&self, _: &[CopiedFile]) {}
}
