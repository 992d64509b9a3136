//! Tables of backup sets of fullbore: the database is restored into the directory of the export first.

use std::path::Path;

use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::FileEngine;
use fullbore_engines::{ENGINES, ForeignTables};
use fullbore_repository::discovery;

use super::Request;
use crate::config::Config;
use crate::job::repository::{self, Setting};
use crate::job::restore::{self, Into};
use crate::report::Report;

/// The name of the restored file. It has no name after the export.
const RESTORED: &str = "restored";

/// Restores the chosen database into `scratch`, and opens its tables.
///
/// # Errors
/// The errors of a restore. Also: the sets belong to an engine whose tables fullbore cannot read.
pub(super) fn tables(
    request: &Request,
    scratch: &Path,
    config: &Config,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Box<dyn ForeignTables>> {
    let (engine, file) = engine_of_files()?;
    let path = scratch.join(RESTORED);
    let wanted = restore::Request::plain(request.reading(), Into::File { engine, path: path.clone() });
    let mut restored = Report::begin("restore");
    let done = match &request.repository {
        None => restore::run(&wanted, conduct, &mut restored),
        Some(name) => {
            let setting = Setting { name, config };
            repository::restore::run(&wanted, request.database.as_deref(), setting, conduct, &mut restored)
        }
    };
    done.map_err(|error| error.noting("`export` reads tables of SQLite; other databases are restored first"))?;
    report.backup_set_id.clone_from(&restored.backup_set_id);
    report.media_set_id.clone_from(&restored.media_set_id);
    report.warnings.append(&mut restored.warnings);
    let database = restored.database.unwrap_or_default();
    let name = Path::new(&database).file_stem().map_or_else(|| "database".into(), |stem| stem.to_string_lossy());
    file.tables(&path, &name, restored.sets)
}

/// Refuses what holds no set of fullbore.
///
/// # Errors
/// Nothing that can be exported is there.
pub(super) fn refuse_others(request: &Request, conduct: &Conduct) -> Result<()> {
    if discovery::find(&request.from, &conduct.stores).is_ok_and(|found| !found.sets.is_empty()) {
        return Ok(());
    }
    let why = "no backup file of SQL Server, and no backup set, is there";
    Err(Error::usage(format!("--from {}", request.from.join(" ")), why, "name the files of a backup"))
}

/// The engine whose databases are files with tables.
fn engine_of_files() -> Result<(&'static str, &'static dyn FileEngine)> {
    let found = ENGINES.iter().find_map(|engine| engine.file().map(|file| (engine.name(), file)));
    found.ok_or_else(|| Error::refused("export", "no engine here has tables in files", "restore the set"))
}
