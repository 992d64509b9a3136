//! A real MySQL, backed up over its CLONE protocol, restored into a directory, and started on it.

use std::fs;

use fullbore_test_servers::{Kind, Options, Server};

use crate::program::{self, Ended};
use crate::world::World;

/// A server with some tables, and its password file in the world's folder.
fn server(world: &World) -> Server {
    let server = Server::start(Kind::Mysql9, &Options::new().binlog());
    server.sql(
        "CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(200), KEY (name)); \
         INSERT INTO shop.item (name) VALUES ('a'), ('b'), ('c'), ('d'); \
         INSERT INTO shop.item (name) SELECT CONCAT(a.name, UUID()) FROM shop.item a, shop.item b, shop.item c, shop.item d, shop.item e, shop.item f; \
         CREATE TABLE shop.parts (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 3; \
         INSERT INTO shop.parts SELECT id, id FROM shop.item",
    );
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    server
}

fn checksums(server: &Server) -> String {
    server
        .sql("CHECKSUM TABLE shop.item, shop.parts; CHECK TABLE shop.item, shop.parts; SELECT COUNT(*) FROM shop.item")
}

fn url(server: &Server) -> String {
    format!("mysql://root@127.0.0.1:{}", server.port())
}

fn backup(world: &World, server: &Server, options: &str) -> Ended {
    world.run(&format!("backup {} --password-file password {options}", url(server)))
}

#[test]
fn a_server_comes_back_from_two_stripes_with_every_table() {
    let world = World::new();
    let source = server(&world);
    let plugin = "--install-clone-plugin --to a/ --to b/ --compression zstd:1 --readers 2";
    let refused = backup(&world, &source, "--to a/");
    assert!(refused.code == 1 && refused.err.contains("--install-clone-plugin"), "{refused}");
    let expected = checksums(&source);
    let ended = backup(&world, &source, &format!("{plugin} --measure-limit"));
    assert!(ended.code == 0 && ended.err.contains("the limit was not measured"), "{ended}");
    world.run("verify --from a --from b").done();
    world.run("list --from a --from b").done();
    world.run("restore --from a --from b --into dir:copy").done();
    let refused = world.run("restore --from a --from b --into dir:copy").with_code(1);
    assert!(refused.err.contains("not empty"), "{refused}");
    let options = Options::new().binlog().datadir(&world.at("copy")).password_file(source.password_file().unwrap());
    let restored = Server::start(Kind::Mysql9, &options);
    assert_eq!(checksums(&restored), expected);
    drop(restored);
    // As the server's own user: started once on the directory, before that has its name.
    let own = source.program("mysqld").get_program().to_str().unwrap().to_owned();
    let line = format!("restore --from a --from b --into dir:again --start-check --server-program {own}");
    let ended = world.run_as_nobody(&format!("{line} --report json:report.json")).done();
    assert!(ended.text().contains("tables are OK"), "{ended}");
    let report: serde_json::Value = serde_json::from_slice(&world.read("report.json")).unwrap();
    assert!(report["start_check"]["tables"].as_u64() > Some(30), "{report}");
    let options = Options::new().binlog().datadir(&world.at("again")).password_file(source.password_file().unwrap());
    assert_eq!(checksums(&Server::start(Kind::Mysql9, &options)), expected);
}

#[test]
fn encrypted_tablespaces_are_stored_on_encrypted_media_only_and_start_elsewhere() {
    let world = World::new();
    let source = Server::start(Kind::Mysql9, &Options::new().binlog().encrypt());
    source.sql(
        "CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY, v VARCHAR(99)) ENCRYPTION='Y'; \
         CREATE TABLE shop.parts (id INT PRIMARY KEY); INSERT INTO shop.item VALUES (1, 'secret'), (2, 'words')",
    );
    fs::copy(source.password_file().unwrap(), world.at("password")).unwrap();
    let expected = checksums(&source);
    world.write("fullbore.toml", b"[engine.mysql]\ninstall-clone-plugin = true\n");
    let to = "--to a/ --readers 2";
    let refused = backup(&world, &source, to);
    assert!(refused.code == 1 && refused.err.contains("--encrypt-to") && world.names("a").is_empty(), "{refused}");
    world.run("key new k.key --no-recovery").done();
    let ended = backup(&world, &source, &format!("{to} --encrypt-to k.key.pub"));
    assert!(ended.code == 0, "{ended}");
    world.run("restore --from a --key k.key --into dir:copy").done();
    let password = source.password_file().unwrap();
    let options = Options::new().binlog().encrypt().datadir(&world.at("copy")).password_file(password);
    let restored = Server::start(Kind::Mysql9, &options);
    assert_eq!(checksums(&restored), expected);
    drop(restored);
    source.sql("UPDATE shop.item SET v = 'other words' WHERE id = 2; CREATE TABLE shop.more (id INT PRIMARY KEY) ENCRYPTION='Y'; INSERT INTO shop.more VALUES (7)");
    let differential = "--to b/ --readers 2 --kind differential --base a --key k.key --encrypt-to k.key.pub";
    backup(&world, &source, differential).done();
    world.run("verify --from a --from b --key k.key").done();
    world.run("restore --from a --from b --key k.key --into dir:later").done();
    let options = Options::new().binlog().encrypt().datadir(&world.at("later")).password_file(password);
    let restored = Server::start(Kind::Mysql9, &options);
    assert_eq!(checksums(&restored), checksums(&source));
    assert_eq!(restored.sql("SELECT v FROM shop.item WHERE id = 2; SELECT id FROM shop.more"), "other words\n7\n");
}

#[test]
fn a_page_that_was_damaged_at_the_source_is_named_and_the_files_are_shown_with_their_pages() {
    let world = World::new();
    let mut source = server(&world);
    source.stop();
    let path = source.datadir().join("shop/item.ibd");
    let mut bytes = fs::read(&path).unwrap();
    let page = bytes.len() / 16384 / 2;
    bytes[page * 16384 + 8000..][..16].fill(0xA5);
    bytes[page * 16384 + 38..][..2].copy_from_slice(&[1, 2]); // Not empty, whatever stood there.
    fs::write(&path, &bytes).unwrap();
    source.start_again(&Options::new().binlog());
    let refused = backup(&world, &source, "--install-clone-plugin --to a/").with_code(1);
    let refusal = format!("shop/item.ibd: page {page} is damaged in the server's own file");
    assert!(refused.err.contains(&refusal) && refused.err.contains("--continue-after-error"), "{refused}");
    assert_eq!(world.names("a"), Vec::<String>::new());
    backup(&world, &source, "--to a/ --continue-after-error")
        .with_code(4)
        .says(&["damaged in the server's own files: 1 page ", "shop/item.ibd"]);
    let named = format!("page {page} of `shop/item.ibd` was damaged already");
    world.run("verify --from a").with_code(4).says(&[&named, "checksum"]);
    for into in ["nul:", "dir:copy"] {
        let refused = world.run(&format!("restore --from a --into {into}")).with_code(1);
        assert!(refused.err.contains("damaged already when it was made") && refused.err.contains("--set"), "{refused}");
    }
    assert!(!world.at("copy").exists());
    world.run("restore --from a --into dir:copy --continue-after-error").with_code(4).says(&["damaged already"]);
    assert_eq!(
        fs::read(world.at("copy/shop/item.ibd")).unwrap()[page * 16384..][..16384],
        bytes[page * 16384..][..16384]
    );
    let files = world.run("inspect files --from a").done().text();
    let line = files.lines().find(|line| line.contains("shop/item.ibd")).unwrap();
    assert!(line.contains("pages of 16384"), "{files}");
}

#[test]
fn a_refused_backup_of_a_server_names_its_reason_and_leaves_nothing() {
    let world = World::new();
    let source = server(&world);
    let with = "--install-clone-plugin --to a/";
    fs::write(world.at("wrong"), "not-it").unwrap();
    let line = format!("backup {} --password-file wrong {with}", url(&source));
    let ended = world.run(&line);
    assert!(ended.code == 1 && ended.err.contains("Access denied") && !ended.err.contains("not-it"), "{ended}");
    let ended = backup(&world, &source, &format!("{with} --kind differential --base a"));
    assert_ne!(ended.code, 0, "{ended}");
    let ended = world.run(&format!("backup mysql://root:secret@127.0.0.1:{} {with}", source.port()));
    assert!(ended.code == 2 && !ended.err.contains("secret"), "{ended}");
    let ended = world.run(&format!("backup mysql://root@127.0.0.1:1 --password-file password {with}"));
    assert!(ended.code == 1 && ended.err.contains("127.0.0.1:1"), "{ended}");
    assert!(world.names("a").is_empty(), "{:?}", world.names("a"));
    let _ = program::is_root();
}
