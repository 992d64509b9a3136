//! The copied tablespaces, and what is done to them round by round until names and numbers fit what the server has.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fullbore_core::{Error, Result};

use super::data_file::{Entry, Identity, SystemTablespace, identify};
use super::files::{CopiedFile, FileKind};
use super::listing::{ListedFile, Role};
use super::lost::Short;
use super::reconcile::{Copied, Present, reconcile};
use super::work::Work;

/// Fewer files are not worth another thread.
const FILES_PER_THREAD: usize = 64;

/// The tablespaces of a copy.
pub struct Tablespaces<'a> {
    work: &'a Work,
    /// How many files are looked at at once.
    threads: usize,
    /// Copied, with the names that they have now.
    copies: Vec<(Arc<Entry>, ListedFile)>,
}

impl<'a> Tablespaces<'a> {
    /// None copied so far.
    pub fn new(work: &'a Work, threads: usize) -> Self {
        Self { work, threads: threads.max(1), copies: Vec::new() }
    }

    /// Looks at the system tablespace, whose further files say nothing about themselves.
    pub fn look_at_system(&mut self, files: &[ListedFile]) -> Result<()> {
        self.work.set_system(SystemTablespace::look(files, self.work.mode)?);
        Ok(())
    }

    /// Copies files with all readers; `check` is called every second meanwhile.
    pub fn copy(&mut self, files: Vec<ListedFile>, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let copied = self.work.copy(files, check)?;
        self.copies.extend(copied.into_iter().map(|entry| (Arc::clone(&entry), entry.file.clone())));
        Ok(())
    }

    /// Makes the copies fit what is there now: gives them their present names, forgets what is gone, copies what is new. How many files had
    /// to be copied.
    pub fn reconcile(&mut self, files: Vec<ListedFile>, check: &dyn Fn() -> Result<()>) -> Result<u64> {
        let files: Vec<ListedFile> = files.into_iter().filter(|file| !is_system(file)).collect();
        let (mut present, mut there) = (Vec::new(), Vec::new());
        for (file, found) in files.iter().zip(self.identify_all(&files)?) {
            if let Some(Identity { space, size }) = found {
                let undo = file.role == Role::Undo;
                present.push(Present { space, name: file.name.clone(), size, undo });
                there.push(file);
            }
        }
        let (system, tables): (Vec<_>, Vec<_>) = self.copies.drain(..).partition(|(_, file)| is_system(file));
        let copied: Vec<Copied> = tables
            .iter()
            .map(|(entry, file)| Copied { space: entry.space, name: file.name.clone(), size: entry.size })
            .collect();
        let plan = reconcile(&copied, &present);
        self.copies = system;
        self.copies.extend(plan.keep.iter().map(|(copy, now)| (Arc::clone(&tables[*copy].0), there[*now].clone())));
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
            self.copy(new, check)?;
        }
        Ok(count)
    }

    /// Number and size of each file; nothing for those that are gone.
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
        let short = |file: &ListedFile, entry: &Entry, there: u64| {
            let counted = entry.counted.filter(|counted| there < u64::from(*counted))?;
            let undo = file.role == Role::Undo;
            // The count is above.
            let page = there as u32;
            Some(Short { file: file.name.clone(), space: entry.space.unwrap_or(0), page, counted, undo })
        };
        let (system, tables): (Vec<_>, Vec<_>) = self.copies.iter().partition(|(_, file)| is_system(file));
        let together = system.iter().map(|(entry, _)| pages(entry)).sum();
        let last = system.last().and_then(|(entry, file)| short(file, entry, together));
        tables.iter().filter_map(|(entry, file)| short(file, entry, pages(entry))).chain(last).collect()
    }

    /// All that are in the copy, for the final list.
    pub fn into_copied(self) -> impl Iterator<Item = CopiedFile> {
        self.copies.into_iter().map(|(entry, file)| CopiedFile {
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
