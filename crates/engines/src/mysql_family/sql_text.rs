//! The tokens of an SQL statement, as MySQL and MariaDB read it: words, names and texts in quotes, and signs.
//!
//! <https://dev.mysql.com/doc/refman/9.7/en/lexical-structure.html>, <https://mariadb.com/kb/en/comment-syntax/>

use std::ops::Range;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A word of SQL, a name without quotes, or a number.
    Word,
    /// A name in backticks, or a text.
    Quoted,
    /// One byte of another kind.
    Sign,
}

/// A token of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Where it is, in bytes. It begins and ends at a character.
    pub place: Range<usize>,
}

/// The tokens of a statement, without blanks and comments. The content of a comment that a server runs (`/*!40000 … */`,
/// `/*M! … */`) counts.
pub fn tokens(text: &[u8]) -> impl Iterator<Item = Token> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
            let passed = passed_over(rest);
            if passed > 0 {
                at += passed;
                continue;
            }
            let letters = rest.iter().take_while(|byte| is_letter(**byte)).count();
            let (kind, end) = match rest.first()? {
                _ if letters > 0 => (TokenKind::Word, at + letters),
                b'`' | b'\'' | b'"' => (TokenKind::Quoted, token_end(text, at)),
                _ => (TokenKind::Sign, at + 1),
            };
            return Some(Token { kind, place: std::mem::replace(&mut at, end)..end });
        }
    })
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}

/// How many bytes at the beginning of a text are a blank, a comment, or a mark of a comment that a server runs.
fn passed_over(text: &[u8]) -> usize {
    let line = || text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| at + 1);
    match text {
        [b'/', b'*', b'!', rest @ ..] => 3 + rest.iter().take_while(|byte| byte.is_ascii_digit()).count(),
        [b'/', b'*', b'M', b'!', rest @ ..] => 4 + rest.iter().take_while(|byte| byte.is_ascii_digit()).count(),
        [b'/', b'*', ..] => token_end(text, 0),
        [b'*', b'/', ..] => 2,
        [b'#', ..] | [b'-', b'-'] => line(),
        [b'-', b'-', blank, ..] if *blank <= b' ' => line(),
        [blank, ..] if blank.is_ascii_whitespace() => 1,
        _ => 0,
    }
}

/// The end of the token that begins at `at`: a quoted name, a text, a comment, or one byte.
pub fn token_end(text: &[u8], at: usize) -> usize {
    let quote = match text.get(at) {
        Some(quote @ (b'`' | b'\'' | b'"')) => *quote,
        Some(b'/') if text.get(at + 1) == Some(&b'*') && text.get(at + 2) != Some(&b'!') => {
            let rest = text.get(at + 2..).unwrap_or_default();
            let end = rest.windows(2).position(|pair| pair == b"*/");
            return end.map_or(text.len(), |end| at + 2 + end + 2);
        }
        _ => return at + 1,
    };
    let mut place = at + 1;
    while let Some(byte) = text.get(place) {
        match byte {
            // In a text, but not in a name.
            b'\\' if quote != b'`' => place += 2,
            byte if *byte == quote && text.get(place + 1) == Some(&quote) => place += 2,
            byte if *byte == quote => return place + 1,
            _ => place += 1,
        }
    }
    text.len()
}

/// Where `wanted` begins first, outside of names and texts in quotes and of comments.
pub fn find_outside(text: &str, wanted: &str) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        if text.as_bytes().get(at..)?.starts_with(wanted.as_bytes()) {
            return Some(at);
        }
        at = token_end(text.as_bytes(), at);
    }
    None
}

/// What a name or a text says, without its quotes. A name without quotes stays.
pub fn unquoted(token: &str) -> String {
    let Some(quote) = token.chars().next().filter(|first| matches!(first, '`' | '\'' | '"')) else {
        return token.to_owned();
    };
    let (mut said, mut letters) = (String::with_capacity(token.len()), token.chars().skip(1));
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if quote != '`' => said.extend(letters.next()),
            // A quote within is doubled, and the last one has no other behind it.
            _ if letter == quote => said.extend(letters.next()),
            _ => said.push(letter),
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<&str> {
        tokens(text.as_bytes()).map(|token| &text[token.place]).collect()
    }

    #[test]
    fn a_statement_is_words_names_texts_and_signs() {
        let text = "CREATE/* a.b */ TABLE `a``b`.é$1 -- c\n(x='it''s \\' y',#z\n\"q\")";
        let expected = ["CREATE", "TABLE", "`a``b`", ".", "é$1", "(", "x", "=", "'it''s \\' y'", ",", "\"q\"", ")"];
        assert_eq!(read(text), expected);
        assert_eq!(read("a /*!80023 INVISIBLE */ b /*M!100201 c*/"), ["a", "INVISIBLE", "b", "c"]);
        assert_eq!(read("1--1 --"), ["1", "-", "-", "1"]);
        let kinds: Vec<TokenKind> = tokens(b"a 'b' .").map(|token| token.kind).collect();
        assert_eq!(kinds, [TokenKind::Word, TokenKind::Quoted, TokenKind::Sign]);
    }

    #[test]
    fn a_statement_that_is_cut_has_tokens_within_its_text() {
        let whole = "x /* é */ 'it''s \\'' `a``b` /*!50003 y */ -- z";
        for end in (0..=whole.len()).filter(|end| whole.is_char_boundary(*end)) {
            assert!(tokens(&whole.as_bytes()[..end]).all(|token| token.place.end <= end), "{end}");
        }
    }

    #[test]
    fn quotes_are_taken_off_names_and_texts() {
        for (quoted, said) in
            [("`a``b\\c`", "a`b\\c"), ("'it''s \\' y'", "it's ' y"), ("\"\"", ""), ("plain", "plain"), ("`cut", "cut")]
        {
            assert_eq!(unquoted(quoted), said);
        }
    }
}
