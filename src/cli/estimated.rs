//! What `estimate` and `advise` share: the job that is foreseen, and how its figures are shown.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use fullbore::config::Config;
use fullbore::job::estimate::{ForeseenReport, GridLine, Request};
use fullbore::units::{self, show_bytes};
use fullbore::{Error, Result};
use fullbore_core::device::{Destination, Device};
use fullbore_engines::engine::{AlsoIn, resolve_options};
use fullbore_model::estimate::By;
use serde::Serialize;

use super::args::ReportTo;
use super::engine_options::EstimateOptions;
use super::inspect::WITH_WARNINGS;
use super::listing::ReportFlags;
use super::show;
use super::tuning::BackupTuning;

/// The job that is foreseen.
#[derive(Debug, Args)]
pub struct ForeseenJob {
    /// The database, as for backup.
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// Where the stripes would go, as for backup. Repeatable.
    #[arg(long, value_name = "DEVICE", required = true)]
    pub to: Vec<String>,
    /// Number of stripes [default: one per device].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub stripes: Option<u8>,
    /// Codec: none, lz4, zstd[:LEVEL] or gzip[:LEVEL]. The profile must know it [default: lz4].
    #[arg(long, value_name = "CODEC")]
    pub compression: Option<String>,
    /// The profile of this machine.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub profile: String,
    /// Estimate for a database of this size, e.g. 4TB, instead of its present size.
    #[arg(long, value_name = "BYTES")]
    pub size: Option<String>,
    /// Where the server's files are [default: as the server says, if that is on this machine].
    #[arg(long, value_name = "PATH")]
    pub data_path: Option<PathBuf>,
    /// Price of one hour of this machine. Adds the cost of each backup.
    #[arg(long, value_name = "PRICE")]
    pub price: Option<f64>,
    /// The options of single engines.
    #[command(flatten)]
    pub engine_options: EstimateOptions,
    /// Buffers and threads.
    #[command(flatten)]
    pub tuning: BackupTuning,
    /// The JSON object (docs/ESTIMATE.md).
    #[command(flatten)]
    pub report: ReportFlags,
}

/// What must finish within a deadline.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Direction {
    /// The backup.
    Backup,
    /// The restore.
    Restore,
    /// A backup, and then its restore.
    Both,
}

impl ForeseenJob {
    /// The request for the job alone. `encrypted`: its blocks would be encrypted.
    ///
    /// # Errors
    /// A flag with a wrong value.
    pub fn request(&self, encrypted: bool, config: &Config) -> Result<Request> {
        let to: Vec<Device> = self.to.iter().map(|text| Device::parse(text)).collect::<Result<_>>()?;
        if let Some(pipe) = to.iter().find(|device| matches!(device.place(), Destination::Pipe)) {
            let hint = "name the device that the other end writes to";
            return Err(Error::usage(pipe.to_string(), "the speed of the other end of a pipe is unknown", hint));
        }
        let compression = self.compression.as_ref().or(config.compression.as_ref());
        let (source, engine_options) = resolve_options(&self.source, &self.engine_options.given()?, &config.engine)?;
        Ok(Request {
            source,
            to,
            stripes: self.stripes.map(usize::from).or(config.stripes),
            compression: compression.map(|text| text.parse()).transpose()?,
            encrypted: encrypted || !config.encrypt_to.is_empty(),
            knobs: self.tuning.knobs(config)?,
            profile: self.profile.clone(),
            size: self.size.as_ref().map(|text| units::bytes("--size", text)).transpose()?,
            data_path: self.data_path.clone(),
            price: self.price.map(check_price).transpose()?,
            engine_options: engine_options.of(AlsoIn::Estimates),
            catalog: config.catalog_path(),
            ..Request::default()
        })
    }
}

/// Makes an answer to `request`, shows and writes it; gives the exit code. `told` is its text, `remarks` its notes and
/// warnings.
///
/// # Errors
/// Those of `make`; a report that cannot be written.
pub fn answer<T: Serialize>(
    job: &ForeseenJob,
    request: &Request,
    make: impl FnOnce() -> Result<T>,
    told: impl Fn(&T) -> String,
    remarks: impl Fn(&T) -> [&Vec<String>; 2],
) -> Result<u8> {
    let report = job.report.to();
    super::refuse_report_in_database(report.as_ref(), request.source.identity())?;
    if let Some(ReportTo::File(path)) = &report {
        super::check_report_place(path)?;
    }
    let made = make()?;
    if report != Some(ReportTo::Output) {
        show::line(&told(&made));
    }
    if let Some(to) = &report {
        super::write_report(to, &made)?;
    }
    let [notes, warnings] = remarks(&made);
    notes.iter().for_each(|note| show::note(note));
    warnings.iter().for_each(|warning| show::warning(warning));
    Ok(if warnings.is_empty() { 0 } else { WITH_WARNINGS })
}

impl From<Direction> for By {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Backup => Self::Backup,
            Direction::Restore => Self::Restore,
            Direction::Both => Self::Both,
        }
    }
}

/// Seconds of `--deadline`.
///
/// # Errors
/// The text is not a time, or the time is 0.
pub fn deadline(text: &str) -> Result<f64> {
    let time = units::duration("--deadline", text)?;
    if time.is_zero() {
        return Err(Error::usage("--deadline", "no job can keep a deadline of 0", "write e.g. 2h"));
    }
    Ok(time.as_secs_f64())
}

fn check_price(price: f64) -> Result<f64> {
    if price.is_finite() && price >= 0.0 {
        return Ok(price);
    }
    Err(Error::usage("--price", format!("{price} is not a price"), "write what an hour costs, e.g. 2.56"))
}

/// Both directions of a configuration, and the resources that it takes.
pub fn told_configuration(line: &GridLine) -> [String; 3] {
    [
        format!("  backup:  {}", told_direction(line.backup)),
        format!("  restore: {}", told_direction(line.restore)),
        format!(
            "  stored {}, memory {}, processor {:.1} s{}",
            show_bytes(line.stored_bytes),
            show_bytes(line.memory_bytes),
            line.cpu_s,
            line.cost.map(|cost| format!(", cost {cost:.2}")).unwrap_or_default()
        ),
    ]
}

/// Interval, speed and limit of a direction.
fn told_direction(foreseen: Option<ForeseenReport>) -> String {
    foreseen.map_or_else(
        || "unknown: the path was not calibrated".into(),
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

/// A line for each configuration; `*` marks the chosen one.
pub fn table<'a>(lines: impl IntoIterator<Item = &'a GridLine>, chosen: Option<&GridLine>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "", "codec", "stripes", "buffers", "backup", "P90", "limit", "restore", "P90", "limit", "stored", "memory",
    ]);
    for line in lines {
        let of = |one: Option<ForeseenReport>| {
            one.map_or(["-".to_owned(), "-".to_owned(), "-".to_owned()], |one| {
                [show_seconds(one.p50_s), show_seconds(one.p90_s), one.limit.to_owned()]
            })
        };
        let mark = if chosen.is_some_and(|chosen| line.is(chosen)) { "*" } else { "" };
        let mut cells =
            vec![mark.into(), line.compression.clone(), line.stripes.to_string(), line.buffer_count.to_string()];
        cells.extend(of(line.backup));
        cells.extend(of(line.restore));
        cells.extend([show_bytes(line.stored_bytes), show_bytes(line.memory_bytes)]);
        table.add_row(cells);
    }
    table.to_string()
}

/// The lines that another line does not beat, and that differ from every line above them in something that matters; and
/// the chosen one.
pub fn distinct<'a>(lines: &'a [GridLine], chosen: &GridLine) -> Vec<&'a GridLine> {
    // A line that beats another takes no more of anything, so it comes first.
    let mut thrifty: Vec<&GridLine> = lines.iter().collect();
    let time = |line: &GridLine| line.backup.map_or(0.0, |backup| backup.p50_s);
    thrifty.sort_by(|one, other| {
        let bytes = |line: &GridLine| (line.memory_bytes, line.stored_bytes);
        let times = one.cpu_s.total_cmp(&other.cpu_s).then(time(one).total_cmp(&time(other)));
        bytes(one).cmp(&bytes(other)).then(times)
    });
    let mut best: Vec<&GridLine> = Vec::new();
    for line in thrifty {
        if !best.iter().any(|other| line.is_beaten_by(other)) {
            best.push(line);
        }
    }
    let mut kept: Vec<&GridLine> = Vec::new();
    for line in lines.iter().filter(|line| line.is(chosen) || best.iter().any(|best| line.is(best))) {
        if line.is(chosen) || !kept.iter().any(|above| line.is_like(above)) {
            kept.push(line);
        }
    }
    kept
}

/// `8 ms`, `3.2 s`, `12.5 min`, `3.4 h`.
pub fn show_seconds(seconds: f64) -> String {
    match seconds {
        _ if seconds < 0.001 => "less than 1 ms".into(),
        _ if seconds < 0.1 => format!("{:.0} ms", 1000.0 * seconds),
        _ if seconds < 120.0 => format!("{seconds:.1} s"),
        _ if seconds < 7200.0 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(compression: &str, stripes: u64, seconds: f64, memory_bytes: u64) -> GridLine {
        let (p10_s, p90_s) = (0.9 * seconds, 1.1 * seconds);
        let foreseen = ForeseenReport { p10_s, p50_s: seconds, p90_s, limit: "processor", mib_per_s: 1.0 };
        GridLine {
            compression: compression.into(),
            stripes,
            buffer_count: 16,
            workers: 2,
            backup: Some(foreseen),
            restore: None,
            stored_bytes: 1,
            memory_bytes,
            cpu_s: 1.0,
            cost: None,
        }
    }

    #[test]
    fn a_line_that_differs_in_nothing_that_matters_is_left_out_but_never_the_chosen_one() {
        let lines = [
            line("lz4", 1, 100.0, 120 << 20),
            line("lz4", 2, 105.0, 110 << 20),
            line("zstd:1", 1, 106.0, 100 << 20),
            line("lz4", 4, 107.0, 300 << 20),
            line("lz4", 8, 108.0, 120 << 20),
            line("lz4", 16, 120.0, 90 << 20),
        ];
        let kept = distinct(&lines, &lines[4]);
        let stripes: Vec<u64> = kept.iter().map(|line| line.stripes).collect();
        assert_eq!(stripes, [1, 1, 8, 16], "two stripes are like one, and one stripe beats four");
        let shown = table(kept, Some(&lines[4]));
        let marked: Vec<&str> = shown.lines().filter(|line| line.trim_start().starts_with('*')).collect();
        assert!(marked.len() == 1 && marked[0].contains("108.0 s"), "{shown}");
        let unknown = GridLine { backup: None, ..line("lz4", 2, 1.0, 1) };
        assert!(unknown.is_like(&unknown) && !unknown.is_like(&lines[0]) && !lines[0].is_like(&unknown));
    }

    #[test]
    fn a_line_is_beaten_by_one_that_is_nowhere_worse_and_somewhere_better() {
        let (usual, same) = (line("lz4", 1, 100.0, 100), line("lz4", 2, 100.5, 100));
        let more = |memory_bytes, cpu_s| GridLine { cpu_s, ..line("lz4", 4, 100.0, memory_bytes) };
        assert!(more(101, 1.0).is_beaten_by(&usual) && more(100, 1.1).is_beaten_by(&usual));
        assert!(more(101, 1.0).is_beaten_by(&same), "times of half a percent are the same");
        assert!(!usual.is_beaten_by(&same) && !same.is_beaten_by(&usual));
        assert!(!more(101, 0.9).is_beaten_by(&usual), "it needs less of the processor");
        assert!(!line("lz4", 1, 98.0, 101).is_beaten_by(&usual), "it is faster");
        assert!(!GridLine { stored_bytes: 0, ..more(101, 2.0) }.is_beaten_by(&usual), "it stores less");
        assert!(line("lz4", 1, 102.0, 100).is_beaten_by(&usual), "only slower");
        assert!(!GridLine { restore: usual.backup, ..more(101, 1.0) }.is_beaten_by(&usual), "it is known both ways");
    }

    #[test]
    fn a_time_is_told_in_the_unit_of_its_size() {
        let told = [0.0002, 0.008, 3.21, 750.0, 12_240.0].map(show_seconds);
        assert_eq!(told, ["less than 1 ms", "8 ms", "3.2 s", "12.5 min", "3.4 h"]);
    }
}
