//! Makes a data directory, on which a server starts, from a folder with its InnoDB files.
//!
//! As found with MySQL 9.7, the server needs an empty folder `mysql`, and marks in `#clone`. They say whether the copy
//! is complete, and what the first start has to repair.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use fullbore_core::{Error, Result};

use crate::mysql_family::emptied::is_emptied;

/// The server's own folder for marks.
pub const MARKS: &str = "#clone";
/// While it is there the server refuses to start.
const IN_PROGRESS: &str = "#status_in_progress";
/// The first start makes empty tables for engines that are not cloned.
const EMPTY_OTHERS: &str = "#status_fix";
/// It writes down the binary log's position.
const REPLACED: &str = "#replace_files";
/// A folder that the first start makes where it makes empty tables.
const PERFORMANCE_SCHEMA: &str = "performance_schema";
/// Marks the folder as incomplete: a server refuses to start on it. The folder must be empty.
pub fn begin(root: &Path) -> Result<()> {
    let marks = root.join(MARKS);
    fs::create_dir(&marks).map_err(|error| failed("create", &marks, error))?;
    mark(&marks, IN_PROGRESS)?;
    sync(root)
}

/// Marks the folder as complete, once all files are in place and synced. `position` is that of the backup.
pub fn finish(root: &Path, position: &serde_json::Value) -> Result<()> {
    // Without it: "System schema directory does not exist".
    make_folder(&root.join("mysql"))?;
    let marks = root.join(MARKS);
    if is_emptied(position) {
        mark(&marks, EMPTY_OTHERS)?;
    } else {
        make_folder(&root.join(PERFORMANCE_SCHEMA))?;
    }
    mark(&marks, REPLACED)?;
    sync(&marks)?;
    sync(root)?;
    let in_progress = marks.join(IN_PROGRESS);
    fs::remove_file(&in_progress).map_err(|error| failed("remove", &in_progress, error))?;
    sync(&marks)
}

/// The size that a file must have at least: whole extents, once it is larger than one.
pub fn final_size(size: u64, page_size: u32) -> u64 {
    let extent = match u64::from(page_size) {
        page @ ..=16384 => page.max(1 << 20),
        page => 64 * page,
    };
    if size > extent { size.next_multiple_of(extent) } else { size }
}

/// The size in bytes from a tablespace's first page; 0 if the page is too short.
pub fn size_in_page_zero(page: &[u8], page_size: u32) -> u64 {
    // The FSP header begins at 38: space id, a word that is not used, and the size in pages.
    let pages = page.get(46..50).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes);
    u64::from(pages) * u64::from(page_size)
}

fn make_folder(path: &Path) -> Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("create", path, error)),
        _ => Ok(()),
    }
}

fn mark(folder: &Path, name: &str) -> Result<()> {
    let path = folder.join(name);
    let made = File::create(&path).and_then(|file| file.sync_all());
    made.map_err(|error| failed("create", &path, error))
}

fn sync(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failed("sync", folder, error))
}

fn failed(action: &str, path: &Path, error: io::Error) -> Error {
    Error::io(action, path.display().to_string(), error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mysql_family::emptied::NOT_EMPTIED;

    #[test]
    fn a_folder_is_incomplete_until_it_is_finished() {
        let root = tempfile::tempdir().unwrap();
        begin(root.path()).unwrap();
        let marks = root.path().join("#clone");
        assert!(marks.join("#status_in_progress").exists());
        assert!(begin(root.path()).is_err(), "twice");
        finish(root.path(), &serde_json::Value::Null).unwrap();
        assert!(!marks.join("#status_in_progress").exists() && root.path().join("mysql").is_dir());
        assert!(marks.join("#status_fix").exists() && marks.join("#replace_files").exists());
    }

    #[test]
    fn requests_that_stop_the_first_start_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        begin(root.path()).unwrap();
        finish(root.path(), &serde_json::json!({ NOT_EMPTIED: "shop.a`b" })).unwrap();
        let marks = root.path().join("#clone");
        assert!(!marks.join("#status_fix").exists() && marks.join("#replace_files").exists());
        assert!(root.path().join("performance_schema").is_dir());
    }

    #[test]
    fn files_of_more_than_an_extent_have_whole_extents() {
        assert_eq!(final_size(114_688, 16384), 114_688);
        assert_eq!(final_size((1 << 20) + 16384, 16384), 2 << 20);
        assert_eq!(final_size((1 << 20) + 8192, 8192), 2 << 20);
        assert_eq!(final_size((4 << 20) + 65536, 65536), 8 << 20);
    }
}
