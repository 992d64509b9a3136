//! What `--plan` says of the time and the downtime, from a look at the source.

use std::time::Duration;

use fullbore_engines::engine::{Foreseen, MigrationPlan};

use super::{Comparison, MAX_LAG, Request};
use crate::report::ForeseenReport;

/// How long rows are read to know the speed of the source.
pub const LOOK: Duration = Duration::from_secs(2);
/// A target that loads takes at least as long as its source reads, and at most about so many times as long: on two cores,
/// 75 MB were read in 0.19 s, and loaded in 1.5 to 3.8 s (two vendors, with and without secondary indexes).
const LOADING: f64 = 20.0;
/// Seconds of a cut-over besides the last changes and the comparison.
const STEPS: f64 = 0.3;

/// The times, in seconds, as the least and the most. Without a log that is followed, writers wait from the first look at the
/// source to the end.
pub fn foreseen(plan: &MigrationPlan, seen: &Foreseen, request: &Request, follows: bool) -> ForeseenReport {
    let seconds = seen.read.as_secs_f64().max(0.001);
    let bytes_per_s = seen.read_bytes as f64 / seconds;
    // Rows as text are about as long as on disk.
    let bytes = if seen.is_all { seen.read_bytes } else { plan.bytes.max(seen.read_bytes) };
    let reading = if seen.read_bytes == 0 { 0.0 } else { bytes as f64 / bytes_per_s };
    // The last changes are at most those of the lag, and take at most as long as they took to happen.
    let last = request.max_lag.unwrap_or(MAX_LAG).as_secs_f64();
    let (least, most) = if request.compare != Comparison::None { (reading, 2.0 * reading) } else { (0.0, 0.0) };
    ForeseenReport {
        bytes,
        read_bytes_per_s: bytes_per_s,
        log_bytes_per_s: seen.log_bytes as f64 / seconds,
        // Files are not read as rows: nothing was seen of their speed.
        full_s: if request.physical { [0.0; 2] } else { [reading, LOADING * reading] },
        downtime_s: match follows {
            true => [least, most + last + STEPS],
            false => [2.0 * reading + least, (1.0 + LOADING) * reading + most + STEPS],
        },
    }
}

#[cfg(test)]
mod tests {
    use fullbore_engines::GivenOptions;

    use super::*;

    #[test]
    fn the_downtime_is_the_comparison_and_the_last_changes() {
        let request = |compare| Request {
            source: Default::default(),
            source_options: GivenOptions::default(),
            target: Default::default(),
            target_options: GivenOptions::default(),
            databases: Vec::new(),
            replace: false,
            resume: false,
            follow: true,
            cut_over: true,
            compare,
            max_lag: None,
            lasting: None,
            lock_timeout: Duration::from_secs(10),
            readers: None,
            plan: true,
            abort: false,
            physical: false,
        };
        let plan = MigrationPlan { bytes: 1000, ..MigrationPlan::default() };
        let seen = Foreseen { read_bytes: 200, read: Duration::from_secs(2), is_all: false, log_bytes: 10 };
        let made = foreseen(&plan, &seen, &request(Comparison::All), true);
        assert_eq!((made.full_s, made.downtime_s), ([10.0, 200.0], [10.0, 21.3]));
        assert_eq!((made.log_bytes_per_s, made.bytes), (5.0, 1000));
        assert_eq!(foreseen(&plan, &seen, &request(Comparison::None), true).downtime_s, [0.0, 1.3]);
        let nothing = foreseen(&plan, &Foreseen::default(), &request(Comparison::All), true);
        assert_eq!(nothing.full_s, [0.0, 0.0]);
        // A look, the full, and the comparison, while writers wait.
        let at_once = foreseen(&plan, &seen, &request(Comparison::All), false);
        assert_eq!(at_once.downtime_s, [30.0, 230.3]);
    }
}
