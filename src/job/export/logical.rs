//! Tables of sets of rows and statements: they are read out of the set, and no file of them is written before.

use fullbore_core::Result;
use fullbore_core::conduct::Conduct;
use fullbore_core::pool::Pool;
use fullbore_engines::ForeignTables;
use fullbore_repository::discovery;

use crate::job::reading::Reading;
use crate::job::repository::logical_tables::files_of_a_server;
use crate::job::restore;
use crate::report::Report;

/// What is said of log sets that follow the chosen set.
const NO_LOGS: &str = "the log sets behind the full are not applied: an export has the rows of the full";

/// Opens the tables of the chosen set, if it is such a set.
///
/// # Errors
/// The set or its tables cannot be read.
pub(super) fn among_sets(
    reading: &Reading,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Option<Box<dyn ForeignTables>>> {
    if discovery::is_pipe(&reading.from)? {
        return Ok(None);
    }
    let key = discovery::read_key(reading.key.as_deref())?;
    let mut discovered = reading.find(key.as_ref(), conduct)?;
    // The job that reads other sets reports what is wrong with these.
    let Ok(sequence) = restore::choose(&mut discovered, &reading.choice) else { return Ok(None) };
    let Some(full) = sequence.sets.first().map(|&at| &discovered.sets[at]) else { return Ok(None) };
    let set = discovery::open_set(full, &Pool::new(0, 4096)?, 1, key.as_ref())?;
    let Some(manifest) = set.manifest() else { return Ok(None) };
    let engine = fullbore_engines::named(&manifest.engine).and_then(|engine| engine.logical());
    let Some(engine) = engine.filter(|engine| engine.is_logical(&manifest.position.last.value())) else {
        return files_of_a_server(&manifest.engine, manifest.backup_set_id).map_or(Ok(None), Err);
    };
    report.warnings.extend(sequence.warnings);
    if sequence.sets.len() > 1 {
        report.warnings.push(NO_LOGS.into());
    }
    report.engine = Some(manifest.engine.clone());
    report.backup_set_id = Some(manifest.backup_set_id.to_string());
    report.media_set_id = Some(full.media_set_id.to_string());
    let title = format!("backup set {}", manifest.backup_set_id);
    engine.tables(set, title).map(Some)
}
