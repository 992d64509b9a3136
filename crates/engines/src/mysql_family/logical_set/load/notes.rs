//! The notes of a load in its target: which streams are loaded. They mark a target that is not complete, and `--resume`
//! needs them.

use std::collections::HashSet;

use fullbore_core::{Error, Result};
use uuid::Uuid;

use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::selection::NOTES;

/// What the target holds of an earlier load.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Earlier {
    /// The set that was loaded; None without notes.
    pub set: Option<String>,
    /// Whether its tables were created.
    pub created: bool,
    /// The streams that are complete.
    pub streams: HashSet<u32>,
}

/// Reads the notes.
///
/// # Errors
/// The server refuses.
pub fn read(connection: &mut Connection) -> Result<Earlier> {
    let there = connection.query(&format!(
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{NOTES}' AND table_name IN ('load', \
         'streams')"
    ))?;
    if there.single() != Some("2") {
        return Ok(Earlier::default());
    }
    let load = connection.query(&format!("SELECT set_id, created FROM {NOTES}.`load`"))?;
    let streams = connection.query(&format!("SELECT stream FROM {NOTES}.streams"))?;
    let numbers = streams.rows.iter().filter_map(|row| row.first()?.as_deref()?.parse().ok());
    Ok(Earlier {
        set: Some(load.single().unwrap_or_default().to_owned()),
        created: load.value(0, 1) == Some("1"),
        streams: numbers.collect(),
    })
}

/// Makes the notes of a new load.
///
/// # Errors
/// The server refuses.
pub fn begin(connection: &mut Connection, set: Uuid) -> Result<()> {
    for statement in [
        format!("CREATE DATABASE IF NOT EXISTS {NOTES}"),
        format!("CREATE TABLE {NOTES}.`load` (set_id VARCHAR(36) PRIMARY KEY, created TINYINT NOT NULL) ENGINE=InnoDB"),
        format!("CREATE TABLE {NOTES}.streams (stream INT UNSIGNED PRIMARY KEY) ENGINE=InnoDB"),
        format!("INSERT INTO {NOTES}.`load` VALUES ('{set}', 0)"),
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

/// The statement that notes a stream, for the transaction of its rows.
pub fn done(stream: u32) -> String {
    format!("INSERT INTO {NOTES}.streams VALUES ({stream})")
}

/// Removes the notes.
///
/// # Errors
/// The server refuses.
pub fn remove(connection: &mut Connection) -> Result<()> {
    connection.query(&format!("DROP DATABASE IF EXISTS {NOTES}"))?;
    Ok(())
}
