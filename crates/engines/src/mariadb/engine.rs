//! MariaDB's row in the table of engines.

use std::path::Path;

use fullbore_core::Result;

use super::{restore, session, undo_length};
use crate::engine::{DirectoryEngine, Engine, Identity, PageEngine, Stems};
use crate::mysql_family::innodb::{Dialect, verify::InnodbPages};
use crate::mysql_family::url::{server_identity, server_stems};
use crate::{Options, Session};

/// MariaDB.
pub struct MariaDb;

impl Engine for MariaDb {
    fn name(&self) -> &'static str {
        "mariadb"
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
        Ok(Box::new(session::MariadbSession::open(url, options)?))
    }

    fn own_flag(&self, options: &Options) -> Option<(&'static str, &'static str)> {
        let why = "it is about a MariaDB whose files are copied";
        options.accept_left_out.then_some(("--accept-left-out", why))
    }

    fn directory(&self) -> Option<&dyn DirectoryEngine> {
        Some(self)
    }

    fn pages(&self) -> Option<&dyn PageEngine> {
        Some(&InnodbPages(Dialect::MariaDb))
    }
}

impl DirectoryEngine for MariaDb {
    fn begin(&self, directory: &Path) -> Result<()> {
        restore::begin(directory)
    }

    fn mark(&self) -> &'static str {
        restore::IN_PROGRESS
    }

    fn finish(&self, directory: &Path, position: &serde_json::Value) -> Result<()> {
        undo_length::make_long_enough(directory, position)?;
        restore::finish(directory)
    }
}
