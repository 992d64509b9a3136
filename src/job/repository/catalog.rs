//! Rebuilds the catalog from a repository: from its records, or from its media alone.

use std::collections::HashMap;
use std::path::Path;

use fullbore_core::device::Device;
use fullbore_core::{Error, Result};
use serde::Serialize;

use super::Setting;
use fullbore_core::conduct::Conduct;
use fullbore_repository::discovery;
use fullbore_repository::inventory::{Inventory, StoredSet};
use fullbore_repository::{self, Repository};

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Rebuilt {
    /// Sets in all.
    pub sets: usize,
    /// The number of them that had no record.
    pub by_media: usize,
    /// Records that were written for them.
    pub records: usize,
    /// What to look at.
    pub warnings: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<String>,
}

/// Refuses places without records of a repository and without a backup set: nothing can be rebuilt from them.
fn refuse_empty(name: &str, places: &[Device], conduct: &Conduct) -> Result<()> {
    let repository = Repository::open_or_plan(name, places.to_vec(), &conduct.stores)?;
    if !repository.id.is_nil() {
        return Ok(());
    }
    let inventory = Inventory::take(&repository, HashMap::new());
    let inventory = inventory.map_err(|error| conduct.why_halted(error).on_named_thing())?;
    match (&inventory.sets[..], places) {
        ([], [first, ..]) => {
            let why = "is not a repository: it has no records and no backup sets";
            let hint = format!(
                "check the path: a missing directory may be a disk that is not mounted; the first `fullbore backup \
                 --repo {name}` makes a repository"
            );
            Err(Error::usage(format!("--repo {name}: {first}"), why, hint))
        }
        _ => Ok(()),
    }
}

/// Forgets what this host's catalog knows about a repository and reads it again. Lost records of the repository are
/// made again from the media; for encrypted sets this needs a key that opens them.
///
/// # Errors
/// The repository cannot be reached, the catalog cannot be written, or the key file is invalid.
pub fn rebuild(setting: Setting<'_>, key: Option<&Path>, conduct: &Conduct) -> Result<Rebuilt> {
    let key = discovery::read_key(key)?;
    let places = fullbore_repository::places(setting.name, setting.config)?;
    refuse_empty(setting.name, &places, conduct)?;
    let repository = Repository::open_or_make(setting.name, places, &conduct.stores)?.hiding(setting.config)?;
    let mut rebuilt = Rebuilt::default();
    let inventory =
        Inventory::take_with(&repository, HashMap::new(), key.as_ref()).map_err(|error| conduct.why_halted(error))?;
    let by_media = |set: &&StoredSet| !set.recorded && set.incomplete.is_none();
    rebuilt.by_media = inventory.sets.iter().filter(by_media).count();
    rebuilt.records = inventory.record_what_has_none(&repository)?;
    let mut warnings = Vec::new();
    let Some(mut catalog) = setting.catalog(&mut warnings) else {
        let why = warnings.pop().unwrap_or_default();
        return Err(Error::refused("the catalog", why, "name another place with `catalog = \"…\"` in fullbore.toml"));
    };
    catalog.put(&repository, &inventory.sets)?;
    rebuilt.notes.extend(warnings);
    rebuilt.sets = inventory.sets.len();
    rebuilt.warnings = inventory.warnings;
    rebuilt.notes.extend(inventory.notes);
    Ok(rebuilt)
}
