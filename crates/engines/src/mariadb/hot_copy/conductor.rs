//! The conductor of a hot copy: enters the stages, names the files to read, and follows the redo log. Other threads
//! read the files.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};

use super::files::{CopiedFile, FileKind};
use super::imported::{self, Kept};
use super::left_out::{LeftOut, TableEngines};
use super::listing::{list, list_late};
use super::lost::{Judged, Short, Unfinished};
use super::missing;
use super::other_files::{OtherFiles, Round};
use super::places::Places;
use super::stages::{Blocked, Stage, Stages};
use super::statements::{Statements, server_lsn};
use super::tablespaces::{Moment, Tablespaces};
use super::work::{LOG, PIECE_UNIT, Work};
use super::{Options, Outcome, Settles};
use crate::mariadb::position::BinlogPosition;
use crate::mariadb::redo::lives::Lives;
use crate::mariadb::redo::tail::{ServerLsn, Tail};
use crate::mariadb::redo::touched::Touched;
use crate::mariadb::redo::write::LinearLog;
use crate::mariadb::redo_follower;
use crate::mysql_family::innodb::damage::{self, DamagedPage};

/// How often to search for new tablespaces before the server is blocked.
const CATCH_UP_ROUNDS: usize = 2;
/// The file that the server creates in its data directory when the first stage begins.
const LOG_OF_DDL: &str = "ddl.log";

/// Makes the copy; the readers of `work` do the reading.
///
/// # Errors
/// Every cause that makes the copy unusable, such as an overrun of the redo log. Then the lock is released and all
/// threads have ended.
pub(super) fn conduct(
    work: &Work,
    stages: &mut dyn Statements,
    monitor: &mut (dyn Statements + Send),
    places: &Places,
    options: &Options,
) -> Result<Outcome> {
    let started = Instant::now();
    let halt = &options.halt;
    let connection = stages.execute("SELECT CONNECTION_ID()")?.first().and_then(|row| row.number(0)).unwrap_or(0);
    let before = trace(&places.datadir);
    let stages = Stages::start(stages, options.lock_timeout, halt)?;
    demand_its_trace(before, &places.datadir)?;
    let mut tail = Tail::open(&places.redo_log, options.mode)?;
    tail.set_write_block(places.write_block);
    demand_same_server(&tail, places, server_lsn(monitor)?)?;
    let (checkpoint, log_size) = (tail.checkpoint(), tail.file_size());
    let linear = LinearLog::new(tail.header(), checkpoint, &places.version);
    work.give_log(0, linear.head())?;
    let touched = work.follow(Touched::new(tail.header().encrypted));
    let (tell, told) = channel();
    let copier = Copier { places, options, work, lives: tail.lives() };
    let (end_lsn, still) = thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let mut emit = |lsn: u64, bytes: &[u8]| {
                touched.look(bytes);
                work.give_log(linear.offset(lsn), bytes)
            };
            follow_to_the_end(tail, monitor, connection, told, halt, &mut emit)
        });
        let still = copier.copy(stages, &mut |lsn| {
            let _ = tell.send(lsn); // If the log's thread has failed, it reports the reason.
        });
        let still = halt.watch(still);
        drop(tell);
        let end = halt.watch(follower.join().unwrap_or(Err(Error::Halted)));
        work.end_log();
        end.zip(still).ok_or(Error::Halted)
    })?;
    imported::demand_recoverable(&still.kept, &copier.lives.lock().unwrap_or_else(PoisonError::into_inner))?;
    let mut files = still.files;
    let Judged { damaged, warning } = work.judge(&files, &still.short, &still.unfinished);
    copier.stop_at(&damaged)?;
    files.push(redo_log(linear.size(end_lsn, log_size)));
    Ok(Outcome {
        version: places.version.clone(),
        checkpoint,
        end_lsn,
        position: still.position,
        blocked: still.blocked,
        files,
        copied_while_blocked: still.tablespaces_while_blocked,
        others_while_blocked: still.others.files,
        undo_lengths: still.undo_lengths,
        torn_pages: work.torn.load(Ordering::Relaxed),
        damaged,
        elapsed: started.elapsed(),
        left_out: still.left_out,
        passed_over: still.passed_over,
        warnings: still.warnings.into_iter().chain(warning).collect(),
    })
}

/// The redo log of the copy, with this many bytes.
fn redo_log(size: u64) -> CopiedFile {
    CopiedFile {
        number: LOG,
        name: "ib_logfile0".into(),
        kind: FileKind::Redo,
        unit: PIECE_UNIT as u32,
        size,
        space: None,
        encrypted: false,
        elsewhere: None,
    }
}

/// When the log of DDL was last made, if there is one.
type Trace = Option<(u64, i64, i64)>;

fn trace(datadir: &Path) -> Trace {
    let stat = fs::metadata(datadir.join(LOG_OF_DDL)).ok()?;
    Some((stat.ino(), stat.ctime(), stat.ctime_nsec()))
}

/// The server leaves a trace in its data directory when a backup begins. If the trace does not appear, the directory
/// belongs to another server.
fn demand_its_trace(before: Trace, datadir: &Path) -> Result<()> {
    let now = trace(datadir);
    if now.is_some() && now != before {
        return Ok(());
    }
    Err(another_server(
        datadir.display().to_string(),
        format!(
            "the connected server has just created `{LOG_OF_DDL}` in its data directory, but not in this directory"
        ),
    ))
}

/// A log ahead of the server's own LSN belongs to another server: a copy of the directory, or another host.
fn demand_same_server(tail: &Tail, places: &Places, server: ServerLsn) -> Result<()> {
    let checkpoint = tail.checkpoint().lsn;
    if checkpoint <= server.current {
        // If it is behind by more than the length of the log, the log was overwritten since it was opened.
        return tail.prove(server);
    }
    Err(another_server(
        places.redo_log.display().to_string(),
        format!(
            "this is not the redo log of the connected server: the log's checkpoint is {checkpoint}, and the server is \
             at LSN {}",
            server.current
        ),
    ))
}

fn another_server(place: String, why: String) -> Error {
    let hint = "run the backup on the server's own host; if the data directory has another path there than for the \
                server (a container), add datadir=PATH to the URL";
    Error::refused(place, why, hint)
}

/// The log's thread. If the copy ends early, it also ends a statement of the other connection that waits for a lock.
fn follow_to_the_end(
    tail: Tail,
    monitor: &mut dyn Statements,
    connection: u64,
    told: Receiver<u64>,
    halt: &Halt,
    emit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let result = redo_follower::follow(tail, monitor, &told, halt, emit);
    if let Err(error) = result {
        halt.stop(error);
        // The connection may be idle or lost: then there is nothing to end.
        let _ = monitor.execute(&format!("KILL QUERY {connection}"));
        return Err(Error::Halted);
    }
    result
}

/// The state of the copy while the server was blocked.
struct Still {
    files: Vec<CopiedFile>,
    kept: Vec<Kept>,
    position: BinlogPosition,
    blocked: Blocked,
    tablespaces_while_blocked: u64,
    others: Round,
    undo_lengths: BTreeMap<u32, u64>,
    short: Vec<Short>,
    unfinished: Unfinished,
    left_out: Vec<LeftOut>,
    passed_over: Vec<String>,
    warnings: Vec<String>,
}

/// Copies everything but the redo log.
struct Copier<'a> {
    places: &'a Places,
    options: &'a Options,
    work: &'a Work,
    lives: Arc<Mutex<Lives>>,
}

impl Copier<'_> {
    /// All stages; tells `target` the LSN at which the redo log has to end.
    fn copy(&self, stages: Stages, target: &mut dyn FnMut(u64)) -> Result<Still> {
        let stages = RefCell::new(stages);
        let mut others = OtherFiles::new(self.work, !self.places.myisam_use_mmap);
        let mut tablespaces = Tablespaces::new(self.work, self.options.threads, Arc::clone(&self.lives));
        let open = imported::open_numbers(stages.borrow_mut().server());
        let listing = list(self.places)?;
        missing::demand_files_early(self.places, stages.borrow_mut().server())?;
        tablespaces.look_at_system(&listing.tablespaces)?;
        let check = || stages.borrow_mut().check().and_then(|()| self.demand_recoverable_early());
        tablespaces.copy_first(listing.tablespaces, open, &check)?;
        self.stop_at(&self.work.damaged())?;
        others.copy_settled(&listing.others, &check)?;
        // Look it up now, and not while DDL waits.
        let mut engines = TableEngines::default();
        engines.look(&listing.others)?;
        for _ in 0..CATCH_UP_ROUNDS {
            if tablespaces.reconcile(list(self.places)?.tablespaces, Moment::DdlGoesOn, &check)? == 0 {
                break;
            }
        }
        self.demand_recoverable_early()?;
        let stages = stages.into_inner();
        self.hold_still(stages, tablespaces, others, engines, target)
    }

    /// The stages that others notice: as little as possible, and in the shortest way.
    fn hold_still(
        &self,
        mut stages: Stages,
        mut tablespaces: Tablespaces,
        mut others: OtherFiles,
        mut engines: TableEngines,
        target: &mut dyn FnMut(u64),
    ) -> Result<Still> {
        let halt = &self.options.halt;
        for stage in [Stage::Flush, Stage::BlockDdl] {
            halt.check()?;
            stages.enter(stage)?;
        }
        let listing = list(self.places)?;
        let warnings = missing::demand_files(&listing, stages.server())?;
        // No session can create or drop a table now.
        let left_out = engines.look(&listing.others)?;
        // The lock is not asked after here: every statement that follows would fail without it.
        let tablespaces_while_blocked = tablespaces.reconcile(listing.tablespaces, Moment::DdlBlocked, &|| Ok(()))?;
        self.stop_at(&self.work.damaged())?;
        // No ALTER TABLE can end before the redo log does.
        let nothing = || Unfinished::In(HashSet::new());
        let unfinished = if self.work.is_suspecting() { Unfinished::ask(stages.server()) } else { nothing() };
        let early = others.copy_changed(&listing.others, Settles::WithoutDdl)?;
        halt.check()?;
        stages.enter(Stage::BlockCommit)?;
        // Aria's log is flushed with InnoDB's; after this statement both have everything that was committed.
        stages.server().execute("FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS")?;
        // Everything below is final on disk: the rest of the log can be read while the server continues. The log's
        // thread has to know this LSN before that, or it might read later bytes too.
        target(server_lsn(stages.server())?.flushed);
        let undo_lengths = tablespaces.undo_lengths()?;
        let late = others.copy_changed(&list_late(self.places)?, Settles::WithoutCommits)?;
        let position = BinlogPosition::ask(stages.server())?;
        let blocked = stages.end()?;
        let (short, kept) = (tablespaces.short(), tablespaces.kept());
        let files = tablespaces.into_copied().chain(others.into_copied()).collect();
        let others = Round { files: early.files + late.files, bytes: early.bytes + late.bytes };
        Ok(Still {
            files,
            kept,
            position,
            blocked,
            tablespaces_while_blocked,
            others,
            undo_lengths,
            short,
            unfinished,
            left_out,
            passed_over: listing.passed_over,
            warnings,
        })
    }

    fn demand_recoverable_early(&self) -> Result<()> {
        imported::demand_recoverable_early(&self.lives, &self.places.datadir)
    }

    /// A page that stays damaged ends the copy, unless the user wants to continue after errors.
    fn stop_at(&self, damaged: &[DamagedPage]) -> Result<()> {
        match damage::refuse(damaged) {
            Some(refusal) if !self.options.continue_after_error => Err(refusal),
            _ => Ok(()),
        }
    }
}
