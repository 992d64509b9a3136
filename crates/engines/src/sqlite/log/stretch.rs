//! A stretch of frames that was checked: consecutive frames of one log, in the log itself or in memory.

use std::io;
use std::sync::Arc;

use super::super::open_files::RawFile;
use super::super::wal::{Chain, FRAME_HEADER_SIZE, FrameHeader, LOG_HEADER_SIZE, LogHeader, page_offset};
use super::group::Group;

/// How much is read at once while a log is checked, in bytes.
const WINDOW: usize = 1 << 20;

/// Where frames are.
#[derive(Clone)]
pub(super) enum FrameSource {
    /// In the log.
    Log(Arc<RawFile>),
    /// Copied, from this frame on: the log may overwrite them.
    Memory(Arc<[u8]>, u32),
}

/// Consecutive frames of one log: whole commits.
#[derive(Clone)]
pub(super) struct Stretch {
    pub place: FrameSource,
    pub page_size: u32,
    /// The commits in it; never empty.
    pub groups: Vec<Group>,
}

/// The salts, byte order and page size that frames of one log have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub salts: [u8; 8],
    pub big_endian: bool,
    pub page_size: u32,
}

impl Kind {
    pub fn of(header: &LogHeader) -> Self {
        Self { salts: header.salts, big_endian: header.big_endian, page_size: header.page_size }
    }

    pub fn frame_size(&self) -> usize {
        FRAME_HEADER_SIZE + self.page_size as usize
    }
}

/// The last frame of a log at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sighting {
    pub salts: [u8; 8],
    pub max_frame: u32,
    /// Microseconds since 1970, after the look.
    pub time: i64,
}

/// Why a chain of frames could not be followed.
pub(super) enum Broken {
    Io(io::Error),
    Because(String),
}

impl FrameSource {
    fn read(&self, frame: u32, kind: &Kind, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            FrameSource::Log(log) => log.read_at(page_offset(frame, kind.page_size) - FRAME_HEADER_SIZE as u64, buffer),
            FrameSource::Memory(bytes, first) => {
                let at = (frame - first) as usize * kind.frame_size();
                let rest = bytes.get(at..).unwrap_or_default();
                let length = rest.len().min(buffer.len());
                buffer[..length].copy_from_slice(&rest[..length]);
                Ok(length)
            }
        }
    }

    /// The header of one frame; `None` after the end.
    pub fn frame_header(&self, frame: u32, kind: &Kind) -> io::Result<Option<FrameHeader>> {
        let mut bytes = [0; FRAME_HEADER_SIZE];
        let got = self.read(frame, kind, &mut bytes)?;
        Ok(FrameHeader::parse(&bytes[..got]).ok())
    }

    /// Copies frames into memory.
    pub fn copy(&self, first: u32, last: u32, kind: &Kind) -> Result<Self, Broken> {
        let mut bytes = vec![0; (last - first + 1) as usize * kind.frame_size()];
        let got = self.read(first, kind, &mut bytes).map_err(Broken::Io)?;
        if got < bytes.len() {
            return Err(Broken::Because(format!("it ends before frame {last}")));
        }
        Ok(FrameSource::Memory(bytes.into(), first))
    }
}

impl Stretch {
    /// Follows the chain from `first` to `last`, which has to be a commit. `before` is the running checksum of the
    /// frame (or the log's header) before `first`. The commits are divided into groups by `sightings`; commits after
    /// all of them have the time `now`.
    pub fn check(
        place: FrameSource,
        kind: Kind,
        (first, last): (u32, u32),
        before: (u32, u32),
        sightings: &[Sighting],
        now: i64,
    ) -> Result<Self, Broken> {
        let mut seen = sightings.iter().filter(|seen| seen.salts == kind.salts && seen.max_frame >= first).peekable();
        let mut groups: Vec<Group> = Vec::new();
        let mut next = Group {
            time: 0,
            salts: kind.salts,
            first_frame: first,
            last_frame: 0,
            pages: 0,
            big_endian: kind.big_endian,
            before,
            after: before,
        };
        walk(&place, &kind, first, Some(last), before, |frame, chain| {
            while seen.next_if(|seen| seen.max_frame < frame).is_some() {}
            let at_end = frame == last || seen.peek().is_some_and(|seen| seen.max_frame == frame);
            if !at_end {
                return Ok(());
            }
            if chain.last_commit == 0 {
                return Err(format!("frame {frame} was the last frame, but is not a commit"));
            }
            let time = seen.next_if(|seen| seen.max_frame == frame).map_or(now, |seen| seen.time);
            let group = Group { time, last_frame: frame, pages: chain.last_commit, after: chain.sums, ..next };
            (next.first_frame, next.before) = (frame + 1, chain.sums);
            match groups.last_mut().filter(|before| before.time == group.time) {
                Some(before) => *before = Group { first_frame: before.first_frame, before: before.before, ..group },
                None => groups.push(group),
            }
            Ok(())
        })?;
        Ok(Self { place, page_size: kind.page_size, groups })
    }

    /// The same frames, copied: the log may overwrite them afterwards. Frames of more than `limit` bytes stay in the
    /// log.
    pub fn into_memory(self, limit: u64) -> io::Result<Self> {
        if matches!(self.place, FrameSource::Memory(..)) || self.bytes() > limit {
            return Ok(self);
        }
        let first = self.first_frame();
        let mut bytes = vec![0; self.bytes() as usize];
        if self.read(0, &mut bytes)? < bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Self { place: FrameSource::Memory(bytes.into(), first), ..self })
    }

    pub fn first_frame(&self) -> u32 {
        self.groups.first().map_or(1, |group| group.first_frame)
    }

    pub fn frame_size(&self) -> u64 {
        FRAME_HEADER_SIZE as u64 + u64::from(self.page_size)
    }

    /// Bytes of all its frames.
    pub fn bytes(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.frames())).sum::<u64>() * self.frame_size()
    }

    /// True while its frames are in their place. A restart of the log overwrites the header first, then the frames
    /// from the first on; a cut removes the last frame.
    pub fn still_stands(&self) -> io::Result<bool> {
        let Some(group) = self.groups.last() else { return Ok(true) };
        if let FrameSource::Log(log) = &self.place {
            let mut bytes = [0; LOG_HEADER_SIZE];
            let got = log.read_at(0, &mut bytes)?;
            if !LogHeader::parse(&bytes[..got]).is_ok_and(|header| header.salts == group.salts) {
                return Ok(false);
            }
        }
        let kind = Kind { salts: group.salts, big_endian: group.big_endian, page_size: self.page_size };
        let header = self.place.frame_header(group.last_frame, &kind)?;
        Ok(header.is_some_and(|header| (header.salts, header.checksum) == (group.salts, group.after)))
    }

    /// Fills `buffer` with its bytes from `offset` on; returns how many there were.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.bytes().saturating_sub(offset) as usize);
        let buffer = &mut buffer[..length];
        match &self.place {
            FrameSource::Log(log) => {
                let start = page_offset(self.first_frame(), self.page_size) - FRAME_HEADER_SIZE as u64;
                log.read_at(start + offset, buffer)
            }
            FrameSource::Memory(bytes, _) => {
                buffer.copy_from_slice(&bytes[offset as usize..][..length]);
                Ok(length)
            }
        }
    }
}

/// The frames after a given frame in an old log, whose end is not in the wal-index any more.
pub(super) struct Rest {
    /// The last commit that the chain reaches, if it reaches one.
    pub last: Option<u32>,
    /// False when the file ends before a frame that does not link: it may have been cut there.
    pub ends_within_the_file: bool,
}

/// How far the chain reaches from `first` on.
pub(super) fn rest(place: &FrameSource, kind: &Kind, first: u32, before: (u32, u32)) -> io::Result<Rest> {
    let mut last = None;
    let walked = walk(place, kind, first, None, before, |frame, chain| {
        if chain.last_commit != 0 {
            last = Some(frame);
        }
        Ok(())
    });
    match walked {
        Err(Broken::Io(error)) => Err(error),
        Err(Broken::Because(_)) => Ok(Rest { last, ends_within_the_file: true }),
        Ok(()) => Ok(Rest { last, ends_within_the_file: false }),
    }
}

/// Links frame after frame; without `last`, until one does not link or the file ends.
fn walk(
    place: &FrameSource,
    kind: &Kind,
    first: u32,
    last: Option<u32>,
    before: (u32, u32),
    mut visit: impl FnMut(u32, &Chain) -> Result<(), String>,
) -> Result<(), Broken> {
    let size = kind.frame_size();
    let each = (WINDOW / size).max(1);
    let mut window = vec![0; size * each];
    let mut chain = Chain::new(kind.salts, kind.big_endian, before);
    let mut frame = first;
    while last.is_none_or(|last| frame <= last) {
        let want = last.map_or(each, |last| ((last - frame) as usize + 1).min(each)) * size;
        let got = place.read(frame, kind, &mut window[..want]).map_err(Broken::Io)?;
        for bytes in window[..got].chunks_exact(size) {
            chain.link(bytes).map_err(|why| Broken::Because(format!("frame {frame}: {why}")))?;
            visit(frame, &chain).map_err(Broken::Because)?;
            frame += 1;
        }
        if got < want {
            return match last {
                Some(last) => Err(Broken::Because(format!("it ends before frame {last}"))),
                None => Ok(()),
            };
        }
    }
    Ok(())
}
