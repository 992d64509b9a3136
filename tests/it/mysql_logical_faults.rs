//! Logical backups and loads in a bad world: connections that end, accounts without privileges, targets that lack something.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use fullbore_test_servers::{Kind, Options, Server, wait_until};

use crate::mysql_logical::{backup, load, scheme, server, url};
use crate::small_disk::SmallDisk;
use crate::world::World;

/// A proxy before a server. It closes every connection when a client sends a text: so the server is gone at this moment.
struct Cutter {
    port: u16,
    text: Arc<Mutex<Option<&'static str>>>,
}

impl Cutter {
    fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, to) = (listener.local_addr().unwrap().port(), server.port());
        let text = Arc::new(Mutex::new(None));
        let wanted = text.clone();
        // It ends with the process of the test.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let (from_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let wanted = wanted.clone();
                thread::spawn(move || forward(from_server, to_client, &Mutex::new(None)));
                thread::spawn(move || forward(client, server, &wanted));
            }
        });
        Self { port, text }
    }

    fn cuts_at(&self, text: &'static str) {
        *self.text.lock().unwrap() = Some(text);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, wanted: &Mutex<Option<&'static str>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..count];
        let is_wanted = |text: &'static str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        if wanted.lock().unwrap().is_some_and(is_wanted) || to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

const SHOP: &str = "CREATE DATABASE shop; USE shop; CREATE TABLE item (id INT PRIMARY KEY, v VARCHAR(100), KEY (v)); \
    INSERT INTO item VALUES (1, 'a'), (2, 'b'); CREATE TABLE big (id INT PRIMARY KEY, v LONGBLOB, n INT, KEY (n)); \
    INSERT INTO big VALUES (1, REPEAT('x', 1500000), 1), (2, REPEAT('y', 1500000), 2); \
    CREATE TABLE nokey (v VARCHAR(400)); INSERT INTO nokey VALUES (REPEAT('n', 400)), (REPEAT('n', 400)); \
    CREATE TABLE old (id INT PRIMARY KEY, v VARCHAR(100)) ENGINE=MyISAM; INSERT INTO old VALUES (1, 'x'), (2, 'y'); \
    CREATE TABLE many_old (v VARCHAR(1000)) ENGINE=MyISAM; \
    INSERT INTO many_old SELECT REPEAT('m', 1000) FROM (SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8) a, \
        (SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8) b, \
        (SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8) c; \
    CREATE DATABASE other; CREATE TABLE other.o (id INT PRIMARY KEY); \
    CREATE VIEW shop.a_view AS SELECT id FROM shop.item; CREATE VIEW shop.b_view AS SELECT id FROM other.o; \
    CREATE TRIGGER shop.t BEFORE INSERT ON shop.item FOR EACH ROW SET NEW.v = 'changed'; \
    CREATE DEFINER = 'gone'@'nowhere' PROCEDURE shop.p () SELECT 1;";

/// Everything that a load takes, by its digests, and the triggers and views.
fn state(server: &Server) -> String {
    server.sql(
        "CHECKSUM TABLE shop.item, shop.big, shop.nokey, shop.old, shop.many_old; SELECT COUNT(*) FROM shop.many_old; \
         SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = 'shop'; \
         SELECT table_name FROM information_schema.views WHERE table_schema = 'shop' ORDER BY 1; \
         SELECT table_name, index_name FROM information_schema.statistics WHERE table_schema = 'shop' ORDER BY 1, 2",
    )
}

/// The server goes at each phase of a dump and of a load. A load continues, and takes nothing twice: not the rows of MyISAM
/// tables either, which are part of no transaction.
fn gone_at_each_phase(kind: Kind) {
    let world = World::new();
    let (source, target) = (server(kind, &world, "source"), server(kind, &world, "target"));
    source.sql(SHOP);
    if kind == Kind::Mysql9 {
        // Its tables only grow.
        source.sql("CREATE TABLE shop.kept (id INT) ENGINE = ARCHIVE; INSERT INTO shop.kept VALUES (1), (2), (3)");
    }
    let expected = state(&source);
    let (scheme, cutter) = (scheme(&source), Cutter::before(&source));
    let dump = |options: &str| {
        world.run(&format!(
            "backup {scheme}://root@127.0.0.1:{}?ssl-mode=disabled&get-server-public-key=true --method logical --password-file source {options}",
            cutter.port
        ))
    };
    for phase in ["CONSISTENT SNAPSHOT", "SHOW CREATE TABLE", "FROM `shop`.`big`"] {
        cutter.cuts_at(phase);
        dump("--mkdir --to cut/").refused(1, scheme, "the connection was cut");
        assert!(!world.at("cut").exists() || world.names("cut").is_empty(), "{phase}");
    }

    let unknown = "--exclude leaves nothing out with othr.*, shop.ordres";
    backup(&world, &source, "--to a/ --database shop --exclude shop.ordres --exclude othr.*")
        .with_code(4)
        .says(&["MyISAM", unknown]);
    let cutter = Cutter::before(&target);
    let through = |options: &str| {
        world.run(&format!(
            "restore --from a --into {scheme}://root@127.0.0.1:{}?ssl-mode=disabled&get-server-public-key=true --password-file target {options}",
            cutter.port
        ))
    };
    target.sql("SET GLOBAL local_infile = 1");
    for (phase, options) in [
        ("CREATE TABLE `shop`", ""),
        ("INTO TABLE `shop`.`big`", "--resume"),
        ("INTO TABLE `shop`.`old`", "--resume"),
        ("ALTER TABLE `shop`.`big`", "--resume"),
        ("CREATE DEFINER", "--resume"),
    ] {
        cutter.cuts_at(phase);
        let ended = through(options);
        assert!(ended.code == 1 && ended.err.contains("the connection was cut"), "{phase}: {ended}");
    }
    // The notes of this load are all that says that its tables are not complete: another set does not take them away.
    backup(&world, &source, "--to b/ --database other").done();
    load(&world, &target, "--from b").refused(1, scheme, "interrupted");
    let ended = load(&world, &target, "--from b --replace").refused(1, scheme, "its tables are not complete: shop");
    ended.says(&["continue that load with --resume"]);
    // The target has no database `other`.
    let ended = load(&world, &target, "--from a --resume").with_code(1);
    ended.says(&["view shop.b_view", "continue with --resume"]);
    let ended = load(&world, &target, "--from a --resume").with_code(1);
    ended.says(&["view shop.b_view"]);
    target.sql("CREATE DATABASE other; CREATE TABLE other.o (id INT PRIMARY KEY)");
    let ended = load(&world, &target, "--from a --resume --check full").with_code(4);
    ended.says(&["`gone`@`nowhere`"]);
    assert_eq!(state(&target), expected);
    assert!(kind != Kind::Mysql9 || target.sql("SELECT COUNT(*), SUM(id) FROM shop.kept") == "3\t6\n");

    // A name that is a view in the set and a table in the target, and the other way round.
    target.sql("DROP VIEW shop.b_view; CREATE TABLE shop.b_view (a INT); DROP TABLE shop.old; CREATE VIEW shop.old AS SELECT 1");
    load(&world, &target, "--from a --table shop.b_view").refused(1, scheme, "shop.b_view");
    load(&world, &target, "--from a --table shop.b_view --table shop.old --replace").done();
    assert_eq!(state(&target), expected);
}

#[test]
fn a_mysql_server_that_goes_at_any_phase_costs_no_row_and_doubles_none() {
    gone_at_each_phase(Kind::Mysql9);
}

#[test]
fn a_mariadb_server_that_goes_at_any_phase_costs_no_row_and_doubles_none() {
    gone_at_each_phase(Kind::Mariadb11);
}

/// The last transaction of a killed load can end late: at a server that waits for a replica or for its disk.
fn a_commit_that_ends_late(kind: Kind) {
    let world = World::new();
    let (source, target) = (server(kind, &world, "source"), server(kind, &world, "target"));
    source
        .sql("CREATE DATABASE shop; CREATE TABLE shop.nokey (v TEXT); INSERT INTO shop.nokey VALUES ('one'), ('two')");
    backup(&world, &source, "--to a/").done();
    let cutter = Cutter::before(&target);
    target.sql("SET GLOBAL local_infile = 1");
    cutter.cuts_at("INTO TABLE `shop`.`nokey`");
    let line = format!(
        "restore --from a --into {}://root@127.0.0.1:{}?ssl-mode=disabled&get-server-public-key=true --password-file target",
        scheme(&target),
        cutter.port
    );
    world.run(&line).with_code(1);
    std::thread::scope(|scope| {
        let holds = "SELECT GET_LOCK('go', 600), CONNECTION_ID(), SLEEP(600)";
        scope.spawn(|| target.try_sql(holds));
        let sessions = |what: &str| {
            target.sql(&format!(
                "SELECT id FROM information_schema.processlist WHERE info LIKE '{what}%' AND id <> CONNECTION_ID()"
            ))
        };
        let wait_for = |what: &str| {
            wait_until(what, || !sessions(what).is_empty());
        };
        wait_for("SELECT GET_LOCK(''go'', 600), CONN");
        // What the killed load has sent: its rows and its note are there, and its commit is under way.
        let late = "BEGIN; INSERT INTO fullbore_load.streams VALUES (0, NULL), (1, NULL), (2, NULL), (3, NULL); \
                    INSERT INTO shop.nokey VALUES ('one'), ('two'); DO GET_LOCK('go', 600); COMMIT";
        let killed = scope.spawn(|| target.sql(late));
        wait_for("DO GET_LOCK");
        let next = scope.spawn(|| load(&world, &target, "--from a --resume"));
        wait_for("INSERT INTO fullbore_load.streams");
        target.sql(&format!("KILL {}", sessions("SELECT GET_LOCK(''go'', 600), CONN").trim()));
        killed.join().unwrap();
        next.join().unwrap().with_code(1).says(&["another load", "continue with --resume"]);
    });
    load(&world, &target, "--from a --resume --check full").done();
    assert_eq!(target.sql("SELECT COUNT(*) FROM shop.nokey"), "2\n");
}

#[test]
fn a_commit_of_a_killed_load_that_mysql_ends_late_doubles_no_row() {
    a_commit_that_ends_late(Kind::Mysql9);
}

#[test]
fn a_commit_of_a_killed_load_that_mariadb_ends_late_doubles_no_row() {
    a_commit_that_ends_late(Kind::Mariadb11);
}

#[test]
fn what_an_account_or_a_target_lacks_is_named() {
    let world = World::new();
    let (source, target) = (server(Kind::Mysql9, &world, "source"), server(Kind::Mysql9, &world, "target"));
    source.sql(SHOP);
    backup(&world, &source, "--to a/ --exclude other.* --exclude shop.b_view").with_code(4);
    for name in [&source, &target] {
        name.sql(
            "CREATE USER nothing@'%' IDENTIFIED BY 'pl41n'; CREATE USER some@'%' IDENTIFIED BY 'pl41n'; \
             GRANT SELECT, SHOW VIEW, CREATE ON `sh%`.* TO some@'%'",
        );
    }
    fs::write(world.at("plain"), "pl41n").unwrap();
    fs::write(world.at("wrong"), "wr0ng").unwrap();
    let (from, into) = (source.port(), target.port());
    let dump = |user: &str, password: &str, options: &str| {
        world.run(&format!(
            "backup mysql://{user}@127.0.0.1:{from}{options} --method logical --password-file {password} --to nul:"
        ))
    };
    let load_as = |user: &str, password: &str| {
        world.run(&format!("restore --from a --into mysql://{user}@127.0.0.1:{into} --password-file {password}"))
    };
    dump("root", "wrong", "").refused(1, "mysql://", "Access denied");
    load_as("root", "wrong").refused(1, "mysql://", "Access denied");
    dump("nothing", "plain", "/shop").refused(
        2,
        "mysql://",
        "database shop does not exist, or the account may not see it",
    );
    dump("nothing", "plain", "").refused(1, "mysql://", "the account sees no database");
    // It sees one database of two: the backup of the server says that it is a part.
    dump("some", "plain", "").with_code(4).says(&["SELECT on some databases only", "--copy-only"]);
    let ended = load_as("some", "plain");
    let ended = ended.refused(1, "mysql://", "the account lacks");
    ended.says(&[
        "CREATE, DROP, SELECT, INSERT, UPDATE ON `fullbore_load`.*",
        "INSERT, ALTER, INDEX, CREATE VIEW, CREATE ROUTINE, TRIGGER ON `shop`.*",
        "keeps its notes in the database fullbore_load",
    ]);
    assert!(!target.sql("SHOW DATABASES").contains("shop"));

    // Without the right to make objects of other definers, everything else is there, and a grant helps.
    target.sql("GRANT ALL ON shop.* TO some@'%'; GRANT ALL ON fullbore_load.* TO some@'%'");
    let ended = load_as("some", "plain").refused(1, "mysql://", "log_bin_trust_function_creators = OFF");
    ended.says(&["it refuses trigger shop.t", "SUPER allows it"]);
    target.sql("SET GLOBAL log_bin_trust_function_creators = ON");
    load_as("some", "plain --dry-run").done().says(&["lacks SET_ANY_DEFINER", "procedure shop.p"]);
    load_as("some", "plain").with_code(1).says(&["SET_ANY_DEFINER", "--resume"]);
    load(&world, &target, "--from a --resume --check full").with_code(4);

    // Nothing is dropped for a load that cannot begin.
    target.sql("REVOKE DROP ON shop.* FROM some@'%'");
    load_as("some", "plain --replace").refused(1, "mysql://", "the account lacks DROP ON `shop`.*");
    assert_eq!(target.sql("SELECT COUNT(*) FROM shop.item"), "2\n");
    // A partial revoke hides objects, and the server does not say so.
    source.sql(
        "SET GLOBAL partial_revokes = ON; CREATE USER part@'%' IDENTIFIED BY 'pl41n'; GRANT SHOW_ROUTINE, SELECT, SHOW VIEW, TRIGGER, EVENT, \
         RELOAD, PROCESS, REPLICATION CLIENT ON *.* TO part@'%'; REVOKE TRIGGER, EVENT ON shop.* FROM part@'%'",
    );
    let hidden = ["lacks the privilege TRIGGER on shop", "lacks the privilege EVENT on shop"];
    dump("part", "plain", "/shop").with_code(4).says(&hidden);

    // A packet that the target does not take.
    target.sql("SET GLOBAL max_allowed_packet = 1048576; SET GLOBAL local_infile = 0");
    load(&world, &target, "--from a --replace").refused(1, "table shop.big", "max_allowed_packet");
    target.sql("SET GLOBAL max_allowed_packet = 67108864");
    load(&world, &target, "--from a --resume --check full").with_code(4);

    // A table without a key that another session changes between two runs of a load.
    let cutter = Cutter::before(&target);
    target.sql("SET GLOBAL local_infile = 1");
    cutter.cuts_at("ALTER TABLE `shop`.`big`");
    let line = format!(
        "restore --from a --into mysql://root@127.0.0.1:{}?ssl-mode=disabled&get-server-public-key=true --password-file target --replace",
        cutter.port
    );
    world.run(&line).with_code(1);
    target.sql("INSERT INTO shop.nokey VALUES ('of another session')");
    load(&world, &target, "--from a --resume --check full").refused(1, "table shop.nokey", "3 rows, and the set has 2");
}

#[test]
fn a_view_without_its_table_and_a_child_without_its_parent_are_named() {
    let world = World::new();
    let (source, target) = (server(Kind::Mysql9, &world, "source"), server(Kind::Mysql9, &world, "target"));
    source.sql(
        "CREATE DATABASE other; CREATE TABLE other.o (id INT PRIMARY KEY); CREATE DATABASE shop; USE shop; \
         CREATE TABLE item (id INT PRIMARY KEY); INSERT INTO item VALUES (1); \
         CREATE TABLE child (item INT, FOREIGN KEY (item) REFERENCES item (id)); INSERT INTO child VALUES (1); \
         CREATE VIEW a_view AS SELECT id FROM item; CREATE VIEW b_view AS SELECT id FROM other.o; CREATE VIEW c_view AS SELECT id FROM b_view",
    );
    let ended = backup(&world, &source, "--to a/ --exclude other.*").with_code(4);
    ended.says(&["these views name what --exclude leaves out: shop.b_view, shop.c_view. A restore leaves them out"]);
    load(&world, &target, "--from a --table shop.child")
        .with_code(4)
        .says(&["refer to: shop.child (shop.item). INSERT"]);
    let ended = load(&world, &target, "--from a --replace").with_code(4);
    let ended = ended.says(&["they are left out: view shop.b_view, view shop.c_view: "]);
    assert_eq!(
        target.sql(
            "SELECT * FROM shop.a_view; SELECT COUNT(*) FROM information_schema.views WHERE table_schema = 'shop'"
        ),
        "1\n1\n"
    );
    assert!(!ended.err.contains("refer to"), "all parents are there: {ended}");

    // MySQL 9 warns of a session that changes tables of two engines without transactions.
    source.sql(
        "CREATE DATABASE old; USE old; CREATE TABLE a (id INT NOT NULL) ENGINE = CSV; CREATE TABLE b (id INT NOT NULL) ENGINE = ARCHIVE; \
         CREATE TABLE c (id INT) ENGINE = MyISAM; INSERT INTO a VALUES (1); INSERT INTO b VALUES (2); INSERT INTO c VALUES (3)",
    );
    backup(&world, &source, "--mkdir --to b/ --database old").with_code(4);
    for way in ["1", "0"] {
        target.sql(&format!("SET GLOBAL local_infile = {way}"));
        load(&world, &target, "--from b --replace --check full").done();
        assert_eq!(
            target.sql("SELECT id FROM old.a UNION SELECT id FROM old.b UNION SELECT id FROM old.c"),
            "1\n2\n3\n"
        );
    }
    world.run("restore --from b --into dir:texts --map old=new").refused(2, "--map", "the names of the set");
}

#[test]
fn a_compressed_backup_fits_on_a_disk_that_is_smaller_than_the_rows() {
    let (world, test) = (World::new(), "a logical backup on a small disk");
    let source = server(Kind::Mysql9, &world, "source");
    let Some(disk) = SmallDisk::mount(&world, "small", 12, test) else { return };
    source.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT); INSERT INTO t VALUES (1, REPEAT('x', 9000000)), \
         (2, REPEAT('y', 9000000)), (3, REPEAT('z', 9000000)); ANALYZE TABLE t",
    );
    backup(&world, &source, "--to small/ --compression none").refused(1, "small", "the backup needs about");
    backup(&world, &source, "--to small/ --compression zstd:3").done().says(&["without compression"]);
    assert_eq!(disk.names().len(), 1);
}

#[test]
fn a_load_with_a_package_continues() {
    let world = World::new();
    let (source, target) = (server(Kind::Mariadb10, &world, "source"), server(Kind::Mariadb10, &world, "target"));
    source.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE t (id INT); SET sql_mode = ORACLE;\nDELIMITER $$\n\
         CREATE PACKAGE p AS FUNCTION f RETURN INT; END$$\n\
         CREATE PACKAGE BODY p AS FUNCTION f RETURN INT AS BEGIN RETURN 7; END; END$$\n\
         DELIMITER ;\nSET sql_mode = ''; CREATE VIEW v AS SELECT id FROM t",
    );
    backup(&world, &source, "--to a/").done();
    let cutter = Cutter::before(&target);
    cutter.cuts_at("CREATE ALGORITHM");
    let line = format!(
        "restore --from a --into mariadb://root@127.0.0.1:{}?ssl-mode=disabled --password-file target",
        cutter.port
    );
    world.run(&line).with_code(1);
    load(&world, &target, "--from a --resume --check full").done();
    assert_eq!(target.sql("SELECT shop.p.f(); SELECT COUNT(*) FROM shop.v"), "7\n0\n");
    load(&world, &target, "--from a --table shop.* --replace").done();
}

#[test]
fn rows_on_another_server_are_not_stored_and_a_warning_names_their_table() {
    let world = World::new();
    let source = server(Kind::Mariadb11, &world, "source");
    source.sql("INSTALL SONAME 'ha_federatedx'; CREATE DATABASE shop; CREATE TABLE shop.near (id INT PRIMARY KEY); INSERT INTO shop.near VALUES (1)");
    let password = fs::read_to_string(source.password_file().unwrap()).unwrap();
    fs::write(world.at("target"), &password).unwrap();
    let far = format!("mysql://root:{}@127.0.0.1:{}/shop/near", password.trim(), source.port());
    source.sql(&format!("CREATE TABLE shop.far (id INT PRIMARY KEY) ENGINE=FEDERATED CONNECTION='{far}'"));
    assert_eq!(source.sql("SELECT id FROM shop.far"), "1\n");
    source.sql("CREATE TABLE shop.gone (id INT); CREATE VIEW shop.dead AS SELECT id FROM shop.gone; CREATE VIEW shop.seen AS SELECT id FROM shop.near");
    source.sql("CREATE DEFINER = nobody@nowhere VIEW shop.lost AS SELECT id FROM shop.gone; DROP TABLE shop.gone");
    let broken = "cannot use these views, because they name a table, column, function or account that does not exist: shop.dead, shop.lost";
    backup(&world, &source, "--to a/").with_code(4).says(&["shop.far (FEDERATED)", "are not stored", broken]);
    let target = server(Kind::Mariadb11, &world, "other");
    target.sql("INSTALL SONAME 'ha_federatedx'");
    let url = url(&target);
    let ended = world.run(&format!("restore --from a --into {url} --password-file other")).with_code(4);
    ended.says(&["refuses views that name something missing, and they are left out: view shop.dead, view shop.lost: Table 'shop.gone' doesn't exist"]);
    assert_eq!(target.sql("SELECT id FROM shop.seen; SHOW TABLES FROM shop LIKE 'dead'"), "1\n");
    source.sql("DELETE FROM shop.near; DROP TABLE shop.far");
    load(&world, &source, "--from a --table shop.far").done();
    assert_eq!(source.sql("SELECT COUNT(*) FROM shop.far"), "0\n", "the load wrote nothing to the other table");
}

#[test]
fn a_target_directory_without_space_is_named() {
    let test = "a_target_directory_without_space_is_named";
    let world = World::new();
    let source = server(Kind::Mariadb11, &world, "source");
    source.sql(
        "CREATE DATABASE shop; CREATE TABLE shop.big (id INT PRIMARY KEY, v LONGBLOB); \
        INSERT INTO shop.big VALUES (1, REPEAT('x', 8000000)), (2, REPEAT('y', 8000000))",
    );
    backup(&world, &source, "--to a/").done();
    let Some(_disk) = SmallDisk::mount(&world, "disk", 12, test) else { return };
    // A directory: the set is larger than the disk.
    let ended = world.run("restore --from a --into dir:disk/out");
    assert!(ended.code == 1 && ended.err.contains("disk/out"), "{ended}");
}

#[test]
fn a_target_server_whose_disk_becomes_full_is_an_error_of_the_table_and_the_next_load_asks() {
    let test = "a_target_server_whose_disk_becomes_full_is_an_error_of_the_table_and_the_next_load_asks";
    for kind in [Kind::Mysql9, Kind::Mariadb11] {
        let world = World::new();
        let source = server(kind, &world, "source");
        source.sql(
            "CREATE DATABASE shop; CREATE TABLE shop.big (id INT PRIMARY KEY, v LONGBLOB); \
            INSERT INTO shop.big VALUES (1, REPEAT('x', 8000000)), (2, REPEAT('y', 8000000))",
        );
        backup(&world, &source, "--to a/").done();
        let target = server(kind, &world, "target");
        target.sql("CREATE DATABASE shop");
        let database = target.datadir().join("shop");
        let Some(disk) = SmallDisk::mount(&world, database.to_str().unwrap(), 8, test) else { return };
        load(&world, &target, "--from a").with_code(1).says(&["shop.big", "full"]);
        // MariaDB ends itself some time after such an error.
        if kind == Kind::Mysql9 {
            load(&world, &target, "--from a").with_code(1).says(&["--resume", "--replace"]);
        }
        drop(target);
        drop(disk);
    }
}

#[test]
fn a_partition_that_is_emptied_during_a_dump_ends_it_with_the_name_of_its_table() {
    let world = World::new();
    let source = server(Kind::Mysql9, &world, "source");
    source.sql("CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY, v LONGBLOB); INSERT INTO shop.item VALUES (1, REPEAT('x', 8000000)); ANALYZE TABLE shop.item; \
        CREATE TABLE shop.parts (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20)); \
        INSERT INTO shop.parts VALUES (1), (11)");
    let line = format!(
        "backup {} --method logical --password-file source --to b/ --throttle 2MiB --max-transfer-size 64KiB",
        url(&source)
    );
    let running = world.start(&line);
    fullbore_test_servers::wait_until("rows are read", || source.sql("SHOW PROCESSLIST").contains("shop`.`item"));
    source.sql("ALTER TABLE shop.parts TRUNCATE PARTITION p0");
    running.wait().refused(1, "", "shop.parts");
    assert!(world.names("b").is_empty());
}

#[test]
fn a_dump_and_a_load_work_over_tls_that_proves_the_server() {
    let world = World::new();
    let source = Server::start(Kind::Mysql9, &Options::new());
    fs::write(world.at("source"), fs::read(source.password_file().unwrap()).unwrap()).unwrap();
    source.sql(SHOP);
    let ca = source.ca().unwrap().display().to_string();
    let address = format!("mysql://root@127.0.0.1:{}", source.port());
    let tls = format!("ssl-mode=verify-ca&ssl-ca={ca}");
    let words =
        ["backup", &format!("{address}/shop?{tls}"), "--method", "logical", "--password-file", "source", "--to", "a/"];
    world.run_with(&words).with_code(4);
    let words = [
        "restore",
        "--from",
        "a",
        "--into",
        &format!("{address}?{tls}"),
        "--password-file",
        "source",
        "--map",
        "shop=copy",
        "--check",
        "full",
    ];
    world.run_with(&words).with_code(4);
    assert_eq!(
        source.sql("CHECKSUM TABLE copy.big").split('\t').nth(1),
        source.sql("CHECKSUM TABLE shop.big").split('\t').nth(1)
    );
}
