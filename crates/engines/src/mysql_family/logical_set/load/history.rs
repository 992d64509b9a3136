//! The history of system-versioned tables: whether a target takes it, and rows without it.

use std::sync::Arc;

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

use super::plan::{Plan, PlannedTable};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical::columns::{Column, Form, ROW_END, ROW_START, have_history};
use crate::mysql_family::logical::names::quoted;
use crate::mysql_family::logical_set::tsv::NULL;

/// How many names a warning lists.
const NAMED_MAX: usize = 10;

/// Rows may bring the times of their history along. MariaDB 10.11 and later.
pub const INSERT: &str = "SET SESSION system_versioning_insert_history = ON";

/// Where the columns of the history are in a row that comes, if only current rows are loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    places: Vec<usize>,
    end: usize,
}

impl Dropped {
    fn of(columns: &[Column]) -> Option<Self> {
        let places = columns.iter().enumerate().filter(|(_, column)| is_of_history(column)).map(|(place, _)| place);
        let end = columns.iter().position(|column| column.form == Form::RowEnd)?;
        Some(Self { places: places.collect(), end })
    }

    /// The current rows, without the columns of the history.
    pub fn current_rows(&self, rows: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(rows.len());
        for row in rows.split_inclusive(|byte| *byte == b'\n') {
            let row = row.strip_suffix(b"\n").unwrap_or(row);
            if row.split(|byte| *byte == b'\t').nth(self.end) != Some(NULL) {
                continue;
            }
            let fields = row.split(|byte| *byte == b'\t').enumerate().filter(|(place, _)| !self.places.contains(place));
            let fields: Vec<&[u8]> = fields.map(|(_, field)| field).collect();
            out.extend(fields.join(&b'\t'));
            out.push(b'\n');
        }
        out
    }
}

fn is_of_history(column: &Column) -> bool {
    matches!(column.form, Form::RowStart | Form::RowEnd)
}

/// The columns of a table without those of its history.
pub fn without(columns: &[Column]) -> Arc<[Column]> {
    columns.iter().filter(|column| !is_of_history(column)).cloned().collect()
}

/// Whether a server takes the history of tables. `secure_timestamp` can forbid it.
///
/// # Errors
/// The server is lost.
pub fn takes(connection: &mut Connection) -> Result<bool> {
    let allowed = [INSERT, "SET SESSION timestamp = 1"];
    let again = ["SET SESSION timestamp = DEFAULT", "SET SESSION system_versioning_insert_history = OFF"];
    let mut run = |statement: &&str| match connection.query(statement) {
        Ok(_) => Ok(true),
        Err(Failure::Server(_)) => Ok(false),
        Err(Failure::Fault(error)) => Err(error),
    };
    let mut takes = true;
    for statement in &allowed {
        takes = takes && run(statement)?;
    }
    again.iter().try_for_each(|statement| run(statement).map(drop))?;
    Ok(takes)
}

/// Plans to load current rows only, with a warning, if the target does not take the history.
///
/// # Errors
/// The target is of the other vendor, or is lost.
pub fn fit(connection: &mut Connection, plan: &mut Plan, dialect: Dialect) -> Result<()> {
    let mut tables: Vec<&mut PlannedTable> = plan.tables.iter_mut().filter(|it| have_history(&it.columns)).collect();
    let Some(first) = tables.first() else { return Ok(()) };
    if dialect == Dialect::MySql {
        let why = "it keeps the history of its rows (WITH SYSTEM VERSIONING), and MySQL has no such tables";
        let hint = "choose other tables with --table, or load into MariaDB";
        return Err(Error::refused(format!("table {}", first.shown()), why, hint));
    }
    if takes(connection)? {
        return Ok(());
    }
    let named = first_of(tables.iter().map(|table| table.shown()), NAMED_MAX);
    for table in &mut tables {
        table.dropped = Dropped::of(&table.columns);
        table.columns = without(&table.columns);
        let kept = table.object.columns.iter().filter(|column| ![ROW_START, ROW_END].contains(&&column.data_type[..]));
        table.object.columns = kept.cloned().collect();
    }
    plan.warnings.push(format!(
        "the target does not take the history of system-versioned tables (MariaDB before 10.11, or secure_timestamp): they get \
         their current rows only: {named}"
    ));
    Ok(())
}

/// How SHOW CREATE TABLE begins an application-time period. That of the system has no quotes.
const PERIOD: &str = "PERIOD FOR `";
/// A statement that closes all open instances of a table, and changes nothing in it.
const CLOSE: &str = "ENABLE KEYS";

/// Whether a table keeps its history and has a period of the application, too.
pub fn has_period(table: &PlannedTable) -> bool {
    have_history(&table.columns) && table.split.create.contains(PERIOD)
}

/// Makes the server close such a table. MariaDB keeps in an open table that the rows brought their times along: the next DELETE … FOR
/// PORTION OF of any session would then give the remaining parts of a row the times of the deleted one, and nobody would see
/// them (11.4.7).
///
/// # Errors
/// The server refuses.
pub fn close(connection: &mut Connection, quoted_table: &str) -> Result<(), Failure> {
    connection.query(&format!("ALTER TABLE {quoted_table} {CLOSE}")).map(drop)
}

/// The same for all such tables of a server, after rows of a log. A table that the account may not alter stays open.
///
/// # Errors
/// The server is lost.
pub fn close_all(connection: &mut Connection) -> Result<()> {
    let listed = connection.query(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'SYSTEM VERSIONED' AND table_schema \
         NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema')",
    )?;
    for row in listed.rows {
        let Ok([Some(schema), Some(name)]) = <[_; 2]>::try_from(row) else { continue };
        let table = format!("{}.{}", quoted(&schema), quoted(&name));
        let made = connection.query_if_allowed(&format!("SHOW CREATE TABLE {table}"))?;
        if made.is_some_and(|made| made.value(0, 1).is_some_and(|text| text.contains(PERIOD))) {
            connection.query_if_allowed(&format!("ALTER TABLE {table} {CLOSE}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mysql_family::logical::columns;

    #[test]
    fn current_rows_lose_the_columns_of_the_history_and_earlier_rows_are_left_out() {
        let of = |(name, data_type)| Column::of(name, data_type).unwrap();
        let columns = [("s", "row_start"), ("a", "text"), ("e", "row_end"), ("b", "int")].map(of);
        let dropped = Dropped::of(&columns).unwrap();
        let rows =
            b"2020-01-01 00:00:00.000001\tx\\t\t\\N\t1\n2019-01-01 00:00:00.000001\tx\t2020-01-01 00:00:00.000001\t2\n";
        assert_eq!(dropped.current_rows(rows), b"x\\t\t1\n");
        assert_eq!(without(&columns).len(), 2);
        assert_eq!(columns::from("`t`", &columns), "`t` FOR SYSTEM_TIME ALL");
        assert_eq!(columns::validity(&columns).unwrap(), "`s` < `e`");
        assert_eq!((columns::from("`t`", &columns[..2]), columns::validity(&columns[..2])), ("`t`".into(), None));
        assert_eq!(Dropped::of(&columns[..2]), None);
    }
}
