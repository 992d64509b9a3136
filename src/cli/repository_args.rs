//! The flags of the verbs that work on repositories.

use std::path::PathBuf;

use clap::Args;

use super::args::{Chosen, Shown, Tuning};

/// Restore the newest chain of a database into a scratch place, open it, and write down whether it is good.
///
/// SQLite looks at every page and index of it, a server is started on it and checks every table. What was restored is removed again. `list`
/// shows when each set was last proven so, `check` asks for it.
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
    /// Its id, or the start of it.
    #[arg(value_name = "TASK")]
    pub task: String,
    /// A repository of the configuration, or a directory or prefix that ends in /.
    #[arg(long, value_name = "REPOSITORY")]
    pub repo: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
