//! Removes sets with a tombstone, and the leftovers of dead runs, from a repository.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::time::Duration;

use fullbore_core::device::{Destination, Device};
use fullbore_core::sink::{CLAIM, LeftoverKind, leftovers};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::prune::{Pruned, is_of_one_set};
use crate::job::names;
use fullbore_repository::Repository;
use fullbore_repository::discovery;
use fullbore_repository::format::{
    self, Decision, FamilyRecord, SetRecord, TaskRecord, TaskState, TombstoneRecord, cancel_name, set_name, task_name,
    tombstone_name,
};
use fullbore_repository::inventory::{Inventory, KnownTask, StoredSet, is_of_one_record, tasks};
use fullbore_repository::records::remove_file;
use fullbore_repository::task::decide;

/// How long the records of ended runs are kept, in microseconds. A host may sleep that long and still learn that its
/// files were removed.
const REMEMBERED: i64 = 90 * 86_400 * 1_000_000;

/// The message about locked leftovers of a run.
pub(super) const LOCKED: &str = "its files are locked; a later prune removes them";

/// What happened to the set of a run that has died, or failed.
pub(super) enum Left {
    /// The decision was not `committed`, and cannot become that any more: its files were removed.
    Removed,
    /// The decision was `committed`, but the commit did not happen: its files were removed.
    Uncommitted,
    /// It had committed its set, which stays.
    Set,
    /// It was a copy, and another copy continues it.
    Copied,
    /// Its files are not a set, but locked: they stay for now.
    Locked,
}

impl Left {
    /// The message for a run whose host died.
    fn of_the_dead(&self) -> &'static str {
        match self {
            Left::Removed => "its files were removed",
            Left::Uncommitted => "it was interrupted during commit: its files were removed",
            Left::Set => "it had committed its set",
            Left::Copied => "another copy continues it",
            Left::Locked => LOCKED,
        }
    }
}

/// True for an error that may concern the leftovers of one run only.
pub(super) fn is_of_one_run(error: &Error) -> bool {
    is_of_one_set(error) && !error.is_lack_of_room() && !error.is_exhaustion()
}

/// Removes files and records for a prune.
pub(super) struct Sweeper<'a> {
    repository: &'a Repository,
    /// The prune.
    task: Uuid,
    /// When it began, in microseconds since 1970 by the store's clock.
    began: i64,
    /// The names of all verdicts, listed once: there may be many sets to remove.
    verdicts: OnceCell<Vec<String>>,
}

impl<'a> Sweeper<'a> {
    /// For this prune.
    pub(super) fn new(repository: &'a Repository, task: Uuid, began: i64) -> Self {
        Self { repository, task, began, verdicts: OnceCell::new() }
    }

    /// All known runs.
    pub(super) fn runs(&self) -> Result<Vec<KnownTask>> {
        tasks(self.repository, self.began)
    }

    /// When this prune began.
    pub(super) fn began(&self) -> i64 {
        self.began
    }

    /// The repository.
    pub(super) fn repository(&self) -> &Repository {
        self.repository
    }

    /// Writes the tombstone of a set, before anything of the set is removed.
    pub(super) fn bury(&self, set: &StoredSet) -> Result<()> {
        let (task, host, families) = (self.task, fullbore_core::resources::host(), set.record.families.clone());
        let tombstone = TombstoneRecord { task, host, media_set_id: Some(set.record.media_set_id), families };
        // Replaces the tombstone of a dead prune, so that it names this prune.
        self.repository.records.write(&tombstone_name(set.record.backup_set_id), &format::encode(&tombstone)?)
    }

    /// True when the set has a tombstone, and this prune has written it.
    pub(super) fn has_own_tombstone(&self, set: &StoredSet) -> Result<bool> {
        let tombstone: Option<TombstoneRecord> = self.repository.read(&tombstone_name(set.record.backup_set_id))?;
        Ok(tombstone.is_some_and(|tombstone| tombstone.task == self.task))
    }

    /// Removes a set: its commit record first, so that it never looks whole while parts are missing.
    pub(super) fn remove(&self, set: &StoredSet) -> Result<()> {
        let of = Whose { set: set.record.backup_set_id, media: Some(set.record.media_set_id) };
        self.remove_families(&set.record.families, of)?;
        self.forget(set.record.backup_set_id)
    }

    /// Takes back the tombstone of a set that is still whole.
    pub(super) fn spare(&self, set: &StoredSet) -> Result<()> {
        match self.has_commit_record(&set.record.families)? {
            true => self.repository.records.remove(&tombstone_name(set.record.backup_set_id)),
            false => Ok(()),
        }
    }

    /// True when the first of these families is there.
    fn has_commit_record(&self, families: &[FamilyRecord]) -> Result<bool> {
        families.first().map_or(Ok(false), |first| self.repository.holds(first))
    }

    /// Removes the families of a set. Removes nothing if one of them is of another set: a record may be forged.
    fn remove_families(&self, families: &[FamilyRecord], of: Whose) -> Result<()> {
        families.iter().try_for_each(|family| of.refuse_another(family, self.repository))?;
        let devices = self.devices(families)?;
        // Checks all families before it removes the first one: a lock on one family is meant for its set.
        devices.iter().try_for_each(|device| refuse_locked(device, self.repository))?;
        devices.iter().try_for_each(|device| remove_device(device, self.repository))
    }

    fn devices(&self, families: &[FamilyRecord]) -> Result<Vec<Device>> {
        families.iter().map(|family| family.device(&self.repository.places)).collect()
    }

    /// Removes the records of a set whose families are removed; its tombstone last.
    fn forget(&self, id: Uuid) -> Result<()> {
        let records = &self.repository.records;
        records.remove(&set_name(id))?;
        for name in self.verdicts_on(id)? {
            records.remove(&format!("verdicts/{name}"))?;
        }
        records.remove(&self.repository.decision_name(id))?;
        records.remove(&tombstone_name(id))
    }

    /// Handles a tombstone of an earlier prune: takes it back if its set stays, or finishes the removal.
    pub(super) fn take_back_or_finish(&self, id: Uuid, inventory: &Inventory, pruned: &mut Pruned) -> Result<()> {
        let name = tombstone_name(id);
        let Some(tombstone): Option<TombstoneRecord> = self.repository.read(&name)? else { return Ok(()) };
        let known = inventory.sets.iter().find(|set| set.record.backup_set_id == id);
        match known {
            Some(set) if set.incomplete.is_none() => {
                pruned.notes.push(format!("{} stays: its tombstone was taken back", super::title(&set.record)));
                self.repository.records.remove(&name)
            }
            // Its commit record was removed first: it is not a backup any more.
            _ => {
                if self.has_commit_record(&tombstone.families)? {
                    pruned
                        .warnings
                        .push(format!("set {id} has a tombstone and a commit record, but is incomplete: look at it"));
                    return Ok(());
                }
                self.remove_families(&tombstone.families, Whose { set: id, media: tombstone.media_set_id })?;
                pruned.deleted.push(id.to_string());
                self.forget(id)
            }
        }
    }

    /// For a run that was silent for longer than its lease and depends on sets to remove: decides that its set is never
    /// committed. If the set is committed already, returns its bases, which stay.
    pub(super) fn outdated(&self, task: &KnownTask, doomed: &HashSet<Uuid>, now: i64) -> Result<Vec<(Uuid, String)>> {
        let needed: Vec<Uuid> = task.record.needs.iter().copied().filter(|id| doomed.contains(id)).collect();
        let (false, true, Some(writes)) = (needed.is_empty(), task.is_dead(now), task.record.decision()) else {
            return Ok(Vec::new());
        };
        match decide(self.repository, writes, Decision::Removed, self.task) {
            Ok(Decision::Removed) => Ok(Vec::new()),
            Ok(Decision::Committed) => Ok(needed.into_iter().map(|id| (id, task.title())).collect()),
            // The decision cannot be read: the run may have been allowed to commit.
            Err(error) if is_of_one_record(&error) => Ok(needed.into_iter().map(|id| (id, task.title())).collect()),
            Err(error) => Err(error),
        }
    }

    /// Ends the runs whose host died, and removes their leftovers. If that fails for one run, its files stay, and the
    /// next prune tries again: its record may be forged or damaged.
    pub(super) fn end_dead_runs(&self, grace: Duration, pruned: &mut Pruned) -> Result<()> {
        let now = self.began;
        for task in self.runs()?.iter().filter(|task| task.is_dead(now)) {
            if task.silent(now) <= task.lease() + grace {
                pruned.dead_runs.push(format!(
                    "{}: silent for longer than its lease; left alone for the grace period",
                    task.title()
                ));
                continue;
            }
            let left = match task.record.decision() {
                None => "it left no files",
                Some(decision) => match self.settle(decision, &task.record) {
                    Err(error) if is_of_one_run(&error) => {
                        let why = error.one_line();
                        pruned.warnings.push(format!("{}: its host died; its files stay: {why}", task.title()));
                        continue;
                    }
                    left => left?.of_the_dead(),
                },
            };
            pruned.dead_runs.push(format!("{}: its host died; {left}", task.title()));
            let mut record = task.record.clone();
            (record.state, record.ended_at) = (TaskState::Error, Some(jiff::Timestamp::now().to_string()));
            record.error = Some(format!("its host was silent for {} s", task.silent(now).as_secs()));
            record.needs.clear();
            let records = &self.repository.records;
            records.write(&task_name(record.task), &format::encode(&record)?)?;
            records.remove(&cancel_name(record.task))?;
        }
        Ok(())
    }

    /// Decides about a set whose run has ended, and removes its files if they are not a set.
    pub(super) fn settle(&self, set: Uuid, task: &TaskRecord) -> Result<Left> {
        if self.was_committed(task)? {
            // Whatever its record says: the record may be forged, and the decision about the set may be lost.
            decide(self.repository, set, Decision::Committed, self.task)?;
            return Ok(Left::Set);
        }
        match decide(self.repository, set, Decision::Removed, self.task)? {
            Decision::Removed if self.is_copied_by_another(task)? => Ok(Left::Copied),
            Decision::Removed => self.remove_leftovers(task, Left::Removed),
            Decision::Committed => self.settle_committed(task),
        }
    }

    /// True when a set has its record.
    pub(super) fn is_described(&self, set: Uuid) -> Result<bool> {
        Ok(self.repository.records.read(&set_name(set))?.is_some())
    }

    /// True when something else than the record of its run shows that a set was committed: its own record, a verdict on
    /// it, or its commit record. For a copy only the last counts: the others may be of another copy.
    fn was_committed(&self, task: &TaskRecord) -> Result<bool> {
        let Some(set) = task.writes else { return Ok(false) };
        if task.attempt.is_none() && (self.is_described(set)? || !self.verdicts_on(set)?.is_empty()) {
            return Ok(true);
        }
        let Some(first) = task.families.first() else { return Ok(false) };
        let family = discovery::family_at(&first.device(&self.repository.places)?, &self.repository.stores)?;
        Ok(family.is_some_and(|family| {
            let is_commit_record = family.footer().is_some_and(|footer| footer.commit.is_some());
            is_commit_record && family.header().set.backup_set_id == set
        }))
    }

    /// The names of the verdicts on a set.
    fn verdicts_on(&self, set: Uuid) -> Result<Vec<&String>> {
        if self.verdicts.get().is_none() {
            let names = self.repository.records.list("verdicts/")?.into_iter().map(|entry| entry.name);
            let _ = self.verdicts.set(names.collect()); // Once.
        }
        let of_it = set.to_string();
        Ok(self.verdicts.get().into_iter().flatten().filter(|name| name.starts_with(&of_it)).collect())
    }

    /// Removes the families of a run that never committed, under their names and their working names. Returns
    /// `removed`, unless one of them is locked.
    fn remove_leftovers(&self, record: &TaskRecord, removed: Left) -> Result<Left> {
        if self.is_recorded(record)? {
            return Ok(removed);
        }
        record.families.iter().try_for_each(|family| self.remove_working_names(family))?;
        self.abort_uploads(record)?;
        // In a store, only the claim of an unfinished object is visible.
        let Some(set) = record.writes else { return Ok(removed) };
        let devices = self.devices(&record.families)?;
        for device in &devices {
            if let Destination::Object { bucket, key } = device.place()
                && self.repository.stores.bucket(bucket)?.locked(key)?.by.is_some()
            {
                return Ok(Left::Locked);
            }
        }
        let of = Whose { set, media: None };
        record.families.iter().try_for_each(|family| of.refuse_another(family, self.repository))?;
        devices.iter().try_for_each(|device| remove_device(device, self.repository))?;
        Ok(removed)
    }

    /// True of a copy while another run writes the same set: its families have the same names.
    fn is_copied_by_another(&self, task: &TaskRecord) -> Result<bool> {
        let same = |other: &TaskRecord| other.task != task.task && other.state.is_open() && other.writes == task.writes;
        Ok(task.attempt.is_some() && self.runs()?.iter().any(|other| same(&other.record)))
    }

    /// True when these families belong to a set with a record: another run has made the same copy meanwhile.
    fn is_recorded(&self, record: &TaskRecord) -> Result<bool> {
        let Some(set) = record.writes.filter(|_| record.attempt.is_some()) else { return Ok(false) };
        let known: Option<SetRecord> = self.repository.read(&set_name(set))?;
        let ours = |family: &FamilyRecord| {
            record.families.iter().any(|own| (own.place, &own.name) == (family.place, &family.name))
        };
        Ok(known.is_some_and(|known| known.families.iter().any(ours)))
    }

    /// For a run with the decision `committed` that has ended: finds whether it committed, and makes sure that it cannot
    /// any more.
    fn settle_committed(&self, record: &TaskRecord) -> Result<Left> {
        let Some(first) = record.families.first() else { return Ok(Left::Set) };
        // First removes the working names and uploads: then a late rename or completion fails.
        self.remove_working_names(first)?;
        self.abort_uploads(record)?;
        if self.has_commit_record(&record.families)? {
            return Ok(Left::Set);
        }
        self.remove_leftovers(record, Left::Uncommitted)
    }

    fn remove_working_names(&self, family: &FamilyRecord) -> Result<()> {
        let device = family.device(&self.repository.places)?;
        let Some(path) = device.path() else { return Ok(()) };
        let working = leftovers(path)?.into_iter().filter(|leftover| leftover.kind == LeftoverKind::New);
        working.map(|leftover| leftover.path).try_for_each(|path| remove_file(&path))
    }

    /// Aborts unfinished uploads: their parts cost money, and no listing shows them.
    fn abort_uploads(&self, record: &TaskRecord) -> Result<()> {
        for family in &record.families {
            let device = family.device(&self.repository.places)?;
            let Destination::Object { bucket, key } = device.place() else { continue };
            let bucket = self.repository.stores.bucket(bucket)?;
            for unfinished in bucket.unfinished_uploads(key)?.iter().filter(|unfinished| unfinished.key == *key) {
                bucket.abort(key, &unfinished.upload)?;
            }
        }
        Ok(())
    }

    /// Removes the records of runs that ended long ago, and the decisions about sets that were never committed.
    pub(super) fn forget_old_runs(&self) -> Result<()> {
        let (records, now) = (&self.repository.records, self.began);
        for task in self.runs()?.iter().filter(|task| !task.record.state.is_open()) {
            if now.saturating_sub(task.written_at) < REMEMBERED {
                continue;
            }
            let name = task_name(task.record.task);
            let of_no_set = task.record.attempt.is_some() || task.record.state != TaskState::Success;
            if let Some(decision) = task.record.decision().filter(|_| of_no_set) {
                records.remove(&self.repository.decision_name(decision))?;
            }
            let given_up = task.record.given_up.iter();
            given_up
                .map(|given_up| self.repository.decision_name(given_up.set))
                .try_for_each(|name| records.remove(&name))?;
            records.remove(&name)?;
        }
        Ok(())
    }
}

/// The set that a family has to belong to.
#[derive(Clone, Copy)]
struct Whose {
    set: Uuid,
    /// Known from a record; a family with a damaged header has it in its name.
    media: Option<Uuid>,
}

impl Whose {
    /// Refuses a file or an object that does not belong to the set. A missing one is fine.
    fn refuse_another(&self, family: &FamilyRecord, repository: &Repository) -> Result<()> {
        let device = family.device(&repository.places)?;
        if !repository.holds(family)? {
            return Ok(());
        }
        let header = discovery::header_on(&device, &repository.stores)?;
        let named = match self.media {
            Some(id) if names::contain(&family.name, id) => true,
            // A template may join the id with other text: then the recorded length counts too.
            Some(id) => names::may_contain(&family.name, id) && repository.length(family)? == Some(family.bytes),
            None => false,
        };
        let why = match header {
            Some(header) if header.set.backup_set_id == self.set => return Ok(()),
            Some(header) => {
                let holds = header.set.backup_set_id;
                format!("belongs to backup set {holds}, but the record of backup set {} lists it", self.set)
            }
            None if named => return Ok(()),
            None => format!("is not a backup file, but the record of backup set {} lists it", self.set),
        };
        let name = &repository.name;
        let hint = format!(
            "the record was forged or damaged: look at it; `fullbore catalog rebuild --repo {name}` records what is there"
        );
        Err(Error::incomplete(device.to_string(), why, hint))
    }
}

/// Refuses a locked object: a store with versions accepts its removal, and hides the object that it must keep.
fn refuse_locked(device: &Device, repository: &Repository) -> Result<()> {
    match device.place() {
        Destination::Object { bucket, key } => repository.stores.bucket(bucket)?.refuse_locked(key),
        _ => Ok(()),
    }
}

/// Removes a family, and the claim on its key. A missing one is fine.
fn remove_device(device: &Device, repository: &Repository) -> Result<()> {
    match device.place() {
        Destination::Object { bucket, key } => {
            let bucket = repository.stores.bucket(bucket)?;
            bucket.remove(key)?;
            bucket.remove(&format!("{key}{CLAIM}"))
        }
        _ => match device.path() {
            Some(path) => remove_file(path),
            None => Err(Error::refused(
                device.to_string(),
                "is not a family of a repository",
                "this is a defect: please report it",
            )),
        },
    }
}
