//! Finds the place of the binary log at which a clone is consistent, in the clone's redo log.
//!
//! Before the donor ends the redo log, it writes the binary log's place into the TRX_SYS page (page 5 of the system
//! tablespace). That write is a pattern in the redo log, and can be found without a server. It is a search for bytes,
//! not a parser: the result counts only between two readings ([`super::position`]).

use std::collections::VecDeque;

const BLOCK: usize = 512;
/// The header of a redo file: no log blocks.
pub const FILE_HEADER: usize = 2048;
const BLOCK_HEADER: usize = 12;
const BLOCK_END: usize = 508;
/// The longest path of a binary log file.
const NAME_MAX: usize = 512;

/// A place of the binary log, as the redo log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedoPosition {
    /// The file's name, as the server has it, such as `./binlog.000003`.
    pub file: String,
    /// The lower 32 bits of the offset. The upper ones are in another record, which is not decoded.
    pub offset: u32,
}

/// The number of the page that holds the binary log's place, in tablespace 0.
pub const TRX_SYS_PAGE: u32 = 5;
/// The bytes before the place.
const MAGIC: u32 = 873_422_344;

/// Where the place is in the page: after 38 bytes of page header, 1000 bytes before the page's end: a magic number, the
/// offset's upper half, its lower half, the file's name.
fn place_in_page(page_size: u32) -> u32 {
    page_size.saturating_sub(1000) + 38
}

/// The place that the TRX_SYS page holds, or held when it was written. A commit writes the file's name only when it is
/// another.
pub fn in_trx_sys_page(page: &[u8]) -> Option<RedoPosition> {
    let number = |at: usize| Some(u32::from_be_bytes(*page.get(at..)?.first_chunk()?));
    let at = place_in_page(page.len() as u32) as usize;
    if number(4)? != TRX_SYS_PAGE || number(34)? != 0 || number(at)? != MAGIC {
        return None;
    }
    let name = page.get(at + 12..)?.iter().copied().take(NAME_MAX).take_while(|byte| *byte != 0).collect::<Vec<u8>>();
    let file =
        String::from_utf8(name).ok().filter(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic()))?;
    Some(RedoPosition { file, offset: number(at + 8)? })
}

/// Looks for the last place of the binary log in redo files, which are given in the order of their numbers.
pub struct RedoScan {
    /// Where in page 5 the offset is written, lower half, and the file's name.
    offset_pattern: [u8; 3],
    name_pattern: [u8; 4],
    /// The number of the last block; log ends where the numbers no longer follow one another.
    last_block: Option<u32>,
    ended: bool,
    /// Bytes that a pattern can still begin in.
    window: VecDeque<u8>,
    offset: Option<u32>,
    file: Option<String>,
}

/// Bytes from the start of a pattern to its end: numbers of the name's pattern, length, and name.
const REACH: usize = 4 + 2 + NAME_MAX;

impl RedoScan {
    /// For a server with this page size in bytes.
    pub fn new(page_size: u32) -> Self {
        let at = |field: u32| ((place_in_page(page_size) + field) as u16).to_be_bytes();
        let (low, name) = (at(8), at(12));
        Self {
            offset_pattern: [5, low[0], low[1]],
            name_pattern: [0, 5, name[0], name[1]],
            last_block: None,
            ended: false,
            window: VecDeque::with_capacity(2 * REACH),
            offset: None,
            file: None,
        }
    }

    /// Takes the next block of 512 bytes (the first 2,048 bytes of each file are not blocks). False when the log has
    /// ended.
    pub fn block(&mut self, block: &[u8; BLOCK]) -> bool {
        if self.ended {
            return false;
        }
        let number = u32::from_be_bytes([block[0], block[1], block[2], block[3]]) & 0x7FFF_FFFF;
        let length = usize::from(u16::from_be_bytes([block[4], block[5]]));
        if self.last_block.is_some_and(|last| number != last.wrapping_add(1) & 0x7FFF_FFFF) || length < BLOCK_HEADER {
            self.finish();
            return false;
        }
        self.last_block = Some(number);
        for byte in &block[BLOCK_HEADER..length.clamp(BLOCK_HEADER, BLOCK_END)] {
            self.window.push_back(*byte);
            if self.window.len() > REACH {
                self.look();
                self.window.pop_front();
            }
        }
        if length < BLOCK {
            self.finish();
        }
        !self.ended
    }

    fn finish(&mut self) {
        self.ended = true;
        while !self.window.is_empty() {
            self.look();
            self.window.pop_front();
        }
    }

    /// Looks whether something begins at the window's first byte.
    fn look(&mut self) {
        let at = |index: usize| self.window.get(index).copied();
        let starts =
            |from: usize, pattern: &[u8]| pattern.iter().enumerate().all(|(i, byte)| at(from + i) == Some(*byte));
        // MLOG_4BYTES, with or without the mark of a record that is alone; then space id 0 and page 5.
        if matches!(at(0), Some(0x04 | 0x84)) && at(1) == Some(0) && starts(2, &self.offset_pattern) {
            let bytes: Vec<u8> = self.window.iter().skip(5).take(5).copied().collect();
            self.offset = compressed(&bytes).or(self.offset);
        }
        if starts(0, &self.name_pattern) {
            let length = usize::from(at(4).unwrap_or(0)) << 8 | usize::from(at(5).unwrap_or(0));
            let name: Vec<u8> = self.window.iter().skip(6).take(length.min(NAME_MAX)).copied().collect();
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let plain = !name.is_empty() && length <= NAME_MAX && name.iter().all(u8::is_ascii_graphic);
            if plain {
                self.file = Some(String::from_utf8_lossy(name).into_owned());
            }
        }
    }

    /// The place that was found, after the last block.
    pub fn end(self) -> Option<RedoPosition> {
        self.end_over(None)
    }

    /// The place that was found, after the last block, on top of the earlier content of the page: the name of the same
    /// file is not written again.
    pub fn end_over(mut self, page: Option<RedoPosition>) -> Option<RedoPosition> {
        self.finish();
        let (file, offset) = page.map(|page| (page.file, page.offset)).unzip();
        Some(RedoPosition { file: self.file.or(file)?, offset: self.offset.or(offset)? })
    }
}

/// InnoDB's compressed integer: the first byte's leading ones tell how many bytes follow.
fn compressed(bytes: &[u8]) -> Option<u32> {
    let &first = bytes.first()?;
    let (length, low) = match first {
        ..=0x7F => (1, u32::from(first)),
        0x80..=0xBF => (2, u32::from(first & 0x3F)),
        0xC0..=0xDF => (3, u32::from(first & 0x1F)),
        0xE0..=0xEF => (4, u32::from(first & 0x0F)),
        0xF0 => (5, 0),
        _ => return None,
    };
    Some(bytes.get(1..length)?.iter().fold(low, |all, byte| all << 8 | u32::from(*byte)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Blocks of a log that holds `bytes`, the first numbered `number`.
    fn blocks(bytes: &[u8], number: u32) -> Vec<[u8; BLOCK]> {
        let pieces: Vec<&[u8]> = bytes.chunks(BLOCK_END - BLOCK_HEADER).collect();
        let last = pieces.len() - 1;
        let block = |(index, piece): (usize, &&[u8])| {
            let mut block = [0; BLOCK];
            block[..4].copy_from_slice(&(number + index as u32).to_be_bytes());
            let length = if index == last { BLOCK_HEADER + piece.len() } else { BLOCK };
            block[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            block[BLOCK_HEADER..BLOCK_HEADER + piece.len()].copy_from_slice(piece);
            block
        };
        pieces.iter().enumerate().map(block).collect()
    }

    fn record(offset: [u8; 4], name: &str) -> Vec<u8> {
        let mut bytes = vec![0x84, 0, 5, 0x3C, 0x46];
        bytes.extend(offset);
        bytes.extend([0x1E, 0, 5, 0x3C, 0x4A]);
        bytes.extend((name.len() as u16 + 1).to_be_bytes());
        bytes.extend(name.as_bytes());
        bytes.push(0);
        bytes
    }

    fn scan(blocks: &[[u8; BLOCK]]) -> Option<RedoPosition> {
        let mut scan = RedoScan::new(16384);
        for block in blocks {
            scan.block(block);
        }
        scan.end()
    }

    #[test]
    fn the_last_place_is_found_also_across_blocks() {
        for before in [0, 100, 480, 486, 490, 495, 5000] {
            let mut bytes = record([0x81, 0, 0, 0], "./old.000001");
            bytes.extend(vec![0x55; before]);
            bytes.extend(record([0xC1, 2, 3, 0], "./binlog.000007"));
            bytes.extend(vec![0x66; 700]);
            let found = scan(&blocks(&bytes, 9)).unwrap();
            assert_eq!((found.file.as_str(), found.offset), ("./binlog.000007", 0x1_0203), "{before} bytes before");
        }
    }

    #[test]
    fn bytes_after_the_end_of_the_log_do_not_count() {
        let mut all = blocks(&record([0x81, 0, 0, 0], "./new.000002"), 9);
        all.extend(blocks(&record([0x82, 0, 0, 0], "./older.000001"), 3));
        assert_eq!(scan(&all).unwrap().file, "./new.000002");
        assert_eq!(scan(&blocks(&[0; 3000], 1)), None);
        assert_eq!(scan(&[]), None);
    }

    #[test]
    fn values_missing_in_the_log_are_read_from_the_page() {
        let mut page = vec![0; 16384];
        page[4..8].copy_from_slice(&5_u32.to_be_bytes());
        page[15422..15426].copy_from_slice(&MAGIC.to_be_bytes());
        page[15430..15434].copy_from_slice(&77_u32.to_be_bytes());
        page[15434..15449].copy_from_slice(b"./binlog.000003");
        let place = in_trx_sys_page(&page).unwrap();
        assert_eq!((place.file.as_str(), place.offset), ("./binlog.000003", 77));
        let only_offset = record([0x81, 0, 0, 0], "./b")[..7].to_vec();
        let mut log = RedoScan::new(16384);
        assert!(blocks(&only_offset, 9).iter().all(|block| !log.block(block)), "one block, the last");
        assert_eq!(log.end_over(Some(place.clone())), Some(RedoPosition { offset: 0x100, ..place.clone() }));
        assert_eq!(RedoScan::new(16384).end_over(Some(place.clone())), Some(place));
        for at in [7, 37, 15425] {
            let mut other = page.clone();
            other[at] ^= 1;
            assert_eq!(in_trx_sys_page(&other), None);
        }
        assert_eq!(in_trx_sys_page(&page[..100]), None);
    }

    #[test]
    fn compressed_integers_have_one_to_five_bytes() {
        let cases: [(&[u8], u32); 5] = [
            (&[0x7F], 127),
            (&[0x80, 0x80], 128),
            (&[0xC0, 0x40, 0], 0x4000),
            (&[0xE0, 0x20, 0, 0], 0x20_0000),
            (&[0xF0, 1, 0, 0, 0], 1 << 24),
        ];
        for (bytes, value) in cases {
            assert_eq!(compressed(bytes), Some(value));
            assert_eq!(compressed(&bytes[..bytes.len() - 1]), None);
        }
    }
}
