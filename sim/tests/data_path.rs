//! What the data path promises whatever the seed: it never hangs, it spreads blocks by what devices take, and it ends with
//! the error that came first.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use fullbore_core::codec::Compression;
use fullbore_core::pipeline::BackupOutcome;
use fullbore_core::plan::{Knobs, Plan};
use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::testkit::{Fault, FaultPlan};
use fullbore_sim::damage::Damage;
use fullbore_sim::database::{Database, Simulated, SourceFault};
use fullbore_sim::read_back::Reading;
use fullbore_sim::scenario::{Buffers, Scenario};
use fullbore_sim::shelf::Media;
use fullbore_sim::watch;
use fullbore_sim::write_set::{SetWriter, Written};

fn scenario(families: u16, compression: &str) -> Scenario {
    Scenario {
        unit: 4096,
        units_at_once: 15,
        families,
        block_size: 4096,
        transfer_size: 64 << 10,
        threads: (3, 3, 4),
        buffers: Buffers::Least(0),
        compression: compression.parse().unwrap(),
        encrypted: false,
        unmapped: false,
        files: None,
        into_files: false,
        ..Scenario::calm(1, &mut fastrand::Rng::with_seed(1))
    }
}

fn database(bytes: u64) -> Database {
    Database::random(&mut fastrand::Rng::with_seed(3), 4096, &[bytes])
}

fn write(scenario: &Scenario, source: &Simulated<'_>, media: &Media, faults: &FaultPlan) -> anyhow::Result<Written> {
    let families = scenario.families;
    SetWriter { scenario, families, key: None, base: None, replaces: None, started_at: 1 }.write(source, media, faults)
}

fn write_failing(fault: SourceFault, unmapped: bool) -> String {
    let scenario = Scenario { unmapped, ..scenario(4, "lz4") };
    watch::run(move || {
        let (database, media) = (database(2 << 20), Media::memory());
        let source = Simulated::new(&database, Some(fault), scenario.units_at_once);
        let written = write(&scenario, &source, &media, &FaultPlan::new())?;
        assert_eq!(media.names(), [""; 0], "nothing is left");
        Ok(written.result.unwrap_err().to_string())
    })
    .unwrap()
}

#[test]
fn the_least_buffers_never_hang_with_64_stripes_in_either_direction() {
    for compression in ["none", "lz4"] {
        for threads in [(1, 1, 1), (4, 3, 4)] {
            let scenario = Scenario { threads, ..scenario(64, compression) };
            watch::run(move || {
                let (database, media) = (database(6 << 20), Media::memory());
                let source = Simulated::new(&database, None, scenario.units_at_once);
                let written = write(&scenario, &source, &media, &FaultPlan::new())?;
                written.result?;
                let reading = Reading {
                    scenario: &scenario,
                    media: &media,
                    families: 64,
                    damage: Damage::None,
                    key: None,
                    base: None,
                    directory: std::path::Path::new("unused"),
                };
                let restored = reading.all()?.sets.remove(0).restored?;
                assert!(restored == database.snapshot());
                Ok(())
            })
            .unwrap();
        }
    }
}

#[test]
fn the_least_number_of_buffers_is_named_and_enough_for_a_differential_too() {
    let knobs = Knobs { buffer_count: Some(5), readers: Some(2), workers: Some(2), ..Knobs::default() };
    let least = |differential| Plan::backup(&knobs, 64, Compression::None, differential).unwrap_err().to_string();
    assert!(least(false).contains("at least 72"), "{}", least(false));
    assert!(least(true).contains("at least 74"), "{}", least(true));
}

#[test]
fn a_slow_stripe_gets_fewer_blocks_than_fast_ones() {
    let scenario = Scenario { buffers: Buffers::Least(12), ..scenario(4, "none") };
    let outcome: BackupOutcome = watch::run(move || {
        let (database, media) = (database(6 << 20), Media::memory());
        let source = Simulated::new(&database, None, scenario.units_at_once);
        let slow = (0..40)
            .fold(FaultPlan::new(), |plan, operation| plan.with(1, Fault::Delay(operation, Duration::from_millis(25))));
        Ok(write(&scenario, &source, &media, &slow)?.result?)
    })
    .unwrap();
    let bytes: Vec<u64> = outcome.families.iter().map(|family| family.bytes).collect();
    let fast = [bytes[0], bytes[2], bytes[3]];
    assert!(fast.iter().all(|&fast| fast > 2 * bytes[1]), "{bytes:?}");
}

#[test]
fn a_source_that_fails_in_the_middle_ends_the_job_with_its_error() {
    let error = write_failing(SourceFault::ReadError(12), false);
    assert!(error.contains("cannot read `the simulated database`"), "{error}");
    let error = write_failing(SourceFault::CheckFails(5), false);
    assert!(error.contains("the server is gone"), "{error}");
}

#[test]
fn a_source_that_leaves_bytes_out_is_no_success() {
    for unmapped in [false, true] {
        let error = write_failing(SourceFault::Hole(3), unmapped);
        assert!(error.contains("did not give each byte"), "{error}");
    }
}

/// A source whose reader has a defect.
struct Panicking([Stream; 1]);

impl Source for Panicking {
    fn streams(&self) -> &[Stream] {
        &self.0
    }

    fn reader(&self, _: usize, _: usize) -> fullbore_core::Result<Box<dyn Reader + '_>> {
        Ok(Box::new(PanickingReader))
    }

    fn is_free(&self, _: u32, _: u64) -> bool {
        false
    }

    fn check(&self) -> fullbore_core::Result<()> {
        Ok(())
    }
}

struct PanickingReader;

impl Reader for PanickingReader {
    fn next(&mut self, _: &mut [u8]) -> fullbore_core::Result<Option<Extent>> {
        panic!("a defect of the engine");
    }
}

#[test]
fn a_panic_in_an_engine_ends_the_job_instead_of_hanging_it() {
    let error = watch::run(|| {
        let source = Panicking([Stream { id: 1, name: "a".into(), unit: 4096, size: 4096 }]);
        let scenario = scenario(2, "lz4");
        let writer =
            SetWriter { scenario: &scenario, families: 2, key: None, base: None, replaces: None, started_at: 1 };
        writer.write_source(&source, &|| Ok(()), &Media::memory(), &FaultPlan::new()).map(drop)
    });
    assert!(error.unwrap_err().to_string().contains("panicked"));
}
