//! The gain of several streams over one, if it is larger than the scatter of the profile.

use super::path::cells_that_count;
use super::scatter::Scatter;
use super::{Access, MeasuredPath, PathLocation, Profile};
use crate::statistics::median;
use crate::throughput::Headroom;

/// Beyond this number of deviations, the ratio of two cells is not an accident: 95 of 100 are within two.
const DEVIATIONS: f64 = 2.0;

impl Profile {
    /// The headroom of these places together. A place that was not measured has none.
    pub fn headroom(&self, places: &[PathLocation], way: Access) -> Headroom {
        let known = places.iter().filter_map(PathLocation::name).filter_map(|name| self.place_for(name, way));
        let mut places: Vec<usize> = known.collect();
        places.sort_unstable();
        places.dedup();
        let mut devices: Vec<Option<u64>> = places.iter().map(|at| self.places[*at].device).collect();
        devices.sort_unstable();
        // A place in a store has no device number, and counts as one device.
        devices.dedup_by(|one, other| one.is_some() && one == other);
        let measured: Vec<MeasuredPath> = places.iter().map(|at| self.with_its_device(*at)).collect();
        let streams = measured.iter().map(|place| gain(place, way)).sum::<f64>() / places.len().max(1) as f64;
        let cells = measured.iter().flat_map(|place| cells_that_count(place, way));
        // A ratio has the scatter of both its cells.
        let deviation = self.deviation(&Scatter::of_rounds(cells.map(|cell| &cell.rounds)));
        let noise = (DEVIATIONS * std::f64::consts::SQRT_2 * deviation).exp();
        Headroom { devices: devices.len() as u64, streams: streams.max(1.0), noise }
    }
}

/// The greatest factor by which several streams are faster than one. Only cells that differ in nothing else are
/// compared: among many equally fast cells, the fastest is fast by chance.
fn gain(place: &MeasuredPath, way: Access) -> f64 {
    let cells = cells_that_count(place, way);
    let alone = |block: u64, depth: u64| {
        let of =
            |shape: &super::AccessPattern| (shape.block_bytes, shape.queue_depth, shape.streams) == (block, depth, 1);
        cells.iter().find(|cell| of(&cell.shape)).map(|cell| cell.rate())
    };
    let mut ratios: Vec<(u64, f64)> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.shape.streams > 1) {
        if let Some(rate) = alone(cell.shape.block_bytes, cell.shape.queue_depth).filter(|rate| *rate > 0.0) {
            ratios.push((cell.shape.streams, cell.rate() / rate));
        }
    }
    let of_number = |streams: u64| median(ratios.iter().filter(|(of, _)| *of == streams).map(|(_, ratio)| *ratio));
    ratios.iter().filter_map(|(streams, _)| of_number(*streams)).fold(1.0, f64::max)
}
