//! Measured files: the files of a database, which are only read, and our own files, which have no name.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use fullbore_core::io::{ALIGNMENT, Mode, OpenedFile, written_ranges};
use fullbore_core::{Error, Result};
use rustix::fs::{Advice, fadvise};

use super::blocks::Blocks;

/// The prefix of our files' names, for the moment that they have one.
pub(crate) const PROBE_NAME: &str = ".fullbore-calibrate-";

/// One file, opened in both ways.
pub(super) struct ProbeFile {
    /// Opened past the page cache, if the file system can.
    pub direct: Arc<OpenedFile>,
    /// Opened through the page cache.
    pub buffered: Arc<OpenedFile>,
    /// The written ranges of a file that is read, in order; for our own file, the range that was written last.
    written: Vec<Range<u64>>,
    /// The reserved range that was not written yet. Empty for a file that is only read.
    room: Range<u64>,
    /// Bytes that can be read: without holes.
    pub length: u64,
    /// Bytes of the file with its holes.
    pub size: u64,
    /// Made here: no other program uses its pages in the page cache.
    pub ours: bool,
}

impl ProbeFile {
    /// An existing file, for reading.
    pub fn read(path: &Path) -> Result<Self> {
        let direct = OpenedFile::read(path, Mode::Auto)?;
        let buffered = OpenedFile::read(path, Mode::Buffered)?;
        let size = direct.file.metadata().map_err(|e| Error::io("look at", path.display().to_string(), e))?.len();
        // Space that a server has only reserved is read without the disk, as fast as memory.
        let aligned = |range: Range<u64>| range.start.next_multiple_of(ALIGNMENT as u64).min(range.end)..range.end;
        let written: Vec<Range<u64>> = written_ranges(&buffered.file, size).into_iter().map(aligned).collect();
        let length = written.iter().map(|range| range.end - range.start).sum();
        Ok(Self {
            direct: Arc::new(direct),
            buffered: Arc::new(buffered),
            written,
            room: 0..0,
            length,
            size,
            ours: false,
        })
    }

    /// Our own file in `directory`. Its name is removed at once: the kernel frees its space when this process ends.
    pub fn create(directory: &Path) -> Result<Self> {
        let path = directory.join(format!("{PROBE_NAME}{}", uuid::Uuid::new_v4()));
        let direct = OpenedFile::create_new(&path, Mode::Auto)?;
        let again = OpenOptions::new().read(true).write(true).open(&path);
        fs::remove_file(&path).map_err(|e| Error::io("remove", path.display().to_string(), e))?;
        let file = again.map_err(|e| Error::io("open", path.display().to_string(), e))?;
        let buffered = OpenedFile { file: file.into(), path, direct: false, alignment: 1 };
        Ok(Self {
            direct: Arc::new(direct),
            buffered: Arc::new(buffered),
            written: Vec::new(),
            room: 0..0,
            length: 0,
            size: 0,
            ours: true,
        })
    }

    /// Its readable blocks.
    pub fn blocks(&self, block_bytes: u64) -> Blocks {
        Blocks::of(&self.written, block_bytes)
    }

    /// The position of readable byte `at` in the file, and the end of its range without a hole.
    pub fn range_from(&self, mut at: u64) -> Range<u64> {
        for range in &self.written {
            let length = range.end - range.start;
            if at < length {
                return range.start + at..range.end;
            }
            at -= length;
        }
        at..at
    }

    /// The handle for direct or buffered I/O, and the mode of its queue.
    pub fn handle(&self, direct: bool) -> (&Arc<OpenedFile>, Mode) {
        if direct { (&self.direct, Mode::Auto) } else { (&self.buffered, Mode::Buffered) }
    }

    /// Empties it and reserves `bytes`, as at the start of a family.
    pub fn begin(&mut self, bytes: u64) -> Result<()> {
        (self.written, self.length, self.room) = (Vec::new(), 0, 0..bytes);
        self.direct.trim(0)?;
        self.direct.preallocate(bytes)
    }

    /// Whether this many bytes are reserved and not written yet.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.room.end - self.room.start >= bytes
    }

    /// The blocks of `bytes` that are reserved and not written yet.
    pub fn new_blocks(&self, bytes: u64, block_bytes: u64) -> Blocks {
        Blocks::of(std::slice::from_ref(&(self.room.start..self.room.start + bytes)), block_bytes)
    }

    /// Records that the first `bytes` of the reserved space were written.
    pub fn wrote(&mut self, bytes: u64) {
        let start = self.room.start;
        self.room.start = (start + bytes).min(self.room.end);
        (self.written, self.length) = (std::iter::once(start..start + bytes).collect(), bytes);
    }

    /// Drops our own file from the page cache. Other files stay in it: their users need it.
    pub fn forget(&self) {
        if self.ours {
            let _ = drop_cache(&self.buffered.file); // If it fails, a figure may be too good.
        }
    }
}

fn drop_cache(file: &File) -> rustix::io::Result<()> {
    fadvise(file, 0, None, Advice::DontNeed)
}
