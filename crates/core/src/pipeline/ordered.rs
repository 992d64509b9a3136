//! Ordered streams of a backup: each extent gets its number, and the source gives a stream without gaps.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::media::{Flaw, Manifest, Run, broken};
use crate::order::OrderWindow;

/// The ordered streams of a set that is written.
pub(super) struct Ordered {
    window: OrderWindow<(u32, Run)>,
    /// The position in each stream.
    ends: Mutex<HashMap<u32, u64>>,
}

impl Ordered {
    /// With the window of the set, in blocks. It is at least one, so that a source with an ordered stream in a set
    /// without a window is refused and does not wait.
    pub fn new(window: u32) -> Self {
        Self { window: OrderWindow::new(window.max(1)), ends: Mutex::default() }
    }

    /// The number of the next extent, once it may go to the workers.
    ///
    /// # Errors
    /// The end of the job.
    pub fn enter(&self, halt: &Halt) -> Result<u32> {
        self.window.enter(halt)
    }

    /// An extent is in a family.
    ///
    /// # Errors
    /// The source left out bytes of a stream, or gave them twice.
    pub fn placed(&self, number: u32, stream: u32, run: Run) -> Result<()> {
        let placed = self.window.done(number, (stream, run), |(stream, run)| self.follow(stream, run));
        placed.map_err(|flaw| defect(flaw.to_string()))
    }

    fn follow(&self, stream: u32, run: Run) -> Result<(), Flaw> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let end = ends.entry(stream).or_default();
        if run.offset != *end {
            return Err(broken(format!("gave byte {} of ordered stream {stream} after byte {end}", run.offset)));
        }
        *end = run.end();
        Ok(())
    }

    /// Checks that each ordered stream was given to its end.
    ///
    /// # Errors
    /// Names a stream that was not.
    pub fn check(&self, manifest: &Manifest) -> Result<()> {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let end = |id| ends.get(&id).copied().unwrap_or(0);
        match manifest.streams.iter().find(|stream| stream.ordered && end(stream.id) != stream.size) {
            None => Ok(()),
            Some(stream) => {
                let (id, size) = (stream.id, stream.size);
                Err(defect(format!("gave {} of the {size} bytes of ordered stream {id}", end(id))))
            }
        }
    }
}

fn defect(why: String) -> Error {
    Error::refused("source", why, "this is a defect of the engine: please report it")
}
