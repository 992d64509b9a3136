//! `fullbore bench`: runs every combination of a matrix in a random order, each as a child process, and writes the
//! results. `docs/BENCH.md` explains the keys and the results.
//!
//! [`Matrix`] is the file, [`cells`] its product and order, [`plan`] the expected costs, [`run`] one run, [`results`]
//! the measurements. [`tables`], [`chart`] and [`html`] show them. `places` are the directories, `notes` the additional
//! facts.

pub mod cells;
pub mod chart;
mod data;
pub mod emulated;
pub mod html;
mod load;
pub mod matrix;
pub mod medians;
mod notes;
mod places;
pub mod plan;
pub mod results;
mod rooms;
mod run;
pub mod tables;
pub mod volume;

use std::fs;
use std::path::{Path, PathBuf};

pub use fullbore_core::{Error, Result};

pub use matrix::Matrix;
use plan::Plan;
use results::{DONE, Machine, Results};

use volume::Means;

use fullbore_core::conduct::Conduct;
use fullbore_core::units::show_duration;
use fullbore_core::{child, resources};
use fullbore_model::profile;

/// The user's request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The file.
    pub matrix: PathBuf,
    /// `--work`.
    pub work: Option<PathBuf>,
    /// `--out`.
    pub out: Option<PathBuf>,
    /// `--dry-run`.
    pub dry_run: bool,
    /// `--yes`.
    pub yes: bool,
    /// `--resume`.
    pub resume: bool,
}

/// The result of a bench.
pub struct Outcome {
    /// The plan at the start.
    pub plan: Plan,
    /// The first cells, in the order of the file.
    pub first: Vec<String>,
    /// The table of medians; none after `--dry-run`.
    pub tables: Option<String>,
    /// Failed runs of this execution.
    pub failed: u64,
    /// The directory of the results.
    pub out: PathBuf,
    /// The directory of the data sets, which stay for the next run.
    pub data: PathBuf,
}

/// Cells that `--dry-run` shows.
const SHOWN: usize = 8;

/// Runs a matrix; `say` gets a line for each run.
///
/// # Errors
/// The matrix is wrong, the bench needs `--yes`, a signal came, or there is not enough space. Earlier results are kept.
pub fn run(request: &Request, conduct: &Conduct, say: &dyn Fn(&str)) -> Result<Outcome> {
    let mut matrix = Matrix::load(&request.matrix)?;
    places::find(&mut matrix, request.work.as_deref())?;
    if !matrix.volumes.is_empty() {
        matrix.means = Means::seen(matrix.volume_choice)?;
    }
    let cells = cells::cells(&matrix)?;
    let rounds = cells::rounds(&matrix);
    let work = matrix.work.clone();
    let out = request.out.clone().unwrap_or_else(|| beside(&request.matrix));
    let machine = machine();
    let seen = if request.resume { results::seen(&out, &machine)? } else { std::collections::BTreeSet::new() };
    let plan = plan::plan(&matrix, &cells, &rounds, &seen, &work);
    if request.dry_run {
        let first = cells.iter().take(SHOWN).map(cells::Cell::line).collect();
        return Ok(Outcome { plan, first, tables: None, failed: 0, out, data: work.join("data") });
    }
    if plan.asks() && !request.yes {
        let what = format!("{}: {}", request.matrix.display(), plan.line());
        return Err(Error::usage(what, "is a long bench", "start it with --yes, or take values out of [axes]"));
    }
    make_directory(&out)?;
    let mut results = Results::open(&out, request.resume, &machine)?;
    let done = results.done();
    let mut plan = plan::plan(&matrix, &cells, &rounds, &done, &work);
    make_directory(&work.join("data"))?;
    let _held = places::hold(&matrix, say)?;
    rooms::sweep(&work, &matrix.media_directories)?;
    if !matrix.volumes.is_empty() {
        matrix.means = matrix.means.tried(matrix.volume_choice, &rooms::trial_of(&work))?;
        plan = plan::plan(&matrix, &cells, &rounds, &done, &work);
    }
    plan.notes.iter().for_each(|note| say(note));
    let bench = run::Bench { matrix: &matrix, work: &work, machine: &machine, conduct };
    bench.make_data(say)?;
    let (mut failed, mut number) = (0, 0);
    for round in rounds {
        for at in cells::order(cells.len(), matrix.seed, round) {
            let cell = &cells[at];
            if done.contains(&(cell.identity(&matrix), round)) {
                continue;
            }
            conduct.check()?;
            let record = bench.run(cell, round)?;
            number += 1;
            failed += u64::from(record.status != DONE);
            say(&told(number, &plan, cell, &record));
            results.append(record)?;
        }
    }
    let tables = write_all(&matrix, &cells, &results, &out)?;
    Ok(Outcome { plan, first: Vec::new(), tables: Some(tables), failed, out, data: work.join("data") })
}

/// A run in one line.
fn told(number: u64, plan: &Plan, cell: &cells::Cell, record: &results::Record) -> String {
    let round = if record.warm_up { "warm-up".into() } else { format!("round {}", record.round) };
    let result = match &record.error {
        Some(error) => format!("failed: {}", error.lines().next().unwrap_or_default()),
        None => format!("{:.2} s, {:.0} MiB/s", record.seconds, record.mib_per_s),
    };
    format!("{number}/{} {round}: {}: {result}", plan.runs, cell.line())
}

/// Writes tables, charts and the page; returns the tables.
fn write_all(matrix: &Matrix, cells: &[cells::Cell], results: &Results, out: &Path) -> Result<String> {
    let rows = medians::rows(matrix, cells, &results.records);
    let text = tables::markdown(matrix, &rows, &results.records);
    let charts = chart::charts(&rows, &foot(&results.records));
    let folder = out.join("charts");
    make_directory(&folder)?;
    let write = |path: PathBuf, text: &str| {
        fs::write(&path, text).map_err(|e| Error::io("write", path.display().to_string(), e))
    };
    write(out.join("results.csv"), &tables::csv(&results.records))?;
    write(out.join("results.md"), &text)?;
    for chart in &charts {
        write(folder.join(format!("{}.svg", chart.name)), &chart.svg)?;
    }
    write(out.join("report.html"), &html::page(matrix, &rows, &results.records, &charts))?;
    Ok(text)
}

/// The default directory of results, in the present directory.
fn beside(matrix: &Path) -> PathBuf {
    let stem = matrix.file_stem().map_or_else(|| "bench".into(), |stem| stem.to_string_lossy().into_owned());
    PathBuf::from(format!("{stem}-results"))
}

fn make_directory(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| Error::io("make", path.display().to_string(), e))
}

/// This machine.
fn machine() -> Machine {
    let profile::Machine { host, cpu_model, kernel, .. } = profile::Machine::this();
    let memory_bytes = resources::machine_memory().unwrap_or(0);
    Machine { host, processor: cpu_model, cores: child::caps(None).threads_given, memory_bytes, kernel }
}

/// The days of the runs.
fn days(records: &[results::Record]) -> String {
    let day = |record: &results::Record| record.started_at.get(..10).map(str::to_owned);
    let days: std::collections::BTreeSet<String> = records.iter().filter_map(day).collect();
    match (days.first(), days.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (first, _) => first.cloned().unwrap_or_default(),
    }
}

/// The text below each chart.
fn foot(records: &[results::Record]) -> String {
    let Some(record) = records.last() else { return String::new() };
    format!("{}, {}, fullbore {}", record.machine.host, days(records), record.tool_version)
}

/// The text above the tables: how the results were measured.
fn preamble(matrix: &Matrix, rows: &[medians::Row], records: &[results::Record]) -> String {
    let Some(record) = records.last() else { return String::new() };
    let Machine { host, processor, cores, memory_bytes, kernel } = &record.machine;
    let cache = if matrix.cold { record.cache.as_str() } else { "kept" };
    let scale = if matrix.scale < 1.0 {
        format!(" Sizes are {} of the full ones; times are those of the full size at the measured speed.", matrix.scale)
    } else {
        String::new()
    };
    let short = match rows.iter().any(|row| row.rounds < row.wanted) {
        true => " Runs have failed: rows with fewer rounds show their number, and the notes below give the reasons.",
        false => "",
    };
    let any = |how| records.iter().any(|record| record.volumes.iter().any(|volume| volume.how == how));
    let emulated = match (any("in process"), any("block device")) {
        (true, true) => {
            " Volumes are loop devices that the kernel throttles, and some are emulated by a token bucket in process: \
             results.csv shows which."
        }
        (true, false) => " Volumes are emulated by a token bucket in process.",
        (false, true) => " Volumes are loop devices that the kernel throttles.",
        (false, false) => "",
    };
    format!(
        "{}, {host}: {processor}, {cores} processors, {}, Linux {kernel}; fullbore {}. Medians of {} rounds after {} of \
         warm-up, in random order (seed {}); page cache {cache} before each run; at most {} for a run.\
         {short}{scale}{emulated}",
        days(records),
        fullbore_core::units::show_bytes(*memory_bytes),
        record.tool_version,
        matrix.repetitions,
        matrix.warm_up,
        matrix.seed,
        show_duration(matrix.timeout),
    )
}
