//! MariaDB's hot copy passes the suite of engines whose files come and go.

use std::fs;

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_core::source::Source;
use fullbore_core::testkit::{Files, OpenEngineUnderTest, open_engine_conforms};
use fullbore_engines::{Options, Session};
use fullbore_test_servers::{Kind, Options as ServerOptions, Server};

use crate::restorer::restorer_conforms;
use crate::server_restorer::{ServerDatabase, password_of};

const ASKED: &str = "CHECKSUM TABLE shop.item, shop.parts, shop.aria, shop.myisam; SELECT COUNT(*) FROM shop.item";

struct MariaDb(Server);

impl OpenEngineUnderTest for MariaDb {
    type Session = Box<dyn Session>;

    fn open(&self, readers: usize, halt: Option<Halt>) -> Result<Self::Session> {
        let options = Options { readers, halt, given: password_of(&self.0), ..Options::default() };
        fullbore_engines::open(&format!("mariadb://root@127.0.0.1:{}", self.0.port()), &options)
    }

    fn source<'s>(&self, session: &'s Self::Session) -> &'s dyn Source {
        session.source()
    }

    fn position(&self, session: &Self::Session) -> Result<serde_json::Value> {
        session.position()
    }

    fn assert_released(&self) {
        self.0.sql("SET lock_wait_timeout=3; BACKUP STAGE START; BACKUP STAGE BLOCK_COMMIT; BACKUP STAGE END");
    }

    fn assert_restores(&self, files: &Files) {
        let room = tempfile::tempdir().unwrap();
        let data = room.path().join("data");
        fs::create_dir(&data).unwrap();
        fullbore_engines::directory("mariadb").unwrap().begin(&data).unwrap();
        for (name, bytes) in files {
            let path = data.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        fullbore_engines::directory("mariadb").unwrap().finish(&data, &serde_json::json!({})).unwrap();
        let options = ServerOptions::new().redo("8M").datadir(&data).password_file(self.0.password_file().unwrap());
        let restored = Server::start(Kind::Mariadb11, &options);
        assert_eq!(restored.sql(ASKED), self.0.sql(ASKED));
    }
}

fn shop() -> Server {
    let server = Server::start(Kind::Mariadb11, &ServerOptions::new().redo("8M"));
    server.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE item (id INT PRIMARY KEY, t VARCHAR(200), KEY (t)); INSERT INTO \
         item SELECT seq, REPEAT(MD5(seq), 5) FROM seq_1_to_3000; CREATE TABLE parts (id INT PRIMARY KEY) PARTITION BY \
         HASH (id) PARTITIONS 3; INSERT INTO parts SELECT id FROM item; CREATE TABLE aria ENGINE=Aria SELECT * FROM \
         item; CREATE TABLE myisam ENGINE=MyISAM SELECT * FROM item",
    );
    server
}

#[test]
fn mariadb_conforms() {
    open_engine_conforms(&MariaDb(shop()));
}

#[test]
fn mariadb_conforms_as_an_engine_that_restores() {
    restorer_conforms(|| {
        let server = shop();
        let options = Options { given: password_of(&server), ..Options::default() };
        ServerDatabase {
            server,
            engine: "mariadb",
            options,
            start: ServerOptions::new().redo("8M"),
            streams: Vec::new(),
        }
    });
}
