//! T-SQL of backup and restore, as DBAs of SQL Server write it. A script becomes command lines of fullbore: no job runs
//! here. The statements and options are those of Microsoft's reference pages for BACKUP, RESTORE and the `rds_*` procedures
//! (`docs/verbs/sql.md` lists them).
//!
//! Nothing is ignored: a word without a meaning here is an error with its line and column.

mod backup;
mod expression;
mod lexemes;
mod names;
mod on_server;
mod options;
mod parser;
mod procedures;
mod restore;
mod restored_files;
mod script;
mod statement;

pub use lexemes::{Position, SCRIPT_MAX};
pub use names::Names;
pub use script::read_script;
pub use statement::{Action, Command, Expected};
