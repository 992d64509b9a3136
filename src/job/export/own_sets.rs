//! Tables of backup sets of fullbore. Media of another program are read out of their sets. Other databases are restored into
//! the directory of the export first.

use std::path::Path;

use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::FileEngine;
use fullbore_engines::{ENGINES, ForeignTables};
use fullbore_repository::discovery;

use super::{Request, logical};
use crate::config::Config;
use crate::job::repository::{self, Setting};
use crate::job::restore::{self, Into};
use crate::job::stored_tables::{self, Wanted};
use crate::report::Report;

/// What is noted when the database has no tables here.
const OTHERS: &str = "`export` reads tables of SQLite, rows of MySQL and MariaDB from sets of --method logical, and those of SQL \
                      Server from its backup files and out of a repository; other sets are restored first";
/// The name of the restored file. It has no name after the export.
const RESTORED: &str = "restored";

/// Gives the tables of the chosen database to `then`. Work is in `scratch`.
///
/// # Errors
/// The errors of a restore. Also: the sets belong to an engine whose tables fullbore cannot read; the error of `then`.
pub(super) fn with_tables(
    request: &Request,
    scratch: &Path,
    config: &Config,
    conduct: &Conduct,
    report: &mut Report,
    then: impl FnOnce(&dyn ForeignTables, &mut Report) -> Result<()>,
) -> Result<()> {
    if request.file.is_some() {
        return then(&*tables(request, scratch, config, conduct, report)?, report);
    }
    let reading = request.reading();
    let Some(name) = &request.repository else {
        let tables = match logical::among_sets(&reading, conduct, report)? {
            Some(tables) => tables,
            None => tables(request, scratch, config, conduct, report)?,
        };
        return then(&*tables, report);
    };
    let (setting, database) = (Setting { name, config }, request.database.as_deref());
    let mut then = Some(then);
    let done =
        repository::logical_tables::with_reading(&reading, database, setting, conduct, report, |set, report| {
            let tables = logical::among_sets(set, conduct, report)?.ok_or(Error::Halted)?;
            then.take().ok_or(Error::Halted)?(&*tables, report)
        })?;
    match then {
        Some(then) if done.is_none() => then(&*tables(request, scratch, config, conduct, report)?, report),
        _ => Ok(()),
    }
}

/// Opens the tables of a database of another kind.
fn tables(
    request: &Request,
    scratch: &Path,
    config: &Config,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Box<dyn ForeignTables>> {
    let setting = request.repository.as_ref().map(|name| Setting { name, config });
    let reading = request.reading();
    let wanted = request.file.map_or(Wanted::Newest, Wanted::Position);
    let found = match setting {
        None => stored_tables::among_sets(&reading, wanted, scratch, conduct, report)?,
        Some(setting) => {
            let database = request.database.as_deref();
            repository::stored_tables::tables((&reading, wanted), database, scratch, setting, conduct, report)?
        }
    };
    if let Some(tables) = found {
        return Ok(tables);
    }
    if let Some(file) = request.file {
        let why = "is for backup files of SQL Server";
        return Err(Error::usage(format!("--file {file}"), why, "choose a set of fullbore with --set"));
    }
    let (engine, file) = engine_of_files()?;
    let path = scratch.join(RESTORED);
    let wanted = restore::Request::plain(reading, Into::File { engine, path: path.clone() });
    let mut restored = Report::begin("restore");
    let done = match setting {
        None => restore::run(&wanted, conduct, &mut restored),
        Some(setting) => {
            repository::restore::run(&wanted, request.database.as_deref(), setting, conduct, &mut restored)
        }
    };
    done.map_err(|error| error.noting(OTHERS))?;
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
