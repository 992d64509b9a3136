//! Retention: from backup sets and a policy to the sets to keep, with reasons, and the sets to delete, in order. Pure:
//! no I/O and no clock.
//!
//! `model.rs` proves two rules (docs/RETENTION.md explains them to the user). A plan never removes a set that a kept
//! restore point needs. It deletes a set only when no kept set needs it and a newer chain of the same database was
//! verified.

mod graph;
mod plan;
mod policy;
mod reason;

#[cfg(test)]
mod model;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use fullbore_core::media::SetKind;
use uuid::Uuid;

pub use plan::{DatabasePlan, KeepOrDelete, RetentionPlan, plan};
pub use policy::{KeepRules, Policy, Rule};
pub use reason::Reason;

/// A backup set as retention sees it. Times are microseconds since 1970, UTC, by the store's clock if it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSet {
    /// Identity of the backup.
    pub backup_set_id: Uuid,
    /// What it contains.
    pub kind: SetKind,
    /// Its base: the full of a differential; the full, differential or log that a log continues.
    pub base: Option<Uuid>,
    /// Engine and identity of the database: sets with the same text belong together.
    pub database: String,
    /// Taken outside the chain.
    pub copy_only: bool,
    /// When the backup began. It is not known to hold any later commit.
    pub started_at: i64,
    /// When the store had its commit record. Without it, `started_at` counts.
    pub finished_at: Option<i64>,
    /// Length of all families.
    pub bytes: u64,
    /// All families are there.
    pub complete: bool,
    /// Never committed: running or killed. It is kept and reported; the removal of leftovers handles it.
    pub unfinished: bool,
    /// Its database is unknown without a key. It may be the newest set of any database.
    pub unknown: bool,
    /// The newest verification or restore test that it passed.
    pub verified_at: Option<i64>,
    /// The newest verification or restore test that found damage.
    pub failed_at: Option<i64>,
    /// Object Lock: the store refuses to delete it before this time.
    pub locked_until: Option<i64>,
    /// The task that reads it, or makes a set on top of it.
    pub leased_by: Option<String>,
    /// Another run will delete it: no decision may depend on it.
    pub tombstoned: bool,
}

impl KeptSet {
    /// When the store had it, if known; otherwise when it began.
    pub fn time(&self) -> i64 {
        self.finished_at.unwrap_or(self.started_at)
    }

    /// True when the newest verdict found damage. If two verdicts have the same time, the bad one counts.
    pub fn is_damaged(&self) -> bool {
        self.failed_at.is_some_and(|failed| self.verified_at.is_none_or(|passed| failed >= passed))
    }
}
