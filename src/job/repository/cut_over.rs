//! `migrate SOURCE --repo --cut-over`: the last log sets of the source go into the target, which then takes its place.

use std::time::{Duration, Instant};

use fullbore_core::conduct::Conduct;
use fullbore_core::halt::Halt;
use fullbore_core::units::show_bytes;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{Compared, Flow, Loaded, Migration, MigrationPlan, RefreshEngine};

use super::backup::Wanted;
use super::databases::{meant, to_choose_from};
use super::file_target::{self, FileCutOver};
use super::{Setting, refresh};
use crate::job::migrate::{self, Comparison, Event, foreseen};
use crate::job::{backup, restore};
use crate::report::{ForeseenReport, MigrationReport, Report};

/// What the user asked for.
pub struct Request {
    /// Source and target.
    pub migration: migrate::Request,
    /// The log backup of the source.
    pub log: backup::Request,
    /// The way of the sets into the target.
    pub sets: restore::Request,
}

/// Cuts over; fills `report`, also when it fails.
///
/// # Errors
/// A server refuses, or both differ in the end. The source is writable as before then.
pub fn run(
    request: &Request,
    database: Option<&str>,
    setting: Setting<'_>,
    conduct: &Conduct,
    told: &dyn Fn(Event),
    report: &mut Report,
) -> Result<()> {
    let (source, halt) = (&request.migration.source, conduct.halt());
    let way = match file_target::is_file(&request.sets.into) {
        true => Way::File(FileCutOver::new(request, &halt, conduct)?),
        false => Way::Server(server(request)?),
    };
    let name = name_of(request, database, setting, conduct, report)?;
    report.engine = source.engine().map(|engine| engine.name().to_owned());
    report.database = Some(source.shown().to_owned());
    report.into = Some(request.migration.target.shown().to_owned());
    conduct.until_signalled(&halt, || {
        let into_file = matches!(way, Way::File(_));
        let mut migration: Box<dyn Migration + '_> = match way {
            Way::File(file) => Box::new(file),
            Way::Server(engine) => engine.cut_over(migrate::order(&request.migration, &halt), &name)?,
        };
        let plan = migration.plan();
        report.notes.extend(plan.notes.iter().cloned());
        report.warnings.extend(plan.warnings.iter().cloned());
        let found = MigrationReport {
            servers: plan.servers.to_vec(),
            tables: plan.tables,
            expected_bytes: plan.bytes,
            ..MigrationReport::default()
        };
        let name = database.unwrap_or(&name);
        let mut run = Run { request, name, into_file, setting, conduct, report, found };
        let done = match request.migration.plan {
            true => run.foresee(&mut *migration, &plan, &halt),
            false => run.all(&mut *migration, told),
        };
        if done.is_err() {
            run.report.notes.extend(migration.give_up());
        }
        run.report.migration = Some(std::mem::take(&mut run.found));
        done
    })
}

/// How the target takes the place of its source.
enum Way<'a> {
    /// It gets its name.
    File(FileCutOver<'a>),
    /// It runs already.
    Server(&'static dyn RefreshEngine),
}

fn server(request: &Request) -> Result<&'static dyn RefreshEngine> {
    migrate::engine(&request.migration)?.out_of_sets().ok_or_else(|| {
        let why = "only MySQL and MariaDB have log sets that a running server takes";
        Error::usage(request.migration.source.shown(), why, "leave --repo out")
    })
}

/// The name of the source in the repository: its log sets get it too.
fn name_of(
    request: &Request,
    database: Option<&str>,
    setting: Setting<'_>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<String> {
    let repository = setting.open(conduct)?;
    let inventory = setting.inventory(&repository, conduct, &mut report.warnings)?;
    let own = request.migration.source.name();
    let wanted = meant(&repository, &inventory.sets, Some(database.unwrap_or(own)));
    let sets = to_choose_from(&inventory.sets, wanted.as_deref(), None, setting.name)?;
    let known = sets.first().map(|set| set.record.database.clone()).unwrap_or_default();
    if repository.named(own) != known && own != known {
        let why =
            format!("the repository has these sets as `{known}`, and log sets of this source would be of `{own}`");
        return Err(Error::usage(request.migration.source.shown(), why, "name the source with the URL of its backups"));
    }
    Ok(known)
}

struct Run<'a> {
    request: &'a Request,
    name: &'a str,
    into_file: bool,
    setting: Setting<'a>,
    conduct: &'a Conduct,
    report: &'a mut Report,
    found: MigrationReport,
}

/// A migration has no `--wait`: its source would be read-only meanwhile.
fn without_wait(error: Error) -> Error {
    match error {
        Error::Refused { thing, why, hint } => Error::Refused { thing, why, hint: hint.replace(", or add --wait", "") },
        other => other,
    }
}

impl Run<'_> {
    fn all(&mut self, migration: &mut dyn Migration, told: &dyn Fn(Event)) -> Result<()> {
        let standing = restore::standing(&self.request.sets)?;
        if let Some(standing) = &standing {
            let is_it = |own: &str| own == self.request.migration.source.name();
            file_target::demand_same(&self.request.sets.into, standing, is_it)?;
        } else if self.into_file {
            // The first run restores the full.
            self.apply()?;
        }
        migration.hold_log()?;
        self.come_near()?;
        let begun = Instant::now();
        let done = self.frozen(migration, told);
        self.found.downtime_s = Some(begun.elapsed().as_secs_f64());
        let ended = done?;
        self.report.take_in(ended.warnings, ended.notes);
        Ok(())
    }

    /// What it would do, and how long it may take. Nothing is changed.
    fn foresee(&mut self, migration: &mut dyn Migration, plan: &MigrationPlan, halt: &Halt) -> Result<()> {
        let (request, conduct, setting) = (self.request, self.conduct, self.setting);
        let begun = Instant::now();
        let (mut log, mut sets) = (Report::default(), Report::default());
        super::backup::run(&request.log, self.wanted()?, setting, None, conduct, &mut log)?;
        refresh::run(&request.sets, Some(self.name), false, setting, conduct, &mut sets)?;
        // The repository is asked for the same while the source has no writers.
        let asking = begun.elapsed().as_secs_f64();
        let pool = migrate::pool(&request.migration)?;
        let seen = migration.foresee(&Flow { pool: &pool, progress: &conduct.progress, halt }, foreseen::LOOK)?;
        let times = foreseen::foreseen(plan, &seen, &request.migration, true);
        let downtime_s = times.downtime_s.map(|seconds| seconds + asking);
        self.found.foreseen = Some(ForeseenReport { full_s: [0.0; 2], downtime_s, ..times });
        self.found.behind_bytes = log.stored_bytes;
        self.report.notes.push(match log.planned {
            Some(_) => {
                format!("a log set with about {} is made and applied before the last one", show_bytes(log.stored_bytes))
            }
            None => "nothing was committed since the newest set".to_owned(),
        });
        (self.report.sets, self.report.stored_bytes) = (sets.sets, sets.stored_bytes);
        self.report.warnings.extend(log.warnings.into_iter().chain(sets.warnings));
        self.report.notes.extend(sets.notes);
        self.report.status = "planned".into();
        Ok(())
    }

    /// A newer full parts the newest chain from a file.
    fn wanted(&self) -> Result<Wanted> {
        Ok(restore::last_set(&self.request.sets.into)?.map_or(Wanted::Log, Wanted::LogBehind))
    }

    /// Most of the log comes while applications write, in rounds: a round has the commits of the round before. It ends when a round takes
    /// no longer than `--max-lag`, or hardly less than the round before.
    fn come_near(&mut self) -> Result<()> {
        let wanted = self.request.migration.max_lag.unwrap_or(migrate::MAX_LAG);
        let mut before: Option<Duration> = None;
        loop {
            let since = Instant::now();
            self.catch_up()?;
            let took = since.elapsed();
            if took <= wanted {
                return Ok(());
            }
            if before.is_some_and(|before| took > before.mul_f64(0.8)) {
                let took = took.as_secs_f64();
                let note = format!("the last log set before the cut-over took {took:.1} s, more than --max-lag");
                self.report.notes.push(note);
                return Ok(());
            }
            before = Some(took);
        }
    }

    /// A log backup, and its set into the target.
    fn catch_up(&mut self) -> Result<()> {
        let (request, conduct, setting) = (self.request, self.conduct, self.setting);
        let wanted = self.wanted()?;
        let backup = |said: &mut Report| super::backup::run(&request.log, wanted, setting, None, conduct, said);
        self.heard(backup).map_err(without_wait)?;
        self.apply()
    }

    /// The sets that the target does not have.
    fn apply(&mut self) -> Result<()> {
        let (request, name, conduct, setting) = (self.request, self.name, self.conduct, self.setting);
        self.heard(|said| refresh::run(&request.sets, Some(name), false, setting, conduct, said))
    }

    /// Keeps the warnings and the counts of a part.
    fn heard(&mut self, part: impl FnOnce(&mut Report) -> Result<()>) -> Result<()> {
        let mut said = Report::default();
        let done = part(&mut said);
        let counted = said.migration.unwrap_or_default();
        self.found.transactions += counted.transactions;
        self.found.applied_bytes += counted.applied_bytes;
        self.report.take_in(said.warnings, Vec::new());
        done
    }

    /// Everything that happens while nobody writes to the source.
    fn frozen(&mut self, migration: &mut dyn Migration, told: &dyn Fn(Event)) -> Result<Loaded> {
        migration.freeze()?;
        told(Event::Frozen);
        let since = Instant::now();
        self.catch_up()?;
        self.found.last_bytes_s = Some(since.elapsed().as_secs_f64());
        if self.request.migration.compare != Comparison::None {
            let since = Instant::now();
            let Compared { tables, rows } = migration.compare(self.request.migration.compare == Comparison::All)?;
            self.found.compared = Some((tables, rows));
            self.found.compare_s = Some(since.elapsed().as_secs_f64());
        }
        self.conduct.check()?;
        let ended = migration.end()?;
        self.found.cut_over = true;
        Ok(ended)
    }
}
