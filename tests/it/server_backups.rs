//! `mssql://`: a stub in the place of a SQL Server runs backups and restores, and the program follows and reports them.

use std::os::unix::process::ExitStatusExt;

use fullbore_test_servers::sql_server::{PASSWORD, SqlServerStub};
use fullbore_test_servers::wait_until;
use serde_json::Value;

use crate::world::World;

/// A folder with the password of the stub, and a repository `night`.
fn world() -> (World, SqlServerStub) {
    let world = World::new();
    world.write("password", format!("{PASSWORD}\n").as_bytes());
    let at = world.folder().display().to_string();
    world.write("fullbore.toml", format!("[repository.night]\nto = [\"{at}/night/\"]\n").as_bytes());
    std::fs::create_dir(world.at("night")).unwrap();
    (world, SqlServerStub::start())
}

fn report(world: &World, name: &str) -> Value {
    serde_json::from_slice(&world.read(name)).unwrap()
}

/// `fullbore VERB URL …`, with everything that such a run needs.
fn backup(stub: &SqlServerStub, more: &str) -> String {
    format!("backup {} --password-file password --experimental {more}", stub.url("shop"))
}

fn restore(stub: &SqlServerStub, database: &str, more: &str) -> String {
    format!("restore --into {} --password-file password --experimental {more}", stub.url(database))
}

#[test]
fn a_backup_runs_on_the_server_and_its_report_has_what_the_server_says() {
    let (world, stub) = world();
    let ended = world
        .run(&backup(&stub, "--to server:/backup/shop.bak --report json:r.json --progress plain --stats 20"))
        .done();
    let text = ended.text();
    assert!(text.contains("BACKUP DATABASE: full of mssql://sa@127.0.0.1"), "{text}");
    assert!(
        text.contains("to server:/backup/shop.bak")
            && text.contains("100.0 MiB in")
            && text.contains("25.0 MiB stored"),
        "{text}"
    );
    assert!(ended.err.contains("tested against a stub server only"), "{}", ended.err);
    let report = report(&world, "r.json");
    assert_eq!(
        (&report["status"], &report["engine"], &report["kind"]),
        (&"done".into(), &"sqlserver".into(), &"full".into())
    );
    assert_eq!((&report["source_bytes"], &report["stored_bytes"]), (&(100 << 20).into(), &(25 << 20).into()));
    assert_eq!(report["ratio"], 4.0);
    assert_eq!(report["position"]["first"]["lsn"], "34000000018400037");
    assert_eq!(report["families"][0]["device"], "server:/backup/shop.bak");
    assert!(report["backup_set_id"].as_str().is_some_and(|id| id.len() == 36), "{report}");
    let statements = report["server"]["statements"].as_array().unwrap();
    assert_eq!(statements[0], "SET LOCK_TIMEOUT 10000");
    assert_eq!(
        statements[1],
        "BACKUP DATABASE [shop] TO DISK = N'/backup/shop.bak' WITH CHECKSUM, NOFORMAT, NOINIT, STATS = 20"
    );
    assert_eq!(stub.batches("BACKUP"), [statements[1].as_str().unwrap()]);
    assert!(!world.text("r.json").contains(PASSWORD));
}

#[test]
fn every_knob_of_the_command_line_reaches_the_server() {
    let (world, stub) = world();
    let more = "--to server:/a/ --to server:/b/ --stripes 3 --kind differential --compression zstd:low --block-size 64KiB \
                --buffer-count 50 --max-transfer-size 4MiB --name nightly --wait --continue-after-error --stats 5";
    world.run(&backup(&stub, more)).done();
    let statement = stub.batches("BACKUP").concat();
    let (devices, words) = statement.split_once(" WITH ").unwrap();
    let files: Vec<&str> = devices.split("DISK = ").skip(1).collect();
    assert!(
        files.len() == 3 && files[0].starts_with("N'/a/shop-differential-") && files[1].starts_with("N'/b/shop-"),
        "{files:?}"
    );
    assert_eq!(
        words,
        "CHECKSUM, DIFFERENTIAL, COMPRESSION (ALGORITHM = ZSTD, LEVEL = LOW), BLOCKSIZE = 65536, BUFFERCOUNT = 50, \
         MAXTRANSFERSIZE = 4194304, CONTINUE_AFTER_ERROR, NAME = N'nightly', NOFORMAT, NOINIT, STATS = 5"
    );
    assert_eq!(stub.batches("SET LOCK_TIMEOUT"), ["SET LOCK_TIMEOUT -1"]);
    assert!(stub.batches("SET LANGUAGE").iter().all(|batch| batch == "SET LANGUAGE us_english"));
}

#[test]
fn without_the_flag_experimental_nothing_reaches_the_server() {
    let (world, stub) = world();
    let url = stub.url("shop");
    for line in [
        format!("backup {url} --password-file password --to server:/a.bak"),
        format!("restore --into {url} --from server:/a.bak"),
        format!("estimate {url} --to server:/a.bak"),
    ] {
        let ended = world.run(&line).with_code(2).err;
        assert!(ended.contains("--experimental") && ended.contains("stub server only"), "{ended}");
    }
    let mark = "restore --from a/ --into sqlite:x.db --stop-at-mark m";
    world.run(mark).with_code(2).says(&["--experimental"]);
    world.run(&format!("{mark} --experimental")).with_code(2).says(&["is for mssql://"]);
    assert!(world.run("backup sqlite:app.db --to a/ --experimental").with_code(2).err.contains("is for mssql://"));
    assert!(stub.with(|model| model.batches.is_empty()));
    let help = world.run("backup --help").done().text();
    assert!(help.contains("never run against a SQL Server"), "{help}");
}

#[test]
fn a_flag_without_a_word_in_t_sql_is_refused_by_its_name() {
    let (world, stub) = world();
    for (flag, named) in [
        ("--base a", "--base"),
        ("--kind auto", "--kind auto"),
        ("--mkdir", "--mkdir"),
        ("--encrypt-to x.pub", "--encrypt-to"),
        ("--workers 2", "--workers"),
        ("--queue-depth 2", "--queue-depth"),
        ("--readers 2", "--readers"),
        ("--throttle 1MiB/s", "--throttle"),
        ("--measure-limit", "--measure-limit"),
        ("--name-template x", "--name-template"),
        ("--sse AES256", "--sse"),
        ("--tag a=b", "--tag"),
        ("--compression lz4", "--compression"),
        ("--max-transfer-size 8MiB", "--max-transfer-size"),
        ("--stripes 2", "--stripes"),
        ("--auto", "--auto"),
        ("--key k", "--key"),
    ] {
        let said = world.run(&backup(&stub, &format!("--to server:/a.bak {flag}"))).with_code(2).err;
        assert!(said.contains(named), "{flag}: {said}");
    }
    for (flag, named) in [
        ("--mkdir", "--mkdir"),
        ("--resume", "--resume"),
        ("--check full", "--check"),
        ("--owner mysql", "--owner"),
        ("--kind log", "--kind"),
        ("--workers 2", "--workers"),
    ] {
        let said = world.run(&restore(&stub, "copy", &format!("--from server:/a.bak {flag}"))).with_code(2).err;
        assert!(said.contains(named), "{flag}: {said}");
    }
    let said = world.run(&backup(&stub, "--to a/shop.bak")).with_code(2).err;
    assert!(said.contains("server:PATH"), "{said}");
    assert!(stub.batches("BACKUP").is_empty() && stub.batches("RESTORE").is_empty());
}

#[test]
fn a_password_is_never_taken_from_the_command_line_and_a_wrong_one_is_an_error() {
    let (world, stub) = world();
    let url = stub.url("shop").replace("sa@", "sa:S3cretly@");
    let said = world.run(&format!("backup {url} --to server:/a.bak --experimental")).with_code(2).err;
    assert!(said.contains("--password-file") && !said.contains("S3cretly"), "{said}");
    world.write("wrong", b"S3cretly\n");
    let line = format!("backup {} --password-file wrong --experimental --to server:/a.bak", stub.url("shop"));
    let said = world.run(&format!("{line} --log-file log.txt")).with_code(1).err;
    assert!(said.contains("18456") && said.contains("Login failed for user 'sa'"), "{said}");
    assert!(!said.contains("S3cretly") && !world.text("log.txt").contains("S3cretly"), "{said}");
    let said = world.run(&format!("backup {} --experimental --to server:/a.bak", stub.url("shop"))).with_code(2).err;
    assert!(said.contains("FULLBORE_PASSWORD"), "{said}");
}

#[test]
fn a_restore_needs_replace_over_a_database_and_a_dry_run_only_shows_the_statement() {
    let (world, stub) = world();
    stub.with(|model| model.store("shop", "D", &["/full.bak".into()], true));
    let said = world.run(&restore(&stub, "shop", "--from server:/full.bak")).with_code(1).err;
    assert!(said.contains("--replace") && said.contains("state ONLINE"), "{said}");
    let said = world.run(&restore(&stub, "copy", "--from server:/full.bak --dry-run")).done().text();
    let statement = "RESTORE DATABASE [copy] FROM DISK = N'/full.bak' WITH FILE = 1, RECOVERY, STATS = 10";
    assert!(said.contains(statement) && stub.batches("RESTORE DATABASE").is_empty(), "{said}");
    let line = restore(&stub, "copy", "--from server:/full.bak --no-recovery --report json:r.json");
    let said = world.run(&line).done().text();
    assert!(said.contains("not usable yet"), "{said}");
    let report = report(&world, "r.json");
    assert_eq!((&report["restoring"], &report["source_bytes"]), (&true.into(), &(100 << 20).into()));
    world.run(&restore(&stub, "copy", "--recovery")).done();
    world.run(&restore(&stub, "shop", "--from server:/full.bak --replace --move shop /data/shop.mdf")).done();
    assert_eq!(
        stub.batches("RESTORE DATABASE"),
        [
            "RESTORE DATABASE [copy] FROM DISK = N'/full.bak' WITH FILE = 1, NORECOVERY, STATS = 10",
            "RESTORE DATABASE [copy] WITH RECOVERY",
            "RESTORE DATABASE [shop] FROM DISK = N'/full.bak' WITH FILE = 1, MOVE N'shop' TO N'/data/shop.mdf', REPLACE, \
             RECOVERY, STATS = 10",
        ]
    );
}

#[test]
fn a_run_is_a_task_in_a_repository_and_cancel_kills_it_on_the_server() {
    let (world, stub) = world();
    // A repository exists after its first backup.
    let shape = crate::database::Shape { rows: 10, ..Default::default() };
    crate::database::make(&world.at("app.db"), shape);
    world.run("backup sqlite:app.db --repo night").done();
    stub.with(|model| model.faults.stands_at = Some(30));
    let mut running = world.start(&backup(&stub, "--to server:/a.bak --task-in night --report json:r.json"));
    let task = || -> Option<Value> {
        let listed = world.run("tasks --repo night --json").done();
        let listed: Value = serde_json::from_slice(&listed.out).unwrap();
        listed["tasks"].as_array().unwrap().iter().find(|task| task["state"] == "IN_PROGRESS").cloned()
    };
    wait_until("the task is seen at 30 percent", || {
        task().is_some_and(|task| task["percent"].as_f64().is_some_and(|percent| (percent - 30.0).abs() < 0.1))
    });
    let shown = task().unwrap();
    assert!(shown["verb"] == "backup" && shown["database"].as_str().unwrap().ends_with("/shop"), "{shown}");
    let id = shown["task"].as_str().unwrap();
    let said = world.run(&format!("cancel {id} --repo night")).done().text();
    assert!(said.contains("CANCELLED") || said.contains("cancelled"), "{said}");
    let status = running.child.wait().unwrap();
    assert!(!status.success() && status.signal().is_none(), "{status:?}");
    assert_eq!(stub.batches("KILL").len(), 1);
    let report = report(&world, "r.json");
    assert_eq!((&report["status"], &report["task"]), (&"cancelled".into(), &id.into()));
    assert!(stub.with(|model| model.files.is_empty() && model.running.is_empty()));
}

#[test]
fn ctrl_c_kills_the_run_on_the_server() {
    let (world, stub) = world();
    stub.with(|model| model.faults.stands_at = Some(30));
    let mut running = world.start(&backup(&stub, "--to server:/a.bak"));
    wait_until("the backup runs", || stub.with(|model| model.running.values().any(|running| running.percent == 30)));
    running.signal("INT");
    assert_eq!(running.child.wait().unwrap().code(), Some(130));
    assert_eq!(stub.batches("KILL").len(), 1);
}

#[test]
fn a_server_that_goes_away_is_a_failed_job_with_a_report() {
    let (world, stub) = world();
    stub.with(|model| model.faults.gone_at = Some(50));
    let said = world.run(&backup(&stub, "--to server:/a.bak --report json:r.json")).with_code(1).err;
    assert!(said.contains("msdb.dbo.backupset"), "{said}");
    let report = report(&world, "r.json");
    assert_eq!((&report["status"], &report["exit_code"]), (&"failed".into(), &1.into()));
}

#[test]
fn an_estimate_is_from_the_history_of_the_server() {
    let (world, stub) = world();
    let line = format!("estimate {} --password-file password --experimental --to server:/a.bak", stub.url("shop"));
    let said = world.run(&line).with_code(1).err;
    assert!(said.contains("history of the server has no full"), "{said}");
    stub.with(|model| {
        for seconds in [5, 10, 20] {
            model.store("shop", "D", &["/x.bak".into()], true);
            model.history.last_mut().unwrap().seconds = seconds;
        }
        model.store("shop", "L", &["/x.trn".into()], true);
    });
    let said = world.run(&line).done().text();
    assert!(said.contains("ESTIMATE of 100.0 MiB") && said.contains("middle 10.0 s, 10 MiB/s"), "{said}");
    assert!(said.contains("from 3 earlier backups in as many files"), "{said}");
    let made = world.run(&format!("{line} --size 1GiB --json")).done();
    let made: Value = serde_json::from_slice(&made.out).unwrap();
    assert_eq!((&made["plain_bytes"], &made["stored_bytes"]), (&(1_u64 << 30).into(), &(256_u64 << 20).into()));
    assert!(
        made["p10_s"].as_f64() < made["p50_s"].as_f64() && made["p50_s"].as_f64() < made["p90_s"].as_f64(),
        "{made}"
    );
    assert!(world.run(&format!("{line} --grid")).with_code(2).err.contains("--grid"));
    assert!(world.run(&format!("{line} --kind log")).done().text().contains("log, 1 file"));
}

#[test]
fn amazon_rds_runs_a_task_and_its_options_may_be_in_the_configuration() {
    let (world, stub) = world();
    let at = world.folder().display().to_string();
    world.write(
        "fullbore.toml",
        format!("[engine.sqlserver]\nrds = true\npassword-file = \"{at}/password\"\n").as_bytes(),
    );
    let line = format!("backup {} --experimental --to s3://bucket/shop.bak --report json:r.json", stub.url("shop"));
    world.run(&line).done();
    let report = report(&world, "r.json");
    assert_eq!(report["server"]["run"], "rds task 1");
    assert!(report["server"]["statements"][0].as_str().unwrap().starts_with("EXEC msdb.dbo.rds_backup_database"));
    assert_eq!(report["source_bytes"], 100 << 20);
}

#[test]
fn a_backup_of_damaged_pages_is_done_with_a_warning() {
    let (world, stub) = world();
    stub.with(|model| model.faults.damaged = true);
    let said = world.run(&backup(&stub, "--to server:/a.bak --continue-after-error")).with_code(4).err;
    assert!(said.contains("damaged pages") && said.contains("DBCC CHECKDB"), "{said}");
}

#[test]
fn a_recovery_without_files_takes_no_flag_of_files_and_a_wrong_state_is_a_failure() {
    let (world, stub) = world();
    stub.with(|model| {
        model.databases.get_mut("shop").unwrap().state = "RESTORING".into();
        model.store("shop", "L", &["/shop.trn".into()], true);
        model.faults.stays_restoring = true;
    });
    for flag in ["--stop-at 2026-11-26T09:30:00Z", "--move a /b", "--latest", "--buffer-count 4"] {
        let said = world.run(&restore(&stub, "shop", &format!("--recovery {flag}"))).with_code(2).err;
        assert!(said.contains(flag.split(' ').next().unwrap()), "{said}");
    }
    assert!(stub.batches("RESTORE").is_empty());
    let line = restore(&stub, "shop", "--from server:/shop.trn --stop-at 2026-11-26T09:30:00Z");
    let said = world.run(&line).with_code(1).err;
    assert!(said.contains("RESTORING, and not ONLINE"), "{said}");
}

#[test]
fn ctrl_c_while_rds_starts_a_task_cancels_the_task() {
    let (world, stub) = world();
    stub.with(|model| model.faults.starts_after = std::time::Duration::from_secs(2));
    let mut running = world.start(&backup(&stub, "--rds --to s3://bucket/shop.bak"));
    wait_until("the call is made", || !stub.batches("EXEC msdb.dbo.rds_backup").is_empty());
    running.signal("INT");
    assert_eq!(running.child.wait().unwrap().code(), Some(130));
    assert_eq!(stub.batches("EXEC msdb.dbo.rds_cancel"), ["EXEC msdb.dbo.rds_cancel_task @task_id = 1"]);
    assert!(stub.with(|model| model.files.is_empty()));
}

#[test]
fn the_secret_of_an_account_in_a_url_is_refused_and_not_repeated() {
    let (world, stub) = world();
    for url in ["https://u:S3cretly@h/b/k", "https://u:S3/S3cretly@h/b/k", "https://u:1/S3cretly@h/b/k?x=S3cretly"] {
        let said = world.run(&backup(&stub, &format!("--to {url}"))).with_code(2).err;
        assert!(said.contains("CREDENTIAL") && !said.contains("S3cretly"), "{said}");
    }
}
