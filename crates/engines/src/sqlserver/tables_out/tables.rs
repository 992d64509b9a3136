//! The tables of a database as the rest of the program reads them.

use fullbore_core::{Error, Result};

use super::super::super::engine::{Cell, ForeignTable, ForeignTables};
use super::collation::CodePages;
use super::column::Column;
use super::data_files::DataFiles;
use super::definitions::{TableDefinition, tables};
use super::rows::RowReader;
use super::system_tables::Catalog;
use super::{Trouble, unknown};

/// The newest version of a database among the genuine backups.
const NEWEST_TRIED: u16 = 904;

/// The tables of one database, over its data files.
pub struct DatabaseTables {
    files: DataFiles,
    pages: CodePages,
    definitions: Vec<TableDefinition>,
    shown: Vec<ForeignTable>,
    /// What is known of the media.
    pub about: About,
}

/// Where the data files come from.
#[derive(Debug, Default)]
pub struct About {
    /// The name of the database.
    pub database: String,
    /// The backup sets.
    pub sets: Vec<String>,
    /// What to look at.
    pub warnings: Vec<String>,
    /// What the reader has to know.
    pub notes: Vec<String>,
}

impl DatabaseTables {
    /// Reads the system tables. `locale` is the UnicodeLocaleId of the backup.
    ///
    /// # Errors
    /// The system tables have a form that is not known, or a page is damaged.
    pub fn open(files: DataFiles, locale: u32, mut about: About) -> Result<Self> {
        let read = Catalog::read(&files).and_then(|catalog| Ok((super::chain::collation(&files)?, catalog)));
        let (collation, catalog) = read.map_err(|trouble| match trouble {
            Trouble::Failed(error) => *error,
            Trouble::Unknown(what) => Error::refused(
                format!("the system tables of `{}`", about.database),
                what,
                "if the database is encrypted (TDE), only SQL Server reads it",
            ),
        })?;
        let definitions = tables(&catalog);
        about.warnings.extend(catalog.warnings);
        about.notes.extend(catalog.version.gt(&NEWEST_TRIED).then(|| {
            format!(
                "the database has version {}, and the newest one that was tried is {NEWEST_TRIED} (SQL Server 2019): \
                 compare the rows with the numbers that the database has counted",
                catalog.version
            )
        }));
        let shown = definitions.iter().map(|definition| definition.table.clone()).collect();
        Ok(Self { files, pages: CodePages::new(collation, locale), definitions, shown, about })
    }

    fn rows(
        &self,
        definition: &TableDefinition,
        columns: &[usize],
        each: &mut dyn FnMut(&[Cell]) -> Result<()>,
    ) -> Result<(), Trouble> {
        if let Some(why) = &definition.table.refused {
            return unknown(why.as_str());
        }
        let reader = RowReader { files: &self.files, pages: &self.pages };
        for partition in &definition.partitions {
            let stored = |at: &usize| partition.columns.get(*at).and_then(Option::as_ref);
            let stored: Option<Vec<&Column>> = columns.iter().map(stored).collect();
            let Some(stored) = stored else { return unknown("a column cannot be read") };
            reader.read(partition, &stored, &mut |cells| Ok(each(cells)?))?;
        }
        Ok(())
    }
}

impl ForeignTables for DatabaseTables {
    fn database(&self) -> &str {
        &self.about.database
    }

    fn sets(&self) -> &[String] {
        &self.about.sets
    }

    fn warnings(&self) -> &[String] {
        &self.about.warnings
    }

    fn notes(&self) -> &[String] {
        &self.about.notes
    }

    fn tables(&self) -> &[ForeignTable] {
        &self.shown
    }

    fn read(
        &self,
        table: usize,
        columns: &[usize],
        each: &mut dyn FnMut(&[Cell]) -> Result<()>,
    ) -> Result<Vec<String>> {
        let Some(definition) = self.definitions.get(table) else {
            return Err(Error::usage(format!("table {table}"), "does not exist", "name one of the tables"));
        };
        self.pages.take_replaced();
        self.rows(definition, columns, each).map_err(|trouble| match trouble {
            Trouble::Failed(error) => *error,
            Trouble::Unknown(what) => Error::refused(definition.table.title(), what, "leave this table out"),
        })?;
        Ok(match self.pages.take_replaced() {
            0 => Vec::new(),
            count => vec![format!(
                "{}: {count} texts have characters that do not exist in Unicode; each such character became U+FFFD",
                definition.table.title()
            )],
        })
    }
}
