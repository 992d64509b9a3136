//! The directory of an export: files get their names only when all of them are complete and durable.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fullbore_core::io::{rename_together, sync_directory};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use crate::job::into_directory::{self, Accepted};

/// How the directory with unfinished files begins.
const UNFINISHED: &str = ".export-unfinished-";

/// An export that is being written. A drop removes it.
pub struct Staging {
    into: PathBuf,
    /// A directory in `into`.
    unfinished: PathBuf,
    replace: bool,
    /// True if `into` did not exist.
    made: bool,
}

impl Staging {
    /// Begins an export into a directory that does not exist or is empty. With `replace`, it may hold files.
    ///
    /// # Errors
    /// The directory holds files, is not a directory, or cannot be made.
    pub fn create(into: &Path, replace: bool) -> Result<Self> {
        let made = into_directory::make(into, Accepted { missing: true, files: replace, hint: &next_step })?;
        let unfinished = into.join(format!("{UNFINISHED}{}", Uuid::new_v4()));
        let staging = Self { into: into.to_owned(), unfinished, replace, made };
        fs::create_dir(&staging.unfinished)
            .map_err(|e| Error::io("make", staging.unfinished.display().to_string(), e))?;
        Ok(staging)
    }

    /// An empty directory for work that is not exported.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn scratch(&self) -> Result<PathBuf> {
        let scratch = self.unfinished.join("scratch");
        fs::create_dir(&scratch).map_err(|e| Error::io("make", scratch.display().to_string(), e))?;
        Ok(scratch)
    }

    /// The unfinished file that will have this name.
    ///
    /// # Errors
    /// The name would leave the directory, or exists already.
    pub fn file(&self, name: &str) -> Result<PathBuf> {
        // Names are made safe before; this holds whatever made them.
        let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0']);
        if !is_name {
            return Err(Error::refused(
                format!("`{}`", name.escape_debug()),
                "cannot be the name of a file",
                "report it",
            ));
        }
        let target = self.into.join(name);
        self.refuse_side_files(&target)?;
        if !self.replace && target.symlink_metadata().is_ok() {
            return Err(Error::refused(target.display().to_string(), "exists already", "name an empty directory"));
        }
        Ok(self.files()?.join(name))
    }

    /// Refuses to replace a database while files of SQLite are beside it: SQLite would apply them to the new one.
    fn refuse_side_files(&self, target: &Path) -> Result<()> {
        for end in ["-wal", "-shm", "-journal"] {
            let mut side = target.as_os_str().to_owned();
            side.push(end);
            let side = PathBuf::from(side);
            if self.replace && side.symlink_metadata().is_ok() {
                let why = "belongs to the database that would be replaced: a program may have it open";
                let hint = "close that program, or remove this file";
                return Err(Error::refused(side.display().to_string(), why, hint));
            }
        }
        Ok(())
    }

    fn files(&self) -> Result<PathBuf> {
        let files = self.unfinished.join("files");
        match fs::create_dir(&files) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(Error::io("make", files.display().to_string(), e))
            }
            _ => Ok(files),
        }
    }

    /// Removes an unfinished file: its table is not exported.
    pub fn drop_file(&self, name: &str) {
        let _ = fs::remove_file(self.unfinished.join("files").join(name)); // Nothing gets its name without `publish`.
    }

    /// Makes all files durable and gives them their names; gives their bytes.
    ///
    /// # Errors
    /// A file cannot be synced or renamed. Then none of them has its name, unless it replaced another.
    pub fn publish(self) -> Result<u64> {
        let directory = self.files()?;
        let (mut names, mut bytes) = (Vec::new(), 0);
        let failed = |action: &str, path: &Path, e| Error::io(action, path.display().to_string(), e);
        for entry in fs::read_dir(&directory).map_err(|e| failed("look into", &directory, e))? {
            let path = entry.map_err(|e| failed("look into", &directory, e))?.path();
            let file = File::open(&path).map_err(|e| failed("open", &path, e))?;
            file.sync_all().map_err(|e| failed("sync", &path, e))?;
            bytes += file.metadata().map_err(|e| failed("look at", &path, e))?.len();
            names.extend(path.file_name().map(ToOwned::to_owned));
        }
        names.sort();
        let renames = names.iter().map(|name| (directory.join(name), self.into.join(name)));
        rename_together(&renames.collect::<Vec<_>>(), self.replace)?;
        sync_directory(&self.into)?;
        if let Some(parent) = self.into.parent().filter(|parent| self.made && !parent.as_os_str().is_empty()) {
            sync_directory(parent)?;
        }
        Ok(bytes)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.unfinished); // The error that ends the export is the one to tell.
        if self.made {
            let _ = fs::remove_dir(&self.into); // Only an empty directory goes.
        }
    }
}

/// The next step if the directory holds this file.
fn next_step(file: &str) -> String {
    match file.starts_with(UNFINISHED) {
        true => format!("an interrupted export has left {file}: remove it"),
        false => "name an empty directory, or add --replace to replace files of the same names".to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn files_have_no_name_before_the_end_and_a_drop_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("out");
        let staging = Staging::create(&into, false).unwrap();
        fs::write(staging.file("a.csv").unwrap(), "a").unwrap();
        assert!(!into.join("a.csv").exists());
        drop(staging);
        assert!(!into.exists());
        let staging = Staging::create(&into, false).unwrap();
        fs::write(staging.file("a.csv").unwrap(), "ab").unwrap();
        assert_eq!(staging.publish().unwrap(), 2);
        let left: Vec<_> = fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["a.csv"]);
        assert!(Staging::create(&into, false).is_err(), "it is not empty");
        let staging = Staging::create(&into, true).unwrap();
        fs::write(staging.file("a.csv").unwrap(), "abc").unwrap();
        assert_eq!(staging.publish().unwrap(), 3);
        assert_eq!(fs::read_to_string(into.join("a.csv")).unwrap(), "abc");
    }

    #[test]
    fn nothing_is_replaced_if_one_file_cannot_be() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b.csv")).unwrap();
        let staging = Staging::create(folder.path(), true).unwrap();
        for name in ["a.csv", "b.csv"] {
            fs::write(staging.file(name).unwrap(), "").unwrap();
        }
        assert!(staging.publish().unwrap_err().to_string().contains("b.csv"));
        assert!(!folder.path().join("a.csv").exists());
        for side in ["x.db-wal", "x.db-journal"] {
            fs::write(folder.path().join(side), "").unwrap();
            let staging = Staging::create(folder.path(), true).unwrap();
            assert!(staging.file("x.db").unwrap_err().to_string().contains(side));
            fs::remove_file(folder.path().join(side)).unwrap();
        }
    }

    #[test]
    fn a_name_never_leaves_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let staging = Staging::create(folder.path(), false).unwrap();
        for name in ["", ".", "..", "../a", "a/b", "a\\b", "a\0b", "/etc/passwd"] {
            assert!(staging.file(name).is_err(), "{name:?}");
        }
    }
}
