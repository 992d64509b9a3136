//! Scripts as they are printed in published reports and in the documents of Microsoft and Amazon.
#![allow(clippy::unwrap_used)]

use super::*;

fn names() -> Names {
    let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    Names {
        databases: map(&[
            ("shop", "sqlite:/srv/shop.db"),
            ("Sales DB", "mysql://backup@db1"),
            ("old", "dir:/srv/old"),
            ("live", "mssql://sa@db1/live"),
            ("cloud", "mssql://sa@rds1/cloud?rds=true"),
        ]),
        paths: map(&[("D:\\Backup", "/mnt/d"), ("E:\\Backup", "/mnt/e")]),
        certificates: map(&[("BackupCert", "/etc/fullbore/backup.pub")]),
        repository: Some("nightly".into()),
        experimental: true,
    }
}

fn commands(script: &str) -> Result<Vec<Command>> {
    read_script(script, &names(), "2026-11-26T04:05:06+00:00[UTC]".parse().unwrap())
}

/// The command lines of a script.
fn lines(script: &str) -> Vec<String> {
    let all = commands(script).unwrap_or_else(|error| panic!("{script}: {error}"));
    all.iter().map(|command| command.words.join(" ")).collect()
}

#[test]
fn arguments_of_procedures_need_their_names() {
    let script = "EXEC msdb.dbo.rds_backup_database N'shop', N'arn:aws:s3:::b/k.bak'";
    refused(script, &["line 1, column 35: rds_backup_database", "arguments need their names"]);
    refused("EXEC sp_executesql N'BACKUP'", &["does not know the procedure sp_executesql"]);
}

fn refused(script: &str, words: &[&str]) {
    let error = commands(script).err().unwrap_or_else(|| panic!("it is accepted: {script}"));
    assert_eq!(error.exit_kind().exit_code(), 2);
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{script}: {text}");
}

#[test]
fn the_statements_of_published_reports_are_command_lines() {
    for (script, line) in [
        (
            "BACKUP DATABASE [shop] TO DISK='/a/1.bore', DISK='/b/2.bore' WITH INIT, COMPRESSION, \
             MAXTRANSFERSIZE=2097152, BUFFERCOUNT=1024, STATS=10",
            "backup sqlite:/srv/shop.db --to /a/1.bore --to /b/2.bore --init --compression zstd:1 \
             --max-transfer-size 2097152 --buffer-count 1024",
        ),
        (
            "BACKUP DATABASE shop TO DISK = 'NUL' WITH BUFFERCOUNT = 10;",
            "backup sqlite:/srv/shop.db --to nul: --buffer-count 10",
        ),
        (
            "backup database shop to disk = N'D:\\Backup\\s1.bak', disk = N'E:\\Backup\\s2.bak', \
             disk = N'D:\\Backup\\s3.bak' with blocksize = 65536, no_compression, checksum",
            "backup sqlite:/srv/shop.db --to /mnt/d/s1.bak --to /mnt/e/s2.bak --to /mnt/d/s3.bak --block-size 65536 \
             --compression none",
        ),
        (
            "BACKUP DATABASE [Sales DB] TO URL = 's3://bucket/sales.bak' WITH COPY_ONLY, NAME = N'month', RETAINDAYS = 30",
            "backup mysql://backup@db1 --to s3://bucket/sales.bak --copy-only --name month --lock-until 30d",
        ),
        (
            // As SQL Server Management Studio writes it.
            "BACKUP DATABASE [shop] TO  DISK = N'D:\\Backup\\shop.bak' WITH NOFORMAT, INIT,  NAME = N'shop-Full Database \
             Backup', SKIP, NOREWIND, NOUNLOAD,  STATS = 10, CHECKSUM\nGO",
            "backup sqlite:/srv/shop.db --to /mnt/d/shop.bak --init --name shop-Full Database Backup",
        ),
        (
            "BACKUP DATABASE shop TO DISK='/a/d.bak' WITH DIFFERENTIAL",
            "backup sqlite:/srv/shop.db --to /a/d.bak --kind differential --base /a/",
        ),
        (
            "BACKUP DATABASE shop TO DISK='/a/1' WITH MEDIANAME = N'nightly'",
            "backup sqlite:/srv/shop.db --to /a/1 --media-name nightly",
        ),
        ("BACKUP LOG shop TO DISK='/a/l.trn'", "backup sqlite:/srv/shop.db --to /a/l.trn --kind log --base /a/"),
        (
            "BACKUP DATABASE shop TO DISK='/a/x.bak' WITH FORMAT, ENCRYPTION (ALGORITHM = AES_256, \
             SERVER CERTIFICATE = [BackupCert]), COMPRESSION (ALGORITHM = ZSTD, LEVEL = HIGH)",
            "backup sqlite:/srv/shop.db --to /a/x.bak --init --encrypt-to /etc/fullbore/backup.pub --compression zstd:9",
        ),
        (
            "RESTORE DATABASE shop FROM DISK='/a/1.bore', DISK='/b/2.bore' WITH REPLACE, RECOVERY, STATS = 5, \
             MOVE 'shop' TO '/new/shop.db', MOVE 'shop_log' TO 'L:\\shop_log.ldf', FILE = 1",
            "restore --from /a/1.bore --from /b/2.bore --replace --into sqlite:/new/shop.db",
        ),
        (
            "RESTORE DATABASE shop FROM DISK='/a/f.bak' WITH NORECOVERY",
            "restore --from /a/f.bak --no-recovery --into sqlite:/srv/shop.db",
        ),
        (
            "RESTORE LOG shop FROM DISK='/a/l.trn' WITH STOPAT = '2026-11-26 03:00:00Z'",
            "restore --from /a/l.trn --stop-at 2026-11-26T03:00:00Z --recovery --into sqlite:/srv/shop.db",
        ),
        ("RESTORE DATABASE shop WITH RECOVERY", "restore --recovery --into sqlite:/srv/shop.db"),
        ("RESTORE HEADERONLY FROM DISK='/a/1.bak' WITH NOUNLOAD", "inspect header --from /a/1.bak"),
        ("RESTORE FILELISTONLY FROM DISK='/a/1.bak'", "inspect files --from /a/1.bak --file 1"),
        ("RESTORE LABELONLY FROM DISK='/a/1.bak'", "inspect label --from /a/1.bak"),
        ("RESTORE VERIFYONLY FROM DISK='/a/1.bak' WITH CHECKSUM", "verify --from /a/1.bak --file 1"),
    ] {
        assert_eq!(lines(script), [line]);
    }
}

#[test]
fn a_script_with_batches_variables_and_comments_is_read_as_dbas_write_it() {
    let script = "USE master\nGO\nSET NOCOUNT ON\n-- nightly\nDECLARE @db sysname = N'shop', @to nvarchar(260)\n\
                  SET @to = N'D:\\Backup\\' + @db + N'_' + CONVERT(nvarchar(8), GETDATE(), 112) + N'.bak'\n\
                  PRINT N'to ' + @to\nBACKUP DATABASE @db TO DISK = @to WITH STATS\n/* and\nso on */\nGO\n\
                  RESTORE VERIFYONLY FROM DISK = N'D:\\Backup\\shop_20261126.bak'\nGO\n";
    let all = commands(script).unwrap();
    assert_eq!(all[0].action, Action::Print("to D:\\Backup\\shop_20261126.bak".into()));
    assert_eq!(all[1].words, ["backup", "sqlite:/srv/shop.db", "--to", "/mnt/d/shop_20261126.bak"]);
    assert_eq!((all[1].stats, all[1].at.line), (Some(10), 8));
    assert_eq!((all[2].words.join(" "), all.len()), ("verify --from /mnt/d/shop_20261126.bak --file 1".into(), 3));
    refused(
        "DECLARE @to nvarchar(9) = N'/a'\nGO\nBACKUP DATABASE shop TO DISK = @to",
        &["line 3", "@to", "not declared"],
    );
}

#[test]
fn a_restore_behind_norecovery_is_the_last_step_unless_it_has_norecovery_too() {
    let script = "RESTORE DATABASE shop FROM DISK='/f' WITH NORECOVERY; RESTORE DATABASE [Sales DB] FROM DISK='/s';
                  RESTORE DATABASE shop FROM DISK='/d' WITH NORECOVERY; RESTORE DATABASE SHOP FROM DISK='/e' WITH RECOVERY;
                  RESTORE DATABASE shop FROM DISK='/f'";
    let steps = |line: &String| (line.contains("--no-recovery"), line.contains("--recovery"));
    let found: Vec<(bool, bool)> = lines(script).iter().map(steps).collect();
    assert_eq!(found, [(true, false), (false, false), (true, false), (false, true), (false, false)]);
    let moved = lines(
        "RESTORE DATABASE shop FROM DISK='/f' WITH NORECOVERY, MOVE 'shop_log' TO '/n/shop.db'; RESTORE DATABASE shop FROM \
         DISK='/d'",
    );
    assert!(moved.iter().all(|line| line.contains("--into sqlite:/n/shop.db")), "{moved:?}");
    let once = lines("BACKUP DATABASE shop TO DISK='/a' WITH FORMAT, INIT");
    assert_eq!(once, ["backup sqlite:/srv/shop.db --to /a --init"]);
}

#[test]
fn the_procedures_of_rds_are_command_lines() {
    for (script, line) in [
        (
            "exec msdb.dbo.rds_backup_database @source_db_name='shop', \
             @s3_arn_to_backup_to='arn:aws:s3:::bucket/night/shop*.bak', @number_of_files=2, @type='FULL', \
             @overwrite_s3_backup_file=1, @max_transfer_size=4194304",
            "backup sqlite:/srv/shop.db --to s3://bucket/night/shop1-of-2.bak --to s3://bucket/night/shop2-of-2.bak --init \
             --max-transfer-size 4194304",
        ),
        (
            "EXEC msdb.dbo.rds_backup_database @source_db_name='shop', @type='differential', \
             @s3_arn_to_backup_to='arn:aws:s3:::bucket/night/shop_d.bak'",
            "backup sqlite:/srv/shop.db --to s3://bucket/night/shop_d.bak --kind differential --base s3://bucket/night/",
        ),
        (
            "exec msdb.dbo.rds_restore_database @restore_db_name='shop', \
             @s3_arn_to_restore_from='arn:aws:s3:::bucket/shop*', @with_norecovery=1",
            "restore --from s3://bucket/shop --no-recovery --into sqlite:/srv/shop.db",
        ),
        ("exec msdb.dbo.rds_finish_restore @db_name='shop'", "restore --recovery --into sqlite:/srv/shop.db"),
        ("exec msdb.dbo.rds_task_status", "tasks --repo nightly"),
        ("exec msdb.dbo.rds_task_status @db_name='shop'", "tasks --repo nightly --database /srv/shop.db"),
        ("exec msdb..rds_cancel_task @task_id=7", "cancel 7 --repo nightly"),
    ] {
        assert_eq!(lines(script), [line]);
    }
    refused("exec msdb.dbo.rds_backup_database @source_db_name='shop'", &["@s3_arn_to_backup_to"]);
    refused("exec rds_task_status @db_name='live'", &["@db_name", "of a server"]);
    refused("exec msdb.dbo.rds_task_status @tsk_id=7", &["@tsk_id", "column"]);
    refused("exec sp_who2", &["sp_who2"]);
    refused("exec other.dbo.rds_task_status", &["other.dbo", "msdb.dbo"]);
    refused("exec rds_cancel_task", &["names no task"]);
    let backup = "exec rds_backup_database @source_db_name='shop', @s3_arn_to_backup_to='arn:aws:s3:::b/k'";
    refused(&format!("{backup}, @overwrite_s3_backup_file=2"), &["@overwrite_s3_backup_file", "0 nor 1"]);
    refused(&format!("{backup}, @buffer_count=-5"), &["@buffer_count", "above 0"]);
    refused(&format!("{backup}, @type='LOG'"), &["@type", "LOG"]);
    assert!(lines(&format!("{backup}, @overwrite_s3_backup_file='1'"))[0].ends_with("--init"));
}

#[test]
fn a_word_that_fullbore_does_not_have_is_an_error_with_its_place() {
    for (script, words) in [
        (
            "BACKUP DATABASE shop TO DISK='/a'\n WITH FILE_SNAPSHOT",
            &["line 2, column 7", "FILE_SNAPSHOT", "BACKUP DATABASE"][..],
        ),
        ("BACKUP DATABASE shop TO DISK='/a' WITH INIT, INIT", &["INIT", "twice"]),
        ("BACKUP DATABASE shop FILE='x' TO DISK='/a'", &["FILEGROUP"]),
        ("BACKUP DATABASE shop TO DISK='/a' MIRROR TO DISK='/b', DISK='/c'", &["MIRROR TO", "2 devices", "TO has 1"]),
        (
            "BACKUP DATABASE shop TO DISK='/a' MIRROR TO DISK='/b' MIRROR TO DISK='/c' MIRROR TO DISK='/d' MIRROR TO DISK='/e'",
            &["column 95: MIRROR TO", "3 mirrors at most"],
        ),
        ("BACKUP DATABASE shop TO DISK='/a' MIRROR TO DISK='NUL'", &["MIRROR TO", "keeps nothing"]),
        ("BACKUP DATABASE old TO DISK='/a'", &["[old]", "dir:/srv/old", "SQL Server"]),
        ("BACKUP DATABASE shop TO DISK='/a' WITH MEDIADESCRIPTION = 'x'", &["MEDIADESCRIPTION", "DESCRIPTION"]),
        ("BACKUP DATABASE shop TO DISK='/a' WITH SNAPPY = 5", &["SNAPPY", "no such option"]),
        ("BACKUP DATABASE shop TO TAPE='/a'", &["TAPE", "DISK"]),
        ("BACKUP DATABASE other TO DISK='/a'", &["[other]", "[sql.databases]"]),
        ("BACKUP DATABASE shop TO DISK='Z:\\a.bak'", &["Z:\\a.bak", "[sql.paths]"]),
        ("BACKUP DATABASE shop TO DISK='/a' WITH COMPRESSION (ALGORITHM = MS_XPRESS)", &["MS_XPRESS", "ZSTD"]),
        ("BACKUP DATABASE shop TO DISK='/a' WITH ENCRYPTION (ALGORITHM = TRIPLE_DES_3KEY)", &["TRIPLE_DES_3KEY"]),
        ("BACKUP DATABASE shop TO DISK='/a' WITH BUFFERCOUNT = 0", &["BUFFERCOUNT", "not between 1"]),
        ("BACKUP DATABASE shop TO DISK='/a' WITH STATS = 300", &["STATS", "100"]),
        ("RESTORE DATABASE shop FROM DISK='/a' WITH STANDBY = '/u'", &["STANDBY", "sqlite", "NORECOVERY"]),
        ("RESTORE LOG [Sales DB] FROM DISK='/a' WITH STOPATMARK = 'x'", &["column 44: STOPATMARK", "mysql", "STOPAT"]),
        ("RESTORE DATABASE shop FROM DISK='/a' WITH KEEP_CDC", &["KEEP_CDC"]),
        ("RESTORE DATABASE [Sales DB] FROM DISK='/a' WITH MOVE 'x' TO '/y'", &["MOVE", "one file"]),
        ("RESTORE DATABASE shop FROM DISK='/a' WITH FILE = 2", &["FILE", "one backup set"]),
        ("RESTORE SNAPSHOT shop", &["SNAPSHOT", "VERIFYONLY"]),
        ("DROP DATABASE shop", &["DROP", "line 1, column 1"]),
        ("BACKUP DATABASE shop", &["end of the script", "TO"]),
        ("GO 5", &["batch runs once"]),
        ("BACKUP DATABASE shop TO DISK='/a' WITH INIT, NOINIT", &["NOINIT", "INIT is given too"]),
        ("BACKUP DATABASE shop TO DISK='/a' WITH INIT = 0", &["INIT", "no value"]),
        ("BACKUP DATABASE shop TO DISK='/a' WITH COMPRESSION = 5", &["COMPRESSION", "no value"]),
        ("BACKUP DATABASE shop TO DISK='/a' WITH COMPRESSION (ALGORITHM = LZ4, LEVEL = HIGH)", &["LZ4 has no level"]),
        ("BACKUP LOG shop TO DISK='/a' WITH DIFFERENTIAL", &["DIFFERENTIAL", "log backup"]),
        ("BACKUP DATABASE shop TO DISK='D:\\Backup\\..\\x.bak'", &["`..`"]),
        ("BACKUP DATABASE shop TO DISK='bk\\x.bak'", &["without a drive"]),
        ("BACKUP DATABASE shop TO DISK='-'", &["standard input"]),
        ("RESTORE DATABASE shop FROM DISK='/a' WITH RECOVERY, NORECOVERY", &["NORECOVERY", "RECOVERY is given too"]),
        ("RESTORE DATABASE shop FROM DISK='/a' WITH MOVE 'a' TO '/m1', MOVE 'b' TO '/m2'", &["second data file"]),
        ("RESTORE DATABASE shop FROM DISK='/a' WITH STOPAT = 'noon'", &["`noon` is not a time"]),
        ("SELECT NOCOUNT ON", &["SELECT"]),
    ] {
        refused(script, words);
    }
}

#[test]
fn a_value_of_another_type_or_size_is_an_error_with_its_option_and_place() {
    let given = |option: &str| format!("BACKUP DATABASE shop TO DISK='/a' WITH {option}");
    for (option, words) in [
        ("BUFFERCOUNT = 'x'", &["line 1, column 40: BUFFERCOUNT", "'x' is a text"][..]),
        ("BUFFERCOUNT = '5'", &["BUFFERCOUNT", "'5' is a text"]),
        ("BUFFERCOUNT = -5", &["BUFFERCOUNT", "-5 is below 0"]),
        ("BUFFERCOUNT = 99999999999", &["BUFFERCOUNT", "99999999999 is not between 1 and 4294967295"]),
        ("BUFFERCOUNT = 99999999999999999999", &["column 40: BUFFERCOUNT", "99999999999999999999"]),
        ("BUFFERCOUNT", &["BUFFERCOUNT", "it has no value"]),
        ("BUFFERCOUNT = NULL", &["BUFFERCOUNT", "NULL"]),
        ("BUFFERCOUNT = GETDATE()", &["BUFFERCOUNT", "time"]),
        ("STATS = 1.5", &["column 40: STATS", "1.5"]),
        ("STATS = -1.5", &["column 40: STATS", "1.5"]),
        ("STATS = 0", &["STATS", "0 is not between 1 and 100"]),
        ("MAXTRANSFERSIZE = 7", &["column 40: MAXTRANSFERSIZE", "7"]),
        ("BLOCKSIZE = 1000", &["column 40: BLOCKSIZE", "1000"]),
        ("RETAINDAYS = 100000", &["RETAINDAYS", "between 1 and 99999"]),
        ("NAME = 5", &["NAME", "it needs a text"]),
    ] {
        refused(&given(option), words);
    }
    refused("RESTORE HEADERONLY FROM DISK='/a' WITH FILE = 70000", &["FILE", "between 1 and 65535"]);
    refused("RESTORE HEADERONLY FROM DISK='/a' WITH STATS = 5", &["STATS", "no such option"]);
    refused("RESTORE LABELONLY FROM DISK='/a' WITH FILE = 1", &["FILE", "no such option"]);
    refused("DECLARE @n varchar(9) = '5' BACKUP DATABASE shop TO DISK='/a' WITH STATS = @n", &["STATS", "is a text"]);
}

#[test]
fn a_mirror_and_backup_files_of_sql_server_are_command_lines() {
    for (script, line) in [
        (
            "BACKUP DATABASE shop TO DISK='/a/1', DISK='/a/2' MIRROR TO DISK='/b/1', DISK='/b/2' WITH FORMAT",
            "backup sqlite:/srv/shop.db --to /a/1 --to /a/2 --mirror-to /b/1 --mirror-to /b/2 --init",
        ),
        (
            "BACKUP DATABASE shop TO DISK='/a/1' MIRROR TO DISK='/b/1' MIRROR TO DISK='/c/1'",
            "backup sqlite:/srv/shop.db --to /a/1 --mirror-to /b/1 --mirror-to /c/1 --mirrors 2",
        ),
        (
            "RESTORE HEADERONLY FROM DISK='/x.bak', DISK='/y.bak' WITH FILE = 2",
            "inspect header --from /x.bak --from /y.bak --file 2",
        ),
        (
            "RESTORE VERIFYONLY FROM DISK='/x.bak' WITH FILE = 2, MEDIANAME = N'nightly'",
            "verify --from /x.bak --file 2",
        ),
        (
            "RESTORE DATABASE old FROM DISK='/x.bak', DISK='/d.bak' WITH MOVE 'shop' TO 'D:\\Backup\\shop.mdf', \
             MOVE 'shop_log' TO '/log/shop.ldf', FILE = 1, RECOVERY, CHECKSUM, STATS = 5",
            "restore --from /x.bak --from /d.bak --move shop /mnt/d/shop.mdf --move shop_log /log/shop.ldf --file 1 \
             --into dir:/srv/old",
        ),
    ] {
        assert_eq!(lines(script), [line]);
    }
    let named = &commands("RESTORE HEADERONLY FROM DISK='/x.bak' WITH MEDIANAME = N'nightly'").unwrap()[0];
    assert_eq!(named.expected.media_name.as_ref().map(|(name, at)| (name.as_str(), at.column)), Some(("nightly", 44)));
    for (options, words) in [
        ("DATABASE old FROM DISK='/x' WITH REPLACE", &["column 42: REPLACE", "replaces nothing"][..]),
        ("DATABASE old FROM DISK='/x' WITH NORECOVERY", &["NORECOVERY", "DISK = …, DISK = …"]),
        ("DATABASE old FROM DISK='/x' WITH STANDBY = '/u'", &["STANDBY", "SQL Server"]),
        ("DATABASE old FROM DISK='/x' WITH STOPBEFOREMARK = 'lsn:1'", &["STOPBEFOREMARK", "not documented"]),
        ("DATABASE old FROM DISK='/x' WITH BUFFERCOUNT = 5", &["BUFFERCOUNT", "no such option"]),
        ("DATABASE old FROM DISK='/x' WITH MOVE 'a' TO 'NUL'", &["MOVE", "not a file"]),
        ("DATABASE old FROM DISK='/x' WITH MOVE 'a' TO '/b', MOVE 'a' TO '/c'", &["MOVE", "twice"]),
        ("LOG old FROM DISK='/x'", &["RESTORE LOG", "not documented"]),
        ("DATABASE old WITH RECOVERY", &["without FROM"]),
    ] {
        refused(&format!("RESTORE {options}"), words);
    }
}

#[test]
fn statements_on_a_sql_server_are_command_lines_of_the_driver_with_paths_of_the_server() {
    for (script, line) in [
        (
            "BACKUP DATABASE live TO DISK='D:\\Backup\\1.bak', DISK='\\\\nas\\2.bak' WITH INIT, FORMAT, COMPRESSION, \
             MAXTRANSFERSIZE=2097152, BUFFERCOUNT=1024, CHECKSUM, COPY_ONLY, NAME = N'x', STATS=10",
            "backup mssql://sa@db1/live --to server:D:\\Backup\\1.bak --to server:\\\\nas\\2.bak --init --compression on \
             --max-transfer-size 2097152 --buffer-count 1024 --copy-only --name x --experimental",
        ),
        (
            "BACKUP DATABASE live TO URL='s3://h:9000/b/k.bak' WITH DIFFERENTIAL, COMPRESSION (ALGORITHM = ZSTD, LEVEL = LOW)",
            "backup mssql://sa@db1/live --to s3://h:9000/b/k.bak --kind differential --compression zstd:low --experimental",
        ),
        ("BACKUP LOG live TO DISK='NUL'", "backup mssql://sa@db1/live --to nul: --kind log --experimental"),
        (
            "RESTORE DATABASE live FROM DISK='/a/f.bak' WITH REPLACE, NORECOVERY, MOVE 'live' TO 'E:\\live.mdf'; \
             RESTORE LOG live FROM DISK='/a/l.trn' WITH FILE = 3, STOPAT = '2026-11-26 03:00:00Z'",
            "restore --from server:/a/f.bak --replace --no-recovery --move live E:\\live.mdf --file 1 --into \
             mssql://sa@db1/live --experimental\n\
             restore --from server:/a/l.trn --file 3 --stop-at 2026-11-26T03:00:00Z --into mssql://sa@db1/live \
             --experimental --recovery",
        ),
        (
            "RESTORE DATABASE live FROM DISK='/a/f.bak' WITH STANDBY = N'/u/live.undo'; \
             RESTORE LOG live FROM DISK='/a/1.trn' WITH STANDBY = N'/u/live.undo', STOPBEFOREMARK = 'lsn:34000000018400037'; \
             RESTORE LOG live FROM DISK='/a/2.trn' WITH RECOVERY, STOPATMARK = 'end of day' AFTER '2026-11-26T03:00:00Z'",
            "restore --from server:/a/f.bak --standby /u/live.undo --file 1 --into mssql://sa@db1/live --experimental\n\
             restore --from server:/a/1.trn --standby /u/live.undo --stop-before-mark lsn:34000000018400037 --file 1 --into \
             mssql://sa@db1/live --experimental\n\
             restore --from server:/a/2.trn --stop-at-mark end of day --mark-after 2026-11-26T03:00:00Z --file 1 --into \
             mssql://sa@db1/live --experimental --recovery",
        ),
        ("RESTORE DATABASE live WITH RECOVERY", "restore --recovery --into mssql://sa@db1/live --experimental"),
        (
            "exec msdb.dbo.rds_backup_database @source_db_name='cloud', @number_of_files=2, @type='differential', \
             @s3_arn_to_backup_to='arn:aws:s3:::bucket/c*.bak', @overwrite_s3_backup_file=1",
            "backup mssql://sa@rds1/cloud?rds=true --to s3://bucket/c*.bak --stripes 2 --kind differential --init \
             --experimental",
        ),
        (
            "exec rds_restore_log @restore_db_name='cloud', @s3_arn_to_restore_from='arn:aws:s3:::bucket/l.trn', \
             @with_norecovery=1",
            "restore --from s3://bucket/l.trn --kind log --no-recovery --into mssql://sa@rds1/cloud?rds=true --experimental",
        ),
    ] {
        assert_eq!(lines(script).join("\n"), line);
    }
    for (script, words) in [
        ("BACKUP DATABASE live TO DISK='/a' MIRROR TO DISK='/b'", &["MIRROR TO", "SQL Server"][..]),
        (
            "BACKUP DATABASE live TO DISK='/a' WITH MEDIADESCRIPTION = 'x'",
            &["column 40: MEDIADESCRIPTION", "SQL Server"],
        ),
        ("BACKUP DATABASE live TO DISK='/a' WITH ENCRYPTION (ALGORITHM = AES_256)", &["ENCRYPTION"]),
        ("BACKUP DATABASE live TO DISK='s3://b/k'", &["s3://b/k", "write URL"]),
        ("BACKUP DATABASE live TO URL='/a'", &["/a", "not a URL"]),
        ("RESTORE LOG live FROM DISK='/a' WITH STOPAT = '2026-11-26 03:00:00'", &["STOPAT", "has no zone"]),
        ("RESTORE DATABASE live WITH STANDBY = '/u'", &["STANDBY"]),
        (
            "RESTORE LOG live FROM DISK='/a' WITH STOPATMARK = 'm' AFTER '2026-11-26 03:00:00'",
            &["STOPAT", "has no zone"],
        ),
        ("RESTORE LOG live FROM DISK='/a' WITH STOPATMARK = 'm', STOPBEFOREMARK = 'm'", &["STOPATMARK is given too"]),
        ("exec rds_finish_restore @db_name='live'", &["[live]", "rds=true"]),
        (
            "exec rds_restore_database @restore_db_name='cloud', @s3_arn_to_restore_from='arn:aws:s3:::b/k', @block_size=512",
            &["@block_size"],
        ),
    ] {
        refused(script, words);
    }
    let careful = Names { experimental: false, ..names() };
    let now = "2026-11-26T04:05:06+00:00[UTC]".parse().unwrap();
    let error = read_script("BACKUP DATABASE live TO DISK='/a'", &careful, now).unwrap_err().to_string();
    assert!(error.contains("[live]") && error.contains("--experimental"), "{error}");
}

proptest::proptest! {
    #[test]
    fn no_script_makes_the_reader_panic(script in "[A-Za-z@'\\[\\](),=;. \n0-9/*+-]{0,200}") {
        let _ = commands(&script);
    }

    #[test]
    fn no_order_of_known_words_makes_the_reader_panic(words in proptest::collection::vec(proptest::sample::select(vec![
        "BACKUP", "RESTORE", "DATABASE", "LOG", "shop", "TO", "FROM", "DISK", "=", "'x'", ",", "WITH", "INIT", "MOVE", "STATS",
        "COMPRESSION", "MIRROR", "MEDIANAME", "FILE", "old", "(", ")", "ALGORITHM", "GO", "\n", "DECLARE", "@a", "int", "SET", "EXEC", "rds_task_status", "+", "1",
    ]), 0..30)) {
        let _ = commands(&words.join(" "));
    }
}
