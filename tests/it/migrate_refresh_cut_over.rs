//! The cut-over of a migration out of a repository, while money moves at the source.

use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};

use fullbore_test_servers::{Kind, Options, Server, wait_until};

use crate::held::Held;
use crate::program::{self, Ended};
use crate::server_logs::Logged;
use crate::server_logs_into::Target;

/// Moves money until the server refuses. Counts what was committed.
fn move_money(server: &Server, moved: &AtomicU64) {
    let all_the_time = "START TRANSACTION; UPDATE account SET money = money - 1 WHERE id = 1 + {n} % 7; \
                        UPDATE account SET money = money + 1 WHERE id = 1 + {n} % 5; INSERT INTO moved VALUES ({n}); COMMIT";
    for number in 1.. {
        let mut client = server.client();
        client.args(["--user=app", "--password=app", "shop", "-e", &all_the_time.replace("{n}", &number.to_string())]);
        let done = client.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        if !done.success() {
            return;
        }
        moved.store(number, Ordering::SeqCst);
    }
}

fn money_moves_until_the_cut_over(kind: Kind) {
    let test = Logged::with(kind, &Options::new().binlog().option("binlog_format=ROW"));
    let target = Target::new(&test);
    if kind != Kind::Mysql9 {
        // The last log set is encrypted as the others are.
        test.run("key new --no-recovery k.key").done();
        std::fs::create_dir(test.world.at("keys")).unwrap();
        for name in ["k.key", "k.key.pub"] {
            std::fs::rename(test.world.at(name), test.world.at(&format!("keys/{name}"))).unwrap();
        }
        let encrypted = b"[repository.night]\nto = [\"a/\"]\nencrypt-to = [\"keys/k.key.pub\"]\nkey = \"keys/k.key\"\n";
        test.world.write("fullbore.toml", encrypted);
    }
    test.server.sql(
        "USE shop; CREATE TABLE account (id INT PRIMARY KEY, money BIGINT); CREATE TABLE moved (n INT PRIMARY KEY); \
         INSERT INTO account VALUES (1, 100), (2, 100), (3, 100), (4, 100), (5, 100), (6, 100), (7, 100); \
         SET GLOBAL event_scheduler = OFF; CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO DELETE FROM moved WHERE n < 0; \
         CREATE USER app@localhost IDENTIFIED BY 'app'; GRANT ALL ON shop.* TO app@localhost",
    );
    test.backup("--method logical").done();
    let line = |source: &str, options: &str| {
        let into = format!("--into {} --into-password-file target --password-file password", target.url);
        format!("migrate {source} --repo night {into} {options}")
    };
    let migrate = |source: &str, options: &str| -> Ended { test.run(&line(source, options)) };
    migrate(&test.url, "").refused(2, "", "--cut-over only");
    migrate("", "--cut-over").refused(2, "--cut-over", "the source is not named");
    migrate(&test.url, "--cut-over").refused(1, "", "does not hold the sets");
    migrate("", "").done();
    test.server.sql("INSERT INTO shop.account VALUES (99, 0); DELETE FROM shop.account WHERE id = 99");
    let families = test.world.names("a");
    let plan = migrate(&test.url, "--cut-over --plan").done();
    for part in ["downtime", "the source is read at", "tables"] {
        assert!(plan.text().contains(part), "{part}: {plan}");
    }
    plan.says(&["0 sets with", "a log set with about"]);
    assert_eq!((test.world.names("a"), &test.server.sql("SELECT @@GLOBAL.read_only")[..1]), (families, "0"));
    // A run that is killed while the source is read-only: the next one gives the settings back first.
    let lock = Held::by(&target.server, "LOCK TABLES shop.moved WRITE");
    let running = program::start(test.world.as_nobody(&line(&test.url, "--cut-over")));
    wait_until("the source is read-only", || test.server.sql("SELECT @@GLOBAL.read_only").starts_with('1'));
    running.signal("KILL");
    running.wait();
    drop(lock);
    migrate(&test.url, "--cut-over --plan").done().says(&["read-only: run SET GLOBAL"]);
    assert!(test.server.sql("SELECT @@GLOBAL.read_only").starts_with('1'), "a plan changes nothing");
    // Somebody has written to the target.
    target.server.sql("INSERT INTO shop.moved VALUES (-1)");
    let ended = migrate(&test.url, "--cut-over").refused(1, "shop.moved", "1 rows");
    assert!(ended.err.contains("is what it was before") && ended.err.contains("writable as before"), "{ended}");
    target.server.sql("DELETE FROM shop.moved WHERE n = -1");
    let moved = AtomicU64::new(0);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| move_money(&test.server, &moved));
        wait_until("money moves", || moved.load(Ordering::SeqCst) > 5);
        migrate(&test.url, "--cut-over --report json:report.json")
    });
    let ended = ended.done();
    let report: serde_json::Value = serde_json::from_slice(&test.world.read("report.json")).unwrap();
    let counted = |field: &str| report["migration"][field].as_u64().unwrap();
    assert!(counted("transactions") > 0 && counted("applied_bytes") > 0, "{report}");
    assert!(ended.text().contains("downtime") && ended.err.contains("read_only = OFF"), "{ended}");
    let result = "SELECT COUNT(*), MAX(n), (SELECT SUM(money) FROM shop.account) FROM shop.moved";
    let number = moved.load(Ordering::SeqCst);
    assert_eq!(target.server.sql(result), format!("{number}\t{number}\t700\n"), "no write is lost");
    assert_eq!(target.server.sql(result), test.server.sql(result));
    assert_eq!(target.server.sql("SELECT event_name, status FROM information_schema.events"), "e\tENABLED\n");
    assert!(!target.server.sql("SHOW DATABASES").contains("fullbore"));
}

#[test]
fn a_mysql_takes_the_place_of_its_source_out_of_a_repository_and_no_write_is_lost() {
    money_moves_until_the_cut_over(Kind::Mysql9);
}

#[test]
fn a_mariadb_takes_the_place_of_its_source_out_of_a_repository_and_no_write_is_lost() {
    money_moves_until_the_cut_over(Kind::Mariadb11);
}
