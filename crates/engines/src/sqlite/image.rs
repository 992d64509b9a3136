//! The snapshot as an array of pages: the database file, overlaid with the log.

use fullbore_core::Result;

use super::database_file::DatabaseFile;
use super::overlay::{Overlay, Read};

/// The database as the snapshot's transaction sees it, byte for byte.
pub(super) struct Image {
    /// The database file.
    pub file: DatabaseFile,
    /// The log, in WAL mode, unless it was empty or wholly copied.
    pub overlay: Option<Overlay>,
    /// Bytes per page.
    pub page_size: u32,
}

impl Image {
    /// Fills the first `length` bytes of `buffer` with the snapshot from `offset` on; both are multiples of the page
    /// size. `buffer` may be used beyond `length`.
    pub fn fill(&self, offset: u64, buffer: &mut [u8], length: usize) -> Result<()> {
        let first = self.page_at(offset);
        let last = self.page_at(offset + (length as u64).saturating_sub(1));
        if let Some(overlay) = self.overlay.as_ref().filter(|overlay| overlay.is_current()) {
            // A page in the log is not read from the file: a checkpoint may be writing it there now.
            let frames = overlay.frames(first, last);
            if frames.len() < (last - first + 1) as usize {
                self.file.read(offset, buffer, length)?;
            }
            if frames.is_empty() || overlay.read(frames, first, buffer)? == Read::Done {
                return Ok(());
            }
        }
        self.file.read(offset, buffer, length)
    }

    /// Reads page `page`, counted from 1.
    pub fn read_page(&self, page: u32, buffer: &mut [u8]) -> Result<()> {
        let offset = u64::from(page.saturating_sub(1)) * u64::from(self.page_size);
        self.fill(offset, buffer, self.page_size as usize)
    }

    fn page_at(&self, offset: u64) -> u32 {
        u32::try_from(offset / u64::from(self.page_size) + 1).unwrap_or(u32::MAX)
    }
}
