//! The end of a backup of a server, which the next log set continues. Manifests are not trusted: every value is
//! checked.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::event::{MAGIC, file_number, is_file_name};
use super::gtid::Gtids;
use super::walk::Tail;
use crate::mysql_family::Dialect;
use crate::mysql_family::server_defaults::ServerDefaults;
use crate::mysql_family::system_zone::SystemZone;

/// The most pieces of a set: files.
const PIECES_MAX: usize = 1 << 16;

/// A place in a server's binary log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file's name.
    pub file: String,
    /// Where the next event begins in it.
    pub offset: u64,
    /// The GTIDs up to it, in the words of the server.
    #[serde(default)]
    pub gtid: String,
    /// MariaDB: the last GTID of each server in each domain up to it, as `gtid_binlog_state` has them. Unknown to a full.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub servers: String,
    /// The CRC-32 of the file's first event; unknown to a full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_crc: Option<u32>,
    /// The last event before it; unknown to a full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
}

impl Place {
    /// In words, for errors.
    pub fn show(&self) -> String {
        format!("{}:{}", self.file, self.offset)
    }
}

/// Where a backup set ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The place.
    pub binlog: Place,
    /// The server whose log it is: see [`server_of`].
    pub server: String,
    /// When the newest group before it was committed, RFC 3339; empty in a full.
    #[serde(default)]
    pub at: String,
    /// When a full was finished, in microseconds since 1970 by the clock of its host. Its position does not have it.
    #[serde(skip)]
    pub finished: Option<i64>,
    /// When the place of a full was read, if that was long before its end; by the same clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<i64>,
}

/// A piece of a file in a log set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The file's name.
    pub file: String,
    /// Where the piece begins in it.
    pub from: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes before them in the stream: the first events of the file, if the piece begins behind these.
    #[serde(default)]
    pub head: u64,
}

/// `position.last` of a log set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEnd {
    /// As of any set.
    #[serde(flatten)]
    pub end: End,
    /// Nothing was committed between `at` and this time; RFC 3339.
    pub until: String,
    /// No group has a time before this one; RFC 3339. Empty in media of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub earliest: String,
    /// Groups: transactions, and statements that are one.
    pub transactions: u64,
    /// Groups without a GTID among them.
    #[serde(default)]
    pub anonymous: u64,
    /// What the stream holds, in order.
    pub pieces: Vec<Piece>,
    /// The system time zone of the server: statements may have run in it. Missing in media of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_zone: Option<SystemZone>,
    /// The settings of the server that statements depend on. Missing in media of earlier versions.
    #[serde(default)]
    pub defaults: ServerDefaults,
}

impl End {
    /// Reads the `position` of any set of the dialect.
    ///
    /// # Errors
    /// Why it has no place in a log, for the user.
    pub fn read(dialect: Dialect, position: &Value) -> Result<Self, String> {
        let end = match position.get("binlog") {
            Some(_) => Self::deserialize(position).map_err(|error| format!("its position is invalid: {error}"))?,
            None => of_full(dialect, position)?,
        };
        let Place { file, offset, tail, .. } = &end.binlog;
        let behind = |tail: &Tail| tail.at >= *offset;
        if !is_file_name(file) || *offset < MAGIC.len() as u64 || *offset > 1 << 62 || tail.as_ref().is_some_and(behind)
        {
            return Err("its position is invalid: the place in the binary log".into());
        }
        if Gtids::parse(dialect, &end.binlog.gtid).and(Gtids::of_place(dialect, &end.binlog)).is_none() {
            return Err("its position is invalid: the GTIDs".into());
        }
        Ok(end)
    }

    /// When its newest group was committed, in microseconds since 1970.
    pub fn time(&self) -> Option<i64> {
        micros(&self.at)
    }
}

impl Piece {
    /// Where it begins.
    pub fn begin(&self) -> Place {
        let (file, offset) = (self.file.clone(), self.from);
        Place { file, offset, gtid: String::new(), servers: String::new(), file_crc: None, tail: None }
    }
}

impl LogEnd {
    /// Where the set begins in the log that it holds, if its predecessor ends at `first`: after a fail-over, that is a
    /// place in the files of another server.
    pub fn begin(&self, first: &End) -> Option<Place> {
        match self.end.server == first.server {
            true => Some(first.binlog.clone()),
            false => self.pieces.first().map(Piece::begin),
        }
    }

    /// Reads a log set's `position.last`.
    ///
    /// # Errors
    /// It is not a position of a log set, or a value is out of bounds.
    pub fn read(dialect: Dialect, position: &Value) -> Result<Self, String> {
        End::read(dialect, position)?;
        let read = Self::deserialize(position).map_err(|error| format!("its position is invalid: {error}"))?;
        let wrong =
            |piece: &Piece| !is_file_name(&piece.file) || piece.from < 4 || piece.bytes.max(piece.head) > 1 << 48;
        if read.pieces.len() > PIECES_MAX || read.pieces.iter().any(wrong) {
            return Err("its position is invalid: the pieces of files".into());
        }
        Ok(read)
    }
}

/// The place of a full: MySQL's exact place, or the place before the clone if GTIDs tell what is already in it.
fn of_full(dialect: Dialect, position: &Value) -> Result<End, String> {
    let text = |place: &Value, name: &str| place[name].as_str().unwrap_or_default().to_owned();
    let missing = "the server wrote no binary log when it was taken";
    let end = |file: String, offset: Option<u64>, gtid: String, server: String| {
        if file.is_empty() {
            return Err(missing.to_owned());
        }
        let offset = offset.ok_or("its position is invalid: the place in the binary log")?;
        // The name in MySQL's redo log has the directory.
        let file = file.rsplit('/').next().unwrap_or_default().to_owned();
        let binlog = Place { file, offset, gtid, servers: String::new(), file_crc: None, tail: None };
        let taken = position["place_at"].as_str().and_then(micros);
        Ok(End { binlog, server, at: String::new(), finished: None, taken })
    };
    let is_rows = position.get("method").and_then(Value::as_str) == Some("logical");
    let place = if dialect == Dialect::MySql { "binary_log_exact" } else { "binary_log" };
    if is_rows && position[place].is_null() {
        return Err(
            "its place in the binary log is unknown: the server writes none, or the account may not lock tables or \
                    see the place (RELOAD, REPLICATION CLIENT or BINLOG MONITOR)"
                .into(),
        );
    }
    match dialect {
        Dialect::MySql => {
            let (exact, before) = (&position["binary_log_exact"], &position["binary_log_not_before"]);
            let has_gtids = !text(before, "gtid_executed").is_empty();
            let place = match (exact.is_object(), has_gtids) {
                (true, _) => exact,
                (false, true) => before,
                (false, false) if text(before, "binary_log_file").is_empty() => return Err(missing.into()),
                (false, false) => {
                    return Err("its exact place in the binary log is unknown, and the server has no GTIDs".into());
                }
            };
            let offset = place["binary_log_position"].as_u64();
            end(text(place, "binary_log_file"), offset, text(place, "gtid_executed"), text(position, "server_uuid"))
        }
        Dialect::MariaDb => {
            let place = &position["binary_log"];
            let file = text(place, "file");
            let server = server_of(position["server_id"].as_u64().unwrap_or(0), &file);
            end(file, place["offset"].as_u64(), text(place, "gtid_binlog_pos"), server)
        }
    }
}

/// Whether an offset in a file is a place up to another one.
pub fn is_up_to(file: &str, offset: u64, (other, limit): &(String, u64)) -> bool {
    file_number(file).zip(file_number(other)).is_some_and(|(file, other)| (file, offset) <= (other, *limit))
}

/// The place in the log where a logical set was complete: a file and an offset. None: it is unknown.
pub fn complete_at(position: &Value) -> Option<(String, u64)> {
    let (file, offset) = position.get("complete_at")?.as_str()?.rsplit_once(':')?;
    Some((file.to_owned(), offset.parse().ok()?))
}

/// What a MariaDB log is called: its server has no UUID. The id of the server, and the base name of its files.
pub fn server_of(server_id: u64, file: &str) -> String {
    let base = file.rsplit_once('.').map_or(file, |(base, _)| base);
    format!("server_id {server_id}, {base}")
}

/// Microseconds since 1970 from RFC 3339.
pub(super) fn micros(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_microsecond)
}

/// Microseconds since 1970 as a manifest has them.
pub fn show_time(micros: i64) -> String {
    Timestamp::from_microsecond(micros).map(|time| format!("{time:.6}")).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    const UUID: &str = "11111111-1111-1111-1111-111111111111";

    #[test]
    fn a_full_of_mysql_ends_at_its_exact_place_or_with_gtids_at_the_place_before() {
        let place = |at: u64, gtid: &str| json!({"binary_log_file": "binlog.000003", "binary_log_position": at, "gtid_executed": gtid});
        let full = |exact: Value, before: Value| {
            let position = json!({"server_uuid": UUID, "binary_log_exact": exact, "binary_log_not_before": before});
            End::read(Dialect::MySql, &position)
        };
        let gtid = format!("{UUID}:1-9");
        assert_eq!(full(place(900, &gtid), place(700, &gtid)).unwrap().binlog.offset, 900);
        assert_eq!(full(Value::Null, place(700, &gtid)).unwrap().binlog.offset, 700);
        assert!(full(Value::Null, place(700, "")).unwrap_err().contains("no GTIDs"));
        assert!(full(Value::Null, json!({})).unwrap_err().contains("no binary log"));
        assert!(full(place(900, "rubbish"), Value::Null).unwrap_err().contains("GTIDs"));
    }

    #[test]
    fn a_full_of_mariadb_names_its_log_by_the_id_and_the_base_name() {
        let position =
            json!({"server_id": 7, "binary_log": {"file": "bin.000002", "offset": 400, "gtid_binlog_pos": "0-7-3"}});
        let end = End::read(Dialect::MariaDb, &position).unwrap();
        assert_eq!((end.server.as_str(), end.binlog.show().as_str()), ("server_id 7, bin", "bin.000002:400"));
        assert!(End::read(Dialect::MariaDb, &json!({"binary_log": null})).unwrap_err().contains("no binary log"));
    }

    #[test]
    fn a_log_end_is_written_and_read_and_values_out_of_bounds_are_refused() {
        let binlog = Place {
            file: "binlog.000003".into(),
            offset: 900,
            gtid: format!("{UUID}:1-9"),
            servers: String::new(),
            file_crc: Some(5),
            tail: Some(Tail { at: 869, crc: 6 }),
        };
        let end =
            End { binlog, server: UUID.into(), at: show_time(1_700_000_000_123_456), finished: None, taken: None };
        let pieces = vec![Piece { file: "binlog.000003".into(), from: 500, bytes: 400, head: 193 }];
        let (until, earliest) = (end.at.clone(), end.at.clone());
        let system_zone = serde_json::from_value(json!([[86_400, 3600]])).unwrap();
        let log = LogEnd {
            until,
            earliest,
            transactions: 3,
            anonymous: 0,
            pieces,
            system_zone,
            defaults: ServerDefaults::default(),
            end,
        };
        let text = serde_json::to_value(&log).unwrap();
        assert_eq!(LogEnd::read(Dialect::MySql, &text).unwrap(), log);
        for (path, value) in [
            ("/binlog/file", json!("../x.000001")),
            ("/binlog/offset", json!(3)),
            ("/binlog/tail/at", json!(900)),
            ("/binlog/gtid", json!("x")),
            ("/pieces/0/file", json!("a/b.000001")),
            ("/pieces/0/from", json!(0)),
            ("/pieces/0/bytes", json!(1_u64 << 60)),
            ("/system_zone/0/1", json!(86_400)),
        ] {
            let mut wrong = text.clone();
            *wrong.pointer_mut(path).unwrap() = value;
            assert!(LogEnd::read(Dialect::MySql, &wrong).is_err(), "{path}");
        }
    }
}
