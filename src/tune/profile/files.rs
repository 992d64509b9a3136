//! What a database of many files costs besides their bytes, as far as a profile tells.

use super::scatter::Scatter;
use super::{Cell, Order, Place, Shape, Way};
use crate::tune::statistics::median;

/// Operations for reading a file of a few pages: 1,000 files more were 1,000 reads more (`/sys/block`), and 1.2 s on a volume with 800 operations a second
/// (a MariaDB with so many views, 2026-11-23).
pub(super) const FILE_OPERATIONS: f64 = 1.0;
/// Bytes of an operation that is short: larger ones say what a place transfers.
const SHORT: u64 = 64 << 10;

/// Seconds for one file of a few pages, and how well they are known: to read, those of short operations; to make, as it was measured.
pub(super) fn of_file(place: &Place, way: Way, deviation: f64) -> (f64, f64) {
    if way == Way::Read {
        return (FILE_OPERATIONS * short_seconds(place, way), deviation);
    }
    let files = || place.cells.iter().filter(|cell| cell.shape.order == Order::Files);
    let seconds = files().flat_map(|cell| &cell.rounds).map(|round| round.seconds / round.bytes as f64);
    let bytes = files().map(|cell| cell.shape.block_bytes as f64).next().unwrap_or(0.0);
    let scatter = Scatter::of_rounds(files().map(|cell| &cell.rounds));
    (median(seconds).map_or(0.0, |seconds| seconds * bytes), scatter.deviation().unwrap_or(deviation))
}

/// Seconds of the place for a short operation among others; 0 where none was measured.
fn short_seconds(place: &Place, way: Way) -> f64 {
    let short = |cell: &&Cell| {
        let Shape { way: of, order, block_bytes, direct, .. } = cell.shape;
        of == way && order != Order::Files && direct && block_bytes <= SHORT && !cell.rounds.is_empty()
    };
    let operations = place.cells.iter().filter(short).map(|cell| cell.rate() / cell.shape.block_bytes as f64);
    operations.reduce(f64::max).map_or(0.0, |operations| 1.0 / operations)
}
