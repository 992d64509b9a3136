//! Backups and restores that a server runs itself, because it writes and reads its files: fullbore gives the order,
//! follows the run, ends it when it is asked to, and reports it.

mod estimate;

use std::sync::atomic::Ordering;

use fullbore_core::Result;
use fullbore_core::conduct::Conduct;
use fullbore_engines::engine::{
    BackupOrder, BackupServer, DatabaseUrl, RestoreOrder, RestoreStep, Seen, ServerOutcome, ServerSession,
};
use fullbore_engines::{GivenOptions, Options};
use fullbore_repository::Repository;

use super::repository::Setting;
use crate::report::{FamilyReport, PositionReport, Report, ServerReport};
pub use estimate::{ServerEstimate, estimate};

/// Progress in ten-thousandths, if the bytes of the whole are unknown.
const PARTS: u64 = 10_000;

/// A database on a server that runs its backups itself.
#[derive(Clone)]
pub struct Served {
    /// Its URL.
    pub source: DatabaseUrl,
    /// Its engine, as such a server.
    pub server: &'static dyn BackupServer,
    /// The options of the engine.
    pub options: GivenOptions,
}

/// Runs a backup, or with `dry_run` only plans it; fills `report`, also when it fails. With `task_in`, the run is a task
/// in this repository.
///
/// # Errors
/// The server refuses or cannot be reached, the run fails, or it is cancelled.
pub fn backup(
    served: &Served,
    order: &BackupOrder,
    dry_run: bool,
    task_in: Option<Setting<'_>>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    report.kind = Some(order.kind.to_string());
    served.begin(report);
    if dry_run {
        return plan(served, conduct, report, |session| session.plan_backup(order));
    }
    as_task("backup", served, task_in, conduct, report, |report| {
        run(served, conduct, report, |session, look| session.backup(order, look))
    })
}

/// Runs a restore, as [`backup`].
///
/// # Errors
/// As for [`backup`].
pub fn restore(
    served: &Served,
    order: &RestoreOrder,
    dry_run: bool,
    task_in: Option<Setting<'_>>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    report.into = Some(served.source.shown().to_owned());
    report.restoring = order.step == RestoreStep::NoRecovery;
    served.begin(report);
    if dry_run {
        return plan(served, conduct, report, |session| session.plan_restore(order));
    }
    as_task("restore", served, task_in, conduct, report, |report| {
        run(served, conduct, report, |session, look| session.restore(order, look))?;
        report.sets = report.backup_set_id.iter().cloned().collect();
        Ok(())
    })
}

impl Served {
    fn begin(&self, report: &mut Report) {
        report.database = Some(self.source.shown().to_owned());
        report.engine = self.source.engine().map(|engine| engine.name().to_owned());
        report.notes.push(format!("experimental: {}", self.server.caveat()));
    }
}

/// Does `work` as a task that others see and may cancel, if there is a repository for it.
fn as_task(
    verb: &str,
    served: &Served,
    task_in: Option<Setting<'_>>,
    conduct: &Conduct,
    report: &mut Report,
    work: impl FnOnce(&mut Report) -> Result<()>,
) -> Result<()> {
    let Some(setting) = task_in else { return work(report) };
    let repository: Repository = setting.open(conduct)?;
    let database = Some(served.source.name().to_owned());
    setting.as_task(&repository, verb, database, conduct, report, |_, report| work(report))
}

/// Connects, and does `work` until a signal comes.
fn connected<T>(
    served: &Served,
    conduct: &Conduct,
    work: impl FnOnce(&mut dyn ServerSession) -> Result<T>,
) -> Result<T> {
    let halt = conduct.halt();
    let options = Options { halt: Some(halt.clone()), given: served.options.clone(), ..Options::default() };
    conduct.until_signalled(&halt, || work(&mut *served.server.connect(served.source.text(), &options)?))
}

fn plan(
    served: &Served,
    conduct: &Conduct,
    report: &mut Report,
    work: impl FnOnce(&mut dyn ServerSession) -> Result<ServerOutcome>,
) -> Result<()> {
    let outcome = connected(served, conduct, work)?;
    fill(outcome, report);
    report.status = "planned".into();
    Ok(())
}

fn run(
    served: &Served,
    conduct: &Conduct,
    report: &mut Report,
    work: impl FnOnce(&mut dyn ServerSession, &mut dyn FnMut(&Seen) -> Result<()>) -> Result<ServerOutcome>,
) -> Result<()> {
    let begun = std::time::Instant::now();
    let mut look = |seen: &Seen| {
        let total = if seen.total_bytes == 0 { PARTS } else { seen.total_bytes };
        conduct.progress.total.store(total, Ordering::Relaxed);
        // A float has enough digits for a share of it.
        let done = (total as f64 * seen.percent / 100.0) as u64;
        conduct.progress.done.store(done.min(total), Ordering::Relaxed);
        conduct.check()
    };
    let outcome = connected(served, conduct, |session| work(session, &mut look))?;
    fill(outcome, report);
    report.set_speed(begun.elapsed().as_secs_f64());
    Ok(())
}

fn fill(outcome: ServerOutcome, report: &mut Report) {
    let ServerOutcome { set, files, statements, server, run, warnings, notes } = outcome;
    report.kind = set.kind.map(|kind| kind.to_string()).or_else(|| report.kind.take());
    (report.backup_set_id, report.media_set_id) = (set.backup_set_id, set.media_set_id);
    (report.source_bytes, report.allocated_bytes, report.stored_bytes) = (set.bytes, set.bytes, set.stored_bytes);
    // The server says the digest of no file, and often not its length.
    let family = |file: fullbore_engines::engine::ServerFile| FamilyReport {
        device: file.place,
        bytes: file.bytes.unwrap_or(0),
        blake3: String::new(),
    };
    report.families = files.into_iter().map(family).collect();
    if !set.first.is_null() || !set.last.is_null() {
        report.position = Some(PositionReport { first: set.first, checkpoint: set.checkpoint, last: set.last });
    }
    report.server = Some(ServerReport {
        server,
        run,
        statements,
        started_at: set.started_at,
        finished_at: set.finished_at,
        has_checksums: set.has_checksums,
    });
    report.warnings.extend(warnings);
    report.notes.extend(notes);
}
