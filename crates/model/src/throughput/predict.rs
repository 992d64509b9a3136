//! The prediction of one configuration: seconds, limit, processor time, memory.

use std::fmt;

use super::configuration::{Configuration, Direction};
use super::path::{Ceiling, CodecCost, Credit, Path};
use super::stations::{Flow, Limit, Station, TotalRates, crossing, processor_seconds, stations, whole_limit};

/// Why no prediction is possible: the value, and its required form.
#[derive(Debug, Clone, PartialEq)]
pub struct Unpredictable {
    /// The parameter or knob.
    pub what: String,
    /// Its value and its required form.
    pub why: String,
}

impl fmt::Display for Unpredictable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Unpredictable {}

/// How busy one station is, 0…1, in the longest phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageUse {
    /// The station.
    pub limit: Limit,
    /// Share of the time that it works.
    pub utilisation: f64,
}

/// A period with constant rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// Its length.
    pub seconds: f64,
    /// Plain bytes per second.
    pub rate: f64,
    /// Its limit.
    pub limit: Limit,
}

/// The prediction of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// From start to commit.
    pub seconds: f64,
    /// Plain bytes per second over the whole time.
    pub rate: f64,
    /// The limit of the time.
    pub limit: Limit,
    /// The part of `seconds` that does not depend on the pipeline: start, commit, bytes that do not pass.
    pub fixed_seconds: f64,
    /// Processor seconds of all stages.
    pub cpu_seconds: f64,
    /// The pool, codec contexts and other memory of the job.
    pub memory_bytes: f64,
    /// Bytes on the media.
    pub stored_bytes: f64,
    /// Each station in the longest phase, in the order in which bytes pass them.
    pub stages: Vec<StageUse>,
    /// One phase, or more if burst credit ends during the job.
    pub phases: Vec<Phase>,
}

/// The prediction of `configuration` on `path`.
///
/// # Errors
/// A number is not positive or not finite although it must be, or the path does not know the codec.
pub fn predict(path: &Path, configuration: &Configuration) -> Result<Prediction, Unpredictable> {
    let codec = checked(path, configuration)?;
    let direction = configuration.direction;
    let ceiling = |side| path.side(side).ceiling(direction.way(side));
    let (mut source, mut target) = (Credit::new(ceiling(direction.source())), Credit::new(ceiling(direction.target())));
    let filled = target.fill(configuration.extra.bytes);
    let to_cache = path.writes_to_cache(configuration);
    let flushed = if to_cache { configuration.plain_bytes * path.fixed.flush } else { 0.0 };
    let commits = match direction {
        Direction::Backup => path.fixed.commit * configuration.stripes as f64,
        Direction::Restore => 0.0, // It makes no family durable.
    };
    let of_job = path.fixed.of(direction) + commits;
    let fixed_seconds = of_job + filled + flushed + seconds_of_files(path, configuration);

    let (source_share, target_share) = (crossing(direction.source(), codec), crossing(direction.target(), codec));
    if to_cache {
        target = Credit::new(&Ceiling::NONE); // The device has nothing to do before the end.
    }
    let totals = TotalRates { source: source.rate(), target: target.rate() };
    let stations = stations(path, configuration, codec, totals);
    let unhindered = stations.flow(configuration.buffers, configuration.transfer_bytes, path.evenness);
    if unhindered.rate.is_infinite() {
        return Err(unlimited());
    }
    let mut left = configuration.plain_bytes;
    let mut phases: Vec<Phase> = Vec::new();
    // Each phase but the last ends with the end of a credit. There are two credits.
    while left > 0.0 {
        let allowed = [
            (source.allows() / source_share, whole_limit(direction.source())),
            (target.allows() / target_share, whole_limit(direction.target())),
        ];
        let slower =
            |flow: Flow, (rate, limit): (f64, Limit)| if rate < flow.rate { Flow { rate, limit } } else { flow };
        let flow = allowed.into_iter().fold(unhindered, slower);
        let (read, written) = (flow.rate * source_share, flow.rate * target_share);
        let (to_end, ends) = (left / flow.rate, [source.lasts(read), target.lasts(written)]);
        let seconds = to_end.min(ends[0]).min(ends[1]);
        source.pass(read, seconds, seconds >= ends[0]);
        target.pass(written, seconds, seconds >= ends[1]);
        left = if seconds >= to_end { 0.0 } else { left - seconds * flow.rate };
        phases.push(Phase { seconds, rate: flow.rate, limit: flow.limit });
    }
    let passing: f64 = phases.iter().map(|phase| phase.seconds).sum();
    let seconds = fixed_seconds + passing;
    let longest = phases.iter().max_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let limit = longest.map(|phase| phase.limit).filter(|_| fixed_seconds <= passing).unwrap_or(if flushed > passing {
        Limit::Database
    } else {
        Limit::FixedCosts
    });
    let rate = longest.map_or(0.0, |phase| phase.rate);
    let used = |station: &Station| StageUse { limit: station.limit, utilisation: rate * station.demand };
    Ok(Prediction {
        seconds,
        rate: configuration.plain_bytes / seconds,
        limit,
        fixed_seconds,
        cpu_seconds: configuration.plain_bytes * processor_seconds(path, configuration, codec),
        memory_bytes: configuration.buffers.count() as f64 * configuration.transfer_bytes
            + configuration.workers as f64 * codec.context_bytes
            + path.fixed.memory,
        stored_bytes: configuration.plain_bytes * codec.stored_share,
        stages: stations.all().map(used).collect(),
        phases,
    })
}

/// The prediction for hardware that is `slowness` times as slow as in `path`. A throttle is not hardware: it is
/// predicted in slowed time, so it lets `slowness` times as many bytes pass there.
///
/// # Errors
/// As [`predict`].
pub fn predict_slowed(path: &Path, configuration: &Configuration, slowness: f64) -> Result<Prediction, Unpredictable> {
    let made = match configuration.throttle {
        None => predict(path, configuration)?,
        Some(rate) => predict(path, &Configuration { throttle: Some(rate * slowness), ..configuration.clone() })?,
    };
    let slowed =
        |phase: &Phase| Phase { seconds: phase.seconds * slowness, rate: phase.rate / slowness, limit: phase.limit };
    Ok(Prediction {
        seconds: made.seconds * slowness,
        rate: made.rate / slowness,
        fixed_seconds: made.fixed_seconds * slowness,
        // Processors are hardware too: otherwise they would work longer than the job if all other parts are faster.
        cpu_seconds: made.cpu_seconds * slowness,
        phases: made.phases.iter().map(slowed).collect(),
        ..made
    })
}

/// Seconds for opening or making files, besides their bytes.
fn seconds_of_files(path: &Path, configuration: &Configuration) -> f64 {
    let each = match configuration.direction {
        // Readers hide each other's latency, but not the device's time for a short operation among others.
        Direction::Backup => {
            path.fixed.read_file.max(path.database.read.latency / configuration.database_streams as f64)
        }
        // Measured with as many syncs at once as in a restore.
        Direction::Restore => path.fixed.write_file,
    };
    configuration.extra.files * each
}

fn unpredictable(what: impl Into<String>, why: impl Into<String>) -> Unpredictable {
    Unpredictable { what: what.into(), why: why.into() }
}

/// The error of a path without any ceiling.
pub(super) fn unlimited() -> Unpredictable {
    unpredictable("path", "no stage of it has a ceiling, so the speed has no limit")
}

/// The codec, once all numbers are known to be usable.
pub(super) fn checked<'a>(path: &'a Path, configuration: &Configuration) -> Result<&'a CodecCost, Unpredictable> {
    let codec = path.codec(&configuration.codec).ok_or_else(|| {
        let known: Vec<&str> = path.codecs.iter().map(|codec| codec.name.as_str()).collect();
        unpredictable(
            format!("codec {}", configuration.codec),
            format!("its cost is not known; known are {}", known.join(", ")),
        )
    })?;
    for (what, value) in [
        ("plain bytes", configuration.plain_bytes),
        ("transfer size", configuration.transfer_bytes),
        ("stripes", configuration.stripes as f64),
        ("streams of the database", configuration.database_streams as f64),
        ("queue depth", configuration.queue_depth as f64),
        ("workers", configuration.workers as f64),
        ("cores", path.machine.cores),
        ("bytes of a request", configuration.request_bytes.unwrap_or(1.0)),
        ("throttle", configuration.throttle.unwrap_or(1.0)),
        ("simultaneous share", path.simultaneous.unwrap_or(1.0)),
        ("factor of a write-heavy mix", path.write_heavy),
        ("stored share", codec.stored_share),
    ] {
        if !(value > 0.0 && value.is_finite()) {
            return Err(unpredictable(what, format!("{value} is not a number above 0")));
        }
    }
    let buffers = match configuration.buffers {
        super::Buffers::Through(count) => count,
        super::Buffers::Split { input, output } => input.min(output),
    };
    if buffers == 0 {
        return Err(unpredictable("buffers", "0: without a buffer, no byte can move"));
    }
    for (what, value) in [
        ("extra bytes", configuration.extra.bytes),
        ("files", configuration.extra.files),
        ("seconds for reading a file", path.fixed.read_file),
        ("seconds for making a file", path.fixed.write_file),
        ("fixed seconds of a backup", path.fixed.backup),
        ("fixed seconds of a restore", path.fixed.restore),
        ("seconds for a commit", path.fixed.commit),
        ("seconds for writing the page cache", path.fixed.flush),
        ("bytes of memory", path.fixed.memory),
        ("seconds for handing on a buffer", path.machine.hand_over),
        ("seconds for checksums", path.machine.checksum),
        ("seconds for the cipher", path.machine.cipher),
        ("seconds for packing", codec.pack),
        ("seconds for unpacking", codec.unpack),
        ("bytes of a codec context", codec.context_bytes),
    ] {
        if !(value >= 0.0 && value.is_finite()) {
            return Err(unpredictable(what, format!("{value} is not a number from 0 on")));
        }
    }
    if !(0.0..=1.0).contains(&path.evenness) {
        return Err(unpredictable("evenness", format!("{} is not from 0 to 1", path.evenness)));
    }
    check_ceilings(path)?;
    Ok(codec)
}

fn check_ceilings(path: &Path) -> Result<(), Unpredictable> {
    for (name, device) in [("database", &path.database), ("media", &path.media)] {
        for ceiling in [&device.read, &device.write] {
            let rates = [ceiling.stream_rate, ceiling.total_rate, ceiling.burst.map_or(1.0, |burst| burst.rate)];
            let rest = [ceiling.latency, ceiling.processor, ceiling.burst.map_or(0.0, |burst| burst.credit)];
            // An infinite rate means that no limit is known.
            if rates.iter().any(|rate| rate.is_nan() || *rate <= 0.0)
                || rest.iter().any(|value| !(*value >= 0.0 && value.is_finite()))
            {
                return Err(unpredictable(
                    format!("ceiling of the {name}"),
                    "a rate is not above 0, or a time below 0",
                ));
            }
        }
    }
    Ok(())
}

/// The highest speed of a path, and its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roofline {
    /// Plain bytes per second.
    pub rate: f64,
    /// The slowest part that no setting changes.
    pub limit: Limit,
}

/// The highest rate of plain bytes with this codec and cipher, for any other settings: with enough streams, workers,
/// buffers and operations in flight, and without a throttle. The remaining limits are each side as a whole, one device
/// for both, and the processors. Burst credit is not counted: this is the lasting speed.
///
/// # Errors
/// As [`predict`](predict()); or no part of the path has a ceiling.
pub fn roofline(path: &Path, configuration: &Configuration) -> Result<Roofline, Unpredictable> {
    // One worker for each processor; more would wait for the same ones.
    let workers = path.machine.cores.ceil().max(1.0) as u64;
    let open = Configuration { workers, throttle: None, ..configuration.clone() };
    let codec = checked(path, &open)?;
    let total = |side| path.side(side).ceiling(open.direction.way(side)).total_rate;
    let totals = TotalRates { source: total(open.direction.source()), target: total(open.direction.target()) };
    let stations = stations(path, &open, codec, totals);
    let lasting = stations.all().filter(|station| !matches!(station.limit, Limit::DatabaseStreams | Limit::Stripes));
    let slowest = lasting.max_by(|one, other| one.demand.total_cmp(&other.demand));
    let Some(slowest) = slowest.filter(|station| station.demand > 0.0) else { return Err(unlimited()) };
    // A shared device is the limit only if the sides wait for each other there; else the slower side is the limit.
    let alone = [(open.direction.source(), totals.source), (open.direction.target(), totals.target)];
    let alone = alone.into_iter().find(|(side, total)| crossing(*side, codec) / total >= slowest.demand);
    let limit = match (slowest.limit, alone) {
        (Limit::SharedDevice, Some((side, _))) => whole_limit(side),
        (limit, _) => limit,
    };
    Ok(Roofline { rate: 1.0 / slowest.demand, limit })
}
