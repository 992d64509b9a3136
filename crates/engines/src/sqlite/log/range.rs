//! The log range of a set in the terms that all engines share: the history is the log's salts, the position is a frame,
//! the proof is its checksum.

use fullbore_core::checksum::xxh3_128;
use fullbore_core::media::{LogPosition, LogRange, LogSpan, Position, SetKind};
use jiff::Timestamp;

use super::super::position::FileState;
use super::end::{End, LogEnd};

/// The range from the position of a set; `None` if the position is invalid. In sets of older programs the position has
/// no time: then `finished_at` counts, in microseconds since 1970.
pub fn log_range(kind: SetKind, position: &Position, finished_at: Option<i64>) -> Option<LogRange> {
    if kind == SetKind::Log {
        let first = End::read(&position.first.value()).ok()?;
        let last = LogEnd::read(&position.last.value()).ok()?;
        let at = last.end.time()?;
        let in_order = last.runs.iter().filter(|run| (1..=run.last_frame).contains(&run.first_frame));
        let spans = in_order.map(|run| LogSpan {
            history: history(u64::from(run.salt_1) << 32 | u64::from(run.salt_2)),
            from: u128::from(run.first_frame - 1),
            to: run.last_frame.into(),
        });
        return Some(LogRange {
            first: log_position(&first),
            last: log_position(&last.end),
            from: first.time().unwrap_or(at),
            at,
            until: micros(&last.until)?.max(at),
            earliest: None,
            spans: spans.collect(),
        });
    }
    let end = End::read(&position.checkpoint.value()).ok()?;
    // A set is never finished before the point in time that it holds.
    let at = end.time().or(finished_at)?;
    Some(LogRange { first: None, last: log_position(&end), from: at, at, until: at, earliest: None, spans: Vec::new() })
}

/// The same for a database that was restored up to `end`, with all commits until `until`, in microseconds since 1970.
pub fn range_up_to(end: &End, until: i64) -> LogRange {
    let at = end.time().unwrap_or(until).min(until);
    LogRange { first: None, last: log_position(end), from: at, at, until, earliest: None, spans: Vec::new() }
}

fn log_position(end: &End) -> Option<LogPosition> {
    let log = end.log.as_ref()?;
    let history = history(u64::from_be_bytes(log.salts()));
    let checksum = log.sums().map(|(a, b)| u64::from(a) << 32 | u64::from(b));
    // Every close of the database ends its log, and every new log without a frame has the salts 0. Only the database
    // file distinguishes such logs.
    let proof = if history.is_empty() && log.max_frame == 0 { end.file.map(digest) } else { checksum };
    Some(LogPosition { history, at: log.max_frame.into(), proof })
}

/// The salts identify a log; the salts 0 identify none.
fn history(salts: u64) -> Vec<u8> {
    if salts == 0 { Vec::new() } else { salts.to_be_bytes().to_vec() }
}

/// The digest of its numbers, each in 8 bytes, little-endian. It is on media and must not change.
fn digest(file: FileState) -> u64 {
    let FileState { device, inode, bytes, modified, changed } = file;
    let numbers = [device, inode, bytes, modified.cast_unsigned(), changed.cast_unsigned()];
    xxh3_128(0, &numbers.map(u64::to_le_bytes).concat()) as u64
}

fn micros(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_microsecond)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::super::position::LogPosition as Place;
    use super::super::end::show_time;
    use super::*;

    fn end(salts: [u8; 8], frame: u32, checksum: Option<(u32, u32)>, file: Option<FileState>) -> End {
        let log = Some(Place::new(salts, frame, checksum, 0));
        End { page_size: 4096, pages: 1, change_counter: None, log, file, at: show_time(5) }
    }

    #[test]
    fn a_frame_of_a_log_is_proved_by_its_checksum() {
        let position = log_position(&end([0, 0, 0, 0, 0, 0, 0, 9], 7, Some((1, 2)), None)).unwrap();
        assert_eq!(position, LogPosition { history: vec![0, 0, 0, 0, 0, 0, 0, 9], at: 7, proof: Some(1 << 32 | 2) });
    }

    #[test]
    fn a_log_without_a_frame_is_proved_by_the_database_file() {
        let file = FileState { device: 1, inode: 2, bytes: 3, modified: 4, changed: 5 };
        let [one, again] = [file, file].map(|file| log_position(&end([0; 8], 0, None, Some(file))).unwrap());
        let other = log_position(&end([0; 8], 0, None, Some(FileState { inode: 3, ..file }))).unwrap();
        let unknown = log_position(&end([0; 8], 0, None, None)).unwrap();
        assert!(one.history.is_empty() && one.is(&again) && !one.may_be(&other));
        assert!(one.may_be(&unknown) && !one.is(&unknown));
    }
}
