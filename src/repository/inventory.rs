//! What a repository holds: its sets, whether they are whole, what was found of them, and who is using them.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fullbore_core::cipher::SecretKey;
use fullbore_core::device::{Device, Place};
use fullbore_core::media::{LogRange, Position};
use fullbore_core::pool::Pool;
use fullbore_core::sink::CLAIM;
use fullbore_core::{Error, Result};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Repository;
use super::format::{self, FORMAT, FamilyRecord, SetRecord, TaskRecord};
use super::places::{Strange, strange};
use super::records::{Entry, RECORD_MAX, list_place};
use super::task::LEASE;
use super::times::{DAY, stored_at, verdicts};
use crate::chain::{CLOCK_TOLERANCE, FoundSet};
use crate::job::media::{self, Found};
use crate::units::on_its_line;

/// For no longer than this a run may be silent, whatever its record says.
const LEASE_MOST: Duration = LEASE.saturating_mul(12);

/// A set in a repository.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredSet {
    /// What it is.
    pub record: SetRecord,
    /// Why it cannot be used, if it cannot.
    pub incomplete: Option<String>,
    /// False when it was found by its media alone.
    pub recorded: bool,
    /// When it was last read whole and found good, in microseconds since 1970 by the store's clock.
    pub verified_at: Option<i64>,
    /// When that last failed.
    pub failed_at: Option<i64>,
    /// When a restore of it was last tried and found good: to each set of the chain.
    pub proven_at: Option<i64>,
    /// When its commit record was written, by the store's clock; by its own, where that is missing. Of a copy when the first of them was.
    pub stored_at: i64,
    /// It is to go.
    pub tombstone: bool,
}

/// A run that has a record.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownTask {
    /// What it says of itself.
    pub record: TaskRecord,
    /// When it said so, in microseconds since 1970 by the store's clock.
    pub written_at: i64,
}

/// Everything in a repository.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// The sets, oldest first.
    pub sets: Vec<StoredSet>,
    /// Runs with a record, oldest first.
    pub tasks: Vec<KnownTask>,
    /// Tombstones of sets that are gone already, or nearly.
    pub tombstones: Vec<Uuid>,
    /// Places that are not those that sets were written into; the warnings name them too.
    pub strange: Vec<Strange>,
    /// What is worth knowing.
    pub notes: Vec<String>,
    /// What is not as it should be.
    pub warnings: Vec<String>,
}

impl KnownTask {
    /// How long nothing was heard of it; `now` by the store's clock.
    pub fn silent(&self, now: i64) -> Duration {
        silence(self.written_at, now)
    }

    /// For how long it may be silent. What somebody else wrote there must not keep sets for ever.
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.record.lease_s).min(LEASE_MOST)
    }

    /// True for a run that should go on and has not been heard of for its lease.
    pub fn is_dead(&self, now: i64) -> bool {
        self.record.state.is_open() && self.silent(now) > self.lease()
    }

    /// What it is called in messages.
    pub fn title(&self) -> String {
        format!("{} {} on {}", on_its_line(&self.record.verb), self.record.task, on_its_line(&self.record.host))
    }
}

impl StoredSet {
    /// A set that was committed this moment.
    pub fn committed(record: SetRecord) -> Self {
        let stored_at = record.finished_at;
        Self {
            record,
            incomplete: None,
            recorded: true,
            verified_at: None,
            failed_at: None,
            proven_at: None,
            stored_at,
            tombstone: false,
        }
    }

    /// True when it was found damaged, and not found good since.
    pub fn is_damaged(&self) -> bool {
        self.failed_at.is_some() && self.failed_at >= self.verified_at
    }

    /// True when something may be based on it: it is whole, and neither going nor known to be damaged.
    pub fn is_usable(&self) -> bool {
        self.incomplete.is_none() && !self.tombstone && !self.is_damaged()
    }

    /// By how much the clock of its host was wrong against the store's, in microseconds: 0 within five minutes.
    pub fn clock_error(&self) -> i64 {
        let early = self.stored_at.saturating_sub(self.record.started_at);
        let late = self.stored_at.saturating_sub(self.record.finished_at);
        if early < -CLOCK_TOLERANCE {
            early
        } else if late > CLOCK_TOLERANCE {
            late
        } else {
            0
        }
    }

    /// When it was begun, by the store's clock where the host's was wrong.
    pub fn began_at(&self) -> i64 {
        self.record.started_at.saturating_add(self.clock_error())
    }

    /// Until when it certainly shows what was committed, by the store's clock where the host's was wrong: when it was begun, or its place in the log was
    /// looked up.
    pub fn shows_until(&self) -> i64 {
        let looked = self.log_range().map(|range| range.until.saturating_add(self.clock_error()));
        looked.map_or(self.began_at(), |looked| looked.min(self.began_at()))
    }

    /// True when it was read whole and found good, and not found bad since.
    pub fn is_verified(&self) -> bool {
        self.incomplete.is_none() && self.verified_at.is_some() && self.failed_at < self.verified_at
    }

    /// For choosing what to restore.
    pub fn found(&self) -> FoundSet {
        let record = &self.record;
        FoundSet {
            backup_set_id: record.backup_set_id,
            media_set_id: record.media_set_id,
            kind: record.kind,
            base: record.base,
            started_at: self.began_at(),
            incomplete: self.incomplete.clone(),
            interrupted: false,
            database: Some(record.database.clone()).filter(|name| !name.is_empty()),
            names: record.families.iter().map(|family| family.name.clone()).collect(),
            log_range: self.log_range(),
            until_by_store: self.until_by_store(),
            encrypted: record.encrypted,
        }
    }

    /// Until when it reaches in the log, by the store's clock, where the clock of its host was wrong. Times never go back along a chain: so they may be ahead
    /// long after that clock was put right, and nothing is later than when it was stored.
    fn until_by_store(&self) -> Option<i64> {
        let until = self.log_range()?.until;
        let shifted = until.saturating_add(self.clock_error());
        let known = if shifted > self.stored_at.saturating_add(CLOCK_TOLERANCE) { self.stored_at } else { shifted };
        (known != until).then_some(known)
    }

    /// Where it begins and ends in the log, of engines that have log backups.
    fn log_range(&self) -> Option<LogRange> {
        let record = &self.record;
        fullbore_engines::log_range(&record.engine, record.kind, &record.position, Some(record.finished_at))
    }

    /// Bytes of all its families.
    pub fn stored_bytes(&self) -> u64 {
        self.record.families.iter().fold(0, |sum, family| sum.saturating_add(family.bytes))
    }

    /// Where its families are.
    ///
    /// # Errors
    /// A family stands in a place that this configuration does not name.
    pub fn devices(&self, repository: &Repository) -> Result<Vec<Device>> {
        self.record.families.iter().map(|family| family.device(&repository.places)).collect()
    }
}

impl Inventory {
    /// Looks at everything. `known` are records of sets that need not be read again.
    ///
    /// # Errors
    /// A place or the records cannot be listed, or were written by a newer fullbore.
    pub fn take(repository: &Repository, known: HashMap<Uuid, SetRecord>) -> Result<Self> {
        Self::take_with(repository, known, None)
    }

    /// The same with a key, which tells of encrypted sets without a record what their media do not show.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub fn take_with(
        repository: &Repository,
        mut known: HashMap<Uuid, SetRecord>,
        key: Option<&SecretKey>,
    ) -> Result<Self> {
        let mut inventory = Self { tombstones: ids_of(repository, "tombstones/")?, ..Self::default() };
        inventory.tasks = readable_tasks(repository, &mut inventory.warnings)?;
        // Records before families: of a set that is being removed, the record goes last.
        let listed: HashSet<Uuid> = ids_of(repository, "sets/")?.into_iter().collect();
        known.retain(|id, _| listed.contains(id));
        inventory.read_records(repository, &listed, &mut known)?;
        let copied_at = repository.copied_at()?;
        inventory.notes.extend(copied_at.map(|at| {
            let when = crate::chain::show_time(at);
            format!("this repository was copied here at {when}: what is older is dated by the hosts that made it")
        }));
        let verdicts = verdicts(repository, copied_at)?;
        let mut places = Vec::new();
        for place in &repository.places {
            let entries = list_place(place, &repository.stores)?;
            places.push(entries.into_iter().map(|entry| (entry.name.clone(), entry)).collect::<HashMap<_, _>>());
        }
        let mut records: Vec<SetRecord> = known.into_values().map(|record| repository.hidden(record)).collect();
        let recorded = records.len();
        let others = others(&records, &inventory.tasks, &places);
        let found = inventory.found_by_media(repository, others, key)?;
        records.extend(found.into_iter().map(|record| repository.hidden(record)));
        let tombstones: HashSet<Uuid> = inventory.tombstones.iter().copied().collect();
        let stay = records[..recorded].iter().filter(|record| !tombstones.contains(&record.backup_set_id));
        let holds =
            |family: &FamilyRecord| Ok(places.get(family.place).is_some_and(|of| of.contains_key(&family.name)));
        inventory.strange = strange(&repository.places, stay, holds)?;
        inventory.strange.extend(repository.shared_places()?);
        inventory.warnings.extend(inventory.strange.iter().map(Strange::line));
        for (at, mut record) in records.into_iter().enumerate() {
            let id = record.backup_set_id;
            let mut verdicts = verdicts.get(&id).copied().unwrap_or_default();
            let families = record.families.iter().filter_map(|family| places.get(family.place)?.get(&family.name));
            verdicts.forget_before(families.map(|entry| entry.modified).max(), copied_at);
            let first = record.families.first().and_then(|family| places.get(family.place)?.get(&family.name));
            if at >= recorded && first.is_some_and(|entry| entry.modified.saturating_sub(record.finished_at) > DAY) {
                // Moved here without its record: its files say when.
                record.stored_at = Some(record.finished_at);
            }
            inventory.sets.push(StoredSet {
                incomplete: incomplete(&record, &places),
                recorded: at < recorded,
                verified_at: verdicts.passed.max(verdicts.proven),
                failed_at: verdicts.failed,
                proven_at: verdicts.proven,
                stored_at: first.map_or(record.finished_at, |entry| stored_at(entry, &record, copied_at)),
                tombstone: tombstones.contains(&id),
                record,
            });
        }
        inventory.pass_over_copies();
        inventory.sets.sort_by_key(|set| (set.began_at(), set.record.backup_set_id));
        if inventory.sets.iter().any(|set| set.incomplete.is_some()) {
            inventory.look_again(repository)?;
        }
        Ok(inventory)
    }

    /// Writes the records of sets that have none: their host died after the commit, or the records were lost. How many. What an
    /// encrypted set does not tell must not be taken for what it is: it gets none.
    ///
    /// # Errors
    /// The repository cannot be written to.
    pub fn record_what_has_none(&self, repository: &Repository) -> Result<usize> {
        let of_them = |set: &&StoredSet| !set.recorded && set.incomplete.is_none() && !set.record.database.is_empty();
        let written = self.sets.iter().filter(of_them).map(|set| repository.describe(&set.record));
        written.collect::<Result<Vec<()>>>().map(|written| written.len())
    }

    /// Of two media sets of one backup set only one counts here: one that is whole, and of those the recorded one. `fullbore copy` makes
    /// no second one in a repository; somebody may have put it there by other means.
    fn pass_over_copies(&mut self) {
        // The better ones first: of each set the first stays.
        self.sets.sort_by_key(|set| (set.incomplete.is_some(), !set.recorded, set.record.media_set_id));
        let mut seen = HashSet::new();
        let (kept, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.sets).into_iter().partition(|set| seen.insert(set.record.backup_set_id));
        self.sets = kept;
        self.warnings.extend(others.iter().map(|other| {
            let families: Vec<String> = other.record.families.iter().map(|family| on_its_line(&family.name)).collect();
            format!(
                "another copy of backup set {} is not used, and prune leaves it: media set {}, `{}`",
                other.record.backup_set_id,
                other.record.media_set_id,
                families.join("`, `")
            )
        }));
    }

    /// What is not whole may just have been removed by somebody, between one listing and the next.
    fn look_again(&mut self, repository: &Repository) -> Result<()> {
        self.tombstones = ids_of(repository, "tombstones/")?;
        let listed = ids_of(repository, "sets/")?;
        self.sets.retain(|set| !set.recorded || listed.contains(&set.record.backup_set_id));
        for set in &mut self.sets {
            set.tombstone = self.tombstones.contains(&set.record.backup_set_id);
        }
        Ok(())
    }

    fn read_records(
        &mut self,
        repository: &Repository,
        listed: &HashSet<Uuid>,
        known: &mut HashMap<Uuid, SetRecord>,
    ) -> Result<()> {
        let names: Vec<String> =
            listed.iter().filter(|id| !known.contains_key(*id)).map(|id| format::set_name(*id)).collect();
        for (name, bytes) in names.iter().zip(repository.records.read_many(&names)?) {
            let decode = |bytes: Vec<u8>| format::decode::<SetRecord>(&repository.records.shown(name), &bytes);
            match bytes.and_then(|bytes| bytes.map(decode).transpose()) {
                // Gone since it was listed: somebody prunes.
                Ok(None) => {}
                Ok(Some(record)) if *name == format::set_name(record.backup_set_id) => {
                    known.insert(record.backup_set_id, record);
                }
                Ok(Some(_)) => {
                    self.warnings.push(format!("`{}` is the record of another set", repository.records.shown(name)))
                }
                // Its media tell the same.
                Err(error) if is_of_one_record(&error) => self.warnings.push(media::one_line(&error)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sets without a record: their host died after the commit, or the records were lost.
    fn found_by_media(
        &mut self,
        repository: &Repository,
        others: Vec<(usize, String)>,
        key: Option<&SecretKey>,
    ) -> Result<Vec<SetRecord>> {
        let devices: Vec<Device> =
            others.iter().filter_map(|(place, name)| repository.places[*place].join(name)).collect();
        if devices.is_empty() {
            return Ok(Vec::new());
        }
        let heap = media::find_among(devices, &repository.stores)?;
        self.notes.extend(heap.leftover_notes());
        let bad = heap.unreadable.iter().filter(|bad| !bad.leftover);
        self.warnings.extend(bad.map(|bad| format!("`{}`: {}", bad.device, media::one_line(&bad.error))));
        let mut records = Vec::new();
        for found in heap.sets.iter().filter(|found| !found.set.is_unfinished()) {
            let key = key.filter(|_| !found.header.keys.is_empty());
            let described = describe(found, repository, key).or_else(|error| match key {
                // It may be another's set.
                Some(_) => {
                    self.warnings.push(media::one_line(&error));
                    describe(found, repository, None)
                }
                None => Err(error),
            });
            match described {
                Ok(record) => records.push(record),
                Err(error @ (Error::Refused { .. } | Error::Cancelled { .. } | Error::Halted)) => return Err(error),
                // Damaged, or gone since it was listed.
                Err(error) => self.warnings.push(media::one_line(&error)),
            }
        }
        Ok(records)
    }
}

/// The record of a set as its media tell it; of encrypted media without a key, what stands in the header.
///
/// # Errors
/// Its manifest is damaged, or the key does not open it.
pub fn describe(found: &Found, repository: &Repository, key: Option<&SecretKey>) -> Result<SetRecord> {
    let header = &found.header;
    let label = header.label.clone().unwrap_or_default();
    let mut record = SetRecord {
        format: FORMAT,
        backup_set_id: header.backup_set_id,
        media_set_id: header.media_set_id,
        kind: header.kind,
        base: header.base_backup_set_id,
        copy_only: false,
        engine: header.engine.clone(),
        database: label.database,
        name: label.name,
        started_at: header.started_at,
        finished_at: header.started_at,
        host: String::new(),
        families: Vec::new(),
        database_bytes: found.database_bytes.unwrap_or(0),
        encrypted: !header.keys.is_empty(),
        codec: String::new(),
        position: Position::default(),
        stored_at: None,
        run: None,
    };
    for device in &found.devices {
        record.families.push(family_as_it_is(device, repository)?);
    }
    // What is missing is among the families that are named and not there.
    for number in found.devices.len()..usize::from(found.families) {
        record.families.push(FamilyRecord {
            place: 0,
            name: format!("(family {} of {})", number + 1, found.families),
            bytes: 0,
        });
    }
    if found.set.incomplete.is_none() && (!record.encrypted || key.is_some()) {
        let set = media::open_set(found, &Pool::new(0, 4096)?, 1, key)?;
        if let Some(manifest) = set.manifest() {
            record.database.clone_from(&manifest.database);
            record.name.clone_from(&manifest.name);
            record.copy_only = manifest.copy_only;
            record.host = manifest.host.clone();
            record.codec = manifest.codec.clone();
            // One that no record has room for is not kept: of very many such sets it would take very much memory.
            if manifest.position.bytes() <= RECORD_MAX {
                record.position = manifest.position.clone();
            }
            let finished = manifest.finished_at.parse::<jiff::Timestamp>().ok();
            record.finished_at = finished.map_or(record.started_at, |time| time.as_microsecond());
        }
    }
    Ok(record)
}

/// Where a family is, in a way that every host understands.
///
/// # Errors
/// It is in none of the repository's places.
pub fn family_record(device: &Device, bytes: u64, repository: &Repository) -> Result<FamilyRecord> {
    let name = match device.place() {
        Place::Object { key, .. } => key.rsplit('/').next().unwrap_or_default().to_owned(),
        _ => device
            .path()
            .and_then(|path| path.file_name())
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
    };
    let here = |place: &Device| place.join(&name).is_some_and(|joined| joined.identity() == device.identity());
    let Some(place) = repository.places.iter().position(here) else {
        let why = "is in none of the places of the repository";
        return Err(Error::refused(device.to_string(), why, "name all its places in fullbore.toml"));
    };
    Ok(FamilyRecord { place, name, bytes })
}

/// The same of a family with as many bytes as it has now; none where it has gone meanwhile.
///
/// # Errors
/// It is in none of the repository's places, or how long it is cannot be asked.
pub fn family_as_it_is(device: &Device, repository: &Repository) -> Result<FamilyRecord> {
    let family = family_record(device, 0, repository)?;
    let bytes = repository.length(&family)?.unwrap_or(0);
    Ok(FamilyRecord { bytes, ..family })
}

/// The ids in the names of a folder's records.
pub(super) fn ids_of(repository: &Repository, folder: &str) -> Result<Vec<Uuid>> {
    let listed = repository.records.list(folder)?;
    Ok(listed.iter().filter_map(|entry| Uuid::try_parse(entry.name.strip_suffix(".json")?).ok()).collect())
}

/// True of an error that is about one record alone: it is none, is larger than any, or its bytes cannot be had. Whoever only reads goes on
/// without it. What a newer fullbore has written, and a store that does not answer, stop everybody.
pub fn is_of_one_record(error: &Error) -> bool {
    matches!(error, Error::Incomplete { .. } | Error::Io { .. }) && !error.is_exhaustion()
}

/// The runs whose records can be read, oldest first; of the others a warning.
///
/// # Errors
/// They cannot be listed, or were written by a newer fullbore.
pub fn readable_tasks(repository: &Repository, warnings: &mut Vec<String>) -> Result<Vec<KnownTask>> {
    let mut readable = Vec::new();
    for task in read_tasks(repository)? {
        match task {
            Ok(task) => readable.push(task),
            Err((_, error)) if is_of_one_record(&error) => warnings.push(media::one_line(&error)),
            Err((_, error)) => return Err(error),
        }
    }
    Ok(readable)
}

/// The runs that have a record, oldest first; `now` by the store's clock. One that cannot be read is passed over when it was not written for longer
/// than any lease lasts: whichever sets that run has held, it holds none of them now, and finds that out before it commits, should it wake up.
///
/// # Errors
/// They cannot be listed, or a younger one cannot be read: which sets it leases is not known then.
pub fn tasks(repository: &Repository, now: i64) -> Result<Vec<KnownTask>> {
    let holds_nothing =
        |(written_at, error): &(i64, Error)| is_of_one_record(error) && silence(*written_at, now) > LEASE_MOST;
    let mut known = Vec::new();
    for task in read_tasks(repository)? {
        match task {
            Ok(task) => known.push(task),
            Err(unread) if holds_nothing(&unread) => {}
            Err((_, error)) if is_of_one_record(&error) => {
                let minutes = LEASE_MOST.as_secs() / 60;
                return Err(error.noting(&format!("it may lease sets until it was not written for {minutes} minutes")));
            }
            Err((_, error)) => return Err(error),
        }
    }
    Ok(known)
}

/// For how long nothing was written.
fn silence(written_at: i64, now: i64) -> Duration {
    Duration::from_micros(now.saturating_sub(written_at).max(0).cast_unsigned())
}

/// The runs that were seen to have ended, by what a listing says of their records. None of them ever goes on: so a prune, which asks for the runs
/// before and after each of its waits, reads the thousands that have ended once, and those that run each time.
#[derive(Clone, Default)]
pub(super) struct EndedRuns(Arc<Mutex<HashMap<Entry, TaskRecord>>>);

impl EndedRuns {
    fn get(&self, entry: &Entry) -> Option<TaskRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(entry).cloned()
    }

    fn learn(&self, entry: &Entry, record: &TaskRecord) {
        if !record.state.is_open() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.clone(), record.clone());
        }
    }
}

/// All runs with a record, those that can be read in their order; of the others when their records were written, and what stands against them.
fn read_tasks(repository: &Repository) -> Result<Vec<std::result::Result<KnownTask, (i64, Error)>>> {
    let (mut tasks, mut unread) = (Vec::new(), Vec::new());
    for entry in repository.records.list("tasks/")?.into_iter().filter(|entry| entry.name.ends_with(".json")) {
        match repository.ended_runs.get(&entry) {
            Some(record) => tasks.push(Ok(KnownTask { record, written_at: entry.modified })),
            None => unread.push(entry),
        }
    }
    let names: Vec<String> = unread.iter().map(|entry| format!("tasks/{}", entry.name)).collect();
    for ((entry, name), bytes) in unread.iter().zip(&names).zip(repository.records.read_many(&names)?) {
        let decode = |bytes: Vec<u8>| task_record(repository, name, &bytes);
        let written_at = entry.modified;
        match bytes.and_then(|bytes| bytes.map(decode).transpose()) {
            Ok(Some(record)) => {
                repository.ended_runs.learn(entry, &record);
                tasks.push(Ok(KnownTask { record, written_at }));
            }
            // Gone since it was listed, for somebody prunes.
            Ok(None) => {}
            Err(error) => tasks.push(Err((written_at, error))),
        }
    }
    tasks.sort_by_key(|task| task.as_ref().ok().map(|task| (task.record.started_at.clone(), task.record.task)));
    Ok(tasks)
}

/// The record of a run under its own name. Another one's would say nothing of the sets that this one leases: an answer was given to another question.
fn task_record(repository: &Repository, name: &str, bytes: &[u8]) -> Result<TaskRecord> {
    let shown = repository.records.shown(name);
    let record: TaskRecord = format::decode(&shown, bytes)?;
    if format::task_name(record.task) == name {
        return Ok(record);
    }
    let why = format!("is the record of another run, {}", record.task);
    Err(Error::incomplete(shown, why, "run it again; if it stays so, look at it"))
}

/// What stands in the places and belongs to no recorded set and no running task.
fn others(records: &[SetRecord], tasks: &[KnownTask], places: &[HashMap<String, Entry>]) -> Vec<(usize, String)> {
    let mut ours: HashSet<(usize, &str)> = HashSet::new();
    let of_sets = records.iter().flat_map(|record| &record.families);
    let open = tasks.iter().filter(|task| task.record.state.is_open());
    let of_tasks = open.flat_map(|task| &task.record.families);
    ours.extend(of_sets.chain(of_tasks).map(|family| (family.place, &family.name[..])));
    let listed = places.iter().enumerate().flat_map(|(place, entries)| entries.keys().map(move |name| (place, name)));
    let is_other = |(place, name): &(usize, &String)| {
        // What has a working name was never committed: nothing is ever replaced in a repository.
        let is_family = !name.ends_with(CLAIM) && !media::has_working_name(Path::new(name));
        is_family && !ours.contains(&(*place, &name[..]))
    };
    let mut others: Vec<_> = listed.filter(is_other).map(|(place, name)| (place, name.clone())).collect();
    others.sort();
    others
}

/// Why a set cannot be used: what of it is missing, or has another size than it was written with.
fn incomplete(record: &SetRecord, places: &[HashMap<String, Entry>]) -> Option<String> {
    let families = record.families.len();
    if families == 0 {
        return Some("its record names no family".into());
    }
    for (family, number) in record.families.iter().zip(1..) {
        let Some(place) = places.get(family.place) else {
            let (at, named) = (family.place.saturating_add(1), places.len());
            return Some(format!("family {number} of {families} stands in place {at}, and {named} are named here"));
        };
        match place.get(&family.name) {
            None => return Some(format!("family {number} of {families} is missing: `{}`", on_its_line(&family.name))),
            Some(entry) if entry.size != family.bytes => {
                let (is, was) = (entry.size, family.bytes);
                return Some(format!(
                    "family {number} of {families}, `{}`, has {is} bytes; {was} were written",
                    on_its_line(&family.name)
                ));
            }
            Some(_) => {}
        }
    }
    None
}
