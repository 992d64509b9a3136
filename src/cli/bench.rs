//! `fullbore bench`.

use std::path::PathBuf;

use clap::Args;
use fullbore::Result;
use fullbore::config::Config;
use fullbore::units;
use fullbore_bench::Request;

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
    if outcome.failed > 0 {
        let runs = units::counted(outcome.failed, "run");
        show::warning(&format!("{runs} failed: the notes below the tables and results.jsonl say why"));
        return Ok(SOME_FAILED);
    }
    Ok(0)
}
