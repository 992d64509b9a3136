//! Copies from repositories and into them: what is missing is found, what is there passed over, and nobody takes away what another makes.

use std::fs;

use serde_json::Value;

use crate::database::{self, Shape};
use crate::program::Ended;
use crate::world::World;

/// The repository `night` in `a/`, with a full, its differential and a log set; `away` in `b/` and `c/` is none yet.
fn world() -> (World, rusqlite::Connection) {
    let world = World::with_shape(Shape { rows: 300, ..Shape::default() });
    fs::create_dir(world.at("c")).unwrap();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.away]\nto = [\"b/\", \"c/\"]\n");
    let app = crate::log::kept_open(&world);
    app.execute_batch("CREATE TABLE ledger (n INTEGER PRIMARY KEY)").unwrap();
    for (n, kind) in [(1, "full"), (2, "differential"), (3, "log")] {
        app.execute_batch(&format!("INSERT INTO ledger VALUES ({n})")).unwrap();
        world.run(&format!("backup sqlite:app.db --repo night --kind {kind}")).done();
    }
    (world, app)
}

fn list(world: &World, repository: &str) -> Vec<Value> {
    world.run(&format!("list --repo {repository} --json")).done().json().as_array().unwrap().clone()
}

fn kinds(sets: &[Value]) -> Vec<&str> {
    sets.iter().map(|set| set["kind"].as_str().unwrap()).collect()
}

fn copied(report: &Ended) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    report.json()["copied"].as_array().unwrap().iter().map(|copy| (text(&copy["kind"]), text(&copy["how"]))).collect()
}

/// Rows of the ledger, restored out of a repository.
fn rows(world: &World, options: &str) -> i64 {
    world.run(&format!("restore {options} --into sqlite:copy.db")).done();
    let rows = database::number(&world.at("copy.db"), "SELECT count(*) FROM ledger");
    for name in ["copy.db", "copy.db-wal", "copy.db-shm"] {
        let _ = fs::remove_file(world.at(name)); // The side files may not be there.
    }
    rows
}

#[test]
fn the_newest_chain_goes_to_another_repository_and_on_from_there() {
    let (world, app) = world();
    let plan = world.run("copy --repo night --to-repo away --dry-run").done().text();
    assert!(plan.contains("1. full") && plan.contains("3. log"), "{plan}");
    assert!(!world.at("b/.fullbore").exists(), "a plan makes no repository");
    let first = world.run("copy --repo night --database app --to-repo away --report json").done();
    assert_eq!(copied(&first), ["full", "differential", "log"].map(|kind| (kind.to_owned(), "made anew".to_owned())));
    crate::copy_verdict::verdict(&first.json());
    assert_eq!(kinds(&list(&world, "away")), ["full", "differential", "log"]);
    assert_eq!(rows(&world, "--repo away"), 3);
    world.run("verify --repo away").done();
    // Without its records, what was copied tells the same.
    let known = list(&world, "away");
    fs::remove_dir_all(world.at("b/.fullbore/sets")).unwrap();
    fs::remove_dir_all(world.at("state")).unwrap();
    let told = list(&world, "away");
    for (known, told) in known.iter().zip(&told) {
        assert_eq!((&known["backup_set_id"], &known["devices"]), (&told["backup_set_id"], &told["devices"]));
    }
    // What is new is all that is copied the next time.
    app.execute_batch("INSERT INTO ledger VALUES (4)").unwrap();
    world.run("backup sqlite:app.db --repo night --kind log").done();
    let second = world.run("copy --repo night --to-repo away --report json").done();
    assert_eq!(copied(&second), [("log".to_owned(), "made anew".to_owned())]);
    let second = second.says(&["is already in the repository, and is not copied"]);
    assert!(second.json()["task"].is_string());
    assert_eq!(rows(&world, "--repo away"), 4);
    assert!(
        world.run("copy --repo night --to-repo away --report json").done().json()["copied"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    // Backups go on there as well.
    app.execute_batch("INSERT INTO ledger VALUES (5)").unwrap();
    world.run("backup sqlite:app.db --repo away --kind log").done();
    assert_eq!(rows(&world, "--repo away"), 5);
    let tasks = world.run("tasks --repo away --json").done().json();
    assert!(
        tasks.as_array().unwrap().iter().any(|task| task["verb"] == "copy" && task["state"] == "SUCCESS"),
        "{tasks:#}"
    );
}

#[test]
fn a_set_without_what_it_stands_on_is_refused_and_a_chain_brings_it() {
    let (world, _app) = world();
    let sets = list(&world, "night");
    let id = sets[1]["backup_set_id"].as_str().unwrap();
    let line = format!("copy --repo night --to-repo away --set {id}");
    world.run(&line).refused(3, "differential", "its full").says(&["--chain"]);
    assert!(list(&world, "away").is_empty());
    world.run(&format!("{line} --chain")).done();
    assert_eq!(kinds(&list(&world, "away")), ["full", "differential"]);
    assert_eq!(rows(&world, "--repo away"), 2);
    world.run("copy --repo night --to-repo night").refused(2, "--to-repo night", "the repository to copy from");
    world.run("copy --repo night --to-repo away --init").with_code(2);
    world.run("copy --repo night --to-repo away --name-template {database}.bore").refused(2, "--name-template", "{id}");
}

#[test]
fn repositories_and_plain_places_are_copied_to_each_other() {
    let (world, _app) = world();
    world.run("copy --repo night --to plain/ --mkdir").done();
    assert_eq!(rows(&world, "--from plain"), 3);
    world.run("copy --from plain --to-repo away").done();
    assert_eq!(kinds(&list(&world, "away")), ["full", "differential", "log"]);
    assert_eq!(rows(&world, "--repo away"), 3);
    // Encrypted on the way, and again as it is, without the key, which the records of the repository make possible.
    world.run("key new --no-recovery k.key").done();
    world.run("copy --repo night --to-repo sealed/ --encrypt-to k.key.pub").refused(2, "sealed/", "does not exist");
    fs::create_dir(world.at("sealed")).unwrap();
    world.run("copy --repo night --to-repo sealed/ --encrypt-to k.key.pub").done();
    assert_eq!(rows(&world, "--repo sealed/ --key k.key"), 3);
    fs::create_dir(world.at("second")).unwrap();
    let as_they_are = world.run("copy --repo sealed/ --to-repo second/ --report json").done();
    assert!(copied(&as_they_are).iter().all(|(_, how)| how == "as it is"));
    assert_eq!(rows(&world, "--repo second/ --key k.key --database app"), 3);
    let ids = |place: &str| -> Vec<Value> {
        let listed = world.run(&format!("list --from {place} --json")).done().json();
        listed.as_array().unwrap().iter().map(|set| set["media_set_id"].clone()).collect()
    };
    assert_eq!(ids("sealed"), ids("second"));
    assert_ne!(ids("sealed"), ids("a"));
    // Without such a record and without the key nobody knows of which database they are.
    fs::create_dir(world.at("third")).unwrap();
    let full = list(&world, "sealed/")[0]["backup_set_id"].as_str().unwrap().to_owned();
    world
        .run(&format!("copy --from sealed --to-repo third/ --set {full}"))
        .refused(1, "full", "is encrypted")
        .says(&["--key"]);
    world.run("copy --from sealed --to-repo third/ --key k.key").done();
    assert_eq!(rows(&world, "--repo third/ --key k.key"), 3);
}

#[test]
fn a_second_copy_that_somebody_put_there_is_passed_over_and_never_taken_for_the_first() {
    let (world, _app) = world();
    world.run("copy --repo night --to-repo away").done();
    world.run("copy --repo night --to b/ --compression zstd:1").done();
    let listed = world.run("list --repo away --json").with_code(4).says(&["another copy of backup set"]);
    assert_eq!(kinds(listed.json().as_array().unwrap()), ["full", "differential", "log"]);
    world.run("restore --repo away --into sqlite:copy.db").with_code(4);
    assert_eq!(database::number(&world.at("copy.db"), "SELECT count(*) FROM ledger"), 3);
    world.run("prune --repo away --keep-last 1 --confirm --grace 0s");
    let left = world.names("b").iter().filter(|name| name.ends_with(".bore")).count();
    assert!(left >= 3, "prune took what it does not know: {:?}", world.names("b"));
    world.run("restore --from b --from c --latest --into sqlite:other.db").done();
}

/// The records of a folder of `away`.
fn records(world: &World, folder: &str) -> Vec<Value> {
    let names = world.names(&format!("b/.fullbore/{folder}"));
    names
        .iter()
        .map(|name| serde_json::from_slice(&world.read(&format!("b/.fullbore/{folder}/{name}"))).unwrap())
        .collect()
}

#[test]
fn a_copy_that_was_killed_is_gone_on_with_and_its_run_is_ended() {
    let (world, _app) = world();
    // As it is: as many families as the source has.
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.away]\nto = [\"b/\"]\n");
    let running = world.start("copy --repo night --to-repo away --throttle 20KiB/s");
    world.media_written("b");
    running.signal("KILL");
    running.wait();
    // Its process is gone: nobody waits for its lease.
    world.run("copy --repo night --to-repo away").done().says(&["an unfinished file of a killed backup"]);
    assert_eq!(kinds(&list(&world, "away")), ["full", "differential", "log"]);
    assert_eq!(rows(&world, "--repo away"), 3);
    let states: Vec<_> = records(&world, "tasks").iter().map(|task| task["state"].clone()).collect();
    assert!(states.contains(&Value::from("ERROR")) && !states.contains(&Value::from("IN_PROGRESS")), "{states:?}");
    let before = world.names("b");
    world.run("prune --repo away --keep-last 9 --confirm --grace 0s");
    assert_eq!(world.names("b"), before, "prune removed what the second run has made");
}

/// Containers have the names of hosts and the numbers of processes in common: a number that is nobody's here may be alive elsewhere.
#[test]
fn a_copy_of_another_container_is_alive_until_its_lease_is_over() {
    let (world, _app) = world();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.away]\nto = [\"b/\"]\n");
    let running = world.start("copy --repo night --to-repo away --throttle 20KiB/s");
    world.media_written("b");
    running.signal("KILL");
    running.wait();
    let task = || {
        let names = world.names("b/.fullbore/tasks");
        let known = names.iter().map(|name| format!("b/.fullbore/tasks/{name}"));
        let mut known = known.map(|name| (serde_json::from_slice::<Value>(&world.read(&name)).unwrap(), name));
        known.find(|(task, _)| task["ended_at"].is_null()).unwrap()
    };
    let (whole, name) = task();
    let write = |change: &dyn Fn(&mut Value)| {
        let mut record = whole.clone();
        change(&mut record);
        world.write(&name, record.to_string().as_bytes());
        crate::world::one_tick();
    };
    let line = "copy --repo night --to-repo away";
    let others: [&dyn Fn(&mut Value); 3] = [
        &|task| task["runs_as"]["namespace"] = "pid:[1]".into(),
        &|task| task["runs_as"]["boot"] = "of another machine".into(),
        // Of a version that does not say it.
        &|task| drop(task.as_object_mut().unwrap().remove("runs_as")),
    ];
    for of_another in others {
        write(of_another);
        world.run(line).refused(1, "backup set", "is being written by copy");
    }
    // The number of a process that was started at another time.
    write(&|task| task["runs_as"]["number"] = std::process::id().into());
    world.run(line).done().says(&["an unfinished file of a killed backup"]);
    assert_eq!(rows(&world, "--repo away"), 3);
}

#[test]
fn two_that_write_the_same_set_do_not_both_come_to_an_end() {
    let (world, _app) = world();
    let first = world.start("copy --repo night --to-repo away --throttle 20KiB/s");
    world.media_begun("b");
    world.run("copy --repo night --to-repo away").refused(1, "backup set", "is being written by copy");
    first.signal("TERM");
    first.wait().with_code(143);
    assert!(
        !world.names("b").iter().any(|name| name.contains(".bore.") || name.ends_with(".bore")),
        "{:?}",
        world.names("b")
    );
    world.run("copy --repo night --to-repo away").done();
    assert_eq!(rows(&world, "--repo away"), 3);
}

#[test]
fn sets_being_removed_are_not_copied_and_copied_sets_are_leased() {
    let (world, _app) = world();
    let full = list(&world, "night")[0]["backup_set_id"].as_str().unwrap().to_owned();
    let tombstone = serde_json::json!({ "task": uuid::Uuid::nil(), "host": "elsewhere", "families": [] });
    fs::create_dir_all(world.at("a/.fullbore/tombstones")).unwrap();
    world.write(&format!("a/.fullbore/tombstones/{full}.json"), tombstone.to_string().as_bytes());
    world.run("copy --repo night --to-repo away").refused(1, &full, "is being removed by prune");
    assert!(list(&world, "away").is_empty());
    fs::remove_file(world.at(&format!("a/.fullbore/tombstones/{full}.json"))).unwrap();
    world.run("copy --repo night --to-repo away").done();
}
