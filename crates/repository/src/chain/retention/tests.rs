//! Examples: a DBA's policy, and the sets that are kept and deleted.

use fullbore_core::media::SetKind;
use uuid::Uuid;

use super::{KeepOrDelete, KeepRules, KeptSet, Policy, RetentionPlan, plan};

const HOUR: i64 = 3_600_000_000;
const DAY: i64 = 24 * HOUR;
/// 2026-11-22T12:00:00Z, a Sunday.
const NOW: i64 = 1_795_348_800_000_000;

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number << 96)
}

/// A verified full, `days` before now.
fn full(number: u128, days: i64) -> KeptSet {
    let time = NOW - days * DAY;
    KeptSet {
        backup_set_id: id(number),
        kind: SetKind::Full,
        base: None,
        database: "sqlite /data/app.db".into(),
        copy_only: false,
        started_at: time - HOUR,
        finished_at: Some(time),
        bytes: 100,
        complete: true,
        unfinished: false,
        unknown: false,
        verified_at: Some(time + HOUR),
        failed_at: None,
        locked_until: None,
        leased_by: None,
        tombstoned: false,
    }
}

fn differential(number: u128, base: u128, days: i64) -> KeptSet {
    KeptSet { kind: SetKind::Differential, base: Some(id(base)), ..full(number, days) }
}

fn log(number: u128, base: u128, days: i64) -> KeptSet {
    KeptSet { kind: SetKind::Log, base: Some(id(base)), ..full(number, days) }
}

fn unverified(set: KeptSet) -> KeptSet {
    KeptSet { verified_at: None, ..set }
}

fn policy(toml: &str) -> Policy {
    toml::from_str::<KeepRules>(toml).unwrap().policy("[repository.nightly.keep]").unwrap()
}

fn planned(sets: &[KeptSet], rules: &str) -> RetentionPlan {
    plan(sets, &policy(rules), NOW)
}

/// The numbers of the sets to delete, in order.
fn deleted(sets: &[KeptSet], rules: &str) -> Vec<u128> {
    planned(sets, rules).delete.iter().map(|&at| sets[at].backup_set_id.as_u128() >> 96).collect()
}

fn reasons(plan: &RetentionPlan, at: usize) -> String {
    match &plan.decisions[at] {
        KeepOrDelete::Keep(reasons) => reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        KeepOrDelete::Delete => "deleted".into(),
    }
}

#[test]
fn prune_keeps_the_last_two_of_four_nightly_fulls() {
    let sets = [full(1, 4), full(2, 3), full(3, 2), full(4, 1)];
    let plan = planned(&sets, "last = 2");
    assert_eq!(deleted(&sets, "last = 2"), [1, 2]);
    assert_eq!(reasons(&plan, 2), "last 2 of 2");
    assert_eq!(reasons(&plan, 3), "last 1 of 2; the newest verified chain");
    assert_eq!((plan.bytes_freed, plan.databases[0].kept, plan.refusals().count()), (200, 2, 0));
}

#[test]
fn days_weeks_months_and_years_keep_the_newest_point_of_each() {
    let sets: Vec<KeptSet> = (0..400).map(|days| full(1 + days as u128, days)).collect();
    let plan = planned(&sets, "daily = 3\nweekly = 2\nmonthly = 2\nyearly = 2");
    let kept: Vec<(i64, String)> = (0..400)
        .filter(|&days| plan.decisions[days as usize] != KeepOrDelete::Delete)
        .map(|days| (days, reasons(&plan, days as usize)))
        .collect();
    let of = |days: i64| &kept.iter().find(|(at, _)| *at == days).unwrap().1;
    assert_eq!(kept.len(), 6, "{kept:?}");
    assert!(of(0).contains("daily 1 of 3 (2026-11-22)") && of(0).contains("weekly 1 of 2 (2026-W47)"), "{}", of(0));
    assert!(of(2).contains("daily 3 of 3 (2026-11-20)"), "{}", of(2));
    assert!(of(7).contains("weekly 2 of 2 (2026-W46)"), "{}", of(7));
    assert!(of(22).contains("monthly 2 of 2 (2026-10)"), "{}", of(22));
    assert!(of(326).contains("yearly 2 of 2 (2025)"), "{}", of(326));
}

#[test]
fn a_day_begins_where_the_time_zone_says() {
    // Half past eleven in the evening in UTC is the next day in Berlin.
    let late = |number, days: i64| KeptSet {
        finished_at: Some(NOW - days * DAY + 11 * HOUR + HOUR / 2),
        ..full(number, days)
    };
    let sets = [full(1, 2), late(2, 2), full(3, 1)];
    assert_eq!(deleted(&sets, "daily = 2"), [1]);
    let sets = [late(2, 2), full(3, 1)];
    assert!(deleted(&sets, "daily = 1").contains(&2));
    assert_eq!(reasons(&planned(&sets, "daily = 2"), 0), "daily 2 of 2 (2026-11-20)");
    let plan = planned(&sets, "daily = 2\ntime-zone = \"Europe/Berlin\"");
    assert_eq!(reasons(&plan, 0), "deleted", "in Berlin both are of one day");
}

#[test]
fn a_kept_differential_keeps_its_full_and_says_so() {
    let sets = [full(1, 9), differential(2, 1, 8), full(3, 2), differential(4, 1, 1)];
    let plan = planned(&sets, "last = 1");
    assert_eq!(deleted(&sets, "last = 1"), [2, 3]);
    assert_eq!(reasons(&plan, 0), format!("needed by differential {}", &id(4).to_string()[..13]));
}

#[test]
fn last_counts_backups_and_keeps_each_with_all_its_logs() {
    let mut sets = vec![full(1, 9), log(2, 1, 8), full(3, 5), log(4, 3, 4), log(5, 4, 3), differential(6, 3, 2)];
    assert_eq!(deleted(&sets, "last = 2"), [2, 1]);
    sets.push(log(7, 6, 1));
    assert_eq!(deleted(&sets, "last = 1"), [2, 1, 5, 4]);
}

#[test]
fn the_window_begins_with_the_last_full_before_it_and_keeps_everything_since() {
    let sets = [full(1, 30), log(2, 1, 29), full(3, 20), log(4, 3, 16), log(5, 4, 13), full(6, 10), log(7, 6, 1)];
    let plan = planned(&sets, "window = \"14d\"");
    assert_eq!(deleted(&sets, "window = \"14d\""), [2, 1]);
    assert!(reasons(&plan, 3).starts_with("within the recovery window of 14 days"), "{}", reasons(&plan, 3));
    assert!(plan.notes.is_empty());
}

#[test]
fn a_window_that_no_full_reaches_back_to_deletes_nothing_and_is_noted() {
    let sets = [full(1, 9), full(2, 1)];
    let plan = planned(&sets, "window = \"14d\"");
    assert!(plan.delete.is_empty() && plan.refusals().count() == 0);
    assert!(plan.notes[0].contains("not covered yet") && plan.notes[0].contains("2026-11-13"), "{:?}", plan.notes);
}

#[test]
fn without_a_verified_chain_nothing_goes_and_the_verdict_says_why() {
    let sets: Vec<KeptSet> = (1..=3).map(|at| unverified(full(at, 9 - at as i64))).collect();
    let plan = planned(&sets, "last = 1");
    assert!(plan.delete.is_empty());
    let refusal = plan.refusals().next().unwrap();
    assert!(
        refusal.contains("none of its chains is verified") && refusal.contains("2 sets can be removed"),
        "{refusal}"
    );
    assert_eq!(reasons(&plan, 0), "no chain of its database is verified");
}

#[test]
fn prune_keeps_sets_newer_than_the_newest_verified_chain() {
    let sets = [full(1, 9), full(2, 8), unverified(full(3, 7)), unverified(full(4, 6))];
    let plan = planned(&sets, "last = 1");
    assert_eq!(deleted(&sets, "last = 1"), [1]);
    assert_eq!(reasons(&plan, 1), "the newest verified chain");
    assert_eq!(reasons(&plan, 2), "its database has no newer verified chain");
    assert!(plan.unverified[0].contains("nothing newer is verified"), "{:?}", plan.unverified);
}

#[test]
fn a_chain_is_verified_only_when_each_of_its_sets_is() {
    let sets = [full(1, 9), unverified(full(2, 5)), differential(3, 2, 4)];
    let plan = planned(&sets, "last = 1");
    assert!(plan.delete.is_empty(), "the differential was verified, its full was not");
    assert_eq!(reasons(&plan, 0), "the newest verified chain");
}

#[test]
fn a_failed_verdict_that_is_newer_than_the_pass_takes_the_proof_away() {
    let failed = |at: i64| KeptSet { failed_at: Some(at), ..full(2, 1) };
    let sets = [full(1, 9), failed(NOW)];
    let plan = planned(&sets, "last = 1");
    assert!(plan.delete.is_empty());
    assert!(plan.warnings[0].starts_with("damaged by the newest verdict: full"), "{:?}", plan.warnings);
    let repaired = [full(1, 9), failed(NOW - 30 * DAY)];
    assert_eq!(deleted(&repaired, "last = 1"), [1]);
}

#[test]
fn a_set_that_misses_a_family_takes_no_place_but_does_not_go_before_its_time() {
    let sets = [full(1, 4), full(2, 3), KeptSet { complete: false, ..full(3, 2) }, full(4, 1)];
    let plan = planned(&sets, "last = 2");
    assert_eq!(deleted(&sets, "last = 2"), [1]);
    assert_eq!(reasons(&plan, 1), "last 2 of 2");
    assert_eq!(reasons(&plan, 2), "last 2 of 2, if its chain were complete");
    assert_eq!(deleted(&sets, "last = 1"), [1, 2, 3]);
}

#[test]
fn copy_only_fulls_have_places_of_their_own_and_prove_nothing_for_the_chain() {
    let copy = |number, days| KeptSet { copy_only: true, ..full(number, days) };
    let sets = [full(1, 9), full(2, 8), copy(3, 7), copy(4, 6)];
    let plan = planned(&sets, "last = 1");
    assert_eq!(deleted(&sets, "last = 1"), [1]);
    assert_eq!(reasons(&plan, 2), "its database has no newer verified chain");
    assert_eq!(reasons(&plan, 3), "copy-only, last 1 of 1");
}

#[test]
fn locked_leased_and_unfinished_sets_stay_with_what_they_need() {
    let held = |set: KeptSet, which: u8| match which {
        0 => KeptSet { locked_until: Some(NOW + DAY), ..set },
        1 => KeptSet { leased_by: Some("restore on db2".into()), ..set },
        2 => KeptSet { unfinished: true, complete: false, ..set },
        _ => KeptSet { unknown: true, database: "sqlite ".into(), ..set },
    };
    let whys = ["locked until 2026-11-23", "leased by restore on db2", "never committed", "is not known without a key"];
    for (which, why) in (0..).zip(whys) {
        let sets = [full(1, 9), held(differential(2, 1, 8), which), differential(3, 1, 7), full(4, 1)];
        let plan = planned(&sets, "last = 1");
        assert_eq!(deleted(&sets, "last = 1"), [3]);
        assert!(reasons(&plan, 1).contains(why), "{}", reasons(&plan, 1));
    }
    let expired = [KeptSet { locked_until: Some(NOW), ..full(1, 9) }, full(2, 1)];
    assert_eq!(deleted(&expired, "last = 1"), [1]);
}

#[test]
fn a_full_whose_lock_ends_before_that_of_its_differential_is_named() {
    let until = |days: i64, set: KeptSet| KeptSet { locked_until: Some(NOW + days * DAY), ..set };
    let named = |full: KeptSet, log: KeptSet| planned(&[full, differential(2, 1, 8), log], "last = 1").notes.join("\n");
    let text = named(until(3, full(1, 9)), until(4, log(3, 2, 7)));
    assert!(text.contains("shorter time") && text.contains(&id(1).to_string()[..13]), "{text}");
    assert!(text.contains(&id(2).to_string()[..13]), "the differential between them is not locked at all: {text}");
    assert_eq!(named(until(9, full(1, 9)), full(3, 7)), "");
    assert_eq!(named(full(1, 9), until(-1, log(3, 2, 7))), "", "an expired lock protects nothing");
}

#[test]
fn sets_marked_by_another_prune_prove_nothing() {
    let sets = [full(1, 9), full(2, 8), KeptSet { tombstoned: true, ..full(3, 1) }];
    assert_eq!(deleted(&sets, "last = 1"), [1], "the newest will be deleted, so the one before it must stay");
}

#[test]
fn the_minimum_of_verified_chains_counts_fulls_not_differentials() {
    let rules = "last = 1\nmin-verified-chains = 2";
    let sets = [full(1, 9), full(2, 5), differential(3, 2, 4), differential(4, 2, 3)];
    let plan = planned(&sets, rules);
    assert_eq!(deleted(&sets, rules), [3]);
    assert_eq!(reasons(&plan, 0), "verified chain 2 of 2");
    assert!(planned(&sets[1..], rules).refusals().next().unwrap().contains("1 of its chains verified, and 2"));
}

#[test]
fn one_database_never_speaks_for_another() {
    let other = |set: KeptSet| KeptSet { database: "sqlite /data/other.db".into(), ..set };
    let sets = [full(1, 9), full(2, 8), other(unverified(full(3, 7))), other(unverified(full(4, 6)))];
    let plan = planned(&sets, "last = 1");
    assert_eq!(deleted(&sets, "last = 1"), [1]);
    assert_eq!(plan.refusals().count(), 1);
    assert!(plan.refusals().next().unwrap().contains("other.db"));
}

#[test]
fn a_differential_is_later_than_its_full_whatever_the_clock_said() {
    let sets = [full(1, 9), full(2, 1), unverified(differential(3, 2, 5))];
    let plan = planned(&sets, "last = 1");
    assert_eq!(deleted(&sets, "last = 1"), [1]);
    assert_eq!(reasons(&plan, 2), "last 1 of 1");
}

#[test]
fn a_set_dated_in_the_future_pushes_nothing_out() {
    let sets = [full(1, 9), full(2, 8), full(3, -400)];
    let plan = planned(&sets, "last = 1");
    assert_eq!(deleted(&sets, "last = 1"), [1]);
    assert_eq!(reasons(&plan, 2), "dated in the future");
    assert!(plan.warnings[0].contains("dated in the future"));
}

#[test]
fn rings_orphans_and_ids_found_twice_end_and_are_named() {
    let sets = [
        log(1, 2, 9),
        log(2, 1, 8),
        log(3, 3, 8),
        log(4, 2, 7),
        differential(5, 77, 6),
        full(6, 5),
        KeptSet { bytes: 1, ..full(6, 4) },
        full(7, 1),
    ];
    let plan = planned(&sets, "last = 1");
    let text = plan.warnings.join("\n");
    for what in ["without their base: differential", "based on themselves: log", "found more than once"] {
        assert!(text.contains(what), "{text}");
    }
    assert_eq!(deleted(&sets, "last = 1").len(), 5, "two sets with the same id are both kept");
    assert_eq!(deleted(&sets, "last = 1")[0], 4, "a set is deleted before the ring that it is based on");
}

#[test]
fn deletion_goes_chain_by_chain_and_in_each_from_the_end() {
    let sets =
        [full(1, 9), differential(2, 1, 8), log(3, 2, 7), log(4, 3, 6), full(5, 5), differential(6, 5, 4), full(7, 1)];
    assert_eq!(deleted(&sets, "last = 1"), [4, 3, 2, 1, 6, 5]);
}

#[test]
fn a_policy_that_would_keep_nothing_is_refused() {
    for rules in ["", "last = 0", "min-verified-chains = 3", "window = \"0d\"", "daily = 0\nyearly = 0"] {
        let error = toml::from_str::<KeepRules>(rules).unwrap().policy("[repository.nightly.keep]").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("would keep nothing") && text.contains("[repository.nightly.keep]"), "{text}");
    }
}

#[test]
fn an_invalid_policy_is_refused_with_its_place() {
    let wrong = [
        ("last = 1\nmin-verified-chains = 0", "at least 1"),
        ("last = 100001", "`last` is more than"),
        ("window = \"14\"", "no unit"),
        ("window = \"40000d\"", "100 years"),
        ("last = 1\ntime-zone = \"Mars/Olympus\"", "Mars/Olympus"),
    ];
    for (rules, what) in wrong {
        let text = toml::from_str::<KeepRules>(rules).unwrap().policy("[repository.x.keep]").unwrap_err().to_string();
        assert!(text.contains(what) && text.contains("[repository.x.keep]"), "{text}");
    }
    assert!(toml::from_str::<KeepRules>("latest = 1").is_err(), "an unknown key");
    assert!(toml::from_str::<KeepRules>("last = -1").is_err());
}

#[test]
fn times_at_the_edge_of_the_numbers_are_no_panic() {
    for time in [i64::MIN, i64::MAX, 0, -1] {
        for now in [i64::MIN, i64::MAX, 0] {
            let edge = KeptSet { finished_at: Some(time), verified_at: Some(time), failed_at: Some(now), ..full(1, 0) };
            let rules = policy("last = 1\ndaily = 1\nweekly = 1\nmonthly = 1\nyearly = 1\nwindow = \"14d\"");
            assert_eq!(plan(&[edge, full(2, 0)], &rules, now).decisions.len(), 2);
        }
    }
    assert!(planned(&[], "last = 1").decisions.is_empty());
}

#[test]
fn a_chain_of_thirty_thousand_logs_needs_no_stack() {
    let mut sets = vec![full(1, 9)];
    sets.extend((2..30_000).map(|at| log(at, at - 1, 8)));
    sets.reverse();
    assert!(planned(&sets, "last = 1").delete.is_empty());
}

#[test]
fn log_sets_that_ended_while_a_full_ran_are_newer_than_that_until_another_was_begun() {
    // A full of yesterday with its log sets, and a full that began yesterday and ended today.
    let before = [full(1, 2), log(2, 1, 1)];
    let long = KeptSet { started_at: NOW - DAY - HOUR, verified_at: Some(NOW), ..full(3, 0) };
    let held = [&before[..], std::slice::from_ref(&long)].concat();
    assert_eq!(deleted(&held, "last = 1"), [0; 0], "only the log set has the commits after its beginning");
    let next = KeptSet { started_at: NOW + 1, finished_at: Some(NOW + 2), verified_at: Some(NOW + 3), ..full(4, 0) };
    let freed = [&before[..], &[long, next]].concat();
    assert_eq!(deleted(&freed, "last = 1"), [2, 1, 3]);
}

#[test]
fn a_plan_names_the_sets_that_its_deletions_count_upon() {
    let proof = |sets: &[KeptSet], rules: &str| -> Vec<u128> {
        planned(sets, rules).proof.iter().map(|&at| sets[at].backup_set_id.as_u128() >> 96).collect()
    };
    let sets = [full(1, 5), full(2, 4), differential(3, 2, 3), log(4, 3, 2), unverified(full(5, 1))];
    assert_eq!(deleted(&sets, "last = 1"), [1]);
    assert_eq!(proof(&sets, "last = 1"), [2, 3, 4], "the newest verified chain, down to its full");
    assert_eq!(proof(&sets, "last = 9"), [], "nothing goes");
    let other = KeptSet { database: "sqlite /data/other.db".into(), ..full(6, 1) };
    let sets = [full(1, 5), full(2, 4), full(3, 3), other];
    assert_eq!(proof(&sets, "last = 1\nmin-verified-chains = 2"), [2, 3], "no set of the other database is deleted");
}
