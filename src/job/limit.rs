//! `--measure-limit`: a short probe of the raw path, so that a report can say "412 of 430 MiB/s, 96 %, sink".

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fullbore_core::checksum::{UnitHasher, crc32c, xxh3_128_le};
use fullbore_core::codec::{Compression, Encoder};
use fullbore_core::device::{Destination, Device};
use fullbore_core::halt::Halt;
use fullbore_core::io::{directory_of, free_space};
use fullbore_core::plan::Plan;
use fullbore_core::pool::{Piece, Pool};
use fullbore_core::sink::{self, Sink};
use fullbore_core::source::Source;
use fullbore_core::{Error, Result, threads};
use fullbore_repository::discovery::PROBE_NAME;

use crate::report::LimitReport;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::mib_per_s;

/// How often each part is measured.
const PROBES: usize = 3;
/// How long one probe may take.
const PROBE_TIME: Duration = Duration::from_millis(1000);
/// Bytes that a write probe writes for a moment, per device.
const PROBE_BYTES: u64 = 256 << 20;
/// The least operations in flight on all families together, and the bytes of each. The raw path is the speed of the
/// devices, not of the queue of the plan.
const RAW_IN_FLIGHT: usize = 8;
const RAW_TRANSFER: u32 = 1 << 20;
/// How long one side of a copy waits before it checks the other side again.
const PAUSE: Duration = Duration::from_micros(100);

/// The speeds of the parts of the path, in MiB/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RawLimit {
    /// Direct, sequential reads of the source file, alone.
    pub source: f64,
    /// Checksums and codec on all workers, in plain MiB/s.
    pub transform: f64,
    /// Direct, sequential writes to all families at once, alone; `None` if no family is a file, or without free space.
    pub sink: Option<f64>,
    /// Both at the same time, with as many bytes written as the codec leaves, in source MiB/s: less than either if they
    /// share a disk. `None` if no family is a file.
    pub copy: Option<f64>,
    /// How the families were written.
    pub shape: ProbeShape,
}

/// Operations in flight in each family, and bytes of each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeShape {
    queue_depth: usize,
    transfer_bytes: u32,
}

impl ProbeShape {
    fn of(plan: &Plan, families: usize) -> Self {
        let queue_depth = plan.queue_depth.max(RAW_IN_FLIGHT.div_ceil(families.max(1)));
        Self { queue_depth, transfer_bytes: plan.transfer_size.max(RAW_TRANSFER) }
    }
}

/// Measures the path of a backup; `None` if the source can be read only once, by a backup, like a server. It writes
/// temporary files beside the families and removes them.
///
/// # Errors
/// The source cannot be read, or a directory cannot be written.
pub fn measure(
    source: &dyn Source,
    devices: &[Device],
    plan: &Plan,
    compression: Compression,
    conduct: &Conduct,
) -> Result<Option<RawLimit>> {
    let samples = samples(source, plan.transfer_size as usize)?;
    if samples.is_empty() {
        return Ok(None);
    }
    let share = stored_share(&samples, compression)?;
    let directories = directories(devices);
    let mut shape = ProbeShape::of(plan, directories.len());
    let mut room = probe_bytes(&directories, shape)?;
    if room.is_none() {
        // Without space for long transfers, there may be space for the transfers of the plan.
        shape.transfer_bytes = plan.transfer_size;
        room = probe_bytes(&directories, shape)?;
    }
    let mut raw = RawLimit { source: 0.0, transform: 0.0, sink: None, copy: None, shape };
    // The best probe is the limit: other work on the machine can only slow a probe down.
    for _ in 0..PROBES {
        raw.source = raw.source.max(measure_reads(source, plan, conduct)?);
        raw.transform = raw.transform.max(measure_transform(&samples, plan, compression, conduct)?);
        if let Some(per_device) = room {
            let alone = match measure_writes((&directories, per_device), shape, None, conduct) {
                // A limit on the size of files, or a quota: the backup may be smaller.
                Err(error) if error.is_lack_of_room() => {
                    (room, raw.sink, raw.copy) = (None, None, None);
                    continue;
                }
                alone => alone?,
            };
            raw.sink = Some(raw.sink.unwrap_or(0.0).max(alone));
            let together = measure_copy(source, (&directories, per_device), (plan, shape), share, conduct)?;
            // If the database is smaller than one write, nothing was written.
            raw.copy = [raw.copy, Some(together)].into_iter().flatten().filter(|speed| *speed > 0.0).reduce(f64::max);
        }
    }
    Ok(Some(raw))
}

/// The limit of the whole path in source MiB/s, if `stored` bytes are written for `read` bytes.
pub fn limit_of(raw: &RawLimit, read: u64, stored: u64, achieved: f64) -> LimitReport {
    let written_share = if read == 0 { 1.0 } else { stored as f64 / read as f64 };
    let sink = raw.sink.filter(|_| written_share > 0.0).map(|speed| speed / written_share);
    // The copy is named only if it is clearly slower than either side: otherwise it says nothing new.
    let sides = sink.map_or(raw.source, |sink| sink.min(raw.source));
    let copy = raw.copy.filter(|copy| *copy < 0.95 * sides);
    let stages =
        [("source", Some(raw.source)), ("transform", Some(raw.transform)), ("sink", sink), ("source and sink", copy)];
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
        sink_queue_depth: raw.shape.queue_depth as u64,
        sink_transfer_bytes: u64::from(raw.shape.transfer_bytes),
        copy_mib_per_s: raw.copy,
    }
}

/// The bytes that are written per byte of the source, by samples.
fn stored_share(samples: &[Vec<u8>], compression: Compression) -> Result<f64> {
    let mut encoder = Encoder::new(compression)?;
    let mut packed = zeroed(samples.iter().map(Vec::len).max().unwrap_or(0))?;
    let (mut plain, mut stored) = (0, 0);
    for sample in samples {
        plain += sample.len();
        stored += encoder.encode(sample, &mut packed)?.unwrap_or(sample.len());
    }
    Ok(if plain == 0 { 1.0 } else { stored as f64 / plain as f64 })
}

/// The progress of a copy. Its writers follow its readers, and the readers wait for them as for buffers of a pool.
struct Copying {
    share: f64,
    read: AtomicU64,
    written: AtomicU64,
    ended: AtomicBool,
    ahead: u64,
}

impl Copying {
    /// True while a reader has to wait.
    fn reader_is_far_ahead(&self) -> bool {
        let written = self.written.load(Ordering::Relaxed) as f64 / self.share.max(0.01);
        self.read.load(Ordering::Relaxed) as f64 > written + self.ahead as f64
    }

    /// Takes `length` bytes to write, if enough was read for them.
    fn claim(&self, length: u64) -> bool {
        let readable = (self.read.load(Ordering::Relaxed) as f64 * self.share) as u64;
        let claim = |written: u64| Some(written + length).filter(|end| *end <= readable);
        self.written.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim).is_ok()
    }

    /// Waits until `length` bytes may be written; false if the probe ends before.
    fn wait_to_write(&self, length: u64, begun: Instant) -> bool {
        loop {
            // Checked first: bytes that were read before the end may be written after it.
            let over = self.ended.load(Ordering::Acquire) || begun.elapsed() >= PROBE_TIME;
            if self.claim(length) {
                return true;
            }
            if over {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Reads and writes at the same time; source MiB/s.
fn measure_copy(
    source: &dyn Source,
    (directories, per_device): (&[PathBuf], u64),
    (plan, shape): (&Plan, ProbeShape),
    share: f64,
    conduct: &Conduct,
) -> Result<f64> {
    let copying = Copying {
        share,
        read: AtomicU64::new(0),
        written: AtomicU64::new(0),
        ended: AtomicBool::new(false),
        ahead: plan.pool_bytes(),
    };
    let pool = Pool::new(plan.readers, plan.transfer_size as usize)?;
    let cursor = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let readers: Result<Vec<_>> = (1..=plan.readers)
            .map(|number| {
                let (pool, cursor, copying) = (&pool, &cursor, &copying);
                threads::start_in(scope, &format!("reader {number}"), move || {
                    let done = read_probe(source, pool, cursor, begun, Some(copying), conduct);
                    copying.ended.store(true, Ordering::Release);
                    done
                })
            })
            .collect();
        let written =
            readers.is_ok().then(|| measure_writes((directories, per_device), shape, Some(&copying), conduct));
        copying.ended.store(true, Ordering::Release);
        for reader in readers? {
            reader.join().unwrap_or(Err(Error::Halted))?;
        }
        Ok(written.unwrap_or(Err(Error::Halted))? / share.max(0.01))
    })
}

/// Reads the files of the source as the backup will: the same transfer size, as many reads in flight as there are
/// readers. It reads through the engine, because nothing else may open the files of a database while its session lives.
fn measure_reads(source: &dyn Source, plan: &Plan, conduct: &Conduct) -> Result<f64> {
    let pool = Pool::new(plan.readers, plan.transfer_size as usize)?;
    let cursor = AtomicU64::new(0);
    let begun = Instant::now();
    let bytes: Result<u64> = std::thread::scope(|scope| {
        // Started threads end by themselves, after PROBE_TIME at the latest; also below.
        let readers: Result<Vec<_>> = (1..=plan.readers)
            .map(|number| {
                let (pool, cursor) = (&pool, &cursor);
                let read = move || read_probe(source, pool, cursor, begun, None, conduct);
                threads::start_in(scope, &format!("reader {number}"), read)
            })
            .collect();
        readers?.into_iter().map(|reader| reader.join().unwrap_or(Err(Error::Halted))).sum()
    });
    Ok(mib_per_s(bytes?, begun.elapsed().as_secs_f64()))
}

fn read_probe(
    source: &dyn Source,
    pool: &Arc<Pool>,
    cursor: &AtomicU64,
    begun: Instant,
    copying: Option<&Copying>,
    conduct: &Conduct,
) -> Result<u64> {
    let Some(stream) = source.streams().iter().max_by_key(|stream| stream.size) else { return Ok(0) };
    let mut buffer = pool.take()?;
    let window = buffer.len() as u64 / u64::from(stream.unit) * u64::from(stream.unit);
    let mut bytes = 0;
    while begun.elapsed() < PROBE_TIME {
        conduct.check()?;
        match copying {
            Some(copying) if copying.ended.load(Ordering::Acquire) => break,
            Some(copying) if copying.reader_is_far_ahead() => {
                std::thread::sleep(PAUSE);
                continue;
            }
            _ => {}
        }
        let offset = cursor.fetch_add(window, Ordering::Relaxed);
        if offset >= stream.size {
            break;
        }
        let end = (offset + window).min(stream.size);
        if (offset..end).step_by(stream.unit as usize).all(|unit| source.is_free(stream.id, unit)) {
            continue; // A backup does not read it, and it would look like a fast disk.
        }
        let length = source.sample(stream.id, offset, &mut buffer)? as u64;
        bytes += length;
        if let Some(copying) = copying {
            copying.read.fetch_add(length, Ordering::Relaxed);
        }
    }
    Ok(bytes)
}

/// Checksums and packs samples of the source in memory, on as many threads as there are workers.
fn measure_transform(samples: &[Vec<u8>], plan: &Plan, compression: Compression, conduct: &Conduct) -> Result<f64> {
    let begun = Instant::now();
    let bytes: Result<u64> = std::thread::scope(|scope| {
        let workers: Result<Vec<_>> = (0..plan.workers)
            .map(|at| {
                let work = move || transform(samples, at, compression, begun, conduct);
                threads::start_in(scope, &format!("worker {}", at + 1), work)
            })
            .collect();
        workers?.into_iter().map(|worker| worker.join().unwrap_or(Err(Error::Halted))).sum()
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
    let mut packed = zeroed(samples.iter().map(Vec::len).max().unwrap_or(0))?;
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

/// Memory that is not part of the plan, and may not be available.
fn zeroed(length: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| {
        let why = format!("cannot allocate {length} bytes for measuring the limit");
        Error::refused("memory", why, "leave out --measure-limit, or lower --max-transfer-size")
    })?;
    bytes.resize(length, 0);
    Ok(bytes)
}

fn samples(source: &dyn Source, transfer_size: usize) -> Result<Vec<Vec<u8>>> {
    const SAMPLES: u64 = 16;
    let mut samples = Vec::new();
    for stream in source.streams() {
        let step = (stream.size / SAMPLES).max(transfer_size as u64) / u64::from(stream.unit) * u64::from(stream.unit);
        let mut offset = 0;
        while offset < stream.size && samples.len() < 2 * SAMPLES as usize {
            let mut bytes = zeroed(transfer_size.min(4 << 20))?;
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

/// The directory of each family that is a file, one for each family.
fn directories(devices: &[Device]) -> Vec<PathBuf> {
    let directory = |device: &Device| match device.place() {
        Destination::File(path) => Some(directory_of(path).to_owned()),
        Destination::Directory(_)
        | Destination::Object { .. }
        | Destination::Prefix { .. }
        | Destination::Null
        | Destination::Pipe => None,
    };
    devices.iter().filter_map(directory).collect()
}

/// The bytes that a write probe writes for each family: at most a quarter of the free space, because the backup and
/// others need the rest. `None` if no family is a file, or without space for it.
fn probe_bytes(directories: &[PathBuf], shape: ProbeShape) -> Result<Option<u64>> {
    let transfer = u64::from(shape.transfer_bytes);
    let mut families: HashMap<u64, (u64, &Path)> = HashMap::new();
    for directory in directories {
        // The backup refuses or makes a missing directory.
        let Ok(metadata) = std::fs::metadata(directory) else { return Ok(None) };
        families.entry(metadata.dev()).or_insert((0, directory)).0 += 1;
    }
    let different = directories.iter().collect::<BTreeSet<_>>().len() as u64;
    let mut most = PROBE_BYTES.max(transfer) / different.max(1);
    for (families, directory) in families.values() {
        most = most.min(free_space(directory)? / 4 / families);
    }
    let whole = most / transfer * transfer;
    Ok((different > 0 && whole > 0).then_some(whole))
}

/// Writes temporary files beside all families at once and makes them durable; MiB/s of written bytes. The volumes
/// under the devices count too.
fn measure_writes(
    (directories, per_device): (&[PathBuf], u64),
    shape: ProbeShape,
    copying: Option<&Copying>,
    conduct: &Conduct,
) -> Result<f64> {
    let ProbeShape { queue_depth, transfer_bytes } = shape;
    let pool = Pool::new(directories.len() * (queue_depth + 1), transfer_bytes as usize)?;
    let mut sinks = Vec::new();
    for (at, directory) in directories.iter().enumerate() {
        let id = uuid::Uuid::new_v4().to_string();
        let name = directory.join(format!("{PROBE_NAME}{at}"));
        let options = sink::Options { queue_depth, expected_size: Some(per_device), ..sink::Options::new(id) };
        let sink = sink::open(&Device::file(name), options)?;
        sinks.push(match &conduct.volumes {
            Some(volumes) => volumes.sink(sink, queue_depth, &Halt::new()),
            None => sink,
        });
    }
    let begun = Instant::now();
    let written: Result<u64> = std::thread::scope(|scope| {
        let writers: Result<Vec<_>> = sinks
            .iter_mut()
            .zip(1..)
            .map(|(sink, number)| {
                let pool = &pool;
                let write = move || write_probe(&mut **sink, pool, per_device, (begun, copying), conduct);
                threads::start_in(scope, &format!("writer {number}"), write)
            })
            .collect();
        writers?.into_iter().map(|writer| writer.join().unwrap_or(Err(Error::Halted))).sum()
    });
    let elapsed = begun.elapsed().as_secs_f64();
    for sink in &mut sinks {
        sink.abandon();
    }
    Ok(mib_per_s(written?, elapsed))
}

fn write_probe(
    sink: &mut dyn Sink,
    pool: &Arc<Pool>,
    most: u64,
    (begun, copying): (Instant, Option<&Copying>),
    conduct: &Conduct,
) -> Result<u64> {
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
        if let Some(copying) = copying
            && !copying.wait_to_write(length as u64, begun)
        {
            break;
        }
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

    const SHAPE: ProbeShape = ProbeShape { queue_depth: 8, transfer_bytes: RAW_TRANSFER };

    #[test]
    fn the_limit_is_that_of_the_slowest_part_in_source_bytes() {
        let raw = RawLimit { source: 1000.0, transform: 800.0, sink: Some(300.0), copy: None, shape: SHAPE };
        let limit = limit_of(&raw, 100, 50, 570.0);
        assert_eq!((limit.stage.as_str(), limit.mib_per_s, limit.percent), ("sink", 600.0, 95.0));
        assert_eq!(limit_of(&raw, 100, 10, 400.0).stage, "transform");
    }

    #[test]
    fn a_disk_that_is_read_and_written_at_once_is_a_limit_of_its_own() {
        let raw = RawLimit { source: 1000.0, transform: 2000.0, sink: Some(1200.0), copy: Some(540.0), shape: SHAPE };
        let limit = limit_of(&raw, 100, 100, 513.0);
        assert_eq!((limit.stage.as_str(), limit.mib_per_s, limit.percent), ("source and sink", 540.0, 95.0));
        // Two disks: the copy is as fast as the slower disk, whose name says more.
        assert_eq!(limit_of(&RawLimit { copy: Some(980.0), ..raw }, 100, 100, 900.0).stage, "source");
    }

    #[test]
    fn writers_of_a_copy_take_no_more_than_the_codec_leaves_of_what_was_read() {
        let copying = Copying {
            share: 0.5,
            read: AtomicU64::new(100),
            written: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            ahead: 50,
        };
        assert!(copying.reader_is_far_ahead());
        assert!(copying.claim(30));
        assert!(copying.claim(20));
        assert!(!copying.claim(1));
        assert!(!copying.reader_is_far_ahead());
    }
}
