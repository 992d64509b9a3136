//! Tests of copies: a copied set restores to the same as its original, and the copy of a damaged source never gets its
//! commit record.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use uuid::Uuid;

use super::open_sets::{Growing, Step, back_up};
use super::{Remake, Verbatim};
use crate::codec::Compression;
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::media::ManifestFamily;
use crate::meter::Progress;
use crate::plan::{Knobs, UnpackPlan};
use crate::pool::Pool;
use crate::sink::Sink;
use crate::testkit::{MemorySink, MemorySupply, Shelf};
use crate::unpack::{Family, MediaSet};

fn sinks(shelves: &[Shelf]) -> Vec<Box<dyn Sink>> {
    shelves.iter().map(|shelf| Box::new(MemorySink::new("copy", shelf, false)) as Box<dyn Sink>).collect()
}

fn opened(shelves: &[Shelf]) -> Result<(MediaSet, UnpackPlan, Arc<Pool>)> {
    let knobs = Knobs { workers: Some(3), ..Knobs::default() };
    // All headers are read before one of them tells the length of its blocks.
    let nothing = Pool::new(0, 4096)?;
    let first = Family::open(Box::new(MemorySupply::new("family 1", &shelves[0], &nothing)))?;
    let transfer_size = first.header().set.transfer_size;
    let mut plan = UnpackPlan::new(&knobs, shelves.len(), transfer_size, 0)?;
    plan.input_buffers += 4 * shelves.len();
    let input = Pool::new(plan.input_buffers, transfer_size as usize)?;
    let open = |shelf: &Shelf| Family::open(Box::new(MemorySupply::new("family", shelf, &input)));
    let families = shelves.iter().map(open).collect::<Result<Vec<_>>>()?;
    Ok((MediaSet::assemble(families, None, &[])?, plan, input))
}

fn empty(families: usize) -> Vec<Shelf> {
    (0..families).map(|_| Shelf::default()).collect()
}

type Permit<'a> = &'a (dyn Fn() -> Result<()> + Sync);

/// The same media, elsewhere.
fn as_it_is(shelves: &[Shelf], copies: &[Shelf], permit: Permit<'_>) -> Result<()> {
    let (mut set, plan, input) = opened(shelves)?;
    let copy = Verbatim {
        plan: &plan,
        input: &input,
        throttle: None,
        init: false,
        progress: &Arc::default(),
        halt: &Halt::new(),
        tick: &|| Ok(()),
        permit,
    };
    copy.run(&mut set, sinks(copies)).map(drop)
}

/// The same backup set on new media.
fn made_anew(shelves: &[Shelf], copies: &[Shelf], compression: Option<Compression>, permit: Permit<'_>) -> Result<()> {
    let families = copies.len() as u16;
    let (mut from, plan, input) = opened(shelves)?;
    let (mut set, mut manifest) = (from.header().clone(), from.manifest().unwrap().clone());
    (set.media_set_id, set.families) = (Uuid::now_v7(), families);
    if let Some(compression) = compression {
        set.codec = (compression.codec().number(), compression.level());
    }
    manifest.media_set_id = set.media_set_id;
    manifest.families = (1..=families).map(|family| ManifestFamily { family, device: "copy".into() }).collect();
    let copy = Remake {
        plan: &plan,
        input: &input,
        output_buffers: usize::from(families) + 2 * plan.workers,
        throttle: None,
        set: &set,
        manifest: &manifest,
        compression,
        data_key: None,
        init: false,
        progress: &Arc::new(Progress::default()),
        halt: &Halt::new(),
        tick: &|| Ok(()),
        permit,
    };
    copy.run(&mut from, sinks(copies)).map(drop)
}

/// Copies of a set in every way: as it is, in fewer and more families, packed differently.
pub(super) fn each(shelves: &[Shelf]) -> Vec<Vec<Shelf>> {
    let zstd: Compression = "zstd:1".parse().unwrap();
    let mut copies = vec![empty(shelves.len())];
    as_it_is(shelves, &copies[0], &|| Ok(())).unwrap();
    for (families, compression) in [(1, None), (4, Some(Compression::None)), (2, Some(zstd))] {
        copies.push(empty(families));
        made_anew(shelves, copies.last().unwrap(), compression, &|| Ok(())).unwrap();
    }
    let bytes = |shelf: &Shelf| shelf.lock().unwrap().clone();
    assert!(shelves.iter().map(bytes).eq(copies[0].iter().map(bytes)), "other bytes than those of the source");
    copies
}

/// A full with layers over each other, in two families.
fn small() -> Vec<Shelf> {
    let page = |layer, number: u64, value| Step { layer, stream: 1, offset: number * 4096, length: 4096, value };
    let below = (0..40).map(|number| page(0, number, number as u8));
    let steps: Vec<Step> = below.chain((0..40).step_by(3).map(|number| page(1, number, 200))).collect();
    back_up(&Growing::new(&steps, &[40 * 4096]), 2, None)
}

#[track_caller]
fn assert_nothing(copies: &[Shelf], what: &str) {
    assert!(copies.iter().all(|shelf| shelf.lock().unwrap().is_empty()), "{what}: a family of the copy is there");
}

#[test]
fn a_byte_that_is_wrong_anywhere_in_the_source_never_becomes_a_copy() {
    let shelves = small();
    for family in 0..shelves.len() {
        let whole = shelves[family].lock().unwrap().clone();
        for at in (0..whole.len()).step_by(61).chain(whole.len() - 70..whole.len()) {
            shelves[family].lock().unwrap()[at] ^= 16;
            let what = format!("byte {at} of family {}", family + 1);
            let copies = empty(2);
            assert!(as_it_is(&shelves, &copies, &|| Ok(())).is_err(), "{what}");
            assert_nothing(&copies, &what);
            let copies = empty(3);
            assert!(made_anew(&shelves, &copies, None, &|| Ok(())).is_err(), "{what}");
            assert_nothing(&copies, &what);
            shelves[family].lock().unwrap().clone_from(&whole);
        }
    }
    each(&shelves);
}

#[test]
fn a_copy_that_may_not_be_committed_leaves_nothing() {
    let shelves = small();
    let no = || Err(Error::refused("copy", "somebody else was faster", ""));
    let copies = empty(2);
    assert!(as_it_is(&shelves, &copies, &no).unwrap_err().to_string().contains("faster"));
    assert_nothing(&copies, "as it is");
    assert!(made_anew(&shelves, &copies, None, &no).unwrap_err().to_string().contains("faster"));
    assert_nothing(&copies, "made anew");
}
