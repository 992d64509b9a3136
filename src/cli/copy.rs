//! `fullbore copy`.

use std::path::PathBuf;

use clap::Args;
use fullbore::chain::Choice;
use fullbore::config::Config;
use fullbore::job::copy::{self, Request};
use fullbore::job::reading::Reading;
use fullbore::job::repository::copy::Between;
use fullbore::job::repository::{self, Setting};
use fullbore::{Error, Result, units};
use fullbore_core::device::{Device, Place};
use fullbore_core::plan::Knobs;

use super::args::{InRepository, KeptBy, ReportTo, Shown};
use super::{outside, show};

/// Copy backup sets between devices, stores and repositories: as they are, or made anew in other stripes, with another codec or key.
///
/// Every byte is checked on the way, and the copy's commit record is written when all of its source was found good. Without --stripes,
/// --compression, --encrypt-to and --decrypt a set is copied as it is, also without its key. Without --set and --latest
/// the newest chain is copied, its full first; what the target repository has already is passed over.
///
/// Example: fullbore copy --from /mnt/a/ --to s3://bucket/app/
///
/// Example: fullbore copy --repo nightly --database app --to-repo offsite --encrypt-to offsite.pub
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("sets").args(["from", "repo"]).required(true).multiple(true))]
#[command(group = clap::ArgGroup::new("target").args(["to", "to_repo"]).required(true))]
pub struct Copy {
    /// Families, directories, prefixes or patterns, in any order. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub from: Vec<String>,
    /// Which repository.
    #[command(flatten)]
    pub repository: InRepository,
    /// Where a family of the copy goes: a file, a directory or a prefix ending in / (names are made), an object. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub to: Vec<String>,
    /// Copy into this repository: one of the configuration, or a directory or prefix that ends in /.
    #[arg(long, value_name = "REPOSITORY", conflicts_with_all = ["to", "init"])]
    pub to_repo: Option<String>,
    /// The one set with this id, or the start or the end of it.
    #[arg(long, value_name = "ID", conflicts_with = "latest")]
    pub set: Option<String>,
    /// The newest set alone.
    #[arg(long)]
    pub latest: bool,
    /// With --set and --latest: also what that set stands on. Without them the newest chain is copied anyway.
    #[arg(long)]
    pub chain: bool,
    /// Number of families of the copy, 1 to 64 [default: as many as the set has].
    #[arg(long, value_name = "N")]
    pub stripes: Option<usize>,
    /// Pack blocks anew: none, lz4, zstd[:LEVEL] or gzip[:LEVEL] [default: they stay as they are].
    #[arg(long, value_name = "CODEC")]
    pub compression: Option<String>,
    /// Encrypt the copy, with a fresh key, for this key file or public part. Repeatable. A set in clear is encrypted also when the
    /// configuration of the target says encrypt-to.
    #[arg(long, value_name = "KEYFILE", conflicts_with = "decrypt")]
    pub encrypt_to: Vec<PathBuf>,
    /// Make a copy in clear of an encrypted set.
    #[arg(long)]
    pub decrypt: bool,
    /// The key that opens encrypted media. A copy as it is needs none; with it more is checked.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// Names for families in directories: {database} {kind} {time} {date} {set} {id} {family} {families}.
    #[arg(long, value_name = "TEMPLATE")]
    pub name_template: Option<String>,
    /// Replace families that exist: all of a set, or none of it. The old set stays whole until the new one is durable.
    #[arg(long)]
    pub init: bool,
    /// Make missing directories. Without it a missing directory is an error: it may be a disk that is not mounted.
    #[arg(long)]
    pub mkdir: bool,
    /// Show what would be copied, in order and which way, and stop.
    #[arg(long)]
    pub dry_run: bool,
    /// Read at most this much of the media per second: 200MiB/s.
    #[arg(long, value_name = "RATE")]
    pub throttle: Option<String>,
    /// Reads in flight per family [default: from the number of families].
    #[arg(long, value_name = "N")]
    pub queue_depth: Option<usize>,
    /// Threads that check, pack and encrypt [default: one per core].
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// The profile of this machine (fullbore calibrate) that the verdict compares with [default: `default`, if there is one].
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// How an object store keeps the copy.
    #[command(flatten)]
    pub kept: KeptBy,
    /// Messages and report.
    #[command(flatten)]
    pub shown: Shown,
}

/// Runs the verb; gives the exit code.
pub fn run(args: &Copy, config: &Config) -> Result<u8> {
    let from = args.repository.config(config);
    let to = args.to_repo.as_ref().map_or_else(|| config.clone(), |name| config.of_repository(name));
    let to = args.kept.over(&to);
    let request = request(args, &from, &to)?;
    refuse(args, &request, config)?;
    let piped = request.to.iter().any(|device| matches!(device.place(), Place::Pipe));
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
            match in_repositories {
                false => copy::run(&request, conduct, report),
                true => repository::copy::run(&request, between, conduct, report),
            }
        },
        |report| show::copy_result(report, &args.shown, piped),
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
            choice: Choice { set: args.set.clone(), latest: args.latest, stop_at: None },
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
        dry_run: args.dry_run,
        throttle: throttle.map(|text| units::bytes_per_second("--throttle", text)).transpose()?,
    })
}

/// What only an object store can do is not left out in silence elsewhere; and a report and a copy need two ways out.
fn refuse(args: &Copy, request: &Request, config: &Config) -> Result<()> {
    outside::refuse(args.kept.first(), &request.to)?;
    outside::refuse_in_repository(args.kept.first(), args.to_repo.as_ref(), config)?;
    if request.to.iter().any(|device| matches!(device.place(), Place::Pipe))
        && args.shown.report == Some(ReportTo::Output)
    {
        return Err(Error::usage("--report json", "standard output is the copy itself", "write json:FILE"));
    }
    Ok(())
}
