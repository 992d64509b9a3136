//! `fullbore calibrate`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use comfy_table::{Table, presets};
use fullbore::calibrate::conclusion::{conclusion, next, speeds};
use fullbore::calibrate::{self, Request, SECONDS, THOROUGH, chart};
use fullbore::chain::show_time;
use fullbore::config::Config;
use fullbore::units::{self, MIB, show_bytes};
use fullbore::{Error, Result};
use fullbore_model::profile::{self, Access, Cell, CodecCell, Machine, MeasuredPath, Order, Profile, Round};
use fullbore_model::statistics::median;
use fullbore_model::throughput::Direction;

use super::args::ReportTo;
use super::inspect::WITH_WARNINGS;
use super::listing::ReportFlags;
use super::show;
use serde::Serialize;

/// Rows of each way to use a place that are shown without -v.
const MAIN: usize = 3;
/// The order of the rows of a place.
const WAYS: [(Access, Order); 6] = [
    (Access::Read, Order::Sequential),
    (Access::Write, Order::Sequential),
    (Access::Read, Order::Random),
    (Access::Write, Order::Random),
    (Access::Read, Order::Files),
    (Access::Write, Order::Files),
];

/// Measure how fast the path between database and media is on this machine, and keep the result as a named profile.
///
/// It measures reads, writes, codecs, checksums and cipher as jobs use them: files by block size, queue depth and
/// number of files at once; object stores by part size and number of parts at once. It also measures a tiny backup and
/// a tiny restore. It makes files only where --write says. They go with the run: the measured files have no name.
#[derive(Debug, Args)]
pub struct Calibrate {
    /// Where the database is: a file, a directory (its largest files are read), or an object or prefix in a store.
    /// Nothing is written there. Repeatable.
    #[arg(long, value_name = "PATH", required_unless_present_any = ["write", "show"])]
    pub read: Vec<String>,
    /// Where backups or a restored database go: a directory, or a prefix in a store, ending in /. fullbore writes there
    /// and reads back. Repeatable.
    #[arg(long, value_name = "PATH")]
    pub write: Vec<String>,
    /// Name of the profile. An existing profile of this name is replaced [default: default; with --show all profiles].
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Take 5 minutes, more codecs and a larger sample.
    #[arg(long)]
    pub thorough: bool,
    /// Approximate run time [default: 30, or 300 with --thorough].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,
    /// Use at most this much of each file system or store that is written to [default: 4GiB, or a tenth of the free
    /// space; 512MiB of a store].
    #[arg(long, value_name = "BYTES", requires = "write")]
    pub space: Option<String>,
    /// Read and write at most this much per second in total, e.g. 200MiB/s.
    #[arg(long, value_name = "RATE")]
    pub throttle: Option<String>,
    /// Measure nothing: list the stored profiles, the newest first. With --name, show this one.
    #[arg(long, conflicts_with_all = ["read", "write", "thorough", "seconds", "space", "throttle"])]
    pub show: bool,
    /// Write charts (SVG) and a page that shows them (index.html) into this directory. fullbore makes it if it is
    /// missing.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// The JSON object (docs/CALIBRATION.md).
    #[command(flatten)]
    pub report: ReportFlags,
    /// Print only errors, warnings and the result.
    #[arg(short, long)]
    pub quiet: bool,
    /// Show every measurement, not only the fastest ones of each place.
    #[arg(short, long)]
    pub verbose: bool,
}

/// Runs the verb; gives the exit code. `config_file` is the configuration file that was named.
pub fn run(args: &Calibrate, config: &Config, config_file: Option<PathBuf>) -> Result<u8> {
    profile::check_name(args.name())?;
    let report = args.report.to();
    if let Some(ReportTo::File(path)) = &report {
        super::check_report_place(path)?;
    }
    let places = profile::places();
    if args.show && args.name.is_none() {
        return list(args, &places);
    }
    let (profile, kept) = if args.show {
        (profile::load(&places, args.name())?, None)
    } else {
        let made = measure(args, config, config_file)?;
        let path = profile::save(&places, &made)?;
        (made, Some(path))
    };
    if report != Some(ReportTo::Output) {
        show::line(&told(&profile, args.verbose));
    }
    args.report.write("calibrate", &profile)?;
    if let Some(directory) = &args.svg {
        write_charts(&profile, directory)?;
    }
    profile.notes.iter().for_each(|note| show::note(note));
    if let Some(path) = kept.filter(|_| !args.quiet) {
        show::note(&format!("kept as profile `{}`: {}", profile.name, path.display()));
    }
    let here = Machine::this();
    profile.remark(&here).iter().for_each(|remark| show::note(remark));
    match profile.check_machine(&here) {
        Ok(()) => Ok(0),
        Err(error) => {
            show::warning(&error.to_string());
            Ok(WITH_WARNINGS)
        }
    }
}

impl Calibrate {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(profile::DEFAULT)
    }
}

/// The stored profiles as an object.
#[derive(Serialize)]
struct Listed<'a> {
    profiles: Vec<ListedProfile<'a>>,
}

/// Speeds are in MiB/s.
#[derive(Serialize)]
struct ListedProfile<'a> {
    name: &'a str,
    made_at: &'a str,
    host: &'a str,
    is_of_this_machine: bool,
    read_mib_per_s: Option<f64>,
    write_mib_per_s: Option<f64>,
    backup_mib_per_s: Option<f64>,
}

/// Lists all stored profiles; gives the exit code.
fn list(args: &Calibrate, places: &[PathBuf]) -> Result<u8> {
    if args.svg.is_some() {
        return Err(Error::usage("--svg", "shows one profile", "name it with --name"));
    }
    let (profiles, errors) = profile::all(places);
    if profiles.is_empty() && errors.is_empty() {
        profile::load(places, args.name())?; // The error says where profiles would be, and how to make one.
    }
    let here = Machine::this();
    let line = |profile: &'_ Profile| {
        let [read_mib_per_s, write_mib_per_s, backup_mib_per_s] = speeds(profile);
        let is_of_this_machine = profile.check_machine(&here).is_ok();
        (is_of_this_machine, read_mib_per_s, write_mib_per_s, backup_mib_per_s)
    };
    let listed = profiles.iter().map(|profile| {
        let (is_of_this_machine, read_mib_per_s, write_mib_per_s, backup_mib_per_s) = line(profile);
        let Profile { name, made_at, machine: Machine { host, .. }, .. } = profile;
        ListedProfile { name, made_at, host, is_of_this_machine, read_mib_per_s, write_mib_per_s, backup_mib_per_s }
    });
    let listed = Listed { profiles: listed.collect() };
    if args.report.write("calibrate", &listed)? {
        show::line(&told_list(&listed));
    }
    errors.iter().for_each(|error| show::warning(&error.to_string()));
    Ok(if errors.is_empty() { 0 } else { WITH_WARNINGS })
}

/// The list for people.
fn told_list(listed: &Listed<'_>) -> String {
    let mut rows = table(&["profile", "measured", "machine", "reads", "writes", "backups at most"]);
    let speed = |speed: Option<f64>| speed.map_or_else(|| "not measured".into(), |speed| format!("{speed:.0} MiB/s"));
    for profile in &listed.profiles {
        let host = show::value(profile.host);
        let measured = profile.made_at.parse::<jiff::Timestamp>();
        rows.add_row([
            profile.name.to_owned(),
            measured.map_or_else(|_| show::value(profile.made_at), |time| show_time(time.as_microsecond())),
            if profile.is_of_this_machine { host } else { format!("{host} (another machine)") },
            speed(profile.read_mib_per_s),
            speed(profile.write_mib_per_s),
            speed(profile.backup_mib_per_s),
        ]);
    }
    format!("{rows}\n\nfullbore calibrate --show --name NAME shows one of them")
}

fn measure(args: &Calibrate, config: &Config, config_file: Option<PathBuf>) -> Result<Profile> {
    let seconds = args.seconds.unwrap_or(if args.thorough { THOROUGH } else { SECONDS });
    let request = Request {
        name: args.name().to_owned(),
        read: args.read.clone(),
        write: args.write.clone(),
        time: Duration::from_secs(seconds),
        thorough: args.thorough,
        space: args.space.as_ref().map(|text| units::bytes("--space", text)).transpose()?,
        throttle: args.throttle.as_ref().map(|text| units::bytes_per_second("--throttle", text)).transpose()?,
        config: config_file,
        locks: config.lock_until.is_some(),
    };
    // A calibration removes its objects, so they are not locked.
    let conduct = super::stop_on_signals(&Config { lock_until: None, lock_mode: None, ..config.clone() })?;
    let tell = |text: &str| {
        if !args.quiet {
            show::note(text);
        }
    };
    // The files and directories of a calibration are the ones that the flags name.
    calibrate::run(&request, &conduct, &tell).map_err(Error::on_named_thing)
}

fn write_charts(profile: &Profile, directory: &Path) -> Result<()> {
    let failed = |path: &Path, e| Error::io("write charts to", path.display().to_string(), e);
    fs::create_dir_all(directory).map_err(|e| failed(directory, e))?;
    let write = |name: String, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|e| failed(&path, e))
    };
    let charts = chart::charts(profile);
    charts.iter().try_for_each(|chart| write(format!("{}.svg", chart.name), &chart.svg))?;
    write("index.html".into(), &chart::page(profile, &charts))
}

fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heads);
    table
}

/// The profile for people: the conclusion, the next step, and the tables.
fn told(profile: &Profile, verbose: bool) -> String {
    let machine = &profile.machine;
    let mut text = format!(
        "profile `{}` of {}, {}: {} × {}, Linux {}\n{}\n{}\n",
        profile.name,
        machine.host,
        profile.made_at,
        machine.cores,
        machine.cpu_model,
        machine.kernel,
        conclusion(profile).join("\n"),
        next(profile)
    );
    let mut hidden = 0;
    for place in &profile.places {
        let (shown, left_out) = told_place(place, verbose);
        text += &shown;
        hidden += left_out;
    }
    if verbose {
        text += &told_pairs(profile);
    }
    let most = profile.codecs.iter().map(|cell| cell.threads).max().unwrap_or(0);
    let mut rows = table(&["", "threads", "MiB/s", "back MiB/s", "stored", "rounds"]);
    let speed = |rounds: &[Round]| profile::rate(rounds).map_or_else(String::new, |rate| format!("{:.0}", rate / MIB));
    let mut codecs: Vec<_> = profile.codecs.iter().filter(|cell| verbose || cell.threads == most).collect();
    hidden += profile.codecs.len() - codecs.len();
    let rate = |cell: &CodecCell| profile::rate(&cell.pack).unwrap_or(0.0);
    codecs.sort_by(|one, other| rate(other).total_cmp(&rate(one)));
    for cell in codecs {
        let stored = format!("{:.1} %", 100.0 * cell.stored_share);
        let (threads, rounds) = (cell.threads.to_string(), cell.pack.len().to_string());
        rows.add_row([cell.codec.clone(), threads, speed(&cell.pack), speed(&cell.unpack), stored, rounds]);
    }
    for (name, cells) in [("checksums", &profile.checksums), ("aes-256-gcm", &profile.ciphers)] {
        for cell in cells.iter().filter(|_| verbose) {
            let (threads, rounds) = (cell.threads.to_string(), cell.rounds.len().to_string());
            rows.add_row([name.into(), threads, speed(&cell.rounds), String::new(), String::new(), rounds]);
        }
    }
    if rows.row_count() > 0 {
        text += &format!("\nin memory, the fastest first\n{rows}\n");
    }
    if !verbose {
        text += &format!("\n-v shows {hidden} more rows, and what was measured of both at once and of tiny jobs\n");
    }
    text.trim_end().to_owned()
}

/// The tables of a place, the fastest way to use it first, and the number of the rows that are left out.
fn told_place(place: &MeasuredPath, verbose: bool) -> (String, usize) {
    let mut text = format!("\n{} ({})\n", show::value(&place.path), show_bytes(place.bytes));
    let heads = match place.is_in_store() {
        true => ["", "part or range", "in flight", "objects", "MiB/s", "rounds", "sync ms"],
        false => ["", "block", "queue depth", "files", "MiB/s", "rounds", "sync ms"],
    };
    // A speed through the page cache is not a speed of the device: they are shown apart.
    let (cached, device): (Vec<&Cell>, Vec<&Cell>) = place.cells.iter().partition(|cell| place.is_cached(cell));
    let only_cached = device.is_empty();
    let mut shown = 0;
    for (cells, above) in [(device, ""), (cached, "through the page cache, which is faster than the device:\n")] {
        if cells.is_empty() || !(verbose || only_cached || above.is_empty()) {
            continue;
        }
        let mut rows = table(&heads);
        for (way, order) in WAYS {
            let of = |cell: &&&Cell| (cell.shape.way, cell.shape.order) == (way, order);
            let mut cells: Vec<&Cell> = cells.iter().filter(of).copied().collect();
            cells.sort_by(|one, other| other.rate().total_cmp(&one.rate()));
            let most = match (verbose, order) {
                (true, _) => usize::MAX,
                (false, Order::Sequential) => MAIN,
                (false, _) => 0,
            };
            for cell in cells.into_iter().take(most) {
                rows.add_row(row(cell, place.is_in_store()));
                shown += 1;
            }
        }
        text += &format!("{above}{rows}\n");
    }
    (text, place.cells.len() - shown)
}

/// Reading and writing at the same time, and tiny jobs.
fn told_pairs(profile: &Profile) -> String {
    let mut text = String::new();
    for pair in &profile.together {
        let [read, written] = [pair.read, pair.written].map(|at| show::value(&profile.places[at].path));
        let of = |value: fn(&profile::BothRound) -> f64| median(pair.rounds.iter().map(value)).unwrap_or(0.0) / MIB;
        let mix = match pair.written_per_read {
            profile::EVEN => String::new(),
            bytes => format!(", {bytes} bytes written for each byte read"),
        };
        text += &format!(
            "\nat once, {} a block{mix}: {read} read at {:.0} MiB/s (alone {:.0}), \
             {written} written at {:.0} MiB/s (alone {:.0})\n",
            show_bytes(pair.block_bytes),
            of(|round| round.read_bytes as f64 / round.seconds),
            of(|round| round.read_alone),
            of(|round| round.written_bytes as f64 / round.seconds),
            of(|round| round.written_alone),
        );
    }
    for cost in &profile.job_costs {
        let [media, database] = [cost.media, cost.database].map(|at| show::value(&profile.places[at].path));
        let of = |direction| seconds(cost.seconds(direction));
        text += &format!(
            "\ntiny jobs: backup to {media} {}, restore to {database} {}, {} rounds\n",
            of(Direction::Backup),
            of(Direction::Restore),
            cost.backup_s.len()
        );
    }
    text
}

/// The median, the least and the greatest.
fn seconds(rounds: &[f64]) -> String {
    let (least, most) =
        (rounds.iter().copied().fold(f64::INFINITY, f64::min), rounds.iter().copied().fold(0.0, f64::max));
    format!("{:.2} s ({least:.2}…{most:.2})", median(rounds.iter().copied()).unwrap_or(0.0))
}

fn row(cell: &Cell, in_store: bool) -> [String; 7] {
    let shape = &cell.shape;
    let order = match shape.order {
        Order::Sequential => "sequential",
        Order::Random => "random",
        Order::Files => "small files",
    };
    let way = match shape.way {
        Access::Read => "read",
        Access::Write => "write",
    };
    let how = if shape.direct { "" } else { ", not direct" };
    let what = match (in_store, shape.way) {
        (false, _) if shape.order == Order::Files => format!("{order}, durable"),
        (false, _) => format!("{order} {way}{how}"),
        (true, Access::Write) => "put".into(),
        (true, Access::Read) => "get".into(),
    };
    let rates = cell.rounds.iter().map(Round::rate);
    let (least, most) = (rates.clone().fold(f64::INFINITY, f64::min), rates.fold(0.0, f64::max));
    let sync = match shape.order {
        Order::Files => shape.block_bytes as f64 / cell.rate(),
        _ => median(cell.rounds.iter().map(|round| round.sync_seconds)).unwrap_or(0.0),
    };
    [
        what,
        show_bytes(shape.block_bytes),
        shape.queue_depth.to_string(),
        shape.streams.to_string(),
        format!("{:.0} ({:.0}…{:.0})", cell.rate() / MIB, least / MIB, most / MIB),
        cell.rounds.len().to_string(),
        if shape.way == Access::Write { format!("{:.1}", 1e3 * sync) } else { String::new() },
    ]
}
