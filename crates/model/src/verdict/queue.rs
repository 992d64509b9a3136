//! Devices that could do more: they had too few operations in flight, or too short ones. A job sees its devices at one
//! setting only. A measurement of the raw path in the same run, with more in flight, shows that the setting was the
//! limit.

use super::decide::{CLEARLY_LESS, FULL, stage_of_families};
use super::what_if::WhatIf;
use super::{Direction, Evidence, Setup, Use};
use fullbore_core::units::{bytes_of_flag, show_bytes};

/// From this share of its raw path on, a device does what it can: two measurements of one device differ by as much.
const ALL_OF_IT: f64 = 0.85;

/// A measurement of the families' devices in the raw path, without the job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RawMedia {
    /// Bytes per second of all families together.
    pub rate: f64,
    /// Operations in flight in each family.
    pub queue_depth: u64,
    /// Bytes of each.
    pub transfer_bytes: u64,
}

/// The raw path, if the families were the limit and were slower than the raw path with more in flight. They had their
/// full queue in flight; or, with `waits`, they had less because buffers were missing.
pub fn shallow(evidence: &Evidence<'_>, lead: usize, most: f64, waits: bool) -> Option<RawMedia> {
    let (setup, raw) = (evidence.setup.as_ref()?, faster(evidence, lead, most)?);
    let full = setup.in_flight > CLEARLY_LESS * setup.queue_depth as f64;
    let more = raw.queue_depth > in_flight(setup) || raw.transfer_bytes > setup.transfer_bytes;
    ((full || waits) && more).then_some(raw)
}

/// The raw path, if the families were the limit and were slower than it.
fn faster(evidence: &Evidence<'_>, lead: usize, most: f64) -> Option<RawMedia> {
    let raw = evidence.raw_media?;
    let families = evidence.direction == Direction::Backup && lead == stage_of_families(evidence.direction);
    let slower = rate(evidence, lead) < ALL_OF_IT * raw.rate;
    (families && most >= FULL && slower && evidence.throttle.is_none()).then_some(raw)
}

/// Operations that each family had in flight: the queue depth, or clearly less.
fn in_flight(setup: &Setup) -> u64 {
    let filled = setup.in_flight > CLEARLY_LESS * setup.queue_depth as f64;
    if filled { setup.queue_depth } else { setup.in_flight.round().max(1.0) as u64 }
}

/// Bytes per second of the families.
fn rate(evidence: &Evidence<'_>, lead: usize) -> f64 {
    evidence.stages[lead].account.bytes as f64 / evidence.moving_s
}

/// The numbers that show it.
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

/// The speed of the job with the queue and the transfers of the raw path, and buffers for them. It is measured, not
/// modelled. For [`Limit::Queue`](super::Limit::Queue); `None` if the raw path was not faster, or had the same
/// settings.
pub fn deeper(evidence: &Evidence<'_>, uses: &[Use], lead: usize) -> Option<WhatIf> {
    let raw = faster(evidence, lead, uses[lead].share)?;
    let setup = evidence.setup.as_ref()?;
    // Then the next stage is the limit.
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

/// One buffer for each operation, in addition to the buffers that the stages need.
fn buffers(setup: &Setup, families: u64, depth: u64) -> u64 {
    setup.buffer_count.max(setup.least_buffers + setup.workers + families * depth)
}
