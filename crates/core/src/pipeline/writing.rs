//! The frame of every set that is written, from any source of blocks: a writer for each family, a monitor, and the
//! commit at the end.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};

use super::stripe::{self, DeviceWork};
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::meter::{Account, Accounts, Progress};
use crate::sink::Sink;
use crate::threads;

/// How often the monitor looks at signals and at the source.
const TICK: Duration = Duration::from_millis(100);

/// What a user needs to know when only the removal of the old set has failed.
const KEPT: &str = "the new set is complete under its names; the rest of the old set has names with .old-";

/// What writing a set needs besides its bytes.
pub(super) struct Writing<'a> {
    /// Replace the sets under the sinks' names: all families are whole before any gets its name.
    pub init: bool,
    /// Counters for a display.
    pub progress: &'a Progress,
    /// Ends the job early.
    pub halt: &'a Halt,
    /// Called every 100 ms: an error ends the job.
    pub watch: &'a (dyn Fn() -> Result<()> + Sync),
    /// Called once, when everything is durable and only the commit record has no name yet: an error takes everything
    /// back.
    pub permit: &'a (dyn Fn() -> Result<()> + Sync),
}

/// The queues of the writers: one for each family.
pub(super) trait Ways: Sync {
    /// Returns when everything that was sent to a family's device so far is durable.
    fn secure(&self, family: u16) -> Result<()>;
    /// Lets the writer of one family end.
    fn close_family(&self, family: u16);
    /// Lets all writers end: nothing more is sent.
    fn close(&self);
}

/// Lets the writers end on every path, also after a panic: else they would wait for ever, and the job with them.
struct Ending<'a> {
    ways: &'a dyn Ways,
    halt: &'a Halt,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.halt.stop(Error::Halted);
        }
        self.ways.close();
    }
}

type WriterHandle<'scope> = ScopedJoinHandle<'scope, Result<&'scope mut dyn Sink>>;

/// The stage that the writers are.
pub(super) const SINK: usize = 2;

/// The last steps of a set whose families have everything but their footers.
pub(super) struct Commit<'s, 'a> {
    writing: &'a Writing<'a>,
    ways: &'a dyn Ways,
    writers: Vec<WriterHandle<'s>>,
    accounts: &'a Accounts,
    /// Every device is a store: each request takes its time, and an object is invisible before it is published.
    stores: bool,
    published: &'a mut bool,
}

impl Writing<'_> {
    /// Runs `fill`, which sends bytes to the writers and commits at the end. After an error nothing of the new set is
    /// left, and the sets to be replaced are under their names. Exception: when only the removal of the old set failed
    /// (`--init`), the new set stays, and the error says so.
    pub fn run<T>(
        &self,
        sinks: &mut [Box<dyn Sink>],
        (listeners, loads): (Vec<Receiver<DeviceWork>>, &[Arc<AtomicU64>]),
        ways: &dyn Ways,
        accounts: &Accounts,
        fill: impl FnOnce(Commit<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        let mut published = false;
        let result = self.run_in(sinks, (listeners, loads), ways, accounts, &mut published, fill);
        if result.is_err() && !published {
            for sink in sinks {
                sink.abandon();
            }
        }
        result.map_err(|error| if published { error.noting(KEPT) } else { error })
    }

    fn run_in<T>(
        &self,
        sinks: &mut [Box<dyn Sink>],
        (listeners, loads): (Vec<Receiver<DeviceWork>>, &[Arc<AtomicU64>]),
        ways: &dyn Ways,
        accounts: &Accounts,
        published: &mut bool,
        fill: impl FnOnce(Commit<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        let stores = sinks.iter().all(|sink| !sink.leisure().is_zero());
        let done = thread::scope(|scope| {
            let (job, end_of_job) = bounded::<()>(0);
            let _ending = Ending { ways, halt: self.halt };
            let monitor = threads::start_in(scope, "monitor", move || self.monitor(&end_of_job));
            let writers = monitor.and_then(|_| {
                let sinks = sinks.iter_mut().zip(1_u16..).zip(listeners).zip(loads);
                let started = sinks.map(|(((sink, family), listener), load)| {
                    threads::start_in(scope, &format!("writer {family}"), move || {
                        self.write((&mut **sink, family), &listener, load, accounts)
                    })
                });
                started.collect::<Result<Vec<WriterHandle<'_>>>>()
            });
            let done =
                writers.and_then(|writers| fill(Commit { writing: self, ways, writers, accounts, stores, published }));
            if done.is_err() {
                // Wakes all waiting threads; an earlier error is kept.
                self.halt.stop(Error::Halted);
            }
            drop(job);
            done
        });
        match done {
            Err(Error::Halted) => Err(self.halt.finish().err().unwrap_or(Error::Halted)),
            done => done,
        }
    }

    /// Looks at signals and at the source until the job ends.
    fn monitor(&self, end_of_job: &Receiver<()>) {
        while let Err(crossbeam_channel::RecvTimeoutError::Timeout) = end_of_job.recv_timeout(TICK) {
            self.halt.watch((self.watch)());
        }
    }

    fn write<'s>(
        &self,
        (sink, family): (&'s mut dyn Sink, u16),
        listener: &Receiver<DeviceWork>,
        load: &AtomicU64,
        accounts: &Accounts,
    ) -> Result<&'s mut dyn Sink> {
        let mut account = Account::default();
        let written = stripe::write(sink, listener, load, self.progress, &mut account);
        accounts.add(SINK, family.into(), account);
        match written {
            Ok(()) => Ok(sink),
            Err(error) => {
                self.halt.stop(error);
                Err(Error::Halted)
            }
        }
    }
}

impl Commit<'_, '_> {
    /// Makes families 2…m durable and visible, then writes the commit record: the commit rule of ARCHITECTURE.md.
    /// `write_footer` sends the footer of a family, and nothing after it.
    pub fn run(mut self, mut write_footer: impl FnMut(u16) -> Result<()>) -> Result<()> {
        let (halt, families) = (self.writing.halt, self.writers.len() as u16);
        if families > 1 {
            // If a kill leaves another family finished, it leaves this one too, unfinished.
            self.ways.secure(1)?;
        }
        // The commit record of an object may be uploaded while the others are published: it counts when family 1 is
        // published itself.
        for family in (2..=families).chain(self.stores.then_some(1)) {
            write_footer(family)?;
            self.ways.close_family(family);
        }
        let mut others = self.writers.split_off(1).into_iter().map(join).collect::<Result<Vec<_>>>()?;
        halt.check()?;
        if !self.writing.init {
            self.each(&mut others, |sink| sink.publish())?;
        }
        halt.check()?;
        if !self.stores {
            write_footer(1)?;
            self.ways.close_family(1);
        }
        drop(write_footer);
        let first = std::mem::take(&mut self.writers).into_iter().map(join).collect::<Result<Vec<_>>>()?;
        (self.writing.permit)()?;
        let begun = Instant::now();
        let named = self.publish_last(others, first);
        self.accounts.add_publishing(begun.elapsed());
        named
    }

    /// The last names: that of family 1, with `--init` those of all. Until family 1 has its name a failure takes
    /// everything back.
    fn publish_last<'k>(&mut self, mut others: Vec<&'k mut dyn Sink>, mut first: Vec<&'k mut dyn Sink>) -> Result<()> {
        if !self.writing.init {
            return first.iter_mut().try_for_each(|sink| sink.publish());
        }
        self.each(&mut others, |sink| sink.publish())?;
        first.iter_mut().try_for_each(|sink| sink.publish())?;
        *self.published = true;
        others.append(&mut first);
        self.each(&mut others, |sink| sink.retire())
    }

    /// Does one step of the commit with each family: one after the other where that is quick, side by side in stores.
    fn each(&self, sinks: &mut [&mut dyn Sink], step: impl Fn(&mut dyn Sink) -> Result<()> + Sync) -> Result<()> {
        if !self.stores {
            return sinks.iter_mut().try_for_each(|sink| step(*sink));
        }
        threads::side_by_side("publisher", sinks, |_, sink| step(*sink)).map(drop)
    }
}

/// The result of a thread; a panic there continues here.
fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
