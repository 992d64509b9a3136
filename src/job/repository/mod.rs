//! Jobs on a repository: what is backed up into it, found in it, checked and removed.

pub mod backup;
pub mod catalog;
pub mod check;
pub mod copy;
mod copy_to;
pub mod cut_over;
mod databases;
mod file_target;
pub mod follow;
mod foreign_chain;
mod hints;
pub mod list;
pub mod migrate;
pub(in crate::job) mod logical_tables;
mod locks;
mod proof;
pub mod prune;
pub mod refresh;
pub mod remove;
pub mod restore;
pub mod restore_test;
mod scratch;
pub(in crate::job) mod stored_tables;
mod strays;
mod sweep;
pub mod take_in;
pub mod tasks;
pub mod upload;
pub mod verify;

use fullbore_core::{Error, Result};
use uuid::Uuid;

use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::on_its_line;
use fullbore_repository::catalog::Catalog;
use fullbore_repository::config::Config;
use fullbore_repository::format::SetRecord;
use fullbore_repository::inventory::{Inventory, StoredSet, is_of_one_record};
use fullbore_repository::task::Task;
use fullbore_repository::{self, Repository};

/// Which repository, and what this host knows about it.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// `--repo`.
    pub name: &'a str,
    /// The configuration that defines it.
    pub config: &'a Config,
}

impl Setting<'_> {
    /// The repository, which must exist.
    ///
    /// # Errors
    /// It does not exist, or cannot be reached.
    pub fn open(&self, conduct: &Conduct) -> Result<Repository> {
        let places = fullbore_repository::places(self.name, self.config)?;
        let opened = Repository::open(self.name, places, &conduct.stores).map_err(|error| conduct.why_halted(error))?;
        Ok(opened.hiding_as_it_can(self.config))
    }

    /// Everything in it. Updates the catalog; without a catalog this takes longer.
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
        Self::warn_of_another(catalog.as_ref(), repository, warnings);
        let known = catalog.as_ref().map(|catalog| catalog.records(repository.id));
        let known = known.transpose().unwrap_or_else(|error| noted(error, warnings)).unwrap_or_default();
        let inventory = Inventory::take(repository, known).map_err(|error| conduct.why_halted(error))?;
        if let Some(Err(error)) = catalog.as_mut().map(|catalog| catalog.put(repository, &inventory.sets)) {
            noted::<()>(error, warnings);
        }
        warnings.extend(inventory.warnings.iter().cloned());
        Ok(inventory)
    }

    /// The catalog, if it can be opened: it is only an index.
    pub fn catalog(&self, warnings: &mut Vec<String>) -> Option<Catalog> {
        match Catalog::open(&self.config.catalog_path()) {
            Ok((catalog, said)) => {
                warnings.extend(said);
                Some(catalog)
            }
            Err(error) => noted(error, warnings),
        }
    }

    /// Writes the record of a set that was just committed, and updates the catalog. The set is good in any case: a
    /// failure is a warning, and the next reader of the repository finds the set by its media.
    fn describe(&self, repository: &Repository, record: SetRecord, warnings: &mut Vec<String>) {
        if let Err(error) = repository.describe(&record) {
            warnings.push(format!("cannot write the record of the set: {}", error.one_line()));
        }
        self.catalogue(repository, record, warnings);
    }

    /// Adds a set that was just committed to the catalog.
    fn catalogue(&self, repository: &Repository, record: SetRecord, warnings: &mut Vec<String>) {
        let stored = StoredSet::committed(repository.hidden(record));
        let catalog = self.catalog(warnings);
        Self::warn_of_another(catalog.as_ref(), repository, warnings);
        if let Some(Err(error)) = catalog.map(|catalog| catalog.add(repository, &stored)) {
            noted::<()>(error, warnings);
        }
    }

    /// Warns if another repository was at these places before: only once, because the catalog then remembers this one.
    fn warn_of_another(catalog: Option<&Catalog>, repository: &Repository, warnings: &mut Vec<String>) {
        if let Some(Ok(Some(another))) = catalog.map(|catalog| catalog.another_before(repository)) {
            warnings.push(another);
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
        Self::run_as(task, conduct, report, work)
    }

    /// Does `work`, which reads `sets` and writes nothing into the repository, as a task that leases them. The work is
    /// done even if nothing can be written: on a full or read-only disk, or with an account that may only read. An
    /// existing backup can always be restored.
    ///
    /// # Errors
    /// Those of the work, and a set that is being removed.
    pub fn as_reader<T>(
        &self,
        repository: &Repository,
        (verb, database, sets): (&str, Option<String>, &[Uuid]),
        conduct: &Conduct,
        report: &mut Report,
        work: impl FnOnce(&mut Report) -> Result<T>,
    ) -> Result<T> {
        match Task::begin(repository, verb, database, conduct).map_err(|error| conduct.why_halted(error)) {
            Ok(task) => Self::run_as(task, conduct, report, |task, report| {
                match task.lease(sets) {
                    // An unreadable tombstone: prune may be about to remove a set that is read here.
                    Err(error) if is_of_one_record(&error) => report.warnings.push(unheard(&error)),
                    leased => leased?,
                }
                work(report)
            }),
            Err(error @ (Error::Cancelled { .. } | Error::Halted)) => Err(error),
            Err(error) => {
                report.warnings.push(unheard(&error));
                work(report).map_err(|error| conduct.why_halted(error))
            }
        }
    }

    fn run_as<T>(
        task: Task,
        conduct: &Conduct,
        report: &mut Report,
        work: impl FnOnce(&Task, &mut Report) -> Result<T>,
    ) -> Result<T> {
        report.task = Some(task.id().to_string());
        report.engine.iter().for_each(|engine| task.of_engine(engine));
        let done = work(&task, report).map_err(|error| conduct.why_halted(error));
        report.engine.iter().for_each(|engine| task.of_engine(engine));
        let (result, value) = match done {
            Ok(value) => (Ok(()), Some(value)),
            Err(error) => (Err(error), None),
        };
        if let Some(error) = task.end(&result) {
            report.warnings.push(format!("cannot record the end of this task: {}", error.one_line()));
        }
        result.and_then(|()| value.ok_or(Error::Halted))
    }
}

fn unheard(error: &Error) -> String {
    let why = error.one_line();
    format!("cannot lease the sets that are read here; a prune at the same time may remove them: {why}")
}

fn noted<T>(error: Error, warnings: &mut Vec<String>) -> Option<T> {
    warnings.push(error.one_line());
    None
}

/// The title of a set with a record.
pub(super) fn title(record: &SetRecord) -> String {
    let time = fullbore_repository::chain::show_time(record.started_at);
    // Anybody may have written the record.
    let database = match &record.database[..] {
        "" => "a database whose name is encrypted".to_owned(),
        name => format!("`{}`", on_its_line(name)),
    };
    format!("{} {} of {database} from {time}", record.kind, record.backup_set_id)
}
