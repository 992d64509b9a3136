//! What tiny jobs have cost, as what every job takes besides moving its bytes.

use super::path::Calibrated;
use super::scatter::Scatter;
use super::{JobCost, Profile};
use crate::tune::model::{Direction, Parameter, Uncertain};
use crate::tune::statistics::median;

impl Profile {
    /// Puts what jobs cost whose media are in `places` into a path that knows the commit of a stripe already. Of several places the slowest counts:
    /// a job waits for all of them. Where none was measured, nothing is known of it.
    pub(super) fn add_job_costs(&self, made: &mut Calibrated, places: &[usize]) {
        for direction in [Direction::Backup, Direction::Restore] {
            let known = self.job_costs.iter().filter(|cost| places.contains(&cost.media));
            let medians = known.filter_map(|cost| Some((median(cost.seconds(direction).iter().copied())?, cost)));
            let Some((seconds, cost)) = medians.max_by(|one, other| one.0.total_cmp(&other.0)) else { continue };
            // A tiny job has one stripe, and commits it.
            let besides = (seconds - made.path.fixed.commit).max(0.0);
            match direction {
                Direction::Backup => made.path.fixed.backup = besides,
                Direction::Restore => made.path.fixed.restore = besides,
            }
            let deviation = self.deviation(&Scatter::of([cost.seconds(direction)]));
            made.uncertain.push(Uncertain { parameter: Parameter::Start(direction), deviation });
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
