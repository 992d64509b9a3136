//! The refusals of the engine, and their words.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use fullbore_engines::{Options, sqlite::Snapshot};

use crate::child::Child;
use crate::copy::Live;

#[track_caller]
fn refusal(path: &Path) -> String {
    let options = Options { lock_timeout: Duration::from_millis(200), ..Options::default() };
    Snapshot::open(path, &options).err().expect("must be refused").to_string()
}

#[track_caller]
fn assert_says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
}

/// A closed database.
fn closed(folder: &Path, sql: &str) -> std::path::PathBuf {
    let path = folder.join("closed.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    path
}

fn patch(path: &Path, offset: u64, bytes: &[u8]) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

#[test]
fn a_file_that_is_no_database_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    assert_says(&refusal(&path("missing.db")), &["missing.db", "No such file", "hint"]);
    assert_says(&refusal(folder.path()), &["directory"]);
    std::fs::write(path("empty.db"), b"").unwrap();
    assert_says(&refusal(&path("empty.db")), &["empty"]);
    std::fs::write(path("noise.db"), [0x5a; 9000]).unwrap();
    assert_says(&refusal(&path("noise.db")), &["not an SQLite database", "SQLCipher", "SEE"]);
    std::fs::write(path("short.db"), b"SQLite form").unwrap();
    assert_says(&refusal(&path("short.db")), &["not an SQLite database"]);
    let mut magic_only = b"SQLite format 3\0".to_vec();
    magic_only.resize(8192, 0xee);
    std::fs::write(path("magic.db"), magic_only).unwrap();
    assert_says(&refusal(&path("magic.db")), &["not an SQLite database", "SQLCipher"]);
    assert!(std::process::Command::new("mkfifo").arg(path("pipe.db")).status().unwrap().success());
    assert_says(&refusal(&path("pipe.db")), &["not a regular file"]);
    std::os::unix::fs::symlink(path("nowhere"), path("link.db")).unwrap();
    assert_says(&refusal(&path("link.db")), &["link.db", "No such file"]);
}

#[test]
fn headers_that_lie_or_come_from_the_future_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = closed(folder.path(), "CREATE TABLE t(x); INSERT INTO t VALUES (1)");
    let good = std::fs::read(&path).unwrap();
    patch(&path, 44, &5u32.to_be_bytes());
    assert_says(&refusal(&path), &["schema format", "newer fullbore"]);
    std::fs::write(&path, &good).unwrap();
    patch(&path, 19, &[3]);
    assert_says(&refusal(&path), &["closed.db", "hint"]);
    std::fs::write(&path, &good).unwrap();
    patch(&path, 28, &77u32.to_be_bytes());
    assert_says(&refusal(&path), &["malformed"]);
    std::fs::write(&path, &good[..4096]).unwrap();
    assert_says(&refusal(&path), &["malformed"]);
}

#[test]
fn a_database_that_this_process_has_open_is_refused() {
    let mut live = Live::new("PRAGMA journal_mode = wal");
    live.fill(10, 100);
    let first = live.snapshot();
    assert_says(&refusal(&live.path), &["this process has the database open already"]);
    drop(first);
    let own = rusqlite::Connection::open(&live.path).unwrap();
    own.execute_batch("SELECT count(*) FROM t").unwrap();
    assert_says(&refusal(&live.path), &["this process has the database open already"]);
    drop(own);
    drop(live.snapshot());
    live.sql("INSERT INTO w VALUES ('still', 'locked well')");
}

#[test]
fn a_lock_that_keeps_readers_out_is_refused_after_the_timeout() {
    let mut live = Live::new("PRAGMA journal_mode = delete");
    live.sql("BEGIN EXCLUSIVE");
    let since = std::time::Instant::now();
    assert_says(&refusal(&live.path), &["lock", "--lock-timeout"]);
    // An upper bound is not needed: the lock is held until COMMIT, so the timeout ended the wait.
    assert!(since.elapsed() >= Duration::from_millis(200));
    live.sql("COMMIT");
    drop(live.snapshot());
}

#[test]
fn waiting_for_a_lock_ends_when_the_job_is_stopped() {
    let mut live = Live::new("PRAGMA journal_mode = delete");
    live.sql("BEGIN EXCLUSIVE");
    let halt = fullbore_core::halt::Halt::new();
    let options = Options { lock_timeout: Duration::from_secs(600), halt: Some(halt.clone()), ..Options::default() };
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        halt.stop(fullbore_core::Error::Cancelled { by: "SIGINT" });
    });
    let since = std::time::Instant::now();
    assert!(matches!(Snapshot::open(&live.path, &options), Err(fullbore_core::Error::Halted)));
    assert!(since.elapsed() < Duration::from_secs(60));
    stopper.join().unwrap();
}

#[test]
fn a_wal_index_in_the_memory_of_one_process_is_refused() {
    let mut live = Live::new("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = wal");
    live.fill(10, 100);
    assert!(!live.path.with_extension("db-shm").exists(), "the case is real");
    assert_says(&refusal(&live.path), &["locking_mode=EXCLUSIVE"]);
}

#[test]
fn a_damaged_log_is_refused_and_not_taken_for_a_restarted_one() {
    let mut live = Live::new("PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0");
    live.fill(100, 3000);
    let log = live.path.with_extension("db-wal");
    patch(&log, 32 + 24 + 1000, b"damage");
    assert_says(&refusal(&live.path), &["live.db-wal", "frame 1: its checksum is wrong"]);
    assert!(std::process::Command::new("truncate").args(["-s", "100000"]).arg(&log).status().unwrap().success());
    assert_says(&refusal(&live.path), &["live.db-wal", "log"]);
}

/// The error about `path` for a user without rights.
fn refusal_of_others(folder: &Path, path: &Path) -> String {
    let mut child = Child::start_unprivileged(folder);
    child.ask(&format!("snapshot - {}", path.display())).unwrap_err()
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn files_that_may_not_be_read_or_written_are_refused_by_name() {
    let mut live = Live::new("PRAGMA journal_mode = wal");
    live.fill(10, 100);
    let (folder, path) = (live.folder.path().to_owned(), live.path.clone());
    mode(&folder, 0o755);
    mode(&path, 0o600);
    if rustix::process::geteuid().is_root() {
        assert_says(&refusal_of_others(&folder, &path), &["live.db", "Permission denied"]);
    }
    for extension in ["db", "db-wal", "db-shm"] {
        mode(&path.with_extension(extension), 0o444);
    }
    assert_says(&refusal_of_others(&folder, &path), &["live.db-", "WAL mode", "may not write"]);
    for extension in ["db-wal", "db-shm"] {
        mode(&path.with_extension(extension), 0o666);
    }
    let mut other = Child::start_unprivileged(&folder);
    other.ask(&format!("snapshot - {}", path.display())).unwrap();
    live.child.ask("close 0").unwrap();
    assert!(!path.with_extension("db-shm").exists());
    if rustix::process::geteuid().is_root() {
        let refused = other.ask(&format!("snapshot - {}", path.display())).unwrap_err();
        assert_says(&refused, &["create files in the directory", "WAL mode"]);
    }
}

#[test]
fn a_hot_journal_that_may_not_be_rolled_back_is_refused() {
    let mut live = Live::new("PRAGMA journal_mode = delete");
    live.fill(300, 4000);
    live.sql("PRAGMA cache_size = 5; PRAGMA synchronous = FULL; BEGIN; UPDATE t SET b = randomblob(3000)");
    let Live { folder, path, child } = live;
    child.kill();
    mode(folder.path(), 0o755);
    mode(&path, 0o444);
    mode(&path.with_extension("db-journal"), 0o444);
    assert_says(&refusal_of_others(folder.path(), &path), &["hot journal"]);
}

#[test]
fn a_second_name_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let path = closed(folder.path(), "CREATE TABLE t(x)");
    std::fs::hard_link(&path, folder.path().join("other.db")).unwrap();
    let snapshot = Snapshot::open(&path, &Options::default()).unwrap();
    assert_says(&fullbore_engines::Session::facts(&snapshot).warnings[0], &["2 names"]);
}
