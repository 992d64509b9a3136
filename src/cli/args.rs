//! All flags. The doc comments are the help pages.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fullbore::chain::Choice;
use fullbore::config::Config;
use fullbore::job::reading::Reading;
use fullbore_core::media::SetKind;

use super::advise::GoalFlags;
use super::engine_options::{BackupOptions, OptionsOfSet, RestoreOptions};
use super::listing::{ListFlags, ReportFlags};
use super::repository_args::{Catalog, Check, OneTask, Prune, RestoreTest, Tasks};
use super::server::{ServerFlags, ServerSteps};
use super::tuning::{BackupTuning, ReadTuning};

/// Back up and restore databases at the speed of the hardware, and say which part of the hardware is the limit.
///
/// Messages and progress go to standard error, the result to standard output.
///
/// Exit codes: 0 done · 1 failed, nothing usable was left behind · 2 wrong usage · 3 damage was found · 4 done with
/// warnings · 129, 130 and 143 stopped by a signal.
#[derive(Debug, Parser)]
#[command(name = "fullbore", version, max_term_width = 110)]
pub struct Arguments {
    /// The flags of every verb.
    #[command(flatten, next_help_heading = "Every command")]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The flags of every verb.
#[derive(Debug, Args)]
pub struct Global {
    /// Read this configuration file instead of ./fullbore.toml, ~/.config/fullbore/fullbore.toml or
    /// /etc/fullbore/fullbore.toml.
    ///
    /// A key is the name of a flag without its dashes: `compression = "zstd:1"`. Flags on the command line win. The environment
    /// variable FULLBORE_CONFIG names a file as this flag does.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Append all messages to this file too, each with the time: errors, warnings, notes, progress lines and closing
    /// lines, also those that --quiet leaves out.
    #[arg(long, global = true, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Time limit for one request to an object store (s3://), in seconds, including all retries.
    #[arg(long, global = true, value_name = "SECONDS", help_heading = "Object store")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub device_timeout: Option<u64>,
    /// How long an object store may be unreachable in the middle of a stripe, in seconds. Until then, fullbore repeats
    /// the writes or reads [default: 0].
    #[arg(long, global = true, value_name = "SECONDS", help_heading = "Object store")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=604_800))]
    pub outage: Option<u64>,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    Backup(Box<Backup>),
    /// Back up the log of a database continuously, while the database is in use.
    Log(Box<Log>),
    Restore(Box<Restore>),
    /// Read and check every byte of a backup; write nothing.
    Verify(Verify),
    Copy(Box<super::copy::Copy>),
    Unpack(super::unpack::Unpack),
    #[command(display_order = 13)]
    Migrate(super::migrate::Migrate),
    Export(Box<super::export::Export>),
    Calibrate(super::calibrate::Calibrate),
    Estimate(Box<super::estimate::Estimate>),
    Advise(Box<super::advise::Advise>),
    /// Show the headers, files or labels of media, without reading their data.
    Inspect(Inspect),
    /// List the backup sets in directories or in a repository.
    List(List),
    RestoreTest(RestoreTest),
    Check(Check),
    Prune(Box<Prune>),
    /// Rebuild this host's catalog of a repository.
    Catalog(Catalog),
    /// Show the runs of a repository: state, speed and time left.
    Tasks(Tasks),
    /// Show one run of a repository.
    Task(OneTask),
    /// Ask a run of a repository to end, on any host.
    Cancel(OneTask),
    Bench(super::bench::Bench),
    Sql(super::sql::Sql),
    Gateway(Box<super::gateway::Gateway>),
    /// Make keys, and wrap the data keys of existing backups for new keys.
    Key(Key),
    /// Write the manual pages into a directory.
    #[command(hide = true)]
    Manual(Manual),
    /// Write shell completions to standard output.
    Completions(Completions),
}

impl Verb {
    /// True for a verb that changes nothing and only prints. If its output is lost, it has failed.
    pub fn is_for_output(&self) -> bool {
        match self {
            Self::Inspect(_) | Self::List(_) | Self::Check(_) | Self::Tasks(_) | Self::Task(_) => true,
            Self::Estimate(_) | Self::Advise(_) | Self::Completions(_) => true,
            Self::Backup(args) => args.dry_run,
            Self::Restore(args) => args.dry_run,
            Self::Copy(args) => args.dry_run,
            Self::Bench(args) => args.dry_run,
            Self::Prune(args) => !args.confirm,
            Self::Calibrate(args) => args.show,
            // A verdict is in the exit code and, in a repository, in its records.
            Self::Verify(_) | Self::RestoreTest(_) => false,
            Self::Sql(args) => args.dry_run,
            Self::Migrate(args) => args.plan,
            Self::Unpack(_)
            | Self::Export(_)
            | Self::Gateway(_)
            | Self::Log(_)
            | Self::Catalog(_)
            | Self::Cancel(_)
            | Self::Key(_)
            | Self::Manual(_) => false,
        }
    }
}

/// Back up a database into one or more media families (stripes).
///
/// The database stays in use. In WAL mode, writers of SQLite never wait. In rollback mode, they wait no longer than the
/// copy takes. fullbore reports a backup as good only when every byte is durable and the commit record is written.
/// Without --init, it overwrites nothing.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("place").args(["to", "repo"]).required(true))]
pub struct Backup {
    /// The database: sqlite:PATH, mysql://USER@HOST:PORT[/DATABASE] or mariadb://USER@HOST:PORT[/DATABASE], or
    /// mssql://USER@HOST:PORT/DATABASE (experimental). The flags of its engine may follow:
    /// sqlite:PATH?keep-free-pages=true. Never put a password here: see --password-file.
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// Where a stripe goes: a file, a directory ending in / (fullbore makes the names), s3://BUCKET/PREFIX/, file:///…,
    /// nul:, or - for standard output. For mssql:// a place of the server: server:/backup/shop.bak, s3://…, https://….
    /// Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub to: Vec<String>,
    /// Back up into this repository: its name in the configuration, or a directory or prefix ending in /. fullbore
    /// chooses the names and the base of a differential, and writes the records that other hosts see.
    #[arg(long, value_name = "REPOSITORY", conflicts_with_all = ["to", "base", "init"])]
    pub repo: Option<String>,
    /// Write the same stripes into a second repository, in the same pass (MIRROR TO). If one side fails, the backup
    /// fails, and neither side keeps anything usable. Only one; `fullbore copy` makes more copies.
    #[arg(long, value_name = "REPOSITORY", requires = "repo", conflicts_with_all = ["measure_limit", "to"])]
    pub copy_to: Option<String>,
    /// Write the same stripes to these devices too, in the same pass (MIRROR TO). If one side fails, the backup fails.
    /// Repeatable.
    #[arg(long, value_name = "DEVICE", requires = "to", conflicts_with_all = ["measure_limit", "repo"])]
    pub mirror_to: Vec<String>,
    /// The places of --mirror-to are so many mirrors: those of the first one come first.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "mirror_to")]
    pub mirrors: usize,
    /// Number of stripes, 1 to 64, spread evenly over the devices [default: one per device].
    #[arg(long, value_name = "N")]
    pub stripes: Option<usize>,
    /// Codec for the blocks: none, lz4, zstd[:LEVEL] (-3…-1, 1…19) or gzip[:LEVEL] (1…12) [default: lz4].
    #[arg(long, value_name = "CODEC")]
    pub compression: Option<String>,
    /// Choose codec, stripes, buffers and workers as fullbore advise does, for one of its goals [default: --balanced].
    /// Settings in flags or in the configuration stay. Needs a profile (fullbore calibrate). A profile of another
    /// machine gives a warning.
    #[arg(long)]
    pub auto: bool,
    /// The goal of --auto.
    #[command(flatten)]
    pub goal: GoalFlags,
    /// With --auto: where the server's files are [default: as the server says, if that is on this machine].
    #[arg(long, value_name = "PATH", requires = "auto")]
    pub data_path: Option<PathBuf>,
    /// What to store. full: everything. differential: the changes since a full, from --base or the newest in the
    /// repository. log: the commits since the newest set, from --base or in the repository (MySQL, MariaDB, and SQLite
    /// in WAL mode).
    /// auto, only into a repository: a differential, until the last differential was large; then a full.
    #[arg(long, value_enum, default_value_t = Kind::Full)]
    pub kind: Kind,
    /// The full of a differential, or the sets that a log set continues: stripes, directories or patterns. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub base: Vec<String>,
    /// Keep this backup outside the chain (COPY_ONLY): fullbore does not choose it as a base by itself.
    #[arg(long)]
    pub copy_only: bool,
    /// Replace existing stripes: all stripes of a set, or none. The old set stays complete until the new one is durable.
    #[arg(long)]
    pub init: bool,
    /// Make missing directories. Without this flag, a missing directory is an error: its disk may not be mounted.
    #[arg(long)]
    pub mkdir: bool,
    /// Wait for another backup of the same database instead of refusing.
    #[arg(long)]
    pub wait: bool,
    /// Name of the backup, kept in its header.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub name: String,
    /// Description of the backup, kept in its header.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub description: String,
    /// Name of the media set, kept in its header: MEDIANAME of T-SQL.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub media_name: String,
    /// Names of stripes in directories: {database} {kind} {time} {date} {set} {id} {family} {families}
    /// [default: {database}-{kind}-{time}-{id}-{family}of{families}.bore].
    #[arg(long, value_name = "TEMPLATE")]
    pub name_template: Option<String>,
    /// Encrypt with AES-256-GCM for the holder of this key: a key file or its .pub. Repeatable: also give an offline
    /// recovery key.
    #[arg(long, value_name = "KEYFILE")]
    pub encrypt_to: Vec<PathBuf>,
    /// The key that opens an encrypted base.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// How long to wait for a lock on the database, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub lock_timeout: u64,
    /// The options of single engines.
    #[command(flatten)]
    pub engine_options: BackupOptions,
    /// Back up damage at the source as it is, instead of failing. MySQL and MariaDB: damaged pages in the server's own
    /// files; the set records them, and its restore needs the same flag. SQLite: a schema that cannot be parsed.
    #[arg(long)]
    pub continue_after_error: bool,
    /// First measure source, codec and sinks alone. The report then says how close the backup came to these limits.
    #[arg(long)]
    pub measure_limit: bool,
    /// Profile of this machine (fullbore calibrate) for the verdict and for --auto [default: `default`, if it exists].
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Show the plan (memory, families, estimated size) and stop.
    #[arg(long)]
    pub dry_run: bool,
    /// Buffers and threads.
    #[command(flatten, next_help_heading = "Tuning")]
    pub tuning: BackupTuning,
    /// How an object store keeps the stripes.
    #[command(flatten, next_help_heading = "Object store")]
    pub kept: ObjectStoreFlags,
    /// A server that runs its backups itself.
    #[command(flatten)]
    pub server: ServerFlags,
    /// Messages and report.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: OutputFlags,
}

/// How an object store (s3://) keeps stripes. With a directory, a flag is an error.
#[derive(Debug, Args)]
pub struct ObjectStoreFlags {
    /// Let the object store encrypt: AES256, aws:kms or aws:kms:KEY-ID. fullbore checks that the store did it.
    #[arg(long, value_name = "ALGORITHM")]
    pub sse: Option<String>,
    /// Storage class of the objects, e.g. STANDARD_IA.
    #[arg(long, value_name = "CLASS")]
    pub storage_class: Option<String>,
    /// Tag for every object: KEY=VALUE. Repeatable, at most 10.
    #[arg(long, value_name = "KEY=VALUE")]
    pub tag: Vec<String>,
    /// Object Lock: the stripes cannot be deleted or replaced before this time, e.g. 30d or 2026-12-24T00:00:00Z.
    /// fullbore checks the lock.
    #[arg(long, value_name = "TIME")]
    pub lock_until: Option<String>,
    /// Lock mode: governance (an account with a permission can lift the lock) or compliance (no account can)
    /// [default: governance].
    #[arg(long, value_name = "MODE")]
    pub lock_mode: Option<String>,
    /// Most parts that the store accepts in one object [default: 10000; 1000 at *.scw.cloud].
    #[arg(long, value_name = "N")]
    pub max_parts: Option<u64>,
}

impl ObjectStoreFlags {
    /// The configuration, with the flags of the command line in place of its keys.
    pub fn over(&self, config: &Config) -> Config {
        let mut config = config.clone();
        let replace = |key: &mut Option<String>, flag: &Option<String>| {
            if flag.is_some() {
                key.clone_from(flag);
            }
        };
        replace(&mut config.sse, &self.sse);
        replace(&mut config.storage_class, &self.storage_class);
        replace(&mut config.lock_until, &self.lock_until);
        replace(&mut config.lock_mode, &self.lock_mode);
        if !self.tag.is_empty() {
            config.tag.clone_from(&self.tag);
        }
        config.max_parts = self.max_parts.or(config.max_parts);
        config
    }

    /// The first of these flags that was given.
    pub fn first(&self) -> Option<&'static str> {
        let given = [
            ("--lock-until", self.lock_until.is_some()),
            ("--lock-mode", self.lock_mode.is_some()),
            ("--sse", self.sse.is_some()),
            ("--storage-class", self.storage_class.is_some()),
            ("--tag", !self.tag.is_empty()),
            ("--max-parts", self.max_parts.is_some()),
        ];
        given.into_iter().find_map(|(flag, given)| given.then_some(flag))
    }
}

/// Back up the log of a database continuously, while the database is in use.
#[derive(Debug, Args)]
pub struct Log {
    /// What to do.
    #[command(subcommand)]
    pub verb: LogVerb,
}

/// The verbs of `log`.
#[derive(Debug, Subcommand)]
pub enum LogVerb {
    /// Write a log set whenever there are new commits, until SIGINT or SIGTERM. Then store the last commits and exit
    /// with code 0.
    ///
    /// This command holds the log, so that no commit is lost between two sets. It copies the log into the database
    /// (checkpoint), so that the log stays short.
    Follow(Box<super::log::Follow>),
}

/// What a backup contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Everything.
    Full,
    /// The changes since a full.
    #[value(aliases = ["diff", "incr"])]
    Differential,
    /// The log since the last backup.
    Log,
    /// Only into a repository: a full if there is none or if the last differential was large, else a differential.
    Auto,
}

impl Kind {
    /// The kind of the set; `None` if the repository decides.
    pub fn of_set(self) -> Option<SetKind> {
        match self {
            Self::Full => Some(SetKind::Full),
            Self::Differential => Some(SetKind::Differential),
            Self::Log => Some(SetKind::Log),
            Self::Auto => None,
        }
    }
}

/// Messages and report.
#[derive(Debug, Args)]
pub struct OutputFlags {
    /// The report.
    #[command(flatten)]
    pub report: ReportFlags,
    /// Print progress in steps of this many percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub stats: u8,
    /// How to show progress. auto, rich: stages, speed and memory on a terminal, plain lines elsewhere. line: one
    /// changing line on a terminal. plain: lines, each with the time. none: no progress.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = How::Auto, hide_possible_values = true)]
    pub progress: How,
    /// Print errors and warnings only.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the stages and devices too.
    #[arg(short, long)]
    pub verbose: bool,
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum How {
    /// A picture on a terminal, lines elsewhere.
    Auto,
    /// Lines.
    Plain,
    /// One line on a terminal.
    Line,
    /// A picture, on a terminal.
    Rich,
    /// Lines of SQL Server: `10 percent processed.` on standard output.
    Percent,
    /// Not at all.
    None,
}

/// Where a report goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportTo {
    /// Standard output, instead of the result.
    Output,
    /// A file.
    File(PathBuf),
}

/// `json`, or `json:FILE`.
pub fn report_to(text: &str) -> Result<ReportTo, String> {
    match text.split_once(':') {
        None if text == "json" => Ok(ReportTo::Output),
        Some(("json", file)) if !file.is_empty() => Ok(ReportTo::File(file.into())),
        _ => Err("write json or json:FILE".into()),
    }
}

/// The choice among several sets.
#[derive(Debug, Args)]
pub struct SetFlags {
    /// The set with this id. Any part of the id that no other set has is enough.
    #[arg(long, value_name = "ID", conflicts_with = "latest")]
    pub set: Option<String>,
    /// The newest point of the newest chain.
    #[arg(long)]
    pub latest: bool,
}

/// A repository, and a database in it.
#[derive(Debug, Args)]
pub struct InRepository {
    /// Instead of --from: a repository, by its name in the configuration, or as a directory or prefix ending in /. If
    /// you give neither, the environment variable FULLBORE_REPO names it.
    #[arg(long, value_name = "REPOSITORY", conflicts_with = "from")]
    pub repo: Option<String>,
    /// The database in the repository: as fullbore list shows it, or the name of its file.
    // clap forgives `requires` if the required flag conflicts with another one that is there.
    #[arg(long, value_name = "DATABASE", requires = "repo", conflicts_with = "from")]
    pub database: Option<String>,
}

impl InRepository {
    /// The configuration for this repository: its own keys win over the general keys.
    pub fn config(&self, config: &Config) -> Config {
        self.repo.as_ref().map_or_else(|| config.clone(), |name| config.of_repository(name))
    }
}

/// How thorough the check of a restored database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckDepth {
    /// No check.
    None,
    /// Each page by itself.
    Quick,
    /// Everything that the engine can check.
    Full,
}

/// Restore a database. It appears under its name only when it is complete. Until then, the target stays unchanged. A
/// load into a running server marks the server until it is complete.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("server").args(["check", "start_check", "table"]).multiple(true))]
#[command(group = clap::ArgGroup::new("sets").args(["from", "repo", "recovery"]).required(true).multiple(true))]
#[command(group = clap::ArgGroup::new("logs").args(["stop_at", "stop-at-gtid", "stop-before-gtid"]).conflicts_with_all(["set", "table"]))]
#[command(group = clap::ArgGroup::new("gtid").args(["stop-at-gtid", "stop-before-gtid"]).conflicts_with("no_recovery"))]
#[command(group = clap::ArgGroup::new("outside").args(["place-outside"]).conflicts_with("table"))]
#[command(group = clap::ArgGroup::new("media").args(["move", "file"]).multiple(true).conflicts_with("repo"))]
#[command(group = clap::ArgGroup::new("position").args(["file"]).conflicts_with_all(["set", "latest"]))]
#[command(group = clap::ArgGroup::new("whole").args(["chain"]).requires("repo"))]
pub struct Restore {
    /// Stripes, directories or patterns, in any order; - for standard input. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub from: Vec<String>,
    /// Which repository.
    #[command(flatten)]
    pub repository: InRepository,
    /// The target: sqlite:FILE, dir:PATH, bak:DIRECTORY (stored files of SQL Server), object:DIRECTORY (an upload of
    /// the gateway), mysql://USER@HOST:PORT or mariadb://… (a running server, for a logical backup), nul:, or
    /// mssql://USER@HOST:PORT/DATABASE (experimental). fullbore refuses a target that is not empty.
    #[arg(long, value_name = "TARGET", required = true)]
    pub into: String,
    /// Replace the existing database. It must not be in use. It stays unchanged until the new one is durable. In a
    /// running server, what the set holds is dropped first.
    #[arg(long)]
    pub replace: bool,
    /// Leave the target restoring (NORECOVERY): it is not a database yet. Further restores with --no-recovery or
    /// --recovery apply a differential and log sets to it. SQLite and SQL Server.
    #[arg(long, conflicts_with_all = ["recovery", "stop_at", "check", "integrity_check", "table", "resume"])]
    pub no_recovery: bool,
    /// End a restore in steps (RECOVERY): apply the named sets, if any, check the database and give it its name.
    #[arg(long, conflicts_with_all = ["replace", "table", "resume"])]
    pub recovery: bool,
    /// Make the target's directory if it is missing.
    #[arg(long)]
    pub mkdir: bool,
    /// Continue an interrupted restore to this target: check the partial restore against the backup's page map, keep
    /// matching pages and read the rest. If this restore is interrupted or fails too, its partial result stays. Into a
    /// running server: load what is missing.
    #[arg(long)]
    pub resume: bool,
    /// Check the restored database before it gets its name. quick: each page by itself. full: SQLite checks the file; a
    /// MySQL or MariaDB server is started once on the directory (on a private socket, as this user, not as root),
    /// checks each table and stops [default: none; with --recovery quick].
    #[arg(long, value_name = "DEPTH", conflicts_with_all = ["integrity_check", "start_check"])]
    pub check: Option<CheckDepth>,
    /// The same as --check full.
    #[arg(long, conflicts_with = "table")]
    pub integrity_check: bool,
    /// The same as --check full.
    #[arg(long, conflicts_with = "table")]
    pub start_check: bool,
    /// The options that the engine of the set has.
    #[command(flatten)]
    pub set_options: OptionsOfSet,
    /// With log sets: stop after the last commit that was seen at or before this time. The time has a zone:
    /// 2026-11-22T10:00:00+01:00, 2026-11-22 09:00:00Z, 2026-11-22T10:00[Europe/Berlin]; or of MySQL and MariaDB a place
    /// in the binary log, FILE:OFFSET [default: the newest commit].
    #[arg(long, value_name = "TIME")]
    pub stop_at: Option<String>,
    /// Restore the newest full or differential of at or before this time, without log sets. The time has a zone, as for
    /// --stop-at.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["logs", "set", "latest", "file", "no_recovery", "recovery"])]
    pub before: Option<String>,
    /// Restore a set with pages that were already damaged at the source (the backup was made with the same flag).
    #[arg(long)]
    pub continue_after_error: bool,
    /// Show what would be restored, in order, and stop.
    #[arg(long)]
    pub dry_run: bool,
    /// Profile of this machine (fullbore calibrate) that the verdict compares with [default: `default`, if it exists].
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// The key that opens encrypted media.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// Which set.
    #[command(flatten)]
    pub chosen: SetFlags,
    /// Buffers and threads.
    #[command(flatten, next_help_heading = "Tuning")]
    pub tuning: ReadTuning,
    /// For RDS: the kind of the set. Other servers read it from the files [default: full].
    #[arg(long, value_enum, requires = "experimental", help_heading = "SQL Server")]
    pub kind: Option<Kind>,
    /// The options of such a server.
    #[command(flatten)]
    pub engine_options: RestoreOptions,
    /// Where a SQL Server stops in a log backup, and whether its database can be read before the next step.
    #[command(flatten)]
    pub steps: ServerSteps,
    /// A server that runs its restores itself.
    #[command(flatten)]
    pub served: ServerFlags,
    /// Messages and report.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: OutputFlags,
}

/// Read and check every byte of a backup; write nothing. Exit code 3 when damage is found.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("sets").args(["place", "from", "repo"]).required(true).multiple(true))]
pub struct Verify {
    /// Stripes, directories or patterns; - for standard input. fullbore verifies all sets that it finds.
    #[arg(value_name = "PLACE", conflicts_with = "repo")]
    pub place: Vec<String>,
    /// The same as PLACE. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub from: Vec<String>,
    /// Which repository.
    #[command(flatten)]
    pub repository: InRepository,
    /// Profile of this machine (fullbore calibrate) that the verdict compares with [default: `default`, if it exists].
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// The key that opens encrypted media.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// For backup files of SQL Server: only the set at this position (FILE = N) [default: all].
    #[arg(long, value_name = "N", conflicts_with_all = ["set", "latest", "repo"])]
    pub file: Option<u16>,
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

/// Show the headers, files or labels of media, without reading their data.
#[derive(Debug, Args)]
pub struct Inspect {
    /// What to show.
    #[command(subcommand)]
    pub what: Inspected,
}

/// The questions that inspect answers.
#[derive(Debug, Subcommand)]
pub enum Inspected {
    /// Backup sets: kind, time, size, families, codec (HEADERONLY).
    Header(InspectedMedia),
    /// The files that a restore will make, and the positions (FILELISTONLY).
    Files(InspectedMedia),
    /// Media-set id, name and description (LABELONLY).
    Label(InspectedMedia),
}

/// The media to inspect.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("media").args(["place", "from"]).required(true).multiple(true))]
pub struct InspectedMedia {
    /// Stripes, directories or patterns.
    #[arg(value_name = "PLACE")]
    pub place: Vec<String>,
    /// The same as PLACE. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub from: Vec<String>,
    /// The key that opens encrypted media. `inspect files` needs it: the manifest is encrypted.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// For backup files of SQL Server: only the set at this position (FILE = N) [default: all].
    #[arg(long, value_name = "N")]
    pub file: Option<u16>,
    /// The text or its JSON object.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: ReportFlags,
}

/// List the backup sets in directories or in a repository: which exist, which are complete, which belong together.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("sets").args(["place", "from", "repo"]).required(true).multiple(true))]
pub struct List {
    /// Directories, stripes or patterns.
    #[arg(value_name = "PLACE", conflicts_with = "repo")]
    pub place: Vec<String>,
    /// The same as PLACE. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub from: Vec<String>,
    /// Which repository.
    #[command(flatten)]
    pub repository: InRepository,
    /// Ask this host's catalog only, and not the repository.
    #[arg(long, requires = "repo")]
    pub catalog: bool,
    /// The key that opens encrypted sets. With it, the list shows the names that a repository hides (hide-names).
    #[arg(long, value_name = "KEYFILE", requires = "repo", conflicts_with = "catalog")]
    pub key: Option<PathBuf>,
    /// Only the newest N sets.
    #[arg(long, value_name = "N")]
    pub last: Option<usize>,
    /// Only sets in this state.
    #[arg(long, value_name = "STATE")]
    pub state: Option<SetState>,
    /// Backup files of SQL Server: show the sets of a restore to this time, and the log backup that holds it. The time is by
    /// the server's clock: 2026-11-26T10:00:00.
    #[arg(long, value_name = "TIME", conflicts_with = "repo")]
    pub stop_at: Option<String>,
    /// The table or its JSON object.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: ListFlags,
}

/// The states of a backup set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SetState {
    /// All its parts are there.
    Complete,
    /// A part is missing or damaged.
    Incomplete,
}

/// Make keys, and wrap the data keys of existing backups for new keys.
#[derive(Debug, Args)]
pub struct Key {
    /// What to do.
    #[command(subcommand)]
    pub verb: KeyVerb,
}

/// The verbs of `key`.
#[derive(Debug, Subcommand)]
pub enum KeyVerb {
    /// Make a key: FILE with the secret (mode 0600) and FILE.pub with its public part.
    ///
    /// If you lose the secret, you lose every backup that is encrypted to it alone. So fullbore asks for an offline
    /// recovery key: make it on another machine, keep its secret on paper or in a safe, and give both .pub files to
    /// --encrypt-to.
    New {
        /// The file to write.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The public key of the offline recovery key.
        #[arg(long, value_name = "KEYFILE", conflicts_with = "no_recovery")]
        recovery: Option<PathBuf>,
        /// Make the key without a recovery key.
        #[arg(long)]
        no_recovery: bool,
        /// The JSON object.
        #[command(flatten)]
        shown: ReportFlags,
    },
    /// Wrap the data keys of existing backups for more keys. The media do not change: fullbore writes a sidecar file
    /// beside them.
    Rewrap {
        /// Stripes, directories or patterns. Repeatable.
        #[arg(long, value_name = "DEVICE", required = true)]
        from: Vec<String>,
        /// The key that opens them now.
        #[arg(long, value_name = "KEYFILE", required = true)]
        key: PathBuf,
        /// A key that can open them from now on, besides the present keys. Repeatable.
        #[arg(long, value_name = "KEYFILE", required = true)]
        encrypt_to: Vec<PathBuf>,
        /// The JSON object.
        #[command(flatten)]
        shown: ReportFlags,
    },
}

/// Where the manual pages go.
#[derive(Debug, Args)]
pub struct Manual {
    /// The directory.
    pub directory: PathBuf,
}

/// Write shell completions to standard output.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// The input of restore and verify. The configuration fills in missing flags.
///
/// # Errors
/// The throttle is not a bandwidth.
pub fn reading(
    from: Vec<String>,
    key: Option<&PathBuf>,
    chosen: &SetFlags,
    tuning: &ReadTuning,
    config: &Config,
) -> fullbore::Result<Reading> {
    Ok(Reading {
        from,
        knobs: tuning.knobs(config)?,
        key: key.cloned().or_else(|| config.key.clone()),
        choice: Choice { set: chosen.set.clone(), latest: chosen.latest, ..Choice::default() },
    })
}
