//! `fullbore sql`: T-SQL runs jobs, and its messages have the words of SQL Server.

use fullbore_engines::sqlserver::configuration::BackupKind;
use fullbore_engines::sqlserver::writer::{FamilyWriter, sample_extents, sample_label, sample_log, sample_set};
use fullbore_test_servers::sql_server::{PASSWORD, SqlServerStub};

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
fn a_log_backup_of_nothing_says_that_no_file_was_written() {
    let world = world();
    let app = crate::log::kept_open(&world);
    app.execute_batch("UPDATE item SET name = 'before' WHERE id = 1").unwrap();
    world.run_with(&["sql", "BACKUP DATABASE shop TO DISK='a/full.bak'"]).done();
    let log = "BACKUP LOG shop TO DISK='a/log.trn'";
    let said = world.run_with(&["sql", log]).done().text();
    assert!(said.contains("Nothing was committed in database 'shop'") && !said.contains("Processed"), "{said}");
    assert!(said.contains("BACKUP LOG successfully processed 0 pages"), "{said}");
    assert_eq!(world.names("a"), ["full.bak"]);
    app.execute_batch("UPDATE item SET name = 'after' WHERE id = 1").unwrap();
    let said = world.run_with(&["sql", log]).done().text();
    assert!(said.contains("Processed "), "{said}");
    assert_eq!(world.names("a"), ["full.bak", "log.trn"]);
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
    for of_one in ["", " @db_name = 'shop'"] {
        let said = world.run_with(&["sql", &format!("exec msdb.dbo.rds_task_status{of_one}")]).done().text();
        assert!(said.contains("done") && said.contains("app.db"), "{said}");
    }
    assert!(!world.run("tasks --repo night --database other").done().text().contains("app.db"));
}

#[test]
fn statements_on_a_sql_server_run_there_and_need_experimental() {
    let (world, stub) = (World::new(), SqlServerStub::start());
    world.write("password", format!("{PASSWORD}\n").as_bytes());
    let password = world.at("password").display().to_string();
    let config = format!(
        "[sql.databases]\nshop = \"{}\"\ncopy = \"{}\"\n[engine.sqlserver]\npassword-file = \"{password}\"\n",
        stub.url("shop"),
        stub.url("copy")
    );
    world.write("fullbore.toml", config.as_bytes());
    let backup = "BACKUP DATABASE shop TO DISK = N'/backup/shop.bak' WITH COMPRESSION, STATS = 50";
    world.run_with(&["sql", backup]).refused(2, "database [shop]", "--experimental");
    let said = world.run_with(&["sql", "--experimental", backup]).done().text();
    assert!(
        said.contains("100 percent processed.") && said.contains("BACKUP DATABASE successfully processed"),
        "{said}"
    );
    let statement = stub.batches("BACKUP").concat();
    assert!(statement.contains("DISK = N'/backup/shop.bak'") && statement.contains("COMPRESSION"), "{statement}");
    let restore =
        "RESTORE DATABASE copy FROM DISK = '/backup/shop.bak' WITH NORECOVERY\nRESTORE DATABASE copy WITH RECOVERY";
    world.run_with(&["sql", "--experimental", restore]).done();
    let statements = stub.batches("RESTORE DATABASE");
    assert!(statements[0].contains("FILE = 1") && statements[0].contains("NORECOVERY"), "{statements:?}");
    assert!(statements[1].contains("WITH RECOVERY"), "{statements:?}");
    let again = world.run_with(&["sql", "--experimental", backup]).with_code(1);
    assert!(again.text().contains("BACKUP DATABASE is terminating abnormally."), "{again}");
}

#[test]
fn without_file_the_first_set_counts_as_in_sql_server() {
    let world = world_with_backup_files();
    // A damaged set at position 2 is no reason to refuse the set at position 1.
    let (mut old, mut new) = (sample_set(BackupKind::Full, 1), sample_set(BackupKind::Full, 2));
    old.copies = vec![sample_extents(&[0, 1], 2)];
    new.copies = vec![sample_extents(&[0, 1, 2], 3)];
    world.write("two.bak", &FamilyWriter::new(&sample_label(1, 1), 512).set(&old).set(&new).finish());
    let said = world.run_with(&["sql", "RESTORE DATABASE old FROM DISK='two.bak'"]).done();
    let first = world.read("out/shop");
    std::fs::remove_dir_all(world.at("out")).unwrap();
    std::fs::create_dir(world.at("out")).unwrap();
    world.run_with(&["sql", "RESTORE DATABASE old FROM DISK='two.bak' WITH FILE = 2"]).done();
    assert!(world.read("out/shop") != first, "{said}");
}

/// `x.bak`: a full at position 1, and a log at position 2.
fn world_with_backup_files() -> World {
    let world = world();
    let text = String::from_utf8(world.read("fullbore.toml")).unwrap();
    world.write("fullbore.toml", text.replace("copy = ", "old = \"dir:out\"\ncopy = ").as_bytes());
    let mut full = sample_set(BackupKind::Full, 1);
    full.copies = vec![sample_extents(&[0, 1], 2)];
    let mut log = sample_set(BackupKind::Log, 2);
    log.logs = vec![sample_log(1 << 16)];
    world.write("x.bak", &FamilyWriter::new(&sample_label(1, 1), 512).set(&full).set(&log).finish());
    std::fs::create_dir(world.at("out")).unwrap();
    world
}

#[test]
fn statements_about_backup_files_of_sql_server_have_its_columns_and_words() {
    let world = world_with_backup_files();
    let said = world.run_with(&["sql", "RESTORE HEADERONLY FROM DISK='x.bak' WITH FILE = 2"]).done().text();
    assert!(said.contains("TRANSACTION LOG") && !said.contains("file 1"), "{said}");
    let said = world.run_with(&["sql", "RESTORE FILELISTONLY FROM DISK='x.bak' WITH FILE = 1"]).done().text();
    assert!(said.contains("LogicalName            shop_log"), "{said}");
    let said = world.run_with(&["sql", "RESTORE LABELONLY FROM DISK='x.bak' WITH MEDIANAME = 'nightly'"]).done().text();
    assert!(said.contains("MediaName              nightly"), "{said}");
    let said = world.run_with(&["sql", "RESTORE VERIFYONLY FROM DISK='x.bak' WITH FILE = 2, CHECKSUM"]).done().text();
    assert!(said.contains("The backup set on file 2 is valid."), "{said}");
    world.run_with(&["sql", "RESTORE HEADERONLY FROM DISK='x.bak' WITH FILE = 3"]).refused(2, "--file 3", "no set");
    let other = world.run_with(&["sql", "RESTORE VERIFYONLY FROM DISK='x.bak' WITH MEDIANAME = 'weekly'"]).with_code(1);
    other.says(&["column 43: MEDIANAME = 'weekly'", "the media have the name nightly"]);
    world.run("backup sqlite:app.db --to own.bore").done();
    let own = "RESTORE HEADERONLY FROM DISK='own.bore' WITH";
    world.run_with(&["sql", &format!("{own} FILE = 1")]).done();
    world.run_with(&["sql", &format!("{own} MEDIANAME = 'x'")]).refused(1, "MEDIANAME", "have the name NULL");
    world.run_with(&["sql", "BACKUP DATABASE shop TO DISK='named.bore' WITH MEDIANAME = N'nightly'"]).done();
    let label = world.run_with(&["sql", "RESTORE LABELONLY FROM DISK='named.bore' WITH MEDIANAME = 'nightly'"]).done();
    assert!(label.text().contains("media name  nightly"), "{label}");
    let restore = "RESTORE DATABASE copy FROM DISK='named.bore' WITH MEDIANAME =";
    world.run_with(&["sql", &format!("{restore} 'weekly'")]).refused(
        1,
        "MEDIANAME = 'weekly'",
        "have the name nightly",
    );
    world.run_with(&["sql", &format!("{restore} 'nightly'")]).done();
}

#[test]
fn a_backup_file_of_sql_server_becomes_files_where_move_and_the_configuration_say() {
    let world = world_with_backup_files();
    let restore = "RESTORE DATABASE old FROM DISK='x.bak' WITH FILE = 1, MOVE 'shop' TO 'D:\\Backup\\new.mdf'";
    let said = world.run_with(&["sql", restore]).done().text();
    assert!(said.contains("RESTORE DATABASE successfully processed"), "{said}");
    assert_eq!((world.names("a"), world.names("out")), (vec!["new.mdf".to_owned()], vec!["shop_log".to_owned()]));
    let page = &world.read("a/new.mdf")[9 * 8192..10 * 8192];
    assert_eq!(u32::from_le_bytes(page[32..36].try_into().unwrap()), 9, "page 9 is at its place");
    world.run_with(&["sql", restore]).with_code(1).says(&["new.mdf", "exists already"]);
    let wrong = "RESTORE DATABASE old FROM DISK='x.bak' WITH MOVE 'shap' TO 'a/y'";
    world.run_with(&["sql", wrong]).refused(2, "--move shap", "`shop`, `shop_log`");
    let same = "RESTORE DATABASE old FROM DISK='x.bak' WITH MOVE 'shop' TO 'a/y', MOVE 'shop_log' TO 'a/Y'";
    world.run_with(&["sql", same]).with_code(1).says(&["two files of the database have this name"]);
    assert_eq!(world.names("a"), ["new.mdf"], "a restore that fails leaves nothing");
    std::fs::rename(world.at("out"), world.at("away")).unwrap();
    let missing = world.run_with(&["sql", "RESTORE DATABASE old FROM DISK='x.bak'"]).with_code(2);
    assert!(!missing.says(&["out", "make the directory first"]).err.contains("--mkdir"));
    std::fs::rename(world.at("away"), world.at("out")).unwrap();
    let into_sqlite = world.run_with(&["sql", "RESTORE DATABASE copy FROM DISK='x.bak'"]).with_code(2);
    into_sqlite.says(&["line 1, column 1: database [copy]", "SQL Server backup", "copy = \"dir:/path\""]);
    world.run("restore --from x.bak --into dir:out --move shop out/z --file 7").refused(
        2,
        "--file 7",
        "no set at this",
    );
    world.run("backup sqlite:app.db --to own.bore").done();
    world.run("restore --from own.bore --into sqlite:copy.db --move a b").refused(2, "--move", "other programs");
    world.run("restore --from own.bore --into sqlite:copy.db --file 2").refused(2, "--file", "other programs");
    world.run("restore --from own.bore --into sqlite:copy.db --file 1").done();
}

#[test]
fn mirror_to_writes_the_same_families_twice_and_with_format_replaces_both() {
    let world = world();
    let backup = "BACKUP DATABASE shop TO DISK='a/1.bore', DISK='a/2.bore' MIRROR TO DISK='b/1.bore', DISK='b/2.bore'";
    world.run_with(&["sql", backup]).done();
    let same = |name: &str| assert!(world.read(&format!("a/{name}")) == world.read(&format!("b/{name}")), "{name}");
    ["1.bore", "2.bore"].into_iter().for_each(same);
    world.run_with(&["sql", backup]).with_code(1).says(&["exists"]);
    database::change(&world.at("app.db"), 1);
    let before = world.read("b/1.bore");
    world.run_with(&["sql", &format!("{backup} WITH FORMAT")]).done();
    ["1.bore", "2.bore"].into_iter().for_each(same);
    assert!(world.read("b/1.bore") != before);
    // Families of both sides are one set.
    world.run("restore --from a/1.bore --from b/2.bore --into sqlite:copy.db").done();
    world.assert_copy();
    let thrice = "BACKUP DATABASE shop TO DISK='a/t.bore' MIRROR TO DISK='b/t.bore' MIRROR TO DISK='night/t.bore'";
    world.run_with(&["sql", thrice]).done();
    for other in ["b/t.bore", "night/t.bore"] {
        assert!(world.read("a/t.bore") == world.read(other), "{other}");
        world.run(&format!("verify {other}")).done();
    }
    world.run_with(&["sql", &format!("{thrice} WITH INIT")]).done();
    let twice = "backup sqlite:app.db --to c.bore --mirror-to d.bore --mirror-to d.bore --mirrors 2";
    world.run(twice).refused(2, "d.bore", "another mirror");
    world.run("backup sqlite:app.db --to c.bore --mirror-to d.bore --mirrors 2").refused(2, "--mirrors 2", "1 place");
    world.write("b/2.bore", b"no family");
    world.run_with(&["sql", &format!("{backup} WITH FORMAT")]).with_code(1).says(&["b/2.bore"]);
    same("1.bore");
    world.run("backup sqlite:app.db --to c.bore --mirror-to c.bore").refused(2, "c.bore", "the backup itself");
    world.run("backup sqlite:app.db --to c.bore --mirror-to -").refused(2, "--mirror-to", "first place");
}
