//! Tables that are imported while a server is copied: `ALTER TABLE … IMPORT TABLESPACE` replaces a file past the redo
//! log.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_engines::mariadb::hot_copy::{Options, Outcome};
use fullbore_test_servers::{Kind, Options as ServerOptions, Server};
use tempfile::TempDir;

use crate::client::Client;
use crate::directory::Meanwhile;
use crate::live::{copy_to, room};

/// A server with small tables, a large one that comes after them, and a file to import.
struct Source {
    server: Server,
    file: PathBuf,
    room: TempDir,
}

impl Source {
    fn start(kind: Kind, options: &ServerOptions) -> Self {
        let (server, room) = (Server::start(kind, options), room());
        let file = room.path().join("new.ibd");
        let mut client = Client::connect(&server);
        client.run(
            "CREATE DATABASE aaa; CREATE DATABASE zzz; USE aaa; \
             CREATE TABLE new (id INT PRIMARY KEY, v VARCHAR(200)) ENGINE=InnoDB; \
             INSERT INTO new SELECT seq, CONCAT('NEW', seq) FROM seq_1_to_5000; \
             CREATE TABLE t LIKE new; INSERT INTO t SELECT seq, CONCAT('OLD', seq) FROM seq_1_to_300; \
             CREATE TABLE zzz.large ENGINE=InnoDB SELECT seq AS id, REPEAT(MD5(seq), 30) AS v FROM seq_1_to_40000; \
             FLUSH TABLES new FOR EXPORT",
        );
        fs::copy(server.datadir().join("aaa/new.ibd"), &file).unwrap();
        client.run("UNLOCK TABLES");
        Self { server, file, room }
    }

    fn discard(&self) {
        self.server.sql("ALTER TABLE aaa.t DISCARD TABLESPACE");
    }

    fn import(&self) {
        let place = self.server.datadir().join("aaa/t.ibd");
        fs::copy(&self.file, &place).unwrap();
        let owner = fs::metadata(self.server.datadir()).unwrap();
        std::os::unix::fs::chown(&place, Some(owner.uid()), Some(owner.gid())).unwrap();
        self.server.sql("ALTER TABLE aaa.t IMPORT TABLESPACE");
    }

    fn copy(&self, name: &str, act: impl FnOnce() + Send) -> Result<(PathBuf, Outcome)> {
        let to = self.room.path().join(name);
        let target = Meanwhile::new(&to, act);
        let options = Options { threads: 1, halt: Halt::new(), ..Options::default() };
        let (outcome, _) = copy_to(&self.server, &target, &options)?;
        assert!(target.has_acted(), "the large table was read");
        Ok((to, outcome))
    }

    /// The answer of a server about the table after it has started on the copy.
    fn restored(&self, copy: &Path, asked: &str) -> String {
        let mut options = ServerOptions::new().datadir(copy).password_file(self.server.password_file().unwrap());
        if let Some(keyring) = self.server.keyring() {
            let keys = format!("file-key-management-filename={}", keyring.join("keys.txt").display());
            options = options.option("plugin-load-add=file_key_management").option(&keys);
        }
        let restored = Server::start(self.server.kind(), &options);
        let checked = restored.sql("CHECK TABLE aaa.t, aaa.new, zzz.large EXTENDED");
        assert!(checked.lines().all(|line| line.ends_with("status\tOK")), "{checked}");
        restored.sql(asked)
    }
}

const COUNTED: &str = "SELECT COUNT(*), MIN(LEFT(v, 3)), MAX(LEFT(v, 3)) FROM aaa.t";

#[test]
fn a_table_that_is_imported_during_a_copy_has_the_imported_rows() {
    for kind in Kind::MARIADB {
        let source = Source::start(kind, &ServerOptions::new());
        let import = || {
            source.discard();
            source.import();
        };
        let (copy, outcome) = source.copy("a", import).unwrap();
        assert!(outcome.files.iter().any(|file| file.name == "aaa/t.ibd"));
        assert_eq!(source.restored(&copy, COUNTED), "5000\tNEW\tNEW\n", "{}", kind.name());
    }
}

#[test]
fn a_table_that_is_written_to_after_its_import_is_refused_by_name_until_there_is_a_checkpoint() {
    for kind in Kind::MARIADB {
        let source = Source::start(kind, &ServerOptions::new());
        let import_and_write = || {
            source.discard();
            source.import();
            source.server.sql("INSERT INTO aaa.t VALUES (9999, 'ADDED')");
        };
        let refused = |error: fullbore_core::Error| {
            let error = error.to_string();
            assert!(error.contains("aaa/t.ibd") && error.contains("IMPORT TABLESPACE"), "{error}");
            assert!(error.contains("Innodb_lsn_last_checkpoint"), "{error}");
        };
        refused(source.copy("a", import_and_write).map(drop).unwrap_err());
        // The import was before this copy, and the server has not made a checkpoint since.
        refused(source.copy("b", || {}).map(drop).unwrap_err());
        let said = source.server.sql("SHOW GLOBAL STATUS LIKE 'Innodb_lsn_last_checkpoint'");
        assert!(said.trim().split('\t').nth(1).is_some_and(|lsn| lsn.parse::<u64>().is_ok()), "{said}");
        source.server.flush_pages();
        source.server.sql("INSERT INTO aaa.t VALUES (10000, 'ADDED')");
        let (copy, _) = source.copy("c", || {}).unwrap();
        assert_eq!(source.restored(&copy, COUNTED), "5002\tADD\tNEW\n", "{}", kind.name());
    }
}

#[test]
fn a_table_that_was_discarded_before_the_checkpoint_and_is_imported_and_written_to_during_a_copy_is_whole() {
    for kind in Kind::MARIADB {
        let source = Source::start(kind, &ServerOptions::new());
        source.discard();
        source.server.flush_pages();
        let import_and_write = || {
            source.import();
            source.server.sql("INSERT INTO aaa.t VALUES (9999, 'ADDED')");
        };
        let (copy, _) = source.copy("a", import_and_write).unwrap();
        assert_eq!(source.restored(&copy, COUNTED), "5001\tADD\tNEW\n", "{}", kind.name());
    }
}

#[test]
fn an_imported_table_that_becomes_a_partition_is_refused_until_there_is_a_checkpoint() {
    for kind in Kind::MARIADB {
        let source = Source::start(kind, &ServerOptions::new());
        source.server.sql(
            "USE aaa; CREATE TABLE parts (id INT PRIMARY KEY, v VARCHAR(200)) ENGINE=InnoDB \
             PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100000), PARTITION p1 VALUES LESS THAN MAXVALUE); \
             INSERT INTO parts VALUES (1, 'OLD'), (200000, 'OLD')",
        );
        let exchange = || {
            source.discard();
            source.import();
            source.server.sql("ALTER TABLE aaa.parts EXCHANGE PARTITION p0 WITH TABLE aaa.t");
        };
        let error = source.copy("a", exchange).map(drop).unwrap_err().to_string();
        assert!(error.contains("aaa/") && error.contains("IMPORT TABLESPACE"), "{error}");
        source.server.flush_pages();
        // The checkpoint comes some time after the last page is written.
        let (mut copied, mut tries) = (None, 0);
        fullbore_test_servers::wait_until("a checkpoint behind the import", || {
            tries += 1;
            copied = source.copy(&format!("b{tries}"), || {}).ok();
            copied.is_some()
        });
        let (copy, _) = copied.unwrap();
        let asked = "SELECT COUNT(*), SUM(v = 'OLD') FROM aaa.parts; SELECT * FROM aaa.t";
        assert_eq!(source.restored(&copy, asked), "5001\t1\n1\tOLD\n", "{}", kind.name());
    }
}

#[test]
fn an_import_during_a_copy_of_a_server_with_an_encrypted_log_is_refused_by_name() {
    for kind in Kind::MARIADB {
        let source = Source::start(kind, &ServerOptions::new().encrypt().option("innodb_encrypt_log=ON"));
        let import = || {
            source.discard();
            source.import();
        };
        let error = source.copy("a", import).map(drop).unwrap_err().to_string();
        assert!(error.contains("aaa/t.ibd") && error.contains("encrypted redo log"), "{error}");
        // Other tables may come and go.
        source.server.sql("INSERT INTO aaa.t VALUES (9999, 'ADDED')");
        source.server.flush_pages();
        let others = || {
            source.server.sql(
                "CREATE TABLE aaa.made LIKE aaa.new; INSERT INTO aaa.made SELECT * FROM aaa.new; TRUNCATE TABLE \
                 aaa.new; DROP TABLE aaa.new; CREATE TABLE aaa.new LIKE aaa.made",
            );
        };
        let (copy, _) = source.copy("b", others).unwrap();
        assert_eq!(source.restored(&copy, COUNTED), "5001\tADD\tNEW\n", "{}", kind.name());
    }
}
