//! Copies that cannot succeed: each ends with a reason, gives the lock back, and leaves no thread.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};
use fullbore_engines::mariadb::hot_copy::{CopiedFile, FileNumber, LOG, Options};
use fullbore_test_servers::{Kind, Options as ServerOptions, Server, SetAtEnd, wait_until};

use crate::client::Client;
use crate::directory::{Directory, Nothing, Target, copy_into};
use crate::live::{copy_to, room};
use crate::workload::{self, Workload};

fn options() -> Options {
    Options { halt: Halt::new(), lock_timeout: Duration::from_secs(2), ..Options::default() }
}

/// The lock is free: another backup can go through all stages at once.
fn assert_unlocked(server: &Server) {
    server.sql("SET lock_wait_timeout=3; BACKUP STAGE START; BACKUP STAGE BLOCK_COMMIT; BACKUP STAGE END");
}

/// A device that takes its time over every byte of a tablespace.
struct Slow<'a>(&'a AtomicU64, Duration);

impl Target for Slow<'_> {
    fn write(&self, file: FileNumber, _: u64, bytes: &[u8]) -> Result<()> {
        if file != LOG {
            self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            std::thread::sleep(self.1);
        }
        Ok(())
    }

    fn finish(&self, _: &[CopiedFile]) {
        panic!("a copy that failed is not finished");
    }
}

/// A device that takes its time over the redo log.
struct SlowLog;

impl Target for SlowLog {
    fn write(&self, file: FileNumber, _: u64, _: &[u8]) -> Result<()> {
        std::thread::sleep(if file == LOG { Duration::from_secs(3) } else { Duration::from_millis(300) });
        Ok(())
    }

    fn finish(&self, _: &[CopiedFile]) {
        panic!("a copy that failed is not finished");
    }
}

#[test]
fn a_redo_log_that_is_overrun_ends_the_copy_at_once_and_says_what_to_raise() {
    for kind in Kind::MARIADB {
        let server = Server::start(kind, &ServerOptions::new().redo("4M").option("innodb_flush_log_at_trx_commit=0"));
        workload::prepare(&server, "");
        let mut writer = Client::connect(&server);
        writer.run("USE shop; CREATE TABLE much (id INT PRIMARY KEY, b LONGTEXT) ENGINE=InnoDB");
        let stop = std::sync::atomic::AtomicBool::new(false);
        let (error, took) = std::thread::scope(|scope| {
            let _ends = SetAtEnd(&stop);
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    writer.run("REPLACE INTO much SELECT seq, REPEAT(RAND(), 5000) FROM seq_1_to_20");
                }
            });
            let started = Instant::now();
            let error = copy_to(&server, &SlowLog, &options()).unwrap_err().to_string();
            (error, started.elapsed())
        });
        assert!(error.contains("innodb_log_file_size") && error.contains("overwritten"), "{error}");
        assert!(took < Duration::from_secs(60), "{took:?}");
        assert_unlocked(&server);
    }
}

#[test]
fn a_server_that_is_killed_in_the_middle_ends_the_copy() {
    let mut server = Server::start(Kind::Mariadb11, &ServerOptions::new());
    workload::prepare(&server, "");
    let copied = AtomicU64::new(0);
    let (stages, monitor) = (Client::connect(&server), Client::connect(&server));
    let error = std::thread::scope(|scope| {
        let copy = scope.spawn(|| {
            let slow = Slow(&copied, Duration::from_millis(200));
            copy_into(&slow, stages, monitor, 2, &options()).unwrap_err()
        });
        wait_until("the copy has begun", || copied.load(Ordering::Relaxed) > 0);
        server.kill();
        copy.join().unwrap()
    });
    assert!(error.to_string().contains("gone") || error.to_string().contains("ERROR 20"), "{error}");
}

#[test]
fn a_cancelled_copy_gives_the_lock_back_in_every_stage() {
    let server = Server::start(Kind::Mariadb11, &ServerOptions::new());
    workload::prepare(&server, "");
    let workload = Workload::start(&server, 5);
    workload.warm_up();
    for milliseconds in [0, 20, 100, 300, 600, 1000] {
        let options = options();
        let halt = options.halt.clone();
        let result = std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(milliseconds));
                halt.stop(Error::Cancelled { by: "SIGINT" });
            });
            copy_to(&server, &Nothing, &options)
        });
        if let Err(error) = result {
            assert!(matches!(error, Error::Cancelled { .. }), "{error}");
        }
        assert_unlocked(&server);
    }
    assert!(workload.is_well());
}

#[test]
fn a_lock_that_does_not_come_is_waited_for_no_longer_than_told_and_a_cancel_ends_the_wait() {
    let server = Server::start(Kind::Mariadb10, &ServerOptions::new());
    workload::prepare(&server, "");
    // The one holds up the first stage, the other the one that blocks DDL.
    for holds in ["LOCK TABLES shop.myisam WRITE; DO SLEEP(900)", "INSERT INTO shop.myisam (b) SELECT SLEEP(900)"] {
        let (mut holder, mut other) = (Client::connect(&server), Client::connect(&server));
        let id = holder.run("SELECT CONNECTION_ID()").remove(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _ = holder.try_run(holds); // Is ended below.
            });
            wait_until("it sleeps", || server.sql("SHOW PROCESSLIST").contains("User sleep"));
            let started = Instant::now();
            let error = copy_to(&server, &Nothing, &options()).unwrap_err().to_string();
            assert!(error.contains("1205") && error.contains("--lock-timeout"), "{holds}: {error}");
            assert!(started.elapsed() < Duration::from_secs(120));
            // The same wait, ended by the user.
            let patient = Options { lock_timeout: Duration::from_secs(300), ..options() };
            let halt = patient.halt.clone();
            let started = Instant::now();
            let waits = || server.sql("SHOW PROCESSLIST").contains("Waiting for");
            scope.spawn(move || {
                wait_until("the copy waits for the lock", waits);
                halt.stop(Error::Cancelled { by: "SIGTERM" });
            });
            let error = copy_to(&server, &Nothing, &patient).unwrap_err();
            assert!(matches!(error, Error::Cancelled { .. }), "{holds}: {error}");
            assert!(started.elapsed() < Duration::from_secs(120), "{holds}");
            other.run(&format!("KILL {id}"));
        });
        assert_unlocked(&server);
    }
}

#[test]
fn two_copies_at_once_are_refused_by_the_server() {
    let server = Server::start(Kind::Mariadb11, &ServerOptions::new());
    let mut other = Client::connect(&server);
    other.run("BACKUP STAGE START");
    let error = copy_to(&server, &Nothing, &options()).unwrap_err().to_string();
    assert!(error.contains("another backup may be running"), "{error}");
    other.run("BACKUP STAGE END");
    assert_unlocked(&server);
}

#[test]
fn another_redo_log_during_the_copy_ends_it() {
    let server = Server::start(Kind::Mariadb11, &ServerOptions::new().redo("8M"));
    workload::prepare(&server, "");
    let copied = AtomicU64::new(0);
    let slow = Slow(&copied, Duration::from_millis(300));
    let error = std::thread::scope(|scope| {
        let copy = scope.spawn(|| copy_to(&server, &slow, &options()).unwrap_err());
        wait_until("the copy has begun", || copied.load(Ordering::Relaxed) > 0);
        server.sql("SET GLOBAL innodb_log_file_size = 16777216");
        copy.join().unwrap()
    });
    assert!(error.to_string().contains("another redo log"), "{error}");
    assert_unlocked(&server);
}

#[test]
fn a_page_that_is_damaged_on_disk_is_named_and_copied_only_when_asked() {
    let mut server = Server::start(Kind::Mariadb11, &ServerOptions::new());
    workload::prepare(&server, "");
    server.stop();
    let table = server.datadir().join("shop/account1.ibd");
    let file = fs::File::options().write(true).open(&table).unwrap();
    file.write_all_at(b"not what was written here", 6 * 16384 + 1000).unwrap();
    server.start_again(&ServerOptions::new());
    let error = copy_to(&server, &Nothing, &options()).unwrap_err().to_string();
    assert!(error.contains("shop/account1.ibd") && error.contains("page 6"), "{error}");
    assert_unlocked(&server);
    let room = room();
    let go_on = Options { continue_after_error: true, ..options() };
    let (outcome, _) = copy_to(&server, &Directory::new(&room.path().join("data")), &go_on).unwrap();
    assert!(outcome.damaged.iter().all(|page| (page.file.as_str(), page.page) == ("shop/account1.ibd", 6)));
    assert_eq!(outcome.damaged.len(), 1);
}

#[test]
fn a_server_without_innodb_is_refused() {
    let server = Server::start(
        Kind::Mariadb10,
        &ServerOptions::new().option("skip-innodb").option("default-storage-engine=Aria"),
    );
    let error = copy_to(&server, &Nothing, &options()).unwrap_err().to_string();
    assert!(error.contains("without InnoDB"), "{error}");
}
