//! What is done to a directory: names that appear durably and never replace another, and the room that is left.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with, statvfs};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Renames `from` to `to`, in the same file system, unless `to` exists. Not durable before [`sync_directory`].
///
/// Where the file system has no such rename (NFS, some FUSE), a hard link takes its place: it refuses an existing name
/// just as atomically, but a kill between link and unlink leaves both names on the one file. Without hard links either
/// (FAT), the name is looked up first, and another process could come in between.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] when `to` exists, and whatever the file system says.
pub fn rename_noreplace(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_and_unlink(from, to),
        other => other.map_err(io::Error::from),
    }
}

fn link_and_unlink(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::MLINK) => look_and_rename(from, to),
        Err(other) => Err(other.into()),
    }
}

fn look_and_rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(to) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::rename(from, to),
        Err(error) => Err(error),
    }
}

/// Renames several files, from and to: all of them or none. With `replace`, files of the new names are replaced, and an
/// error does not bring them back. Not durable before [`sync_directory`].
///
/// # Errors
/// A name is taken, by a directory if `replace` is given; or a file cannot be renamed.
pub fn rename_together(renames: &[(PathBuf, PathBuf)], replace: bool) -> Result<()> {
    if let Some((_, to)) = renames.iter().find(|(_, to)| replace && to.is_dir()) {
        let why = "is a directory in the place of a file";
        return Err(Error::refused(to.display().to_string(), why, "remove it, or name another directory"));
    }
    for (done, (from, to)) in renames.iter().enumerate() {
        let renamed = if replace { fs::rename(from, to) } else { rename_noreplace(from, to) };
        if let Err(error) = renamed {
            // Some of the files alone would look like all of them.
            for (_, named) in renames.iter().take(done).filter(|_| !replace) {
                let _ = fs::remove_file(named); // The error of the rename is the one to tell.
            }
            return Err(Error::io("rename to", to.display().to_string(), error));
        }
    }
    Ok(())
}

/// Makes the names in `directory` durable.
pub fn sync_directory(directory: &Path) -> Result<()> {
    // The parent of a relative name is empty, and means the working directory.
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let synced = File::open(directory).and_then(|opened| opened.sync_all());
    match synced {
        // Some network file systems cannot sync a directory; their renames are durable when they return.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        other => other.map_err(|error| Error::io("sync directory", directory.display().to_string(), error)),
    }
}

/// The directory that a file of this name is in: `.` for a bare name.
pub fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The absolute path without links, `.` and `..`, as far as it exists; the rest as it is written. So it is the same
/// before and after the rest is made, and by every name of it.
///
/// # Errors
/// The path is empty, or relative to a working directory that is gone.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let mut real = PathBuf::new();
    for component in absolute.components() {
        match component {
            // The parent of what is resolved: no link is left that would give `..` another meaning.
            Component::ParentDir => drop(real.pop()),
            other => real.push::<&OsStr>(other.as_ref()),
        }
        if let Ok(resolved) = real.canonicalize() {
            real = resolved;
        }
    }
    Ok(real)
}

/// Bytes that this user may still write to the file system that holds `path`.
pub fn free_space(path: &Path) -> Result<u64> {
    let stat = statvfs(path)
        .map_err(|error| Error::io("ask for the free space of", path.display().to_string(), error.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    type Rename = fn(&Path, &Path) -> io::Result<()>;

    #[test]
    fn every_way_to_rename_moves_to_a_free_name_and_refuses_a_taken_one() {
        for rename in [rename_noreplace as Rename, link_and_unlink, look_and_rename] {
            let directory = tempfile::tempdir().unwrap();
            let [a, b, c] = ["a", "b", "c"].map(|name| directory.path().join(name));
            fs::write(&a, "a").unwrap();
            fs::write(&c, "c").unwrap();
            rename(&a, &b).unwrap();
            assert!(!a.exists());
            assert_eq!(fs::read(&b).unwrap(), b"a");
            assert_eq!(rename(&b, &c).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&c).unwrap(), b"c");
            assert!(b.exists());
            sync_directory(directory.path()).unwrap();
        }
    }

    #[test]
    fn a_path_has_one_real_name_before_and_after_it_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("real/inner")).unwrap();
        std::os::unix::fs::symlink("real/inner", root.join("link")).unwrap();
        std::os::unix::fs::symlink(&root, root.join("real/up")).unwrap();
        let named = |name: &str| real_path(&root.join(name)).unwrap();
        assert_eq!(named("link/new/file"), root.join("real/inner/new/file"));
        assert_eq!(named("link/../new"), root.join("real/new"), "the parent of what the link leads to");
        assert_eq!(named("gone/../link/./new"), root.join("real/inner/new"), "a link behind what does not exist");
        assert_eq!(named("gone/../real/up/gone/../gone"), root.join("gone"));
        fs::create_dir_all(root.join("link/new/file")).unwrap();
        assert_eq!(named("link/new/file"), root.join("real/inner/new/file"));
        assert_eq!(real_path(Path::new("/../..")).unwrap(), Path::new("/"));
        assert!(real_path(Path::new("")).is_err());
    }

    #[test]
    fn a_relative_path_that_does_not_exist_is_in_the_working_directory() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        for name in ["gone", "./gone", "gone/../gone", "gone/"] {
            assert_eq!(real_path(Path::new(name)).unwrap(), here.join("gone"), "{name}");
        }
        assert_eq!(real_path(Path::new("gone/inner")).unwrap(), here.join("gone/inner"));
        assert_eq!(real_path(Path::new(".")).unwrap(), here);
    }

    #[test]
    fn free_space_is_known_for_a_directory_and_an_error_for_a_missing_one() {
        let directory = tempfile::tempdir().unwrap();
        assert!(free_space(directory.path()).unwrap() > 0);
        assert!(free_space(&directory.path().join("missing")).unwrap_err().to_string().contains("missing"));
    }
}
