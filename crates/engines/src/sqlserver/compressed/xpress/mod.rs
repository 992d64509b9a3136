//! XPRESS Huffman: unpacks one block of LZ77+Huffman, from the text of MS-XCA, sections 2.1.4 and 2.2.
//!
//! ```text
//! 0    256 bytes   length of the code of each of 512 symbols, 4 bits each, the low half first; 0: not used
//! 256  the rest    codes as 16-bit little-endian words, highest bit first; between them, long lengths as bytes
//! ```
//! Symbols 0 to 255 are bytes. The others are a match: the low 4 bits say its length, the next 4 how many bits of its
//! distance follow. A block has at most 65,536 plain bytes. Its plain length is known before.

mod bits;
mod code;
#[cfg(any(test, feature = "testkit"))]
mod compress;
#[cfg(test)]
mod tests;

use std::fmt;

use bits::Bits;
use code::Code;
#[cfg(any(test, feature = "testkit"))]
pub use compress::compress;

/// Most plain bytes of a block.
pub const BLOCK_MAX: usize = 65_536;
/// Bytes of the code lengths at the start of a block.
const TABLE: usize = 256;
/// Symbols: 256 bytes, then 256 kinds of a match.
const SYMBOLS: usize = 512;
/// The symbol behind the last plain byte. Before, it is a match.
const END: u16 = 256;
/// The first symbol that is a match.
const FIRST_MATCH: u16 = 256;
/// The least length of a match in bytes.
const LEAST_MATCH: usize = 3;
/// A length symbol that says: the length follows in bytes.
const LONG: usize = 15;
/// Bytes that a short match copies at once.
const AT_ONCE: usize = 16;

/// Why a block cannot be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XpressError {
    /// More plain bytes are asked for than a block can have.
    TooLong,
    /// The block ends inside the code lengths.
    NoTable,
    /// The code lengths are not those of a complete prefix code.
    NotACode,
    /// The block ends before its last plain byte.
    Truncated,
    /// The block has more behind its last plain byte.
    TooMuch,
    /// A match begins before the first plain byte.
    BeforeStart,
    /// A match ends behind the last plain byte.
    BehindEnd,
    /// A long length is one that a shorter form has.
    WrongLength,
}

impl fmt::Display for XpressError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TooLong => "more than 65536 plain bytes are expected of one block",
            Self::NoTable => "the block ends inside its 256 bytes of code lengths",
            Self::NotACode => "the code lengths are not those of a complete Huffman code",
            Self::Truncated => "the block ends before its last plain byte",
            Self::TooMuch => "the block does not end behind its last plain byte",
            Self::BeforeStart => "a match begins before the first plain byte",
            Self::BehindEnd => "a match ends behind the last plain byte",
            Self::WrongLength => "the length of a match is not in its shortest form",
        })
    }
}

impl std::error::Error for XpressError {}

/// Unpacks blocks; its tables are used again for the next block.
#[derive(Default)]
pub struct Decoder {
    code: Code,
}

impl Decoder {
    /// Unpacks the block `packed` into exactly `plain`. The end symbol has to follow, and then no byte.
    ///
    /// # Errors
    /// The block is damaged. `plain` has undefined bytes then.
    pub fn decode(&mut self, packed: &[u8], plain: &mut [u8]) -> Result<(), XpressError> {
        if plain.len() > BLOCK_MAX {
            return Err(XpressError::TooLong);
        }
        let (lengths, codes) = packed.split_first_chunk::<TABLE>().ok_or(XpressError::NoTable)?;
        self.code.build(lengths)?;
        let mut bits = Bits::new(codes);
        self.fill(&mut bits, plain)?;
        self.check_end(&mut bits)
    }

    /// A wrong plain length is found here, because no checksum covers it.
    fn check_end(&self, bits: &mut Bits<'_>) -> Result<(), XpressError> {
        bits.refill();
        let symbol = self.code.next(bits);
        match bits.left() {
            None => Err(XpressError::Truncated),
            Some(0) if symbol == END => Ok(()),
            Some(_) => Err(XpressError::TooMuch),
        }
    }

    fn fill(&self, bits: &mut Bits<'_>, plain: &mut [u8]) -> Result<(), XpressError> {
        let mut at = 0;
        while let Some(place) = plain.get_mut(at) {
            // At least 49 bits: enough for two symbols and a distance, of 15 bits each.
            bits.refill();
            let mut symbol = self.code.next(bits);
            if symbol < FIRST_MATCH {
                *place = symbol as u8;
                at += 1;
                let Some(place) = plain.get_mut(at) else { break };
                symbol = self.code.next(bits);
                if symbol < FIRST_MATCH {
                    *place = symbol as u8;
                    at += 1;
                    continue;
                }
            }
            let kind = usize::from(symbol - FIRST_MATCH);
            let length = match kind % 16 {
                LONG => bits.long_length()?,
                short => short,
            } + LEAST_MATCH;
            let distance = bits.distance((kind / 16) as u32);
            copy(plain, at, distance, length)?;
            at += length;
        }
        Ok(())
    }
}

/// Copies `length` bytes that are `distance` bytes before `at` to `at`; the two ranges may overlap.
#[inline]
fn copy(plain: &mut [u8], at: usize, distance: usize, length: usize) -> Result<(), XpressError> {
    let from = at.checked_sub(distance).ok_or(XpressError::BeforeStart)?;
    // Most matches are short. 16 bytes are copied as one value; those behind the match are overwritten later.
    if length <= AT_ONCE && distance >= AT_ONCE {
        let bytes = plain.get(from..).and_then(|source| source.first_chunk::<AT_ONCE>()).copied();
        let place = plain.get_mut(at..).and_then(|target| target.first_chunk_mut::<AT_ONCE>());
        if let (Some(bytes), Some(place)) = (bytes, place) {
            *place = bytes;
            return Ok(());
        }
    }
    let end = at.checked_add(length).filter(|&end| end <= plain.len()).ok_or(XpressError::BehindEnd)?;
    // An overlapping match repeats its bytes: each step doubles what can be copied at once.
    let mut next = at;
    while next < end {
        let run = (next - from).min(end - next);
        plain.copy_within(from..from + run, next);
        next += run;
    }
    Ok(())
}
