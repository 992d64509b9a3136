//! Texts in the character sets of a server. `SHOW CHARACTER SET` has their names.

use std::borrow::Cow;

use encoding_rs::Encoding;

/// How the bytes of a column become text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charset {
    /// UTF-8, of three or four bytes at most.
    Utf8,
    /// Units of two bytes, the high byte first.
    Utf16,
    /// Units of two bytes, the low byte first.
    Utf16Le,
    /// Characters of four bytes, the high byte first.
    Utf32,
    /// A code page. It was compared with servers of both vendors, byte for byte.
    Page(&'static Encoding),
    /// A code page of one byte for each character. The characters of these bytes differ, so they are not known.
    Without(&'static Encoding, (u8, u8)),
    /// Only its ASCII characters are known.
    Ascii,
}

impl Charset {
    /// By its name. `None` if even its ASCII characters are not known.
    pub fn named(name: &str) -> Option<Self> {
        use encoding_rs::*;
        Some(match name {
            "utf8mb4" | "utf8mb3" | "utf8" => Self::Utf8,
            "utf16" | "ucs2" => Self::Utf16,
            "utf16le" => Self::Utf16Le,
            "utf32" => Self::Utf32,
            "latin1" => Self::Page(WINDOWS_1252),
            "latin2" => Self::Page(ISO_8859_2),
            "latin7" => Self::Page(ISO_8859_13),
            "cp1250" => Self::Page(WINDOWS_1250),
            "cp1251" => Self::Page(WINDOWS_1251),
            "cp1256" => Self::Page(WINDOWS_1256),
            "cp1257" => Self::Page(WINDOWS_1257),
            "koi8r" => Self::Page(KOI8_R),
            "macroman" => Self::Page(MACINTOSH),
            "gbk" => Self::Page(GBK),
            "euckr" => Self::Page(EUC_KR),
            "cp932" => Self::Page(SHIFT_JIS),
            "latin5" => Self::Without(WINDOWS_1254, (0x80, 0x9F)),
            "greek" => Self::Without(ISO_8859_7, (0xA1, 0xA2)),
            "hebrew" => Self::Without(ISO_8859_8, (0xAF, 0xAF)),
            "cp866" => Self::Without(IBM866, (0xFC, 0xFD)),
            "ascii" | "armscii8" | "big5" | "cp850" | "cp852" | "dec8" | "eucjpms" | "gb18030" | "gb2312"
            | "geostd8" | "hp8" | "keybcs2" | "koi8u" | "macce" | "sjis" | "tis620" | "ujis" => Self::Ascii,
            _ => return None,
        })
    }

    /// The text of these bytes. `None` if they are not of this character set, or not known.
    pub fn text(self, bytes: Vec<u8>) -> Option<String> {
        match self {
            Self::Utf8 => String::from_utf8(bytes).ok(),
            Self::Ascii | Self::Page(_) | Self::Without(..) if bytes.is_ascii() => String::from_utf8(bytes).ok(),
            Self::Page(page) => page.decode_without_bom_handling_and_without_replacement(&bytes).map(Cow::into_owned),
            Self::Utf16 => utf16(&bytes, u16::from_be_bytes),
            Self::Utf16Le => utf16(&bytes, u16::from_le_bytes),
            Self::Utf32 => {
                let (letters, rest) = bytes.as_chunks();
                let letters = letters.iter().map(|bytes| char::from_u32(u32::from_be_bytes(*bytes)));
                letters.collect::<Option<String>>().filter(|_| rest.is_empty())
            }
            Self::Without(page, (first, last)) => {
                let is_known = !bytes.iter().any(|byte| (first..=last).contains(byte));
                Self::Page(page).text(bytes).filter(|_| is_known)
            }
            Self::Ascii => None,
        }
    }

    /// A text in a character set of single bytes. `None` if it is another one, or the text has other characters.
    pub fn single_bytes(self, text: &str) -> Option<Vec<u8>> {
        let (Self::Page(page) | Self::Without(page, _)) = self else { return None };
        let bytes = page.is_single_byte().then(|| page.encode(text).0.into_owned())?;
        (self.text(bytes.clone()).as_deref() == Some(text)).then_some(bytes)
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let (units, rest) = bytes.as_chunks();
    let letters = char::decode_utf16(units.iter().map(|bytes| unit(*bytes)));
    letters.collect::<Result<String, _>>().ok().filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_character_set_of_their_column_and_unknown_bytes_are_not_guessed() {
        for (charset, bytes, text) in [
            ("utf8mb4", "ü😀".as_bytes(), Some("ü😀")),
            ("utf8mb4", b"\xFC", None),
            ("latin1", b"\xE4\x80\x81", Some("ä€\u{81}")),
            ("utf16", b"\xD8\x3D\xDE\x00\0a", Some("😀a")),
            ("utf16", b"\xD8\x3D", None),
            ("ucs2", b"\0", None),
            ("utf16le", b"a\0", Some("a")),
            ("utf32", b"\0\x01\xF6\0", Some("😀")),
            ("utf32", b"\0\x01\xF6", None),
            ("gbk", b"\xB5\x5C", Some("礬")),
            ("latin5", b"\xDD", Some("İ")),
            ("latin5", b"\x80", None),
            ("cp850", b"plain", Some("plain")),
            ("cp850", b"\x81", None),
        ] {
            let found = Charset::named(charset).and_then(|charset| charset.text(bytes.to_vec()));
            assert_eq!(found.as_deref(), text, "{charset} {bytes:?}");
        }
        assert_eq!(Charset::named("swe7"), None);
    }
}
