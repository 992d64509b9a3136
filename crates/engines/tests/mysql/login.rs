//! Logging in: every way that works, and every way that must not.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};
use fullbore_engines::mysql_family::connection::{Connection, Failure};
use fullbore_engines::mysql_family::credentials::Credentials;
use fullbore_engines::mysql_family::url::ServerAddress;
use fullbore_test_servers::{Kind, Options, Server};

use super::{address, root};

fn open(server: &Server, options: &str, user: &str, password: &str) -> Result<Connection> {
    Connection::open(&address(server, options), &Credentials::new(user, password.as_bytes()).unwrap(), None)
}

fn refusal(result: Result<Connection>) -> String {
    let text = format!("{}", result.map(drop).unwrap_err());
    assert!(!text.contains("s3cret"), "{text}");
    text
}

#[test]
fn mysql_takes_its_plugins_over_tls_over_the_socket_and_by_rsa() {
    let server = Server::start(Kind::Mysql9, &Options::new());
    server.sql("CREATE USER sha2@'%' IDENTIFIED BY 's3cret'; CREATE USER nobody@'%' IDENTIFIED BY ''");
    // The first login sends the password itself; later ones need not.
    let text = refusal(open(&server, "ssl-mode=disabled", "sha2", "s3cret"));
    assert!(text.contains("not encrypted") && text.contains("get-server-public-key"), "{text}");
    let mut by_rsa = open(&server, "ssl-mode=disabled&get-server-public-key=true", "sha2", "s3cret").unwrap();
    assert_eq!(by_rsa.query("SELECT CURRENT_USER(), NULL").unwrap().rows, [[Some("sha2@%".to_owned()), None]]);
    assert!(!by_rsa.is_tls());
    by_rsa.quit();
    open(&server, "ssl-mode=disabled", "sha2", "s3cret").unwrap().quit();
    server.sql("FLUSH PRIVILEGES");
    for mode in ["ssl-mode=preferred", "ssl-mode=required"] {
        let mut connection = open(&server, mode, "sha2", "s3cret").unwrap();
        let cipher = connection.query("SHOW STATUS LIKE 'Ssl_cipher'").unwrap();
        assert!(connection.is_tls() && !cipher.value(0, 1).unwrap().is_empty());
        server.sql("FLUSH PRIVILEGES");
    }
    let socket = ServerAddress::parse(&format!("mysql:///?socket={}", server.socket().display())).unwrap();
    let mut connection = Connection::open(&socket, &root(&server), None).unwrap();
    assert_eq!(connection.query("SELECT 1").unwrap().single(), Some("1"));
    open(&server, "", "nobody", "").unwrap();
    for (user, password) in [("sha2", "s3cret2"), ("sha2", ""), ("unknown", "s3cret")] {
        for options in ["", "ssl-mode=disabled&get-server-public-key=true"] {
            let text = refusal(open(&server, options, user, password));
            assert!(text.contains("1045") && text.contains("hint: wrong user or password"), "{text}");
        }
    }
}

#[test]
fn mariadb_takes_native_ed25519_and_the_socket_and_an_unknown_plugin_is_named() {
    for kind in Kind::MARIADB {
        let server = Server::start(kind, &Options::new());
        server.sql("INSTALL SONAME 'auth_ed25519'; CREATE USER native@'%' IDENTIFIED BY 's3cret'");
        server.sql("CREATE USER signed@'%' IDENTIFIED VIA ed25519 USING PASSWORD('s3cret')");
        for options in ["ssl-mode=disabled", "ssl-mode=required"] {
            for user in ["native", "signed"] {
                let mut connection = open(&server, options, user, "s3cret").unwrap();
                assert!(connection.greeting().is_mariadb());
                let answer = connection.query("SELECT CURRENT_USER()").unwrap();
                assert_eq!(answer.single(), Some(format!("{user}@%").as_str()));
                let text = refusal(open(&server, options, user, "s3cret!"));
                assert!(text.contains("1045"), "{text}");
            }
        }
        if kind == Kind::Mariadb11 && server.try_sql("INSTALL SONAME 'auth_parsec'").is_ok() {
            server.sql("CREATE USER new@'%' IDENTIFIED VIA parsec USING PASSWORD('s3cret')");
            let text = refusal(open(&server, "", "new", "s3cret"));
            assert!(text.contains("parsec"), "{text}");
        }
        let socket = ServerAddress::parse(&format!("mariadb:///?socket={}", server.socket().display())).unwrap();
        Connection::open(&socket, &root(&server), None).unwrap().quit();
    }
}

#[test]
fn a_server_is_verified_as_far_as_the_mode_says() {
    let server = Server::start(Kind::Mysql9, &Options::new());
    let ca = server.ca().unwrap().display().to_string();
    let root = root(&server);
    let open = |options: &str| Connection::open(&address(&server, options), &root, None);
    assert!(open(&format!("ssl-mode=verify-ca&ssl-ca={ca}")).unwrap().is_tls());
    // The certificate that MySQL makes itself names no host.
    let text = refusal(open(&format!("ssl-mode=verify-identity&ssl-ca={ca}")));
    assert!(text.contains("TLS fails"), "{text}");
    let other = Server::start(Kind::Mariadb10, &Options::new());
    let text = refusal(open(&format!("ssl-mode=verify-ca&ssl-ca={}", other.ca().unwrap().display())));
    assert!(text.contains("TLS fails") && text.contains("ssl-ca"), "{text}");
    assert!(refusal(open("ssl-mode=verify-ca")).contains("add ssl-ca"));
    assert!(refusal(open("ssl-mode=verify-ca&ssl-ca=/nowhere/ca.pem")).contains("/nowhere/ca.pem"));
}

#[test]
fn a_server_without_tls_is_refused_where_tls_is_required_and_one_that_requires_it_says_so() {
    let mut server = Server::start(Kind::Mysql9, &Options::new().option("tls_version="));
    let text = refusal(Connection::open(&address(&server, "ssl-mode=required"), &root(&server), None));
    assert!(text.contains("offers no TLS"), "{text}");
    let preferred = address(&server, "get-server-public-key=true");
    assert!(!Connection::open(&preferred, &root(&server), None).unwrap().is_tls());
    server.stop();
    server.start_again(&Options::new().option("require_secure_transport=ON"));
    let disabled = address(&server, "ssl-mode=disabled&get-server-public-key=true");
    let text = refusal(Connection::open(&disabled, &root(&server), None));
    assert!(text.contains("ssl-mode=required"), "{text}");
}

#[test]
fn nobody_there_silence_and_another_protocol_are_told_apart_and_end() {
    let somebody = Credentials::new("u", b"s3cret").unwrap();
    let at = |port: u16| ServerAddress::parse(&format!("mysql://127.0.0.1:{port}")).unwrap();
    // Port 1 is never given to a program that asks for any port: a free one may be taken by another test meanwhile.
    assert!(refusal(Connection::open(&at(1), &somebody, None)).contains("cannot be reached"));
    let socket = ServerAddress::parse("mysql:///?socket=/nowhere/s.sock").unwrap();
    assert!(refusal(Connection::open(&socket, &somebody, None)).contains("/nowhere/s.sock"));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let web = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let text = refusal(Connection::open(&at(port), &somebody, None));
    assert!(text.contains("it does not greet like a MySQL or MariaDB server; it begins with `HTTP`"), "{text}");
    web.join().unwrap();

    // A listener that accepts and sends nothing: the job's halt ends the wait at once.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let halt = Halt::new();
    let stopper = halt.clone();
    let started = Instant::now();
    let waiting = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        stopper.stop(Error::Cancelled { by: "SIGINT" });
    });
    let end = Connection::open(&at(silent.local_addr().unwrap().port()), &somebody, Some(halt));
    assert!(matches!(end.err().unwrap(), Error::Halted));
    // Without a halt, a login ends after half a minute with an error.
    assert!(started.elapsed() < Duration::from_secs(25));
    waiting.join().unwrap();
}

#[test]
fn a_refused_statement_leaves_the_connection_good_and_a_killed_server_does_not() {
    let mut server = Server::start(Kind::Mysql9, &Options::new());
    let mut connection = Connection::open(&address(&server, ""), &root(&server), None).unwrap();
    match connection.query("SELECT * FROM nowhere.nothing") {
        Err(Failure::Server(error)) => assert_eq!((error.code, error.state.as_str()), (1049, "42000")),
        other => panic!("{other:?}"),
    }
    // A result over several packets of the greatest length.
    let answer = connection.query("SELECT REPEAT('x', 20000000)").unwrap();
    assert_eq!(answer.single().unwrap().len(), 20_000_000);
    server.kill();
    let text = Error::from(connection.query("SELECT 1").unwrap_err()).to_string();
    assert!(text.contains("cut"), "{text}");
}
