//! What stands against a backup of a MariaDB, and what breaks while it is made: one error that says what to do, nothing that looks
//! whole, and a server that nobody holds up.

use std::fs;
use std::ops::Range;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_test_servers::{Kind, Options, Server, SetAtEnd, wait_until};

use crate::program::{self, Ended, Running};
use crate::proxy::Proxy;
use crate::small_disk::SmallDisk;
use crate::world::World;

/// A server with tables of some MiB; root's password and the one of other accounts in the world's folder.
fn server(world: &World, kind: Kind, options: &Options) -> Server {
    let server = Server::start(kind, options);
    server.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE item (id INT PRIMARY KEY, body VARBINARY(2000)) ENGINE=InnoDB; \
         INSERT INTO item SELECT seq, REPEAT(MD5(seq), 30) FROM seq_1_to_8000; CREATE TABLE other LIKE item; INSERT INTO other SELECT * FROM item; \
         CREATE TABLE myisam (id INT) ENGINE=MyISAM; INSERT INTO myisam VALUES (1), (2)",
    );
    passwords(world, &server);
    server
}

fn passwords(world: &World, server: &Server) {
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    fs::write(world.at("pw"), "s3cret").unwrap();
}

fn root(port: u16) -> String {
    format!("mariadb://root@127.0.0.1:{port}")
}

fn backup(world: &World, port: u16, options: &str) -> Ended {
    world.run(&format!("backup {} --password-file password {options}", root(port)))
}

fn backup_with(world: &World, port: u16, query: &str) -> Ended {
    world.run(&format!("backup {}/?{query} --password-file password --to a/", root(port)))
}

/// No media, no lock, and the next backup goes well.
#[track_caller]
fn assert_left_clean(world: &World, server: &Server) {
    world.assert_no_media();
    assert_unlocked(server);
    backup(world, server.port(), "--to a/ --compression none").done();
    for name in world.names("a") {
        fs::remove_file(world.at("a").join(name)).unwrap();
    }
}

/// Another backup can go through all stages at once.
#[track_caller]
fn assert_unlocked(server: &Server) {
    let taken = "SET lock_wait_timeout=5; BACKUP STAGE START; BACKUP STAGE BLOCK_COMMIT; BACKUP STAGE END";
    server.try_sql(taken).unwrap_or_else(|error| panic!("{error}\n{}", server.sql("SHOW FULL PROCESSLIST")));
}

fn started(source: &Server, world: &World, copy: &str, options: Options) -> Server {
    let options = options.datadir(&world.at(copy)).password_file(source.password_file().unwrap());
    Server::start(source.kind(), &options)
}

/// So slow that it lasts for minutes, and in its first stage.
fn begun_slowly(world: &World, source: &Server, port: u16) -> Running {
    begun_at(world, source, port, "200KiB/s")
}

fn begun_at(world: &World, source: &Server, port: u16, throttle: &str) -> Running {
    let slow = format!("--throttle {throttle} --max-transfer-size 64KiB --to a/ --to b/");
    let running = world.start(&format!("backup {}/?read-timeout=15 --password-file password {slow}", root(port)));
    wait_until("both connections are there", || source.sql("SHOW PROCESSLIST").matches("127.0.0.1").count() >= 2);
    world.media_begun("b");
    running
}

#[test]
fn each_privilege_that_the_account_lacks_is_named_and_the_least_suffice() {
    let world = World::new();
    let server = server(&world, Kind::Mariadb10, &Options::new());
    server.sql("CREATE USER u IDENTIFIED BY 's3cret'; CREATE USER locked IDENTIFIED BY 's3cret' ACCOUNT LOCK");
    let port = server.port();
    let run = |user: &str| world.run(&format!("backup mariadb://{user}@127.0.0.1:{port} --password-file pw --to a/"));
    let place = format!("127.0.0.1:{port}");
    run("locked").refused_once(1, &[&place, "locked", "ACCOUNT UNLOCK"]);
    run("u").refused_once(1, &[&place, "lacks the privilege RELOAD, BINLOG MONITOR", "GRANT RELOAD, BINLOG MONITOR"]);
    server.sql("GRANT BINLOG MONITOR ON *.* TO u");
    run("u").refused_once(1, &[&place, "lacks the privilege RELOAD", "GRANT RELOAD ON"]);
    world.assert_no_media();
    server.sql("GRANT RELOAD ON *.* TO u");
    run("u").done();
    assert_unlocked(&server);
}

#[test]
fn tls_that_is_refused_by_either_side_says_by_whom_and_why() {
    let world = World::new();
    let mut source = server(&world, Kind::Mariadb10, &Options::new());
    let other = Server::start(Kind::Mysql9, &Options::new());
    let (wrong, own) = (other.ca().unwrap().display(), source.ca().unwrap().display().to_string());
    let run = |port: u16, query: &str| backup_with(&world, port, query);
    run(source.port(), &format!("ssl-mode=verify-ca&ssl-ca={wrong}"))
        .refused_once(1, &["TLS fails", "ssl-ca must name"]);
    world.assert_no_media();
    run(source.port(), &format!("ssl-mode=verify-ca&ssl-ca={own}")).done();
    source.stop();
    source.start_again(&Options::new().option("skip-ssl"));
    run(source.port(), "ssl-mode=required").refused_once(1, &["ssl-mode=required", "the server offers no TLS"]);
    source.stop();
    source.start_again(&Options::new().option("require_secure_transport=ON"));
    run(source.port(), "ssl-mode=disabled")
        .refused_once(1, &["Access denied", "accepts only encrypted connections: ssl-mode=required"]);
    assert_unlocked(&source);
}

#[test]
fn a_server_with_20_000_files_comes_back_and_one_with_more_than_a_set_holds_is_refused_before_the_copy() {
    let world = World::new();
    let server = server(&world, Kind::Mariadb11, &Options::new());
    // Nobody asks the server for them: a backup takes what is there.
    let name = |number: u32| format!("shop/many{number}.MYD");
    let write = |numbers: Range<u32>, bytes: &dyn Fn(u32) -> Vec<u8>| {
        numbers.for_each(|number| fs::write(server.datadir().join(name(number)), bytes(number)).unwrap());
    };
    write(0..20_000, &|number| number.to_le_bytes().to_vec());
    backup(&world, server.port(), "--to a/ --stripes 2").done();
    world.run("restore --from a --into dir:copy").done();
    for number in 0..20_000 {
        let bytes = fs::read(world.at("copy").join(name(number))).unwrap();
        assert_eq!(bytes, number.to_le_bytes(), "{}", name(number));
    }
    write(20_000..262_144, &|_| Vec::new());
    let refused = backup(&world, server.port(), "--to b/").with_code(1);
    let refused = refused.says(&["mariadb://127.0.0.1", "files, and one backup set holds 262144 at most"]);
    assert!(!refused.err.contains("more than"), "it is known before the copy: {refused}");
    assert!(world.names("b").is_empty());
    assert_unlocked(&server);
}

#[test]
fn a_server_without_innodb_is_refused() {
    for kind in Kind::MARIADB {
        let world = World::new();
        let options = Options::new().option("innodb=OFF").option("default-storage-engine=Aria");
        let server = Server::start(kind, &options);
        passwords(&world, &server);
        backup(&world, server.port(), "--to a/").refused_once(1, &["runs without InnoDB", "logical backup"]);
        world.assert_no_media();
        assert_unlocked(&server);
    }
}

#[test]
fn a_data_directory_that_can_only_be_read_is_enough() {
    if !program::is_root() {
        return program::skipped("a data directory that can only be read", "only root can mount it so");
    }
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    let seen = ReadOnly::of(source.datadir(), world.at("volume"));
    let Some(seen) = seen else {
        return program::skipped("a data directory that can only be read", "`mount --bind` fails");
    };
    assert!(fs::write(seen.0.join("x"), "x").is_err(), "it can be written");
    backup_with(&world, source.port(), &format!("datadir={}", seen.0.display())).done();
    world.run("restore --from a --into dir:copy").done();
    let expected = source.sql("CHECKSUM TABLE shop.item, shop.other, shop.myisam");
    let restored = started(&source, &world, "copy", Options::new());
    assert_eq!(restored.sql("CHECKSUM TABLE shop.item, shop.other, shop.myisam"), expected);
    assert_unlocked(&source);
}

/// A directory seen from another place, where it cannot be written.
struct ReadOnly(std::path::PathBuf);

impl ReadOnly {
    fn of(directory: &std::path::Path, place: std::path::PathBuf) -> Option<Self> {
        fs::create_dir(&place).unwrap();
        let mount = |options: &[&str]| {
            Command::new("mount").args(options).stderr(Stdio::null()).status().is_ok_and(|done| done.success())
        };
        let (from, to) = (directory.to_str().unwrap(), place.to_str().unwrap());
        if !mount(&["--bind", from, to]) {
            return None;
        }
        let bound = Self(place.clone());
        mount(&["-o", "remount,bind,ro", to]).then_some(bound)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status(); // The directory cannot be removed then, and says so.
    }
}

#[test]
fn a_file_of_the_server_that_cannot_be_read_is_named() {
    if !program::is_root() {
        return program::skipped("a file of the server that cannot be read", "only root can give it to another user");
    }
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    let line = format!("backup {} --password-file password --to a/", root(source.port()));
    // The server's own user may read its files, but for one.
    let table = source.datadir().join("shop/other.ibd");
    std::os::unix::fs::chown(&table, Some(0), Some(0)).unwrap();
    fs::set_permissions(&table, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    world.run_as_nobody(&line).refused_once(1, &["shop/other.ibd", "Permission denied", "run as a user"]);
    world.assert_no_media();
    assert_unlocked(&source);
    std::os::unix::fs::chown(&table, Some(65_534), Some(65_534)).unwrap();
    world.run_as_nobody(&line).done();
}

#[test]
fn a_table_whose_file_has_vanished_is_named_and_one_that_was_discarded_is_no_hindrance() {
    for kind in Kind::MARIADB {
        let world = World::new();
        let source = server(&world, kind, &Options::new());
        source.sql("CREATE TABLE shop.gone AS SELECT * FROM shop.item; SET GLOBAL innodb_file_per_table = 0; CREATE TABLE shop.within (id INT); SET GLOBAL innodb_file_per_table = 1");
        fs::remove_file(source.datadir().join("shop/gone.ibd")).unwrap();
        let since = Instant::now();
        let ended = backup(&world, source.port(), "--to a/ --throttle 64KiB/s");
        ended.refused_once(1, &["shop/gone.ibd", "removed, or moved away", "CREATE TABLE"]);
        // The redo log alone would take longer.
        assert!(since.elapsed() < Duration::from_secs(60), "it is known before everything is copied");
        world.assert_no_media();
        assert_unlocked(&source);
        // What the hint says.
        source.sql("CREATE TABLE shop.saved AS SELECT * FROM shop.gone; DROP TABLE shop.gone");
        assert_eq!(source.sql("SELECT COUNT(*) FROM shop.saved").trim(), "8000");
        source.sql("CREATE USER u IDENTIFIED BY 's3cret'; GRANT RELOAD, BINLOG MONITOR ON *.* TO u");
        let line = format!("backup mariadb://u@127.0.0.1:{} --password-file pw --to b/", source.port());
        world.run(&line).with_code(4).says(&["InnoDB tables without a file of their own: 1 (shop/within)", "PROCESS"]);
        source.sql("CREATE TABLE shop.parts (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3; INSERT INTO shop.parts SELECT id FROM shop.item");
        fs::remove_file(source.datadir().join("shop/parts#P#p1.ibd")).unwrap();
        backup(&world, source.port(), "--to a/").refused_once(1, &["shop/parts#P#p1.ibd", "removed, or moved away"]);
        source.sql("DROP TABLE shop.parts");
        source.sql("ALTER TABLE shop.other DISCARD TABLESPACE");
        backup(&world, source.port(), "--to a/").with_code(4).says(&["(shop/other)", "were discarded"]);
        assert_unlocked(&source);
    }
}

#[test]
fn a_table_whose_file_vanishes_meanwhile_is_named() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    source.sql("CREATE TABLE shop.zz AS SELECT * FROM shop.item");
    let running = begun_at(&world, &source, source.port(), "1500KiB/s");
    fs::remove_file(source.datadir().join("shop/zz.ibd")).unwrap();
    running.wait().refused_once(1, &["shop/zz.ibd", "removed, or moved away"]);
    source.sql("DROP TABLE shop.zz");
    assert_left_clean(&world, &source);
}

#[test]
fn encrypted_tablespaces_of_a_server_without_keys_are_named_and_so_is_the_table_that_cannot_be_read() {
    let world = World::new();
    let mut source = Server::start(Kind::Mariadb11, &Options::new().encrypt().option("innodb_encrypt_log=OFF"));
    passwords(&world, &source);
    source.sql(
        "CREATE DATABASE shop; CREATE TABLE shop.secret (id INT PRIMARY KEY) ENGINE=InnoDB ENCRYPTED=YES ENCRYPTION_KEY_ID=2; \
         INSERT INTO shop.secret VALUES (1), (2); CREATE TABLE shop.open (id INT PRIMARY KEY); INSERT INTO shop.open VALUES (1)",
    );
    source.stop();
    source.start_again(&Options::new());
    source.sql("INSERT INTO shop.open VALUES (2)");
    let ended = backup(&world, source.port(), "--to a/");
    ended.with_code(4).says(&["the server has no keys: 1 (", "shop/secret.ibd", "without the keys"]);
    assert_unlocked(&source);
    let own = source.program("mariadbd").get_program().to_str().unwrap().to_owned();
    let line = format!("restore --from a --into dir:copy --start-check --server-program {own}");
    let ended = world.run_as_nobody(&line);
    ended.refused_once(3, &["tables of the restored server are not OK", "shop.secret"]);
    // With them it is all there.
    world.run("restore --from a --into dir:copy").done();
    let keys = source.datadir().parent().unwrap().join("keyring/keys.txt");
    let keys = format!("file-key-management-filename={}", keys.display());
    let with_keys = Options::new().option("plugin-load-add=file_key_management").option(&keys);
    let restored = started(&source, &world, "copy", with_keys);
    assert_eq!(restored.sql("SELECT COUNT(*) FROM shop.secret; SELECT COUNT(*) FROM shop.open"), "2\n2\n");
}

#[test]
fn a_second_backup_at_once_is_refused_and_the_first_goes_on() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb10, &Options::new());
    let first = begun_slowly(&world, &source, source.port());
    let second = World::new();
    passwords(&second, &source);
    backup(&second, source.port(), "--to a/").refused_once(1, &["another run of fullbore", "--wait"]);
    let line = format!(
        "backup mariadb://root@/?socket={} --password-file password --lock-timeout 2 --to a/",
        source.socket().display()
    );
    second.run(&line).refused_once(1, &["Lock wait timeout", "another backup may be running"]);
    second.assert_no_media();
    first.signal("KILL");
    first.wait();
    second.run(&line).done();
    assert_unlocked(&source);
}

#[test]
fn a_target_without_room_is_refused_before_the_server_is_copied() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    let Some(disk) = SmallDisk::mount(&world, "small", 4, "a target without room for a MariaDB") else { return };
    for options in ["--to small/ --compression none", "--to small/ --to a/ --compression none"] {
        backup(&world, source.port(), options).refused_once(1, &["small", "the backup needs about", "are free"]);
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
    let source = server(&world, Kind::Mariadb10, &Options::new());
    fs::create_dir(world.at("full")).unwrap();
    backup(&world, source.port(), "--to full/").done();
    source.sql(
        "UPDATE shop.item SET body = REPEAT(SHA2(id, 512), 8); CREATE TABLE shop.third AS SELECT * FROM shop.item",
    );
    // How large a differential becomes nobody knows before.
    let test = "a disk that becomes full under a MariaDB's backup";
    let Some(disk) = SmallDisk::mount(&world, "small", 6, test) else { return };
    let options = "--kind differential --base full --compression none --max-transfer-size 64KiB --to small/ --to a/";
    backup(&world, source.port(), options).refused_once(1, &["small/", "No space left", "more devices (--to)"]);
    assert_eq!(disk.names(), Vec::<String>::new());
    assert_left_clean(&world, &source);
    backup(&world, source.port(), &options.replace("small/", "b/")).done();
    world.run("verify --from full --from a --from b").done();
    for name in world
        .names("a")
        .into_iter()
        .map(|name| format!("a/{name}"))
        .chain(world.names("b").into_iter().map(|name| format!("b/{name}")))
    {
        fs::remove_file(world.at(&name)).unwrap();
    }
    backup(&world, source.port(), "--to a/ --to b/").done();
    let Some(disk) = SmallDisk::of_few_files(&world, "disk", 20, test) else { return };
    world.run("restore --from a --from b --into dir:disk/copy").refused_once(1, &["disk/", "No space left"]);
    assert_eq!(disk.names(), Vec::<String>::new());
    world.run("restore --from a --from b --into dir:copy").done();
}

#[test]
fn a_network_that_is_cut_or_falls_silent_ends_the_backup_and_the_next_one_goes_well() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    for cut in [true, false] {
        let network = Proxy::to(source.port());
        let running = begun_slowly(&world, &source, network.port);
        let since = Instant::now();
        let said = if cut {
            network.cut();
            "the connection was cut"
        } else {
            network.silence();
            "silent for 15 s"
        };
        running.wait().refused_once(1, &[&format!("127.0.0.1:{}", network.port), said]);
        assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
        drop(network);
        assert_left_clean(&world, &source);
    }
}

#[test]
fn a_server_that_was_killed_meanwhile_is_backed_up_again_when_it_is_back() {
    let world = World::new();
    let mut source = server(&world, Kind::Mariadb11, &Options::new());
    let running = begun_slowly(&world, &source, source.port());
    source.kill();
    running.wait().refused_once(1, &[&format!("127.0.0.1:{}", source.port()), "was cut"]);
    world.assert_no_media();
    source.start_again(&Options::new());
    assert_left_clean(&world, &source);
}

/// A replica of `source`, and what it needs to go on.
fn replica_of(source: &Server, world: &World, options: Options) -> Server {
    let replica = Server::start(source.kind(), &options.binlog().option("server_id=2").option("log_slave_updates=ON"));
    fs::copy(replica.password_file().unwrap(), world.at("replica")).unwrap();
    source.sql("CREATE USER copier@'%' IDENTIFIED BY 's3cret'; GRANT REPLICATION SLAVE ON *.* TO copier@'%'");
    let position = source.sql("SELECT @@gtid_binlog_pos").trim().to_owned();
    let dump = Command::new("sh")
        .arg("-c")
        .arg("\"$0\" --defaults-file=\"$1\" --databases shop | \"$2\" --defaults-file=\"$3\"")
        .arg(source.program("mariadb-dump").get_program())
        .args([source.client().get_args().next().unwrap().to_str().unwrap().trim_start_matches("--defaults-file=")])
        .arg(replica.client().get_program())
        .args([replica.client().get_args().next().unwrap().to_str().unwrap().trim_start_matches("--defaults-file=")])
        .status()
        .unwrap();
    assert!(dump.success());
    replica.sql(&format!(
        "RESET MASTER; SET GLOBAL gtid_slave_pos='{position}'; CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='copier', \
         MASTER_PASSWORD='s3cret', MASTER_USE_GTID=slave_pos; START SLAVE",
        source.port()
    ));
    caught_up(source, &replica);
    replica
}

fn caught_up(source: &Server, replica: &Server) {
    let position = source.sql("SELECT @@gtid_binlog_pos").trim().to_owned();
    let waited = replica.sql(&format!("SELECT MASTER_GTID_WAIT('{position}', 60)"));
    assert_eq!(waited.trim(), "0", "{}\n{}", replica.sql("SHOW ALL SLAVES STATUS"), replica.error_log());
}

#[test]
fn a_replica_is_backed_up_with_its_place_also_with_parallel_appliers_and_when_they_stand_still() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new().binlog().option("binlog_format=ROW"));
    let parallel = Options::new().option("slave_parallel_threads=4").option("slave_parallel_mode=optimistic");
    let replica = replica_of(&source, &world, parallel);
    let named = format!("127.0.0.1:{}", source.port());
    let line =
        |to: &str| format!("backup {} --password-file replica --to {to} --compression none", root(replica.port()));
    let (stop, client) = (std::sync::atomic::AtomicBool::new(false), &source);
    thread::scope(|scope| {
        let _ends = SetAtEnd(&stop);
        for writer in 0..3 {
            let stop = &stop;
            scope.spawn(move || {
                let mut round = writer;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let rows: String = (0..20)
                        .map(|n| format!("UPDATE shop.item SET body = UUID() WHERE id = {}; INSERT INTO shop.myisam VALUES ({n}); ", 1 + (round * 31 + n * 7) % 7900))
                        .collect();
                    client.sql(&rows);
                    if writer == 0 {
                        client.sql("CREATE TABLE shop.made AS SELECT * FROM shop.item LIMIT 100; ALTER TABLE shop.made FORCE; DROP TABLE shop.made");
                    }
                    round += 3;
                }
            });
        }
        let applied = || replica.sql("SELECT @@gtid_slave_pos");
        let before = applied();
        wait_until("the replica applies what is written", || applied() != before);
        for _ in 0..3 {
            for name in world.names("a") {
                fs::remove_file(world.at("a").join(name)).unwrap();
            }
            world.run(&line("a/")).with_code(4).says(&["4 parallel appliers", "--tc-heuristic-recover=ROLLBACK"]);
        }
    });
    caught_up(&source, &replica);
    let position =
        |from: &str| world.run(&format!("inspect files --json --from {from}")).json()[0]["position"]["last"].clone();
    let of = position("a");
    let channel = &of["replica_of"][0];
    assert_eq!((channel["source"].as_str(), channel["applier"].as_str()), (Some(&*named), Some("Yes")), "{of}");
    // What the appliers had prepared is rolled back, if there is any.
    let own = source.program("mariadbd").get_program().to_str().unwrap().to_owned();
    world.run_as_nobody(&format!("restore --from a --into dir:copy --start-check --server-program {own}")).done();
    let options = || {
        let options = Options::new().binlog().option("server_id=3").datadir(&world.at("copy"));
        options.password_file(replica.password_file().unwrap())
    };
    let restored = Server::start(source.kind(), &options());
    // It becomes a replica itself, from its own place on.
    let place = of["gtid_slave_pos"].as_str().unwrap();
    // What an applier had just committed the server may not count yet when it is asked; its table, which is in the copy, does.
    let sequence = |place: &str| place.trim().rsplit('-').next().and_then(|number| number.parse::<u64>().ok()).unwrap();
    let (own, told) = (sequence(&restored.sql("SELECT @@gtid_slave_pos")), sequence(place));
    assert!(told <= own && own <= told + 4, "{own} {of}");
    restored.sql(&format!(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='copier', MASTER_PASSWORD='s3cret', MASTER_USE_GTID=slave_pos; START SLAVE",
        source.port()
    ));
    caught_up(&source, &restored);
    let checks = "CHECKSUM TABLE shop.item, shop.other, shop.myisam";
    assert_eq!(restored.sql(checks), source.sql(checks));
    replica.sql("STOP SLAVE SQL_THREAD");
    let ended = world.run(&line("b/")).with_code(4);
    assert!(ended.err.contains(&format!("is a replica of {named}")) && ended.err.contains("not applied"), "{ended}");
    assert_unlocked(&replica);
}

#[test]
fn a_command_that_may_not_reach_the_host_of_the_server_says_so() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    // Of a server on another host the data directory is not here.
    let ended = backup_with(&world, source.port(), "datadir=/nowhere/data");
    ended.refused_once(1, &["/nowhere/data", "the server's files cannot be read", "own host"]);
    let ended = world.run("backup mariadb://u@no-such-host.invalid --password-file pw --to a/");
    ended.refused_once(1, &["no-such-host.invalid:3306", "cannot be reached"]);
    world.assert_no_media();
    assert_unlocked(&source);
}
