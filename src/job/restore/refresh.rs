//! Sets of a repository into a running server that remembers how far it is: `migrate --repo`.

use std::sync::atomic::Ordering;

use fullbore_core::cipher::SecretKey;
use fullbore_core::conduct::Conduct;
use fullbore_core::io::{PrivateDirectory, scratch_directory};
use fullbore_core::media::{Manifest, total};
use fullbore_core::units::{counted, show_bytes};
use fullbore_core::{Error, Result};
use fullbore_engines::Options;
use fullbore_engines::engine::{
    LoadOrder, LogicalEngine, MigrationEngine, RefreshBase, RefreshEngine, RefreshOrder, Refreshed, SetEnd,
};
use fullbore_repository::chain::steps::RestoredState;
use fullbore_repository::{chain, discovery};
use uuid::Uuid;

use super::super::reading::Media;
use super::replay::Prepared;
use super::{Into, Request, log, plan_line};
use crate::report::Report;

/// What a full that was interrupted leaves.
pub(super) const HALF: &str = "the full is not complete in the target: the same command begins it again";

/// Which sets a server gets. For a file, the restore in steps knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refresh {
    /// The database, as the repository names it.
    pub database: String,
    /// An earlier run has begun to load a full.
    pub begun: bool,
}

/// The engine that brings log sets into servers.
pub(super) fn engine_of(name: &str) -> Result<&'static dyn RefreshEngine> {
    let engine = fullbore_engines::named(name).and_then(|engine| engine.migration_from(name));
    engine.and_then(MigrationEngine::out_of_sets).ok_or_else(|| {
        let why = format!("only sets of MySQL and MariaDB are applied to a running server, and these are of `{name}`");
        Error::usage("--repo", why, "restore them: fullbore restore --repo NAME --into …")
    })
}

/// Asks the target about the sets of `database`, which `engine` has made.
fn asked<T>(
    request: &Request,
    (database, engine): (&str, &str),
    conduct: &Conduct,
    ask: impl FnOnce(&dyn RefreshEngine, &RefreshOrder<'_>) -> Result<T>,
) -> Result<T> {
    let Into::Server { url, .. } = &request.into else { return Err(of_no_server(&request.into)) };
    let halt = conduct.halt();
    let options = Options { halt: Some(halt.clone()), given: request.target_options.clone(), ..Options::default() };
    let order = RefreshOrder { url, options: &options, database, engine };
    conduct.until_signalled(&halt, || ask(engine_of(engine)?, &order))
}

fn of_no_server(into: &Into) -> Error {
    let why = "a migration goes into a running MySQL or MariaDB server";
    Error::usage(format!("--into {into}"), why, "write mysql://USER@HOST or mariadb://USER@HOST")
}

/// How far the target is.
///
/// # Errors
/// It cannot be reached, or holds another migration.
pub fn refreshed(request: &Request, of: (&str, &str), conduct: &Conduct) -> Result<Refreshed> {
    asked(request, of, conduct, |engine, order| engine.refreshed(order))
}

/// `--abort`: the target becomes an ordinary server.
///
/// # Errors
/// It cannot be reached, or holds no such migration.
pub fn end(request: &Request, of: (&str, &str), conduct: &Conduct, report: &mut Report) -> Result<()> {
    report.notes.extend(asked(request, of, conduct, |engine, order| engine.end_refresh(order))?);
    Ok(())
}

/// The state of such a target, for the choice of the next sets.
///
/// # Errors
/// The engine has no log backups.
pub fn standing((end, encrypted): (&SetEnd, bool), engine: &str, database: Option<String>) -> Result<RestoredState> {
    let until = end.time.unwrap_or(0);
    let id = Uuid::nil();
    Ok(RestoredState {
        full: id,
        differential: None,
        last: id,
        title: "the place that it remembers".into(),
        logs: true,
        database,
        started_at: until,
        log_range: log::engine_of(engine)?.range_up_to(end, until),
        encrypted,
    })
}

impl Refresh {
    /// Before the rows of a full are loaded. Nothing is changed yet.
    ///
    /// # Errors
    /// The target cannot take the sets, or holds something already.
    pub(super) fn behind_rows(
        &self,
        logical: &'static dyn LogicalEngine,
        (url, options): (&str, &Options),
        (found, manifest, position): (&discovery::Found, &Manifest, &serde_json::Value),
        order: &mut LoadOrder,
    ) -> Result<Prepared<'static>> {
        let base = RefreshBase {
            engine_version: &manifest.engine_version,
            position,
            catalogs: &order.catalogs,
            finished: found.set.log_range.as_ref().map_or(found.set.started_at, |range| range.at),
            encrypted: found.set.encrypted,
            replace: order.replace,
        };
        let to = RefreshOrder { url, options, database: &self.database, engine: &manifest.engine };
        let prepared = Prepared::refreshing(&to, Some(&base), log::end_of(manifest)?)?;
        order.leave_events = true;
        order.replace |= self.begun;
        if !order.replace {
            // Refuses a target that holds something, before the target is changed.
            drop(logical.load(url, LoadOrder { dry_run: true, ..order.clone() }, options)?);
        }
        Ok(prepared)
    }
}

/// Applies log sets to a target that earlier runs have filled up to `end`.
///
/// # Errors
/// A set is damaged or missing, or the target refuses. It has everything before that.
pub fn run(
    request: &Request,
    (end, encrypted): (&SetEnd, bool),
    (database, engine): (&str, &str),
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let (key, Media::DiscoveredSets(mut discovered)) = request.reading.begin(conduct)? else {
        return Err(Error::Halted);
    };
    discovered.learn_log_ranges(key.as_ref(), true)?;
    let known = discovered.known();
    let standing = standing((end, encrypted), engine, known.first().and_then(|set| set.database.clone()))?;
    let sequence = chain::steps::go_on(&known, &standing, &request.reading.choice)?;
    report.warnings.extend(sequence.warnings);
    report.notes.extend(sequence.notes);
    let mut sets: Vec<_> = discovered.sets.into_iter().map(Some).collect();
    let logs: Vec<_> = sequence.sets.iter().filter_map(|&at| sets[at].take()).collect();
    if request.dry_run {
        logs.iter().for_each(|found| plan_line(found, report));
        tell_plan(report);
        return Ok(());
    }
    let replay =
        asked(request, (database, engine), conduct, |_, order| Prepared::refreshing(order, None, end.clone()))?;
    apply(replay, &logs, request, key.as_ref(), conduct, report)
}

/// What a plan says at its end.
pub fn tell_plan(report: &mut Report) {
    let (sets, bytes) = (counted(report.sets.len() as u64, "set"), show_bytes(report.stored_bytes));
    report.notes.push(format!("{sets} with {bytes} on media are to be applied"));
    report.status = "planned".into();
}

/// Applies log sets.
///
/// # Errors
/// As [`run`].
pub(super) fn apply(
    replay: Prepared<'_>,
    logs: &[discovery::Found],
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    if logs.is_empty() {
        return Ok(());
    }
    let bytes = total(logs.iter().filter_map(|found| found.database_bytes));
    conduct.progress.total.fetch_add(bytes, Ordering::Relaxed);
    let scratch = PrivateDirectory::new(&scratch_directory(), "logs")?;
    let (halt, before) = (conduct.halt(), report.source_bytes);
    let applied =
        conduct.until_signalled(&halt, || replay.run(scratch.path(), logs, request, key, conduct, &mut *report));
    let applied = applied.inspect_err(|_| {
        let note = "the target has everything before that, and knows the place: the same command continues there";
        report.notes.push(note.into());
    })?;
    count(applied.transactions, before, report);
    Ok(())
}

/// Counts what was applied of the log. Up to `before`, the bytes of the report are of other sets.
pub(super) fn count(transactions: u64, before: u64, report: &mut Report) {
    let counted = report.migration.get_or_insert_default();
    counted.transactions += transactions;
    counted.applied_bytes += report.source_bytes.saturating_sub(before);
}
