//! Records, retention and restore agree on what a chain needs, whatever terms its engine has for positions in a log.

use fullbore_core::media::{LogRange, Position, SetKind};

use super::*;
use fullbore_repository::chain::log_terms::LogTerms;
use fullbore_repository::chain::{Choice, choose};
use fullbore_repository::format::{FORMAT, FamilyRecord, SetRecord};

const HOUR: i64 = 3_600_000_000;
/// 2026-11-22T12:00:00Z.
const NOW: i64 = 1_795_348_800_000_000;

/// When that commit was made: commit 20 an hour ago.
fn time(commit: u64) -> i64 {
    NOW - (21 - commit as i64) * HOUR
}

/// A verified set that ends at a commit, as its record has it. A log set begins at another one.
fn stored(terms: LogTerms, number: u128, kind: SetKind, base: Option<u128>, from: u64, to: u64) -> StoredSet {
    let (at, is_log) = (time(to), kind == SetKind::Log);
    let log = LogRange {
        first: is_log.then(|| terms.place(from)),
        last: Some(terms.place(to)),
        from: if is_log { time(from) } else { at },
        at,
        until: at,
        earliest: None,
        spans: if is_log { terms.spans(from, to) } else { Vec::new() },
    };
    let record = SetRecord {
        format: FORMAT,
        backup_set_id: Uuid::from_u128(number),
        media_set_id: Uuid::from_u128(100 + number),
        kind,
        base: base.map(Uuid::from_u128),
        copy_only: false,
        engine: "an engine of the tests".into(),
        database: "db1:5432".into(),
        name: String::new(),
        started_at: at,
        finished_at: at,
        host: "db1".into(),
        families: vec![FamilyRecord { place: 0, name: format!("{number}.bore"), bytes: 1 }],
        database_bytes: 1,
        encrypted: false,
        codec: "lz4".into(),
        stored_at: None,
        position: Position { log: Some(log), ..Position::default() },
        run: None,
    };
    let text = serde_json::to_string(&record).unwrap();
    let record: SetRecord = serde_json::from_str(&text).unwrap();
    StoredSet { verified_at: Some(at + 1), ..StoredSet::committed(record) }
}

/// Three fulls, each with log sets behind it. With fail-overs, the second full is on the second timeline, and the log
/// behind it is of three.
fn sets(terms: LogTerms) -> Vec<StoredSet> {
    vec![
        stored(terms, 1, SetKind::Full, None, 0, 2),
        stored(terms, 2, SetKind::Log, Some(1), 2, 9),
        stored(terms, 3, SetKind::Full, None, 0, 9),
        stored(terms, 4, SetKind::Log, Some(3), 9, 12),
        stored(terms, 5, SetKind::Log, Some(4), 12, 15),
        stored(terms, 6, SetKind::Full, None, 0, 15),
        stored(terms, 7, SetKind::Log, Some(6), 15, 20),
    ]
}

/// The numbers of the sets that stay.
fn kept(sets: &[StoredSet], rules: &str) -> Vec<StoredSet> {
    let policy = toml::from_str::<retention::KeepRules>(rules).unwrap().policy("rules").unwrap();
    let names = Names::of(sets);
    let mut seen: Vec<KeptSet> = sets.iter().map(|set| kept_set(set, &names, &[])).collect();
    found_on_newer_fulls(&mut seen, &sets.iter().collect::<Vec<_>>(), |_| true);
    let plan = retention::plan(&seen, &policy, NOW);
    let stays = |(at, _): &(usize, &StoredSet)| !plan.delete.contains(at);
    sets.iter().enumerate().filter(stays).map(|(_, set)| set.clone()).collect()
}

fn numbers(sets: &[StoredSet]) -> Vec<u128> {
    sets.iter().map(|set| set.record.backup_set_id.as_u128()).collect()
}

/// The numbers of the sets that a restore to the time of this commit takes.
fn restored(sets: &[StoredSet], commit: u64) -> Result<Vec<u128>> {
    let found: Vec<_> = sets.iter().map(StoredSet::found).collect();
    let chosen = choose(&found, &Choice { stop_at: Some(time(commit) - HOUR / 2), ..Choice::default() })?;
    Ok(chosen.sets.iter().map(|&at| found[at].backup_set_id.as_u128()).collect())
}

#[test]
fn every_time_since_the_oldest_kept_full_can_be_restored() {
    for terms in LogTerms::ALL {
        let all = sets(terms);
        for (rules, stays, first) in [("last = 1", &[6, 7][..], 16), ("last = 2", &[3, 4, 5, 6, 7], 10)] {
            let kept = kept(&all, rules);
            assert_eq!(numbers(&kept), stays, "{terms:?}");
            for commit in first..=20 {
                let chosen = restored(&kept, commit).unwrap_or_else(|error| panic!("{terms:?}, {commit}: {error}"));
                let expected: &[u128] = match commit {
                    ..=12 => &[3, 4],
                    13..=15 => &[3, 4, 5],
                    _ => &[6, 7],
                };
                assert_eq!(chosen, expected, "{terms:?}, {commit}");
            }
            assert!(restored(&kept, first - 1).is_err(), "{terms:?}: no kept set is so old");
        }
    }
}

#[test]
fn without_a_log_set_the_times_in_it_and_behind_it_are_refused() {
    for terms in LogTerms::ALL {
        let mut gap = sets(terms);
        gap.truncate(5);
        gap.remove(3);
        assert_eq!(restored(&gap, 9).unwrap(), [1, 2], "{terms:?}");
        for commit in [11, 14] {
            let refused = restored(&gap, commit).unwrap_err().to_string();
            assert!(refused.contains(&Uuid::from_u128(4).to_string()), "{terms:?}, {commit}: {refused}");
        }
    }
}

/// One row of log sets, past two more fulls, as a server's log has it.
fn one_row(terms: LogTerms) -> Vec<StoredSet> {
    vec![
        stored(terms, 1, SetKind::Full, None, 0, 2),
        stored(terms, 2, SetKind::Log, Some(1), 2, 7),
        stored(terms, 3, SetKind::Full, None, 0, 9),
        stored(terms, 4, SetKind::Log, Some(2), 7, 12),
        stored(terms, 5, SetKind::Log, Some(4), 12, 15),
        stored(terms, 6, SetKind::Full, None, 0, 16),
        stored(terms, 7, SetKind::Log, Some(5), 15, 20),
    ]
}

#[test]
fn one_row_of_log_sets_past_new_fulls_keeps_no_old_full_and_loses_no_time_behind_a_kept_one() {
    for terms in LogTerms::ALL {
        let all = one_row(terms);
        for commit in 3..=20 {
            let expected: &[u128] = match commit {
                ..=7 => &[1, 2],
                8 | 9 => &[1, 2, 4],
                10..=12 => &[3, 4],
                13..=15 => &[3, 4, 5],
                16 => &[3, 4, 5, 7],
                _ => &[6, 7],
            };
            assert_eq!(restored(&all, commit).unwrap(), expected, "{terms:?}, {commit}");
        }
        for (rules, stays, first) in [("last = 1", &[6, 7][..], 17), ("last = 2", &[3, 4, 5, 6, 7], 10)] {
            let kept = kept(&all, rules);
            assert_eq!(numbers(&kept), stays, "{terms:?}");
            for commit in first..=20 {
                let whole = restored(&all, commit).unwrap();
                assert_eq!(restored(&kept, commit).unwrap(), whole, "{terms:?}, {commit}");
            }
            assert!(restored(&kept, first - 1).is_err(), "{terms:?}: no kept full is so old");
        }
    }
}
