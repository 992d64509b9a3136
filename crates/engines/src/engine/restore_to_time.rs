//! Which backup sets of another program a restore to a time takes: by the times in their descriptions. Log records are not
//! read, so the log backup that holds the time is known, and not what was committed then.

use fullbore_core::{Error, Result};
use jiff::civil::DateTime;
use serde::Serialize;

use super::foreign::{PointInTime, Restorable, RestorableRange};

/// A full, or a full and a differential over it: the beginning of a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestorableBase {
    /// The identity of the full.
    pub full: String,
    /// The identity of the differential.
    pub differential: Option<String>,
    /// Its end.
    pub end: PointInTime,
}

/// A log backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestorableLog {
    /// Its identity.
    pub id: String,
    /// The LSN at which it begins.
    pub first_lsn: String,
    /// Its end. The time is that of its start: it has what was committed before.
    pub end: PointInTime,
}

/// The backup sets that a restore to a time takes, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepsToTime<'a> {
    /// The beginning.
    pub base: &'a RestorableBase,
    /// The log backups. The last one holds the time. There are none if the time is the end of the base.
    pub logs: Vec<&'a RestorableLog>,
}

impl<'a> StepsToTime<'a> {
    /// The times between which the last log backup has what was committed: it holds the time.
    pub fn held(&self) -> Option<(Option<&'a str>, Option<&'a str>)> {
        let last = self.logs.last()?;
        let before = self.logs.iter().rev().nth(1).map_or(&self.base.end, |log| &log.end);
        Some((before.time.as_deref(), last.end.time.as_deref()))
    }
}

fn time_of(point: &PointInTime) -> Option<DateTime> {
    point.time.as_deref()?.parse().ok()
}

/// LSNs are texts of digits without zeros before them.
fn lsn(point: &PointInTime) -> (usize, &str) {
    (point.lsn.len(), &point.lsn)
}

impl Restorable {
    /// The steps of a restore to `time`, by the clock of the server.
    ///
    /// # Errors
    /// No chain of these files holds the time: it is after the end of the last log, before the first full, or in a gap.
    pub fn steps_to(&self, time: DateTime) -> Result<StepsToTime<'_>> {
        let found = self.ranges.iter().filter_map(|range| steps_in(range, time));
        let newest = found.max_by_key(|steps| lsn(&steps.base.end));
        newest.ok_or_else(|| self.not_restorable(time))
    }

    fn not_restorable(&self, time: DateTime) -> Error {
        let thing = format!("`{}` at {time}", self.database);
        let ends = self.ranges.iter().filter_map(|range| time_of(&range.to));
        let begins = self.ranges.iter().filter_map(|range| time_of(&range.from));
        let (Some(first), Some(last)) = (begins.min(), ends.clone().max()) else {
            let why = match self.missing.first() {
                Some(missing) => format!("cannot be restored: {missing}"),
                None => "cannot be restored: no full with a time is there".to_owned(),
            };
            return Error::incomplete(thing, why, "name the files of a full that ended before this time too");
        };
        if time > last {
            let why = format!("cannot be restored: the log of these files ends at {last}");
            return Error::incomplete(thing, why, "name the files of the next log backup too, or an earlier time");
        }
        if time < first {
            let why = format!("cannot be restored: the first full of these files ended at {first}");
            return Error::incomplete(thing, why, "name the files of an earlier full too, or a later time");
        }
        let before = ends.filter(|end| *end < time).max().unwrap_or(first);
        let missing: String = self.missing.iter().map(|missing| format!("; {missing}")).collect();
        let why = format!("cannot be restored: no log of these files goes on at {before}{missing}");
        Error::incomplete(thing, why, "name the files of the missing log backups too, or another time")
    }
}

/// The steps with the newest base of a range, if the range holds the time.
fn steps_in(range: &RestorableRange, time: DateTime) -> Option<StepsToTime<'_>> {
    let ended = |base: &&RestorableBase| time_of(&base.end).is_some_and(|end| end <= time);
    let base = range.bases.iter().filter(ended).max_by_key(|base| lsn(&base.end))?;
    if time_of(&base.end) == Some(time) {
        return Some(StepsToTime { base, logs: Vec::new() });
    }
    let mut logs = Vec::new();
    for log in range.logs.iter().filter(|log| lsn(&log.end) >= lsn(&base.end)) {
        let is_held = time_of(&log.end).is_some_and(|end| end >= time);
        // One without a record says that nothing was committed meanwhile.
        let has_records = log.first_lsn != log.end.lsn && lsn(&log.end) > lsn(&base.end);
        if has_records || is_held && log.first_lsn == log.end.lsn {
            logs.push(log);
        }
        if is_held {
            return Some(StepsToTime { base, logs });
        }
    }
    None
}
