//! Retention in a repository: what is said, what goes, and who is heard before it goes.

use std::fs;

use fullbore_test_servers::wait_until;
use serde_json::{Value, json};

use crate::database::{self, Shape};
use crate::log::kept_open;
use crate::program::Ended;
use crate::world::{World, one_tick};

fn world() -> World {
    let world = World::with_shape(Shape { rows: 300, ..Shape::default() });
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.night.keep]\nlast = 1\n");
    world
}

/// A full and its differential.
fn chain(world: &World, number: usize) -> Vec<String> {
    world.run("backup sqlite:app.db --repo night").done();
    database::sql(&world.at("app.db"), &format!("CREATE TABLE more_{number} AS SELECT 1 AS n, 2 AS m"));
    world.run("backup sqlite:app.db --repo night --kind differential").done();
    let ids = ids(world);
    ids[ids.len() - 2..].to_vec()
}

/// Two chains: the older one, which is told, and one after it that is verified.
fn old_and_verified() -> (World, Vec<String>) {
    let world = world();
    let old = chain(&world, 1);
    chain(&world, 2);
    world.run("verify --repo night --latest").done();
    (world, old)
}

fn ids(world: &World) -> Vec<String> {
    let listed = world.run("list --repo night --json").json();
    listed.as_array().unwrap().iter().map(|set| set["backup_set_id"].as_str().unwrap().to_owned()).collect()
}

fn prune(world: &World, options: &str) -> Ended {
    world.run(&format!("prune --repo night --grace 0s {options}"))
}

fn families(world: &World) -> usize {
    world.names("a").iter().filter(|name| name.contains(".bore")).count()
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

/// The task that runs.
fn open_task(world: &World) -> Option<Value> {
    let folder = world.at("a/.fullbore/tasks");
    let names = if folder.is_dir() { world.names("a/.fullbore/tasks") } else { Vec::new() };
    let names = names.into_iter().filter(|name| name.ends_with(".json"));
    let known: Vec<Value> = names.map(|name| record(world, &format!("tasks/{name}"))).collect();
    known.into_iter().find(|task| task["ended_at"].is_null())
}

/// Another host's run that lives.
fn other_task(world: &World, verb: &str, needs: &[&str]) {
    let task = "11111111-1111-4111-8111-111111111111";
    let of = json!({ "format": 1, "task": task, "verb": verb, "database": null, "host": "elsewhere", "process": 1, "ended_at": null,
        "started_at": "2026-11-22T00:00:00Z", "state": "IN_PROGRESS", "lease_s": 300, "needs": needs, "writes": null, "families": [],
        "progress": { "done_bytes": 0, "total_bytes": 0, "stored_bytes": 0, "elapsed_s": 0.0 }, "error": null });
    write_record(world, &format!("tasks/{task}.json"), &of);
}

#[test]
fn nothing_goes_before_something_newer_was_verified() {
    let world = world();
    let old = chain(&world, 1);
    let new = chain(&world, 2);
    let planned =
        prune(&world, "").with_code(4).says(&["none of its chains is verified", "`fullbore verify --repo night`"]);
    assert!(planned.text().contains("0 of 4 sets can be removed"), "{planned}");
    prune(&world, "--confirm").with_code(4);
    assert_eq!(families(&world), 4);
    world.run(&format!("verify --repo night --set {}", &old[0])).done();
    prune(&world, "--confirm").with_code(4);
    world.run("verify --repo night --latest").done();
    let planned = prune(&world, "").done().text();
    assert!(planned.contains("2 of 4 sets can be removed") && planned.contains("last 1 of 1"), "{planned}");
    let head = planned.lines().next().unwrap();
    assert!(head.contains(" codec ") && !head.contains("encrypted") && planned.contains(" lz4 "), "{planned}");
    assert_eq!(families(&world), 4);
    let done = prune(&world, "--confirm --json").done().json();
    assert_eq!(done["deleted"], json!([old[1], old[0]]), "the differential goes before its full");
    assert_eq!((ids(&world), families(&world)), (new, 2));
    assert_eq!(world.names("a/.fullbore/tombstones"), Vec::<String>::new());
    world.run("restore --repo night --into sqlite:copy.db").done();
}

/// What orders sets and what prunes them read the words that all engines share. So they can do it for an engine of a newer fullbore.
#[test]
fn chains_of_an_engine_that_this_program_does_not_know_are_listed_and_pruned_as_those_of_others() {
    let world = world();
    let app = kept_open(&world);
    for (number, kind) in ["full", "log", "log", "full", "log", "log"].into_iter().enumerate() {
        app.execute_batch(&format!("CREATE TABLE of_set_{number} AS SELECT 1 AS n")).unwrap();
        world.run(&format!("backup sqlite:app.db --repo night --kind {kind}")).done();
    }
    world.run("verify --repo night --latest").done();
    let said = |world: &World| {
        let mut sets = world.run("list --repo night --json").done().json();
        sets.as_array_mut().unwrap().iter_mut().for_each(|set| set["engine"] = json!(null));
        let mut pruned = prune(world, "--json").done().json();
        pruned["sets"].as_array_mut().unwrap().iter_mut().for_each(|set| set["engine"] = Value::Null);
        (sets, pruned)
    };
    let before = said(&world);
    for id in ids(&world) {
        let name = format!("sets/{id}.json");
        let mut of_set = record(&world, &name);
        let log = of_set["position"]["log"].take();
        assert!(log["last"].is_object(), "{of_set}");
        of_set["engine"] = json!("frobnicator");
        of_set["position"] = json!({ "first": "?", "checkpoint": [1], "last": {}, "log": log });
        write_record(&world, &name, &of_set);
    }
    fs::remove_file(world.at("state/fullbore/catalog.db")).unwrap();
    assert_eq!(said(&world), before);
    let deleted = prune(&world, "--confirm --json").done().json();
    assert_eq!(deleted["deleted"].as_array().unwrap().len(), 3, "the older full and its log sets: {deleted}");
}

#[test]
fn a_set_that_another_host_uses_stays_and_its_user_is_named() {
    let (world, old) = old_and_verified();
    other_task(&world, "restore", &[&old[0], &old[1]]);
    let kept = prune(&world, "--confirm").done().text();
    assert!(kept.contains("leased by restore 11111111") && kept.contains("on elsewhere"), "{kept}");
    assert_eq!(families(&world), 4);
    other_task(&world, "prune", &[]);
    prune(&world, "--confirm").refused(1, "another prune runs", "elsewhere");
}

#[test]
fn a_set_being_pruned_is_no_base_and_is_not_restored() {
    let world = world();
    let ids = chain(&world, 1);
    let grave = json!({ "task": "11111111-1111-4111-8111-111111111111", "host": "elsewhere", "families": [] });
    write_record(&world, &format!("tombstones/{}.json", ids[0]), &grave);
    world.run("backup sqlite:app.db --repo night --kind differential").with_code(3);
    world.run("restore --repo night --into sqlite:copy.db").refused(1, &ids[0], "is being removed by prune");
    world.assert_no_copy();
    // That prune is dead: the next one takes it back.
    prune(&world, "--confirm").done().says(&["its tombstone was taken back"]);
    world.run("restore --repo night --into sqlite:copy.db").done();
}

#[test]
fn the_next_prune_finishes_a_killed_one() {
    let (world, old) = old_and_verified();
    let set = record(&world, &format!("sets/{}.json", old[1]));
    let grave =
        json!({ "task": "11111111-1111-4111-8111-111111111111", "host": "elsewhere", "families": set["families"] });
    write_record(&world, &format!("tombstones/{}.json", old[1]), &grave);
    let name = set["families"][0]["name"].as_str().unwrap();
    fs::remove_file(world.at("a").join(name)).unwrap();
    fs::remove_file(world.at(&format!("a/.fullbore/sets/{}.json", old[1]))).unwrap();
    prune(&world, "--confirm").done();
    assert_eq!((families(&world), world.names("a/.fullbore/tombstones").len()), (2, 0));
}

/// A backup that moves bytes, and the name of its record.
fn running(world: &World) -> (crate::program::Running, String) {
    let running = world.start("backup sqlite:app.db --repo night --throttle 64KiB/s");
    wait_until("the backup writes", || open_task(world).is_some_and(|task| task["writes"].is_string()));
    wait_until("its families have working names", || families(world) > 0);
    let task = open_task(world).unwrap();
    (running, format!("tasks/{}.json", task["task"].as_str().unwrap()))
}

fn without_lease(world: &World, name: &str) {
    let mut task = record(world, name);
    task["lease_s"] = 0.into();
    write_record(world, name, &task);
}

#[test]
fn leftovers_of_a_dead_host_are_removed_after_its_lease() {
    let world = World::with_shape(Shape { rows: 20_000, ..Shape::default() });
    world.write(
        "fullbore.toml",
        b"[repository.night]\nto = [\"a/\", \"b/\"]\nstripes = 4\n[repository.night.keep]\nlast = 1\n",
    );
    let (running, name) = running(&world);
    running.signal("KILL");
    running.wait();
    prune(&world, "--confirm").done();
    let left = || world.names("a").len() + world.names("b").len();
    assert!(left() > 1, "its lease lives");
    without_lease(&world, &name);
    prune(&world, "").done().says(&["--confirm removes its files"]);
    prune(&world, "--confirm").done().says(&["its host died; its files were removed"]);
    assert_eq!(left(), 1, "only the records: {:?} {:?}", world.names("a"), world.names("b"));
    let task = record(&world, &name);
    assert!(task["state"] == "ERROR" && task["error"].as_str().unwrap().contains("its host was silent"), "{task}");
}

#[test]
fn a_host_that_wakes_up_cannot_commit_what_was_removed() {
    let world = World::with_shape(Shape { rows: 2_000, ..Shape::default() });
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.night.keep]\nlast = 1\n");
    let (running, name) = running(&world);
    running.stop();
    without_lease(&world, &name);
    prune(&world, "--confirm").done().says(&["its host died"]);
    running.go_on();
    let ended = running.wait();
    assert_eq!(ended.code, 1, "{ended}");
    assert_eq!(families(&world), 0, "{:?}", world.names("a"));
    assert_eq!(ids(&world), Vec::<String>::new());
}

#[test]
fn a_prune_that_wakes_up_removes_nothing_that_another_has_spared_meanwhile() {
    let (world, old) = old_and_verified();
    let sleeper = world.start("prune --repo night --confirm --grace 8s");
    let has = |id: &String| world.at(&format!("a/.fullbore/tombstones/{id}.json")).exists();
    wait_until("both sets have tombstones", || old.iter().all(has));
    sleeper.stop();
    let task = open_task(&world).unwrap();
    without_lease(&world, &format!("tasks/{}.json", task["task"].as_str().unwrap()));
    // Somebody wants to keep more, and the prune that slept is dead.
    prune(&world, "--confirm --keep-last 9").done().says(&["its host died", "its tombstone was taken back"]);
    sleeper.go_on();
    sleeper.wait().refused(1, &old[1], "another prune has meanwhile decided");
    assert_eq!((families(&world), ids(&world).len()), (4, 4));
    world.run(&format!("restore --repo night --set {} --into sqlite:copy.db", old[1])).done();
}

#[test]
fn sets_that_a_cancelled_prune_kept_can_be_restored_at_once() {
    let (world, old) = old_and_verified();
    let cancelled = world.start("prune --repo night --confirm --grace 60s");
    let has = |id: &String| world.at(&format!("a/.fullbore/tombstones/{id}.json")).exists();
    wait_until("both sets have tombstones", || old.iter().all(has));
    let line = format!("restore --repo night --set {} --into sqlite:copy.db", old[1]);
    world.run(&line).refused(1, &old[0], "is being removed by prune");
    cancelled.signal("INT");
    cancelled.wait().with_code(130);
    world.run(&line).done();
    assert_eq!(families(&world), 4);
}

#[test]
fn a_base_that_went_while_a_host_slept_is_missed_before_anything_is_committed_on_it() {
    let world = World::with_shape(Shape { rows: 2_000, ..Shape::default() });
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.night.keep]\nlast = 1\n");
    world.run("backup sqlite:app.db --repo night").done();
    let base = ids(&world).remove(0);
    let running = world.start("backup sqlite:app.db --repo night --kind differential --throttle 128KiB/s");
    wait_until("the backup writes", || open_task(&world).is_some_and(|task| task["writes"].is_string()));
    running.stop();
    let set = record(&world, &format!("sets/{base}.json"));
    fs::remove_file(world.at("a").join(set["families"][0]["name"].as_str().unwrap())).unwrap();
    fs::remove_file(world.at(&format!("a/.fullbore/sets/{base}.json"))).unwrap();
    running.go_on();
    assert_ne!(running.wait().code, 0);
    assert_eq!((families(&world), ids(&world).len()), (0, 0), "{:?}", world.names("a"));
}

#[test]
fn a_host_that_dies_before_its_commit_leaves_no_uncommitted_set() {
    let world = World::with_shape(Shape { rows: 20_000, ..Shape::default() });
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\", \"b/\"]\n[repository.night.keep]\nlast = 1\n");
    let (running, name) = running(&world);
    running.signal("KILL");
    running.wait();
    let task = record(&world, &name);
    let set = task["writes"].as_str().unwrap();
    write_record(&world, &format!("decisions/{set}.json"), &json!({ "decision": "committed", "task": task["task"] }));
    without_lease(&world, &name);
    prune(&world, "--confirm").done().says(&["it was interrupted during commit"]);
    assert_eq!((world.names("a").len(), world.names("b").len()), (1, 0), "only the records");
    // The same of a whole set: it stays.
    chain(&world, 1);
    let finished = world.names("a/.fullbore/tasks").into_iter().map(|name| format!("tasks/{name}"));
    let name = finished
        .into_iter()
        .find(|name| record(&world, name)["state"] == "SUCCESS" && record(&world, name)["writes"].is_string());
    let name = name.unwrap();
    let mut task = record(&world, &name);
    (task["state"], task["ended_at"], task["lease_s"]) = ("IN_PROGRESS".into(), Value::Null, 0.into());
    write_record(&world, &name, &task);
    prune(&world, "--confirm").done().says(&["it had committed its set"]);
    assert_eq!(ids(&world).len(), 2);
}

#[test]
fn a_task_record_that_cannot_be_read_stops_a_prune_while_its_run_may_live_and_nothing_else() {
    let (world, _) = old_and_verified();
    let torn = world.at("a/.fullbore/tasks/torn.json");
    let large = world.at("a/.fullbore/tasks/large.json");
    fs::write(&torn, "{\"format\":1,\"task\":").unwrap();
    let was_written_minutes_ago = |path: &std::path::Path, minutes: u64| {
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(60 * minutes);
        fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
    };
    for minutes in [0, 55] {
        was_written_minutes_ago(&torn, minutes);
        prune(&world, "--confirm")
            .refused(3, "tasks/torn.json", "is not a record of a repository")
            .says(&["60 minutes"]);
    }
    world.run("restore --repo night --into sqlite:copy.db").with_code(4).says(&["tasks/torn.json"]);
    assert_eq!(families(&world), 4);
    // Longer ago than any lease lasts.
    fs::write(&large, vec![b' '; (1 << 20) + 1]).unwrap();
    was_written_minutes_ago(&large, 65);
    was_written_minutes_ago(&torn, 65);
    let words = ["warning: ", "tasks/torn.json", "is not a record of a repository", "tasks/large.json"];
    prune(&world, "--confirm").with_code(4).says(&words);
    assert_eq!(families(&world), 2);
    assert!(torn.exists() && large.exists(), "what nobody understands is left to people");
}

/// As where an answer of a store comes twice, the second time to the question for what another run leases.
#[test]
fn the_record_of_another_run_does_not_stand_for_one_that_may_lease_sets() {
    let (world, ids) = old_and_verified();
    other_task(&world, "restore", &[&ids[0]]);
    let name = "tasks/11111111-1111-4111-8111-111111111111.json";
    let mut of_another = record(&world, name);
    (of_another["task"], of_another["needs"]) = ("22222222-2222-4222-8222-222222222222".into(), json!([]));
    write_record(&world, name, &of_another);
    prune(&world, "--confirm").refused(3, name, "is the record of another run").says(&["60 minutes"]);
    world.run("list --repo night").with_code(4).says(&[name]);
    fs::remove_file(world.at(&format!("a/.fullbore/{name}"))).unwrap();
    prune(&world, "--confirm").done();
}

#[test]
fn records_that_a_killed_run_has_never_named_go_when_they_are_old() {
    let world = world();
    chain(&world, 1);
    let (old, young) = ("tasks/x.json.unfinished-old", "decisions/x.json.unfinished-young");
    let ended = world.names("a/.fullbore/tasks").remove(0).replace(".json", ".cancel");
    let cancel = format!("tasks/{ended}");
    for name in [old, young, "clock/left.json", "probe-left", &cancel] {
        let path = world.at(&format!("a/.fullbore/{name}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        if name != young {
            let then = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
            fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
        }
    }
    prune(&world, "--confirm").done();
    let is_there = |name: &str| world.at(&format!("a/.fullbore/{name}")).exists();
    assert!(!is_there(old) && !is_there("clock/left.json") && !is_there("probe-left"));
    assert!(!is_there(&cancel), "nobody is left to hear it");
    assert!(is_there(young), "a run may be about to rename it");
}

#[test]
fn a_policy_that_keeps_nothing_is_refused() {
    let world = world();
    chain(&world, 1);
    world.run("prune --repo a/").refused(2, "prune", "would keep nothing");
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.night.keep]\nlast = 0\n");
    prune(&world, "--confirm").refused(2, "[repository.night.keep]", "would keep nothing");
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.night.keep]\nlasts = 1\n");
    prune(&world, "--confirm").refused(2, "line 4", "lasts");
}

#[test]
fn last_night_is_good_when_it_is_young_and_proven() {
    let world = world();
    chain(&world, 1);
    world.run("check --repo night --max-age 26h").done();
    let line = "check --repo night --max-age 26h --max-unproven 8d --metrics night.prom";
    world.run(line).refused(1, "--repo night", "never proven: none of its complete chains was verified");
    world.run("restore-test --repo night --scratch b").done();
    let good = world.run(line).done().text();
    assert!(good.contains("good"), "{good}");
    let metrics = world.text("night.prom");
    let database = world.at("app.db");
    let labels = format!("{{repository=\"night\",engine=\"sqlite\",database=\"{}\"}}", database.display());
    assert!(metrics.contains(&format!("fullbore_database_good{labels} 1\n")), "{metrics}");
    assert!(metrics.contains("fullbore_repository_reachable{repository=\"night\"} 1\n"), "{metrics}");
    // A link is written through, and stays one.
    std::os::unix::fs::symlink("night.prom", world.at("link.prom")).unwrap();
    world.run("check --repo night --metrics link.prom").done();
    assert!(world.at("link.prom").is_symlink() && world.text("night.prom").contains("fullbore_database_good"));
    std::thread::sleep(std::time::Duration::from_millis(1100));
    world.run("check --repo night --max-age 1s").refused(1, "--repo night", "its newest backup is");
    fs::rename(world.at("a"), world.at("gone")).unwrap();
    assert_ne!(world.run(line).code, 0);
    let metrics = world.text("night.prom");
    assert!(metrics.contains("fullbore_repository_reachable{repository=\"night\"} 0\n"), "{metrics}");
}

#[test]
fn a_database_without_new_backups_is_reported_only_if_its_sets_are_damaged() {
    let world = world();
    chain(&world, 1);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let line = "check --repo night --max-age 1s --max-unproven 1s";
    world.run(line).refused(1, "--repo night", "its newest backup is");
    let good = world.run(&format!("{line} --retired app --json")).done().json();
    assert_eq!((&good[0]["retired"], &good[0]["sets"]), (&true.into(), &2.into()), "{good}");
    let text = world.text("fullbore.toml");
    let retired = text.replacen("[repository.night]\n", "[repository.night]\nretired = [\"app.db\"]\n", 1);
    world.write("fullbore.toml", retired.as_bytes());
    assert!(world.run(line).done().text().contains("retired"));
    // One family is damaged: that is told of a retired database as well.
    let full = world.names("a").into_iter().find(|name| name.contains("-full-")).unwrap();
    let mut bytes = world.read(&format!("a/{full}"));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    world.write(&format!("a/{full}"), &bytes);
    world.run("verify --repo night").with_code(3);
    world.run(line).refused(1, "--repo night", "was found damaged");
    // Mistyped, it silences nothing.
    world.write("fullbore.toml", text.as_bytes());
    world.run(&format!("{line} --retired ap")).refused(1, "--repo night", "its newest backup is");
}

#[test]
fn lost_records_are_made_again_from_the_media() {
    let world = world();
    let ids_before = chain(&world, 1);
    fs::remove_dir_all(world.at("a/.fullbore")).unwrap();
    fs::remove_dir_all(world.at("state")).unwrap();
    world.run("list --repo night").refused(2, "--repo night", "holds no repository");
    let said = world.run("catalog rebuild --repo night").done().text();
    assert!(said.contains("catalog: 2 sets; without a record: 2 sets; written for these: 2 records"), "{said}");
    assert_eq!(ids(&world), ids_before);
    world.run("restore --repo night --into sqlite:copy.db").done();
}
