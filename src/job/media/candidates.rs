//! What may be a family: the files that follow `--from`, those in its directories, and those that fit its patterns.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::device::{Device, Place};
use fullbore_core::sink::{leftovers, real_name};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::super::limit::PROBE_NAME;
use super::look::begins_like_a_family;

/// A file that may be a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub path: PathBuf,
    /// Named by the user, not found in a directory.
    pub named: bool,
    /// It has a working name.
    pub leftover: bool,
    /// Device and inode: a name may lead to another file the next time.
    identity: Option<(u64, u64)>,
}

impl Candidate {
    fn new(path: PathBuf, named: bool, leftover: bool) -> Self {
        let identity = identity(&path);
        Self { path, named, leftover, identity }
    }
}

/// Device and inode of the file that a path leads to.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Every file that `from` names, each once.
///
/// # Errors
/// A pattern fits nothing, or a directory cannot be listed.
pub(super) fn candidates(from: &[String]) -> Result<Vec<Candidate>> {
    let mut found = Vec::new();
    for text in from {
        collect(text, &mut found)?;
    }
    let mut seen = HashSet::new();
    found.retain(|candidate| seen.insert(fs::canonicalize(&candidate.path).unwrap_or_else(|_| candidate.path.clone())));
    Ok(found)
}

fn collect(text: &str, into: &mut Vec<Candidate>) -> Result<()> {
    let device = Device::parse(text)?;
    let path = match device.place() {
        Place::File(path) | Place::Directory(path) => path.clone(),
        Place::Null => {
            return Err(Error::usage("--from nul:", "nothing was kept there", "name the families of a backup"));
        }
        Place::Pipe => {
            return Err(Error::usage("--from -", "a pipe holds a whole set of one family", "give --from - alone"));
        }
    };
    if path.is_dir() {
        return list(&path, into);
    }
    if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
        let hint = "what comes through a pipe is read with --from -";
        return Err(Error::usage(format!("--from {text}"), "is not a regular file nor a directory", hint));
    }
    if path.exists() || !text.contains(['*', '?', '[']) {
        collect_file(path, true, into);
        return Ok(());
    }
    let pattern = path.to_string_lossy();
    let wrong = |e: glob::PatternError| {
        Error::usage(format!("--from {text}"), format!("is no pattern: {e}"), "quote it, and use *, ? and [...]")
    };
    let before = into.len();
    for hit in glob::glob(&pattern).map_err(wrong)?.flatten().filter(|hit| hit.is_file() || hit.is_symlink()) {
        // A damaged family need not be of the set that is meant; any other file was not meant at all.
        let named = !begins_like_a_family(&hit)?;
        collect_file(hit, named, into);
    }
    // A pattern like `*.bore` leaves out the name that a family has while another takes its place.
    for working in [".new-*", ".old-*"] {
        let hits = glob::glob(&format!("{pattern}{working}")).map_err(wrong)?.flatten();
        into.extend(hits.filter(|hit| has_working_name(hit)).map(|hit| Candidate::new(hit, false, true)));
    }
    if into.len() == before {
        return Err(Error::refused(
            format!("--from {text}"),
            "no file fits this pattern",
            "check the path; a missing directory may be a disk that is not mounted",
        ));
    }
    Ok(())
}

fn collect_file(path: PathBuf, named: bool, into: &mut Vec<Candidate>) {
    let beside = leftovers_of(&path);
    // A killed `--init` may have left the family under its working names only.
    let moved_away = !path.exists() && !beside.is_empty();
    into.extend(beside);
    if !moved_away {
        let leftover = has_working_name(&path);
        into.push(Candidate::new(path, named, leftover));
    }
}

fn list(directory: &Path, into: &mut Vec<Candidate>) -> Result<()> {
    let failed = |e| Error::io("list", directory.display().to_string(), e);
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_symlink() {
            into.extend(leftovers_of(&path));
        }
        if path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    into.extend(paths.into_iter().map(|path| {
        let leftover = has_working_name(&path);
        Candidate::new(path, false, leftover)
    }));
    Ok(())
}

/// Families with working names beside a named one: what an interrupted `--init` has left.
fn leftovers_of(path: &Path) -> Vec<Candidate> {
    let found = leftovers(path).unwrap_or_default();
    found.into_iter().map(|leftover| Candidate::new(leftover.path, false, true)).collect()
}

/// True for `NAME.new-SETID` and `NAME.old-SETID`.
pub fn has_working_name(path: &Path) -> bool {
    without_working_part(&path.file_name().unwrap_or_default().to_string_lossy()).is_some()
}

/// What `--measure-limit` writes to; see `limit.rs`.
pub(super) fn is_probe(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PROBE_NAME))
}

/// What stands before `.new-SETID` or `.old-SETID`, if the name ends in one of them.
fn without_working_part(name: &str) -> Option<&str> {
    let before = |mark| name.rsplit_once(mark).filter(|(_, id)| Uuid::try_parse(id).is_ok()).map(|(name, _)| name);
    before(".new-").or_else(|| before(".old-"))
}

/// The id in a working name.
pub(super) fn set_in_working_name(path: &Path) -> Option<Uuid> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    without_working_part(&name)?;
    Uuid::try_parse(name.get(name.len() - 36..)?).ok()
}

/// The path without links at its end, and without what a working name adds.
pub(super) fn final_name(path: &Path) -> String {
    let shown = real_name(path).display().to_string();
    without_working_part(&shown).unwrap_or(&shown).to_owned()
}
