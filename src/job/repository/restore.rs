//! A restore out of a repository: the chain is found there, and cannot be removed while it is read.

use fullbore_core::Result;

use super::{Setting, of_database};
use crate::chain::{self, FoundSet};
use crate::job::restore::{self, Request};
use crate::job::{Conduct, media};
use crate::report::Report;
use crate::repository::inventory::StoredSet;

/// Restores the database of this name and fills `report`, also when it fails.
///
/// # Errors
/// Those of [`restore::run`], and a chain that is not whole.
pub fn run(
    request: &Request,
    database: Option<&str>,
    setting: Setting<'_>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let repository = setting.open(conduct)?;
    let inventory = setting.inventory(&repository, conduct, &mut report.warnings)?;
    let sets = of_database(&inventory.sets, database)?;
    let (known, sets) = usable(sets);
    let mut choice = request.reading.choice.clone();
    // In a repository one database's newest chain is what is meant.
    choice.latest |= choice.set.is_none();
    let sequence = chain::choose(&known, &choice)?;
    report.warnings.extend(sequence.warnings);
    report.notes.extend(sequence.notes);
    let chosen: Vec<&StoredSet> = sequence.sets.iter().map(|&at| sets[at]).collect();
    let mut request = request.clone();
    request.reading.from.clear();
    for set in &chosen {
        request.reading.from.extend(set.devices(&repository)?.iter().map(ToString::to_string));
    }
    request.reading.choice.latest = false;
    request.reading.choice.set = chosen.last().map(|set| set.record.backup_set_id.to_string());
    if request.dry_run {
        return restore::run(&request, conduct, report);
    }
    let ids: Vec<_> = chosen.iter().map(|set| set.record.backup_set_id).collect();
    let of = chosen.last().map(|set| set.record.database.clone());
    setting.as_task(&repository, "restore", of, conduct, report, |task, report| {
        task.lease(&ids)?;
        let done = restore::run(&request, conduct, report);
        done.map_err(|error| match error {
            error @ fullbore_core::Error::Refused { .. } => error,
            error => with_copies(error, &chosen),
        })
    })
}

/// What can be chosen from: sets that are not about to go.
fn usable(sets: Vec<&StoredSet>) -> (Vec<FoundSet>, Vec<&StoredSet>) {
    let sets: Vec<_> = sets.into_iter().filter(|set| !set.tombstone || set.incomplete.is_none()).collect();
    (sets.iter().map(|set| set.found()).collect(), sets)
}

/// Names the sets of the chain that failed: their families are under names that tell little.
fn with_copies(error: fullbore_core::Error, chosen: &[&StoredSet]) -> fullbore_core::Error {
    let titles: Vec<String> = chosen.iter().map(|set| super::title(&set.record)).collect();
    match media::one_line(&error) {
        line if titles.iter().any(|title| line.contains(title)) => error,
        _ => error.noting(&format!("the chain was: {}", titles.join("; "))),
    }
}
