//! Who may change a file that tells fullbore what to do: only this user and root.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, Uid, User};

use super::directory_of;
use crate::error::{Error, Result};

/// The most links that are followed, one to the next.
const LINKS_MOST: usize = 40;
/// Bits of a mode: group and others may write; in a directory, others may not replace what is not theirs.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Why another user may change the content, and the next step.
type Doubt = (String, String);

/// Refuses a file that a user other than this one and root owns, may write, or may replace in its directory; for a
/// symbolic link, also the link. A file that does not exist is accepted.
///
/// # Errors
/// A usage error that names the file, and what to change.
pub fn refuse_files_of_others(path: &Path) -> Result<()> {
    match doubt(path) {
        Ok(None) => Ok(()),
        Ok(Some((why, hint))) => Err(Error::usage(path.display().to_string(), why, hint)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("look at", path.display().to_string(), error)),
    }
}

/// Refuses an open regular file that a user other than this one and root owns or may write. Its directory does not count.
///
/// # Errors
/// A usage error that names the file, and what to change.
pub fn refuse_file_with_other_writers(path: &Path, file: &Metadata) -> Result<()> {
    match of_file(path, file).filter(|_| file.is_file()) {
        Some((why, hint)) => Err(Error::usage(path.display().to_string(), why, hint)),
        None => Ok(()),
    }
}

fn doubt(path: &Path) -> io::Result<Option<Doubt>> {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MOST {
        let directory = directory_of(&at).to_owned();
        let found = of_directory(&directory)?;
        if found.is_some() {
            return Ok(found);
        }
        let here = fs::symlink_metadata(&at)?;
        if !here.is_symlink() {
            return Ok(of_file(&at, &here));
        }
        if let Some(owner) = foreign_owner(&here) {
            return Ok(Some((format!("is a symbolic link of {owner}"), owned_by_you(&at))));
        }
        let next = directory.join(fs::read_link(&at)?);
        // The target of a link of the kernel may have no name: an open pipe.
        if !next.exists() {
            return Ok(of_file(&at, &fs::metadata(&at)?));
        }
        at = next;
    }
    Err(io::Error::other("too many symbolic links"))
}

fn of_file(path: &Path, file: &Metadata) -> Option<Doubt> {
    if let Some(owner) = foreign_owner(file) {
        return Some((format!("belongs to {owner}, who may change what it says"), owned_by_you(path)));
    }
    // A device has no owner who writes its content.
    let who = others_who_write(file).filter(|_| file.is_file())?;
    Some((format!("{who} may write it"), format!("chmod go-w {}", path.display())))
}

fn of_directory(path: &Path) -> io::Result<Option<Doubt>> {
    let directory = fs::metadata(path)?;
    let shown = fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path));
    let shown = shown.display();
    if let Some(owner) = foreign_owner(&directory) {
        let hint =
            format!("put it into a directory of yours, or of root; or name one there with --config; or chown {shown}");
        return Ok(Some((format!("is in {shown}, which belongs to {owner}"), hint)));
    }
    let who = others_who_write(&directory).filter(|_| directory.mode() & STICKY == 0);
    Ok(who.map(|who| (format!("is in {shown}, where {who} may replace it"), format!("chmod go-w {shown}"))))
}

fn owned_by_you(path: &Path) -> String {
    let user = User::from_uid(Uid::effective()).ok().flatten();
    let user = user.map_or_else(|| Uid::effective().to_string(), |user| user.name);
    format!("look at what it says; if you trust it: chown -h {user} {}", path.display())
}

/// The owner, unless that is this user or root.
fn foreign_owner(metadata: &Metadata) -> Option<String> {
    let owner = Uid::from_raw(metadata.uid());
    if owner.is_root() || owner == Uid::effective() {
        return None;
    }
    let named = User::from_uid(owner).ok().flatten().map(|user| format!("the user {}", user.name));
    Some(named.unwrap_or_else(|| format!("the user {owner}")))
}

/// Who besides the owner may write.
fn others_who_write(metadata: &Metadata) -> Option<&'static str> {
    match metadata.mode() {
        mode if mode & OTHERS_WRITE != 0 => Some("everybody"),
        mode if mode & GROUP_WRITES != 0 && !is_own_group(metadata) => Some("its group"),
        _ => None,
    }
}

/// True for root's group, and for a group with the owner's name and no other member: most systems give each user such a
/// group.
fn is_own_group(metadata: &Metadata) -> bool {
    let (owner, group) = (Uid::from_raw(metadata.uid()), Gid::from_raw(metadata.gid()));
    if group.as_raw() == 0 {
        return true;
    }
    let Some(user) = User::from_uid(owner).ok().flatten() else { return false };
    let Some(group) = Group::from_gid(group).ok().flatten() else { return false };
    user.gid == group.gid && user.name == group.name && group.mem.iter().all(|member| *member == user.name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    const NOBODY: u32 = 65_534;

    fn said(path: &Path) -> String {
        refuse_files_of_others(path).map_or_else(|error| error.to_string(), |()| String::new())
    }

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_that_others_may_write_or_replace_is_refused_and_a_sticky_directory_is_fine() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fullbore.toml");
        assert_eq!(said(&file), "", "there is none");
        fs::write(&file, "").unwrap();
        assert_eq!(said(&file), "");
        allow(&file, 0o646);
        assert!(said(&file).contains("everybody may write it") && said(&file).contains("chmod go-w"));
        allow(&file, 0o600);
        allow(folder.path(), 0o777);
        assert!(said(&file).contains("where everybody may replace it"), "{}", said(&file));
        allow(folder.path(), 0o1777);
        assert_eq!(said(&file), "");
    }

    #[test]
    fn a_link_is_followed_to_where_others_may_write() {
        let [here, there] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (link, file) = (here.path().join("fullbore.toml"), there.path().join("real.toml"));
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(said(&link), "");
        allow(there.path(), 0o777);
        assert!(said(&link).contains("may replace it"));
        let round = here.path().join("round");
        symlink(&round, &round).unwrap();
        assert_ne!(said(&round), "");
    }

    #[test]
    fn a_file_a_link_and_a_directory_of_another_user_are_refused() {
        if !Uid::effective().is_root() {
            return; // Only root makes files of others.
        }
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("fullbore.toml"), folder.path().join("link"));
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(NOBODY), None).unwrap();
        assert!(said(&link).contains("symbolic link of the user"), "{}", said(&link));
        chown(&file, Some(NOBODY), None).unwrap();
        assert!(said(&file).contains("belongs to the user") && said(&file).contains("chown"), "{}", said(&file));
        chown(&file, Some(0), None).unwrap();
        chown(folder.path(), Some(NOBODY), None).unwrap();
        assert!(said(&file).contains("which belongs to the user"), "{}", said(&file));
    }
}
