//! One case: a job with paces that are known, run by the real pipeline, and what the verdict says of it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use fullbore_model::verdict::Limit;

use fullbore_core::cipher::CipherId;
use fullbore_core::codec::Compression;
use fullbore_core::halt::Halt;
use fullbore_core::media::{FORMAT_VERSION, Label, Manifest, ManifestFamily, SetHeader, SetKind, StreamRecord};
use fullbore_core::meter::{Progress, Stage};
use fullbore_core::pipeline::Backup;
use fullbore_core::plan::{Knobs, Plan, TransferSize, UnpackPlan};
use fullbore_core::pool::Pool;
use fullbore_core::sink::Sink;
use fullbore_core::source::{Source, Stream};
use fullbore_core::testkit::{MemorySink, MemorySupply, Shelf, plain_manifest, plain_stream};
use fullbore_core::unpack::{Family, MediaSet, Unpack};
use fullbore_model::throughput::Direction;
use fullbore_model::verdict::{Cost, Evidence, Setup, verdict};
use uuid::Uuid;

use crate::paced::{EXTENT, Pace, PacedSink, PacedSource, PacedSupply, PacedTarget};

/// Extents of the database.
pub const EXTENTS: u64 = 40;
/// What the slowest stage takes for an extent, all its threads together, in seconds: far more than codec and checksums take, so that these
/// do not matter.
pub const SLOWEST_S: f64 = 0.006;
pub const TRANSFER_BYTES: u32 = 64 << 10;
const READERS: usize = 2;
const WORKERS: usize = 2;
const QUEUE_DEPTH: usize = 2;
/// A case counts where the next stage takes no more than this share of the limit's time.
pub const CLEARLY_LESS: f64 = 0.7;

/// BUFFERCOUNT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffers {
    /// Fewer than the stages could hold.
    Least,
    /// One for each thread, and little more.
    Few,
    /// What the plan chooses.
    Usual,
    /// Four times that.
    Many,
}

/// A job whose limit is known.
#[derive(Debug)]
pub struct Case {
    direction: Direction,
    stripes: usize,
    compression: Compression,
    buffers: Buffers,
    /// What each stage takes for a plain byte, by [`SLOWEST_S`].
    shares: [f64; 3],
    truth: Limit,
    /// The families are objects in a store.
    store: Option<Store>,
}

/// What a store does that a disk does not.
#[derive(Debug, Clone, Copy)]
pub struct Store {
    /// Parts under way in each family, of [`PARTS`]: the rest of them wait for bytes, and not for buffers.
    pub in_flight: f64,
    /// Seconds until an object is complete after its last part.
    pub completing_s: f64,
}

/// Parts that a family may have under way.
const PARTS: u64 = 4;

/// What came of it.
pub struct Answer {
    /// The true limit is clear.
    pub counts: bool,
    /// It was named.
    pub right: bool,
    /// What was said.
    pub said: String,
}

impl Case {
    pub fn new(
        direction: Direction,
        stripes: usize,
        compression: &str,
        buffers: Buffers,
        shares: [f64; 3],
        truth: Limit,
    ) -> Self {
        Self { direction, stripes, compression: compression.parse().unwrap(), buffers, shares, truth, store: None }
    }

    /// The same with families that are objects.
    pub fn in_store(self, store: Store) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Runs the job, and asks.
    pub fn run(&self) -> Answer {
        let ran = match self.direction {
            Direction::Backup => self.back_up(self.shares, EXTENTS, &shelves(self.stripes)).0,
            Direction::Restore => self.restore(),
        };
        let evidence = Evidence {
            direction: self.direction,
            read_from: None,
            stages: &ran.stages,
            devices: (0..self.stripes).map(|family| format!("family {family}")).collect(),
            moving_s: ran.stages.iter().map(Stage::longest).max().unwrap().as_secs_f64(),
            elapsed_s: ran.elapsed_s,
            processor_s: 0.0, // Several cases share the processors.
            processors: 2.0,
            plain_bytes: plain_bytes(),
            throttle: ran.throttle,
            setup: Some(ran.setup),
            measured_limit: None,
            raw_media: None,
            data_share: 1.0,
            one_device: false,
            costs: &ran.costs,
            profile: None,
        };
        let verdict = verdict(&evidence).unwrap();
        let named = self.truth != Limit::FixedCosts || verdict.why.starts_with("the store took ");
        Answer {
            counts: self.counts(),
            right: verdict.limit == self.truth && named,
            said: format!("{}: {}", verdict.name, verdict.why),
        }
    }

    fn counts(&self) -> bool {
        let mut shares = self.shares;
        shares.sort_by(f64::total_cmp);
        match self.truth {
            Limit::Stage(_) => shares[1] <= CLEARLY_LESS * shares[2],
            // Their own time is one.
            _ => shares[1] <= CLEARLY_LESS,
        }
    }

    /// The pace of one of so many threads for plain bytes, such that all of them together take that share.
    fn pace(share: f64, threads: usize) -> Pace {
        Pace { seconds_per_byte: share * SLOWEST_S * threads as f64 / f64::from(EXTENT) }
    }

    fn knobs(&self, usual: usize, least: usize) -> Knobs {
        Knobs {
            buffer_count: match self.buffers {
                Buffers::Least => Some(least),
                Buffers::Few => Some(least + 6),
                Buffers::Usual => None,
                Buffers::Many => Some(4 * usual),
            },
            ..knobs()
        }
    }

    /// Writes a set of so many extents to `shelves` at these paces; how that went, and stored bytes for a plain one.
    fn back_up(&self, shares: [f64; 3], extents: u64, shelves: &[Shelf]) -> (Ran, f64) {
        let usual = Plan::backup(&knobs(), self.stripes, self.compression, false).unwrap();
        let knobs = self.knobs(usual.buffer_count(), usual.least_buffers(false));
        let mut plan = Plan::backup(&knobs, self.stripes, self.compression, false).unwrap();
        if self.truth == Limit::Throttle {
            plan.throttle = Some((f64::from(EXTENT) / SLOWEST_S) as u64);
        }
        let source = PacedSource::new(extents, Self::pace(shares[0], READERS), Self::pace(shares[1], WORKERS));
        // Half of what is read can be saved.
        let stored = if self.compression == Compression::None { 1.0 } else { 0.5 };
        let write = Self::pace(shares[2] / stored, self.stripes);
        let sinks = shelves.iter().zip(0..).map(|(shelf, at)| {
            let sink = MemorySink::new(format!("family {at}"), shelf, false);
            let completing = Duration::from_secs_f64(self.store.map_or(0.0, |store| store.completing_s));
            Box::new(PacedSink::new(sink, write, completing)) as Box<dyn Sink>
        });
        let (set, progress, halt) = (header(&source, self.stripes, self.compression), Progress::default(), Halt::new());
        let backup = Backup {
            plan: &plan,
            set: &set,
            compression: self.compression,
            data_key: None,
            map_seed: None,
            base: None,
            init: false,
            source: &source,
            progress: &progress,
            halt: &halt,
            tick: &|| Ok(()),
            manifest: &|| Ok(manifest(&set)),
            permit: &|| Ok(()),
        };
        let begun = Instant::now();
        let outcome = backup.run(sinks.collect()).unwrap();
        let elapsed_s = begun.elapsed().as_secs_f64();
        let mut setup = Setup::of_backup(&plan, &self.compression.to_string(), false);
        if let Some(store) = self.store {
            (setup.queue_depth, setup.in_flight) = (PARTS, store.in_flight);
        }
        let text = format!("the store took {:.1} s to complete 1 object", outcome.publishing.as_secs_f64());
        let costs = vec![Cost { text, seconds: outcome.publishing.as_secs_f64() }];
        let stored = outcome.stored_bytes as f64 / plain_bytes();
        let throttle = plan.throttle.map(|rate| rate as f64);
        (Ran { stages: outcome.stages, elapsed_s, throttle, setup, costs }, stored)
    }

    fn restore(&self) -> Ran {
        let shelves = shelves(self.stripes);
        let stored = self.back_up([0.0; 3], EXTENTS, &shelves).1;
        let usual = UnpackPlan::new(&knobs(), self.stripes, TRANSFER_BYTES, 0).unwrap();
        let knobs = self.knobs(usual.buffer_count(), usual.least_buffers(self.stripes));
        let plan = UnpackPlan::new(&knobs, self.stripes, TRANSFER_BYTES, 0).unwrap();
        let input = Pool::new(plan.input_buffers, TRANSFER_BYTES as usize).unwrap();
        let target = PacedTarget {
            transform: Self::pace(self.shares[1], plan.workers),
            write: Self::pace(self.shares[2], plan.writers),
        };
        let families = shelves.iter().enumerate().map(|(at, shelf)| {
            let share = if self.truth == Limit::Stripe(at) { 1.0 } else { self.shares[0] };
            // Of what is stored each family has its part.
            let own = shelf.lock().unwrap().len() as f64 / plain_bytes() / stored * self.stripes as f64;
            let read = Self::pace(share / stored / own, self.stripes);
            let supply = PacedSupply(MemorySupply::new(format!("family {at}"), shelf, &input), read);
            Family::open(Box::new(supply)).unwrap()
        });
        let mut set = MediaSet::assemble(families.collect(), None, &[]).unwrap();
        let (progress, halt) = (Progress::default(), Halt::new());
        let unpack =
            Unpack { plan: &plan, target: &target, progress: &progress, halt: &halt, tick: &|| Ok(()), input: &input };
        let begun = Instant::now();
        let outcome = unpack.run(&mut set).unwrap();
        let elapsed_s = begun.elapsed().as_secs_f64();
        let codec = self.compression.to_string();
        let setup = Setup { codec, ..Setup::of_unpacking(&plan, self.stripes) };
        Ran { stages: outcome.stages, elapsed_s, throttle: None, setup, costs: Vec::new() }
    }
}

/// A job that has ended.
struct Ran {
    stages: Vec<Stage>,
    elapsed_s: f64,
    throttle: Option<f64>,
    setup: Setup,
    costs: Vec<Cost>,
}

/// Empty families.
pub fn shelves(families: usize) -> Vec<Shelf> {
    (0..families).map(|_| Arc::new(Mutex::new(Vec::new()))).collect()
}

/// The families of a backup of so many extents.
pub fn backed_up(families: usize, compression: Compression, extents: u64) -> Vec<Shelf> {
    let (direction, buffers, truth) = (Direction::Backup, Buffers::Usual, Limit::None);
    let shelves = shelves(families);
    let case = Case { direction, stripes: families, compression, buffers, shares: [0.0; 3], truth, store: None };
    case.back_up([0.0; 3], extents, &shelves);
    shelves
}

fn plain_bytes() -> f64 {
    EXTENTS as f64 * f64::from(EXTENT)
}

pub fn knobs() -> Knobs {
    Knobs {
        transfer_size: TransferSize::new(TRANSFER_BYTES.into()).unwrap(),
        readers: Some(READERS),
        workers: Some(WORKERS),
        queue_depth: Some(QUEUE_DEPTH),
        ..Knobs::default()
    }
}

fn header(source: &PacedSource, stripes: usize, compression: Compression) -> SetHeader {
    let stream = &source.streams()[0];
    SetHeader {
        format_version: FORMAT_VERSION,
        media_set_id: Uuid::now_v7(),
        backup_set_id: Uuid::now_v7(),
        families: stripes as u16,
        cipher: CipherId::None,
        kind: SetKind::Full,
        block_size: 4096,
        transfer_size: TRANSFER_BYTES,
        window: 0,
        codec: (compression.codec().number(), compression.level()),
        started_at: 0,
        engine: "paced".into(),
        tool_version: "0".into(),
        base_backup_set_id: None,
        keys: Vec::new(),
        streams: vec![StreamRecord {
            id: 1,
            layer: 0,
            unit: stream.unit,
            map_window: 0,
            size: stream.size,
            ordered: false,
        }],
        open: false,
        label: Some(Label::default()),
    }
}

fn manifest(set: &SetHeader) -> Manifest {
    let StreamRecord { id, unit, size, .. } = set.streams[0];
    let stream = plain_stream(&Stream { id, name: "file".into(), unit, size });
    let family = |family| ManifestFamily { family, device: format!("family {}", family - 1) };
    Manifest {
        host: "localhost".into(),
        database: "paced".into(),
        families: (1..=set.families).map(family).collect(),
        ..plain_manifest(set, vec![stream])
    }
}
