//! A path for the model, from a job's own accounts: the time of each stage for a byte. A profile adds what the job has
//! not seen.

use fullbore_core::meter::Stage;

use super::calibrated::{CalibratedLimits, path_of_job, sides};
use super::{Evidence, Setup};
use crate::throughput::{Ceiling, CodecCost, Configuration, ExtraCost, FixedCosts, Path, Side, predict};

/// The model's speed for the job itself may be off by this much, as a logarithm: 25 %. Beyond, the model does not fit.
const CREDIBLE: f64 = 0.223;
/// Steps of the search for the evenness: to one in a million.
const HALVINGS: usize = 20;

/// The path of a job and its configuration; the model gives the job's own speed for them.
#[derive(Debug, Clone)]
pub struct Own<'a> {
    /// The costs of its stages.
    pub path: Path,
    /// Its configuration.
    pub configuration: Configuration,
    /// The profile, if its ceilings are in the path.
    pub known: Option<&'a CalibratedLimits>,
}

/// From the job's accounts alone; `None` if they are not enough, or contradict the model.
pub fn of_accounts<'a>(evidence: &Evidence<'a>) -> Option<Own<'a>> {
    made(evidence, None)
}

/// The same with a profile, if the model then gives the job's speed.
pub fn of<'a>(evidence: &Evidence<'a>) -> Option<Own<'a>> {
    evidence.profile.and_then(|known| made(evidence, Some(known))).or_else(|| of_accounts(evidence))
}

/// The configuration of the job, for the model.
pub fn configuration(evidence: &Evidence<'_>, setup: &Setup) -> Configuration {
    let (media, database) = sides(evidence);
    Configuration {
        direction: evidence.direction,
        plain_bytes: evidence.plain_bytes,
        extra: ExtraCost::default(),
        stripes: active(media),
        database_streams: active(database),
        queue_depth: setup.queue_depth.max(1),
        request_bytes: None,
        workers: setup.workers.max(1),
        buffers: setup.buffers,
        transfer_bytes: setup.transfer_bytes as f64,
        codec: setup.codec.clone(),
        encrypted: false, // The workers' account includes the cipher.
        throttle: evidence.throttle,
    }
}

fn made<'a>(evidence: &Evidence<'a>, known: Option<&'a CalibratedLimits>) -> Option<Own<'a>> {
    let setup = evidence.setup.as_ref()?;
    let direction = evidence.direction;
    let (media, database) = sides(evidence);
    let configuration = configuration(evidence, setup);
    let measured = known.map(|known| path_of_job(evidence, setup, known));
    let shared = measured.as_ref().filter(|measured| evidence.one_device && measured.simultaneous.is_some());
    let total = |side: Side, stream_rate: f64, streams: u64| match (shared, known) {
        // For one device that does both, only the profile has figures.
        (Some(measured), _) => measured.side(side).ceiling(direction.way(side)).total_rate,
        // Otherwise the device is as fast as in the job, and the profile says which share of it the job used.
        (None, Some(known)) => stream_rate * known.headroom(side).worth(streams as f64),
        (None, None) => f64::INFINITY,
    };
    let mut path = Path::unlimited(evidence.processors.max(1.0));
    path.codecs = codecs(evidence, setup, media.account.bytes as f64 / evidence.plain_bytes, measured.as_ref());
    path.simultaneous = shared.and_then(|measured| measured.simultaneous);
    path.write_heavy = shared.map_or(1.0, |measured| measured.write_heavy);
    let rate = stream_rate(database, configuration.database_streams, evidence.plain_bytes);
    let total_rate = total(Side::Database, rate, configuration.database_streams);
    *path.database.ceiling_mut(direction.way(Side::Database)) =
        Ceiling { stream_rate: rate, total_rate, ..Ceiling::NONE };
    let rate = stream_rate(media, configuration.stripes, media.account.bytes as f64);
    let latency = latency(setup.in_flight.min(setup.queue_depth as f64), setup.transfer_bytes as f64, rate);
    *path.media.ceiling_mut(direction.way(Side::Media)) = Ceiling {
        stream_rate: rate,
        total_rate: total(Side::Media, rate, configuration.stripes),
        latency,
        ..Ceiling::NONE
    };
    // Processor time of other threads is booked on the source's bytes: the model has one budget for all.
    let workers_busy = evidence.stages[1].account.busy.as_secs_f64();
    let rest = (evidence.processor_s - workers_busy).max(0.0);
    let source_bytes = evidence.stages[0].account.bytes.max(1) as f64;
    let source = direction.source();
    path.side_mut(source).ceiling_mut(direction.way(source)).processor =
        rest.min(evidence.processors * evidence.moving_s) / source_bytes;
    let extra = (evidence.elapsed_s - evidence.moving_s).max(0.0);
    path.fixed = FixedCosts { backup: extra, restore: extra, ..FixedCosts::default() };
    path.evenness = evenness(&mut path, &configuration, evidence.plain_bytes / evidence.moving_s)?;
    Some(Own { path, configuration, known })
}

/// A device with several operations in flight holds each buffer for longer than its transfer takes: Little's law.
pub fn latency(in_flight: f64, transfer_bytes: f64, stream_rate: f64) -> f64 {
    if stream_rate.is_finite() { (in_flight - 1.0).max(0.0) * transfer_bytes / stream_rate } else { 0.0 }
}

/// Busy seconds of the busiest thread.
pub fn busiest(stage: &Stage) -> f64 {
    stage.threads.iter().map(|thread| thread.busy.as_secs_f64()).fold(0.0, f64::max)
}

/// Threads that had something to do.
fn active(stage: &Stage) -> u64 {
    stage.threads.iter().filter(|thread| thread.bytes > 0).count().max(1) as u64
}

/// Bytes per second of one stream among `streams`, as if all threads were as busy as the busiest one.
fn stream_rate(stage: &Stage, streams: u64, bytes: f64) -> f64 {
    let busiest = busiest(stage);
    if busiest > 0.0 { (bytes / busiest / streams as f64).max(f64::MIN_POSITIVE) } else { f64::INFINITY }
}

/// The codec of the job, and the codecs that a profile compares it with.
fn codecs(evidence: &Evidence<'_>, setup: &Setup, stored_share: f64, measured: Option<&Path>) -> Vec<CodecCost> {
    let busiest = busiest(&evidence.stages[1]);
    // If there are more workers than processors, waiting workers seem to be busy.
    let running = (setup.workers.max(1) as f64).min(evidence.processors.max(1.0));
    let seconds = busiest * running / evidence.plain_bytes;
    let context_bytes = setup.codec_bytes as f64 / setup.workers.max(1) as f64;
    let own = CodecCost {
        name: setup.codec.clone(),
        pack: seconds,
        unpack: seconds,
        stored_share: stored_share.max(f64::MIN_POSITIVE),
        context_bytes,
    };
    let known = measured.and_then(|measured| Some((measured, measured.codec(&setup.codec)?)));
    let others = known.into_iter().flat_map(|(measured, same)| {
        let others = measured.codecs.iter().filter(|codec| codec.name != same.name);
        others.map(|other| CodecCost {
            name: other.name.clone(),
            // The other work of the workers stays the same.
            pack: (own.pack - same.pack).max(0.0) + other.pack,
            unpack: (own.unpack - same.unpack).max(0.0) + other.unpack,
            stored_share: other.stored_share,
            context_bytes: other.context_bytes,
        })
    });
    let others: Vec<CodecCost> = others.collect();
    [own].into_iter().chain(others).collect()
}

/// The regularity of service with which the model gives `rate`; `None` if no regularity comes near it.
fn evenness(path: &mut Path, configuration: &Configuration, rate: f64) -> Option<f64> {
    let mut foreseen = |evenness: f64| {
        path.evenness = evenness;
        let phases = predict(path, configuration).ok()?.phases;
        phases.first().map(|phase| phase.rate)
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        // More regular is faster.
        if foreseen(middle)? < rate { low = middle } else { high = middle }
    }
    let found = (low + high) / 2.0;
    ((foreseen(found)? / rate).ln().abs() <= CREDIBLE).then_some(found)
}
