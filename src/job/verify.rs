//! RESTORE VERIFYONLY: reads everything, checks everything, writes nothing.

use std::time::Instant;

use fullbore_core::cipher::SecretKey;
use fullbore_core::unpack::{NullTarget, Target};
use fullbore_core::{Error, Result};

use super::reading::{self, Media, Reading};
use super::{Conduct, media};
use crate::chain::{self, Choice, FoundSet};
use crate::report::Report;

/// Verifies the sets that `--from` names, without a choice all of them; fills `report`, also when damage is found.
///
/// # Errors
/// The first damage that was found, after everything else was looked at as well.
pub fn run(request: &Reading, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let begun = Instant::now();
    let (key, found) = request.begin(conduct, report)?;
    let done = match found {
        Media::Piped(mut set) => {
            let outcome = reading::unpack(&mut set, &request.knobs, &NullTarget, conduct, report)?;
            reading::book(&outcome, report);
            Ok(())
        }
        Media::Heap(heap) => verify_found(heap, request, key.as_ref(), conduct, report)?,
    };
    report.set_speed(begun.elapsed().as_secs_f64());
    done
}

/// The outer result ends the verification, the inner one is what it has found.
fn verify_found(
    heap: media::Heap,
    request: &Reading,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Result<()>> {
    heap.must_hold_something()?;
    let known = heap.known();
    let all = request.choice == Choice::default();
    let chosen = if all { all_but_leftovers(&known, report) } else { chain::choose(&known, &request.choice)?.sets };
    let total = chosen.iter().map(|&at| heap.sets[at].database_bytes.unwrap_or(0)).sum();
    conduct.progress.total.store(total, std::sync::atomic::Ordering::Relaxed);
    let mut damage = Vec::new();
    for &at in &chosen {
        match verify_set(&heap.sets[at], request, key, conduct, report) {
            Ok(()) => {}
            Err(error @ (Error::Damaged { .. } | Error::Incomplete { .. } | Error::Refused { .. })) => {
                damage.push(error)
            }
            Err(error) => return Err(error),
        }
    }
    let orphaned = |set: &&FoundSet| set.base.is_some_and(|base| known.iter().all(|full| full.backup_set_id != base));
    for set in known.iter().filter(orphaned) {
        let title = chain::title(set);
        report.warnings.push(format!("{title} cannot be restored from here: its full is not among these"));
    }
    let nothing_else = chosen.is_empty();
    for unreadable in heap.unreadable {
        match unreadable.leftover {
            true if nothing_else => damage.push(unreadable.error),
            true => {}
            // Of another set than the one that was asked for.
            false if !all => report.warnings.push(format!("not verified: {}", media::one_line(&unreadable.error))),
            false => damage.push(unreadable.error),
        }
    }
    Ok(first(damage, report))
}

/// All sets, without those that a killed backup has never finished, if there is any other.
fn all_but_leftovers(known: &[FoundSet], report: &mut Report) -> Vec<usize> {
    let unfinished = |set: &FoundSet| set.interrupted && set.incomplete.is_some();
    if known.iter().all(unfinished) {
        return (0..known.len()).collect();
    }
    let left_out = known.iter().filter(|set| unfinished(set));
    report.notes.extend(left_out.map(|set| format!("not verified: {} was never finished", chain::title(set))));
    (0..known.len()).filter(|&at| !unfinished(&known[at])).collect()
}

/// The first of several errors; the others become warnings.
fn first(damage: Vec<Error>, report: &mut Report) -> Result<()> {
    let mut damage = damage.into_iter();
    let Some(first) = damage.next() else { return Ok(()) };
    report.warnings.extend(damage.map(|error| format!("also: {}", media::one_line(&error))));
    Err(first)
}

fn verify_set(
    found: &media::Found,
    request: &Reading,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let (mut set, pool, plan) = reading::open(found, &request.knobs, key, report)?;
    let streams = set.manifest().map(|manifest| manifest.streams.clone()).unwrap_or_default();
    let pages = fullbore_engines::page_check(&set.header().engine, &streams);
    let target: &dyn Target = pages.as_deref().map_or(&NullTarget, |pages| pages);
    let outcome = reading::unpack_with(&mut set, &plan, &pool, target, conduct)?;
    reading::book(&outcome, report);
    report.warnings.extend(pages.iter().flat_map(|pages| pages.damaged()));
    Ok(())
}
