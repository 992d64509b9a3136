//! Runs that a repository knows of: seen while they run, ended from elsewhere, and a test restore among them.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use fullbore_test_servers::wait_until;
use serde_json::Value;

use crate::database::Shape;
use crate::world::World;

fn world() -> World {
    let world = World::with_shape(Shape { rows: 20_000, ..Shape::default() });
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    world
}

fn tasks(world: &World) -> Vec<Value> {
    world.run("tasks --repo night --json").done().json().as_array().unwrap().clone()
}

fn families(world: &World) -> usize {
    world.names("a").iter().filter(|name| name.contains(".bore")).count()
}

#[test]
fn a_run_is_seen_while_it_runs_and_can_be_ended_from_elsewhere() {
    let world = world();
    world.run("backup sqlite:app.db --repo night").done();
    let running = world.start("backup sqlite:app.db --repo night --throttle 64KiB/s");
    wait_until("the backup moves bytes", || {
        tasks(&world).iter().any(|task| task["state"] == "IN_PROGRESS" && task["writes"].is_string())
    });
    let known = tasks(&world);
    let task = known.iter().find(|task| task["state"] == "IN_PROGRESS").unwrap();
    assert!(
        task["verb"] == "backup" && task["dead"] == false && task["database"].as_str().unwrap().ends_with("app.db")
    );
    let id = task["task"].as_str().unwrap();
    let ended = world.run(&format!("cancel {} --repo night", &id[..8])).done();
    assert!(ended.text().contains("state     cancelled"), "{ended}");
    running.wait().with_code(130).says(&["cancelled by fullbore cancel", "nothing usable was left behind"]);
    assert_eq!(families(&world), 1);
    let shown = world.run(&format!("task {id} --repo night")).done().text();
    for line in ["state     cancelled", "engine    sqlite", "error     "] {
        assert!(shown.contains(line), "{shown}");
    }
    world.run(&format!("cancel {id} --repo night")).refused(1, "task", "has already ended: cancelled");
    world
        .run("cancel 0000000000 --repo night")
        .refused(2, "task", "not known")
        .says(&["`fullbore tasks --repo night`"]);
    let states: Vec<_> = tasks(&world).iter().map(|task| task["state"].clone()).collect();
    assert_eq!(states, ["SUCCESS", "CANCELLED"]);
    let table = world.run("tasks --repo night").done().text();
    let rows: Vec<&str> = table.lines().skip(1).collect();
    assert!(rows.len() == 2 && rows[0].contains(" cancelled ") && rows[1].contains(" done "), "newest first: {table}");
    assert!(rows.iter().all(|row| row.contains(" sqlite ")), "{table}");
    let last = world.run("tasks --repo night --last 1").done().text();
    assert!(last.lines().count() == 2 && last.contains(" cancelled "), "{last}");
    let done = world.run("tasks --repo night --state done --json").done().object();
    assert_eq!((&done["command"], &done["tasks"][0]["state"]), (&"tasks".into(), &"SUCCESS".into()), "{done}");
    assert!(done["schema_version"] == 1 && done["tasks"].as_array().unwrap().len() == 1, "{done}");
    assert_eq!(world.run("tasks --repo night -q").done().text(), "", "nothing failed");
}

#[test]
fn a_run_that_was_killed_on_this_host_is_dead_at_once() {
    let world = world();
    world.run("backup sqlite:app.db --repo night").done();
    let running = world.start("backup sqlite:app.db --repo night --throttle 64KiB/s");
    wait_until("the backup moves bytes", || tasks(&world).iter().any(|task| task["state"] == "IN_PROGRESS"));
    running.signal("KILL");
    running.wait().with_code(-9);
    let task = tasks(&world).pop().unwrap();
    assert_eq!((&task["state"], &task["dead"]), (&"IN_PROGRESS".into(), &true.into()), "{task}");
    let id = task["task"].as_str().unwrap();
    let ended = world.run(&format!("cancel {id} --repo night")).refused(1, "task", "was killed");
    ended.says(&["`fullbore prune --repo night --confirm` removes its files once it is silent for "]);
}

#[test]
fn a_run_that_failed_says_of_what() {
    let world = world();
    world.run("backup sqlite:app.db --repo night").done();
    let line = "backup sqlite:none.db --repo night";
    assert_ne!(world.run(line).code, 0);
    let task = tasks(&world).pop().unwrap();
    assert!(task["state"] == "ERROR" && task["error"].as_str().unwrap().contains("none.db"), "{task}");
}

#[test]
fn a_repository_without_a_set_is_not_valid() {
    let world = world();
    assert_ne!(world.run("backup sqlite:none.db --repo night --mkdir").code, 0);
    world.run("backup sqlite:app.db --repo night").done();
    for name in world.names("a").into_iter().filter(|name| name.ends_with(".bore")) {
        fs::remove_file(world.at(&format!("a/{name}"))).unwrap();
    }
    fs::remove_dir_all(world.at("a/.fullbore/sets")).unwrap();
    fs::create_dir(world.at("a/.fullbore/sets")).unwrap();
    for verb in ["verify", "check"] {
        world.run(&format!("{verb} --repo night")).refused(2, "--repo night", "holds no backup set");
    }
}

#[test]
fn a_test_restore_is_written_down_and_leaves_nothing() {
    let world = world();
    world.run("backup sqlite:app.db --repo night").done();
    fs::create_dir(world.at("scratch")).unwrap();
    world.run("restore-test --repo night --scratch scratch").done().says(&["recorded as proven"]);
    assert_eq!(world.names("scratch"), Vec::<String>::new());
    let listed = world.run("list --repo night --json").done().json();
    assert!(listed[0]["proven_at"].is_string() && listed[0]["verified_at"].is_string(), "{listed}");
    let verdict = world.names("a/.fullbore/verdicts").remove(0);
    let verdict: Value = serde_json::from_slice(&world.read(&format!("a/.fullbore/verdicts/{verdict}"))).unwrap();
    assert!(verdict["by"] == "restore-test" && verdict["elapsed_s"].as_f64() > Some(0.0), "{verdict}");
}

#[test]
fn a_test_restore_of_damaged_media_fails_and_that_is_written_down() {
    let world = world();
    world.run("backup sqlite:app.db --repo night").done();
    let family = world.names("a").into_iter().find(|name| name.ends_with(".bore")).unwrap();
    let mut bytes = world.read(&format!("a/{family}"));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    world.write(&format!("a/{family}"), &bytes);
    fs::create_dir(world.at("scratch")).unwrap();
    sleep(Duration::from_millis(1));
    world.run("restore-test --repo night --scratch scratch").with_code(3).says(&[&family]);
    assert_eq!(world.names("scratch"), Vec::<String>::new());
    let listed = world.run("list --repo night --json").with_code(4).json();
    assert!(listed[0]["failed_at"].is_string() && listed[0]["proven_at"].is_null(), "{listed}");
    world.run("restore-test --repo night --scratch none").refused(2, "none", "make");
}

#[test]
fn the_next_test_restore_removes_leftovers_of_a_killed_one_and_none_of_a_running_one() {
    let world = World::with_shape(Shape { rows: 100_000, ..Shape::default() });
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    world.run("backup sqlite:app.db --repo night").done();
    fs::create_dir(world.at("scratch")).unwrap();
    let line = "restore-test --repo night --scratch scratch";
    let killed = world.start(line);
    wait_until("the database is restored", || {
        world.names("scratch").iter().any(|folder| !world.names(&format!("scratch/{folder}")).is_empty())
    });
    killed.stop();
    let left = world.names("scratch");
    world.run(line).done();
    assert_eq!(world.names("scratch"), left, "it sleeps, and is not dead");
    killed.signal("KILL");
    killed.wait().with_code(-9);
    assert_eq!(world.names("scratch"), left);
    world.run(line).done().says(&["note: removed the leftover of a killed restore-test", &left[0]]);
    assert_eq!(world.names("scratch"), Vec::<String>::new());
}
