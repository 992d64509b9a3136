//! A replica that waits for itself: seen, and said, long before the connection is taken for dead.
//!
//! With several applier workers that keep the order of commits (`replica_preserve_commit_order`, the default) a donor can
//! come to stand still at the end of its page copy: one worker has a DDL statement that waits for the clone, the clone
//! waits until prepared transactions are gone, and the next worker's prepared transaction waits for that statement to commit. Seen
//! with 9.7; the server's own log says "Waiting for prepared transaction to exit". Only the end of the clone undoes it.

use fullbore_core::{Error, Result};

use crate::mysql_family::connection::Connection;

/// How many looks in a row, some seconds apart, have to find it: each of the two waits is common, and short, by itself.
const LOOKS: u32 = 3;
/// Columns of SHOW PROCESSLIST. `performance_schema.threads` has another state for a worker with DDL: that of the statement.
const USER: usize = 1;
const STATE: usize = 6;

/// How often it was found in a row.
#[derive(Debug, Default)]
pub struct Standstill(u32);

impl Standstill {
    /// Looks once. Without PROCESS the workers are not seen: then nothing is found.
    ///
    /// # Errors
    /// The server has been standing still for some looks; or it does not answer.
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
            "this replica waits for itself: a DDL statement of its applier waits for the clone, the clone for a transaction that is \
             prepared, and that for the statement to commit; the backup was given up, and replication goes on",
            "run it again; while DDL comes from the source, STOP REPLICA SQL_THREAD before the backup and START REPLICA after it",
        ))
    }
}
