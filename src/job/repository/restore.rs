//! A restore out of a repository: the chain is found there, and cannot be removed while it is read.

use fullbore_core::Result;
use uuid::Uuid;

use super::Setting;
use super::databases::{meant, to_choose_from};
use crate::chain::steps::Standing;
use crate::chain::{self, Choice, Sequence};
use crate::job::reading::Reading;
use crate::job::restore::{self, Request};
use crate::job::{Conduct, media};
use crate::report::Report;
use crate::repository::Repository;
use crate::repository::inventory::StoredSet;

/// What is to be known between two steps of a restore.
const UNLEASED: &str = "until the next step nobody keeps the sets that it will need: prune goes by its rules";
/// What to do where it went by them.
const PRUNED_BETWEEN: &str = "what prune has removed since the last step is gone here: name a copy of it with --from, or begin anew with --no-recovery --replace";

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
    let standing = restore::standing(request)?;
    let database = database.or(standing.as_ref().and_then(|standing| standing.database.as_deref()));
    let database = meant(&repository, &inventory.sets, database);
    let database = database.as_deref();
    let chain = match &standing {
        None => {
            let sets = to_choose_from(&inventory.sets, database, request.reading.choice.set.as_deref())?;
            Chosen::among(sets, &request.reading, &repository, report)?
        }
        Some(standing) => {
            let sets = to_choose_from(&inventory.sets, database, request.reading.choice.set.as_deref())?;
            let next = Chosen::next(sets, standing, &request.reading, &repository, report);
            next.map_err(|error| error.noting(PRUNED_BETWEEN))?
        }
    };
    let request = Request { reading: chain.reading.clone(), ..request.clone() };
    if request.dry_run {
        return restore::run(&request, conduct, report);
    }
    let ids = chain.ids();
    setting.as_reader(&repository, ("restore", chain.database(), &ids), conduct, report, |report| {
        let done = restore::run(&request, conduct, report);
        if done.is_ok() && request.recovery == restore::Recovery::Later {
            report.notes.push(UNLEASED.into());
        }
        done.map_err(|error| match error {
            error @ fullbore_core::Error::Refused { .. } => error,
            error => with_chain(error, &chain.titles()),
        })
    })
}

/// The chain that a restore takes, and how it is read.
pub(super) struct Chosen<'a> {
    /// Its sets, in the order in which they are restored.
    pub sets: Vec<&'a StoredSet>,
    /// Their families, and the last of them as what is meant.
    pub reading: Reading,
}

impl<'a> Chosen<'a> {
    /// Chooses among the sets of one database: in a repository its newest chain is what is meant, unless something else is said.
    ///
    /// # Errors
    /// No chain of it is whole, or its families stand in places that this configuration does not name.
    pub fn among(
        sets: Vec<&'a StoredSet>,
        reading: &Reading,
        repository: &Repository,
        report: &mut Report,
    ) -> Result<Self> {
        // What is about to go, and has begun to, is nothing to be said.
        let sets: Vec<_> = sets.into_iter().filter(|set| !set.tombstone || set.incomplete.is_none()).collect();
        report.warnings.extend(sets.iter().filter(|set| set.clock_error() != 0).map(|set| dated_wrongly(set)));
        let known: Vec<_> = sets.iter().map(|set| set.found()).collect();
        let latest = reading.choice.latest || reading.choice.set.is_none();
        let sequence = chain::choose(&known, &Choice { latest, ..reading.choice.clone() })?;
        Self::of(sets, sequence, reading, repository, report)
    }

    /// Chooses what goes on from where a target stands that is being restored in steps.
    ///
    /// # Errors
    /// As [`among`](Self::among); or nothing does.
    pub fn next(
        sets: Vec<&'a StoredSet>,
        standing: &Standing,
        reading: &Reading,
        repository: &Repository,
        report: &mut Report,
    ) -> Result<Self> {
        let known: Vec<_> = sets.iter().map(|set| set.found()).collect();
        let sequence = chain::steps::go_on(&known, standing, &reading.choice)?;
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
    /// Their families stand in places that this configuration does not name.
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

    /// The sets that have to stay meanwhile.
    pub fn ids(&self) -> Vec<Uuid> {
        self.sets.iter().map(|set| set.record.backup_set_id).collect()
    }

    /// The database.
    pub fn database(&self) -> Option<String> {
        self.sets.last().map(|set| set.record.database.clone())
    }

    /// What the sets are called in messages.
    pub fn titles(&self) -> Vec<String> {
        self.sets.iter().map(|set| super::title(&set.record)).collect()
    }
}

/// Names the sets of the chain that failed: their families are under names that tell little.
fn with_chain(error: fullbore_core::Error, titles: &[String]) -> fullbore_core::Error {
    match media::one_line(&error) {
        line if titles.iter().any(|title| line.contains(title)) => error,
        _ => error.noting(&format!("the chain was: {}", titles.join("; "))),
    }
}

/// That its host's clock was wrong.
fn dated_wrongly(set: &StoredSet) -> String {
    let stored = crate::chain::show_time(set.stored_at);
    format!(
        "{} was stored at {stored} by the store's clock: its host's was wrong, and the store's counts",
        super::title(&set.record)
    )
}
