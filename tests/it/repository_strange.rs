//! Repositories that hold what no honest run has written, that were copied, or that several machines share.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::{Value, json};

use crate::database::{self, Shape};
use crate::program::{self, Ended};
use crate::world::{World, one_tick};

const OTHER: &str = "11111111-1111-4111-8111-111111111111";

fn world() -> World {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.night.keep]\nlast = 1\n");
    world
}

fn back_up(world: &World, options: &str) {
    world.run(&format!("backup sqlite:app.db --repo night {options}")).done();
}

fn sets(world: &World) -> Vec<Value> {
    world.run("list --repo night --json").json().as_array().unwrap().clone()
}

fn id(set: &Value) -> String {
    set["backup_set_id"].as_str().unwrap().to_owned()
}

fn record(world: &World, name: &str) -> Value {
    serde_json::from_slice(&world.read(&format!("a/.fullbore/{name}"))).unwrap()
}

/// Writes a record, and lets this host's catalog forget what it knew.
fn write_record(world: &World, name: &str, record: &Value) {
    let path = world.at(&format!("a/.fullbore/{name}"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, record.to_string()).unwrap();
    one_tick();
    let _ = fs::remove_dir_all(world.at("state")); // It may not be there.
}

fn prune(world: &World) -> Ended {
    world.run("prune --repo night --grace 0s --confirm")
}

/// As on a machine of this name.
fn on(world: &World, host: &str, line: &str) -> Ended {
    let mut command = program::command(world.folder(), line.split_whitespace());
    command.env("FULLBORE_HOST", host);
    program::run(command)
}

/// Two fulls, the newer of which is verified; the record of the older one.
fn two_fulls(world: &World) -> (Value, Value) {
    back_up(world, "");
    back_up(world, "");
    world.run("verify --repo night --latest").done();
    let sets = sets(world);
    let of = |at: usize| record(world, &format!("sets/{}.json", id(&sets[at])));
    (of(0), of(1))
}

#[test]
fn prune_never_removes_a_file_that_is_no_family_of_the_set() {
    let world = world();
    let (old, new) = two_fulls(&world);
    world.write("a/important.txt", b"of somebody else");
    let foreign = json!({ "place": 0, "name": "important.txt", "bytes": 16 });
    let (kept, true_families) = (new["families"][0].clone(), old["families"].clone());
    for of_another in [foreign, kept] {
        let mut forged = old.clone();
        forged["families"] = json!([true_families[0], of_another]);
        write_record(&world, &format!("sets/{}.json", id(&old)), &forged);
        prune(&world).with_code(4).says(&["but the record of backup set"]);
        // A tombstone of a set that nobody knows, and a run that has died.
        write_record(&world, &format!("sets/{}.json", id(&old)), &old);
        let missing = json!({ "place": 0, "name": "was-never-there.bore", "bytes": 1 });
        let grave = json!({ "task": OTHER, "host": "elsewhere", "families": [missing, of_another] });
        write_record(&world, &format!("tombstones/{OTHER}.json"), &grave);
        // It stops no other set from going; here all are to stay.
        let ended = world.run("prune --repo night --grace 0s --confirm --keep-last 9").with_code(4);
        ended.says(&["is still being removed", "but the record of backup set"]);
        fs::remove_file(world.at(&format!("a/.fullbore/tombstones/{OTHER}.json"))).unwrap();
        for (state, words) in [("IN_PROGRESS", "its host died"), ("ERROR", "it ended, but could not tidy up")] {
            let run = json!({ "format": 1, "task": OTHER, "verb": "backup", "database": null, "host": "elsewhere", "process": 1, "ended_at": null,
                "started_at": "2026-11-22T00:00:00Z", "state": state, "lease_s": 0, "needs": [], "writes": OTHER,
                "families": [missing, of_another],
                "progress": { "done_bytes": 0, "total_bytes": 0, "stored_bytes": 0, "elapsed_s": 0.0 }, "error": null });
            write_record(&world, &format!("tasks/{OTHER}.json"), &run);
            let ended = world.run("prune --repo night --grace 0s --confirm --keep-last 9").with_code(4);
            ended.says(&[words, "its files stay", "but the record of backup set"]);
        }
        fs::remove_file(world.at(&format!("a/.fullbore/tasks/{OTHER}.json"))).unwrap();
        let _ = fs::remove_file(world.at(&format!("a/.fullbore/decisions/{OTHER}.json"))); // It may not have come so far.
        assert_eq!(world.read("a/important.txt"), b"of somebody else");
        assert_eq!(world.names("a").iter().filter(|name| name.ends_with(".bore")).count(), 2);
    }
    // A family whose header is damaged is known by its name.
    let name = true_families[0]["name"].as_str().unwrap();
    let family = fs::File::options().write(true).open(world.at(&format!("a/{name}"))).unwrap();
    let then = family.metadata().unwrap().modified().unwrap();
    family.write_all_at(&[0; 512], 0).unwrap();
    family.set_modified(then).unwrap();
    let said = prune(&world).done();
    assert_eq!(sets(&world).iter().map(id).collect::<Vec<_>>(), [id(&new)], "{said}");
    world.run("restore --repo night --into sqlite:copy.db").done();
}

#[test]
fn a_forged_record_of_a_run_keeps_what_it_names_and_nothing_else() {
    let world = world();
    let (old, new) = two_fulls(&world);
    world.write("a/important.txt", b"of somebody else");
    let families = [
        json!([{ "place": 0, "name": "../app.db", "bytes": 1 }]),
        json!([{ "place": 7, "name": "important.txt", "bytes": 16 }]),
        json!([{ "place": 0, "name": "missing", "bytes": 1 }, { "place": 0, "name": "important.txt", "bytes": 16 }]),
    ];
    let mut number = 0;
    for families in &families {
        for state in ["IN_PROGRESS", "ERROR", "CANCELLED"] {
            number += 1;
            let run = format!("11111111-1111-4111-8111-{number:012}");
            let record = json!({ "format": 1, "task": run, "verb": "backup", "database": null, "host": "elsewhere", "process": 1, "ended_at": null,
                "started_at": "2026-11-22T00:00:00Z", "state": state, "lease_s": 0, "needs": [new["backup_set_id"]], "writes": run,
                "families": families, "given_up": [{ "set": run, "families": families }],
                "progress": { "done_bytes": 0, "total_bytes": 0, "stored_bytes": 0, "elapsed_s": 0.0 }, "error": null });
            write_record(&world, &format!("tasks/{run}.json"), &record);
        }
    }
    prune(&world).with_code(4).says(&[
        "its files stay",
        "../app.db: is not the name of a family",
        "is in place 8",
        "but the record of backup set",
    ]);
    assert_eq!(sets(&world).iter().map(id).collect::<Vec<_>>(), [id(&new)], "{} went all the same", id(&old));
    assert_eq!(world.read("a/important.txt"), b"of somebody else");
    world.run("restore --repo night --into sqlite:copy.db").done();
    world.assert_copy();
}

#[test]
fn a_record_without_families_is_no_backup() {
    let world = world();
    let (old, new) = two_fulls(&world);
    let mut forged = old;
    forged["backup_set_id"] = OTHER.into();
    forged["families"] = json!([]);
    forged["started_at"] = (jiff::Timestamp::now().as_microsecond()).into();
    write_record(&world, &format!("sets/{OTHER}.json"), &forged);
    write_record(&world, &format!("verdicts/{OTHER}.1.passed.json"), &json!({}));
    assert_eq!(sets(&world)[2]["why_incomplete"], "its record names no family");
    world.run("check --repo night").refused(1, "--repo night", "names no family");
    let restored = world.run("restore --repo night --into sqlite:copy.db").with_code(4);
    restored.says(&["is newer, but cannot be used"]);
    prune(&world);
    assert_eq!(sets(&world).iter().map(id).collect::<Vec<_>>(), [id(&new)], "it pushes no good backup out");
}

#[test]
fn encrypted_sets_that_do_not_tell_their_database_stay() {
    let world = world();
    world.run("key new --no-recovery k.key").done();
    database::make(&world.at("other.db"), Shape { rows: 150, ..Shape::default() });
    for database in ["other", "app", "app"] {
        world.run(&format!("backup sqlite:{database}.db --repo night --encrypt-to k.key.pub")).done();
    }
    // Their hosts died before they could write the records.
    fs::remove_dir_all(world.at("a/.fullbore/sets")).unwrap();
    fs::remove_dir_all(world.at("state")).unwrap();
    world.run("verify --repo night --key k.key").done();
    let said = prune(&world).done();
    assert_eq!(sets(&world).len(), 3, "whose they are nobody knows: {said}");
    assert!(said.text().contains("is not known without a key"), "{said}");
    world.run("restore --from a --key k.key --latest --into sqlite:copy.db").with_code(1); // Of two databases.
    assert_eq!(world.names("a").iter().filter(|name| name.starts_with("other-full")).count(), 1);
}

#[test]
fn prune_keeps_the_newest_backup_of_a_repository_that_was_copied_on_its_first_day() {
    let world = world();
    (0..3).for_each(|_| back_up(&world, ""));
    world.run("verify --repo night").done();
    let before = sets(&world);
    // Made an hour ago, and copied just now, the newest family first: so the copy with the latest time is that of the oldest set.
    let mut made = record(&world, "repository.json");
    made["stored_at"] = (made["stored_at"].as_i64().unwrap() - 3_600_000_000).into();
    write_record(&world, "repository.json", &made);
    for (set, seconds) in before.iter().rev().zip(1..) {
        let name = record(&world, &format!("sets/{}.json", id(set)))["families"][0]["name"].clone();
        let family = fs::File::options().write(true).open(world.at("a").join(name.as_str().unwrap())).unwrap();
        let copied = std::time::SystemTime::now() + std::time::Duration::from_secs(seconds);
        family.set_modified(copied).unwrap();
    }
    prune(&world).done().says(&["this repository was copied here"]);
    let left = sets(&world);
    assert_eq!((left.len(), id(&left[0])), (1, id(&before[2])));
}

#[test]
fn machines_that_have_a_database_of_the_same_name_keep_theirs() {
    let world = world();
    on(&world, "one", "backup sqlite:app.db --repo night").done();
    database::sql(&world.at("app.db"), "CREATE TABLE of_the_other AS SELECT 1 AS n");
    for _ in 0..2 {
        on(&world, "two", "backup sqlite:app.db --repo night").done();
    }
    on(&world, "three", "backup sqlite:app.db --repo night --kind auto").done().says(&["from one, two"]);
    on(&world, "two", "backup sqlite:app.db --repo night --kind auto").done().says(&["a differential of full"]);
    on(&world, "four", "backup sqlite:app.db --repo night --kind log").refused(3, "--kind log", "FULLBORE_HOST");
    world.run("verify --repo night").done();
    prune(&world).done();
    let hosts: Vec<String> = sets(&world)
        .iter()
        .map(|set| record(&world, &format!("sets/{}.json", id(set)))["host"].as_str().unwrap().into())
        .collect();
    assert_eq!(hosts, ["one", "two", "three", "two"], "the older full of two went, nobody else's");
    let restored = world.run("restore --repo night --into sqlite:copy.db");
    restored.refused(1, "--repo", "several databases").says(&["one:/", "two:/"]);
    world.run("restore --repo night --database app --into sqlite:copy.db").with_code(1);
    let path = world.at("app.db").canonicalize().unwrap();
    world.run(&format!("restore --repo night --database one:{} --into sqlite:copy.db", path.display())).done();
    let more = "SELECT count(*) FROM sqlite_schema WHERE name = 'of_the_other'";
    assert_eq!(database::number(&world.at("copy.db"), more), 0);
    let checked = world.run("check --repo night --max-age 1h --metrics night.prom").done();
    assert!(checked.text().contains("one:/") && checked.text().contains("three:/"), "{checked}");
}

const DAY: i64 = 86_400 * 1_000_000;

#[test]
fn a_copied_repository_keeps_the_days_of_its_backups() {
    let world = world();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.night.keep]\ndaily = 7\n");
    (0..3).for_each(|_| back_up(&world, ""));
    world.run("verify --repo night").done();
    let now = jiff::Timestamp::now().as_microsecond();
    // As `cp -r` leaves it after ten days, or a sync between two stores: all files are of today.
    for (set, days) in sets(&world).iter().zip([6, 5, 4]) {
        let name = format!("sets/{}.json", id(set));
        let mut of_that_day = record(&world, &name);
        of_that_day["started_at"] = (now - days * DAY).into();
        of_that_day["finished_at"] = (now - days * DAY + 1).into();
        write_record(&world, &name, &of_that_day);
    }
    let mut made = record(&world, "repository.json");
    made["created_at"] = jiff::Timestamp::from_microsecond(now - 10 * DAY).unwrap().to_string().into();
    write_record(&world, "repository.json", &made);
    prune(&world).done().says(&["this repository was copied here"]);
    assert_eq!(sets(&world).len(), 3, "three days, of which each has its place");
    world.run("check --repo night --max-age 1d").refused(1, "--repo night", "its newest backup is");
    back_up(&world, "");
    world.run("check --repo night --max-age 1d").done();
}

/// Gives all families in `a` that time.
fn date_families(world: &World, then: std::time::SystemTime) {
    for name in world.names("a").into_iter().filter(|name| name.ends_with(".bore")) {
        fs::File::options().write(true).open(world.at(&format!("a/{name}"))).unwrap().set_modified(then).unwrap();
    }
}

#[test]
fn check_names_what_cannot_be_used_and_what_is_dated_in_the_future() {
    let world = world();
    two_fulls(&world);
    world.run("check --repo night --max-age 1h").done();
    let name = world.names("a").into_iter().find(|name| name.ends_with(".bore")).unwrap();
    let family = world.at(&format!("a/{name}"));
    let ahead = std::time::SystemTime::now() + std::time::Duration::from_secs(86_400);
    date_families(&world, ahead);
    world.run("check --repo night --max-age 1h").refused(1, "--repo night", "dated in the future");
    fs::remove_file(family).unwrap();
    world.run("check --repo night").refused(1, "--repo night", "cannot be used: family 1 of 1 is missing");
}

#[test]
fn a_good_verdict_on_a_family_that_is_dated_in_the_future_says_that_it_does_not_count() {
    let world = world();
    back_up(&world, "");
    let verified_at = || world.run("list --repo night --json").done().json()[0]["verified_at"].clone();
    date_families(&world, std::time::SystemTime::now() + std::time::Duration::from_secs(86_400));
    for line in ["verify --repo night", "restore-test --repo night"] {
        let said = ["is dated", "do not count the result", "Correct the time of the file"];
        world.run(line).with_code(4).says(&said);
        assert!(verified_at().is_null(), "{line}");
    }
    date_families(&world, std::time::SystemTime::now());
    world.run("verify --repo night").done();
    assert!(verified_at().is_string());
}

#[test]
fn a_prune_of_one_database_keeps_what_sets_of_no_known_database_stand_on() {
    let world = world();
    world.run("key new --no-recovery k.key").done();
    back_up(&world, "--encrypt-to k.key.pub");
    back_up(&world, "--kind differential --encrypt-to k.key.pub --key k.key");
    let differential = id(&sets(&world)[1]);
    back_up(&world, "--encrypt-to k.key.pub");
    world.run("verify --repo night --database app --latest --key k.key").done();
    // Its host died before it could write the record.
    fs::remove_file(world.at(&format!("a/.fullbore/sets/{differential}.json"))).unwrap();
    fs::remove_dir_all(world.at("state")).unwrap();
    let line = "prune --repo night --grace 0s --confirm --database app";
    let kept = world.run(line).done().text();
    assert!(kept.contains(&format!("needed by differential {}", &differential[..13])), "{kept}");
    assert!(!kept.contains("(encrypted)"), "what was not asked for is not decided: {kept}");
    world.run(&format!("restore --from a --set {differential} --key k.key --into sqlite:copy.db")).done();
    world.assert_copy();
}

#[test]
fn a_check_adds_up_any_sizes_and_says_what_it_could_not_look_at() {
    let world = world();
    let (older, newer) = two_fulls(&world);
    for set in [&older, &newer] {
        let name = format!("sets/{}.json", id(set));
        let mut of = record(&world, &name);
        of["families"][0]["bytes"] = u64::MAX.into();
        of["families"] = json!([of["families"][0], of["families"][0]]);
        write_record(&world, &name, &of);
    }
    world.run("check --repo night --max-age 26h").refused(1, "--repo night", "were written");
    for folder in ["a/.fullbore/sets", "state"] {
        fs::remove_dir_all(world.at(folder)).unwrap();
    }
    world.run("check --repo night --max-age 26h").done();
    // Of the newest backup nothing can be read any more: the older one is young enough, and yet this is no good night.
    let newest = world.names("a").pop().unwrap();
    let family = fs::File::options().write(true).open(world.at(&format!("a/{newest}"))).unwrap();
    family.write_all_at(&[0x55; 64], 64).unwrap();
    let said = world.run("check --repo night --max-age 26h").with_code(4).says(&["warning: ", &newest]);
    assert!(said.text().contains("good"), "{said}");
}

#[test]
fn a_host_that_names_the_places_in_another_order_is_refused() {
    let world = world();
    let configure = |to: &str| {
        let text = format!("[repository.night]\nto = {to}\nstripes = 2\n[repository.night.keep]\nlast = 1\n");
        world.write("fullbore.toml", text.as_bytes());
    };
    configure("[\"a/\", \"b/\"]");
    back_up(&world, "");
    configure("[\"b/\", \"a/\"]");
    let before = (world.names("a"), world.names("b"));
    for line in ["backup sqlite:app.db --repo night", "list --repo night", "catalog rebuild --repo night"] {
        world.run(line).refused(1, "b/", "the records of a repository are in a/");
    }
    assert_eq!((world.names("a"), world.names("b")), before, "nothing was made there");
}

#[test]
fn a_backup_into_an_empty_mount_point_says_that_another_repository_was_there() {
    let world = world();
    for _ in 0..2 {
        back_up(&world, "");
    }
    fs::rename(world.at("a"), world.at("disk")).unwrap();
    fs::create_dir(world.at("a")).unwrap();
    let other = world.run("backup -q sqlite:app.db --repo night").with_code(4);
    other.says(&["held another repository with 2 sets", "is its disk not mounted?"]);
    world.run("list --repo night").done();
    fs::remove_dir_all(world.at("a")).unwrap();
    fs::rename(world.at("disk"), world.at("a")).unwrap();
    world.run("list --repo night").done();
    back_up(&world, "");
}
