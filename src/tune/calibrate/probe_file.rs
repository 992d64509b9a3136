//! Files that are measured: those of a database, which are only read, and files of our own, which have no name.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use fullbore_core::io::{ALIGNMENT, Mode, OpenedFile, written_ranges};
use fullbore_core::{Error, Result};
use rustix::fs::{Advice, fadvise};

use super::blocks::Blocks;

/// What the names of our files begin with, for the moment that they have one.
pub(crate) const PROBE_NAME: &str = ".fullbore-calibrate-";

/// One file, opened in both ways.
pub(super) struct ProbeFile {
    /// Past the page cache, where the file system can.
    pub direct: Arc<OpenedFile>,
    /// Through it.
    pub buffered: Arc<OpenedFile>,
    /// What was written of a file that is read, in order; of a file of ours, what was written last.
    written: Vec<Range<u64>>,
    /// Where room begins that is reserved and was not written yet, and where it ends. Empty of a file that is only read.
    room: Range<u64>,
    /// Bytes that can be read: without holes.
    pub length: u64,
    /// Bytes of the file with its holes.
    pub size: u64,
    /// Made here: nobody else uses what the page cache holds of it.
    pub ours: bool,
}

impl ProbeFile {
    /// A file that is there, for reading.
    pub fn read(path: &Path) -> Result<Self> {
        let direct = OpenedFile::read(path, Mode::Auto)?;
        let buffered = OpenedFile::read(path, Mode::Buffered)?;
        let size = direct.file.metadata().map_err(|e| Error::io("look at", path.display().to_string(), e))?.len();
        // Room that a server has reserved is read without the disk: as fast as memory.
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

    /// A file of our own in `directory`. Its name goes at once: however this process ends, the kernel frees its space.
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

    /// Its blocks that can be read.
    pub fn blocks(&self, block_bytes: u64) -> Blocks {
        Blocks::of(&self.written, block_bytes)
    }

    /// Where byte `at` of what can be read is in the file, and where the range without a hole ends that holds it.
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

    /// Empties it and reserves `bytes`, as a family is begun.
    pub fn begin(&mut self, bytes: u64) -> Result<()> {
        (self.written, self.length, self.room) = (Vec::new(), 0, 0..bytes);
        self.direct.trim(0)?;
        self.direct.preallocate(bytes)
    }

    /// Whether so many bytes are reserved that were not written yet.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.room.end - self.room.start >= bytes
    }

    /// The blocks of `bytes` that are reserved and were not written yet.
    pub fn new_blocks(&self, bytes: u64, block_bytes: u64) -> Blocks {
        Blocks::of(std::slice::from_ref(&(self.room.start..self.room.start + bytes)), block_bytes)
    }

    /// Notes that the first `bytes` of the room were written.
    pub fn wrote(&mut self, bytes: u64) {
        let start = self.room.start;
        self.room.start = (start + bytes).min(self.room.end);
        (self.written, self.length) = (std::iter::once(start..start + bytes).collect(), bytes);
    }

    /// Lets the page cache forget a file of ours. Of others it is left alone: their users would miss it.
    pub fn forget(&self) {
        if self.ours {
            let _ = drop_cache(&self.buffered.file); // A figure that is too good, at worst.
        }
    }
}

fn drop_cache(file: &File) -> rustix::io::Result<()> {
    fadvise(file, 0, None, Advice::DontNeed)
}
