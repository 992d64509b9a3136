//! A run with a record in a repository. The record is its heartbeat, its lease on the sets that it needs, and its state
//! for others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_core::{Error, Result, threads};
use serde::Serialize;
use uuid::Uuid;

use super::Repository;
use super::format::{
    self, Decision, DecisionRecord, FORMAT, FamilyRecord, GivenUp, SetRecord, TaskProgress, TaskRecord, TaskState,
    TombstoneRecord,
};
use super::process::Process;
use fullbore_core::conduct::{Conduct, Ended};
use fullbore_core::units::on_its_line;

/// How long a task counts as alive after the last write of its record.
pub const LEASE: Duration = Duration::from_secs(300);
/// How often it writes it.
const BEAT: Duration = Duration::from_secs(10);
/// How often it checks whether it was asked to end.
const LOOK: Duration = Duration::from_secs(2);
/// How many sets a run remembers that it could not store.
const GIVEN_UP_MOST: usize = 16;

/// A running task. Dropped without [`end`](Self::end), its record says that it failed.
pub struct Task {
    shared: Arc<Shared>,
    beat: Option<(Sender<()>, JoinHandle<()>)>,
}

struct Shared {
    repository: Repository,
    conduct: Conduct,
    record: Mutex<TaskRecord>,
    begun: Instant,
    /// It has no end of its own, as `log follow`.
    lasting: AtomicBool,
    /// The set that it writes is committed.
    stored: AtomicBool,
}

/// The state of the sets that a run needs.
#[derive(Debug)]
pub enum LeaseState {
    /// They are there, and the lease on them is alive.
    Firm,
    /// One of them has a tombstone. Its prune may still keep it.
    Going(Error),
    /// One of them was removed.
    Gone(Error),
}

impl Task {
    /// Begins a task: from now on, others see it.
    ///
    /// # Errors
    /// The repository cannot be written to.
    pub fn begin(repository: &Repository, verb: &str, database: Option<String>, conduct: &Conduct) -> Result<Self> {
        let record = TaskRecord {
            format: FORMAT,
            task: Uuid::new_v4(),
            verb: verb.to_owned(),
            engine: None,
            database: database.map(|name| repository.named(&name)),
            host: fullbore_core::resources::host(),
            process: std::process::id(),
            runs_as: Process::this(),
            started_at: jiff::Timestamp::now().to_string(),
            ended_at: None,
            state: TaskState::Created,
            lease_s: LEASE.as_secs(),
            needs: Vec::new(),
            writes: None,
            attempt: None,
            families: Vec::new(),
            given_up: Vec::new(),
            progress: TaskProgress::default(),
            error: None,
        };
        let shared = Arc::new(Shared {
            repository: repository.clone(),
            conduct: conduct.clone(),
            record: Mutex::new(record),
            begun: Instant::now(),
            stored: AtomicBool::new(false),
            lasting: AtomicBool::new(false),
        });
        shared.write()?;
        let (ended, listener) = channel::<()>();
        let beating = Arc::clone(&shared);
        let thread = threads::start("heartbeat", move || {
            let (mut written, mut looked) = (Instant::now(), false);
            while let Err(RecvTimeoutError::Timeout) = listener.recv_timeout(LOOK) {
                looked = looked || beating.is_to_end();
                if written.elapsed() < BEAT && !looked {
                    continue;
                }
                match beating.write() {
                    Ok(()) => written = Instant::now(),
                    // By now, others may take it for dead and remove the sets that it needs.
                    Err(_) if written.elapsed() > LEASE && !beating.is_lasting() => {
                        beating.conduct.end(Ended::LeaseLost);
                    }
                    Err(_) => {}
                }
            }
        })?;
        Ok(Self { shared, beat: Some((ended, thread)) })
    }

    /// Its identity.
    pub fn id(&self) -> Uuid {
        self.shared.lock().task
    }

    /// Names the engine of the sets that it reads or writes. The next record tells this to others.
    pub fn of_engine(&self, engine: &str) {
        self.shared.lock().engine = Some(engine.to_owned());
    }

    /// Leases the sets that must stay while this task lives. When this returns, none of them has a tombstone.
    ///
    /// # Errors
    /// One of them is being removed, or the repository cannot be reached.
    pub fn lease(&self, sets: &[Uuid]) -> Result<()> {
        self.shared.lock().needs = sets.to_vec();
        self.shared.write()?;
        self.shared.tombstone()?.map_or(Ok(()), Err)
    }

    /// Makes it a run without an end of its own. To be asked to end is its normal end. Silence does not end it: before
    /// each set, it [checks](Self::ground) that the predecessor is still there.
    pub fn lasts(&self) {
        self.shared.lasting.store(true, Ordering::Relaxed);
        self.shared.lock().state = TaskState::InProgress;
    }

    /// The sets that must stay from now on. The next record tells this to others; until then, the set that it wrote
    /// last is leased as the set that it writes.
    pub fn goes_on_from(&self, sets: Vec<Uuid>) {
        self.shared.lock().needs = sets;
    }

    /// Renews its lease, and checks the sets that it needs.
    ///
    /// # Errors
    /// The repository cannot be reached.
    pub fn ground(&self) -> Result<LeaseState> {
        self.shared.write()?;
        self.shared.ground()
    }

    /// Records which set it will write, and where.
    ///
    /// # Errors
    /// The repository cannot be reached.
    pub fn writes(&self, set: Uuid, families: Vec<FamilyRecord>) -> Result<()> {
        self.writes_as(set, None, families)
    }

    /// The same for a copy of a set: this attempt is decided under its own id.
    ///
    /// # Errors
    /// The repository cannot be reached.
    pub fn writes_copy(&self, set: Uuid, attempt: Uuid, families: Vec<FamilyRecord>) -> Result<()> {
        self.writes_as(set, Some(attempt), families)
    }

    fn writes_as(&self, set: Uuid, attempt: Option<Uuid>, families: Vec<FamilyRecord>) -> Result<()> {
        {
            let mut record = self.shared.lock();
            let before = (record.writes.replace(set), std::mem::replace(&mut record.families, families));
            let stored = self.shared.stored.swap(false, Ordering::Relaxed);
            // A copy that fails does not continue with another set.
            if let ((Some(set), families), false, None) = (before, stored, attempt) {
                record.given_up.push(GivenUp { set, families });
                let many = record.given_up.len().saturating_sub(GIVEN_UP_MOST);
                record.given_up.drain(..many);
            }
            record.attempt = attempt;
            if record.state == TaskState::Created {
                record.state = TaskState::InProgress;
            }
        }
        self.shared.write()
    }

    /// Records that its set is committed.
    pub fn stored(&self) {
        self.shared.stored.store(true, Ordering::Relaxed);
    }

    /// The families of the set that it writes.
    pub fn families(&self) -> Vec<FamilyRecord> {
        self.shared.lock().families.clone()
    }

    /// Decides that its set is committed, before the commit record gets its name.
    ///
    /// # Errors
    /// A set that it needs is being removed, or was removed. Or another run took this task for dead and removed its
    /// files.
    pub fn permit(&self) -> Result<()> {
        // First renew the lease, then look at decisions that others made while it counted as dead.
        match self.ground()? {
            LeaseState::Firm => {}
            LeaseState::Going(error) | LeaseState::Gone(error) => return Err(error),
        }
        let (task, set, decision) = {
            let record = self.shared.lock();
            (record.task, record.writes.unwrap_or_default(), record.decision().unwrap_or_default())
        };
        match decide(&self.shared.repository, decision, Decision::Committed, task)? {
            Decision::Committed => Ok(()),
            Decision::Removed => {
                let why =
                    "this run was silent for longer than its lease, was taken for dead, and its files were removed";
                Err(Error::refused(format!("backup set {set}"), why, "back up again"))
            }
        }
    }

    /// Ends the task with its result.
    pub fn end(mut self, result: &Result<()>) -> Option<Error> {
        self.stop_beating();
        self.shared.finish(result.as_ref().err()).err()
    }

    fn stop_beating(&mut self) {
        if let Some((ended, thread)) = self.beat.take() {
            drop(ended);
            let _ = thread.join(); // The thread itself shows its panic.
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.beat.is_some() {
            self.stop_beating();
            let _ = self.shared.finish(Some(&Error::Halted)); // Its lease ends in any case.
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, TaskRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self) -> String {
        format::task_name(self.lock().task)
    }

    fn current(&self) -> TaskRecord {
        let mut record = self.lock();
        let (done_bytes, total_bytes, stored_bytes) = self.conduct.progress.read();
        record.progress =
            TaskProgress { done_bytes, total_bytes, stored_bytes, elapsed_s: self.begun.elapsed().as_secs_f64() };
        if record.state == TaskState::Created && done_bytes > 0 {
            record.state = TaskState::InProgress;
        }
        record.clone()
    }

    fn write(&self) -> Result<()> {
        let bytes = format::encode(&self.current())?;
        self.repository.records.write(&self.name(), &bytes)
    }

    /// Writes the last record, even if a signal stopped the job.
    fn finish(&self, error: Option<&Error>) -> Result<()> {
        let mut record = self.current();
        record.ended_at = Some(jiff::Timestamp::now().to_string());
        record.error = error.map(|error| self.repository.told(error.to_string()));
        record.needs.clear();
        record.state = match error {
            None if self.is_lasting() && record.state == TaskState::CancelRequested => TaskState::Cancelled,
            None => TaskState::Success,
            Some(Error::Cancelled { .. }) => TaskState::Cancelled,
            Some(_) => TaskState::Error,
        };
        self.repository.records.write_at_last(&self.name(), &format::encode(&record)?)?;
        self.repository.records.remove(&format::cancel_name(record.task))
    }

    /// True if it was asked to end; it then ends the job.
    fn is_to_end(&self) -> bool {
        let task = self.lock().task;
        let asked = matches!(self.repository.records.read(&format::cancel_name(task)), Ok(Some(_)));
        if asked {
            self.lock().state = TaskState::CancelRequested;
            self.conduct.end(Ended::Asked);
        }
        asked
    }

    fn is_lasting(&self) -> bool {
        self.lasting.load(Ordering::Relaxed)
    }

    /// Tombstones first: a set without one is not being removed, or was removed before.
    fn ground(&self) -> Result<LeaseState> {
        if let Some(going) = self.tombstone()? {
            return Ok(LeaseState::Going(going));
        }
        let needs = self.lock().needs.clone();
        let names: Vec<String> = needs.iter().map(|id| format::set_name(*id)).collect();
        for ((id, name), found) in needs.iter().zip(&names).zip(self.repository.records.read_many(&names)?) {
            // Its record alone proves nothing: a run that slept during the removal may have written it.
            let record = found?.map(|bytes| format::decode::<SetRecord>(&self.repository.records.shown(name), &bytes));
            let first = record.transpose()?.and_then(|record| record.families.into_iter().next());
            if !first.map_or(Ok(false), |first| self.repository.holds(&first))? {
                let why = "was removed: this run was silent for longer than its lease, or sets were removed by hand";
                return Ok(LeaseState::Gone(Error::refused(format!("backup set {id}"), why, "take a full")));
            }
        }
        Ok(LeaseState::Firm)
    }

    /// The error about the first needed set with a tombstone.
    fn tombstone(&self) -> Result<Option<Error>> {
        let needs = self.lock().needs.clone();
        let names: Vec<String> = needs.iter().map(|id| format::tombstone_name(*id)).collect();
        for ((id, name), found) in needs.iter().zip(&names).zip(self.repository.records.read_many(&names)?) {
            let Some(bytes) = found? else { continue };
            let tombstone: TombstoneRecord = format::decode(&self.repository.records.shown(name), &bytes)?;
            // A prune that has ended removes nothing any more, and the next prune respects the lease.
            let prune: Option<TaskRecord> = self.repository.read(&format::task_name(tombstone.task))?;
            if prune.is_some_and(|prune| !prune.state.is_open()) {
                continue;
            }
            let why = format!("is being removed by prune {} on {}", tombstone.task, on_its_line(&tombstone.host));
            let hint = format!(
                "take another set, or restore this one with --from; if that prune is dead, the next `fullbore prune --repo \
                 {} --confirm` keeps or removes this set by the retention rules",
                self.repository.name
            );
            return Ok(Some(Error::refused(format!("backup set {id}"), why, hint)));
        }
        Ok(None)
    }
}

/// Asks a task to end.
///
/// # Errors
/// The repository cannot be written to.
pub fn ask_to_end(repository: &Repository, task: Uuid) -> Result<()> {
    #[derive(Serialize)]
    struct Asked {
        host: String,
        asked_at: String,
    }
    let asked = Asked { host: fullbore_core::resources::host(), asked_at: jiff::Timestamp::now().to_string() };
    repository.records.write(&format::cancel_name(task), &format::encode(&asked)?)
}

/// Decides about a set, unless it is decided already. Returns the decision.
///
/// # Errors
/// The repository cannot be reached.
pub fn decide(repository: &Repository, set: Uuid, decision: Decision, task: Uuid) -> Result<Decision> {
    decided(repository, set, decision, task).map(|decided| decided.decision)
}

/// The same, with the task that decided it.
///
/// # Errors
/// The repository cannot be reached.
pub fn decided(repository: &Repository, set: Uuid, decision: Decision, task: Uuid) -> Result<DecisionRecord> {
    let name = repository.decision_name(set);
    let ours = DecisionRecord { decision, task };
    if repository.records.create(&name, &format::encode(&ours)?)? {
        return Ok(ours);
    }
    let decided: Option<DecisionRecord> = repository.read(&name)?;
    decided.ok_or_else(|| {
        let why = "existed, and is gone: records were removed by hand";
        Error::refused(repository.records.shown(&name), why, "leave `.fullbore/` to fullbore")
    })
}
