//! The rows of a target, read again and compared with those of the set.

use fullbore_core::{Error, Result};

use super::plan::Plan;
use crate::mysql_family::connection::{Connection, Fetched, RowFault};
use crate::mysql_family::logical::columns::{self, Column};
use crate::mysql_family::logical_set::encode::{self, LongRow};
use crate::mysql_family::logical_set::query::rows_of;
use crate::mysql_family::logical_set::tsv::Tally;

/// Longer rows are read piece by piece.
const WHOLE_ROW: usize = 1 << 20;

/// Compares the table at `place` with what the set says of its rows.
///
/// # Errors
/// It has other rows, or cannot be read.
pub fn compare(connection: &mut Connection, plan: &Plan, place: usize, expected: &[Tally]) -> Result<()> {
    let (Some(table), Some(expected)) = (plan.tables.get(place), expected.get(place)) else {
        return Ok(());
    };
    if !table.object.has_rows() {
        return Ok(());
    }
    let found = tally(connection, &table.quoted(), &table.columns)?;
    if found == *expected {
        return Ok(());
    }
    let why = match found.rows == expected.rows {
        false => format!("it has {} rows, and the set has {}", found.rows, expected.rows),
        true => "the digest of its rows differs from the digest in the set".to_owned(),
    };
    let hint = "another session may have written to it; another version or vendor may write a value otherwise. Load again \
                with --replace";
    Err(Error::refused(format!("table {}", table.shown()), why, hint))
}

/// Reads all rows of a table. `quoted` is its name for statements.
///
/// # Errors
/// The server refuses, or is lost.
pub fn tally(connection: &mut Connection, quoted: &str, columns: &[Column]) -> Result<Tally> {
    let expressions: Vec<String> = columns.iter().map(Column::expression).collect();
    let expressions = if expressions.is_empty() { "1".to_owned() } else { expressions.join(", ") };
    let within = columns::validity(columns).map_or_else(String::new, |condition| format!(" WHERE {condition}"));
    let from = columns::from(quoted, columns) + &within;
    let mut rows = rows_of(connection, columns, &format!("SELECT {expressions} FROM {from}"))?;
    let (mut row, mut text, mut tally, mut scratch) = (Vec::new(), Vec::new(), Tally::default(), vec![0; 64 << 10]);
    loop {
        text.clear();
        match rows.fetch(connection, &mut row, WHOLE_ROW)? {
            Fetched::End => return Ok(tally),
            Fetched::Row => {
                let written = encode::row(columns, &row, &mut text, &mut tally);
                written.map_err(|what| connection.broken(&format!("it sent {what}")))?;
            }
            Fetched::Long => {
                let mut long = LongRow::new(&[]);
                loop {
                    text.clear();
                    let piece = long.piece(columns, &mut rows, connection, &mut scratch, &mut text, &mut tally);
                    let ended = piece.map_err(|fault| match fault {
                        RowFault::Fault(error) => error,
                        RowFault::Broken(what) => connection.broken(&format!("it sent {what}")),
                        RowFault::TooLong(_) => connection.broken("it sent a row of more than 1 GiB"),
                    })?;
                    if ended {
                        break;
                    }
                }
            }
        }
    }
}
