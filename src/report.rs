//! The report of a job: `--report json`, documented in `docs/REPORT.md`. The job fills it while it runs, so that a
//! failed job has a report too.

use fullbore_core::meter::{Bottleneck, Stage, bottleneck};
use fullbore_core::sink::DeviceAccount;
use serde::Serialize;

use followed::Followed;
use fullbore_core::units::{counted, mib_per_s, show_bytes};
use fullbore_engines::Coverage;
use fullbore_model::profile::Profile;
use fullbore_model::verdict::Setup;

mod costs;
mod followed;
mod judge;
mod migration;
mod calibrated;
mod point;
mod server;

pub use followed::{BacklogReport, FollowingReport, StretchReport};
pub use judge::{CalibratedReport, CostReport, UseReport, VerdictReport, WhatIfReport};
pub use migration::{DefinitionReport, ForeseenReport, MigrationReport};
pub use point::PointReport;
pub use server::ServerReport;

/// Version of the report; fields are added, never changed.
pub const SCHEMA_VERSION: u32 = 1;
/// The exit code of a job that is done, with warnings.
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
    /// The text of the error, if the job failed.
    pub error: Option<String>,
    /// The next step after this error, if there is one.
    pub hint: Option<String>,
    /// The exit code of the program.
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
    /// Of these, parts of a server's files that were never written: read as zeros without the disk.
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
    /// For a followed log: whether the follower kept up.
    pub following: Option<FollowingReport>,
    /// Of a migration.
    pub migration: Option<MigrationReport>,
    /// The raw path, with `--measure-limit`.
    pub limit: Option<LimitReport>,
    /// The engine's own positions.
    pub position: Option<PositionReport>,
    /// Of a run by the server itself: its words.
    pub server: Option<ServerReport>,
    /// The state that the set holds; of a restore, the state of the restored database.
    pub point: Option<PointReport>,
    /// The target of a restore, as `--into` names it.
    pub into: Option<String>,
    /// With `--no-recovery`: the target is not a database yet.
    pub restoring: bool,
    /// How long writers to the database may have waited.
    pub writers_blocked_s: f64,
    /// With `--resume`: what was kept of the partial restore, and what was fetched.
    pub resumed: Option<ResumedReport>,
    /// The check by a server that was started on the restored directory.
    pub start_check: Option<StartCheckReport>,
    /// Tables that were taken out of the backup of a server.
    pub tables: Option<TablesReport>,
    /// The configuration file that was read.
    pub configuration: Option<String>,
    /// The keys that the set is encrypted to, or those of the copies.
    pub encrypted_to: Vec<KeyReport>,
    /// What a backup would do, with `--dry-run`.
    pub planned: Option<PlannedReport>,
    /// Of a verification of media of another program: which bytes which check protects. Together they are all bytes.
    pub coverage: Vec<Coverage>,
    /// Tables that were exported or refused.
    pub exported: Vec<ExportedTable>,
    /// Problems that did not stop the job.
    pub warnings: Vec<String>,
    /// Facts that are worth knowing and need no action.
    pub notes: Vec<String>,
    /// A restore has written texts into a directory, not the files of a server.
    #[serde(skip)]
    pub is_of_texts: bool,
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
    /// The steps before the first and after the last byte, with their times; for the verdict too.
    #[serde(skip)]
    costs: Vec<costs::Booked>,
    /// The result of following a log; for the verdict too.
    #[serde(skip)]
    followed: Option<Followed>,
    /// The profile that the verdict compares with.
    #[serde(skip)]
    profile: Option<Profile>,
    /// The accounts that `stages` is made from.
    #[serde(skip)]
    accounts: Vec<Stage>,
    /// From the first byte of each set to its last, in seconds, and how many sets there were.
    #[serde(skip)]
    moving: (f64, u32),
    /// Processor seconds before the job, for measuring its limit. `cpu_s` includes them.
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
    /// The name as in a report of the backup. A name with the time and an id differs then.
    pub device: String,
    /// The expected length; 0 if it is unknown.
    pub expected_bytes: u64,
    /// Bytes that are free there; none for a store.
    pub free_bytes: Option<u64>,
}

/// A restore with `--resume`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ResumedReport {
    /// The database under its working name.
    pub file: String,
    /// Bytes of it that matched the page map and were kept.
    pub kept_bytes: u64,
    /// Bytes of the fetched blocks, as they are on the media.
    pub fetched_bytes: u64,
    /// Number of fetched blocks.
    pub fetched_blocks: u64,
}

/// A table of an export.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ExportedTable {
    /// Schema and name.
    pub table: String,
    /// The name of its file, of formats with one file for each table.
    pub file: Option<String>,
    /// Rows that were written.
    pub rows: u64,
    /// Rows that the database itself has counted.
    pub stored_rows: Option<u64>,
    /// Why it was not exported.
    pub refused: Option<String>,
}

/// A set that was copied, or would be.
#[derive(Debug, Clone, Serialize)]
pub struct CopyReport {
    /// full, differential, log.
    pub kind: String,
    /// Identity of the backup. The copy has the same.
    pub backup_set_id: String,
    /// The database, if it is known.
    pub database: Option<String>,
    /// `as it is`, `made anew`, `there already`.
    pub how: String,
    /// Identity of the media that were read.
    pub from_media_set_id: String,
    /// Identity of the media of the copy; empty in the plan of a copy that is made anew.
    pub media_set_id: String,
    /// Families that were read.
    pub from_families: u16,
    /// Where the copy's families are.
    pub families: Vec<String>,
    /// Bytes of the media that were read.
    pub read_bytes: u64,
    /// Bytes of the copy's families; in a plan, the expected bytes.
    pub stored_bytes: u64,
}

impl CopyReport {
    /// The copy in one line.
    pub fn line(&self) -> String {
        let of = self.database.as_ref().map_or_else(String::new, |database| format!(" of `{database}`"));
        let families = |count: usize| counted(count as u64, "family");
        let Self { kind, backup_set_id, how, .. } = self;
        if self.families.is_empty() {
            return format!("{kind} {backup_set_id}{of}: {how}");
        }
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
    /// Tables of other engines that were loaded before the check.
    pub loaded: u64,
    /// How long the check took.
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
    /// Operations in flight per family in this measurement.
    pub sink_queue_depth: u64,
    /// Bytes of each operation.
    pub sink_transfer_bytes: u64,
    /// Reading the source and writing the sinks at once, in source MiB/s; `None` for devices that are not files.
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
            host: fullbore_core::resources::host(),
            command: command.into(),
            status: "failed".into(),
            started_at: jiff::Timestamp::now().to_string(),
            cpu_before_s: fullbore_core::resources::process_usage().cpu_s,
            ..Self::default()
        }
    }

    /// Notes once that there are fewer buffers and workers than usual.
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

    /// Excludes the processor time so far from the job: it was `--measure-limit`.
    pub fn begin_processor_time(&mut self) {
        self.cpu_before_s = fullbore_core::resources::process_usage().cpu_s;
    }

    /// Takes in what a part of the work says.
    pub fn take_in(&mut self, warnings: Vec<String>, notes: Vec<String>) {
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        self.notes.extend(notes);
    }

    /// Books stages, and with them the bottleneck. The stages of several sets add up.
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

    /// Adds the report of one set of several.
    pub fn join(&mut self, one: Report) {
        self.add_stages(&one.accounts);
        self.source_bytes += one.source_bytes;
        self.allocated_bytes += one.allocated_bytes;
        self.skipped_bytes += one.skipped_bytes;
        self.stored_bytes += one.stored_bytes;
        self.families.extend(one.families);
        self.io.extend(one.io);
        self.costs.extend(one.costs);
        self.warnings.extend(one.warnings);
        self.notes.extend(one.notes);
        for key in one.encrypted_to {
            if !self.encrypted_to.contains(&key) {
                self.encrypted_to.push(key);
            }
        }
        (self.kind, self.engine, self.database) = (one.kind, one.engine, one.database);
        (self.backup_set_id, self.media_set_id) = (one.backup_set_id, one.media_set_id);
        (self.pool, self.setup, self.point, self.throttle) = (one.pool, one.setup, one.point, one.throttle);
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

    /// Books which check protects which bytes. Those of several media sets add up.
    pub fn add_coverage(&mut self, more: Vec<Coverage>) {
        for line in more {
            match self.coverage.iter_mut().find(|known| known.protection == line.protection) {
                Some(known) => known.bytes += line.bytes,
                None => self.coverage.push(line),
            }
        }
    }

    /// The statement of coverage, one line for each protection. Empty without one.
    pub fn coverage_lines(&self) -> Vec<String> {
        let all: u64 = self.coverage.iter().map(|line| line.bytes).sum();
        let share = |bytes: u64| if all == 0 { 0.0 } else { bytes as f64 * 100.0 / all as f64 };
        let line = |line: &Coverage| {
            format!("{:>5.1} % ({}) protected by {}", share(line.bytes), show_bytes(line.bytes), line.protection)
        };
        self.coverage.iter().map(line).collect()
    }

    /// Books the elapsed time, and computes speed and ratio.
    pub fn set_speed(&mut self, elapsed_s: f64) {
        self.elapsed_s = elapsed_s;
        self.mib_per_s = mib_per_s(self.source_bytes, elapsed_s);
        self.ratio = if self.stored_bytes == 0 { 0.0 } else { self.source_bytes as f64 / self.stored_bytes as f64 };
    }

    /// Ends the job: time, memory and processor time of the process, the result.
    pub fn finish(&mut self, error: Option<&fullbore_core::Error>) {
        self.finished_at = jiff::Timestamp::now().to_string();
        let usage = fullbore_core::resources::process_usage();
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
                self.error = Some(error.without_hint());
                self.hint = Some(error.hint().to_owned()).filter(|hint| !hint.is_empty());
                self.exit_code = error.exit_kind().exit_code();
            }
        }
    }

    /// Books that this report could not be written. The result of the job stays.
    pub fn not_written(&mut self, error: &fullbore_core::Error) {
        let why = error.one_line();
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
