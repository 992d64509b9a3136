//! The flags of the verbs that work on repositories.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::args::{Chosen, Shown};
use super::tuning::Tuning;

/// Restore the newest chain of a database into a scratch place, open it, and write down whether it is good.
///
/// SQLite looks at every page and index of it, a server is started on it and checks every table. What was restored is removed again, and so is
/// what a killed test restore has left in the same place. `list` shows when each set was last proven so, `check` asks for it.
///
/// Example: fullbore restore-test --repo nightly --database app
#[derive(Debug, Args)]
pub struct RestoreTest {
    /// A repository of the configuration, or a directory or prefix that ends in /.
    #[arg(long, value_name = "REPOSITORY")]
    pub repo: String,
    /// The database in it [default: the only one].
    #[arg(long, value_name = "DATABASE")]
    pub database: Option<String>,
    /// An existing directory with room for the database [default: the system's for temporary files].
    #[arg(long, value_name = "DIRECTORY")]
    pub scratch: Option<PathBuf>,
    /// The server's program, of the series of the backup [default: mariadbd or mysqld in PATH].
    #[arg(long, value_name = "PATH")]
    pub server_program: Option<PathBuf>,
    /// An option of that server, without its dashes: NAME=VALUE. Repeatable.
    #[arg(long, value_name = "OPTION")]
    pub server_option: Vec<String>,
    /// The key that opens encrypted media.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// Which set.
    #[command(flatten)]
    pub chosen: Chosen,
    /// Buffers and threads.
    #[command(flatten)]
    pub tuning: Tuning,
    /// Messages and report.
    #[command(flatten)]
    pub shown: Shown,
}

/// Show the runs of a repository: their state, speed and how long they will take.
#[derive(Debug, Args)]
pub struct Tasks {
    /// A repository of the configuration, or a directory or prefix that ends in /.
    #[arg(long, value_name = "REPOSITORY")]
    pub repo: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Name one run of a repository.
#[derive(Debug, Args)]
pub struct OneTask {
    /// Its id, or the start or the end of it.
    #[arg(value_name = "TASK")]
    pub task: String,
    /// A repository of the configuration, or a directory or prefix that ends in /.
    #[arg(long, value_name = "REPOSITORY")]
    pub repo: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Remove the backup sets that no rule keeps, no kept set needs, and that something newer and verified takes the place of.
///
/// Without --confirm nothing is removed: every set is shown with the reasons why it stays. The rules stand in the configuration, below
/// [repository.NAME.keep], or follow here; docs/RETENTION.md has them.
///
/// Exit code 4: something may not go because nothing newer was verified.
///
/// Example: fullbore prune --repo nightly --keep-daily 7 --keep-weekly 4 --window 14d --confirm
#[derive(Debug, Args)]
pub struct Prune {
    /// A repository of the configuration, or a directory or prefix that ends in /.
    #[arg(long, value_name = "REPOSITORY")]
    pub repo: String,
    /// Only this database [default: each of them].
    #[arg(long, value_name = "DATABASE")]
    pub database: Option<String>,
    /// Keep the last so many fulls and differentials.
    #[arg(long, value_name = "N")]
    pub keep_last: Option<u32>,
    /// Keep the newest of each of so many days.
    #[arg(long, value_name = "N")]
    pub keep_daily: Option<u32>,
    /// Keep the newest of each of so many weeks.
    #[arg(long, value_name = "N")]
    pub keep_weekly: Option<u32>,
    /// Keep the newest of each of so many months.
    #[arg(long, value_name = "N")]
    pub keep_monthly: Option<u32>,
    /// Keep the newest of each of so many years.
    #[arg(long, value_name = "N")]
    pub keep_yearly: Option<u32>,
    /// Keep whatever a restore to any point of this time needs: 14d, 36h.
    #[arg(long, value_name = "TIME")]
    pub window: Option<String>,
    /// So many verified chains stay, and without them nothing goes [default: 1].
    #[arg(long, value_name = "N")]
    pub min_verified_chains: Option<u32>,
    /// Where days begin: Europe/Berlin [default: UTC].
    #[arg(long, value_name = "ZONE")]
    pub time_zone: Option<String>,
    /// Remove what may go.
    #[arg(long)]
    pub confirm: bool,
    /// How long to wait between saying that sets are to go and removing them.
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub grace: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Is last night good? Look whether each database has a backup that is young enough and was proven.
///
/// Exit code 0 only when all of it is so: also a repository that cannot be reached is not good.
///
/// Example: fullbore check --repo nightly --max-age 26h --max-unproven 8d --metrics /var/lib/node_exporter/fullbore.prom
#[derive(Debug, Args)]
pub struct Check {
    /// A repository of the configuration, or a directory or prefix that ends in /.
    #[arg(long, value_name = "REPOSITORY")]
    pub repo: String,
    /// Only this database [default: each of them].
    #[arg(long, value_name = "DATABASE")]
    pub database: Option<String>,
    /// The newest whole chain is no older: 26h.
    #[arg(long, value_name = "TIME")]
    pub max_age: Option<String>,
    /// A whole chain was verified, or restored by restore-test, no longer ago: 8d.
    #[arg(long, value_name = "TIME")]
    pub max_unproven: Option<String>,
    /// A database that is backed up no more: how old its backups are does not count, only whether they are good; may be given more than once. In
    /// the configuration: retired = ["old.db"] below [repository.NAME].
    #[arg(long, value_name = "DATABASE")]
    pub retired: Vec<String>,
    /// Write what was found into this file, as Prometheus reads it; also when the repository cannot be reached.
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
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
    /// Read a repository anew; make its records again from the media where they were lost.
    Rebuild {
        /// A repository of the configuration, or a directory or prefix that ends in /.
        #[arg(long, value_name = "REPOSITORY")]
        repo: String,
        /// The key that opens encrypted sets: without their records it alone tells of which database they are.
        #[arg(long, value_name = "KEYFILE")]
        key: Option<PathBuf>,
    },
}
