//! `verify` of media of other programs.

use std::sync::atomic::Ordering;
use std::time::Instant;

use fullbore_core::conduct::Conduct;
use fullbore_core::pool::Pool;
use fullbore_core::{Error, Result};
use fullbore_engines::{ForeignMediaSet, ForeignVerification, families_at_once};
use serde_json::Value;

use super::{AHEAD, ForeignDevices, READ, copies};
use crate::report::Report;

/// Verifies every media set; fills `report`, also when damage is found. With `file`, only damage in the set at this
/// position counts.
///
/// # Errors
/// A family is missing, or the first damage, after all other media sets were read too.
pub fn verify(found: &ForeignDevices, file: Option<u16>, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let begun = Instant::now();
    conduct.progress.total.store(found.bytes(), Ordering::Relaxed);
    let description = found.describe_first(conduct)?;
    let orphans: Vec<Error> = description.without_base().into_iter().map(missing_base).collect();
    report.warnings.extend(description.warnings);
    // A missing family comes before everything else.
    let (mut damage, mut whole) = (Vec::new(), Vec::new());
    for mut set in description.media_sets {
        match set.incomplete.take() {
            Some(error) => damage.push(error),
            None => whole.push(set),
        }
    }
    for set in &whole {
        describe(set, report);
        damage.extend(copies::compare(found, set, conduct, report)?);
        let verified = verify_set(found, set, file, conduct)?;
        report.sets.extend(verified.sets);
        report.source_bytes += verified.bytes;
        report.stored_bytes += verified.bytes;
        report.notes.extend(verified.facts);
        report.warnings.extend(verified.warnings);
        report.add_coverage(verified.coverage);
        damage.extend(verified.damage);
    }
    // The bytes of these sets are right, but nothing can be restored from them here.
    damage.extend(orphans);
    report.set_speed(begun.elapsed().as_secs_f64());
    if !damage.is_empty() {
        let lines = report.coverage_lines();
        report.notes.extend(lines);
    }
    crate::job::verify::first(damage, report)
}

fn missing_base((base, differential): (&str, &str)) -> Error {
    let why = format!("is not here, and the differential {differential} cannot be restored without it");
    Error::incomplete(format!("the full backup {base}"), why, "name the files of this full too")
}

/// The database of the first set, for the report.
fn describe(set: &ForeignMediaSet, report: &mut Report) {
    let first = set.sets.first().filter(|_| report.media_set_id.is_none());
    let Some(first) = first else { return };
    report.media_set_id = Some(set.id.clone());
    report.database = first.line.get("DatabaseName").and_then(Value::as_str).map(str::to_owned);
}

fn verify_set(
    found: &ForeignDevices,
    set: &ForeignMediaSet,
    file: Option<u16>,
    conduct: &Conduct,
) -> Result<ForeignVerification> {
    // Each family that is being read has at most its own share of the buffers, so no one waits for another.
    let pool = Pool::new((AHEAD + 1) * families_at_once(set.devices.len()), READ)?;
    let families = set.devices.iter().map(|name| found.open(name, &pool, conduct));
    found.media.verify(families.collect::<Result<_>>()?, file)
}
