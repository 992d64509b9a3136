//! The beginning and the end of a round, the cap that all streams share, and the processor time of a thread.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::Result;

use fullbore_core::conduct::Conduct;

/// The longest sleep between two checks for a signal.
const NAP: Duration = Duration::from_millis(50);

/// The limits of every round.
pub(super) struct Pace<'a> {
    /// The length of a round in memory, or in a store.
    pub length: Duration,
    /// The counted length of a round on a device.
    pub on_device: Duration,
    /// Signals, stores.
    pub conduct: &'a Conduct,
    cap: Option<Cap>,
}

/// `--throttle`: bytes per second of all reads and writes.
struct Cap {
    rate: f64,
    /// When the bytes so far are paid for.
    due: Mutex<Instant>,
}

impl<'a> Pace<'a> {
    /// Rounds of `length`; `throttle` in bytes per second.
    pub fn new(length: Duration, throttle: Option<u64>, conduct: &'a Conduct) -> Self {
        let cap = throttle.map(|rate| Cap { rate: rate.max(1) as f64, due: Mutex::new(Instant::now()) });
        Self { length, on_device: length, conduct, cap }
    }

    /// Bytes that may pass in that time; `None` without a cap.
    pub fn allows(&self, time: Duration) -> Option<u64> {
        self.cap.as_ref().map(|cap| (cap.rate * time.as_secs_f64()) as u64)
    }

    /// Waits until `bytes` may pass; false if that is not before `until`, or the round is over.
    pub fn admits(&self, bytes: u64, until: Instant) -> Result<bool> {
        self.conduct.check()?;
        let Some(cap) = &self.cap else { return Ok(Instant::now() < until) };
        let turn = {
            let mut due = cap.due.lock().unwrap_or_else(PoisonError::into_inner);
            // Pay before the bytes pass: so even a short round is not faster than the cap.
            let turn = (*due).max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / cap.rate);
            if turn >= until {
                return Ok(false);
            }
            *due = turn;
            turn
        };
        loop {
            let left = turn.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            std::thread::sleep(left.min(NAP));
            self.conduct.check()?;
        }
    }
}

/// Processor seconds of this thread; 0 if the kernel does not show them.
pub(super) fn thread_seconds() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    statistics.split(' ').next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).map_or(0.0, |time| time / 1e9)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_lets_through_no_more_than_its_rate_and_refuses_what_would_end_too_late() {
        let conduct = Conduct::default();
        let pace = Pace::new(Duration::from_millis(100), Some(1000), &conduct);
        let begun = Instant::now();
        assert!(!pace.admits(2000, begun + Duration::from_secs(1)).unwrap(), "two seconds do not fit into one");
        assert!(pace.admits(50, begun + Duration::from_secs(60)).unwrap());
        assert!(begun.elapsed() >= Duration::from_millis(50));
    }
}
