//! `migrate --repo` into a database that is one file: a restore in steps, and the cut-over at its end.

use std::time::Duration;

use fullbore_core::conduct::Conduct;
use fullbore_core::halt::Halt;
use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};
use fullbore_engines::Options;
use fullbore_engines::engine::{
    Compared, FileEngine, Flow, Foreseen, Held, Loaded, Migration, MigrationPlan, Moved, Standing,
};
use fullbore_repository::Repository;
use fullbore_repository::chain::steps::{RestoredState, coming};
use fullbore_repository::inventory::StoredSet;

use super::databases::to_choose_from;
use super::refresh::LOST;
use super::restore::ChosenChain;
use super::{Setting, cut_over};
use crate::job::migrate::{self, Comparison};
use crate::job::restore::refresh::{self, Refresh};
use crate::job::restore::{self, Check, Into, Recovery, Request};
use crate::report::Report;

/// The note at the end of each run that is not the last.
const LATER: &str = "the same command applies the sets that come later; --cut-over ends it, with the source or without. No \
                     lease protects these sets: prune may remove them by the retention rules";
/// The note at the end of the last run, if the source was not named.
const ALONE: &str = "the source was not named: nothing was compared, and what it has committed since the last set is not in the \
                     target";

/// Brings the target up to the newest set. With [`Recovery::Now`], it becomes a database then.
///
/// # Errors
/// Those of a restore in steps, and a target that holds another database.
pub(super) fn refresh(
    request: &Request,
    database: Option<&str>,
    setting: Setting<'_>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let refresh = Refresh { database: String::new(), begun: false };
    let request = &Request { refresh: Some(refresh), ..request.clone() };
    super::restore::run(request, database, setting, conduct, report)?;
    match (request.dry_run, request.recovery) {
        (true, _) => refresh::tell_plan(report),
        (false, Recovery::Later) => report.notes.push(LATER.into()),
        (false, _) => report.notes.push(ALONE.into()),
    }
    Ok(())
}

/// The sets that a target does not have; none if no set came since.
///
/// # Errors
/// The target holds another database, or sets come only after a gap.
pub(super) fn next<'a>(
    request: &Request,
    standing: &RestoredState,
    database: Option<&str>,
    (repository, stored, name): (&Repository, &'a [StoredSet], &str),
    report: &mut Report,
) -> Result<ChosenChain<'a>> {
    let own = standing.database.as_deref().unwrap_or_default();
    let sets = to_choose_from(stored, database, None, name)
        .map_err(|error| error.noting(&format!("the target holds sets of `{own}`; --replace begins again")))?;
    demand_same(&request.into, standing, |own| sets.iter().any(|set| set.record.database == own))?;
    let all = sets.clone();
    let next = ChosenChain::next(
        sets,
        standing,
        |found, standing, _| coming(found, standing),
        &request.reading,
        repository,
        report,
    );
    let next = next.map_err(|error| error.noting(LOST))?;
    if next.sets.is_empty() {
        tell_nothing(standing, &all, report);
    }
    Ok(next)
}

/// Refuses a target that holds another database.
///
/// # Errors
/// `is_it` is false for the name of its database.
pub(super) fn demand_same(into: &Into, standing: &RestoredState, is_it: impl Fn(&str) -> bool) -> Result<()> {
    let Some(other) = standing.database.as_deref().filter(|own| !is_it(own)) else { return Ok(()) };
    let why = format!("it holds sets of another database, `{other}`");
    Err(Error::refused(into.to_string(), why, "name that database, or begin again with --replace"))
}

/// Says that no set continues the target; names a newer full or differential.
fn tell_nothing(standing: &RestoredState, sets: &[&StoredSet], report: &mut Report) {
    report.notes.push("no log set came since".into());
    let is_newer = |set: &&&StoredSet| {
        set.record.kind != SetKind::Log && set.is_usable() && set.record.started_at > standing.started_at
    };
    let newest = sets.iter().filter(is_newer).max_by_key(|set| set.record.started_at);
    report.notes.extend(newest.map(|set| {
        let title = super::title(&set.record);
        format!("{title} is newer, but does not continue the target: only a log set does (backup --kind log). --replace begins again with it")
    }));
}

/// The cut-over of such a target. The caller brings the last sets into it.
pub(super) struct FileCutOver<'a> {
    request: &'a cut_over::Request,
    engine: &'static dyn FileEngine,
    options: Options,
    conduct: &'a Conduct,
    /// The source, while its log is held.
    held: Option<Box<dyn Held>>,
    /// It has no writers.
    is_frozen: bool,
}

impl<'a> FileCutOver<'a> {
    /// Looks at the request.
    ///
    /// # Errors
    /// The source is of another engine than the target.
    pub fn new(request: &'a cut_over::Request, halt: &Halt, conduct: &'a Conduct) -> Result<Self> {
        let (source, target) = (&request.migration.source, &request.migration.target);
        let same = source.engine().filter(|engine| target.scheme() == engine.scheme());
        let engine = same.and_then(|engine| engine.file()).ok_or_else(|| {
            let why = format!("its sets do not go into {}", target.shown());
            Error::usage(source.shown(), why, "name the database that the repository has the sets of")
        })?;
        let options = migrate::order(&request.migration, halt).source_options;
        Ok(Self { request, engine, options, conduct, held: None, is_frozen: false })
    }
}

impl Migration for FileCutOver<'_> {
    fn plan(&self) -> MigrationPlan {
        let source = &self.request.migration.source;
        let title = source.engine().map_or("", |engine| engine.title());
        let file = source.identity().files.first().and_then(|file| file.metadata().ok());
        let bytes = file.map_or(0, |file| file.len());
        MigrationPlan { servers: [title.to_owned(), title.to_owned()], bytes, ..MigrationPlan::default() }
    }

    fn foresee(&mut self, _: &Flow<'_>, most: Duration) -> Result<Foreseen> {
        self.engine.foresee(self.request.migration.source.text(), &self.options, most)
    }

    fn full(&mut self, _: &Flow<'_>, _: &dyn Fn(&str)) -> Result<Moved> {
        Err(Error::Halted)
    }

    fn follow(&mut self) -> Result<Standing> {
        Err(Error::Halted)
    }

    fn hold_log(&mut self) -> Result<()> {
        self.held = Some(self.engine.hold(self.request.migration.source.text(), &self.options, false)?);
        Ok(())
    }

    /// The log is held all the time: an application may empty it at every other moment.
    fn freeze(&mut self) -> Result<()> {
        self.held = Some(self.engine.hold(self.request.migration.source.text(), &self.options, true)?);
        self.is_frozen = true;
        Ok(())
    }

    fn compare(&mut self, definitions: bool) -> Result<Compared> {
        let file = restore::unfinished(&self.request.sets.into)?.ok_or(Error::Halted)?;
        self.held.as_ref().ok_or(Error::Halted)?.compare(&file, definitions)
    }

    /// The target becomes a database. Then writers of the source are let in again.
    fn end(&mut self) -> Result<Loaded> {
        let checks = self.request.migration.compare != Comparison::None;
        let last = Request {
            recovery: Recovery::Now,
            check: Some(if checks { Check::Quick } else { Check::None }),
            ..self.request.sets.clone()
        };
        let mut report = Report::default();
        restore::run(&last, self.conduct, &mut report)?;
        self.held = None;
        let source = self.request.migration.source.shown();
        let way_back = format!(
            "fullbore has kept writers out of {source} until now, and has not changed it. Applications can write to it again: \
             let them use the target. The way back: let them use {source}. What is written to the target from now on does not \
             reach it"
        );
        Ok(Loaded { warnings: report.warnings, notes: vec![way_back], ..Loaded::default() })
    }

    fn give_up(&mut self) -> Vec<String> {
        let source = self.request.migration.source.shown();
        self.held = None;
        let was = self.is_frozen.then(|| format!("{source} is as before, and applications can write to it again"));
        let into = &self.request.sets.into;
        let left = matches!(restore::unfinished(into), Ok(Some(_)))
            .then(|| format!("{into} is not a database yet, and keeps what it has: the same command continues there"));
        was.into_iter().chain(left).collect()
    }
}

/// True for a target that is one file.
pub(super) fn is_file(into: &Into) -> bool {
    matches!(into, Into::File { .. })
}
