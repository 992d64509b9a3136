//! `fullbore sql`: T-SQL runs jobs, and its messages have the words of SQL Server.

use crate::database;
use crate::world::World;

/// A database `shop`, and directories `a` and `b`.
fn world() -> World {
    let world = World::with_database();
    let at = world.folder().display().to_string();
    let text = format!(
        "[sql]\nrepository = \"night\"\n[sql.databases]\nshop = \"sqlite:app.db\"\ncopy = \"sqlite:copy.db\"\n\
         [sql.paths]\n'D:\\Backup' = \"{at}/a\"\n[sql.certificates]\nBackupCert = \"app.key.pub\"\n\
         [repository.night]\nto = [\"{at}/night/\"]\n"
    );
    world.write("fullbore.toml", text.as_bytes());
    for folder in ["a", "b", "night"] {
        std::fs::create_dir_all(world.at(folder)).unwrap();
    }
    world
}

#[test]
fn a_backup_and_a_restore_in_t_sql_give_the_database_and_the_words_of_sql_server() {
    let world = world();
    world.write(
        "night.sql",
        b"-- every night\nDECLARE @a nvarchar(260) = N'D:\\Backup\\' + N'1.bore'\n\
          BACKUP DATABASE [shop] TO DISK = @a, DISK = 'b/2.bore'\n  WITH INIT, COMPRESSION, MAXTRANSFERSIZE = 65536, \
          BUFFERCOUNT = 64, STATS = 25\nGO\nRESTORE VERIFYONLY FROM DISK = 'a/1.bore', DISK = 'b/2.bore'\nGO\n\
          RESTORE DATABASE [copy] FROM DISK = 'a/1.bore', DISK = 'b/2.bore' WITH REPLACE\n",
    );
    let said = world.run("sql -i night.sql").done().text();
    for words in [
        "25 percent processed.\n50 percent processed.\n75 percent processed.\n100 percent processed.\n",
        "pages for database 'shop', file 'shop' on file 1.",
        "BACKUP DATABASE successfully processed ",
        " seconds (",
        " MB/sec).",
        "The backup set on file 1 is valid.",
        "RESTORE DATABASE successfully processed ",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    world.assert_copy();
    assert_eq!(world.names("a").len() + world.names("b").len(), 2);
    let again = world.run("sql -i night.sql").done().text();
    assert!(again.contains("BACKUP DATABASE successfully processed"), "INIT overwrites: {again}");
}

#[test]
fn a_differential_and_a_log_backup_find_their_base_beside_them() {
    let world = world();
    world.run_with(&["sql", "BACKUP DATABASE shop TO DISK='a/full.bak'"]).done();
    database::change(&world.at("app.db"), 1);
    world.run_with(&["sql", "BACKUP DATABASE shop TO DISK='a/diff.bak' WITH DIFFERENTIAL"]).done();
    let restored = "RESTORE DATABASE copy FROM DISK='a/full.bak' WITH NORECOVERY; \
                    RESTORE DATABASE copy FROM DISK='a/diff.bak' WITH NORECOVERY; RESTORE DATABASE copy WITH RECOVERY";
    world.run_with(&["sql", restored]).done();
    world.assert_copy();
    std::fs::remove_file(world.at("copy.db")).unwrap();
    let in_two =
        "RESTORE DATABASE copy FROM DISK='a/full.bak' WITH NORECOVERY; RESTORE DATABASE copy FROM DISK='a/diff.bak'";
    world.run_with(&["sql", in_two]).done();
    world.assert_copy();
}

#[test]
fn a_wrong_word_is_named_before_anything_runs_and_a_failure_ends_the_script() {
    let world = world();
    let wrong = "BACKUP DATABASE shop TO DISK='a/1.bak'\nGO\nBACKUP DATABASE shop TO DISK='a/2.bak' WITH FILE_SNAPSHOT";
    world.run_with(&["sql", wrong]).refused(2, "line 3, column 45: FILE_SNAPSHOT", "no such option");
    assert_eq!(world.names("a"), Vec::<String>::new());
    let late = "BACKUP DATABASE shop TO DISK='a/1.bak'; BACKUP DATABASE shop TO DISK='a/2.bak' WITH MAXTRANSFERSIZE = 7, \
                BUFFERCOUNT = 99999999999999999999";
    world.run_with(&["sql", late]).with_code(2);
    assert_eq!(world.names("a"), Vec::<String>::new(), "all statements are parsed before the first one runs");
    let failing = "BACKUP DATABASE shop TO DISK='a/1.bak'; BACKUP DATABASE shop TO DISK='a/1.bak'; PRINT 'not here'";
    let failed = world.run_with(&["sql", failing]).with_code(1);
    let said = failed.text();
    assert!(said.contains("Msg 3013, Level 16, State 1, Line 1\nBACKUP DATABASE is terminating abnormally."), "{said}");
    assert!(!said.contains("not here") && failed.err.contains("error: "), "{failed}");
}

#[test]
fn a_dry_run_prints_command_lines_and_runs_nothing() {
    let world = world();
    let script = "BACKUP DATABASE shop TO DISK = N'D:\\Backup\\my shop.bak' WITH ENCRYPTION (ALGORITHM = AES_256, \
                  SERVER CERTIFICATE = BackupCert), NAME = 'it''s'";
    let said = world.run_with(&["sql", script, "--dry-run"]).done().text();
    assert!(
        said.starts_with("fullbore backup sqlite:app.db --to ") && said.contains("--encrypt-to app.key.pub"),
        "{said}"
    );
    assert!(said.contains("/a/my shop.bak'") && said.contains("\"it's\""), "words are quoted for a shell: {said}");
    assert_eq!(world.names("a"), Vec::<String>::new());
    let with_password = b"[sql.databases]\nmy = \"mysql://root:s3cret@127.0.0.1\"\n";
    world.write("secret.toml", with_password);
    let ended = world.run_with(&["sql", "BACKUP DATABASE my TO DISK='a/m'", "--dry-run", "--config", "secret.toml"]);
    assert!(!ended.text().contains("s3cret") && !ended.err.contains("s3cret"), "{ended}");
}

#[test]
fn a_script_in_utf_16_is_read_and_anything_else_is_refused() {
    let world = world();
    let utf16: Vec<u8> = "\u{feff}PRINT N'häuser'\r\nGO\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    world.write("wide.sql", &utf16);
    assert_eq!(world.run("sql -i wide.sql").done().text().trim(), "häuser");
    world.write("bad.sql", b"PRINT '\xff\xfe\xfa'");
    world.run("sql -i bad.sql").refused(2, "bad.sql", "neither UTF-8 nor UTF-16");
    world.run("sql -i none.sql").refused(2, "none.sql", "");
}

#[test]
fn the_procedures_of_rds_show_the_tasks_of_the_repository() {
    let world = world();
    world.run("backup sqlite:app.db --repo night").done();
    let said = world.run_with(&["sql", "exec msdb.dbo.rds_task_status"]).done().text();
    assert!(said.contains("SUCCESS") || said.contains("app"), "{said}");
}
