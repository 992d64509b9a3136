//! Detects programs that write to the database file without SQLite's locks while a snapshot reads it: `cp`, `rsync`, a
//! restore of another tool.
//!
//! In rollback mode no process may write while a reader holds its lock. In WAL mode only checkpoints write: they move a
//! number in the wal-index before they begin, and put only frames up to the snapshot's mark into the file.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fullbore_core::{Error, Result};

use super::open_files::RawFile;
use super::overlay::Overlay;
use super::position::FileState;
use super::probe;
use super::wal_index::{BEGUN_AT, COPIED_AT};

/// A read during a checkpoint may return a page half old and half new: it is read again after this time.
const PAGE_PAUSE: Duration = Duration::from_millis(5);
/// How often it is read again.
const PAGE_TRIES: u32 = 20;

/// The state of the file at a moment without writes.
pub(super) struct ForeignWrites {
    raw: Arc<RawFile>,
    /// In WAL mode.
    index: Option<Arc<RawFile>>,
    page_size: u32,
    seen: Mutex<Seen>,
}

struct Seen {
    /// Page 1 in the file.
    first_page: Vec<u8>,
    /// `None` if file times are not reliable, or a checkpoint may be running.
    quiet: Option<Quiet>,
}

/// A moment without a running checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Quiet {
    /// When the file was written to, in nanoseconds since 1970.
    modified: i64,
    /// Absent in rollback mode.
    checkpoints: Option<Checkpoints>,
}

/// The state of checkpoints in the wal-index: frames that were copied, and frames that a checkpoint has begun to copy.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Checkpoints {
    copied: u32,
    begun: u32,
}

impl ForeignWrites {
    /// Looks at the file for the first time: within the read transaction.
    pub fn begin(raw: Arc<RawFile>, index: Option<Arc<RawFile>>, page_size: u32) -> Result<Self> {
        let seen = Mutex::new(Seen { first_page: Vec::new(), quiet: None });
        let this = Self { raw, index, page_size, seen };
        let mut seen = this.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.first_page, seen.quiet) = (this.first_page()?, this.quiet()?);
        drop(seen);
        Ok(this)
    }

    /// Looks again, within the same transaction; `overlay` is its log.
    ///
    /// # Errors
    /// A program other than SQLite has written to the file.
    pub fn check(&self, overlay: Option<&Overlay>) -> Result<()> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_times(&mut seen)?;
        self.check_first_page(&mut seen, overlay)
    }

    /// The modification time of the file does not change before a checkpoint begins.
    fn check_times(&self, seen: &mut Seen) -> Result<()> {
        // Before the wal-index: a checkpoint may begin in between and write.
        let modified = self.modified()?;
        let same = match (seen.quiet, &self.index) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(quiet), Some(index)) => quiet.checkpoints == Some(checkpoints(index)?),
        };
        match seen.quiet {
            Some(quiet) if same && quiet.modified != modified => Err(self.foreign(match &self.index {
                None => "it was written to although this backup holds a lock against writers",
                Some(_) => "it was written to although no checkpoint was running",
            })),
            Some(_) if same => Ok(()),
            _ => {
                seen.quiet = self.quiet()?;
                Ok(())
            }
        }
    }

    /// Page 1 does not change, or becomes a version of it from the log.
    fn check_first_page(&self, seen: &mut Seen, overlay: Option<&Overlay>) -> Result<()> {
        for tries in 0..PAGE_TRIES {
            let page = self.first_page()?;
            let from_the_log = || overlay.map_or(Ok(false), |overlay| overlay.has_had(1, &page));
            if page == seen.first_page || from_the_log()? {
                seen.first_page = page;
                return Ok(());
            }
            if self.index.is_none() || tries + 1 == PAGE_TRIES {
                break;
            }
            std::thread::sleep(PAGE_PAUSE);
        }
        Err(self.foreign(match &self.index {
            None => "its header changed although this backup holds a lock against writers",
            Some(_) => "its first page changed, and the write-ahead log has no such version of it",
        }))
    }

    fn first_page(&self) -> Result<Vec<u8>> {
        let mut page = vec![0; self.page_size as usize];
        let got = self.raw.read_at(0, &mut page).map_err(|error| self.raw.read_error(0, page.len(), error))?;
        page.truncate(got);
        Ok(page)
    }

    fn modified(&self) -> Result<i64> {
        Ok(FileState::of(&self.raw.metadata()?).modified)
    }

    /// This moment, if no checkpoint is running.
    fn quiet(&self) -> Result<Option<Quiet>> {
        if probe::is_network(&self.raw).is_some() {
            return Ok(None); // Its times may be those of another machine, or old.
        }
        let Some(index) = &self.index else {
            return Ok(Some(Quiet { modified: self.modified()?, checkpoints: None }));
        };
        let before = checkpoints(index)?;
        let modified = self.modified()?;
        let at_rest = before.copied == before.begun && before == checkpoints(index)?;
        Ok(at_rest.then_some(Quiet { modified, checkpoints: Some(before) }))
    }

    fn foreign(&self, why: &str) -> Error {
        Error::refused(
            self.raw.name(),
            why,
            "a program writes to the file without SQLite's locks (a copy over it, a network file system); stop it and \
             back up again",
        )
    }
}

fn checkpoints(index: &RawFile) -> Result<Checkpoints> {
    let number = |at: u64| {
        let mut bytes = [0; 4];
        index.read_at(at, &mut bytes).map_err(|error| index.read_error(at, bytes.len(), error))?;
        Ok::<_, Error>(u32::from_ne_bytes(bytes))
    };
    Ok(Checkpoints { copied: number(COPIED_AT)?, begun: number(BEGUN_AT)? })
}
