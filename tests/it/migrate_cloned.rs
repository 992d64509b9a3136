//! Migrations with the full as files: CLONE INSTANCE of the target, its restart, and the log behind the clone.

use fullbore_test_servers::{Kind, Options, Server, wait_until};

use crate::held::Held;
use crate::mysql_logical::url;
use crate::program::{Ended, Running};
use crate::world::World;

const ROWS: &str = "binlog_format=ROW";
const PLUGIN: &str = "INSTALL PLUGIN clone SONAME 'mysql_clone.so'";
/// Amounts whose sum never changes, an event that says where it runs, and one object of each kind.
const BANK: &str = "CREATE DATABASE bank; USE bank; CREATE TABLE account (id INT PRIMARY KEY, amount BIGINT NOT NULL); \
    CREATE TABLE moved (id BIGINT PRIMARY KEY AUTO_INCREMENT, source INT, target INT, amount INT); \
    CREATE TABLE tick (id INT PRIMARY KEY AUTO_INCREMENT, server CHAR(36)); \
    INSERT INTO account WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT i, 1000 FROM n; \
    CREATE VIEW total AS SELECT SUM(amount) FROM account; \
    CREATE TRIGGER noted BEFORE INSERT ON moved FOR EACH ROW SET NEW.amount = NEW.amount + 0; \
    CREATE USER teller@'%' IDENTIFIED BY 'secret'; GRANT SELECT ON bank.* TO teller@'%'; \
    CREATE EVENT ticking ON SCHEDULE EVERY 1 SECOND DO INSERT INTO bank.tick (server) VALUES (@@server_uuid);";
/// Moves money until the server does not take it any more.
const MOVING: &str = "CREATE PROCEDURE bank.moving () BEGIN DECLARE a, b, n INT; LOOP \
        SET a = 1 + FLOOR(RAND() * 500), b = 1 + FLOOR(RAND() * 500), n = FLOOR(RAND() * 100); \
        START TRANSACTION; UPDATE bank.account SET amount = amount - n WHERE id = LEAST(a, b); \
        UPDATE bank.account SET amount = amount + n WHERE id = GREATEST(a, b); \
        INSERT INTO bank.moved (source, target, amount) VALUES (a, b, n); COMMIT; END LOOP; END";

struct Pair {
    world: World,
    source: Server,
    target: Server,
    into: Options,
}

impl Pair {
    /// The target has the password of the source: its tests still reach it when it has the accounts of the source.
    fn new(into: Options) -> Self {
        let world = World::new();
        let source = Server::start(Kind::Mysql9, &Options::new().binlog().option(ROWS));
        let into = into.binlog().option(ROWS).password_file(source.password_file().unwrap());
        let target = Server::start(Kind::Mysql9, &into);
        for name in ["source", "target"] {
            world.write_secret(name, source.password().as_bytes());
        }
        for server in [&source, &target] {
            server.sql(PLUGIN);
        }
        Self { world, source, target, into }
    }

    fn line(&self, options: &str) -> String {
        crate::migrate::line([&self.source, &self.target], &format!("--method physical {options}"))
    }

    fn run(&self, options: &str) -> Ended {
        self.world.run(&self.line(options))
    }

    fn start(&self, options: &str) -> Running {
        self.world.start(&self.line(options))
    }

    /// A session that moves money until the source is read-only. A statement of the client ends with its first `;`.
    fn moving(&self) -> Held {
        let mut session = Held::by(&self.source, "SELECT 1");
        session.send("CALL bank.moving()");
        session
    }
}

fn make_bank(server: &Server) {
    server.sql(BANK);
    let mut client = server.client();
    assert!(client.args(["--execute", &format!("DELIMITER //\n{MOVING}//")]).status().unwrap().success());
}

#[test]
fn a_server_moves_as_files_while_money_moves_and_its_events_run_on_one_server_only() {
    let pair = Pair::new(Options::new().restarts().option("event_scheduler=ON"));
    make_bank(&pair.source);
    pair.target.sql("CREATE USER mover@'%' IDENTIFIED BY 'm0ver'; GRANT ALL ON *.* TO mover@'%'");
    pair.world.write_secret("mover", b"m0ver");
    let planned = pair.run("--plan").done();
    assert!(planned.text().contains("as files") && !pair.target.sql("SHOW DATABASES").contains("bank"), "{planned}");
    assert!(planned.err.contains("replaces everything on"), "{planned}");

    let planned = crate::migrate::migrate(&pair.world, [&pair.source, &pair.target], "--plan").done();
    assert!(planned.err.contains("--method physical is possible"), "{planned}");

    let sessions = [pair.moving(), pair.moving()];
    // An account that the source does not have: the login of the source is the next one.
    let line = format!(
        "migrate {} --into mysql://mover@127.0.0.1:{} --password-file source --into-password-file mover --method physical \
         --for 2s --report json:full.json",
        url(&pair.source),
        pair.target.port()
    );
    let full = pair.world.run(&line).done();
    assert!(full.text().contains("with their files"), "{full}");
    full.says(&["starts again", "needs the user and the password of the source"]);
    let report: serde_json::Value = serde_json::from_slice(&pair.world.read("full.json")).unwrap();
    assert!(report["migration"]["method"] == "physical" && report["migration"]["transactions"] != 0, "{report}");
    assert_eq!(pair.target.sql("SELECT SUM(amount) FROM bank.account"), "500000\n");

    pair.source.sql(
        "USE bank; ALTER TABLE tick ADD COLUMN more INT DEFAULT 7; CREATE TABLE later (id INT PRIMARY KEY); \
         INSERT INTO later VALUES (1)",
    );
    let here = "SELECT COUNT(*) > 0 FROM bank.tick WHERE server = @@server_uuid";
    wait_until("the event runs on the source", || pair.source.sql(here) == "1\n");
    assert_eq!(pair.target.sql(here), "0\n", "no event has run on the target");
    assert_eq!(pair.target.sql("SELECT COUNT(*) FROM information_schema.events"), "0\n");
    assert_eq!(
        pair.target.sql("SELECT @@event_scheduler, (SELECT COUNT(*) FROM performance_schema.persisted_variables)"),
        "ON\t0\n"
    );

    let done = pair.run("--resume --cut-over").done();
    assert!(done.text().contains("downtime") && done.text().contains("and equal"), "{done}");
    drop(sessions);
    assert_eq!(pair.target.sql("SELECT * FROM bank.total"), "500000\n");
    let rows =
        |server: &Server| server.sql("SELECT * FROM bank.account; SELECT * FROM bank.moved; SELECT * FROM bank.later");
    assert!(rows(&pair.target) == rows(&pair.source), "each row is that of the source");
    wait_until("the event runs on the target", || pair.target.sql(here) == "1\n");
    assert!(pair.target.sql("SHOW GRANTS FOR teller@'%'").contains("`bank`.*"));
    assert!(!pair.target.sql("SHOW DATABASES").contains("fullbore"));
}

/// The end of a run whose target does not start again by itself.
fn started_by_hand(target: &mut Server, into: &Options, running: Running, option: &str) -> Ended {
    running.says("start it now");
    target.stop();
    target.start_again(&into.clone().option(option));
    running.wait()
}

#[test]
fn what_stops_a_clone_is_named_before_and_a_target_without_a_manager_is_waited_for() {
    let mut pair = Pair::new(Options::new());
    pair.source.sql("CREATE DATABASE shop; CREATE TABLE shop.t (a INT PRIMARY KEY); INSERT INTO shop.t VALUES (1)");
    let into = url(&pair.target);
    let refused = |source: &str, into: &str, options: &str, thing: &str, why: &str| {
        let code = if thing == "--method physical" { 2 } else { 1 };
        let line = format!(
            "migrate {source} --into {into} --password-file source --into-password-file target --method physical {options}"
        );
        pair.world.run(&line).refused(code, thing, why)
    };
    let from = url(&pair.source);
    let usage = |source: &str, into: &str, options: &str, why: &str| {
        refused(source, into, options, "--method physical", why);
    };
    usage("mysql://root@/?socket=/tmp/a.sock", &into, "", "a socket of this machine");
    usage("mariadb://root@127.0.0.1:1", &into, "", "only a MySQL server");
    usage(&from, "mariadb://root@127.0.0.1:1", "", "only a MySQL server");
    usage(&format!("{from}/shop"), &into, "", "one database is named");
    usage(&from, &into, "--database shop", "one database is named");
    usage(&from, "mysql://root@db2", "", "its own machine there");
    usage("mysql://root@[::1]:1", &into, "", "no IPv6 address");
    usage(&format!("{from}/?ssl-mode=verify-identity&ssl-ca=/tmp/a"), &into, "", "does not compare the certificate");
    pair.world.run(&format!("migrate --repo a/ --into {into} --method physical")).with_code(2);
    rusqlite::Connection::open(pair.world.at("a.db")).unwrap().execute_batch("CREATE TABLE t (a INT)").unwrap();
    let sqlite = format!("migrate sqlite:a.db --into {into}/a --into-password-file target --method physical");
    pair.world.run(&sqlite).refused(2, "--method physical", "only a MySQL server");

    let here = |server: &Server| format!("127.0.0.1:{}", server.port());
    for server in [&pair.source, &pair.target] {
        server.sql("UNINSTALL PLUGIN clone");
        refused(&from, &into, "", &here(server), "the plugin `clone` is not loaded");
        server.sql(PLUGIN);
    }
    for (server, privilege) in
        [(&pair.source, "BACKUP_ADMIN"), (&pair.target, "CLONE_ADMIN"), (&pair.target, "SYSTEM_VARIABLES_ADMIN, SUPER")]
    {
        server.sql(&format!("REVOKE {privilege} ON *.* FROM root@'127.0.0.1'"));
        refused(&from, &into, "--no-follow", &here(server), privilege.split(',').next().unwrap());
        server.sql(&format!("GRANT {privilege} ON *.* TO root@'127.0.0.1'"));
    }
    for (server, why) in [(&pair.source, "and CLONE needs 2 MiB"), (&pair.target, "and CLONE needs 2 MiB")] {
        server.sql("SET GLOBAL max_allowed_packet = 1048576");
        refused(&from, &into, "", &here(server), why);
        server.sql("SET GLOBAL max_allowed_packet = 67108864");
    }
    let verified = format!("{from}/?ssl-mode=verify-ca&ssl-ca={}", pair.source.ca().unwrap().display());
    refused(&verified, &into, "", &here(&pair.target), "no authority to check it with");
    pair.source.sql("CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'db0', SOURCE_PORT = 1");
    refused(&from, &into, "", &here(&pair.source), "it is a replica of db0:1");
    pair.source.sql("RESET REPLICA ALL; SET GLOBAL gtid_mode = ON_PERMISSIVE");
    refused(&from, &into, "", &here(&pair.source), "gtid_mode is not ON");
    pair.source.sql("SET GLOBAL gtid_mode = ON; CREATE EVENT sys.late ON SCHEDULE EVERY 1 DAY DO SELECT 1");
    refused(&from, &into, "", &here(&pair.source), "the event sys.late of the server's own database");
    pair.source.sql("DROP EVENT sys.late; SET GLOBAL binlog_order_commits = OFF");
    refused(&from, &into, "", &here(&pair.source), "no exact place in its log");
    pair.source.sql("SET GLOBAL binlog_order_commits = ON");
    pair.target.sql("CREATE DATABASE mine");
    refused(&from, &into, "", &here(&pair.target), "it holds mine");
    pair.target.sql("DROP DATABASE mine");
    pair.source.sql("CREATE TABLE shop.flat (a INT) ENGINE = MyISAM; INSERT INTO shop.flat VALUES (1)");
    refused(&from, &into, "", &here(&pair.source), "shop.flat (MyISAM)");

    // Nobody starts the target again, except this test. It does not read what is persisted.
    let (line, options) = (pair.line("--no-follow"), pair.into.clone().option(&format!("port={}", pair.target.port())));
    let running = pair.world.start(&line);
    let ended = started_by_hand(&mut pair.target, &options, running, "event_scheduler=ON");
    let ended = ended.refused(1, "mysql://127.0.0.1:", "with event_scheduler = ON");
    ended.says(&["holds a copy of the source", "begin again with --replace"]);
    let running = pair.world.start(&format!("{line} --replace"));
    let ended = started_by_hand(&mut pair.target, &options, running, "event_scheduler=OFF").with_code(4);
    ended.says(&["empty in the target, because CLONE copies InnoDB only: shop.flat (MyISAM)", "works there, too"]);
    assert_eq!(pair.target.sql("SELECT a FROM shop.t; SELECT COUNT(*) FROM shop.flat"), "1\n0\n");
    refused(&from, &into, "--resume", "mysql://127.0.0.1:", "somebody has written to it since");
    assert!(!pair.target.sql("SHOW DATABASES").contains("fullbore"));
}

#[test]
fn a_cancelled_clone_begins_again_and_a_killed_run_is_continued_when_its_clone_is_complete() {
    let pair = Pair::new(Options::new().restarts());
    make_bank(&pair.source);
    pair.target.sql("CREATE DATABASE mine");
    let is_copying = || {
        pair.target
            .try_sql("SELECT state FROM performance_schema.clone_progress WHERE stage = 'FILE COPY'")
            .is_ok_and(|state| state == "In Progress\n")
    };
    let databases = || pair.target.try_sql("SHOW DATABASES").unwrap_or_default();

    pair.target.sql("SET GLOBAL clone_max_data_bandwidth = 1, GLOBAL clone_autotune_concurrency = OFF");
    let running = pair.start("--replace");
    wait_until("the files are copied", is_copying);
    running.signal("TERM");
    let ended = running.wait().with_code(143);
    ended.says(&["has dropped databases of its own", "its accounts are as before"]);
    assert!(!databases().contains("mine"));
    assert_eq!(pair.target.sql("SELECT @@event_scheduler, @@clone_valid_donor_list"), "ON\tNULL\n");

    let running = pair.start("");
    wait_until("the files are copied", is_copying);
    running.signal("KILL");
    running.wait();
    pair.target.sql("SET GLOBAL clone_max_data_bandwidth = 0");
    wait_until("the target has started on the files", || databases().contains("bank"));
    // No event of the source has run there.
    assert_eq!(pair.target.sql("SELECT COUNT(*) FROM bank.tick WHERE server = @@server_uuid"), "0\n");
    pair.run("").refused(1, "", "it holds bank").says(&["--replace"]);
    let ended = pair.run("--resume --cut-over").done();
    assert!(ended.text().contains("and equal"), "{ended}");
    ended.says(&["its clone is complete", "was persisted as OFF before this run"]);
}
