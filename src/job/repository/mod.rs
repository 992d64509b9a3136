//! Jobs on a repository: what is backed up into it, found in it, checked and removed.

pub mod backup;
pub mod catalog;
pub mod check;
pub mod copy;
mod copy_to;
mod databases;
pub mod follow;
pub mod list;
pub mod prune;
pub mod restore;
pub mod restore_test;
mod strays;
mod sweep;
pub mod tasks;
pub mod verify;

use fullbore_core::{Error, Result};

use super::Conduct;
use crate::catalog::Catalog;
use crate::config::Config;
use crate::report::Report;
use crate::repository::format::SetRecord;
use crate::repository::inventory::{Inventory, StoredSet};
use crate::repository::task::Task;
use crate::repository::{self, Repository};

/// Which repository, and what this host knows of it.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// `--repo`.
    pub name: &'a str,
    /// Where it is said what that is.
    pub config: &'a Config,
}

impl Setting<'_> {
    /// The repository, which must be there.
    ///
    /// # Errors
    /// It is not, or cannot be reached.
    pub fn open(&self, conduct: &Conduct) -> Result<Repository> {
        let places = repository::places(self.name, self.config)?;
        Repository::open(self.name, places, &conduct.stores).map_err(|error| conduct.why_halted(error))
    }

    /// Everything in it. The catalog learns of it; without a catalog it takes longer.
    ///
    /// # Errors
    /// The repository cannot be reached.
    pub fn inventory(
        &self,
        repository: &Repository,
        conduct: &Conduct,
        warnings: &mut Vec<String>,
    ) -> Result<Inventory> {
        let mut catalog = self.catalog(warnings);
        let known = catalog.as_ref().map(|catalog| catalog.records(repository.id));
        let known = known.transpose().unwrap_or_else(|error| noted(error, warnings)).unwrap_or_default();
        let inventory = Inventory::take(repository, known).map_err(|error| conduct.why_halted(error))?;
        if let Some(Err(error)) = catalog.as_mut().map(|catalog| catalog.put(repository, &inventory.sets)) {
            noted::<()>(error, warnings);
        }
        warnings.extend(inventory.warnings.iter().cloned());
        Ok(inventory)
    }

    /// The catalog, if it can be had: it is only an index.
    pub fn catalog(&self, warnings: &mut Vec<String>) -> Option<Catalog> {
        match Catalog::open(&self.config.catalog_path()) {
            Ok((catalog, said)) => {
                warnings.extend(said);
                Some(catalog)
            }
            Err(error) => noted(error, warnings),
        }
    }

    /// Puts the record of a set that was committed this moment where others find it, and tells the catalog. The set is good in any case: what
    /// fails is said, and found by whoever looks next.
    fn describe(&self, repository: &Repository, record: SetRecord, warnings: &mut Vec<String>) {
        if let Err(error) = repository.describe(&record) {
            warnings.push(format!("the set's record could not be written: {}", super::media::one_line(&error)));
        }
        self.catalogue(repository, record, warnings);
    }

    /// Tells the catalog of a set that was committed this moment.
    fn catalogue(&self, repository: &Repository, record: SetRecord, warnings: &mut Vec<String>) {
        let stored = StoredSet::committed(record);
        if let Some(Err(error)) = self.catalog(warnings).map(|catalog| catalog.add(repository, &stored)) {
            noted::<()>(error, warnings);
        }
    }

    /// Does `work` as a task that others see.
    ///
    /// # Errors
    /// Those of the work, and of a repository that cannot be written to.
    pub fn as_task<T>(
        &self,
        repository: &Repository,
        verb: &str,
        database: Option<String>,
        conduct: &Conduct,
        report: &mut Report,
        work: impl FnOnce(&Task, &mut Report) -> Result<T>,
    ) -> Result<T> {
        let task = Task::begin(repository, verb, database, conduct).map_err(|error| conduct.why_halted(error))?;
        report.task = Some(task.id().to_string());
        let done = work(&task, report).map_err(|error| conduct.why_halted(error));
        let (result, value) = match done {
            Ok(value) => (Ok(()), Some(value)),
            Err(error) => (Err(error), None),
        };
        if let Some(error) = task.end(&result) {
            report
                .warnings
                .push(format!("the end of this task could not be written down: {}", super::media::one_line(&error)));
        }
        result.and_then(|()| value.ok_or(Error::Halted))
    }
}

fn noted<T>(error: Error, warnings: &mut Vec<String>) -> Option<T> {
    warnings.push(super::media::one_line(&error));
    None
}

/// The title of a set that stands in a record.
pub(super) fn title(record: &SetRecord) -> String {
    let time = crate::chain::show_time(record.started_at);
    format!("{} {} of `{}` from {time}", record.kind, record.backup_set_id, record.database)
}
