//! The copied tablespaces, and the rounds of changes until their names and numbers match the server.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use fullbore_core::{Error, Result};

use super::data_file::{Entry, Identity, SystemTablespace, identify};
use super::files::{CopiedFile, FileKind};
use super::imported::Kept;
use super::listing::{ListedFile, Role};
use super::lost::Short;
use super::reconcile::{Copied, Present, reconcile};
use super::work::Work;
use crate::mariadb::redo::lives::Lives;

/// Fewer files are not worth another thread.
const FILES_PER_THREAD: usize = 64;

/// The tablespaces of a copy.
pub struct Tablespaces<'a> {
    work: &'a Work,
    /// How many files are checked at once.
    threads: usize,
    copies: Vec<Taken>,
    /// The file records of the log so far.
    lives: Arc<Mutex<Lives>>,
    /// Numbers of which the log has everything since before their files were copied.
    known: HashSet<u32>,
    /// The greatest of them.
    greatest: u32,
}

/// A tablespace that was copied.
struct Taken {
    entry: Arc<Entry>,
    /// With the name that it has now.
    file: ListedFile,
    /// See [`Kept::is_present`].
    is_present: bool,
    /// See [`Kept::came_back`].
    came_back: bool,
}

/// When copies are compared with the current files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// While DDL runs: the comparison is repeated later.
    DdlGoesOn,
    /// DDL is blocked: this counts.
    DdlBlocked,
}

impl<'a> Tablespaces<'a> {
    /// Without a copied tablespace.
    pub fn new(work: &'a Work, threads: usize, lives: Arc<Mutex<Lives>>) -> Self {
        Self { work, threads: threads.max(1), copies: Vec::new(), lives, known: HashSet::new(), greatest: 0 }
    }

    /// Reads the system tablespace, whose further files have no head.
    pub fn look_at_system(&mut self, files: &[ListedFile]) -> Result<()> {
        self.work.set_system(SystemTablespace::look(files, self.work.mode)?);
        Ok(())
    }

    /// Copies the first files. `open` has the numbers that the server had open before the files were listed, if the
    /// account may ask.
    pub fn copy_first(
        &mut self,
        files: Vec<ListedFile>,
        open: Option<HashSet<u32>>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        self.copy(files, check)?;
        let there = || self.copies.iter().filter_map(|copy| copy.entry.space).collect();
        self.known = open.unwrap_or_else(there);
        self.greatest = self.known.iter().copied().max().unwrap_or(0);
        Ok(())
    }

    /// Copies files with all readers; calls `check` every second.
    fn copy(&mut self, files: Vec<ListedFile>, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let copied = self.work.copy(files, check)?;
        self.copies.extend(copied.into_iter().map(|entry| {
            let file = entry.file.clone();
            Taken { entry, file, is_present: false, came_back: false }
        }));
        Ok(())
    }

    /// Whether the log may lack writes to the file since it was copied: true for a table that was or is being imported.
    fn is_doubtful(&self, entry: &Entry, lives: &Lives) -> bool {
        let Some(space) = entry.space.filter(|_| entry.file.role == Role::Table) else { return false };
        entry.without_lsn || lives.removal(space).is_some() || !(self.is_known(space) || lives.was_made(space))
    }

    /// Numbers of new tables are greater than all before.
    fn is_known(&self, space: u32) -> bool {
        space > self.greatest || self.known.contains(&space)
    }

    /// Makes the copies match the current files: gives them their current names, drops removed files, copies new and
    /// replaced files. Returns how many files it copied.
    pub fn reconcile(&mut self, files: Vec<ListedFile>, moment: Moment, check: &dyn Fn() -> Result<()>) -> Result<u64> {
        let files: Vec<ListedFile> = files.into_iter().filter(|file| !is_system(file)).collect();
        let (mut present, mut there) = (Vec::new(), Vec::new());
        for (file, found) in files.iter().zip(self.identify_all(&files)?) {
            if let Some(Identity { space, stamp }) = found {
                let undo = file.role == Role::Undo;
                present.push(Present { space, name: file.name.clone(), stamp, undo });
                there.push(file);
            }
        }
        let blocked = moment == Moment::DdlBlocked;
        let (system, tables): (Vec<_>, Vec<_>) = self.copies.drain(..).partition(|copy| is_system(&copy.file));
        self.copies = system;
        let copied = self.copied(&tables, moment);
        let plan = reconcile(&copied, &present);
        let back = self.came_back(&tables, &copied, &present);
        self.copies.extend(plan.keep.iter().map(|&(copy, now)| Taken {
            entry: Arc::clone(&tables[copy].entry),
            file: there[now].clone(),
            is_present: blocked && copied[copy].is_untouched(&present[now].stamp),
            came_back: tables[copy].came_back,
        }));
        let mut numbers: HashMap<u32, usize> = HashMap::new();
        for space in present.iter().filter_map(|file| file.space) {
            *numbers.entry(space).or_default() += 1;
        }
        let twice =
            |now: usize| present[now].space.is_some_and(|space| numbers.get(&space).is_some_and(|count| *count > 1));
        let new: Vec<ListedFile> =
            plan.copy.iter().map(|now| ListedFile { ambiguous: twice(*now), ..there[*now].clone() }).collect();
        let count = new.len() as u64;
        if count > 0 {
            let before = self.copies.len();
            self.copy(new, check)?;
            for copy in &mut self.copies[before..] {
                copy.is_present = blocked;
                let space = copy.entry.space.filter(|_| !copy.file.ambiguous);
                copy.came_back = space.is_some_and(|space| back.contains(&space));
            }
        }
        Ok(count)
    }

    /// The evidence for the comparison of copies. Only while DDL is blocked no import can run.
    fn copied(&self, tables: &[Taken], moment: Moment) -> Vec<Copied> {
        let lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        let doubtful = |entry: &Entry| moment == Moment::DdlBlocked && self.is_doubtful(entry, &lives);
        let copied = |copy: &Taken| Copied {
            space: copy.entry.space,
            name: copy.file.name.clone(),
            stamp: copy.entry.stamp,
            doubtful: doubtful(&copy.entry),
            settled: copy.entry.settled,
        };
        tables.iter().map(copied).collect()
    }

    /// The numbers of current files that had another file, or no file, at an earlier look.
    fn came_back(&self, tables: &[Taken], copied: &[Copied], present: &[Present]) -> HashSet<u32> {
        let files: HashMap<u32, (&Taken, &Copied)> =
            tables.iter().zip(copied).filter_map(|(copy, said)| Some((said.space?, (copy, said)))).collect();
        // Files whose first page was still zero.
        let untold = || copied.iter().filter(|said| said.space.is_none());
        let is_back = |now: &Present, space: u32| match files.get(&space) {
            Some((taken, said)) => taken.came_back || !said.stamp.is_same_file(&now.stamp),
            None => space <= self.greatest && !now.undo && !untold().any(|said| said.stamp.is_same_file(&now.stamp)),
        };
        present.iter().filter_map(|now| now.space.filter(|space| is_back(now, *space))).collect()
    }

    /// Number and size of each file; `None` for removed files.
    fn identify_all(&self, files: &[ListedFile]) -> Result<Vec<Option<Identity>>> {
        let threads = self.threads.min(files.len() / FILES_PER_THREAD).max(1);
        if threads == 1 {
            return files.iter().map(identify).collect();
        }
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<(usize, Option<Identity>)>> {
            let mut mine = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(file) = files.get(index) else { return Ok(mine) };
                mine.push((index, identify(file)?));
            }
        };
        let mut all = vec![None; files.len()];
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let results: Vec<_> =
                workers.into_iter().map(|worker| worker.join().unwrap_or(Err(Error::Halted))).collect();
            for result in results {
                for (index, found) in result? {
                    all[index] = found;
                }
            }
            Ok::<(), fullbore_core::Error>(())
        })?;
        Ok(all)
    }

    /// Files that end before their tablespace does.
    pub fn short(&self) -> Vec<Short> {
        let pages = |entry: &Entry| entry.page.map_or(0, |page| entry.end.load(Ordering::Relaxed) / u64::from(page));
        let short = |copy: &Taken, there: u64| {
            let counted = copy.entry.counted.filter(|counted| there < u64::from(*counted))?;
            let undo = copy.file.role == Role::Undo;
            // The count is above.
            let page = there as u32;
            Some(Short { file: copy.file.name.clone(), space: copy.entry.space.unwrap_or(0), page, counted, undo })
        };
        let (system, tables): (Vec<_>, Vec<_>) = self.copies.iter().partition(|copy| is_system(&copy.file));
        let together = system.iter().map(|copy| pages(&copy.entry)).sum();
        let last = system.last().and_then(|copy| short(copy, together));
        tables.iter().filter_map(|copy| short(copy, pages(&copy.entry))).chain(last).collect()
    }

    /// How long the server's undo tablespaces are now, in bytes, by their numbers; at least as long as their copies.
    /// The server extends a file before it logs pages of the new part. So this is enough for every page in the log that
    /// is flushed before.
    pub fn undo_lengths(&self) -> Result<BTreeMap<u32, u64>> {
        let undo = self.copies.iter().filter(|copy| copy.file.role == Role::Undo);
        let length = |copy: &Taken| {
            let path = &copy.file.path;
            let now = fs::metadata(path).map_err(|error| Error::io("look at", path.display().to_string(), error))?;
            Ok((copy.entry.space.unwrap_or(0), now.len().max(copy.entry.end.load(Ordering::Relaxed))))
        };
        undo.map(length).collect()
    }

    /// The tables' files, for the last look at the log.
    pub fn kept(&self) -> Vec<Kept> {
        let tables = self.copies.iter().filter(|copy| copy.file.role == Role::Table);
        let kept = |copy: &Taken| {
            let name = copy.file.name.clone();
            Some(Kept { space: copy.entry.space?, name, is_present: copy.is_present, came_back: copy.came_back })
        };
        tables.filter_map(kept).collect()
    }

    /// All that are in the copy, for the final list.
    pub fn into_copied(self) -> impl Iterator<Item = CopiedFile> {
        self.copies.into_iter().map(|Taken { entry, file, .. }| CopiedFile {
            number: entry.number,
            kind: FileKind::Tablespace,
            unit: entry.stored_unit(),
            size: entry.end.load(Ordering::Relaxed),
            space: entry.space,
            encrypted: entry.encrypted,
            elsewhere: file.elsewhere.then(|| file.path.clone()),
            name: file.name,
        })
    }
}

fn is_system(file: &ListedFile) -> bool {
    matches!(file.role, Role::System { .. })
}
