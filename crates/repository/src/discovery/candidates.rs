//! Candidates for families: the files and objects that `--from` names, those in its directories and prefixes, and those
//! that match its patterns.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::device::{BucketName, Destination, Device};
use fullbore_core::sink::{CLAIM, leftovers, real_name};
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::look::begins_like_a_family;

/// Files of a probe of raw speed begin with this. They are no families.
pub const PROBE_NAME: &str = ".fullbore-probe-";

/// A file or an object that may be a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub device: Device,
    /// Named by the user, not found in a directory.
    pub named: bool,
    /// True if it has a working name.
    pub leftover: bool,
    /// Device and inode: the next time, a name may lead to another file.
    identity: Option<(u64, u64)>,
    /// Size and time of an object, which change with its content.
    state: Option<(u64, i64)>,
}

impl Candidate {
    fn new(path: PathBuf, named: bool, leftover: bool) -> Self {
        let identity = identity(&path);
        Self { device: Device::file(path), named, leftover, identity, state: None }
    }
}

/// A candidate that was found in a place, not named by the user.
pub(super) fn unnamed(device: Device) -> Candidate {
    match device.path() {
        Some(path) => {
            let (path, leftover) = (path.to_owned(), has_working_name(path));
            Candidate::new(path, false, leftover)
        }
        None => Candidate { device, named: false, leftover: false, identity: None, state: None },
    }
}

/// Device and inode of the file at a path.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Everything that `from` names, each once.
///
/// # Errors
/// A pattern matches nothing, or a directory or a prefix cannot be listed.
pub(super) fn candidates(from: &[String], stores: &Stores) -> Result<Vec<Candidate>> {
    let mut found = Vec::new();
    for text in from {
        collect(text, stores, &mut found)?;
    }
    let mut seen = HashSet::new();
    found.retain(|candidate| seen.insert(candidate.device.identity()));
    Ok(found)
}

fn collect(text: &str, stores: &Stores, into: &mut Vec<Candidate>) -> Result<()> {
    let device = Device::parse(text)?;
    let path = match device.place() {
        Destination::File(path) | Destination::Directory(path) => path.clone(),
        Destination::Object { .. } => {
            into.push(Candidate { device, named: true, leftover: false, identity: None, state: None });
            return Ok(());
        }
        Destination::Prefix { bucket, prefix } => return list_prefix(bucket, prefix, stores, into),
        Destination::Null => {
            return Err(Error::usage("--from nul:", "it keeps no data", "name the families of a backup"));
        }
        Destination::Pipe => {
            return Err(Error::usage("--from -", "a pipe holds a complete set of one family", "give --from - alone"));
        }
    };
    if path.is_dir() {
        return list(&path, into);
    }
    if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
        let hint = "to read a pipe, use --from -";
        return Err(Error::usage(format!("--from {text}"), "is not a regular file or a directory", hint));
    }
    if path.exists() || !text.contains(['*', '?', '[']) {
        collect_file(path, true, into);
        return Ok(());
    }
    let pattern = path.to_string_lossy();
    let wrong = |e: glob::PatternError| {
        Error::usage(
            format!("--from {text}"),
            format!("is not a valid pattern: {e}"),
            "quote it, and use *, ? and [...]",
        )
    };
    let before = into.len();
    for hit in glob::glob(&pattern).map_err(wrong)?.flatten().filter(|hit| hit.is_file() || hit.is_symlink()) {
        // A damaged family may be of another set than the wanted one. Other files are no candidates.
        let named = !begins_like_a_family(&hit)?;
        collect_file(hit, named, into);
    }
    // A pattern like `*.bore` does not match the working name of a family that is being replaced.
    for working in [".new-*", ".old-*"] {
        let hits = glob::glob(&format!("{pattern}{working}")).map_err(wrong)?.flatten();
        into.extend(hits.filter(|hit| has_working_name(hit)).map(|hit| Candidate::new(hit, false, true)));
    }
    if into.len() == before {
        return Err(Error::usage(
            format!("--from {text}"),
            "no file matches this pattern",
            "check the path; a missing directory may be a disk that is not mounted",
        ));
    }
    Ok(())
}

/// True for a pattern of files that matches nothing yet.
pub fn is_pattern_without_match(text: &str) -> bool {
    let is_of_files = Device::parse(text).is_ok_and(|device| device.path().is_some_and(|path| !path.exists()));
    let matches_nothing = || glob::glob(text).is_ok_and(|mut hits| hits.next().is_none());
    text.contains(['*', '?', '[']) && is_of_files && matches_nothing()
}

/// The objects of a prefix, without claims.
fn list_prefix(bucket: &BucketName, prefix: &str, stores: &Stores, into: &mut Vec<Candidate>) -> Result<()> {
    let listed = stores.bucket(bucket)?.list(prefix)?.into_iter().filter(|object| !object.key.ends_with(CLAIM));
    into.extend(listed.map(|object| Candidate {
        device: Device::object(bucket, &object.key),
        named: false,
        leftover: false,
        identity: None,
        state: Some((object.size, object.modified)),
    }));
    Ok(())
}

fn collect_file(path: PathBuf, named: bool, into: &mut Vec<Candidate>) {
    let beside = leftovers_of(&path);
    // A killed `--init` may leave a family with its working names only.
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

/// Families with working names beside a named one: leftovers of an interrupted `--init`.
fn leftovers_of(path: &Path) -> Vec<Candidate> {
    let found = leftovers(path).unwrap_or_default();
    found.into_iter().map(|leftover| Candidate::new(leftover.path, false, true)).collect()
}

/// True for `NAME.new-SETID` and `NAME.old-SETID`.
pub fn has_working_name(path: &Path) -> bool {
    without_working_part(&path.file_name().unwrap_or_default().to_string_lossy()).is_some()
}

/// The same for a device: an object never has a working name.
pub(super) fn is_under_working_name(device: &Device) -> bool {
    device.path().is_some_and(has_working_name)
}

/// True for a file that `--measure-limit` writes; see `limit.rs`.
pub(super) fn is_probe(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PROBE_NAME))
}

/// The part before `.new-SETID` or `.old-SETID`, if the name ends in one of them.
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

/// The name without links at its end, and without the suffix of a working name.
pub(super) fn final_name(device: &Device) -> String {
    let Some(path) = device.path() else { return device.to_string() };
    let shown = real_name(path).display().to_string();
    without_working_part(&shown).unwrap_or(&shown).to_owned()
}
