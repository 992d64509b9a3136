//! LOAD DATA LOCAL: the server asks for a file, and gets rows instead (MySQL's protocol documentation,
//! "LOCAL INFILE Request").

use fullbore_core::Result;
use fullbore_core::halt::Halt;

use super::handshake::capability;
use super::server_error::{Failure, ServerError};
use super::{COM_QUERY, Connection};
use crate::mysql_family::credentials::Credentials;
use crate::mysql_family::url::ServerAddress;

/// The longest packet of data that is sent at once, in bytes.
const PACKET: usize = 1 << 20;
/// The longest answer.
const ANSWER_MAX: usize = 64 << 10;

/// What the server says of a statement that changed rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changed {
    /// Rows that it inserted.
    pub rows: u64,
    /// Its warnings.
    pub warnings: u16,
}

impl Connection {
    /// Connects and logs in; the server may ask for the data of LOAD DATA LOCAL.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_loading(address: &ServerAddress, credentials: &Credentials, halt: Option<Halt>) -> Result<Self> {
        let mut connection = Self::open_with(address, credentials, halt, capability::LOCAL_FILES)?;
        connection.query(super::PATIENT_SESSION)?;
        Ok(connection)
    }

    /// Begins a LOAD DATA LOCAL statement. The server then waits for the bytes of its file.
    ///
    /// # Errors
    /// The server refuses the statement.
    pub fn begin_load(&mut self, statement: &str) -> Result<(), Failure> {
        self.send(COM_QUERY, statement.as_bytes())?;
        let answer = self.packets.read(ANSWER_MAX)?;
        match answer.split_first() {
            Some((0xFB, _)) => Ok(()),
            Some((0xFF, body)) => Err(Failure::Server(ServerError::parse(&self.packets.name, body))),
            _ => Err(self.packets.broken("it did not ask for the rows of LOAD DATA").into()),
        }
    }

    /// Sends bytes of the file, in packets below `packet_max` bytes.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send_rows(&mut self, data: &[u8], packet_max: usize) -> Result<()> {
        let packet = PACKET.min(packet_max.saturating_sub(1)).max(1);
        data.chunks(packet).try_for_each(|piece| self.packets.write_data(piece))
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The server refuses the data.
    pub fn end_load(&mut self) -> Result<Changed, Failure> {
        self.packets.write(&[])?;
        self.changed()
    }

    /// Runs a statement that changes rows.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn change(&mut self, statement: &[u8]) -> Result<Changed, Failure> {
        self.send(COM_QUERY, statement)?;
        self.changed()
    }

    /// Reads an OK packet.
    fn changed(&mut self) -> Result<Changed, Failure> {
        let answer = self.packets.read(ANSWER_MAX)?;
        match answer.split_first() {
            Some((0x00, body)) => {
                let parsed = ok_packet(body);
                Ok(parsed.ok_or_else(|| self.packets.broken("its OK has no numbers"))?)
            }
            Some((0xFF, body)) => Err(Failure::Server(ServerError::parse(&self.packets.name, body))),
            _ => Err(self.packets.broken("its answer is neither OK nor an error").into()),
        }
    }
}

/// An OK packet without its first byte: rows, last insert id, status of 2 bytes, warnings of 2 bytes.
fn ok_packet(mut body: &[u8]) -> Option<Changed> {
    let rows = super::result_set::take_integer(&mut body)?;
    super::result_set::take_integer(&mut body)?;
    let (_, rest) = body.split_first_chunk::<2>()?;
    let (warnings, _) = rest.split_first_chunk::<2>()?;
    Some(Changed { rows, warnings: u16::from_le_bytes(*warnings) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ok_packet_has_rows_and_warnings_and_a_short_one_is_refused() {
        let body = b"\xfc\x10\x27\x00\x02\x00\x03\x00Records: 10000";
        assert_eq!(ok_packet(body), Some(Changed { rows: 10_000, warnings: 3 }));
        assert_eq!((0..8).map(|length| ok_packet(&body[..length])).filter(Option::is_some).count(), 0);
    }
}
