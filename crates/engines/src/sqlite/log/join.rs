//! The proof that nothing lies between where a predecessor ended and the log as it is now.

use std::sync::Arc;

use fullbore_core::{Error, Result};

use super::super::open_files::RawFile;
use super::super::position::{FileState, LogPosition};
use super::super::wal::{LOG_HEADER_SIZE, LogHeader};
use super::super::wal_index::IndexHeader;
use super::end::End;
use super::stretch::{Broken, Kind, Place, Sighting, Stretch, rest};

/// A running checksum.
type Sums = (u32, u32);

/// Most bytes of a log's rest that are kept in memory.
const REST_LIMIT: u64 = 64 << 20;

/// What is joined to what, and what is known of the time between.
pub(super) struct Joining<'a> {
    /// The log as it is.
    pub log: &'a Arc<RawFile>,
    /// The database file.
    pub raw: &'a RawFile,
    /// Where its commits end; a read transaction keeps everything up to there.
    pub mark: &'a IndexHeader,
    /// Where the predecessor ended.
    pub base: &'a End,
    /// True when a read transaction has been held since then.
    pub held: bool,
    /// What was seen meanwhile.
    pub sightings: &'a [Sighting],
    /// The time of what was not seen before.
    pub now: i64,
}

/// Why two positions do not join.
pub(super) enum Apart {
    /// Reading failed.
    Failed(Error),
    /// Something is, or may be, missing between them.
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
                        "commits behind {} are lost or cannot be proved to be all there: {why} (now it is at frame {} of the log with salts {:08x} {:08x})",
                        base.show(),
                        mark.max_frame,
                        salts.0,
                        salts.1
                    ),
                    "take a new full or differential and go on from that; `fullbore log follow` keeps the log from being restarted meanwhile, and begins with a full of its own where there is no base, or with --full-if-needed",
                )
            }
        }
    }
}

impl Joining<'_> {
    /// The frames between the predecessor and the mark; none when nothing was committed.
    pub fn stretches(&self) -> Result<Vec<Stretch>, Apart> {
        let apart = |why: String| Err(Apart::Because(why));
        let Some(end) = &self.base.log else {
            return apart("it had no write-ahead log then, and changes were not logged".into());
        };
        if self.mark.max_frame > 0 && self.mark.page_size != self.base.page_size {
            return apart(format!("pages have {} bytes now, and had {}", self.mark.page_size, self.base.page_size));
        }
        // A log that is made anew has no salts before its first frame: two such logs are not one.
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

    /// True when the log has no frame, and the last one before its restart is the predecessor's last: a restart leaves the checksum of that frame in the
    /// wal-index, until the next commit.
    fn ended_where_the_base_does(&self) -> bool {
        let sums = self.base.log.as_ref().and_then(LogPosition::last_sums);
        self.mark.max_frame == 0
            && sums.is_some()
            && sums == self.mark.last_sums()
            && self.mark.pages == self.base.pages
    }

    /// True when nobody has written to the database file since the base was made, which was the file alone: then everything that was committed
    /// since stands in the log, from its first frame on.
    fn file_is_unchanged(&self) -> Result<bool, Apart> {
        let Some(then) = self.base.file else { return Ok(false) };
        Ok(FileState::of(&self.raw.metadata()?) == then)
    }

    /// The log goes on where the predecessor ended.
    fn same_log(&self, end: u32, sums: Option<(u32, u32)>) -> Result<Vec<Stretch>, Apart> {
        if self.mark.max_frame < end {
            return Err(Apart::Because(format!(
                "the same log ends at frame {} by now: it was taken back, by a power failure or by older files",
                self.mark.max_frame
            )));
        }
        if self.mark.max_frame == 0 {
            return Ok(Vec::new());
        }
        let header = self.header()?;
        let before = if end == 0 { header.sums } else { self.frame_sums(&Kind::of(&header), end, sums)? };
        if self.mark.max_frame == end {
            return Ok(Vec::new());
        }
        Ok(vec![self.to_the_mark(end + 1, before, &header)?])
    }

    /// The running checksum of a frame that was stored: it still stands in its place.
    fn frame_sums(&self, kind: &Kind, frame: u32, known: Option<(u32, u32)>) -> Result<(u32, u32), Apart> {
        let place = Place::Log(Arc::clone(self.log));
        let header = place.frame_header(frame, kind).map_err(|error| self.log.read_error(0, 0, error))?;
        match header.filter(|header| header.salts == kind.salts && header.commit_pages != 0) {
            Some(header) if known.is_none_or(|known| known == header.checksum) => Ok(header.checksum),
            _ => {
                Err(Apart::Because(format!("frame {frame} is not the one that was backed up: its place holds another")))
            }
        }
    }

    fn to_the_mark(&self, first: u32, before: (u32, u32), header: &LogHeader) -> Result<Stretch, Apart> {
        let mark = self.mark;
        let place = Place::Log(Arc::clone(self.log));
        let range = (first, mark.max_frame);
        let stretch = Stretch::check(place, Kind::of(header), range, before, self.sightings, self.now);
        let stretch = stretch.map_err(|broken| self.broken(broken))?;
        let ends = stretch.groups.last().map(|group| (group.pages, group.after));
        if ends != Some((mark.pages, mark.frame_checksum)) {
            return Err(Apart::Failed(self.damaged("its last frame is not the one that the wal-index names")));
        }
        Ok(stretch)
    }

    /// What followed the predecessor in its own log, which was restarted once since: frames are overwritten from the first one on, so
    /// that as long as the predecessor's last frame stands, whatever followed it stands too, unless the file was cut. That it was not shows in
    /// a frame of a still older log behind.
    fn rest_of_the_old_log(&self) -> Result<Vec<Stretch>, Apart> {
        let (kind, end, sums) = self.old_end()?;
        let before = self.old_frame(&kind, end, sums)?;
        let place = Place::Log(Arc::clone(self.log));
        let failed = |error| self.log.read_error(0, 0, error);
        let rest = rest(&place, &kind, end + 1, before).map_err(failed)?;
        if !rest.ends_within_the_file {
            // PRAGMA journal_size_limit: the first commit of a restarted log cuts the file.
            return Err(Apart::Because(
                "the log was restarted since, and its file ends where more may have followed: a writer with a journal_size_limit cuts it".into(),
            ));
        }
        let Some(last) = rest.last else { return Ok(Vec::new()) };
        if u64::from(last - end) * kind.frame_size() as u64 > REST_LIMIT {
            return Err(Apart::Because(format!(
                "it was restarted, and {} frames of the old log are more than fit into {} MiB of memory",
                last - end,
                REST_LIMIT >> 20
            )));
        }
        let copy = place.copy(end + 1, last, &kind).map_err(|broken| self.broken(broken))?;
        let stretch = Stretch::check(copy, kind, (end + 1, last), before, &[], self.now);
        Ok(vec![stretch.map_err(|broken| self.broken(broken))?])
    }

    /// After reading: none of it was overwritten while it was read.
    fn old_end_still_stands(&self) -> Result<(), Apart> {
        let (kind, end, sums) = self.old_end()?;
        self.old_frame(&kind, end, sums).map(drop)
    }

    fn old_frame(&self, kind: &Kind, end: u32, sums: Option<Sums>) -> Result<Sums, Apart> {
        self.frame_sums(kind, end, sums).map_err(|apart| match apart {
            Apart::Because(_) => {
                Apart::Because("the log was restarted since, and has overwritten what may have followed".into())
            }
            failed => failed,
        })
    }

    fn old_end(&self) -> Result<(Kind, u32, Option<Sums>), Apart> {
        let apart = |why: &str| Err(Apart::Because(why.into()));
        let Some(end) = self.base.log.as_ref() else { return apart("it had no log") };
        if end.max_frame == 0 {
            return apart("that log was empty, and another one has begun since");
        }
        if end.sums().is_none() {
            return apart("the log was restarted, and the base does not tell the checksum of its last frame");
        }
        let [a, b, c, d, ..] = self.mark.salts;
        if u32::from_be_bytes([a, b, c, d]) != end.salt_1.wrapping_add(1) {
            return apart("the log was restarted more than once, or begun anew");
        }
        // The byte order of checksums is the machine's, the same in all its logs.
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
        // Restarted without a frame yet, the file still has the header of the old log.
        if self.mark.max_frame > 0 && (header.salts, header.page_size) != (self.mark.salts, self.mark.page_size) {
            return Err(Apart::Failed(self.damaged("its salts or page size are not those of the wal-index")));
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
            format!("the write-ahead log does not hold what the wal-index says: {why}"),
            "check the database with PRAGMA integrity_check; was a side file removed, truncated or replaced? Then take a new full",
        )
    }
}
