//! `fullbore calibrate`: the profile, what is left behind, and what is refused.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use fullbore_model::profile::{self, Access, AccessPattern, Asked, Machine, Order, Profile, Use};
use fullbore_test_servers::{ObjectStore, StoreKind, StoreOptions, wait_until};
use serde_json::Value;

use crate::charts;
use crate::program;
use crate::small_disk::SmallDisk;
use crate::world::World;

/// Small, so that a test takes seconds: what is measured says little then, and no test asks how fast anything is.
const SMALL: &str = "--seconds 1 --space 32MiB";
const PROFILES: &str = "state/fullbore/profiles";

fn stored(world: &World, name: &str) -> Profile {
    profile::load(&[world.at(PROFILES)], name).unwrap()
}

#[test]
fn a_run_keeps_a_profile_that_the_model_can_use_and_leaves_nothing_else() {
    let world = World::with_database();
    let before = world.read("app.db");
    let ended = world.run(&format!("calibrate --read app.db --write a --write b {SMALL} --svg charts -v")).done();
    for word in ["sequential read", "sequential write", "at once", "zstd:1", "aes-256-gcm"] {
        assert!(ended.text().contains(word), "{word}: {ended}");
    }
    let short = world.run("calibrate --show --name default").done().text();
    assert!(short.lines().count() < ended.text().lines().count() && !short.contains("aes-256-gcm"), "{short}");
    let opening: Vec<&str> = short.lines().skip(1).take(6).map(str::trim_start).collect();
    let begins =
        ["reads up to ", "writes up to ", "both at once: ", "codecs: ", "a backup here reaches at most ", "next: "];
    assert!(opening.iter().zip(begins).all(|(line, begins)| line.starts_with(begins)), "{short}");
    assert!(opening[5].starts_with("next: fullbore advise SOURCE --to ") && short.contains("-v shows "), "{short}");
    world.assert_no_media();
    assert_eq!(world.read("app.db"), before, "what is only read stays as it was");
    let made = stored(&world, "default");
    assert_eq!(made.places.iter().map(|place| place.used).collect::<Vec<_>>(), [Use::Read, Use::Write, Use::Write]);
    assert_eq!(made.together.len(), 2);
    assert_eq!(made.places[2].cells.len(), 2, "most ways of a file system are measured once");
    ended.says(&["is in the file system of an earlier --write: measurements of one count for both"]);
    for place in &made.places {
        let has = |way, order| place.cells.iter().any(|cell| (cell.shape.way, cell.shape.order) == (way, order));
        assert!(has(Access::Read, Order::Sequential), "{}", place.path);
        assert_eq!(has(Access::Write, Order::Sequential), place.used == Use::Write, "{}", place.path);
        assert!(place.cells.iter().all(|cell| !cell.rounds.is_empty()));
    }
    let (database, media) = (world.at("app.db"), world.at("a/app.bore"));
    let media = [media.to_str().unwrap()];
    let asked = Asked { database: &[database.to_str().unwrap()], media: &media, transfer_bytes: 1 << 20 };
    let path = made.path(&asked);
    assert_eq!(path.unknown, Vec::<String>::new(), "the database's device was written in `a`");
    assert!(path.path.database.read.total_rate.is_finite() && path.path.media.write.total_rate.is_finite());
    assert!(path.path.simultaneous.is_some(), "one device");
    assert!(path.path.codec("lz4").is_some_and(|codec| codec.pack > 0.0 && codec.stored_share < 1.0));
    let charts = world.names("charts");
    assert!(charts.iter().any(|name| name == "default-place2-writes.svg"), "{charts:?}");
    let (page, images) = (world.text("charts/index.html"), charts.iter().filter(|name| name.ends_with(".svg")));
    for name in images.clone() {
        charts::check(&world.text(&format!("charts/{name}")));
        assert!(page.contains(&format!("<a href=\"{name}\"><svg ")), "{name}");
    }
    assert_eq!((charts.len(), page.matches("<svg ").count()), (images.clone().count() + 1, images.count()));
    let codec = made.codecs.iter().max_by_key(|cell| cell.threads).unwrap();
    let speed = profile::rate(&codec.pack).unwrap() / f64::from(1 << 20);
    charts::says(&world.text("charts/default-codecs.svg"), &format!("pack {speed:.0}"));
}

#[test]
fn a_directory_is_read_by_its_largest_files_and_json_is_the_profile() {
    let world = World::with_database();
    world.write("b/small", b"small");
    world.write("b/empty", b"");
    let made = world.run("calibrate --read . --seconds 1 --name night.2 --report json").done().json();
    assert_eq!(made["name"], "night.2");
    assert!(made["places"][0]["bytes"].as_u64().unwrap() >= world.read("app.db").len() as u64);
    let mut kept = serde_json::to_value(stored(&world, "night.2")).unwrap();
    kept["schema_version"] = 1.into();
    kept["command"] = "calibrate".into();
    assert_eq!(kept, made);
    assert_eq!(world.names("b"), ["empty", "small"]);
}

#[test]
fn a_report_goes_to_a_file_beside_the_table_and_over_nothing_but_a_report() {
    let world = World::with_database();
    let before = world.read("app.db");
    world.run("calibrate --read app.db --seconds 1 --report json:app.db").refused(2, "app.db", "is not a report");
    assert!(!world.at(PROFILES).exists(), "nothing was measured");
    for _ in 0..2 {
        let line = "calibrate --read app.db --seconds 1 --report json:r.json";
        let text = world.run(line).done().text();
        assert!(text.contains("sequential read"), "{text}");
    }
    world.run("calibrate --show --name default --report json:shown.json").done();
    let made_at = |name: &str| serde_json::from_slice::<Value>(&world.read(name)).unwrap()["made_at"].clone();
    assert_eq!(made_at("r.json"), made_at("shown.json"));
    assert_eq!(world.read("app.db"), before);
}

#[test]
fn tiny_jobs_in_each_place_measure_the_fixed_costs_of_a_job() {
    let world = World::with_database();
    let shown = world.run(&format!("calibrate --read app.db --write a --write b {SMALL} -v")).done();
    assert_eq!(shown.text().matches("tiny jobs: backup to ").count(), 2, "{shown}");
    let costs = stored(&world, "default").job_costs;
    assert_eq!(costs.iter().map(|cost| (cost.media, cost.database)).collect::<Vec<_>>(), [(1, 1), (2, 2)]);
    for cost in &costs {
        assert!(cost.plain_bytes > 0 && !cost.backup_s.is_empty(), "{cost:?}");
        assert_eq!(cost.backup_s.len(), cost.restore_s.len());
    }
    world.assert_no_media();
}

#[test]
fn failed_tiny_jobs_are_a_note_and_no_error() {
    let world = World::with_database();
    // A host that encrypts by default has no key here.
    world.write("fullbore.toml", b"encrypt-to = [\"nobody.pub\"]\n");
    let ended = world.run(&format!("calibrate --read app.db --write a {SMALL}")).done();
    ended.says(&["besides moving bytes were not measured: ", "nobody.pub"]);
    let made = stored(&world, "default");
    assert!(made.job_costs.is_empty() && made.places.len() == 2);
    world.assert_no_media();
}

#[test]
fn without_real_data_there_are_no_codecs_and_it_is_said() {
    let world = World::new();
    world.run(&format!("calibrate --write a {SMALL}")).done().says(&["codecs were not measured"]);
    assert!(stored(&world, "default").codecs.is_empty());
    world.assert_no_media();
}

#[test]
fn a_cap_holds_and_stands_in_the_profile() {
    let world = World::with_database();
    world.run(&format!("calibrate --read app.db --write a {SMALL} --throttle 8MiB/s")).done().says(&["--throttle"]);
    let made = stored(&world, "default");
    assert_eq!(made.settings.throttle_bytes_per_s, Some(8 << 20));
    let rounds = || made.places.iter().flat_map(|place| &place.cells).flat_map(|cell| &cell.rounds);
    assert!(rounds().count() > 0 && rounds().all(|round| round.rate() <= f64::from(9 << 20)));
}

#[test]
fn a_cap_that_lets_nothing_through_is_an_error_that_keeps_the_old_profile() {
    let world = World::with_database();
    world.run("calibrate --read app.db --seconds 1").done();
    let before = world.read(&format!("{PROFILES}/default.json"));
    for places in ["--read app.db", "--read app.db --write a --space 32MiB"] {
        let ended = world.run(&format!("calibrate {places} --throttle 1/s --seconds 1"));
        ended.refused(1, "app.db", "was not measured: --throttle").says(&["--throttle", "no profile was written"]);
        assert!(world.read(&format!("{PROFILES}/default.json")) == before);
    }
    world.run("calibrate --read app.db --throttle 1/s --seconds 1 --name other").with_code(1);
    assert!(!world.at(&format!("{PROFILES}/other.json")).exists());
    world.assert_no_media();
}

#[test]
fn a_sample_keeps_to_the_cap_too() {
    let world = World::with_purged_database(32);
    let line = "calibrate --read purged.db --throttle 8MiB/s --seconds 2";
    world.run(line).done();
    let made = stored(&world, "default");
    assert!((1 << 20..=4 << 20).contains(&made.sample_bytes), "a quarter of 16 MiB at most: {}", made.sample_bytes);
    assert!(!made.codecs.is_empty());
}

#[test]
fn an_unreadable_directory_is_left_out_with_a_note() {
    let world = World::with_database();
    std::fs::create_dir(world.at("a/lost+found")).unwrap();
    world.write("b/closed.db", &[1; 9000]);
    let closed = |name: &str| std::fs::set_permissions(world.at(name), std::fs::Permissions::from_mode(0o000)).unwrap();
    let command = world.as_nobody("calibrate --read . --seconds 1");
    ["a/lost+found", "b/closed.db"].into_iter().for_each(closed);
    let ended = program::run(command).done();
    ended.says(&["this user may not read `", "left out"]);
    assert!(stored(&world, "default").places[0].bytes > 0);
    let command = world.as_nobody("calibrate --read a/lost+found --seconds 1");
    closed("a/lost+found");
    program::run(command).with_code(1).says(&["lost+found", "Permission denied"]);
    std::fs::set_permissions(world.at("a/lost+found"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_profile_of_another_machine_is_shown_with_a_warning_and_refused_to_be_used() {
    let world = World::with_database();
    world.run("calibrate --read app.db --seconds 1").done();
    world.run("calibrate --show --name default").done();
    let file = format!("{PROFILES}/default.json");
    let mut made: serde_json::Value = serde_json::from_slice(&world.read(&file)).unwrap();
    made["machine"]["host_id"] = "0".repeat(32).into();
    made["machine"]["host"] = "db99".into();
    world.write(&file, &serde_json::to_vec(&made).unwrap());
    world.run("calibrate --show --name default").with_code(4).says(&["another machine", "db99", "hint: "]);
    assert!(world.run("calibrate --show").done().text().contains("db99 (another machine)"));
    let error = stored(&world, "default").check_machine(&Machine::this()).unwrap_err().to_string();
    assert!(error.contains("db99") && error.contains("fullbore calibrate"), "{error}");
}

#[test]
fn a_profile_that_is_missing_or_damaged_is_refused_with_what_to_do() {
    let world = World::with_database();
    world.run("calibrate --show --name night").refused(2, "profile `night`", "there is no such profile");
    world.run("calibrate --read app.db --seconds 1").done();
    let file = format!("{PROFILES}/default.json");
    let made: serde_json::Value = serde_json::from_slice(&world.read(&file)).unwrap();
    let mut wrong = made.clone();
    wrong["places"][0]["cells"][0]["rounds"][0]["seconds"] = 0.0.into();
    world.write(&file, &serde_json::to_vec(&wrong).unwrap());
    world.run("calibrate --show --name default").refused(1, "default.json", "cannot be right");
    wrong["version"] = 7.into();
    world.write(&file, &serde_json::to_vec(&wrong).unwrap());
    world.run("calibrate --show --name default").refused(1, "default.json", "version 7");
    world.write(&file, b"no JSON");
    world.run("calibrate --show --name default").refused(1, "default.json", "is not a calibration profile");
    world.run("calibrate --show").with_code(4).says(&["default.json", "is not a calibration profile"]);
    world.run("calibrate --show --svg charts").refused(2, "--svg", "shows one profile");
}

#[test]
fn options_that_contradict_each_other_or_say_nothing_are_refused() {
    let world = World::with_database();
    for (line, word) in [
        ("calibrate", "--read"),
        ("calibrate --show --read app.db", "cannot be used with"),
        ("calibrate --show --seconds 3", "cannot be used with"),
        ("calibrate --read app.db --space 1GiB", "--write"),
        ("calibrate --read app.db --seconds 0", "0"),
        ("calibrate --read app.db --name a/b", "not a name for a profile"),
        ("calibrate --read app.db --read ./app.db", "named twice"),
        ("calibrate --read app.db --throttle 5", "--throttle"),
        ("calibrate --write a --space 1KiB", "less than 16 MiB"),
        ("calibrate --write app.db", "is not a directory"),
        ("calibrate --read a", "has no bytes to read"),
    ] {
        world.run(line).with_code(2).says(&[word]);
    }
    world.run("calibrate --read nowhere.db").refused(2, "nowhere.db", "No such file");
    world.assert_no_media();
    assert!(!world.at("home").exists(), "nothing was stored");
}

#[test]
fn more_space_than_there_is_is_refused_before_anything_is_written() {
    let world = World::new();
    world.run("calibrate --write a --space 900TiB --seconds 1").refused(1, "/a", "are free");
    world.assert_no_media();
    let Some(disk) = SmallDisk::mount(&world, "small", 8, "more_space_than_there_is") else { return };
    world.run("calibrate --write small --seconds 1").refused(1, "/small", "are free");
    assert!(disk.names().is_empty());
}

#[test]
fn a_place_that_cannot_be_written_to_is_refused_by_name() {
    let world = World::new();
    let mut command = world.as_nobody("calibrate --write a --seconds 1");
    std::fs::set_permissions(world.at("a"), std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    command.env("HOME", world.at("b"));
    program::run(command).refused(1, "/a/", "Permission denied");
    std::fs::set_permissions(world.at("a"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    world.assert_no_media();
}

#[test]
fn a_run_that_is_stopped_by_a_signal_leaves_nothing_and_stores_nothing() {
    let world = World::with_database();
    for (at, signal, code) in [(300, "INT", 130), (700, "TERM", 143), (1500, "INT", 130)] {
        let running = world.start("calibrate --read app.db --write a --write b --seconds 60 --space 64MiB");
        running.listens();
        std::thread::sleep(Duration::from_millis(at));
        running.signal(signal);
        running.wait().with_code(code).says(&["error: cancelled by", signal]);
        world.assert_no_media();
    }
    assert!(!world.at(PROFILES).exists());
}

#[test]
fn a_run_that_is_killed_leaves_nothing_but_a_tiny_job_which_the_next_one_removes() {
    let world = World::with_database();
    let running = world.start("calibrate --read app.db --write a --seconds 60 --space 64MiB");
    std::thread::sleep(Duration::from_millis(1200));
    running.signal("KILL");
    running.wait().with_code(-9);
    let left = world.names("a");
    assert!(left.iter().all(|name| name == ".fullbore-calibrate-jobs"), "{left:?}");
    // Its job may be at work for a moment yet.
    wait_until("the tiny job ends", || {
        world.run(&format!("calibrate --write a {SMALL}")).code == 0 && world.names("a").is_empty()
    });
    world.assert_no_media();
}

fn store() -> ObjectStore {
    let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
    store.make_bucket("media");
    store
}

fn command(world: &World, store: &ObjectStore, line: &str) -> Command {
    let mut command = program::command(world.folder(), line.split_whitespace());
    command.envs(store.environment());
    command
}

#[track_caller]
fn assert_nothing_is_left(store: &ObjectStore) {
    assert_eq!((store.objects("media").len(), store.uploads("media").len()), (0, 0));
}

#[test]
fn a_store_is_measured_by_puts_and_gets_of_several_sizes_at_once_and_nothing_is_left_in_it() {
    let (world, store) = (World::with_database(), store());
    let shapes = |made: &Profile, way: Access| -> HashSet<AccessPattern> {
        made.places[1].cells.iter().map(|cell| cell.shape).filter(|shape| shape.way == way).collect()
    };
    let has_several = |made: &Profile| {
        [Access::Write, Access::Read].into_iter().all(|way| {
            let shapes = shapes(made, way);
            let sizes: HashSet<u64> = shapes.iter().map(|shape| shape.block_bytes).collect();
            let depths: HashSet<u64> = shapes.iter().map(|shape| shape.queue_depth).collect();
            depths.len() > 1 && (way == Access::Read || sizes.len() > 1)
        })
    };
    // A store that shares a busy machine takes longer over as many requests.
    for seconds in [24, 60, 240] {
        let line =
            format!("calibrate --write a --write s3://media/night/ --seconds {seconds} --space 256MiB --svg charts");
        let shown = program::run(command(&world, &store, &line)).done();
        assert!(shown.text().contains("part or range") && shown.text().contains(" put "), "{shown}");
        if has_several(&stored(&world, "default")) {
            break;
        }
    }
    let made = stored(&world, "default");
    for way in [Access::Write, Access::Read] {
        let shapes = shapes(&made, way);
        assert!(has_several(&made), "{way:?}: {shapes:?}");
        assert!(shapes.iter().all(|shape| shape.block_bytes * shape.queue_depth * shape.streams <= 256 << 20));
    }
    assert_eq!(made.job_costs.iter().map(|cost| (cost.media, cost.database)).collect::<Vec<_>>(), [(0, 0), (1, 0)]);
    let chart = world.text("charts/default-place2-writes.svg");
    assert!(chart.contains("Puts of one object by part") && chart.contains("parts in flight"), "{chart}");
    assert_nothing_is_left(&store);
    world.assert_no_media();
    let line = "estimate sqlite:app.db --to s3://media/night/ --compression none --report json";
    let made = program::run(command(&world, &store, line)).done().json();
    assert!(made["backup"]["p50_s"].as_f64().unwrap() > 0.0 && made["restore"]["p50_s"].as_f64().unwrap() > 0.0);
    let of = |verb: &str| {
        let line = format!("{verb} sqlite:app.db --to s3://media/night/ --compression none --stripes 4 --report json");
        program::run(command(&world, &store, &line)).done().json()
    };
    let (foreseen, pool) = (of("estimate")["memory_bytes"].clone(), of("backup")["pool"].clone());
    let taken: u64 = ["bytes", "codec_bytes", "part_bytes"].iter().map(|name| pool[name].as_u64().unwrap()).sum();
    assert_eq!(foreseen, taken + (64 << 20), "with the parts of objects: {pool}");
}

#[test]
fn a_store_alone_is_measured_too_and_says_that_jobs_were_not() {
    let (world, store) = (World::new(), store());
    let line = "calibrate --write s3://media/night/ --seconds 1 --space 16MiB";
    program::run(command(&world, &store, line)).done().says(&["besides moving bytes were not measured", "a directory"]);
    let made = stored(&world, "default");
    let ways: Vec<Access> = made.places[0].cells.iter().map(|cell| cell.shape.way).collect();
    assert!(ways.contains(&Access::Read) && ways.contains(&Access::Write), "{ways:?}");
    let puts = made.places[0].cells.iter().filter(|cell| cell.shape.way == Access::Write);
    assert!(puts.flat_map(|cell| &cell.rounds).all(|round| round.bytes <= 8 << 20), "half of the space for one round");
    assert!(made.job_costs.is_empty());
    assert_nothing_is_left(&store);
}

#[test]
fn measured_objects_are_never_locked() {
    let (world, store) = (World::new(), store());
    world.write("fullbore.toml", b"lock-until = \"2d\"\n");
    let line = format!("calibrate --write a --write s3://media/night/ {SMALL}");
    program::run(command(&world, &store, &line))
        .done()
        .says(&["s3://media/night/", "lock-until would lock objects there"]);
    let costs = stored(&world, "default").job_costs;
    assert_eq!(costs.iter().map(|cost| cost.media).collect::<Vec<_>>(), [0]);
    assert_nothing_is_left(&store);
}

#[test]
fn a_run_on_a_store_that_is_stopped_by_a_signal_leaves_nothing_in_it() {
    let (world, store) = (World::new(), store());
    for milliseconds in [400, 1500, 3000] {
        let line = "calibrate --write a --write s3://media/night/ --seconds 60 --space 64MiB";
        let running = program::start(command(&world, &store, line));
        running.listens();
        std::thread::sleep(Duration::from_millis(milliseconds));
        running.signal("INT");
        running.wait().with_code(130).says(&["error: cancelled by SIGINT"]);
        assert_nothing_is_left(&store);
        world.assert_no_media();
    }
}
