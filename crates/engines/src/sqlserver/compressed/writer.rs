//! Writes MSSQLBAK containers, for tests: the parts in the order of a genuine one.

use std::io::{self, Read, Write};

use super::container::header_checksum;
use super::record::{DATA, HEAD, HEADER, INDEX, INDEX_HEAD, LAYOUT, MAGIC, PAD, UNIT, checksum};
use super::xpress::{BLOCK_MAX, compress};

/// A container under construction, and the plain stream that it has to become.
pub struct Writer {
    /// The container so far.
    pub container: Vec<u8>,
    /// The plain stream so far.
    pub plain: Vec<u8>,
    /// Where blocks are: in the plain stream, and in the container.
    entries: Vec<(u64, u64)>,
}

impl Default for Writer {
    fn default() -> Self {
        let mut container = vec![0; HEADER];
        container[..8].copy_from_slice(MAGIC);
        container[8..12].copy_from_slice(&LAYOUT.0.to_le_bytes());
        container[12..16].copy_from_slice(&LAYOUT.1.to_le_bytes());
        Self { container, plain: Vec::new(), entries: Vec::new() }
    }
}

impl Writer {
    /// A container with one backup set of these bytes between its soft filemarks.
    pub fn one_set(data: &[u8]) -> Self {
        let mut writer = Self::default();
        writer.data(&mtf_block(b"TAPE", 1024)).filemark();
        writer.data(&mtf_block(b"SSET", 512));
        for block in data.chunks(BLOCK_MAX) {
            writer.data(block);
        }
        writer.data(&mtf_block(b"MSLS", 512)).index().filemark();
        writer.data(&mtf_block(b"ESET", 2048)).filemark();
        writer
    }

    /// A container of a whole plain stream, with its own soft file marks.
    pub fn of_stream(stream: &[u8]) -> Self {
        let mut writer = Self::default();
        let mut data = Vec::new();
        stream.chunks(UNIT as usize).for_each(|unit| writer.unit(unit, &mut data));
        writer.blocks(&mut data);
        writer
    }

    /// Packs a plain stream of any length from `plain` to `out`, as [`of_stream`](Self::of_stream) does.
    ///
    /// # Errors
    /// As of `plain` and `out`.
    pub fn pack(plain: &mut dyn Read, out: &mut dyn Write) -> io::Result<()> {
        let mut writer = Self::default();
        let (mut data, mut units) = (Vec::new(), Vec::new());
        while plain.take(BLOCK_MAX as u64).read_to_end(&mut units)? > 0 {
            units.chunks(UNIT as usize).for_each(|unit| writer.unit(unit, &mut data));
            units.clear();
            writer.plain.clear();
            // What is left tells whether a pad is needed.
            let whole = writer.container.len() / UNIT as usize * UNIT as usize;
            out.write_all(&writer.container[..whole])?;
            writer.container.drain(..whole);
        }
        writer.blocks(&mut data);
        out.write_all(&writer.container)
    }

    /// Takes the next 512 bytes of a plain stream. `data` has those that are not in a record yet.
    fn unit(&mut self, unit: &[u8], data: &mut Vec<u8>) {
        let stored = unit.get(50..52).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
        if unit.starts_with(b"SFMB") && stored.is_some() && header_checksum(unit) == stored {
            self.blocks(data);
            self.filemark_of(unit);
            return;
        }
        data.extend_from_slice(unit);
        if data.len() >= BLOCK_MAX {
            self.blocks(data);
        }
    }

    fn blocks(&mut self, data: &mut Vec<u8>) {
        data.chunks(BLOCK_MAX).for_each(|block| {
            self.data(block);
        });
        data.clear();
    }

    /// Adds a data record. Its length is filled with zeros up to a whole number of units of 512 bytes.
    ///
    /// # Panics
    /// There are no bytes or more than 65,536, or the bytes cannot be packed into a record.
    pub fn data(&mut self, plain: &[u8]) -> &mut Self {
        let mut plain = plain.to_vec();
        plain.resize(plain.len().next_multiple_of(UNIT as usize), 0);
        self.record(&plain, &compress(&plain))
    }

    /// Adds a data record with this payload.
    ///
    /// # Panics
    /// As [`Self::data`].
    pub fn record(&mut self, plain: &[u8], packed: &[u8]) -> &mut Self {
        assert!((1..=BLOCK_MAX).contains(&plain.len()), "a record has 1 to 65536 plain bytes");
        let length = u16::try_from(packed.len()).expect("a payload has at most 65535 bytes");
        self.entries.push((self.plain.len() as u64, self.container.len() as u64));
        self.head(DATA, (plain.len() / UNIT as usize) as u8, length);
        self.container.extend(checksum(packed).to_le_bytes());
        self.container.extend(packed);
        self.plain.extend(plain);
        self
    }

    /// Adds a soft filemark, behind a pad if it needs one.
    pub fn filemark(&mut self) -> &mut Self {
        self.filemark_of(&mtf_block(b"SFMB", 512))
    }

    fn filemark_of(&mut self, filemark: &[u8]) -> &mut Self {
        if !self.is_at_unit() {
            let behind = self.container.len() + HEAD;
            let length = behind.next_multiple_of(UNIT as usize) - behind;
            self.head(PAD, 0, length as u16);
            self.container.resize(behind + length, 0);
        }
        self.container.extend(filemark);
        self.plain.extend(filemark);
        self
    }

    /// Adds an index of the data records so far.
    pub fn index(&mut self) -> &mut Self {
        self.head(INDEX, 0, 0);
        let begun = self.container.len();
        let least = begun + 2 * INDEX_HEAD + self.entries.len() * 16;
        let length = least.next_multiple_of(UNIT as usize) - begun;
        let places = self.entries.iter().flat_map(|&(plain, container)| [plain, container]);
        let entries: Vec<u8> = places.flat_map(u64::to_le_bytes).collect();
        let numbers = [0x0001_0001, self.entries.len() as u32, length as u32, checksum(&entries)];
        let ends: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.container.extend(&ends);
        self.container.extend(&entries);
        self.container.resize(begun + length - INDEX_HEAD, 0);
        self.container.extend(&ends);
        self
    }

    fn is_at_unit(&self) -> bool {
        self.container.len().is_multiple_of(UNIT as usize)
    }

    fn head(&mut self, kind: u8, units: u8, length: u16) {
        let [low, high] = length.to_le_bytes();
        self.container.extend([kind, units, low, high]);
        // A server leaves what its memory had here.
        self.container.extend([0xA5; 16]);
        self.container.extend([0; 4]);
    }
}

/// A block of MTF: a common header with its checksum, and zeros.
fn mtf_block(kind: &[u8; 4], length: u16) -> Vec<u8> {
    let mut block = vec![0; length.into()];
    block[..4].copy_from_slice(kind);
    block[8..10].copy_from_slice(&length.to_le_bytes());
    let sum = header_checksum(&block).expect("a block has a header");
    block[50..52].copy_from_slice(&sum.to_le_bytes());
    block
}
