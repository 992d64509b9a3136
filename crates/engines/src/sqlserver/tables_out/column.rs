//! A column as a row stores it.

use super::system_tables::RowsetColumn;
use super::types::{StoredType, xtype};
use super::{Decoded, unknown};

/// Status bits of [`RowsetColumn`].
pub mod stored_status {
    /// The column was dropped. Its bytes stay.
    pub const DROPPED: i32 = 0x2;
    /// Not a column of the table: it makes keys unique.
    pub const UNIQUIFIER: i32 = 0x10;
    /// The value is in a file.
    pub const FILESTREAM: i32 = 0x20;
    /// It always has a value.
    pub const NOT_NULL: i32 = 0x80;
    /// It is in the sparse vector.
    pub const SPARSE: i32 = 0x100;
}

/// Where a row has the value of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValuePlace {
    /// At this offset.
    Fixed(usize),
    /// A bit of the byte at this offset.
    Bit(usize, u8),
    /// Among the columns of variable length, from 0.
    Variable(usize),
    /// In the sparse vector.
    Sparse,
}

/// A stored column.
#[derive(Debug, Clone)]
pub struct Column {
    /// The id of the column in its table.
    pub id: i32,
    /// Its type.
    pub stored: StoredType,
    /// Where it is in a row that is not compressed.
    pub place: ValuePlace,
    /// Its bit among the NULLs, from 0. Without one, it always has a value.
    pub null_bit: Option<u16>,
    /// Its place in a compressed row, from 0.
    pub ordinal: usize,
    /// True if it always has a value.
    pub not_null: bool,
    /// The value of rows that are older than the column.
    pub default: Option<Vec<u8>>,
}

impl Column {
    /// From the description of a rowset.
    ///
    /// # Errors
    /// The description contradicts itself.
    pub fn new(described: &RowsetColumn, is_sparse: bool, default: Option<Vec<u8>>) -> Decoded<Self> {
        let stored = described.stored;
        let place = match (is_sparse, described.offset) {
            (true, _) => ValuePlace::Sparse,
            (false, 1..) if stored.xtype == xtype::BIT => {
                ValuePlace::Bit(described.offset.unsigned_abs().into(), described.bit)
            }
            (false, 1..) if !stored.is_variable() => ValuePlace::Fixed(described.offset.unsigned_abs().into()),
            (false, i16::MIN..=-1) => ValuePlace::Variable(usize::from(described.offset.unsigned_abs()) - 1),
            (false, offset) => return unknown(format!("it is at offset {offset} of the row")),
        };
        Ok(Self {
            id: described.id,
            stored,
            place,
            null_bit: described.null_bit.checked_sub(1),
            ordinal: usize::try_from(described.ordinal.saturating_sub(1)).unwrap_or(usize::MAX),
            not_null: described.status & stored_status::NOT_NULL != 0,
            default,
        })
    }
}
