//! The part of a snapshot that is in the write-ahead log: pages whose newest version was not, or may not have been,
//! copied into the database file when the snapshot was taken.
//!
//! A read transaction on a mark above 0 pins the log. A transaction that began when the log was wholly copied (slot 0)
//! pins the database file instead, and a writer may restart the log meanwhile. Then the log's salts change before any
//! frame does, so they are checked after each batch of reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fullbore_core::{Error, Result};

use super::connection::read_index;
use super::frame_map::{FrameMap, MAP_LIMIT};
use super::open_files::RawFile;
use super::wal::{FRAME_HEADER_SIZE, FrameHeader, LOG_HEADER_SIZE, MapError, map_frames, page_offset};
use super::wal_index::IndexHeader;

/// The log of a snapshot, up to its mark.
pub(super) struct Overlay {
    log: Arc<RawFile>,
    index: Arc<RawFile>,
    header: [u8; LOG_HEADER_SIZE],
    salts: [u8; 8],
    page_size: u32,
    map: FrameMap,
    overtaken: AtomicBool,
}

/// How reading from the log went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Every page asked for is in the buffer.
    Done,
    /// The log was restarted: the database file alone is the snapshot, and the buffer has to be read again.
    Overtaken,
}

impl Overlay {
    /// Reads the log up to `mark`. `None` if the log was restarted meanwhile: the database file alone is the snapshot.
    pub fn new(log: Arc<RawFile>, index: Arc<RawFile>, mark: &IndexHeader) -> Result<Option<Self>> {
        // Before the frames: a restart that begins while they are read must show as a change of this header.
        let mut header = [0; LOG_HEADER_SIZE];
        log.read_at(0, &mut header).map_err(|error| log.read_error(0, LOG_HEADER_SIZE, error))?;
        match map_frames(mark, |offset, buffer| log.read_at(offset, buffer)) {
            Ok((_, map)) => {
                let (salts, page_size) = (mark.salts, mark.page_size);
                Ok(Some(Self { log, index, header, salts, page_size, map, overtaken: AtomicBool::new(false) }))
            }
            Err(MapError::Io(error)) => Err(log.read_error(0, 0, error)),
            Err(MapError::TooMany(many)) => Err(Error::refused(
                log.name(),
                format!(
                    "it has more than {} different pages, the most that fit into {} MiB",
                    many.pages,
                    MAP_LIMIT >> 20
                ),
                "checkpoint the database first: PRAGMA wal_checkpoint(TRUNCATE)",
            )),
            Err(MapError::Broken(why)) if salts_changed(&index, mark.salts)? => {
                drop(why); // The restart explains it.
                Ok(None)
            }
            Err(MapError::Broken(why)) => Err(damaged(&log, &why)),
        }
    }

    /// How many pages the log holds for the snapshot.
    pub fn pages(&self) -> u64 {
        self.map.len() as u64
    }

    /// Whether the log is still part of the snapshot.
    pub fn is_current(&self) -> bool {
        !self.overtaken.load(Ordering::Acquire)
    }

    /// The pages of `first` to `last` that are in the log, with their frames.
    pub fn frames(&self, first: u32, last: u32) -> &[(u32, u32)] {
        self.map.range(first, last)
    }

    /// True when a frame up to the mark holds page `number` as `page`.
    pub fn has_had(&self, number: u32, page: &[u8]) -> Result<bool> {
        let Some(&(_, newest)) = self.frames(number, number).first().filter(|_| self.is_current()) else {
            return Ok(false);
        };
        let mut head = [0; FRAME_HEADER_SIZE];
        let mut held = vec![0; self.page_size as usize];
        // Newest first: a checkpoint most likely copies this frame.
        for frame in (1..=newest).rev() {
            let at = page_offset(frame, self.page_size);
            let start = at - FRAME_HEADER_SIZE as u64;
            self.log.read_at(start, &mut head).map_err(|error| self.log.read_error(start, head.len(), error))?;
            if FrameHeader::parse(&head).is_ok_and(|head| head.page == number) {
                self.log.read_at(at, &mut held).map_err(|error| self.log.read_error(at, held.len(), error))?;
                if held == page {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Puts the pages of `frames` into `buffer`, which begins with page `first`.
    pub fn read(&self, frames: &[(u32, u32)], first: u32, buffer: &mut [u8]) -> Result<Read> {
        let size = self.page_size as usize;
        let mut short = None;
        for &(page, frame) in frames {
            let start = (page - first) as usize * size;
            let offset = page_offset(frame, self.page_size);
            let got = self.log.read_at(offset, &mut buffer[start..start + size]);
            if got.map_err(|error| self.log.read_error(offset, size, error))? < size {
                short = Some(frame);
                break;
            }
        }
        if self.was_restarted()? {
            self.overtaken.store(true, Ordering::Release);
            return Ok(Read::Overtaken);
        }
        match short {
            None => Ok(Read::Done),
            Some(frame) => Err(damaged(&self.log, &format!("it has become shorter and lost frame {frame}"))),
        }
    }

    /// True if the header changed or is missing, and the wal-index confirms the restart.
    fn was_restarted(&self) -> Result<bool> {
        let mut now = [0; LOG_HEADER_SIZE];
        let got = self.log.read_at(0, &mut now).map_err(|error| self.log.read_error(0, LOG_HEADER_SIZE, error))?;
        if got == LOG_HEADER_SIZE && now == self.header {
            return Ok(false);
        }
        if salts_changed(&self.index, self.salts)? {
            return Ok(true);
        }
        Err(damaged(&self.log, "its header changed, but the wal-index did not"))
    }
}

/// True when the wal-index belongs to another run of the log than `salts`.
pub(super) fn salts_changed(index: &RawFile, salts: [u8; 8]) -> Result<bool> {
    for _ in 0..1000 {
        if let Some(header) = read_index(index)? {
            return Ok(header.salts != salts);
        }
        std::thread::sleep(std::time::Duration::from_millis(1)); // A writer is changing it.
    }
    Err(damaged(index, "it had no valid header for a second"))
}

fn damaged(file: &RawFile, why: &str) -> Error {
    Error::refused(
        file.name(),
        format!("the write-ahead log contradicts the wal-index: {why}"),
        "check the database with PRAGMA integrity_check; was a side file removed, truncated or replaced?",
    )
}
