//! What stands against a backup of a MySQL, and what breaks while it is made: one error that says what to do, nothing that looks
//! whole, and a server as it was.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_test_servers::{Kind, Options, Server, SetAtEnd, wait_until};

use crate::program::{self, Ended, Running};
use crate::proxy::Proxy;
use crate::small_disk::SmallDisk;
use crate::world::World;

/// Some MiB that cannot be compressed.
const TABLES: &str = "CREATE DATABASE shop; SET SESSION cte_max_recursion_depth = 100000; \
     CREATE TABLE shop.item (id INT PRIMARY KEY, body VARBINARY(2000)); INSERT INTO shop.item \
     WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 3999) SELECT n, RANDOM_BYTES(1000) FROM n; \
     CREATE TABLE shop.other AS SELECT * FROM shop.item";

/// A server with the plugin and tables of some MiB; root's password and the one of other accounts in the world's folder.
fn server(world: &World, options: &Options) -> Server {
    let server = Server::start(Kind::Mysql9, &options.clone().binlog());
    server.sql(&format!("INSTALL PLUGIN clone SONAME 'mysql_clone.so'; {TABLES}"));
    passwords(world, &server);
    server
}

fn passwords(world: &World, server: &Server) {
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    fs::write(world.at("pw"), "s3cret").unwrap();
}

fn root(port: u16) -> String {
    format!("mysql://root@127.0.0.1:{port}")
}

/// As root, from the server on this port, with these options of the program.
fn backup(world: &World, port: u16, options: &str) -> Ended {
    world.run(&format!("backup {} --password-file password {options}", root(port)))
}

/// No media, no clone that still runs, and the next one can begin at once.
#[track_caller]
fn assert_left_clean(world: &World, server: &Server) {
    world.assert_no_media();
    assert_no_clone(server);
    backup(world, server.port(), "--to a/ --compression none").done();
    for name in world.names("a") {
        fs::remove_file(world.at("a").join(name)).unwrap();
    }
}

#[track_caller]
fn assert_no_clone(server: &Server) {
    wait_until("no session of a clone is left", || !server.sql("SHOW PROCESSLIST").to_lowercase().contains("clone"));
}

#[test]
fn each_privilege_that_the_account_lacks_is_named_and_the_least_suffice() {
    let world = World::new();
    let server = Server::start(Kind::Mysql9, &Options::new().binlog());
    passwords(&world, &server);
    server.sql(
        "CREATE USER u@'%' IDENTIFIED BY 's3cret'; CREATE USER locked@'%' IDENTIFIED BY 's3cret' ACCOUNT LOCK; \
         CREATE USER old@'%' IDENTIFIED BY 's3cret' PASSWORD EXPIRE",
    );
    let port = server.port();
    let run = |user: &str, options: &str| {
        world.run(&format!("backup mysql://{user}@127.0.0.1:{port} --password-file pw --to a/ {options}"))
    };
    let plugins = "SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'clone'";
    let refused = |user: &str, words: &[&str]| {
        run(user, "--install-clone-plugin").refused_once(1, words);
        world.assert_no_media();
        assert_eq!(server.sql(plugins).trim(), "0", "the plugin was loaded for nothing");
    };
    refused("locked", &["locked", "ACCOUNT UNLOCK"]);
    refused("old", &["password", "expired"]);
    refused("u", &[&format!("127.0.0.1:{port}"), "lacks the privilege BACKUP_ADMIN", "GRANT BACKUP_ADMIN"]);
    server.sql("GRANT BACKUP_ADMIN ON *.* TO u@'%'");
    refused("u", &["SELECT", "log_status"]);
    server.sql("GRANT SELECT ON performance_schema.log_status TO u@'%'");
    refused("u", &["`clone` cannot be loaded", "INSERT on mysql.plugin"]);
    server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
    run("u", "").with_code(4).says(&["lacks SELECT on *.*"]);
    server.sql("GRANT SELECT, PROCESS ON *.* TO u@'%'");
    run("u", "").done();
    assert_no_clone(&server);
}

#[test]
fn a_plugin_that_the_server_cannot_load_is_explained_and_one_that_is_off_too() {
    let world = World::new();
    let empty = tempfile::tempdir_in("/tmp").unwrap();
    let mut server =
        Server::start(Kind::Mysql9, &Options::new().option(&format!("plugin_dir={}", empty.path().display())));
    passwords(&world, &server);
    backup(&world, server.port(), "--to a/").refused_once(1, &["`clone` is not loaded", "--install-clone-plugin"]);
    backup(&world, server.port(), "--to a/ --install-clone-plugin").refused_once(
        1,
        &[&format!("127.0.0.1:{}", server.port()), "`clone` cannot be loaded", "mysql_clone.so", "plugin_dir"],
    );
    assert_eq!(server.sql("SELECT COUNT(*) FROM mysql.plugin").trim(), "0");
    server.stop();
    server.start_again(&Options::new());
    server.sql("SET GLOBAL super_read_only = 1");
    backup(&world, server.port(), "--to a/ --install-clone-plugin").refused_once(1, &["cannot be loaded", "read-only"]);
    server.stop();
    server.start_again(&Options::new().option("plugin-load-add=mysql_clone.so").option("clone=OFF"));
    let ended = backup(&world, server.port(), "--to a/ --install-clone-plugin");
    ended.refused_once(1, &["`clone` is switched off", "without clone=OFF"]);
    world.assert_no_media();
}

#[test]
fn tls_that_is_refused_by_either_side_says_by_whom_and_why() {
    let world = World::new();
    let mut server = server(&world, &Options::new());
    let run = |port: u16, query: &str| backup_with(&world, port, query);
    let other = Server::start(Kind::Mariadb10, &Options::new());
    let wrong = other.ca().unwrap().display();
    let own = server.ca().unwrap().display().to_string();
    let port = server.port();
    run(port, &format!("ssl-mode=verify-ca&ssl-ca={wrong}")).refused_once(1, &["TLS fails", "ssl-ca must name"]);
    run(port, &format!("ssl-mode=verify-identity&ssl-ca={own}")).refused_once(1, &["TLS fails", "verify-identity"]);
    run(port, "ssl-mode=verify-ca&ssl-ca=/nowhere/ca.pem").refused_once(2, &["/nowhere/ca.pem"]);
    run(port, "ssl-mode=verify-ca&ssl-ca=/dev/zero").refused_once(2, &["/dev/zero", "too long"]);
    run(port, "ssl-mode=verify-ca").refused_once(2, &["add ssl-ca=FILE"]);
    world.assert_no_media();
    run(port, &format!("ssl-mode=verify-ca&ssl-ca={own}")).done();
    server.stop();
    server.start_again(&Options::new().option("tls_version="));
    run(server.port(), "ssl-mode=required").refused_once(1, &["ssl-mode=required", "the server offers no TLS"]);
    // The first login since its start has to send the password itself.
    run(server.port(), "ssl-mode=preferred").refused_once(1, &["not encrypted", "get-server-public-key"]);
    server.stop();
    server.start_again(&Options::new().option("require_secure_transport=ON"));
    let ended = run(server.port(), "ssl-mode=disabled&get-server-public-key=true");
    ended.refused_once(1, &["secure transport", "ssl-mode=required"]);
    assert_no_clone(&server);
}

fn backup_with(world: &World, port: u16, query: &str) -> Ended {
    world.run(&format!("backup {}/?{query} --password-file password --to a/", root(port)))
}

#[test]
fn a_server_that_cannot_be_reached_or_is_something_else_is_told_from_one_that_refuses() {
    let world = World::new();
    fs::write(world.at("pw"), "s3cret").unwrap();
    let run = |url: &str| world.run(&format!("backup {url} --password-file pw --to a/ --install-clone-plugin"));
    run("mysql://u@127.0.0.1:1").refused_once(1, &["127.0.0.1:1", "cannot be reached", "bind_address"]);
    run("mysql://u@no-such-host.invalid").refused_once(1, &["no-such-host.invalid:3306", "cannot be reached"]);
    run("mysql://u@/?socket=/nowhere/s.sock").refused_once(1, &["/nowhere/s.sock", "check that the server runs"]);
    // Somebody who listens and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    run(&format!("mysql://u@127.0.0.1:{port}/?read-timeout=2")).refused_once(1, &["silent for 2 s"]);
    world.assert_no_media();
}

#[test]
fn a_series_that_is_not_tested_needs_consent_and_the_media_say_so() {
    let world = World::new();
    let server = server(&world, &Options::new().binlog());
    // A real server, which greets as one of another series.
    let other = Proxy::to_one_that_says(server.port(), "9.7.", "8.3.");
    backup(&world, other.port, "--to a/").refused_once(1, &["MySQL 8.3.", "tested with", "--accept-unverified"]);
    world.assert_no_media();
    backup(&world, other.port, "--to a/ --accept-unverified").with_code(4).says(&["MySQL 8.3.", "is not verified"]);
    let manifest = world.run("inspect files --json --from a").json();
    let warnings = manifest[0]["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|warning| warning.as_str().unwrap().contains("not verified")), "{manifest}");
    let old = Proxy::to_one_that_says(server.port(), "9.7.", "5.7.");
    backup(&world, old.port, "--to b/ --accept-unverified").refused_once(1, &["MySQL 5.7.", "CLONE came with 8.0.17"]);
    assert_no_clone(&server);
}

/// Changes rows of the source until it is told to stop, and with `ddl` a table too.
fn write_until(source: &Server, writer: u32, ddl: bool, stop: &AtomicBool) {
    let mut round = writer;
    while !stop.load(Ordering::Relaxed) {
        let row = |n: u32| format!("UPDATE shop.item SET body = UUID() WHERE id = {}; ", (round * 31 + n * 7) % 3900);
        source.sql(&(0..20).map(row).collect::<String>());
        if ddl {
            source.sql("CREATE TABLE shop.made AS SELECT * FROM shop.item LIMIT 100; ALTER TABLE shop.made ENGINE=InnoDB; DROP TABLE shop.made");
        }
        round += 3;
    }
}

fn caught_up(source: &Server, replica: &Server) {
    let executed = source.sql("SELECT @@gtid_executed").trim().to_owned();
    let waited = replica.sql(&format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed}', 60)"));
    assert_eq!(waited.trim(), "0", "{}", replica.error_log());
}

/// A source, and a replica of it with parallel appliers; the replica's password in the world's folder.
fn source_and_replica(world: &World) -> (Server, Server) {
    let source = Server::start(Kind::Mysql9, &Options::new().binlog());
    let parallel = Options::new().binlog().option("server_id=2").option("replica_parallel_workers=4");
    let replica = Server::start(Kind::Mysql9, &parallel);
    fs::copy(replica.password_file().unwrap(), world.at("replica")).unwrap();
    let empty = "RESET BINARY LOGS AND GTIDS";
    source.sql(&format!(
        "{empty}; CREATE USER copier@'%' IDENTIFIED BY 's3cret'; GRANT REPLICATION SLAVE ON *.* TO copier@'%'; {TABLES}"
    ));
    replica.sql(&format!(
        "{empty}; CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, SOURCE_USER='copier', SOURCE_PASSWORD='s3cret', \
         SOURCE_SSL=1, SOURCE_AUTO_POSITION=1; START REPLICA",
        source.port()
    ));
    caught_up(&source, &replica);
    (source, replica)
}

fn backup_replica(world: &World, replica: &Server, to: &str) -> Ended {
    let options = "--password-file replica --install-clone-plugin --throttle 40MiB/s";
    world.run(&format!("backup {} {options} --to {to}", root(replica.port())))
}

#[test]
fn a_replica_whose_appliers_have_ddl_is_backed_up_or_says_that_it_waits_for_itself_and_goes_on() {
    let world = World::new();
    let (source, replica) = source_and_replica(&world);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = SetAtEnd(&stop);
        for writer in 0..3 {
            let (source, stop) = (&source, &stop);
            scope.spawn(move || write_until(source, writer, writer == 0, stop));
        }
        for _ in 0..2 {
            let ended = backup_replica(&world, &replica, "a/");
            if ended.code == 1 {
                ended.refused_once(1, &["this replica waits for itself", "STOP REPLICA SQL_THREAD"]);
                world.assert_no_media();
            } else {
                ended.with_code(4);
            }
            assert_no_clone(&replica);
            for name in world.names("a") {
                fs::remove_file(world.at("a").join(name)).unwrap();
            }
        }
    });
    caught_up(&source, &replica);
    let checks = "CHECKSUM TABLE shop.item, shop.other";
    assert_eq!(replica.sql(checks), source.sql(checks));
}

#[test]
fn a_busy_replica_with_parallel_appliers_is_backed_up_and_says_of_whom_also_when_they_stand_still() {
    let world = World::new();
    let (source, replica) = source_and_replica(&world);
    let named = format!("127.0.0.1:{}", source.port());
    let line = |to: &str| backup_replica(&world, &replica, to);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = SetAtEnd(&stop);
        for writer in 0..3 {
            let (source, stop) = (&source, &stop);
            scope.spawn(move || write_until(source, writer, false, stop));
        }
        let applied = || replica.sql("SELECT @@gtid_executed");
        let before = applied();
        wait_until("the replica applies what is written", || applied() != before);
        line("a/").with_code(4).says(&["is a replica of", &named, "skip_replica_start", "RESET REPLICA"]);
        replica.sql("STOP REPLICA SQL_THREAD");
        let ended = line("b/").with_code(4);
        assert!(ended.err.contains("its applier is stopped"), "{ended}");
    });
    let manifest = world.run("inspect files --json --from b").json();
    let of = &manifest[0]["position"]["last"]["replica_of"][0];
    assert_eq!((of["source"].as_str(), of["applier"].as_str()), (Some(&*named), Some("OFF")), "{manifest}");
    for from in ["a", "b"] {
        let copy = world.at(&format!("copy-{from}"));
        world.run(&format!("restore --from {from} --into dir:copy-{from}")).done();
        let options = Options::new().binlog().option("server_id=3").option("skip_replica_start=ON");
        let restored =
            Server::start(Kind::Mysql9, &options.datadir(&copy).password_file(replica.password_file().unwrap()));
        // It continues where the replica was.
        restored.sql("RESET REPLICA; START REPLICA");
        caught_up(&source, &restored);
        let checks = "CHECKSUM TABLE shop.item, shop.other";
        assert_eq!(restored.sql(checks), source.sql(checks), "{from}");
    }
}

#[test]
fn a_table_outside_of_the_data_directory_comes_back_inside_of_it() {
    let world = World::new();
    let source = server(&world, &Options::new().binlog());
    let outside = source.tablespaces().display();
    source.sql(&format!(
        "CREATE TABLE shop.remote (id INT PRIMARY KEY, v VARCHAR(99)) DATA DIRECTORY='{outside}'; INSERT INTO shop.remote SELECT id, 'far away' FROM shop.item; \
         CREATE TABLESPACE general ADD DATAFILE '{outside}/general.ibd'; CREATE TABLE shop.inside (id INT PRIMARY KEY) TABLESPACE general; \
         INSERT INTO shop.inside SELECT id FROM shop.item"
    ));
    let checks = "CHECKSUM TABLE shop.item, shop.remote, shop.inside";
    let expected = source.sql(checks);
    backup(&world, source.port(), "--to a/")
        .with_code(4)
        .says(&["outside the data directory of the server: 2 files", "remote.ibd"]);
    let refused = world.run("restore --from a --into dir:copy --place-outside").with_code(1);
    assert!(refused.err.contains("would open it") && !world.at("copy").exists(), "{refused}");
    let ended = world.run("restore --from a --into dir:copy");
    assert!(ended.code == 0 || ended.code == 4, "{ended}");
    let options = Options::new().binlog().datadir(&world.at("copy")).password_file(source.password_file().unwrap());
    let restored = Server::start(Kind::Mysql9, &options);
    assert_eq!(restored.sql(checks), expected, "{}", restored.error_log());
    let check = restored.sql("CHECK TABLE shop.remote, shop.inside");
    assert!(check.lines().all(|line| line.ends_with("status\tOK")), "{check}");
    // It is its own: what is written to it does not come to the source's file.
    restored.sql("UPDATE shop.remote SET v = 'here'");
    drop(restored);
    assert_eq!(source.sql(checks), expected);
}

#[test]
fn a_tablespace_whose_file_has_vanished_is_named() {
    let world = World::new();
    let source = server(&world, &Options::new().binlog());
    source.sql("CREATE TABLE shop.gone AS SELECT * FROM shop.item");
    fs::remove_file(source.datadir().join("shop/gone.ibd")).unwrap();
    let ended = backup(&world, source.port(), "--to a/");
    ended.refused_once(1, &["shop/gone.ibd", "a file of the server is not there any more"]);
    world.assert_no_media();
    // As the clone sees it, that is a table that was dropped.
    source.sql("DROP TABLE shop.gone");
    assert_left_clean(&world, &source);
}

#[test]
fn a_tablespace_whose_file_vanishes_meanwhile_is_in_the_backup_or_named() {
    let world = World::new();
    let source = server(&world, &Options::new().binlog());
    source.sql("CREATE TABLE shop.zz AS SELECT * FROM shop.item");
    let expected = source.sql("CHECKSUM TABLE shop.zz");
    let running = begun_slowly(&world, &source, source.port());
    fs::remove_file(source.datadir().join("shop/zz.ibd")).unwrap();
    let ended = running.wait();
    if ended.code == 0 {
        // The donor had it open.
        world.run("restore --from a --from b --into dir:copy").done();
        let options = Options::new().binlog().datadir(&world.at("copy")).password_file(source.password_file().unwrap());
        assert_eq!(Server::start(Kind::Mysql9, &options).sql("CHECKSUM TABLE shop.zz"), expected);
    } else {
        ended.refused_once(1, &["shop/zz.ibd"]);
        world.assert_no_media();
    }
    assert_no_clone(&source);
}

#[test]
fn encrypted_tablespaces_without_their_keys_are_named() {
    let world = World::new();
    let mut source = Server::start(Kind::Mysql9, &Options::new().binlog().encrypt());
    passwords(&world, &source);
    source.sql(
        "INSTALL PLUGIN clone SONAME 'mysql_clone.so'; CREATE DATABASE shop; CREATE TABLE shop.secret (id INT PRIMARY KEY) ENCRYPTION='Y'; \
         INSERT INTO shop.secret VALUES (1), (2)",
    );
    // With keys, over a connection that everybody can listen to.
    world.run("key new k.key --no-recovery").done();
    let ended = world.run(&format!(
        "backup {}/?ssl-mode=disabled&get-server-public-key=true --password-file password --to a/ --encrypt-to k.key.pub",
        root(source.port())
    ));
    ended.refused_once(1, &["only over TLS", "ssl-mode=required"]);
    world.assert_no_media();
    assert_no_clone(&source);
    source.stop();
    fs::remove_file(source.datadir().join("mysqld.my")).unwrap();
    source.start_again(&Options::new().binlog());
    backup(&world, source.port(), "--to a/ --encrypt-to k.key.pub")
        .refused_once(1, &["shop/secret", "has no key", "keyring"]);
    world.assert_no_media();
    assert_no_clone(&source);
}

/// So slow that it lasts for many seconds, and begun: so much has come from the server on that port.
fn begun_slowly(world: &World, source: &Server, port: u16) -> Running {
    let options =
        "--throttle 2MiB/s --max-transfer-size 64KiB --buffer-count 24 --readers 2 --workers 1 --to a/ --to b/";
    let running = world.start(&format!("backup {}/?read-timeout=15 --password-file password {options}", root(port)));
    wait_until("the clone begins", || source.sql("SHOW PROCESSLIST").to_lowercase().contains("clone"));
    world.media_begun("b");
    running
}

#[test]
fn a_second_backup_at_once_is_refused_and_the_first_goes_on() {
    let world = World::new();
    let source = server(&world, &Options::new());
    let first = begun_slowly(&world, &source, source.port());
    // It is there for as long as the others take.
    first.stop();
    let second = World::new();
    passwords(&second, &source);
    // By the same way: this program knows. By another: the server does.
    backup(&second, source.port(), "--to a/").refused_once(1, &["another run of fullbore", "--wait"]);
    let socket = source.socket().display();
    let line = format!("backup mysql://root@/?socket={socket} --password-file password --to a/");
    second.run(&line).refused_once(1, &["3634", "one clone at a time"]);
    second.assert_no_media();
    first.go_on();
    first.wait().done();
    world.run("verify --from a --from b").done();
    second.run(&line).done();
    assert_no_clone(&source);
}

#[test]
fn a_target_without_room_is_refused_before_the_server_is_copied() {
    let world = World::new();
    let source = server(&world, &Options::new());
    let test = "a target without room for a MySQL";
    let Some(disk) = SmallDisk::mount(&world, "small", 8, test) else { return };
    for options in ["--to small/ --compression none", "--to small/ --to a/ --compression lz4"] {
        let ended = backup(&world, source.port(), options);
        ended.refused_once(1, &["small", "the backup needs about", "are free"]);
    }
    assert_eq!(disk.names(), Vec::<String>::new());
    assert_left_clean(&world, &source);
    backup(&world, source.port(), "--to a/").done();
    let ended = world.run("restore --from a --into dir:small/copy");
    ended.refused_once(1, &["small/copy", "the files need", "are free", "--into"]);
    assert_eq!(disk.names(), Vec::<String>::new());
}

#[test]
fn a_disk_that_becomes_full_ends_the_backup_or_the_restore_and_the_next_one_goes_well() {
    let world = World::new();
    let source = server(&world, &Options::new());
    let test = "a disk that becomes full under a MySQL's backup";
    let Some(disk) = SmallDisk::mount(&world, "small", 6, test) else { return };
    // Without PROCESS nobody knows beforehand how large the server is.
    source.sql("CREATE USER u@'%' IDENTIFIED BY 's3cret'; GRANT BACKUP_ADMIN ON *.* TO u@'%'; GRANT SELECT ON performance_schema.log_status TO u@'%'");
    let line = format!(
        "backup mysql://u@127.0.0.1:{} --password-file pw --compression none --max-transfer-size 64KiB --to small/ --to a/",
        source.port()
    );
    world.run(&line).refused_once(1, &["small/", "No space left", "more devices (--to)"]);
    assert_eq!(disk.names(), Vec::<String>::new());
    assert_left_clean(&world, &source);
    backup(&world, source.port(), "--to a/ --to b/").done();
    let Some(disk) = SmallDisk::of_few_files(&world, "disk", 9, test) else { return };
    world.run("restore --from a --from b --into dir:disk/copy").refused_once(1, &["disk/", "No space left"]);
    assert_eq!(disk.names(), Vec::<String>::new());
    world.run("restore --from a --from b --into dir:copy").done();
}

#[test]
fn a_network_that_is_cut_or_falls_silent_ends_the_backup_and_the_next_one_goes_well() {
    let world = World::new();
    let source = server(&world, &Options::new());
    for cut in [true, false] {
        let network = Proxy::to(source.port());
        let running = begun_slowly(&world, &source, network.port);
        network.wait_for(1 << 20);
        let since = Instant::now();
        let said = if cut {
            network.cut();
            "the connection was cut"
        } else {
            network.silence();
            "silent for 15 s"
        };
        let ended = running.wait();
        ended.refused_once(1, &[&format!("127.0.0.1:{}", network.port), said]);
        // Without `read-timeout` it would be two minutes.
        assert!(since.elapsed() < Duration::from_secs(90), "{:?}", since.elapsed());
        drop(network);
        world.assert_no_media();
        // Of a network that is gone the donor cannot be told: it waits for us to come again. The next backup does not wait.
        backup(&world, source.port(), "--to a/ --compression none").done();
        world.names("a").iter().for_each(|name| fs::remove_file(world.at("a").join(name)).unwrap());
        assert_no_clone(&source);
    }
}

#[test]
fn a_server_that_is_killed_in_the_middle_ends_the_backup_and_the_next_one_goes_well() {
    let world = World::new();
    let mut source = server(&world, &Options::new());
    let running = begun_slowly(&world, &source, source.port());
    source.kill();
    running.wait().refused_once(1, &[&format!("127.0.0.1:{}", source.port()), "was cut"]);
    world.assert_no_media();
    source.start_again(&Options::new().binlog());
    assert_left_clean(&world, &source);
}

#[test]
fn files_may_grow_no_longer_than_the_system_allows() {
    let world = World::new();
    let source = server(&world, &Options::new());
    let url = root(source.port());
    let script = format!(
        "ulimit -f 8000; exec {} backup {url} --password-file password --to a/x.bore --compression none",
        env!("CARGO_BIN_EXE_fullbore")
    );
    let mut command = std::process::Command::new("bash");
    program::surroundings(&mut command, world.folder());
    command.args(["-c", &script]);
    program::run(command).refused_once(1, &["a/x.bore", "File too large", "--stripes"]);
    assert_left_clean(&world, &source);
}
