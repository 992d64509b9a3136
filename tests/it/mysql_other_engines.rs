//! Tables of a real MySQL that are not InnoDB: stored beside the clone as SQL text, restored, loaded, and compared.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_test_servers::{Kind, Options, Server, SetAtEnd, wait_until};

use crate::program::{Ended, Running};
use crate::report::assert_within_the_pool;
use crate::world::World;

const OPTIONS: &str = "--include-other-engines";

/// A server with the clone plugin and a table of InnoDB; its password file in the world's folder.
fn server(world: &World, statements: &str) -> Server {
    let server = Server::start(Kind::Mysql9, &Options::new().binlog());
    server.sql(
        "INSTALL PLUGIN clone SONAME 'mysql_clone.so'; CREATE DATABASE shop; \
         CREATE TABLE shop.item (id INT PRIMARY KEY, name VARCHAR(20)); INSERT INTO shop.item VALUES (1, 'a')",
    );
    server.sql(statements);
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    server
}

fn backup(world: &World, server: &Server, options: &str) -> Ended {
    let port = server.port();
    world.run(&format!("backup mysql://root@127.0.0.1:{port} --password-file password {options}"))
}

/// Starts a server on a restored directory, with the passwords of the source.
fn started(world: &World, source: &Server, directory: &str) -> Server {
    let options = Options::new().binlog().datadir(&world.at(directory)).password_file(source.password_file().unwrap());
    Server::start(Kind::Mysql9, &options)
}

/// The texts in a restored directory, in their order.
fn texts(directory: &Path) -> Vec<PathBuf> {
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut texts: Vec<_> = entries(directory.join("#other-engines")).flat_map(entries).collect();
    texts.sort();
    texts
}

/// What the restore tells the user to do.
fn load(server: &Server, directory: &Path) {
    for text in texts(directory) {
        let mut client = server.client();
        client.args(["--binary-mode", "--comments", "--max-allowed-packet=1G"]).stdin(File::open(&text).unwrap());
        let output = client.stderr(Stdio::piped()).output().unwrap();
        assert!(output.status.success(), "{}: {}", text.display(), String::from_utf8_lossy(&output.stderr));
    }
}

/// The lines that differ, if any do.
fn assert_same(found: &str, expected: &str) {
    let differing: Vec<_> = found.lines().zip(expected.lines()).filter(|(found, expected)| found != expected).collect();
    assert!(differing.is_empty() && found == expected, "{:.3000}", format!("{differing:#?}"));
}

/// All that can be seen of the tables of other engines.
fn look(server: &Server) -> String {
    let quoted = "CONCAT('`', REPLACE(table_schema, '`', '``'), '`.`', REPLACE(table_name, '`', '``'), '`')";
    let tables = server.sql(&format!(
        "SELECT HEX({quoted}) FROM information_schema.tables WHERE engine <> 'InnoDB' AND table_type = 'BASE TABLE' \
         AND table_schema NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema') ORDER BY 1"
    ));
    let mut seen = String::new();
    for hex in tables.lines() {
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let name = String::from_utf8(bytes).unwrap();
        seen += &server.sql(&format!(
            "CHECKSUM TABLE {name}; SHOW CREATE TABLE {name}; SELECT COUNT(*) FROM {name}; CHECK TABLE {name}"
        ));
        // The checksum of an ARCHIVE is always 0.
        seen += &server.sql(&format!("SELECT * FROM {name}"));
    }
    let triggers = "SELECT trigger_schema, trigger_name, event_manipulation, event_object_table, action_order, action_statement, action_timing, \
                    sql_mode, definer, character_set_client, collation_connection FROM information_schema.triggers \
                    WHERE trigger_schema <> 'sys' ORDER BY 1, 2";
    seen + &server.sql(triggers)
}

#[test]
fn a_table_of_another_engine_comes_back_with_its_rows() {
    let world = World::new();
    let source = server(
        &world,
        "CREATE TABLE shop.old (id INT PRIMARY KEY, name TEXT) ENGINE=MyISAM; INSERT INTO shop.old VALUES (1, 'a'), (2, NULL)",
    );
    backup(&world, &source, "--to a/").with_code(4).says(&["shop.old (MyISAM)", OPTIONS]);
    let ended = backup(&world, &source, &format!("--to b/ {OPTIONS}")).done();
    assert!(!ended.err.contains("empty after a restore"), "{ended}");
    world.run("verify --from b").done();
    let files = world.run("inspect files --from b").done().text();
    assert!(files.contains("#other-engines/shop/old.sql"), "{files}");
    world.run("restore --from b --into dir:copy").with_code(4).says(&["#other-engines'/*/*.sql | mysql"]);
    let restored = started(&world, &source, "copy");
    load(&restored, &world.at("copy"));
    assert_eq!(look(&restored), look(&source));
    assert_eq!(restored.sql("SELECT * FROM shop.old; SELECT name FROM shop.item"), "1\ta\n2\tNULL\na\n");
}

/// Every engine and every type.
fn everything(world: &World) -> Server {
    let source = server(world, "DO 1");
    let mut client = source.client();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/mysql_other_engines.sql");
    client.args(["--binary-mode", "--comments"]).stdin(File::open(script).unwrap());
    let output = client.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    source
}

fn grants(server: &Server) -> String {
    server.sql(
        "SHOW GRANTS FOR reader@localhost; SELECT COUNT(*) FROM shop.over; SELECT COUNT(*) FROM shop.seen_by_triggers",
    )
}

#[test]
fn every_engine_type_and_name_comes_back_exactly_with_triggers_and_grants() {
    let world = World::new();
    let source = everything(&world);
    let (expected, granted) = (look(&source), grants(&source));
    backup(&world, &source, &format!("--to a/ --to b/ --compression zstd:1 {OPTIONS} --max-transfer-size 64KiB"))
        .done();
    world.run("restore --from a --from b --into dir:copy").with_code(4);
    let mut restored = started(&world, &source, "copy");
    load(&restored, &world.at("copy"));
    assert_same(&look(&restored), &expected);
    assert_eq!(grants(&restored), granted);
    // Loaded once more it is the same.
    load(&restored, &world.at("copy"));
    assert_same(&look(&restored), &expected);
    restored.stop();
}

#[test]
fn a_start_check_loads_them_so_that_the_directory_is_complete() {
    let world = World::new();
    let source = everything(&world);
    let (expected, granted) = (look(&source), grants(&source));
    backup(&world, &source, &format!("--to a/ {OPTIONS}")).done();
    let own = source.program("mysqld").get_program().to_str().unwrap().to_owned();
    let line =
        format!("restore --from a --into dir:copy --start-check --server-program {own} --report json:report.json");
    let ended = world.run_as_nobody(&line).done();
    assert!(ended.text().contains("loaded from SQL text") && ended.err.contains("MEMORY"), "{ended}");
    let report: serde_json::Value = serde_json::from_slice(&world.read("report.json")).unwrap();
    assert_eq!(report["start_check"]["loaded"], expected.matches("CREATE TABLE `").count(), "{report}");
    // Only what the server has forgotten is left to be loaded.
    let left = texts(&world.at("copy"));
    assert!(left.len() == 1 && left[0].ends_with("shop/in_memory.sql"), "{left:?}");
    let restored = started(&world, &source, "copy");
    load(&restored, &world.at("copy"));
    assert_same(&look(&restored), &expected);
    assert_eq!(grants(&restored), granted);
}

#[test]
fn without_such_tables_the_flag_does_nothing_and_elsewhere_it_is_refused() {
    let world = World::new();
    let source = server(&world, "DO 1");
    backup(&world, &source, &format!("--to a/ {OPTIONS} --report json:report.json")).done();
    let report: serde_json::Value = serde_json::from_slice(&world.read("report.json")).unwrap();
    assert_eq!(report["position"]["last"]["other_engines"]["tables"], 0, "{report}");
    let ended = world.run("restore --from a --into dir:copy").done();
    assert!(!ended.err.contains("other engines") && texts(&world.at("copy")).is_empty(), "{ended}");
    let ended = world.run(&format!("backup sqlite:app.db --to b/ {OPTIONS}"));
    assert!(ended.code == 2 && ended.err.contains(OPTIONS), "{ended}");
}

#[test]
fn missing_privileges_are_named_before_anything_begins() {
    let world = World::new();
    let source = server(
        &world,
        "CREATE TABLE shop.old (id INT) ENGINE=MyISAM; CREATE USER poor IDENTIFIED BY 'secret'; GRANT BACKUP_ADMIN, PROCESS ON *.* TO poor; \
         GRANT SELECT ON performance_schema.* TO poor; \
         CREATE USER half IDENTIFIED BY 'secret'; GRANT BACKUP_ADMIN, PROCESS, SELECT ON *.* TO half; GRANT LOCK TABLES ON shop.* TO half; \
         CREATE USER full IDENTIFIED BY 'secret'; GRANT BACKUP_ADMIN, SELECT, LOCK TABLES ON *.* TO full; GRANT TRIGGER ON shop.* TO full",
    );
    world.write("password", b"secret");
    let run = |user: &str| {
        let port = source.port();
        world.run(&format!("backup mysql://{user}@127.0.0.1:{port} --password-file password --to a/ {OPTIONS}"))
    };
    let ended = run("poor").with_code(1);
    assert!(ended.err.contains("SELECT ON *.*"), "{ended}");
    let ended = run("half").with_code(1);
    assert!(ended.err.contains("TRIGGER ON `shop`.*") && !ended.err.contains("LOCK TABLES ON"), "{ended}");
    assert!(world.names("a").is_empty(), "{:?}", world.names("a"));
    run("full").done();
}

/// Runs `work` while somebody holds `old` for writing.
fn while_held<T>(source: &Server, work: impl FnOnce() -> T) -> T {
    let mut client = source.client();
    client.args(["--execute", "LOCK TABLES shop.old WRITE; DO SLEEP(900)"]);
    let mut holder = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(source, "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'DO SLEEP(900)'");
    let done = work();
    holder.kill().unwrap();
    holder.wait().unwrap();
    done
}

fn wait_for(source: &Server, query: &str) {
    wait_until(query, || source.sql(query).trim() != "0");
}

#[test]
fn a_lock_that_somebody_holds_is_waited_for_no_longer_than_said_and_nothing_is_left() {
    let world = World::new();
    let source = server(&world, "CREATE TABLE shop.old (id INT) ENGINE=MyISAM");
    let begun = Instant::now();
    let ended = while_held(&source, || backup(&world, &source, &format!("--to a/ {OPTIONS} --lock-timeout 2")));
    assert!(ended.code == 1 && begun.elapsed() < Duration::from_secs(120), "{ended}");
    assert!(ended.err.contains("shop.old") && ended.err.contains("--lock-timeout"), "{ended}");
    assert!(world.names("a").is_empty(), "{:?}", world.names("a"));
    // Nothing of ours waits in the server.
    wait_for(&source, "SELECT COUNT(*) = 0 FROM performance_schema.metadata_locks WHERE object_name = 'old'");
    backup(&world, &source, &format!("--to a/ {OPTIONS}")).done();
}

#[test]
fn tables_that_are_written_to_meanwhile_are_of_one_moment_and_that_is_the_clones_position() {
    let world = World::new();
    let source = server(
        &world,
        "CREATE TABLE shop.one (id INT PRIMARY KEY AUTO_INCREMENT, filler VARCHAR(200)) ENGINE=MyISAM; \
         CREATE TABLE shop.other (id INT PRIMARY KEY AUTO_INCREMENT) ENGINE=MyISAM; \
         CREATE TABLE shop.bulk (id INT PRIMARY KEY AUTO_INCREMENT, filler VARBINARY(1000)) ENGINE=InnoDB; \
         INSERT INTO shop.bulk (filler) VALUES (RANDOM_BYTES(999)), (RANDOM_BYTES(999)), (RANDOM_BYTES(999)); \
         INSERT INTO shop.bulk (filler) SELECT RANDOM_BYTES(999) FROM shop.bulk a, shop.bulk b, shop.bulk c, shop.bulk d, shop.bulk e, shop.bulk f, shop.bulk g, shop.bulk h, shop.bulk i",
    );
    let stop = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        let ends = SetAtEnd(&stop);
        // First the one, then the other: there is never more than one row between them.
        scope.spawn(|| {
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) {
                let pairs =
                    "INSERT INTO shop.one (filler) VALUES (REPEAT('x', 200)); INSERT INTO shop.other VALUES (); "
                        .repeat(50);
                source.sql(&pairs);
                written += 1;
            }
            assert!(written > 3, "the writer had no time");
        });
        wait_for(&source, "SELECT COUNT(*) > 200 FROM shop.other");
        let ended = backup(&world, &source, &format!("--to a/ --readers 2 {OPTIONS} --report json:report.json"));
        drop(ends);
        ended.done();
        serde_json::from_slice::<serde_json::Value>(&world.read("report.json")).unwrap()
    });
    assert!(report["writers_blocked_s"].as_f64().unwrap() > 0.0, "{report}");
    world.run("restore --from a --into dir:copy").with_code(4);
    let restored = started(&world, &source, "copy");
    load(&restored, &world.at("copy"));
    let counts = restored.sql("SELECT (SELECT COUNT(*) FROM shop.one) - (SELECT COUNT(*) FROM shop.other), (SELECT COUNT(*) FROM shop.one) > 0");
    assert!(counts == "0\t1\n" || counts == "1\t1\n", "{counts}");
    replay(&source, &restored, &report["position"]["last"]["binary_log_exact"]);
    let checksums = "CHECKSUM TABLE shop.one, shop.other, shop.bulk";
    assert_eq!(restored.sql(checksums), source.sql(checksums));
}

/// Replays the source's binary log from a position on.
fn replay(source: &Server, restored: &Server, position: &serde_json::Value) {
    let first = position["binary_log_file"].as_str().expect("an exact position");
    let mut files: Vec<String> =
        source.sql("SHOW BINARY LOGS").lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect();
    files.retain(|file| file.as_str() >= first);
    let mut binlog = source.program("mysqlbinlog");
    binlog.arg(format!("--start-position={}", position["binary_log_position"]));
    binlog.args(files.iter().map(|file| source.datadir().join(file)));
    let mut reader = binlog.stdout(Stdio::piped()).spawn().unwrap();
    let mut client = restored.client();
    client.arg("--binary-mode").stdin(reader.stdout.take().unwrap());
    let output = client.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(reader.wait().unwrap().success());
}

#[test]
fn a_hundred_thousand_rows_and_a_very_long_one_pass_in_constant_memory_also_in_a_differential() {
    let world = World::new();
    let source = server(
        &world,
        "SET SESSION cte_max_recursion_depth = 200000; CREATE TABLE shop.many (id INT PRIMARY KEY, body VARBINARY(1000)) ENGINE=MyISAM; \
         INSERT INTO shop.many WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000) SELECT n, RANDOM_BYTES(500) FROM n; \
         CREATE TABLE shop.long_row (id INT PRIMARY KEY, body LONGBLOB) ENGINE=MyISAM; \
         INSERT INTO shop.long_row VALUES (1, REPEAT(RANDOM_BYTES(1000), 25000)), (2, NULL)",
    );
    let options = format!("{OPTIONS} --workers 1 --compression lz4 --report json:report.json");
    backup(&world, &source, &format!("--to a/ --to b/ {options}")).done();
    let report: serde_json::Value = serde_json::from_slice(&world.read("report.json")).unwrap();
    assert_within_the_pool(&report);
    source.sql("DELETE FROM shop.many WHERE id % 3 = 0; UPDATE shop.long_row SET body = 'short' WHERE id = 2");
    fs::create_dir(world.at("c")).unwrap();
    backup(&world, &source, &format!("--to c/ --kind differential --base a --base b {OPTIONS}")).done();
    world.run("verify --from a --from b --from c").done();
    world.run("restore --from a --from b --from c --into dir:copy").with_code(4);
    let restored = started(&world, &source, "copy");
    load(&restored, &world.at("copy"));
    let checksums = "CHECKSUM TABLE shop.many, shop.long_row; SELECT COUNT(*) FROM shop.many";
    assert_eq!(restored.sql(checksums), source.sql(checksums));
}

#[test]
fn a_merge_of_tables_that_are_gone_and_a_name_that_no_clone_starts_with_do_no_harm() {
    let world = World::new();
    let source = server(
        &world,
        "CREATE TABLE shop.gone (id INT) ENGINE=MyISAM; CREATE TABLE shop.over (id INT) ENGINE=MERGE UNION=(shop.gone); DROP TABLE shop.gone; \
         CREATE TABLE shop.`a``b` (id INT) ENGINE=MyISAM; INSERT INTO shop.`a``b` VALUES (7); \
         CREATE TABLE shop.sheet (id INT NOT NULL) ENGINE=CSV; INSERT INTO shop.sheet VALUES (8); \
         CREATE TABLE shop.kept (id INT) ENGINE=ARCHIVE",
    );
    let ended = backup(&world, &source, &format!("--to a/ {OPTIONS}")).with_code(4);
    assert!(ended.err.contains("shop.over (MRG_MYISAM) is not stored") && ended.err.contains("shop.a`b"), "{ended}");
    let ended = world.run("restore --from a --into dir:copy").with_code(4);
    assert!(ended.err.contains("mysql.general_log"), "{ended}");
    let restored = started(&world, &source, "copy");
    load(&restored, &world.at("copy"));
    restored.sql("TRUNCATE mysql.general_log; TRUNCATE mysql.slow_log");
    let rows = "SELECT * FROM shop.`a``b`; SELECT * FROM shop.sheet; SELECT COUNT(*) FROM mysql.general_log";
    assert_eq!(restored.sql(rows), "7\n8\n0\n");
    assert!(!restored.error_log().contains("[ERROR]"), "{}", restored.error_log());
    drop(restored);
    let own = source.program("mysqld").get_program().to_str().unwrap().to_owned();
    world.run_as_nobody(&format!("restore --from a --into dir:again --start-check --server-program {own}")).done();
    assert_eq!(started(&world, &source, "again").sql(rows), "7\n8\n0\n");
    // What a clone alone leaves is no reason to refuse it either.
    backup(&world, &source, "--to b/").with_code(4);
    world.run_as_nobody(&format!("restore --from b --into dir:bare --start-check --server-program {own}")).done();
}

/// A backup that is just reading `shop.old`, slowly.
fn begin_slowly(world: &World, source: &Server) -> Running {
    let line = format!(
        "backup mysql://root@127.0.0.1:{} --password-file password --to a/ {OPTIONS} --throttle 10MiB/s --max-transfer-size 64KiB",
        source.port()
    );
    let running = world.start(&line);
    let reads = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT%`body` FROM `shop`.`old`'";
    wait_for(source, reads);
    running
}

#[test]
fn killed_or_stopped_while_it_reads_them_it_leaves_no_lock_and_nothing_that_looks_whole() {
    let world = World::new();
    let source = server(
        &world,
        "CREATE TABLE shop.old (id INT AUTO_INCREMENT PRIMARY KEY, body LONGBLOB) ENGINE=MyISAM; \
         INSERT INTO shop.old (body) VALUES (REPEAT('x', 20000000)), (REPEAT('y', 20000000)), (REPEAT('x', 20000000)), (REPEAT('y', 20000000))",
    );
    let held = "FROM performance_schema.metadata_locks WHERE object_name = 'old' AND lock_type = 'SHARED_READ_ONLY'";
    for signal in ["KILL", "INT"] {
        // The clone has some 70 MiB; then the rows take long.
        let line = format!(
            "backup mysql://root@127.0.0.1:{} --password-file password --to a/ {OPTIONS} --throttle 10MiB/s --max-transfer-size 64KiB",
            source.port()
        );
        let running = world.start(&line);
        wait_for(
            &source,
            "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT%`body` FROM `shop`.`old`'",
        );
        assert_eq!(source.sql(&format!("SELECT COUNT(*) {held}")), "1\n");
        running.signal(signal);
        let ended = running.wait();
        assert_ne!(ended.code, 0, "{ended}");
        wait_for(&source, &format!("SELECT COUNT(*) = 0 {held}"));
        source.sql("INSERT INTO shop.old (body) VALUES ('z')");
    }
    assert!(world.names("a").iter().all(|name| name.contains(".new-")), "{:?}", world.names("a"));
    backup(&world, &source, &format!("--to b/ {OPTIONS}")).done();
}

#[test]
fn ddl_on_a_table_that_is_locked_waits_and_a_table_that_is_created_meanwhile_is_named() {
    let world = World::new();
    let source = server(
        &world,
        "CREATE TABLE shop.old (id INT AUTO_INCREMENT PRIMARY KEY, body LONGBLOB) ENGINE=MyISAM; \
         INSERT INTO shop.old (body) VALUES (REPEAT('x', 20000000)), (REPEAT('y', 20000000)), (REPEAT('x', 20000000)), (REPEAT('y', 20000000)); \
         CREATE TABLE shop.second (id INT PRIMARY KEY) ENGINE=MyISAM; INSERT INTO shop.second VALUES (1), (2)",
    );
    let running = begin_slowly(&world, &source);
    let ended = thread::scope(|scope| {
        let altered = scope.spawn(|| source.sql("ALTER TABLE shop.second ADD COLUMN more INT; DROP TABLE shop.old"));
        wait_for(
            &source,
            "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock'",
        );
        source.sql("CREATE TABLE shop.newer (id INT PRIMARY KEY) ENGINE=MyISAM");
        let ended = running.wait();
        altered.join().unwrap();
        ended.with_code(4)
    });
    assert!(ended.err.contains("shop.newer") && !ended.err.contains("shop.second"), "{ended}");
    world.run("restore --from a --into dir:copy").with_code(4);
    let restored = started(&world, &source, "copy");
    load(&restored, &world.at("copy"));
    assert_eq!(
        restored.sql("SELECT * FROM shop.second; SELECT LENGTH(body) FROM shop.old"),
        "1\n2\n20000000\n20000000\n20000000\n20000000\n"
    );
}
