//! A directory of a server's files that is not complete yet: room for it, and the leftovers of an interrupted restore.

use std::fs;
use std::path::Path;

use fullbore_core::io::{directory_of, free_space};
use fullbore_core::{Error, Result};
use fullbore_engines::Restorer;
use fullbore_engines::engine::DirectoryRestore;

use fullbore_core::units::show_bytes;

/// Makes the directory for `size` bytes of files; `target` is empty or missing.
pub(super) fn make(target: &Path, mkdir: bool, size: u64) -> Result<DirectoryRestore> {
    let mut restore = DirectoryRestore::prepare(target)?;
    let parent = directory_of(target);
    if mkdir {
        fs::create_dir_all(parent).map_err(|e| Error::io("make", parent.display().to_string(), e))?;
    }
    must_have_room(target, size, free_space(if restore.is_in_place() { target } else { parent })?)?;
    restore.make()?;
    Ok(restore)
}

/// The largest leftover of interrupted restores to this target; `None` if there is no leftover.
///
/// # Errors
/// A running restore writes to it, or there is too little space for the rest.
pub(super) fn take_over(target: &Path, size: u64) -> Result<Option<DirectoryRestore>> {
    let mut restore = DirectoryRestore::prepare(target)?;
    if !restore.take_over()? {
        return Ok(None);
    }
    must_have_room(target, size, free_space(directory_of(target))?.saturating_add(restore.held_bytes()))?;
    Ok(Some(restore))
}

fn must_have_room(target: &Path, size: u64, free: u64) -> Result<()> {
    if free >= size {
        return Ok(());
    }
    Err(Error::refused(
        target.display().to_string(),
        format!("the files need {} there, but {} are free", show_bytes(size), show_bytes(free)),
        "free space there, or name another target with --into",
    ))
}
