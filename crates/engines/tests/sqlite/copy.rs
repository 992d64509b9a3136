//! Reads a snapshot as the pipeline does, and compares.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_core::io::Memory;
use fullbore_core::source::{Extent, Source};
use fullbore_engines::Options;
use fullbore_engines::engine::Depth;
use fullbore_engines::sqlite::{Digest, Snapshot, content_digest, integrity};

use crate::child::Child;

/// A database with tables of every kind, open in another process as connection 0.
pub struct Live {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
    pub child: Child,
}

pub const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT, b BLOB); CREATE INDEX tk ON t(k);
    CREATE TABLE w(k TEXT PRIMARY KEY, v) WITHOUT ROWID; CREATE VIRTUAL TABLE f USING fts5(body);
    CREATE TABLE a(id INTEGER PRIMARY KEY AUTOINCREMENT, x REAL);";

impl Live {
    /// `pragmas` come before the first table.
    pub fn new(pragmas: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("live.db");
        let mut child = Child::start();
        child.open(0, &path);
        child.sql(0, &format!("{pragmas}; PRAGMA synchronous = OFF; {SCHEMA}"));
        Self { folder, path, child }
    }

    pub fn sql(&mut self, sql: &str) -> String {
        self.child.sql(0, sql)
    }

    /// `rows` rows of random size up to `size` bytes.
    pub fn fill(&mut self, rows: u32, size: u32) {
        let numbers = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})");
        self.sql(&format!(
            "BEGIN; {numbers} INSERT INTO t(k, b) SELECT hex(randomblob(8)), randomblob(abs(random() % {size})) FROM n;
             {numbers} REPLACE INTO w SELECT 'key' || i, random() FROM n;
             {numbers} INSERT INTO f SELECT 'word' || i || ' and word' || (i * 7) FROM n;
             {numbers} INSERT INTO a(x) SELECT random() / 7.0 FROM n; COMMIT"
        ));
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot::open(&self.path, &Options::default()).unwrap()
    }

    pub fn copy_path(&self) -> PathBuf {
        self.folder.path().join("copy.db")
    }

    /// The current salts of the log; `None` if it is too short to have salts.
    pub fn salts(&self) -> Option<[u8; 8]> {
        let bytes = std::fs::read(self.path.with_extension("db-wal")).ok()?;
        bytes.get(16..24).map(|salts| salts.try_into().unwrap())
    }
}

/// Writes what the readers deliver to `to`; free units stay holes.
fn put(source: &dyn Source, file: &File, extent: Extent, buffer: &[u8]) {
    let unit = source.streams()[0].unit as usize;
    assert_eq!(extent.offset % unit as u64, 0);
    for (number, bytes) in buffer[..extent.length as usize].chunks(unit).enumerate() {
        let offset = extent.offset + (number * unit) as u64;
        if !source.is_free(extent.stream, offset) {
            file.write_all_at(bytes, offset).unwrap();
        }
    }
}

/// Reads with several threads.
pub fn copy(source: &dyn Source, to: &Path, readers: usize, buffer_size: usize) {
    let file = File::create(to).unwrap();
    file.set_len(source.streams()[0].size).unwrap();
    let delivered = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for index in 0..readers {
            let (file, delivered) = (&file, &delivered);
            scope.spawn(move || {
                let mut reader = source.reader(index, readers).unwrap();
                let mut buffer = Memory::new(buffer_size).unwrap();
                while let Some(extent) = reader.next(&mut buffer).unwrap() {
                    put(source, file, extent, &buffer);
                    delivered.fetch_add(extent.length.into(), std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(delivered.into_inner(), source.streams()[0].size);
}

/// Reads with one thread in small pieces; `between` runs before each, with its number.
pub fn copy_slowly(source: &dyn Source, to: &Path, mut between: impl FnMut(u32)) {
    let file = File::create(to).unwrap();
    file.set_len(source.streams()[0].size).unwrap();
    let mut reader = source.reader(0, 1).unwrap();
    let mut buffer = Memory::new(64 << 10).unwrap();
    for number in 0.. {
        between(number);
        source.check().unwrap();
        let Some(extent) = reader.next(&mut buffer).unwrap() else { break };
        put(source, &file, extent, &buffer);
    }
}

/// The copy holds what the snapshot's own transaction saw, and SQLite finds it sound.
#[track_caller]
pub fn assert_whole(copy: &Path, expected: &Digest) {
    assert_eq!(integrity::check(copy, Depth::Full).unwrap(), Vec::<String>::new());
    assert_eq!(content_digest(copy).unwrap(), *expected);
    let side_files = ["db-wal", "db-shm"].map(|extension| copy.with_extension(extension).exists());
    assert_eq!(side_files, [false, false], "looking at a closed database leaves nothing behind");
}
