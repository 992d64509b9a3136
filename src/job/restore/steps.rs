//! A restore in steps (`--no-recovery`, `--recovery`): under the name of the target is a small text that applications
//! do not take for a database. The database grows beside it, and the last step gives it its name. The reasons are in
//! `docs/decisions/0016-restore-in-steps.md`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::Path;
use std::sync::atomic::Ordering;

use fullbore_core::cipher::SecretKey;
use fullbore_core::io::{LockableFile, sync_directory};
use fullbore_core::media::{SetKind, total};
use fullbore_core::unpack::FileTarget;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{FileEngine, Restorer, SetEnd};

use super::super::reading::{self, Media};
use super::file::{self, only_stream};
use super::log::{self, Reached};
use super::state::{Applied, Doing, State, Written};
use super::{CHECKING, Check, Into, Recovery, Request, SYNCING, plan_line};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_repository::chain::{self, Sequence, moment};
use fullbore_repository::discovery;

/// The hint if the unfinished database was changed.
const BEGIN_ANEW: &str = "begin anew, with --no-recovery --replace and the full";

/// Continues a target that is being restored in steps; false if the target is not: then this is the first step, or a
/// restore in one step.
///
/// # Errors
/// The sets do not continue it, or the unfinished database was changed. The target is as before, or the step can be
/// repeated.
pub(super) fn go_on(request: &Request, conduct: &Conduct, report: &mut Report) -> Result<bool> {
    let option = match request.recovery {
        Recovery::AtOnce => return Ok(false),
        Recovery::Later => "--no-recovery",
        Recovery::Now => "--recovery",
    };
    let Into::File { engine, path: target } = &request.into else {
        let hint = "name the file: --into sqlite:FILE; a full of a server and its differential are restored in one \
                    step: name both with --from";
        return Err(Error::usage(option, "only an SQLite database can be restored in steps, into a file", hint));
    };
    request.set_options.refuse_others(engine)?;
    match State::at(target)? {
        Some(state) if !request.replace => Step::begin(state, request)?.run(conduct, report).map(|()| true),
        None if request.reading.from.is_empty() => {
            let (shown, hint) = (target.display().to_string(), "name the sets to restore with --from");
            if target.exists() {
                return Err(Error::refused(shown, "is not being restored in steps", hint));
            }
            Err(Error::usage(shown, "does not exist: no restore in steps has begun there", hint))
        }
        Some(_) | None => Ok(false),
    }
}

/// Refuses sets of a server, before anything is written.
pub(super) fn refuse_servers(found: &[discovery::Found]) -> Result<()> {
    let of_server = |found: &&discovery::Found| fullbore_engines::file(&found.header.engine).is_err();
    found.iter().find(of_server).map_or(Ok(()), |found| {
        let why = "is of a server, but only SQLite databases can be restored in steps";
        let hint = "restore its full and its differential in one step: name both with --from";
        Err(Error::usage(chain::title(&found.set), why, hint))
    })
}

/// The result of the first step: the sets, in order, and the position of the database.
pub(super) struct First<'a> {
    pub bases: &'a [discovery::Found],
    pub logs: &'a [discovery::Found],
    pub database: String,
    pub stands: SetEnd,
    /// It is the first run of a migration.
    pub refresh: bool,
}

/// The end of the first step: the database gets its working name, and then the state gets the name of the target.
///
/// # Errors
/// The target was made meanwhile, or cannot be written to: then nothing stays.
pub(super) fn leave(first: First<'_>, restore: Box<dyn Restorer>, report: &mut Report) -> Result<()> {
    let (target, temporary) = (restore.target().to_owned(), restore.temporary().to_owned());
    let full = first.bases.first().ok_or(Error::Halted)?;
    let written = Written {
        format: 1,
        working: State::working_name(&target),
        engine: full.header.engine.clone(),
        database: first.database.clone(),
        full: full.set.backup_set_id,
        differential: None,
        encrypted: false,
        last: Applied::of(full),
        logs: 0,
        until: 0,
        stands: serde_json::Value::Null,
        doing: None,
    };
    let mut state = State { target, written };
    state.applied(first.stands, first.bases, first.logs, None);
    let (text, working) = (state.text()?, state.working());
    let failed = |error| Error::io("write", state.target.display().to_string(), error);
    File::open(&temporary).and_then(|file| file.sync_all()).map_err(failed)?;
    fs::rename(&temporary, &working).map_err(failed)?;
    let publish = || {
        sync_directory(working.parent().unwrap_or(Path::new("/")))?;
        let mut file = OpenOptions::new();
        let file = std::os::unix::fs::OpenOptionsExt::mode(file.write(true).create_new(true), 0o600).open(&temporary);
        file.and_then(|mut file| std::io::Write::write_all(&mut file, &text)).map_err(failed)?;
        restore.publish()
    };
    match publish() {
        Ok(warnings) => {
            report.warnings.extend(warnings);
            report.warnings.extend(
                state.orphans().iter().map(|left| format!("`{left}` is the leftover of a killed restore: remove it")),
            );
            report.restoring = true;
            report.notes.push(state.note(first.refresh));
            Ok(())
        }
        Err(error) => {
            let _ = fs::remove_file(&working); // Nothing points to it; the first error counts.
            Err(error)
        }
    }
}

/// One further step on a target.
struct Step<'a> {
    state: State,
    /// The database under its working name, locked.
    database: LockableFile,
    request: &'a Request,
}

impl<'a> Step<'a> {
    fn begin(state: State, request: &'a Request) -> Result<Self> {
        let (path, shown) = (state.working(), state.target.display().to_string());
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let database = opened.map_err(|error| {
            let error = Error::io("open", path.display().to_string(), error);
            error.noting(
                "it is the unfinished database: without it begin anew, with --no-recovery --replace and the full",
            )
        })?;
        let database = LockableFile::from(database);
        if matches!(database.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(Error::refused(shown, "another restore is running on it", "wait until that restore has ended"));
        }
        // Another step may have ended between the look and the lock.
        if State::at(&state.target)?.as_ref() != Some(&state) {
            let why = "another restore has just changed it";
            return Err(Error::refused(shown, why, "look at it, and run this again"));
        }
        log::clear(&path, &state.written.engine);
        let step = Self { state, database, request };
        step.check_file()?;
        Ok(step)
    }

    /// Checks that no other program has written to it since the last step.
    fn check_file(&self) -> Result<()> {
        let path = self.state.working();
        if let Some(side) = self.engine()?.sign_of_use(&path) {
            let why = format!("an application has opened it: `{}` exists", side.display());
            return Err(Error::refused(path.display().to_string(), why, BEGIN_ANEW));
        }
        let (stands, metadata) = (self.state.end()?, self.database.metadata());
        let length = metadata.map_err(|e| Error::io("look at", path.display().to_string(), e))?.len();
        let wanted = stands.file_bytes.unwrap_or(length);
        if self.state.written.doing.is_none() && length != wanted {
            let why = format!("has {length} bytes, but had {wanted} when the last step ended");
            return Err(Error::refused(path.display().to_string(), why, BEGIN_ANEW));
        }
        Ok(())
    }

    fn engine(&self) -> Result<&'static dyn FileEngine> {
        fullbore_engines::file(&self.state.written.engine)
    }

    fn run(mut self, conduct: &Conduct, report: &mut Report) -> Result<()> {
        let (engine, name) = (self.engine()?, self.state.written.engine.clone());
        report.engine = Some(name.clone());
        report.database = Some(self.state.written.database.clone());
        if self.request.reading.from.is_empty() {
            if let Some(doing) = &self.state.written.doing {
                return Err(self.broken_off(doing));
            }
            self.state.describe(report);
        } else {
            match self.request.reading.begin(conduct)? {
                (key, Media::DiscoveredSets(discovered)) => self.apply(discovered, key.as_ref(), conduct, report)?,
                (_, Media::Piped(_)) => {
                    let why = "a set from a pipe cannot be examined before it is applied";
                    return Err(Error::usage("--from -", why, "put the set into a file first"));
                }
            }
        }
        if self.request.dry_run {
            report.status = "planned".into();
            return Ok(());
        }
        conduct.check()?;
        if self.request.recovery == Recovery::Later {
            report.restoring = true;
            report.notes.push(self.state.note(self.request.refresh.is_some()));
            return Ok(());
        }
        if let Some(depth) = file::depth_of(self.request.check.or(Some(Check::Quick))) {
            report.timed(CHECKING, |_| file::check(&name, &self.state.working(), &self.state.target, depth))?;
        }
        engine.refuse_side_files(&self.state.target)?;
        self.state.finish(&self.database)
    }

    /// Applies the sets that continue the target.
    fn apply(
        &mut self,
        mut discovered: discovery::DiscoveredSets,
        key: Option<&SecretKey>,
        conduct: &Conduct,
        report: &mut Report,
    ) -> Result<()> {
        discovered.learn_log_ranges(key, true)?;
        let sequence = chain::steps::go_on(&discovered.known(), &self.state.standing(), &self.request.reading.choice)?;
        report.notes.extend(discovered.all_notes());
        let (bases, logs) = take(discovered, sequence, report);
        refuse_servers(&bases)?;
        let doing = self.doing(&bases, &logs)?;
        if self.request.dry_run {
            bases.iter().chain(&logs).for_each(|found| plan_line(found, report));
            return Ok(());
        }
        let bytes = total(bases.iter().chain(&logs).filter_map(|found| found.database_bytes));
        conduct.progress.total.store(bytes, Ordering::Relaxed);
        let opened = bases.first().map(|found| reading::open(&[found], &self.request.reading.knobs, key, true, report));
        let opened = opened.transpose()?;
        // From here on the file is in a state in between, until the new state is written.
        let before = std::mem::replace(&mut self.state.written.doing, doing);
        self.state.write()?;
        let mut stands = self.state.end()?;
        if let (Some(opened), Some(found)) = (opened, bases.first()) {
            stands = self.apply_differential(opened, found, conduct, report)?;
        }
        let (mut reached, working) = (Reached::at(stands), self.state.working());
        let applied = match logs.is_empty() {
            true => Ok(()),
            false => log::apply(&logs, &mut reached, Some(&working), self.request, key, conduct, report),
        };
        self.write_down(&bases, &logs, &reached, before)?;
        applied.map_err(|error| match self.state.written.doing {
            None => error.noting(&format!("the target is now at {}", self.state.written.last.title)),
            Some(_) => error,
        })
    }

    /// Records the new state, also if a set failed. Without a valid position the step has to be repeated.
    fn write_down(
        &mut self,
        bases: &[discovery::Found],
        logs: &[discovery::Found],
        reached: &Reached,
        before: Option<Doing>,
    ) -> Result<()> {
        if !reached.whole {
            return Ok(());
        }
        let done = &logs[..reached.sets];
        let again = |doing: &Doing| bases.iter().chain(done).any(|found| found.set.backup_set_id == doing.last.id);
        if before.as_ref().is_some_and(|before| !again(before)) {
            // The step that an earlier run has begun is not yet repeated.
            self.state.written.doing = before;
            return self.state.write();
        }
        let synced = self.database.sync_all();
        synced.map_err(|e| Error::io("sync", self.state.working().display().to_string(), e))?;
        let stop_at = self.request.reading.choice.stop_at.filter(|_| done.len() == logs.len());
        self.state.applied(reached.stands.clone(), bases, done, stop_at);
        self.state.write()
    }

    fn apply_differential(
        &self,
        mut opened: reading::Opened,
        found: &discovery::Found,
        conduct: &Conduct,
        report: &mut Report,
    ) -> Result<SetEnd> {
        let set = opened.sets.front().ok_or(Error::Halted)?;
        let stream = only_stream(set)?;
        let manifest = set.manifest().cloned();
        let mut target = FileTarget::new();
        target.add(stream.id, &self.state.working(), stream.size, false)?;
        let outcome = opened.unpack_next(&target, conduct).map_err(|error| found.naming_copies(error))?;
        reading::book(&outcome, report);
        report.timed(SYNCING, |_| target.sync())?;
        log::end_of(manifest.as_ref().ok_or(Error::Halted)?)
    }

    /// What this step will do. It must include everything that an interrupted step has begun.
    fn doing(&self, bases: &[discovery::Found], logs: &[discovery::Found]) -> Result<Option<Doing>> {
        let Some(last) = logs.last().or(bases.last()) else { return Ok(self.state.written.doing.clone()) };
        let stop_at = self.request.reading.choice.stop_at.filter(|_| !logs.is_empty());
        let differential = bases.first().map(|found| found.set.backup_set_id);
        if let Some(begun) = &self.state.written.doing {
            let is_it = |found: &discovery::Found| found.set.backup_set_id == begun.last.id;
            let farther = !is_it(last) || stop_at.is_none_or(|stop| begun.stop_at.is_some_and(|begun| begun <= stop));
            let reaches = bases.iter().chain(logs).any(is_it);
            if differential != begun.differential || !reaches || !farther {
                return Err(self.broken_off(begun));
            }
        }
        Ok(Some(Doing { differential, last: Applied::of(last), stop_at }))
    }

    fn broken_off(&self, doing: &Doing) -> Error {
        let until = doing.stop_at.map_or_else(String::new, |stop| format!(", up to {}", moment::show_with_local(stop)));
        let why = format!("a step was interrupted while it applied sets up to {}{until}", doing.last.title);
        let hint =
            "repeat that step, with the same sets or more; or begin anew, with --no-recovery --replace and the full";
        Error::refused(self.state.target.display().to_string(), why, hint)
    }
}

/// The chosen sets: at most a differential, and log sets.
fn take(
    discovered: discovery::DiscoveredSets,
    sequence: Sequence,
    report: &mut Report,
) -> (Vec<discovery::Found>, Vec<discovery::Found>) {
    report.warnings.extend(sequence.warnings);
    report.notes.extend(sequence.notes);
    let mut sets: Vec<_> = discovered.sets.into_iter().map(Some).collect();
    let chosen = sequence.sets.iter().filter_map(|&at| sets[at].take());
    chosen.partition(|found| found.set.kind != SetKind::Log)
}
