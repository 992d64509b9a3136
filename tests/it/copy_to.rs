//! `backup --repo … --copy-to …`: one pass into two repositories, and what is left on either side when one of them fails.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use fullbore_test_servers::{Fault, FaultProxy, ObjectStore, StoreKind, StoreOptions, wait_until};
use serde_json::{Value, json};

use crate::database::{self, Shape};
use crate::program::{self, Ended, Running};
use crate::world::{World, one_tick};

const LINE: &str = "backup sqlite:app.db --repo night --copy-to away";

/// Repositories `night`, in two directories, and `away`, in one.
fn world() -> World {
    world_of(Shape { rows: 300, ..Shape::default() })
}

fn world_of(shape: Shape) -> World {
    let world = World::with_shape(shape);
    fs::create_dir(world.at("c")).unwrap();
    configure(&world, "");
    world
}

fn configure(world: &World, more: &str) {
    let text = "[repository.night]\nto = [\"a/\", \"b/\"]\n[repository.night.keep]\nlast = 1\n\
                [repository.away]\nto = [\"c/\"]\nname-template = \"{kind}-{set}-{family}.bore\"\n[repository.away.keep]\nlast = 1\n";
    world.write("fullbore.toml", format!("{text}{more}").as_bytes());
}

fn list(world: &World, repository: &str) -> Vec<Value> {
    let listed = world.run(&format!("list --repo {repository} --json"));
    assert!([0, 4].contains(&listed.code), "{listed}");
    listed.json().as_array().unwrap().clone()
}

fn ids(world: &World, repository: &str) -> Vec<String> {
    list(world, repository).iter().map(|set| set["backup_set_id"].as_str().unwrap().to_owned()).collect()
}

fn families(world: &World, folder: &str) -> Vec<String> {
    world.names(folder).into_iter().filter(|name| name.contains(".bore")).collect()
}

fn records(world: &World, folder: &str, of: &str) -> Vec<String> {
    let path = format!("{folder}/.fullbore/{of}");
    if world.at(&path).is_dir() { world.names(&path) } else { Vec::new() }
}

/// The media sets that a repository has records of.
fn media_sets(world: &World, folder: &str) -> Vec<String> {
    let names = records(world, folder, "sets").into_iter();
    let known = names
        .map(|name| serde_json::from_slice::<Value>(&world.read(&format!("{folder}/.fullbore/sets/{name}"))).unwrap());
    known.map(|set| set["media_set_id"].as_str().unwrap().to_owned()).collect()
}

/// What each repository brings back alone.
#[track_caller]
fn both_restore(world: &World) {
    for repository in ["night", "away"] {
        world.run(&format!("restore --repo {repository} --into sqlite:copy.db")).done();
        world.assert_copy();
        fs::remove_file(world.at("copy.db")).unwrap();
        world.run(&format!("verify --repo {repository}")).done();
    }
}

#[track_caller]
fn nothing_on_either_side(world: &World) {
    for folder in ["a", "b", "c"] {
        assert_eq!(families(world, folder), Vec::<String>::new(), "{folder}");
    }
    for folder in ["a", "c"] {
        assert_eq!(records(world, folder, "sets"), Vec::<String>::new());
        for task in records(world, folder, "tasks") {
            let task: Value = serde_json::from_slice(&world.read(&format!("{folder}/.fullbore/tasks/{task}"))).unwrap();
            assert!(task["state"] == "ERROR" && task["needs"] == json!([]), "{task}");
        }
    }
}

#[test]
fn one_pass_makes_the_same_families_in_both_repositories() {
    let world = world();
    let report = world.run(&format!("{LINE} --report json --compression none")).done().json();
    database::sql(&world.at("app.db"), "CREATE TABLE more AS SELECT 1 AS n, 2 AS m");
    world.run(&format!("{LINE} --kind differential")).done();
    assert_eq!(ids(&world, "night"), ids(&world, "away"));
    assert_eq!((media_sets(&world, "a").len(), media_sets(&world, "a")), (2, media_sets(&world, "c")));
    // Two families each, in one place or in two, under names of their own, byte for byte the same.
    assert_eq!((families(&world, "a").len(), families(&world, "b").len(), families(&world, "c").len()), (2, 2, 4));
    assert!(families(&world, "c").iter().all(|name| name.starts_with("full-") || name.starts_with("differential-")));
    for (family, copy) in report["families"].as_array().unwrap().iter().zip(report["copies"].as_array().unwrap()) {
        assert!(family["blake3"] == copy["blake3"] && family["bytes"] == copy["bytes"], "{report:#}");
        let bytes = |family: &Value| fs::read(world.at(family["device"].as_str().unwrap())).unwrap();
        assert_eq!(bytes(family), bytes(copy));
    }
    let io = report["io"].as_array().unwrap();
    assert!(io.len() == 4 && io.iter().all(|device| device["ops"].as_u64() > Some(0)), "{report:#}");
    assert_eq!(
        report["stored_bytes"],
        report["families"].as_array().unwrap().iter().map(|family| family["bytes"].as_u64().unwrap()).sum::<u64>()
    );
    for folder in ["a", "c"] {
        assert_eq!(
            [
                records(&world, folder, "sets").len(),
                records(&world, folder, "decisions").len(),
                records(&world, folder, "tasks").len()
            ],
            [2, 2, 2]
        );
    }
    both_restore(&world);
    fs::remove_dir_all(world.at("a")).unwrap();
    world.run("restore --repo away --into sqlite:copy.db").done();
    world.assert_copy();
}

#[test]
fn a_log_set_goes_into_both_and_what_is_not_in_both_is_nobodys_base() {
    let world = world();
    database::sql(&world.at("app.db"), "PRAGMA journal_mode = wal; CREATE TABLE ledger (n INTEGER)");
    let app = crate::log::kept_open(&world);
    world.run(LINE).done();
    app.execute_batch("INSERT INTO ledger VALUES (1)").unwrap();
    world.run(&format!("{LINE} --kind log")).done();
    assert_eq!((ids(&world, "night").len(), ids(&world, "away").len()), (2, 2));
    // One that is in the first repository alone.
    world.run("backup sqlite:app.db --repo night").done();
    let alone = ids(&world, "night").pop().unwrap();
    let before = (families(&world, "a"), families(&world, "c"));
    world
        .run(&format!("{LINE} --kind differential"))
        .refused(3, "--copy-to away", &format!("{alone} of"))
        .says(&["is not there"]);
    assert_eq!((families(&world, "a"), families(&world, "c")), before);
    world.run(&format!("{LINE} --kind auto")).done().says(&["a full instead: --copy-to away"]);
    app.execute_batch("INSERT INTO ledger VALUES (2)").unwrap();
    world.run(&format!("{LINE} --kind auto")).done().says(&["a differential of full"]);
    for repository in ["night", "away"] {
        world.run(&format!("restore --repo {repository} --into sqlite:copy.db")).done();
        assert_eq!(database::number(&world.at("copy.db"), "SELECT max(n) FROM ledger"), 2);
        for name in ["copy.db", "copy.db-wal", "copy.db-shm"] {
            let _ = fs::remove_file(world.at(name)); // The side files may not be there.
        }
    }
}

#[test]
fn each_side_is_pruned_for_itself() {
    let world = world();
    for _ in 0..2 {
        world.run(LINE).done();
    }
    world.run("verify --repo away").done();
    world.run("prune --repo away --grace 0s --confirm").done();
    world.run("prune --repo night --grace 0s --confirm").with_code(4);
    assert_eq!((ids(&world, "night").len(), ids(&world, "away").len()), (2, 1));
    both_restore(&world);
}

#[test]
fn sets_that_cannot_be_mirrored_are_refused() {
    let world = world();
    let planned = world.run(&format!("{LINE} --dry-run")).done();
    assert!(["a", "b", "c"].iter().all(|folder| world.names(folder).is_empty()), "{planned}");
    world.run("backup sqlite:app.db --to a/ --copy-to away").with_code(2);
    world.run(&format!("{LINE} --copy-to night")).with_code(2);
    world.run("backup sqlite:app.db --repo night --copy-to night").refused(2, "--copy-to night", "itself");
    world.run("backup sqlite:app.db --repo night --copy-to none").refused(2, "--copy-to none", "is not a repository");
    world.run(&format!("{LINE} --stripes 1")).refused(2, "--stripes", "cannot use 2 devices");
    world.run(&format!("{LINE} --measure-limit")).with_code(2);
    fs::rename(world.at("c"), world.at("unmounted")).unwrap();
    world.run(LINE).refused(2, "c/", "not mounted");
    fs::rename(world.at("unmounted"), world.at("c")).unwrap();
    nothing_on_either_side(&world);
}

#[test]
fn more_places_on_the_second_side_are_all_used() {
    let world = world();
    fs::create_dir(world.at("d")).unwrap();
    fs::create_dir(world.at("e")).unwrap();
    world.write(
        "fullbore.toml",
        b"[repository.night]\nto = [\"a/\"]\n[repository.away]\nto = [\"c/\", \"d/\", \"e/\"]\n",
    );
    world.run(LINE).done();
    assert_eq!(["a", "c", "d", "e"].map(|folder| families(&world, folder).len()), [3, 1, 1, 1]);
    both_restore(&world);
}

#[test]
fn a_side_that_is_full_ends_the_backup_on_both() {
    use crate::small_disk::SmallDisk;
    const TEST: &str = "a_side_that_is_full_ends_the_backup_on_both";
    for (side, folders) in [("night", ("small", "c")), ("away", ("a", "small"))] {
        let world = world_of(Shape { rows: 20_000, ..Shape::default() });
        let Some(_disk) = SmallDisk::mount(&world, "small", 1, TEST) else { return };
        let text =
            format!("[repository.night]\nto = [\"{}/\"]\n[repository.away]\nto = [\"{}/\"]\n", folders.0, folders.1);
        world.write("fullbore.toml", text.as_bytes());
        let ended = world.run(&format!("{LINE} --compression none"));
        assert!(ended.code == 1 && ended.err.contains("small"), "{side}: {ended}");
        for folder in [folders.0, folders.1] {
            assert_eq!(families(&world, folder), Vec::<String>::new(), "{side}");
        }
    }
}

/// A store behind a proxy, and directories: `night` and `away`, or the other way round.
struct Remote {
    world: World,
    store: ObjectStore,
    proxy: FaultProxy,
}

impl Remote {
    fn new(store_is: &str) -> Self {
        let world = world_of(Shape { rows: 20_000, ..Shape::default() });
        let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
        store.make_bucket("media");
        let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
        let other = if store_is == "away" { "night" } else { "away" };
        let text =
            format!("[repository.{other}]\nto = [\"a/\", \"b/\"]\n[repository.{store_is}]\nto = [\"s3://media/x/\"]\n");
        world.write("fullbore.toml", text.as_bytes());
        Self { world, store, proxy }
    }

    fn run(&self, line: &str) -> Ended {
        let mut command = program::command(self.world.folder(), line.split_whitespace());
        command.envs(self.store.environment_at(self.proxy.endpoint()));
        program::run(command)
    }

    fn families(&self) -> Vec<String> {
        let keys = self.store.objects("media").into_iter().map(|object| object.key).filter(|key| key.contains(".bore"));
        keys.chain(families(&self.world, "a")).chain(families(&self.world, "b")).collect()
    }
}

#[test]
fn a_directory_and_a_store_hold_the_same() {
    let remote = Remote::new("away");
    remote.run(&format!("{LINE} --kind auto")).done();
    database::sql(&remote.world.at("app.db"), "CREATE TABLE more AS SELECT 1 AS n, 2 AS m");
    remote.run(&format!("{LINE} --kind auto")).done().says(&["a differential of full"]);
    assert_eq!(remote.families().len(), 8);
    assert_eq!(remote.store.uploads("media"), Vec::new());
    for repository in ["night", "away"] {
        remote.run(&format!("restore --repo {repository} --into sqlite:copy.db")).done();
        remote.world.assert_copy();
        fs::remove_file(remote.world.at("copy.db")).unwrap();
    }
}

#[test]
fn a_store_that_fails_at_any_request_on_either_side_leaves_nothing_on_both() {
    for side in ["away", "night"] {
        let remote = Remote::new(side);
        remote.run("backup sqlite:app.db --repo night --copy-to away").done();
        let before = remote.families();
        for operation in ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "PutObject"] {
            // Of each kind the first request goes through, so that one of two families is begun, or has its name.
            for passed in [0, 1] {
                let seen = AtomicUsize::new(0);
                remote.proxy.set_rule(move |request| match request.operation() == operation {
                    true if request.attempt > 0 || seen.fetch_add(1, Ordering::Relaxed) >= passed => {
                        Fault::INTERNAL_ERROR
                    }
                    _ => Fault::Pass,
                });
                let ended = remote.run(&format!("{LINE} --device-timeout 4 --compression none"));
                remote.proxy.set_rule(|_| Fault::Pass);
                assert_eq!(ended.code, 1, "{side} {operation} {passed}: {ended}");
                assert_eq!(remote.families(), before, "{side} {operation} {passed}: {ended}");
                assert_eq!(remote.store.uploads("media"), Vec::new(), "{side} {operation} {passed}");
            }
        }
        remote.run(LINE).done();
        assert_eq!(remote.families().len(), 2 * before.len());
    }
}

fn open_task(world: &World, folder: &str) -> Option<(String, Value)> {
    let names = records(world, folder, "tasks").into_iter().filter(|name| name.ends_with(".json"));
    let known = names.map(|name| format!("{folder}/.fullbore/tasks/{name}"));
    let known = known.map(|name| (serde_json::from_slice::<Value>(&world.read(&name)).unwrap(), name));
    known.filter(|(task, _)| task["ended_at"].is_null()).map(|(task, name)| (name, task)).next()
}

/// As if its host had died long ago.
fn without_lease(world: &World, folder: &str) {
    if let Some((name, mut task)) = open_task(world, folder) {
        task["lease_s"] = 0.into();
        world.write(&name, task.to_string().as_bytes());
        one_tick();
    }
}

fn running(world: &World) -> Running {
    let running = world.start(&format!("{LINE} --throttle 64KiB/s"));
    let writes = |folder| open_task(world, folder).is_some_and(|(_, task)| task["writes"].is_string());
    wait_until("both sides are written", || writes("a") && writes("c") && !families(world, "c").is_empty());
    running
}

#[test]
fn a_run_is_a_task_of_both_and_ends_when_either_is_cancelled_or_taken_for_dead() {
    let world = world_of(Shape { rows: 2_000, ..Shape::default() });
    let run = running(&world);
    let id = open_task(&world, "c").unwrap().1["task"].as_str().unwrap().to_owned();
    world.run(&format!("cancel {id} --repo away")).done();
    run.wait().with_code(130);
    for repository in ["night", "away"] {
        let tasks = world.run(&format!("tasks --repo {repository} --json")).done().json();
        assert!(tasks.as_array().unwrap().iter().all(|task| task["state"] == "CANCELLED"), "{tasks:#}");
    }
    let nothing = || assert_eq!(["a", "b", "c"].map(|folder| families(&world, folder).len()), [0, 0, 0]);
    nothing();
    for (side, folder) in [("night", "a"), ("away", "c")] {
        let run = running(&world);
        run.stop();
        without_lease(&world, folder);
        world.run(&format!("prune --repo {side} --grace 0s --confirm")).done().says(&["its host died"]);
        run.go_on();
        assert_eq!(run.wait().code, 1, "{side}");
        nothing();
        assert!(ids(&world, "night").is_empty() && ids(&world, "away").is_empty());
    }
}

#[test]
fn killed_at_any_moment_the_first_side_has_nothing_that_the_second_has_not() {
    let world = world();
    world.run(LINE).done();
    // As long as one takes here, now that both repositories are there.
    let begun = std::time::Instant::now();
    world.run(LINE).done();
    let mut whole = begun.elapsed();
    let mut random = fastrand::Rng::with_seed(15);
    let mut killed = 0;
    for round in 0..10 {
        let begun = std::time::Instant::now();
        let running = world.start(LINE);
        std::thread::sleep(whole.mul_f64(random.f64()));
        running.signal("KILL");
        match running.wait().code {
            0 => whole = whole.min(begun.elapsed()), // This machine has less to do by now.
            _ => killed += 1,
        }
        for (side, folder) in [("night", "a"), ("away", "c")] {
            without_lease(&world, folder);
            let pruned = world.run(&format!("prune --repo {side} --grace 0s --confirm"));
            assert!([0, 4].contains(&pruned.code), "round {round}: {pruned}");
        }
        let (first, second) = (ids(&world, "night"), ids(&world, "away"));
        assert!(first.iter().all(|id| second.contains(id)), "round {round}: {first:?} {second:?}");
        let whole = |set: &Value| set["incomplete"].is_null();
        assert!(list(&world, "night").iter().all(whole) && list(&world, "away").iter().all(whole), "round {round}");
        let left = [families(&world, "a"), families(&world, "b")].concat();
        assert_eq!(left.len(), 2 * first.len(), "round {round}: {left:?}");
        assert_eq!(families(&world, "c").len(), 2 * second.len(), "round {round}");
    }
    assert!(killed > 3, "{killed}");
    world.run(LINE).done();
    both_restore(&world);
}

#[test]
fn killed_between_the_two_commits_the_second_side_has_it_and_the_first_is_cleaned() {
    let world = world();
    world.run(LINE).done();
    // As it is then: both have leave, the second has the name, the first its working name, and neither a record.
    let set = media_sets(&world, "a").remove(0);
    let first = families(&world, "a").remove(0);
    let unfinished = format!("a/{first}.new-{set}");
    fs::rename(world.at(&format!("a/{first}")), world.at(&unfinished)).unwrap();
    for folder in ["a", "c"] {
        fs::remove_dir_all(world.at(&format!("{folder}/.fullbore/sets"))).unwrap();
        let name = format!("{folder}/.fullbore/tasks/{}", records(&world, folder, "tasks").remove(0));
        let mut task: Value = serde_json::from_slice(&world.read(&name)).unwrap();
        (task["state"], task["ended_at"], task["lease_s"]) = ("IN_PROGRESS".into(), Value::Null, 0.into());
        world.write(&name, task.to_string().as_bytes());
        one_tick();
    }
    // The next differential has its base in the first side, which holds none; what is wanted by itself is a full then.
    world.run(&format!("{LINE} --kind differential")).refused(3, "--kind differential", "no usable full");
    world.run("prune --repo night --grace 0s --confirm").done().says(&["it was interrupted during commit"]);
    world.run("prune --repo away --grace 0s --confirm").says(&["it had committed its set"]);
    assert_eq!(["a", "b", "c"].map(|folder| families(&world, folder).len()), [0, 0, 2]);
    world.run("restore --repo away --into sqlite:copy.db").done();
    world.assert_copy();
    fs::remove_file(world.at("copy.db")).unwrap();
    world.run(&format!("{LINE} --kind auto")).done();
    assert_eq!((ids(&world, "night").len(), ids(&world, "away").len()), (1, 2));
    both_restore(&world);
}
