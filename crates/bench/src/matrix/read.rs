//! Reads a TOML file with the line of each value, so that each error names its line.

use fullbore_core::{Error, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file that is read, for messages.
pub struct Location<'a> {
    /// Its name.
    pub file: &'a str,
    /// All of it.
    pub text: &'a str,
}

/// A value and its position.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    place: &'a Location<'a>,
    key: &'a str,
    start: usize,
    value: &'a DeValue<'a>,
}

/// A table and the name that it has in messages.
#[derive(Clone)]
pub struct Table<'a> {
    place: &'a Location<'a>,
    name: String,
    table: &'a DeTable<'a>,
}

impl Location<'_> {
    /// A usage error at a byte of the file.
    pub fn wrong(&self, start: usize, why: impl Into<String>, hint: impl Into<String>) -> Error {
        let line = self.text[..start.min(self.text.len())].matches('\n').count() + 1;
        Error::usage(format!("{}, line {line}", self.file), why, hint)
    }
}

impl<'a> Table<'a> {
    /// The whole file.
    pub fn whole(place: &'a Location<'a>, table: &'a DeTable<'a>) -> Self {
        Self { place, name: String::new(), table }
    }

    /// Refuses keys that are not in `known`, and suggests the nearest one.
    pub fn only(&self, known: &[&str]) -> Result<()> {
        for (key, _) in self.table {
            if !known.contains(&key.get_ref().as_ref()) {
                let of = if self.name.is_empty() { String::new() } else { format!(" in [{}]", self.name) };
                let why = format!("unknown key `{}`{of}", key.get_ref());
                return Err(self.place.wrong(key.span().start, why, nearest(key.get_ref(), known)));
            }
        }
        Ok(())
    }

    /// The value of a key.
    pub fn get(&self, key: &'a str) -> Option<Value<'a>> {
        let value: &Spanned<DeValue<'a>> = self.table.get(key)?;
        Some(Value { place: self.place, key, start: value.span().start, value: value.get_ref() })
    }

    /// The tables inside a table, each with its name.
    pub fn tables(&self, key: &'a str) -> Result<Vec<(String, Table<'a>)>> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let DeValue::Table(tables) = value.value else { return Err(value.wrong("a table of tables", "[NAME.x]")) };
        let inner = |(name, table): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let name: &std::borrow::Cow<'_, str> = name.get_ref();
            match table.get_ref() {
                DeValue::Table(inner) => {
                    let shown = format!("{key}.{name}");
                    Ok((name.to_string(), Table { place: self.place, name: shown, table: inner }))
                }
                _ => Err(value.wrong("a table of tables", &format!("[{key}.NAME]"))),
            }
        };
        tables.iter().map(inner).collect()
    }

    /// A table inside.
    pub fn table(&self, key: &'a str) -> Result<Option<Table<'a>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.value {
            DeValue::Table(table) => Ok(Some(Table { place: self.place, name: key.to_owned(), table })),
            _ => Err(value.wrong("a table", &format!("[{key}]"))),
        }
    }

    /// The tables of `[[key]]`.
    pub fn list(&self, key: &'a str) -> Result<Vec<Table<'a>>> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let wrong = || value.wrong("a list of tables", &format!("[[{key}]]"));
        let DeValue::Array(list) = value.value else { return Err(wrong()) };
        let one = |item: &'a Spanned<DeValue<'a>>| match item.get_ref() {
            DeValue::Table(table) => Ok(Table { place: self.place, name: key.to_owned(), table }),
            _ => Err(wrong()),
        };
        list.iter().map(one).collect()
    }

    /// A text.
    pub fn text(&self, key: &'a str) -> Result<Option<String>> {
        self.get(key).map(|value| value.text()).transpose()
    }

    /// A whole number from `least` to `most`.
    pub fn whole_number(&self, key: &'a str, least: u64, most: u64) -> Result<Option<u64>> {
        self.get(key).map(|value| value.whole_number(least, most)).transpose()
    }

    /// A number from `least` to `most`.
    pub fn number(&self, key: &'a str, least: f64, most: f64) -> Result<Option<f64>> {
        self.get(key).map(|value| value.number(least, most)).transpose()
    }

    /// A text, parsed by `parse`; its error gets the line.
    pub fn parsed<T>(&self, key: &'a str, parse: impl Fn(&str) -> Result<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let text = value.text()?;
        parse(&text).map(Some).map_err(|error| value.because(&error))
    }

    /// An error about the whole table.
    pub fn wrong(&self, why: impl Into<String>, hint: impl Into<String>) -> Error {
        let start = self.table.iter().map(|(key, _)| key.span().start).min();
        let what: String = why.into();
        self.place.wrong(start.unwrap_or(0), format!("[{}]: {what}", self.name), hint)
    }
}

impl<'a> Value<'a> {
    /// The value, or the values of a list, each with its position.
    pub fn each(&self) -> Vec<Value<'a>> {
        match self.value {
            DeValue::Array(list) => {
                list.iter().map(|item| Value { start: item.span().start, value: item.get_ref(), ..*self }).collect()
            }
            _ => vec![*self],
        }
    }

    /// A text.
    pub fn text(&self) -> Result<String> {
        match self.value {
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(self.wrong("a text", "\"…\"")),
        }
    }

    /// A text, or a whole number as text: `stripes = 4` and `stripes = "4"`.
    pub fn word(&self) -> Result<String> {
        match self.value {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
            _ => Err(self.wrong("a text or a whole number", "4")),
        }
    }

    /// `true` or `false`.
    pub fn yes(&self) -> Result<bool> {
        match self.value {
            DeValue::Boolean(yes) => Ok(*yes),
            _ => Err(self.wrong("true or false", "true")),
        }
    }

    /// A whole number from `least` to `most`.
    pub fn whole_number(&self, least: u64, most: u64) -> Result<u64> {
        let number = match self.value {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let within = number.filter(|number| (least..=most).contains(number));
        within.ok_or_else(|| self.wrong(&format!("a whole number from {least} to {most}"), &least.to_string()))
    }

    /// A number from `least` to `most`.
    pub fn number(&self, least: f64, most: f64) -> Result<f64> {
        let number: Option<f64> = match self.value {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        let within = number.filter(|number| (least..=most).contains(number));
        within.ok_or_else(|| self.wrong(&format!("a number from {least} to {most}"), &least.to_string()))
    }

    /// The error that the value should be `what`, for example `example`.
    pub fn wrong(&self, what: &str, example: &str) -> Error {
        let why = format!("`{}` should be {what}", self.key);
        self.place.wrong(self.start, why, format!("for example {} = {example}", self.key))
    }

    /// Another error, with the line.
    pub fn because(&self, error: &Error) -> Error {
        let text = error.to_string();
        let (why, hint) = text.split_once("\n  hint: ").unwrap_or((&text, "see docs/BENCH.md"));
        self.place.wrong(self.start, why, hint)
    }

    /// An error at its line.
    pub fn refused(&self, why: impl Into<String>, hint: impl Into<String>) -> Error {
        self.place.wrong(self.start, why, hint)
    }
}

/// The word that was probably meant, or all known words.
pub fn nearest(word: &str, known: &[&str]) -> String {
    // If more than a third of the letters differ, it is another word.
    let close =
        known.iter().map(|one| (distance(word, one), one)).min().filter(|(far, _)| far * 3 <= word.len().max(3));
    match close {
        Some((_, one)) => format!("did you mean `{one}`?"),
        None => format!("there are: {}", known.join(", ")),
    }
}

/// Letters to insert, remove or change (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, letter) in left.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, other) in right.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_named_and_a_far_one_is_not() {
        assert_eq!(nearest("strips", &["stripes", "codec"]), "did you mean `stripes`?");
        assert_eq!(nearest("buffercount", &["buffer-count", "workers"]), "did you mean `buffer-count`?");
        assert_eq!(nearest("colour", &["stripes", "codec"]), "there are: stripes, codec");
        assert_eq!((distance("", "abc"), distance("abc", "abc"), distance("abc", "bc")), (3, 0, 1));
    }
}
