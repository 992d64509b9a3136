//! SQLite databases out of a repository into another file: refreshes, the cut-over, and what kills, gaps and other writers do.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fullbore_engines::sqlite::content_digest;
use fullbore_test_servers::wait_until;
use rusqlite::Connection;

use crate::database::{self, Shape};
use crate::log::kept_open;
use crate::program::Ended;
use crate::world::World;

/// `app.db` with a full in the repository `night`, and the application that has it open. The target is `new.db`.
struct Move {
    world: World,
    app: Connection,
}

const LINE: &str = "--repo night --into sqlite:new.db";

impl Move {
    fn new(rows: u32) -> Self {
        let world = World::with_shape(Shape { rows, ..Shape::default() });
        world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
        Self::within(world)
    }

    fn within(world: World) -> Self {
        let app = kept_open(&world);
        app.execute_batch("CREATE TABLE ledger (n INTEGER PRIMARY KEY); CREATE TABLE plain (t); INSERT INTO plain VALUES ('in no index')")
            .unwrap();
        let made = Self { world, app };
        made.back_up("full");
        made
    }

    /// The ledger goes up to `n`.
    fn write(&self, n: i64) {
        let sql = format!(
            "BEGIN; INSERT INTO ledger VALUES ({n}); UPDATE item SET name = name || '{n}' WHERE id % 3 = 0; COMMIT"
        );
        self.app.execute_batch(&sql).unwrap();
    }

    fn back_up(&self, kind: &str) {
        self.world.run(&format!("backup sqlite:app.db --repo night --kind {kind}")).done();
    }

    /// A log set up to `n`.
    fn log_set(&self, n: i64) {
        self.write(n);
        self.back_up("log");
    }

    fn migrate(&self, options: &str) -> Ended {
        self.world.run(&format!("migrate {LINE} {options}"))
    }

    fn cut_over(&self, options: &str) -> Ended {
        self.world.run(&format!("migrate sqlite:app.db {LINE} --cut-over {options}"))
    }

    /// The file that grows beside the target.
    fn working(&self) -> Option<PathBuf> {
        let name = self.world.names(".").into_iter().find(|name| name.starts_with("new.db.norecovery-"));
        name.map(|name| self.world.at(&name))
    }

    fn families(&self) -> Vec<String> {
        self.world.names("a").into_iter().filter(|name| name.ends_with(".bore")).collect()
    }

    #[track_caller]
    fn assert_equal(&self) {
        let [ours, theirs] = ["app.db", "new.db"].map(|name| content_digest(&self.world.at(name)).unwrap());
        assert_eq!(ours, theirs);
        assert_eq!(self.working(), None);
    }

    fn remove_target(&self) {
        for name in self.world.names(".").iter().filter(|name| name.starts_with("new.db")) {
            fs::remove_file(self.world.at(name)).unwrap();
        }
    }
}

#[test]
fn a_file_gets_each_set_once_and_takes_the_place_of_its_source() {
    let moved = Move::new(150);
    moved.write(1);
    moved.back_up("differential");
    moved.log_set(2);
    let plan = moved.migrate("--plan").done();
    assert!(plan.text().contains("differential") && plan.err.contains("3 sets with"), "{plan}");
    moved.world.run("list --repo night").done();
    assert!(!moved.world.at("new.db").exists());
    let first = moved.migrate("").done();
    assert!(first.text().contains("it is not a database yet") && first.err.contains("still restoring"), "{first}");
    let opened = Connection::open(moved.world.at("new.db")).unwrap();
    assert!(opened.execute_batch("SELECT 1 FROM ledger").unwrap_err().to_string().contains("not a database"));
    drop(opened);
    moved.migrate("").done().says(&["no log set came since"]);
    moved.migrate("--plan").done().says(&["0 sets with"]);
    moved.log_set(3);
    moved.log_set(4);
    moved.migrate("--plan").done().says(&["2 sets with"]);
    moved.migrate("").done();
    // What was not backed up comes with the cut-over.
    moved.write(5);
    let sets = moved.families();
    let plan = moved.cut_over("--plan").done();
    assert!(plan.text().contains("downtime") && plan.text().contains("the source is read at"), "{plan}");
    plan.says(&["0 sets with", "a log set with about"]);
    assert_eq!(moved.families(), sets);
    let ended = moved.cut_over("--report json:report.json").done();
    assert!(ended.text().contains("downtime") && ended.text().contains("compared, and equal"), "{ended}");
    ended.says(&["writers of the source are kept out", "The way back"]);
    moved.assert_equal();
    assert_eq!(database::number(&moved.world.at("new.db"), "SELECT max(n) FROM ledger"), 5);
    let report: serde_json::Value = serde_json::from_slice(&moved.world.read("report.json")).unwrap();
    let migration = &report["migration"];
    assert!(migration["cut_over"] == true && migration["downtime_s"].as_f64().unwrap() > 0.0, "{report}");
    assert!(migration["compared"][1].as_u64().unwrap() > 150 && migration["applied_bytes"] != 0, "{report}");
    moved.write(6);
    moved.cut_over("").refused(1, "new.db", "exists already");
    moved.migrate("").refused(1, "new.db", "exists already");
    // The first run may be the last, and replace a database.
    moved.migrate("--replace").done();
    let ended = moved.cut_over("--check none").done();
    assert!(ended.text().contains("rows were not compared"), "{ended}");
    moved.assert_equal();
}

#[test]
fn without_its_source_the_target_ends_at_the_newest_set() {
    let moved = Move::new(150);
    moved.log_set(1);
    moved.migrate("--replace").done();
    moved.log_set(2);
    moved.migrate("--abort").refused(2, "--abort", "no other state");
    moved.migrate("--cut-over").done().says(&["nothing was compared"]);
    moved.assert_equal();
    moved.remove_target();
    moved.migrate("--cut-over").done().says(&["nothing was compared"]);
    moved.assert_equal();
    moved.remove_target();
    moved.migrate("").done();
    moved.migrate("--cut-over").done().says(&["no log set came since"]);
    moved.assert_equal();
}

#[test]
fn a_newer_differential_or_full_is_passed_over_and_commits_that_are_in_no_log_set_are_named() {
    let moved = Move::new(150);
    moved.log_set(1);
    moved.migrate("").done();
    // Nothing was committed between the log set and the full.
    moved.back_up("full");
    moved.log_set(2);
    moved.migrate("--plan").done().says(&["1 set with"]);
    moved.migrate("").done();
    moved.write(3);
    moved.back_up("differential");
    moved.migrate("").done().says(&["no log set came since", "is newer, but"]);
    moved.log_set(4);
    moved.migrate("").with_code(3).says(&["begin again with --replace"]);
    moved.write(5);
    moved.back_up("full");
    moved.log_set(6);
    moved.migrate("").with_code(3).says(&["begin again with --replace"]);
    // The log of the source has these commits still.
    moved.write(7);
    moved.cut_over("").done();
    moved.assert_equal();
    // The newest chain is restored as before.
    moved.world.run("restore --repo night --into sqlite:copy.db --integrity-check").done();
    assert_eq!(database::number(&moved.world.at("copy.db"), "SELECT max(n) FROM ledger"), 7);
    // Only a differential is in the target: the log behind it follows.
    moved.write(8);
    moved.back_up("full");
    moved.migrate("--replace").done();
    moved.write(9);
    moved.back_up("differential");
    moved.log_set(10);
    moved.migrate("").done();
    moved.cut_over("").done();
    moved.assert_equal();
}

#[test]
fn a_missing_set_another_database_and_wrong_requests_are_refused_and_change_nothing() {
    let moved = Move::new(150);
    moved.migrate("").done();
    let known = moved.families();
    moved.log_set(1);
    let first: Vec<_> = moved.families().into_iter().filter(|name| !known.contains(name)).collect();
    moved.log_set(2);
    let (here, away) = (moved.world.at("a").join(&first[0]), moved.world.at("away"));
    fs::rename(&here, &away).unwrap();
    let before = (moved.world.read("new.db"), fs::read(moved.working().unwrap()).unwrap());
    moved.migrate("").with_code(3).says(&["is incomplete", "begin again with --replace"]);
    moved.migrate("--cut-over").with_code(3);
    assert_eq!((moved.world.read("new.db"), fs::read(moved.working().unwrap()).unwrap()), before);
    moved.write(3);
    fs::rename(&away, &here).unwrap();

    // Another database in the same repository.
    database::sql(&moved.world.at("other.db"), "PRAGMA journal_mode = WAL; CREATE TABLE t (a)");
    moved.world.run("backup sqlite:other.db --repo night").done();
    moved.migrate("--database other.db").refused(1, "new.db", "another database");
    let line = format!("migrate sqlite:other.db {LINE} --cut-over");
    moved.world.run(&line).refused(1, "new.db", "another database");
    moved.world.run("migrate --repo night --into sqlite:second.db").refused(1, "--repo night", "several databases");
    moved.world.run("migrate --repo night --database other.db --into sqlite:second.db").done();
    moved.migrate("").done();

    let refused = |line: &str, thing: &str, why: &str| drop(moved.world.run(line).refused(2, thing, why));
    refused(&format!("migrate sqlite:app.db {LINE}"), "sqlite:app.db", "--cut-over only");
    refused(&format!("migrate {LINE} --into-password-file x"), "--into-password-file", "the target is a file");
    refused("migrate --repo night --into dir:x", "--into dir:x", "into an SQLite database");
    refused(&format!("migrate mysql://root@h {LINE} --cut-over"), "mysql://root@h", "do not go into");
    refused("migrate sqlite:app.db --into sqlite:x.db", "--into", "into a MySQL or MariaDB server");
    // A source without a log.
    moved.app.execute_batch("PRAGMA journal_mode = DELETE").unwrap();
    moved.cut_over("").refused(1, "app.db", "not in WAL mode");
    moved.write(4);
}

#[test]
fn an_error_of_the_cut_over_lets_the_writers_in_again() {
    let moved = Move::new(400);
    moved.log_set(1);
    moved.migrate("").done();
    let writer = Connection::open(moved.world.at("app.db")).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    moved.cut_over("--lock-timeout 1").refused(1, "app.db", "writers");
    writer.execute_batch("ROLLBACK").unwrap();
    drop(writer);
    // Somebody has changed a row of the unfinished target: its length is as before.
    let working = moved.working().unwrap();
    let mut bytes = fs::read(&working).unwrap();
    let row = b"in no index";
    let at = bytes.windows(row.len()).position(|found| found == row).unwrap();
    bytes[at] = b'I';
    fs::write(&working, &bytes).unwrap();
    let failed = moved.cut_over("").refused(1, "table plain", "digest");
    failed.says(&["applications can write to it again", "the same command continues"]);
    moved.write(2);
    assert!(moved.working().is_some());
    moved.migrate("--replace").done();
    moved.cut_over("").done();
    moved.assert_equal();
}

#[test]
fn every_commit_before_the_cut_over_is_in_the_target_and_none_behind_it() {
    let moved = Move::new(2_000);
    moved.migrate("").done();
    let (last, path, media) = (AtomicI64::new(0), moved.world.at("app.db"), moved.world.at("a"));
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            let writer = Connection::open(&path).unwrap();
            // Only the cut-over keeps it out.
            writer.busy_timeout(Duration::ZERO).unwrap();
            let families = || {
                let names = fs::read_dir(&media).unwrap().map(|entry| entry.unwrap().file_name());
                names.filter(|name| name.to_string_lossy().ends_with(".bore")).count()
            };
            let before = families();
            for n in 1.. {
                // Behind the first log set, it empties the log whenever it may.
                let pages = if families() > before { 5 } else { 0 };
                writer.execute_batch(&format!("PRAGMA wal_autocheckpoint = {pages}")).unwrap();
                if writer.execute("INSERT INTO ledger VALUES (?1)", [n]).is_err() {
                    return;
                }
                last.store(n, Ordering::SeqCst);
            }
        });
        wait_until("the writer writes", || last.load(Ordering::SeqCst) > 50);
        moved.cut_over("")
    });
    ended.done();
    let number = last.load(Ordering::SeqCst);
    assert_eq!(database::number(&moved.world.at("new.db"), "SELECT max(n) FROM ledger"), number);
    assert_eq!(database::number(&moved.world.at("new.db"), "SELECT count(*) FROM ledger"), number);
}

#[test]
fn killed_at_any_moment_nothing_is_lost_and_the_source_can_be_written_to() {
    let moved = Move::new(8_000);
    let mut random = fastrand::Rng::with_seed(25);
    let (mut killed, mut n) = (0, 0);
    for round in 0..5 {
        let mut warned = false;
        for step in ["", "", "--cut-over"] {
            n += 1;
            moved.log_set(n);
            n += 1;
            moved.write(n);
            let source = if step.is_empty() { "" } else { "sqlite:app.db" };
            let line = format!("migrate {source} {LINE} {step}");
            let running = moved.world.start(&line);
            std::thread::sleep(Duration::from_millis(random.u64(10..250)));
            running.signal("KILL");
            let done = running.wait().code == 0;
            killed += usize::from(!done);
            n += 1;
            moved.write(n);
            let resume = if step.is_empty() { "--resume" } else { "" };
            let again = moved.world.run(&format!("{line} {resume}"));
            // Killed behind its last step.
            let is_there = again.err.contains("exists already");
            assert!([0, 4].contains(&again.code) || is_there, "round {round}, {step}: {again}");
            warned |= again.err.contains("is the leftover of a killed restore: remove it");
        }
        let least = database::number(&moved.world.at("new.db"), "SELECT max(n) FROM ledger");
        assert!(least >= n - 1, "{least} of {n}");
        assert_eq!(database::number(&moved.world.at("new.db"), "SELECT count(*) FROM ledger"), least);
        // Of a run that was killed between its two last steps.
        if let Some(left) = moved.working() {
            assert!(warned, "{}", left.display());
            fs::remove_file(left).unwrap();
        }
        moved.remove_target();
    }
    assert!(killed > 4, "{killed} killed");
}

#[test]
fn a_cut_over_that_is_killed_while_writers_wait_ends_with_its_lock() {
    let moved = Move::new(20_000);
    moved.migrate("").done();
    let writer = Connection::open(moved.world.at("app.db")).unwrap();
    let is_locked = || writer.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err();
    let running = moved.world.start(&format!("migrate sqlite:app.db {LINE} --cut-over"));
    running.says("writers of the source are kept out");
    running.stop();
    assert!(is_locked());
    running.signal("KILL");
    running.wait();
    assert!(!is_locked());
    moved.write(1);
    moved.cut_over("").done();
    moved.assert_equal();
}

#[test]
fn encrypted_sets_move_with_their_key() {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    world.run("key new --no-recovery k.key").done();
    world.write(
        "fullbore.toml",
        b"[repository.night]\nto = [\"a/\"]\nencrypt-to = [\"k.key.pub\"]\nkey = \"k.key\"\nhide-names = true\n",
    );
    let moved = Move::within(world);
    moved.log_set(1);
    moved.migrate("").done();
    moved.log_set(2);
    moved.migrate("").done();
    moved.write(3);
    moved.cut_over("").done();
    moved.assert_equal();
}
