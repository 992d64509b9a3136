//! `--to -` and `--from -`.

use std::io::Write;
use std::process::Stdio;

use crate::program::{self, Ended};
use crate::world::World;

/// `fullbore LINE` with these bytes on standard input.
pub fn fed(world: &World, line: &str, bytes: &[u8]) -> Ended {
    let mut command = program::command(world.folder(), line.split_whitespace());
    command.stdin(Stdio::piped());
    let mut running = program::start(command);
    let mut input = running.child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes)); // It may end before it has read everything.
        running.wait()
    })
}

#[test]
fn a_backup_through_a_pipe_comes_back_through_a_pipe() {
    let world = World::with_database();
    world.run("key new --no-recovery k.key").done();
    for (options, key) in [
        ("--compression none", ""),
        ("--compression zstd:1 --max-transfer-size 64KiB", ""),
        ("--encrypt-to k.key.pub", "--key k.key"),
    ] {
        let piped = world.run(&format!("backup sqlite:app.db --to - {options}")).done();
        assert!(piped.out.starts_with(b"FULLBORE") && piped.err.contains("BACKUP DATABASE: full of "), "{}", piped.err);
        fed(&world, &format!("verify --from - {key}"), &piped.out).done();
        fed(&world, &format!("restore --from - --into sqlite:copy.db {key}"), &piped.out).done();
        world.assert_copy();
        std::fs::remove_file(world.at("copy.db")).unwrap();
        // What went through a pipe is a family like any other.
        world.write("a/piped.bore", &piped.out);
        world.assert_restores(&format!("--from a/piped.bore {key}"));
        let file = world.read("a/piped.bore");
        fed(&world, &format!("restore --from - --into nul: {key}"), &file).done();
    }
}

#[test]
fn a_pipe_from_which_nothing_came_says_where_to_look() {
    let world = World::new();
    fed(&world, "verify --from -", &[])
        .refused(3, "--from -", "ended before its first byte")
        .says(&["before the pipe"]);
}

#[test]
fn a_pipe_that_ends_early_is_refused_and_leaves_no_copy() {
    let world = World::with_database();
    let piped = world.run("backup sqlite:app.db --to - --max-transfer-size 64KiB").done().out;
    for length in [0, 1, 100, 4096, 5000, piped.len() / 2, piped.len() - 4096, piped.len() - 1] {
        fed(&world, "restore --from - --into sqlite:copy.db", &piped[..length])
            .with_code(3)
            .says(&["error: ", "hint: "]);
        world.assert_no_copy();
        fed(&world, "verify --from -", &piped[..length]).with_code(3);
    }
}

#[test]
fn a_pipe_with_something_behind_the_end_or_another_thing_in_it_is_refused() {
    let world = World::with_database();
    let mut piped = world.run("backup sqlite:app.db --to -").done().out;
    piped.extend([0; 4096]);
    fed(&world, "restore --from - --into sqlite:copy.db", &piped).with_code(3);
    world.assert_no_copy();
    fed(&world, "verify --from -", &world.read("app.db")).refused(3, "-", "");
}

#[test]
fn a_differential_cannot_come_through_a_pipe_without_its_full() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/full.bore").done();
    let piped = world.run("backup sqlite:app.db --to - --kind differential --base a").done().out;
    let ended = fed(&world, "restore --from - --into sqlite:copy.db", &piped);
    assert_ne!(ended.code, 0, "{ended}");
    ended.says(&["differential", "hint: "]);
    world.assert_no_copy();
    world.write("b/diff.bore", &piped);
    world.assert_restores("--from a --from b");
}

#[test]
fn a_pipe_takes_one_family_and_keeps_its_output_clean() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to - --to a/x.bore").refused(2, "--to -", "one family");
    world.run("backup sqlite:app.db --to - --stripes 2").refused(2, "", "family");
    world.run("backup sqlite:app.db --to - --report json").refused(2, "--report json", "standard output");
    world.run("verify --from - --from a").refused(2, "--from -", "pipe");
    world.assert_no_media();
    let piped = world.run("backup sqlite:app.db --to - --report json:report.json").done();
    world.write("a/piped.bore", &piped.out);
    world.run("verify --from a").done();
    let report: serde_json::Value = serde_json::from_slice(&world.read("report.json")).unwrap();
    assert_eq!(report["stored_bytes"].as_u64(), Some(piped.out.len() as u64));
}

#[test]
fn a_reader_that_goes_away_fails_the_backup() {
    let world = World::with_database();
    let mut running = world.start("backup sqlite:app.db --to -");
    drop(running.child.stdout.take());
    running.wait().with_code(1).says(&["error: ", "ipe"]);
}
