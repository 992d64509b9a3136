//! The events in the stream of a log set, one after the other.

use std::fs::File;
use std::io::{BufReader, Read};

use fullbore_core::checksum::Crc32;
use fullbore_core::{Error, Result};

use super::event::{BODY_MAX, Body, CRC, HEADER, Header, kind};

const BUFFER: usize = 1 << 20;
/// How much of a long event is in memory.
const CHUNK: usize = 64 << 10;
/// The header of a statement, its thread, and how long it took.
const SEEN: usize = HEADER + 8;

/// Events in a stream.
pub(super) struct Events<'a> {
    from: BufReader<&'a File>,
    /// The name of the set, for errors.
    pub set: &'a str,
    /// The bytes of the current event that were read.
    event: Vec<u8>,
}

impl<'a> Events<'a> {
    /// From the beginning of a stream on.
    pub fn new(stream: &'a File, set: &'a str) -> Self {
        Self { from: BufReader::with_capacity(BUFFER, stream), set, event: Vec::new() }
    }

    /// The error of a stream that breaks its format.
    pub fn broken(&self, why: &str) -> Error {
        Error::incomplete(self.set, why, "use another copy of the set")
    }

    /// The next bytes, of which there are few.
    ///
    /// # Errors
    /// The stream is too short, or cannot be read.
    pub fn bytes(&mut self, length: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if length > BODY_MAX as u64 {
            return Err(self.broken("an event about GTIDs or files is too long"));
        }
        let read = (&mut self.from).take(length).read_to_end(&mut bytes);
        read.map_err(|error| Error::io("read", self.set, error))?;
        if (bytes.len() as u64) < length { Err(self.broken("its stream is too short")) } else { Ok(bytes) }
    }

    /// The header of the next event.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub fn header(&mut self) -> Result<Header> {
        let mut bytes = [0; HEADER];
        let read = self.from.read_exact(&mut bytes);
        read.map_err(|error| Error::io("read", self.set, error))?;
        self.event.clear();
        self.event.extend_from_slice(&bytes);
        Header::parse(&bytes).ok_or_else(|| self.broken("an event is shorter than its header"))
    }

    /// Reads the body of an event that matters; of another event nothing.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), or it breaks its format.
    pub fn body(&mut self, header: &Header) -> Result<Body> {
        if !header.has_known_body() {
            return Ok(Body::Other);
        }
        let rest = self.bytes(u64::from(header.size) - HEADER as u64)?;
        self.event.extend_from_slice(&rest);
        let body = rest.get(..rest.len() - CRC).unwrap_or_default();
        Body::parse(header, body).map_err(|why| self.broken(why))
    }

    /// When the next event was logged, if it is a statement: its beginning and how long it took, in seconds since 1970. The
    /// event is not taken.
    ///
    /// # Errors
    /// The stream cannot be read.
    pub fn end_of_next_statement(&mut self) -> Result<Option<u32>> {
        let mut bytes = Vec::with_capacity(SEEN);
        let read = (&mut self.from).take(SEEN as u64).read_to_end(&mut bytes);
        let back = read.and_then(|read| self.from.seek_relative(-(read as i64)));
        back.map_err(|error| Error::io("read", self.set, error))?;
        let header = bytes.first_chunk().and_then(Header::parse).filter(|header| header.kind == kind::QUERY);
        // After the thread.
        let took = bytes.last_chunk().filter(|_| bytes.len() == SEEN).map(|took| u32::from_le_bytes(*took));
        Ok(header.zip(took).map(|(header, took)| header.timestamp.wrapping_add(took)))
    }

    /// Reads the rest of the current event, and gives all of it to `to`. Returns its checksum, which must be right.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), or the checksum is wrong, or the error of `to`.
    pub fn pass(&mut self, header: &Header, mut to: impl FnMut(&[u8]) -> Result<()>) -> Result<u32> {
        let (mut crc, mut left) = (Crc32::new(), header.size as usize - self.event.len());
        let mut chunk = std::mem::take(&mut self.event);
        let mut stored = Vec::with_capacity(2 * CRC);
        loop {
            to(&chunk)?;
            // The last four bytes so far may be the checksum.
            stored.extend_from_slice(&chunk);
            let end = stored.len().saturating_sub(CRC);
            crc.update(&stored[..end]);
            stored.drain(..end);
            if left == 0 {
                break;
            }
            chunk.resize(left.min(CHUNK), 0);
            let read = self.from.read_exact(&mut chunk);
            read.map_err(|error| Error::io("read", self.set, error))?;
            left -= chunk.len();
        }
        self.event = chunk;
        if stored.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) != Some(crc.finish()) {
            return Err(self.broken("the checksum of an event is wrong"));
        }
        Ok(crc.finish())
    }
}
