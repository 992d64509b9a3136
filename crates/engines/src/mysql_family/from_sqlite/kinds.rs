//! The type of a column in the target: from its declared type, and from the values that it has.

use rusqlite::types::ValueRef;

use super::facts::Facts;
use super::values::{self, Decimal};
use crate::sqlite::outgoing::RowName;

/// The longest VARCHAR in utf8mb4, in characters.
pub const VARCHAR_MAX: u32 = 16_383;
/// The most digits of a DECIMAL, and the most after its point.
const DECIMAL_MAX: (u32, u32) = (65, 30);

/// What the declared type asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// `INT`, `BIGINT` and all others with these letters.
    Integer,
    /// `REAL`, `DOUBLE`, `FLOAT`.
    Double,
    /// `DECIMAL(10,2)`, `NUMERIC(5)`.
    Decimal(Decimal),
    /// `BOOLEAN`
    Boolean,
    /// `DATE`
    Date,
    /// `DATETIME`, `TIMESTAMP`
    Moment,
    /// `TEXT`, `CLOB`; `VARCHAR(n)` and its relatives with the most characters.
    Text(Option<u32>),
    /// Any: the values say which.
    Values,
}

impl Wish {
    /// What a declared type asks for, by SQLite's rules of affinity and the names of types in other engines.
    pub fn of(declared: &str) -> Self {
        let upper = declared.to_ascii_uppercase();
        let (name, arguments) = upper.split_once('(').unwrap_or((&upper, ""));
        let arguments = arguments.split(')').next().unwrap_or_default();
        let mut numbers = arguments.split(',').map(|text| text.trim().parse::<u32>().ok());
        let (first, second) = (numbers.next().flatten(), numbers.next().flatten());
        let has = |part: &str| name.contains(part);
        match name.trim() {
            _ if has("INT") => Self::Integer,
            _ if has("CHAR") || has("CLOB") || has("TEXT") => Self::Text(first.filter(|most| *most > 0)),
            _ if has("BLOB") || name.is_empty() => Self::Values,
            _ if has("REAL") || has("FLOA") || has("DOUB") => Self::Double,
            "DECIMAL" | "NUMERIC" | "DEC" => match (first, second.unwrap_or(0)) {
                (Some(digits), scale)
                    if digits > 0 && scale <= digits && digits <= DECIMAL_MAX.0 && scale <= DECIMAL_MAX.1 =>
                {
                    Self::Decimal(Decimal { digits, scale })
                }
                _ => Self::Values,
            },
            "BOOLEAN" | "BOOL" => Self::Boolean,
            "DATE" => Self::Date,
            "DATETIME" | "TIMESTAMP" => Self::Moment,
            _ => Self::Values,
        }
    }

    /// Why a value cannot be exactly what is asked for. Classes of values that another type holds are judged later.
    pub fn misfit(self, value: ValueRef<'_>) -> Option<&'static str> {
        let unless = |fits: bool, why| if fits { None } else { Some(why) };
        match (self, value) {
            (_, ValueRef::Null) | (Self::Values, _) => None,
            (Self::Integer | Self::Boolean | Self::Date | Self::Moment, ValueRef::Blob(_)) => Some("a blob"),
            (Self::Integer | Self::Boolean, ValueRef::Text(_)) => Some("a text"),
            (Self::Integer | Self::Boolean, ValueRef::Real(_)) => Some("a number that is not a 64-bit integer"),
            (Self::Boolean, ValueRef::Integer(value)) => {
                unless(i8::try_from(value).is_ok(), "an integer beyond a BOOLEAN")
            }
            (Self::Double, ValueRef::Text(_)) => Some("a text"),
            (Self::Double | Self::Decimal(_), ValueRef::Blob(_)) => Some("a blob"),
            (Self::Decimal(decimal), value) => decimal.write(value, &mut Vec::new()).err(),
            (Self::Date, ValueRef::Text(text)) => unless(values::date(text), "a text that is not a date YYYY-MM-DD"),
            (Self::Moment, ValueRef::Text(text)) => {
                unless(values::moment(text).is_some(), "a text that is not a time YYYY-MM-DD HH:MM:SS")
            }
            (Self::Text(_), ValueRef::Blob(_)) => Some("a blob"),
            (Self::Text(_), ValueRef::Integer(_) | ValueRef::Real(_)) => Some("a number"),
            (Self::Text(Some(most)), ValueRef::Text(text)) => {
                let is_longer = text.len() > most as usize && values::characters(text) > u64::from(most);
                unless(!is_longer, "a text that is longer than declared")
            }
            _ => None,
        }
    }
}

/// A type of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// BIGINT
    Integer,
    /// TINYINT(1)
    Boolean,
    /// DOUBLE
    Double,
    /// DECIMAL
    Decimal(Decimal),
    /// DATE
    Date,
    /// DATETIME with so many digits of a second: 0 or 6.
    Moment(u8),
    /// VARCHAR of so many characters, or LONGTEXT.
    Text(Option<u32>),
    /// VARBINARY of so many bytes, or LONGBLOB.
    Blob(Option<u32>),
}

/// The value that stands in the way of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Its row.
    pub row: RowName,
    /// What it is.
    pub what: String,
}

impl Kind {
    /// The type of a column with this declared type and these values.
    ///
    /// # Errors
    /// A value that no type holds together with the others, or that the declared type does not hold.
    pub fn choose(declared: &str, facts: &Facts) -> Result<Self, Misfit> {
        let misfit = |row: RowName, what: &str| Err(Misfit { row, what: what.to_owned() });
        if let Some(row) = facts.not_utf8 {
            return misfit(row, "a text that is not UTF-8");
        }
        let wish = Wish::of(declared);
        let has_numbers = facts.integers.or(facts.reals).is_some();
        let has_texts = facts.texts.is_some();
        if let Some((row, what)) = facts.misfit {
            return misfit(row, what);
        }
        match wish {
            Wish::Integer => Ok(Self::Integer),
            Wish::Boolean => Ok(Self::Boolean),
            Wish::Decimal(decimal) => Ok(Self::Decimal(decimal)),
            Wish::Text(most) => Ok(Self::Text(most.filter(|most| *most <= VARCHAR_MAX))),
            Wish::Double => Self::double(facts),
            Wish::Date | Wish::Moment if has_numbers && has_texts => Self::of_values(declared, facts),
            Wish::Date if !has_numbers => Ok(Self::Date),
            Wish::Moment if !has_numbers => Ok(Self::Moment(if facts.has_fractions || !has_texts { 6 } else { 0 })),
            Wish::Date | Wish::Moment | Wish::Values => Self::of_values(declared, facts),
        }
    }

    fn double(facts: &Facts) -> Result<Self, Misfit> {
        let misfit = |row: RowName, what: &str| Err(Misfit { row, what: what.to_owned() });
        match (facts.infinite, facts.beyond_double) {
            (Some(row), _) => misfit(row, "an infinite number"),
            (None, Some(row)) => misfit(row, "an integer that a DOUBLE does not hold exactly"),
            (None, None) => Ok(Self::Double),
        }
    }

    fn of_values(declared: &str, facts: &Facts) -> Result<Self, Misfit> {
        match (facts.integers, facts.reals, facts.texts, facts.blobs) {
            (Some(_), None, None, None) => Ok(Self::Integer),
            (_, Some(_), None, None) => Self::double(facts),
            (None, None, Some(_), None) => Ok(Self::Text(None)),
            (None, None, None, Some(_)) => Ok(Self::Blob(None)),
            (None, None, None, None) => Ok(Self::of_declared(declared)),
            (integers, reals, texts, blobs) => {
                let classes =
                    [(integers, "an integer"), (reals, "a real number"), (texts, "a text"), (blobs, "a blob")];
                let mut found: Vec<(RowName, &str)> =
                    classes.into_iter().filter_map(|(row, what)| Some((row?, what))).collect();
                found.sort_by_key(|(row, _)| row.number);
                let (first, others) = found.split_first().map_or(("", &[][..]), |(first, others)| (first.1, others));
                let (row, what) = others.first().copied().unwrap_or_default();
                Err(Misfit { row, what: format!("{what}, and an earlier row has {first}") })
            }
        }
    }

    /// Without a value.
    fn of_declared(declared: &str) -> Self {
        let upper = declared.to_ascii_uppercase();
        match () {
            () if upper.is_empty() || upper.contains("BLOB") => Self::Blob(None),
            () if ["DEC", "NUM", "MONEY"].iter().any(|part| upper.contains(part)) => Self::Double,
            () => Self::Text(None),
        }
    }

    /// For a statement.
    pub fn sql(self) -> String {
        match self {
            Self::Integer => "bigint".into(),
            Self::Boolean => "tinyint(1)".into(),
            Self::Double => "double".into(),
            Self::Decimal(Decimal { digits, scale }) => format!("decimal({digits},{scale})"),
            Self::Date => "date".into(),
            Self::Moment(0) => "datetime".into(),
            Self::Moment(digits) => format!("datetime({digits})"),
            Self::Text(None) => "longtext".into(),
            Self::Text(Some(most)) => format!("varchar({most})"),
            Self::Blob(None) => "longblob".into(),
            Self::Blob(Some(most)) => format!("varbinary({most})"),
        }
    }

    /// As `information_schema.columns.data_type` has it.
    pub fn data_type(self) -> String {
        let sql = self.sql();
        sql.split_once('(').map_or(sql.clone(), |(name, _)| name.to_owned())
    }

    /// The bytes of a key that it fills; 0 for one with a length of its own.
    pub fn key_bytes(self) -> u32 {
        match self {
            Self::Integer | Self::Double | Self::Moment(_) => 8,
            Self::Boolean => 1,
            Self::Date => 3,
            Self::Decimal(_) => 30,
            Self::Text(_) | Self::Blob(_) => 0,
        }
    }

    /// Bytes of one unit of its length: a character or a byte. 0 without a length.
    pub fn unit(self) -> u32 {
        match self {
            Self::Text(_) => 4,
            Self::Blob(_) => 1,
            _ => 0,
        }
    }

    /// Its length, if it has one.
    pub fn length(self) -> Option<u32> {
        match self {
            Self::Text(length) | Self::Blob(length) => length,
            _ => None,
        }
    }

    /// The same with another length.
    pub fn with_length(self, length: Option<u32>) -> Self {
        match self {
            Self::Text(_) => Self::Text(length),
            Self::Blob(_) => Self::Blob(length),
            other => other,
        }
    }

    /// Whether it holds numbers.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Integer | Self::Boolean | Self::Double | Self::Decimal(_))
    }

    /// Appends a value as the server itself writes it, without escapes.
    ///
    /// # Errors
    /// The type does not hold it exactly.
    pub fn write(self, value: ValueRef<'_>, out: &mut Vec<u8>) -> Result<(), &'static str> {
        const OTHER: &str = "a value of another kind";
        match (self, value) {
            (Self::Decimal(decimal), value) => decimal.write(value, out),
            (Self::Integer | Self::Boolean | Self::Double, ValueRef::Integer(value)) if self != Self::Double => {
                out.extend_from_slice(value.to_string().as_bytes());
                Ok(())
            }
            (Self::Double, ValueRef::Integer(value)) => {
                values::double(value as f64, out);
                Ok(())
            }
            (Self::Double, ValueRef::Real(value)) if value.is_finite() => {
                values::double(value, out);
                Ok(())
            }
            (Self::Date, ValueRef::Text(text)) if values::date(text) => {
                out.extend_from_slice(text);
                Ok(())
            }
            (Self::Moment(digits), ValueRef::Text(text)) => values::write_moment(text, digits, out).ok_or(OTHER),
            (Self::Text(_), ValueRef::Text(text)) => {
                out.extend_from_slice(text);
                Ok(())
            }
            (Self::Blob(_), ValueRef::Blob(bytes)) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            _ => Err(OTHER),
        }
    }
}
