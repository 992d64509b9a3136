//! Properties of every verdict, for any accounts.

use fullbore_core::meter::Stage;
use proptest::prelude::*;

use super::tests::{MIB, evidence, known, setup, stage};
use super::*;
use crate::throughput::Buffers;

/// Uses of the stages, families, (queue depth, share in flight), (input, output buffers), (with a profile, without a
/// codec).
type Account = ([f64; 3], usize, (u64, f64), (u64, u64), (bool, bool));

fn accounts() -> impl Strategy<Value = Account> {
    (
        [0.01..1.0, 0.01..1.0, 0.01..1.0],
        1_usize..9,
        (1_u64..17, 0.1..1.0),
        (1_u64..200, 1_u64..200),
        (any::<bool>(), any::<bool>()),
    )
}

fn judged(account: &Account, direction: Direction) -> Verdict {
    let ([source, transform, sink], families, (queue_depth, filled), (input, output), (profiled, through)) = *account;
    let plain = 1000.0 * MIB;
    let names = match direction {
        Direction::Backup => ["source", "transform", "sink"],
        Direction::Restore => ["media", "transform", "target"],
    };
    let (first, last) = match direction {
        Direction::Backup => (2, families),
        Direction::Restore => (families, 4),
    };
    let stages: Vec<Stage> = vec![
        stage(names[0], plain, first, source),
        stage(names[1], plain, 2, transform),
        stage(names[2], plain / 2.0, last, sink),
    ];
    let known = known();
    let buffers = if through { Buffers::Through(input) } else { Buffers::Split { input, output } };
    let setup = Setup {
        queue_depth,
        in_flight: (queue_depth as f64 * filled).max(1.0),
        buffers,
        buffer_count: input + output,
        least_buffers: 4,
        ..setup()
    };
    let devices = (1..=families).map(|family| format!("mnt/{family}")).collect();
    let profile = profiled.then_some(&known);
    verdict(&Evidence { direction, devices, setup: Some(setup), profile, ..evidence(&stages) }).unwrap()
}

/// True if a line says that fewer buffers are enough.
fn spares_buffers(verdict: &Verdict) -> bool {
    verdict.what_if.iter().any(|one| one.change.starts_with("BUFFERCOUNT") && one.memory_bytes < 0.0)
}

proptest! {
    #[test]
    fn a_verdict_that_names_the_pool_never_says_that_fewer_buffers_are_as_fast(
        account in accounts(),
        restore in any::<bool>(),
    ) {
        let verdict = judged(&account, if restore { Direction::Restore } else { Direction::Backup });
        prop_assert!(verdict.limit != Limit::Pool || !spares_buffers(&verdict), "{verdict:?}");
    }

    #[test]
    fn a_stage_that_is_busy_all_the_time_wins_over_the_pool(account in accounts(), busiest in 0_usize..3) {
        let mut account = account;
        account.0[busiest] = 0.96;
        prop_assert!(judged(&account, Direction::Backup).limit != Limit::Pool);
    }
}
