//! The flags of the verbs that work on repositories.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::args::{OutputFlags, SetFlags};
use super::engine_options::RestoreTestOptions;
use super::listing::{ListFlags, ReportFlags};
use super::tuning::ReadTuning;

/// Restore the newest chain of a database into a scratch directory, check it, and record the verdict.
///
/// SQLite checks every page and index of the restored database. For a backup of a server, a server starts on the
/// restored directory and checks every table. fullbore then removes the restored database, and what a killed test
/// restore left in the same place. `list` shows when each set was last proven in this way. `check --max-unproven`
/// counts it.
#[derive(Debug, Args)]
pub struct RestoreTest {
    /// The repository: its name in the configuration, or a directory or prefix ending in / [default: FULLBORE_REPO].
    #[arg(long, value_name = "REPOSITORY")]
    pub repo: String,
    /// The database in the repository [default: the only one].
    #[arg(long, value_name = "DATABASE")]
    pub database: Option<String>,
    /// An existing directory with room for the database [default: the system's directory for temporary files].
    #[arg(long, value_name = "DIRECTORY")]
    pub scratch: Option<PathBuf>,
    /// The options that the engine of the set has.
    #[command(flatten)]
    pub set_options: RestoreTestOptions,
    /// The key that opens encrypted media.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// Which set.
    #[command(flatten)]
    pub chosen: SetFlags,
    /// Buffers and threads.
    #[command(flatten, next_help_heading = "Tuning")]
    pub tuning: ReadTuning,
    /// Messages and report.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: OutputFlags,
}

/// Show the runs of a repository: state, speed and time left.
#[derive(Debug, Args)]
pub struct Tasks {
    /// The repository: its name in the configuration, or a directory or prefix ending in / [default: FULLBORE_REPO].
    #[arg(long, value_name = "REPOSITORY")]
    pub repo: String,
    /// Only runs on this database.
    #[arg(long, value_name = "NAME")]
    pub database: Option<String>,
    /// Only the newest N runs.
    #[arg(long, value_name = "N")]
    pub last: Option<usize>,
    /// Only runs in this state.
    #[arg(long, value_name = "STATE")]
    pub state: Option<RunState>,
    /// The table or its JSON object.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: ListFlags,
}

/// The states of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RunState {
    /// It writes heartbeats.
    Running,
    /// It ended well.
    Done,
    /// It ended with an error.
    Failed,
    /// It was asked to end.
    Cancelled,
    /// It should run, but is silent.
    Dead,
}

impl RunState {
    /// The word of the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Dead => "dead",
        }
    }
}

/// Name one run of a repository.
#[derive(Debug, Args)]
pub struct OneTask {
    /// The id of the run. Any part of the id that no other run has is enough.
    #[arg(value_name = "TASK")]
    pub task: String,
    /// The repository: its name in the configuration, or a directory or prefix ending in / [default: FULLBORE_REPO].
    #[arg(long, value_name = "REPOSITORY")]
    pub repo: String,
    /// The text or its JSON object.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: ReportFlags,
}

/// Remove the backup sets that no rule keeps, that no kept set needs, and that something newer and verified replaces.
///
/// Without --confirm, it removes nothing: it shows every set with the reasons why it stays. The rules are in the
/// configuration below [repository.NAME.keep], or are flags here. docs/RETENTION.md explains them.
///
/// Exit code 4: a set stays because nothing newer was verified, or there is another warning.
#[derive(Debug, Args)]
pub struct Prune {
    /// The repository: its name in the configuration, or a directory or prefix ending in / [default: FULLBORE_REPO].
    #[arg(long, value_name = "REPOSITORY")]
    pub repo: String,
    /// Only this database [default: all databases].
    #[arg(long, value_name = "DATABASE")]
    pub database: Option<String>,
    /// Keep the last N fulls and differentials.
    #[arg(long, value_name = "N")]
    pub keep_last: Option<u32>,
    /// Keep the newest of each of N days.
    #[arg(long, value_name = "N")]
    pub keep_daily: Option<u32>,
    /// Keep the newest of each of N weeks.
    #[arg(long, value_name = "N")]
    pub keep_weekly: Option<u32>,
    /// Keep the newest of each of N months.
    #[arg(long, value_name = "N")]
    pub keep_monthly: Option<u32>,
    /// Keep the newest of each of N years.
    #[arg(long, value_name = "N")]
    pub keep_yearly: Option<u32>,
    /// Keep every set that a restore to any point in the last TIME needs: 14d, 36h.
    #[arg(long, value_name = "TIME")]
    pub window: Option<String>,
    /// Keep at least N verified chains. With fewer, remove nothing [default: 1].
    #[arg(long, value_name = "N")]
    pub min_verified_chains: Option<u32>,
    /// Time zone in which days begin: Europe/Berlin [default: UTC].
    #[arg(long, value_name = "ZONE")]
    pub time_zone: Option<String>,
    /// Remove the sets.
    #[arg(long)]
    pub confirm: bool,
    /// How long to wait between writing the tombstones and removing the sets.
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub grace: String,
    /// The table or its JSON object.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: ListFlags,
}

/// Is last night good? Check that each database has a backup that is new enough and proven.
///
/// The exit code is 0 only if all of this is true. A repository that cannot be reached is not good.
/// --metrics /var/lib/node_exporter/fullbore.prom
#[derive(Debug, Args)]
pub struct Check {
    /// The repository: its name in the configuration, or a directory or prefix ending in / [default: FULLBORE_REPO].
    #[arg(long, value_name = "REPOSITORY")]
    pub repo: String,
    /// Only this database [default: all databases].
    #[arg(long, value_name = "DATABASE")]
    pub database: Option<String>,
    /// Maximum age of the newest complete chain: 26h.
    #[arg(long, value_name = "TIME")]
    pub max_age: Option<String>,
    /// Maximum time since a complete chain was verified, or restored by restore-test: 8d.
    #[arg(long, value_name = "TIME")]
    pub max_unproven: Option<String>,
    /// A database that is not backed up any more: the age of its backups does not count, only whether they are good.
    /// Repeatable. In the configuration: retired = ["old.db"] below [repository.NAME].
    #[arg(long, value_name = "DATABASE")]
    pub retired: Vec<String>,
    /// Write the result into this file as metrics for Prometheus, also when the repository cannot be reached.
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// The table or its JSON object.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: ListFlags,
}

/// This host's catalog of repositories.
#[derive(Debug, Args)]
pub struct Catalog {
    /// What to do.
    #[command(subcommand)]
    pub action: CatalogAction,
}

/// What to do with the catalog.
#[derive(Debug, Subcommand)]
pub enum CatalogAction {
    /// Read the repository again. If its records were lost, make them again from the media.
    Rebuild {
        /// The repository: its name in the configuration, or a directory or prefix ending in / [default: FULLBORE_REPO].
        #[arg(long, value_name = "REPOSITORY")]
        repo: String,
        /// The key that opens encrypted sets. If their records were lost, only this key tells their database.
        #[arg(long, value_name = "KEYFILE")]
        key: Option<PathBuf>,
        /// The text or its JSON object.
        #[command(flatten, next_help_heading = "Output")]
        shown: ReportFlags,
    },
}
