//! The verdict on a log follower. Mostly it waits for the database; otherwise its sets get the verdict.

use fullbore_core::meter::Stage;

use super::decide::{MOST, decide};
use super::{Evidence, Limit, Use, Verdict, path};
use fullbore_core::units::show_bytes;

/// The place of the first stage, which waits for the database.
const SOURCE: usize = 0;

/// A part of following: from one set to the next, or the whole run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stretch {
    /// Log sets that were made.
    pub sets: u64,
    /// Bytes of the log in them.
    pub bytes: f64,
    /// The whole time, seconds.
    pub elapsed_s: f64,
    /// Seconds of it for making sets; also sets that could not be stored.
    pub making_s: f64,
    /// A commit was durable after this many seconds at the latest: counted from the last look that cannot have seen it.
    pub behind_s: f64,
    /// Bytes of the sets that took longer to make than the database took for their commits.
    pub late_bytes: f64,
    /// The busiest stage of the sets, by [`busiest_of`](Self::busiest_of).
    pub busiest: Option<(&'static str, f64)>,
}

impl Stretch {
    /// The stage whose thread was busy longest, and for how many seconds.
    pub fn busiest_of(stages: &[Stage]) -> Option<(&'static str, f64)> {
        let of = stages.iter().map(|stage| (stage.name, path::busiest(stage)));
        of.max_by(|one, other| one.1.total_cmp(&other.1)).filter(|(_, seconds)| *seconds > 0.0)
    }

    /// Share of the time that was needed to make sets, 0…1.
    pub fn busy_share(&self) -> f64 {
        share(self.making_s, self.elapsed_s)
    }

    /// The busiest stage, and its share of the time, 0…1.
    pub fn busiest_share(&self) -> Option<(&'static str, f64)> {
        self.busiest.map(|(stage, seconds)| (stage, share(seconds, self.elapsed_s)))
    }

    /// Bytes of the log that the database wrote in a second.
    pub fn rate(&self) -> f64 {
        if self.elapsed_s > 0.0 { self.bytes / self.elapsed_s } else { 0.0 }
    }

    /// False if making sets takes most of the time, and most of the log is in sets that took longer than their commits:
    /// then each set is larger than the one before. A slow set between long pauses does not count.
    pub fn keeps_up(&self) -> bool {
        2.0 * self.making_s <= self.elapsed_s || 2.0 * self.late_bytes <= self.bytes
    }

    /// The limit of the follower: the database, if it mostly waits for it; else the stage that is busiest while it
    /// makes sets.
    pub fn limit(&self) -> &'static str {
        match (self.busy_share() < MOST, self.busiest) {
            (true, _) => "source",
            (false, Some((stage, _))) => stage,
            (false, None) => "fixed costs",
        }
    }

    /// As text.
    pub fn line(&self) -> String {
        let busiest = self.busiest_share();
        let busiest = busiest.map_or_else(String::new, |(stage, share)| format!(" ({stage} {:.0} %)", 100.0 * share));
        let (rate, busy) = (show_bytes(self.rate() as u64), 100.0 * self.busy_share());
        format!(
            "the database wrote {rate}/s of log, making sets took {busy:.0} % of the time{busiest}, \
             commits were durable within {:.1} s",
            self.behind_s
        )
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 }
}

/// The verdict on a follower. `evidence` has the time of making sets, `run` also the waiting. Shares are of the whole
/// time.
pub fn following(evidence: &Evidence<'_>, run: &Stretch) -> Option<Verdict> {
    if run.elapsed_s <= 0.0 {
        return None;
    }
    let Some(making) = decide(evidence) else { return Some(nothing(run)) };
    let keeps = if run.keeps_up() { "it keeps up" } else { "it falls behind" };
    let waits = run.busy_share() < MOST;
    let (limit, name, why) = match waits {
        true => (Limit::Stage(SOURCE), making.uses[SOURCE].name, format!("{}; {keeps}", run.line())),
        false => (making.limit, making.name, format!("{}; {keeps}; while sets were made: {}", run.line(), making.why)),
    };
    Some(Verdict {
        limit,
        name,
        why,
        uses: uses(&making, evidence, run),
        device: making.device.filter(|_| !waits),
        rate: run.rate(),
        fixed_share: share(run.making_s - evidence.moving_s, run.elapsed_s),
        of_limit: None,
        calibrated: None,
        one_device: evidence.one_device,
        what_if: Vec::new(),
    })
}

/// Converts shares of the time from first to last byte of the sets into shares of the whole time.
fn uses(making: &Verdict, evidence: &Evidence<'_>, run: &Stretch) -> Vec<Use> {
    let of_run = |used: &Use| {
        let share = match used.name {
            "processors" => share(evidence.processor_s, evidence.processors.max(1.0) * run.elapsed_s),
            _ => share(used.share * evidence.moving_s, run.elapsed_s),
        };
        Use { share, ceiling: run.rate() / share, ..used.clone() }
    };
    making.uses.iter().map(of_run).collect()
}

/// The verdict on a run without a commit.
fn nothing(run: &Stretch) -> Verdict {
    Verdict {
        limit: Limit::Stage(SOURCE),
        name: "source",
        device: None,
        why: format!("the database wrote nothing: in {:.1} s there was no set to make", run.elapsed_s),
        uses: Vec::new(),
        rate: 0.0,
        fixed_share: 0.0,
        of_limit: None,
        calibrated: None,
        one_device: false,
        what_if: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fullbore_core::meter::{Account, Stage};

    use super::*;
    use crate::throughput::Direction;

    const MIB: f64 = 1_048_576.0;

    fn stages(bytes: f64, busy: [f64; 3]) -> Vec<Stage> {
        let seconds = Duration::from_secs_f64;
        let stage = |(name, busy): (&'static str, f64)| {
            let account = Account { bytes: bytes as u64, busy: seconds(busy), ..Account::default() };
            Stage::of(name, vec![account])
        };
        ["source", "transform", "sink"].into_iter().zip(busy).map(stage).collect()
    }

    /// 20 MiB of log whose sets took ten seconds to make, eight of them from first to last byte.
    fn judged(busy: [f64; 3], run: &Stretch) -> Verdict {
        let stages = stages(run.bytes, busy);
        let evidence = Evidence {
            direction: Direction::Backup,
            read_from: None,
            stages: &stages,
            devices: Vec::new(),
            moving_s: 8.0,
            elapsed_s: run.making_s,
            processor_s: 1.0,
            processors: 2.0,
            plain_bytes: run.bytes,
            throttle: None,
            setup: None,
            measured_limit: None,
            raw_media: None,
            data_share: 1.0,
            one_device: false,
            costs: &[],
            profile: None,
        };
        following(&evidence, run).unwrap()
    }

    fn run(elapsed_s: f64) -> Stretch {
        let busiest = Some(("sink", 7.0));
        Stretch { sets: 10, bytes: 20.0 * MIB, elapsed_s, making_s: 10.0, behind_s: 1.24, late_bytes: 0.0, busiest }
    }

    #[test]
    fn a_follower_that_mostly_waits_is_held_up_by_the_database() {
        let verdict = judged([1.0, 2.0, 7.0], &run(100.0));
        assert_eq!((verdict.name, verdict.limit), ("source", Limit::Stage(0)));
        let why = "the database wrote 204.8 KiB/s of log, making sets took 10 % of the time (sink 7 %), \
                   commits were durable within 1.2 s; it keeps up";
        assert_eq!(verdict.why, why);
        let shares: Vec<_> = verdict.uses.iter().map(|one| (one.name, (1000.0 * one.share).round())).collect();
        assert_eq!(
            shares,
            [("source", 10.0), ("transform", 20.0), ("sink", 70.0), ("processors", 5.0)],
            "of all the time"
        );
        assert!((verdict.uses[2].ceiling / MIB - 20.0 / 7.0).abs() < 1e-6, "the speed of the sink alone: {verdict:?}");
        assert!((verdict.fixed_share - 0.02).abs() < 1e-9);
    }

    #[test]
    fn a_follower_that_does_nothing_else_is_held_up_by_what_holds_its_sets_up() {
        let verdict = judged([1.0, 2.0, 7.0], &run(10.5));
        assert_eq!(verdict.name, "sink");
        assert!(verdict.why.contains("making sets took 95 % of the time (sink 67 %)"), "{}", verdict.why);
        assert!(verdict.why.contains("while sets were made: busy most of its time (source"), "{}", verdict.why);
        let many_small_ones = judged([0.1, 0.1, 0.1], &Stretch { making_s: 20.0, ..run(20.5) });
        assert_eq!(many_small_ones.name, "fixed costs");
    }

    #[test]
    fn the_limit_is_named_for_each_interval() {
        assert_eq!(run(100.0).limit(), "source", "it waits for the database");
        assert_eq!(run(10.5).limit(), "sink");
        assert_eq!(Stretch { busiest: None, ..run(10.5) }.limit(), "fixed costs");
        assert_eq!(Stretch::default().limit(), "source");
    }

    #[test]
    fn sets_that_take_longer_than_their_commits_are_a_follower_that_falls_behind() {
        let late = Stretch { late_bytes: 11.0 * MIB, ..run(10.0) };
        assert!(!late.keeps_up() && judged([1.0, 2.0, 7.0], &late).why.contains("it falls behind"));
        assert!(Stretch { late_bytes: 9.0 * MIB, ..run(10.0) }.keeps_up(), "a burst is none");
        assert!(Stretch { elapsed_s: 30.0, ..late }.keeps_up(), "slow sets between long pauses are no reason");
    }

    #[test]
    fn a_database_that_writes_nothing_is_the_limit_of_its_follower() {
        let idle = Stretch { elapsed_s: 3.0, ..Stretch::default() };
        let verdict = judged([0.0; 3], &idle);
        assert_eq!((verdict.name, verdict.uses.len()), ("source", 0));
        assert_eq!(verdict.why, "the database wrote nothing: in 3.0 s there was no set to make");
    }
}
