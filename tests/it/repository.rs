//! Repositories in directories: what goes in, what is found there, and what outlives the catalog.

use std::fs;

use serde_json::Value;

use crate::database;
use crate::program::Ended;
use crate::world::World;

/// A world with the repository `night` over the directories `a/` and `b/`.
fn world() -> World {
    let world = World::with_database();
    configure(&world, "");
    world
}

fn configure(world: &World, more: &str) {
    let text = format!("[repository.night]\nto = [\"a/\", \"b/\"]\n{more}\n");
    world.write("fullbore.toml", text.as_bytes());
}

fn change(world: &World, number: usize) {
    database::sql(&world.at("app.db"), &format!("CREATE TABLE more_{number} AS SELECT {number} AS n, 0 AS m"));
}

fn back_up(world: &World, options: &str) -> Ended {
    world.run(&format!("backup sqlite:app.db --repo night {options}")).done()
}

fn list(world: &World) -> Vec<Value> {
    world.run("list --repo night --json").done().json().as_array().unwrap().clone()
}

fn kinds(world: &World) -> Vec<String> {
    list(world).iter().map(|set| set["kind"].as_str().unwrap().to_owned()).collect()
}

/// The folder of records.
fn records(world: &World, folder: &str) -> Vec<String> {
    world.names(&format!("a/.fullbore/{folder}"))
}

fn assert_restores(world: &World, options: &str) {
    world.run(&format!("restore --repo night {options} --into sqlite:copy.db")).done();
    world.assert_copy();
    fs::remove_file(world.at("copy.db")).unwrap();
}

#[test]
fn a_full_its_differential_and_the_way_back_need_no_names() {
    let world = world();
    back_up(&world, "");
    change(&world, 1);
    back_up(&world, "--kind differential");
    assert_eq!(kinds(&world), ["full", "differential"]);
    assert_restores(&world, "--database app");
    assert_restores(&world, "");
    let planned = world.run("restore --repo night --into sqlite:copy.db --dry-run").done().text();
    assert!(planned.contains("full ") && planned.contains("differential "), "{planned}");
    world.run("backup sqlite:app.db --repo night --kind differential --dry-run").done();
    assert_eq!((records(&world, "sets").len(), records(&world, "decisions").len()), (2, 2));
    // Two backups and two restores: plans leave no trace.
    assert_eq!(records(&world, "tasks").len(), 4);
    let stripes = |folder: &str| world.names(folder).iter().filter(|name| name.ends_with(".bore")).count();
    assert_eq!((stripes("a"), stripes("b")), (2, 2));
    world.run("verify --repo night").done();
    assert!(list(&world).iter().all(|set| set["verified_at"].is_string()));
    assert_eq!(records(&world, "verdicts").len(), 2);
    let shown = world.run("list --repo night").done().text();
    assert!(shown.contains("complete") && !shown.contains("FAILED"), "{shown}");
}

#[test]
fn a_repository_of_fullbore_0_1_keeps_its_folder_of_decisions() {
    let world = world();
    back_up(&world, "");
    // As version 0.1 has written it: format 1, `fates/`, and the word `fate`.
    let edit = |name: &str, from: &str, to: &str| {
        let text = world.text(name);
        assert!(text.contains(from), "{text}");
        world.write(name, text.replacen(from, to, 1).as_bytes());
    };
    edit("a/.fullbore/repository.json", "\"format\": 2", "\"format\": 1");
    fs::rename(world.at("a/.fullbore/decisions"), world.at("a/.fullbore/fates")).unwrap();
    edit(&format!("a/.fullbore/fates/{}", records(&world, "fates")[0]), "\"decision\"", "\"fate\"");
    change(&world, 1);
    back_up(&world, "--kind differential");
    assert_eq!(records(&world, "fates").len(), 2);
    assert!(!world.at("a/.fullbore/decisions").exists(), "both versions decide in one folder");
    back_up(&world, "");
    configure(&world, "[repository.night.keep]\nlast = 1");
    world.run("verify --repo night").done();
    world.run("prune --repo night --grace 0s --confirm").done();
    assert_eq!((kinds(&world), records(&world, "fates").len()), (vec!["full".to_owned()], 1));
    world.run("verify --repo night").done();
}

#[test]
fn the_kind_that_is_wanted_may_be_left_to_the_repository() {
    let world = world();
    back_up(&world, "--kind auto").says(&["takes a full: the repository has no full"]);
    change(&world, 1);
    back_up(&world, "--kind auto").says(&["a differential of full"]);
    configure(&world, "differential-share = 0.0");
    back_up(&world, "--kind auto").says(&["more than 0 % (differential-share)"]);
    assert_eq!(kinds(&world), ["full", "differential", "full"]);
    world.run("backup sqlite:app.db --to a/ --kind auto").refused(2, "--kind auto", "only a repository");
}

#[test]
fn a_copy_only_full_is_nobodys_base() {
    let world = world();
    back_up(&world, "--copy-only");
    let line = "backup sqlite:app.db --repo night --kind differential";
    world.run(line).refused(3, "--kind differential", "no usable full");
    back_up(&world, "--kind auto");
    assert_eq!(kinds(&world), ["full", "full"]);
}

#[test]
fn the_repository_is_found_whole_without_a_catalog_and_without_its_records() {
    let world = world();
    back_up(&world, "");
    change(&world, 1);
    back_up(&world, "--kind differential");
    let known = list(&world);
    let seen = world.run("list --repo night --json --catalog").done().json();
    assert_eq!(seen.as_array().unwrap(), &known);
    fs::remove_dir_all(world.at("state")).unwrap();
    world.run("list --repo night --catalog").refused(2, "--repo night", "does not know this repository");
    assert_eq!(list(&world), known);
    // The media alone tell the same.
    fs::remove_dir_all(world.at("a/.fullbore/sets")).unwrap();
    fs::remove_dir_all(world.at("state")).unwrap();
    assert_eq!(list(&world), known);
    assert_restores(&world, "");
}

#[test]
fn a_catalog_that_is_no_database_is_put_aside_and_made_anew() {
    let world = world();
    back_up(&world, "");
    fs::write(world.at("state/fullbore/catalog.db"), "this is no database, and long enough to be looked at as one")
        .unwrap();
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(world.at(&format!("state/fullbore/catalog.db{end}")));
    }
    world.run("list --repo night").with_code(4).says(&["was renamed to .damaged"]);
    assert_eq!(kinds(&world), ["full"]);
    assert!(world.at("state/fullbore/catalog.db.damaged").exists());
}

#[test]
fn a_family_that_is_missing_or_cut_is_named_before_the_target_is_touched() {
    let world = world();
    back_up(&world, "");
    let family = world.names("b").remove(0);
    let whole = world.read(&format!("b/{family}"));
    world.write(&format!("b/{family}"), &whole[..whole.len() - 1]);
    world.run("list --repo night").with_code(4).says(&["family 2 of 2", "bytes"]);
    world.run("restore --repo night --into sqlite:copy.db").refused(3, "family 2 of 2", &family);
    fs::remove_file(world.at(&format!("b/{family}"))).unwrap();
    world.run("restore --repo night --into sqlite:copy.db").refused(3, "family 2 of 2", "missing");
    world.run("verify --repo night").with_code(3).says(&["missing"]);
    world.assert_no_copy();
    assert_eq!(list_failed(&world), 1);
}

fn list_failed(world: &World) -> usize {
    let listed = world.run("list --repo night --json").with_code(4).json();
    listed.as_array().unwrap().iter().filter(|set| set["failed_at"].is_string()).count()
}

#[test]
fn several_databases_in_one_repository_are_told_apart() {
    let world = world();
    database::sql(&world.at("other.db"), "CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    back_up(&world, "");
    world.run("backup sqlite:other.db --repo night").done();
    world.run("restore --repo night --into sqlite:copy.db").refused(1, "several databases", "--database");
    world.run("restore --repo night --database none --into sqlite:copy.db").refused(2, "--database none", "other.db");
    assert_restores(&world, "--database app.db");
    world.run("backup sqlite:other.db --repo night --kind differential").done();
}

#[test]
fn a_directory_that_is_no_repository_is_named_as_such() {
    let world = world();
    world.run("list --repo night").refused(2, "--repo night", "holds no repository");
    world.run("list --repo day").refused(2, "--repo day", "configured are: night");
    world.run("backup sqlite:app.db --repo night --init").with_code(2);
    let fixed = "backup sqlite:app.db --repo night --name-template {database}.bore";
    world.run(fixed).refused(2, "--name-template", "{id}");
    world.write("fullbore.toml", b"[repository.night]\nto = [\"missing/\"]\n");
    world.run("backup sqlite:app.db --repo night").refused(2, "missing/", "not mounted");
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/x.bore\"]\n");
    world.run("backup sqlite:app.db --repo night").refused(2, "--repo night", "end them in /");
    world.assert_no_media();
}

#[test]
fn mkdir_makes_the_directories_of_a_new_repository_and_never_one_that_may_be_an_unmounted_disk() {
    let world = world();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"new/a/\", \"new/b/\"]\n");
    world.run("backup sqlite:app.db --repo night").refused(2, "new/a/", "does not exist");
    world.run("backup sqlite:app.db --repo night --mkdir --dry-run").with_code(0);
    assert!(!world.at("new").exists());
    world.run("backup sqlite:app.db --repo night --mkdir --stripes 2").done();
    std::fs::remove_dir_all(world.at("new/b")).unwrap();
    world.run("backup sqlite:app.db --repo night --mkdir --kind differential").refused(1, "new/b", "not mounted");
    assert!(!world.at("new/b").exists());
    world.write("fullbore.toml", b"[repository.night]\nto = [\"near/\"]\n[repository.far]\nto = [\"far/\"]\n");
    world.run("backup sqlite:app.db --repo night --mkdir").done();
    world.run("copy --repo night --latest --to-repo far").refused(2, "far/", "does not exist");
    world.run("copy --repo night --latest --to-repo far --mkdir").done();
    world.run("restore --repo far --into sqlite:copy.db").done();
    world.assert_copy();
}

#[test]
fn a_repository_of_a_newer_fullbore_is_left_alone() {
    let world = world();
    back_up(&world, "");
    let newer = world.text("a/.fullbore/repository.json").replace("\"format\": 2", "\"format\": 3");
    world.write("a/.fullbore/repository.json", newer.as_bytes());
    for line in ["list --repo night", "backup sqlite:app.db --repo night", "restore --repo night --into sqlite:copy.db"]
    {
        world.run(line).refused(1, "repository.json", "newer fullbore");
    }
}

#[test]
fn a_forged_record_leads_to_no_file_outside_of_the_repository() {
    let world = world();
    back_up(&world, "");
    let name = format!("a/.fullbore/sets/{}", records(&world, "sets")[0]);
    let mut record: Value = serde_json::from_slice(&world.read(&name)).unwrap();
    record["families"][0]["name"] = "../app.db".into();
    world.write(&name, record.to_string().as_bytes());
    fs::remove_dir_all(world.at("state")).unwrap();
    let ended = world.run("restore --repo night --into sqlite:copy.db");
    assert_ne!(ended.code, 0, "{ended}");
    world.assert_no_copy();
}

#[test]
fn log_sets_continue_the_newest_set_of_the_repository_and_a_restore_stops_where_it_is_told() {
    let world = world();
    database::sql(&world.at("app.db"), "PRAGMA journal_mode = wal; CREATE TABLE ledger (n INTEGER, of TEXT)");
    let keeper = rusqlite::Connection::open(world.at("app.db")).unwrap();
    keeper.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
    back_up(&world, "");
    let mut times = Vec::new();
    for n in 1..=3 {
        keeper.execute("INSERT INTO ledger VALUES (?1, 'x')", [n]).unwrap();
        back_up(&world, "--kind log");
        times.push(jiff::Timestamp::now().to_string());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(kinds(&world), ["full", "log", "log", "log"]);
    let restored = |options: &str| {
        world.run(&format!("restore --repo night {options} --into sqlite:copy.db")).done();
        let copy = rusqlite::Connection::open(world.at("copy.db")).unwrap();
        let rows: i64 = copy.query_row("SELECT COUNT(*) FROM ledger", [], |row| row.get(0)).unwrap();
        drop(copy);
        fs::remove_file(world.at("copy.db")).unwrap();
        rows
    };
    assert_eq!(restored(""), 3);
    assert_eq!(restored(&format!("--stop-at {}", times[1])), 2);
    let middle = list(&world)[2]["backup_set_id"].as_str().unwrap().to_owned();
    let record: Value = serde_json::from_slice(&world.read(&format!("a/.fullbore/sets/{middle}.json"))).unwrap();
    fs::remove_file(world.at("a").join(record["families"][0]["name"].as_str().unwrap())).unwrap();
    let gap = world.run("restore --repo night --into sqlite:copy.db");
    assert!(gap.code != 0 && gap.err.contains(&middle), "{gap}");
}

#[test]
fn a_time_before_the_first_position_and_one_behind_the_last_are_refused_with_the_range() {
    let world = world();
    database::sql(&world.at("app.db"), "PRAGMA journal_mode = wal; CREATE TABLE ledger (n INTEGER)");
    let keeper = rusqlite::Connection::open(world.at("app.db")).unwrap();
    keeper.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
    back_up(&world, "");
    keeper.execute("INSERT INTO ledger VALUES (1)", []).unwrap();
    back_up(&world, "--kind log");
    let sets = list(&world);
    let first = sets[0]["finished_at"].as_str().unwrap();
    let stopped = |time: &str| world.run(&format!("restore --repo night --into sqlite:copy.db --stop-at {time}"));
    let day = |time: &str| time.split('T').next().unwrap().to_owned();
    stopped("2020-01-01T00:00:00Z").refused_once(1, &["--stop-at", "is before the range that these sets", &day(first)]);
    stopped("2090-01-01T00:00:00Z").refused_once(1, &["--stop-at", "is after the range that these sets", &day(first)]);
    stopped("2026-10-25T02:30:00[Europe/Berlin]").refused_once(2, &["--stop-at", "had this time twice", "+01:00"]);
    stopped("2026-03-29T02:30:00[Europe/Berlin]").refused_once(2, &["--stop-at", "never had this time"]);
    stopped("2026-10-25T02:30:00").refused_once(2, &["--stop-at", "the zone is missing"]);
    world.assert_no_copy();
}

#[test]
fn encrypted_sets_without_records_get_their_names_back_with_the_key() {
    let world = world();
    world.run("key new --no-recovery k.key").done();
    world.run("key new --no-recovery other.key").done();
    back_up(&world, "--encrypt-to k.key.pub --name friday");
    change(&world, 1);
    back_up(&world, "--kind differential --encrypt-to k.key.pub --key k.key");
    let before = list(&world);
    let lose = || {
        fs::remove_dir_all(world.at("a/.fullbore")).unwrap();
        fs::remove_dir_all(world.at("state")).unwrap();
    };
    lose();
    let media = ["a", "b"].map(|folder| (world.at(folder), world.at(&format!("{folder}-away"))));
    media.iter().for_each(|(place, away)| fs::rename(place, away).and_then(|()| fs::create_dir(place)).unwrap());
    world.run("catalog rebuild --repo night").refused(2, "--repo night", "is not a repository");
    assert!(world.names("a").is_empty(), "an empty place does not become a repository");
    media.iter().for_each(|(place, away)| fs::remove_dir(place).and_then(|()| fs::rename(away, place)).unwrap());
    let said = world.run("catalog rebuild --repo night").done().text();
    assert!(said.contains("without a record: 2 sets; written for these: 0 records"), "{said}");
    assert!(list(&world).iter().all(|set| set["database"] == ""));
    let ended = world.run("catalog rebuild --repo night --key other.key").with_code(4);
    assert!(ended.text().contains("0 records") && ended.err.contains("key"), "{ended}");
    let said = world.run("catalog rebuild --repo night --key k.key").done().text();
    assert!(said.contains("without a record: 2 sets; written for these: 2 records"), "{said}");
    assert_eq!(list(&world), before);
    world.run("restore --repo night --database app --key k.key --into sqlite:copy.db").done();
    world.assert_copy();
    world.run("catalog rebuild --repo night --key none.key").refused_once(2, &["none.key"]);
}

/// A page in the middle of the catalog is not what it was: it is only an index.
#[test]
fn a_catalog_with_a_damaged_page_costs_nothing_but_itself() {
    let world = world();
    back_up(&world, "");
    let path = "state/fullbore/catalog.db";
    database::sql(&world.at(path), "PRAGMA wal_checkpoint(TRUNCATE)");
    let mut bytes = world.read(path);
    let pages = bytes.len() / 4096;
    (1..pages).for_each(|page| bytes[page * 4096..][..64].fill(0xa5));
    world.write(path, &bytes);
    let ended = world.run("list --repo night --json");
    assert!([0, 4].contains(&ended.code), "{ended}");
    assert_eq!(ended.json().as_array().unwrap().len(), 1, "{ended}");
    assert_restores_all_the_same(&world);
}

fn assert_restores_all_the_same(world: &World) {
    let ended = world.run("restore --repo night --into sqlite:copy.db");
    assert!([0, 4].contains(&ended.code), "{ended}");
    world.assert_copy();
}

#[test]
fn a_server_goes_into_a_repository_and_its_chain_comes_back() {
    use fullbore_test_servers::{Kind, Options, Server};
    let world = World::new();
    configure(&world, "");
    let server = Server::start(Kind::Mysql9, &Options::new().binlog());
    server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'; CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY)");
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    let line =
        format!("backup mysql://root@127.0.0.1:{} --password-file password --repo night --kind auto", server.port());
    world.run(&line).done();
    server.sql("INSERT INTO shop.item VALUES (1), (2)");
    world.run(&line).done().says(&["a differential of full"]);
    let listed = list(&world);
    assert_eq!(kinds(&world), ["full", "differential"]);
    assert!(listed[0]["engine"] == "mysql" && listed[1]["base_backup_set_id"] == listed[0]["backup_set_id"]);
    let database = listed[0]["database"].as_str().unwrap();
    world.run(&format!("restore --repo night --database {database} --into dir:back")).done();
    assert!(world.at("back/shop/item.ibd").exists());
    world.run("verify --repo night --latest").done();
    world.run("check --repo night --max-age 1h --max-unproven 1h").done();
}
