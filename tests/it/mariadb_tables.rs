//! Tables of a MariaDB that are not like others: of engines that a copy leaves out, in databases with the names of files, and imported ones.

use std::fs;
use std::os::unix::fs::MetadataExt;

use fullbore_test_servers::{Kind, Options, Server};

use crate::program::Ended;
use crate::world::World;

fn server(world: &World, kind: Kind, statements: &str) -> Server {
    let server = Server::start(kind, &Options::new());
    server.sql(&format!(
        "CREATE DATABASE shop; USE shop; CREATE TABLE item (id INT PRIMARY KEY, t VARCHAR(99)) ENGINE=InnoDB; \
         INSERT INTO item SELECT seq, CONCAT('OLD', seq) FROM seq_1_to_300; {statements}"
    ));
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    server
}

fn backup(world: &World, server: &Server, options: &str) -> Ended {
    let port = server.port();
    world.run(&format!("backup mariadb://root@127.0.0.1:{port} --password-file password {options}"))
}

fn restored(world: &World, source: &Server) -> Server {
    let options = Options::new().datadir(&world.at("copy")).password_file(source.password_file().unwrap());
    Server::start(source.kind(), &options)
}

#[test]
fn tables_and_files_that_are_not_in_a_backup_are_named_unless_the_user_knows_of_them() {
    let world = World::new();
    let source = server(
        &world,
        Kind::Mariadb10,
        "CREATE TABLE `quick-one` (id INT) ENGINE=MEMORY; INSERT INTO `quick-one` VALUES (1); \
         CREATE TABLE parts (id INT) ENGINE=MEMORY PARTITION BY HASH (id) PARTITIONS 2; CREATE TABLE stored (id INT) ENGINE=MyISAM; \
         CREATE SEQUENCE numbers; CREATE VIEW seen AS SELECT * FROM item; INSTALL SONAME 'ha_blackhole'; \
         CREATE TABLE hole (id INT) ENGINE=BLACKHOLE",
    );
    // What a table of CONNECT leaves beside its definition.
    fs::write(source.datadir().join("shop/c.log"), "1,x").unwrap();
    let tables = ["2 tables in the server's memory", "shop.parts (MEMORY), shop.quick-one (MEMORY);"];
    backup(&world, &source, "--to a/ --dry-run").done().says(&tables);
    let warned = backup(&world, &source, "--to a/").with_code(4);
    warned.says(&tables).says(&[
        "1 file of an unknown kind in the folders of databases",
        "shop/c.log",
        "--accept-left-out",
    ]);
    backup(&world, &source, "--to b/ --accept-left-out").done();
    let manifest = &world.run("inspect files --json --from b").done().json()[0];
    let left_out = &manifest["position"]["last"]["left_out_tables"];
    assert_eq!(left_out[1], serde_json::json!({ "table": "shop.quick-one", "engine": "MEMORY" }), "{manifest}");
    assert_eq!(left_out.as_array().map(Vec::len), Some(2), "{left_out}");
    world.run("restore --from b --into dir:copy").done();
    let rows =
        "SELECT COUNT(*) FROM shop.item; SELECT COUNT(*) FROM shop.`quick-one`; SELECT COUNT(*) FROM shop.stored";
    assert_eq!(restored(&world, &source).sql(rows), "300\n0\n0\n");
    fs::write(world.at("pw.db"), "").unwrap();
    world.run("backup sqlite:pw.db --to c/ --accept-left-out").with_code(2).says(&["MariaDB", "hint: "]);
}

#[test]
fn databases_with_the_names_of_files_of_the_server_come_back() {
    let world = World::new();
    let source = server(
        &world,
        Kind::Mariadb10,
        "CREATE DATABASE undo001; CREATE TABLE undo001.a ENGINE=InnoDB AS SELECT * FROM item; \
         CREATE DATABASE mysql_upgrade_info; CREATE TABLE mysql_upgrade_info.b ENGINE=MyISAM AS SELECT * FROM item",
    );
    backup(&world, &source, "--to a/").done();
    world.run("restore --from a --into dir:copy").done();
    let rows = "SELECT COUNT(*) FROM undo001.a; SELECT COUNT(*) FROM mysql_upgrade_info.b";
    assert_eq!(restored(&world, &source).sql(rows), "300\n300\n");
}

#[test]
fn a_table_that_is_imported_between_a_full_and_its_differential_has_the_imported_rows() {
    for kind in Kind::MARIADB {
        let world = World::new();
        let source = server(
            &world,
            kind,
            "CREATE TABLE new LIKE item; INSERT INTO new SELECT seq, CONCAT('NEW', seq) FROM seq_1_to_5000",
        );
        backup(&world, &source, "--to a/").done();
        let file = source.datadir().join("shop/item.ibd");
        source.sql("USE shop; UPDATE item SET t = CONCAT(t, 'y'); FLUSH TABLES new FOR EXPORT");
        fs::copy(source.datadir().join("shop/new.ibd"), world.at("new.ibd")).unwrap();
        source.sql("ALTER TABLE shop.item DISCARD TABLESPACE");
        fs::copy(world.at("new.ibd"), &file).unwrap();
        let owner = fs::metadata(source.datadir()).unwrap();
        std::os::unix::fs::chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
        source.sql("ALTER TABLE shop.item IMPORT TABLESPACE; INSERT INTO shop.item VALUES (9999, 'ADDED')");
        let differential = "--to b/ --kind differential --base a";
        backup(&world, &source, differential).refused(1, "shop/item.ibd", "Innodb_lsn_last_checkpoint");
        source.flush_pages();
        backup(&world, &source, differential).done();
        world.run("restore --from a --from b --into dir:copy").done();
        let rows = "SELECT COUNT(*), MIN(LEFT(t, 3)), MAX(LEFT(t, 3)) FROM shop.item; CHECK TABLE shop.item EXTENDED";
        assert_eq!(
            restored(&world, &source).sql(rows),
            "5001\tADD\tNEW\nshop.item\tcheck\tstatus\tOK\n",
            "{}",
            kind.name()
        );
    }
}
