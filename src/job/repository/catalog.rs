//! Rebuilds the catalog from a repository: from its records, or from its media alone.

use std::collections::HashMap;
use std::path::Path;

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

/// Forgets what this host's catalog knows about a repository and reads it again. Lost records of the repository are
/// made again from the media; for encrypted sets this needs a key that opens them.
///
/// # Errors
/// The repository cannot be reached, the catalog cannot be written, or the key file is invalid.
pub fn rebuild(setting: Setting<'_>, key: Option<&Path>, conduct: &Conduct) -> Result<Rebuilt> {
    let key = discovery::read_key(key)?;
    let places = fullbore_repository::places(setting.name, setting.config)?;
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
