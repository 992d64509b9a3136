//! The downtime of a database when it moves: full, differential and log, while it changes.

use super::KnownPath;
use crate::throughput::{Configuration, Interval, Sample, Unpredictable, predict_slowed};

/// The steps, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// A differential after the full.
    pub differential: bool,
    /// A log last.
    pub log: bool,
}

/// Times of a cut-over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cutover {
    /// Seconds in which the database works as usual: all steps but the last.
    pub beforehand: Interval,
    /// Seconds in which the database is down: the last step.
    pub downtime: Interval,
    /// Bytes of the last step.
    pub last_bytes: Interval,
    /// The middle of the plain bytes per second that backup and restore move, one after the other. If a database
    /// changes faster, the amount to move never becomes smaller.
    pub moved: f64,
}

/// The kind of a step after the full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Differential,
    Log,
}

impl Steps {
    /// From `full`, `full+diff`, `full+log` or `full+diff+log`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "full" => Some(Self { differential: false, log: false }),
            "full+diff" => Some(Self { differential: true, log: false }),
            "full+log" => Some(Self { differential: false, log: true }),
            "full+diff+log" => Some(Self { differential: true, log: true }),
            _ => None,
        }
    }

    /// True if a step follows the full.
    pub fn go_on(self) -> bool {
        self.differential || self.log
    }

    fn behind_the_full(self) -> impl Iterator<Item = Step> {
        self.differential.then_some(Step::Differential).into_iter().chain(self.log.then_some(Step::Log))
    }
}

/// Each step is a backup and its restore. The changes during one step are the amount of the next step. A differential
/// also reads the whole database. `change_rate` is in bytes per second.
///
/// # Errors
/// As [`predict_slowed`].
pub fn cutover(
    known: &KnownPath,
    backup: &Configuration,
    restore: &Configuration,
    steps: Steps,
    change_rate: f64,
) -> Result<Cutover, Unpredictable> {
    let whole = backup.plain_bytes;
    let (mut beforehand, mut downtime, mut last_bytes, mut whole_took) = (vec![], vec![], vec![], vec![]);
    for sample in &known.samples {
        let moves = |bytes: f64| Ok(part(sample, backup, bytes)? + part(sample, restore, bytes)?);
        let (mut bytes, mut took, mut before) = (whole, moves(whole)?, 0.0);
        whole_took.push(took);
        for step in steps.behind_the_full() {
            before += took;
            let changed = change_rate * took;
            // A page that changes twice is once in a differential, and twice in a log.
            (bytes, took) = match step {
                Step::Differential => {
                    let changed = changed.min(whole);
                    (changed, differential(sample, backup, changed)? + part(sample, restore, changed)?)
                }
                Step::Log => (changed, moves(changed)?),
            };
        }
        beforehand.push(before);
        downtime.push(took);
        last_bytes.push(bytes);
    }
    let of = |values| Interval::of(values).unwrap_or(Interval { p10: 0.0, p50: 0.0, p90: 0.0 });
    let moved = whole / of(whole_took).p50;
    Ok(Cutover { beforehand: of(beforehand), downtime: of(downtime), last_bytes: of(last_bytes), moved })
}

/// Seconds of the same job for this many bytes.
fn part(sample: &Sample, configuration: &Configuration, bytes: f64) -> Result<f64, Unpredictable> {
    let part = Configuration { plain_bytes: bytes.max(1.0), ..configuration.clone() };
    Ok(predict_slowed(&sample.path, &part, sample.slowness)?.seconds)
}

/// Seconds of the backup of a differential: the whole database is read and hashed; the changes are packed and stored.
fn differential(sample: &Sample, backup: &Configuration, changed: f64) -> Result<f64, Unpredictable> {
    let share = changed.max(1.0) / backup.plain_bytes.max(1.0);
    let mut path = sample.path.clone();
    for codec in &mut path.codecs {
        codec.pack *= share;
        codec.stored_share *= share;
    }
    Ok(predict_slowed(&path, backup, sample.slowness)?.seconds)
}
