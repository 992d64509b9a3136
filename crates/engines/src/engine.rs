//! What the rest of the program asks an engine. An engine is a folder, a type that implements [`Engine`], and a line in [`ENGINES`](crate::ENGINES).

use std::path::{Path, PathBuf};

use fullbore_core::Result;
use fullbore_core::media::{LogRange, ManifestStream, Position, SetKind};
use fullbore_core::unpack::Target;

use crate::{Options, Session};

/// A database system.
pub trait Engine: Sync {
    /// Its name, in URLs (`sqlite:PATH`) and in manifests.
    fn name(&self) -> &'static str;

    /// What the database that `url` names is called. It need not exist.
    fn identity(&self, url: &str) -> Identity;

    /// True when a server is asked for the database. False when the database is a file of this machine.
    fn is_server(&self) -> bool;

    /// The name of a database in the names of its families, from its name on media; and what earlier versions made of it.
    fn stems(&self, name: &str) -> Stems;

    /// Opens a session on the database that `url` names; the URL begins with this engine's name.
    ///
    /// # Errors
    /// The URL is none of this engine, the database cannot be reached, or it cannot be backed up as it is.
    fn open(&self, url: &str, options: &Options) -> Result<Box<dyn Session>>;

    /// A flag that was given and that no other engine takes, and why.
    fn own_flag(&self, options: &Options) -> Option<(&'static str, &'static str)> {
        let _ = options;
        None
    }

    /// Its log backups, if it has any.
    fn log(&self) -> Option<&dyn LogEngine> {
        None
    }

    /// Its files in a directory, if a server starts on one.
    fn directory(&self) -> Option<&dyn DirectoryEngine> {
        None
    }

    /// Its pages, if they can be checked without the engine.
    fn pages(&self) -> Option<&dyn PageEngine> {
        None
    }

    /// What a set says of a schema that could not be parsed when it was made (with `--continue-after-error`). `position` is that of its manifest.
    fn unreadable_schema(&self, position: &serde_json::Value) -> Option<String> {
        let _ = position;
        None
    }
}

/// What a database is called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its name on media. A file has one name, however its path is written; a server is named by host and port, or by its socket.
    pub name: String,
    /// The path, or the host and port, as the URL has it.
    pub written: String,
    /// The files of this machine that are the database, also those that do not exist just now. None of a server.
    pub files: Vec<PathBuf>,
}

/// How the names of a database's families begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stems {
    /// It begins with a letter or a digit, because programs take `-x.bore` for an option.
    pub now: String,
    /// What earlier versions wrote.
    pub earlier: String,
}

impl Stems {
    /// From what earlier versions wrote; `kind` comes before a name that begins with other letters.
    pub(crate) fn new(earlier: String, kind: &str) -> Self {
        let rest = earlier.trim_start_matches(|letter: char| !letter.is_alphanumeric());
        let now = match rest {
            "" => "database".to_owned(),
            rest if rest.len() == earlier.len() => rest.to_owned(),
            rest => format!("{kind}{rest}"),
        };
        Self { now, earlier }
    }
}

/// Log backups of an engine.
pub trait LogEngine: Sync {
    /// Where a set begins and ends in the log; `None` where its position makes no sense. `finished_at` is when it was finished, in microseconds
    /// since 1970: it counts where the position does not tell a time.
    fn range(&self, kind: SetKind, position: &Position, finished_at: Option<i64>) -> Option<LogRange>;
}

/// Directories that a server of the engine starts on.
pub trait DirectoryEngine: Sync {
    /// Marks an empty directory as a copy that is not complete: no server starts on it.
    ///
    /// # Errors
    /// The directory cannot be written.
    fn begin(&self, directory: &Path) -> Result<()>;

    /// The name of that mark in the directory.
    fn mark(&self) -> &'static str;

    /// Makes a directory, whose files are all there and durable, one that a server starts on. `position` is the one of the set's manifest.
    ///
    /// # Errors
    /// The directory cannot be written.
    fn finish(&self, directory: &Path, position: &serde_json::Value) -> Result<()>;

    /// What has to be done once a server runs on a restored directory, if no start check has done it.
    fn after_a_start(&self, position: &serde_json::Value) -> Option<String> {
        let _ = position;
        None
    }

    /// The tables among `streams` that are stored as SQL text.
    fn texts_of_tables(&self, streams: &[ManifestStream]) -> Vec<TextOfTable> {
        let _ = streams;
        Vec::new()
    }
}

/// Pages that carry checksums.
pub trait PageEngine: Sync {
    /// What looks at the pages while a set that restores to `streams` is verified.
    fn check(&self, streams: &[ManifestStream]) -> Box<dyn PageCheck>;

    /// Bytes of one page of a file; `None` of a file without pages.
    fn page_size(&self, stream: &ManifestStream) -> Option<u32>;

    /// What a set says of pages that were damaged when it was made (with `--continue-after-error`). `position` is the one of its manifest.
    fn damaged_at_source(&self, position: &serde_json::Value) -> Option<String>;
}

/// What looks at a set's bytes while it is verified.
pub trait PageCheck: Target {
    /// What was damaged already when it was read, each in a sentence for the user; once everything has been given.
    fn damaged(&self) -> Vec<String>;
}

/// A table that a restored directory holds as SQL text only, until somebody loads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextOfTable {
    /// Its path below the directory.
    pub path: String,
    /// Bytes of its longest statement: less than the server's `max_allowed_packet` must be.
    pub longest_statement: u64,
    /// Whether the server forgets its rows whenever it stops.
    pub in_memory: bool,
}
