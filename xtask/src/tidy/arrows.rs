//! Which module uses which: the arrows between the top modules of each crate, and between the modules of `src/job`, as
//! `ARCHITECTURE.md` has them. There is no cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::Breach;
use super::source::{Source, closing_brace, is_word};

/// Where the arrows are written down.
const MAP: &str = "ARCHITECTURE.md";
/// The first line of their block.
const FENCE: &str = "```arrows";

/// A module whose own modules have arrows too: the jobs are most of the program.
const INSIDE: &str = "job";

/// A module, and the modules that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// The arrows of each crate, by its source folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arrows(BTreeMap<String, Uses>);

impl Arrows {
    /// Adds what a file uses. `is_module` tells whether a source folder has a top module of this name.
    pub fn add(&mut self, source: &Source, is_module: impl Fn(&str, &str) -> bool) {
        let Some((folder, file)) =
            source.name.split_once("/src/").or(source.name.strip_prefix("src/").map(|f| ("", f)))
        else {
            return;
        };
        if source.is_test_file() || !(folder.is_empty() || folder.starts_with("crates/")) {
            return;
        }
        let folder = if folder.is_empty() { "src".to_owned() } else { format!("{folder}/src") };
        let mut module: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
        if matches!(module.last(), Some(&("mod" | "lib" | "main"))) {
            module.pop();
        }
        if module.iter().any(|name| name.ends_with("tests") || *name == "testkit") || file.contains("/tests") {
            return;
        }
        let code: String = source.code_lines().flat_map(|(_, line)| [line, "\n"]).collect();
        self.add_within(&folder, &[], &module, &code, &is_module);
        if module.first() == Some(&INSIDE) {
            self.add_within(&format!("{folder}/{INSIDE}"), &[INSIDE], &module, &code, &is_module);
        }
    }

    /// Adds what the `code` of `module` uses of the modules in `parent`, whose files are in `folder`.
    fn add_within(
        &mut self,
        folder: &str,
        parent: &[&str],
        module: &[&str],
        code: &str,
        is_module: impl Fn(&str, &str) -> bool,
    ) {
        let Some(own) = module.get(parent.len()) else { return };
        let used = self.0.entry(folder.to_owned()).or_default().entry((*own).to_owned()).or_default();
        let names = used_modules(code, module, parent).into_iter();
        used.extend(names.filter(|name| name != own && is_module(folder, name)));
    }

    /// The same from the block in `ARCHITECTURE.md`.
    fn written(text: &str) -> Self {
        let mut arrows = Self::default();
        let mut folder = String::new();
        let block = text.split_once(FENCE).map_or("", |(_, rest)| rest.split("```").next().unwrap_or_default());
        for line in block.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.split_once(" → ") {
                None => line.clone_into(&mut folder),
                Some((from, to)) => {
                    let to = to.split(", ").map(str::to_owned).collect();
                    arrows.0.entry(folder.clone()).or_default().insert(from.to_owned(), to);
                }
            }
        }
        arrows
    }

    /// As the block in `ARCHITECTURE.md` has them.
    pub fn shown(&self) -> String {
        let mut text = format!("{FENCE}\n");
        for (folder, uses) in &self.0 {
            let _ = writeln!(text, "{folder}"); // A string takes everything.
            for (from, to) in uses.iter().filter(|(_, to)| !to.is_empty()) {
                let to: Vec<&str> = to.iter().map(String::as_str).collect();
                let _ = writeln!(text, "  {from} → {}", to.join(", "));
            }
        }
        text + "```"
    }

    fn pairs(&self) -> BTreeSet<(&str, &str, &str)> {
        self.0
            .iter()
            .flat_map(|(folder, uses)| {
                uses.iter()
                    .flat_map(move |(from, to)| to.iter().map(move |to| (folder.as_str(), from.as_str(), to.as_str())))
            })
            .collect()
    }

    /// Modules of a cycle, if there is one.
    fn cycle(uses: &Uses) -> Option<Vec<&str>> {
        let mut left: BTreeMap<&str, BTreeSet<&str>> =
            uses.iter().map(|(from, to)| (from.as_str(), to.iter().map(String::as_str).collect())).collect();
        loop {
            // A module that uses no module that is left is in no cycle.
            let done: Vec<&str> = left
                .iter()
                .filter(|(_, to)| !to.iter().any(|name| left.contains_key(name)))
                .map(|(from, _)| *from)
                .collect();
            if done.is_empty() {
                return (!left.is_empty()).then(|| left.into_keys().collect());
            }
            done.iter().for_each(|name| drop(left.remove(name)));
        }
    }
}

/// Compares the arrows of the code with those in `map`, the text of `ARCHITECTURE.md`.
pub fn check(actual: &Arrows, map: &str, found: &mut Vec<Breach>) {
    let written = Arrows::written(map);
    let hint = "`cargo xtask arrows` prints the block";
    let (code, text) = (actual.pairs(), written.pairs());
    for (folder, from, to) in code.difference(&text) {
        found.push(Breach::new(MAP, 0, format!("{folder}: {from} → {to} is in the code and not in the map; {hint}")));
    }
    for (folder, from, to) in text.difference(&code) {
        found.push(Breach::new(MAP, 0, format!("{folder}: {from} → {to} is in the map and not in the code; {hint}")));
    }
    for (folder, uses) in &actual.0 {
        if let Some(cycle) = Arrows::cycle(uses) {
            found.push(Breach::new(folder, 0, format!("modules use each other in a cycle: {}", cycle.join(", "))));
        }
    }
}

/// The modules in `parent` that the code of `module` names, by `crate::` or `super::`.
fn used_modules(code: &str, module: &[&str], parent: &[&str]) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = &code[..at];
            if before.chars().next_back().is_some_and(is_word) || before.ends_with("::") {
                continue; // The end of another word, or a `super` that the first one of the chain stands for.
            }
            let mut rest = &code[at..];
            let mut above = module.len();
            while let Some(more) = rest.strip_prefix("super::") {
                (rest, above) = (more, above.saturating_sub(1));
            }
            if let Some(more) = rest.strip_prefix("crate::") {
                (rest, above) = (more, 0);
            }
            // The words up to `parent` are in the path. A path that starts below it stays in the module.
            let mut down = parent.get(above..).into_iter().flatten();
            let inside = down.try_fold(rest, |rest, name| rest.strip_prefix(name)?.strip_prefix("::"));
            if above <= parent.len() {
                used.extend(inside.into_iter().flat_map(first_words));
            }
        }
    }
    used
}

/// The first words of a path, or of each path in braces.
fn first_words(path: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|letter| is_word(*letter)).collect::<String>();
    if !path.starts_with('{') {
        return vec![word(path)];
    }
    let close = closing_brace(path, 0).unwrap_or(path.len());
    let (mut words, mut depth, mut begins) = (Vec::new(), 0, 1);
    for (at, letter) in path[..close].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => {
                words.push(word(path[begins..at].trim_start()));
                begins = at + 1;
            }
            _ => {}
        }
    }
    words.push(word(path[begins..close].trim_start()));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows(files: &[(&str, &str)]) -> Arrows {
        let mut arrows = Arrows::default();
        for (name, text) in files {
            arrows.add(&Source::new(name, text), |_, module| ["a", "b", "c"].contains(&module));
        }
        arrows
    }

    #[test]
    fn each_way_to_name_a_module_is_an_arrow() {
        let files = [
            (
                "src/a/mod.rs",
                "use crate::{b::{X, Y}, units};\n// crate::c\n#[cfg(test)]\nmod tests {\n use crate::c;\n}",
            ),
            ("src/b.rs", "fn f() { super::c::g(\"crate::a\") }"),
            ("src/c/d/e.rs", "use super::super::super::a::Z;\nuse super::super::f;"),
        ];
        let shown = arrows(&files[..2]).shown();
        assert_eq!(shown, "```arrows\nsrc\n  a → b\n  b → c\n```");
        assert!(arrows(&files).shown().contains("c → a"), "{}", arrows(&files).shown());
    }

    #[test]
    fn a_missing_arrow_a_false_arrow_and_a_cycle_are_found() {
        let actual = arrows(&[("crates/x/src/a.rs", "use crate::b;"), ("crates/x/src/b.rs", "use crate::c;")]);
        let mut found = Vec::new();
        check(&actual, &actual.shown(), &mut found);
        assert!(found.is_empty(), "{found:?}");
        check(&actual, "```arrows\ncrates/x/src\n  a → b, c\n```", &mut found);
        let rules: Vec<&str> = found.iter().map(|breach| breach.rule.as_str()).collect();
        assert!(rules[0].contains("b → c is in the code") && rules[1].contains("a → c is in the map"), "{rules:?}");
        let round = arrows(&[("src/a.rs", "use crate::b;"), ("src/b.rs", "use crate::a;")]);
        found.clear();
        check(&round, &round.shown(), &mut found);
        assert!(found[0].rule.contains("cycle: a, b"), "{found:?}");
    }
}
