//! Reads of the database file by several threads: direct where the file system can, otherwise through the page cache.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fullbore_core::{Error, Result};

use super::open_files::RawFile;

/// Alignment of direct reads, in bytes: offset, length and memory.
const ALIGNMENT: usize = 4096;

/// The database file of a snapshot.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    buffered: Arc<RawFile>,
    direct: Option<Arc<RawFile>>,
    /// Cleared for good by the first direct read that the file system refuses.
    direct_works: AtomicBool,
    /// Bytes of the file when the snapshot began; it must not become shorter.
    bytes: u64,
}

impl DatabaseFile {
    /// Reads through `buffered`, or through `direct` where it works; the snapshot needs the first `bytes` bytes or
    /// all there are.
    pub fn new(buffered: Arc<RawFile>, direct: Option<Arc<RawFile>>, bytes: u64) -> Result<Self> {
        let there = buffered.metadata()?.len();
        let direct_works = AtomicBool::new(direct.is_some());
        Ok(Self { buffered, direct, direct_works, bytes: there.min(bytes) })
    }

    /// Whether reads go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct_works.load(Ordering::Relaxed)
    }

    /// Fills the first `length` bytes of `buffer` from `offset`. Bytes after the end of the file are zeros, as SQLite
    /// sees them; a file that has become shorter is an error. `buffer` may be used beyond `length`.
    pub fn read(&self, offset: u64, buffer: &mut [u8], length: usize) -> Result<()> {
        let got = match self.read_direct(offset, buffer, length) {
            Some(result) => result,
            None => self.buffered.read_at(offset, &mut buffer[..length]),
        };
        let got = got.map_err(|error| self.buffered.read_error(offset, length, error))?.min(length);
        if offset + (got as u64) < self.bytes.min(offset + length as u64) {
            return Err(self.shrank(offset + got as u64));
        }
        buffer[got..length].fill(0);
        Ok(())
    }

    /// `None` when this read cannot be direct.
    fn read_direct(&self, offset: u64, buffer: &mut [u8], length: usize) -> Option<io::Result<usize>> {
        let file = self.direct.as_ref().filter(|_| self.is_direct())?;
        let window = buffer.get_mut(..length.next_multiple_of(ALIGNMENT))?;
        if !offset.is_multiple_of(ALIGNMENT as u64) || !window.as_ptr().addr().is_multiple_of(ALIGNMENT) {
            return None;
        }
        let mut done = 0;
        // A read that ends off the alignment has met the end of the file.
        while done < window.len() && done % ALIGNMENT == 0 {
            match file.read_once(offset + done as u64, &mut window[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.direct_works.store(false, Ordering::Relaxed);
                    return None;
                }
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(done))
    }

    /// An error once the file is shorter than it was when the snapshot began.
    pub fn check_size(&self) -> Result<()> {
        let now = self.buffered.metadata()?.len();
        if now < self.bytes { Err(self.shrank(now)) } else { Ok(()) }
    }

    fn shrank(&self, end: u64) -> Error {
        Error::refused(
            self.buffered.name(),
            format!("the file ends at byte {end} now; it had {} bytes when the backup began", self.bytes),
            "a program other than SQLite truncates or replaces it; stop it and back up again",
        )
    }
}
