//! Pages that real servers use and whose content is gone from the disk: zero, or behind the end of a file that was cut.

use std::fs;
use std::os::unix::fs::FileExt;

use fullbore_test_servers::{Kind, Options, Server};

use crate::program::Ended;
use crate::world::World;

/// A server with two tables of 20,000 rows each, started anew: all that it has is in its files, and its redo log is behind that.
fn server(world: &World, kind: Kind, options: &Options) -> Server {
    let mut server = Server::start(kind, options);
    let rows = match kind {
        Kind::Mysql9 => "WITH RECURSIVE n (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 20000) SELECT",
        _ => "WITH n AS (SELECT seq FROM seq_1_to_20000) SELECT",
    };
    server.sql(&format!(
        "CREATE DATABASE shop; USE shop; CREATE TABLE a (id INT PRIMARY KEY, t VARCHAR(300)) ENGINE=InnoDB; CREATE TABLE b LIKE a; \
         INSERT /*+ SET_VAR(cte_max_recursion_depth=20000) */ INTO a {rows} seq, REPEAT(SHA2(seq, 224), 5) FROM n; INSERT INTO b SELECT * FROM a",
    ));
    server.stop();
    server.start_again(options);
    fs::copy(server.password_file().unwrap(), world.at("password")).unwrap();
    server
}

fn backup(world: &World, server: &Server, options: &str) -> Ended {
    let scheme = if server.kind() == Kind::Mysql9 { "mysql" } else { "mariadb" };
    let source = format!("{scheme}://root@127.0.0.1:{}", server.port());
    world.run(&format!("backup {source} --password-file password {options}"))
}

/// Makes a page of this size zero that has rows of a table; its number.
fn zero_a_page(server: &Server, table: &str, size: u64) -> u64 {
    let file = fs::File::options().read(true).write(true).open(server.datadir().join(table)).unwrap();
    let mut page = vec![0; size as usize];
    let has_rows = |number: &u64| {
        file.read_exact_at(&mut page, number * size).unwrap();
        page[24..26] == [0x45, 0xBF]
    };
    let number = (70..).find(has_rows).unwrap();
    file.write_all_at(&vec![0; size as usize], number * size).unwrap();
    number
}

#[test]
fn a_page_in_use_that_is_zero_and_a_file_that_was_cut_end_the_backup_unless_it_was_asked_to_go_on() {
    for (kind, options, size) in
        [(Kind::Mariadb10, Options::new(), 16384), (Kind::Mariadb11, Options::new().page_size("4k"), 4096)]
    {
        let world = World::new();
        let server = server(&world, kind, &options);
        backup(&world, &server, "--to b/").done();
        let number = zero_a_page(&server, "shop/a.ibd", size);
        let refused = backup(&world, &server, "--to a/").with_code(1);
        let said = format!("shop/a.ibd: page {number} is damaged in the server's own file: it is all zero");
        assert!(refused.err.contains(&said), "{refused}");
        assert_eq!(world.names("a"), Vec::<String>::new());
        let cut = fs::File::options().write(true).open(server.datadir().join("shop/b.ibd")).unwrap();
        cut.set_len(100 * size).unwrap();
        let refused = backup(&world, &server, "--to a/").with_code(1);
        let said = "shop/b.ibd: page 100 is damaged in the server's own file: the file ends before it";
        assert!(refused.err.contains(said) && refused.err.contains("and 1 more page"), "{refused}");
        // The server has all of it in its cache still, and can be asked for the rows.
        assert_eq!(server.sql("SELECT COUNT(*) FROM shop.a; SELECT COUNT(*) FROM shop.b"), "20000\n20000\n");
        backup(&world, &server, "--to a/ --continue-after-error")
            .with_code(4)
            .says(&["damaged in the server's own files: 2 pages", "b.ibd"]);
        let refused = world.run("restore --from a --into dir:copy").with_code(1);
        assert!(refused.err.contains("damaged already when it was made"), "{refused}");
        world.run("verify --from a").with_code(4).says(&["2 pages", "shop/b.ibd"]);
    }
}

#[test]
fn pages_that_only_the_redo_log_has_are_healthy_and_a_zero_one_beside_them_is_not() {
    let world = World::new();
    let server = server(&world, Kind::Mariadb11, &Options::new().option("innodb_max_dirty_pages_pct=99"));
    // Made after the checkpoint: nothing of it has to be in its file. Pages are freed and taken again.
    server.sql(
        "USE shop; CREATE TABLE c LIKE a; INSERT INTO c SELECT * FROM a; CREATE TABLE d LIKE a; INSERT INTO d SELECT * FROM a; \
         DELETE FROM d WHERE id % 3 > 0; ALTER TABLE c ADD INDEX (t); ALTER TABLE d ENGINE=InnoDB; \
         INSERT INTO a SELECT id + 20000, t FROM b; DELETE FROM a WHERE id BETWEEN 5000 AND 9000; DROP TABLE c;",
    );
    backup(&world, &server, "--to b/").done();
    let number = zero_a_page(&server, "shop/b.ibd", 16384);
    let refused = backup(&world, &server, "--to a/").with_code(1);
    let said = format!("shop/b.ibd: page {number} is damaged in the server's own file: it is all zero");
    assert!(refused.err.contains(&said), "{refused}");
}

#[test]
fn with_an_encrypted_redo_log_only_a_file_that_was_cut_is_found() {
    let world = World::new();
    let options = Options::new().encrypt().option("innodb_encrypt_log=ON");
    let server = server(&world, Kind::Mariadb10, &options);
    zero_a_page(&server, "shop/a.ibd", 16384);
    backup(&world, &server, "--to b/").done();
    let cut = fs::File::options().write(true).open(server.datadir().join("shop/b.ibd")).unwrap();
    cut.set_len(100 * 16384).unwrap();
    let refused = backup(&world, &server, "--to a/").with_code(1);
    assert!(refused.err.contains("shop/b.ibd: page 100 is damaged"), "{refused}");
}

#[test]
fn a_zeroed_page_or_a_short_file_of_mysql_ends_the_backup() {
    let world = World::new();
    let options = Options::new().binlog();
    let mut server = server(&world, Kind::Mysql9, &options);
    backup(&world, &server, "--install-clone-plugin --to b/").done();
    let number = zero_a_page(&server, "shop/a.ibd", 16384);
    let refused = backup(&world, &server, "--to a/").with_code(1);
    let said = format!("shop/a.ibd: page {number} is damaged in the server's own file: it is all zero");
    assert!(refused.err.contains(&said), "{refused}");
    assert_eq!(world.names("a"), Vec::<String>::new());
    backup(&world, &server, "--to a/ --continue-after-error")
        .with_code(4)
        .says(&["damaged in the server's own files: 1 page ", "a.ibd"]);
    world.run("verify --from a").with_code(4).says(&["1 page (", "shop/a.ibd"]);
    server.stop();
    let cut = fs::File::options().write(true).open(server.datadir().join("shop/b.ibd")).unwrap();
    cut.set_len(100 * 16384).unwrap();
    server.start_again(&options);
    backup(&world, &server, "--to c/ --mkdir").with_code(1).says(&["and 1 more page"]);
    backup(&world, &server, "--to c/ --mkdir --continue-after-error")
        .with_code(4)
        .says(&["damaged in the server's own files: 2 pages"]);
    world.run("restore --from c --into dir:copy").with_code(1).says(&["damaged already when it was made"]);
}
