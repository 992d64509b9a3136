//! The database while it is backed up: written to, vacuumed, cut off.

use std::fs::OpenOptions;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use fullbore_test_servers::{SetAtEnd, wait_until};
use rusqlite::Connection;

use crate::database::{self, Shape};
use crate::program::Running;
use crate::world::World;

const SLOW: &str = "--throttle 1MiB/s --max-transfer-size 64KiB";

/// Stops a slow backup where it copies pages: whatever happens to the database meanwhile happens in the middle of it, however long it takes.
fn stopped_in_the_middle(world: &World, line: &str) -> Running {
    let running = world.start(&format!("{line} {SLOW} --stats 5"));
    running.says("backup: ");
    running.stop();
    assert!(world.names("a").iter().any(|name| name.contains(".new-")), "it has ended already");
    running
}

#[test]
fn a_database_that_grows_comes_back_as_it_was_between_two_transactions() {
    for journal in ["wal", "delete"] {
        let world = World::with_shape(Shape { journal, ..Shape::default() });
        let path = world.at("app.db");
        database::sql(&path, "CREATE TABLE log (id INTEGER PRIMARY KEY, twice INTEGER, padding BLOB)");
        let (stop, committed) = (AtomicBool::new(false), AtomicI64::new(0));
        let (least, most) = std::thread::scope(|scope| {
            let ends = SetAtEnd(&stop);
            scope.spawn(|| write_until(&stop, &committed, &path));
            wait_until("five rows are committed", || committed.load(Ordering::SeqCst) >= 5);
            let least = committed.load(Ordering::SeqCst);
            let ended = world.run(&format!("backup sqlite:app.db --to a/app.bore --to b/app.bore {SLOW}"));
            let most = committed.load(Ordering::SeqCst) + 1;
            drop(ends);
            ended.done();
            (least, most)
        });
        world.run("restore --from a --from b --into sqlite:copy.db --integrity-check").done();
        let copy = world.at("copy.db");
        let rows = database::number(&copy, "SELECT count(*) FROM log");
        assert!((least..=most).contains(&rows), "{rows} rows, {least} before and {most} after");
        assert_eq!(database::number(&copy, "SELECT count(*) FROM log WHERE twice <> 2 * id"), 0);
        assert_eq!(database::number(&copy, "SELECT max(id) FROM log"), rows);
        database::contents(&copy);
    }
}

fn write_until(stop: &AtomicBool, committed: &AtomicI64, path: &std::path::Path) {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    while !stop.load(Ordering::SeqCst) {
        let next = committed.load(Ordering::SeqCst) + 1;
        connection.execute("INSERT INTO log VALUES (?1, 2 * ?1, randomblob(3000))", [next]).unwrap();
        committed.store(next, Ordering::SeqCst);
    }
}

#[test]
fn a_file_that_is_cut_off_during_the_backup_is_an_error_and_leaves_nothing() {
    for journal in ["wal", "delete"] {
        let world = World::with_shape(Shape { journal, ..Shape::default() });
        let running = stopped_in_the_middle(&world, "backup sqlite:app.db --to a/ --to b/");
        let file = OpenOptions::new().write(true).open(world.at("app.db")).unwrap();
        file.set_len(file.metadata().unwrap().len() / 4096 / 2 * 4096).unwrap();
        running.go_on();
        running.wait().with_code(1).says(&["error: ", "app.db", "hint: "]);
        world.assert_no_media();
    }
}

#[test]
fn a_vacuum_in_wal_mode_does_not_disturb_the_backup() {
    let world = World::with_database();
    let before = database::contents(&world.at("app.db"));
    let size = std::fs::metadata(world.at("app.db")).unwrap().len();
    let running = stopped_in_the_middle(&world, "backup sqlite:app.db --to a/app.bore");
    let user = Connection::open(world.at("app.db")).unwrap();
    user.execute_batch("DELETE FROM item WHERE id > 500; VACUUM").unwrap();
    running.go_on();
    running.wait().done();
    world.run("restore --from a --into sqlite:copy.db --integrity-check").done();
    assert_eq!(std::fs::metadata(world.at("copy.db")).unwrap().len(), size);
    assert_eq!(database::contents(&world.at("copy.db")), before);
}

#[test]
fn a_vacuum_in_rollback_mode_waits_or_is_refused_and_the_backup_is_whole() {
    let world = World::with_shape(Shape { journal: "delete", ..Shape::default() });
    let before = database::contents(&world.at("app.db"));
    let running = stopped_in_the_middle(&world, "backup sqlite:app.db --to a/app.bore");
    let user = Connection::open(world.at("app.db")).unwrap();
    user.busy_timeout(Duration::from_millis(100)).unwrap();
    let vacuum = user.execute_batch("DELETE FROM item WHERE id > 500; VACUUM");
    assert!(vacuum.is_err(), "nothing kept the VACUUM from changing pages that are being read");
    running.go_on();
    running.wait().done();
    world.run("restore --from a --into sqlite:copy.db --integrity-check").done();
    assert_eq!(database::contents(&world.at("copy.db")), before);
}

#[test]
fn two_backups_of_one_database_do_not_run_at_a_time_unless_one_waits() {
    let world = World::with_database();
    let first = stopped_in_the_middle(&world, "backup sqlite:app.db --to a/app.bore");
    world
        .run("backup sqlite:./app.db --to b/app.bore")
        .refused(1, "app.db", "another run of fullbore")
        .says(&["--wait"]);
    first.go_on();
    world.run("backup sqlite:app.db --to b/app.bore --wait").done();
    first.wait().done();
    world.assert_restores("--from a");
    world.assert_restores("--from b");
}

#[test]
fn commits_that_are_only_in_the_log_are_in_the_backup() {
    let world = World::with_database();
    let user = Connection::open(world.at("app.db")).unwrap();
    user.execute_batch("PRAGMA wal_autocheckpoint = 0; CREATE TABLE late (id); INSERT INTO late SELECT id FROM item")
        .unwrap();
    assert!(world.at("app.db-wal").exists());
    world.run("backup sqlite:app.db --to a/app.bore").done();
    user.execute_batch("INSERT INTO late VALUES (-1)").unwrap();
    world.run("restore --from a --into sqlite:copy.db").done();
    assert_eq!(database::number(&world.at("copy.db"), "SELECT count(*) FROM late"), 3000);
    assert_eq!(database::number(&world.at("copy.db"), "SELECT min(id) FROM late"), 1);
}
