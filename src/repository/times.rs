//! When a set was stored, and what was found of it when: by the store's clock, as far as that can be known.

use std::collections::HashMap;

use fullbore_core::Result;
use uuid::Uuid;

use super::Repository;
use super::format::SetRecord;
use super::records::Entry;

/// In microseconds.
const SECOND: i64 = 1_000_000;
pub(super) const DAY: i64 = 86_400 * SECOND;

/// When something was last found of a set, by the store's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Verdicts {
    pub passed: Option<i64>,
    pub failed: Option<i64>,
    pub proven: Option<i64>,
}

/// The verdicts on each set: their names tell enough.
pub(super) fn verdicts(repository: &Repository, copied_at: Option<i64>) -> Result<HashMap<Uuid, Verdicts>> {
    let mut found: HashMap<Uuid, Verdicts> = HashMap::new();
    for entry in repository.records.list("verdicts/")? {
        let mut parts = entry.name.split('.');
        let Some(id) = parts.next().and_then(|id| Uuid::try_parse(id).ok()) else { continue };
        let verdicts = found.entry(id).or_default();
        let named = parts.next().and_then(|time| time.parse::<i64>().ok());
        let of = match parts.next() {
            Some("passed") => &mut verdicts.passed,
            Some("failed") => &mut verdicts.failed,
            Some("proven") => &mut verdicts.proven,
            _ => continue,
        };
        let before = named.filter(|&time| copied_at.is_some_and(|copied| time < copied));
        *of = (*of).max(Some(before.unwrap_or(entry.modified)));
    }
    Ok(found)
}

impl Verdicts {
    /// What was found good and written to since, at `modified`, may be something else now. What came here with the whole repository is younger than what
    /// was found of it.
    pub fn forget_before(&mut self, modified: Option<i64>, copied_at: Option<i64>) {
        // Many a store tells whole seconds only; and a large repository takes its time to be copied.
        let of_copying = copied_at.map_or(i64::MIN, |at| at.saturating_add(DAY));
        let Some(modified) = modified.filter(|modified| *modified > of_copying) else { return };
        for found_good in [&mut self.passed, &mut self.proven] {
            *found_good = found_good.filter(|at| at.saturating_add(SECOND) >= modified);
        }
    }
}

/// When a set was stored, by the store's clock. Many a store tells whole seconds only: within that second the writer's clock decides. It decides
/// too of what was copied here with the whole repository: the store knows only when that was.
pub(super) fn stored_at(first: &Entry, record: &SetRecord, copied_at: Option<i64>) -> i64 {
    if let Some(before) = record.stored_at {
        return before.min(first.modified);
    }
    if copied_at.is_some_and(|copied| record.finished_at < copied) {
        return record.finished_at;
    }
    let within = first.modified % SECOND == 0 && record.finished_at.div_euclid(SECOND) == first.modified / SECOND;
    if within { record.finished_at } else { first.modified }
}
