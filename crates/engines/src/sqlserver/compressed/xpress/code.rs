//! The Huffman code of a block: code lengths become tables, and bits become symbols.
//!
//! The code is canonical (MS-XCA, 2.1.4.2): symbols in the order of their length, then of their number, get ascending
//! codes. So 15 bits as a number, compared with the end of each length's range, tell the length. A table answers for
//! codes of up to 11 bits at once.

use super::bits::Bits;
use super::{SYMBOLS, TABLE, XpressError};

/// Bits of the longest code.
const LONGEST: usize = 15;
/// Bits that the table looks at. 2048 entries of 2 bytes stay in the processor's first cache.
const SHORT: usize = 11;
/// All codes of 15 bits.
const ALL: usize = 1 << LONGEST;

/// The tables of one code.
pub(super) struct Code {
    /// By the next 11 bits: symbol × 16 + length. 0 for the start of a longer code.
    short: [u16; 1 << SHORT],
    /// The symbols in the order of their codes.
    sorted: [u16; SYMBOLS],
    /// Of each length: the range of its codes, filled up to 15 bits.
    ranges: [Range; LONGEST + 1],
}

/// The codes of one length.
#[derive(Clone, Copy, Default)]
struct Range {
    /// The first code, with zeros up to 15 bits.
    start: usize,
    /// The code behind the last one.
    end: usize,
    /// Where its first symbol is in the sorted symbols.
    first: usize,
}

impl Default for Code {
    fn default() -> Self {
        Self { short: [0; 1 << SHORT], sorted: [0; SYMBOLS], ranges: [Range::default(); LONGEST + 1] }
    }
}

impl Code {
    /// Makes the tables from the code lengths of all symbols.
    ///
    /// # Errors
    /// The lengths do not make a complete code: some bits would mean nothing, or two symbols.
    pub fn build(&mut self, lengths: &[u8; TABLE]) -> Result<(), XpressError> {
        let mut counts = [0_usize; LONGEST + 1];
        for byte in lengths {
            counts[usize::from(byte & 15)] += 1;
            counts[usize::from(byte >> 4)] += 1;
        }
        let (mut code, mut first) = (0, 0);
        let mut places = [0_usize; LONGEST + 1];
        for length in 1..=LONGEST {
            let end = code + (counts[length] << (LONGEST - length));
            self.ranges[length] = Range { start: code, end, first };
            places[length] = first;
            code = end;
            first += counts[length];
        }
        if code != ALL {
            return Err(XpressError::NotACode);
        }
        for (pair, byte) in (0_u16..).zip(lengths) {
            for (symbol, length) in [(2 * pair, byte & 15), (2 * pair + 1, byte >> 4)] {
                // Length 0 is a symbol without a code.
                if length > 0 {
                    let place = &mut places[usize::from(length)];
                    if let Some(sorted) = self.sorted.get_mut(*place) {
                        *sorted = symbol;
                    }
                    *place += 1;
                }
            }
        }
        self.fill_short(&counts);
        Ok(())
    }

    fn fill_short(&mut self, counts: &[usize; LONGEST + 1]) {
        let mut rest = &mut self.short[..];
        let mut symbols = self.sorted.iter();
        for (length, count) in counts.iter().enumerate().take(SHORT + 1).skip(1) {
            for symbol in symbols.by_ref().take(*count) {
                let (entries, behind) = rest.split_at_mut(rest.len().min(1 << (SHORT - length)));
                entries.fill(symbol << 4 | length as u16);
                rest = behind;
            }
        }
        rest.fill(0);
    }

    /// Takes the next symbol; the caller has made sure that there are 15 bits.
    #[inline]
    pub fn next(&self, bits: &mut Bits<'_>) -> u16 {
        // 11 bits as a number are always a place in the table; the mask shows this to the compiler.
        let entry = self.short[bits.peek(SHORT as u32) & ((1 << SHORT) - 1)];
        let length = u32::from(entry & 15);
        if length == 0 {
            return self.next_long(bits);
        }
        bits.take(length);
        entry >> 4
    }

    fn next_long(&self, bits: &mut Bits<'_>) -> u16 {
        let code = bits.peek(LONGEST as u32);
        for (length, range) in self.ranges.iter().enumerate().skip(SHORT + 1) {
            if code < range.end {
                bits.take(length as u32);
                let place = range.first + (code.saturating_sub(range.start) >> (LONGEST - length));
                return self.sorted.get(place).copied().unwrap_or(0);
            }
        }
        0 // The code is complete: the last range ends behind all codes.
    }
}
