//! The tablespaces in pieces, for several readers: each fills its own buffer with the next piece that nobody has, and a large file is
//! read by all of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_core::io::{Memory, Mode};

use super::data_file::{DamagedPage, DataFile, Entry, SCRATCH, SystemTablespace};
use super::listing::TablespaceFile;
use super::target::{CopyTarget, FileHead, FileKind, FileNumber};
use crate::innodb::page::PAGE_SIZE_MAX;

/// The least buffer, in bytes; each is a multiple of it.
pub const BUFFER_UNIT: usize = PAGE_SIZE_MAX as usize;
/// How many damaged pages are named.
const NAMED_MAX: usize = 1000;
/// Page size that is told where it is not known yet.
pub const PAGE_UNKNOWN: u32 = 16384;

/// What all readers of a copy share from its begin to its end.
pub struct Shared<'a> {
    /// Takes the files.
    pub target: &'a dyn CopyTarget,
    /// How files are read.
    pub mode: Mode,
    /// Ends the copy.
    pub halt: &'a Halt,
    /// Of files so far.
    pub numbers: AtomicU32,
    /// Bytes read so far.
    pub bytes: AtomicU64,
    /// Pages that had to be read again so far.
    pub torn: AtomicU64,
    /// Pages that stayed bad, the first of them.
    pub damaged: Mutex<Vec<DamagedPage>>,
}

impl<'a> Shared<'a> {
    /// Nothing copied so far.
    pub fn new(target: &'a dyn CopyTarget, mode: Mode, halt: &'a Halt) -> Self {
        let (numbers, bytes, torn) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { target, mode, halt, numbers, bytes, torn, damaged: Mutex::default() }
    }

    /// The number of the next file.
    pub fn number(&self) -> FileNumber {
        FileNumber(self.numbers.fetch_add(1, Ordering::Relaxed))
    }
}

/// The files of one round, and how far they have been given out.
pub struct Pieces<'a> {
    shared: &'a Shared<'a>,
    system: &'a SystemTablespace,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<TablespaceFile>,
    /// Opened, and where the next piece begins.
    open: VecDeque<(Arc<DataFile>, u64)>,
    /// How many readers are opening a file just now.
    opening: usize,
    entries: Vec<Arc<Entry>>,
}

/// A piece that a reader has put into its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Of which file.
    pub file: FileNumber,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// Bytes, from the start of the buffer; may be 0 where a file has become shorter.
    pub length: usize,
}

/// One of the readers.
pub struct PieceReader<'a> {
    pieces: &'a Pieces<'a>,
    scratch: Memory,
}

impl<'a> Pieces<'a> {
    /// Of these files.
    pub fn new(shared: &'a Shared<'a>, system: &'a SystemTablespace, files: Vec<TablespaceFile>) -> Self {
        let state = State { waiting: files.into(), ..State::default() };
        Self { shared, system, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// A reader, for one thread.
    pub fn reader(&self) -> Result<PieceReader<'_>> {
        Ok(PieceReader { pieces: self, scratch: Memory::new(SCRATCH)? })
    }

    /// All files that were there, in the order in which they began.
    pub fn into_entries(self) -> Vec<Arc<Entry>> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).entries
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next place to read from, at most `length` bytes of it; opens a file where none has anything left.
    fn claim(&self, length: usize) -> Result<Option<(Arc<DataFile>, u64, usize)>> {
        let mut state = self.lock();
        loop {
            self.shared.halt.check()?;
            if let Some((file, next)) = state.open.front_mut() {
                let (file, offset) = (Arc::clone(file), *next);
                let rest = file.entry.size.saturating_sub(offset);
                *next += length as u64;
                if rest <= length as u64 {
                    state.open.pop_front();
                }
                if rest == 0 {
                    continue; // An empty file.
                }
                return Ok(Some((file, offset, length.min(usize::try_from(rest).unwrap_or(length)))));
            }
            if let Some(file) = state.waiting.pop_front() {
                state.opening += 1;
                drop(state);
                let opened = self.open(file);
                state = self.lock();
                state.opening -= 1;
                self.changed.notify_all();
                if let Some(file) = opened? {
                    state.entries.push(Arc::clone(&file.entry));
                    state.open.push_back((Arc::new(file), 0));
                }
            } else if state.opening > 0 {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                return Ok(None);
            }
        }
    }

    fn open(&self, file: TablespaceFile) -> Result<Option<DataFile>> {
        let opened = DataFile::open(file, self.system, self.shared.mode, || self.shared.number())?;
        if let Some(opened) = &opened {
            let entry = &opened.entry;
            let kind = FileKind::Tablespace { page: entry.page.unwrap_or(PAGE_UNKNOWN) };
            let head = FileHead { number: entry.number, name: entry.file.name.clone(), kind, size: entry.size };
            self.shared.target.begin(&head)?;
        }
        Ok(opened)
    }
}

impl PieceReader<'_> {
    /// Fills the start of `buffer` with the next piece; none when all files are given out. The buffer is aligned for direct reads, and its
    /// length a multiple of [`BUFFER_UNIT`].
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Piece>> {
        let Some((file, offset, length)) = self.pieces.claim(buffer.len())? else { return Ok(None) };
        // Direct reads take whole blocks, also where the file ends.
        let rounded = length.next_multiple_of(BUFFER_UNIT).min(buffer.len());
        let shared = self.pieces.shared;
        let found = file.read(offset, length, &mut buffer[..rounded], &mut self.scratch)?;
        let length = found.length;
        shared.bytes.fetch_add(length as u64, Ordering::Relaxed);
        shared.torn.fetch_add(found.torn, Ordering::Relaxed);
        if !found.damaged.is_empty() {
            let mut damaged = shared.damaged.lock().unwrap_or_else(PoisonError::into_inner);
            let room = NAMED_MAX.saturating_sub(damaged.len());
            damaged.extend(found.damaged.into_iter().take(room));
        }
        Ok(Some(Piece { file: file.entry.number, offset, length }))
    }
}
