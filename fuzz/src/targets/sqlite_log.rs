//! SQLite's write-ahead log: its header, its frames, and the map of a whole log, with checksums put right or not.

use fullbore_engines::sqlite::wal::{
    FRAME_HEADER_SIZE, FrameHeader, LOG_HEADER_SIZE, LogHeader, checksum, map_frames, page_offset,
};
use fullbore_engines::sqlite::wal_index::IndexHeader;

/// One input.
pub fn run(input: &[u8]) {
    let _ = (LogHeader::parse(input), FrameHeader::parse(input));
    let Some((&[right, claim, pages], log)) = input.split_first_chunk::<3>() else { return };
    let mut log = log.to_vec();
    let sums = if right % 2 == 1 { put_right(&mut log) } else { (0, 0) };
    let Ok(header) = LogHeader::parse(&log) else { return };
    let frames = (log.len() - LOG_HEADER_SIZE) / header.frame_size();
    // The wal-index may claim more frames than there are.
    let max_frame = if claim == 255 { u32::MAX } else { (frames + usize::from(claim % 3)) as u32 };
    assert!(page_offset(max_frame, header.page_size) < 1 << 50);
    let mark = IndexHeader {
        change: 1,
        page_size: header.page_size,
        max_frame,
        pages: pages.into(),
        frame_checksum: sums,
        salts: header.salts,
    };
    let read = |offset: u64, buffer: &mut [u8]| {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(log.len());
        let count = buffer.len().min(log.len() - start);
        buffer[..count].copy_from_slice(&log[start..start + count]);
        Ok(count)
    };
    if let Ok((_, map)) = map_frames(&mark, read) {
        assert!(map.len() <= frames);
        assert!(map.range(0, u32::MAX).iter().all(|(page, frame)| *page <= mark.pages && *frame <= max_frame));
    }
}

/// Magic, version, salts and checksums of a log, and its pages shortened to what fits; the last frame's checksum.
fn put_right(log: &mut Vec<u8>) -> (u32, u32) {
    log.resize(log.len().max(LOG_HEADER_SIZE), 0);
    let big_endian = log[3] & 1 == 1;
    let magic = if big_endian { 0x377f_0683_u32 } else { 0x377f_0682 };
    for (place, word) in log.chunks_exact_mut(4).zip([magic, 3_007_000, 512]) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    let mut sums = checksum(big_endian, (0, 0), &log[..24]);
    put(&mut log[24..32], sums);
    let (header, frames) = log.split_at_mut(LOG_HEADER_SIZE);
    for frame in frames.chunks_exact_mut(FRAME_HEADER_SIZE + 512) {
        frame[8..16].copy_from_slice(&header[16..24]);
        // Few pages, so that some come twice.
        frame[..3].fill(0);
        sums = checksum(big_endian, sums, &frame[..8]);
        sums = checksum(big_endian, sums, &frame[FRAME_HEADER_SIZE..]);
        put(&mut frame[16..24], sums);
    }
    sums
}

fn put(bytes: &mut [u8], sums: (u32, u32)) {
    bytes[..4].copy_from_slice(&sums.0.to_be_bytes());
    bytes[4..8].copy_from_slice(&sums.1.to_be_bytes());
}
