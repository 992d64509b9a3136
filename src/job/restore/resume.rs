//! `--resume`: going on with what an interrupted restore has left. Nothing of it is believed: each unit is compared with the page map
//! of the full that is restored, and blocks are fetched for the others alone (docs/decisions/0012).

use std::fs::File;
use std::path::Path;

use fullbore_core::io::{Mode, OpenedFile};
use fullbore_core::media::{SetKind, StreamRecord};
use fullbore_core::unpack::{
    BaseMap, Compared, FileTarget, Marks, MediaSet, NullTarget, Target, Unpack, UnpackOutcome,
};
use fullbore_core::{Error, Result};
use fullbore_engines::sqlite::restore as sqlite;

use super::super::Conduct;
use super::super::media;
use super::super::reading::Opened;
use super::{Into, Place, Request, log, path_of};
use crate::report::{Report, ResumedReport};
use crate::units::show_bytes;

const WITHOUT: &str = "restore without --resume, which needs no page map";

/// Refuses what cannot be gone on with.
pub(super) fn refuse(request: &Request) -> Result<()> {
    if !request.resume {
        return Ok(());
    }
    let wrong = |why: &str| Err(Error::usage("--resume", why, "leave it out"));
    if media::is_pipe(&request.reading.from)? {
        return wrong("a pipe is read from its start to its end: nothing of it can be passed over");
    }
    if request.into == Into::Null { wrong("`nul:` keeps nothing that could be gone on with") } else { Ok(()) }
}

/// A server's files are restored from the beginning.
pub(super) fn refuse_directory(request: &Request) -> Result<()> {
    if !request.resume {
        return Ok(());
    }
    let why = "this version goes on with the restore of an SQLite database only, not of a server's files";
    Err(Error::usage("--resume", why, "leave it out: the restore begins again"))
}

/// Takes over what another restore to this target has left; it stays locked as long as the file is open.
pub(super) fn take_over(restore: &mut sqlite::Restore, report: &mut Report) -> Result<Option<File>> {
    let taken = restore.take_over()?;
    if taken.is_none() {
        report.notes.push("no interrupted restore has left anything: all of it is restored".into());
    }
    let file = restore.temporary().display().to_string();
    report.resumed = Some(ResumedReport { file, ..ResumedReport::default() });
    Ok(taken)
}

/// Says where another `--resume` finds what this one had to leave.
pub(super) fn tell_what_stays(report: &mut Report) {
    if let Some(resumed) = report.resumed.as_ref().filter(|resumed| Path::new(&resumed.file).exists()) {
        let text = format!("`{}` stays: the same restore with --resume goes on with it", resumed.file);
        report.notes.push(text);
    }
}

/// Whether the full has a page map of all that it restores to; without one, all of it is restored.
pub(super) fn is_possible(opened: &Opened, report: &mut Report) -> bool {
    let possible = opened.sets.front().is_some_and(has_map);
    if !possible {
        report.notes.push("the full has no page map to prove by what is there: all of it is restored".into());
    }
    possible
}

fn has_map(set: &MediaSet) -> bool {
    let header = set.header();
    let mapped = header.streams.iter().all(|stream| stream.map_window > 0);
    header.kind == SetKind::Full && mapped && set.manifest().is_some_and(|manifest| manifest.map.is_some())
}

/// Restores the first of the opened sets into the file that was taken over.
pub(super) fn full(
    opened: &mut Opened,
    place: &Place,
    stream: &StreamRecord,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<UnpackOutcome> {
    let (Some(set), Some(restore)) = (opened.sets.pop_front(), &place.restore) else { return Err(Error::Halted) };
    let path = restore.temporary();
    log::clear(path);
    let name = format!("full {}", set.header().backup_set_id);
    let mut map = BaseMap::open(set).map_err(of_map)?;
    let before = compare(opened, &map, path, None, conduct)?;
    let mut resumed = report.resumed.take().unwrap_or_default();
    resumed.kept_bytes = before.differ.all_bytes() - before.differ.bytes();
    report.resumed = Some(resumed.clone());
    let mut target = FileTarget::new();
    target.add(stream.id, path, stream.size, false)?;
    let fetched = with_unpack(opened, &target, conduct, |unpack| unpack.fetch(map.set_mut(), &before.differ))?;
    target.sync()?;
    (resumed.fetched_bytes, resumed.fetched_blocks) = (fetched.bytes, fetched.blocks);
    report.resumed = Some(resumed);
    match compare(opened, &map, path, Some(&before.differ), conduct)?.first {
        None => Ok(fetched.outcome),
        Some(offset) => {
            let why = format!("what its blocks hold for byte {offset} of the database is not what its page map says");
            Err(Error::incomplete(name, why, WITHOUT))
        }
    }
}

/// Tells how much of the first opened set would be kept. Writes nothing.
pub(super) fn foresee(opened: &mut Opened, request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let Some(set) = opened.sets.pop_front() else { return Ok(()) };
    let Some(path) = path_of(request, &set)? else { return Ok(()) };
    let mut restore = sqlite::prepare(&path, request.replace)?;
    let Some(_locked) = take_over(&mut restore, report)? else { return Ok(()) };
    if !has_map(&set) {
        report.notes.push("the full has no page map to prove by what is there: all of it would be restored".into());
        return Ok(());
    }
    let map = BaseMap::open(set).map_err(of_map)?;
    let found = compare(opened, &map, restore.temporary(), None, conduct)?.differ;
    let kept = found.all_bytes() - found.bytes();
    report.notes.push(format!(
        "of `{}`, {} would be kept, and blocks fetched for {}",
        restore.temporary().display(),
        show_bytes(kept),
        show_bytes(found.bytes())
    ));
    report.resumed.iter_mut().for_each(|resumed| resumed.kept_bytes = kept);
    Ok(())
}

fn compare(opened: &Opened, map: &BaseMap, path: &Path, among: Option<&Marks>, conduct: &Conduct) -> Result<Compared> {
    let mode = Mode::from_environment()?;
    let open = |_: u16| OpenedFile::read(path, mode);
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

/// A page map that is not as it should be does not stand against a restore of everything. (A block of it that is damaged does.)
fn of_map(mut error: Error) -> Error {
    if let Error::Incomplete { hint, .. } | Error::Refused { hint, .. } = &mut error {
        WITHOUT.clone_into(hint);
    }
    error
}
