//! `restore` of media of other programs: the files of their database in a directory.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{FILE, MOVE};
use fullbore_engines::{FilePlaces, ForeignMedia};

use super::{ForeignDevices, all_bytes_pool};
use crate::job::restore::{Into, Recovery, Request, new_directory};
use crate::job::{database_files, into_directory};
use crate::report::Report;

/// Writes the files of the database on these media into a directory; fills `report`.
///
/// # Errors
/// The request has a flag that these media do not have, the directory is not empty, a family or the full is missing, or
/// damage is found. Then nothing is left.
pub fn restore(found: &ForeignDevices, request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let begun = Instant::now();
    let title = found.media.title();
    refuse_flags(request, found.media)?;
    let Into::Directory(into) = &request.into else {
        let why = format!("a {title} becomes the files of its database, which only its own server opens");
        return Err(Error::usage("--into", why, "write --into dir:PATH, with an empty directory"));
    };
    new_directory::refuse_options(request, false)?;
    let given = request.set_options.flags();
    let moves: Vec<(String, PathBuf)> =
        given.pairs(&MOVE).into_iter().map(|(name, path)| (name.to_owned(), path.into())).collect();
    // Files that are moved are not in it: each of their names is free, or the restore ends.
    let made = into_directory::make(into, database_files::accepted(request.mkdir, !moves.is_empty()))?;
    conduct.progress.total.store(found.bytes(), Ordering::Relaxed);
    report.into = Some(format!("dir:{}", into.display()));
    report.engine = Some(found.media.engine().name().to_owned());
    let places = FilePlaces { directory: into.clone(), moves };
    let wanted = match given.number(&FILE) {
        Some(file) => found.identity_of(file).map(Some),
        None => Ok(request.reading.choice.set.clone()),
    };
    let done = wanted.and_then(|wanted| write_files(found, &places, wanted.as_deref(), conduct, report));
    if done.is_err() && made {
        let _ = std::fs::remove_dir(into); // The error of the restore is the one to tell.
    }
    done?;
    report.set_speed(begun.elapsed().as_secs_f64());
    Ok(())
}

fn write_files(
    found: &ForeignDevices,
    places: &FilePlaces,
    wanted: Option<&str>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let pool = all_bytes_pool()?;
    let open = |name: &str| found.open(name, &pool, conduct);
    database_files::tell(found.media.restore(&found.names(), &open, wanted, places)?, report);
    Ok(())
}

fn refuse_flags(request: &Request, media: &dyn ForeignMedia) -> Result<()> {
    let title = media.title();
    let choice = &request.reading.choice;
    let given = [
        ("--replace", request.replace),
        ("--no-recovery", request.recovery == Recovery::Later),
        ("--recovery", request.recovery == Recovery::Now),
        ("--resume", request.resume),
        ("--dry-run", request.dry_run),
        ("--check", request.check.is_some()),
        ("--continue-after-error", request.continue_after_error),
        ("--stop-at", choice.stop_at.is_some()),
        ("--before", choice.before.is_some()),
        ("--stop-at, --stop-at-gtid, --stop-before-gtid", request.stop.is_some()),
        ("--throttle", request.reading.knobs.throttle.is_some()),
    ];
    let wrong = |flag: &str| Err(Error::usage(flag, format!("does not work with a {title}"), "leave it out"));
    if let Some(option) = request.set_options.other_than(media.engine().name()) {
        return wrong(&format!("--{}", option.name));
    }
    match given.into_iter().find(|(_, given)| *given) {
        Some((flag @ "--stop-at", _)) => {
            let why =
                format!("does not work with a {title}: the records of its log are not documented, and none is applied");
            Err(Error::usage(
                flag,
                why,
                "`fullbore list --from … --stop-at TIME` shows the sets that a restore to a time takes",
            ))
        }
        Some((flag, _)) => wrong(flag),
        None => Ok(()),
    }
}
