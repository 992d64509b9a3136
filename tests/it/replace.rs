//! `restore --replace`, and what stands against a restore.

use rusqlite::Connection;

use crate::database::{self, Shape};
use crate::world::World;

/// A backup of `app.db` in `a/`, and another database as `copy.db`.
fn with_old_copy() -> World {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/app.bore").done();
    database::make(&world.at("copy.db"), Shape { rows: 500, ..Shape::default() });
    world
}

#[test]
fn a_target_that_exists_is_refused_and_left_alone() {
    let world = with_old_copy();
    let before = world.read("copy.db");
    world.run("restore --from a --into sqlite:copy.db").refused(1, "copy.db", "exists").says(&["--replace"]);
    assert!(world.read("copy.db") == before);
    world.write("copy.db", b"");
    world.run("restore --from a --into sqlite:copy.db").refused(1, "copy.db", "exists");
}

#[test]
fn a_log_beside_a_new_target_is_refused() {
    for suffix in ["-wal", "-journal", "-shm"] {
        let world = World::with_database();
        world.run("backup sqlite:app.db --to a/app.bore").done();
        world.write(&format!("copy.db{suffix}"), b"not yours");
        world.run("restore --from a --into sqlite:copy.db").refused(1, &format!("copy.db{suffix}"), "exists");
        assert!(!world.at("copy.db").exists());
        assert_eq!(world.read(&format!("copy.db{suffix}")), b"not yours");
    }
}

#[test]
fn replace_takes_the_place_of_a_database() {
    let world = with_old_copy();
    world.run("restore --from a --into sqlite:copy.db --replace").done();
    world.assert_copy();
    let left: Vec<_> = world.names(".").into_iter().filter(|name| name.starts_with("copy.db")).collect();
    assert_eq!(left, ["copy.db"]);
}

#[test]
fn replace_keeps_the_permissions_of_the_old_file() {
    use std::os::unix::fs::PermissionsExt;
    let world = with_old_copy();
    std::fs::set_permissions(world.at("copy.db"), std::fs::Permissions::from_mode(0o640)).unwrap();
    world.run("restore --from a --into sqlite:copy.db --replace").done();
    assert_eq!(std::fs::metadata(world.at("copy.db")).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn replace_refuses_a_database_that_is_in_use() {
    for mode in ["wal", "delete"] {
        let world = with_old_copy();
        let path = world.at("copy.db");
        database::sql(&path, &format!("PRAGMA journal_mode = {mode}"));
        let user = Connection::open(&path).unwrap();
        user.execute_batch("BEGIN IMMEDIATE; UPDATE item SET name = 'mine' WHERE id = 1").unwrap();
        world.run("restore --from a --into sqlite:copy.db --replace").refused(1, "copy.db", "in use");
        user.execute_batch("COMMIT").unwrap();
        let name: String = user.query_row("SELECT name FROM item WHERE id = 1", [], |row| row.get(0)).unwrap();
        assert_eq!(name, "mine");
        assert!(!world.names(".").iter().any(|name| name.contains("restoring")));
    }
}

#[test]
fn replace_refuses_a_file_that_is_no_database() {
    let world = with_old_copy();
    world.write("copy.db", b"Dear diary, this is no database at all, and it shall stay.");
    world.run("restore --from a --into sqlite:copy.db --replace").refused(1, "copy.db", "database");
    assert!(world.read("copy.db").starts_with(b"Dear diary"));
    world.run("restore --from a --into sqlite:b --replace").refused(1, "b", "directory");
}

#[test]
fn a_wrong_target_is_a_usage_error() {
    let world = World::with_small_set("");
    for into in ["copy.db", "sqlite:", "dir:", "foo:x", "nul:x", "mysql://db1/x"] {
        world.run(&format!("restore --from a --into {into}")).refused(2, &format!("--into {into}"), "");
    }
    world.assert_no_copy();
}

#[test]
fn replace_leaves_a_log_whose_database_is_gone() {
    let world = World::with_small_set("");
    for suffix in ["-wal", "-journal"] {
        let name = format!("copy.db{suffix}");
        world.write(&name, b"the last changes of a lost database");
        world
            .run("restore --from a --into sqlite:copy.db --replace")
            .refused(1, &name, "exists")
            .says(&["move it away"]);
        assert_eq!(world.read(&name), b"the last changes of a lost database");
        std::fs::remove_file(world.at(&name)).unwrap();
    }
    world.run("restore --from a --into sqlite:copy.db --replace").done();
    world.assert_copy();
}

#[test]
fn a_restore_does_not_take_the_place_of_what_it_reads() {
    let world = World::with_small_set("");
    for options in ["", "--replace"] {
        let ended = world.run(&format!("restore --from a --into sqlite:a/app.bore {options}"));
        ended.refused(2, "--into sqlite:a/app.bore", "is one of the media families");
    }
    world.assert_restores("--from a");
}

#[test]
fn two_restores_over_one_database_do_not_disturb_each_other() {
    for mode in ["wal", "delete"] {
        let world = with_old_copy();
        database::sql(&world.at("copy.db"), &format!("PRAGMA journal_mode = {mode}"));
        for _ in 0..4 {
            let line = "restore --from a --into sqlite:copy.db --replace";
            let running: Vec<_> = (0..3).map(|_| world.start(line)).collect();
            let ended: Vec<_> = running.into_iter().map(crate::program::Running::wait).collect();
            assert!(ended.iter().any(|ended| ended.code == 0), "{ended:?}");
            for lost in ended.iter().filter(|ended| ended.code != 0) {
                let known = ["another restore is replacing it", "another file took its name", "is in use"];
                assert!(lost.code == 1 && known.iter().any(|why| lost.err.contains(why)), "{lost}");
            }
            let left: Vec<_> = world.names(".").into_iter().filter(|name| name.starts_with("copy.db")).collect();
            assert_eq!(left, ["copy.db"], "{mode} {ended:?}");
            world.assert_copy();
        }
    }
}
