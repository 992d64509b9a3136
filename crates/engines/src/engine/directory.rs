//! Engines whose database is a directory.

use std::path::Path;

use fullbore_core::Result;
use fullbore_core::media::ManifestStream;

/// Directories that a server of the engine starts on.
pub trait DirectoryEngine: Sync {
    /// Marks an empty directory as a copy that is not complete: no server starts on it.
    ///
    /// # Errors
    /// The directory cannot be written.
    fn begin(&self, directory: &Path) -> Result<()>;

    /// The name of that mark in the directory.
    fn mark(&self) -> &'static str;

    /// Makes files of a directory long enough for the recovery of a server. The directory may hold a part of the set's
    /// files. `position` is from the set's manifest.
    ///
    /// # Errors
    /// A file cannot be read or written.
    fn lengthen(&self, directory: &Path, position: &serde_json::Value) -> Result<()> {
        let _ = (directory, position);
        Ok(())
    }

    /// Prepares a directory, whose files are complete and durable, for the start of a server. `position` is from the
    /// set's manifest.
    ///
    /// # Errors
    /// The directory cannot be written.
    fn finish(&self, directory: &Path, position: &serde_json::Value) -> Result<()>;

    /// What the user has to do after a server runs on a restored directory, if no start check has done it.
    fn after_a_start(&self, position: &serde_json::Value) -> Option<String> {
        let _ = position;
        None
    }

    /// The tables among `streams` that are stored as SQL text.
    fn texts_of_tables(&self, streams: &[ManifestStream]) -> Vec<TextOfTable> {
        let _ = streams;
        Vec::new()
    }
}

/// A table that a restored directory has only as SQL text, until it is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextOfTable {
    /// Its path below the directory.
    pub path: String,
    /// Bytes of its longest statement: less than the server's `max_allowed_packet` must be.
    pub longest_statement: u64,
    /// Whether the server forgets its rows whenever it stops.
    pub in_memory: bool,
}
