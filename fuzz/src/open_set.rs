//! A small open set and a differential of it: layers, a file that went, an ordered stream, streams with and without an identity.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use fullbore_core::Result;
use fullbore_core::cipher::CipherId;
use fullbore_core::codec::Compression;
use fullbore_core::halt::Halt;
use fullbore_core::media::{FORMAT_VERSION, Manifest, ManifestMap, ManifestStream, SetHeader, SetKind};
use fullbore_core::meter::Progress;
use fullbore_core::pipeline::{Backup, map_window};
use fullbore_core::plan::{Knobs, Plan, TransferSize};
use fullbore_core::pool::Pool;
use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::testkit::{MemorySink, MemorySupply, Shelf, plain_manifest, plain_stream};
use fullbore_core::unpack::{BaseMap, Family, MediaSet};
use uuid::Uuid;

const TRANSFER: u32 = 64 << 10;
const UNIT: u32 = 4096;
const SEED: u64 = 5;
/// The file that goes, the one that is known by nothing, and the ordered one.
const GONE: u32 = 3;
const LOG: u32 = 4;
const DUMP: u32 = 5;
const DUMP_UNITS: u64 = 10;

/// Plays what a server might send: layer, stream, unit and value of each piece.
struct Played(Mutex<VecDeque<(u16, u32, u64, u8)>>);

impl Played {
    fn new(changed: bool) -> Self {
        let mut steps = VecDeque::new();
        for stream in 1..=4 {
            // Every third unit of zeros, and the value tells one unit from the next.
            steps.extend((0..20).map(|unit| (0, stream, unit, if unit % 3 == 0 { 0 } else { unit as u8 * 2 })));
        }
        steps.extend((0..DUMP_UNITS).map(|unit| (0, DUMP, unit, unit as u8)));
        steps.push_back((1, 1, 4, u8::from(changed)));
        steps.push_back((2, LOG, 20, 7));
        Self(Mutex::new(steps))
    }
}

impl Source for Played {
    fn streams(&self) -> &[Stream] {
        &[]
    }

    fn is_open(&self) -> bool {
        true
    }

    fn stream(&self, id: u32) -> Option<Stream> {
        let size = if self.is_ordered(id) { DUMP_UNITS * u64::from(UNIT) } else { 80_000 };
        Some(Stream { id, name: format!("d/{id}"), unit: UNIT, size })
    }

    fn is_ordered(&self, id: u32) -> bool {
        id == DUMP
    }

    fn has_ordered(&self) -> bool {
        true
    }

    fn identity(&self, id: u32) -> Option<String> {
        (id < LOG).then(|| format!("file {id}"))
    }

    fn found(&self) -> Result<Vec<Stream>> {
        Ok([1, 2, GONE, LOG, DUMP].into_iter().filter(|&id| id != GONE).filter_map(|id| self.stream(id)).collect())
    }

    fn reader(&self, _: usize, _: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(self))
    }

    fn is_free(&self, _: u32, _: u64) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl Reader for &Played {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let Some((layer, stream, unit, value)) = self.0.lock().expect("no panic holds it").pop_front() else {
            return Ok(None);
        };
        buffer[..UNIT as usize].fill(value);
        Ok(Some(Extent { stream, layer, offset: unit * u64::from(UNIT), length: UNIT }))
    }
}

/// The only family of an open full, and that of a differential of it.
pub fn samples() -> [Vec<u8>; 2] {
    let full = write(&Played::new(false), None);
    let shelf: Shelf = Arc::new(Mutex::new(full.clone()));
    let nothing = Pool::new(0, 4096).expect("no memory at all");
    let family = Family::open(Box::new(MemorySupply::new("full", &shelf, &nothing))).expect("a valid family");
    let set = MediaSet::assemble(vec![family], None, &[]).expect("a whole set");
    let base = BaseMap::open(set).expect("a page map");
    let differential = write(&Played::new(true), Some(&base));
    [full, differential]
}

fn write(source: &Played, base: Option<&BaseMap>) -> Vec<u8> {
    let compression: Compression = "lz4".parse().expect("a codec");
    let transfer_size = TransferSize::new(TRANSFER.into()).expect("a size");
    let knobs = Knobs { transfer_size, readers: Some(1), workers: Some(1), ..Knobs::default() };
    let plan = Plan::backup(&knobs, 1, compression, base.is_some()).expect("a plan");
    let set = SetHeader {
        format_version: FORMAT_VERSION,
        media_set_id: Uuid::from_u128(1),
        backup_set_id: Uuid::from_u128(if base.is_some() { 3 } else { 2 }),
        families: 1,
        cipher: CipherId::None,
        kind: if base.is_some() { SetKind::Differential } else { SetKind::Full },
        block_size: 512,
        transfer_size: TRANSFER,
        window: 4,
        codec: (1, 0),
        started_at: 0,
        engine: "played".into(),
        tool_version: "0".into(),
        base_backup_set_id: base.map(BaseMap::backup_set_id),
        keys: Vec::new(),
        streams: Vec::new(),
        open: true,
        label: None,
    };
    let shelf = Shelf::default();
    let backup = Backup {
        plan: &plan,
        set: &set,
        compression,
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
    backup.run(vec![Box::new(MemorySink::new("family", &shelf, false))]).expect("nothing goes wrong");
    let bytes = shelf.lock().expect("no panic holds it");
    bytes.clone()
}

fn manifest(set: &SetHeader, source: &Played, base: Option<&BaseMap>) -> Manifest {
    let described = |stream: Stream| {
        let identity = source.identity(stream.id).unwrap_or_default();
        ManifestStream {
            map_window: if base.is_some() || identity.is_empty() { 0 } else { map_window(UNIT, TRANSFER) },
            ordered: source.is_ordered(stream.id),
            base: base.and_then(|base| base.stream_like(&identity, UNIT)),
            identity,
            ..plain_stream(&stream)
        }
    };
    let streams = source.found().expect("they are known").into_iter().map(described).collect();
    // The bytes of the samples stay: the committed inputs are edits of them.
    let engine_version = String::new();
    Manifest { engine_version, map: base.is_none().then(|| ManifestMap::new(SEED)), ..plain_manifest(set, streams) }
}
