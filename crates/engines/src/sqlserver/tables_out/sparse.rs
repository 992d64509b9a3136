//! The values of sparse columns: one column of variable length at the end of the row holds all of them.
//!
//! `5`, the number of values, the ids of their columns, the ends of their bytes in this vector: each 2 bytes. Then the
//! bytes. (Published: "SQL Server 2008 Internals", chapter 7.)

use super::super::fields::Fields;
use super::record::Record;
use super::{Decoded, field, unknown};

/// The head of a sparse vector.
const HEAD: [u8; 2] = [5, 0];

/// The sparse vector of a row. `None` if no sparse column has a value.
///
/// # Errors
/// A column of variable length is outside of the row.
pub fn vector<'a>(record: &Record<'a>) -> Decoded<Option<&'a [u8]>> {
    // Behind it, a row that was moved has a pointer back.
    for index in (0..record.variables()).rev() {
        let found = record.variable(index)?;
        if let Some(found) = found.filter(|found| found.is_complex && found.bytes.starts_with(&HEAD)) {
            return Ok(Some(found.bytes));
        }
    }
    Ok(None)
}

/// The bytes of the column with this id. `None` if it is NULL.
///
/// # Errors
/// The vector contradicts itself.
pub fn value(vector: &[u8], id: i32) -> Decoded<Option<&[u8]>> {
    let fields = Fields(vector);
    let count = usize::from(field(fields.u16(2))?);
    let end_of = |at: usize| field(fields.u16(4 + 2 * count + 2 * at)).map(usize::from);
    let first = 4 + 4 * count;
    if count > 0 && end_of(count - 1)? != vector.len() {
        return unknown("a sparse vector does not end with its last value");
    }
    for at in 0..count {
        if i32::from(field(fields.u16(4 + 2 * at))?) != id {
            continue;
        }
        let start = if at == 0 { first } else { end_of(at - 1)? };
        return match vector.get(start..end_of(at)?) {
            Some(bytes) if start >= first => Ok(Some(bytes)),
            _ => unknown("a sparse vector has a value outside of it"),
        };
    }
    Ok(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A row of a table with the columns 1 to 6, where B (3) is 3 and E (6) is 1234.
    const VECTOR: [u8; 20] = [5, 0, 2, 0, 3, 0, 6, 0, 16, 0, 20, 0, 3, 0, 0, 0, 0xD2, 4, 0, 0];

    #[test]
    fn a_published_vector_has_its_values_and_the_other_columns_are_null() {
        assert_eq!(value(&VECTOR, 3).unwrap(), Some(&[3, 0, 0, 0][..]));
        assert_eq!(value(&VECTOR, 6).unwrap(), Some(&[0xD2, 4, 0, 0][..]));
        assert_eq!(value(&VECTOR, 4).unwrap(), None);
    }

    #[test]
    fn a_vector_that_contradicts_itself_is_refused() {
        for (at, byte) in [(10, 19), (8, 21), (8, 3), (2, 9)] {
            let mut bad = VECTOR;
            bad[at] = byte;
            assert!(value(&bad, 3).is_err(), "byte {at}");
        }
    }
}
