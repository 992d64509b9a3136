//! The speed of a place with operations of one size, from cells of this size or the sizes around it
//! (`docs/CALIBRATION.md`, section 4). Also the
//! costs besides the bytes: those of a database's files, and those of a job.

use fullbore_core::sink::LEAST_PART;

use super::path::{Calibrated, cells_that_count};
use super::scatter::{MOST_DEVIATION, Scatter};
use super::{Access, AccessPattern, Cell, JobCost, MeasuredPath, Order, Profile, Round};
use crate::statistics::median;
use crate::throughput::{Ceiling, Direction, Parameter, Uncertain};

/// The rates of one group differ at most by this share: rounds of one volume under one cap differ by less.
const ALIKE: f64 = 0.05;

/// A cell is contradicted if its operations take this many times as long as larger ones.
const TOO_LONG: f64 = 2.0;

/// The operations of a job on one side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operations {
    /// Bytes of one: MAXTRANSFERSIZE.
    pub bytes: u64,
    /// Each stream has one operation in flight, as readers and writers of a database do.
    pub one_at_a_time: bool,
    /// The greatest number of files.
    pub files: u64,
}

/// One direction of one place.
pub(super) struct Measured {
    pub ceiling: Ceiling,
    pub deviation: f64,
    pub latency_deviation: f64,
    pub commit: f64,
    /// Seconds for one file of a few pages, besides its bytes.
    pub file_seconds: f64,
    pub file_deviation: f64,
}

/// The figures of `place` in that direction. `usual` is the deviation of cells with too few rounds. For a store, parts
/// and ranges count, not buffers; it has no cap of their number, because they can be larger.
pub(super) fn measured(place: &MeasuredPath, way: Access, operations: &Operations, usual: f64) -> Option<Measured> {
    let in_store = place.is_in_store();
    let (transfer, largest) = if in_store { (LEAST_PART, u64::MAX) } else { (operations.bytes, operations.bytes) };
    let mut cells = cells_that_count(place, way);
    if cells.iter().any(|cell| cell.shape.streams <= operations.files) {
        cells.retain(|cell| cell.shape.streams <= operations.files);
    }
    // Larger operations than those of the job move more bytes. So the next measured size is used.
    let next = cells.iter().map(|cell| cell.shape.block_bytes).filter(|block| *block >= transfer).min();
    if let (Some(next), false) = (next, in_store) {
        cells.retain(|cell| cell.shape.block_bytes <= next);
    }
    let of_bytes = place.cells.iter().filter(|cell| cell.shape.way == way && cell.shape.order != Order::Files);
    let deviation = Scatter::of_rounds(of_bytes.map(|cell| &cell.rounds)).deviation().unwrap_or(usual);
    let total_rate = ceiling(&cells, largest)?;
    let alone: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.shape.streams == 1).collect();
    let stream_rate = ceiling(&alone, largest).unwrap_or(total_rate);
    let whole = of_operation(
        operations_alone(&alone).into_iter().map(|cell| (cell.shape.block_bytes, seconds_each(cell))),
        transfer,
    );
    // An operation takes no longer than a larger one, or one with others beside it. If it does, the device stalled.
    let larger = alone.iter().filter(|cell| cell.shape.block_bytes >= transfer).map(|cell| seconds_each(cell));
    let whole = whole.map(|whole| larger.fold(whole, f64::min));
    let (latency, latency_deviation) = whole.map_or((0.0, 0.0), |whole| {
        let transfer = transfer as f64 / stream_rate;
        let latency = (whole - transfer).max(0.0);
        // The difference of two uncertain times.
        (latency, (deviation * whole.hypot(transfer) / latency).min(MOST_DEVIATION))
    });
    let processor = processor_seconds(&cells, transfer, operations.one_at_a_time) / transfer as f64;
    let (file_seconds, file_deviation) = of_file(place, way, deviation);
    let direct_alone = alone.iter().filter(|cell| cell.shape.direct).flat_map(|cell| &cell.rounds);
    Some(Measured {
        ceiling: Ceiling { stream_rate, total_rate, latency, processor, burst: None },
        deviation,
        latency_deviation,
        commit: median(direct_alone.map(|round| round.sync_seconds)).unwrap_or(0.0),
        file_seconds,
        file_deviation,
    })
}

/// The cells for the time of an operation without others beside it. For smaller blocks, cells with a deeper queue are
/// used: an operation takes no less time with others beside it.
fn operations_alone<'a>(cells: &[&'a Cell]) -> Vec<&'a Cell> {
    let is_alone = |cell: &&Cell| cell.shape.queue_depth == 1;
    let smallest = cells.iter().copied().filter(is_alone).map(|cell| cell.shape.block_bytes).min();
    let counts =
        move |cell: &&Cell| is_alone(cell) || smallest.is_some_and(|smallest| cell.shape.block_bytes < smallest);
    cells.iter().copied().filter(counts).collect()
}

/// Seconds of one operation of a cell, from its start to its end, with the cell's number in flight in each stream. The
/// sync comes after all operations.
fn seconds_each(cell: &Cell) -> f64 {
    let AccessPattern { block_bytes, queue_depth, streams, .. } = cell.shape;
    let rate = median(cell.rounds.iter().map(Round::moving_rate)).unwrap_or(0.0);
    (block_bytes * queue_depth * streams) as f64 / rate
}

/// The cells of a place that others contradict: their operations take more than twice as long as larger ones with as
/// many beside them.
pub fn contradicted(cells: &[Cell]) -> Vec<AccessPattern> {
    let sequential = |cell: &&Cell| cell.shape.order == Order::Sequential && !cell.rounds.is_empty();
    let sequential: Vec<&Cell> = cells.iter().filter(sequential).collect();
    let outweighs = |one: &AccessPattern, other: &AccessPattern| {
        let beside = |shape: &AccessPattern| shape.queue_depth * shape.streams;
        let alike = (one.way, one.direct) == (other.way, other.direct);
        alike && one.block_bytes >= other.block_bytes && beside(one) >= beside(other)
    };
    let is_contradicted = |cell: &&&Cell| {
        let larger = sequential.iter().filter(|other| outweighs(&other.shape, &cell.shape));
        larger.map(|other| seconds_each(other)).any(|seconds| seconds_each(cell) > TOO_LONG * seconds)
    };
    sequential.iter().filter(is_contradicted).map(|cell| cell.shape).collect()
}

/// Processor seconds of one operation of `transfer` bytes. A thread that waits for an operation pays a sleep. So cells
/// count in which threads wait as often as in the job, if there are any.
fn processor_seconds(cells: &[&Cell], transfer: u64, one_at_a_time: bool) -> f64 {
    let alike = |cell: &&&Cell| (cell.shape.queue_depth == 1) == one_at_a_time;
    let mut counted: Vec<&Cell> = cells.iter().filter(alike).copied().collect();
    if counted.is_empty() {
        counted = cells.to_vec();
    }
    let each = |cell: &Cell| {
        let of_byte = median(cell.rounds.iter().map(|round| round.cpu_seconds / round.bytes as f64));
        of_byte.unwrap_or(0.0) * cell.shape.block_bytes as f64
    };
    of_operation(counted.into_iter().map(|cell| (cell.shape.block_bytes, each(cell))), transfer).unwrap_or(0.0)
}

/// The time of an operation of `bytes`, from pairs of a size and its time: on a line between the sizes around it. Below
/// all sizes, it is the time of the smallest. Above all sizes, it is the time for a byte of the largest.
fn of_operation(taken: impl Iterator<Item = (u64, f64)>, bytes: u64) -> Option<f64> {
    let mut taken: Vec<(u64, f64)> = taken.collect();
    taken.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
    let sizes = taken.chunk_by(|one, other| one.0 == other.0);
    let of_size = |same: &[(u64, f64)]| Some((same[0].0 as f64, median(same.iter().map(|(_, value)| *value))?));
    let points: Vec<(f64, f64)> = sizes.filter_map(of_size).collect();
    let bytes = bytes as f64;
    let above = points.partition_point(|(size, _)| *size < bytes);
    match (above.checked_sub(1).map(|below| points[below]), points.get(above)) {
        (Some((low, at_low)), Some((high, at_high))) => {
            Some(at_low + (at_high - at_low) * (bytes - low) / (high - low))
        }
        (None, Some((_, smallest))) => Some(*smallest),
        (Some((size, largest)), None) => Some(largest * bytes / size),
        (None, None) => None,
    }
}

/// The greatest bytes per second of these cells, in operations of `transfer` bytes: the rate that they agree upon, but
/// not more operations than in the cell with the most. Cells with larger operations than `transfer` do not limit the
/// number.
fn ceiling(cells: &[&Cell], transfer: u64) -> Option<f64> {
    let small = cells.iter().filter(|cell| cell.shape.block_bytes <= transfer);
    let operations = small.map(|cell| cell.rate() / cell.shape.block_bytes as f64).reduce(f64::max);
    let by_operations = operations.map_or(f64::INFINITY, |operations| operations * transfer as f64);
    Some(agreed(cells)?.min(by_operations))
}

/// The highest rate that rounds agree upon. Similar rounds form groups; the fastest group with at least half as many
/// rounds as the largest group counts. The fastest round of many is too fast by chance. Rounds at less than half of it
/// do not use the place fully, and form no group.
fn agreed(cells: &[&Cell]) -> Option<f64> {
    let mut rates: Vec<f64> = cells.iter().flat_map(|cell| cell.rounds.iter().map(Round::rate)).collect();
    rates.sort_by(|one, other| other.total_cmp(one));
    let fastest = *rates.first()?;
    let group = |at: usize| {
        let alike = rates[at..].iter().take_while(|rate| **rate >= rates[at] * (1.0 - ALIKE)).count();
        &rates[at..at + alike]
    };
    let groups: Vec<&[f64]> = (0..rates.len()).take_while(|at| rates[*at] >= fastest / 2.0).map(group).collect();
    let largest = groups.iter().map(|group| group.len()).max()?;
    let found = groups.into_iter().find(|group| 2 * group.len() >= largest)?;
    Some(found.iter().sum::<f64>() / found.len() as f64)
}

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

impl Profile {
    /// Adds the fixed costs of jobs with media in `places` to a path that has the sync of a stripe already. The slowest
    /// place counts: a job waits for all places. If no place was measured, the costs are unknown. `restored` is the
    /// time to sync the database.
    ///
    /// A tiny job has one stripe, and commits it: so a commit takes no longer than that job. A longer sync is for bytes
    /// that the device has not stored yet. The device waits for them once, with any number of stripes.
    pub(super) fn add_job_costs(&self, made: &mut Calibrated, places: &[usize], restored: f64) {
        let tiny = |direction| {
            let known = self.job_costs.iter().filter(|cost| places.contains(&cost.media));
            let medians = known.filter_map(|cost| Some((median(cost.seconds(direction).iter().copied())?, cost)));
            let (seconds, cost) = medians.max_by(|one, other| one.0.total_cmp(&other.0))?;
            Some((seconds, self.deviation(&Scatter::of([cost.seconds(direction)]))))
        };
        let mut uncertain = |direction, deviation| {
            made.uncertain.push(Uncertain { parameter: Parameter::Start(direction), deviation });
        };
        let fixed = &mut made.path.fixed;
        if let Some((seconds, deviation)) = tiny(Direction::Backup) {
            let sync = fixed.commit;
            fixed.commit = sync.min(seconds);
            fixed.backup = seconds.max(sync) - fixed.commit;
            uncertain(Direction::Backup, if sync > seconds { self.usual_deviation() } else { deviation });
        }
        let (seconds, deviation) = tiny(Direction::Restore).unwrap_or((0.0, self.usual_deviation()));
        fixed.restore = seconds.max(restored);
        if fixed.restore > 0.0 {
            uncertain(Direction::Restore, if restored > seconds { self.usual_deviation() } else { deviation });
        }
    }
}

impl JobCost {
    /// The rounds of a direction.
    pub fn seconds(&self, direction: Direction) -> &[f64] {
        match direction {
            Direction::Backup => &self.backup_s,
            Direction::Restore => &self.restore_s,
        }
    }
}
