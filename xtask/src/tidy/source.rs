//! A Rust file as the rules see it: its code without comments and strings, its comments, and where its tests are.

/// A Rust file, read just well enough.
pub struct Source {
    /// Relative to the workspace.
    pub name: String,
    /// The code, line by line; comments, strings and character literals are blanks.
    pub code: Vec<String>,
    /// The comments, line by line; all else is blanks.
    pub comments: Vec<String>,
    /// For each line, whether it is inside a `#[cfg(test)]` module.
    pub test: Vec<bool>,
}

impl Source {
    pub fn new(name: &str, text: &str) -> Self {
        let (code, comments) = split(text);
        let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let test = test_lines(&code);
        Source { name: name.to_owned(), code: lines(code), comments: lines(comments), test }
    }

    /// A file of tests as a whole: under a folder `tests`, or the file of a `#[cfg(test)] mod tests;`.
    pub fn is_test_file(&self) -> bool {
        self.name.split('/').any(|part| part == "tests" || part == "tests.rs")
    }

    /// The lines of code outside test modules, with their numbers from 1.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let all = self.code.iter().zip(&self.test).enumerate();
        all.filter(|(_, (_, test))| !**test).map(|(number, (line, _))| (number + 1, line.as_str()))
    }
}

/// What stands at the start of `rest`, and its length in characters.
enum Token {
    Code,
    Comment(usize),
    Text(usize),
}

/// The same text twice: once only its code, once only its comments; blanks for the rest, line ends kept.
fn split(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let (mut code, mut comments) = (String::with_capacity(text.len()), String::with_capacity(text.len()));
    let mut at = 0;
    while at < chars.len() {
        let (length, kind) = match token(&chars, at) {
            Token::Code => (1, 0),
            Token::Comment(length) => (length, 1),
            Token::Text(length) => (length, 2),
        };
        for &c in &chars[at..(at + length).min(chars.len())] {
            let blank = if c == '\n' { '\n' } else { ' ' };
            code.push(if kind == 0 { c } else { blank });
            comments.push(if kind == 1 { c } else { blank });
        }
        at += length;
    }
    (code, comments)
}

fn token(chars: &[char], at: usize) -> Token {
    let next = |offset: usize| chars.get(at + offset).copied().unwrap_or('\0');
    let after_word = at > 0 && is_word(chars[at - 1]);
    match (chars[at], next(1)) {
        ('/', '/') => Token::Comment(chars[at..].iter().position(|c| *c == '\n').unwrap_or(chars.len() - at)),
        ('/', '*') => Token::Comment(block_comment(&chars[at..])),
        ('"', _) => Token::Text(string(&chars[at..])),
        ('r', '"' | '#') if !after_word => raw_string(&chars[at..], 1),
        ('b' | 'c', 'r') if !after_word && matches!(next(2), '"' | '#') => raw_string(&chars[at..], 2),
        ('\'', '\\') => Token::Text(2 + chars[at + 2..].iter().skip(1).position(|c| *c == '\'').map_or(1, |p| p + 2)),
        ('\'', _) if next(2) == '\'' => Token::Text(3), // Else it is a lifetime.
        _ => Token::Code,
    }
}

fn block_comment(chars: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(chars: &[char]) -> usize {
    let mut at = 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn raw_string(chars: &[char], prefix: usize) -> Token {
    let hashes = chars[prefix..].iter().take_while(|c| **c == '#').count();
    let open = prefix + hashes;
    if chars.get(open) != Some(&'"') {
        return Token::Code; // `r#type`, a raw identifier.
    }
    let closes =
        |at: usize| chars[at] == '"' && chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes;
    let end = (open + 1..chars.len()).find(|at| closes(*at)).unwrap_or(chars.len());
    Token::Text(end + 1 + hashes)
}

/// Part of a word of Rust.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `word` stands in `line` as a word of its own.
pub fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The place of the brace that closes the one at `open`, in bytes.
pub fn closing_brace(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The number of the line at a byte, from 0.
pub fn line_of(code: &str, at: usize) -> usize {
    code[..at].bytes().filter(|byte| *byte == b'\n').count()
}

fn test_lines(code: &str) -> Vec<bool> {
    let mut test = vec![false; code.lines().count()];
    for (at, _) in code.match_indices("#[cfg(test)]") {
        // An attribute on a `use` or a field ends with it; a module ends with its brace.
        let rest = &code[at..];
        let (Some(open), end) = (rest.find('{'), rest.find(';').unwrap_or(rest.len())) else { continue };
        if open > end || !has_word(&rest[..open], "mod") {
            continue;
        }
        let close = closing_brace(code, at + open).unwrap_or(code.len() - 1);
        let (first, last) = (line_of(code, at), line_of(code, close));
        test[first..=last.min(code.lines().count() - 1)].fill(true);
    }
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_told_from_code() {
        let text = "a(\"x // {\"); // b {\nlet c = '{'; /* d /* e */ f */ g::<'h>(r#\"i\" { \"#, b'\\'', '\\u{7d}');";
        let source = Source::new("x.rs", text);
        let code = source.code.join("\n");
        for kept in ["a(", "let c =", "g::<'h>("] {
            assert!(code.contains(kept), "{kept} is code: {code}");
        }
        assert!(!code.contains('{') && !code.contains('}') && !code.contains(" f "), "{code}");
        assert!(source.comments[0].contains("// b {") && source.comments[1].contains("f */"));
    }

    #[test]
    fn a_test_module_is_found_and_what_follows_it_is_not_part_of_it() {
        let text =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nuse d;\nmod e {}\n";
        let source = Source::new("x.rs", text);
        assert_eq!(source.test, [false, true, true, true, true, false, false, false, false]);
    }

    #[test]
    fn a_word_is_a_word_of_its_own() {
        assert!(has_word("pub unsafe fn x()", "unsafe"));
        assert!(!has_word("#![deny(unsafe_code)]", "unsafe"));
    }
}
