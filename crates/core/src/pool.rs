//! The buffer pool: all data memory of a job, taken at the start and never again.
//!
//! Waiting for a free buffer is the only back-pressure in the pipeline.

use std::cell::Cell;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::memory::Memory;

/// `count` buffers of `size` bytes each, aligned to 4096 bytes.
pub struct Pool {
    free: Mutex<Free>,
    returned: Condvar,
    size: usize,
    count: usize,
}

#[cfg(any(test, feature = "testkit"))]
thread_local! {
    static MADE_HERE: std::cell::RefCell<Vec<std::sync::Weak<Pool>>> = const { std::cell::RefCell::new(Vec::new()) };
}

struct Free {
    buffers: Vec<Memory>,
    /// Threads that wait for several buffers at once: a returned buffer may be too few for them, and is not lost to the
    /// others.
    want_several: usize,
    /// Buffers that have returned so far.
    returns: u64,
    closed: bool,
}

thread_local! {
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// How long this thread has waited for free buffers since its last call. Its account books this as blocked, even where
/// the buffers were taken deep inside a call.
pub fn waited() -> Duration {
    WAITED.take()
}

/// Books another wait of this thread, such as for a throttle, as a wait for buffers.
pub(crate) fn waited_besides(time: Duration) {
    WAITED.set(WAITED.get() + time);
}

impl Pool {
    /// Allocates `count × size` bytes now.
    pub fn new(count: usize, size: usize) -> Result<Arc<Self>> {
        let buffers = Memory::pieces(count, size)?;
        let free = Mutex::new(Free { buffers, want_several: 0, returns: 0, closed: false });
        let pool = Arc::new(Self { free, returned: Condvar::new(), size, count });
        #[cfg(any(test, feature = "testkit"))]
        MADE_HERE.with_borrow_mut(|made| {
            made.retain(|pool| pool.strong_count() > 0);
            made.push(Arc::downgrade(&pool));
        });
        Ok(pool)
    }

    /// Free buffers now.
    #[cfg(any(test, feature = "testkit"))]
    pub fn free(&self) -> usize {
        self.lock().buffers.len()
    }

    /// Buffers in use now.
    pub fn in_use(&self) -> usize {
        self.count - self.lock().buffers.len()
    }

    /// The pools that this thread has made since its last call and that still exist. A test has no other way to a job's
    /// own pools, and checks that every buffer has returned.
    #[cfg(any(test, feature = "testkit"))]
    pub fn made_here() -> Vec<Arc<Self>> {
        MADE_HERE.take().iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    /// Bytes in each buffer.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Buffers in all, free or not.
    pub fn count(&self) -> usize {
        self.count
    }

    /// True once [`Pool::close`] was called: the job ends.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits for a free buffer; [`Error::Halted`] once the pool is closed.
    pub fn take(self: &Arc<Self>) -> Result<Buffer> {
        let mut free = self.lock();
        loop {
            if free.closed {
                return Err(Error::Halted);
            }
            if let Some(memory) = free.buffers.pop() {
                return Ok(Buffer { memory: Some(memory), home: Arc::clone(self) });
            }
            free = self.wait(free);
        }
    }

    /// Waits until so many buffers are free at once; [`Error::Halted`] once the pool is closed. The caller makes sure
    /// that enough buffers return without its own.
    pub fn take_all(self: &Arc<Self>, count: usize) -> Result<Vec<Buffer>> {
        let mut free = self.lock();
        loop {
            if free.closed {
                return Err(Error::Halted);
            }
            if let Some(rest) = free.buffers.len().checked_sub(count) {
                let taken = free.buffers.drain(rest..);
                return Ok(taken.map(|memory| Buffer { memory: Some(memory), home: Arc::clone(self) }).collect());
            }
            free.want_several += 1;
            free = self.wait(free);
            free.want_several -= 1;
        }
    }

    /// Until a buffer has returned, or the pool is closed.
    fn wait<'a>(&self, free: MutexGuard<'a, Free>) -> MutexGuard<'a, Free> {
        let begun = Instant::now();
        let free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        waited_besides(begun.elapsed());
        free
    }

    /// A free buffer, if there is one now.
    pub fn try_take(self: &Arc<Self>) -> Option<Buffer> {
        let mut free = self.lock();
        if free.closed {
            return None;
        }
        let memory = free.buffers.pop()?;
        Some(Buffer { memory: Some(memory), home: Arc::clone(self) })
    }

    /// So many free buffers, if there are as many now; else none.
    pub fn try_take_all(self: &Arc<Self>, count: usize) -> Option<Vec<Buffer>> {
        let mut free = self.lock();
        let rest = free.buffers.len().checked_sub(count).filter(|_| !free.closed)?;
        let taken = free.buffers.drain(rest..);
        Some(taken.map(|memory| Buffer { memory: Some(memory), home: Arc::clone(self) }).collect())
    }

    /// Wakes all waiting threads: the job ends.
    pub fn close(&self) {
        self.lock().closed = true;
        self.returned.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One buffer of a pool; it returns to the pool when dropped, on every path.
pub struct Buffer {
    memory: Option<Memory>,
    home: Arc<Pool>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            let mut free = self.home.lock();
            free.buffers.push(memory);
            free.returns += 1;
            match free.want_several {
                0 => self.home.returned.notify_one(),
                _ => self.home.returned.notify_all(),
            }
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }
}

/// A range of a buffer that several owners may read; the last of them returns the buffer.
#[derive(Clone)]
pub struct Piece {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl Piece {
    /// The bytes `range` of `buffer`.
    pub fn new(buffer: Buffer, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= buffer.len(), "a piece lies inside its buffer");
        Self { buffer: Arc::new(buffer), range }
    }

    /// A part of this piece, relative to its start.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.range.len(), "a slice lies inside its piece");
        let start = self.range.start + range.start;
        Self { buffer: Arc::clone(&self.buffer), range: start..start + range.len() }
    }

    /// This piece and the next one as one, if they follow each other in one buffer.
    pub fn joined(&self, next: &Self) -> Option<Self> {
        let is_next = Arc::ptr_eq(&self.buffer, &next.buffer) && self.range.end == next.range.start;
        is_next.then(|| Self { buffer: Arc::clone(&self.buffer), range: self.range.start..next.range.end })
    }

    /// How many buffers have returned so far, if the pool has no free buffer, or fewer than a thread waits for. This
    /// buffer may be wanted while that number stays the same.
    pub fn returns_of_dry_pool(&self) -> Option<u64> {
        let free = self.buffer.home.lock();
        (free.buffers.is_empty() || free.want_several > 0).then_some(free.returns)
    }

    /// The whole buffer again, if no other piece of it is left.
    pub fn into_buffer(self) -> Option<Buffer> {
        Arc::into_inner(self.buffer)
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

/// Bytes that [`copy_in_steps`] copies at once.
const COPIED: usize = 1 << 10;

/// Copies as many bytes as both have. For a long copy, the C library takes `rep movsb`, which is at half the speed on some
/// AMD processors: 0.18 s for each GB (`bench/bak/compare.py --only copy SQLite`).
pub fn copy_in_steps(into: &mut [u8], from: &[u8]) {
    let length = into.len().min(from.len());
    let steps = into[..length].chunks_mut(COPIED).zip(from[..length].chunks(COPIED));
    steps.for_each(|(into, from)| into.copy_from_slice(from));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_comes_home() {
        let pool = Pool::new(1, 4096).unwrap();
        let first = pool.take().unwrap();
        assert!(pool.try_take().is_none());
        drop(first);
        assert!(pool.try_take().is_some());
    }

    #[test]
    fn several_buffers_are_taken_all_or_none() {
        let pool = Pool::new(3, 4096).unwrap();
        let two = pool.try_take_all(2).unwrap();
        assert_eq!((two.len(), pool.free()), (2, 1));
        assert!(pool.try_take_all(2).is_none() && pool.free() == 1);
        drop(two);
        pool.close();
        assert!(pool.try_take_all(1).is_none());
    }

    #[test]
    fn a_wait_for_several_buffers_does_not_starve_a_wait_for_one() {
        let pool = Pool::new(3, 4096).unwrap();
        let mut held = pool.take_all(3).unwrap();
        let wants = |count: usize| {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || pool.take_all(count).unwrap().len())
        };
        let (several, one) = (wants(3), wants(1));
        while pool.lock().want_several < 2 {
            std::thread::yield_now();
        }
        assert!(Piece::new(held.pop().unwrap(), 0..1).returns_of_dry_pool().is_some());
        assert_eq!(one.join().unwrap(), 1);
        assert!(!several.is_finished());
        drop(held);
        assert_eq!(several.join().unwrap(), 3);
        assert_eq!(pool.free(), 3);
    }

    #[test]
    fn a_shared_buffer_comes_home_with_its_last_piece() {
        let pool = Pool::new(1, 4096).unwrap();
        let piece = Piece::new(pool.take().unwrap(), 0..100);
        let part = piece.slice(10..20);
        drop(piece);
        assert!(pool.try_take().is_none());
        assert_eq!(part.len(), 10);
        drop(part);
        assert!(pool.try_take().is_some());
    }

    #[test]
    fn closing_the_pool_wakes_who_waits() {
        let pool = Pool::new(0, 4096).unwrap();
        let waiter = {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || pool.take().is_err() && pool.take_all(1).is_err())
        };
        pool.close();
        assert!(waiter.join().unwrap());
    }
}
