//! Unpacking a set: families are parsed side by side, workers check and unpack blocks, writers fill the target.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::block::{BlockOpener, Opened, Packed, Plain};
use super::family::{Family, damage};
use super::in_order::{Arrived, InOrder};
use super::layers::{Admitted, Layers, Member};
use super::parse::{Parsed, Parser, RawBlock};
use super::set::MediaSet;
use super::tally::{Tally, Unbooked};
use super::target::{CheckedBlock, JOINED, Target};
use crate::cipher::DataKey;
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::media::{
    BlockKind, Footer, Manifest, ManifestMap, ManifestStream, Run, RunKind, SetHeader, StreamRecord, total,
    unpack_manifest,
};
use crate::meter::{Account, Accounts, Clock, Progress, Spent, Stage};
use crate::plan::UnpackPlan;
use crate::pool::{self, Buffer, Piece, Pool};
use crate::sink::DeviceAccount;
use crate::threads;

const TICK: Duration = Duration::from_millis(100);

/// A restore or verification of one set that is about to run.
pub struct Unpack<'a> {
    /// Threads and buffers.
    pub plan: &'a UnpackPlan,
    /// Where the bytes go.
    pub target: &'a dyn Target,
    /// Counters for a display.
    pub progress: &'a Progress,
    /// Ends the job early.
    pub halt: &'a Halt,
    /// Called every 100 ms: an error ends the job.
    pub tick: &'a (dyn Fn() -> Result<()> + Sync),
    /// The pool that the supplies read into: families' chunks and assembled blocks.
    pub input: &'a Arc<Pool>,
}

/// The result of an unpacking.
#[derive(Debug, Clone)]
pub struct UnpackOutcome {
    /// The manifest, read in full.
    pub manifest: Manifest,
    /// The footer of each family, first to last.
    pub footers: Vec<Footer>,
    /// media, transform, target.
    pub stages: Vec<Stage>,
    /// What each family's device did.
    pub devices: Vec<(String, DeviceAccount)>,
    /// Plain bytes unpacked.
    pub data_bytes: u64,
    /// Bytes that are zero.
    pub zero_bytes: u64,
    /// Bytes of all families.
    pub stored_bytes: u64,
}

/// A block for the workers.
pub(super) struct Work {
    device: String,
    block: RawBlock,
    admitted: Option<Arc<Admitted>>,
}

/// True if one write may take this run together with the runs beside it.
fn can_be_joined(run: &Run) -> bool {
    run.kind == RunKind::Data || run.kind == RunKind::Zero && run.length <= JOINED
}

/// Bytes for the target.
enum Write {
    /// Runs of a stream without a gap between them, and the bytes of their DATA runs.
    Runs {
        stream: u32,
        runs: Vec<Run>,
        piece: Piece,
        /// Until it is dropped, no higher layer begins.
        _admitted: Option<Arc<Admitted>>,
    },
    /// All bytes of an ordered stream that are ready.
    Ordered(u32),
}

/// What the threads share.
pub(super) struct Shared<'a> {
    pub data_key: Option<&'a DataKey>,
    pub accounts: Accounts,
    pub tally: Tally<'a>,
    /// `None` for a set that is not open.
    pub layers: Option<Arc<Layers>>,
    /// For a set with ordered streams that is read in full.
    pub in_order: Option<InOrder>,
}

impl Shared<'_> {
    /// Books what the thread of family `number` did.
    pub fn book_media(&self, number: u16, account: Account) {
        self.accounts.add(MEDIA, number.into(), account);
    }
}

pub(super) const MEDIA: usize = 0;
const TRANSFORM: usize = 1;
const TARGET: usize = 2;
/// The stages of an unpacking.
pub(super) const STAGES: [&str; 3] = ["media", "transform", "target"];

impl Unpack<'_> {
    /// Reads all of `set` and checks every byte of it. After an error the target holds something that must not be used.
    pub fn run(&self, set: &mut MediaSet) -> Result<UnpackOutcome> {
        let header = set.header().clone();
        let data_key = set.data_key().cloned();
        let map = set.manifest().and_then(|manifest| manifest.map.as_ref());
        let seed = map.map(ManifestMap::seed).transpose().map_err(|flaw| damage("manifest", 0, flaw))?;
        let (layers, members) = Layers::new(set.families().len());
        let streams = streams_of(set)?;
        let shared = Shared {
            data_key: data_key.as_ref(),
            accounts: Accounts::new(STAGES),
            in_order: self.in_order(&header, &streams, &layers)?,
            tally: Tally::new(&header, streams, seed, self.target.checks_maps())?,
            layers: header.open.then_some(layers),
        };
        // For a pipe, which is one family.
        let mut ahead = set.take_ahead();
        let starts = members.into_iter().map(|member| (member, std::mem::take(&mut ahead))).collect();
        let parse = |family: &mut Family, (member, ahead): (Member, _), to_workers: &Sender<Work>| {
            let parsed = self.parse(family, ahead, &shared, to_workers);
            drop(member);
            parsed
        };
        let parsed = self.each_family(set, &shared, starts, parse)?;
        let manifest = check_whole(set, &parsed, &shared)?;
        Ok(outcome(set, manifest, parsed, &shared))
    }

    /// Delivery in order, for a set whose ordered streams are read in full.
    ///
    /// # Errors
    /// The plan has no buffers for it: the job would wait for ever.
    pub(super) fn in_order(
        &self,
        header: &SetHeader,
        streams: &[StreamRecord],
        layers: &Arc<Layers>,
    ) -> Result<Option<InOrder>> {
        let ordered = streams.iter().any(|stream| stream.ordered) && !self.target.discards();
        if ordered && self.plan.window < header.window as usize {
            let why = format!("it has no buffers for a window of {} blocks", header.window);
            return Err(Error::refused("plan", why, "this is a defect: please report it"));
        }
        Ok(InOrder::new(header, streams, layers))
    }

    /// Reads each family by `read` in its own thread, which gets its start value, and unpacks what the thread sends.
    /// Gives the results of the families, in their order.
    pub(super) fn each_family<S: Send, T: Send>(
        &self,
        set: &mut MediaSet,
        shared: &Shared<'_>,
        starts: Vec<S>,
        read: impl Fn(&mut Family, S, &Sender<Work>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let output = Pool::new(self.plan.output_buffers, self.plan.transfer_size as usize)?;
        self.progress.enter(STAGES, &[self.input, &output]);
        for pool in [self.input, &output] {
            let pool = Arc::clone(pool);
            self.halt.on_stop(move || pool.close());
        }
        let done = Mutex::new(Vec::new());
        self.watched(|| {
            thread::scope(|scope| {
                // With room for only one block each, every hand-over would wait for a thread to wake.
                let (to_workers, blocks) = bounded::<Work>(self.plan.workers * 4);
                let (to_writers, writes) = unbounded::<Write>();
                let (done, output, families, read) = (&done, &output, set.families_mut(), &read);
                let start = move || {
                    for (family, start) in families.iter_mut().zip(starts) {
                        let (to_workers, number) = (to_workers.clone(), family.header().family);
                        let read = move || {
                            if let Some(result) = self.halt.watch(read(family, start, &to_workers)) {
                                lock(done).push((number, result));
                            }
                        };
                        threads::start_in(scope, &format!("family {number}"), read)?;
                    }
                    for number in 1..=self.plan.workers {
                        let (blocks, to_writers) = (blocks.clone(), to_writers.clone());
                        let work = move || self.halt.watch(self.work((shared, number), &blocks, &to_writers, output));
                        threads::start_in(scope, &format!("worker {number}"), work)?;
                    }
                    for number in 1..=self.plan.writers {
                        let writes = writes.clone();
                        let fill = move || self.halt.watch(self.fill((shared, number), &writes));
                        threads::start_in(scope, &format!("writer {number}"), fill)?;
                    }
                    Ok(())
                };
                // Then its ends of the channels are gone, and the started threads see the other side end.
                self.halt.watch(start());
            });
        });
        self.halt.finish()?;
        let mut done = std::mem::take(&mut *lock(&done));
        done.sort_by_key(|(family, _)| *family);
        Ok(done.into_iter().map(|(_, result)| result).collect())
    }

    /// Does `work`, while the job's tick is called.
    pub(super) fn watched(&self, work: impl FnOnce()) {
        thread::scope(|scope| {
            let (job, end_of_job) = bounded::<()>(0);
            if self.halt.watch(threads::start_in(scope, "monitor", move || self.monitor(&end_of_job))).is_some() {
                work();
            }
            drop(job);
        });
    }

    fn monitor(&self, end_of_job: &Receiver<()>) {
        while let Err(crossbeam_channel::RecvTimeoutError::Timeout) = end_of_job.recv_timeout(TICK) {
            self.halt.watch((self.tick)());
        }
    }

    fn parse(
        &self,
        family: &mut Family,
        ahead: VecDeque<Piece>,
        shared: &Shared<'_>,
        to_workers: &Sender<Work>,
    ) -> Result<Parsed> {
        let mut clock = Clock::shown_in(&self.progress.stages[MEDIA]);
        let (device, number) = (family.device().to_owned(), family.header().family);
        let mut parser = Parser::new(family, shared.data_key, self.input, ahead, shared.tally.weights())?;
        let mut position = 0;
        pool::waited(); // Earlier waits belong to no account.
        while let Some(block) = parser.next()? {
            clock.lap_busy_but(pool::waited());
            self.halt.check()?;
            let end = block.offset + block.bytes.len() as u64;
            clock.pass(end - position);
            self.progress.stored.fetch_add(end - position, std::sync::atomic::Ordering::Relaxed);
            position = end;
            self.admit(&device, block, shared, to_workers)?;
            clock.lap(Spent::Blocked);
        }
        let parsed = parser.finish()?;
        clock.pass(parsed.footer.family_length - position);
        clock.lap_busy_but(pool::waited());
        shared.book_media(number, clock.account());
        Ok(parsed)
    }

    /// Hands a block to the workers, as soon as its layer is under way, or its turn in the order is near.
    pub(super) fn admit(
        &self,
        device: &str,
        block: RawBlock,
        shared: &Shared<'_>,
        to_workers: &Sender<Work>,
    ) -> Result<()> {
        if let Some(in_order) = shared.in_order.as_ref().filter(|_| block.header.order > 0) {
            let admitted = in_order.admit(block.header.order, self.halt)?;
            let in_its_layer = admitted.and_then(|()| in_order.check_layer());
            in_its_layer.map_err(|flaw| damage(device, block.offset, flaw))?;
        }
        let admitted = match &shared.layers {
            // Nothing overwrites an ordered stream, and its blocks wait for each other: no layer waits for them.
            Some(layers) if block.header.kind == BlockKind::Data && block.header.order == 0 => {
                let admitted = layers.admit(block.header.layer, self.halt)?;
                Some(Arc::new(admitted.map_err(|flaw| damage(device, block.offset, flaw))?))
            }
            _ => None,
        };
        to_workers.send(Work { device: device.to_owned(), block, admitted }).map_err(|_| Error::Halted)
    }

    fn work(
        &self,
        (shared, number): (&Shared<'_>, usize),
        blocks: &Receiver<Work>,
        to_writers: &Sender<Write>,
        output: &Arc<Pool>,
    ) -> Result<()> {
        let mut clock = Clock::shown_in(&self.progress.stages[TRANSFORM]);
        let mut opener = BlockOpener::new(shared.data_key)?;
        let mut decrypted = output.take()?;
        let mut spare: Option<Buffer> = None;
        let mut taker = self.target.blocks()?;
        loop {
            clock.lap(Spent::Busy);
            let received = blocks.recv();
            clock.lap(Spent::Starved);
            let Ok(Work { device, block, admitted }) = received else { break };
            self.halt.check()?;
            let mut out = match spare.take() {
                Some(out) => out,
                None => output.take()?,
            };
            clock.lap(Spent::Blocked);
            let opened = opener.open(&block.header, &block.bytes, &mut decrypted, &mut out);
            let Opened { runs, digest, plain, packed } = opened.map_err(|flaw| damage(&device, block.offset, flaw))?;
            let bytes = match &plain {
                Plain::Stored(range) => &block.bytes[range.clone()],
                Plain::Unpacked(range) => &out[range.clone()],
            };
            let booked = shared.tally.book(&block.header, &runs, bytes);
            let (data, zero) = booked.map_err(|unbooked| match unbooked {
                Unbooked::Flaw(flaw) => damage(&device, block.offset, flaw),
                Unbooked::Failed(error) => error,
            })?;
            clock.pass(u64::from(block.header.plain_length));
            if let Some(taker) = &mut taker {
                let packed = match packed {
                    Packed::AsPlain => bytes,
                    Packed::InBlock(range) => &block.bytes[range],
                    Packed::Decrypted(range) => &decrypted[range],
                };
                let checked = CheckedBlock { header: &block.header, runs: &runs, digest, packed, plain: bytes };
                taker.take(&checked, &mut clock)?;
            }
            let work = Work { device, block, admitted };
            spare = self.pass_on(shared, work, &runs, plain, out, to_writers)?;
            self.progress.advance(data + zero);
        }
        shared.accounts.add(TRANSFORM, number, clock.account());
        Ok(())
    }

    /// Hands the bytes of a block to the writers, if the target keeps them. Gives the buffer back if it holds none of
    /// them.
    fn pass_on(
        &self,
        shared: &Shared<'_>,
        Work { device, block, admitted }: Work,
        runs: &[Run],
        plain: Plain,
        mut out: Buffer,
        to_writers: &Sender<Write>,
    ) -> Result<Option<Buffer>> {
        let in_order = shared.in_order.as_ref().filter(|_| block.header.order > 0);
        let (piece, spare) = match plain {
            _ if block.header.kind == BlockKind::Map || self.target.discards() => (None, Some(out)),
            // A block that waits for its turn must not keep a buffer that the families read into.
            Plain::Stored(range) if in_order.is_some() => {
                let length = range.len();
                out[..length].copy_from_slice(&block.bytes[range]);
                (Some(Piece::new(out, 0..length)), None)
            }
            Plain::Stored(range) => (Some(block.bytes.slice(range)), Some(out)),
            Plain::Unpacked(range) => (Some(Piece::new(out, range)), None),
        };
        match (in_order, runs.first(), piece) {
            (Some(in_order), Some(&run), piece) => {
                let arrived = Arrived { at: (device, block.offset), stream: block.header.stream, run, piece };
                for stream in in_order.arrive(block.header.order, arrived)? {
                    to_writers.send(Write::Ordered(stream)).map_err(|_| Error::Halted)?;
                }
            }
            (_, _, Some(piece)) => self.hand_on(&block, admitted, runs, &piece, to_writers)?,
            (_, _, None) => {}
        }
        Ok(spare)
    }

    fn hand_on(
        &self,
        block: &RawBlock,
        admitted: Option<Arc<Admitted>>,
        runs: &[Run],
        piece: &Piece,
        to_writers: &Sender<Write>,
    ) -> Result<()> {
        let stream = block.header.stream;
        let mut at = 0;
        let join = |one: &Run, next: &Run| one.end() == next.offset && can_be_joined(one) && can_be_joined(next);
        for runs in runs.chunk_by(join) {
            let data =
                runs.iter().filter(|run| run.kind == RunKind::Data).map(|run| run.length as usize).sum::<usize>();
            if data == 0 {
                self.target.write_runs(stream, runs, &[])?;
                continue;
            }
            let piece = piece.slice(at..at + data);
            let write = Write::Runs { stream, runs: runs.to_vec(), piece, _admitted: admitted.clone() };
            to_writers.send(write).map_err(|_| Error::Halted)?;
            at += data;
        }
        Ok(())
    }

    fn fill(&self, (shared, number): (&Shared<'_>, usize), writes: &Receiver<Write>) -> Result<()> {
        let mut clock = Clock::shown_in(&self.progress.stages[TARGET]);
        loop {
            clock.lap(Spent::Busy);
            let received = writes.recv();
            clock.lap(Spent::Starved);
            let Ok(write) = received else { break };
            match (write, &shared.in_order) {
                (Write::Runs { stream, runs, piece, .. }, _) => {
                    self.target.write_runs(stream, &runs, &piece)?;
                    clock.pass(piece.len() as u64);
                }
                (Write::Ordered(stream), Some(in_order)) => in_order.deliver(stream, self.halt, |offset, bytes| {
                    self.target.write(stream, offset, bytes)?;
                    clock.pass(bytes.len() as u64);
                    Ok(())
                })?,
                (Write::Ordered(_), None) => {}
            }
        }
        shared.accounts.add(TARGET, number, clock.account());
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the set restores to: from its header, or from the manifest of an open set.
pub(super) fn streams_of(set: &MediaSet) -> Result<Vec<StreamRecord>> {
    let header = set.header();
    match set.manifest() {
        _ if !header.open => Ok(header.streams.clone()),
        Some(manifest) => Ok(manifest.streams.iter().map(ManifestStream::record).collect()),
        None => Err(Error::refused(
            format!("media set {}", header.media_set_id),
            "the names of its files are at its end, so it cannot be restored from a pipe",
            "put the stream into a file first, and name the file with --from",
        )),
    }
}

/// What families tell of each other after they were read to their ends: the commit record and the times.
pub(super) fn check_families(set: &MediaSet, parsed: &[Parsed]) -> Result<()> {
    let incomplete = |why: &str| {
        Error::incomplete(format!("media set {}", set.header().media_set_id), why, "use another backup set")
    };
    let first = parsed.first().ok_or_else(|| incomplete("no family was read"))?;
    let commit = first.footer.commit.as_ref().ok_or_else(|| incomplete("it has no commit record"))?;
    let digests: Vec<_> = parsed.iter().map(|family| family.footer.family_digest).collect();
    let blocks = total(parsed.iter().map(|family| family.footer.block_count));
    if commit.digests != digests || commit.set_block_count != blocks {
        return Err(incomplete("its families are not those that its commit record names"));
    }
    if parsed.iter().any(|family| family.footer.finished_at != first.footer.finished_at) {
        return Err(incomplete("its families were finished at different times"));
    }
    Ok(())
}

/// The set as a whole: commit record, coverage, manifest.
fn check_whole(set: &MediaSet, parsed: &[Parsed], shared: &Shared<'_>) -> Result<Manifest> {
    let header = set.header();
    let name = format!("media set {}", header.media_set_id);
    let incomplete = |why: &str| Error::incomplete(&name, why, "use another backup set");
    check_families(set, parsed)?;
    if let Some(in_order) = &shared.in_order {
        in_order.finish(&name)?;
    }
    let first = parsed.first().ok_or_else(|| incomplete("no family was read"))?;
    if parsed.iter().any(|family| family.manifest_digest != first.manifest_digest) {
        return Err(incomplete("its families have different manifests"));
    }
    shared.tally.finish(parsed)?.map_err(|(family, what)| match family.and_then(|at| set.families().get(at)) {
        Some(family) => {
            Error::damaged(family.device(), parsed[usize::from(family.header().family) - 1].footer.trailer_offset, what)
        }
        None => incomplete(what),
    })?;
    let json = first.manifest.as_deref().unwrap_or_default();
    let manifest = unpack_manifest(json).map_err(|flaw| incomplete(&flaw.to_string()))?;
    manifest.check_against(header).map_err(|flaw| incomplete(&flaw.to_string()))?;
    if set.manifest().is_some_and(|before| *before != manifest) {
        return Err(incomplete("its manifest changed while it was read"));
    }
    Ok(manifest)
}

fn outcome(set: &MediaSet, manifest: Manifest, parsed: Vec<Parsed>, shared: &Shared<'_>) -> UnpackOutcome {
    let (data_bytes, zero_bytes) = shared.tally.bytes();
    UnpackOutcome {
        manifest,
        stored_bytes: total(parsed.iter().map(|family| family.footer.family_length)),
        footers: parsed.into_iter().map(|family| family.footer).collect(),
        stages: shared.accounts.stages(),
        devices: set.families().iter().map(|family| (family.device().to_owned(), family.account())).collect(),
        data_bytes,
        zero_bytes,
    }
}
