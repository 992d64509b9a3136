//! From the plan of a job to the configuration that the throughput model predicts.

use fullbore_core::codec::Compression;
use fullbore_core::plan::{Plan, UnpackPlan};
use fullbore_core::supply::ranges;

use crate::throughput::{Buffers, Configuration, Direction, ExtraCost};

/// The amount of a job, besides its plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amount {
    /// Plain bytes that pass.
    pub plain_bytes: u64,
    /// Other work of the job.
    pub extra: ExtraCost,
}

impl Amount {
    /// This many plain bytes, and no other work.
    pub fn of(plain_bytes: u64) -> Self {
        Self { plain_bytes, extra: ExtraCost::default() }
    }
}

/// A backup by `plan`.
///
/// Without a codec, an input buffer goes to a device as it is: then only the input buffers are in flight, and the few
/// output buffers, for indexes and maps, are not counted. The memory of the pool is `plan.pool_bytes()` in any case.
pub fn of_backup(plan: &Plan, compression: Compression, encrypted: bool, amount: Amount) -> Configuration {
    let (input, output) = (plan.input_buffers as u64, plan.output_buffers as u64);
    Configuration {
        direction: Direction::Backup,
        plain_bytes: amount.plain_bytes as f64,
        extra: amount.extra,
        stripes: plan.stripes as u64,
        database_streams: plan.readers as u64,
        queue_depth: plan.queue_depth as u64,
        request_bytes: Some(plan.part_size as f64).filter(|bytes| *bytes > 0.0),
        workers: plan.workers as u64,
        buffers: if packs(compression) { Buffers::Split { input, output } } else { Buffers::Through(input) },
        transfer_bytes: f64::from(plan.transfer_size),
        codec: compression.to_string(),
        encrypted,
        throttle: plan.throttle.map(|rate| rate as f64),
    }
}

/// A restore of `families` by `plan`, of a set that was packed with `compression`.
///
/// Blocks that are neither packed nor encrypted go to the writers in their input buffer.
pub fn of_restore(
    plan: &UnpackPlan,
    families: u64,
    compression: Compression,
    encrypted: bool,
    amount: Amount,
) -> Configuration {
    let (input, output) = (plan.input_buffers as u64, plan.output_buffers as u64);
    Configuration {
        direction: Direction::Restore,
        plain_bytes: amount.plain_bytes as f64,
        extra: amount.extra,
        stripes: families,
        database_streams: plan.writers as u64,
        queue_depth: plan.queue_depth as u64,
        request_bytes: None,
        workers: plan.workers as u64,
        buffers: if packs(compression) || encrypted {
            Buffers::Split { input, output }
        } else {
            Buffers::Through(input)
        },
        transfer_bytes: f64::from(plan.transfer_size),
        codec: compression.to_string(),
        encrypted,
        throttle: None,
    }
}

/// The restore by `plan` from object stores: ranges of several buffers are in flight.
pub fn in_ranges(restore: Configuration, plan: &UnpackPlan) -> Configuration {
    let (buffers, in_flight) = ranges(plan.transfer_size as usize, plan.queue_depth);
    let request_bytes = Some(buffers as f64 * f64::from(plan.transfer_size));
    Configuration { queue_depth: in_flight as u64, request_bytes, ..restore }
}

fn packs(compression: Compression) -> bool {
    compression != Compression::None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fullbore_core::plan::Knobs;

    use super::*;

    #[test]
    fn the_pool_of_a_backup_is_split_where_a_codec_packs() {
        let knobs = Knobs { readers: Some(2), workers: Some(3), buffer_count: Some(40), ..Knobs::default() };
        let plan = Plan::backup(&knobs, 4, Compression::Lz4, false).unwrap();
        let made = of_backup(&plan, Compression::Lz4, true, Amount::of(1 << 30));
        assert_eq!((made.stripes, made.database_streams, made.workers), (4, 2, 3));
        assert_eq!(made.buffers.count(), 40);
        assert!(matches!(made.buffers, Buffers::Split { .. }));
        assert_eq!((made.codec.as_str(), made.encrypted, made.plain_bytes), ("lz4", true, f64::from(1 << 30)));
        let plan = Plan::backup(&knobs, 4, Compression::None, false).unwrap();
        let made = of_backup(&plan, Compression::None, false, Amount::of(1));
        assert_eq!(made.buffers, Buffers::Through(plan.input_buffers as u64));
    }

    #[test]
    fn a_job_of_a_store_has_its_parts_and_ranges_in_flight_and_one_of_files_its_buffers() {
        const MIB: u64 = 1 << 20;
        let knobs = Knobs::default();
        let backup = |part: u64| {
            let plan = Plan::backup_in_parts(&knobs, 1, Compression::Lz4, false, part).unwrap();
            of_backup(&plan, Compression::Lz4, false, Amount::of(1))
        };
        assert_eq!((backup(16 * MIB).request_bytes, backup(16 * MIB).queue_depth), (Some(16.0 * MIB as f64), 4));
        assert_eq!(backup(0).request_bytes, None);
        let restore = |families| {
            let plan = UnpackPlan::of_objects(&knobs, families, MIB as u32, 0).unwrap();
            let made = of_restore(&plan, families as u64, Compression::Lz4, false, Amount::of(1));
            assert_eq!(made.request_bytes, None);
            let made = in_ranges(made, &plan);
            (made.request_bytes.unwrap() as u64 / MIB, made.queue_depth)
        };
        assert_eq!([1, 4, 16].map(restore), [(8, 4), (8, 2), (2, 2)]);
    }

    #[test]
    fn the_codec_of_a_configuration_is_spelled_as_that_of_a_profile() {
        let compression: Compression = "zstd".parse().unwrap();
        let plan = UnpackPlan::new(&Knobs::default(), 2, 1 << 20, 0).unwrap();
        let extra = ExtraCost { bytes: 3.0, ..ExtraCost::default() };
        let made = of_restore(&plan, 2, compression, false, Amount { plain_bytes: 7, extra });
        assert_eq!((made.codec.as_str(), made.direction, made.extra), ("zstd:1", Direction::Restore, extra));
        assert_eq!(made.database_streams, plan.writers as u64);
    }
}
