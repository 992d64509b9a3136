//! Loads the text of tables ([`super::dump`]) into a server, without a client program.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use fullbore_core::media::ManifestStream;
use fullbore_core::{Error, Result};
use serde::Deserialize;

use super::super::connection::{Connection, Failure};
use super::FOLDER;
use super::tables::Table;

/// The greatest `max_allowed_packet`, in bytes, and with it the longest statement.
pub const STATEMENT_MAX: u64 = 1 << 30;
/// Bytes of the line that ends a statement.
const END_LINE: usize = "-- end 0123456789abcdef\n".len();

/// A table's text in a restored directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableText {
    /// Relative to the directory.
    pub path: String,
    /// Which table.
    pub table: Table,
    /// Rows in it.
    pub rows: u64,
    /// Bytes of its longest statement.
    pub longest: u64,
}

/// The detail of a text in the manifest.
#[derive(Deserialize)]
struct Detail {
    schema: String,
    table: String,
    engine: String,
    rows: u64,
    longest_statement: u64,
}

/// The texts among the streams of a set.
pub fn texts(streams: &[ManifestStream]) -> Vec<TableText> {
    let text = |stream: &ManifestStream| {
        let detail = stream.detail.as_ref()?.value().get("other_engine")?.clone();
        let Detail { schema, table, engine, rows, longest_statement } = Detail::deserialize(detail).ok()?;
        let table = Table { schema, name: table, engine };
        stream.name.starts_with(FOLDER).then(|| TableText {
            path: stream.name.clone(),
            table,
            rows,
            longest: longest_statement,
        })
    };
    streams.iter().filter_map(text).collect()
}

/// Runs every statement of a text, and counts the rows.
///
/// # Errors
/// The server refuses a statement, or the table has another number of rows than the text.
pub fn load(connection: &mut Connection, directory: &Path, text: &TableText) -> Result<()> {
    let path = directory.join(&text.path);
    let shown = path.display().to_string();
    let file = File::open(&path).map_err(|error| Error::io("open", &shown, error))?;
    let mut statements =
        Statements::begin(BufReader::with_capacity(1 << 16, file)).map_err(|error| Error::io("read", &shown, error))?;
    while let Some(statement) = statements.next_statement().map_err(|error| Error::io("read", &shown, error))? {
        match connection.run_bytes(statement) {
            Ok(()) => {}
            Err(Failure::Server(error)) => {
                let hint = "load it by hand with the mysql client, after a restore without --start-check";
                return Err(Error::refused(shown, format!("cannot be loaded into the restored server: {error}"), hint));
            }
            Err(Failure::Fault(error)) => return Err(error),
        }
    }
    if !text.table.has_rows() {
        return Ok(());
    }
    let counted = connection.query(&format!("SELECT COUNT(*) FROM {}", text.table.quoted()))?;
    let counted = counted.single().unwrap_or_default();
    if counted == text.rows.to_string() {
        return Ok(());
    }
    let why = format!("has a row count of {counted} after loading, but {} in the backup", text.rows);
    Err(Error::refused(format!("table {}", text.table.shown()), why, "please report this"))
}

/// Removes loaded texts: loading them again would undo later changes.
pub fn remove(directory: &Path, texts: &[&TableText]) -> Result<()> {
    for text in texts {
        let path = directory.join(&text.path);
        fs::remove_file(&path).map_err(|error| Error::io("remove", path.display().to_string(), error))?;
        // Folders that hold another text stay.
        for above in path.ancestors().skip(1).take_while(|above| *above != directory) {
            let _ = fs::remove_dir(above);
        }
    }
    Ok(())
}

/// A text, cut into statements.
pub struct Statements<R> {
    reader: R,
    /// The text after each statement.
    end: Vec<u8>,
    piece: Vec<u8>,
}

impl<R: BufRead> Statements<R> {
    /// Reads the first two lines, which say how statements end.
    ///
    /// # Errors
    /// They do not say it.
    pub fn begin(mut reader: R) -> io::Result<Self> {
        let mut comment = Vec::new();
        until_line_end(&mut reader, &mut comment, 1 << 16)?;
        let mut end = b";\n".to_vec();
        until_line_end(&mut reader, &mut end, 1 << 10)?;
        let digits = end[2..].strip_prefix(b"-- end ").and_then(|rest| rest.strip_suffix(b"\n")).unwrap_or_default();
        if !comment.starts_with(b"-- ") || end.len() != 2 + END_LINE || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not begin like the text of a table"));
        }
        Ok(Self { reader, end, piece: Vec::new() })
    }

    /// The next statement; `None` at the end.
    ///
    /// # Errors
    /// The text ends inside a statement, or a statement is longer than a server allows.
    pub fn next_statement(&mut self) -> io::Result<Option<&[u8]>> {
        self.piece.clear();
        while !self.piece.ends_with(&self.end) {
            if until_line_end(&mut self.reader, &mut self.piece, STATEMENT_MAX + (1 << 10))? == 0 {
                return match self.piece.is_empty() {
                    true => Ok(None),
                    false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends inside a statement")),
                };
            }
        }
        let statement = &self.piece[..self.piece.len() - self.end.len()];
        // These lines tell the client where a trigger ends.
        let body = statement.strip_prefix(b"DELIMITER ;;\n").and_then(|body| body.strip_suffix(b"\n;;\nDELIMITER "));
        Ok(Some(body.unwrap_or(statement)))
    }
}

/// Appends a line to `line`, which must not become longer than `limit`.
fn until_line_end(reader: &mut impl BufRead, line: &mut Vec<u8>, limit: u64) -> io::Result<usize> {
    let room = limit.saturating_sub(line.len() as u64);
    let count = io::Read::take(&mut *reader, room).read_until(b'\n', line)?;
    if count as u64 == room && !line.ends_with(b"\n") {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a statement in it is longer than any server allows"));
    }
    Ok(count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> io::Result<Vec<String>> {
        let mut statements = Statements::begin(text)?;
        let mut found = Vec::new();
        while let Some(statement) = statements.next_statement()? {
            found.push(String::from_utf8_lossy(statement).into_owned());
        }
        Ok(found)
    }

    #[test]
    fn a_text_is_cut_where_its_own_ends_are_and_nowhere_else() {
        let end = ";\n-- end 0123456789abcdef\n";
        let text = format!(
            "-- a\n-- end 0123456789abcdef\nUSE `a;\n-- end 0`{end}DELIMITER ;;\nCREATE TRIGGER t -- x\n;;\nDELIMITER \
             {end}"
        );
        assert_eq!(all(text.as_bytes()).unwrap(), ["USE `a;\n-- end 0`", "CREATE TRIGGER t -- x"]);
        assert!(all(&text.as_bytes()[..text.len() - 1]).is_err(), "cut off");
        for bad in [&b""[..], b"USE x;\n", b"-- a\n-- end 012345678\n", b"-- a\n-- end 0123456789abcdeg\n"] {
            assert!(all(bad).is_err());
        }
    }
}
