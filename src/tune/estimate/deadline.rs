//! Which configurations keep a deadline, and what hardware would let one do so.

use super::super::model::{
    CeilingPart, Configuration, Direction, Limit, Parameter, Path, Side, Unpredictable, predict_slowed,
};
use super::{Estimate, Known};

/// What is in the way is raised in steps of this factor.
const STEP: f64 = 1.05;
/// More than this many times as fast is no advice.
const MOST: f64 = 64.0;

/// A ceiling that would have to be higher.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The stage.
    pub limit: Limit,
    /// Times as high.
    pub factor: f64,
    /// What it would have to be; the unit is in `unit`.
    pub value: f64,
    /// `bytes/s`, `1` (processors), `s`.
    pub unit: &'static str,
}

/// Those whose P90 is within `deadline` seconds, least memory first. `time` gives the P90 of what has to be done by then.
pub fn fits(estimates: &[Estimate], deadline: f64, time: impl Fn(&Estimate) -> Option<f64>) -> Vec<&Estimate> {
    let mut fitting: Vec<&Estimate> =
        estimates.iter().filter(|one| time(one).is_some_and(|p90| p90 <= deadline)).collect();
    fitting.sort_by_key(|one| one.candidate.memory_bytes);
    fitting
}

/// What would have to be faster so that `configuration`, whose P90 now is `p90` seconds, keeps `deadline`: ceilings in the order in which they
/// are in the way. `None` where no ceiling helps: what is in the way is the throttle, the pool, or what does not depend on speed.
///
/// # Errors
/// As [`predict_slowed`].
pub fn wanted(
    known: &Known,
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
    // Two that are equal take turns, a step each; each gets to MOST at last.
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

/// `configuration` on so many times as many processors: workers beyond the processors change nothing, and processors beyond the workers neither.
/// A plan has buffers for its workers.
fn with_processors(configuration: &Configuration, times: f64) -> Configuration {
    let workers = (configuration.workers as f64 * times).ceil();
    let buffers = configuration.buffers.scaled(workers / configuration.workers as f64);
    Configuration { workers: workers as u64, buffers, ..configuration.clone() }
}

/// Bytes per second that a device which is read and written at once does in all, as many of each.
fn at_once(path: &Path, direction: Direction) -> Option<f64> {
    let rate = |side: Side| path.side(side).ceiling(direction.way(side)).total_rate;
    let both = 1.0 / rate(Side::Database) + 1.0 / rate(Side::Media);
    path.simultaneous.map(|share| 2.0 * share / both)
}

/// What one would buy more of; nothing where nothing can be bought.
fn raised_by(limit: Limit, direction: Direction) -> Vec<Parameter> {
    let part = |side, part| Parameter::Ceiling(side, direction.way(side), part);
    // One stream of a faster device is faster too; else the next limit would always be that.
    let device = |side| [part(side, CeilingPart::TotalRate), part(side, CeilingPart::StreamRate)];
    match limit {
        Limit::Database => device(Side::Database).to_vec(),
        Limit::Media => device(Side::Media).to_vec(),
        Limit::DatabaseStreams => vec![part(Side::Database, CeilingPart::StreamRate)],
        Limit::Stripes => vec![part(Side::Media, CeilingPart::StreamRate)],
        // A faster one does as much of its sum as before: what it does of the sum cannot be bought, and helps no more beyond 2.
        Limit::SharedDevice => [device(Side::Database), device(Side::Media)].concat(),
        Limit::Transform | Limit::Processor => vec![Parameter::Cores],
        Limit::Throttle | Limit::Pool | Limit::FixedCosts => Vec::new(),
    }
}
