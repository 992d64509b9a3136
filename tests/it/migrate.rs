//! Migrations of real servers: a full straight through, the log with every kind of change, and the cut-over.

use fullbore_test_servers::{Kind, Options, Server, wait_until};

use crate::held::{Held, is_running};
use crate::mysql_logical::{NAMES, SHOP, TYPES, assert_same, everything, started, url};
use crate::program::Ended;
use crate::server_logs_into::bytes_of_log;
use crate::world::World;

pub fn server(kind: Kind, world: &World, name: &str) -> Server {
    started(kind, &Options::new().binlog().option("binlog_format=ROW"), world, name)
}

/// The command line of a migration.
pub fn line([source, target]: [&Server; 2], options: &str) -> String {
    let (from, to) = (url(source), url(target));
    format!("migrate {from} --into {to} --password-file source --into-password-file target {options}")
}

pub fn migrate(world: &World, servers: [&Server; 2], options: &str) -> Ended {
    world.run(&line(servers, options))
}

/// Changes of every kind, after the full.
const CHANGES: &str = "USE shop; INSERT INTO customer (name) VALUES ('later'), ('even later'); UPDATE `order``s` SET total = total + 1; \
    DELETE FROM customer WHERE id = 2; INSERT INTO nokey VALUES ('y', X'00FF'); DELETE FROM nokey WHERE a = 'x' LIMIT 1; \
    CREATE TABLE fresh (id INT PRIMARY KEY AUTO_INCREMENT, j JSON, t TIMESTAMP(6) NULL DEFAULT CURRENT_TIMESTAMP(6)); \
    INSERT INTO fresh (j) VALUES ('{\"a\": 1}'), (NULL); ALTER TABLE fresh ADD COLUMN more VARCHAR(10) DEFAULT 'é', ADD KEY (more); \
    INSERT INTO fresh (more) VALUES ('x'); UPDATE fresh SET j = JSON_SET(j, '$.a', 2) WHERE id = 1; \
    CREATE TABLE picked AS SELECT id, name FROM customer; ALTER TABLE picked ADD PRIMARY KEY (id); \
    RENAME TABLE nothing TO something; TRUNCATE TABLE parts; INSERT INTO parts (id, v) VALUES (9, 9); \
    CREATE OR REPLACE VIEW b_view AS SELECT id, total, note FROM `order``s`; DROP PROCEDURE p; CREATE PROCEDURE q () SELECT 'it''s', 2; \
    CREATE TRIGGER t2 BEFORE UPDATE ON customer FOR EACH ROW SET NEW.name = UPPER(NEW.name); UPDATE customer SET name = CONCAT(name, '!') WHERE id = 1; \
    SET sql_mode = 'ANSI_QUOTES'; START TRANSACTION; INSERT INTO customer (name) VALUES ('kept'); SAVEPOINT a; INSERT INTO customer (name) VALUES ('dropped'); \
    ROLLBACK TO a; COMMIT; SET sql_mode = DEFAULT; \
    CREATE EVENT e2 ON SCHEDULE EVERY 1 YEAR STARTS '2036-01-01 00:00:00' DO SET @x = 2; \
    CREATE DATABASE extra; CREATE TABLE extra.big (id INT PRIMARY KEY, v LONGTEXT); \
    INSERT INTO extra.big SELECT a.n * 10 + b.n, REPEAT(CHAR(97 + b.n), 20000) FROM (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4) a, \
        (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) b; \
    UPDATE extra.big SET v = REPEAT('z', 1500000) WHERE id = 7; UPDATE extra.big, shop.customer SET extra.big.v = 'both', shop.customer.name = CONCAT(name, '+') WHERE customer.id = 1 AND big.id = 1; \
    CREATE DATABASE gone; CREATE TABLE gone.t (a INT); INSERT INTO gone.t VALUES (1); DROP DATABASE gone; \
    INSERT INTO types.texts (k, e) VALUES (77, 'tab\\t line\\n'); FLUSH BINARY LOGS; UPDATE types.numbers SET c = -1 WHERE k = 1;";

/// Definitions without the next number of a table: rows that were rolled back have used numbers of the source only.
fn without_counters(text: &str) -> String {
    let mut parts = text.split(" AUTO_INCREMENT=");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start_matches(|letter: char| letter.is_ascii_digit()))
}

fn without_the_privilege_to_see_prepared_transactions(world: &World, [source, target]: [&Server; 2]) {
    source.sql(
        "CREATE USER mover@'%' IDENTIFIED BY 'p'; GRANT SELECT, SHOW VIEW, RELOAD, REPLICATION CLIENT, REPLICATION SLAVE, TRIGGER, EVENT, \
         PROCESS, SHOW_ROUTINE, SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN ON *.* TO mover@'%'",
    );
    world.write("mover", b"p");
    let line = line([source, target], "--cut-over --plan").replacen("root@", "mover@", 1);
    let line = line.replacen("--password-file source", "--password-file mover", 1);
    world.run(&line).refused(1, "", "XA_RECOVER_ADMIN");
    source.sql("GRANT XA_RECOVER_ADMIN ON *.* TO mover@'%'");
    world.run(&line).done();
    // What the account does not see would stay behind, and both servers would look equal.
    source.sql("REVOKE TRIGGER ON *.* FROM mover@'%'");
    world.run(&line).refused(1, "", "lacks TRIGGER on");
    source.sql("GRANT TRIGGER ON *.* TO mover@'%'; REVOKE SHOW_ROUTINE, SELECT ON *.* FROM mover@'%'; GRANT SELECT ON shop.* TO mover@'%'");
    world.run(&line).refused(1, "", "lacks SHOW_ROUTINE");
    source.sql("DROP USER mover@'%'");
}

const DATABASES: [&str; 4] = ["shop", "types", "a.b `c/é", "extra"];

fn through_all_steps(kind: Kind, of_vendor: &str) {
    let world = World::new();
    let (source, target) = (server(kind, &world, "source"), server(kind, &world, "target"));
    let both = [&source, &target];
    for statements in [SHOP, TYPES, NAMES] {
        source.sql(statements);
    }
    let itself = url(&source);
    let line = format!("migrate {itself} --into {itself} --password-file source");
    world.run(&line).refused(2, "--into", "same server");
    migrate(&world, both, "--resume").refused(1, "", "no migration");
    let planned = migrate(&world, both, "--plan").done();
    assert!(planned.text().contains("MIGRATE") && !target.sql("SHOW DATABASES").contains("shop"), "{planned}");
    if kind == Kind::Mysql9 {
        without_the_privilege_to_see_prepared_transactions(&world, both);
    }
    target.sql("CREATE DATABASE shop; CREATE TABLE shop.mine (a INT)");
    migrate(&world, both, "").refused(1, "", "the target holds");

    // The full, and one look at the log.
    world.write("fullbore.toml", b"[repository.night]\nto = [\"media/\"]\n");
    std::fs::create_dir(world.at("media")).unwrap();
    let full = migrate(&world, both, "--replace --readers 2 --for 1ms --report json:full.json --task-in night").done();
    assert!(world.run("tasks --repo night").done().text().contains("migrate"));
    assert!(full.err.contains("--resume --cut-over") && full.text().contains("still in use"), "{full}");
    let report: serde_json::Value = serde_json::from_slice(&world.read("full.json")).unwrap();
    assert!(report["migration"]["rows"].as_u64().unwrap() > 10 && report["migration"]["cut_over"] == false, "{report}");
    assert_eq!(target.sql("SELECT COUNT(*) FROM shop.customer"), source.sql("SELECT COUNT(*) FROM shop.customer"));
    migrate(&world, both, "--for 1ms").refused(1, "", "interrupted");
    migrate(&world, both, "--resume --no-follow").refused(1, "", "its full is complete");

    // Every kind of change.
    source.sql(CHANGES);
    source.sql(of_vendor);
    source.sql(
        &(0..300)
            .map(|number| format!("UPDATE shop.customer SET name = '{number}' ORDER BY id LIMIT 1;"))
            .collect::<String>(),
    );
    // Each time it ends somewhere in the log.
    fullbore_test_servers::wait_until("all changes are in the target", || {
        migrate(&world, both, "--resume --for 1ms").done();
        let last = target.try_sql("SELECT c FROM types.numbers WHERE k = 1").unwrap_or_default();
        last == "-1\n"
    });
    assert_eq!(target.sql("SELECT COUNT(*) FROM shop.fresh"), source.sql("SELECT COUNT(*) FROM shop.fresh"));
    assert_eq!(target.sql("SELECT COUNT(*) FROM information_schema.events"), "0\n", "events do not run yet");
    let logs = both.map(bytes_of_log);
    assert!(logs[1] < 8 * logs[0], "the text of a batch is not in the log of the target for each event: {logs:?}");

    // A target that somebody else has written to: the cut-over fails, and the source is in use again.
    source.sql("INSERT INTO shop.customer (name) VALUES ('last')");
    target.sql("INSERT INTO shop.nokey VALUES ('not there', NULL)");
    let failed = migrate(&world, both, "--resume --cut-over").refused(1, "shop.nokey", "rows");
    assert!(failed.err.contains("writable as before") && failed.err.contains("fullbore_migrate"), "{failed}");
    source.sql("INSERT INTO shop.customer (name) VALUES ('written again')");
    assert!(source.sql("SELECT @@GLOBAL.read_only").starts_with('0'));
    target.sql("DELETE FROM shop.nokey WHERE a = 'not there'");

    let done = migrate(&world, both, "--resume --cut-over --report json:end.json").done();
    assert!(done.text().contains("downtime") && done.err.contains("read_only = OFF"), "{done}");
    let report: serde_json::Value = serde_json::from_slice(&world.read("end.json")).unwrap();
    let migration = &report["migration"];
    assert!(migration["cut_over"] == true && migration["compared"][0].as_u64().unwrap() > 8, "{report}");
    assert!(migration["downtime_s"].as_f64().unwrap() > 0.0, "{report}");
    assert!(source.sql("SELECT @@GLOBAL.read_only").starts_with('1'));
    assert!(!target.sql("SHOW DATABASES").contains("fullbore"));
    let again = migrate(&world, both, "--resume").refused(1, "", "perhaps a cut-over was killed at its end");
    again.says(&["compare both servers"]);
    assert_same(
        &without_counters(&everything(&target, &DATABASES)),
        &without_counters(&everything(&source, &DATABASES)),
    );
    assert_eq!(target.sql("SELECT COUNT(*) FROM shop.customer WHERE name IN ('<kept>', '<last>', '<dropped>')"), "2\n");
}

#[test]
fn a_mysql_server_moves_with_every_kind_of_change_and_a_cut_over_that_fails_changes_nothing() {
    let of_vendor = "SET SESSION binlog_transaction_compression = ON; INSERT INTO shop.customer (name) VALUES (REPEAT('compressed', 7)); \
        SET SESSION binlog_row_value_options = PARTIAL_JSON; UPDATE shop.fresh SET j = JSON_SET(j, '$.a', 3) WHERE id = 1; \
        SET SESSION binlog_row_image = MINIMAL; UPDATE shop.customer SET name = 'minimal' WHERE id = 3; CREATE USER later@'%' IDENTIFIED BY 'x';";
    through_all_steps(Kind::Mysql9, of_vendor);
}

#[test]
fn a_mariadb_server_moves_with_every_kind_of_change_and_a_cut_over_that_fails_changes_nothing() {
    let of_vendor = "CREATE OR REPLACE TABLE shop.picked2 SELECT id FROM shop.customer; ALTER TABLE shop.picked2 ADD PRIMARY KEY (id); \
        CREATE SEQUENCE shop.s START WITH 5; DO NEXTVAL(shop.s);";
    through_all_steps(Kind::Mariadb11, of_vendor);
}

/// A reader does not notice that the table has another name, and the log would rename it once more.
fn a_swap_during_the_full(kind: Kind) {
    let world = World::new();
    let (source, target) = (server(kind, &world, "source"), server(kind, &world, "target"));
    let both = [&source, &target];
    source.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE one (id INT PRIMARY KEY, v INT); INSERT INTO one VALUES (1, 1); DO SLEEP(1.1); \
         CREATE TABLE two LIKE one; INSERT INTO two VALUES (1, 2)",
    );
    // The snapshot is there, and the target does not take the first statement.
    let lock = Held::by(&target, "FLUSH TABLES WITH READ LOCK");
    let running = world.start(&line(both, "--for 1ms"));
    wait_until("the first statement waits", || ["DROP", "CREATE"].iter().any(|verb| is_running(&target, verb)));
    source.sql("USE shop; CREATE TABLE new (a INT); RENAME TABLE one TO three, two TO one, three TO two");
    drop(lock);
    let ended = running.wait().with_code(1);
    assert!(ended.err.contains("the definition of shop.one changed"), "{ended}");
    migrate(&world, both, "--resume --cut-over").done();
    assert_eq!(target.sql("SELECT v FROM shop.one"), "2\n");
}

#[test]
fn tables_of_mysql_that_swap_their_names_during_the_full_end_it() {
    a_swap_during_the_full(Kind::Mysql9);
}

#[test]
fn tables_of_mariadb_that_swap_their_names_during_the_full_end_it() {
    a_swap_during_the_full(Kind::Mariadb11);
}

#[test]
fn a_log_without_the_case_of_names_does_not_go_into_a_server_with_it() {
    let world = World::new();
    let options = Options::new().binlog().option("binlog_format=ROW");
    let source = started(Kind::Mariadb11, &options.clone().option("lower_case_table_names=1"), &world, "source");
    let target = started(Kind::Mariadb11, &options, &world, "target");
    source.sql("CREATE DATABASE shop; CREATE TABLE shop.t (a INT); INSERT INTO shop.t VALUES (1)");
    migrate(&world, [&source, &target], "").refused(1, "", "lower_case_table_names");
    assert!(!target.sql("SHOW DATABASES").contains("shop"));
    migrate(&world, [&source, &target], "--no-follow").done();
    assert_eq!(target.sql("SELECT a FROM shop.t"), "1\n");
}
