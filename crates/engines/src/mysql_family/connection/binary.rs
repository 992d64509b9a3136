//! Rows of the binary protocol, turned into rows of the text protocol.
//!
//! A server spends more time on the digits of a DOUBLE than on everything else in a row. In the binary protocol it sends
//! eight bytes, and the digits are made here: byte for byte the same. The form is from MySQL's protocol documentation,
//! "Binary Protocol Resultset Row" and "Column Definition".

use super::result_set::take_integer;

/// Flags of a column.
const UNSIGNED: u16 = 0x20;
const ZEROFILL: u16 = 0x40;
/// From this number on, "decimals" says that a DOUBLE has no fixed number of digits (31, in MariaDB also 39).
const NOT_FIXED: u8 = 31;
/// A DOUBLE is written without exponent, if its point is not farther than this from its digits.
const POINT_MAX: i32 = 15;
/// The length of a value has one byte, if it is less than this.
const SHORT_END: usize = 0xFB;

/// How a value comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// With so many bytes.
    Integer(usize),
    Unsigned(usize),
    Year,
    Double,
    Date,
    /// DATETIME and TIMESTAMP, with so many digits of a second.
    Moment(u8),
    /// TIME, the same.
    Time(u8),
    /// With its length.
    Bytes,
}

impl Kind {
    /// From the definition of a column. None if its text cannot be made here.
    fn of(definition: &[u8]) -> Option<Self> {
        let mut rest = definition;
        for _ in 0..6 {
            let length = usize::try_from(take_integer(&mut rest)?).ok()?;
            rest = rest.get(length..)?;
        }
        let [_, _, _, _, _, _, _, kind, low, high, decimals, ..] = *rest else { return None };
        let flags = u16::from_le_bytes([low, high]);
        let integer = |width| match (flags & ZEROFILL != 0, flags & UNSIGNED != 0) {
            (true, _) => None,
            (_, true) => Some(Self::Unsigned(width)),
            (_, false) => Some(Self::Integer(width)),
        };
        match kind {
            1 => integer(1),
            2 => integer(2),
            3 | 9 => integer(4),
            8 => integer(8),
            13 => Some(Self::Year),
            5 if decimals >= NOT_FIXED && flags & ZEROFILL == 0 => Some(Self::Double),
            10 => Some(Self::Date),
            7 | 12 if decimals <= 6 => Some(Self::Moment(decimals)),
            11 if decimals <= 6 => Some(Self::Time(decimals)),
            // VARCHAR, BIT, DECIMAL, strings.
            0 | 15 | 16 | 246 | 253 | 254 => Some(Self::Bytes),
            _ => None,
        }
    }
}

/// The columns of an answer in the binary protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BinaryColumns(Vec<Kind>);

impl BinaryColumns {
    /// From the definitions of the columns. None if a text cannot be made here.
    pub fn of(definitions: &[Vec<u8>]) -> Option<Self> {
        definitions.iter().map(|definition| Kind::of(definition)).collect::<Option<_>>().map(Self)
    }

    /// Puts a row into `text`, as the text protocol has it. None if it is not a row of these columns.
    pub fn as_text(&self, row: &[u8], text: &mut Vec<u8>) -> Option<()> {
        text.clear();
        let (nulls, mut rest) = row.get(1..)?.split_at_checked((self.0.len() + 9) / 8)?;
        for (place, kind) in self.0.iter().enumerate() {
            let bit = place + 2;
            if nulls.get(bit / 8)? >> (bit % 8) & 1 == 1 {
                text.push(0xFB);
                continue;
            }
            if *kind == Kind::Bytes {
                let before = rest;
                let length = usize::try_from(take_integer(&mut rest)?).ok()?;
                let head = before.len() - rest.len();
                text.extend_from_slice(before.get(..head.checked_add(length)?)?);
                rest = rest.get(length..)?;
                continue;
            }
            let begun = text.len();
            text.push(0);
            write(*kind, &mut rest, text)?;
            let length = text.len() - begun - 1;
            *text.get_mut(begun)? = u8::try_from(length).ok().filter(|_| length < SHORT_END)?;
        }
        rest.is_empty().then_some(())
    }
}

/// Appends the text of a value.
fn write(kind: Kind, rest: &mut &[u8], text: &mut Vec<u8>) -> Option<()> {
    match kind {
        Kind::Integer(width) => {
            let bytes = take(rest, width)?;
            let negative = bytes.last()? & 0x80 != 0;
            let filled = little_endian(bytes, if negative { 0xFF } else { 0 }).cast_signed();
            if negative {
                text.push(b'-');
            }
            digits(filled.unsigned_abs(), 1, text);
        }
        Kind::Unsigned(width) => digits(little_endian(take(rest, width)?, 0), 1, text),
        Kind::Year => digits(little_endian(take(rest, 2)?, 0), 4, text),
        Kind::Double => double(f64::from_bits(little_endian(take(rest, 8)?, 0)), text),
        Kind::Date => {
            date(taken(rest)?, text)?;
        }
        Kind::Moment(decimals) => {
            let value = taken(rest)?;
            date(value, text)?;
            text.push(b' ');
            clock(value.get(4..).unwrap_or_default(), 0, decimals, text)?;
        }
        Kind::Time(decimals) => {
            let value = taken(rest)?;
            if value.first() == Some(&1) {
                text.push(b'-');
            }
            let days = little_endian(value.get(1..5).unwrap_or_default(), 0);
            clock(value.get(5..).unwrap_or_default(), days.checked_mul(24)?, decimals, text)?;
        }
        Kind::Bytes => return None,
    }
    Some(())
}

fn take<'b>(rest: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

/// A date or time: a length of one byte, and the value.
fn taken<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = usize::from(*take(rest, 1)?.first()?);
    take(rest, length)
}

fn little_endian(bytes: &[u8], above: u8) -> u64 {
    let mut number = [above; 8];
    for (to, from) in number.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(number)
}

/// Appends a number with `least` digits or more.
fn digits(mut number: u64, least: usize, text: &mut Vec<u8>) {
    let mut written = [b'0'; 20];
    let mut begun = written.len();
    while begun > 0 && (number > 0 || written.len() - begun < least) {
        begun -= 1;
        written[begun] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text.extend_from_slice(&written[begun..]);
}

fn date(value: &[u8], text: &mut Vec<u8>) -> Option<()> {
    let [low, high, month, day] = if value.is_empty() { [0; 4] } else { *value.first_chunk()? };
    digits(u16::from_le_bytes([low, high]).into(), 4, text);
    text.push(b'-');
    digits(month.into(), 2, text);
    text.push(b'-');
    digits(day.into(), 2, text);
    Some(())
}

/// Hours, minutes, seconds, and `decimals` digits of a second.
fn clock(value: &[u8], hours: u64, decimals: u8, text: &mut Vec<u8>) -> Option<()> {
    let [hour, minute, second] = if value.is_empty() { [0; 3] } else { *value.first_chunk()? };
    digits(hours.checked_add(hour.into())?, 2, text);
    text.push(b':');
    digits(minute.into(), 2, text);
    text.push(b':');
    digits(second.into(), 2, text);
    if decimals > 0 {
        let micros = little_endian(value.get(3..7).unwrap_or_default(), 0);
        text.push(b'.');
        digits(micros / 10_u64.pow(6 - u32::from(decimals)), decimals.into(), text);
    }
    Some(())
}

/// Appends the fewest digits that mean this number, which is finite, where a server writes an exponent with one.
pub fn double(number: f64, text: &mut Vec<u8>) {
    let mut buffer = zmij::Buffer::new();
    let written = buffer.format_finite(number);
    // Most numbers have their point where the server has it.
    let bytes = written.as_bytes();
    let point = bytes.iter().position(|byte| *byte == b'.').filter(|point| *point <= POINT_MAX as usize);
    if point.is_some() && !bytes.contains(&b'e') {
        return text.extend_from_slice(bytes.strip_suffix(b".0").unwrap_or(bytes));
    }
    let written = written.strip_prefix('-').inspect(|_| text.push(b'-')).unwrap_or(written);
    let (mantissa, exponent) = written.split_once('e').unwrap_or((written, "0"));
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (mut found, mut count) = ([0; 40], 0);
    for (to, from) in found.iter_mut().zip(before.bytes().chain(after.bytes())) {
        *to = from;
        count += 1;
    }
    let all = found.get(..count).unwrap_or_default();
    let zeros = all.iter().take_while(|digit| **digit == b'0').count();
    let end = all.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
    let significant = all.get(zeros..end).unwrap_or_default();
    // Where the point is: before the digit with this number.
    let point = before.len() as i32 - zeros as i32 + exponent.parse::<i32>().unwrap_or(0);
    place_point(significant, point, text);
}

fn place_point(significant: &[u8], point: i32, text: &mut Vec<u8>) {
    let length = significant.len() as i32;
    let plain = point > -POINT_MAX && (point <= POINT_MAX || length > point);
    let inside = usize::try_from(if plain { point } else { 1 }).unwrap_or(0).min(significant.len());
    let (before, after) = significant.split_at(inside);
    if plain && point <= 0 {
        text.extend_from_slice(b"0.");
        text.extend(std::iter::repeat_n(b'0', point.unsigned_abs() as usize));
    }
    text.extend_from_slice(before);
    if plain && point > length {
        text.extend(std::iter::repeat_n(b'0', (point - length) as usize));
    }
    if !before.is_empty() && !after.is_empty() {
        text.push(b'.');
    }
    text.extend_from_slice(after);
    if !plain {
        text.push(b'e');
        if point < 1 {
            text.push(b'-');
        }
        digits((point - 1).unsigned_abs().into(), 1, text);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn definition(kind: u8, flags: u16, decimals: u8) -> Vec<u8> {
        let [low, high] = flags.to_le_bytes();
        let fixed = [0x0c, 63, 0, 20, 0, 0, 0, kind, low, high, decimals, 0, 0];
        [&b"\x03def\x01s\x01t\x01t\x01c\x01c"[..], &fixed].concat()
    }

    fn text(kinds: &[(u8, u16, u8)], row: &[u8]) -> Option<Vec<u8>> {
        let definitions: Vec<_> =
            kinds.iter().map(|(kind, flags, decimals)| definition(*kind, *flags, *decimals)).collect();
        let mut text = b"before".to_vec();
        BinaryColumns::of(&definitions)?.as_text(row, &mut text)?;
        Some(text)
    }

    #[test]
    fn doubles_are_written_as_the_servers_write_them() {
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (100.0, "100"),
            (1e14, "100000000000000"),
            (1e15, "1e15"),
            (123_456_789_012_345.6, "123456789012345.6"),
            (1_234_567_890_123_456.7, "1234567890123456.8"),
            (12_345_678_901_234_567.0, "1.2345678901234568e16"),
            (1e-14, "0.00000000000001"),
            (1e-15, "0.000000000000001"),
            (1e-16, "1e-16"),
            (1.25e-16, "1.25e-16"),
            (f64::MAX, "1.7976931348623157e308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
            (0.300_000_000_000_000_04, "0.30000000000000004"),
        ] {
            let mut text = Vec::new();
            double(number, &mut text);
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }

    #[test]
    fn a_row_of_every_kind_becomes_its_text() {
        let kinds = [(1, 0, 0), (2, UNSIGNED, 0), (3, 0, 0), (8, UNSIGNED, 0), (13, 0x60, 0), (253, 0, 0), (246, 0, 2)];
        let row = b"\0\x40\x01\xff\xff\xff\x00\x00\x00\x80\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x04a\0bc";
        // The bit of the fifth column is 0x40 in the first byte: NULL. The bit of the seventh is in the second byte.
        let row = [&row[..18], &row[20..]].concat();
        let expected = b"\x02-1\x0565535\x0b-2147483648\x1418446744073709551615\xfb\x04a\0bc\xfb";
        assert_eq!(text(&kinds, &row).unwrap(), expected);
        let times = [(10, 0, 0), (12, 0, 6), (7, 0, 3), (11, 0, 0), (11, 0, 1)];
        let row = b"\0\0\x04\xe7\x07\x01\x02\0\x07\xe7\x07\x0c\x1f\x17\x3b\x3a\x08\x01\x22\0\0\0\x16\x3b\x3b\x0c\0\0\0\0\0\x01\x02\
                    \x03\xa0\x86\x01\0";
        let expected = "\u{a}2023-01-02\u{1a}0000-00-00 00:00:00.000000\u{17}2023-12-31 23:59:58.000\u{a}-838:59:59\u{a}01:02:03.1";
        assert_eq!(String::from_utf8(text(&times, row).unwrap()).unwrap(), expected);
    }

    #[test]
    fn a_column_with_another_text_and_a_row_that_is_cut_are_refused() {
        // Zeros before a number, a fixed number of digits, a BLOB.
        for kind in [(3, ZEROFILL, 0), (5, 0, 2), (4, 0, 31), (252, 0, 0)] {
            assert_eq!(BinaryColumns::of(&[definition(kind.0, kind.1, kind.2)]), None);
        }
        assert_eq!(BinaryColumns::of(&[b"\x03de".to_vec()]), None);
        for row in [&b""[..], b"\0", b"\0\0\x01\x02\x03", b"\0\0\x01\x02\x03\x04\x05", b"\0\0"] {
            assert_eq!(text(&[(3, 0, 0)], row), None);
        }
    }
}
