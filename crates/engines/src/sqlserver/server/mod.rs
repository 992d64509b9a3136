//! A running SQL Server, or Amazon RDS for SQL Server, that runs its backups and restores itself.
//!
//! | to understand | read |
//! |---|---|
//! | `mssql://…` and the account | [`address`], [`browser`] (the port of a named instance) |
//! | the places of backup files | [`place`] |
//! | every text that goes to the server | [`words`] (quoting, BACKUP, RESTORE), [`questions`] (SELECT, EXEC) |
//! | the two connections, the only async code of the engines | [`link`], [`meter`] (the bytes of an answer) |
//! | what the server answers, as checked values | [`answer`], [`failure`] (its errors) |
//! | which files are there before a run | [`found`] |
//! | a run from its start to its end | [`session`], [`restoring`], `chain` (several sets in one restore), [`rds`] |
//!
//! It was written from Microsoft's and Amazon's documents and is tested against a stub server. It has never run against
//! a SQL Server.

pub mod address;
pub mod answer;
pub mod browser;
mod chain;
mod failure;
mod found;
mod link;
mod meter;
pub mod place;
mod questions;
mod rds;
mod restoring;
mod session;
pub mod words;

use fullbore_core::Result;

use crate::Options;
use crate::engine::{AlsoIn, BackupServer, EngineOption, OptionKind, PASSWORD_FILE, ServerSession};

/// The server is Amazon RDS.
pub static RDS: EngineOption = EngineOption {
    name: "rds",
    kind: OptionKind::Switch,
    help: "The server is Amazon RDS for SQL Server: call its procedures (msdb.dbo.rds_…)",
    elsewhere: "only SQL Server has it",
    also: &[AlsoIn::Estimates, AlsoIn::Restore],
};

/// The options of SQL Server.
pub static OPTIONS: [&EngineOption; 2] = [&PASSWORD_FILE, &RDS];

/// SQL Server, as a server that runs its backups itself.
pub struct Driver;

impl BackupServer for Driver {
    fn caveat(&self) -> &'static str {
        "it is tested against a stub server only and has never run against a SQL Server"
    }

    fn connect(&self, url: &str, options: &Options) -> Result<Box<dyn ServerSession>> {
        Ok(Box::new(session::Session::open(url, options)?))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
