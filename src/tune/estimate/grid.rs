//! The configurations that are compared.

use super::Estimate;

/// Families for each destination.
pub const STRIPES_PER_PLACE: [usize; 4] = [1, 2, 4, 8];
/// What the planned BUFFERCOUNT is multiplied by.
pub const BUFFER_FACTORS: [f64; 3] = [0.5, 1.0, 2.0];
/// Configurations that are compared at most.
pub const MOST: usize = 200;

/// Fastest backup first; of those that are as fast (within 1 %) the one with less memory.
pub fn by_backup(estimates: &mut [Estimate]) {
    let seconds = |estimate: &Estimate| {
        estimate.backup.or(estimate.restore).map_or(f64::INFINITY, |foreseen| foreseen.seconds.p50)
    };
    // In steps of what counts as the same, so that the order is one.
    let step = |estimate: &Estimate| (seconds(estimate).ln() / super::super::model::what_if::SAME_SPEED).round();
    estimates.sort_by(|one, other| {
        step(one).total_cmp(&step(other)).then(one.candidate.memory_bytes.cmp(&other.candidate.memory_bytes))
    });
}
