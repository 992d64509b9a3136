//! `fullbore copy` between devices: as it is and made anew, whole chains, and what a damaged source never becomes.

use std::fs;
use std::time::Instant;

use fullbore_test_servers::wait_until;
use serde_json::Value;

use crate::database::{self, Shape};
use crate::program;
use crate::world::World;

/// A full in `a/`, in this many stripes; `c/` is empty.
fn world(options: &str) -> World {
    let world = World::with_database();
    fs::create_dir(world.at("c")).unwrap();
    world.run(&format!("backup sqlite:app.db --to a/ {options}")).done();
    world
}

fn list(world: &World, from: &str) -> Vec<Value> {
    world.run(&format!("list {from} --json")).done().json().as_array().unwrap().clone()
}

#[track_caller]
fn how(report: &Value) -> Vec<&str> {
    report["copied"].as_array().unwrap().iter().map(|copy| copy["how"].as_str().unwrap()).collect()
}

/// Nothing of a copy: no family, no working name.
#[track_caller]
fn assert_nothing_came(world: &World) {
    assert_eq!(world.names("c"), Vec::<String>::new());
}

/// The bytes of the families in a directory, sorted by name.
fn bytes(world: &World, directory: &str) -> Vec<Vec<u8>> {
    world.names(directory).iter().map(|name| world.read(&format!("{directory}/{name}"))).collect()
}

#[test]
fn a_set_is_copied_as_it_is_byte_for_byte() {
    for options in ["", "--stripes 3 --compression none", "--stripes 2 --compression zstd:3 --max-transfer-size 64KiB"]
    {
        let world = world(options);
        let report = world.run("copy --from a --to c/ --report json").done().json();
        assert_eq!(how(&report), ["as it is"]);
        assert_eq!(report["copied"][0]["from_media_set_id"], report["copied"][0]["media_set_id"]);
        assert!(bytes(&world, "a") == bytes(&world, "c"), "{options}: other bytes than those of the source");
        world.run("verify --from c").done();
        world.assert_restores("--from c");
        // Both at once: a copy of each family is passed over and said.
        world.run("restore --from a --from c --into sqlite:copy.db").done().says(&["is a copy of"]);
        // Again: it is there already.
        let again = world.run("copy --from a --to c/ --report json").done();
        assert_eq!(how(&again.json()), ["there already"]);
        again.says(&["is already there, as it is"]);
        let text = world.run("copy --from a --to c/").done().text();
        assert!(text.starts_with("COPY: stored nothing") && !text.contains("limit"), "nothing has a limit: {text}");
    }
}

#[test]
fn a_copy_goes_to_files_that_are_named_and_back_into_one() {
    let world = world("--stripes 2");
    world.run("copy --from a --to c/1.bore --to c/2.bore").done();
    assert_eq!(world.names("c"), ["1.bore", "2.bore"]);
    world.assert_restores("--from c");
    world.run("copy --from c --to one.bore").done();
    world.assert_restores("--from one.bore");
    world.run("copy --from one.bore --to nul:").done();
    let line = "copy --from a --to - --stripes 1";
    let piped = program::run(program::command(world.folder(), line.split_whitespace())).done();
    world.write("piped.bore", &piped.out);
    world.assert_restores("--from piped.bore");
    world.run("copy --from - --to c/").refused(2, "--from -", "put the stream into a file");
}

#[test]
fn other_stripes_codecs_and_keys_hold_the_same_backup_set() {
    let world = world("--stripes 4 --compression none");
    world.run("key new --no-recovery one.key").done();
    world.run("key new --no-recovery two.key").done();
    let first = list(&world, "--from a").remove(0);
    // Each from the one before: what a step has lost the next would not find.
    let steps = [
        ("a", "--stripes 1", ""),
        ("s0", "--stripes 8", ""),
        ("s1", "--compression lz4", ""),
        ("s2", "--compression zstd:3 --stripes 3", ""),
        ("s3", "--encrypt-to one.key.pub", "--key one.key"),
        ("s4", "--key one.key --encrypt-to two.key.pub --stripes 2", "--key two.key"),
        ("s5", "--key two.key --encrypt-to one.key.pub --encrypt-to two.key.pub --compression gzip:1", "--key one.key"),
        ("s6", "--key one.key --decrypt --compression none --stripes 5", ""),
    ];
    for (number, (from, change, key)) in steps.into_iter().enumerate() {
        let to = format!("s{number}");
        let report = world.run(&format!("copy --from {from} --to {to}/ --mkdir {change} --report json")).done().json();
        assert_eq!(how(&report), ["made anew"], "{change}");
        world.run(&format!("verify --from {to} {key}")).done();
        world.assert_restores(&format!("--from {to} {key}"));
        let copy = list(&world, &format!("--from {to}")).remove(0);
        assert_eq!(copy["backup_set_id"], first["backup_set_id"]);
        assert_eq!(copy["started_at"], first["started_at"]);
        assert_ne!(copy["media_set_id"], first["media_set_id"]);
    }
    assert_eq!(list(&world, "--from s6")[0]["encrypted"], true);
    assert_eq!(list(&world, "--from s7")[0]["families"], 5);
    world.run("restore --from s4 --key two.key --into sqlite:copy.db").with_code(1);
}

#[test]
fn every_page_size_shape_and_transfer_size_survives_being_made_anew() {
    for (page_size, transfer) in [(512, "64KiB"), (4096, "64KiB"), (65536, "1MiB"), (1024, "256KiB")] {
        let world = World::with_shape(Shape { page_size, rows: 1500, ..Shape::default() });
        world.run("key new --no-recovery k.key").done();
        world.run(&format!("backup sqlite:app.db --to a/ --compression none --max-transfer-size {transfer}")).done();
        database::change(&world.at("app.db"), 1);
        // Every other page: the blocks of the differential have as many runs as fit.
        database::sql(&world.at("app.db"), "UPDATE item SET blob = randomblob(length(blob)) WHERE id % 2");
        world
            .run(&format!(
                "backup sqlite:app.db --to a/ --compression none --max-transfer-size {transfer} --kind differential --base a"
            ))
            .done();
        world.run("copy --from a --to b/ --encrypt-to k.key.pub --stripes 2").done();
        world.run("verify --from b --key k.key").done();
        world.assert_restores("--from b --key k.key");
    }
}

#[test]
fn differentials_and_log_sets_stand_on_a_copy_and_a_copy_is_the_base_of_others() {
    let world = World::with_shape(Shape { rows: 300, ..Shape::default() });
    let app = crate::log::kept_open(&world);
    app.execute_batch("CREATE TABLE ledger (n INTEGER PRIMARY KEY, t TEXT)").unwrap();
    let commit = |n: i64| app.execute_batch(&format!("INSERT INTO ledger VALUES ({n}, 'row')")).unwrap();
    world.run("backup sqlite:app.db --to a/full.bore").done();
    commit(1);
    world.run("backup sqlite:app.db --kind differential --base a --to a/differential.bore").done();
    commit(2);
    world.run("backup sqlite:app.db --kind log --base a --to a/log.bore").done();
    // The whole chain, its full first.
    let report =
        world.run("copy --from a --to c/ --mkdir --stripes 2 --compression zstd:1 --report json").done().json();
    let kinds: Vec<_> = report["copied"].as_array().unwrap().iter().map(|copy| copy["kind"].clone()).collect();
    assert_eq!(kinds, ["full", "differential", "log"]);
    let rows = |from: &str| {
        world.run(&format!("restore {from} --into sqlite:copy.db")).done();
        let rows = database::number(&world.at("copy.db"), "SELECT count(*) FROM ledger");
        for name in ["copy.db", "copy.db-wal", "copy.db-shm"] {
            let _ = fs::remove_file(world.at(name)); // The side files may not be there.
        }
        rows
    };
    assert_eq!(rows("--from c"), 2);
    // Each part of the chain from the other side.
    for from in [
        "--from a/full.bore --from c",
        "--from a/full.bore --from a/differential.bore --from c --latest",
        "--from a --from c",
    ] {
        assert_eq!(rows(from), 2, "{from}");
    }
    // What is made now, on the copy alone.
    commit(3);
    world.run("backup sqlite:app.db --kind log --base c --to b/log.bore").done();
    assert_eq!((rows("--from c --from b"), rows("--from a --from b")), (3, 3));
    commit(4);
    world.run("backup sqlite:app.db --kind differential --base c --to b/differential.bore").done();
    assert_eq!((rows("--from c --from b"), rows("--from a --from b")), (4, 4));
}

#[test]
fn a_restore_reads_the_original_or_its_copy_and_names_the_other() {
    let world = world("");
    world.run("copy --from a --to c/ --stripes 2").done();
    let restored = world.run("restore --from a --from c --into sqlite:copy.db").done();
    restored.says(&["has several copies: fullbore reads media set", "not its copy"]);
    world.assert_copy();
    fs::remove_file(world.at("copy.db")).unwrap();
    let sets = list(&world, "--from a --from c");
    assert_eq!(sets.len(), 2);
    assert_eq!(sets[0]["backup_set_id"], sets[1]["backup_set_id"]);
    // By its media set each of them can be asked for, and is read then.
    for set in &sets {
        let id = set["media_set_id"].as_str().unwrap();
        let line = format!("restore --from a --from c --set {id} --into sqlite:copy.db --dry-run --report json");
        assert_eq!(world.run(&line).done().json()["media_set_id"], id);
    }
    // Where one of them is damaged, the other one does it.
    fs::remove_file(world.at(&format!("c/{}", world.names("c")[1]))).unwrap();
    world.run("restore --from a --from c --into sqlite:copy.db").done();
    world.assert_copy();
    fs::remove_file(world.at("copy.db")).unwrap();
    let family = world.names("a").remove(0);
    world.run("copy --from a --to d/ --mkdir --stripes 2").done();
    fs::remove_file(world.at(&format!("a/{family}"))).unwrap();
    world.assert_restores("--from a --from d");
}

#[test]
fn an_encrypted_set_is_copied_without_its_key_and_every_stored_byte_of_it_is_checked() {
    let world = World::with_database();
    for name in ["one", "two"] {
        world.run(&format!("key new --no-recovery {name}.key")).done();
    }
    world.run("backup sqlite:app.db --to a/ --stripes 3 --encrypt-to one.key.pub").done();
    world.run("key rewrap --from a --key one.key --encrypt-to two.key.pub").done();
    world.run("copy --from a --to c/ --mkdir").done();
    assert!(bytes(&world, "a") == bytes(&world, "c"));
    world.assert_restores("--from c --key one.key");
    // Also the keys that were wrapped later have come along.
    world.assert_restores("--from c --key two.key");
    world.run("copy --from a --to d/ --mkdir --key one.key").done();
    world.assert_restores("--from d --key one.key");
    world.run("copy --from a --to b/ --stripes 2").refused(2, "backup set", "--encrypt-to");
    world.run("copy --from a --to b/ --stripes 2 --decrypt").refused(1, "media set", "no key was given");
    world.run("copy --from a --to b/ --stripes 2 --decrypt --key c.key").with_code(2);
    assert_eq!(world.names("b"), Vec::<String>::new());
    let family = world.names("c").into_iter().find(|name| name.ends_with(".bore")).unwrap();
    let whole = world.read(&format!("c/{family}"));
    for at in places(whole.len()) {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        world.write(&format!("c/{family}"), &flipped);
        let ended = world.run("copy --from c --to e/ --mkdir");
        assert_eq!(ended.code, 3, "byte {at} of {}: {ended}", whole.len());
        // A file that does not begin like a family is none: then one of the set is missing.
        assert!(ended.err.contains(&family) || ended.err.contains("of 3 missing"), "{ended}");
        assert!(!world.at("e").exists() || world.names("e").is_empty(), "byte {at}: {:?}", world.names("e"));
    }
}

/// Places all over a family: its header, blocks, index, manifest, trailer, padding and footer.
fn places(length: usize) -> Vec<usize> {
    let ends = [4, 40, 252, 300, 4000, 4096, 4100, 4170, 4300];
    let from_end = [1, 5, 100, 2000, 4000, 4095, 4096, 4100, 4200, 4700, 5300, 6000];
    let even = (1..16).map(|at| length / 16 * at);
    ends.into_iter().chain(from_end.into_iter().map(|at| length - at)).chain(even).collect()
}

#[test]
fn a_flipped_bit_anywhere_in_the_source_never_becomes_a_copy() {
    for options in ["--compression none", "--compression lz4"] {
        let world = World::with_small_set(&format!("{options} --to b/second.bore"));
        fs::create_dir(world.at("c")).unwrap();
        let whole = world.read("b/second.bore");
        for at in places(whole.len()) {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            world.write("b/second.bore", &flipped);
            for change in ["", "--stripes 1", "--compression zstd:1"] {
                let ended = world.run(&format!("copy --from a --from b --to c/ {change}"));
                assert_eq!(ended.code, 3, "{options} {change}: byte {at} of {}: {ended}", whole.len());
                assert!(ended.err.contains("b/second.bore") || ended.err.contains("of 2"), "byte {at}: {ended}");
                assert_nothing_came(&world);
            }
        }
    }
}

#[test]
fn a_source_that_is_cut_or_lacks_a_family_is_named_and_nothing_comes() {
    let world = world("--stripes 3");
    let names = world.names("a");
    let last = world.read(&format!("a/{}", names[2]));
    world.write(&format!("a/{}", names[2]), &last[..last.len() - 4096]);
    world.run("copy --from a --to c/").with_code(3).says(&[&names[2]]);
    fs::remove_file(world.at(&format!("a/{}", names[2]))).unwrap();
    for change in ["", "--stripes 1"] {
        world.run(&format!("copy --from a --to c/ {change}")).with_code(3).says(&["family 3 of 3 missing"]);
    }
    assert_nothing_came(&world);
    world.run("copy --from b --to c/").with_code(2).says(&["no backup set"]);
}

#[test]
fn nothing_is_overwritten_without_init_and_nothing_is_copied_over_itself() {
    let world = world("");
    world.run("backup sqlite:app.db --to c/old.bore").done();
    let old = world.read("c/old.bore");
    world.run("copy --from a --to c/old.bore").refused(1, "c/old.bore", "exists");
    world.run("copy --from a --to c/old.bore --compression zstd:1").refused(1, "c/old.bore", "exists");
    assert!(world.read("c/old.bore") == old);
    assert_eq!(world.names("c"), ["old.bore"]);
    world.run("copy --from a --to c/old.bore --init").done();
    assert_eq!(world.names("c"), ["old.bore"]);
    assert!(world.read("c/old.bore") == bytes(&world, "a")[0]);
    let family = world.names("a").remove(0);
    world.run(&format!("copy --from a --to a/{family} --init")).refused(2, &family, "is a family of the set");
    world.run("copy --from a --to a/").refused(2, &family, "is a family of the set");
    world.run("copy --from a --to missing/").refused(2, "missing", "mounted");
    world.write("c/diary", b"no family at all");
    world.run("copy --from a --to c/diary --init").refused(1, "c/diary", "is not a media family");
}

#[test]
fn copy_takes_the_named_sets() {
    let world = world("");
    database::change(&world.at("app.db"), 1);
    world.run("backup sqlite:app.db --to a/ --kind differential --base a").done();
    let sets = list(&world, "--from a");
    let id = |at: usize| sets[at]["backup_set_id"].as_str().unwrap().to_owned();
    let plan = world.run("copy --from a --to c/ --dry-run").done().text();
    assert!(plan.contains("1. full") && plan.contains("2. differential") && plan.contains("as it is"), "{plan}");
    assert_nothing_came(&world);
    let kinds = |options: &str| -> Vec<String> {
        let report = world.run(&format!("copy --from a --to c/ --dry-run --report json {options}")).done().json();
        assert_eq!(report["status"], "planned");
        report["copied"].as_array().unwrap().iter().map(|copy| copy["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&format!("--set {}", id(1))), ["differential"]);
    assert_eq!(kinds(&format!("--set {} --chain", id(1))), ["full", "differential"]);
    assert_eq!(kinds(&format!("--set {}", id(0))), ["full"]);
    assert_eq!(kinds("--latest"), ["differential"]);
    assert_eq!(kinds("--latest --chain"), ["full", "differential"]);
    world.run("copy --from a --to c/one.bore").refused(2, "c/one.bore", "2 sets");
    world.run("copy --from a --to c/ --set nothing").refused(2, "--set nothing", "no such set");
    world.run(&format!("copy --from a --to c/ --set {}", id(1))).done();
    world.run("verify --from c").with_code(3).says(&["its own bytes are right", "its full"]);
}

#[test]
fn a_set_in_clear_does_not_come_in_clear_where_the_configuration_says_otherwise() {
    let world = world("");
    world.run("key new --no-recovery k.key").done();
    world.write("fullbore.toml", b"encrypt-to = [\"k.key.pub\"]\n");
    world.run("copy --from a --to c/").done();
    assert_eq!(list(&world, "--from c")[0]["encrypted"], true);
    world.assert_restores("--from c --key k.key");
}

#[test]
fn killed_at_any_moment_a_copy_leaves_the_source_whole_and_can_be_made_again() {
    let world = World::with_shape(Shape { rows: 30_000, ..Shape::default() });
    fs::create_dir(world.at("c")).unwrap();
    world.run("backup sqlite:app.db --to a/ --stripes 3 --compression none").done();
    let source = bytes(&world, "a");
    for change in ["", "--stripes 2"] {
        let line = format!("copy --from a --to c/ {change}");
        let begun = Instant::now();
        world.run(&line).done();
        let whole = begun.elapsed();
        world.names("c").iter().for_each(|name| fs::remove_file(world.at(&format!("c/{name}"))).unwrap());
        for round in 0..12 {
            let running = world.start(&line);
            std::thread::sleep(whole.mul_f64(f64::from(round) / 11.0));
            running.signal("KILL");
            running.wait();
            // Whatever is there looks whole only where it is.
            let seen = world.run("restore --from c --into sqlite:copy.db --latest");
            if seen.code == 0 {
                world.assert_copy();
                fs::remove_file(world.at("copy.db")).unwrap();
            }
            let again = world.run(&line);
            assert!([0, 4].contains(&again.code), "{again}");
            let is_unfinished = || world.names("c").iter().any(|name| name.contains(".new-"));
            if is_unfinished() {
                // The kernel may hold the files of a killed process a moment longer than the process: then the next run takes them away.
                world.run(&line);
            }
            assert!(!is_unfinished(), "{:?}", world.names("c"));
            let restored = world.run("restore --from c --into sqlite:copy.db --latest");
            assert!([0, 4].contains(&restored.code), "{restored}");
            world.assert_copy();
            fs::remove_file(world.at("copy.db")).unwrap();
            if round % 2 == 0 {
                world.names("c").iter().for_each(|name| fs::remove_file(world.at(&format!("c/{name}"))).unwrap());
            }
        }
        world.names("c").iter().for_each(|name| fs::remove_file(world.at(&format!("c/{name}"))).unwrap());
    }
    assert!(bytes(&world, "a") == source);
}

#[test]
fn a_killed_copy_beside_a_part_of_its_source_costs_the_source_nothing() {
    // Family 1 in a/, family 2 in b/; the copy goes to b/ too. What is unfinished of it there is no proof that the set was never
    // committed.
    let world = World::with_shape(Shape { rows: 30_000, ..Shape::default() });
    world.run("backup sqlite:app.db --to a/1.bore --to b/2.bore --compression none").done();
    let slow = world.start("copy --from a --from b --to b/ --stripes 2 --throttle 64KiB/s");
    world.media_written("b");
    slow.signal("KILL");
    slow.wait();
    world.run("backup sqlite:app.db --to b/").done().says(&["an unfinished file of a killed backup"]);
    assert!(world.names("b").contains(&"2.bore".to_owned()), "{:?}", world.names("b"));
    world.run("verify --from a/1.bore --from b/2.bore").done();
}

#[test]
fn families_that_a_killed_copy_has_finished_are_compared_and_kept() {
    let world = world("--stripes 3");
    world.run("copy --from a --to c/").done();
    let names = world.names("c");
    fs::remove_file(world.at(&format!("c/{}", names[0]))).unwrap();
    let before = fs::metadata(world.at(&format!("c/{}", names[1]))).unwrap().modified().unwrap();
    world.run("copy --from a --to c/").done();
    assert!(bytes(&world, "a") == bytes(&world, "c"));
    let after = fs::metadata(world.at(&format!("c/{}", names[1]))).unwrap().modified().unwrap();
    assert_eq!(before, after, "what stood there was written again");
    // What has the same ends and another middle is no family of this set.
    fs::remove_file(world.at(&format!("c/{}", names[0]))).unwrap();
    let mut other = world.read(&format!("c/{}", names[1]));
    let middle = other.len() / 2;
    other[middle] ^= 1;
    world.write(&format!("c/{}", names[1]), &other);
    world.run("copy --from a --to c/").refused(1, &names[1], &format!("differs at byte {middle}"));
    assert_eq!(world.names("c"), names[1..]);
}

#[test]
fn a_signal_ends_a_copy_and_leaves_nothing() {
    for change in ["", "--compression zstd:1"] {
        let world = world("--compression none");
        let running = world.start(&format!("copy --from a --to c/ --throttle 64KiB/s {change}"));
        wait_until("something is begun", || !world.names("c").is_empty());
        running.signal("TERM");
        running.wait().with_code(143);
        assert_nothing_came(&world);
    }
}

#[test]
fn a_full_disk_ends_a_copy_and_leaves_nothing() {
    use crate::small_disk::SmallDisk;
    let world = World::with_shape(Shape { rows: 30_000, ..Shape::default() });
    world.run("backup sqlite:app.db --to a/ --compression none --stripes 2").done();
    let name = "a_full_disk_ends_a_copy_and_leaves_nothing";
    let Some(disk) = SmallDisk::mount(&world, "small", 4, name) else { return };
    for change in ["", "--stripes 1"] {
        // Seen beforehand.
        world.run(&format!("copy --from a --to small/ {change}")).refused(1, "small", "free");
        assert_eq!(disk.names(), Vec::<String>::new());
    }
}
