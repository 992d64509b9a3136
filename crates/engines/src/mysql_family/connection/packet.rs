//! Packets: a length of 3 bytes, a sequence number, and a payload, which continues in the next packet if the length is
//! all ones (MySQL's protocol documentation, "MySQL Packets").

use std::io::{self, BufRead, BufReader, Read, Write};

use fullbore_core::{Error, Result};

use super::stream::Stream;

/// The longest part of a payload in one packet; a packet of this length has a successor.
pub(super) const PACKET_MAX: usize = 0xFF_FFFF;

/// The read-ahead: headers and small packets. Longer reads bypass it.
const READ_AHEAD: usize = 128 << 10;

/// A stream cut into packets.
pub(super) struct PacketStream {
    reader: BufReader<Stream>,
    /// The number of the next packet to send.
    sequence: u8,
    /// The server's name, for errors.
    pub name: String,
}

/// The reader's place in a payload.
#[derive(Clone, Copy)]
pub(super) struct Payload {
    /// Bytes left in this packet.
    left: usize,
    /// Whether another packet of the same payload follows.
    more: bool,
}

impl Payload {
    /// Whether the whole of it, of which nothing was read yet, is too short for a row that begins with a long value.
    pub fn is_short(&self) -> bool {
        self.left < 9
    }

    /// Whether its first packet, of which nothing was read yet, has more than `limit` bytes.
    pub fn is_longer_than(&self, limit: usize) -> bool {
        self.left > limit
    }
}

impl PacketStream {
    pub fn new(stream: Stream, name: String) -> Self {
        Self { reader: BufReader::with_capacity(READ_AHEAD, stream), sequence: 0, name }
    }

    pub fn stream(&self) -> &Stream {
        self.reader.get_ref()
    }

    pub fn stream_mut(&mut self) -> &mut Stream {
        self.reader.get_mut()
    }

    /// Puts TLS around the stream. Refused if the server sent data before: it would count as encrypted.
    pub fn wrap(self, wrap: impl FnOnce(Stream) -> Result<Stream>) -> Result<Self> {
        let Self { reader, sequence, name } = self;
        if !reader.buffer().is_empty() {
            let hint = "check the network: another program may change the connection";
            return Err(Error::refused(name, "the server sent data before TLS began", hint));
        }
        Ok(Self { reader: BufReader::with_capacity(READ_AHEAD, wrap(reader.into_inner())?), sequence, name })
    }

    /// The next packet sent begins a command.
    pub fn restart_sequence(&mut self) {
        self.sequence = 0;
    }

    /// Starts reading a payload.
    pub fn begin(&mut self) -> Result<Payload> {
        let mut header = [0; 4];
        self.fill(&mut header)?;
        // The number itself is not checked: the clone plugin restarts it with each message.
        self.sequence = header[3].wrapping_add(1);
        let left = usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16;
        Ok(Payload { left, more: left == PACKET_MAX })
    }

    /// The next payload, of which nothing was read yet, if all of it was received already.
    pub fn ready(&self) -> Option<&[u8]> {
        let (&[one, two, three, _], rest) = self.reader.buffer().split_first_chunk()?;
        let length = usize::from(one) | usize::from(two) << 8 | usize::from(three) << 16;
        rest.get(..length).filter(|_| length < PACKET_MAX)
    }

    /// The payload of [`ready`](Self::ready) was read.
    pub fn pass_ready(&mut self) {
        let length = self.ready().map_or(0, |payload| 4 + payload.len());
        self.sequence = self.reader.buffer().get(3).map_or(self.sequence, |number| number.wrapping_add(1));
        self.reader.consume(length);
    }

    /// The header of a payload that has just begun.
    pub fn header_of(&self, begun: Payload) -> [u8; 4] {
        let [one, two, three, ..] = begun.left.to_le_bytes();
        [one, two, three, self.sequence.wrapping_sub(1)]
    }

    /// Reads exactly as many bytes of the payload as `buffer` has; an error if it has fewer.
    pub fn read_exact(&mut self, payload: &mut Payload, mut buffer: &mut [u8]) -> Result<()> {
        while !buffer.is_empty() {
            if payload.left == 0 {
                if !payload.more {
                    return Err(self.broken("it sent a message that is too short"));
                }
                *payload = self.begin()?;
                continue;
            }
            let (now, rest) = buffer.split_at_mut(buffer.len().min(payload.left));
            self.fill(now)?;
            payload.left -= now.len();
            buffer = rest;
        }
        Ok(())
    }

    /// Checks that the payload has no more bytes.
    pub fn end(&mut self, payload: &mut Payload) -> Result<()> {
        while payload.left == 0 && payload.more {
            *payload = self.begin()?;
        }
        if payload.left > 0 { Err(self.broken("it sent a message that is too long")) } else { Ok(()) }
    }

    /// The rest of the payload, of at most `limit` bytes.
    pub fn read_rest(&mut self, mut payload: Payload, limit: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            if payload.left > limit - bytes.len() {
                return Err(self.broken(&format!("it sent a message of more than {limit} bytes")));
            }
            let start = bytes.len();
            bytes.resize(start + payload.left, 0);
            self.fill(&mut bytes[start..])?;
            if !payload.more {
                return Ok(bytes);
            }
            payload = self.begin()?;
        }
    }

    /// Puts a payload of one packet into `bytes`, in place of its content.
    pub fn read_whole(&mut self, payload: Payload, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.resize(payload.left, 0);
        self.fill(bytes)
    }

    /// A whole payload of at most `limit` bytes.
    pub fn read(&mut self, limit: usize) -> Result<Vec<u8>> {
        let payload = self.begin()?;
        self.read_rest(payload, limit)
    }

    /// Sends a payload, in as many packets as it needs.
    pub fn write(&mut self, payload: &[u8]) -> Result<()> {
        let mut framed = Vec::with_capacity(payload.len() + 4 * (payload.len() / PACKET_MAX + 1));
        let mut rest = payload;
        loop {
            let (now, later) = rest.split_at(rest.len().min(PACKET_MAX));
            framed.extend_from_slice(&(now.len() as u32).to_le_bytes()[..3]);
            framed.push(self.sequence);
            framed.extend_from_slice(now);
            self.sequence = self.sequence.wrapping_add(1);
            rest = later;
            if now.len() < PACKET_MAX {
                break;
            }
        }
        let sent = self.reader.get_mut().write_all(&framed).and_then(|()| self.reader.get_mut().flush());
        zeroize::Zeroize::zeroize(&mut framed); // Some hold a password.
        sent.map_err(|error| self.failed("send to", error))
    }

    /// Sends a payload of one packet that is no secret, without a copy of it.
    pub fn write_data(&mut self, payload: &[u8]) -> Result<()> {
        if payload.len() >= PACKET_MAX {
            return self.write(payload);
        }
        let [one, two, three, ..] = (payload.len() as u32).to_le_bytes();
        let header = [one, two, three, self.sequence];
        self.sequence = self.sequence.wrapping_add(1);
        let stream = self.reader.get_mut();
        let sent = stream.write_all(&header).and_then(|()| stream.write_all(payload)).and_then(|()| stream.flush());
        sent.map_err(|error| self.failed("send to", error))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.reader.read_exact(buffer).map_err(|error| self.failed("read from", error))
    }

    fn failed(&self, action: &str, error: io::Error) -> Error {
        if self.stream().socket().is_halted() {
            return Error::Halted;
        }
        let why = match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                "the connection was cut".to_owned()
            }
            _ => format!("cannot {action} the server: {error}"),
        };
        Error::refused(
            &self.name,
            why,
            "look into the server's error log: the server may have stopped, or the network failed",
        )
    }

    /// The error of a server that breaks the protocol.
    pub fn broken(&self, why: &str) -> Error {
        let hint = "check host and port: the server, or a proxy before it, does not speak the protocol of MySQL and \
                    MariaDB";
        Error::refused(&self.name, why, hint)
    }
}
