//! The bytes of a family while another reader reads them: all of them go to a backup too, with their places. So the family
//! is read once.
//!
//! ```text
//! family ─► Tap ─► the reader that judges (its own thread)
//!             └─► Passed: bytes and places ─► ForeignSource ─► the pipeline
//! ```
//!
//! Cells that are in one piece of the device's buffer are not copied on this way: the piece is passed on.

use std::io::{self, Read};
use std::ops::Deref;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fullbore_core::pool::Piece;
use fullbore_core::{Error, Result};

use super::bytes::{FamilyBytes, Watch};
use super::digest::{FamilyDigest, PartsDigester};
use super::layout::{CELL, Run};
use super::source::StoredFile;
use crate::Surveyed;

/// Bytes that are passed on together, at least.
const PASSED: usize = 1 << 20;
/// A cell gets its place when the reader has read it, and before it reads another byte. What is older stays as it is.
const CELL_BYTES: usize = CELL as usize;
/// Bytes of a buffer, at most.
const BUFFER: usize = PASSED + 4 * CELL_BYTES;
/// How many pieces and buffers wait for the pipeline, at most.
const WAITING: usize = 8;
/// Buffers of the device that are on this way, at most: those that wait, one that is being used, and one that grows.
pub const SHARED: usize = WAITING + 2;
/// Bytes of a family that [`Tap::head`] gives.
const HEAD: usize = 8;

/// What the thread that reads passes on.
pub enum Passed {
    /// The next bytes of a family.
    Bytes(PassedBytes),
    /// The next file that has bytes. Places with its number follow.
    File(StoredFile),
    /// All bytes of a family were passed on, and this proves them.
    FamilyEnded(u16, FamilyDigest),
    /// All families were read.
    Ended(Box<Result<Surveyed>>),
}

/// Bytes of a family that follow each other.
pub struct PassedBytes {
    /// The family, from 0.
    pub family: u16,
    /// The bytes.
    pub bytes: Bytes,
    /// Where they belong. Together, the runs have as many bytes.
    pub runs: Vec<Run>,
}

/// Bytes that were copied, or that are still in the buffer of their device.
pub enum Bytes {
    /// Copied.
    Own(Vec<u8>),
    /// In the buffer.
    Shared(Piece),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(piece) => piece,
        }
    }
}

/// Takes what is passed on.
pub struct Outlet {
    passed: Receiver<Passed>,
    used: Sender<Vec<u8>>,
}

/// Passes it on.
#[derive(Clone)]
pub struct Inlet {
    passed: SyncSender<Passed>,
    /// Buffers that were used.
    used: Arc<Mutex<Receiver<Vec<u8>>>>,
}

/// The two ends of a way with room for a few buffers.
pub fn way() -> (Inlet, Outlet) {
    let ((passed, taken), (give_back, used)) = (sync_channel(WAITING), channel());
    (Inlet { passed, used: Arc::new(Mutex::new(used)) }, Outlet { passed: taken, used: give_back })
}

impl Outlet {
    /// What was passed on next.
    ///
    /// # Errors
    /// The other end is gone before it has said that it ended.
    pub fn next(&self) -> Result<Passed> {
        self.passed.recv().map_err(|_| Error::Halted)
    }

    /// Gives bytes back that were used.
    pub fn give_back(&self, bytes: Bytes) {
        // A piece returns to the pool of its device by itself.
        if let Bytes::Own(mut buffer) = bytes {
            buffer.clear();
            let _ = self.used.send(buffer); // Without the other end, its memory is freed.
        }
    }
}

impl Inlet {
    /// Waits until there is room.
    ///
    /// # Errors
    /// Nothing is taken any more.
    pub fn pass(&self, passed: Passed) -> Result<()> {
        self.passed.send(passed).map_err(|_| Error::Halted)
    }

    fn buffer(&self) -> Vec<u8> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.try_recv().unwrap_or_else(|_| Vec::with_capacity(BUFFER))
    }
}

/// A family that is read once, from its first byte on. A clone is the same reading.
#[derive(Clone)]
pub struct Tap(Arc<Mutex<Reading>>);

struct Reading {
    bytes: Box<dyn FamilyBytes>,
    family: u16,
    to: Inlet,
    /// Bytes that were not passed on yet, and the offset of the first of them.
    buffer: Bytes,
    begin: u64,
    /// The places of the first bytes in the buffer, and how many bytes these are.
    runs: Vec<Run>,
    decided: usize,
    /// The first bytes of the family.
    head: Vec<u8>,
    /// The offset of a cell. Cells begin whole cells from there.
    first_cell: Option<u64>,
    /// Of all bytes that were read. It takes them while they are in the caches of the processor that judges them.
    digest: PartsDigester,
}

impl Tap {
    /// Family `number` of its media, from 0.
    pub fn new(bytes: Box<dyn FamilyBytes>, number: u16, to: Inlet) -> Self {
        let buffer = Bytes::Own(Vec::new());
        let (runs, head, first_cell) = (Vec::new(), Vec::new(), None);
        let digest = PartsDigester::default();
        let reading =
            Reading { bytes, family: number, to, buffer, begin: 0, runs, decided: 0, head, first_cell, digest };
        Self(Arc::new(Mutex::new(reading)))
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its first bytes, as far as they were read.
    pub fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head.iter_mut().zip(&self.lock().head).for_each(|(into, byte)| *into = *byte);
        head
    }

    /// The last cell that was read, which begins at `offset`, has this place. False if it is too late for that.
    pub fn place(&self, offset: u64, file: u16, cell: u64) -> bool {
        self.lock().place(offset, Run::Placed { file, cell, count: 1 })
    }

    /// Reads what is left, and passes it on. Gives the bytes of the family.
    ///
    /// # Errors
    /// As of [`Read::read`].
    pub fn finish(&self) -> io::Result<u64> {
        let mut reading = self.lock();
        reading.leave_out(u64::MAX)?;
        reading.pass_all()?;
        let ended = Passed::FamilyEnded(reading.family, FamilyDigest::OfParts(reading.digest.finish()));
        reading.to.pass(ended).map_err(io::Error::other)?;
        Ok(reading.begin)
    }
}

impl Reading {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // No reader waits for more than one cell, so the buffer stays as long as it is.
        let most = into.len().min(CELL_BYTES);
        let into = into.get_mut(..most).unwrap_or_default();
        let count = self.bytes.read(into)?;
        let bytes = into.get(..count).unwrap_or_default();
        self.note(bytes);
        match self.buffer {
            Bytes::Own(_) => self.settle()?,
            // What is before the bytes that were read now can get no place any more.
            Bytes::Shared(_) => self.pass_all()?,
        }
        match &mut self.buffer {
            Bytes::Own(known) if known.capacity() > 0 => known.extend_from_slice(bytes),
            empty => {
                let mut buffer = self.to.buffer();
                buffer.extend_from_slice(bytes);
                *empty = Bytes::Own(buffer);
            }
        }
        Ok(count)
    }

    /// Bytes that are not copied. What was read before can get no place any more.
    fn share(&mut self, length: usize) -> io::Result<Option<Piece>> {
        let Some(piece) = self.bytes.share(length)? else { return Ok(None) };
        self.note(&piece);
        let all = self.buffer.len();
        self.keep_up_to(all);
        let joined = match &self.buffer {
            Bytes::Shared(before) => before.joined(&piece),
            Bytes::Own(_) => None,
        };
        if joined.is_none() && !self.buffer.is_empty() {
            self.pass_all()?;
        }
        self.buffer = Bytes::Shared(joined.unwrap_or_else(|| piece.slice(0..length)));
        Ok(Some(piece))
    }

    fn note(&mut self, bytes: &[u8]) {
        let missing = HEAD.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(bytes.get(..missing).unwrap_or_default());
        self.digest.update(bytes);
    }

    /// Passes on everything that was read.
    fn pass_all(&mut self) -> io::Result<()> {
        let all = self.buffer.len();
        self.keep_up_to(all);
        self.pass()
    }

    fn leave_out(&mut self, mut left: u64) -> io::Result<()> {
        let mut buffer = vec![0; CELL_BYTES];
        while left > 0 {
            let most = usize::try_from(left).map_or(CELL_BYTES, |left| left.min(CELL_BYTES));
            match self.read(buffer.get_mut(..most).unwrap_or_default()) {
                Ok(0) => break,
                Ok(count) => left -= count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn place(&mut self, offset: u64, run: Run) -> bool {
        let at = offset.checked_sub(self.begin).and_then(|at| usize::try_from(at).ok());
        let Some(at) = at.filter(|at| *at >= self.decided && at + CELL_BYTES == self.buffer.len()) else {
            return false;
        };
        self.keep_up_to(at);
        // The first cell, and the first one behind bytes that are no whole cells.
        if self.first_cell.is_none_or(|first| !(offset - first).is_multiple_of(CELL)) {
            self.first_cell = Some(offset);
            self.bytes.begin_at(offset);
        }
        self.runs.push(run);
        self.decided = self.buffer.len();
        true
    }

    fn keep_up_to(&mut self, end: usize) {
        if let Some(more) = end.checked_sub(self.decided).filter(|more| *more > 0) {
            self.runs.push(Run::Kept(more as u64));
            self.decided = end;
        }
    }

    /// Before a read: what can get no place any more stays as it is, and a full buffer is passed on.
    fn settle(&mut self) -> io::Result<()> {
        if self.buffer.len() - self.decided > 2 * CELL_BYTES {
            self.keep_up_to(self.buffer.len() - CELL_BYTES);
        }
        if self.decided >= PASSED { self.pass() } else { Ok(()) }
    }

    fn pass(&mut self) -> io::Result<()> {
        if self.decided == 0 {
            return Ok(());
        }
        let rest = self.buffer.get(self.decided..).unwrap_or_default();
        // A buffer is taken when there is something for it.
        let mut next = if rest.is_empty() { Vec::new() } else { self.to.buffer() };
        next.extend_from_slice(rest);
        let mut bytes = std::mem::replace(&mut self.buffer, Bytes::Own(next));
        // All of a piece is decided before it is passed on.
        if let Bytes::Own(bytes) = &mut bytes {
            bytes.truncate(self.decided);
        }
        self.begin += std::mem::take(&mut self.decided) as u64;
        let passed = PassedBytes { family: self.family, bytes, runs: std::mem::take(&mut self.runs) };
        self.to.pass(Passed::Bytes(passed)).map_err(io::Error::other)
    }
}

impl Read for Tap {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.lock().read(into)
    }
}

impl FamilyBytes for Tap {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.lock().leave_out(bytes)
    }

    fn share(&mut self, length: usize) -> io::Result<Option<Piece>> {
        self.lock().share(length)
    }

    fn watch(&self) -> Watch {
        self.lock().bytes.watch()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use std::io::Cursor;

    use fullbore_core::pool::Pool;

    use super::super::bytes::InOrder;
    use super::*;

    /// What a reader of `bytes` passes on: the bytes, and the runs one after the other.
    fn passed(bytes: &[u8], read: impl FnOnce(&mut Tap) + Send) -> (Vec<u8>, Vec<Run>) {
        let (to, from) = way();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut tap = Tap::new(Box::new(InOrder(Cursor::new(bytes.to_vec()))), 0, to.clone());
                read(&mut tap);
                assert_eq!(tap.finish().unwrap(), bytes.len() as u64);
                to.pass(Passed::Ended(Box::new(Err(Error::Halted)))).unwrap();
            });
            let (mut all, mut runs) = (Vec::new(), Vec::new());
            while let Passed::Bytes(passed) = from.next().unwrap() {
                assert_eq!(passed.runs.iter().map(Run::bytes).sum::<u64>(), passed.bytes.len() as u64);
                if let Bytes::Own(bytes) = &passed.bytes {
                    assert!(bytes.capacity() <= BUFFER, "the buffer has grown");
                }
                all.extend_from_slice(&passed.bytes);
                runs.extend(passed.runs);
                from.give_back(passed.bytes);
            }
            (all, runs)
        })
    }

    fn sample() -> Vec<u8> {
        (0..5_000_000_u32).map(|at| (at.wrapping_mul(at) >> 3) as u8).collect()
    }

    #[test]
    fn all_bytes_are_passed_on_in_their_order_however_they_are_read() {
        let bytes = sample();
        let (all, runs) = passed(&bytes, |tap| {
            let mut buffer = vec![0; 70_000];
            for step in [1, 511, 52, 1024, 70_000, 7] {
                tap.read_exact(&mut buffer[..step]).unwrap();
                tap.skip(step as u64 * 3 / 10).unwrap();
            }
            assert_eq!(tap.head(), sample()[..8]);
        });
        assert!(all == bytes);
        assert!(runs.iter().all(|run| matches!(run, Run::Kept(_))));
    }

    /// Bytes in pieces of a device's buffers.
    pub(crate) struct Pieces {
        pool: Arc<Pool>,
        bytes: Vec<u8>,
        read: usize,
        beginning: usize,
        piece: Option<Piece>,
        used: usize,
    }

    impl Pieces {
        pub(crate) fn new(bytes: Vec<u8>, pool: Arc<Pool>) -> Self {
            Self { pool, bytes, read: 0, beginning: 0, piece: None, used: 0 }
        }

        fn ready(&mut self) -> usize {
            let rest = &self.bytes[self.read..];
            if self.piece.as_ref().is_none_or(|piece| piece.len() <= self.used) && !rest.is_empty() {
                (self.piece, self.used) = (None, 0);
                let mut buffer = self.pool.take().unwrap();
                let size = buffer.len();
                let up_to_a_beginning = size - (self.read + size - self.beginning % size) % size;
                let length = rest.len().min(up_to_a_beginning);
                buffer[..length].copy_from_slice(&rest[..length]);
                self.read += length;
                self.piece = Some(Piece::new(buffer, 0..length));
            }
            self.piece.as_ref().map_or(0, |piece| piece.len() - self.used)
        }
    }

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let length = self.ready().min(into.len());
            into[..length].copy_from_slice(&self.piece.as_ref().map_or(&[][..], |piece| &piece[self.used..])[..length]);
            self.used += length;
            Ok(length)
        }
    }

    impl FamilyBytes for Pieces {
        fn skip(&mut self, bytes: u64) -> io::Result<()> {
            io::copy(&mut self.take(bytes), &mut io::sink()).map(drop)
        }

        fn share(&mut self, length: usize) -> io::Result<Option<Piece>> {
            if self.ready() < length {
                return Ok(None);
            }
            let begin = self.used;
            self.used += length;
            Ok(self.piece.as_ref().map(|piece| piece.slice(begin..begin + length)))
        }

        fn begin_at(&mut self, offset: u64) {
            self.beginning = offset as usize;
        }
    }

    #[test]
    fn cells_in_one_piece_are_passed_on_without_a_copy_and_the_others_with_one() {
        let bytes = sample();
        let pool = Pool::new(SHARED + 1, 1 << 20).unwrap();
        let source = Pieces::new(bytes.clone(), pool.clone());
        let (mut all, mut runs, mut shared) = (Vec::new(), Vec::new(), 0);
        let (to, from) = way();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut tap = Tap::new(Box::new(source), 0, to.clone());
                tap.skip(1000).unwrap();
                let mut cell = vec![0; CELL_BYTES];
                for number in 0..60_u64 {
                    if tap.share(CELL_BYTES).unwrap().is_none() {
                        tap.read_exact(&mut cell).unwrap();
                    }
                    // Each third one gets no place.
                    assert!(number % 3 == 0 || tap.place(1000 + number * CELL, 0, number));
                }
                assert_eq!(tap.finish().unwrap(), 5_000_000);
                to.pass(Passed::Ended(Box::new(Err(Error::Halted)))).unwrap();
            });
            while let Passed::Bytes(passed) = from.next().unwrap() {
                assert_eq!(passed.runs.iter().map(Run::bytes).sum::<u64>(), passed.bytes.len() as u64);
                shared += if let Bytes::Shared(piece) = &passed.bytes { piece.len() } else { 0 };
                all.extend_from_slice(&passed.bytes);
                runs.extend(passed.runs);
                from.give_back(passed.bytes);
            }
        });
        assert!(all == bytes);
        assert!(shared >= 55 * CELL_BYTES, "{shared} bytes");
        let placed = runs.iter().filter(|run| matches!(run, Run::Placed { .. })).count();
        assert_eq!((placed, pool.in_use()), (40, 0));
    }

    #[test]
    fn a_cell_that_was_just_read_gets_its_place_and_an_older_one_does_not() {
        let bytes = sample();
        let (all, runs) = passed(&bytes, |tap| {
            tap.skip(1000).unwrap();
            let mut cell = vec![0; CELL_BYTES];
            for number in 0..40_u64 {
                tap.read_exact(&mut cell).unwrap();
                let offset = 1000 + number * CELL;
                assert!(!tap.place(offset + 1, 0, 9) && !tap.place(offset.saturating_sub(CELL), 0, 9));
                assert!(tap.place(offset, 1, number + 7));
                assert!(!tap.place(offset, 1, number + 7), "it has its place");
            }
        });
        assert!(all == bytes);
        let placed: Vec<u64> =
            runs.iter().filter_map(|run| if let Run::Placed { cell, .. } = run { Some(*cell) } else { None }).collect();
        assert_eq!(placed, (7..47).collect::<Vec<_>>());
        assert_eq!(runs.first(), Some(&Run::Kept(1000)));
    }
}
