//! Finding media: from what follows `--from` to whole sets.

mod candidates;
mod keys;
mod look;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fullbore_core::cipher::SecretKey;
use fullbore_core::media::SetHeader;
use fullbore_core::pool::Pool;
use fullbore_core::unpack::{Family, MediaSet, group};
use fullbore_core::{Error, Result};
use uuid::Uuid;

pub use candidates::has_working_name;
pub use keys::{read_key, sidecar_name};
pub use look::{Look, begins_like_a_family, look};

use crate::chain::FoundSet;
use crate::report::Report;
use candidates::{Candidate, candidates, final_name, identity, is_probe, set_in_working_name};
use keys::rotated_keys;
use look::{header_of, is_hidden_family, open};

/// How often media are looked at anew while running backups give names, and how long each look waits for them.
const LOOKS: usize = 25;
const PAUSE: Duration = Duration::from_millis(10);

/// One media set among those that were found.
#[derive(Clone)]
pub struct Found {
    /// For choosing.
    pub set: FoundSet,
    /// Where its families are, first to last, as far as they are there.
    pub paths: Vec<PathBuf>,
    /// Copies of them, each with the path that is read in its place.
    pub copies: Vec<(PathBuf, PathBuf)>,
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
    /// Which files it was found in.
    candidates: Vec<Candidate>,
}

impl Heap {
    /// True when `from` names other files now: a running backup gives names to its families.
    pub fn has_changed(&self, from: &[String]) -> bool {
        candidates(from).ok().as_ref() != Some(&self.candidates)
    }

    /// Puts what is worth knowing of it into the report.
    pub fn book_notes(&self, report: &mut Report) {
        report.notes.extend(self.notes.iter().cloned());
        report.notes.extend(self.leftover_notes());
    }

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
    for _ in 1..LOOKS {
        let before = candidates(from);
        let names = before.as_ref().ok().cloned();
        let heap = before.and_then(look_at);
        if heap.is_err() {
            thread::sleep(PAUSE);
        }
        // What was looked at while names changed may have been met twice, or not at all.
        if candidates(from).ok() == names {
            return heap;
        }
        thread::sleep(PAUSE);
    }
    candidates(from).and_then(look_at)
}

/// Does `job` with what `from` names; anew when it failed and a running backup has given other names meanwhile.
///
/// # Errors
/// Those of [`find`] and of the job.
pub fn settled<T>(from: &[String], mut job: impl FnMut(&Heap) -> Result<T>) -> Result<T> {
    for _ in 1..LOOKS {
        let heap = find(from)?;
        match job(&heap) {
            Err(_) if heap.has_changed(from) => {}
            done => return done,
        }
    }
    job(&find(from)?)
}

fn look_at(candidates: Vec<Candidate>) -> Result<Heap> {
    let (mut unreadable, mut notes) = (Vec::new(), Vec::new());
    // First the headers alone, then the families of one set after the other: a folder may hold more of them than a process
    // may open files.
    let mut groups: BTreeMap<(i64, Uuid), Vec<Candidate>> = BTreeMap::new();
    for candidate in &candidates {
        let Candidate { path, named, leftover, .. } = candidate;
        // A backup that was killed at its beginning has not written its header yet.
        let begun = *leftover && !is_probe(path);
        if !named && !begun && !is_hidden_family(path) && !begins_like_a_family(path)? {
            continue;
        }
        let header = fs::File::open(path).ok().and_then(|file| header_of(&file));
        let group = header.map_or((0, Uuid::nil()), |header| (header.set.started_at, header.set.media_set_id));
        groups.entry(group).or_default().push(candidate.clone());
    }
    let mut sets = Vec::new();
    for members in groups.into_values() {
        let mut families = Vec::new();
        for candidate in members {
            families.extend(open_candidate(candidate, &mut unreadable)?);
        }
        sets.extend(group(families).into_iter().map(|(id, members)| describe(id, members, &mut notes)));
    }
    // The published families of a backup whose others are still under working names.
    for found in &mut sets {
        let other = |unreadable: &Unreadable| unreadable.leftover && unreadable.set == Some(found.media_set_id);
        found.set.interrupted |= unreadable.iter().any(other);
    }
    Ok(Heap { sets, unreadable, notes, candidates })
}

/// Opens what may be a family; what cannot be read is put down, unless the user named it.
fn open_candidate(candidate: Candidate, unreadable: &mut Vec<Unreadable>) -> Result<Option<Family>> {
    let Candidate { path, named, leftover, .. } = candidate;
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

fn describe(id: Uuid, mut members: Vec<Family>, notes: &mut Vec<String>) -> Found {
    // Among copies a final name comes first.
    let place = |family: &Family| {
        let path = Path::new(family.device());
        (family.header().family, has_working_name(path), path.to_owned())
    };
    members.sort_by_key(place);
    let mut copies = Vec::new();
    members.dedup_by(|copy, first| {
        // What has the same header and the same footer, and in it the digest of everything between, is a copy.
        let same = copy.header() == first.header() && copy.footer() == first.footer();
        if same {
            let (copy, first) = (Path::new(copy.device()), Path::new(first.device()));
            notes.push(same_family(copy, first));
            if identity(copy) != identity(first) {
                copies.push((copy.to_owned(), first.to_owned()));
            }
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
    Found { set, families: header.families, paths, copies, stored_bytes, media_set_id: id, database_bytes, header }
}

fn same_family(copy: &Path, first: &Path) -> String {
    let what = if identity(copy) == identity(first) { "is the same file as" } else { "is a copy of" };
    format!("`{}` {what} `{}` and is not read", copy.display(), first.display())
}

/// The first line of an error: without its hint.
pub(super) fn one_line(error: &Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Opens all families of a set for reading through `pool`.
///
/// # Errors
/// The set is not whole, its names lead to another one by now, or the key does not open it.
pub fn open_set(found: &Found, pool: &Arc<Pool>, queue_depth: usize, key: Option<&SecretKey>) -> Result<MediaSet> {
    let families = found
        .paths
        .iter()
        .map(|path| open(path, pool, queue_depth).and_then(Family::open))
        .collect::<Result<Vec<_>>>()?;
    if let Some(other) = families.iter().find(|family| family.header().set.media_set_id != found.media_set_id) {
        return Err(Error::refused(
            other.device(),
            "another backup took the place of this family before it could be read",
            "run it again",
        ));
    }
    let (records, mut unreadable) = rotated_keys(found);
    let set = MediaSet::assemble(families, key, &records);
    // The records of the set itself may open it without what cannot be read; else that is what stands against it.
    set.map_err(|error| if key.is_some() { unreadable.pop().unwrap_or(error) } else { error })
}

impl Found {
    /// Sidecars with rotated keys that cannot be read, in a line each.
    pub fn unreadable_sidecars(&self) -> Vec<String> {
        rotated_keys(self).1.iter().map(one_line).collect()
    }

    /// False when another backup has taken the names of its families since it was found.
    pub fn is_in_place(&self) -> bool {
        self.paths.iter().all(|path| match fs::File::open(path) {
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
            // Damage does not tell whose it is.
            Ok(file) => header_of(&file).is_none_or(|header| header.set.media_set_id == self.media_set_id),
        })
    }

    /// The error of a family that is damaged, with the place of a copy of it.
    pub fn naming_copies(&self, error: Error) -> Error {
        let Error::Damaged { device, .. } = &error else { return error };
        match self.copies.iter().find(|(_, read)| *read == Path::new(device)) {
            Some((copy, _)) => {
                let more = format!("there is a copy of it: name `{}` in its place", copy.display());
                error.noting(&more)
            }
            None => error,
        }
    }
}
