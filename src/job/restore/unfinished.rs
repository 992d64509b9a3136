//! A directory of a server's files that is not complete yet: under another name, or marked so.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::io::{free_space, sync_directory};
use fullbore_core::{Error, Result};

use crate::units::show_bytes;

/// Where the files of a server are put together: a directory beside the target, on the same file system, which gets the target's name
/// in the end. A file system that is mounted at the target cannot be renamed: there it is the target itself, and the mark of
/// [`fullbore_engines::begin_directory`] keeps servers from it. Dropped before it is published, it is removed.
pub(super) struct Unfinished<'a> {
    target: &'a Path,
    path: PathBuf,
    published: bool,
}

impl<'a> Unfinished<'a> {
    /// For `size` bytes of files; `target` is empty or missing.
    pub fn make(target: &'a Path, mkdir: bool, size: u64) -> Result<Self> {
        must_be_empty(target)?;
        let parent = parent_of(target);
        if mkdir {
            fs::create_dir_all(parent).map_err(|e| Error::io("make", parent.display().to_string(), e))?;
        }
        let in_place = is_mount_point(target);
        let free = free_space(if in_place { target } else { parent })?;
        if free < size {
            return Err(Error::refused(
                target.display().to_string(),
                format!("the files need {} there, and {} are free", show_bytes(size), show_bytes(free)),
                "free space there, or name another target with --into",
            ));
        }
        if in_place {
            return Ok(Self { target, path: target.to_owned(), published: false });
        }
        let name = target.file_name().ok_or_else(|| {
            Error::usage(format!("--into dir:{}", target.display()), "has no name", "name a new directory in it")
        })?;
        let mut working = name.to_owned();
        working.push(format!(".restoring-{}", uuid::Uuid::new_v4()));
        let path = parent.join(working);
        fs::create_dir(&path).map_err(|e| Error::io("make", path.display().to_string(), e))?;
        Ok(Self { target, path, published: false })
    }

    /// Where the files go.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it the target's name, durably; an empty directory of that name gives way. `then` is done as soon as it has the name.
    pub fn publish(mut self, then: impl FnOnce()) -> Result<()> {
        if !self.is_in_place() {
            fs::rename(&self.path, self.target)
                .map_err(|error| Error::io("give its name to", self.target.display().to_string(), error))?;
        }
        // It is there and whole, whatever the sync says.
        self.published = true;
        then();
        sync_directory(if self.is_in_place() { self.target } else { parent_of(self.target) })
    }

    /// A file system is mounted at the target.
    fn is_in_place(&self) -> bool {
        self.path == self.target
    }

    /// Gives the target's name to `part` of it, durably, and removes the rest.
    #[cfg(any(feature = "mysql", feature = "mariadb"))]
    pub fn publish_part(mut self, part: &str) -> Result<()> {
        let failed = |e| Error::io("give its name to", self.target.display().to_string(), e);
        let kept = self.path.join(part);
        if !self.is_in_place() {
            fs::rename(kept, self.target).map_err(failed)?;
            return sync_directory(parent_of(self.target)); // What is left goes with the name it had.
        }
        let entries = |path: &Path| fs::read_dir(path).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
        for entry in entries(&self.path).map_err(failed)?.iter().filter(|entry| entry.path() != kept) {
            fs::remove_dir_all(entry.path()).map_err(failed)?;
        }
        for entry in entries(&kept).map_err(failed)? {
            fs::rename(entry.path(), self.target.join(entry.file_name())).map_err(failed)?;
        }
        fs::remove_dir(&kept).map_err(failed)?;
        self.published = true;
        sync_directory(self.target)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        // Whatever cannot be removed has a working name, or the mark: no server starts on it.
        if !self.is_in_place() {
            let _ = fs::remove_dir_all(&self.path);
            return;
        }
        let mut entries: Vec<_> = fs::read_dir(&self.path).into_iter().flatten().flatten().collect();
        // The mark goes last: killed in between, what is left is still no server's.
        entries.sort_by_key(|entry| fullbore_engines::is_mark(&entry.file_name()));
        for entry in entries {
            let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let _ = if directory { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
        }
    }
}

fn must_be_empty(target: &Path) -> Result<()> {
    let taken = |why: &str| {
        let hint = "name an empty or missing directory: the files of a server are not mixed with others";
        Err(Error::refused(target.display().to_string(), why, hint))
    };
    match fs::read_dir(target).map(|mut entries| entries.next().is_some()) {
        Ok(true) => taken("is not empty"),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(Error::io("read", target.display().to_string(), error))
        }
        Err(_) if target.symlink_metadata().is_ok() => taken("is no directory"),
        Ok(false) | Err(_) => Ok(()),
    }
}

/// Another file system begins there. A bind mount of the same one is not seen: the rename says so then.
fn is_mount_point(target: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|stat| stat.dev());
    matches!((device(target), device(&target.join(".."))), (Ok(mine), Ok(above)) if mine != above)
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
