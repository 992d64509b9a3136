//! The value of a column in a row with ROW or PAGE compression.
//!
//! | type | stored as |
//! |---|---|
//! | integers, money, rowversion | most significant byte first, as few bytes as possible, with the middle of their range as zero |
//! | decimal | [`vardecimal`] |
//! | bit | in the code of the column |
//! | date, time, datetime2, datetimeoffset | without the zero bytes at the end |
//! | datetime | [`datetime`]: as an integer, where that has one reading only |
//! | real, float | without the zero bytes at the front |
//! | char, binary | without the spaces or zero bytes at the end |
//! | nchar, nvarchar | UTF-16, or with an odd length [SCSU](super::scsu) |
//! | others | as they are |
//!
//! All of this is published, and not verified here. A smalldatetime is refused, except the one that takes no bytes: what is
//! published about the others contradicts itself.

use super::super::super::engine::Cell;
use super::collation::CodePages;
use super::column::Column;
use super::compressed_record::Packed;
use super::data_files::DataFiles;
use super::page_dictionary::{PageDictionary, Unpacked, unpack};
use super::types::{StoredType, xtype};
use super::{Decoded, date_time, lob, scsu, unknown, value};

/// The cell of a value in a compressed row.
///
/// # Errors
/// The value has a form that is not known; a page is damaged.
pub fn cell<'a>(
    files: &DataFiles,
    pages: &CodePages,
    column: &Column,
    packed: Packed<'a>,
    page: Option<&PageDictionary<'a>>,
) -> Decoded<Cell> {
    let stored = &column.stored;
    match unpack(packed, column.ordinal, page)? {
        Unpacked::Null => Ok(Cell::Null),
        Unpacked::True if stored.xtype == xtype::BIT => Ok(Cell::Bool(true)),
        Unpacked::True => unknown("a column that is not a bit has the code of one"),
        Unpacked::Complex(root) => value::cell(stored, &lob::of_inline_root(files, root)?, pages),
        Unpacked::Bytes(bytes) if stored.is_text_pointer() => {
            value::cell(stored, &lob::of_text_pointer(files, &bytes)?, pages)
        }
        Unpacked::Bytes(bytes) => in_row(stored, &bytes, pages),
    }
}

/// The cell of a value that is not NULL and not outside of its row.
///
/// # Errors
/// The value has a form that is not known.
pub fn in_row(stored: &StoredType, bytes: &[u8], pages: &CodePages) -> Decoded<Cell> {
    Ok(match stored.xtype {
        xtype::BIT if bytes.is_empty() => Cell::Bool(false),
        xtype::TINYINT => match bytes {
            [] => Cell::Int(0),
            [byte] => Cell::Int((*byte).into()),
            _ => return unknown("a tinyint has more than one byte"),
        },
        xtype::SMALLINT => Cell::Int(integer(bytes, 2)?),
        xtype::INT => Cell::Int(integer(bytes, 4)?),
        xtype::BIGINT => Cell::Int(integer(bytes, 8)?),
        xtype::SMALLMONEY => value::money(integer(bytes, 4)?),
        xtype::MONEY => value::money(integer(bytes, 8)?),
        xtype::TIMESTAMP => rowversion(integer(bytes, 8)?)?,
        xtype::DECIMAL | xtype::NUMERIC => vardecimal(stored, bytes)?,
        xtype::DATETIME => datetime(bytes)?,
        // 1900-01-01 without a time: zeros take no bytes in every type.
        xtype::SMALLDATETIME if bytes.is_empty() => date_time::smalldatetime(&[0; 4])?,
        xtype::DATE | xtype::TIME | xtype::DATETIME2 | xtype::DATETIMEOFFSET | xtype::BINARY => {
            value::cell(stored, &padded(stored, bytes, 0)?, pages)?
        }
        xtype::CHAR => value::cell(stored, &padded(stored, bytes, b' ')?, pages)?,
        xtype::REAL | xtype::FLOAT => {
            let mut whole = padded(stored, bytes, 0)?;
            whole.rotate_left(bytes.len());
            value::cell(stored, &whole, pages)?
        }
        xtype::NVARCHAR => Cell::Text(unicode(bytes, pages)?),
        xtype::NCHAR => {
            let text = unicode(bytes, pages)?;
            let missing = usize::from(stored.length / 2).saturating_sub(text.encode_utf16().count());
            Cell::Text(text + &" ".repeat(missing))
        }
        xtype::UNIQUEIDENTIFIER | xtype::VARCHAR | xtype::VARBINARY | xtype::CLR | xtype::SQL_VARIANT | xtype::XML => {
            value::cell(stored, bytes, pages)?
        }
        other => {
            let name = super::types::declared(other, -1, 0, 0);
            return unknown(format!("the form of {name} in rows with ROW or PAGE compression is not known"));
        }
    })
}

/// An integer of at most `most` bytes.
fn integer(bytes: &[u8], most: usize) -> Decoded<i64> {
    if bytes.len() > most {
        return unknown(format!("an integer of {most} bytes has {}", bytes.len()));
    }
    if bytes.is_empty() {
        return Ok(0);
    }
    let stored = bytes.iter().fold(0_i128, |sum, byte| sum << 8 | i128::from(*byte));
    let middle = 1_i128 << (8 * bytes.len() - 1);
    i64::try_from(stored - middle).or_else(|_| unknown("an integer is out of range"))
}

/// A moment as an integer of 8 bytes: the days in the upper 4, the parts of a second in the lower 4.
///
/// Microsoft calls it "compressed like any other integer", and also says that two bytes of the date are enough up to 2079.
/// The first makes the middle of the range zero, the second does not. 7 bytes have only one of these readings: their first
/// byte is 0x7F to 0xAD if the middle is zero, and at most 0x2D if not. Fewer bytes have both, so they are not guessed.
fn datetime(bytes: &[u8]) -> Decoded<Cell> {
    match bytes {
        [] => date_time::datetime_of(0, 0),
        // Not those that fewer bytes could hold.
        [0x80, 0x80..=0xFF, ..] | [0x81..=0xAD, ..] | [0x7F, 0..=0x7F, ..] if bytes.len() == 7 => {
            let [.., a, b, c, d] = *bytes else { return unknown("a datetime is too short") };
            let days = i32::try_from(integer(bytes, 8)? >> 32).or_else(|_| unknown("a datetime is out of range"))?;
            date_time::datetime_of(days, u32::from_be_bytes([a, b, c, d]))
        }
        _ => unknown(format!(
            "a datetime of {} bytes in a row with ROW or PAGE compression has two readings",
            bytes.len()
        )),
    }
}

/// A counter of the database, which begins with 0. It is shown as 8 bytes, the most significant one first.
fn rowversion(count: i64) -> Decoded<Cell> {
    match u64::try_from(count) {
        Ok(count) => Ok(Cell::Binary(count.to_be_bytes().to_vec())),
        Err(_) => unknown("a rowversion is below zero"),
    }
}

/// `bytes` with `fill` behind them, up to the length of the type.
fn padded(stored: &StoredType, bytes: &[u8], fill: u8) -> Decoded<Vec<u8>> {
    let length = stored.fixed_length().unwrap_or(0);
    if bytes.len() > length {
        return unknown(format!("a value of {length} bytes has {}", bytes.len()));
    }
    let mut whole = bytes.to_vec();
    whole.resize(length, fill);
    Ok(whole)
}

fn unicode(bytes: &[u8], pages: &CodePages) -> Decoded<String> {
    if bytes.len().is_multiple_of(2) {
        return pages.decode_utf16(bytes);
    }
    let units: Vec<u8> = scsu::decode(bytes)?.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    pages.decode_utf16(&units)
}

/// A decimal number of variable length: the sign (bit 7, 1 is plus) and the exponent plus 64, then the digits. Each group
/// of three digits has 10 bits; bits that are missing at the end are zero. The point is behind the first digit. Without
/// bytes, the number is zero. (Published by Microsoft for SQL Server 2005 SP2, with the bits in "The Anatomy of
/// Vardecimals".)
///
/// # Errors
/// It has a group above 999, or digits that its type cannot hold.
pub fn vardecimal(stored: &StoredType, bytes: &[u8]) -> Decoded<Cell> {
    let Some((head, mantissa)) = bytes.split_first() else { return value::digits(true, 0, stored) };
    // 38 digits are 13 groups in 17 bytes.
    if mantissa.len() > 17 {
        return unknown("a decimal number has more than 39 digits");
    }
    let bits = mantissa.len() * 8;
    let bit = |at: usize| mantissa.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    let (mut size, mut digits) = (0_u128, 0_i32);
    for group in 0..bits.div_ceil(10) {
        let value = (0..10).fold(0_u128, |value, at| value << 1 | u128::from(bit(group * 10 + at)));
        // What fills the last byte is not a group.
        if group * 10 + 10 > bits && value == 0 {
            break;
        }
        if value > 999 {
            return unknown("a decimal number has a group of digits above 999");
        }
        let Some(next) = size.checked_mul(1000).and_then(|size| size.checked_add(value)) else {
            return unknown("a decimal number has too many digits");
        };
        (size, digits) = (next, digits + 3);
    }
    // The last of `digits` digits is worth 10^(exponent - digits + 1); the type counts in units of 10^-scale.
    let power = i32::from(head & 0x7F) - 64 - digits + 1 + i32::from(stored.scale);
    let factor = 10_u128.checked_pow(power.unsigned_abs());
    let scaled = match (factor, power < 0) {
        (Some(factor), false) => size.checked_mul(factor),
        (Some(factor), true) => size.is_multiple_of(factor).then(|| size / factor),
        (None, _) => (size == 0).then_some(0),
    };
    match scaled {
        Some(scaled) => value::digits(head & 0x80 != 0, scaled, stored),
        None => unknown("a decimal number has digits that its type cannot hold"),
    }
}
