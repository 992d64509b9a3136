//! The system time zone of a server, as the offsets from UTC that it has. A log says only that a statement ran in `SYSTEM`. On a
//! server with another system time zone, its times would mean other moments.

use std::collections::{BTreeMap, BTreeSet};

use fullbore_core::{Error, Result};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::connection::{Connection, Failure};

/// What servers call their system time zone.
pub const SYSTEM: &str = "SYSTEM";
/// A local time in a text of SQL; each 9 is any digit.
const WRITTEN: &str = "9999-99-99 99:99";
/// The member of a position that has it.
pub const MEMBER: &str = "system_zone";
/// The values of TIMESTAMP columns, in seconds since 1970: from 2 January 1970 to 1 January 2038.
const RANGE: (i64, i64) = (86_400, 2_145_916_800);
/// How closely changes of the offset are looked for, in seconds: first everywhere, then where it has changed.
const EVERYWHERE: usize = 15 * 86_400;
const CLOSER: [usize; 3] = [86_400, 3_600, STEP as usize];
/// How exactly a change is known, in seconds. Zones change at a quarter of an hour, or a minute behind it.
const STEP: i64 = 900;
/// The most moments in one question.
const ASKED_MAX: usize = 1000;
/// The most changes of a zone: two in each year, and some more.
const CHANGES_MAX: usize = 1000;
/// The names that are preferred, if several zones have the same offsets.
const REGIONS: [&str; 7] = ["Europe/", "America/", "Asia/", "Africa/", "Australia/", "Pacific/", "Atlantic/"];

/// The offsets of a zone: moments in seconds since 1970, and the offset from each of them on in seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(i64, i32)>")]
pub struct SystemZone(Vec<(i64, i32)>);

impl TryFrom<Vec<(i64, i32)>> for SystemZone {
    type Error = &'static str;

    fn try_from(changes: Vec<(i64, i32)>) -> Result<Self, Self::Error> {
        let is_sorted = changes.windows(2).all(|pair| matches!(pair, [(one, _), (other, _)] if one < other));
        let is_in_range = |(at, offset): &(i64, i32)| (RANGE.0..=RANGE.1).contains(at) && offset.abs() < 86_400;
        match changes.is_empty() || changes.len() > CHANGES_MAX || !is_sorted || !changes.iter().all(is_in_range) {
            true => Err("the system time zone is out of bounds"),
            false => Ok(Self(changes)),
        }
    }
}

impl SystemZone {
    /// Asks a server for its own.
    ///
    /// # Errors
    /// The server is lost, or does not tell it.
    pub fn ask(connection: &mut Connection) -> Result<Self> {
        Self::found(|moments| {
            let known = offsets(connection, SYSTEM, moments)?;
            known.ok_or_else(|| connection.broken("it does not tell its system time zone"))
        })
    }

    /// That of the server of a set, from its position.
    pub fn of(position: &Value) -> Option<Self> {
        Self::deserialize(position.get(MEMBER)?).ok()
    }

    /// The zone whose offsets at any moments `ask` gives.
    fn found(mut ask: impl FnMut(&[i64]) -> Result<Vec<i32>>) -> Result<Self> {
        let mut known = BTreeMap::new();
        let mut wanted = everywhere();
        for closer in CLOSER {
            known.extend(wanted.iter().copied().zip(ask(&wanted)?));
            let pairs = known.iter().zip(known.iter().skip(1));
            let changes = pairs.filter(|((_, one), (_, other))| one != other);
            wanted = changes.flat_map(|((from, _), (to, _))| (*from..*to).step_by(closer).skip(1)).collect();
        }
        known.extend(wanted.iter().copied().zip(ask(&wanted)?));
        let mut changes: Vec<(i64, i32)> = known.into_iter().collect();
        changes.dedup_by_key(|(_, offset)| *offset);
        Self::try_from(changes).map_err(|why| Error::refused("the server", why, ""))
    }

    /// The offset at a moment.
    fn at(&self, moment: i64) -> i32 {
        let behind = self.0.partition_point(|(from, _)| *from <= moment);
        self.0.get(behind.saturating_sub(1)).map_or(0, |(_, offset)| *offset)
    }

    /// The first local time in a text that means two moments: it is in the hour that the zone has twice. A server may choose one of them for
    /// SYSTEM, and the other one for the zone by its name.
    pub fn repeated_in(&self, text: &[u8]) -> Option<String> {
        let is_twice = |local: i64| {
            let changes = self.0.iter().zip(self.0.iter().skip(1));
            changes
                .map(|((_, before), (at, now))| at + i64::from(*now)..at + i64::from(*before))
                .any(|hour| hour.contains(&local))
        };
        text.windows(WRITTEN.len()).find_map(|part| {
            let digits = |byte: &u8| if byte.is_ascii_digit() { b'9' } else { *byte };
            let shape: Vec<u8> = part.iter().map(digits).collect();
            let text = str::from_utf8(part).ok().filter(|_| shape == WRITTEN.as_bytes())?;
            let local = text.replace(' ', "T").parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?;
            is_twice(local.timestamp().as_second()).then(|| text.to_owned())
        })
    }

    /// Moments at which no other zone has all of its offsets.
    fn moments(&self) -> Vec<i64> {
        let around = self.0.iter().skip(1).flat_map(|(at, _)| [at - STEP, *at]);
        everywhere().into_iter().chain(around).collect()
    }

    /// Whether a server has its offsets in a zone of this name.
    ///
    /// # Errors
    /// The server is lost.
    pub fn is_called(&self, name: &str, connection: &mut Connection) -> Result<bool> {
        let moments = self.moments();
        let wanted: Vec<i32> = moments.iter().map(|moment| self.at(*moment)).collect();
        Ok(offsets(connection, name, &moments)?.is_some_and(|found| found == wanted))
    }

    /// What a server calls a zone with its offsets.
    ///
    /// # Errors
    /// It has none, or is lost.
    pub fn name_for(&self, connection: &mut Connection) -> Result<String> {
        let names = self.names();
        let of_server = [Some(SYSTEM.to_owned()), self.fixed()].into_iter().flatten();
        for name in of_server.chain(names.iter().cloned()) {
            if self.is_called(&name, connection)? {
                return Ok(name);
            }
        }
        let missing = match names.first() {
            Some(name) => format!(", and it does not know {name}"),
            None => ", and the time zone database of this machine has no such zone".to_owned(),
        };
        let hint = "load its time zone tables (mysql_tzinfo_to_sql, mariadb-tzinfo-to-sql), or start it with the TZ of the source; \
                    into a directory, start fullbore with this TZ";
        Err(self.refused(&missing, hint, connection)?)
    }

    /// Refuses a server with other offsets, which was started here.
    ///
    /// # Errors
    /// It has others, or is lost.
    pub fn demand_in(&self, connection: &mut Connection) -> Result<()> {
        if self.is_called(SYSTEM, connection)? {
            return Ok(());
        }
        let hint =
            "start fullbore with the TZ of the source; perhaps the time zone database (tzdata) is not installed here";
        Err(self.refused("", hint, connection)?)
    }

    fn refused(&self, missing: &str, hint: &str, connection: &mut Connection) -> Result<Error> {
        let (of_source, here) = (self.shown(), Self::ask(connection)?.shown());
        let why = format!(
            "times of the source with time_zone = SYSTEM would mean other moments here: the system time zone of the source has {of_source}, \
             this server {here}{missing}"
        );
        Ok(Error::refused(connection.name(), why, hint))
    }

    /// The value of `TZ` that gives a server of this machine its offsets.
    pub fn environment(&self) -> Option<String> {
        let [(_, offset)] = self.0[..] else { return self.names().into_iter().next() };
        let (hours, minutes, seconds) = parts(offset);
        // The sign is that of the way to UTC.
        let (sign, back) = if offset < 0 { ('-', '+') } else { ('+', '-') };
        Some(format!("<{sign}{hours:02}{minutes:02}>{back}{hours:02}:{minutes:02}:{seconds:02}"))
    }

    /// The names of zones with its offsets in the database of this machine.
    fn names(&self) -> Vec<String> {
        let moments = self.moments();
        let fits = |zone: &TimeZone| {
            let is_same = |moment: &i64| {
                Timestamp::from_second(*moment).is_ok_and(|time| zone.to_offset(time).seconds() == self.at(*moment))
            };
            moments.iter().all(is_same)
        };
        let is_plain = |name: &str| name.bytes().all(|c| c.is_ascii_alphanumeric() || b"/_-+".contains(&c));
        let all = jiff::tz::db().available().map(|name| name.to_string());
        let mut names: Vec<String> =
            all.filter(|name| is_plain(name) && TimeZone::get(name).is_ok_and(|zone| fits(&zone))).collect();
        let region = |name: &String| REGIONS.iter().position(|region| name.starts_with(region));
        names.sort_by_key(|name| (region(name).unwrap_or(REGIONS.len()), name.clone()));
        names
    }

    /// As servers write a zone with one offset.
    fn fixed(&self) -> Option<String> {
        let [(_, offset)] = self.0[..] else { return None };
        (offset % 60 == 0).then(|| offset_shown(offset))
    }

    /// Its offsets of about a year, for people.
    pub fn shown(&self) -> String {
        let now = Timestamp::now().as_second();
        let offsets: BTreeSet<i32> = (0..25).map(|back| self.at(now - back * EVERYWHERE as i64)).collect();
        offsets.into_iter().map(offset_shown).collect::<Vec<_>>().join("/")
    }
}

/// The system time zone of the server that wrote a log, and what another server calls it.
#[derive(Debug, Clone, Default)]
pub struct ZoneOfSource {
    zone: Option<SystemZone>,
    name: Option<String>,
}

impl ZoneOfSource {
    /// The statements that follow are of a server with this zone. None: nobody knows it, so it is taken for that of the target.
    pub fn become_that(&mut self, zone: Option<&SystemZone>) {
        if self.zone.as_ref() != zone {
            *self = Self { zone: zone.cloned(), name: None };
        }
    }

    /// The first local time in a text that means two moments.
    pub fn repeated_in(&self, text: &[u8]) -> Option<String> {
        self.zone.as_ref()?.repeated_in(text)
    }

    /// What the target calls it. The target is asked when it is needed first.
    ///
    /// # Errors
    /// The target has no zone with its offsets, or is lost.
    pub fn name(&mut self, target: &mut Connection) -> Result<&str> {
        if let (None, Some(zone)) = (&self.name, &self.zone) {
            self.name = Some(zone.name_for(target)?);
        }
        Ok(self.name.as_deref().unwrap_or(SYSTEM))
    }
}

fn everywhere() -> Vec<i64> {
    (RANGE.0..=RANGE.1).step_by(EVERYWHERE).collect()
}

/// The offsets of a zone of a server. None: it does not know the zone. This needs no privilege, and the session keeps its own zone.
fn offsets(connection: &mut Connection, zone: &str, moments: &[i64]) -> Result<Option<Vec<i32>>> {
    let mut found = Vec::new();
    for part in moments.chunks(ASKED_MAX) {
        let offset = |moment: &i64| {
            let time = Timestamp::from_second(*moment).unwrap_or_default().strftime("%Y-%m-%d %H:%M:%S");
            format!("TIMESTAMPDIFF(SECOND, '{time}', CONVERT_TZ('{time}', '+00:00', '{zone}'))")
        };
        let asked = part.iter().map(offset).collect::<Vec<_>>().join(", ");
        let answer = match connection.query(&format!("SELECT CONCAT_WS(' ', {asked})")) {
            Ok(answer) => answer,
            Err(Failure::Server(_)) => return Ok(None),
            Err(Failure::Fault(error)) => return Err(error),
        };
        found
            .extend(answer.single().unwrap_or_default().split_whitespace().filter_map(|text| text.parse::<i32>().ok()));
    }
    Ok((found.len() == moments.len()).then_some(found))
}

fn parts(offset: i32) -> (i32, i32, i32) {
    let seconds = offset.abs();
    (seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn offset_shown(offset: i32) -> String {
    let (hours, minutes, _) = parts(offset);
    format!("{}{hours:02}:{minutes:02}", if offset < 0 { '-' } else { '+' })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn zone(name: &str) -> SystemZone {
        let zone = TimeZone::get(name).unwrap();
        let offset = |moment: &i64| zone.to_offset(Timestamp::from_second(*moment).unwrap()).seconds();
        SystemZone::found(|moments| Ok(moments.iter().map(offset).collect())).unwrap()
    }

    #[test]
    fn a_zone_is_found_by_its_offsets_with_the_quarter_of_an_hour_in_which_they_change() {
        let berlin = zone("Europe/Berlin");
        // 31 March 2024, 01:00 UTC.
        assert!(berlin.0.contains(&(1_711_846_800, 7200)), "{berlin:?}");
        assert_eq!((berlin.at(1_711_846_799), berlin.at(1_711_846_800), berlin.at(0)), (3600, 7200, 3600));
        assert_eq!(berlin.names()[0], "Europe/Berlin");
        assert_eq!(berlin.environment().as_deref(), Some("Europe/Berlin"));
        // They change their clocks in the same nights, at other hours.
        let (athens, beirut) = (zone("Europe/Athens"), zone("Asia/Beirut"));
        assert!(
            !athens.names().contains(&"Asia/Beirut".to_owned())
                && !beirut.names().contains(&"Europe/Athens".to_owned())
        );
        assert_eq!(berlin.fixed(), None);
    }

    #[test]
    fn a_time_in_the_hour_that_is_repeated_is_found_in_a_text() {
        let berlin = zone("Europe/Berlin");
        let found = |text: &str| berlin.repeated_in(text.as_bytes());
        assert_eq!(found("VALUES ('2024-10-27 01:59:59', '2024-10-27 02:30:00')").as_deref(), Some("2024-10-27 02:30"));
        assert_eq!(found("'2024-10-27 03:00:00', '2024-03-31 02:30:00', '2024-10-27', '2024-13-27 02:30'"), None);
        assert_eq!(zone("Asia/Tokyo").repeated_in(b"'2024-10-27 02:30:00'"), None);
    }

    #[test]
    fn a_zone_with_one_offset_needs_no_name() {
        let fixed = |offset| SystemZone::found(|moments| Ok(vec![offset; moments.len()])).unwrap();
        let told = |offset| (fixed(offset).fixed().unwrap(), fixed(offset).environment().unwrap());
        assert_eq!(told(7200), ("+02:00".to_owned(), "<+0200>-02:00:00".to_owned()));
        assert_eq!(told(-12_600), ("-03:30".to_owned(), "<-0330>+03:30:00".to_owned()));
        assert_eq!(told(0), ("+00:00".to_owned(), "<+0000>-00:00:00".to_owned()));
        assert_eq!(fixed(61).fixed(), None);
        assert_eq!(fixed(-12_600).shown(), "-03:30");
    }

    #[test]
    fn a_zone_is_written_and_read_and_values_out_of_bounds_are_refused() {
        let berlin = zone("Europe/Berlin");
        let text = serde_json::to_string(&berlin).unwrap();
        assert!(text.len() < 4096, "{}", text.len());
        assert_eq!(serde_json::from_str::<SystemZone>(&text).unwrap(), berlin);
        let many = format!("[{}]", (0..1001).map(|at| format!("[{}, 0]", 86_400 + at)).collect::<Vec<_>>().join(","));
        for wrong in [
            "[]",
            "[[0, 3600]]",
            "[[86400, 86400]]",
            "[[90000, 0], [90000, 1]]",
            "[[90000, 0], [86400, 1]]",
            "7",
            &many,
        ] {
            assert!(serde_json::from_str::<SystemZone>(wrong).is_err(), "{wrong}");
        }
    }
}
