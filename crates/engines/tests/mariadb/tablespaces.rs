//! Files in all places that the server can be configured for.

use std::fs;
use std::os::unix::fs::MetadataExt;

use fullbore_test_servers::{Kind, Options as ServerOptions, Server};

use crate::live::{copy, room};
use crate::{restored, workload};

#[test]
fn a_table_outside_of_the_data_directory_is_in_the_copy_and_recovers_where_it_was() {
    for kind in Kind::MARIADB {
        let room = room();
        let target = room.path().join("data");
        let mut server = Server::start(kind, &ServerOptions::new());
        workload::prepare(&server, "");
        let outside = server.tablespaces().display().to_string();
        server.sql(&format!(
            "USE shop; CREATE TABLE remote (id INT PRIMARY KEY) ENGINE=InnoDB DATA DIRECTORY='{outside}'; INSERT INTO \
             remote SELECT seq FROM seq_1_to_1000; CREATE TABLE far (id INT PRIMARY KEY) ENGINE=MyISAM DATA \
             DIRECTORY='{outside}'; INSERT INTO far VALUES (1), (2)"
        ));
        let outcome = copy(&server, &target);
        let remote = outcome.files.iter().find(|file| file.name == "shop/remote.ibd").unwrap();
        assert!(remote.elsewhere.as_ref().is_some_and(|path| path.starts_with(&outside)), "{remote:?}");
        assert!(target.join("shop/far.MYD").symlink_metadata().unwrap().is_file());
        // The redo log has the absolute path: recovery finds the table there, and nowhere else.
        server.stop();
        let outside = server.tablespaces().join("shop");
        fs::rename(&outside, outside.with_extension("away")).unwrap();
        let owner = fs::metadata(server.tablespaces()).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::rename(target.join("shop/remote.ibd"), outside.join("remote.ibd")).unwrap();
        fs::write(target.join("shop/remote.isl"), outside.join("remote.ibd").display().to_string()).unwrap();
        for path in [&outside, &outside.join("remote.ibd")] {
            std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        let copied = restored::check(&server, &target, ServerOptions::new());
        assert_eq!(copied.sql("SELECT COUNT(*) FROM shop.remote; SELECT COUNT(*) FROM shop.far"), "1000\n2\n");
    }
}

#[test]
fn logs_and_undo_in_folders_of_their_own_are_found() {
    let folders = room();
    for folder in ["log", "undo", "aria"] {
        let path = folders.path().join(folder);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let option = |name: &str, folder: &str| format!("{name}={}", folders.path().join(folder).display());
    let options = ServerOptions::new()
        .option(&option("innodb_log_group_home_dir", "log"))
        .option(&option("innodb_undo_directory", "undo"))
        .option("innodb_undo_tablespaces=3");
    let server = Server::start(Kind::Mariadb11, &options);
    workload::prepare(&server, "");
    let room = room();
    let target = room.path().join("data");
    let outcome = copy(&server, &target);
    assert!(outcome.files.iter().any(|file| file.name == "undo001" && file.elsewhere.is_some()));
    restored::check(&server, &target, ServerOptions::new());
}
