//! The servers themselves: that they run, take the options that tests need, and never outlive the test.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use fullbore_test_servers::{Kind, Options, Server, wait_until};

/// Runs statements over TCP with TLS; the server's certificate is checked by its authority if there is one, otherwise
/// by the password.
fn over_tls(server: &Server, statements: &str) -> String {
    let mut client = server.client();
    client.args(["--protocol=tcp", "--batch", "--skip-column-names"]).arg(format!("--host={}", server.host()));
    if let Some(authority) = server.ca() {
        client.arg(format!("--ssl-ca={}", authority.display()));
    }
    let check = if server.kind() == Kind::Mysql9 { "--ssl-mode=VERIFY_CA" } else { "--ssl-verify-server-cert" };
    let done = client.args([check, "--execute", statements]).output().unwrap();
    assert!(done.status.success(), "{}: {}", server.kind().name(), String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn alive(pid: u32) -> bool {
    // A process that has ended and was not waited for is not alive.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn script(arguments: &[&str]) -> Command {
    let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("server"));
    script.args(arguments).stdin(Stdio::null());
    script
}

#[test]
fn all_kinds_run_at_once_as_an_unprivileged_user_and_answer_over_tls_and_over_the_socket() {
    let servers = thread::scope(|scope| {
        let starts = Kind::ALL.map(|kind| scope.spawn(move || Server::start(kind, &Options::new().binlog())));
        starts.map(|start| start.join().unwrap())
    });
    for server in &servers {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let uid = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
        assert_ne!(uid.split_whitespace().nth(2), Some("0"), "{} runs as root", server.kind().name());
        let version = server.sql("SELECT @@version, @@log_bin");
        let (release, _) = server.version().split_once('-').unwrap();
        assert!(version.starts_with(release) && version.ends_with("\t1\n"), "{version}");
        assert_eq!(server.sql("SELECT current_user()"), "root@localhost\n");
        assert_eq!(over_tls(server, "SELECT current_user()"), "root@127.0.0.1\n");
        assert!(over_tls(server, "SHOW STATUS LIKE 'Ssl_version'").contains("TLSv1."), "{}", server.kind().name());
    }
}

#[test]
fn mysql_loads_the_clone_plugin() {
    let server = Server::start(Kind::Mysql9, &Options::new());
    server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
    let status = server.sql("SELECT plugin_status FROM information_schema.plugins WHERE plugin_name = 'clone'");
    assert_eq!(status, "ACTIVE\n");
    server.sql(&format!("CLONE LOCAL DATA DIRECTORY '{}'", server.tablespaces().join("clone").display()));
    assert!(server.tablespaces().join("clone/ibdata1").is_file());
}

#[test]
fn mariadb_goes_through_the_stages_of_a_backup() {
    for kind in Kind::MARIADB {
        let server = Server::start(kind, &Options::new().binlog());
        server.sql("CREATE DATABASE shop; CREATE TABLE shop.a (a INT) ENGINE=Aria; INSERT INTO shop.a VALUES (1)");
        server.sql("CREATE TABLE shop.m (a INT) ENGINE=MyISAM; INSERT INTO shop.m VALUES (1)");
        let position = server.sql(
            "BACKUP STAGE START; BACKUP STAGE FLUSH; BACKUP STAGE BLOCK_DDL; BACKUP STAGE BLOCK_COMMIT; \
             SHOW MASTER STATUS; BACKUP STAGE END",
        );
        assert!(position.starts_with("binlog.00000"), "{position}");
    }
}

#[test]
fn mariadb_backup_makes_a_backup_that_a_server_starts_on() {
    for kind in Kind::MARIADB {
        let mut server = Server::start(kind, &Options::new());
        server.sql("CREATE DATABASE shop; CREATE TABLE shop.t (a INT); INSERT INTO shop.t VALUES (7)");
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let restored = folder.path().join("restored");
        make_reachable(folder.path());
        let options = server.socket().ancestors().nth(2).unwrap().join("client.cnf");
        for steps in [["--backup", "--target-dir"], ["--prepare", "--target-dir"]] {
            let mut backup = server.program("mariadb-backup");
            if steps[0] == "--backup" {
                backup.arg(format!("--defaults-file={}", options.display()));
                backup.arg(format!("--datadir={}", server.datadir().display()));
            }
            let done = backup.arg(steps[0]).arg(format!("{}={}", steps[1], restored.display())).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        server.stop();
        let password = server.password_file().unwrap();
        let copy = Server::start(kind, &Options::new().datadir(&restored).password_file(password));
        assert_eq!(copy.sql("SELECT a FROM shop.t"), "7\n");
    }
}

/// A temporary directory is its owner's alone, and the server runs as another user.
fn make_reachable(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Small pages, a small redo log, more undo tablespaces, keys, a table that lies elsewhere; before and after a restart.
fn takes_the_options_that_tests_need(kind: Kind) {
    let mysql = kind == Kind::Mysql9;
    let mut options = Options::new().page_size("4k").redo("8M").encrypt().option("max_allowed_packet=4M");
    if !mysql {
        options = options.option("innodb_undo_tablespaces=4");
    }
    let mut server = Server::start(kind, &options);
    let redo = if mysql { "innodb_redo_log_capacity" } else { "innodb_log_file_size" };
    let said = server.sql(&format!("SELECT @@innodb_page_size, @@{redo}, @@max_allowed_packet"));
    assert_eq!(said, "4096\t8388608\t4194304\n");
    if mysql {
        // MySQL 9 no longer has the option.
        server.sql("CREATE UNDO TABLESPACE more ADD DATAFILE 'more.ibu'");
    } else {
        assert!(server.datadir().join("undo004").is_file());
    }
    let encrypted = if mysql { "ENCRYPTION='Y'" } else { "ENCRYPTED=YES ENCRYPTION_KEY_ID=2" };
    server.sql(&format!("CREATE DATABASE shop; CREATE TABLE shop.t (a TEXT) {encrypted}"));
    server.sql(&format!("CREATE TABLE shop.away (a INT) DATA DIRECTORY='{}'", server.tablespaces().display()));
    server.sql("INSERT INTO shop.t VALUES (REPEAT('in the clear', 100)); INSERT INTO shop.away VALUES (1)");
    server.stop();
    let bytes = fs::read(server.datadir().join("shop/t.ibd")).unwrap();
    assert!(!bytes.windows(12).any(|window| window == b"in the clear"));
    assert!(server.tablespaces().join("shop/away.ibd").is_file());
    server.start_again(&options);
    assert_eq!(server.sql("SELECT LENGTH(a) FROM shop.t; SELECT a FROM shop.away"), "1200\n1\n");
}

#[test]
fn mysql_9_takes_the_options_that_tests_need() {
    takes_the_options_that_tests_need(Kind::Mysql9);
}

#[test]
fn mariadb_10_takes_the_options_that_tests_need() {
    takes_the_options_that_tests_need(Kind::Mariadb10);
}

#[test]
fn mariadb_11_takes_the_options_that_tests_need() {
    takes_the_options_that_tests_need(Kind::Mariadb11);
}

#[test]
fn pages_may_be_large() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &Options::new().page_size("64k"));
        assert_eq!(server.sql("SELECT @@innodb_page_size"), "65536\n", "{}", kind.name());
    }
}

#[test]
fn mariadb_runs_without_innodb() {
    for kind in Kind::MARIADB {
        let options = Options::new().option("skip-innodb").option("default-storage-engine=Aria");
        let server = Server::start(kind, &options);
        assert_ne!(server.sql("SELECT support FROM information_schema.engines WHERE engine = 'InnoDB'"), "YES\n");
        server.sql("CREATE DATABASE shop; CREATE TABLE shop.t (a INT)");
        assert_eq!(server.sql("SELECT engine FROM information_schema.tables WHERE table_name = 't'"), "Aria\n");
    }
}

#[test]
fn a_killed_server_recovers_what_was_committed() {
    for kind in Kind::ALL {
        let mut server = Server::start(kind, &Options::new());
        server.sql("CREATE DATABASE shop; CREATE TABLE shop.t (a INT); INSERT INTO shop.t VALUES (1), (2)");
        let first = server.pid();
        server.kill();
        assert!(!alive(first));
        server.start_again(&Options::new());
        assert_eq!(server.sql("SELECT COUNT(*) FROM shop.t"), "2\n", "{}", kind.name());
    }
}

/// Something that can be killed in the place of a test's process.
fn owner() -> Child {
    Command::new("sleep").arg("1000").spawn().unwrap()
}

/// Starts a server for `owner` in `folder`; its process and its supervisor's.
fn start_for(owner: &Child, folder: &Path) -> (u32, u32) {
    let pid = owner.id().to_string();
    let folder = folder.to_str().unwrap();
    let done = script(&["start", "mariadb-11.8", "--dir", folder, "--owner", &pid, "--remove"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let description: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let number = |name: &str| u32::try_from(description[name].as_u64().unwrap()).unwrap();
    (number("pid"), number("supervisor"))
}

#[test]
fn no_server_is_left_when_its_owner_its_supervisor_or_its_directory_is_gone() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    make_reachable(folder.path());
    let place = folder.path().join("one");

    let mut killed = owner();
    let (server, supervisor) = start_for(&killed, &place);
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_until("the server ended with its owner", || !alive(server) && !alive(supervisor));
    wait_until("the directory is removed", || !place.exists());

    let mut owner = owner();
    let (server, supervisor) = start_for(&owner, &place);
    Command::new("kill").args(["-KILL", &supervisor.to_string()]).status().unwrap();
    wait_until("the server ended with its supervisor", || !alive(server));

    let (server, supervisor) = start_for(&owner, &place);
    fs::rename(&place, folder.path().join("two")).unwrap();
    wait_until("the server ended with its directory", || !alive(server) && !alive(supervisor));
    owner.kill().unwrap();
    owner.wait().unwrap();
}

#[test]
fn run_gives_a_command_a_server_and_takes_it_away() {
    let told = "test -S $FULLBORE_SERVER_SOCKET && echo $FULLBORE_SERVER_PID $FULLBORE_SERVER_DATADIR; exit 7";
    let done = script(&["run", "mariadb-10.11", "--binlog", "--", "sh", "-c", told]).output().unwrap();
    assert_eq!(done.status.code(), Some(7), "{}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let (pid, datadir) = said.trim().split_once(' ').unwrap();
    assert!(!alive(pid.parse().unwrap()));
    assert!(!Path::new(datadir).exists());
}

#[test]
fn a_program_that_does_not_start_gives_its_reason() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let said = |command: &mut Command| {
        let done = command.output().unwrap();
        assert_eq!(done.status.code(), Some(1));
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let place = folder.path().join("new");
    let place = place.to_str().unwrap();
    let start = ["start", "mysql-9", "--dir", place];
    let missing = said(script(&start).env("FULLBORE_TEST_SERVERS", folder.path()));
    assert!(missing.contains("is not installed") && missing.contains("tests/servers/install mysql-9"), "{missing}");
    fs::write(folder.path().join("precious"), "").unwrap();
    let foreign = said(&mut script(&["start", "mysql-9", "--dir", folder.path().to_str().unwrap()]));
    assert!(foreign.contains("holds something that is not a server"), "{foreign}");
    let refused = Server::try_start(Kind::Mariadb11, &Options::new().option("no_such_option=1")).unwrap_err();
    assert!(refused.contains("unknown variable 'no_such_option=1'"), "{refused}");
}
