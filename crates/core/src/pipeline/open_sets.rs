//! Tests of open sets: streams that appear during the backup, layers over each other, sizes that are known at the end,
//! page maps, and differentials.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::copies;
use super::*;
use crate::io::{Mode, OpenedFile};
use crate::media::{Changes, ManifestMap, ManifestStream, SetKind};
use crate::plan::{Knobs, TransferSize, UnpackPlan};
use crate::pool::Piece;
use crate::sink::Sink;
use crate::source::{Extent, Reader, Stream};
use crate::testkit::{MemorySink, MemorySupply, Shelf, plain_header, plain_manifest, plain_stream};
use crate::unpack::{BaseTarget, DirectoryTarget, Family, MediaSet, NullTarget, Target, Unpack};
use proptest::prelude::*;

const TRANSFER: u32 = 64 << 10;
const SEED: u64 = 0x5EED;

/// Values of bytes that are not alike: each second unit is zero, and bytes that no codec packs.
const HOLES: u8 = 4;
const NOISE: u8 = 5;

/// What a server sends next: so many bytes of this value, at this place.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub layer: u16,
    pub stream: u32,
    pub offset: u64,
    pub length: usize,
    pub value: u8,
}

/// The bytes of a step, which depend on their place alone.
fn fill(bytes: &mut [u8], offset: u64, value: u8) {
    for (byte, at) in bytes.iter_mut().zip(offset..) {
        *byte = match value {
            HOLES if at / 4096 % 2 == 1 => 0,
            NOISE => (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8,
            _ => value,
        };
    }
}

/// Plays steps to its readers, and lends some of their bytes. A stream is known from its first step on, and is gone at
/// the end if its size is `GONE`.
pub(super) struct Growing {
    state: Mutex<State>,
    sizes: Vec<u64>,
    /// Added to its numbers, so that two backups of the same streams number them differently.
    shift: u32,
    /// What its manifests say of the page map's seed.
    seed: u64,
    /// Buffers of bytes that are lent.
    lent: Arc<Pool>,
}

const GONE: u64 = u64::MAX;
/// The last of the streams has no identity.
const LOG: u32 = 4;

struct State {
    steps: VecDeque<Step>,
    found: Vec<Stream>,
    layer: u16,
    /// Extents whose reader was not asked for the next one yet.
    given: usize,
}

impl Growing {
    pub(super) fn new(steps: &[Step], sizes: &[u64]) -> Self {
        let state = State { steps: steps.to_vec().into(), found: Vec::new(), layer: 0, given: 0 };
        let lent = Pool::new(3, TRANSFER as usize).unwrap();
        Self { state: Mutex::new(state), sizes: sizes.to_vec(), shift: 0, seed: SEED, lent }
    }

    fn known(&self) -> Vec<Stream> {
        self.state.lock().unwrap().found.clone()
    }
}

impl Source for Growing {
    fn streams(&self) -> &[Stream] {
        &[]
    }

    fn is_open(&self) -> bool {
        true
    }

    fn stream(&self, id: u32) -> Option<Stream> {
        self.known().into_iter().find(|stream| stream.id == id)
    }

    fn identity(&self, id: u32) -> Option<String> {
        (id != LOG + self.shift).then(|| format!("space:{}", id - self.shift))
    }

    fn found(&self) -> Result<Vec<Stream>> {
        let nameless = |stream: Stream| match stream.size {
            GONE => Stream { name: String::new(), size: 0, ..stream },
            _ => stream,
        };
        Ok(self.known().into_iter().map(nameless).collect())
    }

    fn reader(&self, _: usize, _: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(Player { source: self, gave: false, lent: None }))
    }

    fn is_free(&self, _: u32, _: u64) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

struct Player<'a> {
    source: &'a Growing,
    gave: bool,
    lent: Option<Piece>,
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
        let id = step.stream + self.source.shift;
        if state.found.iter().all(|stream| stream.id != id) {
            let size = self.source.sizes[step.stream as usize - 1];
            let name = format!("d{}/f{}", step.stream % 3, step.stream);
            state.found.push(Stream { id, name, unit: 4096, size });
        }
        match self.source.lent.try_take().filter(|_| state.steps.len() % 2 == 1) {
            None => fill(&mut buffer[..step.length], step.offset, step.value),
            Some(mut lent) => {
                buffer.fill(0xEE);
                fill(&mut lent[100..100 + step.length], step.offset, step.value);
                self.lent = Some(Piece::new(lent, 100..100 + step.length));
            }
        }
        Ok(Some(Extent { stream: id, layer: step.layer, offset: step.offset, length: step.length as u32 }))
    }

    fn lent(&mut self) -> Option<Piece> {
        self.lent.take()
    }
}

fn header(families: u16, base: Option<&BaseMap>) -> SetHeader {
    SetHeader {
        kind: if base.is_some() { SetKind::Differential } else { SetKind::Full },
        base_backup_set_id: base.map(BaseMap::backup_set_id),
        open: true,
        ..plain_header("growing", families, TRANSFER)
    }
}

fn manifest(set: &SetHeader, source: &Growing, base: Option<&BaseMap>) -> Manifest {
    let full = set.kind == SetKind::Full;
    let described = |stream: &Stream| {
        let identity = source.identity(stream.id).filter(|_| !stream.name.is_empty());
        ManifestStream {
            map_window: if full && identity.is_some() { map_window(4096, TRANSFER) } else { 0 },
            base: base.zip(identity.as_ref()).and_then(|(base, identity)| base.stream_like(identity, 4096)),
            identity: identity.unwrap_or_default(),
            ..plain_stream(stream)
        }
    };
    let streams = source.found().unwrap().iter().map(described).collect();
    Manifest { map: full.then(|| ManifestMap::new(source.seed)), ..plain_manifest(set, streams) }
}

/// Backs the steps up into so many families in memory.
pub(super) fn back_up(source: &Growing, families: u16, base: Option<&BaseMap>) -> Vec<Shelf> {
    let transfer_size = TransferSize::new(TRANSFER.into()).unwrap();
    let knobs = Knobs { transfer_size, readers: Some(3), workers: Some(3), ..Knobs::default() };
    let plan = Plan::backup(&knobs, usize::from(families), Compression::Lz4, base.is_some()).unwrap();
    let set = header(families, base);
    let shelves: Vec<Shelf> = (0..families).map(|_| Shelf::default()).collect();
    let sink = |shelf: &Shelf| Box::new(MemorySink::new("family", shelf, false)) as Box<dyn Sink>;
    let backup = Backup {
        plan: &plan,
        set: &set,
        compression: Compression::Lz4,
        data_key: None,
        map_seed: Some(SEED),
        base,
        init: false,
        source,
        progress: &Progress::default(),
        halt: &Halt::new(),
        tick: &|| Ok(()),
        manifest: &|| Ok(manifest(&set, source, base)),
        permit: &|| Ok(()),
    };
    backup.run(shelves.iter().map(sink).collect()).unwrap();
    shelves
}

fn assemble(shelves: &[Shelf], input: &Arc<Pool>) -> MediaSet {
    let open = |shelf: &Shelf| Family::open(Box::new(MemorySupply::new("family", shelf, input)));
    MediaSet::assemble(shelves.iter().map(open).collect::<Result<_>>().unwrap(), None, &[]).unwrap()
}

fn unpack(shelves: &[Shelf], target: &dyn Target) -> Result<()> {
    let plan = UnpackPlan::new(&Knobs { workers: Some(3), ..Knobs::default() }, shelves.len(), TRANSFER, 0)?;
    let input = Pool::new(plan.input_buffers, TRANSFER as usize)?;
    let mut set = assemble(shelves, &input);
    let (progress, halt) = (Progress::default(), Halt::new());
    Unpack { plan: &plan, target, progress: &progress, halt: &halt, tick: &|| Ok(()), input: &input }.run(&mut set)?;
    Ok(())
}

fn streams_on(shelves: &[Shelf]) -> Vec<ManifestStream> {
    assemble(shelves, &Pool::new(0, 4096).unwrap()).manifest().unwrap().streams.clone()
}

/// The result of the steps, one after another.
fn expected(steps: &[Step], size: u64, id: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for step in steps.iter().filter(|step| step.stream == id) {
        let end = step.offset as usize + step.length;
        bytes.resize(bytes.len().max(end), 0);
        fill(&mut bytes[step.offset as usize..end], step.offset, step.value);
    }
    bytes.resize(size as usize, 0);
    bytes
}

/// The files that a full, or a full and its differential, restore to are the result of the steps. Also from copies of
/// them, and into spoiled files of another restore.
fn assert_restores(sets: &[&[Shelf]], steps: &[Step], sizes: &[u64]) {
    assert_restored(sets, steps, sizes);
    match sets {
        // A differential of the original on the copy of its full, and the other way round.
        [full, differential] => {
            for (at, (above, below)) in copies::each(differential).iter().zip(copies::each(full)).enumerate() {
                let crossed: [&[Shelf]; 2] = if at % 2 == 0 { [&below, differential] } else { [full, above] };
                assert_restored(&crossed, steps, sizes);
            }
        }
        _ => copies::each(sets[0]).iter().for_each(|copy| assert_restored(&[copy], steps, sizes)),
    }
}

fn assert_restored(sets: &[&[Shelf]], steps: &[Step], sizes: &[u64]) {
    sets.iter().for_each(|set| unpack(set, &NullTarget).unwrap());
    let root = tempfile::tempdir().unwrap();
    let streams = streams_on(sets.last().unwrap());
    let target = DirectoryTarget::create(root.path(), &streams).unwrap();
    if let [full, _] = sets {
        let below = BaseTarget::new(&target, &streams_on(full), &streams, Changes::Compared).unwrap();
        unpack(full, &below).unwrap();
        below.finish().unwrap();
    }
    unpack(sets.last().unwrap(), &target).unwrap();
    target.finish().unwrap();
    assert_files(root.path(), steps, sizes);
    // Only one way of many, because each restore syncs all its files.
    spoil(root.path(), sizes.len() as u64, steps.len() as u64 % 4);
    go_on(root.path(), sets, &streams);
    assert_files(root.path(), steps, sizes);
}

fn file_of(root: &Path, number: u64) -> PathBuf {
    root.join(format!("d{}/f{number}", number % 3))
}

fn assert_files(root: &Path, steps: &[Step], sizes: &[u64]) {
    for (number, &size) in (1..).zip(sizes) {
        let path = file_of(root, number.into());
        match steps.iter().any(|step| step.stream == number) && size != GONE {
            true => assert!(std::fs::read(path).unwrap() == expected(steps, size, number), "stream {number} differs"),
            false => assert!(!path.exists(), "stream {number} went, and is there"),
        }
    }
}

/// What a killed restore may have left of each file.
fn spoil(root: &Path, files: u64, round: u64) {
    for number in 1..=files {
        let path = file_of(root, number);
        let Ok(file) = std::fs::File::options().write(true).open(&path) else { continue };
        let size = file.metadata().unwrap().len();
        match (number + round) % 4 {
            0 => file.write_all_at(&[0xEE; 5000], size / 3).unwrap(),
            1 => (round * 70_000..size).step_by(200_000).for_each(|at| file.write_all_at(&[0xDD], at).unwrap()),
            2 => file.set_len(size / 2).unwrap(),
            _ => std::fs::remove_file(&path).unwrap(),
        }
    }
}

/// A restore into existing files, as `--resume` does it.
fn go_on(root: &Path, sets: &[&[Shelf]], streams: &[ManifestStream]) {
    let keeps = |stream: &ManifestStream| sets.len() == 1 || stream.base.is_some();
    let files = DirectoryTarget::adopt(root, streams, &keeps, &|_| false).unwrap();
    match sets {
        [full, differential] => {
            let below = BaseTarget::new(&files, &streams_on(full), streams, Changes::Compared).unwrap();
            prove_and_fetch(full, &below, &|stream| below.path(stream).map(Path::to_owned), &|| below.finish());
            unpack(differential, &files).unwrap();
            files.finish().unwrap();
        }
        _ => prove_and_fetch(sets[0], &files, &|stream| files.path(stream).map(Path::to_owned), &|| files.finish()),
    }
}

fn prove_and_fetch(
    full: &[Shelf],
    target: &dyn Target,
    path: &(dyn Fn(u32) -> Option<PathBuf> + Sync),
    finish: &dyn Fn() -> Result<()>,
) {
    let plan = UnpackPlan::new(&Knobs { workers: Some(3), ..Knobs::default() }, full.len(), TRANSFER, 0).unwrap();
    let input = Pool::new(plan.input_buffers, TRANSFER as usize).unwrap();
    let (progress, halt) = (Progress::default(), Halt::new());
    let unpack = Unpack { plan: &plan, target, progress: &progress, halt: &halt, tick: &|| Ok(()), input: &input };
    let mut map = BaseMap::open(assemble(full, &input)).unwrap();
    let open = |stream: u32| path(stream).map(|path| OpenedFile::read(&path, Mode::Buffered)).transpose();
    let before = unpack.compare(&map, &open, None).unwrap();
    let fetched = unpack.fetch(map.set_mut(), &before.differ).unwrap();
    finish().unwrap();
    assert_eq!(unpack.compare(&map, &open, Some(&before.differ)).unwrap().first, None);
    let stored: u64 = full.iter().map(|shelf| shelf.lock().unwrap().len() as u64).sum();
    assert!(fetched.bytes < stored && fetched.outcome.stored_bytes == stored);
}

fn restores_to_what_was_sent(steps: &[Step], sizes: &[u64], families: u16) {
    let source = Growing::new(steps, sizes);
    assert_restores(&[&back_up(&source, families, None)], steps, sizes);
}

/// A full of `before`, a differential of `now`: it restores to what a full of now would. Returns the bytes in the
/// differential.
fn differs_to(before: (&[Step], &[u64]), now: (&[Step], &[u64]), families: u16) -> u64 {
    let full = back_up(&Growing::new(before.0, before.1), families, None);
    let base = BaseMap::open(assemble(&full, &Pool::new(0, 4096).unwrap())).unwrap();
    let source = Growing { shift: 70_000, ..Growing::new(now.0, now.1) };
    let differential = back_up(&source, families, Some(&base));
    assert_restores(&[&full, &differential], now.0, now.1);
    differential.iter().map(|shelf| shelf.lock().unwrap().len() as u64).sum()
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
fn bytes_that_a_reader_lends_are_stored_whether_they_are_packed_or_not() {
    let step = |number: u64, value| Step { layer: 0, stream: 1, offset: number * 49_152, length: 49_152, value };
    for value in [1, HOLES, NOISE] {
        let steps: Vec<Step> = (0..20).map(|number| step(number, value)).collect();
        restores_to_what_was_sent(&steps, &[20 * 49_152], 2);
        let now: Vec<Step> = (0..20).map(|number| step(number, if number == 7 { NOISE } else { value })).collect();
        differs_to((&steps, &[20 * 49_152]), (&now, &[20 * 49_152]), 2);
    }
}

#[test]
fn bytes_beyond_the_final_size_are_cut_off() {
    let step = Step { layer: 0, stream: 1, offset: 0, length: 40_000, value: 3 };
    restores_to_what_was_sent(&[step], &[10_000], 1);
}

#[test]
fn an_open_set_in_a_pipe_is_refused_with_what_to_do() {
    let step = Step { layer: 0, stream: 1, offset: 0, length: 4096, value: 3 };
    let shelves = back_up(&Growing::new(&[step], &[4096]), 1, None);
    let plan = UnpackPlan::new(&Knobs::default(), 1, TRANSFER, 0).unwrap();
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
    let (layers, ordered, halt) = (Layers::default(), Ordered::new(0), Halt::new());
    let pool = Pool::new(4, TRANSFER as usize).unwrap();
    let (filled, _kept) = bounded(4);
    let reading = Reading {
        source: &source,
        share: (0, 1),
        pool: &pool,
        filled,
        throttle: None,
        layers: &layers,
        ordered: &ordered,
        halt: &halt,
    };
    layers.enter(1, &halt).unwrap();
    layers.leave();
    assert!(reading.run(&mut Clock::new()).unwrap_err().to_string().contains("layer 0 after layer 1"));
}

fn pages(layer: u16, stream: u32, count: u64, value: impl Fn(u64) -> u8) -> Vec<Step> {
    let page = |number| Step { layer, stream, offset: number * 4096, length: 4096, value: value(number) };
    (0..count).map(page).collect()
}

#[test]
fn a_differential_of_an_open_set_holds_little_when_little_changed() {
    let before = pages(0, 1, 4000, |number| number as u8);
    let size = [4000 * 4096];
    let untouched = differs_to((&before, &size), (&before, &size), 2);
    assert!(untouched < 64 << 10, "{untouched}");
    let mut now = before.clone();
    now[77].value ^= 1;
    now.extend(pages(1, 1, 3, |number| number as u8)); // Sent again by a higher layer: stored, though it is as it was.
    let changed = differs_to((&before, &size), (&now, &size), 2);
    assert!(changed < 64 << 10, "{changed}");
}

#[test]
fn a_higher_layer_is_stored_also_where_it_equals_the_full() {
    // Layer 0 gets a torn page, which layer 1 replaces by what was in the full all along.
    let before = pages(0, 1, 9, |_| 5);
    let now: Vec<Step> = pages(0, 1, 9, |_| 6).into_iter().chain(pages(1, 1, 9, |_| 5)).collect();
    differs_to((&before, &[9 * 4096]), (&now, &[9 * 4096]), 3);
}

#[test]
fn files_that_came_went_shrank_and_grew_since_the_full_come_back_as_they_are() {
    let before: Vec<Step> = (1..=3).flat_map(|stream| pages(0, stream, 20, |_| 3)).collect();
    let sizes = [20 * 4096, 10 * 4096, 20 * 4096]; // The second was longer when it was read.
    let now: Vec<Step> =
        [pages(0, 1, 5, |_| 3), pages(0, 2, 20, |at| if at < 10 { 3 } else { 0 }), pages(0, 4, 3, |_| 1)].concat();
    differs_to((&before, &sizes), (&now, &[9 * 4096 + 100, 20 * 4096, GONE, 3 * 4096]), 2);
    differs_to((&before, &sizes), (&now, &[GONE, 20 * 4096, GONE, 3 * 4096]), 2);
}

#[test]
fn a_map_that_lies_is_found_by_a_verification_and_does_not_matter_to_a_restore() {
    let steps = pages(0, 1, 40, |_| 3);
    let source = Growing { seed: SEED + 1, ..Growing::new(&steps, &[40 * 4096]) };
    let shelves = back_up(&source, 1, None);
    let error = unpack(&shelves, &NullTarget).unwrap_err().to_string();
    assert!(error.contains("page map does not fit"), "{error}");
    let root = tempfile::tempdir().unwrap();
    unpack(&shelves, &DirectoryTarget::create(root.path(), &streams_on(&shelves)).unwrap()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_a_server_sends_comes_back(
        sent in sent(),
        sizes in sizes(),
        families in 1_u16..4,
    ) {
        restores_to_what_was_sent(&once(sent), &sizes, families);
    }

    #[test]
    fn whatever_changed_since_a_full_a_differential_brings_it_back(
        before in sent(),
        now in sent(),
        kept in any::<bool>(),
        sizes in (sizes(), sizes()),
        families in 1_u16..4,
    ) {
        // Mostly as it was, so that there is something to leave out.
        let now = if kept { before.iter().cloned().chain(now.into_iter().take(9)).collect() } else { now };
        let now: Vec<Step> = now.into_iter().map(whole_units).collect();
        differs_to((&once(before), &sizes.0), (&once(now), &sizes.1), families);
    }
}

/// What a server may send: layer, stream, offset, length, value.
fn sent() -> impl Strategy<Value = Vec<Step>> {
    let step = (0_u16..3, 1_u32..5, 0_u64..24, 1_usize..5, 0_u8..6);
    let step = step.prop_map(|(layer, stream, at, length, value)| {
        // Halves of units too.
        Step { layer, stream, offset: at * 2048, length: length * 2048, value }
    });
    prop::collection::vec(step, 1..50)
}

fn sizes() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(
        prop_oneof![4 => (0_u64..15).prop_map(|pages| pages * 4096), 2 => 0_u64..60_000, 1 => Just(GONE)],
        4,
    )
}

/// In the order of layers, and within a layer nothing twice.
fn once(sent: Vec<Step>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let end = |step: &Step| step.offset + step.length as u64;
    for step in sent {
        let apart = |other: &Step| {
            (other.layer, other.stream) != (step.layer, step.stream)
                || end(other) <= step.offset
                || end(&step) <= other.offset
        };
        if steps.iter().all(apart) {
            steps.push(step);
        }
    }
    steps.sort_by_key(|step| step.layer);
    steps
}

/// A stream with an identity is sent in whole units.
fn whole_units(step: Step) -> Step {
    match step.stream {
        LOG => step,
        _ => Step { offset: step.offset / 4096 * 4096, length: step.length.next_multiple_of(4096), ..step },
    }
}
