//! The book: the pages of `docs/` as HTML, built by mdbook into `target/book`.
//!
//! The first mdbook in PATH is taken as it is. Without one, `cargo install` puts one into `target/tools/bin`, once.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::{cargo, finish, output};

/// The newest mdbook on crates.io in November 2026. It needs Rust 1.88; `rust-toolchain.toml` pins a newer one.
const VERSION: &str = "0.5.4";

const SUMMARY: &str = "SUMMARY.md";

/// Builds the book. A page that the summary does not name is an error: mdbook would leave it out without a word.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let docs = root.join("docs");
    let missing = left_out(&docs)?;
    ensure!(missing.is_empty(), "docs/{SUMMARY} does not name {}: add a line for each page", missing.join(", "));
    let program = mdbook(root)?;
    finish(Command::new(&program).arg("build").arg(&docs).current_dir(root))?;
    let first = root.join("target/book/index.html");
    ensure!(first.is_file(), "mdbook made no `{}`", first.display());
    println!("book: {}", first.display());
    Ok(())
}

/// The mdbook to run: one in PATH, else the one in `target/tools`, installed if it is missing or of another version.
fn mdbook(root: &Path) -> anyhow::Result<PathBuf> {
    if let Some(found) = in_path("mdbook", env::var_os("PATH").as_deref()) {
        return Ok(found);
    }
    let tools = root.join("target/tools");
    let installed = tools.join("bin/mdbook");
    if !is_version(&installed)? {
        println!("book: there is no mdbook in PATH: installing {VERSION} into {}", tools.display());
        let mut install = cargo();
        install.args(["install", "mdbook", "--locked", "--version", VERSION, "--root"]).arg(&tools).current_dir(root);
        finish(&mut install).context("mdbook cannot be installed: this needs crates.io, or an mdbook in PATH")?;
    }
    Ok(installed)
}

/// Whether `program` is there and is the mdbook that we would install.
fn is_version(program: &Path) -> anyhow::Result<bool> {
    if !program.is_file() {
        return Ok(false);
    }
    let said = output(Command::new(program).arg("--version"))?;
    Ok(said.trim().trim_start_matches("mdbook").trim_start().trim_start_matches('v') == VERSION)
}

/// The first file of that name in the directories of `path`. Whether it can be executed is seen when it is run.
fn in_path(name: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    env::split_paths(path?).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The pages below `docs`, relative to it, that its summary does not name.
fn left_out(docs: &Path) -> anyhow::Result<Vec<String>> {
    let summary = docs.join(SUMMARY);
    let text = fs::read_to_string(&summary).with_context(|| format!("cannot read `{}`", summary.display()))?;
    let named: BTreeSet<&str> = text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let mut missing = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let listed = fs::read_dir(docs.join(&folder)).with_context(|| format!("cannot list `{}`", folder.display()))?;
        for entry in listed {
            let entry = entry?;
            let page = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(page);
                continue;
            }
            let name = page.to_str().with_context(|| format!("{page:?} is not UTF-8"))?;
            if name.ends_with(".md") && name != SUMMARY && !named.contains(name) {
                missing.push(name.to_owned());
            }
        }
    }
    missing.sort();
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_docs_is_in_the_summary() {
        assert_eq!(left_out(&crate::root().join("docs")).unwrap(), [""; 0]);
    }

    #[test]
    fn a_page_that_the_summary_does_not_name_is_found() {
        let docs = tempfile::tempdir().unwrap();
        fs::create_dir(docs.path().join("verbs")).unwrap();
        fs::write(docs.path().join(SUMMARY), "# Summary\n\n- [Backup](verbs/backup.md)\n").unwrap();
        for page in ["verbs/backup.md", "verbs/restore.md", "URLS.md", "book.toml"] {
            fs::write(docs.path().join(page), "").unwrap();
        }
        assert_eq!(left_out(docs.path()).unwrap(), ["URLS.md", "verbs/restore.md"]);
    }

    #[test]
    fn the_first_program_in_path_is_taken() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        fs::write(folders[1].path().join("mdbook"), "").unwrap();
        fs::write(folders[2].path().join("mdbook"), "").unwrap();
        let path = env::join_paths(folders.iter().map(|folder| folder.path())).unwrap();
        assert_eq!(in_path("mdbook", Some(&path)), Some(folders[1].path().join("mdbook")));
        assert_eq!(in_path("mdbook", None), None);
        assert_eq!(in_path("no-such-program", Some(&path)), None);
    }
}
