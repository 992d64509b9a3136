//! Tables of stored media of another program: their families are read out of their sets, and no file of them is written.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use fullbore_core::cipher::SecretKey;
use fullbore_core::conduct::Conduct;
use fullbore_core::media::Manifest;
use fullbore_core::pool::Pool;
use fullbore_core::unpack::MediaSet;
use fullbore_core::{Error, Result};
use fullbore_engines::foreign_set::stored_family::{StoredFamilies, StoredFamilyBytes};
use fullbore_engines::{FOREIGN_HEAD, FamilyBytes, ForeignTables};
use fullbore_repository::chain::Choice;
use fullbore_repository::discovery;
use serde_json::Value;

use super::foreign::{ForeignDevices, ForeignObject};
use super::reading::Reading;
use super::restore::{self, NeededSets};
use crate::report::Report;

/// What is said of log backups that follow the chosen set.
pub(super) const NO_LOGS: &str = "the log backups are not applied: a restore to files takes a full and a differential";

/// The set on these media that is meant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// That with the last pages.
    Newest,
    /// `--file`.
    Position(u16),
}

/// Opens the tables of the set that `--from` names, if it holds media of another program.
///
/// # Errors
/// No complete chain is there, a set that it needs is not there, or a set or its tables cannot be read.
pub(super) fn among_sets(
    reading: &Reading,
    wanted: Wanted,
    scratch: &Path,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Option<Box<dyn ForeignTables>>> {
    if discovery::is_pipe(&reading.from)? {
        return Ok(None);
    }
    let key = discovery::read_key(reading.key.as_deref())?.map(Arc::new);
    let mut discovered = reading.find(key.as_deref(), conduct)?;
    // The job that reads other sets reports what is wrong with these.
    let Ok(sequence) = restore::choose(&mut discovered, &reading.choice) else { return Ok(None) };
    let Some(chosen) = sequence.sets.last().map(|&at| &discovered.sets[at]) else { return Ok(None) };
    let chosen_set = manifest(chosen, key.as_ref())?;
    let Some(media) = fullbore_engines::media_of(&chosen_set.engine) else { return Ok(None) };
    report.warnings.extend(sequence.warnings);
    // A set that cannot be opened is not needed, or is missed by its name.
    let others = discovered
        .sets
        .iter()
        .filter(|found| found.set.incomplete.is_none() && found.media_set_id != chosen.media_set_id);
    let opened = others.filter_map(|found| Some((found, manifest(found, key.as_ref()).ok()?)));
    let fits = |set: &Manifest| set.engine == chosen_set.engine && set.backup_set_id != chosen_set.backup_set_id;
    let mut stored: Vec<(&discovery::Found, Manifest)> = opened.filter(|(_, set)| fits(set)).collect();
    stored.dedup_by_key(|(_, set)| set.backup_set_id);
    let last = stored.len();
    let chosen_reading = of_set(reading, chosen);
    stored.push((chosen, chosen_set));
    let positions: Vec<Value> = stored.iter().map(|(_, set)| set.position.last.value()).collect();
    let needed = media.needed(&positions.iter().collect::<Vec<_>>(), last)?;
    if !needed.logs.is_empty() {
        report.warnings.push(NO_LOGS.into());
    }
    let readings = needed.pages.into_iter().filter(|at| *at != last).filter_map(|at| stored.get(at));
    let needed = NeededSets {
        readings: readings.map(|(found, _)| of_set(reading, found)).collect(),
        database_set: needed.database_set,
    };
    report.engine = stored.last().map(|(_, set)| set.engine.clone());
    report.backup_set_id = stored.last().map(|(_, set)| set.backup_set_id.to_string());
    of_sets((&chosen_reading, &needed, key.as_ref()), wanted, scratch, conduct, report).map(Some)
}

/// The same media, and this set of them.
fn of_set(reading: &Reading, found: &discovery::Found) -> Reading {
    let choice = Choice { set: Some(found.media_set_id.to_string()), ..Choice::default() };
    Reading { choice, ..reading.clone() }
}

fn manifest(found: &discovery::Found, key: Option<&Arc<SecretKey>>) -> Result<Manifest> {
    let opened = discovery::open_set(found, &Pool::new(0, 4096)?, 1, key.map(Arc::as_ref))?;
    let missing = || Error::incomplete("backup set", "has no manifest", "use another set");
    opened.manifest().cloned().ok_or_else(missing)
}

/// Opens the tables of the media in a set, with those in the sets that it needs.
///
/// # Errors
/// A set cannot be read, the media have no such set, or the tables cannot be opened.
pub(super) fn of_sets(
    (chosen, needed, key): (&Reading, &NeededSets, Option<&Arc<SecretKey>>),
    wanted: Wanted,
    scratch: &Path,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Box<dyn ForeignTables>> {
    let mut devices = ForeignDevices::of_objects(objects(chosen, key, conduct, report)?)?;
    let wanted = match wanted {
        Wanted::Position(file) => Some(devices.identity_of(file)?),
        // Alone, media are read up to their newest set.
        Wanted::Newest => needed.database_set.clone().filter(|_| !needed.readings.is_empty()),
    };
    for reading in &needed.readings {
        for object in objects(reading, key, conduct, report)? {
            devices.add(object)?;
        }
    }
    devices.tables(wanted.as_deref(), scratch, conduct)
}

/// The families of a set, as objects that are read at any place.
fn objects(
    reading: &Reading,
    key: Option<&Arc<SecretKey>>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Vec<ForeignObject>> {
    let mut discovered = reading.find(key.map(Arc::as_ref), conduct)?;
    let sequence = restore::choose(&mut discovered, &reading.choice)?;
    let chain: Vec<discovery::Found> = sequence.sets.iter().map(|&at| discovered.sets[at].clone()).collect();
    let mut sets = opened(&chain, key)?;
    let families = Arc::new(StoredFamilies::of(&mut sets)?);
    let (Some(last), Some(manifest)) = (chain.last(), sets.last().and_then(MediaSet::manifest)) else {
        return Ok(Vec::new());
    };
    let id = manifest.backup_set_id;
    // The pages are checked when their rows are read.
    let damage = fullbore_engines::damaged_at_source(&manifest.engine, &manifest.position.last.value());
    report.warnings.extend(damage.map(|said| format!("backup set {id}: {said}")));
    report.media_set_id = Some(last.media_set_id.to_string());
    let mut objects = Vec::new();
    for ((name, bytes), number) in families.names().into_iter().zip(0_usize..) {
        let (families, chain, key) = (Arc::clone(&families), chain.clone(), key.cloned());
        let open = move |conduct: &Conduct| -> Result<Box<dyn FamilyBytes>> {
            let sets = opened(&chain, key.as_ref())?;
            Ok(Box::new(StoredFamilyBytes::new(&families, number, sets, conduct)?))
        };
        // Families of two sets may have one name.
        let object = ForeignObject::new(format!("{name} of backup set {id}"), bytes, Arc::new(open));
        let mut head = Vec::new();
        let read = object.open(&Conduct::default())?.take(FOREIGN_HEAD as u64).read_to_end(&mut head);
        read.map_err(|error| Error::of_read(&object.name, error))?;
        objects.push(object.with_head(head));
    }
    Ok(objects)
}

/// The sets of a chain, for reads of single blocks.
fn opened(chain: &[discovery::Found], key: Option<&Arc<SecretKey>>) -> Result<Vec<MediaSet>> {
    let pool = Pool::new(0, 4096)?;
    chain.iter().map(|found| discovery::open_set(found, &pool, 1, key.map(Arc::as_ref))).collect()
}
