//! SQLite passes the suite of engines with log backups.

use std::path::Path;

use fullbore_engines::{LogEngine, Options};
use rusqlite::{Connection, OpenFlags};

use crate::copy::{Live, copy};
use crate::log_engine::{LogEngineUnderTest, log_engine_conforms};

/// Each commit changes all of it.
const CONTENT: &str = "SELECT count(*) || ':' || max(id) || ':' || (SELECT k FROM t ORDER BY id DESC LIMIT 1) FROM t";

struct Sqlite(Live);

impl LogEngineUnderTest for Sqlite {
    fn engine(&self) -> &'static dyn LogEngine {
        fullbore_engines::log("sqlite").unwrap()
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.0.path.display())
    }

    fn commit(&mut self) {
        self.0.sql("INSERT INTO t(k) VALUES (hex(randomblob(20)))");
    }

    fn content(&mut self) -> String {
        self.0.sql(CONTENT)
    }

    fn content_of(&self, copy: &Path) -> String {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let copy = Connection::open_with_flags(format!("file:{}?immutable=1", copy.display()), flags).unwrap();
        copy.query_row(CONTENT, [], |row| Ok(format!("{:?}", row.get_ref(0)?))).unwrap()
    }

    fn full(&mut self, to: &Path) -> serde_json::Value {
        let session = fullbore_engines::open(&self.url(), &Options::default()).unwrap();
        copy(session.source(), to, 1, 1 << 20);
        session.position().unwrap()
    }

    fn lose_log(&mut self) {
        for _ in 0..2 {
            self.commit();
            self.0.sql("PRAGMA wal_checkpoint(TRUNCATE)");
        }
        self.commit();
    }
}

#[test]
fn sqlite_conforms_as_an_engine_with_log_backups() {
    log_engine_conforms(|| {
        let mut live = Live::new("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0");
        live.fill(200, 2000);
        Sqlite(live)
    });
}
