//! Databases of servers in repositories and object stores: a test restore starts the server, and a store may be away for a while.

use std::fs;
use std::process::Command;
use std::time::Duration;

use fullbore_test_servers::{
    Fault, FaultProxy, Kind, ObjectStore, Options, Server, StoreKind, StoreOptions, wait_until,
};
use serde_json::Value;

use crate::program;
use crate::world::World;

/// How a server is called, and its program.
fn called(kind: Kind) -> (&'static str, &'static str) {
    if kind == Kind::Mysql9 { ("mysql", "mysqld") } else { ("mariadb", "mariadbd") }
}

/// A server with a table of so many KiB, its password file in the world's folder, and its URL.
fn server(world: &World, kind: Kind, options: &Options, kib: u32) -> (Server, String) {
    let server = Server::start(kind, options);
    let (scheme, _) = called(kind);
    if scheme == "mysql" {
        server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
    }
    server.sql(
        "CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY, pad BLOB); \
         CREATE TABLE shop.old (id INT AUTO_INCREMENT PRIMARY KEY, t TEXT) ENGINE=MyISAM; INSERT INTO shop.old (t) VALUES (REPEAT('m', 1000))",
    );
    for block in 0..kib.div_ceil(1024) {
        let rows: Vec<String> = (0..32).map(|row| format!("({}, RANDOM_BYTES(1024))", block * 32 + row)).collect();
        server.sql(&format!("INSERT INTO shop.item VALUES {}", rows.join(",")));
        server.sql(&format!("UPDATE shop.item SET pad = REPEAT(pad, 32) WHERE id >= {}", block * 32));
    }
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    let url = format!("{scheme}://root@127.0.0.1:{}", server.port());
    (server, url)
}

fn verdicts(world: &World) -> Vec<Value> {
    let folder = world.at("a/.fullbore/verdicts");
    let names = if folder.is_dir() { world.names("a/.fullbore/verdicts") } else { Vec::new() };
    names.iter().map(|name| serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()).collect()
}

/// A program in the folder `bin` that says it is a server of that version, as an installed one would.
fn installed(world: &World, name: &str, version: &str) {
    let path = world.at("bin").join(name);
    fs::create_dir_all(world.at("bin")).unwrap();
    fs::write(&path, format!("#!/bin/sh\necho '{name}  Ver {version} for Linux on x86_64 (x)'\n")).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

fn restored_and_started(kind: Kind) {
    let world = World::new();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    // What MySQL's clone leaves out would be a warning.
    let (source, url) = server(&world, kind, &Options::new().binlog(), 64);
    if kind == Kind::Mysql9 {
        source.sql("DROP TABLE shop.old");
    }
    let run = |line: &str| world.run_as_nobody(line);
    let backup = format!("backup {url} --password-file password --repo night");
    run(&backup).done();
    source.sql("INSERT INTO shop.item VALUES (100000, 'changed')");
    run(&format!("{backup} --kind differential")).done();
    let line = "restore-test --repo night --scratch b";
    // Whatever this machine has in its own PATH. The name of a program does not say whose it is.
    let (name, version, other) = match kind {
        Kind::Mysql9 => ("mysqld", "10.11.14-MariaDB-0+deb12u2", "10.11.14-MariaDB"),
        _ => ("mysqld", "9.7.4", "9.7.4"),
    };
    installed(&world, name, version);
    let in_own_path = |line: &str| {
        let mut command = world.as_nobody(line);
        command.env("PATH", world.at("bin"));
        program::run(command)
    };
    in_own_path(line).with_code(2).says(&["--server-program", "in PATH", &format!("bin/{name} is {other}")]);
    run(&format!("{line} --server-program /bin/true")).with_code(1);
    assert_eq!((verdicts(&world), world.names("b")), (Vec::new(), Vec::new()), "nothing was learnt of the backup");
    let own = source.program(called(kind).1).get_program().to_str().unwrap().to_owned();
    let proven = run(&format!("{line} --server-program {own}")).done();
    let proven = proven.says(&["the chain of 2 sets was restored", "recorded as proven"]);
    assert!(proven.text().contains("tables are OK"), "{proven}");
    assert_eq!(world.names("b"), Vec::<String>::new());
    let found = verdicts(&world);
    assert!(found.len() == 2 && found.iter().all(|verdict| verdict["by"] == "restore-test"), "{found:?}");
    let listed = run("list --repo night --json").done().json();
    assert!(listed.as_array().unwrap().iter().all(|set| set["proven_at"].is_string()), "{listed}");
    run("check --repo night --max-age 1h --max-unproven 1h").done();
}

#[test]
fn a_test_restore_starts_a_mysql_and_leaves_nothing() {
    restored_and_started(Kind::Mysql9);
}

#[test]
fn a_test_restore_starts_a_mariadb_and_leaves_nothing() {
    restored_and_started(Kind::Mariadb11);
}

#[test]
fn a_test_restore_that_finds_a_table_damaged_writes_that_down() {
    let world = World::new();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    let (source, url) = server(&world, Kind::Mariadb11, &Options::new(), 64);
    let own = source.program("mariadbd").get_program().to_str().unwrap().to_owned();
    source.sql("FLUSH TABLES shop.old");
    // Nothing but the server knows what such a file has to be like.
    fs::File::options().write(true).open(source.datadir().join("shop/old.MYD")).unwrap().set_len(500).unwrap();
    world.run_as_nobody(&format!("backup {url} --password-file password --repo night")).done();
    let line = format!("restore-test --repo night --scratch b --server-program {own}");
    world.run_as_nobody(&line).with_code(3).says(&["tables of the restored server are not OK: shop.old"]);
    assert_eq!(world.names("b"), Vec::<String>::new());
    let found = verdicts(&world);
    assert!(found.len() == 1 && found[0]["error"].as_str().unwrap().contains("shop.old"), "{found:?}");
    world.run_as_nobody("check --repo night").refused(1, "--repo night", "was found damaged");
}

/// True while a process works; one that has ended may wait for its parent to ask.
fn is_alive(number: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[test]
fn a_killed_test_restore_takes_its_server_with_it_and_the_next_one_removes_what_is_left() {
    let world = World::new();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    let (source, url) = server(&world, Kind::Mariadb11, &Options::new(), 64);
    let own = source.program("mariadbd").get_program().to_str().unwrap().to_owned();
    world.run_as_nobody(&format!("backup {url} --password-file password --repo night")).done();
    // A server that is never ready, and says which process it is.
    let (slow, number) = (world.at("slow-server"), world.at("number"));
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *--version*) exec {own} \"$@\" ;; esac\necho $$ > {0}.new && mv {0}.new {0}\nexec sleep 600\n",
        number.display()
    );
    fs::write(&slow, text).unwrap();
    fs::set_permissions(&slow, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let line = "restore-test --repo night --scratch b --server-program";
    let killed = program::start(world.as_nobody(&format!("{line} {}", slow.display())));
    wait_until("the server is started", || number.exists());
    let number = fs::read_to_string(&number).unwrap().trim().to_owned();
    assert!(is_alive(&number));
    let left = world.names("b");
    killed.signal("KILL");
    killed.wait().with_code(-9);
    wait_until("the server has gone too", || !is_alive(&number));
    assert_eq!((left.len(), world.names("b")), (1, left.clone()));
    let next = world.run_as_nobody(&format!("{line} {own}")).done();
    next.says(&["removed the leftover of a killed restore-test", &left[0], "recorded as proven"]);
    assert_eq!(world.names("b"), Vec::<String>::new());
}

mod object_store {
    use super::*;

    /// A server whose own patience with a client that takes nothing is much shorter than the store is away.
    fn outlasts(kind: Kind) {
        let world = World::new();
        let impatient =
            Options::new().option("net_write_timeout=2").option("net_read_timeout=2").option("wait_timeout=3");
        let (source, url) = server(&world, kind, &impatient, 96 << 10);
        let mut store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
        store.make_bucket("media");
        let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Delay(Duration::from_millis(50)));
        let line = format!(
            "backup {url} --password-file password --to s3://media/night/ --stripes 2 --compression none --throttle 16MiB/s --device-timeout 8 --outage 60"
        );
        let mut command: Command = program::command(world.folder(), line.split_whitespace());
        command.envs(store.environment_at(proxy.endpoint()));
        let running = program::start(command);
        let parts = || proxy.requests().iter().filter(|seen| seen.request.operation() == "UploadPart").count();
        wait_until("some of it has been moved", || parts() > 2);
        store.kill();
        // The pool is full by then, and the server is not listened to.
        std::thread::sleep(Duration::from_secs(8));
        store.start_again();
        let ended = running.wait();
        assert!(ended.code == 0 || ended.code == 4 && ended.err.contains("shop.old"), "{ended}");
        let mut command: Command =
            program::command(world.folder(), "restore --from s3://media/night/ --into dir:copy".split_whitespace());
        command.envs(store.environment());
        let restored = program::run(command);
        assert!(restored.code == 0 || restored.code == 4, "{restored}");
        let sum = "CHECKSUM TABLE shop.item; SELECT COUNT(*) FROM shop.item";
        let expected = source.sql(sum);
        let again = Options::new().datadir(&world.at("copy")).password_file(source.password_file().unwrap());
        assert_eq!(Server::start(kind, &again).sql(sum), expected);
    }

    #[test]
    fn a_backup_of_a_mysql_outlasts_a_store_that_is_away_for_a_while() {
        outlasts(Kind::Mysql9);
    }

    #[test]
    fn a_backup_of_a_mariadb_outlasts_a_store_that_is_away_for_a_while() {
        outlasts(Kind::Mariadb11);
    }
}
