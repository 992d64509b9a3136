//! Applies log sets to a restored database that has no name yet: one after the other, up to a point in time.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fullbore_core::cipher::SecretKey;
use fullbore_core::io::free_space;
use fullbore_core::media::{Manifest, total};
use fullbore_core::unpack::{FileTarget, NullTarget};
use fullbore_core::{Error, Result};
use fullbore_engines::LogEngine;
use fullbore_engines::engine::{SetEnd, UnpackedLog};

use super::super::reading::{self, Opened};
use super::Request;
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::show_bytes;
use fullbore_repository::chain::{self, moment};
use fullbore_repository::discovery;

/// The streams of a set, in files beside the database; removed when dropped.
struct Unpacking {
    /// The id of a stream, and its file.
    files: Vec<(u32, PathBuf)>,
}

impl Unpacking {
    fn beside(database: &Path, engine: &dyn LogEngine) -> Self {
        let beside = |name: &str| {
            let mut path = database.as_os_str().to_owned();
            path.push(format!(".{name}"));
            path.into()
        };
        Self { files: engine.streams().iter().map(|(id, name)| (*id, beside(name))).collect() }
    }

    /// Makes the files, of the sizes in the header.
    fn target(&self, found: &discovery::Found) -> Result<FileTarget> {
        let mut target = FileTarget::new();
        for (id, path) in &self.files {
            let size = found.header.streams.iter().find(|stream| stream.id == *id).map_or(0, |stream| stream.size);
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            made.map_err(|e| Error::io("create", path.display().to_string(), e))?;
            target.add(*id, path, size, true)?;
        }
        Ok(target)
    }

    fn open(&self) -> Result<Vec<File>> {
        let open = |path: &PathBuf| File::open(path).map_err(|e| Error::io("open", path.display().to_string(), e));
        self.files.iter().map(|(_, path)| open(path)).collect()
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        for (_, path) in &self.files {
            let _ = std::fs::remove_file(path); // It may not have been made.
        }
    }
}

/// Removes the files of a log set that a killed run has left beside the database.
pub(super) fn clear(database: &Path, engine: &str) {
    drop(fullbore_engines::log(engine).map(|log| Unpacking::beside(database, log)));
}

/// Where a full or a differential ends.
pub(super) fn end_of(manifest: &Manifest) -> Result<SetEnd> {
    let log = engine_of(&manifest.engine)?;
    log.end(&manifest.position.checkpoint.value())
        .map_err(|why| Error::incomplete(format!("full {}", manifest.backup_set_id), why, "use another set"))
}

/// The log backups of an engine.
pub(super) fn engine_of(engine: &str) -> Result<&'static dyn LogEngine> {
    fullbore_engines::log(engine).ok_or_else(|| {
        let why = format!("it is a backup of `{engine}`, which has no log backups in this version");
        Error::refused("media set", why, "use a newer fullbore")
    })
}

/// How far log sets were applied.
pub(super) struct Reached {
    /// The position of the database.
    pub stands: SetEnd,
    /// The number of log sets.
    pub sets: usize,
    /// False while a set is being applied: then the database has no valid position.
    pub whole: bool,
}

impl Reached {
    /// A database at this position, without log sets.
    pub fn at(stands: SetEnd) -> Self {
        Self { stands, sets: 0, whole: true }
    }
}

/// Applies log sets to the database in the file `database`, from its position on; without a file they are only read.
pub(super) fn apply(
    logs: &[discovery::Found],
    reached: &mut Reached,
    database: Option<&Path>,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    for found in logs {
        let engine = engine_of(&found.header.engine)?;
        check_streams(found, engine)?;
        // Opens them one after the other: a process can have a limited number of files open.
        let mut opened = reading::open(&[found], &request.reading.knobs, key, true, report)?;
        let Some(database) = database else {
            let outcome = opened.unpack_next(&NullTarget, conduct).map_err(|error| found.naming_copies(error))?;
            reading::book(&outcome, report);
            continue;
        };
        apply_one((found, engine), &mut opened, database, reached, request, conduct, report)?;
    }
    if let (Some(stop), Some(_)) = (request.reading.choice.stop_at, database) {
        if let (Some(point), Some(time)) = (&mut report.point, reached.stands.time) {
            point.at = Some(moment::show(time));
        }
        let last = reached.stands.time.map_or_else(|| "an unknown time".into(), moment::show_with_local);
        report.notes.push(format!("stopped at {}: the last commit was seen at {last}", moment::show_with_local(stop)));
    }
    Ok(())
}

fn apply_one(
    (found, engine): (&discovery::Found, &dyn LogEngine),
    opened: &mut Opened,
    database: &Path,
    reached: &mut Reached,
    request: &Request,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let name = chain::title(&found.set);
    let needed = total(found.header.streams.iter().map(|stream| stream.size));
    let directory = database.parent().unwrap_or(Path::new("/"));
    let free = free_space(directory)?;
    if free < needed {
        return Err(Error::refused(
            directory.display().to_string(),
            format!("{name} needs {} there while it is applied, but {} are free", show_bytes(needed), show_bytes(free)),
            "free space there, or name another target with --into",
        ));
    }
    let unpacking = Unpacking::beside(database, engine);
    let target = unpacking.target(found)?;
    let outcome = opened.unpack_next(&target, conduct).map_err(|error| found.naming_copies(error))?;
    drop(target);
    reading::book(&outcome, report);
    conduct.check()?;
    let streams = unpacking.open()?;
    reached.whole = false;
    let (stands, position) = (&reached.stands, &outcome.manifest.position);
    let set = UnpackedLog { name: &name, streams: &streams, position, database, stands };
    let stands = engine.apply(&set, request.reading.choice.stop_at)?.stands;
    *reached = Reached { stands, sets: reached.sets + 1, whole: true };
    Ok(())
}

/// Checks that a log set has the streams of its engine.
fn check_streams(found: &discovery::Found, engine: &dyn LogEngine) -> Result<()> {
    let ids = found.header.streams.iter().map(|stream| stream.id);
    if ids.eq(engine.streams().iter().map(|(id, _)| *id)) {
        return Ok(());
    }
    Err(Error::incomplete(chain::title(&found.set), "it does not have the streams of a log set", "use another set"))
}
