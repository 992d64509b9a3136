//! The correction of the model by earlier runs of the same database: a factor on the seconds of the hardware, and its
//! uncertainty.

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
