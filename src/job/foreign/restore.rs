//! `restore` of media of other programs: the files of their database in a directory.

use std::sync::atomic::Ordering;
use std::time::Instant;

use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};
use fullbore_engines::FilePlaces;

use super::{ForeignDevices, all_bytes_pool};
use crate::job::into_directory::{self, Accepted};
use crate::job::restore::{Into, Recovery, Request};
use crate::report::Report;

/// How the directory begins that holds stored media while their database is restored.
pub(in crate::job) const UNFINISHED: &str = ".restore-unfinished-";

/// Writes the files of the database on these media into a directory; fills `report`.
///
/// # Errors
/// The request has a flag that these media do not have, the directory is not empty, a family or the full is missing, or
/// damage is found. Then nothing is left.
pub fn restore(found: &ForeignDevices, request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let begun = Instant::now();
    let title = found.media.title();
    refuse_flags(request, title)?;
    let Into::Directory(into) = &request.into else {
        let why = format!("a {title} becomes the files of its database, which only its own server opens");
        return Err(Error::usage("--into", why, "write --into dir:PATH, with an empty directory"));
    };
    // Files that are moved are not in it: each of their names is free, or the restore ends.
    let made = into_directory::make(into, accepted(request.mkdir, !request.moves.is_empty()))?;
    conduct.progress.total.store(found.bytes(), Ordering::Relaxed);
    report.into = Some(format!("dir:{}", into.display()));
    let places = FilePlaces { directory: into.clone(), moves: request.moves.clone() };
    let wanted = match request.file {
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

/// The directory of a restore: empty, or with other files too.
pub(in crate::job) fn accepted(missing: bool, files: bool) -> Accepted<'static> {
    Accepted { missing, files, hint: &next_step }
}

fn next_step(file: &str) -> String {
    match file.starts_with(UNFINISHED) {
        true => format!("an interrupted restore has left {file}: remove it"),
        false => "name an empty directory".to_owned(),
    }
}

/// Writes the files of the database; fills `report`.
///
/// # Errors
/// As of [`ForeignMedia::restore`](fullbore_engines::ForeignMedia::restore).
pub(in crate::job) fn write_files(
    found: &ForeignDevices,
    places: &FilePlaces,
    wanted: Option<&str>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let pool = all_bytes_pool()?;
    let open = |name: &str| found.open(name, &pool, conduct);
    let done = found.media.restore(&found.names(), &open, wanted, places)?;
    report.sets = done.sets;
    report.warnings.extend(done.warnings);
    for file in &done.files {
        report.source_bytes += file.bytes;
        report.notes.push(format!(
            "`{}` is the file `{}`: {} bytes, {} of them written",
            file.path.display(),
            file.logical,
            file.size,
            file.bytes
        ));
    }
    report.notes.push(
        "the first page of a log file is not in a backup: SQL Server attaches the data files with FOR ATTACH_REBUILD_LOG \
         (this is not tried yet)"
            .to_owned(),
    );
    Ok(())
}

fn refuse_flags(request: &Request, title: &str) -> Result<()> {
    let choice = &request.reading.choice;
    let given = [
        ("--replace", request.replace),
        ("--no-recovery", request.recovery == Recovery::Later),
        ("--recovery", request.recovery == Recovery::Now),
        ("--resume", request.resume),
        ("--dry-run", request.dry_run),
        ("--check", request.check.is_some()),
        ("--place-outside", request.place_outside),
        ("--owner", request.owner.is_some()),
        ("--continue-after-error", request.continue_after_error),
        ("--table", request.tables.is_some()),
        ("--stop-at", choice.stop_at.is_some()),
        ("--throttle", request.reading.knobs.throttle.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Error::usage(flag, format!("does not work with a {title}"), "leave it out")),
        None => Ok(()),
    }
}
