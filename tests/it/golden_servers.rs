//! Golden media of servers: open sets that a real MySQL and a real MariaDB gave, restorable for ever, and startable as long as the series can
//! be had. `format_v0/servers/` has them, with `digests`: one BLAKE3 for all files (names and bytes) that each set restores to.
//!
//! Nobody writes them again. [`golden_kinds`](crate::golden_kinds) has the servers' sets of version 1.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_test_servers::{Kind, Options, Server};

use crate::golden::{self, files_below, python};
use crate::world::World;

/// Set, what it is based on, and the server that gave it.
const SETS: [(&str, Option<&str>, Kind); 3] = [
    ("mariadb", None, Kind::Mariadb10),
    ("mariadb-diff", Some("mariadb"), Kind::Mariadb10),
    ("mysql", None, Kind::Mysql9),
];
/// What the servers' tables hold; the differential has one row more.
const ASKED: &str = "SELECT COUNT(*), SUM(id), MAX(t) FROM golden.item";

fn media() -> PathBuf {
    golden::media("format_v0").join("servers")
}

/// A world with a copy of the media in `a/`.
pub fn with_media() -> World {
    let world = World::new();
    for path in fs::read_dir(media()).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "bore") {
            fs::copy(&path, world.at("a").join(path.file_name().unwrap())).unwrap();
        }
    }
    world
}

/// `--from` for both families of a set, and of its base.
fn from(set: &str, base: Option<&str>) -> String {
    let families = [Some(set), base].into_iter().flatten().flat_map(|set| (1..=2).map(move |family| (set, family)));
    families.map(|(set, family)| format!("--from a/{set}-{family}.bore ")).collect()
}

/// One digest of all files below `root`; empty files too, but not directories.
pub fn digest(root: &Path) -> String {
    let mut hasher = blake3::Hasher::new();
    for (path, bytes) in files_below(root) {
        hasher.update(format!("{} {}\n", path.display(), blake3::hash(&bytes).to_hex()).as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Digest, and what the tables hold.
fn expected(set: &str) -> (String, String) {
    let line = golden::expected(&media(), set);
    let (digest, rows) = line.split_once(' ').unwrap();
    (digest.to_owned(), rows.to_owned())
}

/// Where root's password of the server that gave a set is: it is in the set's own tables.
fn password(kind: Kind) -> PathBuf {
    media().join(if kind == Kind::Mysql9 { "password-of-mysql" } else { "password-of-mariadb" })
}

fn options(kind: Kind) -> Options {
    let options = Options::new().page_size("4k").redo("8M");
    if kind == Kind::Mysql9 { options } else { options.option("innodb-log-buffer-size=2M") }
}

#[test]
fn golden_media_of_servers_restore_to_what_they_always_did_and_the_servers_start() {
    let world = with_media();
    for (set, base, kind) in SETS {
        let from = from(set, base);
        world.run(&format!("verify {from}")).done();
        world.run(&format!("restore {from} --into dir:{set}")).done();
        let (files, rows) = expected(set);
        assert_eq!(digest(&world.at(set)), files, "{set}");
        let server = Server::start(kind, &options(kind).datadir(&world.at(set)).password_file(&password(kind)));
        assert_eq!(server.sql(ASKED).trim(), rows, "{set}");
    }
}

/// What can be wrong with a directory that a killed restore has left.
fn spoiled(left: &Path, round: usize) {
    let files: Vec<PathBuf> = files_below(left).into_keys().map(|path| left.join(path)).collect();
    for (at, path) in files.iter().enumerate().filter(|_| round > 0) {
        let size = fs::metadata(path).unwrap().len();
        let file = fs::File::options().write(true).open(path).unwrap();
        match (at + round) % 5 {
            0 => fs::remove_file(path).unwrap(),
            1 => file.set_len(size / 2).unwrap(),
            2 => file.set_len(size + 70_000).unwrap(),
            3 => [0, size / 2].map(|offset| file.write_all_at(b"spoiled", offset).unwrap()).into_iter().collect(),
            _ => {}
        }
    }
    fs::create_dir_all(left.join("golden/of nobody")).unwrap();
    fs::write(left.join("golden/of nobody/item.ibd"), "a table of nobody's").unwrap();
    fs::write(left.join("ib_of_nobody"), "a log of nobody's").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", left.join("link")).unwrap();
}

#[test]
fn a_restore_over_leftovers_of_a_killed_one_gives_the_golden_result() {
    let world = with_media();
    for (set, base, _) in SETS {
        let from = from(set, base);
        world.run(&format!("restore {from} --into dir:{set}")).done();
        let left = world.at(&format!("{set}.restoring-0198f3a0-0000-4000-8000-000000000001"));
        for round in [0, 1, 3] {
            fs::rename(world.at(set), &left).unwrap();
            spoiled(&left, round);
            let ended = world.run(&format!("restore {from} --into dir:{set} --resume --report json")).done();
            assert_eq!(digest(&world.at(set)), expected(set).0, "{set}, round {round}");
            assert!(!left.exists(), "{ended}");
            let resumed = &ended.json()["resumed"];
            let number = |field: &str| resumed[field].as_u64().unwrap();
            assert!(number("kept_bytes") > if round == 0 { 8 << 20 } else { 0 }, "{ended}");
            assert!(round == 0 || number("fetched_blocks") > 0, "{ended}");
        }
        fs::rename(world.at(set), &left).unwrap();
        let running = fullbore_core::io::LockableFile::from(fs::File::open(&left).unwrap());
        running.try_lock().unwrap();
        let refused = world.run(&format!("restore {from} --into dir:{set} --resume"));
        refused.refused(1, ".restoring-", "a running restore").says(&["wait until"]);
        drop(running);
        fs::remove_dir_all(&left).unwrap();
    }
}

#[test]
fn a_restore_of_a_server_that_is_killed_again_and_again_comes_to_its_end() {
    let world = with_media();
    let (set, base, _) = SETS[1];
    let line = format!("restore {} --into dir:{set} --resume", from(set, base));
    let begun = Instant::now();
    world.run(&line).done().says(&["no leftover of an interrupted restore"]);
    let whole = begun.elapsed();
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..3 {
        fs::remove_dir_all(world.at(set)).unwrap();
        for _ in 0..4 {
            let running = world.start(&line);
            std::thread::sleep(whole.mul_f64(random.f64()));
            running.signal("KILL");
            let ended = running.wait();
            assert!([0, -9].contains(&ended.code), "{ended}");
            if world.at(set).exists() {
                break;
            }
        }
        if !world.at(set).exists() {
            world.run(&line).done();
        }
        assert_eq!(digest(&world.at(set)), expected(set).0, "round {round}");
        for name in world.names(".").into_iter().filter(|name| name.contains(".restoring-")) {
            fs::remove_dir_all(world.at(&name)).unwrap(); // What was killed before it held anything.
        }
    }
}

#[test]
fn golden_media_of_servers_restore_with_the_independent_reader_too() {
    let world = with_media();
    for (set, base, _) in SETS {
        world.run(&format!("restore {} --into dir:{set}", from(set, base))).done();
        let mut line = format!("a/{set}-1.bore a/{set}-2.bore --stream-into {set}-again");
        if let Some(base) = base {
            line += &format!(" --base a/{base}-1.bore a/{base}-2.bore");
        }
        fs::create_dir(world.at(&format!("{set}-again"))).unwrap();
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let Some(ended) = python(&world, "golden media of servers with the independent reader", &arguments) else {
            return;
        };
        ended.done();
        let mut files = files_below(&world.at(set));
        files.retain(|path, _| !path.starts_with("#clone")); // The engine's own marks.
        assert!(files == files_below(&world.at(&format!("{set}-again"))), "{set}");
    }
}
