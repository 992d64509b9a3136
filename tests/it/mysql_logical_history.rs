//! The history of system-versioned tables of MariaDB: through a set, a migration and an export.

use std::fs::{self, File};
use std::process::Stdio;

use fullbore_test_servers::{Kind, Options, Server};

use crate::migrate::migrate;
use crate::mysql_logical::{backup, load, server};
use crate::server_logs::{Logged, pass_a_second};
use crate::server_logs_into::Target;
use crate::world::World;

/// Tables of many shapes: hidden times and named ones, without a key, with a column that is not versioned, with history
/// partitions. Each change has a time of its own.
const PAST: &str = "CREATE DATABASE past; USE past; SET time_zone = '+03:00'; \
    CREATE TABLE plain (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20), d DOUBLE, UNIQUE KEY (v)) WITH SYSTEM VERSIONING; \
    CREATE TABLE named (id INT PRIMARY KEY, begins TIMESTAMP(6) GENERATED ALWAYS AS ROW START INVISIBLE, e ENUM('', 'a', 'b'), j JSON, \
        ends TIMESTAMP(6) GENERATED ALWAYS AS ROW END, twice INT AS (id * 2) STORED, PERIOD FOR SYSTEM_TIME (begins, ends)) WITH SYSTEM VERSIONING; \
    CREATE TABLE nokey (a TEXT, b BLOB) WITH SYSTEM VERSIONING; \
    CREATE TABLE some (id INT PRIMARY KEY, a INT, b INT WITHOUT SYSTEM VERSIONING) WITH SYSTEM VERSIONING; \
    CREATE TABLE parts (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING \
        PARTITION BY SYSTEM_TIME LIMIT 3 (PARTITION p0 HISTORY, PARTITION p1 HISTORY, PARTITION pn CURRENT); \
    CREATE TABLE child (id INT PRIMARY KEY, plain INT, FOREIGN KEY (plain) REFERENCES plain (id)) WITH SYSTEM VERSIONING; \
    CREATE TABLE odd (id INT PRIMARY KEY) WITH SYSTEM VERSIONING; SET timestamp = 1500000000.000001; INSERT INTO odd VALUES (1), (2), (3); \
    DELETE FROM odd WHERE id = 1; SET timestamp = 1400000000; DELETE FROM odd WHERE id = 2; \
    SET timestamp = 1500000000.000001; INSERT INTO plain (v, d) VALUES ('one', 0.1), ('two', -1e300), ('three', NULL); \
    INSERT INTO named (id, e, j) VALUES (1, 'a', '[1]'), (2, '', NULL); INSERT INTO nokey VALUES ('x\\t', X'00'), ('x\\t', X'00'); \
    INSERT INTO some VALUES (1, 1, 1), (2, 2, 2); INSERT INTO parts VALUES (1, 1), (2, 1), (3, 1); INSERT INTO child VALUES (1, 1), (2, 2); \
    SET timestamp = 1600000000.999999; UPDATE plain SET v = CONCAT(v, '+'); UPDATE named SET e = 'b'; UPDATE some SET a = 3; UPDATE some SET b = 4; \
    UPDATE nokey SET a = '\\\\N' LIMIT 1; UPDATE parts SET v = 2; DELETE FROM child WHERE id = 2; \
    SET timestamp = 1700000000.5; UPDATE plain SET d = 7 WHERE id = 1; DELETE FROM plain WHERE id = 3; DELETE FROM named WHERE id = 1; \
    DELETE FROM nokey LIMIT 1; UPDATE parts SET v = 3 WHERE id > 1; SET timestamp = DEFAULT; INSERT INTO plain (v) VALUES ('today');";

/// Later changes, for a log: of rows and of definitions.
const LATER: &str = "USE past; UPDATE plain SET d = 8; DELETE FROM plain WHERE id = 2; UPDATE nokey SET b = 'later'; INSERT INTO named (id) VALUES (9); \
    UPDATE named SET e = 'a'; UPDATE parts SET v = v + 1; DELETE FROM child; UPDATE some SET b = 7; \
    CREATE TABLE fresh (a INT) WITH SYSTEM VERSIONING; INSERT INTO fresh VALUES (1), (2); UPDATE fresh SET a = a + 1; \
    CREATE TABLE becomes (a INT PRIMARY KEY); INSERT INTO becomes VALUES (1); ALTER TABLE becomes ADD SYSTEM VERSIONING; UPDATE becomes SET a = 2; \
    SET system_versioning_alter_history = KEEP; ALTER TABLE some ADD COLUMN c INT DEFAULT 5; UPDATE some SET c = 6 WHERE id = 1";
/// All versions of the rows of the tables that they make.
const MADE_LATER: &str = "SELECT a, row_start, IF(row_end > NOW() + INTERVAL 1 YEAR, 0, row_end) FROM past.fresh FOR SYSTEM_TIME ALL ORDER BY 1, 2; \
    SELECT a, row_start, IF(row_end > NOW() + INTERVAL 1 YEAR, 0, row_end) FROM past.becomes FOR SYSTEM_TIME ALL ORDER BY 1, 2";

/// The tables, and their columns with the times of a version.
const TABLES: [(&str, &str); 6] = [
    ("plain", "*, row_start, row_end"),
    ("named", "*, begins, ends"),
    ("nokey", "HEX(a), HEX(b), row_start, row_end"),
    ("some", "*, row_start, row_end"),
    ("parts", "*, row_start, row_end"),
    ("child", "*, row_start, row_end"),
];

/// All versions of all rows. The end of a current row differs from version to version.
fn versions(server: &Server) -> String {
    let mut seen = String::new();
    for (table, columns) in TABLES {
        let told = server.sql(&format!(
            "SET time_zone = '+00:00'; SELECT {columns} FROM past.{table} FOR SYSTEM_TIME ALL; SHOW CREATE TABLE past.{table}"
        ));
        let mut lines: Vec<String> = told
            .lines()
            .map(|line| line.replace("2038-01-19 03:14:07.999999", "now").replace("2106-02-07 06:28:15.999999", "now"))
            .collect();
        lines.sort();
        seen += &format!("{table}\n{}\n", lines.join("\n"));
    }
    seen
}

/// The campaign `series` has servers of MariaDB 10.6 and 11.4 in the place of the others.
fn takes_history(server: &Server) -> bool {
    server.try_sql("SELECT @@system_versioning_insert_history").is_ok()
}

/// Whether current rows end in 2106.
fn ends_later(server: &Server) -> bool {
    server.sql("SET time_zone = '+00:00'; SELECT UNIX_TIMESTAMP('2106-02-07 06:28:15') > 0") == "1\n"
}

fn same(found: &str, expected: &str) {
    let differing: Vec<_> = found.lines().zip(expected.lines()).filter(|(found, expected)| found != expected).collect();
    assert!(found == expected, "{:.3000}", format!("{differing:#?}"));
}

#[test]
fn every_version_of_every_row_comes_back_with_its_times_in_each_series() {
    for (from, into) in [(Kind::Mariadb10, Kind::MARIADB), (Kind::Mariadb11, [Kind::Mariadb11, Kind::Mariadb10])] {
        let world = World::new();
        let source = server(from, &world, "source");
        if !takes_history(&source) {
            return;
        }
        source.sql(PAST);
        let before = versions(&source);
        assert!(before.contains("two\t-1e300\t2017-07-14 02:40:00.000001\t2020-09-13 12:26:40.999999"), "{before}");
        backup(&world, &source, "--to a/ --readers 2").done();
        for kind in into {
            let target = server(kind, &world, "target");
            load(&world, &target, "--from a --check full").done();
            same(&versions(&target), &before);
            // What was never valid is left out.
            let odd = "SELECT id FROM past.odd FOR SYSTEM_TIME ALL";
            assert!(source.sql(odd).lines().count() > 1 && target.sql(odd) == "3\n");
            // The way without LOAD DATA LOCAL.
            let other = if target.sql("SELECT @@local_infile").trim() == "1" { 0 } else { 1 };
            target.sql(&format!("SET GLOBAL local_infile = {other}"));
            load(&world, &target, "--from a --check full --replace").done();
            same(&versions(&target), &before);
            exports(&world, &target, &before);
        }
    }
}

/// Runs a text by the client of the server.
fn run_text(world: &World, target: &Server, folder: &str, name: &str) {
    let text = Stdio::from(File::open(world.at(folder).join(name)).unwrap());
    let mut client = target.client();
    client.args(["--binary-mode", "--local-infile=1"]).current_dir(world.at(folder));
    let ended = client.stdin(text).stderr(Stdio::piped()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Texts of SQL and a CSV file have all versions, too.
fn exports(world: &World, target: &Server, before: &str) {
    world.run("export --from a --format sql --into dir:sql").done();
    target.sql("DROP DATABASE past; SET GLOBAL local_infile = 1");
    run_text(world, target, "sql", &world.names("sql").remove(0));
    same(&versions(target), before);
    world.run("restore --from a --into dir:text").done();
    target.sql("DROP DATABASE past");
    ["schema", "load", "code"].iter().for_each(|name| run_text(world, target, "text", &format!("past/{name}.sql")));
    same(&versions(target), before);
    ["sql", "text"].iter().for_each(|name| fs::remove_dir_all(world.at(name)).unwrap());
    let told = world.run("export --from a --format csv --table past.plain --into dir:csv").done();
    assert!(told.err.contains("row_end"), "{told}");
    let text = world.text("csv/past.plain.csv");
    assert!(text.contains("2020-09-13") && text.lines().count() == 9, "{text}");
    fs::remove_dir_all(world.at("csv")).unwrap();
    let line = [
        "export",
        "--from",
        "a",
        "--format",
        "csv",
        "--table",
        "past.named",
        "--where",
        "ends IS NULL",
        "--into",
        "dir:csv",
    ];
    world.run_with(&line).done();
    let text = world.text("csv/past.named.csv");
    assert!(text.starts_with("id,begins,e,j,ends\r\n2,2020-09-13") && text.lines().count() == 2, "{text}");
    fs::remove_dir_all(world.at("csv")).unwrap();
}

#[test]
fn a_target_that_does_not_take_the_history_gets_current_rows_and_a_warning() {
    let world = World::new();
    let source = server(Kind::Mariadb11, &world, "source");
    source.sql(PAST);
    // Its load fails behind the rows, and is continued.
    source.sql("CREATE VIEW past.v AS SELECT 1; CREATE TABLE past.my (a INT) ENGINE=MyISAM WITH SYSTEM VERSIONING; \
        INSERT INTO past.my VALUES (1), (2); DELETE FROM past.my WHERE a = 1; \
        CREATE TABLE past.numbered (a INT, s BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, e BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, \
            PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING; \
        INSERT INTO past.numbered (a) VALUES (1), (2); DELETE FROM past.numbered WHERE a = 1");
    let ended = backup(&world, &source, "--to a/").with_code(4).says(&["numbers of transactions", "past.numbered"]);
    assert!(!ended.err.contains("past.plain"), "{ended}");
    let tables = [
        "id, v, d FROM past.plain",
        "id, e, j, twice FROM past.named",
        "a, HEX(b) FROM past.nokey",
        "* FROM past.some",
        "* FROM past.parts",
        "* FROM past.child",
        "* FROM past.my",
        "a FROM past.numbered",
    ];
    let current = |server: &Server| tables.map(|what| server.sql(&format!("SELECT {what} ORDER BY 1")));
    for (option, with_history) in [("secure_timestamp=YES", false), ("secure_timestamp=NO", true)] {
        let target = Server::start(Kind::Mariadb10, &Options::new().binlog().option(option));
        fs::write(world.at("target"), target.password()).unwrap();
        fs::write(world.at("plain"), "pl41n").unwrap();
        let with_history = with_history && takes_history(&target);
        target.sql("CREATE USER some@'%' IDENTIFIED BY 'pl41n'; GRANT ALL ON past.* TO some@'%'; GRANT ALL ON fullbore_load.* TO some@'%'");
        let into = format!("mariadb://some@127.0.0.1:{}", target.port());
        world.run(&format!("restore --from a --into {into} --password-file plain")).with_code(1).says(&["past.v"]);
        let ended = load(&world, &target, "--from a --resume --check full");
        match with_history {
            true => drop(ended.done()),
            false => drop(ended.with_code(4).says(&["secure_timestamp", "past.plain", "current rows only"])),
        }
        let versions_there = versions(&target);
        assert_eq!(versions_there == versions(&source), with_history, "{versions_there}");
        let count =
            "SELECT COUNT(*) FROM past.plain FOR SYSTEM_TIME ALL; SELECT COUNT(*) FROM past.my FOR SYSTEM_TIME ALL";
        assert_eq!(target.sql(count), if with_history { "8\n2\n" } else { "3\n1\n" });
        assert_eq!(current(&target), current(&source));
    }
}

#[test]
fn a_mysql_target_refuses_a_system_versioned_table_by_its_name_before_the_first_row() {
    let world = World::new();
    let (source, target) = (server(Kind::Mariadb10, &world, "source"), server(Kind::Mysql9, &world, "target"));
    source.sql(PAST);
    source.sql("CREATE TABLE past.without (a INT); INSERT INTO past.without VALUES (1)");
    backup(&world, &source, "--to a/").done();
    load(&world, &target, "--from a").refused(1, "past.child", "SYSTEM VERSIONING");
    assert!(!target.sql("SHOW DATABASES").contains("past"));
    load(&world, &target, "--from a --table past.without --check full").done();
}

#[test]
fn a_large_table_with_its_history_is_read_by_several_readers_and_some_versions_are_chosen() {
    let world = World::new();
    let source = server(Kind::Mariadb11, &world, "source");
    if !takes_history(&source) {
        return;
    }
    source.sql("CREATE DATABASE past; USE past; SET timestamp = 1500000000.25; \
        CREATE TABLE large (id INT PRIMARY KEY, d DOUBLE, v VARCHAR(2500), UNIQUE KEY (d)) WITH SYSTEM VERSIONING; \
        INSERT INTO large SELECT seq, seq / 7, REPEAT('v', 2400) FROM seq_1_to_9000; \
        SET timestamp = 1600000000.25; UPDATE large SET d = -d; SET timestamp = 1700000000.25; DELETE FROM large WHERE id % 2; ANALYZE TABLE large");
    let told = |server: &Server| {
        server.sql("SELECT COUNT(*), SUM(CRC32(CONCAT_WS(',', id, d, v, row_start, IF(row_end > NOW() + INTERVAL 1 YEAR, 0, row_end)))) FROM past.large FOR SYSTEM_TIME ALL; \
            SHOW CREATE TABLE past.large")
    };
    assert!(told(&source).starts_with("18000\t"));
    backup(&world, &source, "--to a/ --readers 3").done();
    backup(&world, &source, "--to part/ --mkdir --where past.large:id<100").done();
    let target = server(Kind::Mariadb11, &world, "target");
    load(&world, &target, "--from a --check full").done();
    assert_eq!(told(&target), told(&source));
    load(&world, &target, "--from part --replace --check full").done();
    let of_part = "SELECT COUNT(*) FROM past.large FOR SYSTEM_TIME ALL; SELECT COUNT(*) FROM past.large";
    assert_eq!(target.sql(of_part), "198\n49\n");
}

#[test]
fn a_migration_moves_the_history_and_what_the_log_adds_to_it() {
    for (from, into) in [(Kind::Mariadb11, Kind::Mariadb11), (Kind::Mariadb10, Kind::Mariadb11)] {
        let world = World::new();
        let (source, target) =
            (crate::migrate::server(from, &world, "source"), crate::migrate::server(into, &world, "target"));
        let both = [&source, &target];
        if !takes_history(&target) {
            return;
        }
        let is_same = ends_later(&source) == ends_later(&target);
        source.sql(PAST);
        let full = migrate(&world, both, "--readers 2 --for 1ms");
        if is_same {
            full.done();
            source.sql(LATER);
        } else {
            full.with_code(4).says(&["before 11.5", "Cut over before", "past.plain"]);
            // A row of the log would be an earlier version in the target.
            source.sql("INSERT INTO past.some VALUES (7, 7, 7)");
            migrate(&world, both, "--resume --for 1ms").refused(1, "past.some is system-versioned", "2106");
            migrate(&world, both, "--replace --for 1ms").with_code(4);
            // A difference that only the history has.
            target.sql("DELETE HISTORY FROM past.child");
            migrate(&world, both, "--resume --cut-over").refused(1, "past.child", "it has 1 rows");
            target.sql(
                "SET time_zone = '+00:00', system_versioning_insert_history = ON; INSERT INTO past.child (id, plain, row_start, row_end) \
                 VALUES (2, 2, '2017-07-14 02:40:00.000001', '2020-09-13 12:26:40.999999')",
            );
        }
        migrate(&world, both, "--resume --cut-over").done();
        same(&versions(&target), &versions(&source));
        if is_same {
            assert_eq!(target.sql(MADE_LATER), source.sql(MADE_LATER));
        }
    }
}

#[test]
fn log_sets_behind_a_set_continue_the_history_in_a_server_and_in_a_new_data_directory() {
    let test = Logged::new(Kind::Mariadb11);
    if !takes_history(&test.server) {
        return;
    }
    test.server.sql(PAST);
    test.backup("--method logical").done();
    test.server.sql(LATER);
    let then = pass_a_second();
    test.insert("after the time");
    test.backup("--kind log").done();
    let target = Target::new(&test);
    target.restore(&test, "").done();
    same(&versions(&target.server), &versions(&test.server));
    assert_eq!(target.server.sql(MADE_LATER), test.server.sql(MADE_LATER));
    drop(target);
    // The server of a new data directory reads the log itself.
    test.restore(&format!("--stop-at {then} --check full"), "new").done();
    let restored = test.start_new("new");
    same(&versions(&restored), &versions(&test.server));
    assert_eq!(restored.sql(MADE_LATER), test.server.sql(MADE_LATER));
}

#[test]
fn the_log_of_a_server_before_11_5_never_adds_rows_to_a_later_one_that_nobody_sees() {
    let test = Logged::new(Kind::Mariadb10);
    test.server.sql(PAST);
    test.backup("--method logical").done();
    test.insert("before");
    test.server.sql("SET binlog_format = ROW; INSERT INTO past.plain (v) VALUES ('later')");
    test.backup("--kind log").done();
    let server = Server::start(Kind::Mariadb11, &Options::new().binlog().option("local-infile=1"));
    fs::write(test.world.at("target"), server.password()).unwrap();
    let url = format!("mariadb://root@/?socket={}", server.socket().display());
    let target = Target { server, url };
    if !ends_later(&target.server) {
        return;
    }
    target.restore(&test, "").with_code(1).says(&["past.plain is system-versioned", "2106"]);
    assert_eq!(target.server.sql("SELECT COUNT(*) FROM shop.t WHERE v = 'before'"), "1\n");
}

/// MariaDB keeps in an open table that rows brought their times along. See `history::close`.
#[test]
fn a_part_of_a_period_that_is_deleted_after_a_restore_leaves_the_other_parts_current() {
    let test = Logged::new(Kind::Mariadb11);
    if !takes_history(&test.server) {
        return;
    }
    test.server.sql(
        "CREATE DATABASE past; USE past; CREATE TABLE stay (id INT, a DATE, b DATE, PERIOD FOR p (a, b), PRIMARY KEY (id, p WITHOUT OVERLAPS)) \
         WITH SYSTEM VERSIONING; INSERT INTO stay VALUES (1, '2020-06-01', '2021-01-01'); CREATE TABLE late LIKE stay",
    );
    test.backup("--method logical").done();
    let delete = |table: &str| format!("DELETE FROM past.{table} FOR PORTION OF p FROM '2020-07-01' TO '2020-08-01'");
    // Behind the rows of the set: as a statement.
    test.server.sql(&format!("SET binlog_format = STATEMENT; {}", delete("stay")));
    test.server.sql("SET binlog_format = ROW; INSERT INTO past.late VALUES (1, '2020-06-01', '2021-01-01')");
    let then = test.last_gtid();
    test.server.sql(&format!("SET binlog_format = STATEMENT; {}", delete("late")));
    test.backup("--kind log").done();
    let target = Target::new(&test);
    // Behind rows of the log: it is refused.
    target.restore(&test, "").with_code(1).says(&["FOR PORTION OF"]);
    target.restore(&test, &format!("--stop-at-gtid {then}")).done();
    target.server.sql(&delete("late"));
    let current = "SELECT a, b FROM past.stay ORDER BY a; SELECT a, b FROM past.late ORDER BY a";
    let parts = "2020-06-01\t2020-07-01\n2020-08-01\t2021-01-01\n";
    assert_eq!(target.server.sql(current), parts.repeat(2));
}
