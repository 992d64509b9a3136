//! MariaDB's row in the table of engines.

use std::path::Path;

use fullbore_core::Result;

use super::{restore, session, undo_length};
use crate::engine::{
    AlsoIn, BinaryLogPlace, DirectoryEngine, Engine, EngineOption, FAIL_OVER_FROM, Identity, LogEngine, LogicalEngine,
    MigrationEngine, OptionKind, PageEngine, Stems,
};
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::engine::Binlog;
use crate::mysql_family::innodb::verify::InnodbPages;
use crate::mysql_family::logical_set::session::LogicalSession;
use crate::mysql_family::logical_set::{self, LogicalSets};
use crate::mysql_family::migration;
use crate::mysql_family::server_options::{
    ACCEPT_UNVERIFIED, DATABASE, EXCLUDE, METHOD, OF_RESTORES, PASSWORD_FILE, TABLE, USERS, WHERE,
};
use crate::mysql_family::url::{server_identity, server_stems};
use crate::{Options, Session};

static OPTIONS: [&EngineOption; 10] = [
    &PASSWORD_FILE,
    &FAIL_OVER_FROM,
    &ACCEPT_UNVERIFIED,
    &METHOD,
    &DATABASE,
    &TABLE,
    &EXCLUDE,
    &WHERE,
    &USERS,
    &ACCEPT_LEFT_OUT,
];

/// Switches off the warnings of tables that a copy leaves out.
pub static ACCEPT_LEFT_OUT: EngineOption = EngineOption {
    name: "accept-left-out",
    kind: OptionKind::Switch,
    help: "You know that the backup leaves out the rows of MEMORY tables and the tables of engines such as RocksDB, \
           Mroonga and CONNECT. The set lists them, and the backup does not warn of them",
    elsewhere: "only a backup of a MariaDB server leaves out tables and continues",
    also: &[AlsoIn::LogFollow],
};

/// MariaDB.
pub struct MariaDb;

impl Engine for MariaDb {
    fn name(&self) -> &'static str {
        Dialect::MariaDb.name()
    }

    fn title(&self) -> &'static str {
        Dialect::MariaDb.title()
    }

    fn identity(&self, url: &str) -> Identity {
        server_identity(url)
    }

    fn is_server(&self) -> bool {
        true
    }

    fn stems(&self, name: &str) -> Stems {
        server_stems(self.name(), name)
    }

    fn open(&self, url: &str, options: &Options) -> Result<Box<dyn Session>> {
        match logical_set::is_wanted(url, options)? {
            true => Ok(Box::new(LogicalSession::open(url, options)?)),
            false => Ok(Box::new(session::MariadbSession::open(url, options)?)),
        }
    }

    fn options(&self) -> &'static [&'static EngineOption] {
        &OPTIONS
    }

    fn restore_options(&self) -> &'static [&'static EngineOption] {
        &OF_RESTORES
    }

    fn log(&self) -> Option<&dyn LogEngine> {
        Some(&Binlog(Dialect::MariaDb))
    }

    fn directory(&self) -> Option<&dyn DirectoryEngine> {
        Some(self)
    }

    fn logical(&self) -> Option<&dyn LogicalEngine> {
        Some(&LogicalSets)
    }

    fn migration_from(&self, source: &str) -> Option<&dyn MigrationEngine> {
        migration::migration_from(source)
    }

    fn pages(&self) -> Option<&dyn PageEngine> {
        Some(&InnodbPages(Dialect::MariaDb))
    }

    fn binary_log(&self, position: &serde_json::Value) -> Option<BinaryLogPlace> {
        let of_log = BinaryLogPlace::of(&position["binlog"], ["file", "offset", "gtid"]);
        of_log.or_else(|| BinaryLogPlace::of(&position["binary_log"], ["file", "offset", "gtid_binlog_pos"]))
    }
}

impl DirectoryEngine for MariaDb {
    fn begin(&self, directory: &Path) -> Result<()> {
        restore::begin(directory)
    }

    fn mark(&self) -> &'static str {
        restore::IN_PROGRESS
    }

    fn lengthen(&self, directory: &Path, position: &serde_json::Value) -> Result<()> {
        undo_length::make_long_enough(directory, position)
    }

    fn finish(&self, directory: &Path, position: &serde_json::Value) -> Result<()> {
        self.lengthen(directory, position)?;
        restore::finish(directory)
    }
}
