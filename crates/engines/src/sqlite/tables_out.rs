//! The tables of an SQLite database that no other process has open, for an export.
//!
//! A column of SQLite may hold any value, whatever its declared type is. So the values say which cells a column has: it is
//! read once before.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fullbore_core::units::counted;
use fullbore_core::{Error, Result};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::connection::explain;
use super::integrity::open_alone;
use crate::engine::{Cell, ColumnKind, ForeignTable, ForeignTables, TableColumn};

/// Columns of one question about values. SQLite allows 2,000 columns of a result, and each has one for each class here.
const ASKED_AT_ONCE: usize = 200;
/// Where the tables are.
const SCHEMA: &str = "main";
/// The classes of values, as `typeof` names them.
const CLASSES: [&str; 5] = ["integer", "real", "text", "blob", "null"];

/// The tables.
pub struct SqliteTables {
    connection: Connection,
    path: PathBuf,
    database: String,
    sets: Vec<String>,
    notes: Vec<String>,
    tables: Vec<ForeignTable>,
}

impl SqliteTables {
    /// Reads the definitions, and the classes of all values. `database` and `sets` are for messages.
    ///
    /// # Errors
    /// The file is not a database, or cannot be read.
    pub fn open(path: &Path, database: &str, sets: Vec<String>) -> Result<Self> {
        let failed = |error| explain(path, error);
        let connection = open_alone(path)?;
        // The schema may come from anywhere.
        connection.execute_batch("PRAGMA trusted_schema = OFF").map_err(failed)?;
        let named = names(&connection).map_err(failed)?;
        let (mut tables, mut left_out) = (Vec::new(), 0_u64);
        for (name, kind) in named {
            match kind.as_str() {
                "table" | "shadow" => tables.push(definition(&connection, &name)),
                "virtual" => {
                    tables.push(refused(name, "it is a virtual table: its rows are in other tables or elsewhere"))
                }
                _ => left_out += 1,
            }
        }
        let notes = match left_out {
            0 => Vec::new(),
            count => vec![format!("{} left out: their rows are those of tables", counted(count, "view"))],
        };
        Ok(Self { connection, path: path.to_owned(), database: database.to_owned(), sets, notes, tables })
    }
}

/// The tables and views of users, and what they are.
fn names(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let sql = "SELECT name, type FROM pragma_table_list WHERE schema = ?1 AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
               ORDER BY name";
    let mut statement = connection.prepare(sql)?;
    let names = statement.query_map([SCHEMA], |row| Ok((row.get(0)?, row.get(1)?)))?;
    names.collect()
}

/// A table, which is refused if its definition or its values cannot be read.
fn definition(connection: &Connection, name: &str) -> ForeignTable {
    match columns(connection, name) {
        Ok(columns) => ForeignTable {
            schema: SCHEMA.to_owned(),
            name: name.to_owned(),
            columns,
            stored_rows: None,
            refused: None,
            notes: Vec::new(),
        },
        Err(error) => refused(name.to_owned(), &error.to_string()),
    }
}

fn refused(name: String, why: &str) -> ForeignTable {
    let (schema, columns, notes) = (SCHEMA.to_owned(), Vec::new(), Vec::new());
    ForeignTable { schema, name, columns, stored_rows: None, refused: Some(why.to_owned()), notes }
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<TableColumn>> {
    let sql = "SELECT name, type, \"notnull\" FROM pragma_table_xinfo(?1, ?2) WHERE hidden <> 1 ORDER BY cid";
    let mut statement = connection.prepare(sql)?;
    let described = statement.query_map([table, SCHEMA], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let described = described.collect::<rusqlite::Result<Vec<(String, String, bool)>>>()?;
    let mut found = Vec::new();
    for part in described.chunks(ASKED_AT_ONCE) {
        let names: Vec<&str> = part.iter().map(|(name, ..)| name.as_str()).collect();
        for ((name, declared, not_null), classes) in part.iter().zip(classes(connection, table, &names)?) {
            found.push(TableColumn {
                name: name.clone(),
                kind: kind(&classes, declared),
                declared: declared.clone(),
                // A primary key may have NULL, for reasons of history.
                nullable: !not_null || classes.contains("null"),
                refused: None,
            });
        }
    }
    Ok(found)
}

/// The classes of the values of each column.
fn classes(connection: &Connection, table: &str, columns: &[&str]) -> rusqlite::Result<Vec<BTreeSet<&'static str>>> {
    let asked = columns.iter().flat_map(|column| {
        let name = quoted(column);
        CLASSES.map(|class| format!("max(typeof({name}) = '{class}')"))
    });
    let sql = format!("SELECT {} FROM {SCHEMA}.{}", asked.collect::<Vec<_>>().join(", "), quoted(table));
    connection.query_row(&sql, [], |row| {
        let mut found = vec![BTreeSet::new(); columns.len()];
        for (classes, column) in found.iter_mut().zip(0..) {
            for (class, at) in CLASSES.into_iter().zip(0..) {
                if row.get::<_, Option<bool>>(column * CLASSES.len() + at)? == Some(true) {
                    classes.insert(class);
                }
            }
        }
        Ok(found)
    })
}

/// The cells of a column with these classes of values. Without a value, the declared type says them.
fn kind(classes: &BTreeSet<&'static str>, declared: &str) -> ColumnKind {
    let values: Vec<&str> = classes.iter().copied().filter(|class| *class != "null").collect();
    match values[..] {
        ["integer"] => ColumnKind::Long,
        ["real"] => ColumnKind::Float,
        ["text"] => ColumnKind::Text,
        ["blob"] => ColumnKind::Binary,
        [] if declared.to_ascii_uppercase().contains("INT") => ColumnKind::Long,
        [] => ColumnKind::Text,
        _ => ColumnKind::Any,
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl ForeignTables for SqliteTables {
    fn database(&self) -> &str {
        &self.database
    }

    fn sets(&self) -> &[String] {
        &self.sets
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn tables(&self) -> &[ForeignTable] {
        &self.tables
    }

    fn read(
        &self,
        table: usize,
        columns: &[usize],
        each: &mut dyn FnMut(&[Cell]) -> Result<()>,
    ) -> Result<Vec<String>> {
        let Some(table) = self.tables.get(table) else { return Ok(Vec::new()) };
        let failed = |error| explain(&self.path, error);
        let names: Vec<String> =
            columns.iter().filter_map(|at| table.columns.get(*at)).map(|column| quoted(&column.name)).collect();
        // A row counts, even if no column of it does.
        let names = if names.is_empty() { "NULL".to_owned() } else { names.join(", ") };
        let sql = format!("SELECT {names} FROM {SCHEMA}.{}", quoted(&table.name));
        let mut statement = self.connection.prepare(&sql).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        let mut cells = Vec::with_capacity(columns.len());
        while let Some(row) = rows.next().map_err(failed)? {
            cells.clear();
            for at in 0..columns.len() {
                cells.push(self.cell(row, at, table)?);
            }
            each(&cells)?;
        }
        Ok(Vec::new())
    }
}

impl SqliteTables {
    fn cell(&self, row: &Row<'_>, at: usize, table: &ForeignTable) -> Result<Cell> {
        Ok(match row.get_ref(at).map_err(|error| explain(&self.path, error))? {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(value) => Cell::Int(value),
            ValueRef::Real(value) => Cell::Float(value),
            ValueRef::Blob(bytes) => Cell::Binary(bytes.to_vec()),
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Cell::Text(text.to_owned()),
                Err(_) => {
                    let hint = "leave the column out with --columns, or restore the database";
                    return Err(Error::refused(table.title(), "has a text that is not UTF-8", hint));
                }
            },
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rows(tables: &SqliteTables, name: &str) -> (Vec<ColumnKind>, Vec<Vec<Cell>>) {
        let at = tables.tables().iter().position(|table| table.name == name).unwrap();
        let kinds: Vec<ColumnKind> = tables.tables()[at].columns.iter().map(|column| column.kind).collect();
        let (all, mut found): (Vec<usize>, _) = ((0..kinds.len()).collect(), Vec::new());
        tables
            .read(at, &all, &mut |cells| {
                found.push(cells.to_vec());
                Ok(())
            })
            .unwrap();
        (kinds, found)
    }

    #[test]
    fn values_say_which_cells_a_column_has_and_virtual_tables_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app?.db");
        let made = Connection::open(&path).unwrap();
        let sql = "CREATE TABLE \"a \"\"b\" (id INTEGER PRIMARY KEY, price NUMERIC, name TEXT NOT NULL, raw, sum AS (id * 2));
            INSERT INTO \"a \"\"b\" VALUES (1, 1.5, 'x', x'00FF'), (2, 7, 'é', NULL);
            CREATE TABLE keyed (k TEXT PRIMARY KEY, v REAL) WITHOUT ROWID;
            INSERT INTO keyed VALUES ('z', 1), ('a', 2.5);
            CREATE TABLE none (n INT, t);
            CREATE VIEW seen AS SELECT 1;
            CREATE VIRTUAL TABLE words USING fts5(body);";
        made.execute_batch(sql).unwrap();
        drop(made);
        let tables = SqliteTables::open(&path, "app", Vec::new()).unwrap();
        let (kinds, found) = rows(&tables, "a \"b");
        use ColumnKind::{Any, Binary, Float, Long, Text};
        assert_eq!(kinds, [Long, Any, Text, Binary, Long]);
        let text = |text: &str| Cell::Text(text.into());
        assert_eq!(found[0], [Cell::Int(1), Cell::Float(1.5), text("x"), Cell::Binary(vec![0, 255]), Cell::Int(2)]);
        assert_eq!(found[1], [Cell::Int(2), Cell::Int(7), text("é"), Cell::Null, Cell::Int(4)]);
        let keyed = (vec![Text, Float], vec![vec![text("a"), Cell::Float(2.5)], vec![text("z"), Cell::Float(1.0)]]);
        assert_eq!(rows(&tables, "keyed"), keyed);
        assert_eq!(rows(&tables, "none"), (vec![Long, Text], Vec::new()));
        let words = tables.tables().iter().find(|table| table.name == "words").unwrap();
        assert!(words.refused.as_ref().unwrap().contains("virtual"));
        assert_eq!(tables.notes(), ["1 view left out: their rows are those of tables"]);
    }

    #[test]
    fn a_file_that_is_no_database_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        std::fs::write(&path, [7; 5000]).unwrap();
        assert!(SqliteTables::open(&path, "x", Vec::new()).is_err());
    }
}
