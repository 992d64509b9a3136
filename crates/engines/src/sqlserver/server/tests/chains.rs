//! A chain in one restore, a named instance, and a task of RDS that runs already.

use fullbore_test_servers::sql_server::Task;

use super::*;

#[test]
fn a_whole_chain_in_any_order_of_its_files_is_one_restore_with_a_stop_in_its_last_log() {
    let stub = SqlServerStub::start();
    stub.with(|model| {
        for (kind, path) in
            [("D", "/old.bak"), ("D", "/f1.bak"), ("L", "/l1.trn"), ("I", "/d.bak"), ("L", "/l2.trn"), ("L", "/l3.trn")]
        {
            let stripes = if path == "/f1.bak" { vec![path.into(), "/f2.bak".into()] } else { vec![path.into()] };
            model.store("shop", kind, &stripes, true);
        }
    });
    let files = ["l3.trn", "l2.trn", "f2.bak", "d.bak", "old.bak", "l1.trn", "f1.bak"];
    let places: Vec<String> = files.iter().map(|file| format!("server:/{file}")).collect();
    let all = RestoreOrder { from: places, stats: 10, ..RestoreOrder::default() };
    let mut percents = Vec::new();
    let mut look = |seen: &Seen| {
        percents.push(seen.percent);
        Ok(())
    };
    let ended = session(&stub, "copy").restore(&all, &mut look).unwrap();
    assert!(percents.is_sorted() && percents.last() == Some(&100.0), "{percents:?}");
    assert_eq!((ended.set.kind, ended.set.bytes), (Some(SetKind::Log), 4 * (100 << 20)));
    let ran: Vec<String> = stub.batches("RESTORE").into_iter().filter(|batch| !batch.contains("ONLY FROM")).collect();
    assert_eq!(ran, ended.statements);
    assert_eq!(
        ran,
        [
            "RESTORE DATABASE [copy] FROM DISK = N'/f1.bak', DISK = N'/f2.bak' WITH FILE = 1, NORECOVERY, STATS = 10",
            "RESTORE DATABASE [copy] FROM DISK = N'/d.bak' WITH FILE = 1, NORECOVERY, STATS = 10",
            "RESTORE LOG [copy] FROM DISK = N'/l2.trn' WITH FILE = 1, NORECOVERY, STATS = 10",
            "RESTORE LOG [copy] FROM DISK = N'/l3.trn' WITH FILE = 1, RECOVERY, STATS = 10",
        ]
    );
    // The second log of the stub ended at 01:04:10 by its clock, which is an hour ahead of UTC.
    let moment: jiff::Timestamp = "2026-11-26T00:03:50Z".parse().unwrap();
    let stopped = RestoreOrder { stop_at: Some(moment.as_microsecond()), ..all.clone() };
    let planned = session(&stub, "other").plan_restore(&stopped).unwrap();
    let words = planned.statements.concat();
    assert_eq!((planned.statements.len(), words.matches("STOPAT").count()), (3, 1), "{words}");
    assert!(planned.statements[2].contains("/l2.trn") && planned.statements[2].contains("STOPAT"), "{words}");
    let one = RestoreOrder { latest: true, ..all.clone() };
    refused(restore(&stub, "other", &one), &["--latest", "several media sets"]);
    let gap = RestoreOrder { from: all.from.iter().filter(|from| !from.contains("l2")).cloned().collect(), ..all };
    refused(restore(&stub, "other", &gap), &["a log is missing between LSN"]);
}

#[test]
fn a_named_instance_is_found_by_sql_server_browser() {
    let stub = SqlServerStub::start();
    let (_file, options) = options(PASSWORD);
    let url = stub.url_of_instance("shop", "SHOP2");
    Session::open(&url, &options).unwrap().backup(&order(&["server:/a.bak"]), &mut quiet).unwrap();
    assert_eq!(stub.batches("BACKUP").len(), 1);
    let other = url.replace("instance=SHOP2", "instance=OTHER");
    refused(Session::open(&other, &options), &["instance `OTHER` of 127.0.0.1", "SQL Server Browser"]);
}

#[test]
fn a_task_of_rds_that_runs_already_is_followed_and_none_is_started() {
    let stub = SqlServerStub::start();
    let url = |database: &str, task: i64| format!("{}&rds-task={task}", stub.url(database));
    let open = |url: &str| {
        let (_file, mut options) = options(PASSWORD);
        options.given = options.given.with(&RDS);
        Session::open(url, &options)
    };
    // Another program starts both tasks.
    stub.with(|model| {
        for (kind, state) in [("BACKUP_DB", "ONLINE"), ("RESTORE_DB", "ONLINE")] {
            model.tasks.push(Task {
                states: vec![("IN_PROGRESS", 40), ("IN_PROGRESS", 70), ("SUCCESS", 100)],
                database: if kind == "BACKUP_DB" { "shop".into() } else { "copy".into() },
                kind,
                arn: "arn:aws:s3:::bucket/shop.bak".into(),
                state,
            });
        }
    });
    let backup = order(&["s3://bucket/shop.bak"]);
    let ended = open(&url("shop", 1)).unwrap().backup(&backup, &mut quiet).unwrap();
    assert_eq!(ended.run.as_deref(), Some("rds task 1"));
    let restore = from(&["s3://bucket/shop.bak"]);
    open(&url("copy", 2)).unwrap().restore(&restore, &mut quiet).unwrap();
    refused(open(&url("shop", 2)).unwrap().backup(&backup, &mut quiet), &["task 2 of RDS is a RESTORE_DB of `copy`"]);
    refused(open(&url("shop", 9)).unwrap().backup(&backup, &mut quiet), &["Task ID is not valid"]);
    assert!(
        stub.batches("EXEC msdb.dbo.rds_backup").is_empty() && stub.batches("EXEC msdb.dbo.rds_restore").is_empty()
    );
    let (_file, options) = options(PASSWORD);
    refused(Session::open(&url("shop", 1), &options), &["rds-task", "Amazon RDS"]);
}
