//! Values of a script: texts, numbers, variables, `+`, and the functions that scripts of backups use.

use std::collections::HashMap;

use fullbore_core::{Error, Result};
use jiff::Zoned;
use jiff::fmt::strtime;

use super::lexemes::{Lexeme, Position};
use super::parser::{HINT, Parser};

/// A text that a script may build, in bytes: a path is shorter.
const TEXT_MAX: usize = 64 << 10;
/// Brackets and calls inside each other.
const DEPTH_MAX: u8 = 32;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
    Time(Zoned),
    Null,
}

impl Value {
    /// The text of the value, as `+` and PRINT need it.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Time(time) => converted(time, 0).unwrap_or_default(),
            Self::Null => String::new(),
        }
    }
}

/// The variables of a script, by their names in small letters.
pub(crate) struct Variables {
    values: HashMap<String, Value>,
    now: Zoned,
}

impl Variables {
    /// No variables. GETDATE() is `now`.
    pub fn new(now: Zoned) -> Self {
        Self { values: HashMap::new(), now }
    }

    /// A new variable, or a new value of one.
    pub fn set(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_lowercase(), value);
    }

    /// True if it was declared.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(&name.to_lowercase())
    }

    /// Ends a batch: its variables are gone.
    pub fn clear(&mut self) {
        self.values.clear();
    }

    /// The value that is next in the script.
    ///
    /// # Errors
    /// It is no value, an unknown variable or function, or it adds a number to a text.
    pub fn value(&self, parser: &mut Parser) -> Result<Value> {
        self.sum(parser, DEPTH_MAX)
    }

    fn sum(&self, parser: &mut Parser, depth: u8) -> Result<Value> {
        let at = parser.at();
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Error::usage(at.to_string(), "too many brackets are inside each other", "use variables"));
        };
        let mut value = self.term(parser, depth)?;
        while parser.take_sign('+') {
            let other = self.term(parser, depth)?;
            value = match (value, other) {
                (Value::Null, _) | (_, Value::Null) => Value::Null,
                (Value::Number(one), Value::Number(other)) => Value::Number(
                    one.checked_add(other)
                        .ok_or_else(|| Error::usage(at.to_string(), "this sum is too large", "use smaller numbers"))?,
                ),
                (Value::Text(one), Value::Text(other)) if one.len() + other.len() <= TEXT_MAX => {
                    Value::Text(one + &other)
                }
                (Value::Text(_), Value::Text(_)) => {
                    return Err(Error::usage(at.to_string(), "this text is longer than 64 KiB", "use a shorter text"));
                }
                _ => {
                    let why = "a text is added to a number or a time";
                    return Err(Error::usage(at.to_string(), why, "convert it: CONVERT(nvarchar(20), …)"));
                }
            };
        }
        Ok(value)
    }

    fn term(&self, parser: &mut Parser, depth: u8) -> Result<Value> {
        let at = parser.at();
        match parser.peek().cloned() {
            Some(Lexeme::Text(text)) => {
                parser.next();
                Ok(Value::Text(text))
            }
            Some(Lexeme::Number(digits)) => {
                parser.next();
                number(&digits, at)
            }
            Some(Lexeme::Sign('-')) => {
                parser.next();
                match self.term(parser, depth)? {
                    Value::Number(number) => Ok(Value::Number(number.saturating_neg())),
                    _ => Err(parser.unexpected("a number")),
                }
            }
            Some(Lexeme::Sign('(')) => {
                parser.next();
                let value = self.sum(parser, depth)?;
                parser.want_sign(')')?;
                Ok(value)
            }
            Some(Lexeme::Variable(name)) => {
                parser.next();
                self.variable(&name, at)
            }
            Some(Lexeme::Word(word)) if word.eq_ignore_ascii_case("NULL") => {
                parser.next();
                Ok(Value::Null)
            }
            Some(Lexeme::Word(word)) if parser.ahead(1) == Some(&Lexeme::Sign('(')) => {
                parser.next();
                parser.next();
                self.call(&word.to_ascii_uppercase(), at, parser, depth)
            }
            _ => Err(parser.unexpected("a text, a number or a variable")),
        }
    }

    fn variable(&self, name: &str, at: Position) -> Result<Value> {
        if name.eq_ignore_ascii_case("@SERVERNAME") {
            return Ok(Value::Text(fullbore_core::resources::host()));
        }
        self.values.get(&name.to_lowercase()).cloned().ok_or_else(|| {
            let why = "this variable is not declared in its batch";
            Error::usage(format!("{at}: @{name}"), why, format!("add: DECLARE @{name} nvarchar(260) = N'…'"))
        })
    }

    fn call(&self, function: &str, at: Position, parser: &mut Parser, depth: u8) -> Result<Value> {
        let value = match function {
            "GETDATE" | "SYSDATETIME" => Value::Time(self.now.clone()),
            "GETUTCDATE" | "SYSUTCDATETIME" => Value::Time(self.now.with_time_zone(jiff::tz::TimeZone::UTC)),
            "CONVERT" => {
                let into = type_name(parser)?;
                parser.want_sign(',')?;
                let value = self.sum(parser, depth)?;
                let style = if parser.take_sign(',') { self.sum(parser, depth)? } else { Value::Number(0) };
                convert(&value, &into, &style, at)?
            }
            "CAST" => {
                let value = self.sum(parser, depth)?;
                parser.want_word("AS")?;
                convert(&value, &type_name(parser)?, &Value::Number(0), at)?
            }
            "REPLACE" => {
                let text = self.sum(parser, depth)?;
                parser.want_sign(',')?;
                let from = self.sum(parser, depth)?;
                parser.want_sign(',')?;
                let to = self.sum(parser, depth)?;
                if [&text, &from, &to].contains(&&Value::Null) {
                    Value::Null
                } else {
                    let (text, from) = (text.text(), from.text());
                    limited(if from.is_empty() { text } else { text.replace(&from, &to.text()) }, at)?
                }
            }
            // NULL is an empty text here, and nowhere else.
            "CONCAT" => {
                let mut joined = self.sum(parser, depth)?.text();
                while parser.take_sign(',') {
                    joined.push_str(&self.sum(parser, depth)?.text());
                }
                limited(joined, at)?
            }
            "FORMAT" => {
                let value = self.sum(parser, depth)?;
                parser.want_sign(',')?;
                format(&value, &self.sum(parser, depth)?.text(), at)?
            }
            "UPPER" | "LOWER" => match self.sum(parser, depth)? {
                Value::Null => Value::Null,
                value if function == "UPPER" => Value::Text(value.text().to_uppercase()),
                value => Value::Text(value.text().to_lowercase()),
            },
            other => {
                let why = format!("fullbore does not know the function {other}");
                return Err(Error::usage(at.to_string(), why, HINT));
            }
        };
        parser.want_sign(')')?;
        Ok(value)
    }
}

/// A text that is short enough.
fn limited(text: String, at: Position) -> Result<Value> {
    match text.len() {
        0..=TEXT_MAX => Ok(Value::Text(text)),
        _ => Err(Error::usage(at.to_string(), "this text is longer than 64 KiB", "use a shorter text")),
    }
}

fn number(digits: &str, at: Position) -> Result<Value> {
    let number = digits.parse().map_err(|_| {
        Error::usage(at.to_string(), format!("{digits} is not a whole number of 64 bits"), "write a whole number")
    })?;
    Ok(Value::Number(number))
}

/// A data type: `nvarchar(260)` has 260 characters, and `int` or `nvarchar(max)` has no limit.
pub(crate) struct DataType {
    /// In capitals.
    name: String,
    most: Option<usize>,
}

/// The data type that is next in the script.
///
/// # Errors
/// No type is next.
pub(crate) fn type_name(parser: &mut Parser) -> Result<DataType> {
    let mut name = parser.any_word("a data type")?;
    while parser.take_sign('.') {
        name = parser.any_word("a data type")?;
    }
    let mut most = None;
    if parser.take_sign('(') {
        if let Some(Lexeme::Number(digits)) = parser.peek() {
            most = digits.parse().ok();
            parser.next();
        } else {
            parser.want_word("MAX")?;
        }
        if parser.take_sign(',') {
            parser.next();
        }
        parser.want_sign(')')?;
    }
    // Without a length, SQL Server takes 30 characters in CONVERT, and a time has more in no style.
    Ok(DataType { most: most.filter(|_| name.contains("CHAR")), name })
}

fn convert(value: &Value, into: &DataType, style: &Value, at: Position) -> Result<Value> {
    let most = into.most;
    let text = match (value, style) {
        (Value::Null, _) => return Ok(Value::Null),
        (Value::Time(_), _) if ["DATETIME", "DATETIME2"].contains(&into.name.as_str()) => return Ok(value.clone()),
        (Value::Time(_), _) if !into.name.contains("CHAR") => {
            let why = format!("fullbore does not convert a time to {}", into.name);
            return Err(Error::usage(
                at.to_string(),
                why,
                "convert it to a text: CONVERT(nvarchar(8), GETDATE(), 112)",
            ));
        }
        (Value::Time(time), Value::Number(style)) => converted(time, *style).ok_or_else(|| {
            let hint = "use 112 (20261126), 120 (2026-11-26 10:00:00), 126 (2026-11-26T10:00:00) or 108 (10:00:00)";
            Error::usage(at.to_string(), format!("fullbore does not know the style {style} of a time"), hint)
        })?,
        (value, _) => value.text(),
    };
    let cut = most.map_or(text.clone(), |most| text.chars().take(most).collect());
    match (value, most) {
        (Value::Number(number), None) => Ok(Value::Number(*number)),
        _ => Ok(Value::Text(cut)),
    }
}

/// A time for `--stop-at`. Without a zone it is in the zone of this machine, as SQL Server takes it.
///
/// # Errors
/// It is no time.
pub(crate) fn moment(value: Option<&Value>, at: Position) -> Result<String> {
    let wrong = |found: &str| {
        let hint = "write STOPAT = '2026-11-26T10:00:00', or with a zone: '2026-11-26T10:00:00Z'";
        Error::usage(format!("{at}: STOPAT"), format!("`{found}` is not a time"), hint)
    };
    match value {
        Some(Value::Time(time)) => Ok(time.timestamp().to_string()),
        Some(Value::Text(text)) => {
            let text = text.trim().replacen(' ', "T", 1);
            if let Ok(moment) = text.parse::<jiff::Timestamp>() {
                return Ok(moment.to_string());
            }
            let local = text.parse::<jiff::civil::DateTime>().map_err(|_| wrong(&text))?;
            let zoned = local.to_zoned(jiff::tz::TimeZone::system()).map_err(|_| wrong(&text))?;
            Ok(zoned.timestamp().to_string())
        }
        _ => Err(wrong("")),
    }
}

/// A time in one of SQL Server's styles of CONVERT.
fn converted(time: &Zoned, style: i64) -> Option<String> {
    let pattern = match style {
        0 | 100 => "%b %e %Y %l:%M%p",
        12 => "%y%m%d",
        23 => "%Y-%m-%d",
        8 | 24 | 108 => "%H:%M:%S",
        20 | 120 => "%Y-%m-%d %H:%M:%S",
        21 | 25 | 121 => "%Y-%m-%d %H:%M:%S.%3f",
        112 => "%Y%m%d",
        126 => "%Y-%m-%dT%H:%M:%S",
        _ => return None,
    };
    strtime::format(pattern, time).ok()
}

/// FORMAT of a time by a pattern of .NET: only years to seconds.
fn format(value: &Value, pattern: &str, at: Position) -> Result<Value> {
    let time = match value {
        Value::Time(time) => time,
        Value::Null => return Ok(Value::Null),
        other => {
            let why = format!("FORMAT needs a time, and `{}` is not one", other.text());
            return Err(Error::usage(at.to_string(), why, "write FORMAT(GETDATE(), 'yyyyMMdd_HHmmss')"));
        }
    };
    let parts = [("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"), ("ss", "%S"), ("yy", "%y")];
    let mut made = String::new();
    let mut rest = pattern;
    while let Some(letter) = rest.chars().next() {
        if let Some((part, in_ours)) = parts.iter().find(|(part, _)| rest.starts_with(part)) {
            made.push_str(in_ours);
            rest = &rest[part.len()..];
        } else if letter.is_ascii_alphabetic() || letter == '%' {
            let why = format!("fullbore does not know `{letter}` in a pattern of FORMAT");
            return Err(Error::usage(at.to_string(), why, "use yyyy, MM, dd, HH, mm and ss"));
        } else {
            made.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    strtime::format(&made, time).map(Value::Text).map_err(|error| Error::usage(at.to_string(), error.to_string(), HINT))
}

#[cfg(test)]
mod tests;
