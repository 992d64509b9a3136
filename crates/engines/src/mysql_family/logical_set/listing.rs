//! The databases and tables of a server, in bulk: a few statements for all of them.

use std::collections::HashMap;

use fullbore_core::checksum::xxh3_128;
use fullbore_core::{Error, Result};

use super::catalog::{StoredColumn, TableObject};
use super::key::{can_be_cut, has_text};
use super::selection::Selection;
use super::server::each_row;
use super::storage;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::columns::{Column, is_generated};

/// Most tables of a backup set: a small table has no stream of its own, so only memory bounds them.
const TABLES_MAX: usize = 1 << 20;

/// The places of tables by database and name.
type Places = HashMap<(String, String), usize>;

/// A table with fewer estimated bytes is read by one statement.
const CUT_FROM: u64 = 32 << 20;

/// What a name in the list of tables is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// With rows.
    Table,
    /// A view.
    View,
    /// A sequence of MariaDB.
    Sequence,
}

/// A column of a primary key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumn {
    /// Its name.
    pub name: String,
    /// `information_schema.columns.data_type`, in lower case.
    pub data_type: String,
    /// The character set of a text; empty for other types.
    pub character_set: String,
}

/// A table, a view or a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Names, engine and columns; the statement comes later.
    pub object: TableObject,
    /// What it is.
    pub kind: Kind,
    /// The primary key.
    pub key: Vec<KeyColumn>,
    /// The estimates of the server: rows, and bytes on disk.
    pub rows: u64,
    /// The same.
    pub bytes: u64,
    /// Keeps the history of its rows (MariaDB).
    pub versioned: bool,
    /// The digest of the definition, as far as the lists have it.
    pub fingerprint: u128,
    /// The first column whose type is unknown.
    pub unknown: Option<String>,
}

impl Listed {
    /// Whether a reader reads rows of it.
    pub fn has_rows(&self) -> bool {
        self.kind == Kind::Table && self.object.has_rows()
    }

    /// Whether it is large enough for several readers.
    pub fn is_large(&self) -> bool {
        self.bytes >= CUT_FROM && self.object.engine.eq_ignore_ascii_case("InnoDB")
    }

    /// Whether a reader itself finds the row where its range ends. With an upper bound, the server compares texts twice for each
    /// row: a quarter of the whole work. Not for rows that are read piece by piece: they are written before their key is known.
    pub fn ends_by_row(&self) -> bool {
        has_text(&self.key) && self.object.has_short_rows()
    }

    /// Whether it is large, but cannot be cut by its key: only a scan reads it.
    pub fn is_scanned(&self) -> bool {
        self.is_large() && !can_be_cut(&self.key)
    }
}

/// Everything that was listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The databases.
    pub databases: Vec<String>,
    /// The tables in the order of their names.
    pub tables: Vec<Listed>,
}

/// The statement that lists all columns.
fn columns_of(selection: &Selection) -> String {
    format!(
        "SELECT table_schema, table_name, column_name, data_type, extra, character_set_name, column_type, is_nullable, \
         column_default, collation_name, ordinal_position FROM information_schema.columns WHERE {} ORDER BY table_schema, \
         table_name, ordinal_position",
        selection.databases_in("table_schema")
    )
}

/// A column of one row.
fn text(row: &[Option<&[u8]>], column: usize) -> String {
    row.get(column).copied().flatten().map_or_else(String::new, |value| String::from_utf8_lossy(value).into_owned())
}

fn number(row: &[Option<&[u8]>], column: usize) -> u64 {
    text(row, column).parse().unwrap_or(0)
}

impl Listing {
    /// Asks the server for everything that the selection takes.
    ///
    /// # Errors
    /// The server refuses, or has more tables than a set holds.
    pub fn ask(
        connection: &mut Connection,
        beside: &mut Option<Connection>,
        dialect: Dialect,
        selection: &Selection,
    ) -> Result<Self> {
        let (mut listing, places) = Self::tables_with_places(connection, beside, dialect, selection, true)?;
        listing.list_keys(connection, selection, &places)?;
        Ok(listing)
    }

    /// The same without columns and keys, to compare it with another one. It takes a fraction of the memory.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn outline(
        connection: &mut Connection,
        beside: &mut Option<Connection>,
        dialect: Dialect,
        selection: &Selection,
    ) -> Result<Self> {
        Ok(Self::tables_with_places(connection, beside, dialect, selection, false)?.0)
    }

    /// `beside` is a second connection: the server lists columns while it lists tables.
    fn tables_with_places(
        connection: &mut Connection,
        beside: &mut Option<Connection>,
        dialect: Dialect,
        selection: &Selection,
        with_columns: bool,
    ) -> Result<(Self, Places)> {
        let mut listing = Self::default();
        let columns = columns_of(selection);
        if let Some(beside) = beside {
            beside.send_ahead(std::slice::from_ref(&columns))?;
        }
        let within = selection.databases_in("schema_name");
        connection.send_ahead(&[format!("SELECT schema_name FROM information_schema.schemata WHERE {within}")])?;
        each_row(connection, |row| {
            let name = text(row, 0);
            if selection.takes_database(&name) {
                listing.databases.push(name);
            }
            Ok(())
        })?;
        listing.databases.sort();
        let places = listing.list_tables(connection, selection)?;
        match beside {
            Some(beside) => listing.list_columns(beside, &places, with_columns)?,
            None => {
                connection.send_ahead(&[columns])?;
                listing.list_columns(connection, &places, with_columns)?;
            }
        }
        let tables = &mut listing.tables;
        storage::each_number(connection, dialect, &places, |place, number| {
            if let Some(table) = tables.get_mut(place) {
                table.fingerprint = table.fingerprint.wrapping_add(xxh3_128(0, number));
            }
        })?;
        Ok((listing, places))
    }

    fn list_tables(&mut self, connection: &mut Connection, selection: &Selection) -> Result<Places> {
        let within = selection.databases_in("table_schema");
        connection.send_ahead(&[format!(
            "SELECT table_schema, table_name, table_type, engine, create_options, create_time, table_rows, data_length \
             FROM information_schema.tables WHERE {within}"
        )])?;
        let mut tables = Vec::new();
        each_row(connection, |row| {
            let (schema, name, kind) = (text(row, 0), text(row, 1), text(row, 2));
            if !selection.takes_table(&schema, &name) {
                return Ok(());
            }
            if tables.len() == TABLES_MAX {
                let why = format!("it has more than {TABLES_MAX} tables");
                return Err(Error::refused("the server", why, "choose databases with --database"));
            }
            let condition = selection.condition(&schema, &name).cloned();
            let object = TableObject { schema, name, engine: text(row, 3), condition, ..TableObject::default() };
            tables.push(Listed {
                object,
                kind: match &kind[..] {
                    "VIEW" | "SYSTEM VIEW" => Kind::View,
                    "SEQUENCE" => Kind::Sequence,
                    _ => Kind::Table,
                },
                key: Vec::new(),
                rows: number(row, 6),
                bytes: number(row, 7),
                versioned: kind == "SYSTEM VERSIONED",
                fingerprint: digest(&row[..row.len().min(6)]),
                unknown: None,
            });
            Ok(())
        })?;
        tables.sort_by(|one, other| {
            (&one.object.schema, &one.object.name).cmp(&(&other.object.schema, &other.object.name))
        });
        self.tables = tables;
        let name = |table: &Listed| (table.object.schema.clone(), table.object.name.clone());
        Ok(self.tables.iter().enumerate().map(|(place, table)| (name(table), place)).collect())
    }

    /// Reads the answer to [`columns_of`]. `keep`: the columns too, and not only their digest.
    fn list_columns(&mut self, connection: &mut Connection, places: &Places, keep: bool) -> Result<()> {
        each_row(connection, |row| {
            let Some(table) = places.get(&(text(row, 0), text(row, 1))).and_then(|at| self.tables.get_mut(*at)) else {
                return Ok(());
            };
            table.fingerprint = table.fingerprint.wrapping_add(digest(row));
            if !keep || is_generated(&text(row, 4)) {
                return Ok(());
            }
            let (name, data_type) = (text(row, 2), text(row, 3).to_lowercase());
            if Column::of(&name, &data_type).is_none() && table.unknown.is_none() {
                table.unknown = Some(format!("its column `{name}` has the type `{data_type}`"));
            }
            // The key comes later: until then, this is every column.
            let character_set = text(row, 5);
            table.key.push(KeyColumn { name: name.clone(), data_type: data_type.clone(), character_set });
            table.object.columns.push(StoredColumn { name, data_type });
            Ok(())
        })?;
        Ok(())
    }

    fn list_keys(&mut self, connection: &mut Connection, selection: &Selection, places: &Places) -> Result<()> {
        let within = selection.databases_in("table_schema");
        connection.send_ahead(&[format!(
            "SELECT table_schema, table_name, column_name, ordinal_position FROM \
             information_schema.key_column_usage WHERE constraint_name = 'PRIMARY' AND {within}"
        )])?;
        let mut keys: HashMap<usize, Vec<(u64, String)>> = HashMap::new();
        each_row(connection, |row| {
            if let Some(place) = places.get(&(text(row, 0), text(row, 1))) {
                keys.entry(*place).or_default().push((number(row, 3), text(row, 2)));
            }
            Ok(())
        })?;
        for (place, table) in self.tables.iter_mut().enumerate() {
            let mut key = keys.remove(&place).unwrap_or_default();
            key.sort();
            let columns = std::mem::take(&mut table.key);
            let column = |(_, name): &(u64, String)| columns.iter().find(|column| column.name == *name).cloned();
            // A key with a generated column is of no use: its values are not stored.
            table.key = key.iter().map(column).collect::<Option<_>>().unwrap_or_default();
            table.object.primary = key.into_iter().map(|(_, name)| name).collect();
        }
        Ok(())
    }

    /// What is not as in a later listing: a name with what happened to it.
    pub fn changed(&self, later: &Self) -> Option<String> {
        // Both are in the order of their names.
        let same = |tables: &[Listed], wanted: &TableObject| {
            let order =
                |table: &Listed| (&table.object.schema, &table.object.name).cmp(&(&wanted.schema, &wanted.name));
            tables.binary_search_by(order).ok().and_then(|place| tables.get(place)).map(|table| table.fingerprint)
        };
        for table in &self.tables {
            let shown = || table.object.shown();
            match same(&later.tables, &table.object) {
                None => return Some(format!("{} was dropped or renamed", shown())),
                Some(fingerprint) if fingerprint != table.fingerprint => {
                    return Some(format!("the definition of {} changed", shown()));
                }
                Some(_) => {}
            }
        }
        let new = later.tables.iter().find(|table| same(&self.tables, &table.object).is_none());
        new.map(|table| format!("{} was created", table.object.shown()))
    }
}

/// The digest of a row, with its NULLs and the lengths of its values.
fn digest(row: &[Option<&[u8]>]) -> u128 {
    let mut bytes = Vec::new();
    for value in row {
        bytes.extend_from_slice(&value.map_or(u64::MAX, |value| value.len() as u64).to_le_bytes());
        bytes.extend_from_slice(value.unwrap_or_default());
    }
    xxh3_128(0, &bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn listing(tables: &[(&str, u128)]) -> Listing {
        let table = |(name, fingerprint): &(&str, u128)| Listed {
            object: TableObject { schema: "s".into(), name: (*name).into(), ..TableObject::default() },
            kind: Kind::Table,
            key: Vec::new(),
            rows: 0,
            bytes: 0,
            versioned: false,
            fingerprint: *fingerprint,
            unknown: None,
        };
        Listing { tables: tables.iter().map(table).collect(), ..Listing::default() }
    }

    #[test]
    fn a_table_that_changed_went_or_came_is_named() {
        let before = listing(&[("a", 1), ("b", 2)]);
        assert_eq!(before.changed(&before), None);
        for (later, told) in [
            (&[("a", 1), ("b", 3)][..], "the definition of s.b changed"),
            (&[("a", 1)], "s.b was dropped or renamed"),
            (&[("a", 1), ("b", 2), ("c", 1)], "s.c was created"),
        ] {
            assert_eq!(before.changed(&listing(later)).unwrap(), told);
        }
    }

    #[test]
    fn null_is_not_the_empty_text() {
        assert_ne!(digest(&[None, Some(b"")]), digest(&[Some(b""), None]));
    }
}
