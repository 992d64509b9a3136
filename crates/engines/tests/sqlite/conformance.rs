//! SQLite passes the suite that every engine has to pass.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_core::source::Source;
use fullbore_core::testkit::{EngineUnderTest, Streams, engine_conforms};
use fullbore_engines::sqlite::{Snapshot, content_digest};
use fullbore_engines::{Options, Session};

use crate::copy::{Live, assert_whole};

struct Sqlite {
    live: Mutex<Live>,
    /// In WAL mode writers continue while a session is open; in rollback mode they wait.
    wal: bool,
}

impl Sqlite {
    fn new(pragmas: &str, wal: bool) -> Self {
        let mut live = Live::new(pragmas);
        live.fill(400, 2000);
        live.sql("DELETE FROM t WHERE id % 3 = 0; DELETE FROM t WHERE id < 100");
        Self { live: Mutex::new(live), wal }
    }

    fn ask(&self, sql: &str) -> std::result::Result<String, String> {
        self.live.lock().unwrap().child.ask(&format!("sql 0 {sql}"))
    }

    /// The log's place in history: restarts of the log, then frames.
    fn place(position: &serde_json::Value) -> (u64, u64, u64) {
        let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
        let log = &position["log"];
        (number(&position["change_counter"]), number(&log["salt_1"]), number(&log["max_frame"]))
    }
}

impl EngineUnderTest for Sqlite {
    type Session = Snapshot;

    fn open(&self, halt: Option<Halt>) -> Result<Snapshot> {
        let path = self.live.lock().unwrap().path.clone();
        Snapshot::open(&path, &Options { halt, ..Options::default() })
    }

    fn source<'s>(&self, session: &'s Snapshot) -> &'s dyn Source {
        session
    }

    fn position(&self, session: &Snapshot) -> Result<serde_json::Value> {
        Session::position(session)
    }

    fn is_before(&self, earlier: &serde_json::Value, later: &serde_json::Value) -> bool {
        Self::place(earlier) < Self::place(later)
    }

    fn commit(&self) -> bool {
        let committed = self.ask("INSERT INTO t(k, b) VALUES ('new', randomblob(20000))");
        assert!(committed.is_ok() || !self.wal, "{committed:?}");
        committed.is_ok()
    }

    fn while_locked(&self, during: &mut dyn FnMut()) -> bool {
        if self.wal {
            return false; // A reader of a log never waits.
        }
        self.ask("BEGIN EXCLUSIVE").unwrap();
        during();
        self.ask("COMMIT").unwrap();
        true
    }

    fn is_released(&self) -> bool {
        if self.wal {
            return self.ask("PRAGMA wal_checkpoint(TRUNCATE)").is_ok_and(|busy| busy == "Integer(0)");
        }
        self.ask("BEGIN EXCLUSIVE").is_ok() && self.ask("COMMIT").is_ok()
    }

    fn assert_restores(&self, streams: &Streams) {
        let live = self.live.lock().unwrap();
        let [(stream, bytes)] = &streams[..] else { panic!("SQLite has one stream") };
        assert_eq!(stream.name, "live.db");
        let path = live.copy_path();
        File::create(&path).unwrap().write_all_at(bytes, 0).unwrap();
        assert_whole(&path, &content_digest(&live.path).unwrap());
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn sqlite_conforms_in_wal_mode() {
    engine_conforms(&Sqlite::new("PRAGMA journal_mode = wal", true));
}

#[test]
fn sqlite_conforms_in_rollback_mode() {
    engine_conforms(&Sqlite::new("PRAGMA journal_mode = delete", false));
}

#[test]
fn sqlite_conforms_with_small_and_with_large_pages() {
    for page_size in [512, 65536] {
        engine_conforms(&Sqlite::new(&format!("PRAGMA page_size = {page_size}; PRAGMA journal_mode = wal"), true));
    }
}
