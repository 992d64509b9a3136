//! A whole chain in one restore: which full, which differential over it, and which logs in which order. Pure: rows of
//! HEADERONLY in, steps out.

use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};

use super::answer::{Row, kind_of_type};
use super::place::Place;

/// Sets that are looked at, at most: an answer has as many rows.
const SETS_MAX: usize = 10_000;

/// A set on its media.
#[derive(Debug, Clone)]
pub struct Link {
    /// The files of its media set, in their order.
    pub files: Vec<Place>,
    /// Its row of HEADERONLY.
    pub header: Row,
    /// Full, differential or log.
    pub kind: SetKind,
    /// Its position on the media.
    pub position: i64,
    /// Its range of the log.
    first: u128,
    last: u128,
    /// The checkpoint of a full: its differentials name it.
    checkpoint: u128,
    /// Of a differential: the checkpoint of its full.
    full: u128,
    finished: String,
}

impl Link {
    /// From a row of HEADERONLY.
    ///
    /// # Errors
    /// The set holds parts of a database, or its LSNs are not known.
    pub fn of(files: &[Place], header: Row) -> Result<Self> {
        let shown = files.first().map_or_else(String::new, Place::shown);
        let unknown = |what: &str| {
            let why = format!("the server does not say {what} of a set there");
            Error::refused(&shown, why, "restore one set at a time")
        };
        let kind = header.integer("BackupType").and_then(kind_of_type).ok_or_else(|| unknown("the kind"))?;
        let position = header.integer("Position").filter(|position| *position > 0);
        let lsn = |column: &str| header.lsn(column).and_then(|lsn| lsn.parse::<u128>().ok());
        Ok(Self {
            kind,
            position: position.ok_or_else(|| unknown("the position"))?,
            first: lsn("FirstLSN").ok_or_else(|| unknown("FirstLSN"))?,
            last: lsn("LastLSN").ok_or_else(|| unknown("LastLSN"))?,
            checkpoint: lsn("CheckpointLSN").ok_or_else(|| unknown("CheckpointLSN"))?,
            full: lsn("DatabaseBackupLSN").unwrap_or(0),
            finished: header.text("BackupFinishDate").unwrap_or_default(),
            files: files.to_vec(),
            header,
        })
    }

    /// True if the set ended at this time of the server, or before.
    fn ended_by(&self, time: Option<&str>) -> bool {
        // Both have the form 2026-11-22T10:00:00.000.
        time.is_none_or(|time| !self.finished.is_empty() && self.finished.as_str() <= time)
    }

    fn title(&self) -> String {
        format!(
            "{} in {}, file {}",
            self.kind,
            self.files.first().map_or_else(String::new, Place::shown),
            self.position
        )
    }
}

/// The sets to restore, in their order: the newest full, its newest differential, and the logs after it. With `stop_at`, by
/// the clock of the server: those before this time, and the log that contains it.
///
/// # Errors
/// The sets are of several databases, there is no full, a log is missing, or the logs end before `stop_at`.
pub fn steps(links: Vec<Link>, stop_at: Option<&str>) -> Result<Vec<Link>> {
    if links.len() > SETS_MAX {
        return Err(Error::usage("--from", format!("the files hold more than {SETS_MAX} sets"), "name fewer files"));
    }
    let name = |link: &Link| link.header.text("DatabaseName").unwrap_or_default();
    if let [first, rest @ ..] = &links[..]
        && let Some(other) = rest.iter().find(|link| name(link) != name(first))
    {
        let why = format!("the files hold sets of `{}` and of `{}`", name(first), name(other));
        return Err(Error::usage("--from", why, "restore one database at a time"));
    }
    let newest = |kind: SetKind, fits: &dyn Fn(&Link) -> bool| {
        let found = links.iter().filter(|link| link.kind == kind && link.ended_by(stop_at) && fits(link));
        found.max_by_key(|link| link.last).cloned()
    };
    let Some(full) = newest(SetKind::Full, &|_| true) else {
        let why = if stop_at.is_some() { "hold no full that ended before --stop-at" } else { "hold no full" };
        return Err(Error::incomplete("the files", why, "name the files of the full too, with --from"));
    };
    let differential = newest(SetKind::Differential, &|link| link.full == full.checkpoint && link.last >= full.last);
    if differential.is_none()
        && let Some(orphan) = links.iter().find(|link| link.kind == SetKind::Differential && link.ended_by(stop_at))
        && orphan.first > full.last
    {
        let why = format!("is of another full than the newest one there ({})", full.title());
        return Err(Error::incomplete(orphan.title(), why, "name the files of its full, or leave it out"));
    }
    let mut steps: Vec<Link> = [Some(full), differential].into_iter().flatten().collect();
    let logs: Vec<&Link> = links.iter().filter(|link| link.kind == SetKind::Log).collect();
    let mut at = steps.last().map_or(0, |link| link.last);
    let mut contains_stop = false;
    while !contains_stop {
        let next = logs.iter().filter(|log| log.first <= at && log.last > at).max_by_key(|log| log.last);
        let Some(next) = next else { break };
        at = next.last;
        contains_stop = stop_at.is_some() && !next.ended_by(stop_at);
        steps.push((*next).clone());
    }
    let later = logs.iter().filter(|log| log.first > at).min_by_key(|log| log.first);
    match (contains_stop, later, stop_at) {
        (false, Some(later), _) => {
            let why = format!("a log is missing between LSN {at} and LSN {} ({})", later.first, later.title());
            Err(Error::incomplete("the chain", why, "name its files too, with --from"))
        }
        (false, None, Some(time)) => {
            let why = format!("no log there contains {time} by the clock of the server");
            Err(Error::usage("--stop-at", why, "name the files of the next log too, or leave --stop-at out"))
        }
        _ => Ok(steps),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sqlserver::server::answer::{Collected, Value};

    /// A set: kind, first, last, full, and the minute of its end.
    fn link(kind: i64, first: u64, last: u64, full: u64, minute: u32) -> Link {
        let names = [
            "BackupType",
            "Position",
            "FirstLSN",
            "LastLSN",
            "CheckpointLSN",
            "DatabaseBackupLSN",
            "BackupFinishDate",
            "DatabaseName",
        ];
        let number = |number: u64| Value::Text(number.to_string());
        let mut answer = Collected::default();
        answer.begin(names.into_iter()).unwrap();
        let values = [
            Value::Integer(kind),
            Value::Integer(1),
            number(first),
            number(last),
            number(first + 1),
            number(full),
            Value::Text(format!("2026-11-26T10:{minute:02}:00.000")),
            Value::Text("shop".into()),
        ];
        answer.push(values.into_iter()).unwrap();
        let place = Place::parse(&format!("server:/{kind}-{first}.bak")).unwrap();
        Link::of(&[place], answer.into_rows().pop().unwrap()).unwrap()
    }

    fn chain() -> Vec<Link> {
        vec![
            link(2, 130, 150, 101, 30),
            link(1, 10, 15, 0, 1),
            link(5, 120, 125, 101, 20),
            link(1, 100, 105, 11, 10),
            link(2, 90, 130, 11, 25),
            link(2, 150, 170, 101, 40),
        ]
    }

    fn firsts(links: Vec<Link>, stop_at: Option<&str>) -> Result<Vec<u128>> {
        steps(links, stop_at).map(|steps| steps.iter().map(|link| link.first).collect())
    }

    #[test]
    fn the_newest_full_its_differential_and_all_logs_after_it_are_the_steps() {
        assert_eq!(firsts(chain(), None).unwrap(), [100, 120, 90, 130, 150]);
        assert_eq!(firsts(chain(), Some("2026-11-26T10:33:00.000")).unwrap(), [100, 120, 90, 130, 150]);
        assert_eq!(firsts(chain(), Some("2026-11-26T10:27:00.000")).unwrap(), [100, 120, 90, 130]);
        // Before the differential: the full, and the log with this time.
        assert_eq!(firsts(chain(), Some("2026-11-26T10:15:00.000")).unwrap(), [100, 90]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let without = |first: u128| chain().into_iter().filter(|link| link.first != first).collect::<Vec<_>>();
        let said = |links, stop_at| firsts(links, stop_at).unwrap_err().to_string();
        assert!(said(without(130), None).contains("between LSN 130 and LSN 150"));
        assert!(said(chain(), Some("2026-11-26T10:55:00.000")).contains("no log there contains"));
        assert!(said(chain(), Some("2026-11-26T09:00:00.000")).contains("no full that ended before"));
        assert!(said(vec![link(2, 1, 2, 0, 1)], None).contains("hold no full"));
        let orphan = vec![link(1, 10, 15, 0, 1), link(5, 120, 125, 101, 20)];
        assert!(said(orphan, None).contains("another full"));
        assert_eq!(firsts(without(120), None).unwrap(), [100, 90, 130, 150]);
    }
}
