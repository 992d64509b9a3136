//! Snapshots during writes, checkpoints and crashes.

use std::path::Path;
use std::time::Duration;

use fullbore_core::source::Source;
use fullbore_engines::engine::{GivenOptions, OptionValue};
use fullbore_engines::sqlite::engine::MAX_WAL_GROWTH;
use fullbore_engines::sqlite::{Snapshot, content_digest};
use fullbore_engines::{Options, Session};

use crate::child::SPRINT;
use crate::copy::{Live, assert_whole, copy, copy_slowly};

/// SQLite finds the copy sound, and it has the content of the snapshot's transaction, where that can be compared.
#[track_caller]
fn copy_and_check(live: &Live, snapshot: Snapshot, buffer_size: usize) -> bool {
    let expected = snapshot.digest().unwrap();
    copy(&snapshot, &live.copy_path(), 2, buffer_size);
    drop(snapshot);
    let found = content_digest(&live.copy_path()).unwrap();
    assert_whole(&live.copy_path(), expected.as_ref().unwrap_or(&found));
    expected.is_some()
}

#[test]
fn a_writer_that_never_rests_and_checkpoints_does_not_disturb_the_snapshot() {
    for seed in 0..6 {
        let page_size = [512, 4096, 1024, 65536, 8192, 2048][seed % 6];
        let mut live = Live::new(&format!(
            "PRAGMA page_size = {page_size}; PRAGMA auto_vacuum = incremental; PRAGMA journal_mode = wal"
        ));
        live.fill(400, 5000);
        live.child.ask(&format!("storm {seed} {}", live.path.display())).unwrap();
        let exact = (0..5).filter(|_| copy_and_check(&live, live.snapshot(), 128 << 10)).count();
        assert!(exact > 0, "no snapshot could be compared, seed {seed}");
        let commits: u64 = live.child.ask("calm").unwrap().parse().unwrap();
        assert!(commits > 50, "only {commits} commits");
    }
}

#[test]
fn a_commit_just_after_the_transaction_s_own_is_as_consistent() {
    for seed in 10..14 {
        let mut live = Live::new("PRAGMA auto_vacuum = incremental; PRAGMA journal_mode = wal");
        live.fill(400, 5000);
        live.child.ask(&format!("storm {seed} {}", live.path.display())).unwrap();
        for _ in 0..10 {
            let snapshot = Snapshot::open_amid_commits(&live.path, &Options::default()).unwrap();
            assert!(!copy_and_check(&live, snapshot, 128 << 10));
        }
        live.child.ask("calm").unwrap();
    }
}

/// The balance of a database in which every commit moves something between two tables, and changes the sum of none.
fn assert_balanced(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let sum = "SELECT (SELECT sum(x) FROM a) + (SELECT sum(v) FROM w)";
    assert_eq!(connection.query_row(sum, [], |row| row.get::<_, f64>(0)).unwrap(), 0.0);
}

#[test]
fn the_mark_is_a_commit_also_when_commits_come_every_few_microseconds() {
    let mut live = Live::new("PRAGMA journal_mode = wal");
    live.sql("INSERT INTO a(x) VALUES (0); INSERT INTO w VALUES ('x', 0)");
    live.child.ask(&format!("storm {SPRINT} {}", live.path.display())).unwrap();
    let mut exact = 0;
    for number in 0..300 {
        let options = Options::default();
        let open = if number % 3 == 0 { Snapshot::open_amid_commits } else { Snapshot::open };
        exact += u32::from(copy_and_check(&live, open(&live.path, &options).unwrap(), 1 << 20));
        assert_balanced(&live.copy_path());
    }
    let commits: u64 = live.child.ask("calm").unwrap().parse().unwrap();
    assert!(commits > 1000 && exact > 0, "{commits} commits, {exact} snapshots compared");
}

#[test]
fn a_busy_writer_in_rollback_mode_waits_and_the_snapshot_is_whole() {
    for seed in 0..3 {
        let mut live = Live::new(&format!("PRAGMA journal_mode = {}", ["delete", "truncate", "persist"][seed]));
        live.fill(400, 5000);
        live.child.ask(&format!("storm {seed} {}", live.path.display())).unwrap();
        for _ in 0..5 {
            let snapshot = live.snapshot();
            let expected = snapshot.digest().unwrap().unwrap();
            copy(&snapshot, &live.copy_path(), 2, 128 << 10);
            drop(snapshot);
            assert_whole(&live.copy_path(), &expected);
        }
        live.child.ask("calm").unwrap();
    }
}

/// A log that is wholly copied into the database: a reader that starts now takes slot 0.
fn wholly_copied() -> Live {
    let mut live = Live::new("PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0");
    live.fill(300, 4000);
    live.sql("PRAGMA wal_checkpoint(FULL)");
    live
}

#[test]
fn a_log_restarted_under_a_reader_in_slot_0_is_noticed() {
    for middle in [0, 5] {
        let mut live = wholly_copied();
        let snapshot = live.snapshot();
        let expected = snapshot.digest().unwrap().unwrap();
        assert!(snapshot.position().log.as_ref().unwrap().max_frame > 0);
        let before = live.salts();
        copy_slowly(&snapshot, &live.copy_path(), |number| {
            if number == middle {
                live.child.sql(0, "UPDATE t SET b = randomblob(3000); DELETE FROM w");
            }
        });
        assert_ne!(live.salts(), before, "the log was restarted: the case is real");
        drop(snapshot);
        assert_whole(&live.copy_path(), &expected);
    }
}

#[test]
fn a_log_truncated_under_a_reader_in_slot_0_is_noticed() {
    let mut live = wholly_copied();
    let snapshot = live.snapshot();
    let expected = snapshot.digest().unwrap().unwrap();
    copy_slowly(&snapshot, &live.copy_path(), |number| {
        if number == 3 {
            live.child.sql(0, "PRAGMA wal_checkpoint(TRUNCATE)");
            assert_eq!(live.path.with_extension("db-wal").metadata().unwrap().len(), 0);
        }
        if number == 6 {
            live.child.sql(0, "UPDATE t SET b = randomblob(3000)");
        }
    });
    drop(snapshot);
    assert_whole(&live.copy_path(), &expected);
}

#[test]
fn frames_behind_the_mark_and_checkpoints_up_to_it_change_nothing() {
    let mut live = Live::new("PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0");
    live.fill(300, 4000);
    let snapshot = live.snapshot();
    let expected = snapshot.digest().unwrap().unwrap();
    // Newer frames of the same pages, then a checkpoint: it skips exactly the pages whose newest frame is after the
    // mark.
    live.sql(
        "UPDATE t SET b = randomblob(2000) WHERE id % 2 = 0; DELETE FROM w WHERE k > 'key5'; PRAGMA \
         wal_checkpoint(PASSIVE)",
    );
    copy_slowly(&snapshot, &live.copy_path(), |number| {
        if number % 2 == 0 {
            live.child.sql(0, "INSERT INTO t(b) VALUES (randomblob(20000)); PRAGMA wal_checkpoint(RESTART)");
        }
    });
    drop(snapshot);
    assert_whole(&live.copy_path(), &expected);
}

#[test]
fn a_log_of_which_half_is_copied_comes_out_whole() {
    let mut live = Live::new("PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0");
    live.fill(200, 4000);
    let path = live.path.clone();
    live.child.open(1, &path);
    live.child.sql(1, "BEGIN; SELECT count(*) FROM t"); // Holds the checkpoint back to here.
    live.sql("UPDATE t SET b = randomblob(3000) WHERE id % 3 = 0");
    live.fill(100, 4000);
    live.sql("PRAGMA wal_checkpoint(PASSIVE)");
    let snapshot = live.snapshot();
    let expected = snapshot.digest().unwrap().unwrap();
    live.child.sql(1, "COMMIT");
    live.sql("PRAGMA wal_checkpoint(PASSIVE); DELETE FROM t WHERE id > 50; PRAGMA wal_checkpoint(PASSIVE)");
    copy(&snapshot, &live.copy_path(), 2, 64 << 10);
    drop(snapshot);
    assert_whole(&live.copy_path(), &expected);
}

#[test]
fn a_vacuum_during_the_read_changes_nothing() {
    let mut live = Live::new("PRAGMA auto_vacuum = incremental; PRAGMA journal_mode = wal");
    live.fill(300, 4000);
    live.sql("DELETE FROM t WHERE id < 200");
    let snapshot = live.snapshot();
    let expected = snapshot.digest().unwrap().unwrap();
    copy_slowly(&snapshot, &live.copy_path(), |number| match number {
        2 => drop(live.child.sql(0, "PRAGMA incremental_vacuum(50); PRAGMA wal_checkpoint(PASSIVE)")),
        4 => drop(live.child.sql(0, "VACUUM; PRAGMA wal_checkpoint(PASSIVE)")),
        _ => {}
    });
    drop(snapshot);
    assert_whole(&live.copy_path(), &expected);
}

#[test]
fn in_rollback_mode_a_commit_waits_until_the_last_byte_is_read_and_no_longer() {
    let mut live = Live::new("PRAGMA journal_mode = delete");
    live.fill(300, 4000);
    live.sql("DELETE FROM t WHERE id < 100");
    let snapshot = live.snapshot();
    let expected = snapshot.digest().unwrap().unwrap();
    copy_slowly(&snapshot, &live.copy_path(), |number| {
        if number == 3 {
            assert!(live.child.ask("sql 0 DELETE FROM t").unwrap_err().contains("locked"));
            assert!(live.child.ask("sql 0 VACUUM").unwrap_err().contains("locked"));
        }
    });
    // The session is still open, as it is while the media are finished.
    live.sql("DELETE FROM t");
    let facts = snapshot.facts();
    assert!(facts.writers_blocked > Duration::from_millis(100), "{facts:?}");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(snapshot.facts().writers_blocked, facts.writers_blocked);
    snapshot.check().unwrap();
    assert!(snapshot.digest().unwrap_err().to_string().contains("has ended"));
    drop(snapshot);
    assert_whole(&live.copy_path(), &expected);
}

#[test]
fn a_hot_journal_left_by_a_killed_writer_is_rolled_back_first() {
    let mut live = Live::new("PRAGMA journal_mode = delete");
    live.fill(300, 4000);
    let expected = {
        let snapshot = live.snapshot();
        snapshot.digest().unwrap().unwrap()
    };
    // A cache of 5 pages spills changed pages into the database file before the commit.
    live.sql(
        "PRAGMA cache_size = 5; PRAGMA synchronous = FULL; BEGIN; UPDATE t SET b = randomblob(3000); DELETE FROM w",
    );
    let Live { folder, path, child } = live;
    child.kill();
    assert!(path.with_extension("db-journal").metadata().unwrap().len() > 10_000, "there is a hot journal");
    let snapshot = Snapshot::open(&path, &Options::default()).unwrap();
    assert_eq!(snapshot.digest().unwrap().unwrap(), expected);
    assert!(!path.with_extension("db-journal").exists());
    let to = folder.path().join("copy.db");
    copy(&snapshot, &to, 2, 64 << 10);
    drop(snapshot);
    assert_whole(&to, &expected);
}

#[test]
fn a_log_left_by_a_killed_writer_is_part_of_the_snapshot() {
    let mut live = Live::new("PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0");
    live.fill(300, 4000);
    let rows = live.sql("SELECT count(*) FROM t");
    live.sql("PRAGMA cache_size = 5; BEGIN; DELETE FROM t"); // Spilled into the log, never committed.
    let Live { folder, path, child } = live;
    child.kill();
    let files = ["db", "db-wal"].map(|extension| path.with_extension(extension));
    let before = files.each_ref().map(|file| std::fs::read(file).unwrap());
    let snapshot = Snapshot::open(&path, &Options::default()).unwrap();
    let expected = snapshot.digest().unwrap().unwrap();
    assert_eq!(format!("Integer({})", expected.tables["t"].rows), rows);
    let to = folder.path().join("copy.db");
    copy(&snapshot, &to, 2, 64 << 10);
    drop(snapshot);
    assert_whole(&to, &expected);
    assert!(files.map(|file| std::fs::read(file).unwrap()) == before, "nothing was checkpointed");
}

#[test]
fn a_closed_database_in_wal_mode_is_left_as_it_was() {
    let mut live = Live::new("PRAGMA journal_mode = wal");
    live.fill(100, 4000);
    live.child.ask("close 0").unwrap();
    let before = std::fs::read(&live.path).unwrap();
    let names = || std::fs::read_dir(live.folder.path()).unwrap().count();
    assert_eq!(names(), 1);
    let snapshot = live.snapshot();
    assert_eq!(names(), 3, "the log and its index are needed meanwhile");
    let expected = snapshot.digest().unwrap().unwrap();
    copy(&snapshot, &live.copy_path(), 2, 64 << 10);
    drop(snapshot);
    assert_eq!(names(), 2);
    assert!(std::fs::read(&live.path).unwrap() == before);
    assert_whole(&live.copy_path(), &expected);
}

#[test]
fn a_log_that_grows_past_the_limit_ends_the_backup_with_a_hint() {
    let mut live = Live::new("PRAGMA journal_mode = wal");
    live.fill(100, 4000);
    let options = Options {
        given: GivenOptions::default().with_value(&MAX_WAL_GROWTH, OptionValue::Bytes(1_000_000)),
        ..Options::default()
    };
    let snapshot = Snapshot::open(&live.path, &options).unwrap();
    live.sql("UPDATE t SET b = randomblob(4000)");
    snapshot.check().unwrap();
    live.sql("INSERT INTO t(b) VALUES (randomblob(3000000))");
    let error = snapshot.check().unwrap_err().to_string();
    assert!(error.contains("--max-wal-growth") && error.contains("live.db-wal"), "{error}");
}

#[test]
fn a_file_that_shrinks_under_us_is_an_error() {
    let mut live = Live::new("PRAGMA journal_mode = delete");
    live.fill(300, 4000);
    let snapshot = live.snapshot();
    let done = std::process::Command::new("truncate").args(["-s", "40960"]).arg(&live.path).status().unwrap();
    assert!(done.success());
    assert!(snapshot.check().unwrap_err().to_string().contains("40960"));
    let mut buffer = fullbore_core::io::Memory::new(1 << 20).unwrap();
    assert!(snapshot.reader(0, 1).unwrap().next(&mut buffer).unwrap_err().to_string().contains("ends at byte 40960"));
}

#[test]
fn a_write_past_the_locks_is_noticed_at_the_end() {
    let mut live = Live::new("PRAGMA journal_mode = delete");
    live.fill(30, 400);
    let snapshot = live.snapshot();
    let write = format!("printf X | dd of={} bs=1 seek=27 conv=notrunc status=none", live.path.display());
    assert!(std::process::Command::new("sh").args(["-c", &write]).status().unwrap().success());
    let mut buffer = fullbore_core::io::Memory::new(8 << 20).unwrap();
    assert!(
        snapshot.reader(0, 1).unwrap().next(&mut buffer).unwrap_err().to_string().contains("without SQLite's locks")
    );
}

/// A hot journal of `path` with the first bytes of `original` as page 2, which names `super_journal` as the
/// super-journal of its transaction.
fn hot_journal(original: &[u8], pages: u32, super_journal: &Path) -> Vec<u8> {
    const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    let numbers = [1, 7, pages, 512, 4096];
    let mut journal: Vec<u8> = MAGIC.into_iter().chain(numbers.into_iter().flat_map(u32::to_be_bytes)).collect();
    journal.resize(512, 0);
    let sum = (1..4096).rev().filter(|at| (4096 - at) % 200 == 0).fold(7_u32, |sum, at| sum + u32::from(original[at]));
    journal.extend(2_u32.to_be_bytes().iter().chain(&original[..4096]).copied().chain(sum.to_be_bytes()));
    let name = super_journal.as_os_str().as_encoded_bytes();
    let sum = name.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    let lock_page = (1_u32 << 30) / 4096 + 1;
    journal.extend(lock_page.to_be_bytes().iter().chain(name));
    journal.extend([name.len() as u32, sum].into_iter().flat_map(u32::to_be_bytes).chain(MAGIC));
    journal
}

#[test]
fn a_hot_journal_that_names_a_file_as_its_super_journal_removes_no_file() {
    let mut live = Live::new("PRAGMA page_size = 4096; PRAGMA journal_mode = delete");
    live.fill(50, 500);
    live.child.ask("close 0").unwrap();
    let good = std::fs::read(&live.path).unwrap();
    for victim in ["victim", "live.db-mj012345678", "live.db-mj01234567", "other.db"] {
        let victim = live.folder.path().join(victim);
        std::fs::write(&victim, b"what the user keeps here").unwrap();
        let mut torn = good.clone();
        torn[4096 + 3000..4096 + 4000].fill(0x77);
        std::fs::write(&live.path, &torn).unwrap();
        let journal = hot_journal(&good[4096..], (good.len() / 4096) as u32, &victim);
        std::fs::write(live.path.with_extension("db-journal"), journal).unwrap();
        drop(live.snapshot());
        assert_eq!(std::fs::read(&victim).unwrap(), b"what the user keeps here", "{}", victim.display());
        assert!(!live.path.with_extension("db-journal").exists(), "the journal was hot");
    }
}
