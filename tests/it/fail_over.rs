//! Log backups across a fail-over: the primary dies, a replica is promoted, and its log continues the chain.

use std::fs;
use std::os::unix::fs::symlink;

use fullbore_test_servers::{Kind, Options, Server};

use crate::program::{self, Ended};
use crate::server_logs::{Logged, pass_a_second};

/// The money in all accounts together.
const TOTAL: &str = "10000\n";
const ACCOUNTS: &str = "SELECT * FROM shop.account ORDER BY id";

/// The accounts at a moment.
struct Moment {
    time: String,
    accounts: String,
    /// The last transaction before it.
    gtid: String,
}

/// The GTID of the last transaction that a server has written itself.
fn last_gtid(server: &Server) -> String {
    if server.kind() != Kind::Mysql9 {
        return server.sql("SELECT @@gtid_binlog_pos").trim().to_owned();
    }
    let own = server.sql("SELECT @@server_uuid").trim().to_owned();
    let all = server.sql("SELECT @@GLOBAL.gtid_executed").replace("\\n", "");
    let of_own = all.split(',').find(|part| part.contains(&own)).unwrap();
    format!("{own}:{}", of_own.trim().rsplit(['-', ':']).next().unwrap())
}

/// A primary with accounts, and a replica of it. The chain has the name of the primary.
struct Pair {
    test: Logged,
    replica: Server,
    round: std::cell::Cell<u32>,
}

impl Pair {
    fn new(kind: Kind) -> Self {
        let test = Logged::new(kind);
        test.server.sql(
            "CREATE TABLE shop.account (id INT PRIMARY KEY, money INT NOT NULL); INSERT INTO shop.account \
             WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 100) SELECT x, 100 FROM n; \
             CREATE TABLE shop.big (b LONGBLOB); INSERT INTO shop.big VALUES (REPEAT('x', 3000000)); \
             CREATE USER copier@'%' IDENTIFIED BY 's3cret'; GRANT REPLICATION SLAVE ON *.* TO copier@'%'",
        );
        let replica = replica_of(&test.server, Options::new().binlog().option("server-id=2"));
        fs::copy(replica.password_file().unwrap(), test.world.at("password2")).unwrap();
        let pair = Self { test, replica, round: Default::default() };
        pair.catch_up();
        pair
    }

    /// Transactions that move money between accounts.
    fn move_money(&self, server: &Server) {
        let round = self.round.replace(self.round.get() + 1);
        let one = |n: u32| {
            let (from, to, much) = (1 + (round * 31 + n * 7) % 100, 1 + (round * 17 + n * 13 + 50) % 100, 1 + n % 9);
            format!(
                "BEGIN; UPDATE shop.account SET money = money - {much} WHERE id = {from}; \
                 UPDATE shop.account SET money = money + {much} WHERE id = {to}; COMMIT; "
            )
        };
        server.sql(&(0..20).map(one).collect::<String>());
    }

    /// Moves money, and notes the accounts of a moment.
    fn moment(&self, server: &Server) -> Moment {
        self.move_money(server);
        let moment = Moment { time: pass_a_second(), accounts: server.sql(ACCOUNTS), gtid: last_gtid(server) };
        self.move_money(server);
        moment
    }

    fn catch_up(&self) {
        let (ask, wait) = match self.test.kind {
            Kind::Mysql9 => ("SELECT @@GLOBAL.gtid_executed", "WAIT_FOR_EXECUTED_GTID_SET"),
            _ => ("SELECT @@gtid_binlog_pos", "MASTER_GTID_WAIT"),
        };
        let gtids = self.test.server.sql(ask).replace("\\n", "").trim().to_owned();
        let waited = self.replica.sql(&format!("SELECT {wait}('{gtids}', 60)"));
        assert_eq!(waited.trim(), "0", "{}", self.replica.error_log());
    }

    /// The primary dies, and the replica takes its place.
    fn fail_over(&mut self) {
        self.test.server.kill();
        self.replica.sql(match self.test.kind {
            Kind::Mysql9 => "STOP REPLICA; RESET REPLICA ALL",
            _ => "STOP SLAVE; RESET SLAVE ALL",
        });
    }

    fn name(&self) -> String {
        self.test.server.socket().display().to_string()
    }

    /// A backup of the promoted server.
    fn backup(&self, options: &str) -> Ended {
        let url = self.test.url.replace(&self.name(), &self.replica.socket().display().to_string());
        self.test.run(&format!("backup {url} --password-file password2 --repo night {options}"))
    }

    fn log(&self) -> Ended {
        self.backup(&format!("--kind log --fail-over-from {}", self.name()))
    }

    /// Restores, and compares the accounts.
    fn restored(&self, stop: &str, accounts: &str) {
        let directory = format!("restored-{}", self.round.replace(self.round.get() + 1));
        self.test.restore(stop, &directory).done();
        let server = self.test.start(&directory);
        assert_eq!(server.sql("SELECT SUM(money) FROM shop.account"), TOTAL);
        assert_eq!(server.sql(ACCOUNTS), accounts, "{stop}");
        drop(server);
        fs::remove_dir_all(self.test.world.at(&directory)).unwrap();
    }
}

fn replica_of(source: &Server, options: Options) -> Server {
    let kind = source.kind();
    let options = if kind == Kind::Mysql9 { options } else { options.option("log_slave_updates=ON") };
    let replica = Server::start(kind, &options);
    if kind == Kind::Mysql9 {
        replica.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'; RESET BINARY LOGS AND GTIDS");
        replica.sql(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {}, SOURCE_USER = 'copier', \
             SOURCE_PASSWORD = 's3cret', SOURCE_SSL = 1, SOURCE_AUTO_POSITION = 1; START REPLICA",
            source.port()
        ));
    } else {
        replica.sql(&format!(
            "RESET MASTER; SET GLOBAL gtid_slave_pos = ''; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, \
             MASTER_USER = 'copier', MASTER_PASSWORD = 's3cret', MASTER_USE_GTID = slave_pos; START SLAVE",
            source.port()
        ));
    }
    replica
}

/// Begins so many files of the log, with transactions in each.
fn begin_files(pair: &Pair, server: &Server, count: u32) {
    for _ in 0..count {
        server.sql("FLUSH BINARY LOGS");
        pair.move_money(server);
    }
}

fn money_moves_before_and_after_a_fail_over(kind: Kind) {
    let mut pair = Pair::new(kind);
    pair.test.backup("").done();
    begin_files(&pair, &pair.test.server, 3);
    let before = pair.moment(&pair.test.server);
    pair.test.backup("--kind log").done();
    // These transactions are in no set when the primary dies.
    let between = pair.moment(&pair.test.server);
    pair.catch_up();
    pair.fail_over();
    let after = pair.moment(&pair.replica);
    let unnamed = pair.backup("--kind log").with_code(3);
    assert!(unnamed.err.contains("--fail-over-from NAME"), "{unnamed}");
    let joined = pair.log().done();
    assert!(!joined.err.contains("does not continue"), "{joined}");
    let nothing = pair.log().done();
    assert!(nothing.err.contains("nothing was committed"), "{nothing}");
    // Files of the same names as those of the first server follow, and sets of the second server alone.
    begin_files(&pair, &pair.replica, 4);
    pair.log().done();
    let later = pair.moment(&pair.replica);
    pair.log().done();
    for moment in [&between, &later] {
        pair.restored(&format!("--stop-at {}", moment.time), &moment.accounts);
    }
    pair.restored(&format!("--stop-at-gtid {}", after.gtid), &after.accounts);
    pair.restored("", &pair.replica.sql(ACCOUNTS));
    pair.test.run("verify --repo night").done();
    let list = pair.test.run("list --repo night").done();
    assert_eq!(list.text().matches(" log ").count(), 4, "{list}");
    let place = pair.test.restore("--stop-at binlog.000004:200", "no").with_code(1);
    assert!(place.err.contains("the logs of two servers have this place"), "{place}");
    a_full_of_the_second_server(&pair);
    a_missing_set(&pair, &before, &later);
}

/// The chain goes on over a full of the promoted server.
fn a_full_of_the_second_server(pair: &Pair) {
    let named = format!("--fail-over-from {}", pair.name());
    pair.backup(&named).done();
    let moment = pair.moment(&pair.replica);
    let ended = pair.log().done();
    assert!(!ended.err.contains("does not continue"), "{ended}");
    let plan = pair.test.restore(&format!("--stop-at {} --dry-run", moment.time), "plan").done();
    assert_eq!(plan.text().matches("log ").count(), 1, "{plan}");
    fs::copy(pair.test.world.at("password2"), pair.test.world.at("password")).unwrap();
    let directory = "of-the-second";
    pair.test.restore(&format!("--stop-at {}", moment.time), directory).done();
    let options = Options::new().binlog().datadir(&pair.test.world.at(directory));
    let server = Server::start(pair.test.kind, &options.password_file(&pair.test.world.at("password2")));
    assert_eq!(server.sql(ACCOUNTS), moment.accounts);
}

/// Without the set that goes from one server to the other, nothing behind it is restored.
fn a_missing_set(pair: &Pair, before: &Moment, later: &Moment) {
    let logs = || pair.test.world.names("a").into_iter().filter(|name| name.contains("-log-"));
    let mut sets: Vec<String> = logs().collect();
    sets.sort_by_key(|name| fs::metadata(pair.test.world.at("a").join(name)).unwrap().modified().unwrap());
    fs::remove_file(pair.test.world.at("a").join(&sets[1])).unwrap();
    let gap = pair.test.restore(&format!("--stop-at {}", later.time), "no").with_code(3);
    assert!(gap.err.contains("which is incomplete: family 1 of 1 is missing"), "{gap}");
    assert!(!pair.test.world.at("no").exists());
    pair.restored(&format!("--stop-at {}", before.time), &before.accounts);
}

#[test]
fn mysqls_chain_continues_with_the_log_of_a_promoted_replica() {
    money_moves_before_and_after_a_fail_over(Kind::Mysql9);
}

#[test]
fn mariadbs_chain_continues_with_the_log_of_a_promoted_replica() {
    money_moves_before_and_after_a_fail_over(Kind::Mariadb11);
}

/// The replica is asked while the primary lives: only GTIDs count.
fn what_differs_is_named(kind: Kind) {
    let pair = Pair::new(kind);
    let (source, replica, is_mysql) = (&pair.test.server, &pair.replica, kind == Kind::Mysql9);
    let refused = |why: &str| {
        let ended = pair.log().with_code(1);
        assert!(ended.err.contains(why) && ended.err.contains("new full of this server"), "`{why}`: {ended}");
        ended
    };
    pair.test.backup("").done();
    refused("is not a log set");
    pair.move_money(source);
    pair.test.backup("--kind log").done();
    pair.catch_up();
    // The replica lacks a transaction of the chain.
    replica.sql(if is_mysql { "STOP REPLICA" } else { "STOP SLAVE" });
    pair.move_money(source);
    pair.test.backup("--kind log").done();
    let lost = refused("the fail-over lost them");
    assert!(lost.err.contains(&last_number(source)), "{lost}");
    if is_mysql {
        a_hole_in_the_gtids_is_named(&pair);
    }
    replica.sql(if is_mysql { "START REPLICA" } else { "START SLAVE" });
    // It does not have the files behind the end of the chain.
    pair.move_money(source);
    pair.catch_up();
    replica.sql("FLUSH BINARY LOGS");
    let files = replica.sql("SHOW BINARY LOGS");
    let newest = files.lines().last().unwrap().split('\t').next().unwrap();
    fullbore_test_servers::wait_until("older files are purged", || {
        replica.sql(&format!("PURGE BINARY LOGS TO '{newest}'; SHOW BINARY LOGS")).starts_with(newest)
    });
    let purged = refused("its oldest file");
    assert!(purged.err.contains(newest) && purged.err.contains(&last_number(source)), "{purged}");
    pair.test.backup("--kind log").done();
    // A session has written on the replica.
    replica.sql(if is_mysql { "DO 1" } else { "SET GLOBAL gtid_strict_mode = OFF" });
    replica.sql("CREATE DATABASE errant");
    let errant = last_gtid(replica);
    pair.move_money(source);
    pair.catch_up();
    pair.test.backup("--kind log").done();
    let own = refused(if is_mysql { "which no set has" } else { "are out of order" });
    assert!(own.err.contains(&errant), "{errant}: {own}");
    // A full begins anew, under the same name.
    replica.sql(if is_mysql { "STOP REPLICA; RESET REPLICA ALL" } else { "STOP SLAVE; RESET SLAVE ALL" });
    pair.backup(&format!("--fail-over-from {}", pair.name())).done();
    pair.move_money(replica);
    let anew = pair.log().with_code(4);
    assert!(anew.err.contains("no restore reaches a time between the two"), "{anew}");
}

/// A server with the GTIDs of the chain but one.
fn a_hole_in_the_gtids_is_named(pair: &Pair) {
    let other = Server::start(pair.test.kind, &Options::new().binlog().option("server-id=3"));
    let uuid = pair.test.server.sql("SELECT @@server_uuid").trim().to_owned();
    other.sql(&format!("RESET BINARY LOGS AND GTIDS; SET GLOBAL gtid_purged = '{uuid}:1-10:12-99999'"));
    fs::copy(other.password_file().unwrap(), pair.test.world.at("password3")).unwrap();
    let url = pair.test.url.replace(&pair.name(), &other.socket().display().to_string());
    let line =
        format!("backup {url} --password-file password3 --repo night --kind log --fail-over-from {}", pair.name());
    let hole = pair.test.run(&line).with_code(1);
    assert!(hole.err.contains(&format!("does not have the transactions {uuid}:11,")), "{hole}");
}

/// The number of the last transaction.
fn last_number(server: &Server) -> String {
    last_gtid(server).rsplit(['-', ':']).next().unwrap().to_owned()
}

#[test]
fn a_mysql_server_that_differs_from_the_chain_does_not_continue_it() {
    what_differs_is_named(Kind::Mysql9);
}

#[test]
fn a_mariadb_server_that_differs_from_the_chain_does_not_continue_it() {
    what_differs_is_named(Kind::Mariadb11);
}

/// A fail-over, the first server becomes a replica of the second one, and takes its place again. Into a running server.
fn there_and_back(kind: Kind) {
    let mut pair = Pair::new(kind);
    pair.test.backup("--method logical").done();
    pair.move_money(&pair.test.server);
    pair.test.backup("--kind log").done();
    // A server that gets the sets as they come. MariaDB logs statements here, which a migration refuses.
    let refreshed = (kind == Kind::Mysql9).then(|| crate::server_logs_into::Target::new(&pair.test));
    let refresh = |pair: &Pair, source: &Server| {
        let Some(target) = &refreshed else { return };
        pair.test.run(&format!("migrate --repo night --into {} --into-password-file target", target.url)).done();
        assert_eq!(target.server.sql(ACCOUNTS), source.sql(ACCOUNTS));
    };
    refresh(&pair, &pair.test.server);
    pair.catch_up();
    pair.fail_over();
    pair.replica.sql("GRANT ALL ON *.* TO copier@'%'");
    pair.move_money(&pair.replica);
    let there = pair.moment(&pair.replica);
    pair.log().done();
    refresh(&pair, &pair.replica);
    let updates = if kind == Kind::Mysql9 { "log_replica_updates=ON" } else { "log_slave_updates=ON" };
    pair.test.server.start_again(&Options::new().binlog().option(updates));
    let (source, port) = (&pair.test.server, pair.replica.port());
    let (ask, wait) = match kind {
        Kind::Mysql9 => {
            source.sql(&format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'copier', \
                 SOURCE_PASSWORD = 's3cret', SOURCE_SSL = 1, SOURCE_AUTO_POSITION = 1; START REPLICA"
            ));
            ("SELECT @@GLOBAL.gtid_executed", "WAIT_FOR_EXECUTED_GTID_SET")
        }
        _ => {
            source.sql(&format!(
                "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, \
                 MASTER_USER = 'copier', MASTER_PASSWORD = 's3cret', MASTER_USE_GTID = slave_pos, \
                 MASTER_DEMOTE_TO_SLAVE = 1; START SLAVE"
            ));
            ("SELECT @@gtid_binlog_pos", "MASTER_GTID_WAIT")
        }
    };
    let gtids = pair.replica.sql(ask).replace("\\n", "").trim().to_owned();
    assert_eq!(source.sql(&format!("SELECT {wait}('{gtids}', 60)")).trim(), "0", "{}", source.error_log());
    pair.replica.kill();
    source.sql(if kind == Kind::Mysql9 { "STOP REPLICA; RESET REPLICA ALL" } else { "STOP SLAVE; RESET SLAVE ALL" });
    let back = pair.moment(source);
    let foreign = pair.test.backup("--kind log").with_code(1);
    assert!(
        foreign.err.contains("is of the log of another server") && foreign.err.contains("--fail-over-from"),
        "{foreign}"
    );
    pair.test.backup(&format!("--kind log --fail-over-from {}", pair.name())).done();
    refresh(&pair, source);
    let target = crate::server_logs_into::Target::new(&pair.test);
    for (stop, accounts) in
        [(format!("--stop-at {}", there.time), there.accounts), (format!("--stop-at {}", back.time), back.accounts)]
    {
        target.restore(&pair.test, &stop).done();
        assert_eq!(target.server.sql(ACCOUNTS), accounts, "{stop}");
    }
}

#[test]
fn a_mysql_chain_continues_there_and_back_and_into_a_running_server() {
    there_and_back(Kind::Mysql9);
}

#[test]
fn a_mariadb_chain_continues_there_and_back_and_into_a_running_server() {
    there_and_back(Kind::Mariadb10);
}

#[test]
fn a_follower_continues_with_the_promoted_replica_behind_the_same_address() {
    let mut pair = Pair::new(Kind::Mysql9);
    pair.test.server.sql("CREATE USER keeper@'%' IDENTIFIED BY 'p'; GRANT ALL ON *.* TO keeper@'%'");
    pair.catch_up();
    pair.test.world.write("p", b"p");
    let address = pair.test.world.at("current.sock");
    symlink(pair.test.server.socket(), &address).unwrap();
    let name = address.display();
    let line = format!(
        "log follow mysql://keeper@/?socket={name} --password-file p --repo night --interval 100ms -v --fail-over-from {name}"
    );
    let follower = program::start(pair.test.world.as_nobody(&line));
    follower.says("its log is followed from here");
    pair.move_money(&pair.test.server);
    follower.says("transaction");
    pair.move_money(&pair.test.server);
    pair.catch_up();
    pair.fail_over();
    fs::remove_file(&address).unwrap();
    symlink(pair.replica.socket(), &address).unwrap();
    let after = pair.moment(&pair.replica);
    begin_files(&pair, &pair.replica, 1);
    follower.signal("TERM");
    follower.wait().done();
    pair.restored(&format!("--stop-at {}", after.time), &after.accounts);
    pair.restored("", &pair.replica.sql(ACCOUNTS));
}

#[test]
fn a_full_of_the_first_server_behind_its_last_log_set_needs_a_full_of_the_second_one() {
    let mut pair = Pair::new(Kind::Mysql9);
    pair.test.backup("").done();
    pair.move_money(&pair.test.server);
    pair.test.backup("--kind log").done();
    pair.move_money(&pair.test.server);
    pair.test.backup("").done();
    pair.catch_up();
    pair.fail_over();
    let between = pair.moment(&pair.replica);
    let refused = pair.log().with_code(1);
    assert!(refused.err.contains("a full behind its last log set") && refused.err.contains("new full"), "{refused}");
    pair.backup(&format!("--fail-over-from {}", pair.name())).done();
    pair.move_money(&pair.replica);
    pair.log().done();
    pair.restored(&format!("--stop-at-gtid {}", between.gtid), &between.accounts);
    pair.test.restore(&format!("--stop-at {}", between.time), "no").with_code(3);
    pair.test.run("verify --repo night").done();
    pair.test.run("prune --repo night --keep-last 1 --grace 0s --confirm").done();
    pair.test.restore("", "copy").done();
}
