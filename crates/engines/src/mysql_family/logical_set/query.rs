//! The statements of a reader: ranges of a table, and the key in the middle of a rest.

use fullbore_core::{Error, Result};

use super::key::{self, From, KeyValue, Range};
use super::listing::Listed;
use super::queue::{Running, Share};
use super::server::first_row;
use crate::mysql_family::connection::{Connection, Failure, Rows};
use crate::mysql_family::logical::columns::{self, Column, are_numbers};

/// The most keys that are counted to find the middle of a rest.
const WALK: u64 = 200_000;

/// The statement that reads a range of a table.
///
/// # Errors
/// A column has an unknown type.
pub fn select(table: &Listed, range: &Range, most: Option<u64>) -> Result<String> {
    let order = most.map(|most| format!(" ORDER BY {} LIMIT {most}", key::columns(&table.key)));
    select_from(table, "", range, &order.unwrap_or_default())
}

fn select_from(table: &Listed, hint: &str, range: &Range, order: &str) -> Result<String> {
    let forms = table.object.forms()?;
    let expressions: Vec<String> = forms.iter().map(Column::expression).collect();
    let expressions = if expressions.is_empty() { "1".to_owned() } else { expressions.join(", ") };
    let name = columns::from(&table.object.quoted(), &forms);
    let within = within(table, range, columns::validity(&forms).as_deref());
    Ok(format!("SELECT {expressions} FROM {name}{hint}{within}{order}"))
}

/// The statement that reads rows of a table in the order of a scan. Without an index: it is the same order in each
/// statement of a snapshot.
///
/// # Errors
/// A column has an unknown type.
pub fn select_share(table: &Listed, share: Share) -> Result<String> {
    let scan = select_from(table, " USE INDEX ()", &Range::default(), "")?;
    Ok(format!("{scan} LIMIT {} OFFSET {}", share.most.unwrap_or(u64::MAX), share.skip))
}

/// The longest row: what a server sends.
const ROW_MAX: u64 = 1 << 30;

/// The rows of a statement that selects these columns, in the protocol that costs the server less.
///
/// # Errors
/// The server refuses.
pub fn rows_of(connection: &mut Connection, columns: &[Column], statement: &str) -> Result<Rows, Failure> {
    match are_numbers(columns) {
        true => connection.query_numbers(statement, ROW_MAX),
        false => connection.query_rows(statement, ROW_MAX),
    }
}

/// The rows of a statement that was sent ahead.
///
/// # Errors
/// The server refuses.
pub fn rows_ahead(connection: &mut Connection) -> Result<Rows, Failure> {
    connection.rows(ROW_MAX)
}

/// The WHERE clause for a range, with the user's condition.
fn within(table: &Listed, range: &Range, further: Option<&str>) -> String {
    let range = Some(range.condition(&table.key)).filter(|condition| !condition.is_empty());
    let conditions = range.into_iter().chain(further.map(str::to_owned));
    let user = table.object.condition.iter().map(|condition| format!("({condition}\n)"));
    let all: Vec<String> = conditions.chain(user).collect();
    if all.is_empty() { String::new() } else { format!(" WHERE {}", all.join(" AND ")) }
}

/// A key in the middle of the rest of a reader, behind the rows that its statement reads now. None if there is none.
///
/// # Errors
/// The server refuses.
pub fn middle(connection: &mut Connection, table: &Listed, running: &Running) -> Result<Option<KeyValue>> {
    let columns = key::columns(&table.key);
    let mut ask = |range: &Range, further: Option<&str>, order: &str| -> Result<Option<KeyValue>> {
        let condition = within(table, range, further);
        connection
            .send_ahead(&[format!("SELECT {columns} FROM {}{condition} ORDER BY {order}", table.object.quoted())])?;
        let row = first_row(connection).map_err(|failure| explained(table, failure))?;
        let Some(row) = row else { return Ok(None) };
        let values: Vec<_> = row.iter().map(|value| value.as_deref()).collect();
        Ok(KeyValue::of(&table.key, &values))
    };
    let Some(low) = ask(&running.range, None, &format!("{columns} LIMIT 1 OFFSET {}", running.rows))? else {
        return Ok(None);
    };
    let rest = Range { from: Some(From::At(low.clone())), ..running.range.clone() };
    let backwards = format!("{} LIMIT 1", key::columns_backwards(&table.key));
    let Some(high) = ask(&rest, None, &backwards)? else { return Ok(None) };
    if let Some(condition) = key::from_middle(&table.key, &low, &high)
        && let Some(found) = ask(&rest, Some(&condition), &format!("{columns} LIMIT 1"))?
        && found != high
    {
        return Ok(Some(found));
    }
    let walk = (running.left / 2).clamp(1, WALK);
    ask(&rest, None, &format!("{columns} LIMIT 1 OFFSET {walk}"))
}

/// The error of a server that does not read a table.
pub fn explained(table: &Listed, failure: Failure) -> Error {
    match failure {
        // ER_TABLE_DEF_CHANGED, ER_NO_SUCH_TABLE, ER_CHECKREAD, ER_LOCK_DEADLOCK of EXCHANGE PARTITION.
        Failure::Server(error) if matches!(error.code, 1412 | 1146 | 1020 | 1213) => changed(table, &error.to_string()),
        // ER_BAD_FIELD_ERROR. A condition of the user may name a column that was never there.
        Failure::Server(error) if error.code == 1054 && table.object.condition.is_none() => {
            changed(table, &error.to_string())
        }
        Failure::Server(error) => Error::refused(
            format!("table {}", table.object.shown()),
            format!("the server does not read it: {error}"),
            match table.object.condition {
                Some(_) => "correct the condition of --where; the account needs SELECT on the table",
                None => {
                    "the account needs SELECT on it; repair or drop the table (CHECK TABLE), or leave it out with --exclude"
                }
            },
        ),
        Failure::Fault(error) => error,
    }
}

/// The error of a table that is not as it was listed.
pub fn changed(table: &Listed, why: &str) -> Error {
    Error::refused(
        format!("table {}", table.object.shown()),
        format!("its definition changed during the backup: {why}"),
        "run it again when no statement changes tables; a migration, with --resume",
    )
}
