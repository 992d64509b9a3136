//! RESTORE of stored media of another program: its files, byte for byte, under their names.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_core::cipher::SecretKey;
use fullbore_core::sink::check_directory;
use fullbore_core::unpack::{MediaSet, NullTarget};
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{CHAIN, MOVE};
use fullbore_engines::foreign_set::bytes::{FamilyBytes, Watch};
use fullbore_engines::foreign_set::layout::LAYOUTS_MAX;
use fullbore_engines::foreign_set::target::{FamilyFiles, StoredMedia};
use fullbore_engines::{FilePlaces, ForeignFamily, ForeignMedia, InOrder};

use super::super::{database_files, into_directory, reading};
use super::directory::{last_title, manifests, refuse_damage, unpack};
use super::{Check, Into, Reading, Recovery, Request, choose_and_open, plan_line};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::{counted, show_bytes};
use fullbore_repository::discovery;
use uuid::Uuid;

/// The name for the verdict of the work behind the last byte.
const PROVING: &str = "proving the files";

/// Refuses a target for media of another program, if the set is a backup of a database.
///
/// # Errors
/// The set does not hold such media.
pub(super) fn refuse_others(into: &Into, engine: &str) -> Result<()> {
    let Into::Media { scheme, .. } = into else { return Ok(()) };
    match fullbore_engines::files_of(engine) == Some(scheme) {
        true => Ok(()),
        false => Err(of_a_database(into, engine)),
    }
}

/// The error if the set is a backup of a database.
pub(super) fn of_a_database(into: &Into, engine: &str) -> Error {
    let why = format!("the set is a backup of {engine}, which holds no such files");
    Error::usage(format!("--into {into}"), why, "write the target of a database: --into dir:PATH")
}

/// Gives the files back that a set holds: those of a full, or of a full and the pages that differ.
///
/// # Errors
/// The request has a flag that such files do not have, a file exists, or is not what was stored. Then no file is left.
pub(super) fn restore(
    chain: &[discovery::Found],
    mut opened: reading::Opened,
    media: &'static dyn ForeignMedia,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    refuse_flags(request, media.title())?;
    if request.dry_run {
        chain.iter().for_each(|found| plan_line(found, report));
        report.status = "planned".into();
        return Ok(());
    }
    match &request.into {
        Into::Media { directory, .. } => {
            check_directory(directory, request.mkdir)?;
            std::fs::create_dir_all(directory).map_err(|e| Error::io("make", directory.display().to_string(), e))?;
            for reading in &request.needed.readings {
                give_back_another(reading, directory, request, key, conduct, report)?;
            }
            give_back(chain, opened, directory, request, conduct, report).map(drop)
        }
        Into::Directory(directory) => to_files((chain, opened, media, key), directory, request, conduct, report),
        Into::Null => chain.iter().try_for_each(|found| unpack(&mut opened, found, &NullTarget, conduct, report)),
        Into::File { .. } | Into::Server { .. } => {
            let why = format!("the set holds files of a {}", media.title());
            let hint = format!("write --into {}:DIRECTORY for these files, or --into dir:PATH", media.scheme());
            Err(Error::usage(format!("--into {}", request.into), why, hint))
        }
    }
}

/// Refuses `--chain` where nothing is given back file by file.
///
/// # Errors
/// The target is not such a directory.
pub(super) fn refuse_chain(request: &Request) -> Result<()> {
    if !request.set_options.flags().has(&CHAIN) || matches!(request.into, Into::Media { .. }) {
        return Ok(());
    }
    let why = "is for files that are given back as they were stored: a restore of a database takes its chain anyway";
    Err(Error::usage("--chain", why, "leave it out, or write --into bak:DIRECTORY"))
}

/// The chosen set, opened, with the media that it holds and the key.
type Chosen<'a> = (&'a [discovery::Found], reading::Opened, &'static dyn ForeignMedia, Option<&'a SecretKey>);

/// Restores the database that is on stored media: they are given back into a directory that is removed at the end.
fn to_files(
    (chain, opened, media, key): Chosen<'_>,
    into: &Path,
    request: &Request,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    if request.replace {
        let why = "does not work where stored files become those of a database";
        return Err(Error::usage("--replace", why, "name an empty directory"));
    }
    let made = into_directory::make(into, database_files::accepted(request.mkdir, false))?;
    let restored = || {
        let scratch = Scratch(into.join(format!("{}{}", database_files::UNFINISHED, Uuid::new_v4())));
        std::fs::create_dir(&scratch.0).map_err(|e| Error::io("make", scratch.0.display().to_string(), e))?;
        let mut paths = Vec::new();
        for (reading, number) in request.needed.readings.iter().zip(1_u32..) {
            // Files of two sets may have one name.
            let apart = scratch.0.join(format!("set-{number}"));
            std::fs::create_dir(&apart).map_err(|e| Error::io("make", apart.display().to_string(), e))?;
            paths.extend(give_back_another(reading, &apart, request, key, conduct, report)?);
            // The files that are given back are not the result.
            report.notes.pop();
        }
        paths.extend(give_back(chain, opened, &scratch.0, request, conduct, report)?);
        report.notes.pop();
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        // Alone, media are restored up to their newest set.
        let wanted = request.needed.database_set.as_deref().filter(|_| !request.needed.readings.is_empty());
        let done = media.restore(&names, &|name| open(name, conduct), wanted, &FilePlaces::in_directory(into))?;
        database_files::tell(done, report);
        Ok(())
    };
    restored().inspect_err(|_| {
        if made {
            let _ = std::fs::remove_dir(into); // The error of the restore is the one to tell.
        }
    })
}

/// A family that was given back, from its first byte.
fn open(name: &str, conduct: &Conduct) -> Result<ForeignFamily> {
    conduct.check()?;
    let file = File::open(name).map_err(|e| Error::io("open", name, e))?;
    let bytes = GivenBack { bytes: InOrder(file), conduct: conduct.clone() };
    Ok(ForeignFamily { device: name.to_owned(), bytes: Box::new(bytes) })
}

/// The bytes of such a family. They end with the job.
struct GivenBack {
    bytes: InOrder<File>,
    conduct: Conduct,
}

impl Read for GivenBack {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.conduct.check().map_err(io::Error::other)?;
        self.bytes.read(into)
    }
}

impl FamilyBytes for GivenBack {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.conduct.check().map_err(io::Error::other)?;
        self.bytes.skip(bytes)
    }

    fn watch(&self) -> Watch {
        let conduct = self.conduct.clone();
        Arc::new(move || conduct.check())
    }
}

/// A directory that is removed.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // A warning would hide the result; the next restore names it.
    }
}

/// Gives back a set that the chosen one needs.
fn give_back_another(
    reading: &Reading,
    directory: &Path,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Vec<PathBuf>> {
    let request = Request { reading: reading.clone(), ..request.clone() };
    let discovered = request.reading.find(key, conduct)?;
    let (chain, opened) = choose_and_open(discovered, &request, key, conduct, report)?;
    give_back(&chain, opened, directory, &request, conduct, report)
}

/// Writes the families of a set into a directory; gives their paths. The last note names them.
fn give_back(
    chain: &[discovery::Found],
    mut opened: reading::Opened,
    directory: &Path,
    request: &Request,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Vec<PathBuf>> {
    let manifests = manifests(chain, &mut opened, conduct);
    let (Some(manifest), Some(last)) = (manifests.last(), opened.sets.back_mut()) else { return Ok(Vec::new()) };
    refuse_damage(manifest, &last_title(chain), request, report)?;
    let stored = StoredMedia::of(&manifest.streams)?;
    let bytes = stored.bytes();
    let layouts = layouts(last, &stored)?;
    let files = FamilyFiles::create(directory, stored, layouts, chain.len() > 1, request.replace)?;
    if let [full, _] = chain {
        unpack(&mut opened, full, &files.over(&manifest.streams), conduct, report)?;
    }
    if let Some(found) = chain.last() {
        unpack(&mut opened, found, &files, conduct, report)?;
    }
    conduct.check()?;
    let published = report.timed(PROVING, |_| files.publish())?;
    let names = published.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ");
    let (count, bytes) = (counted(published.len() as u64, "file"), show_bytes(bytes));
    report.notes.push(format!("{count} of {bytes}, unchanged since they were stored: {names}"));
    Ok(published)
}

/// The layouts of all families. Only these streams are read.
fn layouts(set: &mut MediaSet, stored: &StoredMedia) -> Result<Vec<Vec<u8>>> {
    stored.layouts.iter().map(|stream| set.small_stream(stream, LAYOUTS_MAX)).collect()
}

/// Refuses flags of databases, for things that are files.
pub(super) fn refuse_flags(request: &Request, title: &str) -> Result<()> {
    let given = [
        ("--no-recovery", request.recovery == Recovery::Later),
        ("--recovery", request.recovery == Recovery::Now),
        ("--resume", request.resume),
        ("--check", matches!(request.check, Some(Check::Quick | Check::Full))),
        ("--stop-at", request.stop().is_some()),
        ("--move", request.set_options.flags().value(&MOVE).is_some()),
    ];
    let wrong = |flag: &str| Err(Error::usage(flag, format!("does not work with a {title}"), "leave it out"));
    match given.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => wrong(flag),
        None => Ok(()),
    }
}
