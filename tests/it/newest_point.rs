//! What "the newest" is, and what "as it was at" is, where sets do not stand in one row: a full outside of the chain between them, a full that was lost, an
//! older copy of the database that was put back.

use std::fs;

use fullbore_test_servers::wait_until;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::database;
use crate::world::World;

/// A database with a table for each round, and a repository in `a/` that keeps what is newest.
fn world() -> World {
    let world = World::with_database();
    world.write(
        "fullbore.toml",
        b"[repository.night]\nto = [\"a/\"]\n[repository.night.keep]\nlast = 1\n[repository.off]\nto = [\"b/\"]\n",
    );
    world
}

fn round(world: &World, number: u32) {
    database::sql(&world.at("app.db"), &format!("CREATE TABLE round_{number} AS SELECT 1 AS n"));
}

/// The rounds that a restore brings back, with an exit code.
fn rounds(world: &World, line: &str, code: i32) -> i64 {
    let _ = fs::remove_file(world.at("copy.db")); // Of the one before, if any.
    world.run(&format!("restore {line} --into sqlite:copy.db --integrity-check")).with_code(code);
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'round\\_%' ESCAPE '\\'";
    database::number(&world.at("copy.db"), tables)
}

#[test]
fn a_copy_only_full_does_not_hide_what_was_backed_up_after_it() {
    let world = world();
    round(&world, 1);
    world.run("backup sqlite:app.db --repo night").done();
    round(&world, 2);
    world.run("backup sqlite:app.db --repo night --copy-only").done();
    assert_eq!(rounds(&world, "--repo night", 0), 2, "it is the newest for now");
    round(&world, 3);
    world.run("backup sqlite:app.db --repo night --kind differential").done();
    for from in ["--repo night", "--from a --latest"] {
        assert_eq!(rounds(&world, from, 0), 3, "{from}");
    }
    world.run("restore-test --repo night").done().says(&["the chain of 2 sets"]);
}

#[test]
fn log_sets_go_on_past_a_copy_only_full() {
    let world = world();
    database::sql(&world.at("app.db"), "PRAGMA journal_mode = WAL");
    world.run("backup sqlite:app.db --repo night").done();
    round(&world, 1);
    world.run("backup sqlite:app.db --repo night --copy-only").done();
    round(&world, 2);
    // The log was emptied since the full: what goes on is a differential, and a log set behind that.
    world.run("backup sqlite:app.db --repo night --kind differential").done();
    let app = Connection::open(world.at("app.db")).unwrap();
    app.execute_batch("CREATE TABLE round_3 AS SELECT 1 AS n").unwrap();
    world.run("backup sqlite:app.db --repo night --kind log").done();
    assert_eq!(rounds(&world, "--repo night", 0), 3);
    world.run("check --repo night").done();
}

#[test]
fn a_differential_whose_full_is_lost_is_not_passed_over_in_silence() {
    let world = world();
    world.run("backup sqlite:app.db --repo night").done();
    round(&world, 1);
    let lost = world.run("backup sqlite:app.db --repo night --report json").done().json();
    let lost = lost["backup_set_id"].as_str().unwrap();
    round(&world, 2);
    world.run("backup sqlite:app.db --repo night --kind differential").done();
    fs::remove_file(world.first_family("a", lost)).unwrap();
    fs::remove_file(world.at(&format!("a/.fullbore/sets/{lost}.json"))).unwrap();
    world.run("restore --repo night --into sqlite:copy.db").with_code(4).says(&["is newer", lost, "is not there"]);
    world.run("check --repo night").refused(1, "differential", lost);
}

/// An application that is gone from one moment to the next: nothing is copied out of its log.
fn killed(app: Connection) {
    app.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    drop(app);
}

fn open(world: &World) -> Connection {
    let app = Connection::open(world.at("app.db")).unwrap();
    app.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").unwrap();
    app
}

/// The time of the last commit in the newest log set.
fn newest_log_at(world: &World) -> String {
    let headers = world.run("inspect header --from a --json").done().json();
    let logs = headers.as_array().unwrap().iter().filter(|set| set["kind"] == "log");
    logs.map(|set| set["log_at"].as_str().unwrap().to_owned()).max().unwrap()
}

#[test]
fn a_log_that_was_put_back_and_went_on_otherwise_has_two_histories_and_each_time_its_own() {
    let world = world();
    let app = open(&world);
    app.execute_batch("CREATE TABLE round_1 AS SELECT 1 AS n").unwrap();
    world.run("backup sqlite:app.db --repo night").done();
    let files = ["app.db", "app.db-wal"].map(|name| (name, world.read(name)));
    app.execute_batch("CREATE TABLE round_2 AS SELECT 1 AS n; CREATE TABLE round_3 AS SELECT 1 AS n").unwrap();
    world.run("backup sqlite:app.db --repo night --kind log").done();
    let before = newest_log_at(&world);
    killed(app);
    // As it was at the full, and then on otherwise in the same log.
    files.iter().for_each(|(name, bytes)| fs::write(world.at(name), bytes).unwrap());
    fs::remove_file(world.at("app.db-shm")).unwrap();
    let app = open(&world);
    world.run("backup sqlite:app.db --repo night --kind log").with_code(4).says(&["older copy", "no set was written"]);
    app.execute_batch("CREATE TABLE round_4 AS SELECT 1 AS n").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1200));
    world.run("backup sqlite:app.db --repo night --kind log").with_code(4).says(&["older copy of the database"]);
    assert_eq!(rounds(&world, &format!("--repo night --stop-at {before}"), 0), 3);
    assert_eq!(rounds(&world, &format!("--repo night --stop-at {}", newest_log_at(&world)), 0), 2);
    assert_eq!(rounds(&world, "--repo night", 0), 2);
    // A full of the second history is not gone on from with a log set of the first.
    app.execute_batch("CREATE TABLE round_5 AS SELECT 1 AS n").unwrap();
    world.run("backup sqlite:app.db --repo night").done();
    assert_eq!(rounds(&world, "--repo night", 4), 3);
    assert_eq!(rounds(&world, &format!("--repo night --stop-at {before}"), 0), 3);
    app.execute_batch("CREATE TABLE round_6 AS SELECT 1 AS n").unwrap();
    world.run("backup sqlite:app.db --repo night --kind log").done();
    assert_eq!(rounds(&world, "--repo night", 0), 4);
}

#[test]
fn a_chain_that_begins_amid_the_log_sets_is_copied_with_all_that_they_name() {
    let world = world();
    fs::create_dir_all(world.at("b")).unwrap();
    let app = open(&world);
    let follower = world.start("log follow sqlite:app.db --repo night --interval 50ms");
    let logs = || world.names("a").iter().filter(|name| name.contains("-log-") && name.ends_with(".bore")).count();
    let commit = |number: usize| {
        let before = logs();
        app.execute_batch(&format!("CREATE TABLE round_{number} AS SELECT 1 AS n")).unwrap();
        wait_until("its log set is stored", || logs() > before);
    };
    wait_until("its full is stored", || world.names("a").iter().any(|name| name.ends_with(".bore")));
    commit(1);
    world.run("backup sqlite:app.db --repo night").done();
    commit(2);
    follower.signal("TERM");
    follower.wait().done();
    world.run("copy --repo night --to-repo off").done();
    assert_eq!(rounds(&world, "--repo off", 0), 2);
    let listed = world.run("list --repo off --json").json();
    assert_eq!(listed.as_array().unwrap().len(), 4, "two fulls, and the log sets of the first");
}

#[test]
fn a_log_set_that_was_stored_while_a_full_ran_is_not_pruned_for_that_full() {
    let world = world();
    let app = open(&world);
    app.execute_batch("CREATE TABLE ballast AS SELECT randomblob(3000000) AS b").unwrap();
    world.run("backup sqlite:app.db --repo night").done();
    let running = world.start("backup sqlite:app.db --repo night --throttle 300KiB/s");
    world.media_begun("a");
    app.execute_batch("CREATE TABLE round_1 AS SELECT 1 AS n").unwrap();
    world.run("backup sqlite:app.db --repo night --kind log").done();
    running.wait().done();
    world.run("verify --repo night").done();
    world
        .run("prune --repo night --grace 0s --confirm")
        .with_code(4)
        .says(&["nothing newer is verified", "`fullbore verify --repo night`"]);
    assert_eq!(rounds(&world, "--repo night", 0), 1);
    world.run("backup sqlite:app.db --repo night").done();
    world.run("verify --repo night --latest").done();
    world.run("prune --repo night --grace 0s --confirm").done();
    assert_eq!(world.names("a").iter().filter(|name| name.ends_with(".bore")).count(), 1);
    assert_eq!(rounds(&world, "--repo night", 0), 1);
}
