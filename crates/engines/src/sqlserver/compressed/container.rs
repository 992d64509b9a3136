//! Finds the records of an MSSQLBAK container, from its start to its end, in any [`Read`].

use std::io::{BufReader, ErrorKind, Read};

use fullbore_core::{Error, Result};

use super::block::Block;
use super::record::{HEAD, HEADER, INDEX_HEAD, Record, UNIT, check_header, checksum_from, unknown};

/// Bytes of the common header of an MTF block.
const COMMON_HEADER: usize = 52;
/// The type of a soft filemark. It is in the container as it is.
const FILEMARK: &[u8; 4] = b"SFMB";
/// Bytes of an index entry.
const INDEX_ENTRY: usize = 16;

/// A container that is read once, from its start.
pub struct Container<R> {
    device: String,
    source: BufReader<R>,
    /// Bytes read so far.
    at: u64,
    /// Soft filemarks read so far: one behind the media header, then two for each backup set.
    filemarks: u64,
    /// The last bytes read were a soft filemark.
    after_filemark: bool,
}

impl<R: Read> Container<R> {
    /// Checks the header of the container in `source`; `device` is its name in messages.
    ///
    /// # Errors
    /// It is not a compressed backup, it has a layout that is not known, or it cannot be read.
    pub fn open(source: R, device: &str) -> Result<Self> {
        let source = BufReader::with_capacity(128 << 10, source);
        let mut container = Self { device: device.into(), source, at: 0, filemarks: 0, after_filemark: false };
        let mut header = [0; HEADER];
        let (magic, rest) = header.split_at_mut(8);
        let got = container.fill(magic)?;
        if got == 0 {
            let hint = "copy the file again; before a pipe, look at the program that writes into it";
            return Err(Error::incomplete(device, "is empty", hint));
        }
        if got == magic.len() && magic == super::MAGIC {
            container.exact(rest, "its header")?;
        }
        check_header(&header, device)?;
        Ok(container)
    }

    /// The name of the container in messages.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The source of the container.
    pub fn source(&self) -> &R {
        self.source.get_ref()
    }

    /// Puts the next bytes of the plain stream into `block`: a payload to unpack, or a soft filemark. False at the end.
    ///
    /// # Errors
    /// The container is damaged, ends too early, has something that is not known, or cannot be read.
    pub fn next(&mut self, block: &mut Block) -> Result<bool> {
        loop {
            let begun = self.at;
            let mut head = [0; HEAD];
            let (kind, rest) = head.split_at_mut(FILEMARK.len());
            match self.fill(kind)? {
                0 => return self.check_end().map(|()| false),
                got if got < kind.len() => return Err(self.truncated("a record")),
                _ => {}
            }
            if kind == FILEMARK {
                return self.filemark(begun, block).map(|()| true);
            }
            self.exact(rest, "a record")?;
            self.after_filemark = false;
            match Record::parse(&head, begun, &self.device)? {
                Record::Data { plain, packed } => return self.data(plain, packed, block).map(|()| true),
                Record::Pad { length } => self.skip(length, "a pad record")?,
                Record::Index => self.index(begun)?,
            }
            if !self.at.is_multiple_of(UNIT) {
                return Err(unknown(&self.device, begun, "a pad or an index that ends inside a unit of 512 bytes"));
            }
        }
    }

    fn data(&mut self, plain: usize, packed: usize, block: &mut Block) -> Result<()> {
        let mut checksum = [0; 4];
        self.exact(&mut checksum, "a data record")?;
        block.checksum = u32::from_le_bytes(checksum);
        block.at = self.at;
        // Both lengths have 16 bits at most.
        block.packed.resize(packed, 0);
        block.plain.resize(plain, 0);
        self.exact(&mut block.packed, "a data record")
    }

    fn filemark(&mut self, begun: u64, block: &mut Block) -> Result<()> {
        block.at = begun;
        block.packed.clear();
        block.plain.clear();
        block.plain.extend(FILEMARK);
        block.plain.resize(COMMON_HEADER, 0);
        if let Some(rest) = block.plain.get_mut(FILEMARK.len()..) {
            self.exact(rest, "a soft filemark")?;
        }
        let Some(length) = filemark_length(&block.plain) else {
            return Err(Error::damaged(&self.device, begun, "the header of a soft filemark is wrong"));
        };
        block.plain.resize(length, 0);
        if let Some(rest) = block.plain.get_mut(COMMON_HEADER..) {
            self.exact(rest, "a soft filemark")?;
        }
        self.filemarks = self.filemarks.saturating_add(1);
        self.after_filemark = true;
        Ok(())
    }

    /// Checks an index. It only repeats where blocks are, so nothing of it is needed to read them in order.
    fn index(&mut self, begun: u64) -> Result<()> {
        let mut fixed = [0; INDEX_HEAD];
        self.exact(&mut fixed, "an index")?;
        let [1, 0, 1, 0, numbers @ ..] = fixed else {
            return Err(unknown(&self.device, begun, "an index of another version"));
        };
        let number = |at: usize| numbers.as_chunks::<4>().0.get(at).map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let (entries, length, expected) = (number(0), u64::from(number(1)), number(2));
        let least = 2 * INDEX_HEAD as u64 + u64::from(entries) * INDEX_ENTRY as u64;
        let Some(zeros) = length.checked_sub(least) else {
            return Err(Error::damaged(&self.device, begun, "an index is too short for its entries"));
        };
        let (mut sum, mut entry) = (0, [0; INDEX_ENTRY]);
        for _ in 0..entries {
            self.exact(&mut entry, "an index")?;
            sum = checksum_from(sum, &entry);
        }
        self.skip(zeros, "an index")?;
        let mut repeated = [0; INDEX_HEAD];
        self.exact(&mut repeated, "an index")?;
        if sum != expected {
            return Err(Error::damaged(&self.device, begun, "the checksum of an index does not match"));
        }
        if repeated != fixed {
            return Err(Error::damaged(&self.device, begun, "the end of an index does not repeat its start"));
        }
        Ok(())
    }

    /// A container ends behind the soft filemark of its last set map.
    fn check_end(&self) -> Result<()> {
        if self.after_filemark && self.filemarks >= 3 && self.filemarks % 2 == 1 { Ok(()) } else { Err(self.cut_off()) }
    }

    fn cut_off(&self) -> Error {
        let why = format!("ends at byte {}, before the end of its last backup set", self.at);
        Error::incomplete(&self.device, why, "copy the whole file again, or use another copy of this backup")
    }

    fn truncated(&self, within: &str) -> Error {
        let why = format!("ends at byte {}, inside {within}", self.at);
        Error::incomplete(&self.device, why, "copy the whole file again, or use another copy of this backup")
    }

    /// Fills `buffer`; fewer bytes only at the end.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.source.read(rest) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::of_read(&self.device, error)),
            }
        }
        self.at = self.at.saturating_add(filled as u64);
        Ok(filled)
    }

    fn exact(&mut self, buffer: &mut [u8], within: &str) -> Result<()> {
        if self.fill(buffer)? == buffer.len() { Ok(()) } else { Err(self.truncated(within)) }
    }

    fn skip(&mut self, mut length: u64, within: &str) -> Result<()> {
        let mut nothing = [0; 512];
        while length > 0 {
            let now = length.min(nothing.len() as u64) as usize;
            self.exact(&mut nothing[..now], within)?;
            length -= now as u64;
        }
        Ok(())
    }
}

/// The checksum of a common block header of MTF: the exclusive or of its first 25 words of 16 bits. `None` if there are
/// fewer bytes than a header has.
pub fn header_checksum(header: &[u8]) -> Option<u16> {
    let words = header.first_chunk::<COMMON_HEADER>()?.as_chunks::<2>().0;
    Some(words.iter().take(25).fold(0, |sum, word| sum ^ u16::from_le_bytes(*word)))
}

/// The length in bytes of the soft filemark that begins with `header`: a whole number of units of 512 bytes. `None` if
/// its checksum or its length is wrong.
pub fn filemark_length(header: &[u8]) -> Option<usize> {
    let word = |at: usize| header.get(at..).and_then(|rest| rest.first_chunk()).map(|bytes| u16::from_le_bytes(*bytes));
    if !header.starts_with(FILEMARK) || header_checksum(header)? != word(COMMON_HEADER - 2)? {
        return None;
    }
    let length = word(8)?;
    (length > 0 && u64::from(length).is_multiple_of(UNIT)).then_some(length.into())
}
