//! `--measure-limit`: a short probe of the raw path, so that a report can say "412 of 430 MiB/s, 96 %, sink".

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fullbore_core::checksum::{UnitHasher, crc32c, xxh3_128_le};
use fullbore_core::codec::{Compression, Encoder};
use fullbore_core::device::{Device, Place};
use fullbore_core::plan::Plan;
use fullbore_core::pool::{Piece, Pool};
use fullbore_core::sink::{self, Sink};
use fullbore_core::source::Source;
use fullbore_core::{Error, Result};

use super::Conduct;
use crate::report::LimitReport;
use crate::units::mib_per_s;

/// What the names of its files begin with.
pub(super) const PROBE_NAME: &str = ".fullbore-probe-";
/// How often each part is measured.
const PROBES: usize = 3;
/// How long one probe may take.
const PROBE_TIME: Duration = Duration::from_millis(1000);
/// Bytes that a write probe leaves behind for a moment, per device.
const PROBE_BYTES: u64 = 256 << 20;

/// What each part of the path can do alone, in MiB/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RawLimit {
    /// Direct, sequential reads of the source file.
    pub source: f64,
    /// Checksums and codec on all workers, in plain MiB/s.
    pub transform: f64,
    /// Direct, sequential writes to all families at once; `None` when none is a file.
    pub sink: Option<f64>,
}

/// Measures the path of a backup. It writes temporary files beside the families and removes them.
///
/// # Errors
/// The source cannot be read, or a directory cannot be written.
pub fn measure(
    source: &dyn Source,
    devices: &[Device],
    plan: &Plan,
    compression: Compression,
    conduct: &Conduct,
) -> Result<RawLimit> {
    let samples = samples(source, plan.transfer_size as usize)?;
    let mut raw = RawLimit { source: 0.0, transform: 0.0, sink: None };
    // A limit is the best that was seen: what else runs on the machine can only slow a probe down.
    for _ in 0..PROBES {
        raw.source = raw.source.max(measure_reads(source, plan, conduct)?);
        raw.transform = raw.transform.max(measure_transform(&samples, plan, compression, conduct)?);
        raw.sink = match (raw.sink, measure_writes(devices, plan, conduct)?) {
            (Some(before), Some(now)) => Some(before.max(now)),
            (before, now) => before.or(now),
        };
    }
    Ok(raw)
}

/// The limit of the whole path in source MiB/s, given what `stored` of `read` bytes were written.
pub fn limit_of(raw: &RawLimit, read: u64, stored: u64, achieved: f64) -> LimitReport {
    let written_share = if read == 0 { 1.0 } else { stored as f64 / read as f64 };
    let sink = raw.sink.filter(|_| written_share > 0.0).map(|speed| speed / written_share);
    let stages = [("source", Some(raw.source)), ("transform", Some(raw.transform)), ("sink", sink)];
    let lowest =
        stages.iter().filter_map(|(name, speed)| speed.map(|speed| (*name, speed))).min_by(|a, b| a.1.total_cmp(&b.1));
    let (stage, speed) = lowest.unwrap_or(("source", raw.source));
    LimitReport {
        stage: stage.into(),
        mib_per_s: speed,
        percent: if speed > 0.0 { 100.0 * achieved / speed } else { 0.0 },
        source_mib_per_s: raw.source,
        transform_mib_per_s: Some(raw.transform),
        sink_mib_per_s: raw.sink,
    }
}

/// Reads the source's files as the backup will: the same transfer size, as many reads in flight as there are readers.
/// Through the engine, for nobody else may open the files of a database while its session lives.
fn measure_reads(source: &dyn Source, plan: &Plan, conduct: &Conduct) -> Result<f64> {
    let pool = Pool::new(plan.readers, plan.transfer_size as usize)?;
    let cursor = AtomicU64::new(0);
    let begun = Instant::now();
    let bytes: Result<u64> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..plan.readers)
            .map(|_| {
                let (pool, cursor) = (&pool, &cursor);
                scope.spawn(move || read_probe(source, pool, cursor, begun, conduct))
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().unwrap_or(Err(Error::Halted))).sum()
    });
    Ok(mib_per_s(bytes?, begun.elapsed().as_secs_f64()))
}

fn read_probe(
    source: &dyn Source,
    pool: &Arc<Pool>,
    cursor: &AtomicU64,
    begun: Instant,
    conduct: &Conduct,
) -> Result<u64> {
    let Some(stream) = source.streams().iter().max_by_key(|stream| stream.size) else { return Ok(0) };
    let mut buffer = pool.take()?;
    let window = buffer.len() as u64 / u64::from(stream.unit) * u64::from(stream.unit);
    let mut bytes = 0;
    while begun.elapsed() < PROBE_TIME {
        conduct.check()?;
        let offset = cursor.fetch_add(window, Ordering::Relaxed);
        if offset >= stream.size {
            break;
        }
        bytes += source.sample(stream.id, offset, &mut buffer)? as u64;
    }
    Ok(bytes)
}

/// Checksums and packs samples of the source in memory, on as many threads as there are workers.
fn measure_transform(samples: &[Vec<u8>], plan: &Plan, compression: Compression, conduct: &Conduct) -> Result<f64> {
    if samples.is_empty() {
        return Ok(0.0);
    }
    let begun = Instant::now();
    let bytes: Result<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.workers)
            .map(|at| scope.spawn(move || transform(samples, at, compression, begun, conduct)))
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(Err(Error::Halted))).sum()
    });
    Ok(mib_per_s(bytes?, begun.elapsed().as_secs_f64()))
}

fn transform(
    samples: &[Vec<u8>],
    start: usize,
    compression: Compression,
    begun: Instant,
    conduct: &Conduct,
) -> Result<u64> {
    let mut encoder = Encoder::new(compression)?;
    let mut packed = vec![0; samples.iter().map(Vec::len).max().unwrap_or(0)];
    let hasher = UnitHasher::new(1);
    let mut bytes = 0;
    for sample in samples.iter().cycle().skip(start) {
        if begun.elapsed() > PROBE_TIME {
            break;
        }
        conduct.check()?;
        for unit in sample.chunks(4096) {
            std::hint::black_box(hasher.hash(unit));
        }
        std::hint::black_box(xxh3_128_le(0, sample));
        let length = encoder.encode(sample, &mut packed)?;
        std::hint::black_box(crc32c(length.map_or(&sample[..], |length| &packed[..length])));
        bytes += sample.len() as u64;
    }
    Ok(bytes)
}

fn samples(source: &dyn Source, transfer_size: usize) -> Result<Vec<Vec<u8>>> {
    const SAMPLES: u64 = 16;
    let mut samples = Vec::new();
    for stream in source.streams() {
        let step = (stream.size / SAMPLES).max(transfer_size as u64) / u64::from(stream.unit) * u64::from(stream.unit);
        let mut offset = 0;
        while offset < stream.size && samples.len() < 2 * SAMPLES as usize {
            let mut bytes = vec![0; transfer_size.min(4 << 20)];
            let length = source.sample(stream.id, offset, &mut bytes)?;
            bytes.truncate(length);
            if length > 0 {
                samples.push(bytes);
            }
            offset += step.max(u64::from(stream.unit));
        }
    }
    Ok(samples)
}

/// Writes temporary files beside all families at once, as the backup will, and makes them durable.
fn measure_writes(devices: &[Device], plan: &Plan, conduct: &Conduct) -> Result<Option<f64>> {
    let directories: Vec<PathBuf> = devices
        .iter()
        .filter_map(|device| match device.place() {
            Place::File(path) => {
                Some(path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned())
            }
            Place::Directory(_) | Place::Null | Place::Pipe => None,
        })
        .collect();
    if directories.is_empty() {
        return Ok(None);
    }
    let per_device =
        PROBE_BYTES.max(plan.transfer_size.into()) / directories.iter().collect::<BTreeSet<_>>().len() as u64;
    let pool = Pool::new(directories.len() * (plan.queue_depth + 1), plan.transfer_size as usize)?;
    let mut sinks = Vec::new();
    for (at, directory) in directories.iter().enumerate() {
        let id = uuid::Uuid::new_v4().to_string();
        let name = directory.join(format!("{PROBE_NAME}{at}"));
        let options =
            sink::Options { queue_depth: plan.queue_depth, expected_size: Some(per_device), ..sink::Options::new(id) };
        sinks.push(sink::open(&Device::file(name), options)?);
    }
    let begun = Instant::now();
    let written: Result<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = sinks
            .iter_mut()
            .map(|sink| {
                let pool = &pool;
                scope.spawn(move || write_probe(&mut **sink, pool, per_device, begun, conduct))
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap_or(Err(Error::Halted))).sum()
    });
    let elapsed = begun.elapsed().as_secs_f64();
    for sink in &mut sinks {
        sink.abandon();
    }
    Ok(Some(mib_per_s(written?, elapsed)))
}

fn write_probe(sink: &mut dyn Sink, pool: &Arc<Pool>, most: u64, begun: Instant, conduct: &Conduct) -> Result<u64> {
    let mut offset = 0;
    while offset < most && begun.elapsed() < PROBE_TIME {
        conduct.check()?;
        let buffer = match pool.try_take() {
            Some(buffer) => buffer,
            None => {
                sink.settle(sink.in_flight().saturating_sub(1))?;
                continue;
            }
        };
        let length = buffer.len();
        sink.write(offset, Piece::new(buffer, 0..length))?;
        offset += length as u64;
    }
    sink.settle(0)?;
    sink.sync()?;
    Ok(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_that_of_the_slowest_part_in_source_bytes() {
        let raw = RawLimit { source: 1000.0, transform: 800.0, sink: Some(300.0) };
        let limit = limit_of(&raw, 100, 50, 570.0);
        assert_eq!((limit.stage.as_str(), limit.mib_per_s, limit.percent), ("sink", 600.0, 95.0));
        assert_eq!(limit_of(&raw, 100, 10, 400.0).stage, "transform");
    }
}
