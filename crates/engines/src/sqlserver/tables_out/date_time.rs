//! Dates and times as SQL Server stores them.

use super::super::super::engine::{Cell, Day, TICKS_PER_DAY, TimeOfDay};
use super::super::fields::Fields;
use super::types::time_length;
use super::{Decoded, field, unknown};

/// Days from 1 January of year 1 to 1 January 1900.
const DAYS_BEFORE_1900: i64 = 693_595;
/// Units of `datetime` in a second.
const PARTS_PER_SECOND: u64 = 300;
/// Units of 100 nanoseconds in a millisecond.
const TICKS_PER_MILLISECOND: u64 = 10_000;
/// Units of 100 nanoseconds in a minute.
const TICKS_PER_MINUTE: u64 = 60 * 10_000_000;

/// `datetime`: units of 1/300 second, then days since 1900. The time is shown in whole milliseconds, as SQL Server shows
/// it: .000, .003, .007.
///
/// # Errors
/// The bytes are too few, or there is no such date or time.
pub fn datetime(bytes: &[u8]) -> Decoded<Cell> {
    let fields = Fields(bytes);
    datetime_of(field(fields.u32(4))?.cast_signed(), field(fields.u32(0))?)
}

/// `datetime` from its two parts.
///
/// # Errors
/// There is no such date or time.
pub fn datetime_of(days: i32, parts: u32) -> Decoded<Cell> {
    let milliseconds = (u64::from(parts) * 10 * 2 + 3) / (2 * 3);
    debug_assert_eq!(PARTS_PER_SECOND * 10 / 3, 1000);
    let ticks = milliseconds * TICKS_PER_MILLISECOND;
    // The last part of a day is shown as the millisecond before midnight: 23:59:59.997.
    moment(i64::from(days) + DAYS_BEFORE_1900, ticks)
}

/// `smalldatetime`: minutes, then days since 1900.
///
/// # Errors
/// As of [`datetime`].
pub fn smalldatetime(bytes: &[u8]) -> Decoded<Cell> {
    let fields = Fields(bytes);
    let (minutes, days) = (field(fields.u16(0))?, field(fields.u16(2))?);
    moment(i64::from(days) + DAYS_BEFORE_1900, u64::from(minutes) * TICKS_PER_MINUTE)
}

/// `date`: days since 1 January of year 1.
///
/// # Errors
/// As of [`datetime`].
pub fn date(bytes: &[u8]) -> Decoded<Day> {
    let [low, middle, high] = field(Fields(bytes).bytes::<3>(0))?;
    day(i64::from(u32::from_le_bytes([low, middle, high, 0])))
}

/// `time`: units of `10^-digits` seconds.
///
/// # Errors
/// As of [`datetime`].
pub fn time(bytes: &[u8], digits: u8) -> Decoded<TimeOfDay> {
    let Some(bytes) = bytes.get(..time_length(digits)) else { return unknown("a time is too short") };
    let units = bytes.iter().rev().fold(0_u64, |units, byte| units << 8 | u64::from(*byte));
    let ticks = units.checked_mul(10_u64.pow(7_u32.saturating_sub(digits.into())));
    match ticks.and_then(TimeOfDay::new) {
        Some(time) => Ok(time),
        None => unknown("a time is not below one day"),
    }
}

/// `datetime2`: a time, then a date.
///
/// # Errors
/// As of [`datetime`].
pub fn datetime2(bytes: &[u8], digits: u8) -> Decoded<(Day, TimeOfDay)> {
    let time = time(bytes, digits)?;
    Ok((date(bytes.get(time_length(digits)..).unwrap_or_default())?, time))
}

/// `datetimeoffset`: a time and a date in UTC, then the offset in minutes.
///
/// # Errors
/// As of [`datetime`].
pub fn datetimeoffset(bytes: &[u8], digits: u8) -> Decoded<Cell> {
    /// T-SQL allows 14 hours.
    const OFFSET_MAX: u16 = 14 * 60;
    let (day, time) = datetime2(bytes, digits)?;
    let offset = field(Fields(bytes).u16(time_length(digits) + 3))?.cast_signed();
    if offset.unsigned_abs() > OFFSET_MAX {
        return unknown(format!("an offset of {offset} minutes does not exist"));
    }
    Ok(Cell::ZonedMoment(day, time, offset))
}

fn day(days: i64) -> Decoded<Day> {
    match i32::try_from(days).ok().and_then(Day::since_year_1) {
        Some(day) => Ok(day),
        None => unknown("a date is not between the years 1 and 9999"),
    }
}

fn moment(days: i64, ticks: u64) -> Decoded<Cell> {
    match TimeOfDay::new(ticks) {
        Some(time) => Ok(Cell::Moment(day(days)?, time)),
        None => unknown(format!("a time of {ticks} units is not below one day of {TICKS_PER_DAY}")),
    }
}
