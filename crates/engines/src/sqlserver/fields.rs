//! Fields at fixed offsets of a block, in little-endian order, and the strings that they point to.

use jiff::civil::DateTime;
use uuid::Uuid;

use super::lsn::Lsn;

/// A field that cannot be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrong {
    /// The offset of the field from the start of its block, in bytes.
    pub at: usize,
    /// The problem, as the end of "`x.bak` is damaged at byte 9: ".
    pub what: &'static str,
}

/// The result of parsing a block.
pub type Parsed<T> = Result<T, Wrong>;

/// The encoding of the strings in a block (MTF: string type).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StringType {
    /// The block has no strings.
    None,
    /// One byte for each character.
    Ansi,
    /// UTF-16, little-endian.
    Utf16,
}

/// The bytes of a block.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    /// `N` bytes at `at`.
    ///
    /// # Errors
    /// The block is shorter.
    pub fn bytes<const N: usize>(self, at: usize) -> Parsed<[u8; N]> {
        let end = at.checked_add(N);
        let found = end.and_then(|end| self.0.get(at..end)).and_then(|bytes| bytes.try_into().ok());
        found.ok_or(Wrong { at, what: "the block is shorter than its fields" })
    }

    /// One byte.
    ///
    /// # Errors
    /// The block is shorter; this is the error of the other numbers too.
    pub fn u8(self, at: usize) -> Parsed<u8> {
        self.bytes(at).map(u8::from_le_bytes)
    }

    /// Two bytes.
    ///
    /// # Errors
    /// As of [`u8`](Self::u8).
    pub fn u16(self, at: usize) -> Parsed<u16> {
        self.bytes(at).map(u16::from_le_bytes)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// As of [`u8`](Self::u8).
    pub fn u32(self, at: usize) -> Parsed<u32> {
        self.bytes(at).map(u32::from_le_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// As of [`u8`](Self::u8).
    pub fn u64(self, at: usize) -> Parsed<u64> {
        self.bytes(at).map(u64::from_le_bytes)
    }

    /// A log sequence number.
    ///
    /// # Errors
    /// As of [`u8`](Self::u8).
    pub fn lsn(self, at: usize) -> Parsed<Lsn> {
        self.bytes(at).map(Lsn::from_bytes)
    }

    /// A GUID in the order of Windows.
    ///
    /// # Errors
    /// As of [`u8`](Self::u8).
    pub fn guid(self, at: usize) -> Parsed<Uuid> {
        self.bytes(at).map(Uuid::from_bytes_le)
    }

    /// A packed date in the time zone of the server: 14 bits of year, 4 of month, 5 of day, 5 of hour, 6 of minute, 6 of
    /// second, most significant first. `None` if all of it is zero.
    ///
    /// # Errors
    /// The block is shorter, or this is not a date.
    pub fn date(self, at: usize) -> Parsed<Option<DateTime>> {
        let packed = self.bytes::<5>(at)?;
        if packed == [0; 5] {
            return Ok(None);
        }
        let bits = packed.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        let part = |shift: u32, width: u32| (bits >> shift & ((1 << width) - 1)) as i8;
        let year = (bits >> 26) as i16;
        let date = DateTime::new(year, part(22, 4), part(17, 5), part(12, 5), part(6, 6), part(0, 6), 0);
        date.map(Some).map_err(|_| Wrong { at, what: "a date has a month, a day or a time that does not exist" })
    }

    /// The string that an address at `at` names: its length in bytes, and its offset in this block.
    ///
    /// # Errors
    /// The block is shorter, or the string is not inside it.
    pub fn text(self, at: usize, kind: StringType) -> Parsed<String> {
        let (length, offset) = (usize::from(self.u16(at)?), usize::from(self.u16(at + 2)?));
        if length == 0 || kind == StringType::None {
            return Ok(String::new());
        }
        let outside = Wrong { at, what: "a string is outside its block" };
        let bytes = self.0.get(offset..offset + length).ok_or(outside)?;
        let text = match kind {
            StringType::Utf16 => {
                let (units, odd) = bytes.as_chunks::<2>();
                if !odd.is_empty() {
                    return Err(Wrong { at, what: "a string in UTF-16 has an odd length" });
                }
                let units: Vec<u16> = units.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
                String::from_utf16_lossy(&units)
            }
            StringType::Ansi | StringType::None => bytes.iter().map(|byte| char::from(*byte)).collect(),
        };
        Ok(text.trim_end_matches('\0').to_owned())
    }
}

/// The exclusive or of all 16-bit words of `bytes`: MTF's checksum of headers.
pub fn xor_of_words(bytes: &[u8]) -> u16 {
    bytes.as_chunks::<2>().0.iter().fold(0, |sum, word| sum ^ u16::from_le_bytes(*word))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_date_of_a_genuine_file_is_read_and_zeros_are_no_date() {
        let fields = Fields(&[0x1f, 0x95, 0xa0, 0xa0, 0xda, 0, 0, 0, 0, 0]);
        assert_eq!(fields.date(0).unwrap().unwrap().to_string(), "2021-06-16T10:03:26");
        assert_eq!(fields.date(5), Ok(None));
    }

    #[test]
    fn a_date_that_does_not_exist_and_a_block_that_is_too_short_are_wrong() {
        let month_15 = Fields(&[0x1f, 0x97, 0xe0, 0xa0, 0xda]);
        assert!(month_15.date(0).unwrap_err().what.contains("date"));
        assert!(month_15.date(1).unwrap_err().what.contains("shorter"));
        assert!(month_15.u64(usize::MAX).is_err());
    }

    #[test]
    fn a_string_outside_its_block_is_wrong_and_an_empty_one_may_point_anywhere() {
        let block = |length: u16, offset: u16| [length.to_le_bytes(), offset.to_le_bytes(), *b"a\0", *b"b\0"].concat();
        assert_eq!(Fields(&block(4, 4)).text(0, StringType::Utf16).unwrap(), "ab");
        assert_eq!(Fields(&block(3, 4)).text(0, StringType::Ansi).unwrap(), "a\0b");
        assert_eq!(Fields(&block(0, 0xFFFF)).text(0, StringType::Utf16).unwrap(), "");
        for (length, offset) in [(4, 5), (0xFFFF, 0), (2, 0xFFFF), (3, 4)] {
            assert!(Fields(&block(length, offset)).text(0, StringType::Utf16).is_err(), "{length} at {offset}");
        }
    }
}
