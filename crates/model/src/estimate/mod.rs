//! The estimate of a job before any byte moves (`docs/ESTIMATE.md`). Pure: the caller gives the question, and a path
//! with its uncertainty.

mod cutover;
mod deadline;
mod goal;
#[cfg(test)]
mod tests;

use fullbore_core::codec::Compression;

use crate::throughput::{
    Configuration, Interval, Limit, Path, Prediction, Sample, Uncertain, Unpredictable, interval_of, predict_slowed,
    samples,
};

pub use cutover::{Cutover, Steps, cutover};
pub use deadline::{Wanted, fits, wanted};
pub use goal::{
    BUFFER_FACTORS, Best, By, Glance, Goal, MOST, STRIPES_PER_PLACE, by_backup, glance, rank_by_estimate,
    smaller_first, throttle,
};

/// A path, and the correction of the model for it.
#[derive(Debug, Clone)]
pub struct KnownPath {
    /// The path.
    pub path: Path,
    /// The factor by which the hardware is slower than in the model, with its uncertainty.
    pub factor: Factor,
    /// The possible paths, with the factor: drawn once, so that all estimates use the same samples.
    samples: Vec<Sample>,
}

impl KnownPath {
    /// `uncertain` has the uncertainty of the parameters of `path`.
    ///
    /// # Errors
    /// A deviation is not a number from 0 on.
    pub fn new(path: Path, uncertain: &[Uncertain], factor: Factor) -> Result<Self, Unpredictable> {
        let mut samples = samples(&path, uncertain, factor.deviation)?;
        samples.iter_mut().for_each(|sample| sample.slowness *= factor.middle);
        Ok(Self { path, factor, samples })
    }

    /// The middle prediction for `configuration`. The learned factor is about the hardware: a throttle does not change
    /// with it.
    ///
    /// # Errors
    /// As [`predict_slowed`].
    pub fn foresee(&self, configuration: &Configuration) -> Result<Prediction, Unpredictable> {
        predict_slowed(&self.path, configuration, self.factor.middle)
    }
}

/// One way to make a backup, and to restore it. One of the two is missing if its path is not known.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The codec.
    pub compression: Compression,
    /// Families.
    pub stripes: u64,
    /// BUFFERCOUNT of the backup.
    pub buffer_count: u64,
    /// Transform threads of the backup.
    pub workers: u64,
    /// Plain bytes per second that the backup reads at most.
    pub throttle: Option<u64>,
    /// Memory of the backup in bytes: pool, codec contexts and the rest.
    pub memory_bytes: u64,
    /// The backup.
    pub backup: Option<Configuration>,
    /// The restore.
    pub restore: Option<Configuration>,
}

/// Time and limit of one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Foreseen {
    /// Seconds from start to commit.
    pub seconds: Interval,
    /// The limit of the time.
    pub limit: Limit,
    /// Processor seconds, P50.
    pub cpu_seconds: f64,
}

/// The estimate of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The candidate.
    pub candidate: Candidate,
    /// The backup.
    pub backup: Option<Foreseen>,
    /// The restore.
    pub restore: Option<Foreseen>,
    /// Bytes on the media, P50; `None` if only a restore is estimated.
    pub stored_bytes: Option<f64>,
}

impl Estimate {
    /// The P90 of the seconds that count: nine of ten runs are within it. For both jobs in a row at least nine of ten,
    /// because it is the sum of both P90.
    pub fn p90(&self, by: By) -> Option<f64> {
        self.seconds(by, |seconds| seconds.p90)
    }

    /// The P50 of the seconds that count, which an estimate prints first. For both jobs in a row, the sum.
    pub fn p50(&self, by: By) -> Option<f64> {
        self.seconds(by, |seconds| seconds.p50)
    }

    fn seconds(&self, by: By, quantile: impl Fn(Interval) -> f64) -> Option<f64> {
        let of = |foreseen: Option<Foreseen>| foreseen.map(|foreseen| quantile(foreseen.seconds));
        by.of(of(self.backup), of(self.restore))
    }
}

/// The estimate of `candidate`.
///
/// # Errors
/// As [`predict_slowed`].
pub fn estimate(known: &KnownPath, candidate: &Candidate) -> Result<Estimate, Unpredictable> {
    let mut stored_bytes = None;
    let mut foresee = |configuration: &Configuration| -> Result<Foreseen, Unpredictable> {
        let intervals = interval_of(&known.samples, configuration)?;
        stored_bytes.get_or_insert(intervals.stored_bytes.p50);
        Ok(Foreseen {
            seconds: intervals.seconds,
            limit: known.foresee(configuration)?.limit,
            cpu_seconds: intervals.cpu_seconds.p50,
        })
    };
    let backup = candidate.backup.as_ref().map(&mut foresee).transpose()?;
    let restore = candidate.restore.as_ref().map(&mut foresee).transpose()?;
    Ok(Estimate { candidate: candidate.clone(), backup, restore, stored_bytes })
}

/// Standard deviation of the logarithm of observed over predicted seconds on a calibrated path, before any observation.
/// Measured values, which include the uncertainty of the parameters:
/// - 0.08 on volumes of known speed (`bench/results/foresee-2026-11-22.md`: 96 % of 80 predictions were within the
///   interval with the value below)
/// - 0.44 for jobs of one second on a fast disk (`foresee-uncapped-2026-11-22.md`): there, start and end of a job
///   count, and no profile had them at that time
///
/// This is twice the first value: a device is less even than a cap.
const UNTRIED: f64 = 0.15;

/// A run that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// Seconds that it took.
    pub seconds: f64,
    /// Seconds by the model.
    pub predicted: f64,
}

/// The factor by which the hardware is slower than in the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factor {
    /// The middle.
    pub middle: f64,
    /// Standard deviation of its logarithm, for a single run.
    pub deviation: f64,
    /// The number of runs that it was learned from.
    pub runs: usize,
}

impl Factor {
    /// The factor without observations.
    pub fn untried() -> Self {
        Self { middle: 1.0, deviation: UNTRIED, runs: 0 }
    }
}

/// The factor from these runs. One more run that agrees with the model is added, so that a single odd run has little
/// weight.
pub fn learn(runs: &[Observed]) -> Factor {
    let usable = runs.iter().filter(|run| run.seconds > 0.0 && run.predicted > 0.0 && run.predicted.is_finite());
    let logs: Vec<f64> = usable.map(|run| (run.seconds / run.predicted).ln()).filter(|log| log.is_finite()).collect();
    let weight = logs.len() as f64 + 1.0;
    let mean = logs.iter().sum::<f64>() / weight;
    // The prior counts as one deviation of UNTRIED. The uncertainty of the mean itself adds 1 / `weight` of the
    // variance.
    let scatter = (UNTRIED.powi(2) + logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>()) / weight;
    Factor { middle: mean.exp(), deviation: (scatter * (1.0 + 1.0 / weight)).sqrt(), runs: logs.len() }
}
