//! `migrate --repo`: the newest full and the sets behind it go into a running server, or into a file. Later runs apply the sets
//! that came since.

use fullbore_core::conduct::Conduct;
use fullbore_core::media::{LogPosition, LogRange, SetKind};
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{Refreshed, SetEnd};
use fullbore_repository::Repository;
use fullbore_repository::chain::{self, Choice};
use fullbore_repository::inventory::StoredSet;

use super::databases::{meant, to_choose_from};
use super::hints::of_repository;
use super::restore::ChosenChain;
use super::{Setting, file_target};
use crate::job::migrate::COMMAND;
use crate::job::restore::Request;
use crate::job::restore::refresh::{self, Refresh};
use crate::report::Report;

/// The note at the end of each run.
const LATER: &str = "the same command applies the log sets that come later; --cut-over with the source, or --abort, ends it. No \
                     lease protects these sets: prune may remove them by the retention rules";

/// Brings the target up to the newest log set.
///
/// # Errors
/// Those of a restore, and a target that holds something else.
pub fn run(
    request: &Request,
    database: Option<&str>,
    abort: bool,
    setting: Setting<'_>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    if file_target::is_file(&request.into) {
        return file_target::refresh(request, database, setting, conduct, report);
    }
    let repository = setting.open(conduct)?;
    let inventory = setting.inventory(&repository, conduct, &mut report.warnings)?;
    let meant = meant(&repository, &inventory.sets, database);
    let sets = to_choose_from(&inventory.sets, meant.as_deref(), None, setting.name)?;
    let Some(first) = sets.first() else { return Err(Error::Halted) };
    let of = (&first.record.database[..], &first.record.engine[..]);
    report.engine = Some(of.1.to_owned());
    report.database = Some(of.0.to_owned());
    report.into = Some(request.into.to_string());
    if abort {
        return refresh::end(request, of, conduct, report);
    }
    let found = match request.replace {
        true => Refreshed::Nothing,
        false => refresh::refreshed(request, of, conduct)?,
    };
    match found {
        Refreshed::UpTo(end, encrypted) => {
            next(request, (&end, encrypted), of, (&sets, &repository, setting), conduct, report)?;
        }
        Refreshed::Nothing | Refreshed::Begun => {
            let refresh = Refresh { database: of.0.to_owned(), begun: found == Refreshed::Begun };
            let request = Request { refresh: Some(refresh), ..request.clone() };
            super::restore::run(&request, meant.as_deref(), setting, conduct, report)?;
            if request.dry_run {
                refresh::tell_plan(report);
            }
        }
    }
    if !request.dry_run {
        report.notes.push(LATER.into());
    }
    Ok(())
}

/// Applies the log sets behind `end`.
fn next(
    request: &Request,
    (end, encrypted): (&SetEnd, bool),
    of: (&str, &str),
    (sets, repository, setting): (&[&StoredSet], &Repository, Setting<'_>),
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let standing = refresh::standing((end, encrypted), of.1, Some(of.0.to_owned()))?;
    let sets: Vec<&StoredSet> = sets.iter().copied().filter(|set| !is_applied(set, &standing.log_range)).collect();
    let known: Vec<_> = sets.iter().map(|set| set.found()).collect();
    let choice = Choice { latest: true, ..Choice::default() };
    let sequence = chain::steps::following(&known, &standing, &choice);
    let sequence = sequence.map_err(|error| of_repository(error, &repository.name))?;
    let last = sequence.sets.last().and_then(|&at| end_of(&known[at].log_range)).or(end_of(&standing.log_range));
    let since = standing.log_range.as_ref().map_or(i64::MIN, |range| range.at);
    if let Some(gap) = last.and_then(|last| beyond_a_gap(&sets, &last, since)) {
        return Err(of_repository(gap, &repository.name));
    }
    if sequence.sets.is_empty() {
        report.notes.push("no log set came since: the target has all of them".into());
        if request.dry_run {
            refresh::tell_plan(report);
        }
        return Ok(());
    }
    let chosen: Vec<&StoredSet> = sequence.sets.iter().map(|&at| sets[at]).collect();
    let chain = ChosenChain::reads(chosen, &request.reading, repository)?;
    let request = Request { reading: chain.reading.clone(), ..request.clone() };
    if request.dry_run {
        return refresh::run(&request, (end, encrypted), of, conduct, report);
    }
    setting.as_reader(repository, (COMMAND, chain.database(), &chain.ids()), conduct, report, |report| {
        let begun = std::time::Instant::now();
        refresh::run(&request, (end, encrypted), of, conduct, report)?;
        report.set_speed(begun.elapsed().as_secs_f64());
        Ok(())
    })
}

fn end_of(range: &Option<LogRange>) -> Option<LogPosition> {
    range.as_ref().and_then(|range| range.last.clone())
}

/// Whether a log set ends at or before the place of the target. After a reset of the log, places come again, at later times.
fn is_applied(set: &StoredSet, standing: &Option<LogRange>) -> bool {
    let (range, Some(standing)) = (set.found().log_range, standing) else { return false };
    let (Some(end), Some(stands)) = (end_of(&range), &standing.last) else { return false };
    let is_before = end.history == stands.history && end.at <= stands.at;
    set.record.kind == SetKind::Log && is_before && range.is_some_and(|range| range.at <= standing.at)
}

/// The error of a log set behind the chosen ones: their times may be the same, but not their places. A set that ends before
/// `since`, the time of the target, is from before a reset of the log.
fn beyond_a_gap(sets: &[&StoredSet], last: &LogPosition, since: i64) -> Option<Error> {
    let is_beyond = |set: &&&StoredSet| {
        let range = set.found().log_range.filter(|range| range.at >= since);
        let end = end_of(&range);
        set.record.kind == SetKind::Log && end.is_some_and(|end| end.history == last.history && end.at > last.at)
    };
    let found = sets.iter().find(is_beyond)?.found();
    let why = match &found.incomplete {
        Some(why) => format!("is incomplete: {why}"),
        None => "continues a log set that is not there, or is incomplete".to_owned(),
    };
    Some(Error::incomplete(chain::title(&found), why, "bring the missing set back; or begin again with --replace"))
}
