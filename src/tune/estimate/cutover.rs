//! How long a database is down when it moves: full, differential and log, while it changes.

use super::super::model::{Configuration, Interval, Unpredictable, predict};
use super::Known;

/// What is taken, one after the other.
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
    /// Seconds in which it stands still: the last step.
    pub downtime: Interval,
    /// Bytes of the last step.
    pub last_bytes: Interval,
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

    fn count(self) -> usize {
        1 + usize::from(self.differential) + usize::from(self.log)
    }
}

/// Each step is a backup and its restore; what changes during one step is what the next one has to move. `change_rate` is in bytes per second.
///
/// # Errors
/// As [`predict`].
pub fn cutover(
    known: &Known,
    backup: &Configuration,
    restore: &Configuration,
    steps: Steps,
    change_rate: f64,
) -> Result<Cutover, Unpredictable> {
    let whole = backup.plain_bytes;
    let (mut beforehand, mut downtime, mut last_bytes) = (Vec::new(), Vec::new(), Vec::new());
    for sample in &known.samples {
        let seconds = |bytes: f64| -> Result<f64, Unpredictable> {
            let of = |configuration: &Configuration| {
                let part = Configuration { plain_bytes: bytes.max(1.0), ..configuration.clone() };
                predict(&sample.path, &part)
            };
            Ok((of(backup)?.seconds + of(restore)?.seconds) * sample.factor * known.factor.middle)
        };
        let (mut bytes, mut took, mut before) = (whole, seconds(whole)?, 0.0);
        for _ in 1..steps.count() {
            before += took;
            bytes = (change_rate * took).min(whole);
            took = seconds(bytes)?;
        }
        beforehand.push(before);
        downtime.push(took);
        last_bytes.push(bytes);
    }
    let of = |values| Interval::of(values).unwrap_or(Interval { p10: 0.0, p50: 0.0, p90: 0.0 });
    Ok(Cutover { beforehand: of(beforehand), downtime: of(downtime), last_bytes: of(last_bytes) })
}
