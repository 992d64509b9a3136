//! `--copy-to`: the second repository of a backup. It gets the same families in the same pass, and its own task, leases
//! and record.

use fullbore_core::device::Device;
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};

use super::backup::{ids_of, lease, refuse_fixed_names, renew_locks};
use super::{Setting, title};
use crate::job::backup::{Mirror, Request};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_repository::format::{FamilyRecord, SetRecord};
use fullbore_repository::hidden;
use fullbore_repository::inventory::StoredSet;
use fullbore_repository::task::Task;
use fullbore_repository::{self, Repository};

/// The second repository, which has its own settings.
pub(super) struct Second<'a> {
    setting: Setting<'a>,
    stores: Stores,
    repository: Repository,
}

impl<'a> Second<'a> {
    /// Opens the repository, or makes it.
    ///
    /// # Errors
    /// It cannot be reached, or is the first one.
    pub fn open(setting: Setting<'a>, first: &Repository, request: &Request, conduct: &Conduct) -> Result<Self> {
        let open = || {
            let stores = stores(setting, conduct)?;
            let places = fullbore_repository::places(setting.name, setting.config)?;
            let repository = Repository::open_to_write(setting.name, places, &stores)?.hiding(setting.config)?;
            Ok(Self { setting, stores, repository })
        };
        let second = open().map_err(|error| about_copy_to(conduct.why_halted(error)))?;
        if second.repository.id == first.id {
            let why = format!("is the repository `{}` itself", first.name);
            return Err(Error::usage(format!("--copy-to {}", setting.name), why, "name another one"));
        }
        let template = template(request, setting).map_err(about_copy_to)?;
        refuse_fixed_names(&Request { name_template: template, ..request.clone() })?;
        Ok(second)
    }

    /// The second destination of the families.
    ///
    /// # Errors
    /// File names would show the names that its records hide.
    pub fn mirror(&self, request: &Request) -> Result<Mirror> {
        let (to, name_template) = (self.repository.places.clone(), template(request, self.setting)?);
        Ok(Mirror { to, mirrors: 1, name_template, stores: self.stores.clone() })
    }

    /// The sets that the backup depends on, as they are in this repository.
    ///
    /// # Errors
    /// One of them is missing here, or not whole: [`Error::Incomplete`]; or the repository cannot be reached.
    pub fn holding(
        &self,
        bases: &[StoredSet],
        conduct: &Conduct,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<StoredSet>> {
        if bases.is_empty() {
            return Ok(Vec::new());
        }
        let inventory = self.setting.inventory(&self.repository, conduct, warnings).map_err(about_copy_to)?;
        let here = |base: &StoredSet| {
            let found = inventory.sets.iter().find(|set| set.record.backup_set_id == base.record.backup_set_id);
            let why = match found {
                Some(set) if set.tombstone => "is being removed there".to_owned(),
                Some(StoredSet { incomplete: Some(why), .. }) => {
                    format!("is incomplete there: {why}")
                }
                Some(set) if set.is_damaged() => "was found damaged there".to_owned(),
                Some(set) => return Ok(set.clone()),
                None => "is not there".to_owned(),
            };
            let hint = "take a full into both (--kind full, or --kind auto), or copy that set there first";
            Err(Error::incomplete(
                format!("--copy-to {}", self.setting.name),
                format!("the base, {}, {why}", title(&base.record)),
                hint,
            ))
        };
        bases.iter().map(here).collect()
    }

    /// Does the backup as a task of this repository too, and writes the record of the committed set.
    ///
    /// # Errors
    /// Those of the backup, and of this repository.
    pub fn beside(
        &self,
        bases: &[StoredSet],
        database: &str,
        conduct: &Conduct,
        report: &mut Report,
        work: impl FnOnce(&Repository, &Task, &mut Report) -> Result<Option<SetRecord>>,
    ) -> Result<Option<SetRecord>> {
        let first = report.task.take();
        let database = Some(database.to_owned());
        let done = self.setting.as_task(&self.repository, "backup", database, conduct, report, |task, report| {
            lease(bases, task, &self.repository)?;
            renew_locks(&ids_of(bases), &self.repository, self.setting, conduct, report)?;
            let record = work(&self.repository, task, report)?;
            if let Some(record) = &record {
                self.describe(here(record, task.families()), report);
            }
            Ok(record)
        });
        report.task = first;
        done
    }

    fn describe(&self, record: SetRecord, report: &mut Report) {
        if let Err(error) = self.repository.describe(&record) {
            let why = error.one_line();
            report.warnings.push(format!("cannot write the record of the set in `{}`: {why}", self.setting.name));
        }
        self.setting.catalogue(&self.repository, record, &mut report.warnings);
    }
}

/// The places of the second repository.
///
/// # Errors
/// The configuration has no such repository.
pub(super) fn places(setting: Setting<'_>) -> Result<Vec<Device>> {
    fullbore_repository::places(setting.name, setting.config).map_err(about_copy_to)
}

/// Where the families would go, for a dry run.
pub(super) fn planned(setting: Setting<'_>, request: &Request, conduct: &Conduct) -> Result<Mirror> {
    let (to, name_template, stores) = (places(setting)?, template(request, setting)?, stores(setting, conduct)?);
    Ok(Mirror { to, mirrors: 1, name_template, stores })
}

/// The stores with the object options of this repository.
fn stores(setting: Setting<'_>, conduct: &Conduct) -> Result<Stores> {
    let stores = setting.config.stores()?.telling_as(&conduct.stores);
    stores.stop_on(&conduct.signal);
    Ok(stores)
}

/// A template of the backup counts in both repositories; else each repository has its own.
fn template(request: &Request, setting: Setting<'_>) -> Result<Option<String>> {
    let said = request.own_template.clone().or_else(|| setting.config.name_template.clone());
    hidden::template(setting.config, setting.name, said)
}

/// The record of the set in this repository: the same families, with the same lengths, under their names here.
fn here(record: &SetRecord, families: Vec<FamilyRecord>) -> SetRecord {
    let both = families.into_iter().zip(&record.families);
    let families = both.map(|(here, first)| FamilyRecord { bytes: first.bytes, ..here }).collect();
    SetRecord { families, ..record.clone() }
}

/// Errors of a repository name `--repo`; here it is `--copy-to`.
fn about_copy_to(error: Error) -> Error {
    let rename = |thing: String| thing.replace("--repo ", "--copy-to ");
    match error {
        Error::Usage { thing, why, hint } => Error::Usage { thing: rename(thing), why, hint },
        Error::Refused { thing, why, hint } => Error::Refused { thing: rename(thing), why, hint },
        Error::Incomplete { thing, why, hint } => Error::Incomplete { thing: rename(thing), why, hint },
        other => other,
    }
}
