//! `fullbore estimate`.

use clap::Args;
use fullbore::config::Config;
use fullbore::job::estimate::{self, EstimateReport, GridLine, Request};
use fullbore::units::{self, counted, show_bytes};
use fullbore::{Error, Result};
use fullbore_model::estimate::Steps;

use super::args::Kind;
use super::estimated::{Direction, ForeseenJob, answer, deadline, distinct, show_seconds, table, told_configuration};
use super::server;
use super::tuning::RestoreTuning;

const DAY: f64 = 86_400.0;
/// Lines of a grid that are shown to people.
const LINES: usize = 20;

/// Estimate the time and size of a backup and of its restore, before you run them.
///
/// The estimate uses a profile of this machine (fullbore calibrate), samples of the database, and the times of earlier
/// runs. It writes nothing. Each time is an interval: one of ten runs is faster than the first figure, nine of ten are
/// faster than the second.
#[derive(Debug, Args)]
pub struct Estimate {
    /// The job.
    #[command(flatten)]
    pub job: ForeseenJob,
    /// Estimate an encrypted backup.
    #[arg(long)]
    pub encrypted: bool,
    /// Compare codecs, stripes and buffers, the fastest first.
    #[arg(long)]
    pub grid: bool,
    /// Estimate the downtime of a move: full, full+diff, full+log or full+diff+log. Needs --change-rate.
    #[arg(long, value_name = "STEPS", requires = "change_rate")]
    pub plan: Option<String>,
    /// How much the database changes, e.g. 30GB/d, 2GiB/h or 5MiB/s.
    #[arg(long, value_name = "RATE", requires = "plan")]
    pub change_rate: Option<String>,
    /// Show the configurations that finish within this time in nine of ten runs, e.g. 2h.
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// What must finish within the deadline.
    #[arg(long, value_enum, default_value_t = Direction::Backup, requires = "deadline")]
    pub direction: Direction,
    /// Buffers and threads of the restore.
    #[command(flatten)]
    pub restore_tuning: RestoreTuning,
    /// The kind of backup, from the history of the server [default: full].
    #[arg(long, value_enum, requires = "experimental", help_heading = "SQL Server")]
    pub kind: Option<Kind>,
    /// Needed for mssql://: SQL Server and Amazon RDS are experimental. fullbore is tested against a stub server only and has
    /// never run against a SQL Server. The estimate is from msdb.dbo.backupset.
    #[arg(long, help_heading = "SQL Server")]
    pub experimental: bool,
}

/// Runs the verb; gives the exit code.
pub fn run(args: &Estimate, config: &Config) -> Result<u8> {
    if let Some(server) = server::of(&args.job.source, args.experimental)? {
        return server::estimate(args, server, config);
    }
    if args.kind.is_some() {
        return Err(Error::usage("--kind", "is for mssql://", "leave it out"));
    }
    let request = request(args, config)?;
    let make = || estimate::run(&request, &super::stop_on_signals(config)?);
    answer(&args.job, &request, make, told, |made: &EstimateReport| [&made.notes, &made.warnings])
}

fn request(args: &Estimate, config: &Config) -> Result<Request> {
    let cutover = args.plan.as_ref().zip(args.change_rate.as_ref());
    let cutover = cutover.map(|(steps, rate)| Ok::<_, Error>((parse_steps(steps)?, parse_rate(rate)?)));
    let deadline = args.deadline.as_ref().map(|text| Ok::<_, Error>((deadline(text)?, args.direction.into())));
    Ok(Request {
        restore_knobs: args.restore_tuning.knobs(),
        grid: args.grid,
        cutover: cutover.transpose()?,
        deadline: deadline.transpose()?,
        ..args.job.request(args.encrypted, config)?
    })
}

fn parse_steps(text: &str) -> Result<Steps> {
    let hint = "write full, full+diff, full+log or full+diff+log";
    Steps::parse(text).ok_or_else(|| Error::usage("--plan", format!("`{text}` is not a plan of a move"), hint))
}

/// Bytes per second from `30GB/d`.
fn parse_rate(text: &str) -> Result<f64> {
    const FLAG: &str = "--change-rate";
    let wrong =
        || Error::usage(FLAG, format!("`{text}` is not a rate"), "write bytes per day, hour, minute or second: 30GB/d");
    let (amount, time) = text.split_once('/').ok_or_else(wrong)?;
    let seconds = match time.trim() {
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" | "day" => DAY,
        _ => return Err(wrong()),
    };
    Ok(units::bytes(FLAG, amount)? as f64 / seconds)
}

fn told(made: &EstimateReport) -> String {
    let asked = &made.asked;
    let mut lines = vec![format!(
        "ESTIMATE of {} of `{}`{}: {}, {}, {} (profile `{}`)",
        show_bytes(made.plain_bytes),
        made.source,
        never_written(made),
        asked.compression,
        counted(asked.stripes, "stripe"),
        counted(asked.buffer_count, "buffer"),
        made.profile.name
    )];
    lines.extend(told_configuration(asked));
    if made.history_runs > 0 {
        let factor = made.history_factor;
        lines.push(format!(
            "  learned from {}: {factor:.2} times as long as the model alone says",
            counted(made.history_runs as u64, "earlier run")
        ));
    }
    if let Some(moved) = &made.cutover {
        let [p10, p50, p90] = moved.downtime_s.map(show_seconds);
        lines.push(format!(
            "  downtime of the move: {p10} to {p90} (middle {p50}), for {}",
            show_bytes(moved.last_bytes[1] as u64)
        ));
        let beforehand = show_seconds(moved.beforehand_s[1]);
        lines.push(format!("  before that, while the database is in use: {beforehand} (middle)"));
    }
    lines.extend(told_deadline(made));
    if let Some(grid) = &made.grid {
        lines.extend(told_grid(grid, asked));
    }
    lines.join("\n")
}

fn told_grid(grid: &[GridLine], asked: &GridLine) -> Vec<String> {
    let kept = distinct(grid, asked);
    let (shown, slower) = kept.split_at(kept.len().min(LINES));
    // The configuration of the flags is always shown.
    let last = slower.iter().filter(|line| line.is(asked));
    let mut lines = vec![
        "  sorted by the time of the backup, the fastest first; * is the configuration of the flags".to_owned(),
        table(shown.iter().chain(last).copied(), Some(asked)),
    ];
    let left_out = grid.len() - kept.len();
    if left_out > 0 {
        lines.push(format!(
            "{} left out: the same codec, times within the interval and as much memory as a line above, or in nothing \
             better than another line",
            counted(left_out as u64, "configuration")
        ));
    }
    if !slower.is_empty() {
        lines.push(format!("… and {} slower ones: --report json has them all", slower.len()));
    }
    lines
}

/// Says why the estimate is smaller than the bytes in use of a server: a backup does not read what was never written.
fn never_written(made: &EstimateReport) -> String {
    match made.in_use_bytes.filter(|used| *used > made.plain_bytes) {
        None => String::new(),
        Some(used) => format!(" ({} in use, the rest was never written)", show_bytes(used)),
    }
}

fn told_deadline(made: &EstimateReport) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(fits) = made.fits.as_ref().filter(|fits| !fits.is_empty()) {
        let many = counted(fits.len() as u64, "configuration");
        lines.push(format!("  within the deadline, least memory first: {many}; * is the configuration of the flags"));
        lines.push(table(&fits[..fits.len().min(LINES)], Some(&made.asked)));
    }
    if let Some(nearest) = &made.nearest {
        lines.push("  no configuration keeps the deadline; the nearest:".into());
        lines.push(table([nearest], None));
        match made.wanted.as_deref().unwrap_or_default() {
            [] => lines.push("  faster hardware would not help".into()),
            wanted => lines.extend(wanted.iter().map(|step| {
                let value = if step.unit == "bytes/s" {
                    format!(" ({}/s)", show_bytes(step.value as u64))
                } else {
                    String::new()
                };
                format!("  needed to keep it: {} {:.1} times{value}", step.limit, step.factor)
            })),
        }
    }
    lines
}
