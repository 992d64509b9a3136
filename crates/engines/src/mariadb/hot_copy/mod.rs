//! The hot copy: a running server's files, copied while they are written, and consistent after the server's own recovery.
//!
//! [`run`] needs two connections ([`Statements`]) and a place for the files ([`CopyTarget`]). What happens in which stage, and why
//! that is enough, is in `docs/engines/mariadb-hot-copy.md`.
//!
//! ```text
//! START ── follow the redo log ───────────────────────────────────────────────────────────▶ target LSN
//!          tablespaces, all readers ─ new ones ─ FLUSH ─ BLOCK_DDL ─ BLOCK_COMMIT ─ END
//!                                                        reconcile   positions
//!                                                        other files flush logs
//! ```

mod data_file;
mod listing;
mod log_copy;
mod other_files;
mod pieces;
mod places;
mod position;
mod reconcile;
mod stages;
mod statements;
mod tablespaces;
mod target;

use std::cell::RefCell;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::io::Mode;
use fullbore_core::{Error, Result};

pub use data_file::DamagedPage;
pub use listing::{Listing, OtherFile, Role, Settles, TablespaceFile, list};
pub use pieces::BUFFER_UNIT;
pub use places::Places;
pub use position::BinlogPosition;
pub use reconcile::{Copied, Present, Reconciled, reconcile};
pub use stages::{Blocked, Stage, Stages};
pub use statements::{Row, Statements, server_lsn};
pub use target::{CopiedFile, CopyTarget, FileHead, FileKind, FileNumber};

use super::redo::header::{Checkpoint, HEAD};
use super::redo::tail::{ServerLsn, Tail};
use super::redo::write::LinearLog;
use listing::list_late;
use other_files::{OtherFiles, Round};
use pieces::Shared;
use tablespaces::Tablespaces;

/// How often new tablespaces are looked for before the server has to hold still.
const CATCH_UP_ROUNDS: usize = 2;

/// How a hot copy is made.
#[derive(Clone)]
pub struct Options {
    /// Threads that read files at once.
    pub readers: usize,
    /// Bytes of each reader's buffer; raised to a multiple of [`BUFFER_UNIT`].
    pub buffer: usize,
    /// How files are read.
    pub mode: Mode,
    /// How long each stage may wait for the locks of others; meanwhile new ones wait behind it.
    pub lock_timeout: Duration,
    /// Pages that stay damaged are named, and the copy goes on.
    pub continue_after_error: bool,
    /// Ends the copy.
    pub halt: Halt,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            readers: 2,
            buffer: 1 << 20,
            mode: Mode::Auto,
            lock_timeout: Duration::from_secs(10),
            continue_after_error: false,
            halt: Halt::new(),
        }
    }
}

/// What a finished copy is.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The server's version: the restored directory needs the same series.
    pub version: String,
    /// Where its redo log begins: recovery starts here, and a later differential is compared with it.
    pub checkpoint: Checkpoint,
    /// Where its redo log ends.
    pub end_lsn: u64,
    /// Where it stands in the binary log.
    pub position: BinlogPosition,
    /// Whom it kept waiting, and for how long.
    pub blocked: Blocked,
    /// Its files, as given to [`CopyTarget::finish`].
    pub files: Vec<CopiedFile>,
    /// Bytes read.
    pub bytes: u64,
    /// Tablespace files that had to be copied while DDL was blocked.
    pub copied_while_blocked: u64,
    /// Files of other engines that had to be copied while DDL or commits were blocked.
    pub others_while_blocked: u64,
    /// Pages that were being written when they were read, and were read again.
    pub torn_pages: u64,
    /// Pages that are damaged in the server's own files; at most 1000 are named.
    pub damaged: Vec<DamagedPage>,
    /// How long it took.
    pub elapsed: Duration,
    /// What the user should know although the copy is good.
    pub warnings: Vec<String>,
}

/// Makes a hot copy. `stages` holds the backup lock all the time; `monitor` is asked for LSNs by another thread.
///
/// # Errors
/// Whatever makes the copy unusable, the overrun of the redo log among it; the lock is given back and all threads have ended then.
pub fn run(
    stages: &mut dyn Statements,
    monitor: &mut (dyn Statements + Send),
    target: &dyn CopyTarget,
    options: &Options,
) -> Result<Outcome> {
    let started = Instant::now();
    let halt = &options.halt;
    let places = Places::ask(stages)?;
    let connection = stages.execute("SELECT CONNECTION_ID()")?.first().and_then(|row| row.number(0)).unwrap_or(0);
    let stages = Stages::start(stages, options.lock_timeout, halt).or_else(|error| halt.finish().and(Err(error)))?;
    let mut tail = Tail::open(&places.redo_log, options.mode)?;
    tail.set_write_block(places.write_block);
    demand_same_server(&tail, &places, server_lsn(monitor)?)?;
    let (checkpoint, log_size) = (tail.checkpoint(), tail.file_size());
    let linear = LinearLog::new(tail.header(), checkpoint, &places.version);
    let shared = Shared::new(target, options.mode, halt);
    let log = shared.number();
    let head = FileHead { number: log, name: "ib_logfile0".into(), kind: FileKind::Redo, size: 0 };
    target.begin(&head)?;
    debug_assert_eq!(linear.head().len(), HEAD);
    target.write(log, 0, linear.head())?;
    let (tell, told) = channel();
    let copier = Copier { places: &places, options, shared: &shared };
    let (end_lsn, still) = thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let mut emit = |lsn: u64, bytes: &[u8]| target.write(log, linear.offset(lsn), bytes);
            follow_to_the_end(tail, monitor, connection, told, halt, &mut emit)
        });
        let still = copier.copy(stages, &mut |lsn| {
            let _ = tell.send(lsn); // Nobody listens when the log's thread has failed: it says why.
        });
        let still = halt.watch(still);
        drop(tell);
        let end = halt.watch(follower.join().unwrap_or(Err(Error::Halted)));
        end.zip(still).ok_or(Error::Halted)
    })
    .or_else(|_: Error| halt.finish().and(Err(Error::Halted)))?;
    let mut files = still.files;
    files.push(CopiedFile {
        number: log,
        name: "ib_logfile0".into(),
        kind: FileKind::Redo,
        size: linear.size(end_lsn, log_size),
        space: None,
        elsewhere: None,
    });
    target.finish(&files)?;
    Ok(Outcome {
        version: places.version.clone(),
        checkpoint,
        end_lsn,
        position: still.position,
        blocked: still.blocked,
        files,
        bytes: shared.bytes.into_inner() + end_lsn - checkpoint.lsn,
        copied_while_blocked: still.tablespaces_while_blocked,
        others_while_blocked: still.others.files,
        torn_pages: shared.torn.into_inner(),
        damaged: shared.damaged.into_inner().unwrap_or_else(PoisonError::into_inner),
        elapsed: started.elapsed(),
        warnings: still.warnings,
    })
}

/// A log that is not where the server says its log is belongs to another server: a copy of the directory, or another host.
fn demand_same_server(tail: &Tail, places: &Places, server: ServerLsn) -> Result<()> {
    let checkpoint = tail.checkpoint().lsn;
    if checkpoint <= server.current && server.current - checkpoint <= tail.ring().capacity() {
        return Ok(());
    }
    Err(Error::refused(
        places.redo_log.display().to_string(),
        format!(
            "this is not the redo log of the server that answers: its checkpoint is {checkpoint}, and that server is at LSN {}",
            server.current
        ),
        "run the backup on the server's own host (and in its container), where its data directory is",
    ))
}

/// The log's thread. When the copy ends early, a statement of the other connection that waits for a lock is ended too.
fn follow_to_the_end(
    tail: Tail,
    monitor: &mut dyn Statements,
    connection: u64,
    told: Receiver<u64>,
    halt: &Halt,
    emit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let result = log_copy::follow(tail, monitor, &told, halt, emit);
    if let Err(error) = result {
        halt.stop(error);
        // The connection may be idle, or gone: then there is nothing to end.
        let _ = monitor.execute(&format!("KILL QUERY {connection}"));
        return Err(Error::Halted);
    }
    result
}

/// What the copy was while the server held still.
struct Still {
    files: Vec<CopiedFile>,
    position: BinlogPosition,
    blocked: Blocked,
    tablespaces_while_blocked: u64,
    others: Round,
    warnings: Vec<String>,
}

/// Copies everything but the redo log.
struct Copier<'a> {
    places: &'a Places,
    options: &'a Options,
    shared: &'a Shared<'a>,
}

impl Copier<'_> {
    /// All stages; tells `target` the LSN at which the redo log has to end.
    fn copy(&self, stages: Stages, target: &mut dyn FnMut(u64)) -> Result<Still> {
        let stages = RefCell::new(stages);
        let buffer = self.options.buffer.max(1).next_multiple_of(BUFFER_UNIT);
        let times_count = !self.places.myisam_use_mmap;
        let mut others = OtherFiles::new(self.shared, self.options.readers, buffer, times_count);
        let mut tablespaces = Tablespaces::new(self.shared, self.options.readers, buffer);
        let listing = list(self.places)?;
        tablespaces.look_at_system(&listing.tablespaces)?;
        let check = || stages.borrow_mut().check();
        tablespaces.copy(listing.tablespaces, &check)?;
        self.stop_at_damage()?;
        others.copy_settled(&listing.others)?;
        for _ in 0..CATCH_UP_ROUNDS {
            if tablespaces.reconcile(list(self.places)?.tablespaces, &check)? == 0 {
                break;
            }
        }
        let stages = stages.into_inner();
        self.hold_still(stages, tablespaces, others, target)
    }

    /// The stages that others notice: as little as possible, and in the shortest way.
    fn hold_still(
        &self,
        mut stages: Stages,
        mut tablespaces: Tablespaces,
        mut others: OtherFiles,
        target: &mut dyn FnMut(u64),
    ) -> Result<Still> {
        let halt = self.shared.halt;
        for stage in [Stage::Flush, Stage::BlockDdl] {
            halt.check()?;
            stages.enter(stage)?;
        }
        let listing = list(self.places)?;
        // The lock is not asked after here: every statement that follows would fail without it.
        let tablespaces_while_blocked = tablespaces.reconcile(listing.tablespaces, &|| Ok(()))?;
        self.stop_at_damage()?;
        let early = others.copy_changed(&listing.others, Settles::WithoutDdl)?;
        halt.check()?;
        stages.enter(Stage::BlockCommit)?;
        // Aria's log is flushed with InnoDB's; after this statement both have everything that was committed.
        stages.server().execute("FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS")?;
        let end = server_lsn(stages.server())?.flushed;
        let late = others.copy_changed(&list_late(self.places)?, Settles::WithoutCommits)?;
        let position = BinlogPosition::ask(stages.server())?;
        // What is below the target is on disk for good: the rest of the log can be read while the server goes on.
        let blocked = stages.end()?;
        target(end);
        let files = tablespaces.into_copied().chain(others.into_copied()).collect();
        let others = Round { files: early.files + late.files, bytes: early.bytes + late.bytes };
        Ok(Still { files, position, blocked, tablespaces_while_blocked, others, warnings: listing.warnings })
    }

    /// A page that stays damaged ends the copy, unless it was asked to go on.
    fn stop_at_damage(&self) -> Result<()> {
        let damaged = self.shared.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        match damaged.first() {
            Some(first) if !self.options.continue_after_error => Err(Error::refused(
                first.file.clone(),
                format!("page {} is damaged in the server's own file: {}", first.page, first.fault),
                "repair the table from a good backup; --continue-after-error backs it up as it is",
            )),
            _ => Ok(()),
        }
    }
}
