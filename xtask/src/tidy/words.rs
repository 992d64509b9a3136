//! Words that make our texts hard to read: STYLE.md, "How we write".

use super::Breach;

/// Never in what a person reads.
const BANNED: [&str; 6] = ["whoever", "that one", "stands on", "heed", "heeds", "goes on from"];

/// This file.
const THIS: &str = "xtask/src/tidy/words.rs";

/// Lines that still have such a word, by folder. A number may only become smaller.
const LEFT: [(&str, usize); 0] = [];

/// Lines with a banned word in one file. A decision is a record of its day, and STYLE.md shows what not to write.
pub fn count(name: &str, text: &str) -> Vec<(usize, &'static str)> {
    let written = name.ends_with(".md") || name.ends_with(".rs");
    if !written || name == "STYLE.md" || name == THIS || name.starts_with("docs/decisions/") {
        return Vec::new();
    }
    let lines = text.lines().zip(1..);
    lines.filter_map(|(line, number)| Some((number, banned_in(&line.to_lowercase())?))).collect()
}

/// "That one" is banned where it takes the place of a noun: nothing follows it in its clause.
fn banned_in(line: &str) -> Option<&'static str> {
    let is_letter = |c: char| c.is_alphanumeric();
    let alone = |at: usize, word: &str| {
        let (before, behind) = (&line[..at], &line[at + word.len()..]);
        let noun_follows =
            word == "that one" && behind.strip_prefix(' ').is_some_and(|rest| rest.starts_with(is_letter));
        !before.ends_with(is_letter) && !behind.starts_with(is_letter) && !noun_follows
    };
    BANNED.into_iter().find(|word| line.match_indices(word).any(|(at, _)| alone(at, word)))
}

/// The breaches among all files: of a folder with an allowance, that it has another number of them.
pub fn check(all: &[(String, Vec<(usize, &'static str)>)], found: &mut Vec<Breach>) {
    let folder = |name: &str| LEFT.iter().find(|(folder, _)| name.starts_with(folder)).map(|(folder, _)| *folder);
    for (name, lines) in all.iter().filter(|(name, _)| folder(name).is_none()) {
        let breach = |(number, word): &(usize, &str)| Breach::new(name, *number, format!("the word \"{word}\""));
        found.extend(lines.iter().map(breach));
    }
    let is_whole = all.iter().any(|(name, _)| name == THIS);
    for (left, allowed) in LEFT {
        let files = all.iter().filter(|(name, _)| folder(name) == Some(left));
        let lines: usize = files.map(|(_, lines)| lines.len()).sum();
        if lines > allowed || is_whole && lines < allowed {
            let rule = format!("{lines} lines with a banned word, and {THIS} says {allowed}");
            found.push(Breach::new(left, 0, rule));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banned_word_is_found_alone_and_not_inside_another() {
        let text =
            "Whoever reads this.\nThe heedless stand.\nA set stands on another.\nThat one.\nSay that one byte is.\n";
        assert_eq!(count("README.md", text), [(1, "whoever"), (3, "stands on"), (4, "that one")]);
        assert_eq!(count("docs/decisions/0001.md", text), []);
        assert_eq!(count("data.bin", text), []);
        let mut found = Vec::new();
        check(&[("README.md".into(), count("README.md", text))], &mut found);
        assert_eq!(found.len(), 3);
    }
}
