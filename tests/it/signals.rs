//! SIGINT, SIGTERM and SIGHUP in each phase: a clear end, nothing that looks whole.

use std::process::Command;
use std::time::{Duration, Instant};

use fullbore_test_servers::wait_until;
use rusqlite::Connection;

use crate::database::{self, Shape};
use crate::program::{self, Running};
use crate::world::World;

/// Half a minute for the usual database, and nobody waits for its end.
const SLOW: &str = "--throttle 64KiB/s --max-transfer-size 64KiB --stats 5";

/// How long it may take to stop on a machine that is busy with other tests; what runs here would last longer, or end well.
const SOON: Duration = Duration::from_secs(60);

/// Sends a signal where the run is now, and waits for its end.
fn stopped(running: Running, signal: &str) {
    running.listens();
    running.signal(signal);
    let begun = Instant::now();
    let code = match signal {
        "HUP" => 129,
        "INT" => 130,
        _ => 143,
    };
    let ended = running.wait().with_code(code).says(&["error: cancelled by", signal, "nothing usable was left behind"]);
    assert!(begun.elapsed() < SOON, "it took {:?} to stop: {ended}", begun.elapsed());
}

#[test]
fn a_signal_while_pages_are_copied_ends_the_backup_and_leaves_nothing() {
    let world = World::with_database();
    for (at, signal) in [("beginning", "INT"), ("families", "TERM"), ("pages", "HUP")] {
        let line = format!(
            "--default-signal=HUP {} backup sqlite:app.db --to a/ --to b/ --stripes 4 {SLOW}",
            env!("CARGO_BIN_EXE_fullbore")
        );
        // Under `nohup`, the tests and what they start ignore a hang-up.
        let mut command = Command::new("env");
        program::surroundings(&mut command, world.folder());
        command.args(line.split_whitespace());
        let running = program::start(command);
        match at {
            "families" => world.media_begun("b"),
            "pages" => running.says("backup: "),
            _ => {}
        }
        stopped(running, signal);
        world.assert_no_media();
    }
}

#[test]
fn a_signal_during_a_differential_leaves_only_the_full() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/full.bore").done();
    database::change(&world.at("app.db"), 1);
    let running = world.start(&format!("backup sqlite:app.db --to b/d.bore --kind differential --base a {SLOW}"));
    world.media_begun("b");
    stopped(running, "TERM");
    assert!(world.names("b").is_empty());
    world.run("verify --from a").done();
}

#[test]
fn a_signal_while_waiting_for_a_lock_on_the_database_is_heard() {
    let world = World::with_shape(database::Shape { journal: "delete", ..database::Shape::default() });
    let user = Connection::open(world.at("app.db")).unwrap();
    user.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let running = world.start("backup sqlite:app.db --to a/app.bore --lock-timeout 600");
    running.listens();
    // Nothing shows from when on it waits; earlier it is heard as well.
    std::thread::sleep(Duration::from_millis(500));
    stopped(running, "INT");
    world.assert_no_media();
}

#[test]
fn a_signal_while_waiting_for_another_run_is_heard() {
    let world = World::with_database();
    let first = world.start(&format!("backup sqlite:app.db --to a/app.bore {SLOW}"));
    world.media_begun("a");
    let second = world.start("backup sqlite:app.db --to b/app.bore --wait");
    second.listens();
    std::thread::sleep(Duration::from_millis(300)); // As above.
    stopped(second, "TERM");
    first.signal("INT");
    first.wait().with_code(130);
    world.assert_no_media();
}

#[test]
fn a_signal_while_limits_are_measured_leaves_nothing() {
    let world = World::with_database();
    let running = world.start(&format!("backup sqlite:app.db --to a/ --to b/ --measure-limit {SLOW}"));
    running.listens();
    std::thread::sleep(Duration::from_millis(100)); // As above.
    running.signal("TERM");
    running.wait().with_code(143);
    world.assert_no_media();
}

#[test]
fn a_signal_during_restore_or_verify_from_a_slow_pipe_leaves_nothing() {
    let world = World::with_database();
    let piped = world.run("backup sqlite:app.db --to - --max-transfer-size 64KiB").done().out;
    for (line, signal) in [("restore --from - --into sqlite:copy.db", "INT"), ("verify --from -", "TERM")] {
        let mut command = crate::program::command(world.folder(), line.split_whitespace());
        command.stdin(std::process::Stdio::piped());
        let mut running = crate::program::start(command);
        // Half of the media, then silence: the pipe stays open.
        let mut input = running.child.stdin.take().unwrap();
        let half = piped[..piped.len() / 2].to_vec();
        let writer = std::thread::spawn(move || {
            let _ = std::io::Write::write_all(&mut input, &half); // The reader ends before it has read everything.
            input
        });
        wait_until("it has read all that there is", || writer.is_finished());
        stopped(running, signal);
        drop(writer.join());
        world.assert_no_copy();
    }
}

#[test]
fn a_signal_during_a_restore_leaves_the_old_database() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/ --stripes 2 --max-transfer-size 64KiB").done();
    let mut stopped = 0;
    for at in (0..30).step_by(3) {
        std::fs::copy(world.at("app.db"), world.at("copy.db")).unwrap();
        let running = world.start("restore --from a --into sqlite:copy.db --replace");
        std::thread::sleep(Duration::from_millis(at * 2));
        running.signal("TERM");
        let ended = running.wait();
        // Before the program listens to signals they end it at once.
        assert!([0, 143, -15].contains(&ended.code), "{ended}");
        stopped += u32::from(ended.code == 143);
        assert_eq!(database::contents(&world.at("copy.db")), database::contents(&world.at("app.db")));
        assert!(!world.names(".").iter().any(|name| name.contains("restoring")), "{ended}");
    }
    if stopped == 0 {
        crate::program::skipped("a restore stopped in the middle", "every signal came too early or too late");
    }
}

#[test]
fn a_backup_under_nohup_outlives_its_terminal() {
    let world = World::with_database();
    let program = env!("CARGO_BIN_EXE_fullbore");
    // A shell's `trap '' HUP` is what nohup does: ignored signals stay ignored in what is started.
    let script =
        format!("trap '' HUP; exec {program} backup sqlite:app.db --to a/app.bore --throttle 256KiB/s --quiet");
    let mut child = std::process::Command::new("sh").args(["-c", &script]).current_dir(world.folder()).spawn().unwrap();
    world.media_begun("a");
    let sent = std::process::Command::new("kill").args(["-s", "HUP", &child.id().to_string()]).status().unwrap();
    assert!(sent.success(), "it had ended already");
    assert!(child.wait().unwrap().success());
    world.assert_restores("--from a");
}

/// GNU `timeout` signals its child, and then the group of it.
#[test]
fn a_signal_that_comes_twice_at_once_ends_a_job_well() {
    let world = World::with_shape(Shape { rows: 30_000, ..Shape::default() });
    let slow = world.start("backup sqlite:app.db --to a/ --compression none --throttle 64KiB/s");
    wait_until("media are begun", || world.at("a").is_dir() && !world.names("a").is_empty());
    slow.signal("TERM");
    slow.signal("TERM");
    slow.wait().with_code(143);
    assert_eq!(world.names("a"), Vec::<String>::new());
}
