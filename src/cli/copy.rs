//! `fullbore copy`.

use std::path::PathBuf;

use clap::Args;
use fullbore::chain::Choice;
use fullbore::config::Config;
use fullbore::job::copy::{self, Request};
use fullbore::job::foreign;
use fullbore::job::reading::Reading;
use fullbore::job::repository::copy::Between;
use fullbore::job::repository::{self, Setting};
use fullbore::{Error, Result, units};
use fullbore_core::conduct::Conduct;
use fullbore_core::device::{Destination, Device};
use fullbore_core::plan::Knobs;

use super::args::{InRepository, ObjectStoreFlags, OutputFlags, ReportTo};
use super::{closing, outside};

/// Copy backup sets between devices, stores and repositories: as they are, or with other stripes, codec or key.
///
/// fullbore checks every byte on the way. It writes the commit record of the copy only if the whole source is good.
/// Without --stripes, --compression, --encrypt-to and --decrypt, it copies a set as it is; no key is needed. Without
/// --set and --latest, it copies the newest chain, its full first. It skips sets that the target repository has.
///
/// Backup files of SQL Server in --from become backup sets: each media set one, checked page by page.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("sets").args(["from", "repo"]).required(true).multiple(true))]
#[command(group = clap::ArgGroup::new("target").args(["to", "to_repo"]).required(true))]
pub struct Copy {
    /// Stripes, directories, prefixes or patterns, in any order. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub from: Vec<String>,
    /// Which repository.
    #[command(flatten)]
    pub repository: InRepository,
    /// Where a stripe of the copy goes: a file, an object, or a directory or prefix ending in / (fullbore makes the
    /// names). Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub to: Vec<String>,
    /// Copy into this repository: its name in the configuration, or a directory or prefix ending in /.
    #[arg(long, value_name = "REPOSITORY", conflicts_with_all = ["to", "init"])]
    pub to_repo: Option<String>,
    /// Only the set with this id. Any part of the id that no other set has is enough.
    #[arg(long, value_name = "ID", conflicts_with = "latest")]
    pub set: Option<String>,
    /// Only the newest set.
    #[arg(long)]
    pub latest: bool,
    /// With --set and --latest: also the sets that it is based on. Without them, the newest chain is copied anyway.
    #[arg(long)]
    pub chain: bool,
    /// Number of stripes of the copy, 1 to 64 [default: as many as the set has].
    #[arg(long, value_name = "N")]
    pub stripes: Option<usize>,
    /// Compress the blocks again: none, lz4, zstd[:LEVEL] or gzip[:LEVEL] [default: the blocks stay as they are].
    #[arg(long, value_name = "CODEC")]
    pub compression: Option<String>,
    /// Encrypt the copy, with a new data key, for this key file or its .pub. Repeatable. A set in clear is also
    /// encrypted if the configuration of the target says encrypt-to.
    #[arg(long, value_name = "KEYFILE", conflicts_with = "decrypt")]
    pub encrypt_to: Vec<PathBuf>,
    /// Make an unencrypted copy of an encrypted set.
    #[arg(long)]
    pub decrypt: bool,
    /// The key that opens encrypted media. A copy as it is needs no key; with the key, fullbore checks more.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// Names of stripes in directories: {database} {kind} {time} {date} {set} {id} {family} {families}.
    #[arg(long, value_name = "TEMPLATE")]
    pub name_template: Option<String>,
    /// Replace existing stripes: all stripes of a set, or none. The old set stays complete until the new one is durable.
    #[arg(long)]
    pub init: bool,
    /// Make missing directories. Without this flag, a missing directory is an error: its disk may not be mounted.
    #[arg(long)]
    pub mkdir: bool,
    /// Take backup files of SQL Server in although pages are damaged. Warnings name the pages (exit code 4).
    #[arg(long)]
    pub continue_after_error: bool,
    /// Show which sets would be copied, in which order and how, and stop.
    #[arg(long)]
    pub dry_run: bool,
    /// Read at most this much of the media per second: 200MiB/s.
    #[arg(long, value_name = "RATE", help_heading = "Tuning")]
    pub throttle: Option<String>,
    /// Reads in flight per stripe [default: from the number of stripes].
    #[arg(long, value_name = "N", help_heading = "Tuning")]
    pub queue_depth: Option<usize>,
    /// Threads that check, pack and encrypt [default: one per core].
    #[arg(long, value_name = "N", help_heading = "Tuning")]
    pub workers: Option<usize>,
    /// Profile of this machine (fullbore calibrate) that the verdict compares with [default: `default`, if it exists].
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// How an object store keeps the copy.
    #[command(flatten, next_help_heading = "Object store")]
    pub kept: ObjectStoreFlags,
    /// Messages and report.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: OutputFlags,
}

/// Runs the verb; gives the exit code.
pub fn run(args: &Copy, config: &Config) -> Result<u8> {
    let from = args.repository.config(config);
    let to = args.to_repo.as_ref().map_or_else(|| config.clone(), |name| config.of_repository(name));
    let to = args.kept.over(&to);
    let request = request(args, &from, &to)?;
    refuse(args, &request, config)?;
    let piped = request.to.iter().any(|device| matches!(device.place(), Destination::Pipe));
    let setting = |name: &'_ Option<String>| name.is_some();
    let in_repositories = setting(&args.repository.repo) || setting(&args.to_repo);
    let between = Between {
        from: args.repository.repo.as_deref().map(|name| Setting { name, config: &from }),
        database: args.repository.database.as_deref(),
        to: args.to_repo.as_deref().map(|name| Setting { name, config: &to }),
    };
    super::with_report(
        "copy",
        &args.shown,
        &to,
        |conduct, report| {
            outside::say_of_defaults(&to, &request.to, report);
            if let Some(name) = &args.to_repo {
                outside::say_of_defaults_in_repository(&to, name, report);
            }
            super::compare_with(args.profile.as_deref(), conduct, report)?;
            // Two accounts, or two endpoints.
            let from_stores = (from.aws_profile != to.aws_profile)
                .then(|| from.stores().map(|stores| stores.ending_with(&conduct.stores)))
                .transpose()?;
            let request = Request { from_stores, ..request };
            let stores = request.from_stores.as_ref().unwrap_or(&conduct.stores);
            let foreign = match between.from {
                None => {
                    let conduct = Conduct { stores: stores.clone(), ..conduct.clone() };
                    let (reading, key) = (&request.reading, request.reading.key.as_deref());
                    super::foreign::find(&reading.from, key, config, &conduct)?
                }
                Some(_) => None,
            };
            match (foreign, between.to, in_repositories) {
                (Some(found), to_repository, _) => {
                    let request = &packed_as_a_backup(request, &to)?;
                    match to_repository {
                        None => foreign::take_in(&found, request, conduct, report),
                        Some(setting) => repository::take_in::run(&found, request, setting, conduct, report),
                    }
                }
                (None, _, false) => copy::run(&request, conduct, report),
                (None, _, true) => repository::copy::run(&request, between, conduct, report),
            }
        },
        |report| closing::copy(report, &args.shown),
        piped,
    )
}

fn request(args: &Copy, from: &Config, to: &Config) -> Result<Request> {
    let knobs = Knobs {
        queue_depth: args.queue_depth.or(to.queue_depth),
        workers: args.workers.or(to.workers),
        ..Knobs::default()
    };
    let throttle = args.throttle.as_ref().or(to.throttle.as_ref());
    Ok(Request {
        reading: Reading {
            from: args.from.clone(),
            knobs,
            key: args.key.clone().or_else(|| from.key.clone()),
            choice: Choice { set: args.set.clone(), latest: args.latest, ..Choice::default() },
        },
        from_stores: None,
        chain: args.chain,
        to: args.to.iter().map(|text| Device::parse(text)).collect::<Result<_>>()?,
        stripes: args.stripes,
        compression: args.compression.as_ref().map(|text| text.parse()).transpose()?,
        encrypt_to: args.encrypt_to.clone(),
        encrypt_plain_to: if args.decrypt { Vec::new() } else { to.encrypt_to.clone() },
        decrypt: args.decrypt,
        name_template: args.name_template.clone().or_else(|| to.name_template.clone()),
        init: args.init,
        mkdir: args.mkdir,
        continue_after_error: args.continue_after_error,
        dry_run: args.dry_run,
        throttle: throttle.map(|text| units::bytes_per_second("--throttle", text)).transpose()?,
    })
}

/// Media of other programs are packed as a backup is: the codec may be in the configuration.
fn packed_as_a_backup(request: Request, config: &Config) -> Result<Request> {
    let configured = config.compression.as_ref().map(|text| text.parse()).transpose()?;
    let mut request = Request { compression: request.compression.or(configured), ..request };
    // A full in an encrypted repository is compared with: the key of the repository opens it.
    request.reading.key = request.reading.key.or_else(|| config.key.clone());
    Ok(request)
}

/// Refuses flags of object stores for other targets, and a report and a copy that both go to standard output.
fn refuse(args: &Copy, request: &Request, config: &Config) -> Result<()> {
    outside::refuse(args.kept.first(), &request.to)?;
    outside::refuse_in_repository(args.kept.first(), args.to_repo.as_ref(), config)?;
    if request.to.iter().any(|device| matches!(device.place(), Destination::Pipe))
        && args.shown.report.to() == Some(ReportTo::Output)
    {
        return Err(Error::usage("--report json", "standard output is the copy itself", "write json:FILE"));
    }
    Ok(())
}
