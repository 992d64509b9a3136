//! The report of a job: `--report json`, documented in `docs/REPORT.md`. Filled while the job runs, so that a job
//! that failed has one too.

use fullbore_core::meter::{Bottleneck, Stage, bottleneck};
use fullbore_core::sink::DeviceAccount;
use serde::Serialize;

use crate::tune::profile::Profile;
use crate::tune::verdict::Setup;
use crate::units::{counted, mib_per_s, show_bytes};
use followed::Followed;

mod costs;
mod followed;
mod judge;
mod known;

pub use followed::{BacklogReport, FollowingReport, StretchReport};
pub use judge::{CalibratedReport, CostReport, UseReport, VerdictReport, WhatIfReport};

/// Version of the report; fields are added, never changed.
pub const SCHEMA_VERSION: u32 = 1;
/// The exit code of what was done, with warnings.
pub const WITH_WARNINGS: u8 = 4;

/// One job, as an object.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the program.
    pub tool_version: String,
    /// Name of the machine.
    pub host: String,
    /// `backup`, `restore`, `verify`.
    pub command: String,
    /// `done`, `done_with_warnings`, `failed`, `cancelled`, `planned`.
    pub status: String,
    /// The error's text, when it failed.
    pub error: Option<String>,
    /// What the program ends with.
    pub exit_code: u8,
    /// RFC 3339.
    pub started_at: String,
    /// RFC 3339.
    pub finished_at: String,
    /// full, differential, log.
    pub kind: Option<String>,
    /// Name of the engine.
    pub engine: Option<String>,
    /// The database as the user named it.
    pub database: Option<String>,
    /// Identity of the backup.
    pub backup_set_id: Option<String>,
    /// Identity of the media.
    pub media_set_id: Option<String>,
    /// The task that this run was in its repository.
    pub task: Option<String>,
    /// Sets that a restore takes, in order, or that a verification read.
    pub sets: Vec<String>,
    /// Sets that were copied, or would be, in order.
    pub copied: Vec<CopyReport>,
    /// The families.
    pub families: Vec<FamilyReport>,
    /// The same families in the repository of `--copy-to`.
    pub copies: Vec<FamilyReport>,
    /// Bytes read from the database, or unpacked.
    pub source_bytes: u64,
    /// Of these, free pages that were not read.
    pub unread_bytes: u64,
    /// Bytes of the database that hold something.
    pub allocated_bytes: u64,
    /// Of these, room in a server's files that was never written: read as zeros without the disk.
    pub hole_bytes: u64,
    /// Bytes not stored: free, zero, or (differential) unchanged.
    pub skipped_bytes: u64,
    /// Bytes of all families.
    pub stored_bytes: u64,
    /// source_bytes / stored_bytes.
    pub ratio: f64,
    /// Wall time.
    pub elapsed_s: f64,
    /// source_bytes per second.
    pub mib_per_s: f64,
    /// The buffer pool.
    pub pool: PoolReport,
    /// Greatest resident set of the process.
    pub peak_rss_bytes: u64,
    /// Where the time of each stage went.
    pub stages: Vec<StageReport>,
    /// What each device did.
    pub io: Vec<DeviceReport>,
    /// User and system time of the process.
    pub cpu_s: f64,
    /// The stage that was the limit.
    pub bottleneck: Option<BottleneckReport>,
    /// What was the limit, why, and what another configuration would have changed.
    pub verdict: Option<VerdictReport>,
    /// Of a log that was followed, whether it was kept up with.
    pub following: Option<FollowingReport>,
    /// The raw path, with `--measure-limit`.
    pub limit: Option<LimitReport>,
    /// The engine's own positions.
    pub position: Option<PositionReport>,
    /// How long writers to the database could have been kept waiting.
    pub writers_blocked_s: f64,
    /// What an interrupted restore had left, and what was fetched.
    pub resumed: Option<ResumedReport>,
    /// What a server did that was started on a restored directory.
    pub start_check: Option<StartCheckReport>,
    /// Tables that were taken out of the backup of a server.
    pub tables: Option<TablesReport>,
    /// The configuration file that counted.
    pub configuration: Option<String>,
    /// The keys that the set is encrypted to, or those of the copies.
    pub encrypted_to: Vec<KeyReport>,
    /// What a backup would do, with `--dry-run`.
    pub planned: Option<PlannedReport>,
    /// What went not quite as it should.
    pub warnings: Vec<String>,
    /// What is worth knowing, and nothing to be done about.
    pub notes: Vec<String>,
    /// The plan, for the verdict.
    #[serde(skip)]
    pub setup: Option<Setup>,
    /// Where the database's files are on this machine, if that is known; for the verdict too, as is the profile.
    #[serde(skip)]
    pub database_at: Option<String>,
    /// `--throttle` in source bytes per second, of a copy in bytes of the media that it reads; for the verdict too.
    #[serde(skip)]
    pub throttle: Option<u64>,
    /// The devices of the families that a copy has read, in order; for the verdict too.
    #[serde(skip)]
    pub read_from: Vec<String>,
    /// What took time before the first and after the last byte; for the verdict too.
    #[serde(skip)]
    costs: Vec<costs::Booked>,
    /// What following a log came to, for the verdict too.
    #[serde(skip)]
    followed: Option<Followed>,
    /// What the verdict compares with.
    #[serde(skip)]
    profile: Option<Profile>,
    /// Behind `stages`.
    #[serde(skip)]
    accounts: Vec<Stage>,
    /// From the first byte of each set to its last, in seconds, and how many sets there were.
    #[serde(skip)]
    moving: (f64, u32),
    /// Those of cpu_s that were before the job: measuring its limit.
    cpu_before_s: f64,
}

/// One family.
#[derive(Debug, Clone, Serialize)]
pub struct FamilyReport {
    /// As the user named it.
    pub device: String,
    /// Its length.
    pub bytes: u64,
    /// Its digest in hexadecimal digits.
    pub blake3: String,
}

/// A key that a set is encrypted to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyReport {
    /// Its name on the media, in hexadecimal digits.
    pub key_id: String,
    /// The file that it was read from.
    pub file: Option<String>,
}

/// What a backup would do.
#[derive(Debug, Clone, Serialize)]
pub struct PlannedReport {
    /// As `--compression` spells it.
    pub compression: String,
    /// Threads that read the database.
    pub readers: u64,
    /// Threads that pack.
    pub workers: u64,
    /// Writes in flight in each family.
    pub queue_depth: u64,
    /// The families.
    pub families: Vec<PlannedFamily>,
    /// The same families in the repository of `--copy-to`.
    pub copies: Vec<PlannedFamily>,
}

/// A family that would be written.
#[derive(Debug, Clone, Serialize)]
pub struct PlannedFamily {
    /// As a report of the backup would name it; a name that is made of the time and an id is another one then.
    pub device: String,
    /// How long it is expected to become; 0 where that is not known.
    pub expected_bytes: u64,
    /// Bytes that are free there; nothing of a store.
    pub free_bytes: Option<u64>,
}

/// A restore with `--resume`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ResumedReport {
    /// The database under its working name.
    pub file: String,
    /// Bytes of it that were as the page map says, and stayed.
    pub kept_bytes: u64,
    /// Bytes of the blocks that were fetched, as they are on the media.
    pub fetched_bytes: u64,
    /// Their number.
    pub fetched_blocks: u64,
}

/// A set that was copied, or would be.
#[derive(Debug, Clone, Serialize)]
pub struct CopyReport {
    /// full, differential, log.
    pub kind: String,
    /// Identity of the backup: that of the copy too.
    pub backup_set_id: String,
    /// The database, where it can be told.
    pub database: Option<String>,
    /// `as it is`, `made anew`, `there already`.
    pub how: String,
    /// Identity of the media that were read.
    pub from_media_set_id: String,
    /// Identity of the media of the copy; empty in the plan of one that is made anew.
    pub media_set_id: String,
    /// Families that were read.
    pub from_families: u16,
    /// Where the copy's families are.
    pub families: Vec<String>,
    /// Bytes of the media that were read.
    pub read_bytes: u64,
    /// Bytes of the copy's families; in a plan what is expected.
    pub stored_bytes: u64,
}

impl CopyReport {
    /// It in one line.
    pub fn line(&self) -> String {
        let of = self.database.as_ref().map_or_else(String::new, |database| format!(" of `{database}`"));
        let families = |count: usize| counted(count as u64, "family");
        let Self { kind, backup_set_id, how, .. } = self;
        format!(
            "{kind} {backup_set_id}{of}: {how}, {} in {} to {}",
            show_bytes(self.read_bytes),
            families(self.from_families.into()),
            families(self.families.len())
        )
    }
}

/// A server that was started on a restored directory once, and found every table OK.
#[derive(Debug, Clone, Serialize)]
pub struct StartCheckReport {
    /// The server's program.
    pub program: String,
    /// Its version.
    pub version: String,
    /// From the start until it answered, recovery included.
    pub ready_s: f64,
    /// Tables that were checked.
    pub tables: u64,
    /// Tables of other engines that were loaded before that.
    pub loaded: u64,
    /// How long that took.
    pub check_s: f64,
}

/// Tables that were taken out of the backup of a server, by a private server on some of its files.
#[derive(Debug, Clone, Serialize)]
pub struct TablesReport {
    /// The server's program.
    pub program: String,
    /// Its version.
    pub version: String,
    /// From the start until it answered, recovery included.
    pub ready_s: f64,
    /// Files that were restored for it.
    pub restored_files: u64,
    /// Bytes in them.
    pub restored_bytes: u64,
    /// Files of the backup that were not written.
    pub passed_over_files: u64,
    /// Bytes in them.
    pub passed_over_bytes: u64,
    /// The tables.
    pub tables: Vec<TableReport>,
}

/// One table that was taken out.
#[derive(Debug, Clone, Serialize)]
pub struct TableReport {
    /// Its name.
    pub table: String,
    /// Its files in the target.
    pub files: Vec<String>,
    /// Bytes in them.
    pub bytes: u64,
}

/// The buffer pool.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PoolReport {
    /// BUFFERCOUNT.
    pub buffer_count: u64,
    /// MAXTRANSFERSIZE in bytes.
    pub max_transfer_size: u64,
    /// Their product.
    pub bytes: u64,
    /// Contexts of the codecs, all workers together, beside the pool.
    pub codec_bytes: u64,
    /// Parts of objects that are not full while a stripe waits, one for each stripe in a store, beside the pool.
    pub part_bytes: u64,
}

/// One stage, summed over its threads.
#[derive(Debug, Clone, Serialize)]
pub struct StageReport {
    /// source, transform, sink; media, transform, target.
    pub name: String,
    /// Bytes that passed.
    pub bytes: u64,
    /// Working.
    pub busy_s: f64,
    /// Waiting for input.
    pub starved_s: f64,
    /// Waiting for a buffer or for the next stage.
    pub blocked_s: f64,
}

/// One device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// As the user named it.
    pub device: String,
    /// Its directory or store.
    pub dir: String,
    /// Operations.
    pub ops: u64,
    /// Bytes per operation.
    pub mean_bytes: f64,
    /// Operations in flight when one was queued.
    pub mean_queue_depth: f64,
    /// 99th percentile of an operation's time, in microseconds.
    pub p99_us: u64,
    /// Past the page cache.
    pub direct: bool,
}

/// The stage that was the limit.
#[derive(Debug, Clone, Serialize)]
pub struct BottleneckReport {
    /// Its name.
    pub stage: String,
    /// The numbers that say so.
    pub why: String,
}

/// The raw path, measured in this run.
#[derive(Debug, Clone, Serialize)]
pub struct LimitReport {
    /// The stage with the lowest limit.
    pub stage: String,
    /// What the whole path could do, in source MiB/s.
    pub mib_per_s: f64,
    /// mib_per_s of the job in percent of it.
    pub percent: f64,
    /// Reading the source alone.
    pub source_mib_per_s: f64,
    /// Checksums and codec on all workers, in source MiB/s; `None` when it was not measured.
    pub transform_mib_per_s: Option<f64>,
    /// Writing the sinks alone, in stored MiB/s; `None` for devices that are not files.
    pub sink_mib_per_s: Option<f64>,
    /// Operations that each family had in flight then.
    pub sink_queue_depth: u64,
    /// Bytes of each.
    pub sink_transfer_bytes: u64,
    /// Reading the source and writing the sinks at the same time, in source MiB/s; `None` for devices that are not files.
    pub copy_mib_per_s: Option<f64>,
}

/// The engine's positions.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PositionReport {
    /// First position that a restore needs.
    pub first: serde_json::Value,
    /// Consistent with the copied bytes.
    pub checkpoint: serde_json::Value,
    /// Last position in the set.
    pub last: serde_json::Value,
}

impl Report {
    /// A job that starts now.
    pub fn begin(command: &str) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION").into(),
            host: crate::job::host(),
            command: command.into(),
            status: "failed".into(),
            started_at: jiff::Timestamp::now().to_string(),
            cpu_before_s: crate::job::process_usage().cpu_s,
            ..Self::default()
        }
    }

    /// Says that there are fewer buffers and workers than usual, once.
    pub fn note_smaller_plan(&mut self, (buffers, workers): (usize, usize), usual: (usize, usize)) {
        let note = format!(
            "the plan is smaller than usual, because there is not more memory: {}, {} (usual: {}, {})",
            counted(buffers as u64, "buffer"),
            counted(workers as u64, "worker"),
            usual.0,
            usual.1
        );
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// What the process has done so far is not the job: `--measure-limit`.
    pub fn begin_processor_time(&mut self) {
        self.cpu_before_s = crate::job::process_usage().cpu_s;
    }

    /// Books stages, and with them the bottleneck. Those of several sets add up.
    pub fn add_stages(&mut self, more: &[Stage]) {
        self.unread_bytes += more.iter().map(|stage| stage.account.unread).sum::<u64>();
        let longest = more.iter().map(Stage::longest).max().unwrap_or_default();
        self.moving = (self.moving.0 + longest.as_secs_f64(), self.moving.1 + 1);
        for stage in more {
            match self.accounts.iter_mut().find(|known| known.name == stage.name) {
                Some(known) => known.go_on(stage),
                None => self.accounts.push(stage.clone()),
            }
        }
        let stages = &self.accounts;
        self.bottleneck =
            bottleneck(stages).map(|Bottleneck { stage, why }| BottleneckReport { stage: stage.into(), why });
        self.stages = stages
            .iter()
            .map(|stage| StageReport {
                name: stage.name.into(),
                bytes: stage.account.bytes,
                busy_s: stage.account.busy.as_secs_f64(),
                starved_s: stage.account.starved.as_secs_f64(),
                blocked_s: stage.account.blocked.as_secs_f64(),
            })
            .collect();
    }

    /// Books one device.
    pub fn add_device(&mut self, device: &str, account: &DeviceAccount) {
        self.warnings.extend(account.warnings.iter().cloned());
        let per_operation =
            |sum: u64| if account.operations == 0 { 0.0 } else { sum as f64 / account.operations as f64 };
        self.io.push(DeviceReport {
            device: device.into(),
            dir: account.directory.clone(),
            ops: account.operations,
            mean_bytes: per_operation(account.bytes),
            mean_queue_depth: per_operation(account.queue_depth_sum),
            p99_us: account.p99_us,
            direct: account.direct,
        });
    }

    /// Books the sizes, and the time that they took.
    pub fn set_speed(&mut self, elapsed_s: f64) {
        self.elapsed_s = elapsed_s;
        self.mib_per_s = mib_per_s(self.source_bytes, elapsed_s);
        self.ratio = if self.stored_bytes == 0 { 0.0 } else { self.source_bytes as f64 / self.stored_bytes as f64 };
    }

    /// Ends the job: time, memory and processor time of the process, the result.
    pub fn finish(&mut self, error: Option<&fullbore_core::Error>) {
        self.finished_at = jiff::Timestamp::now().to_string();
        let usage = crate::job::process_usage();
        self.peak_rss_bytes = usage.peak_rss_bytes;
        self.cpu_s = usage.cpu_s;
        self.verdict = self.judged();
        match error {
            None if self.status == "planned" => self.exit_code = 0,
            None => {
                let warned = !self.warnings.is_empty();
                self.status = if warned { "done_with_warnings" } else { "done" }.into();
                self.exit_code = if warned { WITH_WARNINGS } else { 0 };
            }
            Some(error) => {
                let cancelled = matches!(error, fullbore_core::Error::Cancelled { .. });
                self.status = if cancelled { "cancelled" } else { "failed" }.into();
                self.error = Some(error.to_string());
                self.exit_code = error.verdict().exit_code();
            }
        }
    }

    /// Books that this report could not be written where it was wanted: the job stands as it ended.
    pub fn not_written(&mut self, error: &fullbore_core::Error) {
        let why = crate::job::media::one_line(error);
        let what = match (&self.status[..], self.copied.is_empty(), &self.backup_set_id) {
            ("planned" | "failed" | "cancelled", ..) => String::new(),
            (_, true, Some(id)) if matches!(&self.command[..], "backup" | "log follow") => {
                format!("backup set {id} was committed; ")
            }
            _ => format!("{} was done; ", self.command),
        };
        self.warnings.push(format!("{what}its report was not written: {why}"));
        if self.exit_code == 0 {
            self.exit_code = WITH_WARNINGS;
        }
        if self.status == "done" {
            self.status = "done_with_warnings".into();
        }
    }
}
