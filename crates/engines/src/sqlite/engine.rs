//! SQLite's row in the table of engines.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_core::io::real_path;
use fullbore_core::{Error, Result};

use super::open_files::beside;
use super::outgoing::Outgoing;
use super::restore::{self, SIDE_FILES};
use super::tables_out::SqliteTables;
use super::{Snapshot, integrity};
use crate::engine::{
    AlsoIn, Depth, Engine, EngineOption, FileEngine, ForeignTables, Foreseen, Held, Identity, LogEngine, OptionKind,
    Over, Restorer, Stems,
};
use crate::{Options, Session, without_password};

static OPTIONS: [&EngineOption; 2] = [&KEEP_FREE_PAGES, &MAX_WAL_GROWTH];

/// Stores free pages like all others.
pub static KEEP_FREE_PAGES: EngineOption = EngineOption {
    name: "keep-free-pages",
    kind: OptionKind::Switch,
    help: "Store every page, also the pages in the free-list. For forensic copies, or if the free-list is damaged",
    elsewhere: "only a backup of an SQLite database leaves out the pages in the free-list",
    also: &[AlsoIn::Estimates],
};

/// How far the log may grow while a backup keeps it from being reset, or while `log follow` cannot store its sets.
pub static MAX_WAL_GROWTH: EngineOption = EngineOption {
    name: "max-wal-growth",
    kind: OptionKind::Bytes(8 << 30),
    help: "Stop when the write-ahead log (WAL) has grown by this much. SQLite cannot reset it during a backup, or before \
           `log follow` has stored it [default: 8GiB]",
    elsewhere: "only SQLite has a write-ahead log that waits for a backup",
    also: &[AlsoIn::LogFollow],
};

/// SQLite.
pub struct Sqlite;

impl Engine for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn title(&self) -> &'static str {
        "SQLite"
    }

    fn identity(&self, url: &str) -> Identity {
        let written = url.split_once(':').map_or(url, |(_, path)| path);
        let path = Path::new(written);
        let name =
            std::fs::canonicalize(path).map_or_else(|_| written.to_owned(), |path| path.to_string_lossy().into());
        // SQLite follows links before it names the side files.
        let file = real_path(path).unwrap_or_else(|_| path.to_owned());
        let sides = SIDE_FILES.iter().map(|suffix| beside(&file, suffix)).collect::<Vec<_>>();
        Identity { name, written: written.to_owned(), files: [vec![file], sides].concat() }
    }

    fn is_server(&self) -> bool {
        false
    }

    fn stems(&self, name: &str) -> Stems {
        let stem = Path::new(name).file_stem();
        Stems::new(stem.map_or_else(|| "database".into(), |stem| stem.to_string_lossy().into_owned()), "")
    }

    fn open(&self, url: &str, options: &Options) -> Result<Box<dyn Session>> {
        Ok(Box::new(Snapshot::open(path_of(url)?, options)?))
    }

    fn options(&self) -> &'static [&'static EngineOption] {
        &OPTIONS
    }

    fn file(&self) -> Option<&dyn FileEngine> {
        Some(self)
    }

    fn log(&self) -> Option<&dyn LogEngine> {
        Some(self)
    }

    fn unreadable_schema(&self, position: &serde_json::Value) -> Option<String> {
        let field = |name: &str| position.get(name).and_then(serde_json::Value::as_str);
        let (why, version) = (field("unreadable_schema")?, field("library_version").unwrap_or_default());
        // These texts come from media and go to a terminal.
        let why: String = why.chars().filter(|letter| !letter.is_control()).take(500).collect();
        let version: String =
            version.chars().filter(char::is_ascii).filter(|letter| !letter.is_control()).take(20).collect();
        Some(format!(
            "SQLite {version} could not read the schema when the backup was made ({why}): the pages are whole, but \
             only an SQLite that can read the schema opens the database"
        ))
    }
}

impl FileEngine for Sqlite {
    fn prepare(&self, target: &Path, over: Over) -> Result<Box<dyn Restorer>> {
        Ok(Box::new(restore::prepare(target, over)?))
    }

    fn refuse_side_files(&self, target: &Path) -> Result<()> {
        restore::refuse_side_files(target)
    }

    fn sign_of_use(&self, file: &Path) -> Option<PathBuf> {
        ["-wal", "-journal"].iter().map(|suffix| beside(file, suffix)).find(|side| side.exists())
    }

    fn check(&self, file: &Path, depth: Depth) -> Result<Vec<String>> {
        integrity::check(file, depth)
    }

    fn tables(&self, file: &Path, database: &str, sets: Vec<String>) -> Result<Box<dyn ForeignTables>> {
        Ok(Box::new(SqliteTables::open(file, database, sets)?))
    }

    fn hold(&self, url: &str, options: &Options, alone: bool) -> Result<Box<dyn Held>> {
        Ok(Box::new(Outgoing::open(url, options, alone)?))
    }

    fn foresee(&self, url: &str, options: &Options, most: Duration) -> Result<Foreseen> {
        Outgoing::open(url, options, false)?.look(most)
    }
}

/// The path in `sqlite:PATH`; `sqlite:///absolute/path` means the same as `sqlite:/absolute/path`.
pub(super) fn path_of(url: &str) -> Result<&Path> {
    let rest = url.split_once(':').map_or("", |(_, rest)| rest);
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
    Ok(Path::new(rest))
}
