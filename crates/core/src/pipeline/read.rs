//! Source readers: fill buffers of the pool and hand them to the workers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::transform::Filled;
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::media::PADDED_HEAD;
use crate::meter::{Clock, Spent};
use crate::pool::Pool;
use crate::source::Source;

/// Reads one reader's share of the source.
pub(super) fn read(
    source: &dyn Source,
    share: (usize, usize),
    pool: &Arc<Pool>,
    filled: &Sender<Filled>,
    throttle: Option<&Throttle>,
    halt: &Halt,
    clock: &mut Clock,
) -> Result<()> {
    let mut reader = source.reader(share.0, share.1)?;
    loop {
        clock.lap(Spent::Busy);
        let mut buffer = pool.take()?;
        if let Some(throttle) = throttle {
            throttle.wait(halt)?;
        }
        clock.lap(Spent::Blocked);
        let Some(extent) = reader.next(&mut buffer[PADDED_HEAD..])? else { return Ok(()) };
        clock.lap(Spent::Busy);
        clock.pass(u64::from(extent.length));
        if let Some(throttle) = throttle {
            throttle.pass(u64::from(extent.length));
        }
        filled.send(Filled { buffer, extent }).map_err(|_| Error::Halted)?;
        clock.lap(Spent::Blocked);
    }
}

/// A bandwidth cap that all readers share.
pub(super) struct Throttle {
    bytes_per_second: u64,
    /// When the bytes read so far may be over.
    due: Mutex<Instant>,
}

impl Throttle {
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), due: Mutex::new(Instant::now()) }
    }

    fn pass(&self, bytes: u64) {
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        // Time not used is not saved up: a cap is a cap, also after a pause.
        *due = (*due).max(Instant::now()) + cost;
    }

    fn wait(&self, halt: &Halt) -> Result<()> {
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
