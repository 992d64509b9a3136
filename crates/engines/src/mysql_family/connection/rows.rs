//! Rows that are read one after the other, and each value in pieces: a table of any size in constant memory.
//!
//! The form is the text protocol ("Text Resultset Row" in MySQL's protocol documentation): each value is a
//! length-encoded integer and as many bytes; 0xFB alone is NULL.

use fullbore_core::{Error, Result};

use super::binary::BinaryColumns;
use super::packet::{PACKET_MAX, PacketStream, Payload};
use super::result_set::{self, Head};
use super::server_error::{Failure, ServerError};
use super::{COM_QUERY, COM_STMT_CLOSE, COM_STMT_EXECUTE, COM_STMT_PREPARE, Connection};

/// Where the bytes of a row come from.
pub trait RowBytes {
    /// Fills `buffer` with the next bytes of the row; an error if it has fewer.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()>;
}

/// Why a row cannot be read.
#[derive(Debug)]
pub enum RowFault {
    /// It has at least this many bytes, which is above the limit.
    TooLong(u64),
    /// It is not a row.
    Broken(&'static str),
    /// The connection failed, or the job was stopped.
    Fault(Error),
}

impl From<Error> for RowFault {
    fn from(error: Error) -> Self {
        Self::Fault(error)
    }
}

/// Takes a row apart, value by value.
#[derive(Debug, Clone)]
pub struct RowDecoder {
    /// Values that have not begun yet.
    columns: usize,
    /// Bytes left of the current value.
    value: u64,
    /// Bytes of all values so far, by their lengths.
    size: u64,
    limit: u64,
    /// The first byte of the row, which was already read.
    first: Option<u8>,
}

impl RowDecoder {
    /// A row with this many values, of at most `limit` bytes together, that begins with the byte `first`.
    pub fn new(columns: usize, limit: u64, first: u8) -> Self {
        Self { columns, value: 0, size: 0, limit, first: Some(first) }
    }

    /// Goes to the next value; the last value must have been read to its end. Returns its length, or `None` for NULL.
    ///
    /// # Errors
    /// There is no next value, or it is too long.
    pub fn next_value(&mut self, bytes: &mut impl RowBytes) -> Result<Option<u64>, RowFault> {
        if self.value > 0 {
            return Err(RowFault::Broken("a value that was not read to its end"));
        }
        self.columns = self.columns.checked_sub(1).ok_or(RowFault::Broken("a row with too few values"))?;
        let first = match self.first.take() {
            Some(first) => first,
            None => {
                let mut byte = [0];
                bytes.fill(&mut byte)?;
                byte[0]
            }
        };
        let width = match first {
            0xFB => return Ok(None),
            0xFC => 2,
            0xFD => 3,
            0xFE => 8,
            0xFF => return Err(RowFault::Broken("a value without a length")),
            short => return self.begin(short.into()),
        };
        let mut length = [0; 8];
        bytes.fill(&mut length[..width])?;
        self.begin(u64::from_le_bytes(length))
    }

    fn begin(&mut self, length: u64) -> Result<Option<u64>, RowFault> {
        self.size = self.size.saturating_add(length);
        if self.size > self.limit {
            return Err(RowFault::TooLong(self.size));
        }
        self.value = length;
        Ok(Some(length))
    }

    /// Reads the next bytes of the value into the start of `buffer`, as many as fit or are left; 0 at its end.
    pub fn read(&mut self, bytes: &mut impl RowBytes, buffer: &mut [u8]) -> Result<usize, RowFault> {
        let length = usize::try_from(self.value).unwrap_or(usize::MAX).min(buffer.len());
        bytes.fill(&mut buffer[..length])?;
        self.value -= length as u64;
        Ok(length)
    }

    /// Whether all values have been read.
    pub fn is_at_end(&self) -> bool {
        self.columns == 0 && self.value == 0
    }

    /// Bytes of all values so far.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// A row on a connection.
struct OnConnection<'a> {
    packets: &'a mut PacketStream,
    payload: &'a mut Payload,
}

impl RowBytes for OnConnection<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.packets.read_exact(self.payload, buffer)
    }
}

/// The answer to a query, while it is read. Until its end nothing else can be asked on its connection.
pub struct Rows {
    columns: usize,
    limit: u64,
    row: Option<(Payload, RowDecoder)>,
    /// For an answer in the binary protocol: its columns, and its last row.
    binary: Option<(BinaryColumns, Vec<u8>)>,
}

impl Connection {
    /// Asks for rows that are to be read one by one, of at most `limit` bytes each.
    pub fn query_rows(&mut self, statement: &str, limit: u64) -> Result<Rows, Failure> {
        self.send(COM_QUERY, statement.as_bytes())?;
        self.rows(limit)
    }

    /// The rows of the next statement that was sent ahead.
    pub fn rows(&mut self, limit: u64) -> Result<Rows, Failure> {
        match result_set::read_head(&mut self.packets)? {
            Head::Columns(columns) => Ok(Rows { columns, limit, row: None, binary: None }),
            Head::Done => Err(self.broken("it sent no rows").into()),
        }
    }

    /// Asks for short rows whose numbers cost the server much as text: in the binary protocol, if all of their texts can
    /// be made here. They are rows of at most 64 KiB, as [`Rows::fetch`] gives them.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn query_numbers(&mut self, statement: &str, limit: u64) -> Result<Rows, Failure> {
        self.send(COM_STMT_PREPARE, statement.as_bytes())?;
        let prepared = match result_set::read_prepared(&mut self.packets) {
            Ok(prepared) => prepared,
            // Too many statements, or a proxy that knows none.
            Err(Failure::Server(_)) => return self.query_rows(statement, limit),
            Err(failure) => return Err(failure),
        };
        let id = prepared.id.to_le_bytes();
        let Some(binary) = BinaryColumns::of(&prepared.columns) else {
            self.send(COM_STMT_CLOSE, &id)?;
            return self.query_rows(statement, limit);
        };
        // Without a cursor, once, without parameters. The server has no answer to the close.
        self.send(COM_STMT_EXECUTE, &[&id[..], &[0, 1, 0, 0, 0]].concat())?;
        self.send(COM_STMT_CLOSE, &id)?;
        let rows = self.rows(limit)?;
        Ok(Rows { binary: Some((binary, Vec::new())), ..rows })
    }
}

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetched {
    /// A row, as a whole.
    Row,
    /// A row that is longer than a whole row may be: read it value by value.
    Long,
    /// There are no more rows.
    End,
}

/// Takes a value of a whole row from the start of `bytes`: NULL is `Some(None)`. `None` if the bytes are no value.
pub fn take_value<'b>(bytes: &mut &'b [u8]) -> Option<Option<&'b [u8]>> {
    if let Some((0xFB, rest)) = bytes.split_first() {
        *bytes = rest;
        return Some(None);
    }
    let length = usize::try_from(result_set::take_integer(bytes)?).ok()?;
    let (value, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(Some(value))
}

impl Rows {
    /// Goes to the next row. A row of at most `most` bytes is put into `row`, which [`take_value`] takes apart.
    pub fn fetch(&mut self, connection: &mut Connection, row: &mut Vec<u8>, most: usize) -> Result<Fetched, Failure> {
        self.leave(connection)?;
        let packets = &mut connection.packets;
        let payload = packets.begin()?;
        if payload.is_longer_than(most.min(PACKET_MAX - 1)) {
            if self.binary.is_some() {
                return Err(packets.broken("it sent a long row of short values").into());
            }
            return self.enter(connection, payload).map(|_| Fetched::Long);
        }
        let short = payload.is_short();
        let came = self.binary.as_mut().map_or(&mut *row, |(_, came)| came);
        packets.read_whole(payload, came)?;
        match came.first() {
            Some(0xFE) if short => return Ok(Fetched::End),
            Some(0xFF) => {
                let body = came.get(1..).unwrap_or_default();
                return Err(Failure::Server(ServerError::parse(&packets.name, body)));
            }
            Some(_) => {}
            None => return Err(packets.broken("it sent an empty row").into()),
        }
        match self.binary.as_ref().map(|(binary, came)| binary.as_text(came, row)) {
            Some(None) => Err(packets.broken("it sent an invalid row").into()),
            _ => Ok(Fetched::Row),
        }
    }

    /// Gives `take` the next row, if all of it was received already: it is not copied. None if not, and after the last.
    pub fn take_ready<R>(&mut self, connection: &mut Connection, take: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let payload = connection.packets.ready().filter(|_| self.row.is_none())?;
        if matches!(payload, [] | [0xFF, ..]) || payload.len() < 9 && payload.starts_with(&[0xFE]) {
            return None;
        }
        let taken = match &mut self.binary {
            None => take(payload),
            Some((binary, text)) => {
                binary.as_text(payload, text)?;
                take(text)
            }
        };
        connection.packets.pass_ready();
        Some(taken)
    }

    /// How many values each row has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Goes to the next row; the last row must have been read to its end. False after the last.
    pub fn next_row(&mut self, connection: &mut Connection) -> Result<bool, Failure> {
        self.leave(connection)?;
        let payload = connection.packets.begin()?;
        self.enter(connection, payload)
    }

    /// Ends a row that was read value by value.
    fn leave(&mut self, connection: &mut Connection) -> Result<()> {
        let packets = &mut connection.packets;
        let Some((mut payload, row)) = self.row.take() else { return Ok(()) };
        if !row.is_at_end() {
            return Err(packets.broken("a row was not read to its end"));
        }
        packets.end(&mut payload)
    }

    /// Begins to read a row, or the end of all rows.
    fn enter(&mut self, connection: &mut Connection, mut payload: Payload) -> Result<bool, Failure> {
        let packets = &mut connection.packets;
        let short = payload.is_short();
        let mut first = [0];
        packets.read_exact(&mut payload, &mut first)?;
        match first[0] {
            0xFE if short => {
                packets.read_rest(payload, 16)?;
                Ok(false)
            }
            0xFF => {
                let body = packets.read_rest(payload, 4096)?;
                Err(Failure::Server(ServerError::parse(&packets.name, &body)))
            }
            first => {
                self.row = Some((payload, RowDecoder::new(self.columns, self.limit, first)));
                Ok(true)
            }
        }
    }

    /// Goes to the next value of the row: its length, or nothing for NULL.
    pub fn next_value(&mut self, connection: &mut Connection) -> Result<Option<u64>, RowFault> {
        let (payload, row) = self.row.as_mut().ok_or(RowFault::Broken("no row"))?;
        row.next_value(&mut OnConnection { packets: &mut connection.packets, payload })
    }

    /// Reads the next bytes of the value into the start of `buffer`; 0 at its end.
    pub fn read(&mut self, connection: &mut Connection, buffer: &mut [u8]) -> Result<usize, RowFault> {
        let (payload, row) = self.row.as_mut().ok_or(RowFault::Broken("no row"))?;
        row.read(&mut OnConnection { packets: &mut connection.packets, payload }, buffer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    impl RowBytes for &[u8] {
        fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
            let (now, rest) = self.split_at_checked(buffer.len()).ok_or(Error::Halted)?;
            buffer.copy_from_slice(now);
            *self = rest;
            Ok(())
        }
    }

    #[test]
    fn values_come_in_pieces_and_null_is_not_the_empty_string() {
        let mut bytes = &b"abc\x00\xfb\xfc\x05\x00hello"[..];
        let mut row = RowDecoder::new(4, 100, 3);
        assert_eq!(row.next_value(&mut bytes).unwrap(), Some(3));
        let mut buffer = [0; 2];
        assert_eq!((row.read(&mut bytes, &mut buffer).unwrap(), buffer), (2, *b"ab"));
        assert!(row.clone().next_value(&mut bytes).is_err(), "a value that was not read to its end");
        assert_eq!(row.read(&mut bytes, &mut buffer).unwrap(), 1);
        assert_eq!(row.read(&mut bytes, &mut buffer).unwrap(), 0);
        assert_eq!(row.next_value(&mut bytes).unwrap(), Some(0));
        assert_eq!(row.next_value(&mut bytes).unwrap(), None);
        assert_eq!(row.next_value(&mut bytes).unwrap(), Some(5));
        let mut whole = [0; 9];
        assert_eq!(row.read(&mut bytes, &mut whole).unwrap(), 5);
        assert!(row.is_at_end() && bytes.is_empty() && row.size() == 8);
        assert!(row.next_value(&mut bytes).is_err(), "a fifth value");
    }

    #[test]
    fn a_length_that_is_not_true_or_too_long_is_an_error() {
        let mut row = RowDecoder::new(2, 10, 0xFE);
        let huge = row.next_value(&mut &b"\xff\xff\xff\xff\xff\xff\xff\xff"[..]);
        assert!(matches!(huge, Err(RowFault::TooLong(u64::MAX))));
        let mut row = RowDecoder::new(2, 10, 6);
        row.next_value(&mut &b""[..]).unwrap();
        assert!(row.read(&mut &b"abc"[..], &mut [0; 6]).is_err());
        let mut bytes = &b"abcdef\x06ghijkl"[..];
        row.read(&mut bytes, &mut [0; 6]).unwrap();
        assert!(matches!(row.next_value(&mut bytes), Err(RowFault::TooLong(12))));
        assert!(RowDecoder::new(1, 10, 0xFF).next_value(&mut &b"x"[..]).is_err());
    }
}
