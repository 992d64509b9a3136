//! The pipeline of a backup: source readers → transform workers → stripe writers, and the commit at its end.

#[cfg(test)]
mod copies;
mod finish;
mod layers;
#[cfg(test)]
mod open_sets;
mod ordered;
#[cfg(test)]
mod ordered_sets;
mod page_map;
mod read;
mod remake;
#[cfg(test)]
mod reported;
mod seal;
mod stripe;
mod tee;
mod transform;
mod turns;
mod verbatim;
mod writing;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::bounded;

pub use page_map::map_window;
pub use remake::{Remade, Remake};
pub use tee::throttle;
pub use verbatim::{Copied, Verbatim};

use crate::checksum::UnitHasher;
use crate::cipher::DataKey;
use crate::codec::{Compression, Encoder};
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::map_scratch::MapScratch;
use crate::media::{Manifest, SetHeader, SetKind};
use crate::meter::{Accounts, Clock, Progress, Stage};
use crate::plan::Plan;
use crate::pool::Pool;
use crate::sink::{DeviceAccount, Sink};
use crate::source::Source;
use crate::threads;
use crate::unpack::BaseMap;
use finish::{Closed, Finisher};
use layers::Layers;
use ordered::Ordered;
use page_map::PageMap;
use read::{Reading, Throttle};
use stripe::{Board, Hand};
use transform::{Filled, Gathered, Selection, Worker};
use writing::{Commit, Writing};

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
    /// Replace the sets under the sinks' names: all families are whole before any gets its name.
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
    /// Called once, when everything is durable and only the commit record has no name yet: an error takes everything
    /// back.
    pub permit: &'a (dyn Fn() -> Result<()> + Sync),
}

/// The result for one family.
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
    /// The other places that it was written to, and what those devices did.
    pub mirrors: Vec<(String, DeviceAccount)>,
}

/// The result of a backup.
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
    /// How long it took to give the last families their names, after all bytes were on their devices.
    pub publishing: Duration,
}

const SOURCE: usize = 0;
const TRANSFORM: usize = 1;
/// The stages of a backup.
const STAGES: [&str; 3] = ["source", "transform", "sink"];
/// The first stage of a copy.
const MEDIA: usize = 0;
/// The stages of a copy: the first two are those of an unpacking, the last is that of a backup.
const COPY_STAGES: [&str; 3] = ["media", "transform", "sink"];

impl Backup<'_> {
    /// Runs the backup into `sinks`, one family each. After an error nothing of the new set is left, and the sets to be
    /// replaced are under their names. Exception: when only the removal of the old set failed (`--init`), the new set
    /// stays, and the error says so.
    pub fn run(&self, mut sinks: Vec<Box<dyn Sink>>) -> Result<BackupOutcome> {
        self.check_changes()?;
        let input = Pool::new(self.plan.input_buffers, self.plan.transfer_size as usize)?;
        let output = Pool::new(self.plan.output_buffers, self.plan.transfer_size as usize)?;
        for pool in [&input, &output] {
            let pool = Arc::clone(pool);
            self.halt.on_stop(move || pool.close());
        }
        let (board, listeners, loads) =
            Board::of_set(self.set, self.compression == Compression::None, &sinks, &output)?;
        let accounts = Accounts::new(STAGES);
        self.progress.enter(STAGES, &[&input, &output]);
        let mapped = self.set.open && self.map_seed.is_some();
        let scratch = mapped.then(MapScratch::new).transpose()?;
        let ordered = Ordered::new(self.set.window);
        let watch = || (self.tick)().and_then(|()| self.source.check());
        let (init, progress, halt, permit) = (self.init, self.progress, self.halt, self.permit);
        let writing = Writing { init, progress, halt, watch: &watch, permit };
        let closed = writing.run(&mut sinks, (listeners, &loads), &board, &accounts, |commit| {
            let highest = self.move_bytes(&board, scratch.as_ref(), &ordered, (&input, &output), &accounts)?;
            let scratch = scratch.as_ref().map(|scratch| (scratch, highest));
            self.commit(&board, scratch, &ordered, commit)
        })?;
        Ok(outcome(&sinks, &closed, &accounts))
    }

    /// A source that reports changes fits only a differential without a page map.
    fn check_changes(&self) -> Result<()> {
        let reported = self.source.reported_bytes().is_some();
        if !reported || self.set.kind == SetKind::Differential && self.base.is_none() {
            return Ok(());
        }
        let why = "reported changes, but this backup is not a differential by reported changes";
        Err(Error::refused("source", why, "this is a defect of the engine: please report it"))
    }

    /// Reads and transforms everything; returns when all readers and workers have ended, with the highest layer there
    /// was.
    fn move_bytes(
        &self,
        board: &Board,
        scratch: Option<&MapScratch>,
        ordered: &Ordered,
        (input, output): (&Arc<Pool>, &Arc<Pool>),
        accounts: &Accounts,
    ) -> Result<u16> {
        let (page_map, layers) = (PageMap::new(), Layers::default());
        let throttle = self.plan.throttle.map(Throttle::new);
        let workers = (0..self.plan.workers)
            .map(|_| self.worker(board, &page_map, scratch, (&layers, ordered), output))
            .collect::<Result<Vec<_>>>()?;
        let (to_workers, filled) = bounded::<Filled>(self.plan.input_buffers);
        thread::scope(|scope| {
            let (throttle, layers, halt) = (throttle.as_ref(), &layers, self.halt);
            let start = move || {
                for index in 0..self.plan.readers {
                    let (share, filled) = ((index, self.plan.readers), to_workers.clone());
                    let (source, pool) = (self.source, input);
                    let reading = Reading { source, share, pool, filled, throttle, layers, ordered, halt };
                    let read = move || {
                        let mut clock = Clock::shown_in(&self.progress.stages[SOURCE]);
                        self.halt.watch(reading.run(&mut clock));
                        drop(reading);
                        accounts.add(SOURCE, index, clock.account());
                    };
                    threads::start_in(scope, &format!("reader {}", index + 1), read)?;
                }
                for (mut worker, number) in workers.into_iter().zip(1..) {
                    let filled = filled.clone();
                    let work = move || {
                        let worked = worker.run(&filled);
                        self.halt.watch(worked);
                        accounts.add(TRANSFORM, number, worker.clock.account());
                    };
                    threads::start_in(scope, &format!("worker {number}"), work)?;
                }
                Ok(())
            };
            // Then its ends of the channel are gone, and the started threads see the other side end.
            self.halt.watch(start());
        });
        self.halt.check()?;
        // The sum too: the map knows nothing of a window that never came, or when there is no map.
        let reported = self.source.reported_bytes();
        let announced = reported.unwrap_or_else(|| self.set.streams.iter().map(|stream| stream.size).sum());
        let counts = reported.is_some() || !self.set.open;
        if page_map.is_complete() && (!counts || accounts.bytes(SOURCE) == announced) {
            return Ok(layers.highest());
        }
        Err(Error::refused(
            "source",
            "did not give each byte that it announced exactly once",
            "this is a defect of the engine: please report it",
        ))
    }

    fn worker<'b>(
        &'b self,
        board: &'b Board,
        page_map: &'b PageMap,
        scratch: Option<&'b MapScratch>,
        (layers, ordered): (&'b Layers, &'b Ordered),
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
            ordered,
            selection,
            encoder: Encoder::new(self.compression)?,
            hand: Hand::new(self.data_key),
            scratch: output.take()?,
            gathered,
            clock: Clock::shown_in(&self.progress.stages[TRANSFORM]),
            progress: self.progress,
            runs: Vec::new(),
            entries: Vec::new(),
            owed: 0,
        })
    }

    /// Finishes every family, and commits.
    fn commit(
        &self,
        board: &Board,
        scratch: Option<(&MapScratch, u16)>,
        ordered: &Ordered,
        commit: Commit<'_, '_>,
    ) -> Result<Vec<Closed>> {
        let manifest = (self.manifest)()?;
        ordered.check(&manifest)?;
        let mut finisher = Finisher::new(board, self.set, self.data_key);
        match (scratch, self.base) {
            (Some((scratch, _)), None) => finisher.seal_map(scratch, &manifest, self.halt)?,
            (Some((came, highest)), Some(base)) => {
                finisher.zero_what_did_not_come(came, base, &manifest, highest, self.halt)?
            }
            (None, _) => {}
        }
        finisher.finish(&manifest, commit)
    }
}

/// The results of committed families.
fn outcome(sinks: &[Box<dyn Sink>], closed: &[Closed], accounts: &Accounts) -> BackupOutcome {
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
                mirrors: sink.mirrors().into_iter().map(|(device, account)| (device.to_owned(), account)).collect(),
            })
            .collect(),
        source_bytes: stages[SOURCE].account.bytes,
        data_bytes: closed.iter().map(|family| family.data_bytes).sum(),
        zero_bytes: closed.iter().map(|family| family.zero_bytes).sum(),
        stored_bytes: closed.iter().map(|family| family.length).sum(),
        publishing: accounts.publishing(),
        stages,
    }
}
