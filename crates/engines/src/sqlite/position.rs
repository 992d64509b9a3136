//! What identifies a snapshot: the part of the manifest that tells which state of the database was backed up.

use serde::{Deserialize, Serialize};

use super::header::{AutoVacuum, DatabaseHeader};

/// How the database makes its commits durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalMode {
    /// A write-ahead log.
    Wal,
    /// A rollback journal: DELETE, TRUNCATE, PERSIST, MEMORY or OFF, whichever each writer chose.
    Rollback,
}

/// Where in the write-ahead log the snapshot ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPosition {
    /// The last frame that belongs to the snapshot; 0 when the log was empty.
    pub max_frame: u32,
    /// The log's first salt; grows by one with every restart of the log.
    pub salt_1: u32,
    /// The log's second salt: random.
    pub salt_2: u32,
    /// How many different pages the log held.
    pub pages: u64,
}

/// The identity of a snapshot. The change counter alone does not identify one: in WAL mode it may stand still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Journal mode at the time.
    pub journal_mode: JournalMode,
    /// Bytes per page.
    pub page_size: u32,
    /// Size of the snapshot in pages.
    pub pages: u32,
    /// Counts write transactions of rollback mode.
    pub change_counter: u32,
    /// Changes with the schema.
    pub schema_cookie: u32,
    /// 1…4.
    pub schema_format: u32,
    /// 1 = UTF-8, 2 = UTF-16le, 3 = UTF-16be.
    pub text_encoding: u32,
    /// `PRAGMA user_version`.
    pub user_version: u32,
    /// `PRAGMA application_id`.
    pub application_id: u32,
    /// Whether there are pointer-map pages.
    pub auto_vacuum: AutoVacuum,
    /// Bytes at the end of each page that an extension keeps for itself.
    pub reserved: u8,
    /// Pages in the free-list.
    pub freelist_pages: u32,
    /// The end of the log; absent in rollback mode.
    pub log: Option<LogPosition>,
    /// The SQLite that held the snapshot open.
    pub library_version: String,
}

impl Position {
    pub(super) fn new(header: &DatabaseHeader, pages: u32, log: Option<LogPosition>) -> Self {
        Self {
            journal_mode: if log.is_some() { JournalMode::Wal } else { JournalMode::Rollback },
            page_size: header.page_size,
            pages,
            change_counter: header.change_counter,
            schema_cookie: header.schema_cookie,
            schema_format: header.schema_format,
            text_encoding: header.text_encoding,
            user_version: header.user_version,
            application_id: header.application_id,
            auto_vacuum: header.auto_vacuum,
            reserved: header.reserved,
            freelist_pages: header.freelist_pages,
            log,
            library_version: rusqlite::version().to_owned(),
        }
    }
}
