//! One log set: reads it from the log and describes it for the manifest.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fullbore_core::error::counted;
use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::{Error, Result};

use super::super::connection::{Patience, QuietConnection, schema_warning};
use super::super::open_files::{Claim, RawFile, beside, io_error};
use super::super::position::LogPosition;
use super::super::probe::{self, locate};
use super::super::source::{is_wal, open_log};
use super::end::{End, FrameRange, LogEnd, now, show_time};
use super::engine::set_end;
use super::group::Group;
use super::join::join_first;
use super::stretch::Stretch;
use crate::engine::{LogSession, SetEnd};
use crate::{Facts, Options, Session};

/// The stream of groups and the stream of frames.
pub const STREAMS: [(u32, &str); 2] = [(1, "groups"), (2, "frames")];
const UNIT: u32 = 4096;
/// How often to try for a transaction that begins exactly at a mark.
pub(super) const EXACT_ATTEMPTS: u32 = 50;

/// A database in WAL mode that this process has open. All connections to it must be dropped before it.
#[derive(Clone)]
pub(super) struct Database {
    pub path: PathBuf,
    pub log: Arc<RawFile>,
    pub index: Arc<RawFile>,
    pub raw: Arc<RawFile>,
    pub warnings: Vec<String>,
    /// Last: its descriptors are closed after every connection.
    pub claim: Arc<Claim>,
}

impl Database {
    /// Opens it, with a first connection inside a read transaction.
    pub fn open(path: &Path, options: &Options, patience: &Patience) -> Result<(QuietConnection, Self)> {
        let path = locate(path)?;
        let claim = Claim::take_or_join(&path)?;
        let mut warnings = probe::look(&claim)?;
        let connection = QuietConnection::open(&path)?;
        connection.begin_despite(options.continue_after_error, &path, patience)?;
        warnings.extend(connection.unreadable_schema().map(|why| schema_warning(&path, &why)));
        if !is_wal(&connection, &path)? {
            return Err(Error::refused(
                path.display().to_string(),
                "it is not in WAL mode, so it has no log to back up",
                "switch it (PRAGMA journal_mode = WAL), take a full, and then log backups; or take differentials",
            ));
        }
        let (log, index) = open_log(&claim)?;
        let raw = claim.open_database(fs::OpenOptions::new().read(true))?;
        Ok((connection, Self { path, log, index, raw, warnings, claim }))
    }

    /// An error if the name of the database or of its log now leads to another file.
    pub fn check_files(&self) -> Result<()> {
        for (name, open) in [(self.path.clone(), &self.raw), (beside(&self.path, "-wal"), &self.log)] {
            let there = fs::metadata(&name).map_err(|e| io_error("look at", &name, e))?;
            let ours = open.metadata()?;
            if (there.dev(), there.ino()) != (ours.dev(), ours.ino()) {
                return Err(Error::refused(
                    name.display().to_string(),
                    "another file has taken its name: this file does not have the commits of the backed-up database",
                    "find the program that replaces it, then take a new full",
                ));
            }
        }
        Ok(())
    }
}

/// The frames from one position to another: the session of one log set.
pub struct LogBackup {
    /// A read transaction that keeps the frames in place; `None` if the follower holds one.
    hold: Mutex<Option<QuietConnection>>,
    stretches: Vec<Stretch>,
    groups: Vec<u8>,
    streams: [Stream; 2],
    cursor: Mutex<(usize, u64)>,
    first: End,
    last: LogEnd,
    end: SetEnd,
    database: Database,
}

/// The frames to read, and the end that they continue.
pub(super) struct Content {
    pub stretches: Vec<Stretch>,
    pub first: End,
    /// All commits until this time are in it.
    pub until: i64,
}

impl LogBackup {
    /// Opens the database at `path` and joins its log to the first of `bases` that it continues. Returns the index of
    /// this base and the session, or `None` if nothing was committed since.
    ///
    /// # Errors
    /// The log continues none of them; the error has the reason for the first.
    pub fn open(path: &Path, bases: &[End], options: &Options) -> Result<(usize, Option<Self>)> {
        let patience = Patience::new(options.lock_timeout, options.halt.clone());
        let (connection, database) = Database::open(path, options, &patience)?;
        let before = now();
        let joined = join_first(bases, &connection, &database, &patience)?;
        let content = Content { stretches: joined.stretches, first: joined.base, until: before };
        Ok((joined.at, Self::new(content, Some(connection), database)?))
    }

    /// A session on `content`; `None` if it is empty.
    pub(super) fn new(content: Content, hold: Option<QuietConnection>, database: Database) -> Result<Option<Self>> {
        let Content { stretches, first, until } = content;
        let all: Vec<Group> = stretches.iter().flat_map(|stretch| stretch.groups.iter().copied()).collect();
        let Some(end) = all.last().copied() else { return Ok(None) };
        database.check_files()?;
        // With synchronous = NORMAL, a power failure could otherwise undo commits that are in the backup.
        database.log.file().sync_data().map_err(|e| Error::io("sync", database.log.name(), e))?;
        let frames = all.iter().map(|group| u64::from(group.frames())).sum();
        let log = LogPosition::new(end.salts, end.last_frame, Some(end.after), 0);
        let last = LogEnd {
            end: End {
                page_size: first.page_size,
                pages: end.pages,
                change_counter: None,
                file: None,
                log: Some(log),
                at: show_time(end.time),
            },
            until: show_time(until.max(end.time)),
            groups: all.len() as u64,
            frames,
            runs: runs(&all),
        };
        let groups: Vec<u8> = all.iter().flat_map(Group::encode).collect();
        let bytes = stretches.iter().map(Stretch::bytes).sum();
        let stream = |(id, name): (u32, &str), size| Stream { id, name: name.into(), unit: UNIT, size };
        let streams = [stream(STREAMS[0], groups.len() as u64), stream(STREAMS[1], bytes)];
        let (hold, cursor) = (Mutex::new(hold), Mutex::default());
        let end = set_end(&last.end, as_json(&last, &database)?);
        Ok(Some(Self { hold, stretches, groups, streams, cursor, first, last, end, database }))
    }

    /// Copies bytes of a stream; gives how many there were.
    fn fill(&self, stream: usize, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if stream == 0 {
            let rest = self.groups.get(offset as usize..).unwrap_or_default();
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            return Ok(length);
        }
        let (mut start, mut done) = (0, 0);
        for stretch in &self.stretches {
            let (from, end) = (offset + done as u64, start + stretch.bytes());
            if from < end && done < buffer.len() {
                let want = ((end - from) as usize).min(buffer.len() - done);
                let got = stretch.read(from - start, &mut buffer[done..done + want]);
                let got = got.map_err(|error| self.database.log.read_error(from, want, error))?;
                if got < want {
                    return Err(self.damaged("it became shorter during the read"));
                }
                done += got;
            }
            start = end;
        }
        Ok(done)
    }

    fn damaged(&self, why: &str) -> Error {
        Error::refused(
            self.database.log.name(),
            format!("the write-ahead log changed during the backup: {why}"),
            "try again, or run `fullbore log follow`, which prevents a restart of the log; if the log was removed, \
             truncated or replaced, take a new full",
        )
    }

    /// Checks that the frames did not change during the read: in each log the last frame is still the same.
    fn still_stands(&self) -> Result<()> {
        self.database.check_files()?;
        for stretch in &self.stretches {
            if !stretch.still_stands().map_err(|error| self.database.log.read_error(0, 0, error))? {
                return Err(self.damaged("a writer restarted it, or a frame in it has changed"));
            }
        }
        Ok(())
    }
}

fn runs(groups: &[Group]) -> Vec<FrameRange> {
    let mut runs: Vec<FrameRange> = Vec::new();
    for group in groups {
        let LogPosition { salt_1, salt_2, .. } = LogPosition::new(group.salts, 0, None, 0);
        match runs.last_mut().filter(|run| (run.salt_1, run.salt_2) == (salt_1, salt_2)) {
            Some(run) => run.last_frame = group.last_frame,
            None => {
                runs.push(FrameRange { salt_1, salt_2, first_frame: group.first_frame, last_frame: group.last_frame })
            }
        }
    }
    runs
}

impl Source for LogBackup {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn reader(&self, _index: usize, _count: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(FrameReader { log: self }))
    }

    fn is_free(&self, _stream: u32, _offset: u64) -> bool {
        false
    }

    fn sample(&self, stream: u32, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.fill(usize::from(stream == STREAMS[1].0), offset, buffer)
    }

    fn check(&self) -> Result<()> {
        self.database.check_files()
    }
}

impl Session for LogBackup {
    fn engine(&self) -> &'static str {
        "sqlite"
    }

    fn source(&self) -> &dyn Source {
        self
    }

    fn first_position(&self) -> Result<serde_json::Value> {
        as_json(&self.first, &self.database)
    }

    fn position(&self) -> Result<serde_json::Value> {
        self.still_stands()?;
        as_json(&self.last, &self.database)
    }

    fn facts(&self) -> Facts {
        let _held = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        Facts {
            warnings: self.database.warnings.clone(),
            writers_blocked: Duration::ZERO,
            free_bytes: 0,
            library: format!("SQLite {}", rusqlite::version()),
            direct: false,
        }
    }

    fn database_at(&self) -> Result<PathBuf, String> {
        Ok(self.database.path.clone())
    }
}

impl LogSession for LogBackup {
    fn end(&self) -> Result<SetEnd> {
        Ok(self.end.clone())
    }

    fn amount(&self) -> String {
        counted(self.last.frames, "frame")
    }
}

fn as_json(position: &impl serde::Serialize, database: &Database) -> Result<serde_json::Value> {
    let failed = |error| {
        Error::refused(database.path.display().to_string(), format!("its position cannot be written: {error}"), "")
    };
    serde_json::to_value(position).map_err(failed)
}

/// Takes windows from the shared cursor, stream after stream.
struct FrameReader<'a> {
    log: &'a LogBackup,
}

impl Reader for FrameReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let window = buffer.len().min(1 << 30) / UNIT as usize * UNIT as usize;
        if window == 0 {
            let why = format!("{} bytes cannot hold one unit of {UNIT} bytes", buffer.len());
            return Err(Error::usage("--max-transfer-size", why, "write --max-transfer-size 64KiB or more"));
        }
        let (at, offset, length) = {
            let mut cursor = self.log.cursor.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(stream) = self.log.streams.get(cursor.0) else { return Ok(None) };
            let (at, offset) = *cursor;
            let length = (window as u64).min(stream.size - offset);
            *cursor = if offset + length == stream.size { (at + 1, 0) } else { (at, offset + length) };
            (at, offset, length as usize)
        };
        if self.log.fill(at, offset, &mut buffer[..length])? < length {
            return Err(self.log.damaged("it became shorter during the read"));
        }
        Ok(Some(Extent { stream: STREAMS[at].0, layer: 0, offset, length: length as u32 }))
    }
}
