//! Where a restore stops in the log.

use fullbore_core::media::Position;
use fullbore_core::{Error, Result};

use super::end::{End, LogEnd, Place};
use super::event::{Body, Group, Header, file_number, is_file_name, kind};
use super::gtid::{Gtid, GtidSet, Gtids, MariaGtid};
use super::range::place;
use super::walk::{Walk, goes_back};
use crate::engine::LogStop;
use crate::mysql_family::Dialect;

/// What to do about a wrong place.
const HINT: &str = "give a place where a transaction begins: `mysqlbinlog` shows them as `# at`";

/// Looks at each event before it is taken: does the restore stop here?
pub(super) struct Cut {
    /// The end of the base: what is before it is not looked at.
    base: Option<u128>,
    /// The set has the place to stop at.
    has_place: bool,
    /// The end of the last event that is before that place.
    passed: Option<u128>,
    /// The group to stop behind is taken.
    last_group: bool,
    /// The stop was reached.
    pub stopped: bool,
    /// The time of the group before which it stopped, in microseconds since 1970.
    stopped_at: i64,
    /// The first group behind it that has a time before the time to stop at.
    earlier: Option<String>,
    /// The last group behind it has an earlier time, too.
    open: bool,
    /// The first group since the last certain time whose time is not certain.
    uncertain: Option<String>,
    /// All groups up to this time are taken, in microseconds since 1970.
    pub until: i64,
}

impl Cut {
    /// Nothing is taken yet.
    pub fn new(base: &End) -> Self {
        Self {
            base: place(&base.binlog),
            has_place: false,
            passed: None,
            last_group: false,
            stopped: false,
            stopped_at: i64::MAX,
            earlier: None,
            open: false,
            uncertain: None,
            until: i64::MIN,
        }
    }

    /// A set begins. Places of other sets may be in the files of another server.
    pub fn begin_set(&mut self, has_place: bool) {
        self.has_place = has_place;
    }

    /// The log of another server follows: nothing of it is in the base.
    pub fn leave_server(&mut self) {
        self.base = None;
    }

    /// Whether the base has what is at a place.
    pub fn is_in_base(&self, file: &str, offset: u64) -> bool {
        place_of(file, offset) < self.base
    }

    /// All sets so far are taken: a group to stop behind has ended.
    pub fn end_of_set(&mut self) {
        self.stopped |= self.last_group;
    }

    /// True if the restore stops before this event.
    ///
    /// # Errors
    /// The stop is inside of a group, or it is unknown whether a group is before it.
    pub fn is_before(&mut self, header: &Header, body: &Body, walk: &Walk, stop: Option<&LogStop>) -> Result<bool> {
        if self.is_in_base(&walk.file, walk.offset) {
            return Ok(false);
        }
        if let Some((stop, target)) = stop.zip(stop.and_then(place_of_stop)) {
            if !self.has_place {
                return Ok(false);
            }
            let at = |offset: u64| place_of(&walk.file, offset);
            if at(walk.offset) == Some(target) && !is_between_groups(header, body) {
                return Err(inside(stop, format!("the transaction before {}:{}", walk.file, walk.offset)));
            }
            if at(walk.offset) > Some(target) && self.passed.is_some_and(|passed| passed < target) {
                let why = format!("is behind the end of its file: the log goes on in {}", walk.file);
                return Err(Error::usage(stop.option(), why, HINT));
            }
            if at(walk.offset) >= Some(target) {
                return Ok(true);
            }
            self.passed = at(walk.offset + u64::from(header.size));
            // Groups end where the next one, or the next file, begins.
            if at(walk.offset + u64::from(header.size)) > Some(target) {
                return Err(inside(stop, format!("the event at {}:{}", walk.file, walk.offset)));
            }
            return Ok(false);
        }
        let Body::Group(group) = body else { return Ok(false) };
        if let Some(LogStop::Time(time)) = stop {
            return self.is_later(walk, group, *time);
        }
        Ok(self.last_group || is_behind(stop, group, &mut self.last_group))
    }

    /// True if a group was committed after `time`.
    fn is_later(&mut self, walk: &Walk, group: &Group, time: i64) -> Result<bool> {
        if !walk.is_certain(group) {
            self.uncertain.get_or_insert_with(|| format!("{}:{}", walk.file, walk.offset));
            return Ok(false);
        }
        if group.time > time {
            refuse(&self.uncertain)?;
            self.stopped_at = group.time;
            return Ok(true);
        }
        self.uncertain = None;
        Ok(false)
    }

    /// Looks at a group behind a stop at `time`. Was the group before which it stopped dated ahead? Then this one and others may
    /// have been committed up to `time`.
    ///
    /// # Errors
    /// It was.
    pub fn look_behind(&mut self, group: &Group, time: i64, (file, offset): (&str, u64)) -> Result<()> {
        let is_earlier = goes_back(group.time, self.stopped_at);
        if is_earlier && group.time <= time {
            self.earlier.get_or_insert_with(|| format!("{file}:{offset}"));
        }
        // Times up to that of the stop go on behind it.
        let was_ahead = is_earlier && group.time > time;
        self.open = self.earlier.is_some() && is_earlier;
        if was_ahead { refuse(&self.earlier) } else { Ok(()) }
    }

    /// The error if a stop by GTID or by place was never reached between `base` and `stands`, or if the log does not say
    /// whether a stop at a time was too early.
    ///
    /// # Errors
    /// The sets that were taken do not have it, or nobody knows.
    pub fn demand(&self, stop: Option<&LogStop>, base: &Place, stands: &Place) -> Result<()> {
        let stop = match stop {
            None => return Ok(()),
            Some(LogStop::Time(time)) if !self.stopped && *time < self.until => return refuse(&self.uncertain),
            Some(LogStop::Time(_)) if self.open => return refuse(&self.earlier),
            Some(LogStop::Time(_)) => return Ok(()),
            Some(_) if self.stopped => return Ok(()),
            Some(LogStop::Place(_)) if stop.and_then(place_of_stop) == place(stands) => return Ok(()),
            Some(stop) => stop,
        };
        Err(Error::refused(
            stop.option(),
            format!("no log set has it: the sets reach from {} to {} ({})", base.show(), stands.show(), stands.gtid),
            "give one that is between these places; `fullbore list` shows the sets",
        ))
    }
}

/// The error about a group at a place, if there is one, that may have been committed before or after the time to stop at.
fn refuse(place: &Option<String>) -> Result<()> {
    let Some(place) = place else { return Ok(()) };
    let why = format!(
        "nobody knows whether the transaction at {place} was committed before that time: its own time is before that of an \
         earlier transaction, or in the future (SET timestamp, a long statement, a clock that was set)"
    );
    let hint = "stop at a place or a GTID: --stop-at FILE:OFFSET, --stop-at-gtid or --stop-before-gtid";
    Err(Error::refused("--stop-at", why, hint))
}

/// The name of a file without its number.
fn base_name(file: &str) -> &str {
    file.rsplit_once('.').map_or(file, |(base, _)| base)
}

/// True for an event that is not within a group.
fn is_between_groups(header: &Header, body: &Body) -> bool {
    !matches!(body, Body::Other)
        || matches!(header.kind, kind::STOP | kind::MARIADB_CHECKPOINT | kind::MARIADB_ENCRYPTION)
}

fn inside(stop: &LogStop, what: String) -> Error {
    Error::usage(stop.option(), format!("is inside of {what}"), HINT)
}

/// True if a restore stops before a group. `last` becomes true at the group to stop behind.
fn is_behind(stop: Option<&LogStop>, group: &Group, last: &mut bool) -> bool {
    match stop {
        Some(LogStop::BeforeGtid(wanted)) => group.gtid.as_ref().is_some_and(|gtid| is_gtid(gtid, wanted)),
        Some(LogStop::ThroughGtid(wanted)) => {
            *last = group.gtid.as_ref().is_some_and(|gtid| is_gtid(gtid, wanted));
            false
        }
        Some(LogStop::Place(_) | LogStop::Time(_)) | None => false,
    }
}

fn is_gtid(gtid: &Gtid, wanted: &str) -> bool {
    match gtid {
        Gtid::MariaDb(gtid) => MariaGtid::parse(wanted) == Some(*gtid),
        gtid => gtid.to_string().eq_ignore_ascii_case(wanted.trim()),
    }
}

/// Refuses a GTID that does not name one transaction.
///
/// # Errors
/// It names none, or several.
pub(super) fn demand_name(dialect: Dialect, stop: &LogStop) -> Result<()> {
    let (LogStop::ThroughGtid(text) | LogStop::BeforeGtid(text)) = stop else { return Ok(()) };
    let of_set = || GtidSet::parse(text).and_then(|set| set.first_common(&set));
    let (is_one, form) = match dialect {
        Dialect::MySql => (of_set().is_some_and(|gtid| is_gtid(&gtid, text)), "UUID:NUMBER, or UUID:TAG:NUMBER"),
        Dialect::MariaDb => (MariaGtid::parse(text).is_some(), "DOMAIN-SERVER-NUMBER"),
    };
    let why = "is not the GTID of one transaction";
    if is_one { Ok(()) } else { Err(Error::usage(stop.option(), why, format!("write {form}"))) }
}

/// The place of an offset in a file, to compare.
pub(super) fn place_of(file: &str, offset: u64) -> Option<u128> {
    Some(u128::from(file_number(file)?) << 64 | u128::from(offset))
}

/// True if a stop is in a log set, or at its end.
pub(super) fn holds(dialect: Dialect, position: &Position, stop: &LogStop) -> bool {
    let first = End::read(dialect, &position.first.value());
    let last = LogEnd::read(dialect, &position.last.value());
    let (Ok(first), Ok(last)) = (first, last) else { return false };
    let gtids = |end: &End| Gtids::parse(dialect, &end.binlog.gtid);
    match stop {
        LogStop::Time(_) => false,
        LogStop::Place(_) => last.begin(&first).is_some_and(|begin| holds_place(&begin, &last.end.binlog, Some(stop))),
        LogStop::ThroughGtid(wanted) | LogStop::BeforeGtid(wanted) => {
            let has = |end: &End| gtids(end).is_some_and(|gtids| gtids.has(wanted));
            has(&last.end) && !has(&first)
        }
    }
}

/// True if a stop is the place at which a log set begins.
pub(super) fn begins_at(dialect: Dialect, position: &Position, stop: &LogStop) -> bool {
    let first = End::read(dialect, &position.first.value());
    let last = LogEnd::read(dialect, &position.last.value());
    let begin = first.ok().zip(last.ok()).and_then(|(first, last)| last.begin(&first));
    begin.is_some_and(|begin| is_at(&begin, Some(stop)))
}

/// True if a stop is this place.
pub(super) fn is_at(begin: &Place, stop: Option<&LogStop>) -> bool {
    stop.is_some_and(|stop| names(stop, begin) && place_of_stop(stop) == place(begin))
}

/// True if a stop is a place in the files of a server whose last one is this.
fn names(stop: &LogStop, end: &Place) -> bool {
    let LogStop::Place(text) = stop else { return false };
    base_name(text.rsplit_once(':').map_or("", |(file, _)| file)) == base_name(&end.file)
}

/// True if a stop is a place between two others, or the second one.
pub(super) fn holds_place(begin: &Place, end: &Place, stop: Option<&LogStop>) -> bool {
    let Some(stop) = stop else { return false };
    let target = place_of_stop(stop);
    names(stop, end) && place(begin) < target && target <= place(end)
}

/// The place of `file:offset`.
pub(super) fn place_of_stop(stop: &LogStop) -> Option<u128> {
    let LogStop::Place(text) = stop else { return None };
    let (file, offset) = text.rsplit_once(':')?;
    place_of(is_file_name(file).then_some(file)?, offset.parse().ok()?)
}
