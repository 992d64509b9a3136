//! A copy of a backup set on new media: its blocks are checked, and perhaps packed differently, in other families,
//! under another key.

use std::collections::HashMap;
use std::sync::Arc;

use super::finish::{Closed, Finisher};
use super::read::Throttle;
use super::stripe::{BlockBytes, Board, Hand, Unsealed};
use super::tee::Tee;
use super::writing::{SINK, Writing};
use super::{BackupOutcome, COPY_STAGES, outcome};
use crate::checksum::xxh3_128_le;
use crate::cipher::DataKey;
use crate::codec::{Compression, Encoder};
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::media::{BLOCK_HEADER, BlockBody, BlockKind, DIGEST, Manifest, RUN, Run, RunKind, SetHeader};
use crate::meter::{Accounts, Clock, Progress};
use crate::plan::UnpackPlan;
use crate::pool::{Buffer, Pool};
use crate::sink::{DeviceAccount, Sink};
use crate::unpack::{BlockTaker, CheckedBlock, MediaSet, Target, Unpack};

/// Runs of a stream whose unit is unknown are split at multiples of the largest unit.
const LARGEST_UNIT: u32 = 65536;

/// A copy on new media, about to run.
pub struct Remake<'a> {
    /// Threads and buffers of the reading.
    pub plan: &'a UnpackPlan,
    /// The pool that the families are read through.
    pub input: &'a Arc<Pool>,
    /// Buffers that blocks are laid out in, and written from: at least stripes + 2 × workers.
    pub output_buffers: usize,
    /// Bytes of media per second, at most.
    pub throttle: Option<u64>,
    /// The new media set. Streams, unit sizes, transfer size and kind are those of the old one.
    pub set: &'a SetHeader,
    /// The new manifest.
    pub manifest: &'a Manifest,
    /// How to pack blocks again; `None`: they stay as they are packed.
    pub compression: Option<Compression>,
    /// The fresh data key, when the new set has a cipher.
    pub data_key: Option<&'a DataKey>,
    /// Replace the sets under the sinks' names.
    pub init: bool,
    /// Counters for a display: bytes of the database.
    pub progress: &'a Arc<Progress>,
    /// Ends the job early.
    pub halt: &'a Halt,
    /// Called every 100 ms: an error ends the job.
    pub tick: &'a (dyn Fn() -> Result<()> + Sync),
    /// Called once, when everything is durable and only the commit record has no name yet: an error takes everything
    /// back.
    pub permit: &'a (dyn Fn() -> Result<()> + Sync),
}

/// The result.
#[derive(Debug, Clone)]
pub struct Remade {
    /// What was written; its stages are media, transform, sink.
    pub written: BackupOutcome,
    /// What each family was read from, and what that device did.
    pub devices: Vec<(String, DeviceAccount)>,
}

impl Remake<'_> {
    /// Copies all of `from` into `sinks`. On an error nothing of the copy is left behind, as after a backup.
    ///
    /// # Errors
    /// Damage in the source, with the family and the byte; an error of a sink.
    pub fn run(&self, from: &mut MediaSet, mut sinks: Vec<Box<dyn Sink>>) -> Result<Remade> {
        let output = Pool::new(self.output_buffers, self.set.transfer_size as usize)?;
        let closing = Arc::clone(&output);
        self.halt.on_stop(move || closing.close());
        let aligned = self.set.codec.0 == 0;
        let (board, listeners, loads) = Board::of_set(self.set, aligned, &sinks, &output)?;
        let throttle = self.throttle.map(|rate| Arc::new(Throttle::new(rate)));
        from.listen(|supply| {
            let (throttle, halt) = (throttle.clone(), self.halt.clone());
            Box::new(Tee { supply, way: None, throttle, progress: None, halt, position: 0 })
        });
        let accounts = Accounts::new(COPY_STAGES);
        self.progress.enter(COPY_STAGES, &[self.input, &output]);
        let (init, halt, permit) = (self.init, self.halt, self.permit);
        let writing = Writing { init, progress: self.progress, halt, watch: self.tick, permit };
        let (closed, read) = writing.run(&mut sinks, (listeners, &loads), &board, &accounts, |commit| {
            let blocks = Blocks { remake: self, board: &board, output: &output, units: units(from) };
            let unpack = Unpack {
                plan: self.plan,
                target: &blocks,
                // Reads are counted block by block, writes by the writers.
                progress: &self.progress.of_first_part(),
                halt: self.halt,
                tick: self.tick,
                input: self.input,
            };
            // When this returns, the whole source is known to be good, and nothing of the copy has its end yet.
            let read = unpack.run(from)?;
            let closed = Finisher::new(&board, self.set, self.data_key).finish(self.manifest, commit)?;
            Ok((closed, read))
        })?;
        let mut written: BackupOutcome = outcome(&sinks, &closed, &accounts);
        written.source_bytes = read.data_bytes + read.zero_bytes;
        self.refuse_loss(&closed, (read.data_bytes, read.zero_bytes))?;
        let sink_stage = written.stages.split_off(SINK);
        written.stages = read.stages.into_iter().take(SINK).chain(sink_stage).collect();
        Ok(Remade { written, devices: read.devices })
    }

    /// Checks that the written bytes are those that were read.
    fn refuse_loss(&self, closed: &[Closed], read: (u64, u64)) -> Result<()> {
        let sum = |of: fn(&Closed) -> u64| closed.iter().map(of).sum::<u64>();
        if (sum(|family| family.data_bytes), sum(|family| family.zero_bytes)) == read {
            return Ok(());
        }
        let why = "the copy holds other bytes than its source";
        Err(Error::refused(format!("media set {}", self.set.media_set_id), why, "this is a defect: please report it"))
    }
}

/// The unit of each stream: where a run may be split.
fn units(from: &MediaSet) -> HashMap<u32, u32> {
    let of_manifest = from.manifest().into_iter().flat_map(|manifest| &manifest.streams);
    let of_header = from.header().streams.iter().map(|stream| (stream.id, stream.unit));
    of_manifest.map(|stream| (stream.id, stream.unit)).chain(of_header).collect()
}

/// The target of the reading: blocks instead of bytes.
struct Blocks<'a> {
    remake: &'a Remake<'a>,
    board: &'a Board,
    output: &'a Arc<Pool>,
    units: HashMap<u32, u32>,
}

impl Target for Blocks<'_> {
    fn discards(&self) -> bool {
        true
    }

    fn blocks(&self) -> Result<Option<Box<dyn BlockTaker + '_>>> {
        Ok(Some(Box::new(Placer {
            board: self.board,
            units: &self.units,
            encoder: self.remake.compression.map(Encoder::new).transpose()?,
            encrypted: self.remake.data_key.is_some(),
            hand: Hand::new(self.remake.data_key),
            scratch: self.output.take()?,
            progress: self.remake.progress,
        })))
    }

    fn write(&self, _: u32, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn zero(&self, _: u32, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
}

/// A worker's tools for placing blocks.
struct Placer<'a> {
    board: &'a Board,
    units: &'a HashMap<u32, u32>,
    encoder: Option<Encoder>,
    encrypted: bool,
    hand: Hand,
    /// Heads are made here, packed payloads, and whole blocks that are to be encrypted.
    scratch: Buffer,
    progress: &'a Progress,
}

impl BlockTaker for Placer<'_> {
    fn take(&mut self, block: &CheckedBlock<'_>, clock: &mut Clock) -> Result<()> {
        self.place(block, clock)?;
        if block.header.kind == BlockKind::Data {
            self.progress.advance(block.runs.iter().map(|run| u64::from(run.length)).sum());
        }
        Ok(())
    }
}

impl Placer<'_> {
    fn place(&mut self, block: &CheckedBlock<'_>, clock: &mut Clock) -> Result<()> {
        let lead = BLOCK_HEADER + self.board.tag_length();
        let least = lead + DIGEST + block.runs.len() * RUN;
        let mut packed_anew = None;
        let packs = block.header.kind == BlockKind::Data && !block.plain.is_empty() && least < self.scratch.len();
        if let Some(encoder) = self.encoder.as_mut().filter(|_| packs) {
            let size = encoder.encode(block.plain, &mut self.scratch[least..])?;
            packed_anew = size.filter(|size| least + size <= self.scratch.len());
        }
        if let Some(size) = packed_anew {
            let codec = self.encoder.as_ref().map_or(0, |encoder| encoder.id().number());
            BlockBody::encode_prefix(block.digest, block.runs, &mut self.scratch[lead..least]);
            let bytes = BlockBytes::Kept(&mut self.scratch[..least + size]);
            return self.board.place(unsealed(block, codec, least - lead, bytes), &mut self.hand, clock);
        }
        let repacks = self.encoder.is_some();
        let (codec, payload) = if repacks { (0, block.plain) } else { (block.header.codec, block.packed) };
        let prefix = self.board.prefix_length(block.runs.len(), payload.len());
        let head = lead + prefix;
        if head + payload.len() > self.scratch.len() {
            return self.place_halves(block, clock);
        }
        BlockBody::encode_prefix(block.digest, block.runs, &mut self.scratch[lead..head]);
        let bytes = if self.encrypted {
            let end = head + payload.len();
            self.scratch[head..end].copy_from_slice(payload);
            BlockBytes::Kept(&mut self.scratch[..end])
        } else {
            BlockBytes::Joined(&mut self.scratch[..head], payload)
        };
        self.board.place(unsealed(block, codec, prefix, bytes), &mut self.hand, clock)
    }

    /// A block without room here, because it gets a tag or was packed before, becomes two.
    fn place_halves(&mut self, block: &CheckedBlock<'_>, clock: &mut Clock) -> Result<()> {
        let unit = self.units.get(&block.header.stream).copied().unwrap_or(LARGEST_UNIT);
        // A block of an ordered stream has room for any head, and only one number.
        let parts = block.header.kind == BlockKind::Data && block.header.order == 0;
        let halves = halves(block.runs, unit).filter(|_| parts);
        let Some((first, second)) = halves else {
            let why = format!("a block of stream {} does not fit into the copy's blocks", block.header.stream);
            return Err(Error::refused(
                "copy",
                why,
                "copy the set as it is: without another --compression or --encrypt-to",
            ));
        };
        let data = |runs: &[Run]| {
            runs.iter().filter(|run| run.kind == RunKind::Data).map(|run| run.length as usize).sum::<usize>()
        };
        let (front, back) = block.plain.split_at(data(&first).min(block.plain.len()));
        for (runs, plain) in [(first, front), (second, back)] {
            let header = crate::media::BlockHeader { codec: 0, plain_length: plain.len() as u32, ..*block.header };
            let digest = xxh3_128_le(0, plain);
            self.place(&CheckedBlock { header: &header, runs: &runs, digest, packed: plain, plain }, clock)?;
        }
        Ok(())
    }
}

/// Two halves of a block's runs; a single run is split at a unit. `None` if it cannot be split.
fn halves(runs: &[Run], unit: u32) -> Option<(Vec<Run>, Vec<Run>)> {
    let [run] = runs else {
        let (first, second) = runs.split_at(runs.len() / 2);
        return (!first.is_empty()).then(|| (first.to_vec(), second.to_vec()));
    };
    let unit = u64::from(unit.max(1));
    let middle = (run.offset + u64::from(run.length) / 2) / unit * unit;
    let middle = if middle > run.offset { middle } else { middle + unit };
    if middle >= run.end() {
        return None;
    }
    let part = |offset: u64, end: u64| vec![Run { offset, length: (end - offset) as u32, kind: run.kind }];
    Some((part(run.offset, middle), part(middle, run.end())))
}

fn unsealed<'a>(block: &CheckedBlock<'a>, codec: u8, prefix_length: usize, bytes: BlockBytes<'a>) -> Unsealed<'a> {
    Unsealed {
        kind: block.header.kind,
        codec,
        stream: block.header.stream,
        layer: block.header.layer,
        order: block.header.order,
        runs: block.runs,
        prefix_length,
        plain_length: block.header.plain_length as usize,
        bytes,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn run(offset: u64, length: u32) -> Run {
        Run { offset, length, kind: RunKind::Data }
    }

    #[test]
    fn runs_are_parted_at_units_and_nothing_of_them_is_lost() {
        let (first, second) = halves(&[run(0, 4096), run(8192, 4096), run(16384, 4096)], 4096).unwrap();
        assert_eq!((first.len(), second.len()), (1, 2));
        assert_eq!(halves(&[run(4096, 12288)], 4096).unwrap(), (vec![run(4096, 4096)], vec![run(8192, 8192)]));
        // Runs of open sets need not begin at a unit.
        assert_eq!(halves(&[run(4000, 200)], 4096).unwrap(), (vec![run(4000, 96)], vec![run(4096, 104)]));
        assert_eq!(halves(&[run(0, 4096)], 4096), None);
        assert_eq!(halves(&[], 4096), None);
    }
}
