//! A reader of lexemes, one after the other.

use fullbore_core::{Error, Result};

use super::lexemes::{Lexeme, Placed, Position};

/// The lexemes that are left.
pub(crate) struct Parser {
    placed: std::vec::IntoIter<Placed>,
    end: Position,
}

impl Parser {
    pub fn new(placed: Vec<Placed>) -> Self {
        let end = placed.last().map_or(Position { line: 1, column: 1 }, |placed| placed.at);
        Self { placed: placed.into_iter(), end }
    }

    /// The next lexeme, which stays.
    pub fn peek(&self) -> Option<&Lexeme> {
        self.ahead(0)
    }

    /// A later lexeme: 0 is the next one.
    pub fn ahead(&self, count: usize) -> Option<&Lexeme> {
        self.placed.as_slice().get(count).map(|placed| &placed.lexeme)
    }

    /// The place of the next lexeme; at the end, the last one's.
    pub fn at(&self) -> Position {
        self.placed.as_slice().first().map_or(self.end, |placed| placed.at)
    }

    /// Takes the next lexeme.
    pub fn next(&mut self) -> Option<Lexeme> {
        self.placed.next().map(|placed| placed.lexeme)
    }

    /// True if the next lexeme is this key word.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Lexeme::Word(next)) if next.eq_ignore_ascii_case(word))
    }

    /// Takes the key word if it is next.
    pub fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.next();
        }
        found
    }

    /// Takes the key word.
    ///
    /// # Errors
    /// Something else is next.
    pub fn want_word(&mut self, word: &str) -> Result<()> {
        if self.take_word(word) { Ok(()) } else { Err(self.unexpected(word)) }
    }

    /// Takes the sign if it is next.
    pub fn take_sign(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(&Lexeme::Sign(sign));
        if found {
            self.next();
        }
        found
    }

    /// Takes the sign.
    ///
    /// # Errors
    /// Something else is next.
    pub fn want_sign(&mut self, sign: char) -> Result<()> {
        if self.take_sign(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    /// Takes a word, whichever it is, in capitals.
    ///
    /// # Errors
    /// Something else is next.
    pub fn any_word(&mut self, wanted: &str) -> Result<String> {
        match self.peek() {
            Some(Lexeme::Word(word)) => {
                let word = word.to_ascii_uppercase();
                self.next();
                Ok(word)
            }
            _ => Err(self.unexpected(wanted)),
        }
    }

    /// The error for the next lexeme.
    pub fn unexpected(&self, wanted: &str) -> Error {
        let found = self.peek().map_or("the end of the script".to_owned(), |lexeme| format!("`{lexeme}`"));
        Error::usage(self.at().to_string(), format!("{found} is here, and {wanted} is expected"), HINT)
    }
}

/// The hint of every error in the grammar.
pub(crate) const HINT: &str = "fullbore help sql shows the statements that fullbore knows";
