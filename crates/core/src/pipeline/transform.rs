//! Transform workers: from a filled buffer to sealed blocks in the stripes.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::layers::Layers;
use super::ordered::Ordered;
use super::page_map::{PageMap, map_window};
use super::stripe::{BlockBytes, Board, Hand, Unsealed};
use crate::checksum::{MAP_ENTRY, PlainDigest, UNKNOWN_UNIT, UnitHasher, ZERO_UNIT, is_zero, xxh3_128_le};
use crate::codec::Encoder;
use crate::error::{Error, Result};
use crate::map_scratch::{MapScratch, units};
use crate::media::{
    BLOCK_HEADER, BlockBody, BlockKind, DIGEST, PADDED_HEAD, RUN, Run, RunKind, StreamRecord, padded_run_capacity,
};
use crate::meter::{Clock, Progress, Spent};
use crate::pool::{Buffer, Piece, copy_in_steps};
use crate::source::{Extent, Source, Stream};
use crate::unpack::BaseMap;

/// Bytes that are hashed unit by unit before the digest takes them: small enough to be in the first caches still.
const DIGEST_STEP: usize = 16 << 10;
/// How often an idle worker checks whether a higher layer waits for the units that it has gathered.
const GATHERING: Duration = Duration::from_millis(20);

/// What is noted of a unit that came in a differential.
const CAME: u8 = 1;

/// A buffer that a reader has filled from [`PADDED_HEAD`] on, or that has room for the bytes that it lends.
pub(super) struct Filled {
    pub buffer: Buffer,
    pub lent: Option<Piece>,
    pub extent: Extent,
    /// Number among the extents of ordered streams; else 0.
    pub order: u32,
}

impl Filled {
    fn range(&self) -> std::ops::Range<usize> {
        PADDED_HEAD..PADDED_HEAD + self.extent.length as usize
    }

    /// The bytes of the extent.
    fn data(&self) -> &[u8] {
        match &self.lent {
            Some(piece) => piece,
            None => &self.buffer[self.range()],
        }
    }

    /// The same to change, in the buffer. Lent bytes are copied first.
    fn own(&mut self) -> &mut [u8] {
        let range = self.range();
        let own = &mut self.buffer[range];
        if let Some(lent) = self.lent.take() {
            copy_in_steps(own, &lent);
        }
        own
    }
}

/// What tells a worker which units to store.
pub(super) enum Selection<'a> {
    /// A full: all of them, and their hashes go into the map.
    All { map: &'a PageMap, hasher: UnitHasher },
    /// A full of an open source: all of them, and their hashes wait until all streams and layers are known.
    Open { scratch: &'a MapScratch, hasher: UnitHasher },
    /// A full of an engine without a page map.
    Unmapped,
    /// A differential: the units whose hash differs from the full's, and all units in higher layers. For an open source
    /// it also notes which units came at all.
    Changed { base: &'a BaseMap, hasher: UnitHasher, came: Option<&'a MapScratch> },
}

/// One worker with everything it needs; nothing is chosen inside its loop.
pub(super) struct Worker<'a> {
    pub board: &'a Board,
    pub source: &'a dyn Source,
    pub streams: &'a [StreamRecord],
    pub layers: &'a Layers,
    pub ordered: &'a Ordered,
    pub selection: Selection<'a>,
    pub encoder: Encoder,
    pub hand: Hand,
    /// Packed payloads are made here.
    pub scratch: Buffer,
    /// Changed units of a differential are gathered here.
    pub gathered: Option<Gathered>,
    pub clock: Clock,
    pub progress: &'a Progress,
    pub runs: Vec<Run>,
    pub entries: Vec<u8>,
    /// Extents that were gathered and may not be in a stripe yet: no higher layer begins meanwhile.
    pub owed: usize,
}

/// Changed units from several extents on their way into one block.
pub(super) struct Gathered {
    buffer: Buffer,
    length: usize,
    runs: Vec<Run>,
    stream: u32,
    layer: u16,
}

impl Gathered {
    pub fn new(buffer: Buffer) -> Self {
        Self { buffer, length: 0, runs: Vec::new(), stream: 0, layer: 0 }
    }
}

impl Worker<'_> {
    /// Works until the readers are done.
    pub fn run(&mut self, filled: &Receiver<Filled>) -> Result<()> {
        loop {
            self.clock.lap(Spent::Busy);
            let Some(filled) = self.receive(filled)? else { break };
            let length = u64::from(filled.extent.length);
            match self.selection {
                _ if filled.order > 0 => {
                    self.store_ordered(filled)?;
                    self.layers.leave();
                }
                Selection::Changed { .. } => {
                    self.gather(&filled)?;
                    self.owed += 1;
                }
                Selection::All { .. } | Selection::Open { .. } | Selection::Unmapped => {
                    self.store(filled)?;
                    self.layers.leave();
                }
            }
            self.clock.pass(length);
            self.progress.advance(length);
        }
        self.settle()?;
        self.clock.lap(Spent::Busy);
        Ok(())
    }

    /// The next buffer; `None` when the readers are done. A reader may wait for the end of a layer before it reads on:
    /// then the gathered units of that layer are placed, instead of waiting for more.
    fn receive(&mut self, filled: &Receiver<Filled>) -> Result<Option<Filled>> {
        while self.owed > 0 && self.source.is_open() {
            let received = filled.recv_timeout(GATHERING);
            self.clock.lap(Spent::Starved);
            match received {
                Ok(filled) => return Ok(Some(filled)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if self.layers.is_awaited() => self.settle()?,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.clock.lap(Spent::Busy);
        }
        let received = filled.recv().ok();
        self.clock.lap(Spent::Starved);
        Ok(received)
    }

    /// Places everything that was gathered.
    fn settle(&mut self) -> Result<()> {
        self.emit_gathered()?;
        (0..std::mem::take(&mut self.owed)).for_each(|_| self.layers.leave());
        Ok(())
    }

    fn stream(&self, id: u32) -> Result<StreamRecord> {
        let scratch = matches!(self.selection, Selection::Open { .. } | Selection::Changed { .. });
        let mapped = || scratch && self.source.identity(id).is_some();
        let record = |stream: Stream| StreamRecord {
            id,
            layer: 0,
            unit: stream.unit,
            map_window: if mapped() { map_window(stream.unit, self.board.transfer_size()) } else { 0 },
            size: stream.size,
            ordered: self.source.is_ordered(id),
        };
        let announced = self.streams.iter().find(|stream| stream.id == id).cloned();
        let open = || self.source.is_open().then(|| self.source.stream(id).map(record)).flatten();
        announced.or_else(open).ok_or_else(|| {
            Error::refused(
                "source",
                format!("gave bytes of stream {id}, which it did not announce"),
                "this is a defect: please report it",
            )
        })
    }

    /// A full: one block per extent, without the units that are zero or free.
    fn store(&mut self, mut filled: Filled) -> Result<()> {
        let stream = self.stream(filled.extent.stream)?;
        let offset = filled.extent.offset;
        let plain = self.survey(&mut filled, &stream);
        let runs = std::mem::take(&mut self.runs);
        self.emit(filled, plain, &runs)?;
        self.runs = runs;
        self.emit_map(&stream, offset)
    }

    /// An extent of an ordered stream: all of it, in one block and one run.
    fn store_ordered(&mut self, filled: Filled) -> Result<()> {
        let (extent, order) = (filled.extent, filled.order);
        self.stream(extent.stream)?;
        let digest = xxh3_128_le(0, filled.data());
        let run = Run { offset: extent.offset, length: extent.length, kind: RunKind::Data };
        self.emit(filled, (extent.length as usize, digest), &[run])?;
        self.ordered.placed(order, extent.stream, run)
    }

    /// Hashes the units of an extent, joins the units that are stored, and takes their digest: all in one pass, because
    /// these bytes come from memory once. Leaves runs and map entries; returns length and digest of the stored bytes.
    fn survey(&mut self, filled: &mut Filled, stream: &StreamRecord) -> (usize, [u8; DIGEST]) {
        let extent = filled.extent;
        self.runs.clear();
        self.entries.clear();
        let capacity = padded_run_capacity(self.board.tag_length());
        let mut digest = PlainDigest::new();
        let (mut stored, mut digested) = (0, 0);
        for place in units(extent.offset, extent.length as usize, stream.unit) {
            let from = place.start;
            let unit = &filled.data()[place.clone()];
            let offset = extent.offset + from as u64;
            let free = self.source.is_free(stream.id, offset);
            let extends_zero = self.runs.last().is_some_and(|run| run.kind == RunKind::Zero);
            // A new ZERO run needs room for itself and for the DATA run after it.
            let zero = (free || is_zero(unit)) && (extends_zero || self.runs.len() + 2 <= capacity);
            if free && !zero {
                filled.own()[place.clone()].fill(0);
            }
            let unit = &filled.data()[place.clone()];
            push_unit(&mut self.runs, offset, unit.len() as u32, if zero { RunKind::Zero } else { RunKind::Data });
            match &self.selection {
                Selection::All { hasher, .. } => {
                    self.entries.extend_from_slice(&if zero { ZERO_UNIT } else { hasher.hash(unit) });
                }
                Selection::Open { hasher, .. } if stream.map_window > 0 => {
                    let whole = unit.len() == stream.unit as usize;
                    let entry = || if zero { ZERO_UNIT } else { hasher.hash(unit) };
                    self.entries.extend_from_slice(&if whole { entry() } else { UNKNOWN_UNIT });
                }
                _ => {}
            }
            if zero {
                continue;
            }
            let length = place.len();
            if stored != from {
                filled.own().copy_within(place, stored);
            }
            stored += length;
            if stored - digested >= DIGEST_STEP {
                digest.update(&filled.data()[digested..stored]);
                digested = stored;
            }
        }
        digest.update(&filled.data()[digested..stored]);
        (stored, digest.finish())
    }

    fn emit_map(&mut self, stream: &StreamRecord, offset: u64) -> Result<()> {
        let map = match &self.selection {
            Selection::All { map, .. } => map,
            Selection::Open { scratch, .. } => {
                return scratch.put(stream, offset / u64::from(stream.unit), &self.entries);
            }
            Selection::Unmapped | Selection::Changed { .. } => return Ok(()),
        };
        for window in map.add(stream, offset, &self.entries)? {
            let run = [Run { offset: window.offset, length: window.length, kind: RunKind::Mapped }];
            let mut bytes = Vec::new();
            let block = self.board.unpacked_block(BlockKind::Map, window.stream, &run, &window.entries, &mut bytes);
            self.board.place(block, &mut self.hand, &mut self.clock)?;
        }
        Ok(())
    }

    /// A differential: the changed units of an extent join those gathered before.
    fn gather(&mut self, filled: &Filled) -> Result<()> {
        let (extent, data) = (filled.extent, filled.data());
        let stream = self.stream(extent.stream)?;
        let Selection::Changed { base, hasher, came } = &self.selection else { return Ok(()) };
        let open = came.is_some();
        let first = extent.offset / u64::from(stream.unit);
        let count = (extent.offset + u64::from(extent.length)).div_ceil(u64::from(stream.unit)) - first;
        let like = match open {
            true => self.source.identity(stream.id).and_then(|identity| base.stream_like(&identity, stream.unit)),
            false => Some(stream.id),
        };
        if let (Some(came), Some(_)) = (came, like) {
            self.entries.clear();
            self.entries.resize(count as usize * MAP_ENTRY, CAME);
            came.put(&stream, first, &self.entries)?;
        }
        // A higher layer overwrites what layer 0 may hold of the unit: it is stored, whatever the full has.
        let higher = extent.layer > 0;
        let like = like.filter(|_| !higher);
        base.entries(like, first * u64::from(stream.unit), count as usize, &mut self.entries)?;
        let hasher = hasher.clone();
        let known = std::mem::take(&mut self.entries);
        let parts = units(extent.offset, data.len(), stream.unit);
        for (part, entry) in parts.zip(known.chunks_exact(MAP_ENTRY)) {
            let (offset, unit) = (extent.offset + part.start as u64, &data[part]);
            let zero = self.source.is_free(stream.id, offset) || is_zero(unit);
            // The map says nothing of a part of a unit.
            let always = higher || open && unit.len() != stream.unit as usize;
            if always || entry != if zero { ZERO_UNIT } else { hasher.hash(unit) } {
                self.gather_unit(&extent, offset, unit, zero)?;
            }
        }
        self.entries = known;
        Ok(())
    }

    fn gather_unit(&mut self, extent: &Extent, offset: u64, unit: &[u8], zero: bool) -> Result<()> {
        let capacity = padded_run_capacity(self.board.tag_length());
        let full = self.gathered.as_ref().is_some_and(|gathered| {
            gathered.runs.len() + 1 > capacity
                || PADDED_HEAD + gathered.length + unit.len() > gathered.buffer.len()
                || (gathered.stream, gathered.layer) != (extent.stream, extent.layer)
                || gathered.runs.last().is_some_and(|run| run.end() > offset)
        });
        if full {
            self.emit_gathered()?;
        }
        let Some(gathered) = self.gathered.as_mut() else { return Ok(()) };
        (gathered.stream, gathered.layer) = (extent.stream, extent.layer);
        push_unit(&mut gathered.runs, offset, unit.len() as u32, if zero { RunKind::Zero } else { RunKind::Data });
        if !zero {
            let at = PADDED_HEAD + gathered.length;
            gathered.buffer[at..at + unit.len()].copy_from_slice(unit);
            gathered.length += unit.len();
        }
        Ok(())
    }

    /// Makes a block of the gathered units; it is copied, because the buffer is kept.
    fn emit_gathered(&mut self) -> Result<()> {
        let Some(mut gathered) = self.gathered.take() else { return Ok(()) };
        if gathered.runs.is_empty() {
            self.gathered = Some(gathered);
            return Ok(());
        }
        let length = gathered.length;
        let runs = std::mem::take(&mut gathered.runs);
        let data = &gathered.buffer[PADDED_HEAD..PADDED_HEAD + length];
        let packed = self.pack(data, &runs)?;
        let plain = (length, xxh3_128_le(0, data));
        let block = lay_out(self.board, &mut gathered.buffer, &mut self.scratch, packed, plain, &runs);
        let bytes = match block.bytes {
            Laid::Packed(end) => BlockBytes::Kept(&mut self.scratch[..end]),
            Laid::Plain(range) => BlockBytes::Kept(&mut gathered.buffer[range]),
        };
        let unsealed = unsealed(bytes, &block.shape, (gathered.stream, gathered.layer, 0), &runs, length);
        self.board.place(unsealed, &mut self.hand, &mut self.clock)?;
        self.gathered = Some(Gathered::new(gathered.buffer));
        Ok(())
    }

    /// Makes a block of the first data bytes of an extent, whose length and digest are `plain` and whose runs are `runs`.
    fn emit(&mut self, mut filled: Filled, plain: (usize, [u8; DIGEST]), runs: &[Run]) -> Result<()> {
        let packed = self.pack(&filled.data()[..plain.0], runs)?;
        if packed.is_none() && plain.0 > 0 {
            filled.own();
        }
        let Filled { mut buffer, extent, order, lent } = filled;
        // It returns to its device before this worker waits for a stripe.
        drop(lent);
        let place = (extent.stream, extent.layer, order);
        let block = lay_out(self.board, &mut buffer, &mut self.scratch, packed, plain, runs);
        let bytes = match block.bytes {
            Laid::Packed(end) => BlockBytes::Kept(&mut self.scratch[..end]),
            Laid::Plain(range) if range.start == 0 => BlockBytes::Given(buffer, range.end),
            Laid::Plain(range) => BlockBytes::Kept(&mut buffer[range]),
        };
        let unsealed = unsealed(bytes, &block.shape, place, runs, plain.0);
        self.board.place(unsealed, &mut self.hand, &mut self.clock)
    }

    /// Packs the data bytes into the scratch buffer, after room for the head; returns size and codec, or `None` when
    /// that saves nothing.
    fn pack(&mut self, plain: &[u8], runs: &[Run]) -> Result<Option<(usize, u8)>> {
        let head = compact_head(self.board, runs);
        if plain.is_empty() {
            return Ok(None);
        }
        let packed = self.encoder.encode(plain, &mut self.scratch[head..])?;
        Ok(packed.map(|size| (size, self.encoder.id().number())))
    }
}

/// Where a block was laid out.
enum Laid {
    /// At the start of the scratch buffer, so many bytes.
    Packed(usize),
    /// In the source's own buffer.
    Plain(std::ops::Range<usize>),
}

struct BlockShape {
    codec: u8,
    prefix_length: usize,
}

struct LaidOut {
    bytes: Laid,
    shape: BlockShape,
}

/// Head of a block without padding: header, tag, digest and runs.
fn compact_head(board: &Board, runs: &[Run]) -> usize {
    BLOCK_HEADER + board.tag_length() + DIGEST + runs.len() * RUN
}

/// Writes the prefix in front of the payload.
fn lay_out(
    board: &Board,
    buffer: &mut Buffer,
    scratch: &mut Buffer,
    packed: Option<(usize, u8)>,
    (length, digest): (usize, [u8; DIGEST]),
    runs: &[Run],
) -> LaidOut {
    let lead = BLOCK_HEADER + board.tag_length();
    let head = compact_head(board, runs);
    let (target, start, prefix_end, bytes, codec) = match packed {
        Some((size, codec)) => (scratch, 0, head, Laid::Packed(head + size), codec),
        None => {
            let start = if board.aligned() { 0 } else { PADDED_HEAD - head };
            (buffer, start, PADDED_HEAD, Laid::Plain(start..PADDED_HEAD + length), 0)
        }
    };
    BlockBody::encode_prefix(digest, runs, &mut target[start + lead..prefix_end]);
    LaidOut { bytes, shape: BlockShape { codec, prefix_length: prefix_end - start - lead } }
}

fn unsealed<'a>(
    bytes: BlockBytes<'a>,
    shape: &BlockShape,
    (stream, layer, order): (u32, u16, u32),
    runs: &'a [Run],
    length: usize,
) -> Unsealed<'a> {
    Unsealed {
        kind: BlockKind::Data,
        codec: shape.codec,
        stream,
        layer,
        order,
        runs,
        prefix_length: shape.prefix_length,
        plain_length: length,
        bytes,
    }
}

/// Adds a unit to the last run when it continues it.
pub(super) fn push_unit(runs: &mut Vec<Run>, offset: u64, length: u32, kind: RunKind) {
    match runs.last_mut() {
        Some(run) if run.kind == kind && run.end() == offset && run.length.checked_add(length).is_some() => {
            run.length += length
        }
        _ => runs.push(Run { offset, length, kind }),
    }
}
