//! `--init`: the only way to overwrite, and the old set stays whole until the new one is.

use fullbore_test_servers::SetAtEnd;

use crate::database;
use crate::world::World;

/// How far a killed replacement of one family had come, as crates/core/src/sink/commit.rs draws it.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Written,
    MovedAway,
    Published,
    Retired,
}

impl Stage {
    const ALL: [Stage; 4] = [Stage::Written, Stage::MovedAway, Stage::Published, Stage::Retired];

    /// Lays the files of this stage into `directory`, from `old/` and `new/`.
    fn lay(self, world: &World, directory: &str, [old, new]: [&str; 2]) {
        let (name, new_name, old_name) =
            ("app.bore".to_owned(), format!("app.bore.new-{new}"), format!("app.bore.old-{old}"));
        let files = match self {
            Stage::Written => vec![("old", name), ("new", new_name)],
            Stage::MovedAway => vec![("old", old_name), ("new", new_name)],
            Stage::Published => vec![("old", old_name), ("new", name)],
            Stage::Retired => vec![("new", name)],
        };
        for left in world.names(directory) {
            std::fs::remove_file(world.at(directory).join(left)).unwrap();
        }
        for (set, name) in files {
            std::fs::copy(world.at(&format!("{set}-{directory}")), world.at(directory).join(name)).unwrap();
        }
    }
}

#[test]
fn a_kill_between_any_two_renames_leaves_a_whole_set_and_the_next_run_tidies_up() {
    let world = World::with_small_set("");
    let backup = "backup sqlite:app.db --max-transfer-size 64KiB --to";
    let set_id = |family: &str| {
        let header = world.run(&format!("inspect header --from {family} --json")).with_code(4).json();
        header[0]["media_set_id"].as_str().unwrap().to_owned()
    };
    let newer = "UPDATE item SET name = 'newer'";
    world.run(&format!("{backup} old-a --to old-b")).done();
    database::sql(&world.at("app.db"), newer);
    world.run(&format!("{backup} new-a --to new-b")).done();
    let ids = [set_id("old-a"), set_id("new-a")];
    for first in Stage::ALL {
        for second in Stage::ALL {
            first.lay(&world, "a", [&ids[0], &ids[1]]);
            second.lay(&world, "b", [&ids[0], &ids[1]]);
            world.assert_restores("--from a --from b");
            let next = world.run(&format!("{backup} a/app.bore --to b/app.bore --init"));
            assert!([0, 4].contains(&next.code), "{first:?} {second:?}: {next}");
            let left = (world.names("a"), world.names("b"));
            assert_eq!(left, (vec!["app.bore".into()], vec!["app.bore".into()]), "{first:?} {second:?}: {next}");
            world.assert_restores("--from a --from b");
        }
    }
}

/// Two families of the first state, which is kept as `first.db`; `app.db` is in the second state.
fn with_old_set() -> World {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/app.bore --to b/app.bore").done();
    std::fs::copy(world.at("app.db"), world.at("first.db")).unwrap();
    database::change(&world.at("app.db"), 5);
    world
}

#[track_caller]
fn assert_old_set_is_whole(world: &World) {
    assert_eq!((world.names("a"), world.names("b")), (vec!["app.bore".into()], vec!["app.bore".into()]));
    world.run("restore --from a --from b --into sqlite:copy.db").done();
    database::assert_same_file(&world.at("first.db"), &world.at("copy.db"));
}

#[test]
fn an_existing_family_is_never_overwritten_without_init() {
    let world = with_old_set();
    world
        .run("backup sqlite:app.db --to a/app.bore --to b/app.bore")
        .refused(1, "a/app.bore", "exists")
        .says(&["--init"]);
    world.run("backup sqlite:app.db --to a/new.bore --to b/app.bore").refused(1, "b/app.bore", "exists");
    assert_old_set_is_whole(&world);
}

#[test]
fn init_replaces_the_old_set() {
    let world = with_old_set();
    world.run("backup sqlite:app.db --to a/app.bore --to b/app.bore --init").done();
    assert_eq!((world.names("a"), world.names("b")), (vec!["app.bore".into()], vec!["app.bore".into()]));
    world.assert_restores("--from a --from b");
}

#[test]
fn init_makes_what_does_not_exist() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/app.bore --init").done();
    world.assert_restores("--from a");
}

#[test]
fn a_failing_new_set_leaves_the_old_one() {
    let world = with_old_set();
    let line = "backup sqlite:app.db --to a/app.bore --to b/app.bore --to gone/app.bore --init";
    world.run(line).refused(2, "gone", "does not exist");
    assert_old_set_is_whole(&world);
}

#[test]
fn a_cancelled_new_set_leaves_the_old_one() {
    let world = with_old_set();
    let line =
        "backup sqlite:app.db --to a/app.bore --to b/app.bore --init --throttle 64KiB/s --max-transfer-size 64KiB";
    let running = world.start(line);
    world.media_begun("b");
    running.signal("INT");
    running.wait().with_code(130);
    assert_old_set_is_whole(&world);
}

#[test]
fn init_replaces_a_damaged_family() {
    let world = World::with_small_set("");
    let bytes = world.read("a/app.bore");
    world.write("a/app.bore", &bytes[..bytes.len() / 2]);
    world.run("backup sqlite:app.db --to a/app.bore").refused(1, "a/app.bore", "exists");
    world.run("backup sqlite:app.db --to a/app.bore --init").done();
    world.assert_restores("--from a");
}

#[test]
fn init_spares_a_file_that_is_no_family() {
    let world = World::with_database();
    std::fs::write(world.at("a/x.bore"), "Dear diary").unwrap();
    world.run("backup sqlite:app.db --to a/x.bore --init").refused(1, "a/x.bore", "is not a media family");
    assert_eq!(std::fs::read_to_string(world.at("a/x.bore")).unwrap(), "Dear diary");
}

#[test]
fn readers_beside_backups_that_replace_each_other_see_one_whole_set_at_any_time() {
    let world = World::with_small_set("");
    let backup = "backup sqlite:app.db --max-transfer-size 64KiB --to a/app.bore --to b/2.bore --init --quiet";
    world.run(backup).done();
    std::fs::copy(world.at("app.db"), world.at("first.db")).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ends = SetAtEnd(&over);
            for _ in 0..40 {
                let ended = world.run(backup);
                assert!([0, 4].contains(&ended.code), "{ended}");
            }
        });
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            for from in ["--from a --from b", "--from a/app.bore --from b/2.bore", "--from a/*.bore --from b/*.bore"] {
                let _ = std::fs::remove_file(world.at("copy.db"));
                world.run(&format!("restore {from} --into sqlite:copy.db")).done();
                database::assert_same_file(&world.at("first.db"), &world.at("copy.db"));
                let ended = world.run(&format!("verify {from}"));
                let replaced = ended.code == 4 && ended.err.contains("was replaced or removed");
                assert!(ended.code == 0 || replaced, "{ended}");
                assert!(!ended.text().contains("All 0 "), "{ended}");
                world.run(&format!("list {from}")).done();
                world.run(&format!("inspect files {from}")).done();
            }
        }
    });
}
