//! Standard output that takes nothing: the exit code says so. Why which: `Verb::is_for_output` in `src/cli/args.rs`.

use std::fs::File;
use std::process::Stdio;

use crate::program::{self, Ended};
use crate::world::World;

const FAILED: i32 = 1;
const WITH_WARNINGS: i32 = 4;

/// `fullbore LINE`, whose output nobody can write: the disk is full.
fn on_a_full_disk(world: &World, line: &str) -> Ended {
    let mut command = program::command(world.folder(), line.split_whitespace());
    let full = File::options().write(true).open("/dev/full").unwrap();
    command.stdout(full).stderr(Stdio::piped());
    let line = format!("{command:?}");
    Ended::from(line, command.spawn().unwrap().wait_with_output().unwrap())
}

#[track_caller]
fn lost(world: &World, code: i32, line: &str) -> Ended {
    let ended = on_a_full_disk(world, line).with_code(code);
    let said = ended.err.matches("standard output").count();
    assert!(said == 1 && ended.err.contains("No space left on device"), "{ended}");
    let word = if code == FAILED { "error: standard output" } else { "warning: standard output" };
    assert!(ended.err.contains(word), "{ended}");
    ended
}

#[test]
fn a_verb_that_only_prints_fails_if_it_cannot_print() {
    let world = World::with_database();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\nkeep = { last = 1 }\n");
    world.write("m.toml", crate::bench_matrix::SMALL.as_bytes());
    world.run("calibrate --read app.db --write a --write b --seconds 1 --space 32MiB").done();
    world.run("backup sqlite:app.db --to b/").done();
    world.run("backup sqlite:app.db --repo night").done();
    world.run("verify --repo night --latest").done();
    let tasks = world.run("tasks --repo night --json").done().json();
    let task = tasks[0]["task"].as_str().unwrap();
    for line in [
        "list --from b/",
        "list --from b/ --json",
        "list --repo night",
        "list --repo night --json",
        "inspect header --from b/",
        "inspect label --from b/",
        "inspect files --from b/",
        "inspect files --from b/ --json",
        "tasks --repo night",
        "tasks --repo night --json",
        &format!("task {task} --repo night"),
        "check --repo night",
        "check --repo night --json",
        "prune --repo night",
        "estimate sqlite:app.db --to b/",
        "estimate sqlite:app.db --to b/ --report json",
        "advise sqlite:app.db --to b/",
        "backup sqlite:app.db --to b/ --dry-run",
        "copy --from b/ --to c/ --mkdir --dry-run",
        "restore --from b/ --into sqlite:copy.db --dry-run",
        "bench m.toml --dry-run",
        "calibrate --show",
        "completions bash",
        "--version",
        "--help",
        "backup --help",
    ] {
        world.run(line).done();
        lost(&world, FAILED, line);
    }
}

#[test]
fn lost_output_after_finished_work_gives_exit_code_4() {
    let world = World::with_database();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\nkeep = { last = 1 }\n");
    lost(&world, WITH_WARNINGS, "backup sqlite:app.db --to b/app.bore");
    world.assert_restores("--from b/app.bore");
    lost(&world, WITH_WARNINGS, "restore --from b/app.bore --into sqlite:copy.db");
    world.assert_copy();
    lost(&world, WITH_WARNINGS, "verify --from b/app.bore");
    lost(&world, WITH_WARNINGS, "copy --from b/app.bore --to b/copied.bore");
    world.run("verify --from b/copied.bore").done();
    for _ in 0..2 {
        lost(&world, WITH_WARNINGS, "backup sqlite:app.db --repo night");
    }
    lost(&world, WITH_WARNINGS, "verify --repo night --latest");
    std::fs::create_dir(world.at("scratch")).unwrap();
    lost(&world, WITH_WARNINGS, "restore-test --repo night --scratch scratch");
    lost(&world, WITH_WARNINGS, "prune --repo night --confirm --grace 1s");
    assert_eq!(world.run("list --repo night --json").done().json().as_array().unwrap().len(), 1);
    lost(&world, WITH_WARNINGS, "catalog rebuild --repo night");
    lost(&world, WITH_WARNINGS, "key new --no-recovery k.key");
    assert!(!world.read("k.key").is_empty());
    lost(&world, WITH_WARNINGS, "calibrate --read app.db --write b --seconds 1 --space 32MiB");
    world.run("calibrate --show").done();
    // The report alone was to be there, and a backup names its set.
    let line = "backup sqlite:app.db --to b/reported.bore --report json";
    on_a_full_disk(&world, line).with_code(WITH_WARNINGS).says(&["was committed", "No space left on device"]);
}

#[test]
fn a_command_that_fails_fails_as_it_would_with_its_output() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to b/app.bore").done();
    let mut family = world.read("b/app.bore");
    let middle = family.len() / 2;
    family[middle] ^= 1;
    world.write("b/app.bore", &family);
    let ended = on_a_full_disk(&world, "verify --from b/app.bore").with_code(3);
    assert!(!ended.err.contains("standard output"), "{ended}");
    on_a_full_disk(&world, "list --from nowhere/").refused(2, "nowhere", "No such file");
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to b/").done();
    for line in ["list --from b/ --json", "inspect files --from b/", "verify --from b/", "--help"] {
        let mut command = program::command(world.folder(), line.split_whitespace());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        command.stdout(writer).stderr(Stdio::piped());
        let line = format!("{command:?}");
        let ended = Ended::from(line, command.spawn().unwrap().wait_with_output().unwrap()).with_code(0);
        assert_eq!(ended.err.matches("error").count(), 0, "{ended}");
    }
}

#[test]
fn a_file_that_a_flag_names_is_never_a_stripe_a_database_or_standard_output() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --repo a/").done();
    let stripe = world.names("a").into_iter().find(|name| name.ends_with(".bore")).unwrap();
    let before = world.read(&format!("a/{stripe}"));
    let files = [format!("a/{stripe}"), "app.db".to_owned()];
    for file in &files {
        world.run(&format!("verify a/ --log-file {file}")).refused(2, file, "is not a log file");
        world.run(&format!("check --repo a/ --metrics {file}")).refused(2, file, "is not a file of metrics");
        world.run(&format!("verify a/ --report json:{file}")).refused(2, file, "is not a report");
    }
    assert!(before == world.read(&format!("a/{stripe}")));
    // A log file, and a file of metrics, are taken again.
    for _ in 0..2 {
        world.run("verify a/ --log-file log").done();
        world.run("check --repo a/ --metrics metrics").done();
    }
    let mut command =
        program::command(world.folder(), ["backup", "sqlite:app.db", "--to", "-", "--log-file", "/dev/stdout"]);
    command.stdout(File::create(world.at("piped.bore")).unwrap()).stderr(Stdio::piped());
    let line = format!("{command:?}");
    let ended = Ended::from(line, command.spawn().unwrap().wait_with_output().unwrap());
    ended.refused(2, "--log-file /dev/stdout", "is standard output");
    assert_eq!(world.read("piped.bore"), b"");
}

#[test]
fn a_log_file_that_others_may_write_is_refused_before_the_job() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::with_database();
    let allow = |mode| std::fs::set_permissions(world.at("log"), std::fs::Permissions::from_mode(mode)).unwrap();
    let line = "backup sqlite:app.db --to a/app.bore --log-file log";
    world.write("log", b"");
    allow(0o666);
    world.run(line).refused(2, "log", "everybody may write it").says(&["chmod go-w log"]);
    assert!(world.read("log").is_empty() && world.names("a").is_empty());
    allow(0o640);
    world.run(line).done();
    assert_eq!(std::fs::metadata(world.at("log")).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_named_pipe_without_a_reader_is_a_warning_or_an_error_and_not_a_wait() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/").done();
    assert!(std::process::Command::new("mkfifo").arg(world.at("pipe")).status().unwrap().success());
    world.run("list a/ --log-file pipe").done().says(&["warning", "pipe"]);
    world.run("verify a/ --report json:pipe").with_code(WITH_WARNINGS).says(&["the report", "pipe"]);
}
