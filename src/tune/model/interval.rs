//! How sure a prediction is: P10, P50 and P90 from what is uncertain in the parameters and in the model (`docs/MODEL.md` §8).

use super::configuration::Configuration;
use super::parameter::Parameter;
use super::path::Path;
use super::predict::{Unpredictable, predict};

/// Samples of an interval: the scatter of a P10 of so many is 2 % of the spread.
pub const SAMPLES: usize = 1024;
/// Where samples begin: the same question has the same answer.
const SEED: u64 = 6;
/// A share of stored bytes is not sampled above this: a codec that gains nothing stores blocks as they are.
const MOST_STORED: f64 = 1.0;

/// A parameter, and how well it is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Uncertain {
    /// Which.
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

/// What is uncertain about a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Intervals {
    /// Seconds from start to commit.
    pub seconds: Interval,
    /// Bytes on the media.
    pub stored_bytes: Interval,
    /// Processor seconds.
    pub cpu_seconds: Interval,
}

/// The intervals of `configuration` on `path`. `model_deviation` is that of the model itself, in logarithms of seconds: the spread of a
/// fit's residuals.
///
/// # Errors
/// As [`predict`]; also where a parameter leaves what is possible by its uncertainty alone.
pub fn interval(
    path: &Path,
    configuration: &Configuration,
    uncertain: &[Uncertain],
    model_deviation: f64,
) -> Result<Intervals, Unpredictable> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let (mut seconds, mut stored, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SAMPLES / 2 {
        let model = normal(&mut random);
        let draws: Vec<f64> = uncertain.iter().map(|_| normal(&mut random)).collect();
        // In pairs of opposite sign: the mean of the draws is 0 by itself.
        for sign in [1.0, -1.0] {
            let mut sampled = path.clone();
            for (what, draw) in uncertain.iter().zip(&draws) {
                what.parameter.scale(&mut sampled, (sign * draw * what.deviation).exp());
            }
            for codec in &mut sampled.codecs {
                let most = path.codec(&codec.name).map_or(MOST_STORED, |known| known.stored_share.max(MOST_STORED));
                codec.stored_share = codec.stored_share.min(most);
            }
            let foreseen = predict(&sampled, configuration)?;
            seconds.push(foreseen.seconds * (sign * model * model_deviation).exp());
            stored.push(foreseen.stored_bytes);
            cpu.push(foreseen.cpu_seconds);
        }
    }
    Ok(Intervals { seconds: quantiles(seconds), stored_bytes: quantiles(stored), cpu_seconds: quantiles(cpu) })
}

fn quantiles(mut values: Vec<f64>) -> Interval {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    Interval { p10: at(0.1), p50: at(0.5), p90: at(0.9) }
}

/// A standard normal number: Box and Muller, 1958.
fn normal(random: &mut fastrand::Rng) -> f64 {
    let above_zero = 1.0 - random.f64();
    (-2.0 * above_zero.ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}
