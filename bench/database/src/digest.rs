//! Row counts and content hashes, table by table, from one snapshot.

use std::fmt;
use std::path::Path;

use anyhow::Context;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

/// What one table holds, or all of them together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    pub table: String,
    pub rows: u64,
    pub hash: blake3::Hash,
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:<24} {:>12} rows  {}", self.table, self.rows, &self.hash.to_hex()[..32])
    }
}

/// Opens for reading; a WAL database needs its `-shm`, so the file is not opened as immutable.
pub fn open(path: &Path) -> anyhow::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database =
        Connection::open_with_flags(path, flags).with_context(|| format!("cannot open `{}`", path.display()))?;
    database.busy_timeout(std::time::Duration::from_secs(60))?;
    Ok(database)
}

/// The digests of every table, in the order of their names, then the `total`.
pub fn run(path: &Path) -> anyhow::Result<Vec<Digest>> {
    let database = open(path)?;
    database.execute_batch("BEGIN")?;
    let digests = tables(&database)?;
    database.execute_batch("COMMIT")?;
    Ok(digests)
}

/// The same inside a transaction of the caller.
pub fn tables(database: &Connection) -> anyhow::Result<Vec<Digest>> {
    // Virtual tables are left out: what they hold is in their shadow tables, which are read like all others.
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' \
                 AND name NOT LIKE 'sqlite_%' ORDER BY name";
    let names: Vec<String> = database.prepare(names)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut digests = Vec::with_capacity(names.len() + 1);
    for name in names {
        digests.push(table(database, &name)?);
    }
    let mut all = blake3::Hasher::new();
    for digest in &digests {
        all.update(digest.table.as_bytes()).update(digest.hash.as_bytes());
    }
    let rows = digests.iter().map(|digest| digest.rows).sum();
    digests.push(Digest { table: "total".into(), rows, hash: all.finalize() });
    Ok(digests)
}

fn table(database: &Connection, name: &str) -> anyhow::Result<Digest> {
    let quoted = name.replace('"', "\"\"");
    // The primary key orders a table without row ids; a table with them is ordered by them.
    let keys = "SELECT name FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk";
    let keys: Vec<String> = database.prepare(keys)?.query_map([name], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let without = "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?1";
    let without_row_id: bool = database.query_row(without, [name], |row| row.get(0))?;
    let order = if without_row_id { keys.join(", ") } else { "rowid".into() };
    let mut select = database.prepare(&format!("SELECT * FROM \"{quoted}\" NOT INDEXED ORDER BY {order}"))?;
    let columns = select.column_count();
    let mut hasher = blake3::Hasher::new();
    let mut rows = select.query([])?;
    let (mut count, mut buffer) = (0, Vec::with_capacity(1 << 16));
    while let Some(row) = rows.next()? {
        count += 1;
        for column in 0..columns {
            append(&mut buffer, row.get_ref(column)?);
        }
        if buffer.len() > 1 << 15 {
            hasher.update(&buffer);
            buffer.clear();
        }
    }
    hasher.update(&buffer);
    Ok(Digest { table: name.to_owned(), rows: count, hash: hasher.finalize() })
}

/// One value, with its type and length, so that no two rows give the same bytes.
fn append(buffer: &mut Vec<u8>, value: ValueRef<'_>) {
    let (kind, bytes): (u8, &[u8]) = match value {
        ValueRef::Null => (0, &[]),
        ValueRef::Integer(number) => (1, &number.to_le_bytes()),
        ValueRef::Real(number) => (2, &number.to_le_bytes()),
        ValueRef::Text(text) => (3, text),
        ValueRef::Blob(blob) => (4, blob),
    };
    buffer.push(kind);
    buffer.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    buffer.extend_from_slice(bytes);
}
