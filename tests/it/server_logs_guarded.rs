//! What a log must not do to a running server, and what it leaves when it is broken off.

use fullbore_test_servers::{Kind, Options};

use crate::held::{Held, wait_for_statement};
use crate::program;
use crate::server_logs::{Logged, pass_a_second};
use crate::server_logs_into::Target;

/// The source has a logical set, has run these statements, and has a log set.
fn logged(kind: Kind, statements: &str) -> Logged {
    let test = Logged::new(kind);
    test.insert("in the set");
    test.backup("--method logical").done();
    test.server.sql(statements);
    test.backup("--kind log").done();
    test
}

#[test]
fn a_table_without_transactions_that_changed_while_the_set_was_made_is_refused_and_not_filled_twice() {
    let test = Logged::new(Kind::Mariadb11);
    test.server.sql("CREATE TABLE shop.plain (id INT) ENGINE=MyISAM; INSERT INTO shop.plain VALUES (1)");
    let mut lock = Held::by(&test.server, "LOCK TABLES shop.plain WRITE");
    let line = format!("backup {} --password-file password --repo night --method logical", test.url);
    let running = program::start(test.world.as_nobody(&line));
    wait_for_statement(&test.server, "SELECT%`plain`");
    lock.run("INSERT INTO shop.plain VALUES (2)");
    drop(lock);
    running.wait().with_code(4);
    test.backup("--kind log").done();
    let target = Target::new(&test);
    let ended = target.restore(&test, "").with_code(1);
    assert!(ended.err.contains("shop.plain") && ended.err.contains("while the set was made"), "{ended}");
    assert_eq!(target.server.sql("SELECT * FROM shop.plain ORDER BY 1"), "1\n2\n", "the rows of the set");
    // The rows that the log has from the end of the set on are applied.
    test.backup("--method logical").with_code(4);
    test.server.sql("INSERT INTO shop.plain VALUES (3)");
    test.backup("--kind log").done();
    target.restore(&test, "").done();
    assert_eq!(target.server.sql("SELECT * FROM shop.plain ORDER BY 1"), "1\n2\n3\n");
}

#[test]
fn a_temporary_table_outlives_the_xa_transaction_of_another_session() {
    let test = Logged::new(Kind::Mariadb11);
    test.server.sql("CREATE TABLE shop.kept (v VARCHAR(20))");
    test.backup("--method logical").done();
    let mut one = Held::by(
        &test.server,
        "USE shop; SET SESSION binlog_format = 'STATEMENT'; CREATE TEMPORARY TABLE kept (v VARCHAR(20)); INSERT INTO kept VALUES ('temporary')",
    );
    test.server
        .sql("USE shop; XA START 'x'; INSERT INTO t (v) VALUES ('xa'); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'");
    one.run("INSERT INTO kept VALUES ('too'); INSERT INTO t (v) SELECT COUNT(*) FROM kept");
    drop(one);
    test.backup("--kind log").done();
    let target = Target::new(&test);
    target.restore(&test, "").done();
    assert_eq!(
        target.server.sql("SELECT v FROM shop.t ORDER BY id"),
        test.server.sql("SELECT v FROM shop.t ORDER BY id")
    );
    assert_eq!(target.server.sql("SELECT COUNT(*) FROM shop.kept"), "0\n");
}

fn accounts_of_the_target_stay(kind: Kind) {
    let table = if kind == Kind::Mysql9 { "user" } else { "global_priv" };
    let test = logged(
        kind,
        &format!(
            "CREATE USER doomed@localhost; SET SESSION binlog_format = 'STATEMENT'; DELETE FROM mysql.{table} WHERE user = 'doomed'; INSERT INTO shop.t (v) VALUES ('after')"
        ),
    );
    let target = Target::new(&test);
    target.server.sql("CREATE USER doomed@localhost");
    let ended = target.restore(&test, "").with_code(4).says(&["tables of the server itself left out"]);
    assert_eq!(target.server.sql("SELECT COUNT(*) FROM mysql.user WHERE user = 'doomed'"), "1\n", "{ended}");
    assert_eq!(target.server.sql("SELECT COUNT(*) FROM shop.t WHERE v = 'after'"), "1\n");
}

#[test]
fn a_statement_about_the_accounts_of_mysql_does_not_run_on_those_of_the_target() {
    accounts_of_the_target_stay(Kind::Mysql9);
}

#[test]
fn a_statement_about_the_accounts_of_mariadb_does_not_run_on_those_of_the_target() {
    accounts_of_the_target_stay(Kind::Mariadb10);
}

fn a_database_of_the_target_stays(kind: Kind) {
    let test = logged(
        kind,
        "CREATE DATABASE IF NOT EXISTS mine; CREATE TABLE mine.t (a INT); DROP DATABASE mine; INSERT INTO shop.t (v) VALUES ('after')",
    );
    let target = Target::new(&test);
    target.server.sql("CREATE DATABASE mine; CREATE TABLE mine.precious (a INT)");
    let ended = test.run(&target.line("")).with_code(1);
    assert!(ended.err.contains("`mine`") && ended.err.contains("--replace"), "{ended}");
    assert_eq!(target.server.sql("SHOW TABLES FROM mine"), "precious\n");
    target.restore(&test, "").done();
    assert_eq!(target.server.sql("SELECT COUNT(*) FROM shop.t WHERE v = 'after'"), "1\n");
    assert!(!target.server.sql("SHOW DATABASES").contains("mine"));
}

#[test]
fn a_database_that_only_the_target_mysql_has_is_dropped_with_replace_only() {
    a_database_of_the_target_stays(Kind::Mysql9);
}

#[test]
fn a_database_that_only_the_target_mariadb_has_is_dropped_with_replace_only() {
    a_database_of_the_target_stays(Kind::Mariadb11);
}

fn nothing_of_a_half_statement_stays(kind: Kind) {
    let test = logged(
        kind,
        "INSERT INTO shop.t (v) VALUES ('before'); CREATE TABLE shop.picked AS SELECT v, REPEAT('x', 9000000 * (v = 'before')) l FROM shop.t ORDER BY id",
    );
    // Without a log of its own, MySQL commits the table before its rows.
    let gtids = ["skip-log-bin", "gtid_mode=ON", "enforce_gtid_consistency=ON"];
    let without_log = gtids.iter().fold(Options::new(), |options, option| options.option(option));
    for options in [Options::new().binlog(), if kind == Kind::Mysql9 { without_log } else { Options::new() }] {
        let target = Target::with(&test, &options.option("max_allowed_packet=4M"));
        let ended = target.restore(&test, "").with_code(1);
        assert!(ended.err.contains("max_allowed_packet"), "{ended}");
        assert_eq!(target.server.sql("SHOW TABLES FROM shop"), "t\n", "{ended}");
        assert_eq!(target.server.sql("SELECT COUNT(*) FROM shop.t"), "2\n", "everything before it is there");
        target.server.sql("SET GLOBAL max_allowed_packet = 67108864");
        target.restore(&test, "").done();
        let picked = "SELECT GROUP_CONCAT(v ORDER BY v), SUM(LENGTH(l)) FROM shop.picked";
        assert_eq!(target.server.sql(picked), test.server.sql(picked));
    }
}

#[test]
fn nothing_of_a_create_table_select_stays_in_mysql_if_a_row_is_too_long() {
    nothing_of_a_half_statement_stays(Kind::Mysql9);
}

#[test]
fn nothing_of_a_create_table_select_stays_in_mariadb_if_a_row_is_too_long() {
    nothing_of_a_half_statement_stays(Kind::Mariadb11);
}

fn a_prepared_transaction(kind: Kind) {
    let test = Logged::new(kind);
    test.backup("--method logical").done();
    test.server.sql("USE shop; XA START 'x'; INSERT INTO t (v) VALUES ('both'); XA END 'x'; XA PREPARE 'x'");
    let then = pass_a_second();
    test.backup("--kind log").done();
    let between = Logged::backup(&test, "--method logical");
    assert!(between.code == 0 || between.code == 4, "{between}");
    test.server.sql("XA COMMIT 'x'");
    test.backup("--kind log").done();
    let target = Target::new(&test);

    // A stop between both halves: it is prepared, and a warning says so.
    target
        .restore(&test, &format!("--stop-at {then}"))
        .with_code(4)
        .says(&["XA transactions are prepared", "XA ROLLBACK"]);
    assert_ne!(target.server.sql("XA RECOVER"), "");
    let id = if kind == Kind::Mysql9 { "X'78',X'',1" } else { "'x'" };
    let prepared = ["XA transactions are prepared", id];
    test.restore(&format!("--stop-at {then}"), "between").with_code(4).says(&prepared);
    target.server.sql("XA ROLLBACK 'x'");
    // The newest set does not have it, and the log has its commit only.
    let ended = target.restore(&test, "").with_code(1);
    assert!(ended.err.contains("prepared before the set was made"), "{ended}");
}

#[test]
fn a_prepared_transaction_of_mysql_is_named_at_the_stop_and_one_from_before_the_set_is_refused() {
    a_prepared_transaction(Kind::Mysql9);
}

#[test]
fn a_prepared_transaction_of_mariadb_is_named_at_the_stop_and_one_from_before_the_set_is_refused() {
    a_prepared_transaction(Kind::Mariadb10);
}

#[test]
fn a_target_is_marked_until_the_log_is_applied_and_a_killed_run_leaves_no_files_for_long() {
    let test = logged(
        Kind::Mariadb11,
        "USE shop; SET SESSION binlog_format = 'STATEMENT'; INSERT INTO t (v) SELECT SLEEP(6); INSERT INTO t (v) VALUES ('after')",
    );
    let target = Target::new(&test);
    let running = program::start(test.world.as_nobody(&target.line("")));
    wait_for_statement(&target.server, "INSERT INTO t (v) SELECT SLEEP");
    running.signal("KILL");
    running.wait();
    let ended = test.run(&target.line("")).with_code(1);
    assert!(ended.err.contains("interrupted") && ended.err.contains("--replace"), "{ended}");
    target.restore(&test, "").done();
    assert_eq!(target.server.sql("SELECT COUNT(*) FROM shop.t WHERE v = 'after'"), "1\n");
    assert!(!target.server.sql("SHOW DATABASES").contains("fullbore"));
}

#[test]
fn statements_about_accounts_are_applied_with_users_only_and_the_note_says_why_not() {
    let test = Logged::new(Kind::Mysql9);
    test.backup("--method logical --users").done();
    test.server.sql("CREATE USER later@localhost");
    test.backup("--kind log").done();
    let target = Target::new(&test);
    let later = "SELECT COUNT(*) FROM mysql.user WHERE user = 'later'";
    target.restore(&test, "").done().says(&["--users is not given"]);
    assert_eq!(target.server.sql(later), "0\n");
    target.restore(&test, "--users").done();
    assert_eq!(target.server.sql(later), "1\n");
}

#[test]
fn a_long_statement_of_mariadb_counts_as_done_at_its_end() {
    let test = Logged::new(Kind::Mariadb11);
    test.backup("--method logical").done();
    let mut locked = Held::by(&test.server, "LOCK TABLES shop.t WRITE");
    let mut altering = Held::by(&test.server, "SELECT 1");
    altering.send("ALTER TABLE shop.t ADD later INT");
    wait_for_statement(&test.server, "ALTER TABLE");
    let then = pass_a_second();
    pass_a_second();
    locked.run("UNLOCK TABLES");
    altering.run("SELECT 1");
    pass_a_second();
    test.backup("--kind log").done();
    let target = Target::new(&test);
    target.restore(&test, &format!("--stop-at {then}")).done();
    assert!(!target.server.sql("SHOW CREATE TABLE shop.t").contains("later"));
    target.restore(&test, "").done();
    assert!(target.server.sql("SHOW CREATE TABLE shop.t").contains("later"));
}
