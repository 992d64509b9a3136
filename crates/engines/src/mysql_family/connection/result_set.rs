//! Answers to statements, in the text protocol, with bounds.

use fullbore_core::Result;

use super::packet::PacketStream;
use super::server_error::{Failure, ServerError};

/// The most that a result may hold, in bytes of values; a million table names are less.
pub(super) const RESULT_MAX: usize = 256 << 20;
/// The longest packet of a result.
const PACKET_LIMIT: usize = 64 << 20;
const COLUMNS_MAX: u64 = 4096;
const ROWS_MAX: usize = 4 << 20;

/// The rows of a result; a value is text, or nothing for NULL.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ResultSet {
    /// Each row has the same number of values.
    pub rows: Vec<Vec<Option<String>>>,
}

impl ResultSet {
    /// The value in the first row and column, if there is one and it is not NULL.
    pub fn single(&self) -> Option<&str> {
        self.value(0, 0)
    }

    /// The value in a row and column, both from 0, if there is one and it is not NULL.
    pub fn value(&self, row: usize, column: usize) -> Option<&str> {
        self.rows.get(row)?.get(column)?.as_deref()
    }
}

/// The start of an answer.
pub(super) enum Head {
    /// The statement gives no rows.
    Done,
    /// Rows with this many values follow.
    Columns(usize),
}

/// Reads the answer to COM_QUERY up to its first row.
pub(super) fn read_head(packets: &mut PacketStream) -> Result<Head, Failure> {
    let first = packets.read(PACKET_LIMIT)?;
    let columns = match first.split_first() {
        Some((0x00, _)) => return Ok(Head::Done),
        Some((0xFF, body)) => return Err(Failure::Server(ServerError::parse(&packets.name, body))),
        // LOAD DATA LOCAL: fullbore never sends it, and never answers with a file.
        Some((0xFB, _)) | None => return Err(packets.broken("it asked for a file").into()),
        Some(_) => take_integer(&mut &first[..]).filter(|count| (1..=COLUMNS_MAX).contains(count)),
    };
    let Some(columns) = columns else { return Err(packets.broken("it sent a result without columns").into()) };
    for _ in 0..columns {
        packets.read(PACKET_LIMIT)?;
    }
    let end = packets.read(PACKET_LIMIT)?;
    if !is_end(&end) {
        return Err(packets.broken("it sent more columns than it announced").into());
    }
    Ok(Head::Columns(columns as usize))
}

/// A prepared statement without parameters.
pub(super) struct Prepared {
    /// Its number.
    pub id: u32,
    /// The definition of each column.
    pub columns: Vec<Vec<u8>>,
}

/// Reads the answer to COM_STMT_PREPARE.
pub(super) fn read_prepared(packets: &mut PacketStream) -> Result<Prepared, Failure> {
    let first = packets.read(PACKET_LIMIT)?;
    let (id, count) = match *first {
        [0xFF, ref body @ ..] => return Err(Failure::Server(ServerError::parse(&packets.name, body))),
        [0x00, one, two, three, four, low, high, 0, 0, ..] => {
            (u32::from_le_bytes([one, two, three, four]), u16::from_le_bytes([low, high]))
        }
        _ => return Err(packets.broken("it sent another answer than that to a prepared statement").into()),
    };
    let columns = (0..count).map(|_| packets.read(PACKET_LIMIT)).collect::<Result<Vec<_>>>()?;
    if count == 0 || !is_end(&packets.read(PACKET_LIMIT)?) {
        return Err(packets.broken("it sent more columns than it announced").into());
    }
    Ok(Prepared { id, columns })
}

/// Reads the answer to COM_QUERY.
pub(super) fn read(packets: &mut PacketStream) -> Result<ResultSet, Failure> {
    let Head::Columns(columns) = read_head(packets)? else { return Ok(ResultSet::default()) };
    let mut result = ResultSet::default();
    let mut size = 0;
    loop {
        let payload = packets.read(PACKET_LIMIT)?;
        if is_end(&payload) {
            return Ok(result);
        }
        if let Some((0xFF, body)) = payload.split_first() {
            return Err(Failure::Server(ServerError::parse(&packets.name, body)));
        }
        size += payload.len() + 24 * columns;
        if size > RESULT_MAX || result.rows.len() == ROWS_MAX {
            return Err(packets.broken("it sent a result that is longer than any expected result").into());
        }
        match row(&payload, columns) {
            Some(row) => result.rows.push(row),
            None => return Err(packets.broken("it sent an invalid row").into()),
        }
    }
}

/// An EOF packet: 0xFE, and too short to be a row that begins with a long value.
fn is_end(payload: &[u8]) -> bool {
    payload.first() == Some(&0xFE) && payload.len() < 9
}

fn row(payload: &[u8], columns: usize) -> Option<Vec<Option<String>>> {
    let mut rest = payload;
    let mut row = Vec::with_capacity(columns);
    for _ in 0..columns {
        if rest.first() == Some(&0xFB) {
            rest = &rest[1..];
            row.push(None);
            continue;
        }
        let length = usize::try_from(take_integer(&mut rest)?).ok()?;
        let (value, after) = rest.split_at_checked(length)?;
        row.push(Some(String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    rest.is_empty().then_some(row)
}

/// A length-encoded integer.
pub fn take_integer(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    let width = match first {
        0..=0xFA => {
            *bytes = rest;
            return Some(u64::from(first));
        }
        0xFC => 2,
        0xFD => 3,
        0xFE => 8,
        _ => return None,
    };
    let (number, rest) = rest.split_at_checked(width)?;
    *bytes = rest;
    Some(number.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_exactly_its_columns() {
        let bytes = b"\x03abc\xfb\xfc\x01\x00z";
        assert_eq!(row(bytes, 3).unwrap(), [Some("abc".to_owned()), None, Some("z".to_owned())]);
        for columns in [2, 4] {
            assert_eq!(row(bytes, columns), None);
        }
        for bad in [&b"\x05abc"[..], b"\xfd\x01", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff", b"\xff"] {
            assert_eq!(row(bad, 1), None);
        }
    }
}
