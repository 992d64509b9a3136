//! The rows of one statement, as they come in.

use fullbore_core::{Error, Result};

use super::encode::{self, LongRow, values_at};
use super::key::{KeyValue, Range};
use super::listing::Listed;
use super::query::explained;
use super::tsv::Tally;
use crate::mysql_family::connection::{Connection, Fetched, RowFault, Rows};
use crate::mysql_family::logical::columns::Column;

/// Longer rows are read piece by piece.
const WHOLE_ROW: usize = 1 << 20;

/// Rows of a table that come in.
pub struct Rowing {
    /// The place of the table.
    pub table: usize,
    /// Its columns.
    pub columns: Vec<Column>,
    /// The answer.
    pub rows: Rows,
    /// The text, until the table is found not to be small.
    pub held: Option<Vec<u8>>,
    /// The rows since the last chunk.
    pub tally: Tally,
    /// A row that is read piece by piece.
    pub long: Option<LongRow>,
    /// The range, if further statements may follow.
    pub part: Option<Part>,
}

/// A range of a table that is read by several statements.
pub struct Part {
    /// What is left of it.
    pub range: Range,
    /// The places of the key's columns in a row.
    pub key: Vec<usize>,
    /// Rows that a statement reads at most.
    pub most: u64,
    /// How many it has read.
    pub read: u64,
    /// Rows that are probably left.
    pub left: u64,
    /// The key of the last row.
    pub last: Option<KeyValue>,
    /// The last row that the statement may give.
    pub last_row: Vec<u8>,
    /// The key of the first row that is not of the range, if the statement has no upper bound or gives that row too.
    pub stop: Option<KeyValue>,
    /// That row came.
    pub is_met: bool,
}

impl Part {
    /// A row came: false if it is not of the range. Only the key of the last one that the statement may give is of use.
    fn pass(&mut self, row: &[u8]) -> bool {
        self.is_met = self.is_met || self.stop.as_ref().is_some_and(|stop| stop.is_of(row, &self.key));
        if self.is_met {
            return false;
        }
        self.read += 1;
        if self.read == self.most {
            self.last_row.clear();
            self.last_row.extend_from_slice(row);
        }
        true
    }
}

/// What reading a row needs.
pub struct Reading<'r> {
    /// The table.
    pub table: &'r Listed,
    /// Where the rows come from.
    pub connection: &'r mut Connection,
    /// Memory for a row.
    pub row: &'r mut Vec<u8>,
    /// Memory for a piece of a long row.
    pub scratch: &'r mut Vec<u8>,
}

impl Reading<'_> {
    /// Appends the next row, or a piece of a long one; false after the last.
    pub fn next(&mut self, rowing: &mut Rowing, out: &mut Vec<u8>) -> Result<bool> {
        if let Some(mut long) = rowing.long.take() {
            let (columns, rows) = (&rowing.columns, &mut rowing.rows);
            let piece = long.piece(columns, rows, self.connection, self.scratch, out, &mut rowing.tally);
            match piece.map_err(|fault| self.faulty(fault))? {
                false => rowing.long = Some(long),
                true => {
                    if let Some(part) = &mut rowing.part {
                        part.last = KeyValue::of(&self.table.key, &long.key());
                    }
                }
            }
            return Ok(true);
        }
        let Rowing { columns, rows, tally, part, .. } = rowing;
        let ready = rows.take_ready(self.connection, |row| {
            let is_of_range = part.as_mut().is_none_or(|part| part.pass(row));
            if is_of_range { encode::row(columns, row, out, tally) } else { Ok(()) }
        });
        if let Some(written) = ready {
            return written.map(|()| true).map_err(|what| self.connection.broken(&format!("it sent {what}")));
        }
        let fetched = rows.fetch(self.connection, self.row, WHOLE_ROW);
        match fetched.map_err(|failure| explained(self.table, failure))? {
            Fetched::End => {
                if let Some(part) = part.as_mut().filter(|part| !part.last_row.is_empty()) {
                    part.last = KeyValue::of(&self.table.key, &values_at(&part.last_row, &part.key));
                }
                Ok(false)
            }
            Fetched::Long => {
                let key = part.as_mut().map(|part| {
                    part.pass(&[]);
                    part.key.clone()
                });
                rowing.long = Some(LongRow::new(&key.unwrap_or_default()));
                Ok(true)
            }
            Fetched::Row => {
                if part.as_mut().is_some_and(|part| !part.pass(self.row)) {
                    return Ok(true);
                }
                let written = encode::row(columns, self.row, out, tally);
                written.map(|()| true).map_err(|what| self.connection.broken(&format!("it sent {what}")))
            }
        }
    }

    fn faulty(&self, fault: RowFault) -> Error {
        match fault {
            RowFault::Fault(error) => error,
            RowFault::Broken(what) => self.connection.broken(&format!("it sent {what}")),
            RowFault::TooLong(bytes) => Error::refused(
                format!("table {}", self.table.object.shown()),
                format!("a row has at least {bytes} bytes, which no server can load"),
                "leave the table out with --exclude",
            ),
        }
    }
}
