//! SQLite's own check of a database that no other process has open.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fullbore_core::Result;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::connection::explain;
use super::open_files::io_error;
use crate::engine::Depth;

/// What is escaped in the path of a `file:` URI.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/');

/// How such a database is opened.
const ALONE: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_URI).union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Opens a database that no other process has open, to read it: without locks and side files.
///
/// # Errors
/// It is not there, or is not a database.
pub fn open_alone(path: &Path) -> Result<Connection> {
    Connection::open_with_flags(uri(path)?, ALONE).map_err(|error| explain(path, error))
}

fn uri(path: &Path) -> Result<String> {
    let real = fs::canonicalize(path).map_err(|e| io_error("find", path, e))?;
    let escaped = percent_encode(real.as_os_str().as_bytes(), ESCAPED);
    Ok(format!("file:{escaped}?immutable=1"))
}

/// Lets SQLite check a restored file that no other process has open: `PRAGMA quick_check` (each page, without comparing
/// indexes with their tables), or `PRAGMA integrity_check`. Returns the problems. Takes no locks, makes no side files.
pub fn check(path: &Path, depth: Depth) -> Result<Vec<String>> {
    let uri = uri(path)?;
    let ask = || {
        let connection = Connection::open_with_flags(&uri, ALONE)?;
        let pragma = if depth == Depth::Full { "PRAGMA integrity_check" } else { "PRAGMA quick_check" };
        let mut answers = connection.prepare(pragma)?;
        let answers = answers.query_map([], |row| row.get::<_, String>(0))?;
        answers.collect::<rusqlite::Result<Vec<_>>>()
    };
    let mut problems = match ask() {
        Err(error)
            if matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) =>
        {
            vec![error.to_string()]
        }
        answers => answers.map_err(|error| explain(path, error))?,
    };
    problems.retain(|problem| problem != "ok");
    Ok(problems)
}
