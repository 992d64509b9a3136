//! The task runner: `cargo xtask tidy | arrows | licences | dist | book | fuzz SECONDS [SEED] | sanitize`.
//!
//! What a shell script would do badly is here; what a shell does well is in `./test` and `./demo`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod book;
mod dist;
mod fuzz;
mod licences;
mod sanitize;
mod tidy;

use std::env;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};

const USAGE: &str = "usage: cargo xtask TASK
  tidy            the house rules (STYLE.md) as a test: file:line and the rule for each breach
  arrows          which module uses which, from the code, as ARCHITECTURE.md has it
  licences        licences and bans of the dependency tree against deny.toml, offline
  dist            a static release binary as a tarball and a .deb, unpacked and tried; in target/dist
  book            docs/ as HTML, by mdbook; in target/book
  fuzz SECONDS [SEED]
                  every target under fuzz/, with its committed inputs, for so many seconds in all;
                  with SEED (1 and more) the same inputs each time, else others
  sanitize        the tests around `unsafe` under the address sanitizer and under valgrind; some 5 minutes";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let root = root();
    match arguments {
        ["tidy"] => tidy::run(&root),
        ["arrows"] => {
            println!("{}", tidy::arrows(&root)?);
            Ok(())
        }
        ["licences"] => licences::run(&root),
        ["dist"] => dist::run(&root),
        ["book"] => book::run(&root),
        ["fuzz", seconds, seed @ ..] if seed.len() <= 1 => {
            let seconds: u64 = seconds.parse().with_context(|| format!("`{seconds}` is no number of seconds"))?;
            ensure!((1..=86_400).contains(&seconds), "{seconds} seconds are out of bounds");
            let seed =
                seed.first().map(|seed| seed.parse::<NonZeroU32>().with_context(|| format!("`{seed}` is no seed")));
            fuzz::run(&root, seconds, seed.transpose()?.map(NonZeroU32::get))
        }
        ["sanitize"] => sanitize::run(&root),
        _ => bail!("unknown task\n{USAGE}"),
    }
}

/// The folder of the workspace: the parent of this package's.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

/// The cargo that runs this program.
fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs to the end; an error names the command.
fn finish(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// What a command prints.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let done = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(done.status.success(), "{command:?}: {}\n{}", done.status, String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).with_context(|| format!("{command:?} printed something that is not UTF-8"))
}
