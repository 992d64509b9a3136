//! Files of other engines, table definitions and Aria's log: copied before the server holds still where they have
//! settled, and again only where they have changed since.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fullbore_core::{Error, Result};

use super::data_file::Entry;
use super::files::{CopiedFile, FileKind};
use super::listing::{ListedFile, OtherFile, Role, Settles};
use super::stamp::Stamp;
use super::work::Work;

/// Bytes of small files that are read into memory while the server holds still, in all.
const KEPT_MAX: u64 = 16 << 20;

struct Taken {
    entry: Arc<Entry>,
    stamp: Stamp,
    settled: bool,
    settles: Settles,
}

/// The other files of a copy.
pub struct OtherFiles<'a> {
    work: &'a Work,
    /// Times say whether content changed.
    times_count: bool,
    taken: BTreeMap<String, Taken>,
    /// Bytes that were read into memory.
    kept: u64,
}

/// How much a round had to copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Files that were copied, or copied again.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl<'a> OtherFiles<'a> {
    /// Without a copied file. `times_count` is false if the server writes through memory, which does not change file
    /// times.
    pub fn new(work: &'a Work, times_count: bool) -> Self {
        Self { work, times_count, taken: BTreeMap::new(), kept: 0 }
    }

    /// Copies the files that have settled, while the server continues; it calls `check` every second.
    pub fn copy_settled(&mut self, files: &[OtherFile], check: &dyn Fn() -> Result<()>) -> Result<Round> {
        if !self.times_count {
            return Ok(Round::default());
        }
        let files: Vec<&OtherFile> = files
            .iter()
            .filter(|file| stamp_of(file).is_ok_and(|stamp| stamp.is_some_and(|stamp| stamp.is_settled())))
            .collect();
        self.copy(&files, check)
    }

    /// Copies the files that do not change from this stage on and whose copy is not current, and drops removed files.
    pub fn copy_changed(&mut self, files: &[OtherFile], settles: Settles) -> Result<Round> {
        let files: Vec<&OtherFile> = files.iter().filter(|file| file.settles == settles).collect();
        let names: std::collections::BTreeSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        self.taken.retain(|name, taken| taken.settles != settles || names.contains(name.as_str()));
        let mut changed = Vec::new();
        for file in files {
            let now = stamp_of(file)?;
            let same = self.taken.get(&file.name).is_some_and(|taken| taken.settled && now == Some(taken.stamp));
            if !same {
                changed.push(file);
            }
        }
        let (mut kept, mut large) = (Round::default(), Vec::new());
        for file in changed {
            if !self.keep(file, &mut kept)? {
                large.push(file);
            }
        }
        // The lock is not asked after here: every statement that follows would fail without it.
        let copied = self.copy(&large, &|| Ok(()))?;
        Ok(Round { files: kept.files + copied.files, bytes: kept.bytes + copied.bytes })
    }

    /// Reads a small file at once, so that the server is not blocked until a reader has a free buffer; false if there
    /// is no room for it.
    fn keep(&mut self, file: &OtherFile, round: &mut Round) -> Result<bool> {
        let Some(stamp) = stamp_of(file)? else { return Ok(true) };
        // It does not grow, because the server is blocked.
        if self.kept + stamp.size > KEPT_MAX {
            return Ok(false);
        }
        self.taken.remove(&file.name);
        let listed = ListedFile {
            name: file.name.clone(),
            path: file.path.clone(),
            elsewhere: false,
            ambiguous: false,
            role: Role::Other,
        };
        if let Some(entry) = self.work.keep(listed, stamp.size)? {
            self.kept += entry.size;
            *round = Round { files: round.files + 1, bytes: round.bytes + entry.size };
            let taken = Taken { stamp, settled: false, settles: file.settles, entry };
            self.taken.insert(file.name.clone(), taken);
        }
        Ok(true)
    }

    /// All that were copied, for the final list.
    pub fn into_copied(self) -> impl Iterator<Item = CopiedFile> {
        self.taken.into_iter().map(|(name, taken)| CopiedFile {
            number: taken.entry.number,
            name,
            kind: FileKind::Other,
            unit: taken.entry.stored_unit(),
            size: taken.entry.end.load(Ordering::Relaxed),
            space: None,
            encrypted: false,
            elsewhere: None,
        })
    }

    fn copy(&mut self, files: &[&OtherFile], check: &dyn Fn() -> Result<()>) -> Result<Round> {
        let (mut listed, mut stamps) = (Vec::new(), HashMap::new());
        for file in files {
            self.taken.remove(&file.name);
            let Some(stamp) = stamp_of(file)? else { continue };
            stamps.insert(file.name.as_str(), (*file, stamp, stamp.is_settled()));
            let (name, path) = (file.name.clone(), file.path.clone());
            listed.push(ListedFile { name, path, elsewhere: false, ambiguous: false, role: Role::Other });
        }
        let mut round = Round::default();
        for entry in self.work.copy(listed, check)? {
            let Some((file, stamp, settled)) = stamps.get(entry.file.name.as_str()) else { continue };
            round.files += 1;
            round.bytes += entry.end.load(Ordering::Relaxed);
            // The stamp is of another file or of less content: then it does not count as settled.
            let settled = *settled && stamp_of(file)? == Some(*stamp);
            let taken = Taken { stamp: *stamp, settled, settles: file.settles, entry: Arc::clone(&entry) };
            self.taken.insert(file.name.clone(), taken);
        }
        Ok(round)
    }
}

fn stamp_of(file: &OtherFile) -> Result<Option<Stamp>> {
    match std::fs::metadata(&file.path) {
        Ok(stat) => Ok(Some(Stamp::of(&stat))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("look at", file.path.display().to_string(), error)),
    }
}
