//! The state of a migration, in one table of the target. The place in the log is written in the same transaction as the
//! changes up to it: so no change comes twice or is lost, wherever a migration is interrupted.

use fullbore_core::checksum::xxh3_128;
use fullbore_core::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::freeze::Before;
use super::servers::Servers;
use crate::engine::MigrationOrder;
use crate::mysql_family::binlog::end::End;
use crate::mysql_family::binlog::through::settings::Names;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::names::literal;
use crate::mysql_family::logical_set::selection::MIGRATION;

/// The lock of a whole run.
const RUN: &str = "fullbore_migrate.run";
/// How long a migration waits for the session of another one, in seconds.
const LOCK_WAIT_S: u32 = 10;

/// A group of the log that is applied in part: statements that change definitions commit by themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// How many of its statements that change definitions have run.
    pub done: u32,
    /// The digest of the definitions before the next one, which perhaps has run too.
    pub before: Option<String>,
    /// The databases of that digest.
    pub about: Vec<String>,
    /// Of log sets: what the full was.
    #[serde(default, skip_serializing_if = "Origin::is_nothing")]
    pub origin: Origin,
}

/// What a migration out of log sets has to know about its full until the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Only these databases are applied; empty: all of them.
    pub databases: Vec<String>,
    /// The place where the full was complete: definitions may be of any moment up to here.
    pub complete: Option<(String, u64)>,
    /// It was encrypted: log sets in clear are not applied.
    pub encrypted: bool,
}

impl Origin {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// How far a migration is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The full is not complete.
    Full {
        /// The databases that the migration makes.
        made: Vec<String>,
    },
    /// The log is applied.
    Following {
        /// Up to here.
        place: Box<End>,
        /// And of the next group, this.
        mark: Mark,
    },
}

/// What the target holds of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// What is migrated, as a digest.
    pub selection: String,
    /// How far it is.
    pub phase: Phase,
    /// How often the place was written.
    pub step: u64,
    /// What the source was, if a run has made it read-only and has not made it writable again.
    pub source: Option<Before>,
}

/// The digest of a migration out of a repository: the database there.
pub fn selection_of_sets(database: &str) -> String {
    format!("{:032x}", xxh3_128(0, json!(["log sets", database]).to_string().as_bytes()))
}

/// The digest of what is migrated: the source and its databases.
pub fn selection(servers: &Servers, order: &MigrationOrder) -> String {
    let mut databases = order.databases.clone();
    databases.extend(servers.source.address.database.clone());
    databases.sort();
    databases.dedup();
    let source = (&servers.facts.server_uuid, &servers.facts.hostname, servers.facts.server_id);
    format!("{:032x}", xxh3_128(0, json!([source, databases]).to_string().as_bytes()))
}

impl State {
    /// Reads it; None without a migration.
    ///
    /// # Errors
    /// The target refuses, or has a database of this name that no migration has made.
    pub fn read(connection: &mut Connection) -> Result<Option<Self>> {
        let columns = connection.query(&format!(
            "SELECT GROUP_CONCAT(column_name ORDER BY ordinal_position) FROM information_schema.columns WHERE table_schema \
             = '{MIGRATION}' AND table_name = 'state'"
        ))?;
        let is_there = connection
            .query(&format!("SELECT 1 FROM information_schema.schemata WHERE schema_name = '{MIGRATION}'"))?;
        let unknown = |connection: &Connection| {
            let why = format!("it has a database `{MIGRATION}`, which is not the state of a migration");
            Error::refused(connection.name(), why, "rename this database, or drop it if nobody needs it")
        };
        match (columns.single(), is_there.rows.is_empty()) {
            (_, true) => return Ok(None),
            // A migration that was interrupted while it began.
            (None, false) => {
                let phase = Phase::Full { made: Vec::new() };
                return Ok(Some(Self { selection: String::new(), phase, step: 0, source: None }));
            }
            (Some("id,selection,place,mark,step,source"), _) => {}
            _ => return Err(unknown(connection)),
        }
        let row = connection.query(&format!("SELECT selection, place, mark, step, source FROM {MIGRATION}.state"))?;
        let selection = row.value(0, 0).unwrap_or_default().to_owned();
        let step = row.value(0, 3).and_then(|text| text.parse().ok()).unwrap_or(0);
        let source = row.value(0, 4).map(serde_json::from_str).transpose().map_err(|_| unknown(connection))?;
        let Some(place) = row.value(0, 1) else {
            let made = serde_json::from_str(row.value(0, 2).unwrap_or("[]")).map_err(|_| unknown(connection))?;
            return Ok(Some(Self { selection, phase: Phase::Full { made }, step, source }));
        };
        let parsed = serde_json::from_str(place).and_then(|place| {
            Ok(Phase::Following { place, mark: serde_json::from_str(row.value(0, 2).unwrap_or_default())? })
        });
        parsed.map(|phase| Some(Self { selection, phase, step, source })).map_err(|_| unknown(connection))
    }

    /// Begins a new one, in the place of an earlier one. It makes these databases.
    ///
    /// # Errors
    /// The target refuses.
    pub fn begin(connection: &mut Connection, selection: &str, made: &[String]) -> Result<()> {
        let made = literal(&json!(made).to_string());
        for statement in [
            format!("DROP DATABASE IF EXISTS {MIGRATION}"),
            format!("CREATE DATABASE {MIGRATION}"),
            format!(
                "CREATE TABLE {MIGRATION}.state (id INT PRIMARY KEY, selection VARCHAR(32) NOT NULL, place LONGTEXT \
                 CHARACTER SET utf8mb4, mark LONGTEXT CHARACTER SET utf8mb4, step BIGINT UNSIGNED NOT NULL, source \
                 LONGTEXT CHARACTER SET utf8mb4) ENGINE=InnoDB"
            ),
            format!("INSERT INTO {MIGRATION}.state VALUES (1, '{selection}', NULL, {made}, 0, NULL)"),
        ] {
            let noting =
                format!("a migration keeps its state in the database `{MIGRATION}`, and removes it at the end");
            connection.query(&statement).map_err(|failure| Error::from(failure).noting(&noting))?;
        }
        Ok(())
    }

    /// The full is complete: from now on, the log is applied from this place on.
    ///
    /// # Errors
    /// The target refuses.
    pub fn follow(connection: &mut Connection, place: &End, origin: Origin) -> Result<()> {
        connection.query(&note(place, &Mark { origin, ..Mark::default() }, 0))?;
        Ok(())
    }

    /// Keeps the names of the source's collations, which log sets name by number.
    ///
    /// # Errors
    /// The target refuses.
    pub fn keep_names(connection: &mut Connection, names: &Names) -> Result<()> {
        let text = literal(&json!(names).to_string());
        connection.query(&format!(
            "CREATE TABLE {MIGRATION}.collations (names LONGTEXT CHARACTER SET utf8mb4) ENGINE=InnoDB"
        ))?;
        connection.query(&format!("INSERT INTO {MIGRATION}.collations VALUES ({text})"))?;
        Ok(())
    }

    /// The names that [`Self::keep_names`] has kept.
    ///
    /// # Errors
    /// The target refuses, or has none.
    pub fn names(connection: &mut Connection) -> Result<Names> {
        let kept = connection.query(&format!("SELECT names FROM {MIGRATION}.collations"))?;
        let names = kept.single().and_then(|text| serde_json::from_str(text).ok());
        names.ok_or_else(|| {
            let why = "it no longer has the names of the source's collations";
            Error::refused(connection.name(), why, "begin again with --replace")
        })
    }

    /// Keeps what the source was before it becomes read-only; without it, the source is so again.
    ///
    /// # Errors
    /// The target refuses.
    pub fn keep_source(connection: &mut Connection, before: Option<&Before>) -> Result<()> {
        let text = before.map_or_else(|| "NULL".to_owned(), |before| literal(&json!(before).to_string()));
        connection.query(&format!("UPDATE {MIGRATION}.state SET source = {text} WHERE id = 1"))?;
        Ok(())
    }

    /// Removes it.
    ///
    /// # Errors
    /// The target refuses.
    pub fn remove(connection: &mut Connection) -> Result<()> {
        connection.query(&format!("DROP DATABASE IF EXISTS {MIGRATION}"))?;
        Ok(())
    }

    /// Only the same migration is continued.
    ///
    /// # Errors
    /// `--resume` was not given, or something else is migrated.
    pub fn demand_same(&self, target: &str, selected: &str, resume: bool) -> Result<()> {
        let why = match resume {
            false => "it holds a migration that was interrupted",
            true if self.selection != selected && !self.selection.is_empty() => {
                "it holds a migration of another source, or of other databases"
            }
            true => return Ok(()),
        };
        let hint = if resume {
            "begin again with --replace"
        } else {
            "continue it with --resume, or begin again with --replace"
        };
        Err(Error::refused(target, why, hint))
    }
}

/// Only one run at a time changes a target and the settings of its source. The lock ends with this connection.
///
/// # Errors
/// Another run has it.
pub fn demand_alone(control: &mut Connection) -> Result<()> {
    take_lock(control, RUN)
}

/// Takes a lock of the target. The server gives it back when the session has ended: so a statement of a killed migration is over
/// before the next one continues.
///
/// # Errors
/// Another migration has it.
pub fn take_lock(connection: &mut Connection, name: &str) -> Result<()> {
    let taken = connection.query(&format!("SELECT GET_LOCK('{name}', {LOCK_WAIT_S})"))?;
    if taken.single() == Some("1") {
        return Ok(());
    }
    let why = "another migration changes it, or a statement of a killed one still runs";
    let hint = "SHOW PROCESSLIST on the target shows the session: end the other migration, or wait until it has ended";
    Err(Error::refused(connection.name(), why, hint))
}

/// The statement that writes the place, for the transaction of the changes up to it. `step` counts them: the statement
/// changes no row if another migration has written meanwhile.
pub fn note(place: &End, mark: &Mark, step: u64) -> String {
    let text = |value: serde_json::Result<String>| literal(&value.unwrap_or_default());
    let (place, mark) = (text(serde_json::to_string(place)), text(serde_json::to_string(mark)));
    format!(
        "UPDATE {MIGRATION}.state SET place = {place}, mark = {mark}, step = {} WHERE id = 1 AND step = {step}",
        step + 1
    )
}
