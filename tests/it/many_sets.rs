//! More sets in a directory than a process may open files, and sets that are easily taken for each other.

use std::process::Command;

use crate::database;
use crate::program;
use crate::world::World;

/// A world whose directory `many/` holds `count` sets, of two families each.
fn with_sets(count: usize) -> World {
    let world = World::new();
    database::sql(&world.at("app.db"), "CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    std::fs::create_dir(world.at("many")).unwrap();
    for _ in 0..count {
        world.run("backup -q sqlite:app.db --to many/ --stripes 2 --name-template {set}-{family}.bore").done();
    }
    world
}

/// Runs the program with a hard limit on open files.
fn with_files(world: &World, files: usize, line: &str) -> program::Ended {
    let program = program::command(world.folder(), line.split_whitespace());
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--nofile={files}:{files}")).arg(program.get_program()).args(program.get_args());
    limited.current_dir(world.folder());
    program::run(limited)
}

#[test]
fn a_directory_with_more_families_than_descriptors_keeps_no_set_from_being_found() {
    let world = with_sets(12);
    database::sql(&world.at("app.db"), "INSERT INTO t VALUES (2)");
    world.run("backup -q sqlite:app.db --to many/ --stripes 2 --name-template {set}-{family}.bore").done();
    let listed = with_files(&world, 24, "list --from many --json");
    assert_eq!(listed.code, 0, "{listed}");
    assert_eq!(listed.text().matches("\"complete\"").count(), 13, "{listed}");
    let restored = with_files(&world, 24, "restore -q --from many --latest --into sqlite:copy.db");
    assert_eq!(restored.code, 0, "{restored}");
    assert_eq!(database::number(&world.at("copy.db"), "SELECT max(a) FROM t"), 2, "the newest set");
}

#[test]
fn a_process_without_descriptors_says_so_and_calls_nothing_missing() {
    let world = with_sets(1);
    for line in ["list --from many", "verify --from many", "restore --from many --into sqlite:copy.db"] {
        let ended = with_files(&world, 5, line);
        assert!(ended.code == 1 && ended.err.contains("Too many open files"), "{ended}");
        assert!(!ended.err.contains("missing"), "{ended}");
    }
}

#[test]
fn the_latest_of_two_databases_of_one_name_is_refused() {
    let world = World::new();
    std::fs::create_dir(world.at("m")).unwrap();
    for folder in ["one", "two"] {
        std::fs::create_dir(world.at(folder)).unwrap();
        database::sql(&world.at(&format!("{folder}/app.db")), "CREATE TABLE t (a)");
        let mut typed = program::command(
            world.at(folder).as_path(),
            "backup -q sqlite:app.db --to ../m/ --name-template {set}.bore".split_whitespace(),
        );
        typed.current_dir(world.at(folder));
        program::run(typed).done();
    }
    let ended = world.run("restore --from m --latest --into sqlite:copy.db").with_code(1);
    assert!(ended.err.contains("several databases") && ended.err.contains("two/app.db"), "{ended}");
    world.assert_no_copy();
}

#[test]
fn one_database_under_two_paths_is_one() {
    let world = with_sets(1);
    let absolute = world.at("app.db").display().to_string();
    world.run(&format!("backup -q sqlite:{absolute} --to many/ --name-template {{set}}.bore")).done();
    world.run("restore --from many --latest --into sqlite:copy.db").done();
}

#[test]
fn the_latest_of_encrypted_sets_is_chosen_by_what_the_key_tells() {
    let world = World::new();
    std::fs::create_dir(world.at("m")).unwrap();
    world.run("key new k.key --no-recovery").done();
    for name in ["app.db", "other.db"] {
        database::sql(&world.at(name), "CREATE TABLE t (a)");
    }
    let backup = |name: &str| {
        let line = format!("backup -q sqlite:{name} --to m/ --encrypt-to k.key.pub --name-template {{set}}.bore");
        world.run(&line).done();
    };
    backup("app.db");
    backup("app.db");
    world.run("restore --from m --key k.key --latest --into sqlite:copy.db").done();
    std::fs::remove_file(world.at("copy.db")).unwrap();
    backup("other.db");
    let ended = world.run("restore --from m --key k.key --latest --into sqlite:copy.db").with_code(1);
    assert!(ended.err.contains("several databases") && ended.err.contains("other.db"), "{ended}");
    world.assert_no_copy();
}
