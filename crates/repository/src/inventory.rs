//! The content of a repository: its sets, whether they are whole, their verdicts, and the runs that use them.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fullbore_core::cipher::SecretKey;
use fullbore_core::device::{Destination, Device};
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
use crate::discovery::{self, Found};
use fullbore_core::units::on_its_line;

/// A run may be silent for this time at most, whatever its record says.
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
    /// When a verification last failed.
    pub failed_at: Option<i64>,
    /// When a restore test last passed for it: the test restores to each set of the chain.
    pub proven_at: Option<i64>,
    /// When its commit record was written, by the store's clock; without one, by its own record. For a copy: when the
    /// first copy was stored.
    pub stored_at: i64,
    /// It has a tombstone.
    pub tombstone: bool,
}

/// A run that has a record.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownTask {
    /// Its record.
    pub record: TaskRecord,
    /// When the record was written, in microseconds since 1970 by the store's clock.
    pub written_at: i64,
}

/// Everything in a repository.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// The sets, oldest first.
    pub sets: Vec<StoredSet>,
    /// Runs with a record, oldest first.
    pub tasks: Vec<KnownTask>,
    /// Tombstones: their sets are removed, or a prune is removing them.
    pub tombstones: Vec<Uuid>,
    /// Places that are not the places that sets were written into; the warnings name them too.
    pub strange: Vec<Strange>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Faults.
    pub warnings: Vec<String>,
}

impl KnownTask {
    /// The time since its last record; `now` by the store's clock.
    pub fn silent(&self, now: i64) -> Duration {
        silence(self.written_at, now)
    }

    /// How long it may be silent. A forged record must not keep sets for ever.
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.record.lease_s).min(LEASE_MOST)
    }

    /// True for a run that has not ended, and was silent for longer than its lease.
    pub fn is_dead(&self, now: i64) -> bool {
        self.record.state.is_open() && self.silent(now) > self.lease()
    }

    /// Its name in messages.
    pub fn title(&self) -> String {
        format!("{} {} on {}", on_its_line(&self.record.verb), self.record.task, on_its_line(&self.record.host))
    }
}

impl StoredSet {
    /// A set that was committed at this moment.
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

    /// True when the newest verdict found damage.
    pub fn is_damaged(&self) -> bool {
        self.failed_at.is_some() && self.failed_at >= self.verified_at
    }

    /// True when another set may be based on it: it is whole, has no tombstone, and is not known to be damaged.
    pub fn is_usable(&self) -> bool {
        self.incomplete.is_none() && !self.tombstone && !self.is_damaged()
    }

    /// The error of its host's clock against the store's clock, in microseconds; 0 if it is within five minutes.
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

    /// When it was begun; by the store's clock if the host's clock was wrong.
    pub fn began_at(&self) -> i64 {
        self.record.started_at.saturating_add(self.clock_error())
    }

    /// It surely holds every commit until this time: when it was begun, or when its place in the log was read. By the
    /// store's clock if the host's clock was wrong.
    pub fn shows_until(&self) -> i64 {
        let looked = self.log_range().map(|range| range.until.saturating_add(self.clock_error()));
        looked.map_or(self.began_at(), |looked| looked.min(self.began_at()))
    }

    /// True when it is whole, and the newest verdict found it good.
    pub fn is_verified(&self) -> bool {
        self.incomplete.is_none() && self.verified_at.is_some() && self.failed_at < self.verified_at
    }

    /// The form that the choice of a restore needs.
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

    /// The end of its log range by the store's clock, if the clock of its host was wrong. Times never go back along a
    /// chain, so they may be ahead long after that clock was corrected. No commit is later than the time of storing.
    fn until_by_store(&self) -> Option<i64> {
        let until = self.log_range()?.until;
        let shifted = until.saturating_add(self.clock_error());
        let known = if shifted > self.stored_at.saturating_add(CLOCK_TOLERANCE) { self.stored_at } else { shifted };
        (known != until).then_some(known)
    }

    /// Its beginning and end in the log, for engines that have log backups.
    fn log_range(&self) -> Option<LogRange> {
        let record = &self.record;
        fullbore_engines::log_range(&record.engine, record.kind, &record.position, Some(record.finished_at))
    }

    /// Bytes of all its families.
    pub fn stored_bytes(&self) -> u64 {
        self.record.families.iter().fold(0, |sum, family| sum.saturating_add(family.bytes))
    }

    /// The devices of its families.
    ///
    /// # Errors
    /// A family is in a place that this configuration does not name.
    pub fn devices(&self, repository: &Repository) -> Result<Vec<Device>> {
        self.record.families.iter().map(|family| family.device(&repository.places)).collect()
    }
}

impl Inventory {
    /// Reads the whole repository. `known` are records of sets that need not be read again.
    ///
    /// # Errors
    /// A place or the records cannot be listed, or were written by a newer fullbore.
    pub fn take(repository: &Repository, known: HashMap<Uuid, SetRecord>) -> Result<Self> {
        Self::take_with(repository, known, None)
    }

    /// The same with a key. It opens the manifests of encrypted sets without a record.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub fn take_with(
        repository: &Repository,
        mut known: HashMap<Uuid, SetRecord>,
        key: Option<&SecretKey>,
    ) -> Result<Self> {
        let mut inventory = Self { tombstones: repository.records.ids("tombstones/")?, ..Self::default() };
        inventory.tasks = readable_tasks(repository, &mut inventory.warnings)?;
        // Records before families: a removal of a set removes its record last.
        let listed: HashSet<Uuid> = repository.records.ids("sets/")?.into_iter().collect();
        known.retain(|id, _| listed.contains(id));
        inventory.read_records(repository, &listed, &mut known)?;
        let copied_at = repository.copied_at()?;
        inventory.notes.extend(copied_at.map(|at| {
            let when = crate::chain::show_time(at);
            format!("this repository was copied here at {when}: older sets have the times of the hosts that made them")
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
                // It was moved here without its record: the files have the time of the move.
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

    /// Writes records for sets without one: their host died after the commit, or the records were lost. Returns the
    /// number. An encrypted set with an unknown database gets no record.
    ///
    /// # Errors
    /// The repository cannot be written to.
    pub fn record_what_has_none(&self, repository: &Repository) -> Result<usize> {
        let of_them = |set: &&StoredSet| !set.recorded && set.incomplete.is_none() && !set.record.database.is_empty();
        let written = self.sets.iter().filter(of_them).map(|set| repository.describe(&set.record));
        written.collect::<Result<Vec<()>>>().map(|written| written.len())
    }

    /// Keeps one media set of each backup set: a whole one before others, and among these a recorded one. `fullbore
    /// copy` makes no second one in a repository, but a person may have copied files there.
    fn pass_over_copies(&mut self) {
        // The better ones first: the first of each set stays.
        self.sets.sort_by_key(|set| (set.incomplete.is_some(), !set.recorded, set.record.media_set_id));
        let mut seen = HashSet::new();
        let (kept, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.sets).into_iter().partition(|set| seen.insert(set.record.backup_set_id));
        self.sets = kept;
        self.warnings.extend(others.iter().map(|other| {
            let families: Vec<String> = other.record.families.iter().map(|family| on_its_line(&family.name)).collect();
            format!(
                "another copy of backup set {} is not used, and prune does not remove it: media set {}, `{}`",
                other.record.backup_set_id,
                other.record.media_set_id,
                families.join("`, `")
            )
        }));
    }

    /// An incomplete set may just have been removed, between one listing and the next.
    fn look_again(&mut self, repository: &Repository) -> Result<()> {
        self.tombstones = repository.records.ids("tombstones/")?;
        let listed = repository.records.ids("sets/")?;
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
                // Removed since it was listed: a prune is running.
                Ok(None) => {}
                Ok(Some(record)) if *name == format::set_name(record.backup_set_id) => {
                    known.insert(record.backup_set_id, record);
                }
                Ok(Some(_)) => {
                    self.warnings.push(format!("`{}` is the record of another set", repository.records.shown(name)))
                }
                // Its media have the same facts.
                Err(error) if is_of_one_record(&error) => self.warnings.push(error.one_line()),
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
        let discovered = discovery::find_among(devices, &repository.stores)?;
        self.notes.extend(discovered.leftover_notes());
        let bad = discovered.unreadable.iter().filter(|bad| !bad.leftover);
        self.warnings.extend(bad.map(|bad| format!("`{}`: {}", bad.device, bad.error.one_line())));
        let mut records = Vec::new();
        for found in discovered.sets.iter().filter(|found| !found.set.is_unfinished()) {
            let key = key.filter(|_| !found.header.keys.is_empty());
            let described = describe(found, repository, key).or_else(|error| match key {
                // The set may belong to another key.
                Some(_) => {
                    self.warnings.push(error.one_line());
                    describe(found, repository, None)
                }
                None => Err(error),
            });
            match described {
                Ok(record) => records.push(record),
                Err(error @ (Error::Refused { .. } | Error::Cancelled { .. } | Error::Halted)) => return Err(error),
                // Damaged, or removed since it was listed.
                Err(error) => self.warnings.push(error.one_line()),
            }
        }
        Ok(records)
    }
}

/// The record of a set, made from its media. Of encrypted media without a key: the fields of the header.
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
    // Missing families are listed too, with a name that no file has.
    for number in found.devices.len()..usize::from(found.families) {
        record.families.push(FamilyRecord {
            place: 0,
            name: format!("(family {} of {})", number + 1, found.families),
            bytes: 0,
        });
    }
    if found.set.incomplete.is_none() && (!record.encrypted || key.is_some()) {
        let set = discovery::open_set(found, &Pool::new(0, 4096)?, 1, key)?;
        if let Some(manifest) = set.manifest() {
            record.database.clone_from(&manifest.database);
            record.name.clone_from(&manifest.name);
            record.copy_only = manifest.copy_only;
            record.host = manifest.host.clone();
            record.codec = manifest.codec.clone();
            // A position that is too long for a record is dropped: very many such sets would take very much memory.
            if manifest.position.bytes() <= RECORD_MAX {
                record.position = manifest.position.clone();
            }
            let finished = manifest.finished_at.parse::<jiff::Timestamp>().ok();
            record.finished_at = finished.map_or(record.started_at, |time| time.as_microsecond());
        }
    }
    Ok(record)
}

/// The place of a family, in a form that every host understands.
///
/// # Errors
/// It is not in any place of the repository.
pub fn family_record(device: &Device, bytes: u64, repository: &Repository) -> Result<FamilyRecord> {
    let name = match device.place() {
        Destination::Object { key, .. } => key.rsplit('/').next().unwrap_or_default().to_owned(),
        _ => device
            .path()
            .and_then(|path| path.file_name())
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
    };
    let here = |place: &Device| place.join(&name).is_some_and(|joined| joined.identity() == device.identity());
    let Some(place) = repository.places.iter().position(here) else {
        let why = "is not in any place of the repository";
        return Err(Error::refused(device.to_string(), why, "list all places of the repository in fullbore.toml"));
    };
    Ok(FamilyRecord { place, name, bytes })
}

/// The same, with the length that the family has now; 0 if it was removed meanwhile.
///
/// # Errors
/// It is not in any place of the repository, or its length cannot be read.
pub fn family_as_it_is(device: &Device, repository: &Repository) -> Result<FamilyRecord> {
    let family = family_record(device, 0, repository)?;
    let bytes = repository.length(&family)?.unwrap_or(0);
    Ok(FamilyRecord { bytes, ..family })
}

/// True for an error about one record alone: it is not a record, is too large, or its bytes cannot be read. Read-only
/// commands continue without it. A record of a newer fullbore, or a store that does not answer, stops every command.
pub fn is_of_one_record(error: &Error) -> bool {
    matches!(error, Error::Incomplete { .. } | Error::Io { .. }) && !error.is_exhaustion()
}

/// The runs with a readable record, oldest first; for each other record a warning.
///
/// # Errors
/// They cannot be listed, or were written by a newer fullbore.
pub fn readable_tasks(repository: &Repository, warnings: &mut Vec<String>) -> Result<Vec<KnownTask>> {
    let mut readable = Vec::new();
    for task in read_tasks(repository)? {
        match task {
            Ok(task) => readable.push(task),
            Err((_, error)) if is_of_one_record(&error) => warnings.push(error.one_line()),
            Err((_, error)) => return Err(error),
        }
    }
    Ok(readable)
}

/// The runs that have a record, oldest first; `now` by the store's clock. An unreadable record is ignored if it is
/// older than the longest lease. Its run leases no set any more; if the run wakes up, it notices this before it
/// commits.
///
/// # Errors
/// They cannot be listed, or a younger record cannot be read: it may lease any set.
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
                return Err(
                    error.noting(&format!("it may lease sets: fullbore ignores it once it is {minutes} minutes old"))
                );
            }
            Err((_, error)) => return Err(error),
        }
    }
    Ok(known)
}

/// The time since the last write.
fn silence(written_at: i64, now: i64) -> Duration {
    Duration::from_micros(now.saturating_sub(written_at).max(0).cast_unsigned())
}

/// The runs that have ended, by the listing of their records. An ended run never continues. A prune asks for the runs
/// before and after each of its waits: so it reads thousands of ended runs only once, and living runs each time.
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

/// All runs with a record. Readable ones are in order; for each other one the time of its record and the error.
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
            // Removed since it was listed: a prune is running.
            Ok(None) => {}
            Err(error) => tasks.push(Err((written_at, error))),
        }
    }
    tasks.sort_by_key(|task| task.as_ref().ok().map(|task| (task.record.started_at.clone(), task.record.task)));
    Ok(tasks)
}

/// The record of a run under its own name. The record of another run would not list the sets that this run leases.
fn task_record(repository: &Repository, name: &str, bytes: &[u8]) -> Result<TaskRecord> {
    let shown = repository.records.shown(name);
    let record: TaskRecord = format::decode(&shown, bytes)?;
    if format::task_name(record.task) == name {
        return Ok(record);
    }
    let why = format!("is the record of another run, {}", record.task);
    Err(Error::incomplete(shown, why, "run the command again; if the error stays, look at this record"))
}

/// The files in the places that belong to no recorded set and to no running task.
fn others(records: &[SetRecord], tasks: &[KnownTask], places: &[HashMap<String, Entry>]) -> Vec<(usize, String)> {
    let mut ours: HashSet<(usize, &str)> = HashSet::new();
    let of_sets = records.iter().flat_map(|record| &record.families);
    let open = tasks.iter().filter(|task| task.record.state.is_open());
    let of_tasks = open.flat_map(|task| &task.record.families);
    ours.extend(of_sets.chain(of_tasks).map(|family| (family.place, &family.name[..])));
    let listed = places.iter().enumerate().flat_map(|(place, entries)| entries.keys().map(move |name| (place, name)));
    let is_other = |(place, name): &(usize, &String)| {
        // A file with a working name was never committed: in a repository, no file is ever replaced.
        let is_family = !name.ends_with(CLAIM) && !discovery::has_working_name(Path::new(name));
        is_family && !ours.contains(&(*place, &name[..]))
    };
    let mut others: Vec<_> = listed.filter(is_other).map(|(place, name)| (place, name.clone())).collect();
    others.sort();
    others
}

/// Why a set cannot be used: a family is missing, or has another size than was written.
fn incomplete(record: &SetRecord, places: &[HashMap<String, Entry>]) -> Option<String> {
    let families = record.families.len();
    if families == 0 {
        return Some("its record names no family".into());
    }
    for (family, number) in record.families.iter().zip(1..) {
        let Some(place) = places.get(family.place) else {
            let (at, named) = (family.place.saturating_add(1), places.len());
            return Some(format!("family {number} of {families} is in place {at}, but {named} are configured here"));
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
