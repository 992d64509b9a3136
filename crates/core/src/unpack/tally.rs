//! The sums of a set's blocks: every byte once, every number once, a page map that fits the data, and the sums of the
//! trailers. The memory for it does not grow with the database.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::balance::{Balance, Weights};
use super::claims::Claims;
use super::in_order::check_order;
use super::parse::Parsed;
use crate::checksum::{MAP_ENTRY, UNKNOWN_UNIT, UnitHasher, ZERO_UNIT};
use crate::error::{Error, Result as JobResult};
use crate::map_scratch::{MapScratch, units};
use crate::media::{
    BlockHeader, BlockKind, Flaw, IndexEntry, MAX_FAMILIES, Run, RunKind, SetHeader, SetKind, StreamRecord, broken,
    require, total,
};

/// The sums of a set while it is unpacked; all threads share them.
pub(super) struct Tally<'a> {
    header: &'a SetHeader,
    /// What the set restores to, and the place of each stream in it.
    streams: Vec<StreamRecord>,
    places: HashMap<u32, usize>,
    weights: Weights,
    /// Whether the page map is looked at.
    maps: bool,
    /// Hashes units as the page map does; `None` while its seed is unknown: in a pipe the manifest comes last.
    hasher: Option<UnitHasher>,
    /// For an open full whose map is checked: its layers overwrite each other.
    scratch: Option<Scratch>,
    sums: Mutex<Sums>,
}

/// The page map as computed from the data, and as stored.
struct Scratch {
    made: MapScratch,
    read: MapScratch,
}

/// A flaw of a block, or why it could not be booked.
pub(super) enum Unbooked {
    /// The block.
    Flaw(Flaw),
    /// The scratch file, and with it the job.
    Failed(Error),
}

impl From<Flaw> for Unbooked {
    fn from(flaw: Flaw) -> Self {
        Self::Flaw(flaw)
    }
}

impl From<Error> for Unbooked {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

struct Sums {
    streams: Vec<StreamSums>,
    /// Bytes of ZERO runs in each family.
    zero_bytes: [u64; MAX_FAMILIES as usize],
    /// The places of the runs of blocks, against what the index says of them; with a cipher only workers see runs.
    spans: Balance,
    /// For a full and a log set, the balances of the streams tell.
    claims: Option<Claims>,
}

/// One stream, or one block's share of it.
#[derive(Clone, Copy, Default)]
struct StreamSums {
    data: u64,
    zero: u64,
    /// Ranges of DATA and ZERO runs.
    covered: Balance,
    /// Ranges of MAP blocks.
    mapped: Balance,
    /// Units with their hashes: those of the data against those of the map.
    hashes: Balance,
    /// Ranges of ZERO runs against those of zeros in the map.
    zeros: Balance,
}

impl StreamSums {
    fn join(&mut self, other: &Self) {
        self.data = self.data.saturating_add(other.data);
        self.zero = self.zero.saturating_add(other.zero);
        self.covered.join(other.covered);
        self.mapped.join(other.mapped);
        self.hashes.join(other.hashes);
        self.zeros.join(other.zeros);
    }
}

impl<'a> Tally<'a> {
    /// For a set of which nothing was read so far; `seed` is that of the page map, if it is known. Without `maps`, the
    /// page map is not checked: a restore needs none, and whole data must come back also from a set with a wrong map.
    /// For an open set, `streams` are those of its manifest.
    ///
    /// # Errors
    /// No scratch file can be made for the page map of an open full.
    pub fn new(header: &'a SetHeader, streams: Vec<StreamRecord>, seed: Option<u64>, maps: bool) -> JobResult<Self> {
        let full = header.kind == SetKind::Full;
        let sums = Sums {
            streams: vec![StreamSums::default(); streams.len()],
            zero_bytes: [0; MAX_FAMILIES as usize],
            spans: Balance::default(),
            // Layers of an open set overwrite each other.
            claims: (header.kind == SetKind::Differential && !header.open).then(|| Claims::new(&streams)),
        };
        let hasher = seed.filter(|_| full && maps).map(UnitHasher::new);
        let places = streams.iter().enumerate().map(|(place, stream)| (stream.id, place)).collect();
        let mapped = streams.iter().any(|stream| stream.map_window > 0);
        let make = || JobResult::Ok(Scratch { made: MapScratch::new()?, read: MapScratch::new()? });
        let scratch = (header.open && mapped && hasher.is_some()).then(make).transpose()?;
        Ok(Self { header, streams, places, weights: Weights::random(), maps, hasher, scratch, sums: Mutex::new(sums) })
    }

    /// The weights of this run, for the balances that parsers keep.
    pub fn weights(&self) -> Weights {
        self.weights
    }

    /// Books a DATA or MAP block that was opened; returns the bytes of its DATA and of its ZERO runs.
    pub fn book(&self, block: &BlockHeader, runs: &[Run], plain: &[u8]) -> Result<(u64, u64), Unbooked> {
        let known = self.places.get(&block.stream);
        let &place = known.ok_or_else(|| broken(format!("stream {} is not in its stream table", block.stream)))?;
        let stream = &self.streams[place];
        check_order(block, stream, runs, self.header.transfer_size)?;
        let end = runs.last().map_or(0, Run::end);
        let open = self.header.open && block.kind == BlockKind::Data;
        require(end <= stream.size || open, "a run ends after the end of its stream")?;
        let share = match block.kind {
            BlockKind::Map => {
                require(stream.map_window > 0, "a page map that the header does not announce")?;
                require(block.layer == 0, "a page map in a layer")?;
                if self.maps { self.map_block(stream, runs, plain)? } else { StreamSums::default() }
            }
            _ => self.data_block(stream, runs, plain)?,
        };
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        // For an ordered stream, the order tells.
        let claims = sums.claims.as_mut().filter(|_| block.kind == BlockKind::Data && !stream.ordered);
        if let Some(claims) = claims {
            let unit = u64::from(stream.unit);
            let new = runs
                .iter()
                .all(|run| claims.claim(place, run.offset / unit, run.end().div_ceil(unit) - run.offset / unit));
            require(new, "a part of its stream is in two blocks")?;
        }
        sums.streams[place].join(&share);
        Self::book_family(&mut sums, self.weights, block, runs, share.zero);
        Ok((share.data, share.zero))
    }

    fn book_family(sums: &mut Sums, weights: Weights, block: &BlockHeader, runs: &[Run], zero: u64) {
        let zero_bytes = &mut sums.zero_bytes[usize::from(block.family) - 1];
        *zero_bytes = zero_bytes.saturating_add(zero);
        if block.cipher != 0 {
            let (first, span) = IndexEntry::span_of(runs);
            sums.spans.add(weights, [block.sequence, first, span]);
        }
    }

    fn data_block(&self, stream: &StreamRecord, runs: &[Run], plain: &[u8]) -> Result<StreamSums, Unbooked> {
        let unit = u64::from(stream.unit);
        let mut share = StreamSums::default();
        let mut rest = plain;
        for run in runs {
            let whole = run.offset.is_multiple_of(unit) && (run.end().is_multiple_of(unit) || run.end() == stream.size);
            require(whole || self.header.open || stream.ordered, "a run does not cover whole units")?;
            share.covered.add_range(self.weights, run.offset, run.end());
            if run.kind == RunKind::Zero {
                share.zero += u64::from(run.length);
                share.zeros.add_range(self.weights, run.offset, run.end());
                if let Some(scratch) = self.scratch.as_ref().filter(|_| stream.map_window > 0) {
                    scratch.zero_run(stream, run)?;
                }
                continue;
            }
            share.data += u64::from(run.length);
            let (bytes, later) =
                rest.split_at_checked(run.length as usize).ok_or_else(|| broken("a run without data"))?;
            rest = later;
            let scratch = self.scratch.as_ref().filter(|_| stream.map_window > 0);
            if let (Some(hasher), Some(scratch)) = (&self.hasher, scratch) {
                scratch.data_run(stream, run.offset, bytes, hasher)?;
            } else if let (Some(hasher), false) = (&self.hasher, self.header.open) {
                for (number, bytes) in (run.offset / unit..).zip(bytes.chunks(stream.unit as usize)) {
                    share.hashes.add(self.weights, item(number, hasher.hash(bytes)));
                }
            }
        }
        Ok(share)
    }

    fn map_block(&self, stream: &StreamRecord, runs: &[Run], plain: &[u8]) -> Result<StreamSums, Unbooked> {
        let unit = u64::from(stream.unit);
        let window = unit * u64::from(stream.map_window);
        let &[run] = runs else { return Err(broken("a map block without its range").into()) };
        let length = u64::from(run.length);
        let fits = run.offset.is_multiple_of(window) && length == window.min(stream.size - run.offset);
        require(fits, "a map block that is not a window of its stream")?;
        let (entries, odd) = plain.as_chunks::<MAP_ENTRY>();
        require(
            odd.is_empty() && entries.len() as u64 == length.div_ceil(unit),
            "a map block with too few or too many entries",
        )?;
        let mut share = StreamSums::default();
        share.mapped.add_range(self.weights, run.offset, run.end());
        if self.header.open {
            if let Some(scratch) = &self.scratch {
                scratch.read.put(stream, run.offset / unit, plain)?;
            }
            return Ok(share);
        }
        for (number, entry) in (run.offset / unit..).zip(entries) {
            if *entry == ZERO_UNIT {
                share.zeros.take_range(self.weights, number * unit, ((number + 1) * unit).min(stream.size));
            } else if self.hasher.is_some() {
                share.hashes.take(self.weights, item(number, *entry));
            }
        }
        Ok(share)
    }

    /// Checks everything against the numbers of the families, once all of them were read to their ends.
    ///
    /// # Errors
    /// What does not add up, and in which family (from 0) if it concerns only one.
    pub fn finish(&self, parsed: &[Parsed]) -> JobResult<Result<(), (Option<usize>, &'static str)>> {
        let added_up = self.add_up(parsed);
        match &self.scratch {
            Some(scratch) if added_up.is_ok() => {
                let fits = self.streams.iter().try_fold(true, |fits, stream| Ok(fits && scratch.agrees(stream)?));
                JobResult::Ok(if fits? { Ok(()) } else { Err((None, "its page map does not fit its data")) })
            }
            _ => Ok(added_up),
        }
    }

    fn add_up(&self, parsed: &[Parsed]) -> Result<(), (Option<usize>, &'static str)> {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sequences = Balance::default();
        let mut spans = sums.spans;
        for (at, family) in parsed.iter().enumerate() {
            if family.zero_bytes != sums.zero_bytes[at] {
                return Err((Some(at), "the count of zero bytes in the trailer is wrong"));
            }
            sequences.join(family.sequences);
            spans.join(family.spans);
        }
        let blocks = total(parsed.iter().map(|family| family.footer.block_count));
        (0..blocks).for_each(|number| sequences.take(self.weights, [number, 0, 0]));
        let whole = |says: bool, what| if says { Ok(()) } else { Err((None, what)) };
        whole(sequences.is_even(), "its blocks are not numbered from 0 on, each number once")?;
        whole(spans.is_even(), "its index does not fit the runs of its blocks")?;
        if self.header.kind == SetKind::Differential {
            return Ok(());
        }
        for (stream, sums) in self.streams.iter().zip(&sums.streams) {
            let once = |mut ranges: Balance| {
                ranges.take_range(self.weights, 0, stream.size);
                ranges.is_even()
            };
            let unmapped = stream.map_window == 0 || !self.maps;
            whole(unmapped || once(sums.mapped), "its page map has a gap, or a part twice")?;
            if self.header.open {
                continue;
            }
            whole(sums.data.saturating_add(sums.zero) == stream.size, "it does not hold every byte of its database")?;
            whole(once(sums.covered), "it holds a part of its database twice, and another part is missing")?;
            let fits = unmapped || sums.hashes.is_even() && sums.zeros.is_even();
            whole(fits, "its page map does not fit its data")?;
        }
        Ok(())
    }

    /// Bytes of DATA and of ZERO runs in all streams.
    pub fn bytes(&self) -> (u64, u64) {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |of: fn(&StreamSums) -> u64| total(sums.streams.iter().map(of));
        (sum(|stream| stream.data), sum(|stream| stream.zero))
    }
}

impl Scratch {
    /// Bytes that a block puts into a stream, over those of lower layers.
    fn data_run(&self, stream: &StreamRecord, offset: u64, bytes: &[u8], hasher: &UnitHasher) -> JobResult<()> {
        let whole = |part: &[u8]| part.len() == stream.unit as usize;
        let parts = units(offset, bytes.len(), stream.unit).map(|part| &bytes[part]);
        let entry = |part: &[u8]| if whole(part) { hasher.hash(part) } else { UNKNOWN_UNIT };
        let entries: Vec<u8> = parts.flat_map(entry).collect();
        self.made.put(stream, offset / u64::from(stream.unit), &entries)
    }

    /// Zeros that a block puts into a stream. Zeros beyond its end mean nothing.
    fn zero_run(&self, stream: &StreamRecord, run: &Run) -> JobResult<()> {
        let unit = u64::from(stream.unit);
        let end = run.end().min(stream.size.next_multiple_of(unit));
        let (first, last) = (run.offset.div_ceil(unit), end / unit);
        self.made.put_zeros(stream, first..last.max(first))?;
        let parts = [
            (!run.offset.is_multiple_of(unit)).then_some(run.offset / unit),
            (!end.is_multiple_of(unit)).then_some(end / unit),
        ];
        parts.into_iter().flatten().try_for_each(|number| self.made.put(stream, number, &UNKNOWN_UNIT))
    }

    /// True when the map of a stream agrees with the data for each unit, or does not know the unit.
    fn agrees(&self, stream: &StreamRecord) -> JobResult<bool> {
        if stream.map_window == 0 {
            return Ok(true);
        }
        let (mut made, mut read) = (Vec::new(), Vec::new());
        let window = u64::from(stream.unit) * u64::from(stream.map_window);
        // There is a MAP block for each of them.
        for number in 0..stream.size.div_ceil(window) {
            self.made.window(stream, number, &mut made)?;
            self.read.window(stream, number, &mut read)?;
            let (made, read) = (made.chunks_exact(MAP_ENTRY), read.chunks_exact(MAP_ENTRY));
            if made.zip(read).any(|(made, read)| made != read && read != UNKNOWN_UNIT) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A unit and its hash.
fn item(number: u64, hash: [u8; MAP_ENTRY]) -> [u64; 3] {
    let hash = u128::from_le_bytes(hash);
    [number, hash as u64, (hash >> 64) as u64]
}
