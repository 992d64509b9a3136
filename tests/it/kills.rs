//! SIGKILL at seeded moments: afterwards the old or the new is whole, and the next run tidies up.

use std::time::{Duration, Instant};

use crate::database::{self, Shape};
use crate::program::Ended;
use crate::world::World;

/// Moments for `count` kills of a run that takes `whole` when nothing stops it.
pub fn moments(seed: u64, count: u32, whole: Duration) -> Vec<Duration> {
    let mut random = fastrand::Rng::with_seed(seed);
    // Many of them near the end, where names change.
    let share = |at| if at % 2 == 0 { random.f64() * 1.1 } else { 0.75 + random.f64() * 0.35 };
    (0..count).map(share).map(|share| whole.mul_f64(share)).collect()
}

/// Runs `line` and kills it after `delay`.
pub fn killed(world: &World, line: &str, delay: Duration) -> Ended {
    let running = world.start(line);
    std::thread::sleep(delay);
    running.signal("KILL");
    let ended = running.wait();
    assert!([0, 4, -9].contains(&ended.code), "{ended}");
    ended
}

fn small() -> World {
    World::with_shape(Shape { rows: 600, ..Shape::default() })
}

#[track_caller]
pub fn no_errors(ended: Ended) {
    assert!([0, 4].contains(&ended.code), "{ended}");
}

#[test]
fn a_killed_backup_leaves_a_whole_set_or_none_and_the_next_run_tidies_up() {
    let world = small();
    let line = "backup sqlite:app.db --to a/app.bore --to b/app.bore --max-transfer-size 64KiB";
    let begun = Instant::now();
    world.run(&format!("{line} --init")).done();
    let whole = begun.elapsed();
    for (at, delay) in moments(1, 12, whole).into_iter().enumerate() {
        for name in ["a/app.bore", "b/app.bore"] {
            let _ = std::fs::remove_file(world.at(name)); // Not there when the run before was killed.
        }
        killed(&world, line, delay);
        let whole = world.run("restore --from a --from b --into sqlite:copy.db");
        if whole.code == 0 {
            world.assert_copy();
            std::fs::remove_file(world.at("copy.db")).unwrap();
        } else {
            assert!(!world.at("a/app.bore").exists(), "kill {at}: family 1 is published last: {whole}");
            world.assert_no_copy();
        }
        no_errors(world.run(&format!("{line} --init")));
        assert_eq!(
            (world.names("a"), world.names("b")),
            (vec!["app.bore".into()], vec!["app.bore".into()]),
            "kill {at}"
        );
        world.assert_restores("--from a --from b");
    }
}

#[test]
fn a_killed_replacement_leaves_the_old_set_or_the_new_one() {
    let world = small();
    let line = "backup sqlite:app.db --to a/app.bore --to b/app.bore --init --max-transfer-size 64KiB";
    world.run(line).done();
    let begun = Instant::now();
    world.run(line).done();
    let whole = begun.elapsed();
    for (delay, round) in moments(2, 14, whole).into_iter().zip(1..) {
        let old = database::contents(&world.at("app.db"));
        database::change(&world.at("app.db"), round);
        let new = database::contents(&world.at("app.db"));
        killed(&world, line, delay);
        no_errors(world.run("restore --from a --from b --into sqlite:copy.db --latest"));
        let found = database::contents(&world.at("copy.db"));
        assert!(found == old || found == new, "kill {round} after {delay:?}: neither the old nor the new");
        std::fs::remove_file(world.at("copy.db")).unwrap();
        no_errors(world.run(line));
        assert_eq!(
            (world.names("a"), world.names("b")),
            (vec!["app.bore".into()], vec!["app.bore".into()]),
            "kill {round}"
        );
        world.assert_restores("--from a --from b");
    }
}

#[test]
fn a_killed_restore_leaves_the_old_database_or_the_new_one() {
    let world = small();
    world.run("backup sqlite:app.db --to a/app.bore --max-transfer-size 64KiB").done();
    database::make(&world.at("copy.db"), Shape { rows: 300, ..Shape::default() });
    std::fs::copy(world.at("copy.db"), world.at("old.db")).unwrap();
    let (old, new) = (database::contents(&world.at("old.db")), database::contents(&world.at("app.db")));
    let line = "restore --from a --into sqlite:copy.db --replace";
    let begun = Instant::now();
    world.run(line).done();
    for delay in moments(3, 14, begun.elapsed()) {
        std::fs::copy(world.at("old.db"), world.at("copy.db")).unwrap();
        killed(&world, line, delay);
        let found = database::contents(&world.at("copy.db"));
        assert!(found == old || found == new, "after {delay:?}: neither the old nor the new");
        no_errors(world.run(line));
        assert_eq!(database::contents(&world.at("copy.db")), new);
        for name in world.names(".").into_iter().filter(|name| name.contains("restoring")) {
            std::fs::remove_file(world.at(&name)).unwrap(); // The warning says that it can be removed.
        }
    }
}

#[test]
fn after_killed_backups_into_directories_the_next_one_leaves_whole_sets_only() {
    let world = small();
    let line =
        "backup sqlite:app.db --to a/ --to b/ --name-template {database}-{set}-{family} --max-transfer-size 64KiB";
    let begun = Instant::now();
    world.run(line).done();
    let whole = begun.elapsed();
    for (at, delay) in moments(4, 14, whole).into_iter().enumerate() {
        killed(&world, line, delay);
        no_errors(world.run("verify --from a --from b"));
        no_errors(world.run(line));
        let sets = world.run("list --from a --from b --json").done().json();
        for set in sets.as_array().unwrap() {
            assert_eq!(set["complete"], true, "kill {at} after {delay:?}: {set}");
        }
        let left: Vec<String> = world.names("a").into_iter().chain(world.names("b")).collect();
        assert!(!left.iter().any(|name| name.contains(".new-")), "kill {at} after {delay:?}: {left:?}");
        assert_eq!(left.len(), 2 * sets.as_array().unwrap().len());
    }
    no_errors(world.run("restore --from a --from b --latest --into sqlite:copy.db"));
    world.assert_copy();
}

/// Kills `line` before its first change of a file in the world, its second …, as far as it makes any, and looks with `after` what is there. Every
/// step with `FULLBORE_EVERY_STEP` set, otherwise every `apart`-th.
fn killed_step_by_step(world: &World, line: &str, apart: usize, before: impl Fn(u32), after: impl Fn(&str)) {
    let apart = if std::env::var_os("FULLBORE_EVERY_STEP").is_some() { 1 } else { apart };
    if !crate::traced::is_allowed() {
        return crate::program::skipped(line, "no process may be traced here");
    }
    let mut steps = 0;
    for n in (1..).step_by(apart) {
        before(n as u32);
        let command = crate::program::command(world.folder(), line.split_whitespace());
        match crate::traced::killed_before(&command, world.folder(), n).unwrap() {
            crate::traced::Traced::Killed(step) => {
                after(&format!("step {n}, {step}"));
                steps += 1;
            }
            crate::traced::Traced::Ended(code) => {
                assert!([0, 4].contains(&code), "{line}: {code}");
                after(&format!("its end, {n}"));
                break;
            }
        }
    }
    crate::program::tell(&format!("{line}: killed at {steps} steps"));
    assert!(steps > 2, "{steps} steps");
}

#[test]
fn a_replacement_killed_at_a_step_leaves_the_old_set_or_the_new_one() {
    let world = World::with_shape(Shape { rows: 60, ..Shape::default() });
    let line = "backup sqlite:app.db --to a/app.bore --to b/app.bore --init --max-transfer-size 64KiB";
    world.run(line).done();
    let known = std::cell::RefCell::new(Vec::new());
    let before = |round| {
        let old = database::contents(&world.at("app.db"));
        let text = format!("CREATE TABLE more_{round} AS SELECT {round} AS n, randomblob(9000) AS b");
        database::sql(&world.at("app.db"), &text);
        *known.borrow_mut() = vec![old, database::contents(&world.at("app.db"))];
    };
    killed_step_by_step(&world, line, 5, before, |step| {
        no_errors(world.run("restore --from a --from b --into sqlite:copy.db --latest"));
        let found = database::contents(&world.at("copy.db"));
        assert!(known.borrow().contains(&found), "killed before {step}: neither the old nor the new");
        std::fs::remove_file(world.at("copy.db")).unwrap();
        no_errors(world.run(line));
        let names = (world.names("a"), world.names("b"));
        assert_eq!(names, (vec!["app.bore".into()], vec!["app.bore".into()]), "killed before {step}");
        world.assert_restores("--from a --from b");
    });
}

#[test]
fn a_backup_into_directories_killed_at_a_step_leaves_whole_sets_only() {
    let world = World::with_shape(Shape { rows: 60, ..Shape::default() });
    let line =
        "backup sqlite:app.db --to a/ --to b/ --name-template {database}-{set}-{family} --max-transfer-size 64KiB";
    world.run(line).done();
    let before = |_| {
        // So that no round is longer than the one before.
        let old: Vec<_> = ["a", "b"]
            .iter()
            .flat_map(|of| world.names(of).into_iter().map(move |name| format!("{of}/{name}")))
            .collect();
        old.iter().for_each(|name| std::fs::remove_file(world.at(name)).unwrap());
        world.run(line).done();
    };
    killed_step_by_step(&world, line, 5, before, |step| {
        no_errors(world.run("verify --from a --from b"));
        no_errors(world.run(line));
        let sets = world.run("list --from a --from b --json").done().json();
        let sets = sets.as_array().unwrap();
        assert!(sets.iter().all(|set| set["complete"] == true), "killed before {step}: {sets:?}");
        let left = world.names("a").len() + world.names("b").len();
        assert_eq!(left, 2 * sets.len(), "killed before {step}: {:?} {:?}", world.names("a"), world.names("b"));
    });
}

#[test]
fn a_restore_over_a_database_killed_at_a_step_leaves_the_old_or_the_new() {
    let world = World::with_shape(Shape { rows: 60, ..Shape::default() });
    world.run("backup sqlite:app.db --to a/app.bore --max-transfer-size 64KiB").done();
    database::make(&world.at("old.db"), Shape { rows: 90, ..Shape::default() });
    let (old, new) = (database::contents(&world.at("old.db")), database::contents(&world.at("app.db")));
    let line = "restore --from a --into sqlite:copy.db --replace";
    let before = |_| {
        std::fs::copy(world.at("old.db"), world.at("copy.db")).unwrap();
    };
    killed_step_by_step(&world, line, 3, before, |step| {
        let found = database::contents(&world.at("copy.db"));
        assert!(found == old || found == new, "killed before {step}: neither the old nor the new");
        no_errors(world.run(line));
        assert_eq!(database::contents(&world.at("copy.db")), new, "killed before {step}");
        for name in world.names(".").into_iter().filter(|name| name.contains("restoring")) {
            std::fs::remove_file(world.at(&name)).unwrap(); // The warning says that it can be removed.
        }
    });
}
