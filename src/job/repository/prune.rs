//! Retention: plans which sets to remove and, with `--confirm`, removes them in an order that is safe against a kill at
//! any point. The rules are in `docs/RETENTION.md`, the protocol between hosts in `docs/REPOSITORY.md`.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use fullbore_core::{Error, Result};
use serde::Serialize;
use uuid::Uuid;

use super::databases::{Names, of_database};
use super::locks::Locks;
use super::proof::Proof;
use super::sweep::Sweeper;
use super::{Setting, databases};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::on_its_line;
use fullbore_engines::LogEngine;
use fullbore_repository::Repository;
use fullbore_repository::chain::retention::{self, KeepOrDelete, KeptSet, Policy, RetentionPlan};
use fullbore_repository::chain::{self, show_time};
use fullbore_repository::inventory::{Inventory, KnownTask, StoredSet, tasks};
use fullbore_repository::task::Task;

/// How often a wait checks for a signal.
const TICK: Duration = Duration::from_millis(100);

/// What the user asked for.
#[derive(Clone)]
pub struct Request {
    /// The retention rules.
    pub policy: Policy,
    /// `--database`; `None`: all of them.
    pub database: Option<String>,
    /// `--confirm`: without it nothing is removed.
    pub confirm: bool,
    /// `--grace`: the time between writing tombstones and removing sets.
    pub grace: Duration,
}

/// Whether a set is removed, and why it stays.
#[derive(Debug, Clone, Serialize)]
pub struct SetDecision {
    /// Identity of the backup.
    pub backup_set_id: String,
    /// full, differential, log.
    pub kind: String,
    /// Name of the engine.
    pub engine: String,
    /// The host that made it.
    pub host: String,
    /// The database.
    pub database: String,
    /// RFC 3339.
    pub started_at: String,
    /// Bytes of its families.
    pub stored_bytes: u64,
    /// The codec asked for.
    pub codec: String,
    /// A key is needed to read it.
    pub encrypted: bool,
    /// It is removed.
    pub delete: bool,
    /// Why it stays.
    pub reasons: Vec<String>,
}

/// What prune has found and done.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Pruned {
    /// All sets, oldest first.
    pub sets: Vec<SetDecision>,
    /// Sets that were removed; without `--confirm` none.
    pub deleted: Vec<String>,
    /// Bytes of the sets to remove.
    pub bytes_freed: u64,
    /// Why all sets of a database stay: exit code 4.
    pub refusals: Vec<String>,
    /// Runs whose host died, and what was done about their leftovers.
    pub dead_runs: Vec<String>,
    /// What to look at.
    pub warnings: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<String>,
}

/// Plans and, with `--confirm`, removes.
///
/// # Errors
/// The repository cannot be reached, another prune runs in it, or a removal fails.
pub fn run(request: &Request, setting: Setting<'_>, conduct: &Conduct) -> Result<Pruned> {
    let repository = setting.open(conduct)?;
    let mut pruned = Pruned::default();
    if !request.confirm {
        let now = repository.about_now()?;
        let dead = tasks(&repository, now)?.into_iter().filter(|task| task.is_dead(now));
        pruned.dead_runs.extend(dead.map(|task| format!("{}: --confirm removes its files", task.title())));
        planned(request, setting, &repository, now, &[], conduct, &mut pruned)?;
        return Ok(pruned);
    }
    let mut report = Report::default();
    // So a full disk has space for the records of a prune.
    repository.records.free_reserve();
    let done = setting.as_task(&repository, "prune", request.database.clone(), conduct, &mut report, |task, _| {
        confirmed(request, setting, &repository, task, conduct, &mut pruned)
    });
    repository.records.keep_reserve();
    let done = done.map_err(making_room);
    pruned.warnings.append(&mut report.warnings);
    done.map(|()| pruned)
}

fn confirmed(
    request: &Request,
    setting: Setting<'_>,
    repository: &Repository,
    task: &Task,
    conduct: &Conduct,
    pruned: &mut Pruned,
) -> Result<()> {
    let now = repository.now()?;
    refuse_another(repository, task, now)?;
    repository.refuse_strange_places()?;
    let sweeper = Sweeper::new(repository, task.id(), now);
    sweeper.end_dead_runs(request.grace, pruned)?;
    let listing = sweeper.remove_strays(pruned)?;
    let first = planned(request, setting, repository, now, &[], conduct, &mut Pruned::default())?;
    // A set is incomplete if one of its disks is not mounted: its removal would leave families on that disk.
    first.inventory.strange.first().map_or(Ok(()), |strange| Err(strange.refusal(&repository.name)))?;
    first.inventory.record_what_has_none(repository)?;
    sweeper.remove_beside(&first.inventory.sets, &listing)?;
    let doomed = bury(&sweeper, first.doomed(), pruned)?;
    wait(if doomed.is_empty() { Duration::ZERO } else { request.grace }, conduct)?;
    // By now, each run that needs one of them has leased it or has seen the tombstone.
    let now = repository.now()?;
    let mut held = Vec::new();
    for dead in tasks(repository, now)?.iter().filter(|task| task.record.state.is_open()) {
        held.extend(sweeper.outdated(dead, &doomed, now)?);
    }
    let second = planned(request, setting, repository, now, &held, conduct, pruned)?;
    let goes = second.doomed().filter(|set| doomed.contains(&set.record.backup_set_id));
    let goes: Vec<&StoredSet> = goes.collect();
    let kept: HashSet<Uuid> = goes.iter().map(|set| set.record.backup_set_id).collect();
    for id in second.inventory.tombstones.iter().filter(|id| !kept.contains(id)) {
        match sweeper.take_back_or_finish(*id, &second.inventory, pruned) {
            Err(error) if is_of_one_set(&error) => {
                pruned.warnings.push(format!("backup set {id} is still being removed: {}", error.one_line()));
            }
            done => done?,
        }
    }
    remove_all(&sweeper, &goes, &second.needs, conduct, pruned)?;
    sweeper.forget_old_runs()
}

/// Removes these sets. A set that cannot be removed keeps the sets that it depends on; the next prune tries again.
fn remove_all(
    sweeper: &Sweeper<'_>,
    goes: &[&StoredSet],
    needs: &HashMap<Uuid, Uuid>,
    conduct: &Conduct,
    pruned: &mut Pruned,
) -> Result<()> {
    // The bases of sets that stayed. A base comes after its dependants.
    let mut needed: HashSet<Uuid> = HashSet::new();
    for (at, set) in goes.iter().enumerate() {
        conduct.check()?;
        if !sweeper.has_own_tombstone(set)? {
            // Other runs may use the sets again. The remaining tombstones of this prune would block them.
            for ahead in &goes[at..] {
                if sweeper.has_own_tombstone(ahead)? {
                    sweeper.spare(ahead)?;
                }
            }
            return Err(taken_over(set, &sweeper.repository().name));
        }
        let why = match needed.contains(&set.record.backup_set_id) {
            true => "the sets that depend on it stay".to_owned(),
            false => match sweeper.remove(set) {
                Ok(()) => {
                    pruned.deleted.push(set.record.backup_set_id.to_string());
                    continue;
                }
                Err(error) if is_of_one_set(&error) => error.one_line(),
                Err(error) => return Err(error),
            },
        };
        pruned.warnings.push(format!("{} was not removed: {why}", super::title(&set.record)));
        pruned.bytes_freed = pruned.bytes_freed.saturating_sub(set.stored_bytes());
        sweeper.spare(set)?;
        needed.extend(needs.get(&set.record.backup_set_id));
    }
    Ok(())
}

/// True for an error that may concern one set or run only: a family of another set, a locked one, or one that the disk
/// does not remove. If the store does not answer, the next request fails too.
pub(super) fn is_of_one_set(error: &Error) -> bool {
    !matches!(error, Error::Cancelled { .. } | Error::Halted)
}

/// Writes tombstones; returns the sets that have one now. If space runs out, these can be removed without the rest,
/// because dependants come first.
fn bury<'a>(
    sweeper: &Sweeper<'_>,
    sets: impl Iterator<Item = &'a StoredSet>,
    pruned: &mut Pruned,
) -> Result<HashSet<Uuid>> {
    let mut doomed = HashSet::new();
    for set in sets {
        match sweeper.bury(set) {
            Err(error) if error.is_lack_of_room() && !doomed.is_empty() => {
                let why = error.one_line();
                pruned.warnings.push(format!("no space for more tombstones ({why}): run prune again for more sets"));
                break;
            }
            buried => buried?,
        }
        doomed.insert(set.record.backup_set_id);
    }
    Ok(doomed)
}

/// The hint if there is no space for the records of a prune. The usual hint is for backups.
fn making_room(error: Error) -> Error {
    let lacks = error.is_lack_of_room();
    match error {
        Error::Io { action, thing, source, .. } if lacks => {
            let hint = "a prune writes records before it removes sets: free about 100 KiB there by hand (remove only \
                        files that are not of a repository), and run it again";
            Error::Io { action, thing, source, hint: hint.into() }
        }
        error => error,
    }
}

/// A plan, with its inventory.
struct Planned {
    inventory: Inventory,
    places: Vec<usize>,
    plan: RetentionPlan,
    /// The set that each set needs.
    needs: HashMap<Uuid, Uuid>,
}

impl Planned {
    /// The sets to remove, in the order of their removal.
    fn doomed(&self) -> impl Iterator<Item = &StoredSet> {
        self.plan.delete.iter().map(|&at| &self.inventory.sets[self.places[at]])
    }
}

/// Looks at the repository and plans; `held` are sets that other runs may still build on.
fn planned(
    request: &Request,
    setting: Setting<'_>,
    repository: &Repository,
    now: i64,
    held: &[(Uuid, String)],
    conduct: &Conduct,
    pruned: &mut Pruned,
) -> Result<Planned> {
    let inventory = setting.inventory(repository, conduct, &mut pruned.warnings)?;
    let mut places: Vec<usize> = (0..inventory.sets.len()).collect();
    let mut meant: HashSet<Uuid> = inventory.sets.iter().map(|set| set.record.backup_set_id).collect();
    if request.database.is_some() {
        let database = databases::meant(repository, &inventory.sets, request.database.as_deref());
        let of_it = of_database(&inventory.sets, database.as_deref(), &repository.name)?;
        meant = of_it.iter().map(|set| set.record.backup_set_id).collect();
        let concerned = with_dependants(meant.clone(), &inventory.sets);
        places.retain(|&at| concerned.contains(&inventory.sets[at].record.backup_set_id));
    }
    let mut leases = held.to_vec();
    for task in inventory.tasks.iter().filter(|task| task.record.state.is_open() && !task.is_dead(now)) {
        leases.extend(task.record.needs.iter().chain(&task.record.writes).map(|id| (*id, task.title())));
    }
    let names = Names::of(&inventory.sets);
    let mut kept: Vec<KeptSet> = places.iter().map(|&at| kept_set(&inventory.sets[at], &names, &leases)).collect();
    let outlives_fulls = |engine: &str| fullbore_engines::log(engine).is_some_and(LogEngine::outlives_fulls);
    found_on_newer_fulls(&mut kept, &places.iter().map(|&at| &inventory.sets[at]).collect::<Vec<_>>(), outlives_fulls);
    // Sets of other databases stay, with the sets that they depend on.
    kept.iter_mut().for_each(|set| set.unknown |= !meant.contains(&set.backup_set_id));
    let mut plan = retention::plan(&kept, &request.policy, now);
    // Asks for locks only of sets that would be removed. If one is locked, the new plan may remove others: asks again.
    let (mut locks, mut proof) = (Locks::of(repository), Proof::of(repository));
    let of = |at: &usize| (*at, &inventory.sets[places[*at]]);
    while proof.look(plan.proof.iter().map(of), &mut kept, &mut pruned.warnings)?
        || locks.learn(plan.delete.iter().map(of), &mut kept)?
    {
        plan = retention::plan(&kept, &request.policy, now);
    }
    locks.say(&plan.delete, pruned);
    let advised = |why: &str| format!("{why}: `fullbore verify --repo {}`", setting.name);
    pruned.refusals = plan.refusals().map(advised).collect();
    pruned.warnings.extend(plan.warnings.iter().cloned());
    pruned.warnings.extend(plan.unverified.iter().map(|why| advised(why)));
    pruned.notes.extend(inventory.notes.iter().chain(&plan.notes).cloned());
    pruned.bytes_freed = plan.bytes_freed;
    let decided = places.iter().zip(&plan.decisions).map(|(&at, fate)| (&inventory.sets[at], fate));
    let decided = decided.filter(|(set, _)| meant.contains(&set.record.backup_set_id));
    pruned.sets = decided.map(|(set, decided)| decision(set, &names, decided)).collect();
    let needs = kept.iter().filter_map(|set| Some((set.backup_set_id, set.base?))).collect();
    Ok(Planned { inventory, places, plan, needs })
}

/// These sets and all their dependants, of whichever database: an encrypted set without a record has no known database.
fn with_dependants(mut ids: HashSet<Uuid>, sets: &[StoredSet]) -> HashSet<Uuid> {
    let mut dependants: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
    for record in sets.iter().map(|set| &set.record) {
        if let Some(base) = record.base {
            dependants.entry(base).or_default().push(record.backup_set_id);
        }
    }
    let mut ahead: Vec<Uuid> = ids.iter().copied().collect();
    while let Some(id) = ahead.pop() {
        let on_it = dependants.get(&id).into_iter().flatten().copied();
        ahead.extend(on_it.filter(|&dependant| ids.insert(dependant)));
    }
    ids
}

/// A log set that holds the end of a newer full needs this full, and no set before it: else one row of log sets would keep
/// the first full for ever.
fn found_on_newer_fulls(kept: &mut [KeptSet], sets: &[&StoredSet], outlives_fulls: impl Fn(&str) -> bool) {
    let found: Vec<_> = sets.iter().map(|set| set.found()).collect();
    // Tombstones are those of this prune: it decides about all sets in the same way again. A full that nobody has read must
    // not take the place of one that was verified.
    let may_be = |at: usize| sets[at].is_verified() && !sets[at].record.copy_only;
    // Elsewhere each log set needs the full that it names.
    let founded = chain::foundations(&found, may_be).into_iter();
    for (log, base) in founded.filter(|(log, _)| outlives_fulls(&sets[*log].record.engine)) {
        kept[log].base = Some(kept[base].backup_set_id);
    }
}

fn kept_set(set: &StoredSet, names: &Names<'_>, leases: &[(Uuid, String)]) -> KeptSet {
    let record = &set.record;
    KeptSet {
        backup_set_id: record.backup_set_id,
        kind: record.kind,
        base: record.base,
        database: on_its_line(&format!("{} {}", record.engine, names.name(record))),
        copy_only: record.copy_only,
        started_at: set.shows_until(),
        finished_at: Some(set.stored_at),
        bytes: set.stored_bytes(),
        complete: set.incomplete.is_none(),
        unfinished: false,
        unknown: record.database.is_empty(),
        verified_at: set.verified_at,
        failed_at: set.failed_at,
        locked_until: None,
        leased_by: leases.iter().find(|(id, _)| *id == record.backup_set_id).map(|(_, who)| who.clone()),
        // A tombstone is of this prune or of a dead one: in both cases the rules decide again.
        tombstoned: false,
    }
}

fn decision(set: &StoredSet, names: &Names<'_>, decided: &KeepOrDelete) -> SetDecision {
    let reasons = match decided {
        KeepOrDelete::Keep(reasons) => reasons.iter().map(ToString::to_string).collect(),
        KeepOrDelete::Delete => Vec::new(),
    };
    SetDecision {
        backup_set_id: set.record.backup_set_id.to_string(),
        kind: set.record.kind.to_string(),
        engine: set.record.engine.clone(),
        host: set.record.host.clone(),
        database: names.name(&set.record),
        started_at: show_time(set.record.started_at),
        stored_bytes: set.stored_bytes(),
        codec: set.record.codec.clone(),
        encrypted: set.record.encrypted,
        delete: *decided == KeepOrDelete::Delete,
        reasons,
    }
}

/// Refuses if another prune runs: each would take the tombstones of the other for its own.
fn refuse_another(repository: &Repository, task: &Task, now: i64) -> Result<()> {
    let known = tasks(repository, now)?;
    let runs = |other: &&KnownTask| other.record.verb == "prune" && other.record.state.is_open() && !other.is_dead(now);
    match known.iter().filter(runs).find(|other| other.record.task != task.id()) {
        None => Ok(()),
        Some(other) => {
            let why = format!("another prune runs: {}", other.title());
            let id = other.record.task;
            let end = format!("end it with `fullbore cancel {id} --repo {}`", repository.name);
            Err(Error::refused("prune", why, format!("wait until it has ended, or {end}")))
        }
    }
}

/// The error if this prune slept for longer than its lease.
fn taken_over(set: &StoredSet, name: &str) -> Error {
    let why = "this prune was silent for longer than its lease, and another prune has meanwhile decided about this set";
    Error::refused(super::title(&set.record), why, format!("look at `fullbore tasks --repo {name}`, and prune again"))
}

fn wait(grace: Duration, conduct: &Conduct) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < grace {
        conduct.check()?;
        std::thread::sleep(TICK.min(grace));
    }
    conduct.check()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
