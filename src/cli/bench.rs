//! `fullbore bench`.

use std::path::PathBuf;

use clap::Args;
use fullbore::Result;
use fullbore::bench::{self, Request};
use fullbore::config::Config;
use fullbore::units;

use super::show;

/// Run every combination of a matrix of settings, in a random order and several times, and write down what came of it.
///
/// Each run is a process of its own, with cold caches. Results are JSON lines, CSV, Markdown, SVG charts and one HTML page. The keys of a matrix
/// are in docs/BENCH.md, ready ones in bench/matrices/.
///
/// Example: fullbore bench bench/matrices/buffers.toml --dry-run
#[derive(Debug, Args)]
pub struct Bench {
    /// The matrix.
    #[arg(value_name = "MATRIX.toml")]
    pub matrix: PathBuf,
    /// Where data sets and media are made [default: what the matrix says, else ./fullbore-bench].
    #[arg(long, value_name = "DIRECTORY")]
    pub work: Option<PathBuf>,
    /// Where results go [default: the name of the matrix with -results].
    #[arg(long, value_name = "DIRECTORY")]
    pub out: Option<PathBuf>,
    /// Show how many runs there are, how long they will take and what this machine cannot give, and stop.
    #[arg(long)]
    pub dry_run: bool,
    /// Start also what has 1,000 runs or takes 12 hours.
    #[arg(long)]
    pub yes: bool,
    /// Go on with the results that are there: what is done is not run again.
    #[arg(long)]
    pub resume: bool,
}

/// Exit code where runs failed, as that of a job with warnings.
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
    let outcome = bench::run(&request, &conduct, &show::told)?;
    match &outcome.tables {
        None => {
            show::line(&outcome.plan.line());
            outcome.plan.notes.iter().for_each(|note| show::line(&format!("  {note}")));
            outcome.first.iter().for_each(|cell| show::line(&format!("  {cell}")));
            if outcome.plan.cells > outcome.first.len() {
                show::line(&format!("  … and {} more", outcome.plan.cells - outcome.first.len()));
            }
            if outcome.plan.asks() {
                show::line("It is a lot: start it with --yes.");
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
