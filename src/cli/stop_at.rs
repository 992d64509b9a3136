//! `list --stop-at` of media of another program: the sets of a restore to a time.

use fullbore::{Error, Result};
use fullbore_engines::{ForeignDescription, RestorableBase, RestorableLog, StepsToTime};
use jiff::civil::DateTime;
use serde::Serialize;

use super::show;

/// The restore of one database to the time.
#[derive(Serialize)]
pub struct ToTime<'a> {
    database: &'a str,
    time: String,
    /// The sets in their order; empty if the time cannot be restored.
    steps: Vec<Step<'a>>,
    why_not: Option<String>,
    #[serde(skip)]
    error: Option<Error>,
}

/// One set of the restore.
#[derive(Serialize)]
struct Step<'a> {
    kind: &'static str,
    backup_set_id: &'a str,
    devices: Vec<&'a str>,
    last_lsn: &'a str,
    /// Of the log backup that holds the time: from when on it has what was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds_from: Option<&'a str>,
    /// And up to when.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds_to: Option<&'a str>,
}

/// The time of `--stop-at`.
///
/// # Errors
/// It is no time, or has a zone.
pub fn time(text: &str) -> Result<DateTime> {
    let plain = text.trim().replacen(' ', "T", 1);
    let hint = "write the time of the server's clock: --stop-at 2026-11-26T10:00:00";
    let thing = format!("--stop-at {text}");
    if plain.parse::<jiff::Timestamp>().is_ok() {
        return Err(Error::usage(thing, "has a zone, and the times in these files have none", hint));
    }
    plain.parse().map_err(|_| Error::usage(thing, "is not a time", hint))
}

/// For each database of these media.
pub fn of(description: &ForeignDescription, time: DateTime) -> Vec<ToTime<'_>> {
    let each = description.restorable.iter().map(|restorable| {
        let (steps, error) = match restorable.steps_to(time) {
            Ok(steps) => (shown(&steps, description), None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let why_not = error.as_ref().map(Error::one_line);
        ToTime { database: &restorable.database, time: time.to_string(), steps, why_not, error }
    });
    each.collect()
}

fn shown<'a>(steps: &StepsToTime<'a>, description: &'a ForeignDescription) -> Vec<Step<'a>> {
    let devices = |id: &str| {
        let media = description.media_sets.iter().find(|media| media.sets.iter().any(|set| set.id == id));
        media.map_or_else(Vec::new, |media| media.devices.iter().map(String::as_str).collect())
    };
    let step = |kind, id: &'a str, last_lsn: &'a str| Step {
        kind,
        backup_set_id: id,
        devices: devices(id),
        last_lsn,
        holds_from: None,
        holds_to: None,
    };
    let RestorableBase { full, differential, end } = steps.base;
    let mut all = vec![step("full", full, &end.lsn)];
    all.extend(differential.iter().map(|id| step("differential", id, &end.lsn)));
    all.extend(steps.logs.iter().map(|RestorableLog { id, end, .. }| step("log", id, &end.lsn)));
    if let (Some((from, to)), Some(last)) = (steps.held(), all.last_mut()) {
        (last.holds_from, last.holds_to) = (from, to);
    }
    all
}

impl ToTime<'_> {
    /// Prints the sets, or the reason why there are none.
    pub fn print(&self) {
        let database = show::value(self.database);
        if let Some(error) = &self.error {
            return show::error(error);
        }
        show::line(&format!("a restore of {database} to {} takes, in this order", self.time));
        for Step { kind, backup_set_id, devices, holds_to, holds_from, .. } in &self.steps {
            let devices = devices.iter().map(|device| show::value(device)).collect::<Vec<_>>().join(", ");
            let holds = holds_to.map_or_else(String::new, |to| {
                format!(", which holds this time: from {} to {to}", holds_from.unwrap_or("an unknown time"))
            });
            show::line(&format!("  {kind:<12} {backup_set_id}  {devices}{holds}"));
        }
    }

    /// The exit code, if the time cannot be restored.
    pub fn failed(&self) -> Option<u8> {
        self.error.as_ref().map(|error| error.exit_kind().exit_code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_that_of_the_clock_of_the_server_and_has_no_zone() {
        let wanted = Some(DateTime::constant(2026, 11, 26, 10, 0, 0, 0));
        assert_eq!(time("2026-11-26T10:00:00").ok(), wanted);
        assert_eq!(time(" 2026-11-26 10:00:00").ok(), wanted);
        for (text, word) in
            [("2026-11-26T10:00:00Z", "zone"), ("noon", "not a time"), ("2026-11-26T10:00+01:00", "zone")]
        {
            let error = time(text).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains(word)), "{text}");
        }
    }
}
