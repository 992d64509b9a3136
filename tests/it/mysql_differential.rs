//! Differentials of a real MySQL: what changed since a full, under writers and DDL, and back to a server that starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use fullbore_test_servers::{Kind, Options, Server, SetAtEnd, wait_until};

use crate::golden::python;
use crate::program::Ended;
use crate::world::World;

const ACCOUNTS: u32 = 2000;

/// A server with accounts in four tables, a large table, and others for DDL; its password file in the world's folder.
fn server(world: &World) -> Server {
    let server = Server::start(Kind::Mysql9, &Options::new().binlog());
    server.sql(
        "INSTALL PLUGIN clone SONAME 'mysql_clone.so'; CREATE DATABASE shop; SET SESSION cte_max_recursion_depth = 100000; \
         CREATE TABLE shop.account0 (id INT PRIMARY KEY, amount BIGINT NOT NULL, note VARCHAR(200)); \
         INSERT INTO shop.account0 WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 1999) SELECT n, 1000, REPEAT('x', 150) FROM n; \
         CREATE TABLE shop.large (id INT AUTO_INCREMENT PRIMARY KEY, body VARBINARY(2000)); \
         INSERT INTO shop.large (body) SELECT RANDOM_BYTES(1000) FROM shop.account0; \
         INSERT INTO shop.large (body) SELECT RANDOM_BYTES(1000) FROM shop.large; \
         INSERT INTO shop.large (body) SELECT RANDOM_BYTES(1000) FROM shop.large; \
         INSERT INTO shop.large (body) SELECT RANDOM_BYTES(1000) FROM shop.large; \
         CREATE TABLE shop.zipped (id INT PRIMARY KEY, v VARCHAR(200)) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8; \
         INSERT INTO shop.zipped SELECT id, note FROM shop.account0; \
         CREATE TABLE shop.tiny (id INT PRIMARY KEY, v VARCHAR(200)) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=2; \
         INSERT INTO shop.tiny SELECT id, note FROM shop.account0; \
         CREATE TABLE shop.punched (id INT PRIMARY KEY, v VARCHAR(200)) COMPRESSION='zlib'; \
         INSERT INTO shop.punched SELECT id, note FROM shop.account0; \
         CREATE TABLE shop.parts (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 3; \
         INSERT INTO shop.parts SELECT id, id FROM shop.account0;",
    );
    for table in 1..4 {
        server.sql(&format!("CREATE TABLE shop.account{table} AS SELECT * FROM shop.account0"));
        server.sql(&format!("ALTER TABLE shop.account{table} ADD PRIMARY KEY (id)"));
    }
    for name in ["dropped", "renamed", "truncated", "rebuilt"] {
        server.sql(&format!(
            "CREATE TABLE shop.{name} LIKE shop.account0; INSERT INTO shop.{name} SELECT * FROM shop.account0"
        ));
    }
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    server
}

/// Copies rows without locking them: a deadlock with those who move money would end a statement that must not fail.
const NO_LOCKS: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

fn ddl(server: &Server, suffix: &str) {
    server.sql(&format!(
        "{NO_LOCKS}; DROP TABLE shop.dropped{suffix}; RENAME TABLE shop.renamed{suffix} TO shop.`named otherwise{suffix}`; TRUNCATE TABLE shop.truncated{suffix}; \
         INSERT INTO shop.truncated{suffix} SELECT * FROM shop.account0 WHERE id < 9; ALTER TABLE shop.rebuilt{suffix} ADD COLUMN extra INT, ENGINE=InnoDB; \
         CREATE TABLE shop.created{suffix} LIKE shop.account0; INSERT INTO shop.created{suffix} SELECT * FROM shop.account0; \
         DELETE FROM shop.zipped WHERE id % 7 = 0; DELETE FROM shop.tiny WHERE id % 9 = 0; DELETE FROM shop.punched WHERE id % 11 = 0"
    ));
}

/// Runs `work` while money moves between the accounts and tables come and go: before, during and after it.
fn under_load<T>(server: &Server, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let (moves, rounds) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let _ends = SetAtEnd(&stop);
        for seed in 0..2 {
            let (stop, moves) = (&stop, &moves);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !stop.load(Ordering::Relaxed) {
                    let (from, to) = (random.u32(..4), random.u32(..4));
                    let (one, other) = (random.u32(..ACCOUNTS), random.u32(..ACCOUNTS));
                    // A deadlock is rolled back.
                    let _ = server.try_sql(&format!(
                        "BEGIN; UPDATE shop.account{from} SET amount = amount - 7 WHERE id = {one}; \
                         UPDATE shop.account{to} SET amount = amount + 7, note = UUID() WHERE id = {other}; COMMIT"
                    ));
                    moves.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (stopped, counted) = (&stop, &rounds);
        scope.spawn(move || {
            let mut random = fastrand::Rng::new();
            while !stopped.load(Ordering::Relaxed) {
                let name = format!("t{}", random.u64(..));
                server.sql(&format!(
                    "{NO_LOCKS}; CREATE TABLE shop.{name} LIKE shop.account0; INSERT INTO shop.{name} SELECT * FROM shop.account0; \
                     RENAME TABLE shop.{name} TO shop.{name}x; TRUNCATE TABLE shop.{name}x; ALTER TABLE shop.parts ENGINE=InnoDB; DROP TABLE shop.{name}x"
                ));
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let now = || (moves.load(Ordering::Relaxed), rounds.load(Ordering::Relaxed));
        wait_until("writers and DDL run", || now().0 >= 10 && now().1 >= 1);
        let done = work();
        let (moved, _) = now();
        wait_until("more is written after it", || now().0 >= moved + 10);
        done
    })
}

fn checksums(server: &Server) -> String {
    let tables = server.sql(
        "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables \
         WHERE table_type = 'BASE TABLE' AND table_schema = 'shop' ORDER BY 1",
    );
    let tables: Vec<&str> = tables.lines().collect();
    assert!(tables.len() > 9, "{tables:?}");
    let list = tables.join(", ");
    let broken = server.sql(&format!("CHECK TABLE {list}"));
    assert!(broken.lines().all(|line| line.ends_with("\tOK")), "{broken}");
    server.sql(&format!("CHECKSUM TABLE {list}"))
}

fn backup(world: &World, server: &Server, options: &str) -> Ended {
    world.run(&format!(
        "backup mysql://root@127.0.0.1:{} --password-file password --report json {options}",
        server.port()
    ))
}

fn start_on(path: &Path, source: &Server) -> Server {
    let options = Options::new().binlog().datadir(path).password_file(source.password_file().unwrap());
    Server::start(Kind::Mysql9, &options)
}

/// Where the first start of a restored server says that it was: file and offset of the binary log, and the set of GTIDs.
fn recovered(path: &Path) -> (String, u64, String) {
    let text = fs::read_to_string(path.join("#clone/#status_recovery")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    (lines[2].trim_start_matches("./").to_owned(), lines[3].parse().unwrap(), lines[4..].concat())
}

/// Gives `restored` what the source has committed since.
fn catch_up(restored: &Server, source: &Server, gtids: &str) {
    let names = source.sql("SHOW BINARY LOGS");
    let paths: Vec<PathBuf> =
        names.lines().filter_map(|line| line.split('\t').next()).map(|name| source.datadir().join(name)).collect();
    let mut reading = source.program("mysqlbinlog");
    reading.arg(format!("--exclude-gtids={gtids}")).args(paths).stdout(Stdio::piped());
    let mut reading = reading.spawn().unwrap();
    let applied = restored.client().arg("--binary-mode").stdin(reading.stdout.take().unwrap()).status().unwrap();
    assert!(applied.success() && reading.wait().unwrap().success());
}

/// The independent reader makes the same files of the set as `restore` did, but for marks of the engine.
fn assert_python_agrees(world: &World, copy: &str, sets: &[&str]) {
    fs::create_dir(world.at("streams")).unwrap();
    let families = |directory: &str| {
        world.names(directory).into_iter().map(|name| format!("{directory}/{name}")).collect::<Vec<_>>()
    };
    let mut arguments = families(sets[sets.len() - 1]);
    arguments.extend(["--stream-into".into(), "streams".into()]);
    if let [full, _] = sets {
        arguments.push("--base".into());
        arguments.extend(families(full));
    }
    let Some(ended) = python(world, "an open set with the independent reader", &arguments) else { return };
    ended.done();
    let files = files_below(&world.at("streams"));
    assert!(files.len() > 20);
    let ours = files_below(&world.at(copy));
    let ours: Vec<_> = ours.into_iter().filter(|path| !path.starts_with("#clone")).collect();
    assert_eq!(files, ours);
    for path in files {
        let (one, other) =
            (fs::read(world.at("streams").join(&path)).unwrap(), fs::read(world.at(copy).join(&path)).unwrap());
        assert!(one == other, "{} differs", path.display());
    }
    fs::remove_dir_all(world.at("streams")).unwrap();
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { left.push(path) } else { found.push(path.strip_prefix(root).unwrap().to_owned()) }
        }
    }
    found.sort();
    found
}

#[test]
fn a_differential_of_a_server_with_few_changes_is_small_and_restores_completely() {
    let world = World::new();
    let source = server(&world);
    source.flush_pages();
    let full = backup(&world, &source, "--to a/ --to a/ --compression none").done().json();
    world.run("verify --from a").done();
    source.sql("UPDATE shop.large SET body = 'changed' WHERE id IN (3, 3000, 9000)");
    let differential = backup(&world, &source, "--to b/ --compression none --kind differential --base a").done().json();
    let size = |report: &serde_json::Value| report["stored_bytes"].as_u64().unwrap();
    assert!(size(&differential) * 5 < size(&full), "{} of {}", size(&differential), size(&full));
    world.run("verify --from a --from b").done();
    world.run("restore --from a --from b --into nul:").done();
    world.run("restore --from a --from b --into dir:copy").done();
    assert_python_agrees(&world, "copy", &["a", "b"]);
    let expected = checksums(&source);
    let restored = start_on(&world.at("copy"), &source);
    assert_eq!(checksums(&restored), expected);
    // Nothing happened meanwhile: the position is known.
    let exact = &differential["position"]["checkpoint"]["binary_log_exact"];
    let (file, offset, gtids) = recovered(&world.at("copy"));
    assert_eq!(
        (exact["binary_log_file"].as_str(), exact["binary_log_position"].as_u64()),
        (Some(&*file), Some(offset))
    );
    assert_eq!(exact["gtid_executed"].as_str(), Some(&*gtids));
}

#[test]
fn under_writers_and_ddl_full_and_differential_with_the_rest_of_the_binary_log_are_the_source() {
    let world = World::new();
    let source = server(&world);
    for name in ["dropped", "renamed", "truncated", "rebuilt"] {
        source.sql(&format!(
            "CREATE TABLE shop.{name}2 LIKE shop.account0; INSERT INTO shop.{name}2 SELECT * FROM shop.account0"
        ));
    }
    let throttle = "--throttle 20MiB/s --readers 3"; // So that more happens meanwhile.
    under_load(&source, || backup(&world, &source, &format!("--to a/ {throttle} --compression zstd:1"))).done();
    under_load(&source, || ddl(&source, ""));
    let line = format!("--to b/ --to b/ {throttle} --kind differential --base a");
    let report = under_load(&source, || {
        thread::scope(|scope| {
            let backup = scope.spawn(|| backup(&world, &source, &line));
            wait_until("the clone begins", || source.sql("SHOW PROCESSLIST").to_lowercase().contains("clone"));
            ddl(&source, "2");
            backup.join().unwrap()
        })
    });
    let report = report.done().json();
    world.run("verify --from a --from b").done();
    for (copy, from, sets) in [("full", "--from a", &["a"][..]), ("both", "--from a --from b", &["a", "b"])] {
        world.run(&format!("restore {from} --into dir:{copy}")).done();
        assert_python_agrees(&world, copy, sets);
        let restored = start_on(&world.at(copy), &source);
        let total = restored.sql(
            "SELECT SUM(amount) FROM (SELECT amount FROM shop.account0 UNION ALL SELECT amount FROM shop.account1 \
             UNION ALL SELECT amount FROM shop.account2 UNION ALL SELECT amount FROM shop.account3) t",
        );
        assert_eq!(total.trim(), "8000000", "money was made or lost");
        let (file, offset, gtids) = recovered(&world.at(copy));
        if copy == "both" {
            let exact = &report["position"]["checkpoint"]["binary_log_exact"];
            assert_eq!(
                (exact["binary_log_file"].as_str(), exact["binary_log_position"].as_u64()),
                (Some(&*file), Some(offset)),
                "{report:#}"
            );
        }
        catch_up(&restored, &source, &gtids);
        assert_eq!(checksums(&restored), checksums(&source), "{copy}");
    }
}

#[test]
fn a_base_that_is_missing_of_another_server_or_not_given_back_is_refused_with_the_reason() {
    let world = World::new();
    let source = server(&world);
    let differential = "--to b/ --kind differential";
    backup(&world, &source, differential).refused(2, "--kind differential", "not named");
    backup(&world, &source, &format!("{differential} --base a")).refused(3, "--base", "");
    backup(&world, &source, "--to a/").done();
    let other = Server::start(Kind::Mysql9, &Options::new());
    other.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
    fs::copy(other.password_file().unwrap(), world.at("other")).unwrap();
    let line = format!("backup mysql://root@127.0.0.1:{} --password-file other {differential} --base a", other.port());
    world.run(&line).refused(3, "--base", "of another server");
    assert!(world.names("b").is_empty());
    backup(&world, &source, &format!("{differential} --base a")).done();
    world.run("restore --from b --into dir:copy").refused(3, "differential", "is not there");
    world.run("restore --from a --from b --into sqlite:copy.db").with_code(2);
    assert!(!world.at("copy").exists());
    let sets = world.run("list --from a --from b --json").done().json();
    for set in sets.as_array().unwrap() {
        assert!(set["database_bytes"].as_u64().unwrap() > 30 << 20, "{set:#}");
    }
}

#[test]
fn an_encrypted_chain_comes_back_and_a_scratch_directory_that_cannot_be_used_is_named() {
    let world = World::new();
    let source = server(&world);
    world.run("key new k.key --no-recovery").done();
    backup(&world, &source, "--to a/ --encrypt-to k.key.pub").done();
    let line = "--to b/ --kind differential --base a --key k.key";
    backup(&world, &source, line).refused(2, "--kind differential", "in clear");
    ddl(&source, "");
    backup(&world, &source, &format!("{line} --encrypt-to k.key.pub")).done();
    world.run("verify --from a --from b --key k.key").done();
    world.run("restore --from a --from b --key k.key --into dir:copy").done();
    let expected = checksums(&source);
    assert_eq!(checksums(&start_on(&world.at("copy"), &source)), expected);
    let url = format!("mysql://root@127.0.0.1:{}", source.port());
    let mut command =
        crate::program::command(world.folder(), ["backup", &url, "--password-file", "password", "--to", "c.bore"]);
    command.env("TMPDIR", world.at("missing"));
    crate::program::run(command).refused(1, "missing", "scratch").says(&["TMPDIR"]);
    assert!(!world.at("c.bore").exists());
}

#[test]
fn pages_of_4_and_64_kib_come_back_from_a_differential_also_when_none_fits_into_a_buffer() {
    for (size, transfer) in [("4k", "1MiB"), ("64k", "64KiB")] {
        let world = World::new();
        let source = Server::start(Kind::Mysql9, &Options::new().binlog().page_size(size));
        fs::copy(source.password_file().unwrap(), world.at("password")).unwrap();
        source.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'; CREATE DATABASE shop; CREATE TABLE shop.a (id INT AUTO_INCREMENT PRIMARY KEY, v VARBINARY(1000)); INSERT INTO shop.a (v) VALUES ('x')");
        for _ in 0..13 {
            source.sql("INSERT INTO shop.a (v) SELECT RANDOM_BYTES(700) FROM shop.a");
        }
        let options = format!("--max-transfer-size {transfer} --compression none");
        backup(&world, &source, &format!("--to a/ {options}")).done();
        source.sql("UPDATE shop.a SET v = 'changed' WHERE id % 1000 = 7");
        backup(&world, &source, &format!("--to b/ {options} --kind differential --base a")).done();
        world.run("verify --from a --from b").done();
        world.run("restore --from a --from b --into dir:copy").done();
        let options = Options::new().binlog().page_size(size).datadir(&world.at("copy"));
        let restored = Server::start(Kind::Mysql9, &options.password_file(source.password_file().unwrap()));
        let asked = "CHECKSUM TABLE shop.a; CHECK TABLE shop.a; SELECT COUNT(*), @@innodb_page_size FROM shop.a";
        assert_eq!(restored.sql(asked), source.sql(asked), "{size} {transfer}");
    }
}
