//! `fullbore bench`.

use std::path::{Path, PathBuf};

use clap::Args;
use fullbore::Result;
use fullbore::config::Config;
use fullbore::units;
use fullbore_bench::{Outcome, Request};
use serde::Serialize;

use super::listing::ReportFlags;
use super::show;

/// Run every combination of a matrix of settings, several times in random order, and record how fast each is.
///
/// Each run is a process of its own, with cold caches. Results are JSON lines, CSV, Markdown, SVG charts and one HTML
/// page. docs/BENCH.md describes the keys of a matrix. bench/matrices/ has ready matrices.
#[derive(Debug, Args)]
pub struct Bench {
    /// The matrix.
    #[arg(value_name = "MATRIX.toml")]
    pub matrix: PathBuf,
    /// Directory for data sets and media [default: as the matrix says, else ./fullbore-bench].
    #[arg(long, value_name = "DIRECTORY")]
    pub work: Option<PathBuf>,
    /// Directory for the results [default: the name of the matrix with -results].
    #[arg(long, value_name = "DIRECTORY")]
    pub out: Option<PathBuf>,
    /// Show the number of runs, their expected time and what this machine cannot provide, and stop.
    #[arg(long)]
    pub dry_run: bool,
    /// Start even if there are 1,000 runs or more, or they take 12 hours or more.
    #[arg(long)]
    pub yes: bool,
    /// Continue with the existing results: finished runs are not repeated.
    #[arg(long)]
    pub resume: bool,
    /// The JSON object.
    #[command(flatten)]
    pub report: ReportFlags,
}

/// A bench, or its plan, as an object. The results themselves are in `results.jsonl`.
#[derive(Serialize)]
struct Ended<'a> {
    /// Nothing was run.
    planned: bool,
    cells: usize,
    /// Runs of this execution, warm-up included.
    runs: u64,
    /// Of these.
    failed: u64,
    /// Expected, in seconds.
    expected_s: f64,
    disk_bytes: u64,
    /// The directories of results and data sets.
    out: &'a Path,
    data: &'a Path,
    notes: &'a [String],
}

/// The exit code when runs failed. A job with warnings has the same code.
const SOME_FAILED: u8 = 4;

/// Runs the verb; gives the exit code.
pub fn run(args: &Bench, config: &Config) -> Result<u8> {
    let conduct = super::conduct(config, false)?;
    let request = Request {
        matrix: args.matrix.clone(),
        work: args.work.clone(),
        out: args.out.clone(),
        dry_run: args.dry_run,
        yes: args.yes,
        resume: args.resume,
    };
    let outcome = fullbore_bench::run(&request, &conduct, &show::told)?;
    let (plan, planned) = (&outcome.plan, outcome.tables.is_none());
    let ended = Ended {
        planned,
        cells: plan.cells,
        runs: plan.runs,
        failed: outcome.failed,
        expected_s: plan.seconds,
        disk_bytes: plan.disk_bytes,
        out: &outcome.out,
        data: &outcome.data,
        notes: &plan.notes,
    };
    if args.report.write("bench", &ended)? {
        told(&outcome);
    }
    if outcome.failed > 0 {
        let runs = units::counted(outcome.failed, "run");
        show::warning(&format!("{runs} failed: the notes below the tables and results.jsonl say why"));
        return Ok(SOME_FAILED);
    }
    Ok(0)
}

/// The result for people.
fn told(outcome: &Outcome) {
    match &outcome.tables {
        None => {
            show::line(&outcome.plan.line());
            outcome.plan.notes.iter().for_each(|note| show::line(&format!("  {note}")));
            outcome.first.iter().for_each(|cell| show::line(&format!("  {cell}")));
            if outcome.plan.cells > outcome.first.len() {
                show::line(&format!("  … and {} more", outcome.plan.cells - outcome.first.len()));
            }
            if outcome.plan.asks() {
                show::line("This is a lot: start it with --yes.");
            }
        }
        Some(tables) => {
            show::line(tables.trim_end());
            show::line(&format!(
                "\nWritten to {}: report.html, results.md, results.csv, results.jsonl, charts/",
                outcome.out.display()
            ));
            let data = outcome.data.display().to_string();
            let quoted = shlex::try_quote(&data).unwrap_or_else(|_| data.as_str().into());
            show::line(&format!(
                "Data sets stay in {data} for --resume and the next matrix. To remove them: rm -r {quoted}"
            ));
        }
    }
}
