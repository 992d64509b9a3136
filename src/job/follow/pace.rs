//! Whether a follower keeps up with its database: the share of time that its sets take, and the time until a commit is
//! durable.

use std::time::{Duration, Instant};

use crate::report::Report;
use fullbore_core::resources::process_usage;
use fullbore_core::units::show_bytes;
use fullbore_model::verdict::Stretch;

/// The account of a follower.
pub(super) struct Pace {
    /// `--interval`: a set that is made in less time is never late.
    interval: Duration,
    /// The end of the first look that found nothing, or whose set is stored: only later commits count as followed.
    begun: Option<Instant>,
    /// Commits before this time are durable.
    seen: Instant,
    /// The end of the last set.
    ended: Instant,
    run: Stretch,
    last: Option<Stretch>,
    backlog: Option<(u64, f64)>,
    processor_s: f64,
    /// True if the last set was late.
    late: bool,
}

/// One look at the log.
pub(super) struct LogCheck {
    at: Instant,
    processor_s: f64,
}

/// The report about a set.
pub(super) struct Told {
    /// The pace since the previous set, in words.
    pub pace: String,
    /// Why the follower begins to fall behind, if it does.
    pub behind: Option<String>,
    /// The limit since the previous set; `None` for a backlog from before the start.
    pub limit: Option<&'static str>,
}

impl Pace {
    pub fn new(interval: Duration) -> Self {
        let now = Instant::now();
        Self {
            interval,
            begun: None,
            seen: now,
            ended: now,
            run: Stretch::default(),
            last: None,
            backlog: None,
            processor_s: 0.0,
            late: false,
        }
    }

    /// The follower looks at the log.
    pub fn look(&self) -> LogCheck {
        LogCheck { at: Instant::now(), processor_s: 0.0 }
    }

    /// The look found commits, and a set is made.
    pub fn makes(&self, look: LogCheck) -> LogCheck {
        LogCheck { processor_s: process_usage().cpu_s, ..look }
    }

    /// The look found nothing.
    pub fn nothing(&mut self, look: &LogCheck) {
        self.seen = look.at;
        self.begun.get_or_insert_with(Instant::now);
    }

    /// Adds the time of a look for which a set was made, stored or not.
    pub fn spent(&mut self, look: &LogCheck) {
        if self.begun.is_none() {
            return; // The backlog from before the start does not count.
        }
        self.run.making_s += look.at.elapsed().as_secs_f64();
        self.processor_s += process_usage().cpu_s - look.processor_s;
    }

    /// A full was taken with a snapshot of the time `at`: later commits are durable with the next set.
    pub fn stands_on(&mut self, at: Instant) {
        self.seen = at;
    }

    /// A set is durable: adds its stages and bytes of the log.
    pub fn shipped(&mut self, look: &LogCheck, set: &Report) -> Told {
        let (now, bytes) = (Instant::now(), set.source_bytes);
        let making = now - look.at;
        let (seen, ended) = (self.seen, self.ended);
        (self.seen, self.ended) = (look.at, now);
        if self.begun.is_none() {
            self.begun = Some(now);
            self.backlog = Some((bytes, making.as_secs_f64()));
            let (bytes, seconds) = (show_bytes(bytes), making.as_secs_f64());
            return Told { pace: format!("{bytes} of log from before in {seconds:.1} s"), behind: None, limit: None };
        }
        let window = look.at.saturating_duration_since(seen);
        let late = making > window && making > self.interval;
        let since = ended.max(self.begun.unwrap_or(ended));
        let last = Stretch {
            sets: 1,
            bytes: bytes as f64,
            elapsed_s: (now - since).as_secs_f64(),
            making_s: making.as_secs_f64(),
            behind_s: (now - seen).as_secs_f64(),
            late_bytes: if late { bytes as f64 } else { 0.0 },
            busiest: Stretch::busiest_of(set.accounts()),
        };
        self.spent(look);
        self.run.sets += 1;
        self.run.bytes += last.bytes;
        self.run.late_bytes += last.late_bytes;
        self.run.behind_s = self.run.behind_s.max(last.behind_s);
        let behind = (late && !self.late).then(|| {
            let busy = |(stage, seconds)| format!(" ({stage} busy {seconds:.1} s)");
            let busiest = last.busiest.map_or_else(String::new, busy);
            let (bytes, making, window) = (show_bytes(bytes), making.as_secs_f64(), window.as_secs_f64());
            format!("falls behind: a set of {bytes} took {making:.2} s{busiest}, but its commits {window:.2} s")
        });
        self.late = late;
        let (pace, limit) = (last.line(), Some(last.limit()));
        self.last = Some(last);
        Told { pace, behind, limit }
    }

    /// Commits before this time are durable.
    pub fn durable_until(&self) -> Instant {
        self.seen
    }

    /// True once a set had commits that were made while the log was followed.
    pub fn follows(&self) -> bool {
        self.last.is_some()
    }

    /// Adds all of it to the report.
    pub fn book(mut self, report: &mut Report) {
        self.run.elapsed_s = self.begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        self.run.busiest = Stretch::busiest_of(report.accounts());
        report.set_following(self.run, self.last.as_ref(), self.backlog, self.processor_s);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A report of a set of so many bytes.
    fn set(bytes: u64) -> Report {
        let mut report = Report::default();
        report.source_bytes = bytes;
        report
    }

    /// A look that was so long ago.
    fn look(ago: Duration) -> LogCheck {
        LogCheck { at: Instant::now().checked_sub(ago).unwrap_or_else(Instant::now), processor_s: 0.0 }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn log_from_before_the_start_does_not_count_as_followed() {
        let mut pace = Pace::new(SECOND);
        assert!(pace.shipped(&look(SECOND * 60), &set(1 << 20)).behind.is_none());
        let mut report = Report::default();
        pace.book(&mut report);
        let following = report.following.unwrap();
        assert_eq!((following.run.sets, following.last.is_none()), (0, true));
        assert!(following.backlog.is_some_and(|backlog| backlog.source_bytes == 1 << 20 && backlog.making_s >= 60.0));
    }

    #[test]
    fn a_set_that_could_not_be_stored_took_its_time_as_well() {
        let mut pace = Pace::new(SECOND);
        pace.spent(&look(SECOND * 5));
        pace.nothing(&look(SECOND));
        pace.spent(&look(SECOND * 20));
        assert!((20.0..21.0).contains(&pace.run.making_s), "not what was before: {}", pace.run.making_s);
    }

    #[test]
    fn a_follower_that_begins_to_fall_behind_says_so_once() {
        let mut pace = Pace::new(SECOND);
        pace.nothing(&look(SECOND * 100));
        // The commits of ten seconds took twenty, those of twenty forty, and then one of a second.
        pace.stands_on(look(SECOND * 30).at);
        let told = pace.shipped(&look(SECOND * 20), &set(10 << 20)).behind;
        assert!(told.is_some_and(|told| told.starts_with("falls behind: a set of 10.0 MiB took 20.00 s")));
        pace.stands_on(look(SECOND * 60).at);
        assert!(pace.shipped(&look(SECOND * 40), &set(20 << 20)).behind.is_none(), "it was said");
        let mut report = Report::default();
        pace.shipped(&look(SECOND / 2), &set(1 << 10));
        pace.book(&mut report);
        let following = report.following.unwrap();
        assert!(!following.run.keeps_up && following.last.is_some_and(|last| last.keeps_up));
        assert!(
            (60.0..61.0).contains(&following.run.behind_s),
            "the set that was furthest behind: {}",
            following.run.behind_s
        );
    }
}
