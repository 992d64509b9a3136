//! `fullbore calibrate`: the profile, what is left behind, and what is refused.

use std::time::Duration;

use fullbore::tune::profile::{self, Asked, Machine, Order, Profile, Use, Way};
use fullbore_test_servers::{ObjectStore, StoreKind, StoreOptions};

use crate::program;
use crate::small_disk::SmallDisk;
use crate::world::World;

/// Small, so that a test takes seconds: what is measured says little then, and no test asks how fast anything is.
const SMALL: &str = "--seconds 1 --space 32MiB";
const PROFILES: &str = "home/.config/fullbore/profiles";

fn stored(world: &World, name: &str) -> Profile {
    profile::load(&world.at(PROFILES), name).unwrap()
}

#[test]
fn a_run_keeps_a_profile_that_the_model_can_use_and_leaves_nothing_else() {
    let world = World::with_database();
    let before = world.read("app.db");
    let ended = world.run(&format!("calibrate --read app.db --write a --write b {SMALL} --svg charts")).done();
    for word in ["sequential read", "sequential write", "at once", "zstd:1", "aes-256-gcm"] {
        assert!(ended.text().contains(word), "{word}: {ended}");
    }
    world.assert_no_media();
    assert_eq!(world.read("app.db"), before, "what is only read stays as it was");
    let made = stored(&world, "default");
    assert_eq!(made.places.iter().map(|place| place.used).collect::<Vec<_>>(), [Use::Read, Use::Write, Use::Write]);
    assert_eq!(made.together.len(), 2);
    for place in &made.places {
        let has = |way, order| place.cells.iter().any(|cell| (cell.shape.way, cell.shape.order) == (way, order));
        assert!(has(Way::Read, Order::Sequential), "{}", place.path);
        assert_eq!(has(Way::Write, Order::Sequential), place.used == Use::Write, "{}", place.path);
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
    assert!(charts.iter().all(|name| world.read(&format!("charts/{name}")).starts_with(b"<svg ")));
}

#[test]
fn a_directory_is_read_by_its_largest_files_and_json_is_the_profile() {
    let world = World::with_database();
    world.write("b/small", b"small");
    world.write("b/empty", b"");
    let made = world.run("calibrate --read . --seconds 1 --name night.2 --json").done().json();
    assert_eq!(made["name"], "night.2");
    assert!(made["places"][0]["bytes"].as_u64().unwrap() >= world.read("app.db").len() as u64);
    assert_eq!(serde_json::to_value(stored(&world, "night.2")).unwrap(), made);
    assert_eq!(world.names("b"), ["empty", "small"]);
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
fn a_profile_of_another_machine_is_shown_with_a_warning_and_refused_to_be_used() {
    let world = World::with_database();
    world.run("calibrate --read app.db --seconds 1").done();
    world.run("calibrate --show").done();
    let file = format!("{PROFILES}/default.json");
    let mut made: serde_json::Value = serde_json::from_slice(&world.read(&file)).unwrap();
    made["machine"]["host_id"] = "0".repeat(32).into();
    made["machine"]["host"] = "db99".into();
    world.write(&file, &serde_json::to_vec(&made).unwrap());
    world.run("calibrate --show").with_code(4).says(&["another machine", "db99", "hint: "]);
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
    world.run("calibrate --show").refused(1, "default.json", "cannot be right");
    wrong["version"] = 7.into();
    world.write(&file, &serde_json::to_vec(&wrong).unwrap());
    world.run("calibrate --show").refused(1, "default.json", "version 7");
    world.write(&file, b"no JSON");
    world.run("calibrate --show").refused(1, "default.json", "no profile");
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
        ("calibrate --read app.db --name a/b", "no name for a profile"),
        ("calibrate --read app.db --read ./app.db", "named twice"),
        ("calibrate --read app.db --throttle 5", "--throttle"),
        ("calibrate --write a --space 1KiB", "less than 16 MiB"),
        ("calibrate --write app.db", "is no directory"),
        ("calibrate --read a", "no bytes that could be read"),
    ] {
        world.run(line).with_code(2).says(&[word]);
    }
    world.run("calibrate --read nowhere.db").refused(1, "nowhere.db", "No such file");
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
        std::thread::sleep(Duration::from_millis(at));
        running.signal(signal);
        running.wait().with_code(code).says(&["error: cancelled by", signal]);
        world.assert_no_media();
    }
    assert!(!world.at(PROFILES).exists());
}

#[test]
fn a_run_that_is_killed_leaves_nothing_either() {
    let world = World::with_database();
    let running = world.start("calibrate --read app.db --write a --seconds 60 --space 64MiB");
    std::thread::sleep(Duration::from_millis(1200));
    running.signal("KILL");
    running.wait().with_code(-9);
    world.assert_no_media();
}

#[test]
fn a_store_is_measured_by_puts_and_gets_and_nothing_is_left_in_it() {
    let world = World::new();
    let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
    store.make_bucket("media");
    let line = "calibrate --write s3://media/night/ --seconds 1";
    let mut command = program::command(world.folder(), line.split_whitespace());
    command.envs(store.environment());
    program::run(command).done();
    let made = stored(&world, "default");
    let ways: Vec<Way> = made.places[0].cells.iter().map(|cell| cell.shape.way).collect();
    assert!(ways.contains(&Way::Read) && ways.contains(&Way::Write), "{ways:?}");
    assert_eq!((store.objects("media").len(), store.uploads("media").len()), (0, 0));
}
