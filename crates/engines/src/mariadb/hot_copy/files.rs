//! The files of a finished copy.

use std::path::PathBuf;

use super::work::FileNumber;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A file of an InnoDB tablespace.
    Tablespace,
    /// The redo log.
    Redo,
    /// Everything else: table definitions, tables of other engines, Aria's log.
    Other,
}

/// A file of the finished copy. What was copied under a number that no such file has is not part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedFile {
    /// Its number.
    pub number: FileNumber,
    /// Its name at the end, relative to the data directory.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// Its unit in bytes: a page, or less where pages have holes; a power of two of at least 4096.
    pub unit: u32,
    /// Bytes; what was never given of them is zero.
    pub size: u64,
    /// The tablespace's number, where it is known.
    pub space: Option<u32>,
    /// Its pages are encrypted.
    pub encrypted: bool,
    /// Where the file really stands, if that is not in the data directory.
    pub elsewhere: Option<PathBuf>,
}
