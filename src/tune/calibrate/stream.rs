//! One stream: a file, and operations in flight on it until the round is over.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use fullbore_core::io::{Completion, Mode, OpenedFile, Queue};
use fullbore_core::pool::{Piece, Pool};
use fullbore_core::{Error, Result};

use super::pace::{Pace, thread_seconds};
use crate::tune::profile::{Order, Shape, Way};

/// A stream of a round, with all that it needs: nothing is allocated once the round has begun.
pub(super) struct Stream {
    file: Arc<OpenedFile>,
    queue: Queue,
    pool: Arc<Pool>,
    shape: Shape,
    /// Where in the file, in bytes.
    range: Range<u64>,
    random: fastrand::Rng,
}

/// What a stream or a worker has done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    pub bytes: u64,
    pub begun: Instant,
    pub ended: Instant,
    pub sync_seconds: f64,
    pub cpu_seconds: f64,
}

impl Stream {
    /// A stream over `range` of a file. Its buffers are touched, and full of `seed`'s random bytes: nothing on the way can pack those.
    pub fn new((file, mode): (&Arc<OpenedFile>, Mode), shape: Shape, range: Range<u64>, seed: u64) -> Result<Self> {
        let (depth, block) = (shape.queue_depth as usize, shape.block_bytes as usize);
        let (queue, pool) = (Queue::new(depth, mode)?, Pool::new(depth, block)?);
        let mut random = fastrand::Rng::with_seed(seed);
        for mut buffer in pool.take_all(depth)? {
            random.fill(&mut buffer);
        }
        Ok(Self { file: Arc::clone(file), queue, pool, shape, range, random })
    }

    /// Goes on until `until`, or until a sequential write has filled its range; then everything is waited for, and what was written synced.
    pub fn run(&mut self, pace: &Pace<'_>, until: Instant) -> Result<Moved> {
        let block = self.shape.block_bytes;
        let places = ((self.range.end - self.range.start) / block).max(1);
        let (begun, processor) = (Instant::now(), thread_seconds());
        let (mut number, mut bytes) = (0, 0);
        let fills = self.shape.way == Way::Write && self.shape.order == Order::Sequential;
        while !(fills && number == places) && pace.admits(block, until)? {
            while self.queue.in_flight() == self.queue.depth() {
                bytes += self.waited()?;
            }
            let place = match self.shape.order {
                Order::Sequential => number % places,
                Order::Random => self.random.u64(0..places),
            };
            self.start(number, self.range.start + place * block)?;
            number += 1;
        }
        while self.queue.in_flight() > 0 {
            bytes += self.waited()?;
        }
        let written = Instant::now();
        if self.shape.way == Way::Write {
            self.file.sync()?;
        }
        let ended = Instant::now();
        let sync_seconds = (ended - written).as_secs_f64();
        Ok(Moved { bytes, begun, ended, sync_seconds, cpu_seconds: (thread_seconds() - processor).max(0.0) })
    }

    fn start(&mut self, tag: u64, offset: u64) -> Result<()> {
        let (buffer, length) = (self.pool.take()?, self.shape.block_bytes as usize);
        let started = match self.shape.way {
            Way::Read => self.queue.read(tag, &self.file, offset, buffer, length),
            Way::Write => self.queue.write(tag, &self.file, offset, Piece::new(buffer, 0..length)),
        };
        started.map_err(|error| self.failed(error))
    }

    /// Bytes of the next operation that ends.
    fn waited(&mut self) -> Result<u64> {
        match self.queue.wait().map_err(|error| self.failed(error))? {
            Some(Completion { result, .. }) => result.map(|moved| moved as u64).map_err(|error| self.failed(error)),
            None => Ok(0),
        }
    }

    fn failed(&self, error: std::io::Error) -> Error {
        let action = match self.shape.way {
            Way::Read => "read",
            Way::Write => "write to",
        };
        Error::io(action, self.file.path.display().to_string(), error)
    }
}
