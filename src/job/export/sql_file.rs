//! One text of SQL statements with all tables, in the language of the server that they come from.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use fullbore_core::{Error, Result};
use fullbore_engines::{Cell, ForeignTables};

use super::file_names::Names;
use super::selection::Selected;
use super::staging::Staging;
use super::{Exported, Request, Writing, Written, shown};
use crate::report::{ExportedTable, Report};

/// Bytes that are collected before a write.
const BUFFER: usize = 1 << 20;

/// A file that is being written.
struct SqlFile {
    out: BufWriter<File>,
    name: String,
}

impl SqlFile {
    /// Makes the file.
    ///
    /// # Errors
    /// It cannot be made.
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|e| Error::io("make", shown(path), e))?;
        Ok(Self { out: BufWriter::with_capacity(BUFFER, file), name: shown(path) })
    }

    /// Writes a piece of the text.
    ///
    /// # Errors
    /// It cannot be written.
    fn write(&mut self, text: &[u8]) -> Result<()> {
        self.out.write_all(text).map_err(|e| Error::io("write", self.name.as_str(), e))
    }

    /// Writes what was collected.
    ///
    /// # Errors
    /// It cannot be written.
    fn finish(mut self) -> Result<()> {
        self.out.flush().map_err(|e| Error::io("write", self.name.as_str(), e))
    }
}

/// Writes one text with the tables. A table that cannot be written ends the export: its rows are not in a file of their own.
///
/// # Errors
/// The tables are not of such a server, damage is found, or the file cannot be written.
pub(super) fn sql_text(
    tables: &dyn ForeignTables,
    chosen: &[Selected<'_>],
    request: &Request,
    staging: &Staging,
    writing: &Writing<'_>,
    report: &mut Report,
) -> Result<Exported> {
    let Some(statements) = tables.statements() else {
        let why = "is for sets of MySQL and MariaDB (--method logical)";
        return Err(Error::refused("--format sql", why, "use --format csv, parquet or sqlite"));
    };
    let places: Vec<usize> = chosen.iter().map(|table| table.place).collect();
    let places = (!request.tables.is_empty()).then_some(&places[..]);
    let name = Names::default().database(tables.database(), ".sql");
    let mut file = SqlFile::create(&staging.file(&name)?)?;
    statements.before(places, &mut |text| file.write(text))?;
    for table in chosen {
        table.refuse_columns()?;
        let mut written = Written { rows: 0, read: 0, warnings: Vec::new() };
        let mut takes = |cells: &[Cell]| -> Result<bool> {
            let takes = writing.takes(table, cells, &mut written)?;
            written.rows += u64::from(takes);
            Ok(takes)
        };
        statements.rows(table.place, &table.read_columns, &mut takes, &mut |text| file.write(text))?;
        report.notes.extend(table.notes());
        report.warnings.extend(table.other_count(written.read));
        report.exported.push(ExportedTable {
            table: table.title(),
            rows: written.rows,
            stored_rows: table.stored_rows(),
            ..ExportedTable::default()
        });
    }
    statements.behind(places, &mut |text| file.write(text))?;
    file.finish()?;
    Ok(Exported { tables: chosen.len(), damage: None })
}
