//! Tables whose rows the full does not hold: they come back empty, and an update of a row that is missing would end the applier.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use fullbore_core::Result;
use fullbore_core::units::first_of;
use serde_json::Value;

use super::is_of_rows;
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::statement::Statement;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::tables::{Table, list};
use crate::mysql_family::sql_text::{TokenKind, tokens, unquoted};

/// How many names a warning lists.
const NAMED_MAX: usize = 10;
/// The engines whose files a hot copy of MariaDB holds.
const COPIED: [&str; 6] = ["InnoDB", "Aria", "MyISAM", "MRG_MyISAM", "CSV", "ARCHIVE"];

/// The most names that are noted.
const NAMES_MAX: usize = 100_000;

/// The names in the statements of a log that define something: a table that it defines again is no longer the table of the full.
#[derive(Debug, Default)]
pub struct DefinedNames {
    names: BTreeSet<String>,
    /// A statement could not be read.
    is_open: bool,
}

impl DefinedNames {
    /// A statement cannot be read: it may have each name.
    pub fn take_all(&mut self) {
        self.is_open = true;
    }

    /// Notes the names of a statement that defines something.
    pub fn take(&mut self, statement: &Statement) {
        let text = String::from_utf8_lossy(&statement.text);
        let token = |place: Range<usize>| unquoted(text.get(place).unwrap_or_default()).to_lowercase();
        self.names.extend(tokens(text.as_bytes()).filter(|it| it.kind != TokenKind::Sign).map(|it| token(it.place)));
        self.is_open |= self.names.len() > NAMES_MAX || matches!(text, Cow::Owned(_));
    }

    fn may_have(&self, table: &Table) -> bool {
        self.is_open || self.names.contains(&table.name.to_lowercase())
    }
}

/// Makes the applier leave out the changes of these tables, unless the log defines a table of this name. Gives a warning with their names.
///
/// # Errors
/// The server is lost.
pub fn leave_out(
    dialect: Dialect,
    connection: &mut Connection,
    position: &Value,
    (defined, alters_sequence): (&DefinedNames, bool),
) -> Result<Option<String>> {
    if is_of_rows(position) || position.get("other_engines").is_some() {
        return Ok(None);
    }
    let is_copied = |table: &Table| COPIED.iter().any(|engine| table.engine.eq_ignore_ascii_case(engine));
    let mut tables = list(connection)?;
    tables.retain(|table| match dialect {
        Dialect::MySql => table.has_rows(),
        Dialect::MariaDb => !is_copied(table),
    });
    let named: Vec<String> = tables.iter().map(|table| format!("{} ({})", table.shown(), table.engine)).collect();
    if named.is_empty() {
        return Ok(None);
    }
    if dialect == Dialect::MariaDb {
        // An optimistic applier of MariaDB 11.8 waits for ever behind changes of a MEMORY table and of a sequence.
        connection.query("SET GLOBAL slave_parallel_mode = 'conservative'")?;
    }
    tables.retain(|table| match dialect {
        _ if defined.may_have(table) => false,
        Dialect::MySql => true,
        // The option of MariaDB is a text with commas, where a database ends at the first dot. With such a rule, the applier passes over
        // ALTER SEQUENCE.
        Dialect::MariaDb => !alters_sequence && !table.shown().contains(',') && !table.schema.contains('.'),
    });
    let names = |each: fn(&Table) -> String| tables.iter().map(each).collect::<Vec<_>>();
    let rule = match dialect {
        Dialect::MySql => {
            format!("CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE = ({})", names(Table::quoted).join(", "))
        }
        Dialect::MariaDb => {
            let text = names(Table::shown).join(",").replace('\\', "\\\\").replace('\'', "''");
            format!("SET GLOBAL replicate_ignore_table = '{text}'")
        }
    };
    if !tables.is_empty() {
        connection.query(&rule)?;
    }
    Ok(Some(format!(
        "the full does not hold the rows of these tables: {}. Their changes in the log sets are left out, unless the log defines them again",
        first_of(named, NAMED_MAX)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_the_log_defines_again_is_known_by_its_name() {
        let table = |name: &str| Table { schema: "d".into(), name: name.into(), engine: "MEMORY".into() };
        let statement = |text: &str| Statement { text: text.as_bytes().to_vec(), ..Statement::default() };
        let mut defined = DefinedNames::default();
        defined.take(&statement("CREATE TABLE d.`L``m` LIKE M; -- x"));
        assert!(defined.may_have(&table("m")) && defined.may_have(&table("l`M")));
        assert!(!defined.may_have(&table("rows")) && !defined.may_have(&table("x")));
        defined.take_all();
        assert!(defined.may_have(&table("rows")));
    }
}
