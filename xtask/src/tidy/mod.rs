//! The house rules as a test: every breach is named as `file:line: rule`.
//!
//! The rules look at text, not at types: [`source`] blanks comments and strings out, so that a word in a comment is
//! no breach, and marks the lines of `#[cfg(test)]` modules, which may be longer and may print.

mod arrows;
mod engines;
mod layout;
mod links;
mod rules;
mod source;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use source::Source;

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breach {
    /// Relative to the workspace.
    pub file: String,
    /// Counted from 1; 0 when it is the file as a whole.
    pub line: usize,
    pub rule: String,
}

impl Breach {
    fn new(file: &str, line: usize, rule: impl Into<String>) -> Self {
        Breach { file: file.to_owned(), line, rule: rule.into() }
    }
}

/// Fails with the list of breaches, if there are any.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let files = files(root)?;
    let breaches = breaches(root, &files)?;
    for Breach { file, line, rule } in &breaches {
        println!("{file}:{line}: {rule}");
    }
    if !breaches.is_empty() {
        bail!("tidy: {} breaches of the house rules (STYLE.md)", breaches.len());
    }
    println!("tidy: {} files keep the house rules", files.len());
    Ok(())
}

/// All breaches in `files`, which are relative to `root`.
pub fn breaches(root: &Path, files: &[PathBuf]) -> anyhow::Result<Vec<Breach>> {
    let mut found = layout::check(root, files);
    let (mut codecs, mut worded) = (Vec::new(), Vec::new());
    let engines = engines::named_by(files);
    let mut arrows = arrows::Arrows::default();
    for path in files {
        let name = path.to_str().with_context(|| format!("{path:?} is not UTF-8"))?;
        let Ok(text) = fs::read_to_string(root.join(path)) else { continue }; // Media and databases are not text.
        worded.push((name.to_owned(), words::count(name, &text)));
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => {
                let source = Source::new(name, &text);
                rules::check(&source, &mut found);
                engines::check(&source, &text, &engines, &mut found);
                arrows.add(&source, |folder, module| is_module(files, folder, module));
                codecs.extend(rules::codec_numbers(&source));
            }
            Some("md") => links::check(root, path, &text, &mut found),
            Some("py" | "sh") | None if text.starts_with("#!") => rules::check_script(name, &text, &mut found),
            _ => {}
        }
    }
    rules::check_codec_numbers(codecs, &mut found);
    arrows::check(&arrows, &fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default(), &mut found);
    words::check(&worded, &mut found);
    found.sort();
    Ok(found)
}

/// The block of arrows for `ARCHITECTURE.md`, from the code.
pub fn arrows(root: &Path) -> anyhow::Result<String> {
    let files = files(root)?;
    let mut arrows = arrows::Arrows::default();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let source = Source::new(&path.to_string_lossy(), &fs::read_to_string(root.join(path))?);
        arrows.add(&source, |folder, module| is_module(&files, folder, module));
    }
    Ok(arrows.shown())
}

/// True if the source folder has a file or a folder of this module.
fn is_module(files: &[PathBuf], folder: &str, module: &str) -> bool {
    let top = Path::new(folder).join(module);
    files.binary_search(&top.with_extension("rs")).is_ok() || files.binary_search(&top.join("mod.rs")).is_ok()
}

/// Every file of the workspace that is ours: no build output, no hidden folder, no fuzz corpus.
fn files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let listed = fs::read_dir(root.join(&folder)).with_context(|| format!("cannot list `{}`", folder.display()))?;
        for entry in listed {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let name = entry.file_name().to_string_lossy().into_owned();
            let skipped = ["target", "corpus", "artifacts"].contains(&name.as_str()) || name.starts_with('.');
            let kind = entry.file_type()?;
            if kind.is_dir() && !skipped {
                folders.push(path);
            } else if kind.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_keeps_the_house_rules() {
        let root = crate::root();
        let found = breaches(&root, &files(&root).unwrap()).unwrap();
        let list: Vec<String> = found.iter().map(|b| format!("{}:{}: {}", b.file, b.line, b.rule)).collect();
        assert!(list.is_empty(), "{}", list.join("\n"));
    }

    #[test]
    fn a_breach_in_a_file_on_disk_is_named_with_file_and_line() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("src")).unwrap();
        fs::write(root.path().join("src/job.rs"), "fn main() {\n    println!(\"hello\");\n}\n").unwrap();
        let found = breaches(root.path(), &files(root.path()).unwrap()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].file.as_str(), found[0].line), ("src/job.rs", 2));
    }
}
