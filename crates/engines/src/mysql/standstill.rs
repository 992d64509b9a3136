//! Detects a replica that waits for itself, and reports it long before the connection times out.
//!
//! With several applier workers that keep the order of commits (`replica_preserve_commit_order`, the default) a donor
//! can deadlock at the end of its page copy. The DDL statement of one worker waits for the clone. The clone waits until
//! no transaction is prepared. The prepared transaction of the next worker waits until the DDL statement commits. Seen
//! with 9.7; the server's own log says "Waiting for prepared transaction to exit". Only the end of the clone ends it.

use fullbore_core::{Error, Result};

use crate::mysql_family::connection::Connection;

/// How many looks in a row, some seconds apart, have to find it: each of the two waits alone is common and short.
const LOOKS: u32 = 3;
/// Columns of SHOW PROCESSLIST. In `performance_schema.threads`, a worker with DDL has the state of its statement.
const USER: usize = 1;
const STATE: usize = 6;

/// How often it was found in a row.
#[derive(Debug, Default)]
pub struct Standstill(u32);

impl Standstill {
    /// Looks once. Without the privilege PROCESS it does not see the workers, and finds nothing.
    ///
    /// # Errors
    /// The replica waited for itself at several looks in a row; or the server does not answer.
    pub fn look(&mut self, connection: &mut Connection) -> Result<()> {
        let answer = connection.query("SHOW PROCESSLIST")?;
        let found = |waits: &dyn Fn(&str) -> bool| {
            let states = (0..answer.rows.len()).filter(|row| answer.value(*row, USER) == Some("system user"));
            states.filter_map(|row| answer.value(row, STATE)).any(waits)
        };
        let stands = found(&|state| state.starts_with("Waiting for clone "))
            && found(&|state| state == "Waiting for preceding transaction to commit");
        self.0 = if stands { self.0 + 1 } else { 0 };
        if self.0 < LOOKS {
            return Ok(());
        }
        Err(Error::refused(
            connection.name(),
            "this replica waits for itself: a DDL statement of its applier waits for the clone, the clone waits for a \
             prepared transaction, and this transaction waits until the statement commits; the backup was stopped, and \
             replication continues",
            "run it again; while the source sends DDL, run STOP REPLICA SQL_THREAD before the backup and START REPLICA \
             after it",
        ))
    }
}
