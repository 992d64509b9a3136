//! `sql_variant`: a type of its own for each value. The number of the type, 1, properties of the type, the value.
//!
//! | type | properties |
//! |---|---|
//! | decimal, numeric | precision, scale: 1 byte each |
//! | time, datetime2, datetimeoffset | digits of a second: 1 byte |
//! | char, varchar, nchar, nvarchar | the greatest length: 2 bytes; the collation: 4 bytes |
//! | binary, varbinary | the greatest length: 2 bytes |
//!
//! Text and numbers are verified on `sysobjvalues` of genuine files.

use super::super::super::engine::Cell;
use super::super::fields::Fields;
use super::collation::CodePages;
use super::types::{StoredType, xtype};
use super::{Decoded, field, unknown, value};

const VERSION: u8 = 1;

/// The cell of a variant that is not NULL.
///
/// # Errors
/// The type is not known in a variant, or its value is not right.
pub fn cell(bytes: &[u8], pages: &CodePages) -> Decoded<Cell> {
    let fields = Fields(bytes);
    let (number, version) = (field(fields.u8(0))?, field(fields.u8(1))?);
    if version != VERSION {
        return unknown(format!("a sql_variant has the form {version}"));
    }
    let mut stored = StoredType { xtype: number, ..StoredType::default() };
    let properties = match number {
        xtype::DECIMAL | xtype::NUMERIC => {
            (stored.precision, stored.scale) = (field(fields.u8(2))?, field(fields.u8(3))?);
            2
        }
        xtype::TIME | xtype::DATETIME2 | xtype::DATETIMEOFFSET => {
            stored.scale = field(fields.u8(2))?;
            1
        }
        xtype::CHAR | xtype::VARCHAR | xtype::NCHAR | xtype::NVARCHAR => {
            stored.collation = field(fields.u32(4))?;
            6
        }
        xtype::BINARY | xtype::VARBINARY => 2,
        xtype::BIT | xtype::TINYINT | xtype::SMALLINT | xtype::INT | xtype::BIGINT => 0,
        xtype::REAL | xtype::FLOAT | xtype::MONEY | xtype::SMALLMONEY => 0,
        xtype::DATE | xtype::DATETIME | xtype::SMALLDATETIME | xtype::UNIQUEIDENTIFIER => 0,
        other => return unknown(format!("a sql_variant has the type {other}")),
    };
    let Some(value) = bytes.get(2 + properties..) else { return unknown("a sql_variant is too short") };
    if matches!(number, xtype::CHAR | xtype::NCHAR | xtype::BINARY) {
        // These have their own length here, not that of a column.
        stored.length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    }
    if stored.kind().is_none() {
        return unknown(format!("a sql_variant of type {number} has a precision or scale that cannot be"));
    }
    value::cell(&stored, value, pages)
}
