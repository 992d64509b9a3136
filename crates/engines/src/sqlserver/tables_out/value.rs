//! The bytes of one value, as they are in a row that is not compressed.

use uuid::Uuid;

use super::super::super::engine::Cell;
use super::super::fields::Fields;
use super::collation::CodePages;
use super::types::{StoredType, xtype};
use super::{Decoded, binary_xml, date_time, field, unknown, variant};

/// The cell of a value that is not NULL. A bit has one byte here.
///
/// # Errors
/// The bytes are too few, contradict the type, or have a form that is not known.
pub fn cell(stored: &StoredType, bytes: &[u8], pages: &CodePages) -> Decoded<Cell> {
    let fields = Fields(bytes);
    if let Some(length) = stored.fixed_length().filter(|length| *length != bytes.len()) {
        return unknown(format!("a value has {} bytes, and its type has {length}", bytes.len()));
    }
    Ok(match stored.xtype {
        xtype::BIT => Cell::Bool(field(fields.u8(0))? != 0),
        xtype::TINYINT => Cell::Int(field(fields.u8(0))?.into()),
        xtype::SMALLINT => Cell::Int(field(fields.u16(0))?.cast_signed().into()),
        xtype::INT => Cell::Int(field(fields.u32(0))?.cast_signed().into()),
        xtype::BIGINT => Cell::Int(field(fields.u64(0))?.cast_signed()),
        xtype::REAL => Cell::Real(f32::from_bits(field(fields.u32(0))?)),
        xtype::FLOAT => Cell::Float(f64::from_bits(field(fields.u64(0))?)),
        xtype::MONEY => money(field(fields.u64(0))?.cast_signed()),
        xtype::SMALLMONEY => money(field(fields.u32(0))?.cast_signed().into()),
        xtype::DECIMAL | xtype::NUMERIC => decimal(bytes, stored)?,
        xtype::DATE => Cell::Date(date_time::date(bytes)?),
        xtype::TIME => Cell::Time(date_time::time(bytes, stored.scale)?),
        xtype::DATETIME => date_time::datetime(bytes)?,
        xtype::SMALLDATETIME => date_time::smalldatetime(bytes)?,
        xtype::DATETIME2 => {
            let (day, time) = date_time::datetime2(bytes, stored.scale)?;
            Cell::Moment(day, time)
        }
        xtype::DATETIMEOFFSET => date_time::datetimeoffset(bytes, stored.scale)?,
        xtype::UNIQUEIDENTIFIER => Cell::Uuid(Uuid::from_bytes_le(field(fields.bytes(0))?)),
        xtype::CHAR | xtype::VARCHAR | xtype::TEXT => Cell::Text(pages.decode(bytes, stored.collation)?),
        xtype::NCHAR | xtype::NVARCHAR | xtype::NTEXT => Cell::Text(pages.decode_utf16(bytes)?),
        xtype::BINARY | xtype::VARBINARY | xtype::IMAGE | xtype::TIMESTAMP | xtype::CLR => Cell::Binary(bytes.to_vec()),
        xtype::SQL_VARIANT => variant::cell(bytes, pages)?,
        xtype::XML => Cell::Text(binary_xml::text(bytes, pages)?),
        other => return unknown(format!("type {other} is not known")),
    })
}

/// `money` counts ten-thousandths.
pub(super) fn money(units: i64) -> Cell {
    Cell::Decimal { digits: units.into(), scale: 4 }
}

/// A sign (1 is plus), then the digits as an integer.
fn decimal(bytes: &[u8], stored: &StoredType) -> Decoded<Cell> {
    let Some((sign, magnitude)) = bytes.split_first() else { return unknown("a decimal number has no bytes") };
    let size = magnitude.iter().rev().fold(0_u128, |sum, byte| sum << 8 | u128::from(*byte));
    digits(*sign == 1, size, stored)
}

/// A decimal number, if its type can hold it.
///
/// # Errors
/// It has more digits than its type.
pub(super) fn digits(is_plus: bool, size: u128, stored: &StoredType) -> Decoded<Cell> {
    let limit = 10_u128.checked_pow(u32::from(stored.precision.min(38))).unwrap_or(u128::MAX);
    match i128::try_from(size).ok().filter(|_| size < limit) {
        Some(size) => Ok(Cell::Decimal { digits: if is_plus { size } else { -size }, scale: stored.scale }),
        None => unknown(format!("a decimal number has more than {} digits", stored.precision)),
    }
}
