//! What killed backups leave: found through links, removed when it is dead, never what somebody needs.

use std::os::unix::fs::MetadataExt;

use fullbore_test_servers::wait_until;

use crate::database::{self, Shape};
use crate::program::Ended;
use crate::world::World;

/// The media-set id of the only set in `from`.
fn set_id(world: &World, from: &str) -> String {
    world.run(&format!("list --from {from} --json")).json()[0]["media_set_id"].as_str().unwrap().to_owned()
}

/// Starts a slow backup, kills it when `ready` is so, and gives what it had said.
fn killed(world: &World, line: &str, ready: impl Fn() -> bool) -> Ended {
    let running = world.start(&format!("{line} --throttle 64KiB/s --max-transfer-size 64KiB"));
    wait_until("it has come so far", ready);
    running.signal("KILL");
    running.wait().with_code(-9)
}

fn unfinished_in(world: &World, directory: &str) -> Vec<String> {
    world.names(directory).into_iter().filter(|name| name.contains(".new-")).collect()
}

/// An unfinished file has its space. One without a block may be a moment old: it is removed without a note.
fn has_begun(world: &World, directory: &str) -> bool {
    let has_space = |name: &String| world.at(directory).join(name).metadata().is_ok_and(|file| file.blocks() > 0);
    unfinished_in(world, directory).iter().any(has_space)
}

#[test]
fn both_sets_are_found_through_a_link_after_a_kill_between_the_renames() {
    let world = World::with_small_set("");
    std::fs::create_dir(world.at("real")).unwrap();
    std::fs::rename(world.at("a/app.bore"), world.at("real/app.bore")).unwrap();
    std::os::unix::fs::symlink("../real/app.bore", world.at("a/app.bore")).unwrap();
    database::sql(&world.at("app.db"), "UPDATE item SET name = 'newer'");
    world.run("backup sqlite:app.db --to b/app.bore").done();
    let (old, new) = (set_id(&world, "a"), set_id(&world, "b"));
    std::fs::rename(world.at("real/app.bore"), world.at(&format!("real/app.bore.old-{old}"))).unwrap();
    let new_name = world.at(&format!("real/app.bore.new-{new}"));
    std::fs::rename(world.at("b/app.bore"), &new_name).unwrap();
    for from in ["a/app.bore", "a", "a/*"] {
        let sets = world.run(&format!("list --from {from} --json")).done().json();
        assert_eq!(sets.as_array().unwrap().len(), 2, "{from}: {sets}");
        world.assert_restores(&format!("--from {from}"));
    }
    // One rename later.
    std::fs::rename(&new_name, world.at("real/app.bore")).unwrap();
    world.assert_restores("--from a/app.bore");
    std::fs::rename(world.at("real/app.bore"), &new_name).unwrap();
    world.run("backup sqlite:app.db --to a/app.bore --init").done().says(&["note: gave", "note: removed"]);
    assert_eq!(world.names("real"), ["app.bore"]);
    assert!(world.at("a/app.bore").is_symlink());
    world.assert_restores("--from a");
}

#[test]
fn dead_files_of_killed_backups_into_directories_are_notes_and_the_next_backup_removes_them() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/ --to b/").done();
    std::thread::sleep(std::time::Duration::from_millis(1100)); // Names tell seconds.
    let begun = || has_begun(&world, "a") && has_begun(&world, "b");
    killed(&world, "backup sqlite:app.db --to a/ --to b/", begun);
    assert!(begun());
    world.run("list --from a --from b").done().says(&["note: ", ".new-"]);
    world.run("verify --from a --from b").done().says(&["note: ", ".new-"]);
    world.assert_restores("--from a --from b");
    let next = world.run("backup sqlite:app.db --to a/ --to b/").done();
    assert_eq!(next.err.matches("note: removed").count(), 2, "{next}");
    assert_eq!((unfinished_in(&world, "a").len(), unfinished_in(&world, "b").len()), (0, 0));
    assert_eq!(world.run("list --from a --from b --json").done().json().as_array().unwrap().len(), 2);
}

#[test]
fn two_databases_of_one_name_are_backed_up_into_one_directory_in_the_same_second() {
    let world = World::new();
    for folder in ["one", "two"] {
        std::fs::create_dir(world.at(folder)).unwrap();
        database::make(&world.at(folder).join("app.db"), Shape { rows: 150, ..Shape::default() });
    }
    for _ in 0..3 {
        let running = ["one", "two"].map(|folder| world.start(&format!("backup sqlite:{folder}/app.db --to a/")));
        for running in running {
            running.wait().done();
        }
    }
    assert_eq!(world.names("a").len(), 6);
}

#[test]
fn recoveries_at_once_do_not_disturb_each_other() {
    let world = World::with_database();
    database::make(&world.at("other.db"), Shape::default());
    world.run("backup sqlite:app.db --to a/1.bore --to a/2.bore").done();
    let (id, first, second) = (set_id(&world, "a"), world.read("a/1.bore"), world.read("a/2.bore"));
    world.run("key new --no-recovery k.key").done();
    for at in 0..6 {
        let _ = std::fs::remove_file(world.at("a/1.bore"));
        world.write(&format!("a/1.bore.new-{id}"), &first[..first.len() / 2]);
        world.write("a/2.bore", &second);
        // Both own what stands beside the names that they are given.
        let lines = ["app", "other"].map(|name| {
            format!("backup sqlite:{name}.db --to a/1.bore --to a/2.bore --to b/{name}{at} --encrypt-to k.key")
        });
        let ended = lines.map(|line| world.start(&line)).map(crate::program::Running::wait);
        for ended in &ended {
            let lost =
                ended.code == 1 && (ended.err.contains("exists already") || ended.err.contains("running backup"));
            assert!([0, 4].contains(&ended.code) || lost, "{ended}");
        }
        assert!(ended.iter().any(|ended| ended.code != 1), "{} {}", ended[0], ended[1]);
        for name in ["1.bore", "2.bore"] {
            std::fs::remove_file(world.at("a").join(name)).unwrap();
        }
        assert!(world.names("a").is_empty(), "{:?}", world.names("a"));
    }
}

#[test]
fn encrypted_dead_files_are_known_by_their_names() {
    let world = World::with_database();
    world.run("key new --no-recovery k.key").done();
    let line = "backup sqlite:app.db --to a/ --encrypt-to k.key";
    killed(&world, line, || has_begun(&world, "a"));
    world.run(line).done().says(&["note: removed", ".new-"]);
    assert!(unfinished_in(&world, "a").is_empty());
}

#[test]
fn files_of_another_database_or_a_running_backup_are_kept() {
    let world = World::with_database();
    database::make(&world.at("other.db"), Shape::default());
    killed(&world, "backup sqlite:other.db --to a/", || has_begun(&world, "a"));
    let slow = "backup sqlite:other.db --to b/ --throttle 64KiB/s --max-transfer-size 64KiB";
    let running = world.start(slow);
    wait_until("the other backup has begun", || has_begun(&world, "b"));
    let before = (unfinished_in(&world, "a"), unfinished_in(&world, "b"));
    world.run("backup sqlite:app.db --to a/ --to b/").done();
    assert_eq!((unfinished_in(&world, "a"), unfinished_in(&world, "b")), before);
    running.signal("INT");
    running.wait().with_code(130);
}

#[test]
fn families_published_before_their_backup_was_killed_go_with_the_unfinished_one() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/x.bore --to b/x.bore").done();
    let id = set_id(&world, "a");
    // Family 1 is written last: as if the kill had come before its end.
    let bytes = world.read("a/x.bore");
    world.write(&format!("a/x.bore.new-{id}"), &bytes[..bytes.len() / 2]);
    std::fs::remove_file(world.at("a/x.bore")).unwrap();
    world.run("backup sqlite:app.db --to a/x.bore --to b/x.bore").done().says(&["note: removed", "b/x.bore"]);
    assert_eq!((world.names("a"), world.names("b")), (vec!["x.bore".into()], vec!["x.bore".into()]));
    world.assert_restores("--from a --from b");
}

#[test]
fn an_unfinished_copy_of_a_committed_set_costs_nothing() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/x.bore --to b/x.bore").done();
    let (id, bytes) = (set_id(&world, "a"), world.read("b/x.bore"));
    for to in ["--to b/", "--to a/ --to b/"] {
        world.write(&format!("b/x.bore.new-{id}"), &bytes[..bytes.len() / 2]);
        world
            .run(&format!("backup sqlite:app.db {to} --name-template {{database}}-{{set}}-{{family}}"))
            .done()
            .says(&["note: removed", ".new-"]);
        assert!(world.read("b/x.bore") == bytes);
    }
    world.run("restore --from a/x.bore --from b/x.bore --into sqlite:copy.db").done();
    // The disk of family 2 is not there, and family 1 is: still no proof that nothing was committed.
    std::fs::remove_file(world.at("b/x.bore")).unwrap();
    world.write(&format!("b/x.bore.new-{id}"), &bytes);
    world.run("backup sqlite:app.db --to b/").done().says(&["note: left", ".new-"]);
    world.run("restore --from a/x.bore --from b --set 0 --into sqlite:other.db").with_code(2);
    world.run(&format!("verify --from a/x.bore --from b --set {id}")).done();
}

#[test]
fn an_unfinished_copy_of_one_family_proves_nothing_of_the_finished_ones() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/x.bore --to b/2.bore --to b/3.bore").done();
    let id = set_id(&world, "a");
    let (second, third) = (world.read("b/2.bore"), world.read("b/3.bore"));
    // The disk of family 1 is not named. A copy of family 2 had been begun here, and one of family 3 is whole.
    world.write(&format!("b/part.bore.new-{id}"), &second[..second.len() / 2]);
    world.write(&format!("b/other.bore.new-{id}"), &third);
    let next = world.run("backup sqlite:app.db --to b/next.bore").done();
    next.says(&[
        "removed `",
        "part.bore.new-",
        "note: left `",
        "b/2.bore` alone",
        "b/3.bore` alone",
        "other.bore.new-",
    ]);
    assert!(world.read("b/2.bore") == second && world.read("b/3.bore") == third);
    std::fs::remove_file(world.at("b/next.bore")).unwrap();
    world.assert_restores("--from a --from b");
}

#[test]
fn a_recovery_that_is_killed_is_taken_up_by_the_next_one() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/1.bore --to a/2.bore --to a/3.bore").done();
    let (id, first, second) = (set_id(&world, "a"), world.read("a/1.bore"), world.read("a/2.bore"));
    // Killed between the publications: family 1 unfinished, family 2 finished and not published, family 3 published.
    std::fs::remove_file(world.at("a/1.bore")).unwrap();
    std::fs::remove_file(world.at("a/2.bore")).unwrap();
    let lay = || {
        world.write(&format!("a/1.bore.new-{id}"), &first[..first.len() / 2]);
        world.write(&format!("a/2.bore.new-{id}"), &second);
    };
    let third = world.read("a/3.bore");
    for kill in 1..=3 {
        lay();
        world.write("a/3.bore", &third);
        let inject = format!("inject=unlink,unlinkat:signal=KILL:when={kill}");
        let mut traced = std::process::Command::new("strace");
        crate::program::surroundings(&mut traced, world.folder());
        traced.args(["-f", "-o", "/dev/null", "-e", "trace=unlink,unlinkat", "-e", &inject]);
        traced.arg(env!("CARGO_BIN_EXE_fullbore")).args(["backup", "sqlite:app.db", "--to", "a/next.bore"]);
        let Ok(killed) = traced.output() else { return crate::program::skipped("a killed recovery", "no strace") };
        assert!(!killed.status.success(), "{killed:?}");
        world.run("backup sqlite:app.db --to a/next.bore").done().says(&["note: removed"]);
        assert_eq!(world.names("a"), ["next.bore"], "kill {kill}");
        std::fs::remove_file(world.at("a/next.bore")).unwrap();
    }
}

#[test]
fn init_over_a_part_of_a_larger_set_is_refused() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/x.bore --to b/x.bore").done();
    let refused = world.run("backup sqlite:app.db --to a/x.bore --init");
    refused.refused(1, "a/x.bore", "family 1 of 2").says(&["family 2: `b/x.bore`", "--to"]);
    let refused = world.run("backup sqlite:app.db --to a/x.bore --to b/y.bore --init");
    refused.refused(1, "a/x.bore", "family 1 of 2");
    world.assert_restores("--from a --from b");
    // All of it, also in another order or when one is gone from its place.
    world.run("backup sqlite:app.db --to b/x.bore --to a/x.bore --init").done();
    std::fs::remove_file(world.at("a/x.bore")).unwrap();
    world.run("backup sqlite:app.db --to a/x.bore --to b/x.bore --init").done();
    world.assert_restores("--from a --from b");
}

#[test]
fn the_first_family_of_several_tells_who_it_is_from_its_beginning() {
    let world = World::with_small_set("");
    // All of it fits into one buffer of each family, which is written at the end.
    let line = "backup sqlite:app.db --to b/1.bore --to c/2.bore --max-transfer-size 4MiB --throttle 20KiB/s";
    let begun = |directory: &str| {
        let name = unfinished_in(&world, directory).pop();
        name.is_some_and(|name| world.read(&format!("{directory}/{name}")).starts_with(b"FULLBORE"))
    };
    std::fs::create_dir(world.at("c")).unwrap();
    let running = world.start(line);
    wait_until("the first family tells who it is", || begun("b"));
    assert!(!begun("c"), "only what is on the device proves that the set was never committed");
    running.signal("KILL");
    running.wait().with_code(-9);
    world.run("backup sqlite:app.db --to b/1.bore --to c/2.bore").done().says(&["note: removed"]);
    assert_eq!((world.names("b"), world.names("c")), (vec!["1.bore".into()], vec!["2.bore".into()]));
}
