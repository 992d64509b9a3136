//! MySQL's row in the table of engines.

use std::path::Path;

use fullbore_core::Result;
use fullbore_core::media::ManifestStream;

use super::{restore, session};
use crate::engine::{DirectoryEngine, Engine, Identity, PageEngine, Stems, TextOfTable};
use crate::mysql_family::innodb::{Dialect, verify::InnodbPages};
use crate::mysql_family::logical::load::{self, TableText};
use crate::mysql_family::url::{server_identity, server_stems};
use crate::{Options, Session};

/// MySQL.
pub struct MySql;

impl Engine for MySql {
    fn name(&self) -> &'static str {
        "mysql"
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
        Ok(Box::new(session::CloneSession::open(url, options)?))
    }

    fn own_flag(&self, options: &Options) -> Option<(&'static str, &'static str)> {
        let why = "only a backup of a MySQL stores tables of other engines as SQL text";
        options.include_other_engines.then_some(("--include-other-engines", why))
    }

    fn directory(&self) -> Option<&dyn DirectoryEngine> {
        Some(self)
    }

    fn pages(&self) -> Option<&dyn PageEngine> {
        Some(&InnodbPages(Dialect::MySql))
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
        let what = "once the server runs, make tables of MyISAM and CSV that were not stored empty by TRUNCATE TABLE, mysql.general_log and \
                    mysql.slow_log among them: one has a backtick in its name, with which the server cannot do it";
        (!restore::is_emptied(position)).then(|| what.into())
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
