//! SQLite databases that are damaged, strange, or written to past SQLite while they are backed up.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rusqlite::Connection;

use crate::database::{self, Shape};
use crate::log::kept_open;
use crate::small_disk::SmallDisk;
use crate::world::World;

/// Makes `name`, whose rows SQLite can read although its free-list names the page of row numbers `page`.
fn with_used_page_in_free_list(world: &World, name: &str, page: u32) {
    let path = world.at(name);
    let rows = "CREATE TABLE t(a INTEGER PRIMARY KEY, b); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
        INSERT INTO t(b) SELECT hex(zeroblob(45)) || i FROM n; DELETE FROM t WHERE a > 1500";
    database::sql(&path, rows);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut trunk = [0; 4];
    file.read_exact_at(&mut trunk, 32).unwrap();
    let trunk = u64::from(u32::from_be_bytes(trunk));
    assert_ne!(trunk, 0, "there are free pages");
    file.write_all_at(&page.to_be_bytes(), (trunk - 1) * 4096 + 8).unwrap();
}

#[test]
fn a_root_page_that_the_free_list_names_is_stored_with_a_warning() {
    let world = World::new();
    with_used_page_in_free_list(&world, "app.db", 2);
    world.run("backup sqlite:app.db --to a/app.bore").with_code(4).says(&[
        "free-list",
        "page 2",
        "every page is stored",
    ]);
    world.run("restore --from a --into sqlite:copy.db").done();
    assert_eq!(database::number(&world.at("copy.db"), "SELECT count(*) FROM t"), 1500);
}

#[test]
fn a_page_in_use_that_the_free_list_names_ends_a_backup_that_would_lose_it() {
    let world = World::new();
    with_used_page_in_free_list(&world, "app.db", 5);
    world
        .run("backup sqlite:app.db --to a/app.bore")
        .refused(1, "app.db", "page 5 is in the free-list")
        .says(&["--keep-free-pages"]);
    world.assert_no_media();
    let kept = world.run("backup sqlite:app.db --to a/app.bore --keep-free-pages --report json");
    let kept = kept.done().json();
    let length = std::fs::metadata(world.at("app.db")).unwrap().len();
    assert_eq!((kept["source_bytes"].as_u64(), kept["allocated_bytes"].as_u64()), (Some(length), Some(length)));
    world.run("restore --from a --into sqlite:copy.db").done();
    assert_eq!(database::number(&world.at("copy.db"), "SELECT count(*) FROM t"), 1500);
    assert!(world.read("copy.db") == world.read("app.db"), "a copy byte for byte");
}

#[test]
fn with_keep_free_pages_what_was_deleted_is_in_the_backup_and_in_its_estimate() {
    let world = World::new();
    database::sql(
        &world.at("app.db"),
        "PRAGMA secure_delete = off; CREATE TABLE t(b); INSERT INTO t VALUES (randomblob(900000)); DELETE FROM t",
    );
    let planned =
        |flags: &str| world.run(&format!("backup sqlite:app.db --to a/ --dry-run --report json {flags}")).done().json();
    let (without, with) = (planned(""), planned("--keep-free-pages"));
    assert!(
        with["allocated_bytes"].as_u64() > without["allocated_bytes"].as_u64().map(|bytes| bytes + 800_000),
        "{with} {without}"
    );
    world.run("backup sqlite:app.db --to a/app.bore --keep-free-pages").done();
    world.run("restore --from a --into sqlite:copy.db").done();
    assert!(world.read("copy.db") == world.read("app.db"), "a copy byte for byte");
    world.run("backup sqlite:app.db --kind log --base a --to b/ --keep-free-pages").refused(
        2,
        "--keep-free-pages",
        "log set",
    );
}

#[test]
fn an_option_of_sqlite_in_a_flag_wins_over_the_url_and_the_url_over_the_configuration() {
    let world = World::new();
    database::sql(
        &world.at("app.db"),
        "PRAGMA secure_delete = off; PRAGMA journal_mode = wal; CREATE TABLE t(b); INSERT INTO t VALUES \
         (randomblob(900000)); DELETE FROM t",
    );
    let stored = |source: &str, flags: &str| {
        let report = world.run(&format!("backup {source} --to nul: --report json {flags}")).done().json();
        assert_eq!(report["database"], "sqlite:app.db", "without its options");
        report["allocated_bytes"].as_u64().unwrap() > 800_000
    };
    assert!(!stored("sqlite:app.db", "") && stored("sqlite:app.db?keep-free-pages=true", ""));
    world.write("fullbore.toml", b"[engine.sqlite]\nkeep-free-pages = true\n");
    assert!(stored("sqlite:app.db", "") && !stored("sqlite:app.db?keep-free-pages=false", ""));
    assert!(stored("sqlite:app.db?keep-free-pages=false", "--keep-free-pages"));
    // The configuration is for every run, and a log set has no free pages to leave out.
    let app = kept_open(&world);
    world.run("backup sqlite:app.db --to a/").done();
    world.run("backup sqlite:app.db?keep-free-pages=true --kind log --base a --to b/").refused(
        2,
        "keep-free-pages=true",
        "log set",
    );
    app.execute_batch("INSERT INTO t VALUES (1)").unwrap();
    world.run("backup sqlite:app.db --kind log --base a --to b/").done();
}

#[test]
fn an_unknown_option_of_an_engine_is_refused_and_the_known_ones_are_named() {
    let world = World::new();
    database::sql(&world.at("app.db"), "CREATE TABLE t(b)");
    let known = ["known: keep-free-pages"];
    world.run("backup sqlite:app.db?free=true --to a/").refused(2, "sqlite:app.db?free=true", "`free`").says(&known);
    world.run("restore --from a --into sqlite:new.db?free=true").refused(2, "sqlite:new.db?free=true", "`free`");
    world.write("fullbore.toml", b"[engine.sqlite]\nfree = true\n");
    world.run("backup sqlite:app.db --to a/").refused(2, "fullbore.toml", "`free`").says(&known);
    world.write("fullbore.toml", b"");
    database::sql(&world.at("odd?free=true"), "CREATE TABLE t(b)");
    world.run("backup sqlite:odd?free=true --to b/").done();
    world.run("restore --from b --into sqlite:odd?free=true --replace").done();
}

/// What is written over the live database while it is backed up: other rows in pages of the same numbers.
fn other_database(world: &World, shape: Shape, same_first_page: bool) -> Vec<u8> {
    database::make(&world.at("other.db"), shape);
    if !same_first_page {
        database::sql(&world.at("other.db"), "CREATE TABLE another(x)");
    }
    let (bytes, live) = (world.read("other.db"), world.read("app.db"));
    assert_eq!(bytes[..4096] == live[..4096], same_first_page, "the case is real");
    assert_ne!(bytes[4096..], live[4096..]);
    bytes
}

#[test]
fn a_file_that_is_overwritten_during_the_backup_is_an_error_also_where_its_first_page_is_the_same() {
    for journal in ["wal", "delete"] {
        for same_first_page in [true, false] {
            let shape = || Shape { journal, ..Shape::default() };
            let world = World::with_shape(shape());
            let other = other_database(&world, shape(), same_first_page);
            let slow = "--throttle 1MiB/s --max-transfer-size 64KiB --stats 5";
            let running = world.start(&format!("backup sqlite:app.db --to a/ --to b/ {slow}"));
            running.says("backup: ");
            running.stop();
            assert!(world.names("a").iter().any(|name| name.contains(".new-")), "it has ended already");
            let live = OpenOptions::new().write(true).open(world.at("app.db")).unwrap();
            live.write_all_at(&other, 0).unwrap();
            running.go_on();
            running.wait().with_code(1).says(&["error: ", "app.db", "without SQLite's locks", "hint: "]);
            world.assert_no_media();
        }
    }
}

/// Makes the schema one that no SQLite can parse; the pages stay whole.
fn break_schema(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    let broken = "PRAGMA writable_schema = on; UPDATE sqlite_schema SET sql = sql || ' FANCY' WHERE name = 'item'";
    connection.execute_batch(broken).unwrap();
    connection
}

/// Rows of a database whose schema cannot be parsed, by another name for the same table.
fn rows_despite_schema(path: &Path) -> i64 {
    let connection = Connection::open(path).unwrap();
    let repair =
        "PRAGMA writable_schema = on; UPDATE sqlite_schema SET sql = replace(sql, ' FANCY', '') WHERE name = 'item'";
    connection.execute_batch(repair).unwrap();
    drop(connection);
    database::number(path, "SELECT count(*) FROM item")
}

#[test]
fn a_database_whose_schema_cannot_be_parsed_is_stored_when_that_is_asked_for() {
    for journal in ["wal", "delete"] {
        let world = World::with_shape(Shape { journal, ..Shape::default() });
        let rows = database::number(&world.at("app.db"), "SELECT count(*) FROM item");
        drop(break_schema(&world.at("app.db")));
        world
            .run("backup sqlite:app.db --to a/app.bore")
            .refused(1, "app.db", "malformed database schema (item)")
            .says(&["--continue-after-error"]);
        let despite = "--continue-after-error";
        world
            .run(&format!("backup sqlite:app.db --to a/app.bore {despite}"))
            .with_code(4)
            .says(&["malformed database schema (item)"]);
        world.run("verify --from a").with_code(4).says(&["malformed database schema (item)", "pages are whole"]);
        world.run("list --from a").done();
        world.run("restore --from a --into sqlite:checked.db --integrity-check").refused(
            1,
            "checked.db",
            "malformed database schema",
        );
        world.run("restore --from a --into sqlite:copy.db").with_code(4).says(&["malformed database schema (item)"]);
        assert_eq!(rows_despite_schema(&world.at("copy.db")), rows, "{journal}");
    }
}

#[test]
fn the_log_of_a_database_whose_schema_cannot_be_parsed_is_stored_and_restored_when_that_is_asked_for() {
    let world = World::with_database();
    let rows = database::number(&world.at("app.db"), "SELECT count(*) FROM item");
    let user = Connection::open(world.at("app.db")).unwrap();
    user.execute_batch("PRAGMA wal_autocheckpoint = 0; DELETE FROM item WHERE id = 1").unwrap();
    drop(break_schema(&world.at("app.db")));
    world.run("backup sqlite:app.db --to a/full.bore --continue-after-error").with_code(4);
    let other = commit_despite_schema(&world);
    world.run("backup sqlite:app.db --kind log --base a --to a/ ").refused(
        1,
        "app.db",
        "malformed database schema (item)",
    );
    world
        .run("backup sqlite:app.db --kind log --base a --to a/ --continue-after-error")
        .with_code(4)
        .says(&["malformed database schema"]);
    drop(other);
    drop(user);
    world.run("restore --from a --into sqlite:copy.db").with_code(4).says(&["malformed database schema (item)"]);
    assert_eq!(rows_despite_schema(&world.at("copy.db")), rows - 1);
    assert_eq!(database::number(&world.at("copy.db"), "PRAGMA user_version"), 77);
}

/// One commit more, by a connection that needs no schema for it.
fn commit_despite_schema(world: &World) -> Connection {
    let other = Connection::open(world.at("app.db")).unwrap();
    other
        .execute_batch("PRAGMA writable_schema = on; PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 77")
        .unwrap();
    other
}

#[test]
fn a_full_disk_beside_a_database_in_wal_mode_is_named() {
    let world = World::new();
    let name = "a_full_disk_beside_a_database_in_wal_mode_is_named";
    let Some(disk) = SmallDisk::mount(&world, "small", 2, name) else { return };
    database::sql(
        &world.at("small/app.db"),
        "PRAGMA journal_mode = wal; CREATE TABLE t(b); INSERT INTO t VALUES (randomblob(9000))",
    );
    assert_eq!(disk.names(), ["app.db"], "nothing is beside it");
    let filler = OpenOptions::new().create(true).append(true).open(world.at("small/filler")).unwrap();
    while std::io::Write::write(&mut &filler, &[1; 4096]).is_ok() {}
    let ended = world.run("backup sqlite:small/app.db --to a/app.bore").refused(1, "app.db", "disk");
    ended.says(&["full", "free space", "hint: "]);
    drop(disk);
}
