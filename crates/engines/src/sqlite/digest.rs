//! The content digest: a proof that two databases hold the same rows and the same schema, independent of pages.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, ffi};
use serde::{Deserialize, Serialize};

use super::connection::{Patience, QuietConnection, explain};
use super::probe::locate;

/// After so many rows, it looks whether the job was stopped.
const LOOK_EVERY: u64 = 256;

/// The digest of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDigest {
    /// Rows.
    pub rows: u64,
    /// BLAKE3 over all rows in the order of their keys, in hexadecimal.
    pub hash: String,
}

/// The digest of a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// By table name: ordinary tables, WITHOUT ROWID tables, the shadow tables of virtual tables (full-text search)
    /// and SQLite's own (`sqlite_sequence`, `sqlite_stat1`).
    pub tables: BTreeMap<String, TableDigest>,
    /// BLAKE3 over the text of the schema, sorted by type and name.
    pub schema: String,
    /// BLAKE3 over all of the above.
    pub total: String,
}

/// The digest of the database at `path`, in one read transaction. Waits up to 10 seconds for a lock.
pub fn content_digest(path: &Path) -> Result<Digest> {
    let path = locate(path)?;
    let connection = QuietConnection::open(&path)?;
    connection.begin(&path, &Patience::new(Duration::from_secs(10), None))?;
    content_digest_of(&connection, &path)
}

/// The digest of what `connection` sees. It has to be inside a transaction for a consistent digest. `path` is for
/// errors.
pub fn content_digest_of(connection: &Connection, path: &Path) -> Result<Digest> {
    digest_until(connection, path, None)
}

/// The same, until the job is stopped.
pub(super) fn digest_until(connection: &Connection, path: &Path, halt: Option<&Halt>) -> Result<Digest> {
    let look = |_| if halt.is_some_and(Halt::is_stopped) { Err(stopped()) } else { Ok(()) };
    digest(connection, &look).map_err(|error| match halt.map(Halt::check) {
        Some(Err(stopped)) => stopped,
        _ => explain(path, error),
    })
}

/// Reads rows for at most this time: their bytes, and whether they are all.
pub(super) fn read_for(
    connection: &Connection,
    path: &Path,
    most: Duration,
    halt: Option<&Halt>,
) -> Result<(u64, bool)> {
    let (begun, bytes) = (Instant::now(), Cell::new(0_u64));
    let look = |more| {
        bytes.set(bytes.get() + more);
        if begun.elapsed() >= most || halt.is_some_and(Halt::is_stopped) { Err(stopped()) } else { Ok(()) }
    };
    let read = digest(connection, &look);
    halt.map_or(Ok(()), Halt::check)?;
    match read {
        Ok(_) => Ok((bytes.get(), true)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => Ok((bytes.get(), false)),
        Err(error) => Err(explain(path, error)),
    }
}

fn stopped() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_INTERRUPT), None)
}

/// `look` gets the bytes that were read since its last call.
fn digest(connection: &Connection, look: &dyn Fn(u64) -> rusqlite::Result<()>) -> rusqlite::Result<Digest> {
    let schema = schema_hash(connection)?;
    let mut tables = BTreeMap::new();
    let mut total = blake3::Hasher::new();
    total.update(schema.as_bytes());
    for table in stored_tables(connection)? {
        let digest = table_digest(connection, &table, look)?;
        field(&mut total, b'T', table.name.as_bytes());
        field(&mut total, b'H', digest.hash.as_bytes());
        tables.insert(table.name, digest);
    }
    Ok(Digest { tables, schema, total: total.finalize().to_hex().to_string() })
}

struct Table {
    name: String,
    has_rowid: bool,
}

/// Every table with its own rows, sorted by name: a virtual table shows the rows of its shadow tables.
fn stored_tables(connection: &Connection) -> rusqlite::Result<Vec<Table>> {
    let mut list = connection.prepare(
        "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'shadow') \
         AND name NOT IN ('sqlite_schema', 'sqlite_master') ORDER BY name",
    )?;
    let tables = list.query_map([], |row| Ok(Table { name: row.get(0)?, has_rowid: row.get::<_, i64>(1)? == 0 }))?;
    tables.collect()
}

fn schema_hash(connection: &Connection) -> rusqlite::Result<String> {
    let mut hasher = blake3::Hasher::new();
    // Not the root page: VACUUM moves it without changing any content.
    let mut rows = connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        for column in 0..4 {
            value(&mut hasher, row.get_ref(column)?);
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Rows come in the order of the table's own tree: by rowid, or by primary key in a WITHOUT ROWID table. NOT INDEXED
/// holds the planner to it, where ORDER BY could ask for a collation that only the application has.
fn table_digest(
    connection: &Connection,
    table: &Table,
    look: &dyn Fn(u64) -> rusqlite::Result<()>,
) -> rusqlite::Result<TableDigest> {
    let columns = stored_columns(connection, &table.name)?;
    let mut names: Vec<String> = columns.iter().map(|name| quote(name)).collect();
    if table.has_rowid
        && let Some(alias) = ["rowid", "_rowid_", "oid"]
            .iter()
            .find(|alias| !columns.iter().any(|name| name.eq_ignore_ascii_case(alias)))
    {
        names.push((*alias).to_owned());
    }
    let mut select =
        connection.prepare(&format!("SELECT {} FROM main.{} NOT INDEXED", names.join(", "), quote(&table.name)))?;
    let mut hasher = blake3::Hasher::new();
    let (mut count, mut seen) = (0, 0);
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        for column in 0..names.len() {
            value(&mut hasher, row.get_ref(column)?);
        }
        count += 1;
        if count % LOOK_EVERY == 0 {
            look(hasher.count() - seen)?;
            seen = hasher.count();
        }
    }
    look(hasher.count() - seen)?;
    Ok(TableDigest { rows: count, hash: hasher.finalize().to_hex().to_string() })
}

/// The columns whose values are on disk: virtual generated ones may call functions that only the application has.
fn stored_columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut list =
        connection.prepare("SELECT name FROM pragma_table_xinfo(?1, 'main') WHERE hidden IN (0, 3) ORDER BY cid")?;
    let names = list.query_map([table], |row| row.get(0))?;
    names.collect()
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Type, length and bytes, so that no two different rows look alike.
fn value(hasher: &mut blake3::Hasher, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => field(hasher, b'0', b""),
        ValueRef::Integer(number) => field(hasher, b'i', &number.to_le_bytes()),
        ValueRef::Real(number) => field(hasher, b'r', &number.to_bits().to_le_bytes()),
        ValueRef::Text(text) => field(hasher, b't', text),
        ValueRef::Blob(blob) => field(hasher, b'b', blob),
    }
}

fn field(hasher: &mut blake3::Hasher, kind: u8, bytes: &[u8]) {
    hasher.update(&[kind]);
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;

    /// The digest of a database that these statements make.
    pub fn of(sql: &str) -> Digest {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(sql).unwrap();
        digest(&connection, &|_| Ok(())).unwrap()
    }

    const TABLES: &str = "CREATE TABLE a(rowid TEXT, x); CREATE TABLE \"b\"\"c\"(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
        CREATE VIRTUAL TABLE f USING fts5(body); CREATE INDEX ax ON a(x);";

    #[test]
    fn the_order_of_insertion_and_a_vacuum_do_not_matter_but_every_value_does() {
        let fill =
            "INSERT INTO \"b\"\"c\" VALUES ('x', 1), ('y', 2.0); INSERT INTO a VALUES ('r', NULL), ('s', x'00');";
        let turned =
            "INSERT INTO \"b\"\"c\" VALUES ('y', 2.0), ('x', 1); INSERT INTO a VALUES ('r', NULL), ('s', x'00');";
        let digest = of(&format!("{TABLES}{fill}"));
        assert_eq!(digest, of(&format!("{TABLES}{turned} VACUUM;")));
        assert_eq!(digest.tables["b\"c"].rows, 2);
        assert!(digest.tables.contains_key("f_data") && !digest.tables.contains_key("f"));
        for change in [
            "UPDATE a SET x = '' WHERE x IS NULL",
            "UPDATE a SET _rowid_ = 9 WHERE x IS NULL",
            "INSERT INTO f VALUES ('w')",
            "DROP INDEX ax",
        ] {
            assert_ne!(digest.total, of(&format!("{TABLES}{fill}{change}")).total, "{change}");
        }
    }
}
