//! Copies of servers' backups: open sets, whose files appear and grow while they are read, with layers over each other.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fullbore_test_servers::{Kind, Options, Server};

use crate::world::World;

/// Every file below a directory, by its path.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Restored from the copy, the directory is the one that is restored from the original, file by file and byte by byte.
#[track_caller]
fn assert_same_directory(world: &World, one: &str, other: &str) {
    let restored = |from: &str, into: &str| {
        let ended = world.run(&format!("restore {from} --into dir:{into}"));
        assert!([0, 4].contains(&ended.code), "{ended}");
        let found = files(&world.at(into));
        fs::remove_dir_all(world.at(into)).unwrap();
        found
    };
    let (one, other) = (restored(one, "one"), restored(other, "other"));
    assert!(one.len() > 5, "{:?}", one.keys());
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (name, bytes) in &one {
        assert!(*bytes == other[name], "{name} differs");
    }
}

/// A full in `a/`, and after some changes a differential; copied, re-striped, encrypted, and taken a differential of again.
fn copies(world: &World, backup: &dyn Fn(&str), change: &dyn Fn(u32)) {
    world.run("key new --no-recovery k.key").done();
    backup("--to a/ --compression none");
    change(1);
    backup("--to a/ --kind differential --base a --stripes 2");
    for (to, options, key) in [
        ("same", "", ""),
        ("narrow", "--stripes 1 --compression lz4", ""),
        ("wide", "--stripes 5 --encrypt-to k.key.pub", "--key k.key"),
    ] {
        let report = world.run(&format!("copy --from a --to {to}/ --mkdir {options} --report json")).done().json();
        assert_eq!(report["copied"].as_array().unwrap().len(), 2);
        let verified = world.run(&format!("verify --from {to} {key}"));
        assert!([0, 4].contains(&verified.code), "{verified}");
        assert_same_directory(world, "--from a", &format!("--from {to} {key}"));
    }
    // A differential based on a copy also restores over the original: the copy has the same page map and seed.
    change(2);
    backup("--to b/ --kind differential --base narrow");
    assert_same_directory(world, "--from narrow --from b", "--from a --from b");
}

#[test]
fn a_mariadb_server_is_copied_in_other_stripes_and_under_a_key() {
    let world = World::new();
    let server = Server::start(Kind::Mariadb11, &Options::new());
    server.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE t (id INT PRIMARY KEY, pad VARCHAR(300)) ENGINE=InnoDB; \
         INSERT INTO t SELECT seq, REPEAT(MD5(seq), 8) FROM seq_1_to_20000; \
         CREATE TABLE aria (id INT PRIMARY KEY, v INT) ENGINE=Aria; INSERT INTO aria SELECT seq, seq FROM seq_1_to_500",
    );
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    let url = format!("mariadb://root@127.0.0.1:{}", server.port());
    let backup = |options: &str| {
        let ended = world.run(&format!("backup {url} --password-file password {options}"));
        assert!([0, 4].contains(&ended.code), "{ended}"); // A server without a binary log is warned of.
    };
    let change = |round: u32| {
        server.sql(&format!(
            "USE shop; UPDATE t SET pad = REVERSE(pad) WHERE id % 17 = {round}; \
             CREATE TABLE new{round} (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO new{round} SELECT seq FROM seq_1_to_300"
        ));
    };
    copies(&world, &backup, &change);
}

#[test]
fn a_mysql_server_is_copied_in_other_stripes_and_under_a_key() {
    let world = World::new();
    let server = Server::start(Kind::Mysql9, &Options::new());
    server.sql(
        "INSTALL PLUGIN clone SONAME 'mysql_clone.so'; CREATE DATABASE shop; USE shop; SET SESSION cte_max_recursion_depth = 100000; \
         CREATE TABLE shop.t (id INT PRIMARY KEY, pad VARCHAR(300)); INSERT INTO shop.t \
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000) SELECT n, REPEAT(SHA2(n, 256), 4) FROM n",
    );
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    let url = format!("mysql://root@127.0.0.1:{}", server.port());
    let backup = |options: &str| {
        let ended = world.run(&format!("backup {url} --password-file password {options}"));
        assert!([0, 4].contains(&ended.code), "{ended}"); // A server without a binary log is warned of.
    };
    let change = |round: u32| {
        server.sql(&format!(
            "USE shop; UPDATE shop.t SET pad = REVERSE(pad) WHERE id % 17 = {round}; CREATE TABLE shop.new{round} LIKE shop.t; \
             INSERT INTO shop.new{round} SELECT * FROM shop.t WHERE id < 300"
        ));
    };
    copies(&world, &backup, &change);
}
