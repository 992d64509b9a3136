//! A record that is not compressed ("FixedVar"): columns of fixed length, a bitmap of NULLs, columns of variable length.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | status: bits 1 to 3 the kind, 0x10 a bitmap of NULLs, 0x20 columns of variable length |
//! | 1 | more status |
//! | 2 | the end of the columns of fixed length |
//! | … | these columns |
//! | 2 | the number of columns |
//! | 1 for 8 columns | a bit for each column: NULL |
//! | 2 | the number of columns of variable length |
//! | 2 for each | the end of the column; the highest bit: the value is outside of the record, or has a form of its own |
//! | … | these columns |

use super::super::fields::Fields;
use super::{Decoded, field, unknown};

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A row.
    Row,
    /// A row that was moved; the page where it was has a [`Self::Stub`].
    Forwarded,
    /// It says where a row was moved to.
    Stub,
    /// An entry of an index.
    Index,
    /// A part of a value.
    Fragment,
    /// A row or an entry that was deleted.
    Ghost,
}

const HAS_NULLS: u8 = 0x10;
const HAS_VARIABLE: u8 = 0x20;
/// The bit of a column that has a form of its own.
const IS_COMPLEX: u16 = 0x8000;

/// The kind of a record that is not compressed.
///
/// # Errors
/// The record is empty.
pub fn record_kind(bytes: &[u8]) -> Decoded<RecordKind> {
    Ok(match field(Fields(bytes).u8(0))? >> 1 & 7 {
        0 => RecordKind::Row,
        1 => RecordKind::Forwarded,
        2 => RecordKind::Stub,
        3 => RecordKind::Index,
        4 => RecordKind::Fragment,
        _ => RecordKind::Ghost,
    })
}

/// A record, taken apart.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    bytes: &'a [u8],
    /// The end of the columns of fixed length.
    fixed_end: usize,
    /// Columns that existed when the row was written. Without a bitmap, `None`.
    columns: Option<u16>,
    nulls: &'a [u8],
    /// The ends of the columns of variable length.
    ends: &'a [u8],
    /// Where the first of these columns begins.
    first: usize,
}

/// The bytes of a column of variable length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable<'a> {
    /// The bytes in the record.
    pub bytes: &'a [u8],
    /// True if they are not the value itself.
    pub is_complex: bool,
}

impl<'a> Record<'a> {
    /// Takes a record apart. Bytes behind it do not matter.
    ///
    /// # Errors
    /// A part ends behind `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Decoded<Self> {
        let fields = Fields(bytes);
        let status = field(fields.u8(0))?;
        let fixed_end = usize::from(field(fields.u16(2))?);
        if fixed_end < 4 || fixed_end > bytes.len() {
            return unknown("the columns of fixed length end outside of the record");
        }
        let mut at = fixed_end;
        let (mut columns, mut nulls) = (None, &bytes[..0]);
        if status & HAS_NULLS != 0 {
            let count = field(fields.u16(at))?;
            let length = usize::from(count).div_ceil(8);
            nulls = part(bytes, at + 2, length)?;
            (columns, at) = (Some(count), at + 2 + length);
        }
        let mut ends = &bytes[..0];
        if status & HAS_VARIABLE != 0 {
            let count = usize::from(field(fields.u16(at))?);
            ends = part(bytes, at + 2, 2 * count)?;
            at += 2 + 2 * count;
        }
        Ok(Self { bytes, fixed_end, columns, nulls, ends, first: at })
    }

    /// True if the column with this bit did not exist when the row was written. Bits are counted from 0.
    pub fn is_missing(&self, bit: u16) -> bool {
        self.columns.is_some_and(|columns| bit >= columns)
    }

    /// True if the column with this bit is NULL.
    pub fn is_null(&self, bit: u16) -> bool {
        let byte = self.nulls.get(usize::from(bit / 8)).copied().unwrap_or_default();
        byte >> (bit % 8) & 1 == 1
    }

    /// The bytes of a column of fixed length. `None` if the columns end before it.
    pub fn fixed(&self, offset: usize, length: usize) -> Option<&'a [u8]> {
        let end = offset.checked_add(length).filter(|end| *end <= self.fixed_end)?;
        self.bytes.get(offset..end)
    }

    /// The number of columns of variable length. Empty ones at the end may be left out.
    pub fn variables(&self) -> usize {
        self.ends.len() / 2
    }

    /// A column of variable length, counted from 0. `None` if the columns end before it: then it is empty.
    ///
    /// # Errors
    /// It ends outside of the record, or before it begins.
    pub fn variable(&self, index: usize) -> Decoded<Option<Variable<'a>>> {
        let ends = Fields(self.ends);
        let end = |at: usize| ends.u16(2 * at).ok();
        let Some(raw) = end(index) else { return Ok(None) };
        let start = match index.checked_sub(1) {
            None => self.first,
            Some(before) => usize::from(end(before).unwrap_or_default() & !IS_COMPLEX).max(self.first),
        };
        let stop = usize::from(raw & !IS_COMPLEX);
        let is_complex = raw & IS_COMPLEX != 0;
        // An empty column at the front may have an end of 0.
        if stop <= start && !is_complex && (stop == start || stop == 0) {
            return Ok(Some(Variable { bytes: &self.bytes[..0], is_complex }));
        }
        match self.bytes.get(start..stop) {
            Some(bytes) => Ok(Some(Variable { bytes, is_complex })),
            None => unknown(format!("column {index} of variable length is outside of the record")),
        }
    }
}

fn part(bytes: &[u8], at: usize, length: usize) -> Decoded<&[u8]> {
    match at.checked_add(length).and_then(|end| bytes.get(at..end)) {
        Some(part) => Ok(part),
        None => unknown("a part of the record is outside of its page"),
    }
}
