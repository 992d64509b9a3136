//! The common part of restore and verify: which media are read and how, and the unpacking itself.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fullbore_core::cipher::{CipherId, SecretKey};
use fullbore_core::codec::{self, Compression};
use fullbore_core::device::Device;
use fullbore_core::io::Mode;
use fullbore_core::pipeline::throttle;
use fullbore_core::plan::{Knobs, UnpackPlan};
use fullbore_core::pool::{Piece, Pool};
use fullbore_core::sink::DeviceAccount;
use fullbore_core::supply::{self, Supply};
use fullbore_core::unpack::{MediaSet, Target, Unpack, UnpackOutcome};
use fullbore_core::{Error, Result};

use crate::report::{FamilyReport, PointReport, PoolReport, Report};
use fullbore_core::conduct::Conduct;
use fullbore_core::resources;
use fullbore_core::units::counted;
use fullbore_model::verdict::Setup;
use fullbore_repository::chain::Choice;
use fullbore_repository::discovery;

/// The name for the verdict of work before the first byte.
pub(super) const FINDING: &str = "finding the sets";
/// Another name.
pub(super) const OPENING: &str = "opening the sets";

/// How often media are looked for while a backup that runs gives them their names.
const LOOKS_MAX: u32 = 10;

/// What to read, and how.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// `--from`.
    pub from: Vec<String>,
    /// BUFFERCOUNT and the like.
    pub knobs: Knobs,
    /// `--key`.
    pub key: Option<PathBuf>,
    /// `--set`, `--latest`.
    pub choice: Choice,
}

/// The media of the sets.
pub(super) enum Media {
    /// One set, on standard input.
    Piped(Box<MediaSet>),
    /// In files.
    DiscoveredSets(discovery::DiscoveredSets),
}

impl Reading {
    /// The key and the media: every job that reads begins with this.
    pub(super) fn begin(&self, conduct: &Conduct) -> Result<(Option<SecretKey>, Media)> {
        let key = discovery::read_key(self.key.as_deref())?;
        let found = if discovery::is_pipe(&self.from)? {
            Media::Piped(Box::new(piped(key.as_ref(), conduct)?))
        } else {
            Media::DiscoveredSets(self.find(key.as_ref(), conduct)?)
        };
        Ok((key, found))
    }

    /// The media that `--from` names now.
    pub(super) fn find(&self, key: Option<&SecretKey>, conduct: &Conduct) -> Result<discovery::DiscoveredSets> {
        let mut looks = 0;
        loop {
            let found = discovery::find(&self.from, &conduct.stores);
            let mut discovered = found.map_err(|error| conduct.why_halted(error))?;
            if self.choice.latest || discovered.holds_copies() {
                discovered.learn_databases(key)?;
            }
            let wants_times = self.choice.stop_at.is_some() || self.choice.before.is_some();
            looks += 1;
            if discovered.learn_log_ranges(key, wants_times)? || looks == LOOKS_MAX {
                return Ok(discovered);
            }
        }
    }
}

/// Opened sets, with the pool that they are read through one after the other. Once they are open, a backup can take
/// their names, and they stay readable.
pub(super) struct Opened {
    pub sets: VecDeque<MediaSet>,
    pub pool: Arc<Pool>,
    pub plan: UnpackPlan,
}

impl Opened {
    /// Unpacks the next of them into `target`.
    pub(super) fn unpack_next(&mut self, target: &dyn Target, conduct: &Conduct) -> Result<UnpackOutcome> {
        let mut set = self.sets.pop_front().ok_or(Error::Halted)?;
        unpack_with(&mut set, &self.plan, &self.pool, target, conduct)
    }
}

/// The plan to read so many families from `devices`. `window` is the window of ordered streams for a target; 0 without
/// them.
///
/// # Errors
/// Settings that a plan refuses.
pub(super) fn unpack_plan<'a>(
    knobs: &Knobs,
    devices: impl IntoIterator<Item = &'a Device>,
    families: usize,
    (transfer_size, window): (u32, u32),
) -> Result<UnpackPlan> {
    let in_store = devices.into_iter().any(Device::is_in_store);
    let plan = if in_store { UnpackPlan::of_objects } else { UnpackPlan::new };
    plan(knobs, families, transfer_size, window)
}

/// Opens sets with a pool that is large enough for each of them. `delivers`: a target gets their bytes, and ordered
/// streams in order.
pub(super) fn open(
    found: &[&discovery::Found],
    knobs: &Knobs,
    key: Option<&SecretKey>,
    delivers: bool,
    report: &mut Report,
) -> Result<Opened> {
    let transfer_size = found.iter().map(|found| found.header.transfer_size).max().unwrap_or(0);
    let families = found.iter().map(|found| found.families).max().unwrap_or(0);
    let window = found.iter().map(|found| found.header.window).max().filter(|_| delivers).unwrap_or(0);
    let devices = found.iter().flat_map(|found| &found.devices);
    let encrypted = found.iter().any(|found| found.header.cipher != CipherId::None);
    let plan = claimed(knobs, devices, (families.into(), transfer_size, window), encrypted, report)?;
    let pool = Pool::new(plan.input_buffers, transfer_size as usize)?;
    let opened = found.iter().map(|found| discovery::open_set(found, &pool, plan.queue_depth, key));
    let sets = opened.collect::<Result<_>>()?;
    report.warnings.extend(found.iter().flat_map(|found| found.unreadable_sidecars()));
    Ok(Opened { sets, pool, plan })
}

/// The plan, after a check of the available memory; a smaller plan if memory is short and BUFFERCOUNT was not given.
fn claimed<'a>(
    knobs: &Knobs,
    devices: impl Iterator<Item = &'a Device> + Clone,
    (families, transfer_size, window): (usize, u32, u32),
    encrypted: bool,
    report: &mut Report,
) -> Result<UnpackPlan> {
    let plan = |knobs: &Knobs| unpack_plan(knobs, devices.clone(), families, (transfer_size, window));
    let usual = plan(knobs)?;
    let Err(too_large) = claim(&usual, families, encrypted, report) else { return Ok(usual) };
    for smaller in smaller(knobs, &usual, families) {
        let plan = plan(&smaller)?;
        if claim(&plan, families, encrypted, report).is_ok() {
            let (now, usually) = ((plan.buffer_count(), plan.workers), (usual.buffer_count(), usual.workers));
            report.note_smaller_plan(now, usually);
            return Ok(plan);
        }
    }
    Err(naming_smallest(too_large, knobs, report))
}

/// Plans smaller than `usual` for so many families, the smallest last; none if BUFFERCOUNT was given. A given number of
/// workers stays.
pub(super) fn smaller(knobs: &Knobs, usual: &UnpackPlan, families: usize) -> Vec<Knobs> {
    let (mut workers, mut found) = (usual.workers, Vec::new());
    while knobs.buffer_count.is_none() {
        let least = UnpackPlan { workers, ..usual.clone() }.least_buffers(families);
        found.push(Knobs { buffer_count: Some(least), workers: Some(workers), ..knobs.clone() });
        let fewer = knobs.workers.unwrap_or(workers.div_ceil(2));
        if fewer == workers {
            break;
        }
        workers = fewer;
    }
    found
}

/// The error of the usual plan, with the smallest plan added; unchanged if BUFFERCOUNT was given.
pub(super) fn naming_smallest(too_large: Error, knobs: &Knobs, report: &Report) -> Error {
    match knobs.buffer_count {
        Some(_) => too_large,
        None => {
            let least = counted(report.pool.buffer_count, "buffer");
            too_large.noting(&format!("the smallest plan has {least}, but does not fit either"))
        }
    }
}

fn claim(plan: &UnpackPlan, families: usize, encrypted: bool, report: &mut Report) -> Result<()> {
    report.setup = Some(Setup { encrypted, ..Setup::of_unpacking(plan, families) });
    report.throttle = plan.throttle;
    let codec_bytes = (plan.workers * codec::memory(Compression::None, plan.transfer_size as usize)) as u64;
    report.pool = PoolReport {
        buffer_count: plan.buffer_count() as u64,
        max_transfer_size: plan.transfer_size.into(),
        bytes: plan.pool_bytes(),
        codec_bytes,
        part_bytes: 0,
    };
    resources::check_memory(plan.pool_bytes(), plan.buffer_count(), plan.transfer_size, codec_bytes)
}

/// The set on standard input.
pub(super) fn piped(key: Option<&SecretKey>, conduct: &Conduct) -> Result<MediaSet> {
    // A pipe gives 64 KiB at a time; blocks are assembled in the pool of the job.
    let pool = Pool::new(8, 64 << 10)?;
    conduct.close_on_signal(&pool)?;
    let supply = supply::open(&Device::parse("-")?, &pool, 1, Mode::from_environment()?, &conduct.stores)?;
    let bytes = Arc::new(AtomicU64::new(0));
    let supply = Box::new(Counted { supply, bytes: Arc::clone(&bytes) });
    MediaSet::piped(supply, key, &[]).map_err(|error| match error {
        Error::Incomplete { .. } if bytes.load(Ordering::Relaxed) == 0 => Error::incomplete(
            "--from -",
            "the pipe ended before its first byte",
            "look at the messages of the program before the pipe, and at its exit code (`set -o pipefail`)",
        ),
        error => conduct.why_halted(error),
    })
}

/// A supply that counts its bytes.
struct Counted {
    supply: Box<dyn Supply>,
    bytes: Arc<AtomicU64>,
}

impl Supply for Counted {
    fn device(&self) -> &str {
        self.supply.device()
    }

    fn size(&self) -> Option<u64> {
        self.supply.size()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.supply.read_at(offset, buffer)
    }

    fn next(&mut self) -> Result<Option<Piece>> {
        let piece = self.supply.next()?;
        self.bytes.fetch_add(piece.as_ref().map_or(0, |piece| piece.len() as u64), Ordering::Relaxed);
        Ok(piece)
    }

    fn aim(&mut self, ranges: Vec<Range<u64>>) -> Result<()> {
        self.supply.aim(ranges)
    }

    fn account(&self) -> DeviceAccount {
        self.supply.account()
    }
}

/// Unpacks a set, and makes the pool for it.
pub(super) fn unpack(
    set: &mut MediaSet,
    knobs: &Knobs,
    target: &dyn Target,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<UnpackOutcome> {
    let window = if target.discards() { 0 } else { set.header().window };
    let plan = UnpackPlan::new(knobs, 1, set.header().transfer_size, window)?;
    claim(&plan, 1, set.header().cipher != CipherId::None, report)?;
    let pool = Pool::new(plan.input_buffers, plan.transfer_size as usize)?;
    unpack_with(set, &plan, &pool, target, conduct)
}

/// Unpacks an opened set into `target`.
pub(super) fn unpack_with(
    set: &mut MediaSet,
    plan: &UnpackPlan,
    input: &Arc<Pool>,
    target: &dyn Target,
    conduct: &Conduct,
) -> Result<UnpackOutcome> {
    let halt = conduct.halt();
    let mut on_volume = None;
    if let Some(volumes) = &conduct.volumes {
        set.listen(|supply| volumes.supply(supply, plan.queue_depth, &halt));
        on_volume = volumes.target(target, &halt);
    }
    let target = on_volume.as_deref().unwrap_or(target);
    plan.throttle.iter().for_each(|rate| throttle(set, *rate, &halt));
    let unpack = Unpack { plan, target, progress: &conduct.progress, halt: &halt, tick: &|| conduct.check(), input };
    unpack.run(set).map_err(|error| conduct.why_halted(error))
}

/// Adds the result of an unpacking to the report; several sets add up.
pub(super) fn book(outcome: &UnpackOutcome, report: &mut Report) {
    let manifest = &outcome.manifest;
    report.kind = Some(manifest.kind.to_string());
    report.engine = Some(manifest.engine.clone());
    report.database = Some(manifest.database.clone());
    report.point = Some(PointReport::of(manifest));
    if let Some(setup) = &mut report.setup {
        setup.codec.clone_from(&manifest.codec);
    }
    let engine = fullbore_engines::named(&manifest.engine);
    report.warnings.extend(engine.and_then(|engine| engine.unreadable_schema(&manifest.position.last.value())));
    report.media_set_id = Some(manifest.media_set_id.to_string());
    report.backup_set_id = Some(manifest.backup_set_id.to_string());
    report.sets.push(format!("{} {}", manifest.kind, manifest.backup_set_id));
    // Numbers on media may be forged, and several sets add up.
    let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
    add(&mut report.source_bytes, outcome.data_bytes.saturating_add(outcome.zero_bytes));
    add(&mut report.skipped_bytes, outcome.zero_bytes);
    add(&mut report.allocated_bytes, outcome.data_bytes);
    add(&mut report.stored_bytes, outcome.stored_bytes);
    report.add_stages(&outcome.stages);
    for ((device, account), footer) in outcome.devices.iter().zip(&outcome.footers) {
        let hex = footer.family_digest.iter().map(|byte| format!("{byte:02x}")).collect();
        report.families.push(FamilyReport { device: device.clone(), bytes: footer.family_length, blake3: hex });
        report.add_device(device, account);
    }
}
