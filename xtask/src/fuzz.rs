//! Fuzzing without cargo-fuzz: libFuzzer and the address sanitizer on the pinned stable compiler.
//!
//! `RUSTC_BOOTSTRAP=1` lets stable take `-Zsanitizer`; the coverage flags are the ones cargo-fuzz passes. The targets
//! are in `fuzz/src/targets`, their committed seeds in `fuzz/seeds/TARGET`; what a run finds goes to `target/fuzz`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail, ensure};

use crate::{cargo, finish};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Cdebug-assertions \
    --cfg fuzzing";

/// Largest input in bytes: parsers bound what they read, so more would only be slower.
const INPUT_MAX: u32 = 64 << 10;
/// A single input may take so many seconds of the wall's clock, on a busy machine too, and so many MiB.
const SLOWEST: u32 = 60;
const MEMORY: u32 = 2_048;

/// Builds all targets and runs each for its share of `seconds`; a finding in any of them fails, and its file is named.
///
/// With `seed` a target tries the same inputs in the same order each time, as far as it gets. Without it every run searches
/// elsewhere.
pub fn run(root: &Path, seconds: u64, seed: Option<u32>) -> anyhow::Result<()> {
    let targets = targets(&root.join("fuzz/src/targets"))?;
    let output = root.join("target/fuzz");
    build(root, &output)?;
    let each = (seconds / targets.len() as u64).max(1);
    let mut found = Vec::new();
    for target in &targets {
        let started = Instant::now();
        if one(root, &output, target, each, seed)? {
            println!("fuzz: {target}: nothing found in {:.0} s", started.elapsed().as_secs_f64());
        } else {
            found.push(target.as_str());
        }
    }
    ensure!(found.is_empty(), "fuzz: findings in {}; the inputs are under target/fuzz/findings", found.join(", "));
    println!("fuzz: {} targets, {each} s each, nothing found", targets.len());
    Ok(())
}

/// The targets' names: each file has its line in `mod.rs`, and each line its file.
fn targets(folder: &Path) -> anyhow::Result<Vec<String>> {
    let program = fs::read_to_string(folder.join("mod.rs")).context("cannot read fuzz/src/targets/mod.rs")?;
    let list = program.split_once("$to! {").and_then(|(_, rest)| rest.split_once('}'));
    let (list, _) = list.context("fuzz/src/targets/mod.rs has no `$to! { … }`")?;
    let mut named: Vec<String> = list.split_whitespace().map(str::to_owned).collect();
    named.sort();
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).context("cannot list fuzz/src/targets")? {
        let path: PathBuf = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| *stem != "mod");
        if path.extension().is_some_and(|extension| extension == "rs") {
            files.extend(stem.map(str::to_owned));
        }
    }
    files.sort();
    ensure!(named == files, "mod.rs names {named:?}, but fuzz/src/targets holds {files:?}");
    ensure!(!named.is_empty(), "there is no fuzz target");
    Ok(named)
}

fn build(root: &Path, output: &Path) -> anyhow::Result<()> {
    let mut build = cargo();
    build
        .args(["build", "--release", "--locked", "--bins", "--target", TRIPLE])
        .current_dir(root.join("fuzz/libfuzzer"));
    build.env("CARGO_TARGET_DIR", output).env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS);
    build.env_remove("CARGO_ENCODED_RUSTFLAGS");
    finish(&mut build).context(
        "the fuzz targets cannot be built, and the cause is above. The build needs the address sanitizer's runtime of \
         the Rust toolchain (rustup for x86-64 Linux has it, Debian's rustc has not) and a C++ compiler (apt-get install g++)",
    )
}

/// Whether the target ran its time without a finding.
fn one(root: &Path, output: &Path, target: &str, seconds: u64, seed: Option<u32>) -> anyhow::Result<bool> {
    let (corpus, findings) = (output.join("corpus").join(target), output.join("findings").join(target));
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&findings)?;
    let seeds = root.join("fuzz/seeds").join(target);
    if !seeds.is_dir() {
        bail!("fuzz/seeds/{target} is missing: commit at least one good input, or the fuzzer starts blind");
    }
    let log = output.join(format!("{target}.log"));
    let mut run = Command::new(output.join(TRIPLE).join("release/targets"));
    run.env("FULLBORE_FUZZ_TARGET", target);
    run.arg(format!("-max_total_time={seconds}")).arg(format!("-timeout={SLOWEST}"));
    run.arg(format!("-rss_limit_mb={MEMORY}")).arg(format!("-max_len={INPUT_MAX}"));
    if let Some(seed) = seed {
        run.arg(format!("-seed={seed}"));
    }
    run.arg(format!("-artifact_prefix={}/", findings.display())).arg(&corpus).arg(&seeds);
    run.env("RUST_BACKTRACE", "1").stderr(fs::File::create(&log)?);
    let status = run.status().with_context(|| format!("cannot run {run:?}"))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if status.success() {
        let last = text.lines().rev().find(|line| line.contains("cov:")).unwrap_or("no inputs were run");
        println!("fuzz: {target}: {}", last.trim());
    } else {
        let lines: Vec<&str> = text.lines().collect();
        println!("fuzz: {target}: {status}\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
    }
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_without_its_line_in_the_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mod.rs"), "        $to! {\n    pool\n}\n").unwrap();
        assert!(targets(folder.path()).is_err());
        fs::write(folder.path().join("pool.rs"), "").unwrap();
        assert_eq!(targets(folder.path()).unwrap(), ["pool"]);
        fs::write(folder.path().join("header.rs"), "").unwrap();
        assert!(targets(folder.path()).unwrap_err().to_string().contains("header"));
    }
}
