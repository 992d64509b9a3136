//! Which configurations keep a deadline, and what hardware would let one do so.

use super::super::model::{
    CeilingPart, Configuration, Direction, Limit, Parameter, Path, Side, Unpredictable, predict,
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
/// As [`predict`].
pub fn wanted(
    known: &Known,
    configuration: &Configuration,
    p90: f64,
    deadline: f64,
) -> Result<Option<Vec<Wanted>>, Unpredictable> {
    let mut path = known.path.clone();
    let mut foreseen = predict(&path, configuration)?;
    // The whole interval moves with its middle.
    let enough = foreseen.seconds * deadline / p90;
    let mut raised: Vec<Wanted> = Vec::new();
    // Two that are equal take turns, a step each; each gets to MOST at last.
    while foreseen.seconds > enough {
        let limit = foreseen.limit;
        let Some(parameter) = raised_by(limit, configuration.direction) else { return Ok(None) };
        raise(&parameter, &mut path);
        let value = parameter.of(&path).unwrap_or(f64::NAN);
        match raised.iter_mut().find(|known| known.limit == limit) {
            Some(known) if known.factor > MOST => return Ok(None),
            Some(known) => (known.factor, known.value) = (known.factor * STEP, value),
            None => raised.push(Wanted { limit, factor: STEP, value, unit: parameter.unit() }),
        }
        foreseen = predict(&path, configuration)?;
    }
    Ok(Some(raised))
}

fn raise(parameter: &Parameter, path: &mut Path) {
    parameter.scale(path, STEP);
    // One stream of a faster device is faster too; else the next limit would always be that.
    if let Parameter::Ceiling(side, way, CeilingPart::TotalRate) = parameter {
        Parameter::Ceiling(*side, *way, CeilingPart::StreamRate).scale(path, STEP);
    }
}

/// What one would buy more of.
fn raised_by(limit: Limit, direction: Direction) -> Option<Parameter> {
    let total = |side| Parameter::Ceiling(side, direction.way(side), CeilingPart::TotalRate);
    let stream = |side| Parameter::Ceiling(side, direction.way(side), CeilingPart::StreamRate);
    match limit {
        Limit::Database => Some(total(Side::Database)),
        Limit::Media => Some(total(Side::Media)),
        Limit::DatabaseStreams => Some(stream(Side::Database)),
        Limit::Stripes => Some(stream(Side::Media)),
        Limit::SharedDevice => Some(Parameter::Simultaneous),
        // Workers beyond the processors change nothing, and processors beyond the workers neither: the model takes the lesser.
        Limit::Transform | Limit::Processor => Some(Parameter::Cores),
        Limit::Throttle | Limit::Pool | Limit::FixedCosts => None,
    }
}
