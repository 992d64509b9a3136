//! RESTORE of a server's files: the directory is complete, or does not exist.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::Ordering;

use fullbore_core::cipher::SecretKey;
use fullbore_core::media::{Manifest, ManifestStream, total};
use fullbore_core::unpack::{BaseTarget, DirectoryTarget, MediaSet, NullTarget, Target};
use fullbore_core::{Error, Result};
use fullbore_engines::Restorer;
use fullbore_engines::engine::{DirectoryEngine, DirectoryRestore, SERVER_OPTION, SERVER_PROGRAM};
use fullbore_engines::mysql_family::Dialect;
use fullbore_engines::mysql_family::outside::{self, OutsideFile};

use super::super::reading;
use super::media::of_a_database;
use super::outside::{Placed, must_have_places};
use super::resume::{self, PartialRestore};
use super::start::Prepared;
use super::{
    Check, Into, Owner, Request, SYNCING, log, of_another_engine, other_tables, plan_line, replay, unfinished,
};
use crate::report::{Report, ResumedReport};
use fullbore_core::conduct::Conduct;
use fullbore_core::units::on_its_line;
use fullbore_repository::discovery;

/// Bytes of a file that are checked together: whole pages of any size.
const PIECE: u64 = 1 << 20;

/// Restores an open full, or a full and its differential, and log sets, into `dir:PATH`, which is empty or missing.
/// Until it is complete it has a working name.
pub(super) fn restore(
    (chain, logs): (&[discovery::Found], &[discovery::Found]),
    mut opened: reading::Opened,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let manifests = manifests(chain, &mut opened, conduct);
    let Some(manifest) = manifests.last() else { return Ok(()) };
    let (engine, position, last) = (&manifest.engine, &manifest.position.last.value(), &manifest.streams);
    fullbore_engines::check_names(engine, last)?;
    let dialect = Dialect::named(engine);
    let elsewhere = dialect.map_or(Ok(Vec::new()), |dialect| outside::outside_files(dialect, position))?;
    refuse_damage(manifest, &last_title(chain), request, report)?;
    let options = &request.set_options.of(engine);
    let start = (request.check == Some(Check::Full)).then(|| Prepared::new(options, manifest)).transpose()?;
    let replay = !logs.is_empty() && matches!(request.into, Into::Directory(_));
    refuse_unused_server(request, start.is_some() || replay)?;
    let replay = replay.then(|| replay::Prepared::new(options, manifest, position)).transpose()?;
    let has_to_be_placed = request.place_outside() || !dialect.is_some_and(outside::are_found_inside);
    check_places(request, if has_to_be_placed { &elsewhere } else { &[] })?;
    let owner = Owner::wanted(request)?;
    let moved = if request.place_outside() { &elsewhere[..] } else { &[] };
    report.notes.extend(moved.iter().map(placed_line));
    if request.dry_run {
        chain.iter().chain(logs).for_each(|found| plan_line(found, report));
        report.status = "planned".into();
        return Ok(());
    }
    let target = match &request.into {
        Into::Null => {
            chain.iter().try_for_each(|found| unpack(&mut opened, found, &NullTarget, conduct, report))?;
            return log::read_only(logs, request, key, conduct, report);
        }
        Into::Directory(target) => target,
        Into::File { engine: asked, path } => return Err(of_another_engine(asked, path, engine)),
        _ => return Err(of_a_database(&request.into, engine)),
    };
    let by_hand = (has_to_be_placed && !request.place_outside()).then(|| outside::to_be_moved(&elsewhere)).flatten();
    if let (Some(_), Some(why)) = (&replay, &by_hand) {
        let hint = "add --place-outside, which moves them before the server applies the log sets";
        return Err(Error::refused(target.display().to_string(), why.clone(), hint));
    }
    let (restore, left) = begin(target, size_of(last), &opened, request, report)?;
    let (directory, files) = (restore.temporary(), fullbore_engines::directory(engine)?);
    files.begin(directory)?;
    unpack_files(chain, &mut opened, &manifests, &|_| true, directory, left, conduct, report)?;
    if request.check == Some(Check::Quick) {
        report.timed(super::CHECKING, |report| check_pages(manifest, directory, request, conduct, report))?;
    }
    let placed = Placed::place(directory, moved, request.mkdir, owner.as_ref())?;
    files.finish(directory, position)?;
    let mut texts = files.texts_of_tables(last);
    let replayed = replay.is_some();
    if let Some(replay) = replay {
        replay.run(directory, logs, request, key, conduct, report)?;
    }
    if replayed || start.is_some() && by_hand.is_none() {
        texts.retain(|text| text.in_memory);
    }
    check_start(start.as_ref(), (by_hand.is_some(), replayed), files, directory, manifest, conduct, report)?;
    report.warnings.extend(by_hand);
    other_tables::tell(target, &texts, report);
    conduct.check()?;
    if let Some(owner) = owner {
        owner.take(directory)?;
    }
    restore.publish_then(|| placed.keep())
}

/// The start check, if it is wanted and `by_hand` is false: then no file has to be moved first. Otherwise, says what the
/// user has to do after a start, unless a server has run already (`replayed`).
fn check_start(
    start: Option<&Prepared>,
    (by_hand, replayed): (bool, bool),
    files: &dyn DirectoryEngine,
    directory: &Path,
    manifest: &Manifest,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let position = &manifest.position.last.value();
    match start {
        Some(start) if !by_hand => {
            report.timed("start check", |report| start.run(directory, position, &manifest.streams, conduct, report))?;
        }
        Some(_) => report.warnings.push("the server was not started: first do what the next warning says".into()),
        None if replayed => {}
        None => report.warnings.extend(files.after_a_start(position)),
    }
    Ok(())
}

/// Refuses options of a server that is not started.
fn refuse_unused_server(request: &Request, is_started: bool) -> Result<()> {
    let asked = request.set_options.flags().iter().find(|option| [&SERVER_PROGRAM, &SERVER_OPTION].contains(option));
    let Some(option) = asked.filter(|_| !is_started && request.into != Into::Null) else { return Ok(()) };
    let why = "no server is started: that is for --check full, --table and log sets";
    Err(Error::usage(format!("--{}", option.name), why, "add --check full, or leave it out"))
}

/// Looks at each page of the restored files by itself, as `verify` does.
fn check_pages(
    manifest: &Manifest,
    directory: &Path,
    request: &Request,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let Some(engine) = fullbore_engines::pages(&manifest.engine) else {
        let why = format!("the pages of a `{}` cannot be checked one by one", manifest.engine);
        return Err(Error::usage("--check quick", why, "use --check full"));
    };
    let pages = engine.check(&manifest.streams);
    let mut piece = Vec::with_capacity(PIECE as usize);
    for stream in manifest.streams.iter().filter(|stream| engine.page_size(stream).is_some()) {
        let path = directory.join(&stream.name);
        let failed = |e| Error::io("read", path.display().to_string(), e);
        let mut file = File::open(&path).map_err(failed)?;
        let mut offset = 0;
        loop {
            conduct.check()?;
            piece.clear();
            let length = (&mut file).take(PIECE).read_to_end(&mut piece).map_err(failed)?;
            if length == 0 {
                break;
            }
            pages.write(stream.id, offset, &piece)?;
            offset += length as u64;
        }
    }
    let damaged = pages.damaged();
    match damaged.first() {
        Some(first) if !request.continue_after_error => Err(Error::refused(
            "restored files",
            format!("the check finds damaged pages: {first}"),
            "choose an older set with --set; or restore this one with --continue-after-error, and repair or drop these \
             tables",
        )),
        _ => {
            report.warnings.extend(damaged);
            Ok(())
        }
    }
}

/// Makes the directory, or takes over the one of an interrupted restore: then true.
fn begin(
    target: &Path,
    size: u64,
    opened: &reading::Opened,
    request: &Request,
    report: &mut Report,
) -> Result<(DirectoryRestore, bool)> {
    if !request.resume {
        return Ok((unfinished::make(target, request.mkdir, size)?, false));
    }
    if let Some(taken) = resume::take_over_directory(target, size, opened, report)? {
        // Removes the marks that keep a server from it: they are made again.
        let entries = std::fs::read_dir(taken.temporary());
        let entries = entries.map_err(|e| Error::io("list", taken.temporary().display().to_string(), e))?;
        for mark in entries.flatten().filter(|entry| fullbore_engines::is_mark(&entry.file_name())) {
            // A server that was interrupted leaves a file of that name.
            let is_directory = mark.file_type().is_ok_and(|kind| kind.is_dir());
            let remove = if is_directory { std::fs::remove_dir_all } else { std::fs::remove_file };
            let removed = remove(mark.path());
            removed.map_err(|e| Error::io("remove", mark.path().display().to_string(), e))?;
        }
        return Ok((taken, true));
    }
    let mut made = unfinished::make(target, request.mkdir, size)?;
    made.keep();
    if !made.is_in_place() {
        let file = made.temporary().display().to_string();
        report.resumed = Some(ResumedReport { file, ..ResumedReport::default() });
    }
    Ok((made, false))
}

/// The manifests of the sets, in order; from now on the total for progress is the bytes of all of them.
pub(super) fn manifests(chain: &[discovery::Found], opened: &mut reading::Opened, conduct: &Conduct) -> Vec<Manifest> {
    let manifests: Vec<Manifest> = opened.sets.iter().filter_map(MediaSet::manifest).cloned().collect();
    // In a store, each trailer costs a request, for a number that is only shown.
    let near = chain.iter().flat_map(|found| &found.devices).all(|device| !device.is_in_store());
    let exact = |set: &mut MediaSet| if near { set.plain_bytes().ok() } else { None };
    let sizes = manifests.iter().map(Manifest::database_bytes);
    let bytes = total(opened.sets.iter_mut().zip(sizes).map(|(set, size)| exact(set).unwrap_or(size)));
    conduct.progress.total.store(bytes, Ordering::Relaxed);
    manifests
}

/// Unpacks the wanted files of the last set, from its full first if it has one. It reads and checks all of the media.
/// With a directory of an interrupted restore (`left`), it reads only the missing parts of the full.
#[expect(clippy::too_many_arguments, reason = "what is read, what of it, and where it goes")]
pub(super) fn unpack_files(
    chain: &[discovery::Found],
    opened: &mut reading::Opened,
    manifests: &[Manifest],
    wanted: &dyn Fn(&ManifestStream) -> bool,
    directory: &Path,
    left: bool,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let Some(Manifest { streams: last, changes, .. }) = manifests.last() else { return Ok(()) };
    // Skips streams without a name.
    let shown = last.iter().map(|stream| ManifestStream {
        name: if wanted(stream) { stream.name.clone() } else { String::new() },
        ..stream.clone()
    });
    let shown: Vec<ManifestStream> = shown.collect();
    let files = match left {
        false => DirectoryTarget::create(directory, &shown)?,
        true => {
            // A file that is not in the full begins empty.
            let keeps = |stream: &ManifestStream| chain.len() == 1 || stream.base.is_some();
            DirectoryTarget::adopt(directory, &shown, &keeps, &fullbore_engines::is_mark)?
        }
    };
    if let ([full, _], [below, _]) = (chain, manifests) {
        let based: Vec<ManifestStream> = last.iter().filter(|stream| wanted(stream)).cloned().collect();
        let base = BaseTarget::new(&files, &below.streams, &based, *changes)?;
        if left {
            let path = |stream| base.path(stream).map(Path::to_owned);
            let standing = PartialRestore { target: &base, path: &path, finish: &|| base.finish() };
            go_on(opened, full, &standing, conduct, report)?;
        } else {
            unpack(opened, full, &base, conduct, report)?;
            report.timed(SYNCING, |_| base.finish())?;
        }
    } else if let (true, Some(full)) = (left, chain.last()) {
        let path = |stream| files.path(stream).map(Path::to_owned);
        let standing = PartialRestore { target: &files, path: &path, finish: &|| files.finish() };
        return go_on(opened, full, &standing, conduct, report);
    }
    if let Some(found) = chain.last() {
        unpack(opened, found, &files, conduct, report)?;
    }
    report.timed(SYNCING, |_| files.finish())
}

fn go_on(
    opened: &mut reading::Opened,
    found: &discovery::Found,
    standing: &PartialRestore<'_>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let outcome = resume::standing(opened, standing, conduct, report).map_err(|error| found.naming_copies(error))?;
    reading::book(&outcome, report);
    Ok(())
}

/// The line of the plan for a file that is placed outside of the directory.
fn placed_line(file: &OutsideFile) -> String {
    let shown = |path: &Path| on_its_line(&path.display().to_string());
    format!("--place-outside puts `{}` at `{}`", shown(&file.path), shown(&file.was))
}

/// Refuses at the beginning what would stop the restore at its end.
fn check_places(request: &Request, to_be_placed: &[OutsideFile]) -> Result<()> {
    if !matches!(request.into, Into::Directory(_)) {
        return Ok(());
    }
    outside::refuse_what_is_there(to_be_placed)?;
    if request.place_outside() { must_have_places(to_be_placed, request.mkdir) } else { Ok(()) }
}

pub(super) fn last_title(chain: &[discovery::Found]) -> String {
    chain.last().map_or_else(String::new, |found| fullbore_repository::chain::title(&found.set))
}

/// Refuses a set with pages that were damaged at the source; with `--continue-after-error`, names them.
pub(super) fn refuse_damage(manifest: &Manifest, title: &str, request: &Request, report: &mut Report) -> Result<()> {
    match fullbore_engines::damaged_at_source(&manifest.engine, &manifest.position.last.value()) {
        None => Ok(()),
        Some(said) if request.continue_after_error => {
            report.warnings.push(format!("{title}: {said}"));
            Ok(())
        }
        Some(said) => Err(Error::refused(
            title,
            said,
            "choose an older set with --set; or restore this one with --continue-after-error, and repair or drop these \
             tables",
        )),
    }
}

pub(super) fn size_of(streams: &[ManifestStream]) -> u64 {
    total(streams.iter().map(|stream| stream.size))
}

/// Unpacks the next opened set, which is `found`, and adds it to the report.
pub(super) fn unpack(
    opened: &mut reading::Opened,
    found: &discovery::Found,
    target: &dyn Target,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let outcome = opened.unpack_next(target, conduct).map_err(|error| found.naming_copies(error))?;
    reading::book(&outcome, report);
    Ok(())
}
