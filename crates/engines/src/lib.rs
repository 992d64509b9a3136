//! The databases that fullbore knows, one folder each. [`open`] is the registry: a new engine is a folder and a
//! line in it.

#[cfg(any(feature = "mariadb", feature = "mysql"))]
pub mod innodb;
#[cfg(feature = "mariadb")]
pub mod mariadb;
#[cfg(feature = "mysql")]
pub mod mysql;
pub mod outside;
#[cfg(feature = "mysql")]
pub mod single_table;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "mysql")]
pub mod start_check;
#[cfg(any(feature = "mariadb", feature = "mysql"))]
mod streams;

use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::device::without_password;
use fullbore_core::halt::Halt;
use fullbore_core::media::ManifestStream;
use fullbore_core::source::Source;
use fullbore_core::unpack::Target;
use fullbore_core::{Error, Result};

/// The URL schemes that [`open`] knows.
pub const SCHEMES: &[&str] = &[
    #[cfg(feature = "sqlite")]
    "sqlite",
    #[cfg(feature = "mysql")]
    "mysql",
    #[cfg(feature = "mariadb")]
    "mariadb",
];

/// What every engine is told when a session starts.
#[derive(Clone)]
pub struct Options {
    /// How long to wait for a lock on the database; default 10 seconds.
    pub lock_timeout: Duration,
    /// How many bytes the database's log may grow while the backup keeps it from being reset; default 8 GiB.
    pub max_wal_growth: u64,
    /// Ends waiting when the job is stopped.
    pub halt: Option<Halt>,
    /// How many readers there will be: connections, of an engine that has them.
    pub readers: usize,
    /// `--password-file`.
    pub password_file: Option<PathBuf>,
    /// Whether what is stored will be encrypted: an engine that is handed keys refuses otherwise.
    pub media_encrypted: bool,
    /// `--accept-unverified`: goes on with a series of the server that this program is not tested with.
    pub accept_unverified: bool,
    /// `--continue-after-error`: pages that are damaged at the source are named and backed up as they are.
    pub continue_after_error: bool,
    /// `--install-clone-plugin`: loads what the server lacks; it stays there.
    pub install_clone_plugin: bool,
    /// `--include-other-engines`: MySQL's tables that are not InnoDB are stored too, as SQL text.
    pub include_other_engines: bool,
    /// `--keep-free-pages`: free pages of an SQLite database are stored like any other.
    pub keep_free_pages: bool,
    /// `--accept-left-out`: tables and files that a copy of a MariaDB leaves out are no warning.
    pub accept_left_out: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lock_timeout: Duration::from_secs(10),
            max_wal_growth: 8 << 30,
            halt: None,
            readers: 1,
            password_file: None,
            media_encrypted: false,
            accept_unverified: false,
            continue_after_error: false,
            install_clone_plugin: false,
            include_other_engines: false,
            keep_free_pages: false,
            accept_left_out: false,
        }
    }
}

/// What an engine can tell about a snapshot, for the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// What the user should know although the backup is good.
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

/// What a backup and its restore take besides the bytes, for estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Besides {
    /// Files that are read one by one, and made anew one by one: each costs something whatever its size.
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

    /// What there is to be read.
    fn source(&self) -> &dyn Source;

    /// What identifies the snapshot, for the manifest.
    fn position(&self) -> Result<serde_json::Value>;

    /// Where it begins: that of its predecessor, for a log set; else the position itself.
    fn first_position(&self) -> Result<serde_json::Value> {
        self.position()
    }

    /// Whether a full with this position (what [`position`](Self::position) gave then) is of the same database, so that a
    /// differential can be made against it.
    ///
    /// # Errors
    /// Why not, for the user, as `of another server (…)`. Engines whose databases are files are not asked.
    fn accepts_base(&self, position: &serde_json::Value) -> Result<(), String> {
        let _ = position;
        Ok(())
    }

    /// What the report says about it; final once everything has been read.
    fn facts(&self) -> Facts;

    /// The file or directory on this machine that its bytes are read from, by whomever.
    ///
    /// # Errors
    /// Why that is not known, for the user, as `its data directory is on another machine`.
    fn database_at(&self) -> Result<PathBuf, String>;

    /// What it takes besides its bytes: nothing, of a database in one file.
    fn besides(&self) -> Besides {
        Besides::default()
    }
}

/// What looks at a set's bytes while it is verified.
pub trait PageCheck: Target {
    /// What was damaged already when it was read, each in a sentence for the user; once everything has been given.
    fn damaged(&self) -> Vec<String>;
}

/// What looks at the pages of `engine`'s files while a set that restores to `streams` is verified; `None` for an engine that has
/// no such check.
pub fn page_check(engine: &str, streams: &[ManifestStream]) -> Option<Box<dyn PageCheck>> {
    #[cfg(any(feature = "mariadb", feature = "mysql"))]
    if let Some(dialect) = dialect_of(engine) {
        return Some(Box::new(innodb::verify::PageVerifier::new(dialect, streams)));
    }
    let _ = (engine, streams); // Unused in a build without servers.
    None
}

/// What a backup says of pages that were damaged when it was made (with `--continue-after-error`); `position` is the one of its
/// manifest. `None` when there were none.
pub fn damaged_at_source(position: &serde_json::Value) -> Option<String> {
    #[cfg(any(feature = "mariadb", feature = "mysql"))]
    return innodb::damage::read(position);
    #[cfg(not(any(feature = "mariadb", feature = "mysql")))]
    {
        let _ = position;
        None
    }
}

/// What a backup says of a schema that could not be parsed when it was made (with `--continue-after-error`), for whoever reads the set.
pub fn unreadable_schema(position: &serde_json::Value) -> Option<String> {
    let field = |name: &str| position.get(name).and_then(serde_json::Value::as_str);
    let (why, version) = (field("unreadable_schema")?, field("library_version").unwrap_or_default());
    // What media say goes to a terminal.
    let why: String = why.chars().filter(|letter| !letter.is_control()).take(500).collect();
    let version: String =
        version.chars().filter(char::is_ascii).filter(|letter| !letter.is_control()).take(20).collect();
    Some(format!(
        "SQLite {version} could not read the schema when it was made ({why}): the pages are whole, and only an SQLite that can read the schema opens them"
    ))
}

/// Bytes of one page of a file of `engine`; `None` of a file without pages.
pub fn page_size(engine: &str, stream: &ManifestStream) -> Option<u32> {
    #[cfg(any(feature = "mariadb", feature = "mysql"))]
    if let Some(dialect) = dialect_of(engine) {
        return innodb::verify::format_of(dialect, stream).map(|format| format.physical_size());
    }
    let _ = (engine, stream); // Unused in a build without servers.
    None
}

#[cfg(any(feature = "mariadb", feature = "mysql"))]
fn dialect_of(engine: &str) -> Option<innodb::Dialect> {
    match engine {
        "mysql" => Some(innodb::Dialect::MySql),
        "mariadb" => Some(innodb::Dialect::MariaDb),
        _ => None,
    }
}

/// Opens a session on the database that `url` names: `sqlite:PATH`, `mysql://…`, `mariadb://…`.
pub fn open(url: &str, options: &Options) -> Result<Box<dyn Session>> {
    let known = SCHEMES.iter().map(|scheme| format!("{scheme}:…")).collect::<Vec<_>>().join(", ");
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(Error::usage(
            without_password(url),
            "this is not a database URL",
            format!("write the engine before it: {known}"),
        ));
    };
    if options.include_other_engines && scheme != "mysql" {
        let why = "only a backup of a MySQL stores tables of other engines as SQL text";
        return Err(Error::usage("--include-other-engines", why, "leave it out"));
    }
    if options.accept_left_out && scheme != "mariadb" {
        let why = "it is about a MariaDB whose files are copied";
        return Err(Error::usage("--accept-left-out", why, "leave it out"));
    }
    if options.keep_free_pages && scheme != "sqlite" {
        let why = "only a backup of an SQLite database leaves free pages out by its free-list";
        return Err(Error::usage("--keep-free-pages", why, "leave it out"));
    }
    #[cfg(feature = "sqlite")]
    if scheme == "sqlite" {
        return Ok(Box::new(sqlite::Snapshot::open(sqlite_path(url, rest)?, options)?));
    }
    #[cfg(feature = "mysql")]
    if scheme == "mysql" {
        return Ok(Box::new(mysql::session::CloneSession::open(url, options)?));
    }
    #[cfg(feature = "mariadb")]
    if scheme == "mariadb" {
        return Ok(Box::new(mariadb::session::MariadbSession::open(url, options)?));
    }
    let _ = (rest, options); // Unused in a build without engines.
    Err(Error::usage(without_password(url), format!("no engine is called `{scheme}`"), format!("known are: {known}")))
}

/// Marks an empty directory as a copy of `engine`'s files that is not complete: no server starts on it.
///
/// # Errors
/// The directory cannot be written, or the engine's files are of no directory.
pub fn begin_directory(engine: &str, directory: &std::path::Path) -> Result<()> {
    #[cfg(feature = "mysql")]
    if engine == "mysql" {
        return mysql::restore::begin(directory);
    }
    #[cfg(feature = "mariadb")]
    if engine == "mariadb" {
        return mariadb::restore::begin(directory);
    }
    let _ = directory; // Unused in a build without servers.
    Err(unknown_files(engine))
}

/// True for what [`begin_directory`] puts into a directory to keep servers from it.
pub fn is_mark(name: &std::ffi::OsStr) -> bool {
    #[cfg(feature = "mysql")]
    if name == mysql::restore::MARKS {
        return true;
    }
    #[cfg(feature = "mariadb")]
    if name == mariadb::restore::IN_PROGRESS {
        return true;
    }
    let _ = name; // Unused in a build without servers.
    false
}

/// Refuses a set that has a file under a name that [`begin_directory`] needs.
///
/// # Errors
/// It names that file.
pub fn check_names(engine: &str, streams: &[ManifestStream]) -> Result<()> {
    let first = |stream: &ManifestStream| stream.name.split('/').next().is_some_and(|part| is_mark(part.as_ref()));
    let is_of_a_server = matches!(engine, "mysql" | "mariadb");
    let Some(stream) = streams.iter().find(|stream| is_of_a_server && first(stream)) else { return Ok(()) };
    let why = format!("its manifest names a file `{}`, which marks a restore that is not complete", stream.name);
    Err(Error::incomplete("media set", why, "use another set: fullbore has not written this one as it is"))
}

/// Makes a directory, whose files are all there and durable, one that a server starts on. `position` is the one of the backup's manifest.
///
/// # Errors
/// As [`begin_directory`].
pub fn finish_directory(engine: &str, directory: &std::path::Path, position: &serde_json::Value) -> Result<()> {
    #[cfg(feature = "mysql")]
    if engine == "mysql" {
        return mysql::restore::finish(directory, position);
    }
    #[cfg(feature = "mariadb")]
    if engine == "mariadb" {
        return mariadb::restore::finish(directory);
    }
    let _ = (directory, position); // Unused in a build without servers.
    Err(unknown_files(engine))
}

/// What has to be done once a server runs on a restored directory, if no start check has done it.
pub fn after_a_start(engine: &str, position: &serde_json::Value) -> Option<String> {
    #[cfg(feature = "mysql")]
    if engine == "mysql" && !mysql::restore::is_emptied(position) {
        return Some(
            "once the server runs, make tables of MyISAM and CSV that were not stored empty by TRUNCATE TABLE, mysql.general_log and \
             mysql.slow_log among them: one has a backtick in its name, with which the server cannot do it"
                .into(),
        );
    }
    let _ = (engine, position); // Unused in a build without servers.
    None
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

/// The tables among `streams` that are texts.
pub fn texts_of_tables(engine: &str, streams: &[ManifestStream]) -> Vec<TextOfTable> {
    #[cfg(feature = "mysql")]
    if engine == "mysql" {
        let text = |text: mysql::logical::load::TableText| TextOfTable {
            in_memory: text.table.is_in_memory(),
            path: text.path,
            longest_statement: text.longest,
        };
        return mysql::logical::load::texts(streams).into_iter().map(text).collect();
    }
    let _ = (engine, streams); // Unused in a build without servers.
    Vec::new()
}

fn unknown_files(engine: &str) -> Error {
    Error::refused(
        "media set",
        format!("it is a backup of `{engine}`, which this version cannot restore into a directory"),
        "use a newer fullbore, or one that was built with this engine",
    )
}

/// The path in `sqlite:PATH`; `sqlite:///absolute/path` means the same as `sqlite:/absolute/path`.
#[cfg(feature = "sqlite")]
fn sqlite_path<'a>(url: &str, rest: &'a str) -> Result<&'a std::path::Path> {
    if rest.is_empty() {
        return Err(Error::usage(url, "the path is missing", "write sqlite:PATH"));
    }
    if rest.starts_with("//") && !rest.starts_with("///") {
        return Err(Error::usage(
            without_password(url),
            "an SQLite database has no host",
            "write sqlite:PATH or sqlite:///absolute/path",
        ));
    }
    Ok(std::path::Path::new(rest))
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
            assert_eq!(error.verdict().exit_code(), 2);
        }
        for url in ["sqlite:", "sqlite://host/x"] {
            assert_eq!(open(url, &Options::default()).err().unwrap().verdict().exit_code(), 2);
        }
    }
}
