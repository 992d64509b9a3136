//! A real MariaDB, copied while it is written to, restored into a directory, and started on it.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_test_servers::{Kind, Options, Server, wait_until};

use crate::golden;
use crate::program::{self, Ended, Running};
use crate::world::World;

/// In so many rows of three tables, and so much in each.
const ROWS: u64 = 300;
const AMOUNT: u64 = 1000;

/// A server with tables of every kind, and its password file in the world's folder.
fn server(world: &World, kind: Kind, options: &Options) -> Server {
    let server = Server::start(kind, options);
    server.sql(&format!(
        "CREATE DATABASE shop; USE shop; \
         CREATE TABLE a (id INT PRIMARY KEY, amount BIGINT NOT NULL, pad VARCHAR(300)) ENGINE=InnoDB; CREATE TABLE b LIKE a; CREATE TABLE c LIKE a; \
         INSERT INTO a SELECT seq, {AMOUNT}, REPEAT('x', 200) FROM seq_1_to_{ROWS}; INSERT INTO b SELECT * FROM a; INSERT INTO c SELECT * FROM a; \
         CREATE TABLE quiet (id INT PRIMARY KEY, t VARCHAR(300), KEY (t)) ENGINE=InnoDB; \
         INSERT INTO quiet SELECT seq, REPEAT(MD5(seq), 5) FROM seq_1_to_20000; \
         CREATE TABLE squeezed (id INT PRIMARY KEY, t TEXT) ENGINE=InnoDB PAGE_COMPRESSED=1; \
         INSERT INTO squeezed SELECT seq, REPEAT(seq, 300) FROM seq_1_to_2000; \
         CREATE TABLE myisam (id INT AUTO_INCREMENT PRIMARY KEY, t VARCHAR(200)) ENGINE=MyISAM; \
         CREATE TABLE aria (id INT AUTO_INCREMENT PRIMARY KEY, t VARCHAR(200)) ENGINE=Aria TRANSACTIONAL=1; \
         CREATE TABLE parts (id INT PRIMARY KEY, v INT) ENGINE=InnoDB PARTITION BY HASH (id) PARTITIONS 3; \
         INSERT INTO parts SELECT seq, seq FROM seq_1_to_500; \
         CREATE SEQUENCE numbers; SELECT NEXT VALUE FOR numbers; CREATE VIEW seen AS SELECT * FROM quiet"
    ));
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    server
}

fn url(server: &Server) -> String {
    format!("mariadb://root@127.0.0.1:{}", server.port())
}

fn backup(world: &World, server: &Server, options: &str) -> Ended {
    world.run(&format!("backup {} --password-file password {options}", url(server)))
}

/// Writers, until it is dropped.
struct Writers {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    fn start(server: &Server) -> Self {
        server.sql(
            "USE shop; CREATE TABLE go (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO go VALUES (1);\nDELIMITER //\n\
             CREATE PROCEDURE transfers() BEGIN WHILE EXISTS (SELECT * FROM go) DO \
             UPDATE a JOIN b SET a.amount = a.amount - 7, b.amount = b.amount + 7 WHERE a.id = 1 + FLOOR(RAND() * 299) AND b.id = a.id; \
             UPDATE c JOIN b SET b.amount = b.amount - 9, c.amount = c.amount + 9, b.pad = REVERSE(b.pad) WHERE c.id = 1 + FLOOR(RAND() * 299) AND b.id = 301 - c.id; \
             END WHILE; END//\nDELIMITER ;",
        );
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut threads = Vec::new();
        let mut spawn = |statement: fn(u64) -> String| {
            let (mut client, stop, rounds) = (server.client(), Arc::clone(&stop), Arc::clone(&rounds));
            threads.push(std::thread::spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    let text = statement(round);
                    let mut child = client.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
                    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
                    let ended = child.wait_with_output().unwrap();
                    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
                    round += 1;
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            }));
        };
        spawn(|_| "SET binlog_format=ROW; CALL shop.transfers()".into());
        spawn(|round| {
            format!(
                "USE shop; CREATE OR REPLACE TABLE made{0} ENGINE=InnoDB AS SELECT seq AS id, REPEAT('y', 99) AS t FROM seq_1_to_200; \
                 CREATE TABLE IF NOT EXISTS other (id INT, t VARCHAR(200)) ENGINE=InnoDB; RENAME TABLE made{0} TO swap, other TO made{0}, swap TO other; \
                 ALTER TABLE other ADD INDEX (id); TRUNCATE TABLE made{0}; ALTER TABLE other FORCE; DROP TABLE {1}",
                round % 5,
                if round % 2 == 0 { "other" } else { "made0" }
            )
            .replace("DROP TABLE made0", "DROP TABLE IF EXISTS made0")
        });
        spawn(|_| {
            "USE shop; INSERT INTO myisam (t) VALUES (REPEAT('m', 150)); INSERT INTO aria (t) VALUES (REPEAT('a', 150)), ('b')".into()
        });
        Self { stop, rounds, threads }
    }

    /// Waits until the short ones have done so much more.
    fn work(&self, rounds: u64) {
        let until = self.rounds.load(Ordering::Relaxed) + rounds;
        while self.rounds.load(Ordering::Relaxed) < until {
            assert!(self.threads.iter().all(|thread| !thread.is_finished()), "a writer has failed");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(self, server: &Server) {
        self.stop.store(true, Ordering::Relaxed);
        server.sql("DELETE FROM shop.go");
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

fn tables(server: &Server, more: &str) -> String {
    let names = server.sql(&format!(
        "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables WHERE \
         table_schema NOT IN ('information_schema', 'performance_schema', 'sys') AND engine NOT IN ('CSV', 'PERFORMANCE_SCHEMA') \
         AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') {more} ORDER BY 1"
    ));
    names.trim().replace('\n', ", ")
}

/// For a server that can read what `source` has encrypted.
fn with_keys_of(source: &Server) -> Options {
    let keys = source.keyring().unwrap().join("keys.txt");
    let keys = format!("file-key-management-filename={}", keys.display());
    Options::new().option("plugin-load-add=file_key_management").option(&keys)
}

/// Starts the series of `source` on the copy; the money is all there, and every table is whole.
fn started(source: &Server, copy: &Path, options: Options) -> Server {
    let options = options.datadir(copy).password_file(source.password_file().unwrap());
    let restored = Server::start(source.kind(), &options);
    let sum = "SELECT SUM(amount), COUNT(*) FROM (SELECT amount FROM shop.a UNION ALL SELECT amount FROM shop.b UNION ALL SELECT amount FROM shop.c) AS x";
    assert_eq!(restored.sql(sum).trim(), format!("{}\t{}", 3 * ROWS * AMOUNT, 3 * ROWS), "money was made or lost");
    let checked = restored.sql(&format!("CHECK TABLE {} EXTENDED", tables(&restored, "")));
    let bad: Vec<&str> = checked.lines().filter(|line| !line.ends_with("status\tOK")).collect();
    assert!(bad.is_empty() && checked.lines().count() > 30, "{bad:#?}");
    let log = restored.error_log();
    let bad: Vec<&str> = log.lines().filter(|line| line.contains("[ERROR]") || line.contains("orrupt")).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    restored
}

fn comes_back(kind: Kind) {
    let world = World::new();
    let source = server(&world, kind, &Options::new().binlog().option("binlog_format=ROW"));
    let still = "CHECKSUM TABLE shop.quiet, shop.squeezed, shop.parts";
    let quiet = source.sql(still);
    let writers = Writers::start(&source);
    writers.work(6);
    backup(&world, &source, "--to a/ --to b/ --compression zstd:1 --readers 3 --report json:report.json").done();
    writers.work(6);
    writers.end(&source);
    world.run("verify --from a --from b").done();
    let told = world.run("restore --from a --from b --into dir:copy").done().text();
    let manifest = &world.run("inspect files --json --from a --from b").done().json()[0];
    let position = &manifest["position"]["last"];
    let (file, offset) = (position["binary_log"]["file"].as_str().unwrap(), &position["binary_log"]["offset"]);
    assert!(told.contains(&format!("  binary log {file} position {offset}, GTID ")), "{told}");
    assert!(told.contains(&format!("  start the server on {}", world.at("copy").display())), "{told}");
    let went = manifest["streams"].as_array().unwrap().iter().filter(|stream| stream["name"] == "").count();
    assert!(went > 0, "files that went or changed while they were copied are on the media too: {manifest}");
    assert!(position["end_lsn"].as_u64() > position["checkpoint_lsn"].as_u64(), "{position}");
    assert!(position["blocked_ms"]["commits"].as_f64() > Some(0.0), "{position}");
    assert!(!world.at("copy/ddl_recovery.log").exists());
    let holes = fs::metadata(world.at("copy/shop/squeezed.ibd")).unwrap();
    assert!(
        std::os::unix::fs::MetadataExt::blocks(&holes) * 512 < holes.len() / 2,
        "compressed pages leave holes: {holes:?}"
    );
    if kind == Kind::Mariadb11 {
        the_independent_reader_makes_the_same_files(&world);
    }
    let restored = started(&source, &world.at("copy"), Options::new());
    assert_eq!(restored.sql(still), quiet);
    assert_the_log_leads_to_now(&source, &restored, position);
}

/// From the recorded position on, the binary log leads to what the source is now.
fn assert_the_log_leads_to_now(source: &Server, restored: &Server, position: &serde_json::Value) {
    let log = &position["binary_log"];
    let (file, offset) = (log["file"].as_str().unwrap(), log["offset"].as_u64().unwrap());
    let logs = source.sql("SHOW BINARY LOGS");
    let logs = logs.lines().filter_map(|line| line.split('\t').next()).filter(|name| *name >= file);
    let mut events = source.program("mariadb-binlog");
    events.arg(format!("--start-position={offset}")).args(logs.map(|name| source.datadir().join(name)));
    let mut events = events.stdout(Stdio::piped()).spawn().unwrap();
    let applied = restored.client().stdin(events.stdout.take().unwrap()).status().unwrap();
    assert!(applied.success() && events.wait().unwrap().success());
    let shop = "AND table_schema = 'shop'";
    let of = |server: &Server| server.sql(&format!("CHECKSUM TABLE {}", tables(server, shop)));
    assert_eq!(of(restored), of(source));
}

#[test]
fn a_differential_of_a_busy_server_comes_back_with_its_full_and_holds_what_changed() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb10, &Options::new().binlog().option("binlog_format=ROW"));
    source.sql(
        "USE shop; CREATE TABLE renamed AS SELECT * FROM quiet; CREATE TABLE dropped AS SELECT * FROM quiet; \
         CREATE TABLE emptied AS SELECT * FROM quiet; CREATE TABLE rebuilt AS SELECT * FROM quiet",
    );
    source.flush_pages();
    backup(&world, &source, "--to a/ --to a/ --compression none").done();
    world.run("verify --from a").done();
    let writers = Writers::start(&source);
    source.sql(
        "USE shop; RENAME TABLE renamed TO `named otherwise`; DROP TABLE dropped; TRUNCATE TABLE emptied; ALTER TABLE rebuilt FORCE; \
         UPDATE quiet SET t = 'changed' WHERE id IN (1, 10000, 20000); DELETE FROM squeezed WHERE id < 1000; CREATE TABLE late AS SELECT * FROM parts",
    );
    writers.work(6);
    let still = "CHECKSUM TABLE shop.quiet, shop.squeezed, shop.parts, shop.`named otherwise`, shop.emptied, shop.rebuilt, shop.late";
    let quiet = source.sql(still);
    backup(&world, &source, "--to b/ --to b/ --compression none --readers 3 --kind differential --base a").done();
    writers.work(6);
    writers.end(&source);
    let size = |folder: &str| -> usize {
        world.names(folder).iter().map(|name| world.read(&format!("{folder}/{name}")).len()).sum()
    };
    assert!(size("b") * 10 < size("a") * 9, "{} of {}", size("b"), size("a"));
    world.run("restore --from b --into dir:copy").with_code(3);
    world.run("verify --from a --from b").done();
    world.run("restore --from a --from b --into dir:copy").done();
    let restored = started(&source, &world.at("copy"), Options::new());
    assert_eq!(restored.sql(still), quiet);
    let manifests = world.run("inspect files --json --from b").done().json();
    assert_the_log_leads_to_now(&source, &restored, &manifests[0]["position"]["last"]);
    // That of another server is no base.
    let other = server(&world, Kind::Mariadb10, &Options::new().binlog().option("server_id=77"));
    let refused = backup(&world, &other, "--to d/ --mkdir --kind differential --base a").with_code(3);
    assert!(refused.err.contains("of another server"), "{refused}");
}

/// All files of the set in `a` and `b`, among them some that went while they were copied and are nowhere.
fn the_independent_reader_makes_the_same_files(world: &World) {
    fs::create_dir(world.at("reader")).unwrap();
    let media = ["a", "b"].map(|folder| format!("{folder}/{}", world.names(folder)[0]));
    let arguments = [&media[0], &media[1], "--stream-into", "reader"].map(str::to_owned);
    let Some(ended) = golden::python(world, "a server's files with the independent reader", &arguments) else { return };
    ended.done();
    let mut folders = vec![String::new()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        let (ours, theirs) = (world.names(&format!("copy/{folder}")), world.names(&format!("reader/{folder}")));
        assert_eq!(ours, theirs, "{folder}");
        for name in ours {
            let path = format!("{folder}{name}");
            if world.at("copy").join(&path).is_dir() {
                folders.push(format!("{path}/"));
            } else {
                files += 1;
                assert!(world.read(&format!("copy/{path}")) == world.read(&format!("reader/{path}")), "{path} differs");
            }
        }
    }
    assert!(files > 100, "{files}");
}

#[test]
fn a_busy_10_11_comes_back_from_two_stripes_with_every_table_and_its_place_in_the_binary_log() {
    comes_back(Kind::Mariadb10);
}

#[test]
fn a_busy_11_8_comes_back_from_two_stripes_with_every_table_and_its_place_in_the_binary_log() {
    comes_back(Kind::Mariadb11);
}

/// The lock is free: another backup can go through all stages at once.
fn assert_unlocked(server: &Server) {
    server.sql("SET lock_wait_timeout=3; BACKUP STAGE START; BACKUP STAGE BLOCK_COMMIT; BACKUP STAGE END");
}

#[test]
fn a_socket_is_as_good_and_a_data_directory_is_found_where_the_url_says() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    // As for a server in a container: the same directory under another name.
    std::os::unix::fs::symlink(source.datadir(), world.at("volume")).unwrap();
    let (socket, volume) = (source.socket().display(), world.at("volume").display().to_string());
    let line = format!("backup mariadb://root@/?socket={socket}&datadir={volume} --password-file password --to a/");
    world.run(&line).done();
    world.run("restore --from a --into dir:copy").done();
    started(&source, &world.at("copy"), Options::new());
    let names = world.names("a");
    assert!(names.len() == 1 && names[0].contains("sock"), "{names:?}");
}

#[test]
fn a_refused_backup_of_a_server_names_its_reason_and_leaves_nothing() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    let twin = Server::start(Kind::Mariadb11, &Options::new());
    fs::write(world.at("wrong"), "not-it").unwrap();
    fs::write(world.at("pw"), "secret").unwrap();
    source.sql(
        "CREATE USER weak IDENTIFIED BY 'secret'; GRANT RELOAD ON *.* TO weak; \
         CREATE USER enough IDENTIFIED BY 'secret'; CREATE ROLE backups; GRANT RELOAD, BINLOG MONITOR ON *.* TO backups; \
         GRANT backups TO enough; SET DEFAULT ROLE backups FOR enough",
    );
    let (url, port) = (url(&source), source.port());
    let refused = |source: &str, options: &str, said: &[&str]| {
        let ended =
            world.run(&format!("backup {source} {options} --to a/ --to b/")).with_code(1).says(said).says(&["hint: "]);
        assert!(!ended.err.contains("not-it") && !ended.err.contains("secret"), "{ended}");
        world.assert_no_media();
    };
    refused(&url, "--password-file wrong", &["Access denied"]);
    refused(&format!("mariadb://weak@127.0.0.1:{port}"), "--password-file pw", &["lacks the privilege BINLOG MONITOR"]);
    refused("mariadb://root@127.0.0.1:1", "--password-file password", &["127.0.0.1:1", "cannot be reached"]);
    // An empty server made from the same template: even its redo log stands at nearly the same place.
    let other = format!("{url}?datadir={}", twin.datadir().display());
    refused(&other, "--password-file password", &["the connected server", "datadir="]);
    refused(
        &format!("{url}?datadir={}", world.at("nowhere").display()),
        "--password-file password",
        &["nowhere", "own host"],
    );
    let differential = "--password-file password --kind differential --base a";
    assert_ne!(world.run(&format!("backup {url} {differential} --to b/")).code, 0);
    world
        .run(&format!("backup mysql://root@127.0.0.1:{port} --password-file password --to a/"))
        .with_code(2)
        .says(&["mariadb://"]);
    world.run(&format!("backup mariadb://root:secret@127.0.0.1:{port} --to a/")).with_code(2);
    assert_unlocked(&source);
    world.run(&format!("backup mariadb://enough@127.0.0.1:{port} --password-file pw --to a/")).done();
}

#[test]
fn files_that_this_user_may_not_read_are_named_before_anything_is_locked() {
    if !program::is_root() {
        return program::skipped("files that this user may not read", "only root can be another user than the server");
    }
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    // The server's files are nobody's; this user is no one at all, and has the program and the password only.
    let room = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(room.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for (from, name) in
        [(env!("CARGO_BIN_EXE_fullbore"), "fullbore"), (world.at("password").to_str().unwrap(), "password")]
    {
        fs::copy(from, room.path().join(name)).unwrap();
        fs::set_permissions(room.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(room.path().join("fullbore"));
    program::surroundings(&mut command, room.path());
    command.args(["backup", &url(&source), "--password-file", "password", "--to", "nul:"]);
    command.env("XDG_RUNTIME_DIR", room.path()).uid(54_321).gid(54_321);
    program::run(command).with_code(1).says(&[
        "cannot be read",
        "Permission denied",
        "the server's own user, or as root",
    ]);
    assert_unlocked(&source);
}

#[test]
fn a_series_that_is_not_tested_needs_consent_and_the_media_say_so() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new().option("version=11.7.99-MariaDB"));
    let refused = backup(&world, &source, "--to a/").with_code(1);
    assert!(refused.err.contains("11.7.99") && refused.err.contains("--accept-unverified"), "{refused}");
    world.assert_no_media();
    backup(&world, &source, "--to a/ --accept-unverified").with_code(4).says(&["not verified"]);
    let manifest = world.run("inspect files --json --from a").json();
    assert!(manifest[0]["warnings"][0].as_str().unwrap().contains("not verified"), "{manifest}");
}

#[test]
fn encrypted_tables_whose_last_changes_are_in_clear_in_the_log_need_encrypted_media() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new().encrypt());
    source.sql("DROP SEQUENCE shop.numbers; CREATE TABLE shop.secret (id INT PRIMARY KEY, t VARCHAR(99)) ENCRYPTED=YES ENCRYPTION_KEY_ID=2; INSERT INTO shop.secret VALUES (1, 'plain as day')");
    // As it stands first pages may be zero still; then with that table on disk.
    let refused = backup(&world, &source, "--to a/").with_code(1);
    assert!(refused.err.contains("encrypted") && refused.err.contains("--encrypt-to"), "{refused}");
    source.sql(&format!(
        "FLUSH TABLES {} FOR EXPORT",
        tables(&source, "AND table_schema = 'shop' AND engine = 'InnoDB'")
    ));
    let refused = backup(&world, &source, "--to a/").with_code(1);
    assert!(refused.err.contains("shop/secret.ibd") && refused.err.contains("--encrypt-to"), "{refused}");
    world.assert_no_media();
    assert_unlocked(&source);
    world.run("key new k.key --no-recovery").done();
    backup(&world, &source, "--to a/ --encrypt-to k.key.pub").done();
    world.run("restore --from a --key k.key --into dir:copy").done();
    let restored = started(&source, &world.at("copy"), with_keys_of(&source));
    assert_eq!(restored.sql("SELECT t FROM shop.secret").trim(), "plain as day");
    // With its log encrypted, nothing of such tables is in clear.
    let closed = server(&world, Kind::Mariadb10, &Options::new().encrypt().option("innodb_encrypt_log=ON"));
    closed.sql("CREATE TABLE shop.secret (id INT PRIMARY KEY) ENCRYPTED=YES; FLUSH TABLES shop.secret FOR EXPORT");
    backup(&world, &closed, "--to b/").done();
    let manifest = world.run("inspect files --json --from b").json();
    assert_eq!(manifest[0]["position"]["last"]["encrypted_tablespaces"].as_u64(), Some(1), "{manifest}");
}

#[test]
fn a_file_that_somebody_copied_beside_a_table_does_not_make_the_set_unreadable() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    source.sql("FLUSH TABLES shop.quiet FOR EXPORT");
    fs::copy(source.datadir().join("shop/quiet.ibd"), source.datadir().join("shop/quiet_before.ibd")).unwrap();
    backup(&world, &source, "--to a/").done();
    world.run("verify --from a").done();
    world.run("restore --from a --into dir:copy").done();
    assert!(world.at("copy/shop/quiet.ibd").is_file() && world.at("copy/shop/quiet_before.ibd").is_file());
}

/// One transaction, whose undo log grows while `work` runs. Then it is committed.
fn beside_a_growing_undo_log(server: &Server, work: impl FnOnce()) {
    server.sql(
        "USE shop; CREATE TABLE go (id INT PRIMARY KEY) ENGINE=Aria; INSERT INTO go VALUES (1);\nDELIMITER //\n\
         CREATE PROCEDURE grow() BEGIN SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; \
         WHILE EXISTS (SELECT * FROM go) DO UPDATE quiet SET t = REVERSE(t) WHERE id <= 300; DO SLEEP(0.05); END WHILE; \
         COMMIT; END//\nDELIMITER ;",
    );
    let mut client = server.client();
    let mut growing = client.args(["-e", "CALL shop.grow()"]).stdin(Stdio::null()).spawn().unwrap();
    let longest = "SELECT MAX(file_size) > 11 << 20 FROM information_schema.innodb_sys_tablespaces WHERE name LIKE 'innodb_undo%'";
    wait_until("the undo log grows", || server.sql(longest).trim() == "1");
    work();
    server.sql("DELETE FROM shop.go");
    assert!(growing.wait().unwrap().success());
}

#[test]
fn an_undo_tablespace_that_grows_meanwhile_is_restored_as_long_as_the_servers_own() {
    for encrypted in [false, true] {
        let world = World::new();
        let options = if encrypted { Options::new().encrypt().option("innodb_encrypt_log=ON") } else { Options::new() };
        let source = server(&world, Kind::Mariadb11, &options.option("innodb_undo_log_truncate=OFF"));
        beside_a_growing_undo_log(&source, || {
            backup(&world, &source, "--to a/ --readers 1 --throttle 32MiB/s").done();
        });
        world.run("restore --from a --into dir:copy").done();
        let manifest = &world.run("inspect files --json --from a").done().json()[0];
        let undo_bytes = &manifest["position"]["last"]["undo_bytes"];
        let mut grew = 0;
        for stream in manifest["streams"].as_array().unwrap() {
            let name = stream["name"].as_str().unwrap();
            let Some(number) = name.strip_prefix("undo00") else { continue };
            let (copied, own) = (stream["size"].as_u64().unwrap(), undo_bytes[number].as_u64().unwrap());
            grew += u64::from(own > copied);
            let restored = fs::metadata(world.at(&format!("copy/{name}"))).unwrap().len();
            assert!(restored >= own.max(copied), "{name} has {restored} bytes, and the server's own {own}");
        }
        assert!(grew > 0, "no undo tablespace grew after it was copied: {manifest}");
        let options = if encrypted { with_keys_of(&source) } else { Options::new() };
        started(&source, &world.at("copy"), options.option("innodb_buffer_pool_size=32M"));
    }
}

/// So slow that it lasts for minutes, and nobody waits for its end.
const SLOW: &str = "--throttle 64KiB/s --max-transfer-size 64KiB --to a/ --to b/";

fn begun_slowly(world: &World, source: &Server) -> Running {
    let running = world.start(&format!("backup {} --password-file password {SLOW}", url(source)));
    // Both its connections, and then something of the first stage.
    wait_until("they are there", || source.sql("SHOW PROCESSLIST").matches("127.0.0.1").count() >= 2);
    world.media_begun("b");
    running
}

#[test]
fn a_signal_in_the_middle_gives_the_lock_back_and_leaves_nothing() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let running = begun_slowly(&world, &source);
        running.signal(signal);
        let since = Instant::now();
        running.wait().with_code(code).says(&["cancelled by", "nothing usable was left behind"]);
        assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
        world.assert_no_media();
        assert_unlocked(&source);
    }
}

#[test]
fn a_server_that_is_killed_in_the_middle_ends_the_backup_and_nothing_looks_whole() {
    let world = World::new();
    let mut source = server(&world, Kind::Mariadb10, &Options::new());
    let (running, port) = (begun_slowly(&world, &source), source.port());
    source.kill();
    running.wait().with_code(1).says(&["error: ", &format!(":{port}"), "hint: "]);
    world.assert_no_media();
}

#[test]
fn a_restored_directory_is_started_once_and_every_table_checked() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb10, &Options::new());
    let run = |line: &str| world.run_as_nobody(line);
    // All of it as the server's own user, which needs no more.
    run(&format!("backup {} --password-file password --to a/ --to b/", url(&source))).done();
    let own = source.program("mariadbd").get_program().to_str().unwrap().to_owned();
    run("restore --from a --from b --into dir:quick --check quick").with_code(0);
    let line = "restore --from a --from b --into dir:copy --check full";
    if program::is_root() {
        world.run(&format!("{line} --server-program {own}")).with_code(2).says(&["would run as root", "sudo -u mysql"]);
    }
    let other = own.replace(Kind::Mariadb10.name(), Kind::Mariadb11.name());
    run(&format!("{line} --server-program {other}")).refused(1, "mariadbd", "has version 11.8");
    run(&format!("{line} --server-program {own} --server-option no-such-option")).refused(
        1,
        "mariadbd",
        "no-such-option",
    );
    assert!(!world.names(".").iter().any(|name| name.starts_with("copy")), "{:?}", world.names("."));
    let ended = run(&format!("{line} --server-program {own} --report json:report.json")).done();
    assert!(ended.text().contains("tables are OK"), "{ended}");
    let report: serde_json::Value = serde_json::from_slice(&world.read("report.json")).unwrap();
    let started_once = &report["start_check"];
    assert!(started_once["tables"].as_u64() > Some(30) && started_once["ready_s"].as_f64() > Some(0.0), "{report}");
    started(&source, &world.at("copy"), Options::new());
}

#[test]
fn a_signal_while_the_restored_server_starts_ends_it_too() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    backup(&world, &source, "--to a/").done();
    let own = source.program("mariadbd").get_program().to_str().unwrap().to_owned();
    let line = format!("restore --from a --into dir:copy --start-check --server-program {own}");
    let running = program::start(world.as_nobody(&line));
    let mine = format!("fullbore-start-{}-", running.child.id());
    let private = || {
        let mut entries = fs::read_dir(std::env::temp_dir()).unwrap().map(|entry| entry.unwrap().path());
        entries.find(|path| path.file_name().unwrap().to_string_lossy().starts_with(&mine))
    };
    // The file is there before its number.
    let pid = || fs::read_to_string(private()?.join("pid")).ok().filter(|pid| pid.ends_with('\n'));
    wait_until("the private server starts", || pid().is_some());
    let server = pid().unwrap();
    running.signal("INT");
    running.wait().with_code(130);
    assert!(private().is_none() && !Path::new("/proc").join(server.trim()).exists(), "{server}");
    assert!(!world.names(".").iter().any(|name| name.starts_with("copy")), "{:?}", world.names("."));
}

#[test]
fn a_table_that_was_damaged_where_it_came_from_is_named_by_the_start_check() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    source.sql(
        "USE shop; INSERT INTO shop.myisam (t) SELECT REPEAT('m', 150) FROM seq_1_to_500; FLUSH TABLES shop.myisam",
    );
    // Nothing but the server knows what such a file has to be like.
    let damaged = fs::File::options().write(true).open(source.datadir().join("shop/myisam.MYD")).unwrap();
    damaged.set_len(40_000).unwrap();
    backup(&world, &source, "--to a/").done();
    let own = source.program("mariadbd").get_program().to_str().unwrap().to_owned();
    let line = format!("restore --from a --into dir:copy --start-check --server-program {own}");
    let ended = world.run_as_nobody(&line);
    ended.with_code(3).says(&["1 of", "tables of the restored server are not OK: shop.myisam"]);
    assert!(!world.names(".").iter().any(|name| name.starts_with("copy")), "{:?}", world.names("."));
}

#[test]
fn a_page_that_is_damaged_at_the_source_ends_the_backup_unless_it_was_asked_to_go_on() {
    let world = World::new();
    let mut source = server(&world, Kind::Mariadb11, &Options::new());
    source.stop();
    let table = fs::File::options().write(true).open(source.datadir().join("shop/quiet.ibd")).unwrap();
    table.write_all_at(b"not what was written here", 6 * 16384 + 1000).unwrap();
    source.start_again(&Options::new());
    let refused = backup(&world, &source, "--to a/").with_code(1);
    assert!(refused.err.contains("shop/quiet.ibd: page 6 is damaged in the server's own file"), "{refused}");
    assert_eq!(world.names("a"), Vec::<String>::new());
    assert_unlocked(&source);
    backup(&world, &source, "--to a/ --continue-after-error")
        .with_code(4)
        .says(&["damaged in the server's own files: 1 page ", "quiet.ibd"]);
    let refused = world.run("restore --from a --into dir:copy").with_code(1);
    assert!(refused.err.contains("damaged already") && !world.at("copy").exists(), "{refused}");
    world
        .run("restore --from a --into dir:copy --continue-after-error --check quick")
        .with_code(4)
        .says(&["page 6 of `shop/quiet.ibd`", "was damaged already when it was backed up"]);
    // Apart from this table, everything is there.
    let options = Options::new().datadir(&world.at("copy")).password_file(source.password_file().unwrap());
    let restored = Server::start(Kind::Mariadb11, &options);
    assert_eq!(restored.sql("SELECT COUNT(*) FROM shop.a").trim(), ROWS.to_string());
}

#[test]
fn a_restore_fills_a_file_system_of_its_own_and_gives_the_files_to_the_server() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    backup(&world, &source, "--to a/").done();
    let (user, group) = if program::is_root() { (64_123, 64_124) } else { owner_of(world.folder()) };
    world.run(&format!("restore --from a --into dir:copy --owner {user}:{group}")).done();
    for name in ["", "shop", "shop/quiet.ibd", "ibdata1", "mysql/user.frm"] {
        let path = world.at("copy").join(name);
        assert!(!path.exists() || owner_of(&path) == (user, group), "{}", path.display());
    }
    world.run("restore --from a --into dir:other --owner nobody-of-that-name").with_code(2).says(&["--owner"]);
    let test = "a_restore_fills_a_file_system_of_its_own_and_gives_the_files_to_the_server";
    let disk = world.at("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=600m", "tmpfs"]).arg(&disk).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return program::skipped(test, "nothing can be mounted here");
    }
    let seen = std::panic::catch_unwind(|| {
        // Ended in the middle, nothing is left there; then it is filled.
        let name = &world.names("a")[0];
        let mut family = world.read(&format!("a/{name}"));
        let middle = family.len() / 2;
        family[middle] ^= 1;
        fs::write(world.at("b").join(name), family).unwrap();
        let ended = world.run("restore --from b --into dir:disk").with_code(3);
        assert!(world.names("disk").is_empty(), "{ended}");
        world.run("restore --from a --into dir:disk").done();
        world.run("restore --from a --into dir:disk").with_code(1).says(&["is not empty"]);
        let same = Command::new("diff").arg("-r").arg(world.at("copy")).arg(&disk).output().unwrap();
        assert!(same.status.success(), "{same:?}");
    });
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    seen.unwrap();
}

fn owner_of(path: &Path) -> (u32, u32) {
    let stat = fs::symlink_metadata(path).unwrap();
    (std::os::unix::fs::MetadataExt::uid(&stat), std::os::unix::fs::MetadataExt::gid(&stat))
}

#[test]
fn a_table_outside_of_the_data_directory_is_never_opened_where_its_source_stands() {
    let world = World::new();
    let mut source = server(&world, Kind::Mariadb11, &Options::new());
    let outside = source.tablespaces().display().to_string();
    source.sql(&format!(
        "USE shop; CREATE TABLE shop.remote (id INT PRIMARY KEY) ENGINE=InnoDB DATA DIRECTORY='{outside}'; INSERT INTO shop.remote SELECT seq FROM seq_1_to_1000"
    ));
    backup(&world, &source, "--to a/").with_code(4).says(&["DATA DIRECTORY", "shop/remote.ibd"]);
    let refused = world.run("restore --from a --into dir:copy").with_code(1);
    assert!(refused.err.contains("shop/remote.ibd") && refused.err.contains("would open it"), "{refused}");
    source.stop();
    let there = source.tablespaces().join("shop");
    fs::rename(&there, there.with_extension("away")).unwrap();
    let ended =
        world.run("restore --from a --into dir:copy").with_code(4).says(&["before the server is started, move"]);
    assert!(ended.err.contains("`shop/remote.ibd` to `"), "{ended}");
    assert!(!there.exists());
    // Placed where it stood, as that server's user; then the server finds its table.
    let (user, group) = owner_of(source.tablespaces());
    let placed = format!("restore --from a --into dir:placed --place-outside --owner {user}:{group}");
    world.run(&placed).with_code(1).says(&["remote.ibd", "does not exist", "--mkdir"]);
    assert!(!world.at("placed").exists() && !there.exists());
    world.run(&format!("{placed} --mkdir")).done();
    assert!(!world.at("placed/shop/remote.ibd").exists() && owner_of(&there.join("remote.ibd")) == (user, group));
    std::os::unix::fs::chown(&there, Some(user), Some(group)).unwrap();
    let restored = started(&source, &world.at("placed"), Options::new());
    assert_eq!(restored.sql("SELECT COUNT(*) FROM shop.remote").trim(), "1000");
}
