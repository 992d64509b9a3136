//! A family in a file: direct reads in flight ahead of the caller.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::ranges::{Ranges, up_to_a_beginning};
use super::{Supply, under_way};
use crate::error::{Error, Result};
use crate::io::DeviceAccount;
use crate::io::{Completion, Mode, OpenedFile, Payload, Queue};
use crate::pool::{Buffer, Piece, Pool};

/// A supply that reads a file, past the page cache where it can. It reads as many bytes as the file had when it was
/// opened: fewer are an error, more are not looked at.
pub struct FileSupply {
    device: String,
    file: Arc<OpenedFile>,
    /// The same file through the page cache: headers and indexes are small and not aligned.
    unaligned: OpenedFile,
    directory: String,
    size: u64,
    pool: Arc<Pool>,
    queue: Queue,
    /// Reads in order of their offsets, from the next to be given out.
    ahead: VecDeque<Ahead>,
    /// What is to be read.
    course: Ranges,
    /// Reads begin whole buffers from this offset.
    beginning: u64,
    /// How many reads were begun: what tells one from another.
    begun: u64,
    failed: bool,
}

struct Ahead {
    tag: u64,
    /// Read only for the alignment, and not given out.
    before: usize,
    /// With what is before.
    length: usize,
    /// The buffer, once it is filled.
    buffer: Option<Buffer>,
}

impl FileSupply {
    /// Opens `path`; `device` is the family's name in messages.
    ///
    /// # Errors
    /// A file that is missing, cannot be read, or is not a regular one.
    pub fn open(device: &str, path: &Path, pool: &Arc<Pool>, queue_depth: usize, mode: Mode) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|error| Error::io("open", device, error))?;
        if !metadata.is_file() {
            // Asked before it is opened: opening a named pipe would wait for its writer.
            return Err(Error::usage(
                device,
                "is not a regular file",
                "send a pipe to standard input and write `--from -`",
            ));
        }
        let opened = OpenedFile::read(path, mode)?;
        let unaligned = OpenedFile::read(path, Mode::Buffered)?;
        if opened.inode()? != unaligned.inode()? {
            return Err(Error::refused(
                device,
                "was replaced while it was opened",
                "try again when nothing writes to it",
            ));
        }
        let size = opened.file.metadata().map_err(|error| Error::io("look at", device, error))?.len();
        let queue = Queue::new(queue_depth, mode)?;
        Ok(Self {
            device: device.to_owned(),
            file: Arc::new(opened),
            unaligned,
            directory: path.parent().map_or_else(String::new, |parent| parent.display().to_string()),
            size,
            pool: Arc::clone(pool),
            ahead: VecDeque::with_capacity(queue.depth()),
            queue,
            course: Ranges::whole(size),
            beginning: 0,
            begun: 0,
            failed: false,
        })
    }

    /// Starts reads while there is room in the queue, a free buffer and something to read. With `wait`, waits for a
    /// buffer if it holds none: never while the caller is owed a piece, which may be the last buffer of all.
    fn read_ahead(&mut self, wait: bool) -> Result<()> {
        while let Some(range) = self.course.now().filter(|_| self.ahead.len() < self.queue.depth()) {
            let buffer = match self.pool.try_take() {
                Some(buffer) => buffer,
                None if wait && self.ahead.is_empty() => self.pool.take()?,
                None => return Ok(()),
            };
            let start = range.start - range.start % u64::from(self.file.alignment);
            let before = (range.start - start) as usize;
            let length = usize::try_from(range.end - start).unwrap_or(usize::MAX).min(buffer.len());
            let is_aligned = self.beginning.is_multiple_of(u64::from(self.file.alignment));
            let length = match length == buffer.len() && is_aligned {
                true => up_to_a_beginning(start, length, buffer.len(), self.beginning),
                false => length,
            };
            // A direct read is a multiple of the alignment and ends by itself at the end of the file.
            let asked = length.next_multiple_of(self.file.alignment as usize).min(buffer.len());
            let tag = self.begun;
            let queued = self.queue.read(tag, &self.file, start, buffer, asked);
            queued.map_err(|error| Error::io("queue a read of", &self.device, error))?;
            self.ahead.push_back(Ahead { tag, before, length, buffer: None });
            self.begun += 1;
            self.course.pass((length - before) as u64);
        }
        Ok(())
    }

    fn arrived(&mut self, completion: Completion) -> Result<()> {
        let got = completion
            .result
            .map_err(|error| Error::io(format!("read at byte {} of", completion.offset), &self.device, error))?;
        let Payload::Read(buffer) = completion.payload else { return Ok(()) };
        let Some(ahead) = self.ahead.iter_mut().find(|ahead| ahead.tag == completion.tag) else { return Ok(()) };
        if got < ahead.length {
            // Reads complete in any order: this need not be the first one beyond the new end.
            let seen = completion.offset + got as u64;
            let end = self.file.file.metadata().map_or(seen, |metadata| metadata.len().min(seen));
            return Err(shrunk(&self.device, end, self.size));
        }
        ahead.buffer = Some(buffer);
        Ok(())
    }

    fn next_checked(&mut self) -> Result<Option<Piece>> {
        self.read_ahead(true)?;
        while self.ahead.front().is_some_and(|first| first.buffer.is_none()) {
            let waited = self.queue.wait().map_err(|error| Error::io("wait for reads of", &self.device, error))?;
            let completion = waited.ok_or_else(|| Error::refused(&self.device, "a read was lost", ""))?;
            self.arrived(completion)?;
        }
        let Some(Ahead { before, length, buffer: Some(buffer), .. }) = self.ahead.pop_front() else { return Ok(None) };
        // The room of the one given out is used at once: the device does not wait for the next call.
        self.read_ahead(false)?;
        Ok(Some(Piece::new(buffer, before..length)))
    }
}

fn shrunk(device: &str, end: u64, size: u64) -> Error {
    Error::damaged(
        device,
        end,
        format!("the file ends here, but had {size} bytes when it was opened: it was cut during the read"),
    )
    .with_hint("run it again when no program writes to the file")
}

impl Supply for FileSupply {
    fn device(&self) -> &str {
        &self.device
    }

    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let room = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let mut got = 0;
        while got < room {
            match self.unaligned.file.read_at(&mut buffer[got..room], offset + got as u64) {
                Ok(0) => return Err(shrunk(&self.device, offset + got as u64, self.size)),
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(format!("read at byte {offset} of"), &self.device, error)),
            }
        }
        Ok(got)
    }

    fn next(&mut self) -> Result<Option<Piece>> {
        if self.failed {
            return Err(Error::refused(&self.device, "an earlier read of this family failed", ""));
        }
        let next = self.next_checked();
        self.failed = next.is_err();
        next
    }

    fn aim(&mut self, ranges: Vec<Range<u64>>) -> Result<()> {
        if !self.ahead.is_empty() {
            return Err(under_way(&self.device));
        }
        self.course = Ranges::of(ranges);
        Ok(())
    }

    fn begin_at(&mut self, offset: u64) {
        self.beginning = offset;
    }

    fn account(&self) -> DeviceAccount {
        // Counted are the family's bytes, not what an aligned read asks for beyond its end.
        let account = DeviceAccount::new(&self.directory, self.queue.statistics(), self.file.direct);
        DeviceAccount { bytes: account.bytes.min(self.size), ..account }
    }
}
