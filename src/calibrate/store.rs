//! A place in an object store, and one round of one cell on it: puts by parts and gets by ranges, as jobs do them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_core::device::{Destination, Device};
use fullbore_core::io::Mode;
use fullbore_core::pool::{Buffer, Piece, Pool};
use fullbore_core::sink::{self, Sink};
use fullbore_core::supply::{self, Supply};
use fullbore_core::{Error, Result, threads};

use super::disk::joined;
use super::pace::{Pace, thread_seconds};
use super::probe_file::PROBE_NAME;
use super::store_shapes::{self, at_once};
use super::stream::Moved;
use fullbore_core::conduct::Conduct;
use fullbore_model::profile::{Access, AccessPattern, Cell, Round, Use};

/// Bytes of a buffer; several buffers make a part.
const TRANSFER: u64 = 1 << 20;
/// The default of the most bytes that calibration keeps in a store: half is one object for the gets, half are
/// unfinished uploads of a round.
const SPACE: u64 = 512 << 20;
/// Under any cap, required bytes pass at some time.
const FAR: Duration = Duration::from_secs(86_400);
/// An object is read at most this many times without a pause.
const PASSES: u64 = 256;

/// A prefix for writing, or an object for reading.
pub(super) struct Store {
    /// As the user named it.
    pub device: Device,
    /// Bytes that it may keep of this run at a time; 0 for an object that is only read.
    pub space: u64,
    used: Use,
    /// The object to read: the named one, or our own.
    object: Option<Device>,
    conduct: Conduct,
}

impl Store {
    /// Sends no request, except to list a prefix that is read. `space` is the number of bytes that it may keep at a
    /// time.
    pub fn open(device: Device, used: Use, space: Option<u64>, conduct: &Conduct) -> Result<Self> {
        let object = match (used, device.place()) {
            (Use::Read, Destination::Object { .. }) => Some(device.clone()),
            (Use::Read, Destination::Prefix { bucket, prefix }) => {
                let listed = conduct.stores.bucket(bucket)?.list(prefix)?;
                let largest = listed.into_iter().max_by_key(|listed| listed.size).filter(|listed| listed.size > 0);
                let why = "has no object to read";
                let none =
                    || Error::usage(device.to_string(), why, "name an object, or a prefix with objects below it");
                Some(Device::object(bucket, &largest.ok_or_else(none)?.key))
            }
            (Use::Write, Destination::Prefix { .. }) => None,
            _ => {
                let why = "is an object, and calibration writes its own objects";
                return Err(Error::usage(device.to_string(), why, "name a prefix that ends in `/`"));
            }
        };
        let space = if used == Use::Write { space.unwrap_or(SPACE).min(SPACE) } else { 0 };
        Ok(Self { device, space, used, object, conduct: conduct.clone() })
    }

    /// The most bytes of one round of puts.
    fn most(&self) -> u64 {
        self.space / 2
    }

    /// The first measured ways to use it.
    pub fn coarse(&self) -> Vec<AccessPattern> {
        store_shapes::coarse(self.used, self.most())
    }

    /// The ways around the fastest of them.
    pub fn around(&self, cells: &[Cell]) -> Vec<AccessPattern> {
        store_shapes::around(cells, self.most())
    }

    /// The least length of a round, by the fastest one so far; unknown before the first.
    pub fn takes(&self, shape: &AccessPattern, cells: &[Cell]) -> Duration {
        let of_way = cells.iter().filter(|cell| cell.shape.way == shape.way);
        let fastest = of_way.map(Cell::rate).fold(0.0, f64::max);
        let seconds = at_once(shape) as f64 / fastest;
        if fastest > 0.0 { Duration::try_from_secs_f64(seconds).unwrap_or(FAR) } else { Duration::ZERO }
    }

    /// One round; `None` if there is no object to read.
    pub fn round(&mut self, shape: &AccessPattern, pace: &Pace<'_>) -> Result<Option<Round>> {
        match shape.way {
            Access::Write => self.put(shape, pace),
            Access::Read => self.get(shape, pace),
        }
    }

    /// The most bytes of one object in such a round: a multiple of its bytes in flight.
    fn most_of_one(&self, shape: &AccessPattern) -> u64 {
        (self.most() / at_once(shape)).max(1) * at_once(shape) / shape.streams
    }

    fn put(&mut self, shape: &AccessPattern, pace: &Pace<'_>) -> Result<Option<Round>> {
        let depth = shape.queue_depth as usize;
        let mut streams = Vec::new();
        for _ in 0..shape.streams {
            let Some(device) = self.own_name("") else { return Ok(None) };
            let options = sink::Options {
                queue_depth: depth,
                part_size: shape.block_bytes,
                name_is_unique: true,
                stores: self.conduct.stores.clone(),
                ..sink::Options::new(uuid::Uuid::new_v4().to_string())
            };
            // One part being filled, and the parts in flight.
            let buffers = (shape.block_bytes / TRANSFER) as usize * (depth + 1);
            let pool = Pool::new(buffers, TRANSFER as usize)?;
            fill(&pool, buffers)?;
            streams.push((sink::open(&device, options)?, pool, device));
        }
        let (until, most) = (Instant::now() + pace.length, self.most_of_one(shape));
        let moved = threads::side_by_side("stream", &mut streams, |_, (sink, pool, _)| {
            put(&mut **sink, pool, shape, most, pace, until)
        });
        let mut kept = None;
        for (sink, _, device) in &mut streams {
            // One upload becomes an object, for the gets.
            if moved.is_ok() && self.object.is_none() && kept.is_none() && sink.publish().is_ok() {
                kept = Some(device.clone());
            } else {
                sink.abandon();
            }
        }
        self.object = kept.or(self.object.take());
        Ok(joined(&moved?))
    }

    /// A unique name under the prefix.
    pub fn own_name(&self, ending: &str) -> Option<Device> {
        self.device.join(&format!("{PROBE_NAME}{}{ending}", uuid::Uuid::new_v4()))
    }

    fn get(&self, shape: &AccessPattern, pace: &Pace<'_>) -> Result<Option<Round>> {
        let Some(object) = &self.object else { return Ok(None) };
        let depth = shape.queue_depth as usize;
        let open = |_| {
            // A buffer is a range here: the read-ahead is the number in flight.
            let pool = Pool::new(depth + 1, shape.block_bytes as usize)?;
            supply::open(object, &pool, depth, Mode::Auto, &self.conduct.stores)
        };
        let mut supplies = (0..shape.streams).map(open).collect::<Result<Vec<_>>>()?;
        let until = Instant::now() + pace.length;
        let moved = threads::side_by_side("stream", &mut supplies, |_, supply| get(&mut **supply, shape, pace, until));
        Ok(joined(&moved?))
    }
}

/// Random bytes, which cannot be packed on the way; the same in each buffer, because that is quick.
fn fill(pool: &Arc<Pool>, buffers: usize) -> Result<()> {
    let mut buffers = pool.take_all(buffers)?;
    let Some((first, others)) = buffers.split_first_mut() else { return Ok(()) };
    fastrand::fill(first);
    others.iter_mut().for_each(|buffer| buffer.copy_from_slice(first));
    Ok(())
}

/// Writes until the time is over, or `most` bytes; always a multiple of the bytes in flight, because fewer are in
/// flight at the end of a round.
fn put(
    sink: &mut dyn Sink,
    pool: &Arc<Pool>,
    shape: &AccessPattern,
    most: u64,
    pace: &Pace<'_>,
    until: Instant,
) -> Result<Moved> {
    let (begun, processor, mut bytes) = (Instant::now(), thread_seconds(), 0);
    let under_way = shape.block_bytes * shape.queue_depth;
    while bytes < most {
        let is_whole = bytes > 0 && bytes % under_way == 0;
        if !pace.admits(TRANSFER, if is_whole { until } else { until + FAR })? {
            break;
        }
        let buffer = free_buffer(sink, pool, pace)?;
        let length = buffer.len();
        sink.write(bytes, Piece::new(buffer, 0..length))?;
        bytes += length as u64;
    }
    let written = Instant::now();
    sink.settle(0)?;
    sink.sync()?;
    let ended = Instant::now();
    let sync_seconds = (ended - written).as_secs_f64();
    Ok(Moved { bytes, begun, ended, sync_seconds, cpu_seconds: (thread_seconds() - processor).max(0.0) })
}

fn free_buffer(sink: &mut dyn Sink, pool: &Arc<Pool>, pace: &Pace<'_>) -> Result<Buffer> {
    loop {
        pace.conduct.check()?;
        match pool.try_take() {
            Some(buffer) => return Ok(buffer),
            None => sink.settle(sink.in_flight().saturating_sub(1))?,
        }
    }
}

/// Reads the object again and again until the time is over, and all requested bytes.
fn get(supply: &mut dyn Supply, shape: &AccessPattern, pace: &Pace<'_>, until: Instant) -> Result<Moved> {
    let (begun, processor, mut bytes) = (Instant::now(), thread_seconds(), 0);
    let size = supply.size().unwrap_or(0).max(1);
    // Between two passes, nothing is in flight: so a pass has at least twice the bytes in flight.
    let passes = (2 * shape.block_bytes * shape.queue_depth).div_ceil(size).min(PASSES);
    loop {
        supply.aim((0..passes).map(|_| 0..size).collect())?;
        while let Some(piece) = supply.next()? {
            bytes += piece.len() as u64;
            pace.admits(piece.len() as u64, until + FAR)?;
        }
        if Instant::now() >= until {
            break;
        }
    }
    let cpu_seconds = (thread_seconds() - processor).max(0.0);
    Ok(Moved { bytes, begun, ended: Instant::now(), sync_seconds: 0.0, cpu_seconds })
}

impl Drop for Store {
    fn drop(&mut self) {
        if let (Use::Write, Some(Destination::Object { bucket, key })) =
            (self.used, self.object.as_ref().map(Device::place))
        {
            let removed = self.conduct.stores.bucket(bucket).and_then(|bucket| bucket.remove(key));
            let _ = removed; // Nothing more can be done; its name shows its origin.
        }
    }
}
