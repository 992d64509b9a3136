//! The rules about one Rust file or script at a time, and the one about codec numbers.

use super::Breach;
use super::source::{Source, closing_brace, has_word, is_word, line_of};

/// A file is a screen of thoughts, not a book.
const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;

const PRINTERS: [&str; 4] = ["println!", "eprintln!", "print!", "eprint!"];

/// All rules about one Rust file.
pub fn check(source: &Source, found: &mut Vec<Breach>) {
    printing(source, found);
    no_unsafe(source, found);
    no_async(source, found);
    no_bench(source, found);
    lengths(source, found);
    open_tasks(&source.name, source.comments.iter(), found);
    directions(source, found);
}

/// The rules that hold for scripts too.
pub fn check_script(name: &str, text: &str, found: &mut Vec<Breach>) {
    too_long(name, text.lines().count(), found);
    let comments: Vec<String> = text.lines().filter_map(|l| l.find('#').map(|at| l[at..].to_owned())).collect();
    if comments.iter().any(|comment| open_task(comment)) {
        let lines: Vec<String> =
            text.lines().map(|l| l.find('#').map_or(String::new(), |at| l[at..].to_owned())).collect();
        open_tasks(name, lines.iter(), found);
    }
}

fn may_print(source: &Source) -> bool {
    let name = source.name.as_str();
    let folders = ["xtask/", "bench/", "benches/", "examples/"];
    let inner = ["/benches/", "/examples/"];
    name == "src/cli/show.rs"
        || name.ends_with("build.rs")
        || source.is_test_file()
        || folders.iter().any(|folder| name.starts_with(folder))
        || inner.iter().any(|folder| name.contains(folder))
}

fn printing(source: &Source, found: &mut Vec<Breach>) {
    if may_print(source) {
        return;
    }
    for (number, line) in source.code_lines() {
        for printer in PRINTERS {
            let alone = |at: usize| !line[..at].chars().next_back().is_some_and(is_word);
            if line.match_indices(printer).any(|(at, _)| alone(at)) {
                found.push(Breach::new(&source.name, number, format!("`{printer}` outside src/cli/show.rs")));
            }
        }
    }
}

fn no_unsafe(source: &Source, found: &mut Vec<Breach>) {
    if source.name.starts_with("crates/core/src/io/") || source.name == "crates/core/src/memory.rs" {
        return;
    }
    // In tests as well: what is unsound there is undefined there too.
    for (number, line) in source.code.iter().enumerate() {
        if has_word(line, "unsafe") {
            found.push(Breach::new(
                &source.name,
                number + 1,
                "`unsafe` outside crates/core/src/io and crates/core/src/memory.rs",
            ));
        }
    }
}

/// The words that make code async, or bring in who needs it.
const ASYNC: [&str; 4] = ["async", "await", "tokio", "object_store"];

/// Sinks and supplies build requests, which is not yet running them: `PutPayload` may be named there. The plainest client of a store, to
/// compare with, is one without our store.
fn no_async(source: &Source, found: &mut Vec<Breach>) {
    let at_home = [
        "crates/core/src/store/",
        "crates/core/src/sink/object.rs",
        "crates/core/src/sink/partial.rs",
        "crates/core/src/supply/object.rs",
        "crates/core/examples/store_ceiling/",
        "crates/gateway/src/",
        // The client of SQL Server is async; one thread drives it, behind calls that block.
        "crates/engines/src/sqlserver/server/link.rs",
    ];
    if source.is_test_file() || at_home.iter().any(|place| source.name.starts_with(place)) {
        return;
    }
    for (number, line) in source.code_lines() {
        if ASYNC.iter().any(|word| has_word(line, word)) {
            found.push(Breach::new(
                &source.name,
                number,
                "async code outside crates/core/src/store and crates/gateway",
            ));
        }
    }
}

/// Only the verb `bench` uses its crate; `main.rs` puts its volumes under the devices. Other verbs and all jobs know
/// nothing of it: the command line may name the verb's module and its line among the verbs.
fn no_bench(source: &Source, found: &mut Vec<Breach>) {
    let at_home = ["src/main.rs", "src/cli/bench.rs"].contains(&source.name.as_str());
    let is_program = source.name.starts_with("src/") && !at_home;
    let names_verb = |line: &str| {
        let line = line.trim();
        line == "mod bench;" || line.starts_with("Verb::Bench(") || line.starts_with("Bench(super::bench::")
    };
    for (number, line) in source.code_lines().filter(|_| is_program) {
        let word = ["fullbore_bench", "bench"].into_iter().find(|word| has_word(line, word));
        if let Some(word) = word.filter(|_| !names_verb(line)) {
            let rule = format!("`{word}` outside src/main.rs and src/cli/bench.rs");
            found.push(Breach::new(&source.name, number, rule));
        }
    }
}

fn too_long(name: &str, lines: usize, found: &mut Vec<Breach>) {
    if lines > FILE_LINES {
        found.push(Breach::new(
            name,
            lines,
            format!("the file has {lines} lines, over {FILE_LINES}: split it by what it is about"),
        ));
    }
}

fn lengths(source: &Source, found: &mut Vec<Breach>) {
    too_long(&source.name, source.code.len(), found);
    if source.is_test_file() {
        return;
    }
    let code = source.code.join("\n");
    for (at, _) in code.match_indices("fn ") {
        let first = line_of(&code, at);
        let word_before = code[..at].chars().next_back().is_some_and(is_word);
        if word_before || source.test[first] {
            continue;
        }
        // A declaration without a body ends with a semicolon; one inside brackets belongs to an array type.
        let (mut depth, mut open) = (0_i32, None);
        for (offset, byte) in code[at..].bytes().enumerate() {
            match byte {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth -= 1,
                b'{' => open = Some(at + offset),
                _ => {}
            }
            if open.is_some() || depth < 0 || (byte == b';' && depth == 0) {
                break;
            }
        }
        let Some(close) = open.and_then(|open| closing_brace(&code, open)) else { continue };
        let lines = line_of(&code, close) - first + 1;
        if lines > FUNCTION_LINES {
            let name: String = code[at + 3..].chars().take_while(|c| is_word(*c)).collect();
            let rule = format!("the function `{name}` has {lines} lines, over {FUNCTION_LINES}");
            found.push(Breach::new(&source.name, first + 1, rule));
        }
    }
}

/// An open task without the number of its issue.
fn open_task(comment: &str) -> bool {
    ["TODO", "FIXME"].iter().any(|mark| {
        comment.match_indices(mark).any(|(at, _)| {
            let rest = comment[at + mark.len()..].trim_start_matches(['(', ' ']);
            let numbered =
                rest.strip_prefix('#').is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()));
            has_word(comment, mark) && !numbered
        })
    })
}

fn open_tasks<'a>(name: &str, comments: impl Iterator<Item = &'a String>, found: &mut Vec<Breach>) {
    for (number, comment) in comments.enumerate() {
        if open_task(comment) {
            found.push(Breach::new(
                name,
                number + 1,
                "an open task without the number of its issue: write `TODO(#12)`",
            ));
        }
    }
}

/// The direction of imports: engines know no sinks, core knows no engines, pure modules know no files.
fn directions(source: &Source, found: &mut Vec<Breach>) {
    if source.is_test_file() {
        return;
    }
    let name = source.name.as_str();
    let pure = ["codec", "cipher", "checksum"];
    let of = |module: &&str| {
        name == format!("crates/core/src/{module}.rs") || name.starts_with(&format!("crates/core/src/{module}/"))
    };
    let mut import = String::new();
    for (number, line) in source.code_lines() {
        // A `use` over several lines is judged as one, at its last line.
        let inside = !import.is_empty() || line.trim_start().trim_start_matches("pub ").starts_with("use ");
        if inside {
            import.push_str(line);
            if !line.contains(';') {
                continue;
            }
        }
        let text = if inside { std::mem::take(&mut import) } else { line.to_owned() };
        if name.starts_with("crates/engines/src/") {
            for module in ["sink", "supply"] {
                let named =
                    has_path(&text, module) || (inside && text.contains("fullbore_core") && has_word(&text, module));
                if named {
                    found.push(Breach::new(
                        name,
                        number,
                        format!("an engine names `{module}`: they meet in the pipeline"),
                    ));
                }
            }
        }
        if name.starts_with("crates/core/") && has_word(&text, "fullbore_engines") {
            found.push(Breach::new(name, number, "core names the engines: it knows bytes only"));
        }
        let files = has_path(&text, "fs") || (inside && text.contains("std::") && has_word(&text, "fs"));
        if pure.iter().any(of) && files {
            found.push(Breach::new(name, number, "codec, cipher and checksum are pure: no `std::fs` in them"));
        }
    }
}

/// Whether `module::` stands in the text as a path segment.
fn has_path(text: &str, module: &str) -> bool {
    let path = format!("{module}::");
    text.match_indices(&path).any(|(at, _)| !text[..at].chars().next_back().is_some_and(is_word))
}

/// The numbers that this file gives to codecs: the discriminants of `enum CodecId`, and `CodecId(N)` constants.
pub fn codec_numbers(source: &Source) -> Vec<(u64, String, usize)> {
    if !source.name.starts_with("crates/core/src/codec/") {
        return Vec::new();
    }
    let mut numbers = Vec::new();
    let mut in_enum = false;
    for (number, line) in source.code_lines() {
        in_enum |= has_word(line, "enum") && has_word(line, "CodecId");
        let constant = line.contains("const ") && (line.contains("CodecId") || line.contains("CODEC"));
        if in_enum || constant {
            let value = line.rsplit('=').next().filter(|_| line.contains('=')).unwrap_or("");
            let digits: String =
                value.trim().trim_start_matches("CodecId(").chars().take_while(char::is_ascii_digit).collect();
            if let Ok(value) = digits.parse() {
                numbers.push((value, source.name.clone(), number));
            }
        }
        in_enum &= !line.contains('}');
    }
    numbers
}

/// A number on media means one codec for ever.
pub fn check_codec_numbers(mut numbers: Vec<(u64, String, usize)>, found: &mut Vec<Breach>) {
    numbers.sort();
    for pair in numbers.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        let ((number, first, line), (_, second, at)) = (&pair[0], &pair[1]);
        let rule = format!("the codec number {number} is used twice: first in {first}:{line}");
        found.push(Breach::new(second, *at, rule));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        check(&Source::new(name, text), &mut found);
        found.into_iter().map(|breach| (breach.line, breach.rule)).collect()
    }

    /// The one breach that `text` makes as the file `name`.
    fn only(name: &str, text: &str) -> (usize, String) {
        let found = found(name, text);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found[0].clone()
    }

    #[test]
    fn printing_is_found_where_it_may_not_be_and_nowhere_else() {
        for printer in PRINTERS {
            let text = format!("fn a() {{\n    {printer}(\"x\");\n}}\n");
            assert_eq!(only("src/job/backup.rs", &text).0, 2);
            assert_eq!(only("crates/core/src/meter.rs", &text).0, 2);
            for allowed in ["src/cli/show.rs", "xtask/src/main.rs", "tests/it/backup.rs", "bench/database/src/main.rs"]
            {
                assert!(found(allowed, &text).is_empty(), "{allowed}");
            }
        }
        assert!(found("src/a.rs", "// println!(\nfn a() { sprintln!(\"println!\") }\n").is_empty());
        assert!(found("src/a.rs", "#[cfg(test)]\nmod tests {\n    fn a() { println!() }\n}\n").is_empty());
    }

    #[test]
    fn unsafe_code_is_found_outside_io_also_in_tests() {
        assert_eq!(only("crates/core/src/pool.rs", "fn a() {\n    unsafe { b() }\n}\n").0, 2);
        assert_eq!(only("src/a.rs", "#[cfg(test)]\nmod tests {\n    unsafe fn a() {}\n}\n").0, 3);
        assert!(found("crates/core/src/memory.rs", "unsafe impl Send for A {}\n").is_empty());
        assert!(found("src/a.rs", "#![deny(unsafe_code)] // unsafe\nconst A: &str = \"unsafe\";\n").is_empty());
    }

    #[test]
    fn async_code_is_found_outside_the_stores() {
        assert_eq!(only("crates/core/src/pool.rs", "fn a() {\n    let b = async { 1 };\n}\n").0, 2);
        assert_eq!(only("src/job/a.rs", "use tokio::time;\n").0, 1);
        assert!(found("crates/core/src/store/bucket.rs", "async fn a() {}\n").is_empty());
        assert!(found("crates/engines/src/sqlserver/server/link.rs", "use tokio::time;\n").is_empty());
        assert_eq!(only("crates/engines/src/sqlserver/server/session.rs", "use tokio::time;\n").0, 1);
        assert!(found("src/a.rs", "// async\nfn asynchronous() {}\n").is_empty());
    }

    #[test]
    fn the_crate_of_bench_is_found_in_other_verbs() {
        assert_eq!(only("src/cli/mod.rs", "use fullbore_bench::run;\n").0, 1);
        assert_eq!(only("src/cli/backup.rs", "let volumes = super::bench::volumes()?;\n").0, 1);
        assert_eq!(only("src/job/limit.rs", "use bench::a;\n").0, 1);
        assert!(
            found("src/cli/mod.rs", "mod bench;\n        Verb::Bench(args) => bench::run(&args, config),\n").is_empty()
        );
        assert!(found("src/main.rs", "fullbore_bench::volumes();\n").is_empty());
        assert!(found("src/cli/bench.rs", "use fullbore_bench::run;\n").is_empty());
        assert!(found("crates/bench/src/run.rs", "use fullbore_bench::run;\n").is_empty());
    }

    #[test]
    fn a_file_over_800_lines_is_found() {
        assert!(found("src/a.rs", &"// a\n".repeat(800)).is_empty());
        assert!(only("src/a.rs", &"// a\n".repeat(801)).1.contains("801 lines"));
        let mut breaches = Vec::new();
        check_script("demo", &"echo\n".repeat(801), &mut breaches);
        assert_eq!(breaches.len(), 1);
    }

    #[test]
    fn a_function_over_70_lines_is_found_unless_it_is_a_test() {
        let function = |lines: usize| {
            format!("impl A {{\n    fn b(c: [u8; 4]) -> u8 {{\n{}    }}\n}}\n", "        // {\n".repeat(lines - 2))
        };
        assert!(found("src/a.rs", &function(70)).is_empty());
        let (line, rule) = only("src/a.rs", &function(71));
        assert!(line == 2 && rule.contains("`b` has 71 lines"), "{line} {rule}");
        assert!(found("src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(90))).is_empty());
        assert!(found("tests/it/a.rs", &function(90)).is_empty());
        let declaration = format!("trait A {{\n    fn a(&self);\n{}}}\n", "    // x\n".repeat(90));
        assert!(found("src/a.rs", &declaration).is_empty());
    }

    #[test]
    fn an_open_task_needs_its_issue() {
        for bad in ["// TODO: later\n", "/// TODO(me)\n", "/* FIXME */\n"] {
            assert_eq!(only("src/a.rs", bad).0, 1, "{bad}");
        }
        for good in ["// TODO(#12): later\n", "// TODO #3\n", "const A: &str = \"TODO\";\n", "// MASTODON\n"] {
            assert!(found("src/a.rs", good).is_empty(), "{good}");
        }
        let mut breaches = Vec::new();
        check_script("demo", "#!/bin/sh\necho x # TODO later\n", &mut breaches);
        assert_eq!(breaches[0].line, 2);
    }

    #[test]
    fn an_import_against_the_direction_is_found() {
        let engine = "crates/engines/src/sqlite/source.rs";
        assert!(only(engine, "use fullbore_core::sink::Sink;\n").1.contains("`sink`"));
        assert!(only(engine, "use fullbore_core::{\n    Error,\n    supply,\n};\n").1.contains("`supply`"));
        assert_eq!(only(engine, "use fullbore_core::Error;\nfn a() { fullbore_core::sink::open() }\n").0, 2);
        assert!(found(engine, "use fullbore_core::Error;\nfn a(sink: u8) {}\n").is_empty());
        assert!(found("src/job/backup.rs", "use fullbore_core::sink::Sink;\n").is_empty());
        assert_eq!(only("crates/core/src/plan.rs", "use fullbore_engines::Engine;\n").0, 1);
        for pure in ["crates/core/src/checksum.rs", "crates/core/src/codec/lz4.rs", "crates/core/src/cipher/mod.rs"] {
            assert_eq!(only(pure, "use std::fs;\n").0, 1);
            assert_eq!(only(pure, "use std::{fs, io};\n").0, 1);
            assert_eq!(only(pure, "fn a() { std::fs::read(b) }\n").0, 1);
        }
        assert!(found("crates/core/src/cipher/tests.rs", "use std::fs;\n").is_empty());
        assert!(found("crates/core/src/sink/file.rs", "use std::fs;\n").is_empty());
    }

    #[test]
    fn a_codec_number_used_twice_is_found() {
        let numbers = |file: &str, text: &str| codec_numbers(&Source::new(file, text));
        let one = "pub enum CodecId {\n    /// None.\n    None = 0,\n    Lz4 = 1,\n}\nconst LEVEL: u8 = 1;\n";
        let mut all = numbers("crates/core/src/codec/mod.rs", one);
        assert_eq!(all.len(), 2);
        all.extend(numbers("crates/core/src/codec/gzip.rs", "pub const GZIP: CodecId = CodecId(1);\n"));
        let mut breaches = Vec::new();
        check_codec_numbers(all, &mut breaches);
        assert_eq!(breaches.len(), 1);
        assert!(breaches[0].rule.contains("number 1 is used twice"));
        assert!(numbers("src/job/backup.rs", one).is_empty());
    }
}
