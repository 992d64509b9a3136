//! What is at the places of a backup before it runs: without `--init` nothing is overwritten, and nothing is appended.

use fullbore_core::{Error, Result};

use super::answer::Row;
use super::failure::{CANNOT_OPEN_DEVICE, Failure};
use super::link::Link;
use super::place::Place;
use super::questions;

/// The file is there, and is not a backup of SQL Server.
const NOT_MEDIA: [u32; 3] = [3241, 3242, 3243];

/// Whether the media have to be written anew (FORMAT). `true` only with `init`, and only if backups of this database are
/// there. FORMAT goes to every place, so each one must be free or hold such backups.
///
/// # Errors
/// A file is there and `init` is not given; with `init`, the server does not show what is there; or the file is not a
/// backup of `database` on this server, or is protected.
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
            // Without FORMAT, the server does not write over an object: the backup itself fails.
            Err(failure) if is_object(file, &failure) && !init => {}
            Err(failure) if is_object(file, &failure) => {
                let more = "with --init, the server must show what is there: leave --init out for a new object";
                return Err(failure.on(&file.shown()).noting(more));
            }
            Err(failure) if failure.code().is_some_and(|code| NOT_MEDIA.contains(&code)) => {
                let why = "exists and is not a backup of SQL Server";
                return Err(Error::refused(file.shown(), why, "name another file: --init replaces only backups"));
            }
            Err(failure) => return Err(failure.on(&file.shown())),
        }
    }
    Ok(found)
}

/// An object that cannot be opened. It may exist all the same.
fn is_object(file: &Place, failure: &Failure) -> bool {
    matches!(file, Place::Url(_)) && failure.code() == Some(CANNOT_OPEN_DEVICE)
}

/// `--init` replaces backups of the same database that are not protected.
fn check_replaced(link: &mut Link, database: &str, file: &Place) -> Result<()> {
    let now = link.ask(questions::SERVER).map_err(|failure| failure.on(&file.shown()))?;
    let said = |column: &str| now.first().and_then(|row| row.text(column));
    let (server, now) = (said("server_name"), said("now").unwrap_or_default());
    let sets = match link.ask(&questions::headers(std::slice::from_ref(file))) {
        Ok(sets) => sets,
        Err(failure @ Failure::Ours(_)) => return Err(failure.on(&file.shown())),
        Err(failure) => return Err(failure.on(&file.shown()).noting("--init replaces only backups that can be read")),
    };
    if sets.is_empty() {
        let why = "is a medium of SQL Server, and the server shows no set on it";
        return Err(Error::refused(
            file.shown(),
            why,
            "name another file: --init replaces only backups of this database",
        ));
    }
    // `Shop` and `shop` are two databases on some servers.
    let of_another = |set: &&Row| set.text("DatabaseName").is_none_or(|name| name != database);
    if let Some(other) = sets.iter().find(of_another) {
        let name = other.text("DatabaseName").unwrap_or_else(|| "without a name".into());
        let why = format!("holds a backup of another database: `{name}`");
        return Err(Error::refused(
            file.shown(),
            why,
            "name another file: --init replaces only backups of this database",
        ));
    }
    let of_another_server = |set: &&Row| match (&server, set.text("ServerName")) {
        (Some(this), Some(other)) => *this != other,
        (None, _) | (_, None) => false,
    };
    if let Some(other) = sets.iter().find(of_another_server).and_then(|set| set.text("ServerName")) {
        let why = format!("holds a backup of another server: `{other}`");
        let hint = "name another file: --init replaces only backups of this database on this server";
        return Err(Error::refused(file.shown(), why, hint));
    }
    // Both are by the clock of the server, and sort as texts.
    let is_protected = |set: &&Row| set.text("ExpirationDate").is_some_and(|until| until > now);
    if let Some(until) = sets.iter().find(is_protected).and_then(|set| set.text("ExpirationDate")) {
        let why = format!("is protected by its expiration date, {until} (time of the server)");
        return Err(Error::refused(file.shown(), why, "name another file, or wait until then"));
    }
    Ok(())
}
