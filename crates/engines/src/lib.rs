//! The databases that fullbore knows, one folder each. [`ENGINES`] is the registry: a new engine is a folder and a
//! line in it.

pub mod engine;
pub mod foreign_set;
pub mod mariadb;
pub mod mysql;
pub mod mysql_family;
pub mod sqlite;
pub mod sqlserver;
mod streams;
pub mod uploaded_objects;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::device::without_password_unless;
use fullbore_core::halt::Halt;
use fullbore_core::media::{LogRange, ManifestStream, Position, SetKind};
use fullbore_core::source::Source;
use fullbore_core::{Error, Result};
use uuid::Uuid;

pub use engine::{
    Cell, ColumnKind, Coverage, Day, DirectoryEngine, Engine, FOREIGN_HEAD, FileEngine, FilePlaces, ForeignCopy,
    ForeignDescription, ForeignFamily, ForeignMedia, ForeignMediaSet, ForeignRestore, ForeignSet, ForeignTable,
    ForeignTables, ForeignVerification, GivenOptions, Identity, LogEngine, NeededMedia, PageCheck, PageEngine,
    PointInTime, Restorable, RestorableBase, RestorableLog, RestorableRange, RestoredFile, Restorer, Row, Stems,
    StepsToTime, Surveyed, TableColumn, TextOfTable, TimeOfDay, families_at_once,
};
pub use foreign_set::bytes::{FamilyBytes, InOrder, Watch};
pub use sqlserver::compressed;
#[cfg(any(test, feature = "testkit"))]
pub use sqlserver::writer::sample_full as sample_media;
pub use uploaded_objects::engine::{OBJECT, UploadedObject};
pub use uploaded_objects::incoming::IncomingObject;
pub use uploaded_objects::position::{KEY_MAX, ObjectFacts, ObjectMedia, StoredPart, parts as object_parts};
pub use uploaded_objects::restore::ObjectFile;
pub use uploaded_objects::session::UploadSession;

/// The options of every engine at the start of a session.
#[derive(Clone)]
pub struct Options {
    /// How long to wait for a lock on the database; default 10 seconds.
    pub lock_timeout: Duration,
    /// Ends waiting when the job is stopped.
    pub halt: Option<Halt>,
    /// How many readers there will be: connections, of an engine that has them.
    pub readers: usize,
    /// Whether the media will be encrypted: an engine that receives keys refuses otherwise.
    pub media_encrypted: bool,
    /// `--continue-after-error`: pages that are damaged at the source are named and backed up as they are.
    pub continue_after_error: bool,
    /// The options that not all engines have.
    pub given: GivenOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lock_timeout: Duration::from_secs(10),
            halt: None,
            readers: 1,
            media_encrypted: false,
            continue_after_error: false,
            given: GivenOptions::default(),
        }
    }
}

/// The facts about a snapshot, for the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// What the user should know, although the backup is good.
    pub warnings: Vec<String>,
    /// How long writers could have been kept from committing, so far or in all.
    pub writers_blocked: Duration,
    /// Bytes known to hold nothing that matters: not stored.
    pub free_bytes: u64,
    /// The library or server that held the snapshot, with its version.
    pub library: String,
    /// Whether the database was read past the page cache.
    pub direct: bool,
}

/// The costs of a backup and its restore besides the bytes, for estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExtraWork {
    /// Files that are read one by one, and created one by one: each has a cost that does not depend on its size.
    pub files: u64,
    /// Bytes of these files that were never written: read as zeros without the disk, and not stored.
    pub hole_bytes: u64,
    /// Bytes of a log that pass as well, and that no sample has.
    pub log_bytes: u64,
}

/// A snapshot of a database, held open until it is dropped.
pub trait Session: Send + Sync {
    /// The engine's name, as in the URL and the manifest.
    fn engine(&self) -> &'static str;

    /// The streams to read.
    fn source(&self) -> &dyn Source;

    /// The identity of the set, if the snapshot has one already: media of another program. `None`: a new one.
    fn set_id(&self) -> Option<Uuid> {
        None
    }

    /// The position that identifies the snapshot, for the manifest.
    fn position(&self) -> Result<serde_json::Value>;

    /// Its first position: the end of the predecessor for a log set, else the position itself.
    fn first_position(&self) -> Result<serde_json::Value> {
        self.position()
    }

    /// Whether a full with this position (what [`position`](Self::position) gave then) is of the same database, so that
    /// a differential can be made against it.
    ///
    /// # Errors
    /// Why not, for the user, as `of another server (…)`. Engines with file databases are not asked.
    fn accepts_base(&self, position: &serde_json::Value) -> Result<(), String> {
        let _ = position;
        Ok(())
    }

    /// True when the user chose a part of the database. A set of it is marked as `--copy-only`: it must not stand for the
    /// whole database in retention, or as a base.
    fn holds_a_part(&self) -> bool {
        false
    }

    /// Its facts for the report; final after everything was read.
    fn facts(&self) -> Facts;

    /// The file or directory on this machine that has its bytes, also if the server reads them.
    ///
    /// # Errors
    /// Why that is not known, for the user, as `its data directory is on another machine`.
    fn database_at(&self) -> Result<PathBuf, String>;

    /// Its costs besides its bytes: none for a database in one file.
    fn extra_work(&self) -> ExtraWork {
        ExtraWork::default()
    }
}

/// The engines, in the order in which messages name them. A new engine is a line here.
pub static ENGINES: &[&dyn Engine] = &[&sqlite::engine::Sqlite, &mysql::engine::MySql, &mariadb::engine::MariaDb];

/// Media of other programs that this program reads. A new kind is a line here.
pub static FOREIGN_MEDIA: &[&dyn ForeignMedia] = &[&sqlserver::foreign::SqlServerBackup];

/// The kind of foreign media that begins with `head`, if this program knows it.
pub fn foreign(head: &[u8]) -> Option<&'static dyn ForeignMedia> {
    FOREIGN_MEDIA.iter().copied().find(|media| media.recognises(head))
}

/// All engines: those of [`ENGINES`], those of foreign media, and that of uploaded objects.
pub fn all_engines() -> impl Iterator<Item = &'static dyn Engine> {
    let objects: &'static dyn Engine = &UploadedObject;
    ENGINES.iter().copied().chain(FOREIGN_MEDIA.iter().map(|media| media.engine())).chain([objects])
}

/// The engine of that name, if this program knows it: also one whose media it only stores.
pub fn named(engine: &str) -> Option<&'static dyn Engine> {
    all_engines().find(|known| known.name() == engine)
}

/// True of the engine whose sets hold one uploaded object each.
pub fn holds_object(engine: &str) -> bool {
    engine == OBJECT
}

/// The word before the directory of a restore, for sets that hold files of other programs.
pub fn files_of(engine: &str) -> Option<&'static str> {
    media_of(engine).map(|media| media.scheme()).or_else(|| holds_object(engine).then_some(OBJECT))
}

/// The media of another program that sets of this engine hold.
pub fn media_of(engine: &str) -> Option<&'static dyn ForeignMedia> {
    FOREIGN_MEDIA.iter().copied().find(|media| media.engine().name() == engine)
}

/// The engine that a URL begins with, if this program knows it.
pub fn of_url(url: &str) -> Option<&'static dyn Engine> {
    let (scheme, _) = url.split_once(':')?;
    all_engines().find(|engine| engine.scheme() == scheme).or_else(|| named(scheme))
}

/// A database URL as it may be shown: its password is `***`. The path of a file has no password.
pub fn without_password(url: &str) -> String {
    without_password_unless(url, |scheme| named(&scheme.to_ascii_lowercase()).is_some_and(|engine| !engine.is_server()))
}

/// The identity of the database that `url` names. For a URL without a known engine it is the text after the colon:
/// [`open`] refuses such a URL.
pub fn identity(url: &str) -> Identity {
    let unknown = || {
        let written = url.split_once(':').map_or(url, |(_, rest)| rest).to_owned();
        Identity { name: written.clone(), written, files: Vec::new() }
    };
    of_url(url).map_or_else(unknown, |engine| engine.identity(url))
}

/// How the names of a database's families begin, by its engine and its name on media.
pub fn stems(engine: &str, name: &str) -> Stems {
    let unknown = || Stems::new(name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"), "");
    named(engine).map_or_else(unknown, |engine| engine.stems(name))
}

/// The log backups of an engine, if it is known and has any.
pub fn log(engine: &str) -> Option<&'static dyn LogEngine> {
    named(engine)?.log()
}

/// True of an engine that this version knows.
pub fn is_known(engine: &str) -> bool {
    named(engine).is_some()
}

/// False of an engine that is known to have no log backups.
pub fn may_have_logs(engine: &str) -> bool {
    named(engine).is_none_or(|engine| engine.log().is_some())
}

/// Where a set begins and ends in the log, from the shared terms of its position. Sets from before 2026-11-25 have only
/// their engine's own terms. `finished_at` is when the set was finished, in microseconds since 1970: it counts if the
/// position has no time. `None` also if the shared terms contradict those of a known engine: then the place of the set
/// is unknown.
pub fn log_range(engine: &str, kind: SetKind, position: &Position, finished_at: Option<i64>) -> Option<LogRange> {
    let derived = log(engine).map(|log| log.range(kind, position, finished_at));
    match (&position.log, derived) {
        (Some(shared), None) => Some(shared.clone()),
        (Some(shared), Some(derived)) => derived.filter(|derived| derived == shared),
        (None, derived) => derived.flatten(),
    }
}

/// The pages of an engine, if it is known and they can be checked.
pub fn pages(engine: &str) -> Option<&'static dyn PageEngine> {
    named(engine)?.pages()
}

/// What a set says of damage that it has stored as it was, with `--continue-after-error`. `position` is from its manifest.
pub fn damaged_at_source(engine: &str, position: &serde_json::Value) -> Option<String> {
    match media_of(engine) {
        Some(_) => foreign_set::session::damage(position),
        None => pages(engine)?.damaged_at_source(position),
    }
}

/// The databases of an engine that are one file each.
///
/// # Errors
/// The engine is not known, or its databases are not in one file.
pub fn file(engine: &str) -> Result<&'static dyn FileEngine> {
    named(engine).and_then(|engine| engine.file()).ok_or_else(|| cannot_restore(engine, "into a file"))
}

/// The directories that a server of an engine starts on.
///
/// # Errors
/// The engine is not known, or its files are in no directory.
pub fn directory(engine: &str) -> Result<&'static dyn DirectoryEngine> {
    named(engine).and_then(|engine| engine.directory()).ok_or_else(|| cannot_restore(engine, "into a directory"))
}

fn cannot_restore(engine: &str, how: &str) -> Error {
    let why = format!("it is a backup of `{engine}`, which this version cannot restore {how}");
    Error::refused("media set", why, "use a newer fullbore")
}

/// Opens a session on the database that `url` names: `sqlite:PATH`, `mysql://…`, `mariadb://…`.
///
/// # Errors
/// The URL names no engine, a flag is for another engine, or the engine refuses.
pub fn open(url: &str, options: &Options) -> Result<Box<dyn Session>> {
    let known = || ENGINES.iter().map(|engine| format!("{}:…", engine.name())).collect::<Vec<_>>().join(", ");
    let Some((scheme, _)) = url.split_once(':') else {
        let hint = format!("write the engine before the path: {}", known());
        return Err(Error::usage(without_password(url), "this is not a database URL", hint));
    };
    let Some(engine) = of_url(url) else {
        let hint = format!("known engines: {}", known());
        return Err(Error::usage(without_password(url), format!("`{scheme}` is not an engine"), hint));
    };
    refuse_options_of_others(engine, &options.given)?;
    engine.open(url, options)
}

/// Refuses options that `engine` does not have.
///
/// # Errors
/// It names the first of them.
pub fn refuse_options_of_others(engine: &dyn Engine, given: &GivenOptions) -> Result<()> {
    match given.iter().find(|option| !engine.options().contains(option)) {
        Some(option) => Err(Error::usage(format!("--{}", option.name), option.elsewhere, "leave it out")),
        None => Ok(()),
    }
}

/// True for the name of an engine's mark, which keeps servers from a directory while a restore is not complete.
pub fn is_mark(name: &OsStr) -> bool {
    ENGINES.iter().filter_map(|engine| engine.directory()).any(|directory| name == directory.mark())
}

/// Refuses a set of an engine with directories that has a file under the name of such a mark.
///
/// # Errors
/// It names that file.
pub fn check_names(engine: &str, streams: &[ManifestStream]) -> Result<()> {
    let first = |stream: &&ManifestStream| stream.name.split('/').next().is_some_and(|part| is_mark(part.as_ref()));
    let has_directory = named(engine).is_some_and(|engine| engine.directory().is_some());
    let Some(stream) = streams.iter().find(first).filter(|_| has_directory) else { return Ok(()) };
    let why = format!("its manifest names a file `{}`, which marks a restore that is not complete", stream.name);
    Err(Error::incomplete("media set", why, "use another set: fullbore does not write such a set"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_is_a_usage_error_that_names_the_known_ones() {
        for url in ["oracle:/x", "plain.db"] {
            let error = open(url, &Options::default()).err().unwrap();
            assert!(error.to_string().contains("sqlite:"), "{error}");
            assert_eq!(error.exit_kind().exit_code(), 2);
        }
        for url in ["sqlite:", "sqlite://host/x"] {
            assert_eq!(open(url, &Options::default()).err().unwrap().exit_kind().exit_code(), 2);
        }
    }

    #[test]
    fn a_password_is_never_shown_and_a_path_is() {
        for (url, shown) in [
            ("sqlite:/a:b@c", "sqlite:/a:b@c"),
            ("sqlite:a:b@c", "sqlite:a:b@c"),
            ("SQLite:a:b@c", "SQLite:a:b@c"),
            ("sqlite://u:sekret@h", "sqlite://u:***@h"),
            ("mysql:u:sekret@h", "mysql:u:***@h"),
            ("oracle:u:sekret@h", "oracle:u:***@h"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn each_database_has_a_name_and_each_stem_begins_with_a_letter_or_a_digit() {
        for (url, name, stem) in [
            ("mariadb://backup@/?socket=/tmp/a/s.sock", "/tmp/a/s.sock", "mariadb-tmp-a-s.sock"),
            ("mysql://u@db1:3306/?ssl-mode=required", "db1:3306", "db1-3306"),
            ("mysql://u@db1:3306/shop?ssl-mode=required", "db1:3306/shop", "db1-3306-shop"),
            ("mysql://u@[::1]:3306", "[::1]:3306", "mysql-1--3306"),
            ("mysql://", "localhost", "localhost"),
            ("sqlite:-x.db", "-x.db", "x"),
            ("sqlite:/a/app.db", "/a/app.db", "app"),
            ("sqlite:--.db", "--.db", "database"),
            ("sqlite:été.db", "été.db", "été"),
        ] {
            let engine = of_url(url).unwrap();
            assert_eq!((engine.identity(url).name, engine.stems(name).now), (name.into(), stem.into()), "{url}");
        }
    }

    #[test]
    fn a_database_in_a_file_owns_what_sqlite_keeps_beside_it_and_a_server_owns_no_file_here() {
        let files = identity("sqlite:/a/app.db").files;
        let names: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(names, ["/a/app.db", "/a/app.db-wal", "/a/app.db-shm", "/a/app.db-journal"]);
        assert!(identity("mysql://u@db1").files.is_empty());
    }
}
