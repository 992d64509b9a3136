//! A restore in steps: the target between them, what the next step applies, and what a broken step leaves.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::Value;

use crate::database::{self, Shape};
use crate::log::{kept_open, now};
use crate::program::Ended;
use crate::world::World;

/// A database with a full in `a/full.bore`, a differential in `a/differential.bore`, and log sets in `b/1.bore` … `b/4.bore`: behind the n-th
/// of them the ledger holds the numbers up to n. The differential is taken behind the second.
struct Chain {
    world: World,
    app: Connection,
    /// Times behind each log set.
    times: Vec<String>,
}

const LOGS: i64 = 4;

fn chain() -> Chain {
    chain_of(Shape { rows: 150, ..Shape::default() }, "")
}

fn chain_of(shape: Shape, options: &str) -> Chain {
    let world = World::with_shape(shape);
    database::sql(
        &world.at("app.db"),
        "PRAGMA journal_mode = wal; CREATE TABLE ledger (n INTEGER PRIMARY KEY); INSERT INTO ledger VALUES (0)",
    );
    let app = kept_open(&world);
    world.run(&format!("backup sqlite:app.db --to a/full.bore {options}")).done();
    let mut times = Vec::new();
    for n in 1..=LOGS {
        app.execute_batch(&format!(
            "INSERT INTO ledger VALUES ({n}); UPDATE item SET name = name || '{n}' WHERE id % 3 = 0"
        ))
        .unwrap();
        let base = if n == 1 {
            "--base a/full.bore".to_owned()
        } else {
            format!("--base a/full.bore --base b/{}.bore", n - 1)
        };
        world.run(&format!("backup sqlite:app.db --kind log {base} --to b/{n}.bore {options}")).done();
        if n == 2 {
            world
                .run(&format!(
                    "backup sqlite:app.db --kind differential --base a/full.bore --to a/differential.bore {options}"
                ))
                .done();
        }
        std::thread::sleep(Duration::from_millis(20));
        times.push(now());
        std::thread::sleep(Duration::from_millis(20));
    }
    Chain { world, app, times }
}

impl Chain {
    /// `fullbore restore … --no-recovery` into the target.
    fn step(&self, from: &str) -> Ended {
        self.world.run(&format!("restore {} --no-recovery --into sqlite:copy.db", sources(from)))
    }

    fn recover(&self, from: &str, options: &str) -> Ended {
        self.world.run(&format!("restore {} --recovery {options} --into sqlite:copy.db", sources(from)))
    }

    /// How far the restored database is, which is the same as what a restore in one go makes.
    #[track_caller]
    fn restored(&self, stop: &str) -> i64 {
        let copy = self.world.at("copy.db");
        self.world.run(&format!("restore --from a --from b {stop} --into sqlite:whole.db")).done();
        assert_eq!(self.world.read("copy.db"), self.world.read("whole.db"));
        let greatest = database::number(&copy, "SELECT max(n) FROM ledger");
        assert_eq!(database::number(&copy, "SELECT count(*) FROM ledger"), greatest + 1);
        assert_eq!(self.working(), None);
        for name in ["copy.db", "copy.db-wal", "copy.db-shm", "whole.db"] {
            let _ = fs::remove_file(self.world.at(name)); // The side files may not be there.
        }
        greatest
    }

    /// The file that grows beside the target.
    fn working(&self) -> Option<PathBuf> {
        let name = self.world.names(".").into_iter().find(|name| name.starts_with("copy.db.norecovery-"));
        name.map(|name| self.world.at(&name))
    }

    fn state(&self) -> Value {
        let text = String::from_utf8(self.world.read("copy.db")).unwrap();
        serde_json::from_str(text.split_once('\n').unwrap().1).unwrap()
    }

    fn write_state(&self, state: &Value) {
        let text = String::from_utf8(self.world.read("copy.db")).unwrap();
        let mark = text.split_once('\n').unwrap().0;
        self.world.write("copy.db", format!("{mark}\n{state}").as_bytes());
    }

    fn id(&self, file: &str) -> String {
        let listed = self.world.run(&format!("list --from {file} --json")).json();
        listed[0]["backup_set_id"].as_str().unwrap().to_owned()
    }
}

/// `a/x.bore b` as `--from a/x.bore --from b`.
fn sources(from: &str) -> String {
    from.split_whitespace().map(|source| format!("--from {source} ")).collect()
}

#[test]
fn a_full_its_differential_and_log_sets_are_applied_one_after_the_other() {
    let chain = chain();
    chain.step("a/full.bore").done().says(&["is still restoring, now at full"]);
    chain.step("a/differential.bore").done().says(&["is still restoring, now at differential"]);
    chain.step("b/3.bore").done().says(&["is still restoring, now at log"]);
    chain.recover("b/4.bore", "").done();
    assert_eq!(chain.restored("--latest"), LOGS);
    // Without the differential, several at a time, and the end by itself.
    chain.step("a/full.bore b/1.bore b/2.bore").done();
    chain.step("b").done();
    let recovered = chain.recover("", "").done().text();
    let first = recovered.lines().next().unwrap();
    for part in ["RESTORE DATABASE: log of sqlite ", "app.db up to 20", " into sqlite:copy.db (set "] {
        assert!(first.contains(part), "{part}: {recovered}");
    }
    assert!(first.contains(&chain.id("b/4.bore")[..13]), "the set: {recovered}");
    assert!(recovered.contains("\n  no set was read; ") && !recovered.contains(" 0 bytes"), "{recovered}");
    assert_eq!(chain.restored("--latest"), LOGS);
    // The same folders again: what was applied is passed over.
    chain.step("a/full.bore b/1.bore").done();
    chain.recover("a b", "").done();
    assert_eq!(chain.restored("--latest"), LOGS);
}

#[test]
fn no_application_takes_a_target_between_two_steps_for_a_database() {
    let chain = chain();
    chain.step("a/full.bore").done();
    let opened = Connection::open(chain.world.at("copy.db")).unwrap();
    for sql in ["SELECT count(*) FROM ledger", "CREATE TABLE mine (a)"] {
        let error = opened.execute_batch(sql).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::NotADatabase), "{error}");
    }
    drop(opened);
    let before = chain.world.read("copy.db");
    let line = "restore --from a/full.bore --into sqlite:copy.db";
    chain.world.run(line).refused(1, "copy.db", "is being restored in steps, and is now at full");
    assert_eq!(chain.world.read("copy.db"), before);
    chain.recover("b", "").done();
    assert_eq!(chain.restored("--latest"), LOGS);
}

#[test]
fn the_last_step_stops_at_a_time() {
    let chain = chain();
    for (n, time) in (1..).zip(&chain.times[..3]) {
        chain.step("a/full.bore").done();
        chain.recover("b", &format!("--stop-at {time} --integrity-check")).done().says(&["stopped at"]);
        assert_eq!(chain.restored(&format!("--stop-at {time}")), n);
    }
    chain.step("a/full.bore b/1.bore b/2.bore b/3.bore").done();
    let early = format!("--stop-at {}", chain.times[0]);
    chain.recover("b", &early).refused(1, "--stop-at", "is before the range that these sets can be restored to");
    chain.recover("b", "--set zzzz").refused(2, "--set zzzz", "no such set");
    let late = format!("--stop-at {}", chain.times[3]);
    chain.recover("b", &late).refused(1, "--stop-at", "is after the range that these sets can be restored to");
    chain.recover("b", "").done();
    assert_eq!(chain.restored("--latest"), LOGS);
    let line = format!("restore --from a/full.bore --no-recovery {early} --into sqlite:copy.db");
    chain.world.run(&line).with_code(2);
}

#[test]
fn a_log_set_that_does_not_continue_the_target_is_named_and_changes_nothing() {
    let chain = chain();
    chain.recover("", "").refused(2, "copy.db", "no restore in steps has begun there");
    chain.step("b/1.bore").with_code(3);
    chain.world.assert_no_copy();
    chain.step("a/full.bore b/1.bore").done();
    let (before, working) = (chain.world.read("copy.db"), fs::read(chain.working().unwrap()).unwrap());
    chain.step("b/3.bore").refused(3, &chain.id("b/3.bore"), &format!("continues backup set {}", chain.id("b/2.bore")));
    chain.step("a/differential.bore").refused(3, "restored up to log", "can only follow its own full");
    chain.step("a/full.bore").refused(3, "restored up to log", "none of these continues it");
    let world = World::with_small_set("");
    fs::copy(world.at("a/app.bore"), chain.world.at("other.bore")).unwrap();
    chain.step("other.bore").refused(3, "restored up to log", "none of these continues it");
    assert_eq!((chain.world.read("copy.db"), fs::read(chain.working().unwrap()).unwrap()), (before, working));
    chain.step("b").done();
    chain.step("b").refused(3, "restored up to log", "none of these continues it");
    chain.recover("", "").done();
    chain.recover("", "").refused(1, "copy.db", "is not being restored in steps");
    assert_eq!(chain.restored("--latest"), LOGS);
}

#[test]
fn a_step_that_was_broken_off_can_be_repeated_and_nothing_else() {
    let chain = chain();
    let doing = |last: &str, stop: Value| {
        let last = serde_json::json!({ "id": chain.id(last), "title": format!("log {last}"), "started_at": 0 });
        serde_json::json!({ "differential": null, "last": last, "stop_at": stop })
    };
    chain.step("a/full.bore").done();
    let before = (chain.state(), fs::read(chain.working().unwrap()).unwrap());
    chain.step("b/1.bore b/2.bore b/3.bore").done();
    let farther = fs::read(chain.working().unwrap()).unwrap();
    // As if it had been killed at its last moment, having written all pages, or half of them.
    for half in [false, true] {
        let mut state = before.0.clone();
        (state["doing"], state["working"]) = (doing("b/3.bore", Value::Null), chain.state()["working"].clone());
        chain.write_state(&state);
        let mut torn = farther.clone();
        if half {
            let middle = farther.len() / 2;
            torn.truncate(middle.max(before.1.len()));
            let kept = middle.min(before.1.len());
            torn[kept..before.1.len()].copy_from_slice(&before.1[kept..]);
        }
        fs::write(chain.working().unwrap(), &torn).unwrap();
        chain.recover("", "").refused(1, "copy.db", "a step was interrupted");
        chain.step("b/1.bore b/2.bore").refused(1, "copy.db", "a step was interrupted");
        chain.step("a/differential.bore").refused(1, "copy.db", "a step was interrupted");
        chain.recover("b", &format!("--stop-at {}", chain.times[1])).refused(1, "copy.db", "a step was interrupted");
        if half {
            chain.step("b/1.bore b/2.bore b/3.bore").done();
            assert_eq!(fs::read(chain.working().unwrap()).unwrap(), farther);
        }
        chain.recover("b", "").done();
        assert_eq!(chain.restored("--latest"), LOGS);
        chain.step("a/full.bore").done();
    }
    // One that was to stop at a time may be done again to that time, or a later one.
    let stop = chain.times[1].parse::<jiff::Timestamp>().unwrap().as_microsecond();
    let mut state = chain.state();
    state["doing"] = doing("b/3.bore", stop.into());
    chain.write_state(&state);
    chain.recover("b", &format!("--stop-at {}", chain.times[0])).refused(1, "copy.db", "a step was interrupted");
    chain.recover("b", &format!("--stop-at {}", chain.times[2])).done();
    assert_eq!(chain.restored(&format!("--stop-at {}", chain.times[2])), 3);
}

#[test]
fn a_log_set_that_is_damaged_leaves_the_target_behind_the_one_before_it() {
    let chain = chain();
    chain.step("a/full.bore").done();
    let whole = chain.world.read("b/3.bore");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    chain.world.write("b/3.bore", &damaged);
    let failed = chain.step("b");
    assert!(
        failed.code == 3 && failed.err.contains("b/3.bore") && failed.err.contains("the target is now at log"),
        "{failed}"
    );
    let state = chain.state();
    assert!(state["logs"] == 2 && state["doing"].is_null(), "{state:#}");
    chain.world.write("b/3.bore", &whole);
    chain.recover("b/3.bore", "").done();
    assert_eq!(database::number(&chain.world.at("copy.db"), "SELECT max(n) FROM ledger"), 3);
}

#[test]
fn killed_at_any_moment_a_step_is_done_or_can_be_done_again() {
    let chain = chain_of(Shape { rows: 8_000, ..Shape::default() }, "");
    let mut random = fastrand::Rng::with_seed(16);
    let (mut killed, mut broken) = (0, 0);
    for round in 0..6 {
        let steps = [
            "--from a/full.bore --no-recovery",
            "--from a/differential.bore --no-recovery",
            "--from b --no-recovery",
            "--recovery",
        ];
        for step in steps {
            let line = format!("restore {step} --into sqlite:copy.db");
            let running = chain.world.start(&line);
            std::thread::sleep(Duration::from_millis(random.u64(0..60)));
            running.signal("KILL");
            if running.wait().code == 0 {
                continue;
            }
            killed += 1;
            let was = fs::read(chain.world.at("copy.db")).unwrap_or_default();
            broken += usize::from(was.starts_with(b"fullbore: ") && !chain.state()["doing"].is_null());
            let again = chain.world.run(&line);
            // It was done, and only the end of the process was killed.
            let done = again.err.contains("none of these continues it")
                || again.err.contains("is not being restored")
                || again.err.contains("is being restored in steps")
                || again.err.contains("its own full");
            assert!([0, 4].contains(&again.code) || done, "round {round}, {step}: {again}");
        }
        let copy = chain.world.at("copy.db");
        if fs::read(&copy).unwrap().starts_with(b"fullbore: ") {
            chain.world.run("restore --from b --recovery --into sqlite:copy.db").done();
        }
        for name in chain.world.names(".").iter().filter(|name| name.starts_with("copy.db.")) {
            fs::remove_file(chain.world.at(name)).unwrap();
        }
        assert_eq!(chain.restored("--latest"), LOGS, "round {round}");
    }
    assert!(killed > 5, "{killed} killed, {broken} of them within a step");
}

#[test]
fn a_file_that_was_changed_or_is_gone_or_locked_is_not_gone_on_from() {
    let chain = chain();
    chain.step("a/full.bore").done();
    let working = chain.working().unwrap();
    let held = fullbore_core::io::LockableFile::from(File::open(&working).unwrap());
    held.try_lock().unwrap();
    chain.step("b/1.bore").refused(1, "copy.db", "another restore is running on it");
    drop(held);
    let wal = PathBuf::from(format!("{}-wal", working.display()));
    fs::write(&wal, "x").unwrap();
    chain.step("b/1.bore").refused(1, "-wal", "an application has opened it");
    fs::remove_file(&wal).unwrap();
    let whole = fs::read(&working).unwrap();
    fs::write(&working, &whole[..whole.len() - 512]).unwrap();
    chain.step("b/1.bore").refused(1, "copy.db.norecovery-", "when the last step ended");
    fs::write(&working, &whole).unwrap();
    fs::write(chain.world.at("copy.db-journal"), "x").unwrap();
    chain.recover("b", "").refused(1, "copy.db", "which belongs to it, exists");
    fs::remove_file(chain.world.at("copy.db-journal")).unwrap();
    fs::remove_file(&working).unwrap();
    chain.recover("", "").with_code(1).says(&["error: ", "copy.db.norecovery-", "without it begin anew"]);
    let mut state = chain.state();
    state["working"] = "../app.db".into();
    chain.write_state(&state);
    chain.recover("", "").refused(3, "copy.db", "it is damaged, or of a newer fullbore");
}

#[test]
fn a_database_that_is_there_is_replaced_by_the_first_step_only_if_that_was_asked_for() {
    let chain = chain();
    database::sql(&chain.world.at("copy.db"), "CREATE TABLE old (a)");
    let old = chain.world.read("copy.db");
    chain.step("a/full.bore").refused(1, "copy.db", "exists already");
    assert_eq!(chain.world.read("copy.db"), old);
    let reader = Connection::open(chain.world.at("copy.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM old").unwrap();
    let line = "restore --from a/full.bore --no-recovery --replace --into sqlite:copy.db";
    let busy = chain.world.run(line);
    assert!(busy.code == 1 && busy.err.contains("in use"), "{busy}");
    assert_eq!((chain.world.read("copy.db"), chain.working()), (old, None));
    drop(reader);
    chain.world.run(line).done();
    let first = chain.working().unwrap();
    // Begun anew, what was restored so far goes.
    chain.step("b/1.bore").done();
    chain.world.run(line).done();
    assert!(!first.exists() && chain.working().is_some());
    chain.recover("b", "").done();
    assert_eq!(chain.restored("--latest"), LOGS);
    // Given up for a restore in one go.
    chain.step("a/full.bore").done();
    chain.world.run("restore --from a/full.bore --replace --into sqlite:copy.db").done();
    assert_eq!((chain.working(), database::number(&chain.world.at("copy.db"), "SELECT max(n) FROM ledger")), (None, 0));
}

#[test]
fn unsupported_steps_are_refused() {
    let chain = chain();
    for into in ["dir:back", "nul:"] {
        let line = format!("restore --from a/full.bore --no-recovery --into {into}");
        chain.world.run(&line).refused(2, "--no-recovery", "only an SQLite database can be restored in steps");
    }
    let line = "restore --from - --no-recovery --into sqlite:copy.db";
    assert_eq!(chain.world.run(line).code, 3, "nothing comes from that pipe");
    for both in ["--no-recovery --recovery", "--recovery --replace", "--no-recovery --integrity-check"] {
        chain.world.run(&format!("restore --from a {both} --into sqlite:copy.db")).with_code(2);
    }
    chain.step("a/full.bore").done();
    let planned = chain.world.run("restore --from b --no-recovery --dry-run --into sqlite:copy.db").done().text();
    assert_eq!(planned.lines().filter(|line| line.contains("log ")).count(), 4, "{planned}");
    assert_eq!(chain.state()["logs"], 0);
}

#[test]
fn steps_out_of_a_repository_and_of_encrypted_sets() {
    let chain = chain();
    let world = &chain.world;
    world.write("fullbore.toml", b"[repository.night]\nto = [\"c/\"]\n");
    fs::create_dir(world.at("c")).unwrap();
    world.run("key new --no-recovery k.key").done();
    let sealed = "--encrypt-to k.key.pub --key k.key";
    let back_up = |kind: &str| world.run(&format!("backup sqlite:app.db --repo night --kind {kind}")).done();
    back_up("full");
    chain.app.execute_batch("INSERT INTO ledger VALUES (5)").unwrap();
    back_up("log");
    let step = |options: &str| world.run(&format!("restore --repo night {options} --into sqlite:copy.db"));
    step("--no-recovery").done().says(&["no lease protects the sets of the next step"]);
    step("--no-recovery").refused(3, "restored up to log", "none of these continues it");
    chain.app.execute_batch("INSERT INTO ledger VALUES (6)").unwrap();
    back_up("log");
    // As a prune leaves it: what comes next is gone, and something newer is there.
    let sets = |world: &World| world.run("list --repo night --json").json().as_array().unwrap().clone();
    let next = sets(world).pop().unwrap()["backup_set_id"].as_str().unwrap().to_owned();
    chain.app.execute_batch("CREATE TABLE between_steps (n INTEGER)").unwrap();
    back_up("log");
    let record = format!("c/.fullbore/sets/{next}.json");
    let family: Value = serde_json::from_slice(&world.read(&record)).unwrap();
    let family = format!("c/{}", family["families"][0]["name"].as_str().unwrap());
    let moved = |from: &str, to: &str| fs::rename(world.at(from), world.at(to)).unwrap();
    moved(&record, "record");
    moved(&family, "family");
    let gone = step("--recovery").with_code(3).says(&[&next, "prune may have removed sets since the last step"]);
    assert!(world.at("copy.db").exists(), "{gone}");
    moved("record", &record);
    moved("family", &family);
    step("--recovery").done();
    assert_eq!(database::number(&world.at("copy.db"), "SELECT max(n) FROM ledger"), 6);
    for name in ["copy.db", "copy.db-wal", "copy.db-shm"] {
        let _ = fs::remove_file(world.at(name)); // The side files may not be there.
    }
    world.run(&format!("backup sqlite:app.db --to sealed.bore {sealed}")).done();
    chain.app.execute_batch("INSERT INTO ledger VALUES (7)").unwrap();
    world.run(&format!("backup sqlite:app.db --kind log --base sealed.bore --to sealed-log.bore {sealed}")).done();
    world.run("restore --from sealed.bore --key k.key --no-recovery --into sqlite:copy.db").done();
    let line = "restore --from sealed-log.bore --recovery --into sqlite:copy.db";
    assert_ne!(world.run(line).code, 0, "it is sealed");
    world.run(&format!("{line} --key k.key")).done();
    assert_eq!(database::number(&world.at("copy.db"), "SELECT max(n) FROM ledger"), 7);
}

#[test]
fn steps_out_of_a_repository_that_hides_names() {
    let chain = chain();
    let world = &chain.world;
    world.run("key new --no-recovery k.key").done();
    let hidden =
        "[repository.night]\nto = [\"c/\"]\nencrypt-to = [\"k.key.pub\"]\nkey = \"k.key\"\nhide-names = true\n";
    world.write("fullbore.toml", hidden.as_bytes());
    fs::create_dir(world.at("c")).unwrap();
    for (kind, step) in [("full", "--no-recovery"), ("log", "--no-recovery"), ("log", "--recovery")] {
        world.run(&format!("backup sqlite:app.db --repo night --kind {kind}")).done();
        chain.app.execute_batch("INSERT INTO ledger SELECT max(n) + 1 FROM ledger").unwrap();
        world.run(&format!("restore --repo night {step} --into sqlite:copy.db")).done();
    }
    assert_eq!(database::number(&world.at("copy.db"), "SELECT max(n) FROM ledger"), LOGS + 2);
}
