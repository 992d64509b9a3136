//! Fetching parts of a set: the index of each family, and only those DATA blocks that touch the wanted parts.
//!
//! The index proves itself (`index_walk.rs`). Each fetched block is proven by its entry.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::Sender;

use super::balance::Weights;
use super::family::{Family, check_place, damage};
use super::index_walk::{WalkedIndex, are_numbered, walk_index};
use super::layers::{Layers, Member};
use super::marks::Marks;
use super::parse::RawBlock;
use super::pieces::Pieces;
use super::restore::{MEDIA, STAGES, Shared, Unpack, UnpackOutcome, Work, streams_of};
use super::set::MediaSet;
use super::tally::Tally;
use super::target::Target;
use crate::error::{Error, Result};
use crate::media::{BLOCK_HEADER, BlockHeader, BlockKind, IndexEntry, Manifest, StreamRecord, require, total};
use crate::meter::{Accounts, Clock, Spent};
use crate::pool;

/// The result of fetching.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// As for a whole unpacking: of all bytes of the set.
    pub outcome: UnpackOutcome,
    /// Blocks that were fetched.
    pub blocks: u64,
    /// Their bytes on the media.
    pub bytes: u64,
}

/// A family whose index was read.
struct Sifted {
    index: WalkedIndex,
    manifest: Manifest,
}

/// Counts of what is under way.
#[derive(Default)]
struct Counts {
    blocks: AtomicU64,
    bytes: AtomicU64,
}

/// A target that writes only marked chunks: the rest is right already, and a block of a lower layer must not spoil it.
struct Clipped<'a> {
    target: &'a dyn Target,
    wanted: &'a Marks,
}

impl Target for Clipped<'_> {
    fn discards(&self) -> bool {
        self.target.discards()
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        let within = |part: &Range<u64>| (part.start - offset) as usize..(part.end - offset) as usize;
        let mut parts = self.wanted.parts(stream, offset..offset + bytes.len() as u64);
        parts.try_for_each(|part| self.target.write(stream, part.start, &bytes[within(&part)]))
    }

    fn zero(&self, stream: u32, offset: u64, length: u64) -> Result<()> {
        let mut parts = self.wanted.parts(stream, offset..offset + length);
        parts.try_for_each(|part| self.target.zero(stream, part.start, part.end - part.start))
    }
}

impl Unpack<'_> {
    /// Fetches the blocks of `set` that touch `wanted`, and writes their wanted parts. The caller proves the result by
    /// the page map: this function does not notice a block that is missing, or that is there twice.
    ///
    /// # Errors
    /// Damage, or bytes that differ from the commit record. The target then holds something that must not be used.
    pub fn fetch(&self, set: &mut MediaSet, wanted: &Marks) -> Result<Fetched> {
        let (header, data_key) = (set.header().clone(), set.data_key().cloned());
        let (layers, members) = Layers::new(set.families().len());
        let streams = streams_of(set)?;
        // No page map proves an ordered stream: only its order does, if all of its blocks are fetched.
        let is_wanted = |stream: &StreamRecord| {
            stream.size == 0 || wanted.parts(stream.id, 0..stream.size).next() == Some(0..stream.size)
        };
        let whole = streams.iter().filter(|stream| stream.ordered).all(is_wanted);
        let shared = Shared {
            data_key: data_key.as_ref(),
            accounts: Accounts::new(STAGES),
            in_order: if whole { self.in_order(&header, &streams, &layers)? } else { None },
            tally: Tally::new(&header, streams, None, false)?,
            layers: header.open.then_some(layers),
        };
        if header.open {
            // Bytes without a run are zero. A set without layers has a run for every byte.
            wanted
                .all_parts()
                .try_for_each(|(stream, part)| self.target.zero(stream, part.start, part.end - part.start))?;
        }
        let target = Clipped { target: self.target, wanted };
        let counts = Counts::default();
        let clipped = Unpack { target: &target, ..*self };
        let sift = |family: &mut Family, member: Member, to_workers: &Sender<Work>| {
            let sifted = clipped.sift(family, wanted, &shared, &counts, to_workers);
            drop(member);
            sifted
        };
        let sifted = clipped.each_family(set, &shared, members, sift)?;
        let name = format!("media set {}", header.media_set_id);
        if let Some(in_order) = &shared.in_order {
            in_order.finish(&name)?;
        }
        check_whole(&name, &sifted, shared.tally.weights())?;
        let outcome = UnpackOutcome {
            stored_bytes: total(sifted.iter().map(|family| family.index.footer.family_length)),
            data_bytes: total(sifted.iter().map(|family| family.index.trailer.data_bytes)),
            zero_bytes: total(sifted.iter().map(|family| family.index.trailer.zero_bytes)),
            footers: sifted.iter().map(|family| family.index.footer.clone()).collect(),
            manifest: sifted.into_iter().next().map(|family| family.manifest).ok_or(Error::Halted)?,
            stages: shared.accounts.stages(),
            devices: set.families().iter().map(|family| (family.device().to_owned(), family.account())).collect(),
        };
        Ok(Fetched { outcome, blocks: counts.blocks.into_inner(), bytes: counts.bytes.into_inner() })
    }

    /// Reads the index of a family from start to end, and on the way the wanted blocks.
    fn sift(
        &self,
        family: &mut Family,
        wanted: &Marks,
        shared: &Shared<'_>,
        counts: &Counts,
        to_workers: &Sender<Work>,
    ) -> Result<Sifted> {
        let mut clock = Clock::shown_in(&self.progress.stages[MEDIA]);
        let manifest = family.manifest(shared.data_key)?;
        let index = walk_index(family, shared.tally.weights(), shared.data_key, |family, entries| {
            let touches = |entry: &&IndexEntry| {
                let first = entry.first.get();
                let range = first..first.saturating_add(entry.span.get());
                entry.kind == BlockKind::Data as u8 && wanted.touches(entry.stream(), range)
            };
            let chosen: Vec<IndexEntry> = entries.iter().filter(touches).copied().collect();
            self.send(family, &chosen, shared, counts, to_workers, &mut clock)
        })?;
        clock.lap(Spent::Busy);
        shared.book_media(family.header().family, clock.account());
        Ok(Sifted { index, manifest })
    }

    /// Reads these blocks, neighbours in one go, and hands them to the workers.
    fn send(
        &self,
        family: &mut Family,
        chosen: &[IndexEntry],
        shared: &Shared<'_>,
        counts: &Counts,
        to_workers: &Sender<Work>,
        clock: &mut Clock,
    ) -> Result<()> {
        let (supply, header) = family.split();
        let device = supply.device().to_owned();
        supply.aim(neighbours(chosen))?;
        let mut pieces = Pieces::new(supply, self.input, VecDeque::new(), 0);
        for entry in chosen {
            pieces.position = entry.offset.get();
            let bytes = pieces.take(entry.length.get() as usize)?;
            let checked = BlockHeader::decode(&bytes, header.set.transfer_size).and_then(|block| {
                check_place(&block, header)?;
                require(entry_of(&block, &bytes, entry.offset.get()) == entry.without_span(), NOT_THE_ONE)?;
                Ok(block)
            });
            let block = checked.map_err(|flaw| damage(&device, entry.offset.get(), flaw))?;
            let raw = RawBlock { offset: entry.offset.get(), header: block, bytes };
            clock.lap_busy_but(pool::waited());
            clock.pass(raw.bytes.len() as u64);
            self.halt.check()?;
            self.progress.stored.fetch_add(raw.bytes.len() as u64, Ordering::Relaxed);
            counts.blocks.fetch_add(1, Ordering::Relaxed);
            counts.bytes.fetch_add(raw.bytes.len() as u64, Ordering::Relaxed);
            self.admit(&device, raw, shared, to_workers)?;
            clock.lap(Spent::Blocked);
        }
        Ok(())
    }
}

const NOT_THE_ONE: &str = "the block differs from its entry in the index";

/// The entry that a block should have, without its span.
fn entry_of(block: &BlockHeader, bytes: &[u8], offset: u64) -> IndexEntry {
    let mut head = [0; BLOCK_HEADER];
    head.copy_from_slice(&bytes[..BLOCK_HEADER]);
    IndexEntry::of(block, &head, offset, (0, 0))
}

/// The ranges of these blocks in their family; neighbours are one range.
fn neighbours(entries: &[IndexEntry]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for entry in entries {
        let range = entry.offset.get()..entry.offset.get() + u64::from(entry.length.get());
        match ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    ranges
}

/// Checks the families together against the commit record, which was compared with their footers before.
fn check_whole(name: &str, sifted: &[Sifted], weights: Weights) -> Result<()> {
    let incomplete = |why: &str| Err(Error::incomplete(name, why, "use another backup set"));
    if !are_numbered(sifted.iter().map(|family| &family.index), weights) {
        return incomplete("its blocks are not numbered from 0 on, each number once");
    }
    if sifted.iter().any(|family| family.manifest != sifted[0].manifest) {
        return incomplete("its families have different manifests");
    }
    Ok(())
}
