//! The end of a backup of a database, which the next log set continues. Manifests are not trusted: every number is
//! checked.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::header::Malformed;
use super::super::position::{FileState, LogPosition};

/// Where a backup set ends: part of `position.last` of every set of an SQLite database (MEDIA_FORMAT §11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Bytes per page.
    pub page_size: u32,
    /// Size of the database in pages.
    pub pages: u32,
    /// The counter of write transactions in rollback mode, in sets that have read the header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_counter: Option<u32>,
    /// The position in the log; `None` for a database in rollback mode.
    pub log: Option<LogPosition>,
    /// The state of the database file, if the file alone was the content of the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileState>,
    /// When this position was seen, RFC 3339; empty in sets of older programs.
    #[serde(default)]
    pub at: String,
}

impl End {
    /// Reads a set's `position`.
    ///
    /// # Errors
    /// It is not a position of an SQLite database, or a number is out of bounds.
    pub fn read(position: &serde_json::Value) -> Result<Self, Malformed> {
        let end = Self::deserialize(position).map_err(|error| Malformed(error.to_string()))?;
        if !end.page_size.is_power_of_two() || !(512..=65536).contains(&end.page_size) {
            return Err(Malformed(format!("page size {}", end.page_size)));
        }
        if end.log.as_ref().is_some_and(|log| log.max_frame > u32::MAX / 2) {
            return Err(Malformed("a frame number beyond any log".into()));
        }
        Ok(end)
    }

    /// When it was seen, in microseconds since 1970; `None` if it has no time.
    pub fn time(&self) -> Option<i64> {
        self.at.parse::<Timestamp>().ok().map(Timestamp::as_microsecond)
    }

    /// In words, for errors.
    pub fn show(&self) -> String {
        match &self.log {
            None => "a database without a write-ahead log".into(),
            Some(log) => format!("frame {} of the log with salts {:08x} {:08x}", log.max_frame, log.salt_1, log.salt_2),
        }
    }
}

/// The frames of one log in a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameRange {
    /// The log's first salt.
    pub salt_1: u32,
    /// The log's second salt.
    pub salt_2: u32,
    /// Its first frame in the set.
    pub first_frame: u32,
    /// Its last frame in the set.
    pub last_frame: u32,
}

/// `position.last` of a log set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEnd {
    /// As of any set.
    #[serde(flatten)]
    pub end: End,
    /// Nothing was committed between `at` and this time; RFC 3339.
    pub until: String,
    /// Records in the stream `groups`.
    pub groups: u64,
    /// Frames in the stream `frames`.
    pub frames: u64,
    /// The logs of these frames, in order.
    pub runs: Vec<FrameRange>,
}

impl LogEnd {
    /// Reads a log set's `position.last`.
    ///
    /// # Errors
    /// It is not a position of a log set, or a number is out of bounds.
    pub fn read(position: &serde_json::Value) -> Result<Self, Malformed> {
        End::read(position)?;
        Self::deserialize(position).map_err(|error| Malformed(error.to_string()))
    }
}

/// Microseconds since 1970 as a manifest has them.
pub(super) fn show_time(micros: i64) -> String {
    Timestamp::from_microsecond(micros).map(|time| format!("{time:.6}")).unwrap_or_default()
}

/// Now, in microseconds since 1970.
pub(super) fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_full_and_of_a_log_set_are_read_alike() {
        let full = serde_json::json!({"journal_mode": "wal", "page_size": 4096, "pages": 7, "change_counter": 3,
            "log": {"max_frame": 9, "salt_1": 1, "salt_2": 2, "pages": 4}});
        let end = End::read(&full).unwrap();
        assert_eq!((end.log.clone().unwrap().max_frame, end.time()), (9, None));
        assert_eq!(end.log.unwrap().salts(), [0, 0, 0, 1, 0, 0, 0, 2]);
        let end = End {
            page_size: 512,
            pages: 1,
            change_counter: None,
            file: None,
            at: show_time(1_700_000_000_123_456),
            log: Some(LogPosition::new(*b"abcdefgh", 5, Some((1, 0xffff_0000)), 0)),
        };
        let log = LogEnd { until: end.at.clone(), groups: 1, frames: 5, runs: Vec::new(), end };
        let read = LogEnd::read(&serde_json::to_value(&log).unwrap()).unwrap();
        assert_eq!(read, log);
        assert_eq!(read.end.time(), Some(1_700_000_000_123_456));
        assert_eq!(read.end.log.unwrap().sums(), Some((1, 0xffff_0000)));
    }

    #[test]
    fn numbers_out_of_bounds_and_other_positions_are_refused() {
        for (page_size, frame) in [(0, 1), (511, 1), (131_072, 1), (512, u32::MAX)] {
            let log = serde_json::json!({"max_frame": frame, "salt_1": 1, "salt_2": 2});
            assert!(End::read(&serde_json::json!({"page_size": page_size, "pages": 7, "log": log})).is_err());
        }
        assert!(End::read(&serde_json::json!({"gtid": "x"})).is_err());
    }
}
