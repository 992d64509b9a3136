//! The catalog: what this host knows of repositories, in an SQLite file. It is only an index: `fullbore catalog
//! rebuild` reads everything from the repositories again. An unreadable catalog is replaced by a new one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fullbore_core::units::counted;
use fullbore_core::{Error, Result};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::Repository;
use crate::format::SetRecord;
use crate::inventory::StoredSet;

/// The version of the tables. Tables of another version are replaced by new ones.
const VERSION: i64 = 2;
/// False for a record of an older fullbore that lacks the shared position (`position.log`), if the engine is unknown
/// here: such a record is read from the repository again.
fn tells_its_position(record: &SetRecord) -> bool {
    record.position.log.is_some() || fullbore_engines::is_known(&record.engine)
}

/// How long another process may hold the file.
const BUSY: std::time::Duration = std::time::Duration::from_secs(10);

/// An open catalog.
pub struct Catalog {
    connection: Connection,
    path: PathBuf,
}

/// The sets of a repository as they were last seen.
pub struct LastSeen {
    /// The time, in RFC 3339, by this host's clock.
    pub at: String,
    /// The sets, oldest first.
    pub sets: Vec<StoredSet>,
}

impl Catalog {
    /// Opens the catalog, or makes it. A damaged catalog is renamed to `NAME.damaged` and replaced by a new one.
    ///
    /// # Errors
    /// The catalog cannot be made.
    pub fn open(path: &Path) -> Result<(Self, Option<String>)> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder.display().to_string(), e))?;
        }
        match Self::prepare(path) {
            Ok(catalog) => Ok((catalog, None)),
            Err(error) if is_damage(&error) => {
                let mut aside = path.as_os_str().to_owned();
                aside.push(".damaged");
                std::fs::rename(path, &aside).map_err(|e| Error::io("put aside", path.display().to_string(), e))?;
                for end in ["-wal", "-shm"] {
                    let mut side = path.as_os_str().to_owned();
                    side.push(end);
                    let _ = std::fs::remove_file(side); // It belongs to the damaged catalog.
                }
                let why = format!(
                    "the catalog `{}` could not be read ({error}): it was renamed to .damaged, and the repositories \
                     fill a new one",
                    path.display()
                );
                Self::prepare(path).map(|catalog| (catalog, Some(why))).map_err(|error| failed("make", path, &error))
            }
            Err(error) => Err(failed("open", path, &error)),
        }
    }

    fn prepare(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version != VERSION {
            // Nothing is lost: the repositories have everything.
            connection.execute_batch(
                "BEGIN IMMEDIATE; DROP TABLE IF EXISTS backup_set; DROP TABLE IF EXISTS repository; \
                 CREATE TABLE repository (id TEXT PRIMARY KEY, name TEXT NOT NULL, seen_at TEXT NOT NULL, \
                 place TEXT NOT NULL) WITHOUT ROWID; \
                 CREATE TABLE backup_set (repository TEXT NOT NULL, id TEXT NOT NULL, started_at INTEGER NOT NULL, \
                 database TEXT NOT NULL, stored TEXT NOT NULL, PRIMARY KEY (repository, id)) WITHOUT ROWID; \
                 PRAGMA user_version = 2; COMMIT",
            )?;
        }
        connection.query_row("SELECT COUNT(*) FROM repository", [], |row| row.get::<_, i64>(0))?;
        Ok(Self { connection, path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The sets of a repository as they were last seen; `None` if it was never seen.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn last_seen(&self, repository: Uuid) -> Result<Option<LastSeen>> {
        let read = || -> rusqlite::Result<Option<LastSeen>> {
            let id = repository.to_string();
            let seen = "SELECT seen_at FROM repository WHERE id = ?1";
            let Some(at) = self.connection.query_row(seen, [&id], |row| row.get(0)).optional()? else {
                return Ok(None);
            };
            let sets = "SELECT stored FROM backup_set WHERE repository = ?1 ORDER BY started_at, id";
            let mut statement = self.connection.prepare(sets)?;
            let rows = statement.query_map([&id], |row| row.get::<_, String>(0))?;
            let mut sets = Vec::new();
            for row in rows {
                // A record that cannot be parsed is read from the repository again.
                sets.extend(serde_json::from_str::<StoredSet>(&row?).ok());
            }
            Ok(Some(LastSeen { at, sets }))
        };
        read().map_err(|error| failed("read", &self.path, &error))
    }

    /// The same for the repository that was last seen under this name.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn seen_as(&self, name: &str) -> Result<Option<LastSeen>> {
        let named = "SELECT id FROM repository WHERE name = ?1 ORDER BY seen_at DESC LIMIT 1";
        let id = self.connection.query_row(named, [name], |row| row.get::<_, String>(0)).optional();
        let id = id.map_err(|error| failed("read", &self.path, &error))?;
        id.and_then(|id| Uuid::try_parse(&id).ok()).map_or(Ok(None), |id| self.last_seen(id))
    }

    /// A warning about a repository that is new to this host, if its first directory held another repository with sets
    /// before: an empty mount point looks like a directory without a repository.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn another_before(&self, repository: &Repository) -> Result<Option<String>> {
        let (id, place) = (repository.id.to_string(), directory_of(repository));
        let before = "SELECT seen_at, (SELECT COUNT(*) FROM backup_set WHERE repository = repository.id) \
                      FROM repository WHERE place = ?2 AND place <> '' \
                      AND NOT EXISTS (SELECT 1 FROM repository WHERE id = ?1) ORDER BY seen_at DESC LIMIT 1";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
        let found = self.connection.query_row(before, [&id, &place], row).optional();
        let found = found.map_err(|error| failed("read", &self.path, &error))?;
        Ok(found.filter(|&(_, sets)| sets > 0).map(|(seen_at, sets)| {
            let sets = counted(sets.unsigned_abs(), "set");
            format!(
                "`{place}` held another repository with {sets} when this host last looked there, at {seen_at}: \
                 is its disk not mounted?"
            )
        }))
    }

    /// All sets of `database` in the repositories that this host has seen, in no order. With each: the directory of
    /// that repository's records, which is empty for a repository in a store.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_database(&self, database: &str) -> Result<Vec<(SetRecord, String)>> {
        let read = || -> rusqlite::Result<Vec<(SetRecord, String)>> {
            let sets = "SELECT stored, place FROM backup_set JOIN repository \
                        ON repository.id = backup_set.repository WHERE database = ?1";
            let mut statement = self.connection.prepare(sets)?;
            let rows = statement.query_map([database], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
            let mut records = Vec::new();
            for row in rows {
                let (stored, place) = row?;
                records.extend(serde_json::from_str::<StoredSet>(&stored).ok().map(|set| (set.record, place)));
            }
            Ok(records)
        };
        read().map_err(|error| failed("read", &self.path, &error))
    }

    /// The records of sets that need not be read again: a set never changes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn records(&self, repository: Uuid) -> Result<HashMap<Uuid, SetRecord>> {
        let sets = self.last_seen(repository)?.map(|seen| seen.sets).unwrap_or_default();
        let recorded = sets.into_iter().filter(|set| set.recorded && tells_its_position(&set.record));
        Ok(recorded.map(|set| (set.record.backup_set_id, set.record)).collect())
    }

    /// Stores the sets that a repository holds now, in place of the known ones.
    ///
    /// # Errors
    /// The file cannot be written to.
    pub fn put(&mut self, repository: &Repository, sets: &[StoredSet]) -> Result<()> {
        let path = self.path.clone();
        self.write(repository, sets).map_err(|error| failed("write to", &path, &error))
    }

    /// Stores one more set.
    ///
    /// # Errors
    /// The file cannot be written to.
    pub fn add(&self, repository: &Repository, set: &StoredSet) -> Result<()> {
        let stored = serde_json::to_string(set).unwrap_or_default();
        let id = repository.id.to_string();
        let put = "INSERT OR REPLACE INTO backup_set VALUES (?1, ?2, ?3, ?4, ?5)";
        let record = &set.record;
        let values = params![id, record.backup_set_id.to_string(), record.started_at, record.database, stored];
        let seen = "INSERT OR IGNORE INTO repository VALUES (?1, ?2, ?3, ?4)";
        let now = jiff::Timestamp::now().to_string();
        let done = self
            .connection
            .execute(put, values)
            .and_then(|_| self.connection.execute(seen, [&id, &repository.name, &now, &directory_of(repository)]));
        done.map(drop).map_err(|error| failed("write to", &self.path, &error))
    }

    fn write(&mut self, repository: &Repository, sets: &[StoredSet]) -> rusqlite::Result<()> {
        let id = repository.id.to_string();
        let change = self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        {
            let mut known = HashMap::new();
            let mut statement = change.prepare("SELECT id, stored FROM backup_set WHERE repository = ?1")?;
            for row in statement.query_map([&id], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))? {
                let (set, stored) = row?;
                known.insert(set, stored);
            }
            let mut put = change.prepare("INSERT OR REPLACE INTO backup_set VALUES (?1, ?2, ?3, ?4, ?5)")?;
            for set in sets {
                let key = set.record.backup_set_id.to_string();
                let stored = serde_json::to_string(set).unwrap_or_default();
                // Most sets have not changed.
                if known.remove(&key).as_ref() != Some(&stored) {
                    put.execute(params![id, key, set.record.started_at, set.record.database, stored])?;
                }
            }
            let mut forget = change.prepare("DELETE FROM backup_set WHERE repository = ?1 AND id = ?2")?;
            for gone in known.keys() {
                forget.execute([&id, gone])?;
            }
            let seen = "INSERT OR REPLACE INTO repository VALUES (?1, ?2, ?3, ?4)";
            let now = jiff::Timestamp::now().to_string();
            change.execute(seen, [&id, &repository.name, &now, &directory_of(repository)])?;
        }
        change.commit()
    }
}

/// The directory that holds the records; empty for a repository in a store, which cannot be an empty mount point.
fn directory_of(repository: &Repository) -> String {
    let path = repository.places.first().and_then(|place| place.path());
    path.map_or_else(String::new, |path| path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string())
}

fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}

fn failed(action: &str, path: &Path, error: &rusqlite::Error) -> Error {
    let hint = "the catalog is only an index: remove the file, and the repositories fill it again; \
                or name another file with `catalog = \"…\"` in fullbore.toml";
    Error::refused(format!("catalog {}", path.display()), format!("cannot {action} it: {error}"), hint)
}
