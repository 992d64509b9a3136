//! The hot copy: a running server's files, copied while they are written, and consistent after the server's own
//! recovery.
//!
//! [`HotCopy::start`] needs two connections ([`Statements`]) and begins; readers ([`HotCopy::reader`]) then fill their
//! buffers with pieces of files until the end. `docs/engines/mariadb-hot-copy.md` explains the stages.
//!
//! ```text
//! START ── follow the redo log ───────────────────────────────────────────────────────────▶ target LSN
//!          tablespaces, all readers ─ new ones ─ FLUSH ─ BLOCK_DDL ─ BLOCK_COMMIT ─ END
//!                                                        reconcile   positions
//!                                                        other files flush logs
//! ```

mod conductor;
mod data_file;
mod files;
mod imported;
mod left_out;
mod listing;
mod lost;
mod missing;
mod other_files;
mod places;
mod reconcile;
mod stages;
mod stamp;
mod statements;
mod tablespaces;
mod work;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::io::Mode;
use fullbore_core::{Error, Result, threads};

pub use files::{CopiedFile, FileKind};
pub use left_out::{LeftOut, TableEngines, warnings as warnings_of_left_out};
pub(in crate::mariadb) use listing::is_undo_tablespace;
pub use listing::{ListedFile, Listing, OtherFile, Role, Settles, list};
pub use places::Places;
pub use reconcile::{Copied, Present, Reconciled, reconcile};
pub use stages::{Blocked, Stage, Stages};
pub use stamp::Stamp;
pub use statements::{Row, Statements, server_lsn, variables};
pub use work::{FileNumber, LOG, PIECE_UNIT, Piece, PieceReader, Told};

use super::position::BinlogPosition;
use super::redo::header::Checkpoint;
use crate::mysql_family::innodb::damage::DamagedPage;
use work::Work;

/// How long a copy that was ended may take to give the lock back, before its connections are cut.
const FAREWELL: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(20);

/// How a hot copy is made.
#[derive(Clone)]
pub struct Options {
    /// How many files are checked at once while the server is blocked.
    pub threads: usize,
    /// How files are read.
    pub mode: Mode,
    /// How long each stage may wait for the locks of other sessions; meanwhile new sessions wait for it.
    pub lock_timeout: Duration,
    /// Reports pages that stay damaged, and continues the copy.
    pub continue_after_error: bool,
    /// Refuses encrypted tablespaces, and new tablespaces whose first page is still zero.
    pub refuse_encrypted: bool,
    /// Ends the copy.
    pub halt: Halt,
    /// Stopped if a cancelled copy does not end: ends the waits of the connections.
    pub cut: Halt,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 2,
            mode: Mode::Auto,
            lock_timeout: Duration::from_secs(10),
            continue_after_error: false,
            refuse_encrypted: false,
            halt: Halt::new(),
            cut: Halt::new(),
        }
    }
}

/// The result of a finished copy.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The server's version: the restored directory needs the same series.
    pub version: String,
    /// Where its redo log begins: recovery starts here.
    pub checkpoint: Checkpoint,
    /// Where its redo log ends.
    pub end_lsn: u64,
    /// Its position in the binary log.
    pub position: BinlogPosition,
    /// How long it blocked other sessions.
    pub blocked: Blocked,
    /// Its files.
    pub files: Vec<CopiedFile>,
    /// Tablespace files that had to be copied while DDL was blocked.
    pub copied_while_blocked: u64,
    /// Files of other engines that had to be copied while DDL or commits were blocked.
    pub others_while_blocked: u64,
    /// How long the server's undo tablespaces were where the redo log ends, in bytes, by their numbers. Their copies
    /// may be shorter.
    pub undo_lengths: BTreeMap<u32, u64>,
    /// Pages that were being written when they were read, and were read again.
    pub torn_pages: u64,
    /// Pages that are damaged in the server's own files; at most 1000 are named.
    pub damaged: Vec<DamagedPage>,
    /// How long it took.
    pub elapsed: Duration,
    /// Tables that are not in it.
    pub left_out: Vec<LeftOut>,
    /// Warnings of other files that are not in it.
    pub passed_over: Vec<String>,
    /// What the user should know, although the copy is good.
    pub warnings: Vec<String>,
}

/// Ends the readers on every path, also after a panic: they would wait for ever.
struct Ending<'a>(&'a Work);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.halt.stop(Error::Halted);
        }
        self.0.end();
    }
}

/// A hot copy under way. Dropped before it is complete, it is ended, and the server's lock given back.
pub struct HotCopy {
    work: Arc<Work>,
    outcome: Arc<OnceLock<Outcome>>,
    conductor: Mutex<Option<JoinHandle<()>>>,
    cut: Halt,
}

impl HotCopy {
    /// Begins a copy of the files at `places`. `stages` holds the backup lock all the time; another thread queries LSNs
    /// over `monitor`. Every error that makes the copy unusable stops [`Options::halt`].
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        mut stages: Box<dyn Statements + Send>,
        mut monitor: Box<dyn Statements + Send>,
        places: Places,
        options: Options,
    ) -> Result<Self> {
        let work = Arc::new(Work::new(options.mode, &options.halt, options.refuse_encrypted));
        let (outcome, cut) = (Arc::new(OnceLock::new()), options.cut.clone());
        let (working, tell) = (Arc::clone(&work), Arc::clone(&outcome));
        let conduct = move || {
            let ending = Ending(&working);
            let made = conductor::conduct(&working, &mut *stages, &mut *monitor, &places, &options);
            if let Some(made) = options.halt.watch(made) {
                let _ = tell.set(made); // No other code does.
            }
            drop(ending);
        };
        let conductor = Mutex::new(Some(threads::start("hot copy", conduct)?));
        Ok(Self { work, outcome, conductor, cut })
    }

    /// A reader, for one thread.
    ///
    /// # Errors
    /// No memory.
    pub fn reader(&self) -> Result<PieceReader<'_>> {
        self.work.reader()
    }

    /// The result of the copy, after all readers have ended.
    ///
    /// # Errors
    /// It is not complete.
    pub fn outcome(&self) -> Result<&Outcome> {
        self.outcome.get().ok_or(Error::Halted)
    }

    /// How many files there were so far, the redo log included: their numbers are below.
    pub fn files(&self) -> u32 {
        self.work.files()
    }

    /// The entry of a file that has begun.
    pub fn told(&self, file: FileNumber) -> Option<Told> {
        self.work.told(file)
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.work.bytes.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Drop for HotCopy {
    fn drop(&mut self) {
        let thread = self.conductor.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        if self.outcome.get().is_none() {
            self.work.halt.stop(Error::Halted);
            let since = Instant::now();
            while !thread.is_finished() && since.elapsed() < FAREWELL {
                std::thread::sleep(TICK);
            }
            // A server that does not answer any more gives the lock back when it sees the connection end.
            self.cut.stop(Error::Halted);
        }
        let _ = thread.join(); // The halt has its error.
    }
}
