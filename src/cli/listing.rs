//! How listings are shown and written: their flags, the view for a terminal, and the JSON object.

use clap::Args;
use fullbore::chain::show_time;
use fullbore::report::SCHEMA_VERSION;
use fullbore::{Result, ids};
use jiff::Timestamp;
use serde::Serialize;

use super::args::{ReportTo, report_to};
use super::show;

/// Where the JSON object of a verb goes.
#[derive(Debug, Args)]
pub struct ReportFlags {
    /// Write one JSON object: json (to standard output, instead of the result) or json:FILE. A job writes it on failure
    /// too.
    #[arg(long, value_name = "json[:FILE]", value_parser = report_to)]
    pub report: Option<ReportTo>,
    /// The same as --report json.
    #[arg(long, conflicts_with = "report")]
    pub json: bool,
}

/// How a listing is shown.
#[derive(Debug, Args)]
pub struct ListFlags {
    /// Its JSON object.
    #[command(flatten)]
    pub report: ReportFlags,
    /// Show only what is not good. If everything is good, print nothing.
    #[arg(short, long)]
    pub quiet: bool,
    /// Show whole ids, exact times and all columns. Off a terminal, a table has them anyway.
    #[arg(short, long)]
    pub verbose: bool,
}

/// A listing as an object. Every verb has the same first fields.
#[derive(Serialize)]
struct Listing<'a, T> {
    schema_version: u32,
    command: &'a str,
    #[serde(flatten)]
    listed: &'a T,
}

impl ReportFlags {
    /// Where the JSON object goes, if it is wanted.
    pub fn to(&self) -> Option<ReportTo> {
        if self.json { Some(ReportTo::Output) } else { self.report.clone() }
    }

    /// Writes the JSON object, if it is wanted. Returns true if a table is to be printed.
    ///
    /// # Errors
    /// The file cannot be written, or is not a report.
    pub fn write(&self, command: &str, listed: &impl Serialize) -> Result<bool> {
        let Some(to) = self.to() else { return Ok(true) };
        super::write_report(&to, &Listing { schema_version: SCHEMA_VERSION, command, listed })?;
        Ok(to != ReportTo::Output)
    }
}

impl ListFlags {
    /// The view of a table.
    pub fn view(&self) -> View {
        let width = if self.verbose { None } else { show::result_width() };
        View { width, colours: show::result_has_colours(), now: Timestamp::now() }
    }
}

/// What a table may use.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Columns of the terminal. `None`: everything is shown, with whole ids and exact times.
    pub width: Option<usize>,
    /// Colours are wanted.
    pub colours: bool,
    /// For ages.
    pub now: Timestamp,
}

impl View {
    /// An id, short on a terminal.
    pub fn id(&self, id: &str) -> String {
        if self.width.is_some() { ids::short(id) } else { id }.to_owned()
    }

    /// A time in RFC 3339; on a terminal its age.
    pub fn time(&self, time: &str) -> String {
        match (self.width, time.parse::<Timestamp>()) {
            (Some(_), Ok(then)) => age(self.now.as_second() - then.as_second()),
            (None, Ok(then)) => show_time(then.as_microsecond()),
            (_, Err(_)) => show::value(time),
        }
    }
}

/// `2 h ago`.
fn age(seconds: i64) -> String {
    let (number, unit) = match seconds.unsigned_abs() {
        seconds @ 0..60 => (seconds, "s"),
        seconds @ 60..7_200 => (seconds / 60, "min"),
        seconds @ 7_200..172_800 => (seconds / 3_600, "h"),
        seconds => (seconds / 86_400, "d"),
    };
    if seconds < 0 { format!("in {number} {unit}") } else { format!("{number} {unit} ago") }
}

/// The last `count` of a list that is in the order of time; all without a count.
pub fn newest<T>(mut list: Vec<T>, count: Option<usize>) -> Vec<T> {
    let first = list.len().saturating_sub(count.unwrap_or(usize::MAX));
    list.split_off(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_an_age_on_a_terminal_and_exact_elsewhere() {
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap_or_default();
        let terminal = View { width: Some(80), colours: false, now };
        for (time, age) in [
            ("2026-11-22T11:59:58.5Z", "2 s ago"),
            ("2026-11-22T11:15:00Z", "45 min ago"),
            ("2026-11-22T10:00:00Z", "2 h ago"),
            ("2026-11-15T11:00:00Z", "7 d ago"),
            ("2026-11-22T12:05:00Z", "in 5 min"),
            ("an unknown time", "an unknown time"),
        ] {
            assert_eq!(terminal.time(time), age, "{time}");
        }
        let exact = View { width: None, ..terminal };
        assert_eq!(exact.time("2026-11-22T11:59:58.512Z"), "2026-11-22T11:59:58Z");
        let id = "01a2092b-9560-7c4d-8e5f-9fcdf68770de";
        assert_eq!((terminal.id(id).as_str(), exact.id(id).as_str()), ("01a2092b-9560", id));
    }

    #[test]
    fn the_newest_are_the_last_of_a_list() {
        assert_eq!(newest(vec![1, 2, 3], Some(2)), [2, 3]);
        assert_eq!((newest(vec![1, 2], Some(5)), newest(vec![1, 2], None)), (vec![1, 2], vec![1, 2]));
    }
}
