//! The options of a statement: `WITH NAME = value, NAME, NAME (PART = value, …)`.

use fullbore_core::{Error, Result};

use super::expression::{Value, Variables};
use super::lexemes::{Lexeme, Position};
use super::parser::{HINT, Parser};

/// Options that say the opposite of each other.
const OPPOSITES: [(&str, &str); 8] = [
    ("INIT", "NOINIT"),
    ("FORMAT", "NOFORMAT"),
    ("CHECKSUM", "NO_CHECKSUM"),
    ("COMPRESSION", "NO_COMPRESSION"),
    ("RECOVERY", "NORECOVERY"),
    ("STOP_ON_ERROR", "CONTINUE_AFTER_ERROR"),
    ("SKIP", "NOSKIP"),
    ("STOPATMARK", "STOPBEFOREMARK"),
];

/// Options with a time behind their value.
const MARKS: [&str; 2] = ["STOPATMARK", "STOPBEFOREMARK"];

/// One option as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Given {
    /// In capitals.
    pub name: String,
    pub at: Position,
    pub value: Option<Value>,
    /// The parts in brackets: `(ALGORITHM = ZSTD, LEVEL = HIGH)`; a part may have two words before `=`.
    pub parts: Vec<(String, String)>,
    /// `MOVE 'logical' TO 'path'`: the path. `STOPATMARK = 'name' AFTER 'time'`: the time.
    pub to: Option<Value>,
}

impl Given {
    /// The option's value as a whole number from `least` to `most`.
    ///
    /// # Errors
    /// There is none, or it is not such a number. A text of digits is not a number.
    pub fn number(&self, least: u64, most: u64) -> Result<u64> {
        let wrong = |why: &str| {
            let hint = format!("write {} = {least}, or a number up to {most}", self.name);
            Err(self.wrong(format!("it needs a whole number, {why}"), hint))
        };
        match &self.value {
            Some(Value::Number(number)) => match u64::try_from(*number) {
                Ok(found) if (least..=most).contains(&found) => Ok(found),
                _ if *number < 0 => wrong(&format!("and {number} is below 0")),
                _ => wrong(&format!("and {number} is not between {least} and {most}")),
            },
            Some(Value::Text(text)) => wrong(&format!("and '{text}' is a text")),
            Some(Value::Time(_)) => wrong("and this is a time"),
            Some(Value::Null) => wrong("and this is NULL"),
            None => wrong("and it has no value"),
        }
    }

    /// The option's value, which `check` accepts; `example` is one that it accepts.
    ///
    /// # Errors
    /// It is not a whole number, or `check` refuses it: then with the reason of `check`.
    pub fn checked<T>(&self, check: impl FnOnce(u64) -> Result<T>, example: u64) -> Result<u64> {
        let number = self.number(1, u32::MAX.into())?;
        match check(number) {
            Ok(_) => Ok(number),
            Err(Error::Usage { why, .. }) => Err(self.wrong(why, format!("write {} = {example}", self.name))),
            Err(other) => Err(other),
        }
    }

    /// The option's value as a text.
    ///
    /// # Errors
    /// There is none.
    pub fn text(&self) -> Result<String> {
        match &self.value {
            Some(Value::Text(text)) if !text.is_empty() => Ok(text.clone()),
            Some(time @ Value::Time(_)) => Ok(time.text()),
            _ => Err(self.wrong("it needs a text", format!("write {} = N'…'", self.name))),
        }
    }

    /// Refuses a value and parts: the option is a word alone.
    ///
    /// # Errors
    /// There is one.
    pub fn alone(&self) -> Result<()> {
        if self.value.is_some() || !self.parts.is_empty() {
            return Err(self.wrong("it has no value", format!("write {} alone", self.name)));
        }
        Ok(())
    }

    /// The error for an option that cannot be.
    pub fn wrong(&self, why: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::usage(format!("{}: {}", self.at, self.name), why, hint)
    }

    /// The error for an option that fullbore does not have.
    pub fn unknown(&self, statement: &str) -> Error {
        self.wrong(format!("fullbore has no such option of {statement}"), HINT)
    }
}

/// FILE: the position of a set on its media.
pub(crate) fn file(option: &Given) -> Result<u16> {
    Ok(u16::try_from(option.number(1, u16::MAX.into())?).unwrap_or(1))
}

/// True for options that ask for what fullbore always does, and for options of tapes.
pub(crate) fn has_no_effect(option: &str) -> bool {
    ["CHECKSUM", "STOP_ON_ERROR", "REWIND", "NOREWIND", "UNLOAD", "NOUNLOAD"].contains(&option)
}

/// Options behind WITH; none if there is no WITH.
///
/// # Errors
/// Words that are no options, or an option that is given twice.
pub(crate) fn options(parser: &mut Parser, variables: &Variables) -> Result<Vec<Given>> {
    let mut given: Vec<Given> = Vec::new();
    if !parser.take_word("WITH") {
        return Ok(given);
    }
    loop {
        let option = option(parser, variables)?;
        if option.name != "MOVE" && given.iter().any(|known| known.name == option.name) {
            return Err(option.wrong("it is given twice", "give it once"));
        }
        let other = OPPOSITES.iter().find_map(|(one, other)| match option.name.as_str() {
            name if name == *one => Some(*other),
            name if name == *other => Some(*one),
            _ => None,
        });
        if let Some(other) = other.filter(|other| given.iter().any(|known| known.name == *other)) {
            return Err(option.wrong(format!("{other} is given too"), "give one of them"));
        }
        given.push(option);
        if !parser.take_sign(',') {
            return Ok(given);
        }
    }
}

fn option(parser: &mut Parser, variables: &Variables) -> Result<Given> {
    let at = parser.at();
    let name = parser.any_word("an option")?;
    let mut given = Given { name, at, value: None, parts: Vec::new(), to: None };
    if given.name == "MOVE" {
        given.value = Some(variables.value(parser)?);
        parser.want_word("TO")?;
        given.to = Some(variables.value(parser)?);
    } else if parser.take_sign('=') {
        refuse_fraction(&given, parser)?;
        given.value = Some(variables.value(parser)?);
        if MARKS.contains(&given.name.as_str()) && parser.take_word("AFTER") {
            given.to = Some(variables.value(parser)?);
        }
    } else if parser.take_sign('(') {
        loop {
            given.parts.push(part(parser)?);
            if !parser.take_sign(',') {
                break;
            }
        }
        parser.want_sign(')')?;
    }
    Ok(given)
}

/// The error of a number such as `1.5` names its option.
fn refuse_fraction(given: &Given, parser: &Parser) -> Result<()> {
    let sign = usize::from(parser.peek() == Some(&Lexeme::Sign('-')));
    match parser.ahead(sign) {
        Some(Lexeme::Number(digits)) if digits.parse::<i64>().is_err() => {
            let why = format!("it needs a whole number, and {digits} is not one that fits");
            Err(given.wrong(why, format!("write {} = 1", given.name)))
        }
        _ => Ok(()),
    }
}

/// `ALGORITHM = AES_256`, or `SERVER CERTIFICATE = [name]`.
fn part(parser: &mut Parser) -> Result<(String, String)> {
    let mut name = parser.any_word("a part of the option")?;
    while parser.peek() != Some(&Lexeme::Sign('=')) {
        name = format!("{name} {}", parser.any_word("`=`")?);
    }
    parser.want_sign('=')?;
    match parser.next() {
        Some(Lexeme::Word(value) | Lexeme::Name(value) | Lexeme::Text(value) | Lexeme::Number(value)) => {
            Ok((name, value))
        }
        _ => Err(parser.unexpected("a value")),
    }
}
