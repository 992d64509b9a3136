//! Finding media: from what follows `--from` to whole sets.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_core::cipher::{KeyFile, SecretKey, Sidecar, WrappedKey};
use fullbore_core::device::{Device, Place};
use fullbore_core::io::Mode;
use fullbore_core::media::SetHeader;
use fullbore_core::pool::Pool;
use fullbore_core::sink::leftovers;
use fullbore_core::supply;
use fullbore_core::unpack::{Family, MediaSet, group};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use crate::chain::FoundSet;

/// What the first bytes of every family are.
const MAGIC: &[u8; 8] = b"FULLBORE";
/// What the name of a sidecar with rotated keys ends in.
pub const SIDECAR_SUFFIX: &str = ".borekeys";

/// One media set among those that were found.
pub struct Found {
    /// For choosing.
    pub set: FoundSet,
    /// Where its families are, first to last, as far as they are there.
    pub paths: Vec<PathBuf>,
    /// Its name and how many families it should have.
    pub families: u16,
    /// Bytes of the families that are there.
    pub stored_bytes: u64,
    /// Its media-set id.
    pub media_set_id: Uuid,
    /// What all its families share.
    pub header: SetHeader,
    /// Bytes of the restored database: what a full unpacks to.
    pub database_bytes: u64,
}

/// Everything that `--from` names.
pub struct Heap {
    /// The sets, oldest first.
    pub sets: Vec<Found>,
    /// Files that look like families and cannot be read, and why: leftovers of a killed run are not damage.
    pub unreadable: Vec<Unreadable>,
}

/// A file that begins like a family and is none.
pub struct Unreadable {
    /// Where it is.
    pub path: PathBuf,
    /// Why it cannot be used.
    pub error: Error,
    /// It has a working name: a run was killed, or still goes on.
    pub leftover: bool,
}

struct Candidate {
    path: PathBuf,
    /// Named by the user, not found in a directory.
    named: bool,
    leftover: bool,
}

/// True when the only thing named is standard input.
pub fn is_pipe(from: &[String]) -> Result<bool> {
    let pipes = from.iter().filter(|text| *text == "-").count();
    if pipes > 0 && from.len() > 1 {
        return Err(Error::usage("--from -", "a pipe holds a whole set of one family", "give --from - alone"));
    }
    Ok(pipes == 1)
}

/// Looks at every file that `from` names: files, directories, patterns.
///
/// # Errors
/// Nothing was named, a pattern fits nothing, or a named file is no family.
pub fn find(from: &[String]) -> Result<Heap> {
    if from.is_empty() {
        return Err(Error::usage(
            "--from",
            "no media were named",
            "name the directory or the families of a backup: --from /mnt/a/",
        ));
    }
    let mut candidates = Vec::new();
    for text in from {
        collect(text, &mut candidates)?;
    }
    let mut seen = HashSet::new();
    candidates
        .retain(|candidate| seen.insert(fs::canonicalize(&candidate.path).unwrap_or_else(|_| candidate.path.clone())));
    let nothing = Pool::new(0, 4096)?;
    let mut families = Vec::new();
    let mut unreadable = Vec::new();
    for Candidate { path, named, leftover } in candidates {
        if !named && !begins_like_a_family(&path) && !is_hidden_family(&path) {
            continue;
        }
        match open(&path, &nothing, 1).and_then(Family::open) {
            Ok(family) => families.push(family),
            Err(error) if named && !leftover => return Err(error),
            Err(error) => unreadable.push(Unreadable { path, error, leftover }),
        }
    }
    let sets = group(families).into_iter().map(|(id, members)| describe(id, members)).collect();
    Ok(Heap { sets, unreadable })
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
    if path.exists() || !text.contains(['*', '?', '[']) {
        let beside = leftovers_of(&path);
        let moved_away = !path.exists() && !beside.is_empty();
        into.extend(beside);
        if moved_away {
            // A killed `--init` has left the family under its working names only.
            return Ok(());
        }
        into.push(Candidate { leftover: has_working_name(&path), path, named: true });
        return Ok(());
    }
    let pattern = path.to_string_lossy();
    let wrong = |e: glob::PatternError| {
        Error::usage(format!("--from {text}"), format!("is no pattern: {e}"), "quote it, and use *, ? and [...]")
    };
    let before = into.len();
    for hit in glob::glob(&pattern).map_err(wrong)?.flatten().filter(|hit| hit.is_file()) {
        into.extend(leftovers_of(&hit));
        into.push(Candidate { leftover: has_working_name(&hit), path: hit, named: true });
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

fn list(directory: &Path, into: &mut Vec<Candidate>) -> Result<()> {
    let failed = |e| Error::io("list", directory.display().to_string(), e);
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    into.extend(paths.into_iter().map(|path| Candidate { leftover: has_working_name(&path), path, named: false }));
    Ok(())
}

/// Families with working names beside a named one: what an interrupted `--init` has left.
fn leftovers_of(path: &Path) -> Vec<Candidate> {
    let found = leftovers(path).unwrap_or_default();
    found.into_iter().map(|leftover| Candidate { path: leftover.path, named: false, leftover: true }).collect()
}

fn has_working_name(path: &Path) -> bool {
    without_working_part(&path.file_name().unwrap_or_default().to_string_lossy()).is_some()
}

/// What stands before `.new-SETID` or `.old-SETID`, if the name ends in one of them.
fn without_working_part(name: &str) -> Option<&str> {
    let before = |mark| name.rsplit_once(mark).filter(|(_, id)| Uuid::try_parse(id).is_ok()).map(|(name, _)| name);
    before(".new-").or_else(|| before(".old-"))
}

/// The path without what a working name adds.
fn final_name(path: &Path) -> String {
    let shown = path.display().to_string();
    without_working_part(&shown).unwrap_or(&shown).to_owned()
}

/// True when the first bytes of the file are those of a family.
pub(super) fn begins_like_a_family(path: &Path) -> bool {
    let mut magic = [0; 8];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *MAGIC
}

/// A family, going by its name, that this user may not read: to be named, not passed over.
fn is_hidden_family(path: &Path) -> bool {
    let denied = matches!(fs::File::open(path), Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied);
    denied && path.extension().is_some_and(|extension| extension == "bore")
}

fn open(path: &Path, pool: &Arc<Pool>, queue_depth: usize) -> Result<Box<dyn supply::Supply>> {
    supply::open(&Device::file(path), pool, queue_depth, Mode::from_environment()?)
}

fn describe(id: Uuid, mut members: Vec<Family>) -> Found {
    members.sort_by_key(|family| family.header().family);
    let header = members[0].header().set.clone();
    let paths: Vec<PathBuf> = members.iter().map(|family| PathBuf::from(family.device())).collect();
    let stored_bytes = members.iter().filter_map(Family::size).sum();
    let database_bytes = header.streams.iter().map(|stream| stream.size).sum();
    let incomplete = MediaSet::check_whole(&members).err().map(|error| one_line(&error));
    let set = FoundSet {
        backup_set_id: header.backup_set_id,
        media_set_id: id,
        kind: header.kind,
        base: header.base_backup_set_id,
        started_at: header.started_at,
        incomplete,
        interrupted: paths.iter().any(|path| has_working_name(path)),
        database: header.label.as_ref().map(|label| label.database.clone()).filter(|name| !name.is_empty()),
        names: paths.iter().map(|path| final_name(path)).collect(),
    };
    Found { set, families: header.families, paths, stored_bytes, media_set_id: id, database_bytes, header }
}

/// The first line of an error: without its hint.
pub(super) fn one_line(error: &Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Opens all families of a set for reading through `pool`.
///
/// # Errors
/// The set is not whole, or the key does not open it.
pub fn open_set(found: &Found, pool: &Arc<Pool>, queue_depth: usize, key: Option<&SecretKey>) -> Result<MediaSet> {
    let families = found
        .paths
        .iter()
        .map(|path| open(path, pool, queue_depth).and_then(Family::open))
        .collect::<Result<Vec<_>>>()?;
    MediaSet::assemble(families, key, &rotated_keys(found)?)
}

/// Wrapped keys from sidecars beside the families.
fn rotated_keys(found: &Found) -> Result<Vec<WrappedKey>> {
    let name = sidecar_name(found.media_set_id);
    let mut records = Vec::new();
    let mut seen = HashSet::new();
    for directory in found.paths.iter().filter_map(|path| path.parent()) {
        let path = directory.join(&name);
        if seen.insert(path.clone()) && path.is_file() {
            let sidecar = Sidecar::read(&path)?;
            if sidecar.media_set_id == *found.media_set_id.as_bytes() {
                records.extend(sidecar.records);
            }
        }
    }
    Ok(records)
}

/// The file name of a set's rotated keys.
pub fn sidecar_name(media_set_id: Uuid) -> String {
    format!("{media_set_id}{SIDECAR_SUFFIX}")
}

/// The secret in a key file.
///
/// # Errors
/// The file cannot be read, or holds no secret.
pub fn read_key(path: Option<&Path>) -> Result<Option<SecretKey>> {
    path.map(|path| KeyFile::read(path)?.into_secret()).transpose()
}
