//! SQLite databases into real servers: types by values, keys, what is not moved by name, bad values before the first row,
//! and writers that are kept out.

use fullbore_test_servers::{Kind, Options, Server, wait_until};
use rusqlite::Connection;

use crate::held::Held;
use crate::mysql_logical::{started, url};
use crate::program::{Ended, Running};
use crate::world::World;

/// A source and a target.
struct Pair {
    world: World,
    target: Server,
}

impl Pair {
    fn new(kind: Kind, made: &str) -> Self {
        let world = World::new();
        let target = started(kind, &Options::new(), &world, "target");
        let pair = Self { world, target };
        pair.source().execute_batch(made).unwrap();
        pair
    }

    fn source(&self) -> Connection {
        Connection::open(self.world.at("shop.db")).unwrap()
    }

    /// A new source.
    fn anew(&self, made: &str) {
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(self.world.at(&format!("shop.db{suffix}"))); // There may be none.
        }
        self.source().execute_batch(made).unwrap();
    }

    fn line(&self, options: &str) -> String {
        let into = url(&self.target);
        format!("migrate sqlite:shop.db --into {into}/shop --into-password-file target {options}")
    }

    fn run(&self, options: &str) -> Ended {
        self.world.run(&self.line(options))
    }

    fn start(&self, options: &str) -> Running {
        self.world.start(&self.line(options))
    }

    /// Nothing of a refused migration is in the target.
    fn assert_empty(&self) {
        let databases = self.target.sql("SHOW DATABASES");
        assert!(!databases.contains("shop") && !databases.contains("fullbore"), "{databases}");
    }
}

/// Everything that is moved.
const SHOP: &str = "PRAGMA journal_mode = WAL; PRAGMA foreign_keys = OFF;
    CREATE TABLE customer (id INTEGER PRIMARY KEY AUTOINCREMENT, email VARCHAR(120) NOT NULL UNIQUE COLLATE NOCASE, name TEXT NOT NULL DEFAULT 'it''s \\ x',
        born DATE, seen TIMESTAMP DEFAULT CURRENT_TIMESTAMP, active BOOLEAN NOT NULL DEFAULT TRUE, CHECK (active IN (0, 1)));
    INSERT INTO customer VALUES (5, 'a@example.com', 'tab\t line\n back\\slash nul', '2000-02-29', '2026-11-27 10:00:00.25', 1),
        (7, 'É@example.com', '', NULL, '2026-11-27T10:00:00', 0);
    UPDATE sqlite_sequence SET seq = 41;
    CREATE TABLE \"order`s\" (id INTEGER PRIMARY KEY, customer_id INT NOT NULL REFERENCES customer ON DELETE CASCADE, total DECIMAL(10,2) DEFAULT 0,
        weight REAL, note, raw BLOB, big BIGINT);
    CREATE INDEX by_customer ON \"order`s\" (customer_id, note DESC);
    INSERT INTO \"order`s\" VALUES (1, 5, 9.99, 1, 'text', x'00FF0A5C', 9223372036854775807), (-3, 7, -7, 1.5e300, NULL, x'', -9223372036854775808),
        (0, 5, 1e3, -0.1, 'ünï', NULL, NULL);
    CREATE TABLE tag (name TEXT PRIMARY KEY, n) WITHOUT ROWID;
    INSERT INTO tag VALUES ('a', 1), ('A', 2), ('a ', 3);
    CREATE TABLE empty (a, b TEXT, c NUMERIC);
    CREATE TABLE plain (a INT, b TEXT); INSERT INTO plain VALUES (1, 'same'), (1, 'same'), (NULL, NULL);";

fn moves(kind: Kind) {
    let pair = Pair::new(kind, SHOP);
    pair.run("--resume").refused(1, "", "no migration");
    let planned = pair.run("--plan").done();
    for part in ["5 tables", "CREATE TABLE `order``s`", "decimal(10,2)", "AUTO_INCREMENT=42", "3 rows"] {
        assert!(planned.text().contains(part), "{part}: {planned}");
    }
    pair.assert_empty();
    pair.target.sql("CREATE DATABASE shop; CREATE TABLE shop.mine (a INT)");
    pair.run("").refused(1, "", "the target holds");
    let done = pair.run("--replace --report json:report.json").done();
    assert!(done.text().contains("5 tables with 11 rows compared, and equal"), "{done}");
    assert!(done.err.contains("Later changes of it do not reach the target"), "{done}");
    let ask = |sql: &str| pair.target.sql(sql);
    assert_eq!(
        ask("SELECT id, born, seen, active FROM shop.customer ORDER BY id"),
        "5\t2000-02-29\t2026-11-27 10:00:00.250000\t1\n7\tNULL\t2026-11-27 10:00:00.000000\t0\n"
    );
    assert_eq!(
        ask("SELECT HEX(name) FROM shop.customer WHERE id = 5"),
        "74616209206C696E650A206261636B5C736C617368206E756C\n"
    );
    assert_eq!(
        ask("SELECT id, total, HEX(raw), big FROM shop.`order``s` ORDER BY id"),
        "-3\t-7.00\t\t-9223372036854775808\n0\t1000.00\tNULL\tNULL\n1\t9.99\t00FF0A5C\t9223372036854775807\n"
    );
    assert_eq!(
        ask("SELECT name, n FROM shop.tag WHERE name = 'a'"),
        "a\t1\n",
        "BINARY: neither case nor blanks are ignored"
    );
    assert_eq!(ask("SELECT id FROM shop.customer WHERE email = 'A@EXAMPLE.COM'"), "5\n");
    ask("INSERT INTO shop.customer (email) VALUES ('new'); INSERT INTO shop.`order``s` (customer_id) VALUES (42)");
    assert_eq!(
        ask(
            "SELECT id, name, active, ABS(TIMESTAMPDIFF(SECOND, seen, UTC_TIMESTAMP())) < 60 FROM shop.customer WHERE email = 'new'"
        ),
        "42\tit's \\\\ x\t1\t1\n"
    );
    assert_eq!(ask("DELETE FROM shop.customer WHERE id = 42; SELECT COUNT(*) FROM shop.`order``s`"), "3\n");
    pair.target.try_sql("INSERT INTO shop.customer (email, active) VALUES ('bad', 2)").unwrap_err();
    assert!(!ask("SHOW DATABASES").contains("fullbore"));
    let report: serde_json::Value = serde_json::from_slice(&pair.world.read("report.json")).unwrap();
    let migration = &report["migration"];
    assert!(migration["rows"] == 11 && migration["compared"][1] == 11 && migration["cut_over"] == false, "{report}");
    assert_eq!(migration["definitions"].as_array().unwrap().len(), 5);
}

#[test]
fn an_sqlite_database_moves_into_mysql_with_keys_defaults_and_types_by_its_values() {
    moves(Kind::Mysql9);
}

#[test]
fn an_sqlite_database_moves_into_mariadb_with_keys_defaults_and_types_by_its_values() {
    moves(Kind::Mariadb11);
}

/// Sources that are refused, and what the error says.
const BAD: [(&str, &str, &str); 20] = [
    (
        "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), ('x')",
        "table t",
        "a (INT) has a text in the row with rowid 2",
    ),
    (
        "CREATE TABLE t (a INT); INSERT INTO t VALUES (9223372036854775808)",
        "table t",
        "a number that is not a 64-bit integer",
    ),
    ("CREATE TABLE t (a REAL); INSERT INTO t VALUES (9e999)", "table t", "an infinite number"),
    ("CREATE TABLE t (a BOOLEAN); INSERT INTO t VALUES (300)", "table t", "beyond a BOOLEAN"),
    ("CREATE TABLE t (a DECIMAL(5,2)); INSERT INTO t VALUES (1000)", "table t", "more digits than declared"),
    ("CREATE TABLE t (a DECIMAL(5,2)); INSERT INTO t VALUES (0.1 + 0.2)", "table t", "more digits than declared"),
    ("CREATE TABLE t (a DATE); INSERT INTO t VALUES ('2023-02-29')", "table t", "not a date"),
    ("CREATE TABLE t (a DATETIME); INSERT INTO t VALUES ('2023-02-20 10:00')", "table t", "not a time"),
    (
        "CREATE TABLE t (a DATETIME); INSERT INTO t VALUES ('2023-02-20 10:00:00'), (5)",
        "table t",
        "an integer, and an earlier row has a text",
    ),
    (
        "CREATE TABLE t (a VARCHAR(3)); INSERT INTO t VALUES ('äbc'), ('abcd')",
        "table t",
        "longer than declared in the row with rowid 2",
    ),
    ("CREATE TABLE t (a TEXT); INSERT INTO t VALUES (CAST(x'FF' AS TEXT))", "table t", "not UTF-8"),
    ("CREATE TABLE t (a TEXT); INSERT INTO t VALUES (x'FF')", "table t", "a blob"),
    (
        "CREATE TABLE t (a); INSERT INTO t VALUES (1), ('x')",
        "table t",
        "a (without a type) has a text, and an earlier row has an integer",
    ),
    (
        "CREATE TABLE t (a NUMERIC); INSERT INTO t VALUES (1.5), (9007199254740993)",
        "table t",
        "a DOUBLE does not hold exactly in the row with rowid 2",
    ),
    ("CREATE TABLE t (a TEXT PRIMARY KEY); INSERT INTO t VALUES (NULL)", "table t", "NULL in a primary key"),
    (
        "CREATE TABLE t (k TEXT PRIMARY KEY, a INT) WITHOUT ROWID; INSERT INTO t VALUES ('a', 1), ('b', 'x')",
        "table t",
        "row 2 in the order of its key",
    ),
    (
        "CREATE TABLE t (a TEXT UNIQUE); INSERT INTO t SELECT printf('%.800c', 'x')",
        "table t",
        "a key of the target holds 3072",
    ),
    ("CREATE TABLE t (\"a \" INT)", "column t.a ", "ends with a blank"),
    ("CREATE TABLE t (a BLOB); INSERT INTO t VALUES (zeroblob(3000000))", "table t", "max_allowed_packet"),
    (
        "CREATE TABLE t (a TEXT) STRICT; CREATE TABLE u (a ANY) STRICT; INSERT INTO u VALUES (1), (x'00')",
        "table u",
        "a blob, and an earlier row has an integer",
    ),
];

#[test]
fn a_value_that_the_target_does_not_hold_is_named_with_its_row_before_the_first_row_is_moved() {
    let pair = Pair::new(Kind::Mysql9, "CREATE TABLE t (a INT)");
    pair.target.sql("SET GLOBAL max_allowed_packet = 1048576");
    for (made, thing, why) in BAD {
        pair.anew(made);
        pair.run("").refused(1, thing, why);
        pair.assert_empty();
    }
}

const NOT_MOVED: &str = "PRAGMA foreign_keys = OFF; CREATE TABLE p (id INTEGER PRIMARY KEY, a TEXT, n INT, g AS (n * 2), s REAL DEFAULT (random()), l TEXT CHECK (length(l) > 1), \
        u INT UNIQUE ON CONFLICT REPLACE, CHECK (n > 0 AND (a IN ('x', 'it''s') OR a IS NOT NULL)), CHECK (n BETWEEN -1 AND 5 AND n != 3 AND u IS NULL));
    CREATE TABLE c (p_id INT REFERENCES p DEFERRABLE INITIALLY DEFERRED, gone INT REFERENCES nowhere (id), d INT DEFAULT 1 REFERENCES p ON DELETE SET DEFAULT);
    INSERT INTO p (id, n) VALUES (1, 2); INSERT INTO c VALUES (1, NULL, NULL), (7, NULL, NULL);
    CREATE INDEX partial ON p (n) WHERE n > 1; CREATE INDEX expression ON p (n + 1); CREATE INDEX other ON p (a COLLATE NOCASE); CREATE INDEX of_g ON p (g);
    CREATE VIEW totals AS SELECT count(*) FROM p; CREATE TRIGGER tr AFTER INSERT ON p BEGIN SELECT 1; END;
    CREATE VIRTUAL TABLE words USING fts5(body); INSERT INTO words VALUES ('x');
    CREATE TABLE strict (a ANY, b TEXT) STRICT; INSERT INTO strict VALUES (1, 'x');";

#[test]
fn what_is_not_moved_is_named_one_by_one() {
    let pair = Pair::new(Kind::Mariadb11, NOT_MOVED);
    let done = pair.run("").with_code(4);
    for what in [
        "view totals",
        "trigger tr of p",
        "virtual table words",
        "generated column p.g",
        "DEFAULT random() of p.s",
        "CHECK (length(l) > 1) of table p",
        "CHECK (n > 0 AND (a IN ('x', 'it''s') OR a IS NOT NULL)) of table p",
        "ON CONFLICT REPLACE of table p",
        "INITIALLY DEFERRED of foreign keys of table c",
        "foreign key (gone) of table c: its table is not moved",
        "foreign key (d) of table c: SET DEFAULT",
        "index partial of table p: it has a WHERE clause",
        "index expression of table p: it has an expression",
        "index other of table p: it has another collation than its column",
        "index of_g of table p: it has a generated column",
    ] {
        assert!(done.err.contains(&format!("not moved: {what}")), "{what}: {done}");
    }
    assert_eq!(done.err.matches("not moved: ").count(), 15, "{done}");
    assert!(done.err.contains("table c: 1 foreign key without a parent row"), "{done}");
    let made = pair.target.sql("SHOW CREATE TABLE shop.p; SHOW CREATE TABLE shop.strict");
    assert!(made.contains("between -1 and 5") && made.contains("`a` bigint"), "{made}");
}

#[test]
fn large_rows_and_tables_move_and_a_target_that_somebody_else_writes_to_is_found() {
    let made = "CREATE TABLE aa (id INTEGER PRIMARY KEY, k TEXT, v TEXT);
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
            INSERT INTO aa SELECT i, 'key ' || (i * 7919 % 30011), printf('%.3500c', char(97 + i % 26)) FROM n;
        CREATE INDEX of_k ON aa (k); CREATE UNIQUE INDEX of_both ON aa (k, id);
        CREATE TABLE long (id INTEGER PRIMARY KEY, v BLOB);
        INSERT INTO long SELECT id, CAST(replace(hex(zeroblob(300000)), '00', char(9, 92, 10) || 'x') AS BLOB) FROM aa LIMIT 2;
        CREATE TABLE zz (a INT); INSERT INTO zz VALUES (1), (2);";
    let pair = Pair::new(Kind::Mariadb11, made);
    let done = pair.run("").done();
    assert!(done.text().contains("3 tables with 2504 rows compared, and equal"), "{done}");
    assert_eq!(pair.target.sql("SELECT LENGTH(v) FROM shop.`long` LIMIT 1"), "1200000\n");
    assert_eq!(pair.target.sql("SELECT COUNT(DISTINCT index_name) FROM information_schema.statistics WHERE table_schema = 'shop' AND table_name = 'aa'"), "3\n");

    let running = pair.start("--replace --readers 1");
    running.says("loaded into");
    running.stop();
    pair.target.sql("DELETE FROM shop.zz WHERE a = 1");
    running.go_on();
    let failed = running.wait().refused(1, "table shop.zz of the target", "1 row, and the source has 2");
    assert!(failed.err.contains("unfinished migration"), "{failed}");

    // Killed between its first row and its last.
    let running = pair.start("--replace");
    wait_until("its tables are there", || {
        let tables = pair.target.try_sql("SHOW TABLES FROM fullbore_load; SHOW TABLES FROM shop").unwrap_or_default();
        tables.contains("zz")
    });
    running.signal("KILL");
    running.wait();
    pair.run("").refused(1, "", "interrupted");
    pair.run("--abort").done();
    assert!(!pair.target.sql("SHOW DATABASES").contains("fullbore"));
    pair.run("").refused(1, "", "the target holds");
    pair.anew("CREATE TABLE zz (a INT)");
    pair.run("--replace").done();
    assert_eq!(pair.target.sql("SHOW TABLES FROM shop"), "zz\n");
}

#[test]
fn a_load_that_the_target_refuses_stays_unfinished_until_it_is_resumed() {
    let made = "CREATE TABLE t (a TEXT UNIQUE COLLATE NOCASE); INSERT INTO t VALUES ('É'), ('é')";
    let pair = Pair::new(Kind::Mysql9, made);
    let failed = pair.run("").refused(1, "table shop.t", "Duplicate");
    assert!(failed.err.contains("unfinished migration"), "{failed}");
    pair.source().execute_batch("DELETE FROM t WHERE a = 'é'").unwrap();
    pair.run("").refused(1, "", "interrupted");
    pair.run("--resume").done();
    assert_eq!(pair.target.sql("SELECT a FROM shop.t WHERE a = 'é'"), "É\n");
    assert!(!pair.target.sql("SHOW DATABASES").contains("fullbore"));
}

fn keeps_writers_out(kind: Kind, journal: &str) {
    let made = format!("PRAGMA journal_mode = {journal}; CREATE TABLE t (a INT); INSERT INTO t VALUES (1)");
    let pair = Pair::new(kind, &made);
    let writer = pair.source();
    writer.busy_timeout(std::time::Duration::ZERO).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)").unwrap();
    pair.run("--cut-over --lock-timeout 1").refused(1, "shop.db", "writers");
    pair.assert_empty();
    writer.execute_batch("COMMIT").unwrap();

    let held = Held::by(&pair.target, "FLUSH TABLES WITH READ LOCK");
    let running = pair.start("--cut-over --report json:report.json");
    running.says("writers of the source are kept out");
    assert!(writer.execute_batch("INSERT INTO t VALUES (3)").unwrap_err().to_string().contains("locked"));
    assert_eq!(writer.query_row("SELECT count(*) FROM t", [], |row| row.get(0)), Ok(2));
    drop(held);
    let done = running.wait().done();
    assert!(done.text().contains("downtime") && done.err.contains("The way back"), "{done}");
    let report: serde_json::Value = serde_json::from_slice(&pair.world.read("report.json")).unwrap();
    let migration = &report["migration"];
    assert!(migration["cut_over"] == true && migration["downtime_s"].as_f64().unwrap() > 0.0, "{report}");
    writer.execute_batch("INSERT INTO t VALUES (3)").unwrap();
    assert_eq!(pair.target.sql("SELECT COUNT(*) FROM shop.t"), "2\n");
}

#[test]
fn a_cut_over_into_mysql_keeps_writers_of_a_database_in_wal_mode_out_until_the_end() {
    keeps_writers_out(Kind::Mysql9, "WAL");
}

#[test]
fn a_cut_over_into_mariadb_keeps_writers_of_a_database_with_a_rollback_journal_out_until_the_end() {
    keeps_writers_out(Kind::Mariadb10, "DELETE");
}

#[test]
fn flags_about_a_log_and_a_target_without_a_database_are_errors() {
    let world = World::new();
    Connection::open(world.at("shop.db")).unwrap().execute_batch("CREATE TABLE t (a INT)").unwrap();
    let line = |into: &str, options: &str| format!("migrate sqlite:shop.db --into {into} {options}");
    for flag in ["--no-follow", "--max-lag 1s", "--for 1s", "--database shop", "--password-file pw"] {
        let name = flag.split(' ').next().unwrap();
        world.run(&line("mysql://root@127.0.0.1:1/shop", flag)).refused(2, name, "");
    }
    world.run(&line("mysql://root@127.0.0.1:1", "")).refused(2, "--into", "does not name the database");
    world.run(&line("mysql://root@127.0.0.1:1/mysql", "")).refused(2, "--into", "of the server itself");
    world.run(&line("sqlite:other.db", "")).refused(2, "--into", "into a MySQL or MariaDB server");
    world.run("migrate sqlserver://sa@h --into mysql://root@h").refused(2, "sqlserver", "from a MySQL");
}
