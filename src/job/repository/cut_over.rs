//! `migrate SOURCE --repo --cut-over`: the last log sets of the source go into the target, which then takes its place.

use std::time::Instant;

use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{Compared, Migration};

use super::backup::Wanted;
use super::databases::{meant, to_choose_from};
use super::{Setting, refresh};
use crate::job::migrate::{self, Comparison, Event};
use crate::job::{backup, restore};
use crate::report::{MigrationReport, Report};

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
    let source = &request.migration.source;
    let engine = migrate::engine(&request.migration)?.out_of_sets().ok_or_else(|| {
        let why = "only MySQL and MariaDB have log sets that a running server takes";
        Error::usage(source.shown(), why, "leave --repo out")
    })?;
    let name = name_of(request, database, setting, conduct, report)?;
    report.engine = source.engine().map(|engine| engine.name().to_owned());
    report.database = Some(source.shown().to_owned());
    report.into = Some(request.migration.target.shown().to_owned());
    let halt = conduct.halt();
    conduct.until_signalled(&halt, || {
        let mut migration = engine.cut_over(migrate::order(&request.migration, &halt), &name)?;
        let plan = migration.plan();
        report.notes.extend(plan.notes);
        let mut run = Run {
            request,
            name: &name,
            setting,
            conduct,
            report,
            found: MigrationReport { servers: plan.servers.to_vec(), ..MigrationReport::default() },
        };
        let done = run.all(&mut *migration, told);
        if done.is_err() {
            run.report.notes.extend(migration.give_up());
        }
        run.report.migration = Some(std::mem::take(&mut run.found));
        done
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
    setting: Setting<'a>,
    conduct: &'a Conduct,
    report: &'a mut Report,
    found: MigrationReport,
}

impl Run<'_> {
    fn all(&mut self, migration: &mut dyn Migration, told: &dyn Fn(Event)) -> Result<()> {
        // Most of the log comes while applications write.
        self.catch_up()?;
        let begun = Instant::now();
        let done = self.frozen(migration, told);
        self.found.downtime_s = Some(begun.elapsed().as_secs_f64());
        self.report.notes.extend(done?);
        Ok(())
    }

    /// A log backup, and its set into the target.
    fn catch_up(&mut self) -> Result<()> {
        let (conduct, setting) = (self.conduct, self.setting);
        let mut said = [Report::default(), Report::default()];
        let [stored, applied] = &mut said;
        let done = super::backup::run(&self.request.log, Wanted::Log, setting, None, conduct, stored)
            .and_then(|()| refresh::run(&self.request.sets, Some(self.name), false, setting, conduct, applied));
        for warning in said.into_iter().flat_map(|said| said.warnings) {
            if !self.report.warnings.contains(&warning) {
                self.report.warnings.push(warning);
            }
        }
        done
    }

    /// Everything that happens while nobody writes to the source.
    fn frozen(&mut self, migration: &mut dyn Migration, told: &dyn Fn(Event)) -> Result<Vec<String>> {
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
        let notes = migration.end()?;
        self.found.cut_over = true;
        Ok(notes)
    }
}
