//! Reading a stream at any place where blocks have gaps: those of a differential. Several workers have gathered its units,
//! so blocks lie between each other, and a place may be in none of them.

use std::collections::VecDeque;
use std::ops::Range;

use super::by_place::{BlockPlace, BlockPlaces};
use super::set::MediaSet;
use crate::error::{Error, Result};
use crate::media::{BlockKind, BlockReference, Run, RunKind};

/// Blocks that are kept after they were read, at most: as many workers gather side by side.
const KEPT: usize = 16;
/// Bytes of them, at most; two are kept whatever they have.
const KEPT_BYTES: usize = 16 << 20;
/// Blocks around one place, at most. A worker has one, so more are no work of this program.
const AROUND: usize = 1024;

/// The places of blocks, and how far those before each of them reach.
#[derive(Debug)]
pub struct BlockRanges {
    places: BlockPlaces,
    reaches: Vec<u64>,
}

impl BlockRanges {
    /// From places, which are in the order of their streams.
    pub fn new(places: BlockPlaces) -> Self {
        let (mut reaches, mut stream, mut reach) = (Vec::with_capacity(places.all().len()), None, 0);
        for place in places.all() {
            if stream.replace(place.stream) != Some(place.stream) {
                reach = 0;
            }
            reach = place.end().max(reach);
            reaches.push(reach);
        }
        Self { places, reaches }
    }

    /// The blocks that may have bytes of a stream in `wanted`.
    ///
    /// # Errors
    /// There are too many.
    fn around(&self, stream: u32, wanted: &Range<u64>) -> Result<Vec<(usize, BlockPlace)>> {
        let all = self.places.all();
        let behind = all.partition_point(|place| (place.stream, place.first) < (stream, wanted.end));
        let before = all.iter().zip(&self.reaches).enumerate().take(behind).rev();
        let before = before.take_while(|(_, (place, reach))| place.stream == stream && **reach > wanted.start);
        let around = before.filter(|(_, (place, _))| place.end() > wanted.start);
        let around: Vec<_> = around.map(|(number, (place, _))| (number, *place)).take(AROUND + 1).collect();
        if around.len() > AROUND {
            let why = format!("more than {AROUND} of its blocks are around one place");
            return Err(Error::refused("media set", why, "read it with `fullbore restore`"));
        }
        Ok(around)
    }
}

/// A block that was read.
struct ReadBlock {
    number: usize,
    runs: Vec<Run>,
    payload: Vec<u8>,
}

/// The blocks that were read last, the newest first.
#[derive(Default)]
pub struct ReadBlocks(VecDeque<ReadBlock>);

impl ReadBlocks {
    fn keep(&mut self, block: ReadBlock) {
        self.0.push_front(block);
        let bytes = |blocks: &VecDeque<ReadBlock>| blocks.iter().map(|block| block.payload.len()).sum::<usize>();
        while self.0.len() > KEPT || self.0.len() > 2 && bytes(&self.0) > KEPT_BYTES {
            self.0.pop_back();
        }
    }
}

impl MediaSet {
    /// Copies the bytes that this set has of a stream from `at` on. Gives the parts of `into` that are filled, in order.
    ///
    /// # Errors
    /// A block is damaged.
    pub fn fill(
        &mut self,
        (ranges, read): (&BlockRanges, &mut ReadBlocks),
        (stream, at): (u32, u64),
        into: &mut [u8],
    ) -> Result<Vec<Range<usize>>> {
        let wanted = at..at.saturating_add(into.len() as u64);
        let mut filled = Vec::new();
        for (number, place) in ranges.around(stream, &wanted)? {
            if !read.0.iter().any(|block| block.number == number) {
                read.keep(self.read_block(number, &place)?);
            }
            let Some(block) = read.0.iter().find(|block| block.number == number) else { continue };
            let copied = copy(block, &wanted, into, &mut filled);
            copied.ok_or_else(|| self.differs(&place))?;
        }
        filled.sort_unstable_by_key(|part: &Range<usize>| part.start);
        Ok(filled)
    }

    fn read_block(&mut self, number: usize, place: &BlockPlace) -> Result<ReadBlock> {
        let (families, data_key) = self.parts_mut();
        let family = families.get_mut(usize::from(place.family)).ok_or(Error::Halted)?;
        let reference = BlockReference { offset: place.offset, length: place.length };
        let block = family.block(reference, BlockKind::Data, data_key)?;
        if block.header.stream != place.stream || block.header.layer != 0 {
            return Err(self.differs(place));
        }
        Ok(ReadBlock { number, runs: block.runs, payload: block.payload })
    }

    fn differs(&self, place: &BlockPlace) -> Error {
        let device = self.families().get(usize::from(place.family)).map_or("", |family| family.device());
        Error::damaged(device, place.offset, "the block differs from its index")
    }
}

/// Copies the bytes of a block that are wanted. `None` if its runs are not those of its bytes.
fn copy(block: &ReadBlock, wanted: &Range<u64>, into: &mut [u8], filled: &mut Vec<Range<usize>>) -> Option<()> {
    let mut rest = &block.payload[..];
    for run in &block.runs {
        let data = match run.kind {
            RunKind::Data => {
                let (data, behind) = rest.split_at_checked(run.length as usize)?;
                rest = behind;
                Some(data)
            }
            RunKind::Zero => None,
            _ => return None,
        };
        let (begin, end) = (run.offset.max(wanted.start), run.end().min(wanted.end));
        if begin >= end {
            continue;
        }
        let within = |at: u64, from: u64| usize::try_from(at - from).ok();
        let part = within(begin, wanted.start)?..within(end, wanted.start)?;
        let target = into.get_mut(part.clone())?;
        match data {
            Some(data) => target.copy_from_slice(data.get(within(begin, run.offset)?..within(end, run.offset)?)?),
            None => target.fill(0),
        }
        filled.push(part);
    }
    Some(())
}
