//! The values of a set as cells. What no cell of its column can hold, such as a zero date, is the server's own text.

use uuid::Uuid;

use super::charset::Charset;
use super::definition::Defined;
use crate::engine::{Cell, ColumnKind, Day, TICKS_PER_DAY, TableColumn, TimeOfDay};
use crate::mysql_family::logical::columns::{ROW_END, ROW_START};
use crate::mysql_family::logical_set::catalog::StoredColumn;

/// Digits of a decimal number that a cell holds.
const DIGITS_MAX: u8 = 38;
/// Digits of a second.
const SECOND_DIGITS: u8 = 7;

/// How the values of a column become cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoder {
    /// An integer.
    Integer,
    /// A decimal number with so many digits behind the point.
    Decimal(u8),
    /// A floating-point number of 4 bytes.
    Real,
    /// A floating-point number of 8 bytes.
    Float,
    /// A date.
    Date,
    /// A time.
    Time,
    /// A date and a time.
    Moment,
    /// One bit.
    Bool,
    /// Bits, as a number.
    Bits,
    /// The number of a member of an ENUM.
    Member(Vec<String>),
    /// The bits of the members of a SET.
    Members(Vec<String>),
    /// Text.
    Text(Charset),
    /// A UUID.
    Uuid,
    /// Bytes.
    Binary,
}

/// The column of an export, and how its values are read. `defined` is `None` if its definition is not understood.
pub fn column(stored: &StoredColumn, defined: Option<&Defined>) -> (TableColumn, Decoder) {
    let is_end = stored.data_type == ROW_END;
    if is_end || stored.data_type == ROW_START {
        // The definition has them only if the user has named them.
        let (name, declared) = (stored.name.clone(), "timestamp(6)".to_owned());
        let kind = ColumnKind::Moment { digits: 6 };
        return (TableColumn { name, kind, declared, nullable: is_end, refused: None }, Decoder::Moment);
    }
    let found = defined.ok_or_else(|| "its definition is not understood".to_owned());
    let found = found.and_then(|defined| Ok((defined, kind(stored, defined)?)));
    let (kind, decoder, refused) = match found {
        Ok((_, (kind, decoder))) => (kind, decoder, None),
        Err(why) => (ColumnKind::Binary, Decoder::Binary, Some(why)),
    };
    let column = TableColumn {
        name: stored.name.clone(),
        kind,
        declared: defined.map_or_else(|| stored.data_type.clone(), Defined::declared),
        nullable: defined.is_none_or(|defined| defined.nullable),
        refused,
    };
    (column, decoder)
}

fn kind(stored: &StoredColumn, defined: &Defined) -> Result<(ColumnKind, Decoder), String> {
    let data_type = stored.data_type.to_ascii_lowercase();
    let digits = defined.number(0).unwrap_or(0).min(SECOND_DIGITS);
    let charset = |name: &Option<String>| {
        let name = name.as_deref().ok_or("its character set is not known")?;
        Charset::named(name).ok_or_else(|| format!("the character set {name} is not known"))
    };
    let members = || defined.arguments.clone();
    Ok(match (&data_type[..], defined.unsigned) {
        ("tinyint", true) => (ColumnKind::Byte, Decoder::Integer),
        ("tinyint" | "smallint", false) | ("year", _) => (ColumnKind::Short, Decoder::Integer),
        ("smallint", true) | ("mediumint", _) | ("int", false) => (ColumnKind::Int, Decoder::Integer),
        ("int", true) | ("bigint", false) => (ColumnKind::Long, Decoder::Integer),
        ("bigint", true) => (ColumnKind::UnsignedLong, Decoder::Integer),
        ("decimal", _) => {
            let (precision, scale) = (defined.number(0).unwrap_or(10), defined.number(1).unwrap_or(0));
            match precision {
                1..=DIGITS_MAX if scale <= precision => {
                    (ColumnKind::Decimal { precision, scale }, Decoder::Decimal(scale))
                }
                _ => (ColumnKind::Text, Decoder::Text(Charset::Ascii)),
            }
        }
        ("float", _) => (ColumnKind::Real, Decoder::Real),
        ("double", _) => (ColumnKind::Float, Decoder::Float),
        ("date", _) => (ColumnKind::Date, Decoder::Date),
        ("time", _) => (ColumnKind::Time { digits }, Decoder::Time),
        ("datetime" | "timestamp", _) => (ColumnKind::Moment { digits }, Decoder::Moment),
        ("bit", _) => match defined.number(0) {
            None | Some(1) => (ColumnKind::Bool, Decoder::Bool),
            Some(..64) => (ColumnKind::Long, Decoder::Bits),
            Some(_) => (ColumnKind::UnsignedLong, Decoder::Bits),
        },
        ("enum", _) => (ColumnKind::Text, Decoder::Member(members())),
        ("set", _) => (ColumnKind::Text, Decoder::Members(members())),
        ("char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext", _) => {
            (ColumnKind::Text, Decoder::Text(charset(&defined.charset)?))
        }
        ("json", _) => (ColumnKind::Text, Decoder::Text(Charset::Utf8)),
        ("inet4" | "inet6", _) => (ColumnKind::Text, Decoder::Text(Charset::Ascii)),
        ("uuid", _) => (ColumnKind::Uuid, Decoder::Uuid),
        _ => (ColumnKind::Binary, Decoder::Binary),
    })
}

impl Decoder {
    /// The cell of a value. `None` if it is not a value of the column.
    pub fn cell(&self, value: Vec<u8>) -> Option<Cell> {
        let text = || str::from_utf8(&value).ok();
        Some(match self {
            Self::Integer => integer(text()?)?,
            Self::Decimal(scale) => Cell::Decimal { digits: decimal(text()?, *scale)?, scale: *scale },
            // The set has the digits of a DOUBLE, which are exact.
            Self::Real => Cell::Real(text()?.parse::<f64>().ok()? as f32),
            Self::Float => Cell::Float(text()?.parse().ok()?),
            Self::Date => date(text()?).map_or_else(|| as_it_is(&value), |day| Some(Cell::Date(day)))?,
            Self::Time => time(text()?).map_or_else(|| as_it_is(&value), |time| Some(Cell::Time(time)))?,
            Self::Moment => {
                let moment = text()?.split_once(' ').and_then(|(day, rest)| Some((date(day)?, time(rest)?)));
                moment.map_or_else(|| as_it_is(&value), |(day, time)| Some(Cell::Moment(day, time)))?
            }
            Self::Bool => Cell::Bool(bits(&value)? != 0),
            Self::Bits => of_unsigned(bits(&value)?),
            Self::Member(members) => match text()?.parse::<usize>().ok()?.checked_sub(1) {
                // The server stores a value that is no member as this number, and shows an empty text.
                None => Cell::Text(String::new()),
                Some(place) => Cell::Text(members.get(place)?.clone()),
            },
            Self::Members(members) => {
                let bits: u64 = text()?.parse().ok()?;
                let chosen = members.iter().enumerate();
                let chosen =
                    chosen.filter(|(place, _)| bits.checked_shr(*place as u32).is_some_and(|bits| bits & 1 == 1));
                Cell::Text(chosen.map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(","))
            }
            Self::Uuid => Cell::Uuid(Uuid::parse_str(text()?).ok()?),
            Self::Text(charset) => Cell::Text(charset.text(value)?),
            Self::Binary => Cell::Binary(value),
        })
    }
}

fn as_it_is(value: &[u8]) -> Option<Cell> {
    Some(Cell::Text(str::from_utf8(value).ok()?.to_owned()))
}

fn integer(text: &str) -> Option<Cell> {
    text.parse().map(Cell::Int).ok().or_else(|| Some(of_unsigned(text.parse().ok()?)))
}

/// An integer of 8 bytes without sign.
fn of_unsigned(value: u64) -> Cell {
    i64::try_from(value).map_or(Cell::Decimal { digits: value.into(), scale: 0 }, Cell::Int)
}

fn bits(value: &[u8]) -> Option<u64> {
    (value.len() <= 8).then(|| value.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte)))
}

/// The digits of a number, with so many behind the point.
fn decimal(text: &str, scale: u8) -> Option<i128> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_scale = part.len() == usize::from(scale) && part.bytes().all(|byte| byte.is_ascii_digit());
    is_scale.then(|| format!("{whole}{part}").parse().ok())?
}

fn date(text: &str) -> Option<Day> {
    let (year, rest) = text.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    Day::of(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)
}

/// A time of day. `None` if it is negative, or a day and more.
fn time(text: &str) -> Option<TimeOfDay> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = whole.split(':').map(|part| part.parse::<u32>().ok().map(u64::from));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let ticks = format!("{part:0<7}").get(..7)?.parse::<u64>().ok()?;
    let seconds = hour.checked_mul(3600)?.checked_add(minute * 60 + second)?;
    TimeOfDay::new(seconds.checked_mul(TICKS_PER_DAY / 86_400)?.checked_add(ticks)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::definition;
    use super::*;

    fn cell(definition: &str, value: &[u8]) -> (ColumnKind, Option<Cell>) {
        let create = format!("CREATE TABLE `t` (`a` {definition}) DEFAULT CHARSET=utf8mb4");
        let defined = definition::columns(&create).unwrap();
        let data_type = defined["a"].data_type.clone();
        let (column, decoder) = column(&StoredColumn { name: "a".into(), data_type }, defined.get("a"));
        assert_eq!(column.refused, None);
        (column.kind, decoder.cell(value.to_vec()))
    }

    fn moment(day: (i16, i8, i8), ticks: u64) -> Cell {
        Cell::Moment(Day::of(day.0, day.1, day.2).unwrap(), TimeOfDay::new(ticks).unwrap())
    }

    #[test]
    fn each_type_has_its_cells_and_values_stay_exact() {
        use ColumnKind::*;
        let text = |text: &str| Cell::Text(text.into());
        let wide = Decimal { precision: 38, scale: 2 };
        let number = |digits, scale| Cell::Decimal { digits, scale };
        for (definition, value, kind, expected) in [
            ("tinyint(1)", &b"-128"[..], Short, Cell::Int(-128)),
            ("tinyint unsigned", b"255", Byte, Cell::Int(255)),
            ("int(10) unsigned zerofill", b"0000000007", Long, Cell::Int(7)),
            ("bigint unsigned", b"18446744073709551615", UnsignedLong, number(i128::from(u64::MAX), 0)),
            ("bigint unsigned", b"1", UnsignedLong, Cell::Int(1)),
            ("decimal(38,2)", b"-999999999999999999999999999999999999.99", wide, number(-(10_i128.pow(38) - 1), 2)),
            ("decimal(65,30)", b"-0.5", Text, text("-0.5")),
            ("float", b"0.10000000149011612", Real, Cell::Real(0.1)),
            ("double", b"-1.7976931348623157e308", Float, Cell::Float(f64::MIN)),
            ("date", b"1000-01-01", Date, Cell::Date(Day::of(1000, 1, 1).unwrap())),
            ("date", b"0000-00-00", Date, text("0000-00-00")),
            ("datetime", b"2023-02-31 00:00:00", Moment { digits: 0 }, text("2023-02-31 00:00:00")),
            (
                "datetime(6)",
                b"9999-12-31 23:59:59.999999",
                Moment { digits: 6 },
                moment((9999, 12, 31), 863_999_999_990),
            ),
            ("time(3)", b"-00:00:01.500", Time { digits: 3 }, text("-00:00:01.500")),
            ("time", b"1:18446744073709551615:1", Time { digits: 0 }, text("1:18446744073709551615:1")),
            ("time", b"838:59:59", Time { digits: 0 }, text("838:59:59")),
            ("time(6)", b"23:59:59.999999", Time { digits: 6 }, Cell::Time(TimeOfDay::new(863_999_999_990).unwrap())),
            ("bit(1)", b"\x01", Bool, Cell::Bool(true)),
            ("bit(9)", b"\x01\x02", Long, Cell::Int(258)),
            ("bit(64)", &[255; 8], UnsignedLong, number(i128::from(u64::MAX), 0)),
            ("year", b"2155", Short, Cell::Int(2155)),
            ("enum('2','a,''b')", b"2", Text, text("a,'b")),
            ("enum('2')", b"0", Text, text("")),
            ("set('a','b','c')", b"5", Text, text("a,c")),
            ("varchar(3) CHARACTER SET latin1", b"\xE4", Text, text("ä")),
            ("json", "{\"a\": \"ü\"}".as_bytes(), Text, text("{\"a\": \"ü\"}")),
            ("varbinary(3)", b"\0\xFF", Binary, Cell::Binary(vec![0, 255])),
            (
                "uuid",
                b"123e4567-e89b-12d3-a456-426655440000",
                Uuid,
                Cell::Uuid(uuid::uuid!("123e4567-e89b-12d3-a456-426655440000")),
            ),
        ] {
            assert_eq!(cell(definition, value), (kind, Some(expected)), "{definition}");
        }
    }

    #[test]
    fn a_value_that_its_column_cannot_have_is_not_guessed() {
        for (definition, value) in [
            ("int", &b"1x"[..]),
            ("decimal(5,2)", b"1.5"),
            ("enum('a')", b"2"),
            ("bit(64)", &[0; 9]),
            ("varchar(3)", b"\xFF"),
            ("double", b"NULL"),
        ] {
            assert_eq!(cell(definition, value).1, None, "{definition}");
        }
        let stored = StoredColumn { name: "a".into(), data_type: "varchar".into() };
        assert!(column(&stored, None).0.refused.unwrap().contains("definition"));
        let swe7 = Defined { charset: Some("swe7".into()), ..Defined::default() };
        assert!(column(&stored, Some(&swe7)).0.refused.unwrap().contains("swe7"));
    }
}
