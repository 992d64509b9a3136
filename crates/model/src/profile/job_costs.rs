//! The fixed costs of a job besides moving its bytes, from the times of tiny jobs.

use super::path::Calibrated;
use super::scatter::Scatter;
use super::{JobCost, Profile};
use crate::statistics::median;
use crate::throughput::{Direction, Parameter, Uncertain};

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
