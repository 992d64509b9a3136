//! Logs with two histories: an older copy of the database and its log was put back, and other commits followed. Pure.

use std::cmp::Reverse;
use std::collections::HashSet;

use fullbore_core::media::SetKind;

use super::log::{Logs, Path};
use super::{moment, title};

/// A log set is of another history if it ended this much before the other set was taken, in microseconds. A time is
/// read a moment after the event, so smaller differences prove nothing.
const SURELY_BEFORE: i64 = 1_000_000;

impl Logs<'_> {
    /// True when a log set ended before the set at `base` was taken. Its commits after the log position of `base` are
    /// then not the commits that follow `base`.
    fn is_of_before(&self, base: usize, log: usize) -> bool {
        let (Some(taken), Some(range)) = (self.range(base), self.range(log)) else { return false };
        let begun_before = self.found[log].started_at < self.found[base].started_at;
        begun_before && range.until.saturating_add(SURELY_BEFORE) < taken.at
    }

    /// True when a log set that holds the end position of the set at `base` is of another history. Its times show this:
    /// it ended before `base` was taken, or it begins before that position in the log but at a later time.
    pub(super) fn is_of_another(&self, base: usize, log: usize) -> bool {
        let (Some(taken), Some(range)) = (self.range(base), self.range(log)) else { return false };
        let begins_there = range.first.as_ref().zip(taken.last.as_ref()).is_some_and(|(first, place)| first.is(place));
        let begun_behind = !begins_there && taken.at.saturating_add(SURELY_BEFORE) < range.from;
        begun_behind || self.is_of_before(base, log)
    }

    /// The time of the last commit that a path to `stop` is known to hold.
    pub(super) fn seen(&self, path: &Path, stop: i64) -> i64 {
        let of = |&at: &usize| self.range(at).map(|range| if range.at > stop { range.from } else { range.at });
        path.sets.iter().filter_map(of).max().unwrap_or(i64::MIN)
    }

    /// The warning about log sets that hold the end position of the set at `base`, and are not applied to it.
    pub(super) fn passed_by(&self, base: usize) -> Vec<String> {
        let Some(end) = self.range(base).and_then(|range| range.last.as_ref()) else { return Vec::new() };
        let same = |log: usize| self.found[log].database == self.found[base].database;
        let holds = |log: &usize| self.range(*log).is_some_and(|range| range.holds_more_than(end));
        let mut passed: Vec<usize> = self.farthest.keys().copied().filter(|&log| same(log)).filter(holds).collect();
        passed.retain(|&log| self.is_of_before(base, log));
        passed.sort_by_key(|&log| Reverse(self.range(log).map(|range| range.until)));
        let say = |log: &usize| {
            format!(
                "{} continues from the same log position as {}, but ended before that set was taken. \
                 It is not applied: the database was restored from an older copy, or the clock was set back",
                title(&self.found[*log]),
                title(&self.found[base])
            )
        };
        passed.first().map(say).into_iter().collect()
    }

    /// `path`, which reaches `stop` from that base; or the path into another history of the same log, if that is nearer
    /// to `stop`. The state that was seen last before a time counts, not the state after an older copy was put back.
    pub(super) fn as_it_was(&self, base: (usize, Option<usize>), path: Path, stop: i64) -> Path {
        let Some(nearest) = self.nearest(base.1.unwrap_or(base.0), stop) else { return path };
        if path.sets.contains(&nearest) {
            return path;
        }
        let mut other = self.path_through(base.0, base.1, nearest);
        let Some(end) = other.sets.iter().position(|&set| set == nearest) else { return path };
        other.sets.truncate(end + 1);
        if self.reaches(nearest) < stop {
            let fork = path.sets.iter().rfind(|&&set| self.found[set].kind == SetKind::Log);
            let fork = fork.map_or_else(|| "another set".into(), |&set| title(&self.found[set]));
            let until = self.range(nearest).map_or(stop, |range| range.until);
            other.doubts.push(format!(
                "the log has two histories: after {}, the database was restored from an older copy, and {fork} \
                 continues from that copy. The time of that restore is unknown: this is the state at {}",
                title(&self.found[nearest]),
                moment::show_with_local(until)
            ));
        }
        other
    }

    /// Among all log sets that follow a base, the one with the last commit seen until `stop`.
    fn nearest(&self, base: usize, stop: i64) -> Option<usize> {
        let (mut met, mut left) = (HashSet::new(), self.behind(base).collect::<Vec<_>>());
        while let Some(log) = left.pop() {
            if met.insert(log) {
                left.extend(self.continuing(log));
            }
        }
        let tells = |&log: &usize| {
            let range = self.range(log)?;
            let holds = range.at > stop;
            let seen = if holds { range.from } else { range.at };
            // If several hold the time itself, the shortest one is the most exact.
            (seen <= stop).then_some(((seen, holds, Reverse(range.at), Reverse(log)), log))
        };
        met.iter().filter_map(tells).max().map(|(_, log)| log)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use uuid::Uuid;

    use fullbore_core::media::{LogPosition, LogRange};

    use super::super::log_terms::LogTerms;
    use super::super::{Choice, FoundSet, choose};
    use super::*;

    const SECOND: i64 = 1_000_000;

    /// The position after a commit. `written` selects one of several commits with this number: the files were put back
    /// between them, so only the proof tells them apart.
    fn place(terms: LogTerms, written: u64, commit: u64) -> LogPosition {
        LogPosition { proof: Some(written * 1000 + commit), ..terms.place(commit) }
    }

    /// The same position in a log that has nothing to do with the others.
    fn elsewhere(mut position: LogPosition) -> LogPosition {
        position.history.push(8);
        position
    }

    /// A set that ends there, and was taken at that second.
    fn set(id: u128, base: Option<u128>, last: LogPosition, second: i64) -> FoundSet {
        let at = second * SECOND;
        let range =
            LogRange { first: None, last: Some(last), from: at, at, until: at, earliest: None, spans: Vec::new() };
        FoundSet {
            backup_set_id: Uuid::from_u128(id),
            media_set_id: Uuid::from_u128(id),
            kind: SetKind::Full,
            base: base.map(Uuid::from_u128),
            started_at: at,
            incomplete: None,
            interrupted: false,
            database: Some("/app.db".into()),
            names: Vec::new(),
            log_range: Some(range),
            until_by_store: None,
            encrypted: false,
        }
    }

    /// A log set from the end of `base` to a commit, in the log that `base` ends in.
    fn log(terms: LogTerms, id: u128, base: &FoundSet, (written, to): (u64, u64), second: i64) -> FoundSet {
        let before = base.log_range.clone().unwrap();
        let first = before.last.unwrap();
        let from = first.proof.unwrap() % 1000;
        let (mut last, mut spans) = (place(terms, written, to), terms.spans(from, to));
        if first.history.ends_with(&[8]) {
            last = elsewhere(last);
            spans.iter_mut().for_each(|span| span.history.push(8));
        }
        let mut made = set(id, Some(base.backup_set_id.as_u128()), last, second);
        let range = made.log_range.take().unwrap();
        made.log_range = Some(LogRange { first: Some(first), from: before.at, spans, ..range });
        FoundSet { kind: SetKind::Log, ..made }
    }

    /// A full at 10, log sets until 20 and 30. Then the full's files were put back; a log set at 50 continues the full.
    fn forked(terms: LogTerms) -> Vec<FoundSet> {
        let full = set(1, None, place(terms, 0, 10), 10);
        let one = log(terms, 2, &full, (0, 15), 20);
        let two = log(terms, 3, &one, (0, 20), 30);
        let other = log(terms, 4, &full, (1, 18), 50);
        vec![full, one, two, other]
    }

    fn chosen(found: &[FoundSet], second: i64) -> (Vec<usize>, usize) {
        let stop_at = Some(second * SECOND);
        let sequence = choose(found, &Choice { stop_at, ..Choice::default() }).unwrap();
        (sequence.sets, sequence.warnings.len())
    }

    #[test]
    fn a_time_before_an_older_copy_was_put_back_is_as_it_was_then() {
        for terms in LogTerms::ALL {
            let found = forked(terms);
            assert_eq!(chosen(&found, 25), (vec![0, 1, 2], 0), "{terms:?}");
            assert_eq!(chosen(&found, 30), (vec![0, 1, 2], 0));
            assert_eq!(chosen(&found, 20), (vec![0, 1, 2], 0), "a commit of that moment may be in the next set");
            assert_eq!(chosen(&found, 40), (vec![0, 1, 2], 1), "when it was put back is not known");
            assert_eq!(chosen(&found, 50), (vec![0, 3], 0));
            let newest = choose(&found, &Choice::default()).unwrap().sets;
            assert_eq!(newest, [0, 3], "{terms:?}: the newest is that of the other history");
        }
    }

    #[test]
    fn an_older_copy_put_back_gives_no_time_of_another_full() {
        // After the first full come a second full and its log sets. Then files from before the first full were put
        // back, and a third full was taken. Its log set has more commits than the first full.
        for terms in LogTerms::ALL {
            let first = set(1, None, place(terms, 0, 20), 10);
            let second = set(2, None, elsewhere(place(terms, 1, 5)), 20);
            let behind = log(terms, 3, &second, (1, 9), 30);
            let third = set(4, None, place(terms, 2, 3), 60);
            let last = log(terms, 5, &third, (2, 50), 70);
            let found = [first, second, behind, third, last];
            let latest = Choice { latest: true, ..Choice::default() };
            assert_eq!(choose(&found, &latest).unwrap().sets, [3, 4], "{terms:?}");
            assert_eq!(chosen(&found, 25), (vec![1, 2], 0));
            assert_eq!(chosen(&found, 65), (vec![3, 4], 0));
            let between = choose(&found, &Choice { stop_at: Some(40 * SECOND), ..Choice::default() });
            assert!(between.is_err(), "{terms:?}: the state at that time is unknown");
        }
    }

    #[test]
    fn log_sets_that_had_ended_before_a_full_was_taken_are_not_applied_to_it() {
        for terms in LogTerms::ALL {
            let mut found = forked(terms);
            found.push(set(5, None, place(terms, 1, 18), 60));
            let latest = Choice { latest: true, ..Choice::default() };
            let sequence = choose(&found, &latest).unwrap();
            assert_eq!((sequence.sets, sequence.warnings.len()), (vec![4], 1), "{terms:?}");
            assert_eq!(chosen(&found, 25), (vec![0, 1, 2], 0));
            let named = Choice { set: Some(found[2].backup_set_id.to_string()), ..Choice::default() };
            assert_eq!(choose(&found, &named).unwrap().sets, [0, 1, 2]);
            // A log set that continues the full is applied.
            let next = log(terms, 6, &found[4], (1, 25), 70);
            found.push(next);
            assert_eq!(choose(&found, &latest).unwrap().sets, [4, 5], "{terms:?}");
        }
    }
}
