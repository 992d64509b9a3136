//! Applies log sets to a restored database that has no name yet: one after the other, up to a point in time.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fullbore_core::cipher::SecretKey;
use fullbore_core::io::free_space;
use fullbore_core::media::{Manifest, ManifestStream, total};
use fullbore_core::unpack::{FileTarget, MediaSet, NullTarget, UnpackOutcome};
use fullbore_core::{Error, Result};
use fullbore_engines::LogEngine;
use fullbore_engines::engine::{SetEnd, UnpackedLog};

use super::super::reading::{self, Opened};
use super::{Request, refresh};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::show_bytes;
use fullbore_repository::chain::{self, moment};
use fullbore_repository::discovery;

/// The streams of a set, in files beside the database; removed when dropped.
pub(super) struct Unpacking {
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

    /// The same in a directory.
    pub fn within(directory: &Path, engine: &dyn LogEngine) -> Self {
        let within = |name: &str| directory.join(format!(".log-set.{name}"));
        Self { files: engine.streams().iter().map(|(id, name)| (*id, within(name))).collect() }
    }

    /// Makes the files, of these sizes.
    pub fn target(&self, streams: &[ManifestStream]) -> Result<FileTarget> {
        let mut target = FileTarget::new();
        for (id, path) in &self.files {
            let size = streams.iter().find(|stream| stream.id == *id).map_or(0, |stream| stream.size);
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            made.map_err(|e| Error::io("create", path.display().to_string(), e))?;
            target.add(*id, path, size, true)?;
        }
        Ok(target)
    }

    pub fn open(&self) -> Result<Vec<File>> {
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

/// Unpacks an opened log set into the files of `unpacking`, which are in `directory`.
pub(super) fn unpack_one(
    found: &discovery::Found,
    mut opened: Opened,
    unpacking: &Unpacking,
    directory: &Path,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<UnpackOutcome> {
    let name = chain::title(&found.set);
    let streams = opened.sets.front().and_then(MediaSet::manifest).map(|manifest| manifest.streams.clone());
    let streams = streams.ok_or(Error::Halted)?;
    let needed = total(streams.iter().map(|stream| stream.size));
    let free = free_space(directory)?;
    if free < needed {
        return Err(Error::refused(
            directory.display().to_string(),
            format!("{name} needs {} there while it is applied, but {} are free", show_bytes(needed), show_bytes(free)),
            "free space there, or name another target with --into",
        ));
    }
    let target = unpacking.target(&streams)?;
    let outcome = opened.unpack_next(&target, conduct).map_err(|error| found.naming_copies(error))?;
    drop(target);
    reading::book(&outcome, report);
    conduct.check()?;
    Ok(outcome)
}

/// A log set that was unpacked. Its files are removed when this is dropped.
pub(super) struct Unpacked {
    name: String,
    streams: Vec<File>,
    manifest: Manifest,
    _files: Unpacking,
}

impl Unpacked {
    /// Unpacks a log set into a directory.
    pub fn within(
        directory: &Path,
        found: &discovery::Found,
        request: &Request,
        key: Option<&SecretKey>,
        conduct: &Conduct,
        report: &mut Report,
    ) -> Result<Self> {
        let opened = open(found, request, key, report)?;
        let files = Unpacking::within(directory, engine_of(&found.header.engine)?);
        let manifest = unpack_one(found, opened, &files, directory, conduct, report)?.manifest;
        Ok(Self { name: chain::title(&found.set), streams: files.open()?, manifest, _files: files })
    }

    /// The set for a database that stands here.
    pub fn set<'a>(&'a self, database: &'a Path, stands: &'a SetEnd) -> UnpackedLog<'a> {
        UnpackedLog { name: &self.name, streams: &self.streams, position: &self.manifest.position, database, stands }
    }
}

/// Reads log sets, and keeps nothing.
pub(super) fn read_only(
    logs: &[discovery::Found],
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    for found in logs {
        let mut opened = open(found, request, key, report)?;
        let outcome = opened.unpack_next(&NullTarget, conduct).map_err(|error| found.naming_copies(error))?;
        reading::book(&outcome, report);
    }
    Ok(())
}

/// Opens a log set, which must have the streams of its engine.
pub(super) fn open(
    found: &discovery::Found,
    request: &Request,
    key: Option<&SecretKey>,
    report: &mut Report,
) -> Result<Opened> {
    let engine = engine_of(&found.header.engine)?;
    let opened = reading::open(&[found], &request.reading.knobs, key, true, report)?;
    let manifest = opened.sets.front().and_then(MediaSet::manifest);
    let ids: Vec<u32> = match manifest.filter(|_| found.header.open) {
        Some(manifest) => manifest.streams.iter().map(|stream| stream.id).collect(),
        None => found.header.streams.iter().map(|stream| stream.id).collect(),
    };
    if ids.iter().eq(engine.streams().iter().map(|(id, _)| id)) {
        return Ok(opened);
    }
    Err(Error::incomplete(chain::title(&found.set), "it does not have the streams of a log set", "use another set"))
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
    let Some(database) = database else { return read_only(logs, request, key, conduct, report) };
    let before = report.source_bytes;
    for found in logs {
        // Opens them one after the other: a process can have a limited number of files open.
        let opened = open(found, request, key, report)?;
        apply_one(found, opened, database, reached, request, conduct, report)?;
    }
    if let Some(stop) = request.reading.choice.stop_at {
        tell_stop(stop, reached.stands.time, report);
    }
    if request.refresh.is_some() && !logs.is_empty() {
        // Frames do not say how many transactions they are.
        refresh::count(0, before, report);
    }
    Ok(())
}

/// Says where a restore to a time stopped.
pub(super) fn tell_stop(stop: i64, last: Option<i64>, report: &mut Report) {
    if let (Some(point), Some(time)) = (&mut report.point, last) {
        point.at = Some(moment::show(time));
    }
    let last = last.map_or_else(|| "an unknown time".into(), moment::show_with_local);
    report.notes.push(format!("stopped at {}: the last commit was seen at {last}", moment::show_with_local(stop)));
}

fn apply_one(
    found: &discovery::Found,
    opened: Opened,
    database: &Path,
    reached: &mut Reached,
    request: &Request,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let (name, engine) = (chain::title(&found.set), engine_of(&found.header.engine)?);
    let unpacking = Unpacking::beside(database, engine);
    let directory = database.parent().unwrap_or(Path::new("/"));
    let outcome = unpack_one(found, opened, &unpacking, directory, conduct, report)?;
    let streams = unpacking.open()?;
    reached.whole = false;
    let (stands, position) = (&reached.stands, &outcome.manifest.position);
    let set = UnpackedLog { name: &name, streams: &streams, position, database, stands };
    let stands = engine.apply(&set, request.stop().as_ref())?.stands;
    *reached = Reached { stands, sets: reached.sets + 1, whole: true };
    Ok(())
}
