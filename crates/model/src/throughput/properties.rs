//! Properties of every path and every configuration.

use proptest::prelude::*;

use super::*;

const MIB: f64 = 1_048_576.0;
/// The error of rounding.
const ROUNDING: f64 = 1.0 + 1e-9;
/// Several servers have no exact product form: the error was 0.5 %, in two of 300,000 cases.
const APPROXIMATION: f64 = 1.01;

fn rate() -> impl Strategy<Value = f64> {
    (0.0_f64..4.0).prop_map(|decades| 10f64.powf(decades) * MIB)
}

fn ceiling() -> impl Strategy<Value = Ceiling> {
    let burst = prop::option::of((1.0_f64..4.0, 0.0_f64..1e5));
    (rate(), rate(), 0.0_f64..0.05, burst).prop_map(|(stream_rate, total_rate, latency, burst)| Ceiling {
        stream_rate,
        total_rate,
        latency,
        processor: 0.1 / stream_rate,
        burst: burst.map(|(factor, credit)| Burst { rate: factor * total_rate, credit: credit * MIB }),
    })
}

fn path() -> impl Strategy<Value = Path> {
    let device = || (ceiling(), ceiling()).prop_map(|(read, write)| Device { read, write });
    let cost = || (0.0_f64..3.0).prop_map(|decades| 10f64.powf(-decades) / (10.0 * MIB));
    let codec = (cost(), cost(), 0.01_f64..1.0).prop_map(|(pack, unpack, stored_share)| CodecCost {
        name: "codec".into(),
        pack,
        unpack,
        stored_share,
        context_bytes: MIB,
    });
    (device(), device(), prop::option::of(0.1_f64..2.0), 0.5_f64..64.0, codec, 0.0_f64..1.0).prop_map(
        |(database, media, simultaneous, cores, codec, evenness)| Path {
            database,
            media,
            simultaneous,
            least_direct_transfer: 0.0,
            write_heavy: 1.0,
            machine: Machine { hand_over: codec.pack * MIB / 10.0, ..Machine::with_cores(cores) },
            codecs: vec![codec],
            requests: Requests::default(),
            fixed: FixedCosts { backup: 0.1, restore: 0.1, commit: 0.01, ..FixedCosts::default() },
            evenness,
        },
    )
}

fn configuration() -> impl Strategy<Value = Configuration> {
    let buffers = prop_oneof![
        (1_u64..200).prop_map(Buffers::Through),
        (1_u64..100, 1_u64..100).prop_map(|(input, output)| Buffers::Split { input, output })
    ];
    (any::<bool>(), 1.0_f64..1e6, buffers, 1_u64..16, 1_u64..16, 1_u64..16, 1_u64..8).prop_map(
        |(backup, mib, buffers, stripes, database_streams, workers, queue_depth)| Configuration {
            direction: if backup { Direction::Backup } else { Direction::Restore },
            plain_bytes: mib * MIB,
            extra: ExtraCost::default(),
            stripes,
            database_streams,
            queue_depth,
            request_bytes: None,
            workers,
            buffers,
            transfer_bytes: MIB,
            codec: "codec".into(),
            encrypted: false,
            throttle: None,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_station_is_busier_than_always_and_all_bytes_pass(path in path(), configuration in configuration()) {
        let foreseen = predict(&path, &configuration).unwrap();
        for stage in &foreseen.stages {
            prop_assert!(stage.utilisation <= ROUNDING, "{stage:?}");
        }
        let passed: f64 = foreseen.phases.iter().map(|phase| phase.seconds * phase.rate).sum();
        prop_assert!((passed / configuration.plain_bytes - 1.0).abs() < 1e-6);
        prop_assert!(foreseen.phases.len() <= 3);
        let share = path.codecs[0].stored_share;
        prop_assert!((foreseen.stored_bytes / configuration.plain_bytes - share).abs() < 1e-9);
        prop_assert!((foreseen.rate * foreseen.seconds / configuration.plain_bytes - 1.0).abs() < 1e-9);
    }

    #[test]
    fn phases_only_get_slower(path in path(), configuration in configuration()) {
        let phases = predict(&path, &configuration).unwrap().phases;
        prop_assert!(phases.windows(2).all(|pair| pair[1].rate <= pair[0].rate * ROUNDING));
    }

    #[test]
    fn nothing_better_makes_a_job_slower(path in path(), configuration in configuration(), what in 0..13) {
        // One more stripe is one more commit, which is not compared here.
        let path = Path { fixed: FixedCosts::default(), ..path };
        let (mut better, mut more) = (path.clone(), configuration.clone());
        match what {
            0 => better.database.read.total_rate *= 1.5,
            1 => better.database.write.stream_rate *= 1.5,
            2 => better.media.read.total_rate *= 1.5,
            3 => better.media.write.stream_rate *= 1.5,
            4 => better.media.write.latency /= 2.0,
            5 => better.machine.cores *= 2.0,
            6 => better.codecs[0].pack /= 2.0,
            7 => more.workers *= 2,
            8 => more.buffers = Buffers::Through(configuration.buffers.count() + 1),
            9 => more.stripes += 1,
            10 => more.database_streams += 1,
            11 => {
                let doubled = |burst: Burst| Burst { credit: burst.credit * 2.0, ..burst };
                better.media.write.burst = better.media.write.burst.map(doubled);
            }
            _ => more.queue_depth += 1,
        }
        let before = predict(&path, &configuration).unwrap().seconds;
        let after = predict(&better, &more).unwrap().seconds;
        prop_assert!(after <= before * APPROXIMATION, "{what}: {before} to {after}");
    }

    #[test]
    fn a_buffer_more_helps_by_no_more_than_its_share(
        path in path(),
        configuration in configuration(),
        count in 1_u64..300,
    ) {
        let path = Path { fixed: FixedCosts::default(), ..path };
        let with = |count| Configuration { buffers: Buffers::Through(count), ..configuration.clone() };
        let rate = |count| predict(&path, &with(count)).unwrap().phases[0].rate;
        let (one, more) = (rate(count), rate(count + 1));
        prop_assert!(more >= one / ROUNDING && more <= one * (count + 1) as f64 / count as f64 * ROUNDING);
    }
}
