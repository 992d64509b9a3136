//! Retention: backup sets and a policy in; what to keep, why, and what to delete in which order out. Pure: no I/O and no clock.
//!
//! Two sentences are proved by `model.rs` (docs/RETENTION.md tells them to the user): a plan never removes what a kept
//! restore point needs, and it deletes a set only when nothing kept needs it and a newer chain of the same database
//! was verified.

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

pub use plan::{DatabasePlan, Fate, RetentionPlan, plan};
pub use policy::{KeepRules, Policy, Rule};
pub use reason::Reason;

/// A backup set as retention sees it. Times are microseconds since 1970, UTC, by the store's clock where it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSet {
    /// Identity of the backup.
    pub backup_set_id: Uuid,
    /// What it contains.
    pub kind: SetKind,
    /// What it stands on: the full of a differential; the full, differential or log that a log continues.
    pub base: Option<Uuid>,
    /// Engine and identity of the database: sets with the same text belong together.
    pub database: String,
    /// Taken outside the chain.
    pub copy_only: bool,
    /// When the backup began: it shows nothing that was committed later, as far as anybody can say.
    pub started_at: i64,
    /// When the store had its commit record. Without it, `started_at` counts.
    pub finished_at: Option<i64>,
    /// Length of all families.
    pub bytes: u64,
    /// All families are there.
    pub complete: bool,
    /// Never committed: running or killed. Kept and reported; who sweeps leftovers deals with it.
    pub unfinished: bool,
    /// It does not tell its database: only a key would. It may be anybody's newest.
    pub unknown: bool,
    /// The newest verification or restore test that it passed.
    pub verified_at: Option<i64>,
    /// The newest one that found damage.
    pub failed_at: Option<i64>,
    /// Object Lock: the store refuses to delete it before.
    pub locked_until: Option<i64>,
    /// Who is reading it, or building on it.
    pub leased_by: Option<String>,
    /// Another run has said that it will delete it: nobody may count on it.
    pub tombstoned: bool,
}

impl KeptSet {
    /// When the store had it, as far as that is known.
    pub fn time(&self) -> i64 {
        self.finished_at.unwrap_or(self.started_at)
    }

    /// True when the newest verdict found damage. Of two verdicts of the same moment the bad one counts.
    pub fn is_damaged(&self) -> bool {
        self.failed_at.is_some_and(|failed| self.verified_at.is_none_or(|passed| failed >= passed))
    }
}
