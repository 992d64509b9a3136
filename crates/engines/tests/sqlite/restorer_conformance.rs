//! SQLite passes the suite of engines that restore databases.

use std::fs;
use std::path::Path;

use fullbore_core::Result;
use fullbore_engines::engine::{Depth, Over};
use fullbore_engines::{FileEngine, Options, Restorer};
use serde_json::Value;

use crate::copy::{Live, copy};
use crate::log::Sqlite;
use crate::log_engine::{LogEngineUnderTest, apply_two_sets};
use crate::restorer::{Full, RestorerUnderTest, restorer_conforms};

/// The key of a row: only an index and the table have it.
const KEY: &str = "a key that is in the table and in its index";

fn engine() -> &'static dyn FileEngine {
    fullbore_engines::file("sqlite").unwrap()
}

impl RestorerUnderTest for Sqlite {
    fn prepare(&self, target: &Path, over: Over) -> Result<Box<dyn Restorer>> {
        engine().prepare(target, over)
    }

    fn replaces(&self) -> bool {
        true
    }

    fn commit(&mut self) {
        LogEngineUnderTest::commit(self);
    }

    fn content(&mut self) -> String {
        LogEngineUnderTest::content(self)
    }

    fn content_of(&self, restored: &Path) -> Option<String> {
        let is_whole = engine().check(restored, Depth::Full).is_ok_and(|problems| problems.is_empty());
        is_whole.then(|| LogEngineUnderTest::content_of(self, restored))
    }

    fn full(&mut self) -> Full {
        let (session, to) = (fullbore_engines::open(&self.url(), &Options::default()).unwrap(), self.0.copy_path());
        copy(session.source(), &to, 1, 1 << 20);
        let files = [(String::new(), fs::read(&to).unwrap())].into();
        Full { files, position: session.position().unwrap() }
    }

    fn check(&self, restored: &Path, depth: Depth) -> Vec<String> {
        engine().check(restored, depth).unwrap()
    }

    fn damage(&self, restored: &Path, found_by: Depth) -> bool {
        let mut bytes = fs::read(restored).unwrap();
        match found_by {
            Depth::Quick => bytes[4096..8192].fill(0xee),
            Depth::Full => {
                // In the table alone: the page of a table begins with 13.
                let is_in_table = |at: &usize| bytes[at / 4096 * 4096] == 13;
                let mut places = (0..bytes.len() - KEY.len()).filter(|&at| bytes[at..].starts_with(KEY.as_bytes()));
                let at = places.find(is_in_table).unwrap();
                bytes[at] = b'b';
            }
        }
        fs::write(restored, bytes).unwrap();
        true
    }

    fn apply_logs(&mut self, restored: &Path, position: &Value) -> Option<String> {
        Some(apply_two_sets(self, restored, position))
    }
}

#[test]
fn sqlite_conforms_as_an_engine_that_restores() {
    restorer_conforms(|| {
        let mut live = Live::new("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0");
        live.fill(200, 2000);
        live.sql(&format!("INSERT INTO t(k) VALUES ('{KEY}')"));
        Sqlite(live)
    });
}
