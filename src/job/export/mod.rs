//! `export`: tables out of media, as files that other programs read.
//!
//! ```text
//! ForeignTables (engines) ─► Selection (tables, columns, --where) ─► Writer (CSV, Parquet, SQLite, SQL) ─► Staging ─► names
//! ```
//! No file has its name before all of them are complete and durable. A table that cannot be decoded is refused; the others
//! are exported.

mod cell_text;
mod condition;
mod csv_file;
mod file_names;
mod logical;
mod own_sets;
mod pace;
mod parquet_file;
mod parquet_schema;
mod selection;
mod sql_file;
mod sqlite_file;
mod staging;

use std::path::{Path, PathBuf};

use fullbore_core::conduct::Conduct;
use fullbore_core::units::counted;
use fullbore_core::{Error, Result};
use fullbore_engines::{Cell, ForeignTables, TableColumn};
use fullbore_repository::chain::Choice;

pub use condition::Condition;
pub use selection::column_names;

use super::foreign::ForeignDevices;
use super::reading::Reading;
use crate::config::Config;
use crate::report::{ExportedTable, Report};
use csv_file::CsvFile;
use pace::Pace;
use parquet_file::{Again, ParquetFile};
use selection::Selected;
use sql_file::sql_text;
use sqlite_file::SqliteFile;
use staging::Staging;

/// The format of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One CSV file for each table.
    Csv,
    /// One Parquet file for each table.
    Parquet,
    /// One SQLite database with all tables.
    Sqlite,
    /// One text of SQL statements for the server that the tables come from.
    Sql,
}

/// What the user asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// `--from`.
    pub from: Vec<String>,
    /// `--repo`, in the place of `--from`.
    pub repository: Option<String>,
    /// `--database`: of the repository.
    pub database: Option<String>,
    /// `--key`.
    pub key: Option<PathBuf>,
    /// `--file`: the position of a set on its media.
    pub file: Option<u16>,
    /// `--set`: the beginning of the identity of a set.
    pub set: Option<String>,
    /// `--format`.
    pub format: Format,
    /// `--table`; all of them without it.
    pub tables: Vec<String>,
    /// `--columns`; all of them without it.
    pub columns: Vec<String>,
    /// `--where`.
    pub condition: Option<Condition>,
    /// The directory of `--into`.
    pub into: PathBuf,
    /// `--replace`.
    pub replace: bool,
}

impl Request {
    /// How sets of fullbore are read.
    fn reading(&self) -> Reading {
        let choice = Choice { set: self.set.clone(), latest: self.set.is_none(), ..Choice::default() };
        Reading { from: self.from.clone(), key: self.key.clone(), choice, ..Reading::default() }
    }

    /// The directory that `--into` names.
    ///
    /// # Errors
    /// It does not begin with `dir:`.
    pub fn directory(into: &str) -> Result<PathBuf> {
        match into.strip_prefix("dir:") {
            Some(path) if !path.is_empty() => Ok(path.into()),
            _ => {
                let why = "an export writes files into a directory";
                Err(Error::usage(format!("--into {into}"), why, "write --into dir:PATH"))
            }
        }
    }
}

/// Exports the tables of these media; fills `report`, also when it fails. `found` is what `--from` names.
///
/// # Errors
/// Nothing can be exported, damage is found, or a file cannot be written. Then no file of this export is left.
pub fn run(
    request: &Request,
    found: Option<&ForeignDevices>,
    config: &Config,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let begun = std::time::Instant::now();
    report.into = Some(format!("dir:{}", request.into.display()));
    let wanted = match (found, request.file) {
        (Some(_), Some(file)) if request.set.is_some() => {
            let why = "both choose a set of these files";
            return Err(Error::usage(format!("--file {file} and --set"), why, "use one of them"));
        }
        (Some(found), Some(file)) => Some(found.identity_of(file)?),
        _ => request.set.clone(),
    };
    if found.is_none() && request.repository.is_none() {
        own_sets::refuse_others(request, conduct)?;
    }
    let staging = Staging::create(&request.into, request.replace)?;
    let scratch = staging.scratch()?;
    let write = |tables: &dyn ForeignTables, report: &mut Report| write(tables, request, staging, conduct, report);
    match found {
        Some(found) => write(&*found.tables(wanted.as_deref(), &scratch, conduct)?, report)?,
        None => own_sets::with_tables(request, &scratch, config, conduct, report, write)?,
    }
    report.set_speed(begun.elapsed().as_secs_f64());
    Ok(())
}

/// Writes the tables that are asked for, and gives the files their names.
fn write(
    tables: &dyn ForeignTables,
    request: &Request,
    staging: Staging,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    report.database = Some(tables.database().to_owned());
    report.sets = tables.sets().to_vec();
    report.warnings.extend(tables.warnings().iter().cloned());
    if request.format != Format::Sql || !request.tables.is_empty() {
        report.notes.extend(tables.notes().iter().cloned());
    }
    let chosen = selection::choose(tables, request)?;
    let expected = chosen.iter().filter_map(Selected::stored_rows).fold(0, u64::saturating_add);
    let writing = Writing { conduct, pace: Pace::begin(&conduct.progress, expected) };
    let done = match request.format {
        Format::Sql => sql_text(tables, &chosen, request, &staging, &writing, report)?,
        _ => export(tables, &chosen, request, &staging, &writing, report)?,
    };
    let Exported { tables: exported, damage } = done;
    writing.pace.end();
    if exported == 0 {
        return Err(damage.unwrap_or_else(|| refused_all(tables.database(), chosen.len(), report)));
    }
    conduct.check()?;
    report.source_bytes = staging.publish()?;
    Ok(())
}

/// No table could be exported: an empty directory would look like an empty database.
fn refused_all(database: &str, count: usize, report: &mut Report) -> Error {
    let what = counted(count as u64, "table");
    if count == 0 {
        let why = "has no user tables, so there is nothing to export; its system tables were read";
        return Error::refused(format!("database `{database}`"), why, "name the backup of another database");
    }
    let why = report.exported.iter().find_map(|table| table.refused.clone()).unwrap_or_default();
    // The error says the first reason, and the warnings say all of them.
    Error::refused(format!("each of {what}"), format!("cannot be exported: {why}"), "restore the backup into a server")
}

/// The signals and the progress of the writing.
struct Writing<'a> {
    conduct: &'a Conduct,
    pace: Pace<'a>,
}

/// What was exported.
#[derive(Default)]
struct Exported {
    tables: usize,
    /// The first damage. The tables with damage are not exported.
    damage: Option<Error>,
}

/// Writes the tables.
fn export(
    tables: &dyn ForeignTables,
    chosen: &[Selected<'_>],
    request: &Request,
    staging: &Staging,
    writing: &Writing<'_>,
    report: &mut Report,
) -> Result<Exported> {
    let mut names = file_names::Names::default();
    let mut database = match request.format {
        Format::Sqlite => Some(SqliteFile::create(&staging.file(&names.database(tables.database(), ".db"))?)?),
        _ => None,
    };
    let mut exported = Exported::default();
    for table in chosen {
        writing.conduct.check()?;
        let mut line =
            ExportedTable { table: table.title(), stored_rows: table.stored_rows(), ..ExportedTable::default() };
        report.notes.extend(table.notes());
        let done = match (&mut database, request.format) {
            (Some(database), _) => {
                // SQLite keeps names with this beginning for itself.
                let is_reserved = table.schema().to_lowercase().starts_with("sqlite_");
                let name = names.table(table.schema(), table.name(), "");
                let name = if is_reserved { format!("%{name}") } else { name };
                sqlite_table(tables, table, database, &name, writing)
            }
            (None, Format::Parquet) => {
                line.file = Some(names.table(table.schema(), table.name(), ".parquet"));
                parquet_table(tables, table, staging, line.file.as_deref().unwrap_or_default(), writing)
            }
            (None, _) => {
                line.file = Some(names.table(table.schema(), table.name(), ".csv"));
                csv_table(tables, table, staging, line.file.as_deref().unwrap_or_default(), writing)
            }
        };
        match done {
            Ok(written) => {
                line.rows = written.rows;
                report.warnings.extend(written.warnings);
                report.warnings.extend(table.other_count(written.read));
                exported.tables += 1;
            }
            Err(error @ (Error::Refused { .. } | Error::Damaged { .. })) => {
                let older = line.file.as_ref().filter(|name| request.into.join(name).exists());
                let stays = older.map_or(String::new(), |name| format!("; {name} stays as it was before"));
                let why = match error {
                    Error::Damaged { .. } => format!("{}: {}", table.title(), error.without_hint()),
                    _ => error.without_hint(),
                };
                report.warnings.push(format!("{why}; the table is not exported{stays}"));
                (line.refused, line.file) = (Some(why), None);
                if matches!(error, Error::Damaged { .. }) {
                    exported.damage.get_or_insert(error);
                }
            }
            Err(other) => return Err(other),
        }
        report.exported.push(line);
    }
    if let Some(database) = database {
        database.finish()?;
    }
    Ok(exported)
}

impl Writing<'_> {
    /// Counts a row, and says whether the export takes it.
    fn takes(&self, table: &Selected<'_>, cells: &[Cell], written: &mut Written) -> Result<bool> {
        /// Rows between two looks at the signals.
        const ROWS: u64 = 4096;
        written.read += 1;
        if written.read.is_multiple_of(ROWS) {
            self.conduct.check()?;
            self.pace.add(ROWS);
        }
        table.refuse_null(cells, written.read)?;
        Ok(table.takes(cells))
    }
}

/// What was written of a table.
struct Written {
    /// Rows in the file.
    rows: u64,
    /// Rows in the table, whether the condition took them or not.
    read: u64,
    warnings: Vec<String>,
}

/// Reads the rows that the condition takes, and gives the columns of the export to `each`.
fn rows(
    tables: &dyn ForeignTables,
    table: &Selected<'_>,
    writing: &Writing<'_>,
    each: &mut dyn FnMut(&[Cell]) -> Result<()>,
) -> Result<Written> {
    table.refuse()?;
    let mut written = Written { rows: 0, read: 0, warnings: Vec::new() };
    let warnings = tables.read(table.place, &table.read_columns, &mut |cells| {
        if writing.takes(table, cells, &mut written)? {
            written.rows += 1;
            each(cells.get(..table.columns.len()).unwrap_or_default())?;
        }
        Ok(())
    })?;
    written.warnings = warnings;
    Ok(written)
}

fn csv_table(
    tables: &dyn ForeignTables,
    table: &Selected<'_>,
    staging: &Staging,
    name: &str,
    writing: &Writing<'_>,
) -> Result<Written> {
    let path = staging.file(name)?;
    let mut file = CsvFile::create(&path, &table.columns)?;
    let done = rows(tables, table, writing, &mut |cells| file.row(cells)).and_then(|done| {
        file.finish()?;
        Ok(done)
    });
    done.inspect_err(|_| staging.drop_file(name))
}

/// A column of moments may need another form than the first one: then the table is read again.
fn parquet_table(
    tables: &dyn ForeignTables,
    table: &Selected<'_>,
    staging: &Staging,
    name: &str,
    writing: &Writing<'_>,
) -> Result<Written> {
    let path = staging.file(name)?;
    let mut forms = parquet_schema::first_forms(&table.columns);
    loop {
        let mut file = ParquetFile::create(&path, &table.columns, &forms)?;
        let mut again: Option<Again> = None;
        let done = rows(tables, table, writing, &mut |cells| {
            let row = file.row(cells)?;
            again = again.take().or(row);
            match again {
                None => Ok(()),
                // Ends the reading; the error is not shown.
                Some(_) => Err(Error::Halted),
            }
        });
        match (done, again) {
            (_, Some(Again { column })) => parquet_schema::next_form(&mut forms, column)?,
            (Ok(done), None) => {
                let finished = file.finish();
                return finished.map(|()| done).inspect_err(|_| staging.drop_file(name));
            }
            (Err(error), None) => {
                staging.drop_file(name);
                return Err(error);
            }
        }
    }
}

fn sqlite_table(
    tables: &dyn ForeignTables,
    table: &Selected<'_>,
    database: &mut SqliteFile,
    name: &str,
    writing: &Writing<'_>,
) -> Result<Written> {
    table.refuse()?;
    database.begin(name, &table.columns)?;
    match rows(tables, table, writing, &mut |cells| database.row(cells)) {
        Ok(done) => {
            database.commit()?;
            Ok(done)
        }
        Err(error) => {
            database.roll_back()?;
            Err(error)
        }
    }
}

/// The file of a writer, for messages.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The columns of an export.
type Columns<'a> = [&'a TableColumn];
