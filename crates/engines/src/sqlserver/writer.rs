//! Writes media as SQL Server does, for tests: full, differential and log sets, striped or not, with and without
//! checksums, several on one media. A round trip through the reader proves that both agree; genuine files prove that the
//! reader is right.

use std::io::{self, Write};

use jiff::civil::DateTime;
use uuid::Uuid;

use super::backup_checksum::BackupChecksum;
use super::block::{BLOCK_HEADER, BlockKind, name_of};
use super::configuration::{BackupKind, Configuration, DatabaseFile, DatabaseHeader, FileKind, Filegroup};
use super::fields::xor_of_words;
use super::label::{MediaLabel, Stripe, Tape};
use super::log_range::LogRange;
use super::lsn::Lsn;
use super::page::{self, EXTENT, PAGE, PageId};
use super::set::SetHeader;
use super::stream::{STREAM_HEADER, StreamHeader};
use super::{allocation, media};

/// A stream whose length was written before its end is known.
const VARIABLE: u16 = 0x2;
/// The end of such streams.
const VARIABLE_ENDS: u16 = 0x4;
const WITH_CHECKSUM: u16 = 0x100;

/// A backup set to write.
#[derive(Debug, Clone)]
pub struct WrittenSet {
    /// SSET.
    pub header: SetHeader,
    /// VOLB.
    pub machine: String,
    /// MSLS, and without its end MSCI.
    pub configuration: Configuration,
    /// The data streams: each has whole extents.
    pub copies: Vec<Vec<u8>>,
    /// The parts of the log; an empty part has no stream.
    pub logs: Vec<(LogRange, Vec<u8>)>,
}

/// A family that is being written.
pub struct FamilyWriter {
    bytes: Vec<u8>,
    /// The length of a block of the device.
    block: usize,
}

/// A block that is being put together.
struct Block(Vec<u8>);

impl Block {
    fn new(kind: BlockKind, fixed: usize) -> Self {
        let mut bytes = vec![0; fixed];
        bytes[..4].copy_from_slice(name_of(kind));
        bytes[10..12].copy_from_slice(&[14, 1]);
        bytes[48] = 2;
        Self(bytes)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn text(&mut self, at: usize, text: &str) {
        put_text(&mut self.0, 0, at, text);
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        let length = self.0.len() as u16;
        self.put(8, &length.to_le_bytes());
        seal(&mut self.0);
        self.0
    }
}

/// Appends a string, and its address relative to `start` at `start + at`.
fn put_text(bytes: &mut Vec<u8>, start: usize, at: usize, text: &str) {
    if text.is_empty() {
        return;
    }
    let offset = (bytes.len() - start) as u16;
    let encoded: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    bytes[start + at..start + at + 2].copy_from_slice(&(encoded.len() as u16).to_le_bytes());
    bytes[start + at + 2..start + at + 4].copy_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&encoded);
}

/// Puts the checksum of a block header right.
pub fn seal(block: &mut [u8]) {
    let sum = xor_of_words(&block[..50]);
    block[50..BLOCK_HEADER].copy_from_slice(&sum.to_le_bytes());
}

/// A packed date.
fn packed(date: Option<DateTime>) -> [u8; 5] {
    let Some(date) = date else { return [0; 5] };
    let parts = [(date.month(), 4), (date.day(), 5), (date.hour(), 5), (date.minute(), 6), (date.second(), 6)];
    let bits = parts.iter().fold(date.year() as u64, |bits, (part, width)| bits << width | *part as u64);
    let [_, _, _, a, b, c, d, e] = bits.to_be_bytes();
    [a, b, c, d, e]
}

impl FamilyWriter {
    /// Begins a family. `block` is the length of a block of the device: 512 or 4096 bytes.
    pub fn new(label: &MediaLabel, block: usize) -> Self {
        let mut writer = Self { bytes: Vec::new(), block };
        let Tape { family_id, medium, file_mark, name, description, has_password, software, vendor, written } =
            &label.tape;
        let mut tape = Block::new(BlockKind::Tape, 94);
        tape.put(52, &family_id.to_le_bytes());
        tape.put(60, &medium.to_le_bytes());
        tape.put(64, &file_mark.to_le_bytes());
        tape.text(68, name);
        tape.text(72, description);
        if *has_password {
            tape.text(76, "password");
        }
        tape.text(80, software);
        tape.put(84, &1024_u16.to_le_bytes());
        tape.put(86, &vendor.to_le_bytes());
        tape.put(88, &packed(*written));
        writer.bytes.extend(tape.finish());
        let Stripe { media_set, families, family, mirrors } = label.stripe;
        let mut raid = [0; Stripe::SIZE];
        raid[..16].copy_from_slice(&media_set.to_bytes_le());
        raid[20..22].copy_from_slice(&families.to_le_bytes());
        raid[22..24].copy_from_slice(&mirrors.to_le_bytes());
        raid[24..26].copy_from_slice(&family.to_le_bytes());
        writer.stream(b"RAID", 0, &raid);
        writer.end_block();
        writer.file_mark();
        writer
    }

    /// Appends a backup set.
    pub fn set(mut self, set: &WrittenSet) -> Self {
        self.begin_set(set);
        let sums = sums(set);
        for copy in &set.copies {
            self.bytes.extend(Block::new(BlockKind::Data, 60).finish());
            self.content(b"MQDA", VARIABLE | sums, copy);
            self.end_pages();
        }
        self.end_set(set);
        self
    }

    /// Appends a backup set with one copy of pages, which are not in memory: `next` gives one extent after the other. The
    /// family so far goes to `out`, and only the rest of it is in memory.
    ///
    /// # Errors
    /// As of `out`.
    pub fn long_set(
        mut self,
        set: &WrittenSet,
        extents: u64,
        next: &mut dyn FnMut(&mut [u8; EXTENT]),
        out: &mut dyn Write,
    ) -> io::Result<Self> {
        self.begin_set(set);
        self.bytes.extend(Block::new(BlockKind::Data, 60).finish());
        let has_checksum = sums(set) != 0;
        self.content_header(b"MQDA", VARIABLE | sums(set), extents * EXTENT as u64);
        let (mut sum, mut extent) = (BackupChecksum::default(), Box::new([0; EXTENT]));
        // Here, and behind whole extents, a block of the device begins: what follows needs no more than that.
        out.write_all(&std::mem::take(&mut self.bytes))?;
        for _ in 0..extents {
            next(&mut extent);
            if has_checksum {
                sum.add(&extent[..]);
            }
            out.write_all(&extent[..])?;
        }
        if has_checksum {
            self.stream(b"CSUM", 0, &sum.value().to_le_bytes());
        }
        self.end_pages();
        self.end_set(set);
        Ok(self)
    }

    fn begin_set(&mut self, set: &WrittenSet) {
        self.bytes.extend(start_block(&set.header));
        self.end_block();
        let mut volume = Block::new(BlockKind::Volume, 73);
        volume.text(64, &set.machine);
        self.bytes.extend(volume.finish());
        self.end_block();
        let mut at_start = set.configuration.clone();
        at_start.database.finished = None;
        self.configuration(BlockKind::ConfigurationAtStart, &at_start);
    }

    fn end_pages(&mut self) {
        self.stream(b"MQDA", VARIABLE | VARIABLE_ENDS, &[]);
        self.end_block();
    }

    fn end_set(&mut self, set: &WrittenSet) {
        for (range, log) in &set.logs {
            self.bytes.extend(log_block(range));
            if !log.is_empty() {
                self.content(b"MQTL", sums(set), log);
            }
            self.end_block();
        }
        self.configuration(BlockKind::ConfigurationAtEnd, &set.configuration);
        self.file_mark();
        self.bytes.extend(Block::new(BlockKind::SetEnd, 88).finish());
        self.stream(b"TSMP", 0, &[7; 60]);
        self.end_block();
        self.bytes.extend(Block::new(BlockKind::SetEnd, 88).finish());
        self.end_block();
        self.file_mark();
    }

    /// The family.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn file_mark(&mut self) {
        let start = self.bytes.len();
        self.bytes.extend(Block::new(BlockKind::FileMark, BLOCK_HEADER).finish());
        let length = if self.block < 65536 { self.block as u16 } else { 0 };
        self.bytes[start + 8..start + 10].copy_from_slice(&length.to_le_bytes());
        seal(&mut self.bytes[start..]);
        self.bytes.resize(start + self.block, 0);
    }

    /// A stream that begins at a multiple of four bytes.
    fn stream(&mut self, id: &[u8; 4], attributes: u16, content: &[u8]) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        let header = StreamHeader { id: *id, attributes, length: content.len() as u64, is_encoded: false };
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(content);
    }

    /// Pads to the next block of the device.
    fn end_block(&mut self) {
        let at = self.bytes.len().next_multiple_of(4) + STREAM_HEADER;
        self.stream(b"SPAD", 0, &vec![0; at.next_multiple_of(self.block) - at]);
    }

    /// Pages or log, behind padding that puts the first byte of them at a block of the device.
    fn content(&mut self, id: &[u8; 4], attributes: u16, content: &[u8]) {
        self.content_header(id, attributes, content.len() as u64);
        self.bytes.extend_from_slice(content);
        if attributes & WITH_CHECKSUM != 0 {
            let mut sum = BackupChecksum::default();
            sum.add(content);
            self.stream(b"CSUM", 0, &sum.value().to_le_bytes());
        }
    }

    /// The padding, the header of a stream with `length` bytes of pages or log, and the two bytes before them.
    fn content_header(&mut self, id: &[u8; 4], attributes: u16, length: u64) {
        let before = self.bytes.len().next_multiple_of(4) + STREAM_HEADER;
        let first = (before + STREAM_HEADER + 2).next_multiple_of(self.block);
        self.stream(b"APAD", 0x80, &vec![0; first - STREAM_HEADER - 2 - before]);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        let header = StreamHeader { id: *id, attributes, length: length + 2, is_encoded: false };
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(&[0; 2]);
    }

    fn configuration(&mut self, kind: BlockKind, configuration: &Configuration) {
        self.bytes.extend(Block::new(kind, 56).finish());
        self.stream(b"MQCI", 0, &configuration_stream(configuration));
        self.end_block();
    }
}

/// The attribute of streams with a checksum behind them.
fn sums(set: &WrittenSet) -> u16 {
    if set.configuration.database.has_checksums { WITH_CHECKSUM } else { 0 }
}

fn start_block(header: &SetHeader) -> Vec<u8> {
    let mut block = Block::new(BlockKind::SetStart, 116);
    block.put(62, &header.position.to_le_bytes());
    block.text(64, &header.name);
    block.text(68, &header.description);
    if header.has_password {
        block.text(72, "password");
    }
    block.text(76, &header.user);
    block.put(88, &packed(header.written));
    block.put(93, &[header.software.0, header.software.1]);
    block.put(100, &header.guid.to_bytes_le());
    block.finish()
}

fn log_block(range: &LogRange) -> Vec<u8> {
    let mut block = Block::new(BlockKind::Log, 0x70);
    block.put(0x3c, &range.begin.to_le_bytes());
    block.put(0x44, &range.end.to_le_bytes());
    block.put(0x4c, &range.file.to_le_bytes());
    block.put(0x50, &[20, 0, 0x5c, 0]);
    block.put(0x5c, &range.sequence.to_le_bytes());
    block.put(0x60, &range.length.to_le_bytes());
    block.put(0x68, &range.start.to_le_bytes());
    block.finish()
}

/// The stream MQCI.
pub fn configuration_stream(configuration: &Configuration) -> Vec<u8> {
    let mut bytes = database_chunk(&configuration.database);
    for Filegroup { id, name } in &configuration.filegroups {
        let mut chunk = vec![0; 0x30];
        chunk[0x0c..0x10].copy_from_slice(&id.to_le_bytes());
        put_text(&mut chunk, 0, 0x10, name);
        bytes.extend(sealed_chunk(b"SFGI", chunk));
    }
    bytes.extend(configuration.files.iter().flat_map(file_chunk));
    bytes
}

fn sealed_chunk(tag: &[u8; 4], mut chunk: Vec<u8>) -> Vec<u8> {
    let length = chunk.len() as u32;
    chunk[..4].copy_from_slice(tag);
    chunk[4..8].copy_from_slice(&length.to_le_bytes());
    chunk
}

fn database_chunk(database: &DatabaseHeader) -> Vec<u8> {
    let mut chunk = vec![0; if database.compressed_size.is_some() { 0x190 } else { 0x158 }];
    let mut put = |at: usize, bytes: &[u8]| chunk[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x08, &(0x200 | if database.has_checksums { 0x10_u32 } else { 0 }).to_le_bytes());
    put(0x18, &database.software.2.to_le_bytes());
    put(0x1a, &[database.software.1, database.software.0]);
    for (at, lsn) in [
        (0x20, database.first),
        (0x2a, database.last),
        (0x34, database.checkpoint),
        (0x3e, database.full_backup),
        (0xac, database.fork_point),
        (0x104, database.base_lsn),
    ] {
        put(at, &lsn.to_bytes());
    }
    for (at, date) in [(0x48, database.created), (0x4d, database.started), (0x52, database.finished)] {
        put(at, &packed(date));
    }
    put(0x57, &[database.kind.letter(), database.sort_order]);
    put(0x5b, &[database.compatibility]);
    put(0x5e, &database.database_version.to_le_bytes());
    put(0x60, &database.size.to_le_bytes());
    put(0x74, &database.unicode.0.to_le_bytes());
    put(0x78, &database.unicode.1.to_le_bytes());
    for (at, id) in [
        (0x7c, database.binding),
        (0x9c, database.fork),
        (0xb8, database.first_fork),
        (0xe0, database.family),
        (0x110, database.base),
    ] {
        put(at, &id.to_bytes_le());
    }
    if let Some(size) = database.compressed_size {
        put(0x158, &size.to_le_bytes());
    }
    put_text(&mut chunk, 0, 0x68, &database.database);
    put_text(&mut chunk, 0, 0x6c, &database.server);
    sealed_chunk(b"SCIN", chunk)
}

fn file_chunk(file: &DatabaseFile) -> Vec<u8> {
    let mut chunk = vec![0; 0x400];
    let mut put = |at: usize, bytes: &[u8]| chunk[at..at + bytes.len()].copy_from_slice(bytes);
    let kind = match file.kind {
        FileKind::Data => 1,
        FileKind::Log => 2,
        FileKind::Other(other) => other,
    };
    let pages = (file.backup_bytes / PAGE as u64) as u32;
    for (at, number) in [
        (0x10, PAGE as u32),
        (0x14, file.id),
        (0x18, pages),
        (0x1c, kind),
        (0x20, file.block_size),
        (0x24, file.filegroup),
    ] {
        put(at, &number.to_le_bytes());
    }
    put(0x28, &file.size.to_le_bytes());
    put(0x56, &file.max_size.to_le_bytes());
    put(0x9e, &file.base_lsn.to_bytes());
    put(0xaa, &file.base.to_bytes_le());
    put(0xba, &file.unique_id.to_bytes_le());
    put_text(&mut chunk, 0, 0x30, &file.logical_name);
    put_text(&mut chunk, 0, 0x34, &file.physical_name);
    sealed_chunk(b"SFIN", chunk)
}

/// A media header of `families` families, of which this is number `family`.
pub fn sample_label(families: u16, family: u16) -> MediaLabel {
    let tape = Tape {
        family_id: 0x592F_A74E + u32::from(family),
        medium: 1,
        file_mark: 1,
        name: "nightly".into(),
        description: String::new(),
        has_password: false,
        software: "Microsoft SQL Server".into(),
        vendor: 4608,
        written: Some(DateTime::constant(2026, 11, 26, 3, 0, 0, 0)),
    };
    MediaLabel { tape, stripe: Stripe { media_set: Uuid::from_u128(77), families, family, mirrors: 1 } }
}

/// A backup set of a small database `shop`, without pages and log.
pub fn sample_set(kind: BackupKind, position: u16) -> WrittenSet {
    let lsn = |block| Lsn { file: 34, block, slot: 1 };
    let at = |minute| Some(DateTime::constant(2026, 11, 26, 3, minute, 0, 0));
    let fork = Uuid::from_u128(5);
    let database = DatabaseHeader {
        has_checksums: false,
        software: (15, 0, 2000),
        first: lsn(u32::from(position) * 100),
        last: lsn(u32::from(position) * 100 + 100),
        checkpoint: lsn(u32::from(position) * 100 + 50),
        full_backup: lsn(50),
        created: at(0),
        started: at(1),
        finished: at(2),
        kind,
        sort_order: 52,
        compatibility: 150,
        database_version: 904,
        size: 3 << 20,
        compressed_size: Some(0),
        database: "shop".into(),
        server: "DB1".into(),
        unicode: (1033, 196_609),
        binding: Uuid::from_u128(4),
        fork,
        first_fork: Uuid::nil(),
        fork_point: Lsn::default(),
        family: fork,
        base_lsn: Lsn::default(),
        base: Uuid::nil(),
    };
    let file = |id, kind, filegroup, name: &str| DatabaseFile {
        id,
        backup_bytes: 16 * PAGE as u64,
        kind,
        block_size: 512,
        filegroup,
        size: 8 << 20,
        logical_name: name.into(),
        physical_name: format!("C:\\data\\{name}"),
        max_size: 1 << 44,
        unique_id: Uuid::from_u128(u128::from(id)),
        base_lsn: Lsn::default(),
        base: Uuid::nil(),
    };
    WrittenSet {
        header: SetHeader {
            position,
            name: format!("shop, set {position}"),
            description: String::new(),
            has_password: false,
            user: "DB1\\backup".into(),
            written: at(1),
            software: (15, 0),
            guid: Uuid::from_u128(1000 + u128::from(position)),
        },
        machine: "DB1".into(),
        configuration: Configuration {
            database,
            filegroups: vec![Filegroup { id: 1, name: "PRIMARY".into() }],
            files: vec![file(1, FileKind::Data, 1, "shop"), file(2, FileKind::Log, 0, "shop_log")],
        },
        copies: Vec::new(),
        logs: Vec::new(),
    }
}

/// The extents of file 1 with these numbers: good pages that are all in use, but for the last page of each extent. In
/// extent 0, page 1 is the PFS page that says so for the first `described` extents.
pub fn sample_extents(numbers: &[u32], described: u32) -> Vec<u8> {
    sample_extents_of(numbers, &(0..described).collect::<Vec<_>>())
}

/// The same, with a PFS page that says so for the extents `in_use`.
pub fn sample_extents_of(numbers: &[u32], in_use: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        for slot in 0..8 {
            let id = PageId { file: 1, page: number * 8 + slot };
            let mut page = [0; PAGE];
            if id.page == 1 {
                let in_use: Vec<u32> = in_use.iter().flat_map(|extent| extent * 8..extent * 8 + 7).collect();
                allocation::mark(&mut page, &in_use);
                page::seal(&mut page, id, allocation::PFS);
            } else {
                let filling = |at: usize| (at as u32 * 7).wrapping_add(id.page) as u8;
                page[96..].iter_mut().enumerate().for_each(|(at, byte)| *byte = filling(at));
                page::seal(&mut page, id, 1);
            }
            bytes.extend_from_slice(&page);
        }
    }
    debug_assert_eq!(bytes.len() % EXTENT, 0);
    bytes
}

/// A part of the log with its bytes.
pub fn sample_log(length: usize) -> (LogRange, Vec<u8>) {
    let range = LogRange {
        begin: 1 << 20,
        end: (1 << 20) + length as u64,
        file: 2,
        sequence: 34,
        length: 1 << 18,
        start: 1 << 20,
    };
    (range, (0..length).map(|at| (at * 13 % 255) as u8).collect())
}

/// A full of `shop` in one family, with two copies of pages and some log.
pub fn sample_full(has_checksums: bool) -> Vec<u8> {
    let mut set = sample_set(BackupKind::Full, 1);
    set.configuration.database.has_checksums = has_checksums;
    let in_use = [0, 1, 4];
    set.copies = vec![sample_extents_of(&in_use, &in_use), sample_extents_of(&[0], &in_use)];
    set.logs = vec![sample_log(1 << 16), sample_log(0)];
    FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish()
}

/// The identity of the media set of all samples, as SQL Server prints it.
pub fn sample_media_set() -> String {
    media::guid(Uuid::from_u128(77))
}
