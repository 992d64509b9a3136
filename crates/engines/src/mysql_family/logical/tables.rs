//! The tables of other engines than InnoDB.

use fullbore_core::{Error, Result};

use super::super::connection::Connection;
use super::names::{file_name, quoted};

/// More than a backup set has streams for.
const TABLES_MAX: usize = 60_000;

/// The tables that are not InnoDB, without the server's own schemas. Tables of other engines in those schemas are logs
/// (`mysql.general_log`, `mysql.slow_log`) and views of the running server.
pub const OTHERS: &str = "FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND engine <> 'InnoDB' \
                          AND table_schema NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema')";

/// The engines whose rows are on other servers or in other files: a load would write them there.
const ELSEWHERE: [&str; 5] = ["FEDERATED", "SPIDER", "CONNECT", "OQGRAPH", "SPHINX"];

/// Whether the rows of tables of this engine are on other servers or in other files.
pub fn is_elsewhere(engine: &str) -> bool {
    ELSEWHERE.iter().any(|elsewhere| engine.eq_ignore_ascii_case(elsewhere))
}

/// Whether tables of this engine have their own rows on this server; see [`Table::has_rows`].
pub fn has_rows(engine: &str) -> bool {
    !is_elsewhere(engine) && !["MRG_MYISAM", "BLACKHOLE"].iter().any(|without| engine.eq_ignore_ascii_case(without))
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Table {
    /// Its database.
    pub schema: String,
    /// Its name there.
    pub name: String,
    /// Its storage engine, as the server writes it.
    pub engine: String,
}

impl Table {
    /// As an identifier in a statement.
    pub fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }

    /// For messages.
    pub fn shown(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// The path of its text; `number` is unique among all tables.
    pub fn path(&self, number: usize) -> String {
        format!("{}/{}.sql", file_name(&self.schema, number), file_name(&self.name, number))
    }

    /// Whether it has its own rows on this server: a MERGE table shows the rows of other tables, a FEDERATED table the
    /// rows of another server, and a BLACKHOLE table has no rows.
    pub fn has_rows(&self) -> bool {
        has_rows(&self.engine)
    }

    /// Whether the server forgets its rows when it stops.
    pub fn is_in_memory(&self) -> bool {
        self.engine.eq_ignore_ascii_case("MEMORY")
    }
}

/// All tables of other engines, in the order of their names.
///
/// # Errors
/// There are more tables than a backup set can hold.
pub fn list(connection: &mut Connection) -> Result<Vec<Table>> {
    let asked = format!("SELECT table_schema, table_name, engine {OTHERS} ORDER BY 1, 2 LIMIT {}", TABLES_MAX + 1);
    let answer = connection.query(&asked)?;
    if answer.rows.len() > TABLES_MAX {
        return Err(Error::refused(
            connection.name(),
            format!("it has more than {TABLES_MAX} tables of other engines than InnoDB"),
            "leave --include-other-engines out, and dump these tables separately",
        ));
    }
    let table = |row: Vec<Option<String>>| match <[_; 3]>::try_from(row) {
        Ok([Some(schema), Some(name), Some(engine)]) => Some(Table { schema, name, engine }),
        _ => None,
    };
    Ok(answer.rows.into_iter().filter_map(table).collect())
}
