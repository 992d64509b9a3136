//! Copies from repositories, into them, or both: finds the missing sets, and coordinates commits with other hosts.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::databases::{meant, to_choose_from};
use super::hints::of_repository;
use super::restore::ChosenChain;
use super::{Setting, title};
use crate::job::copy::{self, Arrival, One, Request};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_repository::chain;
use fullbore_repository::discovery;
use fullbore_repository::format::{self, Decision, DecisionRecord, SetRecord, TaskState};
use fullbore_repository::hidden;
use fullbore_repository::inventory::{Inventory, KnownTask, StoredSet, tasks};
use fullbore_repository::process::Process;
use fullbore_repository::task::{Task, decided};
use fullbore_repository::{self, Repository};

/// The repositories of a copy; if one is missing, `--from` or `--to` takes its place.
#[derive(Clone, Copy)]
pub struct Between<'a> {
    /// `--repo`.
    pub from: Option<Setting<'a>>,
    /// `--database` in it.
    pub database: Option<&'a str>,
    /// `--to-repo`.
    pub to: Option<Setting<'a>>,
}

/// The repository that copies go to.
struct Target<'a> {
    setting: Setting<'a>,
    repository: Repository,
    inventory: Inventory,
}

/// Copies and fills `report`, also when it fails. Sets that the target has already are skipped.
///
/// # Errors
/// Those of [`copy::run`], and those of the repositories.
pub fn run(request: &Request, between: Between<'_>, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let begun = Instant::now();
    let mut request = request.clone();
    let source = &request.source(conduct);
    let target = between.to.map(|setting| Target::open(setting, &mut request, conduct, report)).transpose()?;
    match between.from {
        None => {
            let nothing = HashMap::new();
            into_target(&request, target.as_ref(), None, &nothing, conduct, report)?;
        }
        Some(setting) => {
            let repository = setting.open(source)?;
            if target.as_ref().is_some_and(|target| target.repository.id == repository.id) {
                let why = "is the repository to copy from";
                return Err(Error::usage(
                    format!("--to-repo {}", between.to.map_or("", |to| to.name)),
                    why,
                    "name another one",
                ));
            }
            let inventory = setting.inventory(&repository, source, &mut report.warnings)?;
            let set = request.reading.choice.set.as_deref();
            let database = meant(&repository, &inventory.sets, between.database);
            let sets = to_choose_from(&inventory.sets, database.as_deref(), set, &repository.name)?;
            let mut chosen = chosen(sets.clone(), &request, &repository, report)?;
            if target.is_some() && chosen.sets.len() > 1 {
                chosen = ChosenChain::reads(with_ancestors(&chosen.sets, &sets), &request.reading, &repository)?;
            }
            request.reading = chosen.reading.clone();
            let records: HashMap<Uuid, SetRecord> =
                chosen.sets.iter().map(|set| (set.record.backup_set_id, as_stored(set))).collect();
            let (ids, database) = (chosen.ids(), chosen.database());
            if request.dry_run {
                into_target(&request, target.as_ref(), Some(&ids), &records, conduct, report)?;
            } else {
                setting.as_reader(&repository, ("copy", database, &ids), source, report, |report| {
                    into_target(&request, target.as_ref(), Some(&ids), &records, conduct, report)
                })?;
            }
        }
    }
    copy::end(&request, begun, report);
    Ok(())
}

/// The record of a set with the time when it was stored: the files of a copy do not have this time.
fn as_stored(set: &StoredSet) -> SetRecord {
    SetRecord { stored_at: Some(set.stored_at), ..set.record.clone() }
}

/// The sets to copy: by default the newest chain of the repository, else the named set.
fn chosen<'a>(
    sets: Vec<&'a StoredSet>,
    request: &Request,
    repository: &Repository,
    report: &mut Report,
) -> Result<ChosenChain<'a>> {
    let choice = &request.reading.choice;
    if request.chain || (choice.set.is_none() && !choice.latest) {
        return ChosenChain::among(sets, &request.reading, repository, report);
    }
    let known: Vec<_> = sets.iter().map(|set| set.found()).collect();
    let sequence = chain::choose_one(&known, choice).map_err(|error| of_repository(error, &repository.name))?;
    report.notes.extend(sequence.notes);
    let sets: Vec<&StoredSet> = sequence.sets.iter().map(|&at| sets[at]).collect();
    ChosenChain::reads(sets, &request.reading, repository)
}

/// A chain with all ancestors of its sets, each set after its base. A full that was taken while a log was followed
/// begins a chain in the middle of the log sets, and prune keeps a log set with the set that it names as base. If an
/// ancestor cannot be used, the chain stays as it is.
fn with_ancestors<'a>(chain: &[&'a StoredSet], all: &[&'a StoredSet]) -> Vec<&'a StoredSet> {
    let known: HashMap<Uuid, &StoredSet> = all.iter().map(|set| (set.record.backup_set_id, *set)).collect();
    let (mut ordered, mut there): (Vec<&StoredSet>, HashSet<Uuid>) = Default::default();
    for set in chain {
        let (mut way, mut at) = (Vec::new(), Some(*set));
        while let Some(next) = at.filter(|next| there.insert(next.record.backup_set_id)) {
            way.push(next);
            at = next.record.base.and_then(|base| known.get(&base).copied());
        }
        ordered.extend(way.into_iter().rev());
    }
    if ordered.iter().all(|set| set.is_usable()) { ordered } else { chain.to_vec() }
}

/// Copies the sets that `request` reads; from a repository, those of `ids` in that order.
fn into_target(
    request: &Request,
    target: Option<&Target<'_>>,
    ids: Option<&[Uuid]>,
    known: &HashMap<Uuid, SetRecord>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let key = discovery::read_key(request.reading.key.as_deref())?;
    let (discovered, places) = match ids {
        None => copy::found(request, key.as_ref(), &request.source(conduct), report)?,
        Some(ids) => {
            let discovered = request.reading.find(key.as_ref(), &request.source(conduct))?;
            let at = |id: &Uuid| {
                let is_it = |found: &discovery::Found| {
                    found.set.backup_set_id == *id
                        && known.get(id).is_none_or(|known| known.media_set_id == found.media_set_id)
                };
                discovered.sets.iter().position(is_it).ok_or_else(|| unreadable(&discovered, *id))
            };
            let places = ids.iter().map(at).collect::<Result<Vec<_>>>()?;
            // By the headers: anybody may have written the records.
            let known = discovered.known();
            places.iter().try_for_each(|&at| chain::check_against(&known, &known[at]))?;
            (discovered, places)
        }
    };
    let sets: Vec<&discovery::Found> = places.iter().map(|&at| &discovered.sets[at]).collect();
    copy::refuse_one_name_for_many(request, sets.len())?;
    copy::expect(request, &sets, conduct);
    let one = |found| One { request, found, key: key.as_ref(), arrival: None, known: known_of(known, found) };
    let Some(target) = target else {
        return sets.into_iter().try_for_each(|found| one(found).run(conduct, report).map(drop));
    };
    let missing = target.missing(sets, report)?;
    if request.dry_run || missing.is_empty() {
        return missing.into_iter().try_for_each(|found| one(found).run(conduct, report).map(drop));
    }
    let database = missing.last().and_then(|found| found.set.database.clone());
    let database = database.or_else(|| known.values().next().map(|known| known.database.clone()));
    target.setting.as_task(&target.repository, "copy", database, conduct, report, |task, report| {
        let mut leased: Vec<Uuid> = missing.iter().filter_map(|found| found.set.base).collect();
        leased.retain(|base| missing.iter().all(|found| found.set.backup_set_id != *base));
        let bases = target.sets_of(&leased);
        super::backup::lease(&bases, task, &target.repository)?;
        super::backup::renew_locks(&leased, &target.repository, target.setting, conduct, report)?;
        for found in missing {
            task.lease(&leased)?;
            let id = found.set.backup_set_id;
            // Shows other hosts that this run writes the set. Its families are recorded once no other run writes it.
            task.writes_copy(id, Uuid::new_v4(), Vec::new())?;
            target.refuse_others(task, id)?;
            let arrival = Some(Arrival { repository: &target.repository, task });
            let record = One { arrival, ..one(found) }.run(conduct, report)?;
            if let Some(record) = record {
                target.setting.describe(&target.repository, record, &mut report.warnings);
            }
            leased.push(id);
        }
        Ok(())
    })
}

fn known_of<'a>(known: &'a HashMap<Uuid, SetRecord>, found: &discovery::Found) -> Option<&'a SetRecord> {
    known.get(&found.set.backup_set_id)
}

/// Why a set that the repository names is not among its media.
fn unreadable(discovered: &discovery::DiscoveredSets, id: Uuid) -> Error {
    let damaged = discovered.unreadable.iter().find(|unreadable| !unreadable.leftover);
    let why = damaged.map_or_else(|| "its families are not there any more".to_owned(), |bad| bad.error.one_line());
    Error::incomplete(format!("backup set {id}"), why, "copy another set; `verify` of this repository says more")
}

impl<'a> Target<'a> {
    fn open(setting: Setting<'a>, request: &mut Request, conduct: &Conduct, report: &mut Report) -> Result<Self> {
        super::backup::refuse_names_of_many_sets(request.init, request.name_template.as_deref())?;
        let places = fullbore_repository::places(setting.name, setting.config)?;
        fullbore_repository::make_directories(&places, request.mkdir && !request.dry_run)?;
        let opened = match request.dry_run {
            // A dry run creates nothing: a repository that does not exist yet is empty.
            true => Repository::open_or_plan(setting.name, places, &conduct.stores),
            false => Repository::open_to_write(setting.name, places, &conduct.stores),
        };
        let opened = opened.and_then(|repository| repository.hiding(setting.config));
        let repository = opened.map_err(|error| conduct.why_halted(error))?;
        request.name_template = hidden::template(setting.config, setting.name, request.name_template.take())?;
        let inventory = match repository.id.is_nil() {
            true => Inventory::default(), // It does not exist yet.
            false => setting.inventory(&repository, conduct, &mut report.warnings)?,
        };
        request.to = repository.places.clone();
        Ok(Self { setting, repository, inventory })
    }

    /// These sets, as the target has them.
    fn sets_of(&self, ids: &[Uuid]) -> Vec<StoredSet> {
        self.inventory.sets.iter().filter(|set| ids.contains(&set.record.backup_set_id)).cloned().collect()
    }

    /// The sets that it does not have.
    ///
    /// # Errors
    /// The base of a set would be missing, or the repository has a damaged copy of a set.
    fn missing<'f>(&self, sets: Vec<&'f discovery::Found>, report: &mut Report) -> Result<Vec<&'f discovery::Found>> {
        let mut there: HashSet<Uuid> = HashSet::new();
        let mut missing = Vec::new();
        let known: Vec<_> = sets.iter().map(|found| found.set.clone()).collect();
        let founded: HashMap<Uuid, Uuid> = chain::foundations(&known, |_| true)
            .into_iter()
            .map(|(log, base)| (known[log].backup_set_id, known[base].backup_set_id))
            .collect();
        for stored in self.inventory.sets.iter().filter(|set| set.is_usable()) {
            there.insert(stored.record.backup_set_id);
        }
        for found in sets {
            let id = found.set.backup_set_id;
            if there.contains(&id) {
                report
                    .notes
                    .push(format!("{} is already in the repository, and is not copied", chain::title(&found.set)));
                continue;
            }
            self.refuse_remains(found)?;
            // A log set that holds the end of a full that is there needs no predecessor: prune may have removed it.
            let is_founded = founded.get(&id).is_some_and(|base| there.contains(base));
            if let Some(base) = found.set.base.filter(|base| !there.contains(base) && !is_founded) {
                let what = if found.set.kind == SetKind::Log { "the set that it continues" } else { "its full" };
                return Err(Error::incomplete(
                    chain::title(&found.set),
                    format!("{what}, {base}, is not in the repository to copy to"),
                    "copy the whole chain: --chain",
                ));
            }
            there.insert(id);
            missing.push(found);
        }
        Ok(missing)
    }

    /// Refuses remains of another copy of the set. Remains of the same media are fine: a copy as it is completes them.
    fn refuse_remains(&self, found: &discovery::Found) -> Result<()> {
        let remains = self.inventory.sets.iter().find(|set| set.record.backup_set_id == found.set.backup_set_id);
        let Some(remains) = remains else { return Ok(()) };
        let (thing, hint) = (title(&remains.record), "copy it as it is, from the same media; or remove its families");
        match &remains.incomplete {
            _ if remains.tombstone => Err(Error::refused(thing, "is being removed from the repository", hint)),
            Some(_) if remains.record.media_set_id == found.media_set_id => Ok(()),
            Some(why) => Err(Error::refused(thing, format!("is in the repository, but incomplete: {why}"), hint)),
            None if remains.is_damaged() => {
                let why = "is in the repository, but was found damaged there";
                Err(Error::refused(thing, why, "remove its families, and copy again"))
            }
            None => Ok(()),
        }
    }

    /// Refuses if another run writes the same set: a repository has one copy of a set.
    fn refuse_others(&self, task: &Task, set: Uuid) -> Result<()> {
        let repository = &self.repository;
        if let Some(record) = repository.read::<SetRecord>(&format::set_name(set))?
            && self.inventory.sets.iter().all(|known| known.record.backup_set_id != set)
        {
            let why = "was copied by another run since this copy began";
            return Err(Error::refused(title(&record), why, "run it again: it skips the sets that are there"));
        }
        let now = repository.now()?;
        let known = tasks(repository, now)?;
        let lives = |other: &&KnownTask| other.record.state.is_open() && !other.is_dead(now);
        let wrote = |other: &&KnownTask| {
            let ended_well = other.record.state == TaskState::Success;
            other.record.task != task.id() && other.record.writes == Some(set) && !ended_well
        };
        let prune = known.iter().filter(lives).find(|other| other.record.verb == "prune");
        if let (Some(prune), true) = (prune, known.iter().any(|other| wrote(&other))) {
            // Leftovers of an earlier attempt have the names of this attempt. A prune that begins later sees this run.
            let why = format!("has leftovers of an earlier copy, and {} may be removing them", prune.title());
            return Err(Error::refused(format!("backup set {set}"), why, "wait until it has ended"));
        }
        for other in known.iter().filter(wrote).filter(|other| other.record.state.is_open()) {
            // For a process of this machine there is no need to wait for the end of its lease.
            let is_gone = other.record.runs_as.as_ref().is_some_and(Process::is_gone);
            if !other.is_dead(now) && !is_gone {
                let why = format!("is being written by {}", other.title());
                let (id, name) = (other.record.task, &self.repository.name);
                let hint = format!("wait for it, or end it with `fullbore cancel {id} --repo {name}`");
                return Err(Error::refused(format!("backup set {set}"), why, hint));
            }
            self.end(other, task)?;
        }
        Ok(())
    }

    /// Makes sure that a dead run never commits, and that prune does not take the files of this run for its leftovers.
    fn end(&self, other: &KnownTask, task: &Task) -> Result<()> {
        let Some(decision) = other.record.decision() else { return Ok(()) };
        let ours = DecisionRecord { decision: Decision::Removed, task: task.id() };
        if decided(&self.repository, decision, Decision::Removed, task.id())? != ours {
            let why = "was interrupted during commit, or its files are being removed now";
            return Err(Error::refused(
                other.title(),
                why,
                format!("run `fullbore prune --repo {} --confirm`, then copy again", self.repository.name),
            ));
        }
        let mut record = other.record.clone();
        (record.state, record.ended_at) = (TaskState::Error, Some(jiff::Timestamp::now().to_string()));
        record.error = Some(format!("its process ended unexpectedly; copy {} continues it", task.id()));
        record.needs.clear();
        self.repository.records.write(&format::task_name(record.task), &format::encode(&record)?)
    }
}
