//! Single tables taken out of the backup of a real server that is written to, and imported into another database of it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fullbore_test_servers::{Kind, Options, Server, wait_until};

use crate::program::{self, Ended};
use crate::world::World;

/// In so many rows of a table, and so much in each.
const ROWS: u64 = 500;
const AMOUNT: u64 = 1000;

fn is_mysql(kind: Kind) -> bool {
    kind == Kind::Mysql9
}

/// A server with tables of many kinds, and its password file in the world's folder.
fn server(world: &World, kind: Kind, options: &Options) -> Server {
    let server = Server::start(kind, options);
    server.sql(&format!(
        "SET NAMES utf8mb4; {} CREATE DATABASE shop; CREATE DATABASE `my shop`; CREATE DATABASE again; USE shop; \
         CREATE TABLE numbers (id INT PRIMARY KEY) ENGINE=InnoDB; \
         INSERT INTO numbers WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT i FROM n; \
         CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(300), twice INT GENERATED ALWAYS AS (id * 2) STORED, KEY (name), KEY (twice)) ENGINE=InnoDB; \
         INSERT INTO item (id, name) SELECT id, REPEAT(SHA2(id, 256), 4) FROM numbers; \
         CREATE TABLE busy (id INT PRIMARY KEY, amount BIGINT NOT NULL, pad VARCHAR(300)) ENGINE=InnoDB; \
         INSERT INTO busy SELECT id, {AMOUNT}, REPEAT('x', 200) FROM numbers WHERE id <= {ROWS}; \
         CREATE TABLE child (id INT PRIMARY KEY, item INT, FOREIGN KEY (item) REFERENCES item (id)) ENGINE=InnoDB; \
         INSERT INTO child SELECT id, id FROM numbers WHERE id <= 100; \
         CREATE TABLE small (id INT PRIMARY KEY, t TEXT) ENGINE=InnoDB ROW_FORMAT=COMPRESSED; \
         INSERT INTO small SELECT id, REPEAT(id, 50) FROM numbers; \
         CREATE TABLE parts (id INT PRIMARY KEY, v INT) ENGINE=InnoDB PARTITION BY HASH (id) PARTITIONS 3; INSERT INTO parts SELECT id, id FROM numbers; \
         CREATE TABLE `my shop`.`t-x größe` (id INT PRIMARY KEY, t VARCHAR(100)) ENGINE=InnoDB; INSERT INTO `my shop`.`t-x größe` SELECT id, 'ä' FROM numbers; \
         CREATE TABLE other (id INT PRIMARY KEY, t VARCHAR(200)) ENGINE=InnoDB; INSERT INTO other SELECT id, REPEAT('o', 150) FROM numbers; \
         CREATE TABLE old (id INT PRIMARY KEY) ENGINE=MyISAM; INSERT INTO old VALUES (1); CREATE VIEW seen AS SELECT * FROM item",
        if is_mysql(kind) { "SET SESSION cte_max_recursion_depth = 10000;" } else { "SET SESSION max_recursive_iterations = 10000;" }
    ));
    if is_mysql(kind) {
        server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
    } else {
        server.sql("USE shop; CREATE TABLE squeezed (id INT PRIMARY KEY, t TEXT) ENGINE=InnoDB PAGE_COMPRESSED=1; INSERT INTO squeezed SELECT id, REPEAT(id, 300) FROM numbers");
    }
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    server
}

/// All of it as the server's own user.
fn backup(world: &World, server: &Server, options: &str) -> Ended {
    let scheme = if is_mysql(server.kind()) { "mysql" } else { "mariadb" };
    world.run_as_nobody(&format!(
        "backup {scheme}://root@127.0.0.1:{} --password-file password {options}",
        server.port()
    ))
}

fn program_of(server: &Server) -> String {
    let name = if is_mysql(server.kind()) { "mysqld" } else { "mariadbd" };
    server.program(name).get_program().to_str().unwrap().to_owned()
}

/// Runs the restore of `tables` from the directories `from` into `dir:out`; words are parted by `|`, for names with blanks.
fn take(world: &World, server: &Server, line: &str) -> Ended {
    let mut command = world.as_nobody("restore");
    command.args(line.split('|')).args(["--into", "dir:out", "--server-program", &program_of(server)]);
    program::run(command)
}

/// Writers, until they are ended: money moves between rows, other tables are written, made, renamed and dropped.
struct Writers {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    transfers: Child,
    ddl: JoinHandle<()>,
}

impl Writers {
    fn start(server: &Server) -> Self {
        server.sql(
            "USE shop; CREATE TABLE go (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO go VALUES (1);\nDELIMITER //\n\
             CREATE PROCEDURE transfers() BEGIN DECLARE a, b INT; WHILE EXISTS (SELECT * FROM go) DO \
             SET a = 1 + FLOOR(RAND() * 500), b = 1 + FLOOR(RAND() * 500); \
             UPDATE busy SET amount = amount + IF(id = a, -7, 7), pad = REVERSE(pad) WHERE id IN (a, b) AND a <> b; \
             UPDATE other SET t = REVERSE(t) WHERE id = a; INSERT INTO other VALUES (10000 + b, 'n') ON DUPLICATE KEY UPDATE t = SHA2(t, 256); \
             END WHILE; END//\nDELIMITER ;",
        );
        let transfers = server.client().args(["--execute", "CALL shop.transfers()"]).spawn().unwrap();
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (mut client, stopped, counted) = (server.client(), Arc::clone(&stop), Arc::clone(&rounds));
        client.args(["--execute", "USE shop; CREATE TABLE made (id INT PRIMARY KEY, t VARCHAR(99)); INSERT INTO made SELECT id, SHA2(id, 256) FROM numbers WHERE id < 300; \
             CREATE TABLE more LIKE made; RENAME TABLE made TO renamed; ALTER TABLE renamed ADD KEY (t), ALGORITHM=INPLACE; TRUNCATE TABLE renamed; DROP TABLE renamed, more"]);
        let ddl = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                assert!(client.status().unwrap().success());
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { stop, rounds, transfers, ddl }
    }

    fn work(&self, rounds: u64) {
        let until = self.rounds.load(Ordering::Relaxed) + rounds;
        while self.rounds.load(Ordering::Relaxed) < until {
            assert!(!self.ddl.is_finished(), "a writer has failed");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(mut self, server: &Server) {
        self.stop.store(true, Ordering::Relaxed);
        server.sql("DELETE FROM shop.go");
        assert!(self.transfers.wait().unwrap().success());
        self.ddl.join().unwrap();
    }
}

/// A transaction that is never committed: its rows are on the media, and must not be in what is imported.
struct Open(Child);

impl Open {
    fn start(server: &Server) -> Self {
        let mut client = server.client();
        let statements = "USE shop; BEGIN; DELETE FROM small WHERE id <= 2500; UPDATE small SET t = 'never' WHERE id > 4000; DO SLEEP(600)";
        let open = Self(client.args(["--execute", statements]).stderr(Stdio::null()).spawn().unwrap());
        wait_until("the transaction has changed its rows", || with_many_changes(server) == "1");
        open
    }

    fn roll_back(&mut self, server: &Server) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        let id = server.sql("SELECT id FROM information_schema.processlist WHERE info LIKE 'DO SLEEP%'");
        let _ = server.try_sql(&format!("KILL {}", id.trim())); // It may have noticed by itself.
        wait_until("the transaction is rolled back", || with_many_changes(server) == "0");
    }
}

/// How many transactions have changed many rows. InnoDB makes this list anew only when nobody has read it for 100 ms.
fn with_many_changes(server: &Server) -> String {
    let many = "DO SLEEP(0.3); SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_rows_modified >= 3500";
    server.sql(many).trim().to_owned()
}

/// Does what the file of statements says, in the database `again`.
fn import(world: &World, server: &Server, file: &str) {
    let text = world.text(&format!("out/{file}"));
    let (make, rest) = text.split_once("\n-- 2. ").unwrap();
    let (copies, load) = rest.split_once("\n-- 3. ").unwrap();
    server.sql(&format!("USE again;\n{make}"));
    let folder = server.datadir().join("again");
    let owner = fs::metadata(&folder).unwrap();
    for line in copies.lines().filter_map(|line| line.strip_prefix("--    ")).filter(|line| line.contains('/')) {
        let (from, to) = line.split_once(" -> ").unwrap_or((line, line.rsplit_once('/').unwrap().1));
        fs::copy(world.at("out").join(from), folder.join(to)).unwrap();
        std::os::unix::fs::chown(folder.join(to), Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    server.sql(&format!("USE again;\n-- {load}"));
}

/// Imports the table and compares it with where it came from.
#[track_caller]
fn assert_imported(world: &World, server: &Server, file: &str, from: &str, table: &str) {
    import(world, server, file);
    let checked = server.sql(&format!("CHECK TABLE again.{table}"));
    assert!(checked.trim().ends_with("status\tOK"), "{checked}");
    // MariaDB's CHECKSUM TABLE differs from time to time where a column is generated.
    let differ = |one: &str, other: &str| {
        server
            .sql(&format!("SELECT COUNT(*) FROM (SELECT * FROM {one} EXCEPT SELECT * FROM {other}) AS x"))
            .trim()
            .to_owned()
    };
    let (here, there) = (format!("again.{table}"), format!("{from}.{table}"));
    assert_eq!((&differ(&here, &there)[..], &differ(&there, &here)[..]), ("0", "0"), "{table}");
    assert_ne!(server.sql(&format!("SELECT COUNT(*) FROM {here}")).trim(), "0");
}

fn only_out_is_left(world: &World, also_out: bool) {
    let left: Vec<String> = world.names(".").into_iter().filter(|name| name.starts_with("out")).collect();
    assert_eq!(left, if also_out { vec!["out".to_owned()] } else { vec![] });
}

/// Tables of several kinds, from a full that was made under writers.
fn taken_out_and_imported(kind: Kind) {
    let world = World::new();
    let source = server(&world, kind, &Options::new().binlog());
    let writers = Writers::start(&source);
    writers.work(3);
    let mut open = Open::start(&source);
    let ended = backup(&world, &source, "--to a/ --to b/ --compression zstd:1 --readers 2");
    assert!(matches!(ended.code, 0 | 4), "{ended}");
    open.roll_back(&source);
    writers.work(2);
    writers.end(&source);
    let tables = "--table|shop.item|--table|shop.busy|--table|shop.child|--table|shop.small|--table|my shop.t-x größe";
    let more = if is_mysql(kind) { "" } else { "|--table|shop.squeezed" };
    let ended = take(&world, &source, &format!("--from|a|--from|b|{tables}{more}|--report|json:report.json"));
    assert_eq!(ended.code, 0, "{ended}");
    only_out_is_left(&world, true);
    let report: serde_json::Value = serde_json::from_slice(&world.read("report.json")).unwrap();
    let taken = &report["tables"];
    assert!(taken["passed_over_bytes"].as_u64() > Some(0) && taken["ready_s"].as_f64() > Some(0.0), "{taken}");
    assert_eq!(taken["tables"][0]["table"], "shop.item", "{taken}");
    assert!(!world.names("out/shop").iter().any(|name| name.starts_with("other")), "{:?}", world.names("out/shop"));
    assert_imported(&world, &source, "shop.item.sql", "shop", "item");
    assert_imported(&world, &source, "shop.child.sql", "shop", "child");
    assert_imported(&world, &source, "shop.small.sql", "shop", "small");
    let special = taken["tables"][4]["files"].as_array().unwrap().last().unwrap().as_str().unwrap();
    assert!(special.starts_with("my@0020shop.t@002dx@0020gr"), "{special}");
    assert_imported(&world, &source, special, "`my shop`", "`t-x größe`");
    if !is_mysql(kind) {
        assert_imported(&world, &source, "shop.squeezed.sql", "shop", "squeezed");
    }
    // The money is all there, as of the backup: the writers have gone on since.
    import(&world, &source, "shop.busy.sql");
    let sums = source.sql("CHECK TABLE again.busy; SELECT SUM(amount), COUNT(*) FROM again.busy");
    assert!(sums.trim().ends_with(&format!("status\tOK\n{}\t{ROWS}", ROWS * AMOUNT)), "{sums}");
}

#[test]
fn tables_of_a_busy_mysql_are_taken_out_and_imported() {
    taken_out_and_imported(Kind::Mysql9);
}

#[test]
fn tables_of_a_busy_10_11_are_taken_out_and_imported() {
    taken_out_and_imported(Kind::Mariadb10);
}

#[test]
fn tables_of_a_busy_11_8_are_taken_out_and_imported() {
    taken_out_and_imported(Kind::Mariadb11);
}

/// A partitioned table, and one that has changed since the full.
fn from_a_differential(kind: Kind) {
    let world = World::new();
    let source = server(&world, kind, &Options::new().binlog());
    assert!(matches!(backup(&world, &source, "--to a/ --compression none").code, 0 | 4));
    source.sql("USE shop; UPDATE item SET name = 'changed' WHERE id IN (1, 2500, 5000); DELETE FROM item WHERE id = 777; UPDATE parts SET v = -v WHERE id % 100 = 0; \
                CREATE TABLE late AS SELECT * FROM item; DROP TABLE other");
    assert!(matches!(backup(&world, &source, "--to b/ --kind differential --base a").code, 0 | 4));
    let ended = take(&world, &source, "--from|a|--from|b|--table|shop.item|--table|shop.parts|--table|shop.late");
    assert_eq!(ended.code, 0, "{ended}");
    for table in ["item", "parts", "late"] {
        assert_imported(&world, &source, &format!("shop.{table}.sql"), "shop", table);
    }
}

#[test]
fn a_table_of_a_mysql_full_and_differential_has_the_later_state_with_its_partitions() {
    from_a_differential(Kind::Mysql9);
}

#[test]
fn a_table_of_a_10_11_full_and_differential_has_the_later_state_with_its_partitions() {
    from_a_differential(Kind::Mariadb10);
}

#[test]
fn a_table_of_an_11_8_full_and_differential_has_the_later_state_with_its_partitions() {
    from_a_differential(Kind::Mariadb11);
}

fn refusals(kind: Kind) {
    let world = World::new();
    let source = server(&world, kind, &Options::new());
    assert!(matches!(backup(&world, &source, "--to a/").code, 0 | 4));
    let take = |line: &str| take(&world, &source, &format!("--from|a|{line}"));
    take("--table|shop.itme").refused(2, "table shop.itme", "it has shop.item");
    take("--table|item").refused(2, "--table item", "the database is missing");
    if is_mysql(kind) {
        take("--table|shop.seen").refused(2, "table shop.seen", "views, tables of other engines");
    } else {
        take("--table|shop.seen").refused(1, "table shop.seen", "it is a view");
        take("--table|shop.old").refused(1, "table shop.old", "a table of MyISAM");
    }
    let wrong = take("--table|shop.item|--server-option|no-such-option");
    wrong.refused(1, &program_of(&source), "no-such-option");
    if program::is_root() {
        let line =
            format!("restore --from a --into dir:out --table shop.item --server-program {}", program_of(&source));
        world.run(&line).with_code(2).says(&["--table", "would run as root"]);
    }
    only_out_is_left(&world, false);
    fs::create_dir(world.at("out")).unwrap();
    fs::write(world.at("out/mine"), "mine").unwrap();
    take("--table|shop.item").refused(1, "out", "is not empty");
    only_out_is_left(&world, true);
    assert_eq!(world.names("out"), ["mine"]);
}

#[test]
fn unsupported_tables_of_a_mysql_are_refused_by_name() {
    refusals(Kind::Mysql9);
}

#[test]
fn unsupported_tables_of_a_mariadb_are_refused_by_name() {
    refusals(Kind::Mariadb11);
}

#[test]
fn a_signal_while_the_private_server_works_leaves_nothing() {
    let world = World::new();
    let source = server(&world, Kind::Mariadb11, &Options::new());
    backup(&world, &source, "--to a/").done();
    let line = format!("restore --from a --into dir:out --table shop.item --server-program {}", program_of(&source));
    let running = program::start(world.as_nobody(&line));
    let mine = format!("fullbore-start-{}-", running.child.id());
    let private = || {
        let mut entries = fs::read_dir(std::env::temp_dir()).unwrap().map(|entry| entry.unwrap().path());
        entries.find(|path| path.file_name().unwrap().to_string_lossy().starts_with(&mine))
    };
    wait_until("the private server starts", || private().is_some());
    running.signal("TERM");
    running.wait().with_code(143);
    assert!(private().is_none());
    only_out_is_left(&world, false);
}

#[test]
fn a_table_of_a_file_is_no_table_of_a_server() {
    let world = World::with_small_set("");
    world.run("restore --from a --into dir:out --table shop.item").refused(2, "--table", "tables can only be taken");
    only_out_is_left(&world, false);
}

/// Of the server that `again` is a database of, with an encrypted table `secret` and one with words to search for.
fn encrypted(kind: Kind) {
    let world = World::new();
    let source = server(&world, kind, &Options::new().encrypt());
    let option = if is_mysql(kind) { "ENCRYPTION='Y'" } else { "ENCRYPTED=YES ENCRYPTION_KEY_ID=2" };
    source.sql(&format!(
        "USE shop; CREATE TABLE secret (id INT PRIMARY KEY, t VARCHAR(300)) ENGINE=InnoDB {option}; INSERT INTO secret SELECT id, REPEAT('secret', 20) FROM numbers"
    ));
    // As the server's user, who alone may read it.
    fs::create_dir(world.at("keys")).unwrap();
    world.run("key new keys/k.key --no-recovery").done();
    if program::is_root() {
        std::os::unix::fs::chown(world.at("keys/k.key"), Some(65_534), Some(65_534)).unwrap();
    }
    assert!(matches!(backup(&world, &source, "--to a/ --encrypt-to keys/k.key.pub").code, 0 | 4));
    let options = match kind {
        Kind::Mysql9 => String::new(),
        _ => {
            let keys = source.keyring().unwrap().join("keys.txt");
            let keys = keys.display();
            format!(
                "|--server-option|plugin-load-add=file_key_management|--server-option|file-key-management-filename={keys}"
            )
        }
    };
    let ended = take(&world, &source, &format!("--from|a|--key|keys/k.key|--table|shop.secret{options}"));
    assert_eq!(ended.code, 0, "{ended}");
    let words = |name: &str| world.read(name).windows(12).any(|bytes| bytes == b"secretsecret");
    assert!(!words("out/shop/secret.ibd"), "it is stored in clear");
    assert_eq!(world.at("out/shop/secret.cfp").exists(), is_mysql(kind));
    assert_imported(&world, &source, "shop.secret.sql", "shop", "secret");
}

#[test]
fn an_encrypted_table_of_a_mysql_stays_encrypted_and_is_imported() {
    encrypted(Kind::Mysql9);
}

#[test]
fn an_encrypted_table_of_a_mariadb_stays_encrypted_and_is_imported() {
    encrypted(Kind::Mariadb11);
}
