//! Which backup sets a restore takes: a full, and the newest differential that names it.

use std::collections::BTreeSet;

use fullbore_core::units::counted;
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::configuration::{BackupKind, DatabaseHeader};
use super::media::{BackupSet, MediaSet, guid};

/// A backup set on its media.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    /// The media.
    pub media: &'a MediaSet,
    /// The set.
    pub set: &'a BackupSet,
}

impl<'a> Chosen<'a> {
    fn header(&self) -> &'a DatabaseHeader {
        &self.set.configuration.database
    }

    fn is(&self, kind: BackupKind) -> bool {
        self.header().kind == kind
    }
}

/// What a restore takes.
#[derive(Debug)]
pub struct Chain<'a> {
    /// The full.
    pub full: Chosen<'a>,
    /// The differential over it.
    pub differential: Option<Chosen<'a>>,
    /// Sets that are not used.
    pub warnings: Vec<String>,
}

/// The full, and the differential over it if there is one. `wanted` is the beginning of a BackupSetGUID: a full, or a
/// differential whose full is there too. Without it, the full with the highest last LSN is taken.
///
/// # Errors
/// There is no full, several databases are there and `wanted` names none, the full of a differential is missing, or a
/// family of a chosen set is missing.
pub fn choose<'a>(media: &'a [MediaSet], wanted: Option<&str>) -> Result<Chain<'a>> {
    let sets = |media: &'a MediaSet| media.backup_sets().into_iter().map(move |set| Chosen { media, set });
    let all: Vec<Chosen<'a>> = media.iter().flat_map(sets).collect();
    let named = named(&all, wanted)?;
    let newest = |kind| named.iter().filter(|chosen| chosen.is(kind)).max_by_key(|chosen| chosen.header().last);
    let full = match (newest(BackupKind::Full), newest(BackupKind::Differential)) {
        (Some(full), _) => *full,
        (None, Some(differential)) => base_of(&all, differential)?,
        (None, None) => {
            let hint = "a restore needs a full backup: name its files too";
            return Err(Error::incomplete("the full backup", "is missing", hint));
        }
    };
    for differential in named.iter().filter(|chosen| chosen.is(BackupKind::Differential)) {
        base_of(&all, differential)?;
    }
    let is_over_it =
        |chosen: &&Chosen<'a>| chosen.is(BackupKind::Differential) && chosen.header().base == full.set.header.guid;
    let differential = named.iter().filter(is_over_it).max_by_key(|chosen| chosen.header().last).copied();
    for chosen in [Some(full), differential].into_iter().flatten() {
        if let Some(error) = chosen.media.incomplete() {
            return Err(error);
        }
    }
    let logs = named.iter().filter(|chosen| chosen.is(BackupKind::Log)).count() as u64;
    let words =
        || format!("{} not applied: a restore to files takes a full and a differential", counted(logs, "log backup"));
    let warnings = (logs > 0).then(words).into_iter().collect();
    Ok(Chain { full, differential, warnings })
}

/// The sets that the user means.
fn named<'a>(all: &[Chosen<'a>], wanted: Option<&str>) -> Result<Vec<Chosen<'a>>> {
    let Some(wanted) = wanted else {
        // LSNs of two databases, or of two recovery forks of one, cannot be compared.
        let of = |header: &'a DatabaseHeader| (header.database.as_str(), header.family, header.fork);
        let databases: BTreeSet<(&str, Uuid, Uuid)> = all.iter().map(|chosen| of(chosen.header())).collect();
        if databases.len() > 1 {
            let names: Vec<&str> = databases.iter().map(|(name, ..)| *name).collect();
            let why = format!("holds backups of several databases or recovery forks: {}", names.join(", "));
            return Err(Error::usage("--from", why, "choose one with --set and a part of its BackupSetGUID"));
        }
        return Ok(all.to_vec());
    };
    let part = wanted.trim_matches('…').to_uppercase();
    let fits = |chosen: &&Chosen<'_>| !part.is_empty() && guid(chosen.set.header.guid).contains(&part);
    let named: Vec<Chosen<'a>> = all.iter().filter(fits).copied().collect();
    let hint = "`fullbore inspect header` shows BackupSetGUID";
    match &named[..] {
        [_] => Ok(named),
        [] => Err(Error::usage(format!("--set {wanted}"), "no backup set has this in its BackupSetGUID", hint)),
        several => {
            let line =
                |chosen: &Chosen<'_>| format!("\n    {} of {}", guid(chosen.set.header.guid), chosen.header().database);
            let why = format!("fits several backup sets:{}", several.iter().map(line).collect::<String>());
            Err(Error::usage(format!("--set {wanted}"), why, "give more digits of the id"))
        }
    }
}

fn base_of<'a>(all: &[Chosen<'a>], differential: &Chosen<'a>) -> Result<Chosen<'a>> {
    let database = &differential.set.configuration.database;
    let is_base = |chosen: &&Chosen<'a>| chosen.is(BackupKind::Full) && chosen.set.header.guid == database.base;
    all.iter().find(is_base).copied().ok_or_else(|| missing_base(database.base, differential))
}

fn missing_base(base: Uuid, differential: &Chosen<'_>) -> Error {
    let of = guid(differential.set.header.guid);
    let why = format!("is missing, and the differential {of} needs it");
    Error::incomplete(format!("the full backup {}", guid(base)), why, "name the files of this full too")
}
