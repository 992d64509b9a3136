//! Of a migration: what was moved, how far the target is, and how long the source was read-only.

use fullbore_engines::engine::Definition;
use serde::Serialize;

/// A migration.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MigrationReport {
    /// Source and target, with their versions.
    pub servers: Vec<String>,
    /// How the full is moved: `logical` or `physical`.
    pub method: &'static str,
    /// Tables of the full; with `--plan`, tables of the source.
    pub tables: u64,
    /// Rows of the full.
    pub rows: u64,
    /// Bytes of the tables on disk, as the source estimates them.
    pub expected_bytes: u64,
    /// What `--plan` foresees.
    pub foreseen: Option<ForeseenReport>,
    /// How long the full took.
    pub full_s: f64,
    /// How long the log was followed.
    pub follow_s: f64,
    /// Bytes of the log that were applied.
    pub applied_bytes: u64,
    /// Transactions that were applied.
    pub transactions: u64,
    /// The age of the newest applied change, at the last look; `None` if it was not known yet.
    pub lag_s: Option<f64>,
    /// Bytes of the log that were not applied yet, at the last look.
    pub behind_bytes: u64,
    /// Whether the target was as near as `--max-lag` asks, and did not fall behind afterwards.
    pub keeps_up: bool,
    /// The cut-over is done.
    pub cut_over: bool,
    /// How long the source could not be written to, until the target could take its place.
    pub downtime_s: Option<f64>,
    /// Of this: until the last change was applied.
    pub last_bytes_s: Option<f64>,
    /// Of this: the comparison of all rows.
    pub compare_s: Option<f64>,
    /// Tables and rows that were compared, and found equal.
    pub compared: Option<(u64, u64)>,
    /// The tables as the target has them, if they were made from those of another kind of database.
    pub definitions: Vec<DefinitionReport>,
}

/// A table that was made from one of another kind of database.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DefinitionReport {
    /// Its name.
    pub table: String,
    /// Its rows in the source.
    pub rows: u64,
    /// Bytes of its values, about as text.
    pub bytes: u64,
    /// The statement that makes it.
    pub create: String,
}

impl DefinitionReport {
    /// Of the engine.
    pub fn of(definition: &Definition) -> Self {
        let Definition { table, rows, bytes, create } = definition.clone();
        Self { table, rows, bytes, create }
    }
}

/// What `--plan` foresees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ForeseenReport {
    /// Bytes of rows to move.
    pub bytes: u64,
    /// How fast the source was read, as text.
    pub read_bytes_per_s: f64,
    /// How fast its log grows now.
    pub log_bytes_per_s: f64,
    /// The full: the least and the most, in seconds.
    pub full_s: [f64; 2],
    /// The downtime: the least and the most, in seconds.
    pub downtime_s: [f64; 2],
}
