//! `--resume`: continues an interrupted restore. It compares each unit of the partial restore with the page map of the
//! full, and reads blocks only for units that differ (docs/decisions/0012).

use std::path::{Path, PathBuf};

use fullbore_core::io::{Mode, OpenedFile};
use fullbore_core::media::{SetKind, StreamRecord};
use fullbore_core::pipeline::throttle;
use fullbore_core::unpack::{
    BaseMap, Compared, FileTarget, Marks, MediaSet, NullTarget, Target, Unpack, UnpackOutcome,
};
use fullbore_core::{Error, Result};
use fullbore_engines::Restorer;
use fullbore_engines::engine::DirectoryRestore;

use super::super::reading::Opened;
use super::file::{Staging, path_of, prepare};
use super::{Into, Request, log, unfinished};
use crate::report::{Report, ResumedReport};
use fullbore_core::conduct::Conduct;
use fullbore_core::units::show_bytes;
use fullbore_repository::discovery;

const NOTHING: &str = "no leftover of an interrupted restore: everything is restored";
const WITHOUT: &str = "restore without --resume, which needs no page map";

/// Refuses requests that cannot be resumed.
pub(super) fn refuse(request: &Request) -> Result<()> {
    if !request.resume {
        return Ok(());
    }
    let wrong = |why: &str| Err(Error::usage("--resume", why, "leave it out"));
    if discovery::is_pipe(&request.reading.from)? {
        return wrong("a pipe can only be read from start to end, without skipping");
    }
    if request.into == Into::Null { wrong("`nul:` keeps nothing to continue") } else { Ok(()) }
}

/// Takes over the directory of an interrupted restore of a server, if it can be continued.
pub(super) fn take_over_directory(
    target: &Path,
    size: u64,
    opened: &Opened,
    report: &mut Report,
) -> Result<Option<DirectoryRestore>> {
    let taken = if is_possible(opened, report) { unfinished::take_over(target, size)? } else { None };
    match &taken {
        None => report.notes.push(NOTHING.into()),
        Some(taken) => {
            let file = taken.temporary().display().to_string();
            report.resumed = Some(ResumedReport { file, ..ResumedReport::default() });
        }
    }
    Ok(taken)
}

/// Takes over the leftover of another restore to this target; false if there is no leftover.
pub(super) fn take_over(restore: &mut dyn Restorer, report: &mut Report) -> Result<bool> {
    let taken = restore.take_over()?;
    if !taken {
        report.notes.push(NOTHING.into());
    }
    let file = restore.temporary().display().to_string();
    report.resumed = Some(ResumedReport { file, ..ResumedReport::default() });
    Ok(taken)
}

/// Says what stays for another `--resume`.
pub(super) fn tell_what_stays(report: &mut Report) {
    if let Some(resumed) = report.resumed.as_ref().filter(|resumed| Path::new(&resumed.file).exists()) {
        let text = format!("`{}` stays: the same restore with --resume continues it", resumed.file);
        report.notes.push(text);
    }
}

/// Whether the full has a page map; without one, everything is restored.
pub(super) fn is_possible(opened: &Opened, report: &mut Report) -> bool {
    let possible = opened.sets.front().is_some_and(has_map);
    if !possible {
        report.notes.push("the full has no page map to check the leftover with: everything is restored".into());
    }
    possible
}

fn has_map(set: &MediaSet) -> bool {
    let header = set.header();
    // In an open set, some files may have no page map.
    let mapped = header.streams.iter().all(|stream| stream.map_window > 0);
    header.kind == SetKind::Full && mapped && set.manifest().is_some_and(|manifest| manifest.map.is_some())
}

/// Restores the first of the opened sets into the file that was taken over.
pub(super) fn full(
    opened: &mut Opened,
    staging: &Staging,
    stream: &StreamRecord,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<UnpackOutcome> {
    let Some(restore) = &staging.restore else { return Err(Error::Halted) };
    let path = restore.temporary();
    log::clear(path, &staging.engine);
    let mut target = FileTarget::new();
    target.add(stream.id, path, stream.size, false)?;
    let files = PartialRestore { target: &target, path: &|_| Some(path.to_owned()), finish: &|| target.sync() };
    standing(opened, &files, conduct, report)
}

/// The existing files, by the streams of a full.
pub(super) struct PartialRestore<'a> {
    /// Writes to them.
    pub target: &'a dyn Target,
    /// The path of each; `None` for a stream that is not restored.
    pub path: &'a (dyn Fn(u32) -> Option<PathBuf> + Sync),
    /// Gives them their sizes, and returns when they are durable.
    pub finish: &'a dyn Fn() -> Result<()>,
}

/// Restores the first of the opened sets into existing files: checks them, reads what differs, and checks again.
pub(super) fn standing(
    opened: &mut Opened,
    files: &PartialRestore<'_>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<UnpackOutcome> {
    let set = opened.sets.pop_front().ok_or(Error::Halted)?;
    let name = format!("full {}", set.header().backup_set_id);
    let mut map = BaseMap::open(set).map_err(of_map)?;
    let before = compare(opened, &map, files.path, None, conduct)?;
    let mut resumed = report.resumed.take().unwrap_or_default();
    resumed.kept_bytes = before.kept;
    report.resumed = Some(resumed.clone());
    opened.plan.throttle.iter().for_each(|rate| throttle(map.set_mut(), *rate, &conduct.halt()));
    let fetched = with_unpack(opened, files.target, conduct, |unpack| unpack.fetch(map.set_mut(), &before.differ))?;
    (files.finish)()?;
    (resumed.fetched_bytes, resumed.fetched_blocks) = (fetched.bytes, fetched.blocks);
    report.resumed = Some(resumed);
    match compare(opened, &map, files.path, Some(&before.differ), conduct)?.first {
        None => Ok(fetched.outcome),
        Some((stream, offset)) => {
            let file = (files.path)(stream).unwrap_or_default();
            let why = format!("its blocks and its page map differ at byte {offset} of `{}`", file.display());
            Err(Error::incomplete(name, why, WITHOUT))
        }
    }
}

/// Says how much of the first opened set would be kept. Writes nothing.
pub(super) fn foresee(opened: &mut Opened, request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let Some(set) = opened.sets.pop_front() else { return Ok(()) };
    let Some(path) = path_of(request, &set)? else { return Ok(()) };
    let mut restore = prepare(request, &set.header().engine, &path)?.0;
    if !take_over(&mut *restore, report)? {
        return Ok(());
    }
    if !has_map(&set) {
        report.notes.push("the full has no page map to check the leftover with: everything would be restored".into());
        return Ok(());
    }
    let map = BaseMap::open(set).map_err(of_map)?;
    let path = |_: u32| Some(restore.temporary().to_owned());
    let found = compare(opened, &map, &path, None, conduct)?;
    report.notes.push(format!(
        "of `{}`, {} would be kept, and {} read from the backup",
        restore.temporary().display(),
        show_bytes(found.kept),
        show_bytes(found.differ.bytes())
    ));
    report.resumed.iter_mut().for_each(|resumed| resumed.kept_bytes = found.kept);
    Ok(())
}

fn compare(
    opened: &Opened,
    map: &BaseMap,
    path: &(dyn Fn(u32) -> Option<PathBuf> + Sync),
    among: Option<&Marks>,
    conduct: &Conduct,
) -> Result<Compared> {
    let mode = Mode::from_environment()?;
    let open = |stream: u32| path(stream).map(|path| OpenedFile::read(&path, mode)).transpose();
    with_unpack(opened, &NullTarget, conduct, |unpack| unpack.compare(map, &open, among)).map_err(of_map)
}

fn with_unpack<T>(
    opened: &Opened,
    target: &dyn Target,
    conduct: &Conduct,
    work: impl FnOnce(&Unpack<'_>) -> Result<T>,
) -> Result<T> {
    let halt = conduct.halt();
    let Opened { plan, pool, .. } = opened;
    let unpack =
        Unpack { plan, target, progress: &conduct.progress, halt: &halt, tick: &|| conduct.check(), input: pool };
    work(&unpack).map_err(|error| conduct.why_halted(error))
}

/// The error for a page map that is not as it should be: a restore of everything is still possible. (With a damaged
/// block of the map it is not.)
fn of_map(mut error: Error) -> Error {
    if let Error::Incomplete { hint, .. } | Error::Refused { hint, .. } = &mut error {
        WITHOUT.clone_into(hint);
    }
    error
}
