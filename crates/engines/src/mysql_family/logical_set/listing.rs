//! The databases and tables of a server, in bulk: a few statements for all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use fullbore_core::checksum::xxh3_128;
use fullbore_core::{Error, Result};

use super::catalog::{StoredColumn, TableObject};
use super::key::{can_be_cut, has_text};
use super::selection::Selection;
use super::server::each_row;
use super::shapes::{Shapes, Shared};
use super::storage;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::columns::{Column, ROW_END, ROW_START, is_generated};

/// Most tables of a backup set: a small table has no stream of its own, so only memory bounds them.
const TABLES_MAX: usize = 1 << 20;

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

/// Whether a table keeps the history of its rows (MariaDB).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Versioned {
    /// It does not.
    #[default]
    No,
    /// By time.
    ByTime,
    /// By the numbers of transactions, which no other server has.
    ByTransaction,
}

/// A column of a primary key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    pub key: Arc<[KeyColumn]>,
    /// The estimates of the server: rows, and bytes on disk.
    pub rows: u64,
    /// The same.
    pub bytes: u64,
    /// Keeps the history of its rows.
    pub versioned: Versioned,
    /// The digest of the definition, as far as the lists have it.
    pub fingerprint: u128,
    /// The first column whose type is unknown.
    pub unknown: Option<String>,
}

impl Listed {
    /// Its database and its name: tables are in this order.
    pub fn name(&self) -> (&String, &String) {
        (&self.object.schema, &self.object.name)
    }

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
    /// What `--exclude` has left out: databases, and tables with their databases.
    pub left_out: BTreeSet<(String, Option<String>)>,
}

/// The statement that lists all columns.
fn columns_of(dialect: Dialect, selection: &Selection) -> String {
    // Which columns have the times of a row's history.
    let more = if dialect == Dialect::MariaDb { ", generation_expression" } else { "" };
    format!(
        "SELECT table_schema, table_name, column_name, data_type, extra, character_set_name, column_type, is_nullable, \
         column_default, collation_name, ordinal_position{more} FROM information_schema.columns WHERE {} ORDER BY \
         table_schema, table_name, ordinal_position",
        selection.databases_in("table_schema")
    )
}

/// The statement that lists all tables. The first six columns do not change with the rows.
fn tables_of(selection: &Selection) -> String {
    let within = selection.databases_in("table_schema");
    format!(
        "SELECT table_schema, table_name, table_type, engine, create_options, create_time, table_rows, data_length FROM \
         information_schema.tables WHERE {within}"
    )
}

/// Reads the columns, which the server lists on the second connection, if there is one.
fn each_column(
    connection: &mut Connection,
    beside: &mut Option<Connection>,
    dialect: Dialect,
    selection: &Selection,
    each: impl FnMut(&[Option<&[u8]>]) -> Result<()>,
) -> Result<()> {
    if let Some(beside) = beside {
        return Ok(each_row(beside, each)?);
    }
    connection.send_ahead(&[columns_of(dialect, selection)])?;
    Ok(each_row(connection, each)?)
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
        let mut listing = Self::default();
        if let Some(beside) = beside {
            beside.send_ahead(&[columns_of(dialect, selection)])?;
        }
        let within = selection.databases_in("schema_name");
        connection.send_ahead(&[format!("SELECT schema_name FROM information_schema.schemata WHERE {within}")])?;
        each_row(connection, |row| {
            let name = text(row, 0);
            match selection.takes_database(&name) {
                true => listing.databases.push(name),
                false => listing.leave_out(selection, &name, None),
            }
            Ok(())
        })?;
        listing.databases.sort();
        listing.list_tables(connection, selection)?;
        // Before the columns: only those of the key are noted twice.
        listing.list_keys(connection, selection)?;
        listing.list_columns(connection, beside, dialect, selection)?;
        let mut prints = vec![0; listing.tables.len()];
        storage::each_number(connection, dialect, &listing.tables, |place, number| add(&mut prints, place, number))?;
        for (table, print) in listing.tables.iter_mut().zip(prints) {
            table.fingerprint = table.fingerprint.wrapping_add(print);
        }
        Ok(listing)
    }

    /// What is not as it was when this was listed: a name with what happened to it. First a table of the list, then a new one. It
    /// takes no second list in memory.
    ///
    /// # Errors
    /// The server refuses.
    pub fn changed(
        &self,
        connection: &mut Connection,
        beside: &mut Option<Connection>,
        dialect: Dialect,
        selection: &Selection,
    ) -> Result<[Option<String>; 2]> {
        if let Some(beside) = beside {
            beside.send_ahead(&[columns_of(dialect, selection)])?;
        }
        let (mut there, mut new) = (vec![false; self.tables.len()], None);
        let mut prints = vec![0; self.tables.len()];
        connection.send_ahead(&[tables_of(selection)])?;
        each_row(connection, |row| {
            let (schema, name) = (text(row, 0), text(row, 1));
            match self.place(&schema, &name) {
                Some(place) => {
                    add(&mut prints, place, &joined(row.get(..6).unwrap_or_default()));
                    there.get_mut(place).into_iter().for_each(|there| *there = true);
                }
                None if new.is_none() && selection.takes_table(&schema, &name) => {
                    new = Some(format!("{schema}.{name}"))
                }
                None => {}
            }
            Ok(())
        })?;
        each_column(connection, beside, dialect, selection, |row| {
            if let Some(place) = self.place(&text(row, 0), &text(row, 1)) {
                add(&mut prints, place, &joined(row));
            }
            Ok(())
        })?;
        storage::each_number(connection, dialect, &self.tables, |place, number| add(&mut prints, place, number))?;
        Ok([self.difference(&there, &prints), new.map(|name| format!("{name} was created"))])
    }

    /// The first table that is not there, or has another fingerprint now.
    fn difference(&self, there: &[bool], prints: &[u128]) -> Option<String> {
        self.tables.iter().zip(there).zip(prints).find_map(|((table, there), print)| match there {
            false => Some(format!("{} was dropped or renamed", table.object.shown())),
            true if *print != table.fingerprint => Some(format!("the definition of {} changed", table.object.shown())),
            true => None,
        })
    }

    /// The place of the table with these names.
    pub fn place(&self, schema: &String, name: &String) -> Option<usize> {
        self.tables.binary_search_by(|table| table.name().cmp(&(schema, name))).ok()
    }

    fn list_tables(&mut self, connection: &mut Connection, selection: &Selection) -> Result<()> {
        connection.send_ahead(&[tables_of(selection)])?;
        let mut tables = Vec::new();
        each_row(connection, |row| {
            let (schema, name, kind) = (text(row, 0), text(row, 1), text(row, 2));
            if !selection.takes_table(&schema, &name) {
                self.leave_out(selection, &schema, Some(&name));
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
                key: Arc::default(),
                rows: number(row, 6),
                bytes: number(row, 7),
                versioned: if kind == "SYSTEM VERSIONED" { Versioned::ByTime } else { Versioned::No },
                fingerprint: xxh3_128(0, &joined(row.get(..6).unwrap_or_default())),
                unknown: None,
            });
            Ok(())
        })?;
        tables.sort_by(|one, other| one.name().cmp(&other.name()));
        tables.shrink_to_fit();
        self.tables = tables;
        Ok(())
    }

    /// Notes that `--exclude` names this.
    fn leave_out(&mut self, selection: &Selection, schema: &str, table: Option<&str>) {
        if selection.exclusions().any(|excluded| excluded == (schema, table)) {
            self.left_out.insert((schema.to_owned(), table.map(str::to_owned)));
        }
    }

    fn list_columns(
        &mut self,
        connection: &mut Connection,
        beside: &mut Option<Connection>,
        dialect: Dialect,
        selection: &Selection,
    ) -> Result<()> {
        let mut shapes = Shapes::default();
        each_column(connection, beside, dialect, selection, |row| {
            let Some(place) = self.place(&text(row, 0), &text(row, 1)) else { return Ok(()) };
            shapes.begin(place, &mut self.tables);
            let Some(table) = self.tables.get_mut(place) else { return Ok(()) };
            table.fingerprint = table.fingerprint.wrapping_add(xxh3_128(0, &joined(row)));
            let (name, mut data_type) = (text(row, 2), text(row, 3).to_lowercase());
            if is_generated(&text(row, 4)) {
                match (&text(row, 11)[..], &data_type[..]) {
                    ("ROW START", "timestamp") => data_type = ROW_START.to_owned(),
                    ("ROW END", "timestamp") => data_type = ROW_END.to_owned(),
                    ("ROW START" | "ROW END", _) => {
                        table.versioned = Versioned::ByTransaction;
                        return Ok(());
                    }
                    _ => return Ok(()),
                }
            }
            if Column::of(&name, &data_type).is_none() && table.unknown.is_none() {
                table.unknown = Some(format!("its column `{name}` has the type `{data_type}`"));
            }
            if table.object.primary.contains(&name) {
                let character_set = text(row, 5);
                shapes.key.push(KeyColumn { name: name.clone(), data_type: data_type.clone(), character_set });
            }
            shapes.columns.push(StoredColumn { name, data_type });
            Ok(())
        })?;
        shapes.end(&mut self.tables);
        Ok(())
    }

    /// The names of the columns of the primary keys, in their order.
    fn list_keys(&mut self, connection: &mut Connection, selection: &Selection) -> Result<()> {
        let within = selection.databases_in("table_schema");
        connection.send_ahead(&[format!(
            "SELECT table_schema, table_name, column_name FROM information_schema.key_column_usage WHERE \
             constraint_name = 'PRIMARY' AND {within} ORDER BY ordinal_position"
        )])?;
        let mut keys = vec![Vec::new(); self.tables.len()];
        each_row(connection, |row| {
            let key = self.place(&text(row, 0), &text(row, 1)).and_then(|place| keys.get_mut(place));
            key.into_iter().for_each(|key| key.push(text(row, 2)));
            Ok(())
        })?;
        let mut known = Shared::default();
        for (table, key) in self.tables.iter_mut().zip(keys) {
            table.object.primary = known.one(key);
        }
        Ok(())
    }
}

/// Adds the digest of `bytes` to the fingerprint at a place.
fn add(prints: &mut [u128], place: usize, bytes: &[u8]) {
    prints.get_mut(place).into_iter().for_each(|print| *print = print.wrapping_add(xxh3_128(0, bytes)));
}

/// The values of a row, with its NULLs and their lengths.
fn joined(row: &[Option<&[u8]>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in row {
        bytes.extend_from_slice(&value.map_or(u64::MAX, |value| value.len() as u64).to_le_bytes());
        bytes.extend_from_slice(value.unwrap_or_default());
    }
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn listing(tables: &[(&str, u128)]) -> Listing {
        let table = |(name, fingerprint): &(&str, u128)| Listed {
            object: TableObject { schema: "s".into(), name: (*name).into(), ..TableObject::default() },
            kind: Kind::Table,
            key: Arc::default(),
            rows: 0,
            bytes: 0,
            versioned: Versioned::No,
            fingerprint: *fingerprint,
            unknown: None,
        };
        Listing { tables: tables.iter().map(table).collect(), ..Listing::default() }
    }

    #[test]
    fn a_table_that_changed_or_went_is_named() {
        let listing = listing(&[("a", 1), ("b", 2)]);
        assert_eq!(listing.difference(&[true, true], &[1, 2]), None);
        let told = |there, print| listing.difference(&[true, there], &[1, print]).unwrap();
        assert_eq!(told(true, 3), "the definition of s.b changed");
        assert_eq!(told(false, 0), "s.b was dropped or renamed");
    }

    #[test]
    fn null_is_not_the_empty_text() {
        assert_ne!(joined(&[None, Some(b"")]), joined(&[Some(b""), None]));
    }
}
