//! The roofline of a path: no configuration is faster.

use super::configuration::Configuration;
use super::path::Path;
use super::predict::{Unpredictable, checked, unlimited};
use super::stations::{Limit, TotalRates, crossing, stations, whole_limit};

/// The highest speed of a path, and its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roofline {
    /// Plain bytes per second.
    pub rate: f64,
    /// The slowest part that no setting changes.
    pub limit: Limit,
}

/// The highest rate of plain bytes with this codec and cipher, for any other settings: with enough streams, workers,
/// buffers and operations in flight, and without a throttle. The remaining limits are each side as a whole, one device
/// for both, and the processors. Burst credit is not counted: this is the lasting speed.
///
/// # Errors
/// As [`predict`](super::predict()); or no part of the path has a ceiling.
pub fn roofline(path: &Path, configuration: &Configuration) -> Result<Roofline, Unpredictable> {
    // One worker for each processor; more would wait for the same ones.
    let workers = path.machine.cores.ceil().max(1.0) as u64;
    let open = Configuration { workers, throttle: None, ..configuration.clone() };
    let codec = checked(path, &open)?;
    let total = |side| path.side(side).ceiling(open.direction.way(side)).total_rate;
    let totals = TotalRates { source: total(open.direction.source()), target: total(open.direction.target()) };
    let stations = stations(path, &open, codec, totals);
    let lasting = stations.all().filter(|station| !matches!(station.limit, Limit::DatabaseStreams | Limit::Stripes));
    let slowest = lasting.max_by(|one, other| one.demand.total_cmp(&other.demand));
    let Some(slowest) = slowest.filter(|station| station.demand > 0.0) else { return Err(unlimited()) };
    // A shared device is the limit only if the sides wait for each other there; else the slower side is the limit.
    let alone = [(open.direction.source(), totals.source), (open.direction.target(), totals.target)];
    let alone = alone.into_iter().find(|(side, total)| crossing(*side, codec) / total >= slowest.demand);
    let limit = match (slowest.limit, alone) {
        (Limit::SharedDevice, Some((side, _))) => whole_limit(side),
        (limit, _) => limit,
    };
    Ok(Roofline { rate: 1.0 / slowest.demand, limit })
}
