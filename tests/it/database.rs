//! Real databases: made, changed and compared through SQLite.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// What a database is like.
#[derive(Clone, Copy)]
pub struct Shape {
    pub page_size: u32,
    /// wal, delete, truncate …
    pub journal: &'static str,
    /// none, full, incremental.
    pub auto_vacuum: &'static str,
    /// A row has about 400 bytes, with its indexes.
    pub rows: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { page_size: 4096, journal: "wal", auto_vacuum: "none", rows: 3000 }
    }
}

/// Makes a database with text, random bytes, an index, a table without row ids, full-text search and free pages.
pub fn make(path: &Path, shape: Shape) {
    let Shape { page_size, journal, auto_vacuum, rows } = shape;
    let database = Connection::open(path).unwrap();
    let batch = format!(
        "PRAGMA page_size = {page_size}; PRAGMA auto_vacuum = {auto_vacuum}; PRAGMA journal_mode = {journal};
         PRAGMA synchronous = OFF; BEGIN;
         CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, blob BLOB);
         CREATE INDEX item_name ON item (name);
         CREATE TABLE pair (k TEXT PRIMARY KEY, v INTEGER) WITHOUT ROWID;
         CREATE VIRTUAL TABLE words USING fts5 (body);
         CREATE TABLE gone (id INTEGER PRIMARY KEY, blob BLOB);
         WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {rows})
         INSERT INTO item SELECT x, 'item number ' || x || ' of a table of items', randomblob(x % 300) FROM n;
         INSERT INTO pair SELECT name, id FROM item WHERE id % 3 = 0;
         INSERT INTO words SELECT name FROM item WHERE id % 9 = 0;
         INSERT INTO gone SELECT id, randomblob(900) FROM item WHERE id % 8 = 0;
         COMMIT; DELETE FROM gone WHERE id % 5 <> 0;"
    );
    database.execute_batch(&batch).unwrap();
}

/// Runs SQL on a database.
#[track_caller]
pub fn sql(path: &Path, batch: &str) {
    let database = Connection::open(path).unwrap();
    database.busy_timeout(std::time::Duration::from_secs(120)).unwrap();
    database.execute_batch(batch).unwrap();
}

/// One number that a query gives.
#[track_caller]
pub fn number(path: &Path, query: &str) -> i64 {
    Connection::open(path).unwrap().query_row(query, [], |row| row.get(0)).unwrap()
}

/// Every table: its name, how many rows it has, a digest of all of them in order. The database has to be sound.
#[track_caller]
pub fn contents(path: &Path) -> Vec<(String, u64, u64)> {
    let database = Connection::open(path).unwrap();
    let sound: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok", "{}", path.display());
    let query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY 1";
    let mut names = database.prepare(query).unwrap();
    let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    names.into_iter().map(|name| table(&database, name)).collect()
}

fn table(database: &Connection, name: String) -> (String, u64, u64) {
    let mut select = database.prepare(&format!("SELECT * FROM \"{name}\" NOT INDEXED ORDER BY 1, 2")).unwrap();
    let columns = select.column_count();
    let (mut count, mut hasher) = (0, DefaultHasher::new());
    let mut rows = select.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        count += 1;
        for column in 0..columns {
            match row.get_ref(column).unwrap() {
                ValueRef::Null => hasher.write_u8(0),
                ValueRef::Integer(number) => hasher.write_i64(number),
                ValueRef::Real(number) => hasher.write_u64(number.to_bits()),
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                    hasher.write_usize(bytes.len());
                    hasher.write(bytes);
                }
            }
        }
    }
    (name, count, hasher.finish())
}

/// The copy is the file of the source byte for byte, but for free pages, which are zeros in it. Nobody has the source open.
#[track_caller]
pub fn assert_same_file(source: &Path, copy: &Path) {
    let free = number(source, "PRAGMA freelist_count");
    let page_size = number(source, "PRAGMA page_size") as usize;
    assert!(!source.with_extension("db-wal").exists(), "the log of the source was not checkpointed");
    let (source, copied) = (fs::read(source).unwrap(), fs::read(copy).unwrap());
    assert_eq!(source.len(), copied.len());
    let pages = source.chunks(page_size).zip(copied.chunks(page_size)).enumerate();
    let mut differ = 0;
    for (number, _) in pages.clone().filter(|(_, (before, after))| before != after) {
        differ += 1;
        let zero = copied[number * page_size..][..page_size].iter().all(|&byte| byte == 0);
        assert!(zero, "page {} of {} is not what it was", number + 1, copy.display());
    }
    assert!(differ <= free, "{differ} pages are zeros and {free} were free in {}", copy.display());
}

/// What makes two states of a database different.
pub fn change(path: &Path, round: u32) {
    sql(
        path,
        &format!(
            "BEGIN; UPDATE item SET name = 'round {round} ' || id WHERE id % 61 = {round};
             INSERT INTO item SELECT NULL, 'new in round {round}', randomblob(700) FROM item LIMIT 90;
             DELETE FROM item WHERE id BETWEEN {round} * 100 AND {round} * 100 + 80; COMMIT"
        ),
    );
}
