//! Media that are not what was written: flipped, cut off, longer, missing, swapped, foreign, doubled, of the future.

use std::fs;
use std::ops::Range;

use fullbore_core::checksum::crc32c;

use crate::database::{self, Shape};
use crate::world::World;

const FROM: &str = "--from a/app.bore --from b/app.bore";

/// A set of two families, quick to read.
fn set(options: &str) -> World {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    world
        .run(&format!(
            "backup sqlite:app.db --to a/app.bore --to b/app.bore --max-transfer-size 64KiB --block-size 8192 {options}"
        ))
        .done();
    world
}

fn number_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// The parts of a family, from docs/MEDIA_FORMAT.md.
fn parts(bytes: &[u8]) -> Vec<(String, Range<usize>)> {
    let header = number_at(bytes, 12);
    let mut parts = vec![("fixed header".into(), 0..256), ("rest of the header".into(), 256..header)];
    let mut at = header;
    while &bytes[at..at + 4] == b"fbBK" {
        let (kind, body) = (bytes[at + 5], number_at(bytes, at + 48));
        let kind = ["", "DATA", "MAP", "INDEX", "MANIFEST", "TRAILER"][usize::from(kind)];
        parts.push((format!("{kind} header"), at..at + 64));
        parts.push((format!("{kind} body"), at + 64..at + 64 + body));
        at += 64 + body;
    }
    parts.push(("padding".into(), at..bytes.len() - 4096));
    parts.push(("footer".into(), bytes.len() - 4096..bytes.len() - 1888));
    parts.push(("end of the footer".into(), bytes.len() - 1888..bytes.len()));
    parts
}

/// One seeded bit each: more of them where every byte means something else.
fn positions(bytes: &[u8], seed: u64) -> Vec<(String, usize, u8)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut positions = Vec::new();
    for (part, range) in parts(bytes).into_iter().filter(|(_, range)| !range.is_empty()) {
        let count = if part == "fixed header" || part == "footer" { 16 } else { 6 };
        let ends = [(part.clone(), range.start), (part.clone(), range.end - 1)];
        positions.extend(ends.map(|(part, at)| (part, at, random.u8(0..8))));
        positions.extend((2..count).map(|_| (part.clone(), random.usize(range.clone()), random.u8(0..8))));
    }
    positions
}

/// Flips bits of `family`; each flip is found, named and refused.
fn every_flip_is_found(world: &World, family: &str, key: &str, seed: u64) -> usize {
    fs::copy(world.at("app.db"), world.at("copy.db")).unwrap();
    let (bytes, target) = (world.read(family), world.read("copy.db"));
    let positions = positions(&bytes, seed);
    for (count, (part, at, bit)) in positions.iter().enumerate() {
        let mut damaged = bytes.clone();
        damaged[*at] ^= 1 << bit;
        world.write(family, &damaged);
        let place = format!("bit {bit} of byte {at}, {part}, {family}");
        // A version is looked at before the checksum: one that is higher is refused, as the format says.
        let version = [8, 9].contains(at) || (8..10).contains(&(*at + 4096 - bytes.len().min(*at + 4096)));
        let code = if version { 1 } else { 3 };
        let ended = world.run(&format!("verify {FROM} {key}"));
        assert_eq!(ended.code, code, "{place}: {ended}");
        assert!(ended.err.contains(family), "{place} is not named: {ended}");
        if count % 4 == 0 {
            let ended = world.run(&format!("restore {FROM} --into sqlite:copy.db --replace {key}"));
            assert_eq!(ended.code, code, "{place}: {ended}");
            assert!(world.read("copy.db") == target, "{place}: the target was touched");
            assert!(!world.names(".").iter().any(|name| name.contains("restoring")), "{place}: {ended}");
        }
    }
    world.write(family, &bytes);
    world.run(&format!("verify {FROM} {key}")).done();
    positions.len()
}

#[test]
fn a_flipped_bit_anywhere_in_family_1_is_found_and_named() {
    let flips = every_flip_is_found(&set("--compression none"), "a/app.bore", "", 1);
    assert!(flips >= 80, "{flips}");
}

#[test]
fn a_flipped_bit_anywhere_in_family_2_is_found_and_named() {
    let flips = every_flip_is_found(&set("--compression zstd:1"), "b/app.bore", "", 2);
    assert!(flips >= 60, "{flips}");
}

#[test]
fn a_flipped_bit_anywhere_in_an_encrypted_family_is_found_and_named() {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    world.run("key new --no-recovery k.key").done();
    let line = "backup sqlite:app.db --to a/app.bore --to b/app.bore --max-transfer-size 64KiB --block-size 8192 --encrypt-to k.key.pub";
    world.run(line).done();
    let flips = every_flip_is_found(&world, "a/app.bore", "--key k.key", 3);
    assert!(flips >= 80, "{flips}");
}

#[test]
fn a_flipped_bit_in_a_directory_is_found_too() {
    let world = set("");
    let bytes = world.read("b/app.bore");
    for at in [0, 3, 9, 20, 60, 300, 5000, bytes.len() - 4000, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        world.write("b/app.bore", &damaged);
        // Without its magic it is no family at all, and the set is not whole.
        world.run("verify --from a --from b").with_code(3).says(&["error: "]);
        let ended = world.run("restore --from a --from b --into sqlite:copy.db");
        assert_eq!(ended.code, if at == 9 { 1 } else { 3 }, "{ended}");
        world.assert_no_copy();
    }
}

#[test]
fn a_family_cut_off_anywhere_is_refused() {
    let world = set("--compression none");
    let mut random = fastrand::Rng::with_seed(7);
    for family in ["a/app.bore", "b/app.bore"] {
        let bytes = world.read(family);
        let mut lengths = vec![
            0,
            1,
            7,
            8,
            63,
            255,
            256,
            4095,
            4096,
            8191,
            8192,
            8193,
            bytes.len() - 8192,
            bytes.len() - 4096,
            bytes.len() - 1,
        ];
        lengths.extend((0..10).map(|_| random.usize(0..bytes.len())));
        for length in lengths {
            world.write(family, &bytes[..length]);
            world.run(&format!("verify {FROM}")).with_code(3).says(&["error: ", family]);
            world.run(&format!("restore {FROM} --into sqlite:copy.db")).with_code(3).says(&["error: "]);
            world.assert_no_copy();
        }
        world.write(family, &bytes);
    }
    world.assert_restores(FROM);
}

#[test]
fn a_family_with_something_behind_its_end_is_refused() {
    let world = set("");
    for (family, more) in
        [("a/app.bore", 1), ("b/app.bore", 511), ("a/app.bore", 4096), ("b/app.bore", 8192), ("a/app.bore", 1 << 20)]
    {
        let bytes = world.read(family);
        for filler in [0, 0x5a] {
            let mut longer = bytes.clone();
            longer.resize(bytes.len() + more, filler);
            world.write(family, &longer);
            world.run(&format!("verify {FROM}")).with_code(3).says(&["error: ", family]);
            world.run(&format!("restore {FROM} --into sqlite:copy.db")).with_code(3);
            world.assert_no_copy();
        }
        world.write(family, &bytes);
    }
}

#[test]
fn a_hole_of_zeros_in_a_family_is_refused() {
    let world = set("--compression none");
    let bytes = world.read("a/app.bore");
    for at in (0..bytes.len()).step_by(bytes.len() / 12) {
        let mut torn = bytes.clone();
        let end = (at + 4096).min(torn.len());
        torn[at..end].fill(0);
        if torn == bytes {
            continue; // Zeros were there.
        }
        world.write("a/app.bore", &torn);
        world.run(&format!("verify {FROM}")).with_code(3).says(&["error: ", "a/app.bore"]);
    }
}

#[test]
fn a_missing_family_is_named_by_its_number() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/ --stripes 4 --name-template x-{family}").done();
    for family in 1..=4 {
        fs::rename(world.at("a").join(format!("x-{family}")), world.at("b/x")).unwrap();
        let cause = format!("{family} of 4 missing");
        world.run("verify --from a").refused(3, "media set", &cause);
        world.run("restore --from a --into sqlite:copy.db").refused(3, "full", &cause);
        world.assert_no_copy();
        fs::rename(world.at("b/x"), world.at("a").join(format!("x-{family}"))).unwrap();
    }
    world.assert_restores("--from a");
}

#[test]
fn swapped_names_do_not_matter() {
    let world = set("");
    fs::rename(world.at("a/app.bore"), world.at("x")).unwrap();
    fs::rename(world.at("b/app.bore"), world.at("a/app.bore")).unwrap();
    fs::rename(world.at("x"), world.at("b/other-name")).unwrap();
    world.assert_restores("--from a --from b");
}

#[test]
fn a_family_of_another_backup_does_not_complete_a_set() {
    let world = set("");
    let first = world.read("b/app.bore");
    world.run("backup sqlite:app.db --to a/app.bore --to b/app.bore --init").done();
    world.write("b/app.bore", &first);
    world.run(&format!("verify {FROM}")).with_code(3).says(&["missing"]);
    world.run(&format!("restore {FROM} --into sqlite:copy.db")).with_code(3).says(&["missing", "hint: "]);
    world.assert_no_copy();
}

#[test]
fn a_foreign_family_beside_a_whole_set_is_said_and_does_not_harm_it() {
    let world = set("");
    let line = "backup sqlite:app.db --to foreign-1 --to foreign-2";
    world.run(line).done();
    fs::copy(world.at("foreign-2"), world.at("a/foreign.bore")).unwrap();
    world.run("verify --from a --from b").with_code(3).says(&["missing"]);
    world.run("restore --from a --from b --into sqlite:copy.db").with_code(4).says(&["warning: ", "missing"]);
    world.assert_copy();
}

#[test]
fn two_families_of_one_number_and_other_contents_are_named_and_nothing_is_restored() {
    let world = set("");
    let mut bytes = world.read("b/app.bore");
    // The label's last letter (app.db): the set as before, the header another one.
    let label = bytes.windows(6).position(|word| word == b"app.db").unwrap();
    bytes[label + 5] = b'x';
    let crc = header_crc(&bytes);
    bytes[252..256].copy_from_slice(&crc.to_le_bytes());
    world.write("b/copy-of-app.bore", &bytes);
    for line in ["verify --from a --from b", "restore --from a --from b --into sqlite:copy.db"] {
        world.run(line).with_code(3).says(&["error: ", "twice", "copy-of-app.bore", "hint: "]);
    }
    world.assert_no_copy();
    // The same file by two names of the user's is one.
    fs::remove_file(world.at("b/copy-of-app.bore")).unwrap();
    world.assert_restores("--from a --from b --from ./b/app.bore");
}

#[test]
fn a_family_of_a_future_version_is_refused_by_that_name() {
    let world = set("");
    let mut bytes = world.read("a/app.bore");
    bytes[8..10].copy_from_slice(&7_u16.to_le_bytes());
    let crc = header_crc(&bytes);
    bytes[252..256].copy_from_slice(&crc.to_le_bytes());
    world.write("a/app.bore", &bytes);
    for from in [FROM, "--from a --from b"] {
        let verified = world.run(&format!("verify {from}"));
        assert_ne!(verified.code, 0, "{verified}");
        verified.says(&["error: ", "a/app.bore", "newer fullbore", "hint: "]);
        world.run(&format!("restore {from} --into sqlite:copy.db")).refused(1, "a/app.bore", "newer fullbore");
        world.assert_no_copy();
    }
}

fn header_crc(bytes: &[u8]) -> u32 {
    let mut header = bytes[..number_at(bytes, 12).min(bytes.len())].to_vec();
    header[252..256].fill(0);
    crc32c(&header)
}

#[test]
fn impossible_numbers_under_a_right_checksum_are_refused() {
    let world = set("--compression none");
    let bytes = world.read("a/app.bore");
    // (offset, bytes) in the header: families, parity, cipher, kind, sizes, counts, and the stream's record behind 256.
    let patches: [(usize, &[u8]); 14] = [
        (48, &[0, 0]),
        (50, &[0, 0]),
        (50, &[65, 0]),
        (52, &[1, 0]),
        (54, &[9]),
        (55, &[0]),
        (56, &[0, 0, 0, 0]),
        (60, &[0xff; 4]),
        (128, &[1, 0, 0, 0]),
        (132, &[0xff; 4]),
        (136, &[0xff, 0xff, 0, 0]),
        (264, &[0; 4]),
        (268, &[0xff; 4]),
        (272, &[0xff; 8]),
    ];
    for (at, patch) in patches {
        let mut hostile = bytes.clone();
        hostile[at..at + patch.len()].copy_from_slice(patch);
        let crc = header_crc(&hostile);
        hostile[252..256].copy_from_slice(&crc.to_le_bytes());
        world.write("a/app.bore", &hostile);
        let ended = world.run(&format!("verify {FROM}"));
        assert_eq!(ended.code, 3, "{patch:?} at {at}: {ended}");
        let ended = world.run(&format!("restore {FROM} --into sqlite:copy.db"));
        assert_eq!(ended.code, 3, "{patch:?} at {at}: {ended}");
        world.assert_no_copy();
    }
}

#[test]
fn a_database_or_a_text_is_no_family() {
    let world = set("");
    world.run("verify --from app.db").refused(3, "app.db", "");
    world.run("verify --from /dev/null").refused(2, "/dev/null", "not a regular file");
    world.run("restore --from app.db --into sqlite:copy.db").with_code(3).says(&["app.db"]);
    world.assert_no_copy();
}

#[test]
fn damage_in_the_full_refuses_the_differential_too() {
    let world = set("--compression none");
    database::change(&world.at("app.db"), 1);
    world
        .run(&format!("backup sqlite:app.db --to d.bore --kind differential {}", FROM.replace("--from", "--base")))
        .done();
    let mut bytes = world.read("a/app.bore");
    bytes[9000] ^= 1;
    world.write("a/app.bore", &bytes);
    world.run(&format!("restore {FROM} --from d.bore --into sqlite:copy.db")).with_code(3).says(&["a/app.bore"]);
    world.assert_no_copy();
}
