//! A consistent snapshot of a live SQLite database, read by several threads straight from its files.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::{Error, Result};

use super::connection::{Patience, QuietConnection, explain, read_index, schema_warning};
use super::database_file::DatabaseFile;
use super::digest::{Digest, content_digest_of};
use super::engine::{KEEP_FREE_PAGES, MAX_WAL_GROWTH};
use super::foreign_writes::ForeignWrites;
use super::freelist::{BITMAP_LIMIT, FreePages};
use super::geometry::{Geometry, find_free_pages, position, read_header};
use super::header::DatabaseHeader;
use super::image::Image;
use super::open_files::{Claim, RawFile, beside};
use super::overlay::Overlay;
use super::position::{FileState, Position};
use super::probe::{self, locate};
use super::wal_index::COPIED_AT;
use crate::{Facts, Options, Session};

/// The only stream of an SQLite database: its file.
const STREAM: u32 = 1;
/// A differential's unit is the page, but at least this many bytes.
const UNIT_MIN: u32 = 4096;

/// The longest time in which two writes to a file may leave it with the same times.
const CLOCK_TICK: Duration = Duration::from_millis(50);

/// How often to try for a snapshot that is exactly the state of the transaction; each try takes some 20 µs.
const EXACT_ATTEMPTS: u32 = 500;

/// An open snapshot. The order of the fields is the order in which they are dropped: the connection before the
/// descriptors, see `Claim`.
pub struct Snapshot {
    state: Mutex<State>,
    exact: bool,
    image: Image,
    header: DatabaseHeader,
    free: FreePages,
    free_bytes: u64,
    stream: [Stream; 1],
    position: Position,
    foreign_writes: ForeignWrites,
    log: Option<LogWatch>,
    cursor: AtomicU64,
    delivered: AtomicU64,
    released: AtomicBool,
    since: Instant,
    warnings: Vec<String>,
    raw: Arc<RawFile>,
    path: PathBuf,
    _claim: Arc<Claim>,
}

struct State {
    connection: QuietConnection,
    /// How long the transaction was open, once it is over.
    held: Option<Duration>,
    /// The state of the file at the end of the transaction, if the file alone is the snapshot.
    file: Option<FileState>,
}

/// The growth of the log while the snapshot pins it.
struct LogWatch {
    file: Arc<RawFile>,
    index: Arc<RawFile>,
    start: u64,
    limit: u64,
}

impl LogWatch {
    /// Watches the log and the wal-index; the log may grow by `limit` bytes.
    fn begin((file, index): (Arc<RawFile>, Arc<RawFile>), limit: u64) -> Result<Self> {
        Ok(Self { start: file.metadata()?.len(), file, index, limit })
    }
}

impl Snapshot {
    /// Opens the database at `path`, takes the snapshot, and finds its free pages.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        Self::open_within(path, options, EXACT_ATTEMPTS)
    }

    /// As `open`, beside other connections of this process; `claim` keeps their descriptors, and `path` is the claimed
    /// path.
    pub(super) fn open_beside(path: &Path, options: &Options, claim: &Arc<Claim>) -> Result<Self> {
        Self::open_claimed(path.to_owned(), Arc::clone(claim), options, EXACT_ATTEMPTS)
    }

    /// As if writers had left no quiet moment, for tests.
    #[doc(hidden)]
    pub fn open_amid_commits(path: &Path, options: &Options) -> Result<Self> {
        Self::open_within(path, options, 0)
    }

    fn open_within(path: &Path, options: &Options, attempts: u32) -> Result<Self> {
        let path = locate(path)?;
        let claim = Arc::new(Claim::take(&path)?);
        Self::open_claimed(path, claim, options, attempts)
    }

    /// The claim comes first: it closes our descriptors after the connection, on every path.
    fn open_claimed(path: PathBuf, claim: Arc<Claim>, options: &Options, attempts: u32) -> Result<Self> {
        let mut warnings = probe::look(&claim)?;
        let connection = QuietConnection::open(&path)?;
        let patience = Patience::new(options.lock_timeout, options.halt.clone());
        connection.begin_despite(options.continue_after_error, &path, &patience)?;
        let unreadable_schema = connection.unreadable_schema();
        warnings.extend(unreadable_schema.as_ref().map(|why| schema_warning(&path, why)));
        let (mut since, mut at) = (Instant::now(), jiff::Timestamp::now());
        let log = if is_wal(&connection, &path)? { Some(open_log(&claim)?) } else { None };
        let mark = match &log {
            None => None,
            Some((_, index)) => {
                let mark = connection.begin_at_mark(&path, index, attempts, &patience)?;
                // Not later: commits that come after the mark are not in the snapshot.
                (since, at) = (Instant::now(), jiff::Timestamp::now());
                Some(mark)
            }
        };
        let exact = mark.as_ref().is_none_or(|mark| mark.exact);
        let mark = mark.map(|mark| mark.header);
        let mut geometry = Geometry::ask(&connection, &path)?;
        if let Some(mark) = mark.as_ref().filter(|mark| !exact && mark.max_frame > 0) {
            geometry.pages = mark.pages;
        }
        let raw = claim.open_database(std::fs::OpenOptions::new().read(true))?;
        let direct = if probe::is_network(&raw).is_none() { claim.open_direct() } else { None };
        let file = DatabaseFile::new(Arc::clone(&raw), direct, geometry.bytes())?;
        let index = log.as_ref().map(|(_, index)| Arc::clone(index));
        let foreign_writes = ForeignWrites::begin(Arc::clone(&raw), index, geometry.page_size)?;
        let overlay = match (&log, &mark) {
            (Some((log, index)), Some(mark)) if mark.max_frame > 0 => {
                Overlay::new(Arc::clone(log), Arc::clone(index), mark)?
            }
            _ => None,
        };
        let image = Image { file, overlay, page_size: geometry.page_size };
        let header = read_header(&image, &geometry, mark.as_ref(), &raw)?;
        let free = match options.given.has(&KEEP_FREE_PAGES) {
            true => FreePages::none(),
            false => find_free_pages(&header, geometry.pages, &image, &mut warnings)?,
        };
        let unit = geometry.page_size.max(UNIT_MIN);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut position = position(&header, &geometry, mark.as_ref(), image.overlay.as_ref(), at);
        position.unreadable_schema = unreadable_schema;
        let log = log.map(|files| LogWatch::begin(files, options.given.bytes(&MAX_WAL_GROWTH))).transpose()?;
        let mut snapshot = Self {
            state: Mutex::new(State { connection, held: None, file: None }),
            exact,
            image,
            header,
            free,
            free_bytes: 0,
            stream: [Stream { id: STREAM, name, unit, size: geometry.bytes() }],
            position,
            foreign_writes,
            log,
            cursor: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            released: AtomicBool::new(false),
            since,
            warnings,
            raw,
            path,
            _claim: claim,
        };
        snapshot.free_bytes = snapshot.count_free_bytes();
        Ok(snapshot)
    }

    /// The identity of this snapshot.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// The digest of all rows, as the snapshot's own transaction sees them through SQLite. `None` if writers were so
    /// fast that the snapshot is one commit later than the transaction.
    pub fn digest(&self) -> Result<Option<Digest>> {
        let state = self.state();
        if state.held.is_some() {
            return Err(Error::refused(
                self.raw.name(),
                "the snapshot has ended: everything was read",
                "take the digest before you read",
            ));
        }
        if self.exact { content_digest_of(&state.connection, &self.path).map(Some) } else { Ok(None) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn size(&self) -> u64 {
        self.stream[0].size
    }

    fn unit(&self) -> u64 {
        u64::from(self.stream[0].unit)
    }

    fn count_free_bytes(&self) -> u64 {
        if self.image.page_size == self.stream[0].unit {
            return self.free.count() * self.unit();
        }
        // Small pages: unit by unit, as far as the bitmap goes.
        let end = self.size().min(BITMAP_LIMIT as u64 * 8 * u64::from(self.image.page_size));
        let starts = (0..end).step_by(self.stream[0].unit as usize);
        starts.filter(|&offset| self.unit_is_free(offset)).map(|offset| self.unit().min(self.size() - offset)).sum()
    }

    /// True when every page of the unit at `offset` is free.
    fn unit_is_free(&self, offset: u64) -> bool {
        if offset >= self.size() {
            return false;
        }
        let page_size = u64::from(self.image.page_size);
        let end = (offset + self.unit()).min(self.size());
        (offset / page_size + 1..=end / page_size)
            .all(|page| u32::try_from(page).is_ok_and(|page| self.free.contains(page)))
    }

    /// Fills `buffer` with the extent. Free units at either end are zeroed and not read. Returns the part that was
    /// read.
    fn fill(&self, offset: u64, buffer: &mut [u8], length: usize) -> Result<Range<usize>> {
        let unit = self.unit();
        let end = offset + length as u64;
        let mut first = offset;
        while first < end && self.unit_is_free(first) {
            first += unit;
        }
        let mut last = end.next_multiple_of(unit);
        while last > first && self.unit_is_free(last - unit) {
            last -= unit;
        }
        let (start, stop) = ((first.min(end) - offset) as usize, (last.min(end) - offset) as usize);
        if start < stop {
            self.image.fill(first, &mut buffer[start..], stop - start)?;
        }
        buffer[..start].fill(0);
        buffer[stop.max(start)..length].fill(0);
        Ok(start..stop.max(start))
    }

    /// Checks that no page in use refers to a page that is left out as free. `pages` begins with the page at `offset`.
    fn nothing_in_use_is_left_out(&self, offset: u64, pages: &[u8]) -> Result<()> {
        if !self.free.names_pages() {
            return Ok(());
        }
        let size = u64::from(self.image.page_size);
        let is_left_out = |page: u32| self.unit_is_free((u64::from(page) - 1) * size / self.unit() * self.unit());
        for (page, number) in pages.chunks_exact(size as usize).zip(offset / size + 1..) {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            if self.free.contains(number) {
                continue;
            }
            if let Some(wrong) = self.free.contradicted_by(&self.header, number, page, is_left_out) {
                // A foreign write to the file causes contradictions too.
                self.check_files()?;
                return Err(Error::refused(
                    self.raw.name(),
                    format!(
                        "page {wrong} is in the free-list, but page {number} refers to it: without it rows could be \
                         lost"
                    ),
                    "back up with --keep-free-pages, which stores every page; then run PRAGMA integrity_check",
                ));
            }
        }
        Ok(())
    }

    /// Counts delivered bytes. The last byte ends the transaction, so that writers do not wait for the media.
    fn deliver(&self, length: usize) -> Result<()> {
        let before = self.delivered.fetch_add(length as u64, Ordering::AcqRel);
        if before + length as u64 == self.size() {
            self.release()?;
        }
        Ok(())
    }

    /// Proves that the files did not change, then releases all locks.
    fn release(&self) -> Result<()> {
        let mut state = self.state();
        if state.held.is_some() {
            return Ok(());
        }
        self.check_files()?;
        state.file = self.file_alone()?;
        state.connection.end().map_err(|error| explain(&self.path, error))?;
        state.held = Some(self.since.elapsed());
        self.released.store(true, Ordering::Release);
        Ok(())
    }

    /// The state of the file, if every frame up to the mark has been copied into it. Called within the transaction, so
    /// that this stays true.
    fn file_alone(&self) -> Result<Option<FileState>> {
        let (Some(watch), Some(log)) = (&self.log, &self.position.log) else { return Ok(None) };
        if probe::is_network(&self.raw).is_some() {
            return Ok(None); // Its times may be those of another machine, or old.
        }
        let mut copied = [0; 4];
        let got = watch.index.read_at(COPIED_AT, &mut copied);
        got.map_err(|error| watch.index.read_error(COPIED_AT, copied.len(), error))?;
        let same_log = read_index(&watch.index)?.is_some_and(|now| now.salts == log.salts());
        if log.max_frame > 0 && !(same_log && u32::from_ne_bytes(copied) >= log.max_frame) {
            return Ok(None);
        }
        let state = FileState::of(&self.raw.metadata()?);
        // The clock of the file system ticks every few milliseconds: two writes within one tick have the same time.
        let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64 - state.changed;
        std::thread::sleep(CLOCK_TICK.saturating_sub(Duration::from_nanos(age.max(0) as u64)));
        Ok(Some(state))
    }

    fn check_files(&self) -> Result<()> {
        self.image.file.check_size()?;
        self.foreign_writes.check(self.image.overlay.as_ref())
    }

    fn check_log(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let grown = log.file.metadata()?.len().saturating_sub(log.start);
        if grown <= log.limit {
            return Ok(());
        }
        Err(Error::refused(
            log.file.name(),
            format!("the write-ahead log grew by {grown} bytes since the backup began; the limit is {}", log.limit),
            "the log cannot be reset during the backup: use a faster device, back up when fewer changes are written, \
             or raise --max-wal-growth",
        ))
    }
}

impl Source for Snapshot {
    fn streams(&self) -> &[Stream] {
        &self.stream
    }

    /// All readers share one cursor, so their number does not matter. One pass only.
    fn reader(&self, _index: usize, _count: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(PageReader { snapshot: self, unread: 0 }))
    }

    fn is_free(&self, stream: u32, offset: u64) -> bool {
        stream == STREAM && self.unit_is_free(offset)
    }

    fn sample(&self, stream: u32, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let length = (buffer.len() as u64 / self.unit() * self.unit()).min(self.size().saturating_sub(offset)) as usize;
        if stream != STREAM || length == 0 || self.released.load(Ordering::Acquire) {
            return Ok(0);
        }
        self.fill(offset, buffer, length)?;
        Ok(length)
    }

    fn check(&self) -> Result<()> {
        if self.released.load(Ordering::Acquire) {
            return Ok(());
        }
        self.check_files()?;
        self.check_log()
    }
}

impl Session for Snapshot {
    fn engine(&self) -> &'static str {
        "sqlite"
    }

    fn source(&self) -> &dyn Source {
        self
    }

    fn position(&self) -> Result<serde_json::Value> {
        let position = Position { file: self.state().file, ..self.position.clone() };
        serde_json::to_value(&position)
            .map_err(|error| Error::refused(self.raw.name(), format!("its position cannot be written: {error}"), ""))
    }

    fn facts(&self) -> Facts {
        let held = self.state().held.unwrap_or_else(|| self.since.elapsed());
        Facts {
            warnings: self.warnings.clone(),
            writers_blocked: if self.log.is_none() { held } else { Duration::ZERO },
            free_bytes: self.free_bytes,
            library: format!("SQLite {}", rusqlite::version()),
            direct: self.image.file.is_direct(),
        }
    }

    fn database_at(&self) -> Result<PathBuf, String> {
        Ok(self.path.clone())
    }
}

/// Takes windows from the shared cursor.
struct PageReader<'a> {
    snapshot: &'a Snapshot,
    /// Bytes of the last extent that were free and not read.
    unread: usize,
}

impl Reader for PageReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let snapshot = self.snapshot;
        let unit = snapshot.unit();
        let window = (buffer.len() as u64).min(1 << 30) / unit * unit;
        if window == 0 {
            let why = format!("{} bytes cannot hold one unit of {unit} bytes", buffer.len());
            // A buffer holds the head of its block too; the step of transfer sizes is the greatest page size.
            let hint = format!("write --max-transfer-size {}KiB or more", (unit / (64 << 10) + 1) * 64);
            return Err(Error::usage("--max-transfer-size", why, hint));
        }
        let offset = snapshot.cursor.fetch_add(window, Ordering::Relaxed);
        if offset >= snapshot.size() {
            return Ok(None);
        }
        let length = window.min(snapshot.size() - offset) as usize;
        let read = snapshot.fill(offset, buffer, length)?;
        snapshot.nothing_in_use_is_left_out(offset + read.start as u64, &buffer[read.clone()])?;
        self.unread = length - read.len();
        snapshot.deliver(length)?;
        Ok(Some(Extent { stream: STREAM, layer: 0, offset, length: length as u32 }))
    }

    fn unread(&self) -> u64 {
        self.unread as u64
    }
}

pub(super) fn is_wal(connection: &QuietConnection, path: &Path) -> Result<bool> {
    let mode: String =
        connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(|error| explain(path, error))?;
    Ok(mode == "wal")
}

/// The log and the wal-index; both exist while a read transaction in WAL mode is open.
pub(super) fn open_log(claim: &Claim) -> Result<(Arc<RawFile>, Arc<RawFile>)> {
    if !beside(claim.path(), "-shm").exists() {
        return Err(Error::refused(
            claim.path().display().to_string(),
            "it is in WAL mode without a wal-index file: the index is in the memory of one process",
            "an application uses PRAGMA locking_mode=EXCLUSIVE or a VFS without shared memory; stop it for the backup",
        ));
    }
    Ok((claim.open_beside("-wal")?, claim.open_beside("-shm")?))
}
