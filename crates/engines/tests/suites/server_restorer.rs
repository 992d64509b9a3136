//! A real server whose backups the suite of restores restores to directories. Another server starts on copies of these.

use std::fs;
use std::path::Path;
use std::process::Command;

use fullbore_core::Result;
use fullbore_core::media::{EngineValue, ManifestStream};
use fullbore_core::source::{Source, Stream};
use fullbore_core::testkit::{plain_stream, read_files};
use fullbore_engines::engine::{Depth, DirectoryRestore, GivenOptions, OptionValue, Over};
use fullbore_engines::mysql_family::server_options::PASSWORD_FILE;
use fullbore_engines::{DirectoryEngine, Options, Restorer};
use fullbore_test_servers::{Options as ServerOptions, Server};
use tempfile::TempDir;

use crate::restorer::{Full, RestorerUnderTest};

const ASKED: &str = "CHECKSUM TABLE shop.item, shop.parts; SELECT COUNT(*) FROM shop.item";

/// A server with the tables `shop.item` and `shop.parts`.
pub struct ServerDatabase {
    pub server: Server,
    /// The engine's name.
    pub engine: &'static str,
    /// How the engine opens it.
    pub options: Options,
    /// How a server is started on a copy.
    pub start: ServerOptions,
    /// The streams of the last full.
    pub streams: Vec<ManifestStream>,
}

/// The server's password, as an option of its engine.
pub fn password_of(server: &Server) -> GivenOptions {
    let file = server.password_file().map(|path| OptionValue::File(path.into()));
    file.into_iter().fold(GivenOptions::default(), |given, file| given.with_value(&PASSWORD_FILE, file))
}

impl ServerDatabase {
    fn directory(&self) -> &'static dyn DirectoryEngine {
        fullbore_engines::directory(self.engine).unwrap()
    }

    /// A server on a copy of the files: a start changes them.
    fn started(&self, restored: &Path) -> Result<(Server, TempDir), String> {
        let room = tempfile::tempdir().unwrap();
        let data = room.path().join("data");
        assert!(Command::new("cp").arg("-a").args([restored, &data]).status().unwrap().success());
        let options = self.start.clone().datadir(&data).password_file(self.server.password_file().unwrap());
        Server::try_start(self.server.kind(), &options).map(|server| (server, room))
    }
}

/// As the manifest describes it.
fn described(source: &dyn Source, stream: &Stream) -> ManifestStream {
    ManifestStream {
        identity: source.identity(stream.id).unwrap_or_default(),
        detail: source.detail(stream.id).map(EngineValue::from),
        ..plain_stream(stream)
    }
}

impl RestorerUnderTest for ServerDatabase {
    fn prepare(&self, target: &Path, _over: Over) -> Result<Box<dyn Restorer>> {
        Ok(Box::new(DirectoryRestore::prepare(target)?))
    }

    fn replaces(&self) -> bool {
        false
    }

    fn commit(&mut self) {
        self.server.sql("INSERT INTO shop.item (id, t) SELECT MAX(id) + 1, UUID() FROM shop.item");
    }

    fn content(&mut self) -> String {
        self.server.sql(ASKED)
    }

    fn content_of(&self, restored: &Path) -> Option<String> {
        self.started(restored).ok().map(|(server, _room)| server.sql(ASKED))
    }

    fn full(&mut self) -> Full {
        // MariaDB makes a new table from its log alone: then its file has no stream whose pages can be checked.
        self.server.flush_pages();
        let url = format!("{}://root@127.0.0.1:{}", self.engine, self.server.port());
        let session = fullbore_engines::open(&url, &self.options).unwrap();
        let (streams, files) = read_files(session.source());
        self.streams = streams.iter().map(|stream| described(session.source(), stream)).collect();
        Full { files, position: session.position().unwrap() }
    }

    fn begin(&self, directory: &Path) {
        self.directory().begin(directory).unwrap();
        assert!(directory.join(self.directory().mark()).exists());
    }

    fn finish(&self, directory: &Path, full: &Full) {
        self.directory().finish(directory, &full.position).unwrap();
    }

    fn check(&self, restored: &Path, depth: Depth) -> Vec<String> {
        if depth == Depth::Full {
            return match self.started(restored) {
                Err(message) => vec![message],
                Ok((server, _room)) => {
                    let answer = server.try_sql("CHECK TABLE shop.item, shop.parts EXTENDED").unwrap_or_else(|e| e);
                    answer.lines().filter(|line| !line.ends_with("status\tOK")).map(str::to_owned).collect()
                }
            };
        }
        let pages = fullbore_engines::pages(self.engine).unwrap();
        let check = pages.check(&self.streams);
        let named = self.streams.iter().filter(|stream| !stream.name.is_empty());
        let checked: Vec<&ManifestStream> = named.filter(|stream| pages.page_size(stream).is_some()).collect();
        assert!(checked.iter().any(|stream| stream.name == "shop/item.ibd"), "its file is not in the backup");
        for stream in checked {
            let bytes = fs::read(restored.join(&stream.name)).unwrap();
            for (number, piece) in bytes.chunks(1 << 20).enumerate() {
                check.write(stream.id, (number as u64) << 20, piece).unwrap();
            }
        }
        check.damaged()
    }

    fn damage(&self, restored: &Path, found_by: Depth) -> bool {
        let path = restored.join("shop/item.ibd");
        let mut bytes = fs::read(&path).unwrap();
        // A page of the table's own tree.
        bytes[4 * 16384 + 1000] ^= 0xff;
        fs::write(path, bytes).unwrap();
        found_by == Depth::Quick
    }
}
