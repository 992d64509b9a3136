//! Engines whose pages are checked without a server.

use fullbore_core::media::ManifestStream;
use fullbore_core::unpack::Target;

/// Pages that carry checksums.
pub trait PageEngine: Sync {
    /// The check of the pages while a set that restores to `streams` is verified.
    fn check(&self, streams: &[ManifestStream]) -> Box<dyn PageCheck>;

    /// Bytes of one page of a file; `None` for a file without pages.
    fn page_size(&self, stream: &ManifestStream) -> Option<u32>;

    /// The note in a set on pages that were damaged at the backup (with `--continue-after-error`). `position` is from
    /// its manifest.
    fn damaged_at_source(&self, position: &serde_json::Value) -> Option<String>;
}

/// A check of a set's bytes during verification.
pub trait PageCheck: Target {
    /// The damage that existed before the backup, each in a sentence for the user; called after all bytes were given.
    fn damaged(&self) -> Vec<String>;
}
