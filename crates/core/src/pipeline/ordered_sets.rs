//! Tests of ordered streams: they are restored in order, from any number of families, with the buffers that the plan
//! counts.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Backup, copies};
use crate::codec::Compression;
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::media::{Manifest, ManifestStream, SetHeader};
use crate::meter::Progress;
use crate::plan::{Knobs, Plan, TransferSize, UnpackPlan};
use crate::pool::Pool;
use crate::sink::Sink;
use crate::source::{Source, Stream};
use crate::testkit::{
    MemorySink, MemorySupply, OrderedSource, OrderedTarget, Shelf, TargetBehaviour, plain_header, plain_manifest,
    plain_stream,
};
use crate::unpack::{Family, MediaSet, NullTarget, Target, Unpack};

const TRANSFER: u32 = 64 << 10;

fn knobs(buffer_count: Option<usize>) -> Knobs {
    let transfer_size = TransferSize::new(TRANSFER.into()).unwrap();
    Knobs { transfer_size, buffer_count, readers: Some(3), workers: Some(3), ..Knobs::default() }
}

fn header(source: &OrderedSource, families: u16, window: u32) -> SetHeader {
    let plain = plain_header("ordered", families, TRANSFER);
    SetHeader { window, streams: source.records(), open: source.is_open(), ..plain }
}

fn manifest(set: &SetHeader, source: &OrderedSource) -> Manifest {
    let described = |stream: &Stream| ManifestStream { ordered: source.is_ordered(stream.id), ..plain_stream(stream) };
    plain_manifest(set, source.streams().iter().map(described).collect())
}

fn back_up(source: &OrderedSource, families: u16, window: u32, compression: Compression) -> Result<Vec<Shelf>> {
    let plan = Plan::backup(&knobs(None), usize::from(families), compression, false)?;
    let set = header(source, families, window);
    let shelves: Vec<Shelf> = (0..families).map(|_| Shelf::default()).collect();
    let sink = |shelf: &Shelf| Box::new(MemorySink::new("family", shelf, false)) as Box<dyn Sink>;
    let backup = Backup {
        plan: &plan,
        set: &set,
        compression,
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
    Ok(shelves)
}

/// Unpacks with the least buffers that a plan allows.
fn unpack(shelves: &[Shelf], window: u32, target: &dyn Target, halt: &Halt, until: Option<Instant>) -> Result<()> {
    let plan = |count| UnpackPlan::new(&knobs(count), shelves.len(), TRANSFER, window);
    let least = plan(None)?.least_buffers(shelves.len());
    let refused = plan(Some(least - 1)).unwrap_err().to_string();
    assert!(refused.contains(&format!("at least {least}")), "{refused}");
    let plan = plan(Some(least))?;
    let input = Pool::new(plan.input_buffers, TRANSFER as usize)?;
    let open = |shelf: &Shelf| Family::open(Box::new(MemorySupply::new("family", shelf, &input)));
    let mut set = MediaSet::assemble(shelves.iter().map(open).collect::<Result<_>>()?, None, &[])?;
    let tick = || match until {
        Some(until) if Instant::now() > until => Err(Error::Cancelled { by: "SIGTERM" }),
        _ => Ok(()),
    };
    let progress = Arc::new(Progress::default());
    let unpack = Unpack { plan: &plan, target, progress: &progress, halt, tick: &tick, input: &input };
    unpack.run(&mut set).map(drop)
}

fn restore(shelves: &[Shelf], source: &OrderedSource, window: u32, manner: TargetBehaviour) -> Result<()> {
    let halt = Halt::new();
    let target = OrderedTarget::new(manner, &halt);
    unpack(shelves, window, &target, &halt, None)?;
    target.finish(source)
}

#[test]
fn ordered_streams_come_back_in_order_with_the_least_buffers() {
    let zstd: Compression = "zstd:1".parse().unwrap();
    for open in [false, true] {
        let source = OrderedSource::new(&[900_000, 1, 400_000, 0, 70_000], open);
        for (families, compression) in [(1, Compression::Lz4), (2, Compression::None), (8, zstd)] {
            for window in [1, 3, 16] {
                let shelves = back_up(&source, families, window, compression).unwrap();
                unpack(&shelves, 0, &NullTarget, &Halt::new(), None).unwrap();
                restore(&shelves, &source, window, TargetBehaviour::Prompt).unwrap();
            }
        }
    }
}

#[test]
fn a_plan_without_buffers_for_the_window_is_refused_and_not_waited_for() {
    let source = OrderedSource::new(&[900_000], true);
    let shelves = back_up(&source, 2, 16, Compression::Lz4).unwrap();
    let halt = Halt::new();
    let target = OrderedTarget::new(TargetBehaviour::Prompt, &halt);
    let error = unpack(&shelves, 0, &target, &halt, None).unwrap_err().to_string();
    assert!(error.contains("no buffers for a window of 16 blocks"), "{error}");
}

#[test]
fn a_thousand_ordered_streams_need_the_buffers_of_one() {
    let source = OrderedSource::new(&[2_000; 1_000], true);
    let shelves = back_up(&source, 5, 16, Compression::Lz4).unwrap();
    restore(&shelves, &source, 16, TargetBehaviour::Prompt).unwrap();
}

#[test]
fn a_copy_in_other_families_and_another_codec_keeps_the_order() {
    let source = OrderedSource::new(&[800_000, 300_000], false);
    let shelves = back_up(&source, 3, 4, Compression::Lz4).unwrap();
    for copy in copies::each(&shelves) {
        restore(&copy, &source, 4, TargetBehaviour::Prompt).unwrap();
    }
}

#[test]
fn a_slow_target_holds_up_the_restore_and_loses_nothing() {
    let source = OrderedSource::new(&[500_000, 500_000], false);
    let shelves = back_up(&source, 4, 4, Compression::None).unwrap();
    restore(&shelves, &source, 4, TargetBehaviour::Slow(Duration::from_millis(10))).unwrap();
}

#[test]
fn a_target_that_fails_ends_the_restore_with_its_error() {
    let source = OrderedSource::new(&[500_000, 500_000], false);
    let shelves = back_up(&source, 4, 4, Compression::Lz4).unwrap();
    let error = restore(&shelves, &source, 4, TargetBehaviour::Fails).unwrap_err().to_string();
    assert!(error.contains("failed as planned"), "{error}");
}

#[test]
fn a_target_that_takes_nothing_more_ends_with_the_job() {
    let source = OrderedSource::new(&[900_000, 900_000], false);
    let shelves = back_up(&source, 4, 4, Compression::Lz4).unwrap();
    let halt = Halt::new();
    let target = OrderedTarget::new(TargetBehaviour::Stops, &halt);
    let until = Instant::now() + Duration::from_millis(300);
    let error = unpack(&shelves, 4, &target, &halt, Some(until)).unwrap_err();
    assert!(matches!(error, Error::Cancelled { by: "SIGTERM" }), "{error}");
}

#[test]
fn a_source_that_leaves_a_byte_out_is_no_success() {
    for (open, offset) in [(true, 0), (true, 123_456), (false, 123_456)] {
        let source = OrderedSource::new(&[200_000, 200_000], open).with_gap(3, offset);
        let error = back_up(&source, 2, 4, Compression::Lz4).unwrap_err().to_string();
        let (next, why) = (offset + 1, "this is a defect of the engine");
        assert!(error.contains(&format!("gave byte {next} of ordered stream 3 after byte {offset}")), "{error}");
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn an_ordered_stream_in_a_set_without_a_window_is_refused() {
    for open in [false, true] {
        let source = OrderedSource::new(&[200_000], open);
        let error = back_up(&source, 2, 0, Compression::Lz4).unwrap_err().to_string();
        assert!(error.contains("without a window"), "{error}");
    }
}

#[test]
fn a_source_that_stops_early_is_no_success() {
    let source = OrderedSource::new(&[200_000, 200_000], true).with_gap(3, 199_999);
    let error = back_up(&source, 2, 4, Compression::Lz4).unwrap_err().to_string();
    assert!(error.contains("gave 199999 of the 200000 bytes of ordered stream 3"), "{error}");
}
