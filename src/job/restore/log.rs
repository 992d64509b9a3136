//! Log sets, over a restored database that has no name yet: one after the other, up to a point in time.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fullbore_core::cipher::SecretKey;
use fullbore_core::io::free_space;
use fullbore_core::media::total;
use fullbore_core::unpack::{FileTarget, NullTarget};
use fullbore_core::{Error, Result};
use fullbore_engines::sqlite::log_backup::apply::Unpacked;
use fullbore_engines::sqlite::log_backup::{End, LogEnd, session::STREAMS};

use super::super::reading::{self, Opened};
use super::super::{Conduct, media};
use super::Request;
use crate::chain::{self, moment};
use crate::report::Report;
use crate::units::show_bytes;

/// The two streams of a set, in files beside the database; removed when dropped.
struct Unpacking {
    paths: [PathBuf; 2],
}

impl Unpacking {
    fn beside(database: &Path) -> Self {
        Self {
            paths: STREAMS.map(|(_, name)| {
                let mut path = database.as_os_str().to_owned();
                path.push(format!(".{name}"));
                path.into()
            }),
        }
    }

    /// Makes the files, of the sizes in the header.
    fn target(&self, found: &media::Found) -> Result<FileTarget> {
        let mut target = FileTarget::new();
        for (path, (id, _)) in self.paths.iter().zip(STREAMS) {
            let size = found.header.streams.iter().find(|stream| stream.id == id).map_or(0, |stream| stream.size);
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            made.map_err(|e| Error::io("create", path.display().to_string(), e))?;
            target.add(id, path, size, true)?;
        }
        Ok(target)
    }

    fn open(&self) -> Result<[File; 2]> {
        let open = |path: &PathBuf| File::open(path).map_err(|e| Error::io("open", path.display().to_string(), e));
        Ok([open(&self.paths[0])?, open(&self.paths[1])?])
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = std::fs::remove_file(path); // It may not have been made.
        }
    }
}

/// Removes what a killed run has left of a log set beside the database.
pub(super) fn clear(database: &Path) {
    drop(Unpacking::beside(database));
}

/// How far log sets were applied.
pub(super) struct Reached {
    /// Where the database stands.
    pub stands: End,
    /// How many of them.
    pub sets: usize,
    /// False while a set is being applied: the database stands nowhere then.
    pub whole: bool,
}

impl Reached {
    /// A database that stands there, and nothing applied to it.
    pub fn at(stands: End) -> Self {
        Self { stands, sets: 0, whole: true }
    }
}

/// Applies log sets to the database in the file `database`, from where it stands on; without a file they are only read.
pub(super) fn apply(
    logs: &[media::Found],
    reached: &mut Reached,
    database: Option<&Path>,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    for found in logs {
        check_streams(found)?;
        // One after the other: there may be more of them than files that a process can have open.
        let mut opened = reading::open(&[found], &request.reading.knobs, key, report)?;
        let Some(database) = database else {
            let outcome = opened.unpack_next(&NullTarget, conduct).map_err(|error| found.naming_copies(error))?;
            reading::book(&outcome, report);
            continue;
        };
        apply_one(found, &mut opened, database, reached, request, conduct, report)?;
    }
    if let (Some(stop), Some(_)) = (request.reading.choice.stop_at, database) {
        let last = reached.stands.time().map_or_else(|| "an unknown time".into(), moment::show_with_local);
        report.notes.push(format!("stopped at {}: the last commit was seen at {last}", moment::show_with_local(stop)));
    }
    Ok(())
}

fn apply_one(
    found: &media::Found,
    opened: &mut Opened,
    database: &Path,
    reached: &mut Reached,
    request: &Request,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let name = chain::title(&found.set);
    let manifest = opened.sets.front().and_then(|set| set.manifest());
    let first = manifest.map(|manifest| End::read(&manifest.position.first.value()));
    let nonsense = |why: String| Error::incomplete(&name, why, "use another set");
    let first = first
        .ok_or_else(|| nonsense("it has no manifest".into()))?
        .map_err(|bad| nonsense(format!("its position makes no sense: {bad}")))?;
    let needed = total(found.header.streams.iter().map(|stream| stream.size));
    let directory = database.parent().unwrap_or(Path::new("/"));
    let free = free_space(directory)?;
    if free < needed {
        return Err(Error::refused(
            directory.display().to_string(),
            format!("{name} needs {} there while it is applied, and {} are free", show_bytes(needed), show_bytes(free)),
            "free space there, or name another target with --into",
        ));
    }
    let unpacking = Unpacking::beside(database);
    let target = unpacking.target(found)?;
    let outcome = opened.unpack_next(&target, conduct).map_err(|error| found.naming_copies(error))?;
    drop(target);
    reading::book(&outcome, report);
    conduct.check()?;
    let [groups, frames] = unpacking.open()?;
    let file = OpenOptions::new().write(true).open(database);
    let file = file.map_err(|e| Error::io("open", database.display().to_string(), e))?;
    reached.whole = false;
    let base = &reached.stands;
    let unpacked = Unpacked { name: &name, groups: &groups, frames: &frames, first: &first, database: &file, base };
    let applied = unpacked.apply(request.reading.choice.stop_at)?;
    let last = LogEnd::read(&outcome.manifest.position.last.value()).map_err(|bad| nonsense(bad.0))?;
    if !applied.stopped && applied.end.log != last.end.log {
        return Err(nonsense("it does not end where its manifest says".into()));
    }
    *reached = Reached { stands: applied.end, sets: reached.sets + 1, whole: true };
    Ok(())
}

/// A log set of SQLite has two streams.
fn check_streams(found: &media::Found) -> Result<()> {
    let ids = found.header.streams.iter().map(|stream| stream.id);
    if found.header.engine == "sqlite" && ids.eq(STREAMS.map(|(id, _)| id)) {
        return Ok(());
    }
    Err(Error::incomplete(chain::title(&found.set), "it has not the two streams of a log set", "use another set"))
}
