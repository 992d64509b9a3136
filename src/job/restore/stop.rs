//! `--stop-at-gtid`, `--stop-before-gtid` and `--stop-at FILE:OFFSET`: the log set that has the place.

use fullbore_core::cipher::SecretKey;
use fullbore_core::conduct::Conduct;
use fullbore_core::io::{PrivateDirectory, scratch_directory};
use fullbore_core::media::{Manifest, SetKind};
use fullbore_core::pool::Pool;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::LogStop;
use fullbore_repository::chain::Choice;
use fullbore_repository::discovery;

use super::Request;
use super::log::{self, Unpacked};
use crate::report::Report;

/// The choice of the log set that has `stop`, among those that were found.
///
/// # Errors
/// None has it.
pub(in crate::job) fn choice(
    stop: &LogStop,
    found: &[discovery::Found],
    choice: &Choice,
    key: Option<&SecretKey>,
) -> Result<Choice> {
    let nothing = Pool::new(0, 4096)?;
    let logs = || found.iter().rev().filter(|found| found.set.kind == SetKind::Log);
    let mut held: Option<(String, Vec<u8>)> = None;
    // The set that begins there. It counts if no set before it ends there: the full does.
    let mut begun = None;
    for found in logs().filter(|found| found.set.incomplete.is_none()) {
        let Some(engine) = fullbore_engines::log(&found.header.engine) else { continue };
        engine.demand_name(stop)?;
        let opened = discovery::open_set(found, &nothing, 1, key)?;
        let Some(manifest) = opened.manifest() else { continue };
        let set = found.set.backup_set_id.to_string();
        if engine.begins_at(&manifest.position, stop) {
            begun.get_or_insert_with(|| (set.clone(), Vec::new()));
        }
        if !engine.holds(&manifest.position, stop) {
            continue;
        }
        let range = engine.range(SetKind::Log, &manifest.position, None);
        let history = range.and_then(|range| Some(range.last?.history)).unwrap_or_default();
        match &held {
            // The newest of one server; of two servers it is unknown which one is meant.
            Some((_, other)) if *other != history => {
                let why = "the logs of two servers have this place: the chain has a fail-over between them";
                return Err(Error::refused(stop.option(), why, "stop at a GTID or at a time"));
            }
            Some(_) => {}
            None => held = Some((set, history)),
        }
    }
    if let Some((set, _)) = held.or(begun) {
        return Ok(Choice { set: Some(set), whole_log: true, latest: false, ..choice.clone() });
    }
    let (why, hint) = match logs().count() {
        0 => ("there are no log sets here", "take log backups: backup --kind log, or log follow"),
        _ => (
            "no log set has it",
            "give one that is in a log set; `fullbore inspect files --json` shows where a set begins and ends",
        ),
    };
    Err(Error::refused(stop.option(), why, hint))
}

/// Looks whether a restore can stop at a place in the log, before the target changes: the log set that has the place is read up to it.
/// `base` is the manifest of the full below the log sets.
///
/// # Errors
/// The place is inside of a transaction, or the set is damaged.
pub(super) fn demand(
    (base, logs): (&Manifest, &[discovery::Found]),
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &Report,
) -> Result<()> {
    let (Some(stop @ LogStop::Place(_)), Some(found)) = (request.stop(), logs.last()) else { return Ok(()) };
    let scratch = PrivateDirectory::new(&scratch_directory(), "stop")?;
    // What is read here is read again for the restore, and counts then.
    let unpacked = Unpacked::within(scratch.path(), found, request, key, conduct, &mut report.clone())?;
    log::engine_of(&found.header.engine)?.demand_stop(&unpacked.set(scratch.path(), &log::end_of(base)?), &stop)
}
