//! How much faster several streams are than one, as far as a profile can tell that from its own scatter.

use super::path::cells_that_count;
use super::scatter::Scatter;
use super::{Place, Profile, Way, Whereabouts};
use crate::tune::model::Headroom;
use crate::tune::statistics::median;

/// Deviations of a ratio of two cells beyond which it is no accident: 95 of 100 are within two.
const DEVIATIONS: f64 = 2.0;

impl Profile {
    /// Of these places together. What was not measured has no headroom.
    pub fn headroom(&self, places: &[Whereabouts], way: Way) -> Headroom {
        let known = places.iter().filter_map(Whereabouts::name).filter_map(|name| self.place_for(name, way));
        let mut places: Vec<usize> = known.collect();
        places.sort_unstable();
        places.dedup();
        let mut devices: Vec<Option<u64>> = places.iter().map(|at| self.places[*at].device).collect();
        devices.sort_unstable();
        // Those of stores have no number, and each is one.
        devices.dedup_by(|one, other| one.is_some() && one == other);
        let measured: Vec<Place> = places.iter().map(|at| self.with_its_device(*at)).collect();
        let streams = measured.iter().map(|place| gain(place, way)).sum::<f64>() / places.len().max(1) as f64;
        let cells = measured.iter().flat_map(|place| cells_that_count(place, way));
        // A ratio has the scatter of both its cells.
        let deviation = self.deviation(&Scatter::of_rounds(cells.map(|cell| &cell.rounds)));
        let noise = (DEVIATIONS * std::f64::consts::SQRT_2 * deviation).exp();
        Headroom { devices: devices.len() as u64, streams: streams.max(1.0), noise }
    }
}

/// How many times as fast several streams are as one, at most. Only cells are compared that differ in nothing else: of many cells that are as
/// fast as each other, the fastest is the one that was lucky.
fn gain(place: &Place, way: Way) -> f64 {
    let cells = cells_that_count(place, way);
    let alone = |block: u64, depth: u64| {
        let of = |shape: &super::Shape| (shape.block_bytes, shape.queue_depth, shape.streams) == (block, depth, 1);
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
