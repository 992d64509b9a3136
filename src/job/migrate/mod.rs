//! `migrate`: a running server into another running server. A full straight through, then the log of the source, then the
//! cut-over. A source without a log that can be followed goes into a server at once.

pub(in crate::job) mod foreseen;
mod pace;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullbore_core::conduct::Conduct;
use fullbore_core::halt::Halt;
use fullbore_core::pool::Pool;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{
    Compared, DatabaseUrl, Engine, Flow, Loaded, Migration, MigrationEngine, MigrationOrder, MigrationPlan, Moved,
    Standing,
};
use fullbore_engines::{GivenOptions, Options};

use crate::report::{DefinitionReport, MigrationReport, PoolReport, Report};
use pace::Pace;

/// How far the target may be behind at the beginning of the cut-over, unless the user says another time.
pub const MAX_LAG: Duration = Duration::from_secs(1);
/// The name of the command in reports.
pub const COMMAND: &str = "migrate";
/// Connections to each server, unless the user says another number.
const READERS: usize = 4;
/// Buffers for each connection.
const BUFFERS: usize = 4;
/// Bytes in a buffer.
const BUFFER: usize = 1 << 20;
/// The time between two looks at a log that has nothing new.
const LOOK: Duration = Duration::from_millis(50);

/// What the user asked for.
#[derive(Clone)]
pub struct Request {
    /// The source.
    pub source: DatabaseUrl,
    /// Its options.
    pub source_options: GivenOptions,
    /// The target.
    pub target: DatabaseUrl,
    /// Its options.
    pub target_options: GivenOptions,
    /// Databases of the source; empty: all of them.
    pub databases: Vec<String>,
    /// `--replace`
    pub replace: bool,
    /// `--resume`
    pub resume: bool,
    /// Not `--no-follow`.
    pub follow: bool,
    /// `--cut-over`
    pub cut_over: bool,
    /// What is compared at the cut-over.
    pub compare: Comparison,
    /// `--abort`: an interrupted migration is ended.
    pub abort: bool,
    /// `--max-lag`; without it, [`MAX_LAG`].
    pub max_lag: Option<Duration>,
    /// `--for`: following ends by itself after this time.
    pub lasting: Option<Duration>,
    /// `--lock-timeout`
    pub lock_timeout: Duration,
    /// `--readers`
    pub readers: Option<usize>,
    /// `--plan`
    pub plan: bool,
    /// `--method physical`: the full is a copy of the source's files.
    pub physical: bool,
}

/// What is compared at the cut-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Nothing.
    None,
    /// All rows.
    Rows,
    /// All rows, and the definitions of all objects.
    All,
}

/// What happened, for a display.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The full begins: tables, and bytes on disk.
    Begins(MigrationPlan),
    /// What the user should know at once.
    Told(String),
    /// The full is in the target.
    FullDone(String),
    /// How far the target is.
    Standing(Standing),
    /// The target is as near as `--max-lag` asks, for the first time.
    KeepsUp(Standing),
    /// From now on the target falls behind.
    Behind(Standing),
    /// The source is read-only.
    Frozen,
}

/// Migrates; fills `report`, also when it fails.
///
/// # Errors
/// A server refuses or is lost, or both differ in the end. The source is writable as before then.
pub fn run(request: &Request, conduct: &Conduct, told: &dyn Fn(Event), report: &mut Report) -> Result<()> {
    report.engine = request.source.engine().map(|engine| engine.name().to_owned());
    report.database = Some(request.source.shown().to_owned());
    report.into = Some(request.target.shown().to_owned());
    let engine = engine(request)?;
    let follows = request.follow && engine.follows();
    if !engine.follows() {
        refuse_flags_of_logs(request)?;
    }
    let halt = conduct.halt();
    let begun = Instant::now();
    let done = conduct.until_signalled(&halt, || {
        let order = order(request, &halt);
        if request.abort {
            report.notes.extend(engine.abort(order)?);
            return Ok(());
        }
        let mut migration = report.timed("connecting and the snapshot", |_| engine.begin(order))?;
        let found = MigrationReport::default();
        let mut run = Run { request, follows, conduct, halt: &halt, told, report, found };
        let done = run.all(&mut *migration);
        if done.is_err() {
            run.report.notes.extend(migration.give_up());
        }
        run.report.migration = Some(std::mem::take(&mut run.found));
        done
    });
    report.set_speed(begun.elapsed().as_secs_f64());
    done
}

/// How the source is migrated into the target.
pub(in crate::job) fn engine(request: &Request) -> Result<&'static dyn MigrationEngine> {
    let target = request.target.engine();
    let from = |engine: &dyn Engine| target.and_then(|target| target.migration_from(engine.name()));
    if let Some(found) = request.source.engine().and_then(from) {
        return Ok(found);
    }
    // A server that takes its own kind is one that can be a target.
    let (flag, url) = match target.is_some_and(|target| target.migration_from(target.name()).is_some()) {
        true => ("", &request.source),
        false => ("--into ", &request.target),
    };
    let why =
        "a migration is from a MySQL or MariaDB server, or from an SQLite database, into a MySQL or MariaDB server";
    let hint = "write mysql://USER@HOST or mariadb://USER@HOST; the source may be sqlite:PATH. Into an SQLite database: with \
                --repo, out of its backups";
    Err(Error::usage(format!("{flag}{}", url.shown()), why, hint))
}

/// A source without a log has nothing that these flags are about.
fn refuse_flags_of_logs(request: &Request) -> Result<()> {
    let given = [
        ("--no-follow", !request.follow),
        ("--max-lag", request.max_lag.is_some()),
        ("--for", request.lasting.is_some()),
        ("--database", !request.databases.is_empty()),
        ("--method physical", request.physical),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some(("--database", _)) => {
            let why = "the source is one database";
            Err(Error::usage("--database", why, "name the database of the target in its URL: --into mysql://…/NAME"))
        }
        Some((flag @ "--method physical", _)) => {
            let why = "only a MySQL server copies the files of another one";
            Err(Error::usage(flag, why, "leave it out"))
        }
        Some((flag, _)) => {
            let why = format!("{} has no log that could be followed", request.source.shown());
            Err(Error::usage(flag, why, "leave it out: the migration ends after the rows"))
        }
    }
}

pub(in crate::job) fn order(request: &Request, halt: &Halt) -> MigrationOrder {
    let options = |given: &GivenOptions| Options {
        lock_timeout: request.lock_timeout,
        halt: Some(halt.clone()),
        readers: request.readers.unwrap_or(READERS).max(1),
        given: given.clone(),
        ..Options::default()
    };
    MigrationOrder {
        source: request.source.text().to_owned(),
        source_options: options(&request.source_options),
        target: request.target.text().to_owned(),
        target_options: options(&request.target_options),
        databases: request.databases.clone(),
        replace: request.replace,
        resume: request.resume,
        follow: request.follow,
        cut_over: request.cut_over,
        compares_definitions: request.compare == Comparison::All,
        dry_run: request.plan,
        physical: request.physical,
    }
}

/// All data memory of the full, or of a look at the source.
pub(in crate::job) fn pool(request: &Request) -> Result<Arc<Pool>> {
    Pool::new(BUFFERS * request.readers.unwrap_or(READERS).max(1), BUFFER)
}

/// A migration that runs.
struct Run<'a> {
    request: &'a Request,
    /// The log of the source is followed after the full.
    follows: bool,
    conduct: &'a Conduct,
    halt: &'a Halt,
    told: &'a dyn Fn(Event),
    report: &'a mut Report,
    found: MigrationReport,
}

impl Run<'_> {
    fn all(&mut self, migration: &mut dyn Migration) -> Result<()> {
        let plan = migration.plan();
        self.report.warnings.extend(plan.warnings.iter().cloned());
        self.report.notes.extend(plan.notes.iter().cloned());
        self.found.servers = plan.servers.to_vec();
        self.found.method = if self.request.physical { "physical" } else { "logical" };
        (self.found.tables, self.found.expected_bytes) = (plan.tables, plan.bytes);
        self.found.definitions = plan.definitions.iter().map(DefinitionReport::of).collect();
        if self.request.plan {
            let pool = pool(self.request)?;
            let flow = Flow { pool: &pool, progress: &self.conduct.progress, halt: self.halt };
            let seen = migration.foresee(&flow, foreseen::LOOK)?;
            self.found.foreseen = Some(foreseen::foreseen(&plan, &seen, self.request, self.follows));
            self.report.status = "planned".into();
            return Ok(());
        }
        (self.told)(Event::Begins(plan.clone()));
        if let Some(since) = plan.frozen_since {
            (self.told)(Event::Frozen);
            self.full(migration, &plan)?;
            let ended = self.compared_and_ended(migration);
            self.found.downtime_s = Some(since.elapsed().as_secs_f64());
            let ended = ended.map_err(|error| self.conduct.why_halted(error))?;
            self.report.take_in(ended.warnings, ended.notes);
            self.found.cut_over = true;
            return Ok(());
        }
        if !plan.is_full_done {
            self.full(migration, &plan)?;
        }
        if !self.follows {
            // Rows of a source that is written to cannot be read again as they were: only the engine knows what it read.
            let ended = if self.request.follow { self.compared_and_ended(migration)? } else { migration.end()? };
            self.report.take_in(ended.warnings, ended.notes);
            return Ok(());
        }
        let ended = self.follow(migration)?;
        match (self.request.cut_over, ended) {
            (true, Ended::Near) => self.cut_over(migration),
            (_, ended) => {
                self.stays(ended);
                self.report.notes.extend(migration.give_up());
                Ok(())
            }
        }
    }

    fn full(&mut self, migration: &mut dyn Migration, plan: &MigrationPlan) -> Result<()> {
        let begun = Instant::now();
        let pool = pool(self.request)?;
        self.report.pool = PoolReport {
            buffer_count: pool.count() as u64,
            max_transfer_size: pool.size() as u64,
            bytes: (pool.count() * pool.size()) as u64,
            ..PoolReport::default()
        };
        self.conduct.progress.total.store(plan.bytes, Ordering::Relaxed);
        let tell = |text: &str| (self.told)(Event::Told(text.to_owned()));
        let flow = Flow { pool: &pool, progress: &self.conduct.progress, halt: self.halt };
        let Moved { loaded, bytes, stages, writers_blocked } = migration.full(&flow, &tell)?;
        self.report.add_stages(&stages);
        self.report.source_bytes = bytes;
        self.report.writers_blocked_s = writers_blocked.as_secs_f64();
        (self.found.tables, self.found.rows) = (loaded.tables, loaded.rows);
        self.found.full_s = begun.elapsed().as_secs_f64();
        let summary = loaded.notes.last().cloned().unwrap_or_default();
        self.report.take_in(loaded.warnings, loaded.notes);
        (self.told)(Event::FullDone(if self.follows { format!("{summary}; following the log") } else { summary }));
        Ok(())
    }

    /// Applies the log, until the target is near enough for the cut-over, or until the user ends it.
    fn follow(&mut self, migration: &mut dyn Migration) -> Result<Ended> {
        let begun = Instant::now();
        let deadline = self.request.lasting.and_then(|lasting| begun.checked_add(lasting));
        let mut pace = Pace::new(self.request.max_lag.unwrap_or(MAX_LAG));
        loop {
            if self.conduct.check().is_err() {
                return Ok(Ended::Asked);
            }
            let step = Instant::now();
            let standing = match migration.follow() {
                // The signal came within the step: what it had not committed comes again.
                Err(Error::Halted) if self.conduct.check().is_err() => return Ok(Ended::Asked),
                standing => standing?,
            };
            self.book(&standing);
            self.found.follow_s = begun.elapsed().as_secs_f64();
            (self.told)(Event::Standing(standing));
            let news = pace.look(Instant::now(), &standing, step.elapsed());
            self.found.keeps_up = pace.keeps_up();
            if let Some(event) = news {
                (self.told)(event);
            }
            if self.request.cut_over && pace.is_near() {
                return Ok(Ended::Near);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Ended::Deadline);
            }
            if standing.at_end {
                std::thread::sleep(LOOK);
            }
        }
    }

    fn book(&mut self, standing: &Standing) {
        self.found.lag_s = standing.lag.map(|lag| lag.as_secs_f64());
        self.found.behind_bytes = standing.behind_bytes;
        self.found.applied_bytes = standing.applied_bytes;
        self.found.transactions = standing.transactions;
    }

    fn cut_over(&mut self, migration: &mut dyn Migration) -> Result<()> {
        let begun = Instant::now();
        let done = self.frozen(migration);
        let down = begun.elapsed().as_secs_f64();
        self.found.downtime_s = Some(down);
        let ended = done.map_err(|error| self.conduct.why_halted(error))?;
        self.report.take_in(ended.warnings, ended.notes);
        Ok(())
    }

    /// Everything that happens while nobody writes to the source.
    fn frozen(&mut self, migration: &mut dyn Migration) -> Result<Loaded> {
        migration.freeze()?;
        (self.told)(Event::Frozen);
        let since = Instant::now();
        // The first end may be one that the source has sent before it was read-only: the log is asked for once more.
        let mut ends = 0;
        while ends < 2 {
            self.conduct.check()?;
            let standing = migration.follow()?;
            self.book(&standing);
            ends += u32::from(standing.at_end);
        }
        self.found.last_bytes_s = Some(since.elapsed().as_secs_f64());
        let ended = self.compared_and_ended(migration)?;
        self.found.cut_over = true;
        Ok(ended)
    }

    /// Compares both sides, and ends the migration.
    fn compared_and_ended(&mut self, migration: &mut dyn Migration) -> Result<Loaded> {
        if self.request.compare != Comparison::None {
            let since = Instant::now();
            let Compared { tables, rows } = migration.compare(self.request.compare == Comparison::All)?;
            self.found.compared = Some((tables, rows));
            self.found.compare_s = Some(since.elapsed().as_secs_f64());
        }
        self.conduct.check()?;
        migration.end()
    }

    /// Following has ended, and the target is not the source yet.
    fn stays(&mut self, ended: Ended) {
        let how = match ended {
            Ended::Asked => "following was ended",
            Ended::Deadline | Ended::Near => "following has ended (--for)",
        };
        let pace = if self.found.keeps_up { "the target keeps up" } else { "the target does not keep up" };
        let note = format!("{how}; {pace}. The same command with --resume --cut-over makes it the source's successor");
        self.report.notes.push(note);
    }
}

/// Why following ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The target is near enough for the cut-over.
    Near,
    /// A signal, or `fullbore cancel`.
    Asked,
    /// `--for`.
    Deadline,
}
