//! The command lines and configurations in README and `docs/`, as the program reads them.
//!
//! A document must not show a flag that does not exist. This is a test of the program and no rule of `cargo xtask tidy`:
//! only the program has its own command line and configuration.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use fullbore::config;

use super::args::Arguments;

/// TOML that is another kind of file than `fullbore.toml`: a matrix of benchmarks, a file of the gateway's keys.
const OTHER_TOML: [&str; 3] = ["docs/BENCH.md", "docs/verbs/bench.md", "docs/verbs/gateway.md"];

/// A fenced block of a document.
struct Block {
    language: String,
    /// The line of its first line, counted from 1.
    line: usize,
    text: String,
}

/// The fenced blocks of a Markdown text. Blocks in lists lose the indentation of their fence.
fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => {
                let block = Block { language: language.trim().to_owned(), line: number + 2, text: String::new() };
                open = Some((indent, block));
            }
            (Some(_), Some(_)) => found.extend(open.take().map(|(_, block)| block)),
            (Some((fence, block)), None) => {
                block.text += &line[indent.min(*fence)..];
                block.text += "\n";
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    found
}

/// What the program says against the command lines in a block, with the line of each; and how many lines it read.
fn wrong_commands(block: &Block) -> (usize, Vec<String>) {
    let (mut read, mut wrong) = (0, Vec::new());
    let mut lines = block.text.lines().enumerate();
    while let Some((number, first)) = lines.next() {
        // In a session, the lines without a prompt are output.
        let typed = if block.language == "console" { first.strip_prefix("$ ") } else { Some(first) };
        let Some(typed) = typed else { continue };
        let mut command = typed.to_owned();
        while let Some(begun) = command.strip_suffix('\\') {
            command = format!("{begun}{}", lines.next().map_or("", |(_, line)| line));
        }
        for words in calls(&command) {
            read += 1;
            if let Err(error) = Arguments::command().try_get_matches_from(&words) {
                let error = error.to_string();
                let error = error.lines().next().unwrap_or_default();
                wrong.push(format!("{}: {}: {error}", block.line + number, words.join(" ")));
            }
        }
    }
    (read, wrong)
}

/// The calls of fullbore in a line for a shell, each as its words: also of a pipe, by `sudo`, and by `ssh HOST '…'`.
fn calls(line: &str) -> Vec<Vec<String>> {
    let Some(words) = shlex::split(line) else {
        return if line.contains("fullbore ") { vec![vec![line.to_owned()]] } else { Vec::new() };
    };
    let mut found = Vec::new();
    for command in words.split(|word| ["|", "&&", ";", ">", ">>"].contains(&word.as_str())) {
        let start = command.iter().position(|word| word == "fullbore");
        let by_another = |start: usize| start == 0 || command[0] == "sudo";
        found.extend(start.filter(|start| by_another(*start)).map(|start| command[start..].to_vec()));
        found.extend(command.iter().filter(|word| word.starts_with("fullbore ")).flat_map(|word| calls(word)));
    }
    found
}

/// README and every page of `docs/`, relative to the workspace.
fn documents(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (vec![root.join("README.md")], vec![root.join("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn each_command_line_and_each_configuration_in_the_documents_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("fullbore.toml");
    let (mut commands, mut configurations, mut wrong) = (0, 0, Vec::new());
    for path in documents(root) {
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        for block in blocks(&fs::read_to_string(&path).unwrap()) {
            match block.language.as_str() {
                "sh" | "console" => {
                    let (read, refused) = wrong_commands(&block);
                    commands += read;
                    wrong.extend(refused.iter().map(|refused| format!("{name}:{refused}")));
                }
                "toml" if !OTHER_TOML.contains(&name.as_str()) => {
                    configurations += 1;
                    fs::write(&file, &block.text).unwrap();
                    let loaded = config::load(Some(&file));
                    wrong.extend(loaded.err().map(|error| format!("{name}:{}: {error}", block.line)));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(commands > 150 && configurations > 8, "{commands} command lines, {configurations} configurations");
}

#[test]
fn a_wrong_flag_in_a_document_is_found_with_its_line() {
    let text = "A list:\n\n   ```sh\n   ssh a 'fullbore verify --frm /a' # a comment\n   fullbore list /a | sort\n   \
                sudo -u mysql fullbore list \\\n     --of /a\n   ```\n\n```console\n$ fullbore list /a\nfullbore nothing\n```\n";
    let found: Vec<_> = blocks(text).iter().map(wrong_commands).collect();
    assert_eq!(found.iter().map(|(read, _)| *read).collect::<Vec<_>>(), [3, 1]);
    assert_eq!(found[0].1.len(), 2, "{:?}", found[0].1);
    assert!(found[0].1[0].starts_with("4: fullbore verify --frm /a: "), "{:?}", found[0].1);
    assert!(found[0].1[1].starts_with("6: fullbore list --of /a: "), "{:?}", found[0].1);
    assert_eq!(found[1].1, [""; 0]);
}
