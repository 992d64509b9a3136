//! Profiles: calibration's measurements of a machine, as a named file. `docs/CALIBRATION.md` lists the fields and
//! units.

mod bounds;
mod here;
mod machine;
mod operations;
mod path;
mod scatter;
mod stored;
#[cfg(test)]
mod tests;
mod whose;

use serde::{Deserialize, Serialize};

use super::statistics::median;

pub use crate::throughput::Access;
pub use here::{DEFAULT, PathLocation, for_job, of_this_machine};
pub use machine::Machine;
pub use operations::contradicted;
pub use path::{Asked, Calibrated};
pub use stored::{all, check_name, load, places, save};

/// The version of the file. A reader refuses any other.
pub const VERSION: u64 = 1;

/// A calibration of one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`VERSION`].
    pub version: u64,
    /// Version of fullbore.
    pub tool_version: String,
    /// The user's name for it.
    pub name: String,
    /// When the run ended: RFC 3339, UTC.
    pub made_at: String,
    /// The machine.
    pub machine: Machine,
    /// The settings of the run.
    pub settings: Settings,
    /// Each `--read` and each `--write`.
    pub places: Vec<MeasuredPath>,
    /// Reading and writing at once.
    pub together: Vec<Together>,
    /// Bytes of real data that codecs were measured on.
    pub sample_bytes: u64,
    /// Codecs, in memory.
    pub codecs: Vec<CodecCell>,
    /// The work of a worker on a plain byte besides packing.
    pub checksums: Vec<WorkCell>,
    /// The cipher.
    pub ciphers: Vec<WorkCell>,
    /// Buffers on their way from thread to thread; empty in older profiles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hand_overs: Vec<HandOver>,
    /// Costs of jobs besides moving their bytes; empty in older profiles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_costs: Vec<JobCost>,
    /// Notes on this run.
    pub notes: Vec<String>,
}

/// The settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Seconds for the run.
    pub seconds: f64,
    /// Bytes in each file system, at most.
    pub space_bytes: Option<u64>,
    /// Bytes per second, at most, of all reads and writes together.
    pub throttle_bytes_per_s: Option<u64>,
}

/// The flag of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// `--read`.
    Read,
    /// `--write`: measured in both directions.
    Write,
}

/// A file, a directory, or a prefix in a store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredPath {
    /// Absolute and without symbolic links, or a URL.
    pub path: String,
    /// Its flag.
    #[serde(rename = "use")]
    pub used: Use,
    /// Number of the device of its file system; `None` for a store.
    pub device: Option<u64>,
    /// Bytes of the files that were read; space that was used.
    pub bytes: u64,
    /// What was measured.
    pub cells: Vec<Cell>,
}

/// The order of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Each directly after the one before.
    Sequential,
    /// In random order.
    Random,
    /// Each is a separate file, durable before the next: `block_bytes` is the size of a file.
    Files,
}

/// One way to use a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessPattern {
    /// Reading or writing.
    pub way: Access,
    /// The order of operations.
    pub order: Order,
    /// Bytes of an operation.
    pub block_bytes: u64,
    /// Operations in flight in each stream.
    pub queue_depth: u64,
    /// Files at once, or parts of one file.
    pub streams: u64,
    /// Past the page cache.
    pub direct: bool,
}

/// A way to use a place, and its measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The way.
    pub shape: AccessPattern,
    /// All its measurements.
    pub rounds: Vec<Round>,
}

/// One short measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// Bytes moved, packed, hashed.
    pub bytes: u64,
    /// From the start to the end, of all streams or threads.
    pub seconds: f64,
    /// Seconds of these until the written bytes were durable.
    pub sync_seconds: f64,
    /// Processor seconds of the streams' threads.
    pub cpu_seconds: f64,
    /// For writes: `seconds` without their share of the sync. Profiles from before 2026-11-25 do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving_seconds: Option<f64>,
}

/// Reading from one place and writing to another at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Together {
    /// The place that was read, by its number from 0.
    pub read: usize,
    /// The place that was written.
    pub written: usize,
    /// Bytes of an operation.
    pub block_bytes: u64,
    /// Operations in flight in each direction.
    pub queue_depth: u64,
    /// Bytes that are written for each byte that is read: [`EVEN`] or [`WRITE_HEAVY`].
    #[serde(default = "even")]
    pub written_per_read: u64,
    /// All that was measured.
    pub rounds: Vec<BothRound>,
}

/// As many bytes are written as are read: a job without compression does so.
pub const EVEN: u64 = 1;
/// Two bytes are written for each byte that is read: a restore of compressed media does so.
pub const WRITE_HEAVY: u64 = 2;

/// Profiles of earlier versions have this mix only.
fn even() -> u64 {
    EVEN
}

/// One measurement of both at once, and of each alone just before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BothRound {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Seconds for both.
    pub seconds: f64,
    /// Bytes per second of reading alone.
    pub read_alone: f64,
    /// Bytes per second of writing alone.
    pub written_alone: f64,
}

/// The times of a backup of a tiny database and of its restore, each in a separate process. Nearly all of these times
/// are fixed costs of any job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobCost {
    /// The place of the media, by its number from 0.
    pub media: usize,
    /// The place of the database, and of its restore.
    pub database: usize,
    /// Bytes of that database.
    pub plain_bytes: u64,
    /// Seconds of each backup, from the start of its process to the end.
    pub backup_s: Vec<f64>,
    /// Seconds of each restore.
    pub restore_s: Vec<f64>,
}

impl JobCost {
    /// Adds one round.
    pub fn add(&mut self, plain_bytes: u64, backup_s: f64, restore_s: f64) {
        self.plain_bytes = plain_bytes;
        self.backup_s.push(backup_s);
        self.restore_s.push(restore_s);
    }
}

/// A codec on the sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecCell {
    /// As `--compression` spells it.
    pub codec: String,
    /// Threads that packed or unpacked at once.
    pub threads: u64,
    /// Stored bytes for a plain byte of the sample.
    pub stored_share: f64,
    /// The standard error of `stored_share`, as a share of it.
    pub stored_share_error: f64,
    /// Bytes of one worker's contexts.
    pub context_bytes: u64,
    /// Rounds of packing; plain bytes.
    pub pack: Vec<Round>,
    /// Rounds of unpacking; plain bytes.
    pub unpack: Vec<Round>,
}

/// Work on bytes in memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkCell {
    /// Threads that worked at once.
    pub threads: u64,
    /// All that was measured.
    pub rounds: Vec<Round>,
}

/// Buffers that pass three threads, one buffer at a time, as in a job whose threads all wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandOver {
    /// Buffers that passed.
    pub buffers: u64,
    /// Processor seconds of the three threads.
    pub cpu_seconds: f64,
}

impl Round {
    /// A round without a sync, with unknown processor time.
    pub fn of(bytes: u64, seconds: f64) -> Self {
        Self { bytes, seconds, sync_seconds: 0.0, cpu_seconds: 0.0, moving_seconds: None }
    }

    /// Bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Bytes per second before the sync.
    pub fn moving_rate(&self) -> f64 {
        self.bytes as f64 / self.moving_seconds.unwrap_or(self.seconds)
    }
}

/// Bytes per second: the median of rounds.
pub fn rate(rounds: &[Round]) -> Option<f64> {
    median(rounds.iter().map(Round::rate))
}

impl MeasuredPath {
    /// True for a prefix or an object in a store: its operations are requests.
    pub fn is_in_store(&self) -> bool {
        self.device.is_none()
    }

    /// True for a cell whose bytes went through the page cache, as whole files. Small files are synced. A store has no
    /// cache here.
    pub fn is_cached(&self, cell: &Cell) -> bool {
        !cell.shape.direct && !self.is_in_store() && cell.shape.order != Order::Files
    }

    /// Whether measurements of one place count for the other: both were written, and are in one file system.
    pub fn shares_cells(&self, other: &Self) -> bool {
        (self.used, other.used) == (Use::Write, Use::Write) && self.device.is_some() && self.device == other.device
    }
}

impl Cell {
    /// Bytes per second: the median of its rounds.
    pub fn rate(&self) -> f64 {
        rate(&self.rounds).unwrap_or(0.0)
    }
}

impl Profile {
    /// An empty profile of this machine.
    pub fn begin(name: &str, settings: Settings) -> Self {
        Self {
            version: VERSION,
            tool_version: env!("CARGO_PKG_VERSION").into(),
            name: name.into(),
            made_at: jiff::Timestamp::now().to_string(),
            machine: Machine::this(),
            settings,
            places: Vec::new(),
            together: Vec::new(),
            sample_bytes: 0,
            codecs: Vec::new(),
            checksums: Vec::new(),
            ciphers: Vec::new(),
            hand_overs: Vec::new(),
            job_costs: Vec::new(),
            notes: Vec::new(),
        }
    }
}
