//! CSV as RFC 4180 describes it, in UTF-8, with a header. NULL is an empty field, an empty text is `""`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use fullbore_core::{Error, Result};
use fullbore_engines::{Cell, ColumnKind};

use super::{Columns, cell_text, shown};

/// Bytes that are collected before a write.
const BUFFER: usize = 1 << 20;

/// A file that is being written.
pub struct CsvFile {
    out: BufWriter<File>,
    name: String,
    kinds: Vec<ColumnKind>,
    line: String,
    field: String,
}

impl CsvFile {
    /// Makes the file, with its header.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: &Path, columns: &Columns<'_>) -> Result<Self> {
        let file = File::create(path).map_err(|e| Error::io("make", shown(path), e))?;
        let mut made = Self {
            out: BufWriter::with_capacity(BUFFER, file),
            name: shown(path),
            kinds: columns.iter().map(|column| column.kind).collect(),
            line: String::new(),
            field: String::new(),
        };
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                made.line.push(',');
            }
            push_quoted(&mut made.line, &column.name);
        }
        made.end_line()?;
        Ok(made)
    }

    /// Writes one row.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn row(&mut self, cells: &[Cell]) -> Result<()> {
        for (at, (cell, kind)) in cells.iter().zip(&self.kinds).enumerate() {
            if at > 0 {
                self.line.push(',');
            }
            match cell {
                Cell::Null => {}
                Cell::Text(text) => push_quoted(&mut self.line, text),
                other => {
                    self.field.clear();
                    cell_text::push(&mut self.field, other, *kind);
                    push_quoted(&mut self.line, &self.field);
                }
            }
        }
        self.end_line()
    }

    fn end_line(&mut self) -> Result<()> {
        self.line.push_str("\r\n");
        self.out.write_all(self.line.as_bytes()).map_err(|e| Error::io("write", self.name.as_str(), e))?;
        self.line.clear();
        Ok(())
    }

    /// Writes what was collected.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.out.flush().map_err(|e| Error::io("write", self.name.as_str(), e))
    }
}

/// A field: in quotes if a reader could misunderstand it without them.
fn push_quoted(line: &mut String, text: &str) {
    let needs =
        text.is_empty() || text.contains([',', '"', '\r', '\n']) || text.starts_with(' ') || text.ends_with(' ');
    if !needs {
        line.push_str(text);
        return;
    }
    line.push('"');
    for (at, part) in text.split('"').enumerate() {
        if at > 0 {
            line.push_str("\"\"");
        }
        line.push_str(part);
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_rfc_4180_wants_it_and_an_empty_text_is_not_null() {
        for (text, field) in [
            ("plain", "plain"),
            ("", "\"\""),
            ("a,b", "\"a,b\""),
            ("say \"yes\"", "\"say \"\"yes\"\"\""),
            ("two\r\nlines", "\"two\r\nlines\""),
            (" padded ", "\" padded \""),
            ("\"", "\"\"\"\""),
        ] {
            let mut line = String::new();
            push_quoted(&mut line, text);
            assert_eq!(line, field);
        }
    }
}
