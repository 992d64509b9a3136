//! A place in an object store, and one round of one cell on it: puts by parts and gets by ranges, as jobs do them.

use std::sync::Arc;
use std::time::Instant;

use fullbore_core::device::{Device, Place};
use fullbore_core::io::Mode;
use fullbore_core::pool::{Piece, Pool};
use fullbore_core::sink::{self, LEAST_PART, Sink};
use fullbore_core::{Error, Result, supply, threads};

use super::disk::joined;
use super::pace::{Pace, thread_seconds};
use super::probe_file::PROBE_NAME;
use super::stream::Moved;
use crate::job::Conduct;
use crate::tune::profile::{Order, Round, Shape, Use, Way};

/// Bytes of a buffer: what a part is put together from, and what one range fills several of.
const TRANSFER: u64 = 1 << 20;
/// Bytes that all streams of a round put at most: a store keeps them until their upload is given up.
const PUT_MOST: u64 = 256 << 20;

/// A prefix that is written under, or an object that is read.
pub(super) struct Store {
    /// As the user named it.
    pub device: Device,
    used: Use,
    /// What is read: the object that was named, or one of our own.
    object: Option<Device>,
    conduct: Conduct,
}

impl Store {
    /// Asks the store nothing but, for a prefix that is read, what is there.
    pub fn open(device: Device, used: Use, conduct: &Conduct) -> Result<Self> {
        let object = match (used, device.place()) {
            (Use::Read, Place::Object { .. }) => Some(device.clone()),
            (Use::Read, Place::Prefix { bucket, prefix }) => {
                let listed = conduct.stores.bucket(bucket)?.list(prefix)?;
                let largest = listed.into_iter().max_by_key(|listed| listed.size).filter(|listed| listed.size > 0);
                let why = "has no object that could be read";
                let none =
                    || Error::usage(device.to_string(), why, "name an object, or a prefix with objects below it");
                Some(Device::object(bucket, &largest.ok_or_else(none)?.key))
            }
            (Use::Write, Place::Prefix { .. }) => None,
            _ => {
                let why = "is an object, and calibration writes objects of its own";
                return Err(Error::usage(device.to_string(), why, "name a prefix that ends in `/`"));
            }
        };
        Ok(Self { device, used, object, conduct: conduct.clone() })
    }

    /// Which ways to use it are measured.
    pub fn coarse(&self) -> Vec<Shape> {
        let shape = |way, (block_bytes, queue_depth, streams)| Shape {
            way,
            order: Order::Sequential,
            block_bytes,
            queue_depth,
            streams,
            direct: false,
        };
        let puts = [(LEAST_PART, 4, 1), (LEAST_PART, 1, 1), (LEAST_PART, 4, 2), (LEAST_PART, 4, 4)];
        let gets = [(TRANSFER, 8, 1), (TRANSFER, 2, 1), (TRANSFER, 32, 1), (TRANSFER, 8, 4)];
        let puts = puts.iter().map(|sizes| shape(Way::Write, *sizes)).filter(|_| self.used == Use::Write);
        puts.chain(gets.iter().map(|sizes| shape(Way::Read, *sizes))).collect()
    }

    /// One round; nothing where there is nothing to read.
    pub fn round(&mut self, shape: &Shape, pace: &Pace<'_>) -> Result<Option<Round>> {
        match shape.way {
            Way::Write => self.put(shape, pace),
            Way::Read => self.get(shape, pace),
        }
    }

    fn put(&mut self, shape: &Shape, pace: &Pace<'_>) -> Result<Option<Round>> {
        let depth = shape.queue_depth as usize;
        let mut streams = Vec::new();
        for _ in 0..shape.streams {
            let name = format!("{PROBE_NAME}{}", uuid::Uuid::new_v4());
            let Some(device) = self.device.join(&name) else { return Ok(None) };
            let options = sink::Options {
                queue_depth: depth,
                name_is_unique: true,
                stores: self.conduct.stores.clone(),
                ..sink::Options::new(uuid::Uuid::new_v4().to_string())
            };
            // A part that is filling, and those under way.
            let buffers = (LEAST_PART / TRANSFER) as usize * (depth + 1);
            streams.push((sink::open(&device, options)?, Pool::new(buffers, TRANSFER as usize)?, device));
        }
        let (until, most) = (Instant::now() + pace.length, PUT_MOST / shape.streams);
        let moved = threads::side_by_side("stream", &mut streams, |_, (sink, pool, _)| {
            put(&mut **sink, pool, most, pace, until)
        });
        let mut kept = None;
        for (sink, _, device) in &mut streams {
            // One becomes an object, for the gets.
            if moved.is_ok() && self.object.is_none() && kept.is_none() && sink.publish().is_ok() {
                kept = Some(device.clone());
            } else {
                sink.abandon();
            }
        }
        self.object = kept.or(self.object.take());
        Ok(joined(&moved?))
    }

    fn get(&self, shape: &Shape, pace: &Pace<'_>) -> Result<Option<Round>> {
        let Some(object) = &self.object else { return Ok(None) };
        let depth = shape.queue_depth as usize;
        let open = |_| {
            let pool = Pool::new(depth + 1, TRANSFER as usize)?;
            supply::open(object, &pool, depth, Mode::Auto, &self.conduct.stores)
        };
        let mut supplies = (0..shape.streams).map(open).collect::<Result<Vec<_>>>()?;
        let until = Instant::now() + pace.length;
        let moved = threads::side_by_side("stream", &mut supplies, |_, supply| {
            let (begun, processor, mut bytes) = (Instant::now(), thread_seconds(), 0);
            while pace.admits(TRANSFER, until)? {
                match supply.next()? {
                    Some(piece) => bytes += piece.len() as u64,
                    None => supply.aim(std::iter::once(0..supply.size().unwrap_or(0)).collect())?,
                }
            }
            let cpu_seconds = (thread_seconds() - processor).max(0.0);
            Ok(Moved { bytes, begun, ended: Instant::now(), sync_seconds: 0.0, cpu_seconds })
        });
        Ok(joined(&moved?))
    }
}

fn put(sink: &mut dyn Sink, pool: &Arc<Pool>, most: u64, pace: &Pace<'_>, until: Instant) -> Result<Moved> {
    let (begun, processor, mut bytes) = (Instant::now(), thread_seconds(), 0);
    // One part at least: less would say nothing of a part.
    while bytes < LEAST_PART || bytes < most && pace.admits(TRANSFER, until)? {
        pace.conduct.check()?;
        match pool.try_take() {
            Some(buffer) => {
                let length = buffer.len();
                sink.write(bytes, Piece::new(buffer, 0..length))?;
                bytes += length as u64;
            }
            None => sink.settle(sink.in_flight().saturating_sub(1))?,
        }
    }
    let written = Instant::now();
    sink.settle(0)?;
    sink.sync()?;
    let ended = Instant::now();
    let sync_seconds = (ended - written).as_secs_f64();
    Ok(Moved { bytes, begun, ended, sync_seconds, cpu_seconds: (thread_seconds() - processor).max(0.0) })
}

impl Drop for Store {
    fn drop(&mut self) {
        if let (Use::Write, Some(Place::Object { bucket, key })) = (self.used, self.object.as_ref().map(Device::place))
        {
            let removed = self.conduct.stores.bucket(bucket).and_then(|bucket| bucket.remove(key));
            let _ = removed; // Nothing more can be done; the name says whose it is.
        }
    }
}
