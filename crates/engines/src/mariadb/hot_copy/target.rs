//! Where a hot copy goes: files begin, their bytes come in any order from several threads, and a list at the end says which of them
//! there are and what they are called.

use std::path::PathBuf;

use fullbore_core::Result;

/// A file of the copy, numbered in the order in which files began. Names may change until the end; numbers do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u32);

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A file of an InnoDB tablespace.
    Tablespace {
        /// Bytes of a page in the file: the unit of a differential is a multiple of it.
        page: u32,
    },
    /// The redo log.
    Redo,
    /// Everything else: table definitions, tables of other engines, Aria's log.
    Other,
}

/// A file that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHead {
    /// Its number.
    pub number: FileNumber,
    /// Its name now, relative to the data directory: "shop/item.ibd".
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// Its size now, in bytes; 0 for the redo log, of which nobody knows.
    pub size: u64,
}

/// A file of the finished copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedFile {
    /// Its number.
    pub number: FileNumber,
    /// Its name at the end, relative to the data directory.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// Bytes; what was never written of them is zero.
    pub size: u64,
    /// The tablespace's number, where it is known.
    pub space: Option<u32>,
    /// Where the file really stands, if that is not in the data directory.
    pub elsewhere: Option<PathBuf>,
}

/// Takes the files of a hot copy.
pub trait CopyTarget: Sync {
    /// A file begins. Its bytes come afterwards.
    fn begin(&self, file: &FileHead) -> Result<()>;

    /// Bytes of a file that has begun. Called by several threads, in any order, each byte at most once; what never comes is zero.
    fn write(&self, file: FileNumber, offset: u64, bytes: &[u8]) -> Result<()>;

    /// The file is not part of the copy after all: it was removed, or is copied again under another number.
    fn discard(&self, file: FileNumber) -> Result<()>;

    /// The copy is complete, and these are its files. Not called when the copy fails.
    fn finish(&self, files: &[CopiedFile]) -> Result<()>;
}
