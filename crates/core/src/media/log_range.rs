//! Where a backup set begins and ends in its database's log, in terms that all engines share. The engine makes these values and proves that they join.
//! The chain of sets compares them. It never interprets them.

/// A position in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPosition {
    /// Which log it is: the salts of a write-ahead log, a server UUID, a timeline, a recovery fork. Empty: a log without a name, which only
    /// `proof` tells from others.
    pub history: Vec<u8>,
    /// The position within that history: a frame, an LSN, a file and an offset.
    pub at: u128,
    /// What else is known of this position, such as a running checksum. Two positions with different proofs are different.
    pub proof: Option<u64>,
}

impl LogPosition {
    /// True when nothing says that these are two positions: enough for two sets one of which names the other.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSpan {
    /// The history.
    pub history: Vec<u8>,
    /// The position before the first record.
    pub from: u128,
    /// The position of the last record.
    pub to: u128,
}

/// Where a set begins and ends in the log and in time.
///
/// A log set may begin a new history, after a fail-over or in a log that was started again. Then `first` is the position of the old history at which
/// the new one joins, and `spans` holds both histories or the new one alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRange {
    /// Where the predecessor of a log set ends; none for other sets.
    pub first: Option<LogPosition>,
    /// Where the set ends; none of a database without a log.
    pub last: Option<LogPosition>,
    /// When its first commit was seen, in microseconds since 1970; of other sets as `at`.
    pub from: i64,
    /// When its last commit was seen, in microseconds since 1970.
    pub at: i64,
    /// Until when nothing else was committed, in microseconds since 1970.
    pub until: i64,
    /// What a log set holds, in order.
    pub spans: Vec<LogSpan>,
}

impl LogRange {
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

#[cfg(test)]
mod tests {
    use super::*;

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
