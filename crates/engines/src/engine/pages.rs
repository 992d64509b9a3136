//! Engines whose pages are checked without a server.

use fullbore_core::media::ManifestStream;
use fullbore_core::unpack::Target;

/// Pages that carry checksums.
pub trait PageEngine: Sync {
    /// What looks at the pages while a set that restores to `streams` is verified.
    fn check(&self, streams: &[ManifestStream]) -> Box<dyn PageCheck>;

    /// Bytes of one page of a file; `None` of a file without pages.
    fn page_size(&self, stream: &ManifestStream) -> Option<u32>;

    /// What a set says of pages that were damaged when it was made (with `--continue-after-error`). `position` is the one of its manifest.
    fn damaged_at_source(&self, position: &serde_json::Value) -> Option<String>;
}

/// What looks at a set's bytes while it is verified.
pub trait PageCheck: Target {
    /// What was damaged already when it was read, each in a sentence for the user; once everything has been given.
    fn damaged(&self) -> Vec<String>;
}
