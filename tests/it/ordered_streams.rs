//! Sets with an ordered stream, made from others: they restore, and each rule of docs/MEDIA_FORMAT.md §3 that is broken is refused by name.

use fullbore_core::cipher::{DataKey, KeyFile, unwrap};
use fullbore_core::media::{BlockKind, FamilyHeader, Run, RunKind};

use crate::database::Shape;
use crate::forge::{ForgedBlock, ForgedFamily, forge, manifest_of, set_manifest};
use crate::golden;
use crate::world::World;

const FAMILIES: [&str; 3] = ["a/app.bore", "b/app.bore", "c/app.bore"];
const FROM: &str = "--from a/app.bore --from b/app.bore --from c/app.bore";

/// A set of three families whose stream is ordered.
struct OrderedSet {
    world: World,
    originals: Vec<Vec<u8>>,
    key: Option<DataKey>,
    options: &'static str,
}

impl OrderedSet {
    fn new(encrypted: bool) -> Self {
        let world = World::with_shape(Shape { rows: 2400, ..Shape::default() });
        ["c", "d", "e"].iter().for_each(|folder| std::fs::create_dir_all(world.at(folder)).unwrap());
        let to = "--to a/app.bore --to b/app.bore --to c/app.bore --max-transfer-size 64KiB --compression none";
        let options = if encrypted {
            world.run("key new app.key --no-recovery").done();
            "--encrypt-to app.key.pub"
        } else {
            ""
        };
        world.run(&format!("backup sqlite:app.db {to} --workers 2 {options}")).done();
        let originals = FAMILIES.map(|name| world.read(name)).to_vec();
        let key = encrypted.then(|| data_key(&world));
        Self { world, originals, key, options: if encrypted { "--key app.key" } else { "" } }
    }

    /// The set with its stream ordered, as `edit` changes it.
    fn forge(&self, edit: impl FnOnce(&mut [ForgedFamily])) {
        for (name, bytes) in FAMILIES.iter().zip(&self.originals) {
            self.world.write(name, bytes);
        }
        forge(&self.world, &FAMILIES, self.key.as_ref(), |families| {
            put_in_order(families);
            edit(families);
        });
    }

    /// What verify and restore say of it.
    #[track_caller]
    fn is_refused(&self, cause: &str, edit: impl FnOnce(&mut [ForgedFamily])) {
        self.forge(edit);
        for line in [format!("verify {FROM}"), format!("restore {FROM} --into sqlite:copy.db")] {
            let ended = self.world.run(&format!("{line} {}", self.options)).with_code(3);
            assert!(ended.err.contains(cause), "{cause}: {ended}");
        }
        self.world.assert_no_copy();
    }
}

fn data_key(world: &World) -> DataKey {
    let bytes = world.read(FAMILIES[0]);
    let header = FamilyHeader::decode(&bytes[..FamilyHeader::length(&bytes).unwrap()]).unwrap().set;
    let file = KeyFile::read(&world.at("app.key")).unwrap();
    unwrap(&header.keys, file.secret().unwrap(), header.media_set_id.as_bytes()).unwrap()
}

/// Makes the only stream of a full an ordered one: no page map, one DATA run in each block, and a number for each.
fn put_in_order(families: &mut [ForgedFamily]) {
    let mut manifest = manifest_of(families);
    manifest["map"] = serde_json::Value::Null;
    let stream = &mut manifest["streams"][0];
    (stream["map_window"], stream["ordered"]) = (0.into(), true.into());
    for family in families.iter_mut() {
        family.header.set.window = 64;
        let stream = &mut family.header.set.streams[0];
        (stream.map_window, stream.ordered) = (0, true);
        family.blocks.retain(|block| block.header.kind != BlockKind::Map);
        family.of(BlockKind::Data).for_each(fill_zeros);
    }
    set_manifest(families, &manifest.to_string());
    in_order(families).into_iter().zip(1..).for_each(|(block, number)| block.header.order = number);
}

/// Puts zeros where a block has ZERO runs: an extent is one range.
fn fill_zeros(block: &mut ForgedBlock) {
    let (mut plain, mut at) = (Vec::new(), 0);
    for run in &block.runs {
        let length = run.length as usize;
        match run.kind {
            RunKind::Data => {
                plain.extend_from_slice(&block.plain[at..at + length]);
                at += length;
            }
            _ => plain.resize(plain.len() + length, 0),
        }
    }
    block.runs = vec![Run { offset: block.runs[0].offset, length: plain.len() as u32, kind: RunKind::Data }];
    block.plain = plain;
}

/// The DATA blocks of all families, in the order of the stream.
fn in_order(families: &mut [ForgedFamily]) -> Vec<&mut ForgedBlock> {
    let mut blocks: Vec<_> = families.iter_mut().flat_map(|family| family.of(BlockKind::Data)).collect();
    blocks.sort_by_key(|block| block.runs[0].offset);
    assert!(blocks.len() > 10, "too few blocks: {}", blocks.len());
    blocks
}

#[test]
fn a_set_with_an_ordered_stream_is_verified_and_restored() {
    for encrypted in [false, true] {
        let set = OrderedSet::new(encrypted);
        set.forge(|_| {});
        set.world.run(&format!("verify {FROM} {}", set.options)).done();
        set.world.run(&format!("restore {FROM} --into sqlite:copy.db {}", set.options)).done();
        set.world.assert_copy();
    }
}

#[test]
fn a_copy_of_a_set_with_an_ordered_stream_is_verified_and_restored() {
    let set = OrderedSet::new(false);
    set.forge(|_| {});
    set.world.run(&format!("copy {FROM} --to d/x.bore --to e/y.bore --compression zstd:1")).done();
    set.world.run("verify --from d/x.bore --from e/y.bore").done();
    set.world.run("restore --from d/x.bore --from e/y.bore --into sqlite:copy.db").done();
    set.world.assert_copy();
}

#[test]
fn numbers_that_are_missing_or_there_twice_are_refused() {
    let set = OrderedSet::new(false);
    // Which of the two comes first decides what is said.
    set.is_refused("ordered stream", |families| in_order(families)[4].header.order = 4);
    set.is_refused("block 5 of the ordered streams is missing", |families| {
        in_order(families).into_iter().skip(4).for_each(|block| block.header.order += 1);
    });
    set.is_refused("block 1 of the ordered streams is missing", |families| {
        in_order(families).into_iter().for_each(|block| block.header.order += 1);
    });
}

#[test]
fn a_stream_with_a_gap_or_a_wrong_end_is_refused() {
    let set = OrderedSet::new(false);
    set.is_refused("a block of an ordered stream begins at", |families| {
        let mut blocks = in_order(families);
        (blocks[3].header.order, blocks[4].header.order) = (5, 4);
    });
    set.is_refused("but its blocks end at", |families| {
        let last = in_order(families).len() as u32;
        for family in families.iter_mut() {
            family.blocks.retain(|block| block.header.order != last);
        }
        for (block, number) in families.iter_mut().flat_map(|family| &mut family.blocks).zip(0..) {
            block.header.sequence = number;
        }
    });
}

#[test]
fn a_block_too_far_behind_others_is_refused_and_not_waited_for() {
    let set = OrderedSet::new(true);
    set.is_refused("or too far behind the others", |families| {
        let last = families[0].of(BlockKind::Data).count() - 1;
        families[0].blocks.swap(0, last);
        families.iter_mut().for_each(|family| family.header.set.window = 2);
    });
}

#[test]
fn a_place_in_an_order_without_an_ordered_stream_is_refused() {
    let set = OrderedSet::new(false);
    let cause = "a block of an ordered stream has no order number, or another block has one";
    set.is_refused(cause, |families| in_order(families)[7].header.order = 0);
    set.is_refused("an ordered stream in a set without a window", |families| {
        families.iter_mut().for_each(|family| family.header.set.window = 0);
    });
    set.is_refused("window of ordered streams out of bounds", |families| {
        families.iter_mut().for_each(|family| family.header.set.window = 4097);
    });
    set.is_refused("the manifest has other streams than the header", |families| {
        families.iter_mut().for_each(|family| family.header.set.streams[0].ordered = false);
    });
    set.is_refused("a block without data has an order number", |families| {
        families[0].of(BlockKind::Manifest).for_each(|block| block.header.order = 1);
    });
}

#[test]
fn a_block_of_an_ordered_stream_has_one_range_of_bytes() {
    let set = OrderedSet::new(false);
    set.is_refused("cannot have so many runs", |families| {
        let block = in_order(families).into_iter().nth(5).unwrap();
        let Run { offset, length, kind } = block.runs[0];
        let second = Run { offset: offset + 4096, length: length - 4096, kind };
        block.runs = vec![Run { offset, length: 4096, kind }, second];
    });
    set.is_refused("is not one range of bytes", |families| {
        let block = in_order(families).into_iter().nth(5).unwrap();
        block.runs[0].kind = RunKind::Zero;
        block.plain.clear();
    });
}

const OPEN: [&str; 2] = ["open/full-1of2.bore", "open/full-2of2.bore"];

/// An open set with ordered streams and layers, by the independent writer; false without Python.
fn open_set(world: &World) -> bool {
    golden::sample(world, "open", "--open --ordered")
}

/// Numbers all blocks anew.
fn renumber(families: &mut [ForgedFamily]) {
    for (block, number) in families.iter_mut().flat_map(|family| &mut family.blocks).zip(0..) {
        block.header.sequence = number;
    }
}

#[test]
fn a_block_of_an_ordered_stream_behind_a_higher_layer_is_refused() {
    let world = World::new();
    if !open_set(&world) {
        return;
    }
    forge(&world, &OPEN, None, |families| {
        let mut moved = 0;
        for family in families.iter_mut() {
            let above = |block: &ForgedBlock| block.header.kind == BlockKind::Data && block.header.layer > 0;
            let ordered = |block: &ForgedBlock| block.header.order > 0;
            let Some(first) = family.blocks.iter().position(above) else { continue };
            let last = family.blocks[..first].iter().rposition(ordered).expect("an ordered block");
            let block = family.blocks.remove(last);
            family.blocks.insert(first, block);
            moved += 1;
        }
        assert!(moved > 0, "no family has a higher layer");
    });
    for line in ["verify --from open/full-1of2.bore --from open/full-2of2.bore", RESTORE_OPEN] {
        let ended = world.run(line).with_code(3);
        assert!(ended.err.contains("layer 0 comes after layer") || ended.err.contains("too far behind"), "{ended}");
    }
}

const RESTORE_OPEN: &str = "restore --from open/full-1of2.bore --from open/full-2of2.bore --into dir:out";

#[test]
fn a_resumed_restore_refuses_an_ordered_stream_with_a_gap_too() {
    let world = World::new();
    if !open_set(&world) {
        return;
    }
    world.run(&format!("{RESTORE_OPEN} --resume")).done();
    std::fs::remove_dir_all(world.at("out")).unwrap();
    forge(&world, &OPEN, None, |families| {
        for family in families.iter_mut() {
            family.blocks.retain(|block| block.header.order != 5);
            let behind = family.blocks.iter_mut().filter(|block| block.header.order > 5);
            behind.for_each(|block| block.header.order -= 1);
        }
        renumber(families);
    });
    for _ in 0..3 {
        let ended = world.run(&format!("{RESTORE_OPEN} --resume")).with_code(3);
        assert!(ended.err.contains("a block of an ordered stream begins at"), "{ended}");
        assert!(!world.at("out").exists());
    }
}
