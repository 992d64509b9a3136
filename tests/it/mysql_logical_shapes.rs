//! Logical backups of tables of many shapes: numbers in the binary protocol, keys of all kinds, many tables. And loads without
//! redo log.

use std::fs;

use fullbore_test_servers::{Kind, Options, Server};

use crate::migrate::migrate;
use crate::mysql_logical::{SHOP, assert_same, backup, everything, load, server, started};
use crate::report::assert_within_the_pool;
use crate::world::World;

/// The table `seq` has the numbers from 0 on, 2 to this power of them.
fn numbered(power: u32) -> String {
    let doubled = (0..power).map(|step| format!("INSERT INTO seq SELECT n + {} FROM seq; ", 1_u64 << step));
    format!(
        "CREATE DATABASE made; USE made; CREATE TABLE seq (n INT PRIMARY KEY); INSERT INTO seq VALUES (0); {}",
        doubled.collect::<String>()
    )
}

fn checksums(server: &Server, tables: &str) -> String {
    server.sql(&format!("CHECKSUM TABLE {tables}"))
}

/// `small` is dumped as text and read again in the binary protocol: `--check full` compares the two. `large` and `fixed` are
/// above the bytes from which a dump asks for numbers in the binary protocol; `fixed` has texts that only the server makes.
const NUMBERS: &str = "CREATE DATABASE numbers; USE numbers; SET sql_mode = 'ALLOW_INVALID_DATES'; SET time_zone = '+00:00'; \
    CREATE TABLE small (id INT PRIMARY KEY, g DOUBLE, h DOUBLE, f FLOAT, t TINYINT, u BIGINT UNSIGNED, m MEDIUMINT, d DECIMAL(30,10), \
        y YEAR, a DATE, b DATETIME(3), c TIMESTAMP(6) NULL, e TIME(2), s VARCHAR(200), x ENUM('a','b'), z BIT(9)); \
    INSERT INTO small SELECT n, (RAND(n) - 0.5) * POW(10, n % 590 - 290), RAND(n + 7) * 1000, RAND(n) * 1e6, n % 256 - 128, \
        18446744073709551615 - n, -n, RAND(n) * 1e9 - 5e8, 1901 + n % 255, DATE_ADD('1000-01-01', INTERVAL n DAY), \
        DATE_ADD('2000-01-01', INTERVAL n * 1001000 MICROSECOND), DATE_ADD('1999-12-31 23:59:59', INTERVAL n MICROSECOND), \
        SEC_TO_TIME((n - 2000) * 1500.25), CONCAT('t\\t', n), 1 + n % 2, n % 512 FROM made.seq WHERE n < 4096; \
    INSERT INTO small (id) VALUES (-1); INSERT INTO small VALUES (-2, -0.0, 1e15, 1e-15, 0, 0, 0, 0, 0, '0000-00-00', '0000-00-00', NULL, \
        '-838:59:59', '', 1, 0), (-3, 5e-324, 1.7976931348623157e308, 3.4e38, 1, 1, 1, 1, 2155, '2023-02-31', '9999-12-31 23:59:59.999', \
        '2038-01-19 03:14:07.999999', '838:59:59', 'x', 2, 511), (-4, 123456789012345680, 999999999999999.9, 16777217, 1, 1, 1, 1, 1970, \
        NULL, NULL, NULL, '00:00:00.01', NULL, NULL, NULL); \
    CREATE TABLE large LIKE small; INSERT INTO large SELECT n, g * (n + 1), h, f, t, u, m, d, y, a, b, c, e, REPEAT(s, 20), x, z FROM \
        (SELECT q.n, o.* FROM made.seq q JOIN small o ON o.id = q.n % 4096) AS both_of; \
    CREATE TABLE fixed (id INT(9) ZEROFILL PRIMARY KEY, g DOUBLE(12,3), h DOUBLE, s VARCHAR(300)); \
    INSERT INTO fixed SELECT n, n / 7, n / 7, REPEAT('x', 200) FROM made.seq; ANALYZE TABLE small, large, fixed";

fn numbers_come_back(kind: Kind) {
    let world = World::new();
    let (source, target) = (server(kind, &world, "source"), server(kind, &world, "target"));
    source.sql(&numbered(14));
    source.sql(NUMBERS);
    let tables = "numbers.small, numbers.large, numbers.fixed";
    backup(&world, &source, "--to a/ --database numbers --readers 2").done();
    load(&world, &target, "--from a --check full").done();
    assert_eq!(checksums(&target, tables), checksums(&source, tables));
    // The text is the text of the server.
    world.run("restore --from a --into dir:out").done();
    let text = String::from_utf8_lossy(&world.read("out/numbers/large/00001.tsv")).into_owned();
    let line = text.lines().find(|line| line.starts_with("4000\t")).unwrap();
    let asked = "SELECT CONCAT_WS('\\t', id, g, h, f * 1e0, t, u, m, d, y, a, b) FROM numbers.large WHERE id = 4000";
    let expected = source.sql(&format!("SET time_zone = '+00:00'; {asked}")).replace("\\t", "\t");
    assert!(line.starts_with(expected.trim()), "{line}\n{expected}");
    assert!(world.text("out/numbers/fixed/00001.tsv").starts_with("000000000\t0.000\t0\t"));
}

#[test]
fn numbers_of_a_mysql_server_are_the_same_in_the_text_and_in_the_binary_protocol() {
    numbers_come_back(Kind::Mysql9);
}

#[test]
fn numbers_of_mariadb_servers_are_the_same_in_the_text_and_in_the_binary_protocol() {
    for kind in [Kind::Mariadb10, Kind::Mariadb11] {
        numbers_come_back(kind);
    }
}

/// Tables of more than 32 MiB: readers cut them. Letters of both cases, and letters with accents, are not in the
/// order of bytes. Half a letter of cp932 is no text, and a server without a mode for it refuses the 31st of February.
const KEYS: &str = "CREATE DATABASE shapes CHARACTER SET utf8mb4; USE shapes; \
    CREATE TABLE by_text (k VARCHAR(40) PRIMARY KEY, v VARCHAR(2600)); \
    INSERT INTO by_text SELECT CONCAT(ELT(1 + n % 6, 'a', 'B', 'é', 'Z', '', 'ß_'), CONV(n * 7919 % 16384, 10, 36), '-', n), REPEAT('v', 2500) FROM made.seq; \
    SET sql_mode = 'ALLOW_INVALID_DATES'; \
    CREATE TABLE by_three (a VARCHAR(5) CHARACTER SET cp932, b DATE, c BIGINT UNSIGNED, v VARCHAR(2600), \
        PRIMARY KEY (a, b, c), UNIQUE KEY (v)); \
    INSERT INTO by_three SELECT ELT(1 + n % 4, 'ソ', '表', 'b', ''), ELT(1 + n % 3, '2023-02-31', '0000-00-00', '1999-01-00'), 18446744073709551615 - n, \
        IF(n % 10, CONCAT(n, REPEAT('w', 2500)), NULL) FROM made.seq; \
    CREATE TABLE without (a INT, b VARCHAR(2600), UNIQUE KEY (a)); \
    INSERT INTO without SELECT IF(n % 2, n, NULL), REPEAT('u', 2500) FROM made.seq; ANALYZE TABLE by_text, by_three, without";

#[test]
fn large_tables_with_keys_of_every_kind_come_back_with_four_readers() {
    for kind in [Kind::Mysql9, Kind::Mariadb11] {
        let world = World::new();
        let (source, target) = (server(kind, &world, "source"), server(kind, &world, "target"));
        source.sql(&numbered(14));
        // A unique key holds 3,072 bytes.
        source.sql(&KEYS.replace("UNIQUE KEY (v)", "UNIQUE KEY (v(600))"));
        let tables = "shapes.by_text, shapes.by_three, shapes.without";
        backup(&world, &source, "--to a/ --database shapes --readers 4").done();
        load(&world, &target, "--from a --check full").done();
        assert_eq!(checksums(&target, tables), checksums(&source, tables));
    }
}

#[test]
fn many_tables_and_wide_ones_come_back_with_their_definitions() {
    for kind in [Kind::Mysql9, Kind::Mariadb10] {
        let world = World::new();
        let (source, target) = (server(kind, &world, "source"), server(kind, &world, "target"));
        let many = (0..60).map(|at| {
            format!("CREATE TABLE t{at} (id INT PRIMARY KEY COMMENT 'é {at}'); INSERT INTO t{at} VALUES ({at});")
        });
        // Forty statements of these are longer than what a network holds.
        let columns: String = (0..400).map(|at| format!(", `a column with a long name, number {at}` INT")).collect();
        let wide = (1..40).map(|at| format!("CREATE TABLE w{at} LIKE w0; INSERT INTO w{at} (id) VALUES (1);"));
        source.sql(&format!("CREATE DATABASE many; USE many; {}", many.collect::<String>()));
        source.sql(&format!("CREATE DATABASE wide; USE wide; CREATE TABLE w0 (id INT PRIMARY KEY{columns})"));
        source.sql(&format!("USE wide; {}", wide.collect::<String>()));
        backup(&world, &source, "--to a/ --readers 3").done();
        load(&world, &target, "--from a --check full").done();
        assert_same(&everything(&target, &["many"]), &everything(&source, &["many"]));
        let asked = "SHOW CREATE TABLE wide.w0; SHOW CREATE TABLE wide.w39; SELECT COUNT(*) FROM wide.w39";
        assert_eq!(target.sql(asked), source.sql(asked));
        if kind == Kind::Mysql9 {
            a_load_of_many_tables_continues_behind_the_last_noted_one(&world, &source, &target);
        }
    }
}

#[test]
fn a_load_gives_back_the_memory_of_each_stream() {
    let world = World::new();
    let (source, target) = (server(Kind::Mysql9, &world, "source"), server(Kind::Mysql9, &world, "target"));
    let many = (1..80).map(|at| format!("CREATE TABLE t{at} LIKE t0; INSERT INTO t{at} SELECT * FROM t0; "));
    source.sql(&numbered(11));
    source.sql(&format!(
        "CREATE DATABASE many; USE many; CREATE TABLE t0 (id INT PRIMARY KEY, v VARCHAR(1000)); \
        INSERT INTO t0 SELECT n, REPEAT('v', 1000) FROM made.seq; ANALYZE TABLE t0; {}",
        many.collect::<String>()
    ));
    target.sql("SET GLOBAL local_infile = 1");
    backup(&world, &source, "--to a/ --database many").done();
    assert_within_the_pool(&load(&world, &target, "--from a --report json").done().json());
}

/// The first row is 84 MiB of text. Numbers 0 of ENUM columns stand before and behind long values.
const LONG_ROWS: &str = "CREATE DATABASE `long`; USE `long`; SET sql_mode = ''; \
    CREATE TABLE t (e ENUM('a','b'), id INT PRIMARY KEY, body LONGBLOB, f ENUM('x','y'), tail TEXT); \
    INSERT INTO t VALUES ('a', 1, REPEAT('ab\\t\\\\', 12 << 20), 'y', 'end'), ('b', 2, 'short', 'x', NULL), \
        ('none', 3, REPEAT('c', 9000000), 'none', ''), ('a', 4, REPEAT('\\n', 3000000), 'x', 'e\\tf'), ('b', 5, NULL, NULL, NULL)";

#[test]
fn rows_that_are_longer_than_the_memory_of_the_program_go_into_a_server_in_pieces() {
    for kind in [Kind::Mysql9, Kind::Mariadb11] {
        let world = World::new();
        let options = Options::new()
            .binlog()
            .redo("1G")
            .option("max_allowed_packet=256M")
            .option("local_infile=1")
            .option("binlog_format=ROW");
        let [source, target] = ["source", "target"].map(|name| started(kind, &options, &world, name));
        source.sql(LONG_ROWS);
        assert_within_the_pool(&backup(&world, &source, "--to a/ --database long --report json").done().json());
        assert_within_the_pool(&load(&world, &target, "--from a --check full --report json").done().json());
        let rows = |server: &Server| {
            server.sql("CHECKSUM TABLE `long`.t; SELECT e + 0, id, LENGTH(body), f + 0, tail FROM `long`.t")
        };
        assert_eq!(rows(&target), rows(&source));
        // Without media between the servers.
        target.sql("DROP DATABASE `long`");
        assert_within_the_pool(&migrate(&world, [&source, &target], "--for 1ms --report json").done().json());
        assert_eq!(rows(&target), rows(&source));
    }
}

/// The notes say after each hundred tables how many are there: with all of them in one transaction, a server becomes slow.
fn a_load_of_many_tables_continues_behind_the_last_noted_one(world: &World, source: &Server, target: &Server) {
    let name = |at: u32| format!("more.t{at:03}");
    let many =
        (0..120).map(|at| format!("CREATE TABLE {0} (id INT PRIMARY KEY); INSERT INTO {0} VALUES ({at});", name(at)));
    let many = many.collect::<String>();
    source.sql(&format!(
        "CREATE DATABASE more; {many} CREATE VIEW more.v AS SELECT 1; CREATE TABLE more.zz (id INT) ENGINE=MyISAM; \
        INSERT INTO more.zz VALUES (1)"
    ));
    backup(world, source, "--to more/ --mkdir --readers 1 --database more").with_code(4);
    // It fails behind the rows: the account may not make a view of another definer.
    target.sql("CREATE USER some@'%' IDENTIFIED BY 'pl41n'; GRANT ALL ON more.* TO some@'%'; GRANT ALL ON fullbore_load.* TO some@'%'");
    fs::write(world.at("plain"), "pl41n").unwrap();
    let into = format!("mysql://some@127.0.0.1:{}", target.port());
    let noted = || {
        let asked = "SELECT SUM(count_star) FROM performance_schema.events_statements_summary_by_digest WHERE digest_text LIKE \
            'INSERT INTO `fullbore_load` . `streams`%' OR digest_text LIKE 'UPDATE `fullbore_load` . `streams`%'";
        target.sql(asked).trim().parse::<u64>().unwrap()
    };
    let before = noted();
    world.run(&format!("restore --from more --into {into} --password-file plain")).with_code(1);
    assert_eq!(noted() - before, 2);
    // As if it had been killed behind the first hundred tables.
    let lost = (100..120).map(|at| format!("DELETE FROM {};", name(at))).collect::<String>();
    target.sql(&format!("{lost} UPDATE fullbore_load.streams SET tables = 100 WHERE tables IS NULL"));
    load(world, target, "--from more --resume --check full").done();
    assert_same(&everything(target, &["more"]), &everything(source, &["more"]));
}

#[test]
fn a_load_without_redo_log_switches_it_on_again_in_every_case() {
    let world = World::new();
    let (source, target) = (server(Kind::Mysql9, &world, "source"), server(Kind::Mysql9, &world, "target"));
    source.sql(SHOP);
    backup(&world, &source, "--to a/").done();
    let redo = || target.sql("SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_enabled'").trim().ends_with("ON");
    let ended = load(&world, &target, "--from a --disable-redo --check full").done();
    assert!(ended.err.contains("the redo log of the target was off during the load, and is on again"), "{ended}");
    assert!(redo());

    // A load that fails at its end: the account may not make objects of other definers.
    target.sql(
        "CREATE USER some@'%' IDENTIFIED BY 'pl41n'; GRANT ALL ON shop.* TO some@'%'; GRANT ALL ON fullbore_load.* TO some@'%'",
    );
    fs::write(world.at("plain"), "pl41n").unwrap();
    let port = target.port();
    let as_some = |options: &str| {
        let into = format!("mysql://some@127.0.0.1:{port}");
        world.run(&format!("restore --from a --into {into} --password-file plain --replace --disable-redo{options}"))
    };
    as_some("").refused(1, "--disable-redo", "INNODB_REDO_LOG_ENABLE");
    assert!(target.sql("SHOW TABLES FROM shop").contains("customer") && redo());
    target.sql("GRANT INNODB_REDO_LOG_ENABLE ON *.* TO some@'%'; SET GLOBAL log_bin_trust_function_creators = ON");
    as_some("").with_code(1).says(&["SET_ANY_DEFINER", "its redo log is on again"]);
    assert!(redo());

    // A load that is stopped.
    let line = format!(
        "restore --from a --into mysql://root@127.0.0.1:{port} --password-file target --replace --disable-redo --throttle 1KiB"
    );
    let running = world.start(&line);
    fullbore_test_servers::wait_until("the redo log is off", || !redo());
    running.signal("INT");
    let ended = running.wait();
    assert!(ended.code == 130 && ended.err.contains("its redo log is on again") && redo(), "{ended}");

    // Somebody else has switched it off: a warning.
    target.sql("ALTER INSTANCE DISABLE INNODB REDO_LOG");
    load(&world, &target, "--from a --replace").with_code(4).says(&["the redo log of the target is off"]);
    world.run("backup mysql://root@127.0.0.1:1 --method logical --disable-redo --to nul:").with_code(2);
}

#[test]
fn a_mariadb_server_has_no_redo_log_to_switch_off() {
    let world = World::new();
    let (source, target) = (server(Kind::Mariadb10, &world, "source"), server(Kind::Mariadb10, &world, "target"));
    source.sql("CREATE DATABASE a; CREATE TABLE a.t (id INT)");
    backup(&world, &source, "--to a/").done();
    load(&world, &target, "--from a --disable-redo").with_code(2);
    load(&world, &target, "--from a --check full").done();
}
