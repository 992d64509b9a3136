//! Tables of stored media of another program, out of a repository.

use std::path::Path;
use std::sync::Arc;

use fullbore_core::Result;
use fullbore_core::conduct::Conduct;
use fullbore_engines::ForeignTables;
use fullbore_repository::discovery;

use super::Setting;
use super::databases::{meant, to_choose_from};
use super::foreign_chain::add_needed;
use super::restore::ChosenChain;
use crate::job::reading::Reading;
use crate::job::restore::{Into, Request};
use crate::job::stored_tables::{self, Wanted};
use crate::report::Report;

/// Opens the tables of the chosen database in `scratch`, if its sets hold media of another program.
///
/// # Errors
/// No complete chain is there, a set that it needs is not stored, a set cannot be read, or the tables cannot be opened.
pub(in crate::job) fn tables(
    (reading, wanted): (&Reading, Wanted),
    database: Option<&str>,
    scratch: &Path,
    setting: Setting<'_>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Option<Box<dyn ForeignTables>>> {
    let repository = setting.open(conduct)?;
    let inventory = setting.inventory(&repository, conduct, &mut Vec::new())?;
    let database = meant(&repository, &inventory.sets, database);
    let set = reading.choice.set.as_deref();
    let sets = to_choose_from(&inventory.sets, database.as_deref(), set, &repository.name)?;
    let mut chosen = Report::begin("restore");
    let chain = ChosenChain::among(sets, reading, &repository, &mut chosen)?;
    if chain.engine().is_none_or(|engine| fullbore_engines::media_of(&engine).is_none()) {
        return Ok(None);
    }
    let mut request = Request::plain(chain.reading.clone(), Into::Directory(scratch.to_owned()));
    let mut ids = chain.ids();
    ids.extend(add_needed(&mut request, &chain, &inventory.sets, &repository, &mut chosen)?);
    report.warnings.append(&mut chosen.warnings);
    report.engine = chain.engine();
    report.backup_set_id = chain.ids().last().map(ToString::to_string);
    let key = discovery::read_key(reading.key.as_deref())?.map(Arc::new);
    setting.as_reader(&repository, ("export", chain.database(), &ids), conduct, report, |report| {
        let chosen = (&request.reading, &request.needed, key.as_ref());
        stored_tables::of_sets(chosen, wanted, scratch, conduct, report).map(Some)
    })
}
