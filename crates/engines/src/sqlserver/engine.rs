//! SQL Server's row in the table of engines: sets that hold its backup files, and servers that run their backups
//! themselves.

use fullbore_core::{Error, Result};

use super::server;
use crate::engine::{BackupServer, CHAIN, Engine, EngineOption, FILE, Identity, MOVE, Stems};
use crate::{Options, Session};

/// The engine of sets that hold backup files, and of `mssql://`.
pub struct SqlServer;

impl Engine for SqlServer {
    fn name(&self) -> &'static str {
        "sqlserver"
    }

    fn title(&self) -> &'static str {
        "SQL Server"
    }

    fn scheme(&self) -> &'static str {
        "mssql"
    }

    fn options(&self) -> &'static [&'static EngineOption] {
        &server::OPTIONS
    }

    fn restore_options(&self) -> &'static [&'static EngineOption] {
        static OF_RESTORES: [&EngineOption; 3] = [&MOVE, &FILE, &CHAIN];
        &OF_RESTORES
    }

    fn backup_server(&self) -> Option<&dyn BackupServer> {
        Some(&server::Driver)
    }

    /// A database is named as `SERVER\\INSTANCE/DATABASE` in sets, as `HOST:PORT/DATABASE` on a server.
    fn identity(&self, url: &str) -> Identity {
        let in_set = |url: &str| url.split_once(':').map_or(url, |(_, name)| name).to_owned();
        let name = if url.starts_with("mssql:") { server::address::identity(url) } else { in_set(url) };
        Identity { name: name.clone(), written: name, files: Vec::new() }
    }

    fn is_server(&self) -> bool {
        true
    }

    fn stems(&self, name: &str) -> Stems {
        let database = name.rsplit_once('/').map_or(name, |(_, database)| database);
        let letters = |letter: char| if letter.is_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
        Stems::new(database.chars().map(letters).collect(), "sqlserver-")
    }

    fn open(&self, url: &str, _: &Options) -> Result<Box<dyn Session>> {
        let why = "fullbore does not read the bytes of a SQL Server: the server writes its backup files itself";
        let hint = "`backup`, `restore` and `estimate` take mssql://… with --experimental; `fullbore copy --from \
                    '/dump/*.bak' --to-repo NAME` takes its files into a repository";
        Err(Error::usage(crate::without_password(url), why, hint))
    }
}
