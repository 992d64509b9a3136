//! `xml` as SQL Server stores it, as text: the binary form that Microsoft publishes as MS-BINXML. No sample was seen.
//!
//! | bytes | part |
//! |---|---|
//! | `DF FF`, 1, 1200 | signature, version (1 byte), code page (2 bytes): UTF-16 |
//! | `F0` | a name: its length in characters, then UTF-16. Names have numbers from 1; 0 is the empty name |
//! | `EF` | a qualified name: the numbers of its namespace, prefix and local name. They have numbers from 1, too |
//! | `F8`, `F6` | an element, an attribute: the number of its qualified name |
//! | `F5`, `F7` | the attributes end, the element ends |
//! | `F2`, `F1` | a part of a CDATA section: text; the section ends |
//! | `F3` | a comment: text |
//! | `F4` | a processing instruction: the number of its name, then text |
//! | `11` | text of an element or an attribute |
//! | `E9`, `EA` | all names are forgotten; an extension that is left out: its length |
//!
//! A number and a length have 7 bits in each byte, the lowest first. Text is a length in characters, then UTF-16. Values
//! of an XML schema have other tokens: they are refused.

use super::super::fields::Fields;
use super::collation::CodePages;
use super::{Decoded, field, unknown};

/// Bytes of signature, version and code page.
const HEAD: usize = 5;
/// Elements in each other. SQL Server allows 128.
const DEPTH_MAX: usize = 128;
/// The text may have so many bytes for each byte that is stored, and as many more. A name is stored once and written often.
const TEXT_FOR_EACH_BYTE: usize = 64;
const TEXT_MORE: usize = 1 << 20;

mod token {
    #![allow(missing_docs)]
    pub const NVARCHAR: u8 = 0x11;
    pub const FORGET: u8 = 0xE9;
    pub const EXTENSION: u8 = 0xEA;
    pub const QUALIFIED: u8 = 0xEF;
    pub const NAME: u8 = 0xF0;
    pub const CDATA_ENDS: u8 = 0xF1;
    pub const CDATA: u8 = 0xF2;
    pub const COMMENT: u8 = 0xF3;
    pub const INSTRUCTION: u8 = 0xF4;
    pub const ATTRIBUTES_END: u8 = 0xF5;
    pub const ATTRIBUTE: u8 = 0xF6;
    pub const ELEMENT_ENDS: u8 = 0xF7;
    pub const ELEMENT: u8 = 0xF8;
}

/// The text of a stored `xml` value.
///
/// # Errors
/// It is not of this form, has a token that is not read, or its elements do not fit together.
pub fn text(bytes: &[u8], pages: &CodePages) -> Decoded<String> {
    let Some([0xDF, 0xFF, 1 | 2, 0xB0, 0x04]) = bytes.first_chunk::<HEAD>() else {
        return unknown("xml does not begin as MS-BINXML in UTF-16 does");
    };
    let mut reader = Reader::new(bytes, pages);
    reader.document()?;
    Ok(reader.text)
}

/// Where the next text belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// Between tags.
    Content,
    /// In the value of an attribute.
    Value,
    Cdata,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    pages: &'a CodePages,
    names: Vec<String>,
    /// Qualified names: the numbers of their prefixes and local names.
    qualified: Vec<(usize, usize)>,
    /// The names of the open elements.
    open: Vec<String>,
    within: Within,
    /// True if the open element has something in it.
    is_filled: bool,
    text: String,
    limit: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], pages: &'a CodePages) -> Self {
        Self {
            bytes,
            at: HEAD,
            pages,
            names: Vec::new(),
            qualified: Vec::new(),
            open: Vec::new(),
            within: Within::Content,
            is_filled: true,
            text: String::new(),
            limit: bytes.len().saturating_mul(TEXT_FOR_EACH_BYTE).saturating_add(TEXT_MORE),
        }
    }

    fn document(&mut self) -> Decoded<()> {
        while let Some(token) = self.bytes.get(self.at).copied() {
            self.at += 1;
            self.token(token)?;
            if self.text.len() > self.limit {
                return unknown("the text of xml is much longer than what is stored");
            }
        }
        match self.open.is_empty() && self.within == Within::Content {
            true => Ok(()),
            false => unknown("xml ends inside an element"),
        }
    }

    fn token(&mut self, token: u8) -> Decoded<()> {
        match token {
            token::NAME => {
                let name = self.string()?;
                self.names.push(name);
            }
            token::QUALIFIED => self.define_qualified()?,
            token::FORGET => {
                self.names.clear();
                self.qualified.clear();
            }
            token::EXTENSION => {
                let length = self.number()?;
                self.take(length)?;
            }
            token::ELEMENT => self.element()?,
            token::ATTRIBUTE => self.attribute()?,
            token::ATTRIBUTES_END => self.end_attributes()?,
            token::ELEMENT_ENDS => self.end_element()?,
            token::NVARCHAR => {
                let text = self.string()?;
                match self.within {
                    Within::Value => escape(&text, true, &mut self.text),
                    Within::Content => {
                        self.fill();
                        escape(&text, false, &mut self.text);
                    }
                    Within::Cdata => return unknown("xml has text where none can be"),
                }
            }
            token::CDATA => {
                let text = self.string()?;
                if self.within != Within::Cdata {
                    self.begin_content()?;
                    self.text.push_str("<![CDATA[");
                    self.within = Within::Cdata;
                }
                self.text.push_str(&text);
            }
            token::CDATA_ENDS if self.within == Within::Cdata => {
                self.text.push_str("]]>");
                self.within = Within::Content;
            }
            token::COMMENT => {
                let text = self.string()?;
                self.begin_content()?;
                self.text.extend(["<!--", &text, "-->"]);
            }
            token::INSTRUCTION => {
                let number = self.number()?;
                let name = named(&self.names, number)?.to_owned();
                let text = self.string()?;
                self.begin_content()?;
                let blank = if text.is_empty() { "" } else { " " };
                self.text.extend(["<?", &name, blank, &text, "?>"]);
            }
            other => {
                return unknown(format!("xml has a value of an XML schema, or token {other:#04X}, which is not read"));
            }
        }
        Ok(())
    }

    fn define_qualified(&mut self) -> Decoded<()> {
        let (_namespace, prefix, local) = (self.number()?, self.number()?, self.number()?);
        for number in [prefix, local] {
            named(&self.names, number)?;
        }
        self.qualified.push((prefix, local));
        Ok(())
    }

    /// The qualified name with the number that comes next, as it is written.
    fn qualified(&mut self) -> Decoded<String> {
        let number = self.number()?;
        let Some((prefix, local)) = number.checked_sub(1).and_then(|at| self.qualified.get(at)) else {
            return unknown("xml uses a qualified name that it does not have");
        };
        let (prefix, local) = (named(&self.names, *prefix)?, named(&self.names, *local)?);
        Ok(if prefix.is_empty() { local.to_owned() } else { format!("{prefix}:{local}") })
    }

    /// The start tag of the element around what comes next is complete.
    fn fill(&mut self) {
        if !self.is_filled {
            self.text.push('>');
            self.is_filled = true;
        }
    }

    fn begin_content(&mut self) -> Decoded<()> {
        if self.within != Within::Content {
            return unknown("xml has content inside a start tag");
        }
        self.fill();
        Ok(())
    }

    fn element(&mut self) -> Decoded<()> {
        self.begin_content()?;
        let name = self.qualified()?;
        if self.open.len() >= DEPTH_MAX {
            return unknown("xml has more levels than SQL Server allows");
        }
        self.text.extend(["<", &name]);
        self.open.push(name);
        self.is_filled = false;
        Ok(())
    }

    /// Attributes follow the start of their element.
    fn attribute(&mut self) -> Decoded<()> {
        match self.within {
            Within::Content if !self.is_filled => {}
            Within::Value => self.text.push('"'),
            _ => return unknown("xml has an attribute outside of a start tag"),
        }
        let name = self.qualified()?;
        self.text.extend([" ", &name, "=\""]);
        self.within = Within::Value;
        Ok(())
    }

    fn end_attributes(&mut self) -> Decoded<()> {
        match self.within {
            Within::Value => self.text.push('"'),
            Within::Content if !self.is_filled => {}
            _ => return unknown("xml ends attributes that did not begin"),
        }
        self.within = Within::Content;
        Ok(())
    }

    fn end_element(&mut self) -> Decoded<()> {
        let (Within::Content, Some(name)) = (self.within, self.open.pop()) else {
            return unknown("xml ends an element that did not begin");
        };
        match self.is_filled {
            true => self.text.extend(["</", &name, ">"]),
            false => self.text.push_str("/>"),
        }
        self.is_filled = true;
        Ok(())
    }

    /// A number of at most 32 bits.
    fn number(&mut self) -> Decoded<usize> {
        let mut number = 0_u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = field(Fields(self.bytes).u8(self.at))?;
            self.at += 1;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(number).or_else(|_| unknown("a number in xml is too large"));
            }
        }
        unknown("a number in xml has more than 32 bits")
    }

    fn string(&mut self) -> Decoded<String> {
        let characters = self.number()?;
        let bytes = self.take(characters.saturating_mul(2))?;
        self.pages.decode_utf16(bytes)
    }

    fn take(&mut self, length: usize) -> Decoded<&'a [u8]> {
        let end = self.at.saturating_add(length);
        let Some(bytes) = self.bytes.get(self.at..end) else { return unknown("xml ends inside a token") };
        self.at = end;
        Ok(bytes)
    }
}

/// The name with this number; 0 is the empty name.
fn named(names: &[String], number: usize) -> Decoded<&str> {
    match number.checked_sub(1).map(|at| names.get(at)) {
        None => Ok(""),
        Some(Some(name)) => Ok(name),
        Some(None) => unknown("xml uses a name that it does not have"),
    }
}

/// Text as it is written between tags, or in an attribute.
fn escape(text: &str, in_attribute: bool, into: &mut String) {
    for letter in text.chars() {
        match letter {
            '&' => into.push_str("&amp;"),
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            // A reader of XML would make a line feed of it.
            '\r' => into.push_str("&#xD;"),
            '"' if in_attribute => into.push_str("&quot;"),
            '\n' if in_attribute => into.push_str("&#xA;"),
            '\t' if in_attribute => into.push_str("&#x9;"),
            letter => into.push(letter),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A document: its tokens are bytes, and texts with their lengths.
    fn document(parts: &[(&[u8], &str)]) -> Vec<u8> {
        let mut bytes = vec![0xDF, 0xFF, 1, 0xB0, 4];
        for (tokens, text) in parts {
            bytes.extend_from_slice(tokens);
            if !text.is_empty() {
                bytes.push(text.encode_utf16().count() as u8);
                bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
            }
        }
        bytes
    }

    fn read(parts: &[(&[u8], &str)]) -> Decoded<String> {
        text(&document(parts), &CodePages::new(0, 0))
    }

    #[test]
    fn elements_attributes_and_texts_are_written_as_xml() {
        let parts: [(&[u8], &str); 12] = [
            (&[0xF0], "root"),
            (&[0xEF, 0, 0, 1, 0xF8, 1, 0xF0], "id"),
            (&[0xEF, 0, 0, 2, 0xF6, 1 + 1, 0x11], "a\"<\n"),
            (&[0xF0], "urn:x"),
            (&[0xF0], "p"),
            (&[0xF5, 0xF3], "note"),
            (&[0x11], "1 < 2 & é"),
            (&[0xEF, 3, 4, 1, 0xF8, 3, 0xF7, 0xF2], "raw <"),
            (&[0xF2], " & more"),
            (&[0xF1, 0xEA, 2, 9, 9, 0xF4, 2], "do it"),
            (&[0xF8, 1, 0x11], "\r"),
            (&[0xF7, 0xF7], ""),
        ];
        let wanted = "<root id=\"a&quot;&lt;&#xA;\"><!--note-->1 &lt; 2 &amp; é<p:root/><![CDATA[raw < & more]]>\
                      <?id do it?><root>&#xD;</root></root>";
        assert_eq!(read(&parts).unwrap(), wanted);
        assert_eq!(read(&[]).unwrap(), "", "an empty value is an empty text");
        assert_eq!(read(&[(&[0x11], "a fragment")]).unwrap(), "a fragment");
    }

    #[test]
    fn what_is_not_this_form_is_refused_by_its_reason() {
        let name: (&[u8], &str) = (&[0xF0], "a");
        for (parts, words) in [
            (vec![name, (&[0xEF, 0, 0, 1, 0xF8, 1], "")], "ends inside an element"),
            (vec![(&[0xF8, 1], "")], "a qualified name that it does not have"),
            (vec![(&[0xEF, 0, 0, 7], "")], "a name that it does not have"),
            (vec![(&[0xF7], "")], "an element that did not begin"),
            (vec![(&[0x02, 1, 0, 0, 0], "")], "token 0x02"),
            (vec![(&[0xF0, 100], "")], "xml ends inside"),
            (vec![(&[0x11, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], "")], "more than 32 bits"),
        ] {
            let error = format!("{:?}", read(&parts).unwrap_err());
            assert!(error.contains(words), "{words}: {error}");
        }
        let error = format!("{:?}", text(b"<a/>", &CodePages::new(0, 0)).unwrap_err());
        assert!(error.contains("MS-BINXML"), "{error}");
    }

    #[test]
    fn a_long_name_that_is_written_often_is_not_unpacked_without_end() {
        let mut bytes = document(&[(&[0xF0, 0xE8, 7], "")]);
        bytes.extend(b"x\0".repeat(1000));
        bytes.extend([0xEF, 0, 0, 1]);
        // 1,000 characters for each three bytes.
        bytes.extend([0xF8, 1, 0xF7].repeat(400_000));
        let error = format!("{:?}", text(&bytes, &CodePages::new(0, 0)).map(|text| text.len()).unwrap_err());
        assert!(error.contains("much longer"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_text_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = text(&[&[0xDF, 0xFF, 1, 0xB0, 4][..], &bytes].concat(), &CodePages::new(0, 0));
        }
    }
}
