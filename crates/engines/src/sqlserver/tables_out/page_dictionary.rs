//! PAGE compression: before its rows, a page may have an anchor, which is a row with the common beginnings of each
//! column, and a dictionary of values that occur more than once.
//!
//! Published in "SQL Server 2012 Internals"; there is no genuine sample here.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | bit 0: never; bit 1: an anchor; bit 2: a dictionary |
//! | 2 | changes since the page was compressed |
//! | 2 | only with a dictionary: where it begins |
//! | 2 | the length of all of this |
//! | … | the anchor; then the dictionary: the number of entries, their ends (2 bytes each), the entries |
//!
//! In a column with an anchor, a value begins with the number of bytes that it takes from the anchor.

use std::borrow::Cow;

use super::super::fields::Fields;
use super::compressed_record::{CompressedRecord, Packed};
use super::data_page::DataPage;
use super::{Decoded, field, unknown};

const IS_RECORD: u8 = 1;
const HAS_ANCHOR: u8 = 2;
const HAS_DICTIONARY: u8 = 4;

/// The anchor and the dictionary of a page.
#[derive(Debug)]
pub struct PageDictionary<'a> {
    anchor: CompressedRecord<'a>,
    entries: Vec<&'a [u8]>,
}

/// The bytes of a value without anchor and symbol.
#[derive(Debug, PartialEq, Eq)]
pub enum Unpacked<'a> {
    /// NULL.
    Null,
    /// The bit 1.
    True,
    /// Its bytes; without any, zero.
    Bytes(Cow<'a, [u8]>),
    /// A pointer to a value outside of the row.
    Complex(&'a [u8]),
}

impl<'a> PageDictionary<'a> {
    /// That of a page. `None` if the page has none: its rows have ROW compression.
    ///
    /// # Errors
    /// It has a form that is not known.
    pub fn of(page: &'a DataPage) -> Decoded<Option<Self>> {
        let mut first = None;
        for slot in 0..page.slots()? {
            let left = page.record(slot)?.map(<[u8]>::len);
            first = first.max(left);
        }
        // The first record is the one with the most bytes up to the slots.
        let end = usize::from(page.slots()?) * 2;
        let before = first.and_then(|left| page.bytes().len().checked_sub(end + left + 96)).unwrap_or(0);
        match page.first_record().get(..before) {
            Some(bytes) if !bytes.is_empty() => Self::parse(bytes),
            _ => Ok(None),
        }
    }

    /// From the bytes between the header of the page and the first row.
    ///
    /// # Errors
    /// As of [`of`](Self::of).
    pub fn parse(bytes: &'a [u8]) -> Decoded<Option<Self>> {
        let fields = Fields(bytes);
        let flags = field(fields.u8(0))?;
        // A row that was deleted, or zeros.
        if flags & IS_RECORD != 0 || flags & (HAS_ANCHOR | HAS_DICTIONARY) == 0 {
            return Ok(None);
        }
        if flags & HAS_ANCHOR == 0 {
            return unknown("a page has a dictionary and no anchor");
        }
        let has_dictionary = flags & HAS_DICTIONARY != 0;
        let (total, anchor_at) = if has_dictionary { (field(fields.u16(5))?, 7) } else { (field(fields.u16(3))?, 5) };
        let total = usize::from(total);
        let anchor_end = if has_dictionary { usize::from(field(fields.u16(3))?) } else { total };
        let (Some(anchor), Some(dictionary)) = (bytes.get(anchor_at..anchor_end), bytes.get(anchor_end..total)) else {
            return unknown("the anchor or the dictionary of a page is outside of it");
        };
        let entries = if has_dictionary { entries(dictionary)? } else { Vec::new() };
        Ok(Some(Self { anchor: CompressedRecord::parse(anchor)?, entries }))
    }

    fn anchor(&self, column: usize) -> Option<Packed<'a>> {
        self.anchor.value(column).filter(|anchor| *anchor != Packed::Null)
    }
}

fn entries(bytes: &[u8]) -> Decoded<Vec<&[u8]>> {
    let fields = Fields(bytes);
    let count = usize::from(field(fields.u16(0))?);
    let data = 2 + 2 * count;
    let end = |at: usize| field(fields.u16(2 + 2 * at)).map(usize::from);
    // The last entry says where the ends count from: the dictionary, or its first entry.
    let from = match count.checked_sub(1).map(end).transpose()? {
        None => return Ok(Vec::new()),
        Some(last) if last == bytes.len() => 0,
        Some(last) if data + last == bytes.len() => data,
        Some(_) => return unknown("the dictionary of a page does not end with its last entry"),
    };
    let (mut entries, mut start) = (Vec::with_capacity(count.min(bytes.len())), data);
    for at in 0..count {
        let stop = from + end(at)?;
        match bytes.get(start..stop) {
            Some(entry) => entries.push(entry),
            None => return unknown("an entry of the dictionary is outside of it"),
        }
        start = stop;
    }
    Ok(entries)
}

/// The value of a column, with the anchor and the dictionary of its page.
///
/// # Errors
/// The value names an entry that does not exist, or more of the anchor than there is.
pub fn unpack<'a>(packed: Packed<'a>, column: usize, page: Option<&PageDictionary<'a>>) -> Decoded<Unpacked<'a>> {
    let anchor = page.and_then(|page| page.anchor(column));
    let bytes = match (packed, anchor) {
        (Packed::Null, _) => return Ok(Unpacked::Null),
        (Packed::True, _) | (Packed::Empty, Some(Packed::True)) => return Ok(Unpacked::True),
        (Packed::Complex(bytes), _) => return Ok(Unpacked::Complex(bytes)),
        (Packed::Empty, Some(Packed::Bytes(anchor))) => return Ok(Unpacked::Bytes(Cow::Borrowed(anchor))),
        (Packed::Empty, None) => return Ok(Unpacked::Bytes(Cow::Borrowed(&[]))),
        (Packed::Symbol(symbol), _) => match page.and_then(|page| page.entries.get(usize::from(symbol)).copied()) {
            Some(entry) => entry,
            None => return unknown(format!("entry {symbol} of the dictionary does not exist")),
        },
        (Packed::Bytes(bytes), _) => bytes,
        (Packed::Empty, Some(_)) => return unknown("an anchor has a form that is not known"),
    };
    match anchor {
        None => Ok(Unpacked::Bytes(Cow::Borrowed(bytes))),
        Some(Packed::Bytes(anchor)) => expanded(anchor, bytes).map(|bytes| Unpacked::Bytes(Cow::Owned(bytes))),
        Some(_) => unknown("an anchor has a form that is not known"),
    }
}

/// A value that begins as the anchor does.
fn expanded(anchor: &[u8], bytes: &[u8]) -> Decoded<Vec<u8>> {
    let (length, rest) = match bytes {
        [high, low, rest @ ..] if *high & 0x80 != 0 => (usize::from(*high & 0x7F) << 8 | usize::from(*low), rest),
        [length, rest @ ..] => (usize::from(*length), rest),
        [] => return unknown("a value does not say how much of the anchor it takes"),
    };
    match anchor.get(..length) {
        Some(prefix) => Ok([prefix, rest].concat()),
        None => unknown(format!("a value takes {length} bytes of an anchor of {}", anchor.len())),
    }
}
