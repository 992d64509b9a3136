//! Servers as sources of estimates, and beside a profile: the disk of their data directory is looked up where it is on this machine.

use std::fs;

use fullbore_test_servers::{Kind, Options, Server, wait_until};
use serde_json::Value;

use crate::world::World;

const TABLES: &str = "CREATE DATABASE shop; USE shop; CREATE TABLE a (id INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(300), KEY (t)) ENGINE=InnoDB; \
                      INSERT INTO a (t) VALUES ('a'), ('b'), ('c'), ('d'); \
                      INSERT INTO a (t) SELECT CONCAT(a.t, UUID()) FROM a, a b, a c, a d, a e, a f; \
                      INSERT INTO a (t) SELECT REPEAT(SHA2(id, 256), 4) FROM a; INSERT INTO a (t) SELECT REPEAT(SHA2(id, 256), 4) FROM a; \
                      INSERT INTO a (t) SELECT REPEAT(SHA2(id, 256), 4) FROM a; INSERT INTO a (t) SELECT REPEAT(SHA2(id, 256), 4) FROM a; CREATE TABLE b LIKE a; INSERT INTO b SELECT * FROM a";

/// A server, and a profile of the disk that its data directory is on.
fn calibrated(kind: Kind) -> (World, Server) {
    let world = World::new();
    let server = Server::start(kind, &Options::new().binlog());
    server.sql(TABLES);
    if kind != Kind::Mysql9 {
        // What is in memory only is in no sample of the files.
        server.sql("SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0; SET GLOBAL innodb_max_dirty_pages_pct = 0");
        let dirty = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'";
        wait_until("the server has flushed its pages", || server.sql(dirty).split_whitespace().last() == Some("0"));
    }
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    let data = server.datadir().join("shop");
    world.run(&format!("calibrate --read {} --write a --seconds 1 --space 32MiB", data.display())).done();
    (world, server)
}

fn report(world: &World, line: &str) -> Value {
    world.run(&format!("{line} --password-file password --report json")).done().json()
}

#[test]
fn a_mariadb_is_foreseen_and_judged_by_the_disk_of_its_data_directory() {
    for kind in [Kind::Mariadb11, Kind::Mariadb10] {
        let (world, server) = calibrated(kind);
        let url = format!("mariadb://root@127.0.0.1:{}", server.port());
        for codec in ["none", "lz4"] {
            let foreseen = report(&world, &format!("estimate {url} --to a/ --compression {codec}"));
            let p50 = |direction: &str| foreseen[direction]["p50_s"].as_f64();
            assert!(p50("backup") > Some(0.0), "{foreseen:#}");
            let made = report(&world, &format!("backup {url} --to a/ --compression {codec}"));
            let bytes = |report: &Value, name: &str| report[name].as_u64().unwrap() as f64;
            let (stored, expected) = (bytes(&made, "stored_bytes"), bytes(&foreseen, "stored_bytes"));
            assert!((expected - stored).abs() < 0.2 * stored + 262_144.0, "{codec}: {expected} and {stored}");
            assert!(bytes(&foreseen, "plain_bytes") <= 1.05 * bytes(&made, "source_bytes"), "{foreseen:#} {made:#}");
            let limit = &made["verdict"]["calibrated"];
            assert!(limit["percent"].as_f64() > Some(0.0) && limit["profile"] == "default", "{made:#}");
        }
        let elsewhere = format!("estimate {url} --to a/ --password-file password --data-path /proc");
        world.run(&elsewhere).refused(2, "profile `default`", "fullbore calibrate --read /proc");
    }
}

#[test]
fn sizes_of_a_dry_run_an_estimate_and_a_report_agree_and_have_their_names() {
    let (world, server) = calibrated(Kind::Mariadb10);
    let url = format!("mariadb://root@127.0.0.1:{}", server.port());
    let planned =
        world.run(&format!("backup {url} --to a/ --dry-run --password-file password --report json:plan.json"));
    let said = planned.done().text();
    assert!(["in use; of these,", "were never written:", "to read"].iter().all(|word| said.contains(word)), "{said}");
    let plan: Value = serde_json::from_str(&world.text("plan.json")).unwrap();
    let (foreseen, made) =
        (report(&world, &format!("estimate {url} --to a/")), report(&world, &format!("backup {url} --to a/")));
    let bytes = |report: &Value, name: &str| report[name].as_u64().unwrap();
    let is_about = |one: u64, other: u64| one.abs_diff(other) < (1 << 20) + other / 50;
    let in_use = bytes(&plan, "allocated_bytes");
    assert!(is_about(bytes(&foreseen, "in_use_bytes"), in_use), "{plan:#} {foreseen:#}");
    assert!(is_about(bytes(&made, "allocated_bytes"), in_use), "{plan:#} {made:#}");
    let to_read = in_use - bytes(&plan, "hole_bytes");
    assert!(is_about(bytes(&foreseen, "plain_bytes"), to_read), "{plan:#} {foreseen:#}");
    // The server goes on with its own work: what was never written before may be written by now.
    assert!(bytes(&made, "hole_bytes") < in_use, "{made:#}");
    assert!(bytes(&plan, "hole_bytes") > 0 && bytes(&made, "source_bytes") >= bytes(&foreseen, "plain_bytes"));
    let shown = world.run(&format!("estimate {url} --to a/ --password-file password")).done();
    assert!(shown.text().contains("in use, the rest was never written"), "{shown}");
}

#[test]
fn a_mysql_whose_data_directory_is_here_is_judged_by_its_disk() {
    let (world, server) = calibrated(Kind::Mysql9);
    server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
    let url = format!("mysql://root@127.0.0.1:{}", server.port());
    let foreseen = report(&world, &format!("estimate {url} --to a/"));
    assert!(foreseen["backup"]["p50_s"].as_f64() > Some(0.0), "{foreseen:#}");
    let made = report(&world, &format!("backup {url} --to a/"));
    assert!(made["verdict"]["calibrated"]["percent"].as_f64() > Some(0.0), "{made:#}");
    // Its identity is gone: nobody can say any more whose data directory that is.
    fs::remove_file(server.datadir().join("auto.cnf")).unwrap();
    let estimate = format!("estimate {url} --to a/ --password-file password");
    world.run(&estimate).refused(2, "the disk of its files is not known", "--data-path");
    let unknown = report(&world, &format!("backup {url} --to a/"));
    let notes: Vec<&str> = unknown["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(unknown["verdict"]["calibrated"].is_null(), "{unknown:#}");
    assert!(
        notes.iter().any(|note| note.contains("knows no limit of this backup") && note.contains("data directory")),
        "{notes:?}"
    );
    world.run(&format!("{estimate} --data-path {}", server.datadir().display())).done();
}
