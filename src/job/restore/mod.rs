//! RESTORE DATABASE: from families to a database that appears under its name only when it is whole.

mod directory;
mod log;
mod outside;
mod owner;
mod other_tables;
mod resume;
mod start;
mod state;
mod steps;
mod table;
mod unfinished;

use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullbore_core::cipher::SecretKey;
use fullbore_core::device::{Device, without_password};
use fullbore_core::io::{LockableFile, directory_of, free_space};
use fullbore_core::media::{SetKind, StreamRecord, total};
use fullbore_core::unpack::{FileTarget, MediaSet, NullTarget, Target};
use fullbore_core::{Error, Result};
use fullbore_engines::sqlite::{integrity, restore as sqlite};

pub use owner::Owner;
pub use start::StartCheck;
pub use table::Tables;

use super::reading::{self, Media, Reading};
use super::{Conduct, media};
use crate::chain::steps::Standing;
use crate::chain::{self, Choice};
use crate::report::Report;
use crate::units::{counted, show_bytes};

/// What takes time beside the moving of bytes, as the verdict names it.
const SYNCING: &str = "syncing the database";
const CHECKING: &str = "integrity check";

/// Where a restore goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Into {
    /// `sqlite:FILE`.
    Sqlite(PathBuf),
    /// `dir:PATH`: the database's file in it, under the name it had.
    Directory(PathBuf),
    /// `nul:`: everything is read and unpacked, nothing kept.
    Null,
}

impl Into {
    /// Understands what follows `--into`.
    ///
    /// # Errors
    /// A usage error that names the known forms.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::usage(format!("--into {}", without_password(text)), why, "write sqlite:FILE, dir:PATH or nul:")
        };
        match text.split_once(':') {
            Some(("sqlite" | "dir", "")) => Err(wrong("the path is missing")),
            Some(("sqlite", path)) => Ok(Into::Sqlite(path.into())),
            Some(("dir", path)) => Ok(Into::Directory(path.into())),
            Some(("nul", "")) => Ok(Into::Null),
            Some(("mysql" | "mariadb" | "postgresql" | "sqlserver", _)) => {
                Err(wrong("this version cannot restore into a server yet"))
            }
            _ => Err(wrong("this is not a target")),
        }
    }
}

/// Whether what is restored is a database at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Recovery {
    /// It is: all of it is restored in one go.
    #[default]
    AtOnce,
    /// `--no-recovery`: more is to come.
    Later,
    /// `--recovery`: this was the last step.
    Now,
}

/// What the user asked for.
#[derive(Clone)]
pub struct Request {
    /// What is read.
    pub reading: Reading,
    /// `--into`.
    pub into: Into,
    /// `--replace`.
    pub replace: bool,
    /// `--no-recovery`, `--recovery`.
    pub recovery: Recovery,
    /// `--mkdir`.
    pub mkdir: bool,
    /// `--resume`: goes on with what an interrupted restore has left, and leaves it for another one.
    pub resume: bool,
    /// `--dry-run`.
    pub dry_run: bool,
    /// `--integrity-check`: SQLite checks the file before it gets its name.
    pub integrity_check: bool,
    /// `--continue-after-error`: a set with pages that were damaged at the source is restored as it is.
    pub continue_after_error: bool,
    /// `--place-outside`: tablespaces that stood outside of the data directory go where they stood.
    pub place_outside: bool,
    /// `--owner`: whose the restored files of a server are.
    pub owner: Option<Owner>,
    /// `--start-check`: the server is started on the restored directory before that gets its name.
    pub start_check: Option<StartCheck>,
    /// `--table`: single tables are handed out, and nothing else restored.
    pub tables: Option<Tables>,
}

/// Runs the restore and fills `report`, also when it fails.
///
/// # Errors
/// Whatever stops it; then the target is as it was.
pub fn run(request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let begun = Instant::now();
    report.database_at = match &request.into {
        Into::Sqlite(path) | Into::Directory(path) => Some(path.display().to_string()),
        Into::Null => None,
    };
    resume::refuse(request)?;
    if steps::go_on(request, conduct, report)? {
        report.set_speed(begun.elapsed().as_secs_f64());
        return Ok(());
    }
    match report.timed(reading::FINDING, |_| request.reading.begin(conduct))? {
        (_, Media::Piped(mut set)) => restore_piped(&mut set, request, conduct, report)?,
        (key, Media::Heap(heap)) => {
            let done = restore_found(heap, request, key.as_ref(), conduct, report);
            done.inspect_err(|_| resume::tell_what_stays(report))?;
        }
    }
    report.set_speed(begun.elapsed().as_secs_f64());
    Ok(())
}

/// Which sets to restore, in order. A family that cannot be read does not stop it, but is named.
pub(super) fn choose(heap: &mut media::Heap, choice: &Choice) -> Result<chain::Sequence> {
    choose_by(heap, choice, chain::choose)
}

/// The same by another rule.
pub(super) fn choose_by(
    heap: &mut media::Heap,
    choice: &Choice,
    rule: impl Fn(&[chain::FoundSet], &Choice) -> Result<chain::Sequence>,
) -> Result<chain::Sequence> {
    let known = heap.known();
    let damaged = heap.unreadable.iter().position(|unreadable| !unreadable.leftover);
    let mut sequence = match (rule(&known, choice), damaged) {
        (Err(Error::Incomplete { .. }), Some(at)) if choice.set.is_none() => {
            // It may be the missing family of the set that is meant.
            return Err(heap.unreadable.swap_remove(at).error);
        }
        (chosen, _) => chosen?,
    };
    if choice.set.is_none() {
        sequence.warnings.extend(chain::clock_doubts(&known, jiff::Timestamp::now().as_microsecond()));
    }
    for other in heap.unreadable.iter().filter(|unreadable| !unreadable.leftover) {
        let why = media::one_line(&other.error);
        let mine = |at: &usize| Some(heap.sets[*at].media_set_id) == other.set;
        sequence.warnings.push(match other.set {
            Some(_) if sequence.sets.iter().any(mine) => format!("not used, for there is another of it: {why}"),
            Some(id) => format!("not used: {why}; it belongs to media set {id}"),
            None => {
                format!("not used: {why}; its header does not tell its set, which may be newer than the one restored")
            }
        });
    }
    Ok(sequence)
}

/// Chooses the sets and opens them: nobody takes them away then. Where another backup has just taken a name of theirs, it
/// chooses anew.
fn choose_and_open(
    mut heap: media::Heap,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<(Vec<media::Found>, reading::Opened)> {
    loop {
        let sequence = choose(&mut heap, &request.reading.choice)?;
        // Log sets are opened when their turn comes: there may be very many.
        let found = sequence.sets.iter().map(|&at| &heap.sets[at]).filter(|found| found.set.kind != SetKind::Log);
        let found: Vec<_> = found.collect();
        match reading::open(&found, &request.reading.knobs, key, report) {
            Err(_) if !found.iter().all(|found| found.is_in_place()) => heap = request.reading.find(key, conduct)?,
            opened => {
                let opened = opened?;
                refuse_media_as_target(request, &heap)?;
                heap.book_notes(report);
                report.warnings.extend(sequence.warnings);
                report.notes.extend(sequence.notes);
                let mut sets: Vec<_> = heap.sets.into_iter().map(Some).collect();
                return Ok((sequence.sets.iter().filter_map(|&at| sets[at].take()).collect(), opened));
            }
        }
    }
}

fn restore_found(
    heap: media::Heap,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let chosen = report.timed(reading::OPENING, |report| choose_and_open(heap, request, key, conduct, report));
    let (mut sequence, mut opened) = chosen?;
    let logs = sequence.split_off(opened.sets.len());
    if request.recovery == Recovery::Later {
        steps::refuse_servers(&sequence)?;
    }
    if sequence.last().is_some_and(|found| found.header.open) {
        if let Some(tables) = &request.tables {
            return table::restore(&sequence, opened, request, tables, conduct, report);
        }
        return directory::restore(&sequence, opened, request, conduct, report);
    }
    refuse_start_check(request)?;
    table::refuse(request)?;
    let bytes = total(sequence.iter().map(|found| found.database_bytes.unwrap_or(0)));
    conduct.progress.total.store(bytes, std::sync::atomic::Ordering::Relaxed);
    let mut place: Option<Place> = None;
    let base = opened.sets.back().and_then(|set| set.manifest()).cloned();
    let streams = opened.sets.iter().map(only_stream).collect::<Result<Vec<_>>>()?;
    for (at, (found, stream)) in sequence.iter().zip(streams).enumerate() {
        if request.dry_run {
            plan_line(found, report);
            if at == 0 && request.resume {
                resume::foresee(&mut opened, request, conduct, report)?;
            }
            continue;
        }
        if place.is_none() {
            place = Some(Place::prepare(request, &opened.sets[0], stream.size, report)?);
        }
        let Some(place) = place.as_mut() else { continue };
        if at == 0 && place.is_taken_over() && resume::is_possible(&opened, report) {
            let resumed = resume::full(&mut opened, place, &stream, conduct, report);
            reading::book(&resumed.map_err(|error| found.naming_copies(error))?, report);
            continue;
        }
        let target = place.file_target(&stream, at == 0)?;
        let into: &dyn Target = target.as_ref().map_or(&NullTarget, |target| target);
        let outcome = opened.unpack_next(into, conduct).map_err(|error| found.naming_copies(error))?;
        report.timed(SYNCING, |_| target.as_ref().map_or(Ok(()), FileTarget::sync))?;
        reading::book(&outcome, report);
    }
    let Some(place) = place else {
        logs.iter().for_each(|found| plan_line(found, report));
        report.status = "planned".into();
        return Ok(());
    };
    let database = place.restore.as_ref().map(sqlite::Restore::temporary);
    let more = !logs.is_empty() || request.reading.choice.stop_at.is_some() || request.recovery == Recovery::Later;
    let mut first = None;
    if let Some(base) = base.filter(|_| more) {
        let mut reached = log::Reached::at(steps::end_of(&base)?);
        log::apply(&logs, &mut reached, database, request, key, conduct, report)?;
        first = Some(steps::First { bases: &sequence, logs: &logs, database: base.database, stands: reached.stands });
    }
    conduct.check()?;
    match first.filter(|_| request.recovery == Recovery::Later) {
        Some(first) => place.leave(|restore| steps::leave(&first, restore, report)),
        None => place.publish(request, report),
    }
}

/// Where the target stands that the request goes on with, if it does.
///
/// # Errors
/// That cannot be read.
pub(super) fn standing(request: &Request) -> Result<Option<Standing>> {
    let goes_on = request.recovery != Recovery::AtOnce && !request.replace;
    Ok(state_of(&request.into)?.filter(|_| goes_on).map(|state| state.standing()))
}

/// How far the target is that is being restored in steps.
fn state_of(into: &Into) -> Result<Option<state::State>> {
    match into {
        Into::Sqlite(path) => state::State::at(path),
        Into::Directory(_) | Into::Null => Ok(None),
    }
}

/// Only a server's directory can be started.
fn refuse_start_check(request: &Request) -> Result<()> {
    if request.start_check.is_none() {
        return Ok(());
    }
    let why = "only a server can be started on what is restored: MySQL and MariaDB, into dir:PATH";
    Err(Error::usage("--start-check", why, "leave it out; --integrity-check lets SQLite check a database"))
}

/// A restore must not take the place of what it reads, or of any other family that it was shown.
fn refuse_media_as_target(request: &Request, heap: &media::Heap) -> Result<()> {
    let Into::Sqlite(target) = &request.into else { return Ok(()) };
    let identity = Device::file(target.clone()).identity();
    let mut devices = heap.sets.iter().flat_map(|found| &found.devices);
    if devices.any(|device| device.identity() == identity) {
        let shown = format!("--into sqlite:{}", target.display());
        return Err(Error::usage(shown, "is one of the media families named with --from", "name another file"));
    }
    Ok(())
}

pub(super) fn plan_line(found: &media::Found, report: &mut Report) {
    let of_log = found.set.log_range.as_ref().filter(|_| found.set.kind == SetKind::Log);
    report.sets.push(format!(
        "{}, {} in {}{}",
        chain::title(&found.set),
        show_bytes(found.stored_bytes),
        counted(found.families.into(), "family"),
        of_log.map_or_else(String::new, |range| format!(", commits up to {}", chain::moment::show(range.at)))
    ));
    report.stored_bytes += found.stored_bytes;
    report.kind = Some(found.set.kind.to_string());
    report.backup_set_id = Some(found.set.backup_set_id.to_string());
    report.media_set_id = Some(found.media_set_id.to_string());
}

fn restore_piped(set: &mut MediaSet, request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    refuse_start_check(request)?;
    table::refuse(request)?;
    if request.recovery == Recovery::Later {
        let why = "what comes from a pipe is restored in one go";
        return Err(Error::usage("--no-recovery", why, "put the set into a file first"));
    }
    if request.reading.choice.stop_at.is_some() {
        let why = "a pipe holds one set, and nothing to choose from";
        return Err(Error::usage("--stop-at", why, "put the sets into files first"));
    }
    if set.header().base_backup_set_id.is_some() {
        return Err(Error::refused(
            "--from -",
            "a differential or a log set cannot be restored from a pipe alone",
            "name its full and it as files",
        ));
    }
    let stream = only_stream(set)?;
    let mut place = Place::prepare(request, set, stream.size, report)?;
    let outcome = match place.file_target(&stream, true)? {
        None => reading::unpack(set, &request.reading.knobs, &NullTarget, conduct, report)?,
        Some(target) => {
            let outcome = reading::unpack(set, &request.reading.knobs, &target, conduct, report)?;
            report.timed(SYNCING, |_| target.sync())?;
            outcome
        }
    };
    reading::book(&outcome, report);
    conduct.check()?;
    place.publish(request, report)
}

/// The one stream of an SQLite database.
fn only_stream(set: &MediaSet) -> Result<StreamRecord> {
    let header = set.header();
    match (&header.engine[..], &header.streams[..]) {
        ("sqlite", [stream]) => Ok(stream.clone()),
        ("sqlite", _) => {
            Err(Error::incomplete("media set", "an SQLite backup has exactly one stream", "use another set"))
        }
        (engine, _) => Err(Error::refused(
            format!("media set {}", header.media_set_id),
            format!("it is a backup of `{engine}`, which this version cannot restore"),
            "use a newer fullbore",
        )),
    }
}

/// Where the database is put together. Dropped before it is published, it removes what it made.
struct Place {
    restore: Option<sqlite::Restore>,
    /// What was restored in steps to the same target, and is given up (`--replace`).
    given_up: Option<state::State>,
    /// The temporary file, locked while it is written.
    lock: Option<LockableFile>,
    /// What is not published stays for another restore.
    keep: bool,
}

impl Place {
    fn prepare(request: &Request, set: &MediaSet, size: u64, report: &mut Report) -> Result<Self> {
        let Some(path) = path_of(request, set)? else {
            return Ok(Self { restore: None, given_up: None, lock: None, keep: false });
        };
        let directory = directory_of(&path);
        if request.mkdir {
            std::fs::create_dir_all(directory).map_err(|e| Error::io("make", directory.display().to_string(), e))?;
        }
        let (mut restore, given_up) = prepare(request, &path)?;
        let lock = if request.resume { resume::take_over(&mut restore, report)? } else { None };
        report.warnings.extend(restore.leftovers().iter().map(|left| {
            format!(
                "`{}` is what a killed restore has left; --resume goes on with it, or it can be removed",
                left.display()
            )
        }));
        let held = lock.as_ref().and_then(|lock| lock.metadata().ok()).map_or(0, |metadata| metadata.blocks() * 512);
        let free = free_space(directory)?.saturating_add(held);
        if free < size {
            return Err(Error::refused(
                directory.display().to_string(),
                format!("the database needs {} there, and {} are free", show_bytes(size), show_bytes(free)),
                "free space there, or name another target with --into",
            ));
        }
        Ok(Self { restore: Some(restore), given_up, lock, keep: request.resume })
    }

    /// Its file is there already: an interrupted restore has left it.
    fn is_taken_over(&self) -> bool {
        self.lock.is_some()
    }

    /// The file that a set is unpacked into; the first set of a chain makes it.
    fn file_target(&mut self, stream: &StreamRecord, first: bool) -> Result<Option<FileTarget>> {
        let Some(restore) = &self.restore else { return Ok(None) };
        let path = restore.temporary();
        match &self.lock {
            Some(taken_over) if first => {
                let emptied = taken_over.set_len(0);
                emptied.map_err(|e| Error::io("empty", path.display().to_string(), e))?;
            }
            None if first => self.lock = Some(make_locked(path)?),
            _ => {}
        }
        let mut target = FileTarget::new();
        target.add(stream.id, path, stream.size, first)?;
        Ok(Some(target))
    }

    fn publish(self, request: &Request, report: &mut Report) -> Result<()> {
        self.leave(|restore| {
            if request.integrity_check {
                let check = || check_integrity(restore.temporary(), restore.target(), integrity::Depth::Full);
                report.timed(CHECKING, |_| check())?;
            }
            report.warnings.extend(restore.publish(&|_| Ok(()))?);
            Ok(())
        })
    }

    /// Lets `publish` give names to what was restored; without success nothing of it stays.
    fn leave(mut self, publish: impl FnOnce(&sqlite::Restore) -> Result<()>) -> Result<()> {
        let Some(restore) = self.restore.take() else { return Ok(()) };
        let given_up = self.given_up.take().map_or(Ok(()), |state| state.give_up());
        let keep = self.keep;
        given_up.and_then(|()| publish(&restore)).inspect_err(|_| {
            if !keep {
                restore.abandon();
            }
        })
    }
}

/// Lets SQLite check what was restored.
fn check_integrity(file: &Path, target: &Path, depth: integrity::Depth) -> Result<()> {
    let problems = integrity::check(file, depth)?;
    problems.first().map_or(Ok(()), |problem| {
        Err(Error::refused(
            target.display().to_string(),
            format!("SQLite finds {} problems in the restored database; the first: {problem}", problems.len()),
            "the database was damaged when it was backed up; restore without --integrity-check to look at it",
        ))
    })
}

/// Finds out whether a database can be restored there, and what was restored in steps and is given up for it.
fn prepare(request: &Request, path: &Path) -> Result<(sqlite::Restore, Option<state::State>)> {
    let given_up = state_of(&request.into)?;
    let restore = match &given_up {
        Some(known) if !request.replace => return Err(known.refusal()),
        Some(_) => sqlite::prepare_over_what_goes(path)?,
        None => sqlite::prepare(path, request.replace)?,
    };
    Ok((restore, given_up))
}

/// Where the database is to be; `None` for `nul:`.
fn path_of(request: &Request, set: &MediaSet) -> Result<Option<PathBuf>> {
    let directory = match &request.into {
        Into::Null => return Ok(None),
        Into::Sqlite(path) => return Ok(Some(path.clone())),
        Into::Directory(directory) => directory,
    };
    let name = set.manifest().and_then(|manifest| manifest.streams.first()).map(|stream| stream.name.clone());
    let name = name.filter(|name| !name.is_empty() && !name.contains('/') && name != "." && name != "..");
    let name = name.unwrap_or_else(|| "database.db".into());
    must_be_empty(directory, request.replace, request.resume.then_some(&name))?;
    Ok(Some(directory.join(name)))
}

/// Makes the temporary file. Its lock tells a running restore from a killed one; others than its owner may not read it yet.
fn make_locked(path: &Path) -> Result<LockableFile> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let made = LockableFile::from(made.map_err(|e| Error::io("create", path.display().to_string(), e))?);
    // Another run that looks whether this is a leftover holds it for an instant.
    let locked = || !matches!(made.try_lock(), Err(std::fs::TryLockError::WouldBlock));
    let _ = (0..100).any(|_| {
        locked() || {
            std::thread::sleep(Duration::from_millis(1));
            false
        }
    });
    Ok(made)
}

/// A directory that holds anything is left alone without `--replace`; but for what killed restores of the database `resumed` have left.
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

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(restore) = self.restore.take().filter(|_| !self.keep) {
            restore.abandon();
        }
    }
}
