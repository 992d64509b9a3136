//! The removal of single sets that nothing depends on: objects that a client of the gateway deletes.

use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};
use fullbore_repository::inventory::{StoredSet, tasks};
use fullbore_repository::{self, Repository};

use super::Setting;
use super::sweep::Sweeper;
use crate::report::Report;

/// Removes these sets of `database`: their commit records first, so that none looks whole while parts are missing.
///
/// # Errors
/// A run needs one of them, a lock forbids to delete its families, or the repository cannot be written to.
pub fn sets(sets: &[StoredSet], database: &str, setting: Setting<'_>, conduct: &Conduct) -> Result<()> {
    let places = fullbore_repository::places(setting.name, setting.config)?;
    let repository = Repository::open_to_write(setting.name, places, &conduct.stores)?;
    let (database, mut report) = (Some(database.to_owned()), Report::begin("gateway"));
    setting.as_task(&repository, "delete", database, conduct, &mut report, |task, _| {
        let now = repository.now()?;
        let sweeper = Sweeper::new(&repository, task.id(), now);
        for set in sets {
            sweeper.bury(set)?;
            // A run that needs it has leased it by now, or sees the tombstone.
            let id = set.record.backup_set_id;
            let needing = tasks(&repository, now)?.into_iter().find(|other| {
                let is_open = other.record.state.is_open() && !other.is_dead(now);
                is_open && other.record.needs.contains(&id)
            });
            if let Some(other) = needing {
                sweeper.spare(set)?;
                let why = format!("is needed by {}", other.title());
                return Err(Error::refused(super::title(&set.record), why, "delete it later"));
            }
            sweeper.remove(set).inspect_err(|_| {
                let _ = sweeper.spare(set); // The first error counts; a prune takes the tombstone back, or finishes.
            })?;
        }
        Ok(())
    })
}
