//! Verifies sets in a repository: each gets a verdict that all hosts see.

use std::collections::HashSet;
use std::time::Instant;

use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::databases::{meant, to_choose_from};
use super::hints::{of_repository, without_sets};
use super::{Setting, title};
use crate::job::reading::Reading;
use crate::job::verify;
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_repository::Repository;
use fullbore_repository::chain::{self, FoundSet};
use fullbore_repository::discovery;
use fullbore_repository::format::{self, VerdictRecord};
use fullbore_repository::inventory::StoredSet;
use fullbore_repository::times::JudgedReading;

/// Verifies the sets of a database, or of all; with `--set` one, with `--latest` the newest chain. Fills `report`, also
/// when it finds damage.
///
/// # Errors
/// The first damage, after all other sets were verified too; and an unreadable set (of another key) if no set could be
/// read.
pub fn run(
    reading: &Reading,
    database: Option<&str>,
    setting: Setting<'_>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let begun = Instant::now();
    let repository = setting.open(conduct)?;
    let inventory = setting.inventory(&repository, conduct, &mut report.warnings)?;
    let meant = meant(&repository, &inventory.sets, database);
    let database = meant.as_deref();
    let sets = match (database, &reading.choice.set, reading.choice.latest) {
        (None, None, false) => inventory.sets.iter().collect(),
        (_, set, _) => to_choose_from(&inventory.sets, database, set.as_deref(), &repository.name)?,
    };
    let chosen = chosen(sets, reading).map_err(|error| of_repository(error, &repository.name))?;
    if chosen.is_empty() {
        return Err(without_sets(&repository.name));
    }
    let all = reading.choice.set.is_none() && !reading.choice.latest;
    let ids: Vec<Uuid> = chosen.iter().map(|set| set.record.backup_set_id).collect();
    setting.as_reader(&repository, ("verify", database.map(str::to_owned), &ids), conduct, report, |report| {
        let (mut damage, mut unread, mut right) = (Vec::new(), Vec::new(), HashSet::new());
        for set in chosen {
            match verified(set, &inventory.sets, reading, &repository, conduct, report) {
                Ok(()) => {
                    right.insert(set.record.backup_set_id);
                }
                Err(error @ (Error::Damaged { .. } | Error::Incomplete { .. })) => damage.push(error),
                // The next set may need no key.
                Err(error @ (Error::Usage { .. } | Error::Refused { .. })) if all && is_sealed(set, &repository) => {
                    unread.push((set, error));
                }
                Err(error) => return Err(error),
            }
        }
        report.set_speed(begun.elapsed().as_secs_f64());
        if right.is_empty() && damage.is_empty() && !unread.is_empty() {
            return Err(unread.remove(0).1);
        }
        let not = unread.iter().map(|(set, why)| format!("not verified: {}: {}", title(&set.record), why.one_line()));
        report.warnings.extend(not);
        if all {
            let known: Vec<FoundSet> = inventory.sets.iter().map(StoredSet::found).collect();
            damage.extend(verify::right_without_base(&known, &right));
        }
        verify::first(damage, report)
    })
}

/// True for a set that is encrypted by its header: that this set cannot be opened says nothing about other sets.
fn is_sealed(set: &StoredSet, repository: &Repository) -> bool {
    header_says(set, repository) == Some(true)
}

/// Whether its header says that it is encrypted; `None` if the header cannot be read.
fn header_says(set: &StoredSet, repository: &Repository) -> Option<bool> {
    let first = set.record.families.first()?.device(&repository.places).ok()?;
    let header = discovery::header_on(&first, &repository.stores).ok()??;
    Some(!header.set.keys.is_empty())
}

fn chosen<'a>(sets: Vec<&'a StoredSet>, reading: &Reading) -> Result<Vec<&'a StoredSet>> {
    let choice = &reading.choice;
    if choice.set.is_none() && !choice.latest {
        return Ok(sets.into_iter().filter(|set| !set.tombstone).collect());
    }
    let known: Vec<_> = sets.iter().map(|set| set.found()).collect();
    let sequence = chain::choose(&known, choice)?;
    // With --set this one set is verified; with --latest the whole chain.
    let from = if choice.set.is_some() { sequence.sets.len().saturating_sub(1) } else { 0 };
    Ok(sequence.sets[from..].iter().map(|&at| sets[at]).collect())
}

/// Checks that a set is encrypted if its base is. Headers count: anybody may have written a record.
fn check_against_base(set: &StoredSet, known: &[StoredSet], repository: &Repository) -> Result<()> {
    let as_it_is = |set: &StoredSet| {
        let encrypted = header_says(set, repository).unwrap_or(set.record.encrypted);
        FoundSet { encrypted, ..set.found() }
    };
    let is_base = |other: &&StoredSet| set.record.base == Some(other.record.backup_set_id);
    let bases: Vec<FoundSet> = known.iter().filter(is_base).map(as_it_is).collect();
    if bases.is_empty() { Ok(()) } else { chain::check_against(&bases, &as_it_is(set)) }
}

/// Verifies one set and records the verdict.
fn verified(
    set: &StoredSet,
    known: &[StoredSet],
    reading: &Reading,
    repository: &Repository,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let begun = Instant::now();
    let id = set.record.backup_set_id;
    let mut judged = None;
    let done = match &set.incomplete {
        Some(why) => {
            Err(Error::incomplete(title(&set.record), why, "`fullbore restore` cannot use it; take another backup"))
        }
        None => {
            let from = set.devices(repository)?.iter().map(ToString::to_string).collect();
            let of = judged.insert(JudgedReading::begin(repository, [&set.record])?);
            let done = check_against_base(set, known, repository)
                .and_then(|()| verify::one(&Reading { from, ..reading.clone() }, id, conduct, report));
            if done.is_ok() {
                report.warnings.extend(of.end(repository)?);
            }
            done
        }
    };
    let error = match &done {
        Ok(()) => None,
        // No verdict on the set: a wrong key, a signal, a store that does not answer.
        Err(
            Error::Usage { .. } | Error::Io { .. } | Error::Refused { .. } | Error::Cancelled { .. } | Error::Halted,
        ) => {
            return done;
        }
        Err(error) => Some(error.to_string()),
    };
    let verdict = VerdictRecord {
        by: "verify".into(),
        host: fullbore_core::resources::host(),
        elapsed_s: begun.elapsed().as_secs_f64(),
        error,
    };
    let began = judged.filter(|_| verdict.error.is_none()).map(JudgedReading::began).transpose();
    if let Err(unwritten) = began.and_then(|began| put_verdict(repository, id, "passed", &verdict, began)) {
        let why = unwritten.one_line();
        report.warnings.push(format!("cannot record the result of {}: {why}", title(&set.record)));
    }
    done
}

/// Records a verdict for every host to see; `good` is the name of a good one. A good one says when its reading began:
/// bytes that are written to a family after that may not have been read.
///
/// # Errors
/// The repository cannot be written to.
pub fn put_verdict(
    repository: &Repository,
    set: Uuid,
    good: &str,
    verdict: &VerdictRecord,
    began: Option<i64>,
) -> Result<()> {
    let passed = match (&verdict.error, began) {
        (Some(_), _) => "failed".to_owned(),
        (None, Some(began)) => format!("{good}.{began}"),
        (None, None) => good.to_owned(),
    };
    let time = jiff::Timestamp::now().as_microsecond();
    let error = verdict.error.clone().map(|error| repository.told(error));
    let verdict = VerdictRecord { error, ..verdict.clone() };
    repository.records.write(&format!("verdicts/{set}.{time}.{passed}.json"), &format::encode(&verdict)?)
}
