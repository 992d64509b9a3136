//! What earlier runs of the same database say of the model here: a factor on the seconds of the hardware, and how sure that is.

/// Standard deviation of the logarithm of observed over predicted seconds on a path that was calibrated, before anything was observed. Measured,
/// with the uncertainty of the parameters in it: 0.08 on volumes of known speed (`bench/results/foresee-2026-11-22.md`, 80 predictions, of which 96 %
/// were within the interval with the value below), 0.44 for jobs of one second on a fast disk, where start and end of a job count, which were in no
/// profile then (`foresee-uncapped-2026-11-22.md`). Twice the first: a device is less even than a cap.
const UNTRIED: f64 = 0.15;

/// A run that is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// Seconds that it took.
    pub seconds: f64,
    /// Seconds that the model gives for it.
    pub predicted: f64,
}

/// How many times as long as the model says the hardware takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factor {
    /// The middle.
    pub middle: f64,
    /// Standard deviation of its logarithm, that of a single run.
    pub deviation: f64,
    /// Runs that it was learned from.
    pub runs: usize,
}

impl Factor {
    /// Nothing was observed.
    pub fn untried() -> Self {
        Self { middle: 1.0, deviation: UNTRIED, runs: 0 }
    }
}

/// What these runs say. Beside them stands one run that agreed with the model, so that a single odd one does not turn everything over.
pub fn learn(runs: &[Observed]) -> Factor {
    let usable = runs.iter().filter(|run| run.seconds > 0.0 && run.predicted > 0.0 && run.predicted.is_finite());
    let logs: Vec<f64> = usable.map(|run| (run.seconds / run.predicted).ln()).filter(|log| log.is_finite()).collect();
    let weight = logs.len() as f64 + 1.0;
    let mean = logs.iter().sum::<f64>() / weight;
    // The prior counts as one deviation of UNTRIED; the mean itself is uncertain by one part in as many runs.
    let scatter = (UNTRIED.powi(2) + logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>()) / weight;
    Factor { middle: mean.exp(), deviation: (scatter * (1.0 + 1.0 / weight)).sqrt(), runs: logs.len() }
}
