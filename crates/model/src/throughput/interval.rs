//! The uncertainty of a prediction: P10, P50 and P90 from the uncertainty of the parameters and of the model
//! (`docs/MODEL.md` §8).

use super::configuration::Configuration;
use super::parameter::Parameter;
use super::path::Path;
use super::predict::{Unpredictable, predict_slowed};

/// Samples of an interval: with this many, the scatter of a P10 is 2 % of the spread.
pub const SAMPLES: usize = 1024;
/// The seed of the samples: the same question has the same answer.
const SEED: u64 = 6;
/// A share of stored bytes is not sampled above this: a codec that gains nothing stores blocks as they are.
const MOST_STORED: f64 = 1.0;

/// A parameter, and its uncertainty.
#[derive(Debug, Clone, PartialEq)]
pub struct Uncertain {
    /// The parameter.
    pub parameter: Parameter,
    /// Standard deviation of its natural logarithm: 0.1 is about 10 %.
    pub deviation: f64,
}

/// Three quantiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// One of ten is below.
    pub p10: f64,
    /// Half are below.
    pub p50: f64,
    /// One of ten is above.
    pub p90: f64,
}

/// The intervals of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Intervals {
    /// Seconds from start to commit.
    pub seconds: Interval,
    /// Bytes on the media.
    pub stored_bytes: Interval,
    /// Processor seconds.
    pub cpu_seconds: Interval,
}

impl Interval {
    /// The quantiles of these values; `None` without values.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let at = |share: f64| values[(last as f64 * share).round() as usize];
        Some(Self { p10: at(0.1), p50: at(0.5), p90: at(0.9) })
    }

    /// True if `value` is between P10 and P90.
    pub fn covers(&self, value: f64) -> bool {
        (self.p10..=self.p90).contains(&value)
    }
}

/// Factors for parameters: [`SAMPLES`] times one for each deviation, log-normal around 1. The same deviations always
/// give the same factors.
pub fn factors(deviations: &[f64]) -> Vec<Vec<f64>> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut all = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES / 2 {
        let draws: Vec<f64> = deviations.iter().map(|deviation| deviation * normal(&mut random)).collect();
        // In pairs of opposite sign: the mean of the draws is 0 by itself.
        all.push(draws.iter().map(|draw| draw.exp()).collect());
        all.push(draws.iter().map(|draw| (-draw).exp()).collect());
    }
    all
}

/// A possible path, and a possible error of the model.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The path with every uncertain parameter drawn.
    pub path: Path,
    /// The factor by which its hardware is slower than in the model.
    pub slowness: f64,
}

/// [`SAMPLES`] paths. `model_deviation` is the deviation of the model itself, in logarithms of seconds: the spread of a
/// fit's residuals.
///
/// # Errors
/// A deviation is not a number from 0 on.
pub fn samples(path: &Path, uncertain: &[Uncertain], model_deviation: f64) -> Result<Vec<Sample>, Unpredictable> {
    let mut deviations: Vec<f64> = uncertain.iter().map(|what| what.deviation).collect();
    if let Some(wrong) = deviations.iter().chain([&model_deviation]).find(|one| !(**one >= 0.0 && one.is_finite())) {
        return Err(Unpredictable { what: "deviation".into(), why: format!("{wrong} is not a number from 0 on") });
    }
    deviations.push(model_deviation);
    let sampled = |factors: Vec<f64>| {
        let mut sampled = path.clone();
        for (what, factor) in uncertain.iter().zip(&factors) {
            what.parameter.scale(&mut sampled, *factor);
        }
        for codec in &mut sampled.codecs {
            let most = path.codec(&codec.name).map_or(MOST_STORED, |known| known.stored_share.max(MOST_STORED));
            codec.stored_share = codec.stored_share.min(most);
        }
        Sample { path: sampled, slowness: factors[uncertain.len()] }
    };
    Ok(factors(&deviations).into_iter().map(sampled).collect())
}

/// The intervals of `configuration` on `path`. `model_deviation` is as for [`samples`].
///
/// # Errors
/// As [`samples`] and [`interval_of`].
pub fn interval(
    path: &Path,
    configuration: &Configuration,
    uncertain: &[Uncertain],
    model_deviation: f64,
) -> Result<Intervals, Unpredictable> {
    interval_of(&samples(path, uncertain, model_deviation)?, configuration)
}

/// The intervals of `configuration` over paths that were drawn before.
///
/// # Errors
/// As [`predict_slowed`]; also if a drawn parameter is outside of its possible values.
pub fn interval_of(samples: &[Sample], configuration: &Configuration) -> Result<Intervals, Unpredictable> {
    let (mut seconds, mut stored, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for Sample { path, slowness } in samples {
        let foreseen = predict_slowed(path, configuration, *slowness)?;
        seconds.push(foreseen.seconds);
        stored.push(foreseen.stored_bytes);
        cpu.push(foreseen.cpu_seconds);
    }
    let of = |values| Interval::of(values).unwrap_or(Interval { p10: 0.0, p50: 0.0, p90: 0.0 });
    Ok(Intervals { seconds: of(seconds), stored_bytes: of(stored), cpu_seconds: of(cpu) })
}

/// A standard normal number: Box and Muller, 1958.
fn normal(random: &mut fastrand::Rng) -> f64 {
    let above_zero = 1.0 - random.f64();
    (-2.0 * above_zero.ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}
