//! What another configuration would have changed, asked of the model on the job's own path, and put into words.

use fullbore_core::media::MAX_FAMILIES;

use super::decide::{CLEARLY_COMPUTING, processor_share, stage_of_families};
use super::path::Own;
use super::{Direction, Evidence, Limit, Setup, Verdict, beyond, path, queue};
use crate::tune::model::what_if::{Answer, Change, SAME_SPEED, rank, usual};
use crate::tune::model::{Configuration, Path, Side, predict};
use crate::units::{counted, show_bytes};

/// Faster by less is not worth a line: it is little above what runs differ by.
pub const FASTER: f64 = 1.03;
/// Smaller by less is not worth a line either,
const SMALLER: f64 = 0.9;
/// nor another codec beside one that is told already,
const SMALLER_STILL: f64 = 0.95;
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
        // `workers 2 → 4: 1.9×`, and `zstd:1 instead of lz4 → 0.93×`.
        let then = if self.change.contains(" → ") { ": " } else { " → " };
        format!("{}{then}{}", self.change, said.join(", "))
    }
}

/// The lines that say something, best first, and one about memory; none where the accounts do not hold the answer.
pub fn lines(evidence: &Evidence<'_>, verdict: &Verdict) -> Vec<WhatIf> {
    let limit = verdict.limit;
    if limit == Limit::Queue
        && let Some(measured) = queue::deeper(evidence, &verdict.uses, stage_of_families(evidence.direction))
    {
        // It was measured what helps; the model has seen the devices at this one setting only, and fewer buffers would not go with it.
        return vec![measured];
    }
    let (Some(setup), Some(own)) = (&evidence.setup, path::of(evidence)) else { return Vec::new() };
    let (path, now) = (&own.path, &own.configuration);
    let asked: Vec<Change> =
        usual(path, now).into_iter().filter(|change| is_answerable(change, &own, evidence, setup, limit)).collect();
    let answers = rank(path, now, &asked).unwrap_or_default();
    let in_words = || answers.iter().map(|answer| (Some(answer.change.clone()), worded(answer, setup, &own)));
    let further = beyond::answers(&own, setup).into_iter().map(|(change, one)| (Some(change), one));
    let mut loud: Vec<(Option<Change>, WhatIf)> = in_words()
        .chain(further)
        .chain(without_throttle(path, now).map(|one| (None, one)))
        .filter(|(_, one)| one.speed >= FASTER || one.stored <= SMALLER && one.speed >= SLOWEST)
        .collect();
    // In steps of what counts as the same; then what stores less, what takes less memory, and what was asked first, which is the smaller change.
    let step = |share: f64| (share.ln() / SAME_SPEED).round();
    loud.sort_by(|(_, one), (_, other)| {
        let by_speed = step(other.speed).total_cmp(&step(one.speed));
        let by_size = step(one.stored).total_cmp(&step(other.stored));
        by_speed.then(by_size).then(one.memory_bytes.total_cmp(&other.memory_bytes))
    });
    let kept = best(loud);
    let as_fast = in_words()
        .filter(|(change, _)| !matches!(change, Some(Change::Codec(_))))
        .map(|(_, one)| one)
        .filter(|one| one.memory_bytes < 0.0 && one.speed.ln() > -SAME_SPEED && one.speed < FASTER);
    let thrifty = as_fast.min_by(|one, other| one.memory_bytes.total_cmp(&other.memory_bytes));
    kept.into_iter().chain(thrifty).collect()
}

/// True where the job's own accounts say that fewer buffers would have been as fast: then they were not too few.
pub fn fewer_buffers_are_as_fast(evidence: &Evidence<'_>) -> bool {
    let (Some(setup), Some(own)) = (&evidence.setup, path::of_accounts(evidence)) else { return false };
    let (path, now) = (&own.path, &own.configuration);
    let enough = |factor: f64| factor < 1.0 && buffer_count(setup, factor) >= setup.least_buffers;
    let fewer = |change: &Change| matches!(change, Change::Buffers(factor) if enough(*factor));
    let asked: Vec<Change> = usual(path, now).into_iter().filter(fewer).collect();
    rank(path, now, &asked).is_ok_and(|answers| answers.iter().any(|answer| answer.speed.ln() > -SAME_SPEED))
}

/// As many as are said: of several numbers of one knob the best one, and of several codecs the fastest and those that are clearly smaller still.
fn best(loud: Vec<(Option<Change>, WhatIf)>) -> Vec<WhatIf> {
    let mut kept: Vec<(Option<Change>, WhatIf)> = Vec::new();
    for (change, one) in loud {
        let said = kept.iter().any(|(other, told)| match (&change, other) {
            (Some(Change::Codec(_)), Some(Change::Codec(_))) => one.stored > SMALLER_STILL * told.stored,
            (Some(one), Some(other)) => std::mem::discriminant(one) == std::mem::discriminant(other),
            (None, _) | (_, None) => false,
        });
        if kept.len() < LINES && !said {
            kept.push((change, one));
        }
    }
    kept.into_iter().map(|(_, one)| one).collect()
}

/// True where the job has seen, or a profile says, what the answer needs.
fn is_answerable(change: &Change, own: &Own<'_>, evidence: &Evidence<'_>, setup: &Setup, limit: Limit) -> bool {
    let knows_total = |side: Side| own.path.side(side).ceiling(evidence.direction.way(side)).total_rate.is_finite();
    let backup = evidence.direction == Direction::Backup;
    let copying = setup.copying.as_ref();
    match change {
        // Where workers wait for processors, more of them wait for the same ones.
        Change::Workers(_) => processor_share(evidence) >= CLEARLY_COMPUTING,
        // Nobody sets those of a copy.
        Change::Buffers(_) if copying.is_some() => false,
        // Where there are too few, fewer are no question.
        Change::Buffers(factor) if *factor < 1.0 && limit == Limit::Pool => false,
        // More smooth out what is uneven, and on a busy machine everything is: only where the pool is the limit is that an advice.
        Change::Buffers(factor) if *factor > 1.0 => limit == Limit::Pool,
        Change::Buffers(factor) => buffer_count(setup, *factor) >= setup.least_buffers,
        // What is restored has its stripes and its codec, and nobody sets its writers. A copy as it is has those of its source.
        Change::Stripes(stripes) => {
            let settable = backup && copying.is_none_or(|copying| copying.anew);
            settable && *stripes <= MAX_FAMILIES.into() && knows_total(Side::Media)
        }
        // As many families as the source has are read.
        Change::DatabaseStreams(_) => backup && copying.is_none() && knows_total(Side::Database),
        // A path holds no other codecs than those that a profile compares with the one that was used.
        Change::Codec(_) => backup && copying.is_none_or(|copying| copying.packs),
        // What a device does with more in flight only a profile knows, and it is asked elsewhere; of longer operations nobody was asked.
        Change::QueueDepth(_) | Change::TransferBytes(_) => false,
    }
}

fn buffer_count(setup: &Setup, factor: f64) -> u64 {
    (setup.buffer_count as f64 * factor).round() as u64
}

fn worded(answer: &Answer, setup: &Setup, own: &Own<'_>) -> WhatIf {
    let now = &own.configuration;
    let mut memory_bytes = answer.memory_bytes;
    let change = match &answer.change {
        Change::Stripes(stripes) => {
            let more = stripes - now.stripes;
            let place = match own.known.map(|known| &known.directories[..]) {
                Some([directory]) => directory.as_str(),
                _ => "the same devices",
            };
            format!("+{} on {place}", counted(more, "stripe"))
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
