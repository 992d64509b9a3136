//! Tables whose rows the full does not hold: they come back empty, and an update of a row that is missing would end the applier.

use fullbore_core::Result;
use fullbore_core::units::first_of;
use serde_json::Value;

use super::is_of_rows;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::tables::{Table, list};

/// How many names a warning lists.
const NAMED_MAX: usize = 10;
/// The engines whose files a hot copy of MariaDB holds.
const COPIED: [&str; 6] = ["InnoDB", "Aria", "MyISAM", "MRG_MyISAM", "CSV", "ARCHIVE"];

/// Makes the applier leave out the changes of these tables. Gives a warning with their names.
///
/// # Errors
/// The server is lost.
pub fn leave_out(dialect: Dialect, connection: &mut Connection, position: &Value) -> Result<Option<String>> {
    if is_of_rows(position) || position.get("other_engines").is_some() {
        return Ok(None);
    }
    let is_copied = |table: &Table| COPIED.iter().any(|engine| table.engine.eq_ignore_ascii_case(engine));
    let mut tables = list(connection)?;
    tables.retain(|table| match dialect {
        Dialect::MySql => table.has_rows(),
        // The option of MariaDB is a text with commas, where a database ends at the first dot.
        Dialect::MariaDb => !is_copied(table) && !table.shown().contains(',') && !table.schema.contains('.'),
    });
    if tables.is_empty() {
        return Ok(None);
    }
    let names = |each: fn(&Table) -> String| tables.iter().map(each).collect::<Vec<_>>();
    connection.query(&match dialect {
        Dialect::MySql => {
            format!("CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE = ({})", names(Table::quoted).join(", "))
        }
        Dialect::MariaDb => {
            let text = names(Table::shown).join(",").replace('\\', "\\\\").replace('\'', "''");
            format!("SET GLOBAL replicate_ignore_table = '{text}'")
        }
    })?;
    // A server forgets the rows of these whenever it stops.
    tables.retain(|table| !table.is_in_memory());
    let named: Vec<String> = tables.iter().map(|table| format!("{} ({})", table.shown(), table.engine)).collect();
    Ok((!named.is_empty()).then(|| {
        format!(
            "the full does not hold the rows of these tables, so their changes in the log sets are left out, and they are empty: {}",
            first_of(named, NAMED_MAX)
        )
    }))
}
