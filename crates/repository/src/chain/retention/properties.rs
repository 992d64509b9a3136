//! Random worlds that no honest repository has: rings, missing and foreign bases, ids given twice, impossible times.

use fullbore_core::media::SetKind;
use proptest::prelude::*;
use uuid::Uuid;

use super::oracle::Oracle;
use super::{KeepOrDelete, KeepRules, KeptSet, plan};

const DAY: i64 = 86_400_000_000;
const NOW: i64 = 1_763_800_000_000_000;

fn any_time() -> impl Strategy<Value = i64> {
    prop_oneof![
        20 => (0..40 * 24_i64).prop_map(|hours| NOW - hours * DAY / 24),
        1 => Just(NOW + DAY),
        1 => Just(i64::MIN / 4),
    ]
}

/// A set of a world of `count` sets. Its id is mostly unique. Its base is any set, or none.
fn any_set(at: u128, count: u128) -> impl Strategy<Value = KeptSet> {
    let id = prop_oneof![12 => Just(at), 1 => 0..count];
    let kind = prop_oneof![2 => Just(SetKind::Full), 2 => Just(SetKind::Differential), 3 => Just(SetKind::Log)];
    let base = prop_oneof![8 => (0..=at).prop_map(Some), 2 => (0..count + 2).prop_map(Some), 1 => Just(None)];
    let verdicts = prop_oneof![
        6 => Just((Some(NOW - 1), None)),
        2 => Just((None, None)),
        1 => Just((Some(NOW - 2), Some(NOW - 1))),
        1 => Just((Some(NOW - 1), Some(NOW - 2))),
        1 => Just((Some(NOW + DAY), None)),
    ];
    let rare = || prop::bool::weighted(0.08);
    let flags = (rare(), rare(), rare(), rare(), rare(), rare(), rare());
    (id, kind, base, prop::bool::weighted(0.15), any_time(), verdicts, flags).prop_map(
        |(id, kind, base, other, time, (verified_at, failed_at), flags)| KeptSet {
            backup_set_id: Uuid::from_u128(id),
            kind,
            base: base.map(Uuid::from_u128),
            database: if other { "other" } else { "db" }.into(),
            copy_only: flags.0,
            started_at: if flags.0 { time } else { time - DAY },
            finished_at: Some(time),
            bytes: u64::MAX / 2,
            complete: !flags.1,
            unfinished: flags.2,
            unknown: flags.6,
            verified_at,
            failed_at,
            locked_until: flags.3.then_some(NOW + 1),
            leased_by: flags.4.then(|| "a restore".into()),
            tombstoned: flags.5,
        },
    )
}

fn any_world() -> impl Strategy<Value = Vec<KeptSet>> {
    (1..20_u128).prop_flat_map(|count| (0..count).map(|at| any_set(at, count)).collect::<Vec<_>>())
}

fn any_rules() -> impl Strategy<Value = KeepRules> {
    let places = || prop::option::weighted(0.4, 1..4_u32);
    let window = prop::option::weighted(0.4, (1..800_u32).prop_map(|hours| format!("{hours}h")));
    let zone = prop_oneof![Just("UTC"), Just("Europe/Berlin"), Just("Pacific/Kiritimati")];
    (1..4_u32, places(), places(), places(), places(), window, 1..3_u32, zone).prop_map(
        |(last, daily, weekly, monthly, yearly, window, chains, zone)| KeepRules {
            last: Some(last),
            daily,
            weekly,
            monthly,
            yearly,
            window,
            min_verified_chains: Some(chains),
            time_zone: Some(zone.into()),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_world_keeps_the_two_sentences_under_any_policy(sets in any_world(), rules in any_rules()) {
        let policy = rules.policy("any").unwrap();
        let planned = plan(&sets, &policy, NOW);
        if let Err(why) = Oracle::new(&sets, NOW).check(&policy, &planned) {
            prop_assert!(false, "{why}\n{planned:#?}");
        }
        let freed = planned.delete.iter().fold(0_u64, |sum, &at| sum.saturating_add(sets[at].bytes));
        prop_assert_eq!(planned.bytes_freed, freed);
        let shown = planned.decisions.iter().all(|fate| match fate {
            KeepOrDelete::Keep(reasons) => reasons.iter().all(|reason| !reason.to_string().is_empty()),
            KeepOrDelete::Delete => true,
        });
        prop_assert!(shown);
    }

    #[test]
    fn the_order_of_the_sets_changes_nothing(sets in any_world(), rules in any_rules()) {
        let policy = rules.policy("any").unwrap();
        let backwards: Vec<KeptSet> = sets.iter().rev().cloned().collect();
        let (one, other) = (plan(&sets, &policy, NOW), plan(&backwards, &policy, NOW));
        let deleted = |sets: &[KeptSet], places: &[usize]| {
            let mut ids: Vec<Uuid> = places.iter().map(|&at| sets[at].backup_set_id).collect();
            ids.sort();
            ids
        };
        prop_assert_eq!(deleted(&sets, &one.delete), deleted(&backwards, &other.delete));
    }
}
