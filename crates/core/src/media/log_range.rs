//! Where a backup set begins and ends in its database's log, in terms that all engines share. The engine makes these
//! values and proves that they join. The chain of sets compares them. It never interprets them.
//!
//! A manifest has them as `position.log` (`docs/MEDIA_FORMAT.md` §9). Whole numbers that may need more than 53 bits are
//! texts there: many readers of JSON would round them.

use serde::{Deserialize, Serialize};

use super::manifest::at_most;

/// A position in a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPosition {
    /// Which log it is: the salts of a write-ahead log, a server UUID, a timeline, a recovery fork. Empty: a log
    /// without a name, which only `proof` tells from others.
    #[serde(with = "history_text")]
    pub history: Vec<u8>,
    /// The position within that history: a frame, an LSN, a file and an offset.
    #[serde(with = "decimal")]
    pub at: u128,
    /// What else is known of this position, such as a running checksum. Two positions with different proofs are
    /// different.
    #[serde(default, with = "proof_text", skip_serializing_if = "Option::is_none")]
    pub proof: Option<u64>,
}

impl LogPosition {
    /// True when nothing says that these are two positions: enough for two sets if one of them names the other.
    pub fn may_be(&self, other: &Self) -> bool {
        let proofs_agree = self.proof.zip(other.proof).is_none_or(|(one, other)| one == other);
        (&self.history, self.at) == (&other.history, other.at) && proofs_agree
    }

    /// True when both are the same position, whatever the sets say of each other.
    pub fn is(&self, other: &Self) -> bool {
        let named = !self.history.is_empty();
        self.may_be(other) && (named || self.proof.is_some() && other.proof.is_some())
    }
}

/// A part of one history that a log set holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSpan {
    /// The history.
    #[serde(with = "history_text")]
    pub history: Vec<u8>,
    /// The position before the first record.
    #[serde(with = "decimal")]
    pub from: u128,
    /// The position of the last record.
    #[serde(with = "decimal")]
    pub to: u128,
}

/// Where a set begins and ends in the log and in time.
///
/// A log set may begin a new history, after a fail-over or in a log that was started again. Then `first` is the
/// position of the old history at which the new one joins, and `spans` holds both histories or the new one alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRange {
    /// Where the predecessor of a log set ends; none for other sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<LogPosition>,
    /// Where the set ends; none of a database without a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LogPosition>,
    /// When its predecessor ended, in microseconds since 1970; of other sets as `at`.
    pub from: i64,
    /// When its last commit was seen, in microseconds since 1970.
    pub at: i64,
    /// Until when nothing else was committed, in microseconds since 1970.
    pub until: i64,
    /// No commit of a log set has a time before this one, in microseconds since 1970. Before `from`: a clock was set back, or
    /// a commit has a time that is not its own. None: the set does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest: Option<i64>,
    /// What a log set holds, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "at_most::<SPANS_MAX, _, _>")]
    pub spans: Vec<LogSpan>,
}

/// Most spans of a set: an SQLite log that is started again has one more.
const SPANS_MAX: usize = 1 << 16;
/// Most bytes in the name of a history.
const HISTORY_MAX: usize = 64;

impl LogRange {
    /// Checks the range of a log set (`of_log`), or of another set. Only a log set has `first` and spans. `until` is
    /// never before `at`.
    pub fn makes_sense(&self, of_log: bool) -> bool {
        self.at <= self.until && (of_log || self.first.is_none() && self.spans.is_empty())
    }

    /// Bytes that it takes in memory, approximately.
    pub fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.spans.len() * (size_of::<LogSpan>() + HISTORY_MAX)) as u64
    }

    /// True when this log set holds records after `position`, which is within it or where it begins.
    pub fn continues(&self, position: &LogPosition) -> bool {
        self.first.as_ref().is_some_and(|first| first.is(position)) || self.holds_more_than(position)
    }

    /// True when `position` is within this log set, and not its end.
    pub fn holds_more_than(&self, position: &LogPosition) -> bool {
        let within = |span: &LogSpan| span.history == position.history && (span.from..=span.to).contains(&position.at);
        self.spans.iter().any(within) && !self.last.as_ref().is_some_and(|last| last.is(position))
    }
}

/// A history as hexadecimal digits.
mod history_text {
    use serde::de::{Deserializer, Error};
    use serde::{Deserialize, Serializer};

    use super::HISTORY_MAX;

    pub fn serialize<S: Serializer>(history: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&history.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let hexadecimal = text.len() <= 2 * HISTORY_MAX && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !hexadecimal || !text.len().is_multiple_of(2) {
            return Err(D::Error::custom(
                "the history of a log is not in hexadecimal digits, two for each of at most 64 bytes",
            ));
        }
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).map_err(D::Error::custom);
        (0..text.len()).step_by(2).map(byte).collect()
    }
}

/// A number as decimal digits.
mod decimal {
    use serde::de::{Deserializer, Error};
    use serde::{Deserialize, Serializer};

    pub fn serialize<S: Serializer>(number: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(number)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text.bytes().all(|digit| digit.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.ok_or_else(|| {
            D::Error::custom("a position in a log is not in decimal digits, or needs more than 128 bits")
        })
    }
}

/// A proof as 16 hexadecimal digits.
mod proof_text {
    use serde::de::{Deserializer, Error};
    use serde::{Deserialize, Serializer};

    pub fn serialize<S: Serializer>(proof: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match proof {
            Some(proof) => to.collect_str(&format_args!("{proof:016x}")),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        let number = |text: String| {
            let digits = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
            let number = u64::from_str_radix(&text, 16).ok().filter(|_| digits);
            number.ok_or_else(|| D::Error::custom("the proof of a position does not have 16 hexadecimal digits"))
        };
        Option::<String>::deserialize(from)?.map(number).transpose()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_written_with_numbers_that_no_reader_of_json_rounds() {
        let last = position(&[0, 0xab], u128::MAX, Some(u64::MAX));
        let spans = vec![LogSpan { history: vec![0, 0xab], from: 0, to: u128::MAX }];
        let range = LogRange {
            first: Some(position(b"", 7, None)),
            last: Some(last),
            from: -1,
            at: 2,
            until: 3,
            earliest: None,
            spans,
        };
        let text = serde_json::to_string(&range).unwrap();
        let most = "340282366920938463463374607431768211455";
        assert_eq!(
            text,
            format!(
                r#"{{"first":{{"history":"","at":"7"}},"last":{{"history":"00ab","at":"{most}","proof":"ffffffffffffffff"}},"from":-1,"at":2,"until":3,"spans":[{{"history":"00ab","from":"0","to":"{most}"}}]}}"#
            )
        );
        assert_eq!(serde_json::from_str::<LogRange>(&text).unwrap(), range);
        let least = LogRange { first: None, last: None, from: 0, at: 0, until: 0, earliest: None, spans: Vec::new() };
        assert_eq!(serde_json::from_str::<LogRange>(r#"{"from":0,"at":0,"until":0}"#).unwrap(), least);
    }

    #[test]
    fn a_range_out_of_bounds_is_refused() {
        let last = |history: &str, at: &str| {
            format!(r#"{{"last":{{"history":"{history}","at":"{at}"}},"from":0,"at":0,"until":0}}"#)
        };
        assert!(serde_json::from_str::<LogRange>(&last(&"ab".repeat(64), "1")).is_ok());
        let wrong = [
            last(&"ab".repeat(65), "1"),
            last("a", "1"),
            last("0g", "1"),
            last("+1", "1"),
            last("", "-1"),
            last("", ""),
        ];
        for text in wrong {
            assert!(serde_json::from_str::<LogRange>(&text).is_err(), "{text}");
        }
        let span = r#"{"history":"","from":"0","to":"1"}"#;
        let many = |count| format!(r#"{{"from":0,"at":0,"until":0,"spans":[{}]}}"#, vec![span; count].join(","));
        assert!(serde_json::from_str::<LogRange>(&many(SPANS_MAX)).is_ok());
        assert!(serde_json::from_str::<LogRange>(&many(SPANS_MAX + 1)).is_err());
    }

    fn position(history: &[u8], at: u128, proof: Option<u64>) -> LogPosition {
        LogPosition { history: history.to_vec(), at, proof }
    }

    #[test]
    fn positions_with_a_known_history_are_equal_until_their_proofs_differ() {
        let one = position(b"a", 5, Some(1));
        assert!(one.is(&position(b"a", 5, None)) && one.is(&one));
        for other in [position(b"b", 5, Some(1)), position(b"a", 6, Some(1)), position(b"a", 5, Some(2))] {
            assert!(!one.may_be(&other) && !one.is(&other));
        }
    }

    #[test]
    fn positions_of_logs_without_a_name_are_equal_only_by_proof() {
        let unproved = position(b"", 0, None);
        assert!(unproved.may_be(&position(b"", 0, Some(1))) && !unproved.is(&position(b"", 0, Some(1))));
        assert!(position(b"", 0, Some(1)).is(&position(b"", 0, Some(1))));
    }

    #[test]
    fn a_log_set_that_changes_to_a_new_timeline_continues_positions_of_both() {
        let span = |history: &[u8], from, to| LogSpan { history: history.to_vec(), from, to };
        let range = LogRange {
            first: Some(position(b"timeline 1", 10, None)),
            last: Some(position(b"timeline 2", 30, None)),
            from: 0,
            at: 1,
            until: 1,
            earliest: None,
            spans: vec![span(b"timeline 1", 10, 20), span(b"timeline 2", 20, 30)],
        };
        for (history, at, continued) in [
            ("timeline 1", 10, true),
            ("timeline 1", 20, true),
            ("timeline 1", 21, false),
            ("timeline 2", 25, true),
            ("timeline 2", 30, false),
        ] {
            assert_eq!(range.continues(&position(history.as_bytes(), at, None)), continued, "{history} {at}");
        }
    }
}
