//! The account: where the time of each stage went. Every stage keeps the same four numbers, so that the
//! bottleneck is a sum and not an opinion.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What one stage (all its threads together) did with its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Bytes that passed.
    pub bytes: u64,
    /// Time spent working: on the device or in the processor.
    pub busy: Duration,
    /// Time spent waiting for input.
    pub starved: Duration,
    /// Time spent waiting for a buffer or for the next stage to take output.
    pub blocked: Duration,
}

impl Account {
    /// Adds what another thread of the same stage did.
    pub fn add(&mut self, other: Account) {
        self.bytes += other.bytes;
        self.busy += other.busy;
        self.starved += other.starved;
        self.blocked += other.blocked;
    }

    /// Share of its time that the stage was busy, 0…1; 0 when it never ran.
    pub fn busy_share(&self) -> f64 {
        let total = (self.busy + self.starved + self.blocked).as_secs_f64();
        if total > 0.0 { self.busy.as_secs_f64() / total } else { 0.0 }
    }
}

/// What a span of time was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// Working.
    Busy,
    /// Waiting for input.
    Starved,
    /// Waiting for a buffer or for the next stage.
    Blocked,
}

/// One thread's stopwatch: each `lap` books the time since the last one.
pub struct Clock {
    account: Account,
    last: Instant,
}

impl Clock {
    /// Starts now.
    #[expect(clippy::new_without_default, reason = "it reads the clock")]
    pub fn new() -> Self {
        Self { account: Account::default(), last: Instant::now() }
    }

    /// Books the time since the last lap.
    pub fn lap(&mut self, spent: Spent) {
        let now = Instant::now();
        let time = now - self.last;
        self.last = now;
        match spent {
            Spent::Busy => self.account.busy += time,
            Spent::Starved => self.account.starved += time,
            Spent::Blocked => self.account.blocked += time,
        }
    }

    /// Books the time since the last lap as work, but for what was a wait for buffers.
    pub fn lap_busy_but(&mut self, waited: Duration) {
        let busy = self.account.busy;
        self.lap(Spent::Busy);
        let waited = waited.min(self.account.busy - busy);
        self.account.busy -= waited;
        self.account.blocked += waited;
    }

    /// Books bytes that passed.
    pub fn pass(&mut self, bytes: u64) {
        self.account.bytes += bytes;
    }

    /// The account so far.
    pub fn account(&self) -> Account {
        self.account
    }
}

/// A named stage in a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// `source`, `transform`, `sink`, `media`, `target`.
    pub name: &'static str,
    /// Its account.
    pub account: Account,
}

/// The stage that holds the others up, and the numbers that say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bottleneck {
    /// The stage's name.
    pub stage: &'static str,
    /// Why, in one line.
    pub why: String,
}

/// The stage that waits least, because all the others wait for it. `None` when nothing ran.
pub fn bottleneck(stages: &[Stage]) -> Option<Bottleneck> {
    let slowest = stages
        .iter()
        .filter(|stage| stage.account.bytes > 0)
        .max_by(|a, b| a.account.busy_share().total_cmp(&b.account.busy_share()))?;
    let shares: Vec<String> =
        stages.iter().map(|stage| format!("{} {:.0} %", stage.name, 100.0 * stage.account.busy_share())).collect();
    let how = if slowest.account.busy_share() >= 0.5 {
        "busy most of its time"
    } else {
        // Small buffers, a short job, or a machine whose processors had other work: woken threads wait for one of them.
        "the busiest, but no stage was busy most of its time: they waited for each other or for a processor"
    };
    Some(Bottleneck { stage: slowest.name, why: format!("{how} ({})", shares.join(", ")) })
}

/// Counters that a progress display reads while the job runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes that there are to do; 0 when unknown.
    pub total: AtomicU64,
    /// Bytes done.
    pub done: AtomicU64,
    /// Bytes written to or read from media.
    pub stored: AtomicU64,
}

impl Progress {
    /// Adds bytes done.
    pub fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// (done, total, stored) in bytes.
    pub fn read(&self) -> (u64, u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed), self.stored.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &'static str, busy: u64, starved: u64, blocked: u64) -> Stage {
        let ms = Duration::from_millis;
        Stage { name, account: Account { bytes: 1, busy: ms(busy), starved: ms(starved), blocked: ms(blocked) } }
    }

    #[test]
    fn the_stage_that_waits_least_is_the_bottleneck() {
        let stages = [stage("source", 30, 0, 70), stage("transform", 95, 3, 2), stage("sink", 20, 80, 0)];
        assert_eq!(bottleneck(&stages).unwrap().stage, "transform");
    }

    #[test]
    fn a_wait_for_buffers_is_no_work() {
        let mut clock = Clock::new();
        std::thread::sleep(Duration::from_millis(5));
        clock.lap_busy_but(Duration::from_millis(2));
        assert_eq!(clock.account().blocked, Duration::from_millis(2));
        assert!(clock.account().busy >= Duration::from_millis(3));
        clock.lap_busy_but(Duration::from_secs(9));
        assert!(clock.account().blocked < Duration::from_secs(1), "never more than the time there was");
    }

    #[test]
    fn where_no_stage_was_busy_the_account_says_so() {
        let why = |busy| bottleneck(&[stage("media", 10, 0, 90), stage("transform", busy, 60, 0)]).unwrap().why;
        assert!(why(200).starts_with("busy most of its time"));
        assert!(why(30).contains("no stage was busy most of its time"));
    }

    #[test]
    fn a_job_that_moved_nothing_has_no_bottleneck() {
        assert_eq!(bottleneck(&[]), None);
    }
}
