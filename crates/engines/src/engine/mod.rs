//! The interface of engines to the rest of the program. An engine is a folder, a type that implements [`Engine`], and a
//! line in [`ENGINES`](crate::ENGINES).

mod backup_server;
mod database_url;
mod directory;
mod directory_restore;
mod file;
mod foreign;
mod foreign_tables;
mod log;
mod logical;
mod migration;
mod option;
mod options;
mod pages;
mod password;
mod restore_to_time;
mod restorer;
mod set_options;
pub(crate) mod server_url;

use std::path::PathBuf;

use fullbore_core::Result;

pub use backup_server::{
    BackupOrder, BackupServer, EarlierBackup, Look, RestoreOrder, RestoreStep, Seen, ServerFile, ServerOutcome,
    ServerSession, ServerSet, StopMark,
};
pub use database_url::DatabaseUrl;
pub use directory::{DirectoryEngine, TextOfTable};
pub use directory_restore::DirectoryRestore;
pub use file::{Depth, FileEngine, Held, Over};
pub use foreign::{
    Coverage, FOREIGN_HEAD, FilePlaces, ForeignCopy, ForeignDescription, ForeignFamily, ForeignMedia, ForeignMediaSet,
    ForeignRestore, ForeignSet, ForeignVerification, NeededMedia, PointInTime, Restorable, RestorableRange,
    RestoredFile, Row, Surveyed, families_at_once,
};
pub use foreign_tables::{
    Cell, ColumnKind, Day, ForeignTable, ForeignTables, Statements, TICKS_PER_DAY, TableColumn, TimeOfDay, WriteText,
};
pub use log::{
    AppliedLog, FAIL_OVER_FROM, LogEngine, LogFollower, LogReplay, LogSession, LogStop, ReplayInto, ReplayOn, Replayed,
    SetEnd, UnpackedLog,
};
pub use logical::{Load, LoadOrder, Loaded, LogicalEngine};
pub use migration::{
    Compared, Definition, Flow, Foreseen, Migration, MigrationEngine, MigrationOrder, MigrationPlan, Moved,
    RefreshBase, RefreshEngine, RefreshOrder, Refreshed, Standing,
};
pub use option::{AlsoIn, EngineOption, GivenIn, GivenOptions, OptionKind, OptionValue};
pub(crate) use options::names as option_names;
pub use options::{EngineDefaults, refuse_target_options, resolve_options};
pub use pages::{PageCheck, PageEngine};
pub use password::{PASSWORD_FILE, check_password, password_file};
pub use restore_to_time::{RestorableBase, RestorableLog, StepsToTime};
pub use restorer::Restorer;
pub use set_options::{
    CHAIN, FILE, MAP, MOVE, ONLY_TABLE, OWNER, PLACE_OUTSIDE, SERVER_OPTION, SERVER_PROGRAM, STOP_AT_GTID,
    STOP_BEFORE_GTID, SetOptions,
};

use crate::{Options, Session};

/// A database system.
pub trait Engine: Sync {
    /// Its name, in URLs (`sqlite:PATH`) and in manifests.
    fn name(&self) -> &'static str;

    /// Its name as people write it, such as `SQLite`.
    fn title(&self) -> &'static str;

    /// The identity of the database that `url` names. The database need not exist.
    fn identity(&self, url: &str) -> Identity;

    /// The beginning of its URLs. Nearly always its name.
    fn scheme(&self) -> &'static str {
        self.name()
    }

    /// True when a server is asked for the database. False when the database is a file of this machine.
    fn is_server(&self) -> bool;

    /// The name of a database in the names of its families, from its name on media; and the name that earlier versions
    /// used.
    fn stems(&self, name: &str) -> Stems;

    /// Opens a session on the database that `url` names; the URL begins with this engine's name.
    ///
    /// # Errors
    /// The URL does not name a database of this engine, or the database cannot be reached, or it cannot be backed up in
    /// its current state.
    fn open(&self, url: &str, options: &Options) -> Result<Box<dyn Session>>;

    /// The options that not all engines have: flags, parameters of a URL, keys of the configuration. Engines with the same
    /// option name the same `static`.
    fn options(&self) -> &'static [&'static EngineOption] {
        &[]
    }

    /// The options that a restore of its sets has, as [`Engine::options`] names those of a backup.
    fn restore_options(&self) -> &'static [&'static EngineOption] {
        &[]
    }

    /// Its log backups, if it has any.
    fn log(&self) -> Option<&dyn LogEngine> {
        None
    }

    /// Its databases in one file each, if they are.
    fn file(&self) -> Option<&dyn FileEngine> {
        None
    }

    /// Its files in a directory, if a server starts on one.
    fn directory(&self) -> Option<&dyn DirectoryEngine> {
        None
    }

    /// Its sets of rows and statements, if it has any.
    fn logical(&self) -> Option<&dyn LogicalEngine> {
        None
    }

    /// How databases of the engine with the name `source` are migrated into its servers, if they can be.
    fn migration_from(&self, source: &str) -> Option<&dyn MigrationEngine> {
        let _ = source;
        None
    }

    /// Its servers, if they write and read their backup files themselves.
    fn backup_server(&self) -> Option<&dyn BackupServer> {
        None
    }

    /// Its pages, if they can be checked without the engine.
    fn pages(&self) -> Option<&dyn PageEngine> {
        None
    }

    /// The note in a set on a schema that could not be parsed at the backup (with `--continue-after-error`). `position`
    /// is from its manifest.
    fn unreadable_schema(&self, position: &serde_json::Value) -> Option<String> {
        let _ = position;
        None
    }

    /// The place in the server's binary log that a set is consistent with. `position` is from its manifest.
    fn binary_log(&self, position: &serde_json::Value) -> Option<BinaryLogPlace> {
        let _ = position;
        None
    }
}

/// A place in the binary log of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BinaryLogPlace {
    /// The file's name.
    pub file: String,
    /// The offset of the next event in it.
    pub offset: u64,
    /// The transactions up to it, in the words of the server; empty if it has no GTIDs.
    pub gtid: String,
}

impl BinaryLogPlace {
    /// From the fields of a position with these names. None for a server without a binary log.
    pub(crate) fn of(place: &serde_json::Value, [file, offset, gtid]: [&str; 3]) -> Option<Self> {
        let text = |name| place[name].as_str().unwrap_or_default().to_owned();
        let found = Self { file: text(file), offset: place[offset].as_u64().unwrap_or(0), gtid: text(gtid) };
        (!found.file.is_empty()).then_some(found)
    }
}

/// The identity of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its name on media. A file has one name, however its path is written; a server is named by host and port, or by
    /// its socket.
    pub name: String,
    /// The path, or the host and port, as the URL has it.
    pub written: String,
    /// The files on this machine that are the database, also files that do not exist now. Empty for a server.
    pub files: Vec<PathBuf>,
}

/// How the names of a database's families begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stems {
    /// It begins with a letter or a digit, because programs take `-x.bore` for an option.
    pub now: String,
    /// The name that earlier versions wrote.
    pub earlier: String,
}

impl Stems {
    /// From the name that earlier versions wrote; `kind` is put before a name that begins with other characters.
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
