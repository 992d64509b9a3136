//! A restore out of a repository: chooses the chain there, and leases it, so that prune keeps it meanwhile.

use fullbore_core::Result;
use fullbore_core::media::SetKind;
use fullbore_engines::engine::LogStop;
use uuid::Uuid;

use super::databases::{meant, to_choose_from};
use super::foreign_chain::add_needed;
use super::hints::of_repository;
use super::{Setting, file_target};
use crate::job::reading::Reading;
use crate::job::restore::{self, Request};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_repository::Repository;
use fullbore_repository::chain::steps::RestoredState;
use fullbore_repository::chain::{self, Choice, FoundSet, Sequence};
use fullbore_repository::inventory::StoredSet;
use fullbore_repository::{discovery, ids};

/// The note after a step of a restore that is not the last.
const UNLEASED: &str = "no lease protects the sets of the next step: prune may remove them by the retention rules";
/// The hint if prune has removed them.
const PRUNED_BETWEEN: &str = "prune may have removed sets since the last step: name a copy of them with --from, \
                              or begin anew with --no-recovery --replace";

/// Restores the database of this name and fills `report`, also when it fails.
///
/// # Errors
/// Those of [`restore::run`], and a chain that is not whole.
pub fn run(
    request: &Request,
    database: Option<&str>,
    setting: Setting<'_>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let repository = setting.open(conduct)?;
    let inventory = setting.inventory(&repository, conduct, &mut report.warnings)?;
    let standing = restore::standing(request)?.map(|standing| named_here(standing, &repository, &inventory.sets));
    let database = database.or(standing.as_ref().and_then(|standing| standing.database.as_deref()));
    let database = meant(&repository, &inventory.sets, database);
    let database = database.as_deref();
    let chain = match &standing {
        None => {
            let sets = to_choose_from(&inventory.sets, database, request.reading.choice.set.as_deref(), setting.name)?;
            let mut reading = request.reading.clone();
            if let Some(wanted) = &request.stop {
                reading.choice = choice_of_stop(wanted, &sets, &reading, &repository, conduct)?;
            }
            among_fitting(&request.into, sets, &reading, &repository, report)?
        }
        Some(standing) if request.refresh.is_some() => {
            let from = (&repository, &inventory.sets[..], setting.name);
            file_target::next(request, standing, database, from, report)?
        }
        Some(standing) => {
            let sets = to_choose_from(&inventory.sets, database, request.reading.choice.set.as_deref(), setting.name)?;
            let next = ChosenChain::next(sets, standing, chain::steps::go_on, &request.reading, &repository, report);
            next.map_err(|error| error.noting(PRUNED_BETWEEN))?
        }
    };
    let mut request = Request { reading: chain.reading.clone(), ..request.clone() };
    let mut ids = chain.ids();
    ids.extend(add_needed(&mut request, &chain, &inventory.sets, &repository, report)?);
    if request.dry_run {
        return restore::run(&request, conduct, report);
    }
    report.engine = chain.engine();
    let verb = if request.refresh.is_some() { crate::job::migrate::COMMAND } else { "restore" };
    setting.as_reader(&repository, (verb, chain.database(), &ids), conduct, report, |report| {
        let done = restore::run(&request, conduct, report);
        if done.is_ok() && request.recovery == restore::Recovery::Later && request.refresh.is_none() {
            report.notes.push(UNLEASED.into());
        }
        done.map_err(|error| match error {
            error @ fullbore_core::Error::Refused { .. } => error,
            error => with_chain(error, &chain.titles()),
        })
    })
}

/// The same state with the name that the repository has for its database: it may hide names.
fn named_here(standing: RestoredState, repository: &Repository, sets: &[StoredSet]) -> RestoredState {
    let hidden = standing.database.as_deref().map(|name| repository.named(name));
    let is_known = |name: &String| sets.iter().any(|set| set.record.database == *name);
    let database = hidden.filter(is_known).or(standing.database);
    RestoredState { database, ..standing }
}

/// The chain among the fitting sets. For a directory, a chain of the others is better than an error.
fn among_fitting<'a>(
    into: &restore::Into,
    sets: Vec<&'a StoredSet>,
    reading: &Reading,
    repository: &Repository,
    report: &mut Report,
) -> Result<ChosenChain<'a>> {
    let fitting = fit_for(into, sets.clone(), reading);
    let stops = reading.choice.stop_at.is_some() || reading.choice.set.is_some();
    let has_others = stops && fitting.len() < sets.len() && matches!(into, restore::Into::Directory(_));
    let (warnings, notes) = (report.warnings.len(), report.notes.len());
    match ChosenChain::among(fitting, reading, repository, report) {
        Err(error) if has_others => {
            report.warnings.truncate(warnings);
            report.notes.truncate(notes);
            ChosenChain::among(sets, reading, repository, report).map_err(|_| error)
        }
        chosen => chosen,
    }
}

/// The sets without those fulls that the target cannot take: a running server takes rows, and log sets for a directory
/// need the files of a server. Without a fitting full, and where the user names a full, all sets stay.
fn fit_for<'a>(into: &restore::Into, sets: Vec<&'a StoredSet>, reading: &Reading) -> Vec<&'a StoredSet> {
    match into {
        restore::Into::Server { .. } => fitting(sets, true, reading),
        restore::Into::Directory(_) if sets.iter().any(is_log) => fitting(sets, false, reading),
        _ => sets,
    }
}

fn is_log(set: &&StoredSet) -> bool {
    set.record.kind == SetKind::Log
}

/// The log sets, the sets of rows or those of files, and what the user names. Without such a full, all sets.
pub(super) fn fitting<'a>(sets: Vec<&'a StoredSet>, wants_rows: bool, reading: &Reading) -> Vec<&'a StoredSet> {
    let named =
        |set: &&StoredSet| reading.choice.set.as_ref().is_some_and(|part| ids::fits(set.record.backup_set_id, part));
    let fits = |set: &&StoredSet| is_log(set) || named(set) || is_logical(set) == wants_rows;
    if sets.iter().any(|set| set.record.kind == SetKind::Full && set.is_usable() && fits(set)) {
        return sets.into_iter().filter(fits).collect();
    }
    sets
}

/// Whether a set holds rows and statements.
pub(super) fn is_logical(set: &StoredSet) -> bool {
    let engine = fullbore_engines::named(&set.record.engine).and_then(|engine| engine.logical());
    engine.is_some_and(|logical| logical.is_logical(&set.record.position.last.value()))
}

/// The choice of the log set that has the place to stop at: only its manifest tells.
fn choice_of_stop(
    wanted: &LogStop,
    sets: &[&StoredSet],
    reading: &Reading,
    repository: &Repository,
    conduct: &Conduct,
) -> Result<Choice> {
    let mut from = Vec::new();
    for set in sets.iter().filter(|set| set.record.kind == SetKind::Log && !set.tombstone) {
        from.extend(set.devices(repository)?.iter().map(ToString::to_string));
    }
    let find = || discovery::find(&from, &conduct.stores).map_err(|error| conduct.why_halted(error));
    let found = if from.is_empty() { Vec::new() } else { find()?.sets };
    let key = discovery::read_key(reading.key.as_deref())?;
    restore::stop::choice(wanted, &found, &reading.choice, key.as_ref())
}

/// The chain that a restore takes, and how it is read.
pub(super) struct ChosenChain<'a> {
    /// Its sets, in the order of the restore.
    pub sets: Vec<&'a StoredSet>,
    /// How to read them: all their families, and the last set as `--set`.
    pub reading: Reading,
}

impl<'a> ChosenChain<'a> {
    /// Chooses among the sets of one database: by default the newest chain.
    ///
    /// # Errors
    /// The database has no complete chain, or families are in places that this configuration does not name.
    pub fn among(
        sets: Vec<&'a StoredSet>,
        reading: &Reading,
        repository: &Repository,
        report: &mut Report,
    ) -> Result<Self> {
        // No warning about sets that prune is removing right now.
        let sets: Vec<_> = sets.into_iter().filter(|set| !set.tombstone || set.incomplete.is_none()).collect();
        report.warnings.extend(sets.iter().filter(|set| set.clock_error() != 0).map(|set| dated_wrongly(set)));
        let known: Vec<_> = sets.iter().map(|set| set.found()).collect();
        let latest = reading.choice.latest || reading.choice.set.is_none();
        let sequence = chain::choose(&known, &Choice { latest, ..reading.choice.clone() });
        let sequence = sequence.map_err(|error| of_repository(error, &repository.name))?;
        Self::of(sets, sequence, reading, repository, report)
    }

    /// Chooses the sets that continue a target that is being restored in steps, by `rule`.
    ///
    /// # Errors
    /// As [`among`](Self::among), and those of the rule.
    pub fn next(
        sets: Vec<&'a StoredSet>,
        standing: &RestoredState,
        rule: impl FnOnce(&[FoundSet], &RestoredState, &Choice) -> Result<Sequence>,
        reading: &Reading,
        repository: &Repository,
        report: &mut Report,
    ) -> Result<Self> {
        let known: Vec<_> = sets.iter().map(|set| set.found()).collect();
        let sequence = rule(&known, standing, &reading.choice);
        let sequence = sequence.map_err(|error| of_repository(error, &repository.name))?;
        Self::of(sets, sequence, reading, repository, report)
    }

    fn of(
        sets: Vec<&'a StoredSet>,
        sequence: Sequence,
        reading: &Reading,
        repository: &Repository,
        report: &mut Report,
    ) -> Result<Self> {
        report.warnings.extend(sequence.warnings);
        report.notes.extend(sequence.notes);
        Self::reads(sequence.sets.iter().map(|&at| sets[at]).collect(), reading, repository)
    }

    /// These sets, and how they are read.
    ///
    /// # Errors
    /// Their families are in places that this configuration does not name.
    pub fn reads(sets: Vec<&'a StoredSet>, reading: &Reading, repository: &Repository) -> Result<Self> {
        let mut reading = reading.clone();
        reading.from.clear();
        for set in &sets {
            reading.from.extend(set.devices(repository)?.iter().map(ToString::to_string));
        }
        reading.choice.latest = false;
        reading.choice.set = sets.last().map(|set| set.record.backup_set_id.to_string());
        Ok(Self { sets, reading })
    }

    /// The sets that prune has to keep meanwhile.
    pub fn ids(&self) -> Vec<Uuid> {
        self.sets.iter().map(|set| set.record.backup_set_id).collect()
    }

    /// The database.
    pub fn database(&self) -> Option<String> {
        self.sets.last().map(|set| set.record.database.clone())
    }

    /// Its engine.
    pub fn engine(&self) -> Option<String> {
        self.sets.last().map(|set| set.record.engine.clone())
    }

    /// What the sets are called in messages.
    pub fn titles(&self) -> Vec<String> {
        self.sets.iter().map(|set| super::title(&set.record)).collect()
    }
}

/// Adds the sets of the chain to its error: the names of families say little.
fn with_chain(error: fullbore_core::Error, titles: &[String]) -> fullbore_core::Error {
    match error.one_line() {
        line if titles.iter().any(|title| line.contains(title)) => error,
        _ => {
            let shown = match titles {
                [first, _, .., last] => format!("{first} … {last} ({} sets)", titles.len()),
                few => few.join(" … "),
            };
            error.noting(&format!("the chain was: {shown}"))
        }
    }
}

/// The warning that the clock of the host was wrong.
fn dated_wrongly(set: &StoredSet) -> String {
    let stored = fullbore_repository::chain::show_time(set.stored_at);
    format!(
        "{} was stored at {stored} by the store's clock, which counts: the clock of its host was wrong",
        super::title(&set.record)
    )
}
