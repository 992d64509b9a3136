//! MySQL's clone passes the suite of engines whose files come and go.

use std::fs;

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_core::source::Source;
use fullbore_core::testkit::{Files, OpenEngineUnderTest, open_engine_conforms};
use fullbore_engines::mysql::engine::INSTALL_CLONE_PLUGIN;
use fullbore_engines::{Options, Session};
use fullbore_test_servers::{Kind, Options as ServerOptions, Server};

use crate::restorer::restorer_conforms;
use crate::server_restorer::{ServerDatabase, password_of};

const ASKED: &str = "CHECKSUM TABLE shop.item, shop.parts; SELECT COUNT(*) FROM shop.item";

struct MySql(Server);

impl OpenEngineUnderTest for MySql {
    type Session = Box<dyn Session>;

    fn open(&self, readers: usize, halt: Option<Halt>) -> Result<Self::Session> {
        let given = password_of(&self.0).with(&INSTALL_CLONE_PLUGIN);
        let options = Options { readers, halt, given, ..Options::default() };
        fullbore_engines::open(&format!("mysql://root@127.0.0.1:{}", self.0.port()), &options)
    }

    fn source<'s>(&self, session: &'s Self::Session) -> &'s dyn Source {
        session.source()
    }

    fn position(&self, session: &Self::Session) -> Result<serde_json::Value> {
        session.position()
    }

    fn assert_released(&self) {
        crate::assert_clean(&self.0);
    }

    fn assert_restores(&self, files: &Files) {
        let room = tempfile::tempdir().unwrap();
        let data = room.path().join("data");
        fs::create_dir(&data).unwrap();
        fullbore_engines::directory("mysql").unwrap().begin(&data).unwrap();
        for (name, bytes) in files {
            let path = data.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        fullbore_engines::directory("mysql").unwrap().finish(&data, &serde_json::json!({})).unwrap();
        let options = ServerOptions::new().datadir(&data).password_file(self.0.password_file().unwrap());
        let restored = Server::start(Kind::Mysql9, &options);
        assert_eq!(restored.sql(ASKED), self.0.sql(ASKED));
    }
}

fn shop() -> Server {
    let server = Server::start(Kind::Mysql9, &ServerOptions::new());
    server.sql(
        "CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(200), KEY (t)); \
         INSERT INTO shop.item (t) VALUES ('a'), ('b'), ('c'), ('d'); INSERT INTO shop.item (t) SELECT CONCAT(a.t, \
         UUID()) FROM shop.item a, shop.item b, shop.item c, shop.item d, shop.item e; CREATE TABLE shop.parts (id INT \
         PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3; INSERT INTO shop.parts SELECT id FROM shop.item",
    );
    server
}

#[test]
fn mysql_conforms() {
    open_engine_conforms(&MySql(shop()));
}

#[test]
fn mysql_conforms_as_an_engine_that_restores() {
    restorer_conforms(|| {
        let server = shop();
        let options = Options { given: password_of(&server).with(&INSTALL_CLONE_PLUGIN), ..Options::default() };
        ServerDatabase { server, engine: "mysql", options, start: ServerOptions::new(), streams: Vec::new() }
    });
}
