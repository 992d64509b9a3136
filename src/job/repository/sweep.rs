//! Removing what may go from a repository: sets with a tombstone, and what dead runs have left.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::time::Duration;

use fullbore_core::device::{Device, Place};
use fullbore_core::sink::{CLAIM, LeftoverKind, leftovers};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::prune::Pruned;
use crate::job::{media, names};
use crate::repository::Repository;
use crate::repository::format::{
    self, FamilyRecord, Fate, SetRecord, TaskRecord, TaskState, TombstoneRecord, cancel_name, fate_name, set_name,
    task_name, tombstone_name,
};
use crate::repository::inventory::{Inventory, KnownTask, StoredSet, tasks};
use crate::repository::records::remove_file;
use crate::repository::task::decide;

/// For how long the ends of runs are remembered, in microseconds: and for how long a host may sleep and still be told that what it
/// wrote was removed.
const REMEMBERED: i64 = 90 * 86_400 * 1_000_000;

/// What became of the set of a run that has died, or failed.
pub(super) enum Left {
    /// It had no leave to commit, and cannot get it any more: what it has left is gone.
    Removed,
    /// It had leave, and had not committed: the same.
    Uncommitted,
    /// It had committed its set, which stays.
    Set,
    /// It was a copy, and another one goes on with it.
    Copied,
}

/// Who removes.
pub(super) struct Sweeper<'a> {
    repository: &'a Repository,
    /// The prune.
    task: Uuid,
    /// The names of all verdicts, once they were asked for: many sets may go.
    verdicts: OnceCell<Vec<String>>,
}

impl<'a> Sweeper<'a> {
    /// Who removes on behalf of this prune.
    pub(super) fn new(repository: &'a Repository, task: Uuid) -> Self {
        Self { repository, task, verdicts: OnceCell::new() }
    }

    /// Where it removes.
    pub(super) fn repository(&self) -> &Repository {
        self.repository
    }

    /// Says that a set is to go, before anything of it goes.
    pub(super) fn bury(&self, set: &StoredSet) -> Result<()> {
        let (task, host, families) = (self.task, crate::job::host(), set.record.families.clone());
        let tombstone = TombstoneRecord { task, host, media_set_id: Some(set.record.media_set_id), families };
        // Over that of a dead prune: who asks is told who removes it now.
        self.repository.records.write(&tombstone_name(set.record.backup_set_id), &format::encode(&tombstone)?)
    }

    /// True when the tombstone of a set is the one that this prune has written, and not another's, or none.
    pub(super) fn has_own_tombstone(&self, set: &StoredSet) -> Result<bool> {
        let tombstone: Option<TombstoneRecord> = self.repository.read(&tombstone_name(set.record.backup_set_id))?;
        Ok(tombstone.is_some_and(|tombstone| tombstone.task == self.task))
    }

    /// Removes a set: its commit record first, so that there is no moment at which it looks whole and is not.
    pub(super) fn remove(&self, set: &StoredSet) -> Result<()> {
        let of = Whose { set: set.record.backup_set_id, media: Some(set.record.media_set_id) };
        self.remove_families(&set.record.families, of)?;
        self.forget(set.record.backup_set_id)
    }

    /// Takes the tombstone of a set back that is whole still.
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

    /// Removes the families of a set, and of no other. Nothing goes when one of them is another's: what a record says may be forged.
    fn remove_families(&self, families: &[FamilyRecord], of: Whose) -> Result<()> {
        families.iter().try_for_each(|family| of.refuse_another(family, self.repository))?;
        families.iter().try_for_each(|family| remove_device(&family.device(&self.repository.places)?, self.repository))
    }

    /// Removes the records of a set whose families are gone; its tombstone last.
    fn forget(&self, id: Uuid) -> Result<()> {
        let records = &self.repository.records;
        records.remove(&set_name(id))?;
        if self.verdicts.get().is_none() {
            let names = records.list("verdicts/")?.into_iter().map(|entry| entry.name);
            let _ = self.verdicts.set(names.collect()); // Once.
        }
        let of_it = id.to_string();
        for name in self.verdicts.get().into_iter().flatten().filter(|name| name.starts_with(&of_it)) {
            records.remove(&format!("verdicts/{name}"))?;
        }
        records.remove(&fate_name(id))?;
        records.remove(&tombstone_name(id))
    }

    /// A tombstone of an earlier prune: its set stays after all, or went and left the tombstone.
    pub(super) fn take_back_or_finish(&self, id: Uuid, inventory: &Inventory, pruned: &mut Pruned) -> Result<()> {
        let name = tombstone_name(id);
        let Some(tombstone): Option<TombstoneRecord> = self.repository.read(&name)? else { return Ok(()) };
        let known = inventory.sets.iter().find(|set| set.record.backup_set_id == id);
        match known {
            Some(set) if set.incomplete.is_none() => {
                pruned.notes.push(format!("{} stays: its tombstone was taken back", super::title(&set.record)));
                self.repository.records.remove(&name)
            }
            // Its commit record went first: it is no backup any more.
            _ => {
                if self.has_commit_record(&tombstone.families)? {
                    pruned.warnings.push(format!(
                        "set {id} was to be removed, is not whole, and has its commit record: look at it"
                    ));
                    return Ok(());
                }
                self.remove_families(&tombstone.families, Whose { set: id, media: tombstone.media_set_id })?;
                pruned.deleted.push(id.to_string());
                self.forget(id)
            }
        }
    }

    /// Of a run that was silent for longer than its lease and builds on what is to go: the set that it may still commit is refused
    /// beforehand. What it has committed keeps its base.
    pub(super) fn outdated(&self, task: &KnownTask, doomed: &HashSet<Uuid>, now: i64) -> Result<Vec<(Uuid, String)>> {
        let needed: Vec<Uuid> = task.record.needs.iter().copied().filter(|id| doomed.contains(id)).collect();
        let (false, true, Some(writes)) = (needed.is_empty(), task.is_dead(now), task.record.fate()) else {
            return Ok(Vec::new());
        };
        match decide(self.repository, writes, Fate::Removed, self.task)? {
            Fate::Removed => Ok(Vec::new()),
            Fate::Committed => Ok(needed.into_iter().map(|id| (id, task.title())).collect()),
        }
    }

    /// Ends the runs whose host died, and removes what they have left.
    pub(super) fn end_dead_runs(&self, grace: Duration, now: i64, said: &mut Vec<String>) -> Result<()> {
        for task in tasks(self.repository)?.iter().filter(|task| task.is_dead(now)) {
            if task.silent(now) <= task.lease() + grace {
                said.push(format!(
                    "{}: silent for longer than its lease; left alone for the time of grace",
                    task.title()
                ));
                continue;
            }
            let left = match task.record.fate() {
                None => "it has left nothing",
                Some(fate) => match self.settle(fate, &task.record)? {
                    Left::Removed => "what it has left was removed",
                    Left::Uncommitted => "it had come to its commit, and no further: what it has left was removed",
                    Left::Set => "it had committed its set",
                    Left::Copied => "another copy goes on with it",
                },
            };
            said.push(format!("{}: its host died; {left}", task.title()));
            let mut record = task.record.clone();
            (record.state, record.ended_at) = (TaskState::Error, Some(jiff::Timestamp::now().to_string()));
            record.error = Some(format!("its host was not heard of for {} s", task.silent(now).as_secs()));
            record.needs.clear();
            let records = &self.repository.records;
            records.write(&task_name(record.task), &format::encode(&record)?)?;
            records.remove(&cancel_name(record.task))?;
        }
        Ok(())
    }

    /// Decides what becomes of the set that a run was writing which does so no more, and removes what is none.
    pub(super) fn settle(&self, set: Uuid, task: &TaskRecord) -> Result<Left> {
        match decide(self.repository, set, Fate::Removed, self.task)? {
            Fate::Removed if self.is_copied_by_another(task)? => Ok(Left::Copied),
            Fate::Removed => {
                self.remove_leftovers(task)?;
                Ok(Left::Removed)
            }
            Fate::Committed if self.ends_uncommitted(task)? => Ok(Left::Uncommitted),
            Fate::Committed => Ok(Left::Set),
        }
    }

    /// True when a set has its record.
    pub(super) fn is_described(&self, set: Uuid) -> Result<bool> {
        Ok(self.repository.records.read(&set_name(set))?.is_some())
    }

    /// The families of a run that never committed, under their names and their working names.
    fn remove_leftovers(&self, record: &TaskRecord) -> Result<()> {
        if self.is_recorded(record)? {
            return Ok(());
        }
        record.families.iter().try_for_each(|family| self.remove_working_names(family))?;
        self.abort_uploads(record)?;
        // In a store nothing of an unfinished object shows but its claim.
        let Some(set) = record.writes else { return Ok(()) };
        self.remove_families(&record.families, Whose { set, media: None })
    }

    /// True of a copy while another run writes the same set: its families have the same names.
    fn is_copied_by_another(&self, task: &TaskRecord) -> Result<bool> {
        let same = |other: &TaskRecord| other.task != task.task && other.state.is_open() && other.writes == task.writes;
        Ok(task.attempt.is_some() && tasks(self.repository)?.iter().any(|other| same(&other.record)))
    }

    /// True when these families are those of a set with a record: somebody else has made the same copy meanwhile.
    fn is_recorded(&self, record: &TaskRecord) -> Result<bool> {
        let Some(set) = record.writes.filter(|_| record.attempt.is_some()) else { return Ok(false) };
        let known: Option<SetRecord> = self.repository.read(&set_name(set))?;
        let ours = |family: &FamilyRecord| {
            record.families.iter().any(|own| (own.place, &own.name) == (family.place, &family.name))
        };
        Ok(known.is_some_and(|known| known.families.iter().any(ours)))
    }

    /// Of a run that had leave to commit: true when it never did, and cannot any more.
    fn ends_uncommitted(&self, record: &TaskRecord) -> Result<bool> {
        let Some(first) = record.families.first() else { return Ok(false) };
        // First its way to the commit goes: a rename, or a completion, that comes later has nothing to work on.
        self.remove_working_names(first)?;
        self.abort_uploads(record)?;
        if self.has_commit_record(&record.families)? {
            return Ok(false);
        }
        self.remove_leftovers(record)?;
        Ok(true)
    }

    fn remove_working_names(&self, family: &FamilyRecord) -> Result<()> {
        let device = family.device(&self.repository.places)?;
        let Some(path) = device.path() else { return Ok(()) };
        let working = leftovers(path)?.into_iter().filter(|leftover| leftover.kind == LeftoverKind::New);
        working.map(|leftover| leftover.path).try_for_each(|path| remove_file(&path))
    }

    /// Parts of objects that were never completed cost money, and nobody sees them.
    fn abort_uploads(&self, record: &TaskRecord) -> Result<()> {
        for family in &record.families {
            let device = family.device(&self.repository.places)?;
            let Place::Object { bucket, key } = device.place() else { continue };
            let bucket = self.repository.stores.bucket(bucket)?;
            for unfinished in bucket.unfinished_uploads(key)?.iter().filter(|unfinished| unfinished.key == *key) {
                bucket.abort(key, &unfinished.upload)?;
            }
        }
        Ok(())
    }

    /// Removes the records of runs that ended long ago, and what was decided about sets that never came to be.
    pub(super) fn forget_old_runs(&self, now: i64) -> Result<()> {
        let records = &self.repository.records;
        for task in tasks(self.repository)?.iter().filter(|task| !task.record.state.is_open()) {
            if now.saturating_sub(task.written_at) < REMEMBERED {
                continue;
            }
            let name = task_name(task.record.task);
            let of_no_set = task.record.attempt.is_some() || task.record.state != TaskState::Success;
            if let Some(fate) = task.record.fate().filter(|_| of_no_set) {
                records.remove(&fate_name(fate))?;
            }
            task.record.given_up.iter().try_for_each(|given_up| records.remove(&fate_name(given_up.set)))?;
            records.remove(&name)?;
        }
        Ok(())
    }
}

/// Which set a family has to be of.
#[derive(Clone, Copy)]
struct Whose {
    set: Uuid,
    /// Known where a record tells: of a family whose header is damaged its name tells it.
    media: Option<Uuid>,
}

impl Whose {
    /// An error for a file or an object that is none of the set's. What is not there is nobody's.
    fn refuse_another(&self, family: &FamilyRecord, repository: &Repository) -> Result<()> {
        let device = family.device(&repository.places)?;
        if !repository.holds(family)? {
            return Ok(());
        }
        let header = media::header_on(&device, &repository.stores)?;
        let named = self.media.is_some_and(|id| names::contain(&family.name, id));
        let why = match header {
            Some(header) if header.set.backup_set_id == self.set => return Ok(()),
            Some(header) => {
                format!("is of backup set {}, and a record calls it one of {}", header.set.backup_set_id, self.set)
            }
            None if named => return Ok(()),
            None => format!("is no family, and a record calls it one of backup set {}", self.set),
        };
        let hint = "the record was forged or damaged: look at it; `fullbore catalog rebuild` records what is there";
        Err(Error::incomplete(device.to_string(), why, hint))
    }
}

/// Removes a family, and the claim on its key. As well if there is none.
fn remove_device(device: &Device, repository: &Repository) -> Result<()> {
    match device.place() {
        Place::Object { bucket, key } => {
            let bucket = repository.stores.bucket(bucket)?;
            // A store with versions would take the removal, and hide what it must keep.
            bucket.refuse_locked(key)?;
            bucket.remove(key)?;
            bucket.remove(&format!("{key}{CLAIM}"))
        }
        _ => match device.path() {
            Some(path) => remove_file(path),
            None => Err(Error::refused(
                device.to_string(),
                "is no family of a repository",
                "this is a defect: please report it",
            )),
        },
    }
}
