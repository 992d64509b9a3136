//! The verdict: the limit of a job, the numbers that show it, and what another configuration would have changed. Pure:
//! accounts in, a [`Verdict`] out. The rules and their limits are in `docs/VERDICT.md`.

mod untried;
mod decide;
mod following;
mod calibrated;
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

use crate::throughput::Direction;

pub use calibrated::{CalibratedLimit, CalibratedLimits, Elsewhere};
pub use decide::{Interval, interval, is_worth_naming};
pub use following::{Stretch, following};
pub use queue::RawMedia;
pub use setup::{Copying, Setup};
pub use what_if::WhatIf;

/// All measurements of a job.
#[derive(Debug, Clone)]
pub struct Evidence<'a> {
    /// Backup or restore. A verification is a restore. A copy is a backup: its database is the media that it reads.
    pub direction: Direction,
    /// For a copy: the devices of the families that it reads, in order; empty if the threads belong to several sets.
    pub read_from: Option<Vec<String>>,
    /// The three stages in the order in which bytes pass them.
    pub stages: &'a [Stage],
    /// The device of each family, in order; empty if the threads belong to several sets.
    pub devices: Vec<String>,
    /// From the first byte to the last, seconds.
    pub moving_s: f64,
    /// All of the job, seconds.
    pub elapsed_s: f64,
    /// Processor seconds of the job.
    pub processor_s: f64,
    /// Processors that it may use.
    pub processors: f64,
    /// Plain bytes that passed. For a copy: bytes of the media that it read; all values in plain bytes then use these.
    pub plain_bytes: f64,
    /// `--throttle` in plain bytes per second.
    pub throttle: Option<f64>,
    /// The plan; `None` if there were several: then the model is not asked.
    pub setup: Option<Setup>,
    /// The speed of the path in plain bytes per second, if it was measured.
    pub measured_limit: Option<f64>,
    /// The speed of the families' devices without the job, if it was measured in this run.
    pub raw_media: Option<RawMedia>,
    /// Share of the plain bytes that the codec took: less than 1 if bytes are zero, free or unchanged.
    pub data_share: f64,
    /// By their paths, the source and the target are on one device.
    pub one_device: bool,
    /// Known costs before the first and after the last byte.
    pub costs: &'a [Cost],
    /// A profile, for facts that the accounts do not have.
    pub profile: Option<&'a CalibratedLimits>,
}

/// Something that took time beside the moving of bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// Its name and its duration, for people: `integrity check 2.9 s`.
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
    /// Costs that do not depend on the amount of data.
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
    /// Plain bytes per second if it were the only limit; infinite if it did not work at all.
    pub ceiling: f64,
}

/// The verdict on a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The limit.
    pub limit: Limit,
    /// Its name in reports.
    pub name: &'static str,
    /// The device, if one stripe is the limit.
    pub device: Option<String>,
    /// The numbers that show it, for people.
    pub why: String,
    /// The stages in order; then the processors; then the throttle, if there is one.
    pub uses: Vec<Use>,
    /// Plain bytes per second between the first byte and the last.
    pub rate: f64,
    /// Share of the job that was before the first or after the last byte, 0…1.
    pub fixed_share: f64,
    /// The job's speed as a share of the measured limit.
    pub of_limit: Option<f64>,
    /// By a profile: the speed that no configuration exceeds on these places.
    pub calibrated: Option<CalibratedLimit>,
    /// By their paths, the database and families are on one device.
    pub one_device: bool,
    /// What another configuration would have changed.
    pub what_if: Vec<WhatIf>,
}

/// The verdict on a job; `None` if no bytes moved.
pub fn verdict(evidence: &Evidence<'_>) -> Option<Verdict> {
    let mut verdict = decide::decide(evidence)?;
    let job_rate = evidence.plain_bytes / evidence.elapsed_s.max(evidence.moving_s);
    let configuration = evidence.setup.as_ref().map(|setup| path::configuration(evidence, setup));
    verdict.calibrated = configuration.and_then(|configuration| calibrated::limit(evidence, &configuration, job_rate));
    verdict.what_if = what_if::lines(evidence, &verdict);
    Some(verdict)
}
