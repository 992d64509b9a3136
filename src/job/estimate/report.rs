//! The report of an estimate: `--report json` as documented in `docs/ESTIMATE.md`, and the same for people.

use fullbore_core::{Error, Result};
use serde::Serialize;

use super::{Inputs, Request};
use fullbore_core::units::{mib_per_s, show_bytes};
use fullbore_model::estimate::{By, Cutover, Estimate, Foreseen, Wanted, cutover, fits, wanted};
use fullbore_model::profile::Profile;
use fullbore_model::throughput::Interval;

const SCHEMA_VERSION: u32 = 1;
/// The most lines of a grid in the report.
const SHOWN: usize = 200;
const HOUR: f64 = 3600.0;

/// An estimate, as an object.
#[derive(Debug, Clone, Serialize)]
pub struct EstimateReport {
    /// Version of this object; fields are added, never changed.
    pub schema_version: u32,
    /// The verb.
    pub command: &'static str,
    /// The source as given, without a password.
    pub source: String,
    /// Bytes to move.
    pub plain_bytes: u64,
    /// Bytes in use as a backup counts them, with never written space in files of a server; null with `--size`.
    pub in_use_bytes: Option<u64>,
    /// The given configuration.
    #[serde(flatten)]
    pub asked: GridLine,
    /// The profile that was used.
    pub profile: ProfileReport,
    /// The number of earlier runs of this database that were used for a correction.
    pub history_runs: usize,
    /// The correction: a factor on seconds.
    pub history_factor: f64,
    /// With `--grid`: the fastest backup first, and the given configuration among them.
    pub grid: Option<Vec<GridLine>>,
    /// With `--plan`.
    pub cutover: Option<CutoverReport>,
    /// With `--deadline`: the configurations that keep it, least memory first.
    pub fits: Option<Vec<GridLine>>,
    /// If no configuration keeps it: the nearest one.
    pub nearest: Option<GridLine>,
    /// The faster hardware with which the nearest one keeps it; empty if no hardware helps.
    pub wanted: Option<Vec<WantedReport>>,
    /// What may be wrong with it.
    pub warnings: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<String>,
}

/// One configuration, with its estimate.
#[derive(Debug, Clone, Serialize)]
pub struct GridLine {
    /// `--compression`.
    pub compression: String,
    /// `--stripes`.
    pub stripes: u64,
    /// `--buffer-count`.
    pub buffer_count: u64,
    /// `--workers`.
    pub workers: u64,
    /// The backup; null if the profile has no measurements for it.
    pub backup: Option<ForeseenReport>,
    /// The restore; the same.
    pub restore: Option<ForeseenReport>,
    /// Bytes on the media, P50.
    pub stored_bytes: u64,
    /// Bytes of memory of the backup.
    pub memory_bytes: u64,
    /// Processor seconds of the backup, P50.
    pub cpu_s: f64,
    /// With `--price`: the cost of the backup, P50.
    pub cost: Option<f64>,
}

impl GridLine {
    /// The same flags.
    pub fn is(&self, other: &Self) -> bool {
        let flags = |line: &Self| (line.compression.clone(), line.stripes, line.buffer_count, line.workers);
        flags(self) == flags(other)
    }

    /// No user would prefer one to the other: the same codec, times within the intervals of `other`, and memory of the
    /// same class, which is a power of two.
    pub fn is_like(&self, other: &Self) -> bool {
        let within = |one: Option<ForeseenReport>, other: Option<ForeseenReport>| match (one, other) {
            (Some(one), Some(other)) => (other.p10_s..=other.p90_s).contains(&one.p50_s),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.compression == other.compression
            && within(self.backup, other.backup)
            && within(self.restore, other.restore)
            && self.memory_bytes.max(1).ilog2() == other.memory_bytes.max(1).ilog2()
    }

    /// `other` is nowhere worse and somewhere better: in time, bytes on the media, memory or processor time.
    pub fn is_beaten_by(&self, other: &Self) -> bool {
        let both = [(self.backup, other.backup), (self.restore, other.restore)];
        let times: Vec<_> = both.into_iter().filter_map(|(one, other)| one.zip(other)).collect();
        if both.iter().any(|(one, other)| one.is_some() != other.is_some()) {
            return false;
        }
        let slower = |share: f64| times.iter().map(move |(one, other)| one.p50_s > (1.0 + share) * other.p50_s);
        let of = |line: &Self| (line.stored_bytes, line.memory_bytes, line.cpu_s);
        let ((stored, memory, cpu), (less_stored, less_memory, less_cpu)) = (of(self), of(other));
        slower(-SAME_TIME).all(|so| so)
            && stored >= less_stored
            && memory >= less_memory
            && cpu >= less_cpu
            && (stored > less_stored || memory > less_memory || cpu > less_cpu || slower(SAME_TIME).any(|so| so))
    }
}

/// Times that differ by less than this share are the same.
const SAME_TIME: f64 = 0.01;

/// One direction.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ForeseenReport {
    /// One of ten runs is faster.
    pub p10_s: f64,
    /// Half of the runs are faster.
    pub p50_s: f64,
    /// Nine of ten runs are faster.
    pub p90_s: f64,
    /// The stage that sets the time.
    pub limit: &'static str,
    /// Plain bytes at P50.
    pub mib_per_s: f64,
}

/// The profile that was used.
#[derive(Debug, Clone, Serialize)]
pub struct ProfileReport {
    /// Its name.
    pub name: String,
    /// The time when it was made.
    pub made_at: String,
    /// Its age in whole days.
    pub age_days: Option<i64>,
}

impl ProfileReport {
    pub(super) fn of(profile: &Profile) -> Self {
        Self { name: profile.name.clone(), made_at: profile.made_at.clone(), age_days: profile.age_days() }
    }
}

/// A move of the database.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CutoverReport {
    /// Steps during which the database works as usual, P10, P50, P90 in seconds.
    pub beforehand_s: [f64; 3],
    /// The last step, during which the database is down.
    pub downtime_s: [f64; 3],
    /// Bytes of the last step.
    pub last_bytes: [f64; 3],
}

/// A limit that would have to be higher.
#[derive(Debug, Clone, Serialize)]
pub struct WantedReport {
    /// The stage.
    pub limit: &'static str,
    /// The factor by which it would have to be higher.
    pub factor: f64,
    /// The value that it would need.
    pub value: f64,
    /// The unit of the value.
    pub unit: &'static str,
}

pub(super) fn make(request: &Request, ground: &Inputs, asked: &Estimate, grid: &[Estimate]) -> Result<EstimateReport> {
    let plain = ground.source.plain_bytes;
    let line = |estimate: &Estimate| line(estimate, plain, request.price);
    let (cutover, falls_behind) = moved(request, ground, asked)?.unzip();
    let deadline = request.deadline.map(|deadline| against(deadline, grid, ground, &line)).transpose()?;
    let (fits, nearest, wanted) =
        deadline.map_or((None, None, None), |(fits, nearest, wanted)| (Some(fits), nearest, wanted));
    Ok(EstimateReport {
        schema_version: SCHEMA_VERSION,
        command: "estimate",
        source: request.source.shown().to_owned(),
        plain_bytes: plain,
        in_use_bytes: request.size.is_none().then_some(ground.source.used_bytes),
        asked: line(asked),
        profile: ProfileReport::of(&ground.profile),
        history_runs: ground.known.factor.runs,
        history_factor: ground.known.factor.middle,
        grid: request.grid.then(|| grid.iter().take(SHOWN).map(line).collect()),
        cutover,
        fits,
        nearest,
        wanted,
        warnings: ground.warnings.iter().cloned().chain(falls_behind.flatten()).collect(),
        notes: ground.notes.clone(),
    })
}

pub(super) fn line(estimate: &Estimate, plain: u64, price: Option<f64>) -> GridLine {
    let foreseen = |foreseen: Foreseen| ForeseenReport {
        p10_s: foreseen.seconds.p10,
        p50_s: foreseen.seconds.p50,
        p90_s: foreseen.seconds.p90,
        limit: foreseen.limit.name(),
        mib_per_s: mib_per_s(plain, foreseen.seconds.p50),
    };
    let backup = estimate.backup;
    GridLine {
        compression: estimate.candidate.compression.to_string(),
        stripes: estimate.candidate.stripes,
        buffer_count: estimate.candidate.buffer_count,
        workers: estimate.candidate.workers,
        backup: backup.map(foreseen),
        restore: estimate.restore.map(foreseen),
        stored_bytes: estimate.stored_bytes.unwrap_or(0.0) as u64,
        memory_bytes: estimate.candidate.memory_bytes,
        cpu_s: backup.map_or(0.0, |backup| backup.cpu_seconds),
        cost: price.zip(backup).map(|(price, backup)| price * backup.seconds.p50 / HOUR),
    }
}

type Against = (Vec<GridLine>, Option<GridLine>, Option<Vec<WantedReport>>);

/// The configurations that keep the deadline; if there are none, the nearest one and what it lacks.
fn against(
    (deadline, by): (f64, By),
    grid: &[Estimate],
    ground: &Inputs,
    line: &impl Fn(&Estimate) -> GridLine,
) -> Result<Against> {
    let p90 = |estimate: &Estimate| estimate.p90(by);
    let fitting = fits(grid, deadline, p90);
    if !fitting.is_empty() {
        return Ok((fitting.into_iter().map(line).collect(), None, None));
    }
    let timed = grid.iter().filter_map(|estimate| Some((p90(estimate)?, estimate)));
    let Some((p90, nearest)) = timed.min_by(|one, other| one.0.total_cmp(&other.0)) else {
        let what = "the profile has no measurements for this direction";
        return Err(Error::usage("--deadline", what, "fullbore calibrate --read DATABASE --write DESTINATION"));
    };
    // With both directions, the slower one needs the better hardware.
    let slower = |one: Option<Foreseen>| one.map_or(0.0, |foreseen| foreseen.seconds.p50);
    let backup_first = slower(nearest.backup) >= slower(nearest.restore);
    let configuration = match by {
        By::Backup => &nearest.candidate.backup,
        By::Restore => &nearest.candidate.restore,
        By::Both if backup_first => &nearest.candidate.backup,
        By::Both => &nearest.candidate.restore,
    };
    let lacking = configuration.as_ref().map(|configuration| wanted(&ground.known, configuration, p90, deadline));
    let lacking = lacking.transpose().map_err(|error| Error::usage(error.what, error.why, ""))?.flatten();
    let told = |wanted: &Wanted| WantedReport {
        limit: wanted.limit.name(),
        factor: wanted.factor,
        value: wanted.value,
        unit: wanted.unit,
    };
    Ok((Vec::new(), Some(line(nearest)), Some(lacking.unwrap_or_default().iter().map(told).collect())))
}

/// The move with the given plan, and a warning if its steps never catch up.
fn moved(request: &Request, ground: &Inputs, asked: &Estimate) -> Result<Option<(CutoverReport, Option<String>)>> {
    let Some((steps, rate)) = request.cutover else { return Ok(None) };
    let (Some(backup), Some(restore)) = (&asked.candidate.backup, &asked.candidate.restore) else {
        let hint = ground.notes.first().cloned().unwrap_or_else(|| "fullbore calibrate".into());
        let name = request.source.name();
        return Err(Error::usage(
            "--plan",
            format!("the profile has no measurements for backup and restore of {name}"),
            hint,
        ));
    };
    let made = cutover(&ground.known, backup, restore, steps, rate);
    let made = made.map_err(|error| Error::usage(error.what, error.why, ""))?;
    let Cutover { beforehand, downtime, last_bytes, moved } = made;
    let falls_behind = (steps.go_on() && rate >= moved).then(|| {
        format!(
            "--change-rate {}/s: backup and restore together move {}/s, so each step has at least as much to move as \
             the previous one: the move never catches up",
            show_bytes(rate as u64),
            show_bytes(moved as u64)
        )
    });
    let of = |interval: Interval| [interval.p10, interval.p50, interval.p90];
    let told = CutoverReport { beforehand_s: of(beforehand), downtime_s: of(downtime), last_bytes: of(last_bytes) };
    Ok(Some((told, falls_behind)))
}
