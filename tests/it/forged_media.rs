//! Media whose checksums are all right and whose statements are not: each rule of docs/MEDIA_FORMAT.md broken alone.

use fullbore_core::cipher::{DataKey, KeyFile, unwrap};
use fullbore_core::media::{BlockKind, FamilyHeader, Run, RunKind};

use crate::database::{self, Shape};
use crate::forge::{ForgedBlock, ForgedFamily, forge};
use crate::world::World;

const FAMILIES: [&str; 2] = ["a/app.bore", "b/app.bore"];
const FROM: &str = "--from a/app.bore --from b/app.bore";

/// A full of two families with several blocks, windows of the map and ZERO runs.
fn full(options: &str) -> World {
    let world = World::with_shape(Shape { rows: 1200, ..Shape::default() });
    database::sql(&world.at("app.db"), "INSERT INTO gone SELECT NULL, zeroblob(9000) FROM item WHERE id < 9");
    let line = "backup sqlite:app.db --to a/app.bore --to b/app.bore --max-transfer-size 64KiB --compression none";
    world.run(&format!("{line} --workers 2 {options}")).done();
    world
}

/// The forged set is refused by verify and by restore, for this reason; an honest forgery is not. A page map that is wrong is
/// refused by verify, and no base: a restore needs no map.
struct Refusal {
    world: World,
    originals: Vec<Vec<u8>>,
    key: Option<DataKey>,
    from: String,
}

impl Refusal {
    fn of(world: World, from: &str, key: Option<DataKey>) -> Self {
        let originals = FAMILIES.map(|name| world.read(name)).to_vec();
        let refusal = Self { world, originals, key, from: from.to_owned() };
        forge(&refusal.world, &FAMILIES, refusal.key.as_ref(), |_| {});
        refusal.world.run(&format!("verify {from}")).done();
        refusal
    }

    fn forge(&self, edit: impl FnOnce(&mut [ForgedFamily])) {
        for (name, bytes) in FAMILIES.iter().zip(&self.originals) {
            self.world.write(name, bytes);
        }
        forge(&self.world, &FAMILIES, self.key.as_ref(), edit);
    }

    #[track_caller]
    fn of_the_map(&self, cause: &str, edit: impl FnOnce(&mut [ForgedFamily])) {
        self.forge(edit);
        let ended = self.world.run(&format!("verify {}", self.from)).with_code(3);
        assert!(ended.err.contains(cause), "{cause}: {ended}");
        self.world.run(&format!("restore {} --into sqlite:whole.db", self.from)).done();
        std::fs::remove_file(self.world.at("whole.db")).unwrap();
    }

    #[track_caller]
    fn with(&self, cause: &str, edit: impl FnOnce(&mut [ForgedFamily])) {
        self.forge(edit);
        for line in [format!("verify {}", self.from), format!("restore {} --into sqlite:copy.db", self.from)] {
            let ended = self.world.run(&line).with_code(3);
            assert!(ended.err.contains(cause), "{cause}: {ended}");
        }
        self.world.assert_no_copy();
    }
}

fn block(families: &mut [ForgedFamily], kind: BlockKind, number: usize) -> &mut ForgedBlock {
    families.iter_mut().flat_map(|family| family.of(kind)).nth(number).expect("so many blocks")
}

/// The first block with a run of this kind, and which run of it.
fn with_run(families: &mut [ForgedFamily], kind: RunKind) -> (&mut ForgedBlock, usize) {
    let mut blocks = families.iter_mut().flat_map(|family| family.of(BlockKind::Data));
    let found = blocks.find_map(|block| {
        let at = block.runs.iter().position(|run| run.kind == kind)?;
        Some((block, at))
    });
    found.expect("such a run")
}

#[test]
fn sequence_numbers_with_a_gap_or_a_double_are_refused() {
    let refusal = Refusal::of(full(""), FROM, None);
    let cause = "not numbered from 0 on";
    // One too high, one twice, and two twice with the sum of all as it was.
    refusal.with(cause, |families| families[0].blocks[0].header.sequence = 1 << 40);
    refusal.with(cause, |families| families[0].blocks[0].header.sequence = families[1].blocks[0].header.sequence);
    refusal.with(cause, |families| {
        // 3, 3, 4, 4 instead of 2, 3, 4, 5.
        for block in families.iter_mut().flat_map(|family| &mut family.blocks) {
            block.header.sequence = match block.header.sequence {
                2 => 3,
                5 => 4,
                other => other,
            };
        }
    });
}

#[test]
fn runs_of_two_blocks_that_overlap_are_refused_although_their_sum_is_right() {
    let refusal = Refusal::of(full(""), FROM, None);
    refusal.with("a part of its database twice", |families| {
        // One block says that it is where another is: what it was is missing, and the sum is the same.
        let other = block(families, BlockKind::Data, 1).runs.clone();
        let first = block(families, BlockKind::Data, 0);
        let covered = |runs: &[Run]| runs.iter().map(|run| u64::from(run.length)).sum::<u64>();
        let length = covered(&first.runs).min(covered(&other)) as u32 / 4096 * 4096;
        assert!(length >= 8192);
        let data = first.plain.len().min(length as usize - 4096);
        let start = other[0].offset;
        first.runs = vec![Run { offset: start, length: data as u32, kind: RunKind::Data }];
        let rest = (covered(&other) as usize).max(length as usize) - data;
        first.plain.truncate(data);
        if rest > 0 {
            first.runs.push(Run { offset: start + data as u64, length: rest as u32, kind: RunKind::Zero });
        }
    });
    refusal.with("not hold every byte", |families| {
        let (block, at) = with_run(families, RunKind::Zero);
        block.runs.remove(at);
    });
}

#[test]
fn runs_that_are_not_of_whole_units_are_refused() {
    let refusal = Refusal::of(full(""), FROM, None);
    refusal.with("does not cover whole units", |families| {
        let (block, at) = with_run(families, RunKind::Zero);
        block.runs[at].length -= 512;
    });
}

#[test]
fn a_page_map_that_does_not_fit_the_data_is_refused_by_verify_and_the_data_still_restored() {
    let refusal = Refusal::of(full(""), FROM, None);
    let cause = "its page map does not fit its data";
    // A hash of something else; two hashes that are swapped; a unit that is said to be zero; a ZERO unit with a hash.
    refusal.of_the_map(cause, |families| block(families, BlockKind::Map, 0).plain[16] ^= 1);
    refusal.of_the_map(cause, |families| {
        let entries = &mut block(families, BlockKind::Map, 0).plain;
        let (one, two) = entries.split_at_mut(16);
        assert_ne!(one[..16], two[..16]);
        one[..16].swap_with_slice(&mut two[..16]);
    });
    refusal.of_the_map(cause, |families| block(families, BlockKind::Map, 0).plain[..16].fill(0));
    refusal.of_the_map(cause, |families| {
        let entries = &mut block(families, BlockKind::Map, 0).plain;
        let zero = entries.chunks_mut(16).find(|entry| **entry == [0; 16]).expect("a unit that is zero");
        zero[0] = 1;
    });
    // The data of one unit, changed under every checksum: the database is no longer what was hashed.
    refusal.of_the_map(cause, |families| block(families, BlockKind::Data, 0).plain[100] ^= 1);
    refusal.of_the_map(cause, |families| {
        let seed = |family: &mut ForgedFamily| {
            let text = String::from_utf8(family.of(BlockKind::Manifest).next().unwrap().plain.clone()).unwrap();
            let at = text.find("\"seed\":\"").expect("a seed") + 8;
            let digit = if &text[at..=at] == "0" { "1" } else { "0" };
            family.manifest(&text[at - 8..at + 16], &format!("\"seed\":\"{digit}{}", &text[at + 1..at + 16]));
        };
        families.iter_mut().for_each(seed);
    });
}

#[test]
fn map_blocks_that_are_no_windows_of_their_stream_are_refused_by_verify() {
    let refusal = Refusal::of(full(""), FROM, None);
    refusal
        .of_the_map("not a window of its stream", |families| block(families, BlockKind::Map, 0).runs[0].length -= 4096);
    refusal.of_the_map("too few or too many entries", |families| block(families, BlockKind::Map, 0).plain.truncate(32));
    refusal.of_the_map("its page map has a gap, or a part twice", |families| {
        let mut second = block(families, BlockKind::Map, 0).clone();
        // A new number, the highest, so that nothing else is wrong.
        second.header.sequence = families.iter().map(|family| family.blocks.len() as u64).sum();
        let at = usize::from(second.header.family) - 1;
        families[at].blocks.insert(0, second);
    });
}

#[test]
fn a_trailer_that_counts_other_zero_bytes_is_refused_and_its_family_named() {
    for (options, from) in [("", FROM.to_owned()), ("--encrypt-to k.key.pub", format!("{FROM} --key k.key"))] {
        let refusal = sealed(options, &from);
        refusal.with("b/app.bore", |families| families[1].trailer = |trailer| trailer.zero_bytes += 4096);
        refusal.with("the count of zero bytes", |families| families[0].trailer = |trailer| trailer.zero_bytes ^= 1);
        refusal
            .with("the trailer does not describe", |families| families[0].trailer = |trailer| trailer.data_bytes += 1);
    }
}

#[test]
fn trailers_whose_sums_no_number_holds_end_a_copy_with_an_error() {
    let refusal = Refusal::of(full(""), FROM, None);
    refusal.forge(|families| {
        families.iter_mut().for_each(|family| family.trailer = |trailer| trailer.data_bytes = u64::MAX - 7);
    });
    for options in ["--compression lz4", "--compression zstd:1 --stripes 3", "--stripes 1"] {
        let ended = refusal.world.run(&format!("copy {FROM} --to copies/ --mkdir {options}"));
        assert!([1, 3].contains(&ended.code) && ended.err.contains("error: "), "{ended}");
    }
}

/// The usual set, perhaps with a cipher.
fn sealed(options: &str, from: &str) -> Refusal {
    if options.is_empty() {
        return Refusal::of(full(""), from, None);
    }
    let world = World::with_shape(Shape { rows: 600, ..Shape::default() });
    world.run("key new --no-recovery k.key").done();
    let line = "backup sqlite:app.db --to a/app.bore --to b/app.bore --max-transfer-size 64KiB --compression none";
    world.run(&format!("{line} {options}")).done();
    let bytes = world.read(FAMILIES[0]);
    let header = FamilyHeader::decode(&bytes[..FamilyHeader::length(&bytes).unwrap()]).unwrap().set;
    let file = KeyFile::read(&world.at("k.key")).unwrap();
    let key = unwrap(&header.keys, file.secret().unwrap(), header.media_set_id.as_bytes()).unwrap();
    Refusal::of(world, from, Some(key))
}

#[test]
fn an_index_of_encrypted_blocks_that_names_other_runs_is_refused() {
    let refusal = sealed("--encrypt-to k.key.pub", &format!("{FROM} --key k.key"));
    let cause = "its index does not fit the runs";
    refusal.with(cause, |families| families[0].entry = |entry| entry.span += 4096);
    refusal.with(cause, |families| families[1].entry = |entry| entry.first ^= 4096);
}

#[test]
fn footers_that_say_of_the_set_what_is_not_theirs_are_refused() {
    let refusal = Refusal::of(full(""), FROM, None);
    refusal.with("without a commit record", |families| families[1].set_block_count = 7);
    refusal.with("different times", |families| families[1].footer.finished_at += 1);
    refusal.with("b/app.bore", |families| families[1].trailer_shift = 1);
}

#[test]
fn headers_that_differ_in_a_byte_that_means_nothing_are_refused() {
    let refusal = Refusal::of(full(""), FROM, None);
    refusal.with("differs from that of", |families| {
        // The window of ordered streams, in a set that has none.
        let mut bytes = families[1].header.encode();
        bytes[64] = 1;
        families[1].header_bytes = Some(with_crc(bytes));
    });
    for (at, cause) in [
        (256 + 3, "reserved bytes of a stream record"),
        (256 + 7, "the manifest has other streams than the header"), // The id of the stream, high half.
        (256 + 24, "reserved bytes of a stream record"),
        (256 + 31, "reserved bytes of a stream record"),
        (256 + 4, "layers are not known"),
    ] {
        refusal.with(cause, |families| {
            for family in families {
                let mut bytes = family.header.encode();
                bytes[at] = 1;
                family.header_bytes = Some(with_crc(bytes));
            }
        });
    }
}

fn with_crc(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[252..256].fill(0);
    let crc = fullbore_core::checksum::crc32c(&bytes);
    bytes[252..256].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn a_manifest_that_says_something_else_than_the_header_is_refused() {
    let refusal = Refusal::of(full(""), FROM, None);
    let swap = |old: &'static str, new: &'static str| {
        move |families: &mut [ForgedFamily]| families.iter_mut().for_each(|family| family.manifest(old, new))
    };
    refusal.with("other streams", swap("\"map_window\":2048", "\"map_window\":1024"));
    refusal.with("other streams", swap("\"unit\":4096", "\"unit\":8192"));
    refusal.with("another kind, engine or size", swap("\"kind\":\"full\"", "\"kind\":\"log\""));
    refusal.with("another kind, engine or size", swap("\"engine\":\"sqlite\"", "\"engine\":\"mysql\""));
    refusal.with("another kind, engine or size", swap("\"block_size\":4096", "\"block_size\":8192"));
    refusal.with("other families", swap("\"family\":2", "\"family\":3"));
    refusal.with("16 digits", swap("\"seed\":\"", "\"seed\":\"+"));
    refusal.with(
        "another set",
        swap("\"base_backup_set_id\":null", "\"base_backup_set_id\":\"018f0000-0000-7000-8000-000000000000\""),
    );
    refusal.with("different manifests", |families| families[1].manifest("\"schema\":0", "\"schema\":0 "));
}

#[test]
fn a_pipe_is_held_to_its_manifest_and_its_sums_too() {
    let world = full("");
    world.run("backup sqlite:app.db --to one.bore --max-transfer-size 64KiB --compression none").done();
    let original = world.read("one.bore");
    let refused = |cause: &str, edit: &dyn Fn(&mut ForgedFamily)| {
        world.write("one.bore", &original);
        forge(&world, &["one.bore"], None, |families| edit(&mut families[0]));
        let mut command = crate::program::command(world.folder(), ["verify", "--from", "-"]);
        command.stdin(std::fs::File::open(world.at("one.bore")).unwrap());
        let ended = crate::program::run(command).with_code(3);
        assert!(ended.err.contains(cause), "{cause}: {ended}");
    };
    let header = FamilyHeader::decode(&original[..4096]).unwrap().set;
    let id = header.media_set_id.to_string();
    let other = id.chars().rev().map(|digit| if digit == '7' { '6' } else { digit }).collect::<String>();
    let other = other.chars().rev().collect::<String>();
    assert_ne!(id, other);
    refused("another set than the header", &|family| family.manifest(&id, &other));
    refused("not numbered from 0 on", &|family| family.blocks[0].header.sequence += 1 << 20);
    refused("the count of zero bytes", &|family| family.trailer = |trailer| trailer.zero_bytes += 1);
    refused("the footer does not describe", &|family| family.trailer_shift = 1);
}

#[test]
fn a_differential_that_holds_a_unit_twice_or_a_page_map_is_refused() {
    let world = full("");
    database::change(&world.at("app.db"), 1);
    let base = "--base a/app.bore --base b/app.bore";
    world.run(&format!("backup sqlite:app.db --to d1.bore --to d2.bore --kind differential {base} --max-transfer-size 64KiB --compression none --workers 2")).done();
    let originals = ["d1.bore", "d2.bore"].map(|name| world.read(name));
    let refused = |cause: &str, edit: &dyn Fn(&mut [ForgedFamily])| {
        world.write("d1.bore", &originals[0]);
        world.write("d2.bore", &originals[1]);
        forge(&world, &["d1.bore", "d2.bore"], None, edit);
        for line in [
            "verify --from d1.bore --from d2.bore".to_owned(),
            format!("restore {FROM} --from d1.bore --from d2.bore --into sqlite:copy.db"),
        ] {
            let ended = world.run(&line).with_code(3);
            assert!(ended.err.contains(cause), "{cause}: {ended}");
        }
        world.assert_no_copy();
    };
    let again = |families: &mut [ForgedFamily], change: &dyn Fn(&mut ForgedBlock)| {
        let mut second = block(families, BlockKind::Data, 0).clone();
        second.header.sequence = families.iter().map(|family| family.blocks.len() as u64).sum();
        second.header.family = 2;
        change(&mut second);
        families[1].blocks.insert(0, second);
    };
    refused("a part of its stream is in two blocks", &|families| again(families, &|_| {}));
    refused("a page map that the header does not announce", &|families| {
        again(families, &|second| {
            second.header.kind = BlockKind::Map;
            second.runs = vec![Run { offset: 0, length: 4096, kind: RunKind::Mapped }];
            second.plain = vec![1; 16];
        });
    });
    refused("does not announce", &|families| {
        let map = "\"map\":{\"hash\":\"xxh3-128\",\"seed\":\"0123456789abcdef\"}";
        families.iter_mut().for_each(|family| family.manifest("\"map\":null", map));
    });
}

#[test]
fn a_page_map_whose_index_leads_elsewhere_is_no_base() {
    let world = full("");
    let line = "backup sqlite:app.db --to d.bore --kind differential --base a/app.bore --base b/app.bore";
    world.run(&format!("{line} --dry-run")).done();
    // A differential is made from the index and the blocks it names, without reading all of the full.
    forge(&world, &FAMILIES, None, |families| {
        for family in families {
            let length = family.of(BlockKind::Map).count();
            assert!(length <= 1, "small enough for one window");
            family.of(BlockKind::Map).for_each(|block| block.plain.truncate(16));
        }
    });
    let ended = world.run(line).with_code(3);
    assert!(ended.err.contains("differs from its index"), "{ended}");
    assert!(!world.at("d.bore").exists());
}
