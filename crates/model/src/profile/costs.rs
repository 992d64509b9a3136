//! Costs besides the bytes, from a profile: those of a database's files, and those of a job.

use super::path::Calibrated;
use super::scatter::Scatter;
use super::{Access, AccessPattern, Cell, JobCost, MeasuredPath, Order, Profile};
use crate::statistics::median;
use crate::throughput::{Direction, Parameter, Uncertain};

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
