//! The words of a script: those of the T-SQL tokenizer of the `sqlparser` crate, with their places.

use std::fmt;

use fullbore_core::{Error, Result};
use sqlparser::dialect::MsSqlDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

/// Bytes of the longest script that is read.
pub const SCRIPT_MAX: usize = 4 << 20;

/// A place in the script; both numbers begin with 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A word of T-SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lexeme {
    /// A key word, or a name without brackets.
    Word(String),
    /// `[name]` or `"name"`: never a key word.
    Name(String),
    /// `'text'` or `N'text'`.
    Text(String),
    /// A number as it is written.
    Number(String),
    /// `@name`, without the `@`. `@@NAME` has one `@` left.
    Variable(String),
    /// A character such as `,`, `=`, `(`, `+`, `;` or `.`.
    Sign(char),
    /// A line with GO alone: the end of a batch.
    Go,
}

impl fmt::Display for Lexeme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) | Self::Number(text) => write!(f, "{text}"),
            Self::Name(text) => write!(f, "[{text}]"),
            Self::Text(text) => write!(f, "'{text}'"),
            Self::Variable(name) => write!(f, "@{name}"),
            Self::Sign(sign) => write!(f, "{sign}"),
            Self::Go => write!(f, "GO"),
        }
    }
}

/// A lexeme and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub lexeme: Lexeme,
    pub at: Position,
}

/// The lexemes of a script, without comments.
///
/// # Errors
/// A text or comment that does not end, a character that T-SQL does not have, or a script of more than 4 MiB.
pub(crate) fn lexemes(script: &str) -> Result<Vec<Placed>> {
    if script.len() > SCRIPT_MAX {
        return Err(Error::usage("the script", "it has more than 4 MiB", "divide it"));
    }
    let script = script.strip_prefix('\u{feff}').unwrap_or(script);
    let tokens = Tokenizer::new(&MsSqlDialect {}, script).with_unescape(true).tokenize_with_location();
    let tokens = tokens.map_err(|error| {
        let at = Position { line: error.location.line, column: error.location.column };
        Error::usage(at.to_string(), error.message, "end each text with ' and each comment with */")
    })?;
    let mut placed: Vec<Placed> = Vec::new();
    for token in tokens {
        let at = Position { line: token.span.start.line, column: token.span.start.column };
        add(&mut placed, token.token, at)?;
    }
    Ok(mark_batches(placed))
}

fn add(placed: &mut Vec<Placed>, token: Token, at: Position) -> Result<()> {
    let lexeme = match token {
        Token::EOF | Token::Whitespace(_) => return Ok(()),
        Token::Word(word) if word.quote_style.is_some() => Lexeme::Name(word.value),
        Token::Word(word) => match word.value.strip_prefix('@') {
            Some(name) => Lexeme::Variable(name.to_owned()),
            None => Lexeme::Word(word.value),
        },
        Token::SingleQuotedString(text) | Token::NationalStringLiteral(text) => Lexeme::Text(text),
        Token::DoubleQuotedString(name) => Lexeme::Name(name),
        Token::Number(digits, _) => Lexeme::Number(digits),
        Token::AtSign => Lexeme::Sign('@'),
        other => {
            let text = other.to_string();
            let mut letters = text.chars();
            match (letters.next(), letters.next()) {
                (Some(sign), None) => Lexeme::Sign(sign),
                _ => return Err(Error::usage(at.to_string(), format!("`{text}` is not understood"), "leave it out")),
            }
        }
    };
    placed.push(Placed { lexeme, at });
    Ok(())
}

/// A line that holds GO, and at most a number behind it, ends a batch.
fn mark_batches(placed: Vec<Placed>) -> Vec<Placed> {
    let line = |at: usize| placed.get(at).map(|placed| placed.at.line);
    let is_go = |at: usize| {
        let begins = at == 0 || line(at - 1) != line(at);
        let is_number = matches!(placed.get(at + 1), Some(Placed { lexeme: Lexeme::Number(_), .. }));
        matches!(&placed[at].lexeme, Lexeme::Word(word) if word.eq_ignore_ascii_case("GO"))
            && begins
            && (line(at + 1) != line(at) || is_number && line(at + 2) != line(at))
    };
    let mut marked = placed.clone();
    for at in (0..placed.len()).filter(|at| is_go(*at)) {
        marked[at].lexeme = Lexeme::Go;
    }
    marked
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shown(script: &str) -> Vec<String> {
        lexemes(script).unwrap().iter().map(|placed| format!("{:?}", placed.lexeme)).collect()
    }

    #[test]
    fn texts_names_variables_and_comments_are_those_of_t_sql() {
        let script = "BACKUP -- a comment\n/* another /* inside */ */ [my]]db], N'it''s', @p, @@VERSION, 1024";
        assert_eq!(
            shown(script),
            [
                "Word(\"BACKUP\")",
                "Name(\"my]db\")",
                "Sign(',')",
                "Text(\"it's\")",
                "Sign(',')",
                "Variable(\"p\")",
                "Sign(',')",
                "Variable(\"@VERSION\")",
                "Sign(',')",
                "Number(\"1024\")"
            ]
        );
    }

    #[test]
    fn only_a_line_of_its_own_is_go() {
        assert_eq!(shown("GO\n[GO] go x\ngo"), ["Go", "Name(\"GO\")", "Word(\"go\")", "Word(\"x\")", "Go"]);
    }

    #[test]
    fn a_text_without_an_end_is_an_error_with_its_place() {
        let error = lexemes("BACKUP DATABASE x\n  TO DISK = 'a").unwrap_err().to_string();
        assert!(error.contains("line 2, column 13"), "{error}");
    }
}
