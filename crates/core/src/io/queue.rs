//! A queue of positional reads and writes on files, with owned memory: by io_uring, or one after the other where the
//! kernel has no io_uring for us.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rustix::io::{pread, pwrite};

use super::operation::{Next, Operation};
use super::ring::Ring;
use super::{Completion, Latency, Mode, OpenedFile, Payload};
use crate::error::{Error, Result};
use crate::pool::{Buffer, Piece};

/// The deepest queue: more only adds latency.
const DEPTH_MAX: usize = 1024;

/// Up to `depth` operations in flight. Each is carried through: short results, EINTR and EAGAIN never reach the
/// caller. Memory comes back in the [`Completion`], or when the queue is dropped, which waits for the device.
pub struct Queue {
    ring: Option<Ring>,
    depth: usize,
    finished: VecDeque<Completion>,
    statistics: Statistics,
}

/// What a queue has done.
#[derive(Clone, Default)]
pub struct Statistics {
    /// Operations completed.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Sum over operations of the number in flight when each was queued, itself included.
    pub queue_depth_sum: u64,
    /// From queueing an operation to seeing it completed: includes the time in which no thread looked.
    pub latency: Latency,
}

/// What one device did, for the report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceAccount {
    /// Directory or store.
    pub directory: String,
    /// Operations done.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Sum over operations of the number in flight when each was queued.
    pub queue_depth_sum: u64,
    /// 99th percentile of the time from queueing to completion, in microseconds.
    pub p99_us: u64,
    /// Direct I/O (past the page cache).
    pub direct: bool,
    /// Differences from the request that cost no data.
    pub warnings: Vec<String>,
}

impl DeviceAccount {
    pub(crate) fn new(directory: impl Into<String>, statistics: &Statistics, direct: bool) -> Self {
        Self {
            directory: directory.into(),
            operations: statistics.operations,
            bytes: statistics.bytes,
            queue_depth_sum: statistics.queue_depth_sum,
            p99_us: statistics.latency.p99_us(),
            direct,
            warnings: Vec::new(),
        }
    }
}

impl Queue {
    /// A queue for 1 to 1024 operations in flight.
    ///
    /// # Errors
    /// With [`Mode::Uring`], when the kernel has no io_uring for us; in every other mode that only makes it slower.
    pub fn new(depth: usize, mode: Mode) -> Result<Self> {
        if depth == 0 || depth > DEPTH_MAX {
            return Err(Error::usage(
                format!("--queue-depth {depth}"),
                "out of bounds",
                format!("give 1 to {DEPTH_MAX}"),
            ));
        }
        let ring = match (mode, Ring::new(depth)) {
            (Mode::Blocking, _) => None,
            (Mode::Uring, Err(error)) => return Err(Error::io("set up io_uring for", "FULLBORE_IO=uring", error)),
            (_, ring) => ring.ok(),
        };
        Ok(Self { ring, depth, finished: VecDeque::with_capacity(depth), statistics: Statistics::default() })
    }

    /// Whether operations really run at the same time.
    pub fn is_uring(&self) -> bool {
        self.ring.is_some()
    }

    /// The most operations in flight.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Operations whose completion has not been taken.
    pub fn in_flight(&self) -> usize {
        self.finished.len() + self.ring.as_ref().map_or(0, Ring::in_flight)
    }

    /// What has been done.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Starts to write all of `piece` at `offset`. The queue must have room; for a direct file, everything is aligned.
    ///
    /// # Errors
    /// The queue itself has failed; how the write went is told by its completion.
    pub fn write(&mut self, tag: u64, file: &Arc<OpenedFile>, offset: u64, piece: Piece) -> io::Result<()> {
        let length = piece.len();
        self.start(Operation::new(tag, file, offset, Payload::Write(piece), length))
    }

    /// Starts to fill the first `length` bytes of `buffer` from `offset`. As for [`write`](Self::write).
    pub fn read(
        &mut self,
        tag: u64,
        file: &Arc<OpenedFile>,
        offset: u64,
        buffer: Buffer,
        length: usize,
    ) -> io::Result<()> {
        self.start(Operation::new(tag, file, offset, Payload::Read(buffer), length))
    }

    fn start(&mut self, operation: Operation) -> io::Result<()> {
        if self.in_flight() >= self.depth {
            return Err(io::Error::other("more operations were queued than the queue has room for"));
        }
        self.statistics.queue_depth_sum += self.in_flight() as u64 + 1;
        match &mut self.ring {
            // An empty operation is done, whatever the file is: the kernel would say 0, which means other things too.
            _ if operation.length == 0 => self.finish(operation, Ok(0)),
            Some(ring) => ring.start(operation)?,
            None => self.run(operation),
        }
        Ok(())
    }

    /// Carries `operation` through now.
    fn run(&mut self, mut operation: Operation) {
        loop {
            let (position, done, length) = (operation.position(), operation.done, operation.length);
            let file = &operation.file.file;
            let outcome = match &mut operation.payload {
                Payload::Write(piece) => pwrite(file, Operation::unwritten(piece, done, length), position),
                Payload::Read(buffer) => pread(file, Operation::unread(buffer, done, length), position),
            };
            if let Next::Done(result) = operation.advance(outcome.map_err(io::Error::from)) {
                return self.finish(operation, result);
            }
        }
    }

    fn finish(&mut self, operation: Operation, result: io::Result<usize>) {
        self.statistics.operations += 1;
        self.statistics.bytes += result.as_ref().map_or(0, |&moved| moved as u64);
        self.statistics.latency.record(operation.queued.elapsed());
        self.finished.push_back(operation.complete(result));
    }

    /// A finished operation, if there is one now.
    pub fn poll(&mut self) -> io::Result<Option<Completion>> {
        self.take(false)
    }

    /// Waits for an operation to finish, in whatever order; `None` when none is in flight.
    ///
    /// # Errors
    /// The queue itself has failed. What is in flight stays so; do not wait again.
    pub fn wait(&mut self) -> io::Result<Option<Completion>> {
        self.take(true)
    }

    fn take(&mut self, wait: bool) -> io::Result<Option<Completion>> {
        loop {
            if let Some(completion) = self.finished.pop_front() {
                return Ok(Some(completion));
            }
            let Some(ring) = &mut self.ring else { return Ok(None) };
            let Some((mut operation, outcome)) = ring.reap(wait)? else { return Ok(None) };
            match operation.advance(outcome) {
                Next::Again => ring.start(operation)?,
                Next::Done(result) => self.finish(operation, result),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pool::Pool;
    use tempfile::TempDir;

    /// Every mode that this machine has: containers often forbid io_uring.
    fn modes() -> Vec<Mode> {
        let all = [Mode::Auto, Mode::Uring, Mode::Blocking, Mode::Buffered];
        all.into_iter().filter(|&mode| Queue::new(1, mode).is_ok()).collect()
    }

    fn created(mode: Mode) -> (TempDir, Arc<OpenedFile>) {
        let directory = crate::io::directory_on_disk();
        let file = OpenedFile::create_new(&directory.path().join("a"), mode).unwrap();
        (directory, Arc::new(file))
    }

    /// Writes `count` pieces of 8 KiB, the n-th full of n, the last first.
    fn fill(queue: &mut Queue, file: &Arc<OpenedFile>, pool: &Arc<Pool>, count: u64) {
        for number in (0..count).rev() {
            while queue.in_flight() == queue.depth() {
                assert_eq!(queue.wait().unwrap().unwrap().result.unwrap(), 8192);
            }
            let mut buffer = pool.take().unwrap();
            buffer.fill(number as u8);
            queue.write(number, file, number * 8192, Piece::new(buffer, 0..8192)).unwrap();
        }
    }

    #[test]
    fn blocks_written_in_any_order_are_read_back_in_every_mode() {
        for mode in modes() {
            let (_directory, file) = created(mode);
            let pool = Pool::new(4, 8192).unwrap();
            let mut queue = Queue::new(4, mode).unwrap();
            fill(&mut queue, &file, &pool, 50);
            while queue.wait().unwrap().is_some() {}
            assert_eq!((queue.statistics().operations, queue.statistics().bytes), (50, 50 * 8192));
            for number in 0..50 {
                queue.read(number, &file, number * 8192, pool.take().unwrap(), 8192).unwrap();
                let completion = queue.wait().unwrap().unwrap();
                let Payload::Read(buffer) = completion.payload else { panic!("a read gives its buffer back") };
                assert_eq!((completion.tag, completion.result.unwrap()), (number, 8192));
                assert!(buffer.iter().all(|&byte| byte == number as u8), "{mode:?}");
            }
        }
    }

    #[test]
    fn dropping_a_queue_waits_for_all_in_flight_and_brings_every_buffer_home() {
        for mode in modes() {
            let (_directory, file) = created(mode);
            let pool = Pool::new(16, 8192).unwrap();
            for _ in 0..20 {
                let mut queue = Queue::new(16, mode).unwrap();
                fill(&mut queue, &file, &pool, 16);
                drop(queue);
                let home: Vec<_> = std::iter::from_fn(|| pool.try_take()).collect();
                assert_eq!(home.len(), 16, "{mode:?}");
            }
            for number in 0..16 {
                let mut bytes = crate::io::Memory::new(8192).unwrap();
                std::os::unix::fs::FileExt::read_exact_at(&*file.file, &mut bytes, number * 8192).unwrap();
                assert!(bytes.iter().all(|&byte| byte == number as u8), "{mode:?}: written before the drop ended");
            }
        }
    }

    #[test]
    fn a_read_beyond_the_end_is_short_and_an_error_keeps_its_number() {
        for mode in modes() {
            let (directory, file) = created(mode);
            std::fs::write(&file.path, vec![1; 10_000]).unwrap();
            let pool = Pool::new(1, 65536).unwrap();
            let mut queue = Queue::new(1, mode).unwrap();
            queue.read(0, &file, 0, pool.take().unwrap(), 65536).unwrap();
            assert_eq!(queue.wait().unwrap().unwrap().result.unwrap(), 10_000, "{mode:?}");
            queue.read(0, &file, 1 << 20, pool.take().unwrap(), 65536).unwrap();
            assert_eq!(queue.wait().unwrap().unwrap().result.unwrap(), 0, "{mode:?}");
            let only_read = Arc::new(OpenedFile::read(&directory.path().join("a"), mode).unwrap());
            queue.write(0, &only_read, 0, Piece::new(pool.take().unwrap(), 0..65536)).unwrap();
            assert_eq!(queue.wait().unwrap().unwrap().result.unwrap_err().raw_os_error(), Some(9), "EBADF");
            assert!(queue.wait().unwrap().is_none());
        }
    }

    #[test]
    fn more_than_the_depth_is_refused_and_the_memory_is_not_lost() {
        let (_directory, file) = created(Mode::Auto);
        let pool = Pool::new(2, 8192).unwrap();
        let mut queue = Queue::new(1, Mode::Blocking).unwrap();
        for accepted in [true, false] {
            let piece = Piece::new(pool.take().unwrap(), 0..8192);
            assert_eq!(queue.write(0, &file, 0, piece).is_ok(), accepted);
        }
        assert!(pool.try_take().is_some());
        assert!(Queue::new(0, Mode::Auto).is_err() && Queue::new(1_000_000, Mode::Auto).is_err());
    }

    #[test]
    fn a_queue_can_move_to_another_thread_with_operations_in_flight() {
        let (_directory, file) = created(Mode::Auto);
        let pool = Pool::new(8, 8192).unwrap();
        let mut queue = {
            let (file, pool) = (Arc::clone(&file), Arc::clone(&pool));
            let submitter = std::thread::spawn(move || {
                let mut queue = Queue::new(8, Mode::Auto).unwrap();
                fill(&mut queue, &file, &pool, 8);
                queue
            });
            submitter.join().unwrap()
        };
        while let Some(completion) = queue.wait().unwrap() {
            assert_eq!(completion.result.unwrap(), 8192);
        }
        assert_eq!(queue.statistics().operations, 8);
    }
}
