//! Tables of a real MySQL that are not InnoDB: stored beside the clone as SQL text, restored, loaded, and compared.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use fullbore_test_servers::{Kind, Options, Server};

use crate::program::Ended;
use crate::world::World;

const OPTIONS: &str = "--include-other-engines";

/// A server with the clone plugin and a table of InnoDB; its password file in the world's folder.
fn server(world: &World, statements: &str) -> Server {
    let server = Server::start(Kind::Mysql9, &Options::new().binlog());
    server.sql(
        "INSTALL PLUGIN clone SONAME 'mysql_clone.so'; CREATE DATABASE shop; \
         CREATE TABLE shop.item (id INT PRIMARY KEY, name VARCHAR(20)); INSERT INTO shop.item VALUES (1, 'a')",
    );
    server.sql(statements);
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    server
}

fn backup(world: &World, server: &Server, options: &str) -> Ended {
    let port = server.port();
    world.run(&format!("backup mysql://root@127.0.0.1:{port} --password-file password {options}"))
}

/// Starts a server on a restored directory, with the passwords of the source.
fn started(world: &World, source: &Server, directory: &str) -> Server {
    let options = Options::new().binlog().datadir(&world.at(directory)).password_file(source.password_file().unwrap());
    Server::start(Kind::Mysql9, &options)
}

/// The texts in a restored directory, in their order.
fn texts(directory: &Path) -> Vec<PathBuf> {
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut texts: Vec<_> = entries(directory.join("#other-engines")).flat_map(entries).collect();
    texts.sort();
    texts
}

/// What the restore tells the user to do.
fn load(server: &Server, directory: &Path) {
    for text in texts(directory) {
        let mut client = server.client();
        client.args(["--binary-mode", "--comments", "--max-allowed-packet=1G"]).stdin(File::open(&text).unwrap());
        let output = client.stderr(Stdio::piped()).output().unwrap();
        assert!(output.status.success(), "{}: {}", text.display(), String::from_utf8_lossy(&output.stderr));
    }
}

/// The lines that differ, if any do.
fn assert_same(found: &str, expected: &str) {
    let differing: Vec<_> = found.lines().zip(expected.lines()).filter(|(found, expected)| found != expected).collect();
    assert!(differing.is_empty() && found == expected, "{:.3000}", format!("{differing:#?}"));
}

/// All that can be seen of the tables of other engines.
fn look(server: &Server) -> String {
    let quoted = "CONCAT('`', REPLACE(table_schema, '`', '``'), '`.`', REPLACE(table_name, '`', '``'), '`')";
    let tables = server.sql(&format!(
        "SELECT HEX({quoted}) FROM information_schema.tables WHERE engine <> 'InnoDB' AND table_type = 'BASE TABLE' \
         AND table_schema NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema') ORDER BY 1"
    ));
    let mut seen = String::new();
    for hex in tables.lines() {
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let name = String::from_utf8(bytes).unwrap();
        seen += &server.sql(&format!(
            "CHECKSUM TABLE {name}; SHOW CREATE TABLE {name}; SELECT COUNT(*) FROM {name}; CHECK TABLE {name}"
        ));
        // The checksum of an ARCHIVE is always 0.
        seen += &server.sql(&format!("SELECT * FROM {name}"));
    }
    let triggers = "SELECT trigger_schema, trigger_name, event_manipulation, event_object_table, action_order, action_statement, action_timing, \
                    sql_mode, definer, character_set_client, collation_connection FROM information_schema.triggers \
                    WHERE trigger_schema <> 'sys' ORDER BY 1, 2";
    seen + &server.sql(triggers)
}

#[test]
fn a_table_of_another_engine_comes_back_with_its_rows() {
    let world = World::new();
    let source = server(
        &world,
        "CREATE TABLE shop.old (id INT PRIMARY KEY, name TEXT) ENGINE=MyISAM; INSERT INTO shop.old VALUES (1, 'a'), (2, NULL)",
    );
    backup(&world, &source, "--to a/").with_code(4).says(&["shop.old (MyISAM)", OPTIONS]);
    let ended = backup(&world, &source, &format!("--to b/ {OPTIONS}")).done();
    assert!(!ended.err.contains("will be empty"), "{ended}");
    world.run("verify --from b").done();
    let files = world.run("inspect files --from b").done().text();
    assert!(files.contains("#other-engines/shop/old.sql"), "{files}");
    world.run("restore --from b --into dir:copy").with_code(4).says(&["#other-engines'/*/*.sql | mysql"]);
    let restored = started(&world, &source, "copy");
    load(&restored, &world.at("copy"));
    assert_eq!(look(&restored), look(&source));
    assert_eq!(restored.sql("SELECT * FROM shop.old; SELECT name FROM shop.item"), "1\ta\n2\tNULL\na\n");
}

/// Every engine and every type.
fn everything(world: &World) -> Server {
    let source = server(world, "DO 1");
    let mut client = source.client();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/mysql_other_engines.sql");
    client.args(["--binary-mode", "--comments"]).stdin(File::open(script).unwrap());
    let output = client.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    source
}

fn grants(server: &Server) -> String {
    server.sql(
        "SHOW GRANTS FOR reader@localhost; SELECT COUNT(*) FROM shop.over; SELECT COUNT(*) FROM shop.seen_by_triggers",
    )
}

#[test]
fn every_engine_type_and_name_comes_back_exactly_with_triggers_and_grants() {
    let world = World::new();
    let source = everything(&world);
    let (expected, granted) = (look(&source), grants(&source));
    backup(&world, &source, &format!("--to a/ --to b/ --compression zstd:1 {OPTIONS} --max-transfer-size 64KiB"))
        .done();
    world.run("restore --from a --from b --into dir:copy").with_code(4);
    let mut restored = started(&world, &source, "copy");
    load(&restored, &world.at("copy"));
    assert_same(&look(&restored), &expected);
    assert_eq!(grants(&restored), granted);
    // Loaded once more it is the same.
    load(&restored, &world.at("copy"));
    assert_same(&look(&restored), &expected);
    restored.stop();
}
