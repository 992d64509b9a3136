//! The work of a copy, piece by piece, for several readers: each fills its own buffer with the next free piece, so that
//! all of them read a large file. The conductor of the copy gives files to [`Work::copy`] and waits until they are
//! read; the thread that follows the redo log gives its bytes to [`Work::give_log`].

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::io::{Memory, Mode};
use fullbore_core::{Error, Result};

use super::data_file::{DataFile, Entry, SCRATCH, SystemTablespace};
use super::files::CopiedFile;
use super::listing::{ListedFile, Role};
use super::lost::{Judged, LostPages, Short, Unfinished};
use super::stamp::Stamp;
use crate::mariadb::redo::touched::Touched;
use crate::mysql_family::innodb::damage::DamagedPage;
use crate::streams;

/// Unit of pieces in bytes, and of direct reads.
pub const PIECE_UNIT: usize = 4096;
/// How many damaged pages are named.
const NAMED_MAX: usize = 1000;
/// How often the connection with the lock is asked whether it is still there.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// How often waiting threads check whether the copy has been ended.
const TICK: Duration = Duration::from_millis(50);
/// The redo log is handed out in chunks of this many bytes.
const LOG_CHUNK: usize = 512 << 10;
/// Bytes of the redo log that wait for readers, at most; then the log's thread waits.
const LOG_MAX: usize = 8 << 20;

/// A file of the copy, numbered in the order in which files began. Names may change until the end; numbers do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u32);

/// The number of the redo log: it begins before all other files.
pub const LOG: FileNumber = FileNumber(0);

/// A piece that a reader has put into its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Of which file.
    pub file: FileNumber,
    /// Where in the file, in bytes; a multiple of [`PIECE_UNIT`].
    pub offset: u64,
    /// Bytes, from the start of the buffer: at least one, and a multiple of [`PIECE_UNIT`] except at the end of the
    /// file.
    pub length: usize,
}

/// The shared state of all threads of a copy.
pub struct Work {
    /// How files are read.
    pub mode: Mode,
    /// Ends the copy.
    pub halt: Halt,
    /// Bytes read so far.
    pub bytes: AtomicU64,
    /// Pages that had to be read again so far.
    pub torn: AtomicU64,
    /// Refuses encrypted tablespaces, and new tablespaces that may be encrypted.
    refuse_encrypted: bool,
    /// Of files so far.
    numbers: AtomicU32,
    /// The first pages that stayed damaged.
    damaged: Mutex<Vec<DamagedPage>>,
    /// Pages that may have lost their content.
    lost: LostPages,
    /// The pages that the redo log initializes or frees, once the log is known.
    touched: OnceLock<Touched>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    system: Arc<SystemTablespace>,
    waiting: VecDeque<ListedFile>,
    /// Opened, and where the next piece begins.
    open: VecDeque<(Arc<DataFile>, u64)>,
    /// How many readers are opening or reading a file just now.
    busy: usize,
    entries: Vec<Arc<Entry>>,
    /// Of each file that has begun, by its number.
    told: Vec<Option<Told>>,
    /// The redo log, in its order.
    log: VecDeque<Chunk>,
    /// Files that are in memory.
    kept: VecDeque<Chunk>,
    log_ended: bool,
    ended: bool,
}

impl State {
    fn know(&mut self, entry: &Entry) {
        let place = entry.number.0 as usize;
        if self.told.len() <= place {
            self.told.resize(place + 1, None);
        }
        self.told[place] = Some(Told { unit: entry.stored_unit(), identity: entry.identity(), flags: entry.flags });
    }
}

/// The entry of a file that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// See [`Entry::stored_unit`].
    pub unit: u32,
    /// See [`Entry::identity`].
    pub identity: Option<String>,
    /// See [`Entry::flags`].
    pub flags: Option<u32>,
}

/// Bytes of a file that wait in memory for a reader.
struct Chunk {
    file: FileNumber,
    offset: u64,
    bytes: Vec<u8>,
    /// How many of its bytes were handed out.
    given: usize,
}

/// The next step of a reader.
enum Claim {
    Nothing,
    Kept(Chunk),
    Open(ListedFile),
    Read(Arc<DataFile>, u64, usize),
}

impl Work {
    /// Without work so far.
    pub fn new(mode: Mode, halt: &Halt, refuse_encrypted: bool) -> Self {
        Self {
            mode,
            halt: halt.clone(),
            bytes: AtomicU64::new(0),
            torn: AtomicU64::new(0),
            refuse_encrypted,
            numbers: AtomicU32::new(LOG.0 + 1),
            damaged: Mutex::default(),
            lost: LostPages::default(),
            touched: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// How many files there were so far, the redo log included.
    pub fn files(&self) -> u32 {
        self.numbers.load(Ordering::Relaxed)
    }

    /// The entry of a file that has begun.
    pub fn told(&self, file: FileNumber) -> Option<Told> {
        let log = || Told { unit: PIECE_UNIT as u32, identity: None, flags: None };
        let told = self.lock().told.get(file.0 as usize).cloned().flatten();
        told.or_else(|| (file == LOG).then(log))
    }

    /// The first pages that stayed damaged so far.
    pub fn damaged(&self) -> Vec<DamagedPage> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The pages that the redo log touches, from its checkpoint on. The first call counts.
    pub fn follow(&self, touched: Touched) -> &Touched {
        self.touched.get_or_init(|| touched)
    }

    /// Whether pages may be lost.
    pub fn is_suspecting(&self) -> bool {
        self.lost.is_suspecting()
    }

    /// All pages that stayed damaged, and lost pages, once the log is complete and `files` is the copy.
    pub fn judge(&self, files: &[CopiedFile], short: &[Short], unfinished: &Unfinished) -> Judged {
        let mut damaged = self.damaged();
        let room = NAMED_MAX.saturating_sub(damaged.len());
        let lost = self.touched.get().map(|touched| self.lost.judge(touched, files, short, unfinished, room));
        let Judged { damaged: lost, warning } = lost.unwrap_or_default();
        damaged.extend(lost);
        Judged { damaged, warning }
    }

    /// The facts about the further files of the system tablespace; set before the first of them is copied.
    pub fn set_system(&self, system: SystemTablespace) {
        self.lock().system = Arc::new(system);
    }

    /// Lets the readers read these files, and returns the existing files when all are read, in the order in which they
    /// began. It calls `check` every second.
    pub fn copy(&self, files: Vec<ListedFile>, check: &dyn Fn() -> Result<()>) -> Result<Vec<Arc<Entry>>> {
        let mut state = self.lock();
        state.waiting.extend(files);
        self.changed.notify_all();
        let mut checked = Instant::now();
        while !(state.waiting.is_empty() && state.open.is_empty() && state.busy == 0) {
            state = self.wait(state);
            self.halt.check()?;
            if checked.elapsed() >= CHECK_PERIOD {
                drop(state);
                check()?;
                checked = Instant::now();
                state = self.lock();
            }
        }
        self.halt.check()?;
        Ok(std::mem::take(&mut state.entries))
    }

    /// Reads a file into memory, for readers to return later; `None` if it was removed. A file of more than `most`
    /// bytes is not read.
    pub fn keep(&self, file: ListedFile, most: u64) -> Result<Option<Arc<Entry>>> {
        let failed = |error| Error::io("read", file.path.display().to_string(), error);
        let opened = match File::open(&file.path) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let stamp = Stamp::of(&opened.metadata().map_err(failed)?);
        let mut bytes = Vec::new();
        opened.take(most).read_to_end(&mut bytes).map_err(failed)?;
        let number = FileNumber(self.numbers.fetch_add(1, Ordering::Relaxed));
        streams::number(number.0.into())?;
        let entry = Arc::new(Entry::of_other(number, file, bytes.len() as u64, stamp));
        let mut state = self.lock();
        state.know(&entry);
        if !bytes.is_empty() {
            state.kept.push_back(Chunk { file: number, offset: 0, bytes, given: 0 });
            self.changed.notify_all();
        }
        Ok(Some(entry))
    }

    /// Takes the next bytes of the redo log; waits while too many bytes wait for readers.
    pub fn give_log(&self, offset: u64, mut bytes: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let mut offset = offset;
        while !bytes.is_empty() {
            self.halt.check()?;
            if state.log.len() >= LOG_MAX / LOG_CHUNK {
                state = self.wait(state);
                continue;
            }
            if state.log.back().is_none_or(|chunk| chunk.bytes.len() == LOG_CHUNK) {
                state.log.push_back(Chunk { file: LOG, offset, bytes: Vec::with_capacity(LOG_CHUNK), given: 0 });
            }
            let Some(chunk) = state.log.back_mut() else { continue };
            let (now, later) = bytes.split_at(bytes.len().min(LOG_CHUNK - chunk.bytes.len()));
            chunk.bytes.extend_from_slice(now);
            (bytes, offset) = (later, offset + now.len() as u64);
            if chunk.bytes.len() == LOG_CHUNK {
                self.changed.notify_all();
            }
        }
        Ok(())
    }

    /// The redo log is complete.
    pub fn end_log(&self) {
        self.lock().log_ended = true;
        self.changed.notify_all();
    }

    /// Nothing more will come: readers come to their end.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// A reader, for one thread.
    pub fn reader(&self) -> Result<PieceReader<'_>> {
        Ok(PieceReader { work: self, scratch: Memory::new(SCRATCH)? })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0
    }

    /// The next thing to do; waits for one. A piece has at most `room` bytes.
    fn claim(&self, room: usize) -> Result<Claim> {
        let mut state = self.lock();
        loop {
            self.halt.check()?;
            let whole = state.log.front().is_some_and(|chunk| chunk.bytes.len() == LOG_CHUNK || state.log_ended);
            // The log first: the server overwrites bytes that are not read in time.
            if let Some(chunk) = state.log.pop_front_if(|_| whole) {
                self.changed.notify_all();
                return Ok(Claim::Kept(chunk));
            }
            if let Some(chunk) = state.kept.pop_front() {
                return Ok(Claim::Kept(chunk));
            }
            if let Some((file, next)) = state.open.front_mut() {
                let (file, offset) = (Arc::clone(file), *next);
                let length = room / file.entry.unit() * file.entry.unit();
                let rest = file.entry.size.saturating_sub(offset);
                *next += length as u64;
                if rest <= length as u64 {
                    state.open.pop_front();
                }
                if rest == 0 {
                    self.changed.notify_all();
                    continue; // An empty file.
                }
                if length == 0 {
                    return Err(Error::usage(
                        "--max-transfer-size",
                        "a buffer is smaller than a page of this server",
                        "use 1MiB",
                    ));
                }
                state.busy += 1;
                return Ok(Claim::Read(file, offset, length.min(usize::try_from(rest).unwrap_or(length))));
            }
            if let Some(file) = state.waiting.pop_front() {
                state.busy += 1;
                return Ok(Claim::Open(file));
            }
            if state.ended {
                return Ok(Claim::Nothing);
            }
            state = self.wait(state);
        }
    }

    fn open(&self, file: ListedFile) -> Result<()> {
        let system = Arc::clone(&self.lock().system);
        let number = || FileNumber(self.numbers.fetch_add(1, Ordering::Relaxed));
        let opened = DataFile::open(file, &system, self.mode, number)?;
        if let Some(opened) = opened {
            let entry = &opened.entry;
            // Refused at once: such a copy can never be stored.
            streams::number(entry.number.0.into())?;
            let untold = entry.file.role == Role::Table && entry.space.is_none();
            if self.refuse_encrypted && (entry.encrypted || untold) {
                return Err(refused_encrypted(entry));
            }
            let mut state = self.lock();
            state.know(&opened.entry);
            state.entries.push(Arc::clone(&opened.entry));
            state.open.push_back((Arc::new(opened), 0));
        }
        Ok(())
    }
}

fn refused_encrypted(entry: &Entry) -> Error {
    let is = if entry.encrypted { "is encrypted" } else { "was just made and may be encrypted" };
    Error::refused(
        &entry.file.name,
        format!(
            "its tablespace {is}, and the server's redo log is not: its last changes would be on the media in clear"
        ),
        "encrypt the backup too: name its recipients with --encrypt-to; or let the server encrypt its log \
         (innodb_encrypt_log=ON)",
    )
}

/// A reader is at work on a file, until this is dropped.
struct Busy<'a>(&'a Work);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
        self.0.changed.notify_all();
    }
}

/// One of the readers.
pub struct PieceReader<'a> {
    work: &'a Work,
    scratch: Memory,
}

impl PieceReader<'_> {
    /// Fills the start of `buffer` with the next piece, and waits for a piece; `None` when the copy is complete. The
    /// buffer is aligned for direct reads, and its length is a multiple of [`PIECE_UNIT`].
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Piece>> {
        loop {
            match self.work.claim(buffer.len())? {
                Claim::Nothing => return Ok(None),
                Claim::Kept(chunk) => return Ok(Some(self.hand_out(chunk, buffer))),
                Claim::Open(file) => {
                    let _busy = Busy(self.work);
                    self.work.open(file)?;
                }
                Claim::Read(file, offset, length) => {
                    let _busy = Busy(self.work);
                    // Less, or nothing, where a file has become shorter.
                    let length = self.read(&file, offset, length, buffer)?;
                    if length > 0 {
                        return Ok(Some(Piece { file: file.entry.number, offset, length }));
                    }
                }
            }
        }
    }

    fn hand_out(&self, mut chunk: Chunk, buffer: &mut [u8]) -> Piece {
        let length = buffer.len().min(chunk.bytes.len() - chunk.given);
        let (file, offset) = (chunk.file, chunk.offset + chunk.given as u64);
        buffer[..length].copy_from_slice(&chunk.bytes[chunk.given..chunk.given + length]);
        chunk.given += length;
        self.work.bytes.fetch_add(length as u64, Ordering::Relaxed);
        if chunk.given < chunk.bytes.len() {
            let mut state = self.work.lock();
            let queue = if file == LOG { &mut state.log } else { &mut state.kept };
            queue.push_front(chunk);
        }
        Piece { file, offset, length }
    }

    fn read(&mut self, file: &DataFile, offset: u64, length: usize, buffer: &mut [u8]) -> Result<usize> {
        // Direct reads take whole blocks, also where the file ends.
        let rounded = length.next_multiple_of(PIECE_UNIT).min(buffer.len());
        let found = file.read(offset, length, &mut buffer[..rounded], &mut self.scratch)?;
        let work = self.work;
        work.bytes.fetch_add(found.length as u64, Ordering::Relaxed);
        work.torn.fetch_add(found.torn, Ordering::Relaxed);
        if let Some(touched) = work.touched.get().filter(|touched| touched.is_known() && !found.zero.is_empty())
            && let Some((owner, used)) = file.in_use(&found.zero, &mut self.scratch)?
        {
            work.lost.suspect(owner, &used, touched);
        }
        if !found.damaged.is_empty() {
            let mut damaged = work.damaged.lock().unwrap_or_else(PoisonError::into_inner);
            let room = NAMED_MAX.saturating_sub(damaged.len());
            damaged.extend(found.damaged.into_iter().take(room));
        }
        Ok(found.length)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn work() -> Work {
        Work::new(Mode::Auto, &Halt::new(), false)
    }

    fn file(path: &std::path::Path, role: Role) -> ListedFile {
        ListedFile { name: "a".into(), path: path.into(), elsewhere: false, ambiguous: false, role }
    }

    /// Everything that a reader with so large a buffer is given, by file; each piece where it may be.
    fn read_all(work: &Work, buffer: usize) -> std::collections::BTreeMap<FileNumber, Vec<u8>> {
        let (mut reader, mut buffer) = (work.reader().unwrap(), Memory::new(buffer).unwrap());
        let mut all = std::collections::BTreeMap::new();
        while let Some(piece) = reader.next(&mut buffer).unwrap() {
            assert!(piece.length > 0 && piece.offset.is_multiple_of(PIECE_UNIT as u64), "{piece:?}");
            let bytes: &mut Vec<u8> = all.entry(piece.file).or_default();
            let end = piece.offset as usize + piece.length;
            bytes.resize(bytes.len().max(end), 0);
            bytes[piece.offset as usize..end].copy_from_slice(&buffer[..piece.length]);
        }
        all
    }

    #[test]
    fn the_log_comes_whole_in_pieces_of_every_buffer_and_waits_for_readers_when_it_is_far_ahead() {
        let expected: Vec<u8> = (0..LOG_MAX + 1_234_567).map(|at| (at * 7 % 251) as u8).collect();
        for buffer in [(1 << 20) - PIECE_UNIT, (64 << 10) - PIECE_UNIT] {
            let work = work();
            let (got, longest) = std::thread::scope(|scope| {
                let longest = scope.spawn(|| {
                    let (mut offset, mut longest) = (0, 0);
                    for part in expected.chunks(99_991) {
                        work.give_log(offset, part).unwrap();
                        offset += part.len() as u64;
                        longest = longest.max(work.lock().log.len());
                    }
                    work.end_log();
                    work.end();
                    longest
                });
                (read_all(&work, buffer), longest.join().unwrap())
            });
            assert!(got.len() == 1 && got[&LOG] == expected);
            // Also the file that a reader was reading meanwhile.
            assert!(longest <= LOG_MAX / LOG_CHUNK + 1, "{longest} chunks");
        }
    }

    #[test]
    fn a_log_that_nobody_reads_ends_with_the_copy() {
        let work = work();
        std::thread::scope(|scope| {
            let log = scope.spawn(|| work.give_log(0, &vec![1; 2 * LOG_MAX]));
            std::thread::sleep(TICK);
            assert!(!log.is_finished());
            work.halt.stop(Error::Halted);
            assert!(matches!(log.join().unwrap(), Err(Error::Halted)));
        });
    }

    #[test]
    fn files_are_read_where_they_are_or_kept_in_memory_and_one_that_is_gone_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let (path, gone) = (directory.path().join("a"), directory.path().join("b"));
        let bytes: Vec<u8> = (0..200_001).map(|at| (at % 253) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let work = work();
        let kept = work.keep(file(&path, Role::Other), 1 << 20).unwrap().unwrap();
        assert!(work.keep(file(&gone, Role::Other), 1 << 20).unwrap().is_none());
        let got = std::thread::scope(|scope| {
            scope.spawn(|| {
                let files = vec![file(&path, Role::Other), file(&gone, Role::Other)];
                assert_eq!(work.copy(files, &|| Ok(())).unwrap().len(), 1);
                work.end();
            });
            read_all(&work, (64 << 10) - PIECE_UNIT)
        });
        assert_eq!(got.keys().copied().collect::<Vec<_>>(), [kept.number, FileNumber(2)]);
        assert!(got.values().all(|content| *content == bytes));
        assert_eq!(
            [kept.number, LOG, FileNumber(9)].map(|file| work.told(file).map(|told| told.unit)),
            [Some(4096), Some(4096), None]
        );
    }

    #[test]
    fn a_file_too_many_ends_the_copy_when_it_is_opened_and_not_when_it_is_stored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "x").unwrap();
        let work = work();
        let last_number = streams::FILES_MAX as u32 - 1;
        work.numbers.store(last_number, Ordering::Relaxed);
        let last = work.keep(file(&path, Role::Other), 10).unwrap().unwrap();
        assert_eq!(last.number, FileNumber(last_number));
        let kept = work.keep(file(&path, Role::Other), 10).unwrap_err();
        let opened = work.open(file(&path, Role::Other)).unwrap_err();
        for error in [kept, opened] {
            assert!(error.to_string().contains(&format!("more than {} files", streams::FILES_MAX)), "{error}");
        }
    }

    #[test]
    fn a_lock_that_is_gone_ends_the_wait_for_readers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "x").unwrap();
        let error =
            work().copy(vec![file(&path, Role::Other)], &|| Err(Error::refused("lock", "gone", ""))).unwrap_err();
        assert!(error.to_string().contains("gone"));
    }
}
