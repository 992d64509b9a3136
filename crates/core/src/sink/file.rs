//! A family in a file: direct writes in flight under a working name, and the final name at the end.

use std::path::Path;
use std::sync::Arc;

use super::commit::{Commit, Step, lock_new};
use super::{DeviceAccount, Options, Sink, out_of_order};
use crate::error::{Error, Result};
use crate::io::{Completion, OpenedFile, Queue, sync_directory};
use crate::pool::Piece;

/// A sink that writes a file, past the page cache where it can.
pub struct FileSink {
    device: String,
    file: Option<Arc<OpenedFile>>,
    queue: Queue,
    commit: Commit,
    length: u64,
    direct: bool,
    preallocated: bool,
    synced: bool,
    published: bool,
    failed: bool,
}

impl FileSink {
    /// Creates `PATH.new-SETID`, readable by its owner alone; `device` is the family's name in messages.
    ///
    /// # Errors
    /// Before anything is written: a missing directory (without `mkdir`), one that cannot be written to, a directory
    /// or a special file under the name, an existing file without `init`, a file another backup holds, no room.
    pub fn create(device: &str, path: &Path, mut options: Options) -> Result<Self> {
        let queue = Queue::new(options.queue_depth, options.mode)?;
        let mut commit = Commit::prepare(path, &mut options)?;
        let made = create_locked(&mut commit, &options);
        let file = made.inspect_err(|_| commit.abandon())?;
        let direct = file.direct;
        Ok(Self {
            device: device.to_owned(),
            file: Some(Arc::new(file)),
            queue,
            commit,
            length: 0,
            direct,
            preallocated: options.expected_size.is_some(),
            synced: false,
            published: false,
            failed: false,
        })
    }

    fn check(&self) -> Result<()> {
        if self.failed || self.commit.is_dead() {
            return Err(Error::refused(&self.device, "an earlier operation on this family failed", ""));
        }
        Ok(())
    }

    /// Remembers that the family is lost.
    fn noted<T>(&mut self, result: Result<T>) -> Result<T> {
        self.failed |= result.is_err();
        result
    }

    fn completed(&self, completion: Completion) -> Result<()> {
        completion
            .result
            .map(drop)
            .map_err(|error| Error::io(format!("write at byte {} of", completion.offset), &self.device, error))
    }

    fn wait_until(&mut self, in_flight: usize) -> Result<()> {
        while self.queue.in_flight() > in_flight {
            let waited = self.queue.wait().map_err(|error| Error::io("wait for writes to", &self.device, error))?;
            waited.map_or(Ok(()), |completion| self.completed(completion))?;
        }
        while let Some(completion) =
            self.queue.poll().map_err(|error| Error::io("wait for writes to", &self.device, error))?
        {
            self.completed(completion)?;
        }
        Ok(())
    }

    fn write_checked(&mut self, offset: u64, piece: Piece) -> Result<()> {
        if offset != self.length || self.synced {
            let what =
                format!("a write at {offset} came after one that ended at {} (synced: {})", self.length, self.synced);
            return Err(out_of_order(&self.device, what));
        }
        if !self.file()?.is_aligned(offset, &piece) {
            // The end of the family. The bytes before it must be on the device first: the page with the border is read.
            self.wait_until(0)?;
            let file = self.file.as_mut().and_then(Arc::get_mut);
            file.ok_or_else(|| out_of_order(&self.device, "the file is still in use"))?.leave_direct()?;
        }
        self.wait_until(self.queue.depth() - 1)?;
        let length = piece.len() as u64;
        let file = Arc::clone(self.file()?);
        self.queue
            .write(offset, &file, offset, piece)
            .map_err(|error| Error::io("queue a write to", &self.device, error))?;
        self.length += length;
        self.wait_until(self.queue.depth())
    }

    fn file(&self) -> Result<&Arc<OpenedFile>> {
        self.file.as_ref().ok_or_else(|| out_of_order(&self.device, "used after its end"))
    }

    fn secure_checked(&mut self) -> Result<()> {
        self.wait_until(0)?;
        self.file()?.sync()?;
        sync_directory(self.commit.directory())
    }

    fn sync_checked(&mut self) -> Result<()> {
        self.wait_until(0)?;
        let file = Arc::clone(self.file()?);
        self.commit.step(Step::Trim)?;
        if self.preallocated {
            file.trim(self.length)?;
        }
        self.commit.step(Step::SyncFile)?;
        file.sync()?;
        self.commit.sync_name()?;
        self.synced = true;
        Ok(())
    }
}

fn create_locked(commit: &mut Commit, options: &Options) -> Result<OpenedFile> {
    for _ in 0..10 {
        let file = OpenedFile::create_new(&commit.new, options.mode)?;
        let inode = file.inode()?;
        commit.inode = Some(inode);
        if lock_new(&file.file, &commit.new, inode)? {
            file.preallocate(options.expected_size.unwrap_or(0))?;
            return Ok(file);
        }
    }
    Err(Error::refused(commit.new.display().to_string(), "another process removes this file as soon as it is made", ""))
}

impl Sink for FileSink {
    fn device(&self) -> &str {
        &self.device
    }

    fn write(&mut self, offset: u64, piece: Piece) -> Result<()> {
        self.check()?;
        let written = self.write_checked(offset, piece);
        self.noted(written)
    }

    fn settle(&mut self, in_flight: usize) -> Result<()> {
        self.check()?;
        let settled = self.wait_until(in_flight);
        self.noted(settled)
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    fn secure(&mut self) -> Result<()> {
        self.check()?;
        let secured = self.secure_checked();
        self.noted(secured)
    }

    fn sync(&mut self) -> Result<()> {
        self.check()?;
        let synced = self.sync_checked();
        self.noted(synced)
    }

    fn publish(&mut self) -> Result<()> {
        self.check()?;
        if !self.synced {
            return Err(out_of_order(&self.device, "published before it was synced"));
        }
        let published = self.commit.publish();
        self.published = published.is_ok();
        self.noted(published)
    }

    fn retire(&mut self) -> Result<()> {
        self.check()?;
        self.commit.retire()
    }

    fn abandon(&mut self) {
        self.failed = true;
        while matches!(self.queue.wait(), Ok(Some(_))) {}
        if !self.commit.is_dead() {
            self.commit.abandon();
        }
        self.file = None;
    }

    fn account(&self) -> DeviceAccount {
        DeviceAccount::new(self.commit.directory().display().to_string(), self.queue.statistics(), self.direct)
    }

    #[cfg(any(test, feature = "testkit"))]
    fn die(&mut self) {
        self.commit.die();
        while matches!(self.queue.wait(), Ok(Some(_))) {}
        self.file = None;
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if !self.published {
            self.abandon();
        }
    }
}
