//! Ordered streams: a source that gives them, and a target that wants them in order.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::plain_stream;
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::media::StreamRecord;
use crate::source::{Extent, Reader, Source, Stream};
use crate::unpack::Target;

const UNIT: u32 = 4096;

/// The byte at `offset` of a stream: computed without a memory of the stream, and never the same for long.
fn byte_of(stream: u32, offset: u64) -> u8 {
    let line = offset / 100;
    (line.wrapping_mul(31) ^ offset ^ u64::from(stream)) as u8
}

/// A source of ordered streams, in extents of odd lengths, and of one stream in any order.
pub struct OrderedSource {
    streams: Vec<Stream>,
    open: bool,
    /// An ordered stream, and the byte of it that the source leaves out.
    gap: Option<(u32, u64)>,
}

impl OrderedSource {
    /// Stream 1 has 300,000 bytes in any order. Streams from 2 on are ordered, of these sizes in bytes.
    pub fn new(sizes: &[u64], open: bool) -> Self {
        let named = |(id, &size): (u32, &u64)| Stream { id, name: format!("stream-{id}"), unit: UNIT, size };
        let streams = (1..).zip(std::iter::once(&300_000).chain(sizes)).map(named).collect();
        Self { streams, open, gap: None }
    }

    /// The same; the source never gives the byte at `offset` of a stream.
    pub fn with_gap(mut self, stream: u32, offset: u64) -> Self {
        self.gap = Some((stream, offset));
        self
    }

    /// The stream table of a header; an open set has none.
    pub fn records(&self) -> Vec<StreamRecord> {
        let record =
            |stream: &Stream| StreamRecord { ordered: self.is_ordered(stream.id), ..plain_stream(stream).record() };
        if self.open { Vec::new() } else { self.streams.iter().map(record).collect() }
    }
}

impl Source for OrderedSource {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn is_open(&self) -> bool {
        self.open
    }

    fn is_ordered(&self, stream: u32) -> bool {
        stream > 1
    }

    fn reader(&self, index: usize, count: usize) -> Result<Box<dyn Reader + '_>> {
        let mine = self.streams.iter().filter(|stream| stream.size > 0 && stream.id as usize % count == index);
        // Several streams at a time: their blocks are mixed in the media.
        Ok(Box::new(OddReader { source: self, left: mine.map(|stream| (stream.clone(), 0)).collect(), turn: index }))
    }

    fn is_free(&self, _: u32, _: u64) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Streams that are not at their ends, and where they are.
struct OddReader<'a> {
    source: &'a OrderedSource,
    left: Vec<(Stream, u64)>,
    turn: usize,
}

impl OddReader<'_> {
    /// Steps over the byte that the source leaves out.
    fn leave_out(&mut self) {
        if let Some((gap, at)) = self.source.gap {
            self.left
                .iter_mut()
                .filter(|(stream, offset)| (stream.id, *offset) == (gap, at))
                .for_each(|(_, at)| *at += 1);
        }
        self.left.retain(|(stream, offset)| *offset < stream.size);
    }
}

impl Reader for OddReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        self.leave_out();
        if self.left.is_empty() {
            return Ok(None);
        }
        self.turn += 1;
        let at = self.turn / 3 % self.left.len();
        let (stream, offset) = &mut self.left[at];
        let odd = (self.turn as u64 * 7919) % buffer.len() as u64 + 1;
        let wanted = if self.source.is_ordered(stream.id) { odd } else { buffer.len() as u64 / 4096 * 4096 };
        let gap = self.source.gap.filter(|(id, at)| *id == stream.id && at > offset).map_or(u64::MAX, |(_, at)| at);
        let end = (*offset + wanted).min(stream.size).min(gap);
        let extent = Extent { stream: stream.id, layer: 0, offset: *offset, length: (end - *offset) as u32 };
        for (place, byte) in buffer.iter_mut().zip(*offset..end) {
            *place = byte_of(stream.id, byte);
        }
        *offset = end;
        Ok(Some(extent))
    }
}

/// How a target behaves at byte 100,000 of stream 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetBehaviour {
    /// It takes all bytes at once.
    Prompt,
    /// It takes so long for each piece of stream 2.
    Slow(Duration),
    /// It fails.
    Fails,
    /// It takes nothing more until the job ends.
    Stops,
}

/// A target that checks each byte, and that ordered streams come in order and one piece at a time.
pub struct OrderedTarget {
    manner: TargetBehaviour,
    halt: Halt,
    ends: Mutex<HashMap<u32, u64>>,
}

impl OrderedTarget {
    /// For one job, which `halt` ends.
    pub fn new(manner: TargetBehaviour, halt: &Halt) -> Self {
        Self { manner, halt: halt.clone(), ends: Mutex::default() }
    }

    /// Checks that it got all of these streams.
    ///
    /// # Errors
    /// Names a stream that did not come to its end.
    pub fn finish(&self, source: &OrderedSource) -> Result<()> {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let end = |id| ends.get(&id).copied().unwrap_or(0);
        match source.streams.iter().find(|stream| end(stream.id) != stream.size) {
            None => Ok(()),
            Some(stream) => Err(wrong(format!("stream {} ended at {}", stream.id, end(stream.id)))),
        }
    }
}

fn wrong(why: String) -> Error {
    Error::refused("the ordered target", why, "this is a defect: please report it")
}

impl Target for OrderedTarget {
    fn discards(&self) -> bool {
        false
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        if let Some(at) = (0..bytes.len()).find(|&at| bytes[at] != byte_of(stream, offset + at as u64)) {
            return Err(wrong(format!("byte {} of stream {stream} is wrong", offset + at as u64)));
        }
        let critical = stream == 2 && offset + bytes.len() as u64 > 100_000;
        match self.manner {
            TargetBehaviour::Slow(time) if stream == 2 => std::thread::sleep(time),
            TargetBehaviour::Fails if critical => return Err(wrong("failed as planned".into())),
            TargetBehaviour::Stops if critical => {
                while !self.halt.is_stopped() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                return Err(Error::Halted);
            }
            _ => {}
        }
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let end = ends.entry(stream).or_default();
        if stream > 1 && *end != offset {
            return Err(wrong(format!("byte {offset} of stream {stream} came after byte {end}")));
        }
        *end = if stream > 1 { offset } else { *end } + bytes.len() as u64;
        Ok(())
    }

    fn zero(&self, stream: u32, _: u64, length: u64) -> Result<()> {
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner).entry(stream).or_default() += length;
        Ok(())
    }
}
