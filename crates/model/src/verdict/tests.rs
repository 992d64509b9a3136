//! Accounts as jobs keep them, and the verdicts on them.

use std::time::Duration;

use fullbore_core::meter::{Account, Stage};

use super::*;
use crate::throughput::{Buffers, Ceiling, CodecCost, Headroom, Path};

pub(super) const MIB: f64 = 1_048_576.0;

/// A thread: seconds busy, starved, blocked.
fn thread(bytes: f64, busy: f64, starved: f64, blocked: f64) -> Account {
    let seconds = Duration::from_secs_f64;
    Account {
        bytes: bytes as u64,
        unread: 0,
        busy: seconds(busy),
        starved: seconds(starved),
        blocked: seconds(blocked),
    }
}

/// Threads with equal bytes. Each is busy for that share of ten seconds, and waits for the rest.
pub(super) fn stage(name: &'static str, bytes: f64, threads: usize, share: f64) -> Stage {
    let rest = 10.0 * (1.0 - share);
    let (starved, blocked) = if ["source", "media"].contains(&name) { (0.0, rest) } else { (rest, 0.0) };
    Stage::of(name, vec![thread(bytes / threads as f64, 10.0 * share, starved, blocked); threads])
}

pub(super) fn setup() -> Setup {
    Setup {
        codec: "lz4".into(),
        workers: 2,
        queue_depth: 4,
        in_flight: 1.0,
        buffers: Buffers::Split { input: 24, output: 24 },
        buffer_count: 48,
        least_buffers: 10,
        transfer_bytes: 1 << 20,
        operation_bytes: 1 << 20,
        codec_bytes: 2 << 20,
        encrypted: false,
        copying: None,
    }
}

/// 1,000 MiB in ten seconds to four families of half as much, with these uses.
fn stages(source: f64, transform: f64, sink: f64) -> Vec<Stage> {
    let plain = 1000.0 * MIB;
    vec![
        stage("source", plain, 2, source),
        stage("transform", plain, 2, transform),
        stage("sink", plain / 2.0, 4, sink),
    ]
}

pub(super) fn evidence(stages: &[Stage]) -> Evidence<'_> {
    Evidence {
        direction: Direction::Backup,
        read_from: None,
        stages,
        devices: (1..=4).map(|family| format!("mnt/{family}")).collect(),
        moving_s: 10.0,
        elapsed_s: 10.5,
        processor_s: 18.0,
        processors: 8.0,
        plain_bytes: 1000.0 * MIB,
        throttle: None,
        setup: Some(setup()),
        measured_limit: None,
        raw_media: None,
        data_share: 1.0,
        one_device: false,
        costs: &[],
        profile: None,
    }
}

pub(super) fn said(what_if: &[WhatIf]) -> Vec<String> {
    what_if.iter().map(WhatIf::line).collect()
}

#[test]
fn the_stage_that_is_used_most_is_the_limit_and_the_next_one_is_named() {
    let stages = stages(0.2, 0.97, 0.5);
    let verdict = verdict(&evidence(&stages)).unwrap();
    assert_eq!((verdict.name, verdict.limit), ("transform", Limit::Stage(1)));
    let why = "busy most of its time (source 20 %, transform 97 %, sink 50 %); next sink, at 2.0 times this speed";
    assert_eq!(verdict.why, why);
    assert!((verdict.uses[2].ceiling / MIB - 200.0).abs() < 0.1, "in plain bytes, not in packed ones");
}

#[test]
fn more_workers_help_where_there_are_processors_for_them_and_not_beyond_the_next_stage() {
    let stages = stages(0.2, 0.97, 0.5);
    let many = verdict(&evidence(&stages)).unwrap();
    let workers = many.what_if.iter().find(|one| one.change == "workers 2 → 4").unwrap();
    assert!((1.5..2.0).contains(&workers.speed), "{workers:?}");
    let two = verdict(&Evidence { processors: 2.0, ..evidence(&stages) }).unwrap();
    assert!(two.what_if.iter().all(|one| !one.change.starts_with("workers")), "{:?}", two.what_if);
}

#[test]
fn buffers_that_nobody_needs_are_memory_for_nothing() {
    let stages = stages(0.2, 0.97, 0.2);
    let verdict = verdict(&evidence(&stages)).unwrap();
    let lines = said(&verdict.what_if);
    assert!(lines.contains(&"BUFFERCOUNT 48 → 12: same speed, 36.0 MiB less".to_owned()), "{lines:?}");
    let least = Setup { least_buffers: 40, ..setup() };
    let verdict = super::verdict(&Evidence { setup: Some(least), ..evidence(&stages) }).unwrap();
    assert!(verdict.what_if.iter().all(|one| one.memory_bytes >= 0.0), "no advice below the plan's minimum");
}

#[test]
fn a_job_that_seldom_moves_bytes_is_held_up_by_its_fixed_costs() {
    let stages = stages(0.2, 0.97, 0.5);
    let verdict = verdict(&Evidence { elapsed_s: 25.0, ..evidence(&stages) }).unwrap();
    assert_eq!(verdict.name, "fixed costs");
    assert!(verdict.why.starts_with("15.000 of 25.000 s"), "{}", verdict.why);
    assert!((verdict.fixed_share - 0.6).abs() < 1e-9);
}

#[test]
fn fixed_costs_are_named_the_longest_first_and_small_ones_are_not() {
    let stages = stages(0.2, 0.97, 0.5);
    let cost = |text: &str, seconds| Cost { text: text.into(), seconds };
    let costs = [
        cost("opening 1 family 0.002 s", 0.002),
        cost("start check 4.0 s", 4.0),
        cost("the store took 9.6 s to complete 1 object", 9.6),
    ];
    let why = verdict(&Evidence { elapsed_s: 25.0, costs: &costs, ..evidence(&stages) }).unwrap().why;
    let named = "the store took 9.6 s to complete 1 object; start check 4.0 s; 15.000 of 25.000 s before the first";
    assert!(why.starts_with(named), "{why}");
}

#[test]
fn a_throttle_that_is_used_up_is_the_limit_and_what_it_costs_is_said() {
    let stages = stages(0.4, 0.5, 0.3);
    let verdict = verdict(&Evidence { throttle: Some(101.0 * MIB), ..evidence(&stages) }).unwrap();
    assert_eq!(verdict.name, "throttle");
    assert!(verdict.why.starts_with("--throttle 101.0 MiB/s, used to 99 %"), "{}", verdict.why);
    let without = verdict.what_if.iter().find(|one| one.change == "without --throttle").unwrap();
    assert!((1.6..2.0).contains(&without.speed), "{without:?}");
}

#[test]
fn full_processors_are_the_limit_where_the_workers_are_busy() {
    let stages = stages(0.4, 0.97, 0.3);
    let full = Evidence { processors: 2.0, processor_s: 20.0, ..evidence(&stages) };
    assert_eq!(verdict(&full).unwrap().name, "processor");
    let disk = self::stages(0.4, 0.6, 0.99);
    let full = Evidence { processors: 2.0, processor_s: 19.5, ..evidence(&disk) };
    assert_eq!(verdict(&full).unwrap().name, "sink", "a device that is used more than the processors stays the limit");
}

#[test]
fn workers_that_waited_for_a_processor_are_told_of() {
    let stages = stages(0.2, 0.97, 0.5);
    let verdict = verdict(&Evidence { processors: 8.0, processor_s: 9.7, ..evidence(&stages) }).unwrap();
    assert!(verdict.why.contains("the workers had a processor for at most 50 % of that"), "{}", verdict.why);
    assert!(verdict.what_if.iter().all(|one| !one.change.starts_with("workers")), "more would wait as well");
}

#[test]
fn one_slow_family_is_named_by_its_device() {
    let plain = 1000.0 * MIB;
    let mut media = stage("media", plain / 2.0, 4, 0.2);
    media.threads[2] = thread(plain / 8.0, 9.6, 0.0, 0.4);
    let stages = [media, stage("transform", plain, 2, 0.3), stage("target", plain, 4, 0.25)];
    let restore = Evidence { direction: Direction::Restore, ..evidence(&stages) };
    let verdict = super::verdict(&restore).unwrap();
    assert_eq!((verdict.name, verdict.device.as_deref()), ("one stripe", Some("mnt/3")));
    assert!(verdict.why.starts_with("`mnt/3` busy 96 % of the time, the other families 20 %"), "{}", verdict.why);
    let several_sets = Evidence { devices: Vec::new(), setup: None, ..restore };
    assert_eq!(super::verdict(&several_sets).unwrap().name, "media", "for several sets no device is named");
}

#[test]
fn a_reader_that_ended_early_is_no_limit() {
    let plain = 1000.0 * MIB;
    let source = Stage::of("source", vec![thread(plain, 1.0, 0.0, 0.0)]);
    let stages = [source, stage("transform", plain, 2, 0.8), stage("sink", plain, 1, 0.3)];
    assert_eq!(fullbore_core::meter::bottleneck(&stages).unwrap().stage, "source", "by the share of its own time");
    assert_eq!(verdict(&evidence(&stages)).unwrap().name, "transform");
}

#[test]
fn a_device_with_room_for_more_in_flight_waits_for_buffers() {
    let stages = stages(0.2, 0.3, 0.75);
    let with = |in_flight, output| {
        let buffers = Buffers::Split { input: 24, output };
        let setup = Setup { queue_depth: 8, in_flight, buffers, buffer_count: 24 + output, ..setup() };
        verdict(&Evidence { setup: Some(setup), ..evidence(&stages) }).unwrap().name
    };
    assert_eq!(with(3.0, 12), "pool");
    assert_eq!(with(7.8, 200), "sink");
    assert_eq!(with(1.0, 200), "sink", "a pipe takes one at a time");
}

#[test]
fn no_stage_is_blamed_if_none_was_busy() {
    let stages = stages(0.3, 0.4, 0.35);
    let verdict = verdict(&evidence(&stages)).unwrap();
    assert_eq!(verdict.name, "none");
    assert!(verdict.why.ends_with("(source 30 %, transform 40 %, sink 35 %, processors 21 %)"), "{}", verdict.why);
}

#[test]
fn fewer_buffers_than_the_stages_could_hold_are_the_limit() {
    let stages = stages(0.4, 0.4, 0.65);
    // Two readers, two workers and four writers: each holds one buffer while it works.
    let with = |buffers| {
        let (all, pool) = (buffers + 8, Buffers::Through(buffers));
        let setup = Setup { codec: "none".into(), buffers: pool, buffer_count: all, ..setup() };
        verdict(&Evidence { setup: Some(setup), ..evidence(&stages) }).unwrap()
    };
    let few = with(4);
    assert_eq!(few.name, "pool");
    assert!(said(&few.what_if)[0].starts_with("BUFFERCOUNT 12 → 24: 1."), "{:?}", said(&few.what_if));
    assert_eq!(with(40).name, "sink");
}

/// Accounts of a backup to one object in a store, whose readers wait.
fn to_a_store(sink: f64) -> Vec<Stage> {
    let bytes = 1000.0 * MIB;
    vec![stage("source", bytes, 2, 0.09), stage("transform", bytes, 2, 0.87), stage("sink", bytes / 2.0, 1, sink)]
}

/// `in_flight` of four possible parts were in flight; there are 95 buffers.
fn one_object(stages: &[Stage], in_flight: f64) -> Evidence<'_> {
    let buffers = Buffers::Split { input: 60, output: 35 };
    let setup = Setup { in_flight, buffers, buffer_count: 95, operation_bytes: 8 << 20, ..setup() };
    Evidence { setup: Some(setup), devices: vec!["s3://b/r1/1.bore".into()], ..evidence(stages) }
}

#[test]
fn a_store_that_is_busy_all_the_time_is_the_limit_and_not_the_pool() {
    for (sink, in_flight) in [(0.97, 2.2), (1.0, 1.4), (0.96, 2.7), (0.92, 1.4)] {
        let stages = to_a_store(sink);
        let verdict = verdict(&one_object(&stages, in_flight)).unwrap();
        assert_eq!(verdict.name, "sink", "{sink} {in_flight}");
        let more = |line: &String| line.starts_with("BUFFERCOUNT") && line.ends_with("more");
        assert!(!said(&verdict.what_if).iter().any(more), "{:?}", verdict.what_if);
    }
}

#[test]
fn the_pool_is_not_the_limit_if_fewer_buffers_are_as_fast() {
    // The store has fewer parts in flight than it may, but the processors are nearly full, and there are many buffers.
    let mut stages = to_a_store(0.75);
    stages[1] = stage("transform", 1000.0 * MIB, 2, 0.6);
    let waits = one_object(&stages, 1.4);
    let buffers = Buffers::Split { input: 400, output: 400 };
    let setup = Setup { buffers, buffer_count: 800, ..waits.setup.clone().unwrap() };
    let full = Evidence { setup: Some(setup), processors: 2.0, processor_s: 18.0, ..waits };
    let verdict = verdict(&full).unwrap();
    let lines = said(&verdict.what_if);
    assert!(has(&lines, "BUFFERCOUNT 800 → ", "less"), "{lines:?}");
    assert_eq!(verdict.name, "sink");
}

#[test]
fn a_job_that_moved_nothing_has_no_verdict() {
    let stages = stages(0.0, 0.0, 0.0);
    assert_eq!(verdict(&Evidence { plain_bytes: 0.0, ..evidence(&stages) }), None);
    assert_eq!(verdict(&Evidence { stages: &stages[..1], ..evidence(&stages) }), None);
}

#[test]
fn the_speed_is_compared_with_a_limit_that_was_measured() {
    let stages = stages(0.2, 0.97, 0.5);
    let verdict = verdict(&Evidence { measured_limit: Some(100.0 * MIB), ..evidence(&stages) }).unwrap();
    assert!((verdict.of_limit.unwrap() - 1.0 / 1.05).abs() < 1e-6, "all of the job's time counts");
}

/// One family of 50 MB/s, with the plan's queue in flight: one operation of 64 KiB.
fn shallow(stages: &[Stage]) -> Evidence<'_> {
    let setup = Setup {
        codec: "none".into(),
        queue_depth: 1,
        transfer_bytes: 64 << 10,
        operation_bytes: 64 << 10,
        buffers: Buffers::Through(9),
        buffer_count: 13,
        least_buffers: 9,
        ..setup()
    };
    let raw_media = Some(RawMedia { rate: 90.0 * MIB, queue_depth: 8, transfer_bytes: 1 << 20 });
    Evidence { setup: Some(setup), raw_media, devices: vec!["mnt/1".into()], ..evidence(stages) }
}

/// 500 MiB to one family in ten seconds.
fn one_family(sink: f64) -> Vec<Stage> {
    let bytes = 500.0 * MIB;
    vec![stage("source", bytes, 2, 0.1), stage("transform", bytes, 2, 0.02), stage("sink", bytes, 1, sink)]
}

#[test]
fn devices_that_could_do_more_with_more_in_flight_are_named_with_the_flags_that_were_measured() {
    let stages = one_family(0.99);
    let verdict = verdict(&shallow(&stages)).unwrap();
    assert_eq!((verdict.name, verdict.limit), ("shallow queue", Limit::Queue));
    let numbers = "50.0 MiB/s, 1 in flight of 64.0 KiB each; the raw path of this run gave 90.0 MiB/s \
                   with 8 in flight of 1.0 MiB each";
    assert!(verdict.why.contains(numbers), "{}", verdict.why);
    let lines = said(&verdict.what_if);
    assert_eq!(lines, ["--queue-depth 8 --max-transfer-size 1MiB --buffer-count 19 → 1.80×, 18.2 MiB more"]);
}

#[test]
fn a_device_that_does_what_its_raw_path_does_is_the_limit_itself_and_a_queue_that_is_not_full_is_no_queue() {
    let stages = one_family(0.99);
    let shallow = shallow(&stages);
    let with = |raw: Option<RawMedia>, setup: Option<Setup>| {
        let setup = setup.or_else(|| shallow.setup.clone());
        verdict(&Evidence { raw_media: raw, setup, ..shallow.clone() }).unwrap().name
    };
    let raw = shallow.raw_media;
    assert_eq!(with(None, None), "sink", "the raw path was not measured");
    assert_eq!(with(raw.map(|raw| RawMedia { rate: 55.0 * MIB, ..raw }), None), "sink");
    let same = |raw: RawMedia| RawMedia { queue_depth: 1, transfer_bytes: 64 << 10, ..raw };
    assert_eq!(with(raw.map(same), None), "sink", "the same queue: something else slowed it down");
    let deep = |in_flight| shallow.setup.clone().map(|setup| Setup { queue_depth: 8, in_flight, ..setup });
    let mut unblocked = stages.clone();
    unblocked[0].account.blocked = Duration::ZERO;
    let slow_source = Evidence { setup: deep(2.0), stages: &unblocked, ..shallow.clone() };
    assert_ne!(verdict(&slow_source).unwrap().name, "shallow queue", "no reader waited for a buffer");
    let few = Evidence { setup: deep(2.0), ..shallow.clone() };
    let few = verdict(&few).unwrap();
    assert_eq!(few.name, "shallow queue", "a device that is busy all the time wins over the pool");
    assert!(few.why.contains("50.0 MiB/s, 2 in flight of 64.0 KiB each; the raw path"), "{}", few.why);
    assert!(said(&few.what_if)[0].starts_with("--max-transfer-size 1MiB --buffer-count 19 → 1.80×"), "{few:?}");
    assert_eq!(with(raw, deep(7.5)), "shallow queue", "its transfers are shorter");
    let throttled = Evidence { throttle: Some(60.0 * MIB), ..shallow.clone() };
    assert_ne!(verdict(&throttled).unwrap().name, "shallow queue");
}

/// A profile: the database does 400 MiB/s, the media 90 MiB/s together, and there are three codecs.
pub(super) fn known() -> CalibratedLimits {
    let mut path = Path::unlimited(8.0);
    path.database.read = Ceiling { stream_rate: 300.0 * MIB, ..Ceiling::total(400.0 * MIB) };
    path.media.write = Ceiling { stream_rate: 40.0 * MIB, latency: 1.0 / 40.0, ..Ceiling::total(90.0 * MIB) };
    let codec = |name: &str, mib_per_s: f64, stored_share| CodecCost {
        name: name.into(),
        pack: 1.0 / (mib_per_s * MIB),
        unpack: 0.0,
        stored_share,
        context_bytes: MIB,
    };
    path.codecs = vec![codec("lz4", 60.0, 0.5), codec("zstd:1", 55.0, 0.3), codec("zstd:9", 5.0, 0.25)];
    let directories = (1..=4).map(|family| format!("mnt/{family}")).collect();
    let database = Headroom { devices: 1, streams: 1.5, noise: 1.05 };
    let media = Headroom { devices: 4, streams: 2.0, noise: 1.05 };
    CalibratedLimits {
        profile: "night".into(),
        path,
        whole: true,
        database,
        media,
        directories,
        elsewhere: Vec::new(),
        doubts: Vec::new(),
    }
}

fn lines_of(evidence: &Evidence<'_>) -> Vec<String> {
    said(&verdict(evidence).unwrap().what_if)
}

pub(super) fn has(lines: &[String], start: &str, end: &str) -> bool {
    lines.iter().any(|line| line.starts_with(start) && line.ends_with(end))
}

#[test]
fn without_a_profile_nothing_is_said_of_what_the_job_has_not_seen() {
    let stages = stages(0.2, 0.5, 0.99);
    let lines = lines_of(&evidence(&stages));
    assert!(lines.iter().all(|line| !line.contains("stripe") && !line.contains("zstd")), "{lines:?}");
    assert_eq!(verdict(&evidence(&stages)).unwrap().calibrated, None);
    let known = known();
    let lines = lines_of(&Evidence { profile: Some(&known), ..evidence(&stages) });
    assert!(has(&lines, "+4 stripes on the same devices → 1.", "×"), "{lines:?}");
    assert!(has(&lines, "zstd:1 instead of lz4 → 1.", "×, 40 % smaller"), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("zstd:9")), "much slower: {lines:?}");
}

#[test]
fn stripes_go_to_the_directory_by_its_name_where_there_is_one() {
    let stages = stages(0.2, 0.5, 0.99);
    let one = Headroom { devices: 1, ..known().media };
    let mut known =
        CalibratedLimits { directories: vec!["mnt/a".into()], media: Headroom { streams: 8.0, ..one }, ..known() };
    let lines = lines_of(&Evidence { profile: Some(&known), ..evidence(&stages) });
    assert!(has(&lines, "+4 stripes on mnt/a → 1.", "×"), "{lines:?}");
    // Four streams are the most that such a device can do: only another device helps.
    known.media.streams = 4.0;
    let write = Ceiling { stream_rate: 70.0 * MIB, ..Ceiling::total(70.0 * MIB) };
    known.elsewhere = vec![Elsewhere { directory: "/mnt/c".into(), write }];
    let lines = lines_of(&Evidence { profile: Some(&known), ..evidence(&stages) });
    assert!(lines.iter().all(|line| !line.contains("mnt/a")), "{lines:?}");
    assert!(has(&lines, "+1 stripe on /mnt/c → 1.", "×"), "two would be no faster: {lines:?}");
    let shared = Evidence { one_device: true, profile: Some(&known), ..evidence(&stages) };
    assert!(lines_of(&shared).iter().all(|line| line.contains("mnt/c") == line.contains("mnt")), "{lines:?}");
}

#[test]
fn a_gain_within_the_scatter_of_a_profile_is_no_advice() {
    let stages = stages(0.2, 0.5, 0.99);
    let lucky = Headroom { devices: 1, streams: 5.0, noise: 5.1 };
    let known = CalibratedLimits { media: lucky, ..known() };
    let lines = lines_of(&Evidence { profile: Some(&known), ..evidence(&stages) });
    assert!(lines.iter().all(|line| !line.contains("stripe")), "{lines:?}");
}

#[test]
fn more_in_flight_is_an_advice_where_the_queue_was_full_and_the_profile_says_that_it_helps() {
    let stages = stages(0.2, 0.3, 0.99);
    let known = CalibratedLimits { directories: vec!["mnt/a".into()], ..known() };
    let with = |in_flight| {
        let setup = Setup { queue_depth: 1, in_flight, ..setup() };
        lines_of(&Evidence { setup: Some(setup), profile: Some(&known), ..evidence(&stages) })
    };
    // The latency of a MiB equals its transfer time: two in flight are twice as fast, and four are not faster than two.
    let lines = with(1.0);
    assert!(has(&lines, "queue depth 1 → 2: 1.", "4.0 MiB more"), "{lines:?}");
    // With parts of 8 MiB that latency is small. Eight times the latency equals the transfer time again. One more part
    // in flight needs eight buffers.
    let in_parts = |latency: f64| {
        let mut store = known.clone();
        store.path.media.write.latency *= latency;
        let setup = Setup { queue_depth: 1, operation_bytes: 8 << 20, ..setup() };
        lines_of(&Evidence { setup: Some(setup), profile: Some(&store), ..evidence(&stages) })
    };
    assert!(!has(&in_parts(1.0), "queue depth 1 → 2: 1.5", ""), "{:?}", in_parts(1.0));
    assert!(has(&in_parts(8.0), "queue depth 1 → 2: 1.", "32.0 MiB more"), "{:?}", in_parts(8.0));
    let mut flat = known.clone();
    flat.path.media.write.latency = 0.0;
    let setup = Setup { queue_depth: 1, ..setup() };
    let lines = lines_of(&Evidence { setup: Some(setup), profile: Some(&flat), ..evidence(&stages) });
    assert!(lines.iter().all(|line| !line.contains("queue depth")), "{lines:?}");
}

#[test]
fn a_codec_that_is_slower_but_much_smaller_is_worth_a_line_and_a_slow_one_is_not() {
    let stages = stages(0.2, 0.97, 0.3);
    let known = known();
    let lines = lines_of(&Evidence { profile: Some(&known), ..evidence(&stages) });
    assert!(has(&lines, "zstd:1 instead of lz4 → 0.9", "×, 40 % smaller"), "{lines:?}");
}

#[test]
fn the_calibrated_limit_is_what_no_configuration_exceeds() {
    let stages = stages(0.2, 0.5, 0.99);
    let known = known();
    let with_profile = Evidence { profile: Some(&known), ..evidence(&stages) };
    let limit = verdict(&with_profile).unwrap().calibrated.unwrap();
    assert_eq!((limit.name, limit.profile.as_str()), ("media together", "night"));
    assert!((limit.rate / MIB - 180.0).abs() < 0.1, "90 MiB/s of stored bytes are 180 of plain ones: {limit:?}");
    assert!((limit.share - 1000.0 / 10.5 / 180.0).abs() < 1e-6, "all of the job's time counts: {limit:?}");
    // A place that was never measured could be the slower one.
    let part = CalibratedLimits { whole: false, ..known.clone() };
    assert_eq!(verdict(&Evidence { profile: Some(&part), ..evidence(&stages) }).unwrap().calibrated, None);
    let other = Setup { codec: "gzip:6".into(), ..setup() };
    let unknown = Evidence { setup: Some(other), ..with_profile.clone() };
    assert_eq!(verdict(&unknown).unwrap().calibrated, None, "that codec was not measured");
    // In a differential, the codec sees few bytes.
    let few = CalibratedLimits {
        path: Path { machine: crate::throughput::Machine::with_cores(1.0), ..known.path.clone() },
        ..known.clone()
    };
    let limit = |data_share| {
        let evidence = Evidence { data_share, profile: Some(&few), ..with_profile.clone() };
        verdict(&evidence).unwrap().calibrated.unwrap()
    };
    assert_eq!((limit(1.0).name, limit(0.01).name), ("transform", "media together"));
}

#[test]
fn a_verification_has_no_database_to_wait_for() {
    let plain = 1000.0 * MIB;
    let stages = [stage("media", plain / 2.0, 4, 0.9), stage("transform", plain, 2, 0.5), stage("target", 0.0, 4, 0.0)];
    let mut known = known();
    (known.path.media.read, known.path.simultaneous) = (Ceiling::total(100.0 * MIB), Some(0.5));
    let read = Evidence { direction: Direction::Restore, profile: Some(&known), ..evidence(&stages) };
    let limit = verdict(&read).unwrap().calibrated.unwrap();
    assert_eq!(limit.name, "media together");
    assert!((limit.rate / MIB - 200.0).abs() < 0.1, "{limit:?}");
}

#[test]
fn one_device_for_database_and_media_is_said_and_counted() {
    let stages = stages(0.6, 0.3, 0.99);
    let shared = Evidence { one_device: true, ..evidence(&stages) };
    let verdict = verdict(&shared).unwrap();
    assert!(verdict.one_device && verdict.why.ends_with("; database and media share one device"), "{}", verdict.why);
    let computing = super::tests::stages(0.6, 0.97, 0.5);
    let why = super::verdict(&Evidence { one_device: true, ..evidence(&computing) }).unwrap().why;
    assert!(!why.contains("share"), "the device was not the limit: {why}");
    // To read a MiB takes 1/400 s, and to store half of it takes half of 1/90 s, one after the other.
    let mut known = known();
    known.path.simultaneous = Some(1.0);
    let limit = super::verdict(&Evidence { profile: Some(&known), ..shared }).unwrap().calibrated.unwrap();
    assert_eq!(limit.name, "shared device");
    assert!((limit.rate / MIB - 1.0 / (1.0 / 400.0 + 0.5 / 90.0)).abs() < 0.1, "{limit:?}");
}

#[test]
fn a_profile_that_contradicts_the_job_adds_nothing_and_takes_nothing_away() {
    let stages = stages(0.2, 0.97, 0.2);
    let mut known = known();
    // One device for both can do half of the job's speed: the page cache was faster than the device.
    (known.path.media.write.total_rate, known.path.simultaneous) = (25.0 * MIB, Some(1.0));
    let with = Evidence { one_device: true, profile: Some(&known), ..evidence(&stages) };
    assert_eq!(lines_of(&with), lines_of(&Evidence { profile: None, ..with.clone() }));
}

#[test]
fn accounts_that_the_model_cannot_explain_answer_nothing() {
    // All stages idle, and yet slow: no account has the cause.
    let stages = stages(0.01, 0.02, 0.01);
    let setup = Setup { buffers: Buffers::Split { input: 500, output: 500 }, ..setup() };
    assert_eq!(verdict(&Evidence { setup: Some(setup), ..evidence(&stages) }).unwrap().what_if, []);
}

#[test]
fn the_limit_of_an_interval_is_that_of_what_was_booked_in_it() {
    let look = |source: f64, transform: f64, waited: f64| {
        [
            ("source", thread(0.0, source, 0.0, waited)),
            ("transform", thread(0.0, transform, waited, 0.0)),
            ("sink", Account::default()),
        ]
    };
    let said = interval(&look(5.0, 1.0, 1.0), &look(5.1, 1.9, 1.5));
    assert_eq!(said.limit, Some("transform"), "although the source was busier before");
    assert_eq!(said.stages[2], ("sink", None));
    assert_eq!(interval(&look(5.0, 1.0, 1.0), &look(5.1, 1.1, 9.0)).limit, None, "no stage was busy");
    let nameless = [("", thread(0.0, 1.0, 0.0, 0.0)), ("", Account::default()), ("", Account::default())];
    assert_eq!(interval(&nameless, &nameless.map(|(_, a)| ("", Account { busy: a.busy * 2, ..a }))).limit, None);
}
