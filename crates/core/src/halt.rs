//! How a job stops early: one place that every thread looks at, and that wakes waiting threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};

/// Shared by all threads of a job. The first failure wins; the others end with [`Error::Halted`].
#[derive(Clone, Default)]
pub struct Halt(Arc<Shared>);

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    first: Option<Error>,
    wake: Vec<Box<dyn Fn() + Send>>,
}

impl Halt {
    /// A job that runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// True once the job has to end.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// An error once the job has to end: for loops.
    pub fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::Halted) } else { Ok(()) }
    }

    /// Ends the job because of `error`. Later errors are dropped: they are consequences.
    pub fn stop(&self, error: Error) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.first.is_none() && !matches!(error, Error::Halted) {
            state.first = Some(error);
        }
        self.0.stopped.store(true, Ordering::Release);
        for wake in &state.wake {
            wake();
        }
    }

    /// Runs `wake` when the job is stopped (at once if it is already): for threads that block.
    pub fn on_stop(&self, wake: impl Fn() + Send + 'static) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_stopped() {
            wake();
        }
        state.wake.push(Box::new(wake));
    }

    /// Stops the job when `result` is an error.
    pub fn watch<T>(&self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.stop(error)).ok()
    }

    /// The first error, if the job was stopped.
    pub fn finish(&self) -> Result<()> {
        let first = self.0.state.lock().unwrap_or_else(PoisonError::into_inner).first.take();
        match first {
            Some(error) => Err(error),
            None => self.check(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_the_one_that_is_shown() {
        let halt = Halt::new();
        halt.stop(Error::Halted);
        halt.stop(Error::refused("a", "first", ""));
        halt.stop(Error::refused("b", "second", ""));
        assert!(halt.finish().unwrap_err().to_string().contains("first"));
    }

    #[test]
    fn those_who_wait_are_woken_even_when_they_come_late() {
        let halt = Halt::new();
        halt.stop(Error::Halted);
        let (tell, told) = std::sync::mpsc::channel();
        halt.on_stop(move || tell.send(()).expect("listener is alive"));
        assert!(told.try_recv().is_ok());
    }
}
