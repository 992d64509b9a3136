//! RESTORE of a database that is one file: it is built beside the target, and gets the name of the target when it is
//! whole.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use fullbore_core::cipher::SecretKey;
use fullbore_core::io::{directory_of, free_space};
use fullbore_core::media::{StreamRecord, total};
use fullbore_core::unpack::{FileTarget, MediaSet, NullTarget, Target};
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{Depth, Over, Restorer};

use super::super::reading;
use super::media::of_a_database;
use super::state::State;
use super::{CHECKING, Check, Into, Recovery, Request, SYNCING, log, of_another_engine, plan_line, resume, steps};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::{counted, show_bytes};
use fullbore_repository::discovery;

/// Restores a full, its differential and log sets, all of databases that are one file.
///
/// # Errors
/// Any error; then the target is as before.
pub(super) fn restore(
    bases: &[discovery::Found],
    logs: &[discovery::Found],
    mut opened: reading::Opened,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let bytes = total(bases.iter().map(|found| found.database_bytes.unwrap_or(0)));
    conduct.progress.total.store(bytes, Ordering::Relaxed);
    let mut staging: Option<Staging> = None;
    let base = opened.sets.back().and_then(|set| set.manifest()).cloned();
    let streams = opened.sets.iter().map(only_stream).collect::<Result<Vec<_>>>()?;
    for (at, (found, stream)) in bases.iter().zip(streams).enumerate() {
        if request.dry_run {
            plan_line(found, report);
            if at == 0 && request.resume {
                resume::foresee(&mut opened, request, conduct, report)?;
            }
            continue;
        }
        if staging.is_none() {
            staging = Some(Staging::prepare(request, &opened.sets[0], stream.size, report)?);
        }
        let Some(staging) = staging.as_mut() else { continue };
        if at == 0 && staging.is_taken_over && resume::is_possible(&opened, report) {
            let resumed = resume::full(&mut opened, staging, &stream, conduct, report);
            reading::book(&resumed.map_err(|error| found.naming_copies(error))?, report);
            continue;
        }
        let target = staging.file_target(&stream, at == 0)?;
        let into: &dyn Target = target.as_ref().map_or(&NullTarget, |target| target);
        let outcome = opened.unpack_next(into, conduct).map_err(|error| found.naming_copies(error))?;
        report.timed(SYNCING, |_| target.as_ref().map_or(Ok(()), FileTarget::sync))?;
        reading::book(&outcome, report);
    }
    let Some(staging) = staging else {
        logs.iter().for_each(|found| plan_line(found, report));
        report.status = "planned".into();
        return Ok(());
    };
    let database = staging.restore.as_deref().map(Restorer::temporary);
    let more = !logs.is_empty() || request.reading.choice.stop_at.is_some() || request.recovery == Recovery::Later;
    let mut first = None;
    if let Some(base) = base.filter(|_| more) {
        let mut reached = log::Reached::at(log::end_of(&base)?);
        log::apply(logs, &mut reached, database, request, key, conduct, report)?;
        let refresh = request.refresh.is_some();
        first = Some(steps::First { bases, logs, database: base.database, stands: reached.stands, refresh });
    }
    conduct.check()?;
    match first.filter(|_| request.recovery == Recovery::Later) {
        Some(first) => staging.leave(|restore| steps::leave(first, restore, report)),
        None => staging.publish(request, report),
    }
}

/// Restores the set on standard input.
///
/// # Errors
/// Any error; then the target is as before.
pub(super) fn restore_piped(
    set: &mut MediaSet,
    request: &Request,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    request.set_options.refuse_others(&set.header().engine)?;
    if request.recovery == Recovery::Later {
        let why = "a set from a pipe is restored in one step";
        return Err(Error::usage("--no-recovery", why, "put the set into a file first"));
    }
    let choice = &request.reading.choice;
    if choice.stop_at.is_some() || choice.before.is_some() || request.stop.is_some() {
        let why = "a pipe has one set, so there is no choice";
        let option = if choice.before.is_some() { "--before" } else { "--stop-at" };
        return Err(Error::usage(option, why, "put the sets into files first"));
    }
    if set.header().base_backup_set_id.is_some() {
        return Err(Error::refused(
            "--from -",
            "a differential or a log set cannot be restored from a pipe alone",
            "put it and its full into files, and name both",
        ));
    }
    let engine = &set.header().engine;
    if fullbore_engines::named(engine).is_some_and(|engine| engine.file().is_none()) {
        let why =
            format!("a set of {engine} has many files, and their names are at its end: a pipe cannot go back to them");
        return Err(Error::refused("--from -", why, "put the stream into a file first, and restore from this file"));
    }
    let stream = only_stream(set)?;
    let mut staging = Staging::prepare(request, set, stream.size, report)?;
    let outcome = match staging.file_target(&stream, true)? {
        None => reading::unpack(set, &request.reading.knobs, &NullTarget, conduct, report)?,
        Some(target) => {
            let outcome = reading::unpack(set, &request.reading.knobs, &target, conduct, report)?;
            report.timed(SYNCING, |_| target.sync())?;
            outcome
        }
    };
    reading::book(&outcome, report);
    conduct.check()?;
    staging.publish(request, report)
}

/// The only stream of a set.
pub(super) fn only_stream(set: &MediaSet) -> Result<StreamRecord> {
    let header = set.header();
    fullbore_engines::file(&header.engine)?;
    match &header.streams[..] {
        [stream] => Ok(stream.clone()),
        _ => Err(Error::incomplete("media set", "a database in one file has exactly one stream", "use another set")),
    }
}

/// The unfinished database. Dropping it before it is published removes it.
pub(super) struct Staging {
    /// `None` for `nul:`.
    pub restore: Option<Box<dyn Restorer>>,
    /// The engine of the database.
    pub engine: String,
    /// A restore in steps to the same target that is discarded (`--replace`).
    given_up: Option<State>,
    /// Its file is the leftover of an interrupted restore.
    is_taken_over: bool,
}

impl Staging {
    fn prepare(request: &Request, set: &MediaSet, size: u64, report: &mut Report) -> Result<Self> {
        let engine = set.header().engine.clone();
        let Some(path) = path_of(request, set)? else {
            return Ok(Self { restore: None, engine, given_up: None, is_taken_over: false });
        };
        let directory = directory_of(&path);
        if request.mkdir {
            std::fs::create_dir_all(directory).map_err(|e| Error::io("make", directory.display().to_string(), e))?;
        }
        let (mut restore, given_up) = prepare(request, &engine, &path)?;
        let is_taken_over = request.resume && resume::take_over(&mut *restore, report)?;
        if request.resume {
            restore.keep();
        }
        report.warnings.extend(restore.leftovers().iter().map(|left| {
            format!("`{}` is the leftover of a killed restore: continue it with --resume, or remove it", left.display())
        }));
        let held = std::fs::metadata(restore.temporary()).map_or(0, |metadata| metadata.blocks() * 512);
        let free = free_space(directory)?.saturating_add(held);
        if free < size {
            return Err(Error::refused(
                directory.display().to_string(),
                format!("the database needs {} there, but {} are free", show_bytes(size), show_bytes(free)),
                "free space there, or name another target with --into",
            ));
        }
        Ok(Self { restore: Some(restore), engine, given_up, is_taken_over })
    }

    /// The file to unpack a set into; the first set of a chain makes it.
    fn file_target(&mut self, stream: &StreamRecord, first: bool) -> Result<Option<FileTarget>> {
        let Some(restore) = &mut self.restore else { return Ok(None) };
        if first {
            restore.make()?;
        }
        let mut target = FileTarget::new();
        target.add(stream.id, restore.temporary(), stream.size, first)?;
        Ok(Some(target))
    }

    fn publish(self, request: &Request, report: &mut Report) -> Result<()> {
        let engine = self.engine.clone();
        self.leave(|restore| {
            if let Some(depth) = depth_of(request.check) {
                report.timed(CHECKING, |_| check(&engine, restore.temporary(), restore.target(), depth))?;
            }
            report.warnings.extend(restore.publish()?);
            Ok(())
        })
    }

    /// Lets `publish` give the restored database its name; if that fails, nothing stays.
    fn leave(mut self, publish: impl FnOnce(Box<dyn Restorer>) -> Result<()>) -> Result<()> {
        let Some(restore) = self.restore.take() else { return Ok(()) };
        self.given_up.take().map_or(Ok(()), |state| state.give_up())?;
        publish(restore)
    }
}

/// How the engine checks a file; `None` without a check.
pub(super) fn depth_of(check: Option<Check>) -> Option<Depth> {
    match check? {
        Check::None => None,
        Check::Quick => Some(Depth::Quick),
        Check::Full => Some(Depth::Full),
    }
}

/// Lets the engine check a restored file. Returns the problems; `None` if there are none.
///
/// # Errors
/// The file cannot be read.
pub(in crate::job) fn found_by_check(engine: &str, file: &Path, depth: Depth) -> Result<Option<String>> {
    let problems = fullbore_engines::file(engine)?.check(file, depth)?;
    let found = counted(problems.len() as u64, "problem");
    let say = |first: &String| format!("the check finds {found} in the restored database; the first: {first}");
    Ok(problems.first().map(say))
}

/// Lets the engine check the restored database.
///
/// # Errors
/// It finds problems, or the file cannot be read.
pub(super) fn check(engine: &str, file: &Path, target: &Path, depth: Depth) -> Result<()> {
    found_by_check(engine, file, depth)?.map_or(Ok(()), |why| {
        Err(Error::refused(
            target.display().to_string(),
            why,
            "the database was damaged when it was backed up; restore without --check to look at it",
        ))
    })
}

/// Checks that a database can be restored there; returns also a restore in steps that is discarded for it.
pub(super) fn prepare(request: &Request, engine: &str, path: &Path) -> Result<(Box<dyn Restorer>, Option<State>)> {
    let given_up = super::state_of(&request.into)?;
    let over = match &given_up {
        Some(known) if !request.replace => return Err(known.refusal()),
        Some(_) => Over::State,
        None if request.replace => Over::Database,
        None => Over::Nothing,
    };
    Ok((fullbore_engines::file(engine)?.prepare(path, over)?, given_up))
}

/// The path of the database; `None` for `nul:`.
pub(super) fn path_of(request: &Request, set: &MediaSet) -> Result<Option<PathBuf>> {
    let directory = match &request.into {
        Into::Null => return Ok(None),
        Into::File { engine, path } if *engine == set.header().engine => return Ok(Some(path.clone())),
        Into::File { engine, path } => return Err(of_another_engine(engine, path, &set.header().engine)),
        Into::Directory(directory) => directory,
        Into::Media { .. } | Into::Server { .. } => return Err(of_a_database(&request.into, &set.header().engine)),
    };
    let name = set.manifest().and_then(|manifest| manifest.streams.first()).map(|stream| stream.name.clone());
    let name = name.filter(|name| !name.is_empty() && !name.contains('/') && name != "." && name != "..");
    let name = name.unwrap_or_else(|| "database.db".into());
    must_be_empty(directory, request.replace, request.resume.then_some(&name))?;
    Ok(Some(directory.join(name)))
}

/// Refuses a directory that is not empty without `--replace`. Leftovers of killed restores of the database `resumed`
/// are allowed.
fn must_be_empty(directory: &Path, replace: bool, resumed: Option<&String>) -> Result<()> {
    let is_left = |name: &str| resumed.is_some_and(|resumed| name.starts_with(&format!("{resumed}.restoring-")));
    let holds_something = std::fs::read_dir(directory)
        .is_ok_and(|entries| entries.flatten().any(|entry| !entry.file_name().to_str().is_some_and(is_left)));
    if replace || !holds_something {
        return Ok(());
    }
    Err(Error::refused(
        directory.display().to_string(),
        "is not empty",
        "restore into an empty directory, or add --replace to replace the database of the same name in it",
    ))
}
