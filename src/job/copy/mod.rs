//! Copies backup sets to other devices, as they are or made anew. See `docs/decisions/0014-copy.md`.

mod one;
mod prepare;
mod method;

use std::path::PathBuf;
use std::time::Instant;

use fullbore_core::cipher::SecretKey;
use fullbore_core::codec::Compression;
use fullbore_core::device::{Destination, Device};
use fullbore_core::media::total;
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};

pub use one::{Arrival, One};

use super::reading::Reading;
use super::restore;
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_repository::chain;
use fullbore_repository::discovery;

/// What the user asked for.
#[derive(Clone)]
pub struct Request {
    /// What to read: `--from`, `--key`, `--set`, `--latest`.
    pub reading: Reading,
    /// Access to the stores of the sets, if it is another account than for the copies.
    pub from_stores: Option<Stores>,
    /// `--chain`: also copies the sets that the named set depends on.
    pub chain: bool,
    /// `--to`.
    pub to: Vec<Device>,
    /// `--stripes`.
    pub stripes: Option<usize>,
    /// `--compression`.
    pub compression: Option<Compression>,
    /// `--encrypt-to`.
    pub encrypt_to: Vec<PathBuf>,
    /// The recipients in the configuration of the target: a set that is not encrypted is encrypted for them.
    pub encrypt_plain_to: Vec<PathBuf>,
    /// `--decrypt`.
    pub decrypt: bool,
    /// `--name-template`.
    pub name_template: Option<String>,
    /// `--init`.
    pub init: bool,
    /// `--mkdir`.
    pub mkdir: bool,
    /// `--continue-after-error`: media of another program are stored although pages are damaged.
    pub continue_after_error: bool,
    /// `--dry-run`.
    pub dry_run: bool,
    /// `--throttle`: bytes of media per second.
    pub throttle: Option<u64>,
}

impl Request {
    /// The conduct with the stores to read from.
    pub(super) fn source(&self, conduct: &Conduct) -> Conduct {
        let stores = self.from_stores.as_ref().unwrap_or(&conduct.stores);
        Conduct { stores: stores.clone(), ..conduct.clone() }
    }
}

/// Copies the sets that `--from` names and fills `report`, also when it fails.
///
/// # Errors
/// Any error; then no usable copy of the current set was left behind. Sets that were copied before are whole.
pub fn run(request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let begun = Instant::now();
    let key = discovery::read_key(request.reading.key.as_deref())?;
    let (discovered, places) = found(request, key.as_ref(), &request.source(conduct), report)?;
    let sets: Vec<&discovery::Found> = places.iter().map(|&at| &discovered.sets[at]).collect();
    refuse_one_name_for_many(request, sets.len())?;
    expect(request, &sets, conduct);
    for found in sets {
        One { request, found, key: key.as_ref(), arrival: None, known: None }.run(conduct, report)?;
    }
    end(request, begun, report);
    Ok(())
}

/// The sets to copy, each after its base.
pub(super) fn found(
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<(discovery::DiscoveredSets, Vec<usize>)> {
    let reading = &request.reading;
    if discovery::is_pipe(&reading.from)? {
        let why = "the end of a pipe is not known in advance, and it can be read only once";
        return Err(Error::usage("--from -", why, "put the stream into a file first, and name the file with --from"));
    }
    let alone = reading.choice.set.is_some() || reading.choice.latest;
    // The default is the newest chain.
    let choice = chain::Choice { latest: reading.choice.set.is_none(), ..reading.choice.clone() };
    let reading = &Reading { choice, ..reading.clone() };
    let mut discovered = reading.find(key, conduct)?;
    discovered.must_hold_something()?;
    let alone = !request.chain && (alone || discovered.sets.len() == 1);
    let sequence = match alone {
        true if reading.choice.set.is_none() && discovered.sets.len() == 1 => {
            let only =
                chain::Choice { set: Some(discovered.sets[0].set.backup_set_id.to_string()), ..reading.choice.clone() };
            restore::choose_by(&mut discovered, &only, chain::choose_one)
        }
        true => restore::choose_by(&mut discovered, &reading.choice, chain::choose_one),
        false => restore::choose(&mut discovered, &reading.choice),
    };
    let sequence = sequence.map_err(|error| naming_damage(error, &mut discovered))?;
    report.notes.extend(discovered.all_notes());
    report.warnings.extend(sequence.warnings);
    report.notes.extend(sequence.notes);
    Ok((discovered, sequence.sets))
}

/// A family that seems to be missing may be there, but damaged: then this gives the error of the damage.
fn naming_damage(error: Error, discovered: &mut discovery::DiscoveredSets) -> Error {
    let in_need =
        |id: uuid::Uuid| discovered.sets.iter().any(|found| found.media_set_id == id && found.set.incomplete.is_some());
    let damaged = discovered.unreadable.iter().position(|bad| !bad.leftover && bad.set.is_none_or(in_need));
    match (error, damaged) {
        (error, Some(at)) if restore::is_missing_family(&error, &discovered.known()) => {
            discovered.unreadable.swap_remove(at).error
        }
        (error, _) => error,
    }
}

/// Refuses one name for several sets.
pub(super) fn refuse_one_name_for_many(request: &Request, sets: usize) -> Result<()> {
    let fixed = request.to.iter().find(|device| !device.holds_many() && *device.place() != Destination::Null);
    match fixed.filter(|_| sets > 1) {
        None => Ok(()),
        Some(device) => Err(Error::usage(
            device.to_string(),
            format!("is one file, but {sets} sets would be copied"),
            "name directories or prefixes, which end in /; or name one set with --set ID",
        )),
    }
}

/// Sets the total for the display: bytes of media, or of the database if blocks are made anew.
pub(super) fn expect(request: &Request, sets: &[&discovery::Found], conduct: &Conduct) {
    let of = |found: &&discovery::Found| match method::CopyMethod::of(request, found) {
        Ok(method::CopyMethod::Anew { .. }) => found.database_bytes.unwrap_or(found.stored_bytes),
        _ => found.stored_bytes,
    };
    let bytes = total(sets.iter().map(of));
    conduct.progress.total.store(bytes, std::sync::atomic::Ordering::Relaxed);
}

/// The last numbers of the report.
pub(super) fn end(request: &Request, begun: Instant, report: &mut Report) {
    if request.dry_run {
        report.status = "planned".into();
    } else {
        report.set_speed(begun.elapsed().as_secs_f64());
    }
}
