//! What another configuration would have changed, asked of the model on the job's own path, and put into words.

use super::decide::{CLEARLY_COMPUTING, processor_share};
use super::{Direction, Evidence, Limit, Setup, path};
use crate::tune::model::what_if::{Answer, Change, SAME_SPEED, rank, usual};
use crate::tune::model::{Configuration, Path, Side, predict};
use crate::units::show_bytes;

/// Faster by less is not worth a line: it is little above what runs differ by.
const FASTER: f64 = 1.03;
/// Smaller by less is not worth a line either,
const SMALLER: f64 = 0.9;
/// nor at a speed below this.
const SLOWEST: f64 = 0.8;
/// Lines about speed.
const LINES: usize = 3;

/// One change, and what it would have brought.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf {
    /// The change in words: `workers 2 → 4`.
    pub change: String,
    /// Times as fast: 1.31 is 31 % faster.
    pub speed: f64,
    /// Stored bytes for one now: 0.59 is 41 % smaller.
    pub stored: f64,
    /// Bytes of memory more, or below 0 less.
    pub memory_bytes: f64,
}

impl WhatIf {
    /// It in one line.
    pub fn line(&self) -> String {
        let mut said = vec![if (self.speed.ln()).abs() < SAME_SPEED {
            "same speed".to_owned()
        } else {
            format!("{:.2}×", self.speed)
        }];
        let percent = 100.0 * (self.stored - 1.0);
        if percent.abs() >= 1.0 {
            said.push(format!("{:.0} % {}", percent.abs(), if percent < 0.0 { "smaller" } else { "larger" }));
        }
        if self.memory_bytes.abs() >= 1.0 {
            let bytes = show_bytes(self.memory_bytes.abs() as u64);
            said.push(format!("{bytes} {}", if self.memory_bytes < 0.0 { "less" } else { "more" }));
        }
        format!("{}: {}", self.change, said.join(", "))
    }
}

/// The lines that say something, best first, and one about memory; none where the accounts do not hold the answer.
pub fn lines(evidence: &Evidence<'_>, limit: Limit) -> Vec<WhatIf> {
    let (Some(setup), Some((path, now))) = (&evidence.setup, path::of(evidence)) else { return Vec::new() };
    let asked: Vec<Change> =
        usual(&path, &now).into_iter().filter(|change| is_answerable(change, evidence, setup, limit)).collect();
    let answers = rank(&path, &now, &asked).unwrap_or_default();
    let mut loud: Vec<(Option<&Change>, WhatIf)> = answers
        .iter()
        .map(|answer| (Some(&answer.change), worded(answer, setup, &now)))
        .chain(without_throttle(&path, &now).map(|one| (None, one)))
        .filter(|(_, one)| one.speed >= FASTER || one.stored <= SMALLER && one.speed >= SLOWEST)
        .collect();
    loud.sort_by(|(_, one), (_, other)| other.speed.total_cmp(&one.speed));
    let mut kept: Vec<(Option<&Change>, WhatIf)> = Vec::new();
    for (change, one) in loud {
        // Of several numbers of one knob the best one; each codec is a question of its own.
        let same_knob = |other: &Option<&Change>| match (change, other) {
            (Some(Change::Codec(_)), _) | (None, _) | (_, None) => false,
            (Some(one), Some(other)) => std::mem::discriminant(one) == std::mem::discriminant(*other),
        };
        if kept.len() < LINES && !kept.iter().any(|(other, _)| same_knob(other)) {
            kept.push((change, one));
        }
    }
    let as_fast = answers
        .iter()
        .map(|answer| worded(answer, setup, &now))
        .filter(|one| one.memory_bytes < 0.0 && one.speed >= 1.0 - SAME_SPEED && one.speed < FASTER);
    let thrifty = as_fast.min_by(|one, other| one.memory_bytes.total_cmp(&other.memory_bytes));
    kept.into_iter().map(|(_, one)| one).chain(thrifty).collect()
}

/// True where the job has seen, or a profile says, what the answer needs.
fn is_answerable(change: &Change, evidence: &Evidence<'_>, setup: &Setup, limit: Limit) -> bool {
    let knows_total = |side: Side| {
        let ceiling = |path: &Path| path.side(side).ceiling(evidence.direction.way(side)).total_rate;
        evidence.profile.is_some_and(|profile| ceiling(profile).is_finite())
    };
    let backup = evidence.direction == Direction::Backup;
    match change {
        // Where workers wait for processors, more of them wait for the same ones.
        Change::Workers(_) => processor_share(evidence) >= CLEARLY_COMPUTING,
        // More smooth out what is uneven, and on a busy machine everything is: only where the pool is the limit is that an advice.
        Change::Buffers(factor) if *factor > 1.0 => limit == Limit::Pool,
        Change::Buffers(factor) => buffer_count(setup, *factor) >= setup.least_buffers,
        // What is restored has its stripes and its codec, and nobody sets its writers.
        Change::Stripes(_) => backup && knows_total(Side::Media),
        Change::DatabaseStreams(_) => backup && knows_total(Side::Database),
        // A path holds no other codecs than those that a profile compares with the one that was used.
        Change::Codec(_) => backup,
        // Nobody has seen what the device does with more in flight, or with longer operations.
        Change::QueueDepth(_) | Change::TransferBytes(_) => false,
    }
}

fn buffer_count(setup: &Setup, factor: f64) -> u64 {
    (setup.buffer_count as f64 * factor).round() as u64
}

fn worded(answer: &Answer, setup: &Setup, now: &Configuration) -> WhatIf {
    let mut memory_bytes = answer.memory_bytes;
    let change = match &answer.change {
        Change::Stripes(stripes) => {
            let more = stripes - now.stripes;
            format!("+{more} stripe{} on devices like these", if more == 1 { "" } else { "s" })
        }
        Change::Codec(name) => format!("{name} instead of {}", now.codec),
        Change::Buffers(factor) => {
            let count = buffer_count(setup, *factor);
            // Without a codec the model's pool is not all of them.
            memory_bytes = (count as f64 - setup.buffer_count as f64) * setup.transfer_bytes as f64;
            format!("BUFFERCOUNT {} → {count}", setup.buffer_count)
        }
        Change::Workers(workers) => format!("workers {} → {workers}", now.workers),
        Change::DatabaseStreams(streams) => format!("readers {} → {streams}", now.database_streams),
        Change::QueueDepth(depth) => format!("queue depth {} → {depth}", now.queue_depth),
        Change::TransferBytes(bytes) => {
            format!("MAXTRANSFERSIZE {} → {}", show_bytes(setup.transfer_bytes), show_bytes(*bytes as u64))
        }
    };
    WhatIf { change, speed: answer.speed, stored: answer.stored, memory_bytes }
}

/// What the same job would do without its throttle.
fn without_throttle(path: &Path, now: &Configuration) -> Option<WhatIf> {
    now.throttle?;
    let before = predict(path, now).ok()?;
    let after = predict(path, &Configuration { throttle: None, ..now.clone() }).ok()?;
    let speed = before.seconds / after.seconds;
    let change = "without --throttle".to_owned();
    (speed >= FASTER).then_some(WhatIf { change, speed, stored: 1.0, memory_bytes: 0.0 })
}
