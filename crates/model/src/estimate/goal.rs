//! The best configuration for a goal.

use super::Estimate;
use super::{Candidate, KnownPath, estimate};
use crate::throughput::what_if::SAME_SPEED;
use crate::throughput::{Configuration, Prediction, Unpredictable};

/// The number of candidates with a computed interval. An estimate costs a thousand times as much as a glance.
const SHORT_LIST: usize = 24;

/// The job that counts, by a deadline or as fast as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The backup.
    Backup,
    /// The restore.
    Restore,
    /// One after the other.
    Both,
}

/// The first wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Best {
    /// The least time; among those as fast as the fastest, within its interval, the fewest bytes on the media.
    Balanced,
    /// The least time.
    Fastest,
    /// The fewest bytes on the media.
    Smallest,
}

/// The goal of a choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// The first wish.
    pub best: Best,
    /// The job whose time counts.
    pub by: By,
    /// Share of all processors that the backup may take, 0…1.
    pub cpu_limit: Option<f64>,
    /// Seconds within which nine of ten runs must end.
    pub deadline: Option<f64>,
}

/// A candidate at a glance, without its interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Glance {
    /// The candidate.
    pub candidate: Candidate,
    /// Seconds of the job that counts: on the middle path, or P50 after [`rank_by_estimate`].
    pub seconds: f64,
    /// Bytes on the media.
    pub stored_bytes: f64,
    /// Processor seconds of the backup for a plain byte.
    pub cpu_per_byte: f64,
    /// Share of all processors that the backup takes; 0 if only the restore is known.
    pub cpu_share: f64,
}

impl By {
    /// Its name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::Backup => "the backup",
            Self::Restore => "the restore",
            Self::Both => "the backup and its restore",
        }
    }

    /// The time that counts; `None` if it needs an unknown direction.
    pub fn of(self, backup: Option<f64>, restore: Option<f64>) -> Option<f64> {
        match self {
            Self::Backup => backup,
            Self::Restore => restore,
            Self::Both => Some(backup? + restore?),
        }
    }
}

/// Looks at `candidate` on the middle path; `None` if the path does not know the direction that counts.
///
/// # Errors
/// As [`KnownPath::foresee`].
pub fn glance(known: &KnownPath, candidate: Candidate, by: By) -> Result<Option<Glance>, Unpredictable> {
    let foresee = |one: &Option<Configuration>| one.as_ref().map(|one| known.foresee(one)).transpose();
    let (backup, restore) = (foresee(&candidate.backup)?, foresee(&candidate.restore)?);
    let seconds = |made: &Option<Prediction>| made.as_ref().map(|made| made.seconds);
    let of_backup = seconds(&backup);
    let Some(counted) = by.of(of_backup, seconds(&restore)) else { return Ok(None) };
    let plain_bytes = candidate.backup.as_ref().map_or(1.0, |backup| backup.plain_bytes);
    let cpu_seconds = backup.as_ref().map_or(0.0, |backup| backup.cpu_seconds);
    let span = of_backup.unwrap_or(f64::INFINITY) * known.path.machine.cores;
    Ok(Some(Glance {
        seconds: counted,
        stored_bytes: backup.or(restore).map_or(0.0, |one| one.stored_bytes),
        cpu_per_byte: cpu_seconds / plain_bytes,
        cpu_share: cpu_seconds / span,
        candidate,
    }))
}

/// Ranks `glances`: the first [`SHORT_LIST`] of them and `asked` by the P50 of their estimates. The middle of an
/// interval is not the time on the middle path: two configurations may rank differently by the two.
///
/// # Errors
/// As [`estimate`].
pub fn rank_by_estimate(
    known: &KnownPath,
    glances: &mut [Glance],
    asked: &Candidate,
    goal: &Goal,
) -> Result<(), Unpredictable> {
    rank(glances, goal.best);
    let mut listed = glances.len().min(SHORT_LIST);
    if let Some(place) = glances[listed..].iter().position(|one| one.candidate == *asked) {
        glances[listed..].swap(0, place);
        listed += 1;
    }
    for one in &mut glances[..listed] {
        let made = estimate(known, &one.candidate)?;
        one.seconds = made.p50(goal.by).unwrap_or(one.seconds);
        one.stored_bytes = made.stored_bytes.unwrap_or(one.stored_bytes);
    }
    rank(&mut glances[..listed], goal.best);
    Ok(())
}

/// Plain bytes per second at which the use of processors is at most `limit`; `None` if their use is unknown.
pub fn throttle(glance: &Glance, known: &KnownPath, limit: f64) -> Option<f64> {
    Some(limit * known.path.machine.cores / glance.cpu_per_byte).filter(|rate| rate.is_finite())
}

/// Sorts the best first. Values that differ by less than runs of one job count as the same. Among the fastest: first
/// fewer stripes, then fewer bytes, then less memory. Among the smallest: the fastest.
pub fn rank(glances: &mut [Glance], best: Best) {
    let by_time = |glances: &mut [Glance]| {
        in_groups(
            glances,
            |one| one.seconds,
            |same| {
                same.sort_by_key(|one| (one.candidate.stripes, one.stored_bytes as u64, one.candidate.memory_bytes));
            },
        );
    };
    match best {
        // The interval of the first one decides which are as fast ([`smaller_first`]).
        Best::Balanced | Best::Fastest => by_time(glances),
        Best::Smallest => in_groups(glances, |one| one.stored_bytes, by_time),
    }
}

/// Puts ranked glances that end within `seconds` first, the smallest before the others.
pub fn smaller_first(ranked: &mut [Glance], seconds: f64) {
    ranked.sort_by_key(|one| one.seconds > seconds);
    let tied = ranked.partition_point(|one| one.seconds <= seconds);
    rank(&mut ranked[..tied], Best::Smallest);
}

/// Sorts by `value`. Values within [`SAME_SPEED`] of the least of their group are sorted by `within`.
pub(super) fn in_groups<T>(items: &mut [T], value: impl Fn(&T) -> f64, within: impl Fn(&mut [T])) {
    items.sort_by(|one, other| value(one).total_cmp(&value(other)));
    let mut rest = items;
    while let Some(first) = rest.first() {
        let most = value(first) * (1.0 + SAME_SPEED);
        // The first always belongs to its group.
        let count = rest.iter().take_while(|one| value(one) <= most).count().max(1);
        let (same, others) = rest.split_at_mut(count);
        within(same);
        rest = others;
    }
}

/// Families for each destination.
pub const STRIPES_PER_PLACE: [usize; 4] = [1, 2, 4, 8];
/// The factors of the planned BUFFERCOUNT.
pub const BUFFER_FACTORS: [f64; 3] = [0.5, 1.0, 2.0];
/// The most configurations that are compared.
pub const MOST: usize = 200;

/// Sorts by the fastest backup; among equally fast ones (within 1 %), the one with less memory first.
pub fn by_backup(estimates: &mut [Estimate]) {
    let seconds = |estimate: &Estimate| {
        estimate.backup.or(estimate.restore).map_or(f64::INFINITY, |foreseen| foreseen.seconds.p50)
    };
    in_groups(estimates, seconds, |same| same.sort_by_key(|one| one.candidate.memory_bytes));
}
