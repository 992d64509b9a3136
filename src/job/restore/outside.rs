//! `--place-outside`: restores tablespaces with a `DATA DIRECTORY` to their former places.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::io::sync_directory;
use fullbore_core::{Error, Result};
use fullbore_engines::mysql_family::outside::OutsideFile;

use super::Owner;

/// Files that were placed outside; dropping this removes them again, until the restore is done.
#[derive(Default)]
pub(super) struct Placed {
    files: Vec<PathBuf>,
    /// Directories that were made for them, outermost first.
    directories: Vec<PathBuf>,
    kept: bool,
}

/// Checks that all of them can be placed, before anything is restored.
///
/// # Errors
/// A directory is missing, without `--mkdir`.
pub(super) fn must_have_places(files: &[OutsideFile], mkdir: bool) -> Result<()> {
    let missing = |file: &&OutsideFile| file.was.parent().is_some_and(|parent| !parent.is_dir());
    let Some(file) = files.iter().find(missing).filter(|_| !mkdir) else { return Ok(()) };
    Err(Error::refused(
        file.was.display().to_string(),
        "the directory of this tablespace does not exist",
        "make it, or add --mkdir; it may be a disk that is not mounted",
    ))
}

impl Placed {
    /// Moves each file from `directory` to its former place. The directories there must exist; `mkdir` makes them.
    ///
    /// # Errors
    /// A file is already there, or it cannot be moved there.
    pub fn place(directory: &Path, files: &[OutsideFile], mkdir: bool, owner: Option<&Owner>) -> Result<Self> {
        let mut placed = Self::default();
        for file in files {
            let parent = file.was.parent().unwrap_or(Path::new("/"));
            if mkdir {
                placed.make(parent, owner)?;
            }
            let working = PathBuf::from(format!("{}.restoring-{}", file.was.display(), uuid::Uuid::new_v4()));
            let from = directory.join(&file.path);
            placed.files.push(working.clone());
            move_to(&from, &working)?;
            if let Some(owner) = owner {
                owner.take(&working)?;
            }
            // A link, not a rename: it does not replace a file that was made there meanwhile.
            fs::hard_link(&working, &file.was).map_err(|error| failed("create", &file.was, error))?;
            placed.files.push(file.was.clone());
            fs::remove_file(&working).map_err(|error| failed("remove", &working, error))?;
            sync_directory(parent)?;
        }
        Ok(placed)
    }

    /// Makes a directory and its missing parents.
    fn make(&mut self, directory: &Path, owner: Option<&Owner>) -> Result<()> {
        let missing: Vec<&Path> = directory.ancestors().take_while(|above| !above.exists()).collect();
        for made in missing.into_iter().rev() {
            fs::create_dir(made).map_err(|error| failed("make", made, error))?;
            self.directories.push(made.to_owned());
            owner.map_or(Ok(()), |owner| owner.take_one(made))?;
            made.parent().map_or(Ok(()), sync_directory)?;
        }
        Ok(())
    }

    /// The restore is done: the files stay.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if !self.kept {
            for path in &self.files {
                let _ = fs::remove_file(path); // It may have its other name.
            }
            for path in self.directories.iter().rev() {
                let _ = fs::remove_dir(path); // It stays if it is not empty.
            }
        }
    }
}

/// Renames within a file system, else copies; durable in either case.
fn move_to(from: &Path, to: &Path) -> Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
        moved => return moved.map_err(|error| failed("create", to, error)),
    }
    let mut new = File::options().write(true).create_new(true).open(to).map_err(|error| failed("create", to, error))?;
    let mut old = File::open(from).map_err(|error| failed("open", from, error))?;
    io::copy(&mut old, &mut new).and_then(|_| new.sync_all()).map_err(|error| failed("write", to, error))?;
    let mode = old.metadata().map_err(|error| failed("read", from, error))?.permissions();
    fs::set_permissions(to, mode).map_err(|error| failed("write", to, error))?;
    fs::remove_file(from).map_err(|error| failed("remove", from, error))
}

fn failed(action: &str, path: &Path, error: io::Error) -> Error {
    Error::io(action, path.display().to_string(), error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn files_go_where_they_stood_and_come_away_again_unless_they_are_kept() {
        let (copy, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let was = far.path().join("new/shop/a.ibd");
        let files = [OutsideFile { path: "a.ibd".into(), was: was.clone() }];
        let fill = || fs::write(copy.path().join("a.ibd"), "pages").unwrap();
        fill();
        assert!(Placed::place(copy.path(), &files, false, None).is_err(), "no such directory");
        fill();
        drop(Placed::place(copy.path(), &files, true, None).unwrap());
        assert_eq!(fs::read_dir(far.path()).unwrap().count(), 0, "the directories go as well");
        fill();
        Placed::place(copy.path(), &files, true, None).unwrap().keep();
        assert_eq!(fs::read(&was).unwrap(), b"pages");
        assert!(!copy.path().join("a.ibd").exists());
        fill();
        let again = Placed::place(copy.path(), &files, true, None).err().unwrap().to_string();
        assert!(again.contains("a.ibd") && fs::read(&was).unwrap() == b"pages", "{again}");
        assert_eq!(fs::read_dir(was.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn another_file_system_gets_the_bytes() {
        let (copy, Ok(far)) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm")) else { return };
        fs::write(copy.path().join("a.ibd"), "pages").unwrap();
        move_to(&copy.path().join("a.ibd"), &far.path().join("b.ibd")).unwrap();
        assert_eq!(fs::read(far.path().join("b.ibd")).unwrap(), b"pages");
        assert!(!copy.path().join("a.ibd").exists());
    }
}
