//! Profiles as files: by name, replaced atomically. What root has measured of a machine everybody may read.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fullbore_core::io::{config_home, read_small, state_home, sync_directory};
use fullbore_core::{Error, Result};

use super::{Profile, VERSION, bounds};

/// The longest profile that is read, in bytes.
const LARGEST: usize = 16 << 20;
/// The longest name.
const NAME_MOST: usize = 64;

/// Where root keeps the profiles of a machine, for everybody to read.
const OF_THE_MACHINE: &str = "/var/lib";

/// Where profiles are: where this host keeps what it knows ([`state_home`]), which is where new ones go; then `/var/lib/fullbore/profiles`, which
/// root has made for all; then where earlier versions kept them, `~/.config/fullbore/profiles`.
pub fn places() -> Vec<PathBuf> {
    let homes = [state_home(), Some(PathBuf::from(OF_THE_MACHINE)), config_home()];
    let mut places: Vec<PathBuf> = homes.into_iter().flatten().map(|home| home.join("fullbore/profiles")).collect();
    places.dedup();
    places
}

/// Refuses what is no name of a profile: 1 to 64 letters, digits, `-`, `_` and dots, the first no dot.
///
/// # Errors
/// A usage error.
pub fn check_name(name: &str) -> Result<()> {
    let letters = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
    if letters && (1..=NAME_MOST).contains(&name.len()) && !name.starts_with('.') {
        return Ok(());
    }
    Err(Error::usage(
        format!("--name {name}"),
        "is no name for a profile",
        "use 1 to 64 letters, digits, `-`, `_` and dots, the first no dot",
    ))
}

fn file(directory: &Path, name: &str) -> Result<PathBuf> {
    check_name(name)?;
    Ok(directory.join(format!("{name}.json")))
}

/// Writes `profile` under its name into the first of `places`; one of that name is replaced. Gives its path.
///
/// # Errors
/// A wrong name; a directory or file that cannot be written.
pub fn save(places: &[PathBuf], profile: &Profile) -> Result<PathBuf> {
    let Some(directory) = places.first() else {
        return Err(Error::usage("profiles", "there is no directory for them", "set XDG_STATE_HOME"));
    };
    let path = file(directory, &profile.name)?;
    let shown = path.display().to_string();
    let failed = |e| Error::io("write the profile", shown.clone(), e);
    if let Some(breach) = bounds::breach(profile) {
        // It could not be read again.
        return Err(Error::refused(shown, format!("is not written: {breach}"), "measure again, with more --seconds"));
    }
    let text = serde_json::to_string_pretty(profile).map_err(|e| failed(e.into()))? + "\n";
    make(directory).map_err(|e| Error::io("make the directory", directory.display().to_string(), e))?;
    let working = directory.join(format!(".{}.new-{}", profile.name, uuid::Uuid::new_v4()));
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&working).and_then(|mut new| {
        new.write_all(text.as_bytes())?;
        new.set_permissions(Permissions::from_mode(if is_root() { 0o644 } else { 0o600 }))?;
        new.sync_all()?;
        fs::rename(&working, &path)
    });
    if let Err(error) = written {
        let _ = fs::remove_file(&working); // The first error is the one to show.
        return Err(failed(error));
    }
    sync_directory(directory)?;
    Ok(path)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes a directory and what is missing above it. What root makes here everybody may read, whatever root's umask says.
fn make(directory: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = directory.ancestors().take_while(|above| !above.exists()).collect();
    fs::create_dir_all(directory)?;
    if is_root() {
        missing.into_iter().try_for_each(|made| fs::set_permissions(made, Permissions::from_mode(0o755)))?;
    }
    Ok(())
}

/// The profile of that name: the one in the first of `places` that has one.
///
/// # Errors
/// There is none, or it is not what [`save`] writes: with the place in the file.
pub fn load(places: &[PathBuf], name: &str) -> Result<Profile> {
    let again = || format!("measure it anew: fullbore calibrate --read … --write … --name {name}");
    let mut looked = Vec::new();
    for place in places {
        let path = file(place, name)?;
        let shown = path.display().to_string();
        match read_small(&path, LARGEST) {
            Ok((bytes, _)) if bytes.len() == LARGEST => {
                return Err(Error::refused(shown, format!("is longer than {LARGEST} bytes"), again()));
            }
            Ok((bytes, _)) => {
                // A copy of a profile is called as its file is: by that it is measured anew.
                let named = |profile| Profile { name: name.to_owned(), ..profile };
                return parse(&bytes).map(named).map_err(|why| Error::refused(shown, why, again()));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => looked.push(shown),
            // Of another user, who keeps it to himself.
            Err(e) if e.kind() == ErrorKind::PermissionDenied => looked.push(format!("{shown}, which may not be read")),
            Err(e) => return Err(Error::io("read the profile", shown, e)),
        }
    }
    let why = format!("there is no such profile ({})", looked.join("; "));
    Err(Error::usage(format!("profile `{name}`"), why, again()))
}

/// A profile out of its text, with every number bounded.
pub(super) fn parse(bytes: &[u8]) -> std::result::Result<Profile, String> {
    /// What every version has: read first, so that another one is named and not some field of it.
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u64,
    }
    let wrong = |e: serde_json::Error| format!("is no profile of calibration: {e}");
    let Versioned { version } = serde_json::from_slice(bytes).map_err(wrong)?;
    if version != VERSION {
        return Err(format!("has version {version}, and this fullbore reads {VERSION}"));
    }
    let profile: Profile = serde_json::from_slice(bytes).map_err(wrong)?;
    match bounds::breach(&profile) {
        Some(breach) => Err(format!("cannot be right: {breach}")),
        None => Ok(profile),
    }
}
