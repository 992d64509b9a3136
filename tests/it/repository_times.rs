//! When a set of a repository was stored, and what was found of it since: copies are as old as what they are copies of, hosts' clocks may be wrong, and
//! what is known to be damaged is nobody's base.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::database;
use crate::world::{World, one_tick, write_over};

const DAY: u64 = 86_400;

/// Two repositories, in `a/` and in `b/`.
fn world() -> World {
    let world = World::with_database();
    world.write(
        "fullbore.toml",
        b"[repository.night]\nto = [\"a/\"]\n[repository.off]\nto = [\"b/\"]\n[repository.third]\nto = [\"c/\"]\n",
    );
    fs::create_dir(world.at("c")).unwrap();
    world
}

/// Sets of a repository, oldest first.
fn ids(world: &World, repository: &str) -> Vec<String> {
    let listed = world.run(&format!("list --repo {repository} --json")).json();
    listed.as_array().unwrap().iter().map(|set| set["backup_set_id"].as_str().unwrap().to_owned()).collect()
}

fn record(world: &World, directory: &str, id: &str) -> Value {
    serde_json::from_slice(&world.read(&format!("{directory}/.fullbore/sets/{id}.json"))).unwrap()
}

/// A full behind a table of that name; its id.
fn full(world: &World, table: &str) -> String {
    database::sql(&world.at("app.db"), &format!("CREATE TABLE {table} AS SELECT 1 AS n"));
    world.run("backup sqlite:app.db --repo night --report json").done().json()["backup_set_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Makes a file as old as so many days.
fn age(path: &std::path::Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * DAY);
    File::options().append(true).open(path).unwrap().set_modified(then).unwrap();
}

/// Three bytes of a family rot.
fn rot(path: &std::path::Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 3].iter_mut().for_each(|byte| *byte ^= 0xff);
    write_over(path, &bytes);
}

/// A table of the restored newest set is there.
fn newest_has(world: &World, repository: &str, table: &str) -> bool {
    let _ = fs::remove_file(world.at("copy.db")); // Of the one before, if any.
    let restored = world.run(&format!("restore --repo {repository} --into sqlite:copy.db"));
    assert!([0, 4].contains(&restored.code), "{restored}");
    database::number(&world.at("copy.db"), &format!("SELECT count(*) FROM sqlite_schema WHERE name = '{table}'")) == 1
}

#[test]
fn a_copy_is_as_old_as_the_set_that_it_is_a_copy_of() {
    let world = world();
    let old = full(&world, "yesterday");
    let new = full(&world, "today");
    // The newer one first, and then the older one as well.
    world.run(&format!("copy --repo night --set {new} --to-repo off")).done();
    world.run(&format!("copy --repo night --set {old} --to-repo off")).done();
    assert_eq!(ids(&world, "off"), [old.clone(), new.clone()]);
    world.run("verify --repo off").done();
    world.run("prune --repo off --keep-last 1 --confirm --grace 0s").done();
    assert_eq!(ids(&world, "off"), std::slice::from_ref(&new), "the newest backup stays, whenever it was copied");
    assert!(newest_has(&world, "off", "today"));
    // And a repository of old copies is not good because it was copied today.
    age(&world.first_family("a", &new), 30);
    world.run(&format!("copy --repo night --set {new} --to-repo third")).done();
    let stored = record(&world, "c", &new)["stored_at"].as_i64().unwrap();
    let month = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as i64 - stored;
    assert!(month > 29 * DAY as i64 * 1_000_000, "{stored}");
    world.run("check --repo third --max-age 26h").with_code(1).says(&["30 days old"]);
}

#[test]
fn sets_that_were_moved_without_their_records_are_as_old_as_they_say() {
    let world = world();
    let old = full(&world, "yesterday");
    let new = full(&world, "today");
    // Another host's clock was right, and these files were written long ago: only the moving made them young.
    for id in [&old, &new] {
        let name = world.first_family("a", id);
        fs::rename(&name, world.at("b").join(name.file_name().unwrap())).unwrap();
    }
    world.run("catalog rebuild --repo off").done();
    assert!(record(&world, "b", &old).get("stored_at").is_none(), "within a day nothing is doubted");
    assert_eq!(ids(&world, "off"), [old, new]);
}

#[test]
fn the_clock_of_a_host_that_was_wrong_does_not_hide_what_came_later() {
    let world = world();
    let year = 365 * DAY as i64 * 1_000_000;
    for (table, shift) in [("ahead", year), ("behind", -year)] {
        let wrong = full(&world, table);
        let mut changed = record(&world, "a", &wrong);
        for key in ["started_at", "finished_at"] {
            changed[key] = json!(changed[key].as_i64().unwrap() + shift);
        }
        world.write(&format!("a/.fullbore/sets/{wrong}.json"), changed.to_string().as_bytes());
        fs::remove_dir_all(world.at("state")).unwrap(); // The catalog knows better.
        assert!(newest_has(&world, "night", table), "{table}: it is the newest itself");
        let after = format!("after_{table}");
        let right = full(&world, &after);
        assert!(newest_has(&world, "night", &after), "{table}");
        world.run("restore --repo night --dry-run --into sqlite:other.db").says(&["by the store's clock", &wrong]);
        let made = world.run("backup sqlite:app.db --repo night --kind differential --report json").json();
        let differential = record(&world, "a", made["backup_set_id"].as_str().unwrap());
        assert_eq!(differential["base"], json!(right), "{differential:#}");
    }
}

/// Two hours later, as a clock tells that is ahead: the times that a host has written into the record of a set.
fn shift_times(record: &mut Value) {
    let hours = jiff::SignedDuration::from_hours(2);
    match record {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok())) {
                    ("at" | "until", Some(time)) => *value = json!((time + hours).to_string()),
                    ("started_at" | "finished_at" | "from" | "at" | "until", _) if value.is_i64() => {
                        *value = json!(value.as_i64().unwrap() + hours.as_micros() as i64)
                    }
                    _ => shift_times(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(shift_times),
        _ => {}
    }
}

#[test]
fn log_sets_of_a_host_whose_clock_was_ahead_are_no_gap_behind_what_came_later() {
    let world = world();
    let app = rusqlite::Connection::open(world.at("app.db")).unwrap();
    let back_up = |kind: &str, number: i64| {
        app.execute_batch(&format!("CREATE TABLE t{number} (n)")).unwrap();
        let made = world.run(&format!("backup sqlite:app.db --repo night --kind {kind}"));
        assert!([0, 4].contains(&made.code), "{made}");
    };
    app.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
    back_up("full", 1);
    back_up("log", 2);
    for id in ids(&world, "night") {
        let mut ahead = record(&world, "a", &id);
        shift_times(&mut ahead);
        world.write(&format!("a/.fullbore/sets/{id}.json"), ahead.to_string().as_bytes());
    }
    fs::remove_dir_all(world.at("state")).unwrap(); // The catalog knows better.
    // The log begins anew, and nothing has followed it: new log sets need another full.
    app.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); CREATE TABLE skipped (n); PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    back_up("full", 3);
    back_up("log", 4);
    drop(app);
    assert!(newest_has(&world, "night", "t4"));
    world.run("restore-test --repo night --scratch .").with_code(4).says(&["by the store's clock"]);
    world.run("check --repo night --max-age 26h").done();
}

#[test]
fn a_damaged_set_is_no_base_and_no_copy() {
    let world = world();
    let damaged = full(&world, "one");
    world.run("copy --repo night --to-repo off").done();
    rot(&world.first_family("a", &damaged));
    rot(&world.first_family("b", &damaged));
    world.run("verify --repo night").with_code(3);
    world.run("verify --repo off").with_code(3);
    world.run("backup sqlite:app.db --repo night --kind differential").refused(3, "--kind differential", "damaged");
    world.run("backup sqlite:app.db --repo night --kind log").with_code(3);
    let made = world.run("backup sqlite:app.db --repo night --kind auto --report json").with_code(4);
    assert_eq!(made.json()["kind"], "full", "{made}");
    made.says(&[&damaged, "found damaged"]);
    world.run(&format!("copy --repo night --set {damaged} --to-repo off")).refused(1, &damaged, "found damaged there");
}

#[test]
fn a_copy_that_stands_already_is_compared_with_what_would_be_copied() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/").done();
    world.run("copy --from a --to b/").done();
    world.run("copy --from a --to b/").done().says(&["is already there, as it is"]);
    let there = world.at("b").join(&world.names("b")[0]);
    rot(&there);
    world.run("copy --from a --to b/").refused(1, "b/", "differs at byte");
}

#[test]
fn a_family_changed_after_its_verification_is_not_verified() {
    let world = world();
    let old = full(&world, "one");
    let new = full(&world, "two");
    world.run("verify --repo night").done();
    world.run("check --repo night --max-unproven 8d").done();
    one_tick();
    let path = world.first_family("a", &new);
    let size = fs::metadata(&path).unwrap().len() as usize;
    fs::write(&path, vec![7; size]).unwrap();
    world.run("prune --repo night --keep-last 1 --confirm --grace 0s").done();
    assert!(ids(&world, "night").contains(&old), "nothing newer is verified now");
}

#[test]
fn a_failed_test_restore_blames_the_set_that_is_damaged() {
    let world = world();
    let base = full(&world, "one");
    database::sql(&world.at("app.db"), "CREATE TABLE more AS SELECT 2 AS n");
    let made = world.run("backup sqlite:app.db --repo night --kind differential --report json").done().json();
    let differential = made["backup_set_id"].as_str().unwrap();
    rot(&world.first_family("a", differential));
    world.run("restore-test --repo night --scratch .").with_code(3);
    let verdicts = world.names("a/.fullbore/verdicts");
    assert!(verdicts.iter().any(|name| name.starts_with(differential)), "{verdicts:?}");
    assert!(verdicts.iter().all(|name| !name.starts_with(&base)), "{verdicts:?}");
}
