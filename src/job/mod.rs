//! Jobs: the work of commands, callable from anywhere. A job prints nothing: it fills a report and counters.

pub mod backup;
pub mod copy;
pub mod estimate;
pub mod inspect;
pub mod keys;
pub mod limit;
pub mod log;
pub mod media;
pub mod reading;
pub mod repository;
pub mod restore;
pub mod verify;

mod space;
mod exclusive;
pub(crate) mod memory;
mod names;
mod recover;
mod samples;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use fullbore_core::emulated::Volumes;
use fullbore_core::halt::Halt;
use fullbore_core::meter::Progress;
use fullbore_core::pool::Pool;
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result, threads};

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

/// The signals and the progress of a job.
#[derive(Clone, Default)]
pub struct Conduct {
    /// The number of the signal that came; 0: none.
    pub signal: Arc<AtomicUsize>,
    /// Bytes done and to do.
    pub progress: Arc<Progress>,
    /// Access to object stores.
    pub stores: Stores,
    /// Emulated volumes, for benchmarks (`docs/BENCH.md`); nearly always `None`.
    pub volumes: Option<Arc<Volumes>>,
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
    fn halt(&self) -> Halt {
        let (halt, stores) = (Halt::new(), self.stores.clone());
        halt.on_stop(move || stores.stop());
        halt
    }

    /// Does `work`, which checks `halt`; a signal sets `halt`.
    fn until_signalled<T>(&self, halt: &Halt, work: impl FnOnce() -> Result<T>) -> Result<T> {
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
    fn why_halted(&self, error: Error) -> Error {
        match (error, self.check()) {
            (Error::Halted, Err(cancelled)) => cancelled,
            (error, _) => error,
        }
    }

    /// Closes `pool` on a signal, so that no thread waits for data that may never come. Watches until the pool is
    /// dropped.
    fn close_on_signal(&self, pool: &Arc<Pool>) -> Result<()> {
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

/// The name of this machine.
pub fn host() -> String {
    let said = std::env::var("FULLBORE_HOST").ok().filter(|name| !name.is_empty());
    said.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

/// The resources that this process has used.
pub struct Usage {
    /// Greatest resident set.
    pub peak_rss_bytes: u64,
    /// User and system time.
    pub cpu_s: f64,
}

/// The resources that this process has used so far; zeros if /proc does not say.
pub fn process_usage() -> Usage {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).and_then(|rest| rest.trim().strip_suffix("kB"));
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // utime and stime are fields 14 and 15; the name in field 2 may contain anything, so count after its parenthesis.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Usage {
        peak_rss_bytes: peak.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) << 10,
        cpu_s: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
    }
}

/// Resident bytes of the process now; 0 if the system does not say.
pub fn resident_bytes() -> u64 {
    let said = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = said.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
