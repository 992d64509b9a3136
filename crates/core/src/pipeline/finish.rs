//! The end of a backup: manifest, index, trailer and footer of every family, and the commit.

use super::page_map::map_window;
use super::stripe::{Board, Hand};
use super::transform::push_unit;
use super::writing::Commit;
use crate::checksum::{MAP_ENTRY, ZERO_UNIT, xxh3_128_le};
use crate::cipher::{DataKey, FooterKey};
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::map_scratch::MapScratch;
use crate::media::{
    BlockKind, BlockReference, Commit as CommitRecord, Footer, MAX_MANIFEST_PARTS, Manifest, Run, RunKind, SetHeader,
    StreamRecord, TAG, Trailer, family_length, pack_manifest, padded_run_capacity,
};
use crate::meter::Clock;
use crate::unpack::BaseMap;

/// Codec number of the manifest's parts: Zstandard.
const MANIFEST_CODEC: u8 = 2;

/// Writes the last blocks of families and their footers.
pub(super) struct Finisher<'a> {
    board: &'a Board,
    set: &'a SetHeader,
    data_key: Option<&'a DataKey>,
    hand: Hand,
    clock: Clock,
    finished_at: i64,
}

/// A family that has everything but its footer.
#[derive(Debug, Clone)]
pub(super) struct Closed {
    /// Its digest.
    pub digest: [u8; 32],
    /// Bytes with the footer.
    pub length: u64,
    trailer: BlockReference,
    block_count: u64,
    /// Plain bytes of DATA blocks.
    pub data_bytes: u64,
    /// Bytes of ZERO runs.
    pub zero_bytes: u64,
}

impl<'a> Finisher<'a> {
    /// For the families of `board`, which have all their blocks except those that are made here.
    pub fn new(board: &'a Board, set: &'a SetHeader, data_key: Option<&'a DataKey>) -> Self {
        let finished_at = jiff::Timestamp::now().as_microsecond();
        Self { board, set, data_key, hand: Hand::new(data_key), clock: Clock::new(), finished_at }
    }

    /// Closes all families, and commits them.
    pub fn finish(mut self, manifest: &Manifest, commit: Commit<'_, '_>) -> Result<Vec<Closed>> {
        let closed = (1..=self.set.families).map(|family| self.close(family, manifest)).collect::<Result<Vec<_>>>()?;
        commit.run(|family| self.write_footer(family, &closed))?;
        Ok(closed)
    }

    /// Seals the page map of an open set: its streams and their sizes are known now.
    pub fn seal_map(&mut self, scratch: &MapScratch, manifest: &Manifest, halt: &Halt) -> Result<()> {
        let (mut entries, mut bytes) = (Vec::new(), Vec::new());
        for stream in manifest.streams.iter().filter(|stream| stream.map_window > 0) {
            let window = u64::from(stream.unit) * u64::from(stream.map_window);
            for number in 0..stream.size.div_ceil(window) {
                halt.check()?;
                scratch.window(&stream.record(), number, &mut entries)?;
                let offset = number * window;
                let length = window.min(stream.size - offset) as u32;
                let run = [Run { offset, length, kind: RunKind::Mapped }];
                let block = self.board.unpacked_block(BlockKind::Map, stream.id, &run, &entries, &mut bytes);
                self.board.place(block, &mut self.hand, &mut self.clock)?;
            }
        }
        Ok(())
    }

    /// In a full, bytes of a stream that were not sent are zero. In a differential of an open set, units that did not
    /// come would be as in its full: those that are not zero there become zero, in the highest layer.
    pub fn zero_what_did_not_come(
        &mut self,
        came: &MapScratch,
        base: &BaseMap,
        manifest: &Manifest,
        highest: u16,
        halt: &Halt,
    ) -> Result<()> {
        let (mut here, mut before, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        let most = padded_run_capacity(self.board.tag_length());
        for stream in manifest.streams.iter().filter(|stream| stream.base.is_some()) {
            let unit = u64::from(stream.unit);
            let map_window = map_window(stream.unit, self.set.transfer_size);
            let record = StreamRecord { map_window, ..stream.record() };
            let window = unit * u64::from(map_window);
            for number in 0..stream.size.div_ceil(window) {
                halt.check()?;
                came.window(&record, number, &mut here)?;
                let absent = |entry: &[u8]| entry == ZERO_UNIT;
                if !here.chunks_exact(MAP_ENTRY).any(absent) {
                    continue;
                }
                base.entries(stream.base, number * window, here.len() / MAP_ENTRY, &mut before)?;
                let units =
                    here.chunks_exact(MAP_ENTRY).zip(before.chunks_exact(MAP_ENTRY)).zip(number * window / unit..);
                let stale = units.filter(|((here, before), _)| absent(here) && !absent(before));
                let mut runs: Vec<Run> = Vec::new();
                for (_, at) in stale {
                    let offset = at * unit;
                    push_unit(&mut runs, offset, unit.min(stream.size - offset) as u32, RunKind::Zero);
                }
                for runs in runs.chunks(most) {
                    let mut block = self.board.unpacked_block(BlockKind::Data, stream.id, runs, &[], &mut bytes);
                    block.layer = highest;
                    self.board.place(block, &mut self.hand, &mut self.clock)?;
                }
            }
        }
        Ok(())
    }

    /// Writes manifest, last index and trailer of `family`.
    fn close(&mut self, family: u16, manifest: &Manifest) -> Result<Closed> {
        let manifest = self.write_manifest(family, manifest)?;
        self.board.flush_index(family, &mut self.hand, &mut self.clock)?;
        let trailer = {
            let state = self.board.lock(family);
            Trailer {
                block_count: state.block_count + 1,
                data_bytes: state.data_bytes,
                zero_bytes: state.zero_bytes,
                index: state.index.clone(),
                manifest,
            }
        };
        let payload = trailer.encode();
        if payload.len() + 4096 > self.set.transfer_size as usize {
            return Err(Error::refused(
                "--max-transfer-size",
                format!("the index of a family does not fit into blocks of {} bytes", self.set.transfer_size),
                "take a larger --max-transfer-size or more --stripes",
            ));
        }
        let mut bytes = Vec::new();
        let block = self.board.unpacked_block(BlockKind::Trailer, 0, &[], &payload, &mut bytes);
        let reference = self.board.place_in_family(family, block, &mut self.hand, &mut self.clock)?;
        let state = self.board.lock(family);
        Ok(Closed {
            digest: state.digest(),
            length: family_length(state.position(), self.set.block_size),
            trailer: reference,
            block_count: trailer.block_count,
            data_bytes: trailer.data_bytes,
            zero_bytes: trailer.zero_bytes,
        })
    }

    fn write_manifest(&mut self, family: u16, manifest: &Manifest) -> Result<Vec<BlockReference>> {
        // Packed parts may be a little longer than plain ones when nothing can be saved.
        let part = (self.set.transfer_size as usize - 4096 - TAG).min(1 << 20);
        let flaw = |flaw: crate::media::Flaw| {
            Error::refused("manifest", flaw.to_string(), "this is a defect: please report it")
        };
        // A manifest that a reader would refuse is not written.
        manifest.check_against(self.set).map_err(flaw)?;
        let parts = pack_manifest(manifest, part - (part >> 6)).map_err(flaw)?;
        if parts.len() > MAX_MANIFEST_PARTS {
            return Err(Error::refused("manifest", "it has too many parts", "take a larger --max-transfer-size"));
        }
        let mut references = Vec::with_capacity(parts.len());
        let mut bytes = Vec::new();
        for (packed, plain) in &parts {
            let plain_bytes = zstd::bulk::decompress(packed, *plain).map_err(|e| Error::io("pack", "manifest", e))?;
            let digest = (*plain, xxh3_128_le(0, &plain_bytes));
            let block =
                self.board.packed_block(BlockKind::Manifest, MANIFEST_CODEC, 0, &[], packed, digest, &mut bytes);
            references.push(self.board.place_in_family(family, block, &mut self.hand, &mut self.clock)?);
        }
        Ok(references)
    }

    /// Writes padding and footer of `family`. With `all`, the families of the set, the footer of family 1 becomes the
    /// commit record.
    fn write_footer(&mut self, family: u16, all: &[Closed]) -> Result<()> {
        let closed = &all[usize::from(family) - 1];
        let commit = (family == 1).then(|| CommitRecord {
            set_block_count: all.iter().map(|family| family.block_count).sum(),
            digests: all.iter().map(|family| family.digest).collect(),
        });
        let footer = Footer {
            format_version: self.set.format_version,
            family,
            families: self.set.families,
            media_set_id: self.set.media_set_id,
            backup_set_id: self.set.backup_set_id,
            family_length: closed.length,
            trailer_offset: closed.trailer.offset,
            trailer_length: closed.trailer.length,
            block_count: closed.block_count,
            finished_at: self.finished_at,
            family_digest: closed.digest,
            commit,
            mac: [0; 32],
        };
        let bytes = footer.encode(|bytes| self.data_key.map_or([0; 32], |key| FooterKey::new(key).mac(bytes)));
        self.board.finish(family, &bytes, &mut self.hand, &mut self.clock)
    }
}
