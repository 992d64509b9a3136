//! A place in a file system, and one round of one cell on it.

use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::{Error, Result, threads};

use super::pace::Pace;
use super::probe_file::ProbeFile;
use super::small_files;
use super::stream::{Balance, Counted, Moved, Stream, Window};
use fullbore_core::units::show_bytes;
use fullbore_model::profile::{Access, AccessPattern, Order, Round};

/// A write through the page cache moves at least this many bytes. Its other limit is the amount of a direct round:
/// otherwise its `fsync` would take many rounds.
const LEAST_BUFFERED: u64 = 16 << 20;
/// A file begins with space for this many times the bytes of the fastest round, and at least for the next constant. To
/// reserve the whole space for every round would take longer than the round.
const ROOM: u64 = 4;
const LEAST_ROOM: u64 = 256 << 20;
/// Space for this many rounds is reserved at a time.
const ROUNDS_OF_ROOM: u64 = 8;

/// The shortest round, in seconds.
pub(super) const LEAST_SECONDS: f64 = 1e-6;

/// Files of one place.
pub(super) struct Disk {
    /// The directory, or the file or directory that is read.
    pub path: PathBuf,
    /// The files to read; for a written place, the files that were written last.
    pub files: Vec<ProbeFile>,
    /// Bytes that may be written; 0 for a place that is only read.
    pub space: u64,
    /// The most bytes that a direct write has moved in a round so far.
    written_directly: u64,
}

impl Disk {
    pub fn new(path: PathBuf, files: Vec<ProbeFile>, space: u64) -> Self {
        Self { path, files, space, written_directly: 0 }
    }

    /// Whether its file system has direct I/O.
    pub fn is_direct(&self) -> bool {
        self.files.iter().any(|file| file.direct.direct)
    }

    /// Bytes of all files with their holes.
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Bytes in all files, without holes.
    pub fn length(&self) -> u64 {
        self.files.iter().map(|file| file.length).sum()
    }

    /// Reserves space for a sequential write of `streams` files; returns the unwritten bytes in each.
    ///
    /// Each round uses the space after the round before. Space is freed only when all of it was used: on a file system
    /// that discards freed space, the next reads stalled for up to 150 ms, a whole round.
    fn make_room(&mut self, shape: &AccessPattern) -> Result<u64> {
        let streams = shape.streams as usize;
        while self.files.len() < streams {
            self.files.push(ProbeFile::create(&self.path)?);
        }
        let whole = |bytes: u64| bytes / shape.block_bytes * shape.block_bytes;
        let each = match shape.direct {
            true => (self.written_directly * ROOM).max(LEAST_ROOM) / shape.streams,
            false => (self.written_directly / shape.streams).max(LEAST_BUFFERED),
        };
        let most = whole(self.space / shape.streams);
        let each = whole(each).min(most);
        if !self.files[..streams].iter().all(|file| file.has_room(each)) {
            // Free the old space first, then reserve the new one.
            self.files.iter_mut().try_for_each(|file| file.begin(0))?;
            let reserved = each.saturating_mul(ROUNDS_OF_ROOM).min(most);
            self.files[..streams].iter_mut().try_for_each(|file| file.begin(reserved))?;
        }
        Ok(each)
    }

    /// The streams of a cell; none if there are no bytes to read yet, or no space for a single block.
    pub fn streams(&mut self, shape: &AccessPattern) -> Result<Vec<Stream>> {
        let prepared = self.prepared(shape);
        prepared.map_err(|error| self.of_space(error))
    }

    fn prepared(&mut self, shape: &AccessPattern) -> Result<Vec<Stream>> {
        if shape.way == Access::Write && shape.order == Order::Sequential {
            let each = self.make_room(shape)?;
            let files = self.files[..shape.streams as usize].iter().enumerate();
            let make = |(at, file): (usize, &ProbeFile)| {
                let room = file.new_blocks(each, shape.block_bytes);
                Stream::new(file.handle(shape.direct), *shape, room, at as u64)
            };
            return if each == 0 { Ok(Vec::new()) } else { files.map(make).collect() };
        }
        let filled: Vec<&ProbeFile> = self.files.iter().filter(|file| file.length > 0).collect();
        if filled.is_empty() {
            return Ok(Vec::new());
        }
        let parts = shape.streams.div_ceil(filled.len() as u64);
        let make = |at: u64| {
            let file = filled[at as usize % filled.len()];
            if !shape.direct && shape.way == Access::Read {
                file.forget();
            }
            let part = file.blocks(shape.block_bytes).part(at / filled.len() as u64, parts);
            Stream::new(file.handle(shape.direct), *shape, part, at)
        };
        (0..shape.streams).map(make).collect()
    }

    /// One round; `None` if no bytes could be moved.
    pub fn round(&mut self, shape: &AccessPattern, pace: &Pace<'_>) -> Result<Option<Round>> {
        if shape.order == Order::Files {
            return small_files::round(&self.path, pace).map_err(|error| self.of_space(error));
        }
        let mut streams = self.streams(shape)?;
        let window = Window::new(pace);
        let counted = threads::side_by_side("stream", &mut streams, |_, stream| stream.run(pace, window, None));
        drop(streams);
        let counted = counted.map_err(|error| self.of_space(error))?;
        self.note(shape, &counted);
        Ok(side_by_side(&counted))
    }

    /// Records the present content of the files.
    pub fn note(&mut self, shape: &AccessPattern, counted: &[Counted]) {
        if shape.way == Access::Write && shape.order == Order::Sequential {
            self.files.iter_mut().zip(counted).for_each(|(file, stream)| file.wrote(stream.in_all));
            if shape.direct {
                self.written_directly = self.written_directly.max(counted.iter().map(|stream| stream.in_all).sum());
            }
        }
    }

    /// The error; if it is about space, with a hint.
    pub fn of_space(&self, error: Error) -> Error {
        if !error.is_lack_of_room() {
            return error;
        }
        let why = format!("does not have {} of free space for calibration", show_bytes(self.space));
        Error::refused(self.path.display().to_string(), why, "free space there, or give less: --space 256MiB")
    }
}

/// Streams that each counted within their own part of one window: their rates add up.
fn side_by_side(counted: &[Counted]) -> Option<Round> {
    let bytes: u64 = counted.iter().map(|stream| stream.bytes).sum();
    let rate: f64 = counted.iter().map(|stream| stream.bytes as f64 / stream.seconds.max(LEAST_SECONDS)).sum();
    let sync = counted.iter().map(|stream| stream.sync_seconds).fold(0.0, f64::max);
    let cpu_seconds = counted.iter().map(|stream| stream.cpu_seconds).sum();
    let moving: f64 = counted.iter().map(|stream| stream.bytes as f64 / stream.moving_seconds.max(LEAST_SECONDS)).sum();
    let (seconds, moving_seconds) = (bytes as f64 / rate, Some(bytes as f64 / moving).filter(|_| sync > 0.0));
    (bytes > 0).then_some(Round { bytes, seconds, sync_seconds: sync.min(seconds), cpu_seconds, moving_seconds })
}

/// All streams or threads as one round, from the first's start to the last's end.
pub(super) fn joined(moved: &[Moved]) -> Option<Round> {
    let begun = moved.iter().map(|moved| moved.begun).min()?;
    let ended = moved.iter().map(|moved| moved.ended).max()?;
    let sync = moved.iter().map(|moved| moved.sync_seconds).fold(0.0, f64::max);
    let bytes = moved.iter().map(|moved| moved.bytes).sum();
    let seconds = (ended - begun).max(Duration::from_micros(1)).as_secs_f64();
    let cpu_seconds = moved.iter().map(|moved| moved.cpu_seconds).sum();
    let sync_seconds = sync.min(seconds);
    (bytes > 0).then_some(Round { bytes, seconds, sync_seconds, cpu_seconds, moving_seconds: None })
}

/// Reads from one place and writes to another at once, `written_per_read` bytes for each byte that is read.
pub(super) fn both(
    (from, read): (&mut Disk, &AccessPattern),
    (to, write): (&mut Disk, &AccessPattern),
    written_per_read: u64,
    pace: &Pace<'_>,
) -> Result<Option<(u64, u64, f64)>> {
    let (mut reads, mut writes) = (from.streams(read)?, to.streams(write)?);
    let (reading, window, balance) = (reads.len(), Window::of_both(pace), Balance::new(written_per_read));
    let all: Vec<&mut Stream> = reads.iter_mut().chain(&mut writes).collect();
    let counted = threads::side_by_side("stream", all, |_, stream| stream.run(pace, window, Some(&balance)));
    drop((reads, writes));
    let counted = counted.map_err(|error| to.of_space(error))?;
    to.note(write, &counted[reading..]);
    let sides = side_by_side(&counted[..reading]).zip(side_by_side(&counted[reading..]));
    // Each side has its own seconds: the written bytes are scaled to the seconds of the reads.
    Ok(sides.map(|(read, written)| (read.bytes, (written.rate() * read.seconds) as u64, read.seconds)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;
    use fullbore_core::conduct::Conduct;

    fn shape(way: Access, order: Order, streams: u64, direct: bool) -> AccessPattern {
        AccessPattern { way, order, block_bytes: 64 << 10, queue_depth: 4, streams, direct }
    }

    /// Beside the test's own program: `/tmp` may be in memory, which has no direct I/O.
    pub fn directory_on_disk() -> tempfile::TempDir {
        let program = std::env::current_exe().unwrap();
        tempfile::tempdir_in(program.parent().unwrap()).unwrap()
    }

    #[test]
    fn all_written_ranges_of_a_file_are_read_and_none_of_its_holes() {
        use std::os::unix::fs::FileExt;
        let directory = directory_on_disk();
        let path = directory.path().join("data");
        let file = std::fs::File::create(&path).unwrap();
        for at in [0, 4, 8] {
            file.write_all_at(&vec![7; 1 << 20], at << 20).unwrap();
        }
        file.set_len(16 << 20).unwrap();
        file.sync_all().unwrap();
        let probe = ProbeFile::read(&path).unwrap();
        if probe.length == probe.size {
            return; // This file system does not show holes.
        }
        assert_eq!((probe.length, probe.size), (3 << 20, 16 << 20));
        let blocks = probe.blocks(512 << 10);
        let offsets: Vec<u64> = (0..blocks.count()).map(|number| blocks.offset(number) >> 19).collect();
        assert_eq!(offsets, [0, 1, 8, 9, 16, 17]);
        assert_eq!(probe.range_from((1 << 20) + 5), (4 << 20) + 5..5 << 20);
        assert_eq!(Disk::new(path, vec![probe], 0).length(), 3 << 20);
    }

    #[test]
    fn measured_files_are_read_back_and_never_have_a_name() {
        let directory = directory_on_disk();
        let conduct = Conduct::default();
        let pace = Pace::new(Duration::from_millis(20), None, &conduct);
        let mut disk = Disk::new(directory.path().to_owned(), Vec::new(), 4 << 20);
        assert!(disk.round(&shape(Access::Read, Order::Sequential, 1, true), &pace).unwrap().is_none());
        for direct in [true, false] {
            let wrote = disk.round(&shape(Access::Write, Order::Sequential, 2, direct), &pace).unwrap().unwrap();
            assert!(wrote.bytes > 0 && wrote.bytes <= 4 << 20 && wrote.seconds >= wrote.sync_seconds);
            assert!((wrote.bytes..=4 << 20).contains(&disk.length()));
            for (way, order) in
                [(Access::Read, Order::Sequential), (Access::Read, Order::Random), (Access::Write, Order::Random)]
            {
                let moved = disk.round(&shape(way, order, 3, direct), &pace).unwrap().unwrap();
                assert_eq!(moved.bytes % (64 << 10), 0, "{way:?} {order:?}");
            }
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn both_directions_at_once_are_counted_apart() {
        let directory = directory_on_disk();
        std::fs::write(directory.path().join("data"), vec![7; 1 << 20]).unwrap();
        let conduct = Conduct::default();
        let pace = Pace::new(Duration::from_millis(20), None, &conduct);
        let file = ProbeFile::read(&directory.path().join("data")).unwrap();
        let mut from = Disk::new(directory.path().join("data"), vec![file], 0);
        let mut to = Disk::new(directory.path().to_owned(), Vec::new(), 4 << 20);
        let (read, write) =
            (shape(Access::Read, Order::Sequential, 1, true), shape(Access::Write, Order::Sequential, 1, true));
        let (read, written, seconds) = both((&mut from, &read), (&mut to, &write), 1, &pace).unwrap().unwrap();
        assert!(read > 0 && written > 0 && seconds > 0.0 && to.length() <= 4 << 20);
        assert_eq!(std::fs::read(directory.path().join("data")).unwrap(), vec![7; 1 << 20]);
    }
}
