//! Clones that succeed: a server starts on the copy, and every table is unchanged.

use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::clone_target;
use fullbore_core::halt::Halt;
use fullbore_engines::mysql::clone::descriptor::Stage;
use fullbore_engines::mysql::clone::files::Change;
use fullbore_engines::mysql::position::LogStatus;
use fullbore_engines::mysql::redo_position::RedoScan;
use fullbore_engines::mysql_family::connection::Connection;
use fullbore_test_servers::{Kind, Options, Server};

use super::directory::{Directory, redo_blocks};
use super::load::{self, Load};
use super::{address, assert_clean, begin, root};

/// A copy, with the readings of the position before and after.
struct Copy {
    directory: Directory,
    before: LogStatus,
    after: LogStatus,
}

fn copy(server: &Server, options: &str, tasks: usize, slowness: Duration) -> Copy {
    let halt = Halt::new();
    let mut asking = Connection::open(&address(server, ""), &root(server), None).unwrap();
    let mut directory = Directory::new();
    let before = Arc::new(Mutex::new(LogStatus::default()));
    let reading = before.clone();
    let other = Mutex::new(Connection::open(&address(server, ""), &root(server), None).unwrap());
    directory.on_end = Box::new(move |stage| {
        if stage == Stage::PageCopy {
            *reading.lock().unwrap() = LogStatus::read(&mut other.lock().unwrap()).unwrap();
        }
    });
    // A slow target: more happens while the copy runs.
    directory.on_data = Box::new(move |_| {
        std::thread::sleep(slowness);
        Ok(())
    });
    let started = Instant::now();
    let donor = begin(server, options, tasks, &halt).unwrap();
    let version = donor.description().setting("version").unwrap().to_owned();
    assert!(version.starts_with("9.") && donor.description().plugins.len() > 10, "{version}");
    let files = clone_target::run(donor, &directory, &halt).unwrap();
    let took = started.elapsed();
    let after = LogStatus::read(&mut asking).unwrap();
    directory.finish(&files);
    let bytes = directory.bytes.load(Ordering::Relaxed);
    let changes = directory.changes.lock().unwrap();
    let count = |wanted: fn(&Change) -> bool| changes.iter().filter(|change| wanted(change)).count();
    eprintln!(
        "{tasks} tasks {options}: {} files, {:.1} MiB in {:.2} s; {} born, {} renamed, {} dropped; data over {:?}",
        files.len(),
        bytes as f64 / 1048576.0,
        took.as_secs_f64(),
        count(|change| matches!(change, Change::Born(..))),
        count(|change| matches!(change, Change::Renamed { .. })),
        count(|change| matches!(change, Change::Dropped(_))),
        directory.tasks.lock().unwrap(),
    );
    drop(changes);
    let before = before.lock().unwrap().clone();
    Copy { directory, before, after }
}

fn start_on(copy: &Copy, source: &Server) -> Server {
    let options =
        Options::new().binlog().datadir(&copy.directory.path()).password_file(source.password_file().unwrap());
    Server::start(Kind::Mysql9, &options)
}

/// The lines that the first start wrote: file and position, and the set of GTIDs.
fn status_recovery(copy: &Copy) -> (String, u64, String) {
    let text = std::fs::read_to_string(copy.directory.path().join("#clone/#status_recovery")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    (lines[2].trim_start_matches("./").to_owned(), lines[3].parse().unwrap(), lines[4..].concat())
}

#[test]
fn a_copy_by_one_two_or_four_connections_starts_and_has_every_table() {
    let server = Server::start(Kind::Mysql9, &Options::new().binlog());
    load::fill(&server);
    let expected = load::checksums(&server);
    for (tasks, options) in [(1, "ssl-mode=disabled&get-server-public-key=true"), (2, "ssl-mode=required"), (4, "")] {
        let copy = copy(&server, options, tasks, Duration::ZERO);
        let restored = start_on(&copy, &server);
        assert_eq!(load::checksums(&restored), expected, "{tasks} tasks");
        assert_eq!(load::broken_tables(&restored), "");
        assert_eq!(copy.before, copy.after);
        let (file, position, gtids) = status_recovery(&copy);
        assert_eq!((&file, position, &gtids), (&copy.after.file, copy.after.position, &copy.after.gtid_executed));
    }
    assert_clean(&server);
}

#[test]
fn under_writers_and_ddl_the_copy_with_the_rest_of_the_binary_log_is_the_source() {
    let server = Server::start(Kind::Mysql9, &Options::new().binlog());
    load::fill(&server);
    for tasks in [1, 2, 4] {
        let load = Load::start(&server);
        load.wait_for_more(10, 1);
        let (transactions, rounds) =
            (load.transactions.load(Ordering::Relaxed), load.ddl_rounds.load(Ordering::Relaxed));
        let copy = copy(&server, "ssl-mode=disabled&get-server-public-key=true", tasks, Duration::from_millis(5));
        eprintln!(
            "meanwhile {} transactions, {} rounds of DDL",
            load.transactions.load(Ordering::Relaxed) - transactions,
            load.ddl_rounds.load(Ordering::Relaxed) - rounds
        );
        load.wait_for_more(10, 0);
        load.stop();
        prove(&server, &copy);
    }
    assert_clean(&server);
}

#[test]
fn encrypted_tables_also_new_ones_start_under_another_keyring_and_no_key_is_stored_in_clear() {
    let server = Server::start(Kind::Mysql9, &Options::new().binlog().encrypt());
    load::fill(&server);
    server.sql(
        "CREATE TABLE shop.secret (id INT PRIMARY KEY, v INT) ENCRYPTION='Y'; INSERT INTO shop.secret SELECT * FROM \
         ddl.steady",
    );
    server.sql("SET GLOBAL default_table_encryption = ON; ALTER DATABASE ddl ENCRYPTION='Y'");
    let load = Load::start_with(&server, false);
    load.wait_for_more(10, 1);
    let copy = copy(&server, "ssl-mode=required", 2, Duration::from_millis(5));
    load.stop();
    assert!(copy.directory.keys.load(Ordering::Relaxed) > 0, "no key came in clear: the test proves nothing");
    let options = Options::new().binlog().encrypt().datadir(&copy.directory.path());
    let restored = Server::start(Kind::Mysql9, &options.password_file(server.password_file().unwrap()));
    let (file, _, gtids) = status_recovery(&copy);
    replay(&server, &restored, &file, &gtids);
    assert_eq!(load::checksums(&restored), load::checksums(&server));
}

fn prove(server: &Server, copy: &Copy) {
    // Before the server changes the redo files.
    let mut scan = RedoScan::new(16384);
    redo_blocks(&copy.directory.path(), |block| scan.block(block));
    let found = scan.end();
    let restored = start_on(copy, server);
    assert_eq!(load::total(&restored), load::TOTAL, "money was made or lost");
    assert_eq!(load::broken_tables(&restored), "");
    let (file, position, gtids) = status_recovery(copy);
    let recovered = LogStatus { file: file.clone(), position, gtid_executed: gtids.clone() };
    assert!(copy.before.is_not_after(&recovered) && recovered.is_not_after(&copy.after));
    let found = found.map(|found| (found.file.trim_start_matches("./").to_owned(), u64::from(found.offset)));
    assert!(found.is_none() || found == Some((file.clone(), position)), "{found:?} is not {file} {position}");
    eprintln!("position {file} {position}, in the redo log {}", if found.is_some() { "too" } else { "not" });
    replay(server, &restored, &file, &gtids);
    assert_eq!(load::checksums(&restored), load::checksums(server));
}

/// Replays the source's binary log into `restored`, from `first` on and without `gtids`.
fn replay(server: &Server, restored: &Server, first: &str, gtids: &str) {
    let logs = server.sql("SHOW BINARY LOGS");
    let names = logs.lines().filter_map(|line| line.split('\t').next()).skip_while(|name| *name != first);
    let paths: Vec<_> = names.map(|name| server.datadir().join(name)).collect();
    assert!(!paths.is_empty(), "{first} is not in {logs}");
    let mut reading = server.program("mysqlbinlog");
    reading.arg(format!("--exclude-gtids={gtids}")).args(paths).stdout(Stdio::piped());
    let mut reading = reading.spawn().unwrap();
    let applied = restored.client().arg("--binary-mode").stdin(reading.stdout.take().unwrap()).status().unwrap();
    assert!(applied.success() && reading.wait().unwrap().success());
}

#[test]
fn pages_of_4_and_64_kib_come_over_too() {
    for size in ["4k", "64k"] {
        let server = Server::start(Kind::Mysql9, &Options::new().page_size(size));
        server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'; CREATE DATABASE shop");
        server.sql(
            "CREATE TABLE shop.a (id INT AUTO_INCREMENT PRIMARY KEY, v VARBINARY(1000)); INSERT INTO shop.a (v) VALUES \
             ('x')",
        );
        for _ in 0..14 {
            server.sql("INSERT INTO shop.a (v) SELECT RANDOM_BYTES(500) FROM shop.a");
        }
        let copy = copy(&server, "", 2, Duration::ZERO);
        let options = Options::new().page_size(size).datadir(&copy.directory.path());
        let restored = Server::start(Kind::Mysql9, &options.password_file(server.password_file().unwrap()));
        let asked = "CHECKSUM TABLE shop.a; CHECK TABLE shop.a; SELECT COUNT(*), @@innodb_page_size FROM shop.a";
        assert_eq!(restored.sql(asked), server.sql(asked), "{size}");
    }
}
