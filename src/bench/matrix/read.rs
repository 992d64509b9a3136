//! Reads a TOML file by serde. Each value that has bounds keeps its position, so that each error names its line.

use std::fmt;
use std::ops::RangeInclusive;

use fullbore_core::{Error, Result};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use strsim::levenshtein;
use toml::Spanned;

/// Where an error has no hint of its own.
const MANUAL: &str = "see docs/BENCH.md for the form of a matrix";
/// Words of serde, and those of this program.
const WORDS: [(&str, &str); 6] = [
    ("unknown field", "unknown key"),
    ("unknown variant", "unknown word"),
    ("expected u64", "expected a whole number"),
    ("expected f64", "expected a number"),
    ("expected a map", "expected a table"),
    ("expected a sequence", "expected a list"),
];

/// The file that is read, for messages.
pub struct Location<'a> {
    /// Its name.
    pub file: &'a str,
    /// All of it.
    pub text: &'a str,
}

impl Location<'_> {
    /// The whole file.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        toml::from_str(self.text).map_err(|error| self.explained(error))
    }

    fn explained(&self, mut error: toml::de::Error) -> Error {
        let start = error.span().map_or(0, |span| span.start);
        // Without the input the error names its key instead of quoting its line.
        error.set_input(None);
        let text = WORDS.iter().fold(error.to_string(), |text, (theirs, ours)| text.replace(theirs, ours));
        let (message, key) = text.trim_end().split_once('\n').unwrap_or((text.trim_end(), ""));
        let mut quoted = message.split('`').skip(1).step_by(2);
        match (message.starts_with("unknown "), quoted.next()) {
            (true, Some(word)) => {
                let why = message.split(", expected ").next().unwrap_or(message);
                self.wrong(start, format!("{why} {key}").trim_end(), nearest(word, &quoted.collect::<Vec<_>>()))
            }
            _ if key.is_empty() => self.wrong(start, message, MANUAL),
            _ => self.wrong(start, format!("{key}: {message}"), MANUAL),
        }
    }

    /// A number within bounds.
    pub fn within<T>(&self, key: &str, value: Option<Spanned<T>>, bounds: RangeInclusive<T>) -> Result<Option<T>>
    where
        T: PartialOrd + Copy + fmt::Display,
    {
        let Some(value) = value else { return Ok(None) };
        if bounds.contains(value.get_ref()) {
            return Ok(Some(*value.get_ref()));
        }
        let (least, most) = (bounds.start(), bounds.end());
        let why = format!("`{key}` should be a number from {least} to {most}");
        Err(self.wrong(value.span().start, why, format!("for example {key} = {least}")))
    }

    /// A text, parsed by `parse`; its error gets the line.
    pub fn parsed<T>(&self, value: Option<Spanned<String>>, parse: impl Fn(&str) -> Result<T>) -> Result<Option<T>> {
        let parse =
            |value: Spanned<String>| parse(value.get_ref()).map_err(|error| self.because(value.span().start, &error));
        value.map(parse).transpose()
    }

    /// A usage error at a byte of the file.
    pub fn wrong(&self, start: usize, why: impl Into<String>, hint: impl Into<String>) -> Error {
        let line = self.text[..start.min(self.text.len())].matches('\n').count() + 1;
        Error::usage(format!("{}, line {line}", self.file), why, hint)
    }

    /// Another error, with the line.
    pub fn because(&self, start: usize, error: &Error) -> Error {
        let text = error.to_string();
        let (why, hint) = text.split_once("\n  hint: ").unwrap_or((&text, MANUAL));
        self.wrong(start, why, hint)
    }
}

/// A word, or a list of words: `codec = "lz4"`, `stripes = [1, 4]`.
pub enum Words {
    /// Without a list.
    One(String),
    /// Each with its position.
    Many(Vec<Spanned<Word>>),
}

/// A text, or a whole number as text: `stripes = 4` and `stripes = "4"`.
pub struct Word(String);

impl Words {
    /// The words, each with its position.
    pub fn each(words: Spanned<Self>) -> Vec<(usize, String)> {
        let start = words.span().start;
        let each = |word: Spanned<Word>| (word.span().start, word.into_inner().0);
        match words.into_inner() {
            Words::One(word) => vec![(start, word)],
            Words::Many(words) => words.into_iter().map(each).collect(),
        }
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OneOrMany)
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match from.deserialize_any(OneOrMany)? {
            Words::One(word) => Ok(Self(word)),
            Words::Many(_) => Err(D::Error::custom("there is a list in a list")),
        }
    }
}

struct OneOrMany;

impl<'de> Visitor<'de> for OneOrMany {
    type Value = Words;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a whole number or a list of them")
    }

    fn visit_str<E>(self, text: &str) -> Result<Words, E> {
        Ok(Words::One(text.to_owned()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Words, E> {
        Ok(Words::One(number.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Words, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Words::Many)
    }
}

/// The word that was probably meant, or all known words.
pub fn nearest(word: &str, known: &[&str]) -> String {
    // If more than a third of the letters differ, it is another word.
    let close =
        known.iter().map(|one| (levenshtein(word, one), one)).min().filter(|(far, _)| far * 3 <= word.len().max(3));
    match close {
        Some((_, one)) => format!("did you mean `{one}`?"),
        None => format!("there are: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_named_and_a_far_one_is_not() {
        assert_eq!(nearest("strips", &["stripes", "codec"]), "did you mean `stripes`?");
        assert_eq!(nearest("buffercount", &["buffer-count", "workers"]), "did you mean `buffer-count`?");
        assert_eq!(nearest("colour", &["stripes", "codec"]), "there are: stripes, codec");
        assert_eq!(
            (nearest("lz", &["lz4"]), nearest("", &["lz4"])),
            ("did you mean `lz4`?".into(), "there are: lz4".into())
        );
    }
}
