//! The log range of a set in the terms that all engines share: the history is the server, the position is the number of
//! the file and the offset in it, the proof is two checksums: of the file's first event, and of the last event before.
//! After a fail-over, a set begins in the history of one server, and what it holds is of another one.

use fullbore_core::checksum::xxh3_128;
use fullbore_core::media::{LogPosition, LogRange, LogSpan, Position, SetKind};

use super::end::{End, LogEnd, Place, micros};
use super::event::file_number;
use crate::mysql_family::Dialect;

/// The range from the position of a set; `None` if the position is invalid.
pub fn log_range(dialect: Dialect, kind: SetKind, position: &Position, finished_at: Option<i64>) -> Option<LogRange> {
    if kind != SetKind::Log {
        let checkpoint = position.checkpoint.value();
        // A logical set has the state of its beginning, a physical one that of its end.
        let placed = checkpoint.get("place_at").and_then(|at| micros(at.as_str()?));
        let at = placed.or(finished_at)?;
        // A server without a binary log has fulls, and no chain.
        let last = End::read(dialect, &checkpoint).ok().and_then(|end| log_position(&end));
        return Some(LogRange { first: None, last, from: at, at, until: at, earliest: None, spans: Vec::new() });
    }
    let first = End::read(dialect, &position.first.value()).ok()?;
    let last = LogEnd::read(dialect, &position.last.value()).ok()?;
    let at = last.end.time()?;
    let (from, to) = (log_position(&first)?, log_position(&last.end)?);
    let begin = place(&last.begin(&first)?)?;
    let span = LogSpan { history: to.history.clone(), from: begin, to: to.at };
    Some(LogRange {
        first: Some(from),
        last: Some(to),
        from: first.time().unwrap_or(at),
        at,
        until: micros(&last.until)?.max(at),
        earliest: micros(&last.earliest),
        spans: vec![span],
    })
}

/// The same for a database that was restored up to `end`, with all commits until `until`, in microseconds since 1970.
pub fn range_up_to(end: &End, until: i64) -> LogRange {
    let at = end.time().unwrap_or(until).min(until);
    LogRange { first: None, last: log_position(end), from: at, at, until, earliest: None, spans: Vec::new() }
}

fn log_position(end: &End) -> Option<LogPosition> {
    let Place { file_crc, tail, .. } = &end.binlog;
    let proof = file_crc.zip(*tail).map(|(file, tail)| u64::from(file) << 32 | u64::from(tail.crc));
    Some(LogPosition { history: history(&end.server), at: place(&end.binlog)?, proof })
}

/// The number of the file, then the offset in 64 bits.
pub(super) fn place(place: &Place) -> Option<u128> {
    Some(u128::from(file_number(&place.file)?) << 64 | u128::from(place.offset))
}

/// A UUID's 16 bytes; of another name its digest. It is on media and must not change.
fn history(server: &str) -> Vec<u8> {
    match uuid::Uuid::parse_str(server) {
        Ok(uuid) => uuid.as_bytes().to_vec(),
        Err(_) => xxh3_128(0, server.as_bytes()).to_be_bytes().to_vec(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::walk::Tail;
    use super::*;

    #[test]
    fn a_logical_full_has_the_state_of_its_beginning() {
        let ended = |place_at: serde_json::Value| {
            let value = serde_json::json!({ "method": "logical", "place_at": place_at });
            let position = Position { checkpoint: value.into(), ..Position::default() };
            log_range(Dialect::MySql, SetKind::Full, &position, Some(9_000_000)).unwrap().at
        };
        assert_eq!(ended("1970-01-01T00:00:05Z".into()), 5_000_000);
        assert_eq!([ended(serde_json::Value::Null), ended("soon".into())], [9_000_000; 2]);
    }

    #[test]
    fn places_are_in_the_order_of_files_and_offsets_and_proved_by_checksums() {
        let end = |file: &str, offset, tail| End {
            taken: None,
            finished: None,
            binlog: Place {
                file: file.into(),
                offset,
                gtid: String::new(),
                servers: String::new(),
                file_crc: Some(1),
                tail,
            },
            server: "11111111-1111-1111-1111-111111111111".into(),
            at: String::new(),
        };
        let one = log_position(&end("binlog.000009", u64::MAX >> 2, Some(Tail { at: 4, crc: 2 }))).unwrap();
        let two = log_position(&end("binlog.000010", 4, None)).unwrap();
        assert!(one.at < two.at && one.history == [0x11; 16] && one.history == two.history);
        assert_eq!((one.proof, two.proof), (Some(1 << 32 | 2), None));
        assert_eq!(history("server_id 7, bin").len(), 16);
    }
}
