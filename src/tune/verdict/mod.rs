//! The verdict: what was the limit of a job, the numbers that say so, and what another configuration would have changed. Pure: accounts in,
//! a [`Verdict`] out. The rules and what they cannot know are in `docs/VERDICT.md`.

mod beyond;
mod decide;
mod following;
mod known;
mod live;
mod path;
#[cfg(test)]
mod properties;
mod queue;
mod setup;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_copies;
mod what_if;

use fullbore_core::meter::Stage;

use super::model::Direction;

pub use following::{Stretch, following};
pub use known::{CalibratedLimit, Elsewhere, Known};
pub use live::{Interval, interval};
pub use queue::RawMedia;
pub use setup::{Copying, Setup};
pub use what_if::WhatIf;

/// Everything that a job knows of itself.
#[derive(Debug, Clone)]
pub struct Evidence<'a> {
    /// Backup; or restore, which a verification is as well. A copy is a backup whose database are the media that it reads.
    pub direction: Direction,
    /// Of a copy, the devices of the families that it reads, in order; empty where the threads are those of several sets.
    pub read_from: Option<Vec<String>>,
    /// The three stages in the order in which bytes pass them.
    pub stages: &'a [Stage],
    /// The device of each family, in order; empty where the threads are those of several sets.
    pub devices: Vec<String>,
    /// From the first byte to the last, seconds.
    pub moving_s: f64,
    /// All of the job, seconds.
    pub elapsed_s: f64,
    /// Processor seconds of the job.
    pub processor_s: f64,
    /// Processors that it may use.
    pub processors: f64,
    /// Plain bytes that passed; of a copy, bytes of the media that it read. Whatever is in plain bytes is in these then.
    pub plain_bytes: f64,
    /// `--throttle` in plain bytes per second.
    pub throttle: Option<f64>,
    /// The plan; `None` where there were several, and nothing is asked of the model.
    pub setup: Option<Setup>,
    /// What the path can do, in plain bytes per second, where that was measured.
    pub measured_limit: Option<f64>,
    /// What the families' devices can do without the job, where that was measured in this run.
    pub raw_media: Option<RawMedia>,
    /// Of a plain byte, how much the codec took: less where bytes are zero, free or unchanged.
    pub data_share: f64,
    /// What is read and families that are written, or the other way round, are on one device, as far as their paths tell.
    pub one_device: bool,
    /// What is known to have taken time before the first and after the last byte.
    pub costs: &'a [Cost],
    /// A profile, for what these accounts cannot know.
    pub profile: Option<&'a Known>,
}

/// Something that took time beside the moving of bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// What it was and how long it took, for people: `integrity check 2.9 s`.
    pub text: String,
    /// How long it took.
    pub seconds: f64,
}

/// What set the speed of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// One of the three stages, by its place.
    Stage(usize),
    /// One family's device among faster ones, by its place in its stage.
    Stripe(usize),
    /// The processors that all stages share.
    Processor,
    /// `--throttle`.
    Throttle,
    /// Too few buffers to keep any stage busy.
    Pool,
    /// The families' devices could do more with more in flight, or longer operations.
    Queue,
    /// What does not depend on the amount of data.
    FixedCosts,
    /// No stage was busy for most of the time.
    None,
}

/// How much of the time something worked.
#[derive(Debug, Clone, PartialEq)]
pub struct Use {
    /// A stage's name, `processors` or `throttle`.
    pub name: &'static str,
    /// Share of the time, 0…1.
    pub share: f64,
    /// Plain bytes per second if nothing else held it up; infinite where it did not work at all.
    pub ceiling: f64,
}

/// What a job's accounts say.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The limit.
    pub limit: Limit,
    /// Its name in reports.
    pub name: &'static str,
    /// The device, where it is one stripe's.
    pub device: Option<String>,
    /// The numbers that say so, for people.
    pub why: String,
    /// The stages in order; then the processors; then the throttle, where there is one.
    pub uses: Vec<Use>,
    /// Plain bytes per second between the first byte and the last.
    pub rate: f64,
    /// Share of the job that was before the first or after the last byte, 0…1.
    pub fixed_share: f64,
    /// The job's speed as a share of the limit that was measured.
    pub of_limit: Option<f64>,
    /// What no configuration exceeds on these places, as a profile sees it.
    pub calibrated: Option<CalibratedLimit>,
    /// The database and families of it are on one device, as far as their paths tell.
    pub one_device: bool,
    /// What another configuration would have changed.
    pub what_if: Vec<WhatIf>,
}

/// The verdict on a job; `None` where nothing moved.
pub fn verdict(evidence: &Evidence<'_>) -> Option<Verdict> {
    let mut verdict = decide::decide(evidence)?;
    let job_rate = evidence.plain_bytes / evidence.elapsed_s.max(evidence.moving_s);
    let configuration = evidence.setup.as_ref().map(|setup| path::configuration(evidence, setup));
    verdict.calibrated = configuration.and_then(|configuration| known::limit(evidence, &configuration, job_rate));
    verdict.what_if = what_if::lines(evidence, &verdict);
    Some(verdict)
}
