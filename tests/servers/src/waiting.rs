//! Waiting in tests, never for ever: a test that fails has to say so, and not to stand still.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The most that anything in a test may take to begin.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often is looked.
const TICK: Duration = Duration::from_millis(5);

/// Waits until `is_so`.
///
/// # Panics
/// If it is not so after two minutes; `what` says what was waited for.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "waited {} s in vain until {what}", PATIENCE.as_secs());
        sleep(TICK);
    }
}

/// Sets the flag that others of a test look at when it is dropped: at its end, and also when the test fails before. Without
/// it a `thread::scope` whose test fails waits for its writers for ever, and nobody reads what failed.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
