//! One SQLite database with a table for each table.
//!
//! SQLite has no decimal numbers, dates and UUIDs: they are text, so that they stay exact.

use std::path::Path;

use fullbore_core::{Error, Result};
use fullbore_engines::{Cell, ColumnKind};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{CachedStatement, Connection, ToSql, params_from_iter};

use super::{Columns, cell_text, shown};

/// A database that is being written.
pub struct SqliteFile {
    connection: Connection,
    name: String,
    /// The statement that inserts into the present table.
    insert: String,
    kinds: Vec<ColumnKind>,
}

impl SqliteFile {
    /// Makes the file.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path) -> Result<Self> {
        let name = shown(path);
        let connection = Connection::open(path).map_err(|e| failed("make", &name, &e))?;
        // Until it has its name, the file may be lost; the export syncs it at the end.
        let settings = "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA encoding = 'UTF-8';";
        connection.execute_batch(settings).map_err(|e| failed("write", &name, &e))?;
        Ok(Self { connection, name, insert: String::new(), kinds: Vec::new() })
    }

    /// Makes a table, in a transaction.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(&mut self, table: &str, columns: &Columns<'_>) -> Result<()> {
        let mut names = Vec::new();
        for column in columns {
            // SQLite ignores case in names of columns; SQL Server may not.
            let mut name = column.name.clone();
            while names.iter().any(|known: &String| known.eq_ignore_ascii_case(&name)) {
                name.push('~');
            }
            names.push(name);
        }
        let defined = columns.iter().zip(&names).map(|(column, name)| {
            let not_null = if column.nullable { "" } else { " NOT NULL" };
            format!("{} {}{not_null}", quoted(name), declared(column.kind))
        });
        let create = format!("BEGIN; CREATE TABLE {} ({});", quoted(table), defined.collect::<Vec<_>>().join(", "));
        self.execute(&create)?;
        let marks = vec!["?"; columns.len()].join(", ");
        self.insert = format!("INSERT INTO {} VALUES ({marks})", quoted(table));
        self.kinds = columns.iter().map(|column| column.kind).collect();
        Ok(())
    }

    /// Writes one row.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn row(&mut self, cells: &[Cell]) -> Result<()> {
        let insert: Result<CachedStatement<'_>, _> = self.connection.prepare_cached(&self.insert);
        let values = cells.iter().zip(&self.kinds).map(|(cell, kind)| Bound { cell, kind: *kind });
        let done = insert.and_then(|mut insert| insert.execute(params_from_iter(values)));
        done.map(|_| ()).map_err(|e| failed("write", &self.name, &e))
    }

    /// Keeps the table.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn commit(&mut self) -> Result<()> {
        self.execute("COMMIT")
    }

    /// Removes the table: it cannot be exported.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn roll_back(&mut self) -> Result<()> {
        self.execute("ROLLBACK")
    }

    fn execute(&self, statement: &str) -> Result<()> {
        self.connection.execute_batch(statement).map_err(|e| failed("write", &self.name, &e))
    }

    /// Closes the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(self) -> Result<()> {
        let name = self.name;
        self.connection.close().map_err(|(_, e)| failed("close", &name, &e))
    }
}

fn failed(action: &str, name: &str, error: &rusqlite::Error) -> Error {
    Error::io(action, name, std::io::Error::other(error.to_string()))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\"").replace('\0', "%00"))
}

/// The type of a column. It decides how SQLite compares values, and changes none of them.
fn declared(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Bool | ColumnKind::Byte | ColumnKind::Short | ColumnKind::Int | ColumnKind::Long => "INTEGER",
        ColumnKind::Real | ColumnKind::Float => "REAL",
        // SQLite keeps such values as they are. An integer above its largest one is text.
        ColumnKind::Binary | ColumnKind::Any | ColumnKind::UnsignedLong => "BLOB",
        _ => "TEXT",
    }
}

struct Bound<'a> {
    cell: &'a Cell,
    kind: ColumnKind,
}

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.cell {
            Cell::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Cell::Bool(value) => ToSqlOutput::Borrowed(ValueRef::Integer((*value).into())),
            Cell::Int(value) => ToSqlOutput::Borrowed(ValueRef::Integer(*value)),
            Cell::Real(value) => ToSqlOutput::Borrowed(ValueRef::Real((*value).into())),
            Cell::Float(value) => ToSqlOutput::Borrowed(ValueRef::Real(*value)),
            Cell::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Cell::Binary(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            other => ToSqlOutput::Owned(Value::Text(cell_text::text(other, self.kind))),
        })
    }
}
