//! Files of other engines, table definitions and Aria's log: copied before the server holds still where they have settled, and again
//! only where they have changed since.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fullbore_core::io::{Memory, Mode, OpenedFile};
use fullbore_core::{Error, Result};

use super::listing::{OtherFile, Settles};
use super::pieces::Shared;
use super::target::{CopiedFile, FileHead, FileKind, FileNumber};
use crate::mariadb::redo::tail::read_full;

/// A file that was changed less long ago can change again without a sign: the clocks of file systems tick in milliseconds, some in
/// seconds.
const SETTLED: Duration = Duration::from_secs(2);
/// Smaller files are read through the page cache: asking how to read them directly would take longer.
const DIRECT_FROM: u64 = 1 << 20;

/// What says that a file is still the one that was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(stat: &Metadata) -> Self {
        Self {
            device: stat.dev(),
            inode: stat.ino(),
            size: stat.len(),
            modified: (stat.mtime(), stat.mtime_nsec()),
            changed: (stat.ctime(), stat.ctime_nsec()),
        }
    }

    /// Whether a later change of the file is sure to change the stamp.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
        let newest = self.modified.0.max(self.changed.0);
        now - newest > SETTLED.as_secs() as i64
    }
}

struct Taken {
    number: FileNumber,
    stamp: Stamp,
    settled: bool,
    settles: Settles,
    size: u64,
}

/// The other files of a copy.
pub struct OtherFiles<'a> {
    shared: &'a Shared<'a>,
    /// How many files are copied at once, and with what buffers.
    readers: usize,
    buffer: usize,
    /// Times say whether content changed.
    times_count: bool,
    taken: BTreeMap<String, Taken>,
}

/// How much a round had to copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Files that were copied, or copied again.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl<'a> OtherFiles<'a> {
    /// None copied so far. `times_count` is false where the server writes through memory, which leaves times as they are.
    pub fn new(shared: &'a Shared<'a>, readers: usize, buffer: usize, times_count: bool) -> Self {
        Self { shared, readers: readers.max(1), buffer, times_count, taken: BTreeMap::new() }
    }

    /// Copies those that have settled, while the server goes on.
    pub fn copy_settled(&mut self, files: &[OtherFile]) -> Result<Round> {
        if !self.times_count {
            return Ok(Round::default());
        }
        let files: Vec<&OtherFile> = files
            .iter()
            .filter(|file| stamp_of(file).is_ok_and(|stamp| stamp.is_some_and(|stamp| stamp.is_settled())))
            .collect();
        self.copy(&files)
    }

    /// Copies those that hold still from this stage on and are not yet copied as they are now, and forgets those that are gone.
    pub fn copy_changed(&mut self, files: &[OtherFile], settles: Settles) -> Result<Round> {
        let files: Vec<&OtherFile> = files.iter().filter(|file| file.settles == settles).collect();
        let names: std::collections::BTreeSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let gone = self.taken.iter().filter(|(name, taken)| taken.settles == settles && !names.contains(name.as_str()));
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.forget(&name)?;
        }
        let mut changed = Vec::new();
        for file in files {
            let now = stamp_of(file)?;
            let same = self.taken.get(&file.name).is_some_and(|taken| taken.settled && now == Some(taken.stamp));
            if !same {
                changed.push(file);
            }
        }
        self.copy(&changed)
    }

    /// All that were copied, for the final list.
    pub fn into_copied(self) -> impl Iterator<Item = CopiedFile> {
        self.taken.into_iter().map(|(name, taken)| CopiedFile {
            number: taken.number,
            name,
            kind: FileKind::Other,
            size: taken.size,
            space: None,
            elsewhere: None,
        })
    }

    fn forget(&mut self, name: &str) -> Result<()> {
        match self.taken.remove(name) {
            Some(taken) => self.shared.target.discard(taken.number),
            None => Ok(()),
        }
    }

    fn copy(&mut self, files: &[&OtherFile]) -> Result<Round> {
        for file in files {
            self.forget(&file.name)?;
        }
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || -> Result<()> {
            let mut memory = Memory::new(self.buffer)?;
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.shared.halt.check()?;
                if let Some(taken) = copy_one(self.shared, file, &mut memory)? {
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((file.name.clone(), taken));
                }
            }
            Ok(())
        };
        let threads = self.readers.min(files.len());
        if threads == 1 {
            work()?;
        } else {
            thread::scope(|scope| {
                let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
                let results = workers.into_iter().map(|worker| worker.join().unwrap_or(Err(Error::Halted)));
                // All are waited for; the first error is the one to tell.
                results.collect::<Vec<_>>().into_iter().collect::<Result<()>>()
            })?;
        }
        let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        let round = Round { files: done.len() as u64, bytes: done.iter().map(|(_, taken)| taken.size).sum() };
        self.taken.extend(done);
        Ok(round)
    }
}

/// Copies one file as it is; `None` if it is gone.
fn copy_one(shared: &Shared, file: &OtherFile, memory: &mut Memory) -> Result<Option<Taken>> {
    let Some(stamp) = stamp_of(file)? else { return Ok(None) };
    let settled = stamp.is_settled();
    let mode = if stamp.size < DIRECT_FROM { Mode::Buffered } else { shared.mode };
    let opened = match OpenedFile::read(&file.path, mode) {
        Ok(opened) => opened,
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let number = shared.number();
    let head = FileHead { number, name: file.name.clone(), kind: FileKind::Other, size: stamp.size };
    shared.target.begin(&head)?;
    let mut size = 0;
    loop {
        shared.halt.check()?;
        let got = read_full(&opened, memory, size)?;
        if got > 0 {
            shared.target.write(number, size, &memory[..got])?;
        }
        size += got as u64;
        shared.bytes.fetch_add(got as u64, Ordering::Relaxed);
        if got < memory.len() {
            break;
        }
    }
    // Another file under the name, or more in it, than what the stamp is of: then it does not count as settled.
    let after = opened.file.metadata().map(|stat| Stamp::of(&stat));
    let settled = settled && after.is_ok_and(|after| after == stamp);
    Ok(Some(Taken { number, stamp, settled, settles: file.settles, size }))
}

fn stamp_of(file: &OtherFile) -> Result<Option<Stamp>> {
    match std::fs::metadata(&file.path) {
        Ok(stat) => Ok(Some(Stamp::of(&stat))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("look at", file.path.display().to_string(), error)),
    }
}
