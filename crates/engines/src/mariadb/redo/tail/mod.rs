//! Follows the redo log of a running server: reads its final bytes, mini-transaction by mini-transaction.
//!
//! Bytes below the server's flushed LSN are final. The bytes above may be good mini-transactions followed by stale ones
//! that validate as well, because no checksum covers the LSN.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fullbore_core::io::{Memory, Mode, OpenedFile};
use fullbore_core::{Error, Result};

use super::framing::{self, LENGTH_MAX};
use super::header::{BadHead, Checkpoint, HEAD, HEADER, Header};
use super::lives::{FILE_RECORDS_FROM, Lives};
use super::record::Stop;
use super::ring::Ring;
use super::write::SEQUENCE;

/// Bytes read in one round, at most; more than a mini-transaction can have.
const ROUND: usize = 4 << 20;
/// Unit of direct reads; the server writes at least as much at once.
const BLOCK: u64 = 4096;
/// How often a torn head, or bytes that do not parse, are read again before that is an error.
const ATTEMPTS: u32 = 20;
/// How long to wait before that.
const PAUSE: Duration = Duration::from_millis(5);

const _: () = assert!(ROUND > 2 * LENGTH_MAX);

/// The server's LSNs, queried in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLsn {
    /// `Innodb_lsn_flushed`: everything below is final on disk.
    pub flushed: u64,
    /// `Innodb_lsn_current`: the server has not made anything above yet.
    pub current: u64,
}

/// The log of a running server, and how far it has been taken.
pub struct Tail {
    opened: OpenedFile,
    path: PathBuf,
    identity: (u64, u64, u64),
    header: Header,
    ring: Ring,
    checkpoint: Checkpoint,
    /// Bytes that the server writes at once.
    write_block: u64,
    /// All before was taken.
    lsn: u64,
    /// Where the bytes began that were last read: they may have been overwritten since the server was asked.
    unproved: u64,
    /// Bytes from `lsn` on, read and not yet a whole mini-transaction.
    pending: Vec<u8>,
    scratch: Memory,
    failures: u32,
    lives: Arc<Mutex<Lives>>,
}

impl Tail {
    /// Opens the log and reads its newest checkpoint: the copy of the log begins there.
    ///
    /// # Errors
    /// The format is unknown, or the head stays damaged.
    pub fn open(path: &Path, mode: Mode) -> Result<Self> {
        let opened = OpenedFile::read(path, mode)?;
        let identity = identity(path)?;
        let mut scratch = Memory::new(ROUND + 2 * BLOCK as usize)?;
        let (header, checkpoint) = read_head(&opened, &mut scratch, path)?;
        let ring = Ring::new(header.first_lsn, identity.2);
        let ring = ring.ok_or_else(|| refused(path, format!("it has an impossible size: {} bytes", identity.2)))?;
        Ok(Self {
            opened,
            path: path.to_owned(),
            identity,
            header,
            ring,
            checkpoint,
            write_block: BLOCK,
            lsn: checkpoint.lsn,
            unproved: checkpoint.lsn,
            pending: Vec::with_capacity(ROUND),
            scratch,
            failures: 0,
            lives: Arc::default(),
        })
    }

    /// The unit of the server's writes (`innodb_log_write_ahead_size`), if it is more than 4096 bytes.
    pub fn set_write_block(&mut self, bytes: u64) {
        self.write_block = bytes.clamp(BLOCK, 1 << 20);
    }

    /// The log's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The checkpoint that the copy begins with.
    pub fn checkpoint(&self) -> Checkpoint {
        self.checkpoint
    }

    /// The log's ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The file records so far, shared with other threads.
    pub fn lives(&self) -> Arc<Mutex<Lives>> {
        Arc::clone(&self.lives)
    }

    /// Bytes of the log's file.
    pub fn file_size(&self) -> u64 {
        self.identity.2
    }

    /// All before this LSN was taken.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Reads new final bytes, at most some MiB, and passes them to `emit` with the LSN of the first byte: whole
    /// mini-transactions, already with the end bytes of the restored log. True if there may be more at once.
    ///
    /// # Errors
    /// The server overwrote the log before it was read, or has made another log, or the bytes are invalid.
    pub fn advance(&mut self, server: ServerLsn, emit: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<bool> {
        let limit = self.ring.round_down(server.flushed, self.write_block);
        self.take(server, limit, emit)
    }

    /// Takes everything up to `target`, to which the server has flushed while commits were blocked; true when that is
    /// done.
    pub fn finish(
        &mut self,
        server: ServerLsn,
        target: u64,
        emit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        let limit = target.min(server.flushed);
        while self.take(server, limit, emit)? {}
        // A mini-transaction that reaches beyond the target changed no page that could be on disk already.
        Ok(self.lsn + self.pending.len() as u64 >= target)
    }

    /// Proves by a later LSN of the server that the last read bytes were not overwritten.
    pub fn prove(&self, server: ServerLsn) -> Result<()> {
        if server.current > self.unproved.saturating_add(self.ring.capacity()) {
            return Err(self.overrun(server.current));
        }
        Ok(())
    }

    fn take(&mut self, server: ServerLsn, limit: u64, emit: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<bool> {
        self.prove(server)?;
        if identity(&self.path)? != self.identity {
            return Err(self.replaced());
        }
        self.unproved = self.lsn;
        let read = self.read(limit)?;
        match self.parse() {
            (taken, None) => {
                self.give(taken, emit)?;
                self.failures = 0;
                Ok(read && self.lsn + (self.pending.len() as u64) < limit)
            }
            (taken, Some(why)) => {
                self.give(taken, emit)?;
                // Read again: the server may have been writing the invalid block.
                self.pending.clear();
                self.failures = if taken > 0 { 1 } else { self.failures + 1 };
                self.explain(why, server)?;
                std::thread::sleep(PAUSE);
                Ok(true)
            }
        }
    }

    /// Reads the bytes below `limit` after the pending bytes; false if there were none.
    fn read(&mut self, limit: u64) -> Result<bool> {
        let from = self.lsn + self.pending.len() as u64;
        let wanted = limit.saturating_sub(from).min((ROUND - self.pending.len()) as u64);
        let length = self.ring.contiguous(from, wanted);
        if wanted == 0 {
            return Ok(false);
        }
        let offset = self.ring.offset(from);
        let start = offset - offset % BLOCK;
        let end = (offset + length).next_multiple_of(BLOCK);
        let buffer = &mut self.scratch[..(end - start) as usize];
        let skipped = (offset - start) as usize;
        let got = read_full(&self.opened, buffer, start)?;
        if got < skipped + length as usize {
            return Err(self.replaced()); // It has become shorter.
        }
        self.pending.extend_from_slice(&self.scratch[skipped..skipped + length as usize]);
        Ok(true)
    }

    /// How many of the pending bytes are whole mini-transactions, and why the next bytes are not a mini-transaction.
    fn parse(&mut self) -> (usize, Option<&'static str>) {
        let mut at = 0;
        loop {
            let lsn = self.lsn + at as u64;
            match framing::parse(&self.pending[at..], lsn, &self.ring, self.header.encrypted) {
                Ok(found) => {
                    let records = &self.pending[at..at + found.records];
                    // Most records are about pages and need no lock.
                    if records[0] >= FILE_RECORDS_FROM {
                        let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
                        lives.note(records, lsn, self.header.encrypted);
                    }
                    self.pending[at + found.records] = SEQUENCE;
                    at += found.length;
                }
                Err(Stop::Short) if self.pending.len() - at > LENGTH_MAX => return (at, Some("it never ends")),
                Err(Stop::Short) => return (at, None),
                Err(Stop::Bad(why)) => return (at, Some(why)),
            }
        }
    }

    fn give(&mut self, taken: usize, emit: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        if taken > 0 {
            emit(self.lsn, &self.pending[..taken])?;
            self.pending.drain(..taken);
            self.lsn += taken as u64;
        }
        Ok(())
    }

    /// An error if the reason for invalid bytes below the limit is clear, or if they stay invalid for too long.
    fn explain(&mut self, why: &str, server: ServerLsn) -> Result<()> {
        let (header, checkpoint) = read_head(&self.opened, &mut self.scratch, &self.path)?;
        if header.first_lsn != self.header.first_lsn {
            return Err(self.replaced());
        }
        if self.failures < ATTEMPTS {
            return Ok(());
        }
        if checkpoint.lsn > self.lsn {
            return Err(self.overrun(server.current));
        }
        let lsn = self.lsn;
        Err(Error::refused(
            self.path.display().to_string(),
            format!(
                "the redo log is invalid at LSN {lsn}, although the server has flushed it up to {}: {why}",
                server.flushed
            ),
            "start the backup again; if it fails again, fullbore does not know this server's redo log: please report \
             it",
        ))
    }

    fn overrun(&self, current: u64) -> Error {
        let mib = |bytes: u64| bytes >> 20;
        Error::refused(
            self.path.display().to_string(),
            format!(
                "the server has overwritten redo log that was not read yet: the copy was at LSN {}, the server is at \
                 {current}, and the log holds {} MiB",
                self.unproved,
                mib(self.ring.capacity())
            ),
            format!(
                "raise innodb_log_file_size (now {} MiB; SET GLOBAL innodb_log_file_size = … in 10.9 and later), or \
                 run the backup when fewer changes are written",
                mib(self.identity.2)
            ),
        )
    }

    fn replaced(&self) -> Error {
        Error::refused(
            self.path.display().to_string(),
            "the server has made another redo log during the backup (SET GLOBAL innodb_log_file_size, or a restart)",
            "start the backup again",
        )
    }
}

/// Device, inode and size: another file under the same name is another log.
fn identity(path: &Path) -> Result<(u64, u64, u64)> {
    let stat = fs::metadata(path).map_err(|error| Error::io("look at", path.display().to_string(), error))?;
    Ok((stat.dev(), stat.ino(), stat.len()))
}

/// Header and newest checkpoint; it reads a head again that is being written.
fn read_head(opened: &OpenedFile, scratch: &mut Memory, path: &Path) -> Result<(Header, Checkpoint)> {
    let mut last = BadHead::Short;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(PAUSE);
        }
        let got = read_full(opened, &mut scratch[..HEAD], 0)?;
        let head = &scratch[..got];
        let parsed = Header::parse(&head[..got.min(HEADER)]);
        match parsed.and_then(|header| Checkpoint::newest(head, header.first_lsn).map(|found| (header, found))) {
            Ok(found) => return Ok(found),
            Err(bad @ (BadHead::Before10_8 | BadHead::Unknown(_))) => return Err(refused(path, bad.to_string())),
            Err(bad) => last = bad,
        }
    }
    Err(refused(path, last.to_string()))
}

fn refused(path: &Path, why: String) -> Error {
    let hint = "fullbore copies the redo logs of MariaDB 10.8 and later; for an older server use mariadb-backup or a \
                logical backup";
    Error::refused(path.display().to_string(), why, hint)
}

/// Reads until `buffer` is full or the file ends.
pub(crate) fn read_full(opened: &OpenedFile, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match opened.file.read_at(&mut buffer[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Error::io(
                    format!("read at offset {offset} from"),
                    opened.path.display().to_string(),
                    error,
                ));
            }
        }
        // A read that ends off the alignment has reached the end of the file.
        if opened.direct && !got.is_multiple_of(opened.alignment as usize) {
            break;
        }
    }
    Ok(got)
}

#[cfg(test)]
pub(crate) mod tests;
