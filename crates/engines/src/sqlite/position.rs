//! The position of a snapshot: the part of the manifest that identifies the backed-up state of the database.

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

/// The end of the snapshot in the write-ahead log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPosition {
    /// The last frame that belongs to the snapshot; 0 when the log was empty.
    pub max_frame: u32,
    /// The log's first salt; grows by one with every restart of the log.
    pub salt_1: u32,
    /// The log's second salt: random.
    pub salt_2: u32,
    /// How many different pages the log held; meaningless in a log set.
    #[serde(default)]
    pub pages: u64,
    /// The log's running checksum after that frame, 16 hexadecimal digits. If the log was empty: the checksum of the
    /// last frame before its restart, if there was a frame. Absent in sets of older programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

impl LogPosition {
    /// A place in a log.
    pub fn new(salts: [u8; 8], max_frame: u32, checksum: Option<(u32, u32)>, pages: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = salts;
        let (salt_1, salt_2) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        Self { max_frame, salt_1, salt_2, pages, checksum: checksum.map(|(a, b)| format!("{a:08x}{b:08x}")) }
    }

    /// Both salts, as in the log.
    pub fn salts(&self) -> [u8; 8] {
        let ([a, b, c, d], [e, f, g, h]) = (self.salt_1.to_be_bytes(), self.salt_2.to_be_bytes());
        [a, b, c, d, e, f, g, h]
    }

    /// The running checksum of the log's last frame, if there is one and it is known.
    pub fn sums(&self) -> Option<(u32, u32)> {
        self.last_sums().filter(|_| self.max_frame > 0)
    }

    /// The same; for an empty log, the checksum of the last frame before the restart.
    pub fn last_sums(&self) -> Option<(u32, u32)> {
        let digits = self.checksum.as_ref().filter(|digits| digits.len() == 16)?;
        let half = |range| u32::from_str_radix(digits.get(range)?, 16).ok();
        Some((half(0..8)?, half(8..16)?))
    }
}

/// The database file at a moment when the file alone was the snapshot: no page was in the log only. Every write to the
/// file changes these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Number of its device.
    pub device: u64,
    /// Its inode number.
    pub inode: u64,
    /// Its length.
    pub bytes: u64,
    /// When its content was last written, in nanoseconds since 1970.
    pub modified: i64,
    /// When it was changed in any way, in nanoseconds since 1970; no program can set it.
    pub changed: i64,
}

impl FileState {
    /// The state that the file system reports.
    pub fn of(metadata: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let nanoseconds = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// The identity of a snapshot. The change counter alone does not identify it: it may not change in WAL mode.
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
    /// When this end of the log was seen, RFC 3339; empty in sets of older programs.
    #[serde(default)]
    pub at: String,
    /// The file, if it alone was the snapshot at the end of the backup, and the database is in WAL mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileState>,
    /// SQLite's message about a schema that it could not parse; the pages are in the set anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable_schema: Option<String>,
    /// The version of the SQLite that held the snapshot open.
    pub library_version: String,
}

impl Position {
    pub(super) fn new(header: &DatabaseHeader, pages: u32, log: Option<LogPosition>, at: jiff::Timestamp) -> Self {
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
            at: at.to_string(),
            file: None,
            unreadable_schema: None,
            library_version: rusqlite::version().to_owned(),
        }
    }
}
