//! Handles the leftovers of a killed backup, beside the names of the next backup and in its directories: finishes the
//! set if it is whole, and removes it if it was certainly never committed. A whole set is never removed before its
//! successor is whole under its own names, and files of a running backup are never removed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::Result;
use fullbore_core::device::{Destination, Device};
use fullbore_core::io::directory_of;
use fullbore_core::sink::{Leftover, LeftoverKind, leftovers, leftovers_in, real_name};
use fullbore_core::unpack::{Family, MediaSet};
use uuid::Uuid;

use fullbore_repository::discovery::{self, FamilyLook};

/// Which leftovers with other names belong to the database of this backup.
pub(super) struct Ours {
    /// The database file.
    pub database: String,
    /// The names of its families in directories, for media that do not name their database.
    pub patterns: Vec<glob::Pattern>,
}

/// The result.
#[derive(Default)]
pub(super) struct Recovered {
    /// Bytes that would be freed, by device number; only of a rehearsal.
    pub freed: HashMap<u64, u64>,
    /// What was tidied up, and what was left alone. None of it affects the result of this run.
    pub notes: Vec<String>,
}

/// Tidies up the leftovers of earlier runs beside `devices`, and leftovers of the same database in their directories. A
/// rehearsal changes nothing, and says how much space the removal of unfinished files would free.
pub(super) fn recover(devices: &[Device], ours: &Ours, rehearsal: bool) -> Result<Recovered> {
    let files = devices.iter().filter_map(|device| match device.place() {
        Destination::File(path) => Some(spelled_once(&real_name(path))),
        Destination::Directory(_)
        | Destination::Object { .. }
        | Destination::Prefix { .. }
        | Destination::Null
        | Destination::Pipe => None,
    });
    let names: Vec<PathBuf> = files.collect();
    let (mut found, mut scene) = (Vec::new(), Scene::default());
    for name in &names {
        found.extend(leftovers(name)?.into_iter().filter(|leftover| !leftover.running));
    }
    let directories: BTreeSet<PathBuf> = names.iter().filter_map(|name| name.parent()).map(Path::to_owned).collect();
    for directory in &directories {
        // Only if the run is certainly dead: this run does not write these names.
        let others = leftovers_in(directory)?.into_iter().filter(|other| other.dead && !names.contains(&other.name));
        found.extend(others.filter(|other| ours.own(other, &mut scene)));
    }
    if found.is_empty() {
        return Ok(Recovered::default());
    }
    scene.look(&names, &directories, &found);
    if rehearsal {
        let mut planned = Recovered::default();
        found.iter().filter(|leftover| scene.is_unfinished(leftover)).for_each(|leftover| planned.count(leftover));
        return Ok(planned);
    }
    // An unfinished first family is the proof that its set was never committed. It is removed last, in case this run is
    // killed before.
    found.sort_by_key(|leftover| scene.is_proof(leftover));
    scene.remove_orphans()?;
    // As in a commit: first every family gets its name, then the replaced families are removed.
    let mut replaced = Vec::new();
    for leftover in found.iter().filter(|leftover| leftover.kind == LeftoverKind::New) {
        replaced.extend(scene.settle_new(leftover)?);
    }
    replaced.extend(found.into_iter().filter(|leftover| leftover.kind == LeftoverKind::Old));
    for old in &replaced {
        scene.settle_old(old)?;
    }
    Ok(scene.done)
}

impl Recovered {
    fn count(&mut self, leftover: &Leftover) {
        const SECTOR: u64 = 512;
        if let Ok(metadata) = fs::metadata(&leftover.path) {
            *self.freed.entry(metadata.dev()).or_default() += metadata.blocks() * SECTOR;
            self.notes.push(format!(
                "`{}`, an unfinished file of a killed backup, would be removed first",
                leftover.path.display()
            ));
        }
    }
}

/// The name with the real path of its directory, so that a file is not found under two names.
fn spelled_once(name: &Path) -> PathBuf {
    let parent = directory_of(name);
    let real = fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
    real.join(name.file_name().unwrap_or_default())
}

impl Ours {
    fn own(&self, leftover: &Leftover, scene: &mut Scene) -> bool {
        let header = scene.see(&leftover.path).and_then(|look| look.header.as_ref());
        match header.and_then(|header| header.set.label.as_ref()) {
            Some(label) => same_file(&label.database, &self.database),
            None => {
                let name = leftover.name.file_name().unwrap_or_default().to_string_lossy();
                self.patterns.iter().any(|pattern| pattern.matches(&name))
            }
        }
    }
}

/// True if both paths lead to one file here, or are the same text.
fn same_file(one: &str, other: &str) -> bool {
    one == other || fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

/// True if the file has not changed since the look: another run may have tidied up meanwhile, and a backup may have
/// taken the name.
fn is_still(path: &Path, seen: Option<&FamilyLook>) -> bool {
    let known = |look: &FamilyLook| (look.header.clone(), look.unfinished);
    discovery::look(path).as_ref().map(known) == seen.map(known)
}

/// The leftovers, and the families around them.
#[derive(Default)]
struct Scene {
    /// Every file that was looked at.
    seen: BTreeMap<PathBuf, FamilyLook>,
    /// Sets that are whole among all these files.
    whole: BTreeSet<Uuid>,
    /// Sets whose first family was never finished: their commit record was never written.
    uncommitted: BTreeSet<Uuid>,
    /// Sets with unfinished files here. This proves nothing about their finished families.
    unproved: BTreeSet<Uuid>,
    done: Recovered,
}

impl Scene {
    /// The result of one look at the file; each file is opened once.
    fn see(&mut self, path: &Path) -> Option<&mut FamilyLook> {
        if !self.seen.contains_key(path) {
            self.seen.insert(path.to_owned(), discovery::look(path)?);
        }
        self.seen.get_mut(path)
    }

    fn look(&mut self, names: &[PathBuf], directories: &BTreeSet<PathBuf>, found: &[Leftover]) {
        let mut concerned: BTreeSet<Uuid> =
            found.iter().filter_map(|leftover| Uuid::try_parse(&leftover.set_id).ok()).collect();
        let mut near: BTreeSet<PathBuf> = names.iter().cloned().collect();
        near.extend(found.iter().flat_map(|leftover| [leftover.path.clone(), leftover.name.clone()]));
        concerned.extend(near.iter().filter_map(|path| self.see(path)?.set()));
        let around = directories.iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten().flatten();
        near.extend(around.map(|entry| entry.path()));
        let mut members: BTreeMap<Uuid, Vec<Family>> = BTreeMap::new();
        for path in &near {
            let Some(look) = self.see(path) else { continue };
            // The families of other sets are closed again: a directory may have more files than there are descriptors.
            if let Some((id, family)) = look.set().zip(look.family.take()).filter(|(id, _)| concerned.contains(id)) {
                members.entry(id).or_default().push(family);
            }
        }
        members.retain(|_, families| {
            families.sort_by_key(|family| family.header().family);
            families.dedup_by_key(|family| family.header().family);
            MediaSet::check_whole(families).is_ok()
        });
        self.whole = members.into_keys().collect();
        self.uncommitted = self.proved_uncommitted(found);
        let unproved = found.iter().filter(|leftover| self.is_unfinished(leftover));
        let unproved = unproved.filter_map(|leftover| Uuid::try_parse(&leftover.set_id).ok());
        let unproved = unproved.filter(|id| !self.whole.contains(id) && !self.uncommitted.contains(id));
        self.unproved = unproved.collect();
    }

    /// Sets whose first family is here with its working name and without its footer, and is not held by a run. Families
    /// 2 to m get their final names before this footer, the commit record, is written. Another unfinished family may be
    /// part of a copy, with family 1 on a disk that is not visible here.
    fn proved_uncommitted(&self, found: &[Leftover]) -> BTreeSet<Uuid> {
        let unfinished = found.iter().filter(|leftover| leftover.dead && self.is_unfinished(leftover));
        // The file itself says that it is the first family of this set, and its name agrees.
        let first = unfinished.filter_map(|leftover| {
            let header = self.seen.get(&leftover.path)?.header.as_ref()?;
            let id = header.set.media_set_id;
            (header.family == 1 && id.to_string() == leftover.set_id).then_some(id)
        });
        // If a finished first family also exists, published or not yet, the unfinished one is part of a copy.
        let to_be = |id: Uuid, leftover: &Leftover| {
            self.seen.get(&leftover.path).is_some_and(|look| look.is_published_first(&leftover.name, id))
        };
        let committed = |id: &Uuid| {
            self.seen.iter().any(|(path, look)| look.is_published_first(path, *id))
                || found.iter().any(|leftover| to_be(*id, leftover))
        };
        first.filter(|id| !self.whole.contains(id) && !committed(id)).collect()
    }

    /// A working file that has no footer.
    fn is_unfinished(&self, leftover: &Leftover) -> bool {
        leftover.kind == LeftoverKind::New && self.seen.get(&leftover.path).is_some_and(|look| look.unfinished)
    }

    /// True for the unfinished first family of a set that was certainly never committed.
    fn is_proof(&self, leftover: &Leftover) -> bool {
        let header = self.seen.get(&leftover.path).and_then(|look| look.header.as_ref());
        self.is_unfinished(leftover)
            && header.is_some_and(|header| header.family == 1 && self.uncommitted.contains(&header.set.media_set_id))
    }

    /// The finished families with final names of these sets.
    fn published_of(&self, sets: &BTreeSet<Uuid>) -> Vec<PathBuf> {
        let of_these = |look: &FamilyLook| look.set().is_some_and(|id| sets.contains(&id));
        let published = self.seen.iter().filter(|(path, look)| !discovery::has_working_name(path) && of_these(look));
        published.map(|(path, _)| path.clone()).collect()
    }

    /// Removes families with final names whose set was certainly never committed.
    fn remove_orphans(&mut self) -> Result<()> {
        for path in self.published_of(&self.unproved) {
            self.done.notes.push(format!(
                "left `{}` alone: its set is incomplete here, but may be complete with families in other places",
                path.display()
            ));
        }
        for path in self.published_of(&self.uncommitted) {
            let orphan = Leftover {
                name: path.clone(),
                kind: LeftoverKind::New,
                set_id: String::new(),
                running: false,
                dead: true,
                path,
            };
            self.remove(&orphan, ": its set was never finished, because its backup was killed")?;
        }
        Ok(())
    }

    /// `NAME.new-ID`: published if its set is whole; removed if it was never finished, or if its set certainly was not.
    /// Any other may belong to a whole set that is only partly visible here: it is left alone. Returns the file that
    /// had to be moved away.
    fn settle_new(&mut self, leftover: &Leftover) -> Result<Option<Leftover>> {
        let Some(look) = self.seen.get(&leftover.path) else { return Ok(None) };
        let (id, started_at, unfinished) = (look.set(), look.started_at(), look.unfinished);
        if !id.is_some_and(|id| self.whole.contains(&id)) {
            let named = Uuid::try_parse(&leftover.set_id).ok();
            if unfinished || named.is_some_and(|id| self.uncommitted.contains(&id)) {
                self.remove(leftover, ", an unfinished file of a killed backup")?;
            } else {
                self.note(
                    leftover,
                    "a killed backup may have finished its set, but the other families are not named here; remove it \
                     if they do not exist",
                );
            }
            return Ok(None);
        }
        let standing = self.seen.get(&leftover.name);
        if standing.and_then(FamilyLook::started_at) > started_at {
            self.note(leftover, "a killed backup had finished it, but the file with its name is newer");
            return Ok(None);
        }
        let mut aside = None;
        if leftover.name.exists() {
            let Some(old) = standing.and_then(FamilyLook::set) else {
                self.note(
                    leftover,
                    "a killed backup had finished it, but the file with its name is not a complete family",
                );
                return Ok(None);
            };
            let mut moved = leftover.name.as_os_str().to_owned();
            moved.push(format!(".old-{old}"));
            let mut standing = Leftover {
                path: leftover.name.clone(),
                kind: LeftoverKind::Old,
                set_id: old.to_string(),
                ..leftover.clone()
            };
            if !self.rename(&standing, Path::new(&moved))? {
                return Ok(None);
            }
            standing.path = moved.into();
            aside = Some(standing);
        }
        if self.rename(leftover, &leftover.name)? {
            let path = leftover.path.display();
            self.done.notes.push(format!("gave `{path}` its name: a killed backup had finished it"));
        }
        Ok(aside)
    }

    /// `NAME.old-ID`: put back if nothing has its name, removed if a family of a whole set has it.
    fn settle_old(&mut self, leftover: &Leftover) -> Result<()> {
        if !leftover.name.exists() {
            if self.rename(leftover, &leftover.name)? {
                let path = leftover.path.display();
                let put = format!("put `{path}` back under its name: the backup that should replace it was killed");
                self.done.notes.push(put);
            }
        } else if self.seen.get(&leftover.name).and_then(FamilyLook::set).is_some_and(|id| self.whole.contains(&id)) {
            self.remove(leftover, ": the backup that replaced it is complete")?;
        }
        Ok(())
    }

    /// True if this run did it, false if another run was faster.
    fn rename(&mut self, leftover: &Leftover, to: &Path) -> Result<bool> {
        let look = self.seen.remove(&leftover.path);
        let renamed = leftover.rename_to(to, |path| is_still(path, look.as_ref()))?;
        if let Some(look) = look.filter(|_| renamed) {
            self.seen.insert(to.to_owned(), look);
        }
        Ok(renamed)
    }

    fn remove(&mut self, leftover: &Leftover, why: &str) -> Result<()> {
        let look = self.seen.remove(&leftover.path);
        // No note about an empty file: a backup may just have made it, and not locked it yet; it makes the file again.
        let empty = fs::metadata(&leftover.path).is_ok_and(|metadata| metadata.blocks() == 0);
        if leftover.remove(|path| is_still(path, look.as_ref()))? && !empty {
            self.done.notes.push(format!("removed `{}`{why}", leftover.path.display()));
        }
        Ok(())
    }

    fn note(&mut self, leftover: &Leftover, why: &str) {
        self.done.notes.push(format!("left `{}` alone: {why}", leftover.path.display()));
    }
}
