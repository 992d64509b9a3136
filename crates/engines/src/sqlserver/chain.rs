//! Which backup sets a restore takes: a full, and the newest differential that names it.

use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::configuration::BackupKind;
use super::media::{BackupSet, MediaSet, guid};

/// A backup set on its media.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    /// The media.
    pub media: &'a MediaSet,
    /// The set.
    pub set: &'a BackupSet,
}

impl Chosen<'_> {
    fn is(&self, kind: BackupKind) -> bool {
        self.set.configuration.database.kind == kind
    }
}

/// The full, and the differential over it if there is one. `wanted` is the beginning of a BackupSetGUID: a full, or a
/// differential whose full is there too. Without it, the full with the highest last LSN is taken.
///
/// # Errors
/// There is no full, several databases are there and `wanted` names none, the full of a differential is missing, or a
/// family of a chosen set is missing.
pub fn choose<'a>(media: &'a [MediaSet], wanted: Option<&str>) -> Result<(Chosen<'a>, Option<Chosen<'a>>)> {
    let all: Vec<Chosen<'a>> =
        media.iter().flat_map(|media| media.backup_sets().into_iter().map(move |set| Chosen { media, set })).collect();
    let is_wanted = |chosen: &&Chosen<'_>| {
        let id = guid(chosen.set.header.guid);
        wanted.is_none_or(|wanted| id.starts_with(&wanted.to_uppercase()))
    };
    let named: Vec<&Chosen<'a>> = all.iter().filter(is_wanted).collect();
    if let (Some(wanted), true) = (wanted, named.len() != 1) {
        let why = format!("{} of the backup sets begin with it", named.len());
        return Err(Error::usage(format!("--set {wanted}"), why, "`fullbore inspect header` shows BackupSetGUID"));
    }
    let mut databases: Vec<&str> =
        named.iter().map(|chosen| chosen.set.configuration.database.database.as_str()).collect();
    databases.sort_unstable();
    databases.dedup();
    if databases.len() > 1 {
        let why = format!("holds backups of several databases: {}", databases.join(", "));
        return Err(Error::usage("--from", why, "choose one with --set and the start of its BackupSetGUID"));
    }
    let newest = |kind| {
        named.iter().filter(|chosen| chosen.is(kind)).max_by_key(|chosen| chosen.set.configuration.database.last)
    };
    let full = match (newest(BackupKind::Full), newest(BackupKind::Differential)) {
        (Some(full), _) => **full,
        (None, Some(differential)) => base_of(&all, differential)?,
        (None, None) => {
            let hint = "a restore needs a full backup: name its files too";
            return Err(Error::incomplete("the full backup", "is missing", hint));
        }
    };
    let of_full = all.iter().filter(|chosen| {
        let database = &chosen.set.configuration.database;
        chosen.is(BackupKind::Differential) && database.base == full.set.header.guid
    });
    let mut differentials: Vec<Chosen<'a>> = of_full.copied().collect();
    if wanted.is_some() {
        let is_named = |chosen: &Chosen<'_>| named.iter().any(|named| named.set.header.guid == chosen.set.header.guid);
        differentials.retain(is_named);
    }
    let differential = differentials.into_iter().max_by_key(|chosen| chosen.set.configuration.database.last);
    for chosen in [Some(full), differential].into_iter().flatten() {
        if let Some(error) = chosen.media.incomplete() {
            return Err(error);
        }
    }
    Ok((full, differential))
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
