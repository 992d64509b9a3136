//! Values as the servers themselves write them: the text that is loaded is the text that the target gives back, so that
//! rows can be compared by their digests.

use rusqlite::types::ValueRef;

pub use crate::mysql_family::connection::double;

/// The most digits of a second.
const FRACTION_MAX: usize = 6;
/// The least year of a DATE or DATETIME.
const YEAR_MIN: i16 = 1000;

/// A DECIMAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    /// All of its digits.
    pub digits: u32,
    /// Those after the point.
    pub scale: u32,
}

impl Decimal {
    /// Appends a value.
    ///
    /// # Errors
    /// It is not a number, or has more digits.
    pub fn write(self, value: ValueRef<'_>, out: &mut Vec<u8>) -> Result<(), &'static str> {
        const LONG: &str = "a number with more digits than declared";
        let text = match value {
            ValueRef::Integer(value) => value.to_string(),
            ValueRef::Real(value) if !value.is_finite() => return Err("an infinite number"),
            // The fewest digits that mean this number, without an exponent.
            ValueRef::Real(value) => value.to_string(),
            ValueRef::Text(text) => std::str::from_utf8(text).unwrap_or_default().to_owned(),
            ValueRef::Blob(_) => return Err("a blob"),
            ValueRef::Null => return Ok(()),
        };
        let (negative, plain) = text.strip_prefix('-').map_or((false, text.as_str()), |plain| (true, plain));
        let (before, after) = plain.split_once('.').unwrap_or((plain, ""));
        if before.is_empty() || !before.bytes().chain(after.bytes()).all(|byte| byte.is_ascii_digit()) {
            return Err("a text that is not a number");
        }
        let (before, after) = (before.trim_start_matches('0'), after.trim_end_matches('0'));
        if before.len() > (self.digits - self.scale) as usize || after.len() > self.scale as usize {
            return Err(LONG);
        }
        if negative && !(before.is_empty() && after.is_empty()) {
            out.push(b'-');
        }
        out.extend_from_slice(if before.is_empty() { b"0" } else { before.as_bytes() });
        if self.scale > 0 {
            out.push(b'.');
            out.extend_from_slice(after.as_bytes());
            out.resize(out.len() + self.scale as usize - after.len(), b'0');
        }
        Ok(())
    }
}

/// Whether a DOUBLE holds an integer exactly.
pub fn is_exact(value: i64) -> bool {
    // i64::MAX becomes 2^63, which is one more.
    value as f64 as i128 == i128::from(value)
}

/// Characters of a text in UTF-8.
pub fn characters(text: &[u8]) -> u64 {
    std::str::from_utf8(text).map_or(text.len(), |text| text.chars().count()) as u64
}

/// Two or four digits as a number.
fn number(text: &[u8]) -> Option<i16> {
    text.iter().try_fold(0_i16, |sum, byte| Some(sum * 10 + i16::from(byte.is_ascii_digit().then(|| byte - b'0')?)))
}

/// Whether it is a day that a DATE holds: `2026-11-27`.
pub fn date(text: &[u8]) -> bool {
    let parsed = || {
        let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *text else { return None };
        let (year, month, day) = (number(&[y1, y2, y3, y4])?, number(&[m1, m2])?, number(&[d1, d2])?);
        jiff::civil::Date::new(year, month as i8, day as i8).ok().filter(|_| year >= YEAR_MIN)
    };
    parsed().is_some()
}

/// The digits after the point of a time that a DATETIME holds: `2026-11-27 10:00:00.5`, also with a T.
pub fn moment(text: &[u8]) -> Option<&[u8]> {
    let (day, rest) = text.split_at_checked(10)?;
    let (time, fraction) = rest.split_at_checked(9)?;
    let [b' ' | b'T', h1, h2, b':', m1, m2, b':', s1, s2] = *time else { return None };
    let (hour, minute, second) = (number(&[h1, h2])?, number(&[m1, m2])?, number(&[s1, s2])?);
    let digits = fraction.strip_prefix(b".").unwrap_or_default();
    let is_fraction = fraction.is_empty() || (1..=FRACTION_MAX).contains(&digits.len());
    let is_time = hour < 24 && minute < 60 && second < 60;
    (date(day) && is_time && is_fraction && digits.iter().all(u8::is_ascii_digit)).then_some(digits)
}

/// Appends such a time with so many digits of a second.
pub fn write_moment(text: &[u8], most: u8, out: &mut Vec<u8>) -> Option<()> {
    let (digits, most) = (moment(text)?, usize::from(most));
    if digits.len() > most {
        return None;
    }
    out.extend_from_slice(text.get(..10)?);
    out.push(b' ');
    out.extend_from_slice(text.get(11..19)?);
    if most > 0 {
        out.push(b'.');
        out.extend_from_slice(digits);
        out.resize(out.len() + most - digits.len(), b'0');
    }
    Some(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_written_as_a_server_writes_it_and_one_that_does_not_fit_is_refused() {
        let decimal = Decimal { digits: 5, scale: 2 };
        let written = |value: ValueRef<'_>| {
            let mut out = Vec::new();
            decimal.write(value, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        for (value, text) in [
            (ValueRef::Integer(7), "7.00"),
            (ValueRef::Real(9.99), "9.99"),
            (ValueRef::Real(-0.5), "-0.50"),
            (ValueRef::Real(-0.0), "0.00"),
            (ValueRef::Text(b"007.1"), "7.10"),
            (ValueRef::Integer(-999), "-999.00"),
        ] {
            assert_eq!(written(value).unwrap(), text);
        }
        for value in [
            ValueRef::Integer(1000),
            ValueRef::Real(0.1 + 0.2),
            ValueRef::Real(f64::INFINITY),
            ValueRef::Text(b"1e3"),
            ValueRef::Text(b""),
            ValueRef::Text(b"."),
            ValueRef::Blob(b"1"),
        ] {
            assert!(written(value).is_err(), "{value:?}");
        }
    }

    #[test]
    fn days_and_times_are_those_of_the_calendar() {
        assert!(date(b"2024-02-29") && date(b"1000-01-01") && date(b"9999-12-31"));
        for bad in [&b"2023-02-29"[..], b"0999-01-01", b"2024-13-01", b"2024-1-1", b"2024-01-01 ", b"", b"2024/01/01"] {
            assert!(!date(bad), "{bad:?}");
        }
        let written = |text: &[u8], digits| {
            let mut out = Vec::new();
            write_moment(text, digits, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(written(b"2024-02-29T23:59:59", 0).unwrap(), "2024-02-29 23:59:59");
        assert_eq!(written(b"2024-02-29 00:00:00.12", 6).unwrap(), "2024-02-29 00:00:00.120000");
        for bad in [
            "2024-02-29",
            "2024-02-29 24:00:00",
            "2024-02-29 00:00:00.",
            "2024-02-29 00:00:00.1234567",
            "2024-02-29 00:00:00Z",
        ] {
            assert_eq!(written(bad.as_bytes(), 6), None, "{bad}");
        }
        assert_eq!(written(b"2024-02-29 00:00:00.1", 0), None);
    }

    #[test]
    fn only_integers_that_come_back_from_a_double_are_exact() {
        assert!(is_exact(1 << 53) && is_exact(i64::MIN) && is_exact(-(1 << 60)));
        assert!(!is_exact((1 << 53) + 1) && !is_exact(i64::MAX));
    }
}
