//! Golden logical sets of version 1 with everything that rows have: chunks and small tables, accounts, the history of rows, two
//! families, and an encrypted log set. `format_v1/rows/` has them.
//!
//! Nobody writes them again, as with [`golden_kinds`](crate::golden_kinds).

use fullbore_test_servers::{Kind, Options, Server};
use std::fs;

use crate::foreign_sets;
use crate::golden::{expected, media};
use crate::golden_kinds::{SERVERS, VERSION, keep, take_keys, with_media};
use crate::golden_servers::digest;
use crate::world::World;

/// The codec of a server's sets.
fn codec(name: &str) -> &'static str {
    if name == "mysql" { "gzip:9" } else { "lz4" }
}

fn restored(world: &World, name: &str) -> String {
    let from = format!("--from a/{name}-rows-1.bore --from a/{name}-rows-2.bore --key golden.key");
    let ended = world.run(&format!("restore {from} --into dir:{name}-rows"));
    assert!([0, 4].contains(&ended.code), "{ended}");
    digest(&world.at(&format!("{name}-rows")))
}

#[test]
fn golden_rows_accounts_and_logs_restore_to_what_they_always_did() {
    let (world, kept) = (with_media("rows"), media(VERSION).join("rows"));
    world.run("verify --from a --key golden.key").done();
    for (name, _) in SERVERS {
        assert_eq!(restored(&world, name), expected(&kept, name), "{name}");
        let tables = world.at(&format!("{name}-rows/golden"));
        assert!(fs::read_dir(tables.join("big")).unwrap().next().is_some(), "{name}: a table in chunks");
        assert!(world.at(&format!("{name}-rows/#accounts/accounts.jsonl")).exists(), "{name}: accounts");
        let inspected =
            world.run(&format!("inspect files --from a/{name}-rows-log.bore --key golden.key --json")).done();
        assert!(inspected.text().contains("\"binlog\""), "{name}: {inspected}");
    }
}

#[test]
#[ignore = "writes golden media of a new version of the format"]
fn write_the_golden_rows() {
    let (world, mut digests) = (foreign_sets::world(), Vec::new());
    take_keys(&world);
    for (name, kind) in SERVERS {
        let server = Server::start(kind, &Options::new().binlog());
        fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
        let versioned = if kind == Kind::Mysql9 { "" } else { "WITH SYSTEM VERSIONING" };
        server.sql(&format!(
            "CREATE DATABASE golden; USE golden; CREATE TABLE digits (d INT PRIMARY KEY); \
             INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9); \
             CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(9000)); \
             INSERT INTO big SELECT a.d + 10 * b.d + 100 * c.d, REPEAT('x', 5000) FROM digits a, digits b, digits c; ANALYZE TABLE big; \
             CREATE TABLE old (id INT PRIMARY KEY, v INT) {versioned}; INSERT INTO old VALUES (1, 1); UPDATE old SET v = 2; \
             CREATE USER app@'%' IDENTIFIED BY 'golden'; GRANT SELECT ON golden.* TO app@'%'; CREATE VIEW v AS SELECT id FROM old; \
             CREATE PROCEDURE p () SELECT 1"
        ));
        let url = format!("{name}://root@127.0.0.1:{}", server.port());
        let back_up = |what: &str| {
            let sealed = "--encrypt-to golden.key.pub --key golden.key --name golden";
            let line = format!("backup {url} --password-file password --compression {} {sealed} {what}", codec(name));
            world.run(&line).done();
        };
        back_up(&format!("--method logical --users --to a/{name}-rows-1.bore --to a/{name}-rows-2.bore"));
        server.sql("INSERT INTO golden.old VALUES (3, 3)");
        let base = format!("--base a/{name}-rows-1.bore --base a/{name}-rows-2.bore");
        back_up(&format!("--kind log {base} --to a/{name}-rows-log.bore"));
        drop(server);
        digests.push(format!("{name} {}\n", restored(&world, name)));
    }
    keep(&world, "rows", &digests, 1 << 20);
}
