//! `fullbore-sim --seeds N [--first SEED]` runs N seeds; `--seed S` runs one and tells all about it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use fullbore_sim::run::{Record, run};
use fullbore_sim::scenario::Scenario;
use fullbore_sim::statistics::Statistics;
use fullbore_sim::watch;

/// After so many failures there is nothing more to learn.
const MOST_FAILURES: usize = 10;

struct Asked {
    first: u64,
    seeds: u64,
    verbose: bool,
}

fn main() -> ExitCode {
    match asked(std::env::args().skip(1)).and_then(|asked| simulate(&asked)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "fullbore-sim: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn asked(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Asked> {
    let mut asked = Asked { first: 0, seeds: 100, verbose: false };
    while let Some(flag) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{flag} needs a number"))?;
        let value = value.parse().with_context(|| format!("{flag} {value}"))?;
        match flag.as_str() {
            "--seeds" => asked.seeds = value,
            "--first" => asked.first = value,
            "--seed" => asked = Asked { first: value, seeds: 1, verbose: true },
            _ => bail!("unknown {flag}; known are --seeds N, --first SEED and --seed SEED"),
        }
    }
    Ok(asked)
}

/// Beside the program, for that is on a disk: in memory files cannot be written directly.
fn base() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.parent().unwrap_or(Path::new(".")).to_owned())
}

fn simulate(asked: &Asked) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    let begun = Instant::now();
    let base = base()?;
    let mut statistics = Statistics::default();
    let mut failures = 0;
    for seed in asked.first..asked.first.saturating_add(asked.seeds) {
        match one(seed, &base, asked.verbose, &mut out) {
            Ok(record) => statistics.add(&record),
            Err(error) => {
                failures += 1;
                writeln!(out, "seed {seed} FAILED: {error:#}\n  again: cargo run -p fullbore-sim -- --seed {seed}")?;
                if failures == MOST_FAILURES {
                    break;
                }
            }
        }
    }
    writeln!(out, "sim: {statistics}\n  {:.1} s", begun.elapsed().as_secs_f64())?;
    let missing = statistics.missing();
    if !missing.is_empty() {
        writeln!(out, "sim: never met: {}: the simulation has become blind there", missing.join(", "))?;
    }
    Ok(failures == 0 && missing.is_empty())
}

fn one(seed: u64, base: &Path, verbose: bool, out: &mut dyn Write) -> anyhow::Result<Record> {
    let scenario = Scenario::draw(seed);
    if verbose {
        writeln!(out, "{scenario:#?}")?;
    }
    let directory = tempfile::Builder::new().prefix("fullbore-sim-").tempdir_in(base)?;
    let path = directory.path().to_owned();
    let record = watch::run(move || run(&scenario, &path))?;
    if verbose {
        writeln!(out, "{record:#?}")?;
    }
    Ok(record)
}
