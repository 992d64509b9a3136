//! Golden media of every kind that version 1 of the format has beside sets of SQLite: servers with differential and log
//! sets, logical sets, backup files of SQL Server, and uploaded objects. `format_v1/` has a directory for each, with
//! `digests`: what each set restores to.
//!
//! Nobody writes them again. The tests `write_the_golden_…` write the directories of a new version.

use std::fs;
use std::path::Path;

use fullbore_engines::compressed::Writer;
use fullbore_engines::sqlserver::configuration::BackupKind;
use fullbore_engines::sqlserver::writer::{sample_full, sample_log};
use fullbore_test_servers::{Kind, Options, Server};

use crate::foreign_sets::{extents, how, id, set, written};
use crate::golden::{digest, expected, files_below, media, new_media, python};
use crate::golden_servers::digest as digest_of_files;
use crate::world::World;
use crate::{foreign_sets, gateway};

pub const VERSION: &str = "format_v1";

/// A world with the golden media of a kind in `a/`, which is also the repository `night`. The key is closed to others.
pub fn with_media(kind: &str) -> World {
    let world = foreign_sets::world();
    copy_all(&media(VERSION).join(kind), &world.at("a"));
    let key = media(VERSION).join("sqlite/golden.key");
    world.write_secret("golden.key", &fs::read(key).unwrap());
    world
}

fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "bore") {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// The keys that golden media are encrypted for.
pub fn take_keys(world: &World) {
    for name in ["golden.key", "golden.key.pub"] {
        world.write_secret(name, &fs::read(media(VERSION).join("sqlite").join(name)).unwrap());
    }
}

/// Writes the media and the digests of a kind.
pub fn keep(world: &World, kind: &str, digests: &[String], most: u64) {
    let into = new_media(kind);
    copy_all(&world.at("a"), &into);
    fs::write(into.join("digests"), digests.concat()).unwrap();
    let bytes: u64 = fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < most, "{bytes} bytes of golden media of {kind}");
}

/// The servers whose sets are kept.
pub const SERVERS: [(&str, Kind); 2] = [("mysql", Kind::Mysql9), ("mariadb", Kind::Mariadb10)];
const SCHEMA: &str = "CREATE DATABASE golden; CREATE TABLE golden.item (id INT PRIMARY KEY, t VARCHAR(99), KEY (t)); \
    INSERT INTO golden.item VALUES (1, 'one'), (2, 'two'), (3, 'three')";
const ROWS: &str = "SELECT GROUP_CONCAT(id, t ORDER BY id) FROM golden.item";
/// The sets of a server, with what their restore takes beside them. A log set is not among them.
const FILES_OF_A_SERVER: [(&str, &str); 4] =
    [("full", ""), ("diff", "--from a/{}-full.bore"), ("logical", ""), ("sealed", "--key golden.key")];

fn options(kind: Kind) -> Options {
    let options = Options::new().binlog().page_size("4k").redo("8M");
    if kind == Kind::Mysql9 { options } else { options.option("innodb-log-buffer-size=2M") }
}

/// Restores a set of a server into a directory of its name.
fn restore(world: &World, name: &str, set: &str, more: &str) -> String {
    let into = format!("{name}-{set}");
    // A run as another user opens all files of the world.
    world.write_secret("golden.key", &world.read("golden.key"));
    let ended = world.run(&format!("restore --from a/{into}.bore {} --into dir:{into}", more.replace("{}", name)));
    assert!([0, 4].contains(&ended.code), "{ended}");
    digest_of_files(&world.at(&into))
}

/// Applies the log set of a server to its full. `full` is a server on the restored full.
fn rows_after_the_log(world: &World, name: &str, full: &Server, password: &Path) -> String {
    let program = full.program(if name == "mysql" { "mysqld" } else { "mariadbd" });
    let program = program.get_program().to_str().unwrap();
    let from = format!("--from a/{name}-full.bore --from a/{name}-log.bore");
    world.run_as_nobody(&format!("restore {from} --into dir:{name}-log --server-program {program}")).done();
    server_on(world, full.kind(), &format!("{name}-log"), password).sql(ROWS).trim().to_owned()
}

fn server_on(world: &World, kind: Kind, directory: &str, password: &Path) -> Server {
    Server::start(kind, &options(kind).datadir(&world.at(directory)).password_file(password))
}

#[test]
fn golden_media_of_servers_and_their_logs_restore_to_what_they_always_did() {
    let (world, kept) = (with_media("servers"), media(VERSION).join("servers"));
    world.run("verify --from a --key golden.key").done();
    for (name, kind) in SERVERS {
        for (set, more) in FILES_OF_A_SERVER {
            assert_eq!(restore(&world, name, set, more), expected(&kept, &format!("{name}-{set}")), "{name} {set}");
        }
        let password = kept.join(format!("password-of-{name}"));
        let full = server_on(&world, kind, &format!("{name}-full"), &password);
        assert_eq!(full.sql(ROWS).trim(), expected(&kept, &format!("{name}-rows")), "{name}");
        let rows = rows_after_the_log(&world, name, &full, &password);
        assert_eq!(rows, expected(&kept, &format!("{name}-log")), "{name}");
    }
}

#[test]
#[ignore = "writes golden media of a new version of the format"]
fn write_the_golden_media_of_servers() {
    let (world, mut digests) = (foreign_sets::world(), Vec::new());
    take_keys(&world);
    for (name, kind) in SERVERS {
        let server = Server::start(kind, &options(kind));
        let password = world.at(&format!("password-of-{name}"));
        fs::copy(server.password_file().unwrap(), &password).unwrap();
        server.sql(SCHEMA);
        let url = format!("{name}://root@127.0.0.1:{}", server.port());
        let plugin = if kind == Kind::Mysql9 { "--install-clone-plugin" } else { "" };
        let back_up = |set: &str, more: &str| {
            let line =
                format!("backup {url} --password-file password-of-{name} --to a/{name}-{set}.bore --name golden");
            let ended = world.run(&format!("{line} --compression zstd:19 {more}"));
            assert!([0, 4].contains(&ended.code), "{ended}");
        };
        back_up("full", plugin);
        let rows = server.sql(ROWS);
        server.sql("INSERT INTO golden.item VALUES (4, 'zwei')");
        back_up("diff", &format!("--kind differential --base a/{name}-full.bore {plugin}"));
        back_up("log", &format!("--kind log --base a/{name}-full.bore"));
        back_up("logical", "--method logical --database golden");
        back_up("sealed", "--method logical --database golden --encrypt-to golden.key.pub --key golden.key");
        drop(server);
        for (set, more) in FILES_OF_A_SERVER {
            digests.push(format!("{name}-{set} {}\n", restore(&world, name, set, more)));
        }
        let full = server_on(&world, kind, &format!("{name}-full"), &password);
        digests.push(format!("{name}-rows {rows}"));
        digests.push(format!("{name}-log {}\n", rows_after_the_log(&world, name, &full, &password)));
    }
    keep(&world, "servers", &digests, 4 << 20);
    for (name, _) in SERVERS {
        let file = format!("password-of-{name}");
        fs::copy(world.at(&file), media(VERSION).join("servers").join(&file)).unwrap();
    }
}

/// Backup files of SQL Server: a full, a later full as the pages that differ, a log, and a compressed full.
const FOREIGN: [&str; 4] = ["1.bak", "2.bak", "log.trn", "packed.bak"];

/// Runs a restore. The media are copied here and are old: a warning says that the clock of their host was wrong.
fn restored(world: &World, line: &str) {
    let ended = world.run(line);
    assert!(ended.code == 0 || ended.code == 4 && ended.err.contains("store's clock"), "{ended}");
}

/// Restores all stored backup files, each into a directory of its own, and gives the digest of each.
fn files_given_back(world: &World) -> Vec<String> {
    for set in foreign_sets::list(world) {
        restored(world, &format!("restore --repo night --set {} --into bak:out --mkdir", id(&set)));
    }
    FOREIGN.map(|name| format!("{name} {}\n", digest(&world.at("out").join(name)))).to_vec()
}

#[test]
fn golden_backup_files_of_sql_server_come_back_byte_for_byte() {
    let world = with_media("foreign");
    world.run("catalog rebuild --repo night").done();
    world.run("verify --repo night").done();
    let kept = fs::read_to_string(media(VERSION).join("foreign/digests")).unwrap();
    assert_eq!(files_given_back(&world).concat(), kept);
}

#[test]
#[ignore = "writes golden media of a new version of the format"]
fn write_the_golden_backup_files_of_sql_server() {
    let world = foreign_sets::world();
    let full = |number: u32| {
        let mut full = set(BackupKind::Full, number);
        full.copies = vec![extents(24, 20, number.into())];
        full.logs = vec![sample_log(1 << 16)];
        written(&full, number)
    };
    let mut log = set(BackupKind::Log, 3);
    log.logs = vec![sample_log(70_000)];
    let media = [full(1), full(2), written(&log, 3), Writer::of_stream(&sample_full(true)).container];
    for (name, bytes) in FOREIGN.iter().zip(&media) {
        world.write(name, bytes);
        let copied =
            world.run(&format!("copy --from {name} --to-repo night --compression zstd:19 --report json")).done();
        assert_eq!(how(&copied) == ["stored as the pages that differ"], *name == "2.bak", "{copied}");
    }
    let digests = files_given_back(&world);
    for (name, bytes) in FOREIGN.iter().zip(&media) {
        assert!(world.read(&format!("out/{name}")) == *bytes, "{name}");
    }
    keep(&world, "foreign", &digests, 3 << 20);
}

#[test]
fn golden_uploaded_objects_come_back_byte_for_byte() {
    let (world, kept) = (with_media("uploaded"), media(VERSION).join("uploaded"));
    world.run("catalog rebuild --repo night").done();
    world.run("verify --repo night").done();
    restored(&world, "restore --repo night --into object:out --mkdir");
    assert_eq!(digest(&world.at("out/dump.bin")), expected(&kept, "dump.bin"));
}

#[test]
#[ignore = "writes golden media of a new version of the format"]
fn write_the_golden_uploaded_objects() {
    let world = gateway::prepared("compression = \"zstd\"");
    let served = gateway::started(&world, "");
    let bytes = gateway::bytes(7, 100_000);
    served.client.put("nightly", "dump.bin", &[bytes, vec![0; 50_000]].concat());
    served.running.signal("TERM");
    served.running.wait().done();
    copy_all(&world.at("repo"), &world.at("a"));
    world.run("restore --repo nightly --into object:out --mkdir").done();
    keep(&world, "uploaded", &[format!("dump.bin {}\n", digest(&world.at("out/dump.bin")))], 1 << 20);
}

#[test]
fn golden_open_and_ordered_sets_restore_with_the_independent_reader_too() {
    let world = with_media("servers");
    for name in ["mysql-log", "mariadb-log"] {
        fs::create_dir(world.at(name)).unwrap();
        let arguments = [format!("a/{name}.bore"), "--stream-into".into(), name.into()];
        let what = "golden log sets of servers with the independent reader";
        let Some(ended) = python(&world, what, &arguments) else { return };
        ended.done();
        let files = files_below(&world.at(name));
        assert!(!files.is_empty() && files.values().all(|log| log.starts_with(b"\xfebin")), "{name}: binary log files");
    }
    for name in ["mysql-full", "mysql-logical", "mariadb-sealed"] {
        let key = if name.ends_with("sealed") { "--key golden.key" } else { "" };
        world.run(&format!("restore --from a/{name}.bore --into dir:{name} {key}")).done();
        fs::create_dir(world.at("again")).unwrap();
        let line = format!("a/{name}.bore --stream-into again {key}");
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let Some(ended) = python(&world, "golden sets of each kind with the independent reader", &arguments) else {
            return;
        };
        ended.done();
        let mut files = files_below(&world.at(name));
        files.retain(|path, _| !path.starts_with("#clone")); // The engine's own marks.
        let again = files_below(&world.at("again"));
        // A logical set's streams are packed rows; a restore into a directory unpacks them.
        assert!(!name.ends_with("full") || files == again, "{name}");
        assert!(!again.is_empty(), "{name}");
        fs::remove_dir_all(world.at("again")).unwrap();
    }
}

#[test]
fn golden_logical_sets_are_exported_without_a_server_and_the_files_of_a_server_are_refused() {
    let world = with_media("servers");
    for (name, _) in SERVERS {
        for set in ["logical", "sealed"] {
            let line =
                format!("export --from a/{name}-{set}.bore --key golden.key --format csv --into dir:{name}-{set}");
            world.run(&line).done();
            let rows = world.text(&format!("{name}-{set}/golden.item.csv"));
            assert_eq!(rows, "id,t\r\n1,one\r\n3,three\r\n2,two\r\n4,zwei\r\n", "{name}-{set}");
        }
        let line = format!("export --from a/{name}-full.bore --format csv --into dir:{name}-full");
        world.run(&line).refused(1, "backup set ", "the files of a server");
        assert!(!world.at(&format!("{name}-full")).exists());
    }
}
