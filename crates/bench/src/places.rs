//! The directories of a bench, by their real names; one bench at a time holds each of them.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fullbore_core::io::{LockableFile, real_path};
use fullbore_core::{Error, Result};

use super::matrix::Matrix;

/// Gives the matrix the real names of its directories. They are part of a result's identity, and by them two benches
/// notice that they use the same directory.
///
/// # Errors
/// A media directory does not exist. Its disk may not be mounted, and the bench would measure another disk.
pub fn find(matrix: &mut Matrix, work: Option<&Path>) -> Result<()> {
    let work = work.unwrap_or(&matrix.work);
    matrix.work = real_path(work).map_err(|e| Error::io("look at", work.display().to_string(), e))?;
    for directory in &mut matrix.media_directories {
        *directory = media_directory(directory)?;
    }
    Ok(())
}

fn media_directory(named: &Path) -> Result<PathBuf> {
    let shown = || format!("the media directory {}", named.display());
    match fs::canonicalize(named) {
        Ok(real) if real.is_dir() => Ok(real),
        Ok(_) => Err(Error::refused(shown(), "is not a directory", "name another one in media-directories")),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            Err(Error::usage(shown(), "does not exist", "make it; it may be a disk that is not mounted"))
        }
        Err(e) => Err(Error::io("look at", shown(), e)),
    }
}

/// Holds the work directory and each media directory: two benches in one directory would delete each other's files, and
/// disturb each other's measurements. The directories are free again when the result is dropped.
///
/// # Errors
/// Another bench holds one.
pub fn hold(matrix: &Matrix, say: &dyn Fn(&str)) -> Result<Vec<LockableFile>> {
    let mut held = Vec::new();
    let places: BTreeSet<&PathBuf> = matrix.media_directories.iter().chain([&matrix.work]).collect();
    for place in places {
        // Lock the directory itself: this leaves no file in it.
        let shown = place.display();
        let directory = File::open(place).map_err(|e| Error::io("open", shown.to_string(), e))?;
        let directory = LockableFile::from(directory);
        match locked(&directory, place)? {
            None => held.push(directory),
            // Some network file systems cannot lock directories.
            Some(_) if *place == matrix.work => held.push(hold_by_a_file(place)?),
            Some(why) => say(&format!("{shown} cannot be locked ({why}): do not start another bench there")),
        }
    }
    Ok(held)
}

/// Locks `file`; returns the reason if it cannot be locked at all.
///
/// # Errors
/// Another bench holds it.
fn locked(file: &LockableFile, place: &Path) -> Result<Option<std::io::Error>> {
    match file.try_lock() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Err(held_by_another(place)),
        Err(TryLockError::Error(why)) => Ok(Some(why)),
    }
}

/// Locks a file in the directory, instead of the directory.
fn hold_by_a_file(place: &Path) -> Result<LockableFile> {
    let path = place.join("lock");
    let failed = |e| Error::io("lock", path.display().to_string(), e);
    let file = LockableFile::from(File::create(&path).map_err(failed)?);
    locked(&file, place)?.map_or(Ok(file), |why| Err(failed(why)))
}

fn held_by_another(place: &Path) -> Error {
    let hint = "wait for it, or give another --work, and other media-directories if there are any";
    Error::refused(place.display().to_string(), "another bench is running there", hint)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn matrix(work: &Path, media: &[&Path]) -> Matrix {
        let mut matrix = Matrix::parse("m.toml", "m", "[data.a]\nsize = \"4MiB\"\n").unwrap();
        matrix.media_directories = media.iter().map(|path| path.to_path_buf()).collect();
        find(&mut matrix, Some(work)).unwrap();
        fs::create_dir_all(&matrix.work).unwrap();
        matrix
    }

    #[test]
    fn a_directory_is_held_once_whether_for_work_or_for_media() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two, media) = (folder.path().join("one"), folder.path().join("two"), folder.path().join("media"));
        fs::create_dir(&media).unwrap();
        let first = matrix(&one, &[&media]);
        let held = hold(&first, &|_| {}).unwrap();
        for (second, name) in [(matrix(&two, &[&media]), "media"), (matrix(&two, &[&one]), "one")] {
            let error = hold(&second, &|_| {}).unwrap_err().to_string();
            assert!(error.contains(&format!("/{name}: another bench is running there")), "{error}");
        }
        drop(held);
        hold(&matrix(&one, &[&one, &one]), &|_| {}).unwrap();
        assert_eq!(fs::read_dir(&one).unwrap().count(), 0, "nothing is left by that");
    }

    #[test]
    fn a_work_directory_that_cannot_be_locked_is_held_by_a_file_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let held = hold_by_a_file(folder.path()).unwrap();
        let error = hold_by_a_file(folder.path()).unwrap_err().to_string();
        assert!(error.contains("another bench is running there"), "{error}");
        drop(held);
        hold_by_a_file(folder.path()).unwrap();
    }
}
