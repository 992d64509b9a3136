//! Measured files: the files of a database, which are only read, and our own files, which have no name. And the blocks
//! of a file that a stream uses: whole ones in written ranges, without holes.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use fullbore_core::io::{ALIGNMENT, Mode, OpenedFile, written_ranges};
use fullbore_core::{Error, Result};
use rustix::fs::{Advice, fadvise};

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

/// Whole blocks of a file, numbered from 0 in their order.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    runs: Arc<[Run]>,
    block_bytes: u64,
    numbers: Range<u64>,
}

/// A range of the file without a hole.
#[derive(Debug)]
struct Run {
    /// Blocks of the runs before it.
    before: u64,
    /// Where it starts in the file, bytes.
    start: u64,
}

impl Blocks {
    /// The blocks within `ranges`, which are in order; if no range holds a whole block, one at the start of the
    /// longest.
    pub fn of(ranges: &[Range<u64>], block_bytes: u64) -> Self {
        let (mut runs, mut before) = (Vec::new(), 0);
        for range in ranges {
            let blocks = (range.end - range.start) / block_bytes;
            if blocks > 0 {
                runs.push(Run { before, start: range.start });
                before += blocks;
            }
        }
        if runs.is_empty() {
            let longest = ranges.iter().max_by_key(|range| range.end - range.start);
            runs.push(Run { before: 0, start: longest.map_or(0, |range| range.start) });
            before = 1;
        }
        Self { runs: runs.into(), block_bytes, numbers: 0..before }
    }

    /// Part `number` of `parts`; all blocks if there are fewer blocks than parts.
    pub fn part(&self, number: u64, parts: u64) -> Self {
        let blocks = self.count();
        let numbers = match blocks < parts {
            true => self.numbers.clone(),
            false => self.numbers.start + blocks * number / parts..self.numbers.start + blocks * (number + 1) / parts,
        };
        Self { numbers, ..self.clone() }
    }

    /// The number of blocks: at least one.
    pub fn count(&self) -> u64 {
        self.numbers.end - self.numbers.start
    }

    /// The start of block `number` in the file, in bytes.
    pub fn offset(&self, number: u64) -> u64 {
        let number = self.numbers.start + number;
        let after = self.runs.partition_point(|run| run.before <= number);
        let run = &self.runs[after.saturating_sub(1)];
        run.start + (number - run.before) * self.block_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(blocks: &Blocks) -> Vec<u64> {
        (0..blocks.count()).map(|number| blocks.offset(number)).collect()
    }

    #[test]
    fn all_written_ranges_have_blocks_and_holes_have_none() {
        let blocks = Blocks::of(&[0..130, 200..210, 300..500], 64);
        assert_eq!(offsets(&blocks), [0, 64, 300, 364, 428]);
        let parts: Vec<Vec<u64>> = (0..2).map(|number| offsets(&blocks.part(number, 2))).collect();
        assert_eq!(parts, [vec![0, 64], vec![300, 364, 428]]);
    }

    #[test]
    fn parts_are_whole_blocks_and_do_not_overlap() {
        let all = Blocks::of(std::slice::from_ref(&(0..1000)), 64);
        let parts: Vec<(u64, u64)> =
            (0..3).map(|at| all.part(at, 3)).map(|part| (part.offset(0), part.count())).collect();
        assert_eq!(parts, [(0, 5), (320, 5), (640, 5)]);
        let few = Blocks::of(std::slice::from_ref(&(0..100)), 64);
        assert_eq!(offsets(&few.part(1, 2)), [0], "a file that is too short is read by all");
    }

    #[test]
    fn a_file_without_a_whole_block_has_one_at_its_longest_range() {
        assert_eq!(offsets(&Blocks::of(&[0..10, 50..90], 64)), [50]);
        assert_eq!(offsets(&Blocks::of(&[], 64)), [0]);
    }
}
