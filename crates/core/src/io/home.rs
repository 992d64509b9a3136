//! Where this user's files are: at home, and what a host keeps of its own.

use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

/// A directory that a variable names; nothing if it is not set, or is not an absolute path.
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The home directory: `HOME`, and without it (a unit of systemd has none) what the system's list of users says.
pub fn home() -> Option<PathBuf> {
    let listed = || User::from_uid(Uid::effective()).ok().flatten().map(|user| user.dir);
    named("HOME").or_else(listed).filter(|path| path.is_absolute())
}

/// Where configurations are: `XDG_CONFIG_HOME`, else `.config` at home.
pub fn config_home() -> Option<PathBuf> {
    named("XDG_CONFIG_HOME").or_else(|| home().map(|home| home.join(".config")))
}

/// Where a host keeps what it knows: `XDG_STATE_HOME`, else `/var/lib` for root, and `.local/state` at home for others.
pub fn state_home() -> Option<PathBuf> {
    named("XDG_STATE_HOME").or_else(|| match Uid::effective().is_root() {
        true => Some(PathBuf::from("/var/lib")),
        false => home().map(|home| home.join(".local/state")),
    })
}

/// True for a credential that systemd passed to this unit (`LoadCredential=`): a file in `CREDENTIALS_DIRECTORY`. Only
/// the user of the unit reads it, by an access list, and the mode of a file with an access list shows group bits.
pub fn is_credential(path: &Path) -> bool {
    let credentials = named("CREDENTIALS_DIRECTORY");
    credentials.is_some_and(|directory| path.parent() == Some(directory.as_path()))
}
