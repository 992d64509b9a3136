//! The rules about folders and names: an engine's five files, and modules named for what they hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Breach;

/// The same files in every engine: who knows one finds the way in all.
const ENGINE: [&str; 4] = ["mod.rs", "engine.rs", "restore.rs", "position.rs"];

/// Names that say nothing of what is inside.
const EMPTY_NAMES: [&str; 7] = ["utils", "util", "helpers", "helper", "common", "manager", "misc"];

/// All rules about the layout. `files` are relative to `root`.
pub fn check(root: &Path, files: &[PathBuf]) -> Vec<Breach> {
    let names: Vec<&str> = files.iter().filter_map(|path| path.to_str()).collect();
    let mut found = engines(&names);
    for name in names.iter().filter(|name| name.ends_with(".rs")) {
        let mut parts = name.trim_end_matches(".rs").split('/');
        if let Some(empty) = parts.find(|part| EMPTY_NAMES.contains(part)) {
            found.push(Breach::new(name, 0, format!("a module named `{empty}`: name it for what it holds")));
        }
    }
    let manifest = "crates/core/Cargo.toml";
    let text = fs::read_to_string(root.join(manifest)).unwrap_or_default();
    if let Some(line) = text.lines().position(|line| line.trim_start().starts_with("fullbore-engines")) {
        found.push(Breach::new(manifest, line + 1, "core depends on the engines: it knows bytes only"));
    }
    found
}

fn engines(names: &[&str]) -> Vec<Breach> {
    let mut engines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in names {
        if let Some((engine, file)) = name.strip_prefix("crates/engines/src/").and_then(|rest| rest.split_once('/')) {
            engines.entry(engine).or_default().push(file);
        }
    }
    let mut found = Vec::new();
    // A folder with an `engine` is one. Other folders hold what engines share, or an engine that is being built.
    engines.retain(|_, files| files.contains(&"engine.rs") || files.contains(&"engine/mod.rs"));
    for (engine, files) in engines {
        for missing in ENGINE.iter().filter(|file| !files.contains(file)) {
            // A file that has grown into a folder is as good: `restore/mod.rs` for `restore.rs`.
            let folder = format!("{}/mod.rs", missing.trim_end_matches(".rs"));
            if !files.contains(&folder.as_str()) {
                let name = format!("crates/engines/src/{engine}");
                found.push(Breach::new(
                    &name,
                    0,
                    format!("the engine has no {missing}; each has {}", ENGINE.join(", ")),
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[&str]) -> Vec<Breach> {
        let files: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        check(Path::new("/nowhere"), &files)
    }

    #[test]
    fn an_engine_without_its_four_files_is_found() {
        let mut files: Vec<String> = ENGINE.iter().map(|file| format!("crates/engines/src/oracle/{file}")).collect();
        let names = |files: &[String]| found(&files.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(names(&files).is_empty());
        files.remove(2);
        assert!(names(&files)[0].rule.contains("no restore.rs"));
        files.push("crates/engines/src/oracle/restore/mod.rs".into());
        assert!(names(&files).is_empty());
        files.push("crates/engines/src/pages/mod.rs".into());
        assert!(names(&files).is_empty(), "what engines share is no engine");
    }

    #[test]
    fn a_module_named_for_nothing_is_found() {
        for bad in ["src/utils.rs", "crates/core/src/common/mod.rs", "src/job/helpers.rs", "src/manager.rs"] {
            assert_eq!(found(&[bad]).len(), 1, "{bad}");
        }
        assert!(found(&["src/job/commonest.rs", "docs/common.md"]).is_empty());
    }

    #[test]
    fn core_that_depends_on_the_engines_is_found() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("crates/core")).unwrap();
        let manifest = "[package]\nname = \"x\"\n[dependencies]\nfullbore-engines.workspace = true\n";
        fs::write(root.path().join("crates/core/Cargo.toml"), manifest).unwrap();
        assert_eq!(check(root.path(), &[])[0].line, 4);
    }
}
