//! Copies whose limit is known: as they are and made anew, from slow families to slow families. Their workers have no pace: where they are to be
//! the limit they have real work, and the families are paced by what that takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_core::codec::Compression;
use fullbore_core::halt::Halt;
use fullbore_core::media::ManifestFamily;
use fullbore_core::meter::{Progress, Stage};
use fullbore_core::pipeline::{Remake, Verbatim};
use fullbore_core::plan::{Knobs, UnpackPlan};
use fullbore_core::pool::Pool;
use fullbore_core::sink::Sink;
use fullbore_core::testkit::{MemorySink, MemorySupply, Shelf};
use fullbore_core::unpack::{Family, MediaSet};
use fullbore_model::throughput::Direction;
use fullbore_model::verdict::{Copying, Evidence, Limit, Setup, Verdict, verdict};
use uuid::Uuid;

use crate::job::{Answer, CLEARLY_LESS, EXTENTS, SLOWEST_S, TRANSFER_BYTES, backed_up, knobs, shelves};
use crate::paced::{Pace, PacedSink, PacedSupply};

/// How often it is measured what the workers take.
const MEASURED: usize = 3;
/// Writes of a copy in flight, as its job plans them.
const QUEUE_DEPTH: usize = 4;

/// What is done with the set.
#[derive(Debug, Clone, Copy)]
pub enum CopyMethod {
    AsItIs,
    /// In so many families, and perhaps packed anew.
    Anew(usize, Option<Compression>),
}

/// Which limit is the true one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// A stage, by its place. The workers have their own time, whatever their share says.
    Stage(usize),
    /// One family that is read, or one that is written.
    SlowSource(usize),
    SlowTarget(usize),
    Throttle,
}

/// A copy whose limit is known.
#[derive(Debug)]
pub struct CopyCase {
    pub families: usize,
    pub packed: Compression,
    pub way: CopyMethod,
    /// What reading and writing take, by the time of the limit.
    pub shares: [f64; 2],
    pub truth: Truth,
}

/// What a family takes, in seconds for all of it.
struct Times {
    read: Vec<f64>,
    written: Vec<f64>,
    throttle: Option<u64>,
}

/// A copy that has ended.
struct Ran {
    stages: Vec<Stage>,
    elapsed_s: f64,
    throttle: Option<f64>,
    setup: Setup,
}

impl CopyCase {
    /// Copies, and asks.
    pub fn run(&self) -> Answer {
        let works = self.truth == Truth::Stage(1);
        // What is unpacked takes so little that there has to be much of it.
        let extents = if works && matches!(self.way, CopyMethod::AsItIs) { 40 * EXTENTS } else { EXTENTS };
        let from = backed_up(self.families, self.packed, extents);
        let targets = match self.way {
            CopyMethod::AsItIs => self.families,
            CopyMethod::Anew(stripes, _) => stripes,
        };
        let unpaced = Times { read: vec![0.0; self.families], written: vec![0.0; targets], throttle: None };
        let free = self.copy(&from, &unpaced, &vec![0.0; targets]);
        let usual = EXTENTS as f64 * SLOWEST_S;
        let slowest = match self.truth {
            // The fastest of several: what else the machine does makes work longer, and no shorter.
            Truth::Stage(1) => (1..MEASURED)
                .map(|_| busiest(&self.copy(&from, &unpaced, &vec![0.0; targets]).stages[1]))
                .fold(busiest(&free.stages[1]), f64::min),
            // A throttle saves nothing up: each pause is to be longer than a machine is late.
            Truth::Throttle => 4.0 * usual,
            _ => usual,
        };
        let [read, written] = self.shares.map(|share| share * slowest);
        let mut times = Times { read: vec![read; self.families], written: vec![written; targets], throttle: None };
        match self.truth {
            Truth::SlowSource(family) => times.read[family] = slowest,
            Truth::SlowTarget(family) => times.written[family] = slowest,
            Truth::Throttle => times.throttle = Some((length(&from) / slowest) as u64),
            Truth::Stage(_) => {}
        }
        let lengths: Vec<f64> = free.stages[2].threads.iter().map(|thread| thread.bytes as f64).collect();
        let even = vec![lengths.iter().sum::<f64>() / targets as f64; targets];
        // Made anew, a family gets what its device has room for; as it is, what it has always had.
        let ran = self.copy(&from, &times, if matches!(self.way, CopyMethod::AsItIs) { &lengths } else { &even });
        let verdict = self.judge(&ran, length(&from));
        Answer {
            counts: self.counts(),
            right: self.is_right(&verdict),
            said: format!("{} {}: {}", verdict.name, verdict.device.unwrap_or_default(), verdict.why),
        }
    }

    fn counts(&self) -> bool {
        let limit = match self.truth {
            Truth::Stage(0) => 0,
            Truth::Stage(2) => 1,
            // Their own time is one.
            _ => return self.shares.iter().all(|share| *share <= CLEARLY_LESS),
        };
        self.shares[1 - limit] <= CLEARLY_LESS * self.shares[limit]
    }

    fn is_right(&self, verdict: &Verdict) -> bool {
        let device = |side: &str, family: usize| {
            verdict.limit == Limit::Stripe(family) && verdict.device == Some(format!("{side} {family}"))
        };
        match self.truth {
            Truth::Stage(at) => verdict.limit == Limit::Stage(at),
            Truth::SlowSource(family) => device("from", family),
            Truth::SlowTarget(family) => device("to", family),
            Truth::Throttle => verdict.limit == Limit::Throttle,
        }
    }

    fn judge(&self, ran: &Ran, read: f64) -> Verdict {
        let names = |side: &str, count: usize| (0..count).map(|family| format!("{side} {family}")).collect();
        let evidence = Evidence {
            direction: Direction::Backup,
            read_from: Some(names("from", self.families)),
            stages: &ran.stages,
            devices: names("to", ran.stages[2].threads.len()),
            moving_s: ran.stages.iter().map(Stage::longest).max().unwrap().as_secs_f64(),
            elapsed_s: ran.elapsed_s,
            processor_s: 0.0, // Several cases share the processors.
            processors: 2.0,
            plain_bytes: read,
            throttle: ran.throttle,
            setup: Some(ran.setup.clone()),
            measured_limit: None,
            raw_media: None,
            data_share: 1.0,
            one_device: false,
            costs: &[],
            profile: None,
        };
        verdict(&evidence).unwrap()
    }

    /// Copies families that take such times for such lengths.
    fn copy(&self, from: &[Shelf], times: &Times, lengths: &[f64]) -> Ran {
        let workers = if matches!(self.way, CopyMethod::AsItIs) && self.truth == Truth::Stage(1) { 1 } else { 2 };
        let mut plan =
            UnpackPlan::new(&Knobs { workers: Some(workers), ..knobs() }, self.families, TRANSFER_BYTES, 0).unwrap();
        let writing = match self.way {
            CopyMethod::AsItIs => {
                plan.input_buffers += self.families * QUEUE_DEPTH;
                0
            }
            CopyMethod::Anew(stripes, _) => stripes * (1 + QUEUE_DEPTH) + 2 * plan.workers,
        };
        let input = Pool::new(plan.input_buffers, TRANSFER_BYTES as usize).unwrap();
        let families = from.iter().zip(&times.read).enumerate().map(|(at, (shelf, time))| {
            let pace = Pace { seconds_per_byte: time / shelf.lock().unwrap().len() as f64 };
            Family::open(Box::new(PacedSupply(MemorySupply::new(format!("from {at}"), shelf, &input), pace))).unwrap()
        });
        let mut set = MediaSet::assemble(families.collect(), None, &[]).unwrap();
        let to = shelves(times.written.len());
        let sinks = to.iter().zip(&times.written).zip(lengths).enumerate().map(|(at, ((shelf, time), length))| {
            let pace = Pace { seconds_per_byte: if *length > 0.0 { time / length } else { 0.0 } };
            Box::new(PacedSink::new(MemorySink::new(format!("to {at}"), shelf, false), pace, Duration::ZERO))
                as Box<dyn Sink>
        });
        let (stages, elapsed_s) = self.moved(&mut set, sinks.collect(), (&plan, &input, writing), times.throttle);
        let (anew, packs) = match self.way {
            CopyMethod::AsItIs => (false, None),
            CopyMethod::Anew(_, compression) => (true, compression),
        };
        let copying = Copying { anew, packs: packs.is_some(), unpacks: Some(self.packed.to_string()), decrypts: false };
        let setup = Setup {
            codec: packs.unwrap_or(self.packed).to_string(),
            copying: Some(copying),
            ..Setup::of_copy(&plan, self.families, (writing, QUEUE_DEPTH))
        };
        Ran { stages, elapsed_s, throttle: times.throttle.map(|rate| rate as f64), setup }
    }

    fn moved(
        &self,
        set: &mut MediaSet,
        sinks: Vec<Box<dyn Sink>>,
        (plan, input, writing): (&UnpackPlan, &Arc<Pool>, usize),
        throttle: Option<u64>,
    ) -> (Vec<Stage>, f64) {
        let (progress, halt) = (Arc::new(Progress::default()), Halt::new());
        let begun = Instant::now();
        let stages = match self.way {
            CopyMethod::AsItIs => {
                let copy = Verbatim {
                    plan,
                    input,
                    throttle,
                    init: false,
                    progress: &progress,
                    halt: &halt,
                    tick: &|| Ok(()),
                    permit: &|| Ok(()),
                };
                copy.run(set, sinks).unwrap().stages
            }
            CopyMethod::Anew(stripes, compression) => {
                let (mut header, mut manifest) = (set.header().clone(), set.manifest().unwrap().clone());
                (header.media_set_id, header.families) = (Uuid::now_v7(), stripes as u16);
                if let Some(compression) = compression {
                    header.codec = (compression.codec().number(), compression.level());
                }
                manifest.media_set_id = header.media_set_id;
                let families = 1..=header.families;
                manifest.families = families.map(|family| ManifestFamily { family, device: "to".into() }).collect();
                let copy = Remake {
                    plan,
                    input,
                    output_buffers: writing,
                    throttle,
                    set: &header,
                    manifest: &manifest,
                    compression,
                    data_key: None,
                    init: false,
                    progress: &progress,
                    halt: &halt,
                    tick: &|| Ok(()),
                    permit: &|| Ok(()),
                };
                copy.run(set, sinks).unwrap().written.stages
            }
        };
        let names: Vec<_> = stages.iter().map(|stage| stage.name).collect();
        assert_eq!(names, progress.live().map(|(name, _)| name), "what is shown live is what is booked");
        assert_eq!(
            stages.iter().map(|stage| stage.account.busy).collect::<Vec<_>>(),
            progress.live().map(|one| one.1.busy)
        );
        (stages, begun.elapsed().as_secs_f64())
    }
}

fn length(families: &[Shelf]) -> f64 {
    families.iter().map(|family| family.lock().unwrap().len() as f64).sum()
}

fn busiest(stage: &Stage) -> f64 {
    stage.threads.iter().map(|thread| thread.busy.as_secs_f64()).fold(0.0, f64::max)
}
