//! Devices that could do more than they were asked for: too few operations in flight, or too short ones. One job has seen its devices at one
//! setting only; that it was the setting is known where the raw path was measured in the same run, with more in flight.

use super::decide::{CLEARLY_LESS, FULL, stage_of_families};
use super::what_if::WhatIf;
use super::{Direction, Evidence, Setup, Use};
use crate::units::{bytes_of_flag, show_bytes};

/// A device that does so much of its raw path or more does what it can: two measurements of one device differ by as much.
const ALL_OF_IT: f64 = 0.85;

/// The families' devices in the raw path, without the job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RawMedia {
    /// Bytes per second of all families together.
    pub rate: f64,
    /// Operations in flight in each family.
    pub queue_depth: u64,
    /// Bytes of each.
    pub transfer_bytes: u64,
}

/// The raw path, if the families were the limit and did less than that path with more in flight. They had in flight what they were given; or `waits`
/// says that they were busy with less, for want of buffers.
pub fn shallow(evidence: &Evidence<'_>, lead: usize, most: f64, waits: bool) -> Option<RawMedia> {
    let (setup, raw) = (evidence.setup.as_ref()?, faster(evidence, lead, most)?);
    let full = setup.in_flight > CLEARLY_LESS * setup.queue_depth as f64;
    let more = raw.queue_depth > in_flight(setup) || raw.transfer_bytes > setup.transfer_bytes;
    ((full || waits) && more).then_some(raw)
}

/// The raw path, if the families were the limit and did less than that.
fn faster(evidence: &Evidence<'_>, lead: usize, most: f64) -> Option<RawMedia> {
    let raw = evidence.raw_media?;
    let families = evidence.direction == Direction::Backup && lead == stage_of_families(evidence.direction);
    let slower = rate(evidence, lead) < ALL_OF_IT * raw.rate;
    (families && most >= FULL && slower && evidence.throttle.is_none()).then_some(raw)
}

/// Operations that each family had in flight: what it was given, or clearly less.
fn in_flight(setup: &Setup) -> u64 {
    let filled = setup.in_flight > CLEARLY_LESS * setup.queue_depth as f64;
    if filled { setup.queue_depth } else { setup.in_flight.round().max(1.0) as u64 }
}

/// Bytes per second that the families got.
fn rate(evidence: &Evidence<'_>, lead: usize) -> f64 {
    evidence.stages[lead].account.bytes as f64 / evidence.moving_s
}

/// The numbers that say so.
pub fn why(evidence: &Evidence<'_>, lead: usize, raw: RawMedia) -> String {
    let Some(setup) = &evidence.setup else { return String::new() };
    let shape = |depth: u64, bytes: u64| format!("{depth} in flight of {} each", show_bytes(bytes));
    format!(
        "the families' devices were busy all the time with {}/s, {}; the raw path of this run gave {}/s with {}",
        show_bytes(rate(evidence, lead) as u64),
        shape(in_flight(setup), setup.transfer_bytes),
        show_bytes(raw.rate as u64),
        shape(raw.queue_depth, raw.transfer_bytes)
    )
}

/// What the job would have done with the raw path's own queue and transfers, and buffers for them: no model is asked, it was measured. For a
/// limit that is a queue; `None` where the raw path was no faster, or has nothing that the job had not.
pub fn deeper(evidence: &Evidence<'_>, uses: &[Use], lead: usize) -> Option<WhatIf> {
    let raw = faster(evidence, lead, uses[lead].share)?;
    let setup = evidence.setup.as_ref()?;
    // The next stage holds the job up then.
    let others = uses.iter().enumerate().filter(|(at, _)| *at != lead).map(|(_, one)| one.share).fold(0.0, f64::max);
    let speed = (raw.rate / rate(evidence, lead)).min(uses[lead].share / others.max(f64::MIN_POSITIVE));
    let (depth, bytes) = (raw.queue_depth.max(setup.queue_depth), raw.transfer_bytes.max(setup.transfer_bytes));
    let count = buffers(setup, evidence.stages[lead].threads.len() as u64, depth);
    let changes = [
        (depth != setup.queue_depth).then(|| format!("--queue-depth {depth}")),
        (bytes != setup.transfer_bytes).then(|| format!("--max-transfer-size {}", bytes_of_flag(bytes))),
        (count != setup.buffer_count).then(|| format!("--buffer-count {count}")),
    ];
    let memory_bytes = (count * bytes) as f64 - (setup.buffer_count * setup.transfer_bytes) as f64;
    let change = changes.into_iter().flatten().collect::<Vec<_>>().join(" ");
    (!change.is_empty()).then_some(WhatIf { change, speed, stored: 1.0, memory_bytes })
}

/// As many buffers as there are operations, beyond what the stages need for themselves.
fn buffers(setup: &Setup, families: u64, depth: u64) -> u64 {
    setup.buffer_count.max(setup.least_buffers + setup.workers + families * depth)
}
