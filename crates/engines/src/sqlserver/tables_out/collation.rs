//! Text that is not Unicode: the code page of its collation.
//!
//! The highest byte of a collation id is the sort order of a SQL collation, which Microsoft lists with its code page. The
//! lower bits are the number of a Windows collation and its flags. Only some numbers are known, so the collation of the
//! database has the code page of the locale in its backup header. In all code pages, the lower half is ASCII.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};

use encoding_rs::Encoding;

use super::oem_pages::{CP437, CP850};
use super::{Decoded, unknown};

/// How one byte, or two, become a character.
#[derive(Clone, Copy)]
enum CodePage {
    Windows(&'static Encoding),
    /// The upper half of a code page of MS-DOS.
    Oem(&'static str),
}

/// The flags of Windows collations: case, accents, kana, width, binary order.
const FLAGS: u32 = 0x1_F000;
/// The number of a Windows collation.
const NUMBER: u32 = 0xFFF;
/// The number of Latin1_General.
const LATIN1_GENERAL: u32 = 8;

/// Texts whose memory is used again, at most.
const SPARE: usize = 64;

/// The code pages of one database. It counts characters that Unicode cannot express.
pub struct CodePages {
    /// The collation of the database, and the locale in its backup header.
    database: (u32, u32),
    replaced: Cell<u64>,
    /// The memory of texts that are not needed any more.
    spare: RefCell<Vec<String>>,
}

impl CodePages {
    /// `collation` is that of the database, `locale` its UnicodeLocaleId.
    pub fn new(collation: u32, locale: u32) -> Self {
        Self { database: (collation, locale), replaced: Cell::new(0), spare: RefCell::default() }
    }

    /// Takes the memory of a text that is not needed any more.
    pub fn recycle(&self, mut text: String) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE {
            text.clear();
            spare.push(text);
        }
    }

    fn empty(&self) -> String {
        self.spare.borrow_mut().pop().unwrap_or_default()
    }

    /// How many texts had characters that do not exist in Unicode; each became U+FFFD. The count begins again.
    pub fn take_replaced(&self) -> u64 {
        self.replaced.take()
    }

    /// Text in the code page of its collation.
    ///
    /// # Errors
    /// The code page is not known, and a character is not ASCII.
    pub fn decode(&self, bytes: &[u8], collation: u32) -> Decoded<String> {
        if let Some(text) = str::from_utf8(bytes).ok().filter(|text| text.is_ascii()) {
            let mut out = self.empty();
            out.push_str(text);
            return Ok(out);
        }
        match self.code_page(collation) {
            Some(CodePage::Windows(encoding)) => {
                let (text, had_errors) = encoding.decode_without_bom_handling(bytes);
                self.count(had_errors);
                Ok(text.into_owned())
            }
            Some(CodePage::Oem(upper)) => Ok(bytes.iter().map(|byte| oem(*byte, upper)).collect()),
            None => unknown(format!("collation {collation:#x} is not known, so neither is its code page")),
        }
    }

    /// Text in UTF-16.
    ///
    /// # Errors
    /// Its length is odd.
    pub fn decode_utf16(&self, bytes: &[u8]) -> Decoded<String> {
        let (units, rest) = bytes.as_chunks::<2>();
        if !rest.is_empty() {
            return unknown("a text in UTF-16 has an odd length");
        }
        let mut out = self.empty();
        let mut is_replaced = false;
        for unit in char::decode_utf16(units.iter().map(|unit| u16::from_le_bytes(*unit))) {
            out.push(unit.unwrap_or_else(|_| {
                is_replaced = true;
                char::REPLACEMENT_CHARACTER
            }));
        }
        self.count(is_replaced);
        Ok(out)
    }

    fn count(&self, is_replaced: bool) {
        self.replaced.set(self.replaced.get() + u64::from(is_replaced));
    }

    fn code_page(&self, collation: u32) -> Option<CodePage> {
        let order = collation >> 24;
        if order != 0 {
            return of_sort_order(order);
        }
        if collation & !(FLAGS | NUMBER) != 0 {
            return None;
        }
        let (own, locale) = self.database;
        match collation & NUMBER {
            LATIN1_GENERAL => Some(CodePage::Windows(encoding_rs::WINDOWS_1252)),
            number if own >> 24 == 0 && own & !FLAGS == number => of_locale(locale).map(CodePage::Windows),
            _ => None,
        }
    }
}

fn oem(byte: u8, upper: &str) -> char {
    match byte.checked_sub(0x80) {
        None => char::from(byte),
        Some(at) => upper.chars().nth(at.into()).unwrap_or(char::REPLACEMENT_CHARACTER),
    }
}

/// Sort orders of SQL collations, as Microsoft lists them under "SQL Server Collation Name".
fn of_sort_order(order: u32) -> Option<CodePage> {
    use encoding_rs::*;
    Some(match order {
        30..=35 => CodePage::Oem(CP437),
        40..=44 | 49 | 55..=61 => CodePage::Oem(CP850),
        50..=54 | 71..=75 | 183..=186 => CodePage::Windows(WINDOWS_1252),
        80..=98 => CodePage::Windows(WINDOWS_1250),
        104..=108 => CodePage::Windows(WINDOWS_1251),
        112..=114 | 120..=122 | 124 => CodePage::Windows(WINDOWS_1253),
        128..=130 => CodePage::Windows(WINDOWS_1254),
        136..=138 => CodePage::Windows(WINDOWS_1255),
        144..=146 => CodePage::Windows(WINDOWS_1256),
        152..=160 => CodePage::Windows(WINDOWS_1257),
        _ => return None,
    })
}

/// The code page of a Windows locale: by its language, and for some by its country.
fn of_locale(locale: u32) -> Option<&'static Encoding> {
    use encoding_rs::*;
    Some(match (locale & 0x3FF, locale & 0xFFFF) {
        (_, 0x0404 | 0x0C04 | 0x1404) => BIG5,
        (_, 0x0804 | 0x1004) => GBK,
        (_, 0x0C1A) => WINDOWS_1251,
        (0x11, _) => SHIFT_JIS,
        (0x12, _) => EUC_KR,
        (0x1E, _) => WINDOWS_874,
        (0x05 | 0x0E | 0x15 | 0x18 | 0x1A | 0x1B | 0x1C | 0x24, _) => WINDOWS_1250,
        (0x02 | 0x19 | 0x22 | 0x23 | 0x2F | 0x3F, _) => WINDOWS_1251,
        (0x06 | 0x07 | 0x09 | 0x0A | 0x0B | 0x0C | 0x0F | 0x10 | 0x13 | 0x14 | 0x16 | 0x1D, _) => WINDOWS_1252,
        (0x08, _) => WINDOWS_1253,
        (0x1F, _) => WINDOWS_1254,
        (0x0D, _) => WINDOWS_1255,
        (0x01 | 0x20 | 0x29, _) => WINDOWS_1256,
        (0x25..=0x27, _) => WINDOWS_1257,
        (0x2A, _) => WINDOWS_1258,
        _ => return None,
    })
}

/// The bytes of a value: in its row, or gathered from other pages.
pub type Bytes<'a> = Cow<'a, [u8]>;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn text_has_the_code_page_of_its_collation() {
        let pages = CodePages::new(0xD003, 0x0419);
        assert_eq!(pages.decode(b"caf\xE9", 0x3400_D008).unwrap(), "café", "sort order 52");
        assert_eq!(pages.decode(b"caf\xE9", 0xD008).unwrap(), "café", "Latin1_General");
        assert_eq!(pages.decode(b"caf\x82", 0x1F00_C008).unwrap(), "café", "code page 437");
        assert_eq!(pages.decode(b"\x81", 0x2800_0000).unwrap(), "ü", "code page 850");
        assert_eq!(pages.decode(b"\xCF\xF0", 0xC003).unwrap(), "Пр", "the collation of the database is Russian");
    }

    #[test]
    fn an_unknown_collation_is_refused_unless_the_text_is_ascii() {
        let pages = CodePages::new(0xD008, 0x0409);
        assert_eq!(pages.decode(b"plain", 0x00F4_D0AA).unwrap(), "plain");
        assert!(pages.decode(b"caf\xE9", 0x00F4_D0AA).is_err());
        assert!(pages.decode(b"caf\xE9", 0xD003).is_err(), "another number than that of the database");
    }

    #[test]
    fn half_a_pair_of_surrogates_is_counted() {
        let pages = CodePages::new(0, 0);
        assert_eq!(pages.decode_utf16(&[0x41, 0, 0x3D, 0xD8]).unwrap(), "A\u{FFFD}");
        assert_eq!((pages.take_replaced(), pages.take_replaced()), (1, 0));
        assert!(pages.decode_utf16(&[0x41]).is_err());
    }
}
