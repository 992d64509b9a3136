//! How long a retention plan of 100,000 sets takes: `cargo run --release --example retention_speed [SETS]`.

#![allow(clippy::print_stdout)] // It shows what it measured.

use std::time::Instant;

use fullbore_core::media::SetKind;
use fullbore_repository::chain::retention::{KeepRules, KeptSet, plan};
use uuid::Uuid;

const HOUR: i64 = 3_600_000_000;
const NOW: i64 = 1_795_348_800_000_000;

/// Ten databases: each day a full, three differentials and twenty logs on the newest of these.
fn sets(count: usize) -> Vec<KeptSet> {
    let id = |at: usize| Uuid::from_u128(at as u128 + 1);
    let make = |at: usize| {
        let (database, hour) = (at % 10, at / 10);
        let of_database = |hour: usize| id(hour * 10 + database);
        let (kind, base) = match hour % 24 {
            0 => (SetKind::Full, None),
            part @ (6 | 12 | 18) => (SetKind::Differential, Some(of_database(hour - part))),
            _ => (SetKind::Log, Some(of_database(hour - 1))),
        };
        let time = NOW - (count / 10 - hour) as i64 * HOUR;
        KeptSet {
            backup_set_id: id(at),
            kind,
            base,
            database: format!("mysql server-{database}"),
            copy_only: false,
            started_at: time - HOUR / 10,
            finished_at: Some(time),
            bytes: 1 << 30,
            complete: true,
            unfinished: false,
            unknown: false,
            verified_at: (hour % 3 != 1 || hour + 100 < count / 10).then_some(time + 1),
            failed_at: None,
            locked_until: None,
            leased_by: None,
            tombstoned: false,
        }
    };
    (0..count).map(make).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).map_or(Ok(100_000), |count| count.parse())?;
    let rules = KeepRules {
        last: Some(3),
        daily: Some(30),
        weekly: Some(12),
        monthly: Some(24),
        yearly: Some(5),
        window: Some("14d".into()),
        time_zone: Some("Europe/Berlin".into()),
        ..KeepRules::default()
    };
    let (policy, sets) = (rules.policy("the example")?, sets(count));
    for round in 1..=5 {
        let begin = Instant::now();
        let plan = plan(&sets, &policy, NOW);
        let seconds = begin.elapsed().as_secs_f64();
        let kept = count - plan.delete.len();
        println!("round {round}: {count} sets planned in {seconds:.3} s: {kept} kept, {} deleted", plan.delete.len());
    }
    Ok(())
}
