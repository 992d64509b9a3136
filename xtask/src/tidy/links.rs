//! Links in Markdown: each leads to a file that is there, and to a heading that is in it.

use std::fs;
use std::path::Path;

use super::Breach;

/// Checks every link of one Markdown file that stays inside the workspace.
pub fn check(root: &Path, path: &Path, text: &str, found: &mut Vec<Breach>) {
    let name = path.to_string_lossy();
    let folder = path.parent().unwrap_or(Path::new(""));
    for (number, line) in prose(text) {
        for target in targets(&line) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() { root.join(path) } else { root.join(folder).join(file) };
            let Ok(metadata) = fs::metadata(&there) else {
                found.push(Breach::new(&name, number, format!("the link `{target}` leads nowhere")));
                continue;
            };
            let headed = !heading.is_empty() && metadata.is_file() && there.extension().is_some_and(|e| e == "md");
            if headed && !fs::read_to_string(&there).is_ok_and(|text| headings(&text).any(|slug| slug == heading)) {
                found.push(Breach::new(&name, number, format!("the link `{target}` leads to no heading")));
            }
        }
    }
}

/// The lines outside fenced blocks, with `code` blanked out, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let parts = line.split('`').enumerate().map(|(at, part)| if at % 2 == 0 { part } else { "" });
        (!fenced && !fence).then(|| (number + 1, parts.collect()))
    })
}

/// What stands between `](` and `)`, and after `[name]: `.
fn targets(line: &str) -> Vec<&str> {
    let mut targets: Vec<&str> = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()).collect();
    if let Some((_, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
        targets.extend(rest.split_whitespace().next());
    }
    targets.retain(|target| !target.is_empty());
    targets
}

/// The anchors of a file's headings, as the usual renderers make them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        kept.chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found_and_a_good_one_is_not() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("docs")).unwrap();
        fs::write(root.path().join("docs/URLS.md"), "# The Grammar, in short\n").unwrap();
        let found = |text: &str| {
            let mut found = Vec::new();
            check(root.path(), Path::new("docs/README.md"), text, &mut found);
            found.into_iter().map(|breach| (breach.line, breach.rule)).collect::<Vec<_>>()
        };
        assert!(
            found("a [b](URLS.md), [c](../docs/URLS.md#the-grammar-in-short) [d](https://x.example/y)\n").is_empty()
        );
        assert!(found("`[a](gone.md)`\n```\n[a](gone.md)\n```\n").is_empty());
        assert_eq!(found("\n[a](gone.md)\n"), [(2, "the link `gone.md` leads nowhere".into())]);
        assert!(found("[a](URLS.md#gone)")[0].1.contains("no heading"));
        assert!(found("[a]: gone.md")[0].1.contains("nowhere"));
    }
}
