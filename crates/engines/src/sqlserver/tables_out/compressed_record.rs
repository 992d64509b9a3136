//! A row with ROW or PAGE compression: a code of 4 bits for each column, short values, long values.
//!
//! Published in "SQL Server 2012 Internals" and "Pro SQL Server Internals". There is no genuine sample here: what could be
//! read in two ways is checked against the rest of the row, and refused if it does not fit.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | bit 0: always; bits 2 to 4: the kind of record; bit 5: there are long values |
//! | 1, 2 | the number of columns. Above 127: two bytes, the more significant one first, and its highest bit is set |
//! | 1 for 2 columns | the codes, the lower half first |
//! | … | with more than 30 columns, the bytes of each group of 30 but the last; then the short values |
//! | 1, 2 | flags and number of long values |
//! | 2 for each | their ends, from the first; the highest bit: the value is outside of the row |
//! | … | with more than 30 columns, the long values of each group but the last; then the long values |

use super::super::fields::Fields;
use super::{Decoded, field, unknown};

/// Columns of a group.
const GROUP: usize = 30;
const IS_COMPRESSED: u8 = 1;
const HAS_LONG: u8 = 0x20;
const IS_COMPLEX: u16 = 0x8000;
/// The number of columns has two bytes.
const IS_WIDE: u8 = 0x80;
/// Columns of a table, at most. A wide table, with more of them, has no compression.
const COLUMNS_MAX: usize = 1024;

/// The value of one column, as the row has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packed<'a> {
    /// NULL.
    Null,
    /// Zero, or a text without characters. On a page with anchors: the anchor.
    Empty,
    /// The bit 1.
    True,
    /// Its bytes.
    Bytes(&'a [u8]),
    /// A pointer to a value outside of the row.
    Complex(&'a [u8]),
    /// An entry of the dictionary of the page.
    Symbol(u8),
}

/// A row, taken apart.
#[derive(Debug)]
pub struct CompressedRecord<'a> {
    head: u8,
    values: Vec<Packed<'a>>,
}

impl<'a> CompressedRecord<'a> {
    /// Takes a row apart. Bytes behind it do not matter.
    ///
    /// # Errors
    /// It is not compressed, has a code that is not known, or contradicts itself.
    pub fn parse(bytes: &'a [u8]) -> Decoded<Self> {
        let fields = Fields(bytes);
        let head = field(fields.u8(0))?;
        if head & IS_COMPRESSED == 0 {
            return unknown("a row without compression is in a compressed table");
        }
        let (count, begin) = column_count(&fields)?;
        let Some(codes) = bytes.get(begin..begin + count.div_ceil(2)) else {
            return unknown("a compressed row is cut off");
        };
        let code = |column: usize| codes.get(column / 2).copied().unwrap_or_default() >> (column % 2 * 4) & 0xF;
        let short_length = |column: usize| match code(column) {
            length @ 2..=9 => usize::from(length) - 1,
            0xC => 1,
            _ => 0,
        };
        let groups = count.saturating_sub(1) / GROUP;
        let mut at = begin + codes.len();
        check_groups(bytes, at, groups, &short_length)?;
        at += groups;
        let mut values = Vec::with_capacity(count);
        for column in 0..count {
            let Some(short) = bytes.get(at..at + short_length(column)) else {
                return unknown("the short values of a compressed row are cut off");
            };
            at += short.len();
            values.push(match (code(column), short) {
                (0, _) => Packed::Null,
                (1, _) => Packed::Empty,
                (0xA, _) => Packed::Bytes(short),
                (0xB, _) => Packed::True,
                (0xC, [symbol]) => Packed::Symbol(*symbol),
                (2..=9, short) => Packed::Bytes(short),
                (other, _) => return unknown(format!("a compressed row has the code {other}")),
            });
        }
        let is_long = |column: usize| usize::from(code(column) == 0xA);
        let expected: usize = (0..count).map(is_long).sum();
        if head & HAS_LONG != 0 {
            let mut long = long_values(bytes, at, groups, expected, &is_long)?.into_iter();
            for (column, value) in values.iter_mut().enumerate().filter(|(column, _)| code(*column) == 0xA) {
                let Some(found) = long.next() else { return unknown(format!("column {column} has no long value")) };
                *value = found;
            }
        } else if expected > 0 {
            return unknown("a compressed row has no long values, but a code for one");
        }
        Ok(Self { head, values })
    }

    /// True for a row; false for what is left of one that was deleted or moved.
    ///
    /// # Errors
    /// It is of an index.
    pub fn is_row(&self) -> Decoded<bool> {
        match self.head >> 2 & 7 {
            // 4: a row that was moved here.
            0 | 4 => Ok(true),
            1 | 2 | 3 | 5 | 7 => Ok(false),
            _ => unknown("an entry of an index is among the rows"),
        }
    }

    /// How many columns it has.
    pub fn columns(&self) -> usize {
        self.values.len()
    }

    /// The value of a column, counted from 0. `None` if the row is older than the column.
    pub fn value(&self, column: usize) -> Option<Packed<'a>> {
        self.values.get(column).copied()
    }
}

/// The number of columns, and where the codes begin.
fn column_count(fields: &Fields<'_>) -> Decoded<(usize, usize)> {
    let first = field(fields.u8(1))?;
    if first & IS_WIDE == 0 {
        return Ok((first.into(), 2));
    }
    let count = usize::from(first & !IS_WIDE) << 8 | usize::from(field(fields.u8(2))?);
    if !(usize::from(IS_WIDE)..=COLUMNS_MAX).contains(&count) {
        return unknown(format!(
            "a compressed row has {count} columns in two bytes, and 128 to {COLUMNS_MAX} need them"
        ));
    }
    Ok((count, 3))
}

/// With more than one group, the sizes of all but the last are stored: they must be those of the codes.
fn check_groups(bytes: &[u8], at: usize, groups: usize, size: &dyn Fn(usize) -> usize) -> Decoded<()> {
    let stored = bytes.get(at..at + groups).unwrap_or_default();
    let computed = (0..groups).map(|group| (group * GROUP..(group + 1) * GROUP).map(size).sum::<usize>());
    if stored.len() == groups && stored.iter().map(|byte| usize::from(*byte)).eq(computed) {
        return Ok(());
    }
    unknown("a compressed row of more than 30 columns has sizes of groups that do not match its codes")
}

fn long_values<'a>(
    bytes: &'a [u8],
    at: usize,
    groups: usize,
    expected: usize,
    is_long: &dyn Fn(usize) -> usize,
) -> Decoded<Vec<Packed<'a>>> {
    let fields = Fields(bytes);
    let count = usize::from(field(fields.u16(at + 1))?);
    if count != expected {
        return unknown(format!("a compressed row has {count} long values, and codes for {expected}"));
    }
    let ends = at + 3;
    check_groups(bytes, ends + 2 * count, groups, is_long)?;
    let data = ends + 2 * count + groups;
    let (mut values, mut start) = (Vec::with_capacity(count), 0);
    for place in 0..count {
        let raw = field(fields.u16(ends + 2 * place))?;
        let end = usize::from(raw & !IS_COMPLEX);
        let Some(value) = bytes.get(data + start..data + end) else {
            return unknown("a long value is outside of its compressed row");
        };
        values.push(if raw & IS_COMPLEX == 0 { Packed::Bytes(value) } else { Packed::Complex(value) });
        start = end;
    }
    Ok(values)
}
