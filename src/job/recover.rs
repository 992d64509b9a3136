//! What a killed backup has left beside the names that the next one wants: finished when the set is whole, rolled
//! back when it is not. Nothing whole is ever removed before its successor is whole under its own names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fullbore_core::Result;
use fullbore_core::device::{Device, Place};
use fullbore_core::io::Mode;
use fullbore_core::pool::Pool;
use fullbore_core::sink::{Leftover, LeftoverKind, leftovers};
use fullbore_core::supply;
use fullbore_core::unpack::{Family, MediaSet};
use uuid::Uuid;

/// Puts right what earlier runs have left beside `devices`; tells what was done.
pub(super) fn recover(devices: &[Device]) -> Result<Vec<String>> {
    let names: Vec<PathBuf> = devices
        .iter()
        .filter_map(|device| match device.place() {
            Place::File(path) => Some(path.clone()),
            Place::Directory(_) | Place::Null | Place::Pipe => None,
        })
        .collect();
    let mut found: Vec<(PathBuf, Leftover)> = Vec::new();
    for name in &names {
        found.extend(leftovers(name)?.into_iter().map(|leftover| (name.clone(), leftover)));
    }
    found.retain(|(_, leftover)| !leftover.running);
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let sets = look(&names, &found);
    let mut done = Vec::new();
    let mut moved = Vec::new();
    for (name, leftover) in found.iter().filter(|(_, leftover)| leftover.kind == LeftoverKind::New) {
        moved.extend(settle_new(name, leftover, &sets, &mut done)?.map(|old| (name.clone(), old)));
    }
    // What was moved away just now has been replaced as well.
    found.extend(moved);
    for (name, leftover) in found.iter().filter(|(_, leftover)| leftover.kind == LeftoverKind::Old) {
        settle_old(name, leftover, &sets, &mut done)?;
    }
    Ok(done)
}

/// `NAME.new-ID`: published when its set is whole; removed when a family of its set was surely never finished. Any other
/// may belong to a whole set of which we see only a part: it is left alone. Returns what had to be moved away for it.
fn settle_new(name: &Path, leftover: &Leftover, sets: &Sets, done: &mut Vec<String>) -> Result<Option<Leftover>> {
    let path = leftover.path.display();
    if !set_of(&leftover.path).is_some_and(|id| sets.whole.contains(&id)) {
        if sets.unfinished.contains(&leftover.set_id) {
            leftover.remove()?;
            done.push(format!("removed `{path}`, which a killed backup had not finished"));
        } else {
            done.push(format!("left `{path}` alone: a killed backup may have finished its set, whose other families are not named here"));
        }
        return Ok(None);
    }
    if started_at(name) > started_at(&leftover.path) {
        done.push(format!("left `{path}` alone: a killed backup had finished it, but what has its name now is newer"));
        return Ok(None);
    }
    let mut aside = None;
    if let Some(old) = set_of(name).filter(|_| name.exists()) {
        let mut moved = name.as_os_str().to_owned();
        moved.push(format!(".old-{old}"));
        let mut leftover =
            Leftover { path: name.to_owned(), kind: LeftoverKind::Old, set_id: old.to_string(), running: false };
        leftover.rename_to(Path::new(&moved))?;
        leftover.path = moved.into();
        aside = Some(leftover);
    }
    leftover.rename_to(name)?;
    done.push(format!("gave `{path}` its name: a killed backup had finished it"));
    Ok(aside)
}

/// `NAME.old-ID`: put back when nothing took its place, removed when a whole set did.
fn settle_old(name: &Path, leftover: &Leftover, sets: &Sets, done: &mut Vec<String>) -> Result<()> {
    let path = leftover.path.display();
    if !name.exists() {
        leftover.rename_to(name)?;
        done.push(format!("put `{path}` back under its name: the backup that should replace it was killed"));
    } else if set_of(name).is_some_and(|id| sets.whole.contains(&id)) {
        leftover.remove()?;
        done.push(format!("removed `{path}`: the backup that replaced it is whole"));
    }
    Ok(())
}

/// What is known of the sets that the leftovers belong to.
struct Sets {
    /// Media-set ids of sets that are whole among all these files.
    whole: Vec<Uuid>,
    /// Ids, as working names have them, of sets of which a family has no footer: their commit record was never written.
    unfinished: Vec<String>,
}

fn look(names: &[PathBuf], found: &[(PathBuf, Leftover)]) -> Sets {
    let paths = names.iter().chain(found.iter().map(|(_, leftover)| &leftover.path));
    let mut groups: BTreeMap<Uuid, Vec<Family>> = BTreeMap::new();
    for family in paths.filter_map(|path| open(path)) {
        groups.entry(family.header().set.media_set_id).or_default().push(family);
    }
    groups.retain(|_, members| {
        members.sort_by_key(|family| family.header().family);
        members.dedup_by_key(|family| family.header().family);
        MediaSet::check_whole(members).is_ok()
    });
    let new = found.iter().map(|(_, leftover)| leftover).filter(|leftover| leftover.kind == LeftoverKind::New);
    let unfinished =
        new.filter(|leftover| open(&leftover.path).is_none()).map(|leftover| leftover.set_id.clone()).collect();
    Sets { whole: groups.into_keys().collect(), unfinished }
}

fn open(path: &Path) -> Option<Family> {
    let pool = Pool::new(0, 4096).ok()?;
    let supply = supply::open(&Device::file(path), &pool, 1, Mode::from_environment().ok()?).ok()?;
    Family::open(supply).ok()
}

/// When the set that the family at `path` belongs to was begun, if it is one.
fn started_at(path: &Path) -> Option<i64> {
    open(path).map(|family| family.header().set.started_at)
}

/// The media set that the family at `path` belongs to, if it is one.
pub(super) fn set_of(path: &Path) -> Option<Uuid> {
    open(path).map(|family| family.header().set.media_set_id)
}
