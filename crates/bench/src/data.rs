//! Data sets: databases that a matrix describes by their size, made once and kept in the work directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_core::{Error, Result};
use fullbore_engines::GivenOptions;
use fullbore_engines::engine::{EngineDefaults, resolve_options};
use rusqlite::{Connection, params};

use super::matrix::DataFrom;

/// Bytes of a row, about. It is long enough that rows are most of the file, and short enough that pages hold mixed
/// data.
const ROW: usize = 1500;
/// Rows that are inserted between two looks at the size.
const BATCH: i64 = 64;
/// Accounts for a load to work on.
pub const ACCOUNTS: i64 = 1000;
/// One of this many rows is changed before a differential.
const CHANGED_EVERY: i64 = 20;

const SCHEMA: &str = "
    PRAGMA page_size = 4096; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; BEGIN;
    CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, note TEXT NOT NULL);
    CREATE TABLE document (id INTEGER PRIMARY KEY, title TEXT NOT NULL, body TEXT NOT NULL, noise BLOB NOT NULL);
    CREATE INDEX document_title ON document (title);";

const WORDS: [&str; 16] = [
    "invoice",
    "customer",
    "delivery",
    "warehouse",
    "payment",
    "returned",
    "contract",
    "monthly",
    "address",
    "quantity",
    "discount",
    "shipment",
    "reference",
    "approved",
    "pending",
    "total",
];

/// The engine of the data sets. The databases that are made here are files of this engine.
const ENGINE: &str = "sqlite";

/// The source that a database made here is.
pub fn source_of(path: &Path) -> String {
    format!("{ENGINE}:{}", path.display())
}

/// The database file that a source names; `None` for a server.
pub fn file_of(source: &str) -> Option<PathBuf> {
    let (plain, _) = resolve_options(source, &GivenOptions::default(), &EngineDefaults::default()).ok()?;
    plain.identity().files.first().cloned()
}

/// The path of a data set: its name has all parameters.
pub fn path_of(work: &Path, from: &DataFrom) -> Option<PathBuf> {
    match from {
        DataFrom::Source(_) => None,
        DataFrom::Made { bytes, random, seed, .. } => {
            Some(work.join("data").join(format!("{bytes}-{random}-{seed}.db")))
        }
    }
}

/// Makes a data set, unless it exists.
///
/// # Errors
/// It cannot be written; then no part of it stays.
pub fn make(path: &Path, from: &DataFrom) -> Result<()> {
    let DataFrom::Made { bytes, random, seed, .. } = from else { return Ok(()) };
    if path.exists() {
        return Ok(());
    }
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new); // From a killed run.
    let made = fill(&new, *bytes, *random, *seed).map_err(|e| failed("make the data set", path, &e));
    let made = made.and_then(|()| {
        let synced = fs::File::open(&new).and_then(|file| file.sync_all()).and_then(|()| fs::rename(&new, path));
        synced.map_err(|e| Error::io("make the data set", path.display().to_string(), e))
    });
    if made.is_err() {
        let _ = fs::remove_file(&new); // The first error is the one to show.
    }
    made
}

fn failed(action: &str, path: &Path, error: &rusqlite::Error) -> Error {
    Error::io(action, path.display().to_string(), std::io::Error::other(error.to_string()))
}

fn fill(path: &Path, bytes: u64, random: f64, seed: u64) -> rusqlite::Result<()> {
    let database = Connection::open(path)?;
    database.execute_batch(SCHEMA)?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let pages = bytes / 4096;
    let mut account = database.prepare("INSERT INTO account VALUES (?1, 1000, ?2)")?;
    for id in 0..ACCOUNTS {
        account.execute(params![id, WORDS[rng.usize(..WORDS.len())]])?;
    }
    drop(account);
    let noise_bytes = (ROW as f64 * random) as usize;
    let mut noise = vec![0; noise_bytes];
    let mut body = String::with_capacity(ROW + 16);
    let mut document = database.prepare("INSERT INTO document VALUES (NULL, ?1, ?2, ?3)")?;
    let mut count = database.prepare("PRAGMA page_count")?;
    while count.query_row([], |row| row.get::<_, i64>(0))?.cast_unsigned() < pages {
        for _ in 0..BATCH {
            rng.fill(&mut noise);
            body.clear();
            while body.len() < ROW - noise_bytes {
                body.push_str(WORDS[rng.usize(..WORDS.len())]);
                body.push(' ');
            }
            let title = format!("{} {}", WORDS[rng.usize(..WORDS.len())], rng.u32(..));
            document.execute(params![title, body, noise])?;
        }
    }
    drop((document, count));
    database.execute_batch("COMMIT")?;
    database.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0))?;
    database.close().map_err(|(_, error)| error)
}

/// Changes every 20th row, as the day between a full and its differential does.
///
/// # Errors
/// SQLite refuses.
pub fn change(path: &Path) -> Result<()> {
    let changed = || -> rusqlite::Result<()> {
        let database = Connection::open(path)?;
        database.busy_timeout(Duration::from_secs(20))?;
        database.execute("UPDATE document SET noise = randomblob(length(noise)) WHERE id % ?1 = 0", [CHANGED_EVERY])?;
        database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(())
    };
    changed().map_err(|e| failed("change the data set", path, &e))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn made(folder: &Path, bytes: u64, random: f64, seed: u64) -> PathBuf {
        let from = DataFrom::Made { full_bytes: bytes, bytes, random, seed };
        let path = path_of(folder, &from).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        make(&path, &from).unwrap();
        path
    }

    #[test]
    fn a_data_set_has_its_size_and_is_the_same_for_its_seed() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = made(one.path(), 2 << 20, 0.4, 1);
        let length = fs::metadata(&first).unwrap().len();
        assert!((2 << 20..3 << 20).contains(&length), "{length}");
        assert_eq!(fs::read(&first).unwrap(), fs::read(made(two.path(), 2 << 20, 0.4, 1)).unwrap());
        assert_ne!(fs::read(&first).unwrap(), fs::read(made(two.path(), 2 << 20, 0.4, 2)).unwrap());
    }

    #[test]
    fn a_set_that_is_there_is_not_made_again_and_a_change_is_small() {
        let folder = tempfile::tempdir().unwrap();
        let path = made(folder.path(), 1 << 20, 0.4, 1);
        let before = fs::read(&path).unwrap();
        change(&path).unwrap();
        let after = fs::read(&path).unwrap();
        assert_eq!(fs::read(made(folder.path(), 1 << 20, 0.4, 1)).unwrap(), after, "it stayed");
        let pages = before.chunks(4096).zip(after.chunks(4096)).filter(|(old, new)| old != new).count();
        assert!(pages > 0 && pages * 4096 < before.len() / 2, "{pages} pages");
    }
}
