//! The directory that a job writes files into: it is new or empty, or its files stay.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use fullbore_core::{Error, Result};

/// What a job accepts.
#[derive(Clone, Copy)]
pub struct Accepted<'a> {
    /// A directory that does not exist: it is made.
    pub missing: bool,
    /// A directory that holds files.
    pub files: bool,
    /// The next step if it holds files, but should not. It gets the name of one of them.
    pub hint: &'a dyn Fn(&str) -> String,
}

/// Makes the directory if it is missing; true if it was made.
///
/// # Errors
/// The directory is not as `accepted` says, or cannot be made.
pub fn make(directory: &Path, accepted: Accepted<'_>) -> Result<bool> {
    let shown = directory.display().to_string();
    match fs::read_dir(directory) {
        Ok(_) if accepted.files => Ok(false),
        Ok(mut entries) => match entries.next() {
            None => Ok(false),
            Some(entry) => {
                let name = entry.map(|entry| entry.file_name().to_string_lossy().into_owned()).unwrap_or_default();
                Err(Error::refused(shown, "is not empty", (accepted.hint)(&name)))
            }
        },
        Err(error) if error.kind() == ErrorKind::NotFound && accepted.missing => {
            fs::create_dir(directory).map_err(|e| Error::io("make", shown, e).on_named_thing())?;
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Error::usage(shown, "this directory does not exist", "make it, or add --mkdir"))
        }
        Err(error) => Err(Error::io("look into", shown, error).on_named_thing()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_or_refused_as_the_job_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let accepted = |missing, files| Accepted { missing, files, hint: &|name: &str| format!("move {name} away") };
        let error = make(&path, accepted(false, false)).unwrap_err();
        assert!(error.to_string().contains("--mkdir") && error.exit_kind().exit_code() == 2, "{error}");
        assert!(make(&path, accepted(true, false)).unwrap());
        assert!(!make(&path, accepted(true, false)).unwrap());
        fs::write(path.join("a"), "").unwrap();
        let error = make(&path, accepted(true, false)).unwrap_err().to_string();
        assert!(error.contains("is not empty") && error.contains("move a away"), "{error}");
        assert!(!make(&path, accepted(true, true)).unwrap());
        assert!(make(&path.join("a"), accepted(true, true)).is_err(), "it is a file");
    }
}
