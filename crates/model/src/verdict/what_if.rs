//! What another configuration would have changed: by the model, on the job's own path, as text.

use fullbore_core::media::MAX_FAMILIES;

use super::decide::{CLEARLY_COMPUTING, processor_share, stage_of_families};
use super::path::Own;
use super::{Direction, Evidence, Limit, Setup, Verdict, path, queue, untried};
use crate::throughput::what_if::{Answer, Change, SAME_SPEED, rank, usual};
use crate::throughput::{Configuration, Path, Side, predict};
use fullbore_core::units::{counted, show_bytes};

/// The least gain of speed for a line: runs differ by a little less than this.
pub const FASTER: f64 = 1.03;
/// The least gain of size for a line.
const SMALLER: f64 = 0.9;
/// The least gain of size for a line about a second codec.
const SMALLER_STILL: f64 = 0.95;
/// The lowest speed for a line about size.
const SLOWEST: f64 = 0.8;
/// Lines about speed.
const LINES: usize = 3;

/// One change, and its gain.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf {
    /// The change in words: `workers 2 → 4`.
    pub change: String,
    /// Factor of the speed: 1.31 is 31 % faster.
    pub speed: f64,
    /// Factor of the stored bytes: 0.59 is 41 % smaller.
    pub stored: f64,
    /// Additional bytes of memory; below 0: fewer.
    pub memory_bytes: f64,
}

impl WhatIf {
    /// As one line.
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

/// The useful lines, best first, and one about memory; none if the accounts cannot answer.
pub fn lines(evidence: &Evidence<'_>, verdict: &Verdict) -> Vec<WhatIf> {
    let limit = verdict.limit;
    if limit == Limit::Queue
        && let Some(measured) = queue::deeper(evidence, &verdict.uses, stage_of_families(evidence.direction))
    {
        // This gain is measured. The model knows the devices at one setting only, and fewer buffers would contradict
        // it.
        return vec![measured];
    }
    let (Some(setup), Some(own)) = (&evidence.setup, path::of(evidence)) else { return Vec::new() };
    let (path, now) = (&own.path, &own.configuration);
    let asked: Vec<Change> =
        usual(path, now).into_iter().filter(|change| is_answerable(change, &own, evidence, setup, limit)).collect();
    let answers = rank(path, now, &asked).unwrap_or_default();
    let in_words = || answers.iter().map(|answer| (Some(answer.change.clone()), worded(answer, setup, &own)));
    let further = untried::answers(&own, setup).into_iter().map(|(change, one)| (Some(change), one));
    let mut loud: Vec<(Option<Change>, WhatIf)> = in_words()
        .chain(further)
        .chain(without_throttle(path, now).map(|one| (None, one)))
        .filter(|(_, one)| one.speed >= FASTER || one.stored <= SMALLER && one.speed >= SLOWEST)
        .collect();
    // By speed, in steps that count as the same; then less stored, then less memory, then the smaller change, asked
    // first.
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

/// True if, by the job's own accounts, fewer buffers would have been as fast: then there were not too few.
pub fn fewer_buffers_are_as_fast(evidence: &Evidence<'_>) -> bool {
    let (Some(setup), Some(own)) = (&evidence.setup, path::of_accounts(evidence)) else { return false };
    let (path, now) = (&own.path, &own.configuration);
    let enough = |factor: f64| factor < 1.0 && buffer_count(setup, factor) >= setup.least_buffers;
    let fewer = |change: &Change| matches!(change, Change::Buffers(factor) if enough(*factor));
    let asked: Vec<Change> = usual(path, now).into_iter().filter(fewer).collect();
    rank(path, now, &asked).is_ok_and(|answers| answers.iter().any(|answer| answer.speed.ln() > -SAME_SPEED))
}

/// The lines to show: for each setting the best value; of codecs the fastest, and others that are clearly smaller
/// still.
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

/// True if the job or a profile has the facts for an answer.
fn is_answerable(change: &Change, own: &Own<'_>, evidence: &Evidence<'_>, setup: &Setup, limit: Limit) -> bool {
    let knows_total = |side: Side| own.path.side(side).ceiling(evidence.direction.way(side)).total_rate.is_finite();
    let backup = evidence.direction == Direction::Backup;
    let copying = setup.copying.as_ref();
    match change {
        // If workers wait for processors, more workers wait for the same ones.
        Change::Workers(_) => processor_share(evidence) >= CLEARLY_COMPUTING,
        // A copy has no flag for its buffers.
        Change::Buffers(_) if copying.is_some() => false,
        // If there are too few, do not ask for fewer.
        Change::Buffers(factor) if *factor < 1.0 && limit == Limit::Pool => false,
        // On a busy machine, more buffers always smooth the work. So they are advised only if the pool is the limit.
        Change::Buffers(factor) if *factor > 1.0 => limit == Limit::Pool,
        Change::Buffers(factor) => buffer_count(setup, *factor) >= setup.least_buffers,
        // A restore has the stripes and the codec of its set, and no flag for its writers. So has a copy as it is.
        Change::Stripes(stripes) => {
            let settable = backup && copying.is_none_or(|copying| copying.anew);
            settable && *stripes <= MAX_FAMILIES.into() && knows_total(Side::Media)
        }
        // A copy reads as many families as its source has.
        Change::DatabaseStreams(_) => backup && copying.is_none() && knows_total(Side::Database),
        // A path has only the codecs that a profile compares with the codec of the job.
        Change::Codec(_) => backup && copying.is_none_or(|copying| copying.packs),
        // Only a profile knows about more in flight: see `beyond`. Longer operations were not measured.
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
            // Without a codec, the model's pool does not have all buffers.
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

/// The gain of the same job without its throttle.
fn without_throttle(path: &Path, now: &Configuration) -> Option<WhatIf> {
    now.throttle?;
    let before = predict(path, now).ok()?;
    let after = predict(path, &Configuration { throttle: None, ..now.clone() }).ok()?;
    let speed = before.seconds / after.seconds;
    let change = "without --throttle".to_owned();
    (speed >= FASTER).then_some(WhatIf { change, speed, stored: 1.0, memory_bytes: 0.0 })
}
