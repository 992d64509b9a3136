//! Log backups of real MySQL and MariaDB servers, and restores to a point in them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fullbore_test_servers::{Kind, Options, Server, wait_until};

use crate::program::{self, Ended};
use crate::world::World;

/// A server with a binary log, a table, and a repository.
pub struct Logged {
    pub world: World,
    pub server: Server,
    pub url: String,
    pub kind: Kind,
}

impl Logged {
    pub fn new(kind: Kind) -> Self {
        Self::with(kind, &Options::new().binlog())
    }

    pub fn with(kind: Kind, options: &Options) -> Self {
        let world = World::new();
        world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
        let server = Server::start(kind, options);
        if kind == Kind::Mysql9 {
            // MySQL 5.7 does not have it: there, a test that needs it fails later.
            let _ = server.try_sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
        }
        server.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(99))");
        fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
        let scheme = if kind == Kind::Mysql9 { "mysql" } else { "mariadb" };
        // Its port is another one when it is started again.
        let url = format!("{scheme}://root@/?socket={}", server.socket().display());
        Self { world, server, url, kind }
    }

    pub fn run(&self, line: &str) -> Ended {
        self.world.run_as_nobody(line)
    }

    pub fn backup(&self, options: &str) -> Ended {
        self.run(&format!("backup {} --password-file password --repo night {options}", self.url))
    }

    pub fn insert(&self, value: &str) {
        self.server.sql(&format!("INSERT INTO shop.t (v) VALUES ('{value}')"));
    }

    pub fn rows(&self) -> String {
        self.server.sql("SELECT * FROM shop.t ORDER BY id")
    }

    pub fn restore(&self, options: &str, into: &str) -> Ended {
        let program = if self.kind == Kind::Mysql9 { "mysqld" } else { "mariadbd" };
        let program = self.server.program(program).get_program().to_str().unwrap().to_owned();
        self.run(&format!("restore --repo night {options} --into dir:{into} --server-program {program}"))
    }

    /// A server on a restored directory.
    pub fn start(&self, directory: &str) -> Server {
        let options = Options::new().binlog().datadir(&self.world.at(directory));
        Server::start(self.kind, &options.password_file(self.server.password_file().unwrap()))
    }

    fn rows_in(&self, directory: &str) -> String {
        self.start(directory).sql("SELECT * FROM shop.t ORDER BY id")
    }
}

/// Waits until the clock of a log that counts whole seconds has moved.
pub fn pass_a_second() -> String {
    std::thread::sleep(Duration::from_millis(1100));
    let now = jiff::Timestamp::now().to_string();
    std::thread::sleep(Duration::from_millis(1100));
    now
}

/// Commits between the last log set and a new full are in a log set too: the log is one chain over all fulls.
fn a_full_within_the_log(test: &Logged) {
    test.insert("between the log set and the full");
    let (before, rows_before) = (pass_a_second(), test.rows());
    test.insert("in the second full");
    test.backup("").done();
    test.insert("behind the second full");
    let (after, rows_after) = (pass_a_second(), test.rows());
    test.insert("last");
    // A MySQL that starts cuts its last relay log behind the second transaction `x`, or before a table of MyISAM at its end.
    let xa = "XA START 'x'; INSERT INTO shop.t (v) VALUES ('xa'); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'";
    test.server.sql(&format!(
        "USE shop; CREATE TABLE origin (`ä` INT COMMENT 'ö') SELECT 1 AS `ä`; SET NAMES latin1; CREATE TABLE copied SELECT * FROM origin; \
         SET NAMES utf8mb4 COLLATE utf8mb4_bin; CREATE EVENT `ö` ON SCHEDULE EVERY 1 DAY DO SELECT 1; ALTER DATABASE shop COLLATE utf8mb4_bin; \
         CREATE TABLE parent (id INT PRIMARY KEY, v INT); INSERT INTO parent VALUES (1, 1), (2, 2), (3, 3); CREATE TABLE child \
         (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE); \
         INSERT INTO child VALUES (1, 1), (2, 2), (3, 3); REPLACE INTO parent VALUES (1, 9); DELETE FROM parent WHERE id = 2; \
         UPDATE parent SET id = 7 WHERE id = 3; FLUSH BINARY LOGS; {xa}; {xa}; CREATE TABLE shop.plain (a INT) ENGINE=MyISAM"
    ));
    let ended = test.backup("--kind log").done();
    assert!(!ended.err.contains("does not continue"), "{ended}");
    for (time, rows, logs) in [(before, rows_before, 4), (after, rows_after, 1)] {
        let plan = test.restore(&format!("--stop-at {time} --dry-run"), "plan").done();
        assert_eq!(plan.text().matches("log ").count(), logs, "{plan}");
        let copy = format!("of-{logs}");
        test.restore(&format!("--stop-at {time}"), &copy).done();
        assert_eq!(test.rows_in(&copy), rows);
    }
    test.run("verify --repo night").done();
    // Removes the first full, and the log sets before the second.
    test.run("prune --repo night --keep-last 1 --grace 0s --confirm").done();
    assert_eq!(test.world.names("a").into_iter().filter(|name| name.ends_with(".bore")).count(), 2);
    test.restore("", "newest").done();
    let newest = test.start("newest");
    assert_eq!(newest.sql("SELECT * FROM shop.t ORDER BY id"), test.rows());
    assert!(newest.sql("SHOW TABLES FROM shop").contains("plain"));
    let defined = "SELECT * FROM shop.child; SELECT * FROM shop.parent; SHOW CREATE TABLE shop.copied; SELECT status, collation_connection, database_collation FROM information_schema.events \
                   WHERE event_name = 'ö'";
    assert_eq!(newest.sql(defined), test.server.sql(defined));
}

fn restored_to_a_time(kind: Kind) {
    let test = Logged::new(kind);
    test.insert("in the full");
    test.backup("").done();
    let nothing = test.backup("--kind log").done();
    assert!(nothing.err.contains("nothing was committed"), "{nothing}");
    test.insert("after the full");
    test.backup("--kind log").done();
    test.insert("second set");
    // A table of MariaDB outside of the data directory; the restored server has it inside.
    let (far, is_far) = (test.world.at("far"), kind != Kind::Mysql9);
    if is_far {
        fs::create_dir(&far).unwrap();
        fs::set_permissions(&far, fs::Permissions::from_mode(0o777)).unwrap();
        let table = format!("CREATE TABLE shop.far (id INT) DATA DIRECTORY = '{}'", far.display());
        test.server.sql(&format!("{table}; INSERT INTO shop.far VALUES (7)"));
        assert!(far.join("shop/far.ibd").exists());
    }
    let (then, rows_then) = (pass_a_second(), test.rows());
    test.insert("after the time");
    test.server.sql("DROP TABLE IF EXISTS shop.far");
    // An account, an event, and another file come through the log.
    test.server
        .sql("FLUSH BINARY LOGS; CREATE USER app@localhost; CREATE EVENT shop.e ON SCHEDULE EVERY 1 DAY DO SELECT 1");
    test.backup("--kind log").done();
    let ended = test.restore(&format!("--stop-at {then}"), "then").done();
    assert!(ended.err.contains(if is_far { "applied 4 transactions" } else { "applied 2 transactions" }), "{ended}");
    let restored = test.start("then");
    assert_eq!(restored.sql("SELECT * FROM shop.t ORDER BY id"), rows_then);
    assert!(!is_far || restored.sql("SELECT * FROM shop.far") == "7\n" && !far.join("shop/far.ibd").exists());
    drop(restored);
    let left = |name: &String| name.contains("relay") || name == "master.info";
    assert!(!test.world.names("then").iter().any(left), "nothing stays of the applier");
    stops_by_name(&test);
    refusals(&test);
    test.run("verify --repo night").done();
    let list = test.run("list --repo night").done();
    assert_eq!(list.text().matches(" log ").count(), 3, "{list}");
    let plan = test.restore(&format!("--stop-at {then} --dry-run"), "plan").done();
    assert_eq!(plan.text().matches("log ").count(), 2, "{plan}");
    a_full_within_the_log(&test);
}

/// Stops at a GTID, or at a place.
fn stops_by_name(test: &Logged) {
    let gtid = "SELECT CONCAT(@@server_uuid, ':', 3 + SUBSTRING_INDEX(@@gtid_executed, '-', -1))";
    // Of the third of these.
    let gtid = if test.kind == Kind::Mysql9 { test.server.sql(gtid) } else { String::new() };
    test.insert("one");
    test.insert("two");
    let stop = match test.kind {
        Kind::Mysql9 => format!("--stop-before-gtid {}", gtid.trim()),
        _ => format!(
            "--stop-at {}",
            test.server.sql("SHOW MASTER STATUS").replace('\t', ":").trim_end_matches([':', '\n'])
        ),
    };
    let two = test.rows();
    test.insert("three");
    test.insert("four");
    test.backup("--kind log").done();
    test.restore(&format!("{stop} --check full"), "stop").done();
    let restored = test.start("stop");
    assert_eq!(restored.sql("SELECT * FROM shop.t ORDER BY id"), two);
    assert_eq!(restored.sql("SELECT COUNT(*) FROM mysql.user WHERE user = 'app'"), "1\n");
    assert_eq!(restored.sql("SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'fullbore%'"), "0\n");
    assert_eq!(restored.sql("SELECT status FROM information_schema.events WHERE event_name = 'e'"), "ENABLED\n");
}

fn refusals(test: &Logged) {
    let refused = |options: &str, why: &str| {
        let ended = test.restore(options, "no").with_code(1);
        assert!(ended.err.contains(why), "{ended}");
    };
    let (missing, several) = match test.kind {
        Kind::Mysql9 => ("00000000-0000-0000-0000-000000000000:7", "00000000-0000-0000-0000-000000000000:1-7"),
        _ => ("7-7-7", "7-7-7,8-8-8"),
    };
    refused(&format!("--stop-at-gtid {missing}"), "no log set has it");
    for wrong in [several, "hello"] {
        let ended = test.restore(&format!("--stop-before-gtid {wrong}"), "no").with_code(2);
        assert!(ended.err.contains("is not the GTID of one transaction"), "{ended}");
    }
    refused("--before 2020-01-01T00:00:00Z", "the first backup here is of");
    refused("--stop-at 2020-01-01T00:00:00Z", "is before the range");
    refused("--stop-at 2099-01-01T00:00:00Z", "is after the range");
    let mut without = test.world.as_nobody("restore --repo night --into dir:no --set");
    let listed = test.run("list --repo night --json").json();
    let log = listed.as_array().unwrap().iter().find(|set| set["kind"] == "log").unwrap();
    without.arg(log["backup_set_id"].as_str().unwrap()).env("PATH", "/nowhere");
    let ended = program::run(without).with_code(2);
    assert!(ended.err.contains("--server-program") && ended.err.contains("log sets"), "{ended}");
    assert!(!test.world.at("no").exists());
}

/// An update of a row that the full does not hold would end the applier.
fn without_rows_of_a_table(kind: Kind, engine: &str) -> Ended {
    let test = Logged::new(kind);
    test.server.sql(&format!(
        "CREATE TABLE shop.flat (id INT PRIMARY KEY, v INT) ENGINE={engine}; INSERT INTO shop.flat VALUES (1, 1), (2, 2); \
         CREATE TABLE shop.again (id INT) ENGINE={engine}"
    ));
    test.backup("").with_code(4).says(&["shop.flat"]);
    test.server.sql("INSERT INTO shop.flat VALUES (3, 3); UPDATE shop.flat SET v = 9 WHERE id = 1");
    test.server.sql("ALTER TABLE shop.again ENGINE=InnoDB; INSERT INTO shop.again VALUES (7)");
    test.insert("behind the full");
    test.backup("--kind log").done();
    let ended = test.restore("", "copy");
    let copy = test.start("copy");
    assert_eq!(copy.sql("SELECT * FROM shop.t ORDER BY id"), test.rows());
    assert_eq!(copy.sql("SELECT COUNT(*) FROM shop.flat; SELECT * FROM shop.again"), "0\n7\n");
    ended
}

#[test]
fn changes_of_a_table_whose_rows_a_clone_of_mysql_does_not_hold_are_left_out_and_it_is_named() {
    let ended = without_rows_of_a_table(Kind::Mysql9, "MyISAM").with_code(4);
    ended.says(&["does not hold the rows of these tables", "shop.flat (MyISAM)"]);
}

#[test]
fn changes_of_a_table_in_memory_do_not_end_the_log_of_a_mariadb() {
    without_rows_of_a_table(Kind::Mariadb11, "MEMORY").with_code(4).says(&["shop.flat (MEMORY)"]);
}

#[test]
fn mysql_comes_back_as_it_was_at_a_time_between_two_log_backups() {
    restored_to_a_time(Kind::Mysql9);
}

#[test]
fn mariadb_comes_back_as_it_was_at_a_time_between_two_log_backups() {
    restored_to_a_time(Kind::Mariadb11);
}

/// A full while others write: it does not know the GTIDs at its place.
fn backup_of_a_busy_server(test: &Logged) {
    test.server.sql("CREATE TABLE shop.busy (id INT PRIMARY KEY AUTO_INCREMENT)");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                test.server.sql(&"INSERT INTO shop.busy VALUES (); ".repeat(20));
            }
        });
        let ended = test.backup("");
        done.store(true, Ordering::SeqCst);
        ended.done();
    });
}

fn what_the_log_does_not_have_is_an_error(kind: Kind) {
    let mut test = Logged::new(kind);
    backup_of_a_busy_server(&test);
    test.insert("in the first file");
    test.server.sql(
        "CREATE USER poor@'%' IDENTIFIED BY 'p'; GRANT SELECT ON *.* TO poor@'%'; \
         CREATE USER reader@'%' IDENTIFIED BY 'p'; GRANT REPLICATION SLAVE ON *.* TO reader@'%'",
    );
    test.world.write("p", b"p");
    let as_user = |user: &str| {
        let url = test.url.replace("root@", &format!("{user}@"));
        test.run(&format!("backup {url} --password-file p --repo night --kind log"))
    };
    let poor = as_user("poor").with_code(1);
    assert!(poor.err.contains("REPLICATION SLAVE"), "{poor}");
    as_user("reader").done();
    // A power cut of the server, and a rotation: nothing is lost.
    test.server.kill();
    test.server.start_again(&Options::new().binlog());
    test.insert("after the kill");
    test.server.sql("FLUSH BINARY LOGS");
    test.insert("in a third file");
    test.backup("--kind log").done();
    test.restore("", "copy").done();
    assert_eq!(test.rows_in("copy"), test.rows());
    // Purged files.
    test.insert("purged");
    test.server.sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS");
    let status = if kind == Kind::Mysql9 { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" };
    let file = test.server.sql(status).split('\t').next().unwrap().to_owned();
    // A file that a dump still reads stays: its thread may not have noticed its end.
    wait_until("the first file is purged", || {
        test.server.sql(&format!("PURGE BINARY LOGS TO '{file}'; SHOW BINARY LOGS")).starts_with(&file)
    });
    let purged = test.backup("--kind log").with_code(1);
    assert!(purged.err.contains("is not there any more") && purged.err.contains("binlog.0"), "{purged}");
    // A log that was reset has files of the same names, and perhaps of the same lengths.
    let forget = if kind == Kind::Mysql9 { "RESET BINARY LOGS AND GTIDS" } else { "RESET MASTER" };
    test.server.sql(forget);
    test.backup("").done();
    test.insert("lost");
    pass_a_second();
    test.server.sql(forget);
    test.insert("of another log");
    let reset = test.backup("--kind log").with_code(1);
    assert!(reset.err.contains("was begun after the last set"), "{reset}");
    test.backup("").done();
    test.server.sql(forget);
    (0..3).for_each(|_| drop(test.server.sql("FLUSH BINARY LOGS")));
    test.insert("of another log");
    let reset = test.backup("--kind log").with_code(1);
    assert!(reset.err.contains("take a new full"), "{reset}");
    // Another server that has the same files and answers at the same address.
    test.backup("").done();
    test.server.stop();
    let other = if kind == Kind::Mysql9 {
        fs::remove_file(test.server.datadir().join("auto.cnf")).unwrap();
        Options::new().binlog()
    } else {
        Options::new().binlog().option("server-id=77")
    };
    test.server.start_again(&other);
    let foreign = test.backup("--kind log").with_code(1);
    foreign.says(&["is of the log of another server", "--fail-over-from", "take a new full"]);
    // Statements, and no log at all.
    test.backup("").done();
    test.server.sql("SET GLOBAL binlog_format = 'STATEMENT'");
    test.insert("a statement");
    let statements = test.backup("--kind log").with_code(4);
    assert!(statements.err.contains("binlog_format is STATEMENT"), "{statements}");
    test.server.stop();
    let without = if kind == Kind::Mysql9 { Options::new().option("skip-log-bin") } else { Options::new() };
    test.server.start_again(&without);
    let off = test.backup("--kind log").with_code(1);
    assert!(off.err.contains("writes no binary log"), "{off}");
}

#[test]
fn what_mysqls_log_does_not_have_is_an_error() {
    what_the_log_does_not_have_is_an_error(Kind::Mysql9);
}

#[test]
fn what_mariadbs_log_does_not_have_is_an_error() {
    what_the_log_does_not_have_is_an_error(Kind::Mariadb10);
}

#[test]
fn a_follower_survives_a_killed_server_and_stores_every_transaction() {
    let mut test = Logged::new(Kind::Mysql9);
    let line = format!("log follow {} --password-file password --repo night --interval 100ms -v", test.url);
    let follower = program::start(test.world.as_nobody(&line));
    follower.says("its log is followed from here");
    (0..20).for_each(|number| test.insert(&format!("before {number}")));
    follower.says("transaction");
    test.server.kill();
    test.server.start_again(&Options::new().binlog());
    (0..20).for_each(|number| test.insert(&format!("after {number}")));
    test.server.sql("FLUSH BINARY LOGS");
    test.insert("last");
    follower.signal("TERM");
    follower.wait().done();
    test.restore("", "copy").done();
    assert_eq!(test.rows_in("copy"), test.rows());
}
