//! The words of a block as one row of bits, and the bytes between them.
//!
//! The specification (MS-XCA, 2.2.4) reads two words at the start, and another word as soon as fewer than 16 bits are
//! left. A byte between the words is where this reader would be. A window of 64 bits reads further ahead, so it goes
//! back before it reads such a byte.

use super::XpressError;

/// A reader of bits, highest bit first.
pub(super) struct Bits<'a> {
    input: &'a [u8],
    /// Where the next word is read. Words behind the end are zeros.
    at: usize,
    /// The next bits; the first of them is the highest.
    window: u64,
    /// How many bits of `window` are from words before `at`.
    held: u32,
}

impl<'a> Bits<'a> {
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, at: 0, window: 0, held: 0 }
    }

    /// Reads words until there are at least 49 bits.
    #[inline]
    pub fn refill(&mut self) {
        let Some(bytes) = self.input.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) else {
            return self.refill_at_end();
        };
        if self.held > 48 {
            return;
        }
        // Four words, the first in the highest place. Bits of a word that does not fit are read again next time.
        let big = u64::from_be_bytes(*bytes);
        let low_bytes = 0x00FF_00FF_00FF_00FF;
        let words = (big & low_bytes) << 8 | (big >> 8) & low_bytes;
        self.window |= words >> self.held;
        let taken = (64 - self.held) / 16;
        self.held += 16 * taken;
        self.at += 2 * taken as usize;
    }

    #[cold]
    fn refill_at_end(&mut self) {
        while self.held <= 48 {
            let word = self.input.get(self.at..).and_then(|rest| rest.first_chunk::<2>());
            let word = word.map_or(0, |bytes| u16::from_le_bytes(*bytes));
            self.window |= u64::from(word) << (48 - self.held);
            self.held += 16;
            self.at += 2;
        }
    }

    /// The next `count` bits (1 to 32) as a number. They are not taken.
    #[inline]
    pub fn peek(&self, count: u32) -> usize {
        (self.window >> (64 - count)) as usize
    }

    /// Takes `count` bits; the caller has made sure that there are as many.
    #[inline]
    pub fn take(&mut self, count: u32) {
        self.window <<= count;
        self.held = self.held.wrapping_sub(count);
    }

    /// A distance, of which `count` bits (0 to 15) follow behind its highest bit.
    #[inline]
    pub fn distance(&mut self, count: u32) -> usize {
        // In two steps, because no shift has 64 places.
        let low = (self.window >> 1 >> (63 - count)) as usize;
        self.take(count);
        (1 << count) + low
    }

    /// The length of a long match, without the least length: one byte, or 255 and then two bytes, or those as 0 and
    /// then four bytes.
    pub fn long_length(&mut self) -> Result<usize, XpressError> {
        const LEAST: usize = super::LONG;
        self.go_back();
        let [byte] = self.bytes()?;
        if byte < u8::MAX {
            return Ok(usize::from(byte) + LEAST);
        }
        let length = match u16::from_le_bytes(self.bytes()?) {
            0 => u32::from_le_bytes(self.bytes()?) as usize,
            length => length.into(),
        };
        // Bounded here, so that no sum of it can overflow.
        match length {
            ..LEAST => Err(XpressError::WrongLength),
            LEAST..=super::BLOCK_MAX => Ok(length),
            _ => Err(XpressError::BehindEnd),
        }
    }

    /// Gives back the words that the reader of the specification would not have read yet. It holds 16 to 31 bits.
    fn go_back(&mut self) {
        let keep = 16 + self.held % 16;
        let words = self.held.saturating_sub(keep) / 16;
        self.at -= 2 * words as usize;
        self.held = keep;
        self.window &= !(u64::MAX >> keep);
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], XpressError> {
        let bytes = self.input.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).ok_or(XpressError::Truncated)?;
        self.at += N;
        Ok(*bytes)
    }

    /// How many bytes the reader of the specification would not have read. `None` if it would need more bytes.
    pub fn left(&mut self) -> Option<usize> {
        self.go_back();
        self.input.len().checked_sub(self.at)
    }
}
