//! The interface to the server: statements in, rows out. Each kind of connection implements it.

use std::collections::HashMap;

use fullbore_core::{Error, Result};

use crate::mariadb::redo::tail::ServerLsn;

/// A connection that runs statements one after the other.
pub trait Statements {
    /// Runs one statement and returns its rows; if the server refuses, the error has the server's message.
    fn execute(&mut self, sql: &str) -> Result<Vec<Row>>;
}

/// A row of an answer: each column's text as the server sends it, or `None` for NULL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row(pub Vec<Option<Vec<u8>>>);

impl Row {
    /// Column `index` as text; empty if it is NULL or missing.
    pub fn text(&self, index: usize) -> String {
        self.0.get(index).and_then(Option::as_deref).map(String::from_utf8_lossy).unwrap_or_default().into_owned()
    }

    /// Column `index` as a number.
    pub fn number(&self, index: usize) -> Option<u64> {
        self.text(index).parse().ok()
    }
}

/// The global variables in `names` that the server knows.
pub fn variables(server: &mut dyn Statements, names: &[&str]) -> Result<HashMap<String, String>> {
    named(server, "VARIABLES", names)
}

/// The end of the server's redo log.
pub fn server_lsn(server: &mut dyn Statements) -> Result<ServerLsn> {
    let (flushed, current) = ("Innodb_lsn_flushed", "Innodb_lsn_current");
    let answer = named(server, "STATUS", &[flushed, current])?;
    let number = |name: &str| {
        answer.get(&name.to_ascii_lowercase()).and_then(|value| value.parse().ok()).ok_or_else(|| {
            Error::refused(
                format!("SHOW GLOBAL STATUS LIKE '{name}'"),
                "the server does not report the end of its redo log",
                "a hot copy needs InnoDB (no skip-innodb) in MariaDB 10.8 or later",
            )
        })
    };
    Ok(ServerLsn { flushed: number(flushed)?, current: number(current)? })
}

/// The answer of `SHOW GLOBAL …` for these names; the names in the answer are in lower case.
fn named(server: &mut dyn Statements, what: &str, names: &[&str]) -> Result<HashMap<String, String>> {
    let list: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let rows = server.execute(&format!("SHOW GLOBAL {what} WHERE Variable_name IN ({})", list.join(", ")))?;
    Ok(rows.iter().map(|row| (row.text(0).to_ascii_lowercase(), row.text(1))).collect())
}
