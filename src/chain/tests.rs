//! Which sets are chosen, and what is refused.
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
        reach: None,
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
fn of_an_interrupted_replacement_the_new_set_is_meant() {
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
fn of_sets_that_do_not_tell_their_database_the_latest_is_not_chosen_either() {
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
