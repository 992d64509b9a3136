//! A clone written to a plain folder: the simplest thing that stores one, and a data directory afterwards.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::clone_target::{Bytes, CloneTarget};
use fullbore_core::Result;
use fullbore_engines::mysql::clone::descriptor::{Stage, StateDescriptor, file_flags};
use fullbore_engines::mysql::clone::encryption::{self, Wrapped};
use fullbore_engines::mysql::clone::files::{Change, CloneFile, FileId};
use fullbore_engines::mysql::clone::page_zero::PageSize;
use fullbore_engines::mysql::clone::task::DataExtent;
use fullbore_engines::mysql::restore;
use tempfile::TempDir;

/// The action of a test when data comes.
type OnData = Box<dyn Fn(&DataExtent) -> Result<()> + Sync + Send>;

/// Files under their numbers until the end, when they get their names: no rename on the way can collide.
pub struct Directory {
    root: TempDir,
    files: Mutex<HashMap<FileId, Arc<File>>>,
    /// Files whose first page may hold a key.
    encrypted: Mutex<std::collections::BTreeSet<FileId>>,
    /// Keys that were received in clear.
    pub keys: AtomicU64,
    /// Bytes taken.
    pub bytes: AtomicU64,
    /// Which tasks sent some.
    pub tasks: Mutex<std::collections::BTreeSet<usize>>,
    /// Changes other than files found at the start, for the curious.
    pub changes: Mutex<Vec<Change>>,
    /// Called with each extent: tests interfere here.
    pub on_data: OnData,
    /// Called at the end of each stage.
    pub on_end: Box<dyn Fn(Stage) + Sync + Send>,
}

impl Directory {
    pub fn new() -> Self {
        let root = tempfile::Builder::new().prefix("fullbore-clone-").tempdir().unwrap();
        fs::create_dir(root.path().join("data")).unwrap();
        restore::begin(&root.path().join("data")).unwrap();
        Self {
            root,
            files: Mutex::default(),
            encrypted: Mutex::default(),
            keys: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            tasks: Mutex::default(),
            changes: Mutex::default(),
            on_data: Box::new(|_| Ok(())),
            on_end: Box::new(|_| ()),
        }
    }

    /// The data directory.
    pub fn path(&self) -> PathBuf {
        self.root.path().join("data")
    }

    fn part(&self, id: FileId) -> PathBuf {
        self.root.path().join(format!("{id:?}"))
    }

    fn open(&self, id: FileId) -> Arc<File> {
        let mut files = self.files.lock().unwrap();
        let make = || {
            Arc::new(File::options().read(true).write(true).create(true).truncate(false).open(self.part(id)).unwrap())
        };
        files.entry(id).or_insert_with(make).clone()
    }

    /// Gives all files their names and final sizes.
    pub fn finish(&self, files: &[CloneFile]) {
        for file in files.iter().filter(|file| !file.deleted) {
            let part = self.open(file.id);
            let mut size = file.size;
            if matches!(file.id, FileId::Data(_)) && file.fsp_flags != u32::MAX {
                let mut page = vec![0; 4096.min(size as usize)];
                part.read_exact_at(&mut page, 0).unwrap();
                size = restore::final_size(size.max(restore::size_in_page_zero(&page, file.page_size)), file.page_size);
            }
            if part.metadata().unwrap().len() < size || matches!(file.id, FileId::Redo(_)) {
                part.set_len(size).unwrap();
            }
            assert_eq!(file.outside, None, "{}", file.path);
            let path = self.path().join(&file.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            assert!(!path.exists(), "{} twice", file.path);
            fs::rename(self.part(file.id), path).unwrap();
        }
        restore::finish(&self.path(), &serde_json::Value::Null).unwrap();
    }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 256 << 10]);
}

impl CloneTarget for Directory {
    fn stage_begins(&self, _: &StateDescriptor) -> Result<()> {
        Ok(())
    }

    fn file(&self, change: &Change) -> Result<()> {
        let file = change.file();
        if file.flags & file_flags::ENCRYPTED != 0 {
            self.encrypted.lock().unwrap().insert(file.id);
        }
        if let Change::Born(_, page) = change {
            let part = self.open(file.id);
            part.write_all_at(page, 0).unwrap();
            part.set_len(file.size).unwrap();
        }
        if !matches!(change, Change::Found(_)) {
            self.changes.lock().unwrap().push(change.clone());
        }
        Ok(())
    }

    fn data(&self, extent: &DataExtent, bytes: &mut Bytes<'_>) -> Result<()> {
        (self.on_data)(extent)?;
        self.tasks.lock().unwrap().insert(bytes.task());
        let file = self.open(extent.file);
        let may_hold_key = extent.offset == 0 && self.encrypted.lock().unwrap().contains(&extent.file);
        BUFFER.with_borrow_mut(|buffer| {
            let mut at = extent.offset;
            loop {
                match bytes.read(buffer)? {
                    0 => break,
                    length => {
                        if may_hold_key && at == 0 {
                            let page = PageSize::new(16384).unwrap();
                            if encryption::wrap(&mut buffer[..16384], page).unwrap() == Wrapped::Now {
                                self.keys.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        file.write_all_at(&buffer[..length], at).unwrap();
                        at += length as u64;
                    }
                }
            }
            assert_eq!(at, extent.offset + u64::from(extent.length));
            self.bytes.fetch_add(u64::from(extent.length), Ordering::Relaxed);
            Ok(())
        })
    }

    fn stage_ends(&self, stage: Stage) -> Result<()> {
        (self.on_end)(stage);
        Ok(())
    }
}

/// All redo blocks of a data directory, in order.
pub fn redo_blocks(root: &Path, mut take: impl FnMut(&[u8; 512]) -> bool) {
    for index in 0.. {
        let Ok(bytes) = fs::read(root.join(format!("#innodb_redo/#ib_redo{index}"))) else { return };
        for block in bytes[2048..].chunks_exact(512) {
            if !take(block.try_into().unwrap()) {
                return;
            }
        }
    }
}
