//! Reading a set at any place: the index of all families is read once, and then single blocks.
//!
//! The index proves itself (`index_walk.rs`). Each block is proven by its own checksums when it is read.

use super::balance::Weights;
use super::index_walk::{are_numbered, walk_index};
use super::set::MediaSet;
use crate::error::{Error, Result};
use crate::media::{BlockKind, BlockReference, IndexEntry, RunKind};

/// The place of a block: which bytes of a stream it holds, and where it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockPlace {
    pub stream: u32,
    pub first: u64,
    /// The largest number is of a block that may be longer.
    span: u32,
    pub family: u16,
    pub offset: u64,
    pub length: u32,
}

impl BlockPlace {
    /// The offset in the stream behind its last byte.
    pub fn end(&self) -> u64 {
        if self.span == u32::MAX { u64::MAX } else { self.first.saturating_add(self.span.into()) }
    }
}

/// Where the blocks of a set in layer 0 are.
#[derive(Debug)]
pub struct BlockPlaces(Vec<BlockPlace>);

impl BlockPlaces {
    /// Bytes of memory for each block.
    pub const BYTES: usize = size_of::<BlockPlace>();

    /// All of them, by stream and place.
    pub(super) fn all(&self) -> &[BlockPlace] {
        &self.0
    }

    /// The block that holds the byte at `at` of a stream, and all its bytes from there on; `None` if no block holds it.
    fn find(&self, stream: u32, at: u64) -> Option<&BlockPlace> {
        let behind = self.0.partition_point(|place| (place.stream, place.first) <= (stream, at));
        let place = self.0.get(behind.checked_sub(1)?)?;
        (place.stream == stream && at - place.first < u64::from(place.span)).then_some(place)
    }
}

impl MediaSet {
    /// Reads the index of all families, which proves itself against their footers. The set has at most `most` blocks.
    ///
    /// # Errors
    /// The index is damaged, or has more blocks.
    pub fn block_places(&mut self, most: usize) -> Result<BlockPlaces> {
        let (weights, mut walked, mut places) = (Weights::random(), Vec::new(), Vec::new());
        let (families, data_key) = self.parts_mut();
        for (family, number) in families.iter_mut().zip(0..) {
            walked.push(walk_index(family, weights, data_key, |family, entries| {
                let data = entries.iter().filter(|entry| entry.kind == BlockKind::Data as u8);
                places.extend(data.map(|entry| place_of(entry, number)));
                if places.len() > most {
                    let why = format!("it has more than {most} blocks, and they do not fit into the memory for one");
                    return Err(Error::refused(family.device(), why, "read it with `fullbore restore`"));
                }
                Ok(())
            })?);
        }
        if !are_numbered(walked.iter(), weights) {
            let why = "its blocks are not numbered from 0 on, each number once";
            return Err(Error::incomplete("media set", why, "use another copy of the set"));
        }
        places.sort_unstable_by_key(|place: &BlockPlace| (place.stream, place.first));
        Ok(BlockPlaces(places))
    }

    /// The bytes of a stream from `at` on, as far as one block has them. At least one byte.
    ///
    /// # Errors
    /// No block holds this byte, or the block is damaged.
    pub fn bytes_at(&mut self, places: &BlockPlaces, stream: u32, at: u64) -> Result<Vec<u8>> {
        let wrong = |why: String| Error::incomplete("media set", why, "use another copy of the set");
        let missing = || wrong(format!("no block holds byte {at} of its stream {stream}"));
        let place = *places.find(stream, at).ok_or_else(missing)?;
        let (families, data_key) = self.parts_mut();
        let family = families.get_mut(usize::from(place.family)).ok_or_else(missing)?;
        let reference = BlockReference { offset: place.offset, length: place.length };
        let block = family.block(reference, BlockKind::Data, data_key)?;
        let transfer_size = family.header().set.transfer_size;
        if block.header.stream != stream || block.header.layer != 0 || place.span > transfer_size {
            return Err(Error::damaged(family.device(), place.offset, "the block differs from its index"));
        }
        let mut bytes = vec![0; place.span as usize];
        let mut rest = &block.payload[..];
        let mut covered = 0;
        for run in &block.runs {
            let into = usize::try_from(run.offset.wrapping_sub(place.first)).ok();
            let into = into.and_then(|begin| bytes.get_mut(begin..begin.checked_add(run.length as usize)?));
            covered += u64::from(run.length);
            match (into, run.kind, rest.split_at_checked(run.length as usize)) {
                (Some(into), RunKind::Data, Some((data, behind))) => {
                    into.copy_from_slice(data);
                    rest = behind;
                }
                (Some(_), RunKind::Zero, _) => {}
                _ => return Err(Error::damaged(family.device(), place.offset, "the block differs from its index")),
            }
        }
        // A block of a stream that was written once has no gaps.
        if covered != u64::from(place.span) {
            return Err(Error::damaged(family.device(), place.offset, "the block has a gap"));
        }
        let before = usize::try_from(at - place.first).unwrap_or(usize::MAX);
        Ok(bytes.split_off(before.min(bytes.len())))
    }
}

fn place_of(entry: &IndexEntry, family: u16) -> BlockPlace {
    BlockPlace {
        stream: entry.stream(),
        first: entry.first.get(),
        // A longer one is refused when it is read.
        span: u32::try_from(entry.span.get()).unwrap_or(u32::MAX),
        family,
        offset: entry.offset.get(),
        length: entry.length.get(),
    }
}
