//! SQL Server's row in the table of engines: sets that hold its backup files. fullbore does not connect to a server.

use fullbore_core::{Error, Result};

use crate::engine::{Engine, Identity, Stems};
use crate::{Options, Session};

/// The engine of sets that hold backup files.
pub struct SqlServer;

impl Engine for SqlServer {
    fn name(&self) -> &'static str {
        "sqlserver"
    }

    fn title(&self) -> &'static str {
        "SQL Server"
    }

    /// A database is named as `SERVER\\INSTANCE/DATABASE`.
    fn identity(&self, url: &str) -> Identity {
        let name = url.split_once(':').map_or(url, |(_, name)| name).to_owned();
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
        let why = "fullbore does not connect to SQL Server: it stores the files that BACKUP has written";
        let hint = "take the files into a repository: fullbore copy --from '/dump/*.bak' --to-repo NAME";
        Err(Error::usage(url, why, hint))
    }
}
