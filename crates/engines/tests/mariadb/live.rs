//! Hot copies of servers that are written to, started again and checked.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_engines::mariadb::hot_copy::{Options, Outcome};
use fullbore_test_servers::{Kind, Options as ServerOptions, Server};
use tempfile::TempDir;

use crate::client::Client;
use crate::directory::{Directory, Meanwhile, Nothing, Target, copy_into};
use crate::restored;
use crate::workload::{self, Workload};

/// A directory that the server's user can reach.
pub fn room() -> TempDir {
    let directory = tempfile::Builder::new().prefix("fullbore-copy-").tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Copies with two connections of its own; the bytes that were read too.
pub fn copy_to(server: &Server, target: &dyn Target, options: &Options) -> Result<(Outcome, u64)> {
    copy_into(target, Client::connect(server), Client::connect(server), options.threads, options)
}

pub fn copy(server: &Server, to: &Path) -> Outcome {
    // No two tests are to share a halt.
    let options = Options { halt: Halt::new(), ..Options::default() };
    copy_to(server, &Directory::new(to), &options).unwrap().0
}

/// A few copies under load; each is started and checked. Returns how many pages were torn.
/// `made_with` are options that the restored server needs too.
fn survives(kind: Kind, server_options: &ServerOptions, made_with: &ServerOptions, tables: &str, rounds: u64) -> u64 {
    let server = Server::start(kind, server_options);
    workload::prepare(&server, tables);
    let mut torn = 0;
    for round in 0..rounds {
        let room = room();
        let target = room.path().join("data");
        let workload = Workload::start(&server, round + 1);
        workload.warm_up();
        let outcome = copy(&server, &target);
        assert!(workload.is_well());
        let done = workload.done();
        drop(workload);
        eprintln!(
            "{} round {round}: {:?}, {} files, blocked {:?}, while blocked {} tablespaces and {} others, {} torn \
             pages; {done:?} by the writers",
            server.version(),
            outcome.elapsed,
            outcome.files.len(),
            outcome.blocked,
            outcome.copied_while_blocked,
            outcome.others_while_blocked,
            outcome.torn_pages,
        );
        assert!(outcome.damaged.is_empty() && outcome.end_lsn > outcome.checkpoint.lsn);
        torn += outcome.torn_pages;
        let mut options = made_with.clone();
        if let Some(keyring) = server.keyring() {
            let keys = format!("file-key-management-filename={}", keyring.join("keys.txt").display());
            options = options.option("plugin-load-add=file_key_management").option(&keys);
        }
        let copied = restored::check(&server, &target, options);
        // The rows from before the copy are in it.
        assert_eq!(copied.sql("SELECT COUNT(*) FROM shop.old; SELECT * FROM shop.csv"), "3\n1\tone\n");
    }
    torn
}

/// Copies in a row: `FULLBORE_COPY_ROUNDS`.
fn rounds() -> u64 {
    std::env::var("FULLBORE_COPY_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

#[test]
fn copies_of_a_busy_10_11_start_and_are_whole() {
    let plain = ServerOptions::new();
    survives(Kind::Mariadb10, &plain.clone().binlog(), &plain, "", rounds());
}

#[test]
fn copies_of_a_busy_11_8_start_and_are_whole() {
    let plain = ServerOptions::new();
    survives(Kind::Mariadb11, &plain.clone().binlog(), &plain, "", rounds());
}

#[test]
fn encrypted_tables_with_an_encrypted_log_are_copied_without_a_key() {
    for kind in Kind::MARIADB {
        let options =
            ServerOptions::new().encrypt().option("innodb_encrypt_log=ON").option("encrypt_binlog=ON").binlog();
        survives(kind, &options, &ServerOptions::new(), "ENCRYPTED=YES ENCRYPTION_KEY_ID=2", 1);
    }
}

#[test]
fn compressed_pages_and_rows_and_other_page_sizes_are_copied() {
    let plain = ServerOptions::new();
    let crc32 = plain.clone().option("innodb_checksum_algorithm=crc32");
    let (small, large) = (plain.clone().page_size("4k"), plain.clone().page_size("64k"));
    survives(Kind::Mariadb11, &plain, &plain, "PAGE_COMPRESSED=1", 1);
    survives(Kind::Mariadb10, &crc32, &plain, "PAGE_COMPRESSED=1", 1);
    survives(Kind::Mariadb10, &plain, &plain, "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4", 1);
    survives(Kind::Mariadb11, &large, &large, "", 1);
    survives(Kind::Mariadb10, &small.clone().redo("8M"), &small, "", 1);
}

#[test]
fn undo_tablespaces_that_are_truncated_are_copied() {
    let options = ServerOptions::new()
        .option("innodb_undo_tablespaces=3")
        .option("innodb_undo_log_truncate=ON")
        .option("innodb_max_undo_log_size=10M");
    survives(Kind::Mariadb10, &options, &ServerOptions::new(), "", 1);
}

/// Recovery writes to the log as well, before it makes its first checkpoint.
#[test]
fn a_server_with_a_small_log_has_room_in_it_while_it_recovers() {
    /// Of a log of 4 MiB.
    const NEARLY_ALL: u64 = 4_100_000;
    for kind in Kind::MARIADB {
        let source = Server::start(kind, &ServerOptions::new().redo("4M"));
        source.sql(
            "CREATE DATABASE shop; USE shop; CREATE TABLE large ENGINE=InnoDB SELECT seq AS id, REPEAT(MD5(seq), 30) \
             AS v FROM seq_1_to_40000; CREATE TABLE shop.small (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(1000)) \
             ENGINE=InnoDB",
        );
        source.flush_pages();
        let lsn = || {
            let said = source.sql("SHOW GLOBAL STATUS LIKE 'Innodb_lsn_current'");
            said.trim().split('\t').nth(1).unwrap().parse::<u64>().unwrap()
        };
        let before = lsn();
        let write = || {
            while lsn() < before + NEARLY_ALL {
                source.sql("USE shop; INSERT INTO small (v) SELECT REPEAT(MD5(seq), 30) FROM seq_1_to_200");
            }
        };
        let room = room();
        let to = room.path().join("data");
        let target = Meanwhile::new(&to, write);
        let options = Options { threads: 1, halt: Halt::new(), ..Options::default() };
        let (outcome, _) = copy_to(&source, &target, &options).unwrap();
        assert!(target.has_acted() && outcome.end_lsn - outcome.checkpoint.lsn >= NEARLY_ALL);
        let options = ServerOptions::new().redo("4M").datadir(&to).password_file(source.password_file().unwrap());
        let restored = Server::start(kind, &options);
        let count = "SELECT COUNT(*) FROM shop.small";
        assert_eq!(restored.sql(count), source.sql(count));
        let log = restored.error_log();
        assert!(!log.contains("insufficient innodb_log_file_size"), "{log}");
    }
}

#[test]
fn the_position_is_that_of_the_copy() {
    for kind in Kind::MARIADB {
        let server = Server::start(kind, &ServerOptions::new().binlog());
        workload::prepare(&server, "");
        let room = room();
        let target = room.path().join("data");
        let outcome = copy(&server, &target);
        let said = server.sql("SHOW MASTER STATUS");
        let expected = format!("{}\t{}", outcome.position.file, outcome.position.offset);
        assert!(said.starts_with(&expected), "{said} {expected}");
        assert_eq!(server.sql("SELECT @@gtid_binlog_pos").trim(), outcome.position.gtid_binlog_pos);
        assert_eq!(server.sql("SELECT @@gtid_binlog_state").trim(), outcome.position.gtid_binlog_state);
        assert!(outcome.position.gtid_binlog_pos.starts_with("0-1-"), "{:?}", outcome.position);
        restored::check(&server, &target, ServerOptions::new());
    }
}

/// Every table of the workload with its checksum.
fn checksums(server: &Server) -> String {
    let tables = server.sql(
        "SELECT CONCAT('shop.', table_name) FROM information_schema.tables WHERE table_schema = 'shop' AND table_type \
         = 'BASE TABLE' ORDER BY 1",
    );
    server.sql(&format!("CHECKSUM TABLE {}", tables.trim().replace('\n', ", ")))
}

#[test]
fn a_copy_and_the_binary_log_from_its_position_on_are_the_source() {
    for kind in Kind::MARIADB {
        let server = Server::start(kind, &ServerOptions::new().binlog().option("binlog_format=ROW"));
        workload::prepare(&server, "");
        let room = room();
        let target = room.path().join("data");
        let workload = Workload::start(&server, 3);
        workload.warm_up();
        let outcome = copy(&server, &target);
        let before = workload.done().1;
        while workload.done().1 < before + 3 {
            assert!(workload.is_well());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        drop(workload);
        let copied = restored::check(&server, &target, ServerOptions::new());
        let logs = server.sql("SHOW BINARY LOGS");
        let logs: Vec<&str> = logs.lines().filter_map(|line| line.split('\t').next()).collect();
        let logs = logs.iter().filter(|name| **name >= outcome.position.file.as_str());
        let mut events = server.program("mariadb-binlog");
        events.arg(format!("--start-position={}", outcome.position.offset));
        let mut events = events
            .args(logs.map(|name| server.datadir().join(name)))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let applied = copied.client().stdin(events.stdout.take().unwrap()).status().unwrap();
        assert!(applied.success() && events.wait().unwrap().success());
        assert_eq!(checksums(&copied), checksums(&server), "{}", kind.name());
    }
}

/// Shows the numbers of a measurement again.
#[test]
fn a_copy_into_nothing_tells_its_speed() {
    let server = Server::start(Kind::Mariadb11, &ServerOptions::new());
    workload::prepare(&server, "");
    let megabytes: u64 = std::env::var("FULLBORE_COPY_MB").ok().and_then(|text| text.parse().ok()).unwrap_or(16);
    server.sql(&format!(
        "USE shop; CREATE TABLE large (id BIGINT PRIMARY KEY, pad VARCHAR(1000)) ENGINE=InnoDB \
         SELECT seq AS id, REPEAT(MD5(seq), 30) AS pad FROM seq_1_to_{}",
        megabytes * 1024
    ));
    for readers in [1, 2, 4] {
        let options = Options { threads: readers, halt: Halt::new(), ..Options::default() };
        let (outcome, bytes) = copy_to(&server, &Nothing, &options).unwrap();
        eprintln!(
            "{readers} readers: {} MiB in {:?}: {:.0} MiB/s, blocked {:?}",
            bytes >> 20,
            outcome.elapsed,
            bytes as f64 / outcome.elapsed.as_secs_f64() / f64::from(1 << 20),
            outcome.blocked
        );
        assert!(bytes > megabytes << 20);
    }
}
