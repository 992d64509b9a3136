//! Golden log sets: `sqlite_log/` of each version of the format has a full, two log sets with several commits, and `digests`: BLAKE3 of the file that they restore to, at the
//! newest commit and at times (microseconds since 1970).
//!
//! Nobody writes them again. `write_the_golden_log_sets` writes the directory of a new version.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::database::{self, Shape};
use crate::golden::{self, VERSIONS, digest, python};
use crate::log::kept_open;
use crate::world::World;

const SETS: [&str; 3] = ["full.bore", "log-1.bore", "log-2.bore"];

fn media(version: &str) -> PathBuf {
    golden::media(version).join("sqlite_log")
}

/// Times in microseconds, `None` for the newest, each with the digest of what they restore to.
fn expected(version: &str) -> Vec<(Option<i64>, String)> {
    let text = fs::read_to_string(media(version).join("digests")).unwrap();
    let parts = text.lines().map(|line| line.split_once(' ').unwrap());
    parts.map(|(time, digest)| (time.parse().ok(), digest.to_owned())).collect()
}

fn show(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros).unwrap().to_string()
}

fn with_media(version: &str) -> World {
    let world = World::new();
    for name in SETS {
        fs::copy(media(version).join(name), world.at("a").join(name)).unwrap();
    }
    world
}

#[test]
fn golden_log_sets_restore_to_what_they_always_did() {
    for version in VERSIONS {
        let world = with_media(version);
        world.run("verify --from a").done();
        for (time, digest_then) in expected(version) {
            let stop = time.map_or_else(String::new, |time| format!("--stop-at {}", show(time)));
            world.run(&format!("restore --from a --into sqlite:copy.db --integrity-check {stop}")).done();
            assert_eq!(digest(&world.at("copy.db")), digest_then, "{version} {stop}");
            fs::remove_file(world.at("copy.db")).unwrap();
        }
    }
}

#[test]
fn golden_log_sets_restore_with_the_independent_reader_too() {
    for version in VERSIONS {
        let world = with_media(version);
        for (number, (time, digest_then)) in expected(version).into_iter().enumerate() {
            let into = format!("into-{number}");
            fs::create_dir(world.at(&into)).unwrap();
            let stop = time.map_or_else(String::new, |time| format!("--stop-at {time}"));
            let line = format!("a/full.bore --stream-into {into} --log a/log-1.bore --log a/log-2.bore {stop}");
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let Some(ended) = python(&world, "golden log sets with the independent reader", &arguments) else { return };
            ended.done();
            assert_eq!(digest(&world.at(&into).join("golden.db")), digest_then, "{version} {stop}");
        }
    }
}

#[test]
#[ignore = "writes golden media of a new version of the format"]
fn write_the_golden_log_sets() {
    let media = golden::new_media("sqlite_log");
    let world = World::new();
    database::make(&world.at("app.db"), Shape { rows: 20, page_size: 512, ..Shape::default() });
    database::sql(&world.at("app.db"), "DROP TABLE words; VACUUM");
    fs::rename(world.at("app.db"), world.at("golden.db")).unwrap();
    std::os::unix::fs::symlink("golden.db", world.at("app.db")).unwrap();
    let app = kept_open(&world);
    app.execute_batch("CREATE TABLE ledger (n INTEGER PRIMARY KEY); INSERT INTO ledger VALUES (0)").unwrap();
    world.run("backup sqlite:golden.db --to a/full.bore --block-size 512 --max-transfer-size 64KiB").done();
    let mut times = Vec::new();
    for round in 1..=2 {
        let line = "log follow sqlite:golden.db --base a --to a/ --interval 30s --for 2s";
        let follower = world.start(&format!("{line} --name-template log-{round}.bore --compression zstd:3"));
        std::thread::sleep(Duration::from_millis(700));
        for n in 0..3 {
            app.execute_batch(&format!(
                "INSERT INTO ledger VALUES ({}); UPDATE item SET name = 'round {round}' WHERE id = {n}",
                round * 10 + n
            ))
            .unwrap();
            std::thread::sleep(Duration::from_millis(150));
            times.push(jiff::Timestamp::now().as_microsecond());
        }
        if round == 1 {
            // The second set is of another log.
            app.execute_batch("DELETE FROM item WHERE id > 10; PRAGMA wal_checkpoint(PASSIVE)").unwrap();
        }
        follower.wait().done();
    }
    let mut digests = String::new();
    for time in times.iter().map(|&time| Some(time)).chain([None]) {
        let stop = time.map_or_else(String::new, |time| format!("--stop-at {}", show(time)));
        let restored = world.run(&format!("restore --from a --into sqlite:copy.db {stop}"));
        if restored.code == 0 {
            let name = time.map_or_else(|| "newest".to_owned(), |time| time.to_string());
            digests += &format!("{name} {}\n", digest(&world.at("copy.db")));
            fs::remove_file(world.at("copy.db")).unwrap();
        }
    }
    for name in SETS {
        fs::copy(world.at("a").join(name), media.join(name)).unwrap();
    }
    fs::write(media.join("digests"), digests).unwrap();
    let bytes: u64 = fs::read_dir(&media).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < 100 << 10, "{bytes} bytes of golden log sets");
}
