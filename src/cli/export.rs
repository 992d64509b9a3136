//! `fullbore export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fullbore::config::Config;
use fullbore::job::export::{self, Condition, Request};
use fullbore::{Error, Result};

use super::args::{InRepository, OutputFlags};
use super::closing;

/// Write the tables of a backup as CSV, Parquet, SQLite or SQL files, without a database server.
///
/// It reads backup files of SQL Server (.bak): a full, and the newest differential over it. Such files may be stored: --repo
/// names their repository, --from a directory of sets. It reads backup sets of SQLite databases, and logical sets of MySQL
/// and MariaDB (backup --method logical), too. Other backup sets are restored first. A table that cannot be decoded is
/// refused with a warning and exit code 4; the other tables are exported. No file has its name before all files are complete
/// and durable.
#[derive(Debug, Args)]
pub struct Export {
    /// Backup files, directories or patterns: all families of a full, and of its differential. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub from: Vec<String>,
    /// Which repository.
    #[command(flatten)]
    pub repository: InRepository,
    /// csv and parquet: a file for each table. sqlite: one database with all tables. sql: one text for the client of the
    /// server, only of MySQL and MariaDB.
    #[arg(long, value_name = "FORMAT")]
    pub format: Format,
    /// Export only this table: dbo.Orders, or Orders. Repeatable [default: all tables].
    #[arg(long, value_name = "TABLE")]
    pub table: Vec<String>,
    /// Export only these columns, in this order, separated by commas. A name may have brackets: "OrderID,[Ship, City]"
    /// [default: all columns].
    #[arg(long, value_name = "COLUMNS")]
    pub columns: Vec<String>,
    /// Export only the rows for which this is true: COLUMN = VALUE, also <> < <= > >= and IS [NOT] NULL, joined by AND.
    /// Texts have single quotes. They are compared exactly, also in upper and lower case.
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// Where the files go: dir:PATH, a directory that does not exist or is empty.
    #[arg(long, value_name = "TARGET")]
    pub into: String,
    /// Replace files of the same names in a directory that is not empty.
    #[arg(long)]
    pub replace: bool,
    /// The set at this position of its media (FILE = N) [default: the newest full and differential].
    #[arg(long, value_name = "N")]
    pub file: Option<u16>,
    /// The set with this id, or of SQL Server with this BackupSetGUID. The start of it is enough.
    #[arg(long, value_name = "ID")]
    pub set: Option<String>,
    /// The key file of encrypted backup sets.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// Messages and report.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: OutputFlags,
}

/// The format of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated values, in UTF-8, with a header.
    Csv,
    /// Apache Parquet.
    Parquet,
    /// A SQLite database.
    Sqlite,
    /// A text of SQL for a MySQL or MariaDB server: definitions, rows, views, routines and triggers.
    Sql,
}

/// Runs the verb; gives the exit code.
pub fn run(args: &Export, config: &Config) -> Result<u8> {
    let config = &args.repository.config(config);
    if args.from.is_empty() && args.repository.repo.is_none() {
        return Err(Error::usage("export", "nothing to read is named", "write --from DEVICE or --repo NAME"));
    }
    if args.format == Format::Sql && !args.columns.is_empty() {
        let why = "--format sql has whole rows, which their table takes back";
        return Err(Error::usage("--columns", why, "leave it out, or use --format csv"));
    }
    let request = Request {
        from: args.from.clone(),
        repository: args.repository.repo.clone(),
        database: args.repository.database.clone(),
        key: args.key.clone().or_else(|| config.key.clone()),
        file: args.file,
        set: args.set.clone(),
        format: match args.format {
            Format::Csv => export::Format::Csv,
            Format::Parquet => export::Format::Parquet,
            Format::Sqlite => export::Format::Sqlite,
            Format::Sql => export::Format::Sql,
        },
        tables: args.table.clone(),
        columns: export::column_names(&args.columns)?,
        condition: args.condition.as_deref().map(Condition::parse).transpose()?,
        into: Request::directory(&args.into)?,
        replace: args.replace,
    };
    super::with_report(
        "export",
        &args.shown,
        config,
        |conduct, report| {
            let found = match request.repository {
                None => super::foreign::find(&request.from, None, config, conduct)?,
                Some(_) => None,
            };
            export::run(&request, found.as_ref(), config, conduct, report)
        },
        |report| closing::export(report, &args.shown),
        false,
    )
}
