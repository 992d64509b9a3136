//! The files of a finished copy.

use std::path::PathBuf;

use super::work::FileNumber;

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A file of an InnoDB tablespace.
    Tablespace,
    /// The redo log.
    Redo,
    /// Everything else: table definitions, tables of other engines, Aria's log.
    Other,
}

/// A file of the finished copy. Bytes that were copied under a number without such a file are not part of the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedFile {
    /// Its number.
    pub number: FileNumber,
    /// Its name at the end, relative to the data directory.
    pub name: String,
    /// Its kind.
    pub kind: FileKind,
    /// Its unit in bytes: a page, or less where pages have holes; a power of two of at least 4096.
    pub unit: u32,
    /// Its size in bytes; bytes that were never given are zero.
    pub size: u64,
    /// The tablespace's number, where it is known.
    pub space: Option<u32>,
    /// Its pages are encrypted.
    pub encrypted: bool,
    /// The real place of the file, if it is outside of the data directory.
    pub elsewhere: Option<PathBuf>,
}
