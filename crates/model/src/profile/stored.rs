//! Profiles as files: by name, replaced atomically. Every user may read the profiles of root.

use std::collections::BTreeSet;
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

/// The directory for root's profiles of a machine, which every user may read.
const OF_THE_MACHINE: &str = "/var/lib";

/// The directories of profiles: first in the state directory of this host ([`state_home`]), which gets new ones; then
/// `/var/lib/fullbore/profiles`, from root for all users; then `~/.config/fullbore/profiles`, from earlier versions.
pub fn places() -> Vec<PathBuf> {
    let homes = [state_home(), Some(PathBuf::from(OF_THE_MACHINE)), config_home()];
    let mut places: Vec<PathBuf> = homes.into_iter().flatten().map(|home| home.join("fullbore/profiles")).collect();
    places.dedup();
    places
}

/// Refuses a wrong name of a profile. A name has 1 to 64 letters, digits, `-`, `_` and dots, and does not begin with a
/// dot.
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
        "is not a name for a profile",
        "use 1 to 64 letters, digits, `-`, `_` and dots, not beginning with a dot",
    ))
}

fn file(directory: &Path, name: &str) -> Result<PathBuf> {
    check_name(name)?;
    Ok(directory.join(format!("{name}.json")))
}

/// Writes `profile` under its name into the first of `places`, and replaces an older one. Returns its path.
///
/// # Errors
/// A wrong name; a directory or file that cannot be written.
pub fn save(places: &[PathBuf], profile: &Profile) -> Result<PathBuf> {
    let Some(directory) = places.first() else {
        return Err(Error::usage("profiles", "this user has no directory for profiles", "set XDG_STATE_HOME"));
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

/// Makes a directory and the missing ones above it. If root makes it, every user may read it, whatever the umask is.
fn make(directory: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = directory.ancestors().take_while(|above| !above.exists()).collect();
    fs::create_dir_all(directory)?;
    if is_root() {
        missing.into_iter().try_for_each(|made| fs::set_permissions(made, Permissions::from_mode(0o755)))?;
    }
    Ok(())
}

/// The profile of that name, from the first of `places` that has one.
///
/// # Errors
/// There is none, or it does not have the form of [`save`]: with the position in the file.
pub fn load(places: &[PathBuf], name: &str) -> Result<Profile> {
    let again = || format!("measure it again: {}", command(name));
    let mut looked = Vec::new();
    for place in places {
        let path = file(place, name)?;
        let shown = path.display().to_string();
        match read_small(&path, LARGEST) {
            Ok((bytes, _)) if bytes.len() == LARGEST => {
                return Err(Error::refused(shown, format!("is longer than {LARGEST} bytes"), again()));
            }
            Ok((bytes, _)) => {
                // A copied profile takes the name of its file: `calibrate` replaces it by that name.
                let named = |profile| Profile { name: name.to_owned(), ..profile };
                return parse(&bytes).map(named).map_err(|why| Error::refused(shown, why, again()));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => looked.push(shown),
            // Another user's private profile.
            Err(e) if e.kind() == ErrorKind::PermissionDenied => looked.push(format!("{shown}: permission denied")),
            Err(e) => return Err(Error::io("read the profile", shown, e)),
        }
    }
    let why = format!("there is no such profile ({})", looked.join("; "));
    Err(Error::usage(format!("profile `{name}`"), why, format!("measure it: {}", command(name))))
}

/// All stored profiles, the newest first, and the errors of files that are no profile. Of a name, the file that [`load`]
/// reads counts.
pub fn all(places: &[PathBuf]) -> (Vec<Profile>, Vec<Error>) {
    let names: BTreeSet<String> = places.iter().flat_map(|place| names_in(place)).collect();
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for name in names {
        match load(places, &name) {
            Ok(profile) => found.push(profile),
            Err(error) => errors.push(error),
        }
    }
    let made = |profile: &Profile| profile.made_at.parse::<jiff::Timestamp>().ok();
    found.sort_by_key(|profile| std::cmp::Reverse(made(profile)));
    (found, errors)
}

/// The names of the profiles in a directory; none if it cannot be read.
fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned());
    entries.filter_map(name).filter(|name| check_name(name).is_ok()).collect()
}

/// The command that measures the profile of that name.
fn command(name: &str) -> String {
    format!("fullbore calibrate --read … --write … --name {name}")
}

/// A profile from its text, with every number checked.
pub(super) fn parse(bytes: &[u8]) -> std::result::Result<Profile, String> {
    /// The field of every version. It is read first, so that an error about another version names the version.
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u64,
    }
    let wrong = |e: serde_json::Error| format!("is not a calibration profile: {e}");
    let Versioned { version } = serde_json::from_slice(bytes).map_err(wrong)?;
    if version != VERSION {
        return Err(format!("has version {version}, but this fullbore reads {VERSION}"));
    }
    let profile: Profile = serde_json::from_slice(bytes).map_err(wrong)?;
    match bounds::breach(&profile) {
        Some(breach) => Err(format!("cannot be right: {breach}")),
        None => Ok(profile),
    }
}
