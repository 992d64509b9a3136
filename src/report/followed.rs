//! The result of following a log: how much of the time its sets took, and how far behind the database they were.

use fullbore_core::meter::Stage;
use serde::Serialize;

use super::Report;
use super::judge::processors;
use fullbore_core::units::mib_per_s;
use fullbore_model::throughput::Direction;
use fullbore_model::verdict::{self, Evidence, Stretch, Verdict};

/// A log that was followed.
#[derive(Debug, Clone, Serialize)]
pub struct FollowingReport {
    /// The time from the first look at which the follower had caught up.
    pub run: StretchReport,
    /// From the end of the last set but one to the end of the last set.
    pub last: Option<StretchReport>,
    /// The log before the start of following.
    pub backlog: Option<BacklogReport>,
}

/// A stretch of following.
#[derive(Debug, Clone, Serialize)]
pub struct StretchReport {
    /// Log sets that were made.
    pub sets: u64,
    /// Bytes of the log in them.
    pub source_bytes: u64,
    /// Length of the stretch in seconds.
    pub elapsed_s: f64,
    /// source_bytes per second: what the database wrote.
    pub mib_per_s: f64,
    /// Share of the time that making sets took, 0…1.
    pub busy_share: f64,
    /// The stage whose thread was busy longest.
    pub stage: Option<String>,
    /// Share of the time that it was busy, 0…1.
    pub stage_share: f64,
    /// The longest time in seconds until a commit was durable.
    pub behind_s: f64,
    /// False if most of the log came in sets that took longer than its commits.
    pub keeps_up: bool,
}

/// The log that was committed before the start of following.
#[derive(Debug, Clone, Serialize)]
pub struct BacklogReport {
    /// Bytes of the log.
    pub source_bytes: u64,
    /// Seconds that the set of it took.
    pub making_s: f64,
}

/// The input of the verdict.
#[derive(Debug, Clone)]
pub(super) struct Followed {
    run: Stretch,
    /// Processor seconds of making sets.
    processor_s: f64,
}

impl Followed {
    /// The verdict, by the accounts of the sets' stages and the seconds from first to last byte of each.
    pub fn verdict(&self, stages: &[Stage], moving_s: f64) -> Option<Verdict> {
        let evidence = Evidence {
            direction: Direction::Backup,
            read_from: None,
            stages,
            devices: Vec::new(),
            moving_s,
            elapsed_s: self.run.making_s,
            processor_s: self.processor_s,
            processors: processors(),
            plain_bytes: self.run.bytes,
            throttle: None,
            setup: None,
            measured_limit: None,
            raw_media: None,
            data_share: 1.0,
            one_device: false,
            costs: &[],
            profile: None,
        };
        verdict::following(&evidence, &self.run)
    }
}

impl Report {
    /// The accounts of the stages, with their threads.
    pub fn accounts(&self) -> &[Stage] {
        &self.accounts
    }

    /// Books a followed log: the run, the last set, the bytes and seconds of the backlog, and the processor seconds of
    /// making sets.
    pub fn set_following(
        &mut self,
        run: Stretch,
        last: Option<&Stretch>,
        backlog: Option<(u64, f64)>,
        processor_s: f64,
    ) {
        self.following = Some(FollowingReport {
            run: StretchReport::from(&run),
            last: last.map(StretchReport::from),
            backlog: backlog.map(|(source_bytes, making_s)| BacklogReport { source_bytes, making_s }),
        });
        self.followed = Some(Followed { run, processor_s });
    }
}

impl From<&Stretch> for StretchReport {
    fn from(stretch: &Stretch) -> Self {
        let (stage, share) = stretch.busiest_share().map_or((None, 0.0), |(stage, share)| (Some(stage.into()), share));
        Self {
            sets: stretch.sets,
            source_bytes: stretch.bytes as u64,
            elapsed_s: stretch.elapsed_s,
            mib_per_s: mib_per_s(stretch.bytes as u64, stretch.elapsed_s),
            busy_share: stretch.busy_share(),
            stage,
            stage_share: share,
            behind_s: stretch.behind_s,
            keeps_up: stretch.keeps_up(),
        }
    }
}
