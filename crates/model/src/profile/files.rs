//! The costs of a database's files besides their bytes, from a profile.

use super::scatter::Scatter;
use super::{Access, AccessPattern, Cell, MeasuredPath, Order};
use crate::statistics::median;

/// Operations for reading a file of a few pages. 1,000 more files (a MariaDB with views, 2026-11-23) made 1,000 more
/// reads (`/sys/block`), and took 1.2 s more on a volume with 800 operations a second.
pub(super) const FILE_OPERATIONS: f64 = 1.0;
/// The greatest size of a short operation, in bytes: larger ones show the transfer rate of a place.
const SHORT: u64 = 64 << 10;

/// Seconds for one file of a few pages, and their deviation. To read: those of short operations. To make: as measured.
pub(super) fn of_file(place: &MeasuredPath, way: Access, deviation: f64) -> (f64, f64) {
    if way == Access::Read {
        return (FILE_OPERATIONS * short_seconds(place, way), deviation);
    }
    let files = || place.cells.iter().filter(|cell| cell.shape.order == Order::Files);
    let seconds = files().flat_map(|cell| &cell.rounds).map(|round| round.seconds / round.bytes as f64);
    let bytes = files().map(|cell| cell.shape.block_bytes as f64).next().unwrap_or(0.0);
    let scatter = Scatter::of_rounds(files().map(|cell| &cell.rounds));
    (median(seconds).map_or(0.0, |seconds| seconds * bytes), scatter.deviation().unwrap_or(deviation))
}

/// Seconds of the place for a short operation among others; 0 if none was measured.
fn short_seconds(place: &MeasuredPath, way: Access) -> f64 {
    let short = |cell: &&Cell| {
        let AccessPattern { way: of, order, block_bytes, direct, .. } = cell.shape;
        of == way && order != Order::Files && direct && block_bytes <= SHORT && !cell.rounds.is_empty()
    };
    let operations = place.cells.iter().filter(short).map(|cell| cell.rate() / cell.shape.block_bytes as f64);
    operations.reduce(f64::max).map_or(0.0, |operations| 1.0 / operations)
}
