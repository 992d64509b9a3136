//! What a repository holds, for people and programs.

use std::collections::HashMap;
use std::path::Path;

use fullbore_core::cipher::SecretKey;
use fullbore_core::pool::Pool;
use fullbore_core::{Error, Result};
use serde::Serialize;

use super::Setting;
use super::databases::{self, of_database};
use fullbore_core::conduct::Conduct;
use fullbore_engines::{ObjectFacts, ObjectMedia};
use fullbore_repository::Repository;
use fullbore_repository::chain::show_time;
use fullbore_repository::discovery;
use fullbore_repository::format::SetRecord;
use fullbore_repository::hidden::is_hidden;
use fullbore_repository::inventory::StoredSet;

/// One set of a repository.
#[derive(Debug, Clone, Serialize)]
pub struct ListedSet {
    /// Identity of the backup.
    pub backup_set_id: String,
    /// full, differential, log.
    pub kind: String,
    /// Its base.
    pub base_backup_set_id: Option<String>,
    /// Name of the engine.
    pub engine: String,
    /// The database; empty if the name is encrypted.
    pub database: String,
    /// The host that made it.
    pub host: String,
    /// The codec asked for.
    pub codec: String,
    /// RFC 3339.
    pub started_at: String,
    /// RFC 3339.
    pub finished_at: String,
    /// Outside the chain.
    pub copy_only: bool,
    /// The number of its families.
    pub families: usize,
    /// Bytes of its families.
    pub stored_bytes: u64,
    /// Bytes of the restored database; 0: known from its manifest only.
    pub database_bytes: u64,
    /// Of stored media of another program: the kinds of the backups on them, in its words. `null` if they are hidden.
    pub holds: Option<String>,
    /// True when a key is needed.
    pub encrypted: bool,
    /// Why it cannot be used, if it cannot.
    pub why_incomplete: Option<String>,
    /// RFC 3339, by the store's clock: when its last good verification was.
    pub verified_at: Option<String>,
    /// RFC 3339, by the store's clock: when its last failed verification was.
    pub failed_at: Option<String>,
    /// RFC 3339, by the store's clock: when the last good restore of its chain was.
    pub proven_at: Option<String>,
    /// It is being removed.
    pub tombstone: bool,
}

/// A listing, with its warnings and notes.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The sets, oldest first.
    pub sets: Vec<ListedSet>,
    /// What to look at.
    pub warnings: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<String>,
}

/// Lists the sets of a database, or of all; from this host's catalog alone when `offline`. With a key it also shows the
/// names that the records hide.
///
/// # Errors
/// The repository cannot be reached, or was never seen; or the key file is invalid.
pub fn list(
    setting: Setting<'_>,
    database: Option<&str>,
    offline: bool,
    key: Option<&Path>,
    conduct: &Conduct,
) -> Result<Listing> {
    let mut listing = Listing::default();
    let key = discovery::read_key(key)?;
    let mut meant = database.map(str::to_owned);
    let mut names = HashMap::new();
    let sets = if offline {
        let seen = last_seen(setting, &mut listing)?;
        listing.notes.push(format!("as of {}: from the catalog, without access to the repository", seen.0));
        seen.1
    } else {
        let repository = setting.open(conduct)?;
        let inventory = setting.inventory(&repository, conduct, &mut listing.warnings)?;
        meant = databases::meant(&repository, &inventory.sets, database);
        if let Some(key) = &key {
            names = hidden_names(&inventory.sets, &repository, key)?;
        }
        listing.notes.extend(inventory.notes);
        inventory.sets
    };
    let chosen = match &meant {
        Some(_) => of_database(&sets, meant.as_deref(), setting.name)?,
        None => sets.iter().collect(),
    };
    let broken = chosen.iter().filter(|set| set.incomplete.is_some() && !set.tombstone);
    let said =
        |set: &&StoredSet| format!("{}: {}", super::title(&set.record), set.incomplete.as_deref().unwrap_or_default());
    listing.warnings.extend(broken.map(said));
    let damaged = chosen.iter().filter(|set| set.incomplete.is_none() && !set.tombstone && set.is_damaged());
    listing.warnings.extend(damaged.map(|set| failed_verification(set)));
    listing.sets = chosen.into_iter().map(listed).collect();
    tell_missing_families(&sets, &mut listing.sets);
    for set in &mut listing.sets {
        set.database = names.remove(&set.backup_set_id).unwrap_or_else(|| std::mem::take(&mut set.database));
    }
    Ok(listing)
}

/// The warning about a set whose last verification found damage.
fn failed_verification(set: &StoredSet) -> String {
    let at = set.failed_at.map(show_time).unwrap_or_default();
    format!("{}: the last verification, at {at}, found damage", super::title(&set.record))
}

/// The names that the records hide, for the sets that this key opens, by set id.
fn hidden_names(sets: &[StoredSet], repository: &Repository, key: &SecretKey) -> Result<HashMap<String, String>> {
    let mut names = HashMap::new();
    let is_asked = |set: &&StoredSet| set.incomplete.is_none() && is_hidden(&set.record.database);
    for set in sets.iter().filter(is_asked) {
        let discovered = discovery::find_among(set.devices(repository)?, &repository.stores)?;
        let found = discovered.sets.iter().find(|found| found.set.backup_set_id == set.record.backup_set_id);
        // A set of another key keeps its hidden name.
        let opened = found.and_then(|found| discovery::open_set(found, &Pool::new(0, 4096).ok()?, 1, Some(key)).ok());
        let name = opened.as_ref().and_then(|set| set.manifest()).map(|manifest| manifest.database.clone());
        names.extend(name.map(|name| (set.record.backup_set_id.to_string(), name)));
    }
    Ok(names)
}

/// What the catalog knows about a repository, by the places where it was last seen.
fn last_seen(setting: Setting<'_>, listing: &mut Listing) -> Result<(String, Vec<StoredSet>)> {
    let catalog = setting.catalog(&mut listing.warnings);
    let seen = catalog.map(|catalog| catalog.seen_as(setting.name)).transpose()?.flatten();
    let seen = seen.ok_or_else(|| {
        let why = "the catalog of this host does not know this repository";
        Error::usage(format!("--repo {}", setting.name), why, "leave out --catalog to read the repository itself")
    })?;
    Ok((seen.at, seen.sets))
}

/// What stored media of another program hold.
fn holds(record: &SetRecord) -> Option<String> {
    fullbore_engines::files_of(&record.engine)?;
    match media_of(record) {
        Some(media) => Some(media.title()),
        None => record.position.last.value()["holds"].as_str().map(str::to_owned),
    }
}

/// The backup file of another program that an uploaded object is.
fn media_of(record: &SetRecord) -> Option<ObjectMedia> {
    fullbore_engines::holds_object(&record.engine).then_some(())?;
    ObjectFacts::of(&record.position.last.value())?.media
}

/// Adds the families that are missing to the sets with the others: a media set is complete when all of them are there.
fn tell_missing_families(sets: &[StoredSet], listed: &mut [ListedSet]) {
    let is_there = |set: &&StoredSet| set.incomplete.is_none() && !set.tombstone;
    let all: Vec<ObjectMedia> = sets.iter().filter(is_there).filter_map(|set| media_of(&set.record)).collect();
    let known = sets.iter().filter_map(|set| Some((set.record.backup_set_id.to_string(), media_of(&set.record)?)));
    let known: HashMap<String, ObjectMedia> = known.collect();
    for line in listed {
        let Some(media) = known.get(&line.backup_set_id) else { continue };
        let missing: Vec<String> = media.missing(&all).iter().map(ToString::to_string).collect();
        if !missing.is_empty() {
            line.holds = Some(format!("{}; missing: family {}", media.title(), missing.join(", ")));
        }
    }
}

fn listed(set: &StoredSet) -> ListedSet {
    let record = &set.record;
    ListedSet {
        backup_set_id: record.backup_set_id.to_string(),
        kind: record.kind.to_string(),
        base_backup_set_id: record.base.map(|id| id.to_string()),
        engine: record.engine.clone(),
        database: record.database.clone(),
        host: record.host.clone(),
        codec: record.codec.clone(),
        started_at: show_time(record.started_at),
        finished_at: show_time(record.finished_at),
        copy_only: record.copy_only,
        families: record.families.len(),
        stored_bytes: set.stored_bytes(),
        database_bytes: record.database_bytes,
        holds: holds(record),
        encrypted: record.encrypted,
        why_incomplete: set.incomplete.clone(),
        verified_at: set.verified_at.map(show_time),
        failed_at: set.failed_at.map(show_time),
        proven_at: set.proven_at.map(show_time),
        tombstone: set.tombstone,
    }
}
