//! Migrations out of a repository: the full and the log sets go into a running server, and later runs apply what came since.

use fullbore_test_servers::{Kind, Options, wait_until};

use crate::held::{Held, is_running, wait_for_statement};
use crate::program::{self, Ended};
use crate::server_logs::Logged;
use crate::server_logs_into::{Target, content};

/// A source with a repository, and a target.
struct Move {
    test: Logged,
    target: Target,
}

impl Move {
    fn new(kind: Kind) -> Self {
        Self::between([kind; 2])
    }

    fn between([source, target]: [Kind; 2]) -> Self {
        let test = Logged::with(source, &Options::new().binlog().option("binlog_format=ROW"));
        let target = Target::of(target, &test, &Options::new().binlog());
        Self { test, target }
    }

    fn line(&self, options: &str) -> String {
        format!("migrate --repo night --into {} --into-password-file target {options}", self.target.url)
    }

    fn migrate(&self, options: &str) -> Ended {
        self.test.run(&self.line(options))
    }

    fn log_set(&self, statements: &str) {
        self.test.server.sql(&format!("USE shop; {statements}"));
        self.test.backup("--kind log").done();
    }

    fn assert_equal(&self) {
        assert_eq!(content(&self.target.server), content(&self.test.server));
    }

    fn is_in_target(&self, what: &str) -> bool {
        self.target.server.sql("SHOW DATABASES").contains(what)
    }
}

fn each_log_set_is_applied_once(kind: Kind) {
    let pair = Move::new(kind);
    let source = &pair.test.server;
    source.sql(
        "USE shop; CREATE TABLE nokey (a INT); CREATE TABLE big (v LONGTEXT); CREATE TABLE u (id INT PRIMARY KEY, v TEXT); INSERT INTO nokey VALUES (1); \
         CREATE EVENT e ON SCHEDULE EVERY 1 SECOND DO INSERT INTO nokey VALUES (9); SET GLOBAL event_scheduler = OFF",
    );
    pair.test.backup("--method logical").done();
    pair.log_set("INSERT INTO nokey VALUES (2); UPDATE nokey SET a = a + 1; CREATE VIEW w AS SELECT a FROM nokey; CREATE USER other@localhost");
    let plan = pair.migrate("--plan").done();
    assert!(plan.err.contains("2 sets with") && !pair.is_in_target("shop"), "{plan}");
    pair.target.server.sql("CREATE DATABASE shop; CREATE TABLE shop.mine (a INT)");
    pair.migrate("").refused(1, "", "the target holds");
    assert!(!pair.is_in_target("fullbore"), "nothing was changed");
    let first = pair.migrate("--replace").done();
    assert!(first.text().starts_with("MIGRATE: ") && first.err.contains("about accounts left out"), "{first}");
    pair.assert_equal();
    assert_eq!(pair.target.server.sql("SELECT COUNT(*) FROM information_schema.events"), "0\n", "it would run");
    let again = pair.migrate("").done();
    assert!(again.err.contains("no log set came since"), "{again}");

    // Two sets; the run is killed within the second one, behind a large transaction.
    pair.log_set("INSERT INTO u VALUES (1, 'one'); INSERT INTO nokey VALUES (3); FLUSH BINARY LOGS; ALTER TABLE u ADD COLUMN more INT DEFAULT 7");
    pair.log_set(
        "FLUSH BINARY LOGS; INSERT INTO big VALUES (REPEAT('x', 5000000)), (REPEAT('y', 5000000)); INSERT INTO nokey VALUES (4); INSERT INTO t (v) VALUES ('locked'); INSERT INTO u VALUES (2, 'two', 2)",
    );
    let lock = Held::by(&pair.target.server, "LOCK TABLES shop.t WRITE");
    let running = program::start(pair.test.world.as_nobody(&pair.line("")));
    wait_until("the transaction is there", || pair.target.server.sql("SELECT COUNT(*) FROM shop.big") == "2\n");
    wait_for_statement(&pair.target.server, "BINLOG");
    running.signal("KILL");
    running.wait();
    drop(lock);
    assert_eq!(pair.target.server.sql("SELECT id, more FROM shop.u"), "1\t7\n", "only the first set is whole");
    wait_until("its session ends", || !is_running(&pair.target.server, "BINLOG"));
    assert!(pair.migrate("--plan").done().err.contains("1 set with"));
    pair.migrate("").done();
    pair.assert_equal();
    a_gap(&pair);
    pair.migrate("--abort").done();
    assert!(!pair.is_in_target("fullbore"));
    pair.migrate("--abort").refused(1, "", "no migration");
}

/// A set is missing: the sets before it are applied, and nothing behind it.
fn a_gap(pair: &Move) {
    pair.log_set("INSERT INTO nokey VALUES (5)");
    let known = pair.test.world.names("a");
    pair.log_set("INSERT INTO nokey VALUES (6)");
    let missing: Vec<String> = pair
        .test
        .world
        .names("a")
        .into_iter()
        .filter(|name| name.ends_with(".bore") && !known.contains(name))
        .collect();
    assert_eq!(missing.len(), 1);
    pair.log_set("INSERT INTO nokey VALUES (7)");
    let (here, away) = (pair.test.world.at("a").join(&missing[0]), pair.test.world.at("away"));
    std::fs::rename(&here, &away).unwrap();
    pair.migrate("").with_code(3).says(&["is incomplete"]);
    assert_eq!(pair.target.server.sql("SELECT COUNT(*) FROM shop.nokey WHERE a IN (6, 7)"), "0\n");
    std::fs::rename(&away, &here).unwrap();
    pair.migrate("").done();
    pair.assert_equal();
    let follows = format!(
        "migrate {} --into {} --password-file password --into-password-file target --resume",
        pair.test.url, pair.target.url
    );
    pair.test.run(&follows).refused(1, "", "a migration of another source");
}

/// Backups of one database: the log is of the whole server.
fn one_database(pair: &Move) {
    let (test, target) = (&pair.test, &pair.target.server);
    let url = test.url.replace("/?", "/shop?");
    let backup =
        |options: &str| test.run(&format!("backup {url} --password-file password --repo night {options}")).done();
    target.sql("DROP DATABASE shop");
    backup("--method logical");
    test.server.sql("CREATE DATABASE other; CREATE TABLE other.x (a INT); INSERT INTO other.x VALUES (1); INSERT INTO shop.t (v) VALUES ('c')");
    backup("--kind log");
    let name = format!("--database {}/shop", test.server.socket().display());
    pair.migrate(&name).done();
    assert_eq!(target.sql("SELECT v FROM shop.t WHERE v = 'c'"), "c\n");
    test.server.sql("UPDATE other.x SET a = 2; UPDATE shop.t SET v = 'd' WHERE v = 'c'");
    backup("--kind log");
    pair.migrate(&name).done();
    assert_eq!(target.sql("SELECT v FROM shop.t WHERE v = 'd'"), "d\n");
    assert!(!pair.is_in_target("other"));
}

#[test]
fn a_mysql_gets_each_log_set_of_a_repository_once_also_after_a_kill() {
    each_log_set_is_applied_once(Kind::Mysql9);
}

#[test]
fn a_mariadb_gets_each_log_set_of_a_repository_once_also_after_a_kill() {
    each_log_set_is_applied_once(Kind::Mariadb11);
}

#[test]
fn a_full_that_a_running_server_cannot_take_is_refused_and_an_interrupted_one_begins_again() {
    let pair = Move::new(Kind::Mysql9);
    pair.test.backup("").done();
    pair.migrate("").refused(2, "--into", "takes rows only").says(&["--into dir:PATH", "--method logical"]);
    pair.test.server.sql("CREATE TABLE shop.plain (a INT) ENGINE=MyISAM; INSERT INTO shop.plain VALUES (1)");
    pair.test.backup("--method logical").with_code(4);
    pair.migrate("").refused(1, "the full", "shop.plain (MyISAM)");
    pair.test.server.sql("DROP TABLE shop.plain; INSERT INTO shop.t (v) VALUES ('a')");
    pair.test.backup("--method logical").done();
    // A run that was killed in the middle of the full.
    pair.migrate("").done();
    pair.target
        .server
        .sql("UPDATE fullbore_migrate.state SET place = NULL, mark = '[\"shop\"]'; TRUNCATE TABLE shop.t");
    pair.log_set("INSERT INTO t (v) VALUES ('b')");
    pair.migrate("").done();
    pair.assert_equal();
    // A view that the full had already, because it was read while definitions changed.
    let mark = r#"{"done": 0, "before": null, "about": [], "origin": {"databases": [], "complete": ["binlog.999999", 4], "encrypted": false}}"#;
    pair.target
        .server
        .sql(&format!("CREATE VIEW shop.w AS SELECT 1 a; UPDATE fullbore_migrate.state SET mark = '{mark}'"));
    pair.log_set("CREATE VIEW w AS SELECT 1 a");
    pair.migrate("").done();
    // The log of the source was reset: places come again, and the new sets do not continue the target.
    pair.test.server.sql("RESET BINARY LOGS AND GTIDS; INSERT INTO shop.t (v) VALUES ('after the reset')");
    pair.test.backup("--method logical").done();
    pair.test.server.sql("INSERT INTO shop.t (v) VALUES ('later')");
    pair.test.backup("--kind log");
    pair.migrate("").refused(3, "", "");
    // It begins again with the full behind the reset. Sets from before the reset are no gap.
    pair.migrate("--replace").done();
    pair.migrate("").done();
    pair.assert_equal();
    // An earlier cut-over was killed: the target alone knows what its source was.
    let before = r#"{"server": "db1", "read_only": false, "super_read_only": false}"#;
    pair.target.server.sql(&format!("UPDATE fullbore_migrate.state SET source = '{before}'"));
    pair.migrate("--replace").refused(1, "", "left its source db1 read-only");
    pair.migrate("--abort").done().says(&["SET GLOBAL read_only = OFF"]);
    one_database(&pair);
}

/// Statements whose text and names depend on the collations of their session, and rows of many types.
const OF_BOTH: &str = "SET NAMES utf8mb4; CREATE TABLE `naïve ``x` (id BIGINT UNSIGNED PRIMARY KEY, latin VARCHAR(20) CHARACTER SET latin1, \
    exact DECIMAL(30,10), at DATETIME(6), raw VARBINARY(9), bits BIT(9), kind ENUM('a', 'é'), twice BIGINT AS (id * 2) STORED, note TEXT CHARACTER SET utf8mb4); \
    INSERT INTO `naïve ``x` (id, latin, exact, at, raw, bits, kind, note) VALUES \
    (18446744073709551614 >> 2, 'é', -1234567890.0000000001, '2026-02-03 04:05:06.789012', x'00ff0a', b'101', 'é', '🐬'); \
    SET NAMES latin1; ALTER TABLE t ADD COLUMN added VARCHAR(9) DEFAULT '\u{e9}'; SET NAMES utf8mb4; INSERT INTO t (v) VALUES ('behind')";

fn sets_go_into_another_vendor(kinds: [Kind; 2]) {
    let pair = Move::between(kinds);
    let (source, target) = (&pair.test.server, &pair.target.server);
    source.sql("INSERT INTO shop.t (v) VALUES ('in the full')");
    pair.test.backup("--method logical").done();
    pair.log_set(OF_BOTH);
    let first = pair.migrate("");
    // Another vendor may have another collation in the place of one, and a warning says so.
    assert!([0, 4].contains(&first.code), "{first}");
    let assert_equal = || {
        for rows in [
            "* FROM shop.t",
            "id, latin, HEX(latin), exact, at, HEX(raw), bits + 0, kind, twice, HEX(note) FROM shop.`naïve ``x`",
        ] {
            let rows = format!("SET NAMES utf8mb4; SELECT {rows} ORDER BY id");
            assert_eq!(target.sql(&rows), source.sql(&rows));
        }
    };
    assert_equal();
    // A later run knows the collations from the target.
    pair.log_set("SET NAMES utf8mb4; CREATE VIEW w AS SELECT 'ü' AS letter; INSERT INTO t (v) SELECT letter FROM w; UPDATE t SET v = 'new' WHERE id = 1");
    pair.migrate("").done();
    assert_equal();
    source.sql("CREATE EVENT shop.e ON SCHEDULE EVERY 1 DAY DO DELETE FROM t WHERE id < 0; INSERT INTO shop.t (v) VALUES ('last')");
    let ended = pair.test.run(&format!(
        "migrate {} --repo night --into {} --password-file password --into-password-file target --cut-over",
        pair.test.url, pair.target.url
    ));
    // So may the event.
    assert!([0, 4].contains(&ended.code) && ended.text().contains("compared, and equal"), "{ended}");
    assert_equal();
    assert_eq!(target.sql("SELECT letter FROM shop.w; SELECT event_name FROM information_schema.events"), "ü\ne\n");
}

#[test]
fn sets_of_mysql_go_into_a_mariadb_until_the_cut_over_and_json_is_refused_before_the_first_row() {
    sets_go_into_another_vendor([Kind::Mysql9, Kind::Mariadb11]);
    let pair = Move::between([Kind::Mysql9, Kind::Mariadb11]);
    pair.test.server.sql("CREATE TABLE shop.j (id INT PRIMARY KEY, more INT COMMENT 'no json here', doc JSON)");
    pair.test.backup("--method logical").done();
    pair.migrate("").refused(1, "the full", "JSON out of a log of MySQL: shop.j").says(&["LONGTEXT"]);
    assert!(!pair.is_in_target("shop"));
}

#[test]
fn sets_of_mariadb_go_into_a_mysql_until_the_cut_over() {
    sets_go_into_another_vendor([Kind::Mariadb11, Kind::Mysql9]);
}
