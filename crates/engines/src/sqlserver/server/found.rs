//! What is at the places of a backup before it runs: without `--init` nothing is overwritten, and nothing is appended.

use fullbore_core::{Error, Result};

use super::answer::Row;
use super::failure::{CANNOT_OPEN_DEVICE, Failure};
use super::link::Link;
use super::place::Place;
use super::questions;

/// The file is there, and is not a backup of SQL Server.
const NOT_MEDIA: [u32; 3] = [3241, 3242, 3243];

/// Whether the media have to be written anew. `true` only with `init`, and only if a backup of this database is there.
///
/// # Errors
/// A file is there and `init` is not given; or the file is not a backup of `database`, or is protected.
pub fn replaces(link: &mut Link, database: &str, files: &[Place], init: bool) -> Result<bool> {
    let mut found = false;
    for file in files.iter().filter(|file| **file != Place::Nul) {
        match link.ask(&questions::label(file)) {
            Ok(_) if !init => {
                let why = "holds a backup already: without --init, fullbore overwrites nothing and appends nothing";
                return Err(Error::refused(file.shown(), why, "name another file, or add --init"));
            }
            Ok(_) => {
                found = true;
                check_replaced(link, database, file)?;
            }
            Err(failure) if failure.is_missing_file() => {}
            // The server says no more about an object: the backup itself fails if it may not be written.
            Err(failure) if matches!(file, Place::Url(_)) && failure.code() == Some(CANNOT_OPEN_DEVICE) => {}
            Err(failure) if failure.code().is_some_and(|code| NOT_MEDIA.contains(&code)) => {
                let why = "exists and is not a backup of SQL Server";
                return Err(Error::refused(file.shown(), why, "name another file: --init replaces only backups"));
            }
            Err(failure) => return Err(failure.on(&file.shown())),
        }
    }
    Ok(found)
}

/// `--init` replaces backups of the same database that are not protected.
fn check_replaced(link: &mut Link, database: &str, file: &Place) -> Result<()> {
    let now = link.ask(questions::SERVER).map_err(|failure| failure.on(&file.shown()))?;
    let now = now.first().and_then(|row| row.text("now")).unwrap_or_default();
    let sets = match link.ask(&questions::headers(std::slice::from_ref(file))) {
        Ok(sets) => sets,
        Err(failure @ Failure::Ours(_)) => return Err(failure.on(&file.shown())),
        Err(failure) => return Err(failure.on(&file.shown()).noting("--init replaces only backups that can be read")),
    };
    let of_another = |set: &&Row| set.text("DatabaseName").is_none_or(|name| !name.eq_ignore_ascii_case(database));
    if let Some(other) = sets.iter().find(of_another) {
        let name = other.text("DatabaseName").unwrap_or_else(|| "without a name".into());
        let why = format!("holds a backup of another database: `{name}`");
        return Err(Error::refused(
            file.shown(),
            why,
            "name another file: --init replaces only backups of this database",
        ));
    }
    // Both are by the clock of the server, and sort as texts.
    let is_protected = |set: &&Row| set.text("ExpirationDate").is_some_and(|until| until > now);
    if let Some(until) = sets.iter().find(is_protected).and_then(|set| set.text("ExpirationDate")) {
        let why = format!("is protected by its expiration date, {until} (time of the server)");
        return Err(Error::refused(file.shown(), why, "name another file, or wait until then"));
    }
    Ok(())
}
