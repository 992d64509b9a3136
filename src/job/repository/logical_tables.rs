//! Sets of rows and statements in a repository, for an export.

use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::Setting;
use super::databases::{meant, to_choose_from};
use super::restore::{ChosenChain, fitting, is_logical};
use crate::job::reading::Reading;
use crate::report::Report;

/// The error for a set of this engine that holds no rows, if its engine has sets of rows: then this one holds files.
pub(in crate::job) fn files_of_a_server(engine: &str, set: Uuid) -> Option<Error> {
    fullbore_engines::named(engine)?.logical()?;
    let why = "it holds the files of a server, and fullbore does not read rows out of them";
    let hint = "restore it; for an export, back the server up with --method logical";
    Some(Error::refused(format!("backup set {set} of {engine}"), why, hint))
}

/// Does `work` as a task that leases the chosen set, with how it is read. `None` if the database has no such set: then
/// nothing was done.
///
/// # Errors
/// No complete chain is there; or the error of `work`.
pub(in crate::job) fn with_reading<T>(
    reading: &Reading,
    database: Option<&str>,
    setting: Setting<'_>,
    conduct: &Conduct,
    report: &mut Report,
    work: impl FnOnce(&Reading, &mut Report) -> Result<T>,
) -> Result<Option<T>> {
    let repository = setting.open(conduct)?;
    let inventory = setting.inventory(&repository, conduct, &mut Vec::new())?;
    let database = meant(&repository, &inventory.sets, database);
    let set = reading.choice.set.as_deref();
    let sets = to_choose_from(&inventory.sets, database.as_deref(), set, &repository.name)?;
    if !sets.iter().any(|set| is_logical(set)) {
        let newest = sets.iter().map(|set| &set.record).max_by_key(|record| record.backup_set_id);
        let refused = newest.and_then(|record| files_of_a_server(&record.engine, record.backup_set_id));
        return refused.map_or(Ok(None), Err);
    }
    let mut chosen = Report::begin("restore");
    let chain = ChosenChain::among(fitting(sets, true, reading), reading, &repository, &mut chosen)?;
    if !chain.sets.first().is_some_and(|set| is_logical(set)) {
        return Ok(None);
    }
    report.warnings.append(&mut chosen.warnings);
    let work = |report: &mut Report| work(&chain.reading, report);
    setting.as_reader(&repository, ("export", chain.database(), &chain.ids()), conduct, report, work).map(Some)
}
