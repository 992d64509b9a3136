//! The Standard Compression Scheme for Unicode (Unicode Technical Standard #6): text in rows with ROW or PAGE compression.

use super::{Decoded, unknown};

/// Windows that quoted bytes below 0x80 are in.
const STATIC: [u32; 8] = [0x0000, 0x0080, 0x0100, 0x0300, 0x2000, 0x2080, 0x2100, 0x3000];
/// Windows of bytes from 0x80 on, at the start.
const DYNAMIC: [u32; 8] = [0x0080, 0x00C0, 0x0400, 0x0600, 0x0900, 0x3040, 0x30A0, 0xFF00];

/// The units of UTF-16. One byte at the end may be left over: SQL Server adds it to make the length odd.
///
/// # Errors
/// A reserved byte, or a command that is cut off.
pub fn decode(bytes: &[u8]) -> Decoded<Vec<u16>> {
    let mut text = Text { windows: DYNAMIC, active: 0, units: Vec::with_capacity(bytes.len()) };
    let (mut rest, mut is_unicode) = (bytes, false);
    while let Some((command, after)) = rest.split_first() {
        let step = if is_unicode { text.wide(*command, after)? } else { text.narrow(*command, after)? };
        let Some(Step { used, unicode }) = step else {
            // Only the byte that makes the length odd may lack its operands.
            if after.is_empty() {
                break;
            }
            return unknown("a compressed text ends inside a command");
        };
        is_unicode = unicode;
        rest = after.get(used..).unwrap_or_default();
    }
    Ok(text.units)
}

/// What a command did: operands it used, and the mode behind it.
struct Step {
    used: usize,
    unicode: bool,
}

fn step(used: usize, unicode: bool) -> Decoded<Option<Step>> {
    Ok(Some(Step { used, unicode }))
}

struct Text {
    windows: [u32; 8],
    active: usize,
    units: Vec<u16>,
}

impl Text {
    /// A command in the mode of single bytes. `None` if its operands are cut off.
    fn narrow(&mut self, command: u8, after: &[u8]) -> Decoded<Option<Step>> {
        match (command, after) {
            (0x80..=0xFF, _) => {
                self.push(self.window(self.active) + u32::from(command - 0x80))?;
                step(0, false)
            }
            (0x00 | 0x09 | 0x0A | 0x0D | 0x20..=0x7F, _) => {
                self.units.push(command.into());
                step(0, false)
            }
            (0x01..=0x08, [byte, ..]) => {
                let number = usize::from(command - 1);
                let window = STATIC.get(number).copied().unwrap_or_default();
                self.push(if *byte < 0x80 {
                    window + u32::from(*byte)
                } else {
                    self.window(number) + u32::from(*byte - 0x80)
                })?;
                step(1, false)
            }
            (0x0B, [high, low, ..]) => {
                self.define_extended(*high, *low);
                step(2, false)
            }
            (0x0E, [high, low, ..]) => {
                self.units.push(u16::from_be_bytes([*high, *low]));
                step(2, false)
            }
            (0x0F, _) => step(0, true),
            (0x10..=0x17, _) => {
                self.active = usize::from(command - 0x10);
                step(0, false)
            }
            (0x18..=0x1F, [index, ..]) => {
                self.define(usize::from(command - 0x18), *index)?;
                step(1, false)
            }
            (0x0C, _) => unknown("a compressed text has a reserved byte"),
            _ => Ok(None),
        }
    }

    /// A command in the mode of units.
    fn wide(&mut self, command: u8, after: &[u8]) -> Decoded<Option<Step>> {
        match (command, after) {
            (0xE0..=0xE7, _) => {
                self.active = usize::from(command - 0xE0);
                step(0, false)
            }
            (0xE8..=0xEF, [index, ..]) => {
                self.define(usize::from(command - 0xE8), *index)?;
                step(1, false)
            }
            (0xF0, [high, low, ..]) => {
                self.units.push(u16::from_be_bytes([*high, *low]));
                step(2, true)
            }
            (0xF1, [high, low, ..]) => {
                self.define_extended(*high, *low);
                step(2, false)
            }
            (0xF2, _) => unknown("a compressed text has a reserved byte"),
            (0xE0..=0xF2, _) | (_, []) => Ok(None),
            (high, [low, ..]) => {
                self.units.push(u16::from_be_bytes([high, *low]));
                step(1, true)
            }
        }
    }

    fn window(&self, number: usize) -> u32 {
        self.windows.get(number).copied().unwrap_or_default()
    }

    fn select(&mut self, number: usize, window: u32) {
        if let Some(known) = self.windows.get_mut(number) {
            (*known, self.active) = (window, number);
        }
    }

    fn define(&mut self, number: usize, index: u8) -> Decoded<()> {
        let window = match index {
            0x01..=0x67 => u32::from(index) << 7,
            0x68..=0xA7 => (u32::from(index) << 7) + 0xAC00,
            0xF9 => 0x00C0,
            0xFA => 0x0250,
            0xFB => 0x0370,
            0xFC => 0x0530,
            0xFD => 0x3040,
            0xFE => 0x30A0,
            0xFF => 0xFF60,
            _ => return unknown("a compressed text has a reserved window"),
        };
        self.select(number, window);
        Ok(())
    }

    fn define_extended(&mut self, high: u8, low: u8) {
        let window = 0x1_0000 + ((u32::from(high & 0x1F) << 8 | u32::from(low)) << 7);
        self.select(usize::from(high >> 5), window);
    }

    fn push(&mut self, character: u32) -> Decoded<()> {
        match char::from_u32(character) {
            Some(character) => {
                self.units.extend_from_slice(character.encode_utf16(&mut [0; 2]));
                Ok(())
            }
            None => unknown("a compressed text has a character that does not exist"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        String::from_utf16(&decode(bytes).unwrap()).unwrap()
    }

    /// The samples of the standard, section 9.
    #[test]
    fn the_samples_of_the_standard_are_decoded() {
        assert_eq!(text(b"\xD6l flie\xDFt"), "Öl fließt");
        assert_eq!(text(b"\x12\x9C\xBE\xC1\xBA\xB2\xB0"), "Москва");
        let japanese = [
            0x08, 0x00, 0x1B, 0x4C, 0xEA, 0x16, 0xCA, 0xD3, 0x94, 0x0F, 0x53, 0xEF, 0x61, 0x1B, 0xE5, 0x84, 0xC4, 0x0F,
            0x53, 0xEF, 0x61, 0x1B, 0xE5, 0x84, 0xC4, 0x16, 0xCA, 0xD3, 0x94, 0x08, 0x02, 0x0F, 0x53, 0x4A, 0x4E, 0x16,
            0x7D, 0x00, 0x30, 0x82, 0x52, 0x4D, 0x30, 0x6B, 0x6D, 0x41, 0x88, 0x4C, 0xE5, 0x97, 0x9F, 0x08, 0x0C, 0x16,
            0xCA, 0xD3, 0x94, 0x15, 0xAE, 0x0E, 0x6B, 0x4C, 0x08, 0x0D, 0x8C, 0xB4, 0xA3, 0x9F, 0xCA, 0x99, 0xCB, 0x8B,
            0xC2, 0x97, 0xCC, 0xAA, 0x84, 0x08, 0x02, 0x0E, 0x7C, 0x73, 0xE2, 0x16, 0xA3, 0xB7, 0xCB, 0x93, 0xD3, 0xB4,
            0xC5, 0xDC, 0x9F, 0x0E, 0x79, 0x3E, 0x06, 0xAE, 0xB1, 0x9D, 0x93, 0xD3, 0x08, 0x0C, 0xBE, 0xA3, 0x8F, 0x08,
            0x88, 0xBE, 0xA3, 0x8D, 0xD3, 0xA8, 0xA3, 0x97, 0xC5, 0x17, 0x89, 0x08, 0x0D, 0x15, 0xD2, 0x08, 0x01, 0x93,
            0xC8, 0xAA, 0x8F, 0x0E, 0x61, 0x1B, 0x99, 0xCB, 0x0E, 0x4E, 0xBA, 0x9F, 0xA1, 0xAE, 0x93, 0xA8, 0xA0, 0x08,
            0x02, 0x08, 0x0C, 0xE2, 0x16, 0xA3, 0xB7, 0xCB, 0x0F, 0x4F, 0xE1, 0x80, 0x05, 0xEC, 0x60, 0x8D, 0xEA, 0x06,
            0xD3, 0xE6, 0x0F, 0x8A, 0x00, 0x30, 0x44, 0x65, 0xB9, 0xE4, 0xFE, 0xE7, 0xC2, 0x06, 0xCB, 0x82,
        ];
        let decoded = text(&japanese);
        assert!(decoded.starts_with("\u{3000}♪リンゴ可愛いや可愛いやリンゴ。半世紀も前に流行した「"), "{decoded}");
        let supplementary = [
            0x41, 0xDF, 0x12, 0x81, 0x03, 0x5F, 0x10, 0xDF, 0x1B, 0x03, 0xDF, 0x1C, 0x88, 0x80, 0x0B, 0xBF, 0xFF, 0xFF,
            0x0D, 0x0A, 0x41, 0x10, 0xDF, 0x12, 0x81, 0x03, 0x5F, 0x10, 0xDF, 0x13, 0xDF, 0x14, 0x80, 0x15, 0xFF,
        ];
        let line = "A\u{DF}\u{401}\u{15F}\u{DF}\u{1DF}\u{F000}\u{10FFFF}";
        assert_eq!(text(&supplementary), format!("{line}\r\n{line}"));
    }

    #[test]
    fn one_byte_at_the_end_may_be_left_over_and_nothing_else() {
        assert_eq!(text(b"abcd\x10"), "abcd");
        assert_eq!(text(&[0x43, 0x00, 0x0F, 0x1D, 0x80, 0x02, 0x8F, 0x02]), "C\0\u{1D80}\u{28F}");
        assert!(decode(&[0x0E, 0x30]).is_err());
        assert!(decode(&[0x18, 0x00]).is_err());
        assert!(decode(&[0x0C, 0x41]).is_err());
    }
}
