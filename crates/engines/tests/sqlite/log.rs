//! SQLite passes the suite of engines with log backups.

use std::path::Path;

use fullbore_engines::{LogEngine, Options};
use rusqlite::{Connection, OpenFlags};

use crate::child::SPRINT;
use crate::copy::{Live, copy};
use crate::log_engine::{LogEngineUnderTest, Stored, full, log_engine_conforms};

/// Each commit changes all of it.
const CONTENT: &str = "SELECT count(*) || ':' || max(id) || ':' || (SELECT k FROM t ORDER BY id DESC LIMIT 1) FROM t";

/// A live database.
pub struct Sqlite(pub Live);

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

/// With every frame in the database file, a read transaction does not hold the log.
#[test]
fn a_log_set_that_does_not_hold_the_log_is_whole_when_a_writer_restarts_the_log() {
    let mut live = Live::new("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0");
    live.fill(200, 2000);
    let mut test = Sqlite(live);
    let (copy, stands) = full(&mut test);
    test.commit();
    test.0.sql("UPDATE t SET b = randomblob(3000); PRAGMA wal_checkpoint(FULL)");
    let expected = test.content();
    let before = test.0.salts();
    let (_, session) = test.engine().open(&test.url(), std::slice::from_ref(&stands), &Options::default()).unwrap();
    let session = session.unwrap();
    test.0.sql("UPDATE t SET b = randomblob(2900)");
    assert_ne!(test.0.salts(), before, "the log was restarted: the case is real");
    Stored::read(test.engine(), &*session).apply(test.engine(), &copy, &stands, None).unwrap();
    assert_eq!(test.content_of(&copy), expected);
}

/// More frames than are copied into memory: the set fails, although its last frame is in its place.
#[test]
fn a_log_set_whose_first_frames_a_writer_overwrites_is_an_error() {
    let mut test = Sqlite(Live::new("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0"));
    let (_, stands) = full(&mut test);
    test.0.fill(8, 10);
    test.0.sql("UPDATE t SET b = randomblob(9000000); PRAGMA wal_checkpoint(FULL)");
    let (_, session) = test.engine().open(&test.url(), &[stands], &Options::default()).unwrap();
    let session = session.unwrap();
    session.position().unwrap();
    test.commit();
    let error = session.position().unwrap_err().to_string();
    assert!(error.contains("a writer restarted it"), "{error}");
}

#[test]
fn a_log_that_is_restarted_while_it_is_read_is_never_called_damaged() {
    let mut live = Live::new("PRAGMA journal_mode = WAL");
    live.fill(300, 2000);
    let mut test = Sqlite(live);
    let (_, mut end) = full(&mut test);
    test.0.child.ask(&format!("storm {SPRINT} {}", test.0.path.display())).unwrap();
    let mut refused = 0;
    for _ in 0..80 {
        match test.engine().open(&test.url(), std::slice::from_ref(&end), &Options::default()) {
            Ok((_, session)) => end = session.map_or(end, |session| session.end().unwrap()),
            Err(error) => {
                let error = error.to_string();
                assert!(
                    error.contains("are lost or cannot be proved") || error.contains("restarted the log"),
                    "{error}"
                );
                refused += 1;
                end = test.engine().end(&test.full(&test.0.copy_path())).unwrap();
            }
        }
    }
    test.0.child.ask("calm").unwrap();
    assert!(refused > 0, "no log was restarted: the case is not real");
}
