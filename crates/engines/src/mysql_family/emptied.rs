//! Tables of a clone that have no files: a server's first start makes them empty, or fullbore does.

use fullbore_core::Result;

use super::connection::Connection;
use super::logical::names::quoted;

/// In the position of a backup: a table with which `#status_fix` fails, and the server does not start.
pub const NOT_EMPTIED: &str = "not_emptied_by_the_first_start";

/// Whether the first start makes empty tables for other engines. Otherwise [`make_empty`] or the user has to do it.
pub fn is_emptied(position: &serde_json::Value) -> bool {
    position[NOT_EMPTIED].is_null()
}

/// Empties the MyISAM and CSV tables, which have no files in a clone. The first start does the same by
/// `#status_fix`, but fails on some names.
///
/// # Errors
/// The server refuses.
pub fn make_empty(connection: &mut Connection) -> Result<()> {
    let tables = "SELECT table_schema, table_name FROM information_schema.tables \
                  WHERE table_type = 'BASE TABLE' AND engine IN ('MyISAM', 'CSV')";
    for row in connection.query(tables)?.rows {
        if let [Some(schema), Some(name)] = &row[..] {
            connection.query(&format!("TRUNCATE TABLE {}.{}", quoted(schema), quoted(name)))?;
        }
    }
    Ok(())
}
