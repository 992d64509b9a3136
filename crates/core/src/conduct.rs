//! The signals and the progress of a job.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::halt::Halt;
use crate::meter::Progress;
use crate::pool::Pool;
use crate::sink::Sink;
use crate::source::Source;
use crate::store::Stores;
use crate::supply::Supply;
use crate::unpack::Target;
use crate::{Error, Result, threads};

/// The time between two checks for a signal while a job waits.
const TICK: Duration = Duration::from_millis(100);

/// The first number that is not a signal: such numbers mean other reasons to end.
const ASKED: usize = 1000;
const LEASE_LOST: usize = 1001;

/// Why a job ends without a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// `fullbore cancel`.
    Asked,
    /// It could not write to its repository for as long as its lease.
    LeaseLost,
}

fn lease_lost() -> Error {
    let why = "could not be written to for the time of a lease: other hosts may consider this run dead";
    Error::refused("the repository", why, "check that its disk or store is reachable, and run it again")
}

/// Volumes under the devices of a job, with a speed of their own. The caller of the job puts them there.
pub trait Volumes: Send + Sync {
    /// The same sink, on the volume that is under it.
    fn sink(&self, sink: Box<dyn Sink>, queue_depth: usize, halt: &Halt) -> Box<dyn Sink>;

    /// The same supply, on the volume that is under it.
    fn supply(&self, supply: Box<dyn Supply>, queue_depth: usize, halt: &Halt) -> Box<dyn Supply>;

    /// The source of a backup, on the volume of the database, if there is one.
    fn source<'a>(&self, source: &'a dyn Source, halt: &Halt) -> Option<Box<dyn Source + 'a>>;

    /// The target of a restore, on the volume of the database, if there is one.
    fn target<'a>(&self, target: &'a dyn Target, halt: &Halt) -> Option<Box<dyn Target + 'a>>;
}

/// The signals and the progress of a job.
#[derive(Clone, Default)]
pub struct Conduct {
    /// The number of the signal that came; 0: none.
    pub signal: Arc<AtomicUsize>,
    /// Bytes done and to do.
    pub progress: Arc<Progress>,
    /// Access to object stores.
    pub stores: Stores,
    /// The volumes under the devices; nearly always `None`.
    pub volumes: Option<Arc<dyn Volumes>>,
}

impl Conduct {
    /// An error once a signal has come.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn check(&self) -> Result<()> {
        match self.signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            ASKED => Err(Error::Cancelled { by: "fullbore cancel" }),
            LEASE_LOST => Err(lease_lost()),
            1 => Err(Error::Cancelled { by: "SIGHUP" }),
            15 => Err(Error::Cancelled { by: "SIGTERM" }),
            _ => Err(Error::Cancelled { by: "SIGINT" }),
        }
    }

    /// Ends the job for another reason than a signal; the first reason counts.
    pub fn end(&self, why: Ended) {
        let number = match why {
            Ended::Asked => ASKED,
            Ended::LeaseLost => LEASE_LOST,
        };
        let _ = self.signal.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The halt of a job, which also ends the requests to its stores.
    pub fn halt(&self) -> Halt {
        let (halt, stores) = (Halt::new(), self.stores.clone());
        halt.on_stop(move || stores.stop());
        halt
    }

    /// Does `work`, which checks `halt`; a signal sets `halt`.
    pub fn until_signalled<T>(&self, halt: &Halt, work: impl FnOnce() -> Result<T>) -> Result<T> {
        std::thread::scope(|scope| {
            let (working, ended) = channel::<()>();
            threads::start_in(scope, "signals", move || {
                while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TICK) {
                    halt.watch(self.check());
                }
            })?;
            let done = work().map_err(|error| self.why_halted(error));
            drop(working);
            done
        })
    }

    /// The signal as the error, if a part of the job only reports that it was halted.
    pub fn why_halted(&self, error: Error) -> Error {
        match (error, self.check()) {
            (Error::Halted, Err(cancelled)) => cancelled,
            (error, _) => error,
        }
    }

    /// Closes `pool` on a signal, so that no thread waits for data that may never come. Watches until the pool is
    /// dropped.
    pub fn close_on_signal(&self, pool: &Arc<Pool>) -> Result<()> {
        let (pool, conduct) = (Arc::downgrade(pool), self.clone());
        let watch = move || {
            while let Some(pool) = pool.upgrade() {
                if conduct.check().is_err() {
                    return pool.close();
                }
                drop(pool);
                std::thread::sleep(TICK);
            }
        };
        threads::start("signals", watch).map(drop)
    }
}
