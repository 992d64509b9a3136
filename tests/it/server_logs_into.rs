//! Point in time into a running server: the rows of a logical set, then the log through a connection.

use std::fs;

use fullbore_test_servers::{Kind, Options, Server};

use crate::program::Ended;
use crate::server_logs::{Logged, pass_a_second};

/// Everything that a log can do to tables.
pub const BEFORE: &str = "CREATE DATABASE `odd``name` CHARACTER SET latin1; \
    CREATE TABLE `odd``name`.`t-ble` (id INT PRIMARY KEY, c VARCHAR(20) CHARACTER SET latin1, b BLOB); \
    CREATE TABLE shop.wide (id INT PRIMARY KEY AUTO_INCREMENT, t DATETIME(6), d DECIMAL(30,10), v VARCHAR(400)); \
    CREATE TABLE shop.parent (id INT PRIMARY KEY); \
    CREATE TABLE shop.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES shop.parent (id) ON DELETE CASCADE)";
pub const WRITES: &str = "USE shop; INSERT INTO parent VALUES (1), (2); INSERT INTO child VALUES (1, 1), (2, 2); \
    DELETE FROM parent WHERE id = 1; \
    INSERT INTO `odd``name`.`t-ble` VALUES (1, X'E4F6FC', X'00270A5CFF'); \
    INSERT INTO wide (t, d, v) SELECT NOW(6), RAND() * 1000, REPEAT('x', 300) FROM information_schema.columns LIMIT 3000; \
    UPDATE wide SET v = CONCAT(id, v) WHERE id % 2 = 0; \
    BEGIN; INSERT INTO t (v) VALUES ('rolled back'); ROLLBACK; \
    SET sql_mode = 'ANSI_QUOTES'; BEGIN; INSERT INTO t (v) VALUES ('kept'); SAVEPOINT a; INSERT INTO t (v) VALUES ('gone'); ROLLBACK TO a; COMMIT; \
    CREATE TABLE \"quoted\" (\"a\" INT DEFAULT 7); INSERT INTO quoted VALUES (); SET sql_mode = DEFAULT; \
    SET time_zone = '+05:00'; CREATE TABLE born (at TIMESTAMP DEFAULT '2020-01-01 00:00:00'); SET time_zone = '+00:00'; \
    INSERT INTO born VALUES (); SET foreign_key_checks = 0; CREATE TABLE orphan (id INT PRIMARY KEY, p INT, \
    FOREIGN KEY (p) REFERENCES nowhere (id)); SET foreign_key_checks = 1; \
    CREATE DATABASE gone; USE gone; CREATE TABLE a (b INT); DROP DATABASE gone; USE shop; \
    SET collation_connection = utf16_general_ci, time_zone = '-03:00'; CREATE TABLE utf_16 (a VARCHAR(9) DEFAULT 'x'); \
    INSERT INTO utf_16 VALUES (); SET NAMES utf8mb4; SET time_zone = '+00:00'; \
    SET innodb_strict_mode = 0; CREATE TABLE loose (id INT) ROW_FORMAT=FIXED; SET innodb_strict_mode = 1; \
    CREATE TABLE origin (`ä` INT COMMENT 'ö') SELECT 1 AS `ä`; SET NAMES latin1; CREATE TABLE copied SELECT * FROM origin; SET NAMES utf8mb4; \
    XA START 'empty'; SAVEPOINT a; XA END 'empty'; XA PREPARE 'empty'; XA COMMIT 'empty'; \
    CREATE VIEW seen AS SELECT COUNT(*) n FROM t; CREATE USER later@localhost; \
    XA START 'one'; INSERT INTO t (v) VALUES ('prepared'); XA END 'one'; XA PREPARE 'one'; XA COMMIT 'one'; \
    SET SESSION binlog_format = 'STATEMENT'; SET @name := 'o''clock'; INSERT INTO t (v) VALUES (@name); \
    INSERT INTO t (v) VALUES (LAST_INSERT_ID()); SET @most = 18446744073709551615, @raw = X'00FF', @price = -1234567890.50; \
    INSERT INTO t (v) VALUES (@most), (HEX(@raw)), (@price); SET auto_increment_increment = 10, lc_time_names = 'de_DE'; \
    INSERT INTO t (v) VALUES (DATE_FORMAT('2026-05-03', '%M')), ('ten later'); SET auto_increment_increment = 1, lc_time_names = 'en_US'; \
    INSERT INTO t (v) VALUES (DATE_FORMAT('2026-05-03', '%M')), ('next'); SET SESSION binlog_format = 'ROW'; \
    ALTER TABLE wide ADD COLUMN later INT DEFAULT 5, DROP COLUMN d";

pub struct Target {
    pub server: Server,
    pub url: String,
}

impl Target {
    pub fn new(test: &Logged) -> Self {
        Self::with(test, &Options::new().binlog())
    }

    pub fn with(test: &Logged, options: &Options) -> Self {
        Self::of(test.kind, test, options)
    }

    pub fn of(kind: Kind, test: &Logged, options: &Options) -> Self {
        let server = Server::start(kind, &options.clone().option("local-infile=1"));
        fs::copy(server.password_file().unwrap(), test.world.at("target")).unwrap();
        let scheme = if kind == Kind::Mysql9 { "mysql" } else { "mariadb" };
        let url = format!("{scheme}://root@/?socket={}", server.socket().display());
        Self { server, url }
    }

    pub fn restore(&self, test: &Logged, options: &str) -> Ended {
        test.run(&self.line(&format!("--replace {options}")))
    }

    pub fn line(&self, options: &str) -> String {
        format!("restore --repo night --into {} --password-file target {options}", self.url)
    }
}

/// The rows of all tables of users, and what tables look like.
pub fn content(server: &Server) -> String {
    let tables = server.sql(
        "SELECT CONCAT(table_schema, '\t', table_name) FROM information_schema.tables WHERE table_schema NOT IN ('mysql', 'sys', \
         'performance_schema', 'information_schema', 'fullbore_migrate') AND table_type = 'BASE TABLE' AND table_name NOT LIKE 'fullbore%' \
         ORDER BY 1",
    );
    let mut content = String::new();
    for line in tables.lines() {
        let (schema, table) = line.split_once("\\t").or(line.split_once('\t')).unwrap();
        let name = format!("`{}`.`{}`", schema.replace('`', "``"), table.replace('`', "``"));
        let seen = server.sql(&format!("CHECKSUM TABLE {name}; SHOW CREATE TABLE {name}"));
        // A statement with many rows takes more numbers than it uses.
        content += &seen.split(' ').filter(|word| !word.starts_with("AUTO_INCREMENT=")).collect::<Vec<_>>().join(" ");
    }
    content
}

fn rows_and_then_the_log(kind: Kind) {
    let test = Logged::new(kind);
    test.server.sql(BEFORE);
    test.insert("in the set");
    test.backup("--method logical").done();
    let (end_of_full, content_of_full) = (place(&test.server), content(&test.server));
    test.server.sql(WRITES);
    if kind == Kind::Mysql9 {
        test.server.sql(
            "SET SESSION binlog_transaction_compression = ON; INSERT INTO shop.t (v) VALUES (REPEAT('z', 90)), ('y'); \
             /*!80400 SET SESSION restrict_fk_on_non_standard_key = 0 */; USE shop; CREATE TABLE above (a INT, KEY (a)); \
             CREATE TABLE under (a INT, FOREIGN KEY (a) REFERENCES above (a)); \
             CREATE TABLE elder (id INT PRIMARY KEY, v INT); INSERT INTO elder VALUES (1, 1), (2, 2), (3, 3); \
             CREATE TABLE young (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES elder (id) ON DELETE CASCADE ON UPDATE CASCADE); \
             INSERT INTO young VALUES (1, 1), (2, 2), (3, 3); REPLACE INTO elder VALUES (1, 9); DELETE FROM elder WHERE id = 2; \
             UPDATE elder SET id = 7 WHERE id = 3",
        );
    }
    let (then, content_then) = (pass_a_second(), content(&test.server));
    test.insert("after the time");
    test.backup("--kind log").done();
    test.server.sql("FLUSH BINARY LOGS; BEGIN; INSERT INTO shop.t (v) VALUES ('one'); INSERT INTO shop.t (v) VALUES ('two'); COMMIT");
    // A physical full within the log: a running server takes rows, so it is passed over.
    test.backup("").done();
    test.insert("last");
    test.backup("--kind log").done();
    let target = Target::new(&test);
    let ended = target.restore(&test, &format!("--stop-at {then}")).done();
    assert!(ended.err.contains("left out: the set has no accounts"), "{ended}");
    assert_eq!(content(&target.server), content_then);
    assert_eq!(target.server.sql("SELECT COUNT(*) FROM mysql.user WHERE user = 'later'"), "0\n");
    let logs = [&target.server, &test.server].map(bytes_of_log);
    assert!(logs[0] < 4 * logs[1], "no statement of fullbore is in the log of the target beside its rows: {logs:?}");
    target.restore(&test, &format!("--stop-at {end_of_full}")).done();
    assert_eq!(content(&target.server), content_of_full, "nothing of the log is applied");
    let ended = target.restore(&test, "").done();
    assert_eq!(content(&target.server), content(&test.server), "{ended}");
    if kind == Kind::Mysql9 {
        let uuid = test.server.sql("SELECT @@server_uuid");
        assert!(target.server.sql("SELECT @@gtid_executed").contains(uuid.trim()), "the transactions keep their GTIDs");
    }
    // The directory takes the physical full and the rest of the log.
    test.restore("", "files").done();
    refused(&test, &target);
    test.backup("--method logical --kind auto").done().says(&["takes a full: a logical backup has no differentials"]);
    test.backup("--kind auto").done().says(&["takes a differential of full"]);
}

/// The end of a server's log, for `--stop-at`.
fn place(server: &Server) -> String {
    let status = if server.kind() == Kind::Mysql9 { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" };
    server.sql(status).split_whitespace().take(2).collect::<Vec<_>>().join(":")
}

/// How long a server's log is.
pub fn bytes_of_log(server: &Server) -> u64 {
    let logs = server.sql("SHOW BINARY LOGS");
    logs.lines().map(|line| line.split('\t').nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

fn refused(test: &Logged, target: &Target) {
    let says = |options: &str, code: i32, why: &str| {
        let ended = target.restore(test, options).with_code(code);
        assert!(ended.err.contains(why), "{ended}");
    };
    let place = place(&test.server);
    let (file, end) = place.split_once(':').unwrap();
    let end: u64 = end.parse().unwrap();
    let before = content(&target.server);
    says(&format!("--stop-at {file}:{}", end - 31), 2, "is inside of");
    says(&format!("--stop-at {file}:{} --dry-run", end - 31), 2, "is inside of");
    assert_eq!(content(&target.server), before, "the target is as it was");
    says(&format!("--stop-at other.000001:{end}"), 1, "no log set has it");
    says("--stop-at 2020-01-01T00:00:00Z", 1, "is before the range");
    // An account that may load rows, but may not apply a log.
    target.server.sql(
        "CREATE USER loader@localhost IDENTIFIED BY 'p'; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, \
         REFERENCES, CREATE VIEW, TRIGGER, EVENT, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, LOCK TABLES ON *.* TO \
         loader@localhost",
    );
    test.world.write("p", b"p");
    let url = target.url.replace("root@", "loader@");
    let ended = test.run(&format!("restore --repo night --into {url} --password-file p --replace")).with_code(1);
    let privilege = if test.kind == Kind::Mysql9 { "REPLICATION_APPLIER" } else { "BINLOG REPLAY" };
    assert!(ended.err.contains(privilege), "{ended}");
}

/// An encrypted log (which the server sends in clear), without GTIDs on MySQL, with a table without transactions and an XA
/// transaction that begins in one log set and ends in the next.
fn an_encrypted_log_and_a_transaction_in_two_sets(kind: Kind) {
    let options = Options::new().binlog().encrypt();
    let options = match kind {
        Kind::Mysql9 => {
            options.option("binlog-encryption=ON").option("gtid-mode=OFF").option("enforce-gtid-consistency=OFF")
        }
        _ => options.option("encrypt-binlog=ON"),
    };
    let test = Logged::with(kind, &options);
    test.server.sql("CREATE TABLE shop.plain (id INT) ENGINE=MyISAM");
    // A warning names the table without transactions.
    test.backup("--method logical").with_code(4);
    test.server.sql("USE shop; INSERT INTO plain VALUES (1), (2); XA START 'x'; INSERT INTO t (v) VALUES ('both'); XA END 'x'; XA PREPARE 'x'");
    test.insert("first set");
    test.backup("--kind log").done();
    test.server.sql("XA COMMIT 'x'");
    let (then, content_then) = (pass_a_second(), content(&test.server));
    test.insert("second set");
    test.backup("--kind log").done();
    let target = Target::new(&test);
    target.restore(&test, &format!("--stop-at {then}")).done();
    assert_eq!(content(&target.server), content_then);
    assert!(content_then.contains("shop.plain"));
    test.run("verify --repo night").done();
}

#[test]
fn an_encrypted_log_of_mysql_without_gtids_is_applied_with_a_transaction_in_two_sets() {
    an_encrypted_log_and_a_transaction_in_two_sets(Kind::Mysql9);
}

#[test]
fn an_encrypted_log_of_mariadb_is_applied_with_a_transaction_in_two_sets() {
    an_encrypted_log_and_a_transaction_in_two_sets(Kind::Mariadb10);
}

#[test]
fn a_running_mysql_gets_the_rows_and_then_the_log_up_to_a_time() {
    rows_and_then_the_log(Kind::Mysql9);
}

#[test]
fn a_running_mariadb_gets_the_rows_and_then_the_log_up_to_a_time() {
    rows_and_then_the_log(Kind::Mariadb11);
}

/// An event of the set or of the log would change rows while the log brings what the events of the source did.
fn no_event_runs_beside_the_log(kind: Kind) {
    let test = Logged::new(kind);
    test.server.sql(
        "SET GLOBAL event_scheduler = OFF; CREATE TABLE shop.seen (a INT); \
         CREATE EVENT shop.e ON SCHEDULE EVERY 1 SECOND DO INSERT INTO shop.seen VALUES (@@port)",
    );
    test.backup("--method logical").done();
    test.insert("later");
    test.backup("--kind log").done();
    let target = Target::new(&test);
    target.server.sql("SET GLOBAL event_scheduler = ON");
    target.restore(&test, "").with_code(1).says(&["event shop.e", "event_scheduler = OFF"]);
    assert!(!target.server.sql("SHOW DATABASES").contains("shop"));
    test.server.sql("DROP EVENT shop.e");
    test.backup("--method logical").done();
    test.server.sql("CREATE EVENT shop.next ON SCHEDULE EVERY 1 SECOND DO INSERT INTO shop.seen VALUES (@@port)");
    test.backup("--kind log").done();
    target.restore(&test, "").with_code(1).says(&["it makes or changes an event", "event_scheduler = OFF"]);
    target.server.sql("SET GLOBAL event_scheduler = OFF");
    target.restore(&test, "").done();
    assert_eq!(
        target.server.sql("SELECT COUNT(*) FROM shop.seen; SELECT COUNT(*) FROM information_schema.events"),
        "0\n1\n"
    );
}

#[test]
fn no_event_of_mysql_runs_beside_the_log() {
    no_event_runs_beside_the_log(Kind::Mysql9);
}

#[test]
fn no_event_of_mariadb_runs_beside_the_log() {
    no_event_runs_beside_the_log(Kind::Mariadb10);
}

/// A default and a text of a TIMESTAMP, in sessions with the system time zone. And what global settings of the server change.
const IN_SYSTEM_ZONE: &str = "USE shop; CREATE TABLE born (id INT, at TIMESTAMP NULL DEFAULT '2024-07-01 12:00:00') ENGINE=InnoDB; \
    INSERT INTO born (id) VALUES (1); SET SESSION binlog_format = 'STATEMENT'; INSERT INTO born VALUES (2, '2024-12-31 23:30:00'); \
    CREATE TABLE plain (a VARCHAR(9) CHARACTER SET utf8); INSERT INTO plain VALUES ('é'); CREATE TABLE third ENGINE=InnoDB AS SELECT 1 / 3 AS q";
const SETTINGS: &str = "SET GLOBAL default_storage_engine = 'MyISAM', GLOBAL div_precision_increment = 9";
const MOMENTS: &str = "SET time_zone = '+00:00'; SELECT * FROM shop.born ORDER BY id; SHOW CREATE TABLE shop.born; \
    SHOW CREATE TABLE shop.third; SELECT * FROM shop.third";

/// Fills the time zone tables of a server with Europe/Berlin, as `mysql_tzinfo_to_sql` does.
fn load_berlin(server: &Server) {
    let berlin = jiff::tz::TimeZone::get("Europe/Berlin").unwrap();
    let changes =
        berlin.following(jiff::Timestamp::UNIX_EPOCH).map(|change| (change.timestamp().as_second(), change.offset()));
    let row = |(at, offset): (i64, jiff::tz::Offset)| format!("(77, {at}, {})", offset.seconds() / 7200);
    let rows: Vec<String> = changes.take_while(|(at, _)| *at < 1 << 31).map(row).collect();
    server.sql(&format!(
        "USE mysql; INSERT INTO time_zone VALUES (77, 'N'); INSERT INTO time_zone_name VALUES ('Europe/Berlin', 77); \
         INSERT INTO time_zone_transition_type VALUES (77, 0, 3600, 0, 'CET'), (77, 1, 7200, 1, 'CEST'); \
         INSERT INTO time_zone_transition VALUES {}",
        rows.join(", ")
    ));
}

fn the_system_time_zone_of_the_source_counts(kind: Kind) {
    let zone = "Europe/Berlin";
    let test = Logged::with(kind, &Options::new().binlog().time_zone(zone));
    test.server.sql("CREATE EVENT shop.late ON SCHEDULE EVERY 1 DAY STARTS '2037-07-01 12:00:00' DISABLE DO SELECT 1");
    test.backup("").done();
    test.backup("--method logical").done();
    let old_mode = if kind == Kind::Mariadb11 { ", GLOBAL old_mode = ''" } else { "" };
    test.server.sql(&format!("{SETTINGS}{old_mode}"));
    test.server.sql(IN_SYSTEM_ZONE);
    test.backup("--kind log").done();
    let plain = test.server.sql("SHOW CREATE TABLE shop.plain");
    assert!(plain.contains("MyISAM") && plain.contains("utf8mb3") == (kind == Kind::Mysql9), "{plain}");
    let moments = test.server.sql(MOMENTS);
    assert!(moments.contains("2024-07-01 10:00:00") && moments.contains("2024-12-31 22:30:00"), "{moments}");
    test.restore("", "files").done();
    let files = test.start("files");
    assert_eq!((files.sql(MOMENTS), files.sql("SHOW CREATE TABLE shop.plain")), (moments.clone(), plain.clone()));
    drop(files);
    let target = Target::with(&test, &Options::new().binlog().time_zone("UTC"));
    target.restore(&test, "").with_code(1).says(&["time_zone = SYSTEM", "+01:00/+02:00", zone, "time zone tables"]);
    load_berlin(&target.server);
    target.restore(&test, "").done();
    assert_eq!(target.server.sql(MOMENTS), moments);
    assert_eq!(target.server.sql("SHOW CREATE TABLE shop.plain"), plain);
    let events = "SELECT time_zone, starts FROM information_schema.events WHERE event_schema = 'shop'";
    assert_eq!(target.server.sql(events), format!("{zone}\t2037-07-01 12:00:00\n"));
    if kind == Kind::Mysql9 {
        test.server.sql("DROP TABLE shop.plain");
        let line =
            format!("migrate {} --into {} --password-file password --into-password-file target", test.url, target.url);
        test.run(&format!("{line} --replace --for 1ms")).done();
        test.server.sql("ALTER TABLE shop.born ADD later TIMESTAMP DEFAULT '2024-07-01 12:00:00'");
        test.run(&format!("{line} --resume --for 1ms")).done();
        assert_eq!(target.server.sql(MOMENTS), test.server.sql(MOMENTS));
        test.run(&format!("{line} --resume --cut-over")).done();
        assert_eq!(target.server.sql(events), format!("{zone}\t2037-07-01 12:00:00\n"));
    }
}

#[test]
fn statements_in_the_system_time_zone_of_mysql_mean_the_same_moments_in_another_one() {
    the_system_time_zone_of_the_source_counts(Kind::Mysql9);
}

#[test]
fn statements_in_the_system_time_zone_of_mariadb_mean_the_same_moments_in_another_one() {
    the_system_time_zone_of_the_source_counts(Kind::Mariadb11);
}
