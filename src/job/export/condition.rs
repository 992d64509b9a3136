//! `--where`: comparisons of columns with values, joined by AND. Nothing else is understood, so nothing can be hidden in it.

use std::cmp::Ordering;

use fullbore_core::units::bytes_of_digits;
use fullbore_core::{Error, Result};
use fullbore_engines::{Cell, ColumnKind, TableColumn};
use uuid::Uuid;

use super::cell_text;

/// Comparisons that must all be true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    comparisons: Vec<Comparison>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Comparison {
    column: String,
    operator: Operator,
    value: Literal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    IsNull,
    IsNotNull,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Literal {
    None,
    /// A number: its digits, and how many of them are behind the point.
    Number(i128, u8),
    Text(String),
    Bytes(Vec<u8>),
}

/// A comparison with a column of one table.
pub struct Bound {
    /// The place of the column in the table.
    pub column: usize,
    kind: ColumnKind,
    operator: Operator,
    value: Literal,
}

impl Condition {
    /// Parses the value of `--where`.
    ///
    /// # Errors
    /// A usage error that names what is not understood.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: String| {
            let hint =
                "write COLUMN = VALUE, with AND between comparisons: \"OrderID = 10248 AND [Ship Country] = 'France'\"";
            Error::usage(format!("--where {text}"), why, hint)
        };
        let mut tokens = tokens(text).map_err(wrong)?.into_iter().peekable();
        let mut comparisons = Vec::new();
        loop {
            comparisons.push(comparison(&mut tokens).map_err(wrong)?);
            match tokens.next() {
                None => return Ok(Self { comparisons, text: text.to_owned() }),
                Some(Token::Word(word)) if word.eq_ignore_ascii_case("and") => {}
                Some(other) => return Err(wrong(format!("{} is not understood here", other.shown()))),
            }
        }
    }

    /// The comparisons with the columns of a table.
    ///
    /// # Errors
    /// The table has no such column, or the column cannot be compared in this way.
    pub fn bind(&self, columns: &[TableColumn], table: &str) -> Result<Vec<Bound>> {
        self.comparisons.iter().map(|comparison| self.bind_one(comparison, columns, table)).collect()
    }

    fn bind_one(&self, comparison: &Comparison, columns: &[TableColumn], table: &str) -> Result<Bound> {
        let place = columns.iter().position(|column| column.name.eq_ignore_ascii_case(&comparison.column));
        let Some((place, column)) = place.and_then(|place| Some((place, columns.get(place)?))) else {
            let why = format!("{table} has no column {}", comparison.column);
            return Err(Error::usage(format!("--where {}", self.text), why, "choose tables that have it with --table"));
        };
        let is_null_test = matches!(comparison.operator, Operator::IsNull | Operator::IsNotNull);
        let value = match is_null_test {
            true => Some(Literal::None),
            false => fitting(&comparison.value, column.kind),
        };
        let is_ordered = matches!(comparison.operator, Operator::Equal | Operator::Unequal) || is_null_test;
        let has_order =
            !matches!(column.kind, ColumnKind::Text | ColumnKind::Any | ColumnKind::Uuid | ColumnKind::Binary);
        match value.filter(|_| is_ordered || has_order) {
            Some(value) => Ok(Bound { column: place, kind: column.kind, operator: comparison.operator, value }),
            None => {
                let why = format!("column {} ({}) cannot be compared in this way", column.name, column.declared);
                let hint = "numbers and dates have all comparisons; text, uniqueidentifier and bytes have = and <>; write \
                            numbers without quotes, dates as '1998-01-31' or '19980131', bytes as 0x00AB";
                Err(Error::usage(format!("--where {}", self.text), why, hint))
            }
        }
    }
}

impl Bound {
    /// True if the cell passes. NULL passes IS NULL only.
    pub fn takes(&self, cell: &Cell) -> bool {
        let order = match (self.operator, cell) {
            (Operator::IsNull, cell) => return *cell == Cell::Null,
            (Operator::IsNotNull, cell) => return *cell != Cell::Null,
            (_, Cell::Null) => return false,
            (_, cell) => self.compare(cell),
        };
        match (self.operator, order) {
            (_, None) => false,
            (Operator::Equal, Some(order)) => order.is_eq(),
            (Operator::Unequal, Some(order)) => order.is_ne(),
            (Operator::Less, Some(order)) => order.is_lt(),
            (Operator::LessOrEqual, Some(order)) => order.is_le(),
            (Operator::Greater, Some(order)) => order.is_gt(),
            (Operator::GreaterOrEqual, Some(order)) => order.is_ge(),
            (Operator::IsNull | Operator::IsNotNull, _) => false,
        }
    }

    fn compare(&self, cell: &Cell) -> Option<Ordering> {
        match (cell, &self.value) {
            (Cell::Bool(value), Literal::Number(digits, scale)) => {
                Some(decimals((i128::from(*value), 0), (*digits, *scale)))
            }
            (Cell::Int(value), Literal::Number(digits, scale)) => {
                Some(decimals((i128::from(*value), 0), (*digits, *scale)))
            }
            (Cell::Decimal { digits, scale }, Literal::Number(other, places)) => {
                Some(decimals((*digits, *scale), (*other, *places)))
            }
            (Cell::Float(value), Literal::Number(digits, scale)) => value.partial_cmp(&float(*digits, *scale)),
            (Cell::Real(value), Literal::Number(digits, scale)) => value.partial_cmp(&(float(*digits, *scale) as f32)),
            (Cell::Binary(bytes), Literal::Bytes(other)) => Some(bytes.cmp(other)),
            (Cell::Uuid(id), Literal::Text(text)) => Some(id.cmp(&Uuid::parse_str(text).ok()?)),
            // A time that is not in one day: a literal is.
            (Cell::Text(text), Literal::Text(_)) if matches!(self.kind, ColumnKind::Time { .. }) => {
                Some(if text.starts_with('-') { Ordering::Less } else { Ordering::Greater })
            }
            // T-SQL ignores spaces at the end.
            (Cell::Text(text), Literal::Text(other)) => {
                Some(text.trim_end_matches(' ').cmp(other.trim_end_matches(' ')))
            }
            // Dates and times have a text whose order is theirs.
            (Cell::Date(_) | Cell::Time(_) | Cell::Moment(..), Literal::Text(other)) => {
                Some(cell_text::text(cell, self.finest()).as_str().cmp(other.as_str()))
            }
            (cell, Literal::Text(other)) => Some(cell_text::text(cell, self.kind).as_str().cmp(other.as_str())),
            _ => None,
        }
    }

    /// The kind with all digits of a second.
    fn finest(&self) -> ColumnKind {
        match self.kind {
            ColumnKind::Time { .. } => ColumnKind::Time { digits: 7 },
            ColumnKind::Moment { .. } => ColumnKind::Moment { digits: 7 },
            other => other,
        }
    }
}

/// The value as the column compares it. `None` if it cannot.
fn fitting(value: &Literal, kind: ColumnKind) -> Option<Literal> {
    use ColumnKind::{
        Any, Binary, Bool, Byte, Date, Decimal, Float, Int, Long, Moment, Real, Short, Text, Time, UnsignedLong,
    };
    match (value, kind) {
        (Literal::Number(..), Bool | Byte | Short | Int | Long | UnsignedLong | Decimal { .. } | Real | Float) => {
            Some(value.clone())
        }
        (Literal::Bytes(_), Binary) => Some(value.clone()),
        (Literal::Text(text), ColumnKind::Uuid) => Uuid::parse_str(text).ok().map(|_| value.clone()),
        (Literal::Text(_), Text | Any) => Some(value.clone()),
        (Literal::Text(text), Date) => date(text).map(Literal::Text),
        (Literal::Text(text), Time { .. }) => time(text).map(Literal::Text),
        (Literal::Text(text), Moment { .. }) => {
            let (day, rest) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
            Some(Literal::Text(format!("{} {}", date(day)?, time(rest)?)))
        }
        _ => None,
    }
}

/// `YYYY-MM-DD`, or `YYYYMMDD` as scripts of T-SQL have it.
fn date(text: &str) -> Option<String> {
    let is_short = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_digit());
    let (year, rest) = text.split_at_checked(4)?;
    let (month, day) = rest.split_at_checked(2)?;
    let whole = if is_short { format!("{year}-{month}-{day}") } else { text.to_owned() };
    (whole.len() == 10 && whole.parse::<jiff::civil::Date>().is_ok()).then_some(whole)
}

/// A time of day with seven digits of a second.
fn time(text: &str) -> Option<String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_part = part.len() <= 7 && part.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = if whole.len() == 5 { format!("{whole}:00") } else { whole.to_owned() };
    let is_time = seconds.len() == 8 && seconds.parse::<jiff::civil::Time>().is_ok();
    (is_time && is_part).then(|| format!("{seconds}.{part:0<7}"))
}

/// Two decimal numbers, exactly.
fn decimals(one: (i128, u8), other: (i128, u8)) -> Ordering {
    let scale = one.1.max(other.1);
    let at = |(digits, places): (i128, u8)| digits.checked_mul(10_i128.checked_pow(u32::from(scale - places))?);
    match (at(one), at(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        // Only the number with fewer places grows. If it does not fit, it is further from zero than the other one.
        (None, _) => one.0.cmp(&0),
        (_, None) => 0.cmp(&other.0),
    }
}

fn float(digits: i128, scale: u8) -> f64 {
    // Parsing rounds once; a division would round twice.
    format!("{digits}e-{scale}").parse().unwrap_or(f64::NAN)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// A name in brackets or quotes.
    Name(String),
    Sign(&'static str),
    Value(Literal),
}

impl Token {
    fn shown(&self) -> String {
        match self {
            Self::Word(text) | Self::Name(text) => format!("`{text}`"),
            Self::Sign(sign) => format!("`{sign}`"),
            Self::Value(_) => "a value".to_owned(),
        }
    }
}

fn comparison(tokens: &mut impl Iterator<Item = Token>) -> Result<Comparison, String> {
    let column = match tokens.next() {
        Some(Token::Word(name) | Token::Name(name)) => name,
        Some(other) => return Err(format!("{} is not a column", other.shown())),
        None => return Err("a column is missing".to_owned()),
    };
    let operator = match tokens.next() {
        Some(Token::Sign(sign)) => of_sign(sign),
        Some(Token::Word(word)) if word.eq_ignore_ascii_case("is") => {
            let operator = null_test(tokens).ok_or("after IS comes NULL or NOT NULL")?;
            return Ok(Comparison { column, operator, value: Literal::None });
        }
        Some(other) => return Err(format!("{} is not a comparison", other.shown())),
        None => return Err(format!("there is no comparison behind `{column}`")),
    };
    match tokens.next() {
        Some(Token::Value(value)) => Ok(Comparison { column, operator, value }),
        Some(other) => Err(format!("{} is not a value: texts have single quotes", other.shown())),
        None => Err("a value is missing".to_owned()),
    }
}

fn of_sign(sign: &str) -> Operator {
    match sign {
        "=" => Operator::Equal,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        _ => Operator::Unequal,
    }
}

/// `NULL` or `NOT NULL`.
fn null_test(tokens: &mut impl Iterator<Item = Token>) -> Option<Operator> {
    let mut word = || match tokens.next() {
        Some(Token::Word(word)) => word.to_ascii_lowercase(),
        _ => String::new(),
    };
    match word().as_str() {
        "null" => Some(Operator::IsNull),
        "not" if word() == "null" => Some(Operator::IsNotNull),
        _ => None,
    }
}

/// Cuts the text into tokens.
fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut rest = text.trim_start();
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '[' => quoted(rest, ']').map(|(name, after)| (Token::Name(name), after)),
            '"' => quoted(rest, '"').map(|(name, after)| (Token::Name(name), after)),
            '\'' => quoted(rest, '\'').map(|(text, after)| (Token::Value(Literal::Text(text)), after)),
            'N' | 'n' if rest.get(1..2) == Some("'") => quoted(rest.get(1..).unwrap_or_default(), '\'')
                .map(|(text, after)| (Token::Value(Literal::Text(text)), after)),
            '=' | '<' | '>' | '!' => sign(rest),
            '0'..='9' | '-' | '+' | '.' => number(rest),
            letter if letter.is_alphabetic() || letter == '_' => {
                let end =
                    rest.find(|next: char| !next.is_alphanumeric() && !"_@#$".contains(next)).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                Some((Token::Word(word.to_owned()), after))
            }
            _ => None,
        }
        .ok_or_else(|| format!("`{}` is not understood", rest.chars().take(20).collect::<String>()))?;
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

/// A text in quotes, where a doubled quote stands for one; and what follows.
fn quoted(rest: &str, end: char) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut characters = rest.char_indices().skip(1).peekable();
    while let Some((at, character)) = characters.next() {
        if character != end {
            text.push(character);
        } else if characters.peek().is_some_and(|(_, next)| *next == end) {
            characters.next();
            text.push(end);
        } else {
            return Some((text, rest.get(at + end.len_utf8()..)?));
        }
    }
    None
}

fn sign(rest: &str) -> Option<(Token, &str)> {
    const SIGNS: [&str; 7] = ["<>", "!=", "<=", ">=", "=", "<", ">"];
    let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign))?;
    Some((Token::Sign(sign), rest.get(sign.len()..)?))
}

/// `0x…`, or a decimal number.
fn number(rest: &str) -> Option<(Token, &str)> {
    let end = rest.find(|next: char| !next.is_ascii_alphanumeric() && !"+-.".contains(next)).unwrap_or(rest.len());
    let (text, after) = rest.split_at(end);
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return Some((Token::Value(Literal::Bytes(bytes_of_digits(hex)?)), after));
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = whole.strip_prefix(['-', '+']).unwrap_or(whole);
    if !is_digits(unsigned) || !is_digits(part) || unsigned.len() + part.len() == 0 || part.len() > 38 {
        return None;
    }
    let digits: i128 = format!("{}{unsigned}{part}", if whole.starts_with('-') { "-" } else { "" }).parse().ok()?;
    Some((Token::Value(Literal::Number(digits, u8::try_from(part.len()).ok()?)), after))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fullbore_engines::{Day, TimeOfDay};

    use super::*;

    fn column(name: &str, kind: ColumnKind) -> TableColumn {
        TableColumn { name: name.into(), kind, declared: "x".into(), nullable: true, refused: None }
    }

    fn takes(condition: &str, kind: ColumnKind, cell: Cell) -> bool {
        let bound = Condition::parse(condition).unwrap().bind(&[column("a b", kind)], "t").unwrap();
        bound.iter().all(|bound| bound.takes(&cell))
    }

    #[test]
    fn comparisons_are_exact_and_null_passes_only_is_null() {
        let money = ColumnKind::Decimal { precision: 19, scale: 4 };
        let amount = |digits| Cell::Decimal { digits, scale: 4 };
        assert!(takes("[a b] = 32.38", money, amount(323_800)));
        assert!(!takes("[a b] = 32.38", money, amount(323_801)));
        assert!(takes("\"a b\" >= -1 AND [a b]<2.5", money, amount(24_999)));
        assert!(takes("[A B] <> 5", ColumnKind::Int, Cell::Int(4)));
        assert!(!takes("[a b] <> 5", ColumnKind::Int, Cell::Null));
        assert!(takes("[a b] is null", ColumnKind::Int, Cell::Null));
        assert!(takes("[a b] IS NOT NULL", ColumnKind::Int, Cell::Int(0)));
        assert!(takes("[a b] = N'O''Neil'", ColumnKind::Text, Cell::Text("O'Neil  ".into())));
        assert!(takes("[a b] > -0.0000000000000000000000000000000000001", money, amount(i128::MAX / 10_000)));
        assert!(takes("[a b] < 99999999999999999999999999999999999999", money, amount(i128::MAX / 10_000)));
        assert!(takes("[a b] <> 0.00000000000000000000000000000000000001", ColumnKind::Int, Cell::Int(10_248)));
        assert!(takes("[a b] < 0.00000000000000000000000000000000000001", ColumnKind::Int, Cell::Int(-10_248)));
        assert!(takes("[a b] = 0x00ff", ColumnKind::Binary, Cell::Binary(vec![0, 255])));
        assert!(takes("[a b] = 0.1", ColumnKind::Float, Cell::Float(0.1)));
    }

    #[test]
    fn dates_compare_with_and_without_a_time() {
        let moment = Cell::Moment(Day::since_year_1(728_477).unwrap(), TimeOfDay::new(5).unwrap());
        let kind = ColumnKind::Moment { digits: 7 };
        assert!(takes("[a b] > '1995-07-04'", kind, moment.clone()));
        assert!(takes("[a b] = '1995-07-04T00:00:00.0000005'", kind, moment.clone()));
        assert!(!takes("[a b] < '1995-07-04 00:00'", kind, moment.clone()));
        assert!(takes("[a b] >= '19950704' AND [a b] < '19950705 00:00'", kind, moment), "T-SQL's form without signs");
    }

    #[test]
    fn what_is_not_such_a_comparison_is_named() {
        for bad in
            ["", "a", "a =", "a = b", "a = 1 OR b = 2", "a = 1;", "(a = 1)", "a LIKE 'x'", "a = 'x", "a is 5", "1 = 1"]
        {
            assert!(Condition::parse(bad).is_err(), "{bad}");
        }
        for (condition, kind) in [
            ("x = 1", ColumnKind::Int),
            ("a = 'x'", ColumnKind::Int),
            ("a < 'x'", ColumnKind::Text),
            ("a = '1.1.2020'", ColumnKind::Date),
            ("a = '20201301'", ColumnKind::Date),
            ("a = '202001'", ColumnKind::Date),
            ("a = 'ж20200'", ColumnKind::Date),
        ] {
            assert!(Condition::parse(condition).unwrap().bind(&[column("a", kind)], "t").is_err(), "{condition}");
        }
    }
}
