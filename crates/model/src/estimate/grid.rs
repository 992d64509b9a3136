//! The compared configurations.

use super::Estimate;
use super::goal::in_groups;

/// Families for each destination.
pub const STRIPES_PER_PLACE: [usize; 4] = [1, 2, 4, 8];
/// The factors of the planned BUFFERCOUNT.
pub const BUFFER_FACTORS: [f64; 3] = [0.5, 1.0, 2.0];
/// The most configurations that are compared.
pub const MOST: usize = 200;

/// Sorts by the fastest backup; among equally fast ones (within 1 %), the one with less memory first.
pub fn by_backup(estimates: &mut [Estimate]) {
    let seconds = |estimate: &Estimate| {
        estimate.backup.or(estimate.restore).map_or(f64::INFINITY, |foreseen| foreseen.seconds.p50)
    };
    in_groups(estimates, seconds, |same| same.sort_by_key(|one| one.candidate.memory_bytes));
}
