//! The rows that the server answers, as values that are checked before they are used.

use std::sync::Arc;

use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};

/// The longest text that is shown of a value, in characters.
const TEXT_MAX: usize = 4096;
/// The longest text of a value, in bytes.
const CELL_MAX: usize = 1 << 20;
/// The most columns of an answer. HEADERONLY has fewer than 70.
const COLUMNS_MAX: usize = 1024;
/// The most rows of an answer.
const ROWS_MAX: usize = 10_000;
/// The most values of an answer: a NULL takes more room here than on its way.
const CELLS_MAX: usize = 1_000_000;

/// A value of a column.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// NULL, or a type that no question asks for.
    #[default]
    Null,
    /// Every integer type.
    Integer(i64),
    /// Real and float.
    Number(f64),
    /// Every text; also a numeric, a GUID and a time, as SQL Server prints them.
    Text(String),
}

/// A row: its columns by name. All rows of a result share the names.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    names: Arc<[String]>,
    values: Vec<Value>,
}

/// The rows of an answer, within limits.
#[derive(Default)]
pub struct Collected {
    names: Arc<[String]>,
    rows: Vec<Row>,
    cells: usize,
}

impl Collected {
    /// A result begins, with these columns.
    ///
    /// # Errors
    /// There are too many.
    pub fn begin<'n>(&mut self, names: impl ExactSizeIterator<Item = &'n str>) -> std::result::Result<(), String> {
        if names.len() > COLUMNS_MAX {
            return Err(format!("an answer has {} columns, and at most {COLUMNS_MAX} are possible", names.len()));
        }
        self.names = names.map(str::to_owned).collect();
        Ok(())
    }

    /// A row of the result.
    ///
    /// # Errors
    /// There are too many rows or values, or a value is too long.
    pub fn push(&mut self, values: impl Iterator<Item = Value>) -> std::result::Result<(), String> {
        let values: Vec<Value> = values.take(COLUMNS_MAX).collect();
        self.cells = self.cells.saturating_add(values.len());
        if self.rows.len() >= ROWS_MAX || self.cells > CELLS_MAX {
            return Err(format!("an answer has more than {ROWS_MAX} rows or {CELLS_MAX} values"));
        }
        if values.iter().any(|value| matches!(value, Value::Text(text) if text.len() > CELL_MAX)) {
            return Err(format!("a value has more than {} MiB", CELL_MAX >> 20));
        }
        self.rows.push(Row { names: Arc::clone(&self.names), values });
        Ok(())
    }

    /// All of them.
    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }
}

impl Row {
    fn value(&self, column: &str) -> Option<&Value> {
        let at = self.names.iter().position(|name| name.eq_ignore_ascii_case(column))?;
        self.values.get(at)
    }

    /// A text without control characters, and not too long; `None` for NULL, an empty text and another type.
    pub fn text(&self, column: &str) -> Option<String> {
        match self.value(column)? {
            Value::Text(text) => Some(one_line(text)).filter(|text| !text.is_empty()),
            _ => None,
        }
    }

    /// An integer, also in a text; `None` for everything else.
    pub fn integer(&self, column: &str) -> Option<i64> {
        match self.value(column)? {
            Value::Integer(number) => Some(*number),
            Value::Text(text) => text.trim().parse().ok(),
            Value::Number(_) | Value::Null => None,
        }
    }

    /// A number of bytes: an integer that is not negative.
    pub fn bytes(&self, column: &str) -> Option<u64> {
        self.integer(column).and_then(|number| u64::try_from(number).ok())
    }

    /// A share in percent, 0 to 100.
    pub fn percent(&self, column: &str) -> Option<f64> {
        let number = match self.value(column)? {
            Value::Number(number) => *number,
            Value::Integer(number) => *number as f64,
            Value::Text(text) => text.trim().parse().ok()?,
            Value::Null => return None,
        };
        number.is_finite().then(|| number.clamp(0.0, 100.0))
    }

    /// A GUID in lower case, as reports have it.
    pub fn guid(&self, column: &str) -> Option<String> {
        uuid::Uuid::try_parse(self.text(column)?.trim()).ok().map(|id| id.to_string())
    }

    /// A log sequence number as SQL Server prints it: at most 25 digits.
    pub fn lsn(&self, column: &str) -> Option<String> {
        let text = match self.value(column)? {
            Value::Text(text) => text.trim().to_owned(),
            Value::Integer(number) => number.to_string(),
            _ => return None,
        };
        let is_lsn = (1..=25).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        is_lsn.then_some(text)
    }
}

/// A text of the server for a message: one line, without control characters, and not too long.
pub fn one_line(text: &str) -> String {
    let letters = text.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    letters.take(TEXT_MAX).collect()
}

/// The kind of a set, from `BackupType` of HEADERONLY. `None`: a backup of files or a part of a database.
pub fn kind_of_type(number: i64) -> Option<SetKind> {
    match number {
        1 => Some(SetKind::Full),
        2 => Some(SetKind::Log),
        5 => Some(SetKind::Differential),
        _ => None,
    }
}

/// The state of a task of RDS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    /// CREATED, IN_PROGRESS, CANCEL_REQUESTED.
    Running,
    /// SUCCESS.
    Success,
    /// ERROR.
    Error,
    /// CANCELLED.
    Cancelled,
}

impl Lifecycle {
    /// From the column `lifecycle`.
    ///
    /// # Errors
    /// A state that no document names: a run must not be taken for done or failed by guessing.
    pub fn parse(text: &str) -> Result<Self> {
        match text.trim().to_ascii_uppercase().as_str() {
            "CREATED" | "IN_PROGRESS" | "CANCEL_REQUESTED" => Ok(Self::Running),
            "SUCCESS" => Ok(Self::Success),
            "ERROR" => Ok(Self::Error),
            "CANCELLED" => Ok(Self::Cancelled),
            other => {
                let why = format!("says a state that fullbore does not know: `{}`", one_line(other));
                Err(Error::refused("rds_task_status", why, "ask it yourself; the task may still run"))
            }
        }
    }
}

/// The moment `microseconds` since 1970 as the server's clock shows it, `minutes` ahead of UTC, for STOPAT. Rounded down
/// to milliseconds.
///
/// # Errors
/// A moment outside of the years that SQL Server has.
pub fn server_time(microseconds: i64, minutes: i64) -> Result<String> {
    let wrong = || Error::usage("--stop-at", "SQL Server has no such time", "use a time in this century");
    let shifted =
        minutes.checked_mul(60_000_000).and_then(|shift| microseconds.checked_add(shift)).ok_or_else(wrong)?;
    let time = jiff::Timestamp::from_microsecond(shifted).map_err(|_| wrong())?;
    let shown = time.to_zoned(jiff::tz::TimeZone::UTC);
    if !(1753..=9999).contains(&shown.year()) {
        return Err(wrong());
    }
    Ok(shown.strftime("%Y-%m-%dT%H:%M:%S.%3f").to_string())
}

/// A `datetime` as SQL Server prints it in style 126: days since 1900, and units of 1/300 second.
pub fn datetime(days: i32, fragments: u32) -> Option<String> {
    let seconds = i64::from(days).checked_mul(86_400)?.checked_add(i64::from(fragments / 300))?;
    // 1900-01-01 is 25567 days before 1970-01-01.
    let since_1970 = seconds.checked_sub(25_567 * 86_400)?;
    let milliseconds = i64::from(fragments % 300) * 10 / 3;
    let time = jiff::Timestamp::from_millisecond(since_1970.checked_mul(1000)?.checked_add(milliseconds)?).ok()?;
    Some(time.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S.%3f").to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(value: Value) -> Row {
        let mut answer = Collected::default();
        answer.begin(["a"].into_iter()).unwrap();
        answer.push([value].into_iter()).unwrap();
        answer.into_rows().pop().unwrap()
    }

    #[test]
    fn a_value_is_what_it_must_be_or_it_is_missing() {
        assert_eq!(row(Value::Integer(-1)).bytes("A"), None);
        assert_eq!(row(Value::Integer(7)).bytes("a"), Some(7));
        assert_eq!(row(Value::Text(" 42 ".into())).integer("a"), Some(42));
        assert_eq!(row(Value::Number(f64::NAN)).percent("a"), None);
        assert_eq!(row(Value::Number(140.0)).percent("a"), Some(100.0));
        assert_eq!(row(Value::Text("34000000018400037".into())).lsn("a").unwrap(), "34000000018400037");
        assert_eq!(row(Value::Text("1'; DROP".into())).lsn("a"), None);
        assert_eq!(row(Value::Text("6F9619FF-8B86-D011-B42D-00C04FC964FF".into())).guid("a").unwrap().len(), 36);
        assert_eq!(row(Value::Text("a\nb\u{1b}c".into())).text("a").unwrap(), "a b c");
        assert_eq!((row(Value::Null).text("a"), row(Value::Null).integer("b")), (None, None));
        assert_eq!(
            (kind_of_type(1), kind_of_type(5), kind_of_type(4)),
            (Some(SetKind::Full), Some(SetKind::Differential), None)
        );
    }

    #[test]
    fn an_answer_has_limits() {
        let names: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
        let mut answer = Collected::default();
        assert!(answer.begin(names.iter().map(String::as_str)).unwrap_err().contains("2000 columns"));
        assert!(answer.push([Value::Text("x".repeat(CELL_MAX + 1))].into_iter()).unwrap_err().contains("1 MiB"));
        answer.begin(["a", "b"].into_iter()).unwrap();
        let rows = (0..=ROWS_MAX).take_while(|_| answer.push([Value::Null, Value::Null].into_iter()).is_ok()).count();
        assert_eq!((rows, answer.into_rows().len()), (ROWS_MAX, ROWS_MAX));
        let mut wide = Collected::default();
        let row = || (0..1000).map(|_| Value::Null);
        assert_eq!((0..).take_while(|_| wide.push(row()).is_ok()).count(), CELLS_MAX / 1000);
    }

    #[test]
    fn a_state_that_no_document_names_is_an_error() {
        assert_eq!(Lifecycle::parse("IN_PROGRESS").unwrap(), Lifecycle::Running);
        assert_eq!(Lifecycle::parse("success").unwrap(), Lifecycle::Success);
        assert!(Lifecycle::parse("PAUSED").unwrap_err().to_string().contains("PAUSED"));
    }

    #[test]
    fn a_moment_is_shown_by_the_clock_of_the_server() {
        let moment: jiff::Timestamp = "2026-11-22T09:00:00.1234Z".parse().unwrap();
        assert_eq!(server_time(moment.as_microsecond(), 60).unwrap(), "2026-11-22T10:00:00.123");
        assert_eq!(server_time(moment.as_microsecond(), -570).unwrap(), "2026-11-21T23:30:00.123");
        assert!(server_time(i64::MAX, 1).is_err() && server_time(i64::MIN / 2, 0).is_err());
        assert_eq!(datetime(0, 0).unwrap(), "1900-01-01T00:00:00.000");
        assert_eq!(datetime(46_346, 300 * 3600 + 1).unwrap(), "2026-11-22T01:00:00.003");
    }

    proptest! {
        #[test]
        fn no_answer_of_a_server_makes_a_panic(text in any::<String>(), number in any::<i64>(), share in any::<f64>(),
            days in any::<i32>(), fragments in any::<u32>(), minutes in any::<i64>()) {
            for value in [Value::Text(text.clone()), Value::Integer(number), Value::Number(share), Value::Null] {
                let row = row(value);
                let _ = (row.integer("a"), row.bytes("a"), row.guid("a"));
                prop_assert!(row.percent("a").is_none_or(|share| (0.0..=100.0).contains(&share)));
                prop_assert!(row.lsn("a").is_none_or(|lsn| lsn.len() <= 25));
                prop_assert!(row.text("a").is_none_or(|text| !text.chars().any(char::is_control)));
            }
            let _ = (Lifecycle::parse(&text), server_time(number, minutes), datetime(days, fragments));
        }
    }
}
