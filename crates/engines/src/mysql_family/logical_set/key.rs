//! Ranges of a primary key: as conditions that use the index, and their middles.
//!
//! A comparison of row values, `(x, y) > (1, 2)`, never uses an index on these servers. The same with OR and AND does.

use std::fmt::Write;

use super::listing::KeyColumn;
use crate::mysql_family::connection::take_value;
use crate::mysql_family::logical::literal::digits;
use crate::mysql_family::logical::names::quoted;

/// How many bytes of a text take part in the middle of two texts.
const MIDDLE_BYTES: usize = 15;

/// Character sets in which a part of a letter is no text. UTF-8 has a rule of its own.
const OF_SEVERAL_BYTES: [&str; 9] = ["big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis"];

/// The values of a key in the order of its columns: as literals, and as the server sends them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    literals: Vec<String>,
    values: Vec<Vec<u8>>,
}

/// Where a range begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// With this key.
    At(KeyValue),
    /// With the first key after it.
    After(KeyValue),
}

/// Keys of a table: from `from` on, below `below`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Range {
    /// None: from the first key.
    pub from: Option<From>,
    /// None: to the last key.
    pub below: Option<KeyValue>,
    /// With the key `below` too.
    pub inclusive: bool,
}

/// How the values of a column are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Number,
    Text,
    Bytes,
    Time,
}

fn sort(column: &KeyColumn) -> Option<Sort> {
    Some(match &column.data_type[..] {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Sort::Number,
        "char" | "varchar" if !column.character_set.is_empty() => Sort::Text,
        "binary" | "varbinary" => Sort::Bytes,
        "date" | "datetime" | "timestamp" | "time" | "year" | "decimal" => Sort::Time,
        _ => return None,
    })
}

/// Whether the server compares texts to find the end of a range.
pub fn has_text(key: &[KeyColumn]) -> bool {
    key.iter().any(|column| sort(column) == Some(Sort::Text))
}

/// Whether ranges of this key can be asked for.
pub fn can_be_cut(key: &[KeyColumn]) -> bool {
    !key.is_empty() && key.iter().all(|column| sort(column).is_some())
}

/// The columns of the key, for ORDER BY and for a query of keys.
pub fn columns(key: &[KeyColumn]) -> String {
    key.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>().join(", ")
}

/// The same, from the last key on.
pub fn columns_backwards(key: &[KeyColumn]) -> String {
    key.iter().map(|column| format!("{} DESC", quoted(&column.name))).collect::<Vec<_>>().join(", ")
}

impl KeyValue {
    /// From the values of the key's columns, as the server sends them. None if one is not a value of its type.
    pub fn of(key: &[KeyColumn], values: &[Option<&[u8]>]) -> Option<Self> {
        let given = || key.iter().zip(values);
        let literals = given().map(|(column, value)| literal(column, (*value)?)).collect::<Option<Vec<_>>>()?;
        let values: Vec<_> = given().filter_map(|(_, value)| value.map(<[u8]>::to_vec)).collect();
        (values.len() == key.len()).then_some(Self { literals, values })
    }

    /// The value of the first column.
    fn first(&self) -> &[u8] {
        self.values.first().map_or(&[], Vec::as_slice)
    }

    /// Whether a row has this key, byte for byte. `places` are the places of the key's columns in the row.
    pub fn is_of(&self, row: &[u8], places: &[usize]) -> bool {
        self.values.iter().zip(places).all(|(wanted, place)| {
            let mut rest = row;
            for _ in 0..*place {
                take_value(&mut rest);
            }
            take_value(&mut rest).flatten() == Some(wanted)
        })
    }

    /// `key OP self`; `last` compares the last column.
    fn compared(&self, key: &[KeyColumn], operator: &str, last: &str) -> String {
        let mut text = String::new();
        let count = key.len();
        for (place, (column, value)) in key.iter().zip(&self.literals).enumerate() {
            let name = quoted(&column.name);
            // A string takes everything.
            let _ = match place + 1 == count {
                true => write!(text, "{name} {last} {value}"),
                false => write!(text, "({name} {operator} {value} OR ({name} = {value} AND "),
            };
        }
        text + &"))".repeat(count.saturating_sub(1))
    }
}

impl Range {
    /// As a condition; empty for all keys.
    pub fn condition(&self, key: &[KeyColumn]) -> String {
        let from = self.from.as_ref().map(|from| match from {
            From::At(value) => value.compared(key, ">", ">="),
            From::After(value) => value.compared(key, ">", ">"),
        });
        let last = if self.inclusive { "<=" } else { "<" };
        let below = self.below.as_ref().map(|value| value.compared(key, "<", last));
        from.into_iter().chain(below).collect::<Vec<_>>().join(" AND ")
    }
}

/// A value for a comparison with its column.
fn literal(column: &KeyColumn, value: &[u8]) -> Option<String> {
    let hexadecimal = |introducer: &str| {
        let mut text = Vec::new();
        digits(value, &mut text);
        // The empty text has no digits: `0x` alone is a syntax error.
        format!("{introducer} X'{}'", String::from_utf8_lossy(&text))
    };
    Some(match sort(column)? {
        Sort::Number => {
            let text = std::str::from_utf8(value).ok()?;
            text.parse::<i128>().ok()?.to_string()
        }
        Sort::Time => {
            let plain = value.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b':' | b'.' | b' '));
            let text = std::str::from_utf8(value).ok().filter(|_| plain)?;
            match &column.data_type[..] {
                "decimal" | "year" => text.to_owned(),
                _ => format!("'{text}'"),
            }
        }
        Sort::Text => {
            let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            if !column.character_set.chars().all(plain) {
                return None;
            }
            hexadecimal(&format!("_{}", column.character_set))
        }
        Sort::Bytes => hexadecimal("_binary"),
    })
}

/// The condition `first column >= M`, where M is in the middle of the first columns of two keys. None if there is no
/// middle.
pub fn from_middle(key: &[KeyColumn], low: &KeyValue, high: &KeyValue) -> Option<String> {
    let column = key.first()?;
    let middle = match sort(column)? {
        Sort::Number => {
            let number = |value: &KeyValue| std::str::from_utf8(value.first()).ok()?.parse::<i128>().ok();
            let (low, high) = (number(low)?, number(high)?);
            let middle = low + (high - low) / 2;
            (middle > low).then(|| middle.to_string())?
        }
        Sort::Text | Sort::Bytes => {
            let is_cut = OF_SEVERAL_BYTES.contains(&&column.character_set[..]);
            let middle = middle_of_texts(low.first(), high.first()).filter(|text| !is_cut || text.is_ascii())?;
            literal(column, &middle)?
        }
        Sort::Time => return None,
    };
    Some(format!("{} >= {middle}", quoted(&column.name)))
}

/// The text in the middle of two, as if they were fractions with a digit for each byte. In a text of UTF-8 it is cut
/// before a byte that begins no character.
fn middle_of_texts(low: &[u8], high: &[u8]) -> Option<Vec<u8>> {
    let common = low.iter().zip(high).take_while(|(one, other)| one == other).count();
    let fraction = |text: &[u8]| {
        let digits = text.get(common..).unwrap_or_default().iter().copied().chain(std::iter::repeat(0));
        digits.take(MIDDLE_BYTES).fold(0_u128, |sum, digit| sum << 8 | u128::from(digit))
    };
    if let Some(digits) = middle_of_digits(low.get(common..)?, high.get(common..)?) {
        return Some([low.get(..common)?, digits.as_bytes()].concat());
    }
    let (from, to) = (fraction(low), fraction(high));
    let middle = from.checked_add(to.checked_sub(from)? / 2).filter(|middle| *middle > from)?;
    let bytes = middle.to_be_bytes();
    let bytes = bytes.get(bytes.len() - MIDDLE_BYTES..)?;
    let mut text = low.get(..common)?.to_vec();
    // One letter is exact enough, and ASCII is a part of nearly every character set.
    let first = *bytes.first()?;
    text.push(if low.is_ascii() && high.is_ascii() { first.min(0x7E) } else { first });
    let second = bytes.get(1).copied().unwrap_or(0);
    if low.is_ascii() && high.is_ascii() && (0x20..0x7F).contains(&second) {
        text.push(second);
    }
    if std::str::from_utf8(low).is_ok() && std::str::from_utf8(&text).is_err() {
        text.pop();
    }
    (text[..] > *low).then_some(text)
}

/// The middle of two texts of digits, as fractions: between 19 and 20 there is no letter, but there is 195.
fn middle_of_digits(low: &[u8], high: &[u8]) -> Option<String> {
    let fraction = |text: &[u8]| {
        let mut digits = text.iter().copied().chain(std::iter::repeat(b'0')).take(MIDDLE_BYTES);
        digits.try_fold(0_u64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))
    };
    let (from, to) = (fraction(low)?, fraction(high)?);
    let middle = from + to.checked_sub(from)? / 2;
    let longest = low.len().max(high.len()) + 1;
    let text: String = format!("{middle:0width$}", width = MIDDLE_BYTES).chars().take(longest).collect();
    (text.as_bytes() > low && text.as_bytes() < high).then_some(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn column(name: &str, data_type: &str, character_set: &str) -> KeyColumn {
        KeyColumn { name: name.into(), data_type: data_type.into(), character_set: character_set.into() }
    }

    fn value(key: &[KeyColumn], values: &[&[u8]]) -> KeyValue {
        let values: Vec<_> = values.iter().map(|value| Some(*value)).collect();
        KeyValue::of(key, &values).unwrap()
    }

    #[test]
    fn a_range_of_a_composite_key_is_written_so_that_the_index_is_used() {
        let key = [column("x", "int", ""), column("y`", "varchar", "latin1"), column("z", "date", "")];
        assert!(can_be_cut(&key) && !can_be_cut(&[]) && !can_be_cut(&[column("f", "float", "")]));
        let from = value(&key, &[b"300", b"\xe4", b"2020-01-01"]);
        let range = Range { from: Some(From::After(from)), ..Range::default() };
        let expected = "(`x` > 300 OR (`x` = 300 AND (`y``` > _latin1 X'E4' OR (`y``` = _latin1 X'E4' AND `z` > \
                        '2020-01-01'))))";
        assert_eq!(range.condition(&key), expected);
        let one = [column("k", "bigint", "")];
        let (from, below) = (value(&one, &[b"-5"]), value(&one, &[b"18446744073709551615"]));
        let mut range = Range { from: Some(From::At(from)), below: Some(below), inclusive: false };
        assert_eq!(range.condition(&one), "`k` >= -5 AND `k` < 18446744073709551615");
        range.inclusive = true;
        assert_eq!(range.condition(&one), "`k` >= -5 AND `k` <= 18446744073709551615");
        assert_eq!(Range::default().condition(&one), "");
        assert!(KeyValue::of(&one, &[Some(b"1; DROP")]).is_none() && KeyValue::of(&one, &[None]).is_none());
    }

    #[test]
    fn a_row_has_a_key_if_all_its_bytes_are_those_of_the_key() {
        let key = [column("y", "varchar", "utf8mb4"), column("x", "int", "")];
        let wanted = value(&key, &[b"ab", b"7"]);
        assert!(has_text(&key) && !has_text(&key[1..]));
        assert!(wanted.is_of(b"\x017\x01-\x02ab", &[2, 0]));
        for other in [&b"\x017\x01-\x02aB"[..], b"\x018\x01-\x02ab", b"\xfb\x01-\x02ab", b"\x017\x01-", b""] {
            assert!(!wanted.is_of(other, &[2, 0]), "{other:?}");
        }
    }

    #[test]
    fn the_middle_is_between_the_ends_for_numbers_and_texts() {
        let number = [column("k", "bigint", "")];
        let middle = |low: &[u8], high: &[u8]| from_middle(&number, &value(&number, &[low]), &value(&number, &[high]));
        assert_eq!(middle(b"-10", b"20").unwrap(), "`k` >= 5");
        assert_eq!(middle(b"0", b"18446744073709551615").unwrap(), "`k` >= 9223372036854775807");
        assert_eq!(middle(b"7", b"8"), None);
        assert_eq!(middle(b"8", b"7"), None);
        let text = [column("k", "varchar", "cp932")];
        let middle = |low: &[u8], high: &[u8]| from_middle(&text, &value(&text, &[low]), &value(&text, &[high]));
        assert_eq!(middle(b"\x83\x5c", b"\x95\x5c"), None, "half a letter is no text");
        assert_eq!(middle(b"a", b"c").unwrap(), "`k` >= _cp932 X'62'");
        for (low, high) in [
            (&b"user0000"[..], &b"user9999"[..]),
            (b"", b"zzz"),
            (b"a", b"b"),
            ("ä".as_bytes(), "ü".as_bytes()),
            (b"abc", b"abcd"),
            (b"u01", b"u0100"),
            (b"9", b"9zz"),
            (b"\x00\x01", b"\xff\xfe"),
        ] {
            if let Some(middle) = middle_of_texts(low, high) {
                assert!(middle[..] > *low && middle[..] < *high, "{low:?} {middle:?} {high:?}");
            }
        }
        assert_eq!(middle_of_texts(b"user0000", b"user9999").unwrap()[..5], *b"user4");
        assert_eq!(middle_of_texts(b"user0019", b"user0020").unwrap(), b"user00195");
        assert_eq!(middle_of_texts(b"0000000000000000001", b"0000000000000000003").unwrap(), b"00000000000000000020");
        assert_eq!(middle_of_texts(b"b", b"a"), None);
        assert_eq!(middle_of_texts(b"b", b"b"), None);
    }
}
