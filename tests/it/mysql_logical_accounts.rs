//! Users, roles and grants in logical sets (`--users`).

use fullbore_test_servers::{Kind, Server};

use crate::mysql_logical::{backup, load, server};
use crate::world::World;

const COMMON: &str = "CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY, v INT); \
    CREATE USER 'app'@'%' IDENTIFIED BY 's3cret'; CREATE USER 'o''b`x é'@'10.0.0.%' IDENTIFIED BY 'other' REQUIRE SSL WITH MAX_USER_CONNECTIONS 7; \
    CREATE USER locked@localhost IDENTIFIED BY 'x' ACCOUNT LOCK; \
    CREATE ROLE reader; GRANT SELECT ON shop.* TO reader; GRANT reader TO 'app'@'%'; \
    GRANT INSERT, UPDATE (v) ON shop.item TO 'app'@'%'; \
    CREATE DEFINER = 'app'@'%' PROCEDURE shop.p () SELECT COUNT(*) FROM shop.item; GRANT EXECUTE ON PROCEDURE shop.p TO 'app'@'%';";

/// What the server says of its accounts, without the root's and its own.
fn accounts(server: &Server) -> String {
    let mariadb = server.kind() != Kind::Mysql9;
    let role = if mariadb { "is_role" } else { "'N'" };
    let list = server.sql(&format!(
        "SELECT user, host, {role} FROM mysql.user WHERE user NOT IN ('root', 'mysql.sys', 'mysql.session', 'mysql.infoschema', 'mariadb.sys', 'PUBLIC', 'loader') ORDER BY 1, 2"
    ));
    let mut told = list.clone();
    for line in list.lines() {
        let [user, host, role] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let is_role = role == "Y";
        let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
        let name = if is_role { quoted(user) } else { format!("{}@{}", quoted(user), quoted(host)) };
        let hexadecimal = if mariadb { "" } else { "SET print_identified_with_as_hex = 1; " };
        if !is_role {
            told += &server.sql(&format!("{hexadecimal}SHOW CREATE USER {name}"));
        }
        told += &server.sql(&format!("SHOW GRANTS FOR {name}"));
    }
    let more = match mariadb {
        // Each version has its own grants on the database `test`.
        true => server.sql("SHOW GRANTS FOR PUBLIC").lines().filter(|line| line.contains("shop")).collect(),
        false => server.sql(
            "SELECT user, password_expired, HEX(authentication_string), user_attributes->>'$.additional_password' FROM \
             mysql.user WHERE user IN ('two', 'late') ORDER BY 1",
        ),
    };
    told + &more
}

const CERTIFICATE: &str =
    "CREATE USER owner@localhost IDENTIFIED BY 'x' REQUIRE SUBJECT '/O=A\\\\B''C' AND ISSUER '/CN=\\\\n'";

fn round_trip([from, into]: [Kind; 2], further: &str, made: &str) {
    let world = World::new();
    let (source, target) = (server(from, &world, "source"), server(into, &world, "target"));
    source.sql(COMMON);
    source.sql(further);
    let before = accounts(&source);
    assert!(before.contains("reader") && before.contains("app"), "{before}");
    let dumped = backup(&world, &source, "--users --mkdir --to a/").done();
    backup(&world, &source, "--mkdir --to plain/").done();
    load(&world, &target, "--from plain --users").refused(2, "--users", "the set holds no accounts");

    // An account that is there stays, and nothing is loaded.
    target.sql("CREATE USER 'app'@'%' IDENTIFIED BY 'of the target'");
    load(&world, &target, "--from a --users").refused(1, "--users", "app");
    assert!(!target.sql("SHOW DATABASES").contains("shop"));
    load(&world, &target, "--from a --users --table shop.item").refused(2, "--users", "--table");
    let root = target.sql("SELECT user, host FROM mysql.user WHERE user = 'root' ORDER BY 2");
    let loaded = load(&world, &target, "--from a --users --replace --check full").done();
    loaded.says(&[made]);
    assert_eq!(accounts(&target), before);
    assert_eq!(target.sql("SELECT user, host FROM mysql.user WHERE user = 'root' ORDER BY 2"), root);

    // Without the flag, accounts stay as they are.
    target.sql("DROP DATABASE shop; DROP USER 'app'@'%'");
    load(&world, &target, "--from a").with_code(4).says(&["`app`@`%`"]);
    assert!(!accounts(&target).contains("app"));

    // No hash is in any output.
    let text = dumped.text() + &load(&world, &target, "--from a --users --replace").text();
    for hash in ["0x24", "*7", "IDENTIFIED"] {
        assert!(!text.contains(hash), "{text}");
    }
}

#[test]
fn the_accounts_of_a_mysql_server_come_back_with_roles_and_grants_and_only_if_wanted() {
    let further = "ALTER USER 'app'@'%' DEFAULT ROLE reader; GRANT BACKUP_ADMIN, SELECT ON *.* TO 'o''b`x é'@'10.0.0.%' WITH GRANT OPTION; \
        CREATE USER two@'%' IDENTIFIED BY 'first' REQUIRE SSL; ALTER USER two@'%' IDENTIFIED BY 'second' RETAIN CURRENT PASSWORD; \
        CREATE USER late@'%' IDENTIFIED BY 'first' PASSWORD HISTORY 5 COMMENT ' AS '; \
        ALTER USER late@'%' IDENTIFIED BY 'second' RETAIN CURRENT PASSWORD PASSWORD EXPIRE; ";
    round_trip([Kind::Mysql9; 2], &[further, CERTIFICATE].concat(), "7 accounts");
}

#[test]
fn the_accounts_of_a_mariadb_server_come_back_with_roles_and_grants_and_only_if_wanted() {
    let further = "SET DEFAULT ROLE reader FOR 'app'@'%'; GRANT SELECT ON *.* TO 'o''b`x é'@'10.0.0.%' WITH GRANT OPTION; \
        GRANT SELECT (v), INSERT ON shop.item TO PUBLIC; GRANT EXECUTE ON PROCEDURE shop.p TO PUBLIC; \
        CREATE USER expired@localhost IDENTIFIED BY 'x' REQUIRE SSL PASSWORD EXPIRE; ";
    round_trip([Kind::Mariadb11; 2], &[further, CERTIFICATE].concat(), "6 accounts");
    round_trip([Kind::Mariadb10, Kind::Mariadb11], further, "5 accounts");
}

#[test]
fn an_account_whose_plugin_a_mariadb_does_not_have_is_left_out_and_not_made_by_its_grants() {
    let world = World::new();
    let (source, target) = (server(Kind::Mariadb11, &world, "source"), server(Kind::Mariadb11, &world, "target"));
    source.sql(
        "CREATE DATABASE shop; INSTALL SONAME 'auth_ed25519'; CREATE USER e@localhost IDENTIFIED VIA ed25519 USING PASSWORD('x'); \
         GRANT ALL ON shop.* TO e@localhost; CREATE USER plain@localhost; GRANT SELECT ON shop.* TO plain@localhost",
    );
    backup(&world, &source, "--users --mkdir --to a/").done();
    let ended = load(&world, &target, "--from a --users").with_code(4);
    ended.says(&["accounts whose plugin the target does not have are left out: `e`@`localhost` (ed25519)"]);
    let users = target.sql("SELECT user FROM mysql.user WHERE user IN ('e', 'plain')");
    assert_eq!(users, "plain\n", "it would have no password");
    assert!(target.sql("SHOW GRANTS FOR plain@localhost").contains("shop"));
}

#[test]
fn what_the_target_refuses_of_one_account_keeps_no_grant_of_another_away() {
    let world = World::new();
    let (source, target) = (server(Kind::Mysql9, &world, "source"), server(Kind::Mysql9, &world, "target"));
    source.sql(
        "CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY); CREATE USER a@'%' IDENTIFIED BY 'x'; \
         CREATE USER b@'%' IDENTIFIED BY 'x'; GRANT PROXY ON b@'%' TO a@'%'; GRANT INSERT ON shop.* TO a@'%'; \
         GRANT SELECT ON shop.* TO b@'%'; \
         CREATE DATABASE gone; CREATE TABLE gone.t (id INT); GRANT SELECT (id) ON gone.t TO b@'%'; DROP DATABASE gone; USE shop; \
         CREATE TABLE plain (id INT PRIMARY KEY, v INT) ENGINE=MyISAM; CREATE TABLE seen (id INT) ENGINE=MyISAM; INSERT INTO plain VALUES (1, 10); \
         CREATE TRIGGER more BEFORE INSERT ON plain FOR EACH ROW SET NEW.v = NEW.v + 1; \
         CREATE TRIGGER sees AFTER INSERT ON plain FOR EACH ROW INSERT INTO seen VALUES (NEW.id)",
    );
    backup(&world, &source, "--users --mkdir --to a/").with_code(4).says(&["engines without transactions"]);
    // The account of the load may not act for others.
    target.sql("DELETE FROM mysql.proxies_priv; FLUSH PRIVILEGES");
    load(&world, &target, "--from a --users").refused(1, "account `a`@`%`", "the target refuses it");
    assert!(target.sql("SHOW GRANTS FOR a@'%'").contains("INSERT"));
    assert!(target.sql("SHOW GRANTS FOR b@'%'").contains("SELECT"));
    // As if the run had been killed while a routine was made.
    target.sql("ALTER DATABASE shop CHARACTER SET latin1");
    // The triggers are there, and tables without transactions are loaded again. A grant on a dropped table is left out.
    target.sql(
        "INSERT INTO mysql.proxies_priv (host, user, with_grant) VALUES ('127.0.0.1', 'root', 1); FLUSH PRIVILEGES",
    );
    let resumed = load(&world, &target, "--from a --users --resume --check full").with_code(4);
    resumed.says(&["a grant on what the target does not have is not made: `b`@`%`", "gone"]);
    assert_eq!(
        target.sql("SELECT * FROM shop.plain; SELECT COUNT(*) FROM shop.seen; SHOW TRIGGERS FROM shop").lines().count(),
        4
    );
    assert_eq!(
        target.sql("USE shop; SELECT @@collation_database"),
        source.sql("USE shop; SELECT @@collation_database")
    );
    assert!(target.sql("SELECT v FROM shop.plain; SELECT COUNT(*) FROM shop.seen").starts_with("10\n0\n"));
}

#[test]
fn accounts_of_the_other_vendor_are_refused_before_the_first_row() {
    let world = World::new();
    let (source, target) = (server(Kind::Mariadb11, &world, "source"), server(Kind::Mysql9, &world, "target"));
    source.sql(COMMON);
    backup(&world, &source, "--users --mkdir --to a/").done();
    load(&world, &target, "--from a --users").refused(2, "--users", "vendor");
    assert!(!target.sql("SHOW DATABASES").contains("shop"));
}
