//! Memory safety: what touches `unsafe` code, run under the address sanitizer and under valgrind.
//!
//! `crates/core/src/io` is the only module with `unsafe`; its own tests run here and those of the modules that hand it their
//! buffers. The sanitizer sees every access of instrumented code, and leaks; valgrind also sees into C libraries, and reads of
//! memory that nobody wrote. A campaign of its own, not a part of `./test`: valgrind takes minutes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::{cargo, finish, output};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The tests of these modules.
const MODULES: [&str; 6] = ["io::", "memory::", "sink::", "supply::", "pool::", "testkit::"];
/// libdeflate has one table in two of its files under one name, which it does not share.
const ASAN_OPTIONS: &str = "detect_odr_violation=0";

/// Both of them; needs valgrind, which is installed from Debian's packages when it is missing.
pub fn run(root: &Path) -> anyhow::Result<()> {
    address(root)?;
    println!("sanitize: nothing found by the address sanitizer");
    valgrind(root)?;
    println!("sanitize: nothing found by valgrind");
    Ok(())
}

fn address(root: &Path) -> anyhow::Result<()> {
    let mut command = test(root, "asan");
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address").env("ASAN_OPTIONS", ASAN_OPTIONS);
    command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    finish(command.args(["--target", TRIPLE, "--"]).args(MODULES))
}

fn valgrind(root: &Path) -> anyhow::Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        install("valgrind")?;
    }
    let binary = binary(root)?;
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=99", "--leak-check=full"]);
    // The standard library's test harness itself leaves some memory behind that is "possibly lost".
    command.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
    // One thread at a time is all that valgrind runs anyway.
    finish(command.arg(binary).args(["--test-threads=1"]).args(MODULES).current_dir(root.join("crates/core")))
}

/// The test binary of fullbore-core, as cargo names it.
fn binary(root: &Path) -> anyhow::Result<PathBuf> {
    let mut command = test(root, "valgrind");
    let messages = output(command.args(["--no-run", "--message-format=json"]))?;
    let built = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let path = built.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    path.context("cargo names no test binary")
}

/// `cargo test` of the library, with a target directory of its own: other flags would build everything anew each time.
fn test(root: &Path, name: &str) -> Command {
    let mut command = cargo();
    command.current_dir(root).args(["test", "--locked", "-p", "fullbore-core", "--lib", "--target-dir"]);
    command.arg(root.join("target").join(name));
    command
}

/// Installs a Debian package.
fn install(package: &str) -> anyhow::Result<()> {
    let id = output(Command::new("id").arg("-u"))?;
    let as_root = |arguments: &[&str]| {
        let mut command = if id.trim() == "0" { Command::new("apt-get") } else { Command::new("sudo") };
        if id.trim() != "0" {
            command.arg("apt-get");
        }
        finish(command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments))
    };
    as_root(&["update", "-qq"])?;
    as_root(&["install", "-y", "-qq", "--no-install-recommends", package])?;
    ensure!(Command::new(package).arg("--version").output().is_ok(), "{package} is installed and cannot be run");
    Ok(())
}
