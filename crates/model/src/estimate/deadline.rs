//! The configurations that meet a deadline, and the hardware that a configuration needs to meet it.

use super::{Estimate, KnownPath};
use crate::throughput::{
    CeilingPart, Configuration, Direction, Limit, Parameter, Path, Side, Unpredictable, predict_slowed,
};

/// The limiting ceiling is raised in steps of this factor.
const STEP: f64 = 1.05;
/// The greatest factor of an advice.
const MOST: f64 = 64.0;

/// A ceiling that would have to be higher.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The stage.
    pub limit: Limit,
    /// The factor of the increase.
    pub factor: f64,
    /// The required value, in `unit`.
    pub value: f64,
    /// `bytes/s`, `1` (processors), `s`.
    pub unit: &'static str,
}

/// The estimates with a P90 within `deadline` seconds, least memory first. `time` gives the P90 that counts.
pub fn fits(estimates: &[Estimate], deadline: f64, time: impl Fn(&Estimate) -> Option<f64>) -> Vec<&Estimate> {
    let mut fitting: Vec<&Estimate> =
        estimates.iter().filter(|one| time(one).is_some_and(|p90| p90 <= deadline)).collect();
    fitting.sort_by_key(|one| one.candidate.memory_bytes);
    fitting
}

/// The ceilings that must be higher so that `configuration`, with a P90 of `p90` seconds now, meets `deadline`, in the
/// order in which they are the limit. `None` if no ceiling helps: the limit is the throttle, the pool, or a fixed cost.
///
/// # Errors
/// As [`predict_slowed`].
pub fn wanted(
    known: &KnownPath,
    configuration: &Configuration,
    p90: f64,
    deadline: f64,
) -> Result<Option<Vec<Wanted>>, Unpredictable> {
    let (mut path, mut bought) = (known.path.clone(), configuration.clone());
    let slowness = known.factor.middle;
    let mut foreseen = predict_slowed(&path, &bought, slowness)?;
    // The whole interval moves with its middle.
    let enough = foreseen.seconds * deadline / p90;
    let mut raised: Vec<Wanted> = Vec::new();
    // Two equal limits take turns, a step each; each reaches MOST in the end.
    while foreseen.seconds > enough {
        let limit = foreseen.limit;
        let parameters = raised_by(limit, configuration.direction);
        let Some(first) = parameters.first() else { return Ok(None) };
        parameters.iter().for_each(|parameter| parameter.scale(&mut path, STEP));
        bought = with_processors(configuration, path.machine.cores / known.path.machine.cores);
        let value =
            if limit == Limit::SharedDevice { at_once(&path, configuration.direction) } else { first.of(&path) };
        let value = value.unwrap_or(f64::NAN);
        match raised.iter_mut().find(|known| known.limit == limit) {
            Some(known) if known.factor > MOST => return Ok(None),
            Some(known) => (known.factor, known.value) = (known.factor * STEP, value),
            None => raised.push(Wanted { limit, factor: STEP, value, unit: first.unit() }),
        }
        foreseen = predict_slowed(&path, &bought, slowness)?;
    }
    Ok(Some(raised))
}

/// `configuration` on `times` as many processors. Workers beyond the processors change nothing, nor do processors
/// beyond the workers. A plan has buffers for its workers.
fn with_processors(configuration: &Configuration, times: f64) -> Configuration {
    let workers = (configuration.workers as f64 * times).ceil();
    let buffers = configuration.buffers.scaled(workers / configuration.workers as f64);
    Configuration { workers: workers as u64, buffers, ..configuration.clone() }
}

/// Total bytes per second of a device that is read and written at once, with equal amounts.
fn at_once(path: &Path, direction: Direction) -> Option<f64> {
    let rate = |side: Side| path.side(side).ceiling(direction.way(side)).total_rate;
    let both = 1.0 / rate(Side::Database) + 1.0 / rate(Side::Media);
    path.simultaneous.map(|share| 2.0 * share / both)
}

/// The hardware parameters that could be raised; none if no hardware helps.
fn raised_by(limit: Limit, direction: Direction) -> Vec<Parameter> {
    let part = |side, part| Parameter::Ceiling(side, direction.way(side), part);
    // On a faster device, one stream is faster too; otherwise one stream would always be the next limit.
    let device = |side| [part(side, CeilingPart::TotalRate), part(side, CeilingPart::StreamRate)];
    match limit {
        Limit::Database => device(Side::Database).to_vec(),
        Limit::Media => device(Side::Media).to_vec(),
        Limit::DatabaseStreams => vec![part(Side::Database, CeilingPart::StreamRate)],
        Limit::Stripes => vec![part(Side::Media, CeilingPart::StreamRate)],
        // A faster device does the same share of its sum as before. The share itself cannot be bought, and has no
        // effect beyond 2.
        Limit::SharedDevice => [device(Side::Database), device(Side::Media)].concat(),
        Limit::Transform | Limit::Processor => vec![Parameter::Cores],
        Limit::Throttle | Limit::Pool | Limit::FixedCosts => Vec::new(),
    }
}
