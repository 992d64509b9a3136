//! Layers of a backup: a layer begins when every block of the layer before it is in a stripe.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::halt::Halt;

/// How often a reader that waits looks whether the job has ended.
const TICK: Duration = Duration::from_millis(100);

/// The layer under way, and how much of it is not in a stripe yet.
#[derive(Default)]
pub(super) struct Layers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    layer: u16,
    /// Extents that were handed on and are not in a stripe yet.
    in_flight: usize,
    /// Readers that wait for the end of the layer.
    waiting: usize,
}

impl Layers {
    /// Admits an extent of `layer`; for a higher layer than before, it waits until everything below is in a stripe.
    ///
    /// # Errors
    /// The source goes back to a lower layer, or the job ends meanwhile.
    pub fn enter(&self, layer: u16, halt: &Halt) -> Result<()> {
        let mut state = self.lock();
        loop {
            if layer < state.layer {
                return Err(Error::refused(
                    "source",
                    format!("gave bytes of layer {layer} after layer {}", state.layer),
                    "this is a defect of the engine: please report it",
                ));
            }
            if layer == state.layer || state.in_flight == 0 {
                state.layer = layer;
                state.in_flight += 1;
                return Ok(());
            }
            state.waiting += 1;
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
            halt.check()?;
        }
    }

    /// True while a reader waits for the end of the layer.
    pub fn is_awaited(&self) -> bool {
        self.lock().waiting > 0
    }

    /// The highest layer so far.
    pub fn highest(&self) -> u16 {
        self.lock().layer
    }

    /// An extent is in a stripe.
    pub fn leave(&self) {
        let mut state = self.lock();
        state.in_flight -= 1;
        if state.in_flight == 0 {
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_layer_waits_until_everything_below_has_its_place() {
        let (layers, halt, below) = (Layers::default(), Halt::new(), AtomicBool::new(false));
        layers.enter(1, &halt).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                layers.enter(2, &halt).unwrap();
                assert!(below.load(Ordering::SeqCst), "the layer below was not done");
            });
            while !layers.is_awaited() {
                std::thread::yield_now();
            }
            below.store(true, Ordering::SeqCst);
            layers.leave();
        });
        assert!(layers.enter(1, &halt).is_err(), "no way back");
    }

    #[test]
    fn a_reader_that_waits_ends_with_the_job() {
        let (layers, halt) = (Layers::default(), Halt::new());
        layers.enter(0, &halt).unwrap();
        halt.stop(Error::Halted);
        assert!(layers.enter(1, &halt).is_err());
    }
}
