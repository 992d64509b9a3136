//! The position of a server in its binary log: readings of `performance_schema.log_status`, exact for their moment.
//!
//! A clone is consistent at a moment between two positions: one before the end of [`Stage::PageCopy`] is acknowledged,
//! one after the end. A position from the redo log ([`super::redo_position`]) counts only if it is between them.
//!
//! [`Stage::PageCopy`]: super::clone::descriptor::Stage::PageCopy

use fullbore_core::Result;
use serde::{Deserialize, Serialize};

use crate::mysql_family::connection::{Connection, Failure};

/// A place in the binary log, and the transactions up to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct LogStatus {
    /// The file's name; empty where the server writes no binary log.
    #[serde(rename = "binary_log_file", default)]
    pub file: String,
    /// Bytes from the start of the file.
    #[serde(rename = "binary_log_position", default)]
    pub position: u64,
    /// The set of GTIDs, without line ends; empty if the server has none.
    #[serde(default)]
    pub gtid_executed: String,
}

impl LogStatus {
    /// Asks a MySQL server. Needs BACKUP_ADMIN, and stops commits for the moment of the reading.
    pub fn read(connection: &mut Connection) -> Result<Self, Failure> {
        let answer = connection.query("SELECT LOCAL FROM performance_schema.log_status")?;
        let parsed = answer.single().and_then(Self::parse);
        Ok(parsed.ok_or_else(|| connection.broken("its log_status is not JSON in the documented form"))?)
    }

    fn parse(json: &str) -> Option<Self> {
        let mut status: Self = serde_json::from_str(json).ok()?;
        status.gtid_executed.retain(|c| !c.is_whitespace());
        Some(status)
    }

    /// The number at the end of the file's name, `binlog.000012` → 12: files are in the order of their numbers.
    pub fn file_number(&self) -> Option<u64> {
        self.file.rsplit_once('.')?.1.parse().ok()
    }

    /// Whether this place is not after `other`, in the same server's log.
    pub fn is_not_after(&self, other: &Self) -> bool {
        match (self.file_number(), other.file_number()) {
            (Some(mine), Some(theirs)) => (mine, self.position) <= (theirs, other.position),
            _ => false,
        }
    }
}

/// The LSN of InnoDB's last checkpoint: all changes before it are in the data files. 0 if the server does not report
/// it. Needs BACKUP_ADMIN.
pub fn checkpoint(connection: &mut Connection) -> Result<u64, Failure> {
    let answer = connection.query("SELECT STORAGE_ENGINES FROM performance_schema.log_status")?;
    Ok(answer.single().map_or(0, checkpoint_in))
}

fn checkpoint_in(json: &str) -> u64 {
    let parsed: Option<serde_json::Value> = serde_json::from_str(json).ok();
    parsed.and_then(|engines| engines.get("InnoDB")?.get("LSN_checkpoint")?.as_u64()).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_checkpoint_is_read_or_0() {
        assert_eq!(checkpoint_in(r#"{"InnoDB": {"LSN": 35000, "LSN_checkpoint": 34000}}"#), 34_000);
        assert_eq!([checkpoint_in("7"), checkpoint_in("{"), checkpoint_in(r#"{"InnoDB": {}}"#)], [0; 3]);
    }

    #[test]
    fn a_reading_is_parsed_and_places_are_in_the_order_of_the_files_numbers() {
        let text =
            r#"{"gtid_executed": "a-b:1-5,\nc-d:7", "binary_log_file": "binlog.000009", "binary_log_position": 157}"#;
        let status = LogStatus::parse(text).unwrap();
        assert_eq!((status.position, status.gtid_executed.as_str()), (157, "a-b:1-5,c-d:7"));
        let later = LogStatus { file: "binlog.1000000".into(), position: 4, ..LogStatus::default() };
        assert!(status.is_not_after(&later) && !later.is_not_after(&status) && status.is_not_after(&status));
        assert!(!LogStatus::default().is_not_after(&status), "no binary log");
        assert_eq!(LogStatus::parse(r#"{"gtid_executed": ""}"#).unwrap(), LogStatus::default());
        assert_eq!(LogStatus::parse("7"), None);
    }
}
