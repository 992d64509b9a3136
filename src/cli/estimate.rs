//! `fullbore estimate`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use fullbore::config::Config;
use fullbore::job::backup::path_of;
use fullbore::job::foresee::{self, By, EstimateReport, ForeseenReport, GridLine, Request};
use fullbore::tune::estimate::Steps;
use fullbore::units::{self, show_bytes};
use fullbore::{Error, Result};
use fullbore_core::device::{Device, Place};
use fullbore_core::plan::{Knobs, TransferSize};

use super::args::{ReportTo, Tuning};
use super::inspect::WITH_WARNINGS;
use super::show;

const DAY: f64 = 86_400.0;
/// Lines of a grid that are shown to people.
const LINES: usize = 20;

/// Foresee what a backup and its restore will take, before anything is moved.
///
/// From a profile of this machine (fullbore calibrate), some samples of the database, and what earlier runs have taken. Nothing is written. Times are
/// intervals: nine of ten runs are faster than the second figure, one of ten is faster than the first.
///
/// Example: fullbore estimate sqlite:/data/app.db --to /mnt/a/ --to /mnt/b/ --grid
#[derive(Debug, Args)]
pub struct Estimate {
    /// The database, as for backup.
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// Where families would go, as for backup. Repeatable.
    #[arg(long, value_name = "DEVICE", required = true)]
    pub to: Vec<String>,
    /// Families [default: one per device].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub stripes: Option<u8>,
    /// none, lz4, zstd[:LEVEL] or gzip[:LEVEL], one that the profile knows [default: lz4].
    #[arg(long, value_name = "CODEC")]
    pub compression: Option<String>,
    /// Blocks would be encrypted.
    #[arg(long)]
    pub encrypted: bool,
    /// The profile of this machine.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub profile: String,
    /// For a database of this size, e.g. 4TB, whatever it has now.
    #[arg(long, value_name = "BYTES")]
    pub size: Option<String>,
    /// Where the files of a server are.
    #[arg(long, value_name = "PATH")]
    pub data_path: Option<PathBuf>,
    /// Compare codecs, stripes and buffers, the fastest first.
    #[arg(long)]
    pub grid: bool,
    /// Foresee a move: full, full+diff, full+log or full+diff+log. Needs --change-rate.
    #[arg(long, value_name = "STEPS", requires = "change_rate")]
    pub plan: Option<String>,
    /// How much the database changes, e.g. 30GB/d, 2GiB/h or 5MiB/s.
    #[arg(long, value_name = "RATE", requires = "plan")]
    pub change_rate: Option<String>,
    /// Which configurations are done within this time, e.g. 2h, in nine of ten runs.
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// What has to be done by then.
    #[arg(long, value_enum, default_value_t = Direction::Backup, requires = "deadline")]
    pub direction: Direction,
    /// What an hour of this machine costs: adds the cost of each backup.
    #[arg(long, value_name = "PRICE")]
    pub price: Option<f64>,
    /// The server's password: the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Parallel readers of the database [default: 4].
    #[arg(long, value_name = "N")]
    pub readers: Option<usize>,
    /// Size of one buffer (MAXTRANSFERSIZE) [default: 1MiB].
    #[arg(long, value_name = "BYTES")]
    pub max_transfer_size: Option<String>,
    /// Read at most so much per second, e.g. 200MiB/s.
    #[arg(long, value_name = "RATE")]
    pub throttle: Option<String>,
    /// Buffers and threads.
    #[command(flatten)]
    pub tuning: Tuning,
    /// Write the estimate as JSON (docs/ESTIMATE.md): json (to standard output) or json:FILE.
    #[arg(long, value_name = "json[:FILE]", value_parser = super::args::report_to)]
    pub report: Option<ReportTo>,
}

/// What has to be done by a deadline.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Direction {
    /// The backup.
    Backup,
    /// The restore.
    Restore,
    /// A backup, and then its restore.
    Both,
}

/// Runs the verb; gives the exit code.
pub fn run(args: &Estimate, config: &Config) -> Result<u8> {
    super::refuse_report_in_database(args.report.as_ref(), Path::new(path_of(&args.source)))?;
    if let Some(ReportTo::File(path)) = &args.report {
        super::check_report_place(path)?;
    }
    let made = foresee::run(&request(args, config)?, &super::heeding(config)?)?;
    if args.report != Some(ReportTo::Output) {
        show::line(&told(&made));
    }
    if let Some(to) = &args.report {
        super::write_report(to, &made)?;
    }
    made.notes.iter().for_each(|note| show::note(note));
    made.warnings.iter().for_each(|warning| show::warning(warning));
    Ok(if made.warnings.is_empty() { 0 } else { WITH_WARNINGS })
}

fn request(args: &Estimate, config: &Config) -> Result<Request> {
    let to: Vec<Device> = args.to.iter().map(|text| Device::parse(text)).collect::<Result<_>>()?;
    if let Some(pipe) = to.iter().find(|device| matches!(device.place(), Place::Pipe)) {
        let hint = "name the device that the other end writes to";
        return Err(Error::usage(pipe.to_string(), "nobody knows how fast the other end of a pipe is", hint));
    }
    let compression = args.compression.as_ref().or(config.compression.as_ref());
    let cutover = args.plan.as_ref().zip(args.change_rate.as_ref());
    Ok(Request {
        source: args.source.clone(),
        to,
        stripes: args.stripes.map(usize::from).or(config.stripes),
        compression: compression.map_or(Ok(Default::default()), |text| text.parse())?,
        encrypted: args.encrypted || !config.encrypt_to.is_empty(),
        knobs: knobs(args, config)?,
        profile: args.profile.clone(),
        size: args.size.as_ref().map(|text| units::bytes("--size", text)).transpose()?,
        data_path: args.data_path.clone(),
        grid: args.grid,
        cutover: cutover.map(|(steps, rate)| Ok::<_, Error>((parse_steps(steps)?, parse_rate(rate)?))).transpose()?,
        deadline: args.deadline.as_ref().map(|text| deadline(text, args.direction)).transpose()?,
        price: args.price.map(check_price).transpose()?,
        password_file: args.password_file.clone(),
        catalog: config.catalog_path(),
    })
}

fn knobs(args: &Estimate, config: &Config) -> Result<Knobs> {
    let mut knobs = args.tuning.knobs(config);
    knobs.readers = args.readers.or(config.readers);
    if let Some(text) = args.max_transfer_size.as_ref().or(config.max_transfer_size.as_ref()) {
        knobs.transfer_size = TransferSize::new(units::bytes("--max-transfer-size", text)?)?;
    }
    let throttle = args.throttle.as_ref().or(config.throttle.as_ref());
    knobs.throttle = throttle.map(|text| units::bytes_per_second("--throttle", text)).transpose()?;
    Ok(knobs)
}

fn parse_steps(text: &str) -> Result<Steps> {
    let hint = "write full, full+diff, full+log or full+diff+log";
    Steps::parse(text).ok_or_else(|| Error::usage("--plan", format!("`{text}` is no plan of a move"), hint))
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

fn deadline(text: &str, direction: Direction) -> Result<(f64, By)> {
    let time = units::duration("--deadline", text)?;
    if time.is_zero() {
        return Err(Error::usage("--deadline", "no time at all is kept by nothing", "write e.g. 2h"));
    }
    let by = match direction {
        Direction::Backup => By::Backup,
        Direction::Restore => By::Restore,
        Direction::Both => By::Both,
    };
    Ok((time.as_secs_f64(), by))
}

fn check_price(price: f64) -> Result<f64> {
    if price.is_finite() && price >= 0.0 {
        return Ok(price);
    }
    Err(Error::usage("--price", format!("{price} is not a price"), "write what an hour costs, e.g. 2.56"))
}

fn told(made: &EstimateReport) -> String {
    let asked = &made.asked;
    let mut lines = vec![
        format!(
            "ESTIMATE of {} of `{}`: {}, {} stripes, {} buffers (profile `{}`)",
            show_bytes(made.plain_bytes),
            made.source,
            asked.compression,
            asked.stripes,
            asked.buffer_count,
            made.profile.name
        ),
        format!("  backup:  {}", told_direction(asked.backup)),
        format!("  restore: {}", told_direction(asked.restore)),
        format!(
            "  stored {}, memory {}, processor {:.1} s{}",
            show_bytes(asked.stored_bytes),
            show_bytes(asked.memory_bytes),
            asked.cpu_s,
            asked.cost.map(|cost| format!(", cost {cost:.2}")).unwrap_or_default()
        ),
    ];
    if made.history_runs > 0 {
        let factor = made.history_factor;
        lines.push(format!(
            "  learned from {} earlier runs: {factor:.2} times as long as the model alone says",
            made.history_runs
        ));
    }
    if let Some(moved) = &made.cutover {
        let [p10, p50, p90] = moved.downtime_s.map(show_seconds);
        lines.push(format!(
            "  downtime of the move: {p10} to {p90} (middle {p50}), for {}",
            show_bytes(moved.last_bytes[1] as u64)
        ));
        lines.push(format!("  before that, while it works: {} (middle)", show_seconds(moved.beforehand_s[1])));
    }
    lines.extend(told_deadline(made));
    if let Some(grid) = &made.grid {
        lines.push(table(&grid[..grid.len().min(LINES)]));
        if grid.len() > LINES {
            lines.push(format!("… and {} slower ones: --report json has them all", grid.len() - LINES));
        }
    }
    lines.join("\n")
}

fn told_direction(foreseen: Option<ForeseenReport>) -> String {
    foreseen.map_or_else(
        || "not known: its way was not calibrated".into(),
        |one| {
            format!(
                "{} to {} (middle {}, {:.0} MiB/s); limit: {}",
                show_seconds(one.p10_s),
                show_seconds(one.p90_s),
                show_seconds(one.p50_s),
                one.mib_per_s,
                one.limit
            )
        },
    )
}

fn told_deadline(made: &EstimateReport) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(fits) = made.fits.as_ref().filter(|fits| !fits.is_empty()) {
        lines.push(format!("  {} configurations keep the deadline, least memory first:", fits.len()));
        lines.push(table(&fits[..fits.len().min(LINES)]));
    }
    if let Some(nearest) = &made.nearest {
        lines.push("  no configuration keeps the deadline; the nearest:".into());
        lines.push(table(std::slice::from_ref(nearest)));
        match made.wanted.as_deref().unwrap_or_default() {
            [] => lines.push("  faster hardware would not make it fit".into()),
            wanted => lines.extend(wanted.iter().map(|step| {
                let value = if step.unit == "bytes/s" {
                    format!(" ({}/s)", show_bytes(step.value as u64))
                } else {
                    String::new()
                };
                format!("  what would: {} {:.1} times{value}", step.limit, step.factor)
            })),
        }
    }
    lines
}

fn table(lines: &[GridLine]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "codec", "stripes", "buffers", "backup", "P90", "limit", "restore", "P90", "limit", "stored", "memory",
    ]);
    for line in lines {
        let of = |one: Option<ForeseenReport>| {
            one.map_or(["-".to_owned(), "-".to_owned(), "-".to_owned()], |one| {
                [show_seconds(one.p50_s), show_seconds(one.p90_s), one.limit.to_owned()]
            })
        };
        let mut cells = vec![line.compression.clone(), line.stripes.to_string(), line.buffer_count.to_string()];
        cells.extend(of(line.backup));
        cells.extend(of(line.restore));
        cells.extend([show_bytes(line.stored_bytes), show_bytes(line.memory_bytes)]);
        table.add_row(cells);
    }
    table.to_string()
}

/// `3.2 s`, `12.5 min`, `3.4 h`.
fn show_seconds(seconds: f64) -> String {
    match seconds {
        _ if seconds < 120.0 => format!("{seconds:.1} s"),
        _ if seconds < 7200.0 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}
