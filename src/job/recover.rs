//! What a killed backup has left beside the names that the next one wants, and in its directories: finished when the set
//! is whole, rolled back when it was surely never committed. Nothing whole is ever removed before its successor is
//! whole under its own names, and nothing at all that a running backup holds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::Result;
use fullbore_core::device::{Device, Place};
use fullbore_core::io::directory_of;
use fullbore_core::sink::{Leftover, LeftoverKind, leftovers, leftovers_in, real_name};
use fullbore_core::unpack::{Family, MediaSet};
use uuid::Uuid;

use super::media::{self, Look};

/// Which leftovers of other names belong to the database that is backed up now.
pub(super) struct Ours {
    /// The database file.
    pub database: String,
    /// What its families are called in directories; for media that do not tell their database.
    pub patterns: Vec<glob::Pattern>,
}

/// What was done.
#[derive(Default)]
pub(super) struct Recovered {
    /// Bytes that a rehearsal would have freed, by device number.
    pub freed: HashMap<u64, u64>,
    /// What was put right, and what was left as it is. None of it changes what this run is worth.
    pub notes: Vec<String>,
}

/// Puts right what earlier runs have left beside `devices`, and in their directories what is of the same database. A
/// rehearsal changes nothing, and tells how much room the removal of what was never finished would make.
pub(super) fn recover(devices: &[Device], ours: &Ours, rehearsal: bool) -> Result<Recovered> {
    let files = devices.iter().filter_map(|device| match device.place() {
        Place::File(path) => Some(spelled_once(&real_name(path))),
        Place::Directory(_) | Place::Object { .. } | Place::Prefix { .. } | Place::Null | Place::Pipe => None,
    });
    let names: Vec<PathBuf> = files.collect();
    let (mut found, mut scene) = (Vec::new(), Scene::default());
    for name in &names {
        found.extend(leftovers(name)?.into_iter().filter(|leftover| !leftover.running));
    }
    let directories: BTreeSet<PathBuf> = names.iter().filter_map(|name| name.parent()).map(Path::to_owned).collect();
    for directory in &directories {
        // Only what is proved to be dead: these names are not ours to write.
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
    // A first family that was never finished is the proof that its set was not: it goes last, also should this run be
    // killed before.
    found.sort_by_key(|leftover| scene.is_proof(leftover));
    scene.remove_orphans()?;
    // As in the commit: first every family gets its name, then what they replaced goes.
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
                "`{}`, which a killed backup had not finished, would be removed first",
                leftover.path.display()
            ));
        }
    }
}

/// The name with the real path of its directory, so that no file is met under two names.
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

/// True when both paths lead to one file here, or are the same words.
fn same_file(one: &str, other: &str) -> bool {
    one == other || fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

/// True while the file is the one that was looked at: another run may have put right the same meanwhile, and a backup
/// have taken the name.
fn is_still(path: &Path, seen: Option<&Look>) -> bool {
    let known = |look: &Look| (look.header.clone(), look.unfinished);
    media::look(path).as_ref().map(known) == seen.map(known)
}

/// What is known of the leftovers, and of the families around them.
#[derive(Default)]
struct Scene {
    /// Every file that was looked at.
    seen: BTreeMap<PathBuf, Look>,
    /// Sets that are whole among all these files.
    whole: BTreeSet<Uuid>,
    /// Sets whose first family was never finished: their commit record was never written.
    uncommitted: BTreeSet<Uuid>,
    /// Sets with something unfinished here, which proves nothing of their finished families.
    unproved: BTreeSet<Uuid>,
    done: Recovered,
}

impl Scene {
    /// What one look at the file tells; each is opened once.
    fn see(&mut self, path: &Path) -> Option<&mut Look> {
        if !self.seen.contains_key(path) {
            self.seen.insert(path.to_owned(), media::look(path)?);
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
            // The families of other sets are closed again: a directory may hold more than there are descriptors.
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

    /// Sets whose first family is here under its working name without its footer, and nobody holds it. Families 2 to m get
    /// their final names before that footer, the commit record, is written. What is unfinished of another family may be
    /// somebody's copy, and family 1 on a disk that is not seen here.
    fn proved_uncommitted(&self, found: &[Leftover]) -> BTreeSet<Uuid> {
        let unfinished = found.iter().filter(|leftover| leftover.dead && self.is_unfinished(leftover));
        // The file itself tells whose first family it is, and its name agrees.
        let first = unfinished.filter_map(|leftover| {
            let header = self.seen.get(&leftover.path)?.header.as_ref()?;
            let id = header.set.media_set_id;
            (header.family == 1 && id.to_string() == leftover.set_id).then_some(id)
        });
        // Where a finished first family is as well, published or to be, the unfinished one is somebody's copy.
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

    /// An unfinished family of a set that was surely never committed; the first of them says so.
    fn is_proof(&self, leftover: &Leftover) -> bool {
        let header = self.seen.get(&leftover.path).and_then(|look| look.header.as_ref());
        self.is_unfinished(leftover)
            && header.is_some_and(|header| header.family == 1 && self.uncommitted.contains(&header.set.media_set_id))
    }

    /// The finished families with final names of these sets.
    fn published_of(&self, sets: &BTreeSet<Uuid>) -> Vec<PathBuf> {
        let of_these = |look: &Look| look.set().is_some_and(|id| sets.contains(&id));
        let published = self.seen.iter().filter(|(path, look)| !media::has_working_name(path) && of_these(look));
        published.map(|(path, _)| path.clone()).collect()
    }

    /// Families that got their final names before their set was given up, surely.
    fn remove_orphans(&mut self) -> Result<()> {
        for path in self.published_of(&self.unproved) {
            self.done.notes.push(format!(
                "left `{}` alone: its set is not whole here, and may be together with what is elsewhere",
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
            self.remove(&orphan, ": its set was never finished, for its backup was killed")?;
        }
        Ok(())
    }

    /// `NAME.new-ID`: published when its set is whole; removed when it was never finished, or its set surely was not. Any
    /// other may belong to a whole set of which we see only a part: it is left alone. Returns what had to be moved away.
    fn settle_new(&mut self, leftover: &Leftover) -> Result<Option<Leftover>> {
        let Some(look) = self.seen.get(&leftover.path) else { return Ok(None) };
        let (id, started_at, unfinished) = (look.set(), look.started_at(), look.unfinished);
        if !id.is_some_and(|id| self.whole.contains(&id)) {
            let named = Uuid::try_parse(&leftover.set_id).ok();
            if unfinished || named.is_some_and(|id| self.uncommitted.contains(&id)) {
                self.remove(leftover, ", which a killed backup had not finished")?;
            } else {
                self.note(
                    leftover,
                    "a killed backup may have finished its set, whose other families are not named here; remove it \
                     when they are nowhere",
                );
            }
            return Ok(None);
        }
        let standing = self.seen.get(&leftover.name);
        if standing.and_then(Look::started_at) > started_at {
            self.note(leftover, "a killed backup had finished it, but what has its name now is newer");
            return Ok(None);
        }
        let mut aside = None;
        if leftover.name.exists() {
            let Some(old) = standing.and_then(Look::set) else {
                self.note(leftover, "a killed backup had finished it, but what has its name now is no whole family");
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

    /// `NAME.old-ID`: put back when nothing took its place, removed when a whole set did.
    fn settle_old(&mut self, leftover: &Leftover) -> Result<()> {
        if !leftover.name.exists() {
            if self.rename(leftover, &leftover.name)? {
                let path = leftover.path.display();
                let put = format!("put `{path}` back under its name: the backup that should replace it was killed");
                self.done.notes.push(put);
            }
        } else if self.seen.get(&leftover.name).and_then(Look::set).is_some_and(|id| self.whole.contains(&id)) {
            self.remove(leftover, ": the backup that replaced it is whole")?;
        }
        Ok(())
    }

    /// True when this run did it, not another one that puts right the same.
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
        // What has no room yet may be a moment old, of a backup that has not locked it yet and makes it anew: no news.
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
