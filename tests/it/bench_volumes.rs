//! `fullbore bench` on volumes that are block devices: they keep their rates, and nothing of them is left. Where the machine makes none,
//! each test says so.

use std::path::Path;
use std::time::{Duration, Instant};

use fullbore_test_servers::wait_until;
use serde_json::Value;

use crate::bench_matrix::{records, world};
use crate::program;
use crate::world::World;

/// Backups and restores of 8 MiB on volumes of 16 MiB/s.
const SLOW: &str = "repetitions = 1\nwarm-up = 0\n[data.small]\nsize = \"8MiB\"\nrandom = 1.0\n[volume.slow]\nrate = \"16MiB/s\"\n[axes]\ncodec = \"none\"\n";
/// One backup to a volume so slow that it does not end by itself.
const ENDLESS: &str = "volumes = \"block\"\nrepetitions = 1\nwarm-up = 0\n[data.small]\nsize = \"8MiB\"\nrandom = 1.0\n[volume.slow]\nrate = \"64KiB/s\"\n[axes]\nmedia-volume = \"slow\"\ncodec = \"none\"\n";

/// This machine makes block devices; else the test is skipped, and says why.
fn allowed(test: &str) -> bool {
    let world = world(&format!("volumes = \"block\"\n{SLOW}media-volume = \"slow\"\n"));
    // A dry run would only say what can be seen, and some machines show more than they permit.
    let ended = world.run("bench m.toml");
    let refused = ended.err.contains("volumes = \"block\"");
    if refused {
        program::skipped(test, &ended.err);
    }
    !refused
}

/// Loop devices and mounts whose image or directory is in the world.
fn left(world: &World) -> Vec<String> {
    let here = world.folder().display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut left: Vec<String> = mounts.lines().filter(|line| line.contains(&here)).map(str::to_owned).collect();
    for device in std::fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path()) {
        let backing = std::fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
        if backing.contains(&here) {
            left.push(format!("{} on {backing}", device.display()));
        }
    }
    left
}

#[track_caller]
fn assert_swept(world: &World) {
    assert_eq!(left(world), Vec::<String>::new());
    assert_eq!(world.names("fullbore-bench"), ["data"]);
}

#[test]
fn block_devices_keep_their_rate_under_databases_and_media_and_are_gone_after_the_run() {
    if !allowed("block_devices_keep_their_rate_under_databases_and_media_and_are_gone_after_the_run") {
        return;
    }
    let world = world(&format!(
        "{SLOW}operation = [\"backup\", \"restore\"]\nvolume = [\"none\", \"slow\"]\nmedia-volume = [\"none\", \"slow\"]\n"
    ));
    let ended = world.run("bench m.toml").done().says(&["volume slow: a loop device with direct I/O"]);
    assert!(ended.text().contains("loop devices that the kernel throttles"), "{ended}");
    let records = records(&world);
    assert_eq!(records.len(), 8);
    for record in &records {
        let volumes = record["volumes"].as_array().unwrap();
        assert!(volumes.iter().all(|volume| volume["how"] == "block device"), "{record}");
        // 8 MiB at 16 MiB/s; the kernel lets its first slices of 0.1 s pass.
        let least = if volumes.is_empty() { 0.0 } else { 0.3 };
        assert!(record["seconds"].as_f64().unwrap() >= least, "{record}");
    }
    assert_swept(&world);
}

#[test]
fn every_device_has_a_volume_of_its_own() {
    if !allowed("every_device_has_a_volume_of_its_own") {
        return;
    }
    let world = world(&format!("{ENDLESS}devices = 4\nstripes = 4\n"));
    let running = world.start("bench m.toml");
    wait_until("each device has media", || (1..=4).all(|device| has_media(&world, device)));
    let left = left(&world);
    for device in 1..=4 {
        let volume = format!("/media-{device}/volume ");
        assert!(left.iter().any(|mount| mount.contains(&volume)), "{device}: {left:?}");
    }
    assert_eq!(left.iter().filter(|one| one.starts_with("/sys/block/")).count(), 4, "{left:?}");
    running.signal("TERM");
    running.wait();
    assert_swept(&world);
}

#[test]
fn throttling_that_is_not_permitted_is_done_in_process_and_the_report_says_why() {
    let world = world(&format!("{SLOW}media-volume = \"slow\"\n"));
    if program::is_root() {
        world.run_as_nobody("bench m.toml").done().says(&["emulated in process", "throttling is not permitted"]);
        let record = &records(&world)[0];
        assert_eq!(record["volumes"][0]["how"], "in process");
        assert!(record["volumes"][0]["why"].as_str().unwrap().contains("not permitted"), "{record}");
        assert!(record["seconds"].as_f64().unwrap() > 0.3, "{record}");
        let page = world.text("m-results/report.html");
        assert!(page.contains("throttling is not permitted"));
    }
    let only = self::world(&format!("volumes = \"block\"\n{SLOW}media-volume = \"slow\"\n"));
    let refused = only.run_as_nobody("bench m.toml").refused(1, "volumes = \"block\"", "throttling is not permitted");
    assert!(!only.at("fullbore-bench").exists(), "nothing was begun: {refused}");
}

#[test]
fn a_volume_with_latency_stays_in_process_and_says_so() {
    let world = world(&SLOW.replace("[axes]", "latency-ms = 1\n[axes]\nmedia-volume = \"slow\""));
    world.run("bench m.toml").done();
    let volume = &records(&world)[0]["volumes"][0];
    assert_eq!(volume["how"], "in process");
}

fn media_under_way(world: &World) -> bool {
    has_media(world, 1)
}

fn has_media(world: &World, device: u32) -> bool {
    let media = world.at(&format!("fullbore-bench/fullbore-bench-run/media-{device}/volume"));
    let is_media = |name: &Path| name.to_string_lossy().contains("bore");
    std::fs::read_dir(media).is_ok_and(|mut names| names.any(|name| name.is_ok_and(|name| is_media(&name.path()))))
}

#[test]
fn an_interrupted_run_waits_for_no_volume_and_leaves_none() {
    if !allowed("an_interrupted_run_waits_for_no_volume_and_leaves_none") {
        return;
    }
    for signal in ["INT", "TERM"] {
        let world = world(ENDLESS);
        let running = world.start("bench m.toml");
        wait_until("media under way", || media_under_way(&world));
        std::thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        running.signal(signal);
        let ended = running.wait();
        assert!([130, 143].contains(&ended.code), "{ended}");
        assert!(begun.elapsed() < Duration::from_secs(60), "8 MiB would take two minutes: {:?}", begun.elapsed());
        assert_swept(&world);
    }
}

#[test]
fn a_loop_device_has_its_requests_back_when_the_volume_goes() {
    if !allowed("a_loop_device_has_its_requests_back_when_the_volume_goes") {
        return;
    }
    // Requests that nobody else here asks for.
    let world = world(&ENDLESS.replace("[axes]", "iops = 1000\nio-size = \"64KiB\"\n[axes]"));
    let running = world.start("bench m.toml");
    wait_until("media under way", || media_under_way(&world));
    let here = world.folder().display().to_string();
    let devices = std::fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path());
    let backing = |device: &Path| std::fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
    let device = devices.into_iter().find(|device| backing(device).contains(&here)).unwrap();
    let request = || std::fs::read_to_string(device.join("queue/max_sectors_kb")).unwrap();
    assert_eq!(request(), "64\n");
    running.signal("TERM");
    running.wait();
    assert_ne!(request(), "64\n");
    assert_swept(&world);
}

#[test]
fn the_next_bench_in_any_directory_removes_volumes_of_a_killed_one() {
    if !allowed("the_next_bench_in_any_directory_removes_volumes_of_a_killed_one") {
        return;
    }
    let world = world(ENDLESS);
    let running = world.start("bench m.toml");
    wait_until("media under way", || media_under_way(&world));
    running.signal("KILL");
    running.wait();
    // What is left now, the next bench takes away: that of a test beside this one, or this with another work directory: what is dead is known by its lock.
    world.write("m.toml", format!("{SLOW}media-volume = \"slow\"\n").as_bytes());
    world.run("bench m.toml --work other --out other-results").done();
    assert_eq!(left(&world), Vec::<String>::new());
    world.write("m.toml", SLOW.as_bytes());
    world.run("bench m.toml --resume").done();
    assert_swept(&world);
}

/// The published question: "70 MB/s where the disk writes 120". Here a volume that takes 2.4 MiB/s, each operation 120 ms: with one at a time it
/// gives a quarter of that. So slow that what this machine takes besides hardly counts.
#[test]
fn a_queue_too_shallow_is_named_beside_the_raw_path_and_the_printed_flags_cure_it() {
    let matrix = |knobs: &str| {
        format!(
            "volumes = \"in-process\"\nraw-path = true\nrepetitions = 1\nwarm-up = 0\n[data.small]\nsize = \"8MiB\"\nrandom = 1.0\n\
             [volume.far]\nrate = \"2500KiB/s\"\nlatency-ms = 120\n[axes]\nmedia-volume = \"far\"\ncodec = \"none\"\nstripes = 1\n{knobs}"
        )
    };
    let world = world(&matrix("queue-depth = 1\nmax-transfer-size = \"64KiB\"\n"));
    world.run("bench m.toml").done();
    let shallow = records(&world).remove(0);
    assert_eq!(shallow["verdict"]["limit"], "shallow queue", "{shallow}");
    let advice = shallow["verdict"]["what_if"][0].as_str().unwrap();
    let flags = advice.split_once(" → ").unwrap().0;
    let words: Vec<&str> = flags.split_whitespace().collect();
    let knobs: String =
        words.chunks(2).map(|flag| format!("{} = \"{}\"\n", flag[0].trim_start_matches('-'), flag[1])).collect();
    world.write("m.toml", matrix(&knobs).as_bytes());
    world.run("bench m.toml --out cured").done();
    let text = world.text("cured/results.jsonl");
    let cured: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let speed = |record: &Value| record["mib_per_s"].as_f64().unwrap();
    assert!(speed(&cured) > 2.0 * speed(&shallow), "{advice}: {} {}", speed(&shallow), speed(&cured));
    assert_ne!(cured["verdict"]["limit"], "shallow queue", "{cured}");
}
