//! A cell as text: in CSV, and where a format has no type for it.

use std::fmt::Write;

use fullbore_engines::{Cell, ColumnKind, Day, TimeOfDay};

/// Hexadecimal digits.
const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
/// Ticks of 100 nanoseconds in a minute.
const TICKS_PER_MINUTE: i64 = 60 * 10_000_000;
/// Minutes of a day.
const MINUTES_PER_DAY: i32 = 24 * 60;

/// Writes the text of a cell; nothing for NULL.
///
/// Numbers are exact, a bit is 1 or 0, dates are as in ISO 8601 with a space before the time, bytes begin with `0x`.
pub fn push(out: &mut String, cell: &Cell, kind: ColumnKind) {
    let done = match cell {
        Cell::Null => Ok(()),
        Cell::Bool(value) => out.write_char(if *value { '1' } else { '0' }),
        Cell::Int(value) => write!(out, "{value}"),
        Cell::Decimal { digits, scale } => decimal(out, *digits, *scale),
        Cell::Real(value) => write!(out, "{value:?}"),
        Cell::Float(value) => write!(out, "{value:?}"),
        Cell::Date(day) => date(out, *day),
        Cell::Time(time) => time_of_day(out, *time, digits_of(kind)),
        Cell::Moment(day, time) => moment(out, *day, *time, digits_of(kind)),
        Cell::ZonedMoment(day, time, offset) => zoned(out, *day, *time, *offset, digits_of(kind)),
        Cell::Uuid(id) => write!(out, "{:X}", id.hyphenated()),
        Cell::Text(text) => out.write_str(text),
        Cell::Binary(bytes) => {
            out.push_str("0x");
            let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
            out.extend(digits.map(|digit| char::from(DIGITS[usize::from(digit)])));
            Ok(())
        }
    };
    // A `String` takes everything.
    done.unwrap_or_default();
}

/// The text of a cell.
pub fn text(cell: &Cell, kind: ColumnKind) -> String {
    let mut out = String::new();
    push(&mut out, cell, kind);
    out
}

/// Digits of a second behind the point.
fn digits_of(kind: ColumnKind) -> u8 {
    match kind {
        ColumnKind::Time { digits } | ColumnKind::Moment { digits } | ColumnKind::ZonedMoment { digits } => digits,
        _ => 7,
    }
}

fn decimal(out: &mut String, digits: i128, scale: u8) -> std::fmt::Result {
    let sign = if digits < 0 { "-" } else { "" };
    let all = format!("{:0>width$}", digits.unsigned_abs(), width = usize::from(scale) + 1);
    let (whole, part) = all.split_at(all.len() - usize::from(scale));
    match part {
        "" => write!(out, "{sign}{whole}"),
        part => write!(out, "{sign}{whole}.{part}"),
    }
}

fn date(out: &mut String, day: Day) -> std::fmt::Result {
    let (year, month, day) = day.date();
    write!(out, "{year:04}-{month:02}-{day:02}")
}

fn time_of_day(out: &mut String, time: TimeOfDay, digits: u8) -> std::fmt::Result {
    let (hour, minute, second, ticks) = time.parts();
    write!(out, "{hour:02}:{minute:02}:{second:02}")?;
    match format!("{ticks:07}").get(..usize::from(digits.min(7))) {
        Some("") | None => Ok(()),
        Some(part) => write!(out, ".{part}"),
    }
}

fn moment(out: &mut String, day: Day, time: TimeOfDay, digits: u8) -> std::fmt::Result {
    date(out, day)?;
    out.write_char(' ')?;
    time_of_day(out, time, digits)
}

/// The time of the zone, and its offset.
fn zoned(out: &mut String, day: Day, time: TimeOfDay, offset: i16, digits: u8) -> std::fmt::Result {
    let (day, time) = local(day, time, offset).unwrap_or((day, time));
    moment(out, day, time, digits)?;
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs());
    write!(out, " {sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// A moment in UTC as the clocks of a zone show it. `None` if they show a year below 1 or above 9999.
fn local(day: Day, time: TimeOfDay, offset: i16) -> Option<(Day, TimeOfDay)> {
    let ticks_per_day = i64::from(MINUTES_PER_DAY) * TICKS_PER_MINUTE;
    let ticks = i64::try_from(time.ticks()).ok()? + i64::from(offset) * TICKS_PER_MINUTE;
    let day = day.plus(i32::try_from(ticks.div_euclid(ticks_per_day)).ok()?)?;
    Some((day, TimeOfDay::new(ticks.rem_euclid(ticks_per_day).unsigned_abs())?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_written_exactly() {
        let day = Day::since_year_1(728_477).unwrap();
        let time = TimeOfDay::new(13 * 3600 * 10_000_000 + 12_345_678).unwrap();
        let dec = |digits, scale| Cell::Decimal { digits, scale };
        for (cell, kind, expected) in [
            (dec(323_800, 4), ColumnKind::Decimal { precision: 19, scale: 4 }, "32.3800"),
            (dec(-5, 4), ColumnKind::Decimal { precision: 19, scale: 4 }, "-0.0005"),
            (dec(-5, 0), ColumnKind::Decimal { precision: 5, scale: 0 }, "-5"),
            (Cell::Float(0.1), ColumnKind::Float, "0.1"),
            (Cell::Float(1e300), ColumnKind::Float, "1e300"),
            (Cell::Real(0.1), ColumnKind::Real, "0.1"),
            (Cell::Moment(day, time), ColumnKind::Moment { digits: 3 }, "1995-07-04 13:00:01.234"),
            (Cell::Moment(day, time), ColumnKind::Moment { digits: 0 }, "1995-07-04 13:00:01"),
            (
                Cell::ZonedMoment(day, time, -840),
                ColumnKind::ZonedMoment { digits: 7 },
                "1995-07-03 23:00:01.2345678 -14:00",
            ),
            (Cell::Binary(vec![0, 0xAB]), ColumnKind::Binary, "0x00AB"),
            (Cell::Bool(true), ColumnKind::Bool, "1"),
            (Cell::Null, ColumnKind::Text, ""),
        ] {
            assert_eq!(text(&cell, kind), expected);
        }
    }
}
