//! Questions that only a profile can answer, about things that the job did not use: families in another directory, more
//! operations in flight.

use super::Setup;
use super::calibrated::{CalibratedLimits, Elsewhere};
use super::decide::CLEARLY_LESS;
use super::path::{Own, latency};
use super::what_if::{FASTER, WhatIf};
use crate::throughput::what_if::Change;
use crate::throughput::{Asking, Buffers, Ceiling, Configuration, Direction, Path, Side, predict};
use fullbore_core::units::counted;

/// The tried numbers of additional families in another directory.
const STRIPES_MORE: [u64; 2] = [1, 2];
/// The tried factors of the queue depth.
const DEEPER: [u64; 3] = [2, 4, 8];
/// The greatest queue depth that a plan takes.
const DEEPEST: u64 = 256;

/// The changes and their gains.
pub fn answers(own: &Own<'_>, setup: &Setup) -> Vec<(Change, WhatIf)> {
    let Some(known) = own.known else { return Vec::new() };
    let side = known.path.side(Side::Media).ceiling(own.configuration.direction.way(Side::Media));
    let copying = setup.copying.as_ref();
    // A copy has no flag for its writes in flight.
    let deepest = if copying.is_some() { 0 } else { DEEPEST };
    let depths = DEEPER.iter().map(|times| times * setup.queue_depth).filter(|depth| *depth <= deepest);
    let mut found: Vec<_> = least(depths.filter_map(|depth| deeper((side, known), depth, own, setup)));
    // If database and media share a device, the model cannot add another device.
    let settable = own.configuration.direction == Direction::Backup && copying.is_none_or(|copying| copying.anew);
    if settable && own.path.simultaneous.is_none() {
        for place in &known.elsewhere {
            found.extend(least(STRIPES_MORE.iter().filter_map(|more| stripes_in(place, side, *more, own))));
        }
    }
    found
}

/// Among growing changes, the last one that is clearly faster than the one before it.
fn least(changes: impl Iterator<Item = (Change, WhatIf)>) -> Vec<(Change, WhatIf)> {
    let greater = |best: Option<(Change, WhatIf)>, next: (Change, WhatIf)| match best {
        Some(best) if next.1.speed < FASTER * best.1.speed => Some(best),
        _ => Some(next),
    };
    changes.fold(None, greater).into_iter().collect()
}

/// Bytes per second of one stream with this many operations in flight.
fn stream_rate(ceiling: &Ceiling, in_flight: f64, transfer_bytes: f64) -> f64 {
    1.0 / ceiling.of_stream(in_flight, transfer_bytes)
}

fn answer(own: &Own<'_>, path: &Path, changed: &Configuration, said: (Change, String)) -> Option<(Change, WhatIf)> {
    let before = predict(&own.path, &own.configuration).ok()?;
    let after = predict(path, changed).ok()?;
    let (knob, change) = said;
    let (speed, memory_bytes) = (before.seconds / after.seconds, after.memory_bytes - before.memory_bytes);
    Some((knob, WhatIf { change, speed, stored: 1.0, memory_bytes }))
}

/// `more` additional families in a directory on its own device. Families take blocks as they are ready, so rates add
/// up. If the job's families were slower than in the profile, the new ones are slower by the same factor.
fn stripes_in(place: &Elsewhere, used: &Ceiling, more: u64, own: &Own<'_>) -> Option<(Change, WhatIf)> {
    let now = &own.configuration;
    let (stripes, depth) = (now.stripes as f64, now.queue_depth as f64);
    let mut path = own.path.clone();
    let media = &mut path.media.write;
    let before = *media;
    if !before.stream_rate.is_finite() || !place.write.total_rate.is_finite() {
        return None;
    }
    let foreseen = |ceiling: &Ceiling, count: f64| {
        (count * stream_rate(ceiling, depth, now.transfer_bytes)).min(ceiling.total_rate)
    };
    let came_true = (stripes * before.stream_rate / foreseen(used, stripes)).min(1.0);
    let all = stripes * before.stream_rate + came_true * foreseen(&place.write, more as f64);
    let stripes = now.stripes + more;
    media.stream_rate = all / stripes as f64;
    media.latency = before.latency * before.stream_rate / media.stream_rate;
    media.total_rate = before.total_rate + came_true * place.write.total_rate;
    let said = format!("+{} on {}", counted(more, "stripe"), place.directory);
    answer(own, &path, &Configuration { stripes, ..now.clone() }, (Change::Stripes(stripes), said))
}

/// More operations in flight, and buffers for them: the profile says how much faster one stream then is. Only asked if
/// the queue was full, and if the gain is larger than the scatter of the profile.
fn deeper(
    (measured, known): (&Ceiling, &CalibratedLimits),
    depth: u64,
    own: &Own<'_>,
    setup: &Setup,
) -> Option<(Change, WhatIf)> {
    let now = &own.configuration;
    let filled = setup.in_flight > CLEARLY_LESS * setup.queue_depth as f64;
    if !filled || !measured.stream_rate.is_finite() {
        return None;
    }
    let in_flight = setup.in_flight.min(setup.queue_depth as f64).max(1.0);
    let (way, bytes) = (now.direction.way(Side::Media), setup.operation_bytes as f64);
    let rate = |in_flight| {
        let asked = Asking { bytes, in_flight, streams: now.stripes as f64 };
        stream_rate(measured, in_flight, bytes) / known.path.requests.slowdown(way, measured, &asked)
    };
    let times = depth as f64 / setup.queue_depth as f64;
    let mut path = own.path.clone();
    let media = path.media.ceiling_mut(way);
    let gain = rate(in_flight * times) / rate(in_flight);
    if gain <= known.media.noise {
        return None;
    }
    if own.path.simultaneous.is_none() {
        // The device as in the job, which used a part of its speed.
        let streams = now.stripes as f64;
        let used = (streams * rate(in_flight)).min(measured.total_rate);
        media.total_rate = media.total_rate.max(streams * media.stream_rate * measured.total_rate / used);
    }
    media.stream_rate *= gain;
    media.latency = latency(in_flight * times, now.transfer_bytes, media.stream_rate);
    let room = now.stripes * (depth - setup.queue_depth) * setup.operation_bytes.div_ceil(setup.transfer_bytes.max(1));
    let buffers = match (now.buffers, now.direction) {
        (Buffers::Through(count), _) => Buffers::Through(count + room),
        (Buffers::Split { input, output }, Direction::Backup) => Buffers::Split { input, output: output + room },
        (Buffers::Split { input, output }, Direction::Restore) => Buffers::Split { input: input + room, output },
    };
    let changed = Configuration { queue_depth: depth, buffers, ..now.clone() };
    let said = format!("queue depth {} → {depth}", setup.queue_depth);
    answer(own, &path, &changed, (Change::QueueDepth(depth), said))
}
