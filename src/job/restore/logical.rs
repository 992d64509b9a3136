//! RESTORE of a logical set: its rows go into a running server, or its text into a directory.

use fullbore_core::cipher::SecretKey;
use fullbore_core::conduct::Conduct;
use fullbore_core::halt::Halt;
use fullbore_core::io::{PrivateDirectory, scratch_directory};
use fullbore_core::media::Manifest;
use fullbore_core::units::counted;
use fullbore_core::unpack::NullTarget;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{Load, LoadOrder, LogicalEngine, MAP, OWNER, SERVER_OPTION, SERVER_PROGRAM};
use fullbore_engines::{Options, Restorer};
use fullbore_repository::discovery;

use super::super::reading;
use super::directory::{manifests, size_of, unpack, unpack_files};
use super::media::of_a_database;
use super::replay::Prepared;
use super::{Check, Into, Owner, Request, log, new_directory, of_another_engine, plan_line, refresh, unfinished};
use crate::report::Report;

/// The longest catalog of one database, in bytes: it is held in memory. A million columns are less.
const CATALOG_MAX: u64 = 512 << 20;
/// The name for the verdict of the work after the rows.
const INDEXES: &str = "indexes and other objects";

/// The engine of a logical set, if the last of these sets is one.
pub(super) fn of(opened: &reading::Opened) -> Option<&'static dyn LogicalEngine> {
    let manifest = opened.sets.back()?.manifest()?;
    let logical = fullbore_engines::named(&manifest.engine)?.logical()?;
    logical.is_logical(&manifest.position.last.value()).then_some(logical)
}

/// Restores a logical set.
///
/// # Errors
/// The request has a flag that such a set does not have, the target refuses, or the set is damaged.
pub(super) fn restore(
    logical: &'static dyn LogicalEngine,
    (chain, logs): (&[discovery::Found], &[discovery::Found]),
    mut opened: reading::Opened,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    refuse_flags(request)?;
    let logs = if applies_logs(request, logs.len(), report)? { logs } else { &[] };
    let manifests = manifests(chain, &mut opened, conduct);
    let (Some(manifest), Some(found)) = (manifests.last(), chain.last()) else { return Ok(()) };
    match &request.into {
        Into::Directory(_) if new_directory::is_wanted(request) => {
            new_directory::restore(logical, (found, manifest, logs), &mut opened, request, key, conduct, report)
        }
        Into::Server { .. } => load(logical, (found, manifest, logs), &mut opened, request, key, conduct, report),
        Into::Directory(_) if request.dry_run => {
            plan_line(found, report);
            report.status = "planned".into();
            Ok(())
        }
        Into::Directory(target) => {
            let owner = Owner::wanted(request)?;
            let restore = unfinished::make(target, request.mkdir, size_of(&manifest.streams))?;
            let directory = restore.temporary();
            unpack_files(chain, &mut opened, &manifests, &|_| true, directory, false, conduct, report)?;
            logical.finish_files(directory, &manifest.position.last.value())?;
            conduct.check()?;
            if let Some(owner) = owner {
                owner.take(directory)?;
            }
            report.is_of_texts = true;
            report.notes.push(
                "each database has a folder: run its schema.sql, load.sql and code.sql in this order, or restore with \
                 --into mysql://… or mariadb://…"
                    .into(),
            );
            restore.publish_then(|| ())
        }
        Into::Null => {
            unpack(&mut opened, found, &NullTarget, conduct, report)?;
            log::read_only(logs, request, key, conduct, report)
        }
        Into::File { engine, path } => Err(of_another_engine(engine, path, &manifest.engine)),
        Into::Media { .. } => Err(of_a_database(&request.into, &manifest.engine)),
    }
}

/// Refuses a server as the target of a set that holds files.
///
/// # Errors
/// The target is a server.
pub(super) fn refuse_server(into: &Into, engine: &str) -> Result<()> {
    let Into::Server { .. } = into else { return Ok(()) };
    let why = format!("the set holds the files of a {engine}, and a running server takes rows only");
    let hint = "restore the files with --into dir:PATH, or back the source up with --method logical";
    Err(Error::usage(format!("--into {into}"), why, hint))
}

/// Whether the log sets are applied behind the rows of a logical set.
///
/// # Errors
/// The request names a point in the log, and what it asks for besides has no such point.
pub(super) fn applies_logs(request: &Request, logs: usize, report: &mut Report) -> Result<bool> {
    let why = match &request.into {
        Into::Server { .. } if !request.tables().is_empty() || !request.set_options.flags().texts(&MAP).is_empty() => {
            "the log is of the whole server, so it is not applied with --table or --map"
        }
        Into::Server { .. } if request.resume => {
            "an interrupted load cannot tell how much of the log it has applied: begin anew with --replace"
        }
        Into::Server { .. } | Into::Null => return Ok(logs > 0),
        Into::Directory(_) if new_directory::is_wanted(request) => return Ok(logs > 0),
        _ => {
            "the log sets behind a logical set need a server: --stop-at TIME or --server-program PROGRAM make a data directory \
             with them, --into mysql://… or mariadb://… fills a running server"
        }
    };
    if request.stop().is_some() {
        let hint = "leave it out: the set is restored as it was when it was made";
        return Err(Error::usage("--stop-at", why, hint));
    }
    if logs > 0 {
        report.warnings.push(format!("{why}: {} not applied", counted(logs as u64, "log set")));
    }
    Ok(false)
}

fn refuse_flags(request: &Request) -> Result<()> {
    let into_server = matches!(request.into, Into::Server { .. });
    let wrong = |flag: &str, why: &str| Err(Error::usage(flag, why, "leave it out"));
    let into_new = new_directory::is_wanted(request);
    let server = "it is for a data directory: add --stop-at, or --server-program";
    let given = request.set_options.flags();
    match request {
        _ if request.place_outside() => wrong("--place-outside", "a logical set has no files of a server"),
        _ if given.value(&SERVER_PROGRAM).is_some() && !into_new => wrong("--server-program", server),
        _ if given.value(&SERVER_OPTION).is_some() && !into_new => wrong("--server-option", server),
        _ if into_server && given.value(&OWNER).is_some() => wrong("--owner", "the server owns its files"),
        _ if (into_server || into_new) && request.check == Some(Check::Quick) => {
            Err(Error::usage("--check quick", "rows have no pages", "use --check full: it reads all rows again"))
        }
        _ if into_server => Ok(()),
        _ if !request.tables().is_empty() => {
            wrong("--table", "single tables are loaded into a server only (--into mysql://…)")
        }
        _ if into_new && given.value(&MAP).is_some() => {
            wrong("--map", "the log is of the whole server, under its names")
        }
        _ if given.value(&MAP).is_some() => wrong("--map", "the texts have the names of the set"),
        Request { into: Into::Directory(_), check: Some(_), .. } if !into_new => {
            wrong("--check", "no server reads a directory of texts")
        }
        _ if request.resume => wrong("--resume", "a logical set in a directory is restored as a whole"),
        _ => Ok(()),
    }
}

fn load(
    logical: &'static dyn LogicalEngine,
    (found, manifest, logs): (&discovery::Found, &Manifest, &[discovery::Found]),
    opened: &mut reading::Opened,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let Into::Server { url, .. } = &request.into else { return Err(Error::Halted) };
    let mut order = order(logical, manifest, opened, request)?;
    let halt = conduct.halt();
    let options = Options { halt: Some(halt.clone()), given: request.target_options.clone(), ..Options::default() };
    let position = manifest.position.last.value();
    // Before the first row: the target must be able to apply the log.
    let mut replay = conduct.until_signalled(&halt, || match &request.refresh {
        Some(refresh) => {
            refresh.behind_rows(logical, (url, &options), (found, manifest, &position), &mut order).map(Some)
        }
        None if logs.is_empty() => Ok(None),
        None => Prepared::into_server(url, &options, manifest, &position, &order).map(Some),
    })?;
    super::stop::demand((manifest, logs), request, key, conduct, report)?;
    if let Some(replay) = replay.as_mut().filter(|_| !request.dry_run) {
        replay.loads()?;
    }
    let load =
        conduct.until_signalled(&halt, || report.timed("creating tables", |_| logical.load(url, order, &options)))?;
    if request.dry_run {
        plan_line(found, report);
        logs.iter().for_each(|found| plan_line(found, report));
        let plan = load.plan();
        report.take_in(plan.warnings, plan.notes);
        report.status = "planned".into();
        return Ok(());
    }
    if let Err(error) = fill(load.as_ref(), (opened, found), &halt, conduct, report) {
        report.notes.push(if request.refresh.is_some() { refresh::HALF.into() } else { load.left() });
        return Err(error);
    }
    let Some(mut replay) = replay else { return Ok(()) };
    conduct.until_signalled(&halt, || replay.mark())?;
    if request.refresh.is_some() {
        return refresh::apply(replay, logs, request, key, conduct, report);
    }
    let scratch = PrivateDirectory::new(&scratch_directory(), "logs")?;
    let applied =
        conduct.until_signalled(&halt, || replay.run(scratch.path(), logs, request, key, conduct, &mut *report));
    applied.map(drop).inspect_err(|_| {
        report.notes.push(
            "the target has the rows of the set, and the transactions of the log before the failed one; its database \
                   `fullbore_load` marks it as not complete. Begin again with --replace"
                .into(),
        );
    })
}

/// Loads the rows, and makes what comes after them.
///
/// # Errors
/// The server refuses, or the set is damaged.
pub(super) fn fill(
    load: &dyn Load,
    (opened, found): (&mut reading::Opened, &discovery::Found),
    halt: &Halt,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    unpack(opened, found, load, conduct, report)?;
    let loaded = conduct.until_signalled(halt, || report.timed(INDEXES, |_| load.finish()))?;
    report.take_in(loaded.warnings, loaded.notes);
    Ok(())
}

/// The names in a value of `--map`.
fn mapped(text: &str) -> Result<(String, String)> {
    let parts = text.split_once('=').filter(|(old, new)| !old.is_empty() && !new.is_empty());
    parts
        .map(|(old, new)| (old.to_owned(), new.to_owned()))
        .ok_or_else(|| Error::usage(format!("--map {text}"), "it is not two names", "write --map OLD=NEW"))
}

/// What is loaded, with the catalogs of the set.
///
/// # Errors
/// A catalog is damaged, or `--map` is wrong.
pub(super) fn order(
    logical: &'static dyn LogicalEngine,
    manifest: &Manifest,
    opened: &mut reading::Opened,
    request: &Request,
) -> Result<LoadOrder> {
    let set = opened.sets.back_mut().ok_or(Error::Halted)?;
    let mut catalogs = Vec::new();
    for stream in manifest.streams.iter().filter(|stream| logical.is_catalog(stream)) {
        catalogs.push((stream.name.clone(), set.small_stream(stream, CATALOG_MAX)?));
    }
    Ok(LoadOrder {
        set: manifest.backup_set_id,
        engine: manifest.engine.clone(),
        engine_version: manifest.engine_version.clone(),
        position: manifest.position.last.value(),
        catalogs,
        streams: manifest.streams.clone(),
        large: Vec::new(),
        tables: request.tables().to_vec(),
        maps: request.set_options.flags().texts(&MAP).iter().map(|text| mapped(text)).collect::<Result<_>>()?,
        replace: request.replace,
        leave_events: false,
        new_server: false,
        resume: request.resume,
        check: request.check == Some(Check::Full),
        dry_run: request.dry_run,
        at_once: opened.plan.writers,
    })
}
