//! Logical backups of real servers: rows and statements out of one server, into a directory and into another server.

use std::collections::HashMap;
use std::fs;

use fullbore_test_servers::{Kind, Options, Server};

use crate::program::Ended;
use crate::world::World;

pub fn server(kind: Kind, world: &World, name: &str) -> Server {
    started(kind, &Options::new().binlog(), world, name)
}

/// A server, whose password is in the file `name`.
pub fn started(kind: Kind, options: &Options, world: &World, name: &str) -> Server {
    let server = Server::start(kind, options);
    let password = server.password_file().map(|path| fs::read(path).unwrap()).unwrap_or_default();
    fs::write(world.at(name), password).unwrap();
    server
}

pub fn scheme(server: &Server) -> &'static str {
    if server.kind() == Kind::Mysql9 { "mysql" } else { "mariadb" }
}

pub fn url(server: &Server) -> String {
    format!("{}://root@127.0.0.1:{}", scheme(server), server.port())
}

pub fn backup(world: &World, source: &Server, options: &str) -> Ended {
    world.run(&format!("backup {} --method logical --password-file source {options}", url(source)))
}

pub fn load(world: &World, target: &Server, options: &str) -> Ended {
    world.run(&format!("restore --into {} --password-file target {options}", url(target)))
}

/// Each value of each row of some tables, in hexadecimal digits, with the statements of everything in these databases.
pub fn everything(server: &Server, databases: &[&str]) -> String {
    let list = databases.iter().map(|name| format!("'{}'", name.replace('\'', "''"))).collect::<Vec<_>>().join(",");
    let tables = server.sql(&format!(
        "SELECT HEX(table_schema), HEX(table_name), table_type FROM information_schema.tables WHERE table_schema IN ({list}) ORDER BY 1, 2"
    ));
    let columns = server.sql(&format!(
        "SET SESSION group_concat_max_len = 1000000; SELECT HEX(table_schema), HEX(table_name), \
         GROUP_CONCAT(CONCAT('HEX(`', REPLACE(column_name, '`', '``'), '`)') ORDER BY ordinal_position SEPARATOR ', ') \
         FROM information_schema.columns WHERE table_schema IN ({list}) GROUP BY 1, 2"
    ));
    let columns: HashMap<&str, &str> = columns.lines().filter_map(|line| line.rsplit_once('\t')).collect();
    let text = |hex: &str| {
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        String::from_utf8((0..hex.len()).step_by(2).map(byte).collect()).unwrap()
    };
    // One client asks for everything: to start one takes longer than its statements.
    let mut asked = String::new();
    for line in tables.lines() {
        let (table, kind) = line.rsplit_once('\t').unwrap();
        let (schema, name) = table.split_once('\t').unwrap();
        let quoted = format!("`{}`.`{}`", text(schema).replace('`', "``"), text(name).replace('`', "``"));
        let columns = if kind == "SEQUENCE" { "next_not_cached_value" } else { columns[table] };
        asked += &format!("SHOW CREATE TABLE {quoted}; SELECT {columns} FROM {quoted} ORDER BY 1; ");
    }
    for what in [
        "SELECT routine_schema, routine_name, routine_definition, routine_comment, sql_mode, definer FROM information_schema.routines WHERE routine_schema",
        "SELECT trigger_schema, trigger_name, action_statement, sql_mode, character_set_client FROM information_schema.triggers WHERE trigger_schema",
        "SELECT event_schema, event_name, event_definition, event_comment, time_zone, status FROM information_schema.events WHERE event_schema",
        "SELECT schema_name, default_character_set_name, default_collation_name FROM information_schema.schemata WHERE schema_name",
    ] {
        asked += &format!("{what} IN ({list}) ORDER BY 1, 2; ");
    }
    server.sql(&asked)
}

pub fn assert_same(found: &str, expected: &str) {
    // MySQL may show a character set that it has left out before, with the same meaning. MariaDB 11.8 shows words in another order.
    let plain = |text: &str| {
        text.replace(" CHARACTER SET utf8mb4 COLLATE", " COLLATE")
            .replace(" INVISIBLE DEFAULT 7", " DEFAULT 7 INVISIBLE")
    };
    let (found, expected) = (plain(found), plain(expected));
    let differing: Vec<_> = found.lines().zip(expected.lines()).filter(|(found, expected)| found != expected).collect();
    assert!(found == expected, "{:.3000}", format!("{differing:#?}"));
}

pub const SHOP: &str = "CREATE DATABASE shop CHARACTER SET latin1; USE shop; \
    CREATE TABLE customer (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(80) CHARACTER SET utf8mb4 NOT NULL COMMENT 'a, (b''', UNIQUE KEY (name)); \
    INSERT INTO customer (name) VALUES ('Zoë 😀'), ('O''Brien\\t\\n\\\\x'), (''); \
    CREATE TABLE `order``s` (id BIGINT PRIMARY KEY AUTO_INCREMENT, customer INT NOT NULL, note TEXT, total DECIMAL(12,2) NOT NULL, KEY (total), \
        CONSTRAINT `of, a` FOREIGN KEY (customer) REFERENCES customer (id) ON DELETE CASCADE); \
    INSERT INTO `order``s` (customer, note, total) VALUES (1, NULL, -1.5), (2, 'NULL', 7), (3, '\\\\N', 99999); \
    CREATE TABLE nothing (a INT); CREATE TABLE nokey (a VARCHAR(10), b BLOB); INSERT INTO nokey VALUES ('x', X'000A090D5C27'), ('x', X'000A090D5C27'), (NULL, NULL); \
    CREATE TABLE parts (id INT PRIMARY KEY, twice INT AS (id * 2) STORED, v INT) PARTITION BY HASH (id) PARTITIONS 3; \
    INSERT INTO parts (id, v) VALUES (1, 2), (0, 3), (-7, NULL); \
    CREATE VIEW b_view AS SELECT id, total FROM `order``s`; CREATE VIEW a_view AS SELECT b_view.id FROM b_view; \
    CREATE FUNCTION twice (x INT) RETURNS INT DETERMINISTIC RETURN x * 2; \
    CREATE PROCEDURE p () COMMENT 'é' SELECT 'a\\'b', 1 /* é */; \
    CREATE TRIGGER shop.t BEFORE INSERT ON shop.customer FOR EACH ROW SET NEW.name = CONCAT('<', NEW.name, '>'); \
    CREATE EVENT e ON SCHEDULE EVERY 1 YEAR STARTS '2037-01-01 00:00:00' DISABLE DO SET @x = 1;";

/// All column types that both vendors have, with extreme values.
pub const TYPES: &str = "CREATE DATABASE types CHARACTER SET utf8mb4 COLLATE utf8mb4_bin; USE types; SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'; SET time_zone = '+00:00'; \
    CREATE TABLE numbers (k INT PRIMARY KEY AUTO_INCREMENT, a TINYINT, b TINYINT UNSIGNED, c BIGINT, d BIGINT UNSIGNED, e DECIMAL(65,30), f FLOAT, g DOUBLE, h BIT(64), i BIT(1), j YEAR); \
    INSERT INTO numbers VALUES (0,-128,255,-9223372036854775808,18446744073709551615,-99999999999999999999999999999999999.999999999999999999999999999999,0.1,-1.7976931348623157e308,b'1111111111111111111111111111111111111111111111111111111111111111',b'1',2155), \
        (1,127,0,9223372036854775807,0,0.000000000000000000000000000001,-3.40282e38,2.2250738585072014e-308,b'0',b'0',0),(2,NULL,NULL,NULL,NULL,NULL,16777217,-0.0,X'5C0A0900',NULL,1901); \
    CREATE TABLE moments (k INT PRIMARY KEY, a DATE, b TIME(6), c DATETIME(6), d TIMESTAMP(6) NULL, e DATETIME); \
    INSERT INTO moments VALUES (1,'0000-00-00','-838:59:59.000000','9999-12-31 23:59:59.999999','2038-01-19 03:14:07.499999','2023-02-31 00:00:00'),(2,'1000-01-01','838:59:58.999999','0000-00-00 00:00:00','1970-01-01 00:00:01.000001',NULL); \
    CREATE TABLE texts (k INT PRIMARY KEY, a CHAR(5), b VARCHAR(20) CHARACTER SET latin1, c TEXT CHARACTER SET utf16, d VARCHAR(10) CHARACTER SET gbk, e LONGTEXT, f ENUM('2','1','','x,''y') , g SET('a','b','c'), h BINARY(4), i VARBINARY(300), j LONGBLOB); \
    INSERT INTO texts VALUES (1,'a  ',X'E4FF5C','é\\n\\t\\\\',X'B55C','\\0\\t\\n\\\\N',1,5,X'5C000A09',X'00',X''),(2,'','','','','',3,0,X'00000000',X'','\\\\N'),(3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL),(4,'x','x','x','x','x',4,7,'',X'',NULL); \
    INSERT IGNORE INTO texts (k, f) VALUES (5, 'no such member'); \
    UPDATE texts SET i = X'000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F202122232425262728292A2B2C2D2E2F303132333435363738393A3B3C3D3E3F404142434445464748494A4B4C4D4E4F505152535455565758595A5B5C5D5E5F606162636465666768696A6B6C6D6E6F707172737475767778797A7B7C7D7E7F808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBFC0C1C2C3C4C5C6C7C8C9CACBCCCDCECFD0D1D2D3D4D5D6D7D8D9DADBDCDDDEDFE0E1E2E3E4E5E6E7E8E9EAEBECEDEEEFF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF' WHERE k = 3; \
    CREATE TABLE others (k INT PRIMARY KEY, a JSON, b GEOMETRY, c POINT NOT NULL, l LONGBLOB); \
    INSERT INTO others VALUES (1,'{\"a\":[1,null,\"\\\\n\"]}',ST_GeomFromText('LINESTRING(0 0,1 1)'),ST_GeomFromText('POINT(1 2)'),REPEAT(X'00FF0A5C', 700000)),(2,NULL,NULL,ST_GeomFromText('POINT(-1 -2)'),NULL);";

pub const NAMES: &str = "CREATE DATABASE `a.b ``c/é`; CREATE TABLE `a.b ``c/é`.`tä'b\"l,(e` (`k ``,(` INT PRIMARY KEY, `v'` INT, KEY `i ``)` (`v'`)); INSERT INTO `a.b ``c/é`.`tä'b\"l,(e` VALUES (1, 2); \
    USE `a.b ``c/é`; SET NAMES latin1; CREATE FUNCTION spelled () RETURNS VARCHAR(9) DETERMINISTIC RETURN HEX('ä'); SET NAMES utf8mb4; \
    ALTER DATABASE `a.b ``c/é` COLLATE utf8mb4_bin;";

/// What a session without a strict mode writes, values that the server rounds, and code in the character set of its session.
const LENIENT: &str = "CREATE DATABASE lenient; USE lenient; SET sql_mode = ''; \
    CREATE TABLE cut (id INT PRIMARY KEY, s VARCHAR(40), net DECIMAL(10,2), e ENUM('a','a'), day DATE GENERATED ALWAYS AS (FROM_DAYS(s)) STORED, n TINYINT GENERATED ALWAYS AS (LENGTH(s) * 20) STORED, \
        gross DECIMAL(10,2) GENERATED ALWAYS AS (net * 1.193) STORED, third DECIMAL(6,1) GENERATED ALWAYS AS (net / 3) VIRTUAL, KEY (third)); \
    INSERT INTO cut (id, s, net, e) VALUES (0, 'abcdefgh', 9.99, 1); {} \
    CREATE TABLE more (id INT PRIMARY KEY, v VARCHAR(9), b TINYINT GENERATED ALWAYS AS (v * 1 + v * 2 + v * 3) STORED); \
    INSERT INTO more (id, v) SELECT id, '9abc' FROM cut; \
    CREATE TABLE checked (v VARBINARY(9), CHECK (v <> 77)); INSERT INTO checked SELECT 'text' FROM cut; SET sql_mode = DEFAULT; \
    SET NAMES binary; CREATE FUNCTION bytes () RETURNS VARCHAR(9) DETERMINISTIC RETURN HEX('ä'); SET NAMES latin1 COLLATE latin1_bin; \
    CREATE FUNCTION spelled () RETURNS VARCHAR(40) DETERMINISTIC RETURN CONCAT(HEX('ä'), COLLATION('ä'), LENGTH('ä'), 'a' = 'A'); \
    CREATE TRIGGER spells BEFORE INSERT ON cut FOR EACH ROW SET NEW.s = HEX('ä'); CREATE VIEW seen AS SELECT HEX('ä') AS h, spelled() AS f; \
    CREATE PROCEDURE `noted_ä` (`p_ä` INT) COMMENT 'ä''s \\\\' SELECT HEX('ä'); SET NAMES utf8mb4; SET sql_mode = 'NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE'; \
    CREATE PROCEDURE plain () COMMENT 'a\\b' SELECT 1; \
    CREATE EVENT later ON SCHEDULE EVERY 1 DAY STARTS '2035-01-01 00:00:00' DISABLE COMMENT 'c\\d' DO DO 1; SET sql_mode = DEFAULT;";

/// With more rows than a server shows warnings.
fn lenient() -> String {
    let double = |step| format!("INSERT INTO cut (id, s, net, e) SELECT id + {step}, s, net + 0.01, e FROM cut;");
    LENIENT.replace("{}", &(0..11).map(|power| double(1 << power)).collect::<String>())
}

/// From a server of the first kind into servers of the others.
fn round_trip(kind: Kind, into: &[Kind], further: &str, databases: &[&str]) {
    let world = World::new();
    let source = server(kind, &world, "source");
    for statements in [SHOP, TYPES, NAMES, further, &lenient()] {
        source.sql(statements);
    }
    let databases = &[databases, &["lenient"]].concat()[..];
    let before = everything(&source, databases);
    backup(&world, &source, "--to a/ --to b/ --readers 2").done();
    world.run("verify --from a --from b").done();
    let listed = world.run("list --from a --from b").done();
    assert!(listed.text().contains(scheme(&source)), "{listed}");
    into.iter().for_each(|kind| comes_back(&world, &source, *kind, &before, databases));

    // Into a directory, and from there by the client of the server.
    world.run("restore --from a --from b --into dir:out").done();
    let names =
        ["shop/schema.sql", "shop/load.sql", "shop/code.sql", "shop/nokey/00000.tsv", "shop/order@0060s/00000.tsv"];
    names.iter().for_each(|name| assert!(world.at("out").join(name).is_file(), "{name}"));
    let rows = fs::read(world.at("out/shop/nokey/00000.tsv")).unwrap();
    assert_eq!(rows, b"x\t\\0\\n\\t\r\\\\'\nx\t\\0\\n\\t\r\\\\'\n\\N\t\\N\n");
}

/// Loads the set into a new server in several ways.
fn comes_back(world: &World, source: &Server, kind: Kind, before: &str, databases: &[&str]) {
    let target = server(kind, world, "target");
    let loaded = load(world, &target, "--from a --from b --check full").done();
    assert!(loaded.err.contains("they are the rows of the set"), "{loaded}");
    assert_same(&everything(&target, databases), before);
    assert_same(&everything(source, databases), before);
    assert!(!target.sql("SHOW DATABASES").contains("fullbore"));
    load(world, &target, "--from a --from b").refused(1, scheme(&target), "holds");

    // The way without LOAD DATA LOCAL, over what is there.
    let other = if target.sql("SELECT @@local_infile").trim() == "1" { 0 } else { 1 };
    target.sql(&format!("SET GLOBAL local_infile = {other}"));
    load(world, &target, "--from a --from b --replace --check full").done();
    assert_same(&everything(&target, databases), before);

    // One table, and a database with another name.
    load(world, &target, "--from a --from b --table shop.customer --table types.* --map shop=newshop --map types=t2")
        .done();
    let rows = "SELECT COUNT(*), MAX(name) FROM newshop.customer; SELECT COUNT(*) FROM t2.texts";
    assert_eq!(target.sql(rows), source.sql(&rows.replace("newshop", "shop").replace("t2", "types")));
    assert_eq!(target.sql("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'newshop'").trim(), "1");
}

#[test]
fn a_mysql_server_comes_back_in_another_one_with_every_row_and_object() {
    let further = "CREATE DATABASE more; USE more; CREATE TABLE v (k INT PRIMARY KEY, /*!90000 v VECTOR(3),*/ hidden INT /*!80023 INVISIBLE*/ DEFAULT 7, /*!80013 KEY ((k + 1)),*/ CHECK (k > 0)); \
        INSERT INTO v (k, /*!90000 v,*/ hidden) VALUES (1, /*!90000 TO_VECTOR('[1,-2.5,1e30]'),*/ 8), (2, /*!90000 NULL,*/ NULL); \
        CREATE TABLE bin (b BINARY(3) PRIMARY KEY DEFAULT X'00FF5C', p POINT NOT NULL /*!80003 SRID 4326*/, SPATIAL KEY (p), t TEXT, FULLTEXT KEY (t)); \
        INSERT INTO bin (p, t) VALUES (ST_GeomFromText('POINT(1 2)', 4326), 'some words');";
    round_trip(Kind::Mysql9, &[Kind::Mysql9], further, &["shop", "types", "a.b `c/é", "more"]);
}

/// What only MariaDB has.
const OF_MARIADB: &str = "CREATE DATABASE more; USE more; CREATE SEQUENCE s START WITH 7 INCREMENT BY 3 NOCACHE; DO NEXTVAL(s); \
    CREATE SEQUENCE again START WITH 100 MAXVALUE 200 NOCACHE CYCLE; DO SETVAL(again, 199); DO NEXTVAL(again); DO NEXTVAL(again); \
    CREATE SEQUENCE back START WITH -5 INCREMENT BY -2 MINVALUE -1000 MAXVALUE 50; DO NEXTVAL(back); ALTER SEQUENCE back RESTART 20; \
    CREATE TABLE v (k INT PRIMARY KEY, /*M!100700 u UUID,*/ i6 INET6, /*M!101000 i4 INET4,*/ hidden INT INVISIBLE DEFAULT 7, CHECK (k > 0)); \
    INSERT INTO v (k, /*M!100700 u,*/ i6, /*M!101000 i4,*/ hidden) VALUES (1, /*M!100700 '123e4567-e89b-12d3-a456-426655440000',*/ \
    '::ffff:1.2.3.4', /*M!101000 '1.2.3.4',*/ 8), (2, /*M!100700 NULL,*/ '::', /*M!101000 '0.0.0.0',*/ NULL); \
    CREATE TABLE loose (id INT PRIMARY KEY, j JSON, n INT CHECK (n > 0)); SET check_constraint_checks = 0; \
    INSERT INTO loose VALUES (1, 'no JSON', -1), (2, NULL, 1); SET check_constraint_checks = 1;";

#[test]
fn a_mariadb_server_comes_back_in_another_one_with_every_row_and_object() {
    round_trip(Kind::Mariadb11, &[Kind::Mariadb11], OF_MARIADB, &["shop", "types", "a.b `c/é", "more"]);
}

#[test]
fn a_server_of_mariadb_10_11_comes_back_in_one_of_its_series_and_in_one_of_11_8() {
    let into = [Kind::Mariadb10, Kind::Mariadb11];
    round_trip(Kind::Mariadb10, &into, OF_MARIADB, &["shop", "types", "a.b `c/é", "more"]);
}

/// A table with a key of two columns, large enough to be read by several statements and to be cut between readers.
const BIG: &str = "CREATE DATABASE bank; USE bank; CREATE TABLE account (a INT, b VARCHAR(40), money BIGINT NOT NULL, pad VARCHAR(800) NOT NULL, PRIMARY KEY (a, b), KEY (money)); \
    INSERT INTO account SELECT x.n * 10 + y.n, CONCAT('nr', z.n, w.n), 100, REPEAT('x', 780) FROM \
        (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) x, \
        (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) y, \
        (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) z, \
        (SELECT x.n * 5 + y.n n FROM (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) x, \
        (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4) y) w; ANALYZE TABLE account;";

const MOVES: &str = "SET @a = FLOOR(RAND() * 100), @b = FLOOR(RAND() * 100), @m = FLOOR(RAND() * 50); START TRANSACTION; \
    UPDATE bank.account SET money = money - @m WHERE a = @a AND b = 'nr00'; UPDATE bank.account SET money = money + @m WHERE a = @b AND b = 'nr049'; COMMIT;";

#[test]
fn a_dump_of_a_busy_server_is_one_moment_and_an_interrupted_load_continues() {
    let world = World::new();
    let (source, target) = (server(Kind::Mysql9, &world, "source"), server(Kind::Mysql9, &world, "target"));
    source.sql(BIG);
    let total = source.sql("SELECT COUNT(*), SUM(money) FROM bank.account");
    let done = std::sync::atomic::AtomicBool::new(false);
    let moves = MOVES.repeat(20);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    source.sql(&moves);
                }
            });
        }
        let ended = backup(&world, &source, "--to a/ --readers 3 --report json:report.json");
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        ended.done();
    });
    let report: serde_json::Value = serde_json::from_slice(&world.read("report.json")).unwrap();
    let position = &report["position"]["last"];
    assert_eq!(position["snapshot"]["by"], "FLUSH TABLES WITH READ LOCK", "{report}");
    assert!(position["binary_log_exact"]["gtid_executed"].is_string(), "{report}");
    assert_eq!(report["point"]["binary_log_file"], position["binary_log_exact"]["binary_log_file"], "{report}");

    // A slow load that is stopped, and goes on.
    let target_url = url(&target);
    let line = format!("restore --from a --into {target_url} --password-file target --throttle 8MiB");
    let running = world.start(&line);
    fullbore_test_servers::wait_until("a stream is loaded", || {
        let notes = target.try_sql("SELECT COUNT(*) FROM fullbore_load.streams").unwrap_or_default();
        notes.trim().parse::<u64>().is_ok_and(|count| count > 0)
    });
    running.signal("INT");
    let ended = running.wait();
    assert!(ended.code == 130 && ended.err.contains("--resume"), "{ended}");
    load(&world, &target, "--from a").refused(1, "mysql://", "interrupted");
    let ended = load(&world, &target, "--from a --resume --check full").done();
    assert!(ended.err.contains("the target already has"), "{ended}");
    assert_eq!(target.sql("SELECT COUNT(*), SUM(money) FROM bank.account"), total);
    assert!(target.sql("SHOW CREATE TABLE bank.account").contains("KEY `money`"));
}

#[test]
fn what_the_account_may_not_do_is_named_and_a_table_that_changes_ends_the_backup() {
    let world = World::new();
    let source = server(Kind::Mysql9, &world, "source");
    source.sql("CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY, v LONGBLOB); INSERT INTO shop.item VALUES (1, REPEAT('x', 8000000)); ANALYZE TABLE shop.item; \
        CREATE TABLE shop.`end` (id INT PRIMARY KEY); CREATE VIEW shop.v AS SELECT id FROM shop.item; \
        CREATE USER plain@'%' IDENTIFIED BY 'pl41n'; GRANT SELECT, SHOW VIEW ON *.* TO plain@'%'; \
        CREATE USER locker@'%' IDENTIFIED BY 'pl41n'; GRANT SELECT, SHOW VIEW, LOCK TABLES, TRIGGER, EVENT ON *.* TO locker@'%'; \
        CREATE USER blind@'%' IDENTIFIED BY 'pl41n'; GRANT SELECT ON shop.* TO blind@'%'");
    fs::write(world.at("plain"), "pl41n").unwrap();
    let port = source.port();
    let as_user = |user: &str, options: &str| {
        world.run(&format!(
            "backup mysql://{user}@127.0.0.1:{port}/shop --method logical --password-file plain {options}"
        ))
    };
    let ended = as_user("plain", "--to a/").with_code(4);
    let ended = ended.says(&["TRIGGER", "EVENT", "RELOAD", "LOCK TABLES", "No log backup can continue"]);
    assert!(!ended.text().contains("pl41n"), "{ended}");
    as_user("locker", "--to nul:").with_code(4).says(&["REPLICATION CLIENT"]);
    as_user("blind", "--to nul:").refused(1, "shop.v", "SHOW VIEW");
    for (options, thing, why) in [
        ("--table other.none", "mysql://", "table other.none does not exist"),
        ("--table shop.item", "--table shop.item", "takes all tables of `shop` already"),
        ("--database none", "mysql://", "database none does not exist"),
        ("--where shop.item", "--where", "no condition"),
        ("--kind differential --base a", "", "differential"),
    ] {
        let ended = as_user("locker", &format!("--to nul: {options}"));
        assert!(ended.code != 0 && ended.err.contains(thing) && ended.err.contains(why), "{ended}");
    }
    let refused = world.run(&format!("backup mysql://root@127.0.0.1:{port}/shop --password-file source --to nul:"));
    refused.refused(2, "URL", "--method logical");
    let refused =
        world.run(&format!("backup mysql://root@127.0.0.1:{port} --table shop.item --password-file source --to nul:"));
    refused.refused(2, "--table", "--method logical");

    let slow = format!(
        "backup mysql://root@127.0.0.1:{port} --method logical --password-file source --to b/ --throttle 2MiB --max-transfer-size 64KiB"
    );
    let running = world.start(&slow);
    fullbore_test_servers::wait_until("rows are read", || source.sql("SHOW PROCESSLIST").contains("shop`.`item"));
    source.sql("ALTER TABLE shop.`end` ADD COLUMN more INT");
    running.wait().refused(1, "", "shop.end");
    assert!(world.names("b").is_empty());
    world.run("restore --from a --into dir:out").done();
    assert!(world.at("out/shop/item/00001.tsv").metadata().unwrap().len() > 8_000_000);
}

/// MariaDB and MySQL 5.7 have NO_AUTO_CREATE_USER in their default modes, and MySQL 8.0 and later refuse it.
#[test]
fn routines_triggers_views_and_events_with_the_default_mode_of_mariadb_go_into_mysql() {
    let world = World::new();
    let (source, target) = (server(Kind::Mariadb10, &world, "source"), server(Kind::Mysql9, &world, "target"));
    source.sql(
        "SET sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_CREATE_USER'); CREATE DATABASE shop COMMENT 'it''s mine'; USE shop; CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY k (v) IGNORED); \
         CREATE PROCEDURE p() SELECT 1; CREATE VIEW w AS SELECT id FROM t; CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.v = 7; \
         CREATE EVENT e ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1",
    );
    backup(&world, &source, "--to a/").done();
    let ended = load(&world, &target, "--from a --check full").with_code(4);
    ended.says(&["does not have comments of databases: it stays away from shop"]);
    assert!(target.sql("SHOW CREATE TABLE shop.t").contains("80000 INVISIBLE"));
    let modes = target.sql("SELECT sql_mode FROM information_schema.routines WHERE routine_schema = 'shop'");
    assert!(modes.contains("STRICT_TRANS_TABLES") && !modes.contains("NO_AUTO_CREATE_USER"), "{modes}");
    assert_eq!(
        target.sql("INSERT INTO shop.t (id) VALUES (1); SELECT v FROM shop.t; SELECT COUNT(*) FROM shop.w"),
        "7\n1\n"
    );
}

#[test]
fn settings_of_both_servers_change_no_definition_and_no_collation() {
    let world = World::new();
    let (source, target) = (server(Kind::Mysql9, &world, "source"), server(Kind::Mysql9, &world, "target"));
    let maria = server(Kind::Mariadb11, &world, "maria");
    source.sql(
        "CREATE DATABASE shop CHARACTER SET latin1; USE shop; CREATE TABLE t (id INT PRIMARY KEY, a TIMESTAMP NOT NULL, b TIMESTAMP NULL); \
         CREATE TABLE u (v VARCHAR(9) CHARACTER SET utf16, w VARCHAR(9)) DEFAULT CHARSET = utf8mb3; INSERT INTO u VALUES ('ß', 'ß'); \
         CREATE VIEW w AS SELECT id FROM t; /*!80030 SET SESSION sql_generate_invisible_primary_key = 1 */; \
         /*!80400 SET SESSION restrict_fk_on_non_standard_key = 0 */; \
         CREATE TABLE keyless (x INT); INSERT INTO keyless VALUES (1), (1); CREATE TABLE parent (a INT, KEY (a)); \
         CREATE TABLE child (a INT, FOREIGN KEY (a) REFERENCES parent (a)); \
         CREATE FUNCTION f (x VARCHAR(9)) RETURNS VARCHAR(20) DETERMINISTIC RETURN CHARSET(x); \
         ALTER DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin; SET GLOBAL event_scheduler = OFF; SET time_zone = '+03:00'; \
         CREATE EVENT once ON SCHEDULE AT CURRENT_TIMESTAMP + INTERVAL 1 SECOND DO SET @x = 1; \
         CREATE EVENT ends ON SCHEDULE EVERY 1 SECOND ENDS CURRENT_TIMESTAMP + INTERVAL 1 SECOND DO SET @x = 1",
    );
    let before = everything(&source, &["shop"]);
    source.sql(
        "SET GLOBAL sql_buffer_result = 1 /*!80030 , GLOBAL show_gipk_in_create_table_and_information_schema = 0 */",
    );
    backup(&world, &source, "--to a/").done();
    target.sql(
        "SET GLOBAL explicit_defaults_for_timestamp = 0, GLOBAL sql_buffer_result = 1, GLOBAL sql_safe_updates = 1, \
         GLOBAL event_scheduler = OFF, GLOBAL sql_big_selects = 0, GLOBAL max_join_size = 1, GLOBAL sql_select_limit = 1, GLOBAL max_execution_time = 1",
    );
    // The time of the events is over.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    load(&world, &target, "--from a --check full").done();
    target.sql("SET GLOBAL sql_select_limit = DEFAULT, GLOBAL max_join_size = DEFAULT, GLOBAL max_execution_time = 0");
    target.sql("SET GLOBAL sql_buffer_result = 0");
    assert_same(&everything(&target, &["shop"]), &before);
    assert!(!target.sql("SHOW CREATE VIEW shop.w").to_lowercase().contains("sql_buffer_result"));
    // A routine has the collation that its database had then.
    assert_eq!(target.sql("USE shop; SELECT @@collation_database, f('a')"), "utf8mb4_bin\tlatin1\n");

    // The other vendor has other default collations for the same character sets.
    let url = url(&maria);
    world
        .run(&format!("restore --from a --into {url} --password-file maria --table shop.t --table shop.u --check full"))
        .done();
    let collations = "SELECT GROUP_CONCAT(collation_name ORDER BY column_name) FROM information_schema.columns \
                      WHERE table_schema = 'shop' AND table_name = 'u'";
    assert_eq!(maria.sql(collations), "utf16_general_ci,utf8mb3_general_ci\n");
    // What MySQL writes as comments for newer servers.
    source.sql(
        "CREATE DATABASE odd; CREATE TABLE odd.t (id INT PRIMARY KEY, a INT INVISIBLE, p POINT NOT NULL SRID 4326, KEY k (a) INVISIBLE, \
         s GEOMETRYCOLLECTION, g INT AS (id + 1) STORED NOT NULL, CONSTRAINT small CHECK (a < 5) NOT ENFORCED); INSERT INTO odd.t (id, a, p) VALUES (1, 7, ST_SRID(POINT(1, 2), 4326))",
    );
    backup(&world, &source, "--mkdir --to c/ --database odd").done();
    load(&world, &target, "--from c --check full").done();
    let ended = world.run(&format!("restore --from c --into {url} --password-file maria --check full")).with_code(4);
    ended.says(&[
        "does not have CHECK … NOT ENFORCED",
        "does not have SRID 4326",
        "odd.t",
        "NOT NULL of generated columns",
    ]);
    let made = maria.sql("SHOW CREATE TABLE odd.t; SELECT id, a FROM odd.t; SELECT * FROM odd.t LIMIT 0");
    assert!(made.contains("INVISIBLE") && made.contains("IGNORED") && made.ends_with("1\t7\n"), "{made}");
    // A load has the time zone UTC.
    for (server, file, scheme) in [(&source, "source", "mysql"), (&maria, "maria", "mariadb")] {
        server.sql("SET GLOBAL time_zone = '+05:00'");
        server.sql(
            "CREATE DATABASE zoned; CREATE TABLE zoned.z (id INT PRIMARY KEY, at TIMESTAMP NULL, d DATE AS (date(at)) STORED, \
             n INT AS (id + 1) STORED, later INT AS (at > '2000-01-01') STORED); INSERT INTO zoned.z (id, at) VALUES (1, '2026-06-01 02:00:00')",
        );
        let line = format!("backup {scheme}://root@127.0.0.1:{}/zoned --method logical", server.port());
        let ended = world.run(&format!("{line} --password-file {file} --mkdir --to of-{file}/")).with_code(4);
        ended.says(&["stored generated columns", "so they change: zoned.z.d\n"]);
    }
    let url = url.replace("mariadb:", "mysql:");
    let wrong = format!("backup {url} --method logical --password-file maria --to b/");
    world.run(&wrong).refused(2, "", "is a MariaDB server").says(&["write mariadb://"]);
}
