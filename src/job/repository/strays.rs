//! Removes the leftovers of runs that ended but could not tidy up, because the store was away: claims, unfinished
//! uploads, families, and short-lived records. Every run records its families before it makes any of them.

use std::collections::HashSet;

use fullbore_core::Result;
use fullbore_core::device::Destination;
use fullbore_core::sink::CLAIM;
use fullbore_core::store::Upload;
use uuid::Uuid;

use super::prune::Pruned;
use super::sweep::{LOCKED, Left, Sweeper, is_of_one_run};
use fullbore_repository::format::{FamilyRecord, TaskRecord, TaskState, cancel_name};
use fullbore_repository::inventory::{KnownTask, StoredSet};
use fullbore_repository::records::list_place;

/// The age at which a short-lived record is removed, in microseconds: longer than its few requests may take.
const FLEETING: i64 = 3_600 * 1_000_000;
/// Records that their writer removes: folder, and beginning of the name.
const FLEETING_RECORDS: [(&str, &str); 2] = [("clock/", ""), ("", "probe-")];

/// The files and objects in the places of a repository, and the unfinished uploads there.
pub(super) struct Listing {
    names: HashSet<(usize, String)>,
    uploads: Vec<(usize, String, Upload)>,
    /// The sets that open runs write, including copies of sets that were here before: the files beside their families
    /// belong to these runs.
    written: HashSet<Uuid>,
}

impl Listing {
    fn take(sweeper: &Sweeper<'_>) -> Result<Self> {
        let repository = sweeper.repository();
        let (mut names, mut uploads) = (HashSet::new(), Vec::new());
        for (at, place) in repository.places.iter().enumerate() {
            let entries = list_place(place, &repository.stores)?;
            names.extend(entries.into_iter().map(|entry| (at, entry.name)));
            let Destination::Prefix { bucket, prefix } = place.place() else { continue };
            for unfinished in repository.stores.bucket(bucket)?.unfinished_uploads(prefix)? {
                let name = unfinished.key[prefix.len()..].to_owned();
                // A deeper key is in another place, or not ours.
                if !name.contains('/') {
                    uploads.push((at, name, unfinished.upload));
                }
            }
        }
        Ok(Self { names, uploads, written: HashSet::new() })
    }

    /// True if the family is there, under its own name or (in a directory) under its working name.
    fn has_family(&self, family: &FamilyRecord) -> bool {
        let working = format!("{}.new-", family.name);
        self.has(family, "")
            || self.names.iter().any(|(place, name)| *place == family.place && name.starts_with(&working))
    }

    fn has(&self, family: &FamilyRecord, end: &str) -> bool {
        self.names.contains(&(family.place, format!("{}{end}", family.name)))
    }

    /// True if a claim or an unfinished upload is beside it, which its writer should have removed.
    fn is_beside(&self, family: &FamilyRecord) -> bool {
        self.has(family, CLAIM) || self.uploads_of(family).next().is_some()
    }

    fn uploads_of<'a>(&'a self, family: &'a FamilyRecord) -> impl Iterator<Item = &'a Upload> {
        let of_it = |of: &&(usize, String, Upload)| of.0 == family.place && of.1 == family.name;
        self.uploads.iter().filter(of_it).map(|(_, _, upload)| upload)
    }
}

impl Sweeper<'_> {
    /// Removes the leftovers of ended runs. If that fails for one run, its files stay: its record may be forged or
    /// damaged.
    pub(super) fn remove_strays(&self, pruned: &mut Pruned) -> Result<Listing> {
        // First the files, then the runs: so the files of a run that begins in between are not taken for leftovers.
        let mut listing = Listing::take(self)?;
        let cancelled = self.repository().records.list("tasks/")?.into_iter().map(|entry| entry.name);
        let cancelled: HashSet<String> = cancelled.filter(|name| name.ends_with(".cancel")).collect();
        let tasks = self.runs()?;
        listing.written =
            tasks.iter().filter(|task| task.record.state.is_open()).filter_map(|task| task.record.writes).collect();
        // The sets that open runs gave up.
        for (task, given_up) in tasks.iter().flat_map(|task| task.record.given_up.iter().map(move |set| (task, set))) {
            let record = TaskRecord {
                writes: Some(given_up.set),
                attempt: None,
                families: given_up.families.clone(),
                state: TaskState::Error,
                ..task.record.clone()
            };
            self.tidy_up(task, &record, "a set that it gave up", &listing, pruned)?;
        }
        for task in tasks.iter().filter(|task| !task.record.state.is_open()) {
            let cancel = cancel_name(task.record.task);
            if cancelled.contains(cancel.trim_start_matches("tasks/")) {
                self.repository().records.remove(&cancel)?;
            }
            self.tidy_up(task, &task.record, "it ended, but could not tidy up", &listing, pruned)?;
        }
        self.remove_fleeting_records(self.began())?;
        Ok(listing)
    }

    fn tidy_up(
        &self,
        task: &KnownTask,
        record: &TaskRecord,
        what: &str,
        listing: &Listing,
        pruned: &mut Pruned,
    ) -> Result<()> {
        match self.tidy_up_after(record, listing) {
            Err(error) if is_of_one_run(&error) => {
                let why = error.one_line();
                pruned.warnings.push(format!("{}: {what}; its files stay: {why}", task.title()));
                Ok(())
            }
            done => {
                pruned.dead_runs.extend(done?.map(|left| format!("{}: {what}; {left}", task.title())));
                Ok(())
            }
        }
    }

    /// Removes the claims and uploads of a listing that are beside the families of whole sets, which need neither.
    pub(super) fn remove_beside(&self, sets: &[StoredSet], listing: &Listing) -> Result<()> {
        let whole = sets.iter().filter(|set| set.recorded && set.incomplete.is_none());
        for set in whole.filter(|set| !listing.written.contains(&set.record.backup_set_id)) {
            self.clear_beside(&set.record.families, listing)?;
        }
        Ok(())
    }

    fn clear_beside(&self, families: &[FamilyRecord], listing: &Listing) -> Result<()> {
        for family in families.iter().filter(|family| listing.is_beside(family)) {
            let device = family.device(&self.repository().places)?;
            let Destination::Object { bucket, key } = device.place() else { continue };
            let bucket = self.repository().stores.bucket(bucket)?;
            listing.uploads_of(family).try_for_each(|upload| bucket.abort(key, upload))?;
            if listing.has(family, CLAIM) {
                bucket.remove(&format!("{key}{CLAIM}"))?;
            }
        }
        Ok(())
    }

    /// What was removed, if anything.
    fn tidy_up_after(&self, task: &TaskRecord, listing: &Listing) -> Result<Option<&'static str>> {
        let (Some(set), Some(decision)) = (task.writes, task.decision()) else { return Ok(None) };
        if listing.written.contains(&set) {
            return Ok(None);
        }
        // With its commit record it is a set, whatever the record of the run says.
        let is_committed = task.families.first().is_some_and(|first| listing.has(first, ""));
        if !is_committed
            && task.state != TaskState::Success
            && task.families.iter().any(|family| listing.is_beside(family) || listing.has_family(family))
            && !self.is_described(set)?
        {
            return match self.settle(decision, task)? {
                Left::Removed | Left::Uncommitted => Ok(Some("its files were removed")),
                Left::Set => Ok(Some("its set was committed nevertheless, and stays")),
                Left::Copied => Ok(None),
                Left::Locked => Ok(Some(LOCKED)),
            };
        }
        if !task.families.iter().any(|family| listing.is_beside(family)) {
            return Ok(None);
        }
        self.clear_beside(&task.families, listing)?;
        Ok(Some("the claims and uploads beside its set were removed"))
    }

    fn remove_fleeting_records(&self, now: i64) -> Result<()> {
        let records = &self.repository().records;
        for (folder, begins) in FLEETING_RECORDS {
            let old = records.list(folder)?.into_iter();
            let old = old.filter(|entry| entry.name.starts_with(begins) && now - entry.modified > FLEETING);
            old.map(|entry| format!("{folder}{}", entry.name)).try_for_each(|name| records.remove(&name))?;
        }
        records.remove_unfinished(now - FLEETING)
    }
}
