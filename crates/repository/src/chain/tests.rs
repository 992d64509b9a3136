//! Which sets are chosen, and which choices are refused.
#![allow(clippy::unwrap_used)]

use super::*;

fn set(id: u128, kind: SetKind, base: Option<u128>, at: i64) -> FoundSet {
    FoundSet {
        backup_set_id: Uuid::from_u128(id << 96),
        media_set_id: Uuid::from_u128((id + 100) << 96),
        kind,
        base: base.map(|id| Uuid::from_u128(id << 96)),
        started_at: at,
        incomplete: None,
        interrupted: false,
        database: Some("/data/app.db".into()),
        names: vec![format!("{id}.bore")],
        log_range: None,
        until_by_store: None,
        encrypted: false,
    }
}

fn full(id: u128, at: i64) -> FoundSet {
    set(id, SetKind::Full, None, at)
}

#[test]
fn within_one_chain_the_newest_point_is_meant() {
    let found = [set(3, SetKind::Differential, Some(1), 30), full(1, 10), set(2, SetKind::Differential, Some(1), 20)];
    assert_eq!(choose(&found, &Choice::default()).unwrap().sets, [1, 0]);
}

#[test]
fn two_chains_are_refused_with_the_list_unless_one_is_chosen() {
    let found = [full(1, 10), full(2, 20)];
    let text = choose(&found, &Choice::default()).unwrap_err().to_string();
    assert!(text.contains("more than one chain") && text.contains("--latest"), "{text}");
    assert_eq!(choose(&found, &Choice { latest: true, ..Choice::default() }).unwrap().sets, [1]);
    assert_eq!(choose(&found, &Choice { set: Some("00000001".into()), ..Choice::default() }).unwrap().sets, [0]);
    assert!(choose(&found, &Choice { set: Some("0000".into()), ..Choice::default() }).is_err());
    assert!(choose(&found, &Choice { set: Some("9".into()), ..Choice::default() }).is_err());
}

#[test]
fn the_newest_point_is_meant_also_where_it_stands_on_an_older_full() {
    // The second full was taken with --copy-only, or is damaged: differentials still continue the first.
    let found = [full(1, 10), full(2, 20), set(3, SetKind::Differential, Some(1), 30)];
    let latest = Choice { latest: true, ..Choice::default() };
    assert_eq!(choose(&found, &latest).unwrap().sets, [0, 2]);
    let without = choose(&found[1..], &latest).unwrap();
    assert_eq!(without.sets, [0]);
    assert!(without.warnings[0].contains("its full 00000001") && without.warnings[0].contains("is not there"));
}

#[test]
fn a_differential_without_its_full_is_refused() {
    let found = [full(1, 10), set(2, SetKind::Differential, Some(9), 20)];
    let choice = Choice { set: Some("00000002".into()), ..Choice::default() };
    assert!(choose(&found, &choice).unwrap_err().to_string().contains("is not there"));
    assert!(choose(&found[1..], &Choice::default()).unwrap_err().to_string().contains("is not there"));
}

#[test]
fn an_incomplete_newer_set_is_named_never_skipped_in_silence() {
    let broken =
        FoundSet { incomplete: Some("family 2 of 4 missing".into()), ..set(2, SetKind::Differential, Some(1), 20) };
    let sequence = choose(&[full(1, 10), broken], &Choice::default()).unwrap();
    assert_eq!(sequence.sets, [0]);
    assert!(sequence.warnings[0].contains("family 2 of 4 missing"));
}

#[test]
fn an_interrupted_replacement_leaves_the_new_set_as_the_valid_one() {
    let old = FoundSet { interrupted: true, names: vec!["app.bore".into()], ..full(1, 10) };
    let new = FoundSet { names: vec!["app.bore".into()], ..full(2, 20) };
    assert_eq!(choose(&[old.clone(), new], &Choice::default()).unwrap().sets, [1]);
    assert!(choose(&[old, full(2, 20)], &Choice::default()).is_err(), "a set of other names replaces nothing");
}

#[test]
fn the_latest_of_two_databases_is_not_chosen_for_the_user() {
    let other = FoundSet { database: Some("/data/other.db".into()), ..full(2, 20) };
    let choice = Choice { latest: true, ..Choice::default() };
    assert!(choose(&[full(1, 10), other], &choice).unwrap_err().to_string().contains("/data/other.db"));
}

#[test]
fn latest_refuses_sets_that_do_not_name_their_database() {
    let silent = |id, at| FoundSet { database: None, ..full(id, at) };
    let choice = Choice { latest: true, ..Choice::default() };
    for found in [[silent(1, 10), silent(2, 20)], [full(1, 10), silent(2, 20)], [silent(1, 10), full(2, 20)]] {
        assert!(choose(&found, &choice).unwrap_err().to_string().contains("--key"));
    }
    assert_eq!(choose(&[silent(1, 10)], &choice).unwrap().sets, [0]);
}

#[test]
fn a_differential_is_later_than_its_full_whatever_the_clock_said_and_the_clock_is_doubted() {
    let found = [full(1, 100), set(2, SetKind::Differential, Some(1), 40)];
    assert_eq!(choose(&found, &Choice::default()).unwrap().sets, [0, 1]);
    let doubts = clock_doubts(&found, 200);
    assert!(doubts.len() == 1 && doubts[0].contains("before its full") && doubts[0].contains("--set"));
    let doubts = clock_doubts(&[full(1, 2 * CLOCK_TOLERANCE)], 0);
    assert!(doubts.len() == 1 && doubts[0].contains("in the future"));
    assert!(clock_doubts(&[full(1, CLOCK_TOLERANCE)], 0).is_empty());
}

#[test]
fn nothing_at_all_is_an_error_that_says_so() {
    assert!(choose(&[], &Choice::default()).unwrap_err().to_string().contains("no backup set"));
}

/// Log sets: what follows what.
mod logs {
    use fullbore_core::media::{LogPosition, LogSpan};
    use proptest::prelude::*;

    use super::*;

    /// A place that is given by its number alone.
    fn place(number: i64) -> LogPosition {
        LogPosition { history: vec![7], at: number as u128 * 10, proof: Some(number as u64) }
    }

    /// A full that ends at a place, seen at that time.
    fn full_at(id: u128, number: i64) -> FoundSet {
        let range = LogRange {
            first: None,
            last: Some(place(number)),
            from: number,
            at: number,
            until: number,
            earliest: None,
            spans: Vec::new(),
        };
        FoundSet { log_range: Some(range), ..full(id, number) }
    }

    fn differential_at(id: u128, of: u128, number: i64) -> FoundSet {
        FoundSet { kind: SetKind::Differential, base: Some(Uuid::from_u128(of << 96)), ..full_at(id, number) }
    }

    /// A log set from one place to another, both seen at that time.
    fn log(id: u128, base: u128, from: i64, to: i64) -> FoundSet {
        let spans = vec![LogSpan { history: vec![7], from: place(from).at, to: place(to).at }];
        let range = LogRange {
            first: Some(place(from)),
            last: Some(place(to)),
            from,
            at: to,
            until: to,
            earliest: None,
            spans,
        };
        FoundSet { log_range: Some(range), ..set(id, SetKind::Log, Some(base), to) }
    }

    fn stop(at: i64) -> Choice {
        Choice { stop_at: Some(at), ..Choice::default() }
    }

    fn text(found: &[FoundSet], choice: &Choice) -> String {
        choose(found, choice).unwrap_err().to_string()
    }

    #[test]
    fn all_log_sets_behind_a_full_are_taken_in_order() {
        let found = [log(3, 2, 20, 30), full_at(1, 10), log(2, 1, 10, 20), log(4, 3, 30, 40)];
        assert_eq!(choose(&found, &Choice::default()).unwrap().sets, [1, 2, 0, 3]);
        assert_eq!(choose(&found, &stop(25)).unwrap().sets, [1, 2, 0]);
        // A commit that was seen at 20 may be in the next set too.
        assert_eq!(choose(&found, &stop(20)).unwrap().sets, [1, 2, 0]);
        assert_eq!(choose(&found, &stop(10)).unwrap().sets, [1, 2]);
        let named = Choice { set: Some("00000003".into()), ..Choice::default() };
        assert_eq!(choose(&found, &named).unwrap().sets, [1, 2, 0]);
    }

    #[test]
    fn log_sets_behind_a_stop_are_taken_if_they_have_commits_that_are_dated_before_it() {
        let dated = |earliest: i64, mut set: FoundSet| {
            set.log_range.as_mut().unwrap().earliest = Some(earliest);
            set
        };
        let found = |third: i64| {
            let logs = [dated(10, log(2, 1, 10, 20)), dated(20, log(3, 2, 20, 30)), dated(third, log(4, 3, 30, 40))];
            let logs = logs.into_iter().chain([dated(40, log(5, 4, 40, 50)), dated(50, log(6, 5, 50, 60))]);
            std::iter::once(full_at(1, 10)).chain(logs).collect::<Vec<_>>()
        };
        assert_eq!(choose(&found(30), &stop(15)).unwrap().sets, [0, 1]);
        assert_eq!(choose(&found(16), &stop(15)).unwrap().sets, [0, 1], "it is behind the stop, too");
        let sets = choose(&found(14), &stop(15)).unwrap().sets;
        assert_eq!(sets, [0, 1, 2, 3, 4], "and one more, which may prove that only this commit has a wrong time");
        let last = Choice { set: Some("00000005".into()), ..stop(15) };
        assert_eq!(choose(&found(14), &last).unwrap().sets, sets, "as a repository asks for them");
        assert_eq!(choose(&found(14), &stop(35)).unwrap().sets, [0, 1, 2, 3]);
    }

    #[test]
    fn a_time_before_the_first_or_behind_the_last_position_is_refused_with_the_range() {
        let found = [full_at(1, 1_000_000), log(2, 1, 1_000_000, 3_000_000)];
        for (at, word) in [(999_999, "is before"), (3_000_001, "is after")] {
            let text = text(&found, &stop(at));
            assert!(text.contains(word), "{text}");
            assert!(text.contains("1970-01-01T00:00:01Z") && text.contains("1970-01-01T00:00:03Z"), "{text}");
        }
    }

    /// A position of an engine with LSNs and timelines, as a server after a fail-over has them.
    fn lsn(timeline: u8, lsn: u128) -> LogPosition {
        LogPosition { history: vec![timeline], at: lsn, proof: None }
    }

    /// A log set that ends at `last` and holds these parts of timelines.
    fn on_timelines(id: u128, base: u128, first: LogPosition, spans: &[(u8, u128, u128)], time: i64) -> FoundSet {
        let last = spans.last().map(|(timeline, _, to)| lsn(*timeline, *to));
        let spans = spans.iter().map(|&(timeline, from, to)| LogSpan { history: vec![timeline], from, to }).collect();
        let range =
            LogRange { first: Some(first), last, from: time - 10, at: time, until: time, earliest: None, spans };
        FoundSet { log_range: Some(range), ..set(id, SetKind::Log, Some(base), time) }
    }

    fn full_on(id: u128, position: LogPosition, time: i64) -> FoundSet {
        let range = LogRange {
            first: None,
            last: Some(position),
            from: time,
            at: time,
            until: time,
            earliest: None,
            spans: Vec::new(),
        };
        FoundSet { log_range: Some(range), ..full(id, time) }
    }

    #[test]
    fn a_log_set_that_begins_a_new_timeline_is_followed_to_its_end_and_to_a_time_on_either_side() {
        // The server of timeline 1 failed at LSN 2^70 + 150. Its replica continued as timeline 2.
        let far = 1 << 70;
        let found = [
            full_on(1, lsn(1, far), 100),
            on_timelines(2, 1, lsn(1, far), &[(1, far, far + 100)], 200),
            on_timelines(3, 2, lsn(1, far + 100), &[(1, far + 100, far + 150), (2, far + 150, far + 300)], 300),
            on_timelines(4, 3, lsn(2, far + 300), &[(2, far + 300, far + 400)], 400),
        ];
        assert_eq!(choose(&found, &Choice::default()).unwrap().sets, [0, 1, 2, 3]);
        assert_eq!(choose(&found, &stop(150)).unwrap().sets, [0, 1]);
        assert_eq!(choose(&found, &stop(250)).unwrap().sets, [0, 1, 2]);
        assert_eq!(choose(&found, &stop(350)).unwrap().sets, [0, 1, 2, 3]);
        let without = [found[0].clone(), found[1].clone(), found[3].clone()];
        let refused = text(&without, &Choice { set: Some("00000004".into()), ..Choice::default() });
        assert!(refused.contains("00000003"), "the set with the join is missing, and is named: {refused}");
    }

    #[test]
    fn a_full_on_the_new_timeline_takes_the_log_sets_behind_it_alone() {
        let found = [
            full_on(1, lsn(1, 1000), 100),
            on_timelines(2, 1, lsn(1, 1000), &[(1, 1000, 1150), (2, 1150, 1300)], 200),
            full_on(3, lsn(2, 1250), 180),
            on_timelines(4, 2, lsn(2, 1300), &[(2, 1300, 1400)], 300),
        ];
        // The full is within the set with the join: that set and the next one follow it.
        let latest = Choice { latest: true, ..Choice::default() };
        assert_eq!(choose(&found, &latest).unwrap().sets, [2, 1, 3]);
        // At the same LSN, the old timeline is another log.
        let stray = [full_on(3, lsn(1, 1250), 180), found[1].clone(), found[3].clone()];
        assert_eq!(choose(&stray[..1], &Choice::default()).unwrap().sets, [0]);
        let refused = text(&stray, &latest);
        assert!(refused.contains("00000001"), "the full of timeline 1 is missing, and is named: {refused}");
    }

    /// A place in a log without a frame, of a database whose file was this one.
    fn before_the_first_frame(file: Option<u64>) -> LogPosition {
        LogPosition { history: Vec::new(), at: 0, proof: file }
    }

    /// A full of a database that was closed, and the log set of the session that came next.
    fn session(id: u128, number: i64, file: Option<u64>) -> [FoundSet; 2] {
        let mut sets = [full_at(id, number), log(id + 1, id, number, number + 5)];
        sets[0].log_range.as_mut().unwrap().last = Some(before_the_first_frame(file));
        sets[1].log_range.as_mut().unwrap().first = Some(before_the_first_frame(file));
        sets
    }

    #[test]
    fn logs_that_had_no_frame_yet_are_told_apart_by_the_database_file() {
        for files in [[Some(1), Some(2)], [None, None], [Some(1), None]] {
            let [one, two] = [session(1, 10, files[0]), session(3, 20, files[1])];
            let found: Vec<FoundSet> = one.into_iter().chain(two).collect();
            assert_eq!(choose(&found, &stop(15)).unwrap().sets, [0, 1], "{files:?}");
            assert_eq!(choose(&found, &stop(25)).unwrap().sets, [2, 3], "{files:?}");
            let latest = Choice { latest: true, ..Choice::default() };
            assert_eq!(choose(&found, &latest).unwrap().sets, [2, 3]);
            // Without the second full its log set continues nothing.
            let without = [&found[..2], &found[3..]].concat();
            assert_eq!(choose(&without, &stop(15)).unwrap().sets, [0, 1]);
            assert!(text(&without, &stop(25)).contains("is not there"), "{files:?}");
        }
        // A second full of the file as it was is a base of the same log.
        let [full, log] = session(1, 10, Some(1));
        let again = FoundSet { backup_set_id: Uuid::from_u128(9 << 96), ..full };
        assert_eq!(choose(&[again, log], &stop(15)).unwrap().sets, [0, 1]);
    }

    #[test]
    fn a_gap_is_refused_by_naming_what_is_missing() {
        let found = [full_at(1, 10), log(2, 1, 10, 20), log(4, 3, 30, 40), log(5, 4, 40, 50)];
        let missing = Uuid::from_u128(3 << 96).to_string();
        for choice in [Choice::default(), stop(45), Choice { set: Some("00000005".into()), ..Choice::default() }] {
            let text = text(&found, &choice);
            assert!(text.contains(&missing) && text.contains("is not there"), "{text}");
        }
        assert_eq!(choose(&found, &stop(20)).unwrap().sets, [0, 1], "before the gap all is well");
        let mut broken = found.to_vec();
        broken.push(FoundSet { incomplete: Some("family 2 of 2 missing".into()), ..log(3, 2, 20, 30) });
        assert!(text(&broken, &Choice::default()).contains("family 2 of 2 missing"));
    }

    #[test]
    fn a_gap_within_one_second_of_a_servers_clock_is_refused() {
        let mut found = [full_at(1, 10), log(2, 1, 10, 20), log(4, 3, 30, 40)];
        let range = found[2].log_range.as_mut().unwrap();
        (range.at, range.until) = (20, 20);
        assert!(text(&found, &Choice::default()).contains("is not there"));
        assert_eq!(choose(&found[..2], &Choice::default()).unwrap().sets, [0, 1]);
    }

    #[test]
    fn a_time_at_which_nobody_followed_the_log_is_refused_with_the_times_on_both_sides() {
        let mut found = vec![full_at(1, 10), log(2, 1, 10, 20), full_at(3, 40), log(4, 3, 40, 50)];
        for other in [2, 3] {
            let range = found[other].log_range.as_mut().unwrap();
            [&mut range.first, &mut range.last].into_iter().flatten().for_each(|position| position.history = vec![8]);
            range.spans.iter_mut().for_each(|span| span.history = vec![8]);
        }
        let text = text(&found, &stop(30));
        let sides = [20, 40].map(|time| format!("'{}'", crate::chain::moment::show(time)));
        assert!(
            text.contains("the log chain ends with this set") && sides.iter().all(|side| text.contains(side)),
            "{text}"
        );
        assert_eq!(choose(&found, &stop(20)).unwrap().sets, [0, 1]);
        assert_eq!(choose(&found, &stop(40)).unwrap().sets[0], 2);
    }

    #[test]
    fn sets_that_say_they_join_and_do_not_are_refused() {
        let found = [full_at(1, 10), log(2, 1, 10, 20), log(3, 2, 21, 30)];
        assert!(text(&found, &Choice::default()).contains("begins elsewhere"));
    }

    #[test]
    fn a_full_or_a_differential_within_the_log_sets_shortens_the_way() {
        let found = [full_at(1, 10), log(2, 1, 10, 30), log(3, 2, 30, 50), differential_at(4, 1, 40), full_at(5, 20)];
        let latest = Choice { latest: true, ..Choice::default() };
        assert_eq!(choose(&found[..4], &Choice::default()).unwrap().sets, [0, 3, 2]);
        assert_eq!(choose(&found, &latest).unwrap().sets, [4, 1, 2]);
        assert_eq!(choose(&found, &stop(45)).unwrap().sets, [0, 3, 2]);
        assert_eq!(choose(&found, &stop(35)).unwrap().sets, [4, 1, 2]);
        assert_eq!(choose(&found, &stop(15)).unwrap().sets, [0, 1]);
    }

    #[test]
    fn log_sets_behind_a_differential_are_the_newest_point_whatever_full_was_taken_between() {
        // Another log: no log set holds the full at 30.
        let mut found = vec![full_at(1, 10), full_at(2, 30), differential_at(3, 1, 40), log(4, 3, 40, 50)];
        for moved in [2, 3] {
            let range = found[moved].log_range.as_mut().unwrap();
            [&mut range.first, &mut range.last].into_iter().flatten().for_each(|position| position.history = vec![8]);
            range.spans.iter_mut().for_each(|span| span.history = vec![8]);
        }
        let latest = Choice { latest: true, ..Choice::default() };
        assert_eq!(choose(&found, &latest).unwrap().sets, [0, 2, 3]);
        assert_eq!(choose(&found[..2], &latest).unwrap().sets, [1]);
    }

    #[test]
    fn a_differential_behind_all_log_sets_is_the_newest_point() {
        let found = [full_at(1, 10), log(2, 1, 10, 20), differential_at(3, 1, 40)];
        assert_eq!(choose(&found, &Choice::default()).unwrap().sets, [0, 2]);
        assert_eq!(choose(&found, &stop(15)).unwrap().sets, [0, 1]);
    }

    #[test]
    fn the_longer_of_two_log_chains_from_one_set_is_taken() {
        let found = [full_at(1, 10), log(2, 1, 10, 20), log(3, 2, 20, 30), log(4, 2, 20, 25), log(5, 4, 25, 60)];
        assert_eq!(choose(&found, &Choice::default()).unwrap().sets, [0, 1, 3, 4]);
    }

    #[test]
    fn log_sets_that_do_not_tell_where_they_belong_are_refused() {
        let found = [full_at(1, 10), FoundSet { log_range: None, ..log(2, 1, 10, 20) }];
        assert!(text(&found, &Choice::default()).contains("--key"));
    }

    #[test]
    fn sets_that_follow_each_other_in_a_circle_end() {
        let found = [full_at(1, 10), log(2, 3, 10, 10), log(3, 2, 10, 10)];
        // They name each other, but their positions follow that of the full.
        assert_eq!(choose(&found, &Choice::default()).unwrap().sets, [0, 1, 2]);
        let third = Choice { set: Some("00000003".into()), ..Choice::default() };
        assert_eq!(choose(&found, &third).unwrap().sets, [0, 2], "the second has nothing that the third needs");
    }

    /// Fulls, differentials and log sets of one line of commits 0…`end`: log sets without a gap, some of them gone.
    fn world() -> impl Strategy<Value = (Vec<FoundSet>, i64)> {
        let parts = proptest::collection::vec(1..5_i64, 1..8);
        let others = proptest::collection::vec((0..40_i64, any::<bool>()), 0..5);
        (parts, others, proptest::collection::vec(any::<bool>(), 8), 0..45_i64).prop_map(
            |(parts, others, gone, stop)| {
                let mut found = vec![full_at(1, 0)];
                let (mut at, mut id) = (0, 1);
                for (length, gone) in parts.iter().zip(gone) {
                    let next = log(id + 1, id, at, at + length);
                    (at, id) = (at + length, id + 1);
                    // Most are there.
                    if !gone || id % 3 != 0 {
                        found.push(next);
                    }
                }
                for (number, is_full) in others {
                    id += 1;
                    let number = number.min(at);
                    found.push(if is_full { full_at(id + 100, number) } else { differential_at(id + 100, 1, number) });
                }
                (found, stop)
            },
        )
    }

    /// The end of a sequence. Every set begins at the end of the one before it, or holds that place.
    fn walk(found: &[FoundSet], sets: &[usize]) -> (i64, i64) {
        let range = |at: usize| found[at].log_range.as_ref().unwrap();
        let mut rest = sets.iter().copied();
        let first = rest.next().unwrap();
        assert_eq!(found[first].kind, SetKind::Full);
        let mut place = range(first).at;
        let mut covered = place;
        for at in rest {
            match found[at].kind {
                SetKind::Differential => assert_eq!(found[at].base, Some(found[first].backup_set_id)),
                SetKind::Log => assert!(range(at).from <= place && place < range(at).at, "a gap or a set for nothing"),
                SetKind::Full => panic!("two fulls"),
            }
            (place, covered) = (range(at).at, covered.max(range(at).until));
        }
        (place, covered)
    }

    proptest! {
        #[test]
        fn what_is_chosen_has_no_gap_and_reaches_what_was_asked_for((found, stop_at) in world()) {
            let range = |set: &FoundSet| set.log_range.clone().unwrap();
            // By brute force: a time is reached if a full at or before it leads there through log sets without a gap.
            let logs = || found.iter().filter(|set| set.kind == SetKind::Log).map(range);
            let bases = |time: i64| found.iter().filter(move |set| set.kind != SetKind::Log && range(set).at <= time);
            let reached = |time: i64| bases(time).any(|base| {
                let mut at = range(base).at;
                while at < time {
                    let on = logs().find(|log| log.from <= at && at < log.at);
                    match on {
                        Some(log) => at = log.at,
                        None => return false,
                    }
                }
                true
            });
            match choose(&found, &stop(stop_at)) {
                Ok(sequence) => {
                    let (_, covered) = walk(&found, &sequence.sets);
                    prop_assert!(covered >= stop_at && reached(stop_at));
                    prop_assert!(range(&found[sequence.sets[0]]).at <= stop_at);
                }
                Err(error) => prop_assert!(!reached(stop_at), "{} {:?}", error, found),
            }
            if let Ok(sequence) = choose(&found, &Choice { latest: true, ..Choice::default() }) {
                walk(&found, &sequence.sets);
                let end = range(&found[*sequence.sets.last().unwrap()]).until;
                let later = found.iter().any(|set| set.kind == SetKind::Log && range(set).until > end);
                prop_assert!(!later, "a later commit was left out in silence");
            }
        }
    }
}
