//! The pipeline of a backup: source readers → transform workers → stripe writers, and the commit at its end.

mod finish;
mod layers;
#[cfg(test)]
mod open_sets;
mod page_map;
mod read;
mod seal;
mod stripe;
mod transform;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded, unbounded};

pub use page_map::map_window;

use crate::checksum::UnitHasher;
use crate::cipher::{DataKey, Sealer};
use crate::codec::{Compression, Encoder};
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::map_scratch::MapScratch;
use crate::media::{FamilyHeader, Manifest, SetHeader};
use crate::meter::{Account, Clock, Progress, Stage};
use crate::plan::Plan;
use crate::pool::Pool;
use crate::sink::{DeviceAccount, Sink};
use crate::source::Source;
use crate::threads;
use crate::unpack::BaseMap;
use finish::{Closed, Finisher};
use layers::Layers;
use page_map::PageMap;
use read::{Reading, Throttle};
use stripe::{Board, BoardSettings, DeviceWork, Hand};
use transform::{Filled, Gathered, Selection, Worker};

/// How often the monitor looks at signals and at the source.
const TICK: Duration = Duration::from_millis(100);

/// What a user needs to know when only the removal of the old set has failed.
const KEPT: &str =
    "the new set is whole under its names all the same; what is left of the one it replaced has names with .old-";

/// A backup that is about to run.
pub struct Backup<'a> {
    /// Threads and buffers.
    pub plan: &'a Plan,
    /// Identity and geometry of the set; its stream table is what is stored.
    pub set: &'a SetHeader,
    /// How blocks are packed.
    pub compression: Compression,
    /// The data key, when the set has a cipher.
    pub data_key: Option<&'a DataKey>,
    /// Seed of the page map that a full stores or that a differential compares with; `None`: no page map.
    pub map_seed: Option<u64>,
    /// The map of the full, for a differential; the streams of an open source are found in it by their identities.
    pub base: Option<&'a BaseMap>,
    /// Replace the sets that stand under the sinks' names: all families are whole before any gets its name.
    pub init: bool,
    /// What is read.
    pub source: &'a dyn Source,
    /// Counters for a display.
    pub progress: &'a Progress,
    /// Ends the job early.
    pub halt: &'a Halt,
    /// Called every 100 ms: an error ends the job (a signal).
    pub tick: &'a (dyn Fn() -> Result<()> + Sync),
    /// Called once, after the last byte of the source was read.
    pub manifest: &'a (dyn Fn() -> Result<Manifest> + Sync),
    /// Called once, when everything is durable and only the commit record has no name yet: an error takes everything back.
    pub permit: &'a (dyn Fn() -> Result<()> + Sync),
}

/// What one family has become.
#[derive(Debug, Clone)]
pub struct FamilyOutcome {
    /// As the user named it.
    pub device: String,
    /// Bytes in the family.
    pub bytes: u64,
    /// Its BLAKE3 digest.
    pub digest: [u8; 32],
    /// What its device did.
    pub account: DeviceAccount,
}

/// What a backup did.
#[derive(Debug, Clone)]
pub struct BackupOutcome {
    /// The families, first to last.
    pub families: Vec<FamilyOutcome>,
    /// Source, transform, sink.
    pub stages: Vec<Stage>,
    /// Bytes read from the source.
    pub source_bytes: u64,
    /// Plain bytes stored.
    pub data_bytes: u64,
    /// Bytes that were zero or free.
    pub zero_bytes: u64,
    /// Bytes of all families.
    pub stored_bytes: u64,
}

/// Lets the writers end on every path: they would wait for ever, and the job with them, also behind a panic.
struct Ending<'a> {
    board: &'a Board,
    halt: &'a Halt,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.halt.stop(Error::Halted);
        }
        self.board.close();
    }
}

type WriterHandle<'scope> = ScopedJoinHandle<'scope, Result<&'scope mut dyn Sink>>;

/// The accounts of source, transform and sink, each summed over its threads.
#[derive(Default)]
struct Accounts(Mutex<[Account; 3]>);

const SOURCE: usize = 0;
const TRANSFORM: usize = 1;
const SINK: usize = 2;

impl Accounts {
    fn add(&self, stage: usize, account: Account) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[stage].add(account);
    }

    fn bytes(&self, stage: usize) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[stage].bytes
    }

    fn stages(&self) -> Vec<Stage> {
        let accounts = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ["source", "transform", "sink"]
            .into_iter()
            .zip(accounts)
            .map(|(name, account)| Stage { name, account })
            .collect()
    }
}

impl Backup<'_> {
    /// Runs the backup into `sinks`, one family each. On an error nothing of the new set is left behind, and what it
    /// should have replaced stands under its names; except that a set which has all its names stays when only the
    /// removal of the old one failed (`--init`), and the error says so.
    pub fn run(&self, mut sinks: Vec<Box<dyn Sink>>) -> Result<BackupOutcome> {
        let mut published = false;
        let result = self.run_in(&mut sinks, &mut published);
        if result.is_err() && !published {
            for sink in &mut sinks {
                sink.abandon();
            }
        }
        result.map_err(|error| if published { error.noting(KEPT) } else { error })
    }

    fn run_in(&self, sinks: &mut [Box<dyn Sink>], published: &mut bool) -> Result<BackupOutcome> {
        let input = Pool::new(self.plan.input_buffers, self.plan.transfer_size as usize)?;
        let output = Pool::new(self.plan.output_buffers, self.plan.transfer_size as usize)?;
        for pool in [&input, &output] {
            let pool = Arc::clone(pool);
            self.halt.on_stop(move || pool.close());
        }
        let (queues, listeners): (Vec<_>, Vec<_>) = sinks.iter().map(|_| unbounded()).unzip();
        let loads: Vec<_> = sinks.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
        let headers: Vec<_> =
            (1..=self.set.families).map(|family| FamilyHeader { set: self.set.clone(), family }.encode()).collect();
        let board = Board::new(&self.board_settings(), &headers, queues, &loads, &output)?;
        let accounts = Accounts::default();
        let mapped = self.set.open && self.map_seed.is_some();
        let scratch = mapped.then(MapScratch::new).transpose()?;
        let closed = thread::scope(|scope| {
            let (job, end_of_job) = bounded::<()>(0);
            let _ending = Ending { board: &board, halt: self.halt };
            let monitor = threads::start_in(scope, "monitor", move || self.monitor(&end_of_job));
            let writers = monitor.and_then(|_| {
                let sinks = sinks.iter_mut().zip(1_u16..).zip(listeners).zip(&loads);
                let started = sinks.map(|(((sink, family), listener), load)| {
                    let accounts = &accounts;
                    threads::start_in(scope, &format!("writer {family}"), move || {
                        self.write(&mut **sink, &listener, load, accounts)
                    })
                });
                started.collect::<Result<Vec<WriterHandle<'_>>>>()
            });
            let closed = writers.and_then(|writers| {
                let highest = self.move_bytes(&board, scratch.as_ref(), (&input, &output), &accounts)?;
                let scratch = scratch.as_ref().map(|scratch| (scratch, highest));
                self.commit(&board, scratch, writers, published)
            });
            if closed.is_err() {
                // Wakes whoever still waits; an error that came first is the one that is kept.
                self.halt.stop(Error::Halted);
            }
            drop(job);
            closed
        });
        let closed = match closed {
            Ok(closed) => closed,
            Err(Error::Halted) => return Err(self.halt.finish().err().unwrap_or(Error::Halted)),
            Err(error) => return Err(error),
        };
        Ok(self.outcome(sinks, &closed, &accounts))
    }

    fn board_settings(&self) -> BoardSettings {
        BoardSettings {
            set_tag: self.set.media_set_id.as_bytes().first_chunk().copied().unwrap_or_default(),
            cipher: self.set.cipher.number(),
            block_size: self.set.block_size,
            transfer_size: self.set.transfer_size,
            aligned: self.compression == Compression::None,
        }
    }

    /// Looks at signals and at the source until the job ends.
    fn monitor(&self, end_of_job: &Receiver<()>) {
        while let Err(crossbeam_channel::RecvTimeoutError::Timeout) = end_of_job.recv_timeout(TICK) {
            self.halt.watch((self.tick)().and_then(|()| self.source.check()));
        }
    }

    fn write<'s>(
        &self,
        sink: &'s mut dyn Sink,
        listener: &Receiver<DeviceWork>,
        load: &AtomicU64,
        accounts: &Accounts,
    ) -> Result<&'s mut dyn Sink> {
        let mut account = Account::default();
        let written = stripe::write(sink, listener, load, self.progress, &mut account);
        accounts.add(SINK, account);
        match written {
            Ok(()) => Ok(sink),
            Err(error) => {
                self.halt.stop(error);
                Err(Error::Halted)
            }
        }
    }

    /// Reads and transforms everything; returns when all readers and workers have ended, with the highest layer there was.
    fn move_bytes(
        &self,
        board: &Board,
        scratch: Option<&MapScratch>,
        (input, output): (&Arc<Pool>, &Arc<Pool>),
        accounts: &Accounts,
    ) -> Result<u16> {
        let (page_map, layers) = (PageMap::new(), Layers::default());
        let throttle = self.plan.throttle.map(Throttle::new);
        let workers = (0..self.plan.workers)
            .map(|_| self.worker(board, &page_map, scratch, &layers, output))
            .collect::<Result<Vec<_>>>()?;
        let (to_workers, filled) = bounded::<Filled>(self.plan.input_buffers);
        thread::scope(|scope| {
            let (throttle, layers) = (throttle.as_ref(), &layers);
            let start = move || {
                for index in 0..self.plan.readers {
                    let (share, filled) = ((index, self.plan.readers), to_workers.clone());
                    let reading =
                        Reading { source: self.source, share, pool: input, filled, throttle, layers, halt: self.halt };
                    let read = move || {
                        let mut clock = Clock::new();
                        self.halt.watch(reading.run(&mut clock));
                        drop(reading);
                        accounts.add(SOURCE, clock.account());
                    };
                    threads::start_in(scope, &format!("reader {}", index + 1), read)?;
                }
                for (mut worker, number) in workers.into_iter().zip(1..) {
                    let filled = filled.clone();
                    let work = move || {
                        let worked = worker.run(&filled);
                        self.halt.watch(worked);
                        accounts.add(TRANSFORM, worker.clock.account());
                    };
                    threads::start_in(scope, &format!("worker {number}"), work)?;
                }
                Ok(())
            };
            // Its ends of the channel are gone then, so that those which were started see the other side end.
            self.halt.watch(start());
        });
        self.halt.check()?;
        // The sum as well: of a window of which nothing came at all, and without a map, the map knows nothing.
        let announced: u64 = self.set.streams.iter().map(|stream| stream.size).sum();
        if page_map.is_complete() && (self.set.open || accounts.bytes(SOURCE) == announced) {
            return Ok(layers.highest());
        }
        Err(Error::refused(
            "source",
            "did not give every byte that it announced, once each",
            "this is a defect of the engine: please report it",
        ))
    }

    fn worker<'b>(
        &'b self,
        board: &'b Board,
        page_map: &'b PageMap,
        scratch: Option<&'b MapScratch>,
        layers: &'b Layers,
        output: &Arc<Pool>,
    ) -> Result<Worker<'b>> {
        let selection = match (self.map_seed.map(UnitHasher::new), self.base, scratch) {
            (Some(hasher), Some(base), came) => Selection::Changed { base, hasher, came },
            (Some(hasher), None, Some(scratch)) => Selection::Open { scratch, hasher },
            (Some(hasher), None, None) => Selection::All { map: page_map, hasher },
            (None, _, _) => Selection::Unmapped,
        };
        let gathered = match selection {
            Selection::Changed { .. } => Some(Gathered::new(output.take()?)),
            Selection::All { .. } | Selection::Open { .. } | Selection::Unmapped => None,
        };
        Ok(Worker {
            board,
            source: self.source,
            streams: &self.set.streams,
            layers,
            selection,
            encoder: Encoder::new(self.compression)?,
            hand: self.hand(),
            scratch: output.take()?,
            gathered,
            clock: Clock::new(),
            progress: self.progress,
            runs: Vec::new(),
            entries: Vec::new(),
            owed: 0,
        })
    }

    fn hand(&self) -> Hand {
        Hand { sealer: self.data_key.map(Sealer::new), spare: None }
    }

    /// Finishes every family, makes families 2…m durable and visible, then writes the commit record.
    fn commit(
        &self,
        board: &Board,
        scratch: Option<(&MapScratch, u16)>,
        mut writers: Vec<WriterHandle<'_>>,
        published: &mut bool,
    ) -> Result<Vec<Closed>> {
        let manifest = (self.manifest)()?;
        let finished_at = jiff::Timestamp::now().as_microsecond();
        let mut finisher = Finisher {
            board,
            set: self.set,
            data_key: self.data_key,
            hand: self.hand(),
            clock: Clock::new(),
            finished_at,
        };
        match (scratch, self.base) {
            (Some((scratch, _)), None) => finisher.seal_map(scratch, &manifest, self.halt)?,
            (Some((came, highest)), Some(base)) => {
                finisher.zero_what_did_not_come(came, base, &manifest, highest, self.halt)?
            }
            (None, _) => {}
        }
        let families = 1..=self.set.families;
        let closed = families.clone().map(|family| finisher.close(family, &manifest)).collect::<Result<Vec<_>>>()?;
        if self.set.families > 1 {
            // Wherever another family is found finished after a kill, this one is found as well, unfinished.
            board.secure(1)?;
        }
        for family in families.skip(1) {
            finisher.write_footer(family, &closed)?;
            board.close_family(family);
        }
        let mut others = writers.split_off(1).into_iter().map(join).collect::<Result<Vec<_>>>()?;
        self.halt.check()?;
        if !self.init {
            publish_all(&mut others)?;
        }
        self.halt.check()?;
        finisher.write_footer(1, &closed)?;
        board.close_family(1);
        drop(finisher);
        let mut first = writers.into_iter().map(join).collect::<Result<Vec<_>>>()?;
        (self.permit)()?;
        if self.init {
            others.iter_mut().chain(&mut first).try_for_each(|sink| sink.publish())?;
            // Until here a failure takes everything back: the old set stands under its names as before.
            *published = true;
            others.iter_mut().chain(&mut first).try_for_each(|sink| sink.retire())?;
        } else {
            first.iter_mut().try_for_each(|sink| sink.publish())?;
        }
        Ok(closed)
    }

    fn outcome(&self, sinks: &[Box<dyn Sink>], closed: &[Closed], accounts: &Accounts) -> BackupOutcome {
        let stages = accounts.stages();
        BackupOutcome {
            families: sinks
                .iter()
                .zip(closed)
                .map(|(sink, closed)| FamilyOutcome {
                    device: sink.device().to_owned(),
                    bytes: closed.length,
                    digest: closed.digest,
                    account: sink.account(),
                })
                .collect(),
            source_bytes: stages[SOURCE].account.bytes,
            data_bytes: closed.iter().map(|family| family.data_bytes).sum(),
            zero_bytes: closed.iter().map(|family| family.zero_bytes).sum(),
            stored_bytes: closed.iter().map(|family| family.length).sum(),
            stages,
        }
    }
}

/// Publishes families in whatever order: one after the other where that is quick, side by side where each takes its store some time.
fn publish_all(sinks: &mut [&mut dyn Sink]) -> Result<()> {
    if sinks.iter().any(|sink| sink.leisure().is_zero()) {
        return sinks.iter_mut().try_for_each(|sink| sink.publish());
    }
    thread::scope(|scope| {
        let publishing: Vec<_> =
            sinks.iter_mut().map(|sink| threads::start_in(scope, "publisher", move || sink.publish())).collect();
        // All of them are waited for, also after an error: the first one counts.
        let published: Vec<Result<()>> = publishing.into_iter().map(|thread| join_publisher(thread?)).collect();
        published.into_iter().collect()
    })
}

fn join_publisher(thread: thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What a writer thread ended with; a panic there goes on here.
fn join<'s>(writer: WriterHandle<'s>) -> Result<&'s mut dyn Sink> {
    writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
