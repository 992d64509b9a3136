//! `fullbore unpack`.

use clap::Args;
use fullbore::config::Config;
use fullbore::job::unpack::{self, Request};
use fullbore::{Error, Result};

use super::args::{OutputFlags, ReportTo};
use super::closing;

/// Unpack a compressed backup of SQL Server (BACKUP … WITH COMPRESSION) into the plain backup.
///
/// The result is the file that BACKUP … WITH NO_COMPRESSION would have written. SQL Server and other programs read it.
/// fullbore checks every checksum and uses all cores. The file gets its name when it is whole and durable.
#[derive(Debug, Args)]
pub struct Unpack {
    /// The compressed backup: a file, s3://BUCKET/KEY or - for standard input.
    #[arg(value_name = "BACKUP")]
    pub from: String,
    /// Where the plain backup goes: a file, s3://BUCKET/KEY, - for standard output, or nul: to only check.
    #[arg(long, value_name = "DEVICE")]
    pub to: String,
    /// Replace an existing plain backup. It stays unchanged until the new one is durable.
    #[arg(long)]
    pub init: bool,
    /// Make a missing directory. Without this flag, a missing directory is an error: its disk may not be mounted.
    #[arg(long)]
    pub mkdir: bool,
    /// Threads that check and unpack [default: one per core].
    #[arg(long, value_name = "N", help_heading = "Tuning")]
    pub workers: Option<usize>,
    /// Reads ahead, and writes in flight [default: 4].
    #[arg(long, value_name = "N", help_heading = "Tuning")]
    pub queue_depth: Option<usize>,
    /// Messages and report.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: OutputFlags,
}

/// Runs the verb; gives the exit code.
pub fn run(args: &Unpack, config: &Config) -> Result<u8> {
    let request = Request {
        from: args.from.clone(),
        to: args.to.clone(),
        init: args.init,
        mkdir: args.mkdir,
        workers: args.workers.or(config.workers),
        queue_depth: args.queue_depth.or(config.queue_depth),
    };
    let piped = args.to == "-";
    if piped && args.shown.report.to() == Some(ReportTo::Output) {
        return Err(Error::usage("--report json", "standard output is the plain backup itself", "write json:FILE"));
    }
    super::with_report(
        "unpack",
        &args.shown,
        config,
        |conduct, report| unpack::run(&request, conduct, report),
        |report| closing::unpack(report, &args.shown),
        piped,
    )
}
