#![allow(clippy::unwrap_used)]
use super::goal::rank;
use super::*;
use crate::throughput::{Access, Buffers, Ceiling, CeilingPart, Direction, ExtraCost, Parameter, Side, predict};

const MIB: f64 = 1048576.0;

/// Reads 400 MiB/s, writes `media` MiB/s; other work costs nothing.
fn known(media: f64) -> KnownPath {
    known_to_take(media, 1.0)
}

/// The same for hardware that, by earlier runs, is `slowness` times as slow.
fn known_to_take(media: f64, slowness: f64) -> KnownPath {
    let mut path = Path::unlimited(2.0);
    path.database.read = Ceiling::total(400.0 * MIB);
    path.database.write = Ceiling::total(400.0 * MIB);
    path.media.write = Ceiling::total(media * MIB);
    path.media.read = Ceiling::total(media * MIB);
    path.evenness = 1.0;
    KnownPath::new(path, &[], Factor { middle: slowness, deviation: 0.0, runs: 0 }).unwrap()
}

fn configuration(direction: Direction, mib: f64) -> Configuration {
    Configuration {
        direction,
        plain_bytes: mib * MIB,
        extra: ExtraCost::default(),
        stripes: 1,
        database_streams: 2,
        queue_depth: 4,
        request_bytes: None,
        workers: 2,
        buffers: Buffers::Through(32),
        transfer_bytes: MIB,
        codec: "none".into(),
        encrypted: false,
        throttle: None,
    }
}

fn candidate(mib: f64, memory_bytes: u64) -> Candidate {
    Candidate {
        compression: Compression::None,
        stripes: 1,
        buffer_count: 32,
        workers: 2,
        throttle: None,
        memory_bytes,
        backup: Some(configuration(Direction::Backup, mib)),
        restore: Some(configuration(Direction::Restore, mib)),
    }
}

#[test]
fn the_slowest_stage_sets_the_time_and_is_named() {
    let made = estimate(&known(100.0), &candidate(1000.0, 1)).unwrap();
    let backup = made.backup.unwrap();
    assert!((backup.seconds.p50 - 10.0).abs() < 0.01, "{backup:?}");
    assert_eq!((backup.limit, made.restore.unwrap().limit), (Limit::Media, Limit::Media));
    assert_eq!(estimate(&known(1000.0), &candidate(1000.0, 1)).unwrap().backup.unwrap().limit, Limit::Database);
}

#[test]
fn earlier_runs_move_the_middle_and_narrow_the_interval_when_they_agree() {
    let slower = |runs: usize| learn(&vec![Observed { seconds: 12.0, predicted: 10.0 }; runs]);
    assert_eq!(learn(&[]).middle, 1.0);
    let factors: Vec<Factor> = [0, 1, 4, 30].map(slower).to_vec();
    for pair in factors.windows(2) {
        assert!(pair[0].middle < pair[1].middle && pair[1].middle < 1.2, "{pair:?}");
        assert!(pair[1].deviation < pair[0].deviation, "{pair:?}");
    }
    let torn = learn(&[Observed { seconds: 20.0, predicted: 10.0 }, Observed { seconds: 5.0, predicted: 10.0 }]);
    assert!(torn.deviation > 0.5 && (torn.middle - 1.0).abs() < 1e-9, "{torn:?}");
    let nonsense = [Observed { seconds: 0.0, predicted: 1.0 }, Observed { seconds: 1.0, predicted: f64::INFINITY }];
    assert_eq!(learn(&nonsense).runs, 0);
}

#[test]
fn the_candidate_with_less_memory_wins_a_tie_in_speed() {
    let of = |mib, memory| estimate(&known(100.0), &candidate(mib, memory)).unwrap();
    let mut all = vec![of(2000.0, 1), of(1000.0, 9), of(1001.0, 5)];
    by_backup(&mut all);
    assert_eq!(all.iter().map(|one| one.candidate.memory_bytes).collect::<Vec<_>>(), [5, 9, 1]);
    let within = fits(&all, 11.0, |one| one.backup.map(|backup| backup.seconds.p90));
    assert_eq!(within.iter().map(|one| one.candidate.memory_bytes).collect::<Vec<_>>(), [5, 9]);
}

#[test]
fn the_needed_speed_for_a_deadline_is_given_for_each_stage() {
    let known = known(100.0);
    let backup = configuration(Direction::Backup, 1000.0);
    // It takes 10 s now. 5 s needs media twice as fast; 2 s needs media faster than the database, and a faster
    // database.
    let twice = wanted(&known, &backup, 10.0, 5.0).unwrap().unwrap();
    assert_eq!(twice.iter().map(|step| step.limit).collect::<Vec<_>>(), [Limit::Media]);
    assert!((1.95..2.15).contains(&twice[0].factor), "{twice:?}");
    assert!((195.0..215.0).contains(&(twice[0].value / MIB)), "{twice:?}");
    let both = wanted(&known, &backup, 10.0, 2.0).unwrap().unwrap();
    assert_eq!(both.iter().map(|step| step.limit).collect::<Vec<_>>(), [Limit::Media, Limit::Database]);
    let throttled = Configuration { throttle: Some(10.0 * MIB), ..backup.clone() };
    assert_eq!(wanted(&known, &throttled, 100.0, 50.0).unwrap(), None, "no faster hardware helps");
    assert_eq!(wanted(&known, &backup, 10.0, 20.0).unwrap(), Some(Vec::new()), "it is kept already");
}

#[test]
fn a_database_is_down_for_the_last_step_of_its_move() {
    let known = known(100.0);
    let (backup, restore) = (configuration(Direction::Backup, 1000.0), configuration(Direction::Restore, 1000.0));
    let of =
        |steps: &str, rate: f64| cutover(&known, &backup, &restore, Steps::parse(steps).unwrap(), rate * MIB).unwrap();
    // Each direction takes a second for 100 MiB: the full takes 20 s, while 10 MiB/s change. The differential of these
    // 200 MiB reads all 1,000 MiB, 400 in a second; the log has the changes of 4.5 s.
    let [full, differential, log] = ["full", "full+diff", "full+diff+log"].map(|steps| of(steps, 10.0));
    assert!((full.downtime.p50 - 20.0).abs() < 0.01 && full.beforehand.p50 == 0.0, "{full:?}");
    assert!((differential.downtime.p50 - 4.5).abs() < 0.01, "{differential:?}");
    assert!((differential.last_bytes.p50 / MIB - 200.0).abs() < 0.1, "{differential:?}");
    assert!((differential.beforehand.p50 - 20.0).abs() < 0.02);
    assert!((log.downtime.p50 - 0.9).abs() < 0.01 && (log.beforehand.p50 - 24.5).abs() < 0.02, "{log:?}");
    assert!((log.last_bytes.p50 / MIB - 45.0).abs() < 0.1);
    // Even if very little has changed.
    assert!((of("full+diff", 1e-6).downtime.p50 - 2.5).abs() < 0.01);
    // If the changes are faster than they can be moved, everything has changed.
    assert!((of("full+diff", 1000.0).downtime.p50 - 20.0).abs() < 0.01);
    assert_eq!(Steps::parse("diff"), None);
}

/// A glance with these seconds and stored bytes; `memory_bytes` identifies it.
fn seen(seconds: f64, stored_bytes: f64, stripes: u64, memory_bytes: u64) -> Glance {
    let candidate = Candidate { stripes, ..candidate(1.0, memory_bytes) };
    Glance { candidate, seconds, stored_bytes, cpu_per_byte: 0.0, cpu_share: 0.0 }
}

#[test]
fn advise_prefers_fewer_stripes_among_the_fastest_and_speed_among_the_smallest() {
    let mut all = [
        seen(10.0, 50.0, 8, 1),
        seen(10.05, 50.0, 2, 3),
        seen(10.06, 50.0, 2, 2),
        seen(10.2, 30.0, 1, 4),
        seen(90.0, 30.1, 1, 5),
        seen(20.0, 30.2, 1, 6),
    ];
    let ranked = |all: &[Glance]| all.iter().map(|one| one.candidate.memory_bytes).collect::<Vec<_>>();
    rank(&mut all, Best::Fastest);
    assert_eq!(ranked(&all), [2, 3, 1, 4, 6, 5]);
    rank(&mut all, Best::Smallest);
    assert_eq!(ranked(&all), [4, 6, 5, 2, 3, 1]);
}

#[test]
fn advise_takes_the_smallest_within_the_interval_of_the_fastest() {
    let mut all = [
        seen(0.3, 247.6, 1, 1),
        seen(0.4, 149.4, 1, 2),
        seen(0.41, 149.0, 1, 3),
        seen(0.44, 100.0, 1, 4),
        seen(0.5, 90.0, 1, 5),
    ];
    let ranked = |all: &[Glance]| all.iter().map(|one| one.candidate.memory_bytes).collect::<Vec<_>>();
    rank(&mut all, Best::Balanced);
    smaller_first(&mut all, 0.42);
    assert_eq!(ranked(&all), [2, 3, 1, 4, 5]);
    smaller_first(&mut all, 0.1);
    assert_eq!(ranked(&all)[0], 2, "if no candidate is within it, the order stays");
    smaller_first(&mut [], 1.0);
}

#[test]
fn configurations_are_ranked_by_the_time_that_their_estimate_prints() {
    // Two devices with the same middle speed: in most samples one of them is slower, so the P50 is above the middle.
    let total = |side, way| Parameter::Ceiling(side, way, CeilingPart::TotalRate);
    let uncertain = [total(Side::Database, Access::Read), total(Side::Media, Access::Write)]
        .map(|parameter| Uncertain { parameter, deviation: 0.5 });
    let exact = known(400.0);
    let known = KnownPath::new(exact.path, &uncertain, exact.factor).unwrap();
    let free = candidate(1000.0, 1);
    let printed = estimate(&known, &free).unwrap().backup.unwrap().seconds.p50;
    let middle = known.foresee(free.backup.as_ref().unwrap()).unwrap().seconds;
    assert!(printed > 1.1 * middle, "{printed} {middle}");
    // A throttle between the two is slower than the middle path, and hardly slower than the P50. It has one stripe
    // less, and wins by that.
    let mut throttled = candidate(1000.0, 1);
    throttled.backup.as_mut().unwrap().throttle = Some(1000.0 * MIB / (1.02 * middle));
    let asked = Candidate { stripes: 2, ..free };
    let mut all = [&asked, &throttled].map(|one| glance(&known, one.clone(), By::Backup).unwrap().unwrap());
    assert!(all[1].seconds > 1.011 * all[0].seconds, "{all:?}");
    let goal = Goal { best: Best::Fastest, by: By::Backup, cpu_limit: None, deadline: None };
    rank_by_estimate(&known, &mut all, &asked, &goal).unwrap();
    assert_eq!(all[1].seconds, printed);
    assert_eq!(all.map(|one| one.candidate.stripes), [1, 2]);
}

#[test]
fn a_throttle_for_a_share_of_the_processors_keeps_that_share() {
    let mut known = known(100.0);
    known.path.codecs = vec![crate::throughput::CodecCost { pack: 50.0 * MIB, ..crate::throughput::CodecCost::none() }];
    let known = KnownPath::new(known.path, &[], known.factor).unwrap();
    let free = glance(&known, candidate(1000.0, 1), By::Backup).unwrap().unwrap();
    assert!(free.cpu_share > 0.3, "{free:?}");
    let rate = throttle(&free, &known, 0.1).unwrap();
    let slow = Configuration { throttle: Some(rate), ..configuration(Direction::Backup, 1000.0) };
    let slow = Candidate { backup: Some(slow), ..candidate(1000.0, 1) };
    let slow = glance(&known, slow, By::Backup).unwrap().unwrap();
    assert!((slow.cpu_share - 0.1).abs() < 0.005, "{slow:?}");
    assert_eq!(glance(&known, Candidate { restore: None, ..candidate(1.0, 1) }, By::Both).unwrap(), None);
}

#[test]
fn a_faster_device_helps_a_job_on_one_device_beyond_two() {
    let mut known = known(400.0);
    known.path.simultaneous = Some(1.0);
    let backup = configuration(Direction::Backup, 1000.0);
    let now = predict(&known.path, &backup).unwrap();
    assert_eq!((now.limit, now.seconds.round()), (Limit::SharedDevice, 5.0));
    let ten_times = wanted(&known, &backup, 5.0, 0.5).unwrap().unwrap();
    assert_eq!(ten_times.iter().map(|step| step.limit).collect::<Vec<_>>(), [Limit::SharedDevice]);
    let Wanted { factor, value, unit, .. } = ten_times[0];
    assert!((9.9..10.6).contains(&factor), "{ten_times:?}");
    assert!((value / (400.0 * MIB) / factor - 1.0).abs() < 1e-9 && unit == "bytes/s", "{ten_times:?}");
}

#[test]
fn more_processors_come_with_workers_and_their_buffers() {
    let mut known = known(400.0);
    known.path.machine.checksum = 0.1 / MIB;
    let backup = configuration(Direction::Backup, 1000.0);
    for buffers in [Buffers::Through(32), Buffers::Split { input: 8, output: 8 }] {
        let backup = Configuration { buffers, ..backup.clone() };
        let now = predict(&known.path, &backup).unwrap().seconds;
        let eight_times = wanted(&known, &backup, now, now / 8.0).unwrap().unwrap();
        let factor: f64 = eight_times.iter().map(|step| step.factor).product();
        assert!((7.9..8.5).contains(&factor), "{eight_times:?}");
        let last = eight_times.last().unwrap();
        assert!((15.8..17.0).contains(&last.value) && last.unit == "1", "processors: {eight_times:?}");
    }
}

#[test]
fn processors_work_no_longer_than_there_is_time_whatever_history_says() {
    for slowness in [0.5, 1.0, 2.0] {
        let mut known = known_to_take(400.0, slowness);
        known.path.machine.checksum = 0.1 / MIB;
        let known = KnownPath::new(known.path, &[], known.factor).unwrap();
        let made = estimate(&known, &candidate(1000.0, 1)).unwrap().backup.unwrap();
        let (share, glance) = (
            made.cpu_seconds / made.seconds.p50 / 2.0,
            glance(&known, candidate(1000.0, 1), By::Backup).unwrap().unwrap().cpu_share,
        );
        assert!((0.9..=1.0001).contains(&share) && (0.9..=1.0001).contains(&glance), "{slowness}: {share} {glance}");
    }
}

fn is_about(seconds: f64, expected: f64) -> bool {
    (seconds / expected - 1.0).abs() < 0.005
}

#[test]
fn a_throttle_lets_pass_what_it_says_whatever_history_says_of_the_hardware() {
    // 1,000 MiB. The media take 100 MiB/s by the model, but 200 or 50 by earlier runs.
    for (slowness, throttle, seconds, limit) in [
        (1.0, 10.0, 100.0, Limit::Throttle),
        (0.5, 10.0, 100.0, Limit::Throttle),
        (2.0, 10.0, 100.0, Limit::Throttle),
        (0.5, 150.0, 1000.0 / 150.0, Limit::Throttle),
        (2.0, 80.0, 20.0, Limit::Media),
        (0.5, 500.0, 5.0, Limit::Media),
        (2.0, 500.0, 20.0, Limit::Media),
    ] {
        let known = known_to_take(100.0, slowness);
        let backup = Configuration { throttle: Some(throttle * MIB), ..configuration(Direction::Backup, 1000.0) };
        let candidate = Candidate { backup: Some(backup.clone()), ..candidate(1000.0, 1) };
        let made = estimate(&known, &candidate).unwrap();
        let foreseen = made.backup.unwrap();
        let case = format!("hardware {slowness} times as slow, throttle {throttle}: {foreseen:?}");
        assert!(is_about(foreseen.seconds.p50, seconds) && foreseen.limit == limit, "{case}");
        assert!(foreseen.seconds.p10 >= 1000.0 / throttle * 0.9999, "{case}");
        let restored = made.restore.unwrap().seconds.p50;
        assert!(is_about(restored, 10.0 * slowness), "the restore has no throttle: {restored}");
        let glance = glance(&known, candidate, By::Backup).unwrap().unwrap().seconds;
        assert!(is_about(glance, seconds), "at a glance {glance}; {case}");
        let steps = Steps { differential: false, log: false };
        let down = cutover(&known, &backup, &configuration(Direction::Restore, 1000.0), steps, 1.0).unwrap().downtime;
        assert!(is_about(down.p50, seconds + restored), "moved in {down:?}; {case}");
    }
}

#[test]
fn how_wrong_the_model_may_be_of_the_hardware_widens_no_job_that_its_throttle_limits() {
    let path = known(100.0).path;
    let known = KnownPath::new(path, &[], Factor { middle: 1.2, deviation: 0.15, runs: 3 }).unwrap();
    let of = |throttle: Option<f64>| {
        let backup = Configuration { throttle, ..configuration(Direction::Backup, 1000.0) };
        estimate(&known, &Candidate { backup: Some(backup), ..candidate(1000.0, 1) }).unwrap().backup.unwrap().seconds
    };
    let (free, slow) = (of(None), of(Some(20.0 * MIB)));
    assert!(is_about(free.p50, 12.0) && free.p90 / free.p10 > 1.3, "{free:?}");
    assert!(is_about(slow.p10, 50.0) && is_about(slow.p90, 50.0), "{slow:?}");
}

#[test]
fn a_log_may_be_longer_than_its_database_and_a_differential_not() {
    let known = known(100.0);
    let (backup, restore) = (configuration(Direction::Backup, 1000.0), configuration(Direction::Restore, 1000.0));
    let of =
        |steps: &str, rate: f64| cutover(&known, &backup, &restore, Steps::parse(steps).unwrap(), rate * MIB).unwrap();
    // The full takes 20 s, in which 2,000 MiB change.
    let log = of("full+log", 100.0);
    assert!((log.last_bytes.p50 / MIB - 2000.0).abs() < 5.0 && (log.downtime.p50 - 40.0).abs() < 0.1, "{log:?}");
    assert!((log.moved / MIB - 50.0).abs() < 0.1, "backup and restore one after the other: {log:?}");
    let differential = of("full+diff", 100.0);
    assert!((differential.last_bytes.p50 / MIB - 1000.0).abs() < 0.1, "{differential:?}");
}
