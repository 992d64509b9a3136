//! Engines are named in their own folders: the rest of the program asks the table of engines.

use std::path::PathBuf;

use super::Breach;
use super::source::{Source, has_word};

/// Lines that name an engine where the table should answer. A number may only become smaller.
const LEFT: [(&str, usize); 2] = [
    // Words before a colon that are not the name of a file: `--to sqlite:x` is a slip.
    ("crates/core/src/device.rs", 1),
    // The engine whose databases a benchmark makes.
    ("crates/bench/src/data.rs", 1),
];

/// The engines among these files: each is a folder with an `engine.rs`.
pub fn named_by(files: &[PathBuf]) -> Vec<String> {
    let name = |path: &PathBuf| {
        let folder = path.to_str()?.strip_prefix("crates/engines/src/")?.strip_suffix("/engine.rs")?;
        (!folder.contains('/')).then(|| folder.to_owned())
    };
    files.iter().filter_map(name).collect()
}

/// Names of `engines` in `text`, which is that of `source`.
pub fn check(source: &Source, text: &str, engines: &[String], found: &mut Vec<Breach>) {
    let name = source.name.as_str();
    let ours = name.starts_with("src/") || name.starts_with("crates/") && !name.starts_with("crates/engines/");
    if !ours || source.is_test_file() {
        return;
    }
    let raw: Vec<&str> = text.lines().collect();
    let named: Vec<usize> = source
        .code_lines()
        .filter(|(number, code)| names_engine(code, raw[number - 1], engines))
        .map(|(number, _)| number)
        .collect();
    let allowed = LEFT.iter().find(|(file, _)| *file == name).map_or(0, |(_, lines)| *lines);
    let (count, first) = (named.len(), named.first().copied().unwrap_or(0));
    if count > allowed {
        let rule = format!("{count} lines name an engine, and {allowed} may: ask fullbore_engines::named");
        found.push(Breach::new(name, first, rule));
    } else if count < allowed {
        let rule =
            format!("{count} lines name an engine: lower the number in xtask/src/tidy/engines.rs from {allowed}");
        found.push(Breach::new(name, first, rule));
    }
}

/// A path through an engine's module, or its name as a text. `code` has no strings and no comments.
fn names_engine(code: &str, raw: &str, engines: &[String]) -> bool {
    engines.iter().any(|engine| {
        let path = has_word(code, engine) && code.contains(&format!("{engine}::"));
        let text = !code.trim().is_empty()
            && [format!("\"{engine}\""), format!("\"{engine}:\"")].iter().any(|text| raw.contains(text));
        path || text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Vec<Breach> {
        let mut found = Vec::new();
        let files = ["sqlite/engine.rs", "mysql/engine.rs", "mysql_family/mod.rs", "sqlite/log/engine.rs"];
        let engines = named_by(&files.map(|file| PathBuf::from("crates/engines/src").join(file)));
        assert_eq!(engines, ["sqlite", "mysql"]);
        check(&Source::new(name, text), text, &engines, &mut found);
        found
    }

    #[test]
    fn an_engine_that_is_named_outside_its_folder_is_found() {
        for text in ["use fullbore_engines::sqlite::restore;\n", "let is = engine == \"mysql\";\n"] {
            assert_eq!(found("src/job/new.rs", text).len(), 1, "{text}");
            assert!(found("crates/engines/src/new.rs", text).is_empty());
        }
        assert!(
            found("src/job/new.rs", "// mysql:: and \"sqlite\" in a comment\nlet text = \"a MySQL\";\n").is_empty()
        );
        assert!(found("src/job/new.rs", "#[cfg(test)]\nmod tests {\n    const A: &str = \"sqlite\";\n}\n").is_empty());
    }

    #[test]
    fn a_number_that_is_too_large_has_to_be_lowered() {
        let rule = &found("crates/bench/src/data.rs", "fn none() {}\n")[0].rule;
        assert!(rule.contains("lower the number"), "{rule}");
    }
}
