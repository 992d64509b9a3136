//! `migrate --repo`: the newest full and the sets behind it go into a running server, or into a file. Later runs apply the sets
//! that came since.

use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{Refreshed, SetEnd};
use fullbore_repository::Repository;
use fullbore_repository::chain;
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

/// The hint if the sets do not continue the target.
pub(super) const LOST: &str = "begin again with --replace if the missing set is lost";

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
    let known: Vec<_> = sets.iter().map(|set| set.found()).collect();
    let sequence = chain::steps::coming(&known, &standing);
    let sequence = sequence.map_err(|error| of_repository(error, &repository.name).noting(LOST))?;
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
