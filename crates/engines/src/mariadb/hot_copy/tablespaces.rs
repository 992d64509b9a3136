//! The copied tablespaces, and what is done to them round by round until names and numbers fit what the server has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use fullbore_core::io::Memory;
use fullbore_core::{Error, Result};

use super::data_file::{Entry, Identity, SystemTablespace, identify};
use super::listing::{Role, TablespaceFile};
use super::pieces::{Pieces, Shared};
use super::reconcile::{Copied, Present, reconcile};
use super::target::{CopiedFile, FileKind};

/// How often the connection with the lock is asked whether it is still there.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Fewer files are not worth another thread.
const FILES_PER_THREAD: usize = 64;

/// The tablespaces of a copy.
pub struct Tablespaces<'a> {
    shared: &'a Shared<'a>,
    readers: usize,
    buffer: usize,
    system: SystemTablespace,
    /// Copied, with the names that they have now.
    copies: Vec<(Arc<Entry>, TablespaceFile)>,
}

impl<'a> Tablespaces<'a> {
    /// None copied so far.
    pub fn new(shared: &'a Shared<'a>, readers: usize, buffer: usize) -> Self {
        Self { shared, readers: readers.max(1), buffer, system: SystemTablespace::default(), copies: Vec::new() }
    }

    /// Looks at the system tablespace, whose further files say nothing about themselves.
    pub fn look_at_system(&mut self, files: &[TablespaceFile]) -> Result<()> {
        self.system = SystemTablespace::look(files, self.shared.mode)?;
        Ok(())
    }

    /// Copies files with all readers; `check` is called every second meanwhile.
    pub fn copy(&mut self, files: Vec<TablespaceFile>, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let pieces = Pieces::new(self.shared, &self.system, files);
        let (done, finished) = channel::<()>();
        let this = &*self;
        thread::scope(|scope| {
            for _ in 0..this.readers {
                let (done, pieces) = (done.clone(), &pieces);
                scope.spawn(move || {
                    if let Err(error) = this.read_all(pieces) {
                        this.shared.halt.stop(error);
                    }
                    drop(done);
                });
            }
            drop(done);
            // Ends when the last reader has gone.
            while let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(CHECK_PERIOD) {
                this.shared.halt.watch(check());
            }
        });
        self.shared.halt.check()?;
        self.copies.extend(pieces.into_entries().into_iter().map(|entry| (Arc::clone(&entry), entry.file.clone())));
        Ok(())
    }

    fn read_all(&self, pieces: &Pieces) -> Result<()> {
        let mut reader = pieces.reader()?;
        let mut buffer = Memory::new(self.buffer)?;
        while let Some(piece) = reader.next(&mut buffer)? {
            if piece.length > 0 {
                self.shared.target.write(piece.file, piece.offset, &buffer[..piece.length])?;
            }
        }
        Ok(())
    }

    /// Makes the copies fit what is there now: gives them their present names, forgets what is gone, copies what is new. How many files had
    /// to be copied.
    pub fn reconcile(&mut self, files: Vec<TablespaceFile>, check: &dyn Fn() -> Result<()>) -> Result<u64> {
        let files: Vec<TablespaceFile> = files.into_iter().filter(|file| !is_system(file)).collect();
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
        for index in &plan.discard {
            self.shared.target.discard(tables[*index].0.number)?;
        }
        self.copies = system;
        self.copies.extend(plan.keep.iter().map(|(copy, now)| (Arc::clone(&tables[*copy].0), there[*now].clone())));
        let new: Vec<TablespaceFile> = plan.copy.iter().map(|now| there[*now].clone()).collect();
        let count = new.len() as u64;
        if count > 0 {
            self.copy(new, check)?;
        }
        Ok(count)
    }

    /// Number and size of each file; nothing for those that are gone.
    fn identify_all(&self, files: &[TablespaceFile]) -> Result<Vec<Option<Identity>>> {
        let threads = self.readers.min(files.len() / FILES_PER_THREAD).max(1);
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

    /// All that are in the copy, for the final list.
    pub fn into_copied(self) -> impl Iterator<Item = CopiedFile> {
        self.copies.into_iter().map(|(entry, file)| CopiedFile {
            number: entry.number,
            kind: FileKind::Tablespace { page: entry.page.unwrap_or(super::pieces::PAGE_UNKNOWN) },
            size: entry.end.load(Ordering::Relaxed),
            space: entry.space,
            elsewhere: file.elsewhere.then(|| file.path.clone()),
            name: file.name,
        })
    }
}

fn is_system(file: &TablespaceFile) -> bool {
    matches!(file.role, Role::System { .. })
}
