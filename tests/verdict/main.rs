//! The truth table of the verdict: jobs of the real pipeline whose stages are paced, so that the limit is known, over directions, stages,
//! stripes, codecs and buffers. A case counts where the limit allows at most 0.7 times the speed of the next one; of these at least 95 of
//! 100 must be right.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod copy;
mod job;
mod paced;

use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use fullbore_core::codec::Compression;
use fullbore_model::throughput::Direction;

use copy::{CopyCase, CopyMethod, Truth};
use job::{Answer, Buffers, Case, Limit, Store};

/// Right answers among those that count, percent.
const RIGHT: usize = 95;
/// Cases that count, at least.
const COUNTED: usize = 100;
/// Copies that count, at least.
const COPIES_COUNTED: usize = 50;
/// Cases at a time: they sleep most of their time.
const SIDE_BY_SIDE: usize = 3;
/// More cases at a time would wait for processors.
static ONE_TABLE: Mutex<()> = Mutex::new(());
/// How long the next stage takes for a byte, by the limit's own time. The last ones do not count.
const NEXT: [f64; 4] = [0.3, 0.5, 0.65, 0.85];

/// Every stage as the limit, and each of the two others as the next.
fn stages() -> Vec<Case> {
    let mut cases = Vec::new();
    for direction in [Direction::Backup, Direction::Restore] {
        for limit in 0..3 {
            for second in (0..3).filter(|second| *second != limit) {
                for stripes in [1, 4] {
                    for compression in ["none", "lz4", "zstd:1"] {
                        for buffers in [Buffers::Few, Buffers::Usual, Buffers::Many] {
                            let next = NEXT[cases.len() % NEXT.len()];
                            let mut shares = [0.3 * next; 3];
                            (shares[limit], shares[second]) = (1.0, next);
                            let case = Case::new(direction, stripes, compression, buffers, shares, Limit::Stage(limit));
                            cases.push(case);
                        }
                    }
                }
            }
        }
    }
    cases
}

/// Limits that are no stage: the throttle of a backup, one family of a restore, too few buffers.
fn others() -> Vec<Case> {
    let mut cases = Vec::new();
    for compression in ["none", "lz4", "zstd:1"] {
        for (at, stripes) in [1, 4].into_iter().enumerate() {
            for second in 0..3 {
                let mut shares = [0.2; 3];
                shares[second] = NEXT[at + 1];
                let throttled =
                    Case::new(Direction::Backup, stripes, compression, Buffers::Usual, shares, Limit::Throttle);
                cases.push(throttled);
            }
        }
        for family in 0..4 {
            let shares = [0.5, 0.3 + 0.1 * f64::from(family as u8), 0.2];
            cases.push(Case::new(Direction::Restore, 4, compression, Buffers::Usual, shares, Limit::Stripe(family)));
        }
    }
    // Four buffers for two readers, two workers and four writers: N/ΣH is 0.66 times what the slowest stage could do.
    for limit in 0..3 {
        let mut shares = [0.68; 3];
        shares[limit] = 1.0;
        cases.push(Case::new(Direction::Backup, 4, "none", Buffers::Least, shares, Limit::Pool));
    }
    cases
}

/// How often each case of a store is asked.
const STORES_ASKED: usize = 20;

/// Backups to an object in a store. Either the store is busy all the time with fewer parts than it may have, or it takes longer to complete the
/// object than to take its parts.
fn stores() -> Vec<Case> {
    let mut cases = Vec::new();
    for compression in ["none", "lz4"] {
        for (transform, in_flight) in [(0.3, 1.4), (0.5, 2.2), (0.65, 2.7)] {
            let shares = [0.1, transform, 1.0];
            let case = |buffers| Case::new(Direction::Backup, 1, compression, buffers, shares, Limit::Stage(2));
            let store = Store { in_flight, completing_s: 0.0 };
            cases.push(case(Buffers::Usual).in_store(store));
            cases.push(case(Buffers::Many).in_store(store));
        }
        let shares = [0.1, 0.5, 0.6];
        let late = Case::new(Direction::Backup, 1, compression, Buffers::Usual, shares, Limit::FixedCosts);
        cases.push(late.in_store(Store { in_flight: 1.4, completing_s: 1.0 }));
    }
    cases
}

/// Copies in every way, from families to families, with each of their stages as the limit.
fn copies() -> Vec<CopyCase> {
    let codec = |name: &str| name.parse::<Compression>().unwrap();
    let mut cases = Vec::new();
    let ways = |families: usize| {
        [
            CopyMethod::AsItIs,
            CopyMethod::Anew(families, Some(codec("zstd:1"))),
            CopyMethod::Anew(5 - families, None),
            CopyMethod::Anew(2, Some(codec("none"))),
        ]
    };
    for families in [1, 4] {
        for packed in [codec("none"), codec("lz4")] {
            for way in ways(families) {
                let next = NEXT[cases.len() % NEXT.len()];
                let mut case = |shares, truth| cases.push(CopyCase { families, packed, way, shares, truth });
                case([1.0, next], Truth::Stage(0));
                case([next, 1.0], Truth::Stage(2));
                case([0.3, 0.5], Truth::Throttle);
                if families > 1 {
                    case([0.5, 0.3], Truth::SlowSource(2));
                }
                if families > 1 && matches!(way, CopyMethod::AsItIs) {
                    case([0.3, 0.5], Truth::SlowTarget(1));
                }
            }
        }
        // Work that takes longer than the machine's own unrest.
        for (packed, way) in
            [("lz4", CopyMethod::Anew(families, Some(codec("zstd:15")))), ("gzip:1", CopyMethod::AsItIs)]
        {
            let packed = codec(packed);
            cases.push(CopyCase { families, packed, way, shares: [0.25, 0.25], truth: Truth::Stage(1) });
        }
    }
    cases
}

#[test]
fn the_verdict_names_the_true_limit_in_95_of_100_cases() {
    let cases: Vec<Case> = stages().into_iter().chain(others()).collect();
    let (right, counted) = asked(&cases, Case::run);
    assert!(counted >= COUNTED, "only {counted} cases count");
    assert!(100 * right >= RIGHT * counted, "{right} of {counted} are right");
}

#[test]
fn the_verdict_on_stores_is_right_in_95_of_100_cases_of_twenty_runs_each() {
    let cases: Vec<Case> = (0..STORES_ASKED).flat_map(|_| stores()).collect();
    let (right, counted) = asked(&cases, Case::run);
    assert_eq!(counted, cases.len(), "each of them counts");
    assert!(100 * right >= RIGHT * counted, "{right} of {counted} are right");
}

#[test]
fn the_verdict_names_the_true_limit_of_copies_in_95_of_100_cases() {
    let (right, counted) = asked(&copies(), CopyCase::run);
    assert!(counted >= COPIES_COUNTED, "only {counted} cases count");
    assert!(100 * right >= RIGHT * counted, "{right} of {counted} are right");
}

/// Asks all of them: how many answers are right, of how many that count.
fn asked<C: Debug + Sync>(cases: &[C], run: impl Fn(&C) -> Answer + Sync) -> (usize, usize) {
    let _alone = ONE_TABLE.lock();
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = run(case);
                    answers.lock().unwrap().push((case, answer));
                }
            });
        }
    });
    let answers = answers.into_inner().unwrap();
    let counted: Vec<_> = answers.iter().filter(|(_, answer)| answer.counts).collect();
    let wrong: Vec<_> = counted.iter().filter(|(_, answer)| !answer.right).collect();
    for (case, answer) in &wrong {
        println!("wrong: {case:?}: {}", answer.said);
    }
    let right = counted.len() - wrong.len();
    println!("{right} of {} right; {} cases did not count", counted.len(), answers.len() - counted.len());
    (right, counted.len())
}

#[test]
fn the_codecs_of_the_table_are_those_of_the_command_line() {
    for name in ["none", "lz4", "zstd:1"] {
        assert_eq!(name.parse::<Compression>().unwrap().to_string(), name);
    }
}
