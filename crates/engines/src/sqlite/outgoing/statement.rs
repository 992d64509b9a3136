//! The text of CREATE TABLE, as far as no pragma tells what it says: CHECKs, conflict clauses, deferred keys.
//!
//! The grammar is that of sqlite.org, "CREATE TABLE" and "SQL Syntax".

/// A token of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A word without quotes: a keyword or a name.
    Word(String),
    /// A name in quotes.
    Name(String),
    /// A text in single quotes.
    Text(String),
    /// Digits, perhaps with a point and an exponent.
    Number(String),
    /// Everything else: operators, parentheses.
    Sign(String),
}

impl Token {
    /// Whether it is this keyword.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self, Token::Word(text) if text.eq_ignore_ascii_case(word))
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self, Token::Sign(text) if text == sign)
    }
}

/// Operators of two bytes.
const PAIRS: [&str; 8] = ["<=", ">=", "<>", "!=", "==", "||", "<<", ">>"];

/// The tokens of a text, each with its place. Comments are passed over.
pub fn tokens(text: &str) -> Vec<(usize, Token)> {
    let (mut found, mut place) = (Vec::new(), 0);
    while let Some(rest) = text.get(place..).filter(|rest| !rest.is_empty()) {
        let (length, token) = next(rest);
        found.extend(token.map(|token| (place, token)));
        place += length.max(1);
    }
    found
}

/// The length of the next token or space, and the token.
fn next(rest: &str) -> (usize, Option<Token>) {
    let end_of = |end: &str, more: usize| rest.find(end).map_or(rest.len(), |at| at + more);
    let run = |is: &dyn Fn(char) -> bool| rest.find(|letter| !is(letter)).unwrap_or(rest.len());
    let first = rest.chars().next().unwrap_or(' ');
    let taken = |length: usize| rest.get(..length).unwrap_or_default().to_owned();
    match first {
        _ if first.is_whitespace() => (first.len_utf8(), None),
        '-' if rest.starts_with("--") => (end_of("\n", 1), None),
        '/' if rest.starts_with("/*") => {
            (rest.get(2..).and_then(|r| r.find("*/")).map_or(rest.len(), |at| at + 4), None)
        }
        '\'' => with_quotes(rest, '\'', Token::Text),
        '"' | '`' => with_quotes(rest, first, Token::Name),
        '[' => (end_of("]", 1), Some(Token::Name(taken(end_of("]", 0)).get(1..).unwrap_or_default().to_owned()))),
        _ if first.is_ascii_digit() => {
            // An exponent may have a sign.
            let mut length = run(&|letter| letter.is_ascii_alphanumeric() || letter == '.');
            let is_exponent = taken(length).ends_with(['e', 'E']) && !taken(length).starts_with("0x");
            if is_exponent && rest.get(length..).is_some_and(|after| after.starts_with(['+', '-'])) {
                let after = rest.get(length + 1..).unwrap_or_default();
                length += 1 + after.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(after.len());
            }
            (length, Some(Token::Number(taken(length))))
        }
        _ if first.is_alphanumeric() || first == '_' => {
            let length = run(&|letter| letter.is_alphanumeric() || letter == '_' || letter == '$');
            (length, Some(Token::Word(taken(length))))
        }
        _ => {
            let length = PAIRS.iter().find(|pair| rest.starts_with(**pair)).map_or(first.len_utf8(), |pair| pair.len());
            (length, Some(Token::Sign(taken(length))))
        }
    }
}

fn with_quotes(rest: &str, quote: char, made: fn(String) -> Token) -> (usize, Option<Token>) {
    let (mut text, mut letters) = (String::new(), rest.char_indices().skip(1).peekable());
    while let Some((at, letter)) = letters.next() {
        if letter != quote {
            text.push(letter);
        } else if letters.next_if(|(_, next)| *next == quote).is_some() {
            text.push(quote);
        } else {
            return (at + 1, Some(made(text)));
        }
    }
    (rest.len(), Some(made(text)))
}

/// Whether a text is one literal: a number with or without a sign, a text, bytes, TRUE, FALSE or NULL.
pub fn is_literal(text: &str) -> bool {
    let all: Vec<Token> = tokens(text).into_iter().map(|(_, token)| token).collect();
    let is_constant = |token: &Token| ["TRUE", "FALSE", "NULL"].iter().any(|word| token.is_word(word));
    match &all[..] {
        [Token::Number(_) | Token::Text(_)] => true,
        [Token::Sign(sign), Token::Number(_)] => sign == "-" || sign == "+",
        [word, Token::Text(_)] => word.is_word("x"),
        [token] => is_constant(token),
        _ => false,
    }
}

/// What only the text of a table's statement tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clauses {
    /// The expressions of its CHECKs: their text and their tokens.
    pub checks: Vec<(String, Vec<Token>)>,
    /// ON CONFLICT clauses, without those that do what every server does.
    pub conflicts: Vec<String>,
    /// A foreign key is checked at the commit.
    pub deferred: bool,
}

impl Clauses {
    /// From a CREATE TABLE statement.
    pub fn of(statement: &str) -> Self {
        let (all, mut found) = (tokens(statement), Self::default());
        let word = |at: usize, word: &str| all.get(at).is_some_and(|(_, token)| token.is_word(word));
        let mut at = 0;
        while at < all.len() {
            if word(at, "CHECK") && all.get(at + 1).is_some_and(|(_, token)| token.is_sign("(")) {
                let end = end_of_parentheses(&all, at + 1);
                let place = |at: usize| all.get(at).map_or(statement.len(), |(place, _)| *place);
                let text = statement.get(place(at + 1) + 1..place(end)).unwrap_or_default().trim();
                let inside = all.get(at + 2..end).unwrap_or_default();
                found.checks.push((text.to_owned(), inside.iter().map(|(_, token)| token.clone()).collect()));
                at = end;
            } else if word(at, "ON")
                && word(at + 1, "CONFLICT")
                && let Some((_, Token::Word(what))) = all.get(at + 2)
                && !["ABORT", "FAIL", "ROLLBACK"].iter().any(|known| what.eq_ignore_ascii_case(known))
            {
                found.conflicts.push(format!("ON CONFLICT {}", what.to_uppercase()));
            }
            found.deferred |= word(at, "INITIALLY") && word(at + 1, "DEFERRED");
            at += 1;
        }
        found
    }
}

/// The place of the parenthesis that closes the one at `at`.
fn end_of_parentheses(all: &[(usize, Token)], at: usize) -> usize {
    let mut depth = 0_usize;
    for (place, (_, token)) in all.iter().enumerate().skip(at) {
        depth += usize::from(token.is_sign("("));
        if token.is_sign(")") {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return place;
            }
        }
    }
    all.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_conflict_clauses_and_deferred_keys_are_found_and_comments_and_texts_are_not() {
        let made = Clauses::of(
            "CREATE TABLE \"CHECK (\" (a INT CHECK (a > 0 AND (a < 1e+3)), -- CHECK (b)\n b TEXT DEFAULT 'CHECK (x)', \
             c UNIQUE ON CONFLICT replace, /* INITIALLY DEFERRED */ [d] REFERENCES p DEFERRABLE INITIALLY DEFERRED, \
             e NOT NULL ON CONFLICT ABORT, CONSTRAINT k CHECK(b <> 'it''s )'))",
        );
        let texts: Vec<&str> = made.checks.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts, ["a > 0 AND (a < 1e+3)", "b <> 'it''s )'"]);
        assert_eq!(made.checks[1].1[2], Token::Text("it's )".into()));
        assert!(made.deferred && made.conflicts == ["ON CONFLICT REPLACE"], "{made:?}");
        assert_eq!(
            Clauses::of("CREATE TABLE t (a CHECK (("),
            Clauses { checks: vec![("(".into(), vec![Token::Sign("(".into())])], ..Default::default() }
        );
    }

    #[test]
    fn a_literal_is_one_value_and_nothing_else() {
        for text in ["5", "-1.5e-3", "+7", "'it''s'", "x'00'", "NULL", "true", " 0x1F "] {
            assert!(is_literal(text), "{text}");
        }
        for text in
            ["", "a", "5 + 5", "random()", "'a' || 'b'", "(5)", "5; DROP", "\"a\"", "CURRENT_TIMESTAMP", "- - 5"]
        {
            assert!(!is_literal(text), "{text}");
        }
    }
}
