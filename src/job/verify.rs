//! RESTORE VERIFYONLY: reads everything, checks everything, writes nothing.

use std::collections::HashSet;
use std::time::Instant;

use fullbore_core::cipher::SecretKey;
use fullbore_core::media::{SetKind, total};
use fullbore_core::unpack::{NullTarget, Target};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::reading::{self, Media, Reading};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_repository::chain::{self, Choice, FoundSet};
use fullbore_repository::discovery;

/// Verifies the chosen sets of `--from`, by default all of them; fills `report`, also when damage is found.
///
/// # Errors
/// The first damage, after all other sets were verified too.
pub fn run(request: &Reading, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let begun = Instant::now();
    let (key, found) = report.timed(reading::FINDING, |_| request.begin(conduct))?;
    let done = match found {
        Media::Piped(mut set) => {
            let outcome = reading::unpack(&mut set, &request.knobs, &NullTarget, conduct, report)?;
            reading::book(&outcome, report);
            Ok(())
        }
        Media::DiscoveredSets(discovered) => verify_found(discovered, request, key.as_ref(), conduct, report)?,
    };
    report.set_speed(begun.elapsed().as_secs_f64());
    done
}

/// Verifies the set `id` by itself, also without its full; `request` names all its families.
///
/// # Errors
/// It is damaged, missing or not whole, or cannot be read.
pub(super) fn one(request: &Reading, id: Uuid, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let key = discovery::read_key(request.key.as_deref())?;
    let discovered = request.find(key.as_ref(), conduct)?;
    let Some(found) = discovered.sets.iter().find(|found| found.set.backup_set_id == id) else {
        let damaged = discovered.unreadable.into_iter().next().map(|bad| bad.error);
        let gone = || {
            let (why, hint) = match discovered.sets.first() {
                Some(other) => (instead(other), "its families were replaced: choose another set"),
                None => ("its families are not there any more".into(), "run it again"),
            };
            Error::incomplete(format!("backup set {id}"), why, hint)
        };
        return Err(damaged.unwrap_or_else(gone));
    };
    if let Some(why) = &found.set.incomplete {
        let other = discovered.sets.iter().find(|other| other.media_set_id != found.media_set_id);
        let why = other.map_or_else(|| why.clone(), |other| format!("{why}; {}", instead(other)));
        return Err(Error::incomplete(chain::title(&found.set), why, "choose another set"));
    }
    match verify_set(found, request, key.as_ref(), conduct, report)? {
        Verified::Yes => Ok(()),
        // Nothing was read, so there is no verdict.
        Verified::Replaced => {
            let why = "was replaced, or removed, before it could be read";
            Err(Error::refused(chain::title(&found.set), why, "run it again"))
        }
    }
}

/// The message that other families have the names of the set.
fn instead(other: &discovery::Found) -> String {
    format!("its families now contain {}", chain::title(&other.set))
}

/// How often the sets that have replaced others are verified in their turn.
const TURNS: usize = 10;

/// The outer result ends the verification, the inner one is the verdict.
fn verify_found(
    mut discovered: discovery::DiscoveredSets,
    request: &Reading,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Result<()>> {
    discovered.must_hold_something()?;
    report.notes.extend(discovered.all_notes());
    let all = request.choice == Choice::default();
    let (mut damage, mut done, mut first_turn) = (Vec::new(), HashSet::new(), true);
    let mut right = HashSet::new();
    let mut replaced = Vec::new();
    for _ in 0..TURNS {
        let known = discovered.known();
        let chosen = if all { all_but_leftovers(&known, report) } else { chain::choose(&known, &request.choice)?.sets };
        if std::mem::take(&mut first_turn) {
            let bytes = total(chosen.iter().map(|&at| discovered.sets[at].database_bytes.unwrap_or(0)));
            conduct.progress.total.store(bytes, std::sync::atomic::Ordering::Relaxed);
        }
        replaced.clear();
        for found in chosen.iter().map(|&at| &discovered.sets[at]) {
            if done.contains(&found.media_set_id) {
                continue;
            }
            let as_protected = chain::check_against(&known, &found.set);
            match as_protected.and_then(|()| verify_set(found, request, key, conduct, report)) {
                Ok(Verified::Yes) => {
                    right.insert(found.set.backup_set_id);
                }
                Ok(Verified::Replaced) => {
                    replaced.push(chain::title(&found.set));
                    continue;
                }
                Err(error @ (Error::Damaged { .. } | Error::Incomplete { .. } | Error::Refused { .. })) => {
                    damage.push(error)
                }
                Err(error) => return Err(error),
            }
            done.insert(found.media_set_id);
        }
        if replaced.is_empty() {
            break;
        }
        // Verifies the sets that have replaced them.
        discovered = request.find(key, conduct)?;
    }
    let never = replaced.iter().map(|title| format!("not verified: {title} was replaced before it could be read"));
    report.warnings.extend(never);
    if done.is_empty() && !replaced.is_empty() {
        return Err(Error::refused("--from", "every set there was replaced before it could be read", "run it again"));
    }
    let known = discovered.known();
    match all {
        true => damage.extend(right_without_base(&known, &right)),
        // The chosen sets have their bases.
        false => {
            let orphans = without_base(&known).into_iter();
            report.warnings.extend(orphans.map(|(set, why)| format!("{}: {why}", chain::title(set))));
        }
    }
    damage.extend(unreadable(discovered.unreadable, done.is_empty(), all, report));
    Ok(first(damage, report))
}

/// The sets that cannot be restored because their base is missing, each with the reason.
fn without_base(known: &[FoundSet]) -> Vec<(&FoundSet, String)> {
    let ids: HashSet<Uuid> = known.iter().map(|set| set.backup_set_id).collect();
    let cannot_be_restored = |set: &FoundSet| {
        let choice = Choice { set: Some(set.backup_set_id.to_string()), ..Choice::default() };
        // In a log chain, another full may take the place of the missing set.
        matches!(chain::choose(known, &choice), Err(Error::Incomplete { .. }))
    };
    let orphan = |set: &'_ FoundSet| {
        let base = set.base.filter(|base| !ids.contains(base) && cannot_be_restored(set))?;
        let what = if set.kind == SetKind::Log { "the set that it continues" } else { "its full" };
        Some(format!("it cannot be restored: {what}, {base}, is missing"))
    };
    known.iter().filter_map(|set| Some((set, orphan(set)?))).collect()
}

/// An error for each set whose own bytes are `right`, but that cannot be restored because its base is missing.
pub(super) fn right_without_base(known: &[FoundSet], right: &HashSet<Uuid>) -> Vec<Error> {
    let of_right = without_base(known).into_iter().filter(|(set, _)| right.contains(&set.backup_set_id));
    let hint = "name the place of that set too; if it is lost, take a new full";
    let error = |(set, why)| Error::incomplete(chain::title(set), format!("its own bytes are right, but {why}"), hint);
    of_right.map(error).collect()
}

/// The unreadable families that are damage for this verification; the others become warnings.
fn unreadable(found: Vec<discovery::Unreadable>, nothing_else: bool, all: bool, report: &mut Report) -> Vec<Error> {
    let mut damage = Vec::new();
    for unreadable in found {
        match unreadable.leftover {
            true if nothing_else => damage.push(unreadable.error),
            true => {}
            // It may belong to a set that was not chosen.
            false if !all => report.warnings.push(format!("not verified: {}", unreadable.error.one_line())),
            false => damage.push(unreadable.error),
        }
    }
    damage
}

/// All sets, without unfinished sets of killed backups if there is any other set.
fn all_but_leftovers(known: &[FoundSet], report: &mut Report) -> Vec<usize> {
    if known.iter().all(FoundSet::is_unfinished) {
        return (0..known.len()).collect();
    }
    let left_out = known.iter().filter(|set| set.is_unfinished());
    report.notes.extend(left_out.map(|set| format!("not verified: {} was never finished", chain::title(set))));
    (0..known.len()).filter(|&at| !known[at].is_unfinished()).collect()
}

/// The first of several errors; the others become warnings.
pub(super) fn first(damage: Vec<Error>, report: &mut Report) -> Result<()> {
    let mut damage = damage.into_iter();
    let Some(first) = damage.next() else { return Ok(()) };
    report.warnings.extend(damage.map(|error| format!("also: {}", error.one_line())));
    Err(first)
}

/// The result of the verification of a set.
enum Verified {
    /// All of it was read and is good.
    Yes,
    /// Another backup has replaced it.
    Replaced,
}

/// Verifies one set. If another backup is replacing it now, looks for it under its new names.
fn verify_set(
    found: &discovery::Found,
    request: &Reading,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Verified> {
    let mut again = None;
    let opened = loop {
        let found = again.as_ref().unwrap_or(found);
        // A check of pages gets the bytes of all streams.
        let delivers = fullbore_engines::pages(&found.header.engine).is_some();
        let opened =
            report.timed(reading::OPENING, |report| reading::open(&[found], &request.knobs, key, delivers, report));
        match opened {
            Err(_) if !found.is_in_place() => {}
            opened => break opened,
        }
        let discovered = discovery::find(&request.from, &conduct.stores)?;
        let same =
            |other: &discovery::Found| other.media_set_id == found.media_set_id && other.set.incomplete.is_none();
        match discovered.sets.into_iter().find(same) {
            Some(moved) => again = Some(moved),
            None => return Ok(Verified::Replaced),
        }
    };
    let mut opened = opened?;
    let manifest = opened.sets[0].manifest();
    manifest.map_or(Ok(()), |manifest| fullbore_engines::check_names(&manifest.engine, &manifest.streams))?;
    let streams = manifest.map(|manifest| manifest.streams.clone()).unwrap_or_default();
    let engine = fullbore_engines::pages(&found.header.engine);
    // Also for pages that cannot be checked here, and for sets whose damage is in their full.
    let said = manifest
        .and_then(|manifest| fullbore_engines::damaged_at_source(&manifest.engine, &manifest.position.last.value()));
    let title = fullbore_repository::chain::title(&found.set);
    report.warnings.extend(said.map(|said| format!("{title}: {said}: a restore needs --continue-after-error")));
    let pages = engine.map(|engine| engine.check(&streams));
    let target: &dyn Target = pages.as_deref().map_or(&NullTarget, |pages| pages);
    let outcome =
        opened.unpack_next(target, conduct).map_err(|error| again.as_ref().unwrap_or(found).naming_copies(error))?;
    reading::book(&outcome, report);
    report.warnings.extend(pages.iter().flat_map(|pages| pages.damaged()));
    Ok(Verified::Yes)
}
