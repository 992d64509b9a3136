//! `log follow --repo`: the log of a database that is written to, followed into a repository in which others back up and prune meanwhile.

use std::fs;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::database;
use crate::log::{kept_open, now, restored_meanwhile, restored_up_to};
use crate::log_follow::{Writer, newest_row, until, world as plain_world};
use crate::program::{Ended, Running};
use crate::world::{World, one_tick};

const FOLLOW: &str = "log follow sqlite:app.db --repo night --interval 100ms";

fn world() -> World {
    let world = plain_world();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\", \"b/\"]\n[repository.night.keep]\nlast = 1\n");
    world
}

fn names(world: &World, folder: &str) -> Vec<String> {
    let path = format!("a/.fullbore/{folder}");
    let names = if world.at(&path).is_dir() { world.names(&path) } else { Vec::new() };
    // A record that is being written is none yet.
    names.into_iter().filter(|name| !name.contains(".unfinished-")).collect()
}

fn record(world: &World, name: &str) -> Value {
    serde_json::from_slice(&world.read(&format!("a/.fullbore/{name}"))).unwrap()
}

fn write_record(world: &World, name: &str, record: &Value) {
    let path = world.at(&format!("a/.fullbore/{name}"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, record.to_string()).unwrap();
    one_tick();
}

/// The follower's own record, and its name.
fn task(world: &World) -> Option<(String, Value)> {
    let of_tasks = names(world, "tasks").into_iter().filter(|name| name.ends_with(".json"));
    let mut known = of_tasks.map(|name| (format!("tasks/{name}"), record(world, &format!("tasks/{name}"))));
    known.rfind(|(_, task)| task["verb"] == "log follow" && task["ended_at"].is_null())
}

fn sets(world: &World) -> usize {
    names(world, "sets").iter().filter(|name| name.ends_with(".json")).count()
}

fn wait_for_sets(world: &World, more: usize) {
    let before = sets(world);
    until("sets", || sets(world) >= before + more);
}

/// Waits until `row` is on media, whichever set it is in: one that a follower had begun may come before it.
#[track_caller]
fn stored(world: &World, row: i64) {
    until("the row on media", || restored_meanwhile(world, "--repo night") == Some(row));
}

/// A follower that has written its first set, or continues after those that are there.
fn following(world: &World, line: &str) -> Running {
    let follower = world.start(line);
    let leases = || task(world).is_some_and(|(_, task)| task["needs"].as_array().is_some_and(|ids| !ids.is_empty()));
    until("a follower", || leases() && sets(world) > 0);
    follower
}

#[track_caller]
fn ended(follower: Running) {
    follower.signal("TERM");
    let ended = follower.wait();
    assert!(ended.code == 0 || ended.code == 4 && ended.err.contains("killed backup"), "{ended}");
}

fn prune(world: &World) -> Ended {
    world.run("prune --repo night --grace 0s --confirm")
}

fn insert(app: &Connection, row: i64) {
    app.execute("INSERT INTO ledger VALUES (?1, ?1, NULL)", [row]).unwrap();
}

#[test]
fn beside_prunes_and_fulls_of_others_every_commit_comes_back() {
    let world = world();
    let follower = following(&world, FOLLOW);
    let mut writer = Writer::start(&world, "");
    let mut times = Vec::new();
    for round in 0..3 {
        wait_for_sets(&world, 2);
        times.push((now(), newest_row(&world.at("app.db"))));
        // A newer verified chain would let prune remove the follower's base, but for its lease.
        let full = world.run("backup sqlite:app.db --repo night --report json").done().object();
        // Not --latest: a log set may be newer by now.
        world.run(&format!("verify --repo night --set {}", full["backup_set_id"].as_str().unwrap())).done();
        let pruned = prune(&world).done();
        assert!(task(&world).is_some(), "round {round}: {pruned}");
    }
    wait_for_sets(&world, 1);
    let (_, running) = task(&world).unwrap();
    assert!(running["needs"].as_array().unwrap().len() == 2 && running["state"] == "IN_PROGRESS", "{running}");
    writer.kill();
    ended(follower);
    assert_eq!(restored_up_to(&world, "--repo night"), newest_row(&world.at("app.db")));
    let (time, row) = times.pop().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert!(restored_up_to(&world, &format!("--repo night --stop-at {time}")) <= row + 1);
    assert!(task(&world).is_none(), "its task has ended");
    let catalogued = world.run("list --repo night --json --catalog").done().json();
    assert_eq!(&catalogued, &world.run("list --repo night --json").done().json());
}

#[test]
fn a_killed_follower_goes_on_without_a_gap() {
    let world = world();
    let app = kept_open(&world);
    let mut row = 0;
    let mut times = Vec::new();
    for round in 0..4 {
        let follower = following(&world, FOLLOW);
        for _ in 0..3 {
            row += 1;
            insert(&app, row);
            stored(&world, row);
        }
        times.push((now(), row));
        std::thread::sleep(std::time::Duration::from_millis(30));
        row += 1;
        insert(&app, row);
        // Also in the middle of a set.
        std::thread::sleep(std::time::Duration::from_millis(40 * round));
        follower.signal("KILL");
        follower.wait();
        let (name, mut dead) = task(&world).unwrap();
        dead["lease_s"] = 0.into();
        write_record(&world, &name, &dead);
        prune(&world).done().says(&["its host died"]);
    }
    ended(following(&world, FOLLOW));
    assert_eq!(restored_up_to(&world, "--repo night"), row);
    for (time, row) in times {
        assert_eq!(restored_up_to(&world, &format!("--repo night --stop-at {time}")), row);
    }
    let listed = world.run("list --repo night --json").done().json();
    let kinds = listed.as_array().unwrap().iter().filter(|set| set["kind"] == "full").count();
    assert_eq!(kinds, 1, "each continues where the one before was killed");
    world.run("verify --repo night").done();
}

#[test]
fn to_cancel_a_follower_is_to_end_it_well() {
    let world = world();
    let app = kept_open(&world);
    let follower = world.start("log follow sqlite:app.db --repo night --interval 1h");
    until("a full", || sets(&world) == 1);
    until("its lease", || task(&world).is_some_and(|(_, task)| task["state"] == "IN_PROGRESS"));
    insert(&app, 1);
    let id = task(&world).unwrap().1["task"].as_str().unwrap().to_owned();
    let shown = world.run(&format!("cancel {id} --repo night")).done().text();
    assert!(shown.contains("state     cancelled"), "{shown}");
    follower.wait().done().says(&["it has all commits"]);
    assert_eq!(restored_up_to(&world, "--repo night"), 1);
    let task = record(&world, &format!("tasks/{id}.json"));
    assert!(task["state"] == "CANCELLED" && task["error"].is_null() && task["needs"] == json!([]), "{task}");
}

/// A follower whose host slept so long that it was taken for dead, and what it stood on was removed.
fn overslept(line: &str) -> (World, Connection, Running, i64) {
    let world = world();
    let app = kept_open(&world);
    let follower = following(&world, line);
    insert(&app, 1);
    stored(&world, 1);
    follower.stop();
    let (name, mut asleep) = task(&world).unwrap();
    asleep["lease_s"] = 0.into();
    write_record(&world, &name, &asleep);
    insert(&app, 2);
    world.run("backup sqlite:app.db --repo night").done();
    world.run("verify --repo night --latest").done();
    let pruned = prune(&world).done().says(&["its host died; it had committed its set"]);
    assert_eq!(sets(&world), 1, "what it stood on is gone: {pruned}");
    follower.go_on();
    insert(&app, 3);
    (world, app, follower, 3)
}

#[test]
fn a_follower_whose_base_was_removed_while_its_host_slept_commits_nothing_on_it() {
    let (world, _app, follower, _) = overslept(FOLLOW);
    follower.wait().refused(1, "backup set", "was removed").says(&["--full-if-needed takes a new full"]);
    assert_eq!((sets(&world), restored_up_to(&world, "--repo night")), (1, 2));
    assert!(names(&world, "decisions").len() == 1, "no set had leave to be committed");
}

#[test]
fn a_follower_whose_base_was_removed_goes_on_with_a_new_full_if_that_was_asked_for() {
    let (world, app, follower, row) = overslept(&format!("{FOLLOW} --full-if-needed"));
    until("a full", || sets(&world) == 2);
    insert(&app, row + 1);
    stored(&world, row + 1);
    follower.signal("TERM");
    follower.wait().done().says(&["was removed", "a full is taken"]);
    assert_eq!(restored_up_to(&world, "--repo night"), row + 1);
}

#[test]
fn a_tombstone_on_what_it_stands_on_is_waited_for() {
    let world = world();
    let app = kept_open(&world);
    let follower = following(&world, FOLLOW);
    insert(&app, 1);
    stored(&world, 1);
    until("the last set is leased", || task(&world).is_some_and(|(_, task)| task["writes"].is_string()));
    let tip = task(&world).unwrap().1["writes"].as_str().unwrap().to_owned();
    let grave = json!({ "task": "11111111-1111-4111-8111-111111111111", "host": "elsewhere", "families": [] });
    write_record(&world, &format!("tombstones/{tip}.json"), &grave);
    insert(&app, 2);
    follower.says("next try in");
    assert_eq!(sets(&world), 2, "nothing is committed on what is about to go");
    prune(&world).done().says(&["its tombstone was taken back"]);
    stored(&world, 2);
    follower.signal("TERM");
    follower.wait().done().says(&["is being removed by prune", "next try in"]);
    assert_eq!(restored_up_to(&world, "--repo night"), 2);
}

#[test]
fn a_log_without_a_base_in_the_repository_is_refused_or_a_full_is_taken() {
    let world = world();
    world.run("backup sqlite:app.db --repo night").done();
    // Nobody holds the log: the last connection copies and removes it.
    database::sql(&world.at("app.db"), "INSERT INTO ledger VALUES (1, 1, NULL)");
    let app = kept_open(&world);
    world.run(FOLLOW).refused(1, "app.db-wal", "are lost or cannot be proved");
    let follower = following(&world, &format!("{FOLLOW} --full-if-needed"));
    until("a full", || sets(&world) == 2);
    insert(&app, 2);
    stored(&world, 2);
    ended(follower);
    assert_eq!(restored_up_to(&world, "--repo night"), 2);
    let line = "log follow sqlite:app.db --repo night --name-template {time}.bore";
    world.run(line).refused(2, "--name-template", "gives several sets the same name");
    world.run("log follow sqlite:app.db --repo night --to a/").with_code(2);
    world.run("log follow sqlite:app.db --repo night --base a").with_code(2);
    world.run("log follow sqlite:app.db --repo day").refused(2, "--repo day", "configured are: night");
}
