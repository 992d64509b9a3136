//! Profiles as files: by name, for their owner alone, replaced atomically.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fullbore_core::io::{read_small, sync_directory};
use fullbore_core::{Error, Result};

use super::{Profile, VERSION, bounds};

/// The longest profile that is read, in bytes.
const LARGEST: usize = 16 << 20;
/// The longest name.
const NAME_MOST: usize = 64;

/// Where profiles are: `$XDG_CONFIG_HOME/fullbore/profiles`, else under `~/.config`.
///
/// # Errors
/// Neither is set.
pub fn directory() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let home = home.ok_or_else(|| {
        Error::usage("profiles", "neither XDG_CONFIG_HOME nor HOME is an absolute path", "set XDG_CONFIG_HOME")
    })?;
    Ok(home.join("fullbore/profiles"))
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

/// Writes `profile` under its name; one of that name is replaced. Gives its path.
///
/// # Errors
/// A wrong name; a directory or file that cannot be written.
pub fn save(directory: &Path, profile: &Profile) -> Result<PathBuf> {
    let path = file(directory, &profile.name)?;
    let shown = path.display().to_string();
    let failed = |e| Error::io("write the profile", shown.clone(), e);
    if let Some(breach) = bounds::breach(profile) {
        // It could not be read again.
        return Err(Error::refused(shown, format!("is not written: {breach}"), "measure again, with more --seconds"));
    }
    let text = serde_json::to_string_pretty(profile).map_err(|e| failed(e.into()))? + "\n";
    fs::create_dir_all(directory).map_err(|e| Error::io("make the directory", directory.display().to_string(), e))?;
    let working = directory.join(format!(".{}.new-{}", profile.name, uuid::Uuid::new_v4()));
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&working).and_then(|mut new| {
        new.write_all(text.as_bytes())?;
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

/// The profile of that name.
///
/// # Errors
/// There is none, or it is not what [`save`] writes: with the place in the file.
pub fn load(directory: &Path, name: &str) -> Result<Profile> {
    let path = file(directory, name)?;
    let shown = path.display().to_string();
    let again = || format!("measure it anew: fullbore calibrate --read … --write … --name {name}");
    let bytes = match read_small(&path, LARGEST) {
        Ok((bytes, _)) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let why = format!("there is no such profile ({shown})");
            return Err(Error::usage(format!("profile `{name}`"), why, again()));
        }
        Err(e) => return Err(Error::io("read the profile", shown, e)),
    };
    if bytes.len() == LARGEST {
        return Err(Error::refused(shown, format!("is longer than {LARGEST} bytes"), again()));
    }
    // A copy of a profile is called as its file is: by that it is measured anew.
    let named = |profile| Profile { name: name.to_owned(), ..profile };
    parse(&bytes).map(named).map_err(|why| Error::refused(shown, why, again()))
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
