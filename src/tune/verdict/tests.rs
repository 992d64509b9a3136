//! Accounts as jobs keep them, and what is said of them.

use std::time::Duration;

use fullbore_core::meter::{Account, Stage};

use super::*;
use crate::tune::model::{Buffers, CodecCost};

const MIB: f64 = 1_048_576.0;

/// A thread: seconds busy, starved, blocked.
fn thread(bytes: f64, busy: f64, starved: f64, blocked: f64) -> Account {
    let seconds = Duration::from_secs_f64;
    Account { bytes: bytes as u64, busy: seconds(busy), starved: seconds(starved), blocked: seconds(blocked) }
}

/// Threads that share out the bytes evenly, each busy for that share of ten seconds and waiting for the rest of them.
fn stage(name: &'static str, bytes: f64, threads: usize, share: f64) -> Stage {
    let rest = 10.0 * (1.0 - share);
    let (starved, blocked) = if name == "source" { (0.0, rest) } else { (rest, 0.0) };
    Stage::of(name, vec![thread(bytes / threads as f64, 10.0 * share, starved, blocked); threads])
}

fn setup() -> Setup {
    Setup {
        codec: "lz4".into(),
        workers: 2,
        queue_depth: 4,
        in_flight: 1.0,
        buffers: Buffers::Split { input: 24, output: 24 },
        buffer_count: 48,
        least_buffers: 10,
        transfer_bytes: 1 << 20,
        codec_bytes: 2 << 20,
        throttle: None,
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

fn evidence(stages: &[Stage]) -> Evidence<'_> {
    Evidence {
        direction: Direction::Backup,
        stages,
        devices: (1..=4).map(|family| format!("mnt/{family}")).collect(),
        moving_s: 10.0,
        elapsed_s: 10.5,
        processor_s: 18.0,
        processors: 8.0,
        plain_bytes: 1000.0 * MIB,
        setup: Some(setup()),
        measured_limit: None,
        profile: None,
    }
}

fn said(what_if: &[WhatIf]) -> Vec<String> {
    what_if.iter().map(WhatIf::line).collect()
}

#[test]
fn the_stage_that_is_used_most_is_the_limit_and_the_next_one_is_named() {
    let stages = stages(0.2, 0.97, 0.5);
    let verdict = verdict(&evidence(&stages)).unwrap();
    assert_eq!((verdict.name, verdict.limit), ("transform", Limit::Stage(1)));
    let why = "busy most of its time (source 20 %, transform 97 %, sink 50 %); next sink, at 2.0 times this speed";
    assert_eq!(verdict.why, why);
    assert!((verdict.uses[2].ceiling / MIB - 200.0).abs() < 0.1, "in plain bytes, whatever the codec leaves of them");
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
    assert!(verdict.what_if.iter().all(|one| one.memory_bytes >= 0.0), "below what the plan needs nothing is said");
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
fn a_throttle_that_is_used_up_is_the_limit_and_what_it_costs_is_said() {
    let stages = stages(0.4, 0.5, 0.3);
    let setup = Setup { throttle: Some(101.0 * MIB), ..setup() };
    let verdict = verdict(&Evidence { setup: Some(setup), ..evidence(&stages) }).unwrap();
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
    assert_eq!(verdict(&full).unwrap().name, "sink", "a device that is used more than they stays the limit");
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
    assert_eq!(super::verdict(&several_sets).unwrap().name, "media", "of several sets no device is named");
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
    let stages = stages(0.2, 0.3, 0.99);
    let with = |in_flight| {
        let setup = Setup { queue_depth: 8, in_flight, ..setup() };
        verdict(&Evidence { setup: Some(setup), ..evidence(&stages) }).unwrap().name
    };
    assert_eq!(with(3.0), "pool");
    assert_eq!(with(7.8), "sink");
    assert_eq!(with(1.0), "sink", "a pipe takes one at a time");
}

#[test]
fn where_no_stage_was_busy_none_is_blamed() {
    let stages = stages(0.3, 0.4, 0.35);
    let verdict = verdict(&evidence(&stages)).unwrap();
    assert_eq!(verdict.name, "none");
    assert!(verdict.why.ends_with("(source 30 %, transform 40 %, sink 35 %, processors 21 %)"), "{}", verdict.why);
}

#[test]
fn fewer_buffers_than_the_stages_could_hold_are_the_limit() {
    let stages = stages(0.4, 0.4, 0.65);
    // Two readers, two workers and four writers, of whom each holds one while it works.
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

/// What calibration knows: the media do 90 MiB/s together, and three codecs.
fn profile() -> Path {
    let mut path = Path::unlimited(8.0);
    path.media.write.total_rate = 90.0 * MIB;
    let codec = |name: &str, mib_per_s: f64, stored_share| CodecCost {
        name: name.into(),
        pack: 1.0 / (mib_per_s * MIB),
        unpack: 0.0,
        stored_share,
        context_bytes: MIB,
    };
    path.codecs = vec![codec("lz4", 60.0, 0.5), codec("zstd:1", 55.0, 0.3), codec("zstd:9", 5.0, 0.25)];
    path
}

#[test]
fn without_a_profile_nothing_is_said_of_what_the_job_has_not_seen() {
    let stages = stages(0.2, 0.5, 0.99);
    let lines = said(&verdict(&evidence(&stages)).unwrap().what_if);
    assert!(lines.iter().all(|line| !line.contains("stripe") && !line.contains("zstd")), "{lines:?}");
    let profile = profile();
    let known = Evidence { profile: Some(&profile), ..evidence(&stages) };
    let lines = said(&verdict(&known).unwrap().what_if);
    let has = |start: &str, end: &str| lines.iter().any(|line| line.starts_with(start) && line.ends_with(end));
    assert!(has("+4 stripes on devices like these: 1.", "×"), "{lines:?}");
    assert!(has("zstd:1 instead of lz4: 1.", "×, 40 % smaller"), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("zstd:9")), "much slower: {lines:?}");
}

#[test]
fn accounts_that_the_model_cannot_explain_answer_nothing() {
    // Everything idle, and yet so slow: whatever it waited for is in no account.
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
    assert_eq!(interval(&look(5.0, 1.0, 1.0), &look(5.1, 1.1, 9.0)).limit, None, "nobody was busy");
    let nameless = [("", thread(0.0, 1.0, 0.0, 0.0)), ("", Account::default()), ("", Account::default())];
    assert_eq!(interval(&nameless, &nameless.map(|(_, a)| ("", Account { busy: a.busy * 2, ..a }))).limit, None);
}
