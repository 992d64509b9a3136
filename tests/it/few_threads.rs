//! A machine that gives no more threads or no more address space: one clear error, nothing left, and no hang.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::program::{self, Ended};
use crate::world::World;

/// A user of nobody else's: what it runs counts against its own limit on processes only.
const STRANGER: u32 = 64_123;

/// What libraries say when an allocation fails and they end the process; the third when a thread gets no signal stack, the
/// last when the dynamic linker cannot map the program.
const DIED_OF_MEMORY: [&str; 4] =
    ["memory allocation of", "out of memory", "failed to allocate an alternative stack", "failed to map segment"];

/// Runs `fullbore LINE` behind `guard` (`prlimit …`), with a report; it has to end by itself, well or with one error. `None`
/// when an allocation failed inside a library, which ends a process at once: nothing can be said then, but nothing may look whole.
fn guarded(world: &World, guard: &str, line: &str) -> Option<Ended> {
    let mut words = guard.split_whitespace();
    let mut command = Command::new("timeout");
    program::surroundings(&mut command, world.folder());
    let runtime = world.at("run");
    command.env("XDG_RUNTIME_DIR", &runtime).args(["--signal=KILL", "300"]).args(&mut words);
    command.arg(env!("CARGO_BIN_EXE_fullbore")).args(line.split_whitespace());
    command.args(["--report", "json:report.json"].map(OsString::from));
    let _ = std::fs::remove_file(world.at("report.json")); // There may be none yet.
    let begun = Instant::now();
    let line = format!("{command:?}");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if DIED_OF_MEMORY.iter().any(|words| said.contains(words)) {
        assert!(begun.elapsed() < Duration::from_secs(300), "it hung: {guard}: {said}");
        return None;
    }
    let ended = Ended::from(line, output);
    assert!(begun.elapsed() < Duration::from_secs(300), "it hung: {guard}: {ended}");
    assert!([0, 1].contains(&ended.code), "{guard}: {ended}");
    let report: serde_json::Value = serde_json::from_slice(&world.read("report.json")).unwrap();
    assert_eq!(report["exit_code"], ended.code, "{ended}");
    assert_eq!(ended.err.matches("error: ").count(), usize::try_from(ended.code).unwrap(), "one error: {ended}");
    assert_eq!(ended.err.matches("hint: ").count() >= 1, ended.code == 1, "{ended}");
    Some(ended)
}

/// A database, a set of it in 8 families, and a directory for the locks.
fn world_with_set() -> World {
    let world = World::with_database();
    std::fs::create_dir(world.at("run")).unwrap();
    world.run("backup sqlite:app.db --to a/ --stripes 8").done();
    world
}

/// Backup, verification and restore behind `guard`; what they left is checked and removed. Gives those that failed for
/// want of a thread.
fn every_verb(world: &World, guard: &str) -> usize {
    let kept = world.names("a");
    let verbs = [
        "backup sqlite:app.db --to b/ --stripes 32 --workers 8 --readers 8 --compression zstd",
        "verify --from a --workers 16",
        "restore --from a --into sqlite:copy.db --workers 16",
    ];
    let mut refused = 0;
    for line in verbs {
        let Some(ended) = guarded(world, guard, line) else {
            // The commit record is published last: with it the set is whole.
            if world.names("b").iter().any(|name| name.ends_with("-1of32.bore")) {
                world.run("verify --from b").done();
            }
            assert!(!world.at("copy.db").exists(), "{guard}: a database looks whole");
            clear(world);
            continue;
        };
        match ended.code {
            0 if line.starts_with("restore") => world.assert_copy(),
            0 => {}
            _ => {
                assert_eq!(world.names("b"), Vec::<String>::new(), "{guard}: {ended}");
                world.assert_no_copy();
            }
        }
        refused += usize::from(ended.err.contains("cannot start a thread for `"));
        clear(world);
    }
    assert_eq!(world.names("a"), kept);
    refused
}

/// Removes what backups and restores have made.
fn clear(world: &World) {
    for name in world.names("b") {
        std::fs::remove_file(world.at("b").join(name)).unwrap();
    }
    for name in world.names(".").into_iter().filter(|name| name.starts_with("copy.db")) {
        std::fs::remove_file(world.at(&name)).unwrap();
    }
}

/// No lock on the database or among the runs is held any more: a run without limits, and a writer, go through at once.
fn assert_nothing_is_held(world: &World) {
    for line in ["backup sqlite:app.db --to b/after.bore --lock-timeout 0", "verify --from b/after.bore"] {
        guarded(world, "env", line).expect("memory for a small job").done();
    }
    crate::database::sql(&world.at("app.db"), "PRAGMA wal_checkpoint(TRUNCATE); VACUUM");
}

#[test]
fn too_little_address_space_gives_one_error_and_no_panic_or_hang() {
    let world = world_with_set();
    let starts = |mebibytes: &u64| {
        let mut probe = Command::new("prlimit");
        probe.args([&format!("--as={}", mebibytes << 20), env!("CARGO_BIN_EXE_fullbore"), "--version"]);
        program::surroundings(&mut probe, world.folder());
        probe.output().is_ok_and(|output| output.status.success())
    };
    // With less, the dynamic linker cannot map the program.
    let least = (32..1024).step_by(4).find(starts).unwrap();
    for more in [8, 16, 36, 76, 126, 166, 206, 246, 296, 346, 396, 546] {
        every_verb(&world, &format!("prlimit --as={}", (least + more) << 20));
    }
    assert_nothing_is_held(&world);
}

#[test]
fn too_few_processes_give_one_error_and_no_panic_or_hang() {
    let test = "too_few_processes_give_one_error_and_no_panic_or_hang";
    if !program::is_root() {
        // Our own limit counts what else this user runs: it cannot be set so that only the job meets it.
        return program::skipped(test, "only root can run a program as a user who runs nothing else");
    }
    let world = world_with_set();
    give_away(&world);
    if !is_reachable(&world) {
        return program::skipped(test, "the directory of the tests is closed to other users");
    }
    let stranger = format!("setpriv --reuid {STRANGER} --clear-groups prlimit");
    let refused: usize = [1, 2, 3, 5, 8, 10, 17, 25, 40]
        .iter()
        // `timeout` runs as root: the threads of the job alone count.
        .map(|limit| every_verb(&world, &format!("{stranger} --nproc={limit}")))
        .sum();
    assert!(refused >= 9, "{refused}");
    assert_eq!(every_verb(&world, &format!("{stranger} --nproc=500")), 0);
    assert_nothing_is_held(&world);
}

/// Everything in the folder belongs to the stranger.
fn give_away(world: &World) {
    let owner = STRANGER.to_string();
    assert!(Command::new("chown").args(["-R", &owner]).arg(world.folder()).status().unwrap().success());
    std::fs::set_permissions(world.folder(), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// True when the stranger gets to the folder and to the binary.
fn is_reachable(world: &World) -> bool {
    let mut probe = Command::new("setpriv");
    probe.args(["--reuid", &STRANGER.to_string(), "--clear-groups", env!("CARGO_BIN_EXE_fullbore"), "--version"]);
    program::surroundings(&mut probe, world.folder());
    probe.output().is_ok_and(|output| output.status.success())
}
