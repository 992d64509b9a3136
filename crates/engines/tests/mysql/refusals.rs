//! Every obstacle to a clone is an error that names it, before the clone begins.

use fullbore_core::halt::Halt;
use fullbore_engines::mysql::clone::donor::{Donor, DonorOptions};
use fullbore_engines::mysql::clone::message::Ddl;
use fullbore_engines::mysql::preflight::{self, Consent};
use fullbore_engines::mysql_family::clone_plugin::ClonePlugin;
use fullbore_engines::mysql_family::connection::Connection;
use fullbore_engines::mysql_family::credentials::Credentials;
use fullbore_test_servers::{Kind, Options, Server};

use super::{address, assert_clean, begin, load, root};

#[test]
fn the_missing_privilege_is_named_and_the_least_ones_suffice() {
    let server = Server::start(Kind::Mysql9, &Options::new().binlog());
    server.sql(
        "INSTALL PLUGIN clone SONAME 'mysql_clone.so'; CREATE DATABASE shop; CREATE TABLE shop.old (a INT) \
         ENGINE=MyISAM",
    );
    server.sql("CREATE USER weak@'%' IDENTIFIED BY 'p'; CREATE USER b@'%' IDENTIFIED BY 'p'; CREATE ROLE backup_role");
    server
        .sql("CREATE USER r@'%' IDENTIFIED BY 'p' DEFAULT ROLE backup_role; GRANT BACKUP_ADMIN ON *.* TO backup_role");
    server.sql("GRANT BACKUP_ADMIN, PROCESS, SELECT ON *.* TO b@'%'");
    let how = DonorOptions { tasks: 1, ddl: Ddl::Runs, halt: Halt::new() };
    let ask = |user: &str| {
        let credentials = Credentials::new(user, b"p").unwrap();
        let facts = preflight::ask(&mut Connection::open(&address(&server, ""), &credentials, None).unwrap()).unwrap();
        let begun = Donor::begin(&address(&server, ""), &credentials, &how).map(drop);
        (preflight::judge("db1", &facts, Consent::default()), begun, facts)
    };
    let (judged, begun, _) = ask("weak");
    for text in [judged.unwrap_err().to_string(), begun.unwrap_err().to_string()] {
        assert!(text.contains("BACKUP_ADMIN"), "{text}");
    }
    let (judged, begun, facts) = ask("b");
    begun.unwrap();
    let warnings = judged.unwrap();
    assert!(warnings.iter().any(|warning| warning.contains("shop.old (MyISAM)")), "{warnings:?}");
    assert!(
        facts.binary_log && facts.data_bytes > 10 << 20 && facts.page_size == 16384 && facts.channels.is_empty(),
        "{facts:?}"
    );
    let (judged, begun, facts) = ask("r");
    begun.unwrap();
    assert!(judged.unwrap().iter().any(|warning| warning.contains("lacks SELECT")) && facts.backup_admin);
}

#[test]
fn the_plugin_is_loaded_with_consent_and_what_cannot_be_loaded_is_explained() {
    let mut server = Server::start(Kind::Mysql9, &Options::new());
    let connect = |server: &Server| Connection::open(&address(server, ""), &root(server), None).unwrap();
    let mut connection = connect(&server);
    let facts = preflight::ask(&mut connection).unwrap();
    assert_eq!(facts.plugin, ClonePlugin::Absent);
    let text = preflight::judge("db1", &facts, Consent::default()).unwrap_err().to_string();
    assert!(text.contains("--install-clone-plugin"), "{text}");
    begin(&server, "", 1, &Halt::new()).map(drop).unwrap_err();
    let consent = Consent { install_plugin: true, ..Consent::default() };
    preflight::judge("db1", &facts, consent).unwrap();
    ClonePlugin::install(&mut connection).unwrap();
    ClonePlugin::install(&mut connection).unwrap();
    assert_eq!(preflight::ask(&mut connection).unwrap().plugin, ClonePlugin::Active);
    assert_clean(&server);
    connection.query("UNINSTALL PLUGIN clone").unwrap();
    drop(connection);
    server.stop();
    server.start_again(&Options::new().option("plugin_dir=/nowhere"));
    let text = ClonePlugin::install(&mut connect(&server)).unwrap_err().to_string();
    assert!(text.contains("cannot be loaded") && text.contains("plugin_dir"), "{text}");
    server.sql("CREATE USER weak@'%' IDENTIFIED BY 'p'");
    let weak = Credentials::new("weak", b"p").unwrap();
    let mut weak = Connection::open(&address(&server, ""), &weak, None).unwrap();
    let text = ClonePlugin::install(&mut weak).unwrap_err().to_string();
    assert!(text.contains("INSERT on mysql.plugin"), "{text}");
}

#[test]
fn a_second_clone_is_refused_while_the_first_runs_and_not_after_it() {
    let server = Server::start(Kind::Mysql9, &Options::new());
    server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
    let first = begin(&server, "", 2, &Halt::new()).unwrap();
    let text = begin(&server, "", 2, &Halt::new()).map(drop).unwrap_err().to_string();
    assert!(text.contains("3634") && text.contains("one clone at a time"), "{text}");
    drop(first);
    assert_clean(&server);
}

#[test]
fn an_encrypted_table_is_sent_over_tls_only_and_is_known_beforehand() {
    let server = Server::start(Kind::Mysql9, &Options::new().encrypt());
    load::fill(&server);
    server.sql("CREATE TABLE shop.secret (id INT) ENCRYPTION='Y'");
    let facts = preflight::ask(&mut Connection::open(&address(&server, ""), &root(&server), None).unwrap()).unwrap();
    assert_eq!((facts.encrypted.count, facts.encrypted.first), (1, vec!["shop/secret".to_owned()]));
    let options = "ssl-mode=disabled&get-server-public-key=true";
    let halt = Halt::new();
    let begun = begin(&server, options, 1, &halt);
    let refused =
        begun.and_then(|donor| crate::clone_target::run(donor, &super::directory::Directory::new(), &halt).map(drop));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("3872") && text.contains("ssl-mode=required"), "{text}");
    assert_clean(&server);
}

#[test]
fn mariadb_is_told_to_be_one() {
    let server = Server::start(Kind::Mariadb10, &Options::new());
    let mut connection = Connection::open(&address(&server, ""), &root(&server), None).unwrap();
    let text = preflight::ask(&mut connection).map(drop).unwrap_err().to_string();
    assert!(text.contains("MariaDB") && text.contains("mariadb://"), "{text}");
}
