//! The exhaustive check: every small world of a grid, against `oracle.rs`. `FULLBORE_RETENTION_WORLD=7` takes the large
//! grid.

use fullbore_core::media::SetKind;
use uuid::Uuid;

use super::oracle::Oracle;
use super::{KeepRules, KeptSet, Policy, plan};

const HOUR: i64 = 3_600_000_000;
/// A Thursday: the sets of a world are on both sides of the end of a week, a month and a year.
const NOW: i64 = 1_735_776_000_000_000;
/// Hours before `NOW`, by the number of sets that are newer: several on one day, then further and further apart.
const AGES: [i64; 8] = [1, 5, 26, 30, 55, 79, 200, 900];

/// The base of a set.
#[derive(Clone, Copy)]
enum Base {
    Nothing,
    Set(usize),
    Missing,
}

/// Which sets are tried. Sets of a small world can have any state, sets of a large one only the states that matter for
/// chains.
#[derive(Clone, Copy)]
struct Grid {
    sets: usize,
    states: &'static [State],
    /// Logs follow any set, not only the last one of a chain, and bases may be missing.
    any_base: bool,
    /// How many sets may be in another state than the first one.
    deviations: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Verified,
    Plain,
    Damaged,
    Incomplete,
    Leased,
    Locked,
    Tombstoned,
    Unfinished,
    CopyOnly,
    Ahead,
    Behind,
}

use State::{Ahead, Behind, CopyOnly, Damaged, Incomplete, Leased, Locked, Plain, Tombstoned, Unfinished, Verified};

const ALL: &[State] =
    &[Verified, Plain, Damaged, Incomplete, Leased, Locked, Tombstoned, Unfinished, CopyOnly, Ahead, Behind];
const CHAIN: &[State] = &[Verified, Plain, Damaged, Incomplete];

const SMALL: &[Grid] = &[
    Grid { sets: 2, states: ALL, any_base: true, deviations: 2 },
    Grid { sets: 3, states: ALL, any_base: true, deviations: 2 },
    Grid { sets: 4, states: CHAIN, any_base: false, deviations: 2 },
    Grid { sets: 5, states: CHAIN, any_base: false, deviations: 1 },
];
const LARGE: &[Grid] = &[
    Grid { sets: 3, states: ALL, any_base: true, deviations: 3 },
    Grid { sets: 4, states: ALL, any_base: true, deviations: 2 },
    Grid { sets: 5, states: CHAIN, any_base: true, deviations: 3 },
    Grid { sets: 6, states: CHAIN, any_base: false, deviations: 3 },
    Grid { sets: 7, states: CHAIN, any_base: false, deviations: 2 },
];

fn policies() -> Vec<Policy> {
    let rules = KeepRules::default;
    let window = |text: &str| Some(text.to_owned());
    let grid = [
        KeepRules { last: Some(1), ..rules() },
        KeepRules { last: Some(2), ..rules() },
        KeepRules { daily: Some(2), ..rules() },
        KeepRules { weekly: Some(1), monthly: Some(2), ..rules() },
        KeepRules { yearly: Some(2), time_zone: Some("Asia/Tokyo".into()), ..rules() },
        KeepRules { window: window("28h"), ..rules() },
        KeepRules { window: window("3d"), last: Some(1), ..rules() },
        KeepRules { last: Some(1), min_verified_chains: Some(2), ..rules() },
        KeepRules { last: Some(3), daily: Some(1), window: window("4h"), min_verified_chains: Some(2), ..rules() },
    ];
    grid.iter().map(|rules| rules.policy("the grid").unwrap()).collect()
}

#[test]
fn every_small_world_keeps_the_two_sentences_under_every_policy_after_every_deletion() {
    let large = std::env::var("FULLBORE_RETENTION_WORLD").is_ok_and(|sets| sets == "7");
    let mut threads = Vec::new();
    for half in 0..2 {
        threads.push(std::thread::spawn(move || {
            let mut world = World { policies: policies(), half, tried: 0, plans: 0, deleted: 0 };
            for grid in if large { LARGE } else { SMALL } {
                world.shapes(*grid, &mut Vec::new());
            }
            (world.plans, world.deleted)
        }));
    }
    let counts: Vec<(u64, u64)> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let (plans, deleted) = counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    assert!(
        plans > 50_000 && deleted > plans / 10,
        "a check that looks at nothing: {plans} plans, {deleted} deletions"
    );
}

struct World {
    policies: Vec<Policy>,
    half: u64,
    tried: u64,
    plans: u64,
    deleted: u64,
}

impl World {
    /// Every way in which sets can depend on earlier sets.
    fn shapes(&mut self, grid: Grid, shape: &mut Vec<(SetKind, Base)>) {
        if shape.len() == grid.sets {
            self.tried += 1;
            if self.tried % 2 == self.half {
                self.states(grid, shape, &mut Vec::new());
            }
            return;
        }
        for (kind, base) in choices(shape, grid.any_base) {
            shape.push((kind, base));
            self.shapes(grid, shape);
            shape.pop();
        }
    }

    fn states(&mut self, grid: Grid, shape: &[(SetKind, Base)], states: &mut Vec<State>) {
        if states.len() == shape.len() {
            let sets = make(shape, states);
            let oracle = Oracle::new(&sets, NOW);
            for at in 0..self.policies.len() {
                self.check(&sets, &oracle, at);
            }
            return;
        }
        let deviating = states.iter().filter(|&&state| state != grid.states[0]).count();
        let allowed = if deviating < grid.deviations { grid.states } else { &grid.states[..1] };
        for &state in allowed {
            // Only fulls are tried as copy-only: other kinds add no case.
            if state != CopyOnly || shape[states.len()].0 == SetKind::Full {
                states.push(state);
                self.states(grid, shape, states);
                states.pop();
            }
        }
    }

    fn check(&mut self, sets: &[KeptSet], oracle: &Oracle, policy: usize) {
        let policy = &self.policies[policy];
        let first = plan(sets, policy, NOW);
        if let Err(why) = oracle.check(policy, &first) {
            panic!("{why}\npolicy {policy:?}\nplan {first:#?}\nsets {sets:#?}");
        }
        self.plans += 1;
        self.deleted += first.delete.len() as u64;
        // A run can be killed after any deletion. The next run plans exactly the remaining deletions of this one.
        for killed in 1..=first.delete.len() {
            let gone = &first.delete[..killed];
            let rest: Vec<KeptSet> =
                (0..sets.len()).filter(|at| !gone.contains(at)).map(|at| sets[at].clone()).collect();
            let next = plan(&rest, policy, NOW);
            let ids = |sets: &[KeptSet], places: &[usize]| -> Vec<Uuid> {
                places.iter().map(|&at| sets[at].backup_set_id).collect()
            };
            let (left, planned) = (ids(sets, &first.delete[killed..]), ids(&rest, &next.delete));
            assert_eq!(left, planned, "after {killed} deletions, {policy:?}\nsets {sets:#?}");
        }
    }
}

/// What the next set may be, given the earlier ones.
fn choices(shape: &[(SetKind, Base)], any_base: bool) -> Vec<(SetKind, Base)> {
    let mut choices = vec![(SetKind::Full, Base::Nothing)];
    let continued = |at: usize| {
        shape.iter().any(|(kind, base)| *kind == SetKind::Log && matches!(base, Base::Set(base) if *base == at))
    };
    for (at, (kind, _)) in shape.iter().enumerate() {
        if *kind == SetKind::Full {
            choices.push((SetKind::Differential, Base::Set(at)));
        }
        if any_base || !continued(at) {
            choices.push((SetKind::Log, Base::Set(at)));
        }
    }
    if any_base {
        choices.extend([(SetKind::Differential, Base::Missing), (SetKind::Log, Base::Missing)]);
    }
    choices
}

fn make(shape: &[(SetKind, Base)], states: &[State]) -> Vec<KeptSet> {
    let id = |at: usize| Uuid::from_u128((at as u128 + 1) << 96);
    let make_one = |(at, (kind, base)): (usize, &(SetKind, Base))| {
        let state = states[at];
        let time = match state {
            Ahead => NOW + HOUR,
            Behind => NOW - 2_000 * HOUR,
            _ => NOW - AGES[shape.len() - 1 - at] * HOUR,
        };
        let passed = (!matches!(state, Plain | Leased | Unfinished)).then_some(time + 1);
        KeptSet {
            backup_set_id: id(at),
            kind: *kind,
            base: match base {
                Base::Nothing => None,
                Base::Set(base) => Some(id(*base)),
                Base::Missing => Some(id(99)),
            },
            database: "db".into(),
            copy_only: state == CopyOnly,
            // Long enough for others to end meanwhile.
            started_at: time - 10 * HOUR,
            finished_at: Some(time),
            bytes: 1,
            complete: state != Incomplete && state != Unfinished,
            unfinished: state == Unfinished,
            unknown: false,
            verified_at: passed,
            failed_at: (state == Damaged).then_some(time + 2),
            locked_until: (state == Locked).then_some(NOW + 1),
            leased_by: (state == Leased).then(|| "a restore".into()),
            tombstoned: state == Tombstoned,
        }
    };
    shape.iter().enumerate().map(make_one).collect()
}
