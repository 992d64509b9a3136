//! Tables on media of another program: their definitions, and their rows one by one. Writers of files need no more.

use fullbore_core::Result;
use uuid::Uuid;

/// The tables of one database.
pub trait ForeignTables: Send {
    /// The name of the database.
    fn database(&self) -> &str;

    /// The backup sets that were read, for messages.
    fn sets(&self) -> &[String];

    /// What to look at, although it is no error.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// What the reader of the tables has to know.
    fn notes(&self) -> &[String];

    /// The tables of users, by schema and name.
    fn tables(&self) -> &[ForeignTable];

    /// Gives each row of the table at this place in [`tables`](Self::tables) to `each`: the cells of `columns`, which are
    /// places in its columns. Other columns are not decoded. The result is what to look at.
    ///
    /// # Errors
    /// The error of `each`; [`Error::Refused`](fullbore_core::Error::Refused) if the table has something that cannot be
    /// decoded: the other tables may be good; damage.
    fn read(&self, table: usize, columns: &[usize], each: &mut dyn FnMut(&[Cell]) -> Result<()>)
    -> Result<Vec<String>>;

    /// The tables as text of their own system, if fullbore knows how.
    fn statements(&self) -> Option<&dyn Statements> {
        None
    }
}

/// Takes a piece of a text.
pub type WriteText<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// Tables as a text of SQL statements. The client of a server runs it.
pub trait Statements {
    /// What comes before all rows: it makes the databases and the tables. `tables` are places in
    /// [`ForeignTables::tables`]; `None`: everything is wanted.
    ///
    /// # Errors
    /// The error of `write`.
    fn before(&self, tables: Option<&[usize]>, write: WriteText<'_>) -> Result<()>;

    /// Inserts the rows of a table that `takes` wants. It gets the cells of `columns`.
    ///
    /// # Errors
    /// As [`ForeignTables::read`]; or the error of `write`.
    fn rows(
        &self,
        table: usize,
        columns: &[usize],
        takes: &mut dyn FnMut(&[Cell]) -> Result<bool>,
        write: WriteText<'_>,
    ) -> Result<()>;

    /// What comes behind all rows: views, triggers and routines.
    ///
    /// # Errors
    /// The error of `write`.
    fn behind(&self, tables: Option<&[usize]>, write: WriteText<'_>) -> Result<()>;
}

/// One table.
#[derive(Debug, Clone)]
pub struct ForeignTable {
    /// The name of its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Its columns in the order of their definition.
    pub columns: Vec<TableColumn>,
    /// The number of rows that the database itself has stored.
    pub stored_rows: Option<u64>,
    /// The reason why it cannot be read.
    pub refused: Option<String>,
    /// What an export leaves out.
    pub notes: Vec<String>,
}

impl ForeignTable {
    /// The schema and the name, as people write them.
    pub fn title(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// Which cells it has.
    pub kind: ColumnKind,
    /// The type as the other program writes it.
    pub declared: String,
    /// True if it may have no value.
    pub nullable: bool,
    /// The reason why its cells cannot be read.
    pub refused: Option<String>,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// True or false.
    Bool,
    /// An integer of 1 byte without sign.
    Byte,
    /// An integer of 2 bytes.
    Short,
    /// An integer of 4 bytes.
    Int,
    /// An integer of 8 bytes.
    Long,
    /// An integer of 8 bytes without sign. A cell above the largest integer is a decimal number.
    UnsignedLong,
    /// A decimal number.
    Decimal {
        /// Digits in all, at most 38.
        precision: u8,
        /// Digits behind the point.
        scale: u8,
    },
    /// A floating-point number of 4 bytes.
    Real,
    /// A floating-point number of 8 bytes.
    Float,
    /// A date.
    Date,
    /// A time of day.
    Time {
        /// Digits of a second behind the point, at most 7.
        digits: u8,
    },
    /// A date and a time, without zone.
    Moment {
        /// As of [`Time`](Self::Time).
        digits: u8,
    },
    /// A date and a time with the offset of its zone.
    ZonedMoment {
        /// As of [`Time`](Self::Time).
        digits: u8,
    },
    /// A UUID.
    Uuid,
    /// Text.
    Text,
    /// Bytes.
    Binary,
    /// Each cell has a type of its own.
    Any,
}

/// A value, or none.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A decimal number: its digits as an integer, and how many of them are behind the point.
    Decimal {
        /// All digits.
        digits: i128,
        /// Digits behind the point.
        scale: u8,
    },
    /// A floating-point number of 4 bytes.
    Real(f32),
    /// A floating-point number of 8 bytes.
    Float(f64),
    /// A date.
    Date(Day),
    /// A time of day.
    Time(TimeOfDay),
    /// A date and a time, without zone.
    Moment(Day, TimeOfDay),
    /// A date and a time in UTC, and the offset of the zone that it was written in, in minutes.
    ZonedMoment(Day, TimeOfDay, i16),
    /// A UUID.
    Uuid(Uuid),
    /// Text.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
}

/// Days since 1 January 1970, from the year 1 to the year 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(i32);

/// Days from 1 January of year 1 to 1 January 1970.
const DAYS_BEFORE_1970: i32 = 719_162;
/// Days of the years 1 to 9999.
const DAYS_OF_ALL_YEARS: i32 = 3_652_059;

impl Day {
    /// From the days since 1 January of year 1. `None` if the year is above 9999.
    pub fn since_year_1(days: i32) -> Option<Self> {
        (0..DAYS_OF_ALL_YEARS).contains(&days).then(|| Self(days - DAYS_BEFORE_1970))
    }

    /// From year, month and day. `None` if the calendar does not have it, or the year is not 1 to 9999.
    pub fn of(year: i16, month: i8, day: i8) -> Option<Self> {
        let date = jiff::civil::Date::new(year, month, day).ok()?;
        let since = date.since(jiff::civil::date(1970, 1, 1)).ok()?.get_days();
        Self::since_year_1(since.checked_add(DAYS_BEFORE_1970)?)
    }

    /// The days since 1 January 1970.
    pub fn since_1970(self) -> i32 {
        self.0
    }

    /// The day before or behind this one by `days`.
    pub fn plus(self, days: i32) -> Option<Self> {
        Self::since_year_1(self.0.checked_add(DAYS_BEFORE_1970)?.checked_add(days)?)
    }

    /// Year, month and day. The calendar is Gregorian for all years.
    pub fn date(self) -> (i32, u32, u32) {
        let date = jiff::civil::date(1970, 1, 1).checked_add(jiff::Span::new().days(i64::from(self.0)));
        // Every value is inside the calendar.
        let date = date.unwrap_or_default();
        (i32::from(date.year()), date.month().unsigned_abs().into(), date.day().unsigned_abs().into())
    }
}

/// Units of 100 nanoseconds since midnight, below one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(u64);

/// Units of [`TimeOfDay`] in a second.
const TICKS_PER_SECOND: u64 = 10_000_000;
/// Units of [`TimeOfDay`] in a day.
pub const TICKS_PER_DAY: u64 = 86_400 * TICKS_PER_SECOND;

impl TimeOfDay {
    /// `None` if it is not below one day.
    pub fn new(ticks: u64) -> Option<Self> {
        (ticks < TICKS_PER_DAY).then_some(Self(ticks))
    }

    /// Units of 100 nanoseconds.
    pub fn ticks(self) -> u64 {
        self.0
    }

    /// Hour, minute, second, and the units of 100 nanoseconds in the second.
    pub fn parts(self) -> (u64, u64, u64, u64) {
        let seconds = self.0 / TICKS_PER_SECOND;
        (seconds / 3600, seconds / 60 % 60, seconds % 60, self.0 % TICKS_PER_SECOND)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_year_1_to_9999_and_no_further() {
        assert_eq!(Day::since_year_1(0).unwrap().date(), (1, 1, 1));
        assert_eq!(Day::since_year_1(719_162).unwrap().since_1970(), 0);
        assert_eq!(Day::since_year_1(3_652_058).unwrap().date(), (9999, 12, 31));
        assert_eq!(Day::since_year_1(3_652_059), None);
        assert_eq!(Day::since_year_1(-1), None);
        for (year, month, day, days) in [(1, 1, 1, 0), (1970, 1, 1, 719_162), (9999, 12, 31, 3_652_058)] {
            assert_eq!(Day::of(year, month, day), Day::since_year_1(days));
        }
        assert_eq!((Day::of(2023, 2, 29), Day::of(0, 1, 1), Day::of(2023, 0, 1)), (None, None, None));
        assert_eq!(Day::since_year_1(0).unwrap().plus(-1), None);
    }

    #[test]
    fn a_time_of_day_ends_before_midnight() {
        assert_eq!(TimeOfDay::new(TICKS_PER_DAY), None);
        assert_eq!(TimeOfDay::new(TICKS_PER_DAY - 1).unwrap().parts(), (23, 59, 59, 9_999_999));
    }
}
