//! `restore` of media of other programs: the files of their database in a directory.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};

use super::{ForeignDevices, all_bytes_pool};
use crate::job::restore::{Into, Recovery, Request};
use crate::report::Report;

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
    let made = empty_directory(into, request.mkdir)?;
    conduct.progress.total.store(found.bytes(), Ordering::Relaxed);
    report.into = Some(format!("dir:{}", into.display()));
    let pool = all_bytes_pool()?;
    let open = |name: &str| found.open(name, &pool, conduct);
    let devices = found.names();
    let done = found.media.restore(&devices, &open, request.reading.choice.set.as_deref(), into);
    if done.is_err() && made {
        let _ = std::fs::remove_dir(into); // The error of the restore is the one to tell.
    }
    let done = done?;
    report.sets = done.sets;
    report.warnings.extend(done.warnings);
    for file in &done.files {
        report.source_bytes += file.bytes;
        let name = into.join(&file.name).display().to_string();
        report.notes.push(format!(
            "`{name}` is the file `{}`: {} bytes, {} of them written",
            file.logical, file.size, file.bytes
        ));
    }
    report.notes.push(
        "the first page of a log file is not in a backup: SQL Server attaches the data files with FOR ATTACH_REBUILD_LOG \
         (this is not tried yet)"
            .to_owned(),
    );
    report.set_speed(begun.elapsed().as_secs_f64());
    Ok(())
}

/// True if the directory was made.
fn empty_directory(path: &Path, mkdir: bool) -> Result<bool> {
    match std::fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(false),
            Some(_) => Err(Error::refused(path.display().to_string(), "is not empty", "name an empty directory")),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && mkdir => {
            std::fs::create_dir(path).map_err(|e| Error::io("make", path.display().to_string(), e))?;
            Ok(true)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let why = "this directory does not exist";
            Err(Error::usage(path.display().to_string(), why, "make it, or add --mkdir"))
        }
        Err(error) => Err(Error::io("look into", path.display().to_string(), error)),
    }
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
