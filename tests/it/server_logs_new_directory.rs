//! Point in time out of a logical full, into a directory: fullbore makes a data directory, and a server starts on it.

use std::path::Path;

use fullbore_test_servers::{Kind, Options, Server, wait_until};

use crate::held::{Held, wait_for_statement};
use crate::program;
use crate::server_logs::{Logged, pass_a_second};
use crate::server_logs_into::{BEFORE, WRITES, content};

const BANK: &str = "CREATE DATABASE bank; CREATE TABLE bank.account (id INT PRIMARY KEY, money BIGINT NOT NULL); \
    INSERT INTO bank.account VALUES (1, 1000), (2, 1000), (3, 1000), (4, 1000)";
const TOTAL: &str = "SELECT COUNT(*), SUM(money) FROM bank.account";

impl Logged {
    fn move_money(&self) {
        let moved = |from: u32, to: u32, sum: u32| {
            format!(
                "BEGIN; UPDATE bank.account SET money = money - {sum} WHERE id = {from}; \
                 UPDATE bank.account SET money = money + {sum} WHERE id = {to}; COMMIT; "
            )
        };
        self.server.sql(&(0..40).map(|at| moved(1 + at % 4, 1 + (at * 3 + 1) % 4, at)).collect::<String>());
    }

    /// The GTID of the last transaction of the source.
    pub fn last_gtid(&self) -> String {
        let asked = match self.kind {
            Kind::Mysql9 => "SELECT CONCAT(@@server_uuid, ':', SUBSTRING_INDEX(@@GLOBAL.gtid_executed, '-', -1))",
            _ => "SELECT @@gtid_binlog_pos",
        };
        self.server.sql(asked).trim().to_owned()
    }

    /// A server on a new directory. Its root logs in over the socket, without a password, if the tests run as root. Others
    /// set a password first, as the documents say.
    pub fn start_new(&self, directory: &str) -> Server {
        let options = Options::new().binlog().datadir(&self.world.at(directory));
        if program::is_root() {
            return Server::start(self.kind, &options);
        }
        self.world.write("first.sql", b"ALTER USER root@localhost IDENTIFIED BY 'Aa1+first';");
        self.world.write("first", b"Aa1+first");
        let options = options.option(&format!("init-file={}", self.world.at("first.sql").display()));
        Server::start(self.kind, &options.password_file(&self.world.at("first")))
    }

    fn leftovers(&self, of: &str) -> Vec<String> {
        let begin = format!("{of}.");
        self.world.names(".").into_iter().filter(|name| name.starts_with(&begin)).collect()
    }
}

fn a_logical_full_and_its_logs_become_a_data_directory(kind: Kind) {
    let test = Logged::new(kind);
    test.server.sql(BEFORE);
    test.server.sql(BANK);
    test.insert("in the set");
    // The first name is a pattern that fits a database of fullbore's own.
    test.server.sql(
        "CREATE DATABASE fullbore2load; CREATE TABLE fullbore2load.t (id INT PRIMARY KEY); \
         CREATE EVENT shop.was_off ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1; \
         CREATE EVENT shop.was_on ON SCHEDULE EVERY 1 DAY DO SELECT 1",
    );
    test.backup("--method logical").done();
    test.server.sql(WRITES);
    test.server.sql("INSERT INTO fullbore2load.t VALUES (7)");
    test.move_money();
    let (then, content_then) = (pass_a_second(), content(&test.server));
    test.insert("after the time");
    test.backup("--kind log").done();
    test.server.sql("FLUSH BINARY LOGS");
    test.move_money();
    let (gtid, content_at) = (test.last_gtid(), content(&test.server));
    test.insert("after the GTID");
    let next = test.last_gtid();
    test.server.sql(
        "CREATE EVENT shop.e ON SCHEDULE EVERY 1 DAY DO SELECT 1; ALTER EVENT shop.was_off COMMENT 'x'; \
         ALTER EVENT shop.was_on DISABLE; CREATE EVENT shop.far ON SCHEDULE EVERY 1 DAY DISABLE ON SLAVE DO SELECT 1; \
         SET NAMES latin1 COLLATE latin1_german1_ci; CREATE EVENT shop.german ON SCHEDULE EVERY 1 DAY DO SELECT 1",
    );
    test.backup("--kind log").done();
    for (stop, expected) in [
        (format!("--stop-at {then} --check full"), content_then),
        (format!("--stop-at-gtid {gtid}"), content_at.clone()),
        (format!("--stop-before-gtid {next}"), content_at),
    ] {
        let ended = test.restore(&stop, "stopped").done();
        assert!(ended.err.contains("is the data directory of a"), "{ended}");
        let restored = test.start_new("stopped");
        assert_eq!(content(&restored), expected, "{ended}");
        assert_eq!(restored.sql(TOTAL), "4\t4000\n");
        only_root_over_the_socket(&restored);
        drop(restored);
        std::fs::remove_dir_all(test.world.at("stopped")).unwrap();
    }
    // The program alone asks for a data directory too, with all of the log.
    test.restore("", "all").done();
    let restored = test.start_new("all");
    assert_eq!(content(&restored), content(&test.server));
    let events = "SELECT event_name, status, character_set_client, collation_connection FROM information_schema.events \
                  WHERE event_schema = 'shop' ORDER BY 1; SELECT id FROM fullbore2load.t";
    assert_eq!(restored.sql(events), test.server.sql(events));
    let gtids = if kind == Kind::Mysql9 { "@@GLOBAL.gtid_executed" } else { "@@gtid_slave_pos" };
    let of_source = if kind == Kind::Mysql9 { "@@GLOBAL.gtid_executed" } else { "@@gtid_binlog_pos" };
    assert_eq!(restored.sql(&format!("SELECT {gtids}")), test.server.sql(&format!("SELECT {of_source}")));
    let left = |name: &String| name.contains("relay") || name == "master.info" || name.starts_with('.');
    assert!(!test.world.names("all").iter().any(left), "{:?}", test.world.names("all"));
    refusals(&test);
}

/// Nobody else has an account, and root has none over the network.
fn only_root_over_the_socket(server: &Server) {
    let users = server.sql("SELECT user FROM mysql.user WHERE user NOT LIKE 'm%.%' AND user <> 'PUBLIC'");
    assert_eq!(users, "root\n");
    let root = server.sql("SHOW CREATE USER root@localhost");
    assert!(!program::is_root() || root.contains("socket"), "{root}");
    let port = format!("--port={}", server.port());
    let network = server.client().args(["--protocol=tcp", "--host=127.0.0.1", &port, "--execute=SELECT 1"]).output();
    let said = String::from_utf8_lossy(&network.unwrap().stderr).into_owned();
    assert!(said.contains("not allowed to connect") || said.contains("Access denied"), "{said}");
}

fn refusals(test: &Logged) {
    let directory = test.world.at("taken");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("file"), "mine").unwrap();
    let taken = test.restore("--stop-at 2099-01-01T00:00:00Z", "taken").with_code(1);
    assert!(taken.err.contains("is after the range"), "{taken}");
    let taken = test.restore("", "taken").with_code(1);
    assert!(taken.err.contains("is not empty"), "{taken}");
    assert_eq!(test.world.names("taken"), ["file"]);
    let mut without =
        test.world.as_nobody(&format!("restore --repo night --into dir:no --stop-at-gtid {}", test.last_gtid()));
    without.env("PATH", "/nowhere");
    let ended = program::run(without).with_code(2);
    assert!(ended.err.contains("--server-program"), "{ended}");
    let other = Path::new("/var/cache").join("none");
    let ended = test.run(&format!("restore --repo night --into dir:no --server-program {}", other.display()));
    assert!(!ended.err.contains("panicked") && !test.world.at("no").exists(), "{ended}");
    let plan = test.restore("--dry-run", "no").done();
    assert_eq!(plan.text().matches("log ").count(), 2, "{plan}");
    test.restore("--check quick", "no").with_code(2);
    test.restore("--map shop=other", "no").with_code(2);
    assert!(test.leftovers("no").is_empty());
    // Without a stop and a program: files of text, without the log.
    let texts = test.run("restore --repo night --into dir:texts").with_code(4);
    assert!(texts.err.contains("--server-program") && test.world.at("texts/shop/schema.sql").exists(), "{texts}");
    let users = test.run("restore --repo night --into dir:more --users").with_code(2);
    assert!(users.err.contains("--users") && !test.world.at("more").exists(), "{users}");
    if test.kind != Kind::Mysql9 {
        test.server.sql("CREATE SEQUENCE shop.s; ALTER SEQUENCE shop.s RESTART 38");
        test.backup("--kind log").done();
        let ended = test.restore("", "no").with_code(1);
        assert!(ended.err.contains("it has ALTER SEQUENCE, which the applier of MariaDB passes over"), "{ended}");
        assert!(!test.world.at("no").exists());
    }
}

#[test]
fn a_logical_full_of_mysql_and_its_logs_become_a_data_directory_at_a_time_and_at_a_gtid() {
    a_logical_full_and_its_logs_become_a_data_directory(Kind::Mysql9);
}

#[test]
fn a_logical_full_of_mariadb_and_its_logs_become_a_data_directory_at_a_time_and_at_a_gtid() {
    a_logical_full_and_its_logs_become_a_data_directory(Kind::Mariadb11);
}

fn the_accounts_of_the_set_and_the_log_come_with_users(kind: Kind) {
    let test = Logged::new(kind);
    test.server.sql("CREATE USER app@localhost IDENTIFIED BY 'first'; GRANT SELECT ON shop.* TO app@localhost");
    test.backup("--method logical --users").done();
    test.server.sql("ALTER USER app@localhost IDENTIFIED BY 'second'; CREATE USER later@localhost IDENTIFIED BY 'x'");
    test.insert("in the log");
    test.backup("--kind log").done();
    test.restore("--users", "with").done();
    let options = Options::new().binlog().datadir(&test.world.at("with"));
    let restored = Server::start(kind, &options.password_file(test.server.password_file().unwrap()));
    assert_eq!(restored.sql("SELECT v FROM shop.t"), "in the log\n");
    for account in ["app", "later", "root"] {
        let shown = format!("SHOW GRANTS FOR {account}@localhost");
        assert_eq!(restored.sql(&shown), test.server.sql(&shown), "{account}");
    }
    let shown = if kind == Kind::Mysql9 { "authentication_string" } else { "password" };
    let hash = format!("SELECT HEX({shown}) FROM mysql.user WHERE user = 'app'");
    assert_eq!(restored.sql(&hash), test.server.sql(&hash));
    assert_eq!(restored.sql("SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'fullbore%'"), "0\n");
}

#[test]
fn the_accounts_of_mysql_come_with_users() {
    the_accounts_of_the_set_and_the_log_come_with_users(Kind::Mysql9);
}

#[test]
fn the_accounts_of_mariadb_come_with_users() {
    the_accounts_of_the_set_and_the_log_come_with_users(Kind::Mariadb10);
}

#[test]
fn a_killed_restore_leaves_no_directory_of_the_wanted_name_and_the_next_one_makes_it() {
    let test = Logged::new(Kind::Mysql9);
    test.server.sql(BANK);
    test.backup("--method logical").done();
    (0..20).for_each(|_| test.move_money());
    test.backup("--kind log").done();
    let program = test.server.program("mysqld").get_program().to_str().unwrap().to_owned();
    let line = format!("restore --repo night --into dir:out --server-program {program}");
    // While the directory is made, and while a server runs on it.
    for inside in ["data/ibdata1", "data/bank", "data/fullbore-relay.000001"] {
        let running = program::start(test.world.as_nobody(&line));
        wait_until("the restore is under way", || {
            test.leftovers("out").iter().any(|name| test.world.at(name).join(inside).exists())
        });
        running.signal("KILL");
        running.wait();
        assert!(!test.world.at("out").exists() && !test.leftovers("out").is_empty(), "{inside}");
    }
    test.restore("", "out").done();
    assert_eq!(test.start_new("out").sql(TOTAL), "4\t4000\n");
}

#[test]
fn what_the_set_may_hold_already_is_applied_through_a_connection() {
    let test = Logged::new(Kind::Mariadb11);
    test.server.sql(BANK);
    let mut lock = Held::by(&test.server, "LOCK TABLES bank.account WRITE, shop.t WRITE");
    let line = format!("backup {} --password-file password --repo night --method logical", test.url);
    let running = program::start(test.world.as_nobody(&line));
    wait_for_statement(&test.server, "SELECT%`account`");
    // The set has this procedure, and so has the log behind it.
    test.server.sql("CREATE PROCEDURE bank.seen() SELECT 1");
    lock.run("UNLOCK TABLES");
    running.wait().done();
    test.move_money();
    test.backup("--kind log").done();
    test.restore("", "made").done();
    let restored = test.start_new("made");
    assert_eq!(content(&restored), content(&test.server));
    assert_eq!(restored.sql("CALL bank.seen()"), "1\n");
    drop(restored);
}

/// Rows of such a table may be of any moment until the set was complete.
fn tables_without_transactions(kind: Kind) {
    let test = Logged::new(kind);
    test.server.sql(BANK);
    test.server.sql("CREATE TABLE bank.plain (id INT) ENGINE=MyISAM; INSERT INTO bank.plain VALUES (1)");
    test.backup("--method logical").with_code(4);
    test.server.sql("INSERT INTO bank.plain VALUES (2); CREATE USER later@localhost");
    test.move_money();
    test.backup("--kind log").done();
    test.restore("", "plain").done();
    let restored = test.start_new("plain");
    assert_eq!(content(&restored), content(&test.server));
    let [here, there] = match kind {
        Kind::Mysql9 => ["@@GLOBAL.gtid_executed"; 2],
        _ => ["@@gtid_slave_pos", "@@gtid_binlog_pos"],
    };
    assert_eq!(restored.sql(&format!("SELECT {here}")), test.server.sql(&format!("SELECT {there}")));
    only_root_over_the_socket(&restored);
}

#[test]
fn the_log_of_a_mysql_with_tables_without_transactions_is_applied_through_a_connection() {
    tables_without_transactions(Kind::Mysql9);
}

#[test]
fn the_log_of_a_mariadb_with_tables_without_transactions_is_applied_through_a_connection() {
    tables_without_transactions(Kind::Mariadb11);
}

#[test]
fn a_time_before_the_first_physical_full_comes_out_of_the_logical_one() {
    let test = Logged::new(Kind::Mysql9);
    test.backup("--method logical").done();
    test.insert("between");
    test.backup("--kind log").done();
    let (then, rows) = (pass_a_second(), test.rows());
    test.insert("after");
    test.backup("").done();
    test.backup("--kind log").done();
    test.restore(&format!("--stop-at {then}"), "old").done();
    assert_eq!(test.start_new("old").sql("SELECT * FROM shop.t ORDER BY id"), rows);
}

#[test]
fn a_transaction_that_is_dated_ahead_does_not_end_a_restore_before_earlier_ones() {
    let test = Logged::new(Kind::Mariadb11);
    test.backup("--method logical").done();
    let dated_ahead = |seconds: u32, id: u32, set_ends: bool| {
        test.server
            .sql(&format!("SET timestamp = UNIX_TIMESTAMP() + {seconds}; INSERT INTO shop.t VALUES ({id}, 'ahead')"));
        if set_ends {
            test.backup("--kind log").done();
        }
        pass_a_second();
        test.insert("behind it");
        let then = (pass_a_second(), test.rows());
        test.insert("after the time");
        test.backup("--kind log").done();
        then
    };
    let (then, rows) = dated_ahead(1800, 7001, false);
    test.restore(&format!("--stop-at {then}"), "then").done();
    assert_eq!(test.start_new("then").sql("SELECT * FROM shop.t ORDER BY id"), rows);
    // So near, it may be the clock of another server. The earlier ones are in the next log set.
    let (then, _) = dated_ahead(40, 9002, true);
    let ended = test.restore(&format!("--stop-at {then}"), "no").refused(1, "--stop-at", "nobody knows");
    ended.says(&["--stop-at-gtid"]);
}

#[test]
fn a_test_restore_of_a_logical_full_applies_its_log_and_proves_nothing_if_a_server_cannot() {
    let test = Logged::new(Kind::Mariadb11);
    test.insert("in the set");
    test.backup("--method logical").done();
    test.insert("in the log");
    test.backup("--kind log").done();
    let program = test.server.program("mariadbd").get_program().to_str().unwrap().to_owned();
    let line = format!("restore-test --repo night --scratch . --server-program {program}");
    test.run(&line).done().says(&[
        "1 transaction from the log",
        "the chain of 2 sets was restored",
        "recorded as proven",
    ]);
    // A change that no log has.
    test.server.sql("SET sql_log_bin = 0, binlog_format = 'ROW'; INSERT INTO shop.t (v) VALUES ('hidden'); SET sql_log_bin = 1; DELETE FROM shop.t WHERE v = 'hidden'");
    test.backup("--kind log").done();
    test.run(&line).with_code(1);
    let listed = test.run("list --repo night --json").done().json();
    let proven: Vec<bool> = listed.as_array().unwrap().iter().map(|set| set["proven_at"].is_string()).collect();
    assert_eq!(proven, [true, true, false], "{listed}");
}
