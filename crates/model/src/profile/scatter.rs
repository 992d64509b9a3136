//! The scatter of repeated measurements, and from it the scatter of single ones (`docs/CALIBRATION.md`, section 4); and
//! the gain of several streams over one, if it is larger than the scatter.

use super::path::cells_that_count;
use super::{Access, AccessPattern, MeasuredPath, PathLocation, Profile, Round};
use crate::statistics::median;
use crate::throughput::Headroom;

/// Below this deviation of a logarithm, measurements count as equal: runs of one job differ by as much.
pub(super) const LEAST_DEVIATION: f64 = 0.01;
/// Beyond this deviation, only the order of magnitude of a parameter is known.
pub(super) const MOST_DEVIATION: f64 = 1.0;
/// The least number of distances for a deviation. Fewer may agree by chance, or contain a round in which the disk
/// stalled.
const ENOUGH: usize = 5;
/// The deviation without enough repeats: an assumption, about the value of the disks of one shared virtual machine.
const UNREPEATED: f64 = 0.15;
/// The standard deviation of a normal distribution, as a multiple of the median distance from its middle.
const OF_NORMAL: f64 = 1.4826;

/// Distances of logarithms from the median of their cell.
#[derive(Debug, Default)]
pub(super) struct Scatter(Vec<f64>);

impl Scatter {
    /// From rates or times, cell by cell.
    pub fn of<'a>(cells: impl IntoIterator<Item = &'a [f64]>) -> Self {
        let mut scatter = Self::default();
        cells.into_iter().for_each(|cell| scatter.add(cell.iter().copied()));
        scatter
    }

    /// From the rates of rounds, cell by cell.
    pub fn of_rounds<'a>(cells: impl IntoIterator<Item = &'a Vec<Round>>) -> Self {
        let mut scatter = Self::default();
        cells.into_iter().for_each(|rounds| scatter.add(rounds.iter().map(Round::rate)));
        scatter
    }

    fn add(&mut self, values: impl Iterator<Item = f64>) {
        let logs: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::ln).collect();
        let Some(middle) = median(logs.iter().copied()) else { return };
        let mut distances: Vec<f64> = logs.iter().map(|log| (log - middle).abs()).collect();
        distances.sort_by(f64::total_cmp);
        // One of them is the median, and has no information.
        self.0.extend(distances.into_iter().skip(1));
    }

    /// The standard deviation, from the median distance: so a few stalled rounds do not count. `None` with too few
    /// repeats.
    pub fn deviation(&self) -> Option<f64> {
        let enough = self.0.len() >= ENOUGH;
        let distance = median(self.0.iter().copied()).filter(|_| enough)?;
        Some((OF_NORMAL * distance).clamp(LEAST_DEVIATION, MOST_DEVIATION))
    }
}

impl Profile {
    /// The deviation of `scatter`, or else of all rounds of this profile together.
    pub(super) fn deviation(&self, scatter: &Scatter) -> f64 {
        scatter.deviation().unwrap_or_else(|| self.usual_deviation())
    }

    /// The deviation of a measurement with too few repeats.
    pub(super) fn usual_deviation(&self) -> f64 {
        let places = self.places.iter().flat_map(|place| &place.cells).map(|cell| &cell.rounds);
        let codecs = self.codecs.iter().flat_map(|cell| [&cell.pack, &cell.unpack]);
        let works = [&self.checksums, &self.ciphers].into_iter().flatten().map(|cell| &cell.rounds);
        Scatter::of_rounds(places.chain(codecs).chain(works)).deviation().unwrap_or(UNREPEATED)
    }
}

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
        let of = |shape: &AccessPattern| (shape.block_bytes, shape.queue_depth, shape.streams) == (block, depth, 1);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Cells of three rounds that differ by about `share`.
    fn cells(share: f64) -> Vec<Vec<f64>> {
        (0..20).map(|at| vec![100.0, 100.0 * (1.0 + share), 100.0 / (1.0 + share * f64::from(at % 2))]).collect()
    }

    fn deviation(cells: &[Vec<f64>]) -> Option<f64> {
        Scatter::of(cells.iter().map(Vec::as_slice)).deviation()
    }

    #[test]
    fn a_round_that_stalled_does_not_make_everything_uncertain() {
        let mut cells = cells(0.05);
        let before = deviation(&cells).unwrap();
        assert!((0.04..0.1).contains(&before), "{before}");
        cells[3][0] = 10.0;
        cells.push(vec![54.0, 487.0]);
        let after = deviation(&cells).unwrap();
        assert!((after / before - 1.0).abs() < 0.2, "{before} {after}");
    }

    #[test]
    fn a_few_repeated_rounds_tell_no_deviation() {
        assert_eq!(deviation(&[vec![100.0, 50.0], vec![7.0], vec![3.0, 3.0, 4.0]]), None);
        assert_eq!(deviation(&vec![vec![100.0, 100.0]; 5]), Some(LEAST_DEVIATION));
    }
}
