//! Golden media: written once, restorable forever. Each version of the format has a directory with small media sets, the
//! key of the encrypted ones and `digests`: BLAKE3 of the file that each set restores to.
//!
//! Nobody writes them again. The directory of a new version of the format is written by
//! `cargo test --test it -- --ignored write_the_golden_media`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::database::{self, Shape};
use crate::program;
use crate::world::World;

/// Set, its families, and the set that it is based on.
const SETS: [(&str, usize, Option<&str>); 8] = [
    ("none", 1, None),
    ("lz4", 3, None),
    ("lz4-diff", 2, Some("lz4")),
    ("zstd", 1, None),
    ("gzip", 1, None),
    ("gzip-diff", 1, Some("gzip")),
    ("encrypted", 1, None),
    ("encrypted-diff", 1, Some("encrypted")),
];

/// The directories of all versions of the format, the newest at the end.
pub const VERSIONS: [&str; 2] = ["format_v0", "format_v1"];

/// The golden media of a version.
pub fn media(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(version)
}

/// The directory for golden media of this kind, which the newest version does not have yet.
///
/// # Panics
/// If the newest version has it: golden media are not overwritten.
pub fn new_media(kind: &str) -> PathBuf {
    let directory = media(VERSIONS[VERSIONS.len() - 1]).join(kind);
    fs::create_dir_all(directory.parent().unwrap()).unwrap();
    fs::create_dir(&directory).expect("golden media are not overwritten");
    directory
}

fn independent_reader() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/independent_reader/run.sh"))
}

/// A world with a copy of the media in `media/`, and the key closed to others as it has to be.
fn with_media(version: &str) -> World {
    let world = World::new();
    fs::create_dir(world.at("media")).unwrap();
    for entry in fs::read_dir(media(version).join("sqlite")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, world.at("media").join(path.file_name().unwrap())).unwrap();
    }
    world.write_secret("media/golden.key", &world.read("media/golden.key"));
    world
}

fn families(set: &str, count: usize) -> Vec<String> {
    (1..=count).map(|family| format!("media/{set}-{family}.bore")).collect()
}

fn base_of(base: Option<&str>) -> Vec<String> {
    let set = base.and_then(|name| SETS.iter().find(|(set, ..)| *set == name));
    set.map_or_else(Vec::new, |&(name, count, _)| families(name, count))
}

fn key_for(set: &str) -> &'static str {
    if set.starts_with("encrypted") { "--key media/golden.key" } else { "" }
}

/// BLAKE3 of a file.
pub fn digest(path: &Path) -> String {
    blake3::hash(&fs::read(path).unwrap()).to_hex().to_string()
}

/// What the file `digests` of a directory says of a set.
pub fn expected(media: &Path, set: &str) -> String {
    let text = fs::read_to_string(media.join("digests")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(' ').map(str::to_owned));
    line.unwrap_or_else(|| panic!("no digest of {set}"))
}

fn expected_of(version: &str, set: &str) -> String {
    expected(&media(version).join("sqlite"), set)
}

#[test]
fn golden_media_restore_to_what_they_always_did() {
    for version in VERSIONS {
        let world = with_media(version);
        for (set, count, base) in SETS {
            let named = [families(set, count), base_of(base)].concat();
            let from: String = named.iter().map(|family| format!("--from {family} ")).collect();
            world.run(&format!("verify {from} {}", key_for(set))).done();
            world.run(&format!("restore {from} --into sqlite:{set}.db --integrity-check {}", key_for(set))).done();
            assert_eq!(digest(&world.at(&format!("{set}.db"))), expected_of(version, set), "{version} {set}");
            database::contents(&world.at(&format!("{set}.db")));
        }
    }
}

#[test]
fn golden_media_restore_through_a_pipe() {
    for version in VERSIONS {
        let world = with_media(version);
        for set in ["none", "zstd", "gzip"] {
            let mut command =
                program::command(world.folder(), ["restore", "--from", "-", "--into", &format!("sqlite:{set}.db")]);
            command.stdin(fs::File::open(world.at(&format!("media/{set}-1.bore"))).unwrap());
            program::run(command).done();
            assert_eq!(digest(&world.at(&format!("{set}.db"))), expected_of(version, set), "{version} {set}");
        }
    }
}

#[test]
fn a_footer_of_another_version_than_its_header_is_damage() {
    let world = with_media("format_v1");
    let mut family = world.read("media/none-1.bore");
    let at = family.len() - 4096;
    family[at + 8] = 0;
    let crc = fullbore_core::checksum::crc32c(&family[at..at + 4092]);
    family[at + 4092..].copy_from_slice(&crc.to_le_bytes());
    world.write("media/none-1.bore", &family);
    world.run("verify --from media/none-1.bore").refused(3, "none-1.bore", "different families");
}

/// Runs the independent reader; `None`, loudly, where its environment cannot be made.
pub fn python(world: &World, test: &str, arguments: &[String]) -> Option<program::Ended> {
    let mut command = independent_reader();
    command.current_dir(world.folder()).args(arguments);
    let ended = program::Ended::from(format!("{command:?}"), command.output().unwrap());
    let installed = [0, 2, 3].contains(&ended.code);
    if !installed {
        program::skipped(test, &format!("the independent reader cannot be set up: {}", ended.err));
    }
    installed.then_some(ended)
}

#[test]
fn golden_media_restore_with_the_independent_reader_too() {
    for version in VERSIONS {
        let world = with_media(version);
        for (set, count, base) in SETS {
            let mut arguments = families(set, count);
            arguments.extend(["--stream-into".into(), set.into()]);
            arguments.extend(key_for(set).split_whitespace().map(str::to_owned));
            let base = base_of(base);
            if !base.is_empty() {
                arguments.push("--base".into());
                arguments.extend(base);
            }
            fs::create_dir(world.at(set)).unwrap();
            let Some(ended) = python(&world, "golden media with the independent reader", &arguments) else { return };
            ended.done();
            assert_eq!(digest(&world.at(set).join("golden.db")), expected_of(version, set), "{version} {set}");
        }
    }
}

#[test]
fn the_independent_reader_restores_sets_of_this_version() {
    let world = World::with_database();
    world.run("key new --no-recovery k.key").done();
    world.run("backup sqlite:app.db --to a/ --to b/ --stripes 5 --name-template x-{family} --encrypt-to k.key.pub --compression zstd:1").done();
    world.run("restore --from a --from b --key k.key --into sqlite:copy.db").done();
    fs::create_dir(world.at("streams")).unwrap();
    let line = "a/x-1 a/x-3 a/x-5 b/x-2 b/x-4 --stream-into streams --key k.key";
    let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let Some(ended) = python(&world, "new media with the independent reader", &arguments) else { return };
    ended.done();
    assert_eq!(digest(&world.at("streams/app.db")), digest(&world.at("copy.db")));
}

/// Has the independent writer make a full and its differential in `directory`; false where there is no Python.
pub fn sample(world: &World, directory: &str, options: &str) -> bool {
    fs::create_dir(world.at(directory)).unwrap();
    let line = format!("--sample {directory} {options}");
    let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    python(world, "media of the independent writer", &arguments).map(|ended| ended.done()).is_some()
}

#[test]
fn sets_of_the_independent_writer_are_verified() {
    let world = World::new();
    for (directory, options, key) in [
        ("plain", "", ""),
        ("sealed", "", "--key k.key"),
        ("ordered", "--ordered", ""),
        ("both", "--ordered", "--key k.key"),
    ] {
        if !sample(&world, directory, &format!("{options} {key}")) {
            return;
        }
        world.run(&format!("verify --from {directory} {key}")).done();
        let sets = world.run(&format!("list --from {directory} --json")).done().json();
        assert_eq!(sets.as_array().unwrap().len(), 2);
        // Two streams are no SQLite database: said, not guessed.
        world.run(&format!("restore --from {directory} {key} --into sqlite:copy.db")).refused(
            3,
            "media set",
            "one stream",
        );
        world.assert_no_copy();
    }
}

#[test]
fn open_sets_of_the_independent_writer_are_verified_and_restored() {
    let world = World::new();
    for (directory, options, key) in [
        ("plain", "", ""),
        ("sealed", "", "--key k.key"),
        ("ordered", "--ordered", ""),
        ("both", "--ordered", "--key k.key"),
    ] {
        if !sample(&world, directory, &format!("--open {options} {key}")) {
            return;
        }
        world.run(&format!("verify --from {directory} {key}")).done();
        let full = format!("--from {directory}/full-1of2.bore --from {directory}/full-2of2.bore");
        for (set, from) in [("full", full.as_str()), ("diff", &format!("--from {directory}"))] {
            world.run(&format!("restore {from} {key} --into dir:{directory}-{set}")).done();
            let expected = files_below(&world.at(&format!("{directory}/expected-{set}")));
            let mut found = files_below(&world.at(&format!("{directory}-{set}")));
            found.retain(|path, _| !path.starts_with("#clone")); // The engine's own marks.
            assert!(expected.len() > 3 && expected == found, "{:?} {:?}", expected.keys(), found.keys());
        }
    }
}

/// All files below a directory, with their bytes.
pub fn files_below(root: &Path) -> std::collections::BTreeMap<std::path::PathBuf, Vec<u8>> {
    let (mut found, mut left) = (std::collections::BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                found.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
#[ignore = "writes golden media of a new version of the format"]
fn write_the_golden_media() {
    let media = new_media("sqlite");
    let world = World::new();
    fs::create_dir(world.at("media")).unwrap();
    let shape = Shape { rows: 20, ..Shape::default() };
    database::make(&world.at("golden.db"), shape);
    database::sql(
        &world.at("golden.db"),
        "DROP TABLE words; VACUUM; DELETE FROM gone; DELETE FROM item WHERE id % 2 = 0",
    );
    world.run("key new --no-recovery media/golden.key").done();
    let mut digests = String::new();
    for (set, count, base) in SETS {
        let codec = set.split('-').next().unwrap().replace("encrypted", "zstd:3");
        let to: String = families(set, count).iter().map(|family| format!("--to {family} ")).collect();
        let sealed =
            if set.starts_with("encrypted") { "--encrypt-to media/golden.key.pub --key media/golden.key" } else { "" };
        let kind: String = base_of(base).iter().map(|family| format!("--kind=differential --base {family} ")).collect();
        let kind = if kind.is_empty() {
            kind
        } else {
            format!("--kind differential {}", kind.replace("--kind=differential ", ""))
        };
        if base.is_some() {
            database::sql(
                &world.at("golden.db"),
                &format!("UPDATE item SET name = '{set}' WHERE id = 7; INSERT INTO gone VALUES (NULL, zeroblob(3000))"),
            );
        }
        world.run(&format!("backup sqlite:golden.db {to} --compression {codec} --block-size 512 --max-transfer-size 64KiB --name golden {sealed} {kind}")).done();
        let from = [families(set, count), base_of(base)].concat();
        let from: String = from.iter().map(|family| format!("--from {family} ")).collect();
        world.run(&format!("restore {from} --into sqlite:{set}.db {}", key_for(set))).done();
        database::assert_same_file(&world.at("golden.db"), &world.at(&format!("{set}.db")));
        digests += &format!("{set} {}\n", digest(&world.at(&format!("{set}.db"))));
    }
    for name in world.names("media") {
        fs::copy(world.at("media").join(&name), media.join(&name)).unwrap();
    }
    fs::write(media.join("digests"), digests).unwrap();
    let bytes: u64 = fs::read_dir(&media).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < 200 << 10, "{bytes} bytes of golden media");
}
