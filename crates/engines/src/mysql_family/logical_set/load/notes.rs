//! The notes of a load in its target: which streams are loaded. They mark a target that is not complete, and `--resume`
//! needs them.

use std::collections::HashMap;

use fullbore_core::checksum::xxh3_128;
use fullbore_core::{Error, Result};
use serde_json::json;
use uuid::Uuid;

use crate::engine::LoadOrder;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical::names::literal;
use crate::mysql_family::logical_set::selection::NOTES;

/// The columns of the notes. A database with others is not ours.
const COLUMNS: [(&str, &str); 6] = [
    ("load", "set_id"),
    ("load", "created"),
    ("load", "selection"),
    ("load", "made"),
    ("streams", "stream"),
    ("streams", "tables"),
];
/// The columns that every version has written first.
const FIRST: usize = 2;
/// ER_DUP_ENTRY.
const DOUBLED: u32 = 1062;

/// What the target holds of an earlier load.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Earlier {
    /// The set that was loaded; None without notes.
    pub set: Option<String>,
    /// Whether its tables were created.
    pub created: bool,
    /// The digest of what was chosen; see [`selection`].
    pub selection: String,
    /// The databases that it loads.
    pub databases: Vec<String>,
    /// The streams that are in the target: how many of their tables, or None for all of them.
    pub streams: HashMap<u32, Option<u64>>,
}

/// The digest of `--table`, `--map` and `--users`, and of whether the history of tables stays away. The order in which they are
/// given does not matter.
pub fn selection(order: &LoadOrder, users: bool, without_history: bool) -> String {
    let (mut tables, mut maps) = (order.tables.clone(), order.maps.clone());
    tables.sort();
    maps.sort();
    tables.dedup();
    maps.dedup();
    let mut chosen = vec![json!(tables), json!(maps)];
    chosen.extend(users.then(|| json!("users")));
    chosen.extend(without_history.then(|| json!("without history")));
    let chosen = json!(chosen);
    format!("{:032x}", xxh3_128(0, chosen.to_string().as_bytes()))
}

/// Reads the notes.
///
/// # Errors
/// The server refuses, or it has a database of this name that no load has made.
pub fn read(connection: &mut Connection) -> Result<Earlier> {
    let there = connection
        .query(&format!("SELECT schema_name FROM information_schema.schemata WHERE schema_name = '{NOTES}'"))?;
    if there.rows.is_empty() {
        return Ok(Earlier::default());
    }
    let columns = connection.query(&format!(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = '{NOTES}'"
    ))?;
    let columns: Vec<(String, String)> = columns
        .rows
        .into_iter()
        .filter_map(|row| match <[_; 2]>::try_from(row) {
            Ok([Some(table), Some(column)]) => Some((table, column)),
            _ => None,
        })
        .collect();
    if !are_ours(&columns) {
        let why = format!("it has a database `{NOTES}`, which is not the notes of a load");
        let hint = "a load keeps its notes under this name: rename the database, or drop it if nobody needs it";
        return Err(Error::refused(connection.name(), why, hint));
    }
    if columns.len() < COLUMNS.len() {
        // Of an earlier version, or of a load that ended while it made its notes.
        return Ok(Earlier { set: Some(String::new()), ..Earlier::default() });
    }
    let load = connection.query(&format!("SELECT set_id, created, selection, made FROM {NOTES}.`load`"))?;
    let streams = connection.query(&format!("SELECT stream, tables FROM {NOTES}.streams"))?;
    let number = |text: &Option<String>| text.as_deref()?.parse::<u64>().ok();
    let noted = streams.rows.iter().filter_map(|row| {
        let [stream, tables] = &row[..] else { return None };
        let tables = if tables.is_some() { Some(number(tables)?) } else { None };
        Some((u32::try_from(number(stream)?).ok()?, tables))
    });
    Ok(Earlier {
        set: Some(load.value(0, 0).unwrap_or_default().to_owned()),
        created: load.value(0, 1) == Some("1"),
        selection: load.value(0, 2).unwrap_or_default().to_owned(),
        databases: serde_json::from_str(load.value(0, 3).unwrap_or_default()).unwrap_or_default(),
        streams: noted.collect(),
    })
}

/// Whether a database with these columns is the notes of a load, also of one that ended early.
fn are_ours(columns: &[(String, String)]) -> bool {
    let is = |(table, column): &(String, String), known: &(&str, &str)| table == known.0 && column == known.1;
    let first = COLUMNS.iter().take(FIRST);
    first.clone().all(|known| columns.iter().any(|column| is(column, known)))
        && columns.iter().all(|column| COLUMNS.iter().any(|known| is(column, known)))
}

/// Makes the notes of a new load.
///
/// # Errors
/// The server refuses, also because the database exists.
pub fn begin(connection: &mut Connection, set: Uuid, selection: &str, databases: &[String]) -> Result<()> {
    let made = literal(&json!(databases).to_string());
    for statement in [
        format!("CREATE DATABASE {NOTES}"),
        format!(
            "CREATE TABLE {NOTES}.`load` (set_id VARCHAR(36) PRIMARY KEY, created TINYINT NOT NULL, selection \
             VARCHAR(32) NOT NULL, made LONGTEXT CHARACTER SET utf8mb4) ENGINE=InnoDB"
        ),
        format!("CREATE TABLE {NOTES}.streams (stream INT UNSIGNED PRIMARY KEY, tables BIGINT UNSIGNED) ENGINE=InnoDB"),
        format!("INSERT INTO {NOTES}.`load` VALUES ('{set}', 0, '{selection}', {made})"),
    ] {
        connection.query(&statement).map_err(|failure| {
            Error::from(failure)
                .noting(&format!("a load keeps its notes in the database `{NOTES}`, and removes it at the end"))
        })?;
    }
    Ok(())
}

/// All tables are created: from now on `--resume` continues.
///
/// # Errors
/// The server refuses.
pub fn created(connection: &mut Connection) -> Result<()> {
    connection.query(&format!("UPDATE {NOTES}.`load` SET created = 1"))?;
    Ok(())
}

/// Notes a stream in the transaction of its rows: the first `tables` of it, or None for all of it. `before` is what its note
/// has so far; None without a note. A commit of a killed load can come to its end behind the question for the notes: then
/// its rows are there, and the rows of this transaction must not be.
///
/// # Errors
/// The server refuses, or the note is another one.
pub fn note(connection: &mut Connection, stream: u32, before: Option<u64>, tables: Option<u64>) -> Result<()> {
    match connection.change(statement(stream, before, tables).as_bytes()) {
        Ok(changed) if changed.rows == 1 => Ok(()),
        Err(Failure::Server(error)) if error.code != DOUBLED => Err(Failure::Server(error).into()),
        Err(Failure::Fault(error)) => Err(error),
        _ => {
            let why = "another load of the set has just written the same rows: it still runs, or it was killed and its last \
                       transaction ended later";
            let hint = "wait until no other load runs, then continue with --resume";
            Err(Error::refused(connection.name(), why, hint))
        }
    }
}

fn statement(stream: u32, before: Option<u64>, tables: Option<u64>) -> String {
    let tables = tables.map_or_else(|| "NULL".to_owned(), |tables| tables.to_string());
    match before {
        None => format!("INSERT INTO {NOTES}.streams VALUES ({stream}, {tables})"),
        Some(before) => {
            format!("UPDATE {NOTES}.streams SET tables = {tables} WHERE stream = {stream} AND tables = {before}")
        }
    }
}

/// Removes the notes.
///
/// # Errors
/// The server refuses.
pub fn remove(connection: &mut Connection) -> Result<()> {
    connection.query(&format!("DROP DATABASE IF EXISTS {NOTES}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_selection_depends_on_tables_and_maps_and_not_on_their_order() {
        let digest = |tables: &[&str], maps: &[(&str, &str)]| {
            let tables: Vec<String> = tables.iter().map(|&name| name.to_owned()).collect();
            let maps = maps.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
            selection(&LoadOrder { tables, maps, ..LoadOrder::default() }, false, false)
        };
        assert_eq!(digest(&["a.b", "a.c"], &[]), digest(&["a.c", "a.b", "a.b"], &[]));
        assert_ne!(digest(&["a.b"], &[]), digest(&[], &[]));
        assert_ne!(digest(&[], &[("a", "b")]), digest(&[], &[("b", "a")]));
        assert_eq!(digest(&[], &[]).len(), 32);
    }

    #[test]
    fn a_note_never_replaces_that_of_another_load() {
        assert_eq!(statement(7, None, Some(100)), "INSERT INTO fullbore_load.streams VALUES (7, 100)");
        let expected = "UPDATE fullbore_load.streams SET tables = NULL WHERE stream = 7 AND tables = 100";
        assert_eq!(statement(7, Some(100), None), expected);
    }

    #[test]
    fn a_database_with_other_columns_is_not_ours() {
        let are = |columns: &[(&str, &str)]| {
            let columns: Vec<_> = columns.iter().map(|(table, name)| ((*table).into(), (*name).into())).collect();
            are_ours(&columns)
        };
        assert!(
            are(&COLUMNS) && are(&COLUMNS[..2]) && are(&[COLUMNS[0], COLUMNS[1], COLUMNS[4]]) && are(&COLUMNS[..4])
        );
        assert!(!are(&[]) && !are(&COLUMNS[2..]) && !are(&[&COLUMNS[..], &[("orders", "id")]].concat()));
    }
}
