//! A folder that holds a server's files becomes a data directory on which the same series of MariaDB starts, and recovers by itself.

use std::fs;
use std::io;
use std::path::Path;

use fullbore_core::{Error, Result};

/// While there is a directory under the name of this file, which is never part of a copy, the server cannot write its own and does not start.
const IN_PROGRESS: &str = "ddl_recovery.log";
/// How many tables a warning names.
const NAMED_MAX: usize = 5;

/// A table that stands where its DATA DIRECTORY says.
struct Outside<'a> {
    /// Its name in the copy.
    path: &'a str,
    /// Where it stood.
    was: &'a str,
}

/// Marks the folder as incomplete: a server refuses to start on it. `position` is what the backup says of itself.
///
/// # Errors
/// The recovery of the restored server would open files that are not its own.
pub fn begin(root: &Path, position: &serde_json::Value) -> Result<()> {
    if let Some(table) = outside(position).find(|table| Path::new(table.was).symlink_metadata().is_ok()) {
        return Err(Error::refused(
            table.was,
            format!(
                "the table `{}` stood there, the redo log says so too, and there is a file: the restored server would open it",
                table.path
            ),
            "restore on another machine; or, if no server uses it, move it away",
        ));
    }
    let mark = root.join(IN_PROGRESS);
    fs::create_dir(&mark).map_err(|error| failed("make", &mark, error))
}

/// Marks the folder as complete, once all files are in place and synced; what the user has to do before a server starts on it.
///
/// # Errors
/// The folder cannot be written.
pub fn finish(root: &Path, position: &serde_json::Value) -> Result<Vec<String>> {
    let mark = root.join(IN_PROGRESS);
    fs::remove_dir(&mark).map_err(|error| failed("remove", &mark, error))?;
    fullbore_core::io::sync_directory(root)?;
    let tables: Vec<Outside> = outside(position).collect();
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let moves: Vec<String> =
        tables.iter().take(NAMED_MAX).map(|table| format!("`{}` to `{}`", table.path, table.was)).collect();
    let more = if tables.len() > NAMED_MAX { ", …" } else { "" };
    Ok(vec![format!(
        "{} tables have a DATA DIRECTORY of their own: before the server is started, move {}{more}",
        tables.len(),
        moves.join(", ")
    )])
}

/// The tables with a DATA DIRECTORY. What variables of the server placed elsewhere is found in the data directory too.
fn outside(position: &serde_json::Value) -> impl Iterator<Item = Outside<'_>> {
    let all = position["outside_the_data_directory"].as_array();
    all.into_iter().flatten().filter_map(|entry| {
        let (path, was) = (entry["path"].as_str()?, entry["was"].as_str()?);
        path.ends_with(".ibd").then_some(Outside { path, was })
    })
}

fn failed(action: &str, path: &Path, error: io::Error) -> Error {
    Error::io(action, path.display().to_string(), error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_folder_is_incomplete_until_it_is_finished() {
        let root = tempfile::tempdir().unwrap();
        begin(root.path(), &json!({})).unwrap();
        assert!(root.path().join(IN_PROGRESS).is_dir());
        assert!(finish(root.path(), &json!({})).unwrap().is_empty());
        assert!(!root.path().join(IN_PROGRESS).exists());
    }

    #[test]
    fn a_table_that_would_be_opened_where_it_stood_is_refused_and_otherwise_named() {
        let (root, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let was = far.path().join("remote.ibd");
        let position = json!({ "outside_the_data_directory": [
            { "path": "undo001", "was": "/" }, { "path": "shop/remote.ibd", "was": was.display().to_string() } ] });
        begin(root.path(), &position).unwrap();
        let said = finish(root.path(), &position).unwrap();
        assert!(said.len() == 1 && said[0].contains("1 tables") && said[0].contains("shop/remote.ibd"), "{said:?}");
        fs::write(&was, "x").unwrap();
        let error = begin(root.path(), &position).unwrap_err().to_string();
        assert!(error.contains("shop/remote.ibd") && error.contains("would open it"), "{error}");
    }
}
