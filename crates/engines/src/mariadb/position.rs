//! The position of the copy in the binary log: a replay, or a replica made of the copy, begins there.

use fullbore_core::Result;
use serde::{Deserialize, Serialize};

use super::hot_copy::Statements;

/// The positions while commits were blocked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BinlogPosition {
    /// The binary log's current file; empty if the server writes none.
    pub file: String,
    /// The offset of the next event in it.
    pub offset: u64,
    /// The last event group that was written, for each domain: `gtid_binlog_pos`.
    pub gtid_binlog_pos: String,
    /// The same for each domain and server: `gtid_binlog_state`.
    pub gtid_binlog_state: String,
    /// The last event group that was applied as a replica: `gtid_slave_pos`.
    pub gtid_slave_pos: String,
}

impl BinlogPosition {
    /// Asks the server. Only while commits are blocked do the answers belong together.
    pub fn ask(server: &mut dyn Statements) -> Result<Self> {
        let status = server.execute("SHOW MASTER STATUS");
        let status = status.map_err(|error| error.noting("the account needs BINLOG MONITOR"))?;
        let (file, offset) =
            status.first().map_or_else(Default::default, |row| (row.text(0), row.number(1).unwrap_or(0)));
        let gtids =
            server.execute("SELECT @@GLOBAL.gtid_binlog_pos, @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos")?;
        let gtid = |index: usize| gtids.first().map(|row| row.text(index)).unwrap_or_default();
        Ok(Self { file, offset, gtid_binlog_pos: gtid(0), gtid_binlog_state: gtid(1), gtid_slave_pos: gtid(2) })
    }
}
