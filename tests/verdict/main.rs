//! The truth table of the verdict: jobs of the real pipeline whose stages are paced, so that the limit is known, over directions, stages,
//! stripes, codecs and buffers. A case counts where the limit allows at most 0.7 times the speed of the next one; of these at least 95 of
//! 100 must be right.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod job;
mod paced;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use fullbore::tune::model::Direction;
use fullbore_core::codec::Compression;

use job::{Buffers, Case, Limit};

/// Right answers among those that count, percent.
const RIGHT: usize = 95;
/// Cases that count, at least.
const COUNTED: usize = 100;
/// Cases at a time: they sleep most of their time.
const SIDE_BY_SIDE: usize = 3;
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

#[test]
fn the_verdict_names_the_true_limit_in_95_of_100_cases() {
    let cases: Vec<Case> = stages().into_iter().chain(others()).collect();
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = case.run();
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
    assert!(counted.len() >= COUNTED, "only {} cases count", counted.len());
    assert!(100 * right >= RIGHT * counted.len(), "{right} of {} are right", counted.len());
}

#[test]
fn the_codecs_of_the_table_are_those_of_the_command_line() {
    for name in ["none", "lz4", "zstd:1"] {
        assert_eq!(name.parse::<Compression>().unwrap().to_string(), name);
    }
}
