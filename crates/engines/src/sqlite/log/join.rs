//! Proves that no commit is missing between the end of a predecessor and the current log.

use std::sync::Arc;

use fullbore_core::{Error, Result};

use super::super::connection::{Patience, QuietConnection};
use super::super::open_files::RawFile;
use super::super::overlay::salts_changed;
use super::super::position::{FileState, LogPosition};
use super::super::wal::{LOG_HEADER_SIZE, LogHeader};
use super::super::wal_index::IndexHeader;
use super::end::{End, now};
use super::session::{Database, EXACT_ATTEMPTS};
use super::stretch::{Broken, FrameSource, Kind, Sighting, Stretch, rest};

/// A running checksum.
type Sums = (u32, u32);

/// Most bytes of frames to keep in memory because nothing holds them in the log.
const MEMORY_LIMIT: u64 = 64 << 20;
/// How often to join again when a writer restarts the log meanwhile.
const RESTARTS: u32 = 20;

/// The log joined to a base.
pub(super) struct Joined {
    /// Which of the bases it continues.
    pub at: usize,
    /// This base.
    pub base: End,
    /// The frames between this base and the mark; empty if nothing was committed.
    pub stretches: Vec<Stretch>,
    /// Where the log ended.
    pub mark: IndexHeader,
    /// When, in microseconds since 1970; not before the time of the base.
    pub time: i64,
}

/// Begins a read transaction and joins the log before it to the first of `bases` that it continues.
///
/// A transaction that begins when every frame is in the database file does not hold the log. A writer may then restart
/// the log while its frames are read. That shows in the wal-index, and the log is joined again from a new mark. Frames
/// that nothing holds are copied into memory if they fit.
///
/// # Errors
/// The log continues none of the bases; the error has the reason for the first.
pub(super) fn join_first(
    bases: &[End],
    connection: &QuietConnection,
    database: &Database,
    patience: &Patience,
) -> Result<Joined> {
    for _ in 0..RESTARTS {
        let mark = connection.begin_at_mark(&database.path, &database.index, EXACT_ATTEMPTS, patience)?;
        let joined = join_at(bases, &mark.header, mark.holds_log, database);
        if mark.holds_log || !salts_changed(&database.index, mark.header.salts)? {
            return joined;
        }
    }
    Err(Error::refused(
        database.log.name(),
        format!("writers restarted the log {RESTARTS} times while its frames were read"),
        "run `fullbore log follow`, which prevents a restart of the log between sets",
    ))
}

fn join_at(bases: &[End], mark: &IndexHeader, holds_log: bool, database: &Database) -> Result<Joined> {
    let mut refusal = None;
    for (at, base) in bases.iter().enumerate() {
        let time = now().max(base.time().unwrap_or(i64::MIN));
        let (log, raw) = (&database.log, &*database.raw);
        let joining = Joining { log, raw, mark, base, held: false, sightings: &[], now: time };
        match joining.stretches() {
            Ok(stretches) => {
                let copied = |stretch: Stretch| if holds_log { Ok(stretch) } else { stretch.into_memory(MEMORY_LIMIT) };
                let stretches = stretches.into_iter().map(copied).collect::<std::io::Result<_>>();
                let stretches = stretches.map_err(|error| log.read_error(0, 0, error))?;
                return Ok(Joined { at, base: base.clone(), stretches, mark: mark.clone(), time });
            }
            Err(Apart::Failed(error)) => return Err(error),
            Err(apart) => {
                refusal.get_or_insert(apart.into_error(log, base, mark));
            }
        }
    }
    Err(refusal.unwrap_or_else(|| Error::usage("--base", "no base was given", "name the families of the base")))
}

/// The predecessor, the log that is to continue it, and what is known about the time in between.
pub(super) struct Joining<'a> {
    /// The current log.
    pub log: &'a Arc<RawFile>,
    /// The database file.
    pub raw: &'a RawFile,
    /// The end of its commits; a read transaction keeps everything up to there.
    pub mark: &'a IndexHeader,
    /// Where the predecessor ended.
    pub base: &'a End,
    /// True when a read transaction has been held since then.
    pub held: bool,
    /// Sightings in the meantime.
    pub sightings: &'a [Sighting],
    /// The time for commits without a sighting.
    pub now: i64,
}

/// Why two positions do not join.
pub(super) enum Apart {
    /// Reading failed.
    Failed(Error),
    /// Commits between them are, or may be, missing.
    Because(String),
}

impl From<Error> for Apart {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Apart {
    /// The error for the user.
    pub fn into_error(self, log: &RawFile, base: &End, mark: &IndexHeader) -> Error {
        match self {
            Apart::Failed(error) => error,
            Apart::Because(why) => {
                let [a, b, c, d, e, f, g, h] = mark.salts;
                let salts = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
                Error::refused(
                    log.name(),
                    format!(
                        "commits after {} are lost or cannot be proved complete: {why} (the log is now at frame {} \
                         with salts {:08x} {:08x})",
                        base.show(),
                        mark.max_frame,
                        salts.0,
                        salts.1
                    ),
                    "take a new full or differential, and continue from it; `fullbore log follow` prevents a restart \
                     of the log between sets, and begins with its own full if there is no base, or with \
                     --full-if-needed",
                )
            }
        }
    }
}

impl Joining<'_> {
    /// The frames between the predecessor and the mark; empty if nothing was committed.
    pub fn stretches(&self) -> Result<Vec<Stretch>, Apart> {
        let apart = |why: String| Err(Apart::Because(why));
        let Some(end) = &self.base.log else {
            return apart("the database had no write-ahead log then, so changes were not logged".into());
        };
        if self.mark.max_frame > 0 && self.mark.page_size != self.base.page_size {
            return apart(format!("pages have {} bytes now, and had {}", self.mark.page_size, self.base.page_size));
        }
        // A new log has no salts before its first frame: two such logs are not the same log.
        let nameless = end.salts() == [0; 8] && end.max_frame == 0;
        if end.salts() == self.mark.salts && (self.held || !nameless) {
            return self.same_log(end.max_frame, end.sums());
        }
        let known = self.held || self.ended_where_the_base_does() || self.file_is_unchanged()?;
        let mut stretches = if known { Vec::new() } else { self.rest_of_the_old_log()? };
        if self.mark.max_frame > 0 {
            let header = self.header()?;
            stretches.push(self.to_the_mark(1, header.sums, &header)?);
        }
        if !known {
            self.old_end_still_stands()?;
        }
        Ok(stretches)
    }

    /// True when the log has no frame, and the last frame before its restart is the predecessor's last. A restart
    /// leaves the checksum of that frame in the wal-index until the next commit.
    fn ended_where_the_base_does(&self) -> bool {
        let sums = self.base.log.as_ref().and_then(LogPosition::last_sums);
        self.mark.max_frame == 0
            && sums.is_some()
            && sums == self.mark.last_sums()
            && self.mark.pages == self.base.pages
    }

    /// True when the base was the database file alone, and the file has not changed since. Then the log has all commits
    /// since, from its first frame on.
    fn file_is_unchanged(&self) -> Result<bool, Apart> {
        let Some(then) = self.base.file else { return Ok(false) };
        Ok(FileState::of(&self.raw.metadata()?) == then)
    }

    /// The predecessor ended in the same log.
    fn same_log(&self, end: u32, sums: Option<(u32, u32)>) -> Result<Vec<Stretch>, Apart> {
        if self.mark.max_frame < end {
            return Err(Apart::Because(format!(
                "the same log now ends at frame {}: a power failure or older files set it back",
                self.mark.max_frame
            )));
        }
        // When all frames are in the database file, a writer may restart the log, although it is held. Do not read it.
        if self.mark.max_frame == 0 || (self.held && self.mark.max_frame == end) {
            return Ok(Vec::new());
        }
        let header = self.header()?;
        let before = if end == 0 { header.sums } else { self.frame_sums(&Kind::of(&header), end, sums)? };
        if self.mark.max_frame == end {
            return Ok(Vec::new());
        }
        Ok(vec![self.to_the_mark(end + 1, before, &header)?])
    }

    /// The running checksum of a stored frame, which must still be in its place.
    fn frame_sums(&self, kind: &Kind, frame: u32, known: Option<(u32, u32)>) -> Result<(u32, u32), Apart> {
        let place = FrameSource::Log(Arc::clone(self.log));
        let header = place.frame_header(frame, kind).map_err(|error| self.log.read_error(0, 0, error))?;
        match header.filter(|header| header.salts == kind.salts && header.commit_pages != 0) {
            Some(header) if known.is_none_or(|known| known == header.checksum) => Ok(header.checksum),
            _ => Err(Apart::Because(format!("frame {frame} was backed up, but its place now has another frame"))),
        }
    }

    fn to_the_mark(&self, first: u32, before: (u32, u32), header: &LogHeader) -> Result<Stretch, Apart> {
        let mark = self.mark;
        let place = FrameSource::Log(Arc::clone(self.log));
        let range = (first, mark.max_frame);
        let stretch = Stretch::check(place, Kind::of(header), range, before, self.sightings, self.now);
        let stretch = stretch.map_err(|broken| self.broken(broken))?;
        let ends = stretch.groups.last().map(|group| (group.pages, group.after));
        if ends != Some((mark.pages, mark.frame_checksum)) {
            return Err(Apart::Failed(self.damaged("its last frame is not the last frame of the wal-index")));
        }
        Ok(stretch)
    }

    /// The frames after the predecessor in its own log, which was restarted once since. Frames are overwritten from the
    /// first on. So while the predecessor's last frame is in its place, the frames after it are too, unless the file
    /// was cut. A frame of a still older log behind them proves that the file was not cut.
    fn rest_of_the_old_log(&self) -> Result<Vec<Stretch>, Apart> {
        let (kind, end, sums) = self.old_end()?;
        let before = self.old_frame(&kind, end, sums)?;
        let place = FrameSource::Log(Arc::clone(self.log));
        let failed = |error| self.log.read_error(0, 0, error);
        let rest = rest(&place, &kind, end + 1, before).map_err(failed)?;
        if !rest.ends_within_the_file {
            // PRAGMA journal_size_limit: the first commit of a restarted log cuts the file.
            return Err(Apart::Because(
                "the log was restarted since, and its file may have lost frames at the end: a writer with a \
                 journal_size_limit cuts it"
                    .into(),
            ));
        }
        let Some(last) = rest.last else { return Ok(Vec::new()) };
        if u64::from(last - end) * kind.frame_size() as u64 > MEMORY_LIMIT {
            return Err(Apart::Because(format!(
                "it was restarted, and {} frames of the old log do not fit into {} MiB of memory",
                last - end,
                MEMORY_LIMIT >> 20
            )));
        }
        let copy = place.copy(end + 1, last, &kind);
        let stretch = copy.and_then(|copy| Stretch::check(copy, kind, (end + 1, last), before, &[], self.now));
        match stretch {
            Ok(stretch) => Ok(vec![stretch]),
            Err(broken) => {
                self.old_end_still_stands()?; // Writers may have overwritten the frames during the read.
                Err(self.broken(broken))
            }
        }
    }

    /// After reading: checks that no frame was overwritten during the read.
    fn old_end_still_stands(&self) -> Result<(), Apart> {
        let (kind, end, sums) = self.old_end()?;
        self.old_frame(&kind, end, sums).map(drop)
    }

    fn old_frame(&self, kind: &Kind, end: u32, sums: Option<Sums>) -> Result<Sums, Apart> {
        self.frame_sums(kind, end, sums).map_err(|apart| match apart {
            Apart::Because(_) => {
                Apart::Because("the log was restarted since, and has overwritten frames that may have followed".into())
            }
            failed => failed,
        })
    }

    fn old_end(&self) -> Result<(Kind, u32, Option<Sums>), Apart> {
        let apart = |why: &str| Err(Apart::Because(why.into()));
        let Some(end) = self.base.log.as_ref() else { return apart("the database had no log") };
        if end.max_frame == 0 {
            return apart("the log was empty then, and another log has begun since");
        }
        if end.sums().is_none() {
            return apart("the log was restarted, and the base has no checksum of its last frame");
        }
        let [a, b, c, d, ..] = self.mark.salts;
        if u32::from_be_bytes([a, b, c, d]) != end.salt_1.wrapping_add(1) {
            return apart("the log was restarted more than once, or was created again");
        }
        // Checksums use the byte order of the machine, the same in all its logs.
        let big_endian = match self.header() {
            Ok(header) => header.big_endian,
            Err(Apart::Failed(_)) if self.mark.max_frame == 0 => return apart("the log was emptied since"),
            Err(other) => return Err(other),
        };
        Ok((Kind { salts: end.salts(), big_endian, page_size: self.base.page_size }, end.max_frame, end.sums()))
    }

    /// The log's own header.
    fn header(&self) -> Result<LogHeader, Apart> {
        let mut bytes = [0; LOG_HEADER_SIZE];
        let got = self.log.read_at(0, &mut bytes).map_err(|error| self.log.read_error(0, LOG_HEADER_SIZE, error))?;
        let header = LogHeader::parse(&bytes[..got]).map_err(|bad| self.damaged(&bad.0))?;
        // After a restart without a frame yet, the file still has the header of the old log.
        if self.mark.max_frame > 0 && (header.salts, header.page_size) != (self.mark.salts, self.mark.page_size) {
            return Err(Apart::Failed(self.damaged("its salts or page size differ from those of the wal-index")));
        }
        Ok(header)
    }

    fn broken(&self, broken: Broken) -> Apart {
        Apart::Failed(match broken {
            Broken::Io(error) => self.log.read_error(0, 0, error),
            Broken::Because(why) => self.damaged(&why),
        })
    }

    fn damaged(&self, why: &str) -> Error {
        Error::refused(
            self.log.name(),
            format!("the write-ahead log contradicts the wal-index: {why}"),
            "check the database with PRAGMA integrity_check; was a side file removed, truncated or replaced? Then take \
             a new full",
        )
    }
}
