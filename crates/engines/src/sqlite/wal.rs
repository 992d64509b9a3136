//! The write-ahead log, the `-wal` file (sqlite.org, "WAL-mode File Format", §1, and "Database File Format", §4):
//! a 32-byte header, then frames of 24 bytes and one page each, chained by salts and a running checksum.

use std::io;

use super::frame_map::{FrameMap, TooMany};
use super::header::{Malformed, u32_at};
use super::wal_index::IndexHeader;

/// Bytes of the log's header.
pub const LOG_HEADER_SIZE: usize = 32;
/// Bytes before the page in each frame.
pub const FRAME_HEADER_SIZE: usize = 24;
const VERSION: u32 = 3_007_000;
/// How much of the log is read at once while the map is built, in bytes.
const STRETCH: usize = 1 << 20;

/// The header of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHeader {
    /// Bytes per page: a power of two, 512…65536.
    pub page_size: u32,
    /// Counts the restarts of the log.
    pub checkpoint_sequence: u32,
    /// Change with every restart of the log.
    pub salts: [u8; 8],
    /// Whether the checksums are over big-endian words.
    pub big_endian: bool,
    /// The running checksum before the first frame.
    pub sums: (u32, u32),
}

impl LogHeader {
    /// Reads and checks a log's header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; LOG_HEADER_SIZE] = bytes
            .first_chunk()
            .ok_or_else(|| Malformed(format!("{} bytes are too few for its header", bytes.len())))?;
        let big_endian = match u32_at(bytes, 0) {
            0x377f_0682 => false,
            0x377f_0683 => true,
            magic => return Err(Malformed(format!("{magic:#010x} is not the magic of a log"))),
        };
        if u32_at(bytes, 4) != VERSION {
            return Err(Malformed(format!("log version {} is unknown", u32_at(bytes, 4))));
        }
        let page_size = u32_at(bytes, 8);
        if !page_size.is_power_of_two() || !(512..=65536).contains(&page_size) {
            return Err(Malformed(format!("page size {page_size} is not a power of two from 512 to 65536")));
        }
        let sums = checksum(big_endian, (0, 0), &bytes[..24]);
        if sums != (u32_at(bytes, 24), u32_at(bytes, 28)) {
            return Err(Malformed("the checksum of its header is wrong".into()));
        }
        let mut salts = [0; 8];
        salts.copy_from_slice(&bytes[16..24]);
        Ok(Self { page_size, checkpoint_sequence: u32_at(bytes, 12), salts, big_endian, sums })
    }

    /// Bytes of one frame, header included.
    pub fn frame_size(&self) -> usize {
        FRAME_HEADER_SIZE + self.page_size as usize
    }
}

/// The header of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Which page of the database follows.
    pub page: u32,
    /// In a commit frame the size of the database in pages after the commit; otherwise 0.
    pub commit_pages: u32,
    /// The log's salts when the frame was written.
    pub salts: [u8; 8],
    /// Running checksum of the log up to this frame.
    pub checksum: (u32, u32),
}

impl FrameHeader {
    /// Reads a frame's header; only the chain can tell whether it is valid.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; FRAME_HEADER_SIZE] =
            bytes.first_chunk().ok_or_else(|| Malformed(format!("{} bytes are too few for a frame", bytes.len())))?;
        let mut salts = [0; 8];
        salts.copy_from_slice(&bytes[8..16]);
        Ok(Self {
            page: u32_at(bytes, 0),
            commit_pages: u32_at(bytes, 4),
            salts,
            checksum: (u32_at(bytes, 16), u32_at(bytes, 20)),
        })
    }
}

/// Where the page of `frame` (counted from 1) begins in the log, in bytes.
pub fn page_offset(frame: u32, page_size: u32) -> u64 {
    LOG_HEADER_SIZE as u64
        + u64::from(frame.saturating_sub(1)) * (FRAME_HEADER_SIZE as u64 + u64::from(page_size))
        + FRAME_HEADER_SIZE as u64
}

/// The running checksum of the log over `bytes` (a multiple of 8), in either byte order.
pub fn checksum(big_endian: bool, start: (u32, u32), bytes: &[u8]) -> (u32, u32) {
    let (mut a, mut b) = start;
    let word = if big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
    for eight in bytes.as_chunks::<8>().0 {
        let &[p, q, r, s, t, u, v, w] = eight;
        a = a.wrapping_add(word([p, q, r, s])).wrapping_add(b);
        b = b.wrapping_add(word([t, u, v, w])).wrapping_add(a);
    }
    (a, b)
}

/// Why no map of the log could be built.
#[derive(Debug)]
pub enum MapError {
    /// The log could not be read.
    Io(io::Error),
    /// The chain does not reach the mark: the log was restarted meanwhile, or it is damaged.
    Broken(String),
    /// More pages than the map may hold.
    TooMany(TooMany),
}

/// Reads the log once from its start to the mark, checks salts and running checksums, and notes for each page
/// the newest frame. `read` fills the buffer from an offset and returns how many bytes there were.
pub fn map_frames(
    mark: &IndexHeader,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> Result<(LogHeader, FrameMap), MapError> {
    let broken = |why: String| MapError::Broken(why);
    let mut start = [0; LOG_HEADER_SIZE];
    let got = read(0, &mut start).map_err(MapError::Io)?;
    let header = LogHeader::parse(&start[..got.min(LOG_HEADER_SIZE)]).map_err(|bad| broken(bad.0))?;
    if (header.page_size, header.salts) != (mark.page_size, mark.salts) {
        return Err(broken("its page size or salts differ from those of the wal-index".into()));
    }
    let mut map = FrameMap::new(mark.max_frame);
    let mut chain = Chain::new(header.salts, header.big_endian, header.sums);
    let size = header.frame_size();
    let each = (STRETCH / size).max(1);
    let mut stretch = vec![0; size * each.min(mark.max_frame as usize)];
    let mut frame = 1;
    while frame <= mark.max_frame {
        let want = ((mark.max_frame - frame + 1) as usize).min(each) * size;
        let offset = page_offset(frame, header.page_size) - FRAME_HEADER_SIZE as u64;
        let got = read(offset, &mut stretch[..want]).map_err(MapError::Io)?;
        if got < want {
            return Err(broken(format!("it ends before frame {} of {}", frame + (got / size) as u32, mark.max_frame)));
        }
        for bytes in stretch[..want].chunks_exact(size) {
            let page = chain.link(bytes).map_err(|why| broken(format!("frame {frame}: {why}")))?;
            map.insert(page, frame).map_err(MapError::TooMany)?;
            frame += 1;
        }
    }
    if chain.sums != mark.frame_checksum && mark.max_frame > 0 {
        return Err(broken(format!("the checksum of frame {} differs from the wal-index", mark.max_frame)));
    }
    if chain.last_commit != mark.pages {
        return Err(broken(format!(
            "frame {} commits {} pages, not {}",
            mark.max_frame, chain.last_commit, mark.pages
        )));
    }
    map.finish(mark.pages);
    Ok((header, map))
}

/// The running state that links one frame to the next.
#[derive(Debug, Clone)]
pub struct Chain {
    salts: [u8; 8],
    big_endian: bool,
    /// Running checksum after the last frame.
    pub sums: (u32, u32),
    /// The size of the database in pages after the last frame if that is a commit, else 0.
    pub last_commit: u32,
}

impl Chain {
    /// Continues after a frame, or the header, with the running checksum `sums`.
    pub fn new(salts: [u8; 8], big_endian: bool, sums: (u32, u32)) -> Self {
        Self { salts, big_endian, sums, last_commit: 0 }
    }

    /// Checks that `bytes`, a frame with its page, is the next frame; returns the number of its page.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn link(&mut self, bytes: &[u8]) -> Result<u32, String> {
        let frame = FrameHeader::parse(bytes).map_err(|bad| bad.0)?;
        if frame.salts != self.salts {
            return Err("its salts differ from those of the log".into());
        }
        let sums = checksum(self.big_endian, self.sums, &bytes[..8]);
        let sums = checksum(self.big_endian, sums, &bytes[FRAME_HEADER_SIZE..]);
        if frame.checksum != sums {
            return Err("its checksum is wrong".into());
        }
        if frame.page == 0 {
            return Err("it is for page 0".into());
        }
        (self.sums, self.last_commit) = (sums, frame.commit_pages);
        Ok(frame.page)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A log whose frames hold (page, database size after a commit or 0), and its mark.
    fn log(page_size: usize, frames: &[(u32, u32)], big_endian: bool) -> (Vec<u8>, IndexHeader) {
        let mut bytes = Vec::new();
        let magic = if big_endian { 0x377f_0683u32 } else { 0x377f_0682 };
        for word in [magic, VERSION, page_size as u32, 3, 0x1111_2222, 0x3333_4444] {
            bytes.extend(word.to_be_bytes());
        }
        let mut sums = checksum(big_endian, (0, 0), &bytes);
        bytes.extend([sums.0.to_be_bytes(), sums.1.to_be_bytes()].concat());
        for (number, (page, commit)) in frames.iter().enumerate() {
            let start = [page.to_be_bytes(), commit.to_be_bytes()].concat();
            let content = vec![number as u8; page_size];
            sums = checksum(big_endian, checksum(big_endian, sums, &start), &content);
            bytes.extend(start);
            bytes.extend_from_slice(&[0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44]);
            bytes.extend([sums.0.to_be_bytes(), sums.1.to_be_bytes()].concat());
            bytes.extend(content);
        }
        let mark = IndexHeader {
            change: 1,
            page_size: page_size as u32,
            max_frame: frames.len() as u32,
            pages: frames.last().map_or(0, |frame| frame.1),
            frame_checksum: sums,
            salts: [0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44],
        };
        (bytes, mark)
    }

    fn map(bytes: &[u8], mark: &IndexHeader) -> Result<FrameMap, MapError> {
        let read = |offset: u64, buffer: &mut [u8]| {
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        };
        map_frames(mark, read).map(|(_, map)| map)
    }

    #[test]
    fn the_newest_frame_of_each_page_counts_and_pages_behind_the_end_do_not() {
        for big_endian in [false, true] {
            let (bytes, mark) = log(512, &[(1, 0), (9, 9), (2, 0), (1, 0), (7, 8)], big_endian);
            assert_eq!(map(&bytes, &mark).unwrap().range(1, 9), [(1, 4), (2, 3), (7, 5)]);
        }
    }

    #[test]
    fn every_flipped_bit_up_to_the_mark_is_noticed() {
        let (bytes, mark) = log(512, &[(1, 0), (2, 2)], false);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(map(&flipped, &mark), Err(MapError::Broken(_))), "bit {bit} went unnoticed");
        }
    }

    #[test]
    fn a_log_that_ends_before_the_mark_is_broken() {
        let (bytes, mark) = log(1024, &[(1, 0), (2, 2)], false);
        for length in [0, 31, 32, 40, bytes.len() - 1] {
            assert!(matches!(map(&bytes[..length], &mark), Err(MapError::Broken(_))), "{length} bytes");
        }
    }

    #[test]
    fn bytes_after_the_mark_do_not_matter() {
        let (mut bytes, mark) = log(512, &[(1, 0), (2, 2)], false);
        bytes.extend([0xab; 1000]);
        assert_eq!(map(&bytes, &mark).unwrap().len(), 2);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_map_panic(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..3000), frames: u32,
        ) {
            let (good, mut mark) = log(512, &[(1, 0), (2, 2)], false);
            let _ = map(&bytes, &mark);
            let mut joined = good.clone();
            joined.extend(bytes);
            mark.max_frame = frames;
            let _ = map(&joined, &mark);
        }
    }
}
