//! Tests of open sets: streams that appear on the way, layers over each other, sizes that are known at the end.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::cipher::CipherId;
use crate::media::{ManifestFamily, ManifestStream, Position, SetKind};
use crate::plan::{Knobs, TransferSize, UnpackPlan};
use crate::sink::Sink;
use crate::source::{Extent, Reader, Stream};
use crate::testkit::{MemorySink, MemorySupply, Shelf};
use crate::unpack::{DirectoryTarget, Family, MediaSet, NullTarget, Target, Unpack};

const TRANSFER: u32 = 64 << 10;

/// What a server sends next: so many bytes of this value, there.
#[derive(Debug, Clone)]
struct Step {
    layer: u16,
    stream: u16,
    offset: u64,
    length: usize,
    value: u8,
}

/// Plays steps to its readers; a stream is known from its first step on.
struct Growing {
    state: Mutex<State>,
    sizes: Vec<u64>,
}

struct State {
    steps: VecDeque<Step>,
    found: Vec<Stream>,
    layer: u16,
    /// Extents whose reader was not asked for the next one yet.
    given: usize,
}

impl Growing {
    fn new(steps: &[Step], sizes: &[u64]) -> Self {
        let state = State { steps: steps.to_vec().into(), found: Vec::new(), layer: 0, given: 0 };
        Self { state: Mutex::new(state), sizes: sizes.to_vec() }
    }
}

impl Source for Growing {
    fn streams(&self) -> &[Stream] {
        &[]
    }

    fn is_open(&self) -> bool {
        true
    }

    fn stream(&self, id: u16) -> Option<Stream> {
        self.found().into_iter().find(|stream| stream.id == id)
    }

    fn found(&self) -> Vec<Stream> {
        self.state.lock().unwrap().found.clone()
    }

    fn reader(&self, _: usize, _: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(Player { source: self, gave: false }))
    }

    fn is_free(&self, _: u16, _: u64) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

struct Player<'a> {
    source: &'a Growing,
    gave: bool,
}

impl Reader for Player<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let mut state = self.source.state.lock().unwrap();
        state.given -= usize::from(std::mem::take(&mut self.gave));
        while state.steps.front().is_some_and(|step| step.layer > state.layer) && state.given > 0 {
            drop(state);
            std::thread::sleep(Duration::from_micros(50));
            state = self.source.state.lock().unwrap();
        }
        let Some(step) = state.steps.pop_front() else { return Ok(None) };
        state.layer = step.layer;
        state.given += 1;
        self.gave = true;
        let id = step.stream;
        if state.found.iter().all(|stream| stream.id != id) {
            let size = self.source.sizes[usize::from(id) - 1];
            state.found.push(Stream { id, name: format!("d{}/f{id}", id % 3), unit: 4096, size });
        }
        buffer[..step.length].fill(step.value);
        Ok(Some(Extent { stream: id, layer: step.layer, offset: step.offset, length: step.length as u32 }))
    }
}

fn header(families: u16) -> SetHeader {
    SetHeader {
        media_set_id: Uuid::now_v7(),
        backup_set_id: Uuid::now_v7(),
        families,
        cipher: CipherId::None,
        kind: SetKind::Full,
        block_size: 4096,
        transfer_size: TRANSFER,
        codec: (1, 0),
        started_at: 0,
        engine: "growing".into(),
        tool_version: "0".into(),
        base_backup_set_id: None,
        keys: Vec::new(),
        streams: Vec::new(),
        open: true,
        label: None,
    }
}

fn manifest(set: &SetHeader, streams: &[Stream]) -> Manifest {
    let described = |stream: &Stream| ManifestStream {
        id: stream.id,
        name: stream.name.clone(),
        layer: 0,
        unit: stream.unit,
        map_window: 0,
        size: stream.size,
    };
    let family = |family| ManifestFamily { family, device: format!("family {family}") };
    Manifest {
        schema: 0,
        tool_version: set.tool_version.clone(),
        engine: set.engine.clone(),
        engine_version: "1".into(),
        host: String::new(),
        database: String::new(),
        kind: set.kind,
        copy_only: false,
        media_set_id: set.media_set_id,
        backup_set_id: set.backup_set_id,
        base_backup_set_id: None,
        name: String::new(),
        description: String::new(),
        started_at: String::new(),
        finished_at: String::new(),
        codec: String::new(),
        block_size: set.block_size,
        transfer_size: set.transfer_size,
        families: (1..=set.families).map(family).collect(),
        streams: streams.iter().map(described).collect(),
        map: None,
        position: Position::default(),
        warnings: Vec::new(),
    }
}

/// Backs the steps up into so many families in memory.
fn back_up(source: &Growing, families: u16) -> Vec<Shelf> {
    let transfer_size = TransferSize::new(TRANSFER.into()).unwrap();
    let knobs = Knobs { transfer_size, readers: Some(3), workers: Some(3), ..Knobs::default() };
    let plan = Plan::backup(&knobs, usize::from(families), Compression::Lz4, false).unwrap();
    let set = header(families);
    let shelves: Vec<Shelf> = (0..families).map(|_| Shelf::default()).collect();
    let sink = |shelf: &Shelf| Box::new(MemorySink::new("family", shelf, false)) as Box<dyn Sink>;
    let backup = Backup {
        plan: &plan,
        set: &set,
        compression: Compression::Lz4,
        data_key: None,
        map_seed: None,
        base: None,
        init: false,
        source,
        progress: &Progress::default(),
        halt: &Halt::new(),
        tick: &|| Ok(()),
        manifest: &|| Ok(manifest(&set, &source.found())),
    };
    backup.run(shelves.iter().map(sink).collect()).unwrap();
    shelves
}

fn unpack(shelves: &[Shelf], target: impl FnOnce(&MediaSet) -> Box<dyn Target>) -> Result<()> {
    let plan = UnpackPlan::new(&Knobs { workers: Some(3), ..Knobs::default() }, shelves.len(), TRANSFER)?;
    let input = Pool::new(plan.input_buffers, TRANSFER as usize)?;
    let open = |shelf: &Shelf| Family::open(Box::new(MemorySupply::new("family", shelf, &input)));
    let mut set = MediaSet::assemble(shelves.iter().map(open).collect::<Result<_>>()?, None, &[])?;
    let target = target(&set);
    let (progress, halt) = (Progress::default(), Halt::new());
    let tick = &|| Ok(());
    Unpack { plan: &plan, target: &*target, progress: &progress, halt: &halt, tick, input: &input }.run(&mut set)?;
    Ok(())
}

/// What the steps leave behind, one after another.
fn expected(steps: &[Step], size: u64, id: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for step in steps.iter().filter(|step| step.stream == id) {
        let end = step.offset as usize + step.length;
        bytes.resize(bytes.len().max(end), 0);
        bytes[step.offset as usize..end].fill(step.value);
    }
    bytes.resize(size as usize, 0);
    bytes
}

fn restores_to_what_was_sent(steps: &[Step], sizes: &[u64], families: u16) {
    let source = Growing::new(steps, sizes);
    let shelves = back_up(&source, families);
    unpack(&shelves, |_| Box::new(NullTarget)).unwrap();
    let root = tempfile::tempdir().unwrap();
    let streams = manifest(&header(1), &source.found()).streams;
    let target = DirectoryTarget::create(root.path(), &streams).unwrap();
    let target = std::sync::Arc::new(target);
    let shared = std::sync::Arc::clone(&target);
    unpack(&shelves, |_| Box::new(Shared(shared))).unwrap();
    target.finish().unwrap();
    for stream in source.found() {
        let restored = std::fs::read(root.path().join(&stream.name)).unwrap();
        assert!(restored == expected(steps, stream.size, stream.id), "{} differs", stream.name);
    }
}

struct Shared(Arc<DirectoryTarget>);

impl Target for Shared {
    fn discards(&self) -> bool {
        false
    }

    fn write(&self, stream: u16, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write(stream, offset, bytes)
    }

    fn zero(&self, stream: u16, offset: u64, length: u64) -> Result<()> {
        self.0.zero(stream, offset, length)
    }
}

#[test]
fn a_layer_writes_over_those_below_in_every_order_of_families() {
    let page = |layer, stream, number: u64, value| Step { layer, stream, offset: number * 16384, length: 16384, value };
    let mut steps: Vec<Step> = (0..60).map(|number| page(0, 1, number, 1)).collect();
    steps.extend((0..60).step_by(2).map(|number| page(1, 1, number, 2)));
    steps.extend((0..60).step_by(3).map(|number| page(2, 1, number, 0))); // A ZERO run over data.
    steps.push(page(2, 2, 5, 9)); // A file that appears in the last layer, with a hole before it.
    for families in [1, 2, 5] {
        restores_to_what_was_sent(&steps, &[60 * 16384, 7 * 16384], families);
    }
}

#[test]
fn what_lies_beyond_the_final_size_is_cut_off() {
    let step = Step { layer: 0, stream: 1, offset: 0, length: 40_000, value: 3 };
    restores_to_what_was_sent(&[step], &[10_000], 1);
}

#[test]
fn an_open_set_in_a_pipe_is_refused_with_what_to_do() {
    let step = Step { layer: 0, stream: 1, offset: 0, length: 4096, value: 3 };
    let shelves = back_up(&Growing::new(&[step], &[4096]), 1);
    let plan = UnpackPlan::new(&Knobs::default(), 1, TRANSFER).unwrap();
    let input = Pool::new(plan.input_buffers, TRANSFER as usize).unwrap();
    let mut set = MediaSet::piped(Box::new(MemorySupply::new("pipe", &shelves[0], &input)), None, &[]).unwrap();
    let (progress, halt) = (Progress::default(), Halt::new());
    let tick = &|| Ok(());
    let unpack = Unpack { plan: &plan, target: &NullTarget, progress: &progress, halt: &halt, tick, input: &input };
    let error = unpack.run(&mut set).unwrap_err().to_string();
    assert!(error.contains("pipe") && error.contains("into a file first"), "{error}");
}

#[test]
fn a_source_that_goes_back_to_a_lower_layer_is_refused() {
    let step = |layer| Step { layer, stream: 1, offset: 0, length: 4096, value: 3 };
    let source = Growing::new(&[step(1), step(0)], &[4096]);
    let (layers, halt) = (Layers::default(), Halt::new());
    let pool = Pool::new(4, TRANSFER as usize).unwrap();
    let (filled, _kept) = bounded(4);
    let reading =
        Reading { source: &source, share: (0, 1), pool: &pool, filled, throttle: None, layers: &layers, halt: &halt };
    layers.enter(1, &halt).unwrap();
    layers.leave();
    assert!(reading.run(&mut Clock::new()).unwrap_err().to_string().contains("layer 0 after layer 1"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_a_server_sends_comes_back(
        sent in prop::collection::vec((0_u16..3, 1_u16..5, 0_u64..12, any::<u8>()), 1..60),
        sizes in prop::collection::vec(0_u64..60_000, 4),
        families in 1_u16..4,
    ) {
        let mut steps: Vec<Step> = Vec::new();
        for (layer, stream, number, value) in sent {
            let offset = number * 4096;
            // Within a layer nothing comes twice.
            if steps.iter().all(|step| (step.layer, step.stream, step.offset) != (layer, stream, offset)) {
                steps.push(Step { layer, stream, offset, length: 4096, value });
            }
        }
        steps.sort_by_key(|step| step.layer);
        restores_to_what_was_sent(&steps, &sizes, families);
    }
}
