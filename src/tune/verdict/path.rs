//! A path for the model out of a job's own accounts: what each stage took for a byte, and nothing that the job has not seen.

use fullbore_core::meter::Stage;

use super::{Direction, Evidence, Setup};
use crate::tune::model::{Ceiling, CodecCost, Configuration, FixedCosts, Path, Side, predict};

/// What the model gives for the job itself may be off by so much, as a logarithm: 25 %. Beyond, the accounts are not what it takes them for.
const CREDIBLE: f64 = 0.223;
/// Steps of the search for the evenness: to one in a million.
const HALVINGS: usize = 20;

/// The path of this job and its configuration; `None` where the accounts are not enough for it, or say something else than the model.
pub fn of(evidence: &Evidence<'_>) -> Option<(Path, Configuration)> {
    let setup = evidence.setup.as_ref()?;
    let direction = evidence.direction;
    let (media, database) = match direction {
        Direction::Backup => (&evidence.stages[2], &evidence.stages[0]),
        Direction::Restore => (&evidence.stages[0], &evidence.stages[2]),
    };
    let (stripes, database_streams) = (active(media), active(database));
    let configuration = Configuration {
        direction,
        plain_bytes: evidence.plain_bytes,
        bytes_besides: 0.0,
        stripes,
        database_streams,
        queue_depth: setup.queue_depth.max(1),
        workers: setup.workers.max(1),
        buffers: setup.buffers,
        transfer_bytes: setup.transfer_bytes as f64,
        codec: setup.codec.clone(),
        encrypted: false, // What the cipher takes is in the workers' account.
        throttle: setup.throttle,
    };
    let mut path = Path::unlimited(evidence.processors.max(1.0));
    path.codecs = codecs(evidence, setup, media.account.bytes as f64 / evidence.plain_bytes);
    *path.database.ceiling_mut(direction.way(Side::Database)) = Ceiling {
        stream_rate: stream_rate(database, database_streams, evidence.plain_bytes),
        total_rate: known_total(evidence, Side::Database),
        ..Ceiling::NONE
    };
    let rate = stream_rate(media, stripes, media.account.bytes as f64);
    // A device that has several operations in flight holds their buffers, each for longer than its bytes take: Little's law.
    let deep = (setup.in_flight.min(setup.queue_depth as f64) - 1.0).max(0.0);
    let latency = if rate.is_finite() { deep * setup.transfer_bytes as f64 / rate } else { 0.0 };
    *path.media.ceiling_mut(direction.way(Side::Media)) =
        Ceiling { stream_rate: rate, total_rate: known_total(evidence, Side::Media), latency, burst: None };
    // Processor time that is not the workers' own, on the source's bytes: the model has one budget for all.
    let workers_busy = evidence.stages[1].account.busy.as_secs_f64();
    let rest = (evidence.processor_s - workers_busy).max(0.0);
    let source_bytes = evidence.stages[0].account.bytes.max(1) as f64;
    path.machine.read = rest.min(evidence.processors * evidence.moving_s) / source_bytes;
    path.fixed = FixedCosts { start: (evidence.elapsed_s - evidence.moving_s).max(0.0), ..FixedCosts::default() };
    path.evenness = evenness(&mut path, &configuration, evidence.plain_bytes / evidence.moving_s)?;
    Some((path, configuration))
}

/// Threads that had something to do.
fn active(stage: &Stage) -> u64 {
    stage.threads.iter().filter(|thread| thread.bytes > 0).count().max(1) as u64
}

/// Bytes per second of one of so many streams, such that the busiest thread is what all of them are.
fn stream_rate(stage: &Stage, streams: u64, bytes: f64) -> f64 {
    let busiest = stage.threads.iter().map(|thread| thread.busy.as_secs_f64()).fold(0.0, f64::max);
    if busiest > 0.0 { (bytes / busiest / streams as f64).max(f64::MIN_POSITIVE) } else { f64::INFINITY }
}

/// What a side can do in all, where a profile says so.
fn known_total(evidence: &Evidence<'_>, side: Side) -> f64 {
    let ceiling = |path: &Path| path.side(side).ceiling(evidence.direction.way(side)).total_rate;
    evidence.profile.map_or(f64::INFINITY, ceiling)
}

/// The codec as it was, and those that a profile compares it with.
fn codecs(evidence: &Evidence<'_>, setup: &Setup, stored_share: f64) -> Vec<CodecCost> {
    let busiest = evidence.stages[1].threads.iter().map(|thread| thread.busy.as_secs_f64()).fold(0.0, f64::max);
    // More workers than processors wait for these while they seem to be busy.
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
    let known = evidence.profile.and_then(|profile| Some((profile, profile.codec(&setup.codec)?)));
    let others = known.into_iter().flat_map(|(profile, measured)| {
        let own = own.clone();
        let others = profile.codecs.iter().filter(|codec| codec.name != measured.name);
        others.map(move |other| CodecCost {
            name: other.name.clone(),
            // What the workers do besides stays as it was.
            pack: (own.pack - measured.pack).max(0.0) + other.pack,
            unpack: (own.unpack - measured.unpack).max(0.0) + other.unpack,
            stored_share: (own.stored_share * other.stored_share / measured.stored_share).max(f64::MIN_POSITIVE),
            context_bytes: other.context_bytes,
        })
    });
    let others: Vec<CodecCost> = others.collect();
    [own].into_iter().chain(others).collect()
}

/// How regular service must have been for the model to give `rate`; `None` where no regularity comes near it.
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
