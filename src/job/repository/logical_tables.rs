//! Sets of rows and statements in a repository, for an export.

use fullbore_core::Result;
use fullbore_core::conduct::Conduct;

use super::Setting;
use super::databases::{meant, to_choose_from};
use super::restore::{ChosenChain, fitting, is_logical};
use crate::job::reading::Reading;
use crate::report::Report;

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
        return Ok(None);
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
