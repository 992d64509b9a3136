//! A folder that holds a server's files becomes a data directory on which the same series of MariaDB starts, and
//! recovers by itself.

use std::fs;
use std::io;
use std::path::Path;

use fullbore_core::{Error, Result};

/// While there is a directory under the name of this file, which is never part of a copy, the server cannot write its
/// own and does not start.
pub const IN_PROGRESS: &str = "ddl_recovery.log";

/// Marks the folder as incomplete: a server refuses to start on it.
pub fn begin(root: &Path) -> Result<()> {
    let mark = root.join(IN_PROGRESS);
    fs::create_dir(&mark).map_err(|error| failed("make", &mark, error))
}

/// Marks the folder as complete, once all files are in place and synced.
pub fn finish(root: &Path) -> Result<()> {
    let mark = root.join(IN_PROGRESS);
    fs::remove_dir(&mark).map_err(|error| failed("remove", &mark, error))?;
    fullbore_core::io::sync_directory(root)
}

fn failed(action: &str, path: &Path, error: io::Error) -> Error {
    Error::io(action, path.display().to_string(), error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_incomplete_until_it_is_finished() {
        let root = tempfile::tempdir().unwrap();
        begin(root.path()).unwrap();
        assert!(root.path().join(IN_PROGRESS).is_dir());
        finish(root.path()).unwrap();
        assert!(!root.path().join(IN_PROGRESS).exists());
    }
}
