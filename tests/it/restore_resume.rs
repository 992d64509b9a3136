//! `restore --resume`: what a killed restore has left is proven page by page, and only the rest is fetched.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use fullbore_core::media::{BLOCK_HEADER, BlockBody, BlockHeader, BlockKind, FamilyHeader};
use fullbore_test_servers::{At, Fault, FaultProxy, ObjectStore, Plan, StoreKind, StoreOptions, wait_until};
use rusqlite::Connection;

use crate::database::{self, Shape};
use crate::forge::forge;
use crate::program::{self, Ended};
use crate::world::World;

/// What a killed restore into `copy.db` leaves.
const LEFT: &str = "copy.db.restoring-1a2b3c";
const CHUNK: usize = 1 << 20;
const RESUME: &str = "restore --from a --from b --into sqlite:copy.db --resume";

/// What was left, and how that comes about.
type Case<'a> = (&'a str, &'a dyn Fn(&World));

/// Several chunks, in two families.
fn with_set(options: &str) -> World {
    let world = World::with_shape(Shape { rows: 20_000, ..Shape::default() });
    world
        .run(&format!("backup sqlite:app.db --to a/app.bore --to b/app.bore --max-transfer-size 128KiB {options}"))
        .done();
    world
}

/// A whole database under the working name.
fn leave_all(world: &World, options: &str) {
    world.run(&format!("restore --from a --from b --into sqlite:copy.db {options}")).done();
    fs::rename(world.at("copy.db"), world.at(LEFT)).unwrap();
}

fn flip(world: &World, name: &str, offset: u64) {
    let file = File::options().read(true).write(true).open(world.at(name)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], offset).unwrap();
}

/// The restored database is right, and nothing else is there.
#[track_caller]
fn assert_done(world: &World) {
    world.assert_copy();
    let names: Vec<String> = world.names(".").into_iter().filter(|name| name.starts_with("copy.db")).collect();
    assert_eq!(names, ["copy.db"]);
}

fn number(ended: &Ended, field: &str) -> u64 {
    ended.json()["resumed"][field].as_u64().unwrap_or_else(|| panic!("no {field}: {ended}"))
}

#[test]
fn a_restore_that_is_killed_again_and_again_comes_to_its_end() {
    let world = with_set("");
    let begun = Instant::now();
    world.run(RESUME).done().says(&["no leftover of an interrupted restore"]);
    let whole = begun.elapsed();
    assert_done(&world);
    fs::remove_file(world.at("copy.db")).unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..4 {
        for _ in 0..4 {
            let running = world.start(RESUME);
            std::thread::sleep(whole.mul_f64(random.f64()));
            running.signal("KILL");
            let ended = running.wait();
            assert!([0, 4, -9].contains(&ended.code), "{ended}");
            if world.at("copy.db").exists() {
                break;
            }
        }
        if !world.at("copy.db").exists() {
            let ended = world.run(RESUME);
            assert!([0, 4].contains(&ended.code), "round {round}: {ended}");
        }
        world.assert_copy();
        for name in world.names(".").into_iter().filter(|name| name.starts_with("copy.db")) {
            fs::remove_file(world.at(&name)).unwrap(); // Also what was killed before it held anything.
        }
    }
}

#[test]
fn a_restore_over_any_leftover_gives_the_database() {
    let world = with_set("--compression lz4");
    leave_all(&world, "");
    let whole = world.read(LEFT);
    let other = World::with_shape(Shape { rows: 21_000, ..Shape::default() });
    let sparse = |world: &World| File::create(world.at(LEFT)).unwrap().set_len(whole.len() as u64).unwrap();
    let cases: [Case<'_>; 8] = [
        ("all of it", &|world| world.write(LEFT, &whole)),
        ("all of it, and more", &|world| world.write(LEFT, &[&whole[..], &[7; 3 * CHUNK]].concat())),
        ("its beginning", &|world| world.write(LEFT, &whole[..whole.len() / 2 + 77])),
        ("one byte", &|world| world.write(LEFT, b"S")),
        ("nothing but its length", &sparse),
        ("another database", &|world| world.write(LEFT, &other.read("app.db"))),
        ("noise", &|world| world.write(LEFT, &(0..whole.len()).map(|_| fastrand::u8(..)).collect::<Vec<_>>())),
        ("all of it but for flipped bits", &|world| {
            world.write(LEFT, &whole);
            (0..3).for_each(|at| flip(world, LEFT, (at * 2 * CHUNK + 4711) as u64));
            flip(world, LEFT, whole.len() as u64 - 1);
        }),
    ];
    for (what, make) in cases {
        make(&world);
        let ended = world.run(&format!("{RESUME} --integrity-check --report json")).done();
        let (kept, fetched) = (number(&ended, "kept_bytes"), number(&ended, "fetched_blocks"));
        match what {
            "all of it" | "all of it, and more" => assert_eq!((kept, fetched), (whole.len() as u64, 0), "{what}"),
            "noise" | "one byte" => assert!(kept == 0 && fetched > 0, "{what}: {ended}"),
            "its beginning" => assert!(kept as usize >= whole.len() / 2 - CHUNK, "{what}: {ended}"),
            "all of it but for flipped bits" => {
                assert!(kept as usize >= whole.len() - 4 * CHUNK && kept > 0 && fetched > 3, "{what}: {ended}");
            }
            _ => assert!(fetched > 0, "{what}: {ended}"),
        }
        assert_done(&world);
        fs::remove_file(world.at("copy.db")).unwrap();
    }
}

#[test]
fn codecs_keys_stripes_and_page_sizes_are_gone_on_with() {
    for (page_size, options, key) in [
        (512, "--compression none", ""),
        (65536, "--compression zstd --to a/third.bore", ""),
        (4096, "--compression lz4 --encrypt-to k.key.pub", "--key k.key"),
        (1024, "--compression none --encrypt-to k.key.pub", "--key k.key"),
    ] {
        let world = World::with_shape(Shape { rows: 12_000, page_size, ..Shape::default() });
        world.run("key new --no-recovery k.key").done();
        world.run(&format!("backup sqlite:app.db --to a/app.bore --to b/app.bore {options}")).done();
        leave_all(&world, key);
        flip(&world, LEFT, 2 * CHUNK as u64 + 5);
        let ended = world.run(&format!("{RESUME} {key} --report json")).done();
        assert!(number(&ended, "kept_bytes") > 0 && number(&ended, "fetched_blocks") > 0, "{ended}");
        assert_done(&world);
    }
}

#[test]
fn differentials_and_logs_come_on_top_of_what_was_gone_on_with() {
    let world = World::with_shape(Shape { rows: 20_000, ..Shape::default() });
    let app = crate::log::kept_open(&world);
    world.run("backup sqlite:app.db --to a/full.bore").done();
    app.execute_batch("UPDATE item SET name = 'changed ' || id WHERE id % 97 = 0").unwrap();
    world.run("backup sqlite:app.db --kind differential --base a --to a/diff.bore").done();
    app.execute_batch("DELETE FROM pair WHERE v % 5 = 0; CREATE TABLE late AS SELECT 1 AS one").unwrap();
    world.run("backup sqlite:app.db --kind log --base a --to a/log.bore").done();
    world.run("restore --from a --latest --into sqlite:copy.db").done();
    let expected = world.read("copy.db");
    // Killed at its last step, with what a log set needs beside it.
    fs::rename(world.at("copy.db"), world.at(LEFT)).unwrap();
    for part in ["groups", "frames"] {
        world.write(&format!("{LEFT}.{part}"), b"of a killed run");
    }
    let ended = world.run("restore --from a --latest --into sqlite:copy.db --resume --report json").done();
    assert!(number(&ended, "kept_bytes") > 0, "{ended}");
    assert!(world.read("copy.db") == expected);
    assert_eq!(database::number(&world.at("copy.db"), "SELECT count(*) FROM late"), 1);
    assert!(!world.names(".").iter().any(|name| name.contains("restoring")));
}

#[test]
fn files_of_a_running_restore_are_left_alone() {
    let world = with_set("");
    leave_all(&world, "");
    let running = fullbore_core::io::LockableFile::from(File::open(world.at(LEFT)).unwrap());
    running.try_lock().unwrap();
    let before = world.read(LEFT);
    world.run(RESUME).refused(1, LEFT, "a running restore").says(&["wait until"]);
    assert!(world.read(LEFT) == before && !world.at("copy.db").exists());
    drop(running);
    world.run(RESUME).done();
    assert_done(&world);
}

#[test]
fn a_link_and_a_file_of_two_names_are_not_written_through() {
    let world = with_set("");
    world.write("precious", &vec![9; 5000]);
    fs::hard_link(world.at("precious"), world.at(LEFT)).unwrap();
    std::os::unix::fs::symlink(world.at("precious"), world.at("copy.db.restoring-ff")).unwrap();
    world.run(RESUME).with_code(4).says(&["no leftover of an interrupted restore", "the leftover of a killed restore"]);
    world.assert_copy();
    assert!(world.read("precious") == vec![9; 5000]);
}

#[test]
fn damage_in_what_is_fetched_is_said_and_what_was_restored_stays_for_another_copy() {
    let world = with_set("--compression none");
    leave_all(&world, "");
    flip(&world, LEFT, CHUNK as u64 + 9);
    let good = world.read("a/app.bore");
    let block = data_blocks(&good).into_iter().find(|(_, stream)| stream.contains(&(CHUNK as u64 + 9)));
    let Some((place, _)) = block else {
        // It is in the other family: damage there is the same.
        return assert!(
            data_blocks(&world.read("b/app.bore")).iter().any(|(_, stream)| stream.contains(&(CHUNK as u64 + 9)))
        );
    };
    flip(&world, "a/app.bore", place.end - 1);
    world.run(RESUME).refused(3, "a/app.bore", "checksum").says(&["stays", "--resume"]);
    assert!(!world.at("copy.db").exists() && world.at(LEFT).exists());
    world.write("a/app.bore", &good);
    world.run(RESUME).done();
    assert_done(&world);
}

#[test]
fn a_page_map_that_is_wrong_or_damaged_is_said_with_the_way_out() {
    for forged in [true, false] {
        let world = with_set("--compression none");
        leave_all(&world, "");
        if forged {
            forge(&world, &["a/app.bore", "b/app.bore"], None, |families| {
                let map = families.iter_mut().flat_map(|family| family.of(BlockKind::Map)).next().unwrap();
                map.plain[20] ^= 1;
            });
            world.run(RESUME).refused(3, "full ", "page map").says(&["restore without --resume", "stays"]);
        } else {
            let name = ["a/app.bore", "b/app.bore"]
                .into_iter()
                .find(|name| !blocks(&world.read(name), BlockKind::Map).is_empty());
            let (place, _) = blocks(&world.read(name.unwrap()), BlockKind::Map).remove(0);
            flip(&world, name.unwrap(), place.end - 1);
            // What is damaged stands against a restore of everything, too.
            world.run(RESUME).refused(3, name.unwrap(), "checksum").says(&["another copy of this family", "stays"]);
            continue;
        }
        world.run("restore --from a --from b --into sqlite:copy.db").with_code(4).says(&["continue it with --resume"]);
        world.assert_copy();
    }
}

#[test]
fn a_database_in_use_is_not_replaced_and_nothing_has_to_be_fetched_again() {
    let world = with_set("");
    leave_all(&world, "");
    database::make(&world.at("copy.db"), Shape { rows: 300, ..Shape::default() });
    let user = Connection::open(world.at("copy.db")).unwrap();
    user.execute_batch("BEGIN IMMEDIATE; UPDATE item SET name = 'mine' WHERE id = 1").unwrap();
    world.run(&format!("{RESUME} --replace")).refused(1, "copy.db", "in use").says(&["stays"]);
    user.execute_batch("COMMIT").unwrap();
    drop(user);
    let ended = world.run(&format!("{RESUME} --replace --report json")).done();
    assert_eq!(number(&ended, "fetched_blocks"), 0, "{ended}");
    assert_done(&world);
}

#[test]
fn a_plan_says_what_would_be_kept_and_touches_nothing() {
    let world = with_set("");
    world.run(&format!("{RESUME} --dry-run")).done().says(&["no leftover of an interrupted restore"]);
    leave_all(&world, "");
    flip(&world, LEFT, 3);
    let before = world.read(LEFT);
    world.run(&format!("{RESUME} --dry-run")).done().says(&[LEFT, "would be kept"]);
    assert!(world.read(LEFT) == before && !world.at("copy.db").exists());
}

#[test]
fn a_signal_leaves_what_was_restored_only_where_that_was_asked_for() {
    let world = with_set("");
    for (resume, stays) in [("--resume", true), ("", false)] {
        leave_all(&world, "");
        (0..6).for_each(|at| flip(&world, LEFT, at * CHUNK as u64));
        if !stays {
            fs::remove_file(world.at(LEFT)).unwrap();
        }
        let running = world.start(&format!("restore --from a --from b --into sqlite:copy.db {resume}"));
        running.signal("TERM");
        let ended = running.wait();
        // It may have ended, or not begun to listen, before the signal came.
        if ended.code == 143 {
            assert_eq!(world.names(".").iter().any(|name| name.contains("restoring")), stays, "{ended}");
        }
        for name in world.names(".").into_iter().filter(|name| name.starts_with("copy.db")) {
            fs::remove_file(world.at(&name)).unwrap();
        }
    }
}

#[test]
fn the_database_in_a_directory_is_gone_on_with() {
    let world = with_set("");
    fs::create_dir(world.at("out")).unwrap();
    leave_all(&world, "");
    fs::rename(world.at(LEFT), world.at("out/app.db.restoring-77")).unwrap();
    let line = "restore --from a --from b --into dir:out";
    world.run(line).refused(1, "out", "not empty");
    let ended = world.run(&format!("{line} --resume --report json")).done();
    assert_eq!((number(&ended, "fetched_blocks"), world.names("out")), (0, vec!["app.db".to_owned()]));
    database::assert_same_file(&world.at("app.db"), &world.at("out/app.db"));
}

#[test]
fn an_unsuitable_partial_restore_is_not_resumed() {
    let world = World::with_small_set("");
    world.run("restore --from - --into sqlite:copy.db --resume").refused(2, "--resume", "pipe");
    world.run("restore --from a --into nul: --resume").refused(2, "--resume", "nul:");
    world.assert_no_copy();
}

#[test]
fn a_disk_that_holds_most_of_it_already_has_room_for_the_rest() {
    let test = "a_disk_that_holds_most_of_it_already_has_room_for_the_rest";
    let world = with_set("");
    leave_all(&world, "");
    let mebibytes = (world.read(LEFT).len() / CHUNK) as u32 + 2;
    let Some(disk) = crate::small_disk::SmallDisk::mount(&world, "disk", mebibytes, test) else { return };
    fs::copy(world.at(LEFT), world.at("disk/copy.db.restoring-1")).unwrap();
    flip(&world, "disk/copy.db.restoring-1", CHUNK as u64);
    let line = "restore --from a --from b --into sqlite:disk/copy.db";
    world.run(line).refused(1, "disk", "are free");
    world.run(&format!("{line} --resume")).done();
    assert_eq!(disk.names(), ["copy.db"]);
    database::assert_same_file(&world.at("app.db"), &world.at("disk/copy.db"));
}

#[test]
fn one_of_two_runs_that_resume_at_once_wins() {
    let world = with_set("");
    leave_all(&world, "");
    (0..6).for_each(|at| flip(&world, LEFT, at * CHUNK as u64));
    let running: Vec<_> = (0..2).map(|_| world.start(RESUME)).collect();
    let ended: Vec<Ended> = running.into_iter().map(crate::program::Running::wait).collect();
    let mut codes: Vec<i32> = ended.iter().map(|ended| ended.code).collect();
    codes.sort_unstable();
    // The second finds the lock taken, or the database there.
    assert_eq!(codes, [0, 1], "{} {}", ended[0], ended[1]);
    world.assert_copy();
}

#[test]
fn a_set_without_a_page_map_is_restored_in_full_into_the_same_room() {
    let world = with_set("--compression none");
    leave_all(&world, "");
    forge(&world, &["a/app.bore", "b/app.bore"], None, |families| {
        let mut sequence = 0;
        for family in families.iter_mut() {
            family.header.set.streams[0].map_window = 0;
            family.blocks.retain(|block| block.header.kind != BlockKind::Map);
            for block in &mut family.blocks {
                block.header.sequence = sequence;
                sequence += 1;
            }
            for block in family.of(BlockKind::Manifest) {
                let mut manifest: serde_json::Value = serde_json::from_slice(&block.plain).unwrap();
                manifest["map"] = serde_json::Value::Null;
                manifest["streams"][0]["map_window"] = 0.into();
                block.plain = serde_json::to_vec(&manifest).unwrap();
            }
        }
    });
    world.run(&format!("{RESUME} --dry-run")).done().says(&["no page map", "would be restored"]);
    world.run(RESUME).done().says(&["no page map"]);
    assert_done(&world);
}

#[test]
fn a_chain_in_a_repository_is_gone_on_with() {
    let world = World::with_shape(Shape { rows: 12_000, ..Shape::default() });
    world.run("backup sqlite:app.db --repo a/").done();
    database::sql(&world.at("app.db"), "UPDATE item SET name = 'later' WHERE id % 500 = 0");
    world.run("backup sqlite:app.db --repo a/ --kind differential").done();
    world.run("restore --repo a/ --into sqlite:copy.db").done();
    fs::rename(world.at("copy.db"), world.at(LEFT)).unwrap();
    let ended = world.run("restore --repo a/ --into sqlite:copy.db --resume --report json").done();
    assert!(number(&ended, "kept_bytes") > 0, "{ended}");
    assert_done(&world);
}

#[test]
fn a_store_that_fails_now_and_then_does_not_stop_it() {
    let world = World::with_shape(Shape { rows: 20_000, ..Shape::default() });
    let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
    store.make_bucket("media");
    let at = |endpoint: &str, line: &str| {
        let mut command = program::command(world.folder(), line.split_whitespace());
        command.envs(store.environment_at(endpoint));
        program::run(command)
    };
    at(store.endpoint(), "backup sqlite:app.db --to s3://media/n/ --stripes 2 --max-transfer-size 64KiB").done();
    at(store.endpoint(), "restore --from s3://media/n/ --into sqlite:copy.db").done();
    fs::rename(world.at("copy.db"), world.at(LEFT)).unwrap();
    (0..8).for_each(|at| flip(&world, LEFT, at * CHUNK as u64 + 12_345));
    let faults = [Fault::INTERNAL_ERROR, Fault::slow_down(None), Fault::Truncate, Fault::Reset(At::Body)];
    let proxy = FaultProxy::start(store.endpoint(), Plan::seeded(11).per_cent(25).faults(&faults).rule());
    at(proxy.endpoint(), "restore --from s3://media/n/ --into sqlite:copy.db --resume --outage 60 --queue-depth 2")
        .done();
    assert!(proxy.faults() > 5, "{:?}", proxy.counts());
    assert_done(&world);
}

/// Blocks of one kind in a family without a cipher: where each stands, and the part of the stream that it spans.
fn blocks(family: &[u8], kind: BlockKind) -> Vec<(Range<u64>, Range<u64>)> {
    let mut at = FamilyHeader::length(family).unwrap();
    let transfer = FamilyHeader::decode(&family[..at]).unwrap().set.transfer_size;
    let mut found = Vec::new();
    loop {
        let header = BlockHeader::decode(&family[at..], transfer).unwrap();
        let end = at + header.block_length();
        if header.kind == kind {
            let body = BlockBody::decode(&header, &family[at + BLOCK_HEADER..end]).unwrap();
            let span = body.runs.first().unwrap().offset..body.runs.last().unwrap().end();
            found.push((at as u64..end as u64, span));
        }
        if header.kind == BlockKind::Trailer {
            return found;
        }
        at = end;
    }
}

fn data_blocks(family: &[u8]) -> Vec<(Range<u64>, Range<u64>)> {
    blocks(family, BlockKind::Data)
}

/// The chunks in which two files differ.
fn differing(one: &[u8], other: &[u8]) -> Vec<Range<u64>> {
    let chunk = |bytes: &[u8], at: usize| bytes.get(at..bytes.len().min(at + CHUNK)).unwrap_or_default().to_vec();
    let starts = (0..other.len()).step_by(CHUNK).filter(|&at| chunk(one, at) != chunk(other, at));
    starts.map(|at| at as u64..(at + CHUNK) as u64).collect()
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[test]
fn blocks_of_what_is_kept_are_not_fetched_again_from_a_store() {
    let world = World::with_shape(Shape { rows: 40_000, ..Shape::default() });
    let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
    store.make_bucket("media");
    let at = |endpoint: &str, line: &str| {
        let mut command = program::command(world.folder(), line.split_whitespace());
        command.envs(store.environment_at(endpoint));
        command
    };
    let line = "backup sqlite:app.db --to s3://media/n/ --stripes 2 --compression none --max-transfer-size 256KiB";
    program::run(at(store.endpoint(), line)).done();
    // The store falls silent in the middle, and the restore is killed.
    let proxy = FaultProxy::start(store.endpoint(), |request| match request.header("range").and_then(range) {
        // Whole blocks, and not what is read of the end of a family before.
        Some(range) if range.start >= 4 << 20 && range.end - range.start > 60_000 => Fault::Stall(At::Start),
        _ => Fault::Pass,
    });
    // Ranges of 1 MiB, for these families are shorter than what is asked for at once by itself.
    let line = "restore --from s3://media/n/ --into sqlite:copy.db --resume --queue-depth 8";
    let running = program::start(at(proxy.endpoint(), line));
    let stalled = || proxy.requests().iter().filter(|seen| matches!(seen.fault, Fault::Stall(_))).count();
    wait_until("requests without an answer", || stalled() >= 2);
    std::thread::sleep(Duration::from_millis(500));
    running.signal("KILL");
    assert_eq!(running.wait().code, -9);
    let name = world.names(".").into_iter().find(|name| name.contains("restoring")).unwrap();
    let left = world.read(&name);

    proxy.set_rule(|_| Fault::Pass);
    let before = proxy.requests().len();
    let ended = program::run(at(proxy.endpoint(), &format!("{line} --report json"))).done();
    assert_done(&world);
    let wrong = differing(&left, &world.read("copy.db"));
    let kept = number(&ended, "kept_bytes");
    assert!(kept >= CHUNK as u64 && number(&ended, "fetched_blocks") > 0, "{ended}");
    let size = world.read("copy.db").len() as u64;
    assert_eq!(kept, size - wrong.iter().map(|chunk| chunk.end.min(size) - chunk.start).sum::<u64>());
    let mut fetched = 0;
    for object in store.objects("media") {
        let family = store.client().get("media", &object.key).unwrap();
        let asked: Vec<Range<u64>> = proxy.requests()[before..]
            .iter()
            .filter(|seen| seen.request.operation() == "GetObject" && seen.request.path.ends_with(&object.key))
            .filter_map(|seen| range(seen.request.header("range")?))
            .collect();
        for (place, stream) in data_blocks(&family) {
            let wanted = wrong.iter().any(|chunk| meet(chunk, &stream));
            // Requests end where transfers do, not where blocks do; and a look at the header reads a little of the first block.
            let parts = asked.iter().filter(|range| meet(range, &place));
            let came: u64 = parts.map(|range| range.end.min(place.end) - range.start.max(place.start)).sum();
            assert_eq!(came >= place.end - place.start, wanted, "{place:?} of {}, for {stream:?}", object.key);
            fetched += u64::from(wanted);
        }
    }
    assert_eq!(fetched, number(&ended, "fetched_blocks"));
}

/// `bytes=FIRST-LAST`
fn range(header: &str) -> Option<Range<u64>> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    Some(first.parse().ok()?..last.parse::<u64>().ok()? + 1)
}
