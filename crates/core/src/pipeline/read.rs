//! Source readers: fill buffers of the pool and hand them to the workers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::layers::Layers;
use super::ordered::Ordered;
use super::transform::Filled;
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::media::PADDED_HEAD;
use crate::meter::{Clock, Spent};
use crate::pool::Pool;
use crate::source::Source;

/// One reader with everything it needs.
pub(super) struct Reading<'a> {
    pub source: &'a dyn Source,
    /// Which reader of how many.
    pub share: (usize, usize),
    pub pool: &'a Arc<Pool>,
    pub filled: Sender<Filled>,
    pub throttle: Option<&'a Throttle>,
    pub layers: &'a Layers,
    pub ordered: &'a Ordered,
    pub halt: &'a Halt,
}

impl Reading<'_> {
    /// Reads this reader's share of the source.
    pub fn run(&self, clock: &mut Clock) -> Result<()> {
        let mut reader = self.source.reader(self.share.0, self.share.1)?;
        loop {
            clock.lap(Spent::Busy);
            let mut buffer = self.pool.take()?;
            if let Some(throttle) = self.throttle {
                throttle.wait(self.halt)?;
            }
            clock.lap(Spent::Blocked);
            let Some(extent) = reader.next(&mut buffer[PADDED_HEAD..])? else { return Ok(()) };
            clock.lap(Spent::Busy);
            let length = u64::from(extent.length);
            let unread = reader.unread().min(length);
            clock.pass(length);
            clock.pass_unread(unread);
            if let Some(throttle) = self.throttle {
                throttle.pass(length - unread);
            }
            self.layers.enter(extent.layer, self.halt)?;
            let in_order = self.source.is_ordered(extent.stream);
            let order = if in_order { self.ordered.enter(self.halt)? } else { 0 };
            self.filled.send(Filled { buffer, lent: reader.lent(), extent, order }).map_err(|_| Error::Halted)?;
            clock.lap(Spent::Blocked);
        }
    }
}

/// A bandwidth cap that all readers share.
pub(super) struct Throttle {
    bytes_per_second: u64,
    /// When the bytes read so far may be complete.
    due: Mutex<Instant>,
}

impl Throttle {
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), due: Mutex::new(Instant::now()) }
    }

    pub fn pass(&self, bytes: u64) {
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        // Time not used is not saved up: a cap is a cap, also after a pause.
        *due = (*due).max(Instant::now()) + cost;
    }

    pub fn wait(&self, halt: &Halt) -> Result<()> {
        loop {
            halt.check()?;
            let due = *self.due.lock().unwrap_or_else(PoisonError::into_inner);
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}
