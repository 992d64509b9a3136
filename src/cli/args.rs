//! All flags. The doc comments are the help pages.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fullbore::chain::Choice;
use fullbore::config::Config;
use fullbore::job::reading::Reading;

use super::advise::GoalFlags;
use super::engine_flags::BackupFlags;
use super::repository_args::{Catalog, Check, OneTask, Prune, RestoreTest, Tasks};
use super::tuning::{BackupTuning, Tuning};

/// Back up and restore databases at the speed of the hardware, and say which part of it set that speed.
///
/// Messages and progress go to standard error, the result to standard output.
///
/// Exit codes: 0 done · 1 failed, nothing usable was left behind · 2 wrong usage · 3 damage was found · 4 done with
/// warnings · 129, 130 and 143 stopped by a signal.
#[derive(Debug, Parser)]
#[command(name = "fullbore", version, max_term_width = 110)]
pub struct Arguments {
    /// What any verb takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What any verb takes.
#[derive(Debug, Args)]
pub struct Global {
    /// Read this configuration file instead of ./fullbore.toml, ~/.config/fullbore/fullbore.toml or /etc/fullbore/fullbore.toml.
    ///
    /// Its keys are flags without their dashes: `compression = "zstd:1"`. Flags on the command line win.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Seconds that an object store (s3://) may take for one request, all its retries included.
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub device_timeout: Option<u64>,
    /// Seconds that an object store may be away in the middle of a family: its parts, or what is read of it, are tried again until then
    /// [default: 0].
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=604_800))]
    pub outage: Option<u64>,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Back up a database into one or more media families.
    Backup(Box<Backup>),
    /// Back up the log of a database for as long as it runs.
    Log(Box<Log>),
    /// Restore a database from its media families.
    Restore(Box<Restore>),
    /// Read and check every byte of a backup; write nothing.
    Verify(Verify),
    /// Copy backup sets between devices, stores and repositories: as they are, or in other stripes, with another codec or key.
    Copy(Box<super::copy::Copy>),
    /// Measure what this machine's path between database and media can do, and keep it as a named profile.
    Calibrate(super::calibrate::Calibrate),
    /// Foresee what a backup and its restore will take, before anything is moved.
    Estimate(Box<super::estimate::Estimate>),
    /// Say which codec, stripes, buffers and workers serve a goal best, and print the command.
    Advise(Box<super::advise::Advise>),
    /// Show what media say of themselves, without reading their data.
    Inspect(Inspect),
    /// List the backup sets in directories or in a repository.
    List(List),
    /// Restore the newest chain of a database into a scratch place, open it, and write down whether it is good.
    RestoreTest(RestoreTest),
    /// Is last night good? Look whether each database has a backup that is young enough and was proven.
    Check(Check),
    /// Remove the backup sets of a repository that no rule keeps; without --confirm only show which.
    Prune(Box<Prune>),
    /// Read a repository into this host's catalog anew.
    Catalog(Catalog),
    /// Show the runs of a repository: their state, speed and how long they will take.
    Tasks(Tasks),
    /// Show one run of a repository.
    Task(OneTask),
    /// Ask a run of a repository to end, on whatever host it is.
    Cancel(OneTask),
    /// Run every combination of a matrix of settings, and write down how fast each is.
    Bench(super::bench::Bench),
    /// Make keys, and wrap the data keys of existing backups for new ones.
    Key(Key),
    /// Write the manual pages into a directory.
    #[command(hide = true)]
    Manual(Manual),
    /// Write shell completions to standard output.
    Completions(Completions),
}

impl Verb {
    /// It changes nothing and is run for what it prints: without that it has failed.
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
            Self::Log(_) | Self::Catalog(_) | Self::Cancel(_) | Self::Key(_) | Self::Manual(_) => false,
        }
    }
}

/// Back up a database into one or more media families (stripes).
///
/// The database stays in use: in WAL mode writers never wait, in rollback mode they wait no longer than the copy takes.
/// A backup is reported good only when every byte is durable and the commit record is written. Nothing is overwritten
/// without --init.
///
/// Example: fullbore backup sqlite:/data/app.db --to /mnt/a/ --to /mnt/b/ --stripes 4 --compression lz4
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("where").args(["to", "repo"]).required(true))]
pub struct Backup {
    /// The database: sqlite:PATH, or a server: mysql://USER@HOST:PORT, mariadb://USER@HOST:PORT (on the server's own host). Its password is never part of it: see --password-file.
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// Where a family goes: a file, a directory ending in / (names are made), file:///…, nul:, or - for standard output. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub to: Vec<String>,
    /// Back up into this repository: one of the configuration, or a directory or prefix that ends in /. Names, the base of a
    /// differential and the records that other hosts see are seen to.
    #[arg(long, value_name = "REPOSITORY", conflicts_with_all = ["to", "base", "init"])]
    pub repo: Option<String>,
    /// Write the same families into this repository too, in the same pass (MIRROR TO). When either side fails, the backup fails, and nothing usable is
    /// left on both. One only; `fullbore copy` makes more.
    #[arg(long, value_name = "REPOSITORY", requires = "repo", conflicts_with_all = ["measure_limit", "to"])]
    pub copy_to: Option<String>,
    /// Number of families, 1 to 64, spread evenly over the devices [default: one per device].
    #[arg(long, value_name = "N")]
    pub stripes: Option<usize>,
    /// How blocks are packed: none, lz4, zstd[:LEVEL] (-3…-1, 1…19) or gzip[:LEVEL] (1…12) [default: lz4].
    #[arg(long, value_name = "CODEC")]
    pub compression: Option<String>,
    /// Choose codec, stripes, buffers and workers, as far as neither flags nor the configuration say them: as fullbore advise would, for one of
    /// its goals [default: --balanced]. Needs a profile (fullbore calibrate); one of another machine costs a warning.
    #[arg(long)]
    pub auto: bool,
    /// The goal of --auto.
    #[command(flatten)]
    pub goal: GoalFlags,
    /// Where the files of a server are, for --auto [default: as it says itself, if that is on this machine].
    #[arg(long, value_name = "PATH", requires = "auto")]
    pub data_path: Option<PathBuf>,
    /// What to store: full; differential (what changed since the full named with --base, or the newest of the repository); log (what was
    /// committed since the newest set named with --base, or of the repository; SQLite in WAL mode); auto, into a repository: a differential
    /// until the last one was large.
    #[arg(long, value_enum, default_value_t = Kind::Full)]
    pub kind: Kind,
    /// The full that a differential belongs to, or the sets that a log set continues: families, directories or patterns. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub base: Vec<String>,
    /// Keep this backup outside the chain: no differential will be based on it by itself.
    #[arg(long)]
    pub copy_only: bool,
    /// Replace families that exist: all of a set, or none of it. The old set stays whole until the new one is durable.
    #[arg(long)]
    pub init: bool,
    /// Make missing directories. Without it a missing directory is an error: it may be a disk that is not mounted.
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
    /// Names for families in directories: {database} {kind} {time} {date} {set} {id} {family} {families}
    /// [default: {database}-{kind}-{time}-{id}-{family}of{families}.bore].
    #[arg(long, value_name = "TEMPLATE")]
    pub name_template: Option<String>,
    /// Encrypt with AES-256-GCM for the holder of this key: a key file or its .pub. Repeatable: give an offline recovery key too.
    #[arg(long, value_name = "KEYFILE")]
    pub encrypt_to: Vec<PathBuf>,
    /// The key that opens an encrypted base.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// How long to wait for a lock on the database, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub lock_timeout: u64,
    /// End the backup when the write-ahead log has grown by so much: it cannot be reset meanwhile.
    #[arg(long, value_name = "BYTES", default_value = "8GiB")]
    pub max_wal_growth: String,
    /// The server's password: the first line of this file. Else FULLBORE_PASSWORD, else the server's own option file (~/.my.cnf).
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// The flags of single engines.
    #[command(flatten)]
    pub flags: BackupFlags,
    /// Go on with a series of the server that this version is not tested with; prove such a backup by a restore.
    #[arg(long)]
    pub accept_unverified: bool,
    /// Back up what is damaged at the source as it is, instead of ending. MySQL and MariaDB: pages that are damaged in the server's own
    /// files; the set says so, and a restore of it has to be asked for with the same flag. SQLite: a schema that cannot be parsed.
    #[arg(long)]
    pub continue_after_error: bool,
    /// Measure source, codec and sinks alone first, so that the report can say how close to them the backup came.
    #[arg(long)]
    pub measure_limit: bool,
    /// The profile of this machine (fullbore calibrate) that the verdict compares with, and --auto goes by [default: `default`, if there is one].
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Show the plan (memory, families, estimated size) and stop.
    #[arg(long)]
    pub dry_run: bool,
    /// Buffers and threads.
    #[command(flatten)]
    pub tuning: BackupTuning,
    /// How an object store keeps the families.
    #[command(flatten)]
    pub kept: KeptBy,
    /// Messages and report.
    #[command(flatten)]
    pub shown: Shown,
}

/// How an object store (s3://) keeps families. Only with destinations that are in one.
#[derive(Debug, Args)]
pub struct KeptBy {
    /// Have the store encrypt: AES256, aws:kms or aws:kms:KEY-ID. It is looked up whether it did.
    #[arg(long, value_name = "ALGORITHM")]
    pub sse: Option<String>,
    /// Storage class, e.g. STANDARD_IA.
    #[arg(long, value_name = "CLASS")]
    pub storage_class: Option<String>,
    /// A tag of every object: KEY=VALUE. Repeatable, at most 10.
    #[arg(long, value_name = "KEY=VALUE")]
    pub tag: Vec<String>,
    /// Object Lock: nobody can delete or replace the families before, e.g. 30d or 2026-12-24T00:00:00Z. It is looked up whether it holds.
    #[arg(long, value_name = "TIME")]
    pub lock_until: Option<String>,
    /// Who may still lift the lock: governance (accounts with a permission for it) or compliance (nobody) [default: governance].
    #[arg(long, value_name = "MODE")]
    pub lock_mode: Option<String>,
    /// The most parts that the store takes in one object [default: 10000; 1000 at *.scw.cloud].
    #[arg(long, value_name = "N")]
    pub max_parts: Option<u64>,
}

impl KeptBy {
    /// The configuration with what was said on the command line.
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

/// Back up the log of a database for as long as it runs.
#[derive(Debug, Args)]
pub struct Log {
    /// What to do.
    #[command(subcommand)]
    pub verb: LogVerb,
}

/// The verbs of `log`.
#[derive(Debug, Subcommand)]
pub enum LogVerb {
    /// Ship a log set whenever something was committed, until SIGINT or SIGTERM; then what was committed last, and end with 0.
    ///
    /// The log is held so that no commit can be lost between two sets, and copied into the database by this command, so that it stays short.
    ///
    /// Example: fullbore log follow sqlite:/data/app.db --to /mnt/a/app/ --interval 10s
    Follow(Box<super::log::Follow>),
}

/// What a backup contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Everything.
    Full,
    /// What changed since a full.
    Differential,
    /// The log since the last backup.
    Log,
    /// Into a repository: a full where there is none or where the last differential was large, else a differential.
    Auto,
}

/// Messages and report.
#[derive(Debug, Args)]
pub struct Shown {
    /// Write a machine-readable report: json (to standard output) or json:FILE. Written on failure too.
    #[arg(long, value_name = "json[:FILE]", value_parser = report_to)]
    pub report: Option<ReportTo>,
    /// Print progress every so many percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub stats: u8,
    /// How progress is shown. auto: one line that changes on a terminal, plain lines elsewhere; rich: stages, speed and memory on a
    /// terminal, plain lines elsewhere; plain: lines; none.
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
    /// What suits standard error.
    Auto,
    /// Lines.
    Plain,
    /// A picture, on a terminal.
    Rich,
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

/// Which set is meant among several.
#[derive(Debug, Args)]
pub struct Chosen {
    /// The set with this id, or the start or the end of it.
    #[arg(long, value_name = "ID", conflicts_with = "latest")]
    pub set: Option<String>,
    /// The newest point of the newest chain.
    #[arg(long)]
    pub latest: bool,
}

/// A repository, and a database in it.
#[derive(Debug, Args)]
pub struct InRepository {
    /// Instead of --from: a repository of the configuration, or a directory or prefix that ends in /.
    #[arg(long, value_name = "REPOSITORY", conflicts_with = "from")]
    pub repo: Option<String>,
    /// The database in the repository: as the list shows it, or the name of its file.
    #[arg(long, value_name = "DATABASE", requires = "repo")]
    pub database: Option<String>,
}

impl InRepository {
    /// The configuration, with what is said of the repository before what is said of all.
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

/// Restore a database. It appears under its name only when it is whole; until then the target is as it was.
///
/// Example: fullbore restore --from '/mnt/a/app*.bore' --from '/mnt/b/app*.bore' --into sqlite:/data/app-copy.db
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("server").args(["check", "start_check", "table"]).multiple(true))]
#[command(group = clap::ArgGroup::new("sets").args(["from", "repo", "recovery"]).required(true).multiple(true))]
pub struct Restore {
    /// Families, directories or patterns, in any order; - for standard input. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub from: Vec<String>,
    /// Which repository.
    #[command(flatten)]
    pub repository: InRepository,
    /// The target: sqlite:FILE, dir:PATH or nul:. Refused when it holds anything.
    #[arg(long, value_name = "TARGET", required = true)]
    pub into: String,
    /// Replace the database that is there. It must not be in use; it stays as it was until the new one is durable.
    #[arg(long)]
    pub replace: bool,
    /// Leave the target restoring: it is no database yet, and further restores with --no-recovery or --recovery apply a differential and log sets to
    /// it. SQLite.
    #[arg(long, conflicts_with_all = ["recovery", "stop_at", "check", "integrity_check", "table", "resume"])]
    pub no_recovery: bool,
    /// End a restore in steps, after applying what is named, or by itself: the database is checked and gets its name.
    #[arg(long, conflicts_with_all = ["replace", "table", "resume"])]
    pub recovery: bool,
    /// Make the target's directory if it is missing.
    #[arg(long)]
    pub mkdir: bool,
    /// Go on with what an interrupted restore to this target has left: pages that the backup's page map proves are kept, and only the others
    /// fetched. If this one is interrupted or fails too, what it has restored stays.
    #[arg(long, conflicts_with = "table")]
    pub resume: bool,
    /// Check the restored database before it gets its name. quick looks at each page by itself. full lets SQLite check the file; a MySQL or MariaDB
    /// is started once on the directory (on a private socket, as this user, not as root), checks each table and stops [default: none; with
    /// --recovery quick].
    #[arg(long, value_name = "DEPTH", conflicts_with_all = ["integrity_check", "start_check"])]
    pub check: Option<CheckDepth>,
    /// The same as --check full.
    #[arg(long)]
    pub integrity_check: bool,
    /// The same as --check full.
    #[arg(long)]
    pub start_check: bool,
    /// Take this InnoDB table out of a server's backup, ready for IMPORT TABLESPACE, and restore nothing else: a private server recovers the
    /// files that it needs. DATABASE.TABLE. Repeatable; not as root.
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["check", "start_check", "replace", "integrity_check"])]
    pub table: Vec<String>,
    /// The server's program for --check full and --table, of the series of the backup [default: mariadbd or mysqld in PATH].
    #[arg(long, value_name = "PATH", requires = "server")]
    pub server_program: Option<PathBuf>,
    /// An option of that server, without its dashes: NAME=VALUE. Repeatable; an encrypted server needs its keys.
    #[arg(long, value_name = "OPTION", requires = "server")]
    pub server_option: Vec<String>,
    /// Put tablespaces that stood outside of the server's data directory (DATA DIRECTORY) where they stood; nothing may be there.
    #[arg(long, conflicts_with = "table")]
    pub place_outside: bool,
    /// Give the restored files of a server to this user, e.g. mysql or mysql:mysql, or by numbers [default: who restores].
    #[arg(long, value_name = "USER[:GROUP]")]
    pub owner: Option<String>,
    /// Stop behind the last commit that was seen at or before this time, in log sets. It has a zone: 2026-11-22T10:00:00+01:00,
    /// 2026-11-22 09:00:00Z, 2026-11-22T10:00[Europe/Berlin] [default: the newest].
    #[arg(long, value_name = "TIME", conflicts_with_all = ["set", "table", "start_check"])]
    pub stop_at: Option<String>,
    /// Restore a set although pages of it were damaged already when it was made (with the same flag).
    #[arg(long)]
    pub continue_after_error: bool,
    /// Show what would be restored, in order, and stop.
    #[arg(long)]
    pub dry_run: bool,
    /// The profile of this machine (fullbore calibrate) that the verdict compares with [default: `default`, if there is one].
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
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

/// Read and check every byte of a backup; write nothing. Exit code 3 when damage is found.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("sets").args(["from", "repo"]).required(true).multiple(true))]
pub struct Verify {
    /// Families, directories or patterns; - for standard input. All sets found are verified. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub from: Vec<String>,
    /// Which repository.
    #[command(flatten)]
    pub repository: InRepository,
    /// The profile of this machine (fullbore calibrate) that the verdict compares with [default: `default`, if there is one].
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
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

/// Show what media say of themselves, without reading their data.
#[derive(Debug, Args)]
pub struct Inspect {
    /// What to show.
    #[arg(value_enum)]
    pub what: Inspected,
    /// Families, directories or patterns. Repeatable.
    #[arg(long, value_name = "DEVICE", required = true)]
    pub from: Vec<String>,
    /// The key that opens encrypted media: their manifest (files) is encrypted.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The questions that inspect answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Inspected {
    /// Backup sets: kind, time, size, families, codec (HEADERONLY).
    Header,
    /// The files that a restore will make, and the positions (FILELISTONLY).
    Files,
    /// Media-set id, name and description (LABELONLY).
    Label,
}

/// List the backup sets in directories or in a repository: what is there, what is whole, what belongs together.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("sets").args(["from", "repo"]).required(true).multiple(true))]
pub struct List {
    /// Directories, families or patterns. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub from: Vec<String>,
    /// Which repository.
    #[command(flatten)]
    pub repository: InRepository,
    /// Ask this host's catalog only, and not the repository.
    #[arg(long, requires = "repo")]
    pub catalog: bool,
    /// The key that opens encrypted sets: with it the names are shown that a repository hides (hide-names).
    #[arg(long, value_name = "KEYFILE", requires = "repo", conflicts_with = "catalog")]
    pub key: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Make keys, and wrap the data keys of existing backups for new ones.
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
    /// Whoever loses the secret loses every backup encrypted to it alone. So an offline recovery key is asked for: make
    /// it on another machine, keep its secret on paper or in a safe, and give both .pub files to --encrypt-to.
    New {
        /// The file to write.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The public key of the offline recovery recipient.
        #[arg(long, value_name = "KEYFILE", conflicts_with = "no_recovery")]
        recovery: Option<PathBuf>,
        /// There shall be no recovery key.
        #[arg(long)]
        no_recovery: bool,
    },
    /// Wrap the data keys of existing backups for other recipients. Media do not change: a sidecar is written beside them.
    Rewrap {
        /// Families, directories or patterns. Repeatable.
        #[arg(long, value_name = "DEVICE", required = true)]
        from: Vec<String>,
        /// The key that opens them now.
        #[arg(long, value_name = "KEYFILE", required = true)]
        key: PathBuf,
        /// Who shall open them from now on, besides those who can already. Repeatable.
        #[arg(long, value_name = "KEYFILE", required = true)]
        encrypt_to: Vec<PathBuf>,
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

/// What restore and verify read, with the configuration where a flag was left out.
pub fn reading(from: &[String], key: Option<&PathBuf>, chosen: &Chosen, tuning: &Tuning, config: &Config) -> Reading {
    Reading {
        from: from.to_vec(),
        knobs: tuning.knobs(config),
        key: key.cloned().or_else(|| config.key.clone()),
        choice: Choice { set: chosen.set.clone(), latest: chosen.latest, stop_at: None },
    }
}
