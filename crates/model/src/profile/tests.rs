//! Profiles as files, and the model's paths from them.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::profile::stored::parse;
use crate::throughput::{CeilingPart, Configuration, Direction, ExtraCost, Limit, Parameter, Side, predict};

const MIB: u64 = 1 << 20;
const MB: f64 = 1e6;

fn round(bytes: u64, rate: f64) -> Round {
    Round::of(bytes, bytes as f64 / rate)
}

fn cell(way: Access, (block_bytes, queue_depth, streams): (u64, u64, u64), rates: &[f64]) -> Cell {
    Cell {
        shape: AccessPattern { way, order: Order::Sequential, block_bytes, queue_depth, streams, direct: true },
        rounds: rates.iter().map(|rate| round(100 * MIB, *rate)).collect(),
    }
}

fn place(path: &str, used: Use, device: u64, cells: Vec<Cell>) -> MeasuredPath {
    MeasuredPath { path: path.into(), used, device: Some(device), bytes: MIB, cells }
}

/// A database that is read at 400 MB/s, or with one read at a time at 200. The media take 100 MB/s from one stream, and
/// 300 from four.
fn profile() -> Profile {
    let settings = Settings { seconds: 30.0, space_bytes: None, throttle_bytes_per_s: None };
    let mut profile = Profile::begin("default", settings);
    profile.machine.cores = 4;
    let reads = vec![
        cell(Access::Read, (MIB, 1, 1), &[200.0 * MB, 200.0 * MB]),
        cell(Access::Read, (MIB, 4, 1), &[390.0 * MB, 400.0 * MB, 410.0 * MB]),
    ];
    let writes = vec![
        cell(Access::Write, (MIB, 4, 1), &[100.0 * MB; 2]),
        cell(Access::Write, (MIB, 4, 4), &[300.0 * MB; 2]),
        cell(Access::Read, (MIB, 4, 1), &[350.0 * MB; 2]),
    ];
    profile.places = vec![
        place("/nowhere/data/app.db", Use::Read, 900_001, reads),
        place("/nowhere/a", Use::Write, 900_002, writes),
    ];
    profile.codecs = vec![CodecCell {
        codec: "lz4".into(),
        threads: 4,
        stored_share: 0.5,
        stored_share_error: 0.02,
        context_bytes: MIB,
        pack: vec![round(100 * MIB, 2000.0 * MB)],
        unpack: vec![round(100 * MIB, 8000.0 * MB)],
    }];
    profile.checksums = vec![WorkCell { threads: 4, rounds: vec![round(100 * MIB, 20_000.0 * MB)] }];
    profile
}

#[test]
fn headroom_is_told_by_cells_that_differ_in_their_streams_alone() {
    let at = |name: &str| PathLocation::At(name.into());
    let mut profile = profile();
    let media = profile.headroom(&[at("/nowhere/a/x")], Access::Write);
    assert!(near(media.streams, 3.0) && media.devices == 1, "{media:?}");
    assert!((media.noise - 1.03).abs() < 0.01, "{media:?}");
    assert!(near(media.worth(1.0), 3.0) && near(media.worth(4.0), 4.0));
    // The fastest of many cells with one stream was fast by chance, and does not show the gain of several streams.
    profile.places[1].cells.push(cell(Access::Write, (2 * MIB, 4, 2), &[900.0 * MB; 2]));
    assert!(near(profile.headroom(&[at("/nowhere/a")], Access::Write).streams, 3.0));
    for depth in [1, 2, 8] {
        let scattered = cell(Access::Write, (4 * MIB, depth, 1), &[100.0 * MB, 400.0 * MB]);
        profile.places[1].cells.push(scattered);
    }
    let noisy = profile.headroom(&[at("/nowhere/a")], Access::Write);
    assert!(noisy.noise > 3.0 && near(noisy.worth(1.0), 1.0), "{noisy:?}");
    let unknown = profile.headroom(&[at("/elsewhere")], Access::Write);
    assert!(unknown.devices == 0 && near(unknown.worth(2.0), 2.0), "{unknown:?}");
}

const DATABASE: &[&str] = &["/nowhere/data/app.db"];

fn near(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < 1e-6
}

#[test]
fn the_path_of_a_profile_has_the_ceilings_that_were_measured() {
    let made = profile().path(&Asked { database: DATABASE, media: &["/nowhere/a"], transfer_bytes: MIB });
    let read = made.path.database.read;
    assert!(near(read.stream_rate, 400.0 * MB) && near(read.total_rate, 400.0 * MB));
    assert!(near(read.latency, MIB as f64 / (200.0 * MB) - MIB as f64 / (400.0 * MB)), "{}", read.latency);
    let write = made.path.media.write;
    assert!(near(write.stream_rate, 100.0 * MB) && near(write.total_rate, 300.0 * MB));
    let lz4 = made.path.codec("lz4").unwrap();
    assert!(near(lz4.pack, 4.0 / (2000.0 * MB)) && near(lz4.stored_share, 0.5), "of one worker while all work");
    assert!(near(made.path.machine.checksum, 4.0 / (20_000.0 * MB)));
    assert!(made.path.codec("none").is_some());
    assert_eq!(made.path.machine.cores, 4.0);
}

#[test]
fn places_in_one_file_system_that_were_written_share_what_was_measured() {
    let mut profile = profile();
    let usual = || cell(Access::Write, (MIB, 4, 1), &[120.0 * MB; 2]);
    profile.places.push(place("/nowhere/b", Use::Write, 900_002, vec![usual()]));
    profile.places.push(place("/nowhere/c", Use::Write, 900_003, vec![usual()]));
    let written = |name: &str| {
        profile.path(&Asked { database: DATABASE, media: &[name], transfer_bytes: MIB }).path.media.write.total_rate
    };
    assert!(near(written("/nowhere/b"), 300.0 * MB), "four streams were measured in the other directory");
    assert!(near(written("/nowhere/c"), 120.0 * MB), "another file system");
    assert!(near(profile.with_its_device(2).cells[0].rate(), 110.0 * MB), "rounds of one way count together");
    assert!(profile.headroom(&[PathLocation::At("/nowhere/b".into())], Access::Write).streams > 2.0);
}

#[test]
fn a_file_costs_short_operations_to_read_and_a_sync_to_make() {
    let mut profile = profile();
    let mut random = cell(Access::Read, (64 << 10, 32, 1), &[65.536 * MB; 2]);
    random.shape.order = Order::Random;
    profile.places[0].cells.push(random);
    profile.places[0].cells.push(cell(Access::Write, (MIB, 4, 1), &[100.0 * MB; 2]));
    let mut files = cell(Access::Write, (16 << 10, 1, 1), &[4.096 * MB, 2.048 * MB, 5.0 * MB]);
    (files.shape.order, files.shape.direct) = (Order::Files, false);
    profile.places[0].cells.push(files);
    let fixed = profile.path(&Asked { database: DATABASE, media: &["/nowhere/a"], transfer_bytes: MIB }).path.fixed;
    assert!(
        near(fixed.read_file, operations::FILE_OPERATIONS / 1000.0),
        "1,000 operations a second: {}",
        fixed.read_file
    );
    assert!(near(fixed.write_file, 0.004), "{}", fixed.write_file);
}

#[test]
fn small_operations_that_were_only_measured_beside_others_take_no_longer_than_those() {
    let deep = cell(Access::Read, (64 << 10, 4, 1), &[400.0 * MB]);
    let alone = cell(Access::Read, (MIB, 1, 1), &[100.0 * MB]);
    let whole = |transfer_bytes: u64| {
        let ceiling = ceiling_of(vec![deep.clone(), alone.clone()], transfer_bytes);
        ceiling.latency + transfer_bytes as f64 / ceiling.stream_rate
    };
    let small = (4 * (64 << 10)) as f64 / (400.0 * MB);
    let between = small + (MIB as f64 / (100.0 * MB) - small) * (256.0 - 64.0) / (1024.0 - 64.0);
    assert!(near(whole(256 << 10), between), "{} {between}", whole(256 << 10));
}

#[test]
fn a_sync_counts_once_for_any_number_of_stripes() {
    let mut profile = profile();
    let (backup_s, restore_s) = (vec![0.1], vec![0.05]);
    profile.job_costs = vec![JobCost { media: 1, database: 1, plain_bytes: 4096, backup_s, restore_s }];
    profile.places[1].cells[0].rounds.iter_mut().for_each(|round| round.sync_seconds = 0.5);
    let written = profile.places[1].cells[0].clone();
    profile.places[0].cells.push(written);
    let fixed = profile.path(&Asked { database: DATABASE, media: &["/nowhere/a"], transfer_bytes: MIB }).path.fixed;
    assert!(near(fixed.commit, 0.1) && near(fixed.backup, 0.4), "one stripe: 0.5 s, two: 0.6 s: {fixed:?}");
    assert!(near(fixed.restore, 0.5), "the database is made durable once: {fixed:?}");
}

/// The ceiling of a place with these cells, in operations of `transfer_bytes`.
fn ceiling_of(cells: Vec<Cell>, transfer_bytes: u64) -> crate::throughput::Ceiling {
    let mut profile = profile();
    profile.places[0].cells = cells;
    profile.path(&Asked { database: DATABASE, media: &["/nowhere/a"], transfer_bytes }).path.database.read
}

#[test]
fn an_operation_takes_no_longer_than_a_larger_one_that_has_others_beside_it() {
    // As measured: the disk stalled in the only round of 64 KiB.
    let stalled = cell(Access::Read, (64 << 10, 1, 1), &[MB]);
    let cells = vec![
        stalled.clone(),
        cell(Access::Read, (64 << 10, 32, 1), &[3000.0 * MB]),
        cell(Access::Read, (MIB, 1, 1), &[700.0 * MB]),
    ];
    assert_eq!(contradicted(&cells), [stalled.shape]);
    let read = ceiling_of(cells, 64 << 10);
    let longest = 32.0 * 65_536.0 / (3000.0 * MB);
    assert!(read.latency < longest && read.latency > longest / 2.0, "{}", read.latency);
    let deeper = cell(Access::Read, (64 << 10, 8, 1), &[800.0 * MB]);
    assert!(contradicted(&[deeper, cell(Access::Read, (64 << 10, 1, 1), &[100.0 * MB])]).is_empty(), "they agree");
}

#[test]
fn a_round_that_is_too_fast_by_chance_is_not_the_ceiling_but_one_way_that_is_faster_again_and_again_is() {
    let cells = |fast: &[f64]| {
        let mut cells: Vec<Cell> =
            (2..7).map(|depth| cell(Access::Read, (MIB, depth, 1), &[57.0 * MB, 58.0 * MB])).collect();
        cells.push(cell(Access::Read, (MIB, 1, 1), fast));
        cells
    };
    assert!(near(ceiling_of(cells(&[57.0 * MB, 80.0 * MB]), MIB).total_rate, 57.454545 * MB));
    assert!(near(ceiling_of(cells(&[80.0 * MB; 5]), MIB).total_rate, 80.0 * MB));
}

#[test]
fn a_database_in_one_file_is_no_faster_than_one_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut profile = profile();
    profile.places[0].path = file.path().display().to_string();
    profile.places[0].cells =
        vec![cell(Access::Read, (MIB, 4, 1), &[200.0 * MB; 2]), cell(Access::Read, (MIB, 4, 4), &[300.0 * MB; 2])];
    let read = |database: &str| {
        let asked = Asked { database: &[database], media: &["/nowhere/a"], transfer_bytes: MIB };
        profile.path(&asked).path.database.read.total_rate
    };
    assert!(near(read(&profile.places[0].path), 200.0 * MB));
    let directory = file.path().parent().unwrap().display().to_string();
    assert!(near(read(&directory), 300.0 * MB), "one in many files");
}

#[test]
fn a_volume_with_a_cap_of_operations_is_slower_in_small_ones() {
    let cells = || {
        vec![
            cell(Access::Read, (64 << 10, 32, 1), &[20.0 * MB; 2]),
            cell(Access::Read, (MIB, 4, 1), &[100.0 * MB; 2]),
            cell(Access::Read, (4 * MIB, 4, 1), &[100.0 * MB; 2]),
        ]
    };
    assert!(near(ceiling_of(cells(), MIB).total_rate, 100.0 * MB));
    assert!(near(ceiling_of(cells(), 256 << 10).total_rate, 80.0 * MB));
    assert!(near(ceiling_of(cells(), 64 << 10).stream_rate, 20.0 * MB));
    let large = || cells().split_off(1);
    assert!(
        near(ceiling_of(large(), 64 << 10).total_rate, 100.0 * MB),
        "the greatest number of small operations is not known"
    );
}

#[test]
fn service_is_even_where_rounds_of_few_operations_are_alike() {
    let evenness = |rates: &[f64]| {
        let mut profile = profile();
        profile.places.iter_mut().for_each(|place| place.cells = vec![cell(Access::Read, (MIB, 4, 1), rates)]);
        profile.path(&Asked { database: DATABASE, media: &[], transfer_bytes: MIB }).path.evenness
    };
    // 100 operations in a round: with exponential times, the number scatters by a tenth.
    assert!(evenness(&[100.0 * MB, 101.0 * MB]) > 0.99);
    assert!(evenness(&[90.0 * MB, 110.0 * MB]) < 0.01);
    assert_eq!(evenness(&[100.0 * MB]), 0.0, "one round has no scatter");
}

#[test]
fn the_scatter_of_rounds_is_the_deviation_of_a_parameter() {
    let made = profile().path(&Asked { database: DATABASE, media: &["/nowhere/a"], transfer_bytes: MIB });
    let of = |parameter| made.uncertain.iter().find(|one| one.parameter == parameter).unwrap().deviation;
    let read = of(Parameter::Ceiling(Side::Database, crate::throughput::Access::Read, CeilingPart::TotalRate));
    assert!((0.005..0.05).contains(&read), "{read}");
    assert_eq!(of(Parameter::StoredShare("lz4".into())), 0.02);
    assert_eq!(of(Parameter::Pack("lz4".into())), read, "one round has the scatter of all rounds");
}

#[test]
fn an_unmeasured_place_has_no_limit_and_is_named() {
    let made = profile().path(&Asked { database: DATABASE, media: &["/elsewhere"], transfer_bytes: MIB });
    assert!(made.path.media.write.total_rate.is_infinite());
    let unknown = made.unknown.join("\n");
    assert!(unknown.contains("writing `/elsewhere`") && unknown.contains("--write /elsewhere"), "{unknown}");
    assert!(unknown.contains("writing `/nowhere/data/app.db`"), "a place that was only read: {unknown}");
}

#[test]
fn a_file_below_a_measured_directory_is_known_and_media_on_two_devices_add_up() {
    let mut profile = profile();
    let other = place("/nowhere/b", Use::Write, 900_003, vec![cell(Access::Write, (MIB, 4, 1), &[200.0 * MB; 2])]);
    profile.places.push(other);
    let media = ["/nowhere/a/app.bore", "/nowhere/b/"];
    let made = profile.path(&Asked { database: DATABASE, media: &media, transfer_bytes: MIB });
    assert!(near(made.path.media.write.total_rate, 500.0 * MB));
    assert!(near(made.path.media.write.stream_rate, 150.0 * MB), "the mean of the streams");
    profile.places[2].device = profile.places[1].device;
    let made = profile.path(&Asked { database: DATABASE, media: &media, transfer_bytes: MIB });
    assert!(near(made.path.media.write.total_rate, 300.0 * MB), "one device is not two");
}

/// A round of reading and writing at once, and the speed of each alone, in MB/s.
fn at_once((read, written): (u64, u64), (read_alone, written_alone): (f64, f64)) -> BothRound {
    BothRound {
        read_bytes: read * MIB,
        written_bytes: written * MIB,
        seconds: MIB as f64 / MB,
        read_alone: read_alone * MB,
        written_alone: written_alone * MB,
    }
}

/// Rounds of the database's place and that of the media at once.
fn pair(block_bytes: u64, written_per_read: u64, round: BothRound) -> Together {
    Together { read: 0, written: 1, block_bytes, queue_depth: 4, written_per_read, rounds: vec![round; 2] }
}

#[test]
fn a_device_that_is_read_and_written_at_once_is_one_station_of_the_model() {
    let mut profile = profile();
    let both = at_once((200, 50), (400.0, 100.0));
    profile.together = vec![pair(MIB, EVEN, both)];
    let asked = Asked { database: DATABASE, media: &["/nowhere/a"], transfer_bytes: MIB };
    assert!(near(profile.path(&asked).path.simultaneous.unwrap(), 1.0));
    profile.together[0].rounds.iter_mut().for_each(|round| round.read_bytes = 380 * MIB);
    profile.together[0].rounds.iter_mut().for_each(|round| round.written_bytes = 95 * MIB);
    assert_eq!(profile.path(&asked).path.simultaneous, None, "two devices that do not disturb each other");
}

#[test]
fn a_slow_place_beside_a_fast_one_shares_nothing_with_it() {
    let mut profile = profile();
    // As much is written as is read, so the fast side waits for the slow one.
    profile.together = vec![pair(MIB, EVEN, at_once((80, 80), (250.0, 80.0)))];
    let asked = Asked { database: DATABASE, media: &["/nowhere/a"], transfer_bytes: MIB };
    assert_eq!(profile.path(&asked).path.simultaneous, None);
    profile.together[0].rounds.push(at_once((60, 60), (250.0, 80.0)));
    assert_eq!(profile.path(&asked).path.simultaneous, None, "one round was disturbed");
    profile.together[0].rounds = vec![at_once((60, 60), (250.0, 80.0)); 2];
    assert!(profile.path(&asked).path.simultaneous.is_some(), "both are slower than alone");
}

#[test]
fn a_write_heavy_mix_is_a_factor_of_an_even_one() {
    let mut profile = profile();
    let even = pair(MIB, EVEN, at_once((80, 80), (400.0, 100.0)));
    let heavy = pair(MIB, WRITE_HEAVY, at_once((30, 60), (400.0, 100.0)));
    let of_other_blocks = Together { block_bytes: 64 << 10, ..heavy.clone() };
    let mut factor = |pairs: &[&Together]| {
        profile.together = pairs.iter().map(|&pair| pair.clone()).collect();
        let asked = Asked { database: DATABASE, media: &["/nowhere/a"], transfer_bytes: MIB };
        let path = profile.path(&asked).path;
        assert!(path.simultaneous.is_none_or(|share| near(share, 0.2 + 0.8)));
        path.write_heavy
    };
    let of_both = (30.0 / 400.0 + 60.0 / 100.0) / (80.0 / 400.0 + 80.0 / 100.0);
    assert!(near(factor(&[&even, &heavy]), of_both) && near(factor(&[&heavy, &even]), of_both));
    assert!(near(factor(&[&even, &of_other_blocks]), 1.0), "it would compare block sizes, not mixes");
    assert!(near(factor(&[&even]), 1.0), "it was not measured");
    assert!(near(factor(&[&heavy]), 1.0), "nothing to compare it with");
}

#[test]
fn a_database_beside_the_one_that_was_measured_shares_its_device_with_the_media_too() {
    let mut profile = profile();
    let both = at_once((100, 100), (400.0, 200.0));
    let reads = vec![cell(Access::Read, (MIB, 4, 1), &[400.0 * MB; 2])];
    profile.places[1].device = Some(900_001);
    profile.places.push(place("/nowhere/others", Use::Write, 900_001, reads));
    profile.together = vec![pair(MIB, EVEN, both)];
    let of = |profile: &Profile, transfer_bytes| {
        let asked = Asked { database: &["/nowhere/others/b.db"], media: &["/nowhere/a"], transfer_bytes };
        profile.path(&asked).path.simultaneous.unwrap()
    };
    assert!(near(of(&profile, 64 << 10), 100.0 / 400.0 + 100.0 / 200.0), "by the speed of each alone in that round");
    // A job of the measured size gets the measured rates of both, whatever each did alone in that round.
    let asked = Asked { database: &["/nowhere/others/b.db"], media: &["/nowhere/a"], transfer_bytes: MIB };
    let path = profile.path(&asked).path;
    let seconds = 1.0 / path.database.read.total_rate + 1.0 / path.media.write.total_rate;
    assert!(near(path.simultaneous.unwrap() / seconds, 100.0 * MB), "{path:?}");
    // Larger operations are faster alone: 300. For both at once, the device is as fast as before.
    assert!(near(of(&profile, 2 * MIB), 100.0 / 400.0 + 100.0 / 300.0));
    let small = at_once((40, 20), (400.0, 200.0));
    profile.together.push(pair(64 << 10, EVEN, small));
    assert!(near(of(&profile, MIB), path.simultaneous.unwrap()), "the pair of the nearer size counts");
    assert!(of(&profile, 64 << 10) < 0.5 * of(&profile, MIB));
}

#[test]
fn an_operation_takes_what_lies_between_the_sizes_that_were_measured() {
    let kib = |count: u64| count << 10;
    // 1 ms of 64 KiB, 2 ms of 1 MiB: 1.2 ms of 256 KiB.
    let alone = |block: u64, seconds: f64| cell(Access::Read, (block, 1, 1), &[block as f64 / seconds; 2]);
    let cells = vec![alone(kib(64), 1e-3), alone(kib(1024), 2e-3), cell(Access::Read, (MIB, 4, 1), &[2000.0 * MB; 2])];
    let latency = |transfer: u64| {
        let read = ceiling_of(cells.clone(), transfer);
        read.latency + transfer as f64 / read.stream_rate
    };
    assert!(near(latency(kib(64)), 1e-3) && near(latency(kib(1024)), 2e-3));
    assert!(near(latency(kib(256)), 1.2e-3), "{}", latency(kib(256)));
    assert!(near(latency(kib(4096)), 8e-3), "larger ones take as much for a byte");
}

#[test]
fn larger_operations_than_those_of_the_job_do_not_raise_its_ceiling() {
    let cells = || {
        let of = |block, rate: f64| cell(Access::Read, (block, 4, 1), &[rate * MB; 3]);
        vec![of(64 << 10, 60.0), of(MIB, 100.0), of(4 * MIB, 200.0)]
    };
    assert!(near(ceiling_of(cells(), MIB).total_rate, 100.0 * MB));
    assert!(near(ceiling_of(cells(), 4 * MIB).total_rate, 200.0 * MB));
    assert!(
        near(ceiling_of(cells(), 2 * MIB).total_rate, 200.0 * MB),
        "between two sizes, the next measured one counts"
    );
    assert!(near(ceiling_of(cells(), 64 << 10).total_rate, 60.0 * MB));
}

#[test]
fn processors_work_for_each_operation_and_longer_where_a_thread_sleeps_for_it() {
    let busy = |way, shape, seconds: f64| {
        let mut cell = cell(way, shape, &[100.0 * MB; 2]);
        let operations = (100 * MIB) as f64 / cell.shape.block_bytes as f64;
        cell.rounds.iter_mut().for_each(|round| round.cpu_seconds = operations * seconds);
        cell
    };
    let mut profile = profile();
    profile.places[0].cells = vec![
        busy(Access::Read, (64 << 10, 1, 1), 30e-6),
        busy(Access::Read, (64 << 10, 32, 1), 6e-6),
        busy(Access::Read, (MIB, 1, 1), 90e-6),
    ];
    profile.places[1].cells =
        vec![busy(Access::Write, (64 << 10, 1, 1), 30e-6), busy(Access::Write, (64 << 10, 4, 1), 10e-6)];
    profile.hand_overs = vec![HandOver { buffers: 1000, cpu_seconds: 0.025 }];
    let path =
        |transfer_bytes| profile.path(&Asked { database: DATABASE, media: &["/nowhere/a"], transfer_bytes }).path;
    let small = path(64 << 10);
    // A reader of the database has one read under way, a family several writes.
    assert!(near(small.database.read.processor * 65_536.0, 30e-6), "{}", small.database.read.processor * 65_536.0);
    assert!(near(small.media.write.processor * 65_536.0, 10e-6));
    assert!(near(path(MIB).database.read.processor * MIB as f64, 90e-6));
    assert!(near(small.machine.hand_over, 25e-6));
}

#[test]
fn tiny_jobs_give_the_fixed_costs_of_a_job() {
    let mut profile = profile();
    let (backup_s, restore_s) = (vec![0.3, 0.5, 0.4], vec![0.2]);
    profile.job_costs = vec![JobCost { media: 1, database: 1, plain_bytes: 4096, backup_s, restore_s }];
    let made =
        |profile: &Profile, media| profile.path(&Asked { database: DATABASE, media: &[media], transfer_bytes: MIB });
    let known = made(&profile, "/nowhere/a/app.bore");
    assert_eq!((known.path.fixed.backup, known.path.fixed.restore), (0.4, 0.2));
    let of = |parameter| known.uncertain.iter().find(|one| one.parameter == parameter).unwrap().deviation;
    let both = [Direction::Backup, Direction::Restore].map(|direction| of(Parameter::Start(direction)));
    assert_eq!(both, [profile.usual_deviation(); 2], "a few rounds have the scatter of all rounds");
    // The commit of its one stripe is counted for each stripe already.
    profile.places[1].cells[0].rounds.iter_mut().for_each(|round| round.sync_seconds = 0.1);
    assert!(near(made(&profile, "/nowhere/a").path.fixed.backup, 0.3));
    let elsewhere = made(&profile, "/elsewhere").path.fixed;
    assert_eq!((elsewhere.backup, elsewhere.restore), (0.0, 0.0), "no job was measured there");
}

#[test]
fn a_profile_that_was_made_before_jobs_were_measured_is_read() {
    let mut old = serde_json::to_value(profile()).unwrap();
    assert!(old.as_object_mut().unwrap().remove("job_costs").is_none(), "what was not measured is not written");
    let read = parse(&serde_json::to_vec(&old).unwrap()).unwrap();
    assert_eq!(read.job_costs, []);
    let fixed = read.path(&Asked { database: DATABASE, media: &["/nowhere/a"], transfer_bytes: MIB }).path.fixed;
    assert_eq!((fixed.backup, fixed.restore), (0.0, 0.0));
}

#[test]
fn a_store_is_known_by_its_requests_and_a_disk_by_its_ceilings() {
    let mut profile = profile();
    let puts = vec![
        cell(Access::Write, (8 * MIB, 1, 1), &[20.0 * MB; 2]),
        cell(Access::Write, (8 * MIB, 4, 1), &[70.0 * MB; 2]),
        cell(Access::Write, (16 * MIB, 4, 1), &[100.0 * MB; 2]),
        cell(Access::Read, (8 * MIB, 4, 1), &[90.0 * MB; 2]),
    ];
    let store = "s3://media/night/";
    profile.places.push(MeasuredPath { device: None, ..place(store, Use::Write, 0, puts) });
    let known = |media: &[&str]| profile.path(&Asked { database: DATABASE, media, transfer_bytes: MIB }).path;
    let path = known(&["s3://media/night/app-1.bore"]);
    assert_eq!((path.requests.write.len(), path.requests.read.len()), (3, 1));
    assert!(near(path.media.write.total_rate, 100.0 * MB));
    let of_a_part = 8.0 * MIB as f64 * (1.0 / (20.0 * MB) - 1.0 / (100.0 * MB));
    assert!(near(path.media.write.latency, of_a_part), "{}", path.media.write.latency);
    assert_eq!(known(&["/nowhere/a"]).requests, crate::throughput::Requests::default());
    assert_eq!(known(&["/nowhere/a", store]).requests.write, [], "one equation for both");
}

#[test]
fn the_model_predicts_from_a_profile() {
    let path = profile().path(&Asked { database: DATABASE, media: &["/nowhere/a"], transfer_bytes: MIB }).path;
    let configuration = Configuration {
        direction: Direction::Backup,
        plain_bytes: 1e12,
        extra: ExtraCost::default(),
        stripes: 1,
        database_streams: 4,
        queue_depth: 4,
        request_bytes: None,
        workers: 4,
        buffers: crate::throughput::Buffers::Split { input: 1000, output: 1000 },
        transfer_bytes: MIB as f64,
        codec: "lz4".into(),
        encrypted: false,
        throttle: None,
    };
    let foreseen = predict(&path, &configuration).unwrap();
    assert_eq!(foreseen.limit, Limit::Stripes);
    assert!((0.95..=1.0).contains(&(foreseen.rate / (200.0 * MB))), "100 MB/s of halves: {}", foreseen.rate);
}

#[test]
fn a_profile_comes_back_as_it_was_stored_and_that_of_root_is_for_everybody_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let [directory, old] = ["state/profiles", "profiles"].map(|name| folder.path().join(name));
    let (made, places) = (profile(), [directory.clone(), old.clone()]);
    save(&[old], &Profile { notes: vec!["old".into()], ..made.clone() }).unwrap();
    assert_eq!(load(&places, "default").unwrap().notes, ["old"], "where earlier versions kept it");
    let path = save(&places, &made).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    if rustix::process::geteuid().is_root() {
        assert_eq!((mode(&path), mode(&directory), mode(directory.parent().unwrap())), (0o644, 0o755, 0o755));
    } else {
        assert_eq!(mode(&path), 0o600);
    }
    assert_eq!(load(&places, "default").unwrap(), made);
    save(&places, &Profile { notes: vec!["again".into()], ..made }).unwrap();
    assert_eq!(load(&places, "default").unwrap().notes, ["again"]);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "no working file is left");
}

#[test]
fn all_profiles_are_listed_the_newest_first_and_a_file_that_is_none_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let places = ["state", "old"].map(|name| folder.path().join(name));
    let of = |name: &str, made_at: &str| Profile { name: name.into(), made_at: made_at.into(), ..profile() };
    save(&places[..1], &of("night", "2026-11-22T10:00:00.5Z")).unwrap();
    save(&places[..1], &of("day", "2026-11-24T10:00:00Z")).unwrap();
    save(&places[1..], &of("night", "2026-11-26T10:00:00Z")).unwrap();
    save(&places[1..], &of("first", "2026-11-20T10:00:00Z")).unwrap();
    std::fs::write(places[0].join("bad.json"), "no JSON").unwrap();
    std::fs::write(places[0].join(".day.new-1"), "a working file").unwrap();
    let (found, errors) = super::all(&places);
    let names: Vec<&str> = found.iter().map(|profile| profile.name.as_str()).collect();
    assert_eq!(names, ["day", "night", "first"], "the file in the first directory counts");
    assert!(errors.len() == 1 && errors[0].to_string().contains("bad.json"), "{errors:?}");
    assert_eq!(super::all(&[folder.path().join("none")]).0, []);
}

#[test]
fn a_profile_that_is_missing_or_has_an_impossible_name_is_a_usage_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = load(&[folder.path().to_owned()], "night").unwrap_err();
    assert_eq!(error.exit_kind().exit_code(), 2);
    let text = error.to_string();
    assert!(text.contains("no such profile") && text.contains("measure it: fullbore calibrate"), "{text}");
    for name in ["", ".", "..", ".hidden", "a/b", "a b", "é", &"x".repeat(65)] {
        assert!(check_name(name).is_err(), "{name}");
    }
    check_name("night-2.b_C").unwrap();
}

#[test]
fn a_profile_of_another_machine_is_refused_with_what_differs() {
    let made = profile();
    let here = Machine { cores: 96, cpu_model: "another".into(), ..made.machine.clone() };
    let text = made.check_machine(&here).unwrap_err().to_string();
    assert!(text.contains("96 (control group") && text.contains("`another`") && text.contains("hint: "), "{text}");
    let text =
        made.check_machine(&Machine { host_id: "0".into(), host: "db2".into(), ..here }).unwrap_err().to_string();
    assert!(text.contains("db2"), "{text}");
    let newer = Machine { kernel: "99".into(), ..made.machine.clone() };
    made.check_machine(&newer).unwrap();
    assert!(made.remark(&newer).unwrap().contains("99"));
}

#[test]
fn every_number_of_a_profile_is_bounded_when_it_is_read() {
    let text = serde_json::to_value(profile()).unwrap();
    let with = |pointer: &str, value: serde_json::Value| {
        let mut changed = text.clone();
        *changed.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        parse(&serde_json::to_vec(&changed).unwrap())
    };
    parse(&serde_json::to_vec(&text).unwrap()).unwrap();
    let cell = "/places/0/cells/0";
    for (pointer, value) in [
        ("/machine/cores".to_owned(), 0.into()),
        ("/settings/seconds".to_owned(), (-1.0).into()),
        (format!("{cell}/shape/block_bytes"), 0.into()),
        (format!("{cell}/shape/queue_depth"), u64::MAX.into()),
        (format!("{cell}/shape/streams"), 0.into()),
        (format!("{cell}/rounds/0/bytes"), 0.into()),
        (format!("{cell}/rounds/0/bytes"), u64::MAX.into()),
        (format!("{cell}/rounds/0/seconds"), 0.0.into()),
        (format!("{cell}/rounds/0/seconds"), 1e300.into()),
        (format!("{cell}/rounds/0/sync_seconds"), 1e9.into()),
        ("/codecs/0/stored_share".to_owned(), 7.0.into()),
        ("/codecs/0/codec".to_owned(), "brotli".into()),
        ("/codecs/0/threads".to_owned(), 0.into()),
    ] {
        let why = with(&pointer, value).unwrap_err();
        assert!(why.contains("cannot be right"), "{pointer}: {why}");
    }
    let why = with("/version", 2.into()).unwrap_err();
    assert!(why.contains("version 2") && why.contains("reads 1"), "{why}");
    let cost = |media: usize, seconds: f64| {
        let one = serde_json::json!({
            "media": media, "database": 0, "plain_bytes": 1, "backup_s": [seconds], "restore_s": []
        });
        let of = serde_json::json!([one]);
        let mut changed = text.clone();
        changed["job_costs"] = of;
        parse(&serde_json::to_vec(&changed).unwrap())
    };
    cost(1, 0.3).unwrap();
    assert!(cost(2, 0.3).unwrap_err().contains("job_costs.media") && cost(1, 0.0).unwrap_err().contains("job_costs"));
    let pair = serde_json::json!([{"read": 0, "written": 9, "block_bytes": 4096, "queue_depth": 1, "rounds": []}]);
    assert!(with("/together", pair).unwrap_err().contains("together.written"));
    assert!(with("/notes", serde_json::json!([0])).unwrap_err().contains("not a calibration profile"));
    let mut more = text.clone();
    more["places"][0]["cells"][0]["shape"]["colour"] = "red".into();
    assert!(parse(&serde_json::to_vec(&more).unwrap()).unwrap_err().contains("colour"));
    assert!(parse(b"{").is_err() && parse(b"").is_err());
}
