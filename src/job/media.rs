//! Finding media: from what follows `--from` to whole sets.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_core::cipher::{KeyFile, SecretKey, Sidecar, WrappedKey};
use fullbore_core::device::{Device, Place};
use fullbore_core::io::Mode;
use fullbore_core::media::{FOOTER, FamilyHeader, Footer, HEADER_MIN, SetHeader};
use fullbore_core::pool::Pool;
use fullbore_core::sink::{leftovers, real_name};
use fullbore_core::supply;
use fullbore_core::unpack::{Family, MediaSet, group};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::limit::PROBE_NAME;
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
    /// Bytes of the restored database: what a full unpacks to. `None`: its manifest tells, which is encrypted or missing.
    pub database_bytes: Option<u64>,
}

/// Everything that `--from` names.
pub struct Heap {
    /// The sets, oldest first.
    pub sets: Vec<Found>,
    /// Files that look like families and cannot be read, and why: leftovers of a killed run are not damage.
    pub unreadable: Vec<Unreadable>,
    /// What was passed over because it changes nothing.
    pub notes: Vec<String>,
}

impl Heap {
    /// What the sets are chosen by.
    pub fn known(&self) -> Vec<FoundSet> {
        self.sets.iter().map(|found| found.set.clone()).collect()
    }

    /// The error when nothing at all is there.
    ///
    /// # Errors
    /// No set and no family was found.
    pub fn must_hold_something(&self) -> Result<()> {
        if self.sets.is_empty() && self.unreadable.is_empty() { Err(nothing_found()) } else { Ok(()) }
    }

    /// Asks the manifests of sets that do not tell their database in clear, where `key` opens them.
    pub fn learn_databases(&mut self, key: Option<&SecretKey>) -> Result<()> {
        let nothing = Pool::new(0, 4096)?;
        let secret = |found: &&mut Found| found.set.database.is_none() && found.set.incomplete.is_none();
        for found in self.sets.iter_mut().filter(secret) {
            let opened = open_set(found, &nothing, 1, key);
            if let Some(manifest) = opened.ok().as_ref().and_then(MediaSet::manifest) {
                found.set.database = Some(manifest.database.clone()).filter(|name| !name.is_empty());
            }
        }
        Ok(())
    }

    /// Tells the dead files of a killed backup, and those of a running one, from damage.
    pub fn leftover_notes(&self) -> Vec<String> {
        let leftovers = self.unreadable.iter().filter(|unreadable| unreadable.leftover);
        leftovers.map(Unreadable::as_leftover).collect()
    }
}

pub(super) fn nothing_found() -> Error {
    let hint = "name the directory or the families of a backup";
    Error::incomplete("--from", "no backup set was found there", hint)
}

/// A file that begins like a family and is none.
pub struct Unreadable {
    /// Where it is.
    pub path: PathBuf,
    /// Why it cannot be used.
    pub error: Error,
    /// It has a working name: a run was killed, or still goes on.
    pub leftover: bool,
    /// The media set that it belongs to, if its header can be read.
    pub set: Option<Uuid>,
}

impl Unreadable {
    fn as_leftover(&self) -> String {
        let path = self.path.display();
        let held = fs::File::open(&self.path)
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)));
        if held {
            return format!("`{path}` is being written by a running backup");
        }
        format!(
            "`{path}` is what a killed backup has left; the next backup of that database into this directory removes it"
        )
    }
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
    let (mut unreadable, mut notes) = (Vec::new(), Vec::new());
    // First the headers alone, then the families of one set after the other: a folder may hold more of them than a process
    // may open files.
    let mut groups: BTreeMap<(i64, Uuid), Vec<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        let Candidate { path, named, leftover } = &candidate;
        // A backup that was killed at its beginning has not written its header yet.
        let begun = *leftover && !is_probe(path);
        if !named && !begun && !is_hidden_family(path) && !begins_like_a_family(path)? {
            continue;
        }
        let header = fs::File::open(path).ok().and_then(|file| header_of(&file));
        let group = header.map_or((0, Uuid::nil()), |header| (header.set.started_at, header.set.media_set_id));
        groups.entry(group).or_default().push(candidate);
    }
    let mut sets = Vec::new();
    for candidates in groups.into_values() {
        let mut families = Vec::new();
        for candidate in candidates {
            families.extend(open_candidate(candidate, &mut unreadable)?);
        }
        sets.extend(group(families).into_iter().map(|(id, members)| describe(id, members, &mut notes)));
    }
    // The published families of a backup whose others are still under working names.
    for found in &mut sets {
        let other = |unreadable: &Unreadable| unreadable.leftover && unreadable.set == Some(found.media_set_id);
        found.set.interrupted |= unreadable.iter().any(other);
    }
    Ok(Heap { sets, unreadable, notes })
}

/// Opens what may be a family; what cannot be read is put down, unless the user named it.
fn open_candidate(candidate: Candidate, unreadable: &mut Vec<Unreadable>) -> Result<Option<Family>> {
    let Candidate { path, named, leftover } = candidate;
    match open(&path, &Pool::new(0, 4096)?, 1).and_then(Family::open) {
        Ok(family) => Ok(Some(family)),
        // Of a process that has no more descriptors nothing can be said about the file.
        Err(error) if named && !leftover || error.is_exhaustion() => Err(error),
        Err(error) => {
            let header = fs::File::open(&path).ok().and_then(|file| header_of(&file));
            let set = header.map(|header| header.set.media_set_id).or_else(|| set_in_working_name(&path));
            unreadable.push(Unreadable { path, error, leftover, set });
            Ok(None)
        }
    }
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
        into.push(Candidate { leftover: has_working_name(&path), path, named });
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
    into.extend(paths.into_iter().map(|path| Candidate { leftover: has_working_name(&path), path, named: false }));
    Ok(())
}

/// Families with working names beside a named one: what an interrupted `--init` has left.
fn leftovers_of(path: &Path) -> Vec<Candidate> {
    let found = leftovers(path).unwrap_or_default();
    found.into_iter().map(|leftover| Candidate { path: leftover.path, named: false, leftover: true }).collect()
}

/// True for `NAME.new-SETID` and `NAME.old-SETID`.
pub(super) fn has_working_name(path: &Path) -> bool {
    without_working_part(&path.file_name().unwrap_or_default().to_string_lossy()).is_some()
}

/// What `--measure-limit` writes to; see `limit.rs`.
fn is_probe(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PROBE_NAME))
}

/// What stands before `.new-SETID` or `.old-SETID`, if the name ends in one of them.
fn without_working_part(name: &str) -> Option<&str> {
    let before = |mark| name.rsplit_once(mark).filter(|(_, id)| Uuid::try_parse(id).is_ok()).map(|(name, _)| name);
    before(".new-").or_else(|| before(".old-"))
}

/// The id in a working name.
fn set_in_working_name(path: &Path) -> Option<Uuid> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    without_working_part(&name)?;
    Uuid::try_parse(name.get(name.len() - 36..)?).ok()
}

/// The path without links at its end, and without what a working name adds.
fn final_name(path: &Path) -> String {
    let shown = real_name(path).display().to_string();
    without_working_part(&shown).unwrap_or(&shown).to_owned()
}

/// True when the first bytes of the file are those of a family. One that is gone, shorter, or closed to us does not begin so.
///
/// # Errors
/// It cannot be told: the file is there and cannot be read.
pub(super) fn begins_like_a_family(path: &Path) -> Result<bool> {
    let mut magic = [0; 8];
    match fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) => Ok(magic == *MAGIC),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::UnexpectedEof | ErrorKind::IsADirectory => {
                Ok(false)
            }
            _ => Err(Error::io("read", path.display().to_string(), error)),
        },
    }
}

/// What one look at a file told.
pub(super) struct Look {
    /// Its header, if it has one that can be read.
    pub header: Option<FamilyHeader>,
    /// Header and footer are as they should be.
    pub family: Option<Family>,
    /// It could be read, and no footer is at its end: whoever wrote it never came so far.
    pub unfinished: bool,
}

impl Look {
    /// The media set of a family with header and footer.
    pub fn set(&self) -> Option<Uuid> {
        self.header.as_ref().filter(|_| !self.unfinished).map(|header| header.set.media_set_id)
    }

    /// When that set was begun.
    pub fn started_at(&self) -> Option<i64> {
        self.header.as_ref().filter(|_| !self.unfinished).map(|header| header.set.started_at)
    }

    /// True for a first family of the set `id` under its final name: a commit record.
    pub fn is_published_first(&self, path: &Path, id: Uuid) -> bool {
        self.set() == Some(id)
            && self.header.as_ref().is_some_and(|header| header.family == 1)
            && !has_working_name(path)
    }
}

/// Looks at a file once; `None` when it cannot be read, or when only a newer program may judge it.
pub(super) fn look(path: &Path) -> Option<Look> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let nothing = Pool::new(0, 4096).ok()?;
    match open(path, &nothing, 1).and_then(Family::open) {
        Ok(family) => Some(Look { header: Some(family.header().clone()), family: Some(family), unfinished: false }),
        Err(Error::Damaged { .. } | Error::Incomplete { .. }) => {
            let file = fs::File::open(path).ok()?;
            let mut end = vec![0; FOOTER];
            let footer = match metadata.len().checked_sub(FOOTER as u64) {
                Some(at) => file.read_exact_at(&mut end, at).map(|()| Footer::decode(&end).is_ok()).ok()?,
                None => false,
            };
            Some(Look { header: header_of(&file), family: None, unfinished: !footer })
        }
        Err(_) => None,
    }
}

/// The header alone, of a family whose end may be missing.
fn header_of(file: &fs::File) -> Option<FamilyHeader> {
    let mut start = vec![0; HEADER_MIN];
    file.read_exact_at(&mut start, 0).ok()?;
    let length = FamilyHeader::length(&start).ok()?;
    start.resize(length, 0);
    file.read_exact_at(&mut start, 0).ok()?;
    FamilyHeader::decode(&start).ok()
}

/// A family, going by its name, that this user may not read: to be named, not passed over.
fn is_hidden_family(path: &Path) -> bool {
    let denied = matches!(fs::File::open(path), Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied);
    denied && path.extension().is_some_and(|extension| extension == "bore")
}

fn open(path: &Path, pool: &Arc<Pool>, queue_depth: usize) -> Result<Box<dyn supply::Supply>> {
    supply::open(&Device::file(path), pool, queue_depth, Mode::from_environment()?)
}

fn describe(id: Uuid, mut members: Vec<Family>, notes: &mut Vec<String>) -> Found {
    // Among copies a final name comes first.
    let place = |family: &Family| {
        let path = Path::new(family.device());
        (family.header().family, has_working_name(path), path.to_owned())
    };
    members.sort_by_key(place);
    members.dedup_by(|copy, first| {
        // What has the same header and the same footer, and in it the digest of everything between, is a copy.
        let same = copy.header() == first.header() && copy.footer() == first.footer();
        if same {
            notes.push(same_family(Path::new(copy.device()), Path::new(first.device())));
        }
        same
    });
    let header = members[0].header().set.clone();
    let paths: Vec<PathBuf> = members.iter().map(|family| PathBuf::from(family.device())).collect();
    let stored_bytes = members.iter().filter_map(Family::size).sum();
    let incomplete = MediaSet::check_whole(&members).err().map(|error| one_line(&error));
    let in_manifest = header.open && header.keys.is_empty() && incomplete.is_none();
    let manifest = if in_manifest { members[0].manifest(None).ok() } else { None };
    let database_bytes = match header.open {
        false => Some(header.streams.iter().map(|stream| stream.size).sum()),
        true => manifest.map(|manifest| manifest.streams.iter().map(|stream| stream.size).sum()),
    };
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

fn same_family(copy: &Path, first: &Path) -> String {
    let inode = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let what = if inode(copy) == inode(first) { "is the same file as" } else { "is a copy of" };
    format!("`{}` {what} `{}` and is not read", copy.display(), first.display())
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
