//! Results that a calculation by hand gives too.

use super::what_if::{Change, rank};
use super::*;

const MIB: f64 = 1_048_576.0;

/// A path whose only limit is four processors, and one job on it.
fn open() -> (Path, Configuration) {
    let mut path = Path::unlimited(4.0);
    let half = CodecCost {
        name: "half".into(),
        pack: 1.0 / (100.0 * MIB),
        unpack: 1.0 / (400.0 * MIB),
        stored_share: 0.5,
        context_bytes: MIB,
    };
    path.codecs.push(half);
    let configuration = Configuration {
        direction: Direction::Backup,
        plain_bytes: 10_000.0 * MIB,
        extra: ExtraCost::default(),
        stripes: 1,
        database_streams: 1,
        queue_depth: 1,
        request_bytes: None,
        workers: 4,
        buffers: Buffers::Through(1024),
        transfer_bytes: MIB,
        codec: "none".into(),
        encrypted: false,
        throttle: None,
    };
    (path, configuration)
}

fn near(value: f64, wanted: f64) -> bool {
    (value / wanted - 1.0).abs() < 0.01
}

#[test]
fn one_stage_alone_gives_its_own_ceiling_and_its_name() {
    let (mut path, configuration) = open();
    path.database.read.total_rate = 200.0 * MIB;
    let foreseen = predict(&path, &configuration).unwrap();
    assert!(near(foreseen.seconds, 50.0), "{foreseen:?}");
    assert_eq!(foreseen.limit, Limit::Database);
    assert_eq!(foreseen.limit.stage(Direction::Backup), Some("source"));
}

#[test]
fn the_slowest_of_four_stages_is_the_limit_whichever_it_is() {
    let (mut path, mut configuration) = open();
    configuration.codec = "half".into();
    path.database.read.total_rate = 1000.0 * MIB;
    path.media.write.stream_rate = 600.0 * MIB;
    let limit = |path: &Path, configuration: &Configuration| predict(path, configuration).unwrap().limit;
    assert_eq!(limit(&path, &configuration), Limit::Transform, "4 workers of 100 MiB/s each");
    path.machine.cores = 64.0;
    configuration.workers = 64;
    assert_eq!(limit(&path, &configuration), Limit::Database);
    path.database.read.total_rate = f64::INFINITY;
    assert_eq!(limit(&path, &configuration), Limit::Stripes, "600 MiB/s of stored are 1,200 of plain bytes");
    configuration.stripes = 64;
    path.media.write.total_rate = 700.0 * MIB;
    assert_eq!(limit(&path, &configuration), Limit::Media);
}

#[test]
fn more_stripes_help_until_the_media_as_a_whole_are_the_limit() {
    let (mut path, mut configuration) = open();
    path.media.write = Ceiling { stream_rate: 100.0 * MIB, total_rate: 400.0 * MIB, ..Ceiling::NONE };
    for (stripes, rate) in [(1, 100.0), (2, 200.0), (8, 400.0), (16, 400.0)] {
        configuration.stripes = stripes;
        let foreseen = predict(&path, &configuration).unwrap();
        assert!(near(foreseen.rate, rate * MIB), "{stripes}: {}", foreseen.rate / MIB);
    }
}

#[test]
fn one_buffer_passes_all_stages_one_after_the_other() {
    let (mut path, mut configuration) = open();
    // The report whose author asked: reads at 200, writes at 120, a backup at 70 MB/s.
    path.database.read.total_rate = 200.0 * MIB;
    path.media.write.total_rate = 120.0 * MIB;
    configuration.buffers = Buffers::Through(1);
    let foreseen = predict(&path, &configuration).unwrap();
    assert!(near(foreseen.rate, 75.0 * MIB));
    assert_eq!(foreseen.limit, Limit::Pool);
}

#[test]
fn far_below_the_knee_the_rate_is_proportional_to_the_buffers() {
    let (mut path, mut configuration) = open();
    configuration.codec = "half".into();
    configuration.workers = 1000;
    path.machine.cores = 1000.0;
    path.database.read.total_rate = 100_000.0 * MIB;
    let rate = |buffers| {
        let configuration = Configuration { buffers: Buffers::Through(buffers), ..configuration.clone() };
        let foreseen = predict(&path, &configuration).unwrap();
        assert_eq!(foreseen.limit, Limit::Pool);
        foreseen.rate
    };
    for buffers in [2, 4, 8, 16] {
        assert!(near(rate(buffers), buffers as f64 * rate(1)), "{buffers}");
    }
}

#[test]
fn latency_is_hidden_by_a_deeper_queue_or_longer_transfers() {
    let (mut path, mut configuration) = open();
    path.media.write = Ceiling { stream_rate: 100.0 * MIB, latency: 0.01, ..Ceiling::NONE };
    let rate = |configuration: &Configuration| predict(&path, configuration).unwrap().rate / MIB;
    assert!(near(rate(&configuration), 50.0), "10 ms of transfer and 10 ms of latency");
    configuration.queue_depth = 2;
    assert!(near(rate(&configuration), 100.0));
    configuration.queue_depth = 1;
    configuration.transfer_bytes = 4.0 * MIB;
    assert!(near(rate(&configuration), 80.0));
}

#[test]
fn all_stages_share_one_processor_budget() {
    let (mut path, mut configuration) = open();
    configuration.codec = "half".into();
    path.database.read.processor = 1.0 / (100.0 * MIB);
    path.media.write.processor = 2.0 / (100.0 * MIB);
    let foreseen = predict(&path, &configuration).unwrap();
    // 10 ms to pack, 10 ms to read and 2 × 5 ms to write a MiB, on four processors.
    assert!(near(foreseen.rate, 4.0 / 0.03 * MIB), "{}", foreseen.rate / MIB);
    assert_eq!(foreseen.limit, Limit::Processor);
    assert!(near(foreseen.cpu_seconds, 300.0));
}

#[test]
fn small_buffers_cost_processors_more_because_each_is_handed_on() {
    let (mut path, mut configuration) = open();
    path.machine.hand_over = 50e-6;
    let cpu_seconds =
        |configuration: &Configuration| predict(&path, configuration).map(|foreseen| foreseen.cpu_seconds);
    let of_large = cpu_seconds(&configuration).unwrap();
    configuration.transfer_bytes /= 16.0;
    let of_small = cpu_seconds(&configuration).unwrap();
    let more = 15.0 * configuration.plain_bytes / MIB * 50e-6;
    assert!(near(of_small - of_large, more), "{of_small} and {of_large}");
}

#[test]
fn a_device_that_is_read_and_written_at_once_is_shared() {
    let (mut path, mut configuration) = open();
    path.database.read.total_rate = 200.0 * MIB;
    path.media.write.total_rate = 200.0 * MIB;
    for (simultaneous, codec, rate) in
        [(1.0, "none", 100.0), (2.0, "none", 200.0), (0.5, "none", 50.0), (1.0, "half", 133.3)]
    {
        path.simultaneous = Some(simultaneous);
        configuration.codec = codec.into();
        let foreseen = predict(&path, &configuration).unwrap();
        assert!(near(foreseen.rate, rate * MIB), "{simultaneous} {codec}: {}", foreseen.rate / MIB);
        assert_eq!(foreseen.limit, Limit::SharedDevice);
    }
}

#[test]
fn a_ceiling_falls_when_its_credit_ends() {
    let (mut path, mut configuration) = open();
    let burst = Burst { rate: 300.0 * MIB, credit: 2000.0 * MIB };
    path.database.read = Ceiling { burst: Some(burst), ..Ceiling::total(100.0 * MIB) };
    // 10 s at 300, which take 200 each second from the credit; 7,000 MiB are left for 100.
    let foreseen = predict(&path, &configuration).unwrap();
    assert!(near(foreseen.seconds, 80.0), "{foreseen:?}");
    assert_eq!(foreseen.phases.len(), 2);
    configuration.plain_bytes = 3000.0 * MIB;
    assert!(near(predict(&path, &configuration).unwrap().seconds, 10.0), "the credit is enough");
    configuration.plain_bytes = 10_000.0 * MIB;
    configuration.throttle = Some(100.0 * MIB);
    let slow = predict(&path, &configuration).unwrap();
    assert_eq!((slow.phases.len(), slow.limit), (1, Limit::Throttle), "unneeded credit is not used");
}

#[test]
fn bytes_written_besides_take_time_and_credit_first() {
    let (mut path, mut configuration) = open();
    configuration.direction = Direction::Restore;
    configuration.extra.bytes = 2000.0 * MIB;
    path.database.write.total_rate = 100.0 * MIB;
    assert!(near(predict(&path, &configuration).unwrap().seconds, 120.0));
    path.database.write.burst = Some(Burst { rate: 200.0 * MIB, credit: 1000.0 * MIB });
    // The 2,000 take 10 s and all of the credit.
    assert!(near(predict(&path, &configuration).unwrap().seconds, 110.0));
}

#[test]
fn fixed_costs_are_the_limit_of_a_small_job() {
    let (mut path, mut configuration) = open();
    path.database.read.total_rate = 100.0 * MIB;
    path.fixed = FixedCosts { backup: 1.0, restore: 3.0, commit: 0.5, ..FixedCosts::default() };
    configuration.stripes = 4;
    configuration.plain_bytes = 200.0 * MIB;
    let foreseen = predict(&path, &configuration).unwrap();
    assert!(near(foreseen.seconds, 5.0));
    assert_eq!(foreseen.limit, Limit::FixedCosts);
}

#[test]
fn a_restore_has_fixed_costs_of_its_own() {
    let (mut path, mut configuration) = open();
    path.database.write.total_rate = 100.0 * MIB;
    path.media.read.total_rate = 1000.0 * MIB;
    path.fixed = FixedCosts { backup: 1.0, restore: 3.0, ..FixedCosts::default() };
    configuration.direction = Direction::Restore;
    configuration.plain_bytes = 1000.0 * MIB;
    assert!(near(predict(&path, &configuration).unwrap().seconds, 13.0));
}

/// A store: one request at a time, of 8 MiB, moves 20 MiB/s, and a stream does 200.
fn store() -> (Path, Configuration) {
    let (mut path, mut configuration) = open();
    path.database.read.total_rate = 10_000.0 * MIB;
    let latency = 8.0 / 20.0 - 8.0 / 200.0;
    path.media.write = Ceiling { stream_rate: 200.0 * MIB, total_rate: 1000.0 * MIB, latency, ..Ceiling::NONE };
    configuration.request_bytes = Some(8.0 * MIB);
    configuration.queue_depth = 4;
    path.evenness = 1.0;
    (path, configuration)
}

#[test]
fn the_latency_of_a_store_is_that_of_a_part_and_not_of_a_buffer() {
    let (path, configuration) = store();
    let foreseen = predict(&path, &configuration).unwrap();
    assert!(near(foreseen.rate, 80.0 * MIB), "four at once: {foreseen:?}");
    let large = Configuration { request_bytes: Some(64.0 * MIB), ..configuration.clone() };
    assert!(predict(&path, &large).unwrap().rate > 1.5 * foreseen.rate, "fewer of them wait");
    // Four parts of 8 MiB are 32 buffers: with eight buffers, one part is in flight.
    let few = Configuration { buffers: Buffers::Through(8), ..configuration };
    let foreseen = predict(&path, &few).unwrap();
    assert!((15.0..22.0).contains(&(foreseen.rate / MIB)), "{foreseen:?}");
    assert_eq!(foreseen.limit, Limit::Pool);
}

#[test]
fn the_nearest_measured_request_outweighs_the_equations() {
    let (mut path, configuration) = store();
    let measured = |mib: f64, in_flight: f64, streams: f64, rate: f64| Measured {
        asking: Asking { bytes: mib * MIB, in_flight, streams },
        rate: rate * MIB,
    };
    path.requests.write =
        vec![measured(8.0, 4.0, 1.0, 50.0), measured(16.0, 4.0, 1.0, 110.0), measured(8.0, 1.0, 1.0, 20.0)];
    let rate = |mib: f64, queue_depth: u64, stripes: u64| {
        let asked = Configuration { request_bytes: Some(mib * MIB), queue_depth, stripes, ..configuration.clone() };
        predict(&path, &asked).unwrap().rate / MIB
    };
    assert!(near(rate(8.0, 4, 1), 50.0), "{}", rate(8.0, 4, 1));
    assert!(near(rate(16.0, 4, 1), 110.0), "{}", rate(16.0, 4, 1));
    assert!(near(rate(8.0, 4, 2), 100.0), "two of the same, by the equations: {}", rate(8.0, 4, 2));
    assert!(near(rate(8.0, 2, 1), 25.0), "as far below what was measured as four: {}", rate(8.0, 2, 1));
    let before = rate(8.0, 4, 1);
    let mut faster = path.clone();
    let streams = Parameter::Ceiling(Side::Media, Access::Write, CeilingPart::StreamRate);
    streams.scale(&mut faster, 1.2);
    let asked = Configuration { request_bytes: Some(8.0 * MIB), ..configuration.clone() };
    let scaled = predict(&faster, &asked).unwrap().rate / MIB;
    assert!((1.15..1.25).contains(&(scaled / before)), "its uncertainty is in the interval: {scaled} after {before}");
}

#[test]
fn files_take_time_besides_their_bytes() {
    let (mut path, mut configuration) = open();
    path.database.read.total_rate = 100.0 * MIB;
    path.database.write.total_rate = 100.0 * MIB;
    path.fixed = FixedCosts { read_file: 0.002, write_file: 0.01, ..FixedCosts::default() };
    configuration.plain_bytes = 1000.0 * MIB;
    configuration.extra = ExtraCost { files: 500.0, ..ExtraCost::default() };
    let seconds = |path: &Path, configuration: &Configuration| predict(path, configuration).unwrap().seconds;
    assert!(near(seconds(&path, &configuration), 10.0 + 1.0));
    let restore = Configuration { direction: Direction::Restore, ..configuration.clone() };
    assert!(near(seconds(&path, &restore), 10.0 + 5.0), "what was measured for each");
    path.database.read.latency = 0.02;
    let readers = |database_streams| seconds(&path, &Configuration { database_streams, ..configuration.clone() });
    assert!(
        near(readers(4), 10.0 + 500.0 * 0.02 / 4.0),
        "latency of a far device, which readers share: {}",
        readers(4)
    );
    assert!(near(readers(100), 11.0), "and then its short operations: {}", readers(100));
    configuration.extra.files = f64::NAN;
    assert!(predict(&path, &configuration).is_err());
}

#[test]
fn a_restore_reads_stored_bytes_and_unpacks() {
    let (mut path, mut configuration) = open();
    configuration.direction = Direction::Restore;
    configuration.codec = "half".into();
    path.media.read.total_rate = 100.0 * MIB;
    let foreseen = predict(&path, &configuration).unwrap();
    assert!(near(foreseen.rate, 200.0 * MIB));
    assert_eq!(foreseen.limit.stage(Direction::Restore), Some("media"));
    path.media.read = Ceiling::NONE;
    assert!(near(predict(&path, &configuration).unwrap().rate, 1600.0 * MIB));
}

#[test]
fn two_pools_are_no_faster_than_one_of_all_their_buffers() {
    let (mut path, mut configuration) = open();
    configuration.codec = "half".into();
    path.database.read.total_rate = 450.0 * MIB;
    path.media.write.stream_rate = 210.0 * MIB;
    let rate = |buffers| predict(&path, &Configuration { buffers, ..configuration.clone() }).unwrap().rate;
    let (split, through) = (rate(Buffers::Split { input: 10, output: 10 }), rate(Buffers::Through(20)));
    assert!(split < through && split > 0.7 * through, "{split} {through}");
    assert!(near(rate(Buffers::Split { input: 4000, output: 4000 }), 400.0 * MIB));
}

#[test]
fn even_service_reaches_the_roofline_at_the_knee() {
    let (mut path, mut configuration) = open();
    path.database.read.total_rate = 100.0 * MIB;
    path.media.write.total_rate = 100.0 * MIB;
    configuration.buffers = Buffers::Through(2);
    assert!(near(predict(&path, &configuration).unwrap().rate, 66.7 * MIB), "two of three, exponential");
    path.evenness = 1.0;
    assert!(near(predict(&path, &configuration).unwrap().rate, 100.0 * MIB));
}

#[test]
fn what_if_puts_the_fastest_first_and_breaks_ties_by_memory() {
    let (mut path, configuration) = open();
    path.media.write = Ceiling { stream_rate: 100.0 * MIB, ..Ceiling::NONE };
    let changes = [Change::Buffers(2.0), Change::Stripes(2), Change::Codec("half".into()), Change::Buffers(0.25)];
    let answers = rank(&path, &configuration, &changes).unwrap();
    let order: Vec<&Change> = answers.iter().map(|answer| &answer.change).collect();
    assert_eq!(order, [&changes[1], &changes[2], &changes[3], &changes[0]]);
    assert!(near(answers[1].speed, 2.0) && near(answers[1].stored, 0.5));
    assert!(near(answers[2].speed, 1.0) && near(answers[2].memory_bytes, -768.0 * MIB));
    assert!(what_if::usual(&path, &configuration).len() >= 8);
}

#[test]
fn an_interval_holds_the_prediction_and_grows_with_what_is_uncertain() {
    let (mut path, configuration) = open();
    path.database.read.total_rate = 200.0 * MIB;
    let uncertain = |deviation| {
        [Uncertain { parameter: Parameter::Ceiling(Side::Database, Access::Read, CeilingPart::TotalRate), deviation }]
    };
    let narrow = interval(&path, &configuration, &uncertain(0.1), 0.0).unwrap().seconds;
    // For a log-normal distribution, the P90 is at 1.2816 deviations.
    assert!(
        near(narrow.p50, 50.0)
            && near(narrow.p90, 50.0 * 0.12816_f64.exp())
            && near(narrow.p10, 50.0 * (-0.12816_f64).exp()),
        "{narrow:?}"
    );
    let wide = interval(&path, &configuration, &uncertain(0.1), 0.2).unwrap().seconds;
    assert!(wide.p10 < narrow.p10 && wide.p90 > narrow.p90);
    assert_eq!(
        interval(&path, &configuration, &uncertain(0.1), 0.2).unwrap().seconds,
        wide,
        "the same question, the same answer"
    );
}

#[test]
fn the_lower_of_two_uncertain_equal_ceilings_is_slower_than_each() {
    let (mut path, configuration) = open();
    path.evenness = 1.0;
    path.database.read.total_rate = 200.0 * MIB;
    path.media.write.total_rate = 200.0 * MIB;
    let total =
        |side, way| Uncertain { parameter: Parameter::Ceiling(side, way, CeilingPart::TotalRate), deviation: 0.2 };
    let both = [total(Side::Database, Access::Read), total(Side::Media, Access::Write)];
    assert!(interval(&path, &configuration, &both, 0.0).unwrap().seconds.p50 > 53.0);
}

/// Times of three configurations of a path with a known stream and total rate; one of them is ten times too long.
fn observed(path: &Path, configuration: &Configuration) -> Vec<f64> {
    let seconds = |stripes| predict(path, &Configuration { stripes, ..configuration.clone() }).unwrap().seconds;
    (1..=8).map(|stripes| seconds(stripes) * if stripes == 5 { 10.0 } else { 1.0 }).collect()
}

#[test]
fn a_fit_finds_what_made_the_observations_and_an_odd_one_does_not_mislead_it() {
    let (mut path, configuration) = open();
    path.media.write = Ceiling { stream_rate: 90.0 * MIB, total_rate: 300.0 * MIB, ..Ceiling::NONE };
    let times = observed(&path, &configuration);
    let free =
        [Free::new("stream", 20.0 * MIB), Free::new("total", 1000.0 * MIB), Free::new("not there", 7.0).within(0.3)];
    let model = |values: &[f64]| {
        let mut path = path.clone();
        path.media.write = Ceiling { stream_rate: values[0], total_rate: values[1], ..Ceiling::NONE };
        let seconds =
            |stripes| predict(&path, &Configuration { stripes, ..configuration.clone() }).ok().map(|done| done.seconds);
        (1..=8).map(seconds).collect()
    };
    let found = fit(&free, &times, model).unwrap();
    assert!(near(found.values[0], 90.0 * MIB) && near(found.values[1], 300.0 * MIB), "{found:?}");
    assert!(
        near(found.values[2], 7.0) && (found.deviations[2] - 0.3).abs() < 0.01,
        "no observation depends on it: it keeps its known value"
    );
    assert!(found.deviations[0] < 0.05 && found.spread < 0.05);
    assert_eq!(fit(&free, &times, model).unwrap(), found, "the same input, the same result");
}

#[test]
fn a_fit_keeps_its_bounds_and_refuses_what_is_no_observation() {
    let free = [Free::new("rate", 10.0).bounded(5.0, 20.0)];
    let model = |values: &[f64]| vec![Some(100.0 / values[0]); 3];
    let found = fit(&free, &[1.0, 1.0, 1.0], model).unwrap();
    assert!((found.values[0] - 20.0).abs() < 1e-9);
    assert_eq!(fit(&free, &[], |_| Vec::new()), None);
    assert_eq!(fit(&free, &[1.0, 0.0, 1.0], model), None);
}

#[test]
fn an_unpredictable_parameter_is_named() {
    let (mut path, configuration) = open();
    let why = |path: &Path, configuration: &Configuration| predict(path, configuration).unwrap_err().to_string();
    assert!(why(&path, &configuration).contains("no stage of it has a ceiling"));
    path.database.read.total_rate = 100.0;
    let unknown = Configuration { codec: "zstd:9".into(), ..configuration.clone() };
    assert_eq!(why(&path, &unknown), "codec zstd:9: its cost is not known; known are none, half");
    for plain_bytes in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(why(&path, &Configuration { plain_bytes, ..configuration.clone() }).starts_with("plain bytes"));
    }
    assert!(
        why(&path, &Configuration { buffers: Buffers::Split { input: 3, output: 0 }, ..configuration.clone() })
            .starts_with("buffers")
    );
    path.database.read.total_rate = 0.0;
    assert!(why(&path, &configuration).starts_with("ceiling of the database"));
    path.database.read.total_rate = 100.0;
    path.evenness = 1.5;
    assert!(why(&path, &configuration).starts_with("evenness"));
}

#[test]
fn a_device_that_does_less_of_a_write_heavy_mix_restores_compressed_media_more_slowly() {
    let (mut path, mut configuration) = open();
    let device = || Device { read: Ceiling::total(200.0 * MIB), write: Ceiling::total(200.0 * MIB) };
    (path.database, path.media) = (device(), device());
    (path.simultaneous, path.write_heavy) = (Some(1.0), 0.5);
    for (direction, codec, rate) in [
        (Direction::Backup, "none", 100.0),
        (Direction::Backup, "half", 133.3),
        (Direction::Restore, "none", 100.0),
        (Direction::Restore, "half", 66.7),
    ] {
        (configuration.direction, configuration.codec) = (direction, codec.into());
        let foreseen = predict(&path, &configuration).unwrap();
        assert!(near(foreseen.rate, rate * MIB), "{direction:?} {codec}: {}", foreseen.rate / MIB);
    }
}

#[test]
fn the_roofline_is_what_no_knob_changes_and_no_prediction_exceeds() {
    let (mut path, mut configuration) = open();
    configuration.codec = "half".into();
    assert!(roofline(&path, &Configuration { codec: "none".into(), ..configuration.clone() }).is_err(), "no ceiling");
    path.database.read = Ceiling { stream_rate: 50.0 * MIB, ..Ceiling::total(1000.0 * MIB) };
    path.media.write = Ceiling { stream_rate: 30.0 * MIB, ..Ceiling::total(150.0 * MIB) };
    configuration.throttle = Some(MIB);
    let highest = roofline(&path, &configuration).unwrap();
    assert_eq!(highest.limit, Limit::Media);
    assert!(near(highest.rate, 300.0 * MIB), "150 MiB/s of stored bytes: {highest:?}");
    path.simultaneous = Some(1.0);
    let shared = roofline(&path, &configuration).unwrap();
    assert_eq!(shared.limit, Limit::SharedDevice);
    assert!(near(shared.rate, MIB / (1.0 / 1000.0 + 1.0 / 300.0)), "{shared:?}");
    path.simultaneous = Some(1.9);
    assert_eq!(roofline(&path, &configuration).unwrap().limit, Limit::Media, "their shared limit slows neither side");
    path.machine.cores = 2.0;
    assert_eq!(roofline(&path, &configuration).unwrap().limit, Limit::Transform, "two of 100 MiB/s");
    configuration.throttle = None;
    for stripes in [1, 4, 64] {
        let asked = Configuration { stripes, database_streams: 64, ..configuration.clone() };
        let foreseen = predict(&path, &asked).unwrap();
        assert!(foreseen.rate <= roofline(&path, &asked).unwrap().rate * 1.0001, "{foreseen:?}");
    }
}

#[test]
fn a_restore_with_short_writes_syncs_all_its_bytes_at_the_end() {
    let (mut path, configuration) = open();
    path.media.read = Ceiling::total(200.0 * MIB);
    path.database.write = Ceiling { latency: 1.0, ..Ceiling::total(100.0 * MIB) };
    path.simultaneous = Some(1.0);
    path.least_direct_transfer = 2.0 * MIB;
    path.fixed.flush = 1.0 / (100.0 * MIB);
    let configuration = Configuration { direction: Direction::Restore, plain_bytes: 1000.0 * MIB, ..configuration };
    let short = predict(&path, &Configuration { transfer_bytes: MIB, ..configuration.clone() }).unwrap();
    assert!(near(short.seconds, 5.0 + 10.0), "{short:?}");
    assert_eq!(short.limit, Limit::Database);
    let long = predict(&path, &Configuration { transfer_bytes: 2.0 * MIB, ..configuration.clone() }).unwrap();
    assert!(long.seconds > 15.0, "its writes are among the reads: {long:?}");
    let backup = Configuration { direction: Direction::Backup, transfer_bytes: MIB, ..configuration };
    path.database.read = Ceiling::total(200.0 * MIB);
    assert_eq!(predict(&path, &backup).unwrap().fixed_seconds, 0.0);
}
