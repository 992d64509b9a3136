//! MySQL's row in the table of engines.

use std::path::Path;

use fullbore_core::Result;
use fullbore_core::media::ManifestStream;

use super::{restore, session};
use crate::engine::{
    AlsoIn, BinaryLogPlace, DirectoryEngine, Engine, EngineOption, FAIL_OVER_FROM, Identity, LogEngine, LogicalEngine,
    MigrationEngine, OptionKind, PageEngine, Stems, TextOfTable,
};
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::engine::Binlog;
use crate::mysql_family::innodb::verify::InnodbPages;
use crate::mysql_family::logical::load::{self, TableText};
use crate::mysql_family::logical_set::session::LogicalSession;
use crate::mysql_family::logical_set::{self, LogicalSets};
use crate::mysql_family::migration;
use crate::mysql_family::server_options::{
    ACCEPT_UNVERIFIED, DATABASE, DISABLE_REDO, EXCLUDE, METHOD, OF_RESTORES, PASSWORD_FILE, TABLE, USERS, WHERE,
};
use crate::mysql_family::url::{server_identity, server_stems};
use crate::{Options, Session};

static OPTIONS: [&EngineOption; 12] = [
    &PASSWORD_FILE,
    &FAIL_OVER_FROM,
    &ACCEPT_UNVERIFIED,
    &METHOD,
    &DATABASE,
    &TABLE,
    &EXCLUDE,
    &WHERE,
    &USERS,
    &INSTALL_CLONE_PLUGIN,
    &INCLUDE_OTHER_ENGINES,
    &DISABLE_REDO,
];

/// Loads the plugin that the server lacks.
pub static INSTALL_CLONE_PLUGIN: EngineOption = EngineOption {
    name: "install-clone-plugin",
    kind: OptionKind::Switch,
    help: "Load the CLONE plugin if the server lacks it. It stays loaded",
    elsewhere: "only a backup of a MySQL server needs the CLONE plugin",
    also: &[AlsoIn::LogFollow],
};

/// Also stores the tables that a clone leaves out.
pub static INCLUDE_OTHER_ENGINES: EngineOption = EngineOption {
    name: "include-other-engines",
    kind: OptionKind::Switch,
    help: "Store the tables of other engines than InnoDB too (MyISAM, CSV, ARCHIVE, MEMORY …), as SQL text of the same \
           moment. No session can write to them while fullbore reads the end of the clone and these tables",
    elsewhere: "only a backup of a MySQL server stores tables of other engines as SQL text",
    also: &[AlsoIn::LogFollow],
};

/// MySQL.
pub struct MySql;

impl Engine for MySql {
    fn name(&self) -> &'static str {
        Dialect::MySql.name()
    }

    fn title(&self) -> &'static str {
        Dialect::MySql.title()
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
            false => Ok(Box::new(session::CloneSession::open(url, options)?)),
        }
    }

    fn options(&self) -> &'static [&'static EngineOption] {
        &OPTIONS
    }

    fn restore_options(&self) -> &'static [&'static EngineOption] {
        &OF_RESTORES
    }

    fn log(&self) -> Option<&dyn LogEngine> {
        Some(&Binlog(Dialect::MySql))
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
        Some(&InnodbPages(Dialect::MySql))
    }

    fn binary_log(&self, position: &serde_json::Value) -> Option<BinaryLogPlace> {
        let of_log = BinaryLogPlace::of(&position["binlog"], ["file", "offset", "gtid"]);
        of_log.or_else(|| {
            BinaryLogPlace::of(
                &position["binary_log_exact"],
                ["binary_log_file", "binary_log_position", "gtid_executed"],
            )
        })
    }
}

impl DirectoryEngine for MySql {
    fn begin(&self, directory: &Path) -> Result<()> {
        restore::begin(directory)
    }

    fn mark(&self) -> &'static str {
        restore::MARKS
    }

    fn finish(&self, directory: &Path, position: &serde_json::Value) -> Result<()> {
        restore::finish(directory, position)
    }

    fn after_a_start(&self, position: &serde_json::Value) -> Option<String> {
        let what = "once the server runs, empty each MyISAM and CSV table that was not stored, with TRUNCATE TABLE, \
                    also mysql.general_log and mysql.slow_log: the server cannot do it, because the name of one \
                    table contains a backtick";
        (!crate::mysql_family::emptied::is_emptied(position)).then(|| what.into())
    }

    fn texts_of_tables(&self, streams: &[ManifestStream]) -> Vec<TextOfTable> {
        let text = |text: TableText| TextOfTable {
            in_memory: text.table.is_in_memory(),
            path: text.path,
            longest_statement: text.longest,
        };
        load::texts(streams).into_iter().map(text).collect()
    }
}
