//! Tests of differentials whose changes the database reports: no page map is made, read or needed.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use uuid::Uuid;

use super::Backup;
use crate::codec::Compression;
use crate::error::Result;
use crate::halt::Halt;
use crate::media::{Changes, Manifest, ManifestStream, SetHeader, SetKind};
use crate::meter::Progress;
use crate::plan::{Knobs, Plan, TransferSize, UnpackPlan};
use crate::pool::Pool;
use crate::sink::Sink;
use crate::source::{Extent, Reader, Source, Stream};
use crate::testkit::{MemorySink, MemorySupply, Shelf, plain_header, plain_manifest, plain_stream};
use crate::unpack::{BaseTarget, DirectoryTarget, Family, FileTarget, MediaSet, NullTarget, Target, Unpack};

const TRANSFER: u32 = 64 << 10;
const UNIT: u64 = 4096;
const UNITS: u64 = 100;

/// A database of one file that knows which of its units were written since the full.
struct Tracking {
    stream: [Stream; 1],
    value: u8,
    /// Units that are given. Of a full, all.
    units: Vec<u64>,
    reported: Option<u64>,
    open: bool,
}

impl Tracking {
    fn full(open: bool) -> Self {
        let stream = Stream { id: 1, name: "data".into(), unit: UNIT as u32, size: UNITS * UNIT };
        Self { stream: [stream], value: 1, units: (0..UNITS).collect(), reported: None, open }
    }

    /// Every third unit was written, and the file has grown by five.
    fn differential(open: bool) -> Self {
        let mut later = Self::full(open);
        later.stream[0].size += 5 * UNIT;
        (later.value, later.units) = (2, (0..UNITS + 5).filter(|unit| unit % 3 == 0 || *unit >= UNITS).collect());
        later.reported = Some(later.units.len() as u64 * UNIT);
        later
    }

    /// What a restore of both gives.
    fn expected(&self) -> Vec<u8> {
        let value = |unit| if self.units.contains(&unit) { self.value } else { 1 };
        (0..self.stream[0].size / UNIT).flat_map(|unit| vec![value(unit); UNIT as usize]).collect()
    }
}

impl Source for Tracking {
    fn streams(&self) -> &[Stream] {
        &self.stream
    }

    fn is_open(&self) -> bool {
        self.open
    }

    fn reported_bytes(&self) -> Option<u64> {
        self.reported
    }

    fn reader(&self, index: usize, count: usize) -> Result<Box<dyn Reader + '_>> {
        let mine = self.units.iter().copied().filter(move |unit| *unit as usize % count == index);
        Ok(Box::new(Units { source: self, left: mine.collect() }))
    }

    fn is_free(&self, _: u32, _: u64) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

struct Units<'a> {
    source: &'a Tracking,
    left: Vec<u64>,
}

impl Reader for Units<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let Some(unit) = self.left.pop() else { return Ok(None) };
        buffer[..UNIT as usize].fill(self.source.value);
        Ok(Some(Extent { stream: 1, layer: 0, offset: unit * UNIT, length: UNIT as u32 }))
    }
}

fn header(source: &Tracking, base: Option<Uuid>) -> SetHeader {
    let streams = source.stream.iter().map(|stream| plain_stream(stream).record());
    SetHeader {
        kind: if base.is_some() { SetKind::Differential } else { SetKind::Full },
        codec: (0, 0),
        base_backup_set_id: base,
        streams: if source.open { Vec::new() } else { streams.collect() },
        open: source.open,
        ..plain_header("tracking", 2, TRANSFER)
    }
}

fn manifest(set: &SetHeader, source: &Tracking) -> Manifest {
    let based = source.open && source.reported.is_some();
    let described = |stream: &Stream| ManifestStream { base: based.then_some(stream.id), ..plain_stream(stream) };
    let changes = if source.reported.is_some() { Changes::Reported } else { Changes::Compared };
    Manifest { changes, ..plain_manifest(set, source.stream.iter().map(described).collect()) }
}

fn back_up(source: &Tracking, base: Option<Uuid>) -> Result<(Uuid, Vec<Shelf>)> {
    let transfer_size = TransferSize::new(TRANSFER.into())?;
    let knobs = Knobs { transfer_size, readers: Some(3), workers: Some(2), ..Knobs::default() };
    let plan = Plan::backup(&knobs, 2, Compression::None, false)?;
    let set = header(source, base);
    let shelves = vec![Shelf::default(), Shelf::default()];
    let sink = |shelf: &Shelf| Box::new(MemorySink::new("family", shelf, false)) as Box<dyn Sink>;
    let backup = Backup {
        plan: &plan,
        set: &set,
        compression: Compression::None,
        data_key: None,
        map_seed: None,
        base: None,
        init: false,
        source,
        progress: &Progress::default(),
        halt: &Halt::new(),
        tick: &|| Ok(()),
        manifest: &|| Ok(manifest(&set, source)),
        permit: &|| Ok(()),
    };
    backup.run(shelves.iter().map(sink).collect())?;
    Ok((set.backup_set_id, shelves))
}

fn unpack(shelves: &[Shelf], target: &dyn Target) -> Manifest {
    let plan = UnpackPlan::new(&Knobs::default(), shelves.len(), TRANSFER, 0).unwrap();
    let input = Pool::new(plan.input_buffers, TRANSFER as usize).unwrap();
    let open = |shelf: &Shelf| Family::open(Box::new(MemorySupply::new("family", shelf, &input)));
    let families = shelves.iter().map(open).collect::<Result<_>>().unwrap();
    let mut set = MediaSet::assemble(families, None, &[]).unwrap();
    let (progress, halt) = (Arc::new(Progress::default()), Halt::new());
    let unpack = Unpack { plan: &plan, target, progress: &progress, halt: &halt, tick: &|| Ok(()), input: &input };
    unpack.run(&mut set).unwrap().manifest
}

#[test]
fn reported_changes_over_a_full_without_a_page_map_restore_the_database() {
    let (id, full) = back_up(&Tracking::full(false), None).unwrap();
    let later = Tracking::differential(false);
    let (_, differential) = back_up(&later, Some(id)).unwrap();
    let bytes = |shelves: &[Shelf]| shelves.iter().map(|shelf| shelf.lock().unwrap().len()).sum::<usize>();
    assert!(bytes(&differential) * 2 < bytes(&full), "only what changed is stored");
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("data");
    std::fs::File::create(&path).unwrap();
    for (set, size, fresh) in [(&full, UNITS * UNIT, true), (&differential, later.stream[0].size, false)] {
        let manifest = unpack(set, &NullTarget);
        assert_eq!((manifest.changes == Changes::Reported, manifest.map), (!fresh, None));
        let mut target = FileTarget::new();
        target.add(1, &path, size, fresh).unwrap();
        unpack(set, &target);
        target.sync().unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == later.expected());
}

#[test]
fn reported_changes_of_an_open_set_restore_its_files() {
    let (id, full) = back_up(&Tracking::full(true), None).unwrap();
    let later = Tracking::differential(true);
    let (_, differential) = back_up(&later, Some(id)).unwrap();
    let (below, above) = (unpack(&full, &NullTarget), unpack(&differential, &NullTarget));
    let root = tempfile::tempdir().unwrap();
    let files = DirectoryTarget::create(root.path(), &above.streams).unwrap();
    let refused = BaseTarget::new(&files, &below.streams, &above.streams, Changes::Compared);
    assert!(refused.is_err(), "a full without a page map is no base of a compared differential");
    let base = BaseTarget::new(&files, &below.streams, &above.streams, above.changes).unwrap();
    unpack(&full, &base);
    base.finish().unwrap();
    unpack(&differential, &files);
    files.finish().unwrap();
    assert!(std::fs::read(root.path().join("data")).unwrap() == later.expected());
}

#[test]
fn a_source_that_gives_fewer_or_more_bytes_than_it_reports_is_no_success() {
    for (open, bytes) in [(false, -1), (false, 1), (true, -1), (true, 1)] {
        let mut later = Tracking::differential(open);
        later.reported = later.reported.map(|reported| reported.saturating_add_signed(bytes * UNIT as i64));
        let error = back_up(&later, Some(Uuid::now_v7())).unwrap_err().to_string();
        assert!(error.contains("did not give each byte"), "{error}");
    }
}

#[test]
fn reported_changes_in_a_full_are_refused() {
    let error = back_up(&Tracking::differential(false), None).unwrap_err().to_string();
    assert!(error.contains("not a differential by reported changes"), "{error}");
}
