//! The content of the records: JSON, as `docs/REPOSITORY.md` describes it.

use fullbore_core::device::Device;
use fullbore_core::media::{Position, SetKind};
use fullbore_core::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::process::Process;

/// The version of all records. Version 1 has decisions in `fates/`, and calls a decision a `fate`.
pub const FORMAT: u32 = 2;

/// `repository.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Its identity.
    pub repository_id: Uuid,
    /// When it was made, RFC 3339, by the clock of the host that made it.
    pub created_at: String,
    /// The same by the store's clock, in microseconds since 1970. Repositories of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_at: Option<i64>,
    /// Version of the program.
    pub tool_version: String,
}

/// `sets/ID.json`: a backup set that was committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Identity of the backup.
    pub backup_set_id: Uuid,
    /// Identity of the media.
    pub media_set_id: Uuid,
    /// Full, differential, log.
    pub kind: SetKind,
    /// The full of a differential; the predecessor of a log set.
    pub base: Option<Uuid>,
    /// Outside the chain.
    pub copy_only: bool,
    /// Name of the engine.
    pub engine: String,
    /// The database as the engine names it.
    pub database: String,
    /// `--name`.
    pub name: String,
    /// Microseconds since 1970, by the clock of the host that wrote it.
    pub started_at: i64,
    /// When the last byte of the database was read, in the same form.
    pub finished_at: i64,
    /// The host that made it.
    pub host: String,
    /// Its families, first to last.
    pub families: Vec<FamilyRecord>,
    /// Bytes of the restored database; 0: only the manifest has it.
    pub database_bytes: u64,
    /// True when a key is needed.
    pub encrypted: bool,
    /// The codec asked for.
    pub codec: String,
    /// For a copy, whose files are younger than the set: when it was stored first, by that store's clock, in
    /// microseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_at: Option<i64>,
    /// Its beginning and end, in the engine's own terms.
    pub position: Position,
    /// The run that made it; earlier versions and media do not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunRecord>,
}

/// What the duration of a run depends on, besides its set: estimates learn from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Bytes of the database that were read: without free pages and holes of its files.
    pub plain_bytes: u64,
    /// `--throttle`, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<u64>,
    /// The places of its families, as its host names them: directories without symbolic links, and prefixes. With
    /// `--copy-to`: both sides.
    pub media: Vec<String>,
}

/// One family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyRecord {
    /// The number of its place in the repository, from 0: hosts may name places differently.
    pub place: usize,
    /// Its name there.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskState {
    /// It has a record, and has not begun to move bytes.
    Created,
    /// Bytes are moved.
    InProgress,
    /// It is done.
    Success,
    /// It failed.
    Error,
    /// It was asked to end, and has noticed.
    CancelRequested,
    /// It ended because it was asked to.
    Cancelled,
}

impl TaskState {
    /// True while it runs, or died running.
    pub fn is_open(self) -> bool {
        matches!(self, TaskState::Created | TaskState::InProgress | TaskState::CancelRequested)
    }

    /// The word for people (`STYLE.md`).
    pub fn word(self) -> &'static str {
        match self {
            TaskState::Created | TaskState::InProgress | TaskState::CancelRequested => "running",
            TaskState::Success => "done",
            TaskState::Error => "failed",
            TaskState::Cancelled => "cancelled",
        }
    }

    /// As it is written in records and in objects.
    pub fn name(self) -> &'static str {
        match self {
            TaskState::Created => "CREATED",
            TaskState::InProgress => "IN_PROGRESS",
            TaskState::Success => "SUCCESS",
            TaskState::Error => "ERROR",
            TaskState::CancelRequested => "CANCEL_REQUESTED",
            TaskState::Cancelled => "CANCELLED",
        }
    }
}

/// `tasks/TASK.json`: a run, and the sets that it leases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Its identity.
    pub task: Uuid,
    /// backup, log follow, restore, verify, prune, copy, restore-test.
    pub verb: String,
    /// The engine of the sets that it reads or writes, once it is known. Earlier versions do not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The database.
    pub database: Option<String>,
    /// The host that it runs on.
    pub host: String,
    /// Its process number.
    pub process: u32,
    /// The process as its kernel knows it: another run on the same kernel can see that it has ended. Earlier versions
    /// do not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_as: Option<Process>,
    /// RFC 3339, by that host's clock.
    pub started_at: String,
    /// When it ended, in the same form.
    pub ended_at: Option<String>,
    /// Its state.
    pub state: TaskState,
    /// How many seconds after its last write it counts as alive.
    pub lease_s: u64,
    /// Sets that must stay while it lives.
    pub needs: Vec<Uuid>,
    /// The set that it writes.
    pub writes: Option<Uuid>,
    /// For a copy, whose set others may have written before: the id under which this attempt is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Uuid>,
    /// The families of that set.
    pub families: Vec<FamilyRecord>,
    /// The last few sets that it tried to write and could not: their leftovers can be found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up: Vec<GivenUp>,
    /// Bytes read, of how many, and stored.
    pub progress: TaskProgress,
    /// The error, if it failed.
    pub error: Option<String>,
}

/// A set that the run could not store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// The id of the set.
    pub set: Uuid,
    /// Its families.
    pub families: Vec<FamilyRecord>,
}

impl TaskRecord {
    /// The id under which its set is decided.
    pub fn decision(&self) -> Option<Uuid> {
        self.attempt.or(self.writes)
    }
}

/// The progress of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskProgress {
    /// Bytes of the database, done.
    pub done_bytes: u64,
    /// Bytes of the database, in all; 0: not known yet.
    pub total_bytes: u64,
    /// Bytes on the media.
    pub stored_bytes: u64,
    /// Seconds since the first byte was moved.
    pub elapsed_s: f64,
}

/// `decisions/ID.json`: whether a set is committed or removed. The first writer decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// The decision.
    #[serde(alias = "fate")]
    pub decision: Decision,
    /// The task that wrote it.
    pub task: Uuid,
}

/// The decision about a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Its commit record gets its name.
    Committed,
    /// Its leftovers are removed, and it must never be committed.
    Removed,
}

/// `tombstones/ID.json`: prune will remove this set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TombstoneRecord {
    /// The prune that decided it.
    pub task: Uuid,
    /// The host of that prune.
    pub host: String,
    /// Identity of the set's media: it is in the names of its families.
    #[serde(default)]
    pub media_set_id: Option<Uuid>,
    /// The set's families: they can be found when its record is gone.
    pub families: Vec<FamilyRecord>,
}

/// `verdicts/ID.TIME.passed.json`: the result of reading a whole set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerdictRecord {
    /// verify or restore-test.
    pub by: String,
    /// The host.
    pub host: String,
    /// How long it took, in seconds.
    pub elapsed_s: f64,
    /// The error, if it failed.
    pub error: Option<String>,
}

/// The record of a set.
pub fn set_name(set: Uuid) -> String {
    format!("sets/{set}.json")
}

/// The record of a run.
pub fn task_name(task: Uuid) -> String {
    format!("tasks/{task}.json")
}

/// The record that asks a task to end.
pub fn cancel_name(task: Uuid) -> String {
    format!("tasks/{task}.cancel")
}

/// The record of the decision about a set, in a repository of this format. A repository keeps the folder that it was
/// made with: two versions at work must not decide twice.
pub fn decision_name(repository_format: u32, set: Uuid) -> String {
    let folder = if repository_format < 2 { "fates" } else { "decisions" };
    format!("{folder}/{set}.json")
}

/// A set's tombstone.
pub fn tombstone_name(set: Uuid) -> String {
    format!("tombstones/{set}.json")
}

impl FamilyRecord {
    /// Where it is.
    ///
    /// # Errors
    /// The repository has fewer places than the one that it was written with.
    pub fn device(&self, places: &[Device]) -> Result<Device> {
        // A removal by this name must stay inside the place.
        if self.name.contains(['/', '\0']) || matches!(&self.name[..], "" | "." | "..") {
            let why = "is not the name of a family: a record of the repository was forged or damaged";
            return Err(Error::incomplete(&self.name, why, "`fullbore catalog rebuild` shows which sets are there"));
        }
        let place = places.get(self.place).and_then(|place| place.join(&self.name));
        place.ok_or_else(|| {
            let why = format!("is in place {} of the repository, which has {} here", self.place + 1, places.len());
            Error::refused(&self.name, why, "list all places of the repository in fullbore.toml, in their order")
        })
    }
}

/// A record as bytes.
///
/// # Errors
/// None in practice: every field can be written.
pub fn encode(record: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(record).map_err(|e| Error::io("write", "a record", e.into()))
}

/// A record from untrusted bytes.
///
/// # Errors
/// It is not a record, or was written by a newer fullbore.
pub fn decode<T: DeserializeOwned>(shown: &str, bytes: &[u8]) -> Result<T> {
    #[derive(Deserialize)]
    struct Version {
        format: Option<u32>,
    }
    let version = serde_json::from_slice::<Version>(bytes).ok().and_then(|version| version.format);
    if let Some(newer) = version.filter(|&version| version > FORMAT) {
        let why = format!("was written by a newer fullbore (format {newer}; this one knows {FORMAT})");
        return Err(Error::refused(
            shown,
            why,
            "use the newer fullbore: an older one could remove data that it does not understand",
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        Error::incomplete(
            shown,
            format!("is not a record of a repository: {error}"),
            "if no run is writing it, remove it: fullbore also finds sets by their media, \
             and `fullbore catalog rebuild` records them again",
        )
    })
}
