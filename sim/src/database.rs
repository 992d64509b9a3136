//! A database made of random bytes: what the simulated source gives, and what a restore must bring back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::{Error, Result};

/// The bytes of every stream, by its number.
pub type Content = BTreeMap<u32, Vec<u8>>;

/// One state of the database.
#[derive(Clone)]
pub struct Database {
    streams: Vec<Stream>,
    content: Content,
    /// The stream that a restore gets in order.
    ordered: Option<u32>,
    /// Units whose content does not matter.
    free: BTreeMap<u32, Vec<bool>>,
}

/// How a source disappoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SourceFault {
    /// The reader that delivers this extent (counted over all readers) fails.
    ReadError(u64),
    /// `Source::check` fails from this extent on: the server is gone.
    CheckFails(u64),
    /// A signal comes while this extent is read.
    Signal(u64),
    /// This extent is never delivered, and nobody is told.
    Hole(u64),
}

/// A database that is read, with what goes wrong while it is.
pub struct Simulated<'a> {
    database: &'a Database,
    fault: Option<SourceFault>,
    /// At most so many units in one extent.
    units_at_once: usize,
    delivered: AtomicU64,
    gone: AtomicBool,
    /// Set when a signal has come: the job's tick looks at it.
    pub signalled: AtomicBool,
}

impl Database {
    /// `sizes` are the streams' sizes in bytes; the last unit of a stream may be cut off.
    pub fn random(random: &mut fastrand::Rng, unit: u32, sizes: &[u64]) -> Self {
        let mut database = Self { streams: Vec::new(), content: Content::new(), ordered: None, free: BTreeMap::new() };
        for (at, &size) in sizes.iter().enumerate() {
            // Every second number needs more than 16 bits.
            let id = at as u32 + 1 + (at as u32 % 2) * 70_000;
            let mut bytes = vec![0; size as usize];
            bytes.chunks_mut(unit as usize).for_each(|unit| fill(random, unit));
            let free = (0..bytes.len().div_ceil(unit as usize)).map(|_| random.u8(..8) == 0).collect();
            database.streams.push(Stream { id, name: format!("file-{id}"), unit, size });
            database.content.insert(id, bytes);
            database.free.insert(id, free);
        }
        database
    }

    /// The same database, whose last stream is ordered. Of such a stream no unit is free.
    pub fn with_ordered_stream(mut self) -> Self {
        self.ordered = self.streams.last().map(|stream| stream.id);
        let free = self.ordered.and_then(|id| self.free.get_mut(&id));
        free.into_iter().flatten().for_each(|free| *free = false);
        self
    }

    /// The same database later: some units written, some freed, some in use again; it has grown, shrunk, or neither.
    pub fn later(&self, random: &mut fastrand::Rng) -> Self {
        let mut later = self.clone();
        for stream in &mut later.streams {
            let unit = stream.unit as usize;
            let bytes = later.content.entry(stream.id).or_default();
            let free = later.free.entry(stream.id).or_default();
            match random.u8(..4) {
                0 => bytes.truncate(random.usize(..=bytes.len())),
                1 => bytes.resize(bytes.len() + random.usize(..6 * unit), 0),
                _ => {}
            }
            free.resize(bytes.len().div_ceil(unit), false);
            for (unit, free) in bytes.chunks_mut(unit).zip(free) {
                match random.u8(..10) {
                    0 => fill(random, unit),
                    1 => {
                        let at = random.usize(..unit.len());
                        unit[at] ^= 1 << random.u8(..8);
                    }
                    2 if later.ordered != Some(stream.id) => *free = !*free,
                    _ => {}
                }
            }
            stream.size = bytes.len() as u64;
        }
        later
    }

    /// What a restore must give: free units are zeros.
    pub fn snapshot(&self) -> Content {
        let mut content = self.content.clone();
        for stream in &self.streams {
            let Some(bytes) = content.get_mut(&stream.id) else { continue };
            for (unit, free) in bytes.chunks_mut(stream.unit as usize).zip(&self.free[&stream.id]) {
                if *free {
                    unit.fill(0);
                }
            }
        }
        content
    }

    /// The streams with their sizes.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Bytes in all streams.
    pub fn bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.size).sum()
    }
}

/// Zeros, text, noise, or a page that is mostly empty.
fn fill(random: &mut fastrand::Rng, unit: &mut [u8]) {
    match random.u8(..5) {
        0 => unit.fill(0),
        1 => random.fill(unit),
        2 => {
            unit.fill(0);
            let end = random.usize(..=unit.len().min(300));
            random.fill(&mut unit[..end]);
        }
        _ => {
            let line = format!("row {} of the table, written by {:x}; ", random.u32(..), random.u64(..));
            for (place, byte) in unit.iter_mut().zip(line.bytes().cycle()) {
                *place = byte;
            }
        }
    }
}

impl<'a> Simulated<'a> {
    /// A source that reads `database`, with at most `units_at_once` units in one extent.
    pub fn new(database: &'a Database, fault: Option<SourceFault>, units_at_once: usize) -> Self {
        Self {
            database,
            fault,
            units_at_once: units_at_once.max(1),
            delivered: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            signalled: AtomicBool::new(false),
        }
    }

    /// Extents delivered so far.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// The fault that this extent meets, if any; true when the extent is to be left out.
    fn meet(&self) -> Result<bool> {
        let number = self.delivered.fetch_add(1, Ordering::Relaxed);
        // Longer than the pipeline's tick, so that it looks in time.
        let notice = Duration::from_millis(150);
        match self.fault {
            Some(SourceFault::ReadError(at)) if at == number => {
                let cause = std::io::Error::from_raw_os_error(5);
                return Err(Error::io("read", "the simulated database", cause));
            }
            Some(SourceFault::CheckFails(at)) if at == number => {
                self.gone.store(true, Ordering::Relaxed);
                std::thread::sleep(notice);
            }
            Some(SourceFault::Signal(at)) if at == number => {
                self.signalled.store(true, Ordering::Relaxed);
                std::thread::sleep(notice);
            }
            Some(SourceFault::Hole(at)) if at == number => return Ok(true),
            _ => {}
        }
        Ok(false)
    }

    /// The job's tick.
    pub fn tick(&self) -> Result<()> {
        if self.signalled.load(Ordering::Relaxed) { Err(Error::Cancelled { by: "SIGTERM" }) } else { Ok(()) }
    }
}

impl Source for Simulated<'_> {
    fn streams(&self) -> &[Stream] {
        &self.database.streams
    }

    fn reader(&self, index: usize, count: usize) -> Result<Box<dyn Reader + '_>> {
        let mut shares = Vec::new();
        for stream in &self.database.streams {
            if self.is_ordered(stream.id) {
                let mine = index == count - 1 && stream.size > 0;
                shares.extend(mine.then_some((stream, 0, stream.size)));
                continue;
            }
            // Shares of 16 units, dealt round: what one reader has is scattered over the stream.
            let share = 16 * u64::from(stream.unit);
            let starts = (0..stream.size).step_by(share as usize).skip(index).step_by(count);
            shares.extend(starts.map(|start| (stream, start, (start + share).min(stream.size))));
        }
        shares.reverse();
        Ok(Box::new(ShareReader { source: self, shares }))
    }

    fn is_ordered(&self, stream: u32) -> bool {
        self.database.ordered == Some(stream)
    }

    fn is_free(&self, stream: u32, offset: u64) -> bool {
        let unit = self.database.streams.iter().find(|known| known.id == stream).map_or(1, |known| known.unit);
        self.database.free[&stream][(offset / u64::from(unit)) as usize]
    }

    fn check(&self) -> Result<()> {
        if self.gone.load(Ordering::Relaxed) {
            return Err(Error::refused("the simulated database", "the server is gone", "start it again"));
        }
        Ok(())
    }
}

/// Shares left, the next one last.
struct ShareReader<'a> {
    source: &'a Simulated<'a>,
    shares: Vec<(&'a Stream, u64, u64)>,
}

impl Reader for ShareReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        loop {
            let Some((stream, start, end)) = self.shares.pop() else { return Ok(None) };
            let unit = u64::from(stream.unit);
            let units = (buffer.len() as u64 / unit).min(self.source.units_at_once as u64);
            if units == 0 {
                return Err(Error::refused("the simulated database", "a unit does not fit into a buffer", ""));
            }
            let length = (units * unit).min(end - start);
            if start + length < end {
                self.shares.push((stream, start + length, end));
            }
            if self.source.meet()? {
                continue;
            }
            let content = &self.source.database.content[&stream.id];
            buffer[..length as usize].copy_from_slice(&content[start as usize..(start + length) as usize]);
            return Ok(Some(Extent { stream: stream.id, layer: 0, offset: start, length: length as u32 }));
        }
    }
}
