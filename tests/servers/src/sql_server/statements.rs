//! The statements that the stub understands: those that fullbore sends, by their words.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use super::model::{Database, FIRST_LSN, Model, Past, Running, SERVER_NAME, StoredFile, StoredSet, Task};
use super::tls::Stream;
use super::wire::{Cell, Reply, integer, text};

/// What fullbore sends after a BACKUP or RESTORE.
const SAYS_END: &str = "; SELECT CONVERT(int, @@ERROR) AS ended_with";

/// The texts in quotes, as T-SQL reads them.
pub fn texts(statement: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), statement);
    while let Some((_, after)) = rest.split_once('\'') {
        let mut one = String::new();
        let mut letters = after.char_indices().peekable();
        rest = "";
        while let Some((at, letter)) = letters.next() {
            if letter != '\'' {
                one.push(letter);
            } else if letters.next_if(|(_, next)| *next == '\'').is_some() {
                one.push('\'');
            } else {
                rest = &after[at + 1..];
                break;
            }
        }
        found.push(one);
    }
    found
}

/// The first name in brackets, as T-SQL reads it.
fn name(statement: &str) -> String {
    let after = statement.split_once('[').map_or("", |(_, after)| after);
    let mut name = String::new();
    let mut letters = after.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            ']' if letters.next_if_eq(&']').is_none() => break,
            letter => name.push(letter),
        }
    }
    name
}

fn lock(model: &Mutex<Model>) -> MutexGuard<'_, Model> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers a batch.
pub fn answer(batch: &str, session: i64, model: &Mutex<Model>, stream: &mut Stream) -> io::Result<()> {
    // `batches` has the statements of such a batch only.
    let (batch, says_end) = batch.strip_suffix(SAYS_END).map_or((batch, false), |statement| (statement, true));
    lock(model).batches.push((session, batch.to_owned()));
    let only_asks = ["RESTORE LABELONLY", "RESTORE HEADERONLY"].iter().any(|start| batch.starts_with(start));
    if !only_asks && ["BACKUP ", "RESTORE "].iter().any(|start| batch.starts_with(start)) {
        return run(batch, says_end, session, model, stream);
    }
    let starts =
        ["backup", "restore", "finish"].iter().any(|verb| batch.starts_with(&format!("EXEC msdb.dbo.rds_{verb}")));
    if starts {
        let wait = lock(model).faults.starts_after;
        sleep(wait);
    }
    let mut reply = Reply::to(stream);
    let outcome = match batch {
        "SELECT 1 AS alive" => {
            reply.rows(&["alive"], &[vec![integer(1)]]);
            Ok(())
        }
        _ if batch.contains("@@SPID") => server(session, &lock(model), &mut reply),
        _ if batch.contains("FROM sys.databases") => database(batch, &lock(model), &mut reply),
        _ if batch.contains("sys.dm_exec_requests") => progress(batch, &lock(model), &mut reply),
        _ if batch.starts_with("SET LOCK_TIMEOUT ") || batch == "SET LANGUAGE us_english" => Ok(()),
        _ if batch.contains("MAX(backup_set_id)") => {
            reply.rows(&["newest"], &[vec![integer(lock(model).history.len() as i64)]]);
            Ok(())
        }
        _ if batch.contains("s.backup_set_uuid") => written(batch, &lock(model), &mut reply),
        _ if batch.contains("DATEDIFF(second") => earlier(batch, &lock(model), &mut reply),
        _ if batch.starts_with("RESTORE LABELONLY") => label(batch, &lock(model), &mut reply),
        _ if batch.starts_with("RESTORE HEADERONLY") => headers(batch, &lock(model), &mut reply),
        _ if batch.starts_with("KILL ") => kill(batch, &mut lock(model)),
        _ if batch.starts_with("EXEC msdb.dbo.rds_") => rds(batch, &mut lock(model), &mut reply),
        _ => Err((102, format!("Incorrect syntax near '{}'.", batch.chars().take(20).collect::<String>()))),
    };
    while starts && lock(model).faults.starts_silently {
        sleep(Duration::from_millis(10));
        if lock(model).is_gone {
            return Err(io::Error::other("the stub ends"));
        }
    }
    let failed = outcome.is_err();
    if let Err((number, text)) = outcome {
        reply.error(number, 16, &text);
    }
    reply.end(failed)
}

type Outcome = Result<(), (i32, String)>;

fn server(session: i64, model: &Model, reply: &mut Reply<'_>) -> Outcome {
    let names = ["session", "version", "edition", "zone_minutes", "now", "server_name"];
    let row = vec![
        integer(session),
        text("16.0.4135.4"),
        text("Stub Edition (64-bit)"),
        Cell::Integer(model.faults.zone_minutes),
        text("2026-11-26T12:00:00.000"),
        text(SERVER_NAME),
    ];
    reply.rows(&names, &[row]);
    Ok(())
}

fn database(batch: &str, model: &Model, reply: &mut Reply<'_>) -> Outcome {
    let name = texts(batch).pop().unwrap_or_default();
    let known = model.databases.get(&name);
    let row = |known: &Database| {
        let standby = integer(known.in_standby.into());
        vec![text(&known.state), text(&known.recovery_model), standby, integer(known.bytes)]
    };
    let names = ["state", "recovery_model", "in_standby", "bytes"];
    reply.rows(&names, &known.map(row).into_iter().collect::<Vec<_>>());
    Ok(())
}

fn progress(batch: &str, model: &Model, reply: &mut Reply<'_>) -> Outcome {
    if model.faults.hides_progress {
        return Err((300, "VIEW SERVER STATE permission was denied on object 'server', database 'master'.".into()));
    }
    let session: i64 = batch.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    let visible = model.running.get(&session).filter(|_| !model.faults.sees_itself_only);
    let row = visible.map(|running| vec![Cell::Number(running.percent.into())]);
    reply.rows(&["percent_complete"], &row.into_iter().collect::<Vec<_>>());
    Ok(())
}

fn kill(batch: &str, model: &mut Model) -> Outcome {
    let session: i64 = batch.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    if model.faults.refuses_kill {
        return Err((6102, "User does not have permission to use the KILL statement.".into()));
    }
    match model.running.get_mut(&session) {
        Some(running) => {
            running.killed = true;
            Ok(())
        }
        None => Err((6106, format!("Process ID {session} is not an active process ID."))),
    }
}

fn lsn(past: usize) -> String {
    (FIRST_LSN + past as u128).to_string()
}

fn written(batch: &str, model: &Model, reply: &mut Reply<'_>) -> Outcome {
    let names = [
        "set_id",
        "media_id",
        "bytes",
        "stored_bytes",
        "started",
        "finished",
        "first_lsn",
        "last_lsn",
        "checkpoint_lsn",
        "has_checksums",
        "is_damaged",
    ];
    let said = texts(batch);
    let before: usize =
        batch.split_once("backup_set_id > ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok()).unwrap_or(0);
    let is_it = |(_, past): &(usize, &Past)| {
        said.first() == Some(&past.set.database)
            && said.get(1) == Some(&past.set.kind)
            && said.get(2).is_none_or(|file| past.files.contains(file))
    };
    let found = model.history.iter().enumerate().skip(before).rfind(is_it);
    let row = found.map(|(at, past)| {
        vec![
            text(&past.set.id),
            text(&past.media),
            integer(past.set.bytes),
            integer(past.set.stored_bytes),
            text("2026-11-26T11:59:50"),
            text("2026-11-26T12:00:00"),
            text(lsn(at)),
            text(lsn(at + 2)),
            text(lsn(at + 1)),
            integer(1),
            integer(model.faults.damaged.into()),
        ]
    });
    reply.rows(&names, &row.into_iter().collect::<Vec<_>>());
    Ok(())
}

fn earlier(batch: &str, model: &Model, reply: &mut Reply<'_>) -> Outcome {
    let said = texts(batch);
    let fits = |past: &&Past| said.first() == Some(&past.set.database) && said.get(1) == Some(&past.set.kind);
    let row = |past: &Past| {
        vec![
            integer(past.set.bytes),
            integer(past.set.stored_bytes),
            integer(past.seconds),
            integer(past.files.len() as i64),
            text("2026-11-25T01:00:00"),
        ]
    };
    let rows: Vec<_> = model.history.iter().rev().filter(fits).map(row).collect();
    reply.rows(&["bytes", "stored_bytes", "seconds", "files", "finished"], &rows);
    Ok(())
}

/// The file, or the error that SQL Server gives in its place.
fn opened<'m>(path: &str, model: &'m Model) -> Result<&'m StoredFile, (i32, String)> {
    let failed = |why: &str| Err((3201, format!("Cannot open backup device '{path}'. Operating system error {why}.")));
    if path.contains("://") && !model.credentials.iter().any(|start| path.starts_with(start)) {
        return failed("50(The request is not supported.)");
    }
    if model.others.contains(path) {
        return Err((3241, format!("The media family on device '{path}' is incorrectly formed.")));
    }
    match model.files.get(path) {
        Some(file) => Ok(file),
        None if path.starts_with("/missing/") => failed("3(The system cannot find the path specified.)"),
        None => failed("2(The system cannot find the file specified.)"),
    }
}

fn label(batch: &str, model: &Model, reply: &mut Reply<'_>) -> Outcome {
    let path = texts(batch).pop().unwrap_or_default();
    if let Some(bytes) = &model.faults.label {
        reply.raw(bytes);
        return Ok(());
    }
    if let Some((_, text)) = model.faults.label_error.as_ref().filter(|(known, _)| *known == path) {
        return Err((3201, text.clone()));
    }
    let file = opened(&path, model)?;
    let row = vec![Cell::Text(None), Cell::Guid(file.media.clone()), integer(file.families), integer(file.number)];
    reply.rows(&["MediaName", "MediaSetId", "FamilyCount", "FamilySequenceNumber"], &[row]);
    Ok(())
}

fn headers(batch: &str, model: &Model, reply: &mut Reply<'_>) -> Outcome {
    let names = [
        "BackupName",
        "BackupType",
        "ExpirationDate",
        "Position",
        "DatabaseName",
        "BackupSize",
        "FirstLSN",
        "LastLSN",
        "CheckpointLSN",
        "DatabaseBackupLSN",
        "BackupStartDate",
        "BackupFinishDate",
        "HasBackupChecksums",
        "BackupSetGUID",
        "CompressedBackupSize",
        "ServerName",
    ];
    let paths = texts(batch);
    let files = paths.iter().map(|path| opened(path, model)).collect::<Result<Vec<_>, _>>()?;
    let sets = files.first().map_or(&[][..], |file| &file.sets[..]);
    let row = |(position, set): (i64, &StoredSet)| {
        vec![
            Cell::Text(None),
            integer(match set.kind.as_str() {
                "D" => 1,
                "L" => 2,
                "I" => 5,
                _ => 4,
            }),
            Cell::Time(set.expires),
            integer(position),
            text(&set.database),
            integer(set.bytes),
            Cell::Numeric(set.lsns[0]),
            Cell::Numeric(set.lsns[1]),
            Cell::Numeric(set.lsns[2]),
            Cell::Numeric(set.lsns[3]),
            Cell::Time(Some((46_350, 300 * (3600 + 60 * set.minute)))),
            Cell::Time(Some((46_350, 300 * (3610 + 60 * set.minute)))),
            Cell::Bit(true),
            Cell::Guid(set.id.clone()),
            integer(set.stored_bytes),
            text(&set.server),
        ]
    };
    reply.rows(&names, &(1..).zip(sets).map(row).collect::<Vec<_>>());
    Ok(())
}

/// What stands in the way of a BACKUP or RESTORE.
fn obstacle(batch: &str, model: &Model) -> Outcome {
    let name = name(batch);
    let is_backup = batch.starts_with("BACKUP ");
    if is_backup && !model.databases.contains_key(&name) {
        let text = format!("Database '{name}' does not exist. Make sure that the name is entered correctly.");
        return Err((911, text));
    }
    let (devices, _) = batch.split_once(" WITH ").unwrap_or((batch, ""));
    let devices = devices.split_once(if is_backup { " TO " } else { " FROM " }).map_or("", |(_, devices)| devices);
    for path in texts(devices) {
        match opened(&path, model) {
            Err((3201, text)) if is_backup && text.contains("'. Operating system error 2(") => {}
            Err((3241, _)) if is_backup && batch.contains("FORMAT, INIT") => {}
            Err(error) if path != "NUL" => return Err(error),
            Err(_) | Ok(_) => {}
        }
    }
    model.faults.error.clone().map_or(Ok(()), Err)
}

/// Runs a BACKUP or RESTORE, with messages at intervals.
fn run(batch: &str, says_end: bool, session: i64, model: &Mutex<Model>, stream: &mut Stream) -> io::Result<()> {
    let what = batch.split('[').next().unwrap_or_default().trim().to_owned();
    let fail = |(number, text): (i32, String), mut reply: Reply<'_>| {
        reply.error(number, 16, &text);
        reply.error(3013, 16, &format!("{what} is terminating abnormally."));
        reply.end(true)
    };
    if let Err(error) = obstacle(batch, &lock(model)) {
        return fail(error, Reply::to(stream));
    }
    lock(model).running.insert(session, Running::default());
    let ended = tenths(session, model, stream);
    lock(model).running.remove(&session);
    if !ended? {
        return Err(io::Error::other("the session was killed"));
    }
    let mut reply = Reply::to(stream);
    finish(batch, &mut lock(model));
    let ends_with = lock(model).faults.ends_with.filter(|_| says_end);
    reply.info(3014, &format!("{what} successfully processed 12800 pages in 0.300 seconds (333.333 MB/sec)."));
    if let Some(number) = ends_with {
        reply.rows(&["ended_with"], &[vec![integer(number)]]);
    }
    reply.end(false)
}

/// Each tenth of a run, as its own part of the answer. `false`: it was killed.
fn tenths(session: i64, model: &Mutex<Model>, stream: &mut Stream) -> io::Result<bool> {
    let mut percent = 0;
    while percent < 100 {
        let faults = lock(model).faults.clone();
        sleep(faults.tenth);
        let mut known = lock(model);
        let running = known.running.entry(session).or_default();
        if running.killed {
            // The client may ask for what runs as soon as it has the answer.
            known.running.remove(&session);
            drop(known);
            let mut reply = Reply::to(stream);
            reply.error(596, 21, "Cannot continue the execution because the session is in the kill state.");
            reply.end(true)?;
            stream.shutdown()?;
            return Ok(false);
        }
        if faults.stands_at == Some(percent) {
            continue;
        }
        if known.is_silent || (faults.vanishes_at == Some(percent)) {
            known.running.remove(&session);
            if known.is_gone {
                return Ok(false);
            }
            continue;
        }
        percent += 10;
        known.running.insert(session, Running { percent, killed: false });
        if faults.gone_at == Some(percent) {
            known.running.remove(&session);
            known.is_gone = true;
            stream.shutdown()?;
            return Ok(false);
        }
        known.is_silent |= faults.silent_at == Some(percent);
        drop(known);
        let mut reply = Reply::to(stream);
        reply.info(3211, &format!("{percent} percent processed."));
        reply.send_part()?;
    }
    Ok(true)
}

/// What a finished BACKUP or RESTORE changes.
fn finish(batch: &str, model: &mut Model) {
    let name = name(batch);
    let (start, options) = batch.split_once(" WITH ").unwrap_or((batch, ""));
    if batch.starts_with("BACKUP ") {
        let kind = match options {
            _ if batch.starts_with("BACKUP LOG") => "L",
            _ if options.contains("DIFFERENTIAL") => "I",
            _ => "D",
        };
        let devices = start.split_once(" TO ").map_or("", |(_, devices)| devices);
        return model.store(&name, kind, &texts(devices), options.contains(", FORMAT"));
    }
    let state = if options.contains("NORECOVERY") || model.faults.stays_restoring { "RESTORING" } else { "ONLINE" };
    let known = model.databases.entry(name).or_default();
    (known.state, known.in_standby) = (state.into(), options.contains("STANDBY = "));
}

fn rds(batch: &str, model: &mut Model, reply: &mut Reply<'_>) -> Outcome {
    let said = texts(batch);
    let argument = |at: usize| said.get(at).cloned().unwrap_or_default();
    let number =
        |what: &str| batch.split_once(what).and_then(|(_, rest)| rest.trim().parse::<usize>().ok()).unwrap_or(0);
    let task = match batch {
        _ if batch.contains("rds_task_status") => number("@task_id = "),
        _ if batch.contains("rds_cancel_task") => {
            let task = number("@task_id = ");
            let known =
                model.tasks.get_mut(task.wrapping_sub(1)).ok_or((50_000, "Task ID is not valid.".to_owned()))?;
            known.states = vec![("CANCEL_REQUESTED", 50), ("CANCELLED", 50)];
            task
        }
        _ => {
            let kind = match batch {
                _ if batch.contains("rds_backup_database") => "BACKUP_DB",
                _ if batch.contains("rds_finish_restore") => "FINISH_RESTORE",
                _ => "RESTORE_DB",
            };
            let mut states = vec![("CREATED", 0), ("IN_PROGRESS", 30), ("IN_PROGRESS", 60)];
            states.extend(model.faults.task_ends.map(|end| (end, if end == "SUCCESS" { 100 } else { 60 })));
            let arn = if batch.contains("s3_arn") { argument(1) } else { String::new() };
            let restores = batch.contains("@with_norecovery = 1") || model.faults.stays_restoring;
            let state = if restores { "RESTORING" } else { "ONLINE" };
            model.tasks.push(Task { states, database: argument(0), kind, arn, state });
            model.tasks.len()
        }
    };
    let known = model.tasks.get_mut(task.wrapping_sub(1)).ok_or((50_000, "Task ID is not valid.".to_owned()))?;
    let ends_now = known.states.len() == 2 && known.states[1].0 == "SUCCESS" && batch.contains("status");
    let state = if known.states.len() > 1 && batch.contains("status") {
        known.states.remove(0);
        known.states[0]
    } else {
        known.states[0]
    };
    let (database, kind, arn, after) = (known.database.clone(), known.kind, known.arn.clone(), known.state);
    let info = if state.0 == "ERROR" {
        text("Aborted the task because of a task failure: Access Denied")
    } else {
        Cell::Text(None)
    };
    let row = vec![integer(task as i64), text(kind), text(&database), integer(state.1), text(state.0), info];
    reply.rows(&["task_id", "task_type", "database_name", "% complete", "lifecycle", "task_info"], &[row]);
    match kind {
        "BACKUP_DB" if ends_now => model.store(&database, "D", &[arn], true),
        _ if ends_now => {
            model.databases.entry(database).or_default().state = after.into();
        }
        _ => {}
    }
    Ok(())
}
