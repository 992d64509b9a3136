//! Sessions against a stub in the place of a SQL Server: the statements that it hears, and what its answers become.

use std::io::Write;
use std::time::Duration;

use fullbore_core::halt::Halt;
use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};
use fullbore_test_servers::sql_server::{Database, PASSWORD, SqlServerStub};

use super::RDS;
use super::link::Limits;
use super::session::Session;
use crate::Options;
use crate::engine::{
    BackupOrder, GivenOptions, OptionValue, PASSWORD_FILE, RestoreOrder, RestoreStep, Seen, ServerOutcome,
    ServerSession,
};

mod chains;
mod marks;

const CHECKED: &str = "WITH CHECKSUM, NOFORMAT, NOINIT, STATS = 10";

fn options(password: &str) -> (tempfile::NamedTempFile, Options) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{password}").unwrap();
    let given = GivenOptions::default().with_value(&PASSWORD_FILE, OptionValue::File(file.path().into()));
    (file, Options { given, halt: Some(Halt::new()), ..Options::default() })
}

fn session(stub: &SqlServerStub, database: &str) -> Session {
    let (_file, options) = options(PASSWORD);
    Session::open(&stub.url(database), &options).unwrap()
}

fn rds(stub: &SqlServerStub) -> Session {
    let (_file, mut options) = options(PASSWORD);
    options.given = options.given.with(&RDS);
    Session::open(&stub.url("shop"), &options).unwrap()
}

fn order(to: &[&str]) -> BackupOrder {
    BackupOrder::new(SetKind::Full, to.iter().map(ToString::to_string).collect())
}

fn from(places: &[&str]) -> RestoreOrder {
    RestoreOrder { from: places.iter().map(ToString::to_string).collect(), stats: 10, ..RestoreOrder::default() }
}

fn quiet(_: &Seen) -> Result<()> {
    Ok(())
}

fn back_up(stub: &SqlServerStub, order: &BackupOrder) -> Result<ServerOutcome> {
    session(stub, "shop").backup(order, &mut quiet)
}

fn restore(stub: &SqlServerStub, database: &str, order: &RestoreOrder) -> Result<ServerOutcome> {
    session(stub, database).restore(order, &mut quiet)
}

/// The error, which holds all of these texts and never the password.
#[track_caller]
fn refused<T>(result: Result<T>, texts: &[&str]) -> Error {
    let Err(error) = result else { panic!("it was done, instead of: {texts:?}") };
    let all = format!("{error} {error:?}");
    assert!(texts.iter().all(|text| all.contains(text)), "{texts:?}: {all}");
    assert!(!all.contains(PASSWORD), "{all}");
    error
}

#[test]
fn a_full_goes_to_a_file_and_the_history_says_its_sizes_and_lsns() {
    let stub = SqlServerStub::start();
    let mut percents = Vec::new();
    let outcome = session(&stub, "shop")
        .backup(&order(&["server:/backup/shop.bak"]), &mut |seen| {
            percents.push((seen.percent, seen.total_bytes));
            Ok(())
        })
        .unwrap();
    let statement = format!("BACKUP DATABASE [shop] TO DISK = N'/backup/shop.bak' {CHECKED}");
    assert_eq!(stub.batches("BACKUP").concat(), statement);
    assert_eq!(outcome.statements, ["SET LOCK_TIMEOUT -1".to_owned(), statement]);
    assert_eq!((outcome.set.bytes, outcome.set.stored_bytes), (100 << 20, 25 << 20));
    assert_eq!(outcome.set.kind, Some(SetKind::Full));
    assert!(outcome.set.backup_set_id.as_ref().is_some_and(|id| id.len() == 36) && outcome.set.media_set_id.is_some());
    assert_eq!(outcome.set.first["lsn"], "34000000018400037");
    assert_eq!(
        (&outcome.set.checkpoint["lsn"], &outcome.set.last["lsn"]),
        (&"34000000018400038".into(), &"34000000018400039".into())
    );
    assert_eq!(outcome.files[0].place, "server:/backup/shop.bak");
    assert_eq!((outcome.run.as_deref(), outcome.set.has_checksums), (Some("session 51"), Some(true)));
    assert_eq!(outcome.server, "SQL Server 16.0.4135.4, Stub Edition (64-bit)");
    assert!(outcome.warnings.is_empty() && outcome.notes.is_empty(), "{outcome:?}");
    assert!(percents.iter().is_sorted_by(|one, next| one.0 <= next.0), "{percents:?}");
    assert!(percents.iter().any(|(percent, _)| (1.0..100.0).contains(percent)), "{percents:?}");
    assert_eq!(percents.last(), Some(&(100.0, 200 << 20)));
}

#[test]
fn a_differential_a_log_several_files_and_an_object_have_their_words() {
    let stub = SqlServerStub::start();
    let differential = BackupOrder { kind: SetKind::Differential, ..order(&["server:/a/1.bak", "server:/b/2.bak"]) };
    let outcome = back_up(&stub, &differential).unwrap();
    assert_eq!((outcome.set.kind, outcome.files.len()), (Some(SetKind::Differential), 2));
    let log = BackupOrder { kind: SetKind::Log, lock_timeout_ms: Some(10_000), ..order(&["server:/a/shop.trn"]) };
    assert_eq!(back_up(&stub, &log).unwrap().set.kind, Some(SetKind::Log));
    stub.with(|model| model.credentials.push("s3://store:9000/bucket".into()));
    let object = BackupOrder {
        transfer_size: Some(20 << 20),
        compression: Some("on".into()),
        ..order(&["s3://store:9000/bucket/shop.bak"])
    };
    assert_eq!(back_up(&stub, &object).unwrap().set.bytes, 100 << 20);
    assert_eq!(
        stub.batches("BACKUP"),
        [
            "BACKUP DATABASE [shop] TO DISK = N'/a/1.bak', DISK = N'/b/2.bak' WITH CHECKSUM, DIFFERENTIAL, NOFORMAT, \
             NOINIT, STATS = 10",
            "BACKUP LOG [shop] TO DISK = N'/a/shop.trn' WITH CHECKSUM, NOFORMAT, NOINIT, STATS = 10",
            "BACKUP DATABASE [shop] TO URL = N's3://store:9000/bucket/shop.bak' WITH CHECKSUM, COMPRESSION, \
             MAXTRANSFERSIZE = 20971520, NOFORMAT, STATS = 10",
        ]
    );
    assert!(stub.batches("SET").contains(&"SET LOCK_TIMEOUT 10000".to_owned()));
}

#[test]
fn names_and_paths_with_quotes_reach_the_server_as_they_are() {
    let stub = SqlServerStub::start();
    let database = "it's]; DROP DATABASE [shop";
    stub.with(|model| model.databases.insert(database.into(), Database::default()));
    let url = stub.url("it%27s%5D;%20DROP%20DATABASE%20%5Bshop");
    let (_file, options) = options(PASSWORD);
    let mut session = Session::open(&url, &options).unwrap();
    session.backup(&order(&["server:/a/'; DROP DATABASE [shop]; --.bak"]), &mut quiet).unwrap();
    assert_eq!(
        stub.batches("BACKUP"),
        [format!(
            "BACKUP DATABASE [it's]]; DROP DATABASE [shop] TO DISK = N'/a/''; DROP DATABASE [shop]; --.bak' {CHECKED}"
        )]
    );
    stub.with(|model| {
        let stored = model.files.get("/a/'; DROP DATABASE [shop]; --.bak").unwrap();
        assert_eq!(stored.sets[0].database, database);
    });
}

#[test]
fn without_init_a_file_that_exists_is_neither_overwritten_nor_appended_to() {
    let stub = SqlServerStub::start();
    let file = order(&["server:/a.bak"]);
    back_up(&stub, &file).unwrap();
    let error = refused(back_up(&stub, &file), &["server:/a.bak", "holds a backup already", "--init"]);
    assert_eq!(error.exit_kind().exit_code(), 1);
    let init = BackupOrder { init: true, ..file.clone() };
    back_up(&stub, &init).unwrap();
    assert_eq!(stub.batches("BACKUP").len(), 2);
    assert!(stub.batches("BACKUP")[1].contains("FORMAT, INIT, STATS"));
    // A new file needs no FORMAT, also with --init.
    back_up(&stub, &BackupOrder { init: true, ..order(&["server:/new.bak"]) }).unwrap();
    assert!(stub.batches("BACKUP")[2].contains("NOFORMAT, NOINIT"));
}

#[test]
fn init_replaces_backups_of_the_same_database_only() {
    let stub = SqlServerStub::start();
    stub.with(|model| {
        model.store("other", "D", &["/other.bak".into()], true);
        model.store("shop", "D", &["/kept.bak".into()], true);
        model.files.get_mut("/kept.bak").unwrap().sets[0].expires = Some((80_000, 0));
        model.others.insert("/letter.doc".into());
    });
    for (place, texts) in [
        ("server:/other.bak", ["another database", "`other`"]),
        ("server:/kept.bak", ["protected", "2119-"]),
        ("server:/letter.doc", ["not a backup", "--init replaces only"]),
    ] {
        refused(back_up(&stub, &BackupOrder { init: true, ..order(&[place]) }), &texts);
    }
    assert!(stub.batches("BACKUP").is_empty());
}

#[test]
fn what_the_server_refuses_is_an_error_with_its_number_and_the_next_step() {
    let stub = SqlServerStub::start();
    refused(back_up(&stub, &order(&["s3://store/bucket/shop.bak"])), &["3201", "error 50(", "CREDENTIAL"]);
    refused(back_up(&stub, &order(&["server:/missing/shop.bak"])), &["3201", "error 3(", "directory does not exist"]);
    let missing =
        refused(session(&stub, "shpo").backup(&order(&["server:/a.bak"]), &mut quiet), &["shpo", "no such database"]);
    assert_eq!(missing.exit_kind().exit_code(), 2);
    stub.with(|model| model.faults.error = Some((3202, "Write on \"/a.bak\" failed: 112(no space)".into())));
    refused(back_up(&stub, &order(&["server:/a.bak"])), &["3202", "room"]);
    stub.with(|model| model.databases.get_mut("shop").unwrap().recovery_model = "SIMPLE".into());
    refused(back_up(&stub, &BackupOrder { kind: SetKind::Log, ..order(&["server:/a.trn"]) }), &["SIMPLE"]);
    let (_file, wrong) = options("wr0ng-passw0rd");
    let error = refused(Session::open(&stub.url("shop"), &wrong).map(drop), &["18456", "--password-file"]);
    assert!(!format!("{error} {error:?}").contains("wr0ng"), "{error}");
}

#[test]
fn a_full_to_nowhere_needs_copy_only_and_a_differential_takes_none() {
    let stub = SqlServerStub::start();
    refused(back_up(&stub, &order(&["nul:"])), &["--copy-only"]);
    let differential = BackupOrder { kind: SetKind::Differential, copy_only: true, ..order(&["server:/a.bak"]) };
    refused(back_up(&stub, &differential), &["--copy-only", "no effect"]);
    back_up(&stub, &BackupOrder { copy_only: true, ..order(&["nul:"]) }).unwrap();
    assert!(stub.batches("BACKUP")[0].contains("TO DISK = N'NUL' WITH CHECKSUM, COPY_ONLY"));
}

#[test]
fn an_error_of_the_watcher_kills_the_session_and_is_the_result() {
    let stub = SqlServerStub::start();
    stub.with(|model| model.faults.stands_at = Some(40));
    let ended = session(&stub, "shop").backup(&order(&["server:/a.bak"]), &mut |seen| match seen.percent {
        40.0 => Err(Error::Cancelled { by: "fullbore cancel" }),
        _ => Ok(()),
    });
    assert!(matches!(ended, Err(Error::Cancelled { by: "fullbore cancel" })), "{ended:?}");
    assert_eq!(stub.batches("KILL"), ["KILL 51"]);
    stub.with(|model| assert!(model.files.is_empty() && model.running.is_empty()));
}

#[test]
fn a_login_that_may_not_kill_ends_the_run_with_its_connection() {
    let stub = SqlServerStub::start();
    stub.with(|model| {
        model.faults.stands_at = Some(40);
        model.faults.refuses_kill = true;
    });
    let ended = session(&stub, "shop").backup(&order(&["server:/a.bak"]), &mut |seen| match seen.percent {
        40.0 => Err(Error::Cancelled { by: "SIGINT" }),
        _ => Ok(()),
    });
    assert!(matches!(ended, Err(Error::Cancelled { .. })), "{ended:?}");
}

#[test]
fn a_login_that_may_not_see_the_progress_gets_a_note_and_its_backup() {
    let stub = SqlServerStub::start();
    stub.with(|model| model.faults.hides_progress = true);
    let outcome = back_up(&stub, &order(&["server:/a.bak"])).unwrap();
    assert!(outcome.notes[0].contains("VIEW SERVER STATE") && outcome.notes.len() == 1, "{:?}", outcome.notes);
    assert_eq!(outcome.set.bytes, 100 << 20);
    stub.with(|model| {
        model.faults.hides_progress = false;
        model.faults.sees_itself_only = true;
        model.faults.tenth = Duration::from_millis(100);
    });
    let outcome = back_up(&stub, &order(&["server:/b.bak"])).unwrap();
    assert!(outcome.notes[0].contains("sees no other session"), "{:?}", outcome.notes);
}

#[test]
fn a_server_that_goes_away_is_an_error_that_says_where_to_look() {
    let stub = SqlServerStub::start();
    stub.with(|model| model.faults.gone_at = Some(50));
    refused(back_up(&stub, &order(&["server:/a.bak"])), &["msdb.dbo.backupset", "may have finished"]);
    let gone = Session::open("mssql://sa@127.0.0.1:1/shop?encrypt=never", &options(PASSWORD).1).map(drop);
    assert!(gone.is_err());
}

#[test]
fn a_history_without_the_backup_is_a_warning() {
    let stub = SqlServerStub::start();
    stub.with(|model| model.faults.forgets = true);
    let outcome = back_up(&stub, &order(&["server:/a.bak"])).unwrap();
    assert!(outcome.warnings[0].contains("the backup is done"), "{outcome:?}");
    assert_eq!((outcome.set.bytes, outcome.set.kind), (0, Some(SetKind::Full)));
}

#[test]
fn a_server_without_tls_is_refused_unless_the_url_allows_it() {
    let stub = SqlServerStub::start();
    let url = stub.url("shop").replace("?encrypt=never", "");
    refused(Session::open(&url, &options(PASSWORD).1).map(drop), &["encryption"]);
}

#[test]
fn a_server_with_tls_is_known_by_its_certificate() {
    let stub = SqlServerStub::start_with_tls();
    assert_eq!(back_up(&stub, &order(&["server:/a.bak"])).unwrap().set.bytes, 100 << 20);
    let (url, _) =
        stub.url("shop").split_once('?').map(|(url, authority)| (url.to_owned(), authority.to_owned())).unwrap();
    let (_file, options) = options(PASSWORD);
    refused(Session::open(&url, &options).map(drop), &["certificate", "certificate-authority="]);
    refused(Session::open(&format!("{url}?encrypt=never"), &options).map(drop), &[]);
    let trusting = Session::open(&format!("{url}?trust-server-certificate=true"), &options);
    assert_eq!(trusting.unwrap().database(), "shop");
}

#[test]
fn a_plan_asks_and_changes_nothing() {
    let stub = SqlServerStub::start();
    let outcome = session(&stub, "shop").plan_backup(&order(&["server:/a.bak"])).unwrap();
    assert!(outcome.statements[1].starts_with("BACKUP DATABASE [shop]"));
    stub.with(|model| model.store("shop", "D", &["/a.bak".into()], true));
    let restore = session(&stub, "copy").plan_restore(&from(&["server:/a.bak"])).unwrap();
    assert!(restore.statements[0].starts_with("RESTORE DATABASE [copy]"));
    assert!(stub.batches("BACKUP").is_empty() && stub.batches("RESTORE DATABASE").is_empty());
}

#[test]
fn a_restore_takes_full_differential_and_log_in_steps_to_a_time() {
    let stub = SqlServerStub::start();
    stub.with(|model| {
        model.store("shop", "D", &["/1.bak".into(), "/2.bak".into()], true);
        model.store("shop", "I", &["/diff.bak".into()], true);
        model.store("shop", "L", &["/shop.trn".into()], true);
    });
    let later = |places: &[&str]| RestoreOrder { step: RestoreStep::NoRecovery, ..from(places) };
    // The families in any order.
    let outcome = restore(&stub, "copy", &later(&["server:/2.bak", "server:/1.bak"])).unwrap();
    assert_eq!((outcome.set.bytes, outcome.set.stored_bytes), (100 << 20, 25 << 20));
    assert_eq!(outcome.set.first["lsn"], "34000000018400037");
    assert_eq!(outcome.set.started_at.as_deref(), Some("2026-11-26T01:00:00.000"));
    stub.with(|model| assert_eq!(model.databases["copy"].state, "RESTORING"));
    restore(&stub, "copy", &later(&["server:/diff.bak"])).unwrap();
    let moment: jiff::Timestamp = "2026-11-26T08:30:00Z".parse().unwrap();
    let log = RestoreOrder { stop_at: Some(moment.as_microsecond()), ..from(&["server:/shop.trn"]) };
    let ended = restore(&stub, "copy", &log).unwrap();
    assert!(ended.notes[0].contains("2026-11-26T09:30:00.000 by the clock of the server"), "{:?}", ended.notes);
    stub.with(|model| assert_eq!(model.databases["copy"].state, "ONLINE"));
    let ran: Vec<String> = stub.batches("RESTORE").into_iter().filter(|batch| !batch.contains("ONLY FROM")).collect();
    assert_eq!(
        ran,
        [
            "RESTORE DATABASE [copy] FROM DISK = N'/1.bak', DISK = N'/2.bak' WITH FILE = 1, NORECOVERY, STATS = 10",
            "RESTORE DATABASE [copy] FROM DISK = N'/diff.bak' WITH FILE = 1, NORECOVERY, STATS = 10",
            "RESTORE LOG [copy] FROM DISK = N'/shop.trn' WITH FILE = 1, RECOVERY, STOPAT = N'2026-11-26T09:30:00.000', \
             STATS = 10",
        ]
    );
}

#[test]
fn a_restore_over_a_database_needs_replace_and_a_later_step_needs_a_restoring_one() {
    let stub = SqlServerStub::start();
    stub.with(|model| {
        model.store("shop", "D", &["/full.bak".into()], true);
        model.store("shop", "L", &["/shop.trn".into()], true);
    });
    let full = from(&["server:/full.bak"]);
    refused(restore(&stub, "shop", &full), &["exists (state ONLINE)", "--replace"]);
    let log = from(&["server:/shop.trn"]);
    refused(restore(&stub, "shop", &log), &["not restoring (state ONLINE)", "--no-recovery"]);
    refused(restore(&stub, "copy", &log), &["no such database"]);
    refused(restore(&stub, "shop", &RestoreOrder { replace: true, ..log }), &["--replace", "for a full"]);
    assert!(stub.batches("RESTORE DATABASE").is_empty() && stub.batches("RESTORE LOG").is_empty());
    restore(&stub, "shop", &RestoreOrder { replace: true, ..full.clone() }).unwrap();
    assert!(stub.batches("RESTORE DATABASE")[0].contains("WITH FILE = 1, REPLACE, RECOVERY"));
    let moved = RestoreOrder { moves: vec![("shop".into(), "/data/copy.mdf".into())], ..full };
    restore(&stub, "copy", &moved).unwrap();
    assert!(stub.batches("RESTORE DATABASE")[1].contains("MOVE N'shop' TO N'/data/copy.mdf'"));
}

#[test]
fn a_restore_names_a_missing_family_strange_files_and_several_sets() {
    let stub = SqlServerStub::start();
    stub.with(|model| {
        model.store("shop", "D", &["/1.bak".into(), "/2.bak".into()], true);
        model.store("shop", "D", &["/one.bak".into()], true);
        model.store("shop", "D", &["/one.bak".into()], false);
        model.store("shop", "F", &["/part.bak".into()], true);
    });
    refused(restore(&stub, "copy", &from(&["server:/2.bak"])), &["family 1 of 2 is missing"]);
    refused(restore(&stub, "copy", &from(&["server:/1.bak", "server:/one.bak"])), &["family 2 of 2 is missing"]);
    refused(restore(&stub, "copy", &from(&["server:/1.bak", "server:/1.bak"])), &["is family 1, as"]);
    refused(restore(&stub, "copy", &from(&["server:/part.bak"])), &["single files"]);
    refused(restore(&stub, "copy", &from(&["server:/none.bak"])), &["3201", "error 2("]);
    let two = from(&["server:/one.bak"]);
    refused(restore(&stub, "copy", &two), &["2 sets", "--set ID"]);
    refused(
        restore(&stub, "copy", &RestoreOrder { set: Some("ffff".into()), ..two.clone() }),
        &["no set there has this id"],
    );
    refused(restore(&stub, "copy", &RestoreOrder { position: Some(3), ..two.clone() }), &["no set is at position 3"]);
    restore(&stub, "first", &RestoreOrder { position: Some(1), ..two.clone() }).unwrap();
    restore(&stub, "copy", &RestoreOrder { latest: true, ..two.clone() }).unwrap();
    let id = stub.with(|model| model.files["/one.bak"].sets[0].id.clone());
    restore(&stub, "copy2", &RestoreOrder { set: Some(id.to_lowercase()), ..two }).unwrap();
    let ran = stub.batches("RESTORE DATABASE");
    assert!(ran[0].contains("FILE = 1") && ran[1].contains("FILE = 2") && ran[2].contains("FILE = 1"), "{ran:?}");
}

#[test]
fn a_recovery_without_files_opens_a_restoring_database() {
    let stub = SqlServerStub::start();
    let recovery = RestoreOrder { stats: 10, ..RestoreOrder::default() };
    refused(restore(&stub, "shop", &recovery), &["is not restoring", "ONLINE"]);
    refused(restore(&stub, "none", &recovery), &["no such database"]);
    stub.with(|model| model.databases.get_mut("shop").unwrap().state = "RESTORING".into());
    restore(&stub, "shop", &recovery).unwrap();
    assert_eq!(stub.batches("RESTORE"), ["RESTORE DATABASE [shop] WITH RECOVERY"]);
}

#[test]
fn a_backup_of_rds_is_a_task_that_is_followed_to_its_end() {
    let stub = SqlServerStub::start();
    let mut percents = Vec::new();
    let rds_order = BackupOrder {
        transfer_size: Some(4 << 20),
        buffer_count: Some(10),
        block_size: Some(65_536),
        stripes: Some(2),
        ..order(&["s3://bucket/shop-*.bak"])
    };
    let outcome = rds(&stub)
        .backup(&rds_order, &mut |seen| {
            percents.push(seen.percent);
            Ok(())
        })
        .unwrap();
    let call = "EXEC msdb.dbo.rds_backup_database @source_db_name = N'shop', @s3_arn_to_backup_to = \
                N'arn:aws:s3:::bucket/shop-*.bak', @overwrite_s3_backup_file = 0, @type = N'FULL', @number_of_files = 2, \
                @block_size = 65536, @max_transfer_size = 4194304, @buffer_count = 10";
    assert_eq!(stub.batches("EXEC msdb.dbo.rds_backup"), [call]);
    assert_eq!(
        stub.batches("EXEC msdb.dbo.rds_task_status")[0],
        "EXEC msdb.dbo.rds_task_status @db_name = N'shop', @task_id = 1"
    );
    assert_eq!((outcome.run.as_deref(), outcome.statements), (Some("rds task 1"), vec![call.to_owned()]));
    assert_eq!(outcome.set.bytes, 100 << 20);
    assert!([30.0, 60.0].iter().all(|step| percents.contains(step)) && percents.last() == Some(&100.0), "{percents:?}");
}

#[test]
fn a_task_of_rds_that_fails_or_is_cancelled_is_an_error() {
    let stub = SqlServerStub::start();
    stub.with(|model| model.faults.task_ends = Some("ERROR"));
    let object = order(&["s3://bucket/shop.bak"]);
    refused(rds(&stub).backup(&object, &mut quiet), &["task 1 of RDS failed", "Access Denied"]);
    stub.with(|model| model.faults.task_ends = Some("CANCELLED"));
    refused(rds(&stub).backup(&object, &mut quiet), &["task 2 of RDS was cancelled there"]);
    stub.with(|model| model.faults.task_ends = Some("NEW_STATE"));
    refused(rds(&stub).backup(&object, &mut quiet), &["NEW_STATE"]);
    stub.with(|model| model.faults.task_ends = None);
    let ended = rds(&stub).backup(&object, &mut |seen| match seen.percent {
        60.0 => Err(Error::Cancelled { by: "fullbore cancel" }),
        _ => Ok(()),
    });
    assert!(matches!(ended, Err(Error::Cancelled { .. })), "{ended:?}");
    assert_eq!(stub.batches("EXEC msdb.dbo.rds_cancel"), ["EXEC msdb.dbo.rds_cancel_task @task_id = 4"]);
    stub.with(|model| assert!(model.files.is_empty() && model.history.is_empty()));
}

#[test]
fn a_restore_of_rds_has_its_own_words_and_refuses_what_rds_lacks() {
    let stub = SqlServerStub::start();
    let object = from(&["s3://bucket/shop.bak"]);
    refused(rds(&stub).restore(&object, &mut quiet), &["exists (state ONLINE)", "drop it first"]);
    refused(rds(&stub).restore(&RestoreOrder { replace: true, ..object.clone() }, &mut quiet), &["--replace"]);
    refused(
        rds(&stub).backup(&BackupOrder { kind: SetKind::Log, ..order(&["s3://bucket/a"]) }, &mut quiet),
        &["--kind log"],
    );
    refused(
        rds(&stub).backup(&BackupOrder { compression: Some("on".into()), ..order(&["s3://bucket/a"]) }, &mut quiet),
        &["rds_set_configuration"],
    );
    stub.with(|model| model.databases.remove("shop"));
    let later = RestoreOrder { step: RestoreStep::NoRecovery, ..object.clone() };
    rds(&stub).restore(&later, &mut quiet).unwrap();
    stub.with(|model| model.databases.get_mut("shop").unwrap().state = "RESTORING".into());
    let moment: jiff::Timestamp = "2026-11-26T08:30:00Z".parse().unwrap();
    let log = RestoreOrder { kind: Some(SetKind::Log), stop_at: Some(moment.as_microsecond()), ..object };
    rds(&stub).restore(&log, &mut quiet).unwrap();
    stub.with(|model| model.databases.get_mut("shop").unwrap().state = "RESTORING".into());
    rds(&stub).restore(&RestoreOrder::default(), &mut quiet).unwrap();
    let calls: Vec<String> =
        stub.batches("EXEC").into_iter().filter(|batch| !batch.contains("rds_task_status")).collect();
    assert_eq!(
        calls,
        [
            "EXEC msdb.dbo.rds_restore_database @restore_db_name = N'shop', @s3_arn_to_restore_from = \
             N'arn:aws:s3:::bucket/shop.bak', @with_norecovery = 1, @type = N'FULL'",
            "EXEC msdb.dbo.rds_restore_log @restore_db_name = N'shop', @s3_arn_to_restore_from = \
             N'arn:aws:s3:::bucket/shop.bak', @with_norecovery = 0, @stopat = N'2026-11-26T09:30:00.000'",
            "EXEC msdb.dbo.rds_finish_restore @db_name = N'shop'",
        ]
    );
}

#[test]
fn the_history_gives_earlier_backups_of_the_same_kind_only() {
    let stub = SqlServerStub::start();
    stub.with(|model| {
        for kind in ["D", "L", "D"] {
            model.store("shop", kind, &["/x.bak".into()], true);
        }
        model.store("other", "D", &["/y.bak".into()], true);
    });
    let (earlier, bytes) = session(&stub, "shop").history(&order(&["server:/a.bak"])).unwrap();
    assert_eq!((earlier.len(), bytes), (2, 200 << 20));
    assert_eq!((earlier[0].bytes, earlier[0].seconds, earlier[0].files), (100 << 20, 10.0, 1));
}

#[test]
fn a_halt_ends_a_run_that_is_watched() {
    let stub = SqlServerStub::start();
    stub.with(|model| model.faults.stands_at = Some(20));
    let (_file, options) = options(PASSWORD);
    let halt = options.halt.clone().unwrap();
    let mut session = Session::open(&stub.url("shop"), &options).unwrap();
    let stop = halt.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        stop.stop(Error::Cancelled { by: "SIGTERM" });
    });
    let ended = session.backup(&order(&["server:/a.bak"]), &mut |_| halt.check());
    assert!(matches!(ended, Err(Error::Halted)), "{ended:?}");
    assert_eq!(stub.batches("KILL").len(), 1);
}

/// A session with short limits.
fn impatient(stub: &SqlServerStub) -> Session {
    let mut session = session(stub, "shop");
    session.link.limits = Limits {
        question: Duration::from_secs(1),
        look: Duration::from_millis(200),
        silent: Duration::from_millis(500),
        ends: Duration::from_secs(1),
    };
    session
}

#[test]
fn a_server_that_is_silent_on_both_connections_ends_the_run() {
    for hides_progress in [false, true] {
        let stub = SqlServerStub::start();
        stub.with(|model| {
            model.faults.hides_progress = hides_progress;
            model.faults.tenth = Duration::from_millis(100);
            model.faults.silent_at = Some(50);
        });
        let ended = impatient(&stub).backup(&order(&["server:/a.bak"]), &mut quiet);
        refused(ended, &["no answer", "may continue on the server", "msdb.dbo.backupset"]);
    }
}

#[test]
fn a_run_that_the_server_does_not_know_any_more_is_an_error() {
    let stub = SqlServerStub::start();
    stub.with(|model| {
        model.faults.tenth = Duration::from_millis(100);
        model.faults.vanishes_at = Some(50);
    });
    refused(impatient(&stub).backup(&order(&["server:/a.bak"]), &mut quiet), &["no longer shows the run"]);
}

#[test]
fn a_statement_must_say_that_it_ended_without_an_error() {
    let stub = SqlServerStub::start();
    for (ends_with, text) in [(None, "does not say that the statement ended"), (Some(3041), "ended with error 3041")] {
        stub.with(|model| {
            model.files.clear();
            model.faults.ends_with = ends_with;
        });
        refused(back_up(&stub, &order(&["server:/a.bak"])), &[text, "may have finished"]);
    }
    stub.with(|model| model.store("shop", "D", &["/full.bak".into()], true));
    refused(restore(&stub, "copy", &from(&["server:/full.bak"])), &["3041", "may be restoring"]);
}

#[test]
fn an_answer_without_an_end_takes_no_memory_without_an_end() {
    let stub = SqlServerStub::start();
    // nvarchar(max) in pieces of 64 KiB, more than 16 MiB.
    let mut bytes = vec![0x81, 1, 0, 0, 0, 0, 0, 1, 0, 0xe7, 0xff, 0xff, 9, 4, 0xd0, 0, 0x34, 1, b'a', 0, 0xd1];
    bytes.extend(0xffff_ffff_ffff_fffe_u64.to_le_bytes());
    for _ in 0..300 {
        bytes.extend(65_536_u32.to_le_bytes());
        bytes.extend([b'A', 0].repeat(32_768));
    }
    stub.with(|model| model.faults.label = Some(bytes));
    refused(back_up(&stub, &order(&["server:/a.bak"])), &["more than 16 MiB"]);
    let columns = [[0_u8, 0, 0, 0, 1, 0, 0x26, 8, 1, b'a', 0]; 2000].concat();
    stub.with(|model| model.faults.label = Some([&[0x81, 0xd0, 7], &columns[..]].concat()));
    refused(back_up(&stub, &order(&["server:/a.bak"])), &["2000 columns"]);
}

#[test]
fn a_job_that_ends_while_rds_starts_a_task_cancels_the_task() {
    let stub = SqlServerStub::start();
    stub.with(|model| model.faults.starts_after = Duration::from_millis(800));
    let (_file, mut options) = options(PASSWORD);
    options.given = options.given.with(&RDS);
    let halt = options.halt.clone().unwrap();
    let mut session = Session::open(&stub.url("shop"), &options).unwrap();
    let stop = halt.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        stop.stop(Error::Cancelled { by: "SIGINT" });
    });
    let ended = session.backup(&order(&["s3://bucket/shop.bak"]), &mut |_| halt.check());
    assert!(matches!(ended, Err(Error::Halted)), "{ended:?}");
    assert_eq!(stub.batches("EXEC msdb.dbo.rds_cancel"), ["EXEC msdb.dbo.rds_cancel_task @task_id = 1"]);
    stub.with(|model| assert!(model.files.is_empty() && model.tasks.len() == 1));
    // A job that has ended before starts no task.
    refused(session.backup(&order(&["s3://bucket/shop.bak"]), &mut |_| halt.check()), &[]);
    stub.with(|model| assert_eq!(model.tasks.len(), 1));
}

#[test]
fn a_start_of_rds_without_an_answer_says_that_a_task_may_run() {
    let stub = SqlServerStub::start();
    stub.with(|model| model.faults.starts_silently = true);
    let mut session = rds(&stub);
    session.link.limits.question = Duration::from_millis(300);
    let error = refused(
        session.backup(&order(&["s3://bucket/shop.bak"]), &mut quiet),
        &["the task may run", "EXEC msdb.dbo.rds_task_status @db_name = N'shop'", "rds_cancel_task"],
    );
    assert_eq!(error.exit_kind().exit_code(), 1);
}

#[test]
fn a_recovery_without_files_refuses_each_flag_of_files_by_its_name() {
    let stub = SqlServerStub::start();
    stub.with(|model| model.databases.get_mut("shop").unwrap().state = "RESTORING".into());
    let plain = || RestoreOrder { stats: 10, ..RestoreOrder::default() };
    for (flag, order) in [
        ("--stop-at", RestoreOrder { stop_at: Some(1), ..plain() }),
        ("--stop-at-mark", RestoreOrder { stop_mark: Some(marks::mark("m", false)), ..plain() }),
        ("--standby", RestoreOrder { standby: Some("/u".into()), ..plain() }),
        ("--move", RestoreOrder { moves: vec![("a".into(), "/a".into())], ..plain() }),
        ("--set", RestoreOrder { set: Some("ab".into()), ..plain() }),
        ("--latest", RestoreOrder { latest: true, ..plain() }),
        ("--file", RestoreOrder { position: Some(1), ..plain() }),
        ("--kind", RestoreOrder { kind: Some(SetKind::Log), ..plain() }),
        ("--replace", RestoreOrder { replace: true, ..plain() }),
        ("--no-recovery", RestoreOrder { step: RestoreStep::NoRecovery, ..plain() }),
        ("--continue-after-error", RestoreOrder { continue_after_error: true, ..plain() }),
        ("--buffer-count", RestoreOrder { buffer_count: Some(4), ..plain() }),
    ] {
        let error = refused(restore(&stub, "shop", &order), &[flag]);
        assert_eq!(error.exit_kind().exit_code(), 2, "{flag}");
        refused(rds(&stub).restore(&order, &mut quiet), &[flag]);
    }
    assert!(stub.batches("RESTORE").is_empty() && stub.batches("EXEC").is_empty());
}

#[test]
fn init_formats_only_if_every_place_is_known() {
    let stub = SqlServerStub::start();
    let missing = |path: &str| format!("Cannot open backup device '{path}'. Operating system error 12175(x).");
    let (mine, other) = ("s3://h/b/mine.bak", "s3://h/b/other.bak");
    stub.with(|model| {
        model.credentials.push("s3://h/b".into());
        model.store("shop", "D", &[mine.into()], true);
        model.faults.label_error = Some((other.into(), missing(other)));
        model.store("SHOP", "D", &["/case.bak".into()], true);
        model.store("shop", "D", &["/far.bak".into()], true);
        model.files.get_mut("/far.bak").unwrap().sets[0].server = "OTHERHOST".into();
        model.store("shop", "D", &["/empty.bak".into()], true);
        model.files.get_mut("/empty.bak").unwrap().sets.clear();
    });
    let init = |places: &[&str]| BackupOrder { init: true, ..order(places) };
    for places in [&[mine, other][..], &[other]] {
        refused(back_up(&stub, &init(places)), &[other, "12175", "--init"]);
    }
    refused(back_up(&stub, &init(&["server:/case.bak"])), &["another database: `SHOP`"]);
    refused(back_up(&stub, &init(&["server:/far.bak"])), &["another server: `OTHERHOST`"]);
    refused(back_up(&stub, &init(&["server:/empty.bak"])), &["shows no set"]);
    assert!(stub.batches("BACKUP").is_empty());
    // A free place beside one with a backup of this database.
    back_up(&stub, &init(&[mine, "s3://h/b/new.bak"])).unwrap();
    assert!(stub.batches("BACKUP")[0].contains(", FORMAT,"), "{:?}", stub.batches("BACKUP"));
}

#[test]
fn words_of_an_error_in_a_path_do_not_make_a_file_missing() {
    let stub = SqlServerStub::start();
    let path = "/backup/error 2(x)/a.bak";
    let text =
        format!("Cannot open backup device '{path}'. Operating system error 32(It is used by another process.).");
    stub.with(|model| model.faults.label_error = Some((path.into(), text)));
    refused(back_up(&stub, &order(&[&format!("server:{path}")])), &["error 32("]);
    assert!(stub.batches("BACKUP").is_empty());
}

#[test]
fn a_restore_that_leaves_another_state_than_it_should_is_an_error() {
    let stub = SqlServerStub::start();
    stub.with(|model| {
        model.store("shop", "D", &["/full.bak".into()], true);
        model.store("shop", "L", &["/shop.trn".into()], true);
        model.databases.insert("copy".into(), Database { state: "RESTORING".into(), ..Database::default() });
        model.faults.stays_restoring = true;
    });
    let log = RestoreOrder { stop_at: Some(1_795_000_000_000_000), ..from(&["server:/shop.trn"]) };
    refused(restore(&stub, "copy", &log), &["is RESTORING, and not ONLINE", "end of this log"]);
    refused(restore(&stub, "copy", &RestoreOrder::default()), &["is RESTORING, and not ONLINE"]);
    let later = RestoreOrder { step: RestoreStep::NoRecovery, ..from(&["server:/full.bak"]) };
    restore(&stub, "new", &later).unwrap();
    stub.with(|model| model.databases.remove("shop"));
    refused(rds(&stub).restore(&from(&["s3://bucket/shop.bak"]), &mut quiet), &["is RESTORING, and not ONLINE"]);
}

#[test]
fn a_backup_of_damaged_pages_is_a_warning() {
    let stub = SqlServerStub::start();
    stub.with(|model| model.faults.damaged = true);
    let outcome = back_up(&stub, &BackupOrder { continue_after_error: true, ..order(&["server:/a.bak"]) }).unwrap();
    assert!(outcome.warnings.concat().contains("damaged pages"), "{outcome:?}");
}

#[test]
fn a_time_needs_a_clock_that_can_be() {
    let stub = SqlServerStub::start();
    stub.with(|model| {
        model.store("shop", "L", &["/shop.trn".into()], true);
        model.databases.get_mut("shop").unwrap().state = "RESTORING".into();
    });
    let log = RestoreOrder { stop_at: Some(1_795_000_000_000_000), ..from(&["server:/shop.trn"]) };
    for zone in [None, Some(841), Some(-841), Some(i64::MAX)] {
        stub.with(|model| model.faults.zone_minutes = zone);
        refused(restore(&stub, "shop", &log), &["how far its clock is from UTC"]);
    }
    assert!(stub.batches("RESTORE LOG").is_empty());
    stub.with(|model| model.faults.zone_minutes = Some(-840));
    restore(&stub, "shop", &log).unwrap();
}
