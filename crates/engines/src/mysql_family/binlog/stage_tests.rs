//! Staging, on logs that are made here: MySQL's events, with right lengths, places and checksums.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{Seek, Write};

use fullbore_core::checksum::Crc32;
use fullbore_core::media::{EngineValue, Position};
use serde_json::json;

use super::end::{End, LogEnd, Piece, Place, show_time};
use super::event::{Body, CRC, HEADER, Header, MAGIC, kind, seal};
use super::relays::{RELAY, Rows};
use super::stage::Stage;
use crate::engine::{LogStop, SetEnd, UnpackedLog};
use crate::mysql_family::Dialect;

const UUID: &str = "11111111-1111-1111-1111-111111111111";
const SECOND: i64 = 1_000_000;
const ROWS: u8 = 30;

/// A binary log while it is written: the bytes behind its magic, and where groups begin.
struct Log {
    file: String,
    bytes: Vec<u8>,
    groups: Vec<u64>,
    groups_before: u64,
}

impl Log {
    fn new(number: u32, groups_before: u64) -> Self {
        let mut log =
            Self { file: format!("binlog.{number:06}"), bytes: Vec::new(), groups: Vec::new(), groups_before };
        let mut format = vec![4, 0];
        format.extend_from_slice(&[b'9'; 50]);
        format.extend_from_slice(&[number as u8, 0, 0, 0, 19]);
        format.extend_from_slice(&[7; 41]);
        format.push(1);
        log.event(kind::FORMAT, &format);
        let mut previous = u64::from(groups_before > 0).to_le_bytes().to_vec();
        if groups_before > 0 {
            previous.extend_from_slice(&[0x11; 16]);
            for number in [1, 1, groups_before + 1] {
                previous.extend_from_slice(&number.to_le_bytes());
            }
        }
        log.event(kind::PREVIOUS_GTIDS, &previous);
        log
    }

    fn end(&self) -> u64 {
        4 + self.bytes.len() as u64
    }

    fn event(&mut self, kind: u8, body: &[u8]) {
        let size = 19 + body.len() as u32 + 4;
        let mut event = 5_u32.to_le_bytes().to_vec();
        event.push(kind);
        event.extend_from_slice(&7_u32.to_le_bytes());
        event.extend_from_slice(&size.to_le_bytes());
        event.extend_from_slice(&((self.end() + u64::from(size)) as u32).to_le_bytes());
        event.extend_from_slice(&[0, 0]);
        event.extend_from_slice(body);
        let mut crc = Crc32::new();
        crc.update(&event);
        event.extend_from_slice(&crc.finish().to_le_bytes());
        self.bytes.extend_from_slice(&event);
    }

    /// A group that was committed at that second.
    fn group(&mut self, second: i64) {
        self.groups.push(self.end());
        let number = self.groups_before + self.groups.len() as u64;
        let mut body = vec![0];
        body.extend_from_slice(&[0x11; 16]);
        body.extend_from_slice(&number.to_le_bytes());
        body.push(2);
        body.extend_from_slice(&[0; 16]);
        body.extend_from_slice(&(second * SECOND).to_le_bytes()[..7]);
        self.event(kind::GTID, &body);
        self.event(ROWS, &[number as u8; 200_000]);
    }

    /// A statement of a session in a time zone, in the last group.
    fn statement(&mut self, zone: &str) {
        let body =
            [&[0; 11][..], &[2 + zone.len() as u8, 0, 5, zone.len() as u8], zone.as_bytes(), &[0], b"DROP TABLE t"];
        self.event(kind::QUERY, &body.concat());
    }

    fn head(&self) -> usize {
        (self.groups[0] - 4) as usize
    }

    fn gtid_at(&self, offset: u64) -> String {
        let groups = self.groups_before + self.groups.iter().filter(|at| **at < offset).count() as u64;
        if groups == 0 { String::new() } else { format!("{UUID}:1-{groups}") }
    }

    fn place(&self, offset: u64) -> End {
        let binlog = Place {
            file: self.file.clone(),
            offset,
            gtid: self.gtid_at(offset),
            servers: String::new(),
            file_crc: None,
            tail: None,
        };
        End { binlog, server: UUID.into(), at: show_time(1), finished: None, taken: None }
    }
}

/// A set in a file.
struct Set {
    stream: File,
    position: Position,
}

impl Set {
    /// Pieces of logs, each from an offset on; the first one perhaps with its head.
    fn of(first: &End, pieces: &[(&Log, u64)]) -> Self {
        let mut stream = tempfile::tempfile().unwrap();
        let mut described = Vec::new();
        for (log, from) in pieces {
            let head = if *from > 4 { log.head() } else { 0 };
            let bytes = &log.bytes[*from as usize - 4..];
            stream.write_all(&log.bytes[..head]).unwrap();
            stream.write_all(bytes).unwrap();
            described.push(Piece { file: log.file.clone(), from: *from, bytes: bytes.len() as u64, head: head as u64 });
        }
        stream.rewind().unwrap();
        let last = pieces.last().unwrap().0;
        let end = last.place(last.end());
        let last = LogEnd {
            end,
            until: show_time(2),
            earliest: String::new(),
            transactions: 1,
            anonymous: 0,
            pieces: described,
            system_zone: None,
            defaults: Default::default(),
        };
        let value = EngineValue::from;
        let position = Position {
            first: value(serde_json::to_value(first).unwrap()),
            checkpoint: value(json!(null)),
            last: value(serde_json::to_value(last).unwrap()),
            log: None,
        };
        Self { stream, position }
    }

    /// The server has this offset from UTC.
    fn with_offset(mut self, offset: i32) -> Self {
        let mut last = self.position.last.value();
        last["system_zone"] = json!([[86_400, offset]]);
        self.position.last = EngineValue::from(last);
        self
    }

    fn stage(
        &self,
        stage: &mut Stage,
        directory: &std::path::Path,
        stop: Option<&LogStop>,
    ) -> fullbore_core::Result<()> {
        let streams = [self.stream.try_clone().unwrap()];
        (&streams[0]).rewind().unwrap();
        let stands = SetEnd { position: json!(null), time: None, file_bytes: None };
        let set = UnpackedLog {
            name: "log set",
            streams: &streams,
            position: &self.position,
            database: directory,
            stands: &stands,
        };
        stage.add(&set, stop)
    }
}

fn relay(directory: &std::path::Path, number: u32) -> Vec<u8> {
    fs::read(directory.join(format!("{RELAY}.{number:06}"))).unwrap()
}

/// A relay log without transactions names the file of the source that comes next.
fn assert_says_source(relay: &[u8], wanted: &str) {
    let (mut kinds, mut at) = (Vec::new(), MAGIC.len());
    while let Some(header) = relay.get(at..).and_then(<[u8]>::first_chunk).and_then(Header::parse) {
        let end = at + header.size as usize;
        kinds.push(header.kind);
        if header.kind == kind::ROTATE {
            let body = Body::parse(&header, &relay[at + HEADER..end - CRC]);
            assert!(header.is_artificial() && matches!(body, Ok(Body::Rotate { file, .. }) if file == wanted));
        }
        at = end;
    }
    assert_eq!((kinds, at), (vec![kind::FORMAT, kind::ROTATE], relay.len()));
}

fn whole(log: &Log) -> Vec<u8> {
    [b"\xfebin", &log.bytes[..]].concat()
}

/// A log of five groups at the seconds 10 to 50, and a second one of two more.
fn logs() -> (Log, Log) {
    let mut one = Log::new(1, 0);
    (1..=5).for_each(|second| one.group(second * 10));
    let mut two = Log::new(2, 5);
    [60, 70].iter().for_each(|second| two.group(*second));
    (one, two)
}

fn staged(base: &End, sets: &[&Set], stop: Option<LogStop>) -> fullbore_core::Result<(tempfile::TempDir, Stage)> {
    let directory = tempfile::tempdir().unwrap();
    let mut stage = Stage::new(Dialect::MySql, directory.path(), base);
    for set in sets {
        set.stage(&mut stage, directory.path(), stop.as_ref())?;
    }
    stage.demand(stop.as_ref())?;
    stage.relays()?.end()?;
    Ok((directory, stage))
}

#[test]
fn a_file_in_two_sets_is_one_relay_log_and_the_next_file_another() {
    let (one, two) = logs();
    let base = one.place(one.groups[0]);
    let middle = one.place(one.groups[2]);
    let mut first = Set::of(&base, &[(&one, one.groups[0])]);
    // The first set ends in the middle of the file.
    let mut last = LogEnd::read(Dialect::MySql, &first.position.last.value()).unwrap();
    last.pieces[0].bytes = one.groups[2] - one.groups[0];
    last.end = middle.clone();
    first.position.last = EngineValue::from(serde_json::to_value(&last).unwrap());
    first.stream.set_len(last.pieces[0].bytes + last.pieces[0].head).unwrap();
    let second = Set::of(&middle, &[(&one, one.groups[2]), (&two, 4)]);
    let (directory, stage) = staged(&base, &[&first, &second], None).unwrap();
    assert_eq!(relay(directory.path(), 1), whole(&one));
    assert_eq!(relay(directory.path(), 2), whole(&two));
    assert_eq!((stage.counts, stage.groups.to_string()), ((7, 0), format!("{UUID}:1-7")));
    assert_says_source(&relay(directory.path(), 3), "binlog.000002");
    let error = staged(&base, &[&second], None).err().unwrap().to_string();
    assert!(error.contains("a set is missing") && error.contains("binlog.000001"), "{error}");
}

#[test]
fn a_base_within_a_set_gets_only_what_it_lacks() {
    let (one, two) = logs();
    let set = Set::of(&one.place(4), &[(&one, 4), (&two, 4)]);
    let (directory, stage) = staged(&one.place(one.groups[3]), &[&set], None).unwrap();
    let wanted = [b"\xfebin", &one.bytes[..one.head()], &one.bytes[one.groups[3] as usize - 4..]].concat();
    assert_eq!(relay(directory.path(), 1), wanted);
    assert_eq!(stage.groups.to_string(), format!("{UUID}:4-7"));
    // A base in the second file needs nothing of the first.
    let (directory, mut stage) = staged(&two.place(two.groups[1]), &[&set], None).unwrap();
    assert_eq!((stage.counts.0, &stage.relays().unwrap().first_file[..]), (1, "binlog.000002"));
    assert!(relay(directory.path(), 1).len() < whole(&two).len());
}

#[test]
fn a_stop_is_before_the_first_group_that_is_behind_it() {
    let (one, two) = logs();
    let (base, set) = (one.place(4), Set::of(&one.place(4), &[(&one, 4), (&two, 4)]));
    let gtid = |number: u64| format!("{UUID}:{number}");
    for (stop, groups) in [
        (LogStop::Time(30 * SECOND), 3),
        (LogStop::Time(30 * SECOND - 1), 2),
        (LogStop::Time(5 * SECOND), 0),
        (LogStop::Time(99 * SECOND), 7),
        (LogStop::ThroughGtid(gtid(4)), 4),
        (LogStop::ThroughGtid(gtid(7)), 7),
        (LogStop::BeforeGtid(gtid(4)), 3),
        (LogStop::Place(format!("binlog.000001:{}", one.groups[4])), 4),
        (LogStop::Place(format!("binlog.000002:{}", two.groups[0])), 5),
        (LogStop::Place(format!("binlog.000002:{}", two.end())), 7),
    ] {
        let (directory, stage) = staged(&base, &[&set], Some(stop.clone())).unwrap();
        assert_eq!(stage.counts.0, groups, "{stop:?}");
        if groups < 5 && !matches!(&stop, LogStop::Place(_)) {
            let end = one.groups[groups as usize] as usize;
            assert_eq!(relay(directory.path(), 1), whole(&one)[..end], "{stop:?}");
            assert_eq!(stage.stands.binlog.offset, end as u64);
        }
    }
    for wrong in [
        LogStop::Place(format!("binlog.000001:{}", one.groups[4] + 1)),
        // Behind the first event of a group: within the group.
        LogStop::Place(format!("binlog.000001:{}", one.groups[4] + 72)),
        LogStop::Place("binlog.000009:4".into()),
        LogStop::Place(format!("binlog.000001:{}", one.end() + 1)),
        LogStop::ThroughGtid(gtid(8)),
        LogStop::BeforeGtid("22222222-2222-2222-2222-222222222222:1".into()),
    ] {
        assert!(staged(&base, &[&set], Some(wrong.clone())).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_time_that_a_session_made_up_does_not_decide_where_to_stop() {
    let staged_to = |seconds: &[i64], stop: i64| {
        let mut log = Log::new(1, 0);
        seconds.iter().for_each(|second| log.group(*second));
        let base = log.place(4);
        let staged = staged(&base, &[&Set::of(&base, &[(&log, 4)])], Some(LogStop::Time(stop * SECOND)));
        staged.map(|(_, stage)| stage.counts.0).map_err(|error| error.to_string())
    };
    for made_up in [5, 9_000] {
        let seconds = [10, 20, made_up, 30];
        assert_eq!((staged_to(&seconds, 15), staged_to(&seconds, 30)), (Ok(1), Ok(4)), "{made_up}");
        assert!(staged_to(&seconds, 25).unwrap_err().contains("nobody knows whether"), "{made_up}");
    }
    // The clock of the group before the stop was ahead: those behind it go on with earlier times.
    for seconds in [&[10, 40, 12, 13, 30][..], &[10, 40, 12, 41, 30], &[10, 40, 12]] {
        assert!(staged_to(seconds, 15).unwrap_err().contains("nobody knows whether"), "{seconds:?}");
    }
    assert_eq!(staged_to(&[10, 40, 30, 20], 15), Ok(1));
    // They are in a later set, or in its predecessors, too.
    let in_sets = |stop: i64, seconds: &[&[i64]]| {
        let (mut first, mut sets) = (None, Vec::new());
        for (number, seconds) in (1..).zip(seconds) {
            let mut log = Log::new(number, sets.len() as u64);
            seconds.iter().for_each(|second| log.group(*second));
            sets.push(Set::of(&first.take().unwrap_or_else(|| log.place(4)), &[(&log, 4)]));
            first = Some(log.place(log.end()));
        }
        let mut begin = Log::new(1, 0);
        begin.group(0);
        let staged = staged(&begin.place(4), &sets.iter().collect::<Vec<_>>(), Some(LogStop::Time(stop * SECOND)));
        staged.map(|(_, stage)| stage.counts.0).map_err(|error| error.to_string())
    };
    for sets in [&[&[40][..], &[12]][..], &[&[40], &[50], &[12, 13]], &[&[40], &[12], &[41], &[30]]] {
        assert!(in_sets(15, sets).unwrap_err().contains("nobody knows whether"), "{sets:?}");
    }
    assert_eq!(in_sets(15, &[&[40], &[12], &[41]]), Ok(0));
    // Whole seconds may differ by one.
    assert_eq!(staged_to(&[10, 20, 19, 30], 25), Ok(3));
}

#[test]
fn a_changed_byte_and_a_missing_event_are_found() {
    let (one, two) = logs();
    let base = one.place(4);
    for at in [30, 300, one.groups[1] as usize + 5, one.groups[1] as usize + 100_000, one.bytes.len() - 1] {
        let (mut one, _) = logs();
        one.bytes[at] ^= 1;
        assert!(staged(&base, &[&Set::of(&base, &[(&one, 4), (&two, 4)])], None).is_err(), "{at}");
    }
    let mut cut = logs().0;
    cut.bytes.drain(cut.groups[1] as usize - 4..cut.groups[2] as usize - 4);
    let error = staged(&base, &[&Set::of(&base, &[(&cut, 4), (&two, 4)])], None).err().unwrap().to_string();
    assert!(error.contains("events are missing"), "{error}");
    // A file that is missing, and one that follows transactions that are not there.
    let three = Log { file: "binlog.000003".into(), ..Log::new(2, 5) };
    let three = Log { groups: vec![three.end()], ..three };
    assert!(staged(&base, &[&Set::of(&base, &[(&one, 4), (&three, 4)])], None).is_err());
    let mut gap = Log::new(2, 6);
    gap.group(60);
    let error = staged(&base, &[&Set::of(&base, &[(&one, 4), (&gap, 4)])], None).err().unwrap().to_string();
    assert!(error.contains("transactions are missing before it"), "{error}");
}

#[test]
fn a_set_of_a_promoted_server_follows_the_end_of_the_first_servers_set_and_nothing_else() {
    let (one, _) = logs();
    // The promoted server has the same five groups, and two of its own, in a file of the same name.
    let mut other = Log::new(1, 0);
    (1..=7).for_each(|second| other.group(second * 10));
    let base = one.place(4);
    let set = Set::of(&base, &[(&one, 4)]);
    let behind = |first: &End, group: usize| {
        let mut made = Set::of(first, &[(&other, other.groups[group])]);
        let mut last = LogEnd::read(Dialect::MySql, &made.position.last.value()).unwrap();
        last.end.server = "22222222-2222-2222-2222-222222222222".into();
        made.position.last = EngineValue::from(serde_json::to_value(&last).unwrap());
        made
    };
    let end = one.place(one.end());
    let next = behind(&end, 5);
    let (directory, stage) = staged(&base, &[&set, &next], None).unwrap();
    assert_eq!(relay(directory.path(), 1), whole(&one));
    let rest = [b"\xfebin", &other.bytes[..other.head()], &other.bytes[other.groups[5] as usize - 4..]].concat();
    assert_eq!(relay(directory.path(), 2), rest);
    assert_eq!((stage.counts, stage.groups.to_string()), ((7, 0), format!("{UUID}:1-7")));
    // A full of the promoted server, within that set.
    let full = End { server: "22222222-2222-2222-2222-222222222222".into(), ..other.place(other.groups[6]) };
    assert_eq!(staged(&full, &[&next], None).unwrap().1.groups.to_string(), format!("{UUID}:7"));
    // A place is one of the set that has it.
    let place = LogStop::Place(format!("binlog.000001:{}", other.groups[6]));
    assert_eq!(staged(&base, &[&set, &next], Some(place)).unwrap().1.groups.to_string(), format!("{UUID}:1-6"));
    let error = |sets: &[&Set]| staged(&base, sets, None).err().unwrap().to_string();
    assert!(error(&[&next]).contains("a set is missing"), "{}", error(&[&next]));
    let twice = error(&[&set, &behind(&end, 4)]);
    assert!(twice.contains("is in it twice"), "{twice}");
    let mut other_gtids = end.clone();
    other_gtids.binlog.gtid = format!("{UUID}:1-4");
    let gap = error(&[&set, &behind(&other_gtids, 5)]);
    assert!(gap.contains("it follows the GTIDs"), "{gap}");
}

#[test]
fn one_run_of_a_server_takes_statements_in_one_system_time_zone() {
    let zone_of = |zones: [&str; 2], offsets: [i32; 2]| {
        let (mut one, mut two) = (Log::new(1, 0), Log::new(2, 1));
        for (log, zone) in [(&mut one, zones[0]), (&mut two, zones[1])] {
            log.group(10);
            log.statement(zone);
        }
        let base = one.place(one.groups[0]);
        let first = Set::of(&base, &[(&one, one.groups[0])]).with_offset(offsets[0]);
        let second = Set::of(&one.place(one.end()), &[(&two, 4)]).with_offset(offsets[1]);
        staged(&base, &[&first, &second], None).map(|(_, stage)| stage.system_zone.map(|zone| zone.shown()))
    };
    let shown = |zone: &str| Some(zone.to_owned());
    assert_eq!(zone_of(["SYSTEM"; 2], [3600; 2]).unwrap(), shown("+01:00"));
    assert_eq!(zone_of(["+05:00", "SYSTEM"], [3600, 7200]).unwrap(), shown("+02:00"));
    assert_eq!(zone_of(["+05:00"; 2], [3600, 7200]).unwrap(), None, "no statement needs it");
    let error = zone_of(["SYSTEM"; 2], [3600, 7200]).unwrap_err().to_string();
    assert!(error.contains("system time zone +02:00") && error.contains("with +01:00"), "{error}");
}

#[test]
fn rows_get_their_flags_and_checksum_however_they_come() {
    let event = |flags: u8| {
        let mut event = vec![0; HEADER + 40 + CRC];
        (event[4], event[9], event[HEADER + 6]) = (ROWS, (HEADER + 40 + CRC) as u8, flags);
        seal(&mut event);
        event
    };
    for (flags, applied) in [(0x11, 0x13), (1, 1)] {
        let from = event(flags);
        let header = Header::parse(from.first_chunk().unwrap()).unwrap();
        for step in [1, 3, 26, 61, from.len()] {
            let mut rows = Rows::new(&header);
            let passed: Vec<u8> = from.chunks(step).flat_map(|part| rows.pass(part).to_vec()).collect();
            assert_eq!(passed, event(applied), "{step}");
        }
    }
}
